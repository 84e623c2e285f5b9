//! Stream commands, but for what reads several streams (`stream_reads`) and
//! what concerns consumer groups (`stream_groups`).
//!
//! A command parses and checks all of its arguments before it looks at the key
//! or after, as Redis does in each case: which of two errors a client is told
//! depends on it.

use crate::commands::stream_groups;
use crate::config::Param;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::keys::uses::*;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use snug_store::types::stream::ops::{AddEntry, DeleteEntries, SetId, TrimEntries};
use snug_store::types::stream::{
    Fields, Groups, Shape, Stream, StreamError, StreamId, StreamScratch, Trim,
};
use snug_store::{Class, Event};
use snug_store::{Found, Key, SlotGuard, Type};
use std::cell::RefCell;
use std::ops::ControlFlow;

pub(crate) const COMMANDS: &[Command] = &[
    Command::new("xadd", -5, xadd).flags(WRITE | DENYOOM | FAST).key(1).about(
        Group::Stream,
        "5.0.0",
        "O(1) when adding a new entry, O(N) when trimming where N being the number of entries evicted.",
        "Appends an entry to a stream, creating it if need be.",
    ),
    Command::new("xdel", -3, xdel).flags(WRITE | FAST).key(1).used(RW_DELETE).about(
        Group::Stream,
        "5.0.0",
        "O(1) for each single item to delete in the stream, regardless of the stream size.",
        "Deletes entries of a stream by their IDs.",
    ),
    Command::new("xinfo", -2, super::container).subcommands(XINFO).about(
        Group::Stream,
        "5.0.0",
        "Depends on subcommand.",
        "A container for commands that describe streams.",
    ),
    Command::new("xlen", 2, xlen).flags(READONLY | FAST).key(1).used(RO).about(
        Group::Stream,
        "5.0.0",
        "O(1)",
        "Counts the entries of a stream.",
    ),
    Command::new("xrange", -4, xrange).flags(READONLY).key(1).about(
        Group::Stream,
        "5.0.0",
        "O(N) with N being the number of elements being returned.",
        "Returns the entries of a stream between two IDs.",
    ),
    Command::new("xrevrange", -4, xrevrange).flags(READONLY).key(1).about(
        Group::Stream,
        "5.0.0",
        "O(N) with N being the number of elements returned.",
        "Returns the entries of a stream between two IDs, last first.",
    ),
    Command::new("xsetid", -3, xsetid).flags(WRITE | DENYOOM | FAST).key(1).about(
        Group::Stream,
        "5.0.0",
        "O(1)",
        "Sets a stream's last ID; for replication.",
    ),
    Command::new("xtrim", -4, xtrim).flags(WRITE).key(1).used(RW_DELETE).about(
        Group::Stream,
        "5.0.0",
        "O(N), with N being the number of evicted entries.",
        "Drops the oldest entries of a stream.",
    ),
];

const XINFO: &[Command] = &[
    Command::new("consumers", 4, stream_groups::xinfo_consumers)
        .of("xinfo")
        .flags(READONLY)
        .key(2)
        .about(Group::Stream, "5.0.0", "O(1)", "Lists the consumers of a consumer group."),
    Command::new("groups", 3, stream_groups::xinfo_groups)
        .of("xinfo")
        .flags(READONLY)
        .key(2)
        .about(Group::Stream, "5.0.0", "O(1)", "Lists the consumer groups of a stream."),
    Command::new("help", 2, xinfo_help).of("xinfo").flags(LOADING | STALE).about(
        Group::Stream,
        "5.0.0",
        "O(1)",
        "Lists the subcommands.",
    ),
    Command::new("stream", -3, xinfo_stream).of("xinfo").flags(READONLY).key(2).about(
        Group::Stream,
        "5.0.0",
        "O(1)",
        "Describes a stream.",
    ),
];

