//! A slot: one of the 16,384 partitions of a database's keyspace, with its
//! lock, and the guard through which everything in it is read and changed. One
//! may stand for its neighbours while they have few keys (`keyspace.rs`).
//!
//! ```text
//!  Slot, 56 bytes in a cache line of 64
//!  | lock 1 | notes 1 | keys 4 | next expiry 8 | first table 24 | directory 8 | keys 4 |
//! ```
//!
//! `next expiry` is a lower bound on the expiry of every key in the slot: the
//! sweeper reads that one number, without the lock, and passes by the slots in
//! which nothing is due. `keys` stands twice: for those who hold the lock, and
//! for those who only count.
//!
//! [`SlotGuard`] keeps the books: each change is counted (keys, keys that
//! expire, bytes by type) in the store's counters as it is made (`books/weight.rs`).
#![allow(unsafe_code)]

use crate::away::{Away, Held, Lost};
use crate::books::weight::Weight;
use crate::cell::entry::{ACCESS_MAX, Cell, Payload};
use crate::cell::table::{Cells, Mark, Place};
use crate::effect::Event;
use crate::eviction::{self, Eviction, Sampled};
use crate::hash::Key;
use crate::keyspace::{CROWDED, Keys};
use crate::large::PackedChain;
use crate::pack::dictionaries::Pin;
use crate::pack::form::{self, Damaged};
use crate::packing::PackedStr;
use crate::store::{Counter, Expired, Session, Store};
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, RawMutex};
use crate::types::Type;
use crate::types::forms::Value;
use crate::types::stream::{Shape, Stream, StreamError, StreamId};
use crate::types::string::{CHANGED, INLINE_MAX, INT, Int, NewStr, SET, Str, canonical_int};
use parking_lot::lock_api::{RawMutex as _, RawMutexTimed as _};
use snug_codec::Segments;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What becomes of a key's expiry when its value is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetExpiry {
    /// The key no longer expires.
    Clear,
    /// It stays as it is.
    Keep,
    /// The key expires at this Unix time in milliseconds.
    At(u64),
}

/// A live key's place in a locked slot. Good until a key is added to the slot
/// or removed from it.
#[derive(Clone, Copy, Debug)]
pub struct Found(Place);

/// A value taken out of its slot, or copied, on its way to another key.
#[derive(Debug)]
pub struct Detached {
    cell: Cell,
    /// Keeps the dictionary of a packed value meanwhile.
    _pin: Option<Pin>,
    /// The same of a value on disk.
    away: Option<Held>,
}

impl Detached {
    /// The key that it had.
    pub fn key(&self) -> &[u8] {
        self.cell.key()
    }

    /// The value.
    pub(crate) fn value(&self) -> Value<'_> {
        self.cell.value()
    }

    /// The type of the value.
    pub fn type_of(&self) -> Type {
        self.cell.type_of()
    }

    /// The expiry it carries, in Unix milliseconds.
    pub fn expiry(&self) -> Option<u64> {
        self.cell.expiry()
    }

    /// Bytes allocated for it, to decide where it is freed.
    pub fn allocated(&self) -> usize {
        self.cell.allocated()
    }

    /// An entry that its slot has let go of, which is no longer counted.
    pub(crate) fn of_flushed(cell: Cell, store: &Store) -> Self {
        let (pin, away) = (pin(&cell, store), Held::of(&cell, store));
        Weight::of(&cell).count_gone(store);
        Self { cell, _pin: pin, away }
    }

    /// A new value, in no slot yet.
    pub(crate) fn new(key: &Key<'_>, expiry: Option<u64>, access: u8, value: Payload<'_>) -> Self {
        let mut cell = Cell::new(key.tag(), key.bytes, expiry, value);
        cell.set_access(access);
        Self { cell, _pin: None, away: None }
    }

    /// The value in memory, if this one is on disk. The thread may block.
    pub(crate) fn brought(&self) -> Result<Option<Self>, Lost> {
        let Some(away) = &self.away else { return Ok(None) };
        let bytes = away.read(self.key())?;
        let payload = Payload::Inline(away.home(), &bytes);
        let mut cell = Cell::new(self.cell.tag(), self.key(), self.expiry(), payload);
        cell.set_access(self.access());
        Ok(Some(Self { cell, _pin: None, away: None }))
    }

    /// How lately it was used, 0 to 3.
    pub(crate) fn access(&self) -> u8 {
        self.cell.access()
    }

    /// The same, and it keeps the dictionary that it needs until it is in a slot.
    pub(crate) fn pinned(self, store: &Store) -> Self {
        let pin = pin(&self.cell, store);
        Self { _pin: pin, ..self }
    }

    /// Whether parts of the value expire by themselves: fields of a hash.
    pub fn parts_expire(&self) -> bool {
        let value = self.cell.value();
        self.cell.bits().is_boxed() && (self.type_of().row().due)(value) != u64::MAX
    }

    /// What freeing it takes, as Redis reckons it, for the same.
    pub fn effort(&self) -> usize {
        self.cell.value().effort()
    }
}

/// One cache line.
#[repr(align(64))]
pub(crate) struct Slot {
    lock: RawMutex,
    notes: AtomicU8,
    keys: AtomicU32,
    /// When a key here was accessed last, in Unix milliseconds by [`ACCESS_MS`].
    accessed: AtomicU32,
    next_expiry: AtomicU64,
    cells: UnsafeCell<Cells>,
}

