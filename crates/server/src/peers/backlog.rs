//! The replication stream as bytes: its ids, its offsets, and as much of its past as
//! replicas may come back to.
//!
//! ```text
//!  offset   first                     end - backlog size                 end
//!            v                              v                             v
//!  pieces   [Bytes][Bytes][Bytes] ... [Bytes][Bytes] ... [Bytes][Bytes][block, filled]
//!            ^ replica that is behind                      ^ replica that is not
//! ```
//!
//! An offset counts the bytes of the stream, from 0 at its beginning; it is Redis's
//! `master_repl_offset` at that byte. A replica that asks for `PSYNC id n` has `n - 1`
//! bytes and wants what follows.
//!
//! Pieces are shared with the journal and with whoever sends them. Short ones are copied
//! into blocks of 16 KiB: a replica that is behind, or a backlog of many megabytes, would
//! else take several times its bytes where clients write little at a time.
//! What is kept is `repl-backlog-size`, and what connected replicas have yet to be sent,
//! which their output limit bounds.

use crate::outside::chance::random_hex;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// Pieces below this go into blocks, ...
const SHORT: usize = 4 * 1024;
/// ... of so many bytes.
const BLOCK: usize = 16 * 1024;

/// The stream that this node is the source of, or passes on.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// The id of the stream: forty hexadecimal digits.
    pub(crate) id: String,
    /// The id that it had before this node became its source, and the offset up to
    /// which that was the same stream; no id if there was none.
    pub(crate) second: Option<(String, u64)>,
    pieces: VecDeque<(u64, Bytes)>,
    /// What is behind the last piece.
    block: BytesMut,
    /// The offset of the first byte that is there.
    first: u64,
    /// The offset behind the last byte.
    end: u64,
    /// Whether the past is kept.
    active: bool,
}

impl Default for Backlog {
    fn default() -> Self {
        Self {
            id: random_hex(),
            second: None,
            pieces: VecDeque::new(),
            block: BytesMut::new(),
            first: 0,
            end: 0,
            active: false,
        }
    }
}

impl Backlog {
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn is_active(&self) -> bool {
        self.active
    }

    /// Bytes that are there.
    pub(crate) fn len(&self) -> u64 {
        self.end - self.first
    }

    /// About the memory that they take: sizes of allocations are rounded up, and each piece
    /// has its place and its count.
    pub(crate) fn memory(&self) -> u64 {
        const PIECE: u64 = 64;
        self.len() + self.len() / 8 + self.pieces.len() as u64 * PIECE
    }

    /// Begins to keep the past, from now on.
    pub(crate) fn begin(&mut self) {
        if !self.active {
            self.active = true;
            self.first = self.end;
        }
    }

    /// Forgets the past: whoever comes back needs everything anew.
    pub(crate) fn end_keeping(&mut self) {
        self.active = false;
        self.pieces.clear();
        self.block = BytesMut::new();
        self.first = self.end;
    }

    /// The stream goes on under another id; what it was called up to now is remembered.
    pub(crate) fn shift_id(&mut self) {
        self.second = Some((std::mem::replace(&mut self.id, random_hex()), self.end));
    }

    /// The stream goes on under another id, and nobody may come back under the old one.
    pub(crate) fn new_id(&mut self) {
        (self.id, self.second) = (random_hex(), None);
    }

    /// The stream is another from now on: that of the primary of which all was taken.
    pub(crate) fn restart(&mut self, id: &str, offset: u64) {
        *self = Self { id: id.into(), first: offset, end: offset, ..Self::default() };
        self.active = true;
    }

    /// The primary says that the stream is now called so.
    pub(crate) fn renamed(&mut self, id: &str) {
        if self.id != id {
            self.second = Some((std::mem::replace(&mut self.id, id.into()), self.end));
        }
    }

    /// Appends what comes next.
    pub(crate) fn append(&mut self, bytes: Bytes) {
        let at = self.end;
        self.end += bytes.len() as u64;
        if !self.active {
            self.first = self.end;
            return;
        }
        if bytes.len() >= SHORT || self.block.len() + bytes.len() > BLOCK {
            self.finish_block(at);
        }
        if bytes.len() >= SHORT {
            self.pieces.push_back((at, bytes));
        } else if !bytes.is_empty() {
            if self.block.is_empty() {
                self.block = BytesMut::with_capacity(BLOCK);
            }
            self.block.extend_from_slice(&bytes);
        }
    }

    /// Makes a piece of the block, which ends at this offset.
    fn finish_block(&mut self, end: u64) {
        if !self.block.is_empty() {
            let block = std::mem::take(&mut self.block).freeze();
            // What is left of one that a long piece has ended is not to be kept for nothing.
            let block = match block.len() < BLOCK - BLOCK / 8 {
                true => Bytes::copy_from_slice(&block),
                false => block,
            };
            self.pieces.push_back((end - block.len() as u64, block));
        }
    }

