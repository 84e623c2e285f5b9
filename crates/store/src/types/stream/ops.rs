//! The ops of streams and their consumer groups.
//!
//! | op | as a command |
//! | --- | --- |
//! | [`AddEntry`] | `XADD key id field value ...` |
//! | [`DeleteEntries`] | `XDEL key id ...`, those that were there |
//! | [`TrimEntries`] | `XTRIM key MAXLEN = n`, the length that it left |
//! | [`SetId`] | `XSETID key id [ENTRIESADDED n] [MAXDELETEDID id]` |
//! | [`CreateGroup`] | `XGROUP CREATE key group id MKSTREAM [ENTRIESREAD n]` |
//! | [`SetGroup`] | `XGROUP SETID key group id [ENTRIESREAD n]` |
//! | [`DestroyGroup`] | `XGROUP DESTROY key group` |
//! | [`CreateConsumer`], [`DeleteConsumer`] | `XGROUP CREATECONSUMER`, `DELCONSUMER` |
//! | [`Assign`] | `XCLAIM key group consumer 0 id ... TIME ms RETRYCOUNT n FORCE JUSTID` |
//! | [`Acknowledge`] | `XACK key group id ...`, those that were pending |
//!
//! What is read by a group is assigned ([`Assign`]), and the group has come further
//! ([`SetGroup`]). A length rather than an ID tells what trimming left: it is known
//! without unpacking the IDs of a block, and the oldest entries of two equal streams
//! are the same.
//!
//! What only notes how consumers work (when one was seen, where its pending entries
//! begin) is no effect: see the functions at the end.

use super::group::{ConsumerId, Group};
use super::pending::PendingEntry;
use super::{Shape, Stream, StreamError, StreamId, StreamScratch, Trim};
use crate::effect::{Change, Form, Told};
use crate::hash::Key;
use crate::slot::{Found, SlotGuard};

/// Appends an entry to a stream, made if there is none; its place. The ID is
/// greater than the stream's last one.
#[derive(Clone, Debug)]
pub struct AddEntry<'a, I> {
    /// The entry's ID.
    pub id: StreamId,
    /// Its fields: name and value.
    pub fields: I,
    /// How large the stream's parts get.
    pub shape: &'a Shape,
}

impl<'f, I> Change for AddEntry<'_, I>
where
    I: ExactSizeIterator<Item = (&'f [u8], &'f [u8])> + Clone,
{
    type Outcome = Result<Found, StreamError>;

    #[inline]
    fn apply(
        &mut self,
        slot: &mut SlotGuard<'_>,
        key: &Key<'_>,
        found: Option<Found>,
    ) -> Result<Found, StreamError> {
        let place = match found {
            Some(found) => found,
            None => {
                super::check_size(self.fields.clone())?;
                slot.insert_stream(key)
            }
        };
        slot.append_entry(place, self.id, self.fields.clone(), self.shape)?;
        Ok(place)
    }

    fn form(&self, _: &Self::Outcome, key: &[u8], form: &mut Form<'_>) {
        form.command("XADD").bytes(key).display(self.id);
        for (name, value) in self.fields.clone() {
            form.bytes(name).bytes(value);
        }
    }

    fn told(&self, outcome: &Self::Outcome) -> Told {
        if outcome.is_ok() { Told::Everybody } else { Told::Nobody }
    }
}

/// Deletes entries; how many there were. Those that do not exist are passed over.
/// On an error the entries before the one that cannot be looked up are deleted.
#[derive(Debug)]
pub struct DeleteEntries<'a> {
    /// Which; in the end those that were deleted.
    pub ids: Vec<StreamId>,
    /// How large the stream's parts get.
    pub shape: &'a Shape,
    /// What blocks are unpacked into.
    pub scratch: &'a mut StreamScratch,
}

impl Change for DeleteEntries<'_> {
    type Outcome = Result<u64, StreamError>;

    fn apply(
        &mut self,
        slot: &mut SlotGuard<'_>,
        _: &Key<'_>,
        found: Option<Found>,
    ) -> Result<u64, StreamError> {
        let Self { ids, shape, scratch } = self;
        let mut error = Ok(());
        let deleted = with(slot, found, |stream| {
            ids.retain(|&id| {
                if error.is_ok() {
                    match stream.delete(id, shape, scratch) {
                        Ok(deleted) => return deleted,
                        Err(failed) => error = Err(failed),
                    }
                }
                false
            });
            ids.len() as u64
        });
        error.map(|()| deleted.unwrap_or(0))
    }

    fn form(&self, _: &Self::Outcome, key: &[u8], form: &mut Form<'_>) {
        form.command("XDEL").bytes(key);
        self.ids.iter().for_each(|id| {
            form.display(id);
        });
    }

    fn told(&self, _: &Self::Outcome) -> Told {
        if self.ids.is_empty() { Told::Nobody } else { Told::Everybody }
    }
}

