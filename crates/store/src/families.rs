//! Families: values of one type whose keys are of one shape, judged together and
//! packed with one dictionary. The families of strings learn from whole values, those
//! of streams from short blocks, which hold little to learn from themselves.
//!
//! ```text
//!  user:123:profile ─┐
//!  user:9:profile   ─┴─> user:#:profile ─> family ─> dictionary 7
//!  session:6f1d…    ───> session:#      ─> family ─> none yet
//!  (beyond 1,024 shapes) ───────────────> one family for the rest, `*`
//! ```
//!
//! When all places are taken, families of few values that have no dictionary give
//! theirs to shapes that keep coming ([`Families::of`]).
//!
//! A shape is a key with its numbers, hexadecimal runs, UUIDs and other ids as
//! `#`. It is worked out by the sweeper alone, never by a write. A family learns
//! as `snug_codec::family` says; what is here besides is what all of them share:
//! the bound on their number and on their samples, and the dictionaries with
//! their references, of which every packed value holds one.
//!
//! A family that has come to hold `GROWN_BYTES` is trained once more, from more
//! samples: it packs to a twentieth to a seventh less then, and unpacks sooner, as
//! there are fewer phrases to a value. One at a time collects them (`Growing`).
//!
//! Cost: a look-up is a pass over the key and a hash. A family keeps samples
//! only until it has its dictionary, all of them together at most
//! `SAMPLES_MAX` bytes, and under a limit of memory no more than its share of it
//! ([`Families::limit_samples`]).

use crate::memory;
use crate::pack::dictionaries::{Dictionaries, DictionaryInfo, HeldDictionary, OwnDictionary, Pin};
use crate::policy::{Edition, InForce};
use crate::timing::UnpackTimes;
use crate::types::Type;
use foldhash::HashMap;
use parking_lot::{Mutex, RwLock};
use snug_codec::family::{
    Family, FamilyConfig, FamilyStats, GROWN_TIMES, TRAINING_BYTES, TRAINING_TIMES, TrainingJob,
    Verdict,
};
use snug_codec::policy::{Choice, Policy};
use snug_codec::{Codec, Dictionary, DictionaryKind, RegistryStats};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Families beside the one that takes the rest.
pub const FAMILIES_MAX: usize = 1024;

/// Bytes of samples that all families together keep at most.
const SAMPLES_MAX: usize = 16 << 20;

/// When all places are taken, one in so many values of other shapes has places
/// cleared, of families that have met at most so many values: fewer first, until
/// so many are free.
const CLEAR_ONE_IN: usize = 64;
const CLEAR_UP_TO: [u64; 3] = [1, 4, 16];
const CLEAR_ENOUGH: usize = FAMILIES_MAX / 8;

/// The share of a limit of memory that samples may take.
const SAMPLES_ONE_IN: usize = 16;

/// A family is worth a dictionary when it has so many times its size in values.
const DICTIONARY_WORTH: u64 = 16;

/// A family with a dictionary is worth a larger one, of some 300 KiB, when its packed
/// values are of so many bytes unpacked ...
const GROWN_BYTES: u64 = 32 << 20;
/// ... for which all samples of families may be so many times those that one collects
/// then. Whether it is so is looked at every so many values.
const GROWN_ROOM: usize = 4;
const GROWN_LOOK: u64 = 64;

/// What the family of the rest is called.
const REST: &[u8] = b"*";

/// The longest shape; what is behind it does not tell families apart.
const SHAPE_MAX: usize = 64;

/// After so many values in a row that were not worth packing, most are passed by ...
const MISSES: u32 = 32;
/// ... of which this many at most between two that are tried.
const PASSED_BY_MAX: u32 = 4096;

/// When so many values in a row are wanted at another level than that of the
/// family's dictionary, it gets the same dictionary for that level.
const RELEVEL_AFTER: u32 = 32;

/// What a family is, for `SNUG FAMILIES`.
#[derive(Clone, Debug)]
pub struct FamilyInfo {
    /// The type of its values.
    pub kind: Type,
    /// The shape of its keys.
    pub shape: Vec<u8>,
    /// What its values are worth.
    pub verdict: Verdict,
    /// What it has counted.
    pub stats: FamilyStats,
    /// Its current dictionary, 0 for none.
    pub dictionary: u32,
    /// What that is.
    pub dictionary_kind: Option<DictionaryKind>,
    /// Bytes that it holds, its dictionary aside.
    pub memory_bytes: usize,
    /// What the policy said of its value that was looked at last.
    pub choice: Option<Choice>,
    /// Values that the policy left raw.
    pub skipped: u64,
    /// Values packed for nothing: they did not save enough.
    pub not_worth: u64,
    /// Values left raw, without a look, because they were soon to expire.
    pub expiring: u64,
    /// Whether its values are gone: none has been met since families were last
    /// tidied or the store was emptied, nor for as long before.
    pub is_gone: bool,
}

/// How a value of a family is to be packed.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) dictionary: Option<Arc<Dictionary>>,
    /// Holds the dictionary until the value is in its slot.
    pub(crate) pin: Option<Pin>,
}