#[cfg(not(feature = "shuttle"))]
const _: () = assert!(size_of::<Slot>() == 64);

/// The unit of a slot's time of access: about a second, reached by a shift.
const ACCESS_MS: u64 = 1024;

/// Why somebody wants to hear of changes in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// A key is watched.
    Watch = 1,
    /// A key is waited for.
    Wait = 8,
}

/// Somebody wants to hear of changes in this slot.
const OBSERVED: u8 = Interest::Watch as u8 | Interest::Wait as u8;
/// The slot has values that await packing.
const UNPACKED: u8 = 2;
/// A guard that did not lock is out: the slot's lock, or the gate, is held by
/// a scope above it.
const BORROWED: u8 = 4;

// SAFETY: `cells` is reached only through a `SlotGuard`, of which at most one
// exists: it holds the lock, or was made under a scope that does.
unsafe impl Sync for Slot {}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            lock: RawMutex::INIT,
            notes: AtomicU8::new(0),
            keys: AtomicU32::new(0),
            accessed: AtomicU32::new(0),
            next_expiry: AtomicU64::new(u64::MAX),
            cells: UnsafeCell::new(Cells::default()),
        }
    }
}

impl Slot {
    /// A lower bound on the next expiry in this slot; `u64::MAX` for never.
    #[inline]
    pub(crate) fn next_expiry(&self) -> u64 {
        self.next_expiry.load(Relaxed)
    }

    /// Whether something here awaits packing. A hint.
    #[inline]
    pub(crate) fn unpacked(&self) -> bool {
        self.notes.load(Relaxed) & UNPACKED != 0
    }

    #[inline]
    pub(crate) fn lock(&self) {
        self.lock.lock();
    }

    /// Whether nobody else had it: it is locked then.
    pub(crate) fn try_lock(&self) -> bool {
        self.lock.try_lock()
    }

    /// Whether it was to be had within that time: it is locked then.
    pub(crate) fn try_lock_for(&self, patience: Duration) -> bool {
        self.lock.try_lock_for(patience)
    }

    /// Reads the cells, unless somebody else has the slot just now.
    #[inline]
    pub(crate) fn try_read(&self, read: impl FnOnce(&Cells)) {
        if self.lock.try_lock() {
            // SAFETY: locked, so no guard of this slot exists.
            read(unsafe { &*self.cells.get() });
            // SAFETY: locked above.
            unsafe { self.lock.unlock() }
        }
    }

    /// # Safety
    /// The calling thread holds the lock.
    pub(crate) unsafe fn unlock(&self) {
        // SAFETY: by the caller's contract.
        unsafe { self.lock.unlock() }
    }

    /// Keys in the slot, as last known.
    #[inline]
    pub(crate) fn keys(&self) -> usize {
        self.keys.load(Relaxed) as usize
    }

    /// Whether it has no key, and nobody wants to hear of it.
    pub(crate) fn is_idle(&self) -> bool {
        self.keys() == 0 && self.notes.load(Relaxed) & OBSERVED == 0
    }

    /// Takes over what is noted about a slot whose keys it will hold, or some of them.
    pub(crate) fn take_notes(&mut self, of: &Self) {
        *self.notes.get_mut() |= of.notes.load(Relaxed) & (OBSERVED | UNPACKED);
    }

    /// Adds a cell from a slot that this one takes the place of: nothing is counted
    /// anew. `branch_of` gives any key's branch.
    pub(crate) fn put(&mut self, branch: u32, cell: Cell, branch_of: impl Fn(&[u8]) -> u32) {
        let next = self.next_expiry.get_mut();
        *next = cell.due().min(*next);
        let cells = self.cells.get_mut();
        cells.put(branch, cell, branch_of);
        *self.keys.get_mut() = cells.len() as u32;
    }

    /// The cells of a slot that nobody else can reach.
    pub(crate) fn into_cells(self) -> Cells {
        self.cells.into_inner()
    }
}

/// A locked slot. Everything in it is read and changed through this.
///
/// No guard may be held across an await or a system call.
#[derive(Debug)]
pub struct SlotGuard<'a> {
    slot: &'a Slot,
    session: &'a Session,
    /// The database's number as clients know it.
    db: usize,
    /// The keyspace behind it, for counting.
    keyspace: usize,
    /// Whether dropping the guard unlocks, or the lock belongs to a scope.
    locked: bool,
    /// Whether a key was added that nobody has asked about yet.
    added: std::cell::Cell<bool>,
}

impl Drop for SlotGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.session.guard_dropped();
        if self.locked {
            self.session.commit();
            // SAFETY: locked in `SlotGuard::lock`.
            unsafe { self.slot.unlock() }
        } else {
            self.note(BORROWED, false);
        }
    }
}

impl<'a> SlotGuard<'a> {
    /// Locks the slot.
    #[inline]
    pub(crate) fn lock(session: &'a Session, slot: &'a Slot, db: usize, keyspace: usize) -> Self {
        if !slot.try_lock() {
            session.wait_for(slot);
        }
        session.guard_made();
        Self { slot, session, db, keyspace, locked: true, added: std::cell::Cell::new(false) }
    }

