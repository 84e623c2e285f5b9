//! A connection: a request enters here and its reply leaves here.
//!
//! ```text
//!  socket --read--> bytes --parse in place--> dispatch --> Out --write--> socket
//!             |                                             |
//!   worker's shared buffer, or the            worker's shared buffer; what the
//!   connection's own while a command          socket does not take at once waits
//!   is only partly there                      in the connection's queue
//! ```
//!
//! One hand-written future per connection, so that it waits for everything at
//! once (readable, writable, mail from other workers) at the cost of a poll,
//! and an idle connection owns no buffer. All that arrived is executed as one
//! batch and answered with one write. A turn is bounded ([`TURN_BYTES_MAX`]),
//! then others on the worker get theirs.

use crate::config::Param;
use crate::dispatch::{self, Asked};
use crate::engine::blocked::{self, Reason};
use crate::engine::call::Halt;
use crate::engine::client::{Caller, Client};
use crate::engine::large::Done;
use crate::engine::out::{Chunk, Out, Unpacking};
use crate::engine::server::Server;
use crate::follow::clients::Shared;
use crate::follow::pubsub::Subject;
use crate::measure::stats::Stat;
use crate::net::worker::{self, Scratch};
use crate::outside::clock::Instant;
use crate::peers::{Adopted, Moved, Order};
use crate::persist::durable::Until;
use crate::persist::rounds;
use crate::request::ahead::{Ahead, Keys};
use crate::request::args::{Args, Large, OwnedArgs};
use crate::request::error::Error;
use crate::sockets::stream::Stream;
use bytes::{Buf, Bytes};
use snug_codec::SegmentsFiller;
use snug_resp::{Limits, Parsed, Parser, ProtocolError, Writer};
use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context as Task, Poll, ready};
use std::time::Duration;
use tokio::time::Sleep;

/// What one connection may read and execute before others get their turn.
const TURN_BYTES_MAX: usize = 128 * 1024;
/// For how long it may execute before that.
const TURN_TIME_MAX: Duration = Duration::from_millis(1);
/// Bytes given to the socket at once, or one chunk more.
const SEND_AT_ONCE: usize = 128 * 1024;
/// Replies gathered before they are written, in bytes.
const WRITE_AT: usize = 256 * 1024;
/// Unread replies above which a client's requests are left unread. High, for a
/// client may send a whole pipeline before it reads the first reply.
const UNREAD_MAX: usize = 256 * 1024 * 1024;
/// The most that is read ahead of an incomplete command, in bytes.
const READ_AHEAD: usize = 64 * 1024;
/// Replies up to so many bytes count for no limit: Redis keeps them with the client
/// itself. What is beyond counts in pieces of this size.
const REPLY_BUFFER: usize = 16 * 1024;
/// An incomplete command with more bytes than this has a buffer of its own.
const OWN_BUFFER_FROM: usize = 16 * 1024;

/// One client's connection.
pub(crate) struct Connection {
    server: Arc<Server>,
    stream: Stream,
    caller: Caller,
    client: Client,
    parser: Parser,
    /// Bytes of a command that is not complete yet.
    pending: Vec<u8>,
    /// Large arguments of that command; the last may be on its way.
    large: Vec<Large>,
    filling: Option<SegmentsFiller>,
    /// Replies that the socket did not take yet.
    unsent: VecDeque<Chunk>,
    unsent_bytes: usize,
    soft_limit_since: Option<u64>,
    end_of_input: bool,
    /// Why the client's last command has no reply yet, if it has none: nothing is
    /// executed until it has.
    halt: Option<Halt>,
    /// Execution stopped there, or for others' sake: there may be input to go on
    /// with before more is read, and this command, if any, before that.
    resume: bool,
    stalled: Option<OwnedArgs>,
    /// The client is a replica now, and its socket somebody else's.
    handed_over: bool,
    /// What is sent tells of commits up to this one: it waits until they are written or on
    /// disk, if replies are to.
    held_until: u64,
    /// When a client that waits is to wait no longer.
    timer: Option<Pin<Box<Sleep>>>,
    /// Bytes that it took when others were last told.
    counted: usize,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.handed_over {
            self.server.clients.write().remove(&self.client.id());
        }
        self.server.client_memory.forget(&self.client.shared);
        match &self.halt {
            Some(Halt::Wait(waiter)) => waiter.leave(&self.server.blocked),
            Some(Halt::Pause) => self.server.pause.leave(self.client.id()),
            Some(Halt::Work(_) | Halt::Behind) | None => {}
        }
        worker::with(|scratch| {
            let batch = scratch.session.enter(crate::outside::clock::unix_ms());
            if let Some(Halt::Wait(waiter)) = &self.halt {
                self.server.blocked.remove(&batch, waiter);
            }
            crate::commands::transactions::unwatch_all(&self.server, &batch, &mut self.client);
            crate::commands::migrate::give_up(&self.server, &batch, &mut self.client);
        });
        self.server.pubsub.leave(&self.client.shared, &mut self.client.subscriptions);
        self.server.end_tracking(&mut self.client);
    }
}

