//! The longest common subsequence of two strings, as `LCS` finds it.
//!
//! The textbook table of lengths, of which only two rows are kept; what the way
//! back through it needs is one bit per pair of positions:
//!
//! ```text
//!            b 0 1 2 ...
//!   a 0        . ^ <         ^  the row above has more: go up
//!     1        < . <         <  go left
//!     2        ^ < .         .  equal bytes: go both ways at once
//! ```
//!
//! O(a * b) time; a * b / 8 bytes, a thirty-second of the table of 4-byte
//! lengths that Redis builds and by whose size it limits the command.

/// A run of bytes that both strings have in common: first and last position in
/// each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    pub a: (usize, usize),
    pub b: (usize, usize),
}

impl Match {
    pub(crate) fn len(&self) -> usize {
        self.a.1 - self.a.0 + 1
    }
}

/// The longest common subsequence and the runs it is made of, last one first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Common {
    pub bytes: Vec<u8>,
    pub matches: Vec<Match>,
}

/// The bytes of the table that Redis would build for strings of these lengths.
pub(crate) fn table_bytes(a: usize, b: usize) -> u128 {
    (a as u128 + 1) * (b as u128 + 1) * size_of::<u32>() as u128
}

/// The length of the longest common subsequence.
pub(crate) fn length(a: &[u8], b: &[u8]) -> usize {
    lengths(a, b, |_, _| ())
}

/// The longest common subsequence; of several, the one that Redis finds.
pub(crate) fn common(a: &[u8], b: &[u8]) -> Common {
    let mut upwards = vec![0u64; (a.len() * b.len()).div_ceil(64)];
    let len = lengths(a, b, |i, j| {
        let at = i * b.len() + j;
        upwards[at / 64] |= 1 << (at % 64);
    });
    let mut bytes = Vec::with_capacity(len);
    let mut matches: Vec<Match> = Vec::new();
    // Whether the last match may still grow: nothing was skipped since.
    let mut growing = false;
    let (mut i, mut j) = (a.len(), b.len());
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            i -= 1;
            j -= 1;
            bytes.push(a[i]);
            match matches.last_mut() {
                Some(last) if growing => (last.a.0, last.b.0) = (i, j),
                _ => matches.push(Match { a: (i, i), b: (j, j) }),
            }
            growing = true;
        } else {
            growing = false;
            let at = (i - 1) * b.len() + (j - 1);
            if upwards[at / 64] >> (at % 64) & 1 == 1 {
                i -= 1;
            } else {
                j -= 1;
            }
        }
    }
    bytes.reverse();
    Common { bytes, matches }
}

/// Computes the table row by row; its last length. `upwards` is called for the
/// pairs of different bytes from which the way back goes up.
fn lengths(a: &[u8], b: &[u8], mut upwards: impl FnMut(usize, usize)) -> usize {
    if a.is_empty() {
        return 0;
    }
    let mut row = vec![0u32; b.len() + 1];
    for (i, byte) in a.iter().enumerate() {
        // What was at `row[j]` in the row before.
        let mut diagonal = 0;
        for (j, other) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = if byte == other {
                diagonal + 1
            } else if above > row[j] {
                upwards(i, j);
                above
            } else {
                row[j]
            };
            diagonal = above;
        }
    }
    row[b.len()] as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn finds_what_redis_documents() {
        let found = common(b"ohmytext", b"mynewtext");
        assert_eq!(found.bytes, b"mytext");
        assert_eq!(found.matches, [Match { a: (4, 7), b: (5, 8) }, Match { a: (2, 3), b: (0, 1) }]);
        assert_eq!(common(b"", b"abc"), Common::default());
    }

    fn is_subsequence(part: &[u8], whole: &[u8]) -> bool {
        let mut rest = whole.iter();
        part.iter().all(|byte| rest.any(|other| other == byte))
    }

    proptest! {
        #[test]
        fn what_is_common_is_in_both_and_longest(a in "[abc]{0,40}", b in "[abc]{0,40}") {
            let (a, b) = (a.as_bytes(), b.as_bytes());
            let found = common(a, b);
            prop_assert!(is_subsequence(&found.bytes, a) && is_subsequence(&found.bytes, b));
            prop_assert_eq!(found.bytes.len(), length(a, b));
            prop_assert_eq!(length(a, b), length(b, a));
            prop_assert_eq!(found.matches.iter().map(Match::len).sum::<usize>(), found.bytes.len());
            let runs: Vec<u8> = found.matches.iter().rev()
                .flat_map(|m| a[m.a.0..=m.a.1].iter().copied()).collect();
            prop_assert_eq!(&runs, &found.bytes);
            for m in &found.matches {
                prop_assert_eq!(&a[m.a.0..=m.a.1], &b[m.b.0..=m.b.1]);
            }
            // Of strings made longer by the same byte, one byte longer.
            let longer = |s: &[u8]| [s, b"x"].concat();
            prop_assert_eq!(length(&longer(a), &longer(b)), length(a, b) + 1);
        }
    }
}
