//! The ops of hashes.
//!
//! | op | as a command |
//! | --- | --- |
//! | [`SetFields`] | `HSET key field value ...`, `HSETEX key PXAT ms\|KEEPTTL FIELDS n field value ...` |
//! | [`RemoveFields`], [`RemoveDue`] | `HDEL key field ...` |
//! | [`ExpireFields`] | `HPEXPIREAT key ms FIELDS n field ...`, `HPERSIST key FIELDS n field ...` |
//!
//! A hash of which nothing is left is removed by the op that took the last field.

use super::{EXPIRING, Fields, Hashes, LargeHash, TABLE};
use crate::effect::{Change, Form, Told};
use crate::hash::Key;
use crate::pack::form::Damaged;
use crate::slot::{Found, SlotGuard};
use crate::types::pages::edit::{Changed, Edit, flat, told};
use crate::types::pages::element::EXPIRES;
use crate::types::pages::keyed::{self, body, change, expiry, find_in_run, with_room};
use crate::types::pages::paged::{Needle, put, ready};
use crate::types::pages::tree::ByBound;
use crate::types::set::Elements;
use crate::types::string::NewStr;
use std::cell::Cell;

/// Up to what size Redis would hold a hash as a listpack.
#[derive(Clone, Copy, Debug)]
pub struct HashLimits {
    /// Fields.
    pub entries: usize,
    /// Bytes of a field, and of a value.
    pub value: usize,
}

/// What becomes of the expiry of a field that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldExpiry {
    /// It no longer expires.
    Clear,
    /// It stays as it is.
    Keep,
    /// The field expires at this Unix time in milliseconds.
    At(u64),
}

/// Sets fields to values; there may be no hash yet. How many fields are new is given back.
#[derive(Clone, Debug)]
pub struct SetFields<I> {
    /// The fields and their values; not empty.
    pub fields: I,
    /// Whether they expire.
    pub expiry: FieldExpiry,
    /// What Redis would hold as a listpack.
    pub limits: HashLimits,
    /// Whether one of them has kept a time; for the op itself.
    kept: Cell<bool>,
}

impl<I> SetFields<I> {
    /// Sets these fields.
    pub fn new(fields: I, expiry: FieldExpiry, limits: HashLimits) -> Self {
        Self { fields, expiry, limits, kept: Cell::new(false) }
    }
}

impl<'a, I: Iterator<Item = (NewStr<'a>, NewStr<'a>)> + Clone> Change for SetFields<I> {
    type Outcome = Changed;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> Changed {
        let edited = slot.edit::<Hashes, _>(key, found, |hash| {
            with_room(|room| {
                let mut added = 0;
                for (field, value) in self.fields.clone() {
                    added += usize::from(self.set(hash, &field, &value, room)?);
                }
                Ok(added)
            })
        });
        if let FieldExpiry::At(at) = self.expiry {
            slot.expires_at(at);
        }
        edited.and_then(flat)
    }

    fn form(&self, _: &Changed, key: &[u8], form: &mut Form<'_>) {
        let expiring = match self.expiry {
            FieldExpiry::Clear => None,
            FieldExpiry::Keep if !self.kept.get() => None,
            FieldExpiry::Keep => Some(form.command("HSETEX").bytes(key).word("KEEPTTL")),
            FieldExpiry::At(at) => Some(form.command("HSETEX").bytes(key).word("PXAT").number(at)),
        };
        match expiring {
            Some(form) => _ = form.word("FIELDS").number(self.fields.clone().count() as u64),
            None => _ = form.command("HSET").bytes(key),
        }
        for (field, value) in self.fields.clone() {
            form.value(&field).value(&value);
        }
    }

    fn told(&self, outcome: &Changed) -> Told {
        if outcome.is_ok() { Told::Everybody } else { Told::Nobody }
    }
}

impl<I> SetFields<I> {
    /// Sets a field; whether it is new. `room` is where its record is written.
    pub(super) fn set(
        &self,
        hash: &mut Edit<'_, Hashes>,
        field: &NewStr<'_>,
        value: &NewStr<'_>,
        room: &mut Vec<u8>,
    ) -> Result<bool, Damaged> {
        room.clear();
        let large_field = put(room, field);
        let middle = room.len();
        let large_value = put(room, value);
        let is_large = large_field.is_some() || large_value.is_some();
        let needle = match large_field {
            Some(field) => Needle::large(field),
            None => Needle::short(&room[..middle]),
        };
        let limits = &self.limits;
        let is_long = field.len() > limits.value || value.len() > limits.value;
        let table = |count: usize| if is_long || count > limits.entries { TABLE } else { 0 };
        let expires = matches!(self.expiry, FieldExpiry::At(_));
        if !is_large
            && !expires
            && let Some(mut small) = hash.small()
        {
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
        let LargeHash { paged, times } = hash.large();
        if is_large {
            room.clear();
            needle.write(room, Some(&mut paged.strings));
            Needle::new(value).write(room, Some(&mut paged.strings));
        }
        let (is_new, before, after) = change(paged, session, &needle, |page, at, strings| {
            let before = at.and_then(|at| expiry(page.record(at)));
            let after = match self.expiry {
                FieldExpiry::Clear => None,
                FieldExpiry::Keep => {
                    self.kept.set(self.kept.get() || before.is_some());
                    before
                }
                FieldExpiry::At(at) => Some(at),
            };
            if let Some(at) = after {
                room.splice(0..0, timed(at));
            }
            if let Some(at) = at {
                strings.remove_of(page.just::<Fields>(at));
                page.replace::<Fields>(at, room);
            } else {
                page.insert::<Fields>(page.len(), room);
            }
            (at.is_none(), before, after)
        })?;
        times.change(needle.key(), before, after);
        paged.notes |= table(paged.len()) | if expires { EXPIRING } else { 0 };
        Ok(is_new)
    }
}

/// What stands before a record that expires.
fn timed(at: u64) -> impl Iterator<Item = u8> {
    std::iter::once(EXPIRES).chain(at.to_le_bytes())
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
        told(outcome)
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
    remove_if(hash, field, |_| true)
}

/// Removes a field of a large hash if its expiry is such; whether it did.
fn remove_if(
    hash: &mut Edit<'_, Hashes>,
    field: &Needle,
    is_such: impl FnOnce(Option<u64>) -> bool,
) -> Result<bool, Damaged> {
    let session = hash.session;
    let LargeHash { paged, times } = hash.large();
    let removed = change(paged, session, field, |page, at, strings| {
        let at = at?;
        let expiry = expiry(page.record(at));
        is_such(expiry).then(|| {
            strings.remove_of(page.just::<Fields>(at));
            page.remove::<Fields>(at);
            expiry
        })
    })?;
    if let Some(expiry) = removed {
        times.change(field.key(), expiry, None);
    }
    Ok(removed.is_some())
}

/// Removes fields whose time has come: those that are named, and some of the others. How
/// many there were is given back.
#[derive(Clone, Debug)]
pub struct RemoveDue<I> {
    named: I,
    limit: usize,
    removed: Elements,
}

impl<I> RemoveDue<I> {
    /// Of `named` all, and of others until there are `limit`.
    pub fn new(named: I, limit: usize) -> Self {
        Self { named, limit, removed: Elements::default() }
    }