/// Drops the oldest entries; how many.
#[derive(Debug)]
pub struct TrimEntries<'a> {
    /// What is to hold in the end.
    pub trim: Trim,
    /// The limit of the `~` form in entries, 0 for none; `None` trims exactly.
    pub approximate: Option<u64>,
    /// How large the stream's parts get.
    pub shape: &'a Shape,
    /// What blocks are unpacked into.
    pub scratch: &'a mut StreamScratch,
}

/// What trimming came to.
#[derive(Clone, Copy, Debug)]
pub struct Trimmed {
    /// How many entries are left.
    left: u64,
    /// How many there were before.
    before: u64,
    result: Result<(), StreamError>,
}

impl Trimmed {
    /// How many entries were dropped. On an error, which is that of a damaged
    /// block, there may have been some too.
    pub fn dropped(self) -> Result<u64, StreamError> {
        self.result.map(|()| self.before - self.left)
    }
}

impl Change for TrimEntries<'_> {
    type Outcome = Trimmed;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, _: &Key<'_>, found: Option<Found>) -> Trimmed {
        let Self { trim, approximate, shape, scratch } = self;
        let trimmed = with(slot, found, |stream| {
            let before = stream.len();
            let result = stream.trim(*trim, *approximate, shape, scratch).map(|_| ());
            Trimmed { left: stream.len(), before, result }
        });
        trimmed.unwrap_or(Trimmed { left: 0, before: 0, result: Ok(()) })
    }

    fn form(&self, trimmed: &Trimmed, key: &[u8], form: &mut Form<'_>) {
        form.command("XTRIM").bytes(key).word("MAXLEN").word("=").number(trimmed.left);
    }

    fn told(&self, trimmed: &Trimmed) -> Told {
        if trimmed.left < trimmed.before { Told::Everybody } else { Told::Nobody }
    }
}

/// Sets what `XSETID` sets. The ID is not below the last entry's.
#[derive(Clone, Copy, Debug)]
pub struct SetId {
    /// The stream's last ID.
    pub last_id: StreamId,
    /// How many entries were ever added, if that is to change.
    pub entries_added: Option<u64>,
    /// The greatest ID that was deleted, if that is to change.
    pub max_deleted_id: Option<StreamId>,
}

impl Change for SetId {
    type Outcome = ();

    fn apply(&mut self, slot: &mut SlotGuard<'_>, _: &Key<'_>, found: Option<Found>) {
        let Self { last_id, entries_added, max_deleted_id } = *self;
        with(slot, found, |stream| stream.set_id(last_id, entries_added, max_deleted_id));
    }

    fn form(&self, (): &(), key: &[u8], form: &mut Form<'_>) {
        form.command("XSETID").bytes(key).display(self.last_id);
        if let Some(added) = self.entries_added {
            form.word("ENTRIESADDED").number(added);
        }
        if let Some(id) = self.max_deleted_id {
            form.word("MAXDELETEDID").display(id);
        }
    }
}

/// Makes a group, and a stream if there is none; what was made.
#[derive(Clone, Copy, Debug)]
pub struct CreateGroup<'a> {
    /// The group's name.
    pub group: &'a [u8],
    /// After which entry it begins to be delivered.
    pub last_id: StreamId,
    /// How many entries it counts as having been given.
    pub entries_read: Option<u64>,
}

/// What [`CreateGroup`] has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// Nothing: there is a group of that name.
    Nothing,
    /// The group.
    Group,
    /// The group and its stream.
    Stream,
}

impl Change for CreateGroup<'_> {
    type Outcome = Created;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> Created {
        let place = found.unwrap_or_else(|| slot.insert_stream(key));
        let create =
            |stream: &mut Stream| stream.create_group(self.group, self.last_id, self.entries_read);
        match with(slot, Some(place), create) {
            Some(true) if found.is_none() => Created::Stream,
            Some(true) => Created::Group,
            _ => Created::Nothing,
        }
    }

    fn form(&self, _: &Created, key: &[u8], form: &mut Form<'_>) {
        form.command("XGROUP").word("CREATE").bytes(key).bytes(self.group);
        form.display(self.last_id).word("MKSTREAM");
        put_entries_read(self.entries_read, form);
    }

    fn told(&self, created: &Created) -> Told {
        match created {
            Created::Nothing => Told::Nobody,
            Created::Group => Told::Quietly,
            Created::Stream => Told::Everybody,
        }
    }
}

