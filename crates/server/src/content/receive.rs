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
use snug_codec::{Segments, SegmentsFiller};
use snug_resp::LARGE_BULK;

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
    fn grow(&mut self, bytes: usize) {
        self.1 += bytes;
        self.0.keeps(bytes, 0);
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.0.keeps(0, self.1);
    }
}

/// Receives a body of at most `limit` bytes.
pub(super) async fn receive(
    link: &Link,
    mut body: Incoming,
    limit: usize,
) -> Result<Received, Refusal> {
    let said = body.size_hint();
    if said.lower() > limit as u64 {
        return Err(too_long(limit));
    }
    let expected = said.exact().map_or(limit, |len| len as usize);
    let mut filler = SegmentsFiller::new(expected);
    let (mut kept, mut turn) = (Kept(link, 0), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Refusal::bad(format!("the body broke off: {error}")))?;
        let Ok(bytes) = frame.into_data() else { continue };
        if filler.append(&bytes) < bytes.len() {
            return Err(too_long(limit));
        }
        turn += bytes.len();
        if turn >= TURN_BYTES {
            kept.grow(turn);
            turn = 0;
            tokio::task::yield_now().await;
        }
    }
    let chain = filler.finish();
    Ok(match chain.len() {
        0..=LARGE_BULK => Received::Short(chain.to_vec()),
        _ => Received::Long(chain),
    })
}
