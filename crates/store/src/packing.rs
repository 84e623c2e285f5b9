//! How strings are packed, and read while packed.
//!
//! ```text
//!  slot, locked          no lock held                       slot, locked
//!  bytes, copied out ──> Candidate ── Packer ──> Ready ──>  its form, installed
//! ```
//!
//! A form takes its place only if key and value are still what they were
//! ([`Batch::install`](crate::Batch::install)). Here that is told by the bytes: an
//! identity would cost 8 bytes in each of a million entries, and the form of some bytes
//! is right for the same bytes whoever wrote them. What has parts that change by
//! themselves is told by an identity (`pack/identity.rs`). Which strings, and when, is told by
//! `cooling.rs`; with what, by their family and the policy. A value that would not
//! save enough stays raw. What is too long for its entry is packed segment by
//! segment: see `large.rs`.
//!
//! A packed string is read through [`PackedStr`]: its length stands in its
//! header, its bytes are unpacked straight to where they are wanted, with a
//! workspace that each session makes when it first needs one (157 KiB).

use crate::cell::entry::{Cell, Payload};
use crate::pack::dictionaries::{Dictionaries, Pin};
use crate::pack::families::KeyFamily;
use crate::pack::form::{Damaged, PACK_MAX, dictionary_id, raw_len};
use crate::pack::saving::MinSaving;
use crate::policy;
use crate::slot::{Found, SlotGuard};
use crate::store::{Session, Store};
use crate::timing;
use crate::types::Type;
use foldhash::HashMap;
use snug_codec::packed::{self, Header};
use snug_codec::policy::{Choice, Policy};
use snug_codec::{Codec, Dictionary, NoDictionaries, UnpackError, Workspace, WorkspaceConfig};
use std::sync::Arc;
use std::time::Instant;

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
        self.session.store().noted(unpacked)
    }
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
    /// What must be saved, or a value stays raw.
    pub min_saving: MinSaving,
    /// The level where the policy names none.
    pub level: i32,
}

