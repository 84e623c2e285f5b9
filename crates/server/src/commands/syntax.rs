//! How commands are written: the arguments that `COMMAND DOCS` tells, and
//! redis-cli shows as help and hints while one types.
//!
//! [`SYNTAX`] has one line for each command that takes arguments, in the
//! notation of Redis's own manual:
//!
//! ```text
//! key               an argument, its kind told by its name
//! COUNT count       a word, and the argument behind it
//! NX                a word alone
//! [ ... ]           may be left out
//! ( ... )           belongs together
//! NX | XX           one of these (within brackets)
//! key...            one or more
//! ```

use crate::engine::out::Out;

/// An argument, or several that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Argument {
    /// In lower case; of a group the names of its parts, joined.
    name: String,
    kind: Kind,
    /// The word before it.
    token: Option<String>,
    optional: bool,
    multiple: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Value,
    Word,
    OneOf(Vec<Argument>),
    Block(Vec<Argument>),
}

impl Argument {
    fn new(name: String, kind: Kind) -> Self {
        Self { name, kind, token: None, optional: false, multiple: false }
    }
}

/// Splits a line into words, brackets, bars and dots.
fn lex(line: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    for word in line.split_ascii_whitespace() {
        let mut rest = word;
        while !rest.is_empty() {
            let cut = if rest.starts_with("...") {
                3
            } else if rest.starts_with(['[', ']', '(', ')', '|']) {
                1
            } else {
                let dots = rest.find("...").unwrap_or(rest.len());
                rest.find(['[', ']', '(', ')', '|']).unwrap_or(rest.len()).min(dots)
            };
            tokens.push(&rest[..cut]);
            rest = &rest[cut..];
        }
    }
    tokens
}

fn is_word(token: &str) -> bool {
    !token.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// Reads arguments up to a closing bracket or the end: the alternatives.
fn alternatives(tokens: &mut std::iter::Peekable<std::vec::IntoIter<&str>>) -> Vec<Vec<Argument>> {
    let mut all = vec![Vec::<Argument>::new()];
    while let Some(&token) = tokens.peek() {
        if matches!(token, "]" | ")") {
            break;
        }
        tokens.next();
        let Some(current) = all.last_mut() else { break };
        let next = match token {
            "|" => {
                all.push(Vec::new());
                continue;
            }
            "..." => {
                if let Some(last) = current.last_mut() {
                    last.multiple = true;
                }
                continue;
            }
            "[" | "(" => {
                let mut inner = group(alternatives(tokens));
                tokens.next();
                inner.optional = token == "[";
                inner
            }
            word if is_word(word) => {
                let mut argument = Argument::new(word.to_ascii_lowercase(), Kind::Word);
                argument.token = Some(word.into());
                current.push(argument);
                continue;
            }
            name => Argument::new(name.into(), Kind::Value),
        };
        // A word takes the argument behind it, unless one of them may be left out.
        match current.last_mut() {
            Some(word) if word.kind == Kind::Word && !word.optional && !next.optional => {
                *word = Argument { token: word.token.take(), ..next };
            }
            _ => current.push(next),
        }
    }
    all
}

/// What stands within one pair of brackets, as one argument.
fn group(mut all: Vec<Vec<Argument>>) -> Argument {
    if all.len() > 1 {
        let choices: Vec<Argument> = all.into_iter().map(|one| group(vec![one])).collect();
        return Argument::new(joined(&choices), Kind::OneOf(choices));
    }
    let mut parts = all.pop().unwrap_or_default();
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        Some(last) => {
            parts.push(last);
            Argument::new(joined(&parts), Kind::Block(parts))
        }
        None => Argument::new(String::new(), Kind::Block(Vec::new())),
    }
}

fn joined(parts: &[Argument]) -> String {
    parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join("_")
}

fn parse(line: &str) -> Vec<Argument> {
    alternatives(&mut lex(line).into_iter().peekable()).swap_remove(0)
}

