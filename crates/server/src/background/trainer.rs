//! The trainer: one thread that trains dictionaries, so that no worker does.
//! Training takes tens of milliseconds for each megabyte of samples.
//!
//! It takes memory too, a few MiB at a time, and waits until `maxmemory` has room for
//! that ([`crate::background::room`]).

use crate::background::room::WayToRoom;
use crate::engine::server::Server;
use crate::measure::stats::Stat;
use crate::outside::clock::unix_ms;
use snug_store::{Trained, Training, memory};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use thread_priority::ThreadPriority;
use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

/// Starts the trainer's thread. It ends with the server.
pub(crate) fn start(server: &Arc<Server>) -> io::Result<()> {
    let Some(waiting) = server.trainer.requests() else { return Ok(()) };
    let server = Arc::downgrade(server);
    let work = move || {
        // Clients come first: where there is no core to spare, a slice of
        // training would be milliseconds that a worker's clients wait.
        if let Err(error) = yield_to_workers() {
            tracing::warn!(?error, "the trainer runs at the workers' priority");
        }
        let mut way = WayToRoom::new(server.clone());
        for training in waiting {
            if let Some(server) = server.upgrade()
                && server.persist.loading.is_packed.load(Relaxed)
            {
                // What it is trained on goes, or its id may be one of those that come.
                training.give_up(&server.store);
                server.trainer.is_over(&training);
                continue;
            }
            match way.wait(training.may_fail(), || training.bytes_max()) {
                Ok(running) => {
                    run(&running.0, training);
                    // It may be long until this thread allocates again.
                    memory::purge();
                }
                // There was no room for it: it may be asked for again.
                Err(Some(server)) => {
                    training.give_up(&server.store);
                    server.trainer.is_over(&training);
                }
                Err(None) => return,
            }
        }
    };
    std::thread::Builder::new().name("trainer".into()).spawn(work).map(drop)
}

/// Makes this thread one that the kernel takes off the core as soon as another
/// wants it. A low priority alone would not do: a slice of it, once begun, lasts
/// up to 3 ms.
fn yield_to_workers() -> Result<(), thread_priority::Error> {
    let policy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy)
}

fn run(server: &Server, training: Training) {
    let came = training.run(&mut server.store.session(), unix_ms());
    match came {
        Trained::Dictionary => server.stats.add(Stat::dictionaries_trained, 1),
        Trained::Nothing => server.stats.add(Stat::dictionaries_rejected, 1),
        Trained::Other => {}
    }
    // Looking a value up may have removed an expired key that somebody waits for.
    server.blocked.leave_to_others();
    server.trainer.is_over(&training);
}
