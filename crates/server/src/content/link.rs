//! One connection of the content port: its socket, its place among the clients, and how
//! long it may do nothing.
//!
//! A connection counts as a client: `CLIENT LIST` shows it with the library name `http`,
//! `CLIENT KILL` ends it, `maxclients` and protected mode keep it out as they do any other.
//! It is ended when no byte has come or gone for [`IDLE`]: then it is idle, or its peer
//! neither sends what it has begun nor reads what it has asked for.

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
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
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

/// How long no byte may come or go.
const IDLE: Duration = Duration::from_mins(1);
/// For the head of a request to come, from its first byte.
const HEAD_TIME: Duration = Duration::from_mins(1);
/// For the peer to close, once it has been told all.
const LINGER_TIME: Duration = Duration::from_secs(2);
/// The request's line and headers.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;
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
    /// Bytes that have come and gone.
    moved: AtomicU64,
    /// Bytes of bodies that are on their way in.
    incoming: AtomicUsize,
}

impl Link {
    /// So many bytes more of bodies are kept, or fewer; how many there are now.
    pub(super) fn keeps(&self, more: usize, fewer: usize) -> usize {
        self.incoming.fetch_add(more.wrapping_sub(fewer), Relaxed);
        let bytes = self.incoming.load(Relaxed);
        self.shared.figures.query_bytes.store(bytes, Relaxed);
        self.shared.figures.query_capacity.store(bytes, Relaxed);
        self.server.client_memory.count(&self.shared, size_of::<Self>() + HEAD_BYTES_MAX + bytes);
        if more > fewer {
            self.server.evict_clients();
        }
        bytes
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
        moved: AtomicU64::new(0),
        incoming: AtomicUsize::new(0),
    });
    link.keeps(0, 0);
    tokio::spawn(serve(link, stream));
}

/// Serves a connection until it ends.
async fn serve(link: Arc<Link>, stream: Stream) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(GATHERED_MAX)
        .max_headers(HEADERS_MAX)
        .half_close(true)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW_OF_ALL)
        .max_send_buf_size(GATHERED_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32);
    let service = service_fn(|request: Request<Incoming>| {
        let link = Arc::clone(&link);
        async move { Ok::<Answer, Infallible>(route::answer(&link, request).await) }
    });
    let socket = Socket { stream, link: Arc::clone(&link), lingering: None };
    let mut served = pin!(builder.serve_connection(TokioIo::new(socket), service));
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

/// The socket as hyper uses it: what comes and goes is counted, and at the end the peer has
/// a while to read what it was told.
struct Socket {
    stream: Stream,
    link: Arc<Link>,
    /// What this end has to say is said; until when to wait for the other's.
    lingering: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    fn moved(&self, bytes: usize, total: Stat, times: Stat) {
        self.link.moved.fetch_add(bytes as u64, Relaxed);
        self.link.shared.figures.last_active.store(unix_ms(), Relaxed);
        self.link.server.stats.add(total, bytes as u64);
        self.link.server.stats.add(times, 1);
    }

    fn sent(&self, sent: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &sent {
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
        let (socket, before) = (self.get_mut(), buffer.filled().len());
        ready!(Pin::new(&mut socket.stream).poll_read(task, buffer))?;
        let bytes = buffer.filled().len() - before;
        socket.moved(bytes, Stat::total_net_input_bytes, Stat::total_reads_processed);
        Poll::Ready(Ok(()))
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
