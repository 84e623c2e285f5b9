//! One connection of the content port: its socket, its place among the clients, and how
//! long it may do nothing.
//!
//! A connection counts as a client: `CLIENT LIST` shows it with the library name `http`,
//! `CLIENT KILL` ends it, `maxclients` and protected mode keep it out as they do any other.
//! It is ended when for [`IDLE`] nothing has gone out, and nothing has come for a request that
//! is under way: then it is idle, or its peer neither sends what it has begun nor reads what
//! it has asked for. Bytes of a head are none of a request that is under way, so that a head
//! has that long to come as a whole, however slowly its bytes follow each other.
//!
//! What an unfinished head costs is bounded, for whoever sends one has not said yet who it
//! is: hyper keeps at most [`HEAD_BYTES_MAX`] of it and one read more, and reads are of
//! [`READ_MAX`] while no body is on its way.

use super::answer::Answer;
use super::route;
use crate::engine::server::Server;
use crate::follow::clients::Shared;
use crate::measure::stats::Stat;
use crate::net::accept::{Ends, Language};
use crate::net::worker;
use crate::outside::clock::Instant;
use crate::outside::clock::unix_ms;
use crate::sockets::stream::Stream;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context as Task, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Sleep;

/// How long nothing may happen: see the [module](self). Looked at as often, so that it may be
/// twice as long.
const IDLE: Duration = Duration::from_mins(1);
/// For the head of an HTTP/1.1 request to come, from the end of the one before.
const HEAD_TIME: Duration = Duration::from_mins(1);
/// For the peer to close, once it has been told all.
const LINGER_TIME: Duration = Duration::from_secs(2);
/// The request's line and headers.
const HEAD_BYTES_MAX: usize = 16 * 1024;
pub(super) const HEADERS_MAX: usize = 64;
/// What is read at once while no body is on its way. When 8 KiB came at once, hyper makes its
/// buffer larger, and keeps it.
const READ_MAX: usize = 8 * 1024 - 1;
/// Changes of what is kept of a head by less than this are not told.
const TOLD_FROM: usize = 4 * 1024;
/// What an HTTP/2 client says first.
const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What a connection takes beside what comes: the task that serves it, and hyper's buffer for
/// heads of answers.
const CONNECTION_BYTES: usize = 12 * 1024;
/// What hyper gathers of an answer before it writes.
const GATHERED_MAX: usize = 256 * 1024;
/// Requests of one HTTP/2 connection that are served at once.
const STREAMS_MAX: u32 = 64;
/// What an HTTP/2 client may send of one body, and of all, before it was read.
const WINDOW: u32 = 256 * 1024;
const WINDOW_OF_ALL: u32 = 1024 * 1024;

const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 34\r\nRetry-After: 1\r\nConnection: close\r\n\r\nmax number of clients is reached.\n";
const PROTECTED: &[u8] = b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: 75\r\nConnection: close\r\n\r\nprotected mode: other machines are refused while the default user is open.\n";

/// HTTP, as workers are told of it.
pub(crate) static HTTP: Language =
    Language { too_many: |_| TOO_MANY, protected: PROTECTED, alpn: &[b"h2", b"http/1.1"], welcome };

/// What the requests of one connection share.
#[derive(Debug)]
pub(super) struct Link {
    pub server: Arc<Server>,
    pub shared: Arc<Shared>,
    /// The name in the client's certificate, if such names are users.
    pub certificate: Option<String>,
    /// The connection was woken: by whoever lets a request go on, perhaps.
    pub woken: Notify,
    /// Requests that wait for others than the peer.
    pub waiting: AtomicUsize,
    /// Requests that are being answered.
    serving: AtomicUsize,
    /// Bytes that have gone, and those that have come for requests that are being answered.
    moved: AtomicU64,
    /// Bytes of bodies that are on their way in.
    incoming: AtomicUsize,
    /// Bytes that have come of a head that is not whole.
    head: AtomicUsize,
    /// The buffer into which is read, with what has come of a head.
    buffer: AtomicUsize,
}

impl Link {
    /// So many bytes more of bodies are kept, or fewer; how many there are now.
    pub(super) fn keeps(&self, more: usize, fewer: usize) -> usize {
        self.incoming.fetch_add(more.wrapping_sub(fewer), Relaxed);
        self.tell_memory(more > fewer);
        self.incoming.load(Relaxed)
    }

