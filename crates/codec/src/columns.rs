//! Columns: many rows of named fields, or many similar texts, packed as one
//! block by turning them on their side.
//!
//! ```text
//!  rows of fields                     columns
//!  1-0 seq 0 user 17 action read      ids    1-0, 1-1, ...  differences, runs
//!  1-1 seq 1 user 4  action write     seq    0, 1, ...      a constant difference
//!  ...                                user   17, 4, ...     integers, byte planes
//!                                     action read, write    codes, a dictionary
//!
//!  packed: [7: columns | version << 6 ][kind]
//!          [varint raw length][varint rows][varint dictionary id or 0]
//!          [text: field names, constants, short strings; one zstd frame or plain]
//!          [meta: how each column is kept; likewise]
//!          [data: of each shape its weave, then the other runs of bytes, each
//!           coded by what suits it]
//! ```
//!
//! Rows with the same fields in the same order have a shape; each shape has its
//! own columns. Up to 16 shapes; rows of yet others are kept verbatim, name and
//! value. Any input comes back to the byte.
//!
//! Costs: a block is packed from memory that it is given, with working memory
//! of a few times its size; reading the row count costs a few bytes, the ids
//! alone a few microseconds. A reader unpacks what the rows it is first asked
//! for need: of numbers and codes the pages of 64 rows they lie in, of a long
//! run of bytes its parts of 2 KiB. So one row at random costs some tens of
//! microseconds, whatever the block's length; a small part of that is the row,
//! the rest are the tables to decode by. Pages cost a percent of the size, parts
//! as much.
//!
//! The parts: `bytes.rs` codes one run of bytes, many small ones woven together, `ints.rs` one run of integers,
//! `strings.rs` decides what a column of strings is, `texts.rs` finds the
//! templates in texts; `reader.rs` puts rows together again.

use std::ops::Range;
use std::sync::Arc;

use crate::packed::HeaderError;
use crate::rans::weave;
use crate::stream::{AtOnce, Pace, Pieces};
use crate::{Dictionary, DictionarySource, UnpackError, Workspace, varint};

mod bytes;
mod ints;
mod reader;
mod strings;
mod texts;

pub use bytes::{PART_BYTES, PHRASES_PART_BYTES};
pub use reader::{ColumnSize, Reader, Row, RowRoom, Rows, TextReader};
use strings::Place;

/// The first byte of a block: version 1, and the number after the codecs'.
const COLUMNS: u8 = 7 | 1 << 6;

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Rows = 0,
    Texts = 1,
}

const MALFORMED: UnpackError = UnpackError::Header(HeaderError::Malformed);

/// A zstd frame takes microseconds to open, whatever it holds: text and meta are
/// only packed where that makes the block so many bytes and one in so many
/// smaller.
const TEXT_SAVING_MIN: usize = 24;
const TEXT_SAVING_OF: usize = 64;

/// More shapes than these, and rows are kept verbatim.
const SHAPES_MAX: usize = 16;

/// The most rows one block takes.
pub const ROWS_MAX: usize = 1 << 16;

/// Rows gathered to be packed as one block. Holds references only.
#[derive(Clone, Debug, Default)]
pub struct RowBlock<'a> {
    ids: Vec<(u64, u64)>,
    names: Vec<&'a [u8]>,
    values: Vec<&'a [u8]>,
    /// Where each row's fields end.
    ends: Vec<usize>,
}

impl<'a> RowBlock<'a> {
    /// A block without rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a row: its id and its fields, in order.
    pub fn push(
        &mut self,
        id_ms: u64,
        id_seq: u64,
        fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) {
        self.ids.push((id_ms, id_seq));
        for (name, value) in fields {
            self.names.push(name);
            self.values.push(value);
        }
        self.ends.push(self.names.len());
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// What the rows are before packing: 16 bytes an id, and the bytes of names
    /// and values.
    pub fn raw_len(&self) -> usize {
        let strings = self.names.iter().chain(&self.values);
        16 * self.ids.len() + strings.map(|s| s.len()).sum::<usize>()
    }

    fn fields(&self, row: usize) -> Range<usize> {
        let from = if row == 0 { 0 } else { self.ends[row - 1] };
        from..self.ends[row]
    }
}

/// What a block is made in.
struct Encoder<'w> {
    ws: &'w mut Workspace,
    level: i32,
    dictionary: Option<&'w Dictionary>,
    /// Whether any run of bytes was packed with it.
    needs_dictionary: bool,
    meta: Vec<u8>,
    text: Vec<u8>,
    data: Vec<u8>,
    /// What is woven of the shape that is being added, if one is.
    weave: Option<bytes::Weave>,
}

