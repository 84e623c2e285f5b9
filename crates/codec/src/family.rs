//! What is known of a family: values that look alike, judged together.
//!
//! A family learns in three steps, none of them on a hot path but the first:
//!
//! ```text
//!  estimate  a look at some values' bytes ──> nothing / fast / full, remembered
//!  sample    a reservoir of values, every one as likely as any other
//!  train     a dictionary of each kind from three quarters of them; the better
//!            is accepted if it beats no dictionary on the quarter held back
//! ```
//!
//! and keeps watching: when what packing saves falls, it asks for training
//! anew. When it has come to hold so much that a larger dictionary costs little
//! beside it, its owner may have it [grow](Family::grow): trained once more, from
//! [`GROWN_TIMES`] the sample. It has no clock and no threads: it counts values, and
//! whoever owns it runs a [`TrainingJob`] where that disturbs nobody.
//!
//! Cost: a value judged from memory costs a counter; one in
//! [`REVIEW_MIN`]..=[`REVIEW_MAX`] is looked at anew, rarer the longer the
//! verdict has held.

use std::sync::Arc;

use crate::estimate::{Estimate, Worth};
use crate::{Codec, Dictionary, DictionaryError, Workspace};

/// A verdict is first reviewed after this many values ...
pub const REVIEW_MIN: u32 = 16;
/// ... and in the end only after this many.
pub const REVIEW_MAX: u32 = 4096;

/// Values from this length on are judged by their bytes.
const ESTIMATED_MIN: usize = 64;

/// The window over which the ratio is watched, in values packed.
const DRIFT_VALUES: u32 = 512;

/// What phrases must save of what zstd leaves, which packs faster.
const PHRASES_GAIN_MIN: f32 = 0.05;
/// Samples that are hardly different are not what phrases are for: where zstd leaves at most
/// one byte in so many, they would be cut for these samples, and not fit what differs from
/// all of them in a word.
const ALIKE_ONE_IN: usize = 20;
/// What taking elements apart must save of what phrases alone leave.
const ELEMENTS_GAIN_MIN: f32 = 0.02;

/// After training that came to nothing so many values pass at least before others are
/// sampled; four times as many after the next.
const PAUSE_SAMPLING: u64 = 1024;

/// The sample of a family that grows may have so many times the values and bytes.
pub const GROWN_TIMES: usize = 8;

/// What the dictionary from it must save of what the one before leaves, for all
/// values to be packed anew.
const GROWN_GAIN_MIN: f32 = 0.02;

/// Training takes so many bytes, a workspace for the most part, ...
pub const TRAINING_BYTES: usize = 1280 * 1024;
/// ... and so many times its samples.
pub const TRAINING_TIMES: usize = 10;

/// What a family is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FamilyConfig {
    /// The least share that must be saved, 0 to 1, else a value stays raw.
    pub saving_min: f32,
    /// Bytes of samples kept at most.
    pub sample_bytes_max: usize,
    /// Samples kept at most.
    pub samples_max: usize,
    /// A dictionary is trained once so many samples have come, or eight that are as many
    /// bytes as are kept.
    pub samples_min: usize,
    /// How much worse than when the dictionary was new the ratio may become
    /// before it is trained anew: 0.15 is 15 percent.
    pub drift_max: f32,
    /// A dictionary must save this share of what no dictionary leaves.
    pub gain_min: f32,
}

impl Default for FamilyConfig {
    fn default() -> Self {
        Self {
            saving_min: 0.30,
            sample_bytes_max: 256 * 1024,
            samples_max: 4096,
            samples_min: 64,
            drift_max: 0.15,
            gain_min: 0.05,
        }
    }
}

/// What to do with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Leave it as it is.
    Raw,
    /// Pack it, but only with a fast codec.
    Fast,
    /// Pack it.
    Full,
}

/// Counters of a family, never falling but for the ratio.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FamilyStats {
    /// Values it was asked about.
    pub judged: u64,
    /// Of these, those whose bytes were looked at.
    pub looked_at: u64,
    /// Values packed, and their bytes before and after.
    pub packed: u64,
    /// Bytes before packing.
    pub raw_bytes: u64,
    /// Bytes after packing.
    pub packed_bytes: u64,
    /// Dictionaries trained and accepted.
    pub trained: u64,
    /// Trainings that came to nothing.
    pub rejected: u64,
    /// Times that the ratio was seen to have drifted.
    pub drifted: u64,
}

