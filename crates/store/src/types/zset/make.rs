//! A sorted set that is being made of its members.

use super::SortedSets;
use super::ops::{ZAdd, ZAdded, ZLimits, ZWhen};
use super::order::Room;
use crate::cell::entry::Payload;
use crate::store::Session;
use crate::types::elements::Elements;
use crate::types::pages::edit;
use crate::types::string::NewStr;
use crate::types::{Draft, damaged, invalid};
use std::io;

pub(crate) struct ZSetDraft<'s> {
    session: &'s Session,
    op: ZAdd<()>,
    zset: edit::Draft<SortedSets>,
    record: Room,
}

impl<'s> ZSetDraft<'s> {
    pub(crate) fn new(session: &'s Session, limits: ZLimits, room: Vec<u8>) -> Self {
        let when = ZWhen { nx: true, ..ZWhen::default() };
        let op = ZAdd { items: (), when, increase: false, limits };
        Self { session, op, zset: edit::Draft::new(room), record: Room::new() }
    }
}

impl Elements for ZSetDraft<'_> {
    fn member(&mut self, score: f64, member: &NewStr<'_>) -> io::Result<()> {
        if score.is_nan() {
            return Err(invalid("a score is not a number"));
        }
        let (op, record) = (&self.op, &mut self.record);
        let mut added = ZAdded::default();
        // What was saved is what is kept: a negative zero may be of a skiplist, which the
        // sorted set becomes only with a later member.
        let held = |score, _| score;
        let add = self
            .zset
            .edit(self.session, |zset| op.add(zset, (score, member), held, &mut added, record));
        add.map_err(damaged)?;
        match added.added {
            1 => Ok(()),
            _ => Err(invalid("a sorted set has a member twice")),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Draft for ZSetDraft<'_> {
    fn take(&mut self) -> Option<Payload<'_>> {
        self.zset.take()
    }

    fn into_room(self: Box<Self>) -> Vec<u8> {
        self.zset.into_room()
    }
}
