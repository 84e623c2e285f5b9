//! Any bytes are a block of rows, a block of texts, or an error; and the lines
//! of the input, as texts and as rows, come back; with a dictionary and without.
#![no_main]

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use snug_codec::columns::{Reader, RowBlock, TextReader, pack_rows, pack_texts};
use snug_codec::{Dictionary, Workspace, WorkspaceConfig};

const RAW_LEN_MAX: usize = 1 << 20;

thread_local! {
    static WS: RefCell<Workspace> = RefCell::new(Workspace::new(WorkspaceConfig::default()));
}

/// Dictionary 1, of words that inputs may have.
static DICTIONARY: LazyLock<Arc<Dictionary>> = LazyLock::new(|| {
    let text = |n: usize| format!("{n} the quick brown {} jumps over lazy dog {}", n % 7, n * n);
    let samples: Vec<String> = (0..400).map(text).collect();
    let samples: Vec<&[u8]> = samples.iter().map(String::as_bytes).collect();
    Arc::new(Dictionary::train_with(&samples, 2048, 3, 1).expect("trains").with_id(1))
});

/// Phrases of the same words, under the same number.
static PHRASES: LazyLock<Arc<Dictionary>> = LazyLock::new(|| {
    let text = |n: usize| format!("{n} the quick brown {} jumps over lazy dog {}", n % 7, n * n);
    let samples: Vec<String> = (0..400).map(text).collect();
    let samples: Vec<&[u8]> = samples.iter().map(String::as_bytes).collect();
    Arc::new(Dictionary::train_phrases(&samples, 2048, 3).expect("trains").with_id(1))
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| WS.with_borrow_mut(|ws| {
    // Long enough for texts to be cut into parts.
    let long = input.repeat(1 + 20_000 / (input.len() + 1));
    for dictionary in [&DICTIONARY, &PHRASES] {
        read(ws, input, dictionary);
        write(ws, input, None, dictionary);
        write(ws, &long, Some(dictionary), dictionary);
    }
}));

fn read(ws: &mut Workspace, input: &[u8], known: &Arc<Dictionary>) {
    for kind in 0..2 {
        // text and meta stored, so that what is fuzzed is the columns.
        let mut block = vec![0x47, kind];
        block.extend_from_slice(input);
        if let Ok(reader) = Reader::open(ws, &block, known, RAW_LEN_MAX) {
            let _ = reader.visit(0..64, |row| assert!(row.fields().count() == row.len()));
        }
        if let Ok(reader) = TextReader::open(ws, &block, known, RAW_LEN_MAX) {
            let mut out = Vec::new();
            for row in 0..reader.len().min(64) {
                out.clear();
                reader.append(row, &mut out);
            }
        }
    }
}

fn write(
    ws: &mut Workspace,
    input: &[u8],
    dictionary: Option<&Dictionary>,
    known: &Arc<Dictionary>,
) {
    let lines: Vec<&[u8]> = input.split(|&b| b == b'\n').collect();
    let mut packed = Vec::new();
    pack_texts(ws, 3, dictionary, &lines, &mut packed).expect("packs");
    let reader = TextReader::open(ws, &packed, known, RAW_LEN_MAX).expect("opens");
    let mut out = Vec::new();
    for (row, line) in lines.iter().enumerate() {
        out.clear();
        assert!(reader.append(row, &mut out));
        assert_eq!(out, *line);
    }
    let mut block = RowBlock::new();
    for (i, line) in lines.iter().enumerate() {
        let fields =
            line.chunks(9).enumerate().map(|(j, value)| (&b"abcdefgh"[j % 8..][..1], value));
        block.push(i as u64 / 3, i as u64 % 3, fields);
    }
    packed.clear();
    pack_rows(ws, 3, dictionary, &block, &mut packed).expect("packs");
    let reader = Reader::open(ws, &packed, known, RAW_LEN_MAX).expect("opens");
    let mut row = 0;
    reader
        .visit(0..lines.len(), |seen| {
            assert!(seen.fields().map(|(_, value)| value).eq(lines[row].chunks(9)));
            row += 1;
        })
        .expect("reads");
    assert_eq!(row, lines.len());
}
