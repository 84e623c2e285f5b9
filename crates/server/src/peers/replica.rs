//! A replica of this node, as everybody may see it: its task writes, `INFO`, `ROLE`,
//! `WAIT` and `FAILOVER` read.

use crate::follow::clients::{Address, Shared};
use crate::outside::clock::unix_ms;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// How far a replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// A snapshot for it has not begun.
    Waits,
    /// It is sent a snapshot.
    Loads,
    /// It is sent the stream.
    Online,
}

/// What a replica says of itself before it asks for anything: `REPLCONF`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Introduction {
    pub(crate) port: u16,
    /// Where it says that it can be reached.
    pub(crate) address: Option<String>,
    /// It understands a snapshot whose length is not known (`capa eof`).
    pub(crate) eof: bool,
    /// It understands an id behind `+CONTINUE` (`capa psync2`).
    pub(crate) psync2: bool,
    /// It understands a data set in Snug's own format ([`CAPA_IMAGE`]).
    pub(crate) image: bool,
    /// It is no node but keeps a copy of the data set (`redis-cli --rdb`), and is sent no
    /// stream.
    pub(crate) rdb_only: bool,
    /// What it wants to have left out of the data set.
    pub(crate) without: LeftOut,
}

/// What is left out of a data set: `REPLCONF rdb-filter-only`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) keys: bool,
    pub(crate) functions: bool,
}

impl Introduction {
    /// Replicas of which this is the same are sent the same data set.
    pub(crate) fn wants(&self) -> (bool, LeftOut) {
        (self.image && self.without == LeftOut::default(), self.without)
    }
}

/// The name of that capability; a number of the format is part of it.
pub(crate) const CAPA_IMAGE: &str = "snug-image-2";

/// What a client that is to become a replica asked for: `PSYNC`, `SYNC`.
#[derive(Clone, Debug)]
pub(crate) struct Psync {
    /// The stream that it knows, and the offset from which on it lacks it.
    pub(crate) resume: Option<(String, u64)>,
    /// It is `SYNC` of old, and is told nothing before the snapshot.
    pub(crate) silent: bool,
}

/// One replica.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) client: Arc<Shared>,
    pub(crate) introduction: Introduction,
    stage: AtomicU8,
    /// The offset up to which it has been sent the stream.
    sent: AtomicU64,
    /// The offset up to which it says that it has executed it, and when it said so.
    acknowledged: AtomicU64,
    heard: AtomicU64,
    /// Since when more waits for it than the soft limit.
    pub(crate) over_soft_since: Mutex<Option<u64>>,
}

impl Replica {
    pub(crate) fn new(client: Arc<Shared>, introduction: Introduction) -> Self {
        Self {
            client,
            introduction,
            stage: AtomicU8::new(Stage::Waits as u8),
            sent: AtomicU64::new(u64::MAX),
            acknowledged: AtomicU64::new(0),
            heard: AtomicU64::new(unix_ms()),
            over_soft_since: Mutex::default(),
        }
    }

    pub(crate) fn stage(&self) -> Stage {
        match self.stage.load(Relaxed) {
            0 => Stage::Waits,
            1 => Stage::Loads,
            _ => Stage::Online,
        }
    }

    pub(crate) fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u8, Relaxed);
    }

    /// As `INFO` tells it.
    pub(crate) fn state(&self) -> &'static str {
        match self.stage() {
            Stage::Waits => "wait_bgsave",
            Stage::Loads => "send_bulk",
            Stage::Online => "online",
        }
    }

    pub(crate) fn is_online(&self) -> bool {
        self.stage() == Stage::Online
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    pub(crate) fn set_sent(&self, offset: u64) {
        self.sent.store(offset, Relaxed);
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Relaxed)
    }

    /// It has said something.
    pub(crate) fn heard_of(&self) {
        self.heard.store(unix_ms(), Relaxed);
    }

    /// It has executed the stream up to there.
    pub(crate) fn acknowledge(&self, offset: u64) {
        self.heard_of();
        self.acknowledged.fetch_max(offset, Relaxed);
    }

    /// It begins there.
    pub(crate) fn begin_at(&self, offset: u64) {
        // Nothing of the stream is kept for one that is not sent it.
        self.sent.store(if self.introduction.rdb_only { u64::MAX } else { offset }, Relaxed);
        self.acknowledged.store(0, Relaxed);
    }

    /// Milliseconds since it was last heard of.
    pub(crate) fn silent_ms(&self, now: u64) -> u64 {
        now.saturating_sub(self.heard.load(Relaxed))
    }

    /// Seconds since it was last heard of, as `INFO` counts its lag.
    pub(crate) fn lag_seconds(&self, now: u64) -> u64 {
        if self.is_online() { self.silent_ms(now) / 1000 } else { 0 }
    }

    /// Where it can be reached.
    pub(crate) fn address(&self) -> String {
        let announced = self.introduction.address.clone();
        announced.unwrap_or_else(|| match &self.client.peer {
            Address::Net(address) => address.ip().to_canonical().to_string(),
            // Only what is on this machine comes through it.
            Address::Unix(_) => "127.0.0.1".into(),
        })
    }
}
