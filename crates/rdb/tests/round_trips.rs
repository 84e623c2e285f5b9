//! Values of all types, written and read again: as a file, and as a dump.

mod told;

use proptest::prelude::*;
use snug_rdb::{
    Event, FieldTimes, Loading, Meta, Options, ReadOptions, Reader, Writer, dump, load, restore,
};
use snug_store::elements::{
    ConsumerOutline, Elements, GroupOutline, Outline, StreamFacts, StreamOutline,
};
use snug_store::types::stream::{StreamId, StreamScratch};
use snug_store::{Detached, Limits, NewStr, Session, Store, StoreConfig, Unobserved};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use told::{Told, make};

fn store() -> Arc<Store> {
    Store::new(StoreConfig::default(), Box::new(Unobserved))
}

/// One of the values that there can be.
#[derive(Clone, Debug)]
enum Made {
    String(Vec<u8>),
    List(Vec<Vec<u8>>),
    Set(BTreeSet<Vec<u8>>),
    Hash(BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>),
    ZSet(BTreeMap<Vec<u8>, f64>),
    Stream(Vec<Entry>, u8),
}

impl Made {
    fn give(&self, out: &mut dyn Elements) -> io::Result<()> {
        let outline = Outline::default();
        match self {
            Self::String(bytes) => {
                out.string(bytes.len() as u64)?;
                bytes.chunks(1000).try_for_each(|part| out.part(part))
            }
            Self::List(items) => {
                out.list(&outline)?;
                items.iter().try_for_each(|item| out.item(&NewStr::Bytes(item)))
            }
            Self::Set(members) => {
                out.set(&outline)?;
                members.iter().try_for_each(|member| out.item(&NewStr::Bytes(member)))
            }
            Self::Hash(fields) => {
                out.hash(&outline)?;
                fields.iter().try_for_each(|(field, (value, at))| {
                    out.field(&NewStr::Bytes(field), &NewStr::Bytes(value), *at)
                })
            }
            Self::ZSet(members) => {
                out.sorted_set(&outline)?;
                members
                    .iter()
                    .try_for_each(|(member, score)| out.member(*score, &NewStr::Bytes(member)))
            }
            Self::Stream(entries, groups) => give_stream(entries, *groups, out),
        }
    }
}

/// By how much its ID is greater than the one before, and its fields.
type Entry = (u64, Vec<(Vec<u8>, Vec<u8>)>);

fn give_stream(entries: &[Entry], groups: u8, out: &mut dyn Elements) -> io::Result<()> {
    out.stream(&StreamOutline::default())?;
    let mut id = StreamId::new(5, 1);
    let mut ids = Vec::new();
    for (later, fields) in entries {
        id = StreamId::new(id.ms + later % 1000, id.seq + 1 + later % 3);
        ids.push(id);
        let fields: Vec<(&[u8], &[u8])> =
            fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        out.entry(id, &fields)?;
    }
    out.facts(&StreamFacts {
        len: Some(entries.len() as u64),
        last_id: StreamId::new(id.ms + 1, 0),
        max_deleted_id: StreamId::new(3, 3),
        entries_added: Some(entries.len() as u64 + 2),
        groups: u64::from(groups),
        ..StreamFacts::default()
    })?;
    for group in 0..groups {
        out.group(&GroupOutline {
            name: &[b'g', group],
            last_id: StreamId::new(u64::from(group), 4),
            entries_read: (group > 0).then_some(7),
            pending: 0,
            consumers: 0,
        })?;
        let mine: Vec<StreamId> = ids.iter().copied().step_by(1 + usize::from(group)).collect();
        for (n, id) in mine.iter().enumerate() {
            out.pending(*id, 1_700_000_000_000 + n as u64, n as u64)?;
        }
        for n in 0..3 {
            out.consumer(&ConsumerOutline {
                name: format!("consumer {n}").as_bytes(),
                seen: 1_700_000_000_123,
                active: Some(1_700_000_000_100),
                pending: 0,
            })?;
            mine.iter().skip(n).step_by(3).try_for_each(|id| out.owned(*id))?;
        }
    }
    Ok(())
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..40),
        4 => any::<i32>().prop_map(|value| value.to_string().into_bytes()),
        2 => any::<i64>().prop_map(|value| value.to_string().into_bytes()),
        2 => "[a-c]{20,300}".prop_map(String::into_bytes),
        1 => (3000usize..20_000).prop_map(|len| vec![b'x'; len]),
    ]
}

fn score() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<i32>().prop_map(f64::from),
        any::<f64>().prop_filter("a number", |score| !score.is_nan()),
        Just(f64::INFINITY),
        (any::<i32>()).prop_map(|value| f64::from(value) / 100.0),
    ]
}

fn made() -> impl Strategy<Value = Made> {
    let many = || prop_oneof![3 => 1usize..20, 1 => 100usize..700];
    let set = many().prop_flat_map(|n| prop::collection::btree_set(bytes(), n.div_ceil(2)..=n));
    let ints = (any::<i64>(), 0u32..50, many()).prop_map(|(from, shift, n)| {
        let ints = (0..n as i64).map(|n| (from >> shift).wrapping_add(n * n));
        Made::Set(ints.map(|value| value.to_string().into_bytes()).collect())
    });
    let fields = || prop::collection::vec((bytes(), bytes()), 0..5);
    prop_oneof![
        bytes().prop_map(Made::String),
        (60_000usize..300_000).prop_map(|len| {
            Made::String((0..len as u32).flat_map(|n| n.wrapping_mul(n).to_le_bytes()).collect())
        }),
        many().prop_flat_map(|n| prop::collection::vec(bytes(), n)).prop_map(Made::List),
        set.prop_map(Made::Set),
        ints,
        (many(), any::<bool>())
            .prop_flat_map(|(n, expires)| {
                let at = move |at: u64| {
                    (expires && at.is_multiple_of(3)).then_some(at + 1_700_000_000_000)
                };
                let value = (bytes(), 0u64..100_000).prop_map(move |(value, n)| (value, at(n)));
                prop::collection::btree_map(bytes(), value, n.div_ceil(2)..=n)
            })
            .prop_map(Made::Hash),
        many()
            .prop_flat_map(|n| prop::collection::btree_map(bytes(), score(), n.div_ceil(2)..=n))
            .prop_map(Made::ZSet),
        (many(), 0u8..4, fields(), any::<bool>())
            .prop_flat_map(move |(n, groups, same, is_same)| {
                let fields = fields().prop_map(move |own| if is_same { same.clone() } else { own });
                (prop::collection::vec((any::<u64>(), fields), n - 1), Just(groups))
            })
            .prop_map(|(entries, groups)| Made::Stream(entries, groups)),
    ]
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
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 60 } else { 300 }))]

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
            let key = batch.key(value.key());
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
