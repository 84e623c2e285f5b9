//! A keyspace: the 16,384 slots behind one database, made when first used and
//! let go of whole when the database is flushed.
#![allow(unsafe_code)]

use crate::hash::SLOTS;
use crate::slot::Slot;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The slots of one keyspace: nothing until used, then 1 MiB.
pub(crate) type Slots = [Slot; SLOTS];

#[derive(Debug)]
pub(crate) struct Keyspace(AtomicPtr<Slots>);

impl Keyspace {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// The slots, if this keyspace has been used.
    #[inline]
    pub(crate) fn peek(&self) -> Option<&Slots> {
        // SAFETY: the pointer came from a box and is freed only by `take`,
        // whose caller keeps everybody else out, and by `drop`.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// The slots, made if need be.
    #[inline]
    pub(crate) fn slots(&self) -> &Slots {
        match self.peek() {
            Some(slots) => slots,
            None => self.make(),
        }
    }

    #[cold]
    fn make(&self) -> &Slots {
        let slots: Box<[Slot]> = (0..SLOTS).map(|_| Slot::default()).collect();
        let slots: Box<Slots> = slots.try_into().expect("as many slots as there are");
        let new = Box::into_raw(slots);
        let order = Ordering::AcqRel;
        match self.0.compare_exchange(null_mut(), new, order, Ordering::Acquire) {
            // SAFETY: just stored; see `peek`.
            Ok(_) => unsafe { &*new },
            Err(theirs) => {
                // SAFETY: `new` was never shared; theirs is as in `peek`.
                unsafe {
                    drop(Box::from_raw(new));
                    &*theirs
                }
            }
        }
    }

    /// Takes all slots out.
    ///
    /// # Safety
    /// No reference into this keyspace exists: the caller holds every gate and
    /// has no guard out.
    pub(crate) unsafe fn take(&self) -> Option<Box<Slots>> {
        let slots = self.0.swap(null_mut(), Ordering::AcqRel);
        // SAFETY: from a box, and nobody else can hold it, by the contract.
        (!slots.is_null()).then(|| unsafe { Box::from_raw(slots) })
    }
}

impl Drop for Keyspace {
    fn drop(&mut self) {
        // SAFETY: `self` is borrowed mutably, so nothing refers into it.
        drop(unsafe { self.take() });
    }
}
