//! The hash's row in the table of types, and its forms.
#![allow(unsafe_code)]

use super::ops::RemoveDue;
use super::times::Times;
use super::{EXPIRING, Fields, LargeHash, TABLE};
use crate::effect::Event;
use crate::hash::Key;
use crate::image::{Pen, Source};
use crate::pack::form::Damaged;
use crate::pack::piece::PieceJob;
use crate::slot::{Found, SlotGuard};
use crate::types::elements::{Elements, Outline};
use crate::types::forms::{
    Asked, Back, Boxed, Form, FormRow, Installed, Measure, Met, Packing, Value, Wish,
};
use crate::types::pages::edit::{Collection, give};
use crate::types::pages::keyed::{Records, body, expiry};
use crate::types::pages::paged::{Paged, item, run_for};
use crate::types::pages::run::Run;
use crate::types::{DataType, Reader, Sink, Unreadable, Unsaved};
use std::io;

const SMALL: Form = Form::inline(7);
const SMALL_PACKED: Form = Form::inline(8);

/// The hash type.
#[derive(Debug)]
pub(crate) struct Hashes;

impl DataType for Hashes {
    const NAME: &'static str = "hash";
    const NUMBER: u32 = 4;
    const FORMS: &'static [FormRow] = &[
        FormRow::packs(SMALL, SMALL_PACKED),
        FormRow::packed(SMALL_PACKED, SMALL),
        FormRow::boxed::<LargeHash>(),
    ];

    fn encoding(value: Value<'_>, _: usize, notes: &mut dyn FnMut() -> u8) -> &'static str {
        let notes = value.get::<LargeHash>().map_or_else(notes, |large| large.paged.notes);
        match (notes & TABLE, notes & EXPIRING) {
            (0, 0) => "listpack",
            (0, _) => "listpackex",
            _ => "hashtable",
        }
    }

    fn due(value: Value<'_>) -> u64 {
        value.get::<LargeHash>().map_or(u64::MAX, |large| large.times.first())
    }

    fn remove_due(slot: &mut SlotGuard<'_>, key: &Key<'_>, found: Found, limit: usize) -> usize {
        let op = RemoveDue::new(std::iter::empty(), limit);
        // Of what is damaged, who reads it is told.
        let Ok(edited) = slot.apply(key, Some(found), op, Event::FIELDS_EXPIRED) else { return 0 };
        if edited.is_gone {
            slot.session().store().tell_event(slot.db(), key.bytes, Event::DEL);
        }
        edited.outcome
    }

    /// Each field with its value, as one of many without an order.
    fn digest(
        value: Value<'_>,
        reader: &mut dyn Reader,
        sink: &mut dyn Sink,
    ) -> Result<(), Unreadable> {
        let mut raw = Vec::new();
        let records = records(value, reader, &mut raw)?;
        let strings = records.strings();
        records.visit_for(reader, |record| {
            let (field, rest) = item(body(record), strings);
            sink.begin_group();
            give(sink, &field);
            sink.end();
            give(sink, &item(rest, strings).0);
            sink.end();
            sink.end_group();
        })?;
        Ok(())
    }

    fn save(
        value: Value<'_>,
        reader: &mut dyn Reader,
        out: &mut dyn Elements,
    ) -> Result<(), Unsaved> {
        let mut raw = Vec::new();
        let records = records(value, reader, &mut raw)?;
        let strings = records.strings();
        let first = value.get::<LargeHash>().map_or(u64::MAX, |large| large.times.first());
        out.hash(&Outline {
            len: records.len() as u64,
            bytes: records.bytes(),
            runs: None,
            is_compact: records.notes() & TABLE == 0,
            expires: (first != u64::MAX).then_some(first),
        })?;
        records.try_visit_for(reader, |record| {
            let (field, rest) = item(body(record), strings);
            let (value, _) = item(rest, strings);
            Ok::<_, Unsaved>(out.field(&field.value(), &value.value(), expiry(record))?)
        })?;
        Ok(out.end()?)
    }
}

/// The records of a hash; `room` takes a small one that has to be unpacked.
fn records<'v>(
    value: Value<'v>,
    reader: &mut dyn Reader,
    room: &'v mut Vec<u8>,
) -> Result<Records<'v, Fields>, Damaged> {
    if let Some(large) = value.get::<LargeHash>() {
        return Ok(Records::Large(&large.paged));
    }
    run_for(value, SMALL_PACKED, reader, room).map(Records::Small)
}

impl Collection for Hashes {
    type Large = LargeHash;
    const SMALL: Form = SMALL;

    fn grow(run: Run<'_>) -> LargeHash {
        LargeHash { paged: Paged::of(run), times: Times::default() }
    }

    fn len(large: &LargeHash) -> usize {
        large.paged.len()
    }
}

// SAFETY: box number 4 is of hashes alone.
unsafe impl Boxed for LargeHash {
    const FORM: Form = Form::boxed(4);
    const IS_IN_PARTS: bool = true;
    const COOLS_IN_PARTS: bool = true;

    fn measure(&self) -> Measure {
        let measure = self.paged.measure();
        Measure { allocated: measure.allocated + self.times.allocated(), ..measure }
    }

    fn duplicate(&self) -> Self {
        Self { paged: self.paged.duplicate(), times: self.times.clone() }
    }

    fn packing(&self) -> Packing {
        self.paged.packing(size_of::<Self>())
    }

    fn notes(&self) -> u8 {
        self.paged.notes
    }

    fn cool(&mut self, met: &Met<'_>) -> Wish {
        self.paged.cool(met)
    }

    fn next_job(&mut self, asked: &Asked<'_>) -> Option<Box<dyn PieceJob>> {
        self.paged.next_job(asked)
    }

    fn install(&mut self, job: &mut dyn PieceJob, _: &Back) -> Installed {
        self.paged.install(job)
    }

    fn effort(&self) -> usize {
        if self.paged.notes & TABLE == 0 { 1 } else { self.paged.len() }
    }

    fn store(&self, pen: &mut dyn Pen) -> io::Result<()> {
        self.paged.store(pen)?;
        self.times.store(pen)
    }

    fn fetch(source: &mut dyn Source) -> io::Result<Self> {
        Ok(Self { paged: Paged::fetch(source)?, times: Times::fetch(source)? })
    }
}
