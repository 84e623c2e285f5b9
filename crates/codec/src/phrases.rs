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
//! A body is the codes, the first bit of each byte its highest; what is left of
//! the last byte is 0. The raw length, in the header, says where it ends.
//!
//! A table as bytes, all numbers varints:
//!
//! ```text
//!  "SPH1" [phrases of 2 to 255 bytes][for each, ascending: how much it shares
//!         with the one before, how much is its own, its own bytes]
//!  [contexts] [for each byte, its context, 0 for none] 256 bytes
//!  [length of each common code] a byte for each single byte, then each phrase
//!  [length of each context's code that says so]
//!  [for each single byte, then each phrase: the contexts in which it has a code,
//!         as bits, and the lengths of these codes]
//! ```
//!
//! Costs: packing looks for the cheapest way through the value, some tens of
//! nanoseconds a byte; unpacking copies a phrase for each code, some ten
//! nanoseconds. Neither allocates. A table weighs some 80 to
//! 100 bytes a phrase.

mod code;
mod parse;
mod search;
mod train;

use crate::varint;
use code::{BITS_MAX, Book, Canonical, Code};
use search::{PHRASE_LEN_MAX, PHRASES_MAX, Phrases, SINGLES};

pub(crate) use parse::Scratch;
pub(crate) use train::train;

/// What tables begin with.
const MAGIC: &[u8; 4] = b"SPH1";

/// Contexts beside the common one, whose number is 0.
const CONTEXTS_MAX: usize = 31;

/// Bytes of all phrases together.
const CONTENT_MAX: usize = 1 << 20;

/// Stands among the symbols of a context for: a common code follows.
const COMMON: u16 = u16::MAX;

/// A table of phrases and their codes.
pub(crate) struct PhraseTable {
    phrases: Phrases,
    /// The context of what follows each byte.
    contexts: [u8; 256],
    /// For packing: how long a phrase's codes are, in which contexts it has them,
    /// and where these are.
    lengths: Box<[Lengths]>,
    coded: Box<[Coded]>,
    codes: Box<[Code]>,
    /// For each context, the code that says that a common one follows.
    common: Box<[Code]>,
    /// For unpacking: what each context's codes are found by, and mean.
    books: Box<[Book]>,
    symbols: Box<[Symbol]>,
}

/// The lengths of a phrase's codes, four bits for each context, 0 for none.
type Lengths = [u8; (CONTEXTS_MAX + 1).div_ceil(2)];

#[inline]
fn length(lengths: &Lengths, context: usize) -> u32 {
    u32::from(lengths[context / 2] >> (4 * (context % 2)) & 15)
}

/// What a code stands for: a phrase and the context behind it, or that a common
/// code follows.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    phrase: u16,
    context: u16,
}

/// The contexts in which a phrase has a code, as bits; the first is the common
/// one. Its codes stand together, in this order.
#[derive(Clone, Copy, Debug)]
struct Coded {
    contexts: u32,
    first: u32,
}

