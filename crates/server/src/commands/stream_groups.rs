//! Consumer groups of streams: who reads together, what is pending for whom,
//! and how it is acknowledged or taken over. Reading by a group is in
//! `stream_reads`.
//!
//! What these commands change is the groups' own: neither `WATCH` nor waiting
//! clients follow it, and only the commands of `XGROUP` are told as keyspace events.
//!
//! Commands that give entries to a consumer look first and change then: what is read
//! of the stream, and written to the reply, is gathered as the entries to be given or
//! forgotten ([`Member`]), some at a time.

use super::streams::{Bound, event, find, parse_bound, parse_id, with_scratch, write_entry};
use super::{container, quoted};
use crate::commands;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::{Context, Origin};
use crate::engine::keys::uses::*;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use snug_resp::{Writer, parse_integer};
use snug_store::Event;
use snug_store::types::stream::ops::{
    Acknowledge, Assign, CreateConsumer, CreateGroup, Created, DeleteConsumer, DestroyGroup,
    SetGroup,
};
use snug_store::types::stream::{
    self, ConsumerId, Course, Fields, PendingEntry, Position, Stream, StreamId,
};
use snug_store::{Found, Key, SlotGuard, Type};

pub(crate) const COMMANDS: &[Command] = &[
    Command::new("xack", -4, xack).flags(WRITE | FAST).key(1).about(
        Group::Stream,
        "5.0.0",
        "O(1) for each message ID processed.",
        "Marks pending entries of a group as processed.",
    ),
    Command::new("xautoclaim", -6, xautoclaim).flags(WRITE | FAST).key(1).used(RW_DELETE).about(
        Group::Stream,
        "6.2.0",
        "O(1) if COUNT is small.",
        "Gives a consumer what has been pending for others for long.",
    ),
    Command::new("xclaim", -6, xclaim).flags(WRITE | FAST).key(1).about(
        Group::Stream,
        "5.0.0",
        "O(log N) with N being the number of messages in the PEL of the consumer group.",
        "Gives a consumer pending entries by their IDs.",
    ),
    Command::new("xgroup", -2, container).subcommands(XGROUP).about(
        Group::Stream,
        "5.0.0",
        "Depends on subcommand.",
        "A container for consumer groups commands.",
    ),
    Command::new("xpending", -3, xpending).flags(READONLY).key(1).about(
        Group::Stream,
        "5.0.0",
        "O(N) with N being the number of elements returned, or scanned when IDLE or a consumer filters them.",
        "Tells what is pending in a group.",
    ),
];

const XGROUP: &[Command] = &[
    Command::new("create", -5, create)
        .of("xgroup")
        .flags(WRITE | DENYOOM)
        .key(2)
        .used(RW_INSERT)
        .about(Group::Stream, "5.0.0", "O(1)", "Creates a consumer group."),
    Command::new("createconsumer", 5, create_consumer)
        .of("xgroup")
        .flags(WRITE | DENYOOM)
        .key(2)
        .used(RW_INSERT)
        .about(Group::Stream, "6.2.0", "O(1)", "Creates a consumer in a group."),
    Command::new("delconsumer", 5, delete_consumer)
        .of("xgroup")
        .flags(WRITE)
        .key(2)
        .used(RW_DELETE)
        .about(
            Group::Stream,
            "5.0.0",
            "O(1)",
            "Removes a consumer from a group, and what is pending for it.",
        ),
    Command::new("destroy", 4, destroy).of("xgroup").flags(WRITE).key(2).used(RW_DELETE).about(
        Group::Stream,
        "5.0.0",
        "O(N) where N is the number of entries in the group's pending entries list (PEL).",
        "Removes a consumer group.",
    ),
    Command::new("help", 2, help).of("xgroup").flags(LOADING | STALE).about(
        Group::Stream,
        "5.0.0",
        "O(1)",
        "Says what the subcommands do.",
    ),
    Command::new("setid", -5, set_id).of("xgroup").flags(WRITE).key(2).about(
        Group::Stream,
        "5.0.0",
        "O(1)",
        "Sets the last ID that a group was given.",
    ),
];