const INVALID_ID: Error = Error::new("ERR Invalid stream ID specified as stream command argument");
const NOT_GREATER: Error =
    Error::new("ERR The ID specified in XADD is equal or smaller than the target stream top item");
const TOO_LARGE: Error = Error::new("ERR Elements are too large to be stored");

impl From<StreamError> for Error {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::NotGreater => NOT_GREATER,
            StreamError::TooLarge => TOO_LARGE,
            StreamError::Damaged => Error::DAMAGED_BLOCK,
        }
    }
}

/// An event of streams.
pub(super) const fn event(name: &'static str) -> Event {
    Event::new(Class::STREAM, name)
}

thread_local! {
    /// What this worker unpacks blocks into.
    static SCRATCH: RefCell<StreamScratch> = RefCell::default();
}

/// Gives back what this worker has unpacked of streams, if nobody has read any since
/// this was last called.
pub(crate) fn release_unused() {
    with_scratch(StreamScratch::release_unused);
}

pub(super) fn with_scratch<R>(work: impl FnOnce(&mut StreamScratch) -> R) -> R {
    SCRATCH.with_borrow_mut(work)
}

/// An ID as most commands take it: `ms` or `ms-seq`.
pub(super) fn parse_id(text: &[u8], default_seq: u64) -> Result<StreamId, Error> {
    StreamId::parse(text, default_seq).ok_or(INVALID_ID)
}

/// One end of a range: an ID, `-` or `+`, or an ID after `(` that is not part
/// of the range itself.
pub(super) struct Bound {
    pub id: StreamId,
    pub open: bool,
}

pub(super) fn parse_bound(text: &[u8], default_seq: u64) -> Result<Bound, Error> {
    let id = match text {
        b"-" => StreamId::MIN,
        b"+" => StreamId::MAX,
        [b'(', id @ ..] if !id.is_empty() => {
            return Ok(Bound { id: parse_id(id, default_seq)?, open: true });
        }
        id => parse_id(id, default_seq)?,
    };
    Ok(Bound { id, open: false })
}

/// The stream at a key, if the key exists.
pub(super) fn find(
    cx: &Context<'_>,
    slot: &mut SlotGuard<'_>,
    key: &Key<'_>,
) -> Result<Option<Found>, Error> {
    cx.find_typed(slot, key, Type::Stream)
}

pub(super) fn write_entry(out: &mut Out, id: StreamId, fields: Fields<'_>) {
    let mut w = out.w();
    w.array(2);
    w.bulk_display(id);
    w.array(fields.len() * 2);
    for (name, value) in fields {
        w.bulk(name);
        w.bulk(value);
    }
}

