//! Reads a value that somebody else has made, and sees that it is what it says: as many
//! parts, of the kinds that were told. Every format's writer relies on that, so what passes
//! here can be saved in any of them.

use super::pen::wrong;
use crate::types::elements::{
    ConsumerOutline, Elements, EntryFields, GroupOutline, Outline, StreamFacts, StreamOutline,
};
use crate::types::stream::StreamId;
use crate::types::string::{NewStr, canonical_int};
use std::io;

/// Parts that are still to come: as many as were told.
#[derive(Default)]
struct Left(u64);

impl Left {
    fn take(&mut self, count: u64) -> io::Result<()> {
        let left = self.0.checked_sub(count);
        self.0 = left.ok_or_else(|| wrong("a value has more parts than it says"))?;
        Ok(())
    }

    fn none(&self) -> io::Result<()> {
        match self.0 {
            0 => Ok(()),
            _ => Err(wrong("a value has fewer parts than it says")),
        }
    }
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct Check {
    /// Bytes of a string, elements of a collection, entries of a stream.
    parts: Left,
    /// Of a list whose items come in runs: these, and the items of the last one.
    runs: Option<Left>,
    in_run: Option<u64>,
    /// All members are integers.
    of_integers: bool,
    /// Fields expire, and none before that.
    expires: Option<u64>,
    groups: Left,
    /// Of the group: what is pending in it, how much of that is still to be told of
    /// consumers, and these.
    pending: Left,
    unowned: Left,
    consumers: Left,
    /// Of the consumer: what is pending for it.
    owned: Left,
}

impl Check {
    fn collection(&mut self, outline: &Outline) -> io::Result<()> {
        self.parts = Left(outline.len);
        if outline.len == 0 { Err(wrong("a collection has no elements")) } else { Ok(()) }
    }

    /// The run that has begun, if one has, has items.
    fn end_run(&self) -> io::Result<()> {
        match self.in_run {
            Some(0) => Err(wrong("a part of a list has no items")),
            _ => Ok(()),
        }
    }

    /// The group that was told of is whole.
    fn end_group(&self) -> io::Result<()> {
        [&self.pending, &self.consumers, &self.owned, &self.unowned]
            .into_iter()
            .try_for_each(Left::none)
    }
}

impl Elements for Check {
    fn string(&mut self, len: u64) -> io::Result<()> {
        self.parts = Left(len);
        Ok(())
    }

    fn part(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.parts.take(bytes.len() as u64)
    }

    fn integer(&mut self, _: i64) -> io::Result<()> {
        Ok(())
    }

    fn list(&mut self, outline: &Outline) -> io::Result<()> {
        self.runs = outline.runs.map(Left);
        self.collection(outline)
    }

    fn set(&mut self, outline: &Outline) -> io::Result<()> {
        self.of_integers = outline.is_compact;
        self.collection(outline)
    }

    fn hash(&mut self, outline: &Outline) -> io::Result<()> {
        self.expires = outline.expires;
        self.collection(outline)
    }

    fn sorted_set(&mut self, outline: &Outline) -> io::Result<()> {
        self.collection(outline)
    }

    fn stream(&mut self, outline: &StreamOutline) -> io::Result<()> {
        self.parts = Left(outline.len);
        Ok(())
    }

    fn run(&mut self) -> io::Result<()> {
        self.end_run()?;
        self.in_run = Some(0);
        match &mut self.runs {
            Some(runs) => runs.take(1),
            None => Ok(()),
        }
    }

    fn item(&mut self, item: &NewStr<'_>) -> io::Result<()> {
        let is_integer = match item {
            NewStr::Int(_) => true,
            NewStr::Bytes(bytes) => canonical_int(bytes).is_some(),
            _ => false,
        };
        if self.of_integers && !is_integer {
            return Err(wrong("a set of integers has a member that is none"));
        }
        if let Some(items) = &mut self.in_run {
            *items += 1;
        }
        self.parts.take(1)
    }

    fn field(&mut self, _: &NewStr<'_>, _: &NewStr<'_>, expires: Option<u64>) -> io::Result<()> {
        if expires.is_some_and(|at| self.expires.is_none_or(|first| at < first)) {
            return Err(wrong("a field expires before the first that does"));
        }
        self.parts.take(1)
    }

    fn member(&mut self, score: f64, _: &NewStr<'_>) -> io::Result<()> {
        if score.is_nan() {
            return Err(wrong("a score is not a number"));
        }
        self.parts.take(1)
    }

    fn entry(&mut self, _: StreamId, _: &EntryFields<'_>) -> io::Result<()> {
        self.parts.take(1)
    }

    fn facts(&mut self, facts: &StreamFacts) -> io::Result<()> {
        self.groups = Left(facts.groups);
        self.parts.none()
    }

    fn group(&mut self, group: &GroupOutline<'_>) -> io::Result<()> {
        self.end_group()?;
        self.groups.take(1)?;
        self.pending = Left(group.pending);
        self.unowned = Left(group.pending);
        self.consumers = Left(group.consumers);
        Ok(())
    }

    fn pending(&mut self, _: StreamId, _: u64, _: u64) -> io::Result<()> {
        self.pending.take(1)
    }

    fn consumer(&mut self, consumer: &ConsumerOutline<'_>) -> io::Result<()> {
        self.pending.none()?;
        self.owned.none()?;
        self.owned = Left(consumer.pending);
        self.consumers.take(1)
    }

    fn owned(&mut self, _: StreamId) -> io::Result<()> {
        self.owned.take(1)?;
        self.unowned.take(1)
    }

    fn end(&mut self) -> io::Result<()> {
        if let Some(runs) = &self.runs {
            runs.none()?;
        }
        self.end_run()?;
        self.end_group()?;
        self.groups.none()?;
        self.parts.none()
    }
}
