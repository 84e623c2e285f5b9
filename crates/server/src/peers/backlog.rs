//! The replication stream as bytes: its ids, its offsets, and as much of its past as
//! replicas may come back to.
//!
//! ```text
//!  offset   first                     end - backlog size                 end
//!            v                              v                             v
//!  pieces   [Bytes][Bytes][Bytes] ... [Bytes][Bytes] ... [Bytes][Bytes]
//!            ^ replica that is behind                      ^ replica that is not
//! ```
//!
//! An offset counts the bytes of the stream, from 0 at its beginning; it is Redis's
//! `master_repl_offset` at that byte. A replica that asks for `PSYNC id n` has `n - 1`
//! bytes and wants what follows.
//!
//! Pieces are shared with the journal and with whoever sends them: nothing is copied.
//! What is kept is `repl-backlog-size`, and what connected replicas have yet to be sent,
//! which their output limit bounds.

use crate::outside::chance::random_hex;
use bytes::Bytes;
use std::collections::VecDeque;

/// The stream that this node is the source of, or passes on.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// The id of the stream: forty hexadecimal digits.
    pub(crate) id: String,
    /// The id that it had before this node became its source, and the offset up to
    /// which that was the same stream; no id if there was none.
    pub(crate) second: Option<(String, u64)>,
    pieces: VecDeque<(u64, Bytes)>,
    /// The offset of the first byte that is there.
    first: u64,
    /// The offset behind the last byte.
    end: u64,
    /// Whether the past is kept.
    active: bool,
}

impl Default for Backlog {
    fn default() -> Self {
        let pieces = VecDeque::new();
        Self { id: random_hex(), second: None, pieces, first: 0, end: 0, active: false }
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
        if self.active && !bytes.is_empty() {
            self.pieces.push_back((at, bytes));
        } else {
            self.first = self.end;
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

    /// What follows an offset, by reference, up to about so many bytes; `None` if that
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
        for word in ["one", "two", "three", "four"] {
            backlog.append(Bytes::from_static(word.as_bytes()));
        }
        let all = b"onetwothreefour";
        for from in 0..=all.len() {
            for most in 1..20 {
                let wanted = &all[from..all.len().min(from + most)];
                assert_eq!(read(&backlog, start + from as u64, most).unwrap(), wanted);
            }
        }
        assert_eq!(read(&backlog, start - 1, 9), None);
        assert_eq!(read(&backlog, backlog.end() + 1, 9), None);
        // Five bytes are to be kept, and somebody still needs "three".
        backlog.trim(5, start + 8);
        assert_eq!((backlog.first, backlog.len()), (start + 6, 9));
        backlog.trim(5, u64::MAX);
        assert_eq!(read(&backlog, backlog.first, 99).unwrap(), b"threefour");
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
