//! An entry: one key with its value and expiry, in one allocation, and the
//! 8-byte cell that a slot's table holds for it.
//!
//! ```text
//!  cell, 64 bits
//!  | 12 tag | 4 kind | 1 expires | 2 access | 45 address / 8 |
//!
//!  entry, 8-byte aligned
//!  | expiry, ms: 8 if `expires` | key length: 1 or 5 | value length: 1 or 5 | key | value |
//!
//!  the same of what is on disk (`away.rs`)
//!  | expiry, ms: 8 if `expires` | key length: 1 or 5 | value length: 1 | key | form: 1 | place ... |
//!
//!  the same of what is boxed
//!  | expiry, ms: 8 if `expires` | key length: 1 or 5 | form: 1 | key | pointer: 8 |
//!
//!  in place of the key's length and the key, where that saves memory
//!  | ... | fe | length: 1 | ... | packed key | ...
//! ```
//!
//! A key is packed (`pack/keys`) when its value is, or when it has cooled, and lies plain
//! again when a raw value is written.
//!
//! What a walk over a slot wants to know (how the value lies and whether it is
//! packed, whether it expires, whether it was read lately) is in the cell, so
//! sweeping and evicting touch no entry but of what they work on. The table of forms
//! (`types/forms.rs`) says what the 4 bits stand for. All that is boxed shares two
//! of their values and is told apart in the entry: who asks which it is reads the
//! entry anyway. What is left in the entry is two length bytes: `key:123456`
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

use crate::memory::{alloc_packed, is_to_move, prefetch, realloc_packed, usable};
use crate::pack::keys::{self, KeyBytes, Room};
use crate::types::Type;
use crate::types::forms::{Bits, Boxed, Form, Owned, Value, ValueMut};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::num::NonZeroU64;
use std::ptr::NonNull;

/// A value on its way into an entry.
#[derive(Debug)]
pub(crate) enum Payload<'a> {
    /// Of a form that lies in the entry, these bytes.
    Inline(Form, &'a [u8]),
    /// In a box.
    Boxed(Owned),
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
    key_is_packed: bool,
    value: usize,
    value_len: usize,
    /// Which form, of what is boxed.
    form: u8,
}

/// Bytes of the value of what is boxed.
const POINTER: usize = 8;

const LONG: u8 = u8::MAX;
/// In place of a key's length: the key is packed.
const PACKED_KEY: u8 = LONG - 1;

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

/// A key as it lies in an entry.
#[derive(Clone, Copy)]
struct StoredKey<'a> {
    bytes: &'a [u8],
    is_packed: bool,
}

impl<'a> StoredKey<'a> {
    fn plain(bytes: &'a [u8]) -> Self {
        Self { bytes, is_packed: false }
    }

    fn packed(bytes: &'a [u8]) -> Self {
        Self { bytes, is_packed: true }
    }

    /// Bytes of what tells its length.
    fn length_bytes(self) -> usize {
        match self.is_packed {
            true => 2,
            false if self.bytes.len() < PACKED_KEY as usize => 1,
            false => 5,
        }
    }

    /// Bytes of it all.
    fn len(self) -> usize {
        self.length_bytes() + self.bytes.len()
    }

    /// Writes what tells its length at `at`.
    ///
    /// # Safety
    /// `self.length_bytes()` bytes at `at` are the caller's to write.
    unsafe fn write_length(self, at: *mut u8) {
        let len = self.bytes.len();
        // SAFETY: by the caller's contract.
        unsafe {
            match self.length_bytes() {
                1 => at.write(len as u8),
                2 => at.cast::<[u8; 2]>().write([PACKED_KEY, len as u8]),
                _ => {
                    at.write(LONG);
                    at.add(1).cast::<u32>().write_unaligned(len as u32);
                }
            }
        }
    }

