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

use crate::cell::entry::Cell;
use crate::cell::table::{Cells, Place};
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, RawMutex};
use parking_lot::lock_api::{RawMutex as _, RawMutexTimed as _};
use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

mod access;
mod detached;
mod find;
mod guard;
mod walk;

pub(crate) use access::after_write;
pub use access::{NEW_READS, WRITTEN};
pub use detached::Detached;
pub use guard::SlotGuard;

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
