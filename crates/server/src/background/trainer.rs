//! The trainer: one thread that trains dictionaries, so that no worker does.
//! Training takes tens of milliseconds for each megabyte of samples.
//!
//! It takes memory too, a few MiB at a time, and waits until `maxmemory` has room for
//! that ([`crate::background::room`]).

use crate::background::room::WayToRoom;
use crate::engine::server::Server;
use crate::measure::stats::Stat;
use crate::outside::clock::unix_ms;
use crate::work::training::Request;
use snug_codec::{Dictionary, Workspace, WorkspaceConfig};
use snug_store::types::stream::{DictionarySamples, PackParams};
use snug_store::{KeyFamily, memory};
use std::io;
use std::sync::Arc;
use thread_priority::ThreadPriority;
use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

/// Starts the trainer's thread. It ends with the server.
pub(crate) fn start(server: &Arc<Server>) -> io::Result<()> {
    let Some(waiting) = server.trainer.requests() else { return Ok(()) };
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
                server.trainer.is_done(db, &key);
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
    server.trainer.is_done(db, name);
}
