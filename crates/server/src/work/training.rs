//! Where dictionaries are asked for: a short queue, of which the trainer's thread takes
//! one after the other (`background/trainer.rs`).

use crate::config::{Config, Param};
use foldhash::HashSet;
use parking_lot::Mutex;
use snug_codec::Dictionary;
use snug_codec::family::TRAINING_TIMES;
use snug_store::KeyFamily;
use snug_store::types::stream::{DictionarySamples, PackParams, Stream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Requests that may wait; beyond it, a stream asks again later.
const WAITING_MAX: usize = 4;

/// A dictionary that is asked for.
#[derive(Debug)]
pub(crate) enum Request {
    Stream { samples: DictionarySamples, params: PackParams, db: usize, key: Vec<u8> },
    Family { family: Arc<KeyFamily>, bytes_max: usize, level: i32 },
    Relevel { family: Arc<KeyFamily>, dictionary: Arc<Dictionary>, level: i32 },
}

/// Where training is asked for.
#[derive(Debug)]
pub(crate) struct Trainer {
    requests: SyncSender<Request>,
    waiting: Mutex<Option<Receiver<Request>>>,
    /// Streams whose dictionary is being trained or waits to be.
    asked: Mutex<HashSet<(usize, Vec<u8>)>>,
}

impl Default for Trainer {
    fn default() -> Self {
        let (requests, waiting) = sync_channel(WAITING_MAX);
        Self { requests, waiting: Mutex::new(Some(waiting)), asked: Mutex::default() }
    }
}

impl Trainer {
    /// Asks for a dictionary for this stream, unless it was asked for already
    /// or too many wait. Unpacks nothing: the stream's slot is locked.
    pub(crate) fn ask(&self, stream: &Stream, params: PackParams, db: usize, key: &[u8]) {
        let mut asked = self.asked.lock();
        let id = (db, key.to_vec());
        if asked.len() >= WAITING_MAX || asked.contains(&id) {
            return;
        }
        let Some(samples) = stream.dictionary_samples() else { return };
        let request = Request::Stream { samples, params, db, key: key.to_vec() };
        if self.requests.try_send(request).is_ok() {
            asked.insert(id);
        }
    }

    /// Has a dictionary trained for a family of strings, or the one that it has
    /// made ready for another level, if that is due.
    pub(crate) fn ask_family(&self, config: &Config, family: &Arc<KeyFamily>) {
        if let Some((dictionary, level)) = family.relevel_due() {
            let request = Request::Relevel { family: Arc::clone(family), dictionary, level };
            if self.requests.try_send(request).is_err() {
                family.training_refused();
            }
            return;
        }
        let bytes_max = config.number(Param::PackDictionarySize) as usize;
        if !family.is_training_due(bytes_max) {
            return;
        }
        let level = config.number(Param::PackLevel) as i32;
        let level = family.level().unwrap_or(level);
        let request = Request::Family { family: Arc::clone(family), bytes_max, level };
        if self.requests.try_send(request).is_err() {
            family.training_refused();
        }
    }
    /// Who trains takes what is asked for from there; only the first is given it.
    pub(crate) fn requests(&self) -> Option<Receiver<Request>> {
        self.waiting.lock().take()
    }

    /// A stream may ask again.
    pub(crate) fn is_done(&self, db: usize, key: &[u8]) {
        self.asked.lock().remove(&(db, key.to_vec()));
    }
}

impl Request {
    /// Bytes of memory that it takes at most.
    pub(crate) fn bytes_max(&self) -> usize {
        match self {
            Self::Stream { samples, params, .. } => samples.training_bytes_max(params),
            Self::Family { family, .. } => family.training_bytes_max(),
            Self::Relevel { dictionary, .. } => TRAINING_TIMES * dictionary.memory_bytes(),
        }
    }

    /// Whether what it brings can be done without.
    pub(crate) fn may_fail(&self) -> bool {
        matches!(self, Self::Family { family, .. } if family.is_growing())
    }
}
