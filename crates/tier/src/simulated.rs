//! An engine without a disk, for tests of whatever uses one: it keeps what it is given in
//! memory, knows what is referred to, and fails as it is told.

use crate::{Engine, Figures, Place, Purpose};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// An engine in memory. A record that is read or referred to after it is gone is a panic.
#[derive(Debug, Default)]
pub struct Simulated {
    /// References and bytes.
    records: Mutex<HashMap<Place, (u64, Vec<u8>)>>,
    next: AtomicU64,
    /// Writing fails, with no room left.
    pub is_full: AtomicBool,
    /// Reading fails.
    pub fails_reads: AtomicBool,
    /// What is read is not what was written.
    pub is_damaged: AtomicBool,
    /// All records are sparse.
    pub is_sparse: AtomicBool,
}

impl Simulated {
    /// How many records are referred to.
    pub fn len(&self) -> usize {
        self.records.lock().len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Engine for Simulated {
    fn write(&self, records: &[&[u8]], _: Purpose) -> io::Result<Vec<Place>> {
        if self.is_full.load(Relaxed) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        let mut all = self.records.lock();
        let mut write = |record: &&[u8]| {
            let place = self.next.fetch_add(1, Relaxed);
            all.insert(place, (1, record.to_vec()));
            place
        };
        Ok(records.iter().map(&mut write).collect())
    }

    fn read(&self, place: Place, len: usize) -> io::Result<Vec<u8>> {
        if self.fails_reads.load(Relaxed) {
            return Err(io::Error::other("a simulated fault"));
        }
        let mut record = self.records.lock()[&place].1.clone();
        assert_eq!(record.len(), len);
        if self.is_damaged.load(Relaxed)
            && let Some(first) = record.first_mut()
        {
            *first ^= 1;
        }
        Ok(record)
    }

    fn retain(&self, place: Place, len: usize) {
        let mut all = self.records.lock();
        let (references, record) = all.get_mut(&place).expect("a record that is there");
        assert_eq!(record.len(), len);
        *references += 1;
    }

    fn release(&self, place: Place, _: usize) {
        let mut all = self.records.lock();
        let (references, _) = all.get_mut(&place).expect("a record that is there");
        *references -= 1;
        if *references == 0 {
            all.remove(&place);
        }
    }

    fn is_sparse(&self, _: Place) -> bool {
        self.is_sparse.load(Relaxed)
    }

    fn tidy(&self) -> bool {
        self.is_sparse.load(Relaxed)
    }

    fn limit(&self, _: u64) {}

    fn has_room(&self, _: u64) -> bool {
        !self.is_full.load(Relaxed)
    }

    fn figures(&self) -> Figures {
        let all = self.records.lock();
        let live = all.values().map(|(references, record)| references * record.len() as u64).sum();
        Figures { live, ..Figures::default() }
    }
}