    /// A guard under a scope that keeps everybody else out of the slot. Panics
    /// if the scope has another guard of it in use.
    pub(crate) fn borrow(session: &'a Session, slot: &'a Slot, db: usize, keyspace: usize) -> Self {
        let notes = slot.notes.load(Relaxed);
        assert!(notes & BORROWED == 0, "two guards of one slot in use at once");
        slot.notes.store(notes | BORROWED, Relaxed);
        session.guard_made();
        Self { slot, session, db, keyspace, locked: false, added: std::cell::Cell::new(false) }
    }

    #[inline]
    fn cells(&self) -> &Cells {
        // SAFETY: this guard is the only one of its slot.
        unsafe { &*self.slot.cells.get() }
    }

    #[inline]
    pub(crate) fn cells_mut(&mut self) -> &mut Cells {
        // SAFETY: this guard is the only one of its slot, borrowed mutably.
        unsafe { &mut *self.slot.cells.get() }
    }

    fn note(&self, note: u8, set: bool) {
        let notes = self.slot.notes.load(Relaxed);
        self.slot.notes.store(if set { notes | note } else { notes & !note }, Relaxed);
    }

    #[inline]
    pub(crate) fn session(&self) -> &'a Session {
        self.session
    }

    /// The number of the database, as clients know it.
    pub fn db(&self) -> usize {
        self.db
    }

    /// The time that this guard's work counts as, in Unix milliseconds.
    pub fn now(&self) -> u64 {
        self.session.now()
    }

    /// Whether this guard added a key since it was last asked.
    #[inline]
    pub fn take_added(&self) -> bool {
        self.added.take()
    }

    /// The keyspace behind the database.
    pub(crate) fn keyspace(&self) -> usize {
        self.keyspace
    }

    /// What a key holds is about to be changed: a snapshot that has not come to it keeps
    /// it first. Costs a branch when there is none.
    #[inline]
    pub(crate) fn keep(&self, key: &Key<'_>) {
        if self.session.store().has_snapshot() {
            self.keep_now(key);
        }
    }

    #[cold]
    fn keep_now(&self, key: &Key<'_>) {
        if let Some(moment) = self.session.store().moment() {
            moment.keep(self, key);
        }
    }

    /// Keys under this lock, expired but not yet removed ones included. O(1).
    pub fn keys(&self) -> usize {
        self.cells().len()
    }

    /// Those of them whose slot is that of this number. O(keys) if the lock is that of
    /// a folded page.
    pub(crate) fn keys_of(&self, slot: usize) -> usize {
        let store = self.session.store();
        self.cells().iter().filter(|cell| store.key(cell.key()).slot() == slot).count()
    }

    /// The slots of which this is the lock, the slot of `key` among them.
    pub fn covered(&self, key: &Key<'_>) -> Range<usize> {
        self.session.store().keyspaces[self.keyspace].covered(key.slot())
    }

    /// Whether somebody wants to hear of changes here ([`observe`](Self::observe)).
    #[inline]
    pub fn is_observed(&self) -> bool {
        self.slot.notes.load(Relaxed) & OBSERVED != 0
    }

    /// Whether somebody wants to hear of changes here for this reason.
    pub fn observed(&self, interest: Interest) -> bool {
        self.slot.notes.load(Relaxed) & interest as u8 != 0
    }

    /// Asks for changes in this slot to be told, or no longer.
    pub fn observe(&self, interest: Interest, observed: bool) {
        self.note(interest as u8, observed);
    }

    /// Looks a key up as a client's read does: an expired key is removed and
    /// not found, a found one counts as accessed.
    #[inline]
    pub fn find(&mut self, key: &Key<'_>) -> Option<Found> {
        let found = self.find_untouched(key)?;
        self.note_access();
        self.note_read(found);
        Some(found)
    }

    #[inline]
    fn note_read(&mut self, found: Found) {
        let session = self.session;
        let cell = self.cells_mut().get_mut(found.0);
        if cell.access() != ACCESS_MAX {
            cell.set_access(after_read(session, cell));
        }
    }

    /// Looks a key up whose value is about to be replaced: no read of it, but an
    /// access where accesses are counted. It may be on disk.
    #[inline]
    pub fn find_replaced(&mut self, key: &Key<'_>) -> Option<Found> {
        self.note_access();
        let found = self.find_entry(key)?;
        if self.session.store().log_factor().is_some() {
            self.note_read(found);
        }
        Some(found)
    }

    #[inline]
    fn note_access(&self) {
        self.slot.accessed.store((self.session.now() / ACCESS_MS) as u32, Relaxed);
    }

    /// For how long no key of this slot has been accessed, in milliseconds: a lower
    /// bound for each of them, to about a second. It lies in what the slot's cache line
    /// has left, where a time for each key would cost bytes for each.
    pub fn idle_ms(&self) -> u64 {
        let now = (self.session.now() / ACCESS_MS) as u32;
        u64::from(now.saturating_sub(self.slot.accessed.load(Relaxed))) * ACCESS_MS
    }

    /// The same, whatever is done with the key but read its value: that may be on disk.
    pub fn find_anywhere(&mut self, key: &Key<'_>) -> Option<Found> {
        let found = self.find_entry(key)?;
        self.note_access();
        self.note_read(found);
        Some(found)
    }

    /// Looks a key up without counting it as accessed.
    #[inline]
    pub fn find_untouched(&mut self, key: &Key<'_>) -> Option<Found> {
        let found = self.find_entry(key)?;
        if self.cell(found).bits().is_away() { self.meet_away(found) } else { Some(found) }
    }

    /// The same of a key whose value nobody is about to read: it may be on disk.
    #[inline]
    pub fn find_entry(&mut self, key: &Key<'_>) -> Option<Found> {
        let place = self.cells().find(key)?;
        let cell = self.cells().get(place);
        if cell.expires() && cell.expiry().is_some_and(|expiry| expiry <= self.session.now()) {
            return self.find_expired(place);
        }
        Some(Found(place))
    }

    /// Whether there is a key whose time has come, which lookups do not find and do not
    /// remove either: writes are paused.
    pub fn hides(&self, key: &Key<'_>) -> bool {
        let now = self.session.now();
        let is_over = |place| self.cells().get(place).expiry().is_some_and(|expiry| expiry <= now);
        self.session.expired() == Expired::Hidden && self.cells().find(key).is_some_and(is_over)
    }

    /// What a lookup finds of a key whose time has come.
    #[cold]
    fn find_expired(&mut self, place: Place) -> Option<Found> {
        match self.session.expired() {
            Expired::Removed => {
                self.expire(place);
                None
            }
            Expired::Hidden => None,
            Expired::Seen => Some(Found(place)),
        }
    }

    pub(crate) fn cell(&self, found: Found) -> &Cell {
        self.cells().get(found.0)
    }

    pub(crate) fn cell_mut(&mut self, found: Found) -> &mut Cell {
        self.cells_mut().get_mut(found.0)
    }

    /// The type of the key's value.
    #[inline]
    pub fn type_of(&self, found: Found) -> Type {
        self.cell(found).type_of()
    }

    /// The key's expiry, in Unix milliseconds.
    #[inline]
    pub fn expiry(&self, found: Found) -> Option<u64> {
        self.cell(found).expiry()
    }

    /// The string, or `None` if the value is of another type.
    #[inline]
    pub fn string(&self, found: Found) -> Option<Str<'_>> {
        Str::of(self.cell(found).value(), self.session)
    }

    pub(crate) fn access(&self, found: Found) -> u8 {
        self.cell(found).access()
    }

    /// Puts a large string's bytes in the place of their packed form.
    pub(crate) fn put_large(&mut self, found: Found, raw: Segments) {
        self.change(found, |cell| {
            cell.replace(cell.expiry(), Payload::boxed(raw));
            cell.set_access(cell.access().max(WRITTEN));
        });
    }

    fn packed<'c>(&'c self, cell: &'c Cell) -> PackedStr<'c> {
        PackedStr { form: cell.bytes(), session: self.session }
    }

    /// Unpacks a string in place, and takes it for just used; whether it was
    /// packed. O(value).
    pub fn unpack(&mut self, found: Found) -> Result<bool, Damaged> {
        let cell = self.cell(found);
        if let Some(chain) = cell.get::<PackedChain>() {
            let raw = self.session.unpack_large(chain)?;
            self.put_large(found, raw);
            return Ok(true);
        }
        if !cell.bits().is_packed_inline() {
            return Ok(false);
        }
        let mut raw = Vec::new();
        self.packed(cell).append_to(&mut raw)?;
        self.change(found, |cell| put_raw(cell, &raw));
        Ok(true)
    }

    /// Unpacks a short string in place that is about to be read whole, if it has been
    /// read often lately and memory is not short. O(value).
    #[inline]
    pub fn unpack_hot(&mut self, found: Found) {
        let cell = self.cell(found);
        let is_hot = cell.bits().is_packed_inline() && cell.access() == ACCESS_MAX;
        if is_hot && !self.session.store().keeps_packed() {
            // If it is damaged, who reads it is told.
            let _ = self.unpack(found);
        }
    }

    /// Sets a key to a string, whatever it held. `found` is what a lookup of
    /// the same key gave. O(value); a large one is shared.
    #[inline]
    pub(crate) fn set_string(
        &mut self,
        key: &Key<'_>,
        found: Option<Found>,
        value: &NewStr<'_>,
        expiry: SetExpiry,
    ) -> Found {
        let int;
        let payload = match *value {
            NewStr::Int(value) => {
                int = Int::new(value);
                Payload::Inline(INT, int.bytes())
            }
            NewStr::Chain(ref chain) if chain.len() > INLINE_MAX => Payload::boxed(chain.clone()),
            NewStr::Chain(ref chain) => {
                let bytes = chain.to_vec();
                return self.set_string(key, found, &NewStr::Bytes(&bytes), expiry);
            }
            NewStr::Bytes(bytes) | NewStr::Text(bytes) | NewStr::Changed(bytes)
                if bytes.len() > INLINE_MAX =>
            {
                Payload::boxed(Segments::from(bytes))
            }
            NewStr::Text(bytes) => Payload::Inline(SET, bytes),
            NewStr::Changed(bytes) => Payload::Inline(CHANGED, bytes),
            NewStr::Bytes(bytes) => match canonical_int(bytes) {
                Some(value) => {
                    int = Int::new(value);
                    Payload::Inline(INT, int.bytes())
                }
                None => Payload::Inline(SET, bytes),
            },
        };
        let Some(found) = found else {
            let expiry = match expiry {
                SetExpiry::At(at) => Some(at),
                SetExpiry::Clear | SetExpiry::Keep => None,
            };
            let mut cell = Cell::new(key.tag(), key.bytes, expiry, payload);
            cell.set_access(after_write(self.session, 0));
            return self.insert(key, cell);
        };
        let expiry = match expiry {
            SetExpiry::At(at) => Some(at),
            SetExpiry::Clear => None,
            SetExpiry::Keep => self.expiry(found),
        };
        let session = self.session;
        self.change(found, |cell| {
            cell.replace(expiry, payload);
            cell.set_access(after_write(session, cell.access()));
        });
        found
    }

    /// The length in bytes of a string value.
    pub fn string_len(&self, found: Found) -> usize {
        self.string(found).map_or(0, |string| string.len())
    }

    /// A string to be changed in place: an empty one if the key does not exist.
    pub(crate) fn found_or_empty(&mut self, key: &Key<'_>, found: Option<Found>) -> Found {
        found.unwrap_or_else(|| self.set_string(key, None, &NewStr::Changed(b""), SetExpiry::Clear))
    }

    /// Writes into a string at `offset`, extending it with zeros where it is
    /// shorter; its new length. Keeps the expiry. O(`bytes`) plus what it
    /// extends. It is not packed.
    pub(crate) fn write_value_at(
        &mut self,
        found: Found,
        offset: usize,
        value: &NewStr<'_>,
    ) -> usize {
        match value {
            NewStr::Bytes(bytes) | NewStr::Text(bytes) | NewStr::Changed(bytes) => {
                self.write_pieces_at(found, offset, bytes.len(), std::iter::once(*bytes))
            }
            NewStr::Int(value) => {
                let digits = value.to_string();
                let pieces = std::iter::once(digits.as_bytes());
                self.write_pieces_at(found, offset, digits.len(), pieces)
            }
            NewStr::Chain(chain) => {
                let pieces = chain.parts().iter().map(|part| &part[..]);
                self.write_pieces_at(found, offset, chain.len(), pieces)
            }
        }
    }

    /// Writes pieces of `total` bytes, one behind the other.
    fn write_pieces_at<'p>(
        &mut self,
        found: Found,
        offset: usize,
        total: usize,
        pieces: impl Iterator<Item = &'p [u8]>,
    ) -> usize {
        debug_assert!(!self.cell(found).bits().is_packed(), "unpacked by whoever is to change it");
        let len = self.string_len(found).max(offset + total);
        let session = self.session;
        self.change(found, |cell| {
            cell.set_access(after_write(session, cell.access()));
            if cell.bits() == INT.bits() {
                let (expiry, digits) = (cell.expiry(), Int::read(cell.bytes()).to_string());
                cell.replace(expiry, Payload::Inline(CHANGED, digits.as_bytes()));
            }
            if len > INLINE_MAX && !cell.bits().is_boxed() {
                let (expiry, chain) = (cell.expiry(), Segments::from(cell.bytes()));
                cell.replace(expiry, Payload::boxed(chain));
            }
            let mut at = offset;
            if let Some(chain) = cell.get_mut::<Segments>() {
                for piece in pieces {
                    chain.write_at(at, piece);
                    at += piece.len();
                }
                return;
            }
            if len > cell.bytes().len() {
                cell.resize_bytes(len);
            }
            for piece in pieces {
                cell.bytes_mut()[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
            }
            cell.set_form(CHANGED);
        });
        len
    }

    /// Sets or removes the key's expiry.
    pub(crate) fn set_expiry(&mut self, found: Found, expiry: Option<u64>) {
        self.change(found, |cell| cell.set_expiry(expiry));
    }

    /// Takes the value out, with its expiry, to be attached to another key.
    pub(crate) fn detach(&mut self, found: Found) -> Detached {
        let cell = self.cells_mut().remove(found.0);
        self.slot.keys.store(self.cells().len() as u32, Relaxed);
        if cell.expires() {
            self.count_keys(Keys::Expiring, -1);
        }
        self.count_keys(Keys::All, -1);
        let store = self.session.store();
        let (pin, away) = (pin(&cell, store), Held::of(&cell, store));
        Weight::of(&cell).count_gone(store);
        Detached { cell, _pin: pin, away }
    }

    /// A copy of the value, with its expiry: to be attached to another key, or to be
    /// saved away from the slot. O(bytes in the entry), or of references to what large
    /// values consist of.
    pub fn duplicate(&self, found: Found) -> Detached {
        self.copy_of(self.cell(found))
    }

    /// A copy of what a key holds, whether its time has come or not, if it exists.
    pub(crate) fn duplicate_key(&self, key: &Key<'_>) -> Option<Detached> {
        let place = self.cells().find(key)?;
        Some(self.copy_of(self.cells().get(place)))
    }

    /// Visits each key, with what makes a copy of what it holds.
    pub(crate) fn duplicate_each(&self, visit: &mut dyn FnMut(&Key<'_>, &dyn Fn() -> Detached)) {
        let store = self.session.store();
        for cell in self.cells().iter() {
            visit(&store.key(cell.key()), &|| self.copy_of(cell));
        }
    }

    fn copy_of(&self, cell: &Cell) -> Detached {
        let store = self.session.store();
        let mut copy = Cell::new(cell.tag(), cell.key(), cell.expiry(), cell.payload());
        copy.set_access(cell.access());
        Detached { cell: copy, _pin: pin(cell, store), away: Held::of(cell, store) }
    }

    /// Gives a detached value to a key that does not exist here.
    pub(crate) fn attach(&mut self, key: &Key<'_>, value: Detached) -> Found {
        let Detached { mut cell, _pin, away: _away } = value;
        if (cell.tag(), cell.key()) != (key.tag(), key.bytes) {
            cell.rename(key.tag(), key.bytes);
        }
        self.insert(key, cell)
    }

    /// The stream, or `None` if the value is of another type.
    pub fn stream(&self, found: Found) -> Option<&Stream> {
        self.cell(found).get()
    }

    /// The stream, to note something in it that is no effect and takes no memory.
    pub(crate) fn stream_to_note(&mut self, found: Found) -> Option<&mut Stream> {
        self.cell_mut(found).get_mut()
    }

    /// Changes a stream, and counts what it takes afterwards. `None` if the
    /// value is of another type.
    pub(crate) fn with_stream<R>(
        &mut self,
        found: Found,
        change: impl FnOnce(&mut Stream) -> R,
    ) -> Option<R> {
        self.stream(found)?;
        self.change(found, |cell| cell.get_mut().map(change))
    }

    /// Seals the tail of a stream, so that it can be packed: [`Stream::seal_tail`].
    pub fn seal_tail(&mut self, found: Found) -> bool {
        self.with_stream(found, Stream::seal_tail) == Some(true)
    }

    /// Appends an entry to a stream: [`Stream::append`], counted by what it says
    /// it added. The value is a stream.
    #[inline]
    pub(crate) fn append_entry<'f>(
        &mut self,
        found: Found,
        id: StreamId,
        fields: impl ExactSizeIterator<Item = (&'f [u8], &'f [u8])> + Clone,
        shape: &Shape,
    ) -> Result<(), StreamError> {
        let stream = self.cell_mut(found).get_mut::<Stream>().expect("a stream is appended to");
        let growth = stream.append(id, fields, shape)?;
        Weight::grow_stream(growth, self.session.store());
        if growth.pending > 0 {
            self.note_unpacked();
        }
        Ok(())
    }

    /// Creates an empty stream under a key that does not exist.
    pub(crate) fn insert_stream(&mut self, key: &Key<'_>) -> Found {
        let mut cell = Cell::new(key.tag(), key.bytes, None, Payload::boxed(Stream::new()));
        cell.set_access(after_write(self.session, 0));
        self.insert(key, cell)
    }

    /// The same of their cells.
    pub(crate) fn walk_cells(
        &self,
        mark: Mark,
        count: usize,
        visit: &mut dyn FnMut(&Cell),
    ) -> Option<Mark> {
        self.cells().walk(mark, count, visit)
    }

    /// Where a key is, whether its time has come or not.
    pub(crate) fn place_of(&self, key: &Key<'_>) -> Option<Found> {
        self.cells().find(key).map(Found)
    }

    /// Visits keys from `mark` on, `count` of them or a few more, each with its
    /// type and whether it is live; where to go on, or `None` at the slot's end.
    pub(crate) fn walk(
        &self,
        mark: Mark,
        count: usize,
        visit: &mut dyn FnMut(&[u8], Type, bool),
    ) -> Option<Mark> {
        let now = self.session.now();
        self.cells().walk(mark, count, &mut |cell| {
            let live = cell.expiry().is_none_or(|expiry| expiry > now);
            visit(cell.key(), cell.type_of(), live);
        })
    }

    /// Looks at keys that may be evicted, at most `count`, from a random one on, and
    /// ages them; the least wanted, or `None` if there is none that may go. Adds to
    /// `looks` for every cell that it looks at.
    pub(crate) fn sample(
        &mut self,
        how: &Eviction,
        count: usize,
        looks: &mut usize,
    ) -> Option<Sampled> {
        let session = self.session;
        let first = session.below(self.keys() as u64) as usize;
        let (mut best, mut seen, mut looked) = (None, 0, 0);
        let all = self.cells_mut().round_mut(first, &mut |place, cell| {
            looked += 1;
            if how.may_evict(cell) {
                seen += 1;
                let worth = how.worth(cell);
                if best.is_none_or(|(_, least)| worth < least) {
                    best = Some((place, worth));
                }
                how.age(cell, session);
            }
            let enough = seen == count || best.is_some_and(|(_, least)| least == 0);
            !enough && looked < eviction::LOOKS_AT_ONCE
        });
        *looks += looked;
        if all && best.is_none() && how.volatile {
            // What expired here has been persisted or removed since.
            let next = self.cells().iter().map(Cell::due).min();
            self.slot.next_expiry.store(next.unwrap_or(u64::MAX), Relaxed);
        }
        best.map(|(place, worth)| Sampled { found: Found(place), worth, seen })
    }

    /// Visits the first `count` live keys of the slot of this number.
    pub fn first_keys(&self, slot: usize, count: usize, mut visit: impl FnMut(&[u8])) {
        let store = self.session.store();
        let live = self.cells().iter().filter(|cell| store.key(cell.key()).slot() == slot);
        let live =
            live.filter(|cell| cell.expiry().is_none_or(|expiry| expiry > self.session.now()));
        live.take(count).for_each(|cell| visit(cell.key()));
    }

    /// The `n`-th key of the slot, if it is not expired.
    pub(crate) fn nth_key(&self, n: usize) -> Option<&[u8]> {
        let cell = self.cells().get(self.cells().nth(n)?);
        cell.expiry().is_none_or(|expiry| expiry > self.session.now()).then(|| cell.key())
    }

    /// Bytes allocated for the slot's tables.
    pub(crate) fn table_bytes(&self) -> usize {
        self.cells().allocated()
    }

    /// Keys that expire, and the sum of their remaining milliseconds.
    pub(crate) fn ttl_sum(&self) -> (u64, u64) {
        let expiries = self.cells().iter().filter_map(Cell::expiry);
        expiries.fold((0, 0), |(n, sum), at| (n + 1, sum + at.saturating_sub(self.session.now())))
    }

    /// Removes every key whose time has come, and of others what of them has expired, as
    /// many as `limit` of these; how many. When none is left, leaves the exact time of the next.
    pub(crate) fn expire_due(&mut self, limit: usize) -> usize {
        let now = self.session.now();
        let mut removed = 0;
        // Backwards, so that a removal leaves the places still to come alone.
        for n in (0..self.keys()).rev() {
            let cells = &self.cells();
            let Some(place) = cells.nth(n) else { break };
            let cell = cells.get(place);
            if cell.due() > now {
                continue;
            }
            if cell.expiry().is_some_and(|at| at <= now) {
                self.expire(place);
                removed += 1;
            } else {
                let name = cell.key().to_vec();
                let remove_due = cell.type_of().row().remove_due;
                let key = self.session.store().key(&name);
                removed += remove_due(self, &key, Found(place), limit - removed);
            }
            if removed >= limit {
                return removed;
            }
        }
        let next = self.cells().iter().map(Cell::due).min();
        self.slot.next_expiry.store(next.unwrap_or(u64::MAX), Relaxed);
        removed
    }

    /// The first value that has pieces to pack, if there is one.
    pub(crate) fn unpacked(&mut self) -> Option<Found> {
        let cells = &self.cells();
        let mut values = (0..cells.len()).filter_map(|n| cells.nth(n)).filter(|&place| {
            let cell = cells.get(place);
            cell.bits().is_boxed() && cell.value().measure().pending > 0
        });
        let found = values.next().map(Found);
        if found.is_none() {
            self.note(UNPACKED, false);
        }
        found
    }

    /// The key at a place.
    pub fn key(&self, found: Found) -> &[u8] {
        self.cell(found).key()
    }

    fn expire(&mut self, place: Place) {
        let value = self.delete(Found(place), Event::EXPIRED);
        self.session.store().observer().free_expired(value);
        self.count(Counter::Expired, 1);
    }

    pub(crate) fn insert(&mut self, key: &Key<'_>, cell: Cell) -> Found {
        if self.session.expired() == Expired::Hidden
            && let Some(hidden) = self.cells().find(key)
        {
            self.expire(hidden);
        }
        self.note_access();
        let weight = Weight::of(&cell);
        weight.count(self.session.store());
        self.note_pending(weight);
        self.count_keys(Keys::All, 1);
        if cell.expires() {
            self.count_keys(Keys::Expiring, 1);
        }
        self.expires_at(cell.due());
        let store = self.session.store();
        let place = self.cells_mut().insert(key, cell, |key| store.key(key).branch());
        let keys = self.cells().len();
        self.slot.keys.store(keys as u32, Relaxed);
        if keys.is_multiple_of(CROWDED) {
            self.session.crowded(self.keyspace, key.slot());
        }
        self.added.set(true);
        Found(place)
    }

    /// Changes an entry in place and counts the difference.
    #[inline]
    pub(crate) fn change<R>(&mut self, found: Found, change: impl FnOnce(&mut Cell) -> R) -> R {
        let cell = self.cell_mut(found);
        let (before, expired) = (Weight::of(cell), cell.expires());
        let result = change(cell);
        let (after, expiry) = (Weight::of(cell), cell.expiry());
        before.becomes(after, self.session.store());
        self.note_pending(after);
        if expired != expiry.is_some() {
            let delta = if expired { -1 } else { 1 };
            self.count_keys(Keys::Expiring, delta);
        }
        if let Some(expiry) = expiry {
            self.expires_at(expiry);
        }
        result
    }

    #[inline]
    pub(crate) fn expires_at(&self, expiry: u64) {
        if expiry < self.slot.next_expiry() {
            self.slot.next_expiry.store(expiry, Relaxed);
        }
    }

    /// Notes for the sweeper if some of an entry awaits packing.
    #[inline]
    fn note_pending(&self, weight: Weight) {
        if weight.pending() {
            self.note_unpacked();
        }
    }

    /// Notes for the sweeper that something here awaits packing.
    pub(crate) fn note_unpacked(&self) {
        self.note(UNPACKED, true);
    }

    #[inline]
    fn count_keys(&self, counter: Keys, delta: i64) {
        self.session.store().keyspaces.count(self.keyspace, counter, delta);
    }

    #[inline]
    fn count(&self, counter: Counter, delta: i64) {
        self.session.store().count(counter, delta);
    }
}

