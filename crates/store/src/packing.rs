//! How strings cool, are packed, and are read while packed.
//!
//! Two access bits of each cell, which the sweeper walks without touching the
//! entries behind them, say how lately a value was used:
//!
//! ```text
//!            a read, a write                      a read adds one
//!        ┌───────────────────┐                 ┌──────────────────┐
//!        v                   │                 │                  v
//!  raw   3 ──> 2 ──> 1 ──> candidate ──> packed 0 ──> 1 ──> 2 ──> 3 ──> raw 3
//!          pass  pass  pass                       <── pass <──      pass
//! ```
//!
//! Each pass over the slots takes one off. A candidate's bytes are copied out
//! under the slot's lock, packed with no lock held, and put back only if key and
//! value are still what they were ([`Batch::install`]). What is not worth packing
//! stays raw at 0, which costs the walk a look at its cell, until it is written
//! or read or until its family gets a new dictionary or it a new policy.
//!
//! A stream is packed block by block as its blocks fill up; what is left in its
//! tail when it has cooled is sealed by the same walk ([`TAIL_MIN`]).
//! What is too long for its entry is packed segment by segment: see `large`.
//!
//! A packed string is read through [`PackedStr`]: its length stands in its
//! header, its bytes are unpacked straight to where they are wanted, with a
//! workspace that each session makes when it first needs one (157 KiB).

use crate::entry::Cell;
use crate::families::{Dictionaries, Pin, StringFamily};
use crate::hash::SLOTS;
use crate::keyspace::PAGE_SLOTS;
use crate::large::LargeNames;
use crate::policy::{self, Change, Edition};
use crate::store::{Batch, DATABASES, Session, Store};
use crate::table::Mark;
use crate::timing;
use foldhash::HashMap;
use snug_codec::packed::{self, Header};
use snug_codec::policy::{Choice, Policy};
use snug_codec::{Codec, Dictionary, NoDictionaries, UnpackError, Workspace, WorkspaceConfig};
use std::sync::Arc;
use std::time::Instant;

/// The longest string that is packed inside its entry.
pub(crate) const PACK_MAX: usize = crate::entry::INLINE_MAX;

/// The least bytes in the tail of a cold stream that make a block of their own:
/// less would hardly pack, and each block costs its place in the index.
pub(crate) const TAIL_MIN: usize = 4096;

/// Cells looked at under one hold of a slot's lock ...
pub(crate) const LOOK_AT_ONCE: usize = 128;
/// ... bytes copied out ...
pub(crate) const COPY_AT_ONCE: usize = 64 * 1024;
/// ... and bytes unpacked.
pub(crate) const UNPACK_AT_ONCE: usize = 64 * 1024;

/// A packed value that does not unpack: its bytes are not what was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packed value is damaged: {0}")]
pub struct Damaged(#[from] UnpackError);

/// A string in its packed form.
#[derive(Clone, Copy, Debug)]
pub struct PackedStr<'a> {
    pub(crate) form: &'a [u8],
    pub(crate) session: &'a Session,
}

impl PackedStr<'_> {
    /// The length in bytes once unpacked. Reads the header only.
    pub fn len(&self) -> usize {
        raw_len(self.form)
    }

    /// Whether the string is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Unpacks to the end of `out`, which is as it was if that fails.
    pub fn append_to(&self, out: &mut Vec<u8>) -> Result<(), Damaged> {
        let families = self.session.store().families();
        let mut unpacker = self.session.unpacker();
        let began = unpacker.is_timed().then(Instant::now);
        let unpacked = unpacker.unpack(&families.dictionaries, self.form, out);
        if let Some(began) = began {
            families.unpack_times.record(began.elapsed());
        }
        unpacked
    }
}

/// The length that a packed form has once unpacked; 0 for one that is damaged,
/// as one is that claims more than is ever packed here.
#[inline]
pub(crate) fn raw_len(form: &[u8]) -> usize {
    packed::raw_len(form).ok().filter(|&len| len <= PACK_MAX).unwrap_or(0)
}

