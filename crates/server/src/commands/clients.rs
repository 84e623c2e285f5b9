//! The CLIENT command: what connections are there, what they are called, and
//! how to pause, silence and end them.
//!
//! What `LIST` shows of another worker's client is what that worker last
//! published (see [`crate::follow::clients::Figures`]): a batch old at most.

use crate::commands::connection::valid_name;
use crate::commands::{self, container, quoted};
use crate::engine::blocked::Reason;
use crate::engine::client::{ReplyMode, TrackingMode};
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::out::Out;
use crate::follow::clients::{Address, Shared};
use crate::follow::listing::{Kind, describe};
use crate::follow::pause::By;
use crate::follow::tracking::Redirect;
use crate::outside::clock::unix_ms;
use crate::request::args::Args;
use crate::request::error::Error;
use snug_resp::parse_integer;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const PLAIN: u32 = NOSCRIPT | LOADING | STALE;
const ADMINS: u32 = PLAIN | ADMIN;

const fn sub(
    name: &'static str,
    arity: i32,
    flags: u32,
    handler: crate::engine::command::Handler,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    Command::new(name, arity, handler).of("client").flags(flags).about(
        Group::Connection,
        since,
        complexity,
        summary,
    )
}

const ALL_CLIENTS: &str = "O(N) where N is the number of client connections";

pub(crate) const COMMANDS: &[Command] = &[Command::new("client", -2, container)
    .about(
        Group::Connection,
        "2.4.0",
        "Depends on subcommand.",
        "Lists, names, pauses and ends connections.",
    )
    .subcommands(&[
        sub("id", 2, PLAIN, id, "5.0.0", "O(1)", "Returns the connection's id."),
        sub("info", 2, PLAIN, info, "6.2.0", "O(1)", "Describes the connection."),
        sub("list", -2, ADMINS, list, "2.4.0", ALL_CLIENTS, "Describes connections."),
        sub("getname", 2, PLAIN, getname, "2.6.9", "O(1)", "Returns the connection's name."),
        sub("setname", 3, PLAIN, setname, "2.6.9", "O(1)", "Names the connection."),
        sub("setinfo", 4, PLAIN, setinfo, "7.2.0", "O(1)", "Tells the client library's name."),
        sub("kill", -3, ADMINS, kill, "2.4.0", ALL_CLIENTS, "Ends connections."),
        sub("reply", 3, PLAIN, reply, "3.2.0", "O(1)", "Chooses whether commands are answered."),
        sub(
            "pause",
            -3,
            ADMINS | WIDE,
            pause,
            "2.9.50",
            "O(1)",
            "Leaves requests waiting for a time.",
        ),
        sub(
            "unpause",
            2,
            ADMINS,
            unpause,
            "6.2.0",
            "O(N) Where N is the number of paused clients",
            "Ends a pause.",
        ),
        sub(
            "unblock",
            -3,
            ADMINS | WIDE,
            unblock,
            "5.0.0",
            "O(log N) where N is the number of client connections",
            "Ends the waiting of a blocked connection.",
        ),
        sub("no-evict", 3, ADMINS, no_evict, "7.0.0", "O(1)", "Protects from client eviction."),
        sub(
            "no-touch",
            3,
            PLAIN,
            no_touch,
            "7.2.0",
            "O(1)",
            "Chooses whether the connection's reads count as accesses.",
        ),
        sub(
            "tracking",
            -3,
            PLAIN,
            tracking,
            "6.0.0",
            "O(1). Some options may introduce additional complexity.",
            "Has the connection told when keys change that it has read.",
        ),
        sub(
            "caching",
            3,
            PLAIN,
            caching,
            "6.0.0",
            "O(1)",
            "Makes the next command an exception of tracking.",
        ),
        sub("getredir", 2, PLAIN, getredir, "6.0.0", "O(1)", "Returns where tracking is sent."),
        sub("trackinginfo", 2, PLAIN, tracking_info, "6.2.0", "O(1)", "Describes tracking."),
        sub("help", 2, LOADING | STALE, help, "5.0.0", "O(1)", "Says what the subcommands do."),
    ])];

