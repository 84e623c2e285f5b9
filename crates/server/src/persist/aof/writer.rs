//! What writes the append-only file: it follows the journal, and says how far commits are
//! on disk.
//!
//! Whoever has it may write with it, one at a time:
//!
//! ```text
//!  a worker, at the end of a round   push        what is new, if that takes no time
//!  the thread of the file            turn        everything else: what is long, new
//!                                                increments and bases, failures; with
//!                                                `always` all of it, and the sync
//!  the thread that syncs             begin_sync, [the sync], end_sync
//! ```
//!
//! A sync of `everysec` is done without the writer, so that others write meanwhile. Not
//! workers: while the system syncs a file it may keep whoever writes to it waiting. With
//! `always` a turn shares one sync among all commits that came during the last. A
//! simulation does all of it by itself.

use super::super::writing::Format;
use super::{Aof, Syncing};
use crate::journal::{Follower, Piece};
use crate::outside::clock::Instant;
use bytes::Bytes;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// When what was written is synced: `appendfsync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    EverySecond,
    Always,
    /// When the system sees fit.
    Never,
}

/// A snapshot that was written, to become the base.
#[derive(Clone, Debug)]
pub(crate) struct Rewritten {
    pub(crate) path: PathBuf,
    pub(crate) mark: u64,
    pub(crate) format: Format,
}

/// Writes what the journal gives it.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) aof: Aof,
    follower: Follower,
    /// What could not be written yet, the commit that it ends with, and the marks in it.
    waiting: Vec<Piece>,
    /// The last commit that was written, and the last that is on disk.
    written: u64,
    synced: u64,
    /// When it was synced last, in milliseconds.
    synced_at: u64,
    /// When it was last seen that the file is still there.
    looked_at: u64,
    last_mark: u64,
    last_second: u64,
    rewritten: Option<Rewritten>,
    /// A sync is being done, and the commits that it covers.
    syncing: Option<u64>,
    /// What failed elsewhere than in a turn: the next one tells.
    failed: Option<io::Error>,
    /// A write took long: workers leave writing to the thread until then, in milliseconds.
    slow_until: u64,
}

/// How it is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) policy: Policy,
    /// Nothing is synced for now: `no-appendfsync-on-rewrite`, and a rewrite runs.
    pub(crate) no_sync: bool,
    /// Where `everysec` is due to sync, somebody else does.
    pub(crate) sync_apart: bool,
    /// The time goes into the file.
    pub(crate) timestamps: bool,
    /// The time, in Unix milliseconds.
    pub(crate) now: u64,
}

/// What came of a turn.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// Something was written, or a base handed in.
    pub(crate) busy: bool,
    /// What failed: it is tried again at the next turn.
    pub(crate) failed: Option<io::Error>,
    /// What became of a rewrite.
    pub(crate) rewritten: Option<io::Result<()>>,
}

/// With `everysec`, what was written is synced when the last sync is this old.
const SYNC_EVERY_MS: u64 = 1000;

/// Where nothing is synced, it is looked so often whether the file is still there.
const LOOK_EVERY_MS: u64 = 1000;

/// A worker leaves more bytes than this to the thread.
const PUSH_BYTES: usize = 512 * 1024;
/// A worker's write that takes longer than this is slow: ...
const SLOW_WRITE: Duration = Duration::from_millis(2);
/// ... then the thread writes for so many times as long, and at most for so long. Without
/// that, a disk that keeps whoever writes to it waiting would keep all workers.
const SLOW_FOR: u64 = 20;
const SLOW_FOR_MAX_MS: u64 = 1000;

impl Writer {
    pub(crate) fn new(aof: Aof, follower: Follower, now: u64) -> Self {
        let joined = follower.joined_at();
        Self {
            aof,
            follower,
            waiting: Vec::new(),
            written: joined,
            synced: joined,
            synced_at: now,
            looked_at: now,
            last_mark: 0,
            last_second: 0,
            rewritten: None,
            syncing: None,
            failed: None,
            slow_until: 0,
        }
    }

    /// The last commit that is written, and the last that is on disk for certain.
    pub(crate) fn reached(&self) -> (u64, u64) {
        (self.written, self.synced)
    }

    /// In how many milliseconds something is to be done even if nothing comes.
    pub(crate) fn due_in(&self, manner: Manner) -> Option<u64> {
        let waits =
            manner.policy == Policy::EverySecond && self.syncing.is_none() && !self.aof.is_synced();
        waits.then(|| (self.synced_at + SYNC_EVERY_MS).saturating_sub(manner.now))
    }

    /// Hands a snapshot in.
    pub(crate) fn rewritten(&mut self, rewritten: Rewritten) {
        self.rewritten = Some(rewritten);
    }

    /// Reads, writes, syncs.
    pub(crate) fn turn(&mut self, manner: Manner) -> Turn {
        let mut turn = Turn::default();
        if let Some(error) = self.failed.take() {
            turn.failed = Some(error);
            return turn;
        }
        if self.waiting.is_empty() {
            turn.busy = self.follower.read_once(&mut self.waiting);
        }
        if let Err(error) = self.write(manner) {
            turn.failed = Some(error);
            return turn;
        }
        if let Err(error) = self.sync(manner) {
            turn.failed = Some(error);
        }
        if self.rewritten.as_ref().is_some_and(|rewritten| rewritten.mark <= self.last_mark)
            && let Some(Rewritten { path, mark, format }) = self.rewritten.take()
        {
            turn.rewritten = Some(self.aof.rebase(&path, mark, format));
            // What was only hoped to be on disk is now known to be, or not.
            turn.busy = true;
        }
        turn
    }

