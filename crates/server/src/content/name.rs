//! Names: keys in paths, and keys in answers.

use super::answer::Refusal;
use crate::text::card::is_card;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use std::borrow::Cow;

/// What stands before every key in a path.
pub(super) const ROOT: &str = "/content/";

/// The longest key, in bytes: less than a path may be long.
const KEY_BYTES_MAX: usize = 8 * 1024;

/// What is escaped in a path: all but letters, digits, and what a path may hold as it is.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/')
    .remove(b':')
    .remove(b'@')
    .remove(b'!')
    .remove(b'$')
    .remove(b'(')
    .remove(b')')
    .remove(b',')
    .remove(b'=');

/// The key that the rest of a path stands for, percent-decoded.
pub(super) fn key(rest: &str) -> Result<Cow<'_, [u8]>, Refusal> {
    let key: Cow<'_, [u8]> = match check_escapes(rest) {
        true => percent_decode_str(rest).into(),
        false => return Err(Refusal::bad("a percent sign is not followed by two digits")),
    };
    if key.len() > KEY_BYTES_MAX {
        return Err(Refusal::bad("the key is too long"));
    }
    if is_card(&key) {
        return Err(Refusal::bad("keys of this name hold what is known of others"));
    }
    Ok(key)
}

/// Whether each percent sign has its two digits.
fn check_escapes(text: &str) -> bool {
    let mut parts = text.split('%');
    parts.next();
    parts.all(|part| part.as_bytes().get(..2).is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit)))
}

/// The path of a key. `config` alone is the policy's, and `.` and `..` would be resolved by
/// whoever reads them: of these the first letter is escaped.
pub(super) fn path(key: &[u8]) -> String {
    let escaped = match key {
        b"config" => "%63onfig".into(),
        _ => percent_encode(key, ESCAPED).to_string(),
    };
    let dots = |segment: &str| match segment {
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        other => other.to_owned(),
    };
    ROOT.to_owned() + &escaped.split('/').map(dots).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_path_is_read_back(key_bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let path = path(&key_bytes);
            prop_assert!(path.is_ascii() && path != "/content/config");
            let back = key(path.strip_prefix(ROOT).unwrap()).unwrap();
            prop_assert_eq!(&*back, &key_bytes[..]);
        }

        #[test]
        fn any_text_is_a_key_or_refused(text in "[ -~]{0,40}") {
            let _ = key(&text);
        }
    }

    #[test]
    fn paths() {
        assert_eq!(path(b"a/b c?"), "/content/a/b%20c%3F");
        assert_eq!(path(b"config"), "/content/%63onfig");
        assert_eq!(path(b"../x"), "/content/%2E%2E/x");
        for wrong in ["%", "%4", "a%zz", "snug:content:{a}"] {
            assert!(key(wrong).is_err(), "{wrong}");
        }
    }
}
