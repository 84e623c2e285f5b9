//! A large value as a chain of segments, so that no part of Snug ever needs a
//! contiguous buffer above [`SEGMENT_BYTES`].
//!
//! ```text
//!  Segments { len }
//!     parts: [ Bytes 128 KiB ][ Bytes 128 KiB ] ... [ Bytes 1..=128 KiB ]
//! ```
//!
//! Every part but the last is exactly [`SEGMENT_BYTES`] long, so the part that
//! holds an offset is found by a division. Parts are reference-counted
//! ([`Bytes`]): cloning a chain to send it costs one count per part and copies
//! nothing, and a write copies only the part it touches, and only while a
//! reader still holds it.

use bytes::{BufMut, Bytes, BytesMut};

/// The size of every segment but a chain's last one, in bytes.
pub const SEGMENT_BYTES: usize = 128 * 1024;

/// A chain of byte segments. Cheap to clone; copy-on-write per segment.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Segments {
    len: usize,
    parts: Vec<Bytes>,
}

impl std::fmt::Debug for Segments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segments({} bytes in {} parts)", self.len, self.parts.len())
    }
}

impl From<&[u8]> for Segments {
    fn from(bytes: &[u8]) -> Self {
        let mut chain = Self::default();
        chain.append(bytes);
        chain
    }
}

impl Segments {
    /// The length in bytes of the whole chain. O(1).
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the chain holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The segments in order.
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// The heap bytes held, list of parts included (parts that other chains
    /// share are counted in full).
    pub fn heap_bytes(&self) -> usize {
        self.parts.capacity() * size_of::<Bytes>() + self.len
    }

    /// The bytes `start..end` (clamped to the chain) as contiguous pieces, each
    /// a reference into the chain. O(1) to begin, O(1) per piece.
    pub fn range(&self, start: usize, end: usize) -> impl Iterator<Item = &[u8]> {
        let end = end.min(self.len);
        let start = start.min(end);
        let first = start / SEGMENT_BYTES;
        let last = end.div_ceil(SEGMENT_BYTES).max(first);
        self.parts[first..last.min(self.parts.len())].iter().enumerate().filter_map(
            move |(i, part)| {
                let base = (first + i) * SEGMENT_BYTES;
                let from = start.saturating_sub(base);
                let to = (end - base).min(part.len());
                (from < to).then(|| &part[from..to])
            },
        )
    }

    /// The byte at `offset`, if there is one.
    pub fn get(&self, offset: usize) -> Option<u8> {
        self.parts.get(offset / SEGMENT_BYTES)?.get(offset % SEGMENT_BYTES).copied()
    }

    /// The whole chain in one allocation: for the few consumers that cannot
    /// work on pieces. O(len).
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len);
        for part in &self.parts {
            out.extend_from_slice(part);
        }
        out
    }

    /// Appends `bytes`. O(`bytes.len()`) plus at most one segment's copy.
    pub fn append(&mut self, mut bytes: &[u8]) {
        if !self.len.is_multiple_of(SEGMENT_BYTES) && !bytes.is_empty() {
            let room = SEGMENT_BYTES - self.len % SEGMENT_BYTES;
            let (head, rest) = bytes.split_at(room.min(bytes.len()));
            let mut tail = self.take_mut(self.parts.len() - 1, SEGMENT_BYTES);
            tail.extend_from_slice(head);
            self.parts.push(tail.freeze());
            self.len += head.len();
            bytes = rest;
        }
        for chunk in bytes.chunks(SEGMENT_BYTES) {
            self.parts.push(Bytes::copy_from_slice(chunk));
            self.len += chunk.len();
        }
    }

    /// Writes `bytes` at `offset`, extending the chain with zeros where it is
    /// shorter. O(`bytes.len()`) plus the copy of the segments touched that a
    /// reader still shares.
    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) {
        self.extend_with_zeros(offset);
        let overlap = bytes.len().min(self.len - offset);
        let (inside, beyond) = bytes.split_at(overlap);
        let (mut at, mut rest) = (offset, inside);
        while !rest.is_empty() {
            let index = at / SEGMENT_BYTES;
            let within = at % SEGMENT_BYTES;
            let n = rest.len().min(self.parts[index].len() - within);
            let part = std::mem::take(&mut self.parts[index]);
            let mut part = into_mut(part, 0);
            part[within..within + n].copy_from_slice(&rest[..n]);
            self.parts[index] = part.freeze();
            at += n;
            rest = &rest[n..];
        }
        self.append(beyond);
    }

    /// Extends the chain with zeros up to `len`; no effect when it is as long.
    pub fn extend_with_zeros(&mut self, len: usize) {
        while self.len < len {
            let within = self.len % SEGMENT_BYTES;
            let n = (len - self.len).min(SEGMENT_BYTES - within);
            let mut tail = match within {
                0 => BytesMut::with_capacity(n),
                _ => self.take_mut(self.parts.len() - 1, within + n),
            };
            tail.put_bytes(0, n);
            self.parts.push(tail.freeze());
            self.len += n;
        }
    }

    /// Takes the last part out as a mutable buffer with room for `capacity`.
    fn take_mut(&mut self, last: usize, capacity: usize) -> BytesMut {
        debug_assert_eq!(last + 1, self.parts.len());
        into_mut(self.parts.pop().expect("a chain with a partial tail has a part"), capacity)
    }
}