fn no_group(key: &[u8], group: &[u8]) -> Error {
    let (key, group) = (quoted(key, usize::MAX), quoted(group, usize::MAX));
    let text = [b"NOGROUP No such key '", key, b"' or consumer group '", group, b"'"];
    Error::from(text.concat())
}

fn no_group_in(key: &[u8], group: &[u8]) -> Error {
    let (key, group) = (quoted(key, usize::MAX), quoted(group, usize::MAX));
    let text = [b"NOGROUP No such consumer group '", group, b"' for key name '", key, b"'"];
    Error::from(text.concat())
}

const NO_KEY: Error = Error::new(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.",
);

/// The options of `XGROUP CREATE` and `SETID`, behind the ID.
#[derive(Default)]
struct Options {
    mkstream: bool,
    entries_read: Option<u64>,
}

fn parse_options(args: Args<'_>, create: bool) -> Result<Options, Error> {
    let mut options = Options::default();
    let mut at = 5;
    while at < args.len() {
        if create && args.is(at, "mkstream") {
            options.mkstream = true;
            at += 1;
        } else if args.is(at, "entriesread") && at + 1 < args.len() {
            let number = args.int(at + 1)?;
            if number < -1 {
                return Err(Error::new("ERR value for ENTRIESREAD must be positive or -1"));
            }
            options.entries_read = u64::try_from(number).ok();
            at += 2;
        } else {
            return Err(Error::wrong_subcommand(args, "XGROUP"));
        }
    }
    Ok(options)
}

fn create(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let options = parse_options(args, true)?;
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key)?;
    if found.is_none() && !options.mkstream {
        return Err(NO_KEY.into());
    }
    if args.len() > 8 {
        return Err(Error::wrong_subcommand(args, "XGROUP").into());
    }
    let id = match args.bytes(4) {
        b"$" => found.and_then(|found| slot.stream(found)).map_or(StreamId::MIN, Stream::last_id),
        id => parse_id(id, 0)?,
    };
    let create =
        CreateGroup { group: args.bytes(3), last_id: id, entries_read: options.entries_read };
    if slot.apply(&key, found, create, event("xgroup-create")) == Created::Nothing {
        return Err(Error::new("BUSYGROUP Consumer Group name already exists").into());
    }
    out.w().ok();
    Ok(())
}

/// The stream of a subcommand that needs the key, and mostly the group.
fn existing(
    cx: &Context<'_>,
    slot: &mut SlotGuard<'_>,
    key: &Key<'_>,
    group: Option<&[u8]>,
) -> Result<Found, Error> {
    let found = find(cx, slot, key)?.ok_or(NO_KEY)?;
    let stream = slot.stream(found);
    match group {
        Some(group) if stream.and_then(|stream| stream.group(group)).is_none() => {
            Err(no_group_in(key.bytes, group))
        }
        _ => Ok(found),
    }
}

fn set_id(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let options = parse_options(args, false)?;
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    let found = existing(cx, &mut slot, &key, Some(args.bytes(3)))?;
    if args.len() > 7 {
        return Err(Error::wrong_subcommand(args, "XGROUP").into());
    }
    let id = match args.bytes(4) {
        b"$" => None,
        b"-" => Some(StreamId::MIN),
        b"+" => Some(StreamId::MAX),
        id => Some(parse_id(id, 0)?),
    };
    let last = || slot.stream(found).map_or(StreamId::MIN, Stream::last_id);
    let set = SetGroup {
        group: args.bytes(3),
        last_id: id.unwrap_or_else(last),
        entries_read: options.entries_read,
    };
    slot.apply(&key, Some(found), set, event("xgroup-setid"));
    out.w().ok();
    Ok(())
}

fn destroy(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    let found = existing(cx, &mut slot, &key, None)?;
    let destroy = DestroyGroup(args.bytes(3));
    let removed = slot.apply(&key, Some(found), destroy, event("xgroup-destroy"));
    out.w().integer(i64::from(removed));
    Ok(())
}

