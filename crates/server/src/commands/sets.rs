//! Set commands.
//!
//! Those of several sets hold all their slots and lock one at a time: members of one set
//! are taken out page by page and looked up in the others.

use crate::commands::hashes::{Drawn, scanned};
use crate::commands::keys::{ScanOptions, Scanned, cursor};
use crate::commands::strings::read;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::keys::KeySpec;
use crate::engine::keys::uses::*;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use crate::work::reclaim::reclaim;
use snug_resp::parse_integer;
use snug_store::{
    AddMembers, Delete, Elements, Found, Gathered, Key, MemberSet, PutSet, RemoveElements,
    RemoveMembers, SetLimits, SlotGuard, Type,
};
use snug_store::{Class, Event};
use std::ops::ControlFlow;

const fn set(
    command: Command,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    command.about(Group::Set, since, complexity, summary)
}

const CONSTANT: &str = "O(1)";
const PER_MEMBER: &str = "O(N) where N is the number of members that are named.";
const WHOLE: &str = "O(N) where N is the number of members of all sets.";
const COMMON: &str =
    "O(N*M) at worst, where N is the size of the smallest set and M the number of sets.";
const DRAWN: &str = "O(N) where N is the number of members returned.";

pub(crate) const COMMANDS: &[Command] = &[
    set(
        Command::new("sadd", -3, sadd).flags(WRITE | DENYOOM | FAST).key(1).used(RW_INSERT),
        "1.0.0",
        PER_MEMBER,
        "Adds members to a set.",
    ),
    set(
        Command::new("srem", -3, srem).flags(WRITE | FAST).key(1).used(RW_DELETE),
        "1.0.0",
        PER_MEMBER,
        "Removes members of a set, and the set with its last one.",
    ),
    set(
        Command::new("sismember", 3, sismember).flags(READONLY | FAST).key(1).used(RO),
        "1.0.0",
        CONSTANT,
        "Tells whether a string is a member of a set.",
    ),
    set(
        Command::new("smismember", -3, smismember).flags(READONLY | FAST).key(1),
        "6.2.0",
        PER_MEMBER,
        "Tells which of several strings are members of a set.",
    ),
    set(
        Command::new("scard", 2, scard).flags(READONLY | FAST).key(1).used(RO),
        "1.0.0",
        CONSTANT,
        "Returns how many members a set has.",
    ),
    set(
        Command::new("smembers", 2, smembers).flags(READONLY).key(1),
        "1.0.0",
        WHOLE,
        "Returns all members of a set.",
    ),
    set(
        Command::new("spop", -2, spop).flags(WRITE | FAST).key(1).used(RW_ACCESS_DELETE),
        "1.0.0",
        DRAWN,
        "Returns and removes members of a set drawn at random.",
    ),
    set(
        Command::new("srandmember", -2, srandmember).flags(READONLY).key(1),
        "1.0.0",
        DRAWN,
        "Returns members of a set drawn at random.",
    ),
    set(
        Command::new("smove", 4, smove)
            .flags(WRITE | FAST)
            .keys(1, 2, 1)
            .specs(&[KeySpec::at(RW_ACCESS_DELETE, 1), KeySpec::at(RW_INSERT, 2)]),
        "1.0.0",
        CONSTANT,
        "Moves a member from one set to another.",
    ),
    set(
        Command::new("sinter", -2, sinter).flags(READONLY).keys(1, -1, 1),
        "1.0.0",
        COMMON,
        "Returns the members that several sets have in common.",
    ),
    set(
        Command::new("sintercard", -3, sintercard)
            .flags(READONLY)
            .movable(numbered_keys)
            .specs(&[KeySpec::counted(RO_ACCESS, 1)]),
        "7.0.0",
        COMMON,
        "Returns how many members several sets have in common.",
    ),
    set(
        Command::new("sinterstore", -3, sinterstore)
            .flags(WRITE | DENYOOM)
            .keys(1, -1, 1)
            .specs(&[KeySpec::at(RW_UPDATE, 1), KeySpec::up_to(RO_ACCESS, 2, -1)]),
        "1.0.0",
        COMMON,
        "Stores the members that several sets have in common.",
    ),
    set(
        Command::new("sunion", -2, sunion).flags(READONLY).keys(1, -1, 1),
        "1.0.0",
        WHOLE,
        "Returns the members of several sets, each once.",
    ),
    set(
        Command::new("sunionstore", -3, sunionstore)
            .flags(WRITE | DENYOOM)
            .keys(1, -1, 1)
            .specs(&[KeySpec::at(OW_UPDATE, 1), KeySpec::up_to(RO_ACCESS, 2, -1)]),
        "1.0.0",
        WHOLE,
        "Stores the members of several sets, each once.",
    ),
    set(
        Command::new("sdiff", -2, sdiff).flags(READONLY).keys(1, -1, 1),
        "1.0.0",
        WHOLE,
        "Returns the members of a set that are in none of several others.",
    ),
    set(
        Command::new("sdiffstore", -3, sdiffstore)
            .flags(WRITE | DENYOOM)
            .keys(1, -1, 1)
            .specs(&[KeySpec::at(OW_UPDATE, 1), KeySpec::up_to(RO_ACCESS, 2, -1)]),
        "1.0.0",
        WHOLE,
        "Stores the members of a set that are in none of several others.",
    ),
    set(
        Command::new("sscan", -3, sscan).flags(READONLY).key(1),
        "2.8.0",
        "O(1) for every call, O(N) for a whole walk, where N is the number of members.",
        "Walks over the members of a set.",
    ),
];

