//! How strings cool: which are to be packed, unpacked or packed anew, and when.
//!
//! Two access bits of each cell, which the sweeper walks without touching the
//! entries behind them, say how lately a value was used:
//!
//! ```text
//!        a read
//!   ┌───────────────┐
//!   │      a write  │                             a read adds one
//!   │     ┌─────────┤                           ┌──────────────────┐
//!   v     v         │                           │                  v
//!  raw 3 ──> 2 ──> 1 ──> candidate ──> packed 0 ──> 1 ──> 2 ──> 3 ──> raw 3
//!     a pass  pass  pass                        <── pass <──      GET, or a pass
//!     in eight
//! ```
//!
//! Each pass over the slots takes one from the bits of each value. So a value that
//! nobody reads is packed at the second pass after it was written. A value that is read
//! is likely to be read again: its last bit goes in one pass of eight only, unless
//! memory is short.
//!
//! Some values stay raw at 0: those not worth packing, and those that expire too soon.
//! Such a value costs the walk a look at its cell. It is tried again when it is written
//! or read, when its family gets a new dictionary, or when its policy changes.
//!
//! A value in a box of its own says itself what it wants (`types/forms.rs`). A stream
//! is packed block by block as its blocks fill up; when its tail has cooled, the same
//! walk seals that. Large strings are only named here, because they are worked on in
//! slices (`large.rs`).

use crate::books::weight::Weight;
use crate::cell::entry::{ACCESS_MAX, Cell};
use crate::cell::table::Mark;
use crate::hash::SLOTS;
use crate::jobs::{Job, Names};
use crate::keyspace::{Keyspace, PAGE_SLOTS};
use crate::pack::form::{dictionary_id, raw_len};
use crate::pack::keys;
use crate::pack::piece::PieceParams;
use crate::packing::PackedStr;
use crate::policy::{Change, Edition};
use crate::slot::SlotGuard;
use crate::store::{Batch, Session, Store};
use crate::types::Type;
use crate::types::forms::{Met, Wish};
use crate::types::string::in_slot::put_raw;
use snug_codec::policy::Policy;
use std::sync::Arc;

/// A value that was read grows colder in one pass of so many.
const READ_AGES_ONE_IN: u64 = 8;

/// A pass tells families which strings they have for one string in so many. Telling
/// touches the string's entry, which is a cache miss.
pub const MEET_ONE_IN: u64 = 16;

/// A pass asks one packed value in so many whether it lies in a page of memory with
/// holes, and moves it if so.
const LEAVE_ONE_IN: u16 = 8;

/// Most cells looked at while a slot's lock is held once.
const LOOK_AT_ONCE: usize = 128;
/// Most bytes copied out while a slot's lock is held once.
const COPY_AT_ONCE: usize = 64 * 1024;
/// Most keys packed while a slot's lock is held once.
const KEYS_AT_ONCE: usize = 32;
/// A pass asks one hot value in so many whether its key is packed, and unpacks that if so.
const UNPACK_KEY_ONE_IN: u16 = 8;
/// Most bytes unpacked while a slot's lock is held once.
const UNPACK_AT_ONCE: usize = 64 * 1024;

