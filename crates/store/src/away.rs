//! The disk tier: values that are on disk, and how they go there and come back.
//!
//! ```text
//!  slot, locked             no lock held                    slot, locked
//!  gather: copies of what    write all of them, and sync     put_away: each entry that
//!  is coldest             ─> (snug-tier)                  ─> still holds the very bytes
//!                                                            has where they are instead
//!
//!  entry    | form: 1 | place | length | raw length | dictionary or notes | sum: 4 |
//!
//!  a lookup of it            read, compare the sum           put: if it is still there
//! ```
//!
//! What is away is one more form of a value (`types/forms.rs`): key, expiry, type, length
//! and place stay in memory, some 15 bytes of value, and its bytes lie on disk as they lay
//! in the entry, packed if they were packed, so that coming back takes no codec. What lies
//! in a box goes and comes as a whole, as one record of what it writes itself as
//! (`away/record.rs`), its pieces packed as they were. A record
//! knows nothing of its key: so a key may be renamed, moved, copied and swapped without
//! a look at the disk, and what refers to a record is counted like a dictionary's
//! references, with everything else about an entry (`books/weight.rs`). A copy that is in
//! no slot, such as a snapshot's, holds a reference of its own ([`Held`]).
//!
//! A lookup that is about a value ([`SlotGuard::find`], [`SlotGuard::find_untouched`])
//! never gives one that is on disk: it is read first, and the thread blocks for as long.
//! A worker's thread must not: for a command that only reads, it has lookups note what
//! they meet and find nothing ([`Batch::note_away`]), gives the command up, and has it
//! executed again once other threads have brought what it needs ([`Session::bring`]).
//! Lookups that are not about values ([`SlotGuard::find_entry`]) find what is there.
//!
//! What cannot be read back is an error for its key ([`Lost`]): it stays where it is, and
//! reads as damaged. A value leaves memory only when it is on disk and synced; until then
//! a disk that is full or failing costs nothing but the attempt.
//!
//! What goes: values in their entries, raw or packed, of [`AWAY_MIN`] bytes or more, and
//! values in boxes up to [`AWAY_MAX`]. What does not: integers; what is larger, since it
//! comes back as a whole whatever of it is wanted; hashes of which fields expire, since the
//! sweeper has to find these.

mod record;
mod transit;

use crate::cell::entry::{Cell, Payload};
use crate::cell::table::Mark;
use crate::eviction::{Eviction, Lying, Order};
use crate::hash::SLOTS;
use crate::pack::dictionaries::{Dictionaries, Pin};
use crate::pack::form;
use crate::slot::{Found, SlotGuard};
use crate::store::{Batch, Counter, Session, Store};
use crate::types::forms::{Form, Owned};
use record::{Disk, Needs};
use snug_codec::varint;
use snug_tier::{Engine, Place, Purpose, sum};
use std::cell::{Cell as StdCell, RefCell};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use transit::Note;
pub(crate) use transit::Transit;

/// Values of fewer bytes stay: an entry that refers to the disk has some 15 of its own.
pub const AWAY_MIN: usize = 64;

/// Values in boxes that take more memory stay.
pub const AWAY_MAX: usize = 16 << 20;

/// Bytes of records that are moved at once, about.
const MOVED_AT_ONCE: usize = 4 << 20;

/// Cells looked at in one slot.
const LOOKS_AT_ONCE: usize = 64;
/// Slots drawn by one call that gathers.
const DRAWS_MAX: usize = 512;
/// Cells walked under one hold of a slot's lock.
const WALK_AT_ONCE: usize = 128;

/// The disk tier of a store: an engine, once there is one.
#[derive(Debug, Default)]
pub struct Tier {
    disk: OnceLock<Arc<Disk>>,
    /// Values in boxes that are on their way there.
    pub(crate) transit: Transit,
    /// Whether a value was ever away: until then nobody needs to look.
    in_use: AtomicBool,
    /// Values brought back, and those that could not be.
    brought: AtomicU64,
    lost: AtomicU64,
    /// Values that have gone.
    left: AtomicU64,
}

impl Tier {
    /// Gives the tier its engine. Once.
    pub fn set_engine(&self, engine: Arc<dyn Engine>) {
        let _ = self.disk.set(Arc::new(Disk::new(engine)));
    }

    /// The engine, if there is one.
    #[inline]
    pub fn engine(&self) -> Option<&Arc<dyn Engine>> {
        self.disk.get().map(|disk| &disk.engine)
    }

