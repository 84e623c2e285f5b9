//! The set's row in the table of types, and its forms.
#![allow(unsafe_code)]

use super::{Members, TABLE};
use crate::image::{Pen, Source};
use crate::pack::form::Damaged;
use crate::pack::piece::PieceJob;
use crate::types::elements::{Elements, Outline};
use crate::types::forms::{
    Asked, Back, Boxed, Form, FormRow, Installed, Measure, Met, Packing, Value, Wish,
};
use crate::types::pages::edit::{Collection, give};
use crate::types::pages::keyed::Records;
use crate::types::pages::paged::{Paged, item, run_for};
use crate::types::pages::run::Run;
use crate::types::{DataType, Reader, Sink, Unreadable, Unsaved};
use std::io;

const SMALL: Form = Form::inline(9);
const SMALL_PACKED: Form = Form::inline(10);

/// The set type.
#[derive(Debug)]
pub(crate) struct Sets;

impl DataType for Sets {
    const NAME: &'static str = "set";
    const NUMBER: u32 = 2;
    const FORMS: &'static [FormRow] = &[
        FormRow::packs(SMALL, SMALL_PACKED),
        FormRow::packed(SMALL_PACKED, SMALL),
        FormRow::boxed::<Paged<Members>>(),
    ];

    fn encoding(value: Value<'_>, _: usize, notes: &mut dyn FnMut() -> u8) -> &'static str {
        let notes = value.get::<Paged<Members>>().map_or_else(notes, |large| large.notes);
        if notes & TABLE == 0 { "intset" } else { "hashtable" }
    }

    /// Each member, as one of many without an order.
    fn digest(
        value: Value<'_>,
        reader: &mut dyn Reader,
        sink: &mut dyn Sink,
    ) -> Result<(), Unreadable> {
        let mut raw = Vec::new();
        let records = records(value, reader, &mut raw)?;
        let strings = records.strings();
        records.visit_for(reader, |record| {
            give(sink, &item(record, strings).0);
            sink.end_unordered();
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
        out.set(&Outline {
            len: records.len() as u64,
            bytes: records.bytes(),
            is_compact: records.notes() & TABLE == 0,
            ..Outline::default()
        })?;
        records.try_visit_for(reader, |record| {
            Ok::<_, Unsaved>(out.item(&item(record, strings).0.value())?)
        })?;
        Ok(out.end()?)
    }
}

/// The records of a set; `room` takes a small one that has to be unpacked.
fn records<'v>(
    value: Value<'v>,
    reader: &mut dyn Reader,
    room: &'v mut Vec<u8>,
) -> Result<Records<'v, Members>, Damaged> {
    if let Some(large) = value.get::<Paged<Members>>() {
        return Ok(Records::Large(large));
    }
    run_for(value, SMALL_PACKED, reader, room).map(Records::Small)
}

impl Collection for Sets {
    type Large = Paged<Members>;
    const SMALL: Form = SMALL;

    fn grow(run: Run<'_>) -> Paged<Members> {
        Paged::of(run)
    }

    fn len(large: &Paged<Members>) -> usize {
        large.len()
    }
}

// SAFETY: box number 5 is of sets alone.
unsafe impl Boxed for Paged<Members> {
    const FORM: Form = Form::boxed(5);
    const IS_IN_PARTS: bool = true;
    const COOLS_IN_PARTS: bool = true;

    fn measure(&self) -> Measure {
        Self::measure(self)
    }

    fn duplicate(&self) -> Self {
        Self::duplicate(self)
    }

    fn packing(&self) -> Packing {
        Paged::packing(self, size_of::<Self>())
    }

    fn notes(&self) -> u8 {
        self.notes
    }

    fn cool(&mut self, met: &Met<'_>) -> Wish {
        Paged::cool(self, met)
    }

    fn next_job(&mut self, asked: &Asked<'_>) -> Option<Box<dyn PieceJob>> {
        Paged::next_job(self, asked)
    }

    fn install(&mut self, job: &mut dyn PieceJob, _: &Back) -> Installed {
        Paged::install(self, job)
    }

    fn effort(&self) -> usize {
        if self.notes & TABLE == 0 { 1 } else { self.len() }
    }

    fn store(&self, pen: &mut dyn Pen) -> io::Result<()> {
        Paged::store(self, pen)
    }

    fn fetch(source: &mut dyn Source) -> io::Result<Self> {
        Paged::fetch(source)
    }
}
