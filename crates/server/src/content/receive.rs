//! Bodies of requests, on their way in.
//!
//! A body is gathered in the segments in which the store will keep it, so that it takes no
//! more than the value itself. What is not there as a whole is never stored: a client that
//! goes away leaves nothing behind.

use super::answer::Refusal;
use super::link::Link;
use crate::config::Param;
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap};
use snug_codec::coding::{Coding, Decoder};
use snug_codec::{SEGMENT_BYTES, Segments, SegmentsFiller};
use snug_resp::LARGE_BULK;
use std::cell::Cell;
use std::io;

/// A body that has come as a whole: short ones in one piece, as commands have them.
#[derive(Debug)]
pub(super) enum Received {
    Short(Vec<u8>),
    Long(Segments),
}

/// Bytes that are taken in before others have their turn.
const TURN_BYTES: usize = 128 * 1024;

/// The longest body: a string may be no longer, and a client's request neither.
pub(super) fn limit(link: &Link) -> usize {
    let config = &link.server.config;
    let longest = config.number(Param::ProtoMaxBulkLen);
    longest.min(config.number(Param::ClientQueryBufferLimit)) as usize
}

pub(super) fn too_long(limit: usize) -> Refusal {
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {limit} bytes"))
}

/// What the connection keeps of a body, until that is dropped.
struct Kept<'l>(&'l Link, usize);

impl Kept<'_> {
    /// So many bytes more. All bodies of a connection together may be as long as one.
    fn grow(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.1 += bytes;
        let most = self.0.server.config.number(Param::ClientQueryBufferLimit) as usize;
        match self.0.keeps(bytes, 0) > most.saturating_add(SEGMENT_BYTES) {
            true => Err(too_long(most)),
            false => Ok(()),
        }
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.0.keeps(0, self.1);
    }
}

/// The coding that a request says its body is in, if it is in one.
pub(super) fn coding(headers: &HeaderMap) -> Result<Option<Coding>, Refusal> {
    let mut said = headers.get_all(header::CONTENT_ENCODING).iter();
    let (Some(first), more) = (said.next(), said.next()) else { return Ok(None) };
    let name = first.to_str().unwrap_or("?").trim();
    if name.eq_ignore_ascii_case("identity") && more.is_none() {
        return Ok(None);
    }
    match Coding::from_name(name).filter(|_| more.is_none()) {
        Some(coding) => Ok(Some(coding)),
        None => Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "a body is as it is, or in one of zstd, br and gzip",
        )
        .with(header::ACCEPT_ENCODING, "zstd, br, gzip")),
    }
}

/// Receives a body of at most `limit` bytes, and decodes it. What it decodes to counts too:
/// whoever sends a little that stands for a lot is stopped there.
pub(super) async fn receive(
    link: &Link,
    body: Incoming,
    limit: usize,
    coding: Option<Coding>,
) -> Result<Received, Refusal> {
    if body.size_hint().lower() > limit as u64 {
        return Err(too_long(limit));
    }
    match coding {
        None => as_it_is(link, body, limit).await,
        Some(coding) => decoded(link, body, limit, coding).await,
    }
}

async fn as_it_is(link: &Link, mut body: Incoming, limit: usize) -> Result<Received, Refusal> {
    let expected = body.size_hint().exact().map_or(limit, |len| len as usize);
    let mut filler = SegmentsFiller::new(expected);
    let (mut kept, mut turn) = (Kept(link, 0), 0);
    // The first segment is there as soon as a byte of it is.
    kept.grow(expected.min(SEGMENT_BYTES))?;
    while let Some(frame) = body.frame().await {
        let Ok(bytes) = frame.map_err(broken)?.into_data() else { continue };
        if filler.append(&bytes) < bytes.len() {
            return Err(too_long(limit));
        }
        turn += bytes.len();
        if turn >= TURN_BYTES {
            kept.grow(turn)?;
            turn = 0;
            tokio::task::yield_now().await;
        }
    }
    Ok(whole(filler))
}

/// Bodies that a worker decodes at once: each may need a window of up to 16 MiB.
const DECODING_MAX: usize = 32;

thread_local! {
    static DECODING: Cell<usize> = const { Cell::new(0) };
}

/// The place of one of them.
struct Place(());

impl Place {
    fn take() -> Option<Self> {
        let taken = DECODING.get();
        (taken < DECODING_MAX).then(|| {
            DECODING.set(taken + 1);
            Self(())
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        DECODING.set(DECODING.get().saturating_sub(1));
    }
}

/// Raw bytes that are decoded before others have their turn.
const DECODED_AT_ONCE: usize = 64 * 1024;

async fn decoded(
    link: &Link,
    mut body: Incoming,
    limit: usize,
    coding: Coding,
) -> Result<Received, Refusal> {
    let wrong =
        |error: io::Error| Refusal::bad(format!("the body is no {}: {error}", coding.name()));
    let Some(_place) = Place::take() else {
        let why = "too many bodies are being decoded";
        return Err(
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why).with(header::RETRY_AFTER, "1")
        );
    };
    let mut decoder = Decoder::new(coding).map_err(wrong)?;
    let (mut filler, mut kept) = (SegmentsFiller::new(limit), Kept(link, 0));
    let mut room = vec![0; DECODED_AT_ONCE];
    kept.grow(SEGMENT_BYTES + DECODED_AT_ONCE)?;
    loop {
        match decoder.read(&mut room) {
            Ok(0) => return Ok(whole(filler)),
            Ok(read) => {
                if filler.append(&room[..read]) < read {
                    return Err(too_long(limit));
                }
                kept.grow(read)?;
                tokio::task::yield_now().await;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                match body.frame().await.transpose().map_err(broken)? {
                    Some(frame) => decoder.push(&frame.into_data().unwrap_or_default()),
                    None => decoder.end(),
                }
            }
            Err(error) => return Err(wrong(error)),
        }
    }
}

fn broken(error: hyper::Error) -> Refusal {
    Refusal::bad(format!("the body broke off: {error}"))
}

fn whole(filler: SegmentsFiller) -> Received {
    let chain = filler.finish();
    match chain.len() {
        0..=LARGE_BULK => Received::Short(chain.to_vec()),
        _ => Received::Long(chain),
    }
}
