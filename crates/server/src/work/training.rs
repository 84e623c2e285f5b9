//! Where dictionaries are asked for: a short queue, of which the trainer's thread takes
//! one after the other (`background/trainer.rs`).

use foldhash::HashSet;
use parking_lot::Mutex;
use snug_store::{Batch, Job, KeyFamily, PieceParams, Store, Training};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Requests that may wait; beyond it, who asks does so again later.
const WAITING_MAX: usize = 4;

/// Where training is asked for.
#[derive(Debug)]
pub(crate) struct Trainer {
    requests: SyncSender<Training>,
    waiting: Mutex<Option<Receiver<Training>>>,
    /// Values whose own dictionary is being trained or waits to be.
    asked: Mutex<HashSet<(usize, Vec<u8>)>>,
}

impl Default for Trainer {
    fn default() -> Self {
        let (requests, waiting) = sync_channel(WAITING_MAX);
        Self { requests, waiting: Mutex::new(Some(waiting)), asked: Mutex::default() }
    }
}

impl Trainer {
    /// Asks for a dictionary for the value of this job alone, unless it was asked for
    /// already or too many wait.
    pub(crate) fn ask_own(&self, store: &Batch<'_>, job: &Job, params: &PieceParams) {
        let mut asked = self.asked.lock();
        let id = (job.db(), job.key().to_vec());
        if asked.len() >= WAITING_MAX || asked.contains(&id) {
            return;
        }
        let Some(training) = store.training_due(job, params) else { return };
        if self.requests.try_send(training).is_ok() {
            asked.insert(id);
        }
    }

    /// Has trained what is due for a family, if anything is.
    pub(crate) fn ask(&self, store: &Store, family: &Arc<KeyFamily>, params: &PieceParams) {
        let Some(training) = store.training_due(family, params) else { return };
        if let Err(TrySendError::Full(training) | TrySendError::Disconnected(training)) =
            self.requests.try_send(training)
        {
            training.refused();
        }
    }

    /// Who trains takes what is asked for from there; only the first is given it.
    pub(crate) fn requests(&self) -> Option<Receiver<Training>> {
        self.waiting.lock().take()
    }

    /// Another may be asked for: this one is over.
    pub(crate) fn is_over(&self, training: &Training) {
        if let Some((db, key)) = training.value() {
            self.asked.lock().remove(&(db, key.to_vec()));
        }
    }
}