fn id(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    out.w().integer(cx.client()?.id() as i64);
    Ok(())
}

fn getname(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let names = cx.client()?.shared.names.lock();
    if names.name.is_empty() {
        out.w().null();
    } else {
        out.w().bulk(&names.name);
    }
    Ok(())
}

fn setname(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let name = valid_name(args.bytes(2))?;
    cx.client()?.shared.names.lock().name = name.to_vec();
    out.w().ok();
    Ok(())
}

fn setinfo(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let (option, value) = (args.bytes(2), args.bytes(3));
    let option = String::from_utf8_lossy(option);
    let lower = option.to_ascii_lowercase();
    if !matches!(lower.as_str(), "lib-name" | "lib-ver") {
        return Err(Error::from(format!("ERR Unrecognized option '{option}'")).into());
    }
    let value = valid_name(value).map_err(|_| {
        Error::from(format!("ERR {lower} cannot contain spaces, newlines or special characters."))
    })?;
    let mut names = cx.client()?.shared.names.lock();
    let place = if lower == "lib-name" { &mut names.lib_name } else { &mut names.lib_version };
    *place = value.to_vec();
    out.w().ok();
    Ok(())
}

/// A kind of clients by its name.
fn kind_named(name: &[u8]) -> Result<Kind, Error> {
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(Kind::Normal),
        b"pubsub" => Ok(Kind::PubSub),
        b"master" => Ok(Kind::Primary),
        b"replica" | b"slave" => Ok(Kind::Replica),
        _ => {
            let name = String::from_utf8_lossy(name);
            Err(Error::from(format!("ERR Unknown client type '{name}'")))
        }
    }
}

/// The name of the command that a client called last.
fn last_command(client: &Shared) -> String {
    let last = client.figures.last_command.load(Relaxed) as usize;
    let command = last.checked_sub(1).and_then(|index| commands::all().get(index));
    command.map_or_else(|| "NULL".into(), |command| command.full_name())
}

/// The lines of these clients; the caller's own with the command it is in.
fn lines(cx: &Context<'_>, args: Args<'_>, clients: &[Arc<Shared>]) -> Vec<u8> {
    let me = cx.client.as_deref();
    if let Some(me) = me {
        me.publish_figures(cx.caller);
        // The caller's own request has been executed in part only.
        me.shared.figures.query_bytes.store(args.buf.len(), Relaxed);
    }
    let argument_bytes = args.iter_from(0).map(<[u8]>::len).sum();
    let now = unix_ms();
    let one = |client: &Arc<Shared>| match me.is_some_and(|me| me.id() == client.id) {
        true => describe(client, &cx.command.full_name(), argument_bytes, now),
        false => describe(client, &last_command(client), 0, now),
    };
    clients.iter().flat_map(one).collect()
}

fn info(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let mine = [Arc::clone(&cx.client()?.shared)];
    out.w().verbatim("txt", &lines(cx, args, &mine));
    Ok(())
}

/// Brings up to date what others see of the caller.
fn publish_figures(cx: &Context<'_>) {
    if let Some(client) = &cx.client {
        client.publish_figures(cx.caller);
    }
}

/// Connected clients that have not been killed, in the order they came.
fn connected(cx: &Context<'_>, wanted: impl Fn(&Shared) -> bool) -> Vec<Arc<Shared>> {
    let clients = cx.server.clients.read();
    clients.values().filter(|c| !c.is_killed() && wanted(c)).map(Arc::clone).collect()
}

