//! How a handler that finds nothing yet has its client wait.

use super::registry::Key;
use super::waiter::{State, Waiter};
use crate::engine::command::Unanswered;
use crate::engine::context::{Context, Origin};
use crate::engine::waits::Behind;
use crate::outside::clock::Instant;
use crate::request::args::{Args, OwnedArgs};
use crate::request::error::Error;
use parking_lot::Mutex;
use snug_store::Type;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
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
