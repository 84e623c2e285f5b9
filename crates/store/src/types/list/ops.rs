//! The ops of lists.
//!
//! | op | as a command |
//! | --- | --- |
//! | [`Push`] | `LPUSH key item ...`, `RPUSH key item ...` |
//! | [`Pop`] | `LPOP key count`, `RPOP key count` |
//! | [`SetItem`] | `LSET key index item` |
//! | [`InsertItem`] | `LINSERT key BEFORE\|AFTER pivot item` |
//! | [`RemoveItems`] | `LREM key count item` |
//! | [`Trim`] | `LTRIM key first last` |
//!
//! A list of which nothing is left is removed by the op that took the last item.

use super::{End, Lists, Positions};
use crate::effect::{Change, Form, Told};
use crate::hash::Key;
use crate::pack::form::Damaged;
use crate::slot::{Found, SlotGuard};
use crate::store::Session;
use crate::types::pages::edit::{Changed, Edit, flat, told};
use crate::types::pages::page::Page;
use crate::types::pages::paged::{Item, Needle, Paged, item, raw, ready, remove_strings};
use crate::types::pages::tree::{ByRank, Gone, LAST, Tree};
use crate::types::string::NewStr;

/// Adds items at one end, one after the other; there may be no list yet. The list's
/// length is given back.
#[derive(Clone, Debug)]
pub struct Push<I> {
    /// Where.
    pub end: End,
    /// What; not empty.
    pub items: I,
}

impl<'a, I: Iterator<Item = NewStr<'a>> + Clone> Change for Push<I> {
    type Outcome = Changed;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> Changed {
        let (end, items) = (self.end, self.items.clone());
        slot.edit::<Lists, _>(key, found, |list| {
            let (mut result, mut len) = (Ok(()), 0);
            for string in items {
                let needle = Needle::new(&string);
                let at = if end == End::Left { 0 } else { LAST };
                result = result.and_then(|()| insert(list, at, &needle));
                len += 1;
            }
            result.map(|()| len.max(length(list)))
        })
        .and_then(flat)
    }

    fn form(&self, _: &Changed, key: &[u8], form: &mut Form<'_>) {
        form.command(if self.end == End::Left { "LPUSH" } else { "RPUSH" }).bytes(key);
        for item in self.items.clone() {
            form.value(&item);
        }
    }

    fn told(&self, outcome: &Changed) -> Told {
        told(outcome)
    }
}

fn length(list: &mut Edit<'_, Lists>) -> usize {
    match list.small() {
        Some(small) => small.len(),
        None => list.large().len(),
    }
}

/// Puts an item at a position, or at the end.
pub(super) fn insert(
    list: &mut Edit<'_, Lists>,
    at: usize,
    needle: &Needle,
) -> Result<(), Damaged> {
    let session = list.session;
    if !needle.is_large()
        && let Some(mut small) = list.small_with_room(1, needle.element_len())
        && let Needle::Short(element) = needle
    {
        let offset = small.offset::<Positions>(at);
        small.insert(offset, element);
        return Ok(());
    }
    let large = list.large();
    let at = if at < large.len() { at } else { LAST };
    let within = within(large, at);
    let insert = |record: &[u8], large: &mut Paged<Positions>| {
        large.tree.change(ByRank(at), |page| {
            ready::<Positions>(page, session)?;
            page.insert::<Positions>(within.min(page.len()), record);
            Ok(())
        })
    };
    match needle {
        Needle::Short(element) => insert(element, large),
        Needle::Large(..) => {
            let mut record = Vec::new();
            needle.write(&mut record, Some(&mut large.strings));
            insert(&record, large)
        }
    }
}

/// The place within its page of the item of a rank, or behind the last.
fn within(large: &Paged<Positions>, rank: usize) -> usize {
    match rank {
        0 => 0,
        LAST => LAST,
        rank => rank - large.tree.leaf(ByRank(rank)).before,
    }
}

/// Removes items from one end; each is given to `taken`, in the order in which they are
/// taken. How many is given back.
#[derive(Debug)]
pub struct Pop<F> {
    /// Where.
    pub end: End,
    /// How many at most.
    pub count: usize,
    /// Is given them.
    pub taken: F,
}

impl<F: FnMut(Item<'_>)> Change for Pop<F> {
    type Outcome = Changed;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> Changed {
        slot.edit::<Lists, _>(key, found, |list| self.pop(list)).and_then(flat)
    }

    fn form(&self, outcome: &Changed, key: &[u8], form: &mut Form<'_>) {
        let count = outcome.as_ref().map_or(0, |edited| edited.outcome);
        form.command(if self.end == End::Left { "LPOP" } else { "RPOP" }).bytes(key);
        form.number(count as u64);
    }

    fn told(&self, outcome: &Changed) -> Told {
        told(outcome)
    }
}