/// How far a family is on its way to a dictionary from more samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    /// Its dictionary, if any, is from few.
    Young,
    /// It collects more.
    Sampling,
    /// They are being trained from.
    Training,
    /// Its dictionary is from many, or as good.
    Grown,
}

/// A family of values.
#[derive(Debug)]
pub struct Family {
    config: FamilyConfig,
    verdict: Verdict,
    /// Values until the verdict is reviewed, and how long the next pause is.
    review_in: u32,
    pause: u32,
    reservoir: Reservoir,
    dictionary: Option<Arc<Dictionary>>,
    /// Training failed last time: so many values are to pass before others are sampled,
    /// and how many the next time.
    pass_by: u64,
    pause_sampling: u64,
    retrain: bool,
    growth: Growth,
    drift: Drift,
    mixture: Mixture,
    stats: FamilyStats,
}

impl Family {
    /// A family that has seen nothing; `seed` decides which values it samples.
    pub fn new(config: FamilyConfig, seed: u64) -> Self {
        Self {
            config,
            verdict: Verdict::Full,
            review_in: 0,
            pause: REVIEW_MIN,
            reservoir: Reservoir::new(config, seed),
            dictionary: None,
            pass_by: 0,
            pause_sampling: PAUSE_SAMPLING,
            retrain: false,
            growth: Growth::Young,
            drift: Drift::default(),
            mixture: Mixture::default(),
            stats: FamilyStats::default(),
        }
    }

    /// What to do with `raw`: from memory, or by a look when review is due. In a
    /// family some of whose values pack and others do not, by a look at each.
    pub fn judge(&mut self, raw: &[u8]) -> Verdict {
        self.stats.judged += 1;
        if raw.len() < ESTIMATED_MIN {
            // A few bytes show nothing: what packing makes of them tells.
            return if self.verdict == Verdict::Raw { Verdict::Full } else { self.verdict };
        }
        if self.mixture.is_mixed && raw.len() >= LOOKED_AT_MIN {
            self.stats.looked_at += 1;
            let worth = Estimate::of(raw).ratio() <= 1.0 - self.config.saving_min;
            self.mixture.looked(worth);
            return if worth { Verdict::Full } else { Verdict::Raw };
        }
        if self.review_in > 0 {
            self.review_in -= 1;
            return self.verdict;
        }
        self.stats.looked_at += 1;
        let verdict = match Estimate::of(raw).worth() {
            Worth::Nothing => Verdict::Raw,
            Worth::Little => Verdict::Fast,
            Worth::Much => Verdict::Full,
        };
        let held = verdict == self.verdict;
        self.pause = if held { (self.pause * 2).min(REVIEW_MAX) } else { REVIEW_MIN };
        self.verdict = verdict;
        self.review_in = self.pause;
        verdict
    }

    /// Whether some of its values pack and others do not.
    pub fn is_mixed(&self) -> bool {
        self.mixture.is_mixed
    }

    /// Offers a value to the sample. Costs nothing for most values once the
    /// reservoir is full, and nothing at all in a family not worth packing or
    /// one that has its dictionary.
    pub fn sample(&mut self, raw: &[u8]) {
        let is_worth = self.verdict != Verdict::Raw || raw.len() < ESTIMATED_MIN;
        if is_worth && self.wants_dictionary() {
            match self.pass_by {
                0 => self.reservoir.offer(raw),
                _ => self.pass_by -= 1,
            }
        }
    }

    /// Whether it has no dictionary yet, or one that has aged or is from few samples.
    pub fn wants_dictionary(&self) -> bool {
        self.dictionary.is_none() || self.retrain || self.is_growing()
    }

    /// Takes note of a value packed: whether it is worth keeping packed.
    pub fn packed(&mut self, raw_len: usize, packed_len: usize) -> bool {
        self.stats.packed += 1;
        self.stats.raw_bytes += raw_len as u64;
        self.stats.packed_bytes += packed_len as u64;
        if self.drift.note(raw_len, packed_len, self.config.drift_max) && self.dictionary.is_some()
        {
            self.stats.drifted += 1;
            // One that grows collects anew, and gets a dictionary anyway.
            if !self.is_growing() {
                (self.growth, self.retrain) = (Growth::Young, true);
            }
            self.restart_sample();
        }
        let saved = raw_len.saturating_sub(packed_len) as f32;
        let worth = saved >= self.config.saving_min * raw_len as f32;
        self.mixture.tried(worth);
        worth
    }

    /// The dictionary to pack with.
    pub fn dictionary(&self) -> Option<&Arc<Dictionary>> {
        self.dictionary.as_ref()
    }