/// The type that clients are told, by an argument's name.
fn type_of(argument: &Argument) -> &'static str {
    const INTEGERS: &str = "seconds milliseconds count offset start end index1 index2 cursor \
        numreplicas numkeys numfields limit timeout bit value-bits len integer dbid threshold client-id slot start-slot \
        end-slot decrement entries-added percent limit ms microseconds protover size port samples";
    match &argument.kind {
        Kind::Word => "pure-token",
        Kind::OneOf(_) => "oneof",
        Kind::Block(_) => "block",
        Kind::Value => match argument.name.as_str() {
            "key" | "dst" | "src" | "key1" | "key2" | "newkey" | "source" | "sourcekey"
            | "destination" | "destkey" => "key",
            "pattern" => "pattern",
            "unix-time-seconds" | "unix-time-milliseconds" => "unix-time",
            name if INTEGERS.split(' ').any(|integer| integer == name) => "integer",
            _ => "string",
        },
    }
}

/// Writes the field with a command's arguments, if its syntax is known.
pub(super) fn write(full_name: &str, out: &mut Out) {
    if let Some((_, line)) = SYNTAX.iter().find(|(name, _)| *name == full_name) {
        out.w().bulk(b"arguments");
        write_all(&parse(line), &mut 0, out);
    }
}

/// Whether a command's syntax is known.
pub(super) fn is_known(full_name: &str) -> bool {
    SYNTAX.iter().any(|(name, _)| *name == full_name)
}

fn write_all(arguments: &[Argument], keys: &mut i64, out: &mut Out) {
    out.w().array(arguments.len());
    for argument in arguments {
        let kind = type_of(argument);
        let inner = match &argument.kind {
            Kind::OneOf(inner) | Kind::Block(inner) => Some(inner),
            Kind::Value | Kind::Word => None,
        };
        let flags = [("optional", argument.optional), ("multiple", argument.multiple)];
        let flags: Vec<&str> = flags.iter().filter(|(_, on)| *on).map(|(flag, _)| *flag).collect();
        let fields = [kind == "key", argument.token.is_some(), !flags.is_empty(), inner.is_some()];
        let mut w = out.w();
        w.map(2 + fields.iter().filter(|&&field| field).count());
        w.bulk(b"name");
        w.bulk(argument.name.as_bytes());
        w.bulk(b"type");
        w.bulk(kind.as_bytes());
        if kind == "key" {
            w.bulk(b"key_spec_index");
            w.integer(*keys);
            *keys += 1;
        }
        if let Some(token) = &argument.token {
            w.bulk(b"token");
            w.bulk(token.as_bytes());
        }
        if !flags.is_empty() {
            w.bulk(b"flags");
            w.set(flags.len());
            flags.iter().for_each(|flag| w.simple(flag));
        }
        if let Some(inner) = inner {
            w.bulk(b"arguments");
            write_all(inner, keys, out);
        }
    }
}