impl<F: FnMut(Item<'_>)> Pop<F> {
    fn pop(&mut self, list: &mut Edit<'_, Lists>) -> Result<usize, Damaged> {
        let session = list.session;
        if let Some(mut small) = list.small() {
            let count = self.count.min(small.len());
            let kept = small.len() - count;
            let run = small.run();
            let (offset, len) = match self.end {
                End::Left => {
                    let taken = run.each::<Positions>().take(count);
                    (
                        0,
                        taken
                            .inspect(|record| (self.taken)(item(record, None).0))
                            .map(<[u8]>::len)
                            .sum(),
                    )
                }
                End::Right => {
                    let offset = run.each::<Positions>().take(kept).map(<[u8]>::len).sum();
                    let taken: Vec<&[u8]> = run.each::<Positions>().skip(kept).collect();
                    taken.iter().rev().for_each(|record| (self.taken)(item(record, None).0));
                    (offset, run.records.len() - offset)
                }
            };
            small.remove(offset, len, count);
            return Ok(count);
        }
        let large = list.large();
        let (strings, tree) = (&mut large.strings, &mut large.tree);
        let count = self.count.min(tree.len());
        for _ in 0..count {
            let rank = if self.end == End::Left { 0 } else { LAST };
            tree.change(ByRank(rank), |page| {
                ready::<Positions>(page, session)?;
                let at = if self.end == End::Left { 0 } else { page.len() - 1 };
                let record = page.just::<Positions>(at);
                (self.taken)(item(record, Some(strings)).0);
                strings.remove_of(record);
                page.remove::<Positions>(at);
                Ok::<_, Damaged>(())
            })?;
        }
        Ok(count)
    }
}

/// Puts another item in the place of one that is there.
#[derive(Clone, Debug)]
pub struct SetItem<'a> {
    /// Its position.
    pub index: usize,
    /// The item.
    pub item: NewStr<'a>,
}

impl Change for SetItem<'_> {
    type Outcome = Changed;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> Changed {
        let (needle, index) = (Needle::new(&self.item), self.index);
        slot.edit::<Lists, _>(key, found, |list| {
            let session = list.session;
            if !needle.is_large()
                && let Some(mut small) = list.small_with_room(0, needle.element_len())
                && let Needle::Short(element) = &needle
            {
                let offset = small.offset::<Positions>(index);
                let len = small.run().each::<Positions>().nth(index).map_or(0, <[u8]>::len);
                small.replace(offset, len, element);
                return Ok(1);
            }
            let large = list.large();
            let mut record = Vec::new();
            needle.write(&mut record, Some(&mut large.strings));
            let (at, strings) = (within(large, index), &mut large.strings);
            large.tree.change(ByRank(index), |page| {
                ready::<Positions>(page, session)?;
                let at = at.min(page.len() - 1);
                strings.remove_of(page.just::<Positions>(at));
                page.replace::<Positions>(at, &record);
                Ok(1)
            })
        })
        .and_then(flat)
    }

    fn form(&self, _: &Changed, key: &[u8], form: &mut Form<'_>) {
        form.command("LSET").bytes(key).number(self.index as u64).value(&self.item);
    }

    fn told(&self, outcome: &Changed) -> Told {
        told(outcome)
    }
}

/// Puts an item before or behind another, which is the first of its kind.
#[derive(Clone, Debug)]
pub struct InsertItem<'a> {
    /// The other's position.
    pub index: usize,
    /// The other.
    pub pivot: NewStr<'a>,
    /// Whether it goes behind it.
    pub after: bool,
    /// The item.
    pub item: NewStr<'a>,
}

impl Change for InsertItem<'_> {
    type Outcome = Changed;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> Changed {
        let (needle, at) = (Needle::new(&self.item), self.index + usize::from(self.after));
        slot.edit::<Lists, _>(key, found, |list| insert(list, at, &needle).map(|()| length(list)))
            .and_then(flat)
    }

    fn form(&self, _: &Changed, key: &[u8], form: &mut Form<'_>) {
        form.command("LINSERT").bytes(key).word(if self.after { "AFTER" } else { "BEFORE" });
        form.value(&self.pivot).value(&self.item);
    }

    fn told(&self, outcome: &Changed) -> Told {
        told(outcome)
    }
}

/// Removes items that are this string: all, or so many from one end. How many is given
/// back. O(n).
#[derive(Clone, Debug)]
pub struct RemoveItems<'a> {
    /// How many from the left; below 0, from the right; 0 for all.
    pub count: i64,
    /// Which.
    pub item: NewStr<'a>,
}

