//! Texts of a few shapes: what is constant in a shape is kept once, what varies
//! becomes columns of its own.
//!
//! A text is cut into words and what separates them. Texts with the same
//! separators in the same order have the same shape; a word that is equal in
//! all of them joins the separators around it. What remains is a template with
//! holes, and each hole is a column, which may hold numbers, UUIDs, base64 of
//! further texts, anything. (Log compressors call this template mining.)
//!
//! ```text
//!  {"id": "7ca6...", "retries": 0, "args": "(17,)"}
//!  template: {"id": "<0>", "retries": 0, "args": "(<1>,)"}
//!  columns:  0 UUIDs, 1 numbers
//!
//!  meta: varint templates, the template of each row as integers (0: verbatim),
//!        the verbatim rows as a plain column, then per template:
//!        varint holes, holes + 1 lengths of constant text (in the text),
//!        the holes as a group of columns
//! ```

use std::ops::Range;

use memchr::memchr2;

use super::strings::{Column, Place, same};
use super::{Decoder, Encoder, MALFORMED, Split};
use crate::{UnpackError, varint};

/// How finely a text is cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// What stands between double quotes is one word; else as `Words`.
    Json,
    /// Letters, digits and what glues them: `-`, `_`, `.`, `/`, `+`, non-ASCII.
    Words,
    /// Letters and digits alone.
    Fine,
}

/// More shapes than these are kept verbatim.
const TEMPLATES_MAX: usize = 8;
const HOLES_MAX: usize = 256;
const WORDS_MAX: usize = 2048;
/// The rows that a trial is made on.
const TRIAL_ROWS: usize = 48;
/// No trial is made where at most one byte in so many varies.
const SURE_WHEN_OF: usize = 2;

type Word = (u32, u32);

const fn word_bytes(glue: &[u8], non_ascii: bool) -> [bool; 256] {
    let mut table = [false; 256];
    let mut i = 0;
    while i < 256 {
        let byte = i as u8;
        table[i] = byte.is_ascii_alphanumeric() || (non_ascii && byte >= 0x80);
        i += 1;
    }
    let mut i = 0;
    while i < glue.len() {
        table[glue[i] as usize] = true;
        i += 1;
    }
    table
}

static WORDS: [bool; 256] = word_bytes(b"-_./+", true);
static FINE: [bool; 256] = word_bytes(b"", true);

/// A hash of what stands between words. It takes a multiplication a word, or for eight
/// bytes, not one a byte, which would take longer than all else of the cutting. Equal
/// hashes are a hint only: shapes are compared byte for byte.
struct Gaps {
    hash: u64,
    /// The bytes since the last word, behind a 1; of a long gap those that are not in the
    /// hash yet, behind a 2.
    bytes: u64,
}

impl Gaps {
    const fn new() -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, bytes: 1 }
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        if self.bytes >> 56 != 0 {
            self.mix();
            self.bytes = 2;
        }
        self.bytes = self.bytes << 8 | u64::from(byte);
    }

    #[inline]
    fn mix(&mut self) {
        let mixed = (self.hash ^ self.bytes).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (self.hash, self.bytes) = (mixed ^ mixed >> 32, 1);
    }
}

/// Appends the words of `text`; a hash of what is between them.
fn cut(text: &[u8], class: Class, words: &mut Vec<Word>) -> u64 {
    let table = if class == Class::Fine { &FINE } else { &WORDS };
    let mut gaps = Gaps::new();
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let start = at;
        if class == Class::Json && byte == b'"' {
            gaps.byte(byte);
            at = closing_quote(text, at + 1);
            words.push((start as u32 + 1, at as u32));
            gaps.mix();
            if at < text.len() {
                gaps.byte(byte);
                at += 1;
            }
        } else if table[usize::from(byte)] {
            let word = &text[at..];
            at += word.iter().position(|&b| !table[usize::from(b)]).unwrap_or(word.len());
            words.push((start as u32, at as u32));
            gaps.mix();
        } else {
            gaps.byte(byte);
            at += 1;
        }
    }
    gaps.mix();
    gaps.hash
}