    /// Has others see what the connection takes, which may be `more` than before.
    fn tell_memory(&self, more: bool) {
        let capacity = self.incoming.load(Relaxed) + self.buffer.load(Relaxed);
        self.tell_begun();
        self.shared.figures.query_capacity.store(capacity, Relaxed);
        let bytes = size_of::<Self>() + size_of::<Shared>() + CONNECTION_BYTES + capacity;
        self.server.client_memory.count(&self.shared, bytes);
        if more {
            self.server.evict_clients();
        }
    }

    /// Bytes have come.
    fn came(&self, bytes: usize) {
        if self.serving.load(Relaxed) > 0 {
            self.moved.fetch_add(bytes as u64, Relaxed);
        } else {
            // What HTTP/2 clients say between requests is read and gone.
            let head = self.head.load(Relaxed) + bytes;
            self.head.store(head.min(HEAD_BYTES_MAX), Relaxed);
            self.tell_begun();
        }
    }

    /// Has others see how much of requests has come that are not whole.
    fn tell_begun(&self) {
        let begun = self.incoming.load(Relaxed) + self.head.load(Relaxed);
        self.shared.figures.query_bytes.store(begun, Relaxed);
    }

    /// There is so much room for what comes next, behind what has come of a head.
    fn has_room(&self, room: usize) {
        let (before, now) = (self.buffer.load(Relaxed), self.head.load(Relaxed) + room);
        if now.abs_diff(before) >= TOLD_FROM {
            self.buffer.store(now, Relaxed);
            self.tell_memory(now > before);
        }
    }
}

/// A request that is being answered: its head is whole.
pub(super) struct Serving<'l>(&'l Link);

impl<'l> Serving<'l> {
    pub(super) fn begin(link: &'l Link) -> Self {
        link.serving.fetch_add(1, Relaxed);
        link.head.store(0, Relaxed);
        link.tell_begun();
        Self(link)
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.serving.fetch_sub(1, Relaxed);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.server.clients.write().remove(&self.shared.id);
        self.server.client_memory.forget(&self.shared);
        self.server.pause.leave(self.shared.id);
    }
}

/// Makes a client of a connection, and serves it.
fn welcome(server: &Arc<Server>, stream: Stream, ends: Ends) {
    let (id, fd) = (server.client_id(), stream.fd());
    let shared = Arc::new(Shared::new(id, ends, fd, unix_ms()));
    shared.names.lock().lib_name = b"http".to_vec();
    server.clients.write().insert(id, Arc::clone(&shared));
    let by_certificate = server.config.is_on(crate::config::Param::TlsAuthClientsUser);
    let link = Arc::new(Link {
        server: Arc::clone(server),
        shared,
        certificate: stream.common_name().filter(|_| by_certificate),
        woken: Notify::new(),
        waiting: AtomicUsize::new(0),
        serving: AtomicUsize::new(0),
        moved: AtomicU64::new(0),
        incoming: AtomicUsize::new(0),
        head: AtomicUsize::new(0),
        buffer: AtomicUsize::new(0),
    });
    link.keeps(0, 0);
    tokio::spawn(serve(link, stream));
}

/// Serves a connection until it ends.
async fn serve(link: Arc<Link>, stream: Stream) {
    let service = service_fn(|request: Request<Incoming>| {
        let link = Arc::clone(&link);
        async move { Ok::<Answer, Infallible>(route::answer(&link, request).await) }
    });
    let mut socket = Socket { stream, link: Arc::clone(&link), first: Vec::new(), lingering: None };
    let mut served = pin!(async move {
        let http2 = socket.speaks_http2().await?;
        let io = TokioIo::new(socket);
        match http2 {
            true => by_http2().serve_connection(io, service).await,
            false => by_http1().serve_connection(io, service).await,
        }
        .map_err(io::Error::other)
    });
    let mut timer = pin!(tokio::time::sleep(IDLE));
    let mut seen = 0;
    let ended = poll_fn(|task| {
        link.shared.set_waker(task.waker());
        if link.shared.is_killed() {
            return Poll::Ready(Ok(()));
        }
        link.woken.notify_waiters();
        if let Poll::Ready(ended) = served.as_mut().poll(task) {
            return Poll::Ready(ended);
        }
        while timer.as_mut().poll(task).is_ready() {
            let moved = link.moved.load(Relaxed);
            if moved == seen && link.waiting.load(Relaxed) == 0 {
                return Poll::Ready(Ok(()));
            }
            seen = moved;
            timer.as_mut().reset(Instant::now() + IDLE);
        }
        Poll::Pending
    });
    if let Err(error) = ended.await {
        tracing::debug!(client = link.shared.id, %error, "content connection lost");
    }
}

fn by_http1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(GATHERED_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .half_close(true);
    builder
}

