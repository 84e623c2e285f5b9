//! The table of types. To add one: a file or folder here that implements
//! [`DataType`], and one line in the table below.
//!
//! What a type is to everybody else stands in its row ([`Row`]), as functions made
//! from that trait, and in the rows of its forms ([`forms`]); nothing outside of a
//! type's own files asks which type it is to decide how a value is held, weighed,
//! copied, digested, cooled or freed. Commands do ask, to answer `WRONGTYPE`.

pub mod elements;
pub(crate) mod forms;
pub mod hash;
pub mod list;
pub mod pages;
pub mod set;
pub mod stream;
pub mod string;
pub mod zset;

#[cfg(test)]
mod counter;

use crate::away::Lost;
use crate::cell::entry::Payload;
use crate::hash::Key;
use crate::large::PackedChain;
use crate::pack::form::Damaged;
use crate::slot::{Found, SlotGuard};
use bytes::Bytes;
use elements::Elements;
use forms::{FormRow, Value};
use std::io;
use stream::{StreamError, StreamScratch};

/// A type of data.
pub(crate) trait DataType {
    /// Redis's word for it.
    const NAME: &'static str;
    /// Redis's number of it, as digests and dumps have it.
    const NUMBER: u32;
    /// Whether a value is the content of a file, which may have a MIME type.
    const HAS_MIME: bool = false;
    /// What the pieces of its boxed values are called, where metrics tell them from those
    /// that lie in their entries.
    const BOXED_PIECES: &'static str = Self::NAME;
    /// How its values lie in memory.
    const FORMS: &'static [FormRow];