    /// Has it collect more samples for a dictionary that packs better, if it has
    /// one from few. Whether it does: once training has come of it, it has grown.
    pub fn grow(&mut self) -> bool {
        let may = self.growth == Growth::Young && !self.wants_dictionary();
        if may {
            self.growth = Growth::Sampling;
            self.restart_sample();
        }
        may
    }

    /// Has it learn anew, from about as many samples: its dictionary is from too few.
    pub fn outgrow(&mut self) {
        if self.dictionary.is_some() && self.growth == Growth::Young {
            self.retrain = true;
            self.restart_sample();
        }
    }

    /// Whether it collects more samples.
    pub fn is_growing(&self) -> bool {
        self.growth == Growth::Sampling
    }

    /// Whether the training that is due, or goes on, brings a dictionary that all values
    /// are packed with: what is packed before is packed twice.
    pub fn awaits_dictionary(&self) -> bool {
        self.wants_dictionary() || self.growth == Growth::Training
    }

    /// Whether training is due: there are enough samples, and there is no
    /// dictionary yet, or the one there is has aged or is from few.
    pub fn is_training_due(&self) -> bool {
        let kept = self.reservoir.kept.len();
        // Of long values there are never many among the samples.
        let many = kept >= self.config.samples_min.max(8);
        let enough = match self.is_growing() {
            true => many && self.reservoir.is_full(),
            false => many || kept >= 8 && self.reservoir.is_full(),
        };
        self.wants_dictionary() && enough
    }

    /// The samples to train from, when training is due: a copy, or of a family that
    /// grows its own.
    pub fn training_job(&mut self) -> Option<TrainingJob> {
        if !self.is_training_due() {
            return None;
        }
        let gain_min = self.config.gain_min;
        if !self.is_growing() {
            let samples = self.reservoir.kept.clone();
            return Some(TrainingJob { samples, gain_min, rival: None, of_bytes: None });
        }
        self.growth = Growth::Training;
        let samples = std::mem::take(&mut self.reservoir.kept);
        self.restart_sample();
        Some(TrainingJob { samples, gain_min, rival: self.dictionary.clone(), of_bytes: None })
    }

    /// Bytes that training takes at most, the copy of the samples and what comes of
    /// it included.
    pub fn training_bytes_max(&self) -> usize {
        TRAINING_BYTES + TRAINING_TIMES * self.reservoir.bytes
    }

    /// Bytes of its samples; none where training came to nothing with them, its
    /// values are not worth packing, or it has a dictionary and may do with that.
    pub fn promising_bytes(&self) -> usize {
        let hopeless = self.pause_sampling > PAUSE_SAMPLING || self.verdict == Verdict::Raw;
        if hopeless || self.is_growing() { 0 } else { self.reservoir.memory_bytes() }
    }

    /// Lets go of its samples, where there is no room for them. Others are drawn as
    /// values come, unless it was growing: it does so no longer.
    pub fn forget_samples(&mut self) {
        if self.is_growing() {
            self.growth = Growth::Young;
        }
        self.restart_sample();
    }

    fn restart_sample(&mut self) {
        self.reservoir.restart(if self.is_growing() { GROWN_TIMES } else { 1 });
    }

    /// Takes a trained dictionary into use, and lets go of its samples; the one
    /// it replaces.
    pub fn adopt(&mut self, dictionary: Arc<Dictionary>) -> Option<Arc<Dictionary>> {
        self.stats.trained += 1;
        self.retrain = false;
        (self.pass_by, self.pause_sampling) = (0, PAUSE_SAMPLING);
        self.growth = self.after_training();
        self.restart_sample();
        self.drift = Drift::default();
        self.dictionary.replace(dictionary)
    }

    /// Takes over what was counted of it elsewhere.
    pub fn remember(&mut self, stats: FamilyStats) {
        self.stats = stats;
    }

    /// Puts the same dictionary, digested for another level, in the place of the
    /// current one, which is given back; or is not taken if there is none.
    pub fn relevel(&mut self, dictionary: Arc<Dictionary>) -> Option<Arc<Dictionary>> {
        let current = self.dictionary.as_mut()?;
        self.drift = Drift::default();
        Some(std::mem::replace(current, dictionary))
    }

    /// Takes note that training came to nothing.
    pub fn rejected(&mut self) {
        self.stats.rejected += 1;
        self.growth = self.after_training();
        if self.growth == Growth::Young {
            self.retrain = false;
        }
        // Its samples serve nothing: others are drawn when many more have come by.
        self.pass_by = self.pause_sampling.max(4 * self.reservoir.offered);
        self.pause_sampling = self.pause_sampling.saturating_mul(4);
        self.restart_sample();
    }

