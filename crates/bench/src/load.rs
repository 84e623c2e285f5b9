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
//!   counts from when they were due. What was due by the end of the time and found
//!   no connection free is counted as unsent, with what it waited until the end.
//!
//! What a user of redis-benchmark calls a connection is a *client* here: one source
//! of requests and one link to the server, or, over a cluster, a link to each node.
//! A request goes to the node that has its key's slot; one answered with `MOVED` is
//! sent again to where it says, and the slot is remembered.
//!
//! ```text
//!   client 0: source --+-- link 0 -- node A     standalone: one link each
//!                      +-- link 1 -- node B
//!   client 1: source --+-- link 2 -- node A
//!                      +-- link 3 -- node B
//! ```
//!
//! Cost: one core sends and counts several million small pipelined requests a
//! second; a connection takes a few hundred bytes and what its unanswered
//! requests weigh.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::cluster::{Topology, slot_of_request};
use crate::endpoint::{ControlError, Endpoint};
use crate::latency::Latency;
use crate::pace::Pace;
use crate::reply::{Outcome, ReplyScanner};
use crate::source::Source;
use crate::transport::Transport;

/// What one read may bring, and what a link may read or write before the others
/// have their turn: a reply or request of megabytes holds up nobody.
const TURN_BYTES: usize = 256 * 1024;
/// The longest reply that is kept whole for a source that wants to see it.
const REPLY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// A server that owes replies and sends none for so long has hung; or, once the
/// user wants an end, is not waited for any longer.
const SILENCE_MAX: Duration = Duration::from_mins(1);
const SILENCE_STOPPED_MAX: Duration = Duration::from_secs(1);
/// How often a thread that waits looks at the clock and the stop flag.
const LOOK_UP: Duration = Duration::from_millis(100);
/// Answered bytes that a link over a cluster may keep before it closes the gap.
const KEPT_BYTES_MAX: usize = 256 * 1024;
/// The timer's token; links have their index.
const TIMER: Token = Token(usize::MAX - 1);

/// Makes the source of one connection, by its index.
pub type MakeSource<'a> = dyn Fn(usize) -> Box<dyn Source> + Sync + 'a;

/// A load to be run.
pub struct Load<'a> {
    /// Where to.
    pub endpoint: &'a Endpoint,
    /// The nodes and their slots, if it is a cluster.
    pub cluster: Option<&'a Topology>,
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
    /// Latency of every reply, errors included, and of what is `unsent` the time
    /// until the end.
    pub latency: Latency,
    /// Error replies.
    pub errors: u64,
    /// Open loop: requests that were due in time and could not be sent.
    pub unsent: u64,
}

impl KindOutcome {
    /// Replies.
    pub fn answered(&self) -> u64 {
        self.latency.count() - self.unsent
    }
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
    /// Requests that were sent again to another node of the cluster.
    pub redirected: u64,
    /// Bytes of requests written.
    pub sent_bytes: u64,
    /// Bytes of replies read.
    pub received_bytes: u64,
}

impl LoadOutcome {
    /// Replies of all kinds.
    pub fn answered(&self) -> u64 {
        self.kinds.iter().map(KindOutcome::answered).sum()
    }

    fn merge(&mut self, other: LoadOutcome) {
        self.elapsed = self.elapsed.max(other.elapsed);
        for (mine, theirs) in self.kinds.iter_mut().zip(other.kinds) {
            mine.latency.merge(&theirs.latency);
            mine.errors += theirs.errors;
            mine.unsent += theirs.unsent;
        }
        self.first_error = self.first_error.take().or(other.first_error);
        self.failure = self.failure.take().or(other.failure);
        self.redirected += other.redirected;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
    }
}