/// Writes up to `count` entries (0 for all) as one array. On an error nothing
/// is left written. If there are many, the command of `cx` is to run aside.
pub(super) fn write_range(
    cx: Option<&Context<'_>>,
    stream: &Stream,
    (start, end): (StreamId, StreamId),
    reverse: bool,
    count: u64,
    out: &mut Out,
) -> Result<(), Error> {
    let mark = out.mark();
    let array = out.w().array_deferred();
    let (mut written, mut long) = (0, Ok(()));
    let result = with_scratch(|scratch| {
        stream.range(start, end, reverse, scratch, |id, fields| {
            write_entry(out, id, fields);
            written += 1;
            long = cx.map_or(Ok(()), |cx| cx.goes_through(written as usize));
            if written == count || long.is_err() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    });
    if let Err(error) = result.map_err(Error::from).and(long) {
        out.truncate(mark);
        return Err(error);
    }
    out.w().set_array_len(array, written as usize);
    Ok(())
}

/// The ID that `XADD` asks for.
#[derive(Clone, Copy)]
enum NewId {
    /// `*`
    Any,
    /// `ms-*`
    AnySeq(u64),
    Given(StreamId),
}

impl NewId {
    fn parse(text: &[u8]) -> Result<Self, Error> {
        match text {
            b"*" => Ok(Self::Any),
            [ms @ .., b'-', b'*'] if !ms.contains(&b'-') => Ok(Self::AnySeq(parse_id(ms, 0)?.ms)),
            _ => Ok(Self::Given(parse_id(text, 0)?)),
        }
    }

    /// The ID after `last`, `now` milliseconds being the time.
    fn after(self, last: StreamId, now: u64) -> Result<StreamId, Error> {
        let id = match self {
            Self::Any if now > last.ms => StreamId::new(now, 0),
            Self::Any => last.next().ok_or(NOT_GREATER)?,
            Self::AnySeq(ms) if ms == last.ms => {
                StreamId::new(ms, last.seq.checked_add(1).ok_or(NOT_GREATER)?)
            }
            Self::AnySeq(ms) => StreamId::new(ms, 0),
            Self::Given(id) => id,
        };
        if id > last { Ok(id) } else { Err(NOT_GREATER) }
    }
}

/// How `XADD` and `XTRIM` are told to trim.
#[derive(Default)]
struct TrimOptions {
    trim: Option<Trim>,
    /// The limit of the `~` form, 0 for none.
    approximate: Option<u64>,
}

impl TrimOptions {
    /// Trims a stream; the entries dropped.
    fn apply(
        &self,
        slot: &mut SlotGuard<'_>,
        key: &Key<'_>,
        found: Found,
        shape: &Shape,
    ) -> Result<u64, Error> {
        let Self { trim: Some(trim), approximate } = *self else { return Ok(0) };
        with_scratch(|scratch| {
            let trim = TrimEntries { trim, approximate, shape, scratch };
            Ok(slot.apply(key, Some(found), trim, event("xtrim")).dropped()?)
        })
    }
}

/// The options of `XADD` and `XTRIM`, from argument 2 on.
struct Options {
    trim: TrimOptions,
    no_mkstream: bool,
    /// Of `XADD`: the ID, if the arguments get as far.
    id: Option<NewId>,
    /// The argument after the last one read.
    next: usize,
}

fn parse_options(args: Args<'_>, xadd: bool, node_entries: i64) -> Result<Options, Error> {
    let mut options =
        Options { trim: TrimOptions::default(), no_mkstream: false, id: None, next: 2 };
    let mut approximate = false;
    let mut limit = None;
    while let Some(option) = args.get(options.next) {
        let more = args.len() - 1 - options.next;
        let is = |word: &str| option.eq_ignore_ascii_case(word.as_bytes());
        options.next += 1;
        if xadd && option == b"*" {
            options.id = Some(NewId::Any);
            break;
        } else if more > 0 && (is("maxlen") || is("minid") || is("maxsize")) {
            if let Some(other) = options.trim.trim {
                return Err(if is("maxsize") || matches!(other, Trim::MaxSize(_)) {
                    Error::new(
                        "ERR syntax error, MAXLEN, MINID and MAXSIZE options at the same time are not compatible",
                    )
                } else {
                    Error::new(
                        "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                    )
                });
            }
            let next = args.bytes(options.next);
            approximate = more >= 2 && next == b"~";
            if approximate || more >= 2 && next == b"=" {
                options.next += 1;
            }
            options.trim.trim = Some(if is("maxlen") {
                Trim::MaxLen(
                    u64::try_from(args.int(options.next)?)
                        .map_err(|_| Error::new("ERR The MAXLEN argument must be >= 0."))?,
                )
            } else if is("maxsize") {
                Trim::MaxSize(
                    u64::try_from(args.int(options.next)?)
                        .map_err(|_| Error::new("ERR The MAXSIZE argument must be >= 0."))?,
                )
            } else {
                Trim::MinId(parse_id(args.bytes(options.next), 0)?)
            });
            options.next += 1;
        } else if more > 0 && is("limit") {
            let number = u64::try_from(args.int(options.next)?)
                .map_err(|_| Error::new("ERR The LIMIT argument must be >= 0."))?;
            limit = Some(number);
            options.next += 1;
        } else if xadd && is("nomkstream") {
            options.no_mkstream = true;
        } else if xadd {
            options.id = Some(NewId::parse(option)?);
            break;
        } else {
            return Err(Error::SYNTAX);
        }
    }
    let trims = options.trim.trim.is_some();
    if limit.is_some_and(|limit| limit > 0) && !trims {
        return Err(Error::new(
            "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
        ));
    }
    if !xadd && !trims {
        return Err(Error::new("ERR syntax error, XTRIM must be called with a trimming strategy"));
    }
    if limit.is_some() && !approximate {
        return Err(Error::new(
            "ERR syntax error, LIMIT cannot be used without the special ~ option",
        ));
    }
    options.trim.approximate =
        approximate.then(|| limit.unwrap_or_else(|| default_limit(node_entries)));
    Ok(options)
}

/// The entries that `~` drops at most when no `LIMIT` is given: a hundred
/// nodes, within reason.
fn default_limit(node_entries: i64) -> u64 {
    match node_entries.saturating_mul(100) {
        ..=0 => 10_000,
        limit => limit.min(1_000_000) as u64,
    }
}

fn xadd(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let node_entries = cx.server.config.number(Param::StreamNodeMaxEntries);
    let options = parse_options(args, true, node_entries)?;
    let first = options.next;
    let count = args.len().saturating_sub(first);
    let Some(new_id) = options.id.filter(|_| count >= 2 && count.is_multiple_of(2)) else {
        return Err(Error::wrong_arity("xadd").into());
    };
    if matches!(new_id, NewId::Given(StreamId::MIN)) {
        return Err(Error::new("ERR The ID specified in XADD must be greater than 0-0").into());
    }
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key)?;
    if found.is_none() && options.no_mkstream {
        out.w().null();
        return Ok(());
    }
    let last = found.and_then(|found| slot.stream(found)).map_or(StreamId::MIN, Stream::last_id);
    if last == StreamId::MAX {
        return Err(Error::new(
            "ERR The stream has exhausted the last possible ID, unable to add more items",
        )
        .into());
    }
    let id = new_id.after(last, slot.now())?;
    let fields =
        (first..args.len()).step_by(2).map(|name| (args.bytes(name), args.bytes(name + 1)));
    let shape = cx.server.config.stream_shape();
    let place = slot.apply(&key, found, AddEntry { id, fields, shape: &shape }, event("xadd"))?;
    options.trim.apply(&mut slot, &key, place, &shape)?;
    out.w().bulk_display(id);
    Ok(())
}

fn xtrim(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let node_entries = cx.server.config.number(Param::StreamNodeMaxEntries);
    let options = parse_options(args, false, node_entries)?;
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let Some(found) = find(cx, &mut slot, &key)? else {
        out.w().integer(0);
        return Ok(());
    };
    let shape = cx.server.config.stream_shape();
    let dropped = options.trim.apply(&mut slot, &key, found, &shape)?;
    out.w().integer(dropped as i64);
    Ok(())
}

fn xdel(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let Some(found) = find(cx, &mut slot, &key)? else {
        out.w().integer(0);
        return Ok(());
    };
    let ids: Vec<StreamId> =
        args.iter_from(2).map(|text| parse_id(text, 0)).collect::<Result<_, _>>()?;
    let shape = cx.server.config.stream_shape();
    let deleted = with_scratch(|scratch| {
        let delete = DeleteEntries { ids, shape: &shape, scratch };
        slot.apply(&key, Some(found), delete, event("xdel"))
    })?;
    out.w().integer(deleted as i64);
    Ok(())
}

fn xlen(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key)?;
    let len = found.and_then(|found| slot.stream(found)).map_or(0, Stream::len);
    out.w().integer(len as i64);
    Ok(())
}

fn xrange(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    range(cx, args, args.bytes(2), args.bytes(3), false, out)
}

fn xrevrange(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    range(cx, args, args.bytes(3), args.bytes(2), true, out)
}

fn range(
    cx: &mut Context<'_>,
    args: Args<'_>,
    start: &[u8],
    end: &[u8],
    reverse: bool,
    out: &mut Out,
) -> Answer {
    let Bound { id, open } = parse_bound(start, 0)?;
    let start = if open { id.next() } else { Some(id) }
        .ok_or(Error::new("ERR invalid start ID for the interval"))?;
    let Bound { id, open } = parse_bound(end, u64::MAX)?;
    let end = if open { id.prev() } else { Some(id) }
        .ok_or(Error::new("ERR invalid end ID for the interval"))?;
    let mut count = None;
    let mut at = 4;
    while at < args.len() {
        if !args.is(at, "count") || at + 1 == args.len() {
            return Err(Error::SYNTAX.into());
        }
        count = Some(args.int(at + 1)?.max(0) as u64);
        at += 2;
    }
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key)?;
    let Some(stream) = found.and_then(|found| slot.stream(found)) else {
        out.w().array(0);
        return Ok(());
    };
    if count == Some(0) {
        out.w().null_array();
        return Ok(());
    }
    Ok(write_range(Some(cx), stream, (start, end), reverse, count.unwrap_or(0), out)?)
}

