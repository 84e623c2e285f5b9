//! `GET` and `HEAD` of a string.
//!
//! The value is taken by reference under its slot's lock, its card is looked up behind
//! that, and all else is done with no lock: a card that was written in between names
//! another tag and is not believed.

use super::answer::{Answer, Refusal, empty};
use super::ask::Asking;
use super::body::{Body, Held, Lying, coding_of_chain};
use super::card::{Card, looks_like};
use super::conditions::{self, Current, Verdict};
use super::ranges::{self, Asked};
use super::{kept, variant};
use crate::engine::context::Context;
use crate::engine::server::Server;
use crate::measure::stats::Stat;
use crate::outside::chance::random_hex;
use crate::outside::clock::unix_ms;
use crate::request::args::OwnedArgs;
use crate::request::error::Error;
use crate::text::accepted::{Accepted, Sent};
use crate::text::card;
use crate::text::tag::{Tag, Tagging, hash};
use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use snug_codec::coding::Coding;
use snug_store::{Found, SlotGuard, Str};
use std::ops::Range;

/// The header that tells for how many seconds a string lives on.
pub(super) const TTL: HeaderName = HeaderName::from_static("snug-ttl");

/// A string that was asked for.
pub(super) struct Seen {
    pub held: Held,
    /// When it expires, if it does.
    pub expiry: Option<u64>,
    pub tag: Tag,
    /// What is known of it.
    pub card: Option<Card>,
    /// The coding in which it lies, packed, if that is one that the client takes.
    pub lies: Option<(Coding, Lying)>,
}

impl Seen {
    pub(super) fn current(&self) -> Current {
        Current { tag: Some(self.tag), modified: self.card.as_ref().map(|card| card.modified) }
    }

    fn content_type(&self) -> HeaderValue {
        let declared = self.card.iter().flat_map(|card| &card.headers);
        let declared = declared.filter(|(name, _)| name == header::CONTENT_TYPE);
        if let Some((_, value)) = declared.last() {
            return value.clone();
        }
        let last = self.held.len().saturating_sub(1);
        let (front, back) = (self.held.piece(0), self.held.piece(last));
        let (front, back) = (front.unwrap_or_default(), back.unwrap_or_default());
        HeaderValue::from_static(looks_like(&front, &back))
    }
}

/// The value of a string that was found, by reference; a short one is copied.
pub(super) fn held(slot: &SlotGuard<'_>, found: Found) -> Result<Held, Error> {
    Ok(match slot.string(found).ok_or(Error::WRONG_TYPE)? {
        Str::Chain(chain) => Held::Chain(chain.clone()),
        Str::PackedLarge(packed) => Held::Packed(packed.checked()?),
        short => Held::Bytes(short.to_bytes()?.into_owned().into()),
    })
}

/// The card of a key, if there is one.
pub(super) fn card_of(cx: &Context<'_>, key: &[u8]) -> Option<Card> {
    let name = card::name(key, cx.server.cluster.enabled)?;
    let name = cx.key(&name);
    let mut slot = cx.lock(&name);
    let found = slot.find(&name)?;
    Card::parse(&slot.string(found)?.to_bytes().ok()?)
}

/// What was found at a key under its lock.
struct Looked {
    held: Held,
    expiry: Option<u64>,
    /// Its tag, if that is known.
    tag: Option<Tag>,
    lies: Option<(Coding, Lying)>,
    /// The hash of the packed form, if the tag is to be kept for that.
    form: Option<u128>,
}

/// A string that is packed in a form which the client may be sent; `None` if this is none.
/// It is not unpacked if its tag is known and what is known of it is on its `card`.
fn lying(
    slot: &SlotGuard<'_>,
    found: Found,
    accepted: Accepted,
    card: Option<&Card>,
) -> Result<Option<Looked>, Error> {
    let expiry = slot.expiry(found);
    Ok(match slot.string(found) {
        Some(Str::Packed(packed)) => {
            let Some((coding, body)) = Coding::of_form(packed.form()) else { return Ok(None) };
            if !accepted.takes(coding) {
                return Ok(None);
            }
            let form = hash(packed.form());
            let tag = kept::tag_of_form(form);
            let lies = Some((coding, Lying::Form(Bytes::copy_from_slice(body))));
            let described = card.is_some_and(|card| Some(card.tag) == tag && card.mime().is_some());
            let unread = described && accepted.choose(Some(coding), true) == Sent::Lies(coding);
            let held = match unread {
                true => Held::Unread(packed.len()),
                false => held(slot, found)?,
            };
            Some(Looked { held, expiry, tag, lies, form: Some(form) })
        }
        Some(Str::PackedLarge(packed)) => {
            let chain = packed.checked()?;
            let tag = kept::tag_of_chain(&chain);
            // In what it lies is looked at with no lock.
            Some(Looked { held: Held::Packed(chain), expiry, tag, lies: None, form: None })
        }
        _ => None,
    })
}

