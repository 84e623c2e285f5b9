//! The ops of sorted sets.
//!
//! | op | as a command |
//! | --- | --- |
//! | [`ZAdd`] | `ZADD key [NX \| XX] [GT \| LT] score member ...` |
//! | [`ZRemove`] | `ZREM key member ...` |
//! | [`ZRemoveRange`] | `ZREMRANGEBYRANK key first last` |
//! | [`ZPop`] | `ZPOPMIN key count`, `ZPOPMAX key count` |
//!
//! What was increased is told by the score that it came to. A sorted set of which
//! nothing is left is removed by the op that took the last member.

use super::SortedSets;
use super::order::{Name, Room, Scores, cmp_record, cmp_scores, member_of, score_of};
use super::row::SKIPLIST;
use crate::effect::{Change, Form, Told};
use crate::hash::Key;
use crate::pack::form::Damaged;
use crate::slot::{Found, SlotGuard};
use crate::store::Session;
use crate::types::pages::edit::{Edit, Edited, flat, told};
use crate::types::pages::element::{self, Buffer as _};
use crate::types::pages::paged::{Item, Needle, item};
use crate::types::pages::run::RunBuf;
use crate::types::string::NewStr;
use std::cmp::Ordering;

/// How large a sorted set may be for Redis to hold it as a listpack.
#[derive(Clone, Copy, Debug)]
pub struct ZLimits {
    /// `zset-max-listpack-entries`
    pub entries: usize,
    /// `zset-max-listpack-value`
    pub value: usize,
}

/// Which members are given the score that comes with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZWhen {
    /// Those only that are not there yet.
    pub nx: bool,
    /// Those only that are there.
    pub xx: bool,
    /// Of those that are there, those whose score becomes greater.
    pub gt: bool,
    /// Of those that are there, those whose score becomes less.
    pub lt: bool,
}

/// Adds members, or gives them other scores; there may be no sorted set yet.
#[derive(Clone, Debug)]
pub struct ZAdd<I> {
    /// Scores, none of which is NaN, and members; not empty.
    pub items: I,
    /// Which of them.
    pub when: ZWhen,
    /// Whether the score is added to that which the member has. One member only.
    pub increase: bool,
    /// When Redis would turn from a listpack to a skiplist.
    pub limits: ZLimits,
}

/// What adding came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ZAdded {
    /// Members that were not there before.
    pub added: usize,
    /// Members that were, and have another score now.
    pub changed: usize,
    /// What the last member's score has come to, unless it was left out.
    pub score: Option<f64>,
    /// Its score would not have been a number, and it was left as it was.
    pub is_nan: bool,
}

impl<'a, I: Iterator<Item = (f64, NewStr<'a>)> + Clone> Change for ZAdd<I> {
    type Outcome = Result<Edited<ZAdded>, Damaged>;

    fn apply(
        &mut self,
        slot: &mut SlotGuard<'_>,
        key: &Key<'_>,
        found: Option<Found>,
    ) -> Self::Outcome {
        let items = self.items.clone();
        slot.edit::<SortedSets, _>(key, found, |zset| {
            let (mut total, mut record) = (ZAdded::default(), Room::new());
            for (score, member) in items {
                self.add(zset, (score, &member), as_held, &mut total, &mut record)?;
            }
            Ok(total)
        })
        .and_then(flat)
    }

    fn form(&self, outcome: &Self::Outcome, key: &[u8], form: &mut Form<'_>) {
        form.command("ZADD").bytes(key);
        let ZWhen { nx, xx, gt, lt } = self.when;
        if self.increase {
            let score = outcome.as_ref().ok().and_then(|edited| edited.outcome.score);
            for (_, member) in self.items.clone() {
                form.display(score.unwrap_or_default()).value(&member);
            }
            return;
        }
        for (word, on) in [("NX", nx), ("XX", xx), ("GT", gt), ("LT", lt)] {
            if on {
                form.word(word);
            }
        }
        for (score, member) in self.items.clone() {
            form.display(score).value(&member);
        }
    }

    fn told(&self, outcome: &Self::Outcome) -> Told {
        match outcome {
            Ok(edited) if edited.outcome.added + edited.outcome.changed > 0 => Told::Everybody,
            _ => Told::Nobody,
        }
    }
}

/// What becomes of a member that has this score or is not there.
enum Decision {
    Keep,
    Nan,
    /// It has this score already.
    Same(f64),
    Set(f64),
}