    /// Reads what tells a key's length at `at`: the length, whether the key is packed, and
    /// the bytes it took.
    ///
    /// # Safety
    /// It was written at `at` by [`write_length`](Self::write_length).
    #[inline]
    unsafe fn read_length(at: *const u8) -> (usize, bool, usize) {
        // SAFETY: by the caller's contract.
        unsafe {
            match at.read() {
                LONG => (at.add(1).cast::<u32>().read_unaligned() as usize, false, 5),
                PACKED_KEY => (at.add(1).read() as usize, true, 2),
                short => (short as usize, false, 1),
            }
        }
    }

    /// Packed, if an entry of so many bytes beside it is then of a smaller size.
    fn packed_beside(self, beside: usize, learns: bool, room: &mut Room) -> Option<StoredKey<'_>> {
        let least = usable(beside + 3);
        if least == usable(beside + self.len()) {
            return None;
        }
        room.clear();
        match self.is_packed {
            false if self.bytes.len() <= keys::KEY_MAX => keys::pack(self.bytes, learns, room),
            true if keys::has_text(self.bytes) => {
                let mut raw = Room::new();
                keys::unpack(self.bytes, &mut raw);
                keys::pack(&raw, false, room);
            }
            _ => return None,
        }
        let fits = room.len() <= keys::KEY_MAX;
        let packed = StoredKey::packed(room);
        let pays = fits && usable(beside + packed.len()) < usable(beside + self.len());
        pays.then_some(packed)
    }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("an entry is at most a few gigabytes")
}

impl<'a> Payload<'a> {
    /// A value that is to lie in a box.
    pub(crate) fn boxed<T: Boxed>(value: T) -> Self {
        Self::Boxed(Owned::new(value))
    }

    /// The same value again.
    pub(crate) fn of(value: Value<'a>) -> Self {
        match value.duplicate() {
            Some(owned) => Self::Boxed(owned),
            None => Self::Inline(value.form(), value.bytes()),
        }
    }

    fn form(&self) -> Form {
        match self {
            Self::Inline(form, _) => *form,
            Self::Boxed(owned) => owned.form(),
        }
    }

    /// Bytes of value in the entry, and of what tells its length or its form there.
    fn size(&self) -> (usize, usize) {
        match self {
            Self::Inline(_, bytes) => (bytes.len(), length_bytes(bytes.len())),
            Self::Boxed(_) => (POINTER, 1),
        }
    }

    /// Writes the length of the value, or its form, at `at`.
    ///
    /// # Safety
    /// `self.size().1` bytes at `at` are the caller's to write.
    unsafe fn write_length(&self, at: *mut u8) {
        // SAFETY: by the caller's contract.
        unsafe {
            match self {
                Self::Inline(_, bytes) => drop(write_length(at, bytes.len())),
                Self::Boxed(owned) => at.write(owned.form().boxed_number().unwrap_or_default()),
            }
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
                Self::Inline(_, bytes) => {
                    at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                }
                Self::Boxed(owned) => {
                    at.cast::<NonNull<u8>>().write_unaligned(owned.into_raw());
                }
            }
        }
    }
}

impl Cell {
    /// A new entry. O(key + value); one allocation.
    pub(crate) fn new(tag: u16, key: &[u8], expiry: Option<u64>, payload: Payload<'_>) -> Self {
        Self::with(tag, StoredKey::plain(key), expiry, payload)
    }

    fn with(tag: u16, key: StoredKey<'_>, expiry: Option<u64>, payload: Payload<'_>) -> Self {
        let bits = payload.form().bits();
        let (value_len, value_length_len) = payload.size();
        let key_at = 8 * usize::from(expiry.is_some()) + key.length_bytes() + value_length_len;
        let layout = layout(key_at + key.bytes.len() + value_len);
        // SAFETY: the layout is not empty (a length takes a byte), and every
        // write below stays within the sizes summed above.
        let entry = unsafe {
            let start = if bits.is_packed_inline() { alloc_packed(layout) } else { alloc(layout) };
            let Some(entry) = NonNull::new(start) else { handle_alloc_error(layout) };
            let mut at = start;
            if let Some(expiry) = expiry {
                at.cast::<u64>().write(expiry);
                at = at.add(8);
            }
            key.write_length(at);
            at = at.add(key.length_bytes());
            payload.write_length(at);
            at = at.add(value_length_len);
            at.copy_from_nonoverlapping(key.bytes.as_ptr(), key.bytes.len());
            payload.write(at.add(key.bytes.len()));
            entry
        };
        Self::assemble(tag, bits, expiry.is_some(), 0, entry)
    }