/// A family: values of one type whose keys are of one shape.
#[derive(Debug)]
pub struct KeyFamily {
    kind: Type,
    shape: Box<[u8]>,
    /// Whether it takes the values of all shapes that have no family.
    takes_rest: bool,
    state: Mutex<State>,
    /// A dictionary is being trained or made ready for another level, or waits to be.
    asked: AtomicBool,
    /// The generation of dictionaries at which it last got one; the greatest there
    /// is while that is about to begin.
    changed_at: AtomicU64,
    /// Whether a walk has met a value of it since families were last tidied.
    is_met: AtomicBool,
}

#[derive(Debug)]
struct State {
    family: Family,
    patience: Patience,
    /// The edition of the policy that it was last asked under, and the answer.
    edition: u64,
    choice: Option<Choice>,
    skipped: u64,
    not_worth: u64,
    expiring: u64,
    /// Whether values were left raw until a dictionary has been trained.
    awaited: bool,
    /// For how many turns of tidying it has been growing.
    growing: u32,
    /// A level that is not the dictionary's, and how many values in a row have
    /// been wanted at it.
    other_level: (i32, u32),
    /// How many values it had met when families were last tidied, and for how many
    /// turns of tidying that has been the same.
    met: u64,
    idle: u32,
}

impl State {
    /// How many values it has met, in all.
    fn values_met(&self) -> u64 {
        self.family.stats().judged + self.expiring
    }
}

impl KeyFamily {
    fn new(kind: Type, shape: &[u8], seed: u64) -> Self {
        let state = State {
            family: Family::new(FamilyConfig::default(), seed),
            patience: Patience::default(),
            edition: 0,
            choice: None,
            skipped: 0,
            not_worth: 0,
            expiring: 0,
            awaited: false,
            growing: 0,
            other_level: (0, 0),
            met: 0,
            idle: 0,
        };
        Self {
            kind,
            shape: shape.into(),
            takes_rest: false,
            state: Mutex::new(state),
            asked: AtomicBool::new(false),
            changed_at: AtomicU64::new(0),
            is_met: AtomicBool::new(false),
        }
    }

    /// The shape of its keys.
    pub fn shape(&self) -> &[u8] {
        &self.shape
    }

    /// The id of its dictionary, 0 for none.
    pub fn dictionary_id(&self) -> u32 {
        self.state.lock().family.dictionary().map_or(0, |dictionary| dictionary.id())
    }

    pub(crate) fn changed_since(&self, generation: u64) -> bool {
        self.changed_at.load(Ordering::Acquire) > generation
    }

    /// How to pack a value that the policy's edition chose this for, or `None`
    /// if it is to be left raw. A `forced` one, and one that a rule names, is
    /// packed whatever is thought of its family.
    pub(crate) fn plan(
        &self,
        families: &Families,
        raw: &[u8],
        forced: bool,
        edition: u64,
        choice: Choice,
    ) -> Option<Plan> {
        let mut state = self.state.lock();
        state.choice = Some(choice);
        if state.edition != edition {
            state.edition = edition;
            state.patience = Patience::default();
        }
        if choice.codec == Codec::None {
            state.skipped += 1;
            return None;
        }
        let verdict = state.family.judge(raw);
        if state.family.stats().judged.is_multiple_of(GROWN_LOOK)
            && !self.asked.load(Ordering::Relaxed)
        {
            families.grow(&mut state);
        }
        if choice.codec == Codec::Zstd && families.has_room_for_sample(raw.len()) {
            families.counted(&mut state.family, |family| family.sample(raw));
        }
        if !forced {
            if verdict == Verdict::Raw && !choice.told {
                return None;
            }
            // What one value of the rest was worth says nothing of the next.
            if !self.takes_rest && state.patience.passes_by() {
                return None;
            }
        }
        if choice.codec != Codec::Zstd {
            return Some(Plan { dictionary: None, pin: None });
        }
        let dictionary = state.family.dictionary().cloned();
        state.want_level(choice.level);
        // Under the family's lock, so that it is not replaced just now.
        let pin = dictionary.as_ref().and_then(|d| families.dictionaries.pin(d.id()));
        Some(Plan { dictionary, pin })
    }

    /// Whether its first dictionary, or a better one from more samples, is being
    /// trained. What is left raw until then is looked at again afterwards, whatever
    /// comes of it.
    pub(crate) fn awaits_dictionary(&self) -> bool {
        if !self.asked.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = self.state.lock();
        let awaits = state.family.awaits_dictionary();
        state.awaited |= awaits;
        awaits
    }

    /// The dictionary that pieces of its values are packed with, if there is one, held
    /// for them.
    pub(crate) fn hold(&self, families: &Families, choice: Choice) -> Option<HeldDictionary> {
        let mut state = self.state.lock();
        state.choice = Some(choice);
        state.want_level(choice.level);
        // Under the family's lock, so that it is not replaced just now.
        let dictionary = Arc::clone(state.family.dictionary()?);
        Some(families.dictionaries.hold(dictionary))
    }

