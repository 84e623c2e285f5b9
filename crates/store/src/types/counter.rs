//! A type that is there for tests alone: what it takes to add one. All of it is this
//! file, and its line in the table of types.
//!
//! A counter is what was added to it, in pages of numbers, each packed by itself.
#![allow(unsafe_code)]

use super::elements::Elements;
use super::forms::{
    Asked, Back, Boxed, Form, FormRow, Installed, Measure, Met, Packing, Value, Wish,
};
use super::{DataType, Reader, Sink, Unreadable, Unsaved};
use crate::image::{Pen, Source};
use crate::memory::usable;
use crate::pack::dictionaries::HeldDictionary;
use crate::pack::identity::{Identity, Seen};
use crate::pack::piece::{Fate, PieceJob, Plans, Ran, Running, With};
use crate::pack::recipe::{Made, Recipe};
use std::any::Any;
use std::io;
use std::sync::Arc;

pub(super) struct Counters;

impl DataType for Counters {
    const NAME: &'static str = "counter";
    const NUMBER: u32 = 99;
    const FORMS: &'static [FormRow] = &[FormRow::boxed::<Pages>()];

    fn encoding(_: Value<'_>, _: usize, _: &mut dyn FnMut() -> u8) -> &'static str {
        "numbers"
    }

    fn digest(
        value: Value<'_>,
        reader: &mut dyn Reader,
        sink: &mut dyn Sink,
    ) -> Result<(), Unreadable> {
        for page in value.get::<Pages>().iter().flat_map(|pages| &pages.0) {
            let mut raw = Vec::new();
            match &page.data {
                Data::Raw(bytes) | Data::Tried(bytes) => raw.extend_from_slice(bytes),
                Data::Packed { form, .. } => reader.unpack(form, &mut raw)?,
            }
            sink.part(text(&numbers(&raw)).as_bytes());
        }
        sink.end();
        Ok(())
    }

    /// No format knows of counters.
    fn save(_: Value<'_>, _: &mut dyn Reader, out: &mut dyn Elements) -> Result<(), Unsaved> {
        Ok(out.end()?)
    }
}

fn text(numbers: &[u64]) -> String {
    let texts: Vec<String> = numbers.iter().map(|number| format!("{number} ")).collect();
    texts.concat()
}

fn numbers(raw: &[u8]) -> Vec<u64> {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    raw.chunks(8).map(number).collect()
}

/// Pages of numbers.
#[derive(Clone, Debug)]
struct Pages(Vec<Page>);

#[derive(Clone, Debug)]
struct Page {
    identity: Identity,
    data: Data,
}

#[derive(Clone, Debug)]
enum Data {
    /// To be packed.
    Raw(Arc<[u8]>),
    /// Not worth packing.
    Tried(Arc<[u8]>),
    /// Packed, with the family's dictionary if there is one.
    Packed { form: Vec<u8>, raw_len: usize, _held: Option<HeldDictionary> },
}

impl Pages {
    fn of(pages: &[&[u64]]) -> Self {
        let page = |numbers: &&[u64]| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            Page { identity: Identity::new(), data: Data::Raw(bytes.into()) }
        };
        Self(pages.iter().map(page).collect())
    }
}

/// A page that is out to be packed.
#[derive(Debug)]
struct PagePiece {
    page: Seen,
    raw: Arc<[u8]>,
    recipe: Option<Recipe>,
    /// What is to take its place.
    made: Option<Data>,
}

impl PieceJob for PagePiece {
    fn raw_bytes(&self) -> usize {
        self.raw.len()
    }

    fn subject(&self) -> ((&[u8], &[u8]), usize) {
        ((&[], &[]), self.raw.len())
    }

    fn prepare(&mut self, plan: &Plans<'_>) {
        self.recipe = plan.recipe(&self.raw, true);
    }

    fn run<'j>(&'j mut self, with: With<'j>) -> Running<'j> {
        Box::pin(async move {
            let (raw, raw_bytes) = (Arc::clone(&self.raw), self.raw.len());
            let made =
                self.recipe.take().map(|recipe| recipe.pack(with.workspace, &raw, with.room));
            let (data, came) = match made {
                Some(Made::Packed { form, held }) => {
                    let came = Fate::Packed(form.len());
                    (Data::Packed { form, raw_len: raw_bytes, _held: held }, came)
                }
                _ => (Data::Tried(raw), Fate::NotWorth),
            };
            self.made = Some(data);
            Ran { raw_bytes, came, ..Ran::default() }
        })
    }
}

// SAFETY: box number 15 is of counters alone.
unsafe impl Boxed for Pages {
    const FORM: Form = Form::boxed(15);
    const IS_IN_PARTS: bool = true;

