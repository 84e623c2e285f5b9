//! What a dataset comes to in 160 bits: `DEBUG DIGEST`, `DEBUG DIGEST-VALUE`.
//!
//! Two servers that hold the same keys answer the same, whatever is packed and
//! in whatever order they hold them; redis-server 7.0 does too. All is made of
//! two steps, where `^` goes byte by byte:
//!
//! ```text
//!  xor(d, bytes)   d = d ^ SHA1(bytes)          order is lost
//!  mix(d, bytes)   d = SHA1(d ^ SHA1(bytes))    order is kept
//!
//!  value    mix(type)   Redis's number of it as 4 bytes, highest first
//!           then mix(each piece that it gives: `DataType::digest` in the store)
//!           string, 0   the bytes
//!           list, 1     each item
//!           stream, 6   of each entry "ms.seq", then name and value of each field
//!           set, 2      xor(each member) instead
//!           hash, 4     xor(of each field, from zeros: mix(it), mix(its value)) instead
//!           xor("!!expire!!") if the key expires; when, is left out
//!  key      from zeros: mix(the key), then what its value adds
//!  dataset  from zeros: of each database that is not empty mix(its number),
//!           then xor(digest of the key) for each of its keys
//! ```
//!
//! A stream's groups, and its last ID beyond its last entry, are not in it.
//!
//! Costs a pass over every byte of every value, unpacked if it is packed, on the
//! worker of the client that asks. A key's slot is locked while its value is read,
//! unless the value is a large string, and whole-database operations of others are
//! let in every few keys. So the digest is that of one moment only if nothing is
//! written meanwhile, or within `EXEC`, which keeps all others out. Nothing counts
//! as accessed, and what is packed stays packed.

use super::streams::with_scratch;
use crate::engine::context::Context;
use crate::request::error::Error;
use sha1_smol::Sha1;
use snug_store::Sink;
use std::sync::atomic::Ordering::Relaxed;

/// Keys read before whole-database operations of others are let in.
const KEYS_AT_ONCE: usize = 64;

/// A digest in the making. Zeros stand for nothing at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest([u8; 20]);

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Digest {
    fn xor_hash(&mut self, hash: &Sha1) {
        self.0.iter_mut().zip(hash.digest().bytes()).for_each(|(byte, other)| *byte ^= other);
    }

    fn xor(&mut self, bytes: &[u8]) {
        self.xor_hash(&Sha1::from(bytes));
    }

    fn mix_hash(&mut self, hash: &Sha1) {
        self.xor_hash(hash);
        self.0 = Sha1::from(self.0).digest().bytes();
    }

    fn mix(&mut self, bytes: &[u8]) {
        self.mix_hash(&Sha1::from(bytes));
    }
}

/// The digest of a value in the making, of which a piece may come in parts.
struct Mixed {
    digest: Digest,
    piece: Sha1,
    /// The value's digest, while that of a group is made.
    outer: Digest,
}

impl Sink for Mixed {
    fn part(&mut self, bytes: &[u8]) {
        self.piece.update(bytes);
    }

    fn end(&mut self) {
        self.digest.mix_hash(&std::mem::take(&mut self.piece));
    }

    fn end_unordered(&mut self) {
        self.digest.xor_hash(&std::mem::take(&mut self.piece));
    }

    /// As redis-server prints it.
    fn number(&mut self, value: f64) {
        let mut text = crate::text::double::Text::default();
        self.piece(text.of(value));
    }

    fn begin_group(&mut self) {
        self.outer = std::mem::take(&mut self.digest);
    }

    fn end_group(&mut self) {
        let group = std::mem::replace(&mut self.digest, self.outer);
        self.digest.xor(&group.0);
    }
}

/// The digest of what a database's key holds; `None` if there is no such key.
pub(crate) fn of_key(cx: &Context<'_>, db: usize, key: &[u8]) -> Result<Option<Digest>, Error> {
    add_value(cx, db, key, Digest::default())
}

/// The digest of a database's key from `digest` on; `None` if there is no such key.
fn add_value(
    cx: &Context<'_>,
    db: usize,
    key: &[u8],
    mut digest: Digest,
) -> Result<Option<Digest>, Error> {
    let key = cx.key(key);
    let mut slot = cx.store.lock(db, &key);
    let Some(found) = slot.find_entry(&key) else { return Ok(None) };
    let expires = slot.expiry(found).is_some();
    digest.mix(&slot.type_of(found).number().to_be_bytes());
    let mut mixed = Mixed { digest, piece: Sha1::new(), outer: Digest::default() };
    with_scratch(|scratch| slot.digest(found, scratch, &mut mixed))?;
    let mut digest = mixed.digest;
    if expires {
        digest.xor(b"!!expire!!");
    }
    Ok(Some(digest))
}

/// The digest of a value of the caller's database, its key left out; zeros if there
/// is no such key.
pub(super) fn of_value(cx: &Context<'_>, key: &[u8]) -> Result<Digest, Error> {
    Ok(add_value(cx, cx.db(), key, Digest::default())?.unwrap_or_default())
}

/// The digest of all databases.
pub(super) fn of_all(cx: &Context<'_>) -> Result<Digest, Error> {
    let mut all = Digest::default();
    for db in cx.store.store().databases_used() {
        let (mut cursor, mut is_empty) = (0, true);
        let mut keys: Vec<Vec<u8>> = Vec::with_capacity(KEYS_AT_ONCE);
        loop {
            keys.clear();
            cursor = cx.store.scan(db, cursor, KEYS_AT_ONCE, |key, _| keys.push(key.to_vec()));
            for key in &keys {
                let mut digest = Digest::default();
                digest.mix(key);
                let Some(digest) = add_value(cx, db, key, digest)? else { continue };
                if std::mem::take(&mut is_empty) {
                    all.mix(&(db as u32).to_be_bytes());
                }
                all.xor(&digest.0);
            }
            if cursor == 0 {
                break;
            }
            cx.store.outside(|| ());
            if cx.server.ending.load(Relaxed) {
                return Err(Error::new("ERR the server is ending"));
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against SHA-1 of the standard (FIPS 180): "abc", and bytes that are their own.
    #[test]
    fn steps_are_made_of_sha1() {
        let mut digest = Digest::default();
        assert_eq!(digest.to_string(), "0".repeat(40));
        digest.xor(b"abc");
        assert_eq!(digest.to_string(), "a9993e364706816aba3e25717850c26c9cd0d89d");
        digest.xor(b"abc");
        assert_eq!(digest, Digest::default());
        let (mut one, mut other) = (digest, digest);
        [b"a", b"b"].iter().for_each(|bytes| one.mix(*bytes));
        [b"b", b"a"].iter().for_each(|bytes| other.mix(*bytes));
        assert_ne!(one, other);
    }
}
