//! Members drawn at random, and all of them call by call.

use super::{begin_rows, read, write_row};
use crate::commands::hashes::Drawn;
use crate::commands::keys::{ScanOptions, Scanned, cursor};
use crate::engine::command::Answer;
use crate::engine::context::Context;
use crate::engine::out::Out;
use crate::outside::chance;
use crate::request::args::Args;
use crate::request::error::Error;
use rand::RngExt as _;
use snug_store::ZSet;
use std::ops::ControlFlow;

pub(super) fn zrandmember(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if args.len() == 2 {
        let found = read(cx, args.bytes(1), |zset| {
            write(zset, chance::rng().random_range(0..zset.len()), 1, false, out)
        })?;
        if found.is_none() {
            out.w().null();
        }
        return Ok(());
    }
    let drawn = Drawn::parse(args, 2)?;
    let with_scores = args.len() == 4 && args.is(3, "withscores");
    if args.len() > 4 || args.len() == 4 && !with_scores {
        return Err(Error::SYNTAX.into());
    }
    let (Drawn::Distinct(count) | Drawn::Any(count)) = drawn;
    if with_scores && count > i64::MAX as usize / 2 {
        return Err(Error::new("ERR value is out of range").into());
    }
    let mark = out.mark();
    let found = read(cx, args.bytes(1), |zset| {
        let len = zset.len();
        drawn.check()?;
        cx.goes_through(if matches!(drawn, Drawn::Any(_)) { count } else { count.min(len) })?;
        let drawn = if matches!(drawn, Drawn::Any(_)) {
            begin_rows(out, count, with_scores);
            (0..count).try_for_each(|_| {
                Drawn::check_reply(out)?;
                write(zset, chance::rng().random_range(0..len), 1, with_scores, out)
            })
        } else {
            let count = count.min(len);
            begin_rows(out, count, with_scores);
            if count == len {
                write(zset, 0, len, with_scores, out)
            } else {
                let ranks = rand::seq::index::sample(&mut chance::rng(), len, count);
                ranks.into_iter().try_for_each(|rank| write(zset, rank, 1, with_scores, out))
            }
        };
        drawn.inspect_err(|_| out.truncate(mark))
    })?;
    if found.is_none() {
        out.w().array(0);
    }
    Ok(())
}

/// Writes the members of some ranks.
fn write(
    zset: &ZSet<'_>,
    rank: usize,
    count: usize,
    with_scores: bool,
    out: &mut Out,
) -> Result<(), Error> {
    Ok(zset.visit(rank, count, false, |member, score| {
        write_row(out, &member, score, with_scores);
        ControlFlow::Continue(())
    })?)
}

pub(super) fn zscan(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let cursor = cursor(args.bytes(2))?;
    let mut encoded = Out::default();
    encoded.protocol = out.protocol;
    let next = read(cx, args.bytes(1), |zset| {
        let options = ScanOptions::parse(args, 3, Scanned::Members)?;
        cx.goes_through(options.count.min(zset.len()))?;
        let (mut written, in_listpack) = (0, zset.is_listpack());
        let next = zset.scan(cursor, options.count, |member, score| {
            if options.wants(&member.bytes()) {
                encoded.item(&member);
                // A score is a string here, in RESP3 too.
                let mut text = crate::text::double::Text::default();
                encoded.w().bulk(match in_listpack {
                    true => text.of_listpack(score),
                    false => text.of(score),
                });
                written += 2;
            }
        })?;
        Ok((next, written))
    })?;
    let (next, written) = next.unwrap_or_default();
    out.w().array(2);
    out.w().bulk_display(next);
    out.w().array(written);
    out.append(encoded);
    Ok(())
}
