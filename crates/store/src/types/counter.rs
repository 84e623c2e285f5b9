//! A type that is there for tests alone: what it takes to add one. All of it is this
//! file, and its line in the table of types.
//!
//! A counter is a list of what was added to it, as decimals with a blank behind each:
//! in its entry while it is short, packed there when it has cooled; a list of numbers
//! in a box when it is long.
#![allow(unsafe_code)]

use super::forms::{Boxed, Form, FormRow, Measure, Met, Packing, Value, Wish};
use super::{DataType, Reader, Sink, Unreadable};
use crate::memory::usable;

const SHORT: Form = Form::inline(5);
const SHORT_PACKED: Form = Form::inline(6);

pub(super) struct Counters;

impl DataType for Counters {
    const NAME: &'static str = "counter";
    const NUMBER: u32 = 99;
    const FORMS: &'static [FormRow] = &[
        FormRow::packs(SHORT, SHORT_PACKED),
        FormRow::packed(SHORT_PACKED, SHORT),
        FormRow::boxed::<Vec<u64>>(),
    ];

    fn encoding(value: Value<'_>, _: usize) -> &'static str {
        if value.get::<Vec<u64>>().is_some() { "numbers" } else { "text" }
    }

    fn digest(
        value: Value<'_>,
        reader: &mut dyn Reader,
        sink: &mut dyn Sink,
    ) -> Result<(), Unreadable> {
        match (value.get::<Vec<u64>>(), value.form()) {
            (Some(numbers), _) => sink.part(text(numbers).as_bytes()),
            (None, SHORT_PACKED) => {
                let mut raw = Vec::new();
                reader.unpack(value.bytes(), &mut raw)?;
                sink.part(&raw);
            }
            (None, _) => sink.part(value.bytes()),
        }
        sink.end();
        Ok(())
    }
}

fn text(numbers: &[u64]) -> String {
    let texts: Vec<String> = numbers.iter().map(|number| format!("{number} ")).collect();
    texts.concat()
}

// SAFETY: box number 3 is of counters alone.
unsafe impl Boxed for Vec<u64> {
    const FORM: Form = Form::boxed(3);

    fn measure(&self) -> Measure {
        let (allocated, raw) = (usable(8 * self.capacity()), 8 * self.len());
        Measure { allocated, raw, ..Measure::default() }
    }

    fn duplicate(&self) -> Self {
        self.clone()
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
}

mod tests {
    use super::*;
    use crate::cell::entry::{Cell, Payload};
    use crate::types::Type;
    use crate::types::stream::StreamScratch;
    use crate::{
        Batch, Cooling, LargeNames, MinSaving, Packer, Store, StoreConfig, StringParams,
        Unobserved, WRITTEN,
    };

    const NOW: u64 = 1_700_000_000_000;
    const PARAMS: StringParams = StringParams { min_size: 64, min_saving: MinSaving(30), level: 1 };

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Pieces(Vec<u8>, usize);

    impl Sink for Pieces {
        fn part(&mut self, bytes: &[u8]) {
            self.0.extend_from_slice(bytes);
        }

        fn end(&mut self) {
            self.1 += 1;
        }
    }

    fn insert(batch: &Batch<'_>, name: &[u8], expiry: Option<u64>, payload: Payload<'_>) {
        let key = batch.key(name);
        let mut cell = Cell::new(key.tag(), key.bytes, expiry, payload);
        cell.set_access(WRITTEN);
        batch.lock(0, &key).insert(&key, cell);
    }

    fn digest(batch: &Batch<'_>, name: &[u8]) -> Pieces {
        let (key, mut pieces) = (batch.key(name), Pieces::default());
        let mut slot = batch.lock(0, &key);
        let found = slot.find_untouched(&key).unwrap();
        slot.digest(found, &mut StreamScratch::new(), &mut pieces).unwrap();
        pieces
    }

