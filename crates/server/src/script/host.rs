//! `redis.call` and the other functions that a script has of the server.
//!
//! A call costs no protocol on its way in: arguments go from Lua's stack into one buffer
//! and from there to the handler. Its reply is written by the handler as for a client,
//! and read from the buffer it lies in.

use super::admit::admit;
use super::convert;
use super::machine::Watcher;
use crate::auth::Account;
use crate::engine::accounts;
use crate::engine::call::call;
use crate::engine::client::Client;
use crate::engine::command::{Command, Group, flags};
use crate::engine::context::{Context, Origin};
use crate::engine::out::Out;
use crate::engine::scripts::{Needs, ScriptFlags, sha1_hex};
use crate::engine::server::Server;
use crate::follow::clients::Shared;
use crate::measure::stats::Stat;
use crate::request::args::{Args, Large};
use crate::request::error::Error;
use parking_lot::MutexGuard;
use snug_codec::Segments;
use snug_lua::{Answer, Host, Kind, Raise, Stack, format_g17};
use snug_resp::{Protocol, Span};
use snug_store::Hold;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Finds the command that arguments call.
pub(crate) type Find = fn(Args<'_>) -> Result<&'static Command, Error>;

/// How long a script that has written waits to be the one that takes slots on demand.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Arguments above this many bytes are kept in segments, as those of clients are.
const LARGE: usize = 64 * 1024;

/// A buffer that has grown beyond this is given back.
const KEPT: usize = 256 * 1024;

/// On whose behalf a script runs whose client is not here.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub client: Arc<Shared>,
    pub account: Account,
}

impl Who {
    pub(super) fn of(client: &Client) -> Self {
        Self { client: Arc::clone(&client.shared), account: client.account.clone() }
    }
}

/// A script that runs: what it may do, and what it has done.
pub(super) struct Run<'r, 'c> {
    pub cx: &'r mut Context<'c>,
    pub find: Find,
    pub flags: ScriptFlags,
    pub read_only: bool,
    /// There was no memory for writes when it began.
    pub short_of_memory: bool,
    /// A command that writes was called, which its watcher is told.
    pub wrote: bool,
    pub watcher: Rc<Watcher>,
    /// The slot of the keys that it used, in a cluster.
    pub slot: Option<usize>,
    /// The protocol that it has chosen for replies.
    pub protocol: Protocol,
    /// It needs more than it holds, and has not written: it is to run again.
    pub needs_more: Option<Needs>,
    /// It has used a key that it did not declare, or a command of the whole store.
    pub undeclared: bool,
    pub everything: bool,
    /// Slots are taken on demand ...
    on_demand: bool,
    /// ... for it is this script's turn.
    turn: Option<MutexGuard<'c, ()>>,
    /// The keys that it was given, if it may use no others.
    pub only: Option<(Args<'r>, Range<usize>)>,
    /// The client, if it is not here.
    pub who: Option<Who>,
    /// It runs aside, and all others keep away from the keyspace: it may let go of what it
    /// holds for a command that needs the whole store.
    pub alone: bool,
    /// It runs within a transaction, which holds the slots: it cannot have the whole store.
    pub within: bool,
    pub held: Option<Hold<'c>>,
    pub buffers: Option<Box<Buffers>>,
}

/// What a call needs room for; kept from call to call, and from script to script.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    args: Vec<u8>,
    spans: Vec<Span>,
    large: Vec<Large>,
    out: Out,
}

impl Buffers {
    /// Empties them, and frees what a large call has taken.
    fn give_back(&mut self) {
        if self.args.capacity() > KEPT {
            self.args = Vec::new();
        }
        self.large.clear();
        self.out.give_back(KEPT);
    }
}

macro_rules! natives {
    ($($name:literal $id:ident),*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Which { $($id),* }

        /// Functions with their names, each of which asks the host.
        const FUNCTIONS: &[(&str, snug_lua::Native)] = &[$(
            ($name, |stack| ask(stack, Which::$id as usize))
        ),*];

        const IDS: &[Which] = &[$(Which::$id),*];
    };
}

natives! {
    "call" Call, "pcall" Pcall, "log" Log, "setresp" SetResp, "set_repl" SetRepl,
    "acl_check_cmd" AclCheck, "" Protocol, "register_function" Register
}

