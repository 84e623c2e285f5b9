//! `XREAD` and `XREADGROUP`: what several streams hold after an ID each, at
//! once or when it comes.
//!
//! Both lock all streams they name first, so that a client that has to wait is
//! registered before anything can be added (see [`crate::engine::blocked`]). A waiting
//! command is executed again by whoever adds something; `$` stands for what it
//! stood for at first, `+` for the last entry whenever that is.

use super::quoted;
use super::streams::{parse_id, with_scratch, write_entry, write_range};
use crate::commands::stream_groups::{Given, LOOKUPS, Member, visit_pending};
use crate::engine::blocked::Wait;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::keys::KeySpec;
use crate::engine::keys::uses::*;
use crate::engine::out::{Out, OutMark};
use crate::outside::clock::unix_ms;
use crate::request::args::{Args, OwnedArgs};
use crate::request::error::Error;
use snug_resp::Protocol;
use snug_store::types::stream::{Stream, StreamId};
use snug_store::{Found, Key, SlotGuard, Type};
use std::ops::ControlFlow;

pub(crate) const COMMANDS: &[Command] = &[
    Command::new("xread", -4, xread).flags(BLOCKING | READONLY).movable(keys).specs(&[KeySpec::half_behind(RO_ACCESS, "STREAMS", 1)]).about(
        Group::Stream,
        "5.0.0",
        "O(N) with N being the number of elements being returned.",
        "Returns the entries of several streams after an ID each. Can block.",
    ),
    Command::new("xreadgroup", -7, xreadgroup).flags(BLOCKING | WRITE).movable(keys).specs(&[KeySpec::half_behind(RO_ACCESS, "STREAMS", 4)]).about(
        Group::Stream,
        "5.0.0",
        "For each stream mentioned: O(M) with M being the number of elements returned.",
        "Returns entries that a group has not been given yet, or what is pending for a consumer. Can block.",
    ),
];

/// Where the keys are: the first of them, and how many. Of an odd number of
/// arguments the one in the middle is no key, as Redis counts them.
fn streams(args: Args<'_>) -> Option<(usize, usize)> {
    let mut at = 1;
    while at < args.len() {
        if args.is(at, "streams") {
            let rest = args.len() - at - 1;
            return (rest >= 2).then_some((at + 1, rest / 2));
        }
        at += match args {
            _ if args.is(at, "block") || args.is(at, "count") => 2,
            _ if args.is(at, "group") => 3,
            _ => 1,
        };
    }
    None
}

fn keys(args: Args<'_>) -> Result<Vec<usize>, Error> {
    let (first, count) = streams(args).ok_or(Error::SYNTAX)?;
    Ok((first..first + count).collect())
}

/// What the command says before its streams.
struct Options<'a> {
    /// 0 for all.
    count: u64,
    /// For how long to wait at most, if at all; 0 for ever.
    timeout_ms: Option<u64>,
    group: Option<Reader<'a>>,
    /// The index of the first key.
    first: usize,
    /// The number of keys.
    streams: usize,
}

/// As whom `XREADGROUP` reads.
#[derive(Clone, Copy)]
struct Reader<'a> {
    group: &'a [u8],
    consumer: &'a [u8],
    noack: bool,
}

/// The time of `BLOCK`, in milliseconds.
fn parse_timeout(args: Args<'_>, at: usize) -> Result<u64, Error> {
    let timeout =
        args.int(at).map_err(|_| Error::new("ERR timeout is not an integer or out of range"))?;
    let timeout = u64::try_from(timeout).map_err(|_| Error::new("ERR timeout is negative"))?;
    if timeout > i64::MAX as u64 - unix_ms() {
        return Err(Error::new("ERR timeout is out of range"));
    }
    Ok(timeout)
}

