//! Cards: what HTTP knows of a string besides its bytes.
//!
//! ```text
//!  page                         the string: <html>...
//!  snug:content:{page}          its card:   {"tag":"9a...","modified":1764040000,
//!                                            "type":"text/html","cache":"max-age=60"}
//! ```
//!
//! A card is an ordinary string, written in the same commit as its string and with the same
//! expiry: so it is saved, logged, replicated, evicted and packed as any other, and every
//! tool of Redis's can read it. It costs an entry, some 120 bytes before it is packed and
//! some 50 packed, and one look-up more for each request.
//!
//! It is believed only if its tag is that of the bytes. Whoever writes the string by another
//! way than HTTP leaves the card as it was, and from then on it says nothing: the type is
//! then what the bytes look like. The server removes such a card a moment later, and that of
//! a string which is gone (`engine/cards.rs`).
//!
//! The type that it declares decides how the string is packed, too.

use crate::text;
use crate::text::tag::Tag;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

/// Headers of a `PUT` that are kept and answered to a `GET`, and their names on the card.
const KEPT: [(HeaderName, &str); 4] = [
    (header::CONTENT_TYPE, "type"),
    (header::CACHE_CONTROL, "cache"),
    (header::CONTENT_DISPOSITION, "disposition"),
    (header::CONTENT_LANGUAGE, "language"),
];

/// The longest of these headers, in bytes.
const HEADER_BYTES_MAX: usize = 512;

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    pub tag: Tag,
    /// When the string was put, in Unix seconds.
    pub modified: u64,
    /// The headers kept.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Card {
    /// What a request with these headers says of its body. The error tells which header
    /// cannot be kept.
    pub(super) fn of_request(tag: Tag, now_ms: u64, headers: &HeaderMap) -> Result<Self, String> {
        let mut kept = Vec::new();
        for (name, _) in KEPT {
            let Some(value) = headers.get(&name) else { continue };
            if is_doubled(headers, &name) {
                return Err(format!("there is more than one {name}"));
            }
            if value.len() > HEADER_BYTES_MAX || value.to_str().is_err() {
                return Err(format!("{name} is no text of at most {HEADER_BYTES_MAX} characters"));
            }
            if name == header::CONTENT_TYPE
                && value.to_str().ok().and_then(snug_codec::mime::essence).is_none()
            {
                return Err("Content-Type is no MIME type".into());
            }
            kept.push((name, value.clone()));
        }
        Ok(Self { tag, modified: now_ms / 1000, headers: kept })
    }

    pub(super) fn to_json(&self) -> String {
        let mut map = Map::new();
        map.insert("tag".into(), self.tag.to_string().into());
        map.insert("modified".into(), self.modified.into());
        for (name, short) in &KEPT {
            let value = self.headers.iter().find(|(kept, _)| kept == name);
            if let Some(text) = value.and_then(|(_, value)| value.to_str().ok()) {
                map.insert((*short).into(), text.into());
            }
        }
        Value::Object(map).to_string()
    }

    /// The card that a string is, if it is one: anybody may have written it.
    pub(super) fn parse(card: &[u8]) -> Option<Self> {
        let (tag, map) = text::card::parse(card)?;
        let modified = map.get("modified")?.as_u64()?;
        let kept = KEPT.iter().filter_map(|(name, short)| {
            let text = map.get(*short)?.as_str().filter(|text| text.len() <= HEADER_BYTES_MAX)?;
            Some((name.clone(), HeaderValue::from_str(text).ok()?))
        });
        Some(Self { tag, modified, headers: kept.collect() })
    }
}

impl Card {
    /// The type that was declared, as it was.
    pub(super) fn mime(&self) -> Option<String> {
        let (_, value) = self.headers.iter().find(|(name, _)| name == header::CONTENT_TYPE)?;
        value.to_str().ok().map(str::to_owned)
    }
}

/// Whether a header is there more than once.
pub(super) fn is_doubled(headers: &HeaderMap, name: impl header::AsHeaderName) -> bool {
    headers.get_all(name).iter().nth(1).is_some()
}

/// The type of a string of which nobody has declared one, by its first and last bytes. What a
/// browser would run is text: whoever wrote it has not said that it is a page.
pub(super) fn looks_like(front: &[u8], back: &[u8]) -> &'static str {
    match snug_codec::mime::sniff_ends(front, back) {
        Some("text/html" | "text/xml" | "application/xhtml+xml" | "image/svg+xml") => {
            "text/plain; charset=utf-8"
        }
        Some("text/plain") => "text/plain; charset=utf-8",
        Some(mime) => mime,
        None => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers(all: &[(HeaderName, &str)]) -> HeaderMap {
        all.iter().map(|(n, v)| (n.clone(), HeaderValue::from_str(v).unwrap())).collect()
    }

    #[test]
    fn a_card_is_read_back() {
        let said = headers(&[
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CACHE_CONTROL, "max-age=60"),
            (header::ACCEPT, "x"),
        ]);
        let card = Card::of_request(Tag::of(b"x"), 1_764_040_000_999, &said).unwrap();
        assert_eq!((card.modified, card.headers.len()), (1_764_040_000, 2));
        assert_eq!(Card::parse(card.to_json().as_bytes()), Some(card.clone()));
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        let long = "x".repeat(513);
        for (name, value) in
            [(header::CONTENT_TYPE, "nonsense"), (header::CACHE_CONTROL, &long[..])]
        {
            let said = headers(&[(name, value)]);
            assert!(Card::of_request(Tag::of(b""), 0, &said).is_err(), "{value}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_card_or_none(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Card::parse(&bytes);
        }
    }
}