/// What a packed form refers to: the dictionary's id, 0 for none.
#[inline]
pub(crate) fn dictionary_id(form: &[u8]) -> u32 {
    packed::dictionary_id(form).ok().flatten().unwrap_or(0)
}

/// What a session unpacks with: a workspace, and the dictionaries it has met.
#[derive(Debug, Default)]
pub(crate) struct Unpacker {
    workspace: Option<Box<Workspace>>,
    dictionaries: HashMap<u32, Arc<Dictionary>>,
    generation: u64,
    /// How many it was asked for.
    asked: u32,
}

impl Unpacker {
    /// Whether the next one is to be timed.
    fn is_timed(&mut self) -> bool {
        self.asked = self.asked.wrapping_add(1);
        self.asked.is_multiple_of(timing::ONE_IN)
    }

    fn unpack(
        &mut self,
        dictionaries: &Dictionaries,
        form: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Damaged> {
        let id = dictionary_id(form);
        if id == 0 {
            return Ok(self.workspace().unpack(form, &NoDictionaries, out, PACK_MAX)?);
        }
        let dictionary = self.dictionary(dictionaries, id);
        let dictionary = dictionary.ok_or(UnpackError::MissingDictionary(id))?;
        Ok(self.workspace().unpack(form, &dictionary, out, PACK_MAX)?)
    }

    pub(crate) fn workspace(&mut self) -> &mut Workspace {
        self.workspace.get_or_insert_with(|| Box::new(Workspace::to_unpack()))
    }

    /// Ids are used again, so what is remembered is good for one generation.
    fn dictionary(&mut self, all: &Dictionaries, id: u32) -> Option<Arc<Dictionary>> {
        let generation = all.generation();
        if self.generation != generation {
            self.dictionaries.clear();
            self.generation = generation;
        }
        if let Some(dictionary) = self.dictionaries.get(&id) {
            return Some(Arc::clone(dictionary));
        }
        let dictionary = all.get(id)?;
        self.dictionaries.insert(id, Arc::clone(&dictionary));
        Some(dictionary)
    }

    /// Lets go of the dictionaries it has met: some may be in use no longer.
    pub(crate) fn forget(&mut self) {
        self.dictionaries.clear();
    }
}

/// What strings are packed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StringParams {
    /// The least length worth packing, in bytes.
    pub min_size: usize,
    /// Percent that must be saved, or a value stays raw. Below 0 a form is kept
    /// even where it is that much longer: for tests.
    pub min_saving_percent: i32,
    /// The level where the policy names none.
    pub level: i32,
}

impl StringParams {
    fn is_worth(&self, raw_len: usize, packed_len: usize) -> bool {
        self.saves_enough(raw_len, packed_len) && packed_len <= PACK_MAX
    }

    pub(crate) fn saves_enough(&self, raw_len: usize, packed_len: usize) -> bool {
        let most = raw_len as i64 * (100 - i64::from(self.min_saving_percent));
        packed_len as i64 * 100 <= most && (packed_len < raw_len || self.min_saving_percent < 0)
    }
}

/// A string that has cooled, copied out of its slot.
#[derive(Debug)]
pub struct Candidate {
    pub(crate) db: usize,
    pub(crate) key: Vec<u8>,
    pub(crate) bytes: Vec<u8>,
    /// `bytes` are a packed form, to be packed anew.
    pub(crate) is_packed: bool,
    /// Keeps the dictionary of that form.
    pub(crate) _pin: Option<Pin>,
    /// To be packed whatever its age and its family.
    pub(crate) forced: bool,
    /// What it was settled by, if it is looked at again for another policy's sake
    /// and nothing else.
    pub(crate) settled_by: Option<Arc<Policy>>,
}

impl Candidate {
    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The codec that was chosen for the form that it has, if it is packed:
    /// phrases are a kind of dictionary, used where zstd was chosen.
    fn codec(&self) -> Option<Codec> {
        let codec = packed::codec(&self.bytes).ok().filter(|_| self.is_packed)?;
        Some(if codec == Codec::Phrases { Codec::Zstd } else { codec })
    }

