//! A stream that is being made of its entries and groups.
//!
//! What is pending comes before its consumers, as RDB has it, and waits here until one of
//! them says that it is its own: about 40 bytes an entry, of one group at a time.

use super::{ConsumerId, Shape, Stream, StreamId};
use crate::cell::entry::Payload;
use crate::types::elements::{ConsumerOutline, Elements, EntryFields, GroupOutline, StreamFacts};
use crate::types::{Draft, invalid};
use std::collections::BTreeMap;
use std::io;

pub(crate) struct StreamDraft<'s> {
    shape: &'s Shape,
    stream: Stream,
    group: Option<OpenGroup>,
    /// Not its own: it is given back.
    room: Vec<u8>,
}

/// A group of which not all has come.
struct OpenGroup {
    name: Vec<u8>,
    /// When it was delivered, and how often.
    pending: BTreeMap<StreamId, (u64, u64)>,
    consumer: Option<ConsumerId>,
}

impl<'s> StreamDraft<'s> {
    pub(crate) fn new(shape: &'s Shape, room: Vec<u8>) -> Self {
        Self { shape, stream: Stream::new(), group: None, room }
    }

    /// The group that is open is whole.
    fn close_group(&mut self) -> io::Result<()> {
        match self.group.take() {
            Some(group) if !group.pending.is_empty() => {
                Err(invalid("an entry is pending for no consumer"))
            }
            _ => Ok(()),
        }
    }

    fn open_group(&mut self) -> io::Result<&mut OpenGroup> {
        self.group.as_mut().ok_or_else(|| invalid("there is no group"))
    }
}

impl Elements for StreamDraft<'_> {
    fn entry(&mut self, id: StreamId, fields: &EntryFields<'_>) -> io::Result<()> {
        let appended = self.stream.append(id, fields.iter().copied(), self.shape);
        appended.map(|_| ()).map_err(|error| invalid(error.to_string()))
    }

    fn facts(&mut self, facts: &StreamFacts) -> io::Result<()> {
        let len = self.stream.len();
        if facts.len.is_some_and(|told| told != len) {
            return Err(invalid("a stream's length is not that of its entries"));
        }
        if facts.last_id < self.stream.last_id() {
            return Err(invalid("a stream's last ID is less than its last entry's"));
        }
        let added = facts.entries_added.unwrap_or(len);
        self.stream.set_id(facts.last_id, Some(added), Some(facts.max_deleted_id));
        Ok(())
    }

    fn group(&mut self, group: &GroupOutline<'_>) -> io::Result<()> {
        self.close_group()?;
        if !self.stream.create_group(group.name, group.last_id, group.entries_read) {
            return Err(invalid("a stream has a group twice"));
        }
        let name = group.name.to_vec();
        self.group = Some(OpenGroup { name, pending: BTreeMap::new(), consumer: None });
        Ok(())
    }

    fn pending(&mut self, id: StreamId, delivered: u64, count: u64) -> io::Result<()> {
        match self.open_group()?.pending.insert(id, (delivered, count)) {
            None => Ok(()),
            Some(_) => Err(invalid("an entry is pending twice")),
        }
    }

    fn consumer(&mut self, consumer: &ConsumerOutline<'_>) -> io::Result<()> {
        let Self { stream, group, .. } = self;
        let group = group.as_mut().ok_or_else(|| invalid("there is no group"))?;
        let made = stream.with_group(&group.name, |_, group| {
            let (id, is_new) = group.make_consumer(consumer.name, consumer.seen);
            if let Some(at) = consumer.active {
                group.was_active(id, at);
            }
            is_new.then_some(id)
        });
        group.consumer = made.flatten();
        match group.consumer {
            Some(_) => Ok(()),
            None => Err(invalid("a group has a consumer twice")),
        }
    }

    fn owned(&mut self, id: StreamId) -> io::Result<()> {
        let Self { stream, group, .. } = self;
        let group = group.as_mut().ok_or_else(|| invalid("there is no group"))?;
        let pending = group.pending.remove(&id);
        let (Some((delivered, count)), Some(consumer)) = (pending, group.consumer) else {
            return Err(invalid("a consumer has an entry that is not pending"));
        };
        stream.with_group(&group.name, |_, group| group.assign(id, consumer, delivered, count));
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        self.close_group()
    }
}

impl Draft for StreamDraft<'_> {
    fn take(&mut self) -> Option<Payload<'_>> {
        Some(Payload::boxed(std::mem::take(&mut self.stream)))
    }

    fn into_room(self: Box<Self>) -> Vec<u8> {
        self.room
    }
}