impl Change for RemoveItems<'_> {
    type Outcome = Changed;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> Changed {
        let needle = Needle::new(&self.item);
        let from = if self.count < 0 { End::Right } else { End::Left };
        let limit = match self.count {
            0 => usize::MAX,
            count => usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX),
        };
        slot.edit::<Lists, _>(key, found, |list| remove(list, &needle, from, limit)).and_then(flat)
    }

    fn form(&self, _: &Changed, key: &[u8], form: &mut Form<'_>) {
        form.command("LREM").bytes(key).integer(self.count).value(&self.item);
    }

    fn told(&self, outcome: &Changed) -> Told {
        told(outcome)
    }
}

fn remove(
    list: &mut Edit<'_, Lists>,
    needle: &Needle,
    from: End,
    limit: usize,
) -> Result<usize, Damaged> {
    let session = list.session;
    if let Some(mut small) = list.small() {
        let mut at = 0;
        let mut places: Vec<(usize, usize)> = Vec::new();
        for record in small.run().each::<Positions>() {
            if needle.is(record, None) {
                places.push((at, record.len()));
            }
            at += record.len();
        }
        let chosen = match from {
            End::Left => &places[..limit.min(places.len())],
            End::Right => &places[places.len().saturating_sub(limit)..],
        };
        chosen.iter().rev().for_each(|&(offset, len)| small.remove(offset, len, 1));
        return Ok(chosen.len());
    }
    let large = list.large();
    let (tree, strings) = (&mut large.tree, &mut large.strings);
    // From page to page: `next` is a rank in the one to look at.
    let (mut removed, mut next) = (0, Some(if from == End::Left { 0 } else { tree.len() - 1 }));
    while let Some(rank) = next
        && removed < limit
        && tree.len() > 0
    {
        let leaf = tree.leaf(ByRank(rank));
        let (before, len) = (leaf.before, leaf.page.len());
        // A packed page is looked at before it is unpacked for good.
        let page = raw::<Positions>(leaf.page, session)?;
        let mut places: Vec<usize> =
            (0..len).filter(|&at| needle.is(page.record(at), Some(strings))).collect();
        drop(page);
        let count = places.len().min(limit - removed);
        match from {
            End::Left => places.truncate(count),
            End::Right => drop(places.drain(..places.len() - count)),
        }
        if count > 0 {
            tree.change(ByRank(rank), |page: &mut Page| {
                ready::<Positions>(page, session)?;
                for &at in places.iter().rev() {
                    strings.remove_of(page.just::<Positions>(at));
                    page.remove::<Positions>(at);
                }
                Ok::<_, Damaged>(())
            })?;
        }
        removed += count;
        next = match from {
            End::Left => Some(before + len - count).filter(|&rank| rank < tree.len()),
            End::Right => before.checked_sub(1),
        };
    }
    Ok(removed)
}

/// Removes what is not among some items, if anything is not. How many is given back.
/// O(pages removed).
#[derive(Clone, Copy, Debug)]
pub struct Trim {
    /// The first that is kept.
    pub first: usize,
    /// How many are, at most.
    pub count: usize,
}

impl Change for Trim {
    type Outcome = Changed;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> Changed {
        let Self { first, count } = *self;
        slot.edit::<Lists, _>(key, found, |list| {
            let session = list.session;
            let len = length(list);
            let kept = first.min(len)..first.saturating_add(count).min(len);
            for (from, count) in [(kept.end, len - kept.end), (0, kept.start)] {
                if let Some(mut small) = list.small() {
                    let offset = small.offset::<Positions>(from);
                    let bytes = small.offset::<Positions>(from + count) - offset;
                    small.remove(offset, bytes, count);
                    continue;
                }
                let large = list.large();
                let (tree, strings) = (&mut large.tree, &mut large.strings);
                unpack_edges(tree, from, count, session)?;
                tree.remove_range(from, count, |gone| match gone {
                    Gone::Page(page) => remove_strings::<Positions>(page, strings, session),
                    Gone::Record(record) => strings.remove_of(record),
                });
            }
            Ok(len - kept.len())
        })
        .and_then(flat)
    }

    fn form(&self, _: &Changed, key: &[u8], form: &mut Form<'_>) {
        let last = self.first + self.count;
        form.command("LTRIM").bytes(key);
        match last.checked_sub(1).filter(|_| self.count > 0) {
            Some(last) => form.number(self.first as u64).number(last as u64),
            None => form.number(1).number(0),
        };
    }

    /// Redis tells of it even where nothing was removed.
    fn told(&self, outcome: &Changed) -> Told {
        if outcome.is_ok() { Told::Everybody } else { Told::Nobody }
    }
}

/// Unpacks the pages of which a part is about to be removed.
fn unpack_edges(
    tree: &mut Tree<Positions>,
    from: usize,
    count: usize,
    session: &Session,
) -> Result<(), Damaged> {
    if count == 0 {
        return Ok(());
    }
    for rank in [from, from + count - 1] {
        tree.change(ByRank(rank), |page| ready::<Positions>(page, session))?;
    }
    Ok(())
}
