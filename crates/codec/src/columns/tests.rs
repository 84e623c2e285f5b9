//! Whatever rows or texts go in come out, to the byte; whatever bytes are
//! opened are rows or an error.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::{DictionarySource, NoDictionaries, WorkspaceConfig};

const MAX: usize = 1 << 24;

type Owned = (u64, u64, Vec<(Vec<u8>, Vec<u8>)>);

fn block(rows: &[Owned]) -> RowBlock<'_> {
    let mut block = RowBlock::new();
    for (ms, seq, fields) in rows {
        block.push(*ms, *seq, fields.iter().map(|(n, v)| (&n[..], &v[..])));
    }
    block
}

/// The rows of `range`, from a reader that was just opened.
fn rows_of(packed: &[u8], range: Range<usize>) -> Vec<Owned> {
    rows_with(&NoDictionaries, packed, range)
}

fn rows_with(
    dictionaries: &dyn DictionarySource,
    packed: &[u8],
    range: Range<usize>,
) -> Vec<Owned> {
    let mut ws = Workspace::new(WorkspaceConfig::default());
    let reader = Reader::open(&mut ws, packed, dictionaries, MAX).unwrap();
    let mut back = Vec::new();
    let visited = reader.visit(range, |row| {
        let fields = row.fields().map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
        back.push((row.id_ms, row.id_seq, fields));
    });
    visited.unwrap();
    back
}

fn round_trip(rows: &[Owned]) -> Vec<u8> {
    let mut ws = Workspace::new(WorkspaceConfig::default());
    let mut packed = Vec::new();
    pack_rows(&mut ws, 3, None, &block(rows), &mut packed).unwrap();
    assert_eq!(row_count(&packed), Ok(rows.len()));
    assert_eq!(rows_of(&packed, 0..usize::MAX), rows);
    packed
}

/// Whether they are what was packed, and what is nearly so is not.
#[test]
fn what_does_not_hold_the_rows_is_seen() {
    let row = |i: u64, value: &str| {
        let fields = [("name", "read"), ("value", value)];
        (i, i % 3, fields.map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec())).to_vec())
    };
    let rows: Vec<Owned> = (0..200).map(|i| row(i, &(i * i).to_string())).collect();
    let mut ws = Workspace::new(WorkspaceConfig::default());
    let mut packed = Vec::new();
    pack_rows(&mut ws, 3, None, &block(&rows), &mut packed).unwrap();
    let mut holds = |packed: &[u8], rows: &[Owned]| {
        let mut pieces = Pieces::new(&AtOnce, u64::MAX);
        AtOnce::run(holds_rows(&mut ws, packed, &NoDictionaries, &block(rows), &mut pieces))
    };
    assert!(holds(&packed, &rows));
    assert!(!holds(&packed[..packed.len() - 1], &rows));
    assert!(!holds(&packed, &rows[..199]));
    for other in [row(150, "22501"), row(151, "22500"), (150, 0, Vec::new())] {
        let mut rows = rows.clone();
        rows[150] = other;
        assert!(!holds(&packed, &rows));
    }
}

