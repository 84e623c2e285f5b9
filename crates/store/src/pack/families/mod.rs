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
//! Where names stand in keys, each makes a shape of its own, of a value or two, and
//! none learns. So strings have families of what they look like as well (`sign.rs`),
//! and values alike share a dictionary whatever their keys are called:
//!
//! ```text
//!  profile:ada.lopez  {"username":"ada",..}  ─┐             lends to
//!  profile:b_khan     {"username":"b_k",..}  ─┴─> * {username,name ──> profile:b_khan
//!  cache:6f1d..  <article>                   ───> * <article
//!  cache:93ab..  a:6:{s:6:"_token";..        ───> cache:#, if it is most of them
//! ```
//!
//! A value's [`Claim`] answers three questions:
//!
//! - Which family judges and counts it? That of its shape, if the shape recurs and most
//!   of its values look like this one. Else that of its sign, if the sign recurs. Else
//!   the rest.
//! - Which family learns from it? Its own, once `ALONE_BYTES` of values have come to that
//!   family, or when most of what comes to the lender is that family's. Until then its
//!   lender learns.
//! - Which families lend a dictionary to its own, while that has none?
//!
//! So a thousand names with twenty values each learn as one. Two kinds of values under
//! one shape learn apart. A new kind of value under a known shape is told by its sign.
//!
//! What is learnt costs little beside what it is about. Samples take at most a twelfth of
//! the memory in use. They go as soon as a dictionary was trained from them, whether it
//! was kept or not. A dictionary holds no phrase that saves less than it takes, and is
//! kept only if it saves more than it weighs (`training.rs` of the crate). A family whose
//! values stop coming is trained from the few there are ([`Families::stalled`]), and
//! again when it holds eight times as much.
//!
//! A family that has come to hold `GROWN_BYTES` is trained once more, from more samples.
//! Its values then pack to a twentieth to a seventh less. They also unpack sooner, since
//! a value is made of fewer phrases. One family at a time collects such samples
//! (`Growing`).
//!
//! Cost: a look-up is a pass over the key and a hash. A family keeps samples
//! only until it has its dictionary, all of them together at most
//! `SAMPLES_MAX` bytes, and under a limit of memory no more than its share of it
//! ([`Families::limit_samples`]).

mod family;
mod known;
mod patience;
mod samples;
mod shape;
mod sign;
mod training;
mod vote;

pub(crate) use family::{Claim, Plan};
pub use family::{FamilyInfo, KeyFamily};
pub(crate) use known::Known;

use crate::pack::dictionaries::{Dictionaries, DictionaryInfo, OwnDictionary};
use crate::pack::recurring::Recurring;
use crate::policy::{Edition, InForce};
use crate::sync::{AtomicU64, AtomicUsize, RwLock};
use crate::timing::UnpackTimes;
use crate::types::Type;
use family::State;
use foldhash::HashMap;
use samples::SAMPLES_MAX;
use shape::{SHAPE_MAX, shape};
use sign::Sign;
use snug_codec::family::{Family, FamilyConfig};
use snug_codec::policy::Policy;
use snug_codec::{Dictionary, RegistryStats};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use training::Growing;
use vote::Voted;

/// Families beside the one that takes the rest.
pub const FAMILIES_MAX: usize = 1024;

/// When no place is free, one value in so many of other shapes triggers a clean-up.
const CLEAR_ONE_IN: usize = 64;
/// A clean-up removes families that have met at most 1 value. If that is not enough, it
/// removes those that have met at most 4, then those that have met at most 16.
const CLEAR_UP_TO: [u64; 3] = [1, 4, 16];
/// A clean-up ends when so many places are free.
const CLEAR_ENOUGH: usize = FAMILIES_MAX / 8;

/// What the family of the rest is called.
const REST: &[u8] = b"*";

/// Families by the shapes of their keys.
type ByShape = HashMap<Box<[u8]>, Arc<KeyFamily>>;

/// The first shapes, so many of them, have a family as soon as they are met. Others have
/// one when they recur.
const FIRST_SHAPES: usize = 16;
/// The same of signs.
const FIRST_SIGNS: usize = 4;
/// A shape or a sign recurs once so many units of values have come by under it.
const RECURS: u16 = 512;
/// Most signs that have a family.
const SIGNS_MAX: usize = 128;
/// A family learns by itself when so many bytes of values have come to it. It does so
/// earlier if most of what comes to its lender is its own.
const ALONE_BYTES: u64 = 64 << 10;
/// Counts are of late: when so many values have come, every family's count is halved.
const OF_LATE: u64 = 1 << 16;

