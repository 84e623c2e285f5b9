//! Which names recur. A shape of keys is given a family only when so much has come by under
//! it that a family of its own may be worth it, some 800 bytes; a text that keys share gets
//! a number only when many keys have had it.
//!
//! Counts are kept by hashes of names in a table of fixed size, two for each name, of
//! which the smaller counts (a count-min sketch). After so much has come by all counts are
//! halved, so that a name must come by at some rate. Cost: 4 KiB, whatever comes.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

const COUNTS: usize = 2048;
/// What comes by is counted in so many bytes; less counts as much.
const UNIT: usize = 32;
/// Counts are of the last so many units, about.
const HALVED_EVERY: u32 = 1 << 16;

/// How much came by under names of late.
#[derive(Debug)]
pub(crate) struct Recurring {
    /// A name recurs once so many units have come by under it.
    recurs: u16,
    counts: Box<[AtomicU16]>,
    met: AtomicU32,
    hasher: foldhash::fast::RandomState,
}

impl Recurring {
    /// Of names under which so many units are to come by.
    pub(crate) fn new(recurs: u16) -> Self {
        Self {
            recurs,
            counts: (0..COUNTS).map(|_| AtomicU16::new(0)).collect(),
            met: AtomicU32::new(0),
            hasher: foldhash::fast::RandomState::default(),
        }
    }

    /// Takes note that a value of so many bytes came by under a name; whether that recurs.
    pub(crate) fn meet(&self, kind: usize, name: &[u8], bytes: usize) -> bool {
        let units = (bytes / UNIT).clamp(1, usize::from(self.recurs)) as u16;
        if self.met.fetch_add(u32::from(units), Ordering::Relaxed) >= HALVED_EVERY {
            self.met.store(0, Ordering::Relaxed);
            self.counts.iter().for_each(|count| {
                count.store(count.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
            });
        }
        let hash = self.hasher.hash_one((kind, name));
        let of = |at: u64| &self.counts[at as usize % COUNTS];
        let two = [of(hash), of(hash >> 32)];
        let least = two.map(|count| count.load(Ordering::Relaxed)).into_iter().min().unwrap_or(0);
        let now = least.saturating_add(units);
        // Only the smaller is raised, so that names harm each other less.
        for count in two {
            count.fetch_max(now, Ordering::Relaxed);
        }
        now >= self.recurs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_often_recurs_among_many_that_come_once() {
        let recurring = Recurring::new(512);
        let (mut wrong, mut found) = (0, None);
        for n in 0..200_000u32 {
            wrong += u32::from(recurring.meet(0, format!("name {n}").as_bytes(), 60));
            if n.is_multiple_of(20) && recurring.meet(0, b"often", 60) {
                found.get_or_insert(n);
            }
        }
        assert!(found.is_some_and(|n| n < 20_000), "{found:?}");
        // By chance a name may share both of its places with the one that comes often.
        assert!(wrong <= 10, "{wrong}");
        assert!(!recurring.meet(0, b"large", 10_000) && recurring.meet(0, b"large", 10_000));
    }
}
