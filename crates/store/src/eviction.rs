//! Which key goes when memory is short.
//!
//! Nothing is kept for it beside the two access bits that every cell has anyway
//! (`cooling` tells how reads set them and the sweeper ages them). A few keys are
//! drawn at random and the least wanted of them goes:
//!
//! ```text
//!  database   as likely as it has keys (or keys that expire)
//!     |
//!     v
//!  slot       by rejection: any of the 16,384, kept as likely as it has keys,
//!     |       measured against the fullest slot met so far
//!     v
//!  cells      neighbours in the slot's table from a random one on, going round:
//!             they lie there by their hashes, so neighbours are random keys
//! ```
//!
//! What looking at a key's cell tells is ordered so:
//!
//! | [`Order`] | the first to go |
//! | --- | --- |
//! | `Recency` | the fewest access bits; a packed value that was read counts as read lately |
//! | `Frequency` | the same bits, which each read then raises by chance ([`Store::count_reads`](crate::Store::count_reads)) |
//! | `Expiry` | the nearest expiry |
//! | `Random` | the first that is looked at |
//!
//! Two bits are four ages, and a storm of writes makes everything equally young.
//! So a key that is looked at and stays loses a bit, as in CLOCK with its second
//! chance (Corbató, 1968): under pressure keys age as fast as others are evicted,
//! and one that is read in between is young again. Eviction never ages a raw value
//! to 0, which says that packing was tried and is not worth it.
//!
//! A draw costs a few reads of memory whatever the number of keys; in a database
//! with hardly any key in its slots it falls back to counting them, which is one
//! pass over the slots.

use crate::cell::entry::Cell;
use crate::effect::Event;
use crate::keyspace::share_of;
use crate::slot::{Detached, Slot};
use crate::store::{Batch, Session};

/// What tells the first to go among the keys that are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The one not used for longest.
    Recency,
    /// The one used least often.
    Frequency,
    /// The one that would expire first; of keys that expire alone.
    Expiry,
    /// Any.
    Random,
}

/// How keys are evicted.
#[derive(Clone, Copy, Debug)]
pub struct Eviction {
    /// Which goes first.
    pub order: Order,
    /// Whether only keys that expire may go.
    pub volatile: bool,
    /// How many keys are looked at for each that goes; 1 at least.
    pub samples: usize,
    /// Where the values lie of those that may go.
    pub lying: Lying,
}

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lying {
    /// In memory or on disk.
    Anywhere,
    /// In memory.
    InMemory,
    /// On disk.
    OnDisk,
}

/// Cells looked at for one key, most likely for none, that may be evicted: until
/// then it hides among a great many that may not, or in slots that seem to have
/// some (each is found out once). A millisecond at most.
const LOOKS_MAX: usize = 256 * 1024;
/// What drawing a slot costs, in such looks.
const LOOKS_A_DRAW: usize = 16;
/// Cells looked at under one hold of a slot's lock.
pub(crate) const LOOKS_AT_ONCE: usize = 16 * 1024;

/// Of keys looked at, one in so many loses a bit where bits count reads.
const AGES_ONE_IN: u64 = 16;

impl Eviction {
    /// Whether this key may go.
    pub(crate) fn may_evict(&self, cell: &Cell) -> bool {
        let lies_so = match self.lying {
            Lying::Anywhere => true,
            Lying::InMemory => !cell.bits().is_away(),
            Lying::OnDisk => cell.bits().is_away(),
        };
        lies_so && (cell.expires() || !(self.volatile || self.order == Order::Expiry))
    }

    /// How much a key is wanted; the least goes first, and nothing is below 0.
    pub(crate) fn worth(&self, cell: &Cell) -> u64 {
        match self.order {
            Order::Recency => recency(cell),
            Order::Frequency => u64::from(cell.access()),
            Order::Expiry => cell.expiry().unwrap_or(u64::MAX),
            Order::Random => 0,
        }
    }

    /// Ages a key that was looked at.
    pub(crate) fn age(&self, cell: &mut Cell, session: &Session) {
        let ages = match self.order {
            Order::Recency => true,
            Order::Frequency => session.below(AGES_ONE_IN) == 0,
            Order::Expiry | Order::Random => false,
        };
        let least = u8::from(!cell.bits().is_packed());
        if ages && cell.access() > least {
            cell.set_access(cell.access() - 1);
        }
    }

