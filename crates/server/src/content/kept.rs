//! What a worker keeps of bodies that it has sent, so that the next request costs less:
//! bodies that were encoded for a client, and the tags of packed forms.
//!
//! Everything is kept by what it was made of and not by key: a form by its own bytes, an
//! encoded body by the tag of its raw bytes. So nothing here is ever out of date, and
//! nobody has to tell when a key changes.
//!
//! Each is kept in two generations. When the younger has grown to half of what is allowed,
//! it becomes the older and what that held is forgotten; what is found in the older moves to
//! the younger. That keeps what is asked for, with no list to maintain.

use crate::text::tag::Tag;
use bytes::Bytes;
use foldhash::HashMap;
use snug_codec::coding::Coding;
use snug_store::{PackedChain, WeakChain};
use std::cell::RefCell;
use std::hash::Hash;

/// Forms and chains whose tags are known: 48 bytes each, about.
const TAGS_MAX: usize = 8192;

#[derive(Debug)]
struct Generations<K, V> {
    young: HashMap<K, (V, usize)>,
    old: HashMap<K, (V, usize)>,
    /// What the younger weigh.
    weight: usize,
}

impl<K, V> Default for Generations<K, V> {
    fn default() -> Self {
        Self { young: HashMap::default(), old: HashMap::default(), weight: 0 }
    }
}

impl<K: Hash + Eq, V: Clone> Generations<K, V> {
    /// Keeps a value of this weight, of which there may be so much in all.
    fn put(&mut self, key: K, value: V, weight: usize, most: usize) {
        if weight > most / 2 {
            return;
        }
        if self.weight + weight > most / 2 {
            self.old = std::mem::take(&mut self.young);
            self.weight = 0;
        }
        if let Some((_, before)) = self.young.insert(key, (value, weight)) {
            self.weight -= before;
        }
        self.weight += weight;
    }

    fn has(&self, key: &K) -> bool {
        self.young.contains_key(key) || self.old.contains_key(key)
    }

    fn get(&mut self, key: &K, most: usize) -> Option<V>
    where
        K: Copy,
    {
        if let Some((value, _)) = self.young.get(key) {
            return Some(value.clone());
        }
        let (value, weight) = self.old.remove(key)?;
        self.put(*key, value.clone(), weight, most);
        Some(value)
    }
}

#[derive(Debug, Default)]
struct Kept {
    /// By the hash of a packed form.
    forms: Generations<u128, Tag>,
    /// By the address of a chain that is still the same.
    chains: Generations<usize, (WeakChain, Tag)>,
    bodies: Generations<(Tag, Coding), Bytes>,
}

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

/// The tag of what a packed form holds, if it is known.
pub(super) fn tag_of_form(form: u128) -> Option<Tag> {
    KEPT.with_borrow_mut(|kept| kept.forms.get(&form, TAGS_MAX))
}

pub(super) fn keep_tag_of_form(form: u128, tag: Tag) {
    KEPT.with_borrow_mut(|kept| kept.forms.put(form, tag, 1, TAGS_MAX));
}

/// The tag of a packed chain, if it is known.
pub(super) fn tag_of_chain(chain: &PackedChain) -> Option<Tag> {
    let known = KEPT.with_borrow_mut(|kept| kept.chains.get(&chain.address(), TAGS_MAX));
    known.filter(|(known, _)| known.is(chain)).map(|(_, tag)| tag)
}

pub(super) fn keep_tag_of_chain(chain: &PackedChain, tag: Tag) {
    let known = (chain.downgrade(), tag);
    KEPT.with_borrow_mut(|kept| kept.chains.put(chain.address(), known, 1, TAGS_MAX));
}

/// Whether it is kept what a body comes to in a coding.
pub(super) fn has_body(tag: Tag, coding: Coding) -> bool {
    KEPT.with_borrow(|kept| kept.bodies.has(&(tag, coding)))
}

/// What a body comes to in a coding, if that was made lately.
pub(super) fn body(tag: Tag, coding: Coding, most: usize) -> Option<Bytes> {
    KEPT.with_borrow_mut(|kept| kept.bodies.get(&(tag, coding), most))
}

/// Keeps an encoded body, of at most so many bytes in all.
pub(super) fn keep_body(tag: Tag, coding: Coding, body: &Bytes, most: usize) {
    let weight = body.len() + 128;
    KEPT.with_borrow_mut(|kept| kept.bodies.put((tag, coding), body.clone(), weight, most));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_there_is_never_too_much() {
        let mut kept = Generations::default();
        for n in 0..10_000 {
            kept.put(n, n, 3, 300);
            assert_eq!(kept.get(&0, 300), Some(0), "asked for all the time");
            let weight =
                |all: &HashMap<i32, (i32, usize)>| all.values().map(|(_, w)| w).sum::<usize>();
            assert!(weight(&kept.young) + weight(&kept.old) <= 300);
            assert_eq!(weight(&kept.young), kept.weight);
        }
        assert_eq!(kept.get(&9_000, 300), None);
        kept.put(-1, -1, 151, 300);
        assert_eq!(kept.get(&-1, 300), None, "too much for one");
        kept.put(-2, -2, 1, 0);
        assert_eq!(kept.get(&-2, 0), None);
    }
}
