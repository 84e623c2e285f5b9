//! A large value as a chain of segments, so that no part of Snug ever needs a
//! contiguous buffer above [`SEGMENT_BYTES`].
//!
//! ```text
//!  Segments { len, room of the last part }
//!     parts: [ Bytes 128 KiB ][ Bytes 128 KiB ] ... [ Bytes 1..=128 KiB ]
//! ```
//!
//! Every part but the last is exactly [`SEGMENT_BYTES`] long, so the part that
//! holds an offset is found by a division. Parts are reference-counted
//! ([`Bytes`]): cloning a chain to send it costs one count per part and copies
//! nothing, and a write copies only the part it touches, and only while a
//! reader still holds it.

use std::mem::MaybeUninit;

use bytes::{BufMut, Bytes, BytesMut};

/// The size of every segment but a chain's last one, in bytes. Under Miri, which is a
/// thousand times slower, as small as shows the same.
pub const SEGMENT_BYTES: usize = if cfg!(miri) { 256 } else { 128 * 1024 };

/// A chain of byte segments. Cheap to clone; copy-on-write per segment.
#[derive(Clone, Default)]
pub struct Segments {
    len: usize,
    /// What the last part was allocated with; the others hold just what they
    /// are long.
    last_room: usize,
    parts: Vec<Bytes>,
}

impl PartialEq for Segments {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

impl Eq for Segments {}

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

    /// An empty chain with room in its list for the segments of `len` bytes.
    pub fn with_room_for(len: usize) -> Self {
        let parts = Vec::with_capacity(len.div_ceil(SEGMENT_BYTES));
        Self { parts, ..Self::default() }
    }

    /// Segment `index` as a chain of its own, sharing it.
    pub fn segment(&self, index: usize) -> Option<Self> {
        let part = self.parts.get(index)?.clone();
        let is_last = index + 1 == self.parts.len();
        let last_room = if is_last { self.last_room } else { SEGMENT_BYTES };
        Some(Self { len: part.len(), last_room, parts: vec![part] })
    }

    /// Adds a segment behind the others by reference: one that was allocated
    /// with just its length. What does not fit there as it is is copied.
    pub fn push_segment(&mut self, part: Bytes) {
        let fits = self.len.is_multiple_of(SEGMENT_BYTES) && part.len() <= SEGMENT_BYTES;
        if !fits || part.is_empty() {
            return self.append(&part);
        }
        self.len += part.len();
        self.last_room = part.len();
        self.parts.push(part);
    }

    /// Whether both chains are the very same memory: while both are held, the
    /// same bytes. O(segments).
    pub fn is_same(&self, other: &Self) -> bool {
        let place = |part: &Bytes| (part.as_ptr(), part.len());
        self.parts.iter().map(place).eq(other.parts.iter().map(place))
    }

    /// The segments in order.
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// The heap bytes held: the segments and their list, each as `usable` says
    /// that an allocation of so many bytes weighs. O(1). Segments that other
    /// chains share are counted in full; their counts of references are not.
    pub fn allocated(&self, usable: impl Fn(usize) -> usize) -> usize {
        let list = match self.parts.capacity() {
            0 => 0,
            capacity => usable(capacity * size_of::<Bytes>()),
        };
        match self.parts.len() {
            0 => list,
            parts => list + (parts - 1) * usable(SEGMENT_BYTES) + usable(self.last_room),
        }
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
            let mut tail = self.take_last(SEGMENT_BYTES);
            tail.extend_from_slice(head);
            self.push(tail);
            bytes = rest;
        }
        for chunk in bytes.chunks(SEGMENT_BYTES) {
            self.push(BytesMut::from(chunk));
        }
    }

    /// Adds a part behind the last one, which is full.
    fn push(&mut self, part: BytesMut) {
        self.len += part.len();
        self.last_room = part.capacity();
        self.parts.push(part.freeze());
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
            if index + 1 == self.parts.len() {
                self.last_room = part.capacity();
            }
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
                _ => self.take_last(within + n),
            };
            tail.put_bytes(0, n);
            self.push(tail);
        }
    }

    /// Takes the last part out as a mutable buffer with room for `capacity`.
    fn take_last(&mut self, capacity: usize) -> BytesMut {
        let part = self.parts.pop().unwrap_or_default();
        self.len -= part.len();
        into_mut(part, capacity)
    }
}

