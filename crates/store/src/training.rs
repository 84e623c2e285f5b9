//! Trainings: dictionaries that are due, for a family of keys or for a value alone, and
//! the same for another level. One notion of all, to be run one after another where they
//! disturb nobody.

use crate::jobs::Job;
use crate::memory;
use crate::pack::families::KeyFamily;
use crate::pack::piece::{PieceParams, Samples};
use crate::store::{Batch, Session, Store};
use crate::types::forms::ValueMut;
use snug_codec::family::TRAINING_TIMES;
use snug_codec::{Dictionary, Workspace, WorkspaceConfig};
use std::sync::Arc;

/// Candidates for a parameter of training that are tried for a family.
const STEPS: u32 = 4;

/// All dictionaries together are a tenth of the memory in use at most ...
const DICTIONARIES_ONE_IN: usize = 10;
/// ... of which one takes up to ten times its bytes. One in so many of the bytes in use is
/// enough for one, and less than so many are of no use.
const MEMORY_OF_BYTES: usize = 10;
const BYTES_OF_USED: usize = 128;
const BYTES_MIN: usize = 2048;
/// What a dictionary saves of the values that have come by, in times its own memory. Not
/// all of it turns into smaller size classes.
const WORTH_TIMES: f64 = 2.0;

/// The most bytes of a dictionary in a store of this size, where others are of
/// `taken` bytes already; `None` if there is no room for another.
fn bytes_worth(bytes_max: usize, taken: usize) -> Option<usize> {
    // None is in use where somebody else allocates, and does not count.
    let used = match memory::used() {
        0 => return Some(bytes_max),
        used => used,
    };
    let room = (used / DICTIONARIES_ONE_IN).saturating_sub(taken) / MEMORY_OF_BYTES;
    let bytes = bytes_max.min((used / BYTES_OF_USED).max(BYTES_MIN)).min(room);
    (bytes >= BYTES_MIN).then_some(bytes)
}

/// A family whose values still come is taken to be of so many times those that have.
const YET_TO_COME: u64 = 4;

/// A dictionary that is to be trained.
#[derive(Debug)]
pub struct Training(What);

#[derive(Debug)]
enum What {
    /// Of a value alone.
    Own { db: usize, key: Vec<u8>, samples: Box<dyn Samples>, bytes_max: usize, level: i32 },
    /// Of a family: its first, or a better one.
    Family { family: Arc<KeyFamily>, bytes_max: usize, level: i32 },
    /// What a family has, digested for another level.
    Relevel { family: Arc<KeyFamily>, dictionary: Arc<Dictionary>, level: i32 },
}

/// What came of a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trained {
    /// A dictionary.
    Dictionary,
    /// None that is worth its memory.
    Nothing,
    /// It was not about training, or not due any more.
    Other,
}

impl Store {
    /// What is due for a family, if anything is. Given once, until it is
    /// [run](Training::run) or [given up](Training::give_up).
    pub fn training_due(&self, family: &Arc<KeyFamily>, params: &PieceParams) -> Option<Training> {
        if let Some((dictionary, level)) = family.relevel_due() {
            let family = Arc::clone(family);
            return Some(Training(What::Relevel { family, dictionary, level }));
        }
        let bytes_max = params.dictionary_bytes;
        family.is_training_due(bytes_max).then(|| {
            let level = family.level().unwrap_or(params.level);
            Training(What::Family { family: Arc::clone(family), bytes_max, level })
        })
    }
}

impl Batch<'_> {
    /// What is due for the value of a job alone, if that wants a dictionary of its own.
    /// Unpacks nothing: its slot is locked.
    pub fn training_due(&self, job: &Job, params: &PieceParams) -> Option<Training> {
        let key = self.key(job.key());
        let mut slot = self.lock(job.db(), &key);
        let found = slot.find_entry(&key)?;
        let learner = slot.cell_mut(found).value_mut()?.learner()?;
        let samples = learner.wants_dictionary().then(|| learner.samples())??;
        let (bytes_max, level) = (params.dictionary_bytes, job.choice().level);
        let (db, key) = (job.db(), job.key().to_vec());
        Some(Training(What::Own { db, key, samples, bytes_max, level }))
    }
}

impl Training {
    /// The database and the key of the value whose it is, if it is of a value alone.
    pub fn value(&self) -> Option<(usize, &[u8])> {
        match &self.0 {
            What::Own { db, key, .. } => Some((*db, key)),
            What::Family { .. } | What::Relevel { .. } => None,
        }
    }

