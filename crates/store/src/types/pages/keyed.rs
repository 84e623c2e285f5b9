//! Records that are found by their first element: the fields of hashes, the members of
//! sets.
//!
//! ```text
//!  record   [EXPIRES, Unix ms: 8] first element, others ...
//! ```
//!
//! While a collection is small, its records are looked through one by one. In a large one
//! the element's key leads down the tree to a page, where a byte of the key is compared
//! with those of all records at once; what is equal there is compared byte by byte. Keys
//! of integers are ordered as these are, two to a key; all others are seeded hashes, which
//! nobody outside can make collide.
//!
//! Cost: O(records) of a small one; O(log n) of a large one, two cache lines of tags and
//! the record.

use super::Order;
use super::element::{self, EXPIRES, EXPIRY_LEN, Element};
use super::page::{Page, each};
use super::paged::{LargeStrings, Needle, Paged, raw, raw_for, ready};
use super::run::Run;
use super::tree::{ByBound, ByRank, Tree};
use crate::pack::form::Damaged;
use crate::store::Session;
use crate::types::Reader;
use std::borrow::Cow;
use std::cell::Cell;
use std::ops::ControlFlow;

/// The most records and bytes of a page: it is looked through by tags, and unpacked to
/// reach one record.
pub(crate) const COUNT_MAX: usize = 128;
pub(crate) const BYTES_MAX: usize = 4096;

/// What follows the time of expiry: the elements.
#[inline]
pub(crate) fn body(record: &[u8]) -> &[u8] {
    match record.first() {
        Some(&EXPIRES) => record.get(EXPIRY_LEN..).unwrap_or_default(),
        _ => record,
    }
}

/// When a record expires, in Unix milliseconds.
#[inline]
pub(crate) fn expiry(record: &[u8]) -> Option<u64> {
    let time = record.strip_prefix(&[EXPIRES])?.first_chunk()?;
    Some(u64::from_le_bytes(*time))
}

/// What a record is ordered by.
pub(crate) fn key(record: &[u8]) -> u64 {
    let body = body(record);
    element::key(&body[..element::skip(body).min(body.len())])
}

/// The tag of a record with this key. Neighbours among integers have different ones.
#[inline]
pub(crate) fn tag(key: u64) -> u8 {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// The bound between records, by their keys.
pub(crate) fn bound(left: &[u8], right: &[u8]) -> Option<u64> {
    let right = key(right);
    (left.is_empty() || key(left) != right).then_some(right)
}

/// Whether these records, in the order of their keys, are all integers: numbers that are
/// given out one after the other then fill their pages.
pub(crate) fn is_ascending(records: &[&[u8]]) -> bool {
    records.last().is_some_and(|record| key(record) < element::OTHERS)
}

/// The place in a page of the record whose first element is this.
#[inline]
pub(crate) fn find(
    page: &Page,
    needle: &Needle,
    key: u64,
    strings: &LargeStrings,
) -> Option<usize> {
    page.find(tag(key), |record| needle.is(body(record), Some(strings)))
}

/// Looks several elements up, one after the other: a page that is packed is unpacked once
/// for all that follow each other there.
pub(crate) struct Finder<'v, O: Order> {
    records: Records<'v, O>,
    last: Option<(&'v Page, Cow<'v, Page>)>,
}

impl<'v, O: Order<Bound = u64>> Finder<'v, O> {
    pub(crate) fn of(records: Records<'v, O>) -> Self {
        Self { records, last: None }
    }

    /// Whether there is a record whose first element is this.
    pub(crate) fn finds(&mut self, session: &Session, needle: &Needle) -> Result<bool, Damaged> {
        let Records::Large(large) = self.records else {
            return Ok(self.records.find(session, needle, |_| ())?.is_some());
        };
        let key = needle.key();
        let page = large.tree.page(ByBound(|bound: &u64| key >= *bound));
        let page = match self.last.take() {
            Some((last, raw)) if std::ptr::eq(last, page) => &self.last.insert((last, raw)).1,
            _ => &self.last.insert((page, raw::<O>(page, session)?)).1,
        };
        Ok(find(page, needle, key, &large.strings).is_some())
    }
}

