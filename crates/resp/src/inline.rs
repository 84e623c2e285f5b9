//! Redis's one-line form of a command and of a configuration directive: words
//! separated by blanks, some of them quoted.
//!
//! ```text
//!  set  "a key\n"  'it''s'     words begin at anything but a blank
//!        |          |
//!        |          within '...' only \' means something: a single quote
//!        within "..." \n \r \t \b \a and \xHH (two hex digits) stand for one
//!        byte, \ before anything else stands for that byte
//! ```
//!
//! A quote may open within a word (`ab"c d"` is the word `abc d`), but a closing
//! quote must end its word. Unescaping never lengthens a word, so it is done
//! where the line lies: words become ranges of the line itself and nothing is
//! allocated. O(length), one pass.
//!
//! Two sets of blanks, both Redis's own: a word begins after any of space, `\t`,
//! `\n`, `\v`, `\f` and `\r`, and a bare word ends at any of them but `\v` and
//! `\f`, which belong to it.

/// A quote that is not closed, or that closes in the middle of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unbalanced quotes")]
pub struct UnbalancedQuotes;

/// Splits `line` into its words, unescaped; `None` if the quotes are unbalanced.
///
/// ```
/// let words = snug_resp::split_args(br#"set key "two\x20words""#).unwrap();
/// assert_eq!(words, [&b"set"[..], b"key", b"two words"]);
/// ```
pub fn split_args(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut line = line.to_vec();
    let mut ranges = Vec::new();
    split_in_place(&mut line, |start, len| ranges.push(start..start + len)).ok()?;
    Some(ranges.into_iter().map(|range| line[range].to_vec()).collect())
}

/// Splits `line` and unescapes its words within it, calling `word` with the
/// start and length of each in turn. `line` holds nothing else of use
/// afterwards.
pub(crate) fn split_in_place(
    line: &mut [u8],
    mut word: impl FnMut(usize, usize),
) -> Result<(), UnbalancedQuotes> {
    let mut next = 0;
    while let Some(start) = line[next..].iter().position(|&byte| !is_blank(byte)) {
        let start = next + start;
        let (end, after) = unescape_word(line, start)?;
        word(start, end - start);
        next = after;
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Quotes {
    None,
    Double,
    Single,
}

/// Unescapes the word that begins at `start`, moving its bytes down onto
/// themselves: where the word now ends, and where the line goes on.
fn unescape_word(line: &mut [u8], start: usize) -> Result<(usize, usize), UnbalancedQuotes> {
    let mut quotes = Quotes::None;
    let mut read = start;
    let mut write = start;
    while let Some(&byte) = line.get(read) {
        let (meant, used) = match (quotes, byte) {
            (Quotes::None, b' ' | b'\t' | b'\n' | b'\r') => return Ok((write, read)),
            (Quotes::None, b'"') => {
                quotes = Quotes::Double;
                read += 1;
                continue;
            }
            (Quotes::None, b'\'') => {
                quotes = Quotes::Single;
                read += 1;
                continue;
            }
            (Quotes::Double, b'"') | (Quotes::Single, b'\'') => {
                let ends = line.get(read + 1).is_none_or(|&next| is_blank(next));
                return if ends { Ok((write, read + 1)) } else { Err(UnbalancedQuotes) };
            }
            (Quotes::Double, b'\\') => escaped(&line[read..]),
            (Quotes::Single, b'\\') if line.get(read + 1) == Some(&b'\'') => (b'\'', 2),
            _ => (byte, 1),
        };
        line[write] = meant;
        write += 1;
        read += used;
    }
    match quotes {
        Quotes::None => Ok((write, read)),
        Quotes::Double | Quotes::Single => Err(UnbalancedQuotes),
    }
}

/// The byte that an escape at the start of `text` means, and its length.
fn escaped(text: &[u8]) -> (u8, usize) {
    if let [_, b'x', high, low, ..] = *text
        && let (Some(high), Some(low)) = (hex_digit(high), hex_digit(low))
    {
        return (high * 16 + low, 4);
    }
    match text.get(1) {
        Some(b'n') => (b'\n', 2),
        Some(b'r') => (b'\r', 2),
        Some(b't') => (b'\t', 2),
        Some(b'b') => (0x08, 2),
        Some(b'a') => (0x07, 2),
        Some(&other) => (other, 2),
        None => (b'\\', 1),
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

#[cfg(test)]
mod tests {
    use super::split_args;
    use proptest::prelude::*;

    #[test]
    fn words_and_quotes() {
        let cases: &[(&[u8], &[&[u8]])] = &[
            (b"", &[]),
            (b"  \t\r\n\x0b\x0c", &[]),
            (b"ping", &[b"ping"]),
            (b"  set  a   b  ", &[b"set", b"a", b"b"]),
            (b"\"\"", &[b""]),
            (b"''", &[b""]),
            (b"a\"b c\"", &[b"ab c"]),
            (b"a'b c' d", &[b"ab c", b"d"]),
            (br#""\n\r\t\b\a\x41\xfF\\\"\q""#, &[b"\n\r\t\x08\x07A\xff\\\"q"]),
            (br#""\x4g\x""#, &[b"x4gx"]),
            (br"'\n\'\q'", &[br"\n'\q"]),
            (br"a\nb", &[br"a\nb"]),
            (b"'a\"b' \"a'b\"", &[b"a\"b", b"a'b"]),
            (b"\"a\"\x0bb", &[b"a", b"b"]),
            (b"\x0ba\x0bb", &[b"a\x0bb"]),
            (b"a\0b", &[b"a\0b"]),
            (b"\"a\nb\"", &[b"a\nb"]),
        ];
        for (line, words) in cases {
            let got = split_args(line);
            assert_eq!(
                got.as_deref(),
                Some(&words.iter().map(|w| w.to_vec()).collect::<Vec<_>>()[..]),
                "{}",
                line.escape_ascii()
            );
        }
    }

    #[test]
    fn unbalanced_quotes_are_refused() {
        for line in [
            &b"\""[..],
            b"'",
            b"a\"b",
            b"\"a\"b",
            b"'a'b",
            b"\"a\\\"",
            b"'a\\'",
            br"'\\'",
            b"\"\\",
            b"\"\"\"\"",
        ] {
            assert_eq!(split_args(line), None, "{}", line.escape_ascii());
        }
    }

    /// Redis's own way of showing bytes so that they can be typed back.
    fn quoted(word: &[u8]) -> Vec<u8> {
        let mut out = vec![b'"'];
        for &byte in word {
            match byte {
                b'"' | b'\\' => out.extend([b'\\', byte]),
                b'\n' => out.extend(b"\\n"),
                0x20..=0x7e => out.push(byte),
                _ => out.extend(format!("\\x{byte:02x}").bytes()),
            }
        }
        out.push(b'"');
        out
    }

    proptest! {
        #[test]
        fn quoting_round_trips(words in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..6)) {
            let line = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(&b' ');
            prop_assert_eq!(split_args(&line), Some(words));
        }

        #[test]
        fn any_line_is_split_or_refused(line in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(words) = split_args(&line) {
                prop_assert!(words.iter().map(Vec::len).sum::<usize>() <= line.len());
            }
        }
    }
}
