//! Work on large strings: packing what has cooled, unpacking what is read often.
//!
//! ```text
//!  the walk that cools ──> LargeNames ──> LargeJob ── run, in slices ──> LargeOutcome
//!  (or a command, for      keys only,     the value,                       |
//!   one that it needs)     64 at most     by reference                     v
//!                                                          installed, if it is still the value
//! ```
//!
//! It is done outside of every lock, on a chain held by reference, and takes effect
//! only if the key still holds that very chain: bytes that are held by two are never
//! written to. What is dropped half way leaves nothing behind.

use super::{PackedChain, pack};
use crate::pack::form::Damaged;
use crate::packing::StringParams;
use crate::policy::Edition;
use crate::slot::Found;
use crate::store::Batch;
use crate::timing::UnpackTimes;
use crate::types::Type;
use snug_codec::policy::Choice;
use snug_codec::stream::Pace;
use snug_codec::{Segments, Workspace};
use std::collections::VecDeque;
use std::sync::Arc;

/// What is to be done with a large string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargeWork {
    /// It has cooled: pack it.
    Pack,
    /// It is read often: unpack it.
    Unpack,
}

/// A large string with which something is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeName {
    db: usize,
    key: Vec<u8>,
    work: LargeWork,
}

/// What waits to be done, a bounded number of names; the values are not held.
#[derive(Debug, Default)]
pub struct LargeNames(VecDeque<LargeName>);

/// Names that wait at most; what finds no room is met again by the next pass.
const NAMES_MAX: usize = 64;

impl LargeNames {
    /// The next.
    pub fn pop(&mut self) -> Option<LargeName> {
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

    /// Adds a name if there is room; whether there was.
    pub(crate) fn push(&mut self, db: usize, key: &[u8], work: LargeWork) -> bool {
        let room = self.0.len() < NAMES_MAX;
        if room && !self.0.iter().any(|name| name.db == db && name.key == key) {
            self.0.push_back(LargeName { db, key: key.to_vec(), work });
        }
        room
    }
}

/// A large string held by reference, to be packed or unpacked by whoever holds
/// no lock, and then [installed](Batch::install_large).
#[derive(Debug)]
pub struct LargeJob {
    db: usize,
    key: Vec<u8>,
    value: Value,
    policy: Edition,
    /// Where it is noted how long unpacking takes.
    times: Arc<UnpackTimes>,
    /// Whatever its age and what it looks like.
    forced: bool,
}

#[derive(Debug)]
enum Value {
    Raw(Segments),
    Packed(PackedChain),
}

/// What a [`LargeJob`] came to.
#[derive(Debug)]
pub enum LargeOutcome {
    /// It is to be packed, and this is its form, and what it was packed with.
    Packed(PackedChain, Choice),
    /// It is to be raw, and these are its bytes.
    Raw(Segments),
    /// It stays as it is.
    Left,
    /// So it does, for it is damaged.
    Damaged(Damaged),
}

impl LargeJob {
    /// Whether it packs, and does not unpack.
    pub fn packs(&self) -> bool {
        matches!(self.value, Value::Raw(_))
    }

    /// Whether both are about the same value of the same key.
    pub fn is_same(&self, other: &Self) -> bool {
        let values = match (&self.value, &other.value) {
            (Value::Raw(a), Value::Raw(b)) => a.is_same(b),
            (Value::Packed(a), Value::Packed(b)) => a.is_same(b),
            _ => false,
        };
        values && (self.db, &self.key) == (other.db, &other.key)
    }

    /// Bytes of the value, unpacked.
    pub fn raw_len(&self) -> usize {
        match &self.value {
            Value::Raw(raw) => raw.len(),
            Value::Packed(packed) => packed.len(),
        }
    }

    /// The first of its bytes and the last, of a value that is to be packed.
    pub fn ends(&self) -> (&[u8], &[u8]) {
        match &self.value {
            Value::Raw(raw) => {
                let parts = raw.parts();
                (parts.first().map_or(&[], |part| part), parts.last().map_or(&[], |part| part))
            }
            Value::Packed(_) => (&[], &[]),
        }
    }

