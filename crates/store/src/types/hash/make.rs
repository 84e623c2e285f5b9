//! A hash that is being made of its fields.

use super::Hashes;
use super::ops::{FieldExpiry, HashLimits, SetFields};
use crate::cell::entry::Payload;
use crate::store::Session;
use crate::types::elements::Elements;
use crate::types::pages::edit;
use crate::types::pages::keyed::with_room;
use crate::types::string::NewStr;
use crate::types::{Draft, damaged, invalid};
use std::io;

pub(crate) struct HashDraft<'s> {
    session: &'s Session,
    limits: HashLimits,
    hash: edit::Draft<Hashes>,
}

impl<'s> HashDraft<'s> {
    pub(crate) fn new(session: &'s Session, limits: HashLimits, room: Vec<u8>) -> Self {
        Self { session, limits, hash: edit::Draft::new(room) }
    }
}

impl Elements for HashDraft<'_> {
    fn field(
        &mut self,
        field: &NewStr<'_>,
        value: &NewStr<'_>,
        expires: Option<u64>,
    ) -> io::Result<()> {
        let expiry = expires.map_or(FieldExpiry::Clear, FieldExpiry::At);
        let op = SetFields::new((), expiry, self.limits);
        let set = |room: &mut Vec<u8>| {
            self.hash.edit(self.session, |hash| op.set(hash, field, value, room))
        };
        match with_room(set).map_err(damaged)? {
            true => Ok(()),
            false => Err(invalid("a hash has a field twice")),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Draft for HashDraft<'_> {
    fn take(&mut self) -> Option<Payload<'_>> {
        self.hash.take()
    }

    fn into_room(self: Box<Self>) -> Vec<u8> {
        self.hash.into_room()
    }
}
