//! How what lies in its entry is packed, and read while packed.
//!
//! Its piece is all of it ([`Short`]): copied out of the entry when it has cooled, and
//! back in its place only if key and value are still what they were. That is told by the
//! bytes: an identity would cost 8 bytes in each of a million entries, and the form of
//! some bytes is right for the same bytes whoever wrote them. What has parts that change
//! by themselves is told by an identity (`pack/identity.rs`). Which values, and when, is
//! told by `cooling.rs`; with what, by their family and the policy; by whom, in
//! `jobs.rs`. A value that would not save enough stays raw. A string that is too long for
//! its entry is packed segment by segment: see `large.rs`.
//!
//! A packed string is read through [`PackedStr`]: its length stands in its
//! header, its bytes are unpacked straight to where they are wanted, with a
//! workspace that each session makes when it first needs one (157 KiB).

use crate::cell::entry::{Cell, Payload};
use crate::pack::dictionaries::{Dictionaries, HeldDictionary, Pin};
use crate::pack::families::KeyFamily;
use crate::pack::form::{Damaged, PACK_MAX, dictionary_id, raw_len};
use crate::pack::piece::{Damage, Fate, PieceParams, Ran, UNDECIDED};
use crate::pack::recipe::{Made, Recipe};
use crate::policy;
use crate::slot::{Found, SlotGuard};
use crate::store::{Session, Store};
use crate::timing;
use crate::types::Type;
use foldhash::HashMap;
use snug_codec::packed;
use snug_codec::policy::{Choice, Policy};
use snug_codec::{Codec, Dictionary, NoDictionaries, UnpackError, Workspace};
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

    /// The packed form itself.
    pub fn form(&self) -> &[u8] {
        self.form
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

/// A value that lies in its entry, copied out of it to be packed as one piece.
#[derive(Debug)]
pub(crate) struct Short {
    /// As it was held: raw, or a packed form that is to be packed anew.
    bytes: Vec<u8>,
    is_packed: bool,
    /// Bytes that lie beside it in its entry.
    beside: usize,
    /// What that packed form unpacks to.
    raw: Vec<u8>,
    /// Keeps the dictionary of that form.
    _pin: Option<Pin>,
    /// To be packed whatever its age and its family.
    forced: bool,
    /// What it was settled by, if it is looked at again for another policy's sake
    /// and nothing else.
    pub(crate) settled_by: Option<Arc<Policy>>,
    next: Next,
}

/// What is to be done with a short value, and then what was.
#[derive(Debug)]
enum Next {
    /// Nothing has been decided.
    Undecided,
    /// To be packed so.
    Pack(Recipe),
    /// It stays as it is, for this reason.
    Stay(Fate),
    /// This is to take its place: its packed form, with what keeps the dictionary of
    /// that until the slot refers to it; or its raw bytes.
    Packed {
        form: Vec<u8>,
        _held: Option<HeldDictionary>,
    },
    Raw,
}

impl Short {
    /// A copy of a cell's bytes, with a hold on the dictionary they need.
    pub(crate) fn of(store: &Store, cell: &Cell, forced: bool) -> Self {
        let is_packed = cell.bits().is_packed_inline();
        let id = if is_packed { dictionary_id(cell.bytes()) } else { 0 };
        Self {
            bytes: cell.bytes().to_vec(),
            is_packed,
            beside: cell.bytes_beside(),
            raw: Vec::new(),
            _pin: store.families().dictionaries.pin(id),
            forced,
            settled_by: None,
            next: Next::Undecided,
        }
    }

    /// Bytes of the value as it was held: raw, or its packed form.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Its raw bytes; of one that was packed, once it is prepared.
    pub(crate) fn raw(&self) -> &[u8] {
        if self.is_packed { &self.raw } else { &self.bytes }
    }

    /// The codec that was chosen for the form that it has, if it is packed:
    /// phrases are a kind of dictionary, and arrays taken apart a look of values, both used
    /// where zstd was chosen.
    fn codec(&self) -> Option<Codec> {
        let codec = packed::codec(&self.bytes).ok().filter(|_| self.is_packed)?;
        let by_zstd = matches!(codec, Codec::Phrases | Codec::Planes);
        Some(if by_zstd { Codec::Zstd } else { codec })
    }

    /// Whether it is packed with this codec and this dictionary already.
    fn is_packed_with(&self, codec: Codec, dictionary: Option<&Dictionary>) -> bool {
        let id = dictionary.map(Dictionary::id);
        self.codec() == Some(codec) && id.is_some_and(|id| id == dictionary_id(&self.bytes))
    }

    /// What became of one that is left as it is: raw bytes were not worth it.
    fn left(&self) -> Fate {
        if self.is_packed { Fate::Nothing } else { Fate::NotWorth }
    }

    /// Decides what it is packed with; what the policy chose, and the family it went by
    /// if it came to that.
    pub(crate) fn prepare(
        &mut self,
        (session, workspace): (&Session, Option<&mut Workspace>),
        of: (Type, &[u8], Option<&str>),
        params: &PieceParams,
    ) -> (Choice, Option<Arc<KeyFamily>>) {
        let mut chosen = (UNDECIDED, None);
        if self.is_packed && !self.unpack(session, workspace) {
            self.next = Next::Stay(Fate::Nothing);
            return chosen;
        }
        self.next = self.decide(session.store(), of, params, &mut chosen);
        chosen
    }

    /// Unpacks the form that it has; whether it could.
    fn unpack(&mut self, session: &Session, workspace: Option<&mut Workspace>) -> bool {
        let (form, raw) = (&self.bytes, &mut self.raw);
        let dictionaries = &session.store().families().dictionaries;
        let unpacked = match workspace {
            Some(workspace) => {
                let dictionary = dictionaries.get(dictionary_id(form));
                let unpacked = workspace.unpack(form, &dictionary, raw, PACK_MAX);
                unpacked.map_err(Damaged::from)
            }
            None => session.unpacker().unpack(dictionaries, form, raw),
        };
        session.store().noted(unpacked).is_ok()
    }

    fn decide(
        &mut self,
        store: &Store,
        (kind, key, declared): (Type, &[u8], Option<&str>),
        params: &PieceParams,
        chosen: &mut (Choice, Option<Arc<KeyFamily>>),
    ) -> Next {
        let families = store.families();
        let raw = self.raw();
        let edition = families.policy();
        let choose = |policy: &Policy| {
            policy::choose(policy, (kind, key), (declared, (raw, raw)), raw.len(), params.level)
        };
        let choice = choose(&edition.policy);
        chosen.0 = choice;
        let settled_by = self.settled_by.as_deref();
        if settled_by.is_some_and(|was| choose(was) == choice) {
            return Next::Stay(self.left());
        }
        let claim = families.claim(kind, key, raw);
        chosen.1 = Some(Arc::clone(&claim.learner));
        let may_wait = params.awaits_dictionaries && !self.forced;
        if may_wait && choice.codec == Codec::Zstd && claim.awaits_dictionary() {
            return Next::Stay(Fate::Awaits);
        }
        let Some(plan) = claim.plan(families, raw, self.forced, edition.number, choice) else {
            let to_be_raw = self.is_packed && choice.codec == Codec::None;
            return if to_be_raw { Next::Raw } else { Next::Stay(self.left()) };
        };
        let dictionary = plan.held.as_ref().map(|held| &**held.dictionary());
        if self.is_packed_with(choice.codec, dictionary) {
            // The level is the dictionary's; with another level comes another.
            return Next::Stay(self.left());
        }
        let recipe = Recipe::new(claim.family, choice, params.min_saving, plan);
        Next::Pack(recipe.in_entry(self.beside))
    }

    /// Packs it, in one piece: some microseconds for each KiB.
    pub(crate) fn run(&mut self, workspace: &mut Workspace, room: &mut Vec<u8>) -> Ran {
        let mut damage = None;
        match std::mem::replace(&mut self.next, Next::Undecided) {
            Next::Pack(recipe) => {
                let by_another = self.is_packed && self.codec() != Some(recipe.choice().codec);
                self.next = match recipe.pack(workspace, self.raw(), room) {
                    Made::Packed { form, held } => Next::Packed { form, _held: held },
                    Made::NotWorth if by_another => Next::Raw,
                    Made::NotWorth | Made::Impossible => Next::Stay(self.left()),
                    Made::NotBack => {
                        damage = Some(Damage::NotBack);
                        Next::Stay(self.left())
                    }
                };
            }
            next => self.next = next,
        }
        let (came, codec) = match &self.next {
            Next::Packed { form, .. } => (Fate::Packed(form.len()), packed::codec(form).ok()),
            Next::Raw => (Fate::Unpacked, None),
            Next::Stay(fate) => (*fate, None),
            Next::Undecided | Next::Pack(_) => (Fate::Nothing, None),
        };
        Ran { raw_bytes: self.raw().len(), came, codec, damage, ..Ran::default() }
    }
}

impl SlotGuard<'_> {
    /// Puts what came of a short value in its place, if that still holds the same bytes
    /// and, unless it was forced, is still cold; whether it was.
    pub(crate) fn install_short(&mut self, found: Found, short: &Short) -> bool {
        let cell = self.cell(found);
        let (bits, form) = (cell.bits(), cell.form());
        if bits.is_away() {
            return false;
        }
        let lies = if short.is_packed { bits.is_packed_inline() } else { bits.is_raw_inline() };
        let same = lies
            && cell.bytes() == short.bytes
            && (short.forced || short.is_packed || cell.access() == 0);
        let (becomes, bytes) = match &short.next {
            Next::Packed { form: packed, .. } => (form.packed().unwrap_or(form), &packed[..]),
            Next::Raw => (form.unpacked(), short.raw()),
            Next::Undecided | Next::Pack(_) | Next::Stay(_) => return false,
        };
        if same {
            self.change(found, |cell| {
                cell.replace(cell.expiry(), Payload::Inline(becomes, bytes));
                if !short.is_packed || matches!(short.next, Next::Raw) {
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
    use crate::MinSaving;
    use crate::Observer;
    use crate::StoreConfig;
    use crate::types::string::SET_PACKED;
    use snug_codec::WorkspaceConfig;
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
        let (told, params) = (
            Told::default(),
            PieceParams { min_size: 1, min_saving: MinSaving(0), level: 1, ..PieceParams::DEFAULT },
        );
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
        let mut short = Short::of(&store, slot.cell(found), false);
        drop(slot);
        short.prepare((&store.session(), None), (Type::String, b"key", None), &params);
        assert!(matches!(short.next, Next::Stay(Fate::Nothing)));
        assert_eq!(met().len(), 1);
    }
}
