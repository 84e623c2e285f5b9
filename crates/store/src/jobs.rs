//! Packing jobs: one machine for every piece of every type.
//!
//! ```text
//!  slot, locked         no lock held                             slot, locked
//!  Batch::job ───────>  Job: prepare ──> run, in slices ──────>  Batch::install ──> Outcome
//! ```
//!
//! A job takes effect only if its piece is still what it was: so anything may happen to
//! a value meanwhile, and a job that is dropped half way leaves nothing behind. What a
//! piece is, each type says for itself (`pack/piece.rs`); whoever drives jobs knows no
//! type, and counts by what the [`Outcome`] tells.

use crate::cell::entry::{Cell, Payload};
use crate::pack::families::KeyFamily;
use crate::pack::piece::{Fate, PieceJob, PieceParams, Plans, Ran, UNDECIDED, With};
use crate::packing::Short;
use crate::slot::{Found, SlotGuard, WRITTEN};
use crate::store::{Batch, Session, Store};
use crate::types::Type;
use crate::types::forms::{Asked, Back, FormRow, Installed};
use snug_codec::policy::{Choice, Policy};
use snug_codec::stream::{AtOnce, SomePace};
use snug_codec::{Codec, Workspace, mime};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

/// How much of its value a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it, in its entry.
    Entry,
    /// All of it, in a box: it may be of any length.
    Whole,
    /// One of many.
    Part,
}

/// What kind of piece a job is about, for those who count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The type of the value.
    pub kind: Type,
    /// How much of it.
    pub extent: Extent,
}

impl Piece {
    /// How many kinds there may be.
    pub const COUNT: usize = 2 * Type::ALL.len();

    /// Its number among them: those of one type in their entries are one, and those in
    /// boxes another.
    pub fn number(self) -> usize {
        2 * self.kind as usize + usize::from(self.extent != Extent::Entry)
    }

    /// Each name that pieces go by, with the [numbers](Self::number) that go by it.
    pub fn names() -> Vec<(&'static str, Vec<usize>)> {
        let mut names: Vec<(&'static str, Vec<usize>)> = Vec::new();
        for kind in Type::ALL {
            let (row, number) = (kind.row(), 2 * *kind as usize);
            let inline = row.forms.iter().any(FormRow::packs_inline);
            let boxed = row.forms.iter().any(FormRow::is_boxed);
            let inline = inline.then_some((row.name, number));
            let boxed = boxed.then_some((row.boxed_pieces, number + 1));
            for (name, number) in inline.into_iter().chain(boxed) {
                match names.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, numbers)) => numbers.push(number),
                    None => names.push((name, vec![number])),
                }
            }
        }
        names
    }
}

/// A piece of a value, taken to be packed away from all locks.
#[derive(Debug)]
pub struct Job {
    db: usize,
    key: Vec<u8>,
    kind: Type,
    /// The generation of dictionaries when it was taken.
    generation: u64,
    /// What the policy chose, and the family it is judged by, once it is prepared.
    choice: Choice,
    family: Option<Arc<KeyFamily>>,
    forced: bool,
    wants_dictionary: bool,
    /// The MIME type that was declared for its value, if one was.
    declared: Option<String>,
    work: Work,
    /// What came of it, once it has run.
    ran: Option<Ran>,
}

#[derive(Debug)]
enum Work {
    /// What lies in its entry. Not in a box: these are many, and a few microseconds each.
    Short(Short),
    Boxed(Box<dyn PieceJob>),
}

/// What came of a job.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it was about.
    pub piece: Piece,
    /// What became of that.
    pub fate: Fate,
    /// Bytes of it as it was held before: raw, or packed otherwise.
    pub held_bytes: usize,
    /// Bytes that went through the codec.
    pub raw_bytes: usize,
    /// What they were packed with.
    pub codec: Codec,
    /// Its level.
    pub level: i32,
    /// Their MIME type, where the type has such: what was declared, else what the bytes
    /// tell.
    pub mime: Option<Cow<'static, str>>,
    /// The family that has learnt from it, which may be due to be trained.
    pub family: Option<Arc<KeyFamily>>,
}

impl Outcome {
    /// Bytes that it has saved.
    pub fn saved(&self) -> usize {
        match self.fate {
            Fate::Packed(bytes) => self.held_bytes.saturating_sub(bytes),
            _ => 0,
        }
    }
}

impl Job {
    /// All of a value in its entry: raw, or packed to be packed anew.
    pub(crate) fn short(store: &Store, db: usize, cell: &Cell, forced: bool) -> Self {
        let short = Work::Short(Short::of(store, cell, forced));
        Self::new(store, db, cell, forced, short)
    }

