//! The hash: fields with values, some of which may expire.
//!
//! ```text
//!  small, in the entry   [expires] field value [expires] field value ...
//!  large                 a tree of pages by the fields' keys (`pages/keyed.rs`)
//! ```
//!
//! A field costs its bytes and those of its value, and one more for each; in a large hash
//! 3 more. A hash with fields that expire is always a large one, and has their times in
//! order beside the pages (`hash/times.rs`): 9 bytes in the record, about 40 there. A field
//! whose time has come is hidden from every reader at once, and removed when its hash is
//! written next, or by the walk that removes expired keys. Hashes without such fields pay
//! for none of this.

pub(crate) mod make;
pub mod ops;
mod row;
mod times;

pub(crate) use row::Hashes;
use times::Times;

use super::pages::Order;
use super::pages::edit::View;
use super::pages::element::{self, EXPIRES, EXPIRY_LEN};
use super::pages::keyed::{self, Records, body, expiry};
use super::pages::paged::{Item, Needle, Paged, item};
use crate::image::{Pen, Source};
use crate::pack::form::Damaged;
use crate::slot::{Found, SlotGuard};
use crate::store::{Expired, Session};
use crate::types::Type;
use crate::types::string::NewStr;
use std::io;
use std::ops::ControlFlow;

/// Among a hash's notes: Redis would hold it as a table.
pub(crate) const TABLE: u8 = 1;
/// Some of its fields expire, or did.
pub(crate) const EXPIRING: u8 = 2;

/// By the fields' keys.
#[derive(Debug)]
pub(crate) struct Fields;

impl Order for Fields {
    type Bound = u64;
    const TAGGED: bool = true;
    const AFTER_FIRST: Option<usize> = Some(1);
    const COUNT_MAX: usize = keyed::COUNT_MAX;
    const BYTES_MAX: usize = keyed::BYTES_MAX;

    #[inline]
    fn record_len(bytes: &[u8]) -> usize {
        let from = if bytes.first() == Some(&EXPIRES) { EXPIRY_LEN } else { 0 };
        let value = from + element::skip(bytes.get(from..).unwrap_or_default());
        value + element::skip(bytes.get(value..).unwrap_or_default())
    }

    fn tag(record: &[u8]) -> u8 {
        keyed::tag(keyed::key(record))
    }

    fn key(record: &[u8]) -> u64 {
        keyed::key(record)
    }

    fn bound(left: &[u8], right: &[u8]) -> Option<u64> {
        keyed::bound(left, right)
    }

    fn is_at_or_behind(own: &u64, other: &u64) -> bool {
        own >= other
    }

    fn put_bound(bound: &u64, pen: &mut dyn Pen) -> io::Result<()> {
        pen.put(&bound.to_le_bytes())
    }

    fn take_bound(source: &mut dyn Source) -> io::Result<u64> {
        source.eight()
    }

    fn is_ascending(records: &[&[u8]]) -> bool {
        keyed::is_ascending(records)
    }
}

/// A hash that has outgrown its entry.
#[derive(Debug)]
pub(crate) struct LargeHash {
    pub(crate) paged: Paged<Fields>,
    pub(crate) times: Times,
}

/// A hash to be read.
#[derive(Debug)]
pub struct Hash<'h> {
    records: Records<'h, Fields>,
    times: Option<&'h Times>,
    session: &'h Session,
    /// What expires up to then is hidden; 0 if nothing is.
    hidden: u64,
}

impl SlotGuard<'_> {
    /// The hash, to be read; `None` if the value is of another type. `room` takes a
    /// small hash that has to be unpacked.
    #[inline]
    pub fn hash<'h>(
        &'h self,
        found: Found,
        room: &'h mut Vec<u8>,
    ) -> Result<Option<Hash<'h>>, Damaged> {
        if self.type_of(found) != Type::Hash {
            return Ok(None);
        }
        let session = self.session();
        let (records, times) = match self.view::<Hashes>(found, room)? {
            View::Small(run) => (Records::Small(run), None),
            View::Large(large) => (Records::Large(&large.paged), Some(&large.times)),
        };
        let hides = times.is_some_and(|times| times.first() <= session.now())
            && session.expired() != Expired::Seen;
        let hidden = if hides { session.now() } else { 0 };
        Ok(Some(Hash { records, times, session, hidden }))
    }

    /// Whether the value is a hash with fields whose time has come, which are this
    /// session's to remove.
    #[inline]
    pub fn has_due_fields(&self, found: Found) -> bool {
        let session = self.session();
        let large = self.cell(found).value().get::<LargeHash>();
        large.is_some_and(|large| large.times.first() <= session.now())
            && session.expired() == Expired::Removed
    }
}

