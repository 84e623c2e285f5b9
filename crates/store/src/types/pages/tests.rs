//! Trees of pages against plain vectors and maps: random changes, while pages are packed
//! and unpacked.

use super::Order;
use super::compact;
use super::element;
use super::page::Page;
use super::tree::{ByBound, ByRank, Gone, Tree};
use crate::image::{Pen, Source};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io;

/// By position; pages of a few short records.
#[derive(Debug)]
struct Places;

impl Order for Places {
    type Bound = ();
    const AFTER_FIRST: Option<usize> = Some(0);
    const COUNT_MAX: usize = 8;
    const BYTES_MAX: usize = 100;

    fn record_len(bytes: &[u8]) -> usize {
        element::skip(bytes)
    }

    fn bound(_: &[u8], _: &[u8]) -> Option<()> {
        Some(())
    }

    fn is_at_or_behind((): &(), (): &()) -> bool {
        true
    }

    fn put_bound((): &(), _: &mut dyn Pen) -> io::Result<()> {
        Ok(())
    }

    fn take_bound(_: &mut dyn Source) -> io::Result<()> {
        Ok(())
    }
}

/// By key, with tags: pages of more than one line of them.
#[derive(Debug)]
struct Keys;

impl Order for Keys {
    type Bound = u64;
    const TAGGED: bool = true;
    const AFTER_FIRST: Option<usize> = Some(1);
    const COUNT_MAX: usize = 40;
    const BYTES_MAX: usize = 1000;

    fn record_len(bytes: &[u8]) -> usize {
        let field = element::skip(bytes);
        field + element::skip(bytes.get(field..).unwrap_or_default())
    }

    fn tag(record: &[u8]) -> u8 {
        Self::key(record) as u8 & 7
    }

    fn key(record: &[u8]) -> u64 {
        element::key(&record[..element::skip(record)])
    }

    fn bound(left: &[u8], right: &[u8]) -> Option<u64> {
        let key = Self::key(right);
        (left.is_empty() || Self::key(left) != key).then_some(key)
    }

    fn is_at_or_behind(own: &u64, other: &u64) -> bool {
        own >= other
    }

    fn put_bound(bound: &u64, pen: &mut dyn Pen) -> io::Result<()> {
        pen.put(&bound.to_le_bytes())
    }

    fn take_bound(source: &mut dyn Source) -> io::Result<u64> {
        source.eight()
    }
}

fn packed<O: Order>(page: &mut Page) {
    if !page.is_packed() && page.len() > 0 {
        let form = compact::write::<O>(page);
        let close = compact::Close::of::<O>(page).map(|close| close.bytes);
        page.pack(&close.unwrap_or(form));
    }
}

fn unpacked<O: Order>(page: &mut Page) {
    if let Some(form) = page.packed().map(<[u8]>::to_vec) {
        *page = page.unpacked::<O>(&form).unwrap();
    }
}

fn all<O: Order>(tree: &Tree<O>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for leaf in tree.leaves(0) {
        assert_eq!(leaf.before, all.len());
        let mut page = leaf.page.clone();
        unpacked::<O>(&mut page);
        all.extend(page.records::<O>().map(<[u8]>::to_vec));
    }
    all
}

fn record(seed: u64) -> Vec<u8> {
    let mut record = Vec::new();
    match seed % 4 {
        0 => element::write(&mut record, seed.to_string().as_bytes()),
        1 => element::write(&mut record, &vec![b'x'; seed as usize / 4 % 40]),
        2 => element::write(&mut record, format!("item:{seed}").as_bytes()),
        _ => element::write(&mut record, format!("{seed:016x}").as_bytes()),
    }
    record
}

