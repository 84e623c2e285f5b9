//! How the records of a sorted set are ordered: those with its members by score and
//! member, those of its index by hash.

use crate::image::{Pen, Source};
use crate::memory::usable;
use crate::types::pages::Order;
use crate::types::pages::element::{self, Element};
use crate::types::pages::paged::{LargeStrings, Needle};
use crate::types::pages::room;
use snug_codec::Segments;
use std::cmp::Ordering;
use std::io;

/// By score, and by the bytes of the member where that is the same.
#[derive(Debug)]
pub(crate) struct Scores;

/// Room for most records on the stack.
pub(crate) type Room = room::Room<96>;

/// What stands between two pages: a score, and where both sides have that, the fewest
/// bytes that are not before the right side's first member.
pub(crate) type Mark = (f64, Box<[u8]>);

impl Order for Scores {
    type Bound = Mark;
    const AFTER_FIRST: Option<usize> = Some(1);
    const COUNT_MAX: usize = if cfg!(test) { 8 } else { 128 };
    const BYTES_MAX: usize = if cfg!(test) { 200 } else { 4096 };

    #[inline]
    fn record_len(bytes: &[u8]) -> usize {
        let score = element::skip(bytes);
        score + element::skip(bytes.get(score..).unwrap_or_default())
    }

    fn bound(left: &[u8], right: &[u8]) -> Option<Mark> {
        mark(left, right, None)
    }

    fn is_at_or_behind(own: &Mark, other: &Mark) -> bool {
        match cmp_scores(own.0, other.0) {
            Ordering::Equal => own.1 >= other.1,
            unequal => unequal == Ordering::Greater,
        }
    }

    fn put_bound(bound: &Mark, pen: &mut dyn Pen) -> io::Result<()> {
        pen.put(&bound.0.to_le_bytes())?;
        pen.counted(&bound.1)
    }

    fn take_bound(source: &mut dyn Source) -> io::Result<Mark> {
        Ok((f64::from_bits(source.eight()?), source.counted()?.into()))
    }

    fn bound_allocated(bound: &Mark) -> usize {
        match bound.1.len() {
            0 => 0,
            len => usable(len),
        }
    }
}

/// What is to stand between two records. None between two large members of one score
/// whose bytes are not at hand.
pub(crate) fn mark(left: &[u8], right: &[u8], strings: Option<&LargeStrings>) -> Option<Mark> {
    let score = score_of(right);
    if left.is_empty() || cmp_scores(score_of(left), score) != Ordering::Equal {
        return Some((score, Box::default()));
    }
    let (left, right) = (Name::of(member_of(left), strings), Name::of(member_of(right), strings));
    if matches!(left, Name::Element(Element::Large(_)))
        || matches!(right, Name::Element(Element::Large(_)))
    {
        return None;
    }
    // As many bytes as both begin with, and one more.
    let len = 1 + left.each(|left| right.each(|right| alike(left, right)));
    let bytes = right.each(|right| right.flatten().copied().take(len).collect());
    Some((score, bytes))
}

/// How many bytes two strings begin with alike.
fn alike(a: &mut dyn Iterator<Item = &[u8]>, b: &mut dyn Iterator<Item = &[u8]>) -> usize {
    a.flatten().zip(b.flatten()).take_while(|(a, b)| a == b).count()
}

/// Scores are never NaN; the two zeros are equal.
#[inline]
pub(crate) fn cmp_scores(a: f64, b: f64) -> Ordering {
    if a < b {
        Ordering::Less
    } else if a > b {
        Ordering::Greater
    } else {
        Ordering::Equal
    }
}

/// The score of a record.
#[inline]
pub(crate) fn score_of(record: &[u8]) -> f64 {
    element::read(record).0.score()
}

/// The member of a record, and whatever stands behind it.
#[inline]
pub(crate) fn member_of(record: &[u8]) -> &[u8] {
    record.get(element::skip(record)..).unwrap_or_default()
}

