//! Values in boxes that are on their way to disk: whether one was changed meanwhile.
//!
//! A value in its entry is compared byte by byte with what was written. One in a box may
//! have megabytes, and is changed where it lies; so its key is noted here under its slot's
//! lock as it is copied, and whoever is about to change what a key holds takes the note
//! away, under the same lock ([`SlotGuard::keep`](crate::slot::SlotGuard::keep), which
//! snapshots rely on, too; and whoever inserts a key). What is still noted when its copy is
//! on disk is what was copied.
//!
//! Costs: a change pays nothing while no such value is on its way (it looks at one word for
//! this and for snapshots), and one look-up among a few names while one is.

use crate::store::Store;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Keyspace and key of a value on its way.
type Name = (usize, Box<[u8]>);

/// What is on its way.
#[derive(Debug, Default)]
pub(crate) struct Transit {
    /// Each with the number of its note: the last to leave counts.
    noted: Mutex<(u64, HashMap<Name, u64>)>,
}

impl Transit {
    /// A key's value is copied, its slot locked.
    pub(super) fn note(store: &Arc<Store>, keyspace: usize, key: &[u8]) -> Note {
        let name = (keyspace, key.into());
        let mut noted = store.tier().transit.noted.lock();
        noted.0 += 1;
        let number = noted.0;
        noted.1.insert((keyspace, key.into()), number);
        store.set_leaving(true);
        drop(noted);
        Note { store: Arc::clone(store), name, number }
    }

    /// What a key holds is about to be changed, its slot locked.
    #[cold]
    pub(crate) fn forget(&self, store: &Store, keyspace: usize, key: &[u8]) {
        let mut noted = self.noted.lock();
        noted.1.remove(&(keyspace, key.into()));
        if noted.1.is_empty() {
            store.set_leaving(false);
        }
    }
}

/// That a value was copied.
#[derive(Debug)]
pub(super) struct Note {
    store: Arc<Store>,
    name: Name,
    number: u64,
}

impl Note {
    /// Whether the key of this keyspace still holds what was copied. Its slot is locked.
    pub(super) fn holds(&self, keyspace: usize) -> bool {
        let noted = self.store.tier().transit.noted.lock();
        self.name.0 == keyspace && noted.1.get(&self.name) == Some(&self.number)
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        let mut noted = self.store.tier().transit.noted.lock();
        if noted.1.get(&self.name) == Some(&self.number) {
            noted.1.remove(&self.name);
        }
        if noted.1.is_empty() {
            self.store.set_leaving(false);
        }
    }
}
