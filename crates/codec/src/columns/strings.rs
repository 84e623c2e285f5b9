//! One column of byte strings: what the values are decides how they are kept.
//!
//! ```text
//!  meta: [tag] then
//!    CONST       varint length; the value in the text
//!    NUMBER      [scale][pad] integers; varint exceptions, their rows as
//!                integers and themselves as a column
//!    DICTIONARY  varint distinct values, themselves as a column; codes as integers
//!    HEX         [upper] lengths, bytes
//!    UUID        [upper | version 4 << 1] bytes (a version 4 one in 122 bits)
//!    BASE64      [url | padded << 1] what they decode to, as a column
//!    TEMPLATES   see `texts.rs`
//!    PLAIN       lengths; all bytes as one run
//!    SHORT       lengths; the bytes in the text
//!    SAME        varint: the column before it in its group with equal values
//!
//!    lengths are integers; where these are not runs, behind ENDS and the sum of
//!    them up to the end of each page of rows
//! ```
//!
//! Tried in that order, the first that fits is taken: each test looks at the
//! values once and stops at the first value that does not fit.

use std::collections::HashMap;
use std::ops::Range;

use super::bytes::Run;
use super::ints::Ints;
use super::texts::{self, Class, Templates};
use super::{Decoder, Encoder, MALFORMED};
use crate::rans::weave::{self, PAGE_ROWS};
use crate::recognise::{self, Base64, Base64Style, HexCase};
use crate::{UnpackError, rans, varint};

const CONST: u8 = 0;
const NUMBER: u8 = 1;
const DICTIONARY: u8 = 2;
const HEX: u8 = 3;
const UUID: u8 = 4;
const BASE64: u8 = 5;
const TEMPLATES: u8 = 6;
const PLAIN: u8 = 7;
const SHORT: u8 = 8;
const SAME: u8 = 9;

/// In front of lengths whose sums are given page by page; none of the tags of
/// integers.
const ENDS: u8 = 3;

/// How deep columns may be made of columns.
const DEPTH_MAX: u32 = 6;

/// Plain columns of fewer bytes in all go to the block's text, where one zstd
/// frame serves them all.
const SHORT_BYTES: usize = 384;

/// An equal column is looked for among so many before it.
const TWINS_AMONG: usize = 64;

/// The first values tell whether base64 is worth decoding.
const JUDGED_BY: usize = 64;

const NOT_AN_EXCEPTION: u32 = u32::MAX;

/// How a column is looked at: how deep it lies, and how finely a text column
/// above it has cut already.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) depth: u32,
    pub(super) class: Class,
    /// Inside a trial on a sample: no trial of its own.
    pub(super) trial: bool,
}

impl Place {
    pub(super) const TOP: Self = Self { depth: 0, class: Class::Json, trial: false };

    pub(super) fn below(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }
}

/// Whether two short strings are equal, without a call.
#[inline]
pub(super) fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let front = |s: &[u8]| s.first_chunk().map(|word| u64::from_le_bytes(*word));
    let back = |s: &[u8]| s.last_chunk().map(|word| u64::from_le_bytes(*word));
    let half = |s: &[u8]| {
        let (front, back) = (s.first_chunk::<4>(), s.last_chunk::<4>());
        front.zip(back).map(|(front, back)| (u32::from_le_bytes(*front), u32::from_le_bytes(*back)))
    };
    match a.len() {
        0..4 => a.iter().zip(b).all(|(a, b)| a == b),
        4..8 => half(a) == half(b),
        8..=16 => front(a) == front(b) && back(a) == back(b),
        _ => front(a) == front(b) && a == b,
    }
}