    fn disk(&self) -> Option<&Arc<Disk>> {
        self.disk.get()
    }

    /// Whether a value was ever away. One load.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.in_use.load(Relaxed)
    }

    /// Values that have gone to disk since the start, that have come back, and that could
    /// not.
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.left.load(Relaxed), self.brought.load(Relaxed), self.lost.load(Relaxed))
    }
}

impl Store {
    /// Values on disk, their bytes there, and what they would be unpacked.
    pub fn away(&self) -> (u64, u64, u64) {
        (self.sum(Counter::Away), self.sum(Counter::AwayBytes), self.sum(Counter::AwayRaw))
    }

    /// Counts and tells of what could not be read back.
    pub(crate) fn noted_lost<T>(&self, done: Result<T, Lost>) -> Result<T, Lost> {
        done.inspect_err(|lost| {
            self.tier().lost.fetch_add(1, Relaxed);
            self.observer().damaged(lost);
        })
    }
}

/// A value that is on disk cannot be read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    key: Vec<u8>,
    why: String,
}

impl std::error::Error for Lost {}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, why } = self;
        write!(f, "the value of '{}' cannot be read back from disk: {why}", key.escape_ascii())
    }
}

/// What an entry has of a value that is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Away {
    /// The form that it has in memory.
    home: Form,
    place: Place,
    /// Bytes on disk.
    pub(crate) len: u32,
    /// Bytes once unpacked.
    pub(crate) raw: u32,
    /// Of what lies in its entry: the dictionary that it is packed with, 0 for none. Of
    /// what lies in a box: what is noted to tell its encoding by.
    beside: u32,
    sum: u32,
}

impl Away {
    /// Where the value of an entry is, if it is on disk.
    pub(crate) fn of(cell: &Cell) -> Option<Self> {
        if !cell.bits().is_away() {
            return None;
        }
        let (first, mut rest) = cell.bytes().split_first()?;
        let mut next = || varint::take(&mut rest);
        let (place, len, raw, beside) = (next()?, next()?, next()?, next()?);
        Some(Self {
            home: Form::of_away_byte(*first).home(),
            place,
            len: len as u32,
            raw: raw as u32,
            beside: beside as u32,
            sum: u32::from_le_bytes(rest.try_into().ok()?),
        })
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(24);
        bytes.push(self.home.away_byte());
        for number in [self.place, self.len.into(), self.raw.into(), self.beside.into()] {
            varint::push(&mut bytes, number);
        }
        bytes.extend_from_slice(&self.sum.to_le_bytes());
        bytes
    }

    pub(crate) fn home(&self) -> Form {
        self.home
    }

    /// The dictionary that it is packed with, if it lay in its entry; 0 for none.
    pub(crate) fn dictionary(&self) -> u32 {
        if self.home.is_boxed() { 0 } else { self.beside }
    }

    /// What is noted of a value in a box to tell its encoding by.
    pub(crate) fn notes(&self) -> Option<u8> {
        self.home.is_boxed().then_some(self.beside as u8)
    }

    /// Whether it is packed as a whole.
    pub(crate) fn is_packed(&self) -> bool {
        self.home.bits().is_packed()
    }

    /// Counts an entry that refers to it, or no longer does.
    pub(crate) fn count(&self, times: i64, store: &Store) {
        store.count(Counter::Away, times);
        store.count(Counter::AwayBytes, times * i64::from(self.len));
        store.count(Counter::AwayRaw, times * i64::from(self.raw));
        if let Some(disk) = store.tier().disk() {
            match times > 0 {
                true => disk.retain(self.home, self.place, self.len),
                false => disk.release(self.home, self.place, self.len),
            }
        }
    }

    fn read(&self, engine: &dyn Engine, key: &[u8]) -> Result<Vec<u8>, Lost> {
        let lost = |why| Lost { key: key.to_vec(), why };
        let bytes = engine.read(self.place, self.len as usize).map_err(|e| lost(e.to_string()))?;
        match sum(&bytes) == self.sum && bytes.len() == self.len as usize {
            true => Ok(bytes),
            false => Err(lost("its bytes are not those that were written".into())),
        }
    }
}

/// Keeps a record on disk while no slot may refer to it.
#[derive(Debug)]
pub(crate) struct Held {
    away: Away,
    disk: Arc<Disk>,
    dictionaries: Arc<Dictionaries>,
}

