//! The list: items by position.
//!
//! ```text
//!  small, in the entry   item item item ...
//!  large                 a tree of pages by position; each item is a record
//! ```
//!
//! An item costs its bytes and one more, in a large list 3 more. Pages are of up to
//! 32 KiB, so that what is packed together has something in common; pushing and popping
//! at either end touches one of them.

pub(crate) mod make;
pub mod ops;
mod row;

pub(crate) use row::Lists;

use super::pages::Order;
use super::pages::edit::View;
use super::pages::element;
use super::pages::paged::{Item, Needle, Paged, item, raw};
use super::pages::tree::ByRank;
use crate::image::{Pen, Source};
use crate::pack::form::Damaged;
use crate::slot::{Found, SlotGuard};
use crate::store::Session;
use crate::types::Type;
use crate::types::string::NewStr;
use std::io;
use std::ops::ControlFlow;

/// By position, and nothing else.
#[derive(Debug)]
pub(crate) struct Positions;

impl Order for Positions {
    type Bound = ();
    const AFTER_FIRST: Option<usize> = Some(0);
    const COUNT_MAX: usize = 1024;
    const BYTES_MAX: usize = 32 * 1024;

    #[inline]
    fn record_len(bytes: &[u8]) -> usize {
        element::skip(bytes)
    }

    fn bound(_: &[u8], _: &[u8]) -> Option<()> {
        Some(())
    }

    fn is_at_or_behind((): &(), (): &()) -> bool {
        true
    }

    fn put_bound((): &(), _: &mut dyn Pen) -> io::Result<()> {
        Ok(())
    }

    fn take_bound(_: &mut dyn Source) -> io::Result<()> {
        Ok(())
    }
}

/// One of a list's two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The first item.
    Left,
    /// The last.
    Right,
}

/// A list to be read.
#[derive(Debug)]
pub struct List<'l> {
    view: View<'l, Paged<Positions>>,
    session: &'l Session,
}

impl SlotGuard<'_> {
    /// The list, to be read; `None` if the value is of another type. `room` takes a
    /// small list that has to be unpacked.
    pub fn list<'l>(
        &'l self,
        found: Found,
        room: &'l mut Vec<u8>,
    ) -> Result<Option<List<'l>>, Damaged> {
        if self.type_of(found) != Type::List {
            return Ok(None);
        }
        Ok(Some(List { view: self.view::<Lists>(found, room)?, session: self.session() }))
    }
}

impl List<'_> {
    /// How many items it has. O(1).
    pub fn len(&self) -> usize {
        match self.view {
            View::Small(run) => run.count,
            View::Large(large) => large.len(),
        }
    }

    /// Whether it has none, which no list does that is there.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives items from `from` on, `count` at most, to `visit` until that breaks. O(log n
    /// + visited), and a page is unpacked that is packed.
    pub fn visit(
        &self,
        from: usize,
        count: usize,
        mut visit: impl FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<(), Damaged> {
        match self.view {
            View::Small(run) => {
                for record in run.each::<Positions>().skip(from).take(count) {
                    if visit(item(record, None).0).is_break() {
                        break;
                    }
                }
            }
            View::Large(large) => {
                let end = from.saturating_add(count).min(large.len());
                for leaf in large.tree.leaves(from) {
                    if leaf.before >= end {
                        break;
                    }
                    let page = raw::<Positions>(leaf.page, self.session)?;
                    let within = from.max(leaf.before)..end.min(leaf.before + page.len());
                    for at in within {
                        let record = page.record(at - leaf.before);
                        if visit(item(record, Some(&large.strings)).0).is_break() {
                            return Ok(());
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The same from `from` down towards the first.
    pub fn visit_back(
        &self,
        from: usize,
        mut visit: impl FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<(), Damaged> {
        match self.view {
            View::Small(run) => {
                let records: Vec<&[u8]> = run.each::<Positions>().take(from + 1).collect();
                for record in records.into_iter().rev() {
                    if visit(item(record, None).0).is_break() {
                        break;
                    }
                }
            }
            View::Large(large) => {
                let mut end = (from + 1).min(large.len());
                while end > 0 {
                    let leaf = large.tree.leaf(ByRank(end - 1));
                    let page = raw::<Positions>(leaf.page, self.session)?;
                    for at in (0..end - leaf.before).rev() {
                        let record = page.record(at);
                        if visit(item(record, Some(&large.strings)).0).is_break() {
                            return Ok(());
                        }
                    }
                    end = leaf.before;
                }
            }
        }
        Ok(())
    }

    /// The item at a position, given to `visit`; whether there is one. O(log n).
    pub fn get(&self, index: usize, visit: impl FnOnce(Item<'_>)) -> Result<bool, Damaged> {
        let mut visit = Some(visit);
        self.visit(index, 1, |item| {
            if let Some(visit) = visit.take() {
                visit(item);
            }
            ControlFlow::Break(())
        })?;
        Ok(visit.is_none())
    }

    /// The positions of items that are this string, from one end, until `visit` breaks.
    /// `limit` items are compared at most, if it is not 0. O(n).
    pub fn positions(
        &self,
        string: &NewStr<'_>,
        from: End,
        limit: usize,
        mut visit: impl FnMut(usize) -> ControlFlow<()>,
    ) -> Result<(), Damaged> {
        let needle = Needle::new(string);
        let len = self.len();
        let limit = if limit == 0 { len } else { limit.min(len) };
        let mut compare = |at: usize, record: &[u8], large: Option<&Paged<Positions>>| match needle
            .is(record, large.map(|large| &large.strings))
        {
            true => visit(at),
            false => ControlFlow::Continue(()),
        };
        match (self.view, from) {
            (View::Small(run), _) => {
                let records: Vec<&[u8]> = run.each::<Positions>().collect();
                for n in 0..limit {
                    let at = if from == End::Left { n } else { len - 1 - n };
                    if compare(at, records[at], None).is_break() {
                        break;
                    }
                }
            }
            (View::Large(large), End::Left) => {
                for leaf in large.tree.leaves(0) {
                    let page = raw::<Positions>(leaf.page, self.session)?;
                    for at in 0..page.len() {
                        let rank = leaf.before + at;
                        if rank >= limit || compare(rank, page.record(at), Some(large)).is_break() {
                            return Ok(());
                        }
                    }
                }
            }
            (View::Large(large), End::Right) => {
                let mut end = len;
                while end > len - limit {
                    let leaf = large.tree.leaf(ByRank(end - 1));
                    let page = raw::<Positions>(leaf.page, self.session)?;
                    for at in (0..page.len()).rev() {
                        let rank = leaf.before + at;
                        if rank < len - limit
                            || compare(rank, page.record(at), Some(large)).is_break()
                        {
                            return Ok(());
                        }
                    }
                    end = leaf.before;
                }
            }
        }
        Ok(())
    }
}