    /// Writes what is new, unless that may take a while: then it is left to the next
    /// [`turn`](Self::turn), and the answer is false.
    pub(crate) fn push(&mut self, manner: Manner) -> bool {
        let left = self.failed.is_some() || !self.waiting.is_empty();
        if left || self.syncing.is_some() || manner.now < self.slow_until {
            return false;
        }
        self.follower.read_once(&mut self.waiting);
        let quick = |piece: &Piece| match piece {
            Piece::Bytes(bytes) => Some(bytes.len()),
            Piece::Mark(_) => None,
        };
        let bytes: Option<usize> = self.waiting.iter().map(quick).sum();
        if bytes.is_none_or(|bytes| bytes > PUSH_BYTES) {
            return false;
        }
        let began = Instant::now();
        let done = self.write(manner);
        let took = began.elapsed();
        if took > SLOW_WRITE {
            let rest = took.as_millis() as u64 * SLOW_FOR;
            self.slow_until = manner.now + rest.min(SLOW_FOR_MAX_MS);
        }
        let is_done = done.is_ok();
        self.failed = done.err();
        is_done
    }

    /// A sync that is due and is to be done apart, if there is one; then
    /// [`end_sync`](Self::end_sync).
    pub(crate) fn begin_sync(&mut self, manner: Manner) -> Option<Syncing> {
        let apart = manner.sync_apart && manner.policy == Policy::EverySecond;
        if !apart || self.syncing.is_some() || manner.no_sync || !self.is_due(manner) {
            return None;
        }
        self.synced_at = manner.now;
        match self.aof.begin_sync() {
            Ok(syncing) => {
                self.syncing = syncing.as_ref().map(|_| self.written);
                syncing
            }
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }

    /// What came of it.
    pub(crate) fn end_sync(&mut self, syncing: &Syncing, done: io::Result<()>) {
        let covered = self.syncing.take();
        self.aof.end_sync(syncing.len, &done);
        match (done, covered) {
            (Ok(()), Some(covered)) if self.aof.is_valid() => {
                self.synced = self.synced.max(covered);
            }
            (Ok(()), _) => {}
            (Err(error), _) => self.failed = Some(error),
        }
    }

    /// Writes what waits, as far as it goes.
    fn write(&mut self, manner: Manner) -> io::Result<()> {
        while !self.waiting.is_empty() {
            if let Some(Piece::Mark(number)) = self.waiting.first() {
                if self.syncing.is_some() {
                    // The increment is not left before it is known to be on disk.
                    return Ok(());
                }
                let number = *number;
                self.waiting.remove(0);
                self.last_mark = number;
                // If this fails the rewrite fails, and all goes on as it was.
                if let Err(error) = self.aof.begin_increment(number) {
                    tracing::error!(%error, "a new increment of the append-only file could not be begun");
                }
                continue;
            }
            let bytes = |piece: &Piece| match piece {
                Piece::Bytes(bytes) => Some(bytes.clone()),
                Piece::Mark(_) => None,
            };
            let mut pieces: Vec<Bytes> = self.waiting.iter().map_while(bytes).collect();
            let count = pieces.len();
            let second = manner.now / 1000;
            if manner.timestamps && second > self.last_second {
                pieces.insert(0, Bytes::from(format!("#TS:{second}\r\n")));
            }
            self.aof.write(&pieces)?;
            if manner.timestamps {
                self.last_second = second;
            }
            self.waiting.drain(..count);
        }
        self.written = self.follower.last();
        self.follower.dealt();
        Ok(())
    }

    fn is_due(&self, manner: Manner) -> bool {
        match manner.policy {
            Policy::Always => true,
            Policy::EverySecond => manner.now >= self.synced_at + SYNC_EVERY_MS,
            Policy::Never => false,
        }
    }

    fn sync(&mut self, manner: Manner) -> io::Result<()> {
        let apart = manner.sync_apart && manner.policy == Policy::EverySecond;
        let is_to_sync = !self.aof.is_synced() && self.is_due(manner) && !manner.no_sync;
        if !apart && self.syncing.is_none() && is_to_sync {
            self.aof.sync()?;
            self.synced_at = manner.now;
        } else if manner.now >= self.looked_at + LOOK_EVERY_MS {
            self.looked_at = manner.now;
            self.aof.look()?;
        }
        self.note_synced();
        Ok(())
    }

    fn note_synced(&mut self) {
        if self.aof.is_synced() && self.waiting.is_empty() {
            self.synced = self.written;
        }
    }

    /// Writes and syncs all there is, before the end.
    pub(crate) fn finish(&mut self, manner: Manner) -> io::Result<()> {
        loop {
            self.write(manner)?;
            if !self.follower.read_once(&mut self.waiting) {
                break;
            }
        }
        self.aof.sync()?;
        self.aof.look()?;
        self.note_synced();
        Ok(())
    }
}