    /// Bytes of memory that it takes at most, about.
    pub fn bytes_max(&self) -> usize {
        match &self.0 {
            What::Own { samples, bytes_max, .. } => samples.training_bytes_max(*bytes_max),
            What::Family { family, .. } => family.training_bytes_max(),
            What::Relevel { dictionary, .. } => TRAINING_TIMES * dictionary.memory_bytes(),
        }
    }

    /// Whether what it brings can be done without.
    pub fn may_fail(&self) -> bool {
        matches!(&self.0, What::Family { family, .. } if family.is_growing())
    }

    /// Trains, and gives what came of it to whom it is for. Tens of milliseconds for each
    /// megabyte of samples. `session` is at `now`, in Unix milliseconds.
    pub fn run(&self, session: &mut Session, now: u64) -> Trained {
        match &self.0 {
            What::Own { db, key, samples, bytes_max, level } => {
                let mut workspace = Workspace::new(WorkspaceConfig::default());
                let dictionary = samples.train(&mut workspace, *bytes_max, *level);
                let trained = came(dictionary.is_some());
                session.enter(now).adopt(*db, key, &**samples, dictionary);
                trained
            }
            What::Family { family, bytes_max, level } => {
                let families = session.store().families();
                let Some(job) = families.training_job(family) else {
                    family.training_refused();
                    return Trained::Other;
                };
                let mut workspace = Workspace::new(WorkspaceConfig::default());
                // What its dictionary takes, the new one may take.
                let taken = families.dictionary_stats().memory_bytes;
                let taken = taken.saturating_sub(family.dictionary_bytes());
                let Some(bytes_max) = bytes_worth(*bytes_max, taken) else {
                    families.adopt(family, None);
                    return Trained::Nothing;
                };
                // Values that still come will be more than those that have.
                let met = family.came_bytes().max(job.raw_bytes() as u64);
                let of_bytes = match family.is_stalled() {
                    true => met,
                    // Or are there already, and have only not been met.
                    false => (YET_TO_COME * met).max(memory::used() as u64 / 4),
                };
                let job = job.for_bytes(of_bytes);
                let trained = job.run(&mut workspace, bytes_max, *level, STEPS);
                let trained = trained.filter(|trained| {
                    let saved = trained.without_bytes.saturating_sub(trained.with_bytes);
                    let share = saved as f64 / trained.raw_bytes.max(1) as f64;
                    let saves = of_bytes as f64 * share;
                    saves >= WORTH_TIMES * trained.dictionary.memory_bytes() as f64
                });
                // Before another is begun, and before the dictionary counts too.
                drop((job, workspace));
                let came = came(trained.is_some());
                families.adopt(family, trained.map(|trained| trained.dictionary));
                came
            }
            What::Relevel { family, dictionary, level } => {
                let made = Dictionary::from_bytes(0, dictionary.bytes(), *level).ok();
                session.store().families().relevel(family, dictionary.id(), made);
                Trained::Other
            }
        }
    }

    /// There is no place for it just now: it is due again.
    pub fn refused(&self) {
        match &self.0 {
            What::Own { .. } => {}
            What::Family { family, .. } | What::Relevel { family, .. } => {
                family.training_refused();
            }
        }
    }

    /// There is no room for it: it is not run, and may be asked for again.
    pub fn give_up(&self, store: &Store) {
        if let What::Family { family, .. } | What::Relevel { family, .. } = &self.0 {
            store.families().stop_growing(family);
        }
        self.refused();
    }
}

fn came(is_found: bool) -> Trained {
    if is_found { Trained::Dictionary } else { Trained::Nothing }
}

impl Batch<'_> {
    /// Gives a value what was trained for it, or nothing, if it still is what the
    /// samples are of.
    fn adopt(&self, db: usize, name: &[u8], samples: &dyn Samples, dictionary: Option<Dictionary>) {
        let own = dictionary.map(|dictionary| self.store().families().own(dictionary));
        let key = self.key(name);
        let mut slot = self.lock(db, &key);
        let Some(found) = slot.find_entry(&key) else { return };
        slot.change(found, |cell| {
            let learner = cell.value_mut().and_then(ValueMut::learner);
            if let Some(learner) = learner {
                learner.adopt(own, samples);
            }
        });
    }
}
