//! What is known of executed commands: calls and time by command, errors by
//! code, the slow log, and the clients that `MONITOR` them.

use crate::config::{self, Param};
use crate::engine::client::ReplyMode;
use crate::engine::command::{Command, flags};
use crate::engine::context::Context;
use crate::engine::context::Origin;
use crate::follow::clients::{Address, Shared};
use crate::follow::pubsub;
use crate::measure::latency::{Events, Histogram, Times};
use crate::outside::clock::unix_ms;
use crate::request::args::Args;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Figures of one command on one worker, which alone writes them.
#[derive(Debug, Default)]
pub(crate) struct Row {
    calls: AtomicU64,
    nanoseconds: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
    /// Made with the first call.
    times: OnceLock<Box<Histogram>>,
}

/// Figures of one command.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommandFigures {
    pub calls: u64,
    pub microseconds: u64,
    pub rejected: u64,
    pub failed: u64,
}

/// A slow command.
#[derive(Clone, Debug)]
pub(crate) struct Slow {
    pub id: u64,
    pub unix_seconds: u64,
    pub microseconds: u64,
    pub args: Vec<Vec<u8>>,
    pub peer: String,
    pub name: Vec<u8>,
}

#[derive(Debug, Default)]
struct SlowLog {
    next_id: u64,
    entries: VecDeque<Slow>,
}

/// Everything known of executed commands.
#[derive(Debug)]
pub(crate) struct Monitor {
    rows: Vec<Vec<Row>>,
    errors: Mutex<BTreeMap<String, u64>>,
    slow: Mutex<SlowLog>,
    /// What took long, for `LATENCY`.
    pub events: Events,
    followed: AtomicBool,
    followers: Mutex<Vec<Weak<Shared>>>,
}

/// Codes counted apart; what is beyond counts as one, for codes can be forged.
const ERROR_CODES_MAX: usize = 128;
const SLOW_ARGS_MAX: usize = 32;
const SLOW_ARG_BYTES_MAX: usize = 128;

fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed) + by, Relaxed);
}

impl Monitor {
    /// Nothing yet, of so many commands on so many workers.
    pub(crate) fn new(commands: usize, workers: usize) -> Self {
        let row = || (0..commands).map(|_| Row::default()).collect();
        Self {
            rows: (0..workers).map(|_| row()).collect(),
            errors: Mutex::default(),
            slow: Mutex::default(),
            events: Events::default(),
            followed: AtomicBool::new(false),
            followers: Mutex::default(),
        }
    }

    /// Shows a client every command from now on, until it is gone or
    /// [`unfollow`](Self::unfollow) is called.
    pub(crate) fn follow(&self, client: &Arc<Shared>) {
        let mut followers = self.followers.lock();
        if !followers.iter().any(|other| other.as_ptr() == Arc::as_ptr(client)) {
            followers.push(Arc::downgrade(client));
        }
        self.followed.store(true, Relaxed);
    }

    /// Shows a client no more commands.
    pub(crate) fn unfollow(&self, client: &Arc<Shared>) {
        let mut followers = self.followers.lock();
        followers.retain(|other| other.as_ptr() != Arc::as_ptr(client));
        self.followed.store(!followers.is_empty(), Relaxed);
    }

    /// Shows a command to all who follow; to its own client after the reply, unless
    /// that client is sent none. One that does not read is cut off.
    #[cold]
    fn show(&self, cx: &Context<'_>, args: Args<'_>) {
        let line = shown(cx, args);
        let limit = cx.server.config.output_limits().replica.hard as usize;
        let mut followers = self.followers.lock();
        followers.retain(|follower| {
            let Some(client) = follower.upgrade() else { return false };
            if let Some(own) = cx.client.as_deref().filter(|own| own.id() == client.id) {
                let is_told =
                    !own.close && matches!(own.reply, ReplyMode::On | ReplyMode::SkipNext);
                if is_told {
                    pubsub::tell_own(client.id, &line);
                }
            } else {
                let waiting = client.push(&line) + client.figures.output_bytes.load(Relaxed);
                if limit > 0 && waiting > limit {
                    client.kill();
                }
            }
            !client.is_killed()
        });
        self.followed.store(!followers.is_empty(), Relaxed);
    }

