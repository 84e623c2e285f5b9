//! The dictionaries of the whole store, whatever is packed with them: each has an id
//! that no other has, and is there for as long as it is current for a family or a
//! value, or something packed refers to it.
//!
//! ```text
//!  a family's     current for the family; each value in an entry that is packed with
//!                 it refers to it, and each that is on its way there pins it; a
//!                 stream of which blocks are packed with it holds it once
//!  a value's own  current for the value and each of its copies, and referred to once
//!                 by each: a long stream's
//! ```

use crate::sync::{AtomicU64, point};
use snug_codec::{Dictionary, DictionaryKind, DictionarySource, Registry};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The dictionaries that packed values refer to by id.
#[derive(Debug, Default)]
pub(crate) struct Dictionaries {
    registry: Registry,
    /// Grows whenever an id gets a dictionary, or another one: what was looked
    /// up before is then to be looked up again.
    generation: AtomicU64,
}

impl Dictionaries {
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The next generation begins.
    pub(crate) fn advance(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(crate) fn get(&self, id: u32) -> Option<Arc<Dictionary>> {
        self.registry().dictionary(id)
    }

    /// A value packed with dictionary `id` is there, or no longer; 0 is none.
    #[inline]
    pub(crate) fn count(&self, id: u32, delta: i64) {
        match (id, delta) {
            (0, _) => {}
            (id, 1) => self.registry().refer(id),
            (id, _) => self.registry().release(id),
        }
    }

    /// Keeps a dictionary that is there from being freed.
    pub(crate) fn pin(self: &Arc<Self>, id: u32) -> Option<Pin> {
        (id != 0).then(|| {
            self.registry().refer(id);
            Pin { dictionaries: Arc::clone(self), id }
        })
    }

    /// Takes in a family's dictionary, as its current one.
    pub(crate) fn add(&self, dictionary: Dictionary) -> Arc<Dictionary> {
        let dictionary = self.registry().add(dictionary);
        self.advance();
        dictionary
    }

    /// Takes in a dictionary that belongs to one value. No generation begins with it:
    /// nothing else is packed with it.
    pub(crate) fn own(self: &Arc<Self>, dictionary: Dictionary) -> OwnDictionary {
        let dictionary = self.registry().add(dictionary);
        self.registry().refer(dictionary.id());
        OwnDictionary { dictionary, dictionaries: Arc::clone(self) }
    }

    /// Takes in a dictionary under the id that it has, which is kept as long as what is
    /// given back; or that which has the id, if it is the same. None if it is another.
    pub(crate) fn restore(self: &Arc<Self>, dictionary: Arc<Dictionary>) -> Option<HeldDictionary> {
        if self.registry().restore(Arc::clone(&dictionary)) {
            self.advance();
            return Some(self.hold(dictionary));
        }
        let there = self.get(dictionary.id())?;
        (there.bytes() == dictionary.bytes()).then(|| self.hold(there))
    }

    /// A dictionary that is there belongs to one value.
    pub(crate) fn owned(self: &Arc<Self>, dictionary: Arc<Dictionary>) -> OwnDictionary {
        self.registry().refer(dictionary.id());
        self.registry().adopt(dictionary.id());
        OwnDictionary { dictionary, dictionaries: Arc::clone(self) }
    }

    /// Keeps a dictionary that is there for a value of which pieces refer to it.
    pub(crate) fn hold(self: &Arc<Self>, dictionary: Arc<Dictionary>) -> HeldDictionary {
        self.registry().refer(dictionary.id());
        HeldDictionary { dictionary, dictionaries: Arc::clone(self) }
    }

    pub(crate) fn registry(&self) -> &Registry {
        point();
        &self.registry
    }

    /// Every dictionary, by id.
    pub(crate) fn all(&self) -> Vec<DictionaryInfo> {
        let info = |dictionary: Arc<Dictionary>| DictionaryInfo {
            id: dictionary.id(),
            kind: dictionary.kind(),
            bytes: dictionary.bytes().len(),
            memory_bytes: dictionary.memory_bytes(),
            level: dictionary.level(),
            references: self.registry().references(dictionary.id()),
        };
        self.registry().all().into_iter().map(info).collect()
    }
}

/// Keeps a dictionary while something packed with it is in no slot.
#[derive(Debug)]
pub(crate) struct Pin {
    dictionaries: Arc<Dictionaries>,
    id: u32,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.dictionaries.registry().release(self.id);
    }
}

/// What a dictionary is, for `SNUG DICTIONARIES`.
#[derive(Clone, Debug)]
pub struct DictionaryInfo {
    /// The id that packed forms refer to it by.
    pub id: u32,
    /// What it is.
    pub kind: DictionaryKind,
    /// Its bytes, as it would be stored.
    pub bytes: usize,
    /// Everything that is held for it.
    pub memory_bytes: usize,
    /// The level that it packs at.
    pub level: i32,
    /// Values packed with it.
    pub references: u64,
}

/// The dictionary of one value and its copies, each of which holds it so: it is
/// current for each, and counts as referred to by each.
#[derive(Debug)]
pub struct OwnDictionary {
    dictionary: Arc<Dictionary>,
    dictionaries: Arc<Dictionaries>,
}

impl OwnDictionary {
    pub(crate) fn dictionary(&self) -> &Arc<Dictionary> {
        &self.dictionary
    }

    /// Takes the same dictionary for another level, under the same id; another one is
    /// refused.
    pub(crate) fn relevel(&mut self, dictionary: Arc<Dictionary>) {
        if self.dictionaries.registry().relevel(Arc::clone(&dictionary)) {
            self.dictionary = dictionary;
        }
    }
}

impl Clone for OwnDictionary {
    fn clone(&self) -> Self {
        let (id, registry) = (self.dictionary.id(), self.dictionaries.registry());
        registry.refer(id);
        registry.adopt(id);
        Self {
            dictionary: Arc::clone(&self.dictionary),
            dictionaries: Arc::clone(&self.dictionaries),
        }
    }
}

impl Drop for OwnDictionary {
    fn drop(&mut self) {
        let (id, registry) = (self.dictionary.id(), self.dictionaries.registry());
        registry.release(id);
        registry.supersede(id);
    }
}

/// A family's dictionary, held by a value of which pieces are packed with it, or by
/// one that is on its way there: it is referred to once by each.
#[derive(Debug)]
pub(crate) struct HeldDictionary {
    dictionary: Arc<Dictionary>,
    dictionaries: Arc<Dictionaries>,
}

impl HeldDictionary {
    pub(crate) fn dictionary(&self) -> &Arc<Dictionary> {
        &self.dictionary
    }

    /// The same, as the dictionary of one value.
    pub(crate) fn to_own(&self) -> OwnDictionary {
        self.dictionaries.owned(Arc::clone(&self.dictionary))
    }
}

impl Clone for HeldDictionary {
    fn clone(&self) -> Self {
        self.dictionaries.hold(Arc::clone(&self.dictionary))
    }
}

impl Drop for HeldDictionary {
    fn drop(&mut self) {
        self.dictionaries.registry().release(self.dictionary.id());
    }
}