/// The families of one type.
#[derive(Debug)]
struct OfType {
    by_shape: RwLock<ByShape>,
    /// Families of what values look like, by the names of their signs.
    by_sign: RwLock<ByShape>,
    rest: Arc<KeyFamily>,
    /// How many values were left to the rest.
    left_to_rest: AtomicUsize,
    /// The generation of dictionaries at which one of them last got one.
    changed_at: AtomicU64,
}

impl OfType {
    fn new(kind: Type) -> Self {
        Self {
            by_shape: RwLock::default(),
            by_sign: RwLock::default(),
            rest: Arc::new(KeyFamily { takes_rest: true, ..KeyFamily::new(kind, REST, 0) }),
            left_to_rest: AtomicUsize::new(0),
            changed_at: AtomicU64::new(0),
        }
    }

    /// A value's claim, of the families of its shape and of its sign, if there are such.
    fn claimed(&self, shaped: Option<Arc<KeyFamily>>, signed: Option<Arc<KeyFamily>>) -> Claim {
        let rest = &self.rest;
        let learner = match (&shaped, &signed) {
            (Some(shaped), signed) if shaped.learns_beside(signed.as_ref().unwrap_or(rest)) => {
                shaped
            }
            (_, Some(signed)) if signed.learns_beside(rest) => signed,
            _ => rest,
        };
        let learner = Arc::clone(learner);
        let (family, lenders) = match (shaped, signed) {
            (Some(shaped), signed) => (shaped, [signed, Some(Arc::clone(rest))]),
            (None, Some(signed)) => (signed, [Some(Arc::clone(rest)), None]),
            (None, None) => (Arc::clone(rest), [None, None]),
        };
        Claim { family, learner, learns_now: true, lenders }
    }

    /// Halves the counts of what came by of late.
    fn age(&self) {
        let halve = |family: &KeyFamily| {
            let came = family.came.load(Ordering::Relaxed);
            family.came.store(came / 2, Ordering::Relaxed);
        };
        halve(&self.rest);
        self.by_shape.read().values().for_each(|family| halve(family));
        self.by_sign.read().values().for_each(|family| halve(family));
    }
}

/// All families.
#[derive(Debug)]
pub struct Families {
    pub(crate) dictionaries: Arc<Dictionaries>,
    of_types: [OfType; Type::ALL.len()],
    recurring: Recurring,
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
            recurring: Recurring::new(RECURS),
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

