//! In which encoding a body is sent, and the body in it.
//!
//! | the string | is sent |
//! | --- | --- |
//! | is packed in a form that is a coding which the client takes | as it lies, unpacked by nobody |
//! | is not, and the policy packs its type | encoded: at once up to 64 KiB, and kept for the next client; while it is sent if it is longer |
//! | is of a type that the policy leaves alone, is short, or looks random | as its bytes are |
//!
//! A client that asks for ranges is sent them of the bytes as they are.

use super::body::{Body, Held, Lying, Place};
use super::get::Seen;
use super::kept;
use crate::config::Param;
use crate::engine::server::Server;
use crate::measure::stats::Stat;
use crate::text::accepted::{Accepted, Sent};
use bytes::Bytes;
use hyper::header::{self, HeaderMap};
use snug_codec::coding::{Coding, Encoder};
use snug_codec::estimate::{Estimate, Worth};
use snug_codec::policy::Subject;
use snug_codec::{Codec, mime};
use std::io;

/// Strings below this are not encoded: what is saved fits into the same packet.
const LEN_MIN: usize = 1024;
/// Bytes that are looked at before a string is encoded.
const LOOKED_AT: usize = 4096;

/// What a request says of encodings: without a range, for those are of the bytes as they are.
pub(super) fn accepted(headers: &HeaderMap) -> Accepted {
    Accepted::of(
        headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok()),
    )
}

/// What is sent of a string, and how.
pub(super) fn choose(server: &Server, key: &[u8], seen: &Seen, accepted: Accepted) -> Sent {
    let lies = seen.lies.as_ref().map(|(coding, _)| *coding);
    match accepted.choose(lies, true) {
        Sent::Made(coding) => accepted.choose(lies, is_worth_it(server, key, seen, coding)),
        sent => sent,
    }
}

/// Whether encoding a string is likely to save something that is worth the work. What is
/// kept in the coding was worth it before, and its bytes are not looked at again.
fn is_worth_it(server: &Server, key: &[u8], seen: &Seen, coding: Coding) -> bool {
    let len = seen.held.len();
    if len < LEN_MIN {
        return false;
    }
    let front = seen.held.piece(0).unwrap_or_default();
    let declared = seen.card.as_ref().and_then(super::card::Card::mime);
    let mime = mime::resolve(declared.as_deref(), &front);
    let policy = server.store.families().policy();
    let subject = Subject { kind: "string", key, mime: mime.as_deref(), len };
    if policy.policy.resolve(&subject, 1).codec == Codec::None {
        return false;
    }
    kept::has_body(seen.tag, coding)
        || Estimate::of(&front[..front.len().min(LOOKED_AT)]).worth() != Worth::Nothing
}

/// The body of a string in a coding; `None` if that is no shorter and need not be. Its length
/// is not known if it is made while it is sent.
pub(super) fn made(
    server: &Server,
    seen: &Seen,
    coding: Coding,
    must: bool,
) -> io::Result<Option<Body>> {
    let Held::Bytes(raw) = &seen.held else {
        let Some(place) = Place::take(must) else { return Ok(None) };
        let mut body = Body::empty();
        body.push_made(&seen.held, Encoder::new(coding, seen.held.len())?, place);
        count(server, Stat::content_encoded, Stat::content_encoded_bytes, seen);
        return Ok(Some(body));
    };
    let most = server.config.number(Param::ContentCacheBytes) as usize;
    let made = match kept::body(seen.tag, coding, most) {
        Some(made) => {
            count(server, Stat::content_kept, Stat::content_kept_bytes, seen);
            made
        }
        None => {
            count(server, Stat::content_encoded, Stat::content_encoded_bytes, seen);
            let made = Bytes::from(Encoder::whole(coding, raw)?);
            kept::keep_body(seen.tag, coding, &made, most);
            made
        }
    };
    Ok((must || made.len() < raw.len()).then(|| Body::of(made)))
}

/// Counts a body that is sent, and the bytes of its string.
pub(super) fn count(server: &Server, bodies: Stat, bytes: Stat, seen: &Seen) {
    server.stats.add(bodies, 1);
    server.stats.add(bytes, seen.held.len() as u64);
}

/// The body of a string as it lies.
pub(super) fn lying(seen: &Seen) -> Body {
    let mut body = Body::empty();
    match &seen.lies {
        Some((coding, Lying::Form(bytes))) => {
            body.push_bytes(Bytes::from_static(coding.prefix()));
            body.push_bytes(bytes.clone());
        }
        Some((_, Lying::Chain(chain))) => body.push_lying(chain),
        None => {}
    }
    body
}
