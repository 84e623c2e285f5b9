//! A small collection: records one behind the other, as they lie in an entry.
//!
//! ```text
//!  | notes: 1 | count: 1 | record | record | ...
//! ```
//!
//! It is read from the front, and changed in a copy that then takes its place: at most
//! [`BYTES_MAX`] bytes are moved. A collection that outgrows that, or [`COUNT_MAX`]
//! records, or has a large string among its elements, becomes a tree of pages, of which
//! it fills one.

use super::Order;
use super::page::each;

/// The most records of a small collection ...
pub(crate) const COUNT_MAX: usize = 128;
/// ... and the most bytes.
pub(crate) const BYTES_MAX: usize = 4096;

/// Bytes in front of the records.
const HEAD: usize = 2;

/// A small collection as it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    /// What its type notes of it.
    pub(crate) notes: u8,
    pub(crate) count: usize,
    pub(crate) records: &'a [u8],
}

impl<'a> Run<'a> {
    #[inline]
    pub(crate) fn read(bytes: &'a [u8]) -> Self {
        match bytes {
            [notes, count, records @ ..] => {
                Self { notes: *notes, count: usize::from(*count), records }
            }
            _ => Self { notes: 0, count: 0, records: &[] },
        }
    }

    /// Its records in their order.
    pub(crate) fn each<O: Order>(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a, O> {
        each::<O>(self.records)
    }
}

/// A small collection that is being changed.
#[derive(Debug)]
pub(crate) struct RunBuf<'b> {
    bytes: &'b mut Vec<u8>,
}

impl<'b> RunBuf<'b> {
    /// Of these bytes; an empty one where there are none.
    pub(crate) fn new(bytes: &'b mut Vec<u8>) -> Self {
        if bytes.len() < HEAD {
            bytes.clear();
            bytes.extend([0; HEAD]);
        }
        Self { bytes }
    }

    pub(crate) fn run(&self) -> Run<'_> {
        Run::read(self.bytes)
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.bytes[1])
    }

    pub(crate) fn notes(&self) -> u8 {
        self.bytes[0]
    }

    pub(crate) fn note(&mut self, notes: u8) {
        self.bytes[0] = notes;
    }

    /// Whether there is room for so many records more, of so many bytes.
    pub(crate) fn has_room(&self, count: usize, bytes: usize) -> bool {
        self.len() + count <= COUNT_MAX && self.bytes.len() + bytes <= BYTES_MAX
    }

    /// Where among the records' bytes the record of this rank begins, or they end.
    pub(crate) fn offset<O: Order>(&self, rank: usize) -> usize {
        if rank >= self.len() {
            return self.bytes.len() - HEAD;
        }
        self.run().each::<O>().take(rank).map(<[u8]>::len).sum()
    }

    /// Puts a record where one begins, or behind all.
    pub(crate) fn insert(&mut self, offset: usize, record: &[u8]) {
        self.put(offset, 0, record);
        self.bytes[1] += 1;
    }

    /// Puts a record in the place of one of `len` bytes.
    pub(crate) fn replace(&mut self, offset: usize, len: usize, record: &[u8]) {
        self.put(offset, len, record);
    }

    /// Removes `count` records, which are `len` bytes.
    pub(crate) fn remove(&mut self, offset: usize, len: usize, count: usize) {
        self.put(offset, len, &[]);
        self.bytes[1] -= count as u8;
    }

    fn put(&mut self, offset: usize, len: usize, record: &[u8]) {
        let (from, before) = (HEAD + offset, self.bytes.len());
        let end = from + len;
        if record.len() > len {
            self.bytes.resize(before + record.len() - len, 0);
            self.bytes.copy_within(end..before, from + record.len());
        } else if record.len() < len {
            self.bytes.copy_within(end..before, from + record.len());
            self.bytes.truncate(before + record.len() - len);
        }
        self.bytes[from..from + record.len()].copy_from_slice(record);
    }
}