fn list(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    publish_figures(cx);
    let clients = if args.len() == 4 && args.is(2, "type") {
        let kind = kind_named(args.bytes(3))?;
        connected(cx, |client| Kind::of(client) == kind)
    } else if args.len() > 3 && args.is(2, "id") {
        let ids = args
            .iter_from(3)
            .map(|id| parse_integer(id).ok_or(Error::new("ERR Invalid client ID")));
        let ids = ids.collect::<Result<Vec<i64>, Error>>()?;
        let clients = cx.server.clients.read();
        let found = ids.iter().filter_map(|&id| clients.get(&u64::try_from(id).ok()?));
        found.filter(|client| !client.is_killed()).map(Arc::clone).collect()
    } else if args.len() == 2 {
        connected(cx, |_| true)
    } else {
        return Err(Error::SYNTAX.into());
    };
    out.w().verbatim("txt", &lines(cx, args, &clients));
    Ok(())
}

/// Whom `CLIENT KILL` is to end: whoever fits all that is given.
#[derive(Debug, Default)]
struct Victims<'a> {
    id: Option<u64>,
    kind: Option<Kind>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    age_seconds_min: Option<u64>,
    spare_me: bool,
}

impl Victims<'_> {
    fn fits(&self, client: &Shared, me: u64, now: u64) -> bool {
        let is = |address: &Address, wanted: &[u8]| address.to_string().as_bytes() == wanted;
        let age = now.saturating_sub(client.connected) / 1000;
        self.id.is_none_or(|id| id == client.id)
            && self.kind.is_none_or(|kind| kind == Kind::of(client))
            && self.address.is_none_or(|address| is(&client.peer, address))
            && self.local_address.is_none_or(|address| is(&client.local, address))
            && self.user.is_none_or(|user| client.names.lock().user == user)
            && self.age_seconds_min.is_none_or(|min| age >= min)
            && !(self.spare_me && client.id == me)
    }
}

fn kill(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let old_form = args.len() == 3;
    let victims = if old_form {
        Victims { address: Some(args.bytes(2)), ..Victims::default() }
    } else {
        victims(cx, args)?
    };
    publish_figures(cx);
    let (me, now) = (cx.client()?.id(), unix_ms());
    let killed = connected(cx, |client| victims.fits(client, me, now));
    for client in &killed {
        if client.id == me {
            // It is still told how many were ended.
            cx.client()?.close = true;
        } else {
            client.kill();
        }
    }
    match (old_form, killed.is_empty()) {
        (true, true) => return Err(Error::new("ERR No such client").into()),
        (true, false) => out.w().ok(),
        (false, _) => out.w().integer(killed.len() as i64),
    }
    Ok(())
}

fn victims<'a>(cx: &Context<'_>, args: Args<'a>) -> Result<Victims<'a>, Error> {
    let mut victims = Victims { spare_me: true, ..Victims::default() };
    let mut at = 2;
    while at < args.len() {
        let Some(value) = args.get(at + 1) else { return Err(Error::SYNTAX) };
        let positive = |error| {
            let number = parse_integer(value).and_then(|n| u64::try_from(n).ok());
            number.filter(|&n| n > 0).ok_or(Error::new(error))
        };
        if args.is(at, "id") {
            victims.id = Some(positive("ERR client-id should be greater than 0")?);
        } else if args.is(at, "maxage") {
            if parse_integer(value).is_none() {
                return Err(Error::new("ERR maxage is not an integer or out of range"));
            }
            victims.age_seconds_min = Some(positive("ERR maxage should be greater than 0")?);
        } else if args.is(at, "type") {
            victims.kind = Some(kind_named(value)?);
        } else if args.is(at, "addr") {
            victims.address = Some(value);
        } else if args.is(at, "laddr") {
            victims.local_address = Some(value);
        } else if args.is(at, "user") {
            if cx.server.users.get(value).is_none() {
                let user = String::from_utf8_lossy(value);
                return Err(Error::from(format!("ERR No such user '{user}'")));
            }
            victims.user = Some(value);
        } else if args.is(at, "skipme") {
            victims.spare_me = match value.to_ascii_lowercase().as_slice() {
                b"yes" => true,
                b"no" => false,
                _ => return Err(Error::SYNTAX),
            };
        } else {
            return Err(Error::SYNTAX);
        }
        at += 2;
    }
    Ok(victims)
}

