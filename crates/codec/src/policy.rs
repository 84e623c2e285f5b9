//! The policy: which values are packed with what.
//!
//! ```json
//! {
//!   "level": 3,
//!   "skip": ["image/", "video/", "application/zip"],
//!   "types": { "text/html": 9, "text/": 6 },
//!   "rules": [
//!     { "key": "session:*", "codec": "lz4" },
//!     { "type": "stream", "level": 9 },
//!     { "mime": "application/json", "size_min": 65536, "level": 12 }
//!   ]
//! }
//! ```
//!
//! The first rule that matches decides. Where none does: a MIME type in the
//! skip list (exactly, or by a prefix that ends in a slash) is not packed; then
//! the exact type's level, then its prefix's (`text/`), then the global level,
//! and without one the level that the asker has. A policy is checked as a whole
//! when it is read; what is held is valid, and of bounded size, so that asking
//! costs at most some hundred comparisons.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::Codec;

/// A checked policy. In JSON as drawn above; every part may be left out.
/// The default has no opinion: zstd at the asker's level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Draft", into = "Draft")]
pub struct Policy {
    draft: Draft,
}

/// A policy as it is written, before it is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Draft {
    /// The level where nothing else says one, 1 to 22.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<i32>,
    /// MIME types and prefixes (`image/`) that are not packed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skip: Vec<String>,
    /// Levels by MIME type or prefix (`text/`), 1 to 22.
    #[serde(deserialize_with = "distinct", skip_serializing_if = "BTreeMap::is_empty")]
    pub types: BTreeMap<String, i32>,
    /// Rules, tried in order before all else.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
}

/// One rule: what it matches (all that is given must match) and what follows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    /// The value's Redis type: string or stream.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// A glob over the key, as `KEYS` takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// A MIME type, or a prefix of one that ends in a slash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
    /// The least length in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_min: Option<usize>,
    /// The greatest length in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_max: Option<usize>,
    /// The codec; `none` leaves the value raw. zstd where not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub codec: Option<Codec>,
    /// The level, 1 to 22; the global one where not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<i32>,
}

/// A policy that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A level outside 1 to 22.
    #[error("{place}: level {level} is not between 1 and 22")]
    Level {
        /// Where it stands.
        place: String,
        /// What stands there.
        level: i32,
    },
    /// Not a MIME type, nor a prefix of one that ends in a slash.
    #[error("{place}: '{mime}' is neither a MIME type nor a prefix such as 'text/'")]
    Mime {
        /// Where it stands.
        place: String,
        /// What stands there.
        mime: String,
    },
    /// Not a Redis type whose values are packed.
    #[error("rules[{rule}]: '{kind}' is not one of {}", TYPES.join(", "))]
    Type {
        /// The rule's place in the list, from 0.
        rule: usize,
        /// What stands there.
        kind: String,
    },
    /// More than a look-up may go through.
    #[error("{place}: longer than {most}")]
    TooLong {
        /// Where it stands.
        place: String,
        /// What is allowed: entries of a list, bytes of a glob.
        most: usize,
    },
    /// A rule that says nothing.
    #[error("rules[{rule}]: neither a condition nor a codec or level")]
    Empty {
        /// The rule's place in the list, from 0.
        rule: usize,
    },
    /// A rule that no size can match.
    #[error("rules[{rule}]: size_min is above size_max")]
    Size {
        /// The rule's place in the list, from 0.
        rule: usize,
    },
}

/// Entries of each list.
const ENTRIES_MAX: usize = 256;
/// Bytes of a glob.
const GLOB_BYTES_MAX: usize = 256;

const TYPES: [&str; 2] = ["string", "stream"];

/// What is known of a value when its policy is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subject<'a> {
    /// Its Redis type.
    pub kind: &'a str,
    /// Its key.
    pub key: &'a [u8],
    /// Its MIME type, in lower case and without parameters (see [`crate::mime`]).
    pub mime: Option<&'a str>,
    /// Its length in bytes.
    pub len: usize,
}

/// What to pack a value with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The codec; [`Codec::None`] leaves the value raw.
    pub codec: Codec,
    /// The level, for codecs that have levels.
    pub level: i32,
    /// Whether a rule says so, which counts for more than what the bytes look
    /// like.
    pub told: bool,
}

impl From<Policy> for Draft {
    fn from(policy: Policy) -> Self {
        policy.draft
    }
}

