//! Stream entries as bytes: the row format shared by the tail, by sealed raw
//! blocks and by what a packed block unpacks to.
//!
//! ```text
//! block:  names, row, row, row, ...
//!
//! names:  count, then per name: length, bytes      the fields of the block's
//!                                                  first row, written once
//!
//! row:    head     size of the rest of the row << 2 | same << 1 | deleted
//!         ms       step from the row before
//!         seq      step from the row before when ms is 0, else the number itself
//!         same:    per field: length, value        the fields are `names`
//!         other:   count, then per field: length, name, length, value
//! ```
//!
//! All numbers are LEB128 (7 bits a byte, least significant first), so the two
//! flags of a row lie in its first byte and can be flipped in place. The first
//! row's step is not used: whoever owns the bytes knows that row's ID. A small
//! entry costs 3 bytes on top of its values and their lengths.
//!
//! Reading never trusts the bytes: a packed block may have been damaged. A row
//! or a name that does not fit is [`Malformed`], never a panic; nothing outside
//! of the given bytes is read.

use snug_codec::columns;

use super::id::StreamId;

/// The bytes are not rows.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

const DELETED: u64 = 1;
const SAME: u64 = 2;
const FLAG_BITS: u32 = 2;

/// Flips the `deleted` flag of the row that begins at `offset` to set.
pub(super) fn mark_deleted(bytes: &mut [u8], offset: usize) {
    bytes[offset] |= DELETED as u8;
}

/// Clears the `deleted` flag of the row that begins at `offset`.
pub(super) fn clear_deleted(bytes: &mut [u8], offset: usize) {
    bytes[offset] &= !(DELETED as u8);
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn number_bytes(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

/// Reads a number at `*at` and moves past it.
#[inline]
fn take_number(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let first = *bytes.get(*at)?;
    *at += 1;
    if first < 0x80 {
        return Some(u64::from(first));
    }
    let mut number = u64::from(first & 0x7f);
    for shift in (7..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Reads a length and that many bytes at `*at` and moves past them.
#[inline]
fn take_text<'a>(bytes: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let length = usize::try_from(take_number(bytes, at)?).ok()?;
    let end = at.checked_add(length)?;
    let text = bytes.get(*at..end)?;
    *at = end;
    Some(text)
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_number(out, text.len() as u64);
    out.extend_from_slice(text);
}

fn text_bytes(text: &[u8]) -> usize {
    number_bytes(text.len() as u64) + text.len()
}

/// The field names that a block's rows share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a> {
    count: usize,
    /// Lengths and names, one after the other, checked when parsed.
    list: &'a [u8],
    /// Where the block's first row begins.
    end: usize,
}

impl<'a> Names<'a> {
    /// Reads the names at the start of a block.
    pub(super) fn parse(block: &'a [u8]) -> Result<Self, Malformed> {
        let mut at = 0;
        let count = take_number(block, &mut at).ok_or(Malformed)?;
        let start = at;
        for _ in 0..count {
            take_text(block, &mut at).ok_or(Malformed)?;
        }
        Ok(Self { count: count as usize, list: &block[start..at], end: at })
    }

    /// Where the block's first row begins, in bytes from the block's start.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// Whether `fields` have exactly these names in this order.
    fn match_all<'f>(&self, fields: impl ExactSizeIterator<Item = (&'f [u8], &'f [u8])>) -> bool {
        if fields.len() != self.count {
            return false;
        }
        let mut at = 0;
        for (name, _) in fields {
            if take_text(self.list, &mut at) != Some(name) {
                return false;
            }
        }
        true
    }
}

/// The bytes that [`put_names`] writes for these fields.
pub(super) fn names_bytes<'f>(
    fields: impl ExactSizeIterator<Item = (&'f [u8], &'f [u8])>,
) -> usize {
    number_bytes(fields.len() as u64) + fields.map(|(name, _)| text_bytes(name)).sum::<usize>()
}

/// Begins a block: writes the names of its first row.
pub(super) fn put_names<'f>(
    out: &mut Vec<u8>,
    fields: impl ExactSizeIterator<Item = (&'f [u8], &'f [u8])>,
) {
    put_number(out, fields.len() as u64);
    for (name, _) in fields {
        put_text(out, name);
    }
}

/// A row that is about to be written: its flags and sizes.
pub(super) struct NewRow {
    same: bool,
    step: StreamId,
    /// Bytes after the head.
    size: usize,
}