    /// How far it is when training has ended.
    fn after_training(&self) -> Growth {
        if self.growth == Growth::Training { Growth::Grown } else { Growth::Young }
    }

    /// Bytes of all values that its sample was drawn from.
    pub fn sampled_bytes(&self) -> u64 {
        self.reservoir.offered_bytes
    }

    /// What it has been told of its values at last.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// What it has counted.
    pub fn stats(&self) -> FamilyStats {
        self.stats
    }

    /// Bytes it holds, its dictionary aside.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.reservoir.memory_bytes()
    }
}

/// A uniform sample of all values offered (Vitter's algorithm R), held to a
/// number of values and of bytes.
#[derive(Debug)]
struct Reservoir {
    kept: Vec<Box<[u8]>>,
    bytes: usize,
    offered: u64,
    offered_bytes: u64,
    /// What it keeps at most, so many times.
    samples_max: usize,
    bytes_max: usize,
    times: usize,
    random: u64,
}

impl Reservoir {
    fn new(config: FamilyConfig, seed: u64) -> Self {
        Self {
            kept: Vec::new(),
            bytes: 0,
            offered: 0,
            offered_bytes: 0,
            samples_max: config.samples_max.max(8),
            bytes_max: config.sample_bytes_max,
            times: 1,
            random: seed,
        }
    }

    /// SplitMix64.
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * u128::from(bound)) >> 64) as u64
    }

    fn offer(&mut self, raw: &[u8]) {
        self.offered += 1;
        self.offered_bytes += raw.len() as u64;
        let (samples_max, bytes_max) = (self.times * self.samples_max, self.times * self.bytes_max);
        // A sample longer than its share would crowd out the others.
        let raw = &raw[..raw.len().min(self.bytes_max / 8)];
        let room = self.kept.len() < samples_max && self.bytes + raw.len() <= bytes_max;
        if room {
            self.bytes += raw.len();
            self.kept.push(raw.into());
            return;
        }
        let at = self.below(self.offered) as usize;
        if at < self.kept.len() {
            self.bytes -= self.kept[at].len();
            self.kept.swap_remove(at);
            while self.bytes + raw.len() > bytes_max {
                let Some(other) = self.kept.pop() else { break };
                self.bytes -= other.len();
            }
            self.bytes += raw.len();
            self.kept.push(raw.into());
        }
    }

    fn memory_bytes(&self) -> usize {
        self.bytes + self.kept.capacity() * size_of::<Box<[u8]>>()
    }

    /// Whether it was offered as much as it keeps.
    fn is_full(&self) -> bool {
        self.offered as usize >= self.times * self.samples_max
            || self.offered_bytes as usize >= self.times * self.bytes_max
    }

    /// Forgets: the values have changed. From now on it keeps `times` as much as it
    /// was made for.
    fn restart(&mut self, times: usize) {
        self.kept = Vec::new();
        (self.bytes, self.offered, self.offered_bytes, self.times) = (0, 0, 0, times);
    }
}

/// Whether a family is of two kinds, values that pack and values that do not: then
/// one verdict for all would pack many in vain.
#[derive(Clone, Copy, Debug, Default)]
struct Mixture {
    is_mixed: bool,
    /// Tries in vain of late, each worth two that were not.
    vain: u8,
    /// Values in a row that looked worth packing.
    worth: u8,
}

/// So many tries in vain, not made up for by others, and the family is mixed ...
const VAIN_MAX: u8 = 8;
/// ... and so many values that look worth packing, and it is not any more.
const WORTH_MIN: u8 = 64;
/// Of shorter values a dictionary may save what their own bytes do not show.
const LOOKED_AT_MIN: usize = 1024;

impl Mixture {
    fn tried(&mut self, worth: bool) {
        self.vain = if worth { self.vain.saturating_sub(1) } else { self.vain + 2 };
        if self.vain >= 2 * VAIN_MAX {
            *self = Self { is_mixed: true, ..Self::default() };
        }
    }

    fn looked(&mut self, worth: bool) {
        self.worth = if worth { self.worth + 1 } else { 0 };
        if self.worth >= WORTH_MIN {
            *self = Self::default();
        }
    }
}

/// Watches the ratio over windows of values: the first after a dictionary is
/// the measure for those that follow.
#[derive(Clone, Copy, Debug, Default)]
struct Drift {
    values: u32,
    raw: u64,
    packed: u64,
    measure: Option<f32>,
}