    fn assemble(tag: u16, kind: Bits, expires: bool, access: u8, entry: NonNull<u8>) -> Self {
        let address = entry.as_ptr().expose_provenance() as u64;
        assert!(address & 7 == 0 && address >> 48 == 0, "an address beyond 48 bits");
        let bits = u64::from(tag) << TAG_SHIFT
            | u64::from(kind.0) << KIND_SHIFT
            | if expires { EXPIRES_BIT } else { 0 }
            | u64::from(access) << ACCESS_SHIFT
            | address >> 3;
        Self(NonZeroU64::new(bits).expect("no entry is at address 0"))
    }

    #[inline]
    pub(crate) fn tag(&self) -> u16 {
        (self.0.get() >> TAG_SHIFT) as u16
    }

    /// What tells without a look at the entry how the value lies.
    #[inline]
    pub(crate) fn bits(&self) -> Bits {
        Bits((self.0.get() >> KIND_SHIFT) as u8 & 0xf)
    }

    /// How the value lies. Reads the entry of what is boxed.
    #[inline]
    pub(crate) fn form(&self) -> Form {
        match self.bits().inline() {
            Some(form) => form,
            None if self.bits().is_away() => Form::of_away_byte(self.bytes()[0]),
            None => Form::in_box(self.parts().form),
        }
    }

    /// The value's type.
    #[inline]
    pub(crate) fn type_of(&self) -> Type {
        self.form().type_of()
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
        let lines = if self.bits().is_packed_inline() { 5 } else { 2 };
        (0..lines).for_each(|line| prefetch(self.entry().wrapping_add(line * CACHE_LINE)));
    }

    #[inline]
    fn parts(&self) -> Parts {
        let start = self.entry();
        let mut at = if self.expires() { 8 } else { 0 };
        // SAFETY: the entry was written by `new` with this layout.
        unsafe {
            let (key_len, key_is_packed, n) = StoredKey::read_length(start.add(at));
            at += n;
            let (value_len, form, n) = if self.bits().is_boxed() {
                (POINTER, start.add(at).read(), 1)
            } else {
                let (value_len, n) = read_length(start.add(at));
                (value_len, 0, n)
            };
            at += n;
            Parts { key: at, key_len, key_is_packed, value: at + key_len, value_len, form }
        }
    }

