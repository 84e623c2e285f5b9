//! Commands on sorted sets.
//!
//! ```text
//!  adding     ZADD, ZINCRBY, ZREM; scores, ranks and counts of single members
//!  ranges     by rank, score or bytes: read, counted, stored, removed
//!  algebra    unions, intersections and differences, of sets too
//!  popping    the lowest and the highest, also where a client waits for one
//!  sampling   ZRANDMEMBER, ZSCAN
//! ```

mod adding;
mod algebra;
mod popping;
mod ranges;
mod sampling;

pub(crate) use ranges::{Rows, store};

use crate::commands::blocking_pops::keys_after_number;
use crate::engine::command::flags::*;
use crate::engine::command::{Command, Group};
use crate::engine::context::Context;
use crate::engine::keys::KeySpec;
use crate::engine::keys::uses::*;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use snug_resp::Protocol;
use snug_store::{Class, Event, Found, Item, Key, SlotGuard, Type, ZLimits, ZSet};

const fn about(
    command: Command,
    since: &'static str,
    cost: &'static str,
    text: &'static str,
) -> Command {
    command.about(Group::SortedSet, since, cost, text)
}

const POP: &str = "O(log(N)*M) with N being the number of members and M being the number popped.";
const RANGE: &str = "O(log(N)+M) with N being the number of members and M the number returned.";
const REMOVE: &str = "O(log(N)*M) with N being the number of members and M the number removed.";
const UNION: &str = "O(N*log(N)) with N being the sum of the sizes of the inputs.";
const INTERSECTION: &str =
    "O(N*K*log(N)) with N being the size of the smallest input and K the number of inputs.";