impl<I> ZAdd<I> {
    fn decide(&self, score: f64, old: Option<f64>) -> Decision {
        let ZWhen { nx, xx, gt, lt } = self.when;
        let Some(old) = old else {
            return if xx { Decision::Keep } else { Decision::Set(score) };
        };
        let new = if self.increase { old + score } else { score };
        if nx {
            return Decision::Keep;
        }
        if new.is_nan() {
            return Decision::Nan;
        }
        if lt && new >= old || gt && new <= old {
            return Decision::Keep;
        }
        match cmp_scores(new, old) {
            Ordering::Equal => Decision::Same(new),
            _ => Decision::Set(new),
        }
    }

    /// Adds one; `held` says what is kept of its score, given the notes of the sorted set.
    pub(super) fn add(
        &self,
        zset: &mut Edit<'_, SortedSets>,
        (score, member): (f64, &NewStr<'_>),
        held: fn(f64, u8) -> f64,
        total: &mut ZAdded,
        record: &mut Room,
    ) -> Result<(), Damaged> {
        let needle = Needle::new(member);
        let session = zset.session;
        // Whether Redis would turn to a skiplist if the member is new.
        let ZLimits { entries, value } = self.limits;
        let turns = |len: usize| len + 1 > entries || member.len() > value;
        total.score = None;
        let mut given = None;
        let mut decide = |old: Option<f64>| {
            let decision = self.decide(score, old);
            match decision {
                Decision::Keep => {}
                Decision::Nan => total.is_nan = true,
                Decision::Same(new) | Decision::Set(new) => total.score = Some(new),
            }
            given = match decision {
                Decision::Set(new) => Some(new),
                _ => None,
            };
            match (given, old) {
                (Some(_), Some(_)) => total.changed += 1,
                (Some(_), None) => total.added += 1,
                (None, _) => {}
            }
            given
        };
        if let Needle::Short(element) = &needle
            // A score takes 9 bytes at most.
            && let Some(mut small) = zset.small_with_room(1, element.len() + 9)
        {
            let (at, old) = match find_small(&small, element) {
                Some((at, old)) => (Some(at), Some(old)),
                None => (None, None),
            };
            if let Some(new) = decide(old) {
                if old.is_none() && turns(small.len()) {
                    small.note(small.notes() | SKIPLIST);
                }
                let score = held(new, small.notes());
                put_small(&mut small, at, score, element, record);
            }
            return Ok(());
        }
        let large = zset.large();
        let (notes, turns) = (large.notes, turns(large.len()));
        let mut notes_after = notes;
        large.put(&needle, session, record, |old| {
            let new = decide(old)?;
            if old.is_none() && turns {
                notes_after |= SKIPLIST;
            }
            Some(held(new, notes_after))
        })?;
        large.notes = notes_after;
        Ok(())
    }
}

/// A score as Redis would keep it: a listpack has no negative zero.
fn as_held(score: f64, notes: u8) -> f64 {
    if score == 0.0 && notes & SKIPLIST == 0 { 0.0 } else { score }
}

/// Where in a small sorted set a member is, and its score.
pub(super) fn find_small(small: &RunBuf<'_>, element: &[u8]) -> Option<((usize, usize), f64)> {
    let mut at = 0;
    for record in small.run().each::<Scores>() {
        if member_of(record) == element {
            return Some(((at, record.len()), score_of(record)));
        }
        at += record.len();
    }
    None
}

/// Puts a member where it belongs, and removes the record that it had.
fn put_small(
    small: &mut RunBuf<'_>,
    old: Option<(usize, usize)>,
    score: f64,
    element: &[u8],
    record: &mut Room,
) {
    record.clear();
    element::write_score(record, score);
    record.put(element);
    if let Some((at, len)) = old {
        small.remove(at, len, 1);
    }
    let name = Name::Element(element::read(element).0);
    let before = small
        .run()
        .each::<Scores>()
        .take_while(|record| cmp_record(record, score, name, None) == Ordering::Less)
        .map(<[u8]>::len)
        .sum();
    small.insert(before, record);
}

/// What removing came to: how many members it concerned.
type Removed = Result<Edited<usize>, Damaged>;

/// Removes members; how many were there is given back.
#[derive(Clone, Debug)]
pub struct ZRemove<I> {
    /// Which.
    pub members: I,
}

impl<'a, I: Iterator<Item = NewStr<'a>> + Clone> Change for ZRemove<I> {
    type Outcome = Removed;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> Removed {
        let members = self.members.clone();
        slot.edit::<SortedSets, _>(key, found, |zset| {
            let session = zset.session;
            let mut removed = 0;
            for member in members {
                let needle = Needle::new(&member);
                if let Some(mut small) = zset.small() {
                    if let Needle::Short(element) = &needle
                        && let Some(((at, len), _)) = find_small(&small, element)
                    {
                        small.remove(at, len, 1);
                        removed += 1;
                    }
                    continue;
                }
                removed += usize::from(zset.large().remove(&needle, session)?);
            }
            Ok(removed)
        })
        .and_then(flat)
    }

