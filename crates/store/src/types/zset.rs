//! The sorted set: members by score.
//!
//! ```text
//!  small, in the entry   | score member | score member | ...    in their order
//!  large                 two trees of pages: by score and member, and by the hash of the
//!                        member to its score (`ranked.rs`)
//! ```
//!
//! Members of one score are ordered by their bytes. A small one is read from the front;
//! in a large one a member is found in O(log n), and so are its rank, what has a rank,
//! and the ranks of a range of scores.

pub(crate) mod make;
pub mod ops;
pub(crate) mod order;
mod ranked;
mod row;

#[cfg(test)]
mod tests;

pub use ranked::Limit;
pub(crate) use row::SortedSets;

use super::pages::edit::View;
use super::pages::paged::{Item, Needle, item};
use crate::hash::Key;
use crate::pack::form::Damaged;
use crate::slot::{Found, SlotGuard};
use crate::store::Session;
use crate::types::Type;
use crate::types::string::NewStr;
use order::{Scores, member_of, score_of};
use ranked::Ranked;
use row::SKIPLIST;
use std::ops::ControlFlow;

/// A sorted set to be read.
#[derive(Clone, Copy, Debug)]
pub struct ZSet<'z> {
    view: View<'z, Ranked>,
    session: &'z Session,
}

impl SlotGuard<'_> {
    /// The sorted set, to be read; `None` if the value is of another type. `room` takes
    /// a small one that has to be unpacked.
    pub fn zset<'z>(
        &'z self,
        found: Found,
        room: &'z mut Vec<u8>,
    ) -> Result<Option<ZSet<'z>>, Damaged> {
        if self.type_of(found) != Type::SortedSet {
            return Ok(None);
        }
        Ok(Some(ZSet { view: self.view::<SortedSets>(found, room)?, session: self.session() }))
    }

    /// Has `OBJECT ENCODING` tell a sorted set as `skiplist` from now on, into which Redis
    /// converts one that it sorts. Members and scores stay, so it is no effect and is told
    /// to nobody.
    pub fn note_skiplist(&mut self, key: &Key<'_>, found: Found) -> Result<(), Damaged> {
        let mut room = Vec::new();
        let notes = notes(&self.view::<SortedSets>(found, &mut room)?);
        if notes & SKIPLIST == 0 {
            self.edit::<SortedSets, _>(key, Some(found), |zset| match zset.small() {
                Some(mut small) => small.note(notes | SKIPLIST),
                None => zset.large().notes |= SKIPLIST,
            })?;
        }
        Ok(())
    }
}

fn notes(view: &View<'_, Ranked>) -> u8 {
    match view {
        View::Small(run) => run.notes,
        View::Large(large) => large.notes,
    }
}

impl ZSet<'_> {
    /// Whether Redis would hold it as a listpack.
    pub fn is_listpack(&self) -> bool {
        notes(&self.view) & SKIPLIST == 0
    }

    /// How many members it has. O(1).
    pub fn len(&self) -> usize {
        match self.view {
            View::Small(run) => run.count,
            View::Large(large) => large.len(),
        }
    }

    /// Whether it has none, which no sorted set does that is there.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The score of a member, if it is one. O(log n).
    pub fn score(&self, member: &NewStr<'_>) -> Result<Option<f64>, Damaged> {
        let needle = Needle::new(member);
        match self.view {
            View::Small(_) => Ok(self.place(&needle).map(|(_, score)| score)),
            View::Large(large) => large.score(&needle, self.session),
        }
    }

    /// Rank and score of a member of a small one.
    fn place(&self, needle: &Needle) -> Option<(usize, f64)> {
        let (View::Small(run), Needle::Short(element)) = (self.view, needle) else { return None };
        let mut records = run.each::<Scores>().enumerate();
        let found = records.find(|(_, record)| member_of(record) == &element[..]);
        found.map(|(rank, record)| (rank, score_of(record)))
    }

    /// How many members are before this one, and its score. O(log n).
    pub fn rank(&self, member: &NewStr<'_>) -> Result<Option<(usize, f64)>, Damaged> {
        let needle = Needle::new(member);
        match self.view {
            View::Small(_) => Ok(self.place(&needle)),
            View::Large(large) => {
                let Some(score) = large.score(&needle, self.session)? else { return Ok(None) };
                Ok(Some((large.rank(score, &needle, self.session)?, score)))
            }
        }
    }

    /// How many members are before a limit. O(log n).
    pub fn rank_at(&self, limit: &Limit<'_>) -> Result<usize, Damaged> {
        match self.view {
            View::Small(run) => {
                Ok(run.each::<Scores>().take_while(|record| limit.is_behind(record, None)).count())
            }
            View::Large(large) => large.rank_at(limit, self.session),
        }
    }

    /// Gives members from the rank `from` on, `count` at most, to `visit` with their
    /// scores until that breaks; if they are to come `back`, the last of these first.
    /// O(log n + visited), and a page is unpacked that is packed.
    pub fn visit(
        &self,
        from: usize,
        count: usize,
        back: bool,
        mut visit: impl FnMut(Item<'_>, f64) -> ControlFlow<()>,
    ) -> Result<(), Damaged> {
        match self.view {
            View::Small(run) => {
                let mut give =
                    |record: &[u8]| visit(item(member_of(record), None).0, score_of(record));
                let records = run.each::<Scores>().skip(from).take(count);
                if back {
                    let records: Vec<&[u8]> = records.collect();
                    let _ = records.into_iter().rev().try_for_each(&mut give);
                } else {
                    let _ = { records }.try_for_each(&mut give);
                }
                Ok(())
            }
            View::Large(large) => {
                let strings = Some(&large.strings);
                large.visit(from, count, back, self.session, &mut |record| {
                    visit(item(member_of(record), strings).0, score_of(record))
                })
            }
        }
    }

    /// Gives members to `visit` with their scores, from where a scan is on, some `count`
    /// of them; a small sorted set's all. Where the scan goes on, 0 if that was the end.
    pub fn scan(
        &self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(Item<'_>, f64),
    ) -> Result<u64, Damaged> {
        match self.view {
            View::Small(run) => {
                for record in run.each::<Scores>() {
                    visit(item(member_of(record), None).0, score_of(record));
                }
                Ok(0)
            }
            View::Large(large) => {
                let strings = Some(&large.strings);
                large.scan(cursor, count, self.session, &mut |record| {
                    visit(item(member_of(record), strings).0, score_of(record));
                })
            }
        }
    }
}