fn by_http2() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW_OF_ALL)
        .max_send_buf_size(GATHERED_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32);
    builder
}

/// The socket as hyper uses it: what comes and goes is counted, and at the end the peer has
/// a while to read what it was told.
struct Socket {
    stream: Stream,
    link: Arc<Link>,
    /// The first bytes, which were read to learn what the peer speaks and come once more.
    first: Vec<u8>,
    /// What this end has to say is said; until when to wait for the other's.
    lingering: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    /// Whether the peer speaks HTTP/2, with or without TLS: its first bytes say so.
    async fn speaks_http2(&mut self) -> io::Result<bool> {
        let (mut first, mut len) = ([0; PREFACE.len()], 0);
        while len < PREFACE.len() && PREFACE.starts_with(&first[..len]) {
            let mut buffer = ReadBuf::new(&mut first[len..]);
            poll_fn(|task| Pin::new(&mut *self).poll_read(task, &mut buffer)).await?;
            match buffer.filled().len() {
                0 => break,
                read => len += read,
            }
        }
        self.first = first[..len].to_vec();
        Ok(first == PREFACE)
    }

    /// Reads from the stream: `most` bytes at once, unless a body is on its way.
    fn poll_more(
        &mut self,
        task: &mut Task<'_>,
        buffer: &mut ReadBuf<'_>,
        most: usize,
    ) -> Poll<io::Result<()>> {
        let room = buffer.remaining();
        if room == 0 {
            return Poll::Ready(Ok(()));
        }
        self.link.has_room(room);
        if room <= most || self.link.incoming.load(Relaxed) > 0 {
            ready!(Pin::new(&mut self.stream).poll_read(task, buffer))?;
        } else {
            let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
            ready!(Pin::new(&mut self.stream).poll_read(task, &mut part))?;
            let bytes = part.filled().len();
            buffer.advance(bytes);
        }
        let bytes = room - buffer.remaining();
        self.link.came(bytes);
        self.moved(bytes, Stat::total_net_input_bytes, Stat::total_reads_processed);
        Poll::Ready(Ok(()))
    }

    fn moved(&self, bytes: usize, total: Stat, times: Stat) {
        self.link.shared.figures.last_active.store(unix_ms(), Relaxed);
        self.link.server.stats.add(total, bytes as u64);
        self.link.server.stats.add(times, 1);
    }

    fn sent(&self, sent: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &sent {
            self.link.moved.fetch_add(*bytes as u64, Relaxed);
            self.moved(*bytes, Stat::total_net_output_bytes, Stat::total_writes_processed);
        }
        sent
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        task: &mut Task<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = self.get_mut();
        let first = std::mem::take(&mut socket.first);
        if first.is_empty() {
            return socket.poll_more(task, buffer, READ_MAX);
        }
        let (now, later) = first.split_at(first.len().min(buffer.remaining()));
        buffer.put_slice(now);
        socket.first = later.to_vec();
        // What came with them goes into the same buffer: hyper would make a larger one.
        match socket.poll_more(task, buffer, READ_MAX - now.len()) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        task: &mut Task<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let socket = self.get_mut();
        let sent = socket.stream.poll_send(task, bytes);
        socket.sent(sent)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        task: &mut Task<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let socket = self.get_mut();
        let sent = socket.stream.poll_send_vectored(task, pieces);
        socket.sent(sent)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream.poll_held(task)
    }

    /// Says that nothing more will come, and forgets what the peer still sends: to close
    /// before that would reset the connection, and might take the last answer with it.
    fn poll_shutdown(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        let socket = self.get_mut();
        if socket.lingering.is_none() {
            ready!(Pin::new(&mut socket.stream).poll_shutdown(task))?;
            socket.lingering = Some(Box::pin(tokio::time::sleep(LINGER_TIME)));
        }
        worker::with(|scratch| {
            // A few turns of the buffer: whoever sends on and on is not waited for.
            for _ in 0..4 {
                match socket.stream.poll_fill(task, &mut scratch.input) {
                    Poll::Ready(Ok(read)) if read > 0 => {}
                    Poll::Ready(_) => return Poll::Ready(Ok(())),
                    Poll::Pending => {
                        let late = socket.lingering.as_mut();
                        let late = late.is_none_or(|late| late.as_mut().poll(task).is_ready());
                        return if late { Poll::Ready(Ok(())) } else { Poll::Pending };
                    }
                }
            }
            let late = socket.lingering.as_mut();
            if late.is_none_or(|late| late.as_mut().poll(task).is_ready()) {
                return Poll::Ready(Ok(()));
            }
            task.waker().wake_by_ref();
            Poll::Pending
        })
    }
}
