//! The phrases themselves, and the search for those that a text begins with.
//!
//! ```text
//!  bytes    all phrases, one after the other
//!  list     ids 0 to 255: the single bytes; from 256: the others, in order
//!           [start 4][length 1][context 1][parent 2]   8 bytes each
//!  keys     the third to tenth byte of each of the others, 8 bytes each
//!  buckets  where those that begin with a certain pair of bytes are
//! ```
//!
//! The parent of a phrase is the longest other one that it begins with. In
//! order, the last phrase that is not behind the text either begins the text, or
//! one of its ancestors is the longest that does; and the ancestors of that are
//! all others that do. So one search in a bucket, most of it among a few
//! consecutive keys, finds all phrases for a place in a text.
//!
//! Cost: 16 bytes and its own for each phrase, 2 for each pair of bytes of the
//! classes that phrases begin with, of which texts have some tens.

use super::{CONTENT_MAX, CONTEXTS_MAX};

/// The longest phrase, in bytes.
pub(super) const PHRASE_LEN_MAX: usize = 255;

/// Phrases of a single byte: all there are, so that any text has phrases.
pub(super) const SINGLES: usize = 256;

/// The most phrases, the single bytes among them.
pub(super) const PHRASES_MAX: usize = 1 << 14;

/// As many bytes are copied for a phrase at once, even if it is shorter.
pub(super) const COPY: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct Phrase {
    start: u32,
    len: u8,
    context: u8,
    /// The longest other phrase that it begins with; of a single byte, itself.
    pub(super) parent: u16,
}

/// What unpacking needs of a phrase, in four bytes, so that those of many are in the
/// nearest caches.
///
/// ```text
///  [context: 5 bits][length: 8][start: 19]
/// ```
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol(u32);

const START_BITS: u32 = 19;
const LEN_BITS: u32 = 8;
const _: () = assert!(SINGLES + CONTENT_MAX <= 1 << START_BITS && PHRASE_LEN_MAX < 1 << LEN_BITS);
const _: () = assert!(CONTEXTS_MAX < 1 << (u32::BITS - START_BITS - LEN_BITS));

impl Symbol {
    /// No bytes, and the common context behind them.
    pub(super) const EMPTY: Self = Self(0);

    pub(super) fn new(phrase: Phrase) -> Self {
        let behind = u32::from(phrase.context) << LEN_BITS | u32::from(phrase.len);
        Self(behind << START_BITS | phrase.start)
    }

    #[inline(always)]
    fn start(self) -> usize {
        (self.0 & ((1 << START_BITS) - 1)) as usize
    }

    #[inline(always)]
    pub(super) fn len(self) -> usize {
        usize::from((self.0 >> START_BITS) as u8)
    }

    /// The context of what follows it.
    #[inline(always)]
    pub(super) fn context(self) -> usize {
        (self.0 >> (START_BITS + LEN_BITS)) as usize
    }
}

impl Phrase {
    #[inline]
    pub(super) fn len(self) -> usize {
        usize::from(self.len)
    }
}

/// A set of phrases, each with an id.
pub(super) struct Phrases {
    bytes: Box<[u8]>,
    list: Box<[Phrase]>,
    keys: Box<[u64]>,
    /// 0 for a byte that is neither first nor second in a phrase.
    classes: Box<[u16; 256]>,
    width: usize,
    buckets: Box<[u16]>,
}