/// Runs a load to its end. An error means that it could not begin.
pub fn run(load: &Load<'_>, live: &Live) -> Result<LoadOutcome, ControlError> {
    let threads = load.threads.clamp(1, load.connections.max(1));
    let mut shares: Vec<Share> = (0..threads).map(|_| Share::default()).collect();
    for index in 0..load.connections.max(1) {
        let share = &mut shares[index % threads];
        let mut client = Client::new((load.source)(index));
        let nodes = load.cluster.map_or(std::slice::from_ref(load.endpoint), |c| &c.nodes);
        for (node, endpoint) in nodes.iter().enumerate() {
            client.links.push(share.links.len());
            let owner = Place { client: share.clients.len(), node };
            share.links.push(Link::open(endpoint, owner, load.cluster.is_some())?);
        }
        share.clients.push(client);
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
                    match Worker::new(load, live, share, threads) {
                        Ok(worker) => worker.run(),
                        Err(error) => LoadOutcome {
                            failure: Some(format!("a load thread could not begin: {error}")),
                            ..empty_outcome(load.kinds)
                        },
                    }
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

/// What one thread works with.
#[derive(Default)]
struct Share {
    clients: Vec<Client>,
    links: Vec<Link>,
}

struct Client {
    source: Box<dyn Source>,
    wants_replies: bool,
    /// Its links, by node.
    links: Vec<usize>,
    in_flight: usize,
    /// Its source or the run has no more requests for it.
    ended: bool,
}

impl Client {
    fn new(source: Box<dyn Source>) -> Self {
        let wants_replies = source.wants_replies();
        Self { wants_replies, source, links: Vec::new(), in_flight: 0, ended: false }
    }
}

/// Whose link it is, and to which node.
#[derive(Debug, Clone, Copy)]
struct Place {
    client: usize,
    node: usize,
}

struct Link {
    stream: Transport<TcpStream>,
    place: Place,
    scanner: ReplyScanner,
    /// Requests not yet written; `out[..written]` are.
    out: Vec<u8>,
    written: usize,
    /// What follows them, and how much of it is written.
    rest: Option<(Arc<[u8]>, usize)>,
    /// It has more to read or write than a turn allows, and needs no event.
    again: bool,
    /// The beginning of a reply, of which `scanned` bytes were scanned.
    held: Vec<u8>,
    scanned: usize,
    runs: VecDeque<Run>,
    /// Over a cluster: what is not answered yet, to be sent again if it moved.
    unanswered: Option<Unanswered>,
}

/// Requests in the order in which they were sent.
#[derive(Debug, Default)]
struct Unanswered {
    /// `bytes[..answered]` need not be kept.
    bytes: Vec<u8>,
    answered: usize,
    lengths: VecDeque<usize>,
}

impl Unanswered {
    fn push(&mut self, request: &[u8]) {
        self.bytes.extend_from_slice(request);
        self.lengths.push_back(request.len());
    }

    /// The oldest one, which has been answered.
    fn pop(&mut self) -> &[u8] {
        if self.answered == self.bytes.len() || self.answered > KEPT_BYTES_MAX {
            self.bytes.drain(..self.answered);
            self.answered = 0;
        }
        let length = self.lengths.pop_front().unwrap_or(0);
        self.answered += length;
        &self.bytes[self.answered - length..self.answered]
    }
}

/// A request that another node has to answer.
struct Redirected {
    node: usize,
    kind: usize,
    since: Instant,
    request: Vec<u8>,
}

impl Link {
    fn open(endpoint: &Endpoint, place: Place, keep: bool) -> Result<Self, ControlError> {
        let mut stream = endpoint.open()?.into_stream();
        let lost = |cause| ControlError::Lost { address: endpoint.address(), cause };
        stream.socket().set_nonblocking(true).map_err(lost)?;
        Ok(Self {
            stream: stream.map(TcpStream::from_std),
            place,
            scanner: ReplyScanner::default(),
            out: Vec::new(),
            written: 0,
            rest: None,
            again: false,
            held: Vec::new(),
            scanned: 0,
            runs: VecDeque::new(),
            unanswered: keep.then(Unanswered::default),
        })
    }

    /// The last request in `out` is of that kind and counts from `since`.
    fn note(&mut self, kind: usize, since: Instant) {
        match self.runs.back_mut() {
            Some(run) if run.kind == kind && run.since == since => run.left += 1,
            _ => self.runs.push_back(Run { kind, left: 1, since }),
        }
    }

    /// Appends a request that may have to be sent again.
    fn push(&mut self, request: &[u8], kind: usize, since: Instant) {
        self.out.extend_from_slice(request);
        if let Some(unanswered) = &mut self.unanswered {
            unanswered.push(request);
        }
        self.note(kind, since);
    }

    /// Writes what the socket takes, at most a turn's bytes. Returns how many it
    /// took, and whether it might take more.
    fn flush(&mut self) -> io::Result<(usize, bool)> {
        let mut wrote = 0;
        while wrote < TURN_BYTES {
            let (from, written) = match &mut self.rest {
                _ if self.written < self.out.len() => (&self.out[..], &mut self.written),
                Some((rest, written)) if *written < rest.len() => (&rest[..], written),
                _ => {
                    self.out.clear();
                    (self.written, self.rest) = (0, None);
                    return match self.stream.flush() {
                        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
                        _ => Ok((wrote, false)),
                    };
                }
            };
            let end = from.len().min(*written + TURN_BYTES - wrote);
            match self.stream.write(&from[*written..end]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    *written += bytes;
                    wrote += bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok((wrote, false));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok((wrote, true))
    }
}

struct Worker<'a> {
    load: &'a Load<'a>,
    live: &'a Live,
    poll: Poll,
    clients: Vec<Client>,
    links: Vec<Link>,
    cluster: Option<Topology>,
    pace: Option<Pace>,
    /// Open loop: a token, the client's index, for each request that may be sent;
    /// oldest first, so that clients take turns.
    room: VecDeque<usize>,
    scratch: Vec<u8>,
    /// Over a cluster: the request whose node is looked for.
    request: Vec<u8>,
    outcome: LoadOutcome,
    /// Links that go on without an event, each marked so.
    again: Vec<usize>,
    /// The link that was worked on last, to name its node in an error.
    touched: usize,
    start: Instant,
    last_reply: Instant,
    deadline: Option<Instant>,
    /// No more requests are to be sent.
    closing: bool,
    /// Open loop: requests that were due before that and found no room.
    unsent: u64,
}

impl<'a> Worker<'a> {
    fn new(load: &'a Load<'a>, live: &'a Live, share: Share, threads: usize) -> io::Result<Self> {
        let start = Instant::now();
        let room = match load.rate {
            Some(_) => (0..load.pipeline).flat_map(|_| 0..share.clients.len()).collect(),
            None => VecDeque::new(),
        };
        Ok(Self {
            load,
            live,
            poll: Poll::new()?,
            pace: load.rate.map(|rate| Pace::new(start, rate / threads as f64, load.duration)),
            room,
            clients: share.clients,
            links: share.links,
            cluster: load.cluster.cloned(),
            scratch: vec![0; TURN_BYTES],
            request: Vec::new(),
            outcome: empty_outcome(load.kinds),
            again: Vec::new(),
            touched: 0,
            start,
            last_reply: start,
            deadline: load.duration.map(|duration| start + duration),
            closing: false,
            unsent: 0,
        })
    }

    fn run(mut self) -> LoadOutcome {
        if let Err(error) = self.drive() {
            self.live.stop.store(true, Ordering::Relaxed);
            let after = self.live.answered.load(Ordering::Relaxed);
            let node = self.links.get(self.touched).map_or(0, |link| link.place.node);
            let nodes = self.cluster.as_ref().map(|cluster| &cluster.nodes);
            let endpoint = nodes.and_then(|nodes| nodes.get(node)).unwrap_or(self.load.endpoint);
            let what = describe(&error);
            self.outcome.failure =
                Some(format!("{} {what} after {after} replies", endpoint.address()));
        }
        self.outcome.elapsed = self.last_reply - self.start;
        self.outcome
    }

    fn drive(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        for index in 0..self.links.len() {
            self.register(index)?;
        }
        let timer = match self.pace {
            Some(_) => Some(Timer::new(&self.poll)?),
            None => None,
        };
        if self.pace.is_none() {
            for client in 0..self.clients.len() {
                self.refill(client)?;
            }
        }
        loop {
            let now = Instant::now();
            let stopped = self.live.stop.load(Ordering::Relaxed);
            if timer.is_some() {
                // What was due in time is sent even if this thread wakes up late.
                self.send_due(now)?;
            }
            if !self.closing && (stopped || self.deadline.is_some_and(|deadline| now >= deadline)) {
                self.closing = true;
                self.count_unsent(now);
            }
            if let Some(timer) = &timer {
                timer.set(self.next_wake(now))?;
            }
            if self.is_done() {
                self.charge_unsent();
                return Ok(());
            }
            let silent = now.saturating_duration_since(self.last_reply);
            if stopped && silent > SILENCE_STOPPED_MAX {
                self.charge_unsent();
                return Ok(());
            }
            if silent > SILENCE_MAX && self.owes_replies() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "sent nothing for a minute"));
            }
            let until_deadline = self.deadline.filter(|_| !self.closing);
            let patience = match until_deadline {
                _ if !self.again.is_empty() => Duration::ZERO,
                Some(deadline) => deadline.saturating_duration_since(now).min(LOOK_UP),
                None => LOOK_UP,
            };
            if let Err(error) = self.poll.poll(&mut events, Some(patience)) {
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
                self.touched = index;
                if event.is_readable() || event.is_read_closed() || event.is_error() {
                    self.read(index)?;
                }
                self.flush_link(index)?;
            }
            for index in std::mem::take(&mut self.again) {
                self.touched = index;
                self.links[index].again = false;
                self.read(index)?;
                self.flush_link(index)?;
            }
        }
    }

    fn register(&mut self, index: usize) -> io::Result<()> {
        let socket = self.links[index].stream.socket();
        let both = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(socket, Token(index), both)
    }

    fn owes_replies(&self) -> bool {
        self.clients.iter().any(|client| client.in_flight > 0)
    }

    fn is_done(&self) -> bool {
        self.clients.iter().all(|client| client.in_flight == 0 && (self.closing || client.ended))
    }

    /// Takes up to `want` requests from what is left of the run.
    fn claim(&self, want: usize) -> usize {
        let Some(requests) = self.load.requests else { return want };
        let before = self.live.claimed.fetch_add(want as u64, Ordering::Relaxed);
        requests.saturating_sub(before).min(want as u64) as usize
    }

    /// Appends a client's next request, which counts from `since`, to the link that
    /// it belongs on. Returns false when its source has no more.
    fn push(&mut self, client: usize, since: Instant) -> bool {
        let owner = &mut self.clients[client];
        let Some(cluster) = &self.cluster else {
            let link = &mut self.links[owner.links[0]];
            let Some(kind) = owner.source.next(&mut link.out) else {
                owner.ended = true;
                return false;
            };
            match owner.source.rest() {
                Some(rest) if self.load.pipeline == 1 => link.rest = Some((rest, 0)),
                Some(rest) => link.out.extend_from_slice(&rest),
                None => {}
            }
            owner.in_flight += 1;
            link.note(kind, since);
            return true;
        };
        self.request.clear();
        let Some(kind) = owner.source.next(&mut self.request) else {
            owner.ended = true;
            return false;
        };
        if let Some(rest) = owner.source.rest() {
            self.request.extend_from_slice(&rest);
        }
        // Any node may answer what names no key.
        let node = slot_of_request(&self.request)
            .map_or(owner.in_flight % owner.links.len(), |slot| cluster.owner(slot));
        owner.in_flight += 1;
        self.links[owner.links[node]].push(&self.request, kind, since);
        true
    }

    /// Writes what a client's links have to send.
    fn flush(&mut self, client: usize) -> io::Result<()> {
        for at in 0..self.clients[client].links.len() {
            let index = self.clients[client].links[at];
            if !self.links[index].out.is_empty() {
                self.touched = index;
                self.flush_link(index)?;
            }
        }
        Ok(())
    }

    fn flush_link(&mut self, index: usize) -> io::Result<()> {
        let (wrote, more) = self.links[index].flush()?;
        self.outcome.sent_bytes += wrote as u64;
        if more {
            self.go_on_with(index);
        }
        Ok(())
    }

    /// A link has its next turn without an event.
    fn go_on_with(&mut self, index: usize) {
        if !std::mem::replace(&mut self.links[index].again, true) {
            self.again.push(index);
        }
    }

    /// Closed loop: sends the next batch of a client that has been answered.
    fn refill(&mut self, client: usize) -> io::Result<()> {
        if self.closing || self.clients[client].ended {
            return Ok(());
        }
        let granted = self.claim(self.load.pipeline);
        if granted < self.load.pipeline {
            self.clients[client].ended = true;
        }
        let now = Instant::now();
        for _ in 0..granted {
            if !self.push(client, now) {
                break;
            }
        }
        self.flush(client)
    }

    /// Open loop: sends what is due, as far as there is room.
    fn send_due(&mut self, now: Instant) -> io::Result<()> {
        let Some(mut pace) = self.pace.take() else { return Ok(()) };
        while !self.closing {
            let Some(&index) = self.room.front() else { break };
            let Some(due) = pace.take(now) else { break };
            self.room.pop_front();
            if self.claim(1) == 0 || !self.push(index, due) {
                self.closing = true;
                break;
            }
            self.flush(index)?;
        }
        self.pace = Some(pace);
        Ok(())
    }

    /// Open loop, as it closes at `now`: what was due by then and was not sent.
    fn count_unsent(&mut self, now: Instant) {
        let Some(pace) = &self.pace else { return };
        let overdue = pace.overdue(now).min(self.load.requests.unwrap_or(u64::MAX));
        self.unsent = self.claim(overdue as usize) as u64;
    }

    /// Open loop, at the very end: records what the unsent have waited. Of which
    /// kind each would have been only its source knows: they are shared among the
    /// kinds as the replies are.
    fn charge_unsent(&mut self) {
        let Some(pace) = self.pace.as_ref().filter(|_| self.unsent > 0) else { return };
        let now = Instant::now();
        let answered = self.outcome.answered();
        let (mut left, mut of) = (self.unsent, answered);
        let last = self.outcome.kinds.len() - 1;
        for (index, kind) in self.outcome.kinds.iter_mut().enumerate() {
            let replies = kind.answered();
            let share = match index == last || of == 0 {
                true => left,
                false => (u128::from(left) * u128::from(replies) / u128::from(of)) as u64,
            };
            let record = |wait, count| kind.latency.record(wait, count);
            pace.waits(share, self.unsent, now, record);
            kind.unsent = share;
            left -= share;
            of -= replies;
        }
    }

    /// Open loop: when to wake though no reply comes.
    fn next_wake(&self, now: Instant) -> Option<Duration> {
        let pace = self.pace.as_ref().filter(|_| !self.closing && !self.room.is_empty())?;
        Some(pace.wait(now))
    }

    /// Reads what a link has, or as much as a turn allows, and counts the replies
    /// in it.
    fn read(&mut self, index: usize) -> io::Result<()> {
        let mut taken = 0;
        loop {
            let link = &mut self.links[index];
            let held = link.held.len();
            if held > REPLY_BYTES_MAX {
                return Err(io::Error::other("sent a reply over 256 MiB"));
            }
            if self.scratch.len() < held + TURN_BYTES {
                self.scratch.resize(held + TURN_BYTES, 0);
            }
            self.scratch[..held].copy_from_slice(&link.held);
            let bytes = match link.stream.read(&mut self.scratch[held..]) {
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
            let Place { client, node } = link.place;
            let short_read_empties = link.stream.short_read_empties();
            let mut moved = Vec::new();
            let replies = Replies {
                client: &mut self.clients[client],
                cluster: self.cluster.as_mut(),
                node,
                moved: &mut moved,
                kinds: &mut self.outcome.kinds,
                first_error: &mut self.outcome.first_error,
            }
            .count(link, &self.scratch[..filled], now)?;
            self.send_again(client, moved)?;
            if replies > 0 {
                self.last_reply = now;
                self.live.answered.fetch_add(replies as u64, Ordering::Relaxed);
                if self.pace.is_some() {
                    self.room.extend(std::iter::repeat_n(client, replies));
                } else if self.clients[client].in_flight == 0 {
                    return self.refill(client);
                }
            }
            // A short read has emptied the socket: epoll tells of what comes next.
            if bytes < room && short_read_empties {
                return Ok(());
            }
            taken += bytes;
            if taken >= TURN_BYTES {
                self.go_on_with(index);
                return Ok(());
            }
        }
    }

    /// Sends what has moved to where it has moved.
    fn send_again(&mut self, client: usize, moved: Vec<Redirected>) -> io::Result<()> {
        if moved.is_empty() {
            return Ok(());
        }
        for Redirected { node, kind, since, request } in moved {
            while self.clients[client].links.len() <= node {
                self.add_link(client)?;
            }
            self.outcome.redirected += 1;
            let link = self.clients[client].links[node];
            self.links[link].push(&request, kind, since);
        }
        self.flush(client)
    }

    /// Connects a client to the first node that it has no link to.
    fn add_link(&mut self, client: usize) -> io::Result<()> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        let node = self.clients[client].links.len();
        let link = Link::open(&cluster.nodes[node], Place { client, node }, true)
            .map_err(io::Error::other)?;
        let index = self.links.len();
        self.links.push(link);
        self.clients[client].links.push(index);
        self.register(index)
    }
}