pub(crate) const COMMANDS: &[Command] = &[
    about(
        Command::new("zadd", -4, adding::zadd).flags(WRITE | DENYOOM | FAST).key(1),
        "1.2.0",
        "O(log(N)) for each member added, where N is the number of members.",
        "Adds members to a sorted set, or updates their scores.",
    ),
    about(
        Command::new("zincrby", 4, adding::zincrby)
            .flags(WRITE | DENYOOM | FAST)
            .key(1)
            .used(RW_ACCESS_UPDATE),
        "1.2.0",
        "O(log(N)) where N is the number of members.",
        "Increments the score of a member.",
    ),
    about(
        Command::new("zrem", -3, adding::zrem).flags(WRITE | FAST).key(1).used(RW_DELETE),
        "1.2.0",
        REMOVE,
        "Removes members from a sorted set.",
    ),
    about(
        Command::new("zscore", 3, adding::zscore).flags(READONLY | FAST).key(1),
        "1.2.0",
        "O(log(N))",
        "Returns the score of a member.",
    ),
    about(
        Command::new("zmscore", -3, adding::zmscore).flags(READONLY | FAST).key(1),
        "6.2.0",
        "O(log(N)) for each member asked for.",
        "Returns the scores of several members.",
    ),
    about(
        Command::new("zcard", 2, adding::zcard).flags(READONLY | FAST).key(1).used(RO),
        "1.2.0",
        "O(1)",
        "Returns the number of members of a sorted set.",
    ),
    about(
        Command::new("zrank", -3, adding::zrank).flags(READONLY | FAST).key(1),
        "2.0.0",
        "O(log(N))",
        "Returns the rank of a member, the lowest score first.",
    ),
    about(
        Command::new("zrevrank", -3, adding::zrevrank).flags(READONLY | FAST).key(1),
        "2.0.0",
        "O(log(N))",
        "Returns the rank of a member, the highest score first.",
    ),
    about(
        Command::new("zcount", 4, ranges::zcount).flags(READONLY | FAST).key(1),
        "2.0.0",
        "O(log(N)) with N being the number of members.",
        "Returns the number of members with scores within a range.",
    ),
    about(
        Command::new("zlexcount", 4, ranges::zlexcount).flags(READONLY | FAST).key(1),
        "2.8.9",
        "O(log(N)) with N being the number of members.",
        "Returns the number of members within a range of bytes.",
    ),
    about(
        Command::new("zrange", -4, ranges::zrange).flags(READONLY).key(1),
        "1.2.0",
        RANGE,
        "Returns members of a sorted set within a range of ranks, scores or bytes.",
    ),
    about(
        Command::new("zrangestore", -5, ranges::zrangestore)
            .flags(WRITE | DENYOOM)
            .keys(1, 2, 1)
            .specs(&[KeySpec::at(OW_UPDATE, 1), KeySpec::at(RO_ACCESS, 2)]),
        "6.2.0",
        RANGE,
        "Stores a range of members of a sorted set under another key.",
    ),
    about(
        Command::new("zrevrange", -4, ranges::zrevrange).flags(READONLY).key(1),
        "1.2.0",
        RANGE,
        "Returns members within a range of ranks, the highest score first.",
    ),
    about(
        Command::new("zrangebyscore", -4, ranges::zrangebyscore).flags(READONLY).key(1),
        "1.0.5",
        RANGE,
        "Returns members with scores within a range.",
    ),
    about(
        Command::new("zrevrangebyscore", -4, ranges::zrevrangebyscore).flags(READONLY).key(1),
        "2.2.0",
        RANGE,
        "Returns members with scores within a range, the highest first.",
    ),
    about(
        Command::new("zrangebylex", -4, ranges::zrangebylex).flags(READONLY).key(1),
        "2.8.9",
        RANGE,
        "Returns members within a range of bytes.",
    ),
    about(
        Command::new("zrevrangebylex", -4, ranges::zrevrangebylex).flags(READONLY).key(1),
        "2.8.9",
        RANGE,
        "Returns members within a range of bytes, the last first.",
    ),
    about(
        Command::new("zremrangebyrank", 4, ranges::zremrangebyrank)
            .flags(WRITE)
            .key(1)
            .used(RW_DELETE),
        "2.0.0",
        REMOVE,
        "Removes members within a range of ranks.",
    ),
    about(
        Command::new("zremrangebyscore", 4, ranges::zremrangebyscore)
            .flags(WRITE)
            .key(1)
            .used(RW_DELETE),
        "1.2.0",
        REMOVE,
        "Removes members with scores within a range.",
    ),
    about(
        Command::new("zremrangebylex", 4, ranges::zremrangebylex)
            .flags(WRITE)
            .key(1)
            .used(RW_DELETE),
        "2.8.9",
        REMOVE,
        "Removes members within a range of bytes.",
    ),
    about(
        Command::new("zpopmin", -2, popping::zpopmin)
            .flags(WRITE | FAST)
            .key(1)
            .used(RW_ACCESS_DELETE),
        "5.0.0",
        POP,
        "Removes and returns the members with the lowest scores.",
    ),
    about(
        Command::new("zpopmax", -2, popping::zpopmax)
            .flags(WRITE | FAST)
            .key(1)
            .used(RW_ACCESS_DELETE),
        "5.0.0",
        POP,
        "Removes and returns the members with the highest scores.",
    ),
    about(
        Command::new("zmpop", -4, popping::zmpop)
            .flags(WRITE)
            .movable(keys_behind::<1>)
            .specs(&[KeySpec::counted(RW_ACCESS_DELETE, 1)]),
        "7.0.0",
        POP,
        "Removes and returns members of the first of several sorted sets that is there.",
    ),
    about(
        Command::new("bzpopmin", -3, popping::bzpopmin)
            .flags(WRITE | NOSCRIPT | BLOCKING | FAST)
            .keys(1, -2, 1)
            .used(RW_ACCESS_DELETE),
        "5.0.0",
        "O(log(N)) with N being the number of members.",
        "Removes and returns the member with the lowest score of one of several sorted sets. Waits until there is one.",
    ),
    about(
        Command::new("bzpopmax", -3, popping::bzpopmax)
            .flags(WRITE | NOSCRIPT | BLOCKING | FAST)
            .keys(1, -2, 1)
            .used(RW_ACCESS_DELETE),
        "5.0.0",
        "O(log(N)) with N being the number of members.",
        "Removes and returns the member with the highest score of one of several sorted sets. Waits until there is one.",
    ),
    about(
        Command::new("bzmpop", -5, popping::bzmpop)
            .flags(WRITE | BLOCKING)
            .movable(keys_behind::<2>)
            .specs(&[KeySpec::counted(RW_ACCESS_DELETE, 2)]),
        "7.0.0",
        POP,
        "Removes and returns members of one of several sorted sets. Waits until there are any.",
    ),
    about(
        Command::new("zunion", -3, algebra::zunion)
            .flags(READONLY)
            .movable(keys_behind::<1>)
            .specs(&[KeySpec::counted(RO_ACCESS, 1)]),
        "6.2.0",
        UNION,
        "Returns the union of several sorted sets.",
    ),
    about(
        Command::new("zinter", -3, algebra::zinter)
            .flags(READONLY)
            .movable(keys_behind::<1>)
            .specs(&[KeySpec::counted(RO_ACCESS, 1)]),
        "6.2.0",
        INTERSECTION,
        "Returns the intersection of several sorted sets.",
    ),
    about(
        Command::new("zdiff", -3, algebra::zdiff)
            .flags(READONLY)
            .movable(keys_behind::<1>)
            .specs(&[KeySpec::counted(RO_ACCESS, 1)]),
        "6.2.0",
        UNION,
        "Returns the difference between the first of several sorted sets and the others.",
    ),
    about(
        Command::new("zunionstore", -4, algebra::zunionstore)
            .flags(WRITE | DENYOOM)
            .key(1)
            .movable(stored_keys)
            .specs(&[KeySpec::at(OW_UPDATE, 1), KeySpec::counted(RO_ACCESS, 2)]),
        "2.0.0",
        UNION,
        "Stores the union of several sorted sets.",
    ),
    about(
        Command::new("zinterstore", -4, algebra::zinterstore)
            .flags(WRITE | DENYOOM)
            .key(1)
            .movable(stored_keys)
            .specs(&[KeySpec::at(OW_UPDATE, 1), KeySpec::counted(RO_ACCESS, 2)]),
        "2.0.0",
        INTERSECTION,
        "Stores the intersection of several sorted sets.",
    ),
    about(
        Command::new("zdiffstore", -4, algebra::zdiffstore)
            .flags(WRITE | DENYOOM)
            .key(1)
            .movable(stored_keys)
            .specs(&[KeySpec::at(OW_UPDATE, 1), KeySpec::counted(RO_ACCESS, 2)]),
        "6.2.0",
        UNION,
        "Stores the difference between the first of several sorted sets and the others.",
    ),
    about(
        Command::new("zintercard", -3, algebra::zintercard)
            .flags(READONLY)
            .movable(keys_behind::<1>)
            .specs(&[KeySpec::counted(RO_ACCESS, 1)]),
        "7.0.0",
        INTERSECTION,
        "Returns the number of members of the intersection of several sorted sets.",
    ),
    about(
        Command::new("zrandmember", -2, sampling::zrandmember).flags(READONLY).key(1),
        "6.2.0",
        "O(N*log(M)) where N is the number of members returned and M that of members.",
        "Returns random members of a sorted set.",
    ),
    about(
        Command::new("zscan", -3, sampling::zscan).flags(READONLY).key(1),
        "2.8.0",
        "O(1) for every call, O(N) for a complete iteration.",
        "Iterates over the members of a sorted set and their scores.",
    ),
];

