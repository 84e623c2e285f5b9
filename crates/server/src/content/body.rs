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
use snug_codec::{SEGMENT_BYTES, Segments};
use snug_store::PackedChain;
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
}

impl Held {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Chain(chain) => chain.len(),
            Self::Packed(chain) => chain.len(),
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
        };
        if within >= segment.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(segment.slice(within..))
    }
}

#[derive(Debug)]
enum Piece {
    Bytes(Bytes),
    Of(Held, Range<usize>),
}

/// The body of an answer.
#[derive(Debug, Default)]
pub(super) struct Body {
    pieces: VecDeque<Piece>,
    left: u64,
    /// Others have their turn before the next piece.
    rests: bool,
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

    /// Bytes that are still to be sent.
    pub(super) fn len(&self) -> u64 {
        self.left
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
        }
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
        Poll::Ready(body.next().map(|bytes| {
            bytes.map(|bytes| {
                body.left -= bytes.len() as u64;
                Frame::data(bytes)
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
