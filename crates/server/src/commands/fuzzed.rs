//! What a fuzz target asks of rules: those that are told of a user lead to the same user.
//! Built with `--cfg fuzzing` only (`crates/server/fuzz`).

use crate::auth::{Denied, Users};
use crate::commands::{all, catalog};
use crate::engine::accounts::wanting;
use crate::request::args::OwnedArgs;

/// Ends a word: rules are any bytes, blanks and line feeds too.
const WORD: u8 = 0xff;
/// Ends a call of `ACL SETUSER`.
const CALL: u8 = 0xfe;
/// Bytes from here on stand for pieces of rules, which random bytes would seldom spell.
const FIRST_PIECE: u8 = 0x80;
const PIECES: &[&str] = &[
    "+@all",
    "-@all",
    "+@",
    "-@",
    "read",
    "write",
    "keyspace",
    "dangerous",
    "admin",
    "slow",
    "connection",
    "pubsub",
    "+",
    "-",
    "|",
    "get",
    "set",
    "mget",
    "config",
    "config|get",
    "client",
    "client|id",
    "select",
    "select|0",
    "acl|whoami",
    "debug",
    "xgroup|create",
    "publish",
    "subscribe",
    "eval",
    "sort",
    "zunionstore",
    "object|encoding",
    "memory|usage",
    "snug|policy",
    "~",
    "%R~",
    "%W~",
    "%RW~",
    "&",
    "*",
    "a",
    "b",
    "(",
    ")",
    " ",
    "allkeys",
    "resetkeys",
    "allchannels",
    "resetchannels",
    "allcommands",
    "nocommands",
    "on",
    "off",
    "nopass",
    "resetpass",
    ">",
    "<",
    "#",
    "!",
    "reset",
    "clearselectors",
    "\"",
    "'",
    "\\",
    "sanitize-payload",
    "skip-sanitize-payload",
];

/// Gives a user the rules of some calls, one after the other, as far as they are valid.
/// The lines of the ACL file are loaded into another server's users.
///
/// # Panics
///
/// Panics if the lines are refused, if others are told of what was loaded, or if the two
/// users may not do the same.
pub fn rules_lead_back(bytes: &[u8]) {
    let users = Users::new(catalog());
    for call in bytes.split(|&byte| byte == CALL) {
        let words: Vec<Vec<u8>> = call.split(|&byte| byte == WORD).map(spelt_out).collect();
        let before = users.lines();
        if users.set(b"u", &words).is_err() {
            assert_eq!(users.lines(), before, "rules that are refused change nothing");
        }
    }
    let _ = users.set(b"u", &[b"on".to_vec()]);
    let again = Users::new(catalog());
    if let Err(error) = again.load("f", &users.lines().join(&b'\n')) {
        panic!("{error}");
    }
    assert_eq!(again.lines(), users.lines());
    for command in all() {
        let mut words = vec![command.full_name()];
        if let Some((container, name)) = words[0].clone().split_once('|') {
            words = vec![container.to_owned(), name.to_owned()];
        }
        for other in ["a", "2", "b", "k"] {
            words.push(other.to_owned());
        }
        let args = OwnedArgs::of(&words);
        let verdict = |users: &Users| -> Result<(), Denied> {
            let rules = users.get(b"u").expect("it was set").rules();
            wanting(command, args.args(), |wanted| rules.check(wanted))
        };
        assert_eq!(verdict(&again), verdict(&users), "{words:?}");
    }
}

fn spelt_out(word: &[u8]) -> Vec<u8> {
    let mut rule = Vec::new();
    for &byte in word {
        match byte.checked_sub(FIRST_PIECE) {
            Some(piece) => rule.extend(PIECES[usize::from(piece) % PIECES.len()].as_bytes()),
            None => rule.push(byte),
        }
    }
    rule
}
