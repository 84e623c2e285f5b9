//! The samples that families keep until they have dictionaries: how many bytes of
//! memory all of them may take, and whose go where they are too many.

use super::Families;
use super::family::{KeyFamily, State};
use crate::memory;
use snug_codec::family::Family;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of samples that all families together keep at most.
pub(super) const SAMPLES_MAX: usize = 16 << 20;

/// The share of a limit of memory that samples may take.
pub(super) const SAMPLES_ONE_IN: usize = 16;

/// The share of the memory in use that they may take: what is learnt is to cost little
/// beside what it is about.
const SAMPLES_OF_USED: usize = 12;

impl Families {
    /// Lets go of a family's samples, and of its place if it was growing.
    pub(super) fn forget_samples(&self, state: &mut State) {
        self.end_growing(state);
        self.counted(&mut state.family, Family::forget_samples);
    }

    /// Says what memory may be used: no sample is taken beyond `limit` bytes, and all
    /// of them are a small share of it. Those that are too many by now are let go of.
    pub fn limit_samples(&self, limit: Option<usize>) {
        let max = limit.map_or(SAMPLES_MAX, |limit| SAMPLES_MAX.min(limit / SAMPLES_ONE_IN));
        self.sampled_below.store(limit.unwrap_or(usize::MAX), Ordering::Relaxed);
        self.sample_bytes_max.store(max, Ordering::Relaxed);
        if self.sample_bytes.load(Ordering::Relaxed) > max {
            self.keep_samples(max, |_| false);
        }
    }

    /// Makes room where samples take all that they may: many families with a few each
    /// would all wait for more. Those that have most are the first to be complete.
    ///
    /// The family that has most keeps its samples however many they are, if a dictionary
    /// can be trained from them: it is trained when they stop growing. Where one family is
    /// all there is, its samples take all the room, and its values come but once.
    pub fn thin_samples(&self) {
        let max = self.most();
        if self.sample_bytes.load(Ordering::Relaxed) >= max {
            self.keep_samples(max / 2, KeyFamily::can_be_trained);
        }
    }

    /// Lets go of all samples but those of the families that have most, up to `max`
    /// bytes; and but those of the first, if it `is_spared`.
    pub(super) fn keep_samples(&self, max: usize, is_spared: impl Fn(&KeyFamily) -> bool) {
        let rests = self.of_types.iter().map(|of| Arc::clone(&of.rest));
        let of = |family: Arc<KeyFamily>| {
            let bytes = family.state.lock().family.promising_bytes();
            (bytes, family)
        };
        let mut families: Vec<_> = self.named().into_iter().chain(rests).map(of).collect();
        families.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let mut kept = 0;
        for (at, (bytes, family)) in families.into_iter().enumerate() {
            // What is to be trained from is not taken away any more.
            let is_asked = family.asked.load(Ordering::Relaxed);
            let is_spared = at == 0 && bytes > 0 && is_spared(&family);
            if is_asked || is_spared || bytes > 0 && kept + bytes <= max {
                kept += bytes;
            } else {
                self.forget_samples(&mut family.state.lock());
            }
        }
    }

    /// Bytes that all samples may be just now.
    fn most(&self) -> usize {
        let max = self.sample_bytes_max.load(Ordering::Relaxed);
        match memory::used() {
            // Somebody else allocates, and does not count.
            0 => max,
            used => max.min(used / SAMPLES_OF_USED),
        }
    }

    pub(super) fn has_room_for_sample(&self, len: usize) -> bool {
        let below = self.sampled_below.load(Ordering::Relaxed);
        let taken = self.sample_bytes.load(Ordering::Relaxed);
        taken < self.most() && (below == usize::MAX || memory::used() + len <= below)
    }

    /// Changes a family, and counts what that does to its samples.
    pub(super) fn counted<R>(
        &self,
        family: &mut Family,
        change: impl FnOnce(&mut Family) -> R,
    ) -> R {
        let before = family.memory_bytes();
        let result = change(family);
        let after = family.memory_bytes();
        if after >= before {
            self.sample_bytes.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.sample_bytes.fetch_sub(before - after, Ordering::Relaxed);
        }
        result
    }
}
