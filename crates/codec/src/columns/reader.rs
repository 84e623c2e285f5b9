//! Reading blocks: rows and texts from their columns.
//!
//! ```text
//!  Reader, opened   ids
//!     |  unpack(rows wanted)
//!     v
//!  Rows             for each row its shape and its place among that shape's rows
//!     |  row()      for each shape its columns, as far as the rows wanted need them
//!     v
//!  Row              its fields' names, and its values put together in a RowRoom
//! ```
//!
//! Whatever the bytes, working memory stays within the bound of [`Reader::open`],
//! and a row is no longer than the block says that all of them are.

use std::collections::HashMap;
use std::ops::Range;

use super::strings::Column;
use super::{Decoder, Kind, MALFORMED, SHAPES_MAX, SequenceExpected, Split};
use crate::{DictionarySource, UnpackError, Workspace};

/// Reads a block of rows: the ids at once, the columns when rows are asked for.
pub struct Reader<'a> {
    dec: Decoder<'a>,
    raw_len: usize,
    ids: Vec<(u64, u64)>,
}

/// The unpacked columns of a block, as far as they were asked for.
struct Unpacked {
    split: Split,
    shapes: Vec<Shape>,
    loose: Loose,
}

struct Shape {
    names: Names,
    columns: Vec<Column>,
    /// What each column takes in the block.
    packed: Vec<usize>,
}

/// The names of a shape's fields, end to end.
#[derive(Debug, Default)]
struct Names {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Names {
    #[inline]
    fn get(&self, field: usize) -> &[u8] {
        let from = if field == 0 { 0 } else { self.ends[field - 1] };
        &self.bytes[from..self.ends[field]]
    }
}

/// Rows kept verbatim.
struct Loose {
    /// Where each row's fields end among the names and values.
    ends: Vec<usize>,
    names: Column,
    values: Column,
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader({} rows)", self.ids.len())
    }
}

impl<'a> Reader<'a> {
    /// Opens a block of rows and unpacks its ids. Refuses a block that claims
    /// more than `raw_len_max` (see [`raw_len`](super::raw_len)); the working memory stays
    /// below 64 times that, or 64 MiB for small ones, whatever the bytes.
    pub fn open(
        ws: &'a mut Workspace,
        packed: &'a [u8],
        dictionaries: &dyn DictionarySource,
        raw_len_max: usize,
    ) -> Result<Self, UnpackError> {
        let (mut dec, head) = Decoder::open(ws, packed, dictionaries, Kind::Rows, raw_len_max)?;
        let ms = dec.take_ints(head.rows)?;
        let seq = dec.take_ints(head.rows)?;
        let mut expected = SequenceExpected::default();
        let ids = ms.iter().zip(&seq).map(|(&ms, &above)| {
            let mut seq = 0;
            expected.next(ms as u64, |expected| {
                seq = expected.wrapping_add(above as u64);
                seq
            });
            (ms as u64, seq)
        });
        let ids = ids.collect();
        Ok(Self { dec, raw_len: head.raw_len, ids })
    }

    /// How many rows the block has.
    pub fn rows(&self) -> usize {
        self.ids.len()
    }

    /// The rows' ids, in order.
    pub fn ids(&self) -> &[(u64, u64)] {
        &self.ids
    }

    /// The ids alone, to be kept.
    pub fn into_ids(self) -> Vec<(u64, u64)> {
        self.ids
    }

    /// Unpacks the columns, or little more of them than the rows of `range`
    /// (clamped to the block) need: of long runs of bytes the parts they lie in,
    /// of numbers and codes the pages of rows.
    pub fn unpack(mut self, range: Range<usize>) -> Result<Rows, UnpackError> {
        let end = range.end.min(self.ids.len());
        let range = range.start.min(end)..end;
        let budget = self.dec.budget;
        self.dec.open_text()?;
        let unpacked = Unpacked::take(&mut self.dec, self.ids.len(), &range)?;
        let memory_bytes = budget - self.dec.budget + 16 * self.ids.len();
        Ok(Rows { ids: self.ids, range, unpacked, raw_len: self.raw_len, memory_bytes })
    }

    /// What a dictionary can help with: see [`samples`](super::samples).
    pub(super) fn gather_samples(&mut self) -> Result<Vec<Vec<u8>>, UnpackError> {
        self.dec.open_text()?;
        self.dec.samples = Some(vec![self.dec.text.clone()]);
        Unpacked::take(&mut self.dec, self.ids.len(), &(0..self.ids.len()))?;
        Ok(self.dec.samples.take().unwrap_or_default())
    }

    /// Gives the rows of `range` (clamped to the block), in order, to `visit`.
    pub fn visit(
        self,
        range: Range<usize>,
        mut visit: impl FnMut(Row<'_>),
    ) -> Result<(), UnpackError> {
        let rows = self.unpack(range)?;
        let mut room = RowRoom::default();
        for row in rows.range() {
            visit(rows.row(row, &mut room)?);
        }
        Ok(())
    }
}

/// Rows of a block, unpacked: needs neither the block nor a workspace.
pub struct Rows {
    ids: Vec<(u64, u64)>,
    range: Range<usize>,
    unpacked: Unpacked,
    raw_len: usize,
    memory_bytes: usize,
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rows({:?} of {})", self.range, self.ids.len())
    }
}