/// Where the quote is that ends what begins at `at`, or the text ends.
fn closing_quote(text: &[u8], mut at: usize) -> usize {
    while let Some(found) = text.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if text[at] == b'"' {
            return at;
        }
        at += 2;
    }
    text.len()
}

/// The rows that share a shape.
struct Shape {
    hash: u64,
    rows: Vec<usize>,
    /// The words that vary.
    holes: Vec<usize>,
}

/// The texts of a column, cut.
struct Cut<'a> {
    texts: Texts<'a>,
    /// Of each text, that of its separators.
    hashes: Vec<u64>,
    shapes: Vec<Shape>,
    /// For each row the number of its shape from 1 on, or 0.
    of_row: Vec<i64>,
}

impl<'a> Cut<'a> {
    /// Cuts texts; `None` if most of them have no shape, or one of too many holes. Of
    /// every so many texts the first may have been cut before.
    fn new(
        values: &'a [&'a [u8]],
        class: Class,
        before: Option<(&Cut<'_>, usize)>,
    ) -> Option<Self> {
        let (texts, hashes) = Texts::cut(values, class, before);
        let (mut shapes, of_row) = shapes(&texts, &hashes);
        let fitting = of_row.iter().filter(|&&shape| shape > 0).count();
        if fitting * 2 < values.len() {
            return None;
        }
        for shape in &mut shapes {
            shape.holes = holes(&texts, shape);
            if shape.holes.len() > HOLES_MAX {
                return None;
            }
        }
        Some(Self { texts, hashes, shapes, of_row })
    }

    /// The texts without a shape.
    fn verbatim(&self) -> Vec<&'a [u8]> {
        let rows = self.texts.values.iter().zip(&self.of_row);
        rows.filter(|(_, shape)| **shape == 0).map(|(value, _)| *value).collect()
    }

    /// Bytes of what is not constant in its shape.
    fn varying(&self) -> usize {
        let in_hole = |row, hole| self.texts.word(row, hole).len();
        let in_shape = |shape: &Shape| -> usize {
            let row = |&row| shape.holes.iter().map(|&hole| in_hole(row, hole)).sum::<usize>();
            shape.rows.iter().map(row).sum()
        };
        let verbatim: usize = self.verbatim().iter().map(|value| value.len()).sum();
        verbatim + self.shapes.iter().map(in_shape).sum::<usize>()
    }

    fn push(&self, enc: &mut Encoder<'_>, tag: u8, place: Place) {
        enc.meta.push(tag);
        varint::push(&mut enc.meta, self.shapes.len() as u64);
        enc.push_ints(&self.of_row);
        let verbatim = self.verbatim();
        if !verbatim.is_empty() {
            enc.push_plain(&verbatim);
        }
        for shape in &self.shapes {
            push_template(enc, &self.texts, shape, place);
        }
    }
}

/// Texts as words and what is between them.
struct Texts<'a> {
    values: &'a [&'a [u8]],
    words: Vec<Word>,
    /// Where each row's words begin in `words`; one more than rows.
    starts: Vec<usize>,
}

impl<'a> Texts<'a> {
    /// Cuts texts; with the hash of each one's separators. `before` holds the first of
    /// every so many.
    fn cut(
        values: &'a [&'a [u8]],
        class: Class,
        before: Option<(&Cut<'_>, usize)>,
    ) -> (Self, Vec<u64>) {
        let mut texts = Self { values, words: Vec::new(), starts: vec![0] };
        let mut hashes = Vec::with_capacity(values.len());
        for (row, value) in values.iter().enumerate() {
            match before.filter(|(_, every)| row % every == 0) {
                Some((known, every)) => {
                    texts.words.extend_from_slice(known.texts.words(row / every));
                    hashes.push(known.hashes[row / every]);
                }
                None => hashes.push(cut(value, class, &mut texts.words)),
            }
            texts.starts.push(texts.words.len());
        }
        (texts, hashes)
    }

    fn words(&self, row: usize) -> &[Word] {
        &self.words[self.starts[row]..self.starts[row + 1]]
    }

