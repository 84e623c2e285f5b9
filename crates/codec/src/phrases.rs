//! Phrases: values of a family written as what they have in common, byte strings
//! of a shared table, each by a code of a few bits.
//!
//! A window (zstd's, with or without a dictionary) must say for each repetition
//! where it is found and how long it is, and of a small value there is little to
//! learn codes from. Here both are the table's, trained once: a word that all of
//! a family's values use takes 8 bits, not 20. What repeats within one value only
//! is better left to zstd; which of them a family gets is decided by what its
//! samples pack to (`family.rs`).
//!
//! ```text
//!  {"name":"the small house","ok":true}
//!  ──────┬─ ─┬─ ──┬─── ──┬── ────┬────
//!       312 871  2044   1203    97      phrases of the table
//!  00101 1101001 01110101 ...           their codes, 1 to 15 bits
//! ```
//!
//! Which codes: after each byte other phrases are likely. The bytes are grouped
//! into at most 31 contexts, so that those after which the same follows share
//! one. A context has codes for the phrases met in it, and one that says that
//! the next code is of the common ones, which all phrases have. So every value
//! can be packed with every table.
//!
//! Costs: packing looks for the cheapest way through the value, some tens of
//! nanoseconds a byte; unpacking copies a phrase for each code, some five
//! nanoseconds, of which a value of some length needs several at once. Neither
//! allocates. A table weighs some 80 to 100 bytes a phrase; `format.rs` says what
//! it is as bytes, `body.rs` what a packed value is.

mod body;
mod code;
mod format;
mod parse;
mod search;
mod train;

use code::{Book, Code};
use search::{Phrases, Symbol};

pub(crate) use format::OF_ELEMENTS;
pub(crate) use parse::Scratch;
pub(crate) use train::train;

/// Contexts beside the common one, whose number is 0.
const CONTEXTS_MAX: usize = 31;

/// Bytes of all longer phrases together: the largest dictionary has less.
const CONTENT_MAX: usize = 500_000;

/// Stands among the symbols of a context for: a common code follows.
const COMMON: u16 = u16::MAX;

/// A table of phrases and their codes.
pub(crate) struct PhraseTable {
    phrases: Phrases,
    /// The context of what follows each byte.
    contexts: [u8; 256],
    /// For packing: how long the codes of each context are, in which contexts a
    /// phrase has codes, and where these are.
    lengths: Lengths,
    coded: Box<[Coded]>,
    codes: Box<[Code]>,
    /// For each context, the code that says that a common one follows.
    common: Box<[Code]>,
    /// For unpacking: what each context's codes are found by, and mean. What says
    /// that a common one follows is an empty phrase, behind which the context is
    /// the common one.
    books: Box<[Book]>,
    symbols: Box<[Symbol]>,
}

/// The lengths of codes, four bits each, 0 for none: context by context, so that
/// those of phrases that begin alike are next to each other.
struct Lengths {
    /// Bytes for a context.
    width: usize,
    halves: Box<[u8]>,
}

impl Lengths {
    fn new(contexts: usize, phrases: usize) -> Self {
        let width = phrases.div_ceil(2);
        Self { width, halves: vec![0; contexts * width].into() }
    }

    fn set(&mut self, context: usize, id: u16, len: u32) {
        let at = context * self.width + usize::from(id / 2);
        self.halves[at] |= (len as u8) << (4 * (id % 2));
    }

    /// Those of a context.
    #[inline]
    fn of(&self, context: usize) -> &[u8] {
        &self.halves[context * self.width..][..self.width]
    }
}

/// A length among those of a context.
#[inline]
fn length(of_context: &[u8], id: u16) -> u32 {
    u32::from(of_context[usize::from(id / 2)] >> (4 * (id % 2)) & 15)
}

/// The contexts in which a phrase has a code, as bits; the first is the common
/// one. Its codes stand together, in this order.
#[derive(Clone, Copy, Debug)]
struct Coded {
    contexts: u32,
    first: u32,
}

impl PhraseTable {
    /// All it holds, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.phrases.memory_bytes()
            + self.lengths.halves.len()
            + size_of_val(&*self.coded)
            + size_of_val(&*self.codes)
            + size_of_val(&*self.common)
            + size_of_val(&*self.books)
            + size_of_val(&*self.symbols)
    }

    /// The code of a phrase in a context, if it has one there.
    #[inline]
    fn code(&self, context: usize, id: u16) -> Option<Code> {
        let coded = self.coded[usize::from(id)];
        let bit = 1 << context;
        (coded.contexts & bit != 0).then(|| {
            let before = (coded.contexts & (bit - 1)).count_ones();
            self.codes[(coded.first + before) as usize]
        })
    }

    /// The code of a phrase that every context can announce.
    #[inline]
    fn common_code(&self, id: u16) -> Code {
        self.codes[self.coded[usize::from(id)].first as usize]
    }

    /// The bits that each phrase takes behind a byte.
    #[inline]
    fn costs(&self, before: u8) -> impl Fn(u16) -> u32 {
        let context = usize::from(self.contexts[usize::from(before)]);
        let (here, common) = (self.lengths.of(context), self.lengths.of(0));
        let announced = self.common[context].len();
        move |id| match length(here, id) {
            0 => announced + length(common, id),
            len => len,
        }
    }
}

#[cfg(test)]
mod tests;
