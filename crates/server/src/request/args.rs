//! The arguments of a command: where they lie in what was received, and kept for later.

use crate::request::error::Error;
use snug_codec::Segments;
use snug_resp::{Argument, Span, parse_integer};
use snug_store::NewStr;
use std::sync::OnceLock;

/// A large argument: a chain, and its one-piece form once somebody asked.
#[derive(Debug, Default)]
pub(crate) struct Large {
    pub chain: Segments,
    flat: OnceLock<Vec<u8>>,
}

impl From<Segments> for Large {
    fn from(chain: Segments) -> Self {
        Self { chain, flat: OnceLock::new() }
    }
}

impl Large {
    fn bytes(&self) -> &[u8] {
        match self.chain.parts() {
            [] => &[],
            [only] => only,
            _ => self.flat.get_or_init(|| self.chain.to_vec()),
        }
    }
}

/// The arguments of a command, its name first. Cheap to copy: it refers to the
/// buffer they were parsed in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args<'a> {
    pub buf: &'a [u8],
    pub spans: &'a [Span],
    pub large: &'a [Large],
}

impl<'a> Args<'a> {
    /// How many there are, the name included.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Argument `index` in one piece (0 is the command's name).
    ///
    /// # Panics
    /// If there is no such argument: arity is checked before a handler runs.
    #[inline]
    pub(crate) fn bytes(&self, index: usize) -> &'a [u8] {
        match self.spans[index].argument(self.buf) {
            Argument::Bytes(bytes) => bytes,
            Argument::Large(n) => self.large[n].bytes(),
        }
    }

    /// The first bytes of argument `index`, at most so many and no more than a segment, and
    /// how long it is in all. A large one stays as it is.
    pub(crate) fn front(&self, index: usize, most: usize) -> (&'a [u8], usize) {
        let (front, len) = match self.spans[index].argument(self.buf) {
            Argument::Bytes(bytes) => (bytes, bytes.len()),
            Argument::Large(n) => {
                let chain = &self.large[n].chain;
                (chain.parts().first().map_or(&[][..], |part| &part[..]), chain.len())
            }
        };
        (&front[..front.len().min(most)], len)
    }

    /// Argument `index` as a value to be stored: a large one stays a chain.
    #[inline]
    pub(crate) fn value(&self, index: usize) -> NewStr<'a> {
        match self.spans[index].argument(self.buf) {
            Argument::Bytes(bytes) => NewStr::Bytes(bytes),
            Argument::Large(n) => NewStr::Chain(self.large[n].chain.clone()),
        }
    }

    /// Argument `index` if there is one.
    pub(crate) fn get(&self, index: usize) -> Option<&'a [u8]> {
        (index < self.len()).then(|| self.bytes(index))
    }

    /// Whether argument `index` is this word, in any case.
    #[inline]
    pub(crate) fn is(&self, index: usize, word: &str) -> bool {
        self.get(index).is_some_and(|bytes| bytes.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Argument `index` as an integer.
    pub(crate) fn int(&self, index: usize) -> Result<i64, Error> {
        parse_integer(self.bytes(index)).ok_or(Error::NOT_INTEGER)
    }

    /// The arguments from `index` on.
    pub(crate) fn iter_from(self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> {
        (index..self.len().max(index)).map(move |i| self.bytes(i))
    }
}

/// A command kept for later: `MULTI` queues these.
#[derive(Debug)]
pub(crate) struct OwnedArgs {
    buf: Vec<u8>,
    spans: Vec<Span>,
    large: Vec<Large>,
}

impl OwnedArgs {
    /// A copy of the arguments; large ones by reference.
    pub(crate) fn new(args: Args<'_>) -> Self {
        let large = args.large.iter().map(|large| Large::from(large.chain.clone())).collect();
        Self { buf: args.buf.to_vec(), spans: args.spans.to_vec(), large }
    }

    /// A command that nobody has sent.
    pub(crate) fn of(command: &[impl AsRef<[u8]>]) -> Self {
        let mut owned = Self { buf: Vec::new(), spans: Vec::new(), large: Vec::new() };
        for arg in command.iter().map(AsRef::as_ref) {
            let start = owned.buf.len();
            owned.buf.extend_from_slice(arg);
            owned.spans.extend(Span::new(start, arg.len()));
        }
        owned
    }

    /// The same with a large argument behind the others.
    pub(crate) fn with_large(mut self, chain: Segments) -> Self {
        self.spans.extend(Span::of_large(self.large.len()));
        self.large.push(Large::from(chain));
        self
    }

    /// Bytes that it keeps.
    pub(crate) fn bytes(&self) -> usize {
        let large: usize = self.large.iter().map(|large| large.chain.len()).sum();
        size_of::<Self>() + self.buf.len() + size_of_val(&self.spans[..]) + large
    }

    /// Puts other bytes in the place of an argument.
    pub(crate) fn replace(&mut self, index: usize, bytes: &[u8]) {
        if let Some(span) = Span::new(self.buf.len(), bytes.len()) {
            self.buf.extend_from_slice(bytes);
            self.spans[index] = span;
        }
    }

    pub(crate) fn args(&self) -> Args<'_> {
        Args { buf: &self.buf, spans: &self.spans, large: &self.large }
    }
}
