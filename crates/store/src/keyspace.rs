//! A keyspace: the 16,384 slots behind one database, in pages of 64. A page is
//! made when it is first used. While its slots have few keys together they are
//! *folded*: one lock and one table stand for all of them.
//!
//! ```text
//!  Keyspace, 2 KiB, counters of 4 KiB, and the weight of the heaviest slot drawn
//!  | page 0 | page 1 | ... | page 255 |      null until one of its slots is used
//!      |        |
//!      |        v
//!      |      | slots 64 to 127 |            folded: 64 bytes
//!      v
//!  | slot 0 | slot 1 | ... | slot 63 |       unfolded: 4 KiB
//! ```
//!
//! A page is unfolded when it has [`CROWDED`] keys. Its slots then cost at most 16 bytes
//! a key. It is folded again when no more than [`SPARSE`] keys are left. An empty page
//! that nobody observes is freed. So 500 keys cost 16 KiB of slots; with a cache line for
//! every slot they would cost 1 MiB.
//!
//! A keyspace is itself made when one of its slots is first locked: until then a
//! database takes 18 bytes, and whoever only reads sees a keyspace without pages.
//!
//! While others work, pages may be made and nothing else: folding, unfolding and freeing
//! a page closes the gates (`Batch::exclusive`). So within a batch it is fixed which slot
//! stands for which ([`home`](Keyspace::home)). Slots are locked in ascending order of
//! their homes, and therefore nothing can wait in a circle.
//!
//! The low bits of a page's pointer are a mask: 63 if the page is unfolded, 0 if it is
//! folded. A slot's number, masked with them, is its place in the page. So the way to a
//! slot has no branch but that for null.
#![allow(unsafe_code)]

use crate::hash::{KeyHasher, SLOTS};
use crate::sharded::Sharded;
use crate::slot::Slot;
use crate::sync::{AtomicPtr, AtomicUsize};
use std::ops::{Index, Range};
use std::ptr::{null_mut, slice_from_raw_parts_mut};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

pub(crate) const PAGE_SLOTS: usize = 64;
const PAGES: usize = SLOTS / PAGE_SLOTS;
/// The bits of a slot's number that are its place in its page.
const PLACE: usize = PAGE_SLOTS - 1;
const _: () = assert!(align_of::<Slot>() == PAGE_SLOTS, "an address has no room for the mask");

/// A folded page counts as crowded each time its keys reach a multiple of this number.
pub(crate) const CROWDED: usize = if cfg!(any(miri, feature = "shuttle")) { 8 } else { 256 };
/// An unfolded page is folded when it has no more keys than this.
const SPARSE: usize = CROWDED / 4;

/// So many slots are drawn at random in vain; then slots are counted instead.
const DRAWS_MAX: usize = 256;

/// The slots of a page: one if they are folded.
pub(crate) type Page = Box<[Slot]>;

/// The keyspaces of a store.
#[derive(Debug)]
pub(crate) struct Keyspaces(Box<[OnceLock<Box<Keyspace>>]>);

/// What stands for a keyspace that has not been made. Never has pages.
static UNUSED: Keyspace = Keyspace::new();

impl Keyspaces {
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).map(|_| OnceLock::new()).collect())
    }

    /// How many there are, made or not.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether a slot of this one has ever been used.
    pub(crate) fn is_used(&self, number: usize) -> bool {
        self.0[number].get().is_some()
    }

    /// The slot of that number of a keyspace or the one that stands for it, both made
    /// if need be.
    #[inline]
    pub(crate) fn slot(&self, keyspace: usize, slot: usize) -> &Slot {
        match self[keyspace].get(slot) {
            Some(slot) => slot,
            None => self.make(keyspace).make(slot / PAGE_SLOTS),
        }
    }

    #[cold]
    fn make(&self, keyspace: usize) -> &Keyspace {
        self.0[keyspace].get_or_init(|| Box::new(Keyspace::new()))
    }

    /// Adds to a counter of a keyspace, in which there is or was a key.
    #[inline]
    pub(crate) fn count(&self, keyspace: usize, counter: Keys, delta: i64) {
        let Some(keyspace) = self.0[keyspace].get() else { return };
        keyspace.counters.add(counter as usize, delta);
    }
}