/// Keeps the dictionary of a packed value that is about to leave its slot.
fn pin(cell: &Cell, store: &Store) -> Option<Pin> {
    let id = match cell.bits() {
        bits if bits.is_away() => Away::of(cell)?.dictionary,
        bits if bits.is_packed_inline() => form::dictionary_id(cell.bytes()),
        _ => return None,
    };
    store.families().dictionaries.pin(id)
}

/// What a write sets the access bits to, unless they are more.
pub const WRITTEN: u8 = 2;

/// What a new key's access bits begin with where they count reads.
pub const NEW_READS: u8 = 1;

/// The access bits after a read of a value that has not all of them.
#[inline]
fn after_read(session: &Session, cell: &Cell) -> u8 {
    let access = cell.access();
    match session.store().log_factor() {
        // One read does not make a packed value hot.
        None if cell.bits().is_packed() => access + 1,
        None => ACCESS_MAX,
        Some(factor) => {
            let counted = u64::from(access.saturating_sub(NEW_READS));
            access + u8::from(session.below(counted * factor + 1) == 0)
        }
    }
}

/// The access bits after a write.
#[inline]
pub(crate) fn after_write(session: &Session, access: u8) -> u8 {
    match session.store().log_factor() {
        None => access.max(WRITTEN),
        Some(_) => access.max(NEW_READS),
    }
}