/// A value of one of the kinds that columns know, and of those that look like one.
fn value(kind: u8) -> BoxedStrategy<Vec<u8>> {
    let text = |pattern: &'static str| pattern.prop_map(String::into_bytes).boxed();
    match kind {
        0 => any::<i64>().prop_map(|n| (n >> (n & 63)).to_string().into_bytes()).boxed(),
        1 => text("-?[0-9]{1,9}\\.[0-9]{2}"),
        2 => text("0[0-9]{3}"),
        3 => text("(read|write|delete)"),
        4 => text("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"),
        5 => text("[0-9A-F]{8}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{12}"),
        6 => text("([0-9a-f]{2}){0,12}"),
        7 => text("([A-Za-z0-9+/]{4}){4,12}"),
        8 => text(r#"\{"id": "[a-z0-9]{4}", "n": [0-9]{1,4}, "s": "[ a-z"\\]{0,9}"\}"#),
        9 => text("GET /[a-z]{1,4}/[0-9]{1,3} took [0-9]\\.[0-9]{2} s"),
        10 => prop::collection::vec(any::<u8>(), 0..30).boxed(),
        _ => text("(NA|-|0|7|42|x)"),
    }
}

fn column(rows: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
    (0u8..12, 0u8..12).prop_flat_map(move |(kind, other)| {
        let cell = prop_oneof![20 => value(kind), 1 => value(other)];
        prop_oneof![
            8 => prop::collection::vec(cell, rows).boxed(),
            1 => value(kind).prop_map(move |v| vec![v; rows]).boxed(),
        ]
    })
}

fn table() -> impl Strategy<Value = Vec<Owned>> {
    (0usize..80, 0usize..6).prop_flat_map(|(rows, columns)| {
        let columns = prop::collection::vec(column(rows), columns);
        let ids = prop::collection::vec((any::<u8>(), any::<(u64, u64)>(), 0usize..8), rows);
        (columns, ids).prop_map(|(columns, ids)| {
            let mut last = (1000u64, 0u64);
            let row = |(i, (how, far, drop)): (usize, (u8, (u64, u64), usize))| {
                last = match how {
                    0..100 => (last.0, last.1.wrapping_add(1)),
                    100..250 => (last.0.wrapping_add(u64::from(how - 99)), 0),
                    _ => far,
                };
                // Some rows lack a field.
                let fields =
                    columns.iter().enumerate().filter(|(c, _)| how % 16 != 0 || *c != drop);
                let fields =
                    fields.map(|(c, column)| (format!("f{c}").into_bytes(), column[i].clone()));
                (last.0, last.1, fields.collect())
            };
            ids.into_iter().enumerate().map(row).collect()
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn rows_come_back(rows in table()) {
        round_trip(&rows);
    }

    #[test]
    fn rows_come_back_with_phrases(rows in table(), from in 0usize..90, len in 0usize..90) {
        static PHRASES: LazyLock<Arc<Dictionary>> =
            LazyLock::new(|| phrases(&documents(160, &VOCABULARY)));
        let mut ws = Workspace::new(WorkspaceConfig::default());
        let mut packed = Vec::new();
        pack_rows(&mut ws, 3, Some(&PHRASES), &block(&rows), &mut packed).unwrap();
        prop_assert_eq!(&rows_with(&*PHRASES, &packed, 0..usize::MAX), &rows);
        let range = from.min(rows.len())..(from + len).min(rows.len());
        prop_assert_eq!(rows_with(&*PHRASES, &packed, from..from + len), &rows[range]);
    }

    #[test]
    fn any_range_is_those_rows(rows in table(), from in 0usize..90, len in 0usize..90) {
        let packed = round_trip(&rows);
        let range = from.min(rows.len())..(from + len).min(rows.len());
        prop_assert_eq!(rows_of(&packed, from..from + len), &rows[range]);
    }

    /// Columns long enough to be coded in parts.
    #[test]
    fn one_row_of_many(rows in 300usize..1500, kind in 0u8..12, seed: u64, at: prop::sample::Index) {
        let text = |i: usize| {
            let mut x = seed.wrapping_add(i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            x ^= x >> 29;
            match kind % 6 {
                0 => (x >> 40).to_string(),
                1 => format!("{x:016x}{:016x}", x.wrapping_mul(31)),
                2 => format!("{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}", x as u32, x as u16, x & 0xfff, x >> 52, x & 0xffff_ffff_ffff),
                3 => "word ".repeat((x % 7) as usize),
                4 => format!(r#"{{"id": {}, "name": "n{x:x}", "ok": {}}}"#, i, x & 1 == 0),
                _ => (0..x % 40).map(|j| char::from(b'a' + (x >> (j % 13)) as u8 % 26)).collect(),
            }
        };
        let row = |i: usize| (i as u64 / 3, i as u64 % 3, vec![(b"f".to_vec(), text(i).into_bytes())]);
        let rows: Vec<Owned> = (0..rows).map(row).collect();
        let packed = round_trip(&rows);
        let at = at.index(rows.len());
        prop_assert_eq!(rows_of(&packed, at..at + 1), &rows[at..=at]);
    }

    #[test]
    fn texts_come_back(texts in column(60), some: (prop::sample::Index, prop::sample::Index)) {
        let mut ws = Workspace::new(WorkspaceConfig::default());
        let mut packed = Vec::new();
        let refs: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        pack_texts(&mut ws, 3, None, &refs, &mut packed).unwrap();
        let reader = TextReader::open(&mut ws, &packed, &NoDictionaries, MAX).unwrap();
        for (row, text) in texts.iter().enumerate() {
            let mut out = Vec::new();
            prop_assert!(reader.append(row, &mut out));
            prop_assert_eq!(&out, text);
        }
        prop_assert!(!reader.append(texts.len(), &mut Vec::new()));
        let range = some.0.index(texts.len())..some.1.index(texts.len());
        let reader = TextReader::open_range(&mut ws, &packed, &NoDictionaries, MAX, range.clone()).unwrap();
        for (row, text) in texts.iter().enumerate() {
            // Behind more than all texts are long.
            let mut out = vec![b'.'; 4000];
            prop_assert_eq!(reader.append(row, &mut out), range.contains(&row));
            prop_assert!(!range.contains(&row) || &out[4000..] == text);
        }
    }

    #[test]
    fn damage_gives_an_error_or_other_rows(rows in table(), damage in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 1..4), cut: prop::sample::Index) {
        let mut packed = round_trip(&rows);
        let mut ws = Workspace::new(WorkspaceConfig::default());
        let mut open = |bytes: &[u8]| {
            let reader = Reader::open(&mut ws, bytes, &NoDictionaries, MAX)?;
            let last = reader.rows().saturating_sub(1);
            let _ = reader.visit(last / 2..last / 2 + 1, |_| ());
            let reader = Reader::open(&mut ws, bytes, &NoDictionaries, MAX)?;
            let mut longest = 0;
            reader.visit(0..usize::MAX, |row| {
                longest = longest.max(row.fields().map(|(n, v)| n.len() + v.len()).sum::<usize>());
            })?;
            assert!(longest <= MAX);
            Ok::<_, UnpackError>(())
        };
        let _ = open(&packed[..cut.index(packed.len())]);
        for (at, with) in damage {
            let at = at.index(packed.len());
            packed[at] ^= with;
        }
        let _ = open(&packed);
    }
}

#[test]
fn more_shapes_than_a_block_has_are_kept_verbatim() {
    let row = |i: u64| (i, 0, vec![(format!("only{i}").into_bytes(), b"x".to_vec())]);
    let rows: Vec<Owned> = (0..100).map(row).collect();
    round_trip(&rows);
    round_trip(&[]);
    round_trip(&[(1, 1, vec![])]);
}

#[test]
fn a_row_range_is_that_range() {
    let rows: Vec<Owned> =
        (0..50u64).map(|i| (i / 7, i, vec![(b"n".to_vec(), i.to_string().into_bytes())])).collect();
    let packed = round_trip(&rows);
    let mut ws = Workspace::new(WorkspaceConfig::default());
    let ids = Reader::open(&mut ws, &packed, &NoDictionaries, MAX).unwrap().into_ids();
    assert_eq!(ids[49], (7, 49));
    let mut seen = Vec::new();
    for range in [10..13, 48..90] {
        let reader = Reader::open(&mut ws, &packed, &NoDictionaries, MAX).unwrap();
        reader.visit(range, |row| seen.push(row.id_seq)).unwrap();
    }
    assert_eq!(seen, [10, 11, 12, 48, 49]);
}

/// Columns of a page exactly, and of about as many rows, from row to row.
#[test]
fn any_row_of_about_a_page() {
    let row = |i: u64| {
        // Random, of one of two lengths: the lengths are worth coding.
        let random = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 7;
        let len = if random & 0x300 == 0 { 9 } else { 4 };
        let text = (0..len).map(|at| b'!' + (random >> (5 * at)) as u8 % 90).collect();
        (i, 0, vec![(b"t".to_vec(), text)])
    };
    for rows in [1, 63, 64, 65, 128, 130] {
        let rows: Vec<Owned> = (0..rows).map(row).collect();
        let packed = round_trip(&rows);
        for at in 0..=rows.len() {
            assert_eq!(rows_of(&packed, at..at), []);
            assert_eq!(rows_of(&packed, at..at + 1), &rows[at..rows.len().min(at + 1)]);
        }
    }
}

/// The first of more equal columns than are looked back on is out of sight for the
/// last: fields of rows, and holes of texts.
#[test]
fn many_equal_columns_come_back() {
    let row = |i: u64| {
        let value = format!("v{}", i * i);
        let mut fields: Vec<_> =
            (0..150).map(|n| (format!("f{n}").into_bytes(), value.clone().into_bytes())).collect();
        fields.push((b"text".to_vec(), format!("[{value}]").repeat(150).into_bytes()));
        (i, 0, fields)
    };
    round_trip(&(0..10).map(row).collect::<Vec<_>>());
}

/// Rows of one text each, of words of a small vocabulary: each of them a little
/// longer than the one before.
fn documents(rows: usize, vocabulary: &[&str]) -> Vec<Owned> {
    let mut x = 1u64;
    let mut word = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        vocabulary[(x >> 33) as usize % vocabulary.len()]
    };
    let mut text = |words| (0..words).map(|_| word()).collect::<Vec<_>>().join(" ").into_bytes();
    (0..rows as u64).map(|i| (i, 0, vec![(b"text".to_vec(), text(i as usize / 2 + 5))])).collect()
}

const VOCABULARY: [&str; 12] = [
    "invoice", "customer", "overdue", "the", "never", "paid", "back", "reminder", "of", "came",
    "address", "unknown",
];

fn trained(rows: &[Owned]) -> Arc<Dictionary> {
    let samples: Vec<&[u8]> = rows.iter().map(|(_, _, fields)| &fields[0].1[..]).collect();
    Arc::new(Dictionary::train_with(&samples, 4096, 3, 1).unwrap().with_id(1))
}

fn phrases(rows: &[Owned]) -> Arc<Dictionary> {
    let samples: Vec<&[u8]> = rows.iter().map(|(_, _, fields)| &fields[0].1[..]).collect();
    Arc::new(Dictionary::train_phrases(&samples, 4096, 3).unwrap().with_id(1))
}

#[test]
fn long_texts_lie_in_parts_where_there_is_a_dictionary() {
    let rows = documents(160, &VOCABULARY);
    let by_zstd = texts_lie_in_parts(&rows, &trained(&rows));
    let by_phrases = texts_lie_in_parts(&rows, &phrases(&rows));
    assert!(by_phrases < by_zstd, "{by_phrases} bytes where zstd has {by_zstd}");
}

/// Packs them, reads them in every way and damaged; the bytes that they take.
fn texts_lie_in_parts(rows: &[Owned], dictionary: &Arc<Dictionary>) -> usize {
    let mut ws = Workspace::new(WorkspaceConfig::default());
    let mut packed = Vec::new();
    pack_rows(&mut ws, 3, Some(dictionary), &block(rows), &mut packed).unwrap();
    assert_eq!(dictionary_id(&packed), Ok(Some(1)));
    assert_eq!(rows_with(dictionary, &packed, 0..usize::MAX), rows);
    for row in 0..rows.len() {
        assert_eq!(rows_with(dictionary, &packed, row..row + 1), &rows[row..=row]);
    }
    // One row needs a part or two of what all take.
    let mut held = |range| {
        let reader = Reader::open(&mut ws, &packed, dictionary, MAX).unwrap();
        reader.unpack(range).unwrap().memory_bytes()
    };
    assert!(held(0..1) + 2 * PART_BYTES < held(0..usize::MAX));
    let without = Reader::open(&mut ws, &packed, &NoDictionaries, MAX);
    assert!(matches!(without, Err(UnpackError::MissingDictionary(1))));
    let gathered = samples(&mut ws, &packed, dictionary, MAX).unwrap();
    let all: Vec<u8> = rows.iter().flat_map(|(_, _, fields)| fields[0].1.clone()).collect();
    assert!(gathered.contains(&all));
    // Damaged anywhere, they are other rows or an error.
    for at in 0..packed.len() {
        let mut damaged = packed.clone();
        damaged[at] ^= 1 << (at % 8);
        if let Ok(reader) = Reader::open(&mut ws, &damaged, dictionary, MAX) {
            let _ = reader.unpack(at % 160..at % 160 + 1);
        }
    }
    packed.len()
}

#[test]
fn a_dictionary_that_helps_nowhere_is_not_named() {
    let dictionary = trained(&documents(160, &VOCABULARY));
    let row = |i: u64| (i, 0, vec![(b"n".to_vec(), (i * i).to_string().into_bytes())]);
    let rows: Vec<Owned> = (0..200).map(row).collect();
    let mut ws = Workspace::new(WorkspaceConfig::default());
    let mut packed = Vec::new();
    pack_rows(&mut ws, 3, Some(&dictionary), &block(&rows), &mut packed).unwrap();
    assert_eq!(dictionary_id(&packed), Ok(None));
    assert_eq!(rows_of(&packed, 0..usize::MAX), rows);
}