/// Where replies are counted.
struct Replies<'a> {
    client: &'a mut Client,
    cluster: Option<&'a mut Topology>,
    /// The node that replies.
    node: usize,
    moved: &'a mut Vec<Redirected>,
    kinds: &'a mut [KindOutcome],
    first_error: &'a mut Option<String>,
}

impl Replies<'_> {
    /// Scans `input` (what the link held, then what was read), records the replies
    /// that are complete and holds what is not. Returns how many there were.
    fn count(mut self, link: &mut Link, input: &[u8], now: Instant) -> io::Result<usize> {
        let Link { scanner, runs, scanned, held, unanswered, .. } = link;
        let Client { source, wants_replies, in_flight, .. } = &mut *self.client;
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
                run.left -= 1;
                let request = unanswered.as_mut().map_or(&[][..], Unanswered::pop);
                let mut answered = true;
                if let Outcome::Error(text) = outcome {
                    let to = self.cluster.as_mut().and_then(|known| known.learn(self.node, text));
                    if let Some(node) = to {
                        let (kind, since, request) = (run.kind, run.since, request.to_vec());
                        self.moved.push(Redirected { node, kind, since, request });
                        answered = false;
                    } else {
                        self.kinds[run.kind].errors += 1;
                        let text = || String::from_utf8_lossy(text).into_owned();
                        self.first_error.get_or_insert_with(text);
                    }
                }
                if answered {
                    replies += 1;
                    of_run += 1;
                }
                if *wants_replies {
                    if answered {
                        source.reply(run.kind, &input[reply_start..from + end]);
                    }
                    reply_start = from + end;
                }
                if run.left == 0 {
                    if of_run > 0 {
                        let latency = now.saturating_duration_since(run.since);
                        self.kinds[run.kind].latency.record(latency, of_run);
                        of_run = 0;
                    }
                    runs.pop_front();
                }
            })
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        if unasked {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "sent a reply to no request"));
        }
        if let Some(run) = runs.front().filter(|_| of_run > 0) {
            let latency = now.saturating_duration_since(run.since);
            self.kinds[run.kind].latency.record(latency, of_run);
        }
        let keep_from = if *wants_replies { reply_start } else { from + consumed };
        *scanned = from + consumed - keep_from;
        held.clear();
        held.extend_from_slice(&input[keep_from..]);
        *in_flight -= replies;
        Ok(replies)
    }
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
