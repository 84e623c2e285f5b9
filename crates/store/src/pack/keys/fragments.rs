//! Fragments: texts that many keys have, each known by a number.
//!
//! One table for the process. What has got a number keeps it, since keys in memory refer
//! to it; so there are at most [`FRAGMENTS_MAX`], of at most [`LEN_MAX`] bytes. A text is
//! learnt when it [recurs](crate::pack::recurring): many keys are to have it before it
//! takes one of the places.

use super::token_len;
use crate::pack::recurring::Recurring;
use parking_lot::{RwLock, RwLockReadGuard};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::OnceLock;

/// The shortest text that is worth a number.
pub(super) const LEN_MIN: usize = 3;
/// The longest.
const LEN_MAX: usize = 64;
/// Most fragments.
pub(super) const FRAGMENTS_MAX: usize = 1024;
/// A text is learnt once so many keys of late have had it.
const RECURS: u16 = 128;
/// Texts of one key that are counted.
const CANDIDATES_MAX: usize = 24;
/// Where a text that is looked up may end: so many tokens on.
const TOKENS_MAX: usize = 16;

/// The texts by their numbers.
static TEXTS: [OnceLock<Box<[u8]>>; FRAGMENTS_MAX] = [const { OnceLock::new() }; FRAGMENTS_MAX];

/// The numbers by the texts.
static NUMBERS: RwLock<Option<Numbers>> = RwLock::new(None);

type Numbers = HashMap<&'static [u8], u16, foldhash::fast::RandomState>;

/// How often keys have had a text of late.
static RECURRING: OnceLock<Recurring> = OnceLock::new();

/// The text of this number; of one that nobody has, nothing.
#[inline]
pub(super) fn text(number: u16) -> &'static [u8] {
    TEXTS.get(usize::from(number)).and_then(OnceLock::get).map_or(&[], |text| text)
}

/// Which is another after more was learnt.
pub(crate) fn generation() -> u64 {
    NUMBERS.read().as_ref().map_or(0, |numbers| numbers.len() as u64)
}

/// How many there are, and about what they weigh, in bytes.
pub fn held() -> (usize, usize) {
    const ENTRY: usize = size_of::<(&[u8], u16)>() + 8;
    let numbers = NUMBERS.read();
    let texts = numbers.iter().flat_map(|numbers| numbers.keys()).map(|text| text.len() + ENTRY);
    (numbers.as_ref().map_or(0, HashMap::len), texts.sum())
}

/// All that are known, to be looked up.
pub(crate) struct Fragments(RwLockReadGuard<'static, Option<Numbers>>);

impl Fragments {
    /// Those of this moment.
    pub(crate) fn read() -> Self {
        Self(NUMBERS.read())
    }

    /// Whether there is room for more.
    pub(super) fn is_learning(&self) -> bool {
        self.0.as_ref().is_none_or(|numbers| numbers.len() < FRAGMENTS_MAX)
    }

    /// The longest that the bytes begin with, and its length.
    pub(super) fn longest(&self, bytes: &[u8]) -> Option<(u16, usize)> {
        let numbers = self.0.as_ref()?;
        let ends = ends(bytes);
        ends.iter().rev().find_map(|&end| Some((*numbers.get(&bytes[..end])?, end)))
    }
}

/// Where a text may end that begins here.
fn ends(bytes: &[u8]) -> SmallVec<[usize; TOKENS_MAX]> {
    let (mut ends, mut at) = (SmallVec::new(), 0);
    while at < bytes.len() && ends.len() < TOKENS_MAX {
        at += token_len(&bytes[at..]);
        if at > LEN_MAX {
            break;
        }
        if at >= LEN_MIN {
            ends.push(at);
        }
    }
    ends
}

/// Texts of one key that no fragment stands for.
pub(super) struct Candidates<'k> {
    key: &'k [u8],
    /// Where they are, from the longest on of those that begin at one place.
    at: SmallVec<[Range<usize>; CANDIDATES_MAX]>,
}

impl<'k> Candidates<'k> {
    pub(super) fn of(key: &'k [u8]) -> Self {
        Self { key, at: SmallVec::new() }
    }

    /// Adds what a text is made of that no identifier interrupts: all that begins where
    /// it does, or behind a number in it.
    pub(super) fn add(&mut self, text: Range<usize>) {
        let (mut at, mut begins) = (text.start, true);
        while at < text.end {
            let rest = &self.key[at..text.end];
            if begins {
                let room = CANDIDATES_MAX - self.at.len();
                self.at.extend(ends(rest).iter().rev().map(|end| at..at + end).take(room));
            }
            begins = rest[0].is_ascii_digit();
            at += token_len(rest);
        }
    }

    /// Counts them. Of those that recur, the longest that begins at a place gets a number,
    /// and what lies within it waits for keys that have it elsewhere.
    pub(super) fn learn(self) {
        let recurring = RECURRING.get_or_init(|| Recurring::new(RECURS));
        let mut learnt = 0;
        for at in self.at {
            let recurs = recurring.meet(0, &self.key[at.clone()], 0);
            if recurs && at.start >= learnt {
                add(&self.key[at.clone()]);
                learnt = at.end;
            }
        }
    }
}

fn add(text: &[u8]) {
    let mut numbers = NUMBERS.write();
    let numbers = numbers.get_or_insert_with(HashMap::default);
    if numbers.len() == FRAGMENTS_MAX || numbers.contains_key(text) {
        return;
    }
    let number = numbers.len();
    let text = TEXTS[number].get_or_init(|| text.into());
    numbers.insert(text, number as u16);
}
