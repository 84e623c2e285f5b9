//! Finds where replies end, as cheaply as that can be done.
//!
//! A load generator does not want the replies, it wants to know that they came
//! and whether they were errors. So nothing is parsed into values: the scanner
//! counts the elements that the current reply still owes and skips payloads by
//! their length.
//!
//! ```text
//! *2\r\n  $3\r\nfoo\r\n  :1\r\n        elements owed:  1 -> 2 -> 1 -> 0 = one reply
//! ```
//!
//! It resumes at any byte, understands RESP2 and RESP3, allocates nothing, and
//! costs about ten nanoseconds a reply. Pushes are skipped: they answer nothing.

use memchr::memchr;

/// A header line (type byte, length or short text) longer than this is not RESP.
const HEADER_BYTES_MAX: usize = 64 * 1024;

/// The longest string that Redis sends, unless told otherwise.
pub const BULK_BYTES_MAX: u64 = 512 << 20;
/// Aggregates that begin one inside the other without anything between: deeper is
/// no server's reply, and might never end.
const NESTING_MAX: u32 = 64;

/// How one reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// Anything but an error.
    Good,
    /// An error reply, without its marker and line end.
    Error(&'a [u8]),
}

/// What came is not RESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server's answer is not RESP (byte 0x{0:02x} where a reply should begin or go on)")]
pub struct Malformed(pub u8);

/// Where the scanner stands between two reads.
#[derive(Debug, Default, Clone)]
pub struct ReplyScanner {
    /// Elements that the reply under way still owes; 0 between replies.
    owed: u64,
    /// Payload bytes, with their line end, still to be skipped.
    skip: u64,
    /// Aggregates that have begun since the last element of another kind.
    nested: u32,
    /// The reply under way is a push.
    push: bool,
}

impl ReplyScanner {
    /// Scans `input`, calling `each` with the outcome and the end of every reply
    /// that is complete. Returns how many bytes it is done with; what is left is
    /// the beginning of a header line and must be offered again, with more.
    pub fn scan<'a>(
        &mut self,
        input: &'a [u8],
        mut each: impl FnMut(Outcome<'a>, usize),
    ) -> Result<usize, Malformed> {
        let mut at = 0;
        loop {
            if self.skip > 0 {
                let step = self.skip.min((input.len() - at) as u64);
                at += step as usize;
                self.skip -= step;
                if self.skip > 0 {
                    return Ok(at);
                }
                self.element_done(Outcome::Good, at, &mut each);
            }
            let rest = &input[at..];
            let Some(line_end) = memchr(b'\n', rest) else {
                return match rest.first() {
                    Some(&byte) if rest.len() > HEADER_BYTES_MAX => Err(Malformed(byte)),
                    _ => Ok(at),
                };
            };
            let line = rest[..line_end].strip_suffix(b"\r").unwrap_or(&rest[..line_end]);
            at += line_end + 1;
            let Some((&kind, text)) = line.split_first() else { return Err(Malformed(b'\n')) };
            let top = self.owed == 0;
            if top {
                self.owed = 1;
                self.push = kind == b'>';
            }
            match kind {
                b'+' | b':' | b'_' | b'#' | b',' | b'(' => {
                    self.element_done(Outcome::Good, at, &mut each);
                }
                b'-' if top => self.element_done(Outcome::Error(text), at, &mut each),
                b'-' => self.element_done(Outcome::Good, at, &mut each),
                b'$' | b'=' | b'!' => match length(text)? {
                    Some(bytes) if bytes > BULK_BYTES_MAX => return Err(Malformed(kind)),
                    Some(bytes) => self.skip = bytes + 2,
                    None => self.element_done(Outcome::Good, at, &mut each),
                },
                b'*' | b'~' | b'>' => self.open(length(text)?.unwrap_or(0), at, &mut each)?,
                b'%' => {
                    let pairs = length(text)?.unwrap_or(0);
                    self.open(pairs.checked_mul(2).ok_or(Malformed(kind))?, at, &mut each)?;
                }
                // An attribute precedes the element that it describes.
                b'|' => {
                    let pairs = length(text)?.unwrap_or(0);
                    let parts = pairs.checked_mul(2).ok_or(Malformed(kind))?;
                    self.nest(kind)?;
                    self.owed = self.owed.checked_add(parts).ok_or(Malformed(kind))?;
                }
                other => return Err(Malformed(other)),
            }
        }
    }

    /// An aggregate of `parts` elements begins.
    fn open<'a>(
        &mut self,
        parts: u64,
        at: usize,
        each: &mut impl FnMut(Outcome<'a>, usize),
    ) -> Result<(), Malformed> {
        self.nest(b'*')?;
        let nested = self.nested;
        self.owed = self.owed.checked_add(parts).ok_or(Malformed(b'*'))?;
        self.element_done(Outcome::Good, at, each);
        self.nested = if parts == 0 { 0 } else { nested };
        Ok(())
    }

    fn nest(&mut self, kind: u8) -> Result<(), Malformed> {
        self.nested += 1;
        if self.nested > NESTING_MAX { Err(Malformed(kind)) } else { Ok(()) }
    }

