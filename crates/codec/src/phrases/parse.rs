//! The cheapest way to put a text together from phrases.
//!
//! From left to right, each place is reached by the phrase whose end it is and
//! by which all up to there costs least; at the end of a piece of 4 KiB the way
//! is followed back. What a phrase costs may depend on the byte before it, which
//! is the text's and not the way's, so that the cheapest would be found if all were
//! looked at. That takes twice as long as to find one that is half a percent dearer,
//! which needs only two phrases of a place, the longest and the longest that this
//! begins with, and no way on from a place that costs hardly less than the furthest
//! one. Where a very long phrase fits it is taken without looking into it: what
//! repeats most costs least to pack.
//!
//! Cost: one search for every third or fourth byte, some tens of nanoseconds; 32 KiB,
//! once.

use super::search::Phrases;

/// Bytes that the cheapest way is looked for in at once.
const PIECE: usize = 4096;

/// A phrase of this length is taken where it fits.
const LONG: usize = 40;

/// Phrases that are looked at for a place.
const CANDIDATES: usize = 2;

/// What a place must cost less than the furthest one for a way from it to be looked
/// for, in bits, to pack fast. Looking for phrases to train with needs none.
pub(super) const WORTH_BITS: u32 = 4;

/// What the search for the cheapest way works in.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// What the way to each place costs, and the phrase it ends with.
    costs: Box<[u32]>,
    last: Box<[u16]>,
    /// A way, last phrase first.
    way: Vec<u16>,
}

impl Default for Scratch {
    fn default() -> Self {
        let way = Vec::with_capacity(PIECE);
        Self { costs: vec![0; PIECE + 1].into(), last: vec![0; PIECE + 1].into(), way }
    }
}

impl Scratch {
    /// Gives `emit` the phrases of the cheapest way through `raw`, each with the
    /// byte before it (0 before the first). `costs` says what each costs behind a
    /// byte: less than 2^20, in the unit of `worth` (see [`WORTH_BITS`]).
    #[inline]
    pub(super) fn parse<C: Fn(u16) -> u32>(
        &mut self,
        phrases: &Phrases,
        raw: &[u8],
        worth: u32,
        costs: impl Fn(u8) -> C,
        mut emit: impl FnMut(u8, u16),
    ) {
        let mut at = 0;
        while at < raw.len() {
            at = self.piece(phrases, raw, at, worth, &costs, &mut emit);
        }
    }

    /// As far as the next long phrase, or for a piece; where it ends.
    fn piece<C: Fn(u16) -> u32>(
        &mut self,
        phrases: &Phrases,
        raw: &[u8],
        begin: usize,
        worth: u32,
        costs: &impl Fn(u8) -> C,
        emit: &mut impl FnMut(u8, u16),
    ) -> usize {
        let text = &raw[begin..raw.len().min(begin + PIECE)];
        let before = |at: usize| (begin + at).checked_sub(1).map_or(0, |at| raw[at]);
        // As far as any way has come yet.
        let mut filled = 0;
        self.costs[0] = 0;
        let mut at = 0;
        let mut long = None;
        while at < text.len() {
            if at < filled && self.costs[at].saturating_add(worth) >= self.costs[filled] {
                at += 1;
                continue;
            }
            let mut id = phrases.longest(&text[at..]);
            let mut phrase = phrases.get(id);
            if phrase.len() >= LONG {
                long = Some(id);
                break;
            }
            let end = at + phrase.len();
            if end > filled {
                self.costs[filled + 1..=end].fill(u32::MAX);
                filled = end;
            }
            let (so_far, cost) = (self.costs[at], costs(before(at)));
            for _ in 0..CANDIDATES {
                let (end, costs) = (at + phrase.len(), so_far + cost(id));
                if costs < self.costs[end] {
                    (self.costs[end], self.last[end]) = (costs, id);
                }
                if phrase.len() == 1 {
                    break;
                }
                id = phrase.parent;
                phrase = phrases.get(id);
            }
            at += 1;
        }
        let mut back = at;
        self.way.clear();
        while back > 0 {
            let id = self.last[back];
            self.way.push(id);
            back -= phrases.get(id).len();
        }
        for &id in self.way.iter().rev().chain(&long) {
            emit(before(back), id);
            back += phrases.get(id).len();
        }
        begin + back
    }
}