fn parse<'a>(cx: &Context<'_>, args: Args<'a>, by_group: bool) -> Result<Options<'a>, Error> {
    let mut options = Options { count: 0, timeout_ms: None, group: None, first: 0, streams: 0 };
    let mut noack = false;
    let mut at = 1;
    while at < args.len() {
        let more = args.len() - 1 - at;
        if more > 0 && args.is(at, "block") {
            if cx.origin.is_script() {
                let name = cx.command.name;
                return Err(Error::from(format!(
                    "ERR {name} command is not allowed with BLOCK option from scripts"
                )));
            }
            options.timeout_ms = Some(parse_timeout(args, at + 1)?);
            at += 2;
        } else if more > 0 && args.is(at, "count") {
            options.count = args.int(at + 1)?.max(0) as u64;
            at += 2;
        } else if more > 0 && args.is(at, "streams") {
            if !more.is_multiple_of(2) {
                return Err(Error::new(if by_group {
                    "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified."
                } else {
                    "ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be specified."
                }));
            }
            (options.first, options.streams) = (at + 1, more / 2);
            break;
        } else if more > 1 && args.is(at, "group") {
            if !by_group {
                return Err(Error::new(
                    "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
                ));
            }
            let (group, consumer) = (args.bytes(at + 1), args.bytes(at + 2));
            options.group = Some(Reader { group, consumer, noack });
            at += 3;
        } else if args.is(at, "noack") {
            if !by_group {
                return Err(Error::new(
                    "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
                ));
            }
            noack = true;
            at += 1;
        } else {
            return Err(Error::SYNTAX);
        }
    }
    if options.streams == 0 {
        return Err(Error::SYNTAX);
    }
    if by_group && options.group.is_none() {
        return Err(Error::new("ERR Missing GROUP option for XREADGROUP"));
    }
    options.group = options.group.map(|reader| Reader { noack, ..reader });
    Ok(options)
}

fn xread(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    read(cx, args, &parse(cx, args, false)?, out)
}

fn xreadgroup(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    read(cx, args, &parse(cx, args, true)?, out)
}

/// After what a stream is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Id(StreamId),
    /// What `$` is at this moment.
    Resolved(StreamId),
    /// `>`: after what the group was given.
    Group,
}

fn read(cx: &mut Context<'_>, args: Args<'_>, options: &Options<'_>, out: &mut Out) -> Answer {
    let keys = options.first..options.first + options.streams;
    let _held = cx.hold(keys.clone().map(|at| cx.key(args.bytes(at))));
    let mut afters = Vec::with_capacity(options.streams);
    for at in keys.clone() {
        let key = cx.key(args.bytes(at));
        let mut slot = cx.lock(&key);
        let found = cx.find_to_read(&mut slot, &key);
        if found.is_some_and(|found| slot.type_of(found) != Type::Stream) {
            return Err(Error::WRONG_TYPE.into());
        }
        let stream = found.and_then(|found| slot.stream(found));
        if let Some(reader) = options.group
            && stream.and_then(|stream| stream.group(reader.group)).is_none()
        {
            return Err(no_group(key.bytes, reader.group).into());
        }
        let id = args.bytes(at + options.streams);
        let after = after(id, stream, options.group.is_some())?;
        // Who may have to wait for entries stays where they are.
        if let (Some(reader), Some(stream), None) = (options.group, stream, options.timeout_ms) {
            let most = if options.count == 0 { u64::MAX } else { options.count };
            // How many there are is asked only where they may be many.
            if cx.goes_through(most as usize).is_err() {
                cx.goes_through(to_give(stream, reader, after)?.min(most) as usize)?;
            }
        }
        afters.push(after);
    }
    let mark = out.mark();
    let map = out.w().array_deferred();
    let mut answered = 0;
    for (at, after) in keys.clone().zip(&afters) {
        let key = cx.key(args.bytes(at));
        let mut slot = cx.lock(&key);
        let Some(found) = slot.find_untouched(&key) else { continue };
        let served = match (options.group, *after) {
            (Some(reader), after) => {
                serve_group(&mut slot, &key, found, reader, after, options.count, out)
            }
            (None, After::Id(id) | After::Resolved(id)) => {
                let cx = options.timeout_ms.is_none().then_some(&*cx);
                slot.stream(found).map_or(Ok(false), |stream| {
                    serve(cx, stream, key.bytes, id, options.count, out)
                })
            }
            (None, After::Group) => Ok(false),
        };
        answered += usize::from(served.inspect_err(|_| out.truncate(mark))?);
    }
    match (answered, out.protocol) {
        (0, _) => return nothing_yet(cx, args, options, &afters, mark, out),
        (_, Protocol::Resp2) => out.w().set_array_len(map, answered),
        (_, Protocol::Resp3) => out.w().set_map_len(map, answered),
    }
    Ok(())
}