    fn word(&self, row: usize, n: usize) -> &'a [u8] {
        in_text(self.values[row], self.words(row)[n])
    }

    fn same_shape(&self, a: usize, b: usize) -> bool {
        let (a_words, b_words) = (self.words(a), self.words(b));
        let (mut a_left, mut b_left) = (self.values[a], self.values[b]);
        let (mut a_at, mut b_at) = (0, 0);
        // Taken off the front: what is left begins behind the last word.
        let mut gap = |a_word: &Word, b_word: &Word| {
            let (a_gap, rest) = a_left.split_at((a_word.0 - a_at) as usize);
            a_left = &rest[(a_word.1 - a_word.0) as usize..];
            let (b_gap, rest) = b_left.split_at((b_word.0 - b_at) as usize);
            b_left = &rest[(b_word.1 - b_word.0) as usize..];
            (a_at, b_at) = (a_word.1, b_word.1);
            same(a_gap, b_gap)
        };
        a_words.len() == b_words.len()
            && a_words.iter().zip(b_words).all(|(a_word, b_word)| gap(a_word, b_word))
            && same(a_left, b_left)
    }
}

/// Adds a column of texts behind `tag`, if they have shapes and it pays.
pub(super) fn push(enc: &mut Encoder<'_>, tag: u8, values: &[&[u8]], place: Place) -> bool {
    let total: usize = values.iter().map(|value| value.len()).sum();
    if values.len() < 4 || total < 3 * values.len() {
        return false;
    }
    let json = matches!(values[0].first(), Some(b'{' | b'['));
    let finest = if json { place.class } else { place.class.max(Class::Words) };
    let fits = |class: &Class| *class >= finest && cuts(values, *class);
    let Some(class) = [Class::Json, Class::Words, Class::Fine].into_iter().find(fits) else {
        return false;
    };
    let below = Place { class, ..place.below() };
    // Most columns without shapes are known by a few rows.
    let every = values.len().div_ceil(TRIAL_ROWS);
    let sample: Vec<&[u8]> = values.iter().step_by(every).copied().collect();
    let Some(trial) = Cut::new(&sample, class, None) else { return false };
    let all = (every > 1).then(|| Cut::new(values, class, Some((&trial, every))));
    let whole = match &all {
        None => &trial,
        Some(Some(cut)) => cut,
        Some(None) => return false,
    };
    let in_doubt = !place.trial && values.len() >= 8 && whole.varying() * SURE_WHEN_OF > total;
    if in_doubt && !pays(enc, tag, &trial, values.len(), below) {
        return false;
    }
    whole.push(enc, tag, below);
    true
}

/// Whether this class finds more than one piece in the first values.
fn cuts(values: &[&[u8]], class: Class) -> bool {
    let mut words = Vec::new();
    values.iter().take(4).any(|value| {
        words.clear();
        cut(value, class, &mut words);
        words.first() != Some(&(0, value.len() as u32))
    })
}

/// Tries both ways on a sample of so many rows.
fn pays(enc: &mut Encoder<'_>, tag: u8, sample: &Cut<'_>, rows: usize, place: Place) -> bool {
    let values = sample.texts.values;
    let mut cut = Encoder::new(enc.ws, enc.level, enc.dictionary);
    sample.push(&mut cut, tag, Place { trial: true, ..place });
    let mut plain = Encoder::new(cut.ws, enc.level, enc.dictionary);
    plain.push_plain(values);
    let plain_len = plain.meta.len() + plain.data.len() + plain.text.len();
    // Constant text is paid once a block, not once a sample.
    let text_share = cut.text.len() * values.len() / rows / 2;
    cut.meta.len() * values.len() / rows + cut.data.len() + text_share < plain_len
}