/// Up to what size Redis would hold a set as an intset.
fn limits(cx: &Context<'_>) -> SetLimits {
    cx.server.config.set_limits()
}

const fn event(name: &'static str) -> Event {
    Event::new(Class::SET, name)
}

/// Gives the set at a key to `reader`, or none if there is no such key.
#[inline]
fn with_set<R>(
    cx: &Context<'_>,
    name: &[u8],
    reader: impl FnOnce(Option<MemberSet<'_>>) -> Result<R, Error>,
) -> Result<R, Error> {
    let key = cx.key(name);
    let mut slot = cx.lock(&key);
    let Some(found) = read(cx, &mut slot, &key) else { return reader(None) };
    if slot.type_of(found) != Type::Set {
        return Err(Error::WRONG_TYPE);
    }
    slot.unpack_hot(found);
    let mut room = Vec::new();
    reader(slot.set(found, &mut room)?)
}

fn find(cx: &Context<'_>, slot: &mut SlotGuard<'_>, key: &Key<'_>) -> Result<Option<Found>, Error> {
    cx.find_typed(slot, key, Type::Set)
}

fn sadd(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key)?;
    let members = (2..args.len()).map(|at| args.value(at));
    let op = AddMembers { members, limits: limits(cx) };
    let added = slot.apply(&key, found, op, event("sadd"))?.outcome;
    out.w().integer(added as i64);
    Ok(())
}

fn srem(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let mut removed = 0;
    if let Some(found) = find(cx, &mut slot, &key)? {
        let members = (2..args.len()).map(|at| args.value(at));
        let edited = slot.apply(&key, Some(found), RemoveMembers { members }, event("srem"))?;
        removed = edited.outcome;
        if edited.is_gone {
            cx.notify(Event::DEL, key.bytes);
        }
    }
    out.w().integer(removed as i64);
    Ok(())
}

fn sismember(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let is_there = with_set(cx, args.bytes(1), |set| match set {
        Some(set) => Ok(set.contains(&args.value(2))?),
        None => Ok(false),
    })?;
    out.w().integer(i64::from(is_there));
    Ok(())
}

fn smismember(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    Ok(with_set(cx, args.bytes(1), |set| {
        out.w().array(args.len() - 2);
        for at in 2..args.len() {
            let is_there = match &set {
                Some(set) => set.contains(&args.value(at))?,
                None => false,
            };
            out.w().integer(i64::from(is_there));
        }
        Ok(())
    })?)
}

fn scard(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key)?;
    let mut room = Vec::new();
    let len = match found {
        Some(found) => slot.set(found, &mut room)?.map_or(0, |set| set.len()),
        None => 0,
    };
    out.w().integer(len as i64);
    Ok(())
}

fn smembers(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    Ok(with_set(cx, args.bytes(1), |set| {
        cx.goes_through(set.as_ref().map_or(0, MemberSet::len))?;
        whole(set.as_ref(), out)
    })?)
}

/// Writes all members of a set.
fn whole(set: Option<&MemberSet<'_>>, out: &mut Out) -> Result<(), Error> {
    out.w().set(set.map_or(0, MemberSet::len));
    if let Some(set) = set {
        set.visit(|member| {
            out.item(&member);
            ControlFlow::Continue(())
        })?;
    }
    Ok(())
}

/// The event of members that were drawn and removed.
const SPOP: Event = event("spop");