/// Values below this length, packed with no dictionary or with that of the rest, are packed
/// anew when any family has got one that they may be lent.
const PROVISIONAL_BELOW: usize = 4096;

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
    params: Option<PieceParams>,
    leave_mixed: bool,
    leave_within_ms: u64,
    recheck: Recheck,
    /// The policy when the pass began, and what of it is new.
    edition: Option<Edition>,
    change: Option<Change>,
    /// The generation of what is known of keys when the pass began, and whether it was
    /// another before.
    keys: u64,
    keys_changed: bool,
    /// Which pass this is.
    pass: u64,
    /// Cold strings that this pass has left for another.
    left: std::cell::Cell<u64>,
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
            leave_mixed: false,
            leave_within_ms: 0,
            recheck: Recheck::Nothing,
            edition: None,
            change: None,
            keys: 0,
            keys_changed: false,
            pass: 0,
            left: std::cell::Cell::default(),
        }
    }

    /// Begins a pass.
    pub fn begin(&mut self, session: &Session, params: &PieceParams) {
        let store = session.store();
        session.unpacker().forget();
        self.databases = store.databases_used().filter(|&db| store.keys(db) > 0).collect();
        (self.at, self.slot, self.mark) = (0, self.first * PAGE_SLOTS, Mark::default());
        let before = self.generation;
        self.generation = store.families().generation();
        self.recheck = match self.params {
            Some(old) if old.settles() != params.settles() => Recheck::AllRaw(before),
            _ if self.generation != before => Recheck::NewerThan(before),
            _ => Recheck::Nothing,
        };
        self.params = Some(*params);
        let edition = store.families().policy();
        self.change = self.edition.as_ref().and_then(|old| Change::between(old, &edition));
        self.edition = Some(edition);
        let keys = keys::generation();
        self.keys_changed = std::mem::replace(&mut self.keys, keys) != keys;
        self.left.set(0);
        self.pass += 1;
    }

    /// Cold strings that this pass has met and left for another: there was no time for
    /// their families, or no room for their names.
    pub fn left(&self) -> u64 {
        self.left.get()
    }

    /// Whether values of families that pack only in part wait: there is no time for
    /// all, and it is better spent on the others.
    pub fn leave_mixed(&mut self, leave: bool) {
        self.leave_mixed = leave;
    }

    /// What expires within so many milliseconds is left raw: packing it would cost
    /// more than the memory is worth that it frees until then.
    pub fn leave_expiring(&mut self, within_ms: u64) {
        self.leave_within_ms = within_ms;
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
    fn next_slot(&self, keyspace: &Keyspace) -> usize {
        match keyspace.covered(self.slot).end {
            next if next.is_multiple_of(PAGE_SLOTS) => next + (self.of - 1) * PAGE_SLOTS,
            next => next,
        }
    }

    /// Goes on to the next slot that has keys, and looks at some of them: what
    /// has cooled is copied into `jobs`, what is to be worked on as a whole is named
    /// in `names`. `at_once` takes what is not hot for cold.
    /// O(slots passed by), and a bounded number of cells and bytes.
    pub fn step(
        &mut self,
        batch: &Batch<'_>,
        params: &PieceParams,
        at_once: bool,
        jobs: &mut Vec<Job>,
        names: &mut Names,
    ) {
        let Some(&db) = self.databases.get(self.at) else { return };
        let keyspace = batch.store().keyspace(db);
        while self.slot < SLOTS {
            if keyspace.get(self.slot).is_some_and(|slot| slot.keys() > 0) {
                let Some(mut guard) = batch.lock_unless_taken(db, self.slot) else {
                    (self.slot, self.mark) = (self.next_slot(keyspace), Mark::default());
                    return;
                };
                let rules = Rules {
                    params,
                    at_once,
                    keep_packed: batch.store().keeps_packed(),
                    leave_mixed: self.leave_mixed,
                    stays_until: guard.session().now().saturating_add(self.leave_within_ms),
                    recheck: self.recheck,
                    change: self.change.as_ref(),
                    keys_changed: self.keys_changed,
                    left: &self.left,
                    meets: (self.pass % MEET_ONE_IN) as u16,
                    leaves_sparse: (self.pass % u64::from(LEAVE_ONE_IN)) as u16,
                    unpacks_key: (self.pass % u64::from(UNPACK_KEY_ONE_IN)) as u16,
                };
                match guard.cool(self.mark, rules, jobs, names) {
                    Some(mark) => self.mark = mark,
                    None => {
                        (self.slot, self.mark) = (self.next_slot(keyspace), Mark::default());
                    }
                }
                return;
            }
            (self.slot, self.mark) = (self.next_slot(keyspace), Mark::default());
        }
        (self.at, self.slot) = (self.at + 1, self.first * PAGE_SLOTS);
    }
}

