//! Values of all types, written and read again: as a file, and as a dump.

mod told;

use proptest::prelude::*;
use snug_rdb::{
    Event, FieldTimes, Loading, Meta, Options, ReadOptions, Reader, Writer, dump, load, restore,
};
use snug_store::types::stream::StreamScratch;
use snug_store::{Detached, Limits, Session, Store, StoreConfig, Unobserved};
use std::io;
use std::sync::Arc;
use told::made::{Made, made};
use told::{Told, make};

fn store() -> Arc<Store> {
    Store::new(StoreConfig::default(), Box::new(Unobserved))
}

fn write(values: &[Detached], options: Options, session: &Session) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), options);
    let mut scratch = StreamScratch::new();
    writer.header(&[("redis-ver", "7.2.0")]).unwrap();
    writer.database(3, values.len() as u64, 0).unwrap();
    for value in values {
        writer.entry(3, value, Meta::default(), (session, &mut scratch)).unwrap();
    }
    writer.end().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 24 } else { 300 }))]

    #[test]
    fn a_file_holds_what_was_written(
        values in prop::collection::vec((made(), prop::option::of(1_800_000_000_000u64..1 << 60)), 1..6),
        compress: bool,
        version in prop_oneof![Just(10), Just(11), Just(12)],
    ) {
        let (store, session) = { let store = store(); let session = store.session(); (store, session) };
        drop(store);
        let values: Vec<Detached> = values.iter().enumerate().map(|(n, (made, expiry))| {
            make(&session, format!("key {n}").as_bytes(), *expiry, |out| made.give(out))
        }).collect();
        let field_times = if version < 12 { FieldTimes::Aux } else { FieldTimes::Typed };
        let options = Options { version, compress, checksum: true, field_times };
        let file = write(&values, options, &session);

        let other = self::store();
        let mut reader = Reader::new(&file[..], ReadOptions::DEFAULT).unwrap();
        let loaded = load(&mut reader, &other, &Loading::default(), |_| true).unwrap();
        prop_assert_eq!(loaded.keys, values.len() as u64);
        prop_assert_eq!(loaded.bytes, file.len() as u64);
        let mut session_there = other.session();
        for value in &values {
            let batch = session_there.enter(1);
            let name = value.key();
            let key = batch.key(&name);
            let mut slot = batch.lock(3, &key);
            let found = slot.find_untouched(&key).expect("the key is there");
            let there = slot.duplicate(found);
            drop(slot);
            prop_assert_eq!(there.expiry(), value.expiry());
            let session = other.session();
            let mut expected = Told::of(value, &self::store().session());
            if version == 10 {
                // Version 10 does not tell when a consumer was active.
                expected = expected.replace("active: Some(1700000000100)", "active: Some(1700000000123)");
            }
            prop_assert_eq!(Told::of(&there, &session), expected);
        }
    }

    #[test]
    fn a_dump_holds_what_was_written(made in made(), compress: bool, cut in 1usize..100_000) {
        let session = store().session();
        let value = make(&session, b"k", None, |out| made.give(out));
        let options = Options { version: 12, compress, ..Options::DEFAULT };
        let payload = dump(&value, options, (&session, &mut StreamScratch::new())).unwrap();
        let restored = make(&session, b"k", None, |out| {
            restore(payload.chunks(cut), out).map_err(io::Error::other)
        });
        prop_assert_eq!(Told::of(&restored, &session), Told::of(&value, &session));
        let mut changed = payload.clone();
        let at = cut % changed.len();
        changed[at] ^= 1;
        prop_assert!(restore(changed.chunks(cut), &mut session.making(&Limits::DEFAULT)).is_err());
    }

    /// Any damage is an error that says where, or a value all the same.
    #[test]
    fn damage_is_an_error(made in made(), changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..4), cut: usize) {
        let session = store().session();
        let value = make(&session, b"k", None, |out| made.give(out));
        let options = Options { checksum: false, version: 12, field_times: FieldTimes::Typed, ..Options::DEFAULT };
        let mut file = write(std::slice::from_ref(&value), options, &session);
        for (at, byte) in changes {
            let at = at % file.len();
            file[at] = byte;
        }
        if cut.is_multiple_of(3) {
            file.truncate(cut % file.len());
        }
        if let Ok(mut reader) = Reader::new(&file[..], ReadOptions { checksum: false }) {
            match load(&mut reader, &self::store(), &Loading::default(), |_| true) {
                Ok(_) => {}
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}

#[test]
fn what_is_behind_the_end_is_given_back() {
    let session = store().session();
    let value =
        make(&session, b"k", Some(1_900_000_000_000), |out| Made::String(b"v".to_vec()).give(out));
    let mut file = write(&[value], Options::DEFAULT, &session);
    file.extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
    let mut reader = Reader::new(&file[..], ReadOptions::DEFAULT).unwrap();
    let mut events = Vec::new();
    loop {
        let event = reader.next().unwrap();
        if let Event::Key(head) = &event {
            assert_eq!(head.expiry, Some(1_900_000_000_000));
            reader.skip(head).unwrap();
        }
        if event == Event::End {
            break;
        }
        events.push(event);
    }
    assert_eq!(events[0], Event::Aux(b"redis-ver".to_vec(), b"7.2.0".to_vec()));
    assert_eq!(events[1], Event::Database(3));
    let (rest, unread) = reader.into_parts();
    assert!(rest.is_empty());
    assert_eq!(unread, b"*1\r\n$4\r\nPING\r\n");
}

#[test]
fn a_key_that_is_there_twice_is_refused_and_expired_ones_are_left_out() {
    let session = store().session();
    let of = |key: &[u8], at| make(&session, key, at, |out| Made::String(b"v".to_vec()).give(out));
    let file =
        write(&[of(b"a", Some(5)), of(b"b", Some(50)), of(b"c", None)], Options::DEFAULT, &session);
    let mut reader = Reader::new(&file[..], ReadOptions::DEFAULT).unwrap();
    let other = store();
    let loaded = load(&mut reader, &other, &Loading { now: 10, ..Loading::default() }, |_| true);
    let loaded = loaded.unwrap();
    assert_eq!((loaded.keys, loaded.expired, other.keys(3)), (2, 1, 2));

    let file = write(&[of(b"a", None), of(b"a", None)], Options::DEFAULT, &session);
    let mut reader = Reader::new(&file[..], ReadOptions::DEFAULT).unwrap();
    let error = load(&mut reader, &store(), &Loading::default(), |_| true).unwrap_err();
    assert_eq!(error.to_string(), "key 'a' of database 3 is there twice");
}
