//! The load itself: connections over threads, requests out, replies counted.
//!
//! Each thread owns its connections and one epoll instance; nothing is shared
//! while it runs but three atomics: what is left to send, what was answered, and
//! whether to stop. Two ways to drive a server:
//!
//! * **closed loop** (flat out): a connection sends `pipeline` requests in one
//!   write, waits for all the replies, and goes on, as redis-benchmark does. The
//!   latency of a request is that of its batch up to its reply.
//! * **open loop** (a rate): requests are due by the clock (see [`crate::pace`]),
//!   go to any connection with fewer than `pipeline` in flight, and their latency
//!   counts from when they were due.
//!
//! Cost: one core sends and counts several million small pipelined requests a
//! second; a connection takes a few hundred bytes and what its unanswered
//! requests weigh.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::endpoint::{ControlError, Endpoint};
use crate::latency::Latency;
use crate::pace::Pace;
use crate::reply::{Outcome, ReplyScanner};
use crate::source::Source;

/// What one read may bring.
const READ_BYTES: usize = 256 * 1024;
/// The longest reply that is kept whole for a source that wants to see it.
const REPLY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// A server that owes replies and sends none for so long has hung.
const SILENCE_MAX: Duration = Duration::from_mins(1);
/// How often a thread that waits looks at the clock and the stop flag.
const LOOK_UP: Duration = Duration::from_millis(100);
/// The timer's token; connections have their index.
const TIMER: Token = Token(usize::MAX - 1);

/// Makes the source of one connection, by its index.
pub type MakeSource<'a> = dyn Fn(usize) -> Box<dyn Source> + Sync + 'a;

/// A load to be run.
pub struct Load<'a> {
    /// Where to.
    pub endpoint: &'a Endpoint,
    /// Threads that share the connections; at least 1.
    pub threads: usize,
    /// Connections; at least 1.
    pub connections: usize,
    /// Requests in flight on each connection; at least 1.
    pub pipeline: usize,
    /// Requests to send in all, unless the time or the sources end first.
    pub requests: Option<u64>,
    /// How long to send.
    pub duration: Option<Duration>,
    /// Requests a second over all connections (open loop), or flat out.
    pub rate: Option<f64>,
    /// Kinds of request that the sources name: 0 up to this.
    pub kinds: usize,
    /// Makes each connection's source.
    pub source: &'a MakeSource<'a>,
}

/// What can be seen and done while a load runs.
#[derive(Debug, Default)]
pub struct Live {
    /// Replies so far.
    pub answered: AtomicU64,
    /// Set to end the run early; it ends by itself on a failure.
    pub stop: AtomicBool,
    claimed: AtomicU64,
}

/// What came of one kind of request.
#[derive(Debug, Clone, Default)]
pub struct KindOutcome {
    /// Latency of every reply, errors included.
    pub latency: Latency,
    /// Error replies.
    pub errors: u64,
}

/// What came of a load. After a failure it holds what was measured until then.
#[derive(Debug, Clone, Default)]
pub struct LoadOutcome {
    /// From the first request to the last reply.
    pub elapsed: Duration,
    /// By kind.
    pub kinds: Vec<KindOutcome>,
    /// The first error reply, if any.
    pub first_error: Option<String>,
    /// Why it ended early, if it did.
    pub failure: Option<String>,
    /// Bytes of requests written.
    pub sent_bytes: u64,
    /// Bytes of replies read.
    pub received_bytes: u64,
}

impl LoadOutcome {
    /// Replies of all kinds.
    pub fn answered(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.latency.count()).sum()
    }

    fn merge(&mut self, other: LoadOutcome) {
        self.elapsed = self.elapsed.max(other.elapsed);
        for (mine, theirs) in self.kinds.iter_mut().zip(other.kinds) {
            mine.latency.merge(&theirs.latency);
            mine.errors += theirs.errors;
        }
        self.first_error = self.first_error.take().or(other.first_error);
        self.failure = self.failure.take().or(other.failure);
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
    }
}