impl Held {
    /// Of a value on disk, that.
    #[inline]
    pub(crate) fn of(cell: &Cell, store: &Store) -> Option<Self> {
        if cell.bits().is_away() { Self::new(Away::of(cell)?, store) } else { None }
    }

    fn new(away: Away, store: &Store) -> Option<Self> {
        let disk = store.tier().disk()?;
        disk.retain(away.home, away.place, away.len);
        Some(Self::taken(away, disk, store))
    }

    /// Takes over the reference that is there.
    fn taken(away: Away, disk: &Arc<Disk>, store: &Store) -> Self {
        let dictionaries = Arc::clone(&store.families().dictionaries);
        Self { away, disk: Arc::clone(disk), dictionaries }
    }

    /// The bytes on disk. The thread may block.
    fn record(&self, key: &[u8]) -> Result<Vec<u8>, Lost> {
        self.away.read(&*self.disk.engine, key)
    }

    /// The value, as this key had it in memory. The thread may block.
    pub(crate) fn read(&self, key: &[u8]) -> Result<Home, Lost> {
        let (record, form) = (self.record(key)?, self.away.home);
        if !form.is_boxed() {
            return Ok(Home::Entry(form, record));
        }
        let value = record::read(form, &record, &self.dictionaries);
        value.map(Home::Box).map_err(|error| Lost { key: key.to_vec(), why: error.to_string() })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.disk.release(self.away.home, self.away.place, self.away.len);
    }
}

/// A value that was read back from disk.
#[derive(Debug)]
pub(crate) enum Home {
    /// It lies in its entry, in this form.
    Entry(Form, Vec<u8>),
    Box(Owned),
}

impl Home {
    /// Gives it on, to be put into an entry.
    pub(crate) fn put<R>(self, put: impl FnOnce(Payload<'_>) -> R) -> R {
        match self {
            Self::Entry(form, bytes) => put(Payload::Inline(form, &bytes)),
            Self::Box(value) => put(Payload::Boxed(value)),
        }
    }

    /// The bytes of what lies in its entry.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Entry(_, bytes) => bytes,
            Self::Box(_) => &[],
        }
    }
}

/// What a session does when it meets a value that is on disk.
#[derive(Debug, Default)]
pub(crate) struct Meeting {
    /// It notes the key and finds nothing, and does not bring the value.
    notes: StdCell<bool>,
    /// Database and key of what was met so.
    met: RefCell<Vec<(usize, Vec<u8>)>>,
    /// What could not be brought.
    lost: RefCell<Option<Lost>>,
}

/// Keys that lookups have met whose values are on disk: database and name.
pub type Met = Vec<(usize, Vec<u8>)>;

impl Batch<'_> {
    /// From now on, lookups of values that are on disk note them and find nothing, or do
    /// so no longer. Only while a command is executed that changes nothing, and whose
    /// outcome counts for nothing if something was met ([`take_met`](Self::take_met)).
    pub fn note_away(&self, notes: bool) {
        self.session().meeting.notes.set(notes);
    }

    /// What lookups have met since the last call, if anything.
    pub fn take_met(&self) -> Met {
        self.session().meeting.met.take()
    }

    /// Whether lookups have met something since.
    pub fn has_met(&self) -> bool {
        !self.session().meeting.met.borrow().is_empty()
    }

    /// What lookups could not bring since the last call.
    pub fn take_lost(&self) -> Option<Lost> {
        self.session().meeting.lost.take()
    }

    /// Whether the value of a key is on disk. No lookup for anything else: an expired key
    /// stays.
    pub fn is_away(&self, db: usize, name: &[u8]) -> bool {
        let key = self.key(name);
        let slot = self.lock(db, &key);
        slot.place_of(&key).is_some_and(|found| slot.is_away(found))
    }
}