impl Drift {
    /// Whether a window has just ended that is too much worse than the measure.
    fn note(&mut self, raw_len: usize, packed_len: usize, drift_max: f32) -> bool {
        self.values += 1;
        self.raw += raw_len as u64;
        self.packed += packed_len as u64;
        if self.values < DRIFT_VALUES {
            return false;
        }
        let ratio = self.packed as f32 / self.raw.max(1) as f32;
        let measure = *self.measure.get_or_insert(ratio);
        (self.values, self.raw, self.packed) = (0, 0, 0);
        let drifted = ratio > measure * (1.0 + drift_max);
        if drifted {
            self.measure = None;
        }
        drifted
    }
}

/// Training that is due, to be run where it disturbs nobody.
#[derive(Clone, Debug)]
pub struct TrainingJob {
    samples: Vec<Box<[u8]>>,
    gain_min: f32,
    /// The dictionary that there is, where the new one is to be better.
    rival: Option<Arc<Dictionary>>,
    /// Bytes of all values that it is for, if that is known.
    of_bytes: Option<u64>,
}

/// What a training brought.
#[derive(Debug)]
pub struct Trained {
    /// The dictionary, without an id.
    pub dictionary: Dictionary,
    /// Bytes of the samples held back, packed with it.
    pub with_bytes: usize,
    /// The same, packed without.
    pub without_bytes: usize,
    /// The same, raw.
    pub raw_bytes: usize,
}

impl TrainingJob {
    /// The samples to train from and to try it on.
    pub fn new(samples: Vec<Box<[u8]>>) -> Self {
        Self { samples, gain_min: FamilyConfig::default().gain_min, rival: None, of_bytes: None }
    }

    /// Says of how many bytes the values are that it is for: what the dictionary takes is
    /// weighed against what it saves of them.
    pub fn for_bytes(self, bytes: u64) -> Self {
        Self { of_bytes: Some(bytes), ..self }
    }

    /// Bytes of its samples.
    pub fn raw_bytes(&self) -> usize {
        self.samples.iter().map(|sample| sample.len()).sum()
    }

    /// Trains a dictionary of each kind, of at most `bytes_max` bytes for `level` and of
    /// the phrases that weigh as much, of elements too where the samples are such. Gives
    /// the one that the samples held back pack to least with, if it is worth having.
    /// Random data is never trained on. `steps` is how many parameters are tried (see
    /// [`Dictionary::train_with`]).
    ///
    /// Takes half a second for a megabyte of samples: not for a worker's hot
    /// path.
    pub fn run(
        &self,
        ws: &mut Workspace,
        bytes_max: usize,
        level: i32,
        steps: u32,
    ) -> Option<Trained> {
        let look: Vec<u8> = self.samples.iter().take(64).flat_map(|s| s.iter().copied()).collect();
        if Estimate::of(&look).worth() == Worth::Nothing {
            return None;
        }
        let held = |i: &usize| i % 4 == 3;
        let pick = |held_back: bool| -> Vec<&[u8]> {
            let samples = self.samples.iter().enumerate();
            samples.filter(|(i, _)| held(i) == held_back).map(|(_, s)| &**s).collect()
        };
        let (train, test) = (pick(false), pick(true));
        // A dictionary much larger than a tenth of its samples learns them by heart.
        let bytes: usize = train.iter().map(|s| s.len()).sum();
        let bytes_max = bytes_max.min((bytes / 8).max(1024));
        let mut packed_len = |dictionary: Option<&Dictionary>| -> Option<usize> {
            let mut out = Vec::new();
            for raw in &test {
                ws.pack(Codec::Zstd, level, dictionary, raw, &mut out).ok()?;
            }
            Some(out.len())
        };
        let mut tried = |dictionary: Result<Dictionary, DictionaryError>| {
            let dictionary = dictionary.ok()?.with_id(1);
            Some((packed_len(Some(&dictionary))?, dictionary))
        };
        let zstd = tried(Dictionary::train_with(&train, bytes_max, level, steps));
        let phrases = tried(Dictionary::train_phrases_for(&train, bytes_max, level, self.of_bytes));
        let elements =
            tried(Dictionary::train_elements_for(&train, bytes_max, level, self.of_bytes));
        let tested: usize = test.iter().map(|sample| sample.len()).sum();
        let times = self.of_bytes.map(|bytes| bytes as f32 / tested.max(1) as f32);
        // All that the values would take, the dictionary included.
        let takes = |(packed, dictionary): &(usize, Dictionary)| match times {
            Some(times) => *packed as f32 * times + dictionary.memory_bytes() as f32,
            None => *packed as f32,
        };
        let better = |one, other, gain_min: f32| match (one, other) {
            (Some(one), Some(other)) => {
                let least = takes(&one) * (1.0 - gain_min);
                Some(if takes(&other) <= least { other } else { one })
            }
            (one, other) => one.or(other),
        };
        let are_alike = zstd.as_ref().is_some_and(|(packed, _)| packed * ALIKE_ONE_IN <= tested);
        let phrases = better(phrases, elements, ELEMENTS_GAIN_MIN).filter(|_| !are_alike);
        let (with_bytes, dictionary) = better(zstd, phrases, PHRASES_GAIN_MIN)?;
        let without_bytes = packed_len(None)?;
        let mut worth = (with_bytes as f32) < without_bytes as f32 * (1.0 - self.gain_min);
        if let Some(rival) = &self.rival {
            let least = packed_len(Some(rival))? as f32 * (1.0 - GROWN_GAIN_MIN);
            worth &= (with_bytes as f32) < least;
        }
        let dictionary = dictionary.with_id(0);
        worth.then_some(Trained { dictionary, with_bytes, without_bytes, raw_bytes: tested })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DictionaryKind, WorkspaceConfig};