impl NewRow {
    /// Measures the row of `id` after a row of `previous` in a block whose
    /// names are `names` (`None`: these fields' own names begin the block).
    pub(super) fn measure<'f>(
        names: Option<Names<'_>>,
        previous: StreamId,
        id: StreamId,
        fields: impl ExactSizeIterator<Item = (&'f [u8], &'f [u8])> + Clone,
    ) -> Self {
        let same = names.is_none_or(|names| names.match_all(fields.clone()));
        let step = StreamId {
            ms: id.ms.wrapping_sub(previous.ms),
            seq: if id.ms == previous.ms { id.seq.wrapping_sub(previous.seq) } else { id.seq },
        };
        let count = fields.len() as u64;
        let texts: usize = if same {
            fields.map(|(_, value)| text_bytes(value)).sum()
        } else {
            number_bytes(count)
                + fields.map(|(name, value)| text_bytes(name) + text_bytes(value)).sum::<usize>()
        };
        Self { same, step, size: number_bytes(step.ms) + number_bytes(step.seq) + texts }
    }

    /// The bytes that [`Self::put`] writes.
    pub(super) fn bytes(&self) -> usize {
        number_bytes((self.size as u64) << FLAG_BITS) + self.size
    }

    /// Writes the row; `fields` are those that were measured.
    pub(super) fn put<'f>(
        &self,
        out: &mut Vec<u8>,
        fields: impl ExactSizeIterator<Item = (&'f [u8], &'f [u8])>,
    ) {
        put_number(out, (self.size as u64) << FLAG_BITS | if self.same { SAME } else { 0 });
        put_number(out, self.step.ms);
        put_number(out, self.step.seq);
        if self.same {
            for (_, value) in fields {
                put_text(out, value);
            }
        } else {
            put_number(out, fields.len() as u64);
            for (name, value) in fields {
                put_text(out, name);
                put_text(out, value);
            }
        }
    }
}

/// One row found by [`Rows`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) id: StreamId,
    /// Where the row begins in the block.
    pub(super) offset: usize,
    /// Where its fields begin.
    body: usize,
    /// Where the next row begins.
    pub(super) end: usize,
    pub(super) deleted: bool,
    same: bool,
}

/// Walks the rows of a block. A step costs a few nanoseconds: fields are not
/// looked at.
#[derive(Clone, Debug)]
pub(super) struct Rows<'a> {
    block: &'a [u8],
    at: usize,
    id: StreamId,
    /// The next row's ID is `id` itself, not a step from it.
    begins: bool,
}

impl<'a> Rows<'a> {
    /// Starts at the row that begins at `offset` and is known to have ID `id`.
    pub(super) fn new(block: &'a [u8], offset: usize, id: StreamId) -> Self {
        Self { block, at: offset, id, begins: true }
    }

    #[inline]
    fn read(&mut self) -> Option<Row> {
        let offset = self.at;
        let mut at = offset;
        let head = take_number(self.block, &mut at)?;
        let end = at.checked_add(usize::try_from(head >> FLAG_BITS).ok()?)?;
        let row = self.block.get(..end)?;
        let ms = take_number(row, &mut at)?;
        let seq = take_number(row, &mut at)?;
        if self.begins {
            self.begins = false;
        } else if ms == 0 {
            self.id.seq = self.id.seq.wrapping_add(seq);
        } else {
            self.id = StreamId { ms: self.id.ms.wrapping_add(ms), seq };
        }
        self.at = end;
        Some(Row {
            id: self.id,
            offset,
            body: at,
            end,
            deleted: head & DELETED != 0,
            same: head & SAME != 0,
        })
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<Row, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.block.len() {
            return None;
        }
        let row = self.read().ok_or(Malformed);
        if row.is_err() {
            self.at = self.block.len();
        }
        Some(row)
    }
}

/// The fields of one entry in the order in which they were added: pairs of name
/// and value, duplicates kept. Its length is the number of pairs.
#[derive(Clone, Debug)]
pub struct Fields<'a>(Form<'a>);

/// Where the fields are.
#[derive(Clone, Debug)]
enum Form<'a> {
    Row(RowFields<'a>),
    /// A row of a block of columns, put together; the next field.
    Columns(columns::Row<'a>, usize),
}

/// Fields in a row of this module's format.
#[derive(Clone, Debug)]
struct RowFields<'a> {
    left: usize,
    /// The names of a row that shares the block's; empty when it has its own.
    names: &'a [u8],
    names_at: usize,
    same: bool,
    row: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// The fields of `row`, a row of `block`.
    pub(super) fn new(block: &'a [u8], names: Names<'a>, row: Row) -> Result<Self, Malformed> {
        let bytes = &block[..row.end];
        let mut at = row.body;
        let count = if row.same {
            names.count
        } else {
            take_number(bytes, &mut at).and_then(|count| count.try_into().ok()).ok_or(Malformed)?
        };
        // Each field has at least the byte that tells its length.
        if count > bytes.len() - at {
            return Err(Malformed);
        }
        let names = names.list;
        let fields = RowFields { left: count, names, names_at: 0, same: row.same, row: bytes, at };
        Ok(Self(Form::Row(fields)))
    }

    /// The fields of a row of columns.
    #[inline]
    pub(super) fn of_columns(row: columns::Row<'a>) -> Self {
        Self(Form::Columns(row, 0))
    }

    /// Checks that every field lies inside the row and that nothing is left
    /// over. For rows from a packed block, before anyone relies on the count.
    pub(super) fn check(&self) -> Result<(), Malformed> {
        let Form::Row(fields) = &self.0 else { return Ok(()) };
        let mut fields = fields.clone();
        while fields.left > 0 {
            fields.take_pair().ok_or(Malformed)?;
        }
        if fields.at == fields.row.len() { Ok(()) } else { Err(Malformed) }
    }
}