    /// Whether it is packed with this codec and this dictionary already.
    fn is_packed_with(&self, codec: Codec, dictionary: Option<&Dictionary>) -> bool {
        let id = dictionary.map(Dictionary::id);
        self.codec() == Some(codec) && id.is_some_and(|id| id == dictionary_id(&self.bytes))
    }

    /// Bytes of the value as it was held: raw, or its packed form.
    pub fn held_len(&self) -> usize {
        self.bytes.len()
    }
}

/// A packed form on its way into its slot; or the raw bytes of a value that is
/// not to be packed any more.
#[derive(Debug)]
pub struct Ready {
    pub(crate) form: Vec<u8>,
    pub(crate) is_raw: bool,
    choice: Choice,
    /// Keeps its dictionary until the slot refers to it.
    _pin: Option<Pin>,
}

impl Ready {
    /// Bytes of the packed form.
    pub fn packed_len(&self) -> usize {
        self.form.len()
    }

    /// Whether it is the raw bytes of what was packed before.
    pub fn is_raw(&self) -> bool {
        self.is_raw
    }

    /// What it was packed with.
    pub fn choice(&self) -> Choice {
        self.choice
    }

    fn raw(raw: &[u8], choice: Choice) -> Self {
        Self { form: raw.to_vec(), is_raw: true, choice, _pin: None }
    }
}

/// Packs candidates, one at a time, with no lock held.
#[derive(Debug)]
pub struct Packer {
    workspace: Workspace,
    raw: Vec<u8>,
    family: Option<Arc<StringFamily>>,
}

impl Default for Packer {
    fn default() -> Self {
        Self {
            workspace: Workspace::new(WorkspaceConfig::default()),
            raw: Vec::new(),
            family: None,
        }
    }
}

impl Packer {
    /// The raw bytes of the candidate packed last.
    pub fn raw<'p>(&'p self, candidate: &'p Candidate) -> &'p [u8] {
        if candidate.is_packed { &self.raw } else { &candidate.bytes }
    }

    /// The family of the candidate packed last.
    pub fn family(&self) -> Option<&Arc<StringFamily>> {
        self.family.as_ref()
    }

    /// Packs a candidate, or `None` if it is to stay as it is. Takes some
    /// microseconds for each KiB.
    pub fn pack(
        &mut self,
        store: &Store,
        candidate: &Candidate,
        params: &StringParams,
    ) -> Option<Ready> {
        let families = store.families();
        let raw = if candidate.is_packed {
            let id = dictionary_id(&candidate.bytes);
            let dictionary = families.dictionaries.get(id);
            self.raw.clear();
            let (form, raw) = (&candidate.bytes, &mut self.raw);
            match dictionary {
                Some(dictionary) => self.workspace.unpack(form, &dictionary, raw, PACK_MAX),
                None => self.workspace.unpack(form, &NoDictionaries, raw, PACK_MAX),
            }
            .ok()?;
            &self.raw
        } else {
            &candidate.bytes
        };
        let edition = families.policy();
        let choice = edition.of_string(&candidate.key, raw, params.level);
        let settled_by = candidate.settled_by.as_deref();
        if settled_by
            .is_some_and(|was| policy::of_string(was, &candidate.key, raw, params.level) == choice)
        {
            return None;
        }
        let family = self.family.insert(families.of(&candidate.key));
        let Some(plan) = family.plan(families, raw, candidate.forced, edition.number, choice)
        else {
            let to_be_raw = candidate.is_packed && choice.codec == Codec::None;
            return to_be_raw.then(|| Ready::raw(raw, choice));
        };
        let dictionary = plan.dictionary.as_deref();
        if settled_by.is_some() && candidate.is_packed_with(choice.codec, dictionary) {
            // The level is the dictionary's; with another level comes another.
            return None;
        }
        let mut form = Vec::with_capacity(raw.len() / 2);
        self.workspace.pack(choice.codec, choice.level, dictionary, raw, &mut form).ok()?;
        if params.min_saving_percent < 0 && form.len() > PACK_MAX {
            return None;
        }
        // A dictionary that does not fit the workspace is not used.
        let pin = plan.pin.filter(|_| dictionary_id(&form) != 0);
        let worth = params.is_worth(raw.len(), form.len());
        family.tried(raw.len(), form.len(), worth);
        if !worth {
            let by_another = candidate.is_packed && candidate.codec() != Some(choice.codec);
            return by_another.then(|| Ready::raw(raw, choice));
        }
        Some(Ready { form, is_raw: false, choice, _pin: pin })
    }
}