impl SlotGuard<'_> {
    /// Whether the value is on disk.
    #[inline]
    pub fn is_away(&self, found: Found) -> bool {
        self.cell(found).bits().is_away()
    }

    /// What a lookup gives of a value that is on disk.
    #[cold]
    pub(crate) fn meet_away(&mut self, found: Found) -> Option<Found> {
        let session = self.session();
        if session.meeting.notes.get() {
            let name = self.key(found).to_vec();
            session.meeting.met.borrow_mut().push((self.db(), name));
            return None;
        }
        if let Err(lost) = session.store().noted_lost(self.bring(found)) {
            *session.meeting.lost.borrow_mut() = Some(lost);
        }
        Some(found)
    }

    /// Brings a value back. The thread may block.
    fn bring(&mut self, found: Found) -> Result<(), Lost> {
        let cell = self.cell(found);
        let Some(held) = Held::of(cell, self.session().store()) else { return Ok(()) };
        let home = held.read(&cell.key())?;
        self.put_home(found, &held.away, home);
        Ok(())
    }

    /// Puts a value in the place of what is on disk of it, if it is still there; whether
    /// it was.
    fn put_home(&mut self, found: Found, away: &Away, home: Home) -> bool {
        let is_same = Away::of(self.cell(found)).as_ref() == Some(away);
        if is_same {
            self.change(found, |cell| home.put(|payload| cell.replace(cell.expiry(), payload)));
            self.session().store().tier().brought.fetch_add(1, Relaxed);
        }
        is_same
    }

    /// Copies what of this slot has cooled, from some cell on, and ages the rest; the
    /// bytes that were copied.
    fn gather(&mut self, hard: bool, most: usize, out: &mut Vec<Leaving>) -> usize {
        const HOW: Eviction =
            Eviction { order: Order::Recency, volatile: false, samples: 1, lying: Lying::Anywhere };
        let (session, db, keyspace) = (self.session(), self.db(), self.keyspace());
        let first = session.below(self.keys() as u64) as usize;
        let (mut looks, mut copied) = (0, 0);
        self.cells_mut().round_mut(first, &mut |_, cell| {
            looks += 1;
            if may_leave(cell) {
                let cold = u8::from(hard && !cell.bits().is_packed());
                if cell.access() <= cold {
                    let leaving = Leaving::of(session.store(), (db, keyspace), cell);
                    copied += leaving.size;
                    out.push(leaving);
                } else {
                    HOW.age(cell, session);
                }
            }
            looks < LOOKS_AT_ONCE && copied < most
        });
        copied
    }
}

/// Whether a value may go to disk: one in its entry, of some length, or one in a box that
/// is not too large and of which nothing expires by itself.
fn may_leave(cell: &Cell) -> bool {
    let bits = cell.bits();
    if bits.is_boxed() {
        return cell.value().measure().allocated <= AWAY_MAX && !cell.parts_expire();
    }
    let lies = bits.is_raw_inline() || bits.is_packed_inline() && !bits.is_away();
    lies && cell.bytes().len() >= AWAY_MIN
}

/// A value on its way to disk: a copy.
#[derive(Debug)]
pub struct Leaving {
    db: usize,
    key: Vec<u8>,
    home: Form,
    raw: u32,
    beside: u32,
    access: u8,
    /// Bytes of memory, about.
    size: usize,
    /// The record; of what is in a box none until it is written out.
    bytes: Vec<u8>,
    _pin: Option<Pin>,
    /// Of what is in a box, a copy that shares its pieces, and that it is still the same.
    boxed: Option<(Owned, Note)>,
    needs: Needs,
}

impl Leaving {
    fn of(store: &Arc<Store>, (db, keyspace): (usize, usize), cell: &Cell) -> Self {
        let (home, key) = (cell.form(), cell.key().to_vec());
        let leaving = Self {
            db,
            home,
            raw: 0,
            beside: 0,
            access: cell.access(),
            size: 0,
            bytes: Vec::new(),
            _pin: None,
            boxed: None,
            needs: Needs::new(),
            key,
        };
        if home.is_boxed() {
            let value = cell.value();
            let note = Transit::note(store, keyspace, &cell.key());
            return Self {
                raw: (home.type_of().row().len)(value) as u32,
                beside: value.notes().into(),
                size: value.measure().allocated,
                boxed: value.duplicate().map(|copy| (copy, note)),
                ..leaving
            };
        }
        let bytes = cell.bytes().to_vec();
        let is_packed = home.bits().is_packed_inline();
        let dictionary = if is_packed { form::dictionary_id(&bytes) } else { 0 };
        let raw = if is_packed { form::raw_len(&bytes) } else { bytes.len() };
        Self {
            raw: raw as u32,
            beside: dictionary,
            size: bytes.len(),
            bytes,
            _pin: store.families().dictionaries.pin(dictionary),
            ..leaving
        }
    }

