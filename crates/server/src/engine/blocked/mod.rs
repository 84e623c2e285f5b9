//! Clients that wait for a key: `XREAD BLOCK` and `XREADGROUP BLOCK`, and
//! whatever else is to wait for what others write.
//!
//! ```text
//!  (database, slot) -> key -> type that it is to hold -> [ waiter | waiter | ... ]
//!                                                        in order of arrival
//!
//!  waiting client's worker              writer's worker
//!  handler finds nothing,
//!  still holds its slots:
//!    registers, slot is awaited
//!                                       handler changes the key: the store tells
//!                                         -> the key is ready
//!                                       command (or EXEC) done, slots free:
//!                                         `serve` executes the waiter's command
//!                                         on its behalf; its reply -> waiter
//!    <------------- wakes --------------
//!  takes the reply, leaves the registry,
//!  goes on with what is pipelined
//! ```
//!
//! Nothing is lost between looking and waiting, for both happen under the
//! slots' locks. A key becomes ready when it comes to be; only for those who say so, as
//! `XREAD` does, with each of its changes and when it goes.
//! Keys are served in the order in which they became ready; of each key
//! the clients in the order in which they began to wait, for as long as the key holds
//! what they wait for, each with what its command finds then. One that finds nothing
//! keeps its place. One that waits for several keys is served from the one that is ready
//! ([`Context::keys_to_try`]). A command that is served may write, as one that moves an
//! item from list to list: what this makes ready comes last in the line of keys, and all
//! ends when no key is ready. A key that holds another type than a client waits for leaves it
//! waiting. A waiter ends once: [`State`] decides between its being served, its time,
//! `CLIENT UNBLOCK` and the end of its connection.
//!
//! | operation | cost |
//! | --- | --- |
//! | a write to a slot in which nobody waits | the branch it takes for `WATCH` anyway |
//! | to a slot in which somebody does | a search for the key by its name |
//! | to wait, to wait no longer | O(log n) for each key, n the clients that wait for it |
//! | to serve a key | O(log n) for each client served; those behind them cost nothing |
//!
//! Locks: a waiter's state is locked by whoever serves it while that takes the
//! slots of its keys, so nobody asks for a state while holding a slot (a waiter
//! that is being registered is not yet known to others). The registry is locked
//! last and for moments.

use foldhash::HashMap;
use parking_lot::Mutex;
use ready::{ANY_READY, READY, make_ready};
use registry::{Place, Queues, Registry};
use smallvec::SmallVec;
use snug_store::{Batch, Interest, Type};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

mod ready;
mod registry;
mod serve;
#[cfg(test)]
mod tests;
mod wait;
mod waiter;

pub(crate) use ready::any_ready;
pub(crate) use wait::Wait;
pub(crate) use waiter::{Reason, Waiter};

/// All clients that wait.
#[derive(Debug, Default)]
pub(crate) struct Blocked {
    registry: Mutex<Registry>,
    count: AtomicUsize,
    /// How many have ever begun to wait.
    arrivals: AtomicU64,
}