impl SlotGuard<'_> {
    /// Takes one off the access bits of some cells from `mark` on. What has
    /// cooled is copied into `jobs`, or sealed if it is a stream; what is
    /// read often is unpacked; where to go on, or `None` at the slot's end.
    pub(crate) fn cool(
        &mut self,
        mark: Mark,
        rules: Rules<'_>,
        jobs: &mut Vec<Job>,
        names: &mut Names,
    ) -> Option<Mark> {
        let (session, db) = (self.session(), self.db());
        let (mut copied, mut unpacked, mut keys, mut work) = (0, 0, 0, false);
        let rest = self.cells_mut().walk_mut(mark, LOOK_AT_ONCE, &mut |cell| {
            let (access, bits, store) = (cell.access(), cell.bits(), session.store());
            if rules.meets(cell) {
                store.families().meet(cell.type_of(), &cell.key());
            }
            if cell.tag() % LEAVE_ONE_IN == rules.leaves_sparse {
                cell.leave_sparse_page();
            }
            if rules.packs_key(cell) {
                if keys == KEYS_AT_ONCE {
                    return false;
                }
                keys += 1;
                // What has cooled before was looked at then.
                let is_new = access > 0;
                Weight::recounted(store, cell, |cell| cell.pack_key(is_new));
            } else if rules.unpacks_key(cell) {
                Weight::recounted(store, cell, Cell::unpack_key);
            }
            if bits.is_away() {
                cell.set_access(rules.aged(session, cell));
                return true;
            }
            if bits.is_boxed() {
                match rules.wish(store, cell) {
                    Wish::Nothing => {}
                    Wish::Pieces => work = true,
                    Wish::Pack => {
                        // Where there is no room for its name, the next pass finds it cold.
                        let named = names.push_to_pack(db, &cell.key());
                        cell.set_access(if named { 0 } else { access.max(1) });
                        rules.left.update(|left| left + u64::from(!named));
                        return true;
                    }
                    Wish::Unpack => {
                        // Where there is no room for its name, the next pass finds it hot.
                        if !names.push_to_unpack(db, &cell.key()) {
                            cell.set_access(ACCESS_MAX);
                        }
                        return true;
                    }
                }
            }
            let reason = if bits.is_packed_inline() {
                if access == ACCESS_MAX && !rules.keep_packed {
                    if unpacked >= UNPACK_AT_ONCE {
                        return false;
                    }
                    unpacked += unpack_hot(session, cell);
                    return true;
                }
                rules.reason(store, cell, true)
            } else if bits.is_raw_inline() {
                match access {
                    0 => rules.reason(store, cell, false),
                    1 if rules.leaves(store, cell) => {
                        rules.left.update(|left| left + 1);
                        return true;
                    }
                    1 => rules.newly_cold(store, cell),
                    _ if rules.at_once => rules.newly_cold(store, cell),
                    _ => None,
                }
            } else {
                None
            };
            let Some(reason) = reason else {
                cell.set_access(rules.aged(session, cell));
                return true;
            };
            if copied > 0 && copied + cell.bytes().len() > COPY_AT_ONCE {
                return false;
            }
            // What is packed anew is as warm as it was.
            let settled = if bits.is_packed_inline() { access.saturating_sub(1) } else { 0 };
            cell.set_access(settled);
            copied += cell.bytes().len();
            let mut job = Job::short(store, db, cell, false);
            job.settled_by(rules.settled_by(reason));
            jobs.push(job);
            true
        });
        if work {
            self.note_unpacked();
        }
        rest
    }
}

