//! What is done before the server ends: what is to be saved is, and what the append-only
//! file was given is on disk.

use super::saving::Kind;
use super::switch::IfNotWhole;
use super::{Persist, Running};
use crate::outside::clock::Instant;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::oneshot;

/// Commands do not take longer that run on workers; long ones have been waited for. A script
/// may: what it writes is in no snapshot, and nobody is told of it.
const UNDER_WAY_MAX: Duration = Duration::from_millis(200);

/// How the server is to end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ending {
    /// Whether to save a snapshot; `None` to do so if there are moments to save at.
    pub(crate) save: Option<bool>,
    /// It ends even if something could not be saved.
    pub(crate) force: bool,
    /// Replicas that lack something are not waited for.
    pub(crate) now: bool,
}

impl Ending {
    /// As the words of `shutdown-on-sigterm` have it.
    pub(crate) fn of_words(words: &str) -> Self {
        let has = |word: &str| words.split_ascii_whitespace().any(|w| w == word);
        let save = if has("save") { Some(true) } else { None };
        Self {
            save: if has("nosave") { Some(false) } else { save },
            force: has("force"),
            now: has("now"),
        }
    }
}

impl Persist {
    /// Saves what is to be saved, on a thread of its own; what came of it. Writes are
    /// paused: nothing is committed meanwhile that anybody was told of.
    pub(crate) fn before_end(
        self: &Arc<Self>,
        ending: Ending,
    ) -> oneshot::Receiver<Result<(), String>> {
        let (told, done) = oneshot::channel();
        let persist = Arc::clone(self);
        let thread = std::thread::Builder::new().name("ending".into()).spawn(move || {
            let saved = persist.save_before_end(ending);
            let _ = told.send(if ending.force { Ok(()) } else { saved });
        });
        if let Err(error) = thread {
            tracing::error!(%error, "no thread to save what is to be saved");
        }
        done
    }

    /// The same on this thread.
    pub(crate) fn save_before_end(self: &Arc<Self>, ending: Ending) -> Result<(), String> {
        if self.is_loading() {
            // What is on disk is all there is.
            self.stop.store(true, Relaxed);
            return Ok(());
        }
        // A command that was under way when writes were paused may still write.
        self.store.session().wait_a_while_for_others(UNDER_WAY_MAX);
        let saves = ending.save.unwrap_or_else(|| !self.config.is_empty(super::Param::Save));
        // What is being written is of no use: a newer snapshot comes, or none is wanted.
        self.stop.store(true, Relaxed);
        self.take_turn();
        self.stop.store(false, Relaxed);
        let mut done = if saves { self.run(Kind::Save) } else { Ok(()) };
        // A base that is not on disk is to be, or is to be written anew.
        let lacks_base = || self.is_aof_on() && self.figures.aof_wants_rewrite.load(Relaxed);
        if done.is_ok() && lacks_base() {
            if saves {
                self.take_turn();
            }
            done = if lacks_base() { self.run(Kind::Rewrite) } else { Ok(()) };
        }
        if done.is_ok() || ending.force {
            let otherwise = if ending.force { IfNotWhole::End } else { IfNotWhole::Stay };
            let closed = self.turn_off(otherwise);
            if let Err(error) = &closed {
                tracing::error!(error, "the append-only file is not whole on disk");
            }
            done = done.and(closed);
        }
        self.jobs.lock().running = None;
        self.ended.store(done.is_ok() || ending.force, Relaxed);
        done
    }

    /// Waits until nothing is being saved, and takes the place of what is.
    fn take_turn(&self) {
        loop {
            let mut jobs = self.jobs.lock();
            if jobs.running.is_none() {
                let (kind, began) = (Kind::Save, Instant::now());
                jobs.running = Some(Running { kind, began, keys_total: 0 });
                return;
            }
            drop(jobs);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
