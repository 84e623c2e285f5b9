//! Paths and methods.

use super::answer::{Answer, Refusal, empty};
use super::ask::Asking;
use super::card::is_doubled;
use super::get::TTL;
use super::link::{HEADERS_MAX, Link, Serving};
use super::{get, listing, name, policy, put};
use crate::measure::stats::Stat;
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Method, Request, StatusCode, Version};

const OF_A_KEY: &str = "GET, HEAD, PUT, DELETE, OPTIONS";
const OF_ALL: &str = "GET, HEAD, POST, OPTIONS";
const OF_THE_POLICY: &str = "GET, HEAD, PUT, OPTIONS";

/// Answers a request.
pub(super) async fn answer(link: &Link, request: Request<Incoming>) -> Answer {
    let _serving = Serving::begin(link);
    let head = request.method() == Method::HEAD;
    let has_body = !request.body().is_end_stream();
    let takes_body = matches!(*request.method(), Method::PUT | Method::POST);
    link.server.stats.add(Stat::content_requests, 1);
    let (mut answer, was_read) = match routed(link, request).await {
        Ok(answer) => (answer, takes_body),
        Err(refusal) => {
            let was_read = refusal.body_was_read;
            (refusal.into(), was_read)
        }
    };
    // Where a request ends whose body was not read is not known, so that hyper closes.
    if has_body && !was_read {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if head {
        let body = std::mem::take(answer.body_mut());
        if let Some(len) = body.len().filter(|&len| len > 0) {
            let headers = answer.headers_mut();
            headers.entry(header::CONTENT_LENGTH).or_insert(HeaderValue::from(len));
        }
    }
    answer
}

/// Headers that may stand once, and mean something here: of two nobody knows which counts.
/// `card.rs` looks at those that are kept.
const ONCE: [HeaderName; 9] = [
    header::AUTHORIZATION,
    header::CONTENT_RANGE,
    header::IF_MODIFIED_SINCE,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::ORIGIN,
    header::RANGE,
    put::FETCH_SITE,
    TTL,
];

fn check_headers(headers: &HeaderMap) -> Result<(), Refusal> {
    // HTTP/1.1's are counted before they are kept.
    if headers.len() > HEADERS_MAX {
        let why = format!("there are more than {HEADERS_MAX} lines of headers");
        return Err(Refusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, why));
    }
    match ONCE.iter().find(|name| is_doubled(headers, *name)) {
        Some(name) => Err(Refusal::bad(format!("there is more than one {name}"))),
        None => Ok(()),
    }
}

/// Whether this can be a `Host`: a name or an address, with or without a port, or nothing.
fn is_host(value: &HeaderValue) -> bool {
    let host = value.as_bytes();
    host.is_empty() || (!host.contains(&b'@') && Authority::try_from(host).is_ok())
}

/// Refuses what HTTP/1.1 forbids and hyper lets pass: a request that does not name its host,
/// names two, or one that cannot be (RFC 9112, section 3.2), and a body in a transfer coding beside `chunked`,
/// which nobody here takes off (section 6.1). What stands in front of the server may read
/// either otherwise.
fn check_framing(request: &Request<Incoming>) -> Result<(), Refusal> {
    if request.version() == Version::HTTP_11
        && request.headers().get_all(header::HOST).iter().count() != 1
    {
        return Err(Refusal::bad("a request names one host"));
    }
    if !request.headers().get_all(header::HOST).iter().all(is_host) {
        return Err(Refusal::bad("Host is no name of a host"));
    }
    let mut codings = request.headers().get_all(header::TRANSFER_ENCODING).iter();
    let is_plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if is_plain(coding) => Ok(()),
        _ => Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "a body is chunked, or as it is")),
    }
}

async fn routed(link: &Link, request: Request<Incoming>) -> Result<Answer, Refusal> {
    check_framing(&request)?;
    check_headers(request.headers())?;
    let uri = request.uri().clone();
    let rest = uri.path().strip_prefix(name::ROOT);
    let allowed = match (uri.path(), rest) {
        ("*", _) if request.method() == Method::OPTIONS => OF_A_KEY,
        ("/content", _) => OF_ALL,
        (_, Some("config")) => OF_THE_POLICY,
        (_, Some(rest)) if !rest.is_empty() => OF_A_KEY,
        _ => return Err(Refusal::new(StatusCode::NOT_FOUND, "there is no such path")),
    };
    let method = request.method().clone();
    if method == Method::OPTIONS {
        let mut answer = empty(StatusCode::NO_CONTENT);
        answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
        return Ok(answer);
    }
    let reads = matches!(method, Method::GET | Method::HEAD);
    if !reads {
        let host = uri.authority().map(hyper::http::uri::Authority::as_str);
        put::refuse_foreign(request.headers(), host)?;
    }
    let mut asking = Asking::of(link, request.headers())?;
    asking.check_logged_in()?;
    match allowed {
        OF_ALL if reads => listing::answer(&mut asking, &uri).await,
        OF_ALL if method == Method::POST => put::post(&mut asking, request).await,
        OF_THE_POLICY => policy::answer(&mut asking, request).await,
        OF_A_KEY => {
            let key = name::key(rest.unwrap_or_default())?;
            match method {
                Method::GET | Method::HEAD => {
                    get::answer(&mut asking, &method, &key, request.headers()).await
                }
                Method::PUT => put::put(&mut asking, &key, request).await,
                Method::DELETE => put::delete(&mut asking, &key, request.headers()).await,
                _ => Err(Refusal::method(OF_A_KEY)),
            }
        }
        _ => Err(Refusal::method(OF_ALL)),
    }
}