impl<'w> Encoder<'w> {
    /// A dictionary without an id is none: nobody would find it again.
    fn new(ws: &'w mut Workspace, level: i32, dictionary: Option<&'w Dictionary>) -> Self {
        let (meta, text, data) = (Vec::new(), Vec::new(), Vec::new());
        let dictionary = dictionary.filter(|dictionary| dictionary.id() != 0);
        let needs_dictionary = false;
        Self { ws, level, dictionary, needs_dictionary, meta, text, data, weave: None }
    }

    fn finish(self, kind: Kind, raw_len: usize, rows: usize, out: &mut Vec<u8>) {
        let Self { ws, level, dictionary, .. } = self;
        let block_len = self.text.len() + self.meta.len() + self.data.len();
        let saving_min = (block_len / TEXT_SAVING_OF).max(TEXT_SAVING_MIN);
        let (mut text, mut meta) = (Vec::new(), Vec::new());
        let in_text = bytes::push_text(ws, level, dictionary, &self.text, saving_min, &mut text);
        bytes::push_text(ws, level, None, &self.meta, saving_min, &mut meta);
        let needed = dictionary.filter(|_| in_text || self.needs_dictionary);
        out.extend_from_slice(&[COLUMNS, kind as u8]);
        varint::push(out, raw_len as u64);
        varint::push(out, rows as u64);
        varint::push(out, u64::from(needed.map_or(0, Dictionary::id)));
        [&text, &meta, &self.data].into_iter().for_each(|part| out.extend_from_slice(part));
    }
}

/// A block could not be packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a block takes at most {ROWS_MAX} rows")]
pub struct TooManyRows;

/// Appends the block of `rows` to `out`. The dictionary, if given, helps with
/// names, constants and short strings, and with long texts.
pub fn pack_rows(
    ws: &mut Workspace,
    level: i32,
    dictionary: Option<&Dictionary>,
    rows: &RowBlock<'_>,
    out: &mut Vec<u8>,
) -> Result<(), TooManyRows> {
    let mut pieces = Pieces::new(&AtOnce, u64::MAX);
    AtOnce::run(pack_rows_in_slices(ws, level, dictionary, rows, out, &mut pieces))
}

/// [`pack_rows`], in slices: a column is a piece of the work.
pub async fn pack_rows_in_slices<P: Pace>(
    ws: &mut Workspace,
    level: i32,
    dictionary: Option<&Dictionary>,
    rows: &RowBlock<'_>,
    out: &mut Vec<u8>,
    pieces: &mut Pieces<'_, P>,
) -> Result<(), TooManyRows> {
    if rows.len() > ROWS_MAX {
        return Err(TooManyRows);
    }
    let mut enc = Encoder::new(ws, level, dictionary);
    push_ids(&mut enc, &rows.ids);
    let (shapes, of_row) = shapes(rows);
    varint::push(&mut enc.meta, shapes.len() as u64);
    enc.push_ints(&of_row);
    pieces.stepped().await;
    for shape in &shapes {
        let first = rows.fields(shape[0]);
        varint::push(&mut enc.meta, first.len() as u64);
        for name in &rows.names[first.clone()] {
            varint::push(&mut enc.meta, name.len() as u64);
            enc.text.extend_from_slice(name);
        }
        let column = |field| -> Vec<&[u8]> {
            shape.iter().map(|&row| rows.values[rows.fields(row).start + field]).collect()
        };
        let columns: Vec<Vec<&[u8]>> = (0..first.len()).map(column).collect();
        enc.begin_weave(shape.len());
        for member in 0..columns.len() {
            enc.push_member(&columns, member, Place::TOP);
            pieces.stepped().await;
        }
        enc.end_weave();
    }
    let loose: Vec<Range<usize>> = of_row
        .iter()
        .enumerate()
        .filter(|(_, shape)| **shape == 0)
        .map(|(row, _)| rows.fields(row))
        .collect();
    let named = shapes.iter().map(|shape| rows.fields(shape[0])).chain(loose.iter().cloned());
    let names_len: usize = named.flat_map(|fields| &rows.names[fields]).map(|n| n.len()).sum();
    let values_len: usize = rows.values.iter().map(|value| value.len()).sum();
    let counts: Vec<i64> = loose.iter().map(|fields| fields.len() as i64).collect();
    enc.push_ints(&counts);
    let gather = |from: &[&'_ [u8]]| -> Vec<Vec<u8>> {
        loose.iter().flat_map(|fields| from[fields.clone()].iter().map(|s| s.to_vec())).collect()
    };
    for strings in [gather(&rows.names), gather(&rows.values)] {
        let strings: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
        enc.push_column(&strings, Place::TOP);
    }
    let raw_len = 16 * rows.len() + names_len + values_len;
    enc.finish(Kind::Rows, raw_len, rows.len(), out);
    Ok(())
}

