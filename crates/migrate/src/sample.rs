//! Some keys, compared on both sides by a digest of what they hold.
//!
//! Clients write meanwhile, and the replica is a little behind: a key that differs is
//! looked at again, until it is the same or has differed for too long.

use crate::Failure;
use crate::client::{Client, text_of};
use sha1_smol::Sha1;
use snug_resp::Value;
use std::collections::HashSet;
use std::thread::sleep;
use std::time::Duration;

/// Looks at a key that differs, before it counts as different.
const LOOKS: usize = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// Of a collection with more elements, so many at its ends are compared, and their number.
const ELEMENTS_MAX: i64 = 10_000;

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) compared: usize,
    /// Database and key of what differs.
    pub(crate) different: Vec<(usize, String)>,
}

/// Compares random keys of the old server.
pub(crate) fn compare(
    old: &mut Client,
    new: &mut Client,
    count: usize,
    mut tell: impl FnMut(usize),
) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    let keyspace = old.info("keyspace")?;
    let dbs: Vec<usize> =
        keyspace.0.keys().filter_map(|db| db.strip_prefix("db")?.parse().ok()).collect();
    let of_each = count.div_ceil(dbs.len().max(1));
    for db in dbs {
        for server in [&mut *old, &mut *new] {
            server.ask(&["SELECT", &db.to_string()])?;
        }
        let mut seen = HashSet::new();
        for _ in 0..of_each {
            let Value::Bulk(key) = old.ask(&["RANDOMKEY"])? else { break };
            if !seen.insert(key.clone()) {
                continue;
            }
            let mut same = false;
            for look in 0..LOOKS {
                same = digest(old, &key)? == digest(new, &key)?;
                if same {
                    break;
                }
                if look + 1 < LOOKS {
                    sleep(BETWEEN_LOOKS);
                }
            }
            outcome.compared += 1;
            if !same {
                outcome.different.push((db, key.escape_ascii().to_string()));
            }
            tell(outcome.compared);
        }
    }
    Ok(outcome)
}

/// What a key holds, as a digest: its type, whether it expires, its elements in an order
/// that does not depend on the server.
fn digest(server: &mut Client, key: &[u8]) -> Result<String, Failure> {
    let word = |text: &str| text.as_bytes().to_vec();
    let kind = server.ask(&[word("TYPE"), key.to_vec()])?;
    let kind = text_of(kind).unwrap_or_default();
    let expires = !matches!(server.ask(&[word("PTTL"), key.to_vec()])?, Value::Integer(-1));
    let last = (ELEMENTS_MAX - 1).to_string();
    // What tells its length, what gives its elements, and whether their order is the key's.
    let (length, elements, ordered): (&str, Vec<&str>, bool) = match &*kind {
        "string" => ("STRLEN", vec!["GETRANGE", "0", "16777215"], true),
        "list" => ("LLEN", vec!["LRANGE", "0", &last], true),
        "hash" => ("HLEN", vec!["HGETALL"], false),
        "set" => ("SCARD", vec!["SMEMBERS"], false),
        "zset" => ("ZCARD", vec!["ZRANGE", "0", &last, "WITHSCORES"], true),
        "stream" => ("XLEN", vec!["XRANGE", "-", "+", "COUNT", "10000"], true),
        _ => return Ok(kind),
    };
    let length = server.call(&[word(length), key.to_vec()])?;
    let mut sum = Sha1::new();
    sum.update(format!("{kind} {expires} {length:?}").as_bytes());
    let is_large = matches!(length, Value::Integer(length) if length > ELEMENTS_MAX);
    if ordered || !is_large {
        let mut words = vec![word(elements[0]), key.to_vec()];
        words.extend(elements[1..].iter().map(|text| word(text)));
        let value = server.call(&words)?;
        sum.update(format!("{:?}", sorted(value, &kind)).as_bytes());
    }
    if kind == "stream" {
        let groups = server.call(&[word("XINFO"), word("GROUPS"), key.to_vec()])?;
        // Their number: what else is told differs from version to version.
        let number = if let Value::Array(groups) = groups { groups.len() } else { 0 };
        sum.update(&number.to_le_bytes());
    }
    Ok(sum.digest().to_string())
}

/// Elements without an order of their own, brought into one.
fn sorted(value: Value, kind: &str) -> Value {
    let Value::Array(elements) = value else { return value };
    let step = match kind {
        "hash" => 2,
        "set" => 1,
        _ => return Value::Array(elements),
    };
    let mut parts: Vec<&[Value]> = elements.chunks(step).collect();
    parts.sort_by_key(|part| format!("{:?}", part[0]));
    Value::Array(parts.concat())
}
