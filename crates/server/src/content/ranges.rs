//! Ranges of bytes (RFC 9110, section 14): what a client asks for of a string's bytes.

use std::ops::Range;

/// Ranges that are answered at once; a request for more is answered with everything.
const RANGES_MAX: usize = 16;

/// What a `Range` header comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// It is none that is understood, or not worth it: the whole is sent.
    Whole,
    /// These, in the order in which they were asked for; at least one, none empty.
    Parts(Vec<Range<usize>>),
    /// None of them is in the string.
    Beyond,
}

/// Reads a `Range` header of a string of `len` bytes.
pub(super) fn asked(text: &str, len: usize) -> Asked {
    let Some((unit, list)) = text.split_once('=') else { return Asked::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Asked::Whole;
    }
    let (mut parts, mut count) = (Vec::new(), 0);
    for spec in list.split(',').map(str::trim).filter(|spec| !spec.is_empty()) {
        count += 1;
        let Some(range) = range(spec, len) else { return Asked::Whole };
        if count > RANGES_MAX {
            return Asked::Whole;
        }
        if !range.is_empty() {
            parts.push(range);
        }
    }
    let bytes: usize = parts.iter().map(ExactSizeIterator::len).sum();
    match (count, parts.len()) {
        (0, _) => Asked::Whole,
        (_, 0) => Asked::Beyond,
        // Whoever asks for the same bytes again and again gets them once.
        (_, 2..) if bytes > len => Asked::Whole,
        _ => Asked::Parts(parts),
    }
}

/// One range within `len` bytes, empty if it lies beyond them; `None` if it is none.
fn range(spec: &str, len: usize) -> Option<Range<usize>> {
    let (first, last) = spec.split_once('-')?;
    let (first, last) = (first.trim(), last.trim());
    if first.is_empty() {
        let suffix = number(last)?;
        return Some(len - suffix.min(len)..len);
    }
    let first = number(first)?;
    let end = match last {
        "" => usize::MAX,
        last => {
            let last = number(last)?;
            if last < first {
                return None;
            }
            last.saturating_add(1)
        }
    };
    Some(first.min(len)..end.min(len))
}

/// A number of decimal digits; what is too large is as large as can be.
fn number(digits: &str) -> Option<usize> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges() {
        let parts = |all: &[(usize, usize)]| Asked::Parts(all.iter().map(|&(a, b)| a..b).collect());
        for (text, expected) in [
            ("bytes=0-4", parts(&[(0, 5)])),
            ("bytes=5-", parts(&[(5, 10)])),
            ("bytes=-3", parts(&[(7, 10)])),
            ("bytes=-99", parts(&[(0, 10)])),
            ("Bytes = 2-2", parts(&[(2, 3)])),
            ("bytes=0-99999999999999999999999", parts(&[(0, 10)])),
            ("bytes=0-1, 8-9,", parts(&[(0, 2), (8, 10)])),
            ("bytes=0-1,20-30", parts(&[(0, 2)])),
            ("bytes=0-6,2-9", Asked::Whole),
            ("bytes=10-", Asked::Beyond),
            ("bytes=-0", Asked::Beyond),
            ("bytes=4-2", Asked::Whole),
            ("bytes=a-b", Asked::Whole),
            ("bytes=", Asked::Whole),
            ("bytes", Asked::Whole),
            ("lines=0-1", Asked::Whole),
            ("bytes=+1-2", Asked::Whole),
            ("bytes=--1", Asked::Whole),
        ] {
            assert_eq!(asked(text, 10), expected, "{text}");
        }
        assert_eq!(asked("bytes=0-", 0), Asked::Beyond);
        let many = format!("bytes={}", "0-0,".repeat(17));
        assert_eq!(asked(&many, 100), Asked::Whole);
    }

    proptest! {
        #[test]
        fn any_text_asks_for_something_that_is_there(text in "bytes=[0-9,\\- ]{0,30}", len in 0usize..200) {
            if let Asked::Parts(parts) = asked(&text, len) {
                prop_assert!(!parts.is_empty() && parts.len() <= RANGES_MAX);
                for part in &parts {
                    prop_assert!(part.start < part.end && part.end <= len);
                }
                prop_assert!(parts.len() == 1 || parts.iter().map(ExactSizeIterator::len).sum::<usize>() <= len);
            }
        }
    }
}
