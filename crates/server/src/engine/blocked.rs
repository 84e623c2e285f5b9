//! Clients that wait for a key: `XREAD BLOCK` and `XREADGROUP BLOCK`, and
//! whatever else is to wait for what others write.
//!
//! ```text
//!  (database, slot) -> [ key, waiter | key, waiter | ... ]     in order of arrival
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
//! slots' locks. Clients are served in the order in which they began to wait,
//! each with what its command finds then; one that finds nothing keeps its
//! place. A waiter ends once: [`State`] decides between its being served, its
//! time, `CLIENT UNBLOCK` and the end of its connection.
//!
//! A slot in which nobody waits costs a writer nothing but the branch it takes
//! for `WATCH` anyway.
//!
//! Locks: a waiter's state is locked by whoever serves it while that takes the
//! slots of its keys, so nobody asks for a state while holding a slot (a waiter
//! that is being registered is not yet known to others). The registry is locked
//! last and for moments.

use crate::engine::call::call;
use crate::engine::client::Caller;
use crate::engine::command::{Command, Unanswered};
use crate::engine::context::{Context, Origin};
use crate::engine::out::{Chunk, Out};
use crate::engine::server::Server;
use crate::follow::clients::Shared;
use crate::follow::pubsub::{self, OnBehalf};
use crate::measure::stats::Stat;
use crate::request::args::OwnedArgs;
use crate::request::error::Error;
use bytes::Bytes;
use foldhash::HashMap;
use parking_lot::Mutex;
use snug_resp::Writer;
use snug_store::{Batch, Interest, Type};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What a handler that finds nothing yet asks for.
pub(crate) struct Wait<'w> {
    /// The command to execute again.
    pub args: &'w dyn Fn() -> OwnedArgs,
    /// Where its keys are among the arguments.
    pub keys: std::ops::Range<usize>,
    /// For how long to wait, in milliseconds; 0 for ever.
    pub timeout_ms: u64,
    /// What a key has to hold to be worth a look.
    pub awaits: Type,
    /// Whether a key that is gone, or holds something else, is worth one too.
    pub without_key: bool,
    /// Of clients with the same rivals, waiting for one key alone, none finds
    /// anything if the first did not: they need not be asked.
    pub rivals: Option<&'w [u8]>,
}

/// A client that waits, and for what.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub client: Arc<Shared>,
    caller: Caller,
    command: &'static Command,
    args: OwnedArgs,
    keys: Vec<Key>,
    awaits: Type,
    without_key: bool,
    rivals: Option<Vec<u8>>,
    /// Replies are off: it is served all the same.
    silent: bool,
    pub deadline: Option<Instant>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Waiting,
    /// It waits no longer; the reply, until its connection takes it.
    Ended(Option<Vec<Chunk>>),
}

/// Why a client is to wait no longer, though nothing came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// As if its time were over.
    Timeout,
    /// It is told that somebody did it.
    Unblocked,
    /// This node may no longer execute commands on its keys; the error.
    Refused(&'static str),
}

type Place = (usize, usize);
type Key = Vec<u8>;

#[derive(Debug, Default)]
struct Registry {
    slots: HashMap<Place, Vec<(Key, Arc<Waiter>)>>,
    clients: HashMap<u64, Arc<Waiter>>,
    /// Keys found ready by a thread that serves nobody.
    left: Vec<(usize, Key)>,
}

/// All clients that wait.
#[derive(Debug, Default)]
pub(crate) struct Blocked {
    registry: Mutex<Registry>,
    count: AtomicUsize,
}

thread_local! {
    /// Keys that what this thread executes has made ready.
    static READY: RefCell<VecDeque<(usize, Key)>> = const { RefCell::new(VecDeque::new()) };
    static ANY_READY: Cell<bool> = const { Cell::new(false) };
}

fn make_ready(db: usize, key: &[u8]) {
    ANY_READY.set(true);
    READY.with_borrow_mut(|ready| {
        if !ready.iter().any(|(other_db, other)| *other_db == db && other == key) {
            ready.push_back((db, key.to_vec()));
        }
    });
}