fn on_off(word: &[u8]) -> Result<bool, Error> {
    match word.to_ascii_lowercase().as_slice() {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(Error::SYNTAX),
    }
}

fn no_evict(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    cx.client()?.shared.figures.no_evict.store(on_off(args.bytes(2))?, Relaxed);
    out.w().ok();
    Ok(())
}

fn no_touch(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    cx.caller.no_touch = on_off(args.bytes(2))?;
    out.w().ok();
    Ok(())
}

/// Writes a reply only for `ON`: the others leave even this command unanswered.
fn reply(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let client = cx.client()?;
    if args.is(2, "on") {
        client.reply = ReplyMode::On;
        out.w().ok();
    } else if args.is(2, "off") {
        client.reply = ReplyMode::Off;
    } else if args.is(2, "skip") {
        if client.reply != ReplyMode::Off {
            client.reply = ReplyMode::SkipNext;
        }
    } else {
        return Err(Error::SYNTAX.into());
    }
    Ok(())
}

fn pause(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if args.len() > 4 {
        return Err(Error::wrong_subcommand(args, "CLIENT").into());
    }
    let writes_only = match args.get(3) {
        None => false,
        Some(mode) if mode.eq_ignore_ascii_case(b"all") => false,
        Some(mode) if mode.eq_ignore_ascii_case(b"write") => true,
        Some(_) => return Err(Error::new("ERR CLIENT PAUSE mode must be WRITE or ALL").into()),
    };
    let timeout = timeout_ms(args.bytes(2))?;
    let until = unix_ms().saturating_add(timeout);
    cx.server.pause.pause(By::Client, until, writes_only);
    out.w().ok();
    Ok(())
}

/// A time to wait, in milliseconds.
pub(crate) fn timeout_ms(bytes: &[u8]) -> Result<u64, Error> {
    let timeout =
        parse_integer(bytes).ok_or(Error::new("ERR timeout is not an integer or out of range"))?;
    u64::try_from(timeout).map_err(|_| Error::new("ERR timeout is negative"))
}

fn unpause(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    cx.server.pause.unpause(By::Client);
    out.w().ok();
    Ok(())
}

fn unblock(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if args.len() > 4 {
        return Err(Error::wrong_subcommand(args, "CLIENT").into());
    }
    let reason = match args.get(3) {
        None => Reason::Timeout,
        Some(_) if args.is(3, "timeout") => Reason::Timeout,
        Some(_) if args.is(3, "error") => Reason::Unblocked,
        Some(_) => {
            return Err(Error::new("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR").into());
        }
    };
    let client = u64::try_from(args.int(2)?).ok();
    let unblocked = client.is_some_and(|client| cx.server.unblock(cx.worker, client, reason));
    out.w().integer(i64::from(unblocked));
    Ok(())
}

/// Where tracking is told: -1 if it is off, 0 for the client itself.
fn redirected(mode: Option<&TrackingMode>) -> i64 {
    mode.map_or(-1, |mode| mode.redirect.map_or(0, |id| id as i64))
}

fn getredir(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    out.w().integer(redirected(cx.client()?.tracking.as_deref()));
    Ok(())
}