    fn element_done<'a>(
        &mut self,
        outcome: Outcome<'a>,
        at: usize,
        each: &mut impl FnMut(Outcome<'a>, usize),
    ) {
        self.owed -= 1;
        self.nested = 0;
        if self.owed == 0 && !self.push {
            each(outcome, at);
        }
    }
}

/// Reads the decimal after a type byte; `None` for -1, the null of RESP2.
fn length(text: &[u8]) -> Result<Option<u64>, Malformed> {
    if text == b"-1" {
        return Ok(None);
    }
    if text.is_empty() || text.len() > 18 {
        return Err(Malformed(text.first().copied().unwrap_or(b'\r')));
    }
    let mut value = 0_u64;
    for &digit in text {
        if !digit.is_ascii_digit() {
            return Err(Malformed(digit));
        }
        value = value * 10 + u64::from(digit - b'0');
    }
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds `bytes` in reads that end at `cuts`, keeping what is unfinished, as
    /// a connection does. Returns each reply as whether it was an error.
    fn scan_in_pieces(bytes: &[u8], cuts: &[usize]) -> Result<Vec<bool>, Malformed> {
        let mut scanner = ReplyScanner::default();
        let mut seen = Vec::new();
        let mut held = Vec::new();
        let mut from = 0;
        for &cut in cuts.iter().chain([&bytes.len()]) {
            let cut = cut.clamp(from, bytes.len());
            held.extend_from_slice(&bytes[from..cut]);
            from = cut;
            let done = scanner.scan(&held, |outcome, _| seen.push(outcome != Outcome::Good))?;
            held.drain(..done);
        }
        assert!(held.is_empty(), "whole replies leave nothing over");
        Ok(seen)
    }

    fn reply() -> impl Strategy<Value = Vec<u8>> {
        let leaf = prop_oneof![
            "[a-z ]{0,12}".prop_map(|text| format!("+{text}\r\n").into_bytes()),
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            Just(b"$-1\r\n".to_vec()),
            Just(b"*-1\r\n".to_vec()),
            Just(b"_\r\n".to_vec()),
            Just(b"#t\r\n".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(|payload| {
                let mut bytes = format!("${}\r\n", payload.len()).into_bytes();
                bytes.extend(payload);
                bytes.extend(b"\r\n");
                bytes
            }),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            (proptest::collection::vec(inner, 0..4), prop_oneof![Just('*'), Just('~')]).prop_map(
                |(parts, marker)| {
                    let mut bytes = format!("{marker}{}\r\n", parts.len()).into_bytes();
                    bytes.extend(parts.concat());
                    bytes
                },
            )
        })
    }

    proptest! {
        #[test]
        fn any_split_finds_the_same_replies(
            replies in proptest::collection::vec((reply(), any::<bool>()), 1..8),
            mut cuts in proptest::collection::vec(0_usize..400, 0..12),
        ) {
            cuts.sort_unstable();
            let mut bytes = Vec::new();
            let mut expected = Vec::new();
            for (reply, error_follows) in &replies {
                bytes.extend(reply);
                expected.push(false);
                if *error_follows {
                    bytes.extend(b"-ERR no\r\n");
                    expected.push(true);
                }
            }
            prop_assert_eq!(scan_in_pieces(&bytes, &cuts), Ok(expected));
        }

        #[test]
        fn any_bytes_are_scanned_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut scanner = ReplyScanner::default();
            if let Ok(done) = scanner.scan(&bytes, |_, end| assert!(end <= bytes.len())) {
                prop_assert!(done <= bytes.len());
            }
        }
    }

    #[test]
    fn resp3_maps_attributes_and_pushes() {
        let bytes = b"%1\r\n+a\r\n:1\r\n|1\r\n+ttl\r\n:9\r\n$1\r\nx\r\n>2\r\n+message\r\n+x\r\n,1.5\r\n-ERR e\r\n";
        assert_eq!(scan_in_pieces(bytes, &[]), Ok(vec![false, false, false, true]));
    }

    #[test]
    fn an_error_inside_an_array_is_not_the_reply() {
        assert_eq!(scan_in_pieces(b"*1\r\n-ERR no\r\n", &[]), Ok(vec![false]));
    }

    #[test]
    fn what_would_never_end_is_refused() {
        assert_eq!(scan_in_pieces(b"$99999999999\r\n", &[]), Err(Malformed(b'$')));
        assert_eq!(scan_in_pieces(&b"*1\r\n".repeat(100), &[50]), Err(Malformed(b'*')));
        assert_eq!(scan_in_pieces(&b"|1\r\n".repeat(100), &[]), Err(Malformed(b'|')));
        let deep = [b"*1\r\n".repeat(60), b":1\r\n".to_vec()].concat();
        assert_eq!(scan_in_pieces(&deep.repeat(3), &[]), Ok(vec![false; 3]));
        assert_eq!(scan_in_pieces(&b"*0\r\n".repeat(100), &[]), Ok(vec![false; 100]));
    }

    #[test]
    fn http_is_refused() {
        assert_eq!(scan_in_pieces(b"HTTP/1.1 400\r\n", &[]), Err(Malformed(b'H')));
    }
}
