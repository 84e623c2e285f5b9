//! The books: what entries add to the store's counters, as they come, change and go.
//!
//! ```text
//!  Cell ── Weight::of ──> type, and whether it is packed or raw;
//!                         bytes allocated, raw, packed from, packed;
//!                         blocks that await packing; dictionary referred to
//! ```
//!
//! Every counter is the sum over all entries at any moment that nobody is writing:
//! whoever changes an entry weighs it before and after, and counts the difference.
//! Cost: some reads of the entry's header, and an addition for each counter that
//! changes.

use crate::away::Away;
use crate::cell::entry::Cell;
use crate::pack::form;
use crate::store::{Counter, Store};
use crate::types::Type;
use crate::types::forms::Measure;
use crate::types::stream::Growth;

/// What one entry adds to the store's counters, besides being a key; or what a
/// change of it adds to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight {
    kind: Type,
    /// Bytes allocated, raw, packed from and packed; and the blocks of a stream that
    /// await packing.
    amounts: [i64; 5],
    /// The dictionary that a packed string refers to, 0 for none.
    dictionary: u32,
    /// Where it is, if it is on disk.
    away: Option<Away>,
}

impl Weight {
    #[inline]
    pub(crate) fn of(cell: &Cell) -> Self {
        let bits = cell.bits();
        if bits.is_away() {
            return Self::of_away(cell);
        }
        let value = cell.value();
        let Measure { allocated, raw, packed_from, packed, pending } = value.measure();
        let allocated = cell.entry_allocated() + allocated;
        let dictionary = match bits.is_packed_inline() {
            true => form::dictionary_id(value.bytes()),
            false => 0,
        };
        let amounts = [allocated, raw, packed_from, packed, pending].map(|amount| amount as i64);
        Self { kind: value.form().type_of(), amounts, dictionary, away: None }
    }

    /// Of what is on disk there is an entry in memory, and the dictionary.
    fn of_away(cell: &Cell) -> Self {
        let away = Away::of(cell);
        let amounts = [cell.entry_allocated() as i64, 0, 0, 0, 0];
        let dictionary = away.map_or(0, |away| away.dictionary());
        Self { kind: cell.type_of(), amounts, dictionary, away }
    }

    /// Whether any of it is packed: no packed form is empty.
    fn is_packed(&self) -> bool {
        self.amounts[3] > 0 || self.away.is_some_and(|away| away.is_packed())
    }

    /// Counts that a stream has grown.
    #[inline]
    pub(crate) fn grow_stream(growth: Growth, store: &Store) {
        let Growth { raw, allocated, pending } = growth;
        let amounts = [allocated, raw, 0, 0, pending];
        Self { kind: Type::Stream, amounts, dictionary: 0, away: None }.count_amounts(store);
    }

    /// Counts that what is in a box weighs another amount than before.
    #[inline]
    pub(crate) fn changed(kind: Type, before: Measure, after: Measure, store: &Store) {
        if before == after {
            return;
        }
        let amount = |after: usize, before: usize| after as i64 - before as i64;
        let amounts = [
            amount(after.allocated, before.allocated),
            amount(after.raw, before.raw),
            amount(after.packed_from, before.packed_from),
            amount(after.packed, before.packed),
            amount(after.pending, before.pending),
        ];
        Self { kind, amounts, dictionary: 0, away: None }.count_amounts(store);
        let is_packed = [before, after].map(|measure| measure.packed > 0);
        if is_packed[0] != is_packed[1] {
            store.count(Counter::Values(kind, is_packed[1]), 1);
            store.count(Counter::Values(kind, is_packed[0]), -1);
        }
    }

    /// Counts this as gone.
    pub(crate) fn count_gone(self, store: &Store) {
        self.count_times(-1, store);
    }

    /// Adds this to the counters.
    pub(crate) fn count(self, store: &Store) {
        self.count_times(1, store);
    }

    #[inline]
    fn count_times(self, times: i64, store: &Store) {
        Self { amounts: self.amounts.map(|amount| times * amount), ..self }.count_amounts(store);
        store.count(Counter::Values(self.kind, self.is_packed()), times);
        store.families().dictionaries.count(self.dictionary, times);
        if let Some(away) = &self.away {
            away.count(times, store);
        }
    }

    fn count_amounts(self, store: &Store) {
        let kind = self.kind;
        let counters = [
            Counter::Bytes(kind),
            Counter::Raw(kind),
            Counter::PackedFrom(kind),
            Counter::Packed(kind),
            Counter::Pending,
        ];
        for (counter, amount) in counters.into_iter().zip(self.amounts) {
            if amount != 0 {
                store.count(counter, amount);
            }
        }
    }

    /// Changes an entry, and counts what that makes of its weight.
    pub(crate) fn recounted<R>(
        store: &Store,
        cell: &mut Cell,
        change: impl FnOnce(&mut Cell) -> R,
    ) -> R {
        let before = Self::of(cell);
        let result = change(cell);
        before.becomes(Self::of(cell), store);
        result
    }

    /// Counts that an entry of this weight now has another: each amount by its
    /// difference in one step, so that nobody who reads a counter meanwhile sees a
    /// dip, or an entry twice.
    #[inline]
    pub(crate) fn becomes(self, after: Self, store: &Store) {
        if self.kind != after.kind || self.away.is_some() || after.away.is_some() {
            if self == after {
                return;
            }
            after.count(store);
            self.count_gone(store);
            return;
        }
        if self.amounts != after.amounts {
            let amounts = std::array::from_fn(|n| after.amounts[n] - self.amounts[n]);
            Self { amounts, ..after }.count_amounts(store);
            if self.is_packed() != after.is_packed() {
                store.count(Counter::Values(self.kind, after.is_packed()), 1);
                store.count(Counter::Values(self.kind, self.is_packed()), -1);
            }
        }
        if self.dictionary != after.dictionary {
            let dictionaries = &store.families().dictionaries;
            dictionaries.count(after.dictionary, 1);
            dictionaries.count(self.dictionary, -1);
        }
    }

    /// Whether some of it awaits packing.
    pub(crate) fn pending(self) -> bool {
        self.amounts[4] > 0
    }
}