/// Has the host answer a native function.
fn ask(stack: &mut Stack<'_>, which: usize) -> Answer {
    stack.lend(|stack, host| host.answer(stack, which)).unwrap_or_else(|| {
        Err(Raise::text("redis functions can only be called from a script that runs"))
    })
}

/// The protocol that the script which runs has chosen.
pub(super) fn chosen_protocol(stack: &mut Stack<'_>) -> Protocol {
    let asked = ask(stack, Which::Protocol as usize);
    let resp3 = asked.is_ok_and(|_| {
        let resp3 = stack.boolean(-1);
        stack.pop(1);
        resp3
    });
    if resp3 { Protocol::Resp3 } else { Protocol::Resp2 }
}

/// Adds the library `redis`.
pub(super) fn add_library(stack: &mut Stack<'_>) {
    stack.push_globals();
    stack.push_table(0, 24);
    for (name, native) in FUNCTIONS.iter().chain(PLAIN).filter(|(name, _)| !name.is_empty()) {
        stack.push_native(*native);
        stack.raw_set_field(-2, name);
    }
    for (name, number) in [
        ("LOG_DEBUG", 0),
        ("LOG_VERBOSE", 1),
        ("LOG_NOTICE", 2),
        ("LOG_WARNING", 3),
        ("REPL_NONE", 0),
        ("REPL_AOF", 1),
        ("REPL_SLAVE", 2),
        ("REPL_REPLICA", 2),
        ("REPL_ALL", 3),
        ("REDIS_VERSION_NUM", VERSION_NUMBER),
    ] {
        stack.push_number(number.into());
        stack.raw_set_field(-2, name);
    }
    stack.push_bytes(VERSION);
    stack.raw_set_field(-2, "REDIS_VERSION");
    stack.raw_set_field(-2, "redis");
    stack.pop(1);
}

/// The version of Redis that is reported, and as a number.
const VERSION: &str = crate::outside::REDIS_VERSION;
const VERSION_NUMBER: i32 = 0x0007_0402;

/// Functions that need no host.
const PLAIN: &[(&str, snug_lua::Native)] = &[
    ("sha1hex", |stack| {
        if stack.top() != 1 {
            return Err(raised(stack, b"ERR wrong number of arguments"));
        }
        let sha = sha1_hex(stack.bytes(1).unwrap_or_default());
        stack.push_bytes(sha);
        Ok(1)
    }),
    ("error_reply", |stack| {
        let Some(text) = only_string(stack) else { return Ok(1) };
        let text = convert::c_string(text.strip_prefix(b"-").unwrap_or(&text)).to_vec();
        let text = if text.contains(&b' ') { text } else { [b"ERR ", &text[..]].concat() };
        let end = text.iter().rposition(|b| !matches!(b, b'\r' | b'\n')).map_or(0, |n| n + 1);
        push_error(stack, &text[..end]);
        Ok(1)
    }),
    ("status_reply", |stack| {
        let Some(text) = only_string(stack) else { return Ok(1) };
        stack.push_table(0, 1);
        stack.push_bytes(text);
        stack.raw_set_field(-2, "ok");
        Ok(1)
    }),
    ("replicate_commands", |stack| {
        stack.push_boolean(true);
        Ok(1)
    }),
    ("breakpoint", |stack| {
        stack.push_boolean(false);
        Ok(1)
    }),
    ("debug", |_| Ok(0)),
];

/// The one argument, a string; else an error is pushed as the result.
fn only_string(stack: &mut Stack<'_>) -> Option<Vec<u8>> {
    if stack.top() == 1 && stack.kind(1) == Kind::String {
        return stack.bytes(1).map(<[u8]>::to_vec);
    }
    push_error(stack, b"ERR wrong number or type of arguments");
    None
}

/// Pushes an error as scripts get it.
fn push_error(stack: &mut Stack<'_>, text: &[u8]) {
    stack.push_table(0, 1);
    stack.push_bytes(text);
    stack.raw_set_field(-2, "err");
}

