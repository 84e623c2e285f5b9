//! The list's row in the table of types, and its forms.
#![allow(unsafe_code)]

use super::Positions;
use crate::image::{Pen, Source};
use crate::pack::piece::PieceJob;
use crate::types::elements::{Elements, Outline};
use crate::types::forms::{
    Asked, Back, Boxed, Form, FormRow, Installed, Measure, Met, Packing, Value, Wish,
};
use crate::types::pages::edit::{Collection, give};
use crate::types::pages::paged::{Paged, item, raw_for, run_for};
use crate::types::pages::run::Run;
use crate::types::{DataType, Reader, Sink, Unreadable, Unsaved};
use std::io;

const SMALL: Form = Form::inline(5);
const SMALL_PACKED: Form = Form::inline(6);

/// The list type.
#[derive(Debug)]
pub(crate) struct Lists;

impl DataType for Lists {
    const NAME: &'static str = "list";
    const NUMBER: u32 = 1;
    const FORMS: &'static [FormRow] = &[
        FormRow::packs(SMALL, SMALL_PACKED),
        FormRow::packed(SMALL_PACKED, SMALL),
        FormRow::boxed::<Paged<Positions>>(),
    ];

    fn encoding(_: Value<'_>, _: usize, _: &mut dyn FnMut() -> u8) -> &'static str {
        "quicklist"
    }

    /// Each item in its order.
    fn digest(
        value: Value<'_>,
        reader: &mut dyn Reader,
        sink: &mut dyn Sink,
    ) -> Result<(), Unreadable> {
        if let Some(large) = value.get::<Paged<Positions>>() {
            for leaf in large.tree.leaves(0) {
                let page = raw_for::<Positions>(leaf.page, reader)?;
                for record in page.records::<Positions>() {
                    give(sink, &item(record, Some(&large.strings)).0);
                    sink.end();
                }
            }
            return Ok(());
        }
        let mut room = Vec::new();
        let run = run_for(value, SMALL_PACKED, reader, &mut room)?;
        for record in run.each::<Positions>() {
            give(sink, &item(record, None).0);
            sink.end();
        }
        Ok(())
    }

    /// A page is a run. A list with strings that lie beside its pages has none.
    fn save(
        value: Value<'_>,
        reader: &mut dyn Reader,
        out: &mut dyn Elements,
    ) -> Result<(), Unsaved> {
        if let Some(large) = value.get::<Paged<Positions>>() {
            let measure = large.measure();
            let has_long = large.strings.measure().1 > 0;
            out.list(&Outline {
                len: large.len() as u64,
                bytes: measure.raw as u64,
                runs: (!has_long).then_some(large.tree.pages() as u64),
                ..Outline::default()
            })?;
            for leaf in large.tree.leaves(0) {
                let page = raw_for::<Positions>(leaf.page, reader)?;
                out.run()?;
                for record in page.records::<Positions>() {
                    out.item(&item(record, Some(&large.strings)).0.value())?;
                }
            }
            return Ok(out.end()?);
        }
        let mut room = Vec::new();
        let run = run_for(value, SMALL_PACKED, reader, &mut room)?;
        out.list(&Outline {
            len: run.count as u64,
            bytes: run.records.len() as u64,
            runs: Some(1),
            is_compact: true,
            expires: None,
        })?;
        out.run()?;
        for record in run.each::<Positions>() {
            out.item(&item(record, None).0.value())?;
        }
        Ok(out.end()?)
    }
}

impl Collection for Lists {
    type Large = Paged<Positions>;
    const SMALL: Form = SMALL;

    fn grow(run: Run<'_>) -> Self::Large {
        Paged::of(run)
    }

    fn len(large: &Self::Large) -> usize {
        large.len()
    }
}

// SAFETY: box number 3 is of lists alone.
unsafe impl Boxed for Paged<Positions> {
    const FORM: Form = Form::boxed(3);
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
        self.tree.pages()
    }

    fn store(&self, pen: &mut dyn Pen) -> io::Result<()> {
        Paged::store(self, pen)
    }

    fn fetch(source: &mut dyn Source) -> io::Result<Self> {
        Paged::fetch(source)
    }
}
