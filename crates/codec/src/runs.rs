//! Runs of base64, hexadecimal, digits and UUIDs inside a value, such as a
//! base64 body within JSON, taken out and decoded before a codec sees it.
//!
//! ```text
//!  raw      {"id":"7ca68b9d-...","body":"W1swXSwge30s..."}
//!
//!  decoded  [varint runs] per run [varint text bytes before it][kind][varint length]
//!           [the text without the runs][what the runs stand for, end to end]
//! ```
//!
//! A run of base64 is taken as far as whole groups of four go; what is left over
//! (padding, line breaks) stays text, so that every way of writing it comes back
//! to the byte. A length is in digits for a run of digits, else in bytes.
//!
//! The decoded form is at most [`OVERHEAD_MAX`] bytes longer than the raw one.
//! Costs: one look at each byte, another at those of runs.

use crate::recognise::{self, Base64, Base64Style, HexCase};
use crate::varint;

/// Shorter runs of base64, hexadecimal and digits are left as they are.
const RUN_BYTES_MIN: usize = 32;

/// The number of runs, and nothing else, can come on top: a run saves eight
/// bytes at least and takes seven to describe.
pub(crate) const OVERHEAD_MAX: usize = 16;

const BASE64: u8 = 0;
const BASE64_URL: u8 = 1;
const HEX_LOWER: u8 = 2;
const HEX_UPPER: u8 = 3;
const UUID_LOWER: u8 = 4;
const UUID_UPPER: u8 = 5;
const DIGITS: u8 = 6;

/// What runs are made of.
static IN_RUN: [bool; 256] = {
    let mut table = [false; 256];
    let mut i = 0;
    while i < 256 {
        let byte = i as u8;
        table[i] = byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
        i += 1;
    }
    table
};

/// A run that stands for something shorter.
struct Run {
    kind: u8,
    /// How many of its characters were taken.
    used: usize,
    /// The length that is written down.
    len: usize,
}

/// Appends to `bytes` what the front of `run` stands for.
fn recognise_run(run: &[u8], bytes: &mut Vec<u8>) -> Option<Run> {
    let upper = |case| u8::from(case == HexCase::Upper);
    if let Some(case) = recognise::uuid(run, bytes) {
        return Some(Run { kind: UUID_LOWER + upper(case), used: run.len(), len: 16 });
    }
    if run.len() < RUN_BYTES_MIN {
        return None;
    }
    if run.iter().all(u8::is_ascii_digit) {
        recognise::digits(run, bytes);
        return Some(Run { kind: DIGITS, used: run.len(), len: run.len() });
    }
    let even = run.len() & !1;
    if let Some(case) = recognise::hex(&run[..even], bytes) {
        return Some(Run { kind: HEX_LOWER + upper(case), used: even, len: even / 2 });
    }
    let (whole, before) = (run.len() & !3, bytes.len());
    let mut style = Base64Style::default();
    recognise::base64(&run[..whole], &mut style, bytes)?;
    if !looks_encoded(&run[..whole], &bytes[before..]) {
        bytes.truncate(before);
        return None;
    }
    let kind = if style.settle().url { BASE64_URL } else { BASE64 };
    Some(Run { kind, used: whole, len: whole / 4 * 3 })
}

/// Long names can pass for base64. It is base64 when text comes out, or when
/// its letters and digits are spread as those of random bytes are.
fn looks_encoded(run: &[u8], decoded: &[u8]) -> bool {
    let printable = decoded.iter().filter(|&&b| b == b'\n' || (b' '..0x7f).contains(&b)).count();
    if printable * 20 >= decoded.len() * 19 {
        return true;
    }
    let share = |of: fn(&u8) -> bool| run.iter().filter(|b| of(b)).count() * 16 / run.len();
    share(u8::is_ascii_uppercase) >= 3
        && share(u8::is_ascii_lowercase) >= 3
        && share(u8::is_ascii_digit) >= 1
}

/// Appends the decoded form of `raw` to `out`; `false`, and nothing appended,
/// when there is nothing to decode. What a dictionary for recognised values is
/// trained on.
pub fn decode_runs(raw: &[u8], out: &mut Vec<u8>) -> bool {
    let (mut head, mut bytes) = (Vec::new(), Vec::new());
    let (mut count, mut at, mut text_from) = (0u64, 0, 0);
    let before = out.len();
    while at < raw.len() {
        let len = raw[at..].iter().take_while(|&&b| IN_RUN[usize::from(b)]).count();
        if let Some(run) = recognise_run(&raw[at..at + len], &mut bytes) {
            out.extend_from_slice(&raw[text_from..at]);
            varint::push(&mut head, (at - text_from) as u64);
            head.push(run.kind);
            varint::push(&mut head, run.len as u64);
            count += 1;
            text_from = at + run.used;
        }
        at += len.max(1);
    }
    if count == 0 {
        return false;
    }
    out.extend_from_slice(&raw[text_from..]);
    let mut front = Vec::with_capacity(head.len() + 10);
    varint::push(&mut front, count);
    front.extend_from_slice(&head);
    out.splice(before..before, front);
    out.extend_from_slice(&bytes);
    true
}

