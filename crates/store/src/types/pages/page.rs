//! A page: some records of a large collection in one allocation.
//!
//! ```text
//!  raw      | tags: 16 each line | records, in the order they came | free | offsets: 2 each |
//!  packed   | a packed form of the records, in their order |
//! ```
//!
//! A record is what its collection makes of one item: its elements one behind the other
//! (`element.rs`). Offsets give the order of the records, the first at the very end of
//! the page; so putting one among others moves offsets and no records. Where records
//! are looked for by hash, each has a byte of that in the tags, and many of these are
//! compared at once. What a removed or replaced record leaves is taken up again when a
//! quarter of the page is such.
//!
//! The bytes are shared by reference: a copy of a collection and a packing job hold the
//! page as it was, and a change of a held page changes a copy of it. So a page is told
//! from what it was before by the address of its bytes, while somebody holds those.
//!
//! Cost: 24 bytes beside the allocation, which has a header of 16; 2 bytes a record, 3
//! with a tag. Finding by tag: two cache lines of tags and the record. Adding: a copy of
//! the record, and of the whole page when its size class is full, which is at every
//! fifth of growth.

use super::Order;
use super::compact;
use crate::image::{Pen, Source};
use crate::memory::{prefetch, usable};
use crate::pack::form::{self, Damaged};
use snug_codec::{Codec, UnpackError};
use std::cell::Cell;
use std::io;
use std::sync::Arc;

/// There is room for tags in lines of so many.
const LINE: usize = 16;
/// Bytes in front of shared ones: two counts of references.
pub(crate) const SHARED_HEADER: usize = 16;
#[derive(Clone, Debug)]
pub(crate) struct Page {
    bytes: Arc<[u8]>,
    count: u16,
    /// Bytes of records, removed ones included. Of a packed page, of records alone.
    used: u16,
    dead: u16,
    lines: u8,
    /// Changed by who only reads the page, too.
    notes: Cell<u8>,
}

/// More records or bytes than any page has: it is cut before.
const COUNT_MAX: usize = 2048;
const BYTES_MAX: usize = 60_000;

const PACKED: u8 = 1;
/// It was tried and not worth packing.
const SETTLED: u8 = 2;
/// It waits to be packed, or unpacked.
const WANTED: u8 = 16;
/// Two access bits.
const ACCESS_SHIFT: u8 = 2;
const ACCESS: u8 = 3 << ACCESS_SHIFT;

/// What pages weigh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    pub(crate) allocated: usize,
    pub(crate) raw: usize,
    pub(crate) packed_from: usize,
    pub(crate) packed: usize,
}

impl Weight {
    /// Of a raw page of so many bytes, `raw` of them records that are used.
    #[inline]
    pub(crate) fn of_raw(room: usize, raw: usize) -> Self {
        let allocated = if room == 0 { 0 } else { usable(SHARED_HEADER + room) };
        Self { allocated, raw, packed_from: 0, packed: 0 }
    }
}

impl std::ops::AddAssign for Weight {
    fn add_assign(&mut self, other: Self) {
        self.allocated += other.allocated;
        self.raw += other.raw;
        self.packed_from += other.packed_from;
        self.packed += other.packed;
    }
}

impl std::ops::SubAssign for Weight {
    fn sub_assign(&mut self, other: Self) {
        self.allocated -= other.allocated;
        self.raw -= other.raw;
        self.packed_from -= other.packed_from;
        self.packed -= other.packed;
    }
}

impl Page {
    pub(crate) fn new() -> Self {
        Self { bytes: Arc::from([]), count: 0, used: 0, dead: 0, lines: 0, notes: Cell::new(0) }
    }

