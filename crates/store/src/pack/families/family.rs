//! One family: what it learns, and how its values are to be packed.

use super::patience::Patience;
use super::vote::Vote;
use super::{ALONE_BYTES, Families};
use crate::pack::dictionaries::HeldDictionary;
use crate::sync::{AtomicBool, AtomicU64, Mutex};
use crate::types::Type;
use snug_codec::family::{Family, FamilyConfig, FamilyStats, Verdict};
use snug_codec::policy::Choice;
use snug_codec::{Codec, Dictionary, DictionaryKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A family is worth a dictionary when it has so many times its size in values.
const DICTIONARY_WORTH: u64 = 16;

const GROWN_LOOK: u64 = 64;

/// A family whose samples have not grown for so many looks, of which there is one a
/// pass, is trained from what it has if that was drawn from so many bytes.
const STALLED_LOOKS: u32 = 3;
const STALLED_BYTES: u64 = 32 << 10;

/// Samples of pieces are cut into these: of whole ones too few would find room to train
/// from.
const PIECE_BYTES: usize = 2048;

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
    /// The family's dictionary, or one that is lent to it, if there is one.
    pub(crate) held: Option<HeldDictionary>,
}

/// Whose a value is, and who helps: see the head of `families/mod.rs`.
#[derive(Debug)]
pub(crate) struct Claim {
    /// Judges the value and counts it.
    pub(crate) family: Arc<KeyFamily>,
    /// Learns from it: the family, or one that lends.
    pub(crate) learner: Arc<KeyFamily>,
    /// Whether it does so from the value as it is, and not from a lesson later
    /// ([`KeyFamily::learn`]).
    pub(crate) learns_now: bool,
    /// Lend their dictionaries to the family while it has none, the first that has one.
    pub(super) lenders: [Option<Arc<KeyFamily>>; 2],
}

impl Claim {
    /// The same of a family that stands alone.
    pub(crate) fn alone(family: Arc<KeyFamily>) -> Self {
        Self { learner: Arc::clone(&family), family, learns_now: true, lenders: [None, None] }
    }

    /// Those whose dictionary a value may get, in order.
    fn sources(&self) -> impl Iterator<Item = &Arc<KeyFamily>> {
        std::iter::once(&self.family).chain(self.lenders.iter().flatten())
    }

    /// The dictionary that its values are packed with, by id; 0 for none.
    pub(crate) fn dictionary_id(&self) -> u32 {
        self.sources().map(|family| family.dictionary_id()).find(|&id| id != 0).unwrap_or(0)
    }

    /// Whether one that its values are packed with has changed since.
    pub(crate) fn changed_since(&self, generation: u64) -> bool {
        for family in self.sources() {
            if family.changed_since(generation) {
                return true;
            }
            if family.dictionary_id() != 0 {
                break;
            }
        }
        false
    }
}

/// A family: values of one type whose keys are of one shape.
#[derive(Debug)]
pub struct KeyFamily {
    pub(super) kind: Type,
    pub(super) shape: Box<[u8]>,
    /// Whether it takes the values of all shapes that have no family.
    pub(super) takes_rest: bool,
    pub(super) state: Mutex<State>,
    /// A dictionary is being trained or made ready for another level, or waits to be.
    pub(super) asked: AtomicBool,
    /// The generation of dictionaries at which it last got one; the greatest there
    /// is while that is about to begin.
    pub(super) changed_at: AtomicU64,
    /// Whether a walk has met a value of it since families were last tidied.
    pub(super) is_met: AtomicBool,
    /// How many values came by of late, and bytes of all that ever did: of a family that
    /// lends, of those too that are of others.
    pub(super) came: AtomicU64,
    pub(super) came_bytes: AtomicU64,
    /// Of a family of a shape: the sign that most of its values have.
    pub(super) vote: Vote,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) family: Family,
    pub(super) patience: Patience,
    /// The edition of the policy that it was last asked under, and the answer.
    pub(super) edition: u64,
    pub(super) choice: Option<Choice>,
    pub(super) skipped: u64,
    pub(super) not_worth: u64,
    pub(super) expiring: u64,
    /// Whether values were left raw until a dictionary has been trained.
    pub(super) awaited: bool,
    /// From how many bytes its samples were drawn at the last look, for how many looks
    /// that has been so; and from how many bytes its dictionary was.
    pub(super) sampled: u64,
    pub(super) stalled: u32,
    pub(super) trained_from: u64,
    /// Whether what is being trained is of values that have all gone since.
    pub(super) is_void: bool,
    /// For how many turns of tidying it has been growing.
    pub(super) growing: u32,
    /// A level that is not the dictionary's, and how many values in a row have
    /// been wanted at it.
    pub(super) other_level: (i32, u32),
    /// How many values it had met when families were last tidied, and for how many
    /// turns of tidying that has been the same.
    pub(super) met: u64,
    pub(super) idle: u32,
}