#[derive(Clone, Debug)]
enum Step {
    Insert(usize, u64),
    Many(usize, u64),
    Replace(usize, u64),
    Remove(usize),
    RemoveRange(usize, usize),
    Pack(usize),
    Copy,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = || 0..1000usize;
    let step = prop_oneof![
        8 => (place(), any::<u64>()).prop_map(|(at, seed)| Step::Insert(at, seed % 500)),
        2 => (place(), any::<u64>()).prop_map(|(at, seed)| Step::Many(at, seed % 500)),
        4 => (place(), any::<u64>()).prop_map(|(at, seed)| Step::Replace(at, seed % 500)),
        6 => place().prop_map(Step::Remove),
        1 => (place(), 0..60usize).prop_map(|(at, count)| Step::RemoveRange(at, count)),
        3 => place().prop_map(Step::Pack),
        1 => Just(Step::Copy),
    ];
    prop::collection::vec(step, 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 300 }))]

    #[test]
    fn a_tree_by_position_is_a_vector(steps in steps()) {
        let (mut tree, mut model) = (Tree::<Places>::new(), Vec::<Vec<u8>>::new());
        let mut copies: Vec<(Tree<Places>, Vec<Vec<u8>>)> = Vec::new();
        let insert = |tree: &mut Tree<Places>, at: usize, record: &[u8]| {
            let before = tree.leaf(ByRank(at)).before;
            tree.change(ByRank(at), |page| {
                unpacked::<Places>(page);
                page.insert::<Places>((at - before).min(page.len()), record);
            });
        };
        for step in steps {
            let len = model.len();
            match step {
                Step::Insert(at, seed) => {
                    let at = at % (len + 1);
                    insert(&mut tree, at, &record(seed));
                    model.insert(at, record(seed));
                }
                Step::Many(at, seed) => {
                    let at = if at % 2 == 0 { 0 } else { len };
                    for n in 0..20 {
                        let place = if at == 0 { 0 } else { at + n };
                        insert(&mut tree, place, &record(seed + n as u64));
                        model.insert(place, record(seed + n as u64));
                    }
                }
                Step::Replace(at, seed) if len > 0 => {
                    let at = at % len;
                    let before = tree.leaf(ByRank(at)).before;
                    tree.change(ByRank(at), |page| {
                        unpacked::<Places>(page);
                        page.replace::<Places>(at - before, &record(seed));
                    });
                    model[at] = record(seed);
                }
                Step::Remove(at) if len > 0 => {
                    let at = at % len;
                    let before = tree.leaf(ByRank(at)).before;
                    tree.change(ByRank(at), |page| {
                        unpacked::<Places>(page);
                        page.remove::<Places>(at - before);
                    });
                    model.remove(at);
                }
                Step::RemoveRange(at, count) if len > 0 => {
                    let at = at % len;
                    let count = count.min(len - at);
                    if count > 0 {
                        for rank in [at, at + count - 1] {
                            tree.change(ByRank(rank), unpacked::<Places>);
                        }
                    }
                    let mut gone = 0;
                    tree.remove_range(at, count, |what| gone += match what {
                        Gone::Page(page) => page.len(),
                        Gone::Record(_) => 1,
                    });
                    prop_assert_eq!(gone, count);
                    model.drain(at..at + count);
                }
                Step::Pack(at) if len > 0 => tree.note(at % len, packed::<Places>),
                Step::Copy => copies.push((tree.duplicate(), model.clone())),
                _ => {}
            }
            tree.check();
        }
        prop_assert_eq!(all(&tree), model);
        for (copy, model) in copies {
            copy.check();
            prop_assert_eq!(all(&copy), model);
        }
    }

    #[test]
    fn a_tree_by_key_is_a_map(steps in steps()) {
        let (mut tree, mut model) = (Tree::<Keys>::new(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
        let mut copies = Vec::new();
        for step in steps {
            match step {
                Step::Insert(field, seed) | Step::Replace(field, seed) | Step::Many(field, seed) => {
                    let field = record(field as u64);
                    let whole = [&field[..], &record(seed)].concat();
                    let (key, tag) = (Keys::key(&field), Keys::tag(&field));
                    tree.change(ByBound(|bound: &u64| key >= *bound), |page| {
                        unpacked::<Keys>(page);
                        match page.find(tag, |other| other.starts_with(&field)) {
                            Some(at) => page.replace::<Keys>(at, &whole),
                            None => page.insert::<Keys>(page.len(), &whole),
                        }
                    });
                    model.insert(field, record(seed));
                }
                Step::Remove(field) => {
                    let field = record(field as u64);
                    let (key, tag) = (Keys::key(&field), Keys::tag(&field));
                    let found = tree.change(ByBound(|bound: &u64| key >= *bound), |page| {
                        unpacked::<Keys>(page);
                        let at = page.find(tag, |other| other.starts_with(&field));
                        at.inspect(|&at| page.remove::<Keys>(at)).is_some()
                    });
                    prop_assert_eq!(found, model.remove(&field).is_some());
                }
                Step::Pack(at) if !model.is_empty() => {
                    tree.note(at % model.len(), packed::<Keys>);
                }
                Step::Copy => copies.push((tree.duplicate(), model.clone())),
                _ => {}
            }
            tree.check();
        }
        let of_model = |model: &BTreeMap<Vec<u8>, Vec<u8>>| {
            let mut all: Vec<Vec<u8>> =
                model.iter().map(|(field, value)| [&field[..], value].concat()).collect();
            all.sort();
            all
        };
        for (tree, model) in copies.iter().chain([&(tree, model)]) {
            let mut records = all(tree);
            records.sort();
            prop_assert_eq!(records, of_model(model));
            // Keys rise from page to page, up to the bound between them.
            let mut low = 0;
            for leaf in tree.leaves(0) {
                let mut page = leaf.page.clone();
                unpacked::<Keys>(&mut page);
                let mut keys = page.records::<Keys>().map(Keys::key);
                prop_assert!(keys.all(|key| key >= low && leaf.upper.is_none_or(|&up| key < up)));
                low = leaf.upper.copied().unwrap_or_default();
            }
        }
    }
}

/// A page of texts is a block of these once packed; one of other items is not.
#[test]
#[cfg_attr(miri, ignore = "calls into C")]
fn texts_of_a_list_come_back_from_their_block() {
    use super::compact::Strings;
    use crate::types::list::Positions;
    use snug_codec::{NoDictionaries, Workspace, WorkspaceConfig};
    let page = |texts: &[String]| {
        let mut records = Vec::new();
        texts.iter().for_each(|text| super::element::write(&mut records, text.as_bytes()));
        (Page::of::<Positions>(super::page::each::<Positions>(&records)), records)
    };
    let text = |n: usize| {
        let digest = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        format!(
            "{{\"task\":\"jobs.mail\",\"id\":\"{digest:016x}\",\"args\":[{n}],\"retries\":0,\"x\":\"{}\"}}",
            "y".repeat(n % 90)
        )
    };
    let texts: Vec<String> = (0..40).map(text).collect();
    let (texts_page, records) = page(&texts);
    let strings = Strings::of::<Positions>(&texts_page).unwrap();
    let mut ws = Workspace::new(WorkspaceConfig::default());
    let (mut form, mut raw) = (Vec::new(), Vec::new());
    ws.pack_strings(1, None, &strings.all(), &strings.counted, &mut form).unwrap();
    assert!(form.len() * 5 < records.len());
    ws.unpack(&form, &NoDictionaries, &mut raw, 1 << 16).unwrap();
    assert_eq!(compact::read::<Positions>(&raw, 40), records);
    for at in 0..form.len() {
        let mut damaged = form.clone();
        damaged[at] ^= 1 << (at % 8);
        let mut raw = Vec::new();
        if ws.unpack(&damaged, &NoDictionaries, &mut raw, 1 << 16).is_ok() {
            let _ = compact::page::<Positions>(&raw, 40, records.len());
        }
    }
    let numbers: Vec<String> = (0..40).map(|n| (n * 7).to_string()).collect();
    assert!(Strings::of::<Positions>(&page(&numbers).0).is_none());
    let mixed = [&texts[..], &["17".to_owned()]].concat();
    assert!(Strings::of::<Positions>(&page(&mixed).0).is_none());
}

/// Reads a page in every way there is, whatever it was unpacked from: as much of it as
/// would be taken for a page of so many records.
fn read_all<O: Order>(raw: &[u8], count: usize) {
    let records = compact::read::<O>(raw, count);
    let count = super::page::each::<O>(&records).count();
    let Some(page) = compact::page::<O>(raw, count, records.len()) else { return };
    assert_eq!((page.len(), page.raw_bytes()), (count, records.len()));
    assert!(compact::page::<O>(raw, count + 1, records.len()).is_none());
    for record in page.records::<O>() {
        let _ = (O::tag(record), O::key(record), super::paged::item(record, None).0.len());
        let _ = (super::keyed::body(record), super::keyed::expiry(record));
        let _ = O::bound(record, record);
        if O::TAGGED {
            let at = page.find(O::tag(record), |other| other.starts_with(record));
            assert!(at.is_some());
        }
    }
    let _ = (compact::write::<O>(&page), compact::Close::of::<O>(&page));
}

/// Members drawn at random lie in few bits, and lists of numbers in no order come back.
#[test]
fn integers_lie_close_to_each_other() {
    use super::compact::Close;
    use crate::types::{list::Positions, set::Members};
    fn close<O: Order>(integers: impl IntoIterator<Item = i64>) -> (usize, bool) {
        let mut records = Vec::new();
        integers.into_iter().for_each(|integer| element::write_int(&mut records, integer));
        let page = Page::of::<O>(super::page::each::<O>(&records));
        let Close { bytes, is_varied } = Close::of::<O>(&page).unwrap();
        let back = compact::page::<O>(&bytes, page.len(), page.raw_bytes()).unwrap();
        let all = |page: &Page| page.records::<O>().map(<[u8]>::to_vec).collect::<Vec<_>>();
        let (mut before, mut after) = (all(&page), all(&back));
        if O::TAGGED {
            before.sort();
            after.sort();
        }
        assert_eq!(before, after);
        (bytes.len(), is_varied)
    }
    let random = |n: i64| {
        let mixed = (n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 11) as i64
    };
    let (bytes, is_varied) = close::<Members>((0..88).map(|n| 5_000_000 + random(n) % 924));
    assert!(is_varied && bytes <= 66, "{bytes} bytes");
    let (bytes, is_varied) = close::<Members>((0..88).map(|n| 1000 + 7 * n));
    assert!(!is_varied && bytes <= 50, "{bytes} bytes");
    let (bytes, is_varied) = close::<Positions>((0..88).map(|n| random(n) % 1_000_000));
    assert!(is_varied && bytes < 88 * 3, "{bytes} bytes");
    close::<Positions>([i64::MIN, i64::MAX, 0, -1, i64::MAX, i64::MIN]);
    close::<Members>([i64::MIN, -1, 0, 1, i64::MAX]);
}

proptest! {
    /// The bytes of a packed page may be damaged in any way: it is told, or what the page
    /// holds is wrong, and nothing else is.
    #[test]
    fn pages_are_read_from_any_bytes(
        raw in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..3000),
            prop::collection::vec(prop::sample::select(vec![
                0, 1, 2, 3, 4, 0x81, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc8, 0xcf, 0xd0, 0xd2, 0xe0, 0xff,
            ]), 0..300),
        ],
        count in 0..2000usize,
    ) {
        use crate::types::{hash, list, set, zset};
        read_all::<list::Positions>(&raw, count);
        read_all::<set::Members>(&raw, count);
        read_all::<hash::Fields>(&raw, count);
        read_all::<zset::order::Scores>(&raw, count);
        read_all::<zset::order::Members>(&raw, count);
    }
}