/// The bytes as a mutable buffer with at least `capacity`: the same allocation
/// when nobody else holds it and it is large enough, a copy of just that
/// capacity otherwise.
fn into_mut(part: Bytes, capacity: usize) -> BytesMut {
    match part.try_into_mut() {
        Ok(own) if own.capacity() >= capacity => own,
        Ok(own) => copied(&own, capacity),
        Err(shared) => copied(&shared, capacity),
    }
}

fn copied(bytes: &[u8], capacity: usize) -> BytesMut {
    let mut own = BytesMut::with_capacity(capacity.max(bytes.len()));
    own.extend_from_slice(bytes);
    own
}

/// Fills a chain of a length known beforehand, segment by segment, straight
/// from a reader: read into [`spare`](Self::spare), [`advance`](Self::advance),
/// until [`remaining`](Self::remaining) is 0, then [`finish`](Self::finish).
#[derive(Debug)]
pub struct SegmentsFiller {
    chain: Segments,
    /// The segment being filled: what is filled, and perhaps zeros behind it.
    tail: Vec<u8>,
    /// How long the tail will be; 0 before it is begun.
    tail_len: usize,
    filled: usize,
    remaining: usize,
}

/// A list of parts is reserved for as many at once; a longer one grows.
const PARTS_RESERVED_MAX: usize = 128;

