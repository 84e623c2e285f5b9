//! The sorted set's row in the table of types, and its forms.
#![allow(unsafe_code)]

use super::order::{Scores, member_of, score_of};
use super::ranked::Ranked;
use crate::image::{Pen, Source};
use crate::pack::piece::PieceJob;
use crate::types::elements::{Elements, Outline};
use crate::types::forms::{Asked, Back, Boxed, Form, FormRow, Installed, Measure, Met};
use crate::types::forms::{Packing, Value, Wish};
use crate::types::pages::edit::{Collection, give};
use crate::types::pages::paged::{LargeStrings, item, packing, raw_for, run_for};
use crate::types::pages::run::Run;
use crate::types::{DataType, Reader, Sink, Unreadable, Unsaved};
use std::io;

const SMALL: Form = Form::inline(11);
const SMALL_PACKED: Form = Form::inline(12);

/// Noted of a sorted set that Redis would hold as a skiplist: it never converts one back.
pub(crate) const SKIPLIST: u8 = 1;

/// The sorted set type.
#[derive(Debug)]
pub(crate) struct SortedSets;

impl DataType for SortedSets {
    const NAME: &'static str = "zset";
    const NUMBER: u32 = 3;
    const FORMS: &'static [FormRow] = &[
        FormRow::packs(SMALL, SMALL_PACKED),
        FormRow::packed(SMALL_PACKED, SMALL),
        FormRow::boxed::<Ranked>(),
    ];

    fn encoding(value: Value<'_>, _: usize, notes: &mut dyn FnMut() -> u8) -> &'static str {
        let notes = value.get::<Ranked>().map_or_else(notes, |large| large.notes);
        if notes & SKIPLIST != 0 { "skiplist" } else { "listpack" }
    }

    /// Each member with its score, as one of many without an order, as Redis has it.
    fn digest(
        value: Value<'_>,
        reader: &mut dyn Reader,
        sink: &mut dyn Sink,
    ) -> Result<(), Unreadable> {
        if let Some(large) = value.get::<Ranked>() {
            for leaf in large.scores.leaves(0) {
                let page = raw_for::<Scores>(leaf.page, reader)?;
                for record in page.records::<Scores>() {
                    give_row(sink, record, Some(&large.strings));
                }
            }
            return Ok(());
        }
        let mut room = Vec::new();
        let run = run_for(value, SMALL_PACKED, reader, &mut room)?;
        run.each::<Scores>().for_each(|record| give_row(sink, record, None));
        Ok(())
    }

    fn save(
        value: Value<'_>,
        reader: &mut dyn Reader,
        out: &mut dyn Elements,
    ) -> Result<(), Unsaved> {
        if let Some(large) = value.get::<Ranked>() {
            out.sorted_set(&Outline {
                len: large.len() as u64,
                bytes: large.measure().raw as u64,
                is_compact: large.notes & SKIPLIST == 0,
                ..Outline::default()
            })?;
            for leaf in large.scores.leaves(0) {
                let page = raw_for::<Scores>(leaf.page, reader)?;
                for record in page.records::<Scores>() {
                    let member = item(member_of(record), Some(&large.strings)).0;
                    out.member(score_of(record), &member.value())?;
                }
            }
            return Ok(out.end()?);
        }
        let mut room = Vec::new();
        let run = run_for(value, SMALL_PACKED, reader, &mut room)?;
        out.sorted_set(&Outline {
            len: run.count as u64,
            bytes: run.records.len() as u64,
            is_compact: run.notes & SKIPLIST == 0,
            ..Outline::default()
        })?;
        for record in run.each::<Scores>() {
            out.member(score_of(record), &item(member_of(record), None).0.value())?;
        }
        Ok(out.end()?)
    }
}

/// Gives the sink a member as a piece, and its score.
fn give_row(sink: &mut dyn Sink, record: &[u8], strings: Option<&LargeStrings>) {
    sink.begin_group();
    give(sink, &item(member_of(record), strings).0);
    sink.end();
    sink.number(score_of(record));
    sink.end_group();
}

impl Collection for SortedSets {
    type Large = Ranked;
    const SMALL: Form = SMALL;

    fn grow(run: Run<'_>) -> Self::Large {
        Ranked::of(run)
    }

    fn len(large: &Self::Large) -> usize {
        large.len()
    }
}

// SAFETY: box number 6 is of sorted sets alone.
unsafe impl Boxed for Ranked {
    const FORM: Form = Form::boxed(6);
    const IS_IN_PARTS: bool = true;
    const COOLS_IN_PARTS: bool = true;

    fn measure(&self) -> Measure {
        Self::measure(self)
    }

    fn duplicate(&self) -> Self {
        Self::duplicate(self)
    }

    fn packing(&self) -> Packing {
        packing(&Self::measure(self), size_of::<Self>(), self.scores.main_dictionary())
    }

    fn notes(&self) -> u8 {
        self.notes
    }

    fn cool(&mut self, met: &Met<'_>) -> Wish {
        Self::cool(self, met)
    }

    fn next_job(&mut self, asked: &Asked<'_>) -> Option<Box<dyn PieceJob>> {
        Self::next_job(self, asked)
    }

    fn install(&mut self, job: &mut dyn PieceJob, _: &Back) -> Installed {
        Self::install(self, job)
    }

    fn effort(&self) -> usize {
        if self.notes & SKIPLIST != 0 { self.len() } else { 1 }
    }

    fn store(&self, pen: &mut dyn Pen) -> io::Result<()> {
        Self::write(self, pen)
    }

    fn fetch(source: &mut dyn Source) -> io::Result<Self> {
        Self::read(source)
    }
}