/// Unpacks a value that is read often; the bytes that took. What is damaged is
/// left as it is, for whoever reads it.
fn unpack_hot(session: &Session, cell: &mut Cell) -> usize {
    let mut raw = Vec::new();
    if (PackedStr { form: cell.bytes(), session }).append_to(&mut raw).is_err() {
        return 0;
    }
    Weight::recounted(session.store(), cell, |cell| put_raw(cell, &raw));
    raw.len()
}

/// What one look at a slot goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules<'p> {
    pub(crate) params: &'p PieceParams,
    pub(crate) at_once: bool,
    pub(crate) keep_packed: bool,
    pub(crate) leave_mixed: bool,
    /// What expires before is left raw, unix milliseconds.
    pub(crate) stays_until: u64,
    pub(crate) recheck: Recheck,
    pub(crate) change: Option<&'p Change>,
    /// Counts cold strings that are left for another pass.
    pub(crate) left: &'p std::cell::Cell<u64>,
    /// Families are told of strings whose tags leave this by [`MEET_ONE_IN`].
    pub(crate) meets: u16,
    /// Values whose tags leave this by [`LEAVE_ONE_IN`] move out of sparse pages.
    pub(crate) leaves_sparse: u16,
    /// Whether keys may be packed better than they are.
    pub(crate) keys_changed: bool,
    /// Hot values whose tags leave this by [`UNPACK_KEY_ONE_IN`] have their keys unpacked.
    pub(crate) unpacks_key: u16,
}

/// Why a settled string is looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// What it would be packed with has changed.
    Recheck,
    /// Another policy came into force, and nothing else.
    Policy,
}

