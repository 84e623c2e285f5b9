//! Values that come from outside, in some format, and how they enter the keyspace; and
//! how a value is saved that has left its slot.
//!
//! ```text
//!  format's reader ──> Making ──finish──> Detached ──> Restore     an op: one key, told
//!                                                  `─> load        in bulk: nobody follows
//!
//!  SlotGuard::duplicate ──> Detached ──save──> Elements            no lock is held
//! ```
//!
//! A value is made outside of every slot, element by element as its type would take them
//! from a client, so a large collection is built page by page and nothing is converted as
//! a whole. What does not belong together (a member twice, an entry with a smaller ID than
//! the one before) is an error, whoever wrote it.
//!
//! Cost: that of the elements. A small value is copied once more, into its entry.

use crate::effect::{Change, Form};
use crate::hash::Key;
use crate::reading::OfSession;
use crate::slot::{Detached, Found, SlotGuard, after_write};
use crate::store::{Batch, Session};
use crate::types::elements::{
    ConsumerOutline, Elements, EntryFields, GroupOutline, Outline, StreamFacts, StreamOutline,
};
use crate::types::hash::make::HashDraft;
use crate::types::list::make::ListDraft;
use crate::types::set::make::SetDraft;
use crate::types::stream::make::StreamDraft;
use crate::types::stream::{Shape, StreamId, StreamScratch};
use crate::types::string::NewStr;
use crate::types::string::make::StringDraft;
use crate::types::zset::make::ZSetDraft;
use crate::types::{Draft, Unsaved};
use crate::{HashLimits, SetLimits, ZLimits};
use smallvec::SmallVec;
use std::io;

/// Up to what size Redis would hold collections in their compact encodings, and how large
/// the parts of streams get.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of hashes.
    pub hash: HashLimits,
    /// Of sets.
    pub set: SetLimits,
    /// Of sorted sets.
    pub sorted_set: ZLimits,
    /// Of streams.
    pub shape: Shape,
}

impl Limits {
    /// What a server begins with.
    pub const DEFAULT: Self = Self {
        hash: HashLimits { entries: 512, value: 64 },
        set: SetLimits { intset_entries: 512 },
        sorted_set: ZLimits { entries: 128, value: 64 },
        shape: Shape::DEFAULT,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A value that is being made of its elements. One serves any number of values, one after
/// the other.
pub struct Making<'s> {
    session: &'s Session,
    limits: &'s Limits,
    draft: Option<Box<dyn Draft + 's>>,
    /// Room for small values, used again.
    room: Vec<u8>,
}

impl std::fmt::Debug for Making<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Making").finish_non_exhaustive()
    }
}

impl Session {
    /// Makes values. The session need not have entered the store: nothing is reached.
    pub fn making<'s>(&'s self, limits: &'s Limits) -> Making<'s> {
        Making { session: self, limits, draft: None, room: Vec::new() }
    }
}

impl<'s> Making<'s> {
    fn begin(
        &mut self,
        draft: impl FnOnce(&'s Session, &'s Limits, Vec<u8>) -> Box<dyn Draft + 's>,
    ) {
        let room = match self.draft.take() {
            Some(unfinished) => unfinished.into_room(),
            None => std::mem::take(&mut self.room),
        };
        self.draft = Some(draft(self.session, self.limits, room));
    }

    fn draft(&mut self) -> io::Result<&mut (dyn Draft + 's)> {
        let nothing = || io::Error::new(io::ErrorKind::InvalidData, "parts of no value");
        self.draft.as_deref_mut().ok_or_else(nothing)
    }

    /// The value, for this key; `None` if it turned out to have no elements, which no
    /// collection that is kept has. `access` tells how lately it was used, 0 to 3.
    pub fn finish(
        &mut self,
        key: &Key<'_>,
        expiry: Option<u64>,
        access: Option<u8>,
    ) -> Option<Detached> {
        let mut draft = self.draft.take()?;
        let access = access.unwrap_or_else(|| after_write(self.session, 0));
        let value = draft.take().map(|payload| Detached::new(key, expiry, access, payload));
        self.room = draft.into_room();
        value
    }

    /// Gives up what was begun.
    pub fn abandon(&mut self) {
        self.draft = None;
    }
}