    /// Whether it learns from pieces of so many bytes.
    pub(crate) fn is_learning(&self, families: &Families, len: usize) -> bool {
        families.has_room_for_sample(len) && self.state.lock().family.wants_dictionary()
    }

    /// Looks at a piece that was packed, and learns from what a dictionary could help
    /// with in it.
    pub(crate) fn learn(&self, families: &Families, raw: &[u8], texts: &[Vec<u8>]) {
        let mut state = self.state.lock();
        state.family.judge(raw);
        families.counted(&mut state.family, |family| {
            texts.iter().filter(|text| !text.is_empty()).for_each(|text| family.sample(text));
        });
    }

    /// Whether some of its values pack and others do not.
    pub(crate) fn is_mixed(&self) -> bool {
        self.state.lock().family.is_mixed()
    }

    /// Takes note of a value that is left raw because it is soon to expire.
    pub(crate) fn left_expiring(&self) {
        self.state.lock().expiring += 1;
    }

    /// Takes note of what came of packing a value.
    pub(crate) fn tried(&self, raw_len: usize, packed_len: usize, worth: bool) {
        let mut state = self.state.lock();
        state.family.packed(raw_len, packed_len);
        state.patience.tried(worth);
        state.not_worth += u64::from(!worth);
    }

    /// Whether training is due, for a dictionary of `bytes_max`. Said once, until
    /// the outcome is given to [`Families::adopt`].
    pub fn is_training_due(&self, bytes_max: usize) -> bool {
        if bytes_max == 0 || self.asked.load(Ordering::Relaxed) {
            return false;
        }
        let state = self.state.lock();
        state.family.sampled_bytes() >= DICTIONARY_WORTH * bytes_max as u64
            && state.family.is_training_due()
            && !self.asked.swap(true, Ordering::AcqRel)
    }

    /// Whether the training which is due only betters its dictionary.
    pub fn is_growing(&self) -> bool {
        self.state.lock().family.is_growing()
    }

    /// Bytes that the training which is due takes at most.
    pub fn training_bytes_max(&self) -> usize {
        self.state.lock().family.training_bytes_max()
    }

    /// The level that its values are to be packed at, as the policy said last.
    pub fn level(&self) -> Option<i32> {
        self.state.lock().choice.map(|choice| choice.level)
    }

    /// A dictionary that is to be digested for another level, because its values
    /// are wanted at that: its bytes and the level, to be given to
    /// [`Families::relevel`]. Given once, until then.
    pub fn relevel_due(&self) -> Option<(Arc<Dictionary>, i32)> {
        let state = self.state.lock();
        let (level, wanted) = state.other_level;
        let dictionary = state.family.dictionary().filter(|_| wanted >= RELEVEL_AFTER)?;
        (!self.asked.swap(true, Ordering::AcqRel)).then(|| (Arc::clone(dictionary), level))
    }

    /// Says that what was due, training or another level, could not be begun: it is
    /// due again.
    pub fn training_refused(&self) {
        self.asked.store(false, Ordering::Release);
    }

    fn info(&self) -> FamilyInfo {
        let state = self.state.lock();
        let stats = state.family.stats();
        let never_judged = stats.judged == 0 && state.expiring > 0;
        let is_met = self.is_met.load(Ordering::Relaxed) || state.values_met() != state.met;
        FamilyInfo {
            kind: self.kind,
            shape: self.shape.to_vec(),
            verdict: if never_judged { Verdict::Raw } else { state.family.verdict() },
            stats,
            dictionary: state.family.dictionary().map_or(0, |dictionary| dictionary.id()),
            dictionary_kind: state.family.dictionary().map(|dictionary| dictionary.kind()),
            memory_bytes: state.family.memory_bytes(),
            choice: state.choice,
            skipped: state.skipped,
            not_worth: state.not_worth,
            expiring: state.expiring,
            is_gone: state.idle > 0 && !is_met,
        }
    }
}

/// How a family whose values are not worth packing is tried ever more seldom.
#[derive(Debug)]
struct Patience {
    /// Values in a row that were not worth packing.
    misses: u32,
    /// Values to be passed by before one is tried, and how many the next time.
    pass_by: u32,
    pause: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self { misses: 0, pass_by: 0, pause: 1 }
    }
}

impl Patience {
    /// Whether the next value is passed by.
    fn passes_by(&mut self) -> bool {
        let passes = self.pass_by > 0;
        self.pass_by = self.pass_by.saturating_sub(1);
        passes
    }

    /// Takes note of what came of trying one.
    fn tried(&mut self, worth: bool) {
        if worth {
            (self.misses, self.pause) = (0, 1);
            return;
        }
        self.misses += 1;
        if self.misses >= MISSES {
            self.pass_by = self.pause;
            self.pause = (self.pause * 2).min(PASSED_BY_MAX);
        }
    }
}

impl State {
    /// Takes note of the level that a value is wanted at.
    fn want_level(&mut self, level: i32) {
        let level = Codec::Zstd.nearest_level(level);
        let dictionary = self.family.dictionary();
        // Phrases pack alike at every level.
        let is_other =
            dictionary.is_some_and(|d| d.kind() == DictionaryKind::Zstd && d.level() != level);
        self.other_level = match self.other_level {
            _ if !is_other => (level, 0),
            (other, wanted) if other == level => (level, wanted.saturating_add(1)),
            _ => (level, 1),
        };
    }
}