impl Rules<'_> {
    /// The access bits of a value after a pass that left it as it is.
    fn aged(&self, session: &Session, cell: &Cell) -> u8 {
        let access = cell.access();
        let was_read = access == ACCESS_MAX
            && !cell.bits().is_packed()
            && session.store().log_factor().is_none();
        let is_hot = was_read && !self.keep_packed && session.below(READ_AGES_ONE_IN) > 0;
        access.saturating_sub(u8::from(!is_hot))
    }

    /// Whether the key is to be packed: its value has just cooled, or more is known now of
    /// what keys share. Most have been packed with their values, and are not touched.
    fn packs_key(&self, cell: &Cell) -> bool {
        let has_cooled = match cell.access() {
            0 => self.keys_changed,
            1 => self.keys_changed || !cell.bits().is_packed_inline(),
            _ => self.at_once && !cell.bits().is_packed_inline(),
        };
        has_cooled && !self.expires_soon(cell)
    }

    fn unpacks_key(&self, cell: &Cell) -> bool {
        cell.access() == ACCESS_MAX
            && !self.keep_packed
            && cell.tag() % UNPACK_KEY_ONE_IN == self.unpacks_key
            && cell.key_is_packed()
    }

    /// Whether a string's family is to be told of it by this pass. A key's tag stays
    /// the same, so that each has its turn.
    fn meets(&self, cell: &Cell) -> bool {
        let bits = cell.bits();
        let packs = bits.is_raw_inline() || bits.is_packed_inline() || bits.is_boxed();
        packs && cell.tag() % MEET_ONE_IN as u16 == self.meets
    }

    /// Whether a raw string is long enough.
    fn is_long(&self, cell: &Cell) -> bool {
        cell.bytes().len() >= self.params.min_size
    }

    /// Whether a raw string is long enough, and there for long enough.
    fn fits(&self, cell: &Cell) -> bool {
        self.is_long(cell) && !self.expires_soon(cell)
    }

    /// Whether a raw string that has just cooled is to be packed; its family counts
    /// those that are only left because they expire.
    fn newly_cold(&self, store: &Store, cell: &Cell) -> Option<Reason> {
        let fits = self.fits(cell);
        if !fits && self.is_long(cell) {
            store
                .families()
                .claim(cell.type_of(), &cell.key(), cell.bytes())
                .family
                .left_expiring();
        }
        fits.then_some(Reason::Recheck)
    }

    fn expires_soon(&self, cell: &Cell) -> bool {
        cell.expires() && cell.expiry().is_some_and(|expiry| expiry < self.stays_until)
    }

    /// Whether a raw string is to stay as it is until there is more time.
    fn leaves(&self, store: &Store, cell: &Cell) -> bool {
        self.leave_mixed
            && self.is_long(cell)
            && store
                .families()
                .claim_of(cell.type_of(), &cell.key(), cell.bytes())
                .family
                .is_mixed()
    }

    /// What a boxed value wants, now that it was met. One that is neither just cold nor
    /// hot has nothing new to decide by most of the time, and is not touched then.
    fn wish(&self, store: &Store, cell: &mut Cell) -> Wish {
        let access = cell.access();
        let is_hot = access == ACCESS_MAX && cell.bits().is_packed() && !self.keep_packed;
        let since = match self.recheck {
            Recheck::Nothing => None,
            Recheck::AllRaw(since) | Recheck::NewerThan(since) => Some(since),
        };
        let news = since.is_some() || self.change.is_some();
        let is_idle = access != 1 && !is_hot && !self.at_once && !news;
        if is_idle && !cell.value().cools_in_parts() {
            return Wish::Nothing;
        }
        let (kind, key) = (cell.type_of(), if news { cell.key().to_vec() } else { Vec::new() });
        let new_dictionary = || {
            let since = since?;
            let family = store.families().of(kind, &key);
            let id = if family.changed_since(since) { family.dictionary_id() } else { 0 };
            (id != 0).then_some(id)
        };
        let met = Met {
            access,
            at_once: self.at_once,
            keep_packed: self.keep_packed,
            recheck_raw: matches!(self.recheck, Recheck::AllRaw(_)),
            expires_soon: self.expires_soon(cell),
            min_size: self.params.min_size,
            concerns: &|len| self.concerns(kind, &key, len),
            new_dictionary: &new_dictionary,
        };
        Weight::recounted(store, cell, |cell| {
            cell.value_mut().map_or(Wish::Nothing, |value| value.cool(&met))
        })
    }

    /// Whether a settled string is to be looked at again, and why. Most passes have
    /// nothing new to decide by, and then no entry is touched: each would be a cache
    /// miss, and a million of them 4 % of a worker.
    fn reason(&self, store: &Store, cell: &Cell, is_packed: bool) -> Option<Reason> {
        if self.recheck == Recheck::Nothing && self.change.is_none() {
            return None;
        }
        if self.rechecks(store, cell, is_packed) {
            return Some(Reason::Recheck);
        }
        let len = if is_packed { raw_len(cell.bytes()) } else { cell.bytes().len() };
        let concerned =
            (is_packed || self.fits(cell)) && self.concerns(cell.type_of(), &cell.key(), len);
        concerned.then_some(Reason::Policy)
    }

    /// Whether another policy may decide differently on a settled value.
    fn concerns(&self, kind: Type, key: &[u8], len: usize) -> bool {
        self.change.is_some_and(|change| change.concerns(kind, key, len, self.params.level))
    }

    /// What a value was settled by that is looked at again for this reason.
    fn settled_by(&self, reason: Reason) -> Option<Arc<Policy>> {
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
        let families = store.families();
        if !is_packed {
            let claim = families.claim_of(cell.type_of(), &cell.key(), cell.bytes());
            return claim.changed_since(since);
        }
        // What it looks like is not known while it is packed: its key tells whose it may
        // be, and its dictionary whether there is a newer one of the same family.
        let id = dictionary_id(cell.bytes());
        let claim = families.claim_of_key(cell.type_of(), &cell.key());
        let is_provisional = raw_len(cell.bytes()) < PROVISIONAL_BELOW
            && families.is_provisional(cell.type_of(), id);
        id != 0 && !families.is_current(id)
            || claim.changed_since(since) && id != claim.dictionary_id()
            || is_provisional && families.has_any_changed_since(cell.type_of(), since)
    }
}