/// Where in a run the record is whose first element is this, and its length.
#[inline]
pub(crate) fn find_in_run<O: Order>(run: &Run<'_>, needle: &Needle) -> Option<(usize, usize)> {
    let mut offset = 0;
    for record in run.each::<O>() {
        if needle.is(body(record), None) {
            return Some((offset, record.len()));
        }
        offset += record.len();
    }
    None
}

/// Has the page changed in which a record is, or would be, whose first element is this:
/// `change` is given the page and the record's place, if there is one.
#[inline]
pub(crate) fn change<O: Order<Bound = u64>, R>(
    large: &mut Paged<O>,
    session: &Session,
    needle: &Needle,
    change: impl FnOnce(&mut Page, Option<usize>, &mut LargeStrings) -> R,
) -> Result<R, Damaged> {
    let key = needle.key();
    let strings = &mut large.strings;
    large.tree.change(ByBound(|bound: &u64| key >= *bound), |page| {
        ready::<O>(page, session)?;
        let at = find(page, needle, key, strings);
        Ok(change(page, at, strings))
    })
}

/// Removes the record whose first element is this, if there is one; whether there was.
pub(crate) fn remove<O: Order<Bound = u64>>(
    large: &mut Paged<O>,
    session: &Session,
    needle: &Needle,
) -> Result<bool, Damaged> {
    change(large, session, needle, |page, at, strings| {
        let Some(at) = at else { return false };
        strings.remove_of(page.just::<O>(at));
        page.remove::<O>(at);
        true
    })
}

