//! `PUT`, `POST` and `DELETE`.
//!
//! ```text
//!  head   rights, memory, role, conditions           refused before the body is sent, if
//!    |                                               the client waits for 100 Continue
//!  body   gathered, and its tag made
//!    |
//!  under the locks of key and card:                  the same again, and the conditions
//!    SET key body, SET card                          of what is there now: one commit
//! ```

use super::answer::{Answer, Refusal, empty};
use super::ask::Asking;
use super::body::Held;
use super::card::Card;
use super::conditions::{self, Current, Needs, Verdict};
use super::get::{self, Seen, TTL};
use super::receive::{self, Received, receive};
use super::{get::card_of, name};
use crate::engine::context::Context;
use crate::outside::chance::random_hex;
use crate::request::args::OwnedArgs;
use crate::request::error::Error;
use crate::text::card;
use crate::text::tag::Tag;
use crate::work::reclaim::reclaim;
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, StatusCode};
use snug_resp::LARGE_BULK;
use snug_store::{Class, Delete, Event, Found, Key, NewStr, Set, SetExpiry, SlotGuard, Type};

/// How often a change is tried that depends on what is there, while that is replaced again
/// and again, by others or by packing.
const TRIES: usize = 8;

/// What a change comes to under the locks.
enum Made {
    Changed {
        was_there: bool,
    },
    /// There is no such key.
    Missing,
    /// The conditions do not hold.
    Failed,
    /// What is there is not what the conditions were judged by.
    Overtaken,
}

/// Answers a `PUT`.
pub(super) async fn put(
    asking: &mut Asking<'_>,
    key: &[u8],
    request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    let (head, body) = request.into_parts();
    let (was_there, tag) = store(asking, key, &head.headers, body, false).await?;
    Ok(match was_there {
        true => with_tag(empty(StatusCode::NO_CONTENT), tag, &head.headers),
        false => located(with_tag(empty(StatusCode::CREATED), tag, &head.headers), key),
    })
}

/// Answers a `POST`: the string gets a key that nobody has.
pub(super) async fn post(
    asking: &mut Asking<'_>,
    request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    let prefix = super::listing::parameters(request.uri())?.prefix;
    let (head, body) = request.into_parts();
    let key = [&prefix[..], random_hex().as_bytes()].concat();
    if card::is_card(&key) {
        return Err(Refusal::bad("keys of this name hold what is known of others"));
    }
    let (_, tag) = store(asking, &key, &head.headers, body, true).await?;
    Ok(located(with_tag(empty(StatusCode::CREATED), tag, &head.headers), &key))
}

/// Tells the tag of what was put, if that is what was sent: a body that was decoded has
/// another than what the client knows of it.
fn with_tag(mut answer: Answer, tag: Tag, headers: &HeaderMap) -> Answer {
    if headers.contains_key(header::CONTENT_ENCODING) {
        return answer;
    }
    if let Ok(value) = HeaderValue::from_str(&format!("\"{tag}\"")) {
        answer.headers_mut().insert(header::ETAG, value);
    }
    answer
}

fn located(mut answer: Answer, key: &[u8]) -> Answer {
    if let Ok(value) = HeaderValue::from_str(&name::path(key)) {
        answer.headers_mut().insert(header::LOCATION, value);
    }
    answer
}

/// Stores the body of a request at a key, which is to be `new` perhaps; whether it was there
/// before, and the tag of the body.
async fn store(
    asking: &mut Asking<'_>,
    key: &[u8],
    headers: &HeaderMap,
    body: Incoming,
    new: bool,
) -> Result<(bool, Tag), Refusal> {
    if headers.contains_key(header::CONTENT_RANGE) {
        return Err(Refusal::bad("a part of a body cannot be put"));
    }
    let coding = receive::coding(headers)?;
    let ttl_ms = ttl_ms(headers)?;
    // Its tag is not known yet.
    let card = Card::of_request(Tag::of(b""), 0, headers).map_err(Refusal::bad)?;
    let limit = receive::limit(asking.link);
    if body.size_hint().lower() > limit as u64 {
        return Err(receive::too_long(limit));
    }
    let long = body.size_hint().exact().is_none_or(|len| len > LARGE_BULK as u64);
    if long || headers.contains_key(header::EXPECT) {
        // Whatever is wrong already is said before the body is sent.
        asking.by(&OwnedArgs::of(&[b"SET", key, b""]), |_, _, _| Ok(())).await?;
        refuse_early(asking, key, headers).await?;
    }
    let received = receive(asking.link, body, limit, coding).await?;
    let stored = store_received(asking, key, headers, received, (ttl_ms, card, new)).await;
    stored.map_err(Refusal::after_body)
}

