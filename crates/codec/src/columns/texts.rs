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

use super::strings::{Column, Place};
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

/// Appends the words of `text`; a hash of what is between them.
fn cut(text: &[u8], class: Class, words: &mut Vec<Word>) -> u64 {
    let table = if class == Class::Fine { &FINE } else { &WORDS };
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut mix = |byte: u16| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        let start = at;
        if class == Class::Json && byte == b'"' {
            mix(u16::from(byte));
            at = closing_quote(text, at + 1);
            words.push((start as u32 + 1, at as u32));
            mix(256);
            if at < text.len() {
                mix(u16::from(byte));
                at += 1;
            }
        } else if table[usize::from(byte)] {
            while at < text.len() && table[usize::from(text[at])] {
                at += 1;
            }
            words.push((start as u32, at as u32));
            mix(256);
        } else {
            mix(u16::from(byte));
            at += 1;
        }
    }
    hash
}

fn closing_quote(text: &[u8], mut at: usize) -> usize {
    while at < text.len() && text[at] != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    at.min(text.len())
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
    shapes: Vec<Shape>,
    /// For each row the number of its shape from 1 on, or 0.
    of_row: Vec<i64>,
}

impl<'a> Cut<'a> {
    /// Cuts texts; `None` if most of them have no shape, or one of too many holes.
    fn new(values: &'a [&'a [u8]], class: Class) -> Option<Self> {
        let (texts, hashes) = Texts::cut(values, class);
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
        Some(Self { texts, shapes, of_row })
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
    /// Cuts texts; with the hash of each one's separators.
    fn cut(values: &'a [&'a [u8]], class: Class) -> (Self, Vec<u64>) {
        let mut texts = Self { values, words: Vec::new(), starts: vec![0] };
        let mut hashes = Vec::with_capacity(values.len());
        for value in values {
            hashes.push(cut(value, class, &mut texts.words));
            texts.starts.push(texts.words.len());
        }
        (texts, hashes)
    }

    fn words(&self, row: usize) -> &[Word] {
        &self.words[self.starts[row]..self.starts[row + 1]]
    }

    fn word(&self, row: usize, n: usize) -> &'a [u8] {
        let (from, to) = self.words(row)[n];
        &self.values[row][from as usize..to as usize]
    }

    /// What stands before word `n`, or after the last one.
    fn gap(&self, row: usize, n: usize) -> &'a [u8] {
        let words = self.words(row);
        let from = if n == 0 { 0 } else { words[n - 1].1 as usize };
        let to = words.get(n).map_or(self.values[row].len(), |w| w.0 as usize);
        &self.values[row][from..to]
    }

    fn same_shape(&self, a: usize, b: usize) -> bool {
        let words = self.words(a).len();
        words == self.words(b).len() && (0..=words).all(|n| self.gap(a, n) == self.gap(b, n))
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
    let sample = sample(values);
    let Some(trial) = Cut::new(&sample, class) else { return false };
    let all = (sample.len() < values.len()).then(|| Cut::new(values, class));
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

/// A few rows spread over the column.
fn sample<'a>(values: &[&'a [u8]]) -> Vec<&'a [u8]> {
    values.iter().step_by(values.len().div_ceil(TRIAL_ROWS)).copied().collect()
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
    let first = shape.rows[0];
    let words = texts.words(first).len();
    let varies = |&n: &usize| {
        let word = texts.word(first, n);
        shape.rows.iter().any(|&row| texts.word(row, n) != word)
    };
    (0..words).filter(varies).collect()
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