    fn new(store: &Store, db: usize, cell: &Cell, forced: bool, work: Work) -> Self {
        Self {
            db,
            key: cell.key().to_vec(),
            kind: cell.type_of(),
            generation: store.families().generation(),
            choice: UNDECIDED,
            family: None,
            forced,
            wants_dictionary: false,
            declared: None,
            work,
            ran: None,
        }
    }

    /// For a short one that is looked at again for another policy's sake alone: by what
    /// it was settled.
    pub(crate) fn settled_by(&mut self, policy: Option<Arc<Policy>>) {
        if let Work::Short(short) = &mut self.work {
            short.settled_by = policy;
        }
    }

    /// The database of its value.
    pub fn db(&self) -> usize {
        self.db
    }

    /// The key of its value.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// What it is about.
    pub fn piece(&self) -> Piece {
        let extent = match &self.work {
            Work::Short(_) => Extent::Entry,
            Work::Boxed(piece) if piece.is_whole() => Extent::Whole,
            Work::Boxed(_) => Extent::Part,
        };
        Piece { kind: self.kind, extent }
    }

    /// Whether it is about packing, and not about unpacking.
    pub fn packs(&self) -> bool {
        match &self.work {
            Work::Short(_) => true,
            Work::Boxed(piece) => piece.packs(),
        }
    }

    /// Whether both are about the same piece of the same key's value.
    pub fn is_same(&self, other: &Self) -> bool {
        let (Work::Boxed(one), Work::Boxed(another)) = (&self.work, &other.work) else {
            return false;
        };
        (self.db, &self.key) == (other.db, &other.key) && one.is_same(&**another)
    }

    /// Bytes of the piece, unpacked; of a short one that was packed, once it is
    /// prepared.
    pub fn raw_bytes(&self) -> usize {
        match &self.work {
            Work::Short(short) => short.raw().len(),
            Work::Boxed(piece) => piece.raw_bytes(),
        }
    }

    fn held_bytes(&self) -> usize {
        match &self.work {
            Work::Short(short) => short.held_bytes(),
            Work::Boxed(piece) => piece.raw_bytes(),
        }
    }

    /// Whether its value wants a dictionary of its own trained, once it is prepared: see
    /// [`Batch::training_due`].
    pub fn wants_dictionary(&self) -> bool {
        self.wants_dictionary
    }

    /// What the policy chose for it, once it is prepared.
    pub(crate) fn choice(&self) -> Choice {
        self.choice
    }

    /// Decides what it is packed with: by the policy in force, the family of its key
    /// and that family's dictionary. To be called once; a short one that was packed is
    /// unpacked for that, with this workspace or the session's own, so that no lock
    /// should be held.
    pub fn prepare(
        &mut self,
        session: &Session,
        params: &PieceParams,
        workspace: Option<&mut Workspace>,
    ) {
        let (kind, key, declared) = (self.kind, &self.key[..], self.declared.as_deref());
        let piece = match &mut self.work {
            Work::Short(short) => {
                (self.choice, self.family) =
                    short.prepare((session, workspace), (kind, key, declared), params);
                return;
            }
            Work::Boxed(piece) => piece,
        };
        let families = session.store().families();
        let edition = families.policy();
        if piece.packs() {
            let (ends, len) = piece.subject();
            self.choice = edition.choose((kind, key), (declared, ends), len, params.level);
        }
        // With any other codec a dictionary is of no use.
        self.wants_dictionary &= params.dictionary_bytes > 0 && self.choice.codec == Codec::Zstd;
        piece.prepare(&Plans {
            params,
            edition: edition.number,
            choice: self.choice,
            families,
            family: &|| families.of(kind, key),
            forced: self.forced,
        });
    }

    /// Does it, in slices of about `slice_ns`; a short one in one piece. `room` is
    /// reused memory. What is dropped half way leaves nothing behind.
    pub async fn run(
        &mut self,
        workspace: &mut Workspace,
        room: &mut Vec<u8>,
        pace: SomePace,
        slice_ns: u64,
    ) {
        self.ran = Some(match &mut self.work {
            Work::Short(short) => short.run(workspace, room),
            Work::Boxed(piece) => piece.run(With { workspace, room, pace, slice_ns }).await,
        });
    }

    /// Does it at once.
    pub fn run_at_once(&mut self, workspace: &mut Workspace, room: &mut Vec<u8>) {
        match &mut self.work {
            Work::Short(short) => self.ran = Some(short.run(workspace, room)),
            Work::Boxed(_) => {
                AtOnce::run(self.run(workspace, room, SomePace::of(AtOnce), u64::MAX));
            }
        }
    }