fn tracking_info(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let client = cx.client()?;
    let mode = client.tracking.as_deref();
    let is = |flag: fn(&TrackingMode) -> bool| mode.is_some_and(flag);
    let flags = [
        (mode.is_some(), "on"),
        (mode.is_none(), "off"),
        (is(|mode| mode.broadcast), "bcast"),
        (is(|mode| mode.opt_in), "optin"),
        (is(|mode| mode.opt_in && mode.caching), "caching-yes"),
        (is(|mode| mode.opt_out), "optout"),
        (is(|mode| mode.opt_out && mode.caching), "caching-no"),
        (is(|mode| mode.no_loop), "noloop"),
        (client.shared.figures.tracking_broken.load(Relaxed), "broken_redirect"),
    ];
    let flags: Vec<&str> = flags.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    let mut w = out.w();
    w.map(3);
    w.bulk(b"flags");
    w.set(flags.len());
    flags.iter().for_each(|flag| w.bulk(flag.as_bytes()));
    w.bulk(b"redirect");
    w.integer(redirected(mode));
    w.bulk(b"prefixes");
    w.array(mode.map_or(0, |mode| mode.prefixes.len()));
    mode.into_iter().flat_map(|mode| &mode.prefixes).for_each(|prefix| w.bulk(prefix));
    Ok(())
}

/// What `CLIENT TRACKING` was given.
#[derive(Debug, Default)]
struct Wanted {
    mode: TrackingMode,
    redirect: Option<Redirect>,
    prefixes: Vec<Vec<u8>>,
}

fn tracking(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let server = cx.server;
    let wanted = wanted_tracking(cx, args)?;
    let client = cx.client()?;
    if args.is(2, "off") {
        server.end_tracking(client);
        out.w().ok();
        return Ok(());
    }
    if !args.is(2, "on") {
        return Err(Error::SYNTAX.into());
    }
    check_tracking(&wanted, client.tracking.as_deref())?;
    let Wanted { mut mode, redirect, mut prefixes } = wanted;
    if mode.broadcast && prefixes.is_empty() {
        prefixes.push(Vec::new());
    }
    let before = client.tracking.take();
    mode.caching = before.as_ref().is_some_and(|before| before.caching);
    if let Some(before) = before {
        (mode.prefixes, mode.bytes) = (before.prefixes, before.bytes);
    }
    prefixes.iter().for_each(|prefix| mode.add_prefix(prefix.clone()));
    let prefixes = mode.broadcast.then_some(prefixes.as_slice());
    server.tracking.begin(&client.shared, redirect, prefixes, mode.no_loop);
    server.heed_events();
    let figures = &client.shared.figures;
    figures.tracking.store(true, Relaxed);
    figures.tracking_prefixes.store(mode.broadcast, Relaxed);
    figures.tracking_broken.store(false, Relaxed);
    figures.redirect.store(redirected(Some(&mode)), Relaxed);
    client.tracking = Some(Box::new(mode));
    // Whoever tells it looks there which protocol it speaks.
    let client = cx.client.as_deref();
    client.into_iter().for_each(|client| client.publish_figures(cx.caller));
    out.w().ok();
    Ok(())
}

fn wanted_tracking(cx: &Context<'_>, args: Args<'_>) -> Result<Wanted, Error> {
    let mut wanted = Wanted::default();
    let mut at = 3;
    while at < args.len() {
        let more = at + 1 < args.len();
        if args.is(at, "redirect") && more {
            at += 1;
            if wanted.redirect.is_some() {
                return Err(Error::new("ERR A client can only redirect to a single other client"));
            }
            let id = u64::try_from(args.int(at)?).unwrap_or(0);
            let clients = cx.server.clients.read();
            let other = clients
                .get(&id)
                .filter(|other| !other.is_killed())
                .ok_or(Error::new("ERR The client ID you want redirect to does not exist"))?;
            wanted.redirect = Some(Redirect { id, client: Arc::downgrade(other) });
            wanted.mode.redirect = Some(id);
        } else if args.is(at, "bcast") {
            wanted.mode.broadcast = true;
        } else if args.is(at, "optin") {
            wanted.mode.opt_in = true;
        } else if args.is(at, "optout") {
            wanted.mode.opt_out = true;
        } else if args.is(at, "noloop") {
            wanted.mode.no_loop = true;
        } else if args.is(at, "prefix") && more {
            at += 1;
            wanted.prefixes.push(args.bytes(at).to_vec());
        } else {
            return Err(Error::SYNTAX);
        }
        at += 1;
    }
    Ok(wanted)
}