/// Looks a string up, as `GET` does, for a client that takes these encodings; `None` if
/// there is no such key.
async fn look(
    asking: &mut Asking<'_>,
    key: &[u8],
    accepted: Accepted,
) -> Result<Option<Seen>, Refusal> {
    let mut seen = None;
    let args = OwnedArgs::of(&[b"GET", key]);
    asking
        .by(&args, |cx, _, _| {
            // Before the value: what is written in between has another tag.
            let card = card_of(cx, key);
            let name = cx.key(key);
            let mut slot = cx.lock(&name);
            let Some(found) = cx.find_string(&mut slot, &name)? else { return Ok(()) };
            let looked = match lying(&slot, found, accepted, card.as_ref())? {
                Some(lying) => lying,
                None => Looked {
                    held: held(&slot, found)?,
                    expiry: slot.expiry(found),
                    tag: None,
                    lies: None,
                    form: None,
                },
            };
            seen = Some((looked, card));
            Ok(())
        })
        .await?;
    let Some((looked, card)) = seen else { return Ok(None) };
    let Looked { held, expiry, tag, lies, form } = looked;
    let tag = match tag {
        Some(tag) => tag,
        None => tag_of(&held).await?,
    };
    if let Some(form) = form {
        kept::keep_tag_of_form(form, tag);
    }
    let lies = match (&held, lies) {
        (Held::Packed(chain), None) => coding_of_chain(chain)
            .filter(|(coding, _)| accepted.takes(*coding))
            .map(|(coding, _)| (coding, Lying::Chain(chain.clone()))),
        (_, lies) => lies,
    };
    let card = card.filter(|card| card.tag == tag);
    Ok(Some(Seen { held, expiry, tag, card, lies }))
}

/// Segments that are read before others have their turn.
const SEGMENTS_AT_ONCE: usize = 2;

/// The tag of a value; of a large one in slices.
pub(super) async fn tag_of(held: &Held) -> Result<Tag, Refusal> {
    if let Held::Bytes(bytes) = held {
        return Ok(Tag::of(bytes));
    }
    let (mut tagging, mut at, mut pieces) = (Tagging::default(), 0, 0);
    while at < held.len() {
        let piece = held.piece(at).map_err(|damaged| {
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, damaged.to_string())
        })?;
        tagging.add(&piece);
        at += piece.len();
        pieces += 1;
        if pieces % SEGMENTS_AT_ONCE == 0 {
            tokio::task::yield_now().await;
        }
    }
    let tag = tagging.finish();
    if let Held::Packed(chain) = held {
        kept::keep_tag_of_chain(chain, tag);
    }
    Ok(tag)
}

/// Answers a `GET` or a `HEAD`.
pub(super) async fn answer(
    asking: &mut Asking<'_>,
    method: &Method,
    key: &[u8],
    headers: &HeaderMap,
) -> Result<Answer, Refusal> {
    let accepted = match method == Method::GET && headers.contains_key(header::RANGE) {
        true => Accepted::of(None),
        false => variant::accepted(headers),
    };
    let seen = look(asking, key, accepted).await?;
    let current = seen.as_ref().map(Seen::current);
    let verdict = conditions::judge(headers, current, true, |opaque| {
        match opaque.split_once('-').map(|(_, name)| Coding::from_name(name)) {
            None => accepted.takes_identity(),
            Some(coding) => coding.is_some_and(|coding| accepted.takes(coding)),
        }
    });
    let Some(seen) = seen else {
        let status = match verdict {
            Verdict::Failed => StatusCode::PRECONDITION_FAILED,
            _ => StatusCode::NOT_FOUND,
        };
        return Err(Refusal::new(status, "there is no such key"));
    };
    let mut opaque = seen.tag.to_string();
    let mut answer = match verdict {
        Verdict::Failed => {
            return Err(Refusal::new(StatusCode::PRECONDITION_FAILED, "a condition does not hold"));
        }
        Verdict::NotModified(known) => {
            let mut answer = empty(StatusCode::NOT_MODIFIED);
            let tag = known.unwrap_or_else(|| format!("\"{opaque}\""));
            put(answer.headers_mut(), header::ETAG, &tag);
            describe(&seen, answer.headers_mut());
            return Ok(answer);
        }
        Verdict::Go => match encoded(&asking.link.server, key, &seen, accepted)? {
            Some((coding, answer)) => {
                opaque = format!("{opaque}-{}", coding.name());
                answer
            }
            None => whole_or_parts(&asking.link.server, &seen, method, headers, &opaque)?,
        },
    };
    let all = answer.headers_mut();
    put(all, header::ETAG, &format!("\"{opaque}\""));
    all.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if !all.contains_key(header::CONTENT_TYPE) {
        all.insert(header::CONTENT_TYPE, seen.content_type());
    }
    describe(&seen, all);
    Ok(answer)
}