    /// The MIME type of its bytes, where they are a file's.
    fn mime(&self) -> Option<Cow<'static, str>> {
        if !self.kind.row().has_mime {
            return None;
        }
        if let Some(declared) = &self.declared {
            return Some(declared.clone().into());
        }
        let (front, back) = match &self.work {
            Work::Short(short) => (short.raw(), short.raw()),
            Work::Boxed(piece) => piece.subject().0,
        };
        mime::sniff_ends(front, back).map(Cow::Borrowed)
    }
}

/// How somebody goes through the pieces of a large collection, to pack or to unpack them
/// now: what is in the way already is passed over. It ends, for each piece is behind the
/// one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PieceWalk {
    unpacks: bool,
    /// Items in front of what comes next.
    at: std::cell::Cell<usize>,
}

impl PieceWalk {
    /// A walk that goes on at the item `at`.
    pub fn new(unpacks: bool, at: usize) -> Self {
        Self { unpacks, at: std::cell::Cell::new(at) }
    }

    /// Where it goes on.
    pub fn at(&self) -> usize {
        self.at.get()
    }

    pub(crate) fn goes_on_at(&self, at: usize) {
        self.at.set(at);
    }

    /// Whether it unpacks what is packed.
    pub(crate) fn unpacks(&self) -> bool {
        self.unpacks
    }
}

/// What is to be done with a boxed value as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whole {
    /// It has cooled: pack it.
    Pack,
    /// It is read often: unpack it.
    Unpack,
}

/// A boxed value that is to be packed or unpacked as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    db: usize,
    key: Vec<u8>,
    wish: Whole,
}

/// Names that wait for their turn, a bounded number of them; the values are not held.
#[derive(Debug, Default)]
pub struct Names(VecDeque<Name>);

/// Names that wait at most; what finds no room is met again by the next pass.
const NAMES_MAX: usize = 64;

impl Names {
    /// The next.
    pub fn pop(&mut self) -> Option<Name> {
        self.0.pop_front()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the name of a value to be packed; whether there was room.
    pub(crate) fn push_to_pack(&mut self, db: usize, key: &[u8]) -> bool {
        self.push(db, key, Whole::Pack)
    }

    /// Adds the name of a value to be unpacked; whether there was room.
    pub(crate) fn push_to_unpack(&mut self, db: usize, key: &[u8]) -> bool {
        self.push(db, key, Whole::Unpack)
    }

    fn push(&mut self, db: usize, key: &[u8], wish: Whole) -> bool {
        let room = self.0.len() < NAMES_MAX;
        if room && !self.0.iter().any(|name| name.db == db && name.key == key) {
            self.0.push_back(Name { db, key: key.to_vec(), wish });
        }
        room
    }
}

impl Batch<'_> {
    /// Takes the next piece of a value that is to be packed, and prepares it; none if
    /// there is nothing to do.
    pub fn job(&self, db: usize, name: &[u8], params: &PieceParams) -> Option<Job> {
        self.taken(db, name, params, false).map(|job| self.prepared(job, params))
    }

    /// Takes a value that was named, and prepares it, if it still is to be worked on.
    pub fn named_job(&self, name: &Name, params: &PieceParams) -> Option<Job> {
        // One that was named to be unpacked may have cooled since, and still is to
        // be: read often, or packed by another policy.
        let job = self.taken(name.db, &name.key, params, name.wish == Whole::Unpack)?;
        let is_it = job.packs() == (name.wish == Whole::Pack);
        is_it.then(|| self.prepared(job, params))
    }

    fn taken(&self, db: usize, name: &[u8], params: &PieceParams, forced: bool) -> Option<Job> {
        let key = self.key(name);
        let mut slot = self.lock(db, &key);
        let found = slot.find_entry(&key)?;
        slot.job(found, params, forced)
    }

    /// Asks the observer for the MIME type that was declared for a job's value, which
    /// counts for more than what its bytes look like. To be called before the job is
    /// prepared. Asks nothing of a job that unpacks, and nothing while slots are held: the
    /// answer may lie in another slot.
    pub fn declare(&self, job: &mut Job) {
        if job.kind.row().has_mime && job.packs() && !self.is_held() {
            job.declared = self.store().observer().declared(self, job.db, &job.key);
        }
    }

    /// [Prepares](Job::prepare) a job that was taken.
    pub fn prepared(&self, mut job: Job, params: &PieceParams) -> Job {
        self.declare(&mut job);
        job.prepare(self.session(), params, None);
        job
    }

