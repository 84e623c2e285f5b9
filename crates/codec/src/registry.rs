//! The dictionaries in use: who refers to which, and what is left of the old.
//!
//! A dictionary is *current* for its family until another replaces it, and is
//! kept exactly as long as it is current for somebody or some packed value refers to
//! it.
//! Ids of freed dictionaries are used again, lowest first, so that they stay
//! short in packed forms.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::{Dictionary, DictionarySource};

/// All dictionaries of a process. Shared by all threads; a look-up costs a lock
/// held for a tree search.
#[derive(Debug, Default)]
pub struct Registry {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<u32, Entry>,
    stats: RegistryStats,
}

#[derive(Debug)]
struct Entry {
    dictionary: Arc<Dictionary>,
    references: u64,
    /// For how many it is current.
    owners: u64,
}

/// Counters of a registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegistryStats {
    /// Dictionaries held now.
    pub live: usize,
    /// Of these, replaced ones that packed values still refer to.
    pub superseded: usize,
    /// What they weigh, digests included.
    pub memory_bytes: usize,
    /// Added, ever.
    pub added_total: u64,
    /// Freed, ever.
    pub freed_total: u64,
}

impl Registry {
    /// A registry without dictionaries.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Takes in a dictionary, as current, under the lowest id free.
    pub fn add(&self, dictionary: Dictionary) -> Arc<Dictionary> {
        let mut state = self.lock();
        let mut id = 1;
        for &taken in state.entries.keys() {
            if taken != id {
                break;
            }
            id += 1;
        }
        let dictionary = Arc::new(dictionary.with_id(id));
        state.insert(Arc::clone(&dictionary), 1);
        dictionary
    }

    /// Takes in a dictionary under the id that it has, as loaded from a file,
    /// not current; `false` when another holds that id.
    pub fn restore(&self, dictionary: Arc<Dictionary>) -> bool {
        let mut state = self.lock();
        let free = dictionary.id() != 0 && !state.entries.contains_key(&dictionary.id());
        if free {
            state.insert(dictionary, 0);
        }
        free
    }

    /// A packed value now refers to dictionary `id`.
    pub fn refer(&self, id: u32) {
        if let Some(entry) = self.lock().entries.get_mut(&id) {
            entry.references += 1;
        }
    }

    /// A packed value that referred to dictionary `id` is gone. The last one
    /// frees a dictionary that is not current.
    pub fn release(&self, id: u32) {
        let mut state = self.lock();
        if let Some(entry) = state.entries.get_mut(&id) {
            entry.references = entry.references.saturating_sub(1);
            state.free_if_unused(id);
        }
    }

    /// Dictionary `id` is now current for one more.
    pub fn adopt(&self, id: u32) {
        if let Some(entry) = self.lock().entries.get_mut(&id) {
            entry.owners += 1;
        }
    }

    /// Dictionary `id` is no longer current for one that it was current for.
    pub fn supersede(&self, id: u32) {
        let mut state = self.lock();
        if let Some(entry) = state.entries.get_mut(&id) {
            entry.owners = entry.owners.saturating_sub(1);
            state.free_if_unused(id);
        }
    }

    /// Puts the same dictionary, digested for another level, in the place of the one
    /// with its id; whether it was the same.
    pub fn relevel(&self, dictionary: Arc<Dictionary>) -> bool {
        let mut state = self.lock();
        let State { entries, stats } = &mut *state;
        let entry = entries.get_mut(&dictionary.id());
        let Some(entry) = entry.filter(|entry| entry.dictionary.bytes() == dictionary.bytes())
        else {
            return false;
        };
        stats.memory_bytes -= entry.dictionary.memory_bytes();
        stats.memory_bytes += dictionary.memory_bytes();
        entry.dictionary = dictionary;
        true
    }

    /// Whether dictionary `id` is current for somebody.
    pub fn is_current(&self, id: u32) -> bool {
        self.lock().entries.get(&id).is_some_and(|entry| entry.owners > 0)
    }

    /// How many packed values refer to dictionary `id`.
    pub fn references(&self, id: u32) -> u64 {
        self.lock().entries.get(&id).map_or(0, |entry| entry.references)
    }

    /// The dictionaries held, by id.
    pub fn all(&self) -> Vec<Arc<Dictionary>> {
        self.lock().entries.values().map(|entry| Arc::clone(&entry.dictionary)).collect()
    }

    /// What is held and what was.
    pub fn stats(&self) -> RegistryStats {
        let state = self.lock();
        let superseded = state.entries.values().filter(|entry| entry.owners == 0).count();
        RegistryStats { live: state.entries.len(), superseded, ..state.stats }
    }
}

impl State {
    fn insert(&mut self, dictionary: Arc<Dictionary>, owners: u64) {
        self.stats.added_total += 1;
        self.stats.memory_bytes += dictionary.memory_bytes();
        self.entries.insert(dictionary.id(), Entry { dictionary, references: 0, owners });
    }

    fn free_if_unused(&mut self, id: u32) {
        if self.entries.get(&id).is_some_and(|entry| entry.references == 0 && entry.owners == 0)
            && let Some(entry) = self.entries.remove(&id)
        {
            self.stats.freed_total += 1;
            self.stats.memory_bytes -= entry.dictionary.memory_bytes();
        }
    }
}

impl DictionarySource for Registry {
    fn dictionary(&self, id: u32) -> Option<Arc<Dictionary>> {
        self.lock().entries.get(&id).map(|entry| Arc::clone(&entry.dictionary))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trained() -> Vec<u8> {
        let texts: Vec<String> =
            (0..200).map(|i| format!("user {i} said good morning {}", i * 7)).collect();
        let samples: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        Dictionary::train_with(&samples, 1024, 1, 1).unwrap().bytes().to_vec()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        /// A dictionary is there exactly while it is current or referred to.
        #[test]
        fn kept_exactly_as_long_as_needed(ops in prop::collection::vec((0u8..5, any::<prop::sample::Index>()), 1..60)) {
            let bytes = trained();
            let registry = Registry::new();
            let mut model: BTreeMap<u32, (u64, bool)> = BTreeMap::new();
            for (op, at) in ops {
                let id = (!model.is_empty()).then(|| *model.keys().nth(at.index(model.len())).unwrap());
                match (op, id) {
                    (0, _) | (_, None) => {
                        let added = registry.add(Dictionary::from_bytes(0, &bytes, 1).unwrap());
                        let lowest = (1..=100).find(|id| !model.contains_key(id)).unwrap();
                        prop_assert_eq!(added.id(), lowest);
                        model.insert(lowest, (0, true));
                    }
                    (1 | 2, Some(id)) => {
                        registry.refer(id);
                        model.get_mut(&id).unwrap().0 += 1;
                    }
                    (3, Some(id)) => {
                        registry.release(id);
                        let entry = model.get_mut(&id).unwrap();
                        entry.0 = entry.0.saturating_sub(1);
                    }
                    (_, Some(id)) => {
                        registry.supersede(id);
                        model.get_mut(&id).unwrap().1 = false;
                    }
                }
                model.retain(|_, (references, current)| *references > 0 || *current);
                let held: Vec<u32> = registry.all().iter().map(|d| d.id()).collect();
                prop_assert!(held.iter().eq(model.keys()));
                let weight: usize = registry.all().iter().map(|d| d.memory_bytes()).sum();
                prop_assert_eq!(registry.stats().memory_bytes, weight);
            }
        }
    }
}