/// Which settled values a pass looks at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recheck {
    Nothing,
    /// Those whose family has a dictionary newer than this generation.
    NewerThan(u64),
    /// All that are raw, and those of the line above: the rules have changed.
    AllRaw(u64),
}

/// One worker's walk over its share of the slots, pass after pass.
#[derive(Debug)]
pub struct Cooling {
    first: usize,
    of: usize,
    /// Databases in use when the pass began, and where in them the walk is.
    databases: Vec<usize>,
    at: usize,
    slot: usize,
    mark: Mark,
    /// The generation of dictionaries when the pass before began.
    generation: u64,
    params: Option<StringParams>,
    keep_packed: bool,
    leave_mixed: bool,
    recheck: Recheck,
    /// The policy when the pass began, and what of it is new.
    edition: Option<Edition>,
    change: Option<Change>,
}

impl Cooling {
    /// A walk over every `of`-th page of slots, beginning with page `first`.
    pub fn new(first: usize, of: usize) -> Self {
        Self {
            first,
            of,
            databases: Vec::new(),
            at: 0,
            slot: first * PAGE_SLOTS,
            mark: Mark::default(),
            generation: 0,
            params: None,
            keep_packed: false,
            leave_mixed: false,
            recheck: Recheck::Nothing,
            edition: None,
            change: None,
        }
    }

    /// Begins a pass.
    pub fn begin(&mut self, session: &Session, params: &StringParams) {
        let store = session.store();
        session.unpacker().forget();
        self.databases = (0..DATABASES).filter(|&db| store.keys(db) > 0).collect();
        (self.at, self.slot, self.mark) = (0, self.first * PAGE_SLOTS, Mark::default());
        let before = self.generation;
        self.generation = store.families().generation();
        self.recheck = match self.params {
            Some(old) if old != *params => Recheck::AllRaw(before),
            _ if self.generation != before => Recheck::NewerThan(before),
            _ => Recheck::Nothing,
        };
        self.params = Some(*params);
        let edition = store.families().policy();
        self.change = self.edition.as_ref().and_then(|old| Change::between(old, &edition));
        self.edition = Some(edition);
    }

    /// Whether values stay packed however often they are read: memory is short.
    pub fn keep_packed(&mut self, keep: bool) {
        self.keep_packed = keep;
    }

    /// Whether values of families that pack only in part wait: there is no time for
    /// all, and it is better spent on the others.
    pub fn leave_mixed(&mut self, leave: bool) {
        self.leave_mixed = leave;
    }

    /// Whether the pass has come to its end.
    pub fn is_done(&self) -> bool {
        self.at >= self.databases.len()
    }

    /// How much of the pass is done, 0 to 1.
    pub fn progress(&self) -> f64 {
        if self.is_done() {
            return 1.0;
        }
        let done = self.at as f64 + self.slot as f64 / SLOTS as f64;
        done / self.databases.len() as f64
    }

    /// The next slot of this worker's share.
    fn next_slot(&self) -> usize {
        match self.slot + 1 {
            next if next.is_multiple_of(PAGE_SLOTS) => next + (self.of - 1) * PAGE_SLOTS,
            next => next,
        }
    }

    /// Goes on to the next slot that has keys, and looks at some of them: what
    /// has cooled is copied to `candidates`, what is large and has cooled or is
    /// read often is named in `large`. `at_once` takes what is not hot for cold.
    /// O(slots passed by), and a bounded number of cells and bytes.
    pub fn step(
        &mut self,
        batch: &Batch<'_>,
        params: &StringParams,
        at_once: bool,
        candidates: &mut Vec<Candidate>,
        large: &mut LargeNames,
    ) {
        let Some(&db) = self.databases.get(self.at) else { return };
        while self.slot < SLOTS {
            if batch.store().keys_in_slot(db, self.slot) > 0 {
                let mut guard = batch.lock_slot(db, self.slot);
                let (keep_packed, leave_mixed) = (self.keep_packed, self.leave_mixed);
                let recheck = self.recheck;
                let change = self.change.as_ref();
                let rules = Rules { params, at_once, keep_packed, leave_mixed, recheck, change };
                match guard.cool(self.mark, rules, candidates, large) {
                    Some(mark) => self.mark = mark,
                    None => (self.slot, self.mark) = (self.next_slot(), Mark::default()),
                }
                return;
            }
            (self.slot, self.mark) = (self.next_slot(), Mark::default());
        }
        (self.at, self.slot) = (self.at + 1, self.first * PAGE_SLOTS);
    }
}