fn spop(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if args.len() > 3 {
        return Err(Error::SYNTAX.into());
    }
    let count = args.get(2).map(|count| parse_integer(count).and_then(|n| usize::try_from(n).ok()));
    if count == Some(None) {
        return Err(Error::new("ERR value is out of range, must be positive").into());
    }
    let count = count.flatten();
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let Some(found) = find(cx, &mut slot, &key)? else {
        match count {
            Some(_) => out.w().set(0),
            None => out.w().null(),
        }
        return Ok(());
    };
    let mut room = Vec::new();
    let Some(set) = slot.set(found, &mut room)? else { return Err(Error::WRONG_TYPE.into()) };
    cx.goes_through(count.unwrap_or(1).min(set.len()))?;
    if count.is_some_and(|count| count >= set.len()) {
        whole(Some(&set), out)?;
        let value = slot.apply(&key, Some(found), Delete, SPOP);
        cx.notify(Event::DEL, key.bytes);
        drop(slot);
        value.into_iter().for_each(reclaim);
        return Ok(());
    }
    let drawn = set.take_drawn(count.unwrap_or(1))?;
    if count.is_some() {
        out.w().set(drawn.len());
    }
    drawn.each().for_each(|member| out.item(&member));
    if !drawn.is_empty() {
        let op = RemoveElements { elements: &drawn };
        if slot.apply(&key, Some(found), op, SPOP)?.is_gone {
            cx.notify(Event::DEL, key.bytes);
        }
    }
    Ok(())
}

fn srandmember(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if args.len() > 3 {
        return Err(Error::SYNTAX.into());
    }
    if args.len() == 2 {
        return Ok(with_set(cx, args.bytes(1), |set| {
            match set {
                Some(set) => set.draw(1, |member| out.item(&member))?,
                None => out.w().null(),
            }
            Ok(())
        })?);
    }
    let drawn = Drawn::parse(args, 2)?;
    Ok(with_set(cx, args.bytes(1), |set| {
        let Some(set) = set else {
            out.w().array(0);
            return Ok(());
        };
        drawn.check()?;
        match drawn {
            Drawn::Distinct(count) => {
                cx.goes_through(count.min(set.len()))?;
                out.w().array(count.min(set.len()));
                set.draw(count, |member| out.item(&member))?;
            }
            Drawn::Any(count) => {
                cx.goes_through(count)?;
                out.w().array(count);
                set.draw_any(count, |member| {
                    out.item(&member);
                    match Drawn::check_reply(out) {
                        Ok(()) => ControlFlow::Continue(()),
                        Err(_) => ControlFlow::Break(()),
                    }
                })?;
                Drawn::check_reply(out)?;
            }
        }
        Ok(())
    })?)
}

fn smove(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let (from, to) = (cx.key(args.bytes(1)), cx.key(args.bytes(2)));
    let _held = cx.hold([from, to]);
    let mut slot = cx.lock(&from);
    let Some(found) = cx.find(&mut slot, &from) else {
        out.w().integer(0);
        return Ok(());
    };
    if slot.type_of(found) != Type::Set {
        return Err(Error::WRONG_TYPE.into());
    }
    drop(slot);
    find(cx, &mut cx.lock(&to), &to)?;
    let member = || std::iter::once(args.value(3));
    let mut slot = cx.lock(&from);
    let found = slot.find_untouched(&from);
    if from.bytes == to.bytes {
        let mut room = Vec::new();
        let is_there = match found {
            Some(found) => match slot.set(found, &mut room)? {
                Some(set) => set.contains(&args.value(3))?,
                None => false,
            },
            None => false,
        };
        out.w().integer(i64::from(is_there));
        return Ok(());
    }
    let removed = slot.apply(&from, found, RemoveMembers { members: member() }, event("srem"))?;
    if removed.is_gone {
        cx.notify(Event::DEL, from.bytes);
    }
    drop(slot);
    if removed.outcome > 0 {
        let mut slot = cx.lock(&to);
        let found = slot.find_untouched(&to);
        let op = AddMembers { members: member(), limits: limits(cx) };
        slot.apply(&to, found, op, event("sadd"))?;
    }
    out.w().integer(removed.outcome as i64);
    Ok(())
}

/// A set of several, by its key, and how many members it has; none where there is no such
/// key.
type Source<'k> = (Key<'k>, Option<usize>);

/// Looks several sets up. Their slots are held.
fn sources<'k>(
    cx: &Context<'_>,
    names: impl Iterator<Item = &'k [u8]>,
) -> Result<Vec<Source<'k>>, Error> {
    let of = |name| {
        let key = cx.key(name);
        let mut slot = cx.lock(&key);
        let Some(found) = read(cx, &mut slot, &key) else { return Ok((key, None)) };
        let mut room = Vec::new();
        let set = slot.set(found, &mut room)?.ok_or(Error::WRONG_TYPE)?;
        Ok((key, Some(set.len())))
    };
    names.map(of).collect()
}