/// Runs a load to its end. An error means that it could not begin.
pub fn run(load: &Load<'_>, live: &Live) -> Result<LoadOutcome, ControlError> {
    let threads = load.threads.clamp(1, load.connections.max(1));
    let mut shares: Vec<Vec<Connection>> = (0..threads).map(|_| Vec::new()).collect();
    for index in 0..load.connections.max(1) {
        let stream = load.endpoint.open()?.into_stream();
        let lost = |cause| ControlError::Lost { address: load.endpoint.address(), cause };
        stream.set_nonblocking(true).map_err(lost)?;
        let stream = TcpStream::from_std(stream);
        shares[index % threads].push(Connection::new(stream, (load.source)(index)));
    }
    let barrier = Barrier::new(threads);
    let barrier = &barrier;
    let mut outcome = empty_outcome(load.kinds);
    std::thread::scope(|scope| {
        let workers: Vec<_> = shares
            .into_iter()
            .map(|share| {
                scope.spawn(move || {
                    barrier.wait();
                    Worker::new(load, live, share, threads).run()
                })
            })
            .collect();
        for worker in workers {
            match worker.join() {
                Ok(part) => outcome.merge(part),
                Err(_) => outcome.failure = Some("a load thread failed".into()),
            }
        }
    });
    Ok(outcome)
}

fn empty_outcome(kinds: usize) -> LoadOutcome {
    LoadOutcome { kinds: vec![KindOutcome::default(); kinds], ..LoadOutcome::default() }
}

/// Consecutive requests of one kind that count from the same moment.
#[derive(Debug)]
struct Run {
    kind: usize,
    left: usize,
    since: Instant,
}

struct Connection {
    stream: TcpStream,
    source: Box<dyn Source>,
    wants_replies: bool,
    scanner: ReplyScanner,
    /// Requests not yet written; `out[..written]` are.
    out: Vec<u8>,
    written: usize,
    /// The beginning of a reply, of which `scanned` bytes were scanned.
    held: Vec<u8>,
    scanned: usize,
    runs: VecDeque<Run>,
    in_flight: usize,
    /// Its source or the run has no more requests for it.
    ended: bool,
}

impl Connection {
    fn new(stream: TcpStream, source: Box<dyn Source>) -> Self {
        Self {
            stream,
            wants_replies: source.wants_replies(),
            source,
            scanner: ReplyScanner::default(),
            out: Vec::new(),
            written: 0,
            held: Vec::new(),
            scanned: 0,
            runs: VecDeque::new(),
            in_flight: 0,
            ended: false,
        }
    }

    /// Appends one request that counts from `since`.
    fn push(&mut self, since: Instant) -> bool {
        let Some(kind) = self.source.next(&mut self.out) else {
            self.ended = true;
            return false;
        };
        self.in_flight += 1;
        match self.runs.back_mut() {
            Some(run) if run.kind == kind && run.since == since => run.left += 1,
            _ => self.runs.push_back(Run { kind, left: 1, since }),
        }
        true
    }

    /// Writes what the socket takes. Returns the bytes written.
    fn flush(&mut self) -> io::Result<usize> {
        let before = self.written;
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(self.written - before);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let wrote = self.written - before;
        self.out.clear();
        self.written = 0;
        Ok(wrote)
    }
}

struct Worker<'a> {
    load: &'a Load<'a>,
    live: &'a Live,
    connections: Vec<Connection>,
    pace: Option<Pace>,
    /// Open loop: a token, the connection's index, for each request that may be
    /// sent; oldest first, so that connections take turns.
    room: VecDeque<usize>,
    scratch: Vec<u8>,
    outcome: LoadOutcome,
    start: Instant,
    last_reply: Instant,
    deadline: Option<Instant>,
    /// No more requests are to be sent.
    closing: bool,
}

impl<'a> Worker<'a> {
    fn new(
        load: &'a Load<'a>,
        live: &'a Live,
        connections: Vec<Connection>,
        threads: usize,
    ) -> Self {
        let start = Instant::now();
        let room = match load.rate {
            Some(_) => (0..load.pipeline).flat_map(|_| 0..connections.len()).collect(),
            None => VecDeque::new(),
        };
        Self {
            load,
            live,
            pace: load.rate.map(|rate| Pace::new(start, rate / threads as f64)),
            room,
            connections,
            scratch: vec![0; READ_BYTES],
            outcome: empty_outcome(load.kinds),
            start,
            last_reply: start,
            deadline: load.duration.map(|duration| start + duration),
            closing: false,
        }
    }