/// Stores a body that has come.
async fn store_received(
    asking: &mut Asking<'_>,
    key: &[u8],
    headers: &HeaderMap,
    received: Received,
    (ttl_ms, card, new): (Option<u64>, Card, bool),
) -> Result<(bool, Tag), Refusal> {
    let (args, tag) = match received {
        Received::Short(bytes) => (OwnedArgs::of(&[b"SET", key, &bytes]), Tag::of(&bytes)),
        Received::Long(chain) => {
            let tag = get::tag_of(&Held::Chain(chain.clone())).await?;
            (OwnedArgs::of(&[b"SET", key]).with_large(chain), tag)
        }
    };
    for _ in 0..TRIES {
        let known = known(asking, key, headers).await?;
        let mut made = Made::Failed;
        asking
            .by(&args, |cx, args, _| {
                let now = cx.store.now();
                let card = Card { tag, modified: now / 1000, ..card.clone() };
                let expiry = ttl_ms.map_or(SetExpiry::Clear, |ttl| SetExpiry::At(now + ttl));
                let value = args.value(2);
                made = set(cx, key, (headers, &known, new), value, &card, expiry)?;
                Ok(())
            })
            .await?;
        match made {
            Made::Changed { was_there } => return Ok((was_there, tag)),
            Made::Overtaken => {}
            Made::Missing | Made::Failed => return Err(failed()),
        }
    }
    Err(overtaken())
}

fn failed() -> Refusal {
    Refusal::new(StatusCode::PRECONDITION_FAILED, "a condition does not hold")
}

fn overtaken() -> Refusal {
    Refusal::new(StatusCode::CONFLICT, "the key is being changed again and again")
}

/// How long the string is to live, in milliseconds, if it is not to stay.
fn ttl_ms(headers: &HeaderMap) -> Result<Option<u64>, Refusal> {
    const SECONDS_MAX: u64 = 1 << 40;
    let Some(given) = headers.get(TTL) else { return Ok(None) };
    let seconds = given.to_str().ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    match seconds.and_then(|text| text.parse::<u64>().ok()) {
        Some(seconds) if (1..=SECONDS_MAX).contains(&seconds) => Ok(Some(seconds * 1000)),
        _ => Err(Refusal::bad("Snug-TTL is no number of seconds from 1 on")),
    }
}

/// What is there, if the conditions of a request ask for its bytes.
async fn known(
    asking: &mut Asking<'_>,
    key: &[u8],
    headers: &HeaderMap,
) -> Result<Option<Seen>, Refusal> {
    match conditions::needs(headers) {
        Needs::Bytes => unread(asking, &[b"SET", key, b""], key).await,
        Needs::Nothing | Needs::Presence => Ok(None),
    }
}

/// Looks a string up for a change: with the right to `command` it, and not as a read.
async fn unread(
    asking: &mut Asking<'_>,
    command: &[&[u8]],
    key: &[u8],
) -> Result<Option<Seen>, Refusal> {
    let mut seen = None;
    asking
        .by(&OwnedArgs::of(command), |cx, _, _| {
            // Its bytes are wanted, which those of a key that is set or deleted are not.
            cx.bring([(0, key)].into_iter())?;
            let name = cx.key(key);
            let mut slot = cx.lock(&name);
            let Some(found) = slot.find_untouched(&name) else { return Ok(()) };
            let held = get::held(&slot, found)?;
            drop(slot);
            seen = Some((held, card_of(cx, key)));
            Ok(())
        })
        .await?;
    let Some((held, card)) = seen else { return Ok(None) };
    let tag = get::tag_of(&held).await?;
    let card = card.filter(|card| card.tag == tag);
    Ok(Some(Seen { held, expiry: None, tag, card, lies: None }))
}

async fn refuse_early(
    asking: &mut Asking<'_>,
    key: &[u8],
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    let current = match conditions::needs(headers) {
        Needs::Nothing => return Ok(()),
        Needs::Presence => {
            let mut there = false;
            let args = OwnedArgs::of(&[b"SET", key, b""]);
            asking
                .by(&args, |cx, _, _| {
                    let name = cx.key(key);
                    there = cx.lock(&name).find_entry(&name).is_some();
                    Ok(())
                })
                .await?;
            there.then_some(Current::THERE)
        }
        Needs::Bytes => {
            let seen = unread(asking, &[b"SET", key, b""], key).await?;
            seen.as_ref().map(Seen::current)
        }
    };
    match conditions::judge(headers, current, false, |_| true) {
        Verdict::Go => Ok(()),
        _ => Err(failed()),
    }
}

/// Whether a change may be made of what is there now, which is what the conditions were
/// judged by.
fn judge(
    slot: &SlotGuard<'_>,
    found: Option<Found>,
    headers: &HeaderMap,
    known: Option<&Seen>,
) -> Result<Option<Made>, Error> {
    if found.is_some_and(|found| slot.type_of(found) != Type::String) {
        return Err(Error::WRONG_TYPE);
    }
    let current = match conditions::needs(headers) {
        Needs::Nothing => return Ok(None),
        Needs::Presence => found.map(|_| Current::THERE),
        Needs::Bytes => {
            let now = found.map(|found| get::held(slot, found)).transpose()?;
            match (now, known) {
                (None, None) => None,
                (Some(now), Some(seen)) if now.is_same(&seen.held) => Some(seen.current()),
                _ => return Ok(Some(Made::Overtaken)),
            }
        }
    };
    Ok(match conditions::judge(headers, current, false, |_| true) {
        Verdict::Go => None,
        _ => Some(Made::Failed),
    })
}

