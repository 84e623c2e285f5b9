//! The ops of hashes.
//!
//! | op | as a command |
//! | --- | --- |
//! | [`SetFields`] | `HSET key field value ...` |
//! | [`RemoveFields`] | `HDEL key field ...` |
//!
//! A hash of which nothing is left is removed by the op that took the last field.

use super::{Fields, Hashes, LargeHash, TABLE};
use crate::effect::{Change, Form, Told};
use crate::hash::Key;
use crate::pack::form::Damaged;
use crate::slot::{Found, SlotGuard};
use crate::types::pages::edit::{Edit, Edited, flat};
use crate::types::pages::keyed::{self, change, find_in_run, with_room};
use crate::types::pages::paged::{Needle, put};
use crate::types::string::NewStr;

/// What a change of a hash came to: how many fields it concerned.
type Changed = Result<Edited<usize>, Damaged>;

/// Up to what size Redis would hold a hash as a listpack.
#[derive(Clone, Copy, Debug)]
pub struct HashLimits {
    /// Fields.
    pub entries: usize,
    /// Bytes of a field, and of a value.
    pub value: usize,
}

/// Sets fields to values; there may be no hash yet. How many fields are new is given back.
#[derive(Clone, Debug)]
pub struct SetFields<I> {
    /// The fields and their values; not empty.
    pub fields: I,
    /// What Redis would hold as a listpack.
    pub limits: HashLimits,
}

impl<'a, I: Iterator<Item = (NewStr<'a>, NewStr<'a>)> + Clone> Change for SetFields<I> {
    type Outcome = Changed;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> Changed {
        slot.edit::<Hashes, _>(key, found, |hash| {
            with_room(|room| {
                let mut added = 0;
                for (field, value) in self.fields.clone() {
                    added += usize::from(set(hash, &field, &value, &self.limits, room)?);
                }
                Ok(added)
            })
        })
        .and_then(flat)
    }

    fn form(&self, _: &Changed, key: &[u8], form: &mut Form<'_>) {
        form.command("HSET").bytes(key);
        for (field, value) in self.fields.clone() {
            form.value(&field).value(&value);
        }
    }

    fn told(&self, outcome: &Changed) -> Told {
        if outcome.is_ok() { Told::Everybody } else { Told::Nobody }
    }
}

/// Sets a field; whether it is new. `room` is where its record is written.
fn set(
    hash: &mut Edit<'_, Hashes>,
    field: &NewStr<'_>,
    value: &NewStr<'_>,
    limits: &HashLimits,
    room: &mut Vec<u8>,
) -> Result<bool, Damaged> {
    room.clear();
    let large_field = put(room, field);
    let middle = room.len();
    let large_value = put(room, value);
    let is_long = field.len() > limits.value || value.len() > limits.value;
    let table = |count: usize| if is_long || count > limits.entries { TABLE } else { 0 };
    if large_field.is_none() && large_value.is_none() {
        let needle = Needle::short(&room[..middle]);
        if let Some(mut small) = hash.small() {
            let place = find_in_run::<Fields>(&small.run(), &needle);
            let is_new = place.is_none();
            let (offset, len) = place.unwrap_or((small.run().records.len(), 0));
            if small.has_room(usize::from(is_new), room.len().saturating_sub(len)) {
                match is_new {
                    true => small.insert(offset, room),
                    false => small.replace(offset, len, room),
                }
                small.note(small.notes() | table(small.len()));
                return Ok(is_new);
            }
        }
        let session = hash.session;
        let LargeHash { paged, .. } = hash.large();
        let is_new = change(paged, session, &needle, |page, at, strings| {
            if let Some(at) = at {
                strings.remove_of(page.just::<Fields>(at));
                page.replace::<Fields>(at, room);
            } else {
                page.insert::<Fields>(page.len(), room);
            }
            at.is_none()
        })?;
        paged.notes |= table(paged.len());
        return Ok(is_new);
    }
    let (field, value) = (Needle::new(field), Needle::new(value));
    let session = hash.session;
    let LargeHash { paged, .. } = hash.large();
    let mut record = Vec::new();
    field.write(&mut record, Some(&mut paged.strings));
    value.write(&mut record, Some(&mut paged.strings));
    let is_new = change(paged, session, &field, |page, at, strings| {
        if let Some(at) = at {
            strings.remove_of(page.just::<Fields>(at));
            page.replace::<Fields>(at, &record);
        } else {
            page.insert::<Fields>(page.len(), &record);
        }
        at.is_none()
    })?;
    paged.notes |= table(paged.len());
    Ok(is_new)
}

/// Removes fields. How many there were is given back.
#[derive(Clone, Debug)]
pub struct RemoveFields<I> {
    /// Which.
    pub fields: I,
}

impl<'a, I: Iterator<Item = NewStr<'a>> + Clone> Change for RemoveFields<I> {
    type Outcome = Changed;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> Changed {
        slot.edit::<Hashes, _>(key, found, |hash| {
            let mut removed = 0;
            for field in self.fields.clone() {
                removed += usize::from(remove(hash, &Needle::new(&field))?);
            }
            Ok(removed)
        })
        .and_then(flat)
    }

    fn form(&self, _: &Changed, key: &[u8], form: &mut Form<'_>) {
        form.command("HDEL").bytes(key);
        for field in self.fields.clone() {
            form.value(&field);
        }
    }

    fn told(&self, outcome: &Changed) -> Told {
        match outcome {
            Ok(Edited { outcome: 1.., .. }) => Told::Everybody,
            _ => Told::Nobody,
        }
    }
}

fn remove(hash: &mut Edit<'_, Hashes>, field: &Needle) -> Result<bool, Damaged> {
    if let Some(mut small) = hash.small() {
        let place = find_in_run::<Fields>(&small.run(), field);
        if let Some((offset, len)) = place {
            small.remove(offset, len, 1);
        }
        return Ok(place.is_some());
    }
    let session = hash.session;
    keyed::remove(&mut hash.large().paged, session, field)
}