    /// Does it, in slices.
    pub async fn run(
        &self,
        workspace: &mut Workspace,
        params: &StringParams,
        pace: &impl Pace,
        slice_ns: u64,
    ) -> LargeOutcome {
        match &self.value {
            Value::Raw(raw) => {
                let (key, ends, len) = (&self.key, self.ends(), raw.len());
                let choice = self.policy.choose(Type::String, key, ends, len, params.level);
                pack(workspace, raw, choice, params, self.forced, pace, slice_ns)
                    .await
                    .map_or(LargeOutcome::Left, |packed| LargeOutcome::Packed(packed, choice))
            }
            Value::Packed(packed) => packed
                .unpack_in_slices(workspace, &self.times, pace, slice_ns)
                .await
                .map_or_else(LargeOutcome::Damaged, LargeOutcome::Raw),
        }
    }
}

impl Batch<'_> {
    /// The value of a name, by reference, if it still is to be worked on. O(its
    /// segments).
    pub fn large_job(&self, name: &LargeName) -> Option<LargeJob> {
        let key = self.key(&name.key);
        let mut slot = self.lock(name.db, &key);
        let found = slot.find_untouched(&key)?;
        // One that was named to be unpacked may have cooled since, and still is to
        // be: read often, or packed by another policy.
        let job = slot.large_job(found, name.work == LargeWork::Unpack)?;
        (job.packs() == (name.work == LargeWork::Pack)).then_some(job)
    }

    /// Puts what came of a job in the place of the value, if that has not been
    /// changed or removed since, nor used before it was packed; whether it did.
    pub fn install_large(&self, job: &LargeJob, outcome: LargeOutcome) -> bool {
        if let LargeOutcome::Damaged(damaged) = &outcome {
            self.store().observer().damaged(damaged);
            return false;
        }
        let key = self.key(&job.key);
        let mut slot = self.lock(job.db, &key);
        match slot.find_untouched(&key) {
            Some(found) => slot.install_large(found, job, outcome),
            None => false,
        }
    }
}

impl crate::SlotGuard<'_> {
    /// A large string by reference, to be packed if it is raw and to be unpacked
    /// if it is not. Unless it is `forced`, only one that is cold, or read often.
    pub fn large_job(&self, found: Found, forced: bool) -> Option<LargeJob> {
        let access = self.access(found);
        let value = match (self.large(found), self.packed_large(found)) {
            (Some(raw), _) if forced || access == 0 => Value::Raw(raw.clone()),
            (_, Some(packed)) if forced || access == crate::ACCESS_MAX => {
                Value::Packed(packed.clone())
            }
            _ => return None,
        };
        let (db, key, policy) = (self.db(), self.key(found).to_vec(), self.policy());
        Some(LargeJob { db, key, value, policy, times: self.segment_times(), forced })
    }

    fn install_large(&mut self, found: Found, job: &LargeJob, outcome: LargeOutcome) -> bool {
        match (&job.value, outcome) {
            (Value::Raw(raw), LargeOutcome::Packed(packed, _)) => {
                let same = self.large(found).is_some_and(|chain| chain.is_same(raw))
                    && (job.forced || self.access(found) == 0);
                if same {
                    self.put_packed_large(found, packed);
                }
                same
            }
            (Value::Packed(packed), LargeOutcome::Raw(raw)) => {
                self.put_unpacked(found, packed, raw)
            }
            _ => false,
        }
    }

    /// Puts a packed large string's bytes in its place, if it is still that
    /// string; whether it was.
    pub fn put_unpacked(&mut self, found: Found, packed: &PackedChain, raw: Segments) -> bool {
        let same = self.packed_large(found).is_some_and(|chain| chain.is_same(packed));
        if same {
            self.put_large(found, raw);
        }
        same
    }
}
