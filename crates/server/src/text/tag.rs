//! Entity tags: what a string is, in 32 hexadecimal digits.
//!
//! A tag is the 128-bit XXH3 of the bytes, so that equal bytes have equal tags on every node
//! and after every restart, whoever wrote them. It is strong in HTTP's sense: other bytes
//! have another tag, but for one who seeks two strings with one tag, which XXH3 is no hash
//! to prevent. 10 KB take a microsecond.
//!
//! A variant in another encoding has the tag of the bytes and the name of the encoding
//! behind it: `"<tag>-gzip"`.

use snug_codec::coding::Coding;
use std::fmt;
use twox_hash::xxhash3_128;

/// The tag of a string's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tag(u128);

impl Tag {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(xxhash3_128::Hasher::oneshot(bytes))
    }

    /// The tag that 32 digits are.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        u128::from_str_radix(text, 16).ok().filter(|_| digits).map(Self)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The hash of a packed form, by which its tag is kept.
pub(crate) fn hash(form: &[u8]) -> u128 {
    xxhash3_128::Hasher::oneshot(form)
}

/// The tag of bytes that come one after the other.
#[derive(Default)]
pub(crate) struct Tagging(Box<xxhash3_128::Hasher>);

impl Tagging {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    pub(crate) fn finish(self) -> Tag {
        Tag(self.0.finish_128())
    }
}

/// One of the tags that a condition lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed<'a> {
    pub weak: bool,
    /// What stands between the quotes.
    pub opaque: &'a str,
}

impl Listed<'_> {
    /// Whether it is the tag of these bytes, in whatever encoding they are sent.
    pub(crate) fn is_of(&self, tag: Tag) -> bool {
        match self.opaque.strip_prefix(&tag.to_string()[..]) {
            Some("") => true,
            Some(rest) => rest
                .strip_prefix('-')
                .is_some_and(|name| Coding::ALL.iter().any(|coding| coding.name() == name)),
            None => false,
        }
    }
}

/// The tags of a list, as far as it is one: `"a", W/"b"`.
pub(crate) fn listed(text: &str) -> impl Iterator<Item = Listed<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (weak, quoted) = match rest.strip_prefix("W/") {
            Some(quoted) => (true, quoted),
            None => (false, rest),
        };
        let inner = quoted.strip_prefix('"')?;
        let (opaque, after) = inner.split_once('"')?;
        rest = after;
        Some(Listed { weak, opaque })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn in_pieces_as_in_one(bytes in prop::collection::vec(any::<u8>(), 0..3000), at in any::<prop::sample::Index>()) {
            let (a, b) = bytes.split_at(at.index(bytes.len() + 1));
            let mut pieces = Tagging::default();
            pieces.add(a);
            pieces.add(b);
            let tag = Tag::of(&bytes);
            prop_assert_eq!(pieces.finish(), tag);
            prop_assert_eq!(Tag::parse(&tag.to_string()), Some(tag));
        }

        #[test]
        fn any_text_is_some_list(text in "[W/\", a-f*]{0,40}") {
            prop_assert!(listed(&text).count() <= text.len());
        }
    }

    #[test]
    fn a_list_of_tags() {
        let tag = Tag::of(b"x");
        let text = format!("\"a\" , W/\"b\",,\"{tag}-gzip\" junk \"c\"");
        let all: Vec<_> = listed(&text).collect();
        assert_eq!(
            all[..2],
            [Listed { weak: false, opaque: "a" }, Listed { weak: true, opaque: "b" }]
        );
        assert!(all[2].is_of(tag) && !all[1].is_of(tag) && all.len() == 3);
        assert_eq!(listed("*").count(), 0);
        for (behind, is_it) in [
            ("", true),
            ("-zstd", true),
            ("-br", true),
            ("-", false),
            ("-x", false),
            ("-gzip-gzip", false),
        ] {
            let opaque = format!("{tag}{behind}");
            assert_eq!(Listed { weak: false, opaque: &opaque }.is_of(tag), is_it, "{behind}");
        }
    }
}
