//! Random values of all types.

use proptest::prelude::*;
use snug_store::NewStr;
use snug_store::elements::{
    ConsumerOutline, Elements, GroupOutline, Outline, StreamFacts, StreamOutline,
};
use snug_store::types::stream::StreamId;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// One of the values that there can be.
#[derive(Clone, Debug)]
pub(crate) enum Made {
    String(Vec<u8>),
    List(Vec<Vec<u8>>),
    Set(BTreeSet<Vec<u8>>),
    Hash(BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>),
    ZSet(BTreeMap<Vec<u8>, f64>),
    Stream(Vec<Entry>, u8),
}

impl Made {
    pub(crate) fn give(&self, out: &mut dyn Elements) -> io::Result<()> {
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
pub(crate) type Entry = (u64, Vec<(Vec<u8>, Vec<u8>)>);

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
        Just(-0.0),
        (any::<i32>()).prop_map(|value| f64::from(value) / 100.0),
    ]
}

pub(crate) fn made() -> impl Strategy<Value = Made> {
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
