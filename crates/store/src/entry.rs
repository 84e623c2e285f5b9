//! An entry: one key with its value and expiry, in one allocation, and the
//! 8-byte cell that a slot's table holds for it.
//!
//! ```text
//!  cell, 64 bits
//!  | 12 tag | 4 kind | 1 expires | 2 access | 45 address / 8 |
//!
//!  entry, 8-byte aligned
//!  | expiry, ms: 8 if `expires` | key length: 1 or 5 | value length: 1 or 5 | key | value |
//!  boxed kinds have no value length: their value is a pointer of 8 bytes
//! ```
//!
//! What a walk over a slot wants to know (type, whether it expires, whether it
//! was read lately) is in the cell, so sweeping, evicting and `SCAN ... TYPE`
//! touch no entry. What is left in the entry is two length bytes: `key:123456`
//! with `value:123456` is 2 + 10 + 12 = 24 bytes, a size class of its own.
//! With the slot tables' 8-byte cells about nine tenths full and 64 bytes per
//! slot, a million of them cost
//!
//! ```text
//!  24 entry + 8 / 0.9 cell + 64 * 16,384 / 1,000,000 slot = 34 bytes a key
//! ```
//!
//! This is the only module that knows these layouts; everything outside sees
//! keys, values and expiries.
#![allow(unsafe_code)]
// An entry is 8-byte aligned and begins with its expiry, if it has one.
#![allow(clippy::cast_ptr_alignment, clippy::verbose_bit_mask)]

use crate::large::PackedChain;
use crate::memory::{alloc_packed, prefetch, usable};
use crate::types::stream::Stream;
use snug_codec::Segments;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::num::NonZeroU64;
use std::ptr::NonNull;

/// How a value is represented: 4 bits of the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A string that is the decimal form of an `i64`: its bytes, little-endian,
    /// without the sign-extending ones.
    Int = 0,
    /// A string as it was set.
    Str = 1,
    /// A string that was changed in place (what Redis calls `raw` even if short).
    StrChanged = 2,
    /// A string above [`INLINE_MAX`]: a boxed chain of segments.
    Large = 3,
    /// A boxed stream.
    Stream = 4,
    /// A `Str` in its packed form, which tells codec, dictionary and raw length.
    Packed = 5,
    /// A `StrChanged` in its packed form.
    PackedChanged = 6,
    /// A `Large` in its packed form: boxed, and shared with those who read it.
    PackedLarge = 7,
}

impl Kind {
    #[inline]
    fn from_bits(bits: u64) -> Self {
        match bits & 0xf {
            0 => Self::Int,
            1 => Self::Str,
            2 => Self::StrChanged,
            3 => Self::Large,
            4 => Self::Stream,
            5 => Self::Packed,
            6 => Self::PackedChanged,
            7 => Self::PackedLarge,
            other => unreachable!("a cell of kind {other}"),
        }
    }

    #[inline]
    fn boxed(self) -> bool {
        matches!(self, Self::Large | Self::Stream | Self::PackedLarge)
    }

    /// Whether the value is a string in a packed form.
    #[inline]
    pub(crate) fn is_packed(self) -> bool {
        matches!(self, Self::Packed | Self::PackedChanged | Self::PackedLarge)
    }

    /// Whether the value is a string whose packed form is in the entry.
    #[inline]
    pub(crate) fn is_packed_bytes(self) -> bool {
        matches!(self, Self::Packed | Self::PackedChanged)
    }

    /// Whether the value is a string whose bytes are in the entry as they are.
    #[inline]
    pub(crate) fn is_raw_bytes(self) -> bool {
        matches!(self, Self::Str | Self::StrChanged)
    }
}

/// The longest string kept inside its entry, in bytes; longer ones are chains.
pub(crate) const INLINE_MAX: usize = 64 * 1024;