/// A member as it is compared.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Name<'n> {
    Element(Element<'n>),
    /// The bytes of a large one.
    Chain(&'n Segments),
}

impl<'n> Name<'n> {
    /// The member at the front of these bytes.
    #[inline]
    pub(crate) fn of(member: &'n [u8], strings: Option<&'n LargeStrings>) -> Self {
        let element = element::read(member).0;
        if let Element::Large(large) = element
            && let Some(chain) = strings.and_then(|strings| strings.get(large))
        {
            return Self::Chain(chain);
        }
        Self::Element(element)
    }

    pub(crate) fn of_needle(needle: &'n Needle) -> Self {
        match needle {
            Needle::Short(element) => Self::Element(element::read(element).0),
            Needle::Large(chain, _) => Self::Chain(chain),
        }
    }

    pub(crate) fn bytes(bytes: &'n [u8]) -> Self {
        Self::Element(Element::Bytes(bytes))
    }

    #[inline]
    pub(crate) fn cmp(self, other: Name<'_>) -> Ordering {
        match (self, other) {
            (Self::Element(a), Name::Element(b)) => a.cmp_text(b),
            _ => self.each(|a| other.each(|b| cmp_parts(a, b))),
        }
    }

    /// Gives the parts of its bytes to `read`.
    fn each<R>(self, read: impl FnOnce(&mut dyn Iterator<Item = &[u8]>) -> R) -> R {
        match self {
            Self::Element(element) => read(&mut std::iter::once(&element.show()[..])),
            Self::Chain(chain) => read(&mut chain.parts().iter().map(|part| &part[..])),
        }
    }
}

/// Compares two strings that are given in parts.
fn cmp_parts(a: &mut dyn Iterator<Item = &[u8]>, b: &mut dyn Iterator<Item = &[u8]>) -> Ordering {
    let (mut left, mut right): (&[u8], &[u8]) = (&[], &[]);
    loop {
        while left.is_empty() {
            match a.next() {
                Some(part) => left = part,
                None => break,
            }
        }
        while right.is_empty() {
            match b.next() {
                Some(part) => right = part,
                None => break,
            }
        }
        let len = left.len().min(right.len());
        if len == 0 {
            return left.len().cmp(&right.len());
        }
        match left[..len].cmp(&right[..len]) {
            Ordering::Equal => (left, right) = (&left[len..], &right[len..]),
            unequal => return unequal,
        }
    }
}

/// A record against a score and a member.
#[inline]
pub(crate) fn cmp_record(
    record: &[u8],
    score: f64,
    name: Name<'_>,
    strings: Option<&LargeStrings>,
) -> Ordering {
    let (own, len) = element::read(record);
    match cmp_scores(own.score(), score) {
        Ordering::Equal => Name::of(record.get(len..).unwrap_or_default(), strings).cmp(name),
        unequal => unequal,
    }
}

/// Whether a score and a member are at or behind a mark.
#[inline]
pub(crate) fn is_behind(mark: &Mark, score: f64, name: Name<'_>) -> bool {
    match cmp_scores(mark.0, score) {
        Ordering::Equal => mark.1.is_empty() || Name::bytes(&mark.1).cmp(name) != Ordering::Greater,
        unequal => unequal == Ordering::Less,
    }
}

/// By the hash of the member: what finds its score.
///
/// ```text
///  record   | the hash's upper 32 bits: 4 | score: an element |
/// ```
///
/// Several members may share these bits, so what is found is looked for among the
/// scores. Records that are equal stand for each other.
#[derive(Debug)]
pub(crate) struct Members;

/// Bytes of a hash in a record.
pub(crate) const HASH_LEN: usize = 4;

impl Order for Members {
    type Bound = u64;
    const TAGGED: bool = true;
    const IS_CODED: bool = false;
    const COUNT_MAX: usize = if cfg!(test) { 20 } else { 128 };
    const BYTES_MAX: usize = 4096;

    #[inline]
    fn record_len(bytes: &[u8]) -> usize {
        HASH_LEN + element::skip(bytes.get(HASH_LEN..).unwrap_or_default())
    }

    #[inline]
    fn tag(record: &[u8]) -> u8 {
        record.first().copied().unwrap_or_default()
    }

    fn key(record: &[u8]) -> u64 {
        record.first_chunk().map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes)))
    }

    fn bound(left: &[u8], right: &[u8]) -> Option<u64> {
        let key = Self::key(right);
        (left.is_empty() || Self::key(left) != key).then_some(key)
    }

    fn is_at_or_behind(own: &u64, other: &u64) -> bool {
        own >= other
    }

    fn put_bound(bound: &u64, pen: &mut dyn Pen) -> io::Result<()> {
        pen.put(&bound.to_le_bytes())
    }

    fn take_bound(source: &mut dyn Source) -> io::Result<u64> {
        source.eight()
    }
}

/// The bits of a member's hash that the index has.
#[inline]
pub(crate) fn hash_of_needle(needle: &Needle) -> u32 {
    let hash = match needle {
        Needle::Short(element) => element::hash(element),
        Needle::Large(_, hash) => *hash,
    };
    (hash >> 32) as u32
}

/// The same of a member as it lies in a record, without what is behind it.
#[inline]
pub(crate) fn hash_of_member(member: &[u8]) -> u32 {
    let hash = match element::read(member).0 {
        Element::Large(large) => large.hash,
        _ => element::hash(member),
    };
    (hash >> 32) as u32
}
