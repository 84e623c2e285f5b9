//! Who waits for which key, in order of arrival.

use super::waiter::Waiter;
use foldhash::HashMap;
use smallvec::SmallVec;
use snug_store::Type;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) type Place = (usize, usize);

pub(super) type Key = Vec<u8>;

/// The queues of a key: seldom more than one.
pub(super) type Queues = SmallVec<[Queue; 1]>;

/// Those who wait for a key to hold a type.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) awaits: Type,
    /// By arrival.
    pub(super) waiters: BTreeMap<u64, Arc<Waiter>>,
    /// Whether any of them ever asked for each change.
    pub(super) each_change: bool,
    /// How many of them wait for the key to go, too.
    pub(super) without_key: usize,
}

#[derive(Debug, Default)]
pub(super) struct Registry {
    pub(super) slots: HashMap<Place, HashMap<Key, Queues>>,
    pub(super) clients: HashMap<u64, Arc<Waiter>>,
    /// Keys found ready by a thread that serves nobody.
    pub(super) left: Vec<(usize, Key)>,
}

impl Registry {
    pub(super) fn put_in(&mut self, place: Place, key: &[u8], waiter: &Arc<Waiter>) {
        let queues = self.slots.entry(place).or_default().entry(key.to_vec()).or_default();
        let awaits = waiter.awaits;
        let at = queues.iter().position(|queue| queue.awaits == awaits).unwrap_or_else(|| {
            queues.push(Queue {
                awaits,
                waiters: BTreeMap::new(),
                each_change: false,
                without_key: 0,
            });
            queues.len() - 1
        });
        let queue = &mut queues[at];
        queue.waiters.insert(waiter.arrival, Arc::clone(waiter));
        queue.each_change |= waiter.each_change;
        queue.without_key += usize::from(waiter.without_key);
    }

    /// Takes a waiter out of a key's queue, if it is still in it.
    pub(super) fn take_out(&mut self, place: Place, key: &[u8], waiter: &Waiter) {
        let Some(keys) = self.slots.get_mut(&place) else { return };
        let Some(queues) = keys.get_mut(key) else { return };
        let Some(at) = queues.iter().position(|queue| queue.awaits == waiter.awaits) else {
            return;
        };
        let queue = &mut queues[at];
        if queue.waiters.remove(&waiter.arrival).is_some() {
            queue.without_key -= usize::from(waiter.without_key);
        }
        if queue.waiters.is_empty() {
            queues.swap_remove(at);
        }
        if queues.is_empty() {
            keys.remove(key);
        }
        if keys.is_empty() {
            self.slots.remove(&place);
        }
    }

    pub(super) fn queues(&self, place: Place, key: &[u8]) -> &[Queue] {
        self.slots.get(&place).and_then(|keys| keys.get(key)).map_or(&[], |queues| queues)
    }
}
