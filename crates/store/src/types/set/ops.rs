//! The ops of sets.
//!
//! | op | as a command |
//! | --- | --- |
//! | [`AddMembers`], [`PutSet`](super::several::PutSet) | `SADD key member ...` |
//! | [`RemoveMembers`], [`RemoveElements`] | `SREM key member ...` |
//!
//! A set of which nothing is left is removed by the op that took the last member.

use super::{Members, Sets, TABLE};
use crate::effect::{Change, Form, Told};
use crate::hash::Key;
use crate::pack::form::Damaged;
use crate::slot::{Found, SlotGuard};
use crate::types::pages::edit::{Changed, Edit, flat, told};
use crate::types::pages::keyed::{self, change, find, find_in_run, integer};
use crate::types::pages::paged::{Item, Needle};
use crate::types::pages::run::Run;
use crate::types::pages::tree::ByBound;
use crate::types::string::NewStr;

pub use super::several::PutSet;

/// Up to what size Redis would hold a set as an intset.
#[derive(Clone, Copy, Debug)]
pub struct SetLimits {
    /// Members.
    pub intset_entries: usize,
}

impl SetLimits {
    /// What is to be noted of a set that has got this member, and has so many.
    #[inline]
    pub(super) fn notes(self, record: &[u8], len: usize) -> u8 {
        let is_intset = len <= self.intset_entries && integer(record).is_some();
        if is_intset { 0 } else { TABLE }
    }
}

/// Adds members; there may be no set yet. How many are new is given back.
#[derive(Clone, Debug)]
pub struct AddMembers<I> {
    /// The members; not empty.
    pub members: I,
    /// What Redis would hold as an intset.
    pub limits: SetLimits,
}

impl<'a, I: Iterator<Item = NewStr<'a>> + Clone> Change for AddMembers<I> {
    type Outcome = Changed;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> Changed {
        slot.edit::<Sets, _>(key, found, |set| {
            let mut added = 0;
            for member in self.members.clone() {
                added += usize::from(add(set, &Needle::new(&member), self.limits)?);
            }
            Ok(added)
        })
        .and_then(flat)
    }

    fn form(&self, _: &Changed, key: &[u8], form: &mut Form<'_>) {
        form.command("SADD").bytes(key);
        for member in self.members.clone() {
            form.value(&member);
        }
    }

    fn told(&self, outcome: &Changed) -> Told {
        told(outcome)
    }
}

/// Where in a small set of integers, which are in order, one is: `Ok` if it is there, else
/// where it belongs.
fn place_among_ints(run: &Run<'_>, value: i64) -> Result<usize, usize> {
    let mut offset = 0;
    for record in run.each::<Members>() {
        match integer(record).unwrap_or(i64::MAX).cmp(&value) {
            std::cmp::Ordering::Less => offset += record.len(),
            std::cmp::Ordering::Equal => return Ok(offset),
            std::cmp::Ordering::Greater => break,
        }
    }
    Err(offset)
}

/// Adds a member; whether it is new.
pub(super) fn add(
    set: &mut Edit<'_, Sets>,
    needle: &Needle,
    limits: SetLimits,
) -> Result<bool, Damaged> {
    if let Needle::Short(element) = needle
        && let Some(mut small) = set.small()
    {
        let run = small.run();
        let offset = match integer(element).filter(|_| run.notes & TABLE == 0) {
            Some(value) => place_among_ints(&run, value).err(),
            None => match find_in_run::<Members>(&run, needle) {
                Some(_) => None,
                None => Some(run.records.len()),
            },
        };
        let Some(offset) = offset else { return Ok(false) };
        if small.has_room(1, element.len()) {
            small.insert(offset, element);
            small.note(small.notes() | limits.notes(element, small.len()));
            return Ok(true);
        }
    }
    let session = set.session;
    let large = set.large();
    if let Needle::Short(element) = needle {
        let is_new = change(large, session, needle, |page, at, _| {
            if at.is_none() {
                page.insert::<Members>(page.len(), element);
            }
            at.is_none()
        })?;
        if is_new {
            large.notes |= limits.notes(element, large.len());
        }
        return Ok(is_new);
    }
    let key = needle.key();
    let page = large.tree.page(ByBound(|bound: &u64| key >= *bound));
    let page = crate::types::pages::paged::raw::<Members>(page, session)?;
    if find(&page, needle, key, &large.strings).is_some() {
        return Ok(false);
    }
    drop(page);
    let mut record = Vec::new();
    needle.write(&mut record, Some(&mut large.strings));
    change(large, session, needle, |page, _, _| page.insert::<Members>(page.len(), &record))?;
    large.notes |= TABLE;
    Ok(true)
}

/// Removes members. How many there were is given back.
#[derive(Clone, Debug)]
pub struct RemoveMembers<I> {
    /// Which.
    pub members: I,
}

impl<'a, I: Iterator<Item = NewStr<'a>> + Clone> Change for RemoveMembers<I> {
    type Outcome = Changed;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> Changed {
        slot.edit::<Sets, _>(key, found, |set| {
            let mut removed = 0;
            for member in self.members.clone() {
                removed += usize::from(remove(set, &Needle::new(&member))?);
            }
            Ok(removed)
        })
        .and_then(flat)
    }

    fn form(&self, _: &Changed, key: &[u8], form: &mut Form<'_>) {
        form.command("SREM").bytes(key);
        for member in self.members.clone() {
            form.value(&member);
        }
    }

    fn told(&self, outcome: &Changed) -> Told {
        told(outcome)
    }
}

fn remove(set: &mut Edit<'_, Sets>, needle: &Needle) -> Result<bool, Damaged> {
    if let Some(mut small) = set.small() {
        let place = find_in_run::<Members>(&small.run(), needle);
        if let Some((offset, len)) = place {
            small.remove(offset, len, 1);
        }
        return Ok(place.is_some());
    }
    let session = set.session;
    keyed::remove(set.large(), session, needle)
}

/// The same of members that were taken from the set before.
#[derive(Clone, Debug)]
pub struct RemoveElements<'e> {
    /// Which.
    pub elements: &'e super::Elements,
}

impl Change for RemoveElements<'_> {
    type Outcome = Changed;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> Changed {
        slot.edit::<Sets, _>(key, found, |set| {
            let mut removed = 0;
            for needle in self.elements.needles() {
                removed += usize::from(remove(set, &needle)?);
            }
            Ok(removed)
        })
        .and_then(flat)
    }

    fn form(&self, _: &Changed, key: &[u8], form: &mut Form<'_>) {
        form.command("SREM").bytes(key);
        for member in self.elements.each() {
            match member {
                Item::Bytes(bytes) => _ = form.bytes(&bytes),
                Item::Large(string) => _ = form.value(&NewStr::Chain(string.clone())),
            }
        }
    }

    fn told(&self, outcome: &Changed) -> Told {
        told(outcome)
    }
}