impl TryFrom<Draft> for Policy {
    type Error = PolicyError;

    fn try_from(draft: Draft) -> Result<Self, PolicyError> {
        check_len("skip", draft.skip.len(), ENTRIES_MAX)?;
        check_len("types", draft.types.len(), ENTRIES_MAX)?;
        check_len("rules", draft.rules.len(), ENTRIES_MAX)?;
        check_level(draft.level.unwrap_or(1), || "level".into())?;
        for (i, mime) in draft.skip.iter().enumerate() {
            check_mime(mime, || format!("skip[{i}]"))?;
        }
        for (mime, &level) in &draft.types {
            check_mime(mime, || "types".into())?;
            check_level(level, || format!("types['{mime}']"))?;
        }
        for (i, rule) in draft.rules.iter().enumerate() {
            if *rule == Rule::default() {
                return Err(PolicyError::Empty { rule: i });
            }
            check_level(rule.level.unwrap_or(1), || format!("rules[{i}]"))?;
            check_mime(rule.mime.as_deref().unwrap_or("a/"), || format!("rules[{i}]"))?;
            let glob_bytes = rule.key.as_ref().map_or(0, String::len);
            check_len(&format!("rules[{i}].key"), glob_bytes, GLOB_BYTES_MAX)?;
            if let Some(kind) = rule.kind.as_deref().filter(|kind| !TYPES.contains(kind)) {
                return Err(PolicyError::Type { rule: i, kind: kind.to_owned() });
            }
            if rule.size_min.unwrap_or(0) > rule.size_max.unwrap_or(usize::MAX) {
                return Err(PolicyError::Size { rule: i });
            }
        }
        Ok(Self { draft })
    }
}

/// Reads levels by type, each named once: what a map read otherwise would make of a
/// type that stands there twice is one of its levels, without a word.
fn distinct<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, i32>, D::Error> {
    struct Distinct;

    impl<'de> Visitor<'de> for Distinct {
        type Value = BTreeMap<String, i32>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map of levels by MIME type")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut levels = BTreeMap::new();
            while let Some((mime, level)) = map.next_entry::<String, i32>()? {
                if levels.contains_key(&mime) {
                    return Err(de::Error::custom(format_args!("types: duplicate field `{mime}`")));
                }
                levels.insert(mime, level);
            }
            Ok(levels)
        }
    }

    from.deserialize_map(Distinct)
}

fn check_level(level: i32, place: impl FnOnce() -> String) -> Result<(), PolicyError> {
    if (1..=22).contains(&level) {
        Ok(())
    } else {
        Err(PolicyError::Level { place: place(), level })
    }
}

fn check_len(place: &str, len: usize, most: usize) -> Result<(), PolicyError> {
    if len <= most { Ok(()) } else { Err(PolicyError::TooLong { place: place.to_owned(), most }) }
}

fn check_mime(mime: &str, place: impl FnOnce() -> String) -> Result<(), PolicyError> {
    let whole = match mime.strip_suffix('/') {
        Some(prefix) => format!("{prefix}/x"),
        None => mime.to_owned(),
    };
    if crate::mime::essence(&whole).as_deref() == Some(&whole) {
        Ok(())
    } else {
        Err(PolicyError::Mime { place: place(), mime: mime.to_owned() })
    }
}

fn mime_matches(pattern: &str, mime: &str) -> bool {
    pattern == mime || (pattern.ends_with('/') && mime.starts_with(pattern))
}

impl Policy {
    /// Whether a value's MIME type makes a difference to it.
    pub fn asks_mime(&self) -> bool {
        let draft = &self.draft;
        !draft.skip.is_empty()
            || !draft.types.is_empty()
            || draft.rules.iter().any(|rule| rule.mime.is_some())
    }

    /// What to pack `subject` with; at `level` where the policy names none.
    pub fn resolve(&self, subject: &Subject<'_>, level: i32) -> Choice {
        let draft = &self.draft;
        let level = draft.level.unwrap_or(level);
        if let Some(rule) = draft.rules.iter().find(|rule| rule.matches(subject)) {
            let codec = rule.codec.unwrap_or(Codec::Zstd);
            return Choice { codec, level: rule.level.unwrap_or(level), told: true };
        }
        let Some(mime) = subject.mime else {
            return Choice { codec: Codec::Zstd, level, told: false };
        };
        if draft.skip.iter().any(|pattern| mime_matches(pattern, mime)) {
            return Choice { codec: Codec::None, level, told: false };
        }
        let prefix = mime.split_inclusive('/').next().unwrap_or(mime);
        let by_type = draft.types.get(mime).or_else(|| draft.types.get(prefix));
        Choice { codec: Codec::Zstd, level: *by_type.unwrap_or(&level), told: false }
    }
}

