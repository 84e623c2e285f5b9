//! A stream as a file has it: its blocks as they lie, packed where they are packed; the
//! entries of its tail; its groups.

use super::block::{Block, Data, Lies, PackedBytes};
use super::range::{OpenRows, StreamScratch};
use super::sealed::Sealed;
use super::tail::Tail;
use super::{Fields, Group, Stream, StreamId};
use crate::image::{Pen, Source};
use smallvec::SmallVec;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The most rows of a block, and bytes of one that is raw.
const ROWS_MAX: u32 = 1 << 24;

const PENDING: u8 = 0;
const RAW: u8 = 1;
const PACKED: u8 = 2;

impl Stream {
    pub(super) fn write(&self, pen: &mut dyn Pen) -> io::Result<()> {
        pen.id(self.last_id)?;
        pen.id(self.max_deleted_id)?;
        pen.number(self.entries_added)?;
        let sealed = self.sealed.as_deref();
        let own = sealed.and_then(|sealed| sealed.family().current()).map_or(0, |d| d.id());
        pen.need(own)?;
        pen.number(u64::from(own))?;
        pen.number(sealed.map_or(0, |sealed| sealed.memory().blocks as u64))?;
        if let Some(sealed) = sealed {
            let mut at = sealed.index().seek(|_| false);
            while let Some(block) = sealed.index().get(at) {
                write_block(block, pen)?;
                at = sealed.index().after(at);
            }
        }
        self.write_tail(pen)?;
        let groups = self.groups().map(|groups| groups.iter().as_slice()).unwrap_or_default();
        pen.number(groups.len() as u64)?;
        groups.iter().try_for_each(|group| write_group(group, pen))
    }