impl State {
    /// How many values it has met, in all.
    pub(super) fn values_met(&self) -> u64 {
        self.family.stats().judged + self.expiring
    }
}

impl KeyFamily {
    pub(super) fn new(kind: Type, shape: &[u8], seed: u64) -> Self {
        let state = State {
            family: Family::new(FamilyConfig::default(), seed),
            patience: Patience::default(),
            edition: 0,
            choice: None,
            skipped: 0,
            not_worth: 0,
            expiring: 0,
            awaited: false,
            sampled: 0,
            stalled: 0,
            trained_from: 0,
            is_void: false,
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
            came: AtomicU64::new(0),
            came_bytes: AtomicU64::new(0),
            vote: Vote::default(),
        }
    }

    /// Forgets what came by, with all that was learnt of it.
    pub(super) fn forget(&self) {
        self.vote.forget();
        for count in [&self.came, &self.came_bytes] {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// Whether it learns by itself, and not what lends to it: when enough has come by, or
    /// when it is most of what came by there.
    pub(super) fn learns_beside(&self, lender: &Self) -> bool {
        self.came_bytes.load(Ordering::Relaxed) >= ALONE_BYTES
            || 2 * self.came.load(Ordering::Relaxed) >= lender.came.load(Ordering::Relaxed)
    }

    /// What its dictionary takes of memory.
    pub(crate) fn dictionary_bytes(&self) -> usize {
        self.state.lock().family.dictionary().map_or(0, |dictionary| dictionary.memory_bytes())
    }

    /// Whether values have stopped coming.
    pub(crate) fn is_stalled(&self) -> bool {
        self.state.lock().stalled >= STALLED_LOOKS
    }

    /// Bytes of values that have come by.
    pub(crate) fn came_bytes(&self) -> u64 {
        self.came_bytes.load(Ordering::Relaxed)
    }

    /// Whether it is of a sign, and has only been looked at by families that need nothing
    /// of it.
    pub(super) fn is_idle_lender(&self) -> bool {
        let state = self.state.lock();
        self.shape.starts_with(b"* ")
            && state.values_met() == 0
            && state.family.dictionary().is_none()
    }

    /// Takes note that a value of so many bytes came by.
    pub(super) fn came(&self, bytes: usize) {
        self.came.fetch_add(1, Ordering::Relaxed);
        self.came_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
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

    /// [`Claim::plan`] of a family that stands alone.
    #[cfg(test)]
    pub(crate) fn plan(
        self: &Arc<Self>,
        families: &Families,
        raw: &[u8],
        forced: bool,
        edition: u64,
        choice: Choice,
    ) -> Option<Plan> {
        Claim::alone(Arc::clone(self)).plan(families, raw, forced, edition, choice)
    }
}

impl Claim {
    /// How to pack a value that the policy's edition chose this for: with the family's
    /// dictionary, or one that is lent to it, held until the value is in its slot. `None`
    /// if it is to be left raw. A `forced` one, and one that a rule names, is packed
    /// whatever is thought of its family.
    pub(crate) fn plan(
        &self,
        families: &Families,
        raw: &[u8],
        forced: bool,
        edition: u64,
        choice: Choice,
    ) -> Option<Plan> {
        let family = &*self.family;
        let mut state = family.state.lock();
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
            && !family.asked.load(Ordering::Relaxed)
        {
            families.grow(&mut state);
        }
        let learns_itself = Arc::ptr_eq(&self.family, &self.learner);
        let samples = self.learns_now
            && choice.codec == Codec::Zstd
            && families.has_room_for_sample(raw.len());
        if samples && learns_itself {
            families.counted(&mut state.family, |family| family.sample(raw));
        }
        let passed_by = !forced
            && (verdict == Verdict::Raw && !choice.told
                // What one value of the rest was worth says nothing of the next.
                || !family.takes_rest && state.patience.passes_by());
        let held = match passed_by || choice.codec != Codec::Zstd {
            true => None,
            false => state.hold(families, choice),
        };
        drop(state);
        if samples && !learns_itself && verdict != Verdict::Raw {
            let mut learner = self.learner.state.lock();
            learner.choice = Some(choice);
            families.counted(&mut learner.family, |family| family.sample(raw));
        }
        if passed_by {
            return None;
        }
        if choice.codec != Codec::Zstd {
            return Some(Plan { held: None });
        }
        let lent = || {
            let mut lenders = self.lenders.iter().flatten();
            lenders.find_map(|lender| lender.state.lock().hold(families, choice))
        };
        Some(Plan { held: held.or_else(lent) })
    }

    /// Whether a dictionary is being trained that all its values are to be packed with.
    pub(crate) fn awaits_dictionary(&self) -> bool {
        self.learner.awaits_dictionary()
    }
}

impl KeyFamily {
    /// Whether a dictionary is being trained that all its values are to be packed with.
    /// What is left as it is until then is looked at again afterwards, whatever comes of
    /// it.
    pub(crate) fn awaits_dictionary(&self) -> bool {
        if !self.asked.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = self.state.lock();
        let awaits = !state.is_void && state.family.awaits_dictionary();
        state.awaited |= awaits;
        awaits
    }

    /// The dictionary that pieces of its values are packed with, if there is one, held
    /// for them.
    pub(crate) fn hold(&self, families: &Families, choice: Choice) -> Option<HeldDictionary> {
        let mut state = self.state.lock();
        state.choice = Some(choice);
        state.hold(families, choice)
    }

    /// Whether it learns from pieces of so many bytes.
    pub(crate) fn is_learning(&self, families: &Families, len: usize) -> bool {
        families.has_room_for_sample(len) && self.state.lock().family.wants_dictionary()
    }

    /// Looks at a piece that was packed, if it did not before, and learns from what a
    /// dictionary could help with in it.
    pub(crate) fn learn(&self, families: &Families, judges: Option<&[u8]>, texts: &[Vec<u8>]) {
        if judges.is_none() && texts.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        if let Some(raw) = judges {
            state.family.judge(raw);
        }
        families.counted(&mut state.family, |family| {
            texts.iter().flat_map(|text| text.chunks(PIECE_BYTES)).for_each(|it| family.sample(it));
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
    ///
    /// Due are families that have met enough for such a dictionary; and those that have
    /// met a little and no more since a while, for a smaller one.
    pub fn is_training_due(&self, bytes_max: usize) -> bool {
        if bytes_max == 0 || self.asked.load(Ordering::Relaxed) {
            return false;
        }
        let state = self.state.lock();
        let least = match state.stalled {
            STALLED_LOOKS.. => STALLED_BYTES.min(DICTIONARY_WORTH * bytes_max as u64),
            _ => DICTIONARY_WORTH * bytes_max as u64,
        };
        state.family.sampled_bytes() >= least
            && state.family.is_training_due()
            && !self.asked.swap(true, Ordering::AcqRel)
    }

    /// Looks whether its samples have grown since the last look; whether they have
    /// stopped and are to be trained from.
    pub(super) fn has_stalled(&self) -> bool {
        let mut state = self.state.lock();
        let sampled = state.family.sampled_bytes();
        let same = sampled > 0 && sampled == state.sampled && state.family.is_training_due();
        state.stalled = if same { state.stalled.saturating_add(1) } else { 0 };
        state.sampled = sampled;
        state.stalled >= STALLED_LOOKS && sampled >= STALLED_BYTES
    }

    /// Whether a dictionary, if a small one, can be trained from its samples.
    pub(super) fn can_be_trained(&self) -> bool {
        let state = self.state.lock();
        state.family.is_training_due() && state.family.sampled_bytes() >= STALLED_BYTES
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
        self.no_longer_asked(&mut self.state.lock());
    }

    /// What it was asked for has come, or never will.
    pub(super) fn no_longer_asked(&self, state: &mut State) {
        state.is_void = false;
        self.asked.store(false, Ordering::Release);
    }

    pub(super) fn info(&self) -> FamilyInfo {
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

impl State {
    /// Holds the family's dictionary, if it has one, for a value that is wanted at the
    /// level of this choice. The family's lock is held, so that it is not replaced just
    /// now.
    fn hold(&mut self, families: &Families, choice: Choice) -> Option<HeldDictionary> {
        self.want_level(choice.level);
        let dictionary = Arc::clone(self.family.dictionary()?);
        Some(families.dictionaries.hold(dictionary))
    }

    /// Takes note of the level that a value is wanted at.
    pub(super) fn want_level(&mut self, level: i32) {
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
