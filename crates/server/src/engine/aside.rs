//! The scripts and commands that take long: what each keeps from others, and what they are
//! told meanwhile.
//!
//! A script that is new, or known to run long, and a command that goes through many items
//! run in a thread of their own (`errands.rs`) while their client waits and its worker serves
//! others. What it may touch is told here before it begins, and every batch that was under
//! way has ended by then. A script that turns out to be long on its client's worker, and
//! cannot be run again for it has written, is told of as soon as that is seen
//! (`script/machine.rs`). Whoever is about to touch the same looks here first, and waits
//! without holding its worker up; once a script counts as slow, it is told `BUSY`.
//!
//! What it costs while nothing takes long: one load for each command.

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

/// What a script or command that takes long may touch.
#[derive(Debug)]
pub(crate) struct Touches {
    /// Keys of the slots at these places ([`Store::place`]), and those that are under one
    /// lock with them ...
    places: Vec<(usize, usize)>,
    /// ... or all there are.
    everything: AtomicBool,
}

impl Touches {
    pub(crate) fn new(places: Vec<(usize, usize)>, everything: bool) -> Self {
        Self { places, everything: AtomicBool::new(everything) }
    }
}

/// What takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Script,
    Function,
    /// A client's own command: it is waited for, and cannot be killed.
    Command,
}

/// A script or command that takes long, or may.
#[derive(Debug)]
pub(crate) struct Running {
    /// As errors and `FUNCTION STATS` tell it.
    pub name: String,
    kind: Kind,
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
        kind: Kind,
        command: Vec<Vec<u8>>,
        began: Instant,
        touches: Touches,
    ) -> Self {
        Self {
            name: name.into(),
            kind,
            command,
            began,
            touches,
            wrote: AtomicBool::new(false),
            killed: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_script(&self) -> bool {
        self.kind != Kind::Command
    }

    pub(crate) fn is_function(&self) -> bool {
        self.kind == Kind::Function
    }

    /// The slots that it touches, at least.
    pub(crate) fn slots(&self) -> Vec<usize> {
        self.touches.places.iter().map(|(_, slot)| *slot).collect()
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

    /// Whether it counts as slow, which only a script does.
    pub(crate) fn is_slow(&self, config: &Config) -> bool {
        if !self.is_script() {
            return false;
        }
        let threshold = config.number(Param::BusyReplyThreshold).max(0) as u64;
        threshold > 0 && self.began.elapsed() >= Duration::from_millis(threshold)
    }

    /// Whether a command may touch what it touches.
    fn meets(&self, store: &Store, command: &Command, args: Args<'_>) -> bool {
        let Touches { places, everything } = &self.touches;
        if everything.load(SeqCst) {
            return true;
        }
        // Who meets a slot of its without having named it gives it up (`GivesUp`).
        let unnamed = !command.names_keys() && self.is_script();
        let wide =
            command.has(flags::WIDE) && (self.is_script() || command.group != Group::Scripting);
        if unnamed || wide {
            return true;
        }
        let indices = command.key_indices(args).unwrap_or_default();
        indices.into_iter().any(|index| {
            let slot = store.key(args.bytes(index)).slot();
            places.iter().any(|place| store.is_one(*place, slot))
        })
    }
}

/// What somebody is to do whose command meets what takes long.
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

/// What takes long. One at a time runs aside; scripts may be on their workers.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    active: AtomicBool,
    running: Mutex<Vec<Arc<Running>>>,
    ended: Notify,
}

impl Aside {
    /// Whether something takes long.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Relaxed)
    }

    /// Whether something takes long that may touch every key.
    pub(crate) fn touches_everything(&self) -> bool {
        self.is_active()
            && self.running.lock().iter().any(|running| running.touches.everything.load(SeqCst))
    }

    /// Whether a client's own command is among them.
    pub(crate) fn runs_command(&self) -> bool {
        self.is_active() && self.running.lock().iter().any(|running| !running.is_script())
    }

    /// The scripts among them, the one that began first before others.
    fn scripts(&self) -> Vec<Arc<Running>> {
        let all = self.running.lock();
        all.iter().filter(|running| running.is_script()).map(Arc::clone).collect()
    }

    /// The script that began first of those that take long.
    pub(crate) fn running(&self) -> Option<Arc<Running>> {
        self.scripts().into_iter().next()
    }

    /// Something is about to run that may take long, or does. What is to run waits then for
    /// batches under way to end.
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

    /// What a client is to do whose command may meet what runs; `None` if it does not, or is one that may be called all the same.
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
            true if running.is_function() => Meeting::Busy(BUSY_FUNCTION),
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
            Some(running) if running.is_function() => BUSY_FUNCTION,
            Some(_) => BUSY_SCRIPT,
            None => NOT_BUSY,
        }
    }

    /// `SCRIPT KILL`, or `FUNCTION KILL`: ends one that has not written.
    pub(crate) fn kill(&self, function: bool) -> Result<(), Error> {
        let all = self.scripts();
        if all.is_empty() {
            return Err(NOT_BUSY);
        }
        let killable = |running: &&Arc<Running>| !running.wrote.load(SeqCst);
        let Some(other) = all.iter().find(killable) else { return Err(UNKILLABLE) };
        let Some(running) = all.iter().filter(killable).find(|r| r.is_function() == function)
        else {
            return Err(if other.is_function() { BUSY_FUNCTION } else { BUSY_SCRIPT });
        };
        running.killed.store(true, SeqCst);
        Ok(())
    }
}