/// Whether `packed` unpacks to `rows`, looked at in slices: so that nobody gives up
/// what could not be had again.
pub async fn holds_rows<P: Pace>(
    ws: &mut Workspace,
    packed: &[u8],
    dictionaries: &(impl DictionarySource + Sync),
    rows: &RowBlock<'_>,
    pieces: &mut Pieces<'_, P>,
) -> bool {
    let opened = Reader::open(ws, packed, dictionaries, rows.raw_len());
    let Ok(unpacked) = opened.and_then(|reader| reader.unpack(0..usize::MAX)) else {
        return false;
    };
    if unpacked.range() != (0..rows.len()) {
        return false;
    }
    pieces.stepped().await;
    let mut room = RowRoom::default();
    for n in unpacked.range() {
        let Ok(row) = unpacked.row(n, &mut room) else { return false };
        let fields = rows.fields(n);
        let pairs = rows.names[fields.clone()].iter().zip(&rows.values[fields]);
        if (row.id_ms, row.id_seq) != rows.ids[n] || !row.fields().eq(pairs.map(|(n, v)| (*n, *v)))
        {
            return false;
        }
        if n % weave::PAGE_ROWS == weave::PAGE_ROWS - 1 {
            pieces.stepped().await;
        }
    }
    true
}

/// Milliseconds as they come; of the sequence numbers only what they are more
/// than one above the row before, or above 0 in a new millisecond.
fn push_ids(enc: &mut Encoder<'_>, ids: &[(u64, u64)]) {
    let ms: Vec<i64> = ids.iter().map(|id| id.0 as i64).collect();
    enc.push_ints(&ms);
    let mut expected = SequenceExpected::default();
    let seq: Vec<i64> =
        ids.iter().map(|&(ms, seq)| seq.wrapping_sub(expected.next(ms, |_| seq)) as i64).collect();
    enc.push_ints(&seq);
}

/// What the sequence number after those seen is expected to be.
#[derive(Default)]
struct SequenceExpected {
    last: Option<(u64, u64)>,
}

impl SequenceExpected {
    /// The number expected at `ms`; `really` makes the real one of it.
    fn next(&mut self, ms: u64, really: impl FnOnce(u64) -> u64) -> u64 {
        let expected = match self.last {
            Some((last_ms, seq)) if last_ms == ms => seq.wrapping_add(1),
            _ => 0,
        };
        self.last = Some((ms, really(expected)));
        expected
    }
}

/// The rows of each shape, and for each row the number of its shape from 1 on,
/// or 0.
fn shapes(rows: &RowBlock<'_>) -> (Vec<Vec<usize>>, Vec<i64>) {
    let mut found: Vec<Vec<usize>> = Vec::new();
    let mut of_row = Vec::with_capacity(rows.len());
    let mut last = 0;
    for row in 0..rows.len() {
        let names = &rows.names[rows.fields(row)];
        let fits = |shape: &Vec<usize>| same_names(&rows.names[rows.fields(shape[0])], names);
        let at = match found.get(last) {
            Some(shape) if fits(shape) => Some(last),
            _ => found.iter().position(fits),
        };
        let at = at.or_else(|| {
            let new = found.len() < SHAPES_MAX;
            new.then(|| {
                found.push(Vec::new());
                found.len() - 1
            })
        });
        match at {
            Some(at) => {
                found[at].push(row);
                of_row.push(at as i64 + 1);
                last = at;
            }
            None => of_row.push(0),
        }
    }
    (found, of_row)
}

fn same_names(a: &[&[u8]], b: &[&[u8]]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| strings::same(a, b))
}

/// Appends the block of `texts` to `out`: log lines, messages, documents.
pub fn pack_texts(
    ws: &mut Workspace,
    level: i32,
    dictionary: Option<&Dictionary>,
    texts: &[&[u8]],
    out: &mut Vec<u8>,
) -> Result<(), TooManyRows> {
    if texts.len() > ROWS_MAX {
        return Err(TooManyRows);
    }
    let mut enc = Encoder::new(ws, level, dictionary);
    enc.begin_weave(texts.len());
    enc.push_column(texts, Place::TOP);
    enc.end_weave();
    let raw_len = texts.iter().map(|text| text.len()).sum();
    enc.finish(Kind::Texts, raw_len, texts.len(), out);
    Ok(())
}

