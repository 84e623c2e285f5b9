//! The cheapest way to put a text together from phrases.
//!
//! The search goes through the text from left to right. Of each place it notes the
//! cheapest way to reach it: the cost, and the last phrase of that way. At the end of a
//! piece of 4 KiB it follows these notes back, and has the phrases of the whole way. The
//! cost of a phrase may depend on the byte before it. That byte is the text's, whatever
//! way leads there, so looking at every phrase of every place would find the cheapest way.
//!
//! Finding the very cheapest takes twice as long as finding one that is half a percent
//! dearer. So three things are left out:
//!
//! - At each place only two phrases are tried: the longest that fits, and the longest one
//!   that it begins with.
//! - A place that costs hardly less than the furthest one reached is not gone on from.
//! - Where a very long phrase fits, it is taken, and nothing within it is looked at. So
//!   what repeats most costs least to pack.
//!
//! Cost: one search for every third or fourth byte, some tens of nanoseconds each; 32 KiB
//! of working room, reserved once.

use super::search::Phrases;

/// Bytes of a piece: a way is looked for in one piece at a time.
const PIECE: usize = 4096;

/// A phrase of this many bytes or more is taken wherever it fits.
const LONG: usize = 40;

/// Phrases that are tried at a place.
const CANDIDATES: usize = 2;

/// A place is gone on from if it costs at least so many bits less than the furthest place
/// reached. This makes packing fast; the search for phrases to train with goes on from
/// every place.
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
