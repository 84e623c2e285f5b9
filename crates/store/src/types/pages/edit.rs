//! How a collection is read and changed where it lies: one way for all types, whether
//! it is small or large, packed or raw.

use super::paged::Item;
use super::run::{Run, RunBuf};
use crate::books::weight::Weight;
use crate::cell::entry::{Cell, Payload};
use crate::effect::Told;
use crate::hash::Key;
use crate::pack::form::Damaged;
use crate::packing::PackedStr;
use crate::slot::{Found, SlotGuard, after_write};
use crate::store::Session;
use crate::types::Sink;
use crate::types::forms::{Boxed, Form};
use std::cell::RefCell;

/// A type of collection: what it is while it is small, and when it has grown.
pub(crate) trait Collection: 'static {
    /// In its box.
    type Large: Boxed;
    /// In its entry.
    const SMALL: Form;

    /// What a small one becomes.
    fn grow(run: Run<'_>) -> Self::Large;

    /// How many items a large one has.
    fn len(large: &Self::Large) -> usize;
}

/// A collection to be read.
#[derive(Debug)]
pub(crate) enum View<'v, L> {
    Small(Run<'v>),
    Large(&'v L),
}

impl<L> Clone for View<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for View<'_, L> {}

/// A collection that is being changed.
pub(crate) struct Edit<'e, C: Collection> {
    pub(crate) session: &'e Session,
    held: Held<'e, C>,
}

enum Held<'e, C: Collection> {
    Small(&'e mut Vec<u8>),
    Grown(C::Large),
    Large(&'e mut C::Large),
}

impl<C: Collection> Edit<'_, C> {
    /// The collection, if it is small.
    #[inline]
    pub(crate) fn small(&mut self) -> Option<RunBuf<'_>> {
        match &mut self.held {
            Held::Small(bytes) => Some(RunBuf::new(bytes)),
            Held::Grown(_) | Held::Large(_) => None,
        }
    }

    /// The same, if it still has room for so many items of so many bytes.
    #[inline]
    pub(crate) fn small_with_room(&mut self, count: usize, bytes: usize) -> Option<RunBuf<'_>> {
        self.small().filter(|small| small.has_room(count, bytes))
    }

    /// The collection as a large one: a small one grows.
    pub(crate) fn large(&mut self) -> &mut C::Large {
        if let Held::Small(bytes) = &self.held {
            self.held = Held::Grown(C::grow(Run::read(bytes)));
        }
        match &mut self.held {
            Held::Grown(large) => large,
            Held::Large(large) => large,
            Held::Small(_) => unreachable!("it has grown"),
        }
    }

    /// Puts a large one, made elsewhere, in the place of one that has nothing.
    pub(crate) fn put_large(&mut self, large: C::Large) {
        debug_assert_eq!(self.len(), 0);
        self.held = Held::Grown(large);
    }

    fn len(&self) -> usize {
        match &self.held {
            Held::Small(bytes) => Run::read(bytes).count,
            Held::Grown(large) => C::len(large),
            Held::Large(large) => C::len(large),
        }
    }
}

/// A collection that is being made and is in no slot yet: small, until it outgrows that.
pub(crate) struct Draft<C: Collection> {
    small: Vec<u8>,
    large: Option<C::Large>,
}

impl<C: Collection> Draft<C> {
    /// An empty one; `room` is where it is made while it is small.
    pub(crate) fn new(mut room: Vec<u8>) -> Self {
        room.clear();
        Self { small: room, large: None }
    }

    /// Changes it as a collection in its slot is changed.
    pub(crate) fn edit<R>(
        &mut self,
        session: &Session,
        edit: impl FnOnce(&mut Edit<'_, C>) -> R,
    ) -> R {
        let held = match &mut self.large {
            Some(large) => Held::Large(large),
            None => Held::Small(&mut self.small),
        };
        let mut edited = Edit { session, held };
        let outcome = edit(&mut edited);
        if let Held::Grown(large) = edited.held {
            self.large = Some(large);
        }
        outcome
    }

    /// The collection, for its entry; none if it has no items.
    pub(crate) fn take(&mut self) -> Option<Payload<'_>> {
        match self.large.take() {
            Some(large) => (C::len(&large) > 0).then(|| Payload::boxed(large)),
            None => {
                let is_empty = Run::read(&self.small).count == 0;
                (!is_empty).then_some(Payload::Inline(C::SMALL, &self.small))
            }
        }
    }

    /// The room that it was given.
    pub(crate) fn into_room(self) -> Vec<u8> {
        self.small
    }
}

/// What a change of a collection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edited<R> {
    /// What whoever changed it says.
    pub outcome: R,
    /// Nothing was left of it, and so its key is gone.
    pub is_gone: bool,
}

/// What most changes of a collection come to: how many of its items were concerned.
pub(crate) type Changed = Result<Edited<usize>, Damaged>;

/// Who is to hear of a change that may have concerned none.
pub(crate) fn told(outcome: &Changed) -> Told {
    match outcome {
        Ok(Edited { outcome: 1.., .. }) => Told::Everybody,
        _ => Told::Nobody,
    }
}

