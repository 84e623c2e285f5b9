//! LZF, the compression of strings in RDB: fast, and weak beside what Snug packs with.
//!
//! ```text
//!  000LLLLL  L + 1 bytes as they are follow
//!  LLLddddd [LLLLLLLL] dddddddd   L + 2 bytes again, from d + 1 bytes back;
//!                                 L of 7 is 7 + the byte that follows then
//! ```
//!
//! Own code: the crate that there was is no longer kept. Cost: a table of 32 KiB for a
//! writer, which looks at each byte about once.

/// Positions that are remembered.
const TABLE_BITS: u32 = 13;
/// The furthest that one refers back, ...
const BACK_MAX: usize = 1 << 13;
/// ... the most bytes that it repeats, ...
const MATCH_MAX: usize = 264;
/// ... and the most bytes that stand as they are.
const LITERALS_MAX: usize = 32;

/// What compresses. One is used for any number of strings.
#[derive(Debug)]
pub(crate) struct Lzf {
    /// Where three bytes stood last, by their hash, counted from the first string on.
    table: Box<[u32]>,
    /// Where the string begins that is compressed: what is before it is another one.
    base: u32,
}

impl Lzf {
    pub(crate) fn new() -> Self {
        Self { table: vec![0; 1 << TABLE_BITS].into(), base: 1 }
    }

    /// Compresses `raw` to `out`, which is emptied first, unless that would take more
    /// than `most` bytes; whether it did.
    pub(crate) fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>, most: usize) -> bool {
        out.clear();
        if u32::try_from(raw.len()).is_err() {
            return false;
        }
        if self.base.checked_add(raw.len() as u32 + 1).is_none() {
            (self.table, self.base) = (vec![0; 1 << TABLE_BITS].into(), 1);
        }
        let base = self.base;
        self.base += raw.len() as u32 + 1;
        let (mut at, mut literals) = (0, 0);
        while at + 2 < raw.len() {
            let (a, b, c) = (raw[at], raw[at + 1], raw[at + 2]);
            let three = u32::from(a) << 16 | u32::from(b) << 8 | u32::from(c);
            let place = (three.wrapping_mul(0x9e37_79b1) >> (32 - TABLE_BITS)) as usize;
            let before = self.table[place];
            self.table[place] = base + at as u32;
            let back = before.checked_sub(base).map(|before| at - before as usize);
            let Some(back) = back.filter(|&back| {
                back <= BACK_MAX && raw[at - back..at - back + 3] == raw[at..at + 3]
            }) else {
                at += 1;
                continue;
            };
            let most_len = MATCH_MAX.min(raw.len() - at);
            let len = (3..most_len).find(|&n| raw[at + n] != raw[at + n - back]);
            let len = len.unwrap_or(most_len);
            if !put_literals(&raw[literals..at], out, most) {
                return false;
            }
            let (offset, count) = (back - 1, len - 2);
            if count < 7 {
                out.push((count << 5) as u8 | (offset >> 8) as u8);
            } else {
                out.push(7 << 5 | (offset >> 8) as u8);
                out.push((count - 7) as u8);
            }
            out.push(offset as u8);
            at += len;
            literals = at;
        }
        put_literals(&raw[literals..], out, most) && out.len() <= most
    }
}

fn put_literals(bytes: &[u8], out: &mut Vec<u8>, most: usize) -> bool {
    for bytes in bytes.chunks(LITERALS_MAX) {
        out.push(bytes.len() as u8 - 1);
        out.extend_from_slice(bytes);
    }
    out.len() <= most
}

/// The most bytes that so many come from.
pub(crate) fn raw_max(len: usize) -> usize {
    // Three bytes may stand for MATCH_MAX.
    len.saturating_mul(MATCH_MAX / 3)
}

/// What `packed` comes from, if it is `len` bytes; `None` if it does not say so.
pub(crate) fn expand(packed: &[u8], len: usize) -> Option<Vec<u8>> {
    if len > raw_max(packed.len()) {
        return None;
    }
    let mut raw = Vec::with_capacity(len.min(packed.len() * 8));
    let mut packed = packed.iter();
    while let Some(&head) = packed.next() {
        if head < LITERALS_MAX as u8 {
            let count = usize::from(head) + 1;
            let bytes = packed.as_slice().get(..count)?;
            raw.extend_from_slice(bytes);
            packed = packed.as_slice()[count..].iter();
        } else {
            let mut count = usize::from(head >> 5);
            if count == 7 {
                count += usize::from(*packed.next()?);
            }
            let back = usize::from(head & 0x1f) << 8 | usize::from(*packed.next()?);
            let from = raw.len().checked_sub(back + 1)?;
            let count = count + 2;
            if back + 1 >= count {
                raw.extend_from_within(from..from + count);
            } else {
                for n in 0..count {
                    raw.push(raw[from + n]);
                }
            }
        }
        if raw.len() > len {
            return None;
        }
    }
    (raw.len() == len).then_some(raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_and_repetitions_come_back() {
        let mut lzf = Lzf::new();
        let mut packed = Vec::new();
        for raw in [vec![b'a'; 5000], b"abcabcabcabcabcabcabc".to_vec(), vec![0; 3]] {
            if lzf.compress(&raw, &mut packed, raw.len()) {
                assert_eq!(expand(&packed, raw.len()).as_deref(), Some(&raw[..]));
                assert_eq!(expand(&packed, raw.len() - 1), None);
            }
        }
        assert!(lzf.compress(&vec![b'a'; 5000], &mut packed, 100));
        assert!(!lzf.compress(b"0123456789abcdefghijkl", &mut packed, 18));
        assert_eq!(expand(&[0x20, 0], 3), None);
        assert_eq!(expand(&[5, 1], 6), None);
    }

    proptest! {
        #[test]
        fn whatever_is_compressed_comes_back(
            raws in prop::collection::vec(prop::collection::vec(0u8..4, 0..600), 1..5),
        ) {
            let mut lzf = Lzf::new();
            let mut packed = Vec::new();
            for raw in raws {
                if lzf.compress(&raw, &mut packed, raw.len()) {
                    prop_assert_eq!(expand(&packed, raw.len()), Some(raw));
                }
            }
        }

        #[test]
        fn whatever_stands_there_is_bounded(packed in prop::collection::vec(any::<u8>(), 0..200), len in 0usize..100_000) {
            if let Some(raw) = expand(&packed, len) {
                prop_assert_eq!(raw.len(), len);
            }
        }
    }
}