fn create_consumer(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    let found = existing(cx, &mut slot, &key, Some(args.bytes(3)))?;
    let new = make_consumer(&mut slot, &key, found, args.bytes(3), args.bytes(4));
    out.w().integer(i64::from(new));
    Ok(())
}

/// Makes a consumer of a group unless there is one of that name; whether it did.
pub(super) fn make_consumer(
    slot: &mut SlotGuard<'_>,
    key: &Key<'_>,
    found: Found,
    group: &[u8],
    consumer: &[u8],
) -> bool {
    let create = CreateConsumer { group, consumer };
    slot.apply(key, Some(found), create, event("xgroup-createconsumer"))
}

fn delete_consumer(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    let found = existing(cx, &mut slot, &key, Some(args.bytes(3)))?;
    let delete = DeleteConsumer { group: args.bytes(3), consumer: args.bytes(4) };
    let pending = slot.apply(&key, Some(found), delete, event("xgroup-delconsumer"));
    out.w().integer(pending.unwrap_or(0) as i64);
    Ok(())
}

fn help(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let lines = [
        (
            "CREATE <key> <groupname> <id|$> [option]",
            "Make a group that is given what comes after <id>; MKSTREAM makes the stream, ENTRIESREAD <count> says how much was read.",
        ),
        ("CREATECONSUMER <key> <groupname> <consumer>", "Make a consumer."),
        (
            "DELCONSUMER <key> <groupname> <consumer>",
            "Remove a consumer and what is pending for it.",
        ),
        ("DESTROY <key> <groupname>", "Remove a group."),
        (
            "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
            "Set the last ID that a group was given.",
        ),
    ];
    commands::help(out, "XGROUP", &lines);
    Ok(())
}

/// The stream at a key that a command reads first, whatever it does then.
fn find_to_read(
    cx: &Context<'_>,
    slot: &mut SlotGuard<'_>,
    key: &Key<'_>,
) -> Result<Option<Found>, Error> {
    let found = cx.find_to_read(slot, key);
    match found {
        Some(found) if slot.type_of(found) != Type::Stream => Err(Error::WRONG_TYPE),
        found => Ok(found),
    }
}

fn has_group(slot: &SlotGuard<'_>, found: Found, group: &[u8]) -> bool {
    slot.stream(found).and_then(|stream| stream.group(group)).is_some()
}

fn xack(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find_to_read(cx, &mut slot, &key)?;
    let Some(found) = found.filter(|&found| has_group(&slot, found, args.bytes(2))) else {
        out.w().integer(0);
        return Ok(());
    };
    // All or nothing: no ID is acknowledged before all have been read.
    let ids: Vec<StreamId> =
        args.iter_from(3).map(|id| parse_id(id, 0)).collect::<Result<_, _>>()?;
    let acknowledge = Acknowledge { group: args.bytes(2), ids };
    let acknowledged = slot.apply(&key, Some(found), acknowledge, Event::NONE);
    out.w().integer(acknowledged as i64);
    Ok(())
}

/// Which pending entries `XPENDING` shows.
struct Window<'a> {
    idle_ms_min: i64,
    start: StreamId,
    end: StreamId,
    count: u64,
    consumer: Option<&'a [u8]>,
}

fn start_of(bound: Bound) -> Result<StreamId, Error> {
    if bound.open { bound.id.next() } else { Some(bound.id) }
        .ok_or(Error::new("ERR invalid start ID for the interval"))
}