/// Appends the value of which `decoded` is the decoded form: exactly `raw_len`
/// bytes, or `None`, then perhaps some of them.
pub(crate) fn encode(decoded: &[u8], raw_len: usize, out: &mut Vec<u8>) -> Option<()> {
    let mut head = decoded;
    let count = varint::take_len(&mut head)?;
    // Once over the descriptions to find the text and the bytes behind them.
    let mut rest = head;
    let mut run_bytes = 0usize;
    for _ in 0..count {
        let (_, kind, len) = take_run(&mut rest)?;
        run_bytes = run_bytes.checked_add(bytes_of(kind, len)?)?;
    }
    let (mut text, mut bytes) = rest.split_at_checked(rest.len().checked_sub(run_bytes)?)?;
    let before = out.len();
    for _ in 0..count {
        let (gap, kind, len) = take_run(&mut head)?;
        let (gap, text_behind) = text.split_at_checked(gap)?;
        let (run, bytes_behind) = bytes.split_at_checked(bytes_of(kind, len)?)?;
        (text, bytes) = (text_behind, bytes_behind);
        out.extend_from_slice(gap);
        push_run(kind, run, len, out)?;
        if out.len() - before > raw_len {
            return None;
        }
    }
    out.extend_from_slice(text);
    (out.len() - before == raw_len).then_some(())
}

fn take_run(head: &mut &[u8]) -> Option<(usize, u8, usize)> {
    let gap = varint::take_len(head)?;
    let (&kind, rest) = head.split_first()?;
    *head = rest;
    Some((gap, kind, varint::take_len(head)?))
}

/// The bytes of a run of this kind and length.
fn bytes_of(kind: u8, len: usize) -> Option<usize> {
    match kind {
        DIGITS => recognise::digits_bytes(len),
        UUID_LOWER | UUID_UPPER => (len == 16).then_some(len),
        _ => Some(len),
    }
}

fn push_run(kind: u8, run: &[u8], len: usize, out: &mut Vec<u8>) -> Option<()> {
    match kind {
        BASE64 | BASE64_URL => {
            let from = out.len();
            out.extend_from_slice(run);
            let style = Base64 { url: kind == BASE64_URL, padded: false };
            recognise::base64_in_place(out, from, style);
        }
        HEX_LOWER | HEX_UPPER => recognise::push_hex(out, run, kind == HEX_UPPER),
        UUID_LOWER | UUID_UPPER => {
            recognise::push_uuid(out, run.try_into().ok()?, kind == UUID_UPPER);
        }
        DIGITS => recognise::push_digits_of(out, run, len)?,
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pieces() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            "[ -~]{0,12}".prop_map(String::into_bytes),
            "[A-Za-z0-9+/]{20,90}={0,2}(\n|\r\n)?".prop_map(String::into_bytes),
            "[A-Za-z0-9_-]{20,90}".prop_map(String::into_bytes),
            "[0-9a-f]{30,70}".prop_map(String::into_bytes),
            "[0-9A-F]{30,70}".prop_map(String::into_bytes),
            "0{0,9}[0-9]{20,90}".prop_map(String::into_bytes),
            "\"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\""
                .prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 0..20),
        ];
        prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn values_come_back(raw in pieces()) {
            let (mut decoded, mut back) = (b"kept".to_vec(), Vec::new());
            let any = decode_runs(&raw, &mut decoded);
            let decoded = decoded.strip_prefix(b"kept").unwrap();
            if any {
                prop_assert!(decoded.len() <= raw.len() + OVERHEAD_MAX);
                prop_assert_eq!(encode(decoded, raw.len(), &mut back), Some(()));
                prop_assert_eq!(back, raw);
            } else {
                prop_assert!(decoded.is_empty());
            }
        }

        #[test]
        fn any_bytes_encode_or_fail(decoded in prop::collection::vec(any::<u8>(), 0..80), raw_len in 0usize..200) {
            let mut out = Vec::new();
            let _ = encode(&decoded, raw_len, &mut out);
            prop_assert!(out.len() <= 3 * decoded.len() + 16);
        }
    }

    #[test]
    fn names_are_left_alone_and_base64_with_line_breaks_is_not() {
        let mut out = Vec::new();
        for text in [
            "a_very_long_function_name_with_underscores",
            "/usr/lib/x86_64/very/long/path/to/something",
        ] {
            assert!(!decode_runs(text.as_bytes(), &mut out), "{text}");
        }
        let mut lines = Vec::new();
        for line in 0..5u8 {
            let from = lines.len();
            lines.extend((0..57u8).map(|i| i.wrapping_mul(41).wrapping_add(line) ^ i >> 2));
            recognise::base64_in_place(&mut lines, from, Base64 { url: false, padded: true });
            lines.extend_from_slice(b"\r\n");
        }
        assert!(decode_runs(&lines, &mut out) && out.len() * 5 < lines.len() * 4 + 25);
    }
}
