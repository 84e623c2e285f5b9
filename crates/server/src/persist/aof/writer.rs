//! What writes the append-only file: it follows the journal, and says how far commits are
//! on disk.
//!
//! One [`turn`](Writer::turn) reads what is new, writes it, and syncs it if the policy
//! says so; `always` thereby shares one sync among all commits that came during the last.
//! A thread of its own takes turns ([`run`]); a simulation takes them by itself.

use super::super::writing::Format;
use super::Aof;
use crate::journal::{Follower, Piece};
use bytes::Bytes;
use std::io;
use std::path::PathBuf;

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
}

/// How it is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) policy: Policy,
    /// Nothing is synced for now: `no-appendfsync-on-rewrite`, and a rewrite runs.
    pub(crate) no_sync: bool,
    /// The time goes into the file.
    pub(crate) timestamps: bool,
    /// The time, in Unix milliseconds.
    pub(crate) now: u64,
}

/// What came of a turn.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// Something was done, and there may be more.
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
        }
    }

    /// The last commit that is written, and the last that is on disk for certain.
    pub(crate) fn reached(&self) -> (u64, u64) {
        (self.written, self.synced)
    }

    /// In how many milliseconds something is to be done even if nothing comes.
    pub(crate) fn due_in(&self, manner: Manner) -> Option<u64> {
        let waits = manner.policy == Policy::EverySecond && !self.aof.is_synced();
        waits.then(|| (self.synced_at + SYNC_EVERY_MS).saturating_sub(manner.now))
    }

    /// Hands a snapshot in.
    pub(crate) fn rewritten(&mut self, rewritten: Rewritten) {
        self.rewritten = Some(rewritten);
    }

    /// Reads, writes, syncs.
    pub(crate) fn turn(&mut self, manner: Manner) -> Turn {
        let mut turn = Turn::default();
        if self.waiting.is_empty() {
            turn.busy = self.follower.read(&mut self.waiting);
        }
        if let Err(error) = self.write(manner) {
            turn.failed = Some(error);
            return turn;
        }
        self.written = self.follower.last();
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

    /// Writes what waits, as far as it goes.
    fn write(&mut self, manner: Manner) -> io::Result<()> {
        while !self.waiting.is_empty() {
            if let Some(Piece::Mark(number)) = self.waiting.first() {
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
        Ok(())
    }

    fn sync(&mut self, manner: Manner) -> io::Result<()> {
        let is_due = match manner.policy {
            Policy::Always => true,
            Policy::EverySecond => manner.now >= self.synced_at + SYNC_EVERY_MS,
            Policy::Never => false,
        };
        if is_due && !manner.no_sync {
            self.aof.sync()?;
            self.synced_at = manner.now;
        } else if manner.now >= self.looked_at + LOOK_EVERY_MS {
            self.looked_at = manner.now;
            self.aof.look()?;
        }
        if self.aof.is_synced() {
            self.synced = self.written;
        }
        Ok(())
    }

    /// Writes and syncs all there is, before the end.
    pub(crate) fn finish(&mut self, manner: Manner) -> io::Result<()> {
        while self.follower.read(&mut self.waiting) {}
        self.write(manner)?;
        self.written = self.follower.last();
        self.aof.sync()?;
        if self.aof.is_synced() {
            self.synced = self.written;
        }
        Ok(())
    }
}
