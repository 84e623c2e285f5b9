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

use crate::engine::call::call;
use crate::engine::client::Caller;
use crate::engine::command::{Command, Unanswered};
use crate::engine::context::{Context, Origin};
use crate::engine::out::{Chunk, Out};
use crate::engine::server::Server;
use crate::engine::waits::Behind;
use crate::follow::clients::Shared;
use crate::follow::pubsub::{self, OnBehalf};
use crate::measure::stats::Stat;
use crate::outside::clock::Instant;
use crate::request::args::{Args, OwnedArgs};
use crate::request::error::Error;
use bytes::Bytes;
use foldhash::{HashMap, HashSet};
use parking_lot::Mutex;
use smallvec::SmallVec;
use snug_resp::{Protocol, Writer};
use snug_store::{Batch, Interest, Type};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

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
    /// Whether each change of a key is worth one, not only that it comes to be.
    pub each_change: bool,
    /// Whether a key that is gone, or holds something else, is worth one too.
    pub without_key: bool,
    /// Of clients with the same rivals, which wait for one key alone, none finds
    /// anything if the first did not: they need not be asked.
    pub rivals: Option<&'w [u8]>,
}

/// A client that waits, and for what.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub client: Arc<Shared>,
    /// How many had begun to wait before it, with itself.
    arrival: u64,
    caller: Caller,
    command: &'static Command,
    args: OwnedArgs,
    keys: Vec<Key>,
    awaits: Type,
    each_change: bool,
    without_key: bool,
    rivals: Option<Vec<u8>>,
    /// Replies are off: it is served all the same.
    silent: bool,
    /// It waits for no key, but until replicas have executed what it wrote.
    behind: Option<Behind>,
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

/// Those who wait for a key to hold a type.
#[derive(Debug)]
struct Queue {
    awaits: Type,
    /// By arrival.
    waiters: BTreeMap<u64, Arc<Waiter>>,
    /// Whether any of them ever asked for each change.
    each_change: bool,
    /// How many of them wait for the key to go, too.
    without_key: usize,
}

/// The queues of a key: seldom more than one.
type Queues = SmallVec<[Queue; 1]>;

#[derive(Debug, Default)]
struct Registry {
    slots: HashMap<Place, HashMap<Key, Queues>>,
    clients: HashMap<u64, Arc<Waiter>>,
    /// Keys found ready by a thread that serves nobody.
    left: Vec<(usize, Key)>,
}