impl Blocked {
    /// Clients that wait.
    pub(crate) fn clients(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Clients that wait and will not for ever.
    pub(crate) fn clients_with_timeout(&self) -> usize {
        let registry = self.registry.lock();
        registry.clients.values().filter(|waiter| waiter.deadline.is_some()).count()
    }

    /// Keys that are waited for, and those of them whose going is too.
    pub(crate) fn keys(&self) -> (usize, usize) {
        let registry = self.registry.lock();
        let keys = || registry.slots.values().flat_map(HashMap::values);
        let going = |queues: &&Queues| queues.iter().any(|queue| queue.without_key > 0);
        (keys().count(), keys().filter(going).count())
    }

    /// A key in a slot changed, or came to be; whether anybody waits there. Under the
    /// slot's lock.
    #[cold]
    pub(crate) fn changed(&self, db: usize, slot: usize, key: &[u8], came: bool) -> bool {
        let registry = self.registry.lock();
        let keys = registry.slots.get(&(db, slot));
        let queues = keys.and_then(|keys| keys.get(key));
        if queues.is_some_and(|queues| came || queues.iter().any(|queue| queue.each_change)) {
            make_ready(db, key);
        }
        keys.is_some()
    }

    /// Databases were emptied or swapped: marks the slots of awaited keys
    /// again, and has all who wait there look again: those who also wait for
    /// keys to go, or all. Needs the store to itself.
    pub(crate) fn replaced(&self, store: &Batch<'_>, dbs: &[usize], all: bool) {
        let registry = self.registry.lock();
        for ((db, slot), keys) in registry.slots.iter().filter(|((db, _), _)| dbs.contains(db)) {
            store.lock_slot(*db, *slot).observe(Interest::Wait, true);
            let going = |queues: &Queues| queues.iter().any(|queue| queue.without_key > 0);
            let woken = keys.iter().filter(|(_, queues)| all || going(queues));
            woken.for_each(|(key, _)| make_ready(*db, key));
        }
    }

    /// Registers a waiter, whose keys' slots are held.
    fn add(&self, store: &Batch<'_>, waiter: &Arc<Waiter>) {
        for name in &waiter.keys {
            let key = store.key(name);
            store.lock(waiter.caller.db, &key).observe(Interest::Wait, true);
            self.registry.lock().put_in((waiter.caller.db, key.slot()), name, waiter);
        }
        self.registry.lock().clients.insert(waiter.client.id, Arc::clone(waiter));
        self.count.fetch_add(1, Relaxed);
        waiter.client.figures.blocked.store(true, Relaxed);
    }

    /// Takes a waiter out, which has ended. Waits for nobody: a script may have a slot for
    /// long. Such a slot stays marked until its next change.
    pub(crate) fn remove(&self, store: &Batch<'_>, waiter: &Arc<Waiter>) {
        for name in &waiter.keys {
            let key = store.key(name);
            let slot = store.try_lock(waiter.caller.db, &key);
            let mut registry = self.registry.lock();
            registry.take_out((waiter.caller.db, key.slot()), name, waiter);
            let awaited = |slot| registry.slots.contains_key(&(waiter.caller.db, slot));
            if let Some(slot) = slot
                && !slot.covered(&key).any(awaited)
            {
                slot.observe(Interest::Wait, false);
            }
        }
        self.registry.lock().clients.remove(&waiter.client.id);
    }

    /// A few of those who wait for a key to hold a type, by arrival: all, if it holds
    /// that, else such as wait for it to go, too, with others between them.
    fn next(
        &self,
        place: Place,
        key: &[u8],
        (awaits, held): (Type, Option<Type>),
        arrivals: RangeInclusive<u64>,
    ) -> SmallVec<[Arc<Waiter>; 8]> {
        let registry = self.registry.lock();
        let queue = registry.queues(place, key).iter().find(|queue| queue.awaits == awaits);
        let queue = queue.filter(|queue| held == Some(awaits) || queue.without_key > 0);
        let waiters =
            queue.filter(|_| !arrivals.is_empty()).map(|queue| queue.waiters.range(arrivals));
        waiters.into_iter().flatten().take(8).map(|(_, waiter)| Arc::clone(waiter)).collect()
    }

    /// What a client waits with, if it does.
    fn waiter(&self, client: u64) -> Option<Arc<Waiter>> {
        self.registry.lock().clients.get(&client).map(Arc::clone)
    }

    /// Has the keys that this thread made ready served by a worker: for threads
    /// that are none.
    pub(crate) fn leave_to_others(&self) {
        if any_ready() {
            ANY_READY.set(false);
            self.registry.lock().left.extend(READY.take().line);
        }
    }

    /// Takes what others have left.
    pub(crate) fn take_over(&self) {
        for (db, key) in std::mem::take(&mut self.registry.lock().left) {
            make_ready(db, &key);
        }
    }
}