/// The keys behind their number, which is argument `AT`.
fn keys_behind<const AT: usize>(args: Args<'_>) -> Result<Vec<usize>, Error> {
    keys_after_number(args, AT)
}

/// The same where the first argument is a key, too: what is stored to.
fn stored_keys(args: Args<'_>) -> Result<Vec<usize>, Error> {
    let mut keys = keys_after_number(args, 2)?;
    keys.insert(0, 1);
    Ok(keys)
}

/// When Redis would turn a listpack to a skiplist.
pub(crate) fn limits(cx: &Context<'_>) -> ZLimits {
    cx.server.config.sorted_set_limits()
}

pub(crate) const fn event(name: &'static str) -> Event {
    Event::new(Class::ZSET, name)
}

/// Looks up a key that must hold a sorted set, if it exists.
#[inline]
pub(crate) fn find(
    cx: &Context<'_>,
    slot: &mut SlotGuard<'_>,
    key: &Key<'_>,
) -> Result<Option<Found>, Error> {
    cx.find_typed(slot, key, Type::SortedSet)
}

/// Reads the sorted set at a key, if there is one.
pub(crate) fn read<R>(
    cx: &Context<'_>,
    name: &[u8],
    read: impl FnOnce(&ZSet<'_>) -> Result<R, Error>,
) -> Result<Option<R>, Error> {
    let key = cx.key(name);
    let mut slot = cx.lock(&key);
    let Some(found) = find(cx, &mut slot, &key)? else { return Ok(None) };
    let mut room = Vec::new();
    match slot.zset(found, &mut room)? {
        Some(zset) => read(&zset).map(Some),
        None => Err(Error::WRONG_TYPE),
    }
}

/// Begins a reply of so many members, with their scores or without: in RESP3 each with
/// its own is an array.
pub(crate) fn begin_rows(out: &mut Out, count: usize, with_scores: bool) {
    let flat = with_scores && out.protocol == Protocol::Resp2;
    out.w().array(if flat { 2 * count } else { count });
}

pub(crate) fn write_row(out: &mut Out, member: &Item<'_>, score: f64, with_scores: bool) {
    if with_scores && out.protocol == Protocol::Resp3 {
        out.w().array(2);
    }
    out.item(member);
    if with_scores {
        out.score(score);
    }
}
