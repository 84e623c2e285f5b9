//! A client that waits, and the one state that says whether it still does.

use super::Blocked;
use super::registry::Key;
use crate::engine::call::call;
use crate::engine::client::Caller;
use crate::engine::command::Command;
use crate::engine::context::{Context, Origin};
use crate::engine::out::{Chunk, Out};
use crate::engine::server::Server;
use crate::engine::waits::Behind;
use crate::follow::clients::Shared;
use crate::follow::pubsub::{self, OnBehalf};
use crate::measure::stats::Stat;
use crate::outside::clock::Instant;
use crate::request::args::OwnedArgs;
use bytes::Bytes;
use parking_lot::Mutex;
use snug_resp::{Protocol, Writer};
use snug_store::{Batch, Type};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A client that waits, and for what.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub client: Arc<Shared>,
    /// How many had begun to wait before it, with itself.
    pub(super) arrival: u64,
    pub(super) caller: Caller,
    pub(super) command: &'static Command,
    pub(super) args: OwnedArgs,
    pub(super) keys: Vec<Key>,
    pub(super) awaits: Type,
    pub(super) each_change: bool,
    pub(super) without_key: bool,
    pub(super) rivals: Option<Vec<u8>>,
    /// Replies are off: it is served all the same.
    pub(super) silent: bool,
    /// It waits for no key, but until replicas have executed what it wrote.
    pub(super) behind: Option<Behind>,
    pub deadline: Option<Instant>,
    pub(super) state: Mutex<State>,
}

#[derive(Debug)]
pub(super) enum State {
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

    pub(super) fn finish(&self, blocked: &Blocked, state: &mut State, reply: Vec<Chunk>) -> bool {
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
    pub(super) fn serve(
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