    fn session(i: u64) -> Vec<u8> {
        format!(r#"{{"session":{i},"user":"u{}","theme":"dark","ok":true}}"#, i * 7919 % 1000)
            .into_bytes()
    }

    fn reservoir(samples_max: usize, sample_bytes_max: usize, seed: u64) -> Reservoir {
        let config = FamilyConfig { sample_bytes_max, samples_max, ..FamilyConfig::default() };
        Reservoir::new(config, seed)
    }

    fn random(seed: u64, len: usize) -> Vec<u8> {
        let mut reservoir = reservoir(8, 8, seed);
        (0..len).map(|_| reservoir.below(256) as u8).collect()
    }

    #[test]
    fn a_family_of_long_values_learns_from_few() {
        let mut family = Family::new(FamilyConfig::default(), 1);
        let long = |n: u64| {
            format!("{{\"event\":\"long ago\",\"number\":{n}}}\n").repeat(500).into_bytes()
        };
        let mut came = 0;
        while !family.is_training_due() {
            let raw = long(came);
            family.judge(&raw);
            family.sample(&raw);
            came += 1;
            assert!(came < 40, "some 16 fill it");
        }
        assert!((8..64).contains(&came), "{came}");
    }

    #[test]
    fn a_family_learns_its_dictionary_and_learns_anew_when_values_change() {
        let mut ws = Workspace::new(WorkspaceConfig::default());
        let mut family = Family::new(FamilyConfig::default(), 1);
        for i in 0..300 {
            assert_eq!(family.judge(&session(i)), Verdict::Full);
            family.sample(&session(i));
        }
        let trained = family.training_job().unwrap().run(&mut ws, 4096, 3, 1).unwrap();
        assert!(trained.with_bytes < trained.without_bytes);
        assert!(family.adopt(Arc::new(trained.dictionary.with_id(1))).is_none());
        assert!(family.training_job().is_none() && !family.awaits_dictionary());
        for _ in 0..2 * DRIFT_VALUES {
            assert!(family.packed(100, 20));
        }
        for _ in 0..DRIFT_VALUES {
            assert!(!family.packed(100, 80));
        }
        assert_eq!(family.stats().drifted, 1);
        (0..300).for_each(|i| family.sample(&session(i)));
        assert!(family.training_job().is_some());
        assert!(family.awaits_dictionary(), "what is packed until then is packed twice");
    }

    /// A family that has a dictionary from few of `values`, and collects more.
    fn growing(values: &dyn Fn(u64) -> Vec<u8>, ws: &mut Workspace) -> Family {
        let mut family = Family::new(FamilyConfig::default(), 1);
        assert!(!family.grow(), "there is nothing to be better than");
        (0..300).for_each(|i| family.sample(&values(i)));
        let trained = family.training_job().unwrap().run(ws, 4096, 3, 1).unwrap();
        family.adopt(Arc::new(trained.dictionary.with_id(1)));
        assert!(family.grow() && !family.grow() && family.is_growing());
        family
    }

    #[test]
    fn a_family_grows_once_by_a_dictionary_from_more_samples() {
        // Half of common words, half of others, which few samples meet often.
        let text = |i: u64| {
            let word = |n: u64| {
                ((i * 61 + n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32)
                    % [100, 3000][n as usize % 2]
            };
            let words = (0..60).map(|n| format!("{:x} ", (word(n) + 1) * 2_654_435_761));
            words.collect::<String>().into_bytes()
        };
        let mut ws = Workspace::new(WorkspaceConfig::default());
        let mut family = growing(&text, &mut ws);
        let mut offered = 0;
        let job = loop {
            family.sample(&text(offered));
            offered += 1;
            if let Some(job) = family.training_job() {
                break job;
            }
        };
        let bytes_max = FamilyConfig::default().sample_bytes_max;
        assert!(job.raw_bytes() > 4 * bytes_max, "{} of {offered}", job.raw_bytes());
        assert!(!family.wants_dictionary() && family.reservoir.memory_bytes() == 0);
        let trained = job.run(&mut ws, 16 * 1024, 3, 1).unwrap();
        let old = family.adopt(Arc::new(trained.dictionary.with_id(2))).unwrap();
        assert_eq!((old.id(), family.grow()), (1, false));
        let packed_len = |dictionary: &Dictionary| {
            let mut out = Vec::new();
            let values = 1_000_000..1_000_100;
            values.for_each(|i| {
                Workspace::new(WorkspaceConfig::default())
                    .pack(Codec::Zstd, 3, Some(dictionary), &text(i), &mut out)
                    .unwrap();
            });
            out.len()
        };
        assert!(packed_len(family.dictionary().unwrap()) < packed_len(&old) * 9 / 10);
    }

    #[test]
    fn a_dictionary_from_more_samples_is_to_be_better_and_given_up_for_want_of_memory() {
        let mut ws = Workspace::new(WorkspaceConfig::default());
        let half = |i: u64| -> Vec<u8> {
            let text = b"what is the same in each, or nearly: ";
            text.iter().copied().chain(random(i, 40)).collect()
        };
        let mut family = growing(&half, &mut ws);
        (0..2 * DRIFT_VALUES).for_each(|_| assert!(family.packed(100, 20)));
        (0..DRIFT_VALUES).for_each(|_| assert!(!family.packed(100, 80)));
        assert!(family.stats().drifted == 1 && family.is_growing(), "it collects anew");
        family.forget_samples();
        assert!(!family.is_growing() && !family.wants_dictionary());
        assert!(family.grow());
        (0..40_000).for_each(|i| family.sample(&half(i)));
        let job = family.training_job().unwrap();
        assert!(job.run(&mut ws, 4096, 3, 1).is_none(), "there is nothing more to learn");
        family.rejected();
        assert!(!family.grow() && family.dictionary().is_some());
    }

    #[test]
    fn values_of_a_mixed_family_are_looked_at_one_by_one() {
        let mut family = Family::new(FamilyConfig::default(), 1);
        let text = session(1).repeat(40);
        let noise = |n| random(n, 2000);
        for n in 0..u64::from(VAIN_MAX) {
            assert_eq!(family.judge(&text), Verdict::Full);
            family.packed(text.len(), noise(n).len());
        }
        for n in 0..200 {
            assert_eq!(family.judge(&text), Verdict::Full, "value {n}");
            assert_eq!(family.judge(&noise(n)), Verdict::Raw, "value {n}");
        }
        let looked_at = family.stats().looked_at;
        assert!(looked_at > 200, "each of them: {looked_at}");
        for _ in 0..2 * WORTH_MIN {
            family.judge(&text);
        }
        let looked_at = family.stats().looked_at;
        for _ in 0..100 {
            family.judge(&text);
        }
        assert!(family.stats().looked_at <= looked_at + 2, "one kind again");
    }

    /// Words in any order are phrases; what repeats within each value alone, a
    /// window's.
    #[test]
    fn the_kind_of_dictionary_is_what_the_samples_pack_best_with() {
        let mut ws = Workspace::new(WorkspaceConfig::default());
        let mut random = reservoir(8, 8, 1);
        let mut text = |_| -> Box<[u8]> {
            let words = ["time", "year", "people", "day", "child", "government", "company"];
            let text: Vec<&str> = (0..40).map(|_| words[random.below(7) as usize]).collect();
            text.join(" ").into_bytes().into()
        };
        let texts = (0..400).map(&mut text).collect();
        let trained = TrainingJob::new(texts).run(&mut ws, 4096, 3, 1).unwrap();
        assert_eq!(trained.dictionary.kind(), DictionaryKind::Phrases);
        let mut random = reservoir(8, 8, 2);
        let mut tokens = |_| -> Box<[u8]> {
            let token = format!("{:016x}{:016x}", random.below(u64::MAX), random.below(u64::MAX));
            format!(r#"{{"id":"{token}","root":"{token}","reply":"{token}"}}"#).into_bytes().into()
        };
        let tokens = (0..400).map(&mut tokens).collect();
        let trained = TrainingJob::new(tokens).run(&mut ws, 4096, 3, 1).unwrap();
        assert_eq!(trained.dictionary.kind(), DictionaryKind::Zstd);
    }

    #[test]
    fn elements_that_differ_in_numbers_are_taken_apart_and_come_back_or_fail() {
        let mut ws = Workspace::new(WorkspaceConfig::default());
        let mut random = reservoir(8, 8, 3);
        const WORDS: [&str; 5] = ["anna", "home", "quiet", "mountains", "Bert"];
        // Times that rise, and words.
        let mut visits = |_| -> Box<[u8]> {
            let (mut raw, mut time) = (vec![0, 10], 1_735_689_600 + random.below(1 << 20));
            for _ in 0..10 {
                let word = WORDS[random.below(5) as usize];
                time += random.below(100);
                raw.push(0xcb);
                raw.extend_from_slice(&time.to_le_bytes()[..4]);
                raw.push(0x80 | word.len() as u8);
                raw.extend_from_slice(word.as_bytes());
            }
            raw.into()
        };
        let samples: Vec<Box<[u8]>> = (0..400).map(&mut visits).collect();
        let trained = TrainingJob::new(samples).run(&mut ws, 4096, 3, 1).unwrap();
        let elements = Arc::new(trained.dictionary.with_id(7));
        assert!(elements.is_of_elements());
        let (mut form, mut raw) = (Vec::new(), Vec::new());
        for n in 400..500 {
            let visits = visits(n);
            form.clear();
            ws.pack(Codec::Zstd, 3, Some(&elements), &visits, &mut form).unwrap();
            assert!(form.len() < 6 + 12 + 10, "{} bytes", form.len());
            for at in 0..form.len() {
                let mut other = form.clone();
                other[at] ^= 1 << (n % 8);
                raw.clear();
                let _ = ws.unpack(&other, &elements, &mut raw, 4096);
                raw.clear();
                assert!(ws.unpack(&form[..at], &elements, &mut raw, 4096).is_err());
            }
            raw.clear();
            ws.unpack(&form, &elements, &mut raw, visits.len()).unwrap();
            assert!(raw == *visits);
        }
        // What is none, and what has nothing to be stored, are phrases.
        for other in [&b"\xdfname"[..], b"\x84name\x84anna", b""] {
            form.clear();
            raw.clear();
            ws.pack(Codec::Zstd, 3, Some(&elements), other, &mut form).unwrap();
            ws.unpack(&form, &elements, &mut raw, other.len()).unwrap();
            assert!(raw == *other && form.len() <= 4 * other.len() + 2);
        }
    }

    #[test]
    fn random_values_are_left_alone_seldom_looked_at_and_never_trained_on() {
        let mut family = Family::new(FamilyConfig::default(), 1);
        for i in 0..10_000 {
            let value = random(i, 512);
            assert_eq!(family.judge(&value), Verdict::Raw);
            family.sample(&value);
        }
        assert!(family.stats().looked_at < 20);
        assert!(family.training_job().is_none());
        let samples = (0..100).map(|i| random(i, 512).into()).collect();
        let mut ws = Workspace::new(WorkspaceConfig::default());
        assert!(TrainingJob::new(samples).run(&mut ws, 4096, 3, 1).is_none());
    }

    #[test]
    fn the_reservoir_is_bounded_and_uniform() {
        let mut firsts = 0;
        for seed in 0..200 {
            let mut reservoir = reservoir(50, 100_000, seed);
            (0..500u32).for_each(|i| reservoir.offer(&i.to_le_bytes()));
            assert_eq!(reservoir.kept.len(), 50);
            let below = |s: &[u8]| s[1] == 0 && s[0] < 250;
            firsts += reservoir.kept.iter().filter(|s| below(s)).count();
        }
        // 10,000 samples, half of them expected from the first half.
        assert!((4700..5300).contains(&firsts), "{firsts}");
        let mut small = reservoir(1000, 4096, 1);
        for i in 0..5000usize {
            small.offer(&vec![1; i % 900]);
            assert!(small.bytes <= 4096);
            assert_eq!(small.bytes, small.kept.iter().map(|s| s.len()).sum::<usize>());
        }
    }
}