    fn form(&self, _: &Removed, key: &[u8], form: &mut Form<'_>) {
        form.command("ZREM").bytes(key);
        for member in self.members.clone() {
            form.value(&member);
        }
    }

    fn told(&self, outcome: &Removed) -> Told {
        told(outcome)
    }
}

/// Removes the members of some ranks; how many there were is given back.
#[derive(Clone, Copy, Debug)]
pub struct ZRemoveRange {
    /// The first.
    pub from: usize,
    /// How many.
    pub count: usize,
}

fn length(zset: &mut Edit<'_, SortedSets>) -> usize {
    match zset.small() {
        Some(small) => small.len(),
        None => zset.large().len(),
    }
}

impl Change for ZRemoveRange {
    type Outcome = Removed;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> Removed {
        let Self { from, count } = *self;
        slot.edit::<SortedSets, _>(key, found, |zset| {
            let session = zset.session;
            let count = count.min(length(zset).saturating_sub(from));
            if let Some(mut small) = zset.small() {
                let offset = small.offset::<Scores>(from);
                let bytes = small.offset::<Scores>(from + count) - offset;
                small.remove(offset, bytes, count);
            } else {
                zset.large().remove_range(from, count, session)?;
            }
            Ok(count)
        })
        .and_then(flat)
    }

    fn form(&self, outcome: &Removed, key: &[u8], form: &mut Form<'_>) {
        let count = outcome.as_ref().map_or(0, |edited| edited.outcome);
        form.command("ZREMRANGEBYRANK").bytes(key);
        form.number(self.from as u64).number((self.from + count).saturating_sub(1) as u64);
    }

    fn told(&self, outcome: &Removed) -> Told {
        told(outcome)
    }
}

/// Removes the members with the lowest or the highest scores. Each is given to `taken`
/// with its score, in the order in which they are taken. How many is given back.
#[derive(Debug)]
pub struct ZPop<F> {
    /// Those with the highest.
    pub highest: bool,
    /// How many at most.
    pub count: usize,
    /// Is given them.
    pub taken: F,
}

impl<F: FnMut(Item<'_>, f64)> Change for ZPop<F> {
    type Outcome = Removed;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> Removed {
        slot.edit::<SortedSets, _>(key, found, |zset| self.pop(zset)).and_then(flat)
    }

    fn form(&self, outcome: &Removed, key: &[u8], form: &mut Form<'_>) {
        let count = outcome.as_ref().map_or(0, |edited| edited.outcome);
        form.command(if self.highest { "ZPOPMAX" } else { "ZPOPMIN" }).bytes(key);
        form.number(count as u64);
    }

    fn told(&self, outcome: &Removed) -> Told {
        told(outcome)
    }
}

impl<F: FnMut(Item<'_>, f64)> ZPop<F> {
    fn pop(&mut self, zset: &mut Edit<'_, SortedSets>) -> Result<usize, Damaged> {
        let session: &Session = zset.session;
        let count = self.count.min(length(zset));
        if let Some(mut small) = zset.small() {
            let from = if self.highest { small.len() - count } else { 0 };
            let offset = small.offset::<Scores>(from);
            let mut bytes = 0;
            let run = small.run();
            let records = run.each::<Scores>().skip(from).take(count);
            let mut take = |record: &[u8]| {
                bytes += record.len();
                (self.taken)(item(member_of(record), None).0, score_of(record));
            };
            if self.highest {
                let records: Vec<&[u8]> = records.collect();
                records.into_iter().rev().for_each(&mut take);
            } else {
                records.for_each(&mut take);
            }
            small.remove(offset, bytes, count);
            return Ok(count);
        }
        let large = zset.large();
        let mut entry = Room::new();
        for _ in 0..count {
            large.pop(self.highest, session, &mut entry, &mut self.taken)?;
        }
        Ok(count)
    }
}