/// Puts raw bytes in the place of their packed form.
pub(crate) fn put_raw(cell: &mut Cell, raw: &[u8]) {
    let expiry = cell.expiry();
    cell.replace(expiry, Payload::Inline(cell.form().unpacked(), raw));
    cell.set_access(cell.access().max(WRITTEN));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cooling::{Recheck, Rules};
    use crate::jobs::Names;
    use crate::types::string::SET_PACKED;
    use crate::{MinSaving, PieceParams, StoreConfig, Unobserved};
    use proptest::prelude::*;

    #[test]
    fn a_slot_knows_since_when_none_of_its_keys_was_accessed() {
        const START: u64 = 1_700_000_000_000;
        let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
        let mut session = store.session();
        let idle_at = |session: &mut crate::Session, ms: u64, access: bool| {
            let batch = session.enter(START + ms);
            let key = batch.key(b"k");
            let mut slot = batch.lock(0, &key);
            let found = slot.find_untouched(&key);
            match found {
                None => _ = slot.set_string(&key, None, &NewStr::Bytes(b"v"), SetExpiry::Clear),
                Some(_) if access => _ = slot.find(&key),
                Some(_) => {}
            }
            slot.idle_ms()
        };
        assert_eq!(idle_at(&mut session, 0, false), 0);
        let idle = idle_at(&mut session, 60_000, false);
        assert!((59_000..=61_000).contains(&idle), "{idle}");
        assert_eq!(idle_at(&mut session, 60_000, true), 0);
        let idle = idle_at(&mut session, 3_660_000, false);
        assert!((3_599_000..=3_601_000).contains(&idle), "{idle}");
        // A clock that is put back is no idle time.
        assert_eq!(idle_at(&mut session, 10, false), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 500 }))]

        /// Whatever stands where a packed form should, each way to it is an
        /// answer or an error, and the books are right in the end.
        #[test]
        #[cfg_attr(miri, ignore = "calls into C")]
        fn a_damaged_form_is_an_error(
            mut form in prop::collection::vec(any::<u8>(), 0..60),
            codec in 0u8..7,
            long in any::<bool>(),
        ) {
            if let Some(first) = form.first_mut() {
                *first = *first & 0x38 | codec;
            }
            if long && form.len() > 12 {
                // A plain header that claims more than can be.
                form[0] = codec;
                form[1..10].fill(0xff);
                form[10] = 1;
            }
            let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
            let mut session = store.session();
            let batch = session.enter(1);
            let key = batch.key(b"key");
            let mut slot = batch.lock(0, &key);
            let cell = Cell::new(key.tag(), key.bytes, None, Payload::Inline(SET_PACKED, &form));
            let found = slot.insert(&key, cell);
            let string = slot.string(found).unwrap();
            let (len, bytes) = (string.len(), string.to_bytes().map(std::borrow::Cow::into_owned));
            let mut room = b"room".to_vec();
            prop_assert_eq!(string.unpacked(&mut room).is_ok(), bytes.is_ok());
            prop_assert!(len <= INLINE_MAX);
            let _ = (slot.string(found).unwrap().as_int(), slot.anatomy(found));
            match &bytes {
                Ok(bytes) => prop_assert_eq!(bytes.len(), len),
                Err(_) => {
                    prop_assert!(slot.unpack(found).is_err());
                    let params = PieceParams { min_size: 1, min_saving: MinSaving(0), level: 1, ..PieceParams::DEFAULT };
                    let recheck = Recheck::AllRaw(0);
                    let rules = Rules {
                        params: &params,
                        at_once: true,
                        keep_packed: false,
                        leave_mixed: false,
                        stays_until: 0,
                        recheck,
                        change: None,
                        left: &std::cell::Cell::default(),
                        meets: 0,
                    };
                    for _ in 0..4 {
                        let _ = slot.find(&key);
                    }
                    slot.cool(
                        Mark::default(),
                        rules,
                        &mut Vec::new(),
                        &mut Names::default(),
                    );
                    prop_assert!(matches!(slot.string(found), Some(Str::Packed(_))));
                }
            }
            let copy = slot.duplicate(found);
            drop(slot.detach(found));
            drop((slot, copy));
            let memory = store.type_memory(Type::String);
            prop_assert_eq!((memory.allocated, memory.raw, memory.packed), (0, 0, 0));
        }
    }
}
