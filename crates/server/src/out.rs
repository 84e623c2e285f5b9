//! Where replies go: bytes in order, with large values by reference between
//! them, so that a 100 MB `GET` copies nothing.

use bytes::Bytes;
use snug_codec::{SEGMENT_BYTES, Segments};
use snug_resp::{Protocol, Writer};
use snug_store::{Damaged, PackedStr, Str};
use std::ops::{Deref, DerefMut};

/// Strings above this many bytes are sent by reference.
const BY_REFERENCE: usize = 64 * 1024;

/// The replies of a batch. Dereferences to nothing: use [`w`](Self::w) for the
/// writer of simple replies.
#[derive(Debug, Default)]
pub(crate) struct Out {
    /// Replies, without what `chunks` holds.
    pub bytes: Vec<u8>,
    /// What goes out by reference, and before which offset of `bytes`.
    pub chunks: Vec<(usize, Bytes)>,
    pub protocol: Protocol,
    chunk_bytes: usize,
}

/// Temporary access to a [`Writer`].
#[derive(Debug)]
pub(crate) struct Replies<'a>(Writer<'a>);

impl<'a> Deref for Replies<'a> {
    type Target = Writer<'a>;
    fn deref(&self) -> &Writer<'a> {
        &self.0
    }
}

impl<'a> DerefMut for Replies<'a> {
    fn deref_mut(&mut self) -> &mut Writer<'a> {
        &mut self.0
    }
}

impl Out {
    /// The writer of replies.
    #[inline]
    pub(crate) fn w(&mut self) -> Replies<'_> {
        Replies(Writer::new(&mut self.bytes, self.protocol))
    }

    /// Bytes waiting here.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.chunk_bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.chunks.clear();
        self.chunk_bytes = 0;
    }

    /// Gives away all that was written, in order, and is empty then.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(Bytes)) {
        let bytes = Bytes::from(std::mem::take(&mut self.bytes));
        let mut from = 0;
        for (at, chunk) in std::mem::take(&mut self.chunks) {
            if at > from {
                each(bytes.slice(from..at));
            }
            each(chunk);
            from = at;
        }
        if bytes.len() > from {
            each(bytes.slice(from..));
        }
        self.clear();
    }

    /// Takes back what was written since the sink had this length; for replies
    /// that are not to be sent.
    pub(crate) fn truncate(&mut self, mark: OutMark) {
        self.bytes.truncate(mark.bytes);
        for (_, chunk) in self.chunks.drain(mark.chunks..) {
            self.chunk_bytes -= chunk.len();
        }
    }

    /// Puts bytes before what was written since the sink had this length.
    pub(crate) fn insert(&mut self, mark: OutMark, bytes: &[u8]) {
        self.bytes.splice(mark.bytes..mark.bytes, bytes.iter().copied());
        for (at, _) in &mut self.chunks[mark.chunks..] {
            *at += bytes.len();
        }
    }

    /// This point, for [`truncate`](Self::truncate).
    pub(crate) fn mark(&self) -> OutMark {
        OutMark { bytes: self.bytes.len(), chunks: self.chunks.len() }
    }

    /// A string value as a bulk. What is written of one that is damaged is to be
    /// taken back.
    #[inline]
    pub(crate) fn string(&mut self, string: Str<'_>) -> Result<(), Damaged> {
        match string {
            Str::Int(value) => self.w().bulk_integer(value),
            Str::Bytes(bytes) => self.w().bulk(bytes),
            Str::Chain(chain) => self.chain(chain),
            Str::Packed(packed) => return self.packed(packed),
        }
        Ok(())
    }

    /// A packed string as a bulk, unpacked in place.
    fn packed(&mut self, packed: PackedStr<'_>) -> Result<(), Damaged> {
        self.w().bulk_len(packed.len());
        packed.append_to(&mut self.bytes)?;
        self.w().crlf();
        Ok(())
    }

    /// A chain as a bulk, by reference.
    pub(crate) fn chain(&mut self, chain: &Segments) {
        self.chain_range(chain, 0, chain.len());
    }

    /// The bytes `start..end` of a chain, which has them, as a bulk; many of
    /// them by reference.
    pub(crate) fn chain_range(&mut self, chain: &Segments, start: usize, end: usize) {
        self.w().bulk_len(end - start);
        let by_reference = end - start >= BY_REFERENCE;
        let first = start / SEGMENT_BYTES;
        for (i, part) in chain.parts().iter().enumerate().skip(first) {
            let base = i * SEGMENT_BYTES;
            if base >= end {
                break;
            }
            let within = start.saturating_sub(base)..(end - base).min(part.len());
            if by_reference {
                self.chunk_bytes += within.len();
                self.chunks.push((self.bytes.len(), part.slice(within)));
            } else {
                self.bytes.extend_from_slice(&part[within]);
            }
        }
        self.w().crlf();
    }
}

/// A point in an [`Out`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutMark {
    bytes: usize,
    chunks: usize,
}