    /// A command was executed, which took so many nanoseconds.
    #[inline]
    pub(crate) fn called(&self, cx: &Context<'_>, args: Args<'_>, took: u64, failed: bool) {
        let row = &self.rows[cx.worker][cx.command.index as usize];
        bump(&row.calls, 1);
        bump(&row.nanoseconds, took);
        if failed {
            bump(&row.failed, 1);
        }
        let config = &cx.server.config;
        if config.is_on(Param::LatencyTracking) {
            row.times.get_or_init(Box::default).record(took);
        }
        if let Some(client) = cx.known() {
            client.figures.last_command.store(u32::from(cx.command.index) + 1, Relaxed);
        }
        // One that had to wait was shown when it came.
        if self.followed.load(Relaxed) && !matches!(cx.origin, Origin::Waiter(..)) {
            self.seen(cx, args);
        }
        let limit_us = config.number(Param::SlowlogLogSlowerThan);
        let event_ms = config.number(Param::LatencyMonitorThreshold) as u64;
        let is_slow = limit_us >= 0 && took >= (limit_us as u64).saturating_mul(1000);
        let is_event = event_ms > 0 && took >= event_ms.saturating_mul(1_000_000);
        if is_slow || is_event {
            self.took_long(cx, args, Duration::from_nanos(took), (is_slow, is_event));
        }
    }

    /// Notes that a command took long, by the measure of the slow log or by that of
    /// `LATENCY`.
    #[cold]
    fn took_long(
        &self,
        cx: &Context<'_>,
        args: Args<'_>,
        took: Duration,
        (is_slow, is_event): (bool, bool),
    ) {
        if is_event {
            let name = if cx.command.has(flags::FAST) { "fast-command" } else { "command" };
            self.events.record(name, unix_ms() / 1000, took.as_millis() as u64);
        }
        if is_slow && !cx.command.has(flags::SKIP_SLOWLOG) {
            self.log_slow(cx, args, took);
        }
    }

    /// A command came: shows it to those who follow.
    #[inline]
    pub(crate) fn seen(&self, cx: &Context<'_>, args: Args<'_>) {
        if self.followed.load(Relaxed) && !cx.command.has(flags::ADMIN | flags::SKIP_MONITOR) {
            self.show(cx, args);
        }
    }

    /// A script begins: it is shown before its commands are.
    pub(crate) fn script_begins(&self, cx: &Context<'_>, args: Args<'_>) {
        if self.followed.load(Relaxed) {
            self.show(cx, args);
        }
    }

    /// A command waited and was then ended, with an error or without.
    pub(crate) fn ended(&self, worker: usize, command: &Command, failed: bool) {
        let row = &self.rows[worker][command.index as usize];
        bump(&row.calls, 1);
        bump(&row.failed, u64::from(failed));
    }

    /// A command was refused before it was executed.
    pub(crate) fn rejected(&self, worker: usize, command: &Command) {
        bump(&self.rows[worker][command.index as usize].rejected, 1);
    }

    /// An error was sent.
    pub(crate) fn error(&self, code: &str) {
        let mut errors = self.errors.lock();
        let code = if errors.len() < ERROR_CODES_MAX || errors.contains_key(code) {
            code
        } else {
            "ERRORSTATS_OVERFLOW"
        };
        *errors.entry(code.into()).or_default() += 1;
    }

    fn log_slow(&self, cx: &Context<'_>, args: Args<'_>, took: Duration) {
        let shown = args.len().min(SLOW_ARGS_MAX);
        let kept = (0..shown).map(|index| match is_secret(cx.command, args, index) {
            true => b"(redacted)".to_vec(),
            false => shorten(args.front(index, SLOW_ARG_BYTES_MAX)),
        });
        let mut kept: Vec<Vec<u8>> = kept.collect();
        if args.len() > SLOW_ARGS_MAX {
            let more = args.len() - SLOW_ARGS_MAX + 1;
            kept[SLOW_ARGS_MAX - 1] = format!("... ({more} more arguments)").into_bytes();
        }
        let keep = cx.server.config.number(Param::SlowlogMaxLen) as usize;
        let mut log = self.slow.lock();
        let id = log.next_id;
        log.next_id += 1;
        log.entries.push_front(Slow {
            id,
            unix_seconds: cx.store.now() / 1000,
            microseconds: took.as_micros() as u64,
            args: kept,
            peer: cx.known().map(|client| client.peer.to_string()).unwrap_or_default(),
            name: cx.known().map(|client| client.names.lock().name.clone()).unwrap_or_default(),
        });
        log.entries.truncate(keep);
    }

    /// The latest slow commands, latest first.
    pub(crate) fn slow(&self, count: usize) -> Vec<Slow> {
        self.slow.lock().entries.iter().take(count).cloned().collect()
    }

    /// Entries in the slow log.
    pub(crate) fn slow_len(&self) -> usize {
        self.slow.lock().entries.len()
    }