    /// The position of the tail's first entry, and its entries.
    fn write_tail(&self, pen: &mut dyn Pen) -> io::Result<()> {
        pen.number(self.tail.position())?;
        pen.number(u64::from(self.tail.live()))?;
        if self.tail.live() == 0 {
            return Ok(());
        }
        let mut written = Ok(());
        let mut scratch = StreamScratch::new();
        let read =
            self.range(self.tail.first(), StreamId::MAX, false, &mut scratch, |id, fields| {
                written = write_entry(id, fields, pen);
                if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
        read.map_err(io::Error::other)?;
        written
    }

    pub(super) fn read(source: &mut dyn Source) -> io::Result<Self> {
        let mut stream = Self::new();
        let (last_id, max_deleted_id) = (source.id()?, source.id()?);
        let entries_added = source.number()?;
        let own = source.small()?;
        let blocks = source.number()?;
        if own != 0 || blocks > 0 {
            let sealed = stream.sealed.get_or_insert_default();
            if own != 0 {
                sealed.family_mut().give(source.dictionary(own)?.to_own());
            }
            for _ in 0..blocks {
                stream.len += u64::from(read_block(sealed, source)?);
            }
        }
        stream.read_tail(source)?;
        let before = stream.tail.rows().checked_sub(1).map(|_| stream.tail.last());
        let before = before.or_else(|| stream.sealed.as_ref()?.last_id());
        if before.is_some_and(|id| id > last_id) {
            return Err(wrong("a stream's last ID is less than its last entry's"));
        }
        stream.set_id(last_id, Some(entries_added), Some(max_deleted_id));
        for _ in 0..source.number()? {
            read_group(&mut stream, source)?;
        }
        Ok(stream)
    }

    fn read_tail(&mut self, source: &mut dyn Source) -> io::Result<()> {
        let sealed = self.sealed.as_deref();
        let (end, mut last) = match sealed {
            Some(sealed) => (sealed.end_position(), sealed.last_id()),
            None => (0, None),
        };
        let position = source.number()?;
        if position < end || position > u64::MAX / 2 {
            return Err(wrong("the end of a stream is not where it should be"));
        }
        self.tail = Tail::default();
        self.tail.set_next_position(position);
        for _ in 0..source.small()? {
            let id = source.id()?;
            if last.is_some_and(|last| id <= last) {
                return Err(wrong("the IDs of a stream do not ascend"));
            }
            last = Some(id);
            let mut parts: Vec<Vec<u8>> = Vec::new();
            for _ in 0..source.small()? {
                parts.push(source.counted()?);
                parts.push(source.counted()?);
            }
            let pairs: SmallVec<[(&[u8], &[u8]); 16]> =
                parts.chunks_exact(2).map(|pair| (&pair[0][..], &pair[1][..])).collect();
            super::check_size(pairs.iter().copied()).map_err(|_| wrong("an entry is too long"))?;
            let appended = self.tail.append(id, pairs.iter().copied(), usize::MAX);
            appended.ok_or_else(|| wrong("the end of a stream is too long"))?;
            self.len += 1;
        }
        Ok(())
    }
}

fn write_entry(id: StreamId, fields: Fields<'_>, pen: &mut dyn Pen) -> io::Result<()> {
    pen.id(id)?;
    pen.number(fields.len() as u64)?;
    for (name, value) in fields {
        pen.counted(name)?;
        pen.counted(value)?;
    }
    Ok(())
}

fn write_block(block: &Block, pen: &mut dyn Pen) -> io::Result<()> {
    pen.id(block.first)?;
    pen.id(block.last)?;
    pen.number(block.position)?;
    pen.number(u64::from(block.raw_bytes))?;
    let lies = block.lies();
    pen.number(u64::from(lies.rows))?;
    pen.number(u64::from(lies.skipped))?;
    pen.number(lies.kept.as_ref().map_or(0, |kept| kept.len() as u64))?;
    let mut before = 0;
    for &row in lies.kept.iter().flatten() {
        pen.number(u64::from(row - before))?;
        before = row;
    }
    pen.number(lies.deleted.len() as u64)?;
    lies.deleted.iter().try_for_each(|word| pen.put(&word.to_le_bytes()))?;
    match block.data() {
        Data::Pending(bytes) => {
            pen.put(&[PENDING])?;
            pen.counted(bytes)
        }
        Data::Raw(bytes) => {
            pen.put(&[RAW])?;
            pen.counted(bytes)
        }
        Data::Packed { bytes, dictionary } => {
            pen.need(*dictionary)?;
            pen.put(&[PACKED])?;
            pen.number(u64::from(*dictionary))?;
            pen.counted(bytes.joined(&mut Vec::new()))
        }
    }
}

/// Reads a block to the end of those that there are; how many entries it has.
fn read_block(sealed: &mut Sealed, source: &mut dyn Source) -> io::Result<u32> {
    let bad = || wrong("a block of a stream is damaged");
    let (first, last) = (source.id()?, source.id()?);
    let (position, raw_bytes) = (source.number()?, source.small()?);
    let (rows, skipped) = (source.small()?, source.small()?);
    let is_behind = sealed.last_id().is_none_or(|before| before < first)
        && sealed.end_position() <= position
        && position < u64::MAX / 2;
    if !is_behind || first > last || rows == 0 || rows > ROWS_MAX {
        return Err(bad());
    }
    let mut kept = Vec::new();
    let mut row = 0u32;
    for n in 0..source.small()? {
        let more = source.small()?;
        row = row
            .checked_add(more)
            .filter(|&row| row < rows && (n == 0 || more > 0))
            .ok_or_else(bad)?;
        kept.push(row);
    }
    let kept = (!kept.is_empty()).then_some(kept);
    let count = kept.as_ref().map_or(rows, |kept| kept.len() as u32);
    let mut deleted = Vec::new();
    for _ in 0..source.small()? {
        deleted.push(source.eight()?);
    }
    if !deleted.is_empty() && deleted.len() != (count as usize).div_ceil(64) || skipped >= count {
        return Err(bad());
    }
    let data = match source.byte()? {
        kind @ (PENDING | RAW) => {
            let bytes: Arc<[u8]> = source.counted()?.into();
            check_rows(&bytes, first, last, count).ok_or_else(bad)?;
            if raw_bytes as usize != bytes.len() {
                return Err(bad());
            }
            if kind == PENDING { Data::Pending(bytes) } else { Data::Raw(bytes) }
        }
        PACKED => {
            let dictionary = source.small()?;
            if dictionary != 0 && sealed.family().current().is_none_or(|own| own.id() != dictionary)
            {
                sealed.family_mut().hold_once(dictionary, || source.dictionary(dictionary))?;
            }
            Data::Packed { bytes: PackedBytes::new(&source.counted()?), dictionary }
        }
        _ => return Err(bad()),
    };
    let lies = Lies { rows, skipped, kept, deleted };
    let block = Block::lying((first, last), position, data, raw_bytes, lies).ok_or_else(bad)?;
    let live = block.live();
    sealed.push_packed(block);
    Ok(live)
}

/// Reads rows that are raw: each must be whole, and their IDs ascend from the first to the
/// last.
fn check_rows(bytes: &[u8], first: StreamId, last: StreamId, count: u32) -> Option<()> {
    let open = OpenRows::new(bytes, first, true).ok()?;
    let (mut before, mut rows) = (None, 0);
    for row in open.rows() {
        let (_, row) = row.ok()?;
        if before.is_some_and(|before| row.id <= before) {
            return None;
        }
        open.fields(row).ok()?;
        before = Some(row.id);
        rows += 1;
    }
    (rows == count && before == Some(last)).then_some(())
}

fn write_group(group: &Group, pen: &mut dyn Pen) -> io::Result<()> {
    pen.counted(group.name())?;
    pen.id(group.last_id())?;
    pen.number(group.entries_read().map_or(0, |read| read.wrapping_add(1)))?;
    pen.number(group.consumers().len() as u64)?;
    for (_, consumer) in group.consumers() {
        pen.counted(consumer.name())?;
        pen.number(consumer.seen())?;
        pen.number(consumer.active().map_or(0, |at| at.wrapping_add(1)))?;
    }
    pen.number(group.pending().len() as u64)?;
    let numbers: Vec<_> = group.consumers().map(|(id, _)| id).collect();
    for entry in group.pending_between((StreamId::MIN, StreamId::MAX), None, u64::MAX) {
        pen.id(entry.id)?;
        let owner = numbers.iter().position(|&id| id == entry.owner());
        pen.number(owner.unwrap_or_default() as u64)?;
        pen.number(entry.delivered)?;
        pen.number(entry.count)?;
    }
    Ok(())
}

fn read_group(stream: &mut Stream, source: &mut dyn Source) -> io::Result<()> {
    let name = source.counted()?;
    let last_id = source.id()?;
    let entries_read = source.number()?.checked_sub(1);
    if !stream.create_group(&name, last_id, entries_read) {
        return Err(wrong("a stream has a group twice"));
    }
    let read = stream.with_group(&name, |_, group| {
        let mut consumers = Vec::new();
        for _ in 0..source.number()? {
            let (name, seen) = (source.counted()?, source.number()?);
            let (id, is_new) = group.make_consumer(&name, seen);
            if !is_new {
                return Err(wrong("a group has a consumer twice"));
            }
            if let Some(at) = source.number()?.checked_sub(1) {
                group.was_active(id, at);
            }
            consumers.push(id);
        }
        for _ in 0..source.number()? {
            let id = source.id()?;
            let owner = consumers.get(source.small()? as usize);
            let owner = owner.ok_or_else(|| wrong("an entry is pending for no consumer"))?;
            let (delivered, count) = (source.number()?, source.number()?);
            group.assign(id, *owner, delivered, count);
        }
        Ok(())
    });
    read.unwrap_or(Ok(()))
}