impl<'a> RowFields<'a> {
    #[inline]
    fn take_pair(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        self.left = self.left.checked_sub(1)?;
        let name = if self.same {
            take_text(self.names, &mut self.names_at)?
        } else {
            take_text(self.row, &mut self.at)?
        };
        Some((name, take_text(self.row, &mut self.at)?))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Form::Row(fields) => fields.take_pair(),
            Form::Columns(row, at) => {
                let field = (*at < row.len()).then(|| row.field(*at))?;
                *at += 1;
                Some(field)
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match &self.0 {
            Form::Row(fields) => fields.left,
            Form::Columns(row, at) => row.len() - at,
        };
        (left, Some(left))
    }
}

impl ExactSizeIterator for Fields<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Entry = (StreamId, Vec<(Vec<u8>, Vec<u8>)>);

    fn pairs(
        fields: &[(Vec<u8>, Vec<u8>)],
    ) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> + Clone {
        fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
    }

    fn write(entries: &[Entry]) -> Vec<u8> {
        let mut block = Vec::new();
        let mut previous = entries[0].0;
        put_names(&mut block, pairs(&entries[0].1));
        assert_eq!(block.len(), names_bytes(pairs(&entries[0].1)));
        for (id, fields) in entries {
            let row = {
                let names = Names::parse(&block).unwrap();
                NewRow::measure(Some(names), previous, *id, pairs(fields))
            };
            let before = block.len();
            row.put(&mut block, pairs(fields));
            assert_eq!(block.len() - before, row.bytes());
            previous = *id;
        }
        block
    }

    fn read(block: &[u8], first: StreamId) -> Result<Vec<Entry>, Malformed> {
        let names = Names::parse(block)?;
        let mut entries = Vec::new();
        for row in Rows::new(block, names.end(), first) {
            let row = row?;
            let fields = Fields::new(block, names, row)?;
            fields.check()?;
            let count = fields.len();
            let fields: Vec<_> = fields.map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
            assert_eq!(fields.len(), count);
            entries.push((row.id, fields));
        }
        Ok(entries)
    }

    fn any_entries() -> impl Strategy<Value = Vec<Entry>> {
        let text = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..4),
            prop::collection::vec(any::<u8>(), 120..300),
            Just(b"name".to_vec()),
        ];
        let fields = prop::collection::vec((text.clone(), text), 1..4);
        let step = prop_oneof![Just((0u64, 1u64)), (0u64..3, 1u64..5), any::<(u64, u64)>()];
        prop::collection::vec((step, fields), 1..20).prop_map(|rows| {
            let mut id = StreamId::MIN;
            rows.into_iter()
                .map(|((ms, seq), fields)| {
                    id = StreamId {
                        ms: id.ms.saturating_add(ms),
                        seq: if ms == 0 { id.seq.saturating_add(seq) } else { seq },
                    };
                    (id, fields)
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn rows_round_trip(entries in any_entries()) {
            prop_assert_eq!(read(&write(&entries), entries[0].0), Ok(entries));
        }

        #[test]
        fn damage_is_an_error_or_other_rows_never_a_panic(
            entries in any_entries(), at: prop::sample::Index, byte: u8, cut: prop::sample::Index,
        ) {
            let mut block = write(&entries);
            let at = at.index(block.len());
            block[at] = byte;
            let _ = read(&block, entries[0].0);
            let _ = read(&block[..cut.index(block.len())], entries[0].0);
        }

        #[test]
        fn noise_is_an_error_or_rows_never_a_panic(noise: Vec<u8>) {
            let _ = read(&noise, StreamId::MAX);
        }

        #[test]
        fn numbers_round_trip(number: u64) {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            prop_assert_eq!(bytes.len(), number_bytes(number));
            let mut at = 0;
            prop_assert_eq!(take_number(&bytes, &mut at), Some(number));
            prop_assert_eq!(at, bytes.len());
        }
    }
}