/// How many entries a group may be given, at most.
fn to_give(stream: &Stream, reader: Reader<'_>, after: After) -> Result<u64, Error> {
    let Some(group) = stream.group(reader.group) else { return Ok(0) };
    if after != After::Group {
        return Ok(group.pending().len() as u64);
    }
    let course = with_scratch(|scratch| stream.course(scratch))?;
    let lag = group.lag(&course).and_then(|lag| u64::try_from(lag).ok());
    Ok(lag.unwrap_or(u64::MAX).min(stream.len()))
}

fn no_group(key: &[u8], group: &[u8]) -> Error {
    let text = [
        b"NOGROUP No such key '",
        quoted(key, usize::MAX),
        b"' or consumer group '",
        quoted(group, usize::MAX),
        b"' in XREADGROUP with GROUP option",
    ];
    Error::from(text.concat())
}

/// Reads an ID of the command.
fn after(id: &[u8], stream: Option<&Stream>, by_group: bool) -> Result<After, Error> {
    match id {
        b"$" if by_group => Err(Error::new(
            "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.",
        )),
        b"+" if by_group => Err(Error::new(
            "ERR The + ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The + ID would just return an empty result set.",
        )),
        b"$" => Ok(After::Resolved(stream.map_or(StreamId::MIN, Stream::last_id))),
        b"+" => {
            let Some(stream) = stream else { return Ok(After::Id(StreamId::MIN)) };
            let last = with_scratch(|scratch| stream.last_live_id(scratch))?;
            Ok(After::Id(last.and_then(StreamId::prev).unwrap_or(stream.last_id())))
        }
        b">" if by_group => Ok(After::Group),
        b">" => Err(Error::new(
            "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
        )),
        // Nothing can be after the last ID there is, which stands for `>`.
        id => match parse_id(id, 0)? {
            StreamId::MAX if by_group => Ok(After::Group),
            id => Ok(After::Id(id)),
        },
    }
}

/// Writes a stream's name; the array of its entries is to follow.
fn write_name(name: &[u8], out: &mut Out) {
    if out.protocol == Protocol::Resp2 {
        out.w().array(2);
    }
    out.w().bulk(name);
}

/// Writes a stream's name and its entries after an ID, if there are any;
/// whether there were.
fn serve(
    cx: Option<&Context<'_>>,
    stream: &Stream,
    name: &[u8],
    after: StreamId,
    count: u64,
    out: &mut Out,
) -> Result<bool, Error> {
    let last = with_scratch(|scratch| stream.last_live_id(scratch))?;
    let (Some(start), true) = (after.next(), last > Some(after)) else { return Ok(false) };
    write_name(name, out);
    write_range(cx, stream, (start, StreamId::MAX), false, count, out)?;
    Ok(true)
}

/// Writes a stream's name and what a consumer is given of it, if there is
/// anything; whether there was. The history of a consumer is always something.
fn serve_group(
    slot: &mut SlotGuard<'_>,
    key: &Key<'_>,
    found: Found,
    reader: Reader<'_>,
    after: After,
    count: u64,
    out: &mut Out,
) -> Result<bool, Error> {
    let Reader { group, consumer, noack } = reader;
    let mut member = Member { slot, key, found, group, consumer };
    member.look().map_err(|_| no_group(key.bytes, group))?;
    member.enter();
    match after {
        After::Id(id) | After::Resolved(id) => {
            write_name(key.bytes, out);
            write_history(&mut member, id, count, out)?;
            Ok(true)
        }
        After::Group => deliver(&mut member, noack, count, out),
    }
}