/// What one column of a block takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSize {
    /// The field's name.
    pub name: Vec<u8>,
    /// Its values' bytes.
    pub raw_bytes: usize,
    /// What they take in the block.
    pub packed_bytes: usize,
}

/// Memory that a row is put together in, reused from row to row.
#[derive(Debug, Default)]
pub struct RowRoom {
    buffer: Vec<u8>,
    ends: Vec<usize>,
}

impl Rows {
    /// The ids of all the block's rows.
    pub fn ids(&self) -> &[(u64, u64)] {
        &self.ids
    }

    /// The rows that were unpacked.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The memory held, at most.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// What each field takes, those of the same name in rows of different shapes
    /// together. Rows kept verbatim are left out. Visits every unpacked value.
    pub fn column_sizes(&self) -> Vec<ColumnSize> {
        let mut sizes: Vec<ColumnSize> = Vec::new();
        let mut place = HashMap::new();
        let mut value = Vec::new();
        for (number, shape) in (1..).zip(&self.unpacked.shapes) {
            for (field, (column, &packed)) in shape.columns.iter().zip(&shape.packed).enumerate() {
                let name = shape.names.get(field);
                let at = *place.entry(name).or_insert(sizes.len());
                if at == sizes.len() {
                    sizes.push(ColumnSize { name: name.to_vec(), raw_bytes: 0, packed_bytes: 0 });
                }
                let rows = &self.unpacked.split.places;
                for &(_, row) in rows.iter().filter(|(shape, _)| *shape == number) {
                    value.clear();
                    column.append(row as usize, &shape.columns, &mut value);
                    sizes[at].raw_bytes += value.len();
                }
                sizes[at].packed_bytes += packed;
            }
        }
        sizes
    }

    /// Row `row`, which must be one of those unpacked.
    #[inline]
    pub fn row<'r>(&'r self, row: usize, room: &'r mut RowRoom) -> Result<Row<'r>, UnpackError> {
        let RowRoom { buffer, ends } = room;
        buffer.clear();
        ends.clear();
        let known = self.ids.get(row).filter(|_| self.range.contains(&row));
        let &(id_ms, id_seq) = known.ok_or(MALFORMED)?;
        let (shape, at) = self.unpacked.split.place(row);
        let names = if shape == 0 {
            self.unpacked.loose.append(at as usize, buffer, ends);
            None
        } else {
            let shape = &self.unpacked.shapes[shape as usize - 1];
            for column in &shape.columns {
                column.append(at as usize, &shape.columns, buffer);
                ends.push(buffer.len());
            }
            Some(&shape.names)
        };
        if buffer.len() > self.raw_len {
            return Err(UnpackError::TooLong(buffer.len()));
        }
        Ok(Row { id_ms, id_seq, names, buffer, ends })
    }
}

impl Unpacked {
    fn take(
        dec: &mut Decoder<'_>,
        rows: usize,
        wanted: &Range<usize>,
    ) -> Result<Self, UnpackError> {
        let count = dec.take_len()?;
        if count > SHAPES_MAX {
            return Err(MALFORMED);
        }
        let split = Split::take(dec, rows, wanted, count + 1)?;
        let mut shapes = Vec::with_capacity(count);
        for shape in 1..=count {
            let fields = dec.take_len()?;
            let mut names = Names::default();
            for _ in 0..fields {
                let len = dec.take_len()?;
                names.bytes.extend_from_slice(dec.take_text(len)?);
                names.ends.push(names.bytes.len());
            }
            let height = split.heights[shape] as usize;
            dec.begin_weave(height, &split.wanted(shape))?;
            let mut before = dec.taken();
            let mut packed = Vec::new();
            let mut note = |dec: &Decoder<'_>| {
                packed.push(dec.taken() - before);
                before = dec.taken();
            };
            let columns = dec.take_group(fields, height, &split.wanted(shape), 0, &mut note)?;
            shapes.push(Shape { names, columns, packed });
        }
        let loose = Loose::take(dec, split.heights[0] as usize, &split.wanted(0))?;
        Ok(Self { split, shapes, loose })
    }
}

impl Loose {
    fn take(
        dec: &mut Decoder<'_>,
        rows: usize,
        wanted: &Range<usize>,
    ) -> Result<Self, UnpackError> {
        let mut total = 0usize;
        let mut ends = Vec::with_capacity(rows);
        for count in dec.take_ints(rows)? {
            let count = usize::try_from(count).map_err(|_| MALFORMED)?;
            total = total.checked_add(count).ok_or(MALFORMED)?;
            // Places among them are of 32 bits.
            u32::try_from(total).map_err(|_| MALFORMED)?;
            ends.push(total);
        }
        let end_of = |row: usize| if row == 0 { 0 } else { ends[row - 1] };
        let wanted = end_of(wanted.start)..end_of(wanted.end);
        let names = dec.take_column(total, &wanted, 0)?;
        let values = dec.take_column(total, &wanted, 0)?;
        Ok(Self { ends, names, values })
    }