impl Registry {
    fn put_in(&mut self, place: Place, key: &[u8], waiter: &Arc<Waiter>) {
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
    fn take_out(&mut self, place: Place, key: &[u8], waiter: &Waiter) {
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

    fn queues(&self, place: Place, key: &[u8]) -> &[Queue] {
        self.slots.get(&place).and_then(|keys| keys.get(key)).map_or(&[], |queues| queues)
    }
}

/// All clients that wait.
#[derive(Debug, Default)]
pub(crate) struct Blocked {
    registry: Mutex<Registry>,
    count: AtomicUsize,
    /// How many have ever begun to wait.
    arrivals: AtomicU64,
}

/// Keys that are ready, each once, in the order in which they became so.
#[derive(Debug, Default)]
struct ReadyKeys {
    line: VecDeque<(usize, Key)>,
    /// By database.
    names: HashMap<usize, HashSet<Key>>,
}

impl ReadyKeys {
    fn push(&mut self, db: usize, key: &[u8]) {
        let names = self.names.entry(db).or_default();
        if !names.contains(key) {
            names.insert(key.to_vec());
            self.line.push_back((db, key.to_vec()));
        }
    }

    fn pop(&mut self) -> Option<(usize, Key)> {
        let (db, key) = self.line.pop_front()?;
        if let Some(names) = self.names.get_mut(&db) {
            names.remove(&key);
        }
        Some((db, key))
    }
}

thread_local! {
    /// Keys that what this thread executes has made ready.
    static READY: RefCell<ReadyKeys> = RefCell::default();
    static ANY_READY: Cell<bool> = const { Cell::new(false) };
}

fn make_ready(db: usize, key: &[u8]) {
    ANY_READY.set(true);
    READY.with_borrow_mut(|ready| ready.push(db, key));
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

    /// Takes a waiter out, which has ended.
    pub(crate) fn remove(&self, store: &Batch<'_>, waiter: &Arc<Waiter>) {
        for name in &waiter.keys {
            let key = store.key(name);
            let slot = store.lock(waiter.caller.db, &key);
            let mut registry = self.registry.lock();
            registry.take_out((waiter.caller.db, key.slot()), name, waiter);
            let awaited = |slot| registry.slots.contains_key(&(waiter.caller.db, slot));
            if !slot.covered(&key).any(awaited) {
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

impl Waiter {
    /// The reply, once it has ended.
    pub(crate) fn take_reply(&self) -> Option<Vec<Chunk>> {
        match &mut *self.state.lock() {
            State::Waiting => None,
            State::Ended(reply) => Some(reply.take().unwrap_or_default()),
        }
    }

    /// Replicas that have executed what the client wrote, if it waits for that.
    pub(crate) fn acknowledged(&self, server: &Server) -> usize {
        self.behind.as_ref().map_or(0, |behind| behind.acknowledged(server))
    }

    /// The protocol of its reply.
    pub(crate) fn protocol(&self) -> Protocol {
        self.caller.protocol
    }

    /// Whether it waits no longer.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(*self.state.lock(), State::Ended(_))
    }

    /// Ends the waiting with this reply, unless it has ended.
    pub(crate) fn answer(&self, blocked: &Blocked, reply: Vec<u8>) {
        self.finish(blocked, &mut self.state.lock(), vec![Bytes::from(reply).into()]);
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
            Reason::Timeout if self.behind.is_some() => {
                writer.integer(self.acknowledged(server) as i64);
            }
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
    fn serve(
        self: &Arc<Self>,
        server: &Server,
        store: &Batch<'_>,
        worker: usize,
        ready: &[u8],
    ) -> bool {
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
            origin: Origin::Waiter(self, ready),
            hashed: None,
            pool: None,
            finished: None,
            brought: false,
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

    /// Ends the waiting of all clients, for this node is a replica now.
    pub(crate) fn unblock_all(&self, worker: usize, error: &'static str) {
        let waiters: Vec<_> = self.blocked.registry.lock().clients.values().cloned().collect();
        for waiter in waiters {
            waiter.end(self, worker, Reason::Refused(error));
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
    fn serve_key(&self, store: &Batch<'_>, worker: usize, db: usize, name: &[u8]) {
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

impl Context<'_> {
    /// Which of these arguments a command that takes from the first of several keys is to
    /// look at: all of them, or for a client that has waited, the one that is ready.
    pub(crate) fn keys_to_try(&self, args: Args<'_>, keys: Range<usize>) -> Range<usize> {
        let Origin::Waiter(_, ready) = self.origin else { return keys };
        match keys.clone().find(|&at| args.bytes(at) == ready) {
            Some(at) => at..at + 1,
            None => keys,
        }
    }

    /// Has the client wait, for its command found nothing: what the handler is to
    /// return. To be called under a scope that holds the slots of all its keys, and
    /// only if it [may block](Origin::may_block).
    pub(crate) fn wait(&self, wait: Wait<'_>) -> Unanswered {
        if let Origin::Waiter(waiter, _) = self.origin {
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
            arrival: self.server.blocked.arrivals.fetch_add(1, Relaxed) + 1,
            caller: *self.caller,
            command: self.command,
            args,
            keys,
            awaits: wait.awaits,
            each_change: wait.each_change,
            without_key: wait.without_key,
            rivals: wait.rivals.map(<[u8]>::to_vec),
            silent: client.is_silent(),
            behind: None,
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            state: Mutex::new(State::Waiting),
        });
        self.server.blocked.add(self.store, &waiter);
        let index = u32::from(self.command.index) + 1;
        client.shared.figures.last_command.store(index, Relaxed);
        Unanswered::Wait(waiter)
    }

    /// Has the client wait until so many replicas have executed what it has written.
    pub(crate) fn wait_for_replicas(
        &self,
        args: Args<'_>,
        replicas: usize,
        behind: Behind,
        timeout_ms: u64,
    ) -> Unanswered {
        let Some(client) = self.client.as_deref() else { return Error::NO_CLIENT.into() };
        let timeout = (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms));
        let waiter = Arc::new(Waiter {
            client: Arc::clone(&client.shared),
            arrival: self.server.blocked.arrivals.fetch_add(1, Relaxed) + 1,
            caller: *self.caller,
            command: self.command,
            args: OwnedArgs::new(args),
            keys: Vec::new(),
            awaits: Type::String,
            without_key: false,
            rivals: None,
            each_change: false,
            silent: client.is_silent(),
            behind: Some(behind),
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            state: Mutex::new(State::Waiting),
        });
        self.server.blocked.add(self.store, &waiter);
        let index = u32::from(self.command.index) + 1;
        client.shared.figures.last_command.store(index, Relaxed);
        self.server.wait_for_replicas(&waiter, replicas);
        Unanswered::Wait(waiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;
    use crate::commands;
    use crate::config::Config;
    use crate::dispatch::{self, Asked};
    use crate::engine::call::Halt;
    use crate::engine::client::Client;
    use crate::engine::command::{Answer, flags};
    use crate::follow::clients::Address;
    use proptest::prelude::*;
    use snug_store::{Append, Class, Delete, Event, NewStr, Session, Set};
    use std::net::{Ipv4Addr, SocketAddr};

    const NOW: u64 = 1_700_000_000_000;

    /// A command that waits and then writes, as `BLMOVE` and `BLPOP` do, of strings
    /// that stand for lists of bytes: `TAKE TO KEY ...` takes the first byte of the
    /// first of the keys that there is, and appends it to `TO`, unless that is `-`.
    static TAKE: Command = Command::new("take", -3, take).flags(flags::WRITE);

    fn take(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
        let keys = 2..args.len();
        let to = (args.bytes(1) != b"-").then(|| cx.key(args.bytes(1)));
        let _held = cx.hold(keys.clone().map(|at| cx.key(args.bytes(at))).chain(to));
        for at in cx.keys_to_try(args, keys.clone()) {
            let key = cx.key(args.bytes(at));
            let mut slot = cx.lock(&key);
            let Some(found) = cx.find_string(&mut slot, &key)? else { continue };
            let mut value = Out::default();
            value.string(slot.string(found).unwrap())?;
            let text = value.bytes.split(|&byte| byte == b'\n').nth(1).unwrap();
            let (first, rest) = text.strip_suffix(b"\r").unwrap().split_first().unwrap();
            let event = Event::new(Class::STRING, "take");
            if rest.is_empty() {
                slot.apply(&key, Some(found), Delete, event);
            } else {
                slot.apply(&key, Some(found), Set::to(NewStr::Bytes(rest)), event);
            }
            drop(slot);
            if let Some(to) = to {
                let mut slot = cx.lock(&to);
                let found = cx.find_string(&mut slot, &to)?;
                slot.apply(&to, found, Append(NewStr::Bytes(&[*first])), event);
            }
            out.w().bulk(&[*first]);
            return Ok(());
        }
        if !cx.origin.may_block() {
            out.w().null();
            return Ok(());
        }
        Err(cx.wait(Wait {
            args: &|| OwnedArgs::new(args),
            keys,
            timeout_ms: 0,
            awaits: Type::String,
            each_change: false,
            without_key: false,
            rivals: None,
        }))
    }

    /// A server without workers; every client's commands are executed here.
    struct House {
        server: Arc<Server>,
        session: Session,
        /// Who writes.
        caller: Caller,
        client: Client,
        waiters: Vec<Arc<Waiter>>,
    }

    fn client(server: &Server, id: u64) -> Client {
        let nowhere = Address::Net(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        let ends = (nowhere.clone(), nowhere);
        Client::new(Arc::new(Shared::new(id, ends, -1, 0)), server.first_account())
    }

    impl House {
        fn new() -> Self {
            let config = Config::default();
            let cluster = Cluster::load(&config).unwrap();
            let server = Server::new(config, cluster, 1, commands::catalog());
            let session = server.store.session();
            let (caller, client) = (Caller::default(), client(&server, 1));
            Self { server, session, caller, client, waiters: Vec::new() }
        }

        /// The reply to a command of the client that writes.
        fn write(&mut self, command: &str) -> String {
            let batch = self.session.enter(NOW);
            let words: Vec<Vec<u8>> = command.split(' ').map(Into::into).collect();
            let mut asked = Asked {
                caller: &mut self.caller,
                client: &mut self.client,
                store: &batch,
                server: &self.server,
                worker: 0,
                pool: None,
                hashed: None,
                finished: None,
            };
            let mut out = Out::default();
            dispatch::execute(&mut asked, OwnedArgs::of(&words).args(), &mut out).unwrap();
            if any_ready() {
                self.server.serve(&batch, 0);
            }
            String::from_utf8(out.bytes).unwrap()
        }

        /// A client of its own calls `TAKE`, and has to wait; its number.
        fn take(&mut self, words: &str) -> usize {
            let number = self.waiters.len();
            let batch = self.session.enter(NOW);
            let words = format!("TAKE {words}");
            let words: Vec<Vec<u8>> = words.split(' ').map(Into::into).collect();
            let (mut caller, mut client) =
                (Caller::default(), client(&self.server, number as u64 + 2));
            let mut cx = Context {
                caller: &mut caller,
                client: Some(&mut client),
                store: &batch,
                server: &self.server,
                command: &TAKE,
                worker: 0,
                origin: Origin::Client,
                hashed: None,
                pool: None,
                finished: None,
                brought: false,
            };
            let args = OwnedArgs::of(&words);
            match call(&mut cx, &TAKE, args.args(), &mut Out::default()) {
                Err(Halt::Wait(waiter)) => self.waiters.push(waiter),
                other => panic!("it does not wait: {other:?}"),
            }
            number
        }

        /// What a client that waits was told, once.
        fn told(&self, waiter: usize) -> Option<String> {
            let bytes = |chunk: &Chunk| match chunk {
                Chunk::Bytes(bytes) => bytes.to_vec(),
                Chunk::Packed(_) => unreachable!("nothing is packed"),
            };
            let reply = self.waiters[waiter].take_reply()?;
            Some(String::from_utf8(reply.iter().flat_map(bytes).collect()).unwrap())
        }

        /// Every client that has ended leaves, as its connection would have it do.
        fn leave(&mut self) {
            let batch = self.session.enter(NOW);
            let is_over = |waiter: &&Arc<Waiter>| !matches!(*waiter.state.lock(), State::Waiting);
            for waiter in self.waiters.iter().filter(is_over) {
                self.server.blocked.remove(&batch, waiter);
            }
        }
    }

    /// What [`House::told`] gives of a reply with this letter.
    #[allow(clippy::unnecessary_wraps)]
    fn is(letter: &str) -> Option<String> {
        Some(format!("$1\r\n{letter}\r\n"))
    }

    #[test]
    fn what_a_served_command_writes_is_served_too() {
        let mut house = House::new();
        let last = house.take("- c");
        let (second, first) = (house.take("c b"), house.take("b a"));
        house.write("SET a xy");
        for waiter in [first, second, last] {
            assert_eq!(house.told(waiter), is("x"));
        }
        assert_eq!(house.write("GET a"), "$1\r\ny\r\n");
        // In a circle, each takes one.
        let circle = [house.take("d d"), house.take("d d")];
        house.write("SET d 123");
        assert_eq!(circle.map(|waiter| house.told(waiter)), [is("1"), is("2")]);
        assert_eq!(house.write("GET d"), "$3\r\n312\r\n");
    }

    #[test]
    fn keys_come_as_they_were_ready_and_clients_as_they_came() {
        let mut house = House::new();
        let (first, second) = (house.take("- x y"), house.take("- y x"));
        let third = house.take("- x");
        for command in ["MULTI", "APPEND y y", "APPEND x x", "EXEC"] {
            house.write(command);
        }
        // Of the key that was ready first, who came first.
        assert_eq!((house.told(first), house.told(second)), (is("y"), is("x")));
        assert_eq!(house.told(third), None);
        house.write("SET x 12");
        assert_eq!(house.told(third), is("1"));
        assert_eq!(house.write("GET x"), "$1\r\n2\r\n");
    }

    /// A key that was emptied while it was served stands in no line: what comes to it
    /// later comes after what was ready before.
    #[test]
    fn a_key_is_ready_when_it_comes_not_when_it_goes() {
        let mut house = House::new();
        let (to_b, to_d) = (house.take("b d"), house.take("d a"));
        let last = house.take("- a b");
        let to_a = house.take("a d");
        for command in ["MULTI", "SET a 1", "SET d 2", "EXEC"] {
            house.write(command);
        }
        assert_eq!(
            (house.told(to_d), house.told(to_b), house.told(to_a)),
            (is("1"), is("2"), is("1"))
        );
        assert_eq!(house.told(last), is("2"), "b came before a");
        assert_eq!(house.write("GET a"), "$1\r\n1\r\n");
    }

    #[test]
    fn what_a_transaction_takes_back_nobody_is_given() {
        let mut house = House::new();
        let waiter = house.take("- x");
        for command in ["MULTI", "SET x 1", "DEL x", "EXEC"] {
            house.write(command);
        }
        assert_eq!(house.told(waiter), None);
        house.write("SET x 2");
        assert_eq!(house.told(waiter), is("2"));
    }

    #[test]
    fn another_type_leaves_them_waiting() {
        let mut house = House::new();
        let waiter = house.take("- x");
        house.write("XADD x 1-1 f v");
        house.write("XADD x 1-2 f v");
        assert_eq!(house.told(waiter), None);
        house.write("SET other 1");
        house.write("RENAME other x");
        assert_eq!(house.told(waiter), is("1"));
        // An error is an answer.
        let (to_stream, behind) = (house.take("s y"), house.take("- y"));
        house.write("XADD s 1-1 f v");
        house.write("SET y z");
        assert!(house.told(to_stream).unwrap().starts_with("-WRONGTYPE"));
        assert_eq!(house.told(behind), None, "the first took it before it failed");
    }

    #[test]
    fn whatever_way_a_key_comes_it_is_ready() {
        let ways: [&[&str]; 7] = [
            &["SET x 1"],
            &["SET o 1", "RENAME o x"],
            &["SET o 1", "RENAMENX o x"],
            &["SET o 1", "COPY o x"],
            &["SELECT 1", "SET x 1", "MOVE x 0"],
            &["SELECT 1", "SET x 1", "SWAPDB 0 1"],
            &["SELECT 1", "SET x 1", "SELECT 0", "MULTI", "SWAPDB 1 0", "EXEC"],
        ];
        for way in ways {
            let mut house = House::new();
            let waiter = house.take("- other x");
            house.write("FLUSHDB");
            way.iter().for_each(|command| drop(house.write(command)));
            assert_eq!(house.told(waiter), is("1"), "{way:?}");
            house.leave();
            assert_eq!((house.server.blocked.keys(), house.server.blocked.clients()), ((0, 0), 0));
        }
    }

    #[test]
    fn who_has_gone_takes_nothing() {
        let mut house = House::new();
        let [late, told, gone, last] = [0; 4].map(|_| house.take("- x"));
        assert!(house.waiters[late].end(&house.server, 0, Reason::Timeout));
        assert!(house.waiters[told].end(&house.server, 0, Reason::Unblocked));
        house.waiters[gone].leave(&house.server.blocked);
        assert_eq!(house.server.blocked.clients(), 1);
        house.write("SET x 12");
        assert_eq!(house.told(late).as_deref(), Some("*-1\r\n"));
        assert!(house.told(told).unwrap().starts_with("-UNBLOCKED"));
        assert_eq!(house.told(last), is("1"));
        assert!(!house.waiters[last].end(&house.server, 0, Reason::Timeout), "it was served");
        assert_eq!(house.write("GET x"), "$1\r\n2\r\n");
        house.leave();
        assert_eq!(house.server.blocked.keys(), (0, 0));
    }

    /// Redis's way of serving, of clients that each wait for some of a few keys: a key
    /// is ready when it comes to be, not with each change.
    #[derive(Default)]
    struct Model {
        keys: BTreeMap<usize, Vec<u8>>,
        waiting: Vec<(usize, Option<usize>, Vec<usize>)>,
        ready: VecDeque<usize>,
        told: BTreeMap<usize, u8>,
    }

    impl Model {
        fn append(&mut self, key: usize, bytes: &[u8]) {
            if !self.keys.contains_key(&key) && !self.ready.contains(&key) {
                self.ready.push_back(key);
            }
            self.keys.entry(key).or_default().extend(bytes);
        }

        fn take(&mut self, key: usize, to: Option<usize>) -> Option<u8> {
            let value = self.keys.get_mut(&key)?;
            let first = value.remove(0);
            if value.is_empty() {
                self.keys.remove(&key);
            }
            to.into_iter().for_each(|to| self.append(to, &[first]));
            Some(first)
        }

        fn serve(&mut self) {
            while let Some(key) = self.ready.pop_front() {
                let waits = |(_, _, keys): &(_, _, Vec<usize>)| keys.contains(&key);
                let of_key: Vec<_> = self.waiting.iter().filter(|w| waits(w)).cloned().collect();
                for (number, to, _) in of_key {
                    let Some(first) = self.take(key, to) else { break };
                    self.told.insert(number, first);
                    self.waiting.retain(|(other, ..)| *other != number);
                }
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Take(Option<usize>, Vec<usize>),
        Append(Vec<(usize, u8)>),
        Delete(usize),
        Leave,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let key = || 0..5usize;
        let letters = prop::collection::vec((key(), b'a'..=b'z'), 1..6);
        prop::collection::vec(
            prop_oneof![
                4 => (prop::option::of(key()), prop::collection::vec(key(), 1..4))
                    .prop_map(|(to, keys)| Step::Take(to, keys)),
                4 => letters.prop_map(Step::Append),
                1 => key().prop_map(Step::Delete),
                1 => Just(Step::Leave),
            ],
            0..40,
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn clients_are_served_as_in_the_model(steps in steps()) {
            let mut house = House::new();
            let mut model = Model::default();
            for step in steps {
                match step {
                    Step::Take(to, keys) => {
                        // Else it would not wait.
                        if keys.iter().any(|key| model.keys.contains_key(key)) {
                            continue;
                        }
                        let to_name = to.map_or("-".into(), |to| format!("k{to}"));
                        let names: Vec<_> = keys.iter().map(|key| format!("k{key}")).collect();
                        let number = house.take(&format!("{to_name} {}", names.join(" ")));
                        model.waiting.push((number, to, keys));
                    }
                    Step::Append(letters) => {
                        house.write("MULTI");
                        for (key, letter) in letters {
                            house.write(&format!("APPEND k{key} {}", letter as char));
                            model.append(key, &[letter]);
                        }
                        house.write("EXEC");
                        model.serve();
                    }
                    Step::Delete(key) => {
                        house.write(&format!("DEL k{key}"));
                        model.keys.remove(&key);
                    }
                    Step::Leave => house.leave(),
                }
                prop_assert_eq!(house.server.blocked.clients(), model.waiting.len());
                for key in 0..5 {
                    let value = model.keys.get(&key).map(|value| String::from_utf8_lossy(value));
                    let expected = value.map_or("$-1\r\n".into(), |value| format!("${}\r\n{value}\r\n", value.len()));
                    prop_assert_eq!(house.write(&format!("GET k{key}")), expected);
                }
            }
            for number in 0..house.waiters.len() {
                let expected = model.told.get(&number).map(|&letter| is(&(letter as char).to_string()).unwrap());
                prop_assert_eq!(house.told(number), expected);
            }
        }
    }
}