fn parse_window(args: Args<'_>) -> Result<Option<Window<'_>>, Error> {
    if args.len() == 3 {
        return Ok(None);
    }
    if !(6..=9).contains(&args.len()) {
        return Err(Error::SYNTAX);
    }
    let (mut at, mut idle_ms_min) = (3, 0);
    if args.is(3, "idle") {
        idle_ms_min = args.int(4)?;
        if args.len() < 8 {
            return Err(Error::SYNTAX);
        }
        at = 5;
    }
    let count = args.int(at + 2)?.max(0) as u64;
    let start = start_of(parse_bound(args.bytes(at), 0)?)?;
    let Bound { id, open } = parse_bound(args.bytes(at + 1), u64::MAX)?;
    let end = if open { id.prev() } else { Some(id) }
        .ok_or(Error::new("ERR invalid end ID for the interval"))?;
    Ok(Some(Window { idle_ms_min, start, end, count, consumer: args.get(at + 3) }))
}

fn xpending(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let window = parse_window(args)?;
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key)?;
    let stream = found.and_then(|found| slot.stream(found));
    let group = stream.and_then(|stream| stream.group(args.bytes(2)));
    let Some(group) = group else { return Err(no_group(key.bytes, args.bytes(2)).into()) };
    match window {
        None => write_summary(group, out),
        Some(window) => write_pending(group, &window, slot.now(), out),
    }
    Ok(())
}

fn write_summary(group: &stream::Group, out: &mut Out) {
    let pending = group.pending();
    let mut w = out.w();
    w.array(4);
    w.integer(pending.len() as i64);
    let (Some(first), Some(last)) = (pending.first(), pending.last()) else {
        w.null();
        w.null();
        w.null_array();
        return;
    };
    w.bulk_display(first);
    w.bulk_display(last);
    let consumers = group.consumers().map(|(_, consumer)| consumer);
    let busy: Vec<_> = consumers.filter(|consumer| consumer.pending() > 0).collect();
    w.array(busy.len());
    for consumer in busy {
        w.array(2);
        w.bulk(consumer.name());
        w.bulk_display(consumer.pending());
    }
}

/// How long ago an entry was delivered; below 0 if the clock went back. A payload may have
/// any time, and what is out of range wraps around, as in Redis.
fn idle_ms(entry: &PendingEntry, now: u64) -> i64 {
    (now as i64).wrapping_sub(entry.delivered as i64)
}

fn write_pending(group: &stream::Group, window: &Window<'_>, now: u64, out: &mut Out) {
    let consumer = match window.consumer.map(|name| group.find_consumer(name)) {
        None => None,
        Some(Some(consumer)) => Some(consumer),
        Some(None) => {
            out.w().array(0);
            return;
        }
    };
    let delivered_max = match window.idle_ms_min {
        0 => u64::MAX,
        idle_ms_min => match u64::try_from((now as i64).saturating_sub(idle_ms_min)) {
            Ok(delivered_max) => delivered_max,
            Err(_) => {
                out.w().array(0);
                return;
            }
        },
    };
    let ids = (window.start, window.end);
    let array = out.w().array_deferred();
    let mut written = 0;
    let count = usize::try_from(window.count).unwrap_or(usize::MAX);
    for entry in group.pending_between(ids, consumer, delivered_max).take(count) {
        written += 1;
        let mut w = out.w();
        w.array(4);
        w.bulk_display(entry.id);
        w.bulk(owner_name(group, &entry));
        w.integer(idle_ms(&entry, now).max(0));
        w.integer(entry.count as i64);
    }
    out.w().set_array_len(array, written as usize);
}

fn owner_name<'g>(group: &'g stream::Group, entry: &PendingEntry) -> &'g [u8] {
    group.consumer(entry.owner()).map_or(&[], |consumer| consumer.name())
}

/// How a claimed entry is to be from then on.
struct Claim {
    idle_ms_min: i64,
    delivered: u64,
    /// How often it counts as delivered; once more if not given.
    count: Option<u64>,
    /// Claims also what is pending for nobody.
    force: bool,
    just_id: bool,
}

impl Claim {
    /// Whether an entry has not been idle for long enough.
    fn spares(&self, entry: &PendingEntry, now: u64) -> bool {
        self.idle_ms_min > 0 && idle_ms(entry, now) < self.idle_ms_min
    }

    /// How often an entry counts as delivered once it is claimed.
    fn count_of(&self, counted: u64) -> u64 {
        self.count.unwrap_or(counted.saturating_add(u64::from(!self.just_id)))
    }