    fn encoding(batch: &Batch<'_>, name: &[u8]) -> (&'static str, bool) {
        let key = batch.key(name);
        let mut slot = batch.lock(0, &key);
        let found = slot.find_untouched(&key).unwrap();
        assert_eq!(slot.type_of(found), Type::Counter);
        (slot.anatomy(found).encoding, slot.anatomy(found).is_packed_whole)
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls into C")]
    fn a_new_type_packs_expires_copies_digests_and_is_counted() {
        let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
        let (mut session, beside) = (store.session(), store.session());
        let batch = session.enter(NOW);
        let numbers: Vec<u64> = (0..100).map(|n| n % 10 + 1_000_000).collect();
        let (short, raw) = (text(&numbers), numbers.len() * 8);
        insert(&batch, b"short", None, Payload::Inline(SHORT, short.as_bytes()));
        insert(&batch, b"expires", Some(NOW + 1000), Payload::Inline(SHORT, short.as_bytes()));
        insert(&batch, b"long", None, Payload::boxed(numbers));
        // Counted.
        let memory = store.type_memory(Type::Counter);
        assert_eq!((memory.raw, memory.raw_values), ((2 * short.len() + raw) as u64, 3));
        assert!(memory.allocated > memory.raw && memory.packed_values == 0);
        let mut names = Vec::new();
        batch.scan(0, 0, usize::MAX, |key, kind| names.push((key.to_vec(), kind)));
        assert!(names.len() == 3 && names.iter().all(|(_, kind)| *kind == Type::Counter));
        // Packs, and digests the same.
        let before = digest(&batch, b"short");
        assert_eq!(before, Pieces(short.clone().into_bytes(), 1));
        let (mut cooling, mut packer) = (Cooling::new(0, 1), Packer::default());
        let mut packed = 0;
        for _ in 0..3 {
            cooling.begin(&beside, &PARAMS);
            while !cooling.is_done() {
                let mut candidates = Vec::new();
                cooling.step(&batch, &PARAMS, false, &mut candidates, &mut LargeNames::default());
                for candidate in candidates {
                    assert_eq!(candidate.kind(), Type::Counter);
                    let ready = packer.pack(&store, &candidate, &PARAMS).unwrap();
                    packed += usize::from(batch.install(&candidate, &ready));
                }
            }
        }
        assert_eq!((packed, encoding(&batch, b"short")), (2, ("text", true)));
        assert_eq!(encoding(&batch, b"long"), ("numbers", false));
        assert_eq!(
            (digest(&batch, b"short"), digest(&batch, b"long")),
            (before, digest(&batch, b"expires"))
        );
        // Copies.
        for (name, copy) in [(b"short", b"copy1"), (b"long ", b"copy2")] {
            let (from, to) = (batch.key(name.trim_ascii_end()), batch.key(copy));
            let value = {
                let mut slot = batch.lock(0, &from);
                let found = slot.find_untouched(&from).unwrap();
                slot.duplicate(found)
            };
            batch.lock(0, &to).attach(&to, value);
            assert_eq!(digest(&batch, copy), Pieces(short.clone().into_bytes(), 1));
        }
        let memory = store.type_memory(Type::Counter);
        assert_eq!((memory.packed_values, memory.raw_values), (3, 2));
        // Unpacks.
        let key = batch.key(b"copy1");
        let mut slot = batch.lock(0, &key);
        let found = slot.find_untouched(&key).unwrap();
        assert!(slot.unpack(found).unwrap());
        drop(slot);
        assert_eq!(encoding(&batch, b"copy1"), ("text", false));
        // Expires.
        batch.set_now(NOW + 2000);
        while batch.expire_due(0, 1, &mut || false) {}
        assert_eq!((store.keys(0), store.expired()), (4, 1));
        drop(batch.flush(0));
        let memory = store.type_memory(Type::Counter);
        assert_eq!((memory.allocated, memory.raw, memory.packed_from, memory.packed), (0, 0, 0, 0));
        assert_eq!((memory.raw_values, memory.packed_values), (0, 0));
    }
}