/// The shapes with enough rows, and for each row the number of its shape from 1
/// on, or 0.
fn shapes(texts: &Texts<'_>, hashes: &[u64]) -> (Vec<Shape>, Vec<i64>) {
    let mut found: Vec<Shape> = Vec::new();
    for (row, &hash) in hashes.iter().enumerate() {
        if texts.words(row).len() > WORDS_MAX {
            continue;
        }
        match found.iter().position(|shape| shape.hash == hash) {
            Some(at) if texts.same_shape(found[at].rows[0], row) => found[at].rows.push(row),
            None if found.len() < 4 * TEMPLATES_MAX => {
                found.push(Shape { hash, rows: vec![row], holes: Vec::new() });
            }
            _ => {}
        }
    }
    let least = (hashes.len() / 32).max(3);
    found.retain(|shape| shape.rows.len() >= least);
    found.sort_by_key(|shape| std::cmp::Reverse(shape.rows.len()));
    found.truncate(TEMPLATES_MAX);
    let mut of_row = vec![0; hashes.len()];
    for (i, shape) in found.iter().enumerate() {
        for &row in &shape.rows {
            of_row[row] = i as i64 + 1;
        }
    }
    (found, of_row)
}

/// The words of a shape that vary.
fn holes(texts: &Texts<'_>, shape: &Shape) -> Vec<usize> {
    let Some((&first, rest)) = shape.rows.split_first() else { return Vec::new() };
    let (text, words) = (texts.values[first], texts.words(first));
    let mut varies = vec![false; words.len()];
    for &row in rest {
        let other = texts.values[row];
        for ((varies, word), theirs) in varies.iter_mut().zip(words).zip(texts.words(row)) {
            *varies = *varies || !same(in_text(text, *word), in_text(other, *theirs));
        }
    }
    (0..words.len()).filter(|&n| varies[n]).collect()
}

fn in_text(text: &[u8], (from, to): Word) -> &[u8] {
    &text[from as usize..to as usize]
}

fn push_template(enc: &mut Encoder<'_>, texts: &Texts<'_>, shape: &Shape, place: Place) {
    let holes = &shape.holes;
    let first = shape.rows[0];
    let text = texts.values[first];
    varint::push(&mut enc.meta, holes.len() as u64);
    let mut from = 0;
    for &hole in holes {
        let (start, end) = texts.words(first)[hole];
        varint::push(&mut enc.meta, u64::from(start) - from as u64);
        enc.text.extend_from_slice(&text[from..start as usize]);
        from = end as usize;
    }
    varint::push(&mut enc.meta, (text.len() - from) as u64);
    enc.text.extend_from_slice(&text[from..]);
    let columns: Vec<Vec<&[u8]>> = holes
        .iter()
        .map(|&hole| shape.rows.iter().map(|&row| texts.word(row, hole)).collect())
        .collect();
    // A word of this class is cut no further by the same class.
    let class = match place.class {
        Class::Json => Class::Words,
        Class::Words | Class::Fine => Class::Fine,
    };
    enc.push_group(&columns, Place { class, ..place });
}

/// A column of texts taken from a block.
pub(super) struct Templates {
    /// For each row wanted its template (0: verbatim) and its place among that
    /// template's rows.
    rows: Split,
    verbatim: Option<Box<Column>>,
    list: Vec<Template>,
    /// No honest value is longer: a crafted block could otherwise make one
    /// that doubles with each hole.
    len_max: usize,
}

struct Template {
    /// The constant text, and where each piece of it ends; one piece more than
    /// holes.
    text: Vec<u8>,
    ends: Vec<usize>,
    holes: Vec<Column>,
}

impl Templates {
    pub(super) fn append(&self, row: usize, out: &mut Vec<u8>) {
        let (template, at) = self.rows.place(row);
        if template == 0 {
            if let Some(verbatim) = &self.verbatim {
                verbatim.append(at as usize, &[], out);
            }
            return;
        }
        let template = &self.list[template as usize - 1];
        let mut from = 0;
        for (hole, &to) in template.holes.iter().zip(&template.ends) {
            if out.len() > self.len_max {
                return;
            }
            out.extend_from_slice(&template.text[from..to]);
            hole.append(at as usize, &template.holes, out);
            from = to;
        }
        out.extend_from_slice(&template.text[from..]);
    }
}