impl Index<usize> for Keyspaces {
    type Output = Keyspace;

    #[inline]
    fn index(&self, number: usize) -> &Keyspace {
        self.0[number].get().map_or(&UNUSED, |keyspace| keyspace)
    }
}

/// What is counted of the keys of a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    All,
    Expiring,
}

#[derive(Debug)]
pub(crate) struct Keyspace {
    pages: [AtomicPtr<Slot>; PAGES],
    counters: Sharded<2>,
    /// What the heaviest slot weighed that was drawn: see [`draw`](Self::draw).
    heaviest: AtomicUsize,
}

/// The first slot of a page, and the mask for places in it.
#[derive(Clone, Copy)]
struct Tagged(*mut Slot);

impl Tagged {
    /// The mask: 63, or 0 if the page is folded or not made.
    #[inline]
    fn mask(self) -> usize {
        self.0.addr() & PLACE
    }

    #[inline]
    fn first(self) -> *mut Slot {
        self.0.map_addr(|address| address & !PLACE)
    }

    fn new(page: Page) -> Self {
        let mask = page.len() - 1;
        debug_assert!(mask == 0 || mask == PLACE);
        Self(Box::into_raw(page).cast::<Slot>().map_addr(|address| address | mask))
    }

    /// # Safety
    /// Made by `new`, and nobody else refers to the page now or later.
    unsafe fn into_page(self) -> Option<Page> {
        let page = slice_from_raw_parts_mut(self.first(), self.mask() + 1);
        // SAFETY: that very box, by the caller's contract.
        (!self.0.is_null()).then(|| unsafe { Box::from_raw(page) })
    }
}

impl Keyspace {
    const fn new() -> Self {
        Self {
            pages: [const { AtomicPtr::new(null_mut()) }; PAGES],
            counters: Sharded::new(),
            heaviest: AtomicUsize::new(1),
        }
    }

    /// How many keys there are, or of them those that expire. O(1).
    pub(crate) fn count(&self, counter: Keys) -> u64 {
        self.counters.sum(counter as usize).max(0) as u64
    }

    #[inline]
    fn tagged(&self, page: usize) -> Tagged {
        Tagged(self.pages[page].load(Ordering::Acquire))
    }

    /// The slots of a page, if it has been made.
    #[inline]
    fn page(&self, number: usize) -> Option<&[Slot]> {
        let page = self.tagged(number);
        // SAFETY: made by `Tagged::new`, and freed only by those whose callers keep
        // everybody else out, and by `drop`.
        (!page.0.is_null())
            .then(|| unsafe { std::slice::from_raw_parts(page.first(), page.mask() + 1) })
    }

    /// The slot of that number or the one that stands for it, if it or one of its
    /// neighbours has been used.
    #[inline]
    pub(crate) fn get(&self, slot: usize) -> Option<&Slot> {
        let page = self.tagged(slot / PAGE_SLOTS);
        if page.0.is_null() {
            return None;
        }
        // SAFETY: as in `page`; the place is at most the mask, and below the length.
        Some(unsafe { &*page.first().add(slot & page.mask()) })
    }

    /// The number of the slot that stands for this one: its own, or the first of its
    /// page if that is folded, as every page is when it is made.
    #[inline]
    pub(crate) fn home(&self, slot: usize) -> usize {
        slot & (self.tagged(slot / PAGE_SLOTS).mask() | !PLACE)
    }

    /// All the slots that the home of this one stands for.
    pub(crate) fn covered(&self, slot: usize) -> Range<usize> {
        let home = self.home(slot);
        home..home + if self.is_folded(slot) { PAGE_SLOTS } else { 1 }
    }