    /// How likely a slot is to be drawn: by its keys, if any may go.
    fn weight(&self, slot: &Slot) -> usize {
        if self.volatile && slot.next_expiry() == u64::MAX { 0 } else { slot.keys() }
    }
}

/// How lately a value was used, 0 to 3: a packed one that a read has added to was
/// read since about the last pass.
#[inline]
fn recency(cell: &Cell) -> u64 {
    let access = cell.access();
    u64::from(if cell.bits().is_packed() && access > 0 { access.max(2) } else { access })
}

/// The least wanted of the keys looked at in one slot.
#[derive(Debug)]
pub(crate) struct Sampled {
    pub(crate) found: crate::slot::Found,
    pub(crate) worth: u64,
    /// How many were looked at that may go.
    pub(crate) seen: usize,
}

impl Batch<'_> {
    /// Removes the least wanted of some keys drawn at random, and gives its database
    /// and its value, to be freed with no lock held; `None` if there is none that may go. O(samples).
    ///
    /// # Panics
    /// Within a scope, and with a slot guard in use.
    pub fn evict(&self, how: &Eviction) -> Option<(usize, Detached)> {
        let store = self.store();
        let count = |db| (db, if how.volatile { store.expiring(db) } else { store.keys(db) });
        let count_all = || store.databases_used().map(count).collect::<Vec<_>>();
        let mut counts = count_all();
        let mut best: Option<(usize, Vec<u8>, u64)> = None;
        let mut left = how.samples.max(1);
        let mut looked = 0;
        while looked < LOOKS_MAX {
            looked += LOOKS_A_DRAW;
            let drawn = if left > 0 { self.draw(how, &counts) } else { None };
            let Some((db, slot)) = drawn else {
                // All were looked at, or there are no more.
                let (db, name, _) = best.take()?;
                let key = self.key(&name);
                if let Some(mut guard) = self.lock_unless_taken(db, key.slot())
                    && let Some(found) = guard.find_entry(&key)
                {
                    return Some((db, guard.delete(found, Event::EVICTED)));
                }
                // It had expired, or somebody else was faster.
                (left, counts) = (1, count_all());
                continue;
            };
            let Some(mut guard) = self.lock_unless_taken(db, slot) else { continue };
            let Some(sampled) = guard.sample(how, left, &mut looked) else { continue };
            left -= sampled.seen;
            let is_best = best.as_ref().is_none_or(|(_, _, worth)| sampled.worth < *worth);
            if is_best && (left == 0 || sampled.worth == 0) {
                return Some((db, guard.delete(sampled.found, Event::EVICTED)));
            }
            if is_best {
                best = Some((db, guard.key(sampled.found).to_vec(), sampled.worth));
            }
        }
        None
    }

    /// A random slot with keys that may go, and its database.
    pub(crate) fn draw(&self, how: &Eviction, counts: &[(usize, u64)]) -> Option<(usize, usize)> {
        let session = self.session();
        let at = session.below(counts.iter().map(|(_, keys)| keys).sum());
        let db = share_of(counts.iter().copied(), at)?;
        let keyspace = self.store().keyspace(db);
        let slot = keyspace.draw(&|n| session.below(n), |slot| how.weight(slot))?;
        Some((db, slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::entry::Payload;
    use crate::large::PackedChain;
    use crate::types::string::{SET, SET_PACKED};
    use crate::{Store, StoreConfig, Unobserved};

    #[test]
    fn one_read_tells_as_much_of_every_packed_value_and_only_those_age_to_0() {
        let session = Store::new(StoreConfig::default(), Box::new(Unobserved)).session();
        let how =
            Eviction { order: Order::Recency, volatile: false, samples: 5, lying: Lying::Anywhere };
        let chain = PackedChain::raw(&[7; 300]);
        let payloads = [
            Payload::Inline(SET_PACKED, b"form"),
            Payload::boxed(chain),
            Payload::Inline(SET, b"raw"),
        ];
        let worths = payloads.map(|payload| {
            let mut cell = Cell::new(1, b"key", None, payload);
            cell.set_access(1);
            let worth = how.worth(&cell);
            how.age(&mut cell, &session);
            (worth, cell.access())
        });
        assert_eq!(worths, [(2, 0), (2, 0), (1, 1)]);
    }
}