thread_local! {
    /// Where small collections are changed.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl SlotGuard<'_> {
    /// Changes a collection, or makes one where `found` is none. One of which nothing is
    /// left goes, and its key with it. O(small collection), or of the change.
    pub(crate) fn edit<C: Collection, R>(
        &mut self,
        key: &Key<'_>,
        found: Option<Found>,
        edit: impl FnOnce(&mut Edit<'_, C>) -> R,
    ) -> Result<Edited<R>, Damaged> {
        let session = self.session();
        if let Some(found) = found
            && self.cell(found).get::<C::Large>().is_some()
        {
            let cell = self.cell_mut(found);
            cell.set_access(after_write(session, cell.access()));
            let large = cell.get_mut::<C::Large>().expect("it was one just now");
            let before = large.measure();
            let mut edited = Edit::<C> { session, held: Held::Large(large) };
            let outcome = edit(&mut edited);
            let is_gone = edited.len() == 0;
            let after = edited.large().measure();
            let kind = <C::Large as Boxed>::FORM.type_of();
            Weight::changed(kind, before, after, session.store());
            if after.pending > 0 {
                self.note_unpacked();
            }
            if is_gone {
                drop(self.detach(found));
            }
            return Ok(Edited { outcome, is_gone });
        }
        let mut room = ROOM.take();
        room.clear();
        let edited = self.edit_small::<C, R>(key, found, &mut room, edit);
        ROOM.set(room);
        edited
    }

    fn edit_small<C: Collection, R>(
        &mut self,
        key: &Key<'_>,
        found: Option<Found>,
        room: &mut Vec<u8>,
        edit: impl FnOnce(&mut Edit<'_, C>) -> R,
    ) -> Result<Edited<R>, Damaged> {
        let session = self.session();
        if let Some(found) = found {
            self.copy_small(found, room)?;
        }
        let mut edited = Edit::<C> { session, held: Held::Small(room) };
        let outcome = edit(&mut edited);
        let is_empty = edited.len() == 0;
        let payload = match edited.held {
            Held::Small(bytes) => Payload::Inline(C::SMALL, bytes),
            Held::Grown(large) => Payload::boxed(large),
            Held::Large(_) => unreachable!("it was small"),
        };
        match found {
            None if is_empty => {}
            None => {
                let mut cell = Cell::new(key.tag(), key.bytes, None, payload);
                cell.set_access(after_write(session, 0));
                self.insert(key, cell);
            }
            Some(found) if is_empty => drop(self.detach(found)),
            Some(found) if self.is_as_it_was(found, &payload) => {
                let cell = self.cell_mut(found);
                cell.set_access(after_write(session, cell.access()));
            }
            Some(found) => {
                self.change(found, |cell| {
                    cell.replace(cell.expiry(), payload);
                    cell.set_access(after_write(session, cell.access()));
                });
            }
        }
        Ok(Edited { outcome, is_gone: is_empty && found.is_some() })
    }

    /// Whether a small collection lies raw in its entry as the change has left it.
    fn is_as_it_was(&self, found: Found, payload: &Payload<'_>) -> bool {
        let cell = self.cell(found);
        let Payload::Inline(_, bytes) = payload else { return false };
        cell.bits().is_raw_inline() && cell.bytes() == *bytes
    }

    /// Copies the bytes of a small collection, unpacked, to `room`.
    fn copy_small(&self, found: Found, room: &mut Vec<u8>) -> Result<(), Damaged> {
        let cell = self.cell(found);
        match cell.bits().is_packed_inline() {
            true => PackedStr { form: cell.bytes(), session: self.session() }.append_to(room),
            false => {
                room.extend_from_slice(cell.bytes());
                Ok(())
            }
        }
    }

    /// A collection to be read; `room` takes what has to be unpacked.
    #[inline]
    pub(crate) fn view<'v, C: Collection>(
        &'v self,
        found: Found,
        room: &'v mut Vec<u8>,
    ) -> Result<View<'v, C::Large>, Damaged> {
        let cell = self.cell(found);
        if let Some(large) = cell.get::<C::Large>() {
            return Ok(View::Large(large));
        }
        if cell.bits().is_packed_inline() {
            room.clear();
            self.copy_small(found, room)?;
            return Ok(View::Small(Run::read(room)));
        }
        Ok(View::Small(Run::read(cell.bytes())))
    }
}

/// What a change of a collection came to, if none of it was damaged.
pub(crate) fn flat<R>(edited: Edited<Result<R, Damaged>>) -> Result<Edited<R>, Damaged> {
    Ok(Edited { outcome: edited.outcome?, is_gone: edited.is_gone })
}

/// Gives the sink an item as the bytes of a piece, which is whole when the caller says so.
pub(crate) fn give(sink: &mut dyn Sink, item: &Item<'_>) {
    match item {
        Item::Bytes(bytes) => sink.part(bytes),
        Item::Large(string) => string.parts().iter().for_each(|part| sink.part(part)),
    }
}