impl Encoder<'_> {
    /// Adds columns of equal height, each value for value equal to an earlier
    /// one only by reference.
    pub(super) fn push_group(&mut self, columns: &[Vec<&[u8]>], place: Place) {
        for member in 0..columns.len() {
            self.push_member(columns, member, place);
        }
    }

    /// Adds one column of such a group; those before it have been added.
    pub(super) fn push_member(&mut self, columns: &[Vec<&[u8]>], member: usize, place: Place) {
        let column = &columns[member];
        let constant = column.windows(2).all(|w| same(w[0], w[1]));
        let twin = (!constant && column.len() > 1)
            .then(|| member.saturating_sub(TWINS_AMONG)..member)
            .and_then(|mut near| near.find(|&other| same_values(&columns[other], column)));
        match twin {
            Some(twin) => {
                self.meta.push(SAME);
                varint::push(&mut self.meta, twin as u64);
            }
            None => self.push_column(column, place),
        }
    }

    /// Adds one column; the reader must know its height.
    pub(super) fn push_column(&mut self, values: &[&[u8]], place: Place) {
        let Some(&first) = values.first() else { return };
        if values.iter().all(|value| same(value, first)) {
            self.meta.push(CONST);
            self.push_to_text(first);
            return;
        }
        let shallow = place.depth < DEPTH_MAX;
        let done = self.push_numbers(values, place)
            || shallow && self.push_dictionary(values, place)
            || self.push_uuids(values)
            || self.push_hex(values)
            || shallow && self.push_base64(values, place)
            || shallow && texts::push(self, TEMPLATES, values, place);
        if !done {
            self.push_plain(values);
        }
    }

    fn push_to_text(&mut self, bytes: &[u8]) {
        varint::push(&mut self.meta, bytes.len() as u64);
        self.text.extend_from_slice(bytes);
    }

    fn push_lengths(&mut self, values: &[&[u8]]) {
        let lengths: Vec<i64> = values.iter().map(|value| value.len() as i64).collect();
        self.push_as_lengths(&lengths);
    }

    fn push_as_lengths(&mut self, lengths: &[i64]) {
        let runs = 1 + lengths.windows(2).filter(|w| w[0] != w[1]).count();
        if lengths.len() <= PAGE_ROWS || runs <= lengths.len() / 4 {
            self.push_ints(lengths);
            return;
        }
        self.meta.push(ENDS);
        let mut end = 0;
        let page_end = |page: &[i64]| {
            end += page.iter().sum::<i64>();
            end
        };
        let ends: Vec<i64> = lengths.chunks(PAGE_ROWS).map(page_end).collect();
        self.push_ints(&ends);
        self.push_ints_of_rows(lengths);
    }

    pub(super) fn push_plain(&mut self, values: &[&[u8]]) {
        let total: usize = values.iter().map(|value| value.len()).sum();
        let short = total < SHORT_BYTES;
        self.meta.push(if short { SHORT } else { PLAIN });
        self.push_lengths(values);
        if short {
            for value in values {
                self.text.extend_from_slice(value);
            }
        } else {
            self.push_bytes(&values.concat());
        }
    }

    fn push_numbers(&mut self, values: &[&[u8]], place: Place) -> bool {
        let allowed = if place.depth < DEPTH_MAX { values.len() / 8 } else { 0 };
        let Some((scale, pad)) = number_form(values) else { return false };
        let mut numbers = Vec::with_capacity(values.len());
        let mut rows = Vec::new();
        let mut exceptions = Vec::new();
        let mut last = 0;
        for (row, &value) in values.iter().enumerate() {
            let number = match pad {
                0 => recognise::decimal(value).filter(|d| d.scale == scale).map(|d| d.mantissa),
                _ if value.len() == usize::from(pad) => recognise::padded(value),
                _ => None,
            };
            match number {
                Some(number) => last = number,
                None if exceptions.len() == allowed => return false,
                None => {
                    rows.push(row as i64);
                    exceptions.push(value);
                }
            }
            numbers.push(last);
        }
        self.meta.extend_from_slice(&[NUMBER, scale, pad]);
        self.push_ints_of_rows(&numbers);
        varint::push(&mut self.meta, exceptions.len() as u64);
        self.push_ints(&rows);
        self.push_column(&exceptions, place.below());
        true
    }

    fn push_dictionary(&mut self, values: &[&[u8]], place: Place) -> bool {
        let distinct_max = values.len() / 2;
        let mut codes = Vec::with_capacity(values.len());
        let mut distinct: Vec<&[u8]> = Vec::new();
        let mut seen: HashMap<&[u8], i64, foldhash::fast::FixedState> =
            HashMap::with_capacity_and_hasher(64, foldhash::fast::FixedState::default());
        for &value in values {
            let next = distinct.len() as i64;
            let code = *seen.entry(value).or_insert(next);
            if code == next {
                if distinct.len() == distinct_max {
                    return false;
                }
                distinct.push(value);
            }
            codes.push(code);
        }
        self.meta.push(DICTIONARY);
        varint::push(&mut self.meta, distinct.len() as u64);
        self.push_column(&distinct, place.below());
        self.push_ints_of_rows(&codes);
        true
    }

    fn push_uuids(&mut self, values: &[&[u8]]) -> bool {
        let mut bytes = Vec::new();
        let mut case = HexCase::Either;
        for value in values {
            match recognise::uuid(value, &mut bytes).and_then(|c| case.and(c)) {
                Some(both) => case = both,
                None => return false,
            }
        }
        let ids = bytes.as_chunks::<16>().0;
        let version_4 = ids.iter().all(|id| id[6] >> 4 == 4 && id[8] >> 6 == 2);
        let upper = u8::from(case == HexCase::Upper);
        self.meta.extend_from_slice(&[UUID, upper | u8::from(version_4) << 1]);
        if !version_4 {
            // Byte by byte: in those made from the time many are alike.
            for at in 0..16 {
                let plane: Vec<u8> = ids.iter().map(|id| id[at]).collect();
                self.push_bytes_of_rows(&plane);
            }
            return true;
        }
        let (mut random, mut rest) = (Vec::with_capacity(ids.len() * 15), Vec::new());
        for (row, id) in ids.iter().enumerate() {
            random.extend_from_slice(&id[..6]);
            random.push(id[6] << 4 | id[8] & 15);
            random.push(id[7]);
            random.extend_from_slice(&id[9..]);
            if row % 4 == 0 {
                rest.push(0);
            }
            rest[row / 4] |= (id[8] >> 4 & 3) << (row % 4 * 2);
        }
        self.push_bytes(&random);
        self.push_bytes(&rest);
        true
    }

    fn push_hex(&mut self, values: &[&[u8]]) -> bool {
        let total: usize = values.iter().map(|value| value.len()).sum();
        if total < 8 * values.len() {
            return false;
        }
        let mut bytes = Vec::new();
        let mut lengths = Vec::with_capacity(values.len());
        let mut case = HexCase::Either;
        for value in values {
            match recognise::hex(value, &mut bytes).and_then(|c| case.and(c)) {
                Some(both) => case = both,
                None => return false,
            }
            lengths.push(value.len() as i64 / 2);
        }
        self.meta.extend_from_slice(&[HEX, u8::from(case == HexCase::Upper)]);
        self.push_as_lengths(&lengths);
        self.push_bytes(&bytes);
        true
    }

    fn push_base64(&mut self, values: &[&[u8]], place: Place) -> bool {
        let total: usize = values.iter().map(|value| value.len()).sum();
        if total < 16 * values.len() {
            return false;
        }
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(values.len()));
        let mut style = Base64Style::default();
        let judged_by = &values[..values.len().min(JUDGED_BY)];
        for value in values {
            if recognise::base64(value, &mut style, &mut bytes).is_none() {
                return false;
            }
            ends.push(bytes.len());
            if ends.len() == judged_by.len() && !worth_decoding(&bytes, judged_by) {
                return false;
            }
        }
        let style = style.settle();
        self.meta.extend_from_slice(&[BASE64, u8::from(style.url) | u8::from(style.padded) << 1]);
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let decoded: Vec<&[u8]> = starts.zip(&ends).map(|(from, &to)| &bytes[from..to]).collect();
        self.push_column(&decoded, Place { class: Class::Json, ..place.below() });
        true
    }
}