impl Hash<'_> {
    /// How many fields it has. O(1), and O(fields) whose time has come.
    pub fn len(&self) -> usize {
        let hidden = match self.times {
            Some(times) if self.hidden > 0 => times.until(self.hidden),
            _ => 0,
        };
        self.records.len() - hidden
    }

    /// Whether it has none: the time of all of them has come.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn shows(&self, record: &[u8]) -> bool {
        self.hidden == 0 || expiry(record).is_none_or(|at| at > self.hidden)
    }

    #[inline]
    fn find<R>(
        &self,
        field: &NewStr<'_>,
        found: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, Damaged> {
        let found = |record: &[u8]| self.shows(record).then(|| found(record));
        Ok(self.records.find(self.session, &Needle::new(field), found)?.flatten())
    }

    /// Gives the value of a field to `found`, if there is such a field. O(1) to O(log n).
    #[inline]
    pub fn get<R>(
        &self,
        field: &NewStr<'_>,
        found: impl FnOnce(Item<'_>) -> R,
    ) -> Result<Option<R>, Damaged> {
        let strings = self.records.strings();
        self.find(field, |record| {
            let body = body(record);
            let value = &body[element::skip(body).min(body.len())..];
            found(item(value, strings).0)
        })
    }

    /// When a field expires, if there is such a field, in Unix milliseconds.
    pub fn expiry(&self, field: &NewStr<'_>) -> Result<Option<Option<u64>>, Damaged> {
        self.find(field, expiry)
    }

    /// Gives each field and its value to `visit` until that breaks. O(n).
    pub fn visit(
        &self,
        mut visit: impl FnMut(Item<'_>, Item<'_>) -> ControlFlow<()>,
    ) -> Result<(), Damaged> {
        let strings = self.records.strings();
        self.records.visit(self.session, |record| {
            if !self.shows(record) {
                return ControlFlow::Continue(());
            }
            let (field, rest) = item(body(record), strings);
            visit(field, item(rest, strings).0)
        })
    }

    /// Gives `visit` distinct fields drawn at random, each with its value: `count`, or all
    /// if there are fewer. O(count log n); O(n) where the time of some may have come.
    pub fn draw(
        &self,
        count: usize,
        mut visit: impl FnMut(Item<'_>, Item<'_>),
    ) -> Result<(), Damaged> {
        let live = self.live()?;
        let len = live.as_ref().map_or(self.records.len(), Vec::len);
        let mut ranks = keyed::some_ranks(self.session, len, count);
        if let Some(live) = live {
            ranks.iter_mut().for_each(|rank| *rank = live[*rank]);
        }
        let strings = self.records.strings();
        self.records.pick(self.session, ranks, |record| {
            let (field, rest) = item(body(record), strings);
            visit(field, item(rest, strings).0);
        })
    }

    /// The same of fields that may come twice, until `visit` breaks.
    pub fn draw_any(
        &self,
        count: usize,
        mut visit: impl FnMut(Item<'_>, Item<'_>) -> ControlFlow<()>,
    ) -> Result<(), Damaged> {
        let live = self.live()?;
        let len = live.as_ref().map_or(self.records.len(), Vec::len);
        let (strings, mut goes_on) = (self.records.strings(), ControlFlow::Continue(()));
        for _ in 0..if len == 0 { 0 } else { count } {
            let drawn = self.session.below(len as u64) as usize;
            let rank = live.as_ref().map_or(drawn, |live| live[drawn]);
            self.records.pick(self.session, [rank], |record| {
                let (field, rest) = item(body(record), strings);
                goes_on = visit(field, item(rest, strings).0);
            })?;
            if goes_on.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The ranks of what is shown, if that may be less than all.
    fn live(&self) -> Result<Option<Vec<usize>>, Damaged> {
        if self.hidden == 0 {
            return Ok(None);
        }
        let (mut live, mut rank) = (Vec::new(), 0);
        self.records.visit(self.session, |record| {
            if self.shows(record) {
                live.push(rank);
            }
            rank += 1;
            ControlFlow::Continue(())
        })?;
        Ok(Some(live))
    }

    /// Gives `visit` fields from a cursor on, each with its value: a small hash's as a
    /// whole, else pages until there were `count`. The next cursor, 0 at the end.
    pub fn scan(
        &self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(Item<'_>, Item<'_>),
    ) -> Result<u64, Damaged> {
        let strings = self.records.strings();
        self.records.scan(self.session, cursor, count, |record| {
            if self.shows(record) {
                let (field, rest) = item(body(record), strings);
                visit(field, item(rest, strings).0);
            }
        })
    }
}
