//! Walks over the keys of one slot: for `SCAN`, eviction, expiry and the packing that
//! some await. Each is bounded by what its caller says.

use super::{Found, SlotGuard, UNPACKED};
use crate::cell::entry::Cell;
use crate::cell::table::Mark;
use crate::eviction::{self, Eviction, Sampled};
use crate::pack::keys::KeyBytes;
use crate::types::Type;
use std::sync::atomic::Ordering::Relaxed;

impl SlotGuard<'_> {
    /// The same of their cells.
    pub(crate) fn walk_cells(
        &self,
        mark: Mark,
        count: usize,
        visit: &mut dyn FnMut(&Cell),
    ) -> Option<Mark> {
        self.cells().walk(mark, count, visit)
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
            visit(&cell.key(), cell.type_of(), live);
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
        let live = self.cells().iter().filter(|cell| store.key(&cell.key()).slot() == slot);
        let live =
            live.filter(|cell| cell.expiry().is_none_or(|expiry| expiry > self.session.now()));
        live.take(count).for_each(|cell| visit(&cell.key()));
    }

    /// The `n`-th key of the slot, if it is not expired.
    pub(crate) fn nth_key(&self, n: usize) -> Option<KeyBytes<'_>> {
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
}
