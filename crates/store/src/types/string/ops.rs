//! The ops of strings.
//!
//! | op | as a command |
//! | --- | --- |
//! | [`Set`] | `SET key value`, with `PXAT ms` or `KEEPTTL` |
//! | [`Append`] | `APPEND key value` |
//! | [`Write`] | `SETRANGE key offset value` |
//! | [`Lengthen`] | `SETRANGE key last "\0"` |
//!
//! Counters and bits have no ops of their own: what `INCR` leaves is a [`Set`], what
//! `SETBIT` and `BITFIELD` leave a [`Write`] of some bytes. A packed string that is
//! to be changed in place is unpacked first ([`SlotGuard::unpack`]), which can fail
//! and is no effect.

use super::NewStr;
use crate::effect::{Change, Form};
use crate::hash::Key;
use crate::slot::{Found, SetExpiry, SlotGuard};

/// Sets a key to a string, whatever it held. Its place is given back.
#[derive(Clone, Debug)]
pub struct Set<'a> {
    /// The string.
    pub value: NewStr<'a>,
    /// What becomes of the key's expiry.
    pub expiry: SetExpiry,
}

impl<'a> Set<'a> {
    /// Sets a key that does not expire, or no longer.
    pub fn to(value: NewStr<'a>) -> Self {
        Self { value, expiry: SetExpiry::Clear }
    }
}

impl Change for Set<'_> {
    type Outcome = Found;

    #[inline]
    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> Found {
        slot.set_string(key, found, &self.value, self.expiry)
    }

    fn form(&self, _: &Found, key: &[u8], form: &mut Form<'_>) {
        form.command("SET").bytes(key).value(&self.value);
        match self.expiry {
            SetExpiry::Clear => {}
            SetExpiry::Keep => {
                form.word("KEEPTTL");
            }
            SetExpiry::At(at) => {
                form.word("PXAT").number(at);
            }
        }
    }
}

/// Adds bytes at the end of a string that is not packed, or makes one of them. The
/// string's length is given back.
#[derive(Clone, Debug)]
pub struct Append<'a>(pub NewStr<'a>);

impl Change for Append<'_> {
    type Outcome = usize;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> usize {
        let Some(found) = found else {
            slot.set_string(key, None, &self.0, SetExpiry::Clear);
            return self.0.len();
        };
        slot.write_value_at(found, slot.string_len(found), &self.0)
    }

    fn form(&self, _: &usize, key: &[u8], form: &mut Form<'_>) {
        form.command("APPEND").bytes(key).value(&self.0);
    }
}

/// Writes into a string that is not packed, from `offset` on, extending it with
/// zeros where it is shorter; there may be none. The string's length is given back.
#[derive(Clone, Debug)]
pub struct Write<'a> {
    /// Where in the string.
    pub offset: usize,
    /// What is written, not empty.
    pub value: NewStr<'a>,
}

impl Change for Write<'_> {
    type Outcome = usize;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> usize {
        let found = slot.found_or_empty(key, found);
        slot.write_value_at(found, self.offset, &self.value)
    }

    fn form(&self, _: &usize, key: &[u8], form: &mut Form<'_>) {
        form.command("SETRANGE").bytes(key).number(self.offset as u64).value(&self.value);
    }
}

/// Extends a string that is not packed, with zeros, to `len` bytes, which is more
/// than it has; there may be none.
#[derive(Clone, Copy, Debug)]
pub struct Lengthen {
    /// Its new length.
    pub len: usize,
}

impl Change for Lengthen {
    type Outcome = ();

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) {
        let found = slot.found_or_empty(key, found);
        slot.write_value_at(found, self.len, &NewStr::Changed(b""));
    }

    fn form(&self, (): &(), key: &[u8], form: &mut Form<'_>) {
        let last = self.len.saturating_sub(1) as u64;
        form.command("SETRANGE").bytes(key).number(last).bytes(b"\0");
    }
}
