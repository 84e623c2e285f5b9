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
//!  value    mix(type)   string 0, stream 6; numbers as 4 bytes, highest first
//!           string      mix(the bytes)
//!           stream      of each entry mix("ms.seq"), then mix(name), mix(value) of each field
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
use crate::catalog::error::Error;
use crate::engine::context::Context;
use sha1_smol::Sha1;
use snug_store::types::stream::{Stream, StreamId};
use snug_store::{DATABASES, SlotGuard, Str};
use std::io::Write as _;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed;

/// Keys read before whole-database operations of others are let in.
const KEYS_AT_ONCE: usize = 64;

/// Redis's numbers of the types.
const STRING: u32 = 0;
const STREAM: u32 = 6;

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

    fn mix_stream(&mut self, stream: &Stream) -> Result<(), Error> {
        let mut name = Vec::new();
        with_scratch(|scratch| {
            stream.range(StreamId::MIN, StreamId::MAX, false, scratch, |id, fields| {
                name.clear();
                // Writing to a vector does not fail.
                let _ = write!(name, "{}.{}", id.ms, id.seq);
                self.mix(&name);
                for (field, value) in fields {
                    self.mix(field);
                    self.mix(value);
                }
                ControlFlow::Continue(())
            })
        })?;
        Ok(())
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
    let Some(found) = slot.find_untouched(&key) else { return Ok(None) };
    let expires = slot.expiry(found).is_some();
    if let Some(stream) = slot.stream(found) {
        digest.mix(&STREAM.to_be_bytes());
        digest.mix_stream(stream)?;
    } else if let Some(string) = slot.string(found) {
        let large = Large::shared(string);
        let hash = match large {
            Some(large) => large.hash(cx, slot)?,
            None => Sha1::from(&*string.to_bytes()?),
        };
        digest.mix(&STRING.to_be_bytes());
        digest.mix_hash(&hash);
    }
    if expires {
        digest.xor(b"!!expire!!");
    }
    Ok(Some(digest))
}

/// A large string by reference, to be read when its slot is free.
enum Large {
    Raw(snug_codec::Segments),
    Packed(snug_store::PackedChain),
}

impl Large {
    fn shared(string: Str<'_>) -> Option<Self> {
        match string {
            Str::Chain(chain) => Some(Self::Raw(chain.clone())),
            Str::PackedLarge(packed) => Some(Self::Packed(packed.share())),
            Str::Int(_) | Str::Bytes(_) | Str::Packed(_) => None,
        }
    }

    /// Of all bytes, one segment after the other; lets go of the slot first.
    fn hash(self, cx: &Context<'_>, slot: SlotGuard<'_>) -> Result<Sha1, Error> {
        drop(slot);
        let mut hash = Sha1::new();
        match self {
            Self::Raw(chain) => chain.parts().iter().for_each(|part| hash.update(part)),
            Self::Packed(chain) => {
                for index in 0..chain.segments() {
                    hash.update(&cx.store.segment(&chain, index)?);
                }
            }
        }
        Ok(hash)
    }
}

/// The digest of a value of the caller's database, its key left out; zeros if there
/// is no such key.
pub(super) fn of_value(cx: &Context<'_>, key: &[u8]) -> Result<Digest, Error> {
    Ok(add_value(cx, cx.db(), key, Digest::default())?.unwrap_or_default())
}

/// The digest of all databases.
pub(super) fn of_all(cx: &Context<'_>) -> Result<Digest, Error> {
    let mut all = Digest::default();
    for db in 0..DATABASES {
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