/// Whether this thread has made keys ready and is to [`serve`](Server::serve).
#[inline]
pub(crate) fn any_ready() -> bool {
    ANY_READY.get()
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
        let mut keys: HashMap<(usize, &[u8]), bool> = HashMap::default();
        for (key, waiter) in registry.slots.values().flatten() {
            *keys.entry((waiter.caller.db, key)).or_default() |= waiter.without_key;
        }
        (keys.len(), keys.values().filter(|&&without_key| without_key).count())
    }

    /// A key in a slot changed; whether anybody waits there. Under the slot's lock.
    #[cold]
    pub(crate) fn changed(&self, db: usize, slot: usize, key: &[u8]) -> bool {
        let registry = self.registry.lock();
        let waiters = registry.slots.get(&(db, slot));
        if waiters.is_some_and(|waiters| waiters.iter().any(|(awaited, _)| awaited == key)) {
            make_ready(db, key);
        }
        waiters.is_some()
    }

    /// Databases were emptied or swapped: marks the slots of awaited keys
    /// again, and has all who wait there look again: those who also wait for
    /// keys to go, or all. Needs the store to itself.
    pub(crate) fn replaced(&self, store: &Batch<'_>, dbs: &[usize], all: bool) {
        let registry = self.registry.lock();
        for ((db, slot), waiters) in registry.slots.iter().filter(|((db, _), _)| dbs.contains(db)) {
            store.lock_slot(*db, *slot).observe(Interest::Wait, true);
            let woken = waiters.iter().filter(|(_, waiter)| all || waiter.without_key);
            woken.for_each(|(key, _)| make_ready(*db, key));
        }
    }

    /// Registers a waiter, whose keys' slots are held.
    fn add(&self, store: &Batch<'_>, waiter: &Arc<Waiter>) {
        for name in &waiter.keys {
            let key = store.key(name);
            store.lock(waiter.caller.db, &key).observe(Interest::Wait, true);
            let mut registry = self.registry.lock();
            let waiters = registry.slots.entry((waiter.caller.db, key.slot())).or_default();
            waiters.push((name.clone(), Arc::clone(waiter)));
        }
        self.registry.lock().clients.insert(waiter.client.id, Arc::clone(waiter));
        self.count.fetch_add(1, Relaxed);
        waiter.client.figures.blocked.store(true, Relaxed);
    }

    /// Takes a waiter out, which has ended.
    pub(crate) fn remove(&self, store: &Batch<'_>, waiter: &Arc<Waiter>) {
        for name in &waiter.keys {
            let key = store.key(name);
            let slot = store.lock(waiter.caller.db, &key);
            let mut registry = self.registry.lock();
            let place = (waiter.caller.db, key.slot());
            let Some(waiters) = registry.slots.get_mut(&place) else { continue };
            waiters.retain(|(_, other)| !Arc::ptr_eq(other, waiter));
            if waiters.is_empty() {
                registry.slots.remove(&place);
                let awaited = |slot| registry.slots.contains_key(&(waiter.caller.db, slot));
                if !slot.covered(&key).any(awaited) {
                    slot.observe(Interest::Wait, false);
                }
            }
        }
        self.registry.lock().clients.remove(&waiter.client.id);
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
            self.registry.lock().left.extend(READY.take());
        }
    }

    /// Takes what others have left.
    pub(crate) fn take_over(&self) {
        for (db, key) in std::mem::take(&mut self.registry.lock().left) {
            make_ready(db, &key);
        }
    }
}

impl Waiter {
    /// The reply, once it has ended.
    pub(crate) fn take_reply(&self) -> Option<Vec<Chunk>> {
        match &mut *self.state.lock() {
            State::Waiting => None,
            State::Ended(reply) => Some(reply.take().unwrap_or_default()),
        }
    }

    /// Ends the waiting, for the client goes.
    pub(crate) fn leave(&self, blocked: &Blocked) {
        self.finish(blocked, &mut self.state.lock(), Vec::new());
    }

    /// Ends the waiting, for nothing came; false if it had ended.
    pub(crate) fn end(&self, server: &Server, worker: usize, reason: Reason) -> bool {
        let mut reply = Vec::new();
        let mut writer = Writer::new(&mut reply, self.caller.protocol);
        match reason {
            Reason::Timeout => writer.null_array(),
            Reason::Unblocked => {
                writer.error("UNBLOCKED client unblocked via CLIENT UNBLOCK");
            }
            Reason::Refused(error) => writer.error(error),
        }
        let reply = vec![Bytes::from(reply).into()];
        let ended = self.finish(&server.blocked, &mut self.state.lock(), reply);
        if ended {
            let error = match reason {
                Reason::Timeout => None,
                Reason::Unblocked => Some("UNBLOCKED"),
                Reason::Refused(error) => error.split(' ').next(),
            };
            server.stats.add(Stat::total_commands_processed, 1);
            server.monitor.ended(worker, self.command, error.is_some());
            if let Some(code) = error {
                server.stats.add(Stat::total_error_replies, 1);
                server.monitor.error(code);
            }
        }
        ended
    }