    /// Families whose samples have stopped growing, and that are to be trained from what
    /// they have: to be asked for once a pass.
    pub fn stalled(&self) -> Vec<Arc<KeyFamily>> {
        let rests = self.of_types.iter().map(|of| Arc::clone(&of.rest));
        let all = self.named().into_iter().chain(rests);
        all.filter(|family| family.has_stalled()).collect()
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

    /// Whose a value is that has been met: see the head of this file. O(key) and a look
    /// at the value's first bytes.
    pub(crate) fn claim(&self, kind: Type, key: &[u8], raw: &[u8]) -> Claim {
        let of = self.of_type(kind);
        let shaped = self.of_recurring_shape(kind, key, raw.len());
        let sign = Sign::of(raw);
        let signed = self.of_sign(kind, &sign, raw.len());
        of.rest.came(raw.len());
        if of.rest.came.load(Ordering::Relaxed) >= OF_LATE {
            of.age();
        }
        if let Some(signed) = &signed {
            signed.came(raw.len());
        }
        let shaped = shaped.filter(|shaped| {
            let voted = shaped.vote.of(sign.number());
            if voted == Voted::Outvoted {
                // What was met until now are values of another kind.
                self.forget_samples(&mut shaped.state.lock());
            }
            // Where what it looks like is nobody's, its key is all that tells.
            voted == Voted::Taken || signed.is_none()
        });
        if let Some(shaped) = &shaped {
            shaped.came(raw.len());
        }
        of.claimed(shaped, signed)
    }

    /// Whose a value would be, if it is raw: nothing is counted, and no family made.
    pub(crate) fn claim_of(&self, kind: Type, key: &[u8], raw: &[u8]) -> Claim {
        let of = self.of_type(kind);
        let shaped = of.by_shape.read().get(shape(key, &mut [0; SHAPE_MAX])).cloned();
        let sign = Sign::of(raw);
        let signed = of.by_sign.read().get(sign.name()).cloned();
        let shaped = shaped.filter(|shaped| signed.is_none() || shaped.vote.is_of(sign.number()));
        of.claimed(shaped, signed)
    }

    /// Whose a value may be that is packed, as far as its key tells.
    pub(crate) fn claim_of_key(&self, kind: Type, key: &[u8]) -> Claim {
        let of = self.of_type(kind);
        let shaped = of.by_shape.read().get(shape(key, &mut [0; SHAPE_MAX])).cloned();
        of.claimed(shaped, None)
    }

    /// The family of a key's shape, if that is one of the first or recurs.
    fn of_recurring_shape(&self, kind: Type, key: &[u8], bytes: usize) -> Option<Arc<KeyFamily>> {
        let mut room = [0; SHAPE_MAX];
        let shape = shape(key, &mut room);
        let families = self.of_type(kind).by_shape.read();
        if let Some(family) = families.get(shape) {
            return Some(Arc::clone(family));
        }
        let is_first = families.len() < FIRST_SHAPES;
        drop(families);
        (is_first || self.recurring.meet(kind as usize, shape, bytes)).then(|| self.of(kind, key))
    }

    /// The family of a sign, if that is one of the first or recurs.
    fn of_sign(&self, kind: Type, sign: &Sign, bytes: usize) -> Option<Arc<KeyFamily>> {
        let by_sign = &self.of_type(kind).by_sign;
        let families = by_sign.read();
        if let Some(family) = families.get(sign.name()) {
            return Some(Arc::clone(family));
        }
        let (is_first, is_full) = (families.len() < FIRST_SIGNS, families.len() >= SIGNS_MAX);
        drop(families);
        let of_signs = Type::ALL.len() + kind as usize;
        if is_full || !is_first && !self.recurring.meet(of_signs, sign.name(), bytes) {
            return None;
        }
        let mut families = by_sign.write();
        let seed = families.len() as u64 + 7;
        let name = [b"* ", sign.name()].concat();
        let family = families.entry(sign.name().into());
        Some(Arc::clone(family.or_insert_with(|| Arc::new(KeyFamily::new(kind, &name, seed)))))
    }

    fn of_type(&self, kind: Type) -> &OfType {
        &self.of_types[kind as usize]
    }

    /// Every family that has a place.
    fn named(&self) -> Vec<Arc<KeyFamily>> {
        let named = |of: &OfType| {
            let by_shape = of.by_shape.read().values().cloned().collect::<Vec<_>>();
            by_shape.into_iter().chain(of.by_sign.read().values().cloned().collect::<Vec<_>>())
        };
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
    /// nothing. Its dictionary, if it has one, goes with the last value that refers to it.
    fn empty(&self, state: &mut State) {
        self.end_growing(state);
        let id = state.family.dictionary().map(|dictionary| dictionary.id());
        let none = Family::new(FamilyConfig::default(), 0);
        self.counted(&mut state.family, |family| *family = none);
        id.into_iter().for_each(|id| self.dictionaries.registry().supersede(id));
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

    /// There are no values any more: what was learnt of them goes too. A dictionary that
    /// values on their way out are packed with goes with the last of them, and one that is
    /// still being trained when that ends.
    pub fn emptied(&self) {
        for of in &self.of_types {
            for families in [&of.by_shape, &of.by_sign] {
                families.write().retain(|_, family| self.is_kept(family));
            }
            self.is_kept(&of.rest);
        }
    }

    /// Empties a family that has no values any more; whether a training still needs it.
    fn is_kept(&self, family: &KeyFamily) -> bool {
        let mut state = family.state.lock();
        let asked = family.asked.load(Ordering::Acquire);
        self.empty(&mut state);
        family.forget();
        family.is_met.store(false, Ordering::Relaxed);
        state.met = state.values_met();
        state.idle = 1;
        state.is_void = asked;
        asked
    }

    /// Lets go of families of which no value was met for `turns` calls, and to whose
    /// dictionary none refers any more. Between two calls every walk must have
    /// met each string: [`MEET_ONE_IN`](crate::MEET_ONE_IN) whole passes.
    pub fn tidy(&self, turns: u32) {
        self.of_types.iter().for_each(|of| self.tidy_type(of, turns));
    }

    fn tidy_type(&self, of: &OfType, turns: u32) {
        for families in [&of.by_shape, &of.by_sign] {
            self.tidy_some(&mut families.write(), turns);
        }
    }

    fn tidy_some(&self, families: &mut ByShape, turns: u32) {
        families.retain(|_, family| {
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
            }
            kept
        });
    }

    /// Every family, in no particular order.
    pub fn all(&self) -> Vec<FamilyInfo> {
        let rests = self.of_types.iter().map(|of| of.rest.info());
        let rests =
            rests.filter(|rest| rest.stats.judged + rest.expiring > 0 || rest.dictionary > 0);
        let named = self.named();
        let shown = named.iter().filter(|family| !family.is_idle_lender()).map(|f| f.info());
        shown.chain(rests).collect()
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
        let lend = |of: &OfType| of.by_sign.read().values().filter(|f| !f.is_idle_lender()).count();
        self.of_types.iter().map(|of| of.by_shape.read().len() + lend(of)).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether what is packed with this dictionary, 0 for none, may yet get a better one:
    /// there is none for its like, or only that of the rest.
    pub(crate) fn is_provisional(&self, kind: Type, id: u32) -> bool {
        id == 0 || id == self.of_type(kind).rest.dictionary_id()
    }

    /// Whether any family of that type has got a dictionary since.
    pub(crate) fn has_any_changed_since(&self, kind: Type, generation: u64) -> bool {
        self.of_type(kind).changed_at.load(Ordering::Acquire) > generation
    }

    /// Whether a dictionary is some family's current one.
    pub(crate) fn is_current(&self, id: u32) -> bool {
        self.dictionaries.registry().is_current(id)
    }

    /// The generation of dictionaries: greater whenever there is a new one.
    pub fn generation(&self) -> u64 {
        self.dictionaries.generation()
    }
}

/// The shape of a key, as families are told apart by it: `user:17:mail` is `user:#:mail`.
pub fn shape_of(key: &[u8]) -> Vec<u8> {
    shape(key, &mut [0; SHAPE_MAX]).to_vec()
}

#[cfg(test)]
mod tests {
    use super::patience::PASSED_BY_MAX;
    use super::samples::SAMPLES_ONE_IN;
    use super::training::GROWN_BYTES;
    use super::*;
    use snug_codec::Codec;
    use snug_codec::family::GROWN_TIMES;
    use snug_codec::policy::Choice;

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
        assert!(families.all().is_empty());
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
        assert!(!many.awaits_dictionary(), "it packs while it collects samples");
        assert_eq!(due(), [false, true, false], "the first of those that hold much");
        assert!(many.awaits_dictionary() && !few.awaits_dictionary());
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
        offer(b"c:1", 6000);
        assert!(more.is_growing());
        assert!(due()[2] && more.awaits_dictionary());
        let before = families.dictionaries.generation();
        families.stop_growing(&more);
        more.training_refused();
        assert!(!more.is_growing() && !more.awaits_dictionary());
        assert!(more.changed_since(before), "what waited is looked at once more");
        offer(b"c:1", 100);
        assert!(more.is_growing(), "it may try again");
        families.limit_samples(Some(64 << 20));
        families.keep_samples(1 << 20, |_| false);
        assert!(families.growing.begin(9), "given back");
        families.growing.end(9);
        offer(b"c:1", 6000);
        assert!(families.growing.begin(9) && !due()[2], "there is no room to grow");
    }

    #[test]
    fn the_only_family_keeps_samples_that_take_all_the_room() {
        let families = Families::default();
        let zstd = Choice { codec: Codec::Zstd, level: 3, told: false };
        let text = b"the quick brown fox jumps over the lazy dog ".repeat(20);
        families.limit_samples(Some(2 << 20));
        let family = families.of(Type::String, b"doc:1");
        (0..1000).for_each(|_| drop(family.plan(&families, &text, false, 0, zstd)));
        assert!(!family.is_training_due(16_384), "more may come");
        families.thin_samples();
        assert!((0..10).any(|_| !families.stalled().is_empty()), "no more comes");
        assert!(family.is_training_due(16_384));
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