    /// Forgets slow commands.
    pub(crate) fn slow_reset(&self) {
        self.slow.lock().entries.clear();
    }

    /// Figures of a command, over all workers.
    pub(crate) fn figures(&self, command: &Command) -> CommandFigures {
        let rows = self.rows.iter().map(|rows| &rows[command.index as usize]);
        rows.fold(CommandFigures::default(), |sum, row| CommandFigures {
            calls: sum.calls + row.calls.load(Relaxed),
            microseconds: sum.microseconds + row.nanoseconds.load(Relaxed) / 1000,
            rejected: sum.rejected + row.rejected.load(Relaxed),
            failed: sum.failed + row.failed.load(Relaxed),
        })
    }

    /// How long all calls of all commands took, over all workers.
    pub(crate) fn microseconds(&self) -> u64 {
        let rows = self.rows.iter().flatten();
        rows.map(|row| row.nanoseconds.load(Relaxed)).sum::<u64>() / 1000
    }

    /// How long calls of a command took, over all workers.
    pub(crate) fn times(&self, command: &Command) -> Times {
        let mut times = Times::default();
        let rows = self.rows.iter().map(|rows| &rows[command.index as usize]);
        rows.filter_map(|row| row.times.get()).for_each(|row| times.add(row));
        times
    }

    /// Errors sent, by code.
    pub(crate) fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().clone()
    }

    /// Forgets figures and errors, not the slow log.
    pub(crate) fn reset(&self) {
        for row in self.rows.iter().flatten() {
            for counter in [&row.calls, &row.nanoseconds, &row.rejected, &row.failed] {
                counter.store(0, Relaxed);
            }
            if let Some(times) = row.times.get() {
                times.reset();
            }
        }
        self.errors.lock().clear();
    }
}

/// Whether an argument is a password, or may be one.
fn is_secret(command: &Command, args: Args<'_>, index: usize) -> bool {
    match (command.container, command.name) {
        (None, "auth") => index > 0,
        (Some("acl"), "setuser") => index > 1,
        (None, "migrate") => migrate_secret(args, index),
        (None, "hello") => {
            let mut at = 2;
            // `AUTH user password` and `SETNAME name`, in any order.
            while at < index {
                if args.is(at, "auth") {
                    if index <= at + 2 {
                        return true;
                    }
                    at += 3;
                } else {
                    at += 2;
                }
            }
            false
        }
        (Some("config"), "set") if index > 2 && index % 2 == 1 => {
            config::find(args.bytes(index - 1)).is_some_and(Param::is_secret)
        }
        _ => false,
    }
}

/// Whether an argument of `MIGRATE` is a password or the name of its user.
fn migrate_secret(args: Args<'_>, index: usize) -> bool {
    let mut at = 6;
    while at < index && !args.is(at, "keys") {
        let words = match args.is(at, "auth2") {
            true => 2,
            false => usize::from(args.is(at, "auth")),
        };
        if index <= at + words {
            return true;
        }
        at += words + 1;
    }
    false
}

/// A command as `MONITOR` shows it: time, database, address, quoted arguments.
fn shown(cx: &Context<'_>, args: Args<'_>) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, micros) = (now.as_secs(), now.subsec_micros());
    let peer = match cx.known().map(|client| &client.peer) {
        _ if cx.origin.is_script() => "lua".into(),
        Some(Address::Unix(path)) => format!("unix:{}", path.display()),
        Some(Address::Net(address)) => address.to_string(),
        None => String::new(),
    };
    let mut line = format!("+{seconds}.{micros:06} [{} {peer}]", cx.db()).into_bytes();
    for (index, arg) in args.iter_from(0).enumerate() {
        line.extend_from_slice(b" \"");
        if is_secret(cx.command, args, index) {
            line.extend_from_slice(b"(redacted)");
        } else {
            quote(arg, &mut line);
        }
        line.push(b'"');
    }
    line.extend_from_slice(b"\r\n");
    line
}

/// Appends bytes as they read within double quotes.
fn quote(bytes: &[u8], line: &mut Vec<u8>) {
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => line.extend([b'\\', byte]),
            b'\n' => line.extend(b"\\n"),
            b'\r' => line.extend(b"\\r"),
            b'\t' => line.extend(b"\\t"),
            7 => line.extend(b"\\a"),
            8 => line.extend(b"\\b"),
            b' '..=b'~' => line.push(byte),
            _ => line.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
}

/// The front of an argument, and how long that is in all.
fn shorten((front, len): (&[u8], usize)) -> Vec<u8> {
    let mut short = front.to_vec();
    let more = len - front.len();
    if more == 0 {
        return short;
    }
    short.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
    short
}