impl SegmentsFiller {
    /// A filler for a chain of `len` bytes. Allocates one segment at a time, as
    /// bytes arrive: a claimed length costs nothing by itself.
    pub fn new(len: usize) -> Self {
        let chain = Segments::default();
        Self { chain, tail: Vec::new(), tail_len: 0, filled: 0, remaining: len }
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
            self.begin();
            let n = rest.len().min(self.tail_len - self.filled);
            self.tail.truncate(self.filled);
            self.tail.extend_from_slice(&rest[..n]);
            self.advance(n);
            rest = &rest[n..];
        }
        taken
    }

    /// The room to read into next: at most one segment, never more than
    /// `remaining`, empty only when nothing remains.
    pub fn spare(&mut self) -> &mut [u8] {
        self.begin();
        self.tail.resize(self.tail_len, 0);
        &mut self.tail[self.filled..]
    }

    /// [`Self::spare`] for those who write without reading: not yet initialised,
    /// and so not paid for twice.
    pub(crate) fn spare_uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        self.begin();
        self.tail.truncate(self.filled);
        let room = self.tail_len - self.filled;
        &mut self.tail.spare_capacity_mut()[..room]
    }

    /// Counts the first `n` bytes of the last [`Self::spare_uninit`] as filled.
    ///
    /// # Safety
    /// They have been written.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn advance_written(&mut self, n: usize) {
        debug_assert!(self.tail.len() == self.filled && self.filled + n <= self.tail_len);
        // SAFETY: within the capacity, which `begin` made, and written.
        unsafe { self.tail.set_len(self.filled + n) };
        self.advance(n);
    }

    /// Counts the first `n` bytes of the last `spare` as filled.
    pub fn advance(&mut self, n: usize) {
        self.filled += n;
        self.remaining -= n;
        if self.filled == self.tail_len && self.filled > 0 {
            self.push_tail();
        }
    }

    /// Begins a segment, if something remains and none is begun.
    fn begin(&mut self) {
        if self.tail_len == 0 && self.remaining > 0 {
            self.tail_len = self.remaining.min(SEGMENT_BYTES);
            self.tail.reserve_exact(self.tail_len);
            if self.chain.parts.is_empty() {
                let parts = self.remaining.div_ceil(SEGMENT_BYTES);
                self.chain.parts.reserve_exact(parts.min(PARTS_RESERVED_MAX));
            }
        }
    }

    fn push_tail(&mut self) {
        let mut tail = std::mem::take(&mut self.tail);
        tail.truncate(self.filled);
        self.chain.len += tail.len();
        self.chain.last_room = tail.capacity();
        self.chain.parts.push(Bytes::from(tail));
        (self.tail_len, self.filled) = (0, 0);
    }

    /// The chain; whole if nothing remains, else what has arrived.
    pub fn finish(mut self) -> Segments {
        if self.filled > 0 {
            self.push_tail();
        }
        self.chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes the chain, which nobody shares, apart and asks each part.
    fn allocated_by_looking(chain: Segments) -> usize {
        let list = chain.parts.capacity() * size_of::<Bytes>();
        let room = |part: Bytes| part.try_into_mut().expect("not shared").capacity();
        list + chain.parts.into_iter().map(room).sum::<usize>()
    }

    /// Gives all of `bytes` to `some`, which takes some of them at a time.
    fn fill(
        mut bytes: &[u8],
        filler: &mut SegmentsFiller,
        some: impl Fn(&mut SegmentsFiller, &[u8]) -> usize,
    ) {
        while !bytes.is_empty() {
            let taken = some(filler, bytes);
            bytes = &bytes[taken..];
        }
    }

    #[allow(unsafe_code)]
    fn write_uninit(filler: &mut SegmentsFiller, bytes: &[u8]) -> usize {
        let room = filler.spare_uninit();
        let n = room.len().min(bytes.len());
        for (to, &byte) in room.iter_mut().zip(bytes) {
            to.write(byte);
        }
        // SAFETY: they have just been written.
        unsafe { filler.advance_written(n) };
        n
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 12 } else { 256 }))]

        /// Any mix of appends and writes reads back as the same mix on a `Vec`.
        #[test]
        fn a_chain_is_a_vec(ops in prop::collection::vec((any::<bool>(), 0..3 * SEGMENT_BYTES, 0..9 * SEGMENT_BYTES / 4, any::<u8>(), any::<bool>()), 1..8)) {
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
                prop_assert!(chain.allocated(|bytes| bytes) >= chain.len());
                let (a, b) = (offset.min(plain.len()), (offset + len / 2).min(plain.len()));
                prop_assert!(chain.range(offset, offset + len / 2).flatten().eq(&plain[a..b]));
                prop_assert_eq!(chain.get(offset), plain.get(offset).copied());
            }
            prop_assert!(chain.to_vec() == plain);
            for (chain, plain) in readers {
                prop_assert!(chain.to_vec() == plain, "a write was seen through a shared chain");
            }
            prop_assert_eq!(chain.allocated(|bytes| bytes), allocated_by_looking(chain));
        }

        /// A chain put together from shared segments is the same, and a write to
        /// either is not seen through the other.
        #[test]
        fn segments_are_shared(len in 0..5 * SEGMENT_BYTES, at in 0..5 * SEGMENT_BYTES) {
            let bytes: Vec<u8> = (0..len).map(|i| (i / 9) as u8).collect();
            let mut chain = Segments::from(&bytes[..]);
            let mut again = Segments::with_room_for(len);
            for index in 0..chain.parts().len() {
                let one = chain.segment(index).unwrap();
                prop_assert_eq!(one.len(), chain.parts()[index].len());
                again.push_segment(one.parts()[0].clone());
            }
            prop_assert!(chain.segment(chain.parts().len()).is_none());
            prop_assert!(again.is_same(&chain) && again == chain);
            again.push_segment(Bytes::from_static(b"tail"));
            prop_assert!(again.to_vec() == [&bytes[..], b"tail"].concat());
            chain.write_at(at, b"other");
            prop_assert!(!again.is_same(&chain));
            prop_assert!(again.to_vec() == [&bytes[..], b"tail"].concat());
        }

        #[test]
        fn a_filler_gives_back_what_it_took(len in 0..3 * SEGMENT_BYTES, step in 1..3 * SEGMENT_BYTES / 2, how in 0usize..6) {
            let bytes: Vec<u8> = (0..len).map(|i| (i / 7) as u8).collect();
            let mut filler = SegmentsFiller::new(len);
            for (i, chunk) in bytes.chunks(step).enumerate() {
                match (i + how) % 3 {
                    0 => prop_assert_eq!(filler.append(chunk), chunk.len()),
                    1 => fill(chunk, &mut filler, |filler, chunk| {
                        let n = chunk.len().min(filler.spare().len());
                        filler.spare()[..n].copy_from_slice(&chunk[..n]);
                        filler.advance(n);
                        n
                    }),
                    _ => fill(chunk, &mut filler, write_uninit),
                }
            }
            prop_assert_eq!(filler.remaining(), 0);
            prop_assert_eq!(filler.append(b"more"), 0);
            let chain = filler.finish();
            prop_assert!(chain.to_vec() == bytes);
            prop_assert_eq!(chain.allocated(|bytes| bytes), allocated_by_looking(chain));
        }
    }
}