/// Looks up what is to be changed: a value on disk is read only if the conditions ask for its
/// bytes.
fn find(slot: &mut SlotGuard<'_>, name: &Key<'_>, headers: &HeaderMap) -> Option<Found> {
    match conditions::needs(headers) {
        Needs::Bytes => slot.find_untouched(name),
        Needs::Nothing | Needs::Presence => slot.find_entry(name),
    }
}

const SET: Event = Event::new(Class::STRING, "set");

/// Sets a key and its card, if the conditions hold.
fn set(
    cx: &Context<'_>,
    key: &[u8],
    (headers, known, new): (&HeaderMap, &Option<Seen>, bool),
    value: NewStr<'_>,
    card: &Card,
    expiry: SetExpiry,
) -> Result<Made, Error> {
    let card_name = card::name(key, cx.server.cluster.enabled);
    let card_key = card_name.as_deref().map(|name| cx.key(name));
    let name = cx.key(key);
    let _held = cx.hold([Some(name), card_key].into_iter().flatten());
    let mut slot = cx.lock(&name);
    let found = find(&mut slot, &name, headers);
    if found.is_some() && new {
        return Ok(Made::Overtaken);
    }
    if let Some(verdict) = judge(&slot, found, headers, known.as_ref())? {
        return Ok(verdict);
    }
    slot.apply(&name, found, Set { value, expiry }, SET);
    if let SetExpiry::At(_) = expiry {
        cx.notify(Event::EXPIRE, key);
    }
    drop(slot);
    if let Some(card_key) = card_key {
        let (mut slot, text) = (cx.lock(&card_key), card.to_json());
        let found = slot.find_entry(&card_key);
        let value = NewStr::Bytes(text.as_bytes());
        slot.apply(&card_key, found, Set { value, expiry }, SET);
    }
    Ok(Made::Changed { was_there: found.is_some() })
}

/// Answers a `DELETE`.
pub(super) async fn delete(
    asking: &mut Asking<'_>,
    key: &[u8],
    headers: &HeaderMap,
) -> Result<Answer, Refusal> {
    for _ in 0..TRIES {
        let seen = match conditions::needs(headers) {
            Needs::Bytes => unread(asking, &[b"DEL", key], key).await?,
            Needs::Nothing | Needs::Presence => None,
        };
        let mut made = Made::Failed;
        asking
            .by(&OwnedArgs::of(&[b"DEL", key]), |cx, _, _| {
                made = remove(cx, key, headers, seen.as_ref())?;
                Ok(())
            })
            .await?;
        match made {
            Made::Changed { .. } => return Ok(empty(StatusCode::NO_CONTENT)),
            Made::Missing => {
                return Err(Refusal::new(StatusCode::NOT_FOUND, "there is no such key"));
            }
            Made::Failed => return Err(failed()),
            Made::Overtaken => {}
        }
    }
    Err(overtaken())
}

/// Removes a string and its card, if the conditions hold. A card that was left behind goes
/// too.
fn remove(
    cx: &Context<'_>,
    key: &[u8],
    headers: &HeaderMap,
    known: Option<&Seen>,
) -> Result<Made, Error> {
    let card_name = card::name(key, cx.server.cluster.enabled);
    let card_key = card_name.as_deref().map(|name| cx.key(name));
    let name = cx.key(key);
    let _held = cx.hold([Some(name), card_key].into_iter().flatten());
    let mut slot = cx.lock(&name);
    let found = find(&mut slot, &name, headers);
    if let Some(verdict) = judge(&slot, found, headers, known)? {
        return Ok(verdict);
    }
    if found.is_some()
        && let Some(value) = slot.apply(&name, found, Delete, Event::DEL)
    {
        reclaim(value);
    }
    drop(slot);
    if let Some(card_key) = card_key {
        let mut slot = cx.lock(&card_key);
        if let Some(card) = slot.find_entry(&card_key) {
            slot.apply(&card_key, Some(card), Delete, Event::DEL);
        }
    }
    Ok(match found {
        Some(_) => Made::Changed { was_there: true },
        None => Made::Missing,
    })
}

/// Headers that a browser sends with what a page has it send.
pub(super) const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses what a page of another site has a browser send: the browser may have a right to
/// write here that the page has not.
pub(super) fn refuse_foreign(headers: &HeaderMap, host: Option<&str>) -> Result<(), Refusal> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let foreign = match (text(FETCH_SITE), text(header::ORIGIN)) {
        (Some(site), _) => !matches!(site, "same-origin" | "none"),
        (None, Some(origin)) => {
            let host = host.or_else(|| text(header::HOST));
            origin.split_once("://").map(|(_, there)| there) != host
        }
        (None, None) => false,
    };
    match foreign {
        true => Err(Refusal::new(StatusCode::FORBIDDEN, "sent by a page of another site")),
        false => Ok(()),
    }
}