    /// What Redis would answer to `OBJECT ENCODING` of a value that has so many
    /// bytes raw. `notes` tells what is noted of a small collection, packed or not.
    fn encoding(value: Value<'_>, raw: usize, notes: &mut dyn FnMut() -> u8) -> &'static str;

    /// Bytes of the value as a client sees them.
    fn len(value: Value<'_>) -> usize {
        value.measure().raw
    }

    /// When a part of the value expires first, in Unix milliseconds; `u64::MAX` for never.
    /// O(1). Asked only of what is in a box.
    fn due(_: Value<'_>) -> u64 {
        u64::MAX
    }

    /// Removes parts of the value whose time has come, `limit` at most; how many.
    fn remove_due(_: &mut SlotGuard<'_>, _: &Key<'_>, _: Found, _: usize) -> usize {
        0
    }

    /// Gives the sink what the value is made of.
    fn digest(
        value: Value<'_>,
        reader: &mut dyn Reader,
        sink: &mut dyn Sink,
    ) -> Result<(), Unreadable>;

    /// Gives whatever takes elements those of the value, whatever of it is packed, in
    /// constant memory. O(value).
    fn save(
        value: Value<'_>,
        reader: &mut dyn Reader,
        out: &mut dyn Elements,
    ) -> Result<(), Unsaved>;
}

/// What a type is to everybody else.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) number: u32,
    pub(crate) has_mime: bool,
    pub(crate) boxed_pieces: &'static str,
    pub(crate) forms: &'static [FormRow],
    pub(crate) encoding: fn(Value<'_>, usize, &mut dyn FnMut() -> u8) -> &'static str,
    pub(crate) len: fn(Value<'_>) -> usize,
    pub(crate) due: fn(Value<'_>) -> u64,
    pub(crate) remove_due: fn(&mut SlotGuard<'_>, &Key<'_>, Found, usize) -> usize,
    pub(crate) digest: fn(Value<'_>, &mut dyn Reader, &mut dyn Sink) -> Result<(), Unreadable>,
    pub(crate) save: fn(Value<'_>, &mut dyn Reader, &mut dyn Elements) -> Result<(), Unsaved>,
}

impl Row {
    const fn of<T: DataType>() -> Self {
        Self {
            name: T::NAME,
            number: T::NUMBER,
            has_mime: T::HAS_MIME,
            boxed_pieces: T::BOXED_PIECES,
            forms: T::FORMS,
            encoding: T::encoding,
            len: T::len,
            due: T::due,
            remove_due: T::remove_due,
            digest: T::digest,
            save: T::save,
        }
    }
}

macro_rules! types {
    ($($(#[$cfg:meta])? $name:ident, $doc:literal => $row:ty;)*) => {
        /// What kind of value a key holds, as `TYPE` names it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Type {
            $($(#[$cfg])? #[doc = $doc] $name,)*
        }

        impl Type {
            /// Every type that there is.
            pub const ALL: &'static [Type] = &[$($(#[$cfg])? Type::$name),*];
        }

        /// In the order of [`Type::ALL`].
        pub(crate) const ROWS: &[Row] = &[$($(#[$cfg])? Row::of::<$row>()),*];
    };
}

types! {
    String, "A byte string, also read as integer, float or bits." => string::Strings;
    Stream, "An append-only log of entries." => stream::Streams;
    List, "Items by position." => list::Lists;
    Hash, "Fields with values." => hash::Hashes;
    Set, "Members, each once." => set::Sets;
    SortedSet, "Members by score." => zset::SortedSets;
    #[cfg(test)] Counter, "A sum, for tests." => counter::Counters;
}

impl Type {
    pub(crate) fn row(self) -> &'static Row {
        static TABLE: &[Row] = ROWS;
        &TABLE[self as usize]
    }

    /// Redis's word for it.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Redis's number of it, as digests and dumps have it.
    pub fn number(self) -> u32 {
        self.row().number
    }
}

/// Why a value cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A packed value is damaged.
    #[error(transparent)]
    Value(#[from] Damaged),
    /// A packed block of a stream is.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// A value on disk is.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// A value that is being made of its elements, and belongs to no key yet.
pub(crate) trait Draft: Elements {
    /// The value, once all elements have come; none if it has no elements and could not
    /// be kept.
    fn take(&mut self) -> Option<Payload<'_>>;

    /// The room that it was given.
    fn into_room(self: Box<Self>) -> Vec<u8>;
}

/// What does not belong together, as an error.
pub(crate) fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// A part of a value that is made is damaged: none of them is packed, so none ever is.
pub(crate) fn damaged(error: Damaged) -> io::Error {
    io::Error::other(error)
}

/// Why a value could not be saved.
#[derive(Debug, thiserror::Error)]
pub enum Unsaved {
    /// It cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// What takes its elements could not go on.
    #[error(transparent)]
    Taken(#[from] io::Error),
}

impl From<Damaged> for Unsaved {
    fn from(damaged: Damaged) -> Self {
        Self::Unreadable(damaged.into())
    }
}

impl From<Lost> for Unsaved {
    fn from(lost: Lost) -> Self {
        Self::Unreadable(lost.into())
    }
}

impl From<StreamError> for Unsaved {
    fn from(error: StreamError) -> Self {
        Self::Unreadable(error.into())
    }
}

/// What a type reads packed values with.
pub(crate) trait Reader {
    /// Unpacks what lies in an entry to the end of `out`.
    fn unpack(&mut self, form: &[u8], out: &mut Vec<u8>) -> Result<(), Damaged>;

    /// Segment `index` of a packed chain.
    fn segment(&mut self, chain: &PackedChain, index: usize) -> Result<Bytes, Damaged>;

    /// Room for the blocks of streams.
    fn scratch(&mut self) -> &mut StreamScratch;
}

/// Takes in what a value is made of: pieces, in their order. The same pieces stand for
/// the same value, whatever of it is packed. Those of a value without an order come in
/// any, each marked as one of many.
pub trait Sink {
    /// Some more bytes of a piece.
    fn part(&mut self, bytes: &[u8]);

    /// The piece is whole.
    fn end(&mut self);

    /// The piece is whole, and one of many without an order.
    fn end_unordered(&mut self);

    /// The pieces from here on, in their order, ...
    fn begin_group(&mut self);

    /// ... up to here are one of many groups without an order.
    fn end_group(&mut self);

    /// A number, which is a piece: its text is the sink's to choose.
    fn number(&mut self, value: f64) {
        self.piece(value.to_string().as_bytes());
    }

    /// A piece.
    fn piece(&mut self, bytes: &[u8]) {
        self.part(bytes);
        self.end();
    }
}
