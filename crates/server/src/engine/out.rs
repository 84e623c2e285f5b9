//! Where replies go: bytes in order, with large values by reference between
//! them, so that a 100 MB `GET` copies nothing. Of a packed one it is the packed
//! form that waits here; it is unpacked segment by segment as the client takes
//! it.

use bytes::Bytes;
use snug_codec::{SEGMENT_BYTES, Segments};
use snug_resp::{Protocol, Writer};
use snug_store::{Batch, Damaged, Item, PackedChain, PackedStr, Session, Str};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut, Range};

/// Strings above this many bytes are sent by reference.
const BY_REFERENCE: usize = 64 * 1024;

/// The replies of a batch. Dereferences to nothing: use [`w`](Self::w) for the
/// writer of simple replies.
#[derive(Debug, Default)]
pub(crate) struct Out {
    /// Replies, without what `chunks` holds.
    pub bytes: Vec<u8>,
    /// What goes out by reference, and before which offset of `bytes`.
    pub chunks: Vec<(usize, Chunk)>,
    pub protocol: Protocol,
    chunk_bytes: usize,
}

/// A piece of what is to be sent.
#[derive(Clone, Debug)]
pub(crate) enum Chunk {
    Bytes(Bytes),
    Packed(Unpacking),
}

impl Chunk {
    /// Bytes that it will be for the client.
    pub(crate) fn len(&self) -> usize {
        match self {
            Chunk::Bytes(bytes) => bytes.len(),
            Chunk::Packed(unpacking) => unpacking.len(),
        }
    }
}

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Self {
        Chunk::Bytes(bytes)
    }
}

/// A part of a packed large string on its way out, as a bulk: what was sent of it
/// and a reference to the rest, whatever has become of its key.
#[derive(Clone, Debug)]
pub(crate) struct Unpacking {
    chain: PackedChain,
    rest: Range<usize>,
    /// Before it has begun, its length is still to be told.
    begun: bool,
}

impl Unpacking {
    fn head(&self) -> Vec<u8> {
        let mut head = Vec::new();
        if !self.begun {
            Writer::new(&mut head, Protocol::Resp2).bulk_len(self.rest.len());
        }
        head
    }

    fn len(&self) -> usize {
        self.head().len() + self.rest.len() + CRLF.len()
    }

    /// Unpacks all of it.
    fn append_to(mut self, store: &Batch<'_>, out: &mut Vec<u8>) -> Result<(), Damaged> {
        out.extend_from_slice(&self.head());
        while !self.rest.is_empty() {
            let segment = store.segment(&self.chain, self.rest.start / SEGMENT_BYTES)?;
            let from = self.rest.start % SEGMENT_BYTES;
            let to = segment.len().min(from + self.rest.len());
            out.extend_from_slice(&segment[from..to]);
            self.rest.start += to - from;
        }
        out.extend_from_slice(CRLF);
        Ok(())
    }

    /// Unpacks a segment, and puts what is to be sent before the others. About a
    /// tenth of a millisecond. What is damaged can be told by an error as long
    /// as nothing of it was sent, which is what `Err` gives back.
    pub(crate) fn advance(
        mut self,
        session: &Session,
        queue: &mut VecDeque<Chunk>,
    ) -> Result<(), (Damaged, bool)> {
        let index = self.rest.start / SEGMENT_BYTES;
        let from = self.rest.start % SEGMENT_BYTES;
        let segment = session.segment(&self.chain, index).map_err(|e| (e, !self.begun))?;
        let to = segment.len().min(from + self.rest.len());
        let head = self.head();
        self.rest.start += to - from;
        self.begun = true;
        queue.push_front(match self.rest.is_empty() {
            true => Chunk::Bytes(Bytes::from_static(CRLF)),
            false => Chunk::Packed(self),
        });
        queue.push_front(Chunk::Bytes(segment.slice(from..to)));
        if !head.is_empty() {
            queue.push_front(Chunk::Bytes(head.into()));
        }
        Ok(())
    }
}

const CRLF: &[u8] = b"\r\n";

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