    /// Lets go of what is older than the last `size` bytes and needed by nobody who is
    /// at `needed` or farther.
    pub(crate) fn trim(&mut self, size: u64, needed: u64) {
        let keep = self.end.saturating_sub(size).min(needed);
        while let Some((at, bytes)) = self.pieces.front()
            && at + bytes.len() as u64 <= keep
        {
            self.first = at + bytes.len() as u64;
            self.pieces.pop_front();
        }
    }

    /// Whether whoever has all before `offset` of the stream `id` can go on from there.
    pub(crate) fn can_resume(&self, id: &str, offset: u64) -> bool {
        let known = id.eq_ignore_ascii_case(&self.id)
            || self
                .second
                .as_ref()
                .is_some_and(|(second, upto)| id.eq_ignore_ascii_case(second) && offset <= *upto);
        known && self.active && (self.first..=self.end).contains(&offset)
    }

    /// What follows an offset, up to about so many bytes, by reference but for the last; `None` if that
    /// is no longer there.
    pub(crate) fn read(&self, offset: u64, most: usize) -> Option<Vec<Bytes>> {
        if !(self.first..=self.end).contains(&offset) {
            return None;
        }
        let from = self.pieces.partition_point(|(at, bytes)| at + bytes.len() as u64 <= offset);
        let (mut read, mut len) = (Vec::new(), 0);
        for (at, bytes) in self.pieces.iter().skip(from) {
            let skip = offset.saturating_sub(*at) as usize;
            let piece = bytes.slice(skip..bytes.len().min(skip + most - len));
            len += piece.len();
            read.push(piece);
            if len >= most {
                break;
            }
        }
        let block_at = self.end - self.block.len() as u64;
        let skip = offset.saturating_sub(block_at) as usize;
        let rest = &self.block[skip..self.block.len().min(skip + most - len)];
        if !rest.is_empty() {
            read.push(Bytes::copy_from_slice(rest));
        }
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(backlog: &Backlog, offset: u64, most: usize) -> Option<Vec<u8>> {
        backlog.read(offset, most).map(|pieces| pieces.concat())
    }

    #[test]
    fn what_was_appended_is_read_from_any_offset() {
        let mut backlog = Backlog::default();
        backlog.append(Bytes::from_static(b"before anybody came"));
        backlog.begin();
        let start = backlog.end();
        let mut all = Vec::new();
        // Short ones, long ones, and blocks that either ends.
        for length in
            [3, SHORT, 3, 5, 2 * SHORT, 100, SHORT - 1, SHORT - 1, SHORT - 1, SHORT - 1, 7]
        {
            let piece: Vec<u8> = (0..length).map(|n| (n + all.len()) as u8).collect();
            all.extend_from_slice(&piece);
            backlog.append(piece.into());
            assert_eq!(read(&backlog, start, usize::MAX >> 1).unwrap(), all);
        }
        let lengths = backlog.pieces.iter().map(|(_, piece)| piece.len());
        let blocks = 100 + 3 * (SHORT - 1);
        assert_eq!(lengths.collect::<Vec<_>>(), [3, SHORT, 8, 2 * SHORT, blocks]);
        for from in (0..=all.len()).step_by(61) {
            for most in [1, 2, 1000, SHORT, 3 * SHORT, all.len()] {
                let wanted = &all[from..all.len().min(from + most)];
                assert_eq!(read(&backlog, start + from as u64, most).unwrap(), wanted);
            }
        }
        assert_eq!(read(&backlog, start - 1, 9), None);
        assert_eq!(read(&backlog, backlog.end() + 1, 9), None);
        // Five bytes are to be kept, and somebody still needs what is behind the third.
        backlog.trim(5, start + (3 + SHORT + 8) as u64);
        assert_eq!(backlog.first, start + (3 + SHORT + 8) as u64);
        backlog.trim(5, u64::MAX);
        let left = &all[all.len() - 7 - (SHORT - 1)..];
        assert_eq!(read(&backlog, backlog.first, 9 * SHORT).unwrap(), left);
        backlog.trim(0, u64::MAX);
        assert_eq!(backlog.len(), left.len() as u64, "a block goes when it is a piece");
    }

    #[test]
    fn who_may_resume() {
        let mut backlog = Backlog::default();
        let first = backlog.id.clone();
        assert!(!backlog.can_resume(&first, 0), "nothing is kept");
        backlog.begin();
        backlog.append(Bytes::from_static(b"0123456789"));
        assert!(backlog.can_resume(&first, 0) && backlog.can_resume(&first, 10));
        assert!(!backlog.can_resume(&first, 11) && !backlog.can_resume("another", 5));
        backlog.shift_id();
        backlog.append(Bytes::from_static(b"abc"));
        let second = backlog.id.clone();
        assert!(backlog.can_resume(&first, 10) && !backlog.can_resume(&first, 11));
        assert!(backlog.can_resume(&second, 13));
        backlog.new_id();
        assert!(!backlog.can_resume(&second, 13));
        backlog.restart("of the primary", 77);
        assert!(backlog.can_resume("of the primary", 77));
        backlog.renamed("of its successor");
        assert!(backlog.can_resume("of the primary", 77));
        assert!(backlog.can_resume("of its successor", 77));
    }
}
