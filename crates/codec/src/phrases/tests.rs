//! That any bytes come back from any table, and that any bytes are a table and a
//! body, or are refused.

use super::search::SINGLES;
use super::*;
use proptest::prelude::*;
use std::sync::LazyLock;

/// Sentences of a few words, each value another.
fn sentences(count: usize) -> Vec<Vec<u8>> {
    const WORDS: [&str; 12] = [
        "time",
        "year",
        "people",
        "way",
        "day",
        "thing",
        "child",
        "government",
        "company",
        "small",
        "number",
        "night",
    ];
    let mut state = 1u64;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % bound
    };
    let mut value = |i: usize| {
        let mut text = format!(r#"{{"id":{i},"#);
        for _ in 0..20 {
            text += WORDS[below(WORDS.len())];
            text += [" ", " ", " ", "\",\"", "\":"][below(5)];
        }
        text + "}"
    };
    (0..count).map(|i| value(i).into_bytes()).collect()
}

fn trained(samples: &[Vec<u8>]) -> Option<Vec<u8>> {
    let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
    train(&samples, 1024, 1 << 16, 0.0)
}

static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| trained(&sentences(300)).unwrap());
static TABLE: LazyLock<PhraseTable> = LazyLock::new(|| PhraseTable::from_bytes(&BYTES).unwrap());

/// A text without repetitions, and a table of long pieces of it.
static LONG_TEXT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut state = 7u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        b'a' + (state >> 33) as u8 % 26
    };
    (0..400).map(|_| byte()).collect()
});

static LONG_TABLE: LazyLock<PhraseTable> = LazyLock::new(|| {
    let samples: Vec<Vec<u8>> =
        (0..200u8).map(|n| [&[n, n / 3, n / 7][..], &LONG_TEXT].concat()).collect();
    let table = PhraseTable::from_bytes(&trained(&samples).unwrap()).unwrap();
    let longest = (0..table.phrases.len()).map(|id| table.phrases.get(id as u16).len()).max();
    assert!(longest > Some(200), "{longest:?}");
    table
});

fn packed(table: &PhraseTable, raw: &[u8]) -> Vec<u8> {
    let mut body = b"before".to_vec();
    table.pack(&mut Scratch::default(), raw, &mut body);
    body.split_off(6)
}

/// As this processor unpacks it, and as any does: the same.
fn unpacked(table: &PhraseTable, body: &[u8], raw_len: usize) -> Option<Vec<u8>> {
    let (mut here, mut anywhere) = (b"kept".to_vec(), b"kept".to_vec());
    let found = table.unpack(body, raw_len, &mut here);
    assert_eq!(table.unpack_any(body, raw_len, &mut anywhere), found);
    found?;
    assert_eq!(here, anywhere);
    assert_eq!(&here[..4], b"kept");
    Some(here.split_off(4))
}