    /// A page of these records, in their order.
    pub(crate) fn of<'r, O: Order>(records: impl Iterator<Item = &'r [u8]> + Clone) -> Self {
        let (count, used) =
            records.clone().fold((0, 0), |(count, used), record| (count + 1, used + record.len()));
        let lines = if O::TAGGED { usize::div_ceil(count, LINE) } else { 0 };
        let mut page = Self {
            bytes: room(LINE * lines + used + 2 * count),
            lines: lines as u8,
            ..Self::new()
        };
        for record in records {
            page.insert::<O>(page.len(), record);
        }
        page
    }

    /// Writes itself: how many records, whether they are packed and how lately they were
    /// used, of packed ones how many bytes they are unpacked, and the bytes.
    pub(crate) fn store<O: Order>(&self, pen: &mut dyn Pen) -> io::Result<()> {
        pen.number(self.len() as u64)?;
        pen.put(&[self.access() << 1 | u8::from(self.is_packed())])?;
        match self.packed() {
            Some(form) => {
                pen.need(form::dictionary_id(form))?;
                pen.number(self.raw_bytes() as u64)?;
                pen.counted(form)
            }
            None => {
                pen.number(self.raw_bytes() as u64)?;
                self.records::<O>().try_for_each(|record| pen.put(record))
            }
        }
    }

    /// Reads what [`store`](Self::store) wrote.
    pub(crate) fn fetch<O: Order>(source: &mut dyn Source) -> io::Result<Self> {
        let bad = || io::Error::new(io::ErrorKind::InvalidData, "a page is damaged");
        let count = source.small()? as usize;
        let flags = source.byte()?;
        let used = source.small()? as usize;
        if count == 0 || count > COUNT_MAX || used > BYTES_MAX {
            return Err(bad());
        }
        let page = match flags & 1 {
            0 => {
                let mut raw = Vec::with_capacity(used);
                source.each(used as u64, &mut |some| raw.extend_from_slice(some))?;
                let is_whole = |record: &&[u8]| O::record_len(record) == record.len();
                if each::<O>(&raw).filter(is_whole).count() != count
                    || each::<O>(&raw).count() != count
                {
                    return Err(bad());
                }
                Self::of::<O>(each::<O>(&raw))
            }
            _ => {
                let form = source.counted()?;
                let page = Self { count: count as u16, used: used as u16, ..Self::new() };
                let mut packed = page;
                packed.pack(&form);
                packed
            }
        };
        page.set_access(flags >> 1 & (ACCESS >> ACCESS_SHIFT));
        Ok(page)
    }

    /// A packed page as it was, of what it was unpacked to.
    pub(crate) fn unpacked<O: Order>(&self, raw: &[u8]) -> Result<Self, Damaged> {
        let page = compact::page::<O>(raw, self.len(), self.raw_bytes());
        let mut page = page.ok_or(UnpackError::Corrupt(Codec::None))?;
        page.notes = Cell::new(self.notes.get() & ACCESS);
        Ok(page)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Bytes of its records.
    #[inline]
    pub(crate) fn raw_bytes(&self) -> usize {
        usize::from(self.used - self.dead)
    }

    /// The bytes that it holds, used or not.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(crate) fn is_packed(&self) -> bool {
        self.notes.get() & PACKED != 0
    }

    /// Its packed form, if it is packed.
    pub(crate) fn packed(&self) -> Option<&[u8]> {
        self.is_packed().then_some(&self.bytes)
    }

    pub(crate) fn weight(&self) -> Weight {
        let raw = self.raw_bytes();
        let weight = Weight::of_raw(self.room(), raw);
        match self.is_packed() {
            // What is only stored without offsets and tags is not more than it was.
            true => Weight { packed_from: raw, packed: self.room().min(raw), ..weight },
            false => weight,
        }
    }

    pub(crate) fn access(&self) -> u8 {
        (self.notes.get() & ACCESS) >> ACCESS_SHIFT
    }

    pub(crate) fn set_access(&self, access: u8) {
        self.notes.set(self.notes.get() & !ACCESS | access << ACCESS_SHIFT);
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.notes.get() & WANTED != 0
    }

    pub(crate) fn want(&self, wanted: bool) {
        let notes = self.notes.get();
        self.notes.set(if wanted { notes | WANTED } else { notes & !WANTED });
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.notes.get() & SETTLED != 0
    }

    pub(crate) fn settle(&self, settled: bool) {
        let notes = self.notes.get();
        self.notes.set(if settled { notes | SETTLED } else { notes & !SETTLED });
    }

    /// Puts the packed form in the place of the records.
    pub(crate) fn pack(&mut self, form: &[u8]) {
        let used = self.used - self.dead;
        let notes = Cell::new(self.notes.get() & ACCESS | PACKED);
        *self = Self { bytes: Arc::from(form), count: self.count, used, dead: 0, lines: 0, notes };
    }

    /// The dictionary that its packed form refers to, 0 for none.
    pub(crate) fn dictionary_id(&self) -> u32 {
        self.packed().map_or(0, form::dictionary_id)
    }

    /// Whether both have the very same bytes.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes) && self.count == other.count
    }

    fn heap(&self) -> &[u8] {
        debug_assert!(!self.is_packed());
        let from = LINE * usize::from(self.lines);
        &self.bytes[from..from + usize::from(self.used)]
    }

    fn offset(&self, at: usize) -> usize {
        let end = self.bytes.len() - 2 * at;
        usize::from(u16::from_le_bytes([self.bytes[end - 2], self.bytes[end - 1]]))
    }

    /// The record at a place, and whatever stands behind it. The page is not packed.
    #[inline]
    pub(crate) fn record(&self, at: usize) -> &[u8] {
        debug_assert!(at < self.len());
        &self.heap()[self.offset(at)..]
    }

    /// The same without what stands behind it.
    pub(crate) fn just<O: Order>(&self, at: usize) -> &[u8] {
        let record = self.record(at);
        &record[..O::record_len(record).min(record.len())]
    }

    /// All records in their order. The page is not packed.
    pub(crate) fn records<O: Order>(&self) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
        (0..self.len()).map(|at| self.just::<O>(at))
    }

    /// The first record with this tag that `is_it` takes for the one.
    #[inline]
    pub(crate) fn find(&self, tag: u8, is_it: impl Fn(&[u8]) -> bool) -> Option<usize> {
        // What is read next comes closer meanwhile.
        for line in self.bytes[self.bytes.len() - 2 * self.len()..].chunks(64) {
            prefetch(line.as_ptr());
        }
        memchr::memchr_iter(tag, &self.bytes[..self.len()]).find(|&at| is_it(self.record(at)))
    }

    /// Reads a byte of every cache line. Who searches by halving would wait for one line
    /// after the other; here they come side by side.
    #[inline]
    pub(crate) fn warm(&self) {
        let bytes = self.bytes.chunks(64).map(|line| line[0]);
        std::hint::black_box(bytes.fold(0, |all: u8, byte| all ^ byte));
    }

    /// The first place whose record is not before what is looked for. The records are
    /// in order.
    pub(crate) fn partition_point(&self, is_before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if is_before(self.record(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Puts a record at a place, and those from there on behind it. Tagged pages have
    /// no order: theirs go to the end. O(1), a copy of the page at every fifth of growth.
    pub(crate) fn insert<O: Order>(&mut self, at: usize, record: &[u8]) {
        debug_assert!(!self.is_packed() && (!O::TAGGED || at == self.len()));
        // A record has at most two strings of the length from which they lie elsewhere, and
        // a page is cut at half of what its offsets reach.
        debug_assert!(u16::try_from(usize::from(self.used) + record.len()).is_ok());
        let count = self.len();
        let lines = match O::TAGGED {
            true => usize::from(self.lines).max((count + 1).div_ceil(LINE)),
            false => 0,
        };
        let needed = LINE * lines + usize::from(self.used) + record.len() + 2 * (count + 1);
        if needed > self.bytes.len() {
            // Records come and go: with some room to spare, it is not made anew for each.
            let spare = if self.dead > 0 { self.raw_bytes() / 8 } else { 0 };
            self.rebuild::<O>(record.len() + spare, 1);
        }
        let (used, before) = (usize::from(self.used), usize::from(self.lines));
        let bytes = self.bytes_mut();
        let lines = if O::TAGGED { before.max((count + 1).div_ceil(LINE)) } else { 0 };
        if lines > before {
            bytes.copy_within(LINE * before..LINE * before + used, LINE * lines);
        }
        let heap = LINE * lines;
        bytes[heap + used..heap + used + record.len()].copy_from_slice(record);
        let end = bytes.len();
        bytes.copy_within(end - 2 * count..end - 2 * at, end - 2 * count - 2);
        bytes[end - 2 * at - 2..end - 2 * at].copy_from_slice(&(used as u16).to_le_bytes());
        if O::TAGGED {
            bytes[count] = O::tag(record);
        }
        self.lines = lines as u8;
        self.used += record.len() as u16;
        self.count += 1;
        self.settle(false);
    }

    /// Removes a record; in a tagged page the last one takes its place.
    pub(crate) fn remove<O: Order>(&mut self, at: usize) {
        let (count, offset, len) = (self.len(), self.offset(at), self.just::<O>(at).len());
        let bytes = self.bytes_mut();
        let end = bytes.len();
        if O::TAGGED {
            bytes.copy_within(end - 2 * count..end - 2 * count + 2, end - 2 * at - 2);
            bytes[at] = bytes[count - 1];
        } else {
            bytes.copy_within(end - 2 * count..end - 2 * at - 2, end - 2 * count + 2);
        }
        self.count -= 1;
        self.free::<O>(offset, len);
    }

    /// Puts another record in the place of one; in a tagged page, one of the same tag.
    pub(crate) fn replace<O: Order>(&mut self, at: usize, record: &[u8]) {
        let (offset, len) = (self.offset(at), self.just::<O>(at).len());
        if record.len() <= len {
            let from = LINE * usize::from(self.lines) + offset;
            self.bytes_mut()[from..from + record.len()].copy_from_slice(record);
            self.free::<O>(offset + record.len(), len - record.len());
        } else {
            let needed = LINE * usize::from(self.lines)
                + usize::from(self.used)
                + record.len()
                + 2 * self.len();
            if needed > self.bytes.len() {
                self.rebuild::<O>(record.len(), 0);
            }
            let (offset, used) = (self.offset(at), usize::from(self.used));
            let heap = LINE * usize::from(self.lines);
            let bytes = self.bytes_mut();
            bytes[heap + used..heap + used + record.len()].copy_from_slice(record);
            let end = bytes.len() - 2 * at;
            bytes[end - 2..end].copy_from_slice(&(used as u16).to_le_bytes());
            self.used += record.len() as u16;
            self.free::<O>(offset, len);
        }
        self.settle(false);
    }

    /// Notes that some bytes of the records are no longer used.
    fn free<O: Order>(&mut self, offset: usize, len: usize) {
        if self.count == 0 {
            *self = Self { notes: Cell::new(self.notes.get() & ACCESS), ..Self::new() };
            return;
        }
        if offset + len == usize::from(self.used) {
            self.used -= len as u16;
        } else {
            self.dead += len as u16;
        }
        let held = LINE * usize::from(self.lines) + usize::from(self.used) + 2 * self.len();
        let needed = held - usize::from(self.dead);
        if (self.bytes.len() - needed) * 3 > self.bytes.len() {
            self.rebuild::<O>(0, 0);
        }
        self.settle(false);
    }

    /// The page anew without what is no longer used, with room for `count` more records
    /// of `more` bytes.
    fn rebuild<O: Order>(&mut self, more: usize, count: usize) {
        let lines = if O::TAGGED { (self.len() + count).div_ceil(LINE) } else { 0 };
        let needed = LINE * lines + self.raw_bytes() + more + 2 * (self.len() + count);
        let mut page = Self { bytes: room(needed), lines: lines as u8, ..Self::new() };
        page.notes = self.notes.clone();
        let bytes = Arc::get_mut(&mut page.bytes).expect("it was just made");
        let heap = LINE * lines;
        let old = self.bytes[self.bytes.len() - 2 * self.len()..].as_chunks().0.iter();
        let old = old.map(|offset| u16::from_le_bytes(*offset));
        let middle = bytes.len() - 2 * self.len();
        let (records, offsets) = bytes.split_at_mut(middle);
        let records = &mut records[heap..];
        let offsets = offsets.as_chunks_mut().0.iter_mut();
        let first = old.clone().min().unwrap_or_default();
        let mut used = 0;
        if first == self.dead {
            // What is no longer used lies in front of what is: the page of a queue.
            let live = &self.heap()[usize::from(first)..];
            used = live.len();
            records[..used].copy_from_slice(live);
            offsets.zip(old).for_each(|(new, old)| *new = (old - first).to_le_bytes());
        } else {
            for (offset, at) in offsets.rev().zip(0..) {
                let record = self.just::<O>(at);
                records[used..used + record.len()].copy_from_slice(record);
                *offset = (used as u16).to_le_bytes();
                used += record.len();
            }
        }
        if O::TAGGED {
            bytes[..self.len()].copy_from_slice(&self.bytes[..self.len()]);
        }
        (page.used, page.count) = (used as u16, self.count);
        *self = page;
    }

    /// The bytes, to be changed: a copy of them if somebody else holds them.
    fn bytes_mut(&mut self) -> &mut [u8] {
        debug_assert!(!self.is_packed());
        Arc::make_mut(&mut self.bytes)
    }
}

/// Room for so many bytes, and for what else is in their size class.
fn room(needed: usize) -> Arc<[u8]> {
    let len = usable(SHARED_HEADER + needed) - SHARED_HEADER;
    std::iter::repeat_n(0, len).collect()
}

/// The records that stand one behind the other.
pub(crate) fn each<O: Order>(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let (record, rest) = bytes.split_at(O::record_len(bytes).min(bytes.len()));
        bytes = rest;
        Some(record)
    })
}
