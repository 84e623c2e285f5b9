//! The ID of a stream entry: milliseconds and a sequence number.
//!
//! Only the forms that name one ID are read here (`ms` and `ms-seq`). `*`,
//! `ms-*`, `-`, `+`, `$` and `(` mean something only inside a command and are
//! resolved there.

use std::fmt;

/// The longest text that is considered at all when an ID is parsed, in bytes
/// (Redis's own limit).
const TEXT_BYTES_MAX: usize = 127;

/// The ID of a stream entry, ordered as Redis orders them: by milliseconds,
/// then by sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds since the Unix epoch, unless the client chose otherwise.
    pub ms: u64,
    /// Distinguishes the entries of one millisecond.
    pub seq: u64,
}

impl StreamId {
    /// The smallest ID, `0-0`. No entry can have it.
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    /// The greatest ID.
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// An ID from its two parts.
    pub const fn new(ms: u64, seq: u64) -> Self {
        Self { ms, seq }
    }

    /// Reads `ms-seq`, or `ms` alone, which takes `default_seq`. `None` when
    /// the text is not an ID or a part is above `u64::MAX`.
    pub fn parse(text: &[u8], default_seq: u64) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        match text.iter().position(|&byte| byte == b'-') {
            None => Some(Self { ms: parse_part(text)?, seq: default_seq }),
            Some(dash) => {
                Some(Self { ms: parse_part(&text[..dash])?, seq: parse_part(&text[dash + 1..])? })
            }
        }
    }

    /// The ID right after this one; `None` after [`Self::MAX`].
    pub fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { ms: self.ms, seq }),
            None => Some(Self { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The ID right before this one; `None` before [`Self::MIN`].
    pub fn prev(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { ms: self.ms, seq }),
            None => Some(Self { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every reply has IDs in it: itoa takes a third of what `{}-{}` does.
        let mut digits = itoa::Buffer::new();
        f.write_str(digits.format(self.ms))?;
        f.write_str("-")?;
        f.write_str(digits.format(self.seq))
    }
}

/// One number of an ID. As lenient as the C library that Redis asks: leading
/// white space, a plus sign and leading zeros are let through.
fn parse_part(text: &[u8]) -> Option<u64> {
    let is_space = |byte: u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let text = &text[text.iter().take_while(|&&byte| is_space(byte)).count()..];
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms() {
        assert_eq!(StreamId::parse(b"5", 9), Some(StreamId::new(5, 9)));
        assert_eq!(StreamId::parse(b"5-7", 9), Some(StreamId::new(5, 7)));
        assert_eq!(StreamId::parse(b"007-0", 9), Some(StreamId::new(7, 0)));
        for bad in
            ["", "-", "+", "5-", "-5", "5-7-9", "a", "5-*", "*", "18446744073709551616", "5 "]
        {
            assert_eq!(StreamId::parse(bad.as_bytes(), 0), None, "{bad:?}");
        }
        assert_eq!(StreamId::parse(&[b'0'; 128], 0), None);
    }

    #[test]
    fn ends() {
        assert_eq!(StreamId::MAX.next(), None);
        assert_eq!(StreamId::MIN.prev(), None);
        assert_eq!(StreamId::new(4, u64::MAX).next(), Some(StreamId::new(5, 0)));
        assert_eq!(StreamId::new(5, 0).prev(), Some(StreamId::new(4, u64::MAX)));
    }

    proptest! {
        #[test]
        fn text_round_trips(ms: u64, seq: u64) {
            let id = StreamId::new(ms, seq);
            prop_assert_eq!(StreamId::parse(id.to_string().as_bytes(), 0), Some(id));
            prop_assert_eq!(id.next().and_then(StreamId::prev).unwrap_or(id), id);
        }
    }
}
