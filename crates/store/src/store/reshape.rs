//! When pages of slots are folded, unfolded and freed: with all gates closed, a few at a
//! time, so that within a batch nothing moves.

use super::batch::Batch;
use super::session::{Mode, Session};
use crate::hash::SLOTS;
use crate::keyspace::PAGE_SLOTS;
use std::sync::atomic::Ordering;

/// Pages of slots folded or unfolded while everybody else waits: 200 microseconds
/// at most.
const RESHAPED_AT_ONCE: usize = 4;

/// Pages of slots looked at by one call of [`Batch::tidy`].
const TIDIED_AT_ONCE: usize = 16;

impl Session {
    /// A slot has come to a number of keys at which its page, if it is folded, is to
    /// be unfolded.
    #[cold]
    pub(crate) fn crowded(&self, keyspace: usize, slot: usize) {
        if self.store.keyspaces[keyspace].is_folded(slot) {
            self.crowded.borrow_mut().push((keyspace, slot / PAGE_SLOTS));
        }
    }
}

impl Batch<'_> {
    /// Unfolds the pages of slots that this session's insertions have crowded, if it
    /// may close the gates here: at the beginning of a batch, or between two commands.
    /// Costs a branch when there are none, and a bounded time else.
    #[inline]
    pub fn settle(&self) {
        if !self.session.crowded.borrow().is_empty() {
            self.unfold();
        }
    }

    #[cold]
    fn unfold(&self) {
        let rests = self.store().resting.load(Ordering::SeqCst);
        if rests || self.session.mode.get() == Mode::Held || self.session.guards.get() > 0 {
            return;
        }
        let _alone = self.exclusive();
        let mut crowded = self.session.crowded.borrow_mut();
        let left = crowded.len().saturating_sub(RESHAPED_AT_ONCE);
        for (keyspace, page) in crowded.drain(left..) {
            self.reshape(keyspace, page);
        }
    }

    /// Looks at some pages of slots, the next of all whenever it is called, and folds
    /// or frees those of which few or no keys are left. To be called now and then; 1,024
    /// loads at most and no lock while all are in shape.
    pub fn tidy(&self) {
        if self.store().resting.load(Ordering::SeqCst) {
            return;
        }
        let pages = SLOTS / PAGE_SLOTS;
        let keyspaces = &self.session.store.keyspaces;
        let mut looks = TIDIED_AT_ONCE;
        let all = keyspaces.len() * pages;
        let mut looked = 0;
        while looked < all {
            let at = (self.session.reshaped.get() + 1) % all;
            let (keyspace, page) = (at / pages, at % pages);
            if !keyspaces.is_used(keyspace) {
                self.session.reshaped.set(at - page + pages - 1);
                looked += pages;
                continue;
            }
            self.session.reshaped.set(at);
            looked += 1;
            if keyspaces[keyspace].get(page * PAGE_SLOTS).is_none() {
                continue;
            }
            if keyspaces[keyspace].is_misshapen(page) {
                let _alone = self.exclusive();
                self.reshape(keyspace, page);
            }
            looks -= 1;
            if looks == 0 {
                return;
            }
        }
    }

    /// Unfolds the pages of these slots of a database, however few keys they have, so that
    /// who holds one of them for long keeps nobody from its neighbours. They are folded
    /// again by [`tidy`](Self::tidy). Waits until every batch of another session that is
    /// under way has ended; new ones may have begun by then.
    pub fn part(&self, db: usize, slots: &[usize]) {
        let _alone = self.exclusive();
        let store = self.store();
        let keyspace = store.keyspace_of(db);
        for &slot in slots {
            store.keyspaces.slot(keyspace, slot);
            // SAFETY: every gate is closed and this session has no guard in use.
            #[allow(unsafe_code)]
            unsafe {
                store.keyspaces[keyspace].unfold(slot / PAGE_SLOTS, &store.hasher);
            }
        }
    }

    /// To be called with the gates closed.
    pub(super) fn reshape(&self, keyspace: usize, page: usize) {
        assert_eq!(self.session.mode.get(), Mode::Exclusive);
        assert_eq!(self.session.guards.get(), 0, "folding slots with a guard in use");
        let store = &self.session.store;
        // SAFETY: every gate is closed and this session has no guard in use.
        #[allow(unsafe_code)]
        unsafe {
            store.keyspaces[keyspace].reshape(page, &store.hasher);
        }
    }
}