/// Whether what is wanted goes together, and with what the client has.
fn check_tracking(wanted: &Wanted, before: Option<&TrackingMode>) -> Result<(), Error> {
    let (mode, prefixes) = (&wanted.mode, &wanted.prefixes);
    let error = if !mode.broadcast && !prefixes.is_empty() {
        "ERR PREFIX option requires BCAST mode to be enabled"
    } else if before.is_some_and(|before| before.broadcast != mode.broadcast) {
        "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode."
    } else if mode.broadcast && (mode.opt_in || mode.opt_out) {
        "ERR OPTIN and OPTOUT are not compatible with BCAST"
    } else if mode.opt_in && mode.opt_out {
        "ERR You can't specify both OPTIN mode and OPTOUT mode"
    } else if before
        .is_some_and(|before| (mode.opt_in && before.opt_out) || (mode.opt_out && before.opt_in))
    {
        "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode."
    } else {
        return if mode.broadcast { check_prefixes(prefixes, before) } else { Ok(()) };
    };
    Err(Error::new(error))
}

/// No key may begin with two of a client's prefixes.
fn check_prefixes(prefixes: &[Vec<u8>], before: Option<&TrackingMode>) -> Result<(), Error> {
    let overlap = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
    let refused = |prefix: &[u8], what: &str, other: &[u8]| {
        let shown = |text: &[u8]| quoted(text, text.len()).to_vec();
        Error::from(
            [
                b"ERR Prefix '".as_slice(),
                &shown(prefix),
                what.as_bytes(),
                &shown(other),
                b"'. Prefixes for a single client must not overlap.",
            ]
            .concat(),
        )
    };
    let nothing = BTreeSet::new();
    let before = before.map_or(&nothing, |before| &before.prefixes);
    let among = first_overlap(prefixes);
    for (at, prefix) in prefixes.iter().enumerate() {
        if let Some(other) = known_overlap(before, prefix) {
            return Err(refused(prefix, "' overlaps with an existing prefix '", other));
        }
        if among == Some(at)
            && let Some(other) = prefixes[at + 1..].iter().find(|other| overlap(prefix, other))
        {
            return Err(refused(prefix, "' overlaps with another provided prefix '", other));
        }
    }
    Ok(())
}

/// The first of a client's prefixes that overlaps with this one. O(log n), since they do
/// not overlap among themselves: but for the empty one, which is added unchecked where
/// `BCAST` comes without a prefix.
fn known_overlap<'p>(known: &'p BTreeSet<Vec<u8>>, prefix: &[u8]) -> Option<&'p Vec<u8>> {
    let empty = known.first().filter(|first| first.is_empty());
    let shorter = || {
        let before = (Bound::Unbounded, Bound::Included(prefix));
        known.range::<[u8], _>(before).next_back().filter(|other| prefix.starts_with(other))
    };
    let longer = || {
        let behind = (Bound::Included(prefix), Bound::Unbounded);
        known.range::<[u8], _>(behind).next().filter(|other| other.starts_with(prefix))
    };
    empty.or_else(shorter).or_else(longer)
}

/// The first of these prefixes that overlaps with a later one. They may be as many as a
/// command has arguments, so they are sorted: O(n log n).
fn first_overlap(prefixes: &[Vec<u8>]) -> Option<usize> {
    let mut sorted: Vec<usize> = (0..prefixes.len()).collect();
    sorted.sort_unstable_by(|one, other| prefixes[*one].cmp(&prefixes[*other]));
    // Those with which the prefix looked at begins, the shortest first.
    let mut around: Vec<usize> = Vec::new();
    let mut first: Option<usize> = None;
    for at in sorted {
        while around.last().is_some_and(|outer| !prefixes[at].starts_with(&prefixes[*outer])) {
            around.pop();
        }
        // The first of all that overlap is the first of some pair of neighbours.
        if let Some(outer) = around.last() {
            first = first.into_iter().chain([at, *outer]).min();
        }
        around.push(at);
    }
    first
}