    /// Writes an entry that is claimed.
    fn write(&self, id: StreamId, fields: Fields<'_>, out: &mut Out) {
        if self.just_id {
            out.w().bulk_display(id);
        } else {
            write_entry(out, id, fields);
        }
    }
}

/// Entries that are given to a consumer, each with how often it was delivered.
pub(super) type Given = Vec<(StreamId, u64)>;

/// The group of a stream that a command changes, and for whom.
pub(super) struct Member<'s, 'g, 'a> {
    pub slot: &'s mut SlotGuard<'g>,
    pub key: &'s Key<'a>,
    pub found: Found,
    pub group: &'a [u8],
    pub consumer: &'a [u8],
}

impl Member<'_, '_, '_> {
    /// The stream and the group.
    pub(super) fn look(&self) -> Result<(&Stream, &stream::Group), Error> {
        let stream = self.slot.stream(self.found);
        let both = stream.and_then(|stream| Some((stream, stream.group(self.group)?)));
        both.ok_or_else(|| no_group(self.key.bytes, self.group))
    }

    /// Makes the consumer if there is none, and notes that it was seen.
    pub(super) fn enter(&mut self) {
        make_consumer(self.slot, self.key, self.found, self.group, self.consumer);
        self.slot.saw_consumer(self.found, self.group, self.consumer, false);
    }

    /// Makes entries pending for the consumer, delivered at a time.
    pub(super) fn give(&mut self, given: &Given, delivered: u64) {
        for run in given.chunk_by(|a, b| a.1 == b.1) {
            let ids: Vec<StreamId> = run.iter().map(|(id, _)| *id).collect();
            let Self { group, consumer, .. } = *self;
            let assign = Assign { group, consumer, ids: &ids, delivered, count: run[0].1 };
            self.slot.apply(self.key, Some(self.found), assign, Event::NONE);
        }
    }

    /// Has entries pend no longer.
    fn forget(&mut self, ids: Vec<StreamId>) {
        let acknowledge = Acknowledge { group: self.group, ids };
        self.slot.apply(self.key, Some(self.found), acknowledge, Event::NONE);
    }

    /// Sets how far the group has been delivered, if that is another place than it is
    /// at.
    pub(super) fn advance(&mut self, to: Position) -> Result<(), Error> {
        if to != self.look()?.1.position() {
            let Position { last_id, entries_read } = to;
            let set = SetGroup { group: self.group, last_id, entries_read };
            self.slot.apply(self.key, Some(self.found), set, Event::NONE);
        }
        Ok(())
    }
}

/// A least idle time, below 0 as good as 0.
fn parse_idle(text: &[u8], command: &str) -> Result<i64, Error> {
    let error = || Error::from(format!("ERR Invalid min-idle-time argument for {command}"));
    Ok(parse_integer(text).ok_or_else(error)?.max(0))
}

/// What `XCLAIM` asks for: how, which, and the last ID of the group if it is to
/// be raised.
fn parse_claim(
    args: Args<'_>,
    now: u64,
    origin: Origin<'_>,
) -> Result<(Claim, Vec<StreamId>, StreamId), Error> {
    let idle_ms_min = parse_idle(args.bytes(4), "XCLAIM")?;
    let mut claim =
        Claim { idle_ms_min, delivered: now, count: None, force: false, just_id: false };
    // Options begin where IDs end.
    let ids: Vec<StreamId> = args.iter_from(5).map_while(|id| StreamId::parse(id, 0)).collect();
    let mut last_id = StreamId::MIN;
    let mut at = 5 + ids.len();
    let number = |at, option| {
        let error = || Error::from(format!("ERR Invalid {option} option argument for XCLAIM"));
        parse_integer(args.bytes(at)).ok_or_else(error)
    };
    // A time that has not come yet, or none, is as good as now. A commit's has come where
    // it took effect, whatever this clock says.
    let latest = if origin.minds_time() { now } else { u64::MAX };
    let sane = |time: i64| u64::try_from(time).ok().filter(|&time| time <= latest).unwrap_or(now);
    while at < args.len() {
        let more = at + 1 < args.len();
        let mut taken = 2;
        if args.is(at, "force") {
            claim.force = true;
            taken = 1;
        } else if args.is(at, "justid") {
            claim.just_id = true;
            taken = 1;
        } else if more && args.is(at, "idle") {
            claim.delivered = sane((now as i64).wrapping_sub(number(at + 1, "IDLE")?));
        } else if more && args.is(at, "time") {
            claim.delivered = sane(number(at + 1, "TIME")?);
        } else if more && args.is(at, "retrycount") {
            claim.count = u64::try_from(number(at + 1, "RETRYCOUNT")?).ok();
        } else if more && args.is(at, "lastid") {
            last_id = parse_id(args.bytes(at + 1), 0)?;
        } else {
            let option = quoted(args.bytes(at), usize::MAX);
            return Err(Error::from([b"ERR Unrecognized XCLAIM option '", option, b"'"].concat()));
        }
        at += taken;
    }
    Ok((claim, ids, last_id))
}