/// Executes one command of a client, or tells why it has no reply yet; then serves
/// whom that has made ready.
#[inline]
fn dispatch_one(asked: &mut Asked<'_>, args: Args<'_>, out: &mut Out) -> Result<(), Halt> {
    let executed = dispatch::execute(asked, args, out);
    if blocked::any_ready() {
        asked.server.serve(asked.store, asked.worker);
    }
    executed
}

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The client closed it, or asked for it, or was told why.
    Closed,
    /// The socket failed.
    Io(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Future for Connection {
    type Output = End;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<End> {
        let turned = self.turn(task);
        self.count_memory();
        match turned {
            Poll::Ready(Err(end)) => Poll::Ready(end),
            Poll::Ready(Ok(())) => {
                // The turn is used up and there may be more: to the back of
                // the queue, and behind whoever has sent something meanwhile.
                let yielded = std::pin::pin!(tokio::task::yield_now()).poll(task);
                debug_assert!(yielded.is_pending());
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Connection {
    pub(crate) fn new(server: Arc<Server>, stream: Stream, shared: Arc<Shared>) -> Self {
        let mut new = Self {
            caller: Caller::default(),
            client: Client::new(shared, server.first_account()),
            server,
            stream,
            parser: Parser::default(),
            pending: Vec::new(),
            large: Vec::new(),
            filling: None,
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            soft_limit_since: None,
            end_of_input: false,
            halt: None,
            resume: false,
            stalled: None,
            handed_over: false,
            held_until: 0,
            timer: None,
            counted: usize::MAX,
        };
        if new.server.config.is_on(Param::TlsAuthClientsUser)
            && let Some(name) = new.stream.common_name()
            && !new.server.log_in_by_certificate(&mut new.client, &name)
        {
            let hides = new.server.config.is_on(Param::HideUserDataFromLog);
            tracing::debug!(
                client = new.client.id(),
                name = if hides { "(hidden)" } else { &*name },
                "no user has the name of the client's certificate"
            );
        }
        new.count_memory();
        new
    }

    /// Works until there is nothing to do (pending), the turn is used up (ok),
    /// or the connection ends.
    fn turn(&mut self, task: &mut Task<'_>) -> Poll<Result<(), End>> {
        self.client.shared.set_waker(task.waker());
        if self.client.shared.is_killed() {
            return Poll::Ready(Err(End::Closed));
        }
        self.collect_mail();
        let mut used = 0;
        loop {
            if self.unsent_bytes > REPLY_BUFFER && self.exceeds_output_limit(0) {
                return Poll::Ready(Err(End::Closed));
            }
            if self.unsent_bytes > 0 && self.is_held() {
                // Most often that is until the end of this worker's round.
                if self.server.persist.durable.until() == Until::Written {
                    return Poll::Pending;
                }
                return self.read_ahead_held(task);
            }
            if self.unsent_bytes > 0 {
                let sent = self.send(task, &mut used)?;
                if self.unsent_bytes > 0 {
                    if sent.is_ready() {
                        return Poll::Ready(Ok(()));
                    }
                    let ends = self.client.close || self.end_of_input;
                    // Work that was begun is not kept waiting, for others may
                    // wait for its workspace.
                    let works = matches!(self.halt, Some(Halt::Work(_)));
                    let waits = !works && self.unsent_bytes > UNREAD_MAX;
                    if ends || waits {
                        return Poll::Pending;
                    }
                }
            }
            if self.client.psync.is_some() && self.unsent_bytes == 0 {
                return Poll::Ready(Err(self.hand_over()));
            }
            if self.client.close || (self.end_of_input && self.unsent_bytes == 0) {
                ready!(self.stream.poll_held(task))?;
                self.stream.say_end(task);
                return Poll::Ready(Err(End::Closed));
            }
            if self.stream.holds_back() {
                // Whoever reads nothing is read no further, as if it were the socket that
                // had no room: what is held back leaves before more is made.
                if let Poll::Ready(sent) = self.stream.poll_held(task) {
                    sent?;
                }
            }
            if used >= TURN_BYTES_MAX {
                return Poll::Ready(Ok(()));
            }
            let read = ready!(self.read_and_execute(task))?;
            used += read.max(1);
            if self.resume && !matches!(self.halt, Some(Halt::Wait(_))) {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Hands the socket over to those who serve replicas.
    #[cold]
    fn hand_over(&mut self) -> End {
        let Some(psync) = self.client.psync.take() else { return End::Closed };
        let socket = match self.stream.give_away().and_then(Moved::new) {
            Ok(socket) => socket,
            Err(error) => return error.into(),
        };
        let adopted = Adopted {
            client: Arc::clone(&self.client.shared),
            socket,
            introduction: std::mem::take(&mut self.client.introduction),
            psync,
            rest: std::mem::take(&mut self.pending),
        };
        // If nobody takes it, the connection ends.
        self.handed_over = self.server.peers.order(Order::Adopt(Box::new(adopted)));
        End::Closed
    }

    /// Tells others what the client takes, if that has changed.
    #[inline]
    fn count_memory(&mut self) {
        let large = match (self.large.is_empty(), &self.filling) {
            (true, None) => 0,
            _ => self.large_bytes(),
        };
        let bytes = self.pending.capacity() + large + self.unsent_bytes + self.client.kept_bytes();
        if bytes != self.counted {
            self.counted = bytes;
            self.tell_memory(large);
        }
    }

    #[cold]
    fn tell_memory(&self, large: usize) {
        let figures = &self.client.shared.figures;
        let begun = self.pending.len();
        // What has come of a large value is the query, as in Redis; the rest are arguments.
        let (query, arguments) = if large > 0 { (large, begun) } else { (begun, 0) };
        figures.query_bytes.store(query, Relaxed);
        figures.query_capacity.store(large + self.pending.capacity(), Relaxed);
        figures.argument_bytes.store(arguments, Relaxed);
        figures.output_chunks.store(self.unsent.len(), Relaxed);
        let bytes = size_of::<Self>() + size_of::<Shared>() + self.stream.bytes() + self.counted;
        self.server.client_memory.count(&self.client.shared, bytes);
        self.server.evict_clients();
    }

    /// Bytes of the large arguments of the command that is on its way.
    fn large_bytes(&self) -> usize {
        let whole: usize = self.large.iter().map(|large| large.chain.len()).sum();
        whole + self.filling.as_ref().map_or(0, SegmentsFiller::filled)
    }

    fn collect_mail(&mut self) {
        let (mut mail, closed) = self.client.shared.take_mail();
        for name in closed {
            // It may have left by itself meanwhile.
            if self.client.subscriptions.remove(Subject::ShardChannel, &name) {
                let left = self.client.subscriptions.shard_channels.len();
                let mut writer = Writer::new(&mut mail, self.caller.protocol);
                crate::follow::pubsub::tell(&mut writer, "sunsubscribe", Some(&name), left);
            }
        }
        if !mail.is_empty() {
            self.queue(Bytes::from(mail));
        }
    }

    /// Whether what is to be sent waits for the append-only file; the client is woken when
    /// it is not to any more.
    fn is_held(&self) -> bool {
        let (durable, client) = (&self.server.persist.durable, &self.client.shared);
        if !durable.lacks(self.held_until) {
            return false;
        }
        rounds::hold(self.held_until, client) || durable.hold(self.held_until, client)
    }

    /// While replies wait for the disk nothing is executed: a client that goes is noticed.
    fn read_ahead_held(&mut self, task: &mut Task<'_>) -> Poll<Result<(), End>> {
        if self.end_of_input || self.filling.is_some() {
            return Poll::Pending;
        }
        match self.read_ahead(task) {
            // There may be something to go on with when the replies are sent.
            Poll::Ready(Ok(_)) => {
                self.resume = true;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(end)) => Poll::Ready(Err(end)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Whether what is to be sent waits for the append-only file: it may tell of anything
    /// that was committed until now.
    #[inline]
    fn note_commits(&mut self) -> bool {
        let server = &self.server;
        if !std::mem::take(&mut self.client.tells_of_keys) || !server.persist.durable.holds() {
            return false;
        }
        self.held_until = server.store.commits();
        server.persist.durable.lacks(self.held_until)
    }

    fn queue(&mut self, chunk: impl Into<Chunk>) {
        let chunk = chunk.into();
        self.unsent_bytes += chunk.len();
        self.unsent.push_back(chunk);
        self.client.shared.figures.output_bytes.store(self.unsent_bytes, Relaxed);
    }

    /// Sends what waits, as much as the socket takes (then pending) or the turn
    /// allows. What is packed is unpacked no sooner than the socket has taken
    /// what is before it.
    fn send(&mut self, task: &mut Task<'_>, used: &mut usize) -> Result<Poll<()>, End> {
        let slice = Duration::from_micros(self.server.config.number(Param::PackSliceUs) as u64);
        let mut began: Option<Instant> = None;
        while self.unsent_bytes > 0 && *used < TURN_BYTES_MAX {
            if let Some(Chunk::Packed(unpacking)) = self.unsent.front() {
                let (unpacking, now) = (unpacking.clone(), Instant::now());
                self.unpack(unpacking)?;
                let took = now.elapsed();
                let turn = began.get_or_insert(now).elapsed();
                // If another one might not fit, this is the turn's last.
                if turn + took > slice {
                    *used = TURN_BYTES_MAX;
                }
            }
            let mut slices = [IoSlice::new(&[]); 32];
            let (mut count, mut len) = (0, 0);
            for (slice, chunk) in slices.iter_mut().zip(&self.unsent) {
                let Chunk::Bytes(bytes) = chunk else { break };
                *slice = IoSlice::new(bytes);
                (count, len) = (count + 1, len + bytes.len());
                if len >= SEND_AT_ONCE {
                    break;
                }
            }
            let Poll::Ready(sent) = self.stream.poll_send_vectored(task, &slices[..count])? else {
                return Ok(Poll::Pending);
            };
            self.sent(sent);
            *used += sent;
        }
        if self.unsent_bytes == 0 {
            self.soft_limit_since = None;
        }
        Ok(Poll::Ready(()))
    }

    /// Unpacks a segment of the first chunk that waits. What is damaged is
    /// answered with an error, or, if the client has had a part of it, with the
    /// end of the connection.
    fn unpack(&mut self, unpacking: Unpacking) -> Result<(), End> {
        let began = Instant::now();
        self.unsent_bytes -= self.unsent.pop_front().map_or(0, |chunk| chunk.len());
        let before = self.unsent.len();
        let done = worker::with(|scratch| unpacking.advance(&scratch.session, &mut self.unsent));
        self.server.slices.took(began.elapsed().as_nanos() as u64);
        if let Err((damaged, nothing_sent)) = done {
            tracing::warn!(client = self.client.id(), %damaged, "a large string cannot be unpacked");
            if !nothing_sent {
                return Err(End::Closed);
            }
            let mut reply = Vec::new();
            let error = Error::from(damaged);
            Writer::new(&mut reply, self.caller.protocol).error_bytes(error.text());
            self.server.stats.add(Stat::total_error_replies, 1);
            self.server.monitor.error(&error.code());
            self.unsent.push_front(Bytes::from(reply).into());
        }
        let added = self.unsent.len() - before;
        self.unsent_bytes += self.unsent.iter().take(added).map(Chunk::len).sum::<usize>();
        Ok(())
    }

    fn sent(&mut self, mut bytes: usize) {
        self.server.stats.add(Stat::total_net_output_bytes, bytes as u64);
        self.server.stats.add(Stat::total_writes_processed, 1);
        self.unsent_bytes -= bytes;
        while let Some(Chunk::Bytes(front)) = self.unsent.front_mut() {
            if front.len() > bytes {
                front.advance(bytes);
                break;
            }
            bytes -= front.len();
            self.unsent.pop_front();
        }
        self.client.shared.figures.output_bytes.store(self.unsent_bytes, Relaxed);
    }

    /// Whether more replies wait, with these bytes that are not queued yet, than a
    /// client of its class may have. It is then as good as gone, and is sent none
    /// of them. What its socket would take does not matter: a reply counts when it
    /// is made, with its whole length.
    fn exceeds_output_limit(&mut self, unqueued: usize) -> bool {
        let limits = self.server.config.output_limits();
        let subscriber = self.client.subscriptions.len() > 0;
        let limit = if subscriber { limits.pubsub } else { limits.normal };
        let waiting = (self.unsent_bytes + unqueued).saturating_sub(REPLY_BUFFER);
        let waiting = waiting.next_multiple_of(REPLY_BUFFER) as u64;
        let over_hard = limit.hard > 0 && waiting > limit.hard;
        let over_soft = limit.soft > 0 && waiting > limit.soft;
        let now = self.server.uptime_ms();
        let since = if over_soft { *self.soft_limit_since.get_or_insert(now) } else { now };
        if !over_soft {
            self.soft_limit_since = None;
        }
        if over_hard || (over_soft && now - since > limit.soft_seconds.saturating_mul(1000)) {
            // Whoever publishes to it may have said so at the same time.
            if self.client.shared.kill() {
                self.server.stats.add(Stat::client_output_buffer_limit_disconnections, 1);
                tracing::warn!(
                    client = self.client.id(),
                    waiting,
                    "client closed for overcoming of output buffer limits"
                );
            }
            return true;
        }
        false
    }

    /// Reads once and executes every command that is complete; bytes read.
    fn read_and_execute(&mut self, task: &mut Task<'_>) -> Poll<Result<usize, End>> {
        let mut finished = None;
        match &mut self.halt {
            Some(Halt::Wait(_)) => return self.wait(task),
            Some(Halt::Work(work)) => finished = Some(ready!(work.0.as_mut().poll(task))),
            Some(Halt::Pause) if self.server.pause.holds(self.client.id()) => {
                return self.read_ahead(task);
            }
            Some(Halt::Behind) if self.server.is_behind() => return self.read_ahead(task),
            Some(Halt::Pause | Halt::Behind) | None => {}
        }
        self.halt = None;
        worker::with(|scratch| {
            if self.resume {
                return self.go_on(task, scratch, finished);
            }
            if self.filling.is_some() {
                return self.fill(task, scratch);
            }
            if !self.pending.is_empty() {
                return self.read_more(task, scratch);
            }
            // Nothing kept from before: the worker's buffer will do.
            let mut buffer = std::mem::take(&mut scratch.input);
            let read = self.read_into(task, &mut buffer);
            if let Poll::Ready(Ok(read)) = read {
                let used = self.execute(scratch, &mut buffer[..read]);
                self.pending.extend_from_slice(&buffer[used..read]);
            }
            scratch.input = buffer;
            self.flush(task, scratch)?;
            read.map(|read| read.map_err(End::from))
        })
    }

    /// Waits until the client is served or its time is over.
    fn wait(&mut self, task: &mut Task<'_>) -> Poll<Result<usize, End>> {
        let Some(Halt::Wait(waiter)) = &self.halt else { return Poll::Ready(Ok(0)) };
        if let Some(reply) = waiter.take_reply() {
            self.served(reply);
            return Poll::Ready(Ok(0));
        }
        if let Some(deadline) = waiter.deadline {
            let timer = || Box::pin(tokio::time::sleep_until(deadline));
            if self.timer.get_or_insert_with(timer).as_mut().poll(task).is_ready() {
                let worker = worker::with(|scratch| scratch.worker);
                waiter.end(&self.server, worker, Reason::Timeout);
                return Poll::Ready(Ok(0));
            }
        }
        self.read_ahead(task)
    }

    /// Reads ahead a little of what is not to be executed yet, and so learns when
    /// the client goes.
    fn read_ahead(&mut self, task: &mut Task<'_>) -> Poll<Result<usize, End>> {
        if self.pending.len() >= READ_AHEAD {
            return Poll::Pending;
        }
        worker::with(|scratch| {
            let mut buffer = std::mem::take(&mut scratch.input);
            let room = READ_AHEAD - self.pending.len();
            let most = room.min(buffer.len());
            let read = self.read_into(task, &mut buffer[..most]);
            if let Poll::Ready(Ok(read)) = read {
                self.pending.extend_from_slice(&buffer[..read]);
            }
            scratch.input = buffer;
            self.client.shared.figures.query_bytes.store(self.pending.len(), Relaxed);
            if self.end_of_input {
                return Poll::Ready(Err(End::Closed));
            }
            read.map(|read| read.map_err(End::from))
        })
    }

    /// The client waits no longer: this is what it is told, then execution
    /// goes on.
    fn served(&mut self, reply: Vec<Chunk>) {
        self.timer = None;
        if let Some(Halt::Wait(waiter)) = self.halt.take() {
            worker::with(|scratch| {
                let batch = scratch.session.enter(crate::outside::clock::unix_ms());
                self.server.blocked.remove(&batch, &waiter);
            });
        }
        self.client.tells_of_keys = true;
        self.note_commits();
        reply.into_iter().filter(|chunk| chunk.len() > 0).for_each(|chunk| self.queue(chunk));
        self.resume = true;
    }

    /// Stops at a command that has no reply yet. One that waits for a key is executed
    /// by whoever serves its client.
    fn stop_at(&mut self, halt: Halt, command: OwnedArgs) {
        self.stalled = (!matches!(halt, Halt::Wait(_))).then_some(command);
        self.halt = Some(halt);
        self.resume = true;
    }

    /// Executes what was left when execution stopped: first the command that it
    /// stopped at, with what came of the work that this was put off for.
    fn go_on(
        &mut self,
        task: &mut Task<'_>,
        scratch: &mut Scratch,
        finished: Option<Done>,
    ) -> Poll<Result<usize, End>> {
        self.resume = false;
        if let Some(owned) = self.stalled.take() {
            let batch = self.server.enter(&mut scratch.session, crate::outside::clock::unix_ms());
            self.client.clock = None;
            let mut asked = Asked {
                caller: &mut self.caller,
                client: &mut self.client,
                store: &batch,
                server: &self.server,
                worker: scratch.worker,
                pool: Some(&scratch.pool),
                hashed: None,
                finished: finished.map(Box::new),
            };
            if let Err(halt) = dispatch_one(&mut asked, owned.args(), &mut scratch.out) {
                self.stop_at(halt, owned);
                if self.stalled.is_some() {
                    return Poll::Ready(Ok(0));
                }
            }
            self.limit_output(&scratch.out);
        }
        let mut buffer = std::mem::take(&mut self.pending);
        let used = self.execute(scratch, &mut buffer);
        self.keep(buffer, used);
        self.flush(task, scratch)?;
        Poll::Ready(Ok(0))
    }

    /// Keeps of a buffer of the connection's own what was not executed, and little room.
    fn keep(&mut self, mut buffer: Vec<u8>, used: usize) {
        buffer.drain(..used);
        if buffer.len() < OWN_BUFFER_FROM {
            buffer.shrink_to_fit();
        }
        self.pending = buffer;
    }

    /// Reads on behind an incomplete command.
    fn read_more(
        &mut self,
        task: &mut Task<'_>,
        scratch: &mut Scratch,
    ) -> Poll<Result<usize, End>> {
        let kept = self.pending.len();
        self.check_query_limit(kept)?;
        // The little that is usual goes to the front of the worker's buffer;
        // only a command of many arguments gets a buffer of its own.
        let own = kept > OWN_BUFFER_FROM;
        let mut buffer = std::mem::take(&mut self.pending);
        if own {
            buffer.resize(kept + READ_AHEAD.max(kept / 2).min(1 << 20), 0);
        } else {
            let little = std::mem::replace(&mut buffer, std::mem::take(&mut scratch.input));
            buffer[..kept].copy_from_slice(&little);
            self.pending = little;
        }
        let mut end = kept;
        let mut used = 0;
        let read = self.read_into(task, &mut buffer[kept..]);
        if let Poll::Ready(Ok(read)) = read {
            end += read;
            used = self.execute(scratch, &mut buffer[..end]);
        }
        if own {
            buffer.truncate(end);
            self.keep(buffer, used);
        } else {
            self.pending.clear();
            if used == end {
                self.pending = Vec::new();
            } else {
                self.pending.extend_from_slice(&buffer[used..end]);
            }
            scratch.input = buffer;
        }
        self.flush(task, scratch)?;
        read.map(|read| read.map_err(End::from))
    }

    /// Ends the connection if more of its requests is buffered than may be.
    fn check_query_limit(&self, buffered: usize) -> Result<(), End> {
        if buffered <= self.server.config.number(Param::ClientQueryBufferLimit) as usize {
            return Ok(());
        }
        self.server.stats.add(Stat::client_query_buffer_limit_disconnections, 1);
        let client = self.client.id();
        tracing::warn!(client, "closing client that reached max query buffer length");
        Err(End::Closed)
    }

    /// Receives the body of a large argument straight into its segments.
    fn fill(&mut self, task: &mut Task<'_>, scratch: &mut Scratch) -> Poll<Result<usize, End>> {
        let Some(mut filler) = self.filling.take() else { return Poll::Ready(Ok(0)) };
        let mut read = Poll::Ready(Ok(0));
        if filler.remaining() > 0 {
            // No room is made for what has not come.
            read = match self.stream.poll_fillable(task)? {
                Poll::Ready(()) => self.read_into(task, filler.spare()),
                Poll::Pending => Poll::Pending,
            };
            if let Poll::Ready(Ok(read)) = read {
                filler.advance(read);
            }
        }
        self.check_query_limit(self.pending.len() + self.large_bytes() + filler.filled())?;
        if filler.remaining() > 0 {
            self.filling = Some(filler);
            return read.map(|read| read.map_err(End::from));
        }
        self.large.push(Large::from(filler.finish()));
        // Counted before the command is executed, which gives it away.
        self.count_memory();
        if self.client.shared.is_killed() {
            return Poll::Ready(Err(End::Closed));
        }
        // The two bytes behind the body are still to come: `pending` holds the
        // head, and parsing goes on when they do.
        self.flush(task, scratch)?;
        read.map(|read| read.map_err(End::from))
    }

    fn read_into(&mut self, task: &mut Task<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let read = ready!(self.stream.poll_fill(task, buffer))?;
        if read == 0 {
            self.end_of_input = true;
        }
        self.server.stats.add(Stat::total_net_input_bytes, read as u64);
        self.server.stats.add(Stat::total_reads_processed, 1);
        Poll::Ready(Ok(read))
    }

    /// Executes every complete command in `buffer`; the bytes used.
    fn execute(&mut self, scratch: &mut Scratch, buffer: &mut [u8]) -> usize {
        // The worker's own handle on the server, and the client itself: a count of references
        // that all workers share would move between their caches with every batch.
        let Scratch { server, session, out, ahead, worker, pool, .. } = scratch;
        let now = crate::outside::clock::unix_ms();
        let batch = server.enter(session, now);
        self.client.shared.figures.last_active.store(now, Relaxed);
        let began = Instant::now();
        self.client.clock = Some(began);
        let until = began + TURN_TIME_MAX;
        let mut used = 0;
        'batch: while used < buffer.len()
            && !self.client.close
            && self.client.psync.is_none()
            && !self.client.shared.is_killed()
            && self.halt.is_none()
        {
            let stop = self.parse_ahead(&mut buffer[used..], ahead);
            let mut keys = Keys::default();
            ahead.warm(&batch, self.caller.db, &buffer[used..], &mut keys);
            for ((len, spans), key) in ahead.commands().zip(&keys) {
                let buf = &buffer[used..used + len];
                used += len;
                let args = Args { buf, spans, large: &self.large };
                let mut asked = Asked {
                    caller: &mut self.caller,
                    client: &mut self.client,
                    store: &batch,
                    server,
                    worker: *worker,
                    pool: Some(pool),
                    hashed: key.as_ref(),
                    finished: None,
                };
                if !spans.is_empty()
                    && let Err(halt) = dispatch_one(&mut asked, args, out)
                {
                    let owned = OwnedArgs::new(args);
                    self.stop_at(halt, owned);
                }
                if !self.large.is_empty() {
                    self.large.clear();
                }
                self.limit_output(out);
                if out.len() > WRITE_AT {
                    self.queue_out(out);
                }
                self.resume |= self.client.clock.is_some_and(|ended| ended > until);
                let ends = self.client.close || self.client.psync.is_some();
                if self.resume || ends || self.client.shared.is_killed() {
                    // What was parsed ahead will be parsed again, if ever.
                    self.parser = Parser::default();
                    break 'batch;
                }
            }
            let rest = &mut buffer[used..];
            match stop {
                Ok(Parsed::Command { .. }) => {}
                Ok(Parsed::Incomplete) => break,
                Ok(Parsed::Large { head, len }) => {
                    let mut filler = SegmentsFiller::new(len);
                    let moved = filler.append(&rest[head..]);
                    // What was moved leaves the buffer: the head is put right
                    // before what follows the body.
                    rest[..head + moved].rotate_right(moved);
                    used += moved;
                    if filler.remaining() > 0 {
                        self.filling = Some(filler);
                        break;
                    }
                    self.large.push(Large::from(filler.finish()));
                }
                Err(error) => {
                    out.protocol = self.caller.protocol;
                    out.w().protocol_error(error);
                    self.server.monitor.error("ERR");
                    self.client.close = true;
                    used = buffer.len();
                    break;
                }
            }
        }
        self.client.publish_figures(&self.caller);
        self.client.shared.figures.query_bytes.store(buffer.len() - used, Relaxed);
        used
    }

    /// Parses the next few commands; what stopped it, which is a command when
    /// there may be more.
    fn parse_ahead(
        &mut self,
        mut rest: &mut [u8],
        ahead: &mut Ahead,
    ) -> Result<Parsed, ProtocolError> {
        let limits = Limits {
            bulk_len_max: self.server.config.number(Param::ProtoMaxBulkLen) as usize,
            unauthenticated: self.server.must_log_in(&self.client),
            ..Limits::default()
        };
        ahead.clear();
        loop {
            let parsed = self.parser.parse(rest, &limits, ahead.spans());
            let Ok(Parsed::Command { consumed }) = parsed else { return parsed };
            ahead.push(consumed);
            rest = &mut rest[consumed..];
            // Other limits hold after AUTH. An inline command is changed where
            // it lies, so nobody may have to parse it twice.
            if ahead.is_full() || limits.unauthenticated || rest.first() != Some(&b'*') {
                return parsed;
            }
        }
    }

    /// Looks, after a command, whether its client has more replies than it may.
    #[inline]
    fn limit_output(&mut self, out: &Out) {
        if self.unsent_bytes + out.len() > REPLY_BUFFER {
            self.exceeds_output_limit(out.len());
        }
    }

    /// Moves what is in the worker's buffer into the connection's own queue.
    fn queue_out(&mut self, out: &mut Out) {
        out.drain(|chunk| self.queue(chunk));
    }

    /// Sends the batch's replies: from the worker's buffer with one write
    /// where the socket takes them, through the queue otherwise.
    fn flush(&mut self, task: &mut Task<'_>, scratch: &mut Scratch) -> Result<(), End> {
        let out = &mut scratch.out;
        let waits = self.note_commits();
        if out.is_empty() {
            return Ok(());
        }
        if self.client.shared.is_killed() {
            out.give_back(4 * WRITE_AT);
            return Err(End::Closed);
        }
        if self.unsent_bytes > 0 || !out.chunks.is_empty() || waits {
            self.queue_out(out);
            return Ok(());
        }
        let sent = match self.stream.poll_send(task, &out.bytes) {
            Poll::Ready(sent) => sent?,
            Poll::Pending => 0,
        };
        self.server.stats.add(Stat::total_net_output_bytes, sent as u64);
        self.server.stats.add(Stat::total_writes_processed, 1);
        if sent < out.bytes.len() {
            self.queue(Bytes::copy_from_slice(&out.bytes[sent..]));
        }
        out.give_back(4 * WRITE_AT);
        Ok(())
    }
}