/// The head of a block.
struct Head {
    kind: u8,
    raw_len: usize,
    rows: usize,
    dictionary_id: u32,
}

impl Head {
    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let (&[first, kind], rest) = bytes.split_first_chunk::<2>()?;
        *bytes = rest;
        let raw_len = varint::take_len(bytes)?;
        let rows = varint::take_len(bytes)?;
        let dictionary_id = u32::try_from(varint::take(bytes)?).ok()?;
        (first == COLUMNS && rows <= ROWS_MAX).then_some(Self {
            kind,
            raw_len,
            rows,
            dictionary_id,
        })
    }
}

/// Whether `packed` is a block of columns (and not a packed form of bytes).
pub fn is_columns(packed: &[u8]) -> bool {
    packed.first() == Some(&COLUMNS)
}

/// How many rows or texts a block has. Reads its head only.
pub fn row_count(mut packed: &[u8]) -> Result<usize, UnpackError> {
    Head::take(&mut packed).map(|head| head.rows).ok_or(MALFORMED)
}

/// What a block unpacks to: 16 bytes an id, the values, the names once a shape.
/// Of texts, their bytes. Reads its head only.
pub fn raw_len(mut packed: &[u8]) -> Result<usize, UnpackError> {
    Head::take(&mut packed).map(|head| head.raw_len).ok_or(MALFORMED)
}

/// The dictionary that a block needs, if any. Reads its head only.
pub fn dictionary_id(mut packed: &[u8]) -> Result<Option<u32>, UnpackError> {
    let head = Head::take(&mut packed).ok_or(MALFORMED)?;
    Ok((head.dictionary_id != 0).then_some(head.dictionary_id))
}

/// What of a block of rows a dictionary can help with: its names, constants and
/// short strings as one text; and each run of bytes that repeats itself.
pub fn samples(
    ws: &mut Workspace,
    packed: &[u8],
    dictionaries: &dyn DictionarySource,
    raw_len_max: usize,
) -> Result<Vec<Vec<u8>>, UnpackError> {
    let mut reader = Reader::open(ws, packed, dictionaries, raw_len_max)?;
    reader.gather_samples()
}

/// What a block is taken from.
struct Decoder<'a> {
    ws: &'a mut Workspace,
    dictionary: Option<Arc<Dictionary>>,
    /// What a dictionary can help with, where that is asked for.
    samples: Option<Vec<Vec<u8>>>,
    meta: Vec<u8>,
    meta_at: usize,
    /// The text as it is packed, until it is asked for.
    text_packed: &'a [u8],
    text: Vec<u8>,
    text_at: usize,
    data: &'a [u8],
    /// The packed lengths of meta, text and data.
    meta_packed_len: usize,
    text_packed_len: usize,
    data_len: usize,
    /// Bytes of working memory that may yet be used.
    budget: usize,
    /// No value is longer.
    len_max: usize,
    /// The runs that are woven in the shape that is being taken, and how many of
    /// them have been taken.
    woven: weave::Woven,
    lane: usize,
    /// A buffer for planes of integers.
    plane: Vec<u8>,
}

impl<'a> Decoder<'a> {
    fn open(
        ws: &'a mut Workspace,
        packed: &'a [u8],
        dictionaries: &dyn DictionarySource,
        kind: Kind,
        raw_len_max: usize,
    ) -> Result<(Self, Head), UnpackError> {
        let mut rest = packed;
        let head = Head::take(&mut rest).ok_or(MALFORMED)?;
        if head.kind != kind as u8 {
            return Err(MALFORMED);
        }
        if head.raw_len > raw_len_max {
            return Err(UnpackError::TooLong(head.raw_len));
        }
        let dictionary: Option<Arc<Dictionary>> = match head.dictionary_id {
            0 => None,
            id => Some(dictionaries.dictionary(id).ok_or(UnpackError::MissingDictionary(id))?),
        };
        // Each cell may need some tens of bytes of bookkeeping while the block
        // is open; an honest text or meta is not longer than the rows.
        let slack = raw_len_max.max(1 << 20);
        let text_packed = bytes::skip_text(&mut rest)?;
        let with_meta = rest.len();
        let meta = bytes::take_text(ws, None, &mut rest, slack)?;
        let dec = Self {
            ws,
            dictionary,
            samples: None,
            meta,
            meta_at: 0,
            text_packed,
            text: Vec::new(),
            text_at: 0,
            data: rest,
            meta_packed_len: with_meta - rest.len(),
            text_packed_len: text_packed.len(),
            data_len: rest.len(),
            budget: slack.saturating_mul(64),
            len_max: head.raw_len,
            woven: weave::Woven::default(),
            lane: 0,
            plane: Vec::new(),
        };
        Ok((dec, head))
    }