    fn measure(&self) -> Measure {
        let list = usable(size_of::<Page>() * self.0.capacity());
        let mut measure = Measure { allocated: list, ..Measure::default() };
        for page in &self.0 {
            match &page.data {
                Data::Raw(raw) | Data::Tried(raw) => {
                    measure.allocated += usable(16 + raw.len());
                    measure.raw += raw.len();
                    measure.pending += usize::from(matches!(page.data, Data::Raw(_)));
                }
                Data::Packed { form, raw_len, .. } => {
                    measure.allocated += usable(form.capacity());
                    measure.raw += raw_len;
                    measure.packed_from += raw_len;
                    measure.packed += form.len();
                }
            }
        }
        measure
    }

    fn duplicate(&self) -> Self {
        self.clone()
    }

    fn store(&self, _: &mut dyn Pen) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn fetch(_: &mut dyn Source) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn packing(&self) -> Packing {
        let allocated_raw = usable(size_of::<Self>()) + self.measure().allocated;
        Packing { codec: "none", dictionary: None, allocated_raw }
    }

    fn cool(&mut self, _: &Met<'_>) -> Wish {
        Wish::Nothing
    }

    fn effort(&self) -> usize {
        2
    }

    fn next_job(&mut self, _: &Asked<'_>) -> Option<Box<dyn PieceJob>> {
        self.0.iter().find_map(|page| match &page.data {
            Data::Raw(raw) => {
                let (page, raw) = (page.identity.seen(), Arc::clone(raw));
                Some(Box::new(PagePiece { page, raw, recipe: None, made: None }) as Box<_>)
            }
            _ => None,
        })
    }

    fn install(&mut self, job: &mut dyn PieceJob, _: &Back) -> Installed {
        let Some(piece) = (job as &mut dyn Any).downcast_mut::<PagePiece>() else {
            return Installed::Not;
        };
        let page = self.0.iter_mut().find(|page| page.identity.is(piece.page));
        match (page, piece.made.take()) {
            (Some(page), Some(made)) => {
                page.data = made;
                Installed::Here
            }
            _ => Installed::Not,
        }
    }
}

mod tests {
    use super::*;
    use crate::cell::entry::{Cell, Payload};
    use crate::types::Type;
    use crate::types::stream::StreamScratch;
    use crate::{Batch, Extent, PieceParams, Store, StoreConfig, Unobserved};
    use snug_codec::{Workspace, WorkspaceConfig};

    const NOW: u64 = 1_700_000_000_000;

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Given(Vec<u8>, usize);

    impl Sink for Given {
        fn part(&mut self, bytes: &[u8]) {
            self.0.extend_from_slice(bytes);
        }

        fn end(&mut self) {
            self.1 += 1;
        }

        fn end_unordered(&mut self) {
            self.end();
        }

        fn begin_group(&mut self) {}

        fn end_group(&mut self) {}
    }

    fn digest(batch: &Batch<'_>, name: &[u8]) -> Given {
        let (key, mut given) = (batch.key(name), Given::default());
        let mut slot = batch.lock(0, &key);
        let found = slot.find_untouched(&key).unwrap();
        slot.digest(found, &mut StreamScratch::new(), &mut given).unwrap();
        given
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls into C")]
    fn pieces_of_a_new_type_are_packed() {
        let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
        let mut session = store.session();
        let batch = session.enter(NOW);
        let numbers: Vec<u64> = (0..100).map(|n| n % 10 + 1_000_000).collect();
        let (key, raw) = (batch.key(b"long"), numbers.len() * 8);
        let pages = Pages::of(&[&numbers[..50], &numbers[50..]]);
        let cell = Cell::new(key.tag(), key.bytes, None, Payload::boxed(pages));
        batch.lock(0, &key).insert(&key, cell);
        let memory = || store.type_memory(Type::Counter);
        assert_eq!((memory().raw, memory().raw_values, memory().packed_values), (800, 1, 0));
        let before = digest(&batch, b"long");
        assert_eq!(before, Given(text(&numbers).into_bytes(), 1));
        // Each page packs by itself, unless it has become another's.
        let job = |batch: &Batch<'_>| {
            let (db, name) = batch.next_unpacked(0, 1)?;
            let mut job = batch.job(db, &name, &PieceParams::DEFAULT)?;
            assert_eq!((job.piece().extent, job.raw_bytes()), (Extent::Part, raw / 2));
            job.run_at_once(&mut Workspace::new(WorkspaceConfig::default()), &mut Vec::new());
            Some(job)
        };
        let mut stale = job(&batch).unwrap();
        {
            let mut slot = batch.lock(0, &key);
            let found = slot.find_untouched(&key).unwrap();
            let copy = slot.duplicate(found);
            drop(slot.detach(found));
            slot.attach(&key, copy);
        }
        assert_eq!(batch.install(&mut stale).fate, Fate::Nothing);
        let mut fates = Vec::new();
        while let Some(mut job) = job(&batch) {
            fates.push(batch.install(&mut job).fate);
        }
        assert!(fates.len() == 2 && fates.iter().all(|fate| matches!(fate, Fate::Packed(_))));
        assert_eq!(digest(&batch, b"long"), before);
        assert_eq!((memory().packed_from, memory().packed_values), (800, 1));
        drop(batch.flush(0));
        assert_eq!((memory().allocated, memory().raw, memory().packed), (0, 0, 0));
    }
}