/// So many bytes are copied rather than given away with the buffer that they are in.
const COPIED: usize = 4096;

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

    /// Empties it, and frees its buffer if that has more than so many bytes.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        self.clear();
        if self.bytes.capacity() > bytes {
            self.bytes = Vec::with_capacity(bytes / 4);
        }
    }

    /// Gives away all that was written, in order, and is empty then.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(Chunk)) {
        // The little that is usual is copied, and the buffer stays.
        let bytes = match self.bytes.len() {
            0..=COPIED => Bytes::copy_from_slice(&self.bytes),
            _ => Bytes::from(std::mem::take(&mut self.bytes)),
        };
        let mut from = 0;
        for (at, chunk) in std::mem::take(&mut self.chunks) {
            if at > from {
                each(bytes.slice(from..at).into());
            }
            each(chunk);
            from = at;
        }
        if bytes.len() > from {
            each(bytes.slice(from..).into());
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

    /// All that was written, in one piece, unpacked; for who reads a reply here. It is
    /// empty then.
    pub(crate) fn whole(&mut self, store: &Batch<'_>) -> Result<Vec<u8>, Damaged> {
        let (mut whole, mut result) = (Vec::with_capacity(self.len()), Ok(()));
        self.drain(|chunk| match chunk {
            Chunk::Bytes(bytes) => whole.extend_from_slice(&bytes),
            Chunk::Packed(unpacking) if result.is_ok() => {
                result = unpacking.append_to(store, &mut whole);
            }
            Chunk::Packed(_) => {}
        });
        result.map(|()| whole)
    }

    /// Adds what was written elsewhere.
    pub(crate) fn append(&mut self, other: Self) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.chunks.extend(other.chunks.into_iter().map(|(from, chunk)| (at + from, chunk)));
        self.chunk_bytes += other.chunk_bytes;
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
            Str::PackedLarge(packed) => self.packed_range(packed.checked()?, 0..packed.len()),
        }
        Ok(())
    }

    /// An item of a collection as a bulk; a large one by reference.
    #[inline]
    pub(crate) fn item(&mut self, item: &Item<'_>) {
        match item {
            Item::Bytes(bytes) => self.w().bulk(bytes),
            Item::Large(string) => self.chain(string),
        }
    }

    /// Bytes of a packed large string, which was checked and has them, as a bulk;
    /// unpacked when they are sent.
    pub(crate) fn packed_range(&mut self, chain: PackedChain, range: Range<usize>) {
        let unpacking = Unpacking { chain, rest: range, begun: false };
        self.chunk_bytes += unpacking.len();
        self.chunks.push((self.bytes.len(), Chunk::Packed(unpacking)));
    }

    /// A packed string as a bulk, unpacked in place.
    fn packed(&mut self, packed: PackedStr<'_>) -> Result<(), Damaged> {
        self.w().bulk_len(packed.len());
        packed.append_to(&mut self.bytes)?;
        self.w().crlf();
        Ok(())
    }

    /// A score, or a script's number, as a double, printed as redis-server 7.0 does it.
    #[inline]
    pub(crate) fn score(&mut self, score: f64) {
        let mut text = crate::text::double::Text::default();
        let digits = text.of(score);
        match self.protocol {
            Protocol::Resp2 => self.w().bulk(digits),
            Protocol::Resp3 => {
                self.bytes.push(b',');
                self.bytes.extend_from_slice(digits);
                self.w().crlf();
            }
        }
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
                self.chunks.push((self.bytes.len(), part.slice(within).into()));
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

#[cfg(test)]
mod tests {
    use super::*;
    use snug_codec::{Codec, Workspace, WorkspaceConfig};
    use snug_store::{Store, StoreConfig, Unobserved};

    fn form(raw: &[u8]) -> Vec<u8> {
        let mut form = Vec::new();
        let mut workspace = Workspace::new(WorkspaceConfig::default());
        workspace.pack(Codec::Zstd, 1, None, raw, &mut form).unwrap();
        form
    }

    /// Unpacks all that waits: what was sent, and why no more was.
    fn send(out: &mut Out, session: &Session) -> (Vec<u8>, Option<(Damaged, bool)>) {
        let (mut queue, mut sent) = (VecDeque::new(), Vec::new());
        out.drain(|chunk| queue.push_back(chunk));
        while let Some(chunk) = queue.pop_front() {
            let len: usize = queue.iter().map(Chunk::len).sum::<usize>() + chunk.len();
            match chunk {
                Chunk::Bytes(bytes) => sent.extend_from_slice(&bytes),
                Chunk::Packed(unpacking) => {
                    if let Err(why) = unpacking.advance(session, &mut queue) {
                        return (sent, Some(why));
                    }
                    assert_eq!(queue.iter().map(Chunk::len).sum::<usize>(), len);
                }
            }
        }
        (sent, None)
    }

    #[test]
    fn a_packed_string_is_sent_part_by_part_and_damage_is_told_while_it_can_be() {
        let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
        let session = store.session();
        let raw: Vec<u8> = (0..300_000).map(|i| (i / 1000) as u8).collect();
        let forms: Vec<Vec<u8>> = raw.chunks(SEGMENT_BYTES).map(form).collect();
        let chain = |damaged: Option<usize>| {
            let mut forms = forms.clone();
            if let Some(index) = damaged {
                let len = forms[index].len();
                forms[index].truncate(len - 3);
            }
            PackedChain::of_forms(raw.len(), forms.iter().map(|form| &form[..]))
        };
        for range in [0..300_000, 5..6, 131_071..131_073, 200_000..300_000] {
            let mut out = Out::default();
            out.w().ok();
            out.packed_range(chain(None), range.clone());
            out.w().ok();
            let len = out.len();
            let (sent, why) = send(&mut out, &session);
            let head = format!("+OK\r\n${}\r\n", range.len());
            assert!(sent == [head.as_bytes(), &raw[range], b"\r\n+OK\r\n"].concat());
            assert_eq!((sent.len(), why), (len, None));
        }
        for (damaged, parts) in [(0, 0), (1, 1), (2, 2)] {
            let mut out = Out::default();
            out.packed_range(chain(Some(damaged)), 0..raw.len());
            let (sent, why) = send(&mut out, &session);
            let (_, nothing_sent) = why.expect("the damage is seen");
            assert_eq!(nothing_sent, parts == 0);
            assert!(sent.len() < 20 + parts * SEGMENT_BYTES);
        }
        // Where the heads do not agree with the length, nothing is begun.
        let other = PackedChain::of_forms(raw.len() - 1, forms.iter().map(|form| &form[..]));
        assert!(other.check().is_err());
    }
}