fn xsetid(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let id = parse_id(args.bytes(2), 0)?;
    let (mut entries_added, mut max_deleted) = (None, None);
    let mut at = 3;
    while at < args.len() {
        let more = at + 1 < args.len();
        if more && args.is(at, "entriesadded") {
            let number = u64::try_from(args.int(at + 1)?)
                .map_err(|_| Error::new("ERR entries_added must be positive"))?;
            entries_added = Some(number);
        } else if more && args.is(at, "maxdeletedid") {
            let max = parse_id(args.bytes(at + 1), 0)?;
            if id < max {
                return Err(Error::new(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ).into());
            }
            max_deleted = (max != StreamId::MIN).then_some(max);
        } else {
            return Err(Error::SYNTAX.into());
        }
        at += 2;
    }
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key)?.ok_or(Error::NO_SUCH_KEY)?;
    if let Some(stream) = slot.stream(found) {
        if id < stream.max_deleted_id() {
            return Err(Error::new(
                "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
            )
            .into());
        }
        let top = with_scratch(|scratch| stream.last_live_id(scratch))?;
        if top.is_some_and(|top| id < top) {
            return Err(Error::new(
                "ERR The ID specified in XSETID is smaller than the target stream top item",
            )
            .into());
        }
        if !stream.is_empty() && entries_added.is_some_and(|added| added < stream.len()) {
            return Err(Error::new(
                "ERR The entries_added specified in XSETID is smaller than the target stream length",
            ).into());
        }
    }
    let set = SetId { last_id: id, entries_added, max_deleted_id: max_deleted };
    slot.apply(&key, Some(found), set, event("xsetid"));
    out.w().ok();
    Ok(())
}