impl PhraseTable {
    /// Whether these bytes are meant to be a table.
    pub(crate) fn is_meant_by(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// Reads a table; `None` if the bytes are not one.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let rest = &mut bytes.strip_prefix(MAGIC)?;
        let longer = take_phrases(rest)?;
        let mut phrases = Phrases::new(&longer)?;
        drop(longer);
        let count = varint::take_len(rest).filter(|&count| count <= CONTEXTS_MAX)?;
        let (&contexts, after) = rest.split_first_chunk::<256>()?;
        *rest = after;
        if contexts.iter().any(|&context| usize::from(context) > count) {
            return None;
        }
        phrases.set_contexts(&contexts);
        let common = rest.split_off(..phrases.len())?;
        let announced = rest.split_off(..count)?;
        // For each context, its symbols and the lengths of their codes.
        let mut lists = vec![(Vec::<u16>::new(), Vec::<u8>::new()); count + 1];
        let mut masks = Vec::with_capacity(phrases.len());
        for (id, &common) in common.iter().enumerate() {
            let mask = u32::try_from(varint::take(rest)?).ok()?;
            if mask & 1 != 0 || mask.checked_shr(count as u32 + 1).unwrap_or(0) != 0 {
                return None;
            }
            let mask = mask | 1;
            masks.push(mask);
            for (context, (symbols, lengths)) in lists.iter_mut().enumerate() {
                if mask >> context & 1 == 1 {
                    symbols.push(id as u16);
                    lengths.push(match context {
                        0 => common,
                        _ => *rest.split_off_first()?,
                    });
                }
            }
        }
        if !rest.is_empty() {
            return None;
        }
        let mut lengths = vec![[0; _]; phrases.len()];
        let (mut books, mut meanings) = (Vec::new(), Vec::new());
        let mut all_codes = Vec::with_capacity(count + 1);
        let mut escapes = vec![Code::default(); count + 1];
        for (context, (symbols, list)) in lists.iter_mut().enumerate() {
            if context > 0 {
                symbols.push(COMMON);
                list.push(announced[context - 1]);
            }
            let canonical = Canonical::new(list, meanings.len())?;
            for (&phrase, &len) in symbols.iter().zip(&*list).filter(|(id, _)| **id != COMMON) {
                let lengths: &mut Lengths = &mut lengths[usize::from(phrase)];
                lengths[context / 2] |= len << (4 * (context % 2));
            }
            meanings.extend(canonical.order.iter().map(|&at| {
                let phrase = symbols[usize::from(at)];
                let context = if phrase == COMMON { 0 } else { phrases.get(phrase).context };
                Symbol { phrase, context: context.into() }
            }));
            books.push(canonical.book);
            let mut codes = canonical.codes;
            if context > 0 {
                escapes[context] = codes.pop()?;
            }
            all_codes.push(codes.into_iter());
        }
        let mut codes = Vec::with_capacity(meanings.len());
        let mut coded = Vec::with_capacity(masks.len());
        for contexts in masks {
            coded.push(Coded { contexts, first: codes.len() as u32 });
            for (context, of) in all_codes.iter_mut().enumerate() {
                if contexts >> context & 1 == 1 {
                    codes.push(of.next()?);
                }
            }
        }
        Some(Self {
            phrases,
            contexts,
            lengths: lengths.into(),
            coded: coded.into(),
            codes: codes.into(),
            common: escapes.into(),
            books: books.into(),
            symbols: meanings.into(),
        })
    }

    /// All it holds, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.phrases.memory_bytes()
            + size_of_val(&*self.lengths)
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

    /// Bits that a phrase takes behind a byte.
    #[inline]
    fn cost(&self, before: u8, id: u16) -> u32 {
        let context = usize::from(self.contexts[usize::from(before)]);
        let lengths = &self.lengths[usize::from(id)];
        match length(lengths, context) {
            0 => self.common[context].len() + length(lengths, 0),
            len => len,
        }
    }

    /// Appends the body that `raw` packs to: at most 4 bytes a byte.
    pub(crate) fn pack(&self, scratch: &mut Scratch, raw: &[u8], out: &mut Vec<u8>) {
        let mut bits = Bits { out, held: 0, count: 0 };
        let cost = |before: u8, id: u16| self.cost(before, id);
        scratch.parse(&self.phrases, raw, cost, |before, id| {
            let context = usize::from(self.contexts[usize::from(before)]);
            match self.code(context, id) {
                Some(code) => bits.push(code),
                None => {
                    bits.push(self.common[context]);
                    bits.push(self.common_code(id));
                }
            }
        });
        bits.finish();
    }

    /// Appends the `raw_len` bytes that `body` unpacks to. On `None`, when it is
    /// no body of that many, some may have been appended.
    pub(crate) fn unpack(&self, body: &[u8], raw_len: usize, out: &mut Vec<u8>) -> Option<()> {
        let before = out.len();
        out.resize(before + raw_len, 0);
        let mut to = &mut out[before..];
        let (mut at, mut context) = (0usize, usize::from(self.contexts[0]));
        while !to.is_empty() {
            let book = &self.books[context];
            let (len, place) = book.find(bits_at(body, at))?;
            at += len as usize;
            let mut symbol = *self.symbols.get(place)?;
            if symbol.phrase == COMMON {
                let (len, place) = self.books[0].find(bits_at(body, at))?;
                at += len as usize;
                symbol = *self.symbols.get(place)?;
            }
            context = usize::from(symbol.context);
            let phrase = self.phrases.get(symbol.phrase);
            self.phrases.copy(phrase, to)?;
            to = to.split_at_mut_checked(phrase.len())?.1;
        }
        (at.div_ceil(8) == body.len()).then_some(())
    }
}