/// The bytes as a mutable buffer with at least `capacity`: the same allocation
/// when nobody else holds it and it is large enough, a copy otherwise.
fn into_mut(part: Bytes, capacity: usize) -> BytesMut {
    match part.try_into_mut() {
        Ok(mut own) => {
            own.reserve(capacity.saturating_sub(own.len()));
            own
        }
        Err(shared) => {
            let mut own = BytesMut::with_capacity(capacity.max(shared.len()));
            own.extend_from_slice(&shared);
            own
        }
    }
}

/// Fills a chain of a length known beforehand, segment by segment, straight
/// from a reader: read into [`spare`](Self::spare), [`advance`](Self::advance),
/// until [`remaining`](Self::remaining) is 0, then [`finish`](Self::finish).
#[derive(Debug)]
pub struct SegmentsFiller {
    chain: Segments,
    /// The segment being filled, as long as it will be, zeros past `filled`.
    tail: Vec<u8>,
    filled: usize,
    remaining: usize,
}

impl SegmentsFiller {
    /// A filler for a chain of `len` bytes. Allocates one segment at a time, as
    /// bytes arrive: a claimed length costs nothing by itself.
    pub fn new(len: usize) -> Self {
        Self { chain: Segments::default(), tail: Vec::new(), filled: 0, remaining: len }
    }

    /// Bytes still to come.
    pub fn remaining(&self) -> usize {
        self.remaining
    }

    /// Bytes received so far.
    pub fn filled(&self) -> usize {
        self.chain.len + self.filled
    }

    /// Takes what it can of `bytes` (all, or as many as remain); how many.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.remaining);
        let mut rest = &bytes[..taken];
        while !rest.is_empty() {
            let spare = self.spare();
            let n = spare.len().min(rest.len());
            spare[..n].copy_from_slice(&rest[..n]);
            self.advance(n);
            rest = &rest[n..];
        }
        taken
    }

    /// The room to read into next: at most one segment, never more than
    /// `remaining`, empty only when nothing remains.
    pub fn spare(&mut self) -> &mut [u8] {
        if self.tail.is_empty() {
            self.tail = vec![0; self.remaining.min(SEGMENT_BYTES)];
        }
        &mut self.tail[self.filled..]
    }

    /// Counts the first `n` bytes of the last `spare` as filled.
    pub fn advance(&mut self, n: usize) {
        self.filled += n;
        self.remaining -= n;
        if self.filled == self.tail.len() {
            self.chain.len += self.filled;
            self.chain.parts.push(Bytes::from(std::mem::take(&mut self.tail)));
            self.filled = 0;
        }
    }

    /// The chain; whole if nothing remains, else what has arrived.
    pub fn finish(mut self) -> Segments {
        self.tail.truncate(self.filled);
        if self.filled > 0 {
            self.chain.len += self.filled;
            self.chain.parts.push(Bytes::from(self.tail));
        }
        self.chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Any mix of appends and writes reads back as the same mix on a `Vec`.
        #[test]
        fn a_chain_is_a_vec(ops in prop::collection::vec((any::<bool>(), 0usize..400_000, 0usize..300_000, any::<u8>(), any::<bool>()), 1..8)) {
            let (mut chain, mut plain) = (Segments::default(), Vec::new());
            let mut readers = Vec::new();
            for (append, offset, len, byte, share) in ops {
                let bytes = vec![byte; len];
                if share {
                    readers.push((chain.clone(), plain.clone()));
                }
                if append {
                    chain.append(&bytes);
                    plain.extend_from_slice(&bytes);
                } else {
                    chain.write_at(offset, &bytes);
                    if plain.len() < offset + len { plain.resize((offset + len).max(plain.len()), 0); }
                    plain[offset..offset + len].copy_from_slice(&bytes);
                }
                prop_assert_eq!(chain.len(), plain.len());
                prop_assert!(chain.parts().iter().rev().skip(1).all(|p| p.len() == SEGMENT_BYTES));
                let (a, b) = (offset.min(plain.len()), (offset + len / 2).min(plain.len()));
                prop_assert!(chain.range(offset, offset + len / 2).flatten().eq(&plain[a..b]));
                prop_assert_eq!(chain.get(offset), plain.get(offset).copied());
            }
            prop_assert!(chain.to_vec() == plain);
            for (chain, plain) in readers {
                prop_assert!(chain.to_vec() == plain, "a write was seen through a shared chain");
            }
        }

        #[test]
        fn a_filler_gives_back_what_it_took(len in 0usize..400_000, step in 1usize..200_000) {
            let bytes: Vec<u8> = (0..len).map(|i| (i / 7) as u8).collect();
            let mut filler = SegmentsFiller::new(len);
            for chunk in bytes.chunks(step) {
                prop_assert_eq!(filler.append(chunk), chunk.len());
            }
            prop_assert_eq!(filler.remaining(), 0);
            prop_assert_eq!(filler.append(b"more"), 0);
            prop_assert!(filler.finish().to_vec() == bytes);
        }
    }
}
