//! The trainer: one thread that trains dictionaries, so that no worker does.
//! Training takes tens of milliseconds for each megabyte of samples.
//!
//! It takes memory too, a few MiB at a time, and waits until `maxmemory` has room for
//! that ([`crate::work::learning`]).

use crate::config::Param;
use crate::engine::server::Server;
use crate::measure::stats::Stat;
use crate::outside::clock::unix_ms;
use crate::work::learning::WayToRoom;
use foldhash::HashSet;
use parking_lot::Mutex;
use snug_codec::family::TRAINING_TIMES;
use snug_codec::{Dictionary, Workspace, WorkspaceConfig};
use snug_store::types::stream::{DictionarySamples, PackParams, Stream};
use snug_store::{KeyFamily, memory};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use thread_priority::ThreadPriority;
use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

/// Requests that may wait; beyond it, a stream asks again later.
const WAITING_MAX: usize = 4;

#[derive(Debug)]
enum Request {
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
    pub(crate) fn ask_family(&self, server: &Server, family: &Arc<KeyFamily>) {
        if let Some((dictionary, level)) = family.relevel_due() {
            let request = Request::Relevel { family: Arc::clone(family), dictionary, level };
            if self.requests.try_send(request).is_err() {
                family.training_refused();
            }
            return;
        }
        let bytes_max = server.config.number(Param::PackDictionarySize) as usize;
        if !family.is_training_due(bytes_max) {
            return;
        }
        let level = server.config.number(Param::PackLevel) as i32;
        let level = family.level().unwrap_or(level);
        let request = Request::Family { family: Arc::clone(family), bytes_max, level };
        if self.requests.try_send(request).is_err() {
            family.training_refused();
        }
    }
}

/// Starts the trainer's thread. It ends with the server.
pub(crate) fn start(server: &Arc<Server>) -> io::Result<()> {
    let Some(waiting) = server.trainer.waiting.lock().take() else { return Ok(()) };
    let server = Arc::downgrade(server);
    let run = move || {
        // Clients come first: where there is no core to spare, a slice of
        // training would be milliseconds that a worker's clients wait.
        if let Err(error) = yield_to_workers() {
            tracing::warn!(?error, "the trainer runs at the workers' priority");
        }
        let mut way = WayToRoom::new(server);
        for request in waiting {
            match way.wait(request.may_fail(), || request.bytes_max()) {
                Ok(running) => {
                    request.run(&running.0);
                    // It may be long until this thread allocates again.
                    memory::purge();
                }
                Err(Some(server)) => request.give_up(&server),
                Err(None) => return,
            }
        }
    };
    std::thread::Builder::new().name("trainer".into()).spawn(run).map(drop)
}

impl Request {
    /// Bytes of memory that it takes at most.
    fn bytes_max(&self) -> usize {
        match self {
            Self::Stream { samples, params, .. } => samples.training_bytes_max(params),
            Self::Family { family, .. } => family.training_bytes_max(),
            Self::Relevel { dictionary, .. } => TRAINING_TIMES * dictionary.memory_bytes(),
        }
    }

    /// Whether what it brings can be done without.
    fn may_fail(&self) -> bool {
        matches!(self, Self::Family { family, .. } if family.is_growing())
    }

    fn run(self, server: &Arc<Server>) {
        match self {
            Self::Stream { samples, params, db, key } => {
                train_stream(server, samples, params, db, &key);
            }
            Self::Family { family, bytes_max, level } => {
                train_family(server, &family, bytes_max, level);
            }
            Self::Relevel { family, dictionary, level } => {
                let made = Dictionary::from_bytes(0, dictionary.bytes(), level).ok();
                server.store.families().relevel(&family, dictionary.id(), made);
            }
        }
    }

    /// There was no room for it: it may be asked for again.
    fn give_up(self, server: &Server) {
        match self {
            Self::Stream { db, key, .. } => {
                server.trainer.asked.lock().remove(&(db, key));
            }
            Self::Family { family, .. } | Self::Relevel { family, .. } => {
                server.store.families().stop_growing(&family);
                family.training_refused();
            }
        }
    }
}

/// Makes this thread one that the kernel takes off the core as soon as another
/// wants it. A low priority alone would not do: a slice of it, once begun, lasts
/// up to 3 ms.
fn yield_to_workers() -> Result<(), thread_priority::Error> {
    let policy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy)
}

/// Candidates for a parameter of training that are tried for a family.
const TRAINING_STEPS: u32 = 4;

fn train_family(server: &Server, family: &KeyFamily, bytes_max: usize, level: i32) {
    let families = server.store.families();
    let Some(job) = families.training_job(family) else { return family.training_refused() };
    let mut workspace = Workspace::new(WorkspaceConfig::default());
    let trained = job.run(&mut workspace, bytes_max, level, TRAINING_STEPS);
    let stat = match trained {
        Some(_) => Stat::dictionaries_trained,
        None => Stat::dictionaries_rejected,
    };
    // Before another is begun, and before the dictionary counts too.
    drop((job, workspace));
    server.stats.add(stat, 1);
    families.adopt(family, trained.map(|trained| trained.dictionary));
}

fn train_stream(
    server: &Arc<Server>,
    samples: DictionarySamples,
    params: PackParams,
    db: usize,
    name: &[u8],
) {
    let mut workspace = Workspace::new(WorkspaceConfig::default());
    let dictionary = samples.train(&mut workspace, &params);
    let dictionary = dictionary.map(|dictionary| server.store.families().own(dictionary));
    let stat = match dictionary {
        Some(_) => Stat::dictionaries_trained,
        None => Stat::dictionaries_rejected,
    };
    server.stats.add(stat, 1);
    let mut session = server.store.session();
    let batch = session.enter(unix_ms());
    let key = batch.key(name);
    let mut slot = batch.lock(db, &key);
    if let Some(found) = slot.find_untouched(&key) {
        slot.adopt_dictionary(found, dictionary, &samples);
    }
    drop(slot);
    // Looking it up may have removed an expired key that somebody waits for.
    server.blocked.leave_to_others();
    server.trainer.asked.lock().remove(&(db, name.to_vec()));
}