fn put_entries_read(read: Option<u64>, form: &mut Form<'_>) {
    // A client may have set it so high that it went round: as good as unknown.
    if let Some(read) = read.filter(|&read| i64::try_from(read).is_ok()) {
        form.word("ENTRIESREAD").number(read);
    }
}

/// Sets how far a group has been delivered; whether there is such a group.
#[derive(Clone, Copy, Debug)]
pub struct SetGroup<'a> {
    /// The group's name.
    pub group: &'a [u8],
    /// The last entry delivered.
    pub last_id: StreamId,
    /// How many entries were delivered since the stream began, if known.
    pub entries_read: Option<u64>,
}

impl Change for SetGroup<'_> {
    type Outcome = bool;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, _: &Key<'_>, found: Option<Found>) -> bool {
        let set = |_: &Stream, group: &mut Group| group.set_id(self.last_id, self.entries_read);
        with_group(slot, found, self.group, set).is_some()
    }

    fn form(&self, _: &bool, key: &[u8], form: &mut Form<'_>) {
        form.command("XGROUP").word("SETID").bytes(key).bytes(self.group).display(self.last_id);
        put_entries_read(self.entries_read, form);
    }

    fn told(&self, set: &bool) -> Told {
        quietly(*set)
    }
}

/// Removes a group; whether there was one. Who waits by it is to hear of that.
#[derive(Clone, Copy, Debug)]
pub struct DestroyGroup<'a>(
    /// The group's name.
    pub &'a [u8],
);

impl Change for DestroyGroup<'_> {
    type Outcome = bool;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, _: &Key<'_>, found: Option<Found>) -> bool {
        with(slot, found, |stream| stream.remove_group(self.0)) == Some(true)
    }

    fn form(&self, _: &bool, key: &[u8], form: &mut Form<'_>) {
        form.command("XGROUP").word("DESTROY").bytes(key).bytes(self.0);
    }

    fn told(&self, removed: &bool) -> Told {
        if *removed { Told::Waiting } else { Told::Nobody }
    }
}

/// Makes a consumer; whether it is new.
#[derive(Clone, Copy, Debug)]
pub struct CreateConsumer<'a> {
    /// The group's name.
    pub group: &'a [u8],
    /// The consumer's.
    pub consumer: &'a [u8],
}

impl Change for CreateConsumer<'_> {
    type Outcome = bool;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, _: &Key<'_>, found: Option<Found>) -> bool {
        let now = slot.now();
        let make = |_: &Stream, group: &mut Group| group.make_consumer(self.consumer, now).1;
        with_group(slot, found, self.group, make) == Some(true)
    }

    fn form(&self, _: &bool, key: &[u8], form: &mut Form<'_>) {
        form.command("XGROUP").word("CREATECONSUMER").bytes(key);
        form.bytes(self.group).bytes(self.consumer);
    }

    fn told(&self, new: &bool) -> Told {
        quietly(*new)
    }
}

/// Removes a consumer and what is pending for it; how much that was, if there is
/// such a consumer.
#[derive(Clone, Copy, Debug)]
pub struct DeleteConsumer<'a> {
    /// The group's name.
    pub group: &'a [u8],
    /// The consumer's.
    pub consumer: &'a [u8],
}

impl Change for DeleteConsumer<'_> {
    type Outcome = Option<u64>;

    fn apply(
        &mut self,
        slot: &mut SlotGuard<'_>,
        _: &Key<'_>,
        found: Option<Found>,
    ) -> Option<u64> {
        with_group(slot, found, self.group, |_, group| {
            group.find_consumer(self.consumer).map(|consumer| group.remove_consumer(consumer))
        })?
    }

    fn form(&self, _: &Option<u64>, key: &[u8], form: &mut Form<'_>) {
        form.command("XGROUP").word("DELCONSUMER").bytes(key);
        form.bytes(self.group).bytes(self.consumer);
    }

    fn told(&self, removed: &Option<u64>) -> Told {
        quietly(removed.is_some())
    }
}

