//! How families get their dictionaries: the training that is due, what comes of it, and
//! the larger one that a family which holds much is given, one at a time.

use super::Families;
use super::family::{KeyFamily, State};
use super::patience::Patience;
use crate::memory;
use crate::sync::AtomicU32;
use snug_codec::Dictionary;
use snug_codec::family::{
    Family, FamilyConfig, GROWN_TIMES, TRAINING_BYTES, TRAINING_TIMES, TrainingJob,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A family with a dictionary is worth a larger one, of some 300 KiB, when its packed
/// values are of so many bytes unpacked ...
pub(super) const GROWN_BYTES: u64 = 32 << 20;

/// ... for which all samples of families may be so many times those that one collects
/// then. Whether it is so is looked at every so many values.
const GROWN_ROOM: usize = 4;

/// A dictionary from fewer bytes than these is outgrown when its family's packed values
/// are of so many times those bytes.
const OUTGROWS_BELOW: u64 = 512 << 10;
const OUTGROWN_TIMES: u64 = 8;

/// The place of the one family that collects samples for a larger dictionary: many at
/// once would leave no room for those that have none. It goes by the id of the
/// dictionary that it has, 0 for nobody.
#[derive(Debug, Default)]
pub(super) struct Growing(AtomicU32);

impl Growing {
    /// Takes the place for the family of this dictionary, if it is free.
    pub(super) fn begin(&self, id: u32) -> bool {
        self.0.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Gives it back, if it was that family's.
    pub(super) fn end(&self, id: u32) {
        let _ = self.0.compare_exchange(id, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Families {
    /// The training of a family that is due: to be run where it disturbs nobody.
    /// `None` if the samples are there no more.
    pub fn training_job(&self, family: &KeyFamily) -> Option<TrainingJob> {
        self.counted(&mut family.state.lock().family, Family::training_job)
    }

    /// Has a family collect more samples, if it holds enough for that and no other
    /// does so.
    pub(super) fn grow(&self, state: &mut State) {
        let Some(dictionary) = state.family.dictionary() else { return };
        let (stats, id) = (state.family.stats(), dictionary.id());
        let mean = stats.raw_bytes / stats.packed.max(1);
        // A small dictionary from few samples has been outgrown.
        let holds = self.dictionaries.registry().references(id) * mean;
        if state.trained_from < OUTGROWS_BELOW && holds >= OUTGROWN_TIMES * state.trained_from {
            state.trained_from = holds;
            self.counted(&mut state.family, Family::outgrow);
            return;
        }
        if self.dictionaries.registry().references(id) * mean >= GROWN_BYTES
            && self.has_room_to_grow()
            && self.growing.begin(id)
            && !state.family.grow()
        {
            self.growing.end(id);
        }
        state.growing = 0;
    }

    /// Whether samples may be so many, and memory is left for them and for two
    /// trainings from them.
    pub(super) fn has_room_to_grow(&self) -> bool {
        let samples = GROWN_TIMES * FamilyConfig::default().sample_bytes_max;
        let taken = samples + 2 * (TRAINING_BYTES + TRAINING_TIMES * samples);
        let below = self.sampled_below.load(Ordering::Relaxed);
        self.sample_bytes_max.load(Ordering::Relaxed) >= GROWN_ROOM * samples
            && (below == usize::MAX || memory::used() + taken <= below)
    }

    /// There is no room for a family to grow, if it was about to: it may try again.
    pub fn stop_growing(&self, family: &KeyFamily) {
        let mut state = family.state.lock();
        if state.family.is_growing() {
            self.forget_samples(&mut state);
        }
        if std::mem::take(&mut state.awaited) {
            self.has_changed(family);
        }
    }

    pub(super) fn end_growing(&self, state: &State) {
        if let Some(dictionary) = state.family.dictionary() {
            self.growing.end(dictionary.id());
        }
    }

    /// Gives a family the outcome of its training: a dictionary, or none that
    /// is worth having.
    pub fn adopt(&self, family: &KeyFamily, dictionary: Option<Dictionary>) {
        let mut state = family.state.lock();
        self.end_growing(&state);
        match dictionary {
            _ if state.is_void => {}
            Some(dictionary) => {
                state.trained_from = state.trained_from.max(state.family.sampled_bytes());
                let adopt = |new| self.counted(&mut state.family, |family| family.adopt(new));
                self.replace(family, dictionary, adopt);
                state.patience = Patience::default();
            }
            None => {
                state.family.rejected();
                if state.awaited {
                    self.has_changed(family);
                }
            }
        }
        state.awaited = false;
        family.no_longer_asked(&mut state);
    }

    /// Gives a family its dictionary digested for another level, made of what
    /// [`KeyFamily::relevel_due`] gave; `None` if it could not be made. Its
    /// values are packed anew.
    pub fn relevel(&self, family: &KeyFamily, old: u32, dictionary: Option<Dictionary>) {
        let mut state = family.state.lock();
        state.other_level = (0, 0);
        let same = state.family.dictionary().is_some_and(|current| current.id() == old);
        if state.family.is_growing() {
            self.forget_samples(&mut state);
        }
        if let Some(dictionary) = dictionary.filter(|_| same) {
            self.replace(family, dictionary, |new| state.family.relevel(new));
        }
        family.no_longer_asked(&mut state);
    }

    /// Has a family take a dictionary, by `take`, for the one that it gives back:
    /// that goes with the last value that refers to it.
    pub(super) fn replace(
        &self,
        family: &KeyFamily,
        dictionary: Dictionary,
        take: impl FnOnce(Arc<Dictionary>) -> Option<Arc<Dictionary>>,
    ) {
        if let Some(old) = take(self.dictionaries.add(dictionary)) {
            self.dictionaries.registry().supersede(old.id());
        }
        self.has_changed(family);
    }

    /// Has each worker's next pass look at a family's values once more. A generation
    /// of its own begins for it, which no pass may see before the family says that
    /// it has changed: it would pass its values by, and none after it would look.
    pub(super) fn has_changed(&self, family: &KeyFamily) {
        family.changed_at.store(u64::MAX, Ordering::Release);
        let of = &self.of_types[family.kind as usize].changed_at;
        of.store(u64::MAX, Ordering::Release);
        let generation = self.dictionaries.advance();
        family.changed_at.store(generation, Ordering::Release);
        of.store(generation, Ordering::Release);
    }
}