pub(super) fn take(
    dec: &mut Decoder<'_>,
    rows: usize,
    wanted: &Range<usize>,
    depth: u32,
) -> Result<Templates, UnpackError> {
    let count = dec.take_len()?;
    if count > TEMPLATES_MAX {
        return Err(MALFORMED);
    }
    let split = Split::take(dec, rows, wanted, count + 1)?;
    let verbatim = match split.heights[0] {
        0 => None,
        height => Some(Box::new(dec.take_column(height as usize, &split.wanted(0), depth + 1)?)),
    };
    let mut list = Vec::with_capacity(count);
    for template in 1..=count {
        let height = split.heights[template] as usize;
        list.push(take_template(dec, height, &split.wanted(template), depth)?);
    }
    Ok(Templates { rows: split, verbatim, list, len_max: dec.len_max })
}

fn take_template(
    dec: &mut Decoder<'_>,
    rows: usize,
    wanted: &Range<usize>,
    depth: u32,
) -> Result<Template, UnpackError> {
    let holes = dec.take_len()?;
    if holes > HOLES_MAX {
        return Err(MALFORMED);
    }
    let mut ends = Vec::with_capacity(holes + 1);
    let mut end = 0usize;
    for _ in 0..=holes {
        end = end.checked_add(dec.take_len()?).ok_or(MALFORMED)?;
        ends.push(end);
    }
    let text = dec.take_text(end)?.to_vec();
    ends.pop();
    Ok(Template { text, ends, holes: dec.take_group(holes, rows, wanted, depth + 1, &mut |_| ())? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str, class: Class) -> Vec<&str> {
        let mut words = Vec::new();
        cut(text.as_bytes(), class, &mut words);
        words.iter().map(|&(from, to)| &text[from as usize..to as usize]).collect()
    }

    #[test]
    fn what_stands_between_quotes_is_a_word_up_to_the_quote_that_is_not_escaped() {
        assert_eq!(words(r#"{"a": "b, c", "n": 12}"#, Class::Json), ["a", "b, c", "n", "12"]);
        assert_eq!(words(r#"["", "a\"b", "\\"]"#, Class::Json), ["", r#"a\"b"#, r"\\"]);
        for open in [r#"""#, r#""a"#, r#""a\"#, r#""a\""#] {
            assert_eq!(words(open, Class::Json), [&open[1..]], "{open}");
        }
        assert_eq!(words("GET /a/b?n=12", Class::Words), ["GET", "/a/b", "n", "12"]);
        assert_eq!(words("a-b_c", Class::Fine), ["a", "b", "c"]);
    }

    /// Gaps of every length about the eight bytes that are hashed at once.
    #[test]
    fn shapes_are_told_by_every_byte_between_words() {
        let shape = |text: &str| cut(text.as_bytes(), Class::Words, &mut Vec::new());
        for len in 1..24 {
            let gap = " ".repeat(len);
            let text = format!("a{gap}:b{gap}");
            assert_eq!(shape(&text), shape(&text.replace('a', "longer")));
            for other in [format!("a{gap};b{gap}"), format!("{text} "), format!("a{gap}c:b{gap}")] {
                assert_ne!(shape(&text), shape(&other), "{text:?} {other:?}");
            }
        }
    }

    #[test]
    fn texts_cut_before_are_cut_the_same() {
        let texts: Vec<String> = (0..200)
            .map(|n| match n % 3 {
                0 => format!(r#"{{"id": "{}", "n": {n}}}"#, n * n),
                1 => format!(r#"["say \"{n}\"", {n}, "constant"]"#),
                _ => format!("{n} bottles; {n} bottles of beer"),
            })
            .collect();
        let values: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        for class in [Class::Json, Class::Words, Class::Fine] {
            for every in [1, 2, 7] {
                let sample: Vec<&[u8]> = values.iter().step_by(every).copied().collect();
                let before = Cut::new(&sample, class, None).unwrap();
                let (cut, hashes) = Texts::cut(&values, class, Some((&before, every)));
                let (alone, expected) = Texts::cut(&values, class, None);
                assert_eq!((cut.words, cut.starts), (alone.words, alone.starts));
                assert_eq!(hashes, expected);
            }
        }
    }
}