/// The records of a collection, small or large, to be read.
#[derive(Debug)]
pub(crate) enum Records<'v, O: Order> {
    Small(Run<'v>),
    Large(&'v Paged<O>),
}

impl<O: Order> Clone for Records<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O: Order> Copy for Records<'_, O> {}

impl<'v, O: Order<Bound = u64>> Records<'v, O> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Small(run) => run.count,
            Self::Large(large) => large.len(),
        }
    }

    #[inline]
    pub(crate) fn notes(&self) -> u8 {
        match self {
            Self::Small(run) => run.notes,
            Self::Large(large) => large.notes,
        }
    }

    pub(crate) fn strings(&self) -> Option<&'v LargeStrings> {
        match self {
            Self::Small(_) => None,
            Self::Large(large) => Some(&large.strings),
        }
    }

    /// Gives `found` the record whose first element is this, if there is one.
    #[inline]
    pub(crate) fn find<R>(
        &self,
        session: &Session,
        needle: &Needle,
        found: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, Damaged> {
        match self {
            Self::Small(run) => {
                Ok(run.each::<O>().find(|record| needle.is(body(record), None)).map(found))
            }
            Self::Large(large) => {
                let key = needle.key();
                let page = large.tree.page(ByBound(|bound: &u64| key >= *bound));
                let page = raw::<O>(page, session)?;
                let at = find(&page, needle, key, &large.strings);
                Ok(at.map(|at| found(page.just::<O>(at))))
            }
        }
    }

    /// Gives all records to `visit` until that breaks. O(n).
    pub(crate) fn visit(
        &self,
        session: &Session,
        mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), Damaged> {
        match self {
            Self::Small(run) => _ = run.each::<O>().try_for_each(visit),
            Self::Large(large) => {
                for leaf in large.tree.leaves(0) {
                    let page = raw::<O>(leaf.page, session)?;
                    if page.records::<O>().try_for_each(&mut visit).is_break() {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// The same for who has a reader; it is no access.
    pub(crate) fn visit_for(
        &self,
        reader: &mut dyn Reader,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<(), Damaged> {
        self.try_visit_for(reader, |record| {
            visit(record);
            Ok(())
        })
    }

    /// The same until `visit` fails.
    pub(crate) fn try_visit_for<E: From<Damaged>>(
        &self,
        reader: &mut dyn Reader,
        mut visit: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Small(run) => run.each::<O>().try_for_each(visit)?,
            Self::Large(large) => {
                for leaf in large.tree.leaves(0) {
                    raw_for::<O>(leaf.page, reader)?.records::<O>().try_for_each(&mut visit)?;
                }
            }
        }
        Ok(())
    }

    /// Bytes of the records, about.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Small(run) => run.records.len() as u64,
            Self::Large(large) => large.measure().raw as u64,
        }
    }

    /// Gives the records of these ranks, which ascend, to `visit`.
    pub(crate) fn pick(
        &self,
        session: &Session,
        ranks: impl IntoIterator<Item = usize>,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<(), Damaged> {
        let mut ranks = ranks.into_iter().peekable();
        match self {
            Self::Small(run) => {
                for (rank, record) in run.each::<O>().enumerate() {
                    while ranks.next_if_eq(&rank).is_some() {
                        visit(record);
                    }
                }
            }
            Self::Large(large) => {
                while let Some(&rank) = ranks.peek() {
                    let leaf = large.tree.leaf(ByRank(rank));
                    let page = raw::<O>(leaf.page, session)?;
                    let end = leaf.before + page.len();
                    while let Some(rank) = ranks.next_if(|&rank| rank < end) {
                        visit(page.just::<O>(rank - leaf.before));
                    }
                    if page.len() == 0 {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives the records of some pages to `visit`, from the cursor on, until there were
    /// `count` of them; a small collection's as a whole. The cursor to go on with, 0 at
    /// the end. Records that are there throughout a walk are all met, whatever comes and
    /// goes beside them: a cursor is a key between two pages.
    pub(crate) fn scan(
        &self,
        session: &Session,
        mut cursor: u64,
        count: usize,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<u64, Damaged> {
        let Self::Large(large) = self else {
            self.visit(session, |record| {
                visit(record);
                ControlFlow::Continue(())
            })?;
            return Ok(0);
        };
        let mut met = 0;
        loop {
            let leaf = large.tree.leaf(ByBound(|bound: &u64| cursor >= *bound));
            let page = raw::<O>(leaf.page, session)?;
            for record in page.records::<O>().filter(|record| O::key(record) >= cursor) {
                visit(record);
                met += 1;
            }
            match leaf.upper {
                None => return Ok(0),
                Some(&upper) => cursor = upper,
            }
            if met >= count {
                return Ok(cursor);
            }
        }
    }

    /// Gives the records of the page with this rank to `visit`; the rank to go on from.
    pub(crate) fn page(
        &self,
        session: &Session,
        rank: usize,
        visit: impl FnMut(&[u8]),
    ) -> Result<Option<usize>, Damaged> {
        match self {
            Self::Small(run) => {
                run.each::<O>().for_each(visit);
                Ok(None)
            }
            Self::Large(large) => {
                let leaf = large.tree.leaf(ByRank(rank));
                raw::<O>(leaf.page, session)?.records::<O>().for_each(visit);
                let end = leaf.before + leaf.page.len();
                Ok(Some(end).filter(|&end| end < large.len() && leaf.page.len() > 0))
            }
        }
    }
}

/// The integer that a record's first element is the text of.
#[inline]
pub(crate) fn integer(record: &[u8]) -> Option<i64> {
    match element::read(record).0 {
        Element::Int(value) => Some(value),
        _ => None,
    }
}

/// Distinct ranks below `len`, in ascending order, any set of `count` of them as likely as
/// any other (Floyd's algorithm). O(count log count).
pub(crate) fn some_ranks(session: &Session, len: usize, count: usize) -> Vec<usize> {
    let count = count.min(len);
    if count == len {
        return (0..len).collect();
    }
    let mut chosen = std::collections::HashSet::with_capacity(count);
    for last in len - count..len {
        let rank = session.below(last as u64 + 1) as usize;
        if !chosen.insert(rank) {
            chosen.insert(last);
        }
    }
    let mut ranks: Vec<usize> = chosen.into_iter().collect();
    ranks.sort_unstable();
    ranks
}

thread_local! {
    /// Where elements are written that are looked for.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The most bytes of that which are kept.
const ROOM_MAX: usize = 64 * 1024;

/// Runs `work` with room for elements that is used again. What is called within and asks
/// for it too gets other room.
#[inline]
pub(crate) fn with_room<R>(work: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let mut room = ROOM.take();
    let result = work(&mut room);
    if room.capacity() <= ROOM_MAX {
        ROOM.set(room);
    }
    result
}

/// The records of a tree that has them nowhere else, as one behind the other.
pub(crate) fn all_of<O: Order>(tree: &Tree<O>, mut visit: impl FnMut(&[u8])) {
    for leaf in tree.leaves(0) {
        leaf.page.records::<O>().for_each(&mut visit);
    }
}

/// The records that stand one behind the other.
pub(crate) fn all_in<O: Order>(bytes: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    each::<O>(bytes)
}