/// How each command is written, behind its name.
const SYNTAX: &[(&str, &str)] = &[
    ("acl|cat", "[categoryname]"),
    ("acl|deluser", "username..."),
    ("acl|dryrun", "username command [arg]..."),
    ("acl|genpass", "[bits]"),
    ("acl|getuser", "username"),
    ("acl|log", "[count | RESET]"),
    ("acl|setuser", "username [rule]..."),
    ("append", "key value"),
    ("auth", "[username] password"),
    ("bgsave", "[SCHEDULE]"),
    ("bitcount", "key [start end [BYTE | BIT]]"),
    (
        "bitfield",
        "key [GET encoding offset | [OVERFLOW (WRAP | SAT | FAIL)] (SET encoding offset value | INCRBY encoding offset increment)]...",
    ),
    ("bitfield_ro", "key [GET encoding offset]..."),
    ("bitop", "(AND | OR | XOR | NOT) destkey key..."),
    ("bitpos", "key bit [start [end [BYTE | BIT]]]"),
    ("blmove", "source destination (LEFT | RIGHT) (LEFT | RIGHT) timeout"),
    ("blmpop", "timeout numkeys key... (LEFT | RIGHT) [COUNT count]"),
    ("blpop", "key... timeout"),
    ("brpop", "key... timeout"),
    ("brpoplpush", "source destination timeout"),
    ("bzmpop", "timeout numkeys key... (MIN | MAX) [COUNT count]"),
    ("bzpopmax", "key... timeout"),
    ("bzpopmin", "key... timeout"),
    ("client|caching", "(YES | NO)"),
    (
        "client|tracking",
        "(ON | OFF) [REDIRECT client-id] [[PREFIX prefix]...] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
    ),
    (
        "client|kill",
        "(ip:port | ([ID client-id] [TYPE (NORMAL | MASTER | SLAVE | REPLICA | PUBSUB)] [USER username] [ADDR ip:port] [LADDR ip:port] [SKIPME (YES | NO)] [MAXAGE seconds])...)",
    ),
    ("client|list", "[TYPE (NORMAL | MASTER | REPLICA | PUBSUB)] [ID client-id...]"),
    ("client|no-evict", "(ON | OFF)"),
    ("client|no-touch", "(ON | OFF)"),
    ("client|pause", "timeout [WRITE | ALL]"),
    ("client|reply", "(ON | OFF | SKIP)"),
    ("client|setinfo", "(LIB-NAME libname | LIB-VER libver)"),
    ("client|setname", "connection-name"),
    ("client|unblock", "client-id [TIMEOUT | ERROR]"),
    ("cluster|addslots", "slot..."),
    ("cluster|addslotsrange", "(start-slot end-slot)..."),
    ("cluster|count-failure-reports", "node-id"),
    ("cluster|countkeysinslot", "slot"),
    ("cluster|delslots", "slot..."),
    ("cluster|delslotsrange", "(start-slot end-slot)..."),
    ("cluster|getkeysinslot", "slot count"),
    ("cluster|keyslot", "key"),
    ("cluster|replicas", "node-id"),
    ("cluster|slaves", "node-id"),
    ("cluster|reset", "[HARD | SOFT]"),
    ("command|docs", "[command-name]..."),
    ("command|getkeys", "command [arg]..."),
    ("command|getkeysandflags", "command [arg]..."),
    ("command|info", "[command-name]..."),
    ("command|list", "[FILTERBY (MODULE module-name | ACLCAT category | PATTERN pattern)]"),
    ("config|get", "parameter..."),
    ("config|set", "(parameter value)..."),
    ("copy", "source destination [DB destination-db] [REPLACE]"),
    ("debug", "subcommand [arg]..."),
    ("decr", "key"),
    ("decrby", "key decrement"),
    ("del", "key..."),
    ("dump", "key"),
    ("echo", "message"),
    ("exists", "key..."),
    ("failover", "[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]"),
    ("fcall", "function numkeys [key...] [arg...]"),
    ("fcall_ro", "function numkeys [key...] [arg...]"),
    ("eval", "script numkeys [key...] [arg...]"),
    ("eval_ro", "script numkeys [key...] [arg...]"),
    ("evalsha", "sha1 numkeys [key...] [arg...]"),
    ("evalsha_ro", "sha1 numkeys [key...] [arg...]"),
    ("expire", "key seconds [NX | XX | GT | LT]"),
    ("expireat", "key unix-time-seconds [NX | XX | GT | LT]"),
    ("expiretime", "key"),
    ("flushall", "[ASYNC | SYNC]"),
    ("flushdb", "[ASYNC | SYNC]"),
    ("function|delete", "library-name"),
    ("function|flush", "[ASYNC | SYNC]"),
    ("function|list", "[LIBRARYNAME library-name-pattern] [WITHCODE]"),
    ("function|load", "[REPLACE] function-code"),
    ("function|restore", "serialized-value [FLUSH | APPEND | REPLACE]"),
    ("geoadd", "key [NX | XX] [CH] (longitude latitude member)..."),
    ("geodist", "key member1 member2 [M | KM | FT | MI]"),
    ("geohash", "key [member]..."),
    ("geopos", "key [member]..."),
    (
        "georadius",
        "key longitude latitude radius (M | KM | FT | MI) [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC] [STORE key] [STOREDIST key]",
    ),
    (
        "georadius_ro",
        "key longitude latitude radius (M | KM | FT | MI) [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC]",
    ),
    (
        "georadiusbymember",
        "key member radius (M | KM | FT | MI) [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC] [STORE key] [STOREDIST key]",
    ),
    (
        "georadiusbymember_ro",
        "key member radius (M | KM | FT | MI) [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC]",
    ),
    (
        "geosearch",
        "key (FROMMEMBER member | FROMLONLAT (longitude latitude)) (BYRADIUS (radius (M | KM | FT | MI)) | BYBOX (width height (M | KM | FT | MI))) [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]",
    ),
    (
        "geosearchstore",
        "destination source (FROMMEMBER member | FROMLONLAT (longitude latitude)) (BYRADIUS (radius (M | KM | FT | MI)) | BYBOX (width height (M | KM | FT | MI))) [ASC | DESC] [COUNT count [ANY]] [STOREDIST]",
    ),
    ("get", "key"),
    ("getbit", "key offset"),
    ("getdel", "key"),
    (
        "getex",
        "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]",
    ),
    ("getrange", "key start end"),
    ("getset", "key value"),
    ("hdel", "key field..."),
    ("hello", "[protover [AUTH (username password)] [SETNAME clientname]]"),
    ("hexists", "key field"),
    ("hexpire", "key seconds [NX | XX | GT | LT] FIELDS (numfields field...)"),
    ("hexpireat", "key unix-time-seconds [NX | XX | GT | LT] FIELDS (numfields field...)"),
    ("hexpiretime", "key FIELDS (numfields field...)"),
    ("hget", "key field"),
    ("hgetall", "key"),
    ("hgetdel", "key FIELDS (numfields field...)"),
    (
        "hgetex",
        "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST] FIELDS (numfields field...)",
    ),
    ("hincrby", "key field increment"),
    ("hincrbyfloat", "key field increment"),
    ("hkeys", "key"),
    ("hlen", "key"),
    ("hmget", "key field..."),
    ("hmset", "key (field value)..."),
    ("hpersist", "key FIELDS (numfields field...)"),
    ("hpexpire", "key milliseconds [NX | XX | GT | LT] FIELDS (numfields field...)"),
    ("hpexpireat", "key unix-time-milliseconds [NX | XX | GT | LT] FIELDS (numfields field...)"),
    ("hpexpiretime", "key FIELDS (numfields field...)"),
    ("hpttl", "key FIELDS (numfields field...)"),
    ("hrandfield", "key [count [WITHVALUES]]"),
    ("hscan", "key cursor [MATCH pattern] [COUNT count] [NOVALUES]"),
    ("hset", "key (field value)..."),
    (
        "hsetex",
        "key [FNX | FXX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL] FIELDS (numfields (field value)...)",
    ),
    ("hsetnx", "key field value"),
    ("hstrlen", "key field"),
    ("httl", "key FIELDS (numfields field...)"),
    ("hvals", "key"),
    ("incr", "key"),
    ("incrby", "key increment"),
    ("incrbyfloat", "key increment"),
    ("info", "[section]..."),
    ("keys", "pattern"),
    ("latency|graph", "event"),
    ("latency|histogram", "[command]..."),
    ("latency|history", "event"),
    ("latency|reset", "[event]..."),
    ("lcs", "key1 key2 [LEN] [IDX] [MINMATCHLEN len] [WITHMATCHLEN]"),
    ("lindex", "key index"),
    ("linsert", "key (BEFORE | AFTER) pivot element"),
    ("llen", "key"),
    ("lmove", "source destination (LEFT | RIGHT) (LEFT | RIGHT)"),
    ("lmpop", "numkeys key... (LEFT | RIGHT) [COUNT count]"),
    ("lolwut", "[VERSION version]"),
    ("lpop", "key [count]"),
    ("lpos", "key element [RANK rank] [COUNT num-matches] [MAXLEN len]"),
    ("lpush", "key element..."),
    ("lpushx", "key element..."),
    ("lrange", "key start stop"),
    ("lrem", "key count element"),
    ("lset", "key index element"),
    ("ltrim", "key start stop"),
    ("memory|usage", "key [SAMPLES count]"),
    ("mget", "key..."),
    ("module|load", "path [arg...]"),
    ("module|loadex", "path [CONFIG (name value)...] [ARGS arg...]"),
    ("module|unload", "name"),
    ("move", "key db"),
    ("mset", "(key value)..."),
    ("msetnx", "(key value)..."),
    ("object|encoding", "key"),
    ("object|freq", "key"),
    ("object|idletime", "key"),
    ("object|refcount", "key"),
    ("persist", "key"),
    ("pexpire", "key milliseconds [NX | XX | GT | LT]"),
    ("pexpireat", "key unix-time-milliseconds [NX | XX | GT | LT]"),
    ("pexpiretime", "key"),
    ("pfadd", "key [element]..."),
    ("pfcount", "key..."),
    ("pfdebug", "subcommand key"),
    ("pfmerge", "destkey sourcekey..."),
    ("ping", "[message]"),
    ("psetex", "key milliseconds value"),
    ("psubscribe", "pattern..."),
    ("psync", "replicationid offset"),
    ("pttl", "key"),
    ("publish", "channel message"),
    ("pubsub|channels", "[pattern]"),
    ("pubsub|numsub", "[channel]..."),
    ("pubsub|shardchannels", "[pattern]"),
    ("pubsub|shardnumsub", "[shardchannel]..."),
    ("punsubscribe", "[pattern]..."),
    ("rename", "key newkey"),
    ("renamenx", "key newkey"),
    ("replicaof", "host port"),
    ("restore", "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]"),
    (
        "restore-asking",
        "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
    ),
    ("rpop", "key [count]"),
    ("rpoplpush", "source destination"),
    ("rpush", "key element..."),
    ("rpushx", "key element..."),
    ("sadd", "key member..."),
    ("scan", "cursor [MATCH pattern] [COUNT count] [TYPE type]"),
    ("scard", "key"),
    ("script|debug", "YES | SYNC | NO"),
    ("script|exists", "sha1..."),
    ("script|flush", "[ASYNC | SYNC]"),
    ("script|load", "script"),
    ("sdiff", "key..."),
    ("sdiffstore", "destination key..."),
    ("select", "index"),
    (
        "set",
        "key value [NX | XX] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
    ),
    ("setbit", "key offset value"),
    ("setex", "key seconds value"),
    ("setnx", "key value"),
    ("setrange", "key offset value"),
    ("shutdown", "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]"),
    ("sinter", "key..."),
    ("sintercard", "numkeys key... [LIMIT limit]"),
    ("sinterstore", "destination key..."),
    ("sismember", "key member"),
    ("slaveof", "host port"),
    ("slowlog|get", "[count]"),
    ("smembers", "key"),
    ("smismember", "key member..."),
    ("smove", "source destination member"),
    ("snug|object", "key"),
    ("snug|pack", "key"),
    ("snug|policy", "<GET | SET json>"),
    ("snug|tier", "key"),
    ("snug|unpack", "key"),
    (
        "sort",
        "key [BY pattern] [LIMIT (offset count)] [GET pattern]... [ASC | DESC] [ALPHA] [STORE destination]",
    ),
    ("sort_ro", "key [BY pattern] [LIMIT (offset count)] [GET pattern]... [ASC | DESC] [ALPHA]"),
    ("spop", "key [count]"),
    ("spublish", "shardchannel message"),
    ("srandmember", "key [count]"),
    ("srem", "key member..."),
    ("sscan", "key cursor [MATCH pattern] [COUNT count]"),
    ("ssubscribe", "shardchannel..."),
    ("strlen", "key"),
    ("subscribe", "channel..."),
    ("substr", "key start end"),
    ("sunion", "key..."),
    ("sunionstore", "destination key..."),
    ("sunsubscribe", "[shardchannel]..."),
    ("swapdb", "index1 index2"),
    ("touch", "key..."),
    ("ttl", "key"),
    ("type", "key"),
    ("unlink", "key..."),
    ("unsubscribe", "[channel]..."),
    ("wait", "numreplicas timeout"),
    ("waitaof", "numlocal numreplicas timeout"),
    ("watch", "key..."),
    ("xack", "key group id..."),
    (
        "xadd",
        "key [NOMKSTREAM] [(MAXLEN | MINID | MAXSIZE) [= | ~] threshold [LIMIT count]] (* | id) (field value)...",
    ),
    ("xautoclaim", "key group consumer min-idle-time start [COUNT count] [JUSTID]"),
    (
        "xclaim",
        "key group consumer min-idle-time id... [IDLE ms] [TIME unix-time-milliseconds] [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID lastid]",
    ),
    ("xdel", "key id..."),
    ("xgroup|create", "key group (id | $) [MKSTREAM] [ENTRIESREAD entries-read]"),
    ("xgroup|createconsumer", "key group consumer"),
    ("xgroup|delconsumer", "key group consumer"),
    ("xgroup|destroy", "key group"),
    ("xgroup|setid", "key group (id | $) [ENTRIESREAD entries-read]"),
    ("xinfo|consumers", "key group"),
    ("xinfo|groups", "key"),
    ("xinfo|stream", "key [FULL [COUNT count]]"),
    ("xlen", "key"),
    ("xpending", "key group [[IDLE min-idle-time] start end count [consumer]]"),
    ("xrange", "key start end [COUNT count]"),
    ("xread", "[COUNT count] [BLOCK milliseconds] STREAMS key... id..."),
    (
        "xreadgroup",
        "GROUP (group consumer) [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key... id...",
    ),
    ("xrevrange", "key end start [COUNT count]"),
    ("xsetid", "key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]"),
    ("xtrim", "key (MAXLEN | MINID | MAXSIZE) [= | ~] threshold [LIMIT count]"),
    ("zadd", "key [NX | XX] [GT | LT] [CH] [INCR] (score member)..."),
    ("zcard", "key"),
    ("zcount", "key min max"),
    ("zdiff", "numkeys key... [WITHSCORES]"),
    ("zdiffstore", "destination numkeys key..."),
    ("zincrby", "key increment member"),
    ("zinter", "numkeys key... [WEIGHTS weight...] [AGGREGATE (SUM | MIN | MAX)] [WITHSCORES]"),
    ("zintercard", "numkeys key... [LIMIT limit]"),
    ("zinterstore", "destination numkeys key... [WEIGHTS weight...] [AGGREGATE (SUM | MIN | MAX)]"),
    ("zlexcount", "key min max"),
    ("zmpop", "numkeys key... (MIN | MAX) [COUNT count]"),
    ("zmscore", "key member..."),
    ("zpopmax", "key [count]"),
    ("zpopmin", "key [count]"),
    ("zrandmember", "key [count [WITHSCORES]]"),
    ("zrange", "key start stop [BYSCORE | BYLEX] [REV] [LIMIT (offset count)] [WITHSCORES]"),
    ("zrangebylex", "key min max [LIMIT (offset count)]"),
    ("zrangebyscore", "key min max [WITHSCORES] [LIMIT (offset count)]"),
    ("zrangestore", "dst src min max [BYSCORE | BYLEX] [REV] [LIMIT (offset count)]"),
    ("zrank", "key member [WITHSCORE]"),
    ("zrem", "key member..."),
    ("zremrangebylex", "key min max"),
    ("zremrangebyrank", "key start stop"),
    ("zremrangebyscore", "key min max"),
    ("zrevrange", "key start stop [WITHSCORES]"),
    ("zrevrangebylex", "key max min [LIMIT (offset count)]"),
    ("zrevrangebyscore", "key max min [WITHSCORES] [LIMIT (offset count)]"),
    ("zrevrank", "key member [WITHSCORE]"),
    ("zscan", "key cursor [MATCH pattern] [COUNT count]"),
    ("zscore", "key member"),
    ("zunion", "numkeys key... [WEIGHTS weight...] [AGGREGATE (SUM | MIN | MAX)] [WITHSCORES]"),
    ("zunionstore", "destination numkeys key... [WEIGHTS weight...] [AGGREGATE (SUM | MIN | MAX)]"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands;

    /// The fewest words that an argument takes.
    fn words_min(argument: &Argument) -> usize {
        if argument.optional {
            return 0;
        }
        let inside = match &argument.kind {
            Kind::Value => 1,
            Kind::Word => 0,
            Kind::OneOf(choices) => choices.iter().map(words_min).min().unwrap_or(0),
            Kind::Block(parts) => parts.iter().map(words_min).sum(),
        };
        inside + usize::from(argument.token.is_some())
    }

    fn is_open(arguments: &[Argument]) -> bool {
        arguments.iter().any(|argument| argument.optional || argument.multiple)
    }

    /// Commands that demand more than their syntax shows, as Redis's do.
    const STRICTER: &[&str] = &["command|getkeys", "command|getkeysandflags", "pfmerge", "xadd"];

    #[test]
    fn every_command_that_takes_arguments_has_a_syntax_that_fits_its_arity() {
        for command in commands::all().iter().filter(|command| command.subcommands.is_empty()) {
            let name = command.full_name();
            let own = 1 + usize::from(command.container.is_some());
            let line = SYNTAX.iter().find(|(known, _)| *known == name).map(|(_, line)| *line);
            // A few may carry arguments that mean nothing.
            if line.is_none() && (command.arity < 0 || command.arity as usize == own) {
                continue;
            }
            let arguments = parse(line.unwrap_or_else(|| panic!("{name} has no syntax")));
            let least = own + arguments.iter().map(words_min).sum::<usize>();
            let arity = command.arity.unsigned_abs() as usize;
            if !STRICTER.contains(&name.as_str()) && !name.starts_with("client|kill") {
                assert!(least <= arity + usize::from(name == "auth"), "{name}: {least} words");
            }
            if command.arity > 0 {
                assert_eq!(least, arity, "{name}");
                assert!(!is_open(&arguments), "{name} takes a fixed number of arguments");
            }
        }
    }

    #[test]
    fn no_syntax_is_of_an_unknown_command() {
        let known: Vec<String> =
            commands::all().iter().map(|command| command.full_name()).collect();
        for (name, _) in SYNTAX {
            assert!(known.iter().any(|known| known == name), "{name}");
        }
    }

    #[test]
    fn the_notation_is_read_as_it_is_meant() {
        let set = parse("key value [NX | XX] [EX seconds | KEEPTTL]");
        assert_eq!(set.len(), 4);
        assert!(matches!(&set[2].kind, Kind::OneOf(words) if words.len() == 2));
        let Kind::OneOf(expiry) = &set[3].kind else { panic!("a choice") };
        assert_eq!((expiry[0].name.as_str(), expiry[0].token.as_deref()), ("seconds", Some("EX")));
        let pairs = parse("(key value)...");
        assert!(pairs[0].multiple && matches!(&pairs[0].kind, Kind::Block(two) if two.len() == 2));
        let streams = parse("STREAMS key... id...");
        assert_eq!(streams.len(), 2);
        assert_eq!(streams[0].token.as_deref(), Some("STREAMS"));
        assert!(streams.iter().all(|argument| argument.multiple));
    }
}