    /// Unpacks the text. Ids do without.
    fn open_text(&mut self) -> Result<(), UnpackError> {
        let len_max = self.budget / 64;
        let dictionary = self.dictionary.as_deref();
        self.text = bytes::take_text(self.ws, dictionary, &mut self.text_packed, len_max)?;
        self.spend(self.text.len())
    }

    /// How many packed bytes what was taken so far lay in: the data, and a share
    /// of meta and text.
    fn taken(&self) -> usize {
        let share = |at: usize, (raw, packed): (usize, usize)| at * packed / raw.max(1);
        (self.data_len - self.data.len())
            + (0..self.lane).map(|lane| self.woven.coded_len(lane)).sum::<usize>()
            + share(self.meta_at, (self.meta.len(), self.meta_packed_len))
            + share(self.text_at, (self.text.len(), self.text_packed_len))
    }

    /// Counts `bytes` of working memory against the bound.
    fn spend(&mut self, bytes: usize) -> Result<(), UnpackError> {
        self.budget = self.budget.checked_sub(bytes).ok_or(UnpackError::TooLong(bytes))?;
        Ok(())
    }

    fn peek_byte(&self) -> Option<u8> {
        self.meta.get(self.meta_at).copied()
    }

    fn take_byte(&mut self) -> Result<u8, UnpackError> {
        let byte = self.peek_byte().ok_or(MALFORMED)?;
        self.meta_at += 1;
        Ok(byte)
    }

    fn take_varint(&mut self) -> Result<u64, UnpackError> {
        let mut rest = self.meta.get(self.meta_at..).ok_or(MALFORMED)?;
        let before = rest.len();
        let value = varint::take(&mut rest).ok_or(MALFORMED)?;
        self.meta_at += before - rest.len();
        Ok(value)
    }

    fn take_len(&mut self) -> Result<usize, UnpackError> {
        usize::try_from(self.take_varint()?).map_err(|_| MALFORMED)
    }

    fn take_text(&mut self, len: usize) -> Result<&[u8], UnpackError> {
        let end = self.text_at.checked_add(len).ok_or(MALFORMED)?;
        let text = self.text.get(self.text_at..end).ok_or(MALFORMED)?;
        self.text_at = end;
        Ok(text)
    }
}

/// Which of several kinds (0: none of them) each row is, and where in its kind.
struct Split {
    /// For each row wanted its kind and its place among that kind's rows.
    places: Vec<(u32, u32)>,
    from: usize,
    /// The rows of each kind.
    heights: Vec<u32>,
    /// Of these, those before the rows wanted.
    before: Vec<u32>,
    /// And those before the end of the rows wanted.
    upto: Vec<u32>,
}

impl Split {
    fn take(
        dec: &mut Decoder<'_>,
        rows: usize,
        wanted: &Range<usize>,
        kinds: usize,
    ) -> Result<Self, UnpackError> {
        let mut heights = vec![0u32; kinds];
        let (mut before, mut upto) = (heights.clone(), heights.clone());
        dec.spend(wanted.len().saturating_mul(8))?;
        if rows > 0
            && let Some(kind) = dec.take_constant()?
        {
            let kind = usize::try_from(kind).map_err(|_| MALFORMED)?;
            *heights.get_mut(kind).ok_or(MALFORMED)? = rows as u32;
            (before[kind], upto[kind]) = (wanted.start as u32, wanted.end as u32);
            let places = wanted.clone().map(|row| (kind as u32, row as u32)).collect();
            return Ok(Self { places, from: wanted.start, heights, before, upto });
        }
        let mut places = Vec::with_capacity(wanted.len());
        for (row, kind) in dec.take_ints(rows)?.into_iter().enumerate() {
            let kind = usize::try_from(kind).map_err(|_| MALFORMED)?;
            let height = heights.get_mut(kind).ok_or(MALFORMED)?;
            if wanted.contains(&row) {
                places.push((kind as u32, *height));
            }
            before[kind] += u32::from(row < wanted.start);
            upto[kind] += u32::from(row < wanted.end);
            *height += 1;
        }
        Ok(Self { places, from: wanted.start, heights, before, upto })
    }

    /// The kind of a row that was wanted, and its place in it.
    #[inline]
    fn place(&self, row: usize) -> (u32, u32) {
        self.places[row - self.from]
    }

    /// The rows of a kind that are wanted.
    fn wanted(&self, kind: usize) -> Range<usize> {
        self.before[kind] as usize..self.upto[kind] as usize
    }
}

#[cfg(test)]
mod tests;