/// A value that has cooled, copied out of its entry.
#[derive(Debug)]
pub struct Candidate {
    pub(crate) db: usize,
    kind: Type,
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
    /// A copy of a cell's key and bytes, with a hold on the dictionary they need.
    pub(crate) fn of(store: &Store, db: usize, cell: &Cell, forced: bool) -> Self {
        let is_packed = cell.bits().is_packed_inline();
        let id = if is_packed { dictionary_id(cell.bytes()) } else { 0 };
        Self {
            db,
            kind: cell.type_of(),
            key: cell.key().to_vec(),
            bytes: cell.bytes().to_vec(),
            is_packed,
            _pin: store.families().dictionaries.pin(id),
            forced,
            settled_by: None,
        }
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The type of its value.
    pub fn kind(&self) -> Type {
        self.kind
    }

    /// Whether it is packed already, and is to be packed anew.
    pub fn is_packed(&self) -> bool {
        self.is_packed
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

    /// The codec of the packed form: where zstd was chosen, phrases perhaps.
    pub fn codec(&self) -> Codec {
        packed::codec(&self.form).unwrap_or(self.choice.codec)
    }

    /// What was chosen to pack it with.
    pub fn choice(&self) -> Choice {
        self.choice
    }

    fn raw(raw: &[u8], choice: Choice) -> Self {
        Self { form: raw.to_vec(), is_raw: true, choice, _pin: None }
    }
}

/// Packs candidates, one at a time, with no lock held. Its workspace is made for the
/// first of them.
#[derive(Debug, Default)]
pub struct Packer {
    workspace: Option<Workspace>,
    raw: Vec<u8>,
    /// What a packed form is unpacked to again.
    again: Vec<u8>,
    family: Option<Arc<KeyFamily>>,
    waits: bool,
    awaits: bool,
}

impl Packer {
    /// Whether values stay raw while their family's first dictionary, or a better one
    /// from more samples, is being trained, rather than be packed twice.
    pub fn wait_for_dictionaries(&mut self, wait: bool) {
        self.waits = wait;
    }

    /// Makes its workspace, if it has none.
    pub fn reserve(&mut self) {
        self.workspace.get_or_insert_with(|| Workspace::new(WorkspaceConfig::default()));
    }

    /// Gives back the memory that it works in; the next candidate takes it again.
    pub fn release(&mut self) {
        (self.workspace, self.raw, self.again) = (None, Vec::new(), Vec::new());
    }

    /// The raw bytes of the candidate packed last.
    pub fn raw<'p>(&'p self, candidate: &'p Candidate) -> &'p [u8] {
        if candidate.is_packed { &self.raw } else { &candidate.bytes }
    }

    /// The family of the candidate packed last.
    pub fn family(&self) -> Option<&Arc<KeyFamily>> {
        self.family.as_ref()
    }

    /// Whether the candidate packed last was left raw until a dictionary of its family
    /// has been trained.
    pub fn awaits_dictionary(&self) -> bool {
        self.awaits
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
        self.awaits = false;
        self.reserve();
        let workspace = self.workspace.as_mut()?;
        let raw = if candidate.is_packed {
            let id = dictionary_id(&candidate.bytes);
            let dictionary = families.dictionaries.get(id);
            self.raw.clear();
            let (form, raw) = (&candidate.bytes, &mut self.raw);
            let unpacked = workspace.unpack(form, &dictionary, raw, PACK_MAX);
            store.noted(unpacked.map_err(Damaged::from)).ok()?;
            &self.raw
        } else {
            &candidate.bytes
        };
        let edition = families.policy();
        let choose = |policy: &Policy| {
            let Candidate { kind, key, .. } = candidate;
            policy::choose(policy, *kind, key, (raw, raw), raw.len(), params.level)
        };
        let choice = choose(&edition.policy);
        let settled_by = candidate.settled_by.as_deref();
        if settled_by.is_some_and(|was| choose(was) == choice) {
            return None;
        }
        let family = self.family.insert(families.of(candidate.kind, &candidate.key));
        let may_wait = self.waits && !candidate.forced && !candidate.is_packed;
        self.awaits = may_wait && choice.codec == Codec::Zstd && family.awaits_dictionary();
        if self.awaits {
            return None;
        }
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
        workspace.pack(choice.codec, choice.level, dictionary, raw, &mut form).ok()?;
        if params.min_saving.keeps_all() && form.len() > PACK_MAX {
            return None;
        }
        // A dictionary that does not fit the workspace is not used.
        let pin = plan.pin.filter(|_| dictionary_id(&form) != 0);
        let worth = params.min_saving.is_met(raw.len(), form.len());
        family.tried(raw.len(), form.len(), worth);
        if !worth {
            let by_another = candidate.is_packed && candidate.codec() != Some(choice.codec);
            return by_another.then(|| Ready::raw(raw, choice));
        }
        let again = &mut self.again;
        if is_own(&form) && !comes_back(workspace, &form, plan.dictionary, raw, again) {
            store.observer().damaged(&"what was packed did not come back; it stays as it was");
            return None;
        }
        Some(Ready { form, is_raw: false, choice, _pin: pin })
    }
}

/// Whether a form is of the crate's own making: phrases, or zstd after runs were
/// decoded. It takes the place of the only copy there is, so it is unpacked once
/// before; the libraries' own forms are trusted.
fn is_own(form: &[u8]) -> bool {
    Header::read(form)
        .map_or(true, |(header, _)| header.codec == Codec::Phrases || header.recognised)
}

/// Whether a form unpacks to the raw bytes that it was made of. `room` is reused
/// memory. Some 3 us for phrases, beside 28 of packing.
fn comes_back(
    workspace: &mut Workspace,
    form: &[u8],
    dictionary: Option<Arc<Dictionary>>,
    raw: &[u8],
    room: &mut Vec<u8>,
) -> bool {
    room.clear();
    workspace.unpack(form, &dictionary, room, raw.len()).is_ok() && room == raw
}

impl SlotGuard<'_> {
    /// A raw string's copy, to be packed whatever its age. `None` if it is
    /// packed already, nothing that can be packed, or large (see
    /// [`large_job`](Self::large_job)).
    pub fn candidate(&self, found: Found) -> Option<Candidate> {
        let cell = self.cell(found);
        let store = self.session().store();
        cell.bits().is_raw_inline().then(|| Candidate::of(store, self.db(), cell, true))
    }

    /// Puts a packed form in the place of the value it was made of, if that is
    /// still there and, unless it was forced, still cold; whether it was.
    pub(crate) fn install(&mut self, found: Found, candidate: &Candidate, ready: &Ready) -> bool {
        let cell = self.cell(found);
        let (bits, form) = (cell.bits(), cell.form());
        let lies = if candidate.is_packed { bits.is_packed_inline() } else { bits.is_raw_inline() };
        let same = lies
            && cell.bytes() == candidate.bytes
            && (candidate.forced || candidate.is_packed || cell.access() == 0);
        if same {
            let becomes = if ready.is_raw { Some(form.unpacked()) } else { form.packed() };
            self.change(found, |cell| {
                cell.replace(cell.expiry(), Payload::Inline(becomes.unwrap_or(form), &ready.form));
                if !candidate.is_packed || ready.is_raw {
                    cell.set_access(0);
                }
            });
        }
        same
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Observer;
    use crate::StoreConfig;
    use crate::types::string::SET_PACKED;
    use std::fmt::Display;
    use std::sync::Mutex;

    /// Keeps what it is told of damage.
    #[derive(Clone, Debug, Default)]
    struct Told(Arc<Mutex<Vec<String>>>);

    impl Observer for Told {
        fn damaged(&self, why: &dyn Display) {
            self.0.lock().unwrap().push(why.to_string());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls into C")]
    fn damage_is_told_by_whoever_meets_it() {
        let (told, params) =
            (Told::default(), StringParams { min_size: 1, min_saving: MinSaving(0), level: 1 });
        let store = Store::new(StoreConfig::default(), Box::new(told.clone()));
        let mut session = store.session();
        let batch = session.enter(1);
        let key = batch.key(b"key");
        let mut slot = batch.lock(0, &key);
        let mut form = Vec::new();
        let raw = b"damage ".repeat(50);
        Workspace::new(WorkspaceConfig::default())
            .pack(Codec::Zstd, 1, None, &raw, &mut form)
            .unwrap();
        form.truncate(form.len() - 4);
        let found = slot.insert(
            &key,
            Cell::new(key.tag(), key.bytes, None, Payload::Inline(SET_PACKED, &form)),
        );
        let met = || std::mem::take(&mut *told.0.lock().unwrap());
        let read = slot.string(found).unwrap().to_bytes().map(|_| ());
        assert_eq!((met(), read.is_err()), (vec![read.unwrap_err().to_string()], true));
        assert!(slot.unpack(found).is_err());
        assert_eq!(met().len(), 1);
        let candidate = Candidate::of(&store, 0, slot.cell(found), false);
        assert!(Packer::default().pack(&store, &candidate, &params).is_none());
        assert_eq!(met().len(), 1);
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls into C")]
    fn what_does_not_come_back_is_seen() {
        let samples: Vec<Vec<u8>> = (0..400)
            .map(|n| {
                format!("{{\"name\":\"user {n}\",\"role\":\"reader\",\"n\":{}}}", n * 7)
                    .into_bytes()
            })
            .collect();
        let samples: Vec<&[u8]> = samples.iter().map(|sample| &sample[..]).collect();
        let dictionary = Dictionary::train_phrases(&samples, 4096, 1).unwrap().with_id(1);
        let dictionary = Arc::new(dictionary);
        let mut workspace = Workspace::new(WorkspaceConfig::default());
        let (mut form, mut room) = (Vec::new(), Vec::new());
        let raw = samples[3];
        workspace.pack(Codec::Zstd, 1, Some(&dictionary), raw, &mut form).unwrap();
        assert!(is_own(&form));
        let mut back = |form: &[u8], dictionary, raw: &[u8]| {
            comes_back(&mut workspace, form, dictionary, raw, &mut room)
        };
        assert!(back(&form, Some(Arc::clone(&dictionary)), raw));
        assert!(!back(&form, None, raw));
        assert!(!back(&form, Some(Arc::clone(&dictionary)), samples[4]));
        // Some bits of a form stand for nothing; one that differs in others is seen.
        let seen = (4..form.len()).filter(|&at| {
            let mut other = form.clone();
            other[at] ^= 1;
            !back(&other, Some(Arc::clone(&dictionary)), raw)
        });
        assert!(seen.count() > 0);
        let mut plain = Vec::new();
        Workspace::new(WorkspaceConfig::default())
            .pack(Codec::Zstd, 1, None, raw, &mut plain)
            .unwrap();
        assert!(!is_own(&plain));
    }
}