    fn run(mut self) -> LoadOutcome {
        if let Err(error) = self.drive() {
            self.live.stop.store(true, Ordering::Relaxed);
            let after = self.live.answered.load(Ordering::Relaxed);
            self.outcome.failure = Some(format!(
                "{} {} after {after} replies",
                self.load.endpoint.address(),
                describe(&error)
            ));
        }
        self.outcome.elapsed = self.last_reply - self.start;
        self.outcome
    }

    fn drive(&mut self) -> io::Result<()> {
        let mut poll = Poll::new()?;
        let mut events = Events::with_capacity(1024);
        for (index, connection) in self.connections.iter_mut().enumerate() {
            poll.registry().register(
                &mut connection.stream,
                Token(index),
                Interest::READABLE | Interest::WRITABLE,
            )?;
        }
        let timer = match self.pace {
            Some(_) => Some(Timer::new(&poll)?),
            None => None,
        };
        if self.pace.is_none() {
            for index in 0..self.connections.len() {
                self.refill(index)?;
            }
        }
        loop {
            let now = Instant::now();
            if self.deadline.is_some_and(|deadline| now >= deadline)
                || self.live.stop.load(Ordering::Relaxed)
            {
                self.closing = true;
            }
            if let Some(timer) = &timer {
                self.send_due(now)?;
                timer.set(self.next_wake(now))?;
            }
            if self.is_done() {
                return Ok(());
            }
            let silent = now.saturating_duration_since(self.last_reply);
            if silent > SILENCE_MAX && self.owes_replies() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "sent nothing for a minute"));
            }
            let until_deadline = self.deadline.filter(|_| !self.closing);
            let patience = until_deadline
                .map_or(LOOK_UP, |deadline| deadline.saturating_duration_since(now).min(LOOK_UP));
            if let Err(error) = poll.poll(&mut events, Some(patience)) {
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(error);
            }
            for event in &events {
                if event.token() == TIMER {
                    continue;
                }
                let index = event.token().0;
                if event.is_readable() || event.is_read_closed() || event.is_error() {
                    self.read(index)?;
                }
                self.outcome.sent_bytes += self.connections[index].flush()? as u64;
            }
        }
    }

    fn owes_replies(&self) -> bool {
        self.connections.iter().any(|connection| connection.in_flight > 0)
    }

    fn is_done(&self) -> bool {
        self.connections
            .iter()
            .all(|connection| connection.in_flight == 0 && (self.closing || connection.ended))
    }

    /// Takes up to `want` requests from what is left of the run.
    fn claim(&self, want: usize) -> usize {
        let Some(requests) = self.load.requests else { return want };
        let before = self.live.claimed.fetch_add(want as u64, Ordering::Relaxed);
        requests.saturating_sub(before).min(want as u64) as usize
    }

    /// Closed loop: sends the next batch of a connection that has been answered.
    fn refill(&mut self, index: usize) -> io::Result<()> {
        if self.closing || self.connections[index].ended {
            return Ok(());
        }
        let granted = self.claim(self.load.pipeline);
        let connection = &mut self.connections[index];
        if granted < self.load.pipeline {
            connection.ended = true;
        }
        let now = Instant::now();
        for _ in 0..granted {
            if !connection.push(now) {
                break;
            }
        }
        self.outcome.sent_bytes += connection.flush()? as u64;
        Ok(())
    }

    /// Open loop: sends what is due, as far as there is room.
    fn send_due(&mut self, now: Instant) -> io::Result<()> {
        let Some(mut pace) = self.pace.take() else { return Ok(()) };
        while !self.closing {
            let Some(&index) = self.room.front() else { break };
            let Some(due) = pace.take(now) else { break };
            self.room.pop_front();
            if self.claim(1) == 0 || !self.connections[index].push(due) {
                self.closing = true;
                break;
            }
            self.outcome.sent_bytes += self.connections[index].flush()? as u64;
        }
        self.pace = Some(pace);
        Ok(())
    }

    /// Open loop: when to wake though no reply comes.
    fn next_wake(&self, now: Instant) -> Option<Duration> {
        let pace = self.pace.as_ref().filter(|_| !self.closing && !self.room.is_empty())?;
        Some(pace.wait(now))
    }

    /// Reads all that a connection has and counts the replies in it.
    fn read(&mut self, index: usize) -> io::Result<()> {
        let connection = &mut self.connections[index];
        loop {
            let held = connection.held.len();
            if held > REPLY_BYTES_MAX {
                return Err(io::Error::other("sent a reply over 256 MiB"));
            }
            if self.scratch.len() < held + READ_BYTES {
                self.scratch.resize(held + READ_BYTES, 0);
            }
            self.scratch[..held].copy_from_slice(&connection.held);
            let bytes = match connection.stream.read(&mut self.scratch[held..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let now = Instant::now();
            self.outcome.received_bytes += bytes as u64;
            let room = self.scratch.len() - held;
            let filled = held + bytes;
            let replies = count_replies(
                connection,
                &self.scratch[..filled],
                now,
                &mut self.outcome.kinds,
                &mut self.outcome.first_error,
            )?;
            if replies > 0 {
                self.last_reply = now;
                self.live.answered.fetch_add(replies as u64, Ordering::Relaxed);
                if self.pace.is_some() {
                    self.room.extend(std::iter::repeat_n(index, replies));
                } else if connection.in_flight == 0 {
                    return self.refill(index);
                }
            }
            // A short read has emptied the socket: epoll tells of what comes next.
            if bytes < room {
                return Ok(());
            }
        }
    }
}

/// Scans `input` (what was held, then what was read), records the replies that
/// are complete and holds what is not. Returns how many there were.
fn count_replies(
    connection: &mut Connection,
    input: &[u8],
    now: Instant,
    kinds: &mut [KindOutcome],
    first_error: &mut Option<String>,
) -> io::Result<usize> {
    let Connection { scanner, runs, source, wants_replies, scanned, .. } = connection;
    let from = *scanned;
    let mut reply_start = 0;
    let mut replies = 0;
    let mut of_run = 0;
    let mut unasked = false;
    let consumed = scanner
        .scan(&input[from..], |outcome, end| {
            let Some(run) = runs.front_mut() else {
                unasked = true;
                return;
            };
            replies += 1;
            of_run += 1;
            run.left -= 1;
            if let Outcome::Error(text) = outcome {
                kinds[run.kind].errors += 1;
                first_error.get_or_insert_with(|| String::from_utf8_lossy(text).into_owned());
            }
            if *wants_replies {
                source.reply(run.kind, &input[reply_start..from + end]);
                reply_start = from + end;
            }
            if run.left == 0 {
                kinds[run.kind].latency.record(now.saturating_duration_since(run.since), of_run);
                of_run = 0;
                runs.pop_front();
            }
        })
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
    if unasked {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "sent a reply to no request"));
    }
    if let Some(run) = runs.front().filter(|_| of_run > 0) {
        kinds[run.kind].latency.record(now.saturating_duration_since(run.since), of_run);
    }
    let keep_from = if *wants_replies { reply_start } else { from + consumed };
    *scanned = from + consumed - keep_from;
    connection.held.clear();
    connection.held.extend_from_slice(&input[keep_from..]);
    connection.in_flight -= replies;
    Ok(replies)
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            "closed the connection".into()
        }
        io::ErrorKind::BrokenPipe | io::ErrorKind::WriteZero => "closed the connection".into(),
        _ => format!("failed: {error}"),
    }
}

/// A one-shot timer with the clock's precision: epoll's own timeout is in whole
/// milliseconds, which would show in the latencies of an open loop.
struct Timer {
    descriptor: OwnedFd,
}

impl Timer {
    fn new(poll: &Poll) -> io::Result<Self> {
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)?;
        poll.registry().register(
            &mut SourceFd(&descriptor.as_fd().as_raw_fd()),
            TIMER,
            Interest::READABLE,
        )?;
        Ok(Self { descriptor })
    }

    /// Fires once after `wait`; never with `None`.
    fn set(&self, wait: Option<Duration>) -> io::Result<()> {
        // Zero would disarm it: what is due already fires in a nanosecond.
        let value = wait.map_or(Duration::ZERO, |wait| wait.max(Duration::from_nanos(1)));
        let value = Timespec {
            tv_sec: value.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: i64::from(value.subsec_nanos()),
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}