/// What the table was trained on, anything else, and both mixed.
fn some_raw() -> impl Strategy<Value = Vec<u8>> {
    let known = (0usize..300).prop_map(|i| sentences(300)[i].clone());
    let any = prop::collection::vec(any::<u8>(), 0..300);
    prop::collection::vec(prop_oneof![known, any], 0..20).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_come_back(raw in some_raw()) {
        let body = packed(&TABLE, &raw);
        prop_assert!(body.len() <= 4 * raw.len() + 16);
        prop_assert!(unpacked(&TABLE, &body, raw.len()).as_ref() == Some(&raw));
        // Neither shorter nor longer, but for what the last bits may mean: where the
        // lane from the back begins elsewhere, its bits may by chance fill the bytes.
        for other in [&body[..body.len().saturating_sub(1)], &[&body[..], &[0]].concat()] {
            let found = unpacked(&TABLE, other, raw.len());
            prop_assert!(other == body || found.is_none() || found != Some(raw.clone()));
            prop_assert!(other == body || found.is_none() || raw.len() >= 256);
        }
    }

    /// Whatever its length, and wherever phrases would have gone across a seam.
    #[test]
    fn any_length_comes_back(parts in prop::collection::vec(0usize..300, 1..8), len in 0usize..3000) {
        let mut raw: Vec<u8> = parts.into_iter().cycle().take(40).flat_map(|i| sentences(300)[i].clone()).collect();
        raw.truncate(len);
        let body = packed(&TABLE, &raw);
        prop_assert!(unpacked(&TABLE, &body, raw.len()).as_ref() == Some(&raw));
    }

    /// Phrases of up to 255 bytes: longer than all that is left for a second lane.
    #[test]
    fn long_phrases_come_back(front in 0usize..1200, ids in prop::collection::vec(any::<prop::sample::Index>(), 1..4)) {
        let mut raw: Vec<u8> = (0..front).map(|n| (n * n % 251) as u8).collect();
        let longer = LONG_TABLE.phrases.len() - SINGLES;
        for id in ids {
            raw.extend_from_slice(LONG_TABLE.phrases.bytes_of((SINGLES + id.index(longer)) as u16));
        }
        let body = packed(&LONG_TABLE, &raw);
        prop_assert!(unpacked(&LONG_TABLE, &body, raw.len()).as_ref() == Some(&raw));
    }

    #[test]
    fn any_body_unpacks_or_fails(body in prop::collection::vec(any::<u8>(), 0..300), raw_len in 0usize..2000) {
        if let Some(raw) = unpacked(&TABLE, &body, raw_len) {
            prop_assert_eq!(raw.len(), raw_len);
        }
    }

    /// Whatever becomes of a table's bytes: it is one that packs, or none.
    #[test]
    fn damaged_tables_are_refused_or_sound(
        at: prop::sample::Index, flip: u8, cut in prop::option::of(any::<prop::sample::Index>()), raw in some_raw(),
    ) {
        let mut bytes = BYTES.clone();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Some(table) = PhraseTable::from_bytes(&bytes) {
            prop_assert_eq!(unpacked(&table, &packed(&table, &raw), raw.len()), Some(raw));
        }
    }

    #[test]
    fn any_samples_train_a_table_or_none(
        samples in prop::collection::vec(prop::collection::vec(0u8..5, 0..200), 0..40), raw in some_raw(),
    ) {
        if let Some(bytes) = trained(&samples) {
            let table = PhraseTable::from_bytes(&bytes).unwrap();
            for raw in samples.iter().chain([&raw]) {
                let body = packed(&table, raw);
                prop_assert!(unpacked(&table, &body, raw.len()).as_ref() == Some(raw));
            }
        }
    }
}

#[test]
fn words_take_a_few_bits_each() {
    let values = sentences(400);
    let (mut raw, mut body) = (0, 0);
    for value in &values[300..] {
        raw += value.len();
        body += packed(&TABLE, value).len();
    }
    // 20 of 12 words and 4 kinds of what is between: 5.5 bits each, of 7 bytes.
    assert!(body * 100 < raw * 16, "{body} of {raw}");
}

#[test]
fn long_values_are_parsed_in_pieces() {
    let raw = sentences(300).concat();
    assert!(raw.len() > 30_000);
    let body = packed(&TABLE, &raw);
    assert!(body.len() * 5 < raw.len());
    assert_eq!(unpacked(&TABLE, &body, raw.len()), Some(raw));
}

#[test]
fn what_all_values_share_becomes_a_few_long_phrases() {
    let constant = "a sentence of a hundred and more bytes that every value has in it as it is, whatever else it says: ";
    let values: Vec<Vec<u8>> =
        (0..300).map(|i| format!("{constant}{}", i * 7919 % 1000).into_bytes()).collect();
    let table = PhraseTable::from_bytes(&trained(&values).unwrap()).unwrap();
    let body = packed(&table, &values[7]);
    assert!(body.len() <= 4, "{}", body.len());
}

#[test]
fn nothing_is_trained_from_nothing() {
    assert!(trained(&[]).is_none());
    assert!(trained(&[Vec::new()]).is_none());
    assert!(trained(&[b"once".to_vec()]).is_none());
}

#[test]
fn a_table_weighs_what_it_says() {
    let phrases = TABLE.phrases.len();
    let weighs = TABLE.memory_bytes();
    assert!((30 * phrases..200 * phrases).contains(&weighs), "{weighs} for {phrases}");
}
