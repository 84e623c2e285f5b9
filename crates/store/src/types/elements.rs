//! What a value is made of, element by element: the one language between the store and
//! every format that values are written in or read from.
//!
//! ```text
//!  a value in the store ──save──>  Elements  ──>  a format's writer
//!  a format's reader    ───────>  Elements  ──>  a value on its way in (`Making`)
//! ```
//!
//! Whoever gives elements calls one method that says what comes, then one for each part,
//! then [`end`](Elements::end):
//!
//! | what comes | and then |
//! | --- | --- |
//! | `string(len)` | `part(bytes)` until there were `len` |
//! | `integer(value)` | nothing: a string that is its decimal form |
//! | `list(outline)` | `run()` in front of each run that the outline counts, `item` |
//! | `set(outline)` | `item` |
//! | `hash(outline)` | `field` |
//! | `sorted_set(outline)` | `member` |
//! | `stream(outline)` | `entry`; then of each group `group`, `pending`, and of each of its consumers `consumer`, `owned` |
//!
//! Nothing is gathered: a value of any size passes through in constant memory. What takes
//! elements returns an error where it cannot go on, and is given no more then.

use super::stream::StreamId;
use super::string::NewStr;
use std::io;

/// What is known of a collection before its first element comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// How many elements there are: exactly, if a value is saved; else a hint that is
    /// not to be relied on.
    pub len: u64,
    /// Bytes of all of them, about.
    pub bytes: u64,
    /// Of a list, how many runs its items come in, if none of them is too long for one.
    pub runs: Option<u64>,
    /// Redis would hold it in its compact encoding (listpack, intset).
    pub is_compact: bool,
    /// When the first field expires, in Unix milliseconds, of a hash of which some do.
    pub expires: Option<u64>,
}

/// What is known of a stream before its first entry comes; from a reader only what its
/// format has there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamOutline {
    /// How many entries there are.
    pub len: u64,
    /// Bytes of all of them, about.
    pub bytes: u64,
}

/// What is told of a stream besides its entries, behind them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamFacts {
    /// How many entries there are, to be checked. `None` if the source does not tell.
    pub len: Option<u64>,
    /// The greatest ID that was ever added.
    pub last_id: StreamId,
    /// The first entry's; 0-0 if there is none.
    pub first_id: StreamId,
    /// The greatest ID that was deleted.
    pub max_deleted_id: StreamId,
    /// How many were ever added. `None` if the source does not tell: as many as there are.
    pub entries_added: Option<u64>,
    /// How many groups follow.
    pub groups: u64,
}

/// A consumer group, before what is pending in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupOutline<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The last entry delivered.
    pub last_id: StreamId,
    /// How many entries were delivered since the stream began, if known.
    pub entries_read: Option<u64>,
    /// How many entries are pending.
    pub pending: u64,
    /// How many consumers follow these.
    pub consumers: u64,
}

/// A consumer, before the IDs of what is pending for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerOutline<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// When it last tried to read or claim, in Unix milliseconds.
    pub seen: u64,
    /// When it last read or claimed something.
    pub active: Option<u64>,
    /// How many entries are pending for it.
    pub pending: u64,
}

/// The fields of an entry of a stream: names and values.
pub type EntryFields<'a> = [(&'a [u8], &'a [u8])];

fn unexpected() -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::InvalidData, "a value is made of parts that do not fit"))
}

/// Takes in what a value is made of. See the module's description. What is not of the
/// type that was announced is an error, unless somebody implements it.
#[allow(unused_variables)]
pub trait Elements {
    /// A string of so many bytes.
    fn string(&mut self, len: u64) -> io::Result<()> {
        unexpected()
    }

    /// More bytes of the string.
    fn part(&mut self, bytes: &[u8]) -> io::Result<()> {
        unexpected()
    }

    /// A string that is the decimal form of this integer.
    fn integer(&mut self, value: i64) -> io::Result<()> {
        unexpected()
    }

    /// A list.
    fn list(&mut self, outline: &Outline) -> io::Result<()> {
        unexpected()
    }

    /// A set.
    fn set(&mut self, outline: &Outline) -> io::Result<()> {
        unexpected()
    }

    /// A hash.
    fn hash(&mut self, outline: &Outline) -> io::Result<()> {
        unexpected()
    }

    /// A sorted set.
    fn sorted_set(&mut self, outline: &Outline) -> io::Result<()> {
        unexpected()
    }

    /// A stream.
    fn stream(&mut self, outline: &StreamOutline) -> io::Result<()> {
        unexpected()
    }

    /// The next run of a list's items begins.
    fn run(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// An item of a list, a member of a set.
    fn item(&mut self, item: &NewStr<'_>) -> io::Result<()> {
        unexpected()
    }

    /// A field of a hash, and when it expires if it does.
    fn field(
        &mut self,
        field: &NewStr<'_>,
        value: &NewStr<'_>,
        expires: Option<u64>,
    ) -> io::Result<()> {
        unexpected()
    }

    /// A member of a sorted set, in the order of scores and members if it is saved.
    fn member(&mut self, score: f64, member: &NewStr<'_>) -> io::Result<()> {
        unexpected()
    }

    /// An entry of a stream, in the order of IDs.
    fn entry(&mut self, id: StreamId, fields: &EntryFields<'_>) -> io::Result<()> {
        unexpected()
    }

    /// What else there is to a stream.
    fn facts(&mut self, facts: &StreamFacts) -> io::Result<()> {
        unexpected()
    }

    /// A group of a stream.
    fn group(&mut self, group: &GroupOutline<'_>) -> io::Result<()> {
        unexpected()
    }

    /// An entry that is pending in the group: when it was delivered last, in Unix
    /// milliseconds, and how often.
    fn pending(&mut self, id: StreamId, delivered: u64, count: u64) -> io::Result<()> {
        unexpected()
    }

    /// A consumer of the group.
    fn consumer(&mut self, consumer: &ConsumerOutline<'_>) -> io::Result<()> {
        unexpected()
    }

    /// One of the pending entries is the consumer's.
    fn owned(&mut self, id: StreamId) -> io::Result<()> {
        unexpected()
    }

    /// The value is whole.
    fn end(&mut self) -> io::Result<()>;
}