/// Answers a native function while a library is loaded: all it may do is to log and
/// to register functions.
pub(super) fn while_loading(
    stack: &mut Stack<'_>,
    which: usize,
    register: impl FnOnce(&mut Stack<'_>) -> Answer,
) -> Answer {
    match IDS[which] {
        Which::Register => register(stack),
        Which::Log => log(stack),
        // Nothing else is there yet.
        _ => {
            let name = FUNCTIONS[which].0;
            let what = "Script attempted to access nonexistent global variable";
            Err(Raise::text(format!("{what} '{name}'")))
        }
    }
}

/// Pushes an error that is to be raised.
pub(super) fn raised(stack: &mut Stack<'_>, text: &[u8]) -> Raise {
    push_error(stack, text);
    Raise::Top
}

impl Host for Run<'_, '_> {
    fn answer(&mut self, stack: &mut Stack<'_>, which: usize) -> Answer {
        match IDS[which] {
            Which::Call => self.call(stack, true),
            Which::Pcall => self.call(stack, false),
            Which::Log => log(stack),
            Which::SetResp => self.set_resp(stack),
            Which::SetRepl => set_repl(stack),
            Which::AclCheck => self.acl_check(stack),
            Which::Register => Err(raised(
                stack,
                b"ERR redis.register_function can only be called on FUNCTION LOAD command",
            )),
            Which::Protocol => {
                stack.push_boolean(self.protocol == Protocol::Resp3);
                Ok(1)
            }
        }
    }
}

impl<'r, 'c> Run<'r, 'c> {
    pub(super) fn new(
        cx: &'r mut Context<'c>,
        find: Find,
        flags: ScriptFlags,
        watcher: Rc<Watcher>,
    ) -> Self {
        Self {
            cx,
            find,
            flags,
            read_only: false,
            short_of_memory: false,
            wrote: false,
            slot: None,
            protocol: Protocol::Resp2,
            needs_more: None,
            undeclared: false,
            everything: false,
            on_demand: false,
            turn: None,
            only: None,
            who: None,
            alone: false,
            within: false,
            held: None,
            watcher,
            buffers: None,
        }
    }

    /// This script is the one that may take slots when it comes to them.
    pub(super) fn may_take_slots(&mut self, turn: Option<MutexGuard<'c, ()>>) {
        self.on_demand = true;
        self.turn = turn;
        self.watcher.touches_everything();
        self.cx.store.hold_on_demand();
    }

    /// Whether it was given all keys that a command names, where that is asked for.
    pub(super) fn declares(&self, command: &Command, args: Args<'_>) -> bool {
        let Some((given, keys)) = &self.only else { return true };
        let given = |index| keys.clone().any(|n| given.bytes(n) == args.bytes(index));
        !command.has(flags::WIDE)
            && command.key_indices(args).unwrap_or_default().into_iter().all(given)
    }

    /// What it has needed, now that it has run.
    pub(super) fn needed_in_all(&self) -> Needs {
        match (self.everything, self.undeclared) {
            (true, _) => Needs::Everything,
            (_, true) => Needs::Undeclared,
            _ => Needs::Declared,
        }
    }

    fn call(&mut self, stack: &mut Stack<'_>, raises: bool) -> Answer {
        let mut buffers = self.buffers.take().unwrap_or_default();
        let called = self.call_with(stack, &mut buffers);
        buffers.give_back();
        self.buffers = Some(buffers);
        match called {
            Ok(failed) if failed && raises => Err(Raise::Top),
            Ok(_) => Ok(1),
            Err(End::Raise(raise)) => Err(raise),
            Err(End::Error(text)) => {
                self.cx.server.stats.add(Stat::total_error_replies, 1);
                self.cx.server.monitor.error(&Error::from(text.clone()).code());
                push_error(stack, &text);
                stack.push_boolean(true);
                stack.raw_set_field(-2, "ignore_error_stats_update");
                if raises { Err(Raise::Top) } else { Ok(1) }
            }
        }
    }

    /// Calls the command on the stack and pushes its reply; whether that is an error.
    fn call_with(&mut self, stack: &mut Stack<'_>, buffers: &mut Buffers) -> Result<bool, End> {
        let Buffers { args, spans, large, out } = buffers;
        if let Err(why) = arguments(stack, args, spans, large) {
            push_error(stack, why);
            return Ok(true);
        }
        stack.set_top(0);
        let args = Args { buf: args, spans, large };
        let Ok(command) = (self.find)(args) else {
            return Err(End::Error(b"ERR Unknown Redis command called from script".to_vec()));
        };
        if let Err(text) = admit(self, command, args) {
            self.cx.server.monitor.rejected(self.cx.worker, command);
            return Err(End::Error(text));
        }
        self.hold(stack, command, args)?;
        if command.has(flags::WRITE) && !self.wrote {
            self.wrote = true;
            self.watcher.has_written();
        }
        out.protocol = self.protocol;
        let was = self.cx.command;
        let lets_go = self.alone && command.has(flags::WIDE) && !can_take_slots(command);
        if lets_go {
            self.held = None;
        }
        let called = call(self.cx, command, args, out);
        if lets_go {
            self.held = Some(self.cx.store.hold([]));
            self.cx.store.hold_on_demand();
        }
        self.cx.command = was;
        if called.is_err() {
            return Err(End::Error(b"ERR This Redis command is not allowed from script".to_vec()));
        }
        let failed = out.bytes.first() == Some(&b'-');
        if !out.is_empty() && out.bytes.len() < out.len() {
            let whole = out
                .whole(self.cx.store)
                .map_err(|damaged| End::Error(Error::from(damaged).text().to_vec()))?;
            stack.afford(whole.len()).map_err(End::Raise)?;
            convert::push(stack, &whole);
        } else {
            stack.afford(out.bytes.len()).map_err(End::Raise)?;
            convert::push(stack, &out.bytes);
        }
        Ok(failed)
    }

    /// Sees to it that the command's keys are held. A script that has not written yet is
    /// run again with what it needs; one that has takes what more it needs.
    fn hold(
        &mut self,
        stack: &mut Stack<'_>,
        command: &'static Command,
        args: Args<'_>,
    ) -> Result<(), End> {
        if self.cx.store.is_exclusive() {
            return Ok(());
        }
        let needs = self.needed(command, args);
        if needs == Needs::Declared {
            return Ok(());
        }
        if needs == Needs::Undeclared && self.on_demand {
            self.undeclared = true;
            return Ok(());
        }
        if self.alone {
            self.everything = true;
            return Ok(());
        }
        let takes = needs == Needs::Undeclared || can_take_slots(command);
        if self.within && needs == Needs::Everything {
            self.everything = !takes;
        } else if !self.wrote {
            self.needs_more = Some(needs);
            return Err(End::Raise(stack.end()));
        }
        self.undeclared = true;
        if !takes {
            return Err(End::Error(
                b"ERR This command needs the whole store, and it is not known of the script: let \
                  it come first, or call the script again"
                    .to_vec(),
            ));
        }
        if !self.on_demand {
            let server: &'c Server = self.cx.server;
            let turn = server.scripts.undeclared.try_lock_for(PATIENCE);
            let turn = turn.ok_or_else(|| {
                End::Error(
                    b"ERR The script used a key that it did not declare while another did so too"
                        .to_vec(),
                )
            })?;
            self.may_take_slots(Some(turn));
        }
        Ok(())
    }

    /// What a command needs to be held beyond what is.
    fn needed(&self, command: &Command, args: Args<'_>) -> Needs {
        if command.has(flags::WIDE) {
            return Needs::Everything;
        }
        let (store, db) = (self.cx.store, self.cx.db());
        let held = |index: usize| store.has_held(db, &store.key(args.bytes(index)));
        if command.names_keys() {
            let all = command.all_keys(args, held);
            return if all { Needs::Declared } else { Needs::Undeclared };
        }
        // What has no key may look at slots all the same, as INFO does.
        let harmless = matches!(command.group, Group::Connection | Group::Pubsub)
            || matches!(command.name, "time" | "dbsize");
        if harmless { Needs::Declared } else { Needs::Undeclared }
    }

    fn set_resp(&mut self, stack: &mut Stack<'_>) -> Answer {
        if stack.top() != 1 {
            return Err(raised(stack, b"ERR redis.setresp() requires one argument."));
        }
        self.protocol = match stack.number(1).unwrap_or_default() as i64 {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err(raised(stack, b"ERR RESP version must be 2 or 3.")),
        };
        Ok(0)
    }

    fn acl_check(&mut self, stack: &mut Stack<'_>) -> Answer {
        let mut buffers = self.buffers.take().unwrap_or_default();
        let Buffers { args, spans, large, .. } = &mut *buffers;
        arguments(stack, args, spans, large).map_err(|why| raised(stack, why))?;
        let args = Args { buf: args, spans, large };
        let Ok(command) = (self.find)(args) else {
            return Err(raised(stack, b"ERR Invalid command passed to redis.acl_check_cmd()"));
        };
        let account = match (&mut self.who, &mut self.cx.client) {
            (Some(who), _) => Some(&mut who.account),
            (None, Some(client)) => Some(&mut client.account),
            (None, None) => None,
        };
        let may = account.is_none_or(|account| accounts::check(account, command, args).is_ok());
        stack.push_boolean(may);
        buffers.give_back();
        self.buffers = Some(buffers);
        Ok(1)
    }
}

/// How a call ends that has no reply.
enum End {
    /// The script is told so, or raised it.
    Error(Vec<u8>),
    Raise(Raise),
}

/// Commands that look at one slot after the other: held one by one they are as good.
fn can_take_slots(command: &Command) -> bool {
    matches!(command.name, "keys" | "scan" | "randomkey" | "copy" | "move")
}

/// Copies the arguments of a call from the stack.
fn arguments(
    stack: &Stack<'_>,
    buffer: &mut Vec<u8>,
    spans: &mut Vec<Span>,
    large: &mut Vec<Large>,
) -> Result<(), &'static [u8]> {
    const NOT_TEXT: &[u8] = b"ERR Lua redis lib command arguments must be strings or integers";
    buffer.clear();
    spans.clear();
    large.clear();
    if stack.top() == 0 {
        return Err(b"ERR Please specify at least one argument for this redis lib call");
    }
    let mut bytes_in_all = 0;
    for at in 1..=stack.top() as isize {
        let start = buffer.len();
        match stack.kind(at) {
            Kind::Number => {
                let number = stack.number(at).unwrap_or_default();
                if number.fract() == 0.0
                    && number.abs() < 1e17
                    && (number != 0.0 || number.is_sign_positive())
                {
                    let digits = itoa::Buffer::new().format(number as i64).to_owned();
                    buffer.extend_from_slice(digits.as_bytes());
                } else {
                    buffer.extend_from_slice(format_g17(number).as_bytes());
                }
            }
            Kind::String => {
                let bytes = stack.bytes(at).unwrap_or_default();
                // One large string may be named thousands of times.
                bytes_in_all += bytes.len();
                if bytes_in_all > stack.memory_limit() {
                    return Err(b"ERR not enough memory");
                }
                if bytes.len() > LARGE && at > 1 {
                    large.push(Large::from(Segments::from(bytes)));
                    spans.push(Span::of_large(large.len() - 1).ok_or(NOT_TEXT)?);
                    continue;
                }
                buffer.extend_from_slice(bytes);
            }
            _ => return Err(NOT_TEXT),
        }
        spans.push(Span::new(start, buffer.len() - start).ok_or(NOT_TEXT)?);
    }
    Ok(())
}

