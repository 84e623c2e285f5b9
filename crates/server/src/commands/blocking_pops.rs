//! What the commands share that take from the first of some keys that has something,
//! or wait until one has: of lists and of sorted sets.

use crate::engine::blocked::Wait;
use crate::engine::command::Unanswered;
use crate::engine::context::Context;
use crate::outside::clock::unix_ms;
use crate::request::args::{Args, OwnedArgs};
use crate::request::error::Error;
use crate::text::float::Extended;
use snug_store::Type;
use std::ops::Range;

/// How long to wait, given in seconds; in milliseconds, 0 for ever.
pub(crate) fn timeout(text: &[u8]) -> Result<u64, Error> {
    const OUT_OF_RANGE: Error = Error::new("ERR timeout is out of range");
    let seconds = Extended::parse(text)
        .map(Extended::to_f64)
        .filter(|seconds| !seconds.is_nan())
        .ok_or(Error::new("ERR timeout is not a float or out of range"))?;
    let ms = (seconds * 1000.0).ceil();
    // What is too large for an integer overflows in Redis.
    if seconds < 0.0 || ms >= i64::MAX as f64 {
        return Err(Error::new("ERR timeout is negative"));
    }
    match ms as u64 {
        ms if ms > i64::MAX as u64 - unix_ms() => Err(OUT_OF_RANGE),
        ms => Ok(ms),
    }
}

/// The keys of a command that tells their number at `at`, and where they end.
pub(crate) fn numbered_keys(args: Args<'_>, at: usize) -> Result<Range<usize>, Error> {
    const TOO_FEW: Error = Error::new("ERR numkeys should be greater than 0");
    let count = args.int(at).ok().filter(|&count| count > 0).ok_or(TOO_FEW)?;
    let first = at + 1;
    let end = usize::try_from(count).ok().and_then(|count| first.checked_add(count));
    // One more argument has to follow.
    end.filter(|&end| end < args.len()).map(|end| first..end).ok_or(Error::SYNTAX)
}

/// The same for who only looks where keys are.
pub(crate) fn keys_after_number(args: Args<'_>, at: usize) -> Result<Vec<usize>, Error> {
    let count = args.int(at).ok().and_then(|count| usize::try_from(count).ok());
    let end = count.and_then(|count| count.checked_add(at + 1));
    match end.filter(|&end| end > at + 1 && end <= args.len()) {
        Some(end) => Ok((at + 1..end).collect()),
        None => Err(Error::SYNTAX),
    }
}

/// Waits until one of these keys holds a value of this type.
pub(crate) fn wait(
    cx: &Context<'_>,
    args: Args<'_>,
    keys: Range<usize>,
    timeout_ms: u64,
    awaits: Type,
) -> Unanswered {
    let again = || OwnedArgs::new(args);
    cx.wait(Wait {
        args: &again,
        keys,
        timeout_ms,
        awaits,
        each_change: false,
        without_key: false,
        rivals: None,
    })
}