impl Phrases {
    /// The single bytes and `longer`: ascending, each of 2 to 255 bytes. `None`
    /// if they are not, or too many.
    pub(super) fn new(longer: &[impl AsRef<[u8]>]) -> Option<Self> {
        let lengths = longer.iter().all(|p| (2..=PHRASE_LEN_MAX).contains(&p.as_ref().len()));
        let ascending = longer.windows(2).all(|two| two[0].as_ref() < two[1].as_ref());
        if !lengths || !ascending || longer.len() > PHRASES_MAX - SINGLES {
            return None;
        }
        let mut bytes: Vec<u8> = (0..=255).collect();
        let single = |b: u8| Phrase { start: b.into(), len: 1, context: 0, parent: b.into() };
        let mut list: Vec<Phrase> = (0..=255).map(single).collect();
        let mut around: Vec<u16> = Vec::new();
        for (i, phrase) in longer.iter().enumerate() {
            let phrase = phrase.as_ref();
            // Those that the one before begins with, as far as this does too.
            while around
                .last()
                .is_some_and(|&at| !phrase.starts_with(longer[usize::from(at)].as_ref()))
            {
                around.pop();
            }
            let parent = around.last().map_or(u16::from(phrase[0]), |at| at + SINGLES as u16);
            around.push(i as u16);
            list.push(Phrase {
                start: bytes.len() as u32,
                len: phrase.len() as u8,
                context: 0,
                parent,
            });
            bytes.extend_from_slice(phrase);
        }
        bytes.extend_from_slice(&[0; COPY]);
        let mut classes = Box::new([0u16; 256]);
        for phrase in longer {
            phrase.as_ref()[..2].iter().for_each(|&byte| classes[usize::from(byte)] = 1);
        }
        let mut width = 1;
        for class in classes.iter_mut().filter(|class| **class > 0) {
            *class = width as u16;
            width += 1;
        }
        let mut buckets = vec![0u16; width * width + 1];
        for phrase in longer {
            buckets[bucket(&classes, width, phrase.as_ref()) + 1] += 1;
        }
        for at in 1..buckets.len() {
            buckets[at] += buckets[at - 1];
        }
        Some(Self {
            bytes: bytes.into(),
            list: list.into(),
            keys: longer.iter().map(|phrase| key(phrase.as_ref())).collect(),
            classes,
            width,
            buckets: buckets.into(),
        })
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    #[inline]
    pub(super) fn get(&self, id: u16) -> Phrase {
        self.list[usize::from(id)]
    }

    /// Says for each phrase what the context is of what follows it.
    pub(super) fn set_contexts(&mut self, by_byte: &[u8; 256]) {
        for at in 0..self.list.len() {
            let last = *self.bytes_of(at as u16).last().expect("no phrase is empty");
            self.list[at].context = by_byte[usize::from(last)];
        }
    }

    #[inline]
    pub(super) fn bytes_of(&self, id: u16) -> &[u8] {
        let phrase = self.get(id);
        &self.bytes[phrase.start as usize..][..phrase.len()]
    }

    /// The bytes of a phrase of at most [`COPY`], and what comes behind them.
    #[inline(always)]
    pub(super) fn padded(&self, phrase: Symbol) -> Option<&[u8; COPY]> {
        let start = phrase.start();
        self.bytes.get(start..start + COPY)?.first_chunk()
    }

    /// Writes a phrase at the front of `to`, and perhaps some bytes behind it;
    /// `None` if there is no room for it.
    #[inline(always)]
    pub(super) fn copy(&self, phrase: Symbol, to: &mut [u8]) -> Option<()> {
        if phrase.len() <= COPY
            && let Some(to) = to.first_chunk_mut()
        {
            *to = *self.padded(phrase)?;
            return Some(());
        }
        let from = self.bytes.get(phrase.start()..)?.get(..phrase.len())?;
        to.get_mut(..phrase.len())?.copy_from_slice(from);
        Some(())
    }

    /// The longest phrase that `text`, which is not empty, begins with.
    #[inline]
    pub(super) fn longest(&self, text: &[u8]) -> u16 {
        let single = u16::from(text[0]);
        let Some(&[first, second]) = text.first_chunk::<2>() else { return single };
        let (first, second) = (self.classes[usize::from(first)], self.classes[usize::from(second)]);
        if first == 0 || second == 0 {
            return single;
        }
        let at = usize::from(first) * self.width + usize::from(second);
        let (from, to) = (usize::from(self.buckets[at]), usize::from(self.buckets[at + 1]));
        let (keys, wanted) = (&self.keys[from..to], key(text));
        let mut found = keys.partition_point(|&key| key <= wanted);
        // How far the one found and the text are the same, or seem to be: 0 may
        // stand for nothing, but then that is the end of one of them.
        let mut common = match found.checked_sub(1) {
            Some(at) => 2 + (keys[at] ^ wanted).leading_zeros() as usize / 8,
            None => return single,
        };
        if common == 2 + size_of::<u64>() {
            let same = keys[..found].partition_point(|&key| key < wanted);
            let id = |at: usize| (SINGLES + from + at) as u16;
            let (mut low, mut high) = (same, found);
            while low < high {
                let middle = low.midpoint(high);
                if self.bytes_of(id(middle)) <= text {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            found = low;
            let Some(at) = found.checked_sub(1) else { return single };
            let both = self.bytes_of(id(at)).iter().zip(text);
            common = both.take_while(|(a, b)| a == b).count();
        }
        let common = common.min(text.len());
        let mut id = (SINGLES + from + found - 1) as u16;
        let mut phrase = self.get(id);
        while phrase.len() > common {
            id = phrase.parent;
            phrase = self.get(id);
        }
        id
    }

    /// All it holds, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.len()
            + size_of_val(&*self.list)
            + size_of_val(&*self.keys)
            + size_of_val(&*self.classes)
            + size_of_val(&*self.buckets)
    }
}

fn bucket(classes: &[u16; 256], width: usize, text: &[u8]) -> usize {
    usize::from(classes[usize::from(text[0])]) * width + usize::from(classes[usize::from(text[1])])
}

/// The third to tenth byte, 0 where there is none, so that they compare as they
/// stand.
#[inline]
fn key(text: &[u8]) -> u64 {
    if let Some(ten) = text.first_chunk::<10>() {
        return u64::from_be_bytes([
            ten[2], ten[3], ten[4], ten[5], ten[6], ten[7], ten[8], ten[9],
        ]);
    }
    let mut eight = [0; 8];
    let rest = text.get(2..).unwrap_or_default();
    eight[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(eight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Against a search through all of them, over few and over all bytes.
        #[test]
        fn the_longest_is_found_and_its_ancestors_are_all_others(
            longer in prop::collection::btree_set(
                prop_oneof![prop::collection::vec(0u8..3, 2..14), prop::collection::vec(any::<u8>(), 2..4)], 0..300),
            text in prop_oneof![prop::collection::vec(0u8..3, 1..20), prop::collection::vec(any::<u8>(), 1..20)],
        ) {
            let list: Vec<&Vec<u8>> = longer.iter().collect();
            let phrases = Phrases::new(&list).unwrap();
            for at in 0..text.len() {
                let text = &text[at..];
                let mut found = BTreeSet::new();
                let mut id = phrases.longest(text);
                found.insert(phrases.bytes_of(id).to_vec());
                while phrases.get(id).len() > 1 {
                    id = phrases.get(id).parent;
                    found.insert(phrases.bytes_of(id).to_vec());
                }
                let mut expected: BTreeSet<Vec<u8>> =
                    longer.iter().filter(|p| text.starts_with(p)).cloned().collect();
                expected.insert(text[..1].to_vec());
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn phrases_may_begin_with_every_byte() {
        let all: Vec<Vec<u8>> = (0..=255).map(|b| vec![b, 255 - b]).collect();
        let phrases = Phrases::new(&all).unwrap();
        assert!(all.iter().all(|p| *phrases.bytes_of(phrases.longest(p)) == **p));
    }

    #[test]
    fn what_is_no_set_of_phrases_is_refused() {
        assert!(Phrases::new(&[b"ab".as_slice(), b"ab"]).is_none());
        assert!(Phrases::new(&[b"b".as_slice()]).is_none());
        assert!(Phrases::new(&[[7u8; 256]]).is_none());
        let many: Vec<[u8; 2]> = (0..=u16::MAX).map(u16::to_be_bytes).collect();
        assert!(Phrases::new(&many).is_none());
    }
}