    /// The key as it lies.
    #[inline]
    fn stored_key(&self) -> StoredKey<'_> {
        let parts = self.parts();
        // SAFETY: the key's bytes, which live as long as the cell.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.entry().add(parts.key), parts.key_len) };
        StoredKey { bytes, is_packed: parts.key_is_packed }
    }

    /// The key.
    #[inline]
    pub(crate) fn key(&self) -> KeyBytes<'_> {
        let StoredKey { bytes, is_packed } = self.stored_key();
        if !is_packed {
            return KeyBytes::Plain(bytes);
        }
        let mut raw = Room::new();
        keys::unpack(bytes, &mut raw);
        KeyBytes::Unpacked(raw)
    }

    /// Whether this is the key.
    #[inline]
    pub(crate) fn is_of(&self, key: &[u8]) -> bool {
        let StoredKey { bytes, is_packed } = self.stored_key();
        if is_packed { keys::is(bytes, key) } else { bytes == key }
    }

    /// Whether the key is packed. Reads the entry.
    pub(crate) fn key_is_packed(&self) -> bool {
        self.stored_key().is_packed
    }

    /// Bytes of the key as it lies.
    pub(crate) fn key_bytes(&self) -> usize {
        self.stored_key().bytes.len()
    }

    /// Packs the key, or packs it better than it is, if that saves memory; whether it did.
    /// `learns` says that it has not been looked at before. O(key + value) then, else O(key).
    pub(crate) fn pack_key(&mut self, learns: bool) -> bool {
        let parts = self.parts();
        let key = self.stored_key();
        let beside = parts.value - key.len() + parts.value_len;
        let mut room = Room::new();
        let Some(packed) = key.packed_beside(beside, learns, &mut room) else { return false };
        self.rebuild(self.tag(), Some(packed), self.expiry());
        true
    }

    /// Has the key lie as it was sent.
    pub(crate) fn unpack_key(&mut self) {
        if let KeyBytes::Unpacked(raw) = self.key() {
            self.rebuild(self.tag(), Some(StoredKey::plain(&raw)), self.expiry());
        }
    }

    /// When the key expires, or a part of its value, whichever is first; `u64::MAX` for
    /// never.
    #[inline]
    pub(crate) fn due(&self) -> u64 {
        let own = self.expiry().unwrap_or(u64::MAX);
        if !self.bits().is_boxed() {
            return own;
        }
        own.min((self.type_of().row().due)(self.value()))
    }

    /// Whether parts of the value expire by themselves.
    pub(crate) fn parts_expire(&self) -> bool {
        self.bits().is_boxed() && (self.type_of().row().due)(self.value()) != u64::MAX
    }

    /// The expiry in Unix milliseconds.
    #[inline]
    pub(crate) fn expiry(&self) -> Option<u64> {
        // SAFETY: an entry with `expires` begins with its expiry, aligned.
        self.expires().then(|| unsafe { self.entry().cast::<u64>().read() })
    }

    /// The value, where it lies. Of one that is on disk, what reads as damaged: who wants
    /// it has it brought first.
    #[inline]
    pub(crate) fn value(&self) -> Value<'_> {
        match self.bits().inline() {
            Some(form) => Value::inline(form, self.bytes()),
            None if self.bits().is_away() => Value::inline(self.form().unreadable(), self.bytes()),
            None => {
                let parts = self.parts();
                // SAFETY: the box that `new` was given, owned by this cell.
                unsafe { Value::boxed(Form::in_box(parts.form), self.boxed(&parts)) }
            }
        }
    }

    /// The value as a payload for another entry: a copy, or references.
    pub(crate) fn payload(&self) -> Payload<'_> {
        match self.bits().is_away() {
            true => Payload::Inline(self.form(), self.bytes()),
            false => Payload::of(self.value()),
        }
    }

    /// The bytes of a value that lies in the entry: raw, or its packed form; of one that
    /// is on disk, where it is.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        debug_assert!(!self.bits().is_boxed());
        let parts = self.parts();
        // SAFETY: the value's bytes, which live as long as the cell.
        unsafe { std::slice::from_raw_parts(self.entry().add(parts.value), parts.value_len) }
    }

    /// Bytes of the entry beside the value that lies in it.
    pub(crate) fn bytes_beside(&self) -> usize {
        self.parts().value
    }

    /// The same to be changed in place; the caller says of which form it is then.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        debug_assert!(self.bits().is_raw_inline());
        let parts = self.parts();
        // SAFETY: as in `bytes`, and the cell is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.entry().add(parts.value), parts.value_len) }
    }

    /// Says that the same bytes are now of another form that lies in the entry.
    pub(crate) fn set_form(&mut self, form: Form) {
        debug_assert!(self.bits().is_raw_inline() && form.bits().is_raw_inline());
        let bits = self.0.get() & !(0xf << KIND_SHIFT) | u64::from(form.bits().0) << KIND_SHIFT;
        self.0 = NonZeroU64::new(bits).expect("the address is still there");
    }

    #[inline]
    fn boxed(&self, parts: &Parts) -> NonNull<u8> {
        debug_assert!(self.bits().is_boxed());
        // SAFETY: the value of what is boxed is a pointer.
        unsafe { self.entry().add(parts.value).cast::<NonNull<u8>>().read_unaligned() }
    }

    /// What is in the box, if that is a `T`.
    #[inline]
    pub(crate) fn get<T: Boxed>(&self) -> Option<&T> {
        if self.bits().is_boxed() { self.value().get() } else { None }
    }

    /// The same to be changed.
    #[inline]
    pub(crate) fn get_mut<T: Boxed>(&mut self) -> Option<&mut T> {
        if !self.bits().is_boxed() {
            return None;
        }
        let parts = self.parts();
        let is_it = Form::in_box(parts.form) == T::FORM;
        // SAFETY: the box that `new` was given, of this form, owned by this cell, which
        // is borrowed mutably.
        is_it.then(|| unsafe { self.boxed(&parts).cast::<T>().as_mut() })
    }

    /// What is in the box, if the value lies in one, to be changed there.
    pub(crate) fn value_mut(&mut self) -> Option<ValueMut<'_>> {
        if !self.bits().is_boxed() {
            return None;
        }
        let parts = self.parts();
        // SAFETY: as in `get_mut`.
        Some(unsafe { ValueMut::boxed(Form::in_box(parts.form), self.boxed(&parts)) })
    }

    /// Gives the entry another value and expiry. In place, without touching
    /// the heap, when the new entry fits the old allocation exactly.
    ///
    /// The key is packed with a value that is packed or on disk. It lies plain beside one
    /// that is raw.
    pub(crate) fn replace(&mut self, expiry: Option<u64>, payload: Payload<'_>) {
        let (parts, key, bits) = (self.parts(), self.stored_key(), payload.form().bits());
        let (value_len, value_length_len) = payload.size();
        let beside = 8 * usize::from(expiry.is_some()) + value_length_len + value_len;
        let mut room = Room::new();
        let new_key = if bits.is_packed_inline() || bits.is_away() {
            key.packed_beside(beside, !key.is_packed, &mut room).unwrap_or(key)
        } else if key.is_packed && !bits.is_boxed() {
            keys::unpack(key.bytes, &mut room);
            StoredKey::plain(&room)
        } else {
            key
        };
        let old_size = parts.value + parts.value_len;
        let key_at = beside - value_len + key.length_bytes();
        let in_place = std::ptr::eq(new_key.bytes, key.bytes)
            && key_at == parts.key
            && expiry.is_some() == self.expires()
            && usable(key_at + parts.key_len + value_len) == usable(old_size)
            // What is packed has a heap of its own.
            && self.bits().is_packed_inline() == bits.is_packed_inline()
            && !self.bits().is_boxed()
            && !bits.is_boxed();
        if !in_place {
            let mut new = Self::with(self.tag(), new_key, expiry, payload);
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
            payload.write_length(start.add(key_at - value_length_len));
            payload.write(start.add(parts.value));
        }
        let entry = NonNull::new(start).expect("an entry has an address");
        let new = Self::assemble(self.tag(), bits, expiry.is_some(), self.access(), entry);
        std::mem::forget(std::mem::replace(self, new));
    }

    /// Lengthens what lies raw in the entry to `len` bytes, the new ones zero, or cuts
    /// it, in place where the heap can.
    pub(crate) fn resize_bytes(&mut self, len: usize) {
        let parts = self.parts();
        let old = parts.value_len;
        if length_bytes(len) != length_bytes(old) {
            let mut value = self.bytes().to_vec();
            value.resize(len, 0);
            let expiry = self.expiry();
            self.replace(expiry, Payload::Inline(self.form(), &value));
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
    }

    /// Reallocates the entry from `old` to `new` bytes and follows if it moved.
    fn resize(&mut self, old: usize, new: usize) {
        if old == new {
            return;
        }
        let (entry, size) = (self.entry(), layout(new).size());
        // SAFETY: the entry was allocated with the layout of `old`.
        let moved = unsafe {
            match self.bits().is_packed_inline() {
                true => realloc_packed(entry, layout(old), size),
                false => realloc(entry, layout(old), size),
            }
        };
        let Some(entry) = NonNull::new(moved) else { handle_alloc_error(layout(new)) };
        let new = Self::assemble(self.tag(), self.bits(), self.expires(), self.access(), entry);
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
        self.rebuild(tag, Some(StoredKey::plain(key)), self.expiry());
    }

    /// Moves an entry that is packed and lies in a page of memory with holes, so that
    /// the page comes free. Looks at the page, and not at the entry unless it moves.
    pub(crate) fn leave_sparse_page(&mut self) {
        // SAFETY: the entry is this cell's own.
        if self.bits().is_packed_inline() && unsafe { is_to_move(self.entry()) } {
            self.rebuild(self.tag(), None, self.expiry());
        }
    }

    /// Moves the value into a new entry; what it boxes is handed over as it is.
    fn rebuild(&mut self, tag: u16, key: Option<StoredKey<'_>>, expiry: Option<u64>) {
        let key = key.unwrap_or(self.stored_key());
        let payload = match self.bits().inline() {
            Some(form) => Payload::Inline(form, self.bytes()),
            None if self.bits().is_away() => Payload::Inline(self.form(), self.bytes()),
            None => {
                let parts = self.parts();
                // SAFETY: the box is taken from the old entry, whose memory alone is
                // freed below.
                Payload::Boxed(unsafe {
                    Owned::from_raw(Form::in_box(parts.form), self.boxed(&parts))
                })
            }
        };
        let mut new = Self::with(tag, key, expiry, payload);
        new.set_access(self.access());
        let old = std::mem::replace(self, new);
        if old.bits().is_boxed() {
            old.free_entry();
            std::mem::forget(old);
        }
    }

    /// The bytes allocated for the entry alone.
    #[inline]
    pub(crate) fn entry_allocated(&self) -> usize {
        let parts = self.parts();
        usable(parts.value + parts.value_len)
    }

    /// The bytes allocated for the entry and everything it boxes.
    pub(crate) fn allocated(&self) -> usize {
        self.entry_allocated() + self.value().measure().allocated
    }

    /// What the entry would have allocated with a plain key and `len` bytes of inline value.
    pub(crate) fn allocated_with(&self, len: usize) -> usize {
        let parts = self.parts();
        let plain = StoredKey::plain(&self.key()).len();
        let beside = parts.value - self.stored_key().len() - length_bytes(parts.value_len);
        usable(beside + plain + length_bytes(len) + len)
    }

    /// What the entry alone would have allocated with a plain key.
    pub(crate) fn entry_allocated_plain(&self) -> usize {
        self.allocated_with(self.parts().value_len)
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
        if self.bits().is_boxed() {
            let parts = self.parts();
            // SAFETY: the box is this cell's own and is not used again.
            drop(unsafe { Owned::from_raw(Form::in_box(parts.form), self.boxed(&parts)) });
        }
        self.free_entry();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::large::PackedChain;
    use crate::types::stream::Stream;
    use crate::types::string::{CHANGED, CHANGED_PACKED, INT, Int, SET, SET_PACKED};
    use snug_codec::Segments;

    fn is(cell: &Cell, form: Form, bytes: &[u8]) -> bool {
        (cell.form(), cell.bytes()) == (form, bytes)
    }

    fn long(n: usize) -> Vec<u8> {
        (0..n).map(|i| i as u8).collect()
    }

    /// Every kind of value, with every width of length, with and without an
    /// expiry, becomes every other and is read back.
    #[test]
    fn any_entry_can_become_any_other() {
        // The last is packed beside what is packed.
        let uuid = b"session:3f0c8a52-1b7e-4e6a-9d5b-0c2f7a91e344".to_vec();
        let keys = [b"k".to_vec(), long(253), long(254), long(255), long(1000), uuid];
        let strings = [Vec::new(), long(5), long(254), long(255), long(600)];
        let chain_len = if cfg!(miri) { 300 } else { 200_000 };
        let ints = [0, 1, -1, 127, 128, -128, -129, 65_535, i64::MAX, i64::MIN];
        for key in &keys {
            for expiry in [None, Some(1), Some(u64::MAX)] {
                let seven = Int::new(7);
                let mut cell = Cell::new(0xabc, key, expiry, Payload::Inline(INT, seven.bytes()));
                cell.set_access(2);
                for int in ints {
                    cell.replace(expiry, Payload::Inline(INT, Int::new(int).bytes()));
                    assert_eq!((cell.form(), Int::read(cell.bytes())), (INT, int));
                    for string in &strings {
                        cell.replace(expiry, Payload::Inline(SET, string));
                        assert!(is(&cell, SET, string));
                    }
                }
                for string in &strings {
                    for form in [SET_PACKED, CHANGED_PACKED] {
                        cell.replace(expiry, Payload::Inline(form, string));
                        assert!(is(&cell, form, string));
                    }
                }
                for from in &strings {
                    for to in &strings {
                        cell.replace(expiry, Payload::Inline(SET, from));
                        cell.resize_bytes(to.len());
                        cell.set_form(CHANGED);
                        let mut expected = from.clone();
                        expected.resize(to.len(), 0);
                        assert!(is(&cell, CHANGED, &expected));
                        cell.bytes_mut().fill(9);
                        assert!(cell.bytes().iter().all(|&b| b == 9));
                    }
                }
                let chain = Segments::from(&long(chain_len)[..]);
                cell.replace(expiry, Payload::boxed(chain.clone()));
                assert!(cell.get() == Some(&chain) && cell.get::<Stream>().is_none());
                cell.get_mut::<Segments>().unwrap().append(b"more");
                assert_eq!(cell.get().map(Segments::len), Some(chain_len + 4));
                let packed = PackedChain::raw(&long(300));
                cell.replace(expiry, Payload::boxed(packed.clone()));
                assert!(cell.get::<PackedChain>().unwrap().is_same(&packed));
                assert!(cell.get_mut::<Segments>().is_none());
                assert_eq!((&*cell.key(), cell.expiry()), (&key[..], expiry));
                assert!(cell.is_of(key) && !cell.is_of(b"another"));
                assert_eq!((cell.tag(), cell.access()), (0xabc, 2));
            }
        }
    }

    #[test]
    fn expiry_and_key_change_and_the_value_stays() {
        let values: [(fn() -> Payload<'static>, usize); 8] = [
            (|| Payload::Inline(INT, b"\x01\x02"), 2),
            (|| Payload::Inline(SET, b"text"), 4),
            (|| Payload::Inline(CHANGED, b"text"), 4),
            (|| Payload::boxed(Segments::from(&[5; 700][..])), 700),
            (|| Payload::boxed(Stream::new()), 0),
            (|| Payload::Inline(SET_PACKED, b"form"), 4),
            (|| Payload::Inline(CHANGED_PACKED, b"form"), 4),
            (|| Payload::boxed(PackedChain::raw(&[5; 700])), 700),
        ];
        for (value, len) in values {
            let mut cell = Cell::new(1, b"old", None, value());
            let form = cell.form();
            for expiry in [Some(5), Some(6), None, None, Some(7)] {
                cell.set_expiry(expiry);
                assert_eq!((cell.expiry(), cell.form(), &*cell.key()), (expiry, form, &b"old"[..]));
            }
            cell.rename(2, b"a longer name");
            assert_eq!(
                (cell.tag(), &*cell.key(), cell.expiry()),
                (2, &b"a longer name"[..], Some(7))
            );
            let value = cell.value();
            let bytes =
                if cell.bits().is_boxed() { value.measure().raw } else { value.bytes().len() };
            assert_eq!((value.form(), bytes), (form, len));
            let copy = Cell::new(1, b"copy", None, Payload::of(value));
            assert_eq!((copy.form(), copy.value().measure().raw), (form, value.measure().raw));
        }
    }

    #[test]
    fn a_small_entry_is_two_bytes_more_than_its_data() {
        let cell = Cell::new(0, b"key:123456", None, Payload::Inline(SET, b"value:123456"));
        assert_eq!(cell.allocated(), 24);
    }
}