/// Writes the entries that a group has not been given yet, if there are any,
/// and makes them pending for the consumer; without, they count as acknowledged.
fn deliver(
    member: &mut Member<'_, '_, '_>,
    noack: bool,
    count: u64,
    out: &mut Out,
) -> Result<bool, Error> {
    let now = member.slot.now();
    let (stream, group) = member.look()?;
    let mut position = group.position();
    let (last, course) = with_scratch(|scratch| {
        Ok::<_, Error>((stream.last_live_id(scratch)?, stream.course(scratch)?))
    })?;
    let after = position.last_id;
    let (Some(start), true) = (after.next(), last > Some(after)) else { return Ok(false) };
    write_name(member.key.bytes, out);
    let array = out.w().array_deferred();
    let mut given = Given::new();
    let read = with_scratch(|scratch| {
        stream.range(start, StreamId::MAX, false, scratch, |id, fields| {
            write_entry(out, id, fields);
            position.advance(id, &course);
            given.push((id, 1));
            let enough = given.len() as u64 == count;
            if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    });
    out.w().set_array_len(array, given.len());
    if !noack {
        member.give(&given, now);
    }
    member.advance(position)?;
    read?;
    Ok(true)
}

/// Writes what is pending for the consumer after an ID, each entry delivered once
/// more; of one that was deleted from the stream, the ID alone.
fn write_history(
    member: &mut Member<'_, '_, '_>,
    after: StreamId,
    count: u64,
    out: &mut Out,
) -> Result<(), Error> {
    let now = member.slot.now();
    let array = out.w().array_deferred();
    let mut written = 0;
    let mut from = after.next();
    let Some(consumer) = member.look()?.1.find_consumer(member.consumer) else { return Ok(()) };
    loop {
        let left = if count == 0 { u64::MAX } else { count - written };
        let most = left.min(LOOKUPS) as usize;
        let entries = member.slot.pending_of(member.found, member.group, consumer, from, most);
        let Some(last) = entries.last() else { break };
        from = last.id.next();
        written += entries.len() as u64;
        let mut given = Given::new();
        let (stream, _) = member.look()?;
        let visited = visit_pending(stream, &entries, |entry, fields| match fields {
            Some(fields) => {
                write_entry(out, entry.id, fields);
                given.push((entry.id, entry.count.saturating_add(1)));
            }
            None => {
                let mut w = out.w();
                w.array(2);
                w.bulk_display(entry.id);
                w.null_array();
            }
        });
        member.give(&given, now);
        visited?;
    }
    out.w().set_array_len(array, written as usize);
    Ok(())
}

/// There is nothing to read: the client waits if it asked to and may, or is
/// told so.
fn nothing_yet(
    cx: &mut Context<'_>,
    args: Args<'_>,
    options: &Options<'_>,
    afters: &[After],
    mark: OutMark,
    out: &mut Out,
) -> Answer {
    out.truncate(mark);
    let Some(timeout_ms) = options.timeout_ms.filter(|_| cx.origin.may_block()) else {
        out.w().null_array();
        return Ok(());
    };
    let first_id = options.first + options.streams;
    let again = || {
        let mut again = OwnedArgs::new(args);
        for (at, after) in afters.iter().enumerate() {
            if let After::Resolved(id) = after {
                again.replace(first_id + at, id.to_string().as_bytes());
            }
        }
        again
    };
    Err(cx.wait(Wait {
        args: &again,
        keys: options.first..first_id,
        timeout_ms,
        awaits: Type::Stream,
        each_change: true,
        without_key: options.group.is_some(),
        rivals: options.group.filter(|_| options.streams == 1).map(|reader| reader.group),
    }))
}