/// The 15 bits from bit `at` on, 0 behind the end.
#[inline(always)]
fn bits_at(body: &[u8], at: usize) -> u32 {
    let rest = body.get(at / 8..).unwrap_or_default();
    let four = rest.first_chunk::<4>().map_or_else(
        || {
            let mut four = [0; 4];
            four[..rest.len()].copy_from_slice(rest);
            four
        },
        |four| *four,
    );
    u32::from_be_bytes(four) << (at % 8) >> (32 - BITS_MAX)
}

/// Writes codes, the highest bit of each byte first.
struct Bits<'o> {
    out: &'o mut Vec<u8>,
    held: u64,
    count: u32,
}

impl Bits<'_> {
    #[inline]
    fn push(&mut self, code: Code) {
        self.held = self.held << code.len() | u64::from(code.bits());
        self.count += code.len();
        if self.count >= 32 {
            self.count -= 32;
            self.out.extend_from_slice(&((self.held >> self.count) as u32).to_be_bytes());
        }
    }

    fn finish(self) {
        let whole = self.held << (64 - self.count.max(1));
        let whole = if self.count == 0 { 0 } else { whole };
        self.out.extend_from_slice(&whole.to_be_bytes()[..self.count.div_ceil(8) as usize]);
    }
}

/// Takes the phrases off the front of a table's bytes.
fn take_phrases(rest: &mut &[u8]) -> Option<Vec<Box<[u8]>>> {
    let count = varint::take_len(rest).filter(|&count| count <= PHRASES_MAX - SINGLES)?;
    let mut phrases: Vec<Box<[u8]>> = Vec::with_capacity(count);
    let (mut phrase, mut content) = (Vec::new(), 0);
    for _ in 0..count {
        let shared = varint::take_len(rest)?;
        let own = varint::take_len(rest).filter(|&own| own <= PHRASE_LEN_MAX)?;
        if shared > phrase.len() {
            return None;
        }
        phrase.truncate(shared);
        phrase.extend_from_slice(rest.split_off(..own)?);
        content += phrase.len();
        if content > CONTENT_MAX {
            return None;
        }
        phrases.push(phrase.as_slice().into());
    }
    Some(phrases)
}

/// What a table is made of, as training finds it.
struct Draft<'p> {
    /// Ascending, each of at least 2 bytes.
    longer: &'p [Box<[u8]>],
    /// The context of each byte.
    contexts: [u8; 256],
    /// The lengths of all common codes.
    common: Vec<u8>,
    /// For each other context: the length of the code that announces a common
    /// one, and of the phrases that it has codes for, ascending by id.
    lists: Vec<(u8, Vec<(u16, u8)>)>,
}

impl Draft<'_> {
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        varint::push(&mut out, self.longer.len() as u64);
        let mut before: &[u8] = &[];
        for phrase in self.longer {
            let shared = before.iter().zip(phrase).take_while(|(a, b)| a == b).count();
            varint::push(&mut out, shared as u64);
            varint::push(&mut out, (phrase.len() - shared) as u64);
            out.extend_from_slice(&phrase[shared..]);
            before = phrase;
        }
        varint::push(&mut out, self.lists.len() as u64);
        out.extend_from_slice(&self.contexts);
        out.extend_from_slice(&self.common);
        out.extend(self.lists.iter().map(|(announced, _)| announced));
        let mut lists: Vec<_> = self.lists.iter().map(|(_, list)| list.iter().peekable()).collect();
        for id in 0..self.common.len() {
            let (mut mask, mut lengths) = (0u32, Vec::new());
            for (at, list) in lists.iter_mut().enumerate() {
                if let Some((_, len)) = list.next_if(|(of, _)| usize::from(*of) == id) {
                    mask |= 2 << at;
                    lengths.push(*len);
                }
            }
            varint::push(&mut out, u64::from(mask));
            out.extend_from_slice(&lengths);
        }
        out
    }
}

#[cfg(test)]
mod tests;