    /// Puts what came of a job in the place of its piece, if that is still there as it
    /// was taken; has the family learn from it, and tells of damage. Does so once.
    pub fn install(&self, job: &mut Job) -> Outcome {
        let (store, ran) = (self.store(), job.ran.take().unwrap_or_default());
        let family = ran.lesson.map(|lesson| lesson.teach(store.families()));
        if let Some(damage) = &ran.damage {
            store.observer().damaged(damage);
        }
        let piece = job.piece();
        let fate = match ran.came {
            Fate::Nothing | Fate::Awaits => ran.came,
            // Only what has more pieces has to know which were tried.
            Fate::NotWorth if piece.extent != Extent::Part => ran.came,
            Fate::Packed(_) | Fate::Unpacked | Fate::NotWorth if self.give_back(job) => ran.came,
            Fate::Packed(_) | Fate::Unpacked | Fate::NotWorth => Fate::Nothing,
        };
        let has_gone_through = matches!(fate, Fate::Packed(_) | Fate::NotWorth);
        Outcome {
            piece,
            fate,
            held_bytes: job.held_bytes(),
            raw_bytes: ran.raw_bytes,
            codec: ran.codec.unwrap_or(job.choice.codec),
            level: job.choice.level,
            mime: if has_gone_through { job.mime() } else { None },
            family: family.or_else(|| job.family.take()),
        }
    }

    fn give_back(&self, job: &mut Job) -> bool {
        let name = std::mem::take(&mut job.key);
        let key = self.key(&name);
        let mut slot = self.lock(job.db, &key);
        let given = match slot.find_entry(&key) {
            Some(found) => slot.give_back(found, job),
            None => false,
        };
        drop(slot);
        job.key = name;
        given
    }
}

impl SlotGuard<'_> {
    /// Whether the value is packed piece by piece, and never as a whole.
    pub fn is_in_parts(&self, found: Found) -> bool {
        self.cell(found).value().is_in_parts()
    }

    /// Whether the value is a large collection: its pages are packed one by one.
    pub fn cools_in_parts(&self, found: Found) -> bool {
        self.cell(found).value().cools_in_parts()
    }

    /// The next piece of a value that is to be packed, or all of one that is to be packed
    /// or unpacked as a whole; one that is `forced` whatever its age and what it looks
    /// like. To be [prepared](Job::prepare) when the slot is free again.
    pub fn job(&mut self, found: Found, params: &PieceParams, forced: bool) -> Option<Job> {
        let (store, db) = (self.session().store(), self.db());
        let cell = self.cell(found);
        if !cell.bits().is_boxed() {
            let packs = forced && cell.bits().is_raw_inline();
            return packs.then(|| Job::short(store, db, cell, forced));
        }
        let access = cell.access();
        self.boxed_job(found, &Asked { params, access, forced, walk: None })
    }

    /// The next piece of a large collection that a walk comes to; none at its end, and of
    /// values that have no pages. To be [prepared](Job::prepare) when the slot is free
    /// again.
    pub fn walked(&mut self, found: Found, params: &PieceParams, walk: &PieceWalk) -> Option<Job> {
        let access = self.access(found);
        if !self.cools_in_parts(found) {
            return None;
        }
        self.boxed_job(found, &Asked { params, access, forced: true, walk: Some(walk) })
    }

    fn boxed_job(&mut self, found: Found, asked: &Asked<'_>) -> Option<Job> {
        let (store, db, forced) = (self.session().store(), self.db(), asked.forced);
        let learner = self.cell_mut(found).value_mut()?.learner();
        let wants_dictionary = learner.is_some_and(|learner| learner.wants_dictionary());
        let piece = self.change(found, |cell| cell.value_mut()?.next_job(asked))?;
        let job = Job::new(store, db, self.cell(found), forced, Work::Boxed(piece));
        Some(Job { wants_dictionary, ..job })
    }

    /// Gives a piece back to the value of its key, with what came of it; whether that
    /// took it.
    pub fn give_back(&mut self, found: Found, job: &mut Job) -> bool {
        let (kind, key) = (job.kind, self.key(found));
        let piece = match &mut job.work {
            Work::Short(short) => return self.install_short(found, short),
            Work::Boxed(piece) => piece,
        };
        let families = self.session().store().families();
        let new = families.generation() != job.generation && !piece.is_whole();
        let new = new.then(|| families.of(kind, &key).dictionary_id());
        let new_dictionary = new.filter(|&id| id != 0);
        let back = Back { access: self.access(found), forced: job.forced, new_dictionary };
        self.change(found, |cell| {
            let Some(value) = cell.value_mut() else { return false };
            match value.install(&mut **piece, &back) {
                Installed::Not => false,
                Installed::Here => true,
                Installed::As(owned) => {
                    let is_packed = owned.form().bits().is_packed();
                    cell.replace(cell.expiry(), Payload::Boxed(owned));
                    cell.set_access(if is_packed { 0 } else { cell.access().max(WRITTEN) });
                    true
                }
            }
        })
    }
}