fn log(stack: &mut Stack<'_>) -> Answer {
    if stack.top() < 2 {
        return Err(raised(stack, b"ERR redis.log() requires two arguments or more."));
    }
    let Some(level) = stack.number(1).map(|level| if level.is_nan() { -1.0 } else { level }) else {
        return Err(raised(stack, b"ERR First argument must be a number (log level)."));
    };
    let texts = (2..=stack.top() as isize).filter_map(|at| stack.bytes(at));
    let text: Vec<_> = texts.map(String::from_utf8_lossy).collect();
    let text = text.join(" ");
    match level as i64 {
        0 => tracing::debug!(target: "script", "{text}"),
        1 => tracing::debug!(target: "script", "{text}"),
        2 => tracing::info!(target: "script", "{text}"),
        3 => tracing::warn!(target: "script", "{text}"),
        _ => return Err(raised(stack, b"ERR Invalid debug level.")),
    }
    Ok(0)
}

/// What is replicated is what was changed; the choice is checked and has no effect.
fn set_repl(stack: &mut Stack<'_>) -> Answer {
    if stack.top() != 1 {
        return Err(raised(stack, b"ERR redis.set_repl() requires two arguments."));
    }
    let flags = stack.number(1).unwrap_or_default();
    if flags.is_nan() || !(0..=3).contains(&(flags as i64)) {
        return Err(raised(
            stack,
            b"ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        ));
    }
    Ok(0)
}

/// Has what a script does done on its behalf, with what it may and in its own database,
/// and puts all of that back.
pub(super) fn as_script<R>(cx: &mut Context<'_>, work: impl FnOnce(&mut Context<'_>) -> R) -> R {
    let (db, protocol) = (cx.caller.db, cx.caller.protocol);
    let (origin, command) = (cx.origin, cx.command);
    let hashed = cx.hashed.take();
    cx.origin = Origin::Script;
    let result = work(cx);
    (cx.caller.db, cx.caller.protocol) = (db, protocol);
    (cx.origin, cx.command, cx.hashed) = (origin, command, hashed);
    result
}