fn xclaim(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find_to_read(cx, &mut slot, &key)?;
    let Some(found) = found.filter(|&found| has_group(&slot, found, args.bytes(2))) else {
        return Err(no_group(key.bytes, args.bytes(2)).into());
    };
    let now = slot.now();
    let (claim, ids, last_id) = parse_claim(args, now, cx.origin)?;
    let (group, consumer) = (args.bytes(2), args.bytes(3));
    let mut member = Member { slot: &mut slot, key: &key, found, group, consumer };
    let mut position = member.look()?.1.position();
    position.last_id = position.last_id.max(last_id);
    member.advance(position)?;
    member.enter();
    let array = out.w().array_deferred();
    let claimed = claim_all(&mut member, &claim, &ids, now, out)?;
    out.w().set_array_len(array, claimed);
    Ok(())
}

/// Claims these entries if they may be, and writes them; how many were.
fn claim_all(
    member: &mut Member<'_, '_, '_>,
    claim: &Claim,
    ids: &[StreamId],
    now: u64,
    out: &mut Out,
) -> Result<usize, Error> {
    let mut claimed = 0;
    // An ID that is named twice is looked at again when the first is claimed.
    for ids in ids.chunk_by(|before, id| before < id) {
        let (mut given, mut gone) = (Given::new(), Vec::new());
        let (stream, group) = member.look()?;
        let claim_one = |id, fields: Option<Fields<'_>>| {
            let Some(fields) = fields else {
                // What was deleted from the stream is pending no longer.
                gone.push(id);
                return;
            };
            let counted = match group.pending().get(id) {
                Some(entry) if claim.spares(&entry, now) => return,
                Some(entry) => entry.count,
                None if claim.force => 1,
                None => return,
            };
            claim.write(id, fields, out);
            given.push((id, claim.count_of(counted)));
        };
        let visited = with_scratch(|scratch| stream.visit_each(ids, scratch, claim_one));
        claimed += given.len();
        member.forget(gone);
        member.give(&given, claim.delivered);
        visited?;
    }
    Ok(claimed)
}

/// Pending entries that are looked up in the stream together, at most.
pub(super) const LOOKUPS: u64 = 1024;