    fn finish(&self, blocked: &Blocked, state: &mut State, reply: Vec<Chunk>) -> bool {
        if matches!(state, State::Ended(_)) {
            return false;
        }
        *state = State::Ended((!self.silent).then_some(reply));
        blocked.count.fetch_sub(1, Relaxed);
        self.client.figures.blocked.store(false, Relaxed);
        self.client.wake();
        true
    }

    /// Executes the command for the client; whether it still waits.
    fn serve(self: &Arc<Self>, server: &Server, store: &Batch<'_>, worker: usize) -> bool {
        let mut state = self.state.lock();
        if matches!(*state, State::Ended(_)) || self.client.is_killed() {
            return false;
        }
        let mut caller = self.caller;
        let mut out = Out::default();
        out.protocol = caller.protocol;
        let command = self.command;
        let mut cx = Context {
            caller: &mut caller,
            client: None,
            store,
            server,
            command,
            worker,
            origin: Origin::Waiter(self),
            hashed: None,
            pool: None,
            finished: None,
        };
        let on_behalf = OnBehalf::of(&self.client);
        let called = call(&mut cx, command, self.args.args(), &mut out);
        drop(on_behalf);
        let own = pubsub::take_own();
        if called.is_err() {
            if !own.is_empty() {
                self.client.push(&own);
            }
            return true;
        }
        let mut reply = Vec::new();
        out.drain(|chunk| reply.push(chunk));
        reply.push(Bytes::from(own).into());
        self.finish(&server.blocked, &mut state, reply);
        false
    }
}

impl Server {
    /// Ends a client's waiting; false if it does not wait.
    pub(crate) fn unblock(&self, worker: usize, client: u64, reason: Reason) -> bool {
        self.blocked.waiter(client).is_some_and(|waiter| waiter.end(self, worker, reason))
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
        while let Some((db, key)) = READY.with_borrow_mut(VecDeque::pop_front) {
            self.serve_key(store, worker, db, &key);
        }
        ANY_READY.set(false);
    }

    /// Each client is asked once, so what serving one makes ready anew comes to
    /// an end with the clients that wait.
    fn serve_key(&self, store: &Batch<'_>, worker: usize, db: usize, name: &[u8]) {
        let key = store.key(name);
        let waiters: Vec<Arc<Waiter>> = {
            let registry = self.blocked.registry.lock();
            let Some(waiters) = registry.slots.get(&(db, key.slot())) else { return };
            let of_key = waiters.iter().filter(|(awaited, _)| awaited == name);
            of_key.map(|(_, waiter)| Arc::clone(waiter)).collect()
        };
        let mut in_vain: Vec<&[u8]> = Vec::new();
        for waiter in &waiters {
            let rivals = waiter.rivals.as_deref();
            if rivals.is_some_and(|rivals| in_vain.contains(&rivals)) {
                continue;
            }
            let holds = {
                let mut slot = store.lock(db, &key);
                let found = slot.find_untouched(&key);
                found.map(|found| slot.type_of(found))
            };
            let worth_a_look = waiter.without_key || holds == Some(waiter.awaits);
            if worth_a_look && waiter.serve(self, store, worker) {
                in_vain.extend(rivals);
            }
        }
    }
}

impl Context<'_> {
    /// Has the client wait, for its command found nothing: what the handler is to
    /// return. To be called under a scope that holds the slots of all its keys, and
    /// only if it [may block](Origin::may_block).
    pub(crate) fn wait(&self, wait: Wait<'_>) -> Unanswered {
        if let Origin::Waiter(waiter) = self.origin {
            return Unanswered::Wait(Arc::clone(waiter));
        }
        let Some(client) = self.client.as_deref() else { return Error::NO_CLIENT.into() };
        let args = (wait.args)();
        let mut keys: Vec<Key> = wait.keys.map(|at| args.args().bytes(at).to_vec()).collect();
        keys.sort_unstable();
        keys.dedup();
        let timeout = (wait.timeout_ms > 0).then(|| Duration::from_millis(wait.timeout_ms));
        let waiter = Arc::new(Waiter {
            client: Arc::clone(&client.shared),
            caller: *self.caller,
            command: self.command,
            args,
            keys,
            awaits: wait.awaits,
            without_key: wait.without_key,
            rivals: wait.rivals.map(<[u8]>::to_vec),
            silent: client.is_silent(),
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            state: Mutex::new(State::Waiting),
        });
        self.server.blocked.add(self.store, &waiter);
        let index = u32::from(self.command.index) + 1;
        client.shared.figures.last_command.store(index, Relaxed);
        Unanswered::Wait(waiter)
    }
}