impl Rule {
    fn matches(&self, subject: &Subject<'_>) -> bool {
        self.kind.as_deref().is_none_or(|kind| kind == subject.kind)
            && self.key.as_deref().is_none_or(|glob| glob_matches(glob.as_bytes(), subject.key))
            && self
                .mime
                .as_deref()
                .is_none_or(|pattern| subject.mime.is_some_and(|mime| mime_matches(pattern, mime)))
            && (self.size_min.unwrap_or(0)..=self.size_max.unwrap_or(usize::MAX))
                .contains(&subject.len)
    }
}

/// Redis's glob: `*`, `?`, `[abc]`, `[^a-z]`, and `\` before a byte that stands
/// for itself. Linear in memory, at worst the product of the lengths in time.
fn glob_matches(glob: &[u8], text: &[u8]) -> bool {
    let (mut g, mut t) = (0, 0);
    // Where to go on when a star has to take one byte more.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = match glob.get(g) {
            Some(b'*') => {
                star = Some((g + 1, t));
                g += 1;
                continue;
            }
            Some(_) => one_matches(&glob[g..], text[t]),
            None => None,
        };
        match (step, star) {
            (Some(len), _) => {
                g += len;
                t += 1;
            }
            (None, Some((after, from))) => {
                g = after;
                t = from + 1;
                star = Some((after, t));
            }
            (None, None) => return false,
        }
    }
    glob[g..].iter().all(|&b| b == b'*')
}

