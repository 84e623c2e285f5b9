//! The set: members, each once.
//!
//! ```text
//!  small, in the entry   member member ...
//!  large                 a tree of pages by the members' keys (`pages/keyed.rs`)
//! ```
//!
//! A member costs its bytes and one more, in a large set 4 more. While all members are
//! integers and few (what Redis calls an intset), a small set has them in ascending order,
//! and a large one is shown in that order: clients of Redis have come to expect it.

pub(crate) mod make;
pub mod ops;
mod row;
mod several;

pub(crate) use row::Sets;
pub use several::{Elements, Gathered};

use super::pages::Order;
use super::pages::edit::View;
use super::pages::element;
use super::pages::keyed::{self, Finder, Records, integer};
use super::pages::paged::{Item, Needle, item};
use crate::image::{Pen, Source};
use crate::pack::form::Damaged;
use crate::slot::{Found, SlotGuard};
use crate::store::Session;
use crate::types::Type;
use crate::types::string::NewStr;
use std::io;
use std::ops::ControlFlow;

/// Among a set's notes: Redis would hold it as a table.
pub(crate) const TABLE: u8 = 1;

/// By the members' keys.
#[derive(Debug)]
pub(crate) struct Members;

impl Order for Members {
    type Bound = u64;
    const TAGGED: bool = true;
    const AFTER_FIRST: Option<usize> = Some(0);
    const COUNT_MAX: usize = keyed::COUNT_MAX;
    const BYTES_MAX: usize = keyed::BYTES_MAX;

    #[inline]
    fn record_len(bytes: &[u8]) -> usize {
        element::skip(bytes)
    }

    fn tag(record: &[u8]) -> u8 {
        keyed::tag(element::key(record))
    }

    fn key(record: &[u8]) -> u64 {
        element::key(record)
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

/// A set to be read.
#[derive(Debug)]
pub struct MemberSet<'s> {
    records: Records<'s, Members>,
    session: &'s Session,
}

impl SlotGuard<'_> {
    /// The set, to be read; `None` if the value is of another type. `room` takes a small
    /// set that has to be unpacked.
    #[inline]
    pub fn set<'s>(
        &'s self,
        found: Found,
        room: &'s mut Vec<u8>,
    ) -> Result<Option<MemberSet<'s>>, Damaged> {
        if self.type_of(found) != Type::Set {
            return Ok(None);
        }
        let records = match self.view::<Sets>(found, room)? {
            View::Small(run) => Records::Small(run),
            View::Large(large) => Records::Large(large),
        };
        Ok(Some(MemberSet { records, session: self.session() }))
    }
}

impl MemberSet<'_> {
    /// How many members it has. O(1).
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it has none, which no set does that is there.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this is a member. O(1) to O(log n).
    #[inline]
    pub fn contains(&self, member: &NewStr<'_>) -> Result<bool, Damaged> {
        self.has(&Needle::new(member))
    }

    #[inline]
    fn has(&self, needle: &Needle) -> Result<bool, Damaged> {
        Ok(self.records.find(self.session, needle, |_| ())?.is_some())
    }

    /// Gives each member to `visit` until that breaks. O(n).
    pub fn visit(&self, mut visit: impl FnMut(Item<'_>) -> ControlFlow<()>) -> Result<(), Damaged> {
        let strings = self.records.strings();
        let mut next = Some(0);
        let mut goes_on = ControlFlow::Continue(());
        while let Some(rank) = next
            && goes_on.is_continue()
        {
            let is_intset = self.records.notes() & TABLE == 0;
            let mut ints = Vec::new();
            next = self.records.page(self.session, rank, |record| {
                if goes_on.is_break() {
                } else if is_intset && strings.is_some() {
                    ints.push(integer(record).unwrap_or_default());
                } else {
                    goes_on = visit(item(record, strings).0);
                }
            })?;
            ints.sort_unstable();
            for value in ints {
                if goes_on.is_continue() {
                    goes_on = visit(Item::Bytes(element::Element::Int(value).show()));
                }
            }
        }
        Ok(())
    }

    /// Gives `visit` distinct members drawn at random: `count`, or all if there are fewer.
    /// O(count log n).
    pub fn draw(&self, count: usize, mut visit: impl FnMut(Item<'_>)) -> Result<(), Damaged> {
        let strings = self.records.strings();
        let ranks = keyed::some_ranks(self.session, self.len(), count);
        self.records.pick(self.session, ranks, |record| visit(item(record, strings).0))
    }

    /// The same of members that may come twice, until `visit` breaks.
    pub fn draw_any(
        &self,
        count: usize,
        mut visit: impl FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<(), Damaged> {
        let (strings, mut goes_on) = (self.records.strings(), ControlFlow::Continue(()));
        for _ in 0..count {
            let rank = self.session.below(self.len() as u64) as usize;
            self.records.pick(self.session, [rank], |record| {
                goes_on = visit(item(record, strings).0);
            })?;
            if goes_on.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The same as [`draw`](Self::draw), to be kept.
    pub fn take_drawn(&self, count: usize) -> Result<Elements, Damaged> {
        let (strings, mut drawn) = (self.records.strings(), Elements::default());
        let ranks = keyed::some_ranks(self.session, self.len(), count);
        self.records.pick(self.session, ranks, |record| drawn.push(record, strings))?;
        Ok(drawn)
    }

    /// Gives `visit` members from a cursor on: a small set's as a whole, else pages until
    /// there were `count`. The next cursor, 0 at the end.
    pub fn scan(
        &self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(Item<'_>),
    ) -> Result<u64, Damaged> {
        let strings = self.records.strings();
        self.records.scan(self.session, cursor, count, |record| visit(item(record, strings).0))
    }

    /// Adds some members, from a rank on, to `into`: a page's, or all of a small set. The
    /// rank to go on from, until there is none.
    pub fn some(&self, rank: usize, into: &mut Elements) -> Result<Option<usize>, Damaged> {
        let strings = self.records.strings();
        self.records.page(self.session, rank, |record| into.push(record, strings))
    }

    /// Keeps of `elements` those that are members, or those that are not. O(elements log n);
    /// each page that is packed is unpacked once.
    pub fn keep(&self, elements: &mut Elements, members: bool) -> Result<(), Damaged> {
        let mut finder = Finder::of(self.records);
        elements.retain(|needle| Ok(finder.finds(self.session, needle)? == members))
    }
}