fn xinfo_help(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let lines = [
        ("CONSUMERS <key> <groupname>", "Describe the consumers of a group."),
        ("GROUPS <key>", "Describe the groups of a stream."),
        // The bracket that is missing is missing in Redis.
        ("STREAM <key> [FULL [COUNT <count>]", "Describe a stream; with FULL its groups too."),
    ];
    super::help(out, "XINFO", &lines);
    Ok(())
}

/// How many entries `XINFO STREAM FULL` shows unless told.
const FULL_COUNT: u64 = 10;

fn xinfo_stream(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key)?.ok_or(Error::NO_SUCH_KEY)?;
    let full = match args.len() {
        3 => None,
        4 if args.is(3, "full") => Some(FULL_COUNT),
        6 if args.is(3, "full") && args.is(4, "count") => {
            Some(u64::try_from(args.int(5)?).unwrap_or(FULL_COUNT))
        }
        _ => {
            return Err(super::misused("xinfo", args.bytes(1)).into());
        }
    };
    let Some(stream) = slot.stream(found) else { return Err(Error::WRONG_TYPE.into()) };
    Ok(write_info(stream, full, out)?)
}

fn write_info(stream: &Stream, full: Option<u64>, out: &mut Out) -> Result<(), Error> {
    let first = with_scratch(|scratch| stream.first_id(scratch))?.unwrap_or(StreamId::MIN);
    let memory = stream.memory();
    let nodes = memory.blocks + usize::from(stream.tail_bytes() > 0);
    let mut w = out.w();
    w.map(if full.is_some() { 9 } else { 10 });
    w.bulk(b"length");
    w.integer(stream.len() as i64);
    w.bulk(b"radix-tree-keys");
    w.integer(nodes as i64);
    w.bulk(b"radix-tree-nodes");
    w.integer(nodes as i64 + 1);
    w.bulk(b"last-generated-id");
    w.bulk_display(stream.last_id());
    w.bulk(b"max-deleted-entry-id");
    w.bulk_display(stream.max_deleted_id());
    w.bulk(b"entries-added");
    w.integer(stream.entries_added() as i64);
    w.bulk(b"recorded-first-entry-id");
    w.bulk_display(first);
    match full {
        None => {
            w.bulk(b"groups");
            w.integer(stream.groups().map_or(0, Groups::len) as i64);
            w.bulk(b"first-entry");
            write_edge(stream, false, out)?;
            out.w().bulk(b"last-entry");
            write_edge(stream, true, out)?;
        }
        Some(count) => {
            w.bulk(b"entries");
            write_range(None, stream, (StreamId::MIN, StreamId::MAX), false, count, out)?;
            out.w().bulk(b"groups");
            stream_groups::write_groups(stream, count, out)?;
        }
    }
    Ok(())
}