/// Shows `visit` pending entries, in their order, with what the stream has of each.
pub(super) fn visit_pending(
    stream: &Stream,
    entries: &[PendingEntry],
    mut visit: impl FnMut(&PendingEntry, Option<Fields<'_>>),
) -> Result<(), Error> {
    let ids: Vec<StreamId> = entries.iter().map(|entry| entry.id).collect();
    let mut entries = entries.iter();
    with_scratch(|scratch| {
        stream.visit_each(&ids, scratch, |_, fields| {
            if let Some(entry) = entries.next() {
                visit(entry, fields);
            }
        })
    })?;
    Ok(())
}

/// Entries that `XAUTOCLAIM` claims unless told.
const AUTOCLAIM_COUNT: u64 = 100;
/// Entries that it looks at for each that it may claim.
const AUTOCLAIM_ATTEMPTS: u64 = 10;

fn xautoclaim(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let idle_ms_min = parse_idle(args.bytes(4), "XAUTOCLAIM")?;
    let start = start_of(parse_bound(args.bytes(5), 0)?)?;
    let mut count = AUTOCLAIM_COUNT;
    let mut just_id = false;
    let mut at = 6;
    while at < args.len() {
        if at + 1 < args.len() && args.is(at, "count") {
            let number = parse_integer(args.bytes(at + 1)).and_then(|n| u64::try_from(n).ok());
            count = number
                .filter(|n| (1..=i64::MAX as u64 / 16).contains(n))
                .ok_or(Error::new("ERR COUNT must be > 0"))?;
            at += 2;
        } else if args.is(at, "justid") {
            just_id = true;
            at += 1;
        } else {
            return Err(Error::SYNTAX.into());
        }
    }
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find_to_read(cx, &mut slot, &key)?;
    let Some(found) = found.filter(|&found| has_group(&slot, found, args.bytes(2))) else {
        return Err(no_group(key.bytes, args.bytes(2)).into());
    };
    let now = slot.now();
    let claim = Claim { idle_ms_min, delivered: now, count: None, force: false, just_id };
    let (group, consumer) = (args.bytes(2), args.bytes(3));
    let mut member = Member { slot: &mut slot, key: &key, found, group, consumer };
    member.enter();
    Ok(claim_idle(&mut member, &claim, (start, count), now, out)?)
}

/// Claims what is idle from an ID on, up to `count` entries, and writes the
/// whole reply: where to go on, the entries, the IDs that exist no longer.
fn claim_idle(
    member: &mut Member<'_, '_, '_>,
    claim: &Claim,
    (start, mut count): (StreamId, u64),
    now: u64,
    out: &mut Out,
) -> Result<(), Error> {
    let mark = out.mark();
    let array = out.w().array_deferred();
    let mut claimed = 0;
    let mut deleted = Vec::new();
    let mut attempts = count.saturating_mul(AUTOCLAIM_ATTEMPTS);
    let mut from = Some(start);
    while let batch = count.min(attempts).min(LOOKUPS)
        && batch > 0
    {
        let (stream, group) = member.look()?;
        let mut entries = Vec::new();
        while (entries.len() as u64) < batch
            && let Some(entry) = from.and_then(|from| group.pending().next_from(from))
        {
            from = entry.id.next();
            entries.push(entry);
        }
        if entries.is_empty() {
            break;
        }
        attempts -= entries.len() as u64;
        let (mut given, mut gone) = (Given::new(), Vec::new());
        let visited = visit_pending(stream, &entries, |entry, fields| match fields {
            None => gone.push(entry.id),
            Some(_) if claim.spares(entry, now) => {}
            Some(fields) => {
                claim.write(entry.id, fields, out);
                given.push((entry.id, claim.count_of(entry.count)));
            }
        });
        claimed += given.len();
        count -= (given.len() + gone.len()) as u64;
        deleted.extend_from_slice(&gone);
        member.forget(gone);
        member.give(&given, claim.delivered);
        visited?;
    }
    out.w().set_array_len(array, claimed);
    let (_, group) = member.look()?;
    let next = from.and_then(|from| group.pending().next_from(from));
    let mut head = Vec::new();
    let mut writer = Writer::new(&mut head, out.protocol);
    writer.array(3);
    writer.bulk_display(next.map_or(StreamId::MIN, |entry| entry.id));
    out.insert(mark, &head);
    let mut w = out.w();
    w.array(deleted.len());
    deleted.iter().for_each(|id| w.bulk_display(id));
    Ok(())
}

fn write_position(group: &stream::Group, course: &Course, out: &mut Out) {
    let mut w = out.w();
    w.bulk(b"last-delivered-id");
    w.bulk_display(group.last_id());
    w.bulk(b"entries-read");
    match group.entries_read() {
        Some(read) => w.integer(read as i64),
        None => w.null(),
    }
    w.bulk(b"lag");
    match group.lag(course) {
        Some(lag) => w.integer(lag),
        None => w.null(),
    }
}

pub(super) fn xinfo_groups(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key)?.ok_or(Error::NO_SUCH_KEY)?;
    let Some(stream) = slot.stream(found) else { return Err(Error::WRONG_TYPE.into()) };
    let course = with_scratch(|scratch| stream.course(scratch))?;
    out.w().array(stream.groups().map_or(0, stream::Groups::len));
    for group in stream.groups().into_iter().flatten() {
        let mut w = out.w();
        w.map(6);
        w.bulk(b"name");
        w.bulk(group.name());
        w.bulk(b"consumers");
        w.integer(group.consumers().len() as i64);
        w.bulk(b"pending");
        w.integer(group.pending().len() as i64);
        write_position(group, &course, out);
    }
    Ok(())
}