/// The answer in an encoding, if it is to be in one.
fn encoded(
    server: &Server,
    key: &[u8],
    seen: &Seen,
    accepted: Accepted,
) -> Result<Option<(Coding, Answer)>, Refusal> {
    let failed =
        |error: std::io::Error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    let (coding, body) = match variant::choose(server, key, seen, accepted) {
        Sent::Identity => return Ok(None),
        Sent::Lies(coding) => {
            variant::count(server, Stat::content_lying, Stat::content_lying_bytes, seen);
            (coding, variant::lying(seen))
        }
        Sent::Made(coding) => {
            let must = !accepted.takes_identity();
            match variant::made(server, seen, coding, must).map_err(failed)? {
                Some(body) => (coding, body),
                None => return Ok(None),
            }
        }
        Sent::Nothing => {
            let why = "sent are zstd, br, gzip and identity";
            return Err(Refusal::new(StatusCode::NOT_ACCEPTABLE, why));
        }
    };
    let mut answer = empty(StatusCode::OK);
    if let Some(len) = body.len() {
        answer.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(len));
    }
    put(answer.headers_mut(), header::CONTENT_ENCODING, coding.name());
    *answer.body_mut() = body;
    Ok(Some((coding, answer)))
}

/// Headers that a 304 has too.
fn describe(seen: &Seen, headers: &mut HeaderMap) {
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(card) = &seen.card {
        let kept = card.headers.iter().filter(|(name, _)| name != header::CONTENT_TYPE);
        headers.extend(kept.cloned());
        if let Some(date) = conditions::written(card.modified) {
            put(headers, header::LAST_MODIFIED, &date);
        }
    }
    if let Some(at) = seen.expiry {
        let left = at.saturating_sub(unix_ms()).div_ceil(1000);
        headers.insert(TTL, HeaderValue::from(left));
    }
}

fn put(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}

/// The body, or those parts of it that are asked for.
fn whole_or_parts(
    server: &Server,
    seen: &Seen,
    method: &Method,
    headers: &HeaderMap,
    opaque: &str,
) -> Result<Answer, Refusal> {
    let len = seen.held.len();
    let asked = match headers.get(header::RANGE).and_then(|range| range.to_str().ok()) {
        Some(text) if method == Method::GET && conditions::range_holds(headers, opaque) => {
            ranges::asked(text, len)
        }
        _ => Asked::Whole,
    };
    match asked {
        Asked::Whole => {
            let mut answer = empty(StatusCode::OK);
            answer.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(len));
            if method == Method::GET {
                answer.body_mut().push(&seen.held, 0..len);
            }
            variant::count(server, Stat::content_raw, Stat::content_raw_bytes, seen);
            Ok(answer)
        }
        Asked::Beyond => {
            Err(Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, "the range is not in the body")
                .with(header::CONTENT_RANGE, &format!("bytes */{len}")))
        }
        Asked::Parts(parts) => Ok(match &parts[..] {
            [only] => one_part(seen, only),
            _ => several_parts(seen, &parts),
        }),
    }
}

fn content_range(part: &Range<usize>, len: usize) -> String {
    format!("bytes {}-{}/{len}", part.start, part.end.saturating_sub(1))
}

fn one_part(seen: &Seen, part: &Range<usize>) -> Answer {
    let mut answer = empty(StatusCode::PARTIAL_CONTENT);
    answer.body_mut().push(&seen.held, part.clone());
    let len = HeaderValue::from(part.len());
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_LENGTH, len);
    put(headers, header::CONTENT_RANGE, &content_range(part, seen.held.len()));
    answer
}

/// Several parts, each with a head of its own.
fn several_parts(seen: &Seen, parts: &[Range<usize>]) -> Answer {
    let boundary = random_hex();
    let content_type = seen.content_type();
    let mut body = Body::empty();
    for part in parts {
        let mut head = format!("\r\n--{boundary}\r\nContent-Type: ").into_bytes();
        head.extend_from_slice(content_type.as_bytes());
        let range = content_range(part, seen.held.len());
        head.extend_from_slice(format!("\r\nContent-Range: {range}\r\n\r\n").as_bytes());
        body.push_bytes(head.into());
        body.push(&seen.held, part.clone());
    }
    body.push_bytes(Bytes::from(format!("\r\n--{boundary}--\r\n")));
    let mut answer = empty(StatusCode::PARTIAL_CONTENT);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len().unwrap_or(0)));
    let kind = format!("multipart/byteranges; boundary={boundary}");
    put(headers, header::CONTENT_TYPE, &kind);
    *answer.body_mut() = body;
    answer
}