    /// Whether this slot's page is folded; one not made is.
    #[inline]
    pub(crate) fn is_folded(&self, slot: usize) -> bool {
        self.tagged(slot / PAGE_SLOTS).mask() == 0
    }

    /// Every `of`-th page that has been made, beginning with number `first`,
    /// each with the number of its first slot.
    fn pages(&self, first: usize, of: usize) -> impl Iterator<Item = (usize, &[Slot])> {
        let numbers = (first..PAGES).step_by(of);
        numbers.filter_map(|n| self.page(n).map(|page| (n * PAGE_SLOTS, page)))
    }

    /// The slots that have been made, all that may have keys, from the home of `first`
    /// on, with their numbers. Ascending.
    pub(crate) fn made(&self, first: usize) -> impl Iterator<Item = (usize, &Slot)> {
        let home = self.home(first);
        let slots = self.pages(first / PAGE_SLOTS, 1).flat_map(|(n, page)| (n..).zip(page));
        slots.skip_while(move |&(slot, _)| slot < home)
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
    /// [`DRAWS_MAX`] in vain all are weighed, and the heaviest is known again. A folded
    /// page is drawn by any of its 64 numbers, so what is not folded weighs 64 times as
    /// much.
    pub(crate) fn draw(
        &self,
        below: &dyn Fn(u64) -> u64,
        weight: impl Fn(&Slot) -> usize + Copy,
    ) -> Option<usize> {
        let heaviest = self.heaviest.load(Ordering::Relaxed);
        for _ in 0..DRAWS_MAX {
            let number = below(SLOTS as u64) as usize;
            let weight = self.get(number).map_or(0, weight) * self.times(number);
            if weight > heaviest {
                self.heaviest.store(weight, Ordering::Relaxed);
            }
            if weight > 0 && below(weight.max(heaviest) as u64) < weight as u64 {
                return Some(number);
            }
        }
        let weights = self.made(0).map(|(number, slot)| weight(slot) * self.times(number));
        self.heaviest.store(weights.max().unwrap_or(1), Ordering::Relaxed);
        self.weigh(below, weight)
    }

    /// How often a slot counts where numbers are drawn.
    fn times(&self, slot: usize) -> usize {
        if self.is_folded(slot) { 1 } else { PAGE_SLOTS }
    }

    /// The same, by weighing all slots. O(slots).
    fn weigh(&self, below: &dyn Fn(u64) -> u64, weight: impl Fn(&Slot) -> usize) -> Option<usize> {
        let weights = || self.made(0).map(|(number, slot)| (number, weight(slot) as u64));
        share_of(weights(), below(weights().map(|(_, weight)| weight).sum()))
    }

    /// Bytes allocated for slots.
    pub(crate) fn allocated(&self) -> usize {
        self.pages(0, 1).map(|(_, page)| crate::memory::usable(size_of_val(page))).sum()
    }

    #[cold]
    fn make(&self, number: usize) -> &Slot {
        let new = Tagged::new(Box::new([Slot::default()]));
        let order = Ordering::AcqRel;
        match self.pages[number].compare_exchange(null_mut(), new.0, order, Ordering::Acquire) {
            // SAFETY: just stored; see `page`.
            Ok(_) => unsafe { &*new.first() },
            Err(theirs) => {
                // SAFETY: `new` was never shared; theirs is as in `page`, and folded,
                // for nobody unfolds it before the batch that asks here has ended.
                unsafe {
                    drop(new.into_page());
                    &*Tagged(theirs).first()
                }
            }
        }
    }

    /// Whether [`reshape`](Self::reshape) would do something about this page.
    pub(crate) fn is_misshapen(&self, number: usize) -> bool {
        self.page(number).is_some_and(|page| {
            let keys: usize = page.iter().map(Slot::keys).sum();
            match page.len() {
                1 => keys >= CROWDED || page[0].is_idle(),
                _ => keys <= SPARSE,
            }
        })
    }

    /// Unfolds a page that is crowded, folds it if it is sparse, frees it if it is
    /// empty. O(keys), of which there are few.
    ///
    /// # Safety
    /// As of [`take`](Self::take).
    pub(crate) unsafe fn reshape(&self, number: usize, hasher: &KeyHasher) {
        let Some(page) = self.page(number).filter(|_| self.is_misshapen(number)) else { return };
        let len = if page.len() > 1 || page[0].keys() < CROWDED { 1 } else { PAGE_SLOTS };
        // SAFETY: by the caller's contract.
        unsafe { self.resize(number, len, hasher) };
    }

    /// Unfolds a page that is folded. O(keys), of which there are few.
    ///
    /// # Safety
    /// As of [`take`](Self::take).
    pub(crate) unsafe fn unfold(&self, number: usize, hasher: &KeyHasher) {
        if self.is_folded(number * PAGE_SLOTS) {
            // SAFETY: by the caller's contract.
            unsafe { self.resize(number, PAGE_SLOTS, hasher) };
        }
    }

    /// Has a page so many slots, 1 or [`PAGE_SLOTS`]; none if nothing is in them.
    ///
    /// # Safety
    /// As of [`take`](Self::take).
    unsafe fn resize(&self, number: usize, len: usize, hasher: &KeyHasher) {
        let taken = Tagged(self.pages[number].swap(null_mut(), Ordering::AcqRel));
        // SAFETY: from `Tagged::new`, and nobody else can hold it, by the contract.
        let Some(old) = (unsafe { taken.into_page() }) else { return };
        let mut new: Page = (0..len).map(|_| Slot::default()).collect();
        for slot in old {
            new.iter_mut().for_each(|new| new.take_notes(&slot));
            for cell in slot.into_cells().into_each() {
                let key = cell.key();
                let key = hasher.key(&key);
                let (place, branch) = (key.slot() % len, key.branch());
                new[place].put(branch, cell, |key| hasher.key(key).branch());
            }
        }
        if len > 1 || new.iter().any(|slot| !slot.is_idle()) {
            self.pages[number].store(Tagged::new(new).0, Ordering::Release);
        }
    }

    /// Takes all slots out.
    ///
    /// # Safety
    /// No reference into this keyspace exists: the caller holds every gate and
    /// has no guard out.
    pub(crate) unsafe fn take(&self) -> Vec<Page> {
        let pages = self.pages.iter().map(|page| Tagged(page.swap(null_mut(), Ordering::AcqRel)));
        // SAFETY: each from `Tagged::new`, and nobody else can hold it, by the contract.
        pages.filter_map(|page| unsafe { page.into_page() }).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Batch, Session};
    use crate::{Interest, NewStr, SetExpiry, Store, StoreConfig, Unobserved};
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    /// Miri is too slow to look for keys of one page where there are no hash tags.
    fn store(cluster: bool) -> Arc<Store> {
        Store::new(
            StoreConfig { cluster: cluster || cfg!(miri), ..StoreConfig::default() },
            Box::new(Unobserved),
        )
    }

    /// Keys of the first page.
    fn names(store: &Store) -> impl Iterator<Item = Vec<u8>> {
        let numbers = (0u64..).map(|n| n.to_string());
        let mut names = numbers.filter(|name| store.key(name.as_bytes()).slot() < PAGE_SLOTS);
        let tags = store.config().cluster.then(|| names.by_ref().take(4).collect::<Vec<_>>());
        (0usize..).filter_map(move |n| match &tags {
            Some(tags) => Some(format!("{{{}}}{n}", tags[n % tags.len()]).into_bytes()),
            None => names.next().map(String::into_bytes),
        })
    }

    fn set(batch: &Batch<'_>, name: &[u8], expiry: Option<u64>) {
        let key = batch.key(name);
        let mut slot = batch.lock(0, &key);
        let found = slot.find(&key);
        let expiry = expiry.map_or(SetExpiry::Clear, SetExpiry::At);
        slot.set_string(&key, found, &NewStr::Bytes(name), expiry);
    }

    fn remove(batch: &Batch<'_>, name: &[u8]) {
        let key = batch.key(name);
        let mut slot = batch.lock(0, &key);
        if let Some(found) = slot.find(&key) {
            drop(slot.detach(found));
        }
    }

    /// Looks at every page, for there is one.
    fn tidy(session: &mut Session) {
        session.enter(1).tidy();
    }

    #[test]
    fn a_page_unfolds_and_folds_and_goes() {
        let store = store(false);
        let mut session = store.session();
        drop(session.enter(1).lock_slot(0, 0));
        let keyspace = store.keyspace(0);
        let names: Vec<_> = names(&store).take(CROWDED).collect();
        let (last, rest) = names.split_last().unwrap();
        {
            let batch = session.enter(1);
            rest.iter().for_each(|name| set(&batch, name, Some(1 << 40)));
            assert!(keyspace.is_folded(0) && keyspace.allocated() == 64);
            let key = batch.key(last);
            batch.lock(0, &key).observe(Interest::Watch, true);
            set(&batch, last, Some(1 << 30));
        }
        {
            // Whoever comes next finds it unfolded.
            let batch = session.enter(1);
            assert!(!keyspace.is_folded(0));
            for name in &names {
                let key = batch.key(name);
                let mut slot = batch.lock(0, &key);
                assert!(slot.observed(Interest::Watch) && slot.find(&key).is_some());
                assert_eq!(slot.covered(&key), key.slot()..key.slot() + 1);
            }
            let own = batch.key(last).slot();
            let expiries = keyspace.made(0).map(|(slot, s)| (slot, s.next_expiry()));
            let soon: Vec<_> = expiries.filter(|&(_, at)| at == 1 << 30).collect();
            assert_eq!(soon, [(own, 1 << 30)]);
            assert_eq!((0..PAGE_SLOTS).map(|n| batch.keys_in_slot(0, n)).sum::<usize>(), CROWDED);
            names[SPARSE..].iter().for_each(|name| remove(&batch, name));
        }
        tidy(&mut session);
        {
            let batch = session.enter(1);
            assert!(keyspace.is_folded(0));
            for name in &names[..SPARSE] {
                let key = batch.key(name);
                assert!(batch.lock(0, &key).find(&key).is_some());
                remove(&batch, name);
            }
            // Who observes keeps it.
            let key = batch.key(last);
            batch.tidy();
            assert!(keyspace.get(0).is_some() && batch.lock(0, &key).observed(Interest::Watch));
            batch.lock(0, &key).observe(Interest::Watch, false);
        }
        tidy(&mut session);
        assert!(keyspace.get(0).is_none() && keyspace.allocated() == 0);
    }

    #[test]
    fn what_is_held_stays_as_it_is_until_it_is_released() {
        let store = store(true);
        let mut session = store.session();
        drop(session.enter(1).lock_slot(0, 0));
        let keyspace = store.keyspace(0);
        let names: Vec<_> = names(&store).take(2 * CROWDED).collect();
        let batch = session.enter(1);
        let hold = batch.hold(names.iter().map(|name| (0, batch.key(name))));
        names.iter().for_each(|name| set(&batch, name, None));
        batch.settle();
        assert!(keyspace.is_folded(0));
        for slot in (0..PAGE_SLOTS).step_by(if cfg!(miri) { 16 } else { 1 }) {
            let here = names.iter().filter(|name| batch.key(name).slot() == slot);
            let mut listed = 0;
            batch.lock_slot(0, slot).first_keys(slot, usize::MAX, |_| listed += 1);
            assert_eq!(listed, here.count());
        }
        drop(hold);
        batch.settle();
        assert!(!keyspace.is_folded(0));
        let all = batch.exclusive();
        names.iter().for_each(|name| remove(&batch, name));
        batch.settle();
        drop(all);
    }

    /// What is done to the store between two calls of `SCAN`.
    #[derive(Clone, Debug)]
    enum Step {
        Add(usize),
        Remove(usize),
        Tidy,
        Flush,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (1usize..2 * CROWDED).prop_map(Step::Add),
            4 => (1usize..2 * CROWDED).prop_map(Step::Remove),
            4 => Just(Step::Tidy),
            1 => Just(Step::Flush),
        ];
        prop::collection::vec(step, 0..20)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        /// Redis's promise for SCAN, whatever folds and unfolds meanwhile; and every
        /// key is found where it is looked for.
        #[test]
        #[cfg_attr(miri, ignore = "slow")]
        fn a_scan_sees_all_that_stays(
            stay in 0usize..SPARSE,
            count in 1usize..CROWDED,
            steps in steps(),
            cluster in any::<bool>(),
        ) {
            let store = store(cluster);
            let mut session = store.session();
            let names: Vec<_> = names(&store).take(stay + 3 * CROWDED).collect();
            let (stays, others) = names.split_at(stay);
            let mut model = BTreeSet::new();
            for name in stays {
                set(&session.enter(1), name, None);
                model.insert(name.clone());
            }
            let mut must: BTreeSet<_> = stays.iter().cloned().collect();
            let mut seen = BTreeSet::new();
            let (mut cursor, mut next) = (0, 0);
            let mut steps = steps.into_iter();
            loop {
                cursor = session.enter(1).scan(0, cursor, count, |key, _| {
                    seen.insert(key.to_vec());
                });
                if cursor == 0 {
                    break;
                }
                match steps.next() {
                    Some(Step::Add(n)) => for name in others.iter().cycle().skip(next).take(n) {
                        set(&session.enter(1), name, None);
                        model.insert(name.clone());
                        next += 1;
                    },
                    Some(Step::Remove(n)) => for name in others.iter().rev().take(n) {
                        remove(&session.enter(1), name);
                        model.remove(name);
                    },
                    Some(Step::Tidy) => tidy(&mut session),
                    Some(Step::Flush) => {
                        drop(session.enter(1).flush(0));
                        model.clear();
                        must.clear();
                    }
                    None => {}
                }
            }
            prop_assert!(must.is_subset(&seen));
            let batch = session.enter(1);
            for name in &names {
                let key = batch.key(name);
                prop_assert_eq!(batch.lock(0, &key).find(&key).is_some(), model.contains(name));
            }
            prop_assert_eq!(store.keys(0), model.len() as u64);
            prop_assert_eq!(batch.slot_sizes(0).sum::<usize>(), model.len());
            let random = batch.random_key(0);
            prop_assert_eq!(random.is_some(), !model.is_empty());
            prop_assert!(random.is_none_or(|name| model.contains(&name)));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "slow")]
    fn each_key_is_drawn_as_often_folded_or_not() {
        let store = store(false);
        let mut session = store.session();
        // 300 keys in page 0, which unfolds, and 200 elsewhere, folded.
        for name in names(&store).take(300) {
            set(&session.enter(1), &name, None);
        }
        let elsewhere = (0..).map(|n: u64| format!("other:{n}").into_bytes());
        let elsewhere = elsewhere.filter(|name| store.key(name).slot() >= PAGE_SLOTS);
        for name in elsewhere.take(200) {
            set(&session.enter(1), &name, None);
        }
        let batch = session.enter(1);
        assert!(!store.keyspace(0).is_folded(0));
        let drawn = (0..5000).filter_map(|_| batch.random_key(0));
        let first = drawn.filter(|name| batch.key(name).slot() < PAGE_SLOTS).count();
        assert!((2700..3300).contains(&first), "{first} of 5000");
    }
}