/// Columns that `SNUG OBJECT` shows.
const COLUMNS_MAX: usize = 256;

/// Writes what packing saves, as one map: over the whole stream, and by field in
/// the newest packed block.
pub(super) fn write_packing(stream: &Stream, out: &mut Out) -> Result<(), Error> {
    let memory = stream.memory();
    let columns = stream.column_sizes()?;
    let ratio = |raw: f64, packed: f64| format!("{:.2}", raw / packed.max(1.0));
    let mut w = out.w();
    w.map(6);
    w.bulk(b"raw-bytes");
    let (raw, packed) = (stream.raw_size(), stream.size());
    w.integer(raw as i64);
    w.bulk(b"packed-bytes");
    w.integer(packed as i64);
    w.bulk(b"ratio");
    w.bulk_display(ratio(raw as f64, packed as f64));
    w.bulk(b"blocks");
    w.integer(memory.blocks as i64);
    w.bulk(b"packed-blocks");
    w.integer(memory.packed_blocks as i64);
    w.bulk(b"column-ratios");
    w.map(columns.len().min(COLUMNS_MAX));
    for column in columns.iter().take(COLUMNS_MAX) {
        w.bulk(&column.name);
        w.bulk_display(ratio(column.raw_bytes as f64, column.packed_bytes as f64));
    }
    Ok(())
}

/// Writes the first or the last entry; null if there is none, whatever the stream's
/// length says. One element in any case: a reply is never short.
fn write_edge(stream: &Stream, last: bool, out: &mut Out) -> Result<(), Error> {
    let mut written = false;
    with_scratch(|scratch| {
        stream.range(StreamId::MIN, StreamId::MAX, last, scratch, |id, fields| {
            write_entry(out, id, fields);
            written = true;
            ControlFlow::Break(())
        })
    })?;
    if !written {
        out.w().null();
    }
    Ok(())
}