/// The place of the one family that collects samples for a larger dictionary: many at
/// once would leave no room for those that have none. It goes by the id of the
/// dictionary that it has, 0 for nobody.
#[derive(Debug, Default)]
struct Growing(AtomicU32);

impl Growing {
    /// Takes the place for the family of this dictionary, if it is free.
    fn begin(&self, id: u32) -> bool {
        self.0.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Gives it back, if it was that family's.
    fn end(&self, id: u32) {
        let _ = self.0.compare_exchange(id, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Families by the shapes of their keys.
type ByShape = HashMap<Box<[u8]>, Arc<KeyFamily>>;

/// The families of one type.
#[derive(Debug)]
struct OfType {
    by_shape: RwLock<ByShape>,
    rest: Arc<KeyFamily>,
    /// How many values were left to the rest.
    left_to_rest: AtomicUsize,
}

impl OfType {
    fn new(kind: Type) -> Self {
        Self {
            by_shape: RwLock::default(),
            rest: Arc::new(KeyFamily { takes_rest: true, ..KeyFamily::new(kind, REST, 0) }),
            left_to_rest: AtomicUsize::new(0),
        }
    }
}

/// All families.
#[derive(Debug)]
pub struct Families {
    pub(crate) dictionaries: Arc<Dictionaries>,
    of_types: [OfType; Type::ALL.len()],
    sample_bytes: AtomicUsize,
    /// What they may be, and the memory that may be used for another to be taken.
    sample_bytes_max: AtomicUsize,
    sampled_below: AtomicUsize,
    growing: Growing,
    policy: InForce,
    pub(crate) unpack_times: UnpackTimes,
    pub(crate) segment_times: Arc<UnpackTimes>,
}

impl Default for Families {
    fn default() -> Self {
        Self {
            dictionaries: Arc::default(),
            of_types: std::array::from_fn(|n| OfType::new(Type::ALL[n])),
            sample_bytes: AtomicUsize::new(0),
            sample_bytes_max: AtomicUsize::new(SAMPLES_MAX),
            sampled_below: AtomicUsize::new(usize::MAX),
            growing: Growing::default(),
            policy: InForce::default(),
            unpack_times: UnpackTimes::default(),
            segment_times: Arc::default(),
        }
    }
}

impl Families {
    /// How long unpacking strings took: the ends of the buckets in seconds and
    /// how many are in each; and the sum in seconds. One in sixteen is timed.
    pub fn unpack_times(&self) -> (Vec<(f64, u64)>, f64) {
        self.unpack_times.read()
    }

    /// The same of large strings, segment by segment: every one is timed.
    pub fn segment_times(&self) -> (Vec<(f64, u64)>, f64) {
        self.segment_times.read()
    }

    /// The policy in force.
    pub fn policy(&self) -> Edition {
        self.policy.edition()
    }

    /// Puts a policy into force: what is packed from now on goes by it, what was
    /// settled before is looked at again by the next walk ([`crate::Cooling`]).
    pub fn set_policy(&self, policy: Policy) {
        self.policy.replace(policy);
    }

    /// The family of a key of that type, new if its shape is. Where all places are taken, one in
    /// some calls clears those of families that have come to little, and others get
    /// the family of the rest. O(key), when places are cleared O(families).
    pub fn of(&self, kind: Type, key: &[u8]) -> Arc<KeyFamily> {
        let mut room = [0; SHAPE_MAX];
        let shape = shape(key, &mut room);
        let OfType { by_shape, rest, left_to_rest, .. } = self.of_type(kind);
        if let Some(family) = by_shape.read().get(shape) {
            return Arc::clone(family);
        }
        let mut families = by_shape.write();
        if families.len() >= FAMILIES_MAX && !families.contains_key(shape) {
            let left = left_to_rest.fetch_add(1, Ordering::Relaxed);
            if left % CLEAR_ONE_IN + 1 < CLEAR_ONE_IN || !self.clear_places(&mut families) {
                return Arc::clone(rest);
            }
        }
        let seed = families.len() as u64 + 1;
        let family = families.entry(shape.into());
        Arc::clone(family.or_insert_with(|| Arc::new(KeyFamily::new(kind, shape, seed))))
    }

    fn of_type(&self, kind: Type) -> &OfType {
        &self.of_types[kind as usize]
    }

    /// Every family that has a place.
    fn named(&self) -> Vec<Arc<KeyFamily>> {
        let named = |of: &OfType| of.by_shape.read().values().cloned().collect::<Vec<_>>();
        self.of_types.iter().flat_map(named).collect()
    }

    /// Lets go of families that have met few values and have no dictionary; whether
    /// there was one. Their values are as they are, and new ones found families anew.
    fn clear_places(&self, families: &mut ByShape) -> bool {
        for few in CLEAR_UP_TO {
            families.retain(|_, family| {
                let mut state = family.state.lock();
                let kept = state.values_met() > few
                    || state.family.dictionary().is_some()
                    || family.asked.load(Ordering::Acquire);
                if !kept {
                    self.empty(&mut state);
                }
                kept
            });
            if families.len() + CLEAR_ENOUGH <= FAMILIES_MAX {
                break;
            }
        }
        families.len() < FAMILIES_MAX
    }

    /// Empties a family that is let go of: whoever still holds it would sample into
    /// nothing.
    fn empty(&self, state: &mut State) {
        self.end_growing(state);
        let none = Family::new(FamilyConfig::default(), 0);
        self.counted(&mut state.family, |family| *family = none);
    }

    /// What the family is called that the values of a key belong to, or will when one
    /// has cooled.
    pub fn name_of(&self, kind: Type, key: &[u8]) -> Vec<u8> {
        let mut room = [0; SHAPE_MAX];
        let shape = shape(key, &mut room);
        let families = self.of_type(kind).by_shape.read();
        let has_place = families.len() < FAMILIES_MAX || families.contains_key(shape);
        if has_place { shape.to_vec() } else { REST.to_vec() }
    }

    /// The training of a family that is due: to be run where it disturbs nobody.
    /// `None` if the samples are there no more.
    pub fn training_job(&self, family: &KeyFamily) -> Option<TrainingJob> {
        let job = self.counted(&mut family.state.lock().family, Family::training_job)?;
        Some(if family.kind.row().takes_phrases { job } else { job.only_zstd() })
    }

    /// Has a family collect more samples, if it holds enough for that and no other
    /// does so.
    fn grow(&self, state: &mut State) {
        let Some(dictionary) = state.family.dictionary() else { return };
        let (stats, id) = (state.family.stats(), dictionary.id());
        let mean = stats.raw_bytes / stats.packed.max(1);
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
    fn has_room_to_grow(&self) -> bool {
        let samples = GROWN_TIMES * FamilyConfig::default().sample_bytes_max;
        let taken = samples + 2 * (TRAINING_BYTES + TRAINING_TIMES * samples);
        let below = self.sampled_below.load(Ordering::Relaxed);
        self.sample_bytes_max.load(Ordering::Relaxed) >= GROWN_ROOM * samples
            && (below == usize::MAX || memory::used() + taken <= below)
    }

    /// Lets go of a family's samples, and of its place if it was growing.
    fn forget_samples(&self, state: &mut State) {
        self.end_growing(state);
        self.counted(&mut state.family, Family::forget_samples);
    }

    /// There is no room for a family to grow, if it was about to: it may try again.
    pub fn stop_growing(&self, family: &KeyFamily) {
        let mut state = family.state.lock();
        if state.family.is_growing() {
            self.forget_samples(&mut state);
        }
    }

    fn end_growing(&self, state: &State) {
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
            Some(dictionary) => {
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
        family.asked.store(false, Ordering::Release);
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
        family.asked.store(false, Ordering::Release);
    }

    /// Has a family take a dictionary, by `take`, for the one that it gives back:
    /// that goes with the last value that refers to it.
    fn replace(
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
    fn has_changed(&self, family: &KeyFamily) {
        family.changed_at.store(u64::MAX, Ordering::Release);
        family.changed_at.store(self.dictionaries.advance(), Ordering::Release);
    }

    /// Says what memory may be used: no sample is taken beyond `limit` bytes, and all
    /// of them are a small share of it. Those that are too many by now are let go of.
    pub fn limit_samples(&self, limit: Option<usize>) {
        let max = limit.map_or(SAMPLES_MAX, |limit| SAMPLES_MAX.min(limit / SAMPLES_ONE_IN));
        self.sampled_below.store(limit.unwrap_or(usize::MAX), Ordering::Relaxed);
        self.sample_bytes_max.store(max, Ordering::Relaxed);
        if self.sample_bytes.load(Ordering::Relaxed) > max {
            self.keep_samples(max);
        }
    }

    /// Makes room where samples take all that they may: many families with a few each
    /// would all wait for more. Those that have most are the first to be complete.
    pub fn thin_samples(&self) {
        let max = self.sample_bytes_max.load(Ordering::Relaxed);
        if self.sample_bytes.load(Ordering::Relaxed) >= max {
            self.keep_samples(max / 2);
        }
    }

    /// Lets go of all samples but those of the families that have most, up to `max`
    /// bytes.
    fn keep_samples(&self, max: usize) {
        let rests = self.of_types.iter().map(|of| Arc::clone(&of.rest));
        let of = |family: Arc<KeyFamily>| {
            let bytes = family.state.lock().family.promising_bytes();
            (bytes, family)
        };
        let mut families: Vec<_> = self.named().into_iter().chain(rests).map(of).collect();
        families.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let mut kept = 0;
        for (bytes, family) in families {
            // What is to be trained from is not taken away any more.
            let is_asked = family.asked.load(Ordering::Relaxed);
            if is_asked || bytes > 0 && kept + bytes <= max {
                kept += bytes;
            } else {
                self.forget_samples(&mut family.state.lock());
            }
        }
    }

    fn has_room_for_sample(&self, len: usize) -> bool {
        let below = self.sampled_below.load(Ordering::Relaxed);
        self.sample_bytes.load(Ordering::Relaxed) < self.sample_bytes_max.load(Ordering::Relaxed)
            && (below == usize::MAX || memory::used() + len <= below)
    }

    /// Changes a family, and counts what that does to its samples.
    fn counted<R>(&self, family: &mut Family, change: impl FnOnce(&mut Family) -> R) -> R {
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

    /// A walk has met a value of this key. Makes no family.
    pub(crate) fn meet(&self, kind: Type, key: &[u8]) {
        let of = self.of_type(kind);
        if let Some(family) = of.by_shape.read().get(shape(key, &mut [0; SHAPE_MAX])) {
            // Seldom written: many threads read it.
            if !family.is_met.load(Ordering::Relaxed) {
                family.is_met.store(true, Ordering::Relaxed);
            }
        }
    }

    /// There are no values any more: no family has one until it is met.
    pub fn emptied(&self) {
        for family in self.named() {
            let mut state = family.state.lock();
            family.is_met.store(false, Ordering::Relaxed);
            state.met = state.values_met();
            state.idle = state.idle.max(1);
        }
    }

    /// Lets go of families of which no value was met for `turns` calls, and to whose
    /// dictionary none refers any more. Between two calls every walk must have
    /// met each string: [`MEET_ONE_IN`](crate::MEET_ONE_IN) whole passes.
    pub fn tidy(&self, turns: u32) {
        self.of_types.iter().for_each(|of| self.tidy_type(of, turns));
    }

    fn tidy_type(&self, of: &OfType, turns: u32) {
        of.by_shape.write().retain(|_, family| {
            let mut state = family.state.lock();
            let met = state.values_met();
            let is_met = family.is_met.swap(false, Ordering::Relaxed) || met != state.met;
            state.idle = if is_met { 0 } else { state.idle + 1 };
            state.met = met;
            // Its values have stopped coming: another may.
            if state.family.is_growing() && !family.asked.load(Ordering::Acquire) {
                state.growing += 1;
                if state.growing > 1 {
                    self.forget_samples(&mut state);
                }
            }
            let id = state.family.dictionary().map(|dictionary| dictionary.id());
            let used = id.is_some_and(|id| self.dictionaries.registry().references(id) > 0);
            let kept = state.idle < turns || used || family.asked.load(Ordering::Acquire);
            if !kept {
                self.empty(&mut state);
                id.into_iter().for_each(|id| self.dictionaries.registry().supersede(id));
            }
            kept
        });
    }

    /// Every family, in no particular order.
    pub fn all(&self) -> Vec<FamilyInfo> {
        let rests = self.of_types.iter().map(|of| of.rest.info());
        let rests = rests.filter(|rest| rest.stats.judged + rest.expiring > 0);
        self.named().iter().map(|family| family.info()).chain(rests).collect()
    }

    /// Every dictionary, by id.
    pub fn dictionaries(&self) -> Vec<DictionaryInfo> {
        self.dictionaries.all()
    }

    /// Takes in a dictionary that belongs to one value, not to a family.
    pub fn own(&self, dictionary: Dictionary) -> OwnDictionary {
        self.dictionaries.own(dictionary)
    }

    /// What dictionaries are held, and were.
    pub fn dictionary_stats(&self) -> RegistryStats {
        self.dictionaries.registry().stats()
    }

    /// How many families there are.
    pub fn len(&self) -> usize {
        self.of_types.iter().map(|of| of.by_shape.read().len()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The generation of dictionaries: greater whenever there is a new one.
    pub fn generation(&self) -> u64 {
        self.dictionaries.generation()
    }
}

/// The shape of a key, in `room`.
fn shape<'r>(key: &[u8], room: &'r mut [u8; SHAPE_MAX]) -> &'r [u8] {
    let (mut len, mut at) = (0, 0);
    let mut push = |byte: u8, len: &mut usize| {
        if *len < SHAPE_MAX {
            room[*len] = byte;
            *len += 1;
        }
    };
    while at < key.len() && len < SHAPE_MAX {
        let rest = &key[at..];
        if is_uuid(rest) {
            push(b'#', &mut len);
            at += UUID_LEN;
            continue;
        }
        let token = rest.iter().take_while(|b| b.is_ascii_alphanumeric()).count();
        if token == 0 {
            push(rest[0], &mut len);
            at += 1;
            continue;
        }
        let word = &rest[..token];
        if is_id(word) {
            push(b'#', &mut len);
        } else {
            let mut digits = false;
            for &byte in word {
                match byte.is_ascii_digit() {
                    true if digits => {}
                    true => push(b'#', &mut len),
                    false => push(byte, &mut len),
                }
                digits = byte.is_ascii_digit();
            }
        }
        at += token;
    }
    &room[..len]
}

const UUID_LEN: usize = 36;

fn is_uuid(bytes: &[u8]) -> bool {
    let Some(uuid) = bytes.get(..UUID_LEN) else { return false };
    uuid.iter().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

/// Whether a word without punctuation is an id as a whole: hexadecimal, or long
/// and with digits in it.
fn is_id(word: &[u8]) -> bool {
    const HEX_MIN: usize = 8;
    const ANY_MIN: usize = 16;
    word.iter().any(u8::is_ascii_digit)
        && (word.len() >= ANY_MIN
            || word.len() >= HEX_MIN && word.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape_of(key: &str) -> String {
        String::from_utf8(shape(key.as_bytes(), &mut [0; SHAPE_MAX]).to_vec()).unwrap()
    }

    #[test]
    fn keys_that_differ_in_ids_alone_have_one_shape() {
        for (key, expected) in [
            ("user:123:profile", "user:#:profile"),
            ("user:9:profile", "user:#:profile"),
            ("session:deadbeef01", "session:#"),
            ("s:123e4567-e89b-12d3-a456-426614174000:x", "s:#:x"),
            ("s:abcdefab-abcd-abcd-abcd-abcdefabcdef", "s:#"),
            ("item42b", "item#b"),
            ("token:Zk3QmV9rT1xYw8Lb", "token:#"),
            ("a.b-c", "a.b-c"),
            ("", ""),
        ] {
            assert_eq!(shape_of(key), expected);
        }
        assert_eq!(shape_of(&"x-".repeat(100)).len(), SHAPE_MAX);
    }

    /// Keys of shapes of their own.
    fn shapes(count: usize) -> impl Iterator<Item = String> {
        let letter = |n: usize| char::from(b'a' + (n % 26) as u8);
        (0..count).map(move |n| format!("{}{}{}:1", letter(n), letter(n / 26), letter(n / 676)))
    }

    #[test]
    fn the_number_of_families_is_bounded() {
        let families = Families::default();
        for key in shapes(FAMILIES_MAX) {
            let family = families.of(Type::String, key.as_bytes());
            (0..=CLEAR_UP_TO[2]).for_each(|_| family.left_expiring());
        }
        for _ in 0..2 * CLEAR_ONE_IN {
            assert_eq!(families.of(Type::String, b"beyond all:1").shape(), b"*");
            assert_eq!(families.name_of(Type::String, b"beyond all:1"), b"*");
        }
        assert_eq!(families.len(), FAMILIES_MAX);
        families.tidy(1);
        families.tidy(1);
        assert!(families.is_empty());
    }

    #[test]
    fn shapes_of_one_value_make_room_for_those_of_many() {
        let families = Families::default();
        let user = |n: u64| format!("user:{n}:profile").into_bytes();
        for key in shapes(3 * FAMILIES_MAX) {
            families.of(Type::String, key.as_bytes()).left_expiring();
            assert!(families.len() <= FAMILIES_MAX);
        }
        (0..100).for_each(|n| families.of(Type::String, &user(n)).left_expiring());
        assert_eq!(families.of(Type::String, &user(1)).shape(), b"user:#:profile");
        assert_eq!(families.name_of(Type::String, &user(2)), b"user:#:profile");
        // And it stays, whatever else comes.
        for key in shapes(9 * FAMILIES_MAX).skip(3 * FAMILIES_MAX) {
            families.of(Type::String, key.as_bytes()).left_expiring();
        }
        assert_eq!(families.name_of(Type::String, &user(3)), b"user:#:profile");
    }

    #[test]
    fn the_rest_is_judged_value_by_value() {
        let families = Families::default();
        (0..4 * PASSED_BY_MAX)
            .for_each(|_| families.of_type(Type::String).rest.tried(100, 99, false));
        let text = b"a text like any other, as it were".repeat(9);
        let zstd = Choice { codec: Codec::Zstd, level: 3, told: false };
        let plan = families.of_type(Type::String).rest.plan(&families, &text, false, 0, zstd);
        assert!(plan.is_some());
    }

    #[test]
    fn a_family_is_gone_until_a_value_is_met() {
        let families = Families::default();
        let is_gone = || families.all()[0].is_gone;
        families.of(Type::String, b"doc:1").left_expiring();
        assert!(!is_gone());
        families.tidy(9);
        assert!(!is_gone(), "met since the turn before");
        families.tidy(9);
        assert!(is_gone());
        families.meet(Type::String, b"doc:2");
        assert!(!is_gone());
        families.emptied();
        assert!(is_gone());
        families.of(Type::String, b"doc:1").left_expiring();
        assert!(!is_gone());
    }

    #[test]
    fn a_family_of_noise_is_left_alone() {
        let families = Families::default();
        let family = families.of(Type::String, b"noise:1");
        let mut state = 1u64;
        let mut noise = || -> Vec<u8> {
            let mut byte = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            };
            (0..500).map(|_| byte()).collect()
        };
        let zstd = Choice { codec: Codec::Zstd, level: 3, told: false };
        assert!((0..100).all(|_| family.plan(&families, &noise(), false, 0, zstd).is_none()));
        assert!(family.plan(&families, &noise(), true, 0, zstd).is_some());
        let told = Choice { told: true, ..zstd };
        assert!(family.plan(&families, &noise(), false, 1, told).is_some(), "a rule says so");
        assert!(!family.is_training_due(1024));
    }

    #[test]
    fn samples_are_a_small_share_of_a_limit_and_given_back_when_it_is_lowered() {
        let families = Families::default();
        let zstd = Choice { codec: Codec::Zstd, level: 3, told: false };
        let text = b"the quick brown fox jumps over the lazy dog ".repeat(20);
        let fill = || {
            for n in 0..6400 {
                let key = ["a:1", "b:1", "c:1", "d:1"][n % 4];
                families.of(Type::String, key.as_bytes()).plan(&families, &text, false, 0, zstd);
            }
            families.sample_bytes.load(Ordering::Relaxed)
        };
        let limit = 4 << 20;
        families.limit_samples(Some(limit));
        let share = limit / SAMPLES_ONE_IN;
        let filled = fill();
        assert!((share..share + 2 * text.len()).contains(&filled), "{filled}");
        families.limit_samples(None);
        let all = fill();
        assert!(all > 4 * share, "{all}");
        families.limit_samples(Some(limit));
        assert!(families.sample_bytes.load(Ordering::Relaxed) <= share);
        families.limit_samples(None);
        assert_eq!(fill(), all, "those given back are counted as they are taken again");
    }

    #[test]
    fn families_that_hold_much_grow_one_after_the_other() {
        let families = Families::default();
        let zstd = Choice { codec: Codec::Zstd, level: 3, told: false };
        let text = |n: u64| format!("the quick brown fox {n} jumps over the lazy dog ").repeat(20);
        let offer = |key: &[u8], values: u64| {
            let family = families.of(Type::String, key);
            for n in 0..values {
                family.plan(&families, text(n).as_bytes(), false, 0, zstd);
            }
            family
        };
        // What a family holds: some 1,000 bytes a value.
        let hold = |family: &KeyFamily, values: u64| {
            let id = family.dictionary_id();
            (0..values).for_each(|_| families.dictionaries.count(id, 1));
            (0..values).for_each(|_| family.tried(1000, 100, true));
        };
        let train = |family: &KeyFamily| {
            assert!(family.is_training_due(16_384));
            families.training_job(family).unwrap();
            let texts: Vec<String> = (0..200).map(text).collect();
            let samples: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
            families.adopt(family, Some(Dictionary::train(&samples, 4096, 3).unwrap()));
        };
        let [few, many, more] = [b"a:1", b"b:1", b"c:1"].map(|key| {
            let family = offer(key, 1000);
            train(&family);
            family
        });
        hold(&few, GROWN_BYTES / 2000);
        hold(&many, GROWN_BYTES / 900);
        hold(&more, GROWN_BYTES / 900);
        let due = || [&few, &many, &more].map(|family| family.is_training_due(16_384));
        for key in [b"a:1", b"b:1", b"c:1"] {
            offer(key, 6000);
        }
        assert_eq!(due(), [false, true, false], "the first of those that hold much");
        let taken = families.sample_bytes.load(Ordering::Relaxed);
        assert!(taken > GROWN_TIMES * 200 * 1024, "{taken}");
        many.training_refused();
        train(&many);
        assert_eq!(families.sample_bytes.load(Ordering::Relaxed), 0);
        hold(&many, GROWN_BYTES / 900);
        for key in [b"a:1", b"b:1", b"c:1"] {
            offer(key, 6000);
        }
        assert_eq!(due(), [false, false, true], "each but once");
        // A family whose values have stopped coming gives way, as do all where memory
        // is short.
        more.training_refused();
        (0..2).for_each(|_| families.tidy(9));
        assert_eq!((due()[2], families.growing.begin(9)), (false, true));
        families.growing.end(9);
        offer(b"c:1", 100);
        assert!(more.is_growing());
        families.stop_growing(&more);
        assert!(!more.is_growing());
        offer(b"c:1", 100);
        assert!(more.is_growing(), "it may try again");
        families.limit_samples(Some(64 << 20));
        families.keep_samples(1 << 20);
        assert!(families.growing.begin(9), "given back");
        families.growing.end(9);
        offer(b"c:1", 6000);
        assert!(families.growing.begin(9) && !due()[2], "there is no room to grow");
    }

    #[test]
    fn where_samples_have_little_room_some_families_have_enough() {
        let families = Families::default();
        let zstd = Choice { codec: Codec::Zstd, level: 3, told: false };
        let text = b"the quick brown fox jumps over the lazy dog ".repeat(20);
        families.limit_samples(Some(16 << 20));
        let keys: Vec<String> = (b'a'..=b'z').map(|c| format!("{}:1", char::from(c))).collect();
        let due = || {
            keys.iter().any(|key| families.of(Type::String, key.as_bytes()).is_training_due(16_384))
        };
        for round in 0..100 {
            for _ in 0..100 {
                for key in &keys {
                    families
                        .of(Type::String, key.as_bytes())
                        .plan(&families, &text, false, 0, zstd);
                }
            }
            if due() {
                assert!(round > 2, "there was not enough room at first");
                return;
            }
            families.thin_samples();
        }
        panic!("no family has enough samples");
    }
}