    /// Appends the fields of a row: name, value, name, value, ...
    fn append(&self, row: usize, buffer: &mut Vec<u8>, ends: &mut Vec<usize>) {
        let from = if row == 0 { 0 } else { self.ends[row - 1] };
        for field in from..self.ends[row] {
            for column in [&self.names, &self.values] {
                column.append(field, &[], buffer);
                ends.push(buffer.len());
            }
        }
    }
}

/// One row of a block, valid while it is visited.
#[derive(Clone, Copy, Debug)]
pub struct Row<'r> {
    /// The first half of the row's id.
    pub id_ms: u64,
    /// The second half.
    pub id_seq: u64,
    /// The names of a row with a shape; a loose row has them in the buffer.
    names: Option<&'r Names>,
    buffer: &'r [u8],
    ends: &'r [usize],
}

impl<'r> Row<'r> {
    /// How many fields the row has.
    pub fn len(&self) -> usize {
        match self.names {
            Some(names) => names.ends.len(),
            None => self.ends.len() / 2,
        }
    }

    /// Whether the row has no fields.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Field number `field`: its name and value. Panics if there is none.
    #[inline]
    pub fn field(&self, field: usize) -> (&'r [u8], &'r [u8]) {
        match self.names {
            Some(names) => (names.get(field), self.piece(field)),
            None => (self.piece(2 * field), self.piece(2 * field + 1)),
        }
    }

    /// The row's fields, name and value, in order.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = (&'r [u8], &'r [u8])> + use<'r> {
        let row = *self;
        (0..row.len()).map(move |field| row.field(field))
    }

    fn piece(&self, n: usize) -> &'r [u8] {
        let from = if n == 0 { 0 } else { self.ends[n - 1] };
        &self.buffer[from..self.ends[n]]
    }
}

/// Reads a block of texts.
pub struct TextReader {
    rows: usize,
    unpacked: Range<usize>,
    column: Column,
}

impl std::fmt::Debug for TextReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TextReader({} texts)", self.rows)
    }
}

impl TextReader {
    /// Opens a block of texts and unpacks its columns, within the bounds of
    /// [`Reader::open`].
    pub fn open(
        ws: &mut Workspace,
        packed: &[u8],
        dictionaries: &dyn DictionarySource,
        raw_len_max: usize,
    ) -> Result<Self, UnpackError> {
        Self::open_range(ws, packed, dictionaries, raw_len_max, 0..usize::MAX)
    }

    /// Opens a block of texts and unpacks little more than the texts of `range`
    /// (clamped to the block) need.
    pub fn open_range(
        ws: &mut Workspace,
        packed: &[u8],
        dictionaries: &dyn DictionarySource,
        raw_len_max: usize,
        range: Range<usize>,
    ) -> Result<Self, UnpackError> {
        let (mut dec, head) = Decoder::open(ws, packed, dictionaries, Kind::Texts, raw_len_max)?;
        dec.open_text()?;
        let end = range.end.min(head.rows);
        let unpacked = range.start.min(end)..end;
        dec.begin_weave(head.rows, &unpacked)?;
        let column = dec.take_column(head.rows, &unpacked, 0)?;
        Ok(Self { rows: head.rows, unpacked, column })
    }

    /// What a dictionary can help with, as of a block of rows ([`samples`](super::samples)): its
    /// templates and short strings as one text; and each run of bytes that repeats itself.
    pub(crate) fn gather_samples(
        ws: &mut Workspace,
        packed: &[u8],
        dictionaries: &dyn DictionarySource,
        raw_len_max: usize,
    ) -> Result<Vec<Vec<u8>>, UnpackError> {
        let (mut dec, head) = Decoder::open(ws, packed, dictionaries, Kind::Texts, raw_len_max)?;
        dec.open_text()?;
        dec.samples = Some(vec![dec.text.clone()]);
        let all = 0..head.rows;
        dec.begin_weave(head.rows, &all)?;
        dec.take_column(head.rows, &all, 0)?;
        Ok(dec.samples.take().unwrap_or_default())
    }

    /// How many texts the block has.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether the block has no texts.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Appends text number `row`; whether there is one, in the range opened.
    pub fn append(&self, row: usize, out: &mut Vec<u8>) -> bool {
        let there = self.unpacked.contains(&row);
        if there && out.is_empty() {
            self.column.append(row, &[], out);
        } else if there {
            // How long a text may become is told by how long `out` is.
            let mut text = Vec::new();
            self.column.append(row, &[], &mut text);
            out.extend_from_slice(&text);
        }
        there
    }
}