fn same_values(a: &[&[u8]], b: &[&[u8]]) -> bool {
    a.iter().zip(b).all(|(a, b)| same(a, b))
}

/// Words can pass for base64. Decoding pays when text comes out, or when the
/// digits are spread as evenly as those of random bytes.
fn worth_decoding(decoded: &[u8], values: &[&[u8]]) -> bool {
    let printable = decoded.iter().filter(|&&b| b == b'\n' || (b' '..0x7f).contains(&b)).count();
    if printable * 20 >= decoded.len() * 19 {
        return true;
    }
    let text = values.concat();
    rans::estimate(&rans::histogram(&text)) * 16 >= text.len() * 11
}

/// The decimals and the padding that the first value that is a number has.
fn number_form(values: &[&[u8]]) -> Option<(u8, u8)> {
    let first = values
        .iter()
        .take(9)
        .find(|v| v.first().is_some_and(u8::is_ascii_digit) || v.first() == Some(&b'-'))?;
    match recognise::decimal(first) {
        // All of one length and one of them with zeros in front: padded.
        Some(d) if d.scale == 0 && d.mantissa >= 0 => {
            let padded = values.iter().all(|v| v.len() == first.len())
                && values.iter().any(|v| v.len() > 1 && v[0] == b'0');
            Some((0, if padded { first.len() as u8 } else { 0 }))
        }
        Some(d) => Some((d.scale, 0)),
        None => recognise::padded(first).map(|_| (0, first.len() as u8)),
    }
}

