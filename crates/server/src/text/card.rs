//! The names of cards, and what others than HTTP read on them.
//!
//! A card is a string beside another, which holds what content over HTTP knows of that
//! (`content/card.rs`):
//!
//! ```text
//!  page                         the string
//!  snug:content:{page}          its card: {"tag":"9a...","modified":1764040000,"type":"text/html"}
//! ```

use super::tag::Tag;
use serde_json::{Map, Value};

/// What the names of cards begin with: of a key without a hash tag, and of one with.
const CARD: &[u8] = b"snug:content:";
const CARD_OF_TAGGED: &[u8] = b"snug:content@";

/// Whether a key is a card's.
pub(crate) fn is_card(key: &[u8]) -> bool {
    key.starts_with(CARD) || key.starts_with(CARD_OF_TAGGED)
}

/// The key of the card of `key`. In a cluster it is in the same slot, for which it names the
/// key as its hash tag, or has the key's own. `None` if that cannot be: the key has a closing
/// brace and no hash tag.
pub(crate) fn name(key: &[u8], in_cluster: bool) -> Option<Vec<u8>> {
    let opening = key.iter().position(|&byte| byte == b'{');
    let tagged = opening.is_some_and(|at| {
        key[at + 1..].iter().position(|&byte| byte == b'}').is_some_and(|len| len > 0)
    });
    if tagged {
        return Some([CARD_OF_TAGGED, key].concat());
    }
    let breaks_tag = in_cluster && (key.contains(&b'}') || key.is_empty());
    (!breaks_tag).then(|| [CARD, b"{", key, b"}"].concat())
}

/// The tag of the bytes that a card is about, and all that it says. `None` if it is no card:
/// anybody may have written it.
pub(crate) fn parse(card: &[u8]) -> Option<(Tag, Map<String, Value>)> {
    let map: Map<String, Value> = serde_json::from_slice(card).ok()?;
    let tag = Tag::parse(map.get("tag")?.as_str()?)?;
    Some((tag, map))
}

/// Of a card the tag, and the MIME type that it declares, in lower case and without
/// parameters.
pub(crate) fn read(card: &[u8]) -> Option<(Tag, Option<String>)> {
    let (tag, map) = parse(card)?;
    let declared = map.get("type").and_then(Value::as_str);
    Some((tag, declared.and_then(snug_codec::mime::essence)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use snug_store::cluster_slot;

    proptest! {
        #[test]
        fn cards_are_in_the_slot_of_their_keys(key in "[ab{}]{0,8}", other in "[ab{}]{0,8}") {
            let card_of = |key: &str| name(key.as_bytes(), true);
            if let Some(card) = card_of(&key) {
                prop_assert_eq!(cluster_slot(&card), cluster_slot(key.as_bytes()));
                prop_assert!(is_card(&card));
                prop_assert_eq!(card_of(&other) == Some(card), key == other);
            }
        }
    }

    #[test]
    fn what_is_read() {
        let tag = Tag::of(b"x");
        let card = format!("{{\"tag\":\"{tag}\",\"type\":\"Text/HTML; charset=utf-8\"}}");
        assert_eq!(read(card.as_bytes()), Some((tag, Some("text/html".into()))));
        assert_eq!(read(format!("{{\"tag\":\"{tag}\"}}").as_bytes()), Some((tag, None)));
        assert_eq!(read(b"{}"), None);
    }
}
