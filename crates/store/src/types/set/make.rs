//! A set that is being made of its members.

use super::Sets;
use super::ops::{SetLimits, add};
use crate::cell::entry::Payload;
use crate::store::Session;
use crate::types::elements::Elements;
use crate::types::pages::edit;
use crate::types::pages::paged::Needle;
use crate::types::string::NewStr;
use crate::types::{Draft, damaged, invalid};
use std::io;

pub(crate) struct SetDraft<'s> {
    session: &'s Session,
    limits: SetLimits,
    set: edit::Draft<Sets>,
}

impl<'s> SetDraft<'s> {
    pub(crate) fn new(session: &'s Session, limits: SetLimits, room: Vec<u8>) -> Self {
        Self { session, limits, set: edit::Draft::new(room) }
    }
}

impl Elements for SetDraft<'_> {
    fn item(&mut self, item: &NewStr<'_>) -> io::Result<()> {
        let (needle, limits) = (Needle::new(item), self.limits);
        match self.set.edit(self.session, |set| add(set, &needle, limits)).map_err(damaged)? {
            true => Ok(()),
            false => Err(invalid("a set has a member twice")),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Draft for SetDraft<'_> {
    fn take(&mut self) -> Option<Payload<'_>> {
        self.set.take()
    }

    fn into_room(self: Box<Self>) -> Vec<u8> {
        self.set.into_room()
    }
}