    fn remove(&mut self, hash: &mut Edit<'_, Hashes>) -> Result<(), Damaged> {
        let session = hash.session;
        let LargeHash { paged, times } = hash.large();
        while self.removed.len() < self.limit
            && let Some((at, key)) = times.next()
            && at <= session.now()
        {
            let strings = &mut paged.strings;
            paged.tree.change(ByBound(|bound: &u64| key >= *bound), |page| {
                ready::<Fields>(page, session)?;
                for place in (0..page.len()).rev() {
                    let record = page.just::<Fields>(place);
                    if expiry(record) == Some(at) && keyed::key(record) == key {
                        self.removed.push(body(record), Some(strings));
                        strings.remove_of(record);
                        page.remove::<Fields>(place);
                    }
                }
                Ok::<_, Damaged>(())
            })?;
            times.forget((at, key));
        }
        Ok(())
    }
}

impl<'a, I: Iterator<Item = NewStr<'a>> + Clone> Change for RemoveDue<I> {
    type Outcome = Changed;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> Changed {
        slot.edit::<Hashes, _>(key, found, |hash| {
            let now = hash.session.now();
            for field in self.named.clone() {
                let needle = Needle::new(&field);
                if remove_if(hash, &needle, |expiry| expiry.is_some_and(|at| at <= now))? {
                    self.removed.add(&needle);
                }
            }
            self.remove(hash)?;
            Ok(self.removed.len())
        })
        .and_then(flat)
    }

    fn form(&self, _: &Changed, key: &[u8], form: &mut Form<'_>) {
        form.command("HDEL").bytes(key);
        for field in self.removed.each() {
            form.value(&field.value());
        }
    }

    fn told(&self, outcome: &Changed) -> Told {
        told(outcome)
    }
}

/// Has fields expire at a time, or no longer; those that there are. How many that
/// concerned is given back.
#[derive(Clone, Debug)]
pub struct ExpireFields<I> {
    /// Which.
    pub fields: I,
    /// The Unix time in milliseconds, or none for never.
    pub at: Option<u64>,
}

impl<'a, I: Iterator<Item = NewStr<'a>> + Clone> Change for ExpireFields<I> {
    type Outcome = Changed;

    fn apply(&mut self, slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Option<Found>) -> Changed {
        let edited = slot.edit::<Hashes, _>(key, found, |hash| {
            let mut changed = 0;
            for field in self.fields.clone() {
                changed += usize::from(self.expire(hash, &Needle::new(&field))?);
            }
            Ok(changed)
        });
        if let Some(at) = self.at {
            slot.expires_at(at);
        }
        edited.and_then(flat)
    }

    fn form(&self, _: &Changed, key: &[u8], form: &mut Form<'_>) {
        match self.at {
            Some(at) => form.command("HPEXPIREAT").bytes(key).number(at),
            None => form.command("HPERSIST").bytes(key),
        };
        form.word("FIELDS").number(self.fields.clone().count() as u64);
        for field in self.fields.clone() {
            form.value(&field);
        }
    }

    fn told(&self, outcome: &Changed) -> Told {
        told(outcome)
    }
}

impl<I> ExpireFields<I> {
    /// Whether there is the field, and its expiry has changed.
    fn expire(&self, hash: &mut Edit<'_, Hashes>, field: &Needle) -> Result<bool, Damaged> {
        if self.at.is_none() && hash.small().is_some() {
            return Ok(false);
        }
        let session = hash.session;
        let LargeHash { paged, times } = hash.large();
        let before = change(paged, session, field, |page, at, _| {
            let at = at?;
            let before = expiry(page.record(at));
            if before != self.at {
                let elements = body(page.just::<Fields>(at));
                let record: Vec<u8> =
                    self.at.into_iter().flat_map(timed).chain(elements.iter().copied()).collect();
                page.replace::<Fields>(at, &record);
            }
            Some(before)
        })?;
        let Some(before) = before else { return Ok(false) };
        times.change(field.key(), before, self.at);
        paged.notes |= EXPIRING;
        Ok(before != self.at)
    }
}