impl Elements for Making<'_> {
    fn string(&mut self, len: u64) -> io::Result<()> {
        self.begin(|_, _, room| Box::new(StringDraft::new(len, room)));
        Ok(())
    }

    fn part(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.draft()?.part(bytes)
    }

    fn integer(&mut self, value: i64) -> io::Result<()> {
        self.begin(|_, _, room| Box::new(StringDraft::integer(value, room)));
        Ok(())
    }

    fn list(&mut self, _: &Outline) -> io::Result<()> {
        self.begin(|session, _, room| Box::new(ListDraft::new(session, room)));
        Ok(())
    }

    fn set(&mut self, _: &Outline) -> io::Result<()> {
        self.begin(|session, limits, room| Box::new(SetDraft::new(session, limits.set, room)));
        Ok(())
    }

    fn hash(&mut self, _: &Outline) -> io::Result<()> {
        self.begin(|session, limits, room| Box::new(HashDraft::new(session, limits.hash, room)));
        Ok(())
    }

    fn sorted_set(&mut self, outline: &Outline) -> io::Result<()> {
        let mut zset = self.limits.sorted_set;
        if outline.len > zset.entries as u64 {
            // Redis makes a skiplist of it from the first member on: zeros keep their signs.
            zset.entries = 0;
        }
        self.begin(|session, _, room| Box::new(ZSetDraft::new(session, zset, room)));
        Ok(())
    }

    fn stream(&mut self, _: &StreamOutline) -> io::Result<()> {
        self.begin(|_, limits, room| Box::new(StreamDraft::new(&limits.shape, room)));
        Ok(())
    }

    fn item(&mut self, item: &NewStr<'_>) -> io::Result<()> {
        self.draft()?.item(item)
    }

    fn field(
        &mut self,
        field: &NewStr<'_>,
        value: &NewStr<'_>,
        expires: Option<u64>,
    ) -> io::Result<()> {
        self.draft()?.field(field, value, expires)
    }

    fn member(&mut self, score: f64, member: &NewStr<'_>) -> io::Result<()> {
        self.draft()?.member(score, member)
    }

    fn entry(&mut self, id: StreamId, fields: &EntryFields<'_>) -> io::Result<()> {
        self.draft()?.entry(id, fields)
    }

    fn facts(&mut self, facts: &StreamFacts) -> io::Result<()> {
        self.draft()?.facts(facts)
    }

    fn group(&mut self, group: &GroupOutline<'_>) -> io::Result<()> {
        self.draft()?.group(group)
    }

    fn pending(&mut self, id: StreamId, delivered: u64, count: u64) -> io::Result<()> {
        self.draft()?.pending(id, delivered, count)
    }

    fn consumer(&mut self, consumer: &ConsumerOutline<'_>) -> io::Result<()> {
        self.draft()?.consumer(consumer)
    }

    fn owned(&mut self, id: StreamId) -> io::Result<()> {
        self.draft()?.owned(id)
    }

    fn end(&mut self) -> io::Result<()> {
        self.draft()?.end()
    }
}

impl Detached {
    /// Gives `out` the elements of the value, whatever of it is packed, and changes
    /// nothing. No lock is held: any thread may that has a session of the same store and
    /// a scratch for streams. O(value), constant memory.
    pub fn save(
        &self,
        session: &Session,
        scratch: &mut StreamScratch,
        out: &mut dyn Elements,
    ) -> Result<(), Unsaved> {
        let brought = self.brought()?;
        let value = brought.as_ref().unwrap_or(self).value();
        let save = value.form().type_of().row().save;
        save(value, &mut OfSession { session, scratch }, out)
    }
}

/// Gives a key a value that was made elsewhere, in place of what it held, which is given
/// back to be freed where it suits.
#[derive(Debug)]
pub struct Restore<'a> {
    /// The value, with its expiry; taken as the op is applied.
    value: Option<Detached>,
    expiry: Option<u64>,
    /// The same as a dump, for whoever follows.
    payload: &'a NewStr<'a>,
}

impl<'a> Restore<'a> {
    /// Gives a key this value, which `payload` is the dump of.
    pub fn new(value: Detached, payload: &'a NewStr<'a>) -> Self {
        Self { expiry: value.expiry(), value: Some(value), payload }
    }
}

impl Change for Restore<'_> {
    type Outcome = Option<Detached>;

    fn apply(
        &mut self,
        slot: &mut SlotGuard<'_>,
        key: &Key<'_>,
        found: Option<Found>,
    ) -> Option<Detached> {
        let value = self.value.take()?;
        let before = found.map(|found| slot.detach(found));
        slot.attach(key, value);
        before
    }

    fn form(&self, _: &Option<Detached>, key: &[u8], form: &mut Form<'_>) {
        form.command("RESTORE").bytes(key).number(self.expiry.unwrap_or(0));
        form.value(self.payload).word("REPLACE").word("ABSTTL");
    }
}

impl Batch<'_> {
    /// Makes values for this store.
    pub fn making<'m>(&'m self, limits: &'m Limits) -> Making<'m> {
        self.session().making(limits)
    }

    /// Gives a database a value under the key that it was made for, and tells nobody: for
    /// filling a store that nobody follows yet. If there is such a key already, the value
    /// is given back.
    pub fn load(&self, db: usize, value: Detached) -> Result<(), Detached> {
        let name: SmallVec<[u8; 64]> = SmallVec::from_slice(&value.key());
        let key = self.key(&name);
        let mut slot = self.lock(db, &key);
        if slot.find_entry(&key).is_some() {
            return Err(value);
        }
        slot.attach(&key, value);
        slot.take_added();
        Ok(())
    }

    /// Gives `work` the session, to save values with that have left their slots.
    pub fn with_session<R>(&self, work: impl FnOnce(&Session) -> R) -> R {
        work(self.session())
    }
}
