//! Walks over the slots of a database: `SCAN` and its cursors, random keys, expiry, what
//! awaits packing, and figures about slots.

use super::batch::Batch;
use crate::cell::table::Mark;
use crate::hash::SLOTS;
use crate::keyspace::PAGE_SLOTS;
use crate::slot::Slot;
use crate::types::Type;

/// Expired keys removed under one hold of a slot's lock.
const EXPIRE_AT_ONCE: usize = 64;

impl Batch<'_> {
    /// Visits the live keys of a database from `cursor` (0 to begin) on, about
    /// `count` keys; the cursor to go on with, 0 at the end. A key that is
    /// there from the first call to the last is visited at least once.
    pub fn scan(
        &self,
        db: usize,
        cursor: u64,
        count: usize,
        visit: impl FnMut(&[u8], Type),
    ) -> u64 {
        self.walk(db, cursor, count, |_, _| true, visit, false)
    }

    /// As [`scan`](Self::scan), visiting only wanted keys. A wanted key whose
    /// time has come is removed, as any lookup of it would have done.
    pub fn scan_wanted(
        &self,
        db: usize,
        cursor: u64,
        count: usize,
        wanted: impl Fn(&[u8], Type) -> bool,
        visit: impl FnMut(&[u8], Type),
    ) -> u64 {
        self.walk(db, cursor, count, wanted, visit, true)
    }

    fn walk(
        &self,
        db: usize,
        cursor: u64,
        count: usize,
        wanted: impl Fn(&[u8], Type) -> bool,
        mut visit: impl FnMut(&[u8], Type),
        expire: bool,
    ) -> u64 {
        let Some((mut first, mut mark, folded)) = Mark::from_cursor(cursor) else { return 0 };
        let keyspace = self.store().keyspace(db);
        if folded != keyspace.is_folded(first) {
            // Its page has been folded or unfolded since: all of it again.
            (first, mark) = (first - first % PAGE_SLOTS, Mark::default());
        }
        let cursor = |slot, mark: Mark| mark.cursor(slot, keyspace.is_folded(slot));
        let mut visited = 0;
        let mut expired: Vec<Vec<u8>> = Vec::new();
        for (slot, hint) in keyspace.made(first) {
            if slot > first {
                mark = Mark::default();
            }
            while hint.keys() > 0 {
                let mut guard = self.lock_slot(db, slot);
                let next = guard.walk(mark, count - visited, &mut |key, kind, live| {
                    visited += 1;
                    match wanted(key, kind) {
                        true if live => visit(key, kind),
                        true if expire => expired.push(key.to_vec()),
                        _ => {}
                    }
                });
                for key in expired.drain(..) {
                    guard.find_entry(&self.key(&key));
                }
                match next {
                    Some(next) => mark = next,
                    None => break,
                }
                if visited >= count {
                    return cursor(slot, mark);
                }
            }
            let next = keyspace.covered(slot).end;
            if visited >= count && next < SLOTS {
                return cursor(next, Mark::default());
            }
        }
        0
    }

    /// A random key of a database, each about as likely; `None` when it has
    /// no live key. A few reads of memory; O(slots) where most slots have none.
    pub fn random_key(&self, db: usize) -> Option<Vec<u8>> {
        // Expired keys may be drawn: a hundred times at most, as Redis does,
        // then the first live one will do.
        for _ in 0..100 {
            let keyspace = self.store().keyspace(db);
            let slot = keyspace.draw(&|n| self.session.below(n), Slot::keys)?;
            let guard = self.lock_slot(db, slot);
            let n = self.session.below(guard.keys() as u64);
            if let Some(key) = guard.nth_key(n as usize) {
                return Some(key.to_vec());
            }
        }
        let mut first = None;
        self.scan(db, 0, usize::MAX, |key, _| {
            first.get_or_insert_with(|| key.to_vec());
        });
        first
    }

    /// Removes keys whose time has come from every `of`-th page of slots, beginning
    /// with page `first`, in all databases, until `enough`; whether some may be left. A
    /// slot in which nothing is due costs one load.
    pub fn expire_due(&self, first: usize, of: usize, enough: &mut dyn FnMut() -> bool) -> bool {
        let mut left = false;
        for db in self.store().databases_used() {
            let due = |hint: &Slot| hint.next_expiry() <= self.now();
            for slot in self.store().keyspace(db).share(first, of, due) {
                if let Some(mut guard) = self.lock_unless_taken(db, slot) {
                    left |= guard.expire_due(EXPIRE_AT_ONCE) >= EXPIRE_AT_ONCE;
                }
                if enough() {
                    return true;
                }
            }
        }
        left
    }

    /// A value with pieces to pack in every `of`-th page of slots,
    /// beginning with page `first`: its database and key. O(1) while there is more
    /// where the last was found, else O(slots), one load each.
    pub fn next_unpacked(&self, first: usize, of: usize) -> Option<(usize, Vec<u8>)> {
        // A busy stream seals block after block: most often it is the same slot.
        let (db, slot) = self.session.packed_at.get();
        let again = self.store().keyspace(db).get(slot).is_some_and(Slot::unpacked);
        if let Some(found) = again.then(|| self.unpacked_in(db, slot)).flatten() {
            return Some(found);
        }
        self.store().databases_used().find_map(|db| {
            let mut slots = self.store().keyspace(db).share(first, of, Slot::unpacked);
            slots.find_map(|slot| self.unpacked_in(db, slot))
        })
    }

    fn unpacked_in(&self, db: usize, slot: usize) -> Option<(usize, Vec<u8>)> {
        let mut guard = self.lock_unless_taken(db, slot)?;
        let found = guard.unpacked()?;
        self.session.packed_at.set((db, slot));
        Some((db, guard.key(found).to_vec()))
    }

    /// Mean remaining milliseconds of the keys of a database that expire,
    /// estimated from a few slots. 0 when none does.
    pub fn average_ttl(&self, db: usize) -> u64 {
        let slots = self.store().keyspace(db).made(0);
        let expiring = slots.filter(|(_, slot)| slot.next_expiry() != u64::MAX);
        let guards = expiring.take(16).filter_map(|(n, _)| self.lock_unless_taken(db, n));
        let sampled = guards.map(|guard| guard.ttl_sum());
        let (keys, sum) = sampled.fold((0, 0), |(n, sum), (k, s)| (n + k, sum + s));
        sum.checked_div(keys).unwrap_or(0)
    }

    /// Keys in a slot of a database. O(1), or O(keys) of a few hundred at most where
    /// its page is folded.
    pub fn keys_in_slot(&self, db: usize, slot: usize) -> usize {
        let keyspace = self.store().keyspace(db);
        match keyspace.get(slot).map_or(0, Slot::keys) {
            0 => 0,
            _ if keyspace.is_folded(slot) => self.lock_slot(db, slot).keys_of(slot),
            keys => keys,
        }
    }

    /// How many keys each slot of a database has that has been made; those of a folded
    /// page count as one. O(slots).
    pub fn slot_sizes(&self, db: usize) -> impl Iterator<Item = usize> {
        self.store().keyspace(db).made(0).map(|(_, slot)| slot.keys())
    }

    /// Bytes allocated for a database's slots and tables, entries not counted, nor the
    /// tables of slots that somebody has for long. O(slots).
    pub fn table_bytes(&self, db: usize) -> usize {
        let keyspace = self.store().keyspace(db);
        let used = keyspace.made(0).filter(|(_, slot)| slot.keys() > 0);
        let guards = used.filter_map(|(slot, _)| self.lock_unless_taken(db, slot));
        keyspace.allocated() + guards.map(|guard| guard.table_bytes()).sum::<usize>()
    }
}

impl Mark {
    /// This place in this slot as a cursor: whether the slot's page is folded, 14
    /// bits of slot, 26 of branch, 12 of tag. Never 0 but where everything begins.
    fn cursor(self, slot: usize, folded: bool) -> u64 {
        let slot = u64::from(folded) << 52 | (slot as u64) << 38;
        slot | u64::from(self.branch) << 12 | u64::from(self.tag)
    }

    /// The slot and place that a cursor stands for, unless it is none of ours.
    fn from_cursor(cursor: u64) -> Option<(usize, Self, bool)> {
        let slot = (cursor >> 38) as usize % SLOTS;
        let branch = (cursor >> 12) as u32 & ((1 << 26) - 1);
        let mark = Self { branch, tag: cursor as u16 & 0xfff };
        (cursor >> 53 == 0).then_some((slot, mark, cursor >> 52 == 1))
    }
}
