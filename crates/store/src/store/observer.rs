//! Who is told of what becomes of a store.

use super::batch::Batch;
use crate::effect::{Commit, Event, Replaced, Told};
use crate::slot::{Detached, SlotGuard};
use std::fmt::Display;

/// Who is told of what becomes of a store, as it happens: watches, waiting clients,
/// keyspace events, and those who follow commits.
///
/// Called under the locks of what has changed: to be quick, and to lock no slot but
/// where it says so.
#[allow(unused_variables)]
pub trait Observer: Send + Sync {
    /// A key changed in a slot that is observed ([`SlotGuard::observe`]); `told` is
    /// not [`Told::Nobody`]. `came` if it is new, or has been
    /// given the value of another key.
    fn changed(&self, slot: &SlotGuard<'_>, key: &[u8], told: Told, came: bool) {}

    /// A key changed, and changes are heeded ([`Class::CHANGE`]). For what `WATCH` does
    /// not take for a change it is not called.
    fn modified(&self, key: &[u8], event: Event) {}

    /// An event happened to a key, of a class that is heeded ([`Store::heed`]).
    fn event(&self, db: usize, key: &[u8], event: Event) {}

    /// These databases are about to be emptied or swapped. The store is the caller's
    /// alone; slots can be locked.
    fn replacing(&self, store: &Batch<'_>, dbs: &[usize]) {}

    /// They were: none of their slots is observed any more. The store is still the
    /// caller's alone; slots can be locked.
    fn replaced(&self, store: &Batch<'_>, dbs: &[usize], how: Replaced) {}

    /// A commit took effect, and commits are followed ([`Batch::follow`]). Commits
    /// of several sessions may arrive out of order; their numbers have no gap.
    fn committed(&self, commit: Commit<'_>) {}

    /// Frees the value of such a key, here or elsewhere. Called under the slot's
    /// lock.
    fn free_expired(&self, value: Detached) {
        drop(value);
    }

    /// The MIME type that somebody has declared for a string, in lower case and without
    /// parameters. Called with no lock held, when the string is about to be packed.
    fn declared(&self, store: &Batch<'_>, db: usize, key: &[u8]) -> Option<String> {
        None
    }

    /// A packed form does not unpack to what it was made of, and why. A slot's lock
    /// may be held.
    fn damaged(&self, why: &dyn Display) {}
}

/// An observer that listens to nothing.
#[derive(Debug)]
pub struct Unobserved;
