//! A list that is being made of its items.

use super::Lists;
use super::ops::insert;
use crate::cell::entry::Payload;
use crate::store::Session;
use crate::types::elements::Elements;
use crate::types::pages::edit;
use crate::types::pages::paged::Needle;
use crate::types::string::NewStr;
use crate::types::{Draft, damaged};
use std::io;

pub(crate) struct ListDraft<'s> {
    session: &'s Session,
    list: edit::Draft<Lists>,
}

impl<'s> ListDraft<'s> {
    pub(crate) fn new(session: &'s Session, room: Vec<u8>) -> Self {
        Self { session, list: edit::Draft::new(room) }
    }
}

impl Elements for ListDraft<'_> {
    fn item(&mut self, item: &NewStr<'_>) -> io::Result<()> {
        let needle = Needle::new(item);
        self.list.edit(self.session, |list| insert(list, usize::MAX, &needle)).map_err(damaged)
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Draft for ListDraft<'_> {
    fn take(&mut self) -> Option<Payload<'_>> {
        self.list.take()
    }

    fn into_room(self: Box<Self>) -> Vec<u8> {
        self.list.into_room()
    }
}