/// A column taken from a block: gives each of the values that were wanted as
/// it was.
pub(super) enum Column {
    Const(Run, usize),
    Number { values: Ints, scale: u8, pad: u8, exceptions: Option<Exceptions> },
    Dictionary { codes: Ints, values: Strings },
    Hex { strings: Strings, upper: bool },
    Uuid { from: usize, ids: Vec<[u8; 16]>, upper: bool },
    Base64 { inner: Box<Self>, style: Base64 },
    Templates(Templates),
    Plain(Strings),
    Same(usize),
}

/// The rows of a number column that hold something else.
pub(super) struct Exceptions {
    /// For each row wanted its place among the exceptions.
    at: Vec<u32>,
    from: usize,
    values: Box<Column>,
}

/// Strings end to end.
#[derive(Default)]
pub(super) struct Strings {
    ends: Ends,
    bytes: Run,
}

/// Where among their bytes the strings of some rows lie.
#[derive(Default)]
struct Ends {
    /// The first of these rows.
    from: usize,
    /// Where each begins and, one more, where the last one ends.
    bounds: Vec<usize>,
    /// Where the last string of all ends.
    total: usize,
}

impl Ends {
    /// `lengths` are those of the rows from `from` on; the first begins at `at`.
    fn new(from: usize, at: usize, lengths: &[i64]) -> Option<Self> {
        let mut bounds = Vec::with_capacity(lengths.len() + 1);
        let mut end = at;
        bounds.push(end);
        for &length in lengths {
            end = end.checked_add(usize::try_from(length).ok()?)?;
            bounds.push(end);
        }
        Some(Self { from, bounds, total: end })
    }

    #[inline]
    fn piece(&self, row: usize) -> Range<usize> {
        let row = row - self.from;
        self.bounds[row]..self.bounds[row + 1]
    }

    /// From where the first of `rows` begins to where the last ends.
    fn pieces(&self, rows: &Range<usize>) -> Range<usize> {
        let bound = |row: usize| self.bounds[row - self.from];
        bound(rows.start)..bound(rows.end)
    }
}

impl Strings {
    #[inline]
    fn piece(&self, row: usize) -> Range<usize> {
        self.ends.piece(row)
    }
}

impl Column {
    /// Appends the value of `row`; `group` are the columns beside it.
    #[inline]
    pub(super) fn append(&self, row: usize, group: &[Self], out: &mut Vec<u8>) {
        match self {
            Self::Const(value, len) => value.append(0..*len, out),
            Self::Number { values, scale, pad, exceptions } => {
                if let Some(exceptions) = exceptions {
                    let at = exceptions.at[row - exceptions.from];
                    if at != NOT_AN_EXCEPTION {
                        exceptions.values.append(at as usize, &[], out);
                        return;
                    }
                }
                recognise::push_decimal(out, values.at(row), *scale, *pad);
            }
            Self::Dictionary { codes, values } => {
                values.bytes.append(values.piece(codes.at(row) as usize), out);
            }
            Self::Hex { strings, upper } => {
                recognise::push_hex(out, strings.bytes.get(strings.piece(row)), *upper);
            }
            Self::Uuid { from, ids, upper } => {
                recognise::push_uuid(out, &ids[row - from], *upper);
            }
            Self::Base64 { inner, style } => {
                let from = out.len();
                inner.append(row, &[], out);
                recognise::base64_in_place(out, from, *style);
            }
            Self::Templates(templates) => templates.append(row, out),
            Self::Plain(strings) => strings.bytes.append(strings.piece(row), out),
            Self::Same(twin) => group[*twin].append(row, group, out),
        }
    }
}