/// Gives one of several sets, which is there, to `work`.
fn at<R>(
    cx: &Context<'_>,
    key: &Key<'_>,
    work: impl FnOnce(&MemberSet<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    let mut slot = cx.lock(key);
    let found = slot.find_untouched(key).ok_or(Error::NO_SUCH_KEY)?;
    let mut room = Vec::new();
    work(&slot.set(found, &mut room)?.ok_or(Error::WRONG_TYPE)?)
}

/// Gives the members of one of several sets to `each`, some at a time, until that breaks.
fn by_pages(
    cx: &Context<'_>,
    key: &Key<'_>,
    mut each: impl FnMut(&mut Elements) -> Result<ControlFlow<()>, Error>,
) -> Result<(), Error> {
    let (mut some, mut next) = (Elements::default(), Some(0));
    while let Some(rank) = next {
        some.clear();
        next = at(cx, key, |set| Ok(set.some(rank, &mut some)?))?;
        if each(&mut some)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// Members that are the outcome of an operation on several sets.
enum Outcome {
    Elements(Elements),
    Gathered(Gathered),
}

impl Outcome {
    fn write(&self, out: &mut Out) {
        match self {
            Self::Elements(elements) => {
                out.w().set(elements.len());
                elements.each().for_each(|member| out.item(&member));
            }
            Self::Gathered(set) => {
                out.w().set(set.len());
                set.visit(|member| out.item(&member));
            }
        }
    }
}

/// What some sets have in common, `limit` members at most: those of the smallest are looked
/// up in the others.
fn common(cx: &Context<'_>, mut sets: Vec<Source<'_>>, limit: usize) -> Result<Elements, Error> {
    let mut outcome = Elements::default();
    if sets.iter().any(|(_, len)| len.is_none()) {
        return Ok(outcome);
    }
    sets.sort_by_key(|(_, len)| *len);
    let Some(((smallest, _), others)) = sets.split_first() else { return Ok(outcome) };
    by_pages(cx, smallest, |some| {
        for (other, _) in others {
            if !some.is_empty() {
                at(cx, other, |set| Ok(set.keep(some, true)?))?;
            }
        }
        outcome.append(some, limit - outcome.len());
        let is_enough = outcome.len() == limit;
        Ok(if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(outcome)
}

/// What is in any of some sets.
fn all(cx: &Context<'_>, sets: &[Source<'_>]) -> Result<Gathered, Error> {
    let mut gathered = Gathered::new(limits(cx));
    for (key, _) in sets.iter().filter(|(_, len)| len.is_some()) {
        by_pages(cx, key, |some| {
            gathered.add(some);
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(gathered)
}

/// What is in the first of some sets and in no other. As Redis reckons it, either each
/// member of the first is looked up in the others, or each of theirs is removed from it.
fn difference(cx: &Context<'_>, mut sets: Vec<Source<'_>>) -> Result<Outcome, Error> {
    let mut outcome = Elements::default();
    let Some(&(first, Some(len))) = sets.first() else { return Ok(Outcome::Elements(outcome)) };
    let there = sets.iter().filter_map(|(_, len)| *len);
    let (lookups, removals) = (there.clone().count() * len / 2, there.sum::<usize>());
    sets.retain(|(_, len)| len.is_some());
    let others = &mut sets[1..];
    if lookups <= removals {
        others.sort_by_key(|(_, len)| std::cmp::Reverse(*len));
        by_pages(cx, &first, |some| {
            for (other, _) in others.iter() {
                if !some.is_empty() {
                    at(cx, other, |set| Ok(set.keep(some, false)?))?;
                }
            }
            outcome.append(some, some.len());
            Ok(ControlFlow::Continue(()))
        })?;
        return Ok(Outcome::Elements(outcome));
    }
    let mut gathered = all(cx, &[(first, Some(len))])?;
    for (other, _) in others.iter() {
        by_pages(cx, other, |some| {
            gathered.remove(some);
            let is_done = gathered.is_empty();
            Ok(if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
    }
    Ok(Outcome::Gathered(gathered))
}

/// What is done with several sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Common,
    All,
    Difference,
}

impl Operation {
    /// How many members it looks at.
    fn items(self, sets: &[Source<'_>]) -> usize {
        let lens = || sets.iter().map(|(_, len)| len.unwrap_or(0));
        match self {
            Self::Common => lens().min().unwrap_or(0) * sets.len(),
            Self::All | Self::Difference => lens().sum(),
        }
    }

    fn outcome(self, cx: &Context<'_>, sets: Vec<Source<'_>>) -> Result<Outcome, Error> {
        cx.goes_through(self.items(&sets))?;
        Ok(match self {
            Self::Common => Outcome::Elements(common(cx, sets, usize::MAX)?),
            Self::All => Outcome::Gathered(all(cx, &sets)?),
            Self::Difference => difference(cx, sets)?,
        })
    }
}

/// Answers an operation on the sets that the arguments from 1 on name.
fn answer(cx: &Context<'_>, args: Args<'_>, out: &mut Out, operation: Operation) -> Answer {
    let _held = cx.hold(args.iter_from(1).map(|name| cx.key(name)));
    let sets = sources(cx, args.iter_from(1))?;
    operation.outcome(cx, sets)?.write(out);
    Ok(())
}

/// Stores the outcome of an operation on the sets that the arguments from 2 on name.
fn store(
    cx: &Context<'_>,
    args: Args<'_>,
    out: &mut Out,
    operation: Operation,
    name: &'static str,
) -> Answer {
    let _held = cx.hold(args.iter_from(1).map(|name| cx.key(name)));
    let sets = sources(cx, args.iter_from(2))?;
    let gathered = match operation.outcome(cx, sets)? {
        Outcome::Gathered(gathered) => gathered,
        Outcome::Elements(elements) => {
            let mut gathered = Gathered::new(limits(cx));
            gathered.add(&elements);
            gathered
        }
    };
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let (len, before) = (gathered.len(), slot.find_untouched(&key));
    let gone = if len == 0 { Event::DEL } else { Event::NONE };
    let value = before.and_then(|before| slot.apply(&key, Some(before), Delete, gone));
    if len > 0 {
        slot.apply(&key, None, PutSet(gathered), event(name))?;
    }
    drop(slot);
    value.into_iter().for_each(reclaim);
    out.w().integer(len as i64);
    Ok(())
}

fn sinter(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    answer(cx, args, out, Operation::Common)
}

fn sunion(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    answer(cx, args, out, Operation::All)
}

fn sdiff(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    answer(cx, args, out, Operation::Difference)
}

fn sinterstore(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    store(cx, args, out, Operation::Common, "sinterstore")
}

fn sunionstore(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    store(cx, args, out, Operation::All, "sunionstore")
}

fn sdiffstore(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    store(cx, args, out, Operation::Difference, "sdiffstore")
}

/// How many keys argument 1 says that there are, behind it.
fn key_count(args: Args<'_>) -> Result<usize, Error> {
    let count = args.int(1).ok().and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|&count| count > 0);
    let count = count.ok_or(Error::new("ERR numkeys should be greater than 0"))?;
    if count > args.len() - 2 {
        return Err(Error::new("ERR Number of keys can't be greater than number of args"));
    }
    Ok(count)
}

fn numbered_keys(args: Args<'_>) -> Result<Vec<usize>, Error> {
    Ok((2..2 + key_count(args)?).collect())
}

fn sintercard(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let count = key_count(args)?;
    let (mut limit, mut index) = (usize::MAX, 2 + count);
    while index < args.len() {
        if !args.is(index, "limit") || index + 1 == args.len() {
            return Err(Error::SYNTAX.into());
        }
        let given = args.int(index + 1).ok().and_then(|limit| usize::try_from(limit).ok());
        limit = match given.ok_or(Error::new("ERR LIMIT can't be negative"))? {
            0 => usize::MAX,
            limit => limit,
        };
        index += 2;
    }
    let names = || args.iter_from(2).take(count);
    let _held = cx.hold(names().map(|name| cx.key(name)));
    let sets = sources(cx, names())?;
    cx.goes_through(Operation::Common.items(&sets))?;
    let outcome = common(cx, sets, limit)?;
    out.w().integer(outcome.len() as i64);
    Ok(())
}

fn sscan(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let cursor = cursor(args.bytes(2))?;
    Ok(with_set(cx, args.bytes(1), |set| {
        let Some(set) = set else {
            out.w().array(2);
            out.w().bulk(b"0");
            out.w().array(0);
            return Ok(());
        };
        let options = ScanOptions::parse(args, 3, Scanned::Members)?;
        cx.goes_through(options.count.min(set.len()))?;
        let mut found = Out::default();
        found.protocol = out.protocol;
        let mut count = 0;
        let next = set.scan(cursor, options.count, |member| {
            if options.wants(&member.bytes()) {
                found.item(&member);
                count += 1;
            }
        })?;
        scanned(out, next, found, count);
        Ok(())
    })?)
}
