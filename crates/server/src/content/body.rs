//! Bodies of answers: a string's bytes, or some of them, by reference.
//!
//! ```text
//!  [ bytes ][ a range of a value ][ bytes ][ a range of a value ] ...
//!    --> 128 KiB at most, then whoever else waits for the worker has a turn --> ...
//! ```
//!
//! A value that is packed in segments is unpacked segment by segment as hyper asks for
//! more, which it does when the socket has taken what came before.

use crate::net::worker;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use snug_codec::coding::{Coding, Encoder, raw_zstd_head};
use snug_codec::{SEGMENT_BYTES, Segments};
use snug_store::{Lies, PackedChain};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context as Task, Poll};

/// A string's value as it was at one moment, by reference.
#[derive(Clone, Debug)]
pub(super) enum Held {
    Bytes(Bytes),
    Chain(Segments),
    Packed(PackedChain),
    /// A string of this length that is sent as it lies, and was not unpacked.
    Unread(usize),
}

impl Held {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Chain(chain) => chain.len(),
            Self::Packed(chain) => chain.len(),
            Self::Unread(len) => *len,
        }
    }

    /// Whether both are the very same memory: then they are equal. Short ones are compared.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Chain(a), Self::Chain(b)) => a.is_same(b),
            (Self::Packed(a), Self::Packed(b)) => a.is_same(b),
            _ => false,
        }
    }

    /// The bytes from `at` on, as many as are there in one piece, at most a segment.
    pub(super) fn piece(&self, at: usize) -> io::Result<Bytes> {
        let (index, within) = (at / SEGMENT_BYTES, at % SEGMENT_BYTES);
        let segment = match self {
            Self::Bytes(bytes) => return Ok(bytes.slice(at.min(bytes.len())..)),
            Self::Chain(chain) => chain.parts().get(index).cloned().unwrap_or_default(),
            Self::Packed(chain) => {
                let segment = worker::with(|scratch| scratch.session.segment(chain, index));
                segment.map_err(io::Error::other)?
            }
            Self::Unread(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        if within >= segment.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(segment.slice(within..))
    }
}

/// A string as it lies, packed: where that is a coding of HTTP.
#[derive(Clone, Debug)]
pub(super) enum Lying {
    /// The form of a short one, without its header.
    Form(Bytes),
    /// A long one, whose segments are frames of zstd or were not packed.
    Chain(PackedChain),
}

/// The coding that a packed chain is, if it is one, and the length of that.
pub(super) fn coding_of_chain(chain: &PackedChain) -> Option<(Coding, usize)> {
    let (mut coding, mut len) = (None, 0);
    for index in 0..chain.segments() {
        let one = match chain.lies(index)? {
            Lies::Raw(bytes) => {
                len += raw_zstd_head(bytes.len()).len() + bytes.len();
                Coding::Zstd
            }
            Lies::Packed(form) => {
                let (one, body) = Coding::of_form(form)?;
                len += one.prefix().len() + body.len();
                one
            }
        };
        // Only frames of zstd may follow each other.
        if coding.is_some_and(|coding| coding != one || one != Coding::Zstd) {
            return None;
        }
        coding = Some(one);
    }
    Some((coding?, len))
}

#[derive(Debug)]
enum Piece {
    Bytes(Bytes),
    Of(Held, Range<usize>),
    /// The segments of a chain as they lie, from this one on.
    Lying(PackedChain, usize),
    /// A value that is encoded as it is sent.
    Made(Box<Making>),
}

/// A value that is being encoded.
#[derive(Debug)]
struct Making {
    held: Held,
    /// What comes next: bytes of a segment that was read, then the segment from `at` on.
    read: Bytes,
    at: usize,
    encoder: Encoder,
    _place: Place,
}

/// Bodies that a worker encodes at once, of up to 3 MB of working memory each: however many
/// read theirs slowly, the others get theirs as they are.
const MAKING_MAX: usize = 64;

thread_local! {
    static MAKING: Cell<usize> = const { Cell::new(0) };
}

/// The place of one of them.
#[derive(Debug)]
pub(super) struct Place(());

impl Place {
    /// A place, if there is one or there `must` be.
    pub(super) fn take(must: bool) -> Option<Self> {
        let taken = MAKING.get();
        (must || taken < MAKING_MAX).then(|| {
            MAKING.set(taken + 1);
            Self(())
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        MAKING.set(MAKING.get().saturating_sub(1));
    }
}

/// Raw bytes that are encoded at once.
const ENCODED_AT_ONCE: usize = 4 * 1024;

/// The body of an answer.
#[derive(Debug, Default)]
pub(super) struct Body {
    pieces: VecDeque<Piece>,
    left: u64,
    /// Others have their turn before the next piece.
    rests: bool,
    /// How long it is will be known at its end.
    open: bool,
}

impl Body {
    pub(super) fn empty() -> Self {
        Self::default()
    }

    pub(super) fn of(bytes: Bytes) -> Self {
        let mut body = Self::empty();
        body.push_bytes(bytes);
        body
    }

    pub(super) fn push_bytes(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.left += bytes.len() as u64;
            self.pieces.push_back(Piece::Bytes(bytes));
        }
    }

    /// Adds bytes of a value, which has them.
    pub(super) fn push(&mut self, held: &Held, range: Range<usize>) {
        if let Held::Bytes(bytes) = held {
            return self.push_bytes(bytes.slice(range));
        }
        if !range.is_empty() {
            self.left += range.len() as u64;
            self.pieces.push_back(Piece::Of(held.clone(), range));
        }
    }

    /// Adds a packed chain as it lies, which is a coding.
    pub(super) fn push_lying(&mut self, chain: &PackedChain) {
        let len = coding_of_chain(chain).map_or(0, |(_, len)| len);
        self.left += len as u64;
        self.pieces.push_back(Piece::Lying(chain.clone(), 0));
    }

    /// Adds what an encoder makes of a value, as it is sent.
    pub(super) fn push_made(&mut self, held: &Held, encoder: Encoder, place: Place) {
        self.open = true;
        let (held, read) = (held.clone(), Bytes::new());
        self.pieces.push_back(Piece::Made(Box::new(Making {
            held,
            read,
            at: 0,
            encoder,
            _place: place,
        })));
    }

    /// Bytes that are still to be sent, if that is known.
    pub(super) fn len(&self) -> Option<u64> {
        (!self.open).then_some(self.left)
    }

    fn next(&mut self) -> Option<io::Result<Bytes>> {
        match self.pieces.pop_front()? {
            Piece::Bytes(bytes) => Some(Ok(bytes)),
            Piece::Of(held, mut range) => Some(held.piece(range.start).map(|mut bytes| {
                bytes.truncate(range.len());
                range.start += bytes.len();
                if !range.is_empty() {
                    self.pieces.push_front(Piece::Of(held, range));
                }
                self.rests = true;
                bytes
            })),
            Piece::Lying(chain, index) => Some(self.next_lying(chain, index)),
            Piece::Made(making) => Some(self.next_made(making)),
        }
    }

    fn next_lying(&mut self, chain: PackedChain, index: usize) -> io::Result<Bytes> {
        let (head, bytes) = match chain.lies(index).ok_or(io::ErrorKind::UnexpectedEof)? {
            Lies::Raw(bytes) => (raw_zstd_head(bytes.len()).to_vec(), bytes.clone()),
            Lies::Packed(form) => {
                let (coding, body) = Coding::of_form(form).ok_or(io::ErrorKind::InvalidData)?;
                (coding.prefix().to_vec(), Bytes::copy_from_slice(body))
            }
        };
        if index + 1 < chain.segments() {
            self.pieces.push_front(Piece::Lying(chain, index + 1));
        }
        self.pieces.push_front(Piece::Bytes(bytes));
        self.rests = true;
        Ok(head.into())
    }

    /// Encodes a little. What comes of it may be nothing yet.
    fn next_made(&mut self, mut making: Box<Making>) -> io::Result<Bytes> {
        self.rests = true;
        if making.read.is_empty() {
            if making.at >= making.held.len() {
                return making.encoder.finish().map(Bytes::from);
            }
            making.read = making.held.piece(making.at)?;
            making.at += making.read.len();
        }
        let raw = making.read.split_to(making.read.len().min(ENCODED_AT_ONCE));
        let made = making.encoder.push(&raw)?;
        self.pieces.push_front(Piece::Made(making));
        Ok(made.into())
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        task: &mut Task<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let body = self.get_mut();
        if std::mem::take(&mut body.rests) && !body.pieces.is_empty() {
            task.waker().wake_by_ref();
            return Poll::Pending;
        }
        match body.next() {
            Some(Ok(bytes)) if bytes.is_empty() && !body.pieces.is_empty() => {
                body.rests = false;
                task.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Ok(bytes)) => {
                body.left = body.left.saturating_sub(bytes.len() as u64);
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        if self.open { SizeHint::new() } else { SizeHint::with_exact(self.left) }
    }
}