/// How lately a value was used, 0 to 3: a packed one that a read has added to was
/// read since about the last pass.
#[inline]
pub(crate) fn recency(cell: &Cell) -> u64 {
    let access = cell.access();
    u64::from(if cell.kind().is_packed() && access > 0 { access.max(2) } else { access })
}

/// What one look at a slot goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules<'p> {
    pub(crate) params: &'p StringParams,
    pub(crate) at_once: bool,
    pub(crate) keep_packed: bool,
    pub(crate) leave_mixed: bool,
    pub(crate) recheck: Recheck,
    pub(crate) change: Option<&'p Change>,
}

/// Why a settled string is looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// What it would be packed with has changed.
    Recheck,
    /// Another policy came into force, and nothing else.
    Policy,
}

impl Rules<'_> {
    /// Whether a raw string is long enough.
    pub(crate) fn fits(&self, cell: &Cell) -> bool {
        cell.bytes().len() >= self.params.min_size
    }

    /// Whether a raw string is to stay as it is until there is more time.
    pub(crate) fn leaves(&self, store: &Store, cell: &Cell) -> bool {
        self.leave_mixed && self.fits(cell) && store.families().of(cell.key()).is_mixed()
    }

    /// Whether a large string that is raw has cooled, or is to be looked at again.
    pub(crate) fn is_cold_large(&self, cell: &Cell) -> bool {
        let is_old = match cell.access() {
            0 => {
                matches!(self.recheck, Recheck::AllRaw(_))
                    || self.concerns("string", cell.key(), cell.large().len())
            }
            1 => true,
            _ => self.at_once,
        };
        is_old && cell.large().len() >= self.params.min_size
    }

    /// Whether a settled string is to be looked at again, and why.
    pub(crate) fn reason(&self, store: &Store, cell: &Cell, is_packed: bool) -> Option<Reason> {
        if self.rechecks(store, cell, is_packed) {
            return Some(Reason::Recheck);
        }
        let len = if is_packed { raw_len(cell.bytes()) } else { cell.bytes().len() };
        let concerned = (is_packed || self.fits(cell)) && self.concerns("string", cell.key(), len);
        concerned.then_some(Reason::Policy)
    }

    /// Whether another policy may decide differently on a settled value.
    pub(crate) fn concerns(&self, kind: &str, key: &[u8], len: usize) -> bool {
        self.change.is_some_and(|change| change.concerns(kind, key, len, self.params.level))
    }

    /// What a value was settled by that is looked at again for this reason.
    pub(crate) fn settled_by(&self, reason: Reason) -> Option<Arc<Policy>> {
        let change = self.change.filter(|_| reason == Reason::Policy)?;
        change.from.clone()
    }

    fn rechecks(&self, store: &Store, cell: &Cell, is_packed: bool) -> bool {
        let since = match self.recheck {
            Recheck::Nothing => return false,
            Recheck::AllRaw(_) if !is_packed => return self.fits(cell),
            Recheck::AllRaw(since) | Recheck::NewerThan(since) => since,
        };
        if !is_packed && !self.fits(cell) {
            return false;
        }
        let family = store.families().of(cell.key());
        family.changed_since(since)
            && (!is_packed || dictionary_id(cell.bytes()) != family.dictionary_id())
    }
}

/// The codec of a packed form, for reports.
pub(crate) fn codec_name(form: &[u8]) -> &'static str {
    Header::read(form).map_or("damaged", |(header, _)| header.codec.name())
}