/// A value on its way into an entry.
#[derive(Debug)]
pub(crate) enum Payload<'a> {
    Int(i64),
    Str(&'a [u8]),
    StrChanged(&'a [u8]),
    Large(Box<Segments>),
    Stream(Box<Stream>),
    Packed(&'a [u8]),
    PackedChanged(&'a [u8]),
    PackedLarge(Box<PackedChain>),
}

/// Two access bits: how lately the entry was read, aged by the sweeper.
pub const ACCESS_MAX: u8 = 3;

const ADDRESS_BITS: u32 = 45;
const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;
const ACCESS_SHIFT: u32 = 45;
const EXPIRES_BIT: u64 = 1 << 47;
const KIND_SHIFT: u32 = 48;
const TAG_SHIFT: u32 = 52;

/// The owner of one entry. Dropping it frees the entry and what it boxes.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Cell(NonZeroU64);

// SAFETY: a cell owns its entry and what the entry boxes, all of it `Send`.
unsafe impl Send for Cell {}

/// Where things are in an entry, as offsets from its start.
struct Parts {
    key: usize,
    key_len: usize,
    value: usize,
    value_len: usize,
}

const LONG: u8 = u8::MAX;

const fn length_bytes(len: usize) -> usize {
    if len < LONG as usize { 1 } else { 5 }
}

/// Writes a length at `at`; the offset behind it.
///
/// # Safety
/// `length_bytes(len)` bytes at `at` are the caller's to write.
unsafe fn write_length(at: *mut u8, len: usize) -> usize {
    // SAFETY: by the caller's contract.
    unsafe {
        if len < LONG as usize {
            at.write(len as u8);
            1
        } else {
            at.write(LONG);
            at.add(1).cast::<u32>().write_unaligned(len as u32);
            5
        }
    }
}

/// Reads a length at `at`: the length and the bytes it took.
///
/// # Safety
/// A length was written at `at` by [`write_length`].
#[inline]
unsafe fn read_length(at: *const u8) -> (usize, usize) {
    // SAFETY: by the caller's contract.
    unsafe {
        match at.read() {
            LONG => (at.add(1).cast::<u32>().read_unaligned() as usize, 5),
            short => (short as usize, 1),
        }
    }
}

fn int_len(value: i64) -> usize {
    let significant = 64 - if value < 0 { value.leading_ones() } else { value.leading_zeros() };
    // One more for the sign bit; 0 needs no byte at all.
    if value == 0 { 0 } else { (significant as usize + 1).div_ceil(8).min(8) }
}

/// The bytes allocated for a chain's segments and their list. O(1).
fn chain_allocated(chain: &Segments) -> usize {
    chain.allocated(usable)
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("an entry is at most a few gigabytes")
}

impl Payload<'_> {
    fn kind(&self) -> Kind {
        match self {
            Payload::Int(_) => Kind::Int,
            Payload::Str(_) => Kind::Str,
            Payload::StrChanged(_) => Kind::StrChanged,
            Payload::Large(_) => Kind::Large,
            Payload::Stream(_) => Kind::Stream,
            Payload::Packed(_) => Kind::Packed,
            Payload::PackedChanged(_) => Kind::PackedChanged,
            Payload::PackedLarge(_) => Kind::PackedLarge,
        }
    }

    /// Bytes of value and of its length in the entry.
    fn size(&self) -> (usize, usize) {
        match self {
            Payload::Int(value) => (int_len(*value), 1),
            Payload::Str(bytes)
            | Payload::StrChanged(bytes)
            | Payload::Packed(bytes)
            | Payload::PackedChanged(bytes) => (bytes.len(), length_bytes(bytes.len())),
            Payload::Large(_) | Payload::Stream(_) | Payload::PackedLarge(_) => (8, 0),
        }
    }

    /// Writes the value itself at `at`, giving up ownership of what is boxed.
    ///
    /// # Safety
    /// `self.size().0` bytes at `at` are the caller's to write.
    unsafe fn write(self, at: *mut u8) {
        // SAFETY: by the caller's contract.
        unsafe {
            match self {
                Payload::Int(value) => {
                    let bytes = value.to_le_bytes();
                    at.copy_from_nonoverlapping(bytes.as_ptr(), int_len(value));
                }
                Payload::Str(bytes)
                | Payload::StrChanged(bytes)
                | Payload::Packed(bytes)
                | Payload::PackedChanged(bytes) => {
                    at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                }
                Payload::Large(chain) => {
                    at.cast::<*mut Segments>().write_unaligned(Box::into_raw(chain));
                }
                Payload::Stream(stream) => {
                    at.cast::<*mut Stream>().write_unaligned(Box::into_raw(stream));
                }
                Payload::PackedLarge(chain) => {
                    at.cast::<*mut PackedChain>().write_unaligned(Box::into_raw(chain));
                }
            }
        }
    }
}

impl Cell {
    /// A new entry. O(key + value); one allocation.
    pub(crate) fn new(tag: u16, key: &[u8], expiry: Option<u64>, payload: Payload<'_>) -> Self {
        let kind = payload.kind();
        let (value_len, value_length_len) = payload.size();
        let key_at = 8 * usize::from(expiry.is_some()) + length_bytes(key.len()) + value_length_len;
        let layout = layout(key_at + key.len() + value_len);
        // SAFETY: the layout is not empty (a length takes a byte), and every
        // write below stays within the sizes summed above.
        let entry = unsafe {
            let start = if kind.is_packed_bytes() { alloc_packed(layout) } else { alloc(layout) };
            let Some(entry) = NonNull::new(start) else { handle_alloc_error(layout) };
            let mut at = start;
            if let Some(expiry) = expiry {
                at.cast::<u64>().write(expiry);
                at = at.add(8);
            }
            at = at.add(write_length(at, key.len()));
            if value_length_len > 0 {
                at = at.add(write_length(at, value_len));
            }
            at.copy_from_nonoverlapping(key.as_ptr(), key.len());
            payload.write(at.add(key.len()));
            entry
        };
        Self::assemble(tag, kind, expiry.is_some(), 0, entry)
    }

    fn assemble(tag: u16, kind: Kind, expires: bool, access: u8, entry: NonNull<u8>) -> Self {
        let address = entry.as_ptr().expose_provenance() as u64;
        assert!(address & 7 == 0 && address >> 48 == 0, "an address beyond 48 bits");
        let bits = u64::from(tag) << TAG_SHIFT
            | (kind as u64) << KIND_SHIFT
            | if expires { EXPIRES_BIT } else { 0 }
            | u64::from(access) << ACCESS_SHIFT
            | address >> 3;
        Self(NonZeroU64::new(bits).expect("no entry is at address 0"))
    }

    #[inline]
    pub(crate) fn tag(&self) -> u16 {
        (self.0.get() >> TAG_SHIFT) as u16
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        Kind::from_bits(self.0.get() >> KIND_SHIFT)
    }

    #[inline]
    pub(crate) fn expires(&self) -> bool {
        self.0.get() & EXPIRES_BIT != 0
    }

    #[inline]
    pub(crate) fn access(&self) -> u8 {
        (self.0.get() >> ACCESS_SHIFT) as u8 & ACCESS_MAX
    }

    #[inline]
    pub(crate) fn set_access(&mut self, access: u8) {
        let bits = self.0.get() & !(u64::from(ACCESS_MAX) << ACCESS_SHIFT)
            | u64::from(access.min(ACCESS_MAX)) << ACCESS_SHIFT;
        self.0 = NonZeroU64::new(bits).expect("the address is still there");
    }

    #[inline]
    fn entry(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(((self.0.get() & ADDRESS_MASK) << 3) as usize)
    }

    /// Brings the entry closer: as much of it as a small one has. Of a packed one more,
    /// for it is read from several places at once.
    #[inline]
    pub(crate) fn prefetch(&self) {
        const CACHE_LINE: usize = 64;
        let lines = if self.kind().is_packed_bytes() { 5 } else { 2 };
        (0..lines).for_each(|line| prefetch(self.entry().wrapping_add(line * CACHE_LINE)));
    }

    #[inline]
    fn parts(&self) -> Parts {
        let start = self.entry();
        let mut at = if self.expires() { 8 } else { 0 };
        // SAFETY: the entry was written by `new` with this layout.
        unsafe {
            let (key_len, n) = read_length(start.add(at));
            at += n;
            let value_len = if self.kind().boxed() {
                8
            } else {
                let (value_len, n) = read_length(start.add(at));
                at += n;
                value_len
            };
            Parts { key: at, key_len, value: at + key_len, value_len }
        }
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        let parts = self.parts();
        // SAFETY: the key's bytes, which live as long as the cell.
        unsafe { std::slice::from_raw_parts(self.entry().add(parts.key), parts.key_len) }
    }

    /// The expiry in Unix milliseconds.
    #[inline]
    pub(crate) fn expiry(&self) -> Option<u64> {
        // SAFETY: an entry with `expires` begins with its expiry, aligned.
        self.expires().then(|| unsafe { self.entry().cast::<u64>().read() })
    }

    /// The bytes of an inline string, or its packed form: of `Str`, `StrChanged`,
    /// `Packed` and `PackedChanged`.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        debug_assert!(self.kind().is_raw_bytes() || self.kind().is_packed_bytes());
        let parts = self.parts();
        // SAFETY: the value's bytes, which live as long as the cell.
        unsafe { std::slice::from_raw_parts(self.entry().add(parts.value), parts.value_len) }
    }

    /// The same to be changed in place; the caller marks the cell as changed.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        debug_assert!(self.kind().is_raw_bytes());
        let parts = self.parts();
        // SAFETY: as in `bytes`, and the cell is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.entry().add(parts.value), parts.value_len) }
    }

    /// Marks an inline string as changed in place.
    pub(crate) fn mark_changed(&mut self) {
        debug_assert!(self.kind().is_raw_bytes());
        let bits = self.0.get() & !(0xf << KIND_SHIFT) | (Kind::StrChanged as u64) << KIND_SHIFT;
        self.0 = NonZeroU64::new(bits).expect("the address is still there");
    }

    /// The integer of an `Int`.
    #[inline]
    pub(crate) fn int(&self) -> i64 {
        debug_assert_eq!(self.kind(), Kind::Int);
        let parts = self.parts();
        if parts.value_len == 0 {
            return 0;
        }
        let mut bytes = [0; 8];
        // SAFETY: an `Int` has at most 8 bytes of value.
        unsafe {
            let value = self.entry().add(parts.value);
            bytes.as_mut_ptr().copy_from_nonoverlapping(value, parts.value_len);
        }
        let spare = 64 - 8 * parts.value_len as u32;
        i64::from_le_bytes(bytes) << spare >> spare
    }

    #[inline]
    fn boxed<T>(&self) -> *mut T {
        // SAFETY: a boxed kind's value is a pointer.
        unsafe { self.entry().add(self.parts().value).cast::<*mut T>().read_unaligned() }
    }

    pub(crate) fn large(&self) -> &Segments {
        assert_eq!(self.kind(), Kind::Large);
        // SAFETY: the box that `new` was given, owned by this cell.
        unsafe { &*self.boxed::<Segments>() }
    }

    pub(crate) fn large_mut(&mut self) -> &mut Segments {
        assert_eq!(self.kind(), Kind::Large);
        // SAFETY: as in `large`, and the cell is borrowed mutably.
        unsafe { &mut *self.boxed::<Segments>() }
    }

    pub(crate) fn packed_large(&self) -> &PackedChain {
        assert_eq!(self.kind(), Kind::PackedLarge);
        // SAFETY: as in `large`.
        unsafe { &*self.boxed::<PackedChain>() }
    }

    pub(crate) fn stream(&self) -> &Stream {
        assert_eq!(self.kind(), Kind::Stream);
        // SAFETY: the box that `new` was given, owned by this cell.
        unsafe { &*self.boxed::<Stream>() }
    }

    pub(crate) fn stream_mut(&mut self) -> &mut Stream {
        assert_eq!(self.kind(), Kind::Stream);
        // SAFETY: as in `stream`, and the cell is borrowed mutably.
        unsafe { &mut *self.boxed::<Stream>() }
    }

    /// Gives the entry another value and expiry. In place, without touching
    /// the heap, when the new entry fits the old allocation exactly.
    pub(crate) fn replace(&mut self, expiry: Option<u64>, payload: Payload<'_>) {
        let parts = self.parts();
        let (old_size, kind) = (parts.value + parts.value_len, payload.kind());
        let (value_len, value_length_len) = payload.size();
        let key_at =
            8 * usize::from(expiry.is_some()) + length_bytes(parts.key_len) + value_length_len;
        let in_place = key_at == parts.key
            && expiry.is_some() == self.expires()
            && usable(key_at + parts.key_len + value_len) == usable(old_size)
            && !self.kind().boxed()
            && !kind.boxed();
        if !in_place {
            let mut new = Self::new(self.tag(), self.key(), expiry, payload);
            new.set_access(self.access());
            *self = new;
            return;
        }
        // A release must name the layout that was asked for, so the request is
        // brought to the new size first; within a size class that moves nothing.
        self.resize(old_size, key_at + parts.key_len + value_len);
        let start = self.entry();
        // SAFETY: same offsets as before, and room for the new value.
        unsafe {
            if let Some(expiry) = expiry {
                start.cast::<u64>().write(expiry);
            }
            write_length(start.add(key_at - value_length_len), value_len);
            payload.write(start.add(parts.value));
        }
        let entry = NonNull::new(start).expect("an entry has an address");
        let new = Self::assemble(self.tag(), kind, expiry.is_some(), self.access(), entry);
        std::mem::forget(std::mem::replace(self, new));
    }

    /// Lengthens an inline string to `len` bytes, the new ones zero, or cuts
    /// it, in place where the heap can.
    pub(crate) fn resize_bytes(&mut self, len: usize) {
        let parts = self.parts();
        let old = parts.value_len;
        if length_bytes(len) != length_bytes(old) {
            let mut value = self.bytes().to_vec();
            value.resize(len, 0);
            let expiry = self.expiry();
            self.replace(expiry, Payload::StrChanged(&value));
            return;
        }
        self.resize(parts.value + old, parts.value + len);
        let start = self.entry();
        // SAFETY: the allocation now holds `len` bytes of value.
        unsafe {
            write_length(start.add(parts.key - length_bytes(len)), len);
            if len > old {
                start.add(parts.value + old).write_bytes(0, len - old);
            }
        }
        self.mark_changed();
    }

    /// Reallocates the entry from `old` to `new` bytes and follows if it moved.
    fn resize(&mut self, old: usize, new: usize) {
        if old == new {
            return;
        }
        // SAFETY: the entry was allocated with the layout of `old`.
        let moved = unsafe { realloc(self.entry(), layout(old), layout(new).size()) };
        let Some(entry) = NonNull::new(moved) else { handle_alloc_error(layout(new)) };
        let new = Self::assemble(self.tag(), self.kind(), self.expires(), self.access(), entry);
        std::mem::forget(std::mem::replace(self, new));
    }

    /// Sets, changes or removes the expiry. In place when there was one and is one.
    pub(crate) fn set_expiry(&mut self, expiry: Option<u64>) {
        match (self.expires(), expiry) {
            (false, None) => {}
            (true, Some(expiry)) => {
                // SAFETY: an entry with `expires` begins with its expiry.
                unsafe { self.entry().cast::<u64>().write(expiry) }
            }
            _ => self.rebuild(self.tag(), None, expiry),
        }
    }

    /// Gives the entry another key (and its tag), keeping value and expiry.
    pub(crate) fn rename(&mut self, tag: u16, key: &[u8]) {
        self.rebuild(tag, Some(key), self.expiry());
    }

    /// Moves the value into a new entry; what it boxes is handed over as it is.
    fn rebuild(&mut self, tag: u16, key: Option<&[u8]>, expiry: Option<u64>) {
        let kind = self.kind();
        let key = key.unwrap_or(self.key());
        let mut new = match kind {
            Kind::Int => Self::new(tag, key, expiry, Payload::Int(self.int())),
            Kind::Str => Self::new(tag, key, expiry, Payload::Str(self.bytes())),
            Kind::StrChanged => Self::new(tag, key, expiry, Payload::StrChanged(self.bytes())),
            Kind::Packed => Self::new(tag, key, expiry, Payload::Packed(self.bytes())),
            Kind::PackedChanged => {
                Self::new(tag, key, expiry, Payload::PackedChanged(self.bytes()))
            }
            // SAFETY: the box is taken from the old entry, whose memory alone
            // is freed below.
            Kind::Large => {
                let chain = unsafe { Box::from_raw(self.boxed::<Segments>()) };
                Self::new(tag, key, expiry, Payload::Large(chain))
            }
            // SAFETY: as above.
            Kind::Stream => {
                let stream = unsafe { Box::from_raw(self.boxed::<Stream>()) };
                Self::new(tag, key, expiry, Payload::Stream(stream))
            }
            // SAFETY: as above.
            Kind::PackedLarge => {
                let chain = unsafe { Box::from_raw(self.boxed::<PackedChain>()) };
                Self::new(tag, key, expiry, Payload::PackedLarge(chain))
            }
        };
        new.set_access(self.access());
        let old = std::mem::replace(self, new);
        if kind.boxed() {
            old.free_entry();
            std::mem::forget(old);
        }
    }

    /// The bytes allocated for the entry and everything it boxes.
    pub(crate) fn allocated(&self) -> usize {
        let parts = self.parts();
        let entry = usable(parts.value + parts.value_len);
        entry
            + match self.kind() {
                Kind::Large => usable(size_of::<Segments>()) + chain_allocated(self.large()),
                Kind::Stream => usable(size_of::<Stream>()) + self.stream().memory().allocated,
                Kind::PackedLarge => {
                    usable(size_of::<PackedChain>()) + self.packed_large().allocated()
                }
                _ => 0,
            }
    }

    /// What the entry of a packed large string would have allocated with the
    /// value unpacked.
    pub(crate) fn allocated_unpacked(&self) -> usize {
        let parts = self.parts();
        let raw = self.packed_large().raw_allocated();
        usable(parts.value + parts.value_len) + usable(size_of::<Segments>()) + raw
    }

    /// What the entry would have allocated with `len` bytes of inline value.
    pub(crate) fn allocated_with(&self, len: usize) -> usize {
        let parts = self.parts();
        usable(parts.value - length_bytes(parts.value_len) + length_bytes(len) + len)
    }

    /// Frees the entry's own memory and nothing that it boxes.
    fn free_entry(&self) {
        let parts = self.parts();
        // SAFETY: allocated with this very layout; nobody uses it afterwards.
        unsafe { dealloc(self.entry(), layout(parts.value + parts.value_len)) }
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        // SAFETY: the boxes are this cell's own and are not used again.
        unsafe {
            match self.kind() {
                Kind::Large => drop(Box::from_raw(self.boxed::<Segments>())),
                Kind::Stream => drop(Box::from_raw(self.boxed::<Stream>())),
                Kind::PackedLarge => drop(Box::from_raw(self.boxed::<PackedChain>())),
                _ => {}
            }
        }
        self.free_entry();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(n: usize) -> Vec<u8> {
        (0..n).map(|i| i as u8).collect()
    }

    /// Every kind of value, with every width of length, with and without an
    /// expiry, becomes every other and is read back.
    #[test]
    fn any_entry_can_become_any_other() {
        let keys = [b"k".to_vec(), long(254), long(255), long(1000)];
        let strings = [Vec::new(), long(5), long(254), long(255), long(600)];
        let chain_len = if cfg!(miri) { 300 } else { 200_000 };
        let ints = [0, 1, -1, 127, 128, -128, -129, 65_535, i64::MAX, i64::MIN];
        for key in &keys {
            for expiry in [None, Some(1), Some(u64::MAX)] {
                let mut cell = Cell::new(0xabc, key, expiry, Payload::Int(7));
                cell.set_access(2);
                for int in ints {
                    cell.replace(expiry, Payload::Int(int));
                    assert_eq!((cell.kind(), cell.int()), (Kind::Int, int));
                    for string in &strings {
                        cell.replace(expiry, Payload::Str(string));
                        assert_eq!((cell.kind(), cell.bytes()), (Kind::Str, &string[..]));
                    }
                }
                for string in &strings {
                    cell.replace(expiry, Payload::Packed(string));
                    assert_eq!((cell.kind(), cell.bytes()), (Kind::Packed, &string[..]));
                    cell.replace(expiry, Payload::PackedChanged(string));
                    assert_eq!((cell.kind(), cell.bytes()), (Kind::PackedChanged, &string[..]));
                }
                for from in &strings {
                    for to in &strings {
                        cell.replace(expiry, Payload::Str(from));
                        cell.resize_bytes(to.len());
                        let mut expected = from.clone();
                        expected.resize(to.len(), 0);
                        assert_eq!((cell.kind(), cell.bytes()), (Kind::StrChanged, &expected[..]));
                        cell.bytes_mut().fill(9);
                        assert!(cell.bytes().iter().all(|&b| b == 9));
                    }
                }
                let chain = Segments::from(&long(chain_len)[..]);
                cell.replace(expiry, Payload::Large(Box::new(chain.clone())));
                assert!(*cell.large() == chain);
                cell.large_mut().append(b"more");
                assert_eq!(cell.large().len(), chain_len + 4);
                let packed = PackedChain::raw(&long(300));
                cell.replace(expiry, Payload::PackedLarge(Box::new(packed.clone())));
                assert!(cell.packed_large().is_same(&packed));
                assert_eq!((cell.key(), cell.expiry()), (&key[..], expiry));
                assert_eq!((cell.tag(), cell.access()), (0xabc, 2));
            }
        }
    }

    #[test]
    fn expiry_and_key_change_and_the_value_stays() {
        let values: [fn() -> Payload<'static>; 8] = [
            || Payload::Int(-300),
            || Payload::Str(b"text"),
            || Payload::StrChanged(b"text"),
            || Payload::Large(Box::new(Segments::from(&[5; 700][..]))),
            || Payload::Stream(Box::new(Stream::new())),
            || Payload::Packed(b"form"),
            || Payload::PackedChanged(b"form"),
            || Payload::PackedLarge(Box::new(PackedChain::raw(&[5; 700]))),
        ];
        for value in values {
            let mut cell = Cell::new(1, b"old", None, value());
            let kind = cell.kind();
            for expiry in [Some(5), Some(6), None, None, Some(7)] {
                cell.set_expiry(expiry);
                assert_eq!((cell.expiry(), cell.kind(), cell.key()), (expiry, kind, &b"old"[..]));
            }
            cell.rename(2, b"a longer name");
            assert_eq!(
                (cell.tag(), cell.key(), cell.expiry()),
                (2, &b"a longer name"[..], Some(7))
            );
            match kind {
                Kind::Int => assert_eq!(cell.int(), -300),
                Kind::Str | Kind::StrChanged => assert_eq!(cell.bytes(), b"text"),
                Kind::Packed | Kind::PackedChanged => assert_eq!(cell.bytes(), b"form"),
                Kind::Large => assert_eq!(cell.large().len(), 700),
                Kind::Stream => assert!(cell.stream().is_empty()),
                Kind::PackedLarge => assert_eq!(cell.packed_large().len(), 700),
            }
        }
    }

    #[test]
    fn a_small_entry_is_two_bytes_more_than_its_data() {
        let cell = Cell::new(0, b"key:123456", None, Payload::Str(b"value:123456"));
        assert_eq!(cell.allocated(), 24);
    }
}
