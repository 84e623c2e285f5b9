//! A keyspace: the 16,384 slots behind one database, made as they are first
//! used and let go of whole when the database is flushed.
//!
//! ```text
//!  Keyspace, 1 KiB and the number of keys of the fullest slot drawn
//!  | page 0 | page 1 | ... | page 127 |      null until one of its slots is used
//!      |
//!      v
//!  | slot 0 | slot 1 | ... | slot 127 |      8 KiB
//! ```
//!
//! So a database of one key costs 8 KiB, and of many keys 1 MiB. The way to a
//! slot is one load more, from a line that is always in the cache.
#![allow(unsafe_code)]

use crate::hash::SLOTS;
use crate::slot::Slot;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

pub(crate) const PAGE_SLOTS: usize = 128;
const PAGES: usize = SLOTS / PAGE_SLOTS;

/// Slots drawn in vain before they are counted instead.
const DRAWS_MAX: usize = 256;

/// Some of the slots of a keyspace, next to each other.
pub(crate) type Page = [Slot; PAGE_SLOTS];

#[derive(Debug)]
pub(crate) struct Keyspace {
    pages: [AtomicPtr<Page>; PAGES],
    /// What the heaviest slot weighed that was drawn: see [`draw`](Self::draw).
    heaviest: AtomicUsize,
}

impl Keyspace {
    pub(crate) fn new() -> Self {
        Self { pages: [const { AtomicPtr::new(null_mut()) }; PAGES], heaviest: AtomicUsize::new(1) }
    }

    #[inline]
    fn page(&self, number: usize) -> Option<&Page> {
        // SAFETY: the pointer came from a box and is freed only by `take`,
        // whose caller keeps everybody else out, and by `drop`.
        unsafe { self.pages[number].load(Ordering::Acquire).as_ref() }
    }

    /// A slot, if it or one of its neighbours has been used.
    #[inline]
    pub(crate) fn get(&self, slot: usize) -> Option<&Slot> {
        self.page(slot / PAGE_SLOTS).map(|page| &page[slot % PAGE_SLOTS])
    }

    /// A slot, made if need be.
    #[inline]
    pub(crate) fn slot(&self, slot: usize) -> &Slot {
        match self.get(slot) {
            Some(slot) => slot,
            None => &self.make(slot / PAGE_SLOTS)[slot % PAGE_SLOTS],
        }
    }

    /// Every `of`-th page that has been made, beginning with number `first`,
    /// each with the number of its first slot.
    fn pages(&self, first: usize, of: usize) -> impl Iterator<Item = (usize, &Page)> {
        let numbers = (first..PAGES).step_by(of);
        numbers.filter_map(|n| self.page(n).map(|page| (n * PAGE_SLOTS, page)))
    }

    /// The slots from `first` on, with their numbers, that have been made: all
    /// that may have keys. Ascending.
    pub(crate) fn made(&self, first: usize) -> impl Iterator<Item = (usize, &Slot)> {
        let slots = self.pages(first / PAGE_SLOTS, 1).flat_map(|(n, page)| (n..).zip(page));
        slots.skip_while(move |&(slot, _)| slot < first)
    }

    /// The numbers of the slots that are wanted, in every `of`-th page from
    /// `first` on: one worker's share. A loop over each page, for those who look
    /// at all slots many times a second.
    pub(crate) fn share(
        &self,
        first: usize,
        of: usize,
        wanted: impl Fn(&Slot) -> bool + Copy,
    ) -> impl Iterator<Item = usize> {
        self.pages(first, of).flat_map(move |(n, page)| {
            (n..).zip(page).filter(move |(_, slot)| wanted(slot)).map(|(number, _)| number)
        })
    }

    /// The number of a random slot, each as likely as `weight` says it is heavy;
    /// `None` if none weighs anything. `below` gives random numbers below its
    /// argument.
    ///
    /// Any slot is drawn, and kept with a chance of its weight by that of the
    /// heaviest met so far, so the cost is that of a few draws whatever the number
    /// of keys: 1.6 where slots have some sixty, more where many have none. After
    /// [`DRAWS_MAX`] in vain all are weighed, and the heaviest is thought to have
    /// become lighter.
    pub(crate) fn draw(
        &self,
        below: &dyn Fn(u64) -> u64,
        weight: impl Fn(&Slot) -> usize + Copy,
    ) -> Option<usize> {
        let heaviest = self.heaviest.load(Ordering::Relaxed);
        for _ in 0..DRAWS_MAX {
            let number = below(SLOTS as u64) as usize;
            let weight = self.get(number).map_or(0, weight);
            if weight > heaviest {
                self.heaviest.store(weight, Ordering::Relaxed);
            }
            if weight > 0 && below(weight.max(heaviest) as u64) < weight as u64 {
                return Some(number);
            }
        }
        self.heaviest.store((heaviest / 2).max(1), Ordering::Relaxed);
        self.weigh(below, weight)
    }

    /// The same, by weighing all slots. O(slots).
    fn weigh(&self, below: &dyn Fn(u64) -> u64, weight: impl Fn(&Slot) -> usize) -> Option<usize> {
        let weights = || self.made(0).map(|(number, slot)| (number, weight(slot) as u64));
        share_of(weights(), below(weights().map(|(_, weight)| weight).sum()))
    }

    /// Bytes allocated for slots.
    pub(crate) fn allocated(&self) -> usize {
        self.pages(0, 1).count() * crate::memory::usable(size_of::<Page>())
    }

    #[cold]
    fn make(&self, number: usize) -> &Page {
        let page: Box<Page> = Box::new(std::array::from_fn(|_| Slot::default()));
        let new = Box::into_raw(page);
        let order = Ordering::AcqRel;
        match self.pages[number].compare_exchange(null_mut(), new, order, Ordering::Acquire) {
            // SAFETY: just stored; see `page`.
            Ok(_) => unsafe { &*new },
            Err(theirs) => {
                // SAFETY: `new` was never shared; theirs is as in `page`.
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
    pub(crate) unsafe fn take(&self) -> Vec<Box<Page>> {
        let pages = self.pages.iter().map(|page| page.swap(null_mut(), Ordering::AcqRel));
        // SAFETY: each from a box, and nobody else can hold it, by the contract.
        pages.filter(|page| !page.is_null()).map(|page| unsafe { Box::from_raw(page) }).collect()
    }
}

/// The one in whose share `at` lies, when each has as much of a line as it weighs;
/// `None` if that is behind the last.
pub(crate) fn share_of<T>(weights: impl IntoIterator<Item = (T, u64)>, mut at: u64) -> Option<T> {
    let here = weights.into_iter().find(|(_, weight)| {
        let here = at < *weight;
        at = at.saturating_sub(*weight);
        here
    });
    here.map(|(one, _)| one)
}

impl Drop for Keyspace {
    fn drop(&mut self) {
        // SAFETY: `self` is borrowed mutably, so nothing refers into it.
        drop(unsafe { self.take() });
    }
}