fn caching(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let Some(mode) = cx.client()?.tracking.as_deref_mut() else {
        return Err(Error::new(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        )
        .into());
    };
    let refusal = if args.is(2, "yes") {
        (!mode.opt_in).then_some(
            "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
        )
    } else if args.is(2, "no") {
        (!mode.opt_out).then_some(
            "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        )
    } else {
        return Err(Error::SYNTAX.into());
    };
    if let Some(refusal) = refusal {
        return Err(Error::new(refusal).into());
    }
    mode.caching = true;
    out.w().ok();
    Ok(())
}

fn help(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let lines = [
        ("CACHING (YES|NO)", "Make the next command an exception of OPTIN or OPTOUT."),
        ("GETREDIR", "Return the client id that tracking is redirected to."),
        ("GETNAME", "Return the name of this connection."),
        ("ID", "Return the id of this connection."),
        ("INFO", "Describe this connection."),
        ("KILL <ip:port>", "End the connection from <ip:port>."),
        (
            "KILL <option> <value> [<option> <value> [...]]",
            "End the connections that fit all of ID, TYPE, USER, ADDR, LADDR, MAXAGE; SKIPME.",
        ),
        (
            "LIST [options ...]",
            "Describe connections: those of TYPE <type>, or ID <id> [<id> ...]; else all.",
        ),
        ("UNPAUSE", "End a pause."),
        ("PAUSE <timeout> [WRITE|ALL]", "Leave requests waiting for <timeout> milliseconds."),
        ("REPLY (ON|OFF|SKIP)", "Choose whether commands are answered."),
        ("SETNAME <name>", "Name this connection."),
        ("UNBLOCK <clientid> [TIMEOUT|ERROR]", "End the waiting of a blocked connection."),
        (
            "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
            "[OPTIN] [OPTOUT] [NOLOOP]. Have it told when keys change that it has read.",
        ),
        ("TRACKINGINFO", "Describe this connection's tracking."),
        ("NO-EVICT (ON|OFF)", "Protect this connection from client eviction."),
        ("NO-TOUCH (ON|OFF)", "Have this connection's reads not count as accesses."),
        ("SETINFO (LIB-NAME|LIB-VER) <value>", "Tell the client library's name or version."),
    ];
    commands::help(out, "CLIENT", &lines);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn overlap(one: &[u8], other: &[u8]) -> bool {
        one.starts_with(other) || other.starts_with(one)
    }

    proptest! {
        #[test]
        fn overlaps_are_those_that_a_comparison_of_all_finds(
            given in prop::collection::vec("[ab]{0,5}", 0..12),
            known in prop::collection::vec("[ab]{2,5}", 0..6),
            new in "[ab]{0,5}",
        ) {
            let given: Vec<Vec<u8>> = given.into_iter().map(String::into_bytes).collect();
            let first = (0..given.len()).find(|&at| {
                given[at + 1..].iter().any(|later| overlap(&given[at], later))
            });
            prop_assert_eq!(first_overlap(&given), first);
            let mut kept = BTreeSet::new();
            for prefix in known.iter().map(String::as_bytes) {
                if !kept.iter().any(|other: &Vec<u8>| overlap(other, prefix)) {
                    kept.insert(prefix.to_vec());
                }
            }
            let new = new.as_bytes();
            let slow = kept.iter().find(|other| overlap(other, new));
            prop_assert_eq!(known_overlap(&kept, new), slow);
            kept.insert(Vec::new());
            prop_assert_eq!(known_overlap(&kept, new), Some(&Vec::new()));
        }
    }
}