pub(super) fn xinfo_consumers(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key)?.ok_or(Error::NO_SUCH_KEY)?;
    let group = slot.stream(found).and_then(|stream| stream.group(args.bytes(3)));
    let Some(group) = group else { return Err(no_group_in(key.bytes, args.bytes(3)).into()) };
    let since = |time: u64| (slot.now() as i64).wrapping_sub(time as i64);
    let mut w = out.w();
    w.array(group.consumers().len());
    for (_, consumer) in group.consumers() {
        w.map(4);
        w.bulk(b"name");
        w.bulk(consumer.name());
        w.bulk(b"pending");
        w.integer(consumer.pending() as i64);
        w.bulk(b"idle");
        w.integer(since(consumer.seen()).max(0));
        w.bulk(b"inactive");
        w.integer(consumer.active().map_or(-1, since));
    }
    Ok(())
}

/// Writes the groups of a stream as `XINFO STREAM FULL` shows them, up to
/// `count` pending entries each (0 for all).
pub(super) fn write_groups(stream: &Stream, count: u64, out: &mut Out) -> Result<(), Error> {
    let course = with_scratch(|scratch| stream.course(scratch))?;
    out.w().array(stream.groups().map_or(0, stream::Groups::len));
    for group in stream.groups().into_iter().flatten() {
        let mut w = out.w();
        w.map(7);
        w.bulk(b"name");
        w.bulk(group.name());
        write_position(group, &course, out);
        let mut w = out.w();
        w.bulk(b"pel-count");
        w.integer(group.pending().len() as i64);
        w.bulk(b"pending");
        write_list(group, None, count, out);
        out.w().bulk(b"consumers");
        out.w().array(group.consumers().len());
        for (id, consumer) in group.consumers() {
            let mut w = out.w();
            w.map(5);
            w.bulk(b"name");
            w.bulk(consumer.name());
            w.bulk(b"seen-time");
            w.integer(consumer.seen() as i64);
            w.bulk(b"active-time");
            w.integer(consumer.active().map_or(-1, |time| time as i64));
            w.bulk(b"pel-count");
            w.integer(consumer.pending() as i64);
            w.bulk(b"pending");
            write_list(group, Some(id), count, out);
        }
    }
    Ok(())
}

/// Writes what is pending in a group, with the owners' names, or for one of
/// its consumers, without.
fn write_list(group: &stream::Group, of: Option<ConsumerId>, count: u64, out: &mut Out) {
    let count = if count == 0 { usize::MAX } else { usize::try_from(count).unwrap_or(usize::MAX) };
    let array = out.w().array_deferred();
    let mut written = 0;
    let all = (StreamId::MIN, StreamId::MAX);
    for entry in group.pending_between(all, of, u64::MAX).take(count) {
        let mut w = out.w();
        w.array(if of.is_some() { 3 } else { 4 });
        w.bulk_display(entry.id);
        if of.is_none() {
            w.bulk(owner_name(group, &entry));
        }
        w.integer(entry.delivered as i64);
        w.integer(entry.count as i64);
        written += 1;
    }
    out.w().set_array_len(array, written as usize);
}