/// Makes entries of the stream pending for a consumer, whoever had them before.
/// The consumer exists.
#[derive(Clone, Copy, Debug)]
pub struct Assign<'a> {
    /// The group's name.
    pub group: &'a [u8],
    /// The consumer's.
    pub consumer: &'a [u8],
    /// The entries.
    pub ids: &'a [StreamId],
    /// When they were delivered, Unix milliseconds.
    pub delivered: u64,
    /// How often each was.
    pub count: u64,
}

impl Change for Assign<'_> {
    type Outcome = ();

    fn apply(&mut self, slot: &mut SlotGuard<'_>, _: &Key<'_>, found: Option<Found>) {
        let now = slot.now();
        with_group(slot, found, self.group, |_, group| {
            if let Some(consumer) = group.find_consumer(self.consumer) {
                for &id in self.ids {
                    group.assign(id, consumer, self.delivered, self.count);
                }
                group.was_active(consumer, now);
            }
        });
    }

    fn form(&self, (): &(), key: &[u8], form: &mut Form<'_>) {
        form.command("XCLAIM").bytes(key).bytes(self.group).bytes(self.consumer).word("0");
        self.ids.iter().for_each(|id| {
            form.display(id);
        });
        form.word("TIME").number(self.delivered).word("RETRYCOUNT").number(self.count);
        form.word("FORCE").word("JUSTID");
    }

    fn told(&self, (): &()) -> Told {
        quietly(!self.ids.is_empty())
    }
}

/// Makes entries pending no longer; how many were.
#[derive(Clone, Debug)]
pub struct Acknowledge<'a> {
    /// The group's name.
    pub group: &'a [u8],
    /// Which; in the end those that were pending.
    pub ids: Vec<StreamId>,
}

impl Change for Acknowledge<'_> {
    type Outcome = usize;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, _: &Key<'_>, found: Option<Found>) -> usize {
        let Self { group, ids } = self;
        let acknowledge = |_: &Stream, group: &mut Group| ids.retain(|&id| group.acknowledge(id));
        if with_group(slot, found, group, acknowledge).is_none() {
            self.ids.clear();
        }
        self.ids.len()
    }

    fn form(&self, _: &usize, key: &[u8], form: &mut Form<'_>) {
        form.command("XACK").bytes(key).bytes(self.group);
        self.ids.iter().for_each(|id| {
            form.display(id);
        });
    }

    fn told(&self, acknowledged: &usize) -> Told {
        quietly(*acknowledged > 0)
    }
}

fn quietly(changed: bool) -> Told {
    if changed { Told::Quietly } else { Told::Nobody }
}

fn with<R>(
    slot: &mut SlotGuard<'_>,
    found: Option<Found>,
    change: impl FnOnce(&mut Stream) -> R,
) -> Option<R> {
    slot.with_stream(found?, change)
}

fn with_group<R>(
    slot: &mut SlotGuard<'_>,
    found: Option<Found>,
    group: &[u8],
    change: impl FnOnce(&Stream, &mut Group) -> R,
) -> Option<R> {
    with(slot, found, |stream| stream.with_group(group, change))?
}

impl SlotGuard<'_> {
    /// Notes that a consumer tries to read or claim, and if it is `active` that it
    /// was given something. No effect: no commit tells of it.
    pub fn saw_consumer(&mut self, found: Found, group: &[u8], consumer: &[u8], active: bool) {
        let now = self.now();
        self.note_in_group(found, group, |group| {
            if let Some(id) = group.find_consumer(consumer) {
                group.saw(id, now);
                if active {
                    group.was_active(id, now);
                }
            }
        });
    }

    /// The first pending entries of a consumer at or after `from`, `most` of them.
    /// Remembers where nothing was found, which is no effect.
    pub fn pending_of(
        &mut self,
        found: Found,
        group: &[u8],
        consumer: ConsumerId,
        from: Option<StreamId>,
        most: usize,
    ) -> Vec<PendingEntry> {
        let pending = self.note_in_group(found, group, |group| {
            let mut from = from;
            let next = || {
                let entry = group.next_of_noted(consumer, from?)?;
                from = entry.id.next();
                Some(entry)
            };
            std::iter::from_fn(next).take(most).collect()
        });
        pending.unwrap_or_default()
    }

    /// Notes something in a group that is no effect, and takes no memory.
    fn note_in_group<R>(
        &mut self,
        found: Found,
        group: &[u8],
        note: impl FnOnce(&mut Group) -> R,
    ) -> Option<R> {
        self.stream_to_note(found)?.with_group(group, |_, group| note(group))
    }
}
