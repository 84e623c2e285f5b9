//! Commands whose values are on disk: put off until other threads have brought them.
//!
//! | command | how it is found out |
//! | --- | --- |
//! | only reads, and waits for nobody | it is executed, and lookups note what they meet: costs a load where nothing is on disk, and one more where something is |
//! | writes, or may wait | its keys are looked up beforehand, once anything was ever on disk |
//! | `EXEC`, a script | the keys of what is queued, and those declared, likewise |
//! | a script's other keys, `SORT .. BY`, a client that was waited for | the thread that executes it reads from disk itself |
//!
//! A command that needs memory where there is none is put off as well, until values have gone
//! to disk: so the tier comes before eviction and `OOM` however fast clients write.
//!
//! A command is put off once for what it reads: what has gone to disk again by the time it is executed is
//! read by its own thread, so that it comes to an end whatever memory there is.

use crate::engine::call::Halt;
use crate::engine::command::{Answer, Command, Unanswered, flags};
use crate::engine::context::Context;
use crate::engine::large::{Done, Work};
use crate::engine::server::Server;
use crate::outside::clock::Instant;
use crate::request::args::Args;
use crate::request::error::Error;
use snug_store::Batch;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Commands that look a key up and do not read what it holds, though they change or tell
/// something of it.
const ABOUT_KEYS: [&str; 10] = [
    "expire",
    "pexpire",
    "expireat",
    "pexpireat",
    "persist",
    "rename",
    "renamenx",
    "move",
    "exists",
    "restore",
];

/// Whether the command is executed to find out what it reads.
pub(crate) fn notes(command: &Command) -> bool {
    command.has(flags::READONLY) && !command.has(flags::BLOCKING | flags::NOSCRIPT)
}

/// Whether the command may want the values of keys that it names.
fn may_want(command: &Command) -> bool {
    let is_about_keys = match command.container {
        None => ABOUT_KEYS.contains(&command.name),
        Some(container) => container == "snug" && matches!(command.name, "object" | "tier"),
    };
    !is_about_keys
}

/// Those of the keys that the command names whose values are on disk and wanted.
pub(crate) fn wanted(
    store: &Batch<'_>,
    db: usize,
    command: &Command,
    args: Args<'_>,
) -> Vec<(usize, Vec<u8>)> {
    if !may_want(command) {
        return Vec::new();
    }
    // Arguments that name no keys are an error the handler will tell.
    let keys = command.used_keys(args).unwrap_or_default();
    let keys = keys.iter().filter(|(_, used)| used.wants_value()).map(|(at, _)| args.bytes(*at));
    keys.filter(|key| store.is_away(db, key)).map(|key| (db, key.to_vec())).collect()
}

/// Has the command executed again when these values are in memory. Where they could not
/// leave it again others are evicted for them, or else the command is refused.
pub(crate) fn bring(server: &Server, keys: Vec<(usize, Vec<u8>)>) -> Work {
    let server = server.me.clone();
    Work(Box::pin(async move {
        let Some(server) = server.upgrade() else { return Done::Nothing };
        let began = Instant::now();
        while server.cannot_hold_more() {
            if !server.evicts() || began.elapsed() > PATIENCE {
                return Done::Lost(Error::OOM);
            }
            server.exceeded.wanted.notify_one();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        match server.tiering.bring(keys).await {
            Ok(()) => Done::Brought,
            Err(lost) => Done::Lost(Error::from(format!("ERR {lost}"))),
        }
    }))
}

/// The same, as a connection takes it.
pub(crate) fn halt(server: &Server, keys: Vec<(usize, Vec<u8>)>) -> Halt {
    Halt::Work(Box::new(bring(server, keys)))
}

/// How long whoever needs memory waits for values to go to disk, at most. If none went by
/// then the disk is slow, and nobody waits until some do.
const PATIENCE: Duration = Duration::from_secs(5);
const SLOW: &str = "nothing went to disk for seconds";

/// How often a command that waits for room looks whether there is some.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Server {
    /// Whether memory is short and the disk tier makes room.
    fn awaits_room(&self) -> bool {
        self.tiering.makes_room()
            && self.memory_for_values().is_some_and(|limit| self.counted_memory() > limit)
    }

    /// Waits for the disk tier to make room, if there is one that does: for threads that load
    /// more than memory holds, or bring back what others read, and refuse nothing.
    pub(crate) fn wait_for_tier(&self) {
        let began = Instant::now();
        while self.awaits_room() {
            if began.elapsed() > PATIENCE {
                self.tiering.make_no_room(SLOW);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Has a command executed when the disk tier has made room, or makes none.
#[cold]
pub(crate) fn wait_for_room(server: &Server) -> Halt {
    server.tiering.room_waits.fetch_add(1, Relaxed);
    let server = server.me.clone();
    Halt::Work(Box::new(Work(Box::pin(async move {
        let Some(server) = server.upgrade() else { return Done::Nothing };
        let began = Instant::now();
        loop {
            let moved = server.tiering.moved.notified();
            if !server.awaits_room() {
                return Done::Nothing;
            }
            // Room that others make, as by deleting, is told to nobody.
            if tokio::time::timeout(LOOK_EVERY, moved).await.is_ok() {
                return Done::Nothing;
            }
            if began.elapsed() > PATIENCE {
                server.tiering.make_no_room(SLOW);
            }
        }
    }))))
}

impl Context<'_> {
    /// Has the command executed again when the values of these keys are in memory, those
    /// of them that are on disk. For a command of many keys, before it does anything.
    pub(crate) fn bring<'k>(&self, keys: impl Iterator<Item = (usize, &'k [u8])>) -> Answer {
        let is_on = self.server.tiering.is_on() && self.store.store().tier().is_used();
        if !is_on || self.brought || !self.origin.may_wait() {
            return Ok(());
        }
        let away = keys.filter(|(db, key)| self.store.is_away(*db, key));
        let away: Vec<_> = away.map(|(db, key)| (db, key.to_vec())).collect();
        match away.is_empty() {
            true => Ok(()),
            false => Err(Unanswered::Later(bring(self.server, away))),
        }
    }
}
