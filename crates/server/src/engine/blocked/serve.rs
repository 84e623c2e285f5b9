//! What is done for those who wait: their commands are executed when a key is ready, or they
//! are told that their waiting has ended.

use super::ready::{ANY_READY, READY, ReadyKeys};
use super::waiter::{Reason, Waiter};
use crate::engine::server::Server;
use smallvec::SmallVec;
use snug_store::{Batch, Type};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Server {
    /// Ends a client's waiting; false if it does not wait.
    pub(crate) fn unblock(&self, worker: usize, client: u64, reason: Reason) -> bool {
        self.blocked.waiter(client).is_some_and(|waiter| waiter.end(self, worker, reason))
    }

    /// Ends the waiting of all clients, for this node is a replica now. The store is the
    /// caller's alone, so the first worker counts nothing meanwhile.
    pub(crate) fn unblock_all(&self, error: &'static str) {
        let waiters: Vec<_> = self.blocked.registry.lock().clients.values().cloned().collect();
        for waiter in waiters {
            waiter.end(self, 0, Reason::Refused(error));
        }
    }

    /// Ends the waiting of those whose keys this node no longer serves, or that
    /// may not be served: what they wait for will not be written here.
    pub(crate) fn refuse_waiters(&self, worker: usize) {
        if self.blocked.clients() == 0 || !self.cluster.may_refuse() {
            return;
        }
        let waiters: Vec<_> = self.blocked.registry.lock().clients.values().cloned().collect();
        for waiter in waiters {
            // All of its keys are of one slot.
            let slot = waiter.keys.first().map(|key| usize::from(snug_store::cluster_slot(key)));
            if let Some(error) = slot.and_then(|slot| self.cluster.refusal(&self.config, slot)) {
                waiter.end(self, worker, Reason::Refused(error));
            }
        }
    }

    /// Serves the clients that wait for what this thread has made ready. To be
    /// called between commands, with no slot held.
    #[cold]
    pub(crate) fn serve(&self, store: &Batch<'_>, worker: usize) {
        while let Some((db, key)) = READY.with_borrow_mut(ReadyKeys::pop) {
            self.serve_key(store, worker, db, &key);
        }
        ANY_READY.set(false);
    }

    /// Serves those who wait for a key. Each client is asked once and who comes
    /// meanwhile is not, so what serving one makes ready anew comes to an end with the
    /// clients that wait.
    pub(super) fn serve_key(&self, store: &Batch<'_>, worker: usize, db: usize, name: &[u8]) {
        let key = store.key(name);
        let place = (db, key.slot());
        let holds = || {
            let mut slot = store.lock(db, &key);
            let found = slot.find_entry(&key);
            found.map(|found| slot.type_of(found))
        };
        let mut held = holds();
        let last = self.blocked.arrivals.load(Relaxed);
        let awaited: SmallVec<[Type; 1]> = {
            let registry = self.blocked.registry.lock();
            registry.queues(place, name).iter().map(|queue| queue.awaits).collect()
        };
        for awaits in awaited {
            let mut in_vain: Vec<Arc<Waiter>> = Vec::new();
            let mut asked = 0;
            loop {
                let next = self.blocked.next(place, name, (awaits, held), asked + 1..=last);
                if next.is_empty() {
                    break;
                }
                for waiter in next {
                    asked = waiter.arrival;
                    let is_worth_a_look = waiter.without_key || held == Some(awaits);
                    let rivals = waiter.rivals.is_some()
                        && in_vain.iter().any(|other| other.rivals == waiter.rivals);
                    if !is_worth_a_look || rivals {
                        continue;
                    }
                    if !waiter.serve(self, store, worker, name) {
                        self.blocked.registry.lock().take_out(place, name, &waiter);
                    } else if waiter.rivals.is_some() {
                        in_vain.push(waiter);
                    }
                    held = holds();
                }
            }
        }
    }
}
