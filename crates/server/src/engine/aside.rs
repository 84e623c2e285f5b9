//! The scripts that take long: what each keeps from others, and what they are told
//! meanwhile.
//!
//! A script that is new, or known to run long, runs in a thread of its own
//! (`script/aside.rs`) while its client waits and its worker serves others. What it may
//! touch is told here before it begins, and every batch that was under way has ended
//! by then. A script that turns out to be long on its client's worker, and cannot be run
//! again for it has written, is told of as soon as that is seen (`script/machine.rs`).
//! Whoever is about to touch the same looks here first, and waits without holding its
//! worker up; once the script counts as slow, it is told `BUSY`.
//!
//! What it costs while no script takes long: one load for each command.

use crate::config::{Config, Param};
use crate::engine::command::{Command, Group, flags};
use crate::outside::clock::Instant;
use crate::request::args::Args;
use crate::request::error::Error;
use parking_lot::Mutex;
use snug_store::Store;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;
use tokio::sync::Notify;

/// What a script may touch.
#[derive(Debug)]
pub(crate) struct Touches {
    /// Keys of these slots, and those that may be under one lock with them ...
    slots: Vec<usize>,
    /// ... or all there are.
    everything: AtomicBool,
}

impl Touches {
    pub(crate) fn new(slots: Vec<usize>, everything: bool) -> Self {
        Self { slots, everything: AtomicBool::new(everything) }
    }
}

/// Slots that may be under one lock.
const FOLDED: usize = 64;

/// A script that takes long, or may.
#[derive(Debug)]
pub(crate) struct Running {
    /// As errors and `FUNCTION STATS` tell it.
    pub name: String,
    pub is_function: bool,
    /// The command that runs it, with its arguments, for `FUNCTION STATS`.
    pub command: Vec<Vec<u8>>,
    pub began: Instant,
    touches: Touches,
    wrote: AtomicBool,
    killed: AtomicBool,
}

impl Running {
    pub(crate) fn new(
        name: &str,
        is_function: bool,
        command: Vec<Vec<u8>>,
        began: Instant,
        touches: Touches,
    ) -> Self {
        Self {
            name: name.into(),
            is_function,
            command,
            began,
            touches,
            wrote: AtomicBool::new(false),
            killed: AtomicBool::new(false),
        }
    }

    /// It has called a command that writes: it cannot be killed any more.
    pub(crate) fn has_written(&self) {
        self.wrote.store(true, SeqCst);
    }

    /// It may touch every key from now on.
    pub(crate) fn touches_everything(&self) {
        self.touches.everything.store(true, SeqCst);
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Relaxed) && !self.wrote.load(SeqCst)
    }

    /// Whether it counts as slow.
    pub(crate) fn is_slow(&self, config: &Config) -> bool {
        let threshold = config.number(Param::BusyReplyThreshold).max(0) as u64;
        threshold > 0 && self.began.elapsed() >= Duration::from_millis(threshold)
    }

    /// Whether a command may touch what it touches.
    fn meets(&self, store: &Store, command: &Command, args: Args<'_>) -> bool {
        let Touches { slots, everything } = &self.touches;
        if everything.load(SeqCst) || !command.names_keys() || command.has(flags::WIDE) {
            return true;
        }
        let indices = command.key_indices(args).unwrap_or_default();
        indices.into_iter().any(|index| {
            let page = store.key(args.bytes(index)).slot() / FOLDED;
            slots.iter().any(|slot| slot / FOLDED == page)
        })
    }
}

/// What somebody is to do whose command meets the script that runs.
#[derive(Debug)]
pub(crate) enum Meeting {
    /// Wait, and look again.
    Wait,
    Busy(Error),
}

const BUSY_SCRIPT: Error = Error::new(
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
);
const BUSY_FUNCTION: Error = Error::new(
    "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.",
);
const NOT_BUSY: Error = Error::new("NOTBUSY No scripts in execution right now.");
const UNKILLABLE: Error = Error::new(
    "UNKILLABLE Sorry the script already executed write commands against the dataset. You can \
     either wait the script termination or kill the server in a hard way using the SHUTDOWN \
     NOSAVE command.",
);