/// The length of the pattern's first element, if it matches `byte`.
fn one_matches(glob: &[u8], byte: u8) -> Option<usize> {
    match glob {
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', rest @ ..] => {
            let (negated, body) = match rest {
                [b'^', body @ ..] => (true, body),
                _ => (false, rest),
            };
            let (mut found, mut at) = (false, 0);
            while at < body.len() && body[at] != b']' {
                if body[at] == b'\\' && at + 1 < body.len() {
                    at += 1;
                    found |= body[at] == byte;
                } else if at + 2 < body.len() && body[at + 1] == b'-' {
                    let (low, high) = (body[at].min(body[at + 2]), body[at].max(body[at + 2]));
                    found |= (low..=high).contains(&byte);
                    at += 2;
                } else {
                    found |= body[at] == byte;
                }
                at += 1;
            }
            let closed = usize::from(at < body.len());
            (found != negated).then_some(1 + usize::from(negated) + at + closed)
        }
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policy(json: &str) -> Result<Policy, String> {
        serde_json::from_str(json).map_err(|e| e.to_string())
    }

    #[test]
    fn rules_then_skip_then_type_then_prefix_then_global() {
        let policy = policy(
            r#"{"level": 2, "skip": ["image/", "application/zip"], "types": {"text/html": 9, "text/": 6},
                "rules": [{"key": "session:*", "codec": "lz4"}, {"type": "stream", "level": 12},
                          {"mime": "image/", "size_max": 100, "level": 1}, {"key": "raw?", "codec": "none"}]}"#,
        )
        .unwrap();
        let ask = |kind, key: &str, mime, len| {
            let subject = Subject { kind, key: key.as_bytes(), mime, len };
            let choice = policy.resolve(&subject, 7);
            (choice.codec, choice.level)
        };
        assert_eq!(ask("string", "session:1", None, 5), (Codec::Lz4, 2));
        assert_eq!(ask("stream", "s", None, 5), (Codec::Zstd, 12));
        assert_eq!(ask("string", "raw1", None, 5), (Codec::None, 2));
        assert_eq!(ask("string", "x", Some("image/bmp"), 50), (Codec::Zstd, 1));
        assert_eq!(ask("string", "x", Some("image/bmp"), 500), (Codec::None, 2));
        assert_eq!(ask("string", "x", Some("application/zip"), 5), (Codec::None, 2));
        assert_eq!(ask("string", "x", Some("text/html"), 5), (Codec::Zstd, 9));
        assert_eq!(ask("string", "x", Some("text/css"), 5), (Codec::Zstd, 6));
        assert_eq!(ask("string", "x", Some("font/woff"), 5), (Codec::Zstd, 2));
        assert_eq!(ask("string", "x", None, 5), (Codec::Zstd, 2));
    }

    #[test]
    fn what_cannot_be_is_refused_and_says_why() {
        for (json, why) in [
            (r#"{"level": 0}"#, "level: level 0 is not between 1 and 22"),
            (r#"{"types": {"text/": 23}}"#, "types['text/']: level 23 is not between 1 and 22"),
            (
                r#"{"rules": [{"key": "a"}, {"level": -1}]}"#,
                "rules[1]: level -1 is not between 1 and 22",
            ),
            (r#"{"skip": ["image"]}"#, "skip[0]: 'image' is neither a MIME type nor a prefix"),
            (r#"{"rules": [{"type": "queue"}]}"#, "rules[0]: 'queue' is not one of string, stream"),
            (r#"{"rules": [{"type": "list"}]}"#, "rules[0]: 'list' is not one of string, stream"),
            (
                r#"{"rules": [{"level": 1}, {}]}"#,
                "rules[1]: neither a condition nor a codec or level",
            ),
            (r#"{"types": {"text/": 1, "a/b": 2, "text/": 1}}"#, "types: duplicate field `text/`"),
            (r#"{"types": 3}"#, "expected a map of levels by MIME type"),
            (
                r#"{"rules": [{"size_min": 2, "size_max": 1}]}"#,
                "rules[0]: size_min is above size_max",
            ),
            (r#"{"levels": 3}"#, "unknown field `levels`"),
        ] {
            let error = policy(json).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let many = format!(r#"{{"rules": [{}]}}"#, ["{}"; 257].join(","));
        assert!(policy(&many).unwrap_err().contains("rules: longer than 256"));
        let long = format!(r#"{{"rules": [{{"key": "{}"}}]}}"#, "*".repeat(257));
        assert!(policy(&long).unwrap_err().contains("rules[0].key: longer than 256"));
    }

    #[test]
    fn a_policy_without_opinions_leaves_the_level_to_the_asker() {
        let none = policy("{}").unwrap();
        assert_eq!(none, Policy::default());
        let choice = none.resolve(&Subject::default(), 7);
        assert_eq!(choice, Choice { codec: Codec::Zstd, level: 7, told: false });
        assert_eq!(serde_json::to_string(&none).unwrap(), "{}");
        assert!(!none.asks_mime());
    }

    proptest! {
        #[test]
        fn a_policy_comes_back_from_json(level in 1i32..23, types in prop::collection::btree_map("[a-z]{1,5}/[a-z]{0,5}", 1i32..23, 0..4),
            skip in prop::collection::vec("[a-z]{1,5}/", 0..3), keys in prop::collection::vec(prop::option::of("[a-z*]{1,4}"), 0..4)) {
            let rules = keys.into_iter().map(|key| Rule { key, codec: Some(Codec::Lz4), ..Rule::default() }).collect();
            let policy = Policy::try_from(Draft { level: Some(level), skip, types, rules }).unwrap();
            let json = serde_json::to_string(&policy).unwrap();
            prop_assert_eq!(serde_json::from_str::<Policy>(&json).unwrap(), policy);
        }

        /// Against the definition, tried every way.
        #[test]
        fn globs_match_as_defined(glob in "[ab*?]{0,7}", text in "[ab]{0,7}") {
            fn plain(glob: &[u8], text: &[u8]) -> bool {
                match (glob, text) {
                    ([], []) => true,
                    ([b'*', rest @ ..], _) => (0..=text.len()).any(|n| plain(rest, &text[n..])),
                    ([b'?', g @ ..], [_, t @ ..]) => plain(g, t),
                    ([a, g @ ..], [b, t @ ..]) if a == b => plain(g, t),
                    _ => false,
                }
            }
            prop_assert_eq!(glob_matches(glob.as_bytes(), text.as_bytes()), plain(glob.as_bytes(), text.as_bytes()));
        }
    }

    #[test]
    fn glob_sets_and_escapes() {
        for (glob, text, matches) in [
            ("h[ae]llo", "hello", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            (r"a\*b", "a*b", true),
            (r"a\*b", "axb", false),
            ("a[b", "ab", true),
            (r"[\]]x", "]x", true),
        ] {
            assert_eq!(glob_matches(glob.as_bytes(), text.as_bytes()), matches, "{glob} {text}");
        }
    }
}