    /// Writes out what is to be on disk, if that has to be done yet; whether there is
    /// something. With no lock held: it may take milliseconds.
    pub fn write_out(&mut self, store: &Store) -> bool {
        if let Some((copy, _)) = self.boxed.as_ref().filter(|_| self.bytes.is_empty())
            && let Ok(written) = record::write(copy, &store.families().dictionaries)
        {
            (self.bytes, self.needs) = written;
        }
        !self.bytes.is_empty() && u32::try_from(self.bytes.len()).is_ok()
    }

    /// What is to be on disk, once that is written out.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether a cell still holds what was copied, and was not used since. Its slot is
    /// locked.
    fn is_of(&self, slot: &SlotGuard<'_>, cell: &Cell) -> bool {
        let is_same = cell.form() == self.home && cell.access() <= self.access;
        is_same
            && match &self.boxed {
                Some((_, note)) => note.holds(slot.keyspace()),
                None => cell.bytes() == &self.bytes[..],
            }
    }
}

impl Batch<'_> {
    /// Copies values that have cooled, of slots drawn at random, until they come to
    /// `want` bytes or enough slots were looked at; those that have not are colder
    /// afterwards. `hard` takes raw values, too, that packing has not come to.
    pub fn gather(&self, hard: bool, want: usize, out: &mut Vec<Leaving>) {
        const HOW: Eviction =
            Eviction { order: Order::Random, volatile: false, samples: 1, lying: Lying::Anywhere };
        let counts: Vec<_> =
            self.store().databases_used().map(|db| (db, self.store().keys(db))).collect();
        let mut copied = 0;
        for _ in 0..DRAWS_MAX {
            if copied >= want {
                return;
            }
            let Some((db, slot)) = self.draw(&HOW, &counts) else { return };
            if let Some(mut guard) = self.lock_unless_taken(db, slot) {
                copied += guard.gather(hard, want - copied, out);
            }
        }
    }

    /// Copies the value of a key, if it may go to disk, whatever its age.
    pub fn gather_key(&self, db: usize, name: &[u8], out: &mut Vec<Leaving>) {
        let key = self.key(name);
        let mut slot = self.lock(db, &key);
        let (found, keyspace) = (slot.find_entry(&key), slot.keyspace());
        if let Some(cell) = found.map(|found| slot.cell_mut(found)).filter(|cell| may_leave(cell)) {
            cell.set_access(0);
            out.push(Leaving::of(self.store(), (db, keyspace), cell));
        }
    }

    /// Has entries refer to what was written, each that still holds what was copied and
    /// was not used since; how many, and the bytes of memory that came free. `places` are
    /// those that the engine gave.
    pub fn put_away(&self, leaving: &mut [Leaving], places: &[Place]) -> (usize, usize) {
        let store = self.store();
        let Some(disk) = store.tier().disk() else { return (0, 0) };
        store.tier().in_use.store(true, Relaxed);
        let (mut count, mut freed) = (0, 0);
        for (value, &place) in leaving.iter_mut().zip(places) {
            let Leaving { home, raw, beside, ref bytes, .. } = *value;
            let (len, sum) = (bytes.len() as u32, sum(bytes));
            disk.need(place, std::mem::take(&mut value.needs));
            // The reference that the engine gave.
            let held = Held::taken(Away { home, place, len, raw, beside, sum }, disk, store);
            let key = self.key(&value.key);
            let mut slot = self.lock(value.db, &key);
            let Some(found) = slot.place_of(&key) else { continue };
            let cell = slot.cell(found);
            if value.is_of(&slot, cell) {
                let before = cell.allocated();
                let payload = held.away.bytes();
                slot.change(found, |cell| {
                    cell.replace(cell.expiry(), Payload::Inline(home.away(), &payload));
                    cell.set_access(0);
                });
                freed += before.saturating_sub(slot.cell(found).entry_allocated());
                count += 1;
            }
        }
        store.tier().left.fetch_add(count as u64, Relaxed);
        (count, freed)
    }
}

impl Session {
    /// Brings the value of a key back from disk, if it is there. No lock is held while
    /// the thread blocks.
    pub fn bring(&mut self, now: u64, db: usize, name: &[u8]) -> Result<(), Lost> {
        let held = {
            let batch = self.enter(now);
            let key = batch.key(name);
            let slot = batch.lock(db, &key);
            slot.place_of(&key).and_then(|found| Held::of(slot.cell(found), batch.store()))
        };
        let Some(held) = held else { return Ok(()) };
        let home = self.store().noted_lost(held.read(name))?;
        let batch = self.enter(now);
        let key = batch.key(name);
        let mut slot = batch.lock(db, &key);
        if let Some(found) = slot.place_of(&key) {
            slot.put_home(found, &held.away, home);
        }
        Ok(())
    }
}