/// The scripts that take long. One at a time runs aside; others may be on their workers.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    active: AtomicBool,
    running: Mutex<Vec<Arc<Running>>>,
    ended: Notify,
}

impl Aside {
    /// Whether a script takes long.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Relaxed)
    }

    /// The script that began first of those that take long.
    pub(crate) fn running(&self) -> Option<Arc<Running>> {
        self.running.lock().first().cloned()
    }

    /// A script is about to run, or takes long. One that is to run waits then for batches
    /// under way to end.
    pub(crate) fn begin(&self, store: &Store, running: Arc<Running>) {
        let mut all = self.running.lock();
        all.push(running);
        store.rest(true);
        self.active.store(true, SeqCst);
    }

    /// It has ended.
    pub(crate) fn end(&self, store: &Store, running: &Arc<Running>) {
        let mut all = self.running.lock();
        all.retain(|other| !Arc::ptr_eq(other, running));
        if all.is_empty() {
            store.rest(false);
            self.active.store(false, SeqCst);
        }
        drop(all);
        self.ended.notify_waiters();
    }

    /// What a client is to do whose command may meet the script that runs; `None` if
    /// it does not, or is one that may be called all the same.
    #[cold]
    pub(crate) fn meets(
        &self,
        config: &Config,
        store: &Store,
        command: &Command,
        args: Args<'_>,
    ) -> Option<Meeting> {
        // `WATCH` takes its keys' slots.
        if command.has(flags::ALLOW_BUSY) && !command.names_keys() {
            return None;
        }
        let all = self.running.lock().clone();
        let meetings =
            all.iter().filter_map(|running| Self::meets_one(running, config, store, command, args));
        // Whoever waits for one of them is told so if another is slow.
        meetings.max_by_key(|meeting| matches!(meeting, Meeting::Busy(_)))
    }

    fn meets_one(
        running: &Running,
        config: &Config,
        store: &Store,
        command: &Command,
        args: Args<'_>,
    ) -> Option<Meeting> {
        let slow = running.is_slow(config);
        // Once it is slow, who names no key is told so too, whatever the command does.
        let keyless = !command.names_keys() && !command.has(flags::WIDE);
        let harmless = matches!(command.group, Group::Connection | Group::Pubsub);
        if keyless && harmless && !slow {
            return None;
        }
        if !running.meets(store, command, args) {
            return None;
        }
        Some(match slow {
            true if running.is_function => Meeting::Busy(BUSY_FUNCTION),
            true => Meeting::Busy(BUSY_SCRIPT),
            false => Meeting::Wait,
        })
    }

    /// Waits until it has ended, or for a while.
    pub(crate) async fn wait(&self) {
        let ended = self.ended.notified();
        if self.is_active() {
            let _ = tokio::time::timeout(Duration::from_millis(10), ended).await;
        }
    }

    /// What is told of the script that runs, if one does.
    pub(crate) fn busy(&self) -> Error {
        match self.running() {
            Some(running) if running.is_function => BUSY_FUNCTION,
            Some(_) => BUSY_SCRIPT,
            None => NOT_BUSY,
        }
    }

    /// `SCRIPT KILL`, or `FUNCTION KILL`: ends one that has not written.
    pub(crate) fn kill(&self, function: bool) -> Result<(), Error> {
        let all = self.running.lock().clone();
        if all.is_empty() {
            return Err(NOT_BUSY);
        }
        let killable = |running: &&Arc<Running>| !running.wrote.load(SeqCst);
        let Some(other) = all.iter().find(killable) else { return Err(UNKILLABLE) };
        let Some(running) = all.iter().filter(killable).find(|r| r.is_function == function) else {
            return Err(if other.is_function { BUSY_FUNCTION } else { BUSY_SCRIPT });
        };
        running.killed.store(true, SeqCst);
        Ok(())
    }
}