impl Decoder<'_> {
    /// Takes a group of `count` columns, each `rows` high; `each` is called after
    /// each.
    pub(super) fn take_group(
        &mut self,
        count: usize,
        rows: usize,
        wanted: &Range<usize>,
        depth: u32,
        each: &mut dyn FnMut(&Self),
    ) -> Result<Vec<Column>, UnpackError> {
        let mut columns: Vec<Column> = Vec::new();
        for _ in 0..count {
            if rows > 0 && self.peek_byte() == Some(SAME) {
                self.take_byte()?;
                let twin = self.take_len()?;
                // The twin may itself have one, too far back to be found from here.
                let first = match columns.get(twin).ok_or(MALFORMED)? {
                    Column::Same(first) => *first,
                    _ => twin,
                };
                columns.push(Column::Same(first));
            } else {
                columns.push(self.take_column(rows, wanted, depth)?);
            }
            each(self);
        }
        Ok(columns)
    }

    /// Takes one column of `rows` values, of which the rows `wanted` (within
    /// them) will be asked for.
    pub(super) fn take_column(
        &mut self,
        rows: usize,
        wanted: &Range<usize>,
        depth: u32,
    ) -> Result<Column, UnpackError> {
        debug_assert!(wanted.start <= wanted.end && wanted.end <= rows);
        if rows == 0 {
            return Ok(Column::Const(Run::default(), 0));
        }
        if depth > DEPTH_MAX + 2 {
            return Err(MALFORMED);
        }
        self.spend(64)?;
        Ok(match self.take_byte()? {
            CONST => {
                let len = self.take_len()?;
                Column::Const(Run::of(self.take_text(len)?), len)
            }
            NUMBER => {
                let (scale, pad) = (self.take_byte()?, self.take_byte()?);
                if scale > 18 || pad > 18 {
                    return Err(MALFORMED);
                }
                let values = self.take_ints_of_rows(rows, wanted)?;
                Column::Number {
                    values,
                    scale,
                    pad,
                    exceptions: self.take_exceptions(rows, wanted, depth)?,
                }
            }
            DICTIONARY => {
                let distinct = self.take_len()?;
                if distinct > rows {
                    return Err(MALFORMED);
                }
                let column = self.take_column(distinct, &(0..distinct), depth + 1)?;
                let values = self.gather(column, distinct)?;
                let codes = self.take_ints_of_rows(rows, wanted)?;
                if codes.values.iter().any(|&code| code < 0 || code as usize >= distinct) {
                    return Err(MALFORMED);
                }
                Column::Dictionary { codes, values }
            }
            HEX => {
                let upper = self.take_byte()? & 1 != 0;
                Column::Hex { strings: self.take_strings(rows, wanted)?, upper }
            }
            UUID => self.take_uuids(rows, wanted)?,
            BASE64 => {
                let style = self.take_byte()?;
                let style = Base64 { url: style & 1 != 0, padded: style & 2 != 0 };
                Column::Base64 {
                    inner: Box::new(self.take_column(rows, wanted, depth + 1)?),
                    style,
                }
            }
            TEMPLATES => Column::Templates(texts::take(self, rows, wanted, depth)?),
            PLAIN => Column::Plain(self.take_strings(rows, wanted)?),
            SHORT => {
                let ends = self.take_ends(rows, wanted)?;
                let bytes = Run::of(self.take_text(ends.total)?);
                Column::Plain(Strings { ends, bytes })
            }
            _ => return Err(MALFORMED),
        })
    }

    fn take_exceptions(
        &mut self,
        rows: usize,
        wanted: &Range<usize>,
        depth: u32,
    ) -> Result<Option<Exceptions>, UnpackError> {
        let count = self.take_len()?;
        if count > rows {
            return Err(MALFORMED);
        }
        if count == 0 {
            return Ok(None);
        }
        let at = self.take_ints(count)?;
        self.spend(wanted.len().saturating_mul(4))?;
        let mut places = vec![NOT_AN_EXCEPTION; wanted.len()];
        for (place, &row) in at.iter().enumerate() {
            let row = usize::try_from(row).ok().filter(|&row| row < rows).ok_or(MALFORMED)?;
            if wanted.contains(&row) {
                places[row - wanted.start] = place as u32;
            }
        }
        let values = Box::new(self.take_column(count, &(0..count), depth + 1)?);
        Ok(Some(Exceptions { at: places, from: wanted.start, values }))
    }

    /// All the values of a column, end to end.
    fn gather(&mut self, column: Column, rows: usize) -> Result<Strings, UnpackError> {
        if let Column::Plain(strings) = column {
            return Ok(strings);
        }
        let (mut bounds, mut bytes) = (Vec::with_capacity(rows + 1), Vec::new());
        bounds.push(0);
        for row in 0..rows {
            let before = bytes.len();
            column.append(row, &[], &mut bytes);
            self.spend(bytes.len() - before)?;
            bounds.push(bytes.len());
        }
        let ends = Ends { from: 0, bounds, total: bytes.len() };
        Ok(Strings { ends, bytes: Run::new(0, bytes) })
    }

    /// Takes lengths; gives the ends of the rows `wanted` at least.
    fn take_ends(&mut self, rows: usize, wanted: &Range<usize>) -> Result<Ends, UnpackError> {
        if rows > 0
            && let Some(length) = self.take_constant()?
        {
            let length = usize::try_from(length).map_err(|_| MALFORMED)?;
            let total = length.checked_mul(rows).ok_or(MALFORMED)?;
            let bounds = (wanted.start..=wanted.end).map(|row| row * length).collect();
            return Ok(Ends { from: wanted.start, bounds, total });
        }
        if self.peek_byte() != Some(ENDS) || rows == 0 {
            let lengths = self.take_ints(rows)?;
            return Ends::new(0, 0, &lengths).ok_or(MALFORMED);
        }
        self.take_byte()?;
        let page_ends = self.take_ints(rows.div_ceil(PAGE_ROWS))?;
        let lengths = self.take_ints_of_rows(rows, wanted)?;
        let from = weave::page_start(wanted);
        let at = match from / PAGE_ROWS {
            0 => 0,
            page => page_ends[page - 1],
        };
        let at = usize::try_from(at).map_err(|_| MALFORMED)?;
        if lengths.from != from {
            // Runs or all the same, which lengths behind ENDS never are.
            return Err(MALFORMED);
        }
        let ends = Ends::new(from, at, &lengths.values).ok_or(MALFORMED)?;
        let total = page_ends.last().copied().unwrap_or(0);
        let total = usize::try_from(total).map_err(|_| MALFORMED)?;
        if ends.total > total {
            return Err(MALFORMED);
        }
        Ok(Ends { total, ..ends })
    }

    fn take_strings(&mut self, rows: usize, wanted: &Range<usize>) -> Result<Strings, UnpackError> {
        let ends = self.take_ends(rows, wanted)?;
        let bytes = self.take_bytes(ends.total, ends.pieces(wanted))?;
        Ok(Strings { ends, bytes })
    }

    fn take_uuids(&mut self, rows: usize, wanted: &Range<usize>) -> Result<Column, UnpackError> {
        let flags = self.take_byte()?;
        let upper = flags & 1 != 0;
        self.spend(wanted.len().saturating_mul(16))?;
        let mut ids = vec![[0u8; 16]; wanted.len()];
        let from = wanted.start;
        if flags & 2 == 0 {
            for at in 0..16 {
                let plane = self.take_bytes(rows, wanted.clone())?;
                for (id, &byte) in ids.iter_mut().zip(plane.get(wanted.clone())) {
                    id[at] = byte;
                }
            }
            return Ok(Column::Uuid { from, ids, upper });
        }
        let random_wanted = 15 * wanted.start..15 * wanted.end;
        let random = self.take_bytes(rows.saturating_mul(15), random_wanted.clone())?;
        let fours = 0..wanted.end.div_ceil(4);
        let rest = self.take_bytes(rows.div_ceil(4), fours.clone())?;
        let rest = rest.get(fours);
        let random = random.get(random_wanted).as_chunks::<15>().0;
        for ((row, id), r) in wanted.clone().zip(&mut ids).zip(random) {
            id[..6].copy_from_slice(&r[..6]);
            id[6] = 0x40 | r[6] >> 4;
            id[7] = r[7];
            id[8] = 0x80 | (rest[row / 4] >> (row % 4 * 2) & 3) << 4 | r[6] & 15;
            id[9..].copy_from_slice(&r[8..]);
        }
        Ok(Column::Uuid { from, ids, upper })
    }
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn strings_of_any_length_are_the_same_if_all_bytes_are() {
        for len in 0..40usize {
            let a: Vec<u8> = (0..len as u8).collect();
            assert!(same(&a, &a.clone()));
            assert!(!same(&a, &[&a[..], &[0]].concat()));
            for at in 0..len {
                let mut b = a.clone();
                b[at] ^= 0x80;
                assert!(!same(&a, &b), "{len} {at}");
            }
        }
    }
}
