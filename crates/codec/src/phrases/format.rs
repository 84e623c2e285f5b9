//! A table of phrases as bytes: as training leaves it, and as it would be stored.
//! Numbers are varints; contexts, and lengths of codes, a byte each.
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
//! A table of what elements have in common (`elements.rs`) begins with "SPE1".
//!
//! Only lengths are kept: the codes follow from them (`code.rs`). Any bytes are a
//! table with which every value can be packed, or none.
//!
//! Cost: for each phrase a look at each context.

use super::code::{Canonical, Code};
use super::search::{PHRASE_LEN_MAX, PHRASES_MAX, Phrases, SINGLES, Symbol};
use super::{COMMON, CONTENT_MAX, CONTEXTS_MAX, Coded, Lengths, PhraseTable};
use crate::varint;

/// What tables begin with.
const MAGIC: &[u8; 4] = b"SPH1";
/// What those of elements begin with.
pub(crate) const OF_ELEMENTS: &[u8; 4] = b"SPE1";

/// What has a code in a context, and how long these codes are: phrases, ascending,
/// and behind them [`COMMON`] in every context but the common one.
#[derive(Clone, Default)]
struct List {
    symbols: Vec<u16>,
    lengths: Vec<u8>,
}

impl PhraseTable {
    /// Whether these bytes are meant to be a table.
    pub(crate) fn is_meant_by(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC) || bytes.starts_with(OF_ELEMENTS)
    }

    /// Reads a table; `None` if the bytes are not one.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let rest = &mut bytes.strip_prefix(MAGIC).or(bytes.strip_prefix(OF_ELEMENTS))?;
        let mut phrases = Phrases::new(&take_phrases(rest)?)?;
        let (contexts, count) = take_contexts(rest)?;
        phrases.set_contexts(&contexts);
        let (masks, lists) = take_lists(rest, phrases.len(), count)?;
        if !rest.is_empty() {
            return None;
        }
        Self::with_codes(phrases, contexts, &masks, &lists)
    }

    /// The table whose phrases have codes in these contexts, of these lengths;
    /// `None` if there are no such codes.
    fn with_codes(
        phrases: Phrases,
        contexts: [u8; 256],
        masks: &[u32],
        lists: &[List],
    ) -> Option<Self> {
        let mut lengths = Lengths::new(lists.len(), phrases.len());
        let mut common = vec![Code::default(); lists.len()];
        let (mut books, mut symbols, mut by_context) = (Vec::new(), Vec::new(), Vec::new());
        for (context, list) in lists.iter().enumerate() {
            let canonical = Canonical::new(&list.lengths, symbols.len())?;
            for (&symbol, &code) in list.symbols.iter().zip(&canonical.codes) {
                match symbol {
                    COMMON => common[context] = code,
                    id => lengths.set(context, id, code.len()),
                }
            }
            symbols.extend(canonical.order.iter().map(|&at| match list.symbols[usize::from(at)] {
                COMMON => Symbol::EMPTY,
                id => Symbol::new(phrases.get(id)),
            }));
            books.push(canonical.book);
            by_context.push(canonical.codes.into_iter());
        }
        let mut codes = Vec::with_capacity(symbols.len());
        let mut coded = Vec::with_capacity(masks.len());
        for &contexts in masks {
            coded.push(Coded { contexts, first: codes.len() as u32 });
            for (context, of) in by_context.iter_mut().enumerate() {
                if contexts >> context & 1 == 1 {
                    codes.push(of.next()?);
                }
            }
        }
        Some(Self {
            phrases,
            contexts,
            lengths,
            coded: coded.into(),
            codes: codes.into(),
            common: common.into(),
            books: books.into(),
            symbols: symbols.into(),
        })
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

/// Takes the context of each byte, and how many there are.
fn take_contexts(rest: &mut &[u8]) -> Option<([u8; 256], usize)> {
    let count = varint::take_len(rest).filter(|&count| count <= CONTEXTS_MAX)?;
    let (&contexts, after) = rest.split_first_chunk::<256>()?;
    *rest = after;
    contexts.iter().all(|&context| usize::from(context) <= count).then_some((contexts, count))
}

/// Takes what has a code where: for each phrase its contexts as bits, and for each
/// context its list.
fn take_lists(rest: &mut &[u8], phrases: usize, count: usize) -> Option<(Vec<u32>, Vec<List>)> {
    let common = rest.split_off(..phrases)?;
    let announced = rest.split_off(..count)?;
    let mut lists = vec![List::default(); count + 1];
    let mut masks = Vec::with_capacity(phrases);
    for (id, &common) in common.iter().enumerate() {
        let mask = u32::try_from(varint::take(rest)?).ok()?;
        if mask & 1 != 0 || mask.checked_shr(count as u32 + 1).unwrap_or(0) != 0 {
            return None;
        }
        let mask = mask | 1;
        masks.push(mask);
        for (context, list) in lists.iter_mut().enumerate() {
            if mask >> context & 1 == 1 {
                list.symbols.push(id as u16);
                list.lengths.push(match context {
                    0 => common,
                    _ => *rest.split_off_first()?,
                });
            }
        }
    }
    for (list, &len) in lists[1..].iter_mut().zip(announced) {
        list.symbols.push(COMMON);
        list.lengths.push(len);
    }
    Some((masks, lists))
}

/// What a table is made of, as training finds it.
pub(super) struct Draft<'p> {
    /// Ascending, each of at least 2 bytes.
    pub(super) longer: &'p [Box<[u8]>],
    /// The context of each byte.
    pub(super) contexts: [u8; 256],
    /// The lengths of all common codes.
    pub(super) common: Vec<u8>,
    /// For each other context: the length of the code that announces a common
    /// one, and of the phrases that it has codes for, ascending by id.
    pub(super) lists: Vec<(u8, Vec<(u16, u8)>)>,
}

impl Draft<'_> {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
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