/// A walk over all keys that moves records which lie among much that is gone.
#[derive(Debug, Default)]
pub struct Moving {
    /// The databases that were used when the walk began, and which is next of them.
    databases: Option<Vec<usize>>,
    at: usize,
    slot: usize,
    mark: Mark,
    found: Vec<(usize, Vec<u8>, Held)>,
}

impl Moving {
    /// Moves what it finds in the next slots; whether there is more to walk. An error is
    /// the engine's. The thread blocks, with no lock held.
    pub fn step(&mut self, session: &mut Session, now: u64, slots: usize) -> std::io::Result<bool> {
        let store = Arc::clone(session.store());
        let Some(disk) = store.tier().disk() else { return Ok(false) };
        let batch = session.enter(now);
        let more = self.walk(&batch, &*disk.engine, slots);
        drop(batch);
        let found = std::mem::take(&mut self.found);
        let mut rest = &found[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let far = rest.iter().position(|(.., value)| {
                bytes += value.away.len as usize;
                bytes > MOVED_AT_ONCE
            });
            // One at least, whatever its size.
            let (some, others) = rest.split_at(far.unwrap_or(rest.len()).max(1));
            move_some(disk, session, now, some)?;
            rest = others;
        }
        Ok(more)
    }

    fn walk(&mut self, batch: &Batch<'_>, engine: &dyn Engine, slots: usize) -> bool {
        let used = || batch.store().databases_used().collect();
        let databases = self.databases.get_or_insert_with(used).clone();
        for _ in 0..slots {
            if self.slot >= SLOTS {
                (self.at, self.slot, self.mark) = (self.at + 1, 0, Mark::default());
            }
            let Some(&db) = databases.get(self.at) else { return false };
            if batch.store().keys(db) == 0 {
                self.slot = SLOTS;
                continue;
            }
            let keyspace = batch.store().keyspace(db);
            if keyspace.get(self.slot).is_some_and(|slot| slot.keys() > 0) {
                let guard = batch.lock_slot(db, self.slot);
                let mut see = |cell: &Cell| {
                    if let Some(away) = Away::of(cell)
                        && engine.is_sparse(away.place)
                    {
                        let held = Held::new(away, batch.store());
                        self.found.extend(held.map(|held| (db, cell.key().to_vec(), held)));
                    }
                };
                if let Some(mark) = guard.walk_cells(self.mark, WALK_AT_ONCE, &mut see) {
                    self.mark = mark;
                    continue;
                }
            }
            self.mark = Mark::default();
            self.slot = keyspace.covered(self.slot).end;
        }
        true
    }
}

/// Writes records again, and has entries refer to the new ones.
fn move_some(
    disk: &Arc<Disk>,
    session: &mut Session,
    now: u64,
    found: &[(usize, Vec<u8>, Held)],
) -> std::io::Result<()> {
    let store = Arc::clone(session.store());
    // What cannot be read stays where it is, for whoever asks for it.
    let read = found.iter().filter_map(|entry| {
        let record = store.noted_lost(entry.2.record(&entry.1)).ok()?;
        Some((entry, record))
    });
    let read: Vec<_> = read.collect();
    let bytes: Vec<&[u8]> = read.iter().map(|(_, record)| &record[..]).collect();
    if bytes.is_empty() {
        return Ok(());
    }
    let places = disk.engine.write(&bytes, Purpose::Move)?;
    let batch = session.enter(now);
    for (((db, name, value), _), place) in read.iter().zip(places) {
        disk.need(place, disk.needs_of(value.away.place));
        let new = Held::taken(Away { place, ..value.away }, disk, &store);
        let key = batch.key(name);
        let mut slot = batch.lock(*db, &key);
        let Some(found) = slot.place_of(&key) else { continue };
        if Away::of(slot.cell(found)).as_ref() == Some(&value.away) {
            let (form, payload) = (value.away.home.away(), new.away.bytes());
            slot.change(found, |cell| {
                cell.replace(cell.expiry(), Payload::Inline(form, &payload));
            });
        }
    }
    Ok(())
}
