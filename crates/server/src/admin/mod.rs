//! The admin port: HTTP for those who watch and run the server.
//!
//! | path | method | answers | token |
//! | --- | --- | --- | --- |
//! | `/healthz` | GET | 200 while the process serves | no |
//! | `/readyz` | GET | 200 while it takes clients, 503 once it ends | no |
//! | `/metrics` | GET | everything counted, in Prometheus's or OpenMetrics's text | yes |
//! | `/content/config` | GET, PUT | the packing policy; 400 with the reason for what cannot be | yes |
//!
//! Off unless `admin-port` is set; inside TLS if `admin-tls` is. Runs in a thread of its own, so that a scrape
//! takes nothing from a worker but the moments in which it holds a slot's lock.
//!
//! Whatever a peer does costs a bounded amount: at most [`ADMIN_CONNECTIONS_MAX`] at
//! once, each for one request, [`CONNECTION_TIME`], [`HEAD_BYTES_MAX`] of head
//! and a policy's length of body. Nobody who is slow, to ask, to send a body or to
//! read an answer, keeps others out: if all places are taken, the connection gives
//! its own up that came, asked or was answered the longest ago.

pub(crate) mod metrics;

use crate::config::{Config, POLICY_BYTES_MAX, Param};
use crate::engine::server::Server;
use crate::outside::chance::random_hex;
use crate::sockets::descriptors::{ADMIN_CONNECTIONS_MAX, ran_out};
use crate::sockets::stream::{Stream, Tls};
use crate::text::accepted::{Accepted, Sent};
use http_body_util::{BodyExt, Collected, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::ServerConnection;
use snug_codec::coding::Encoder;
use socket2::{SockRef, Socket};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// From the first byte to the last, both ways.
const CONNECTION_TIME: Duration = Duration::from_secs(10);
/// For the request's head to arrive.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// For the peer to close, once it has its answer.
const LINGER_TIME: Duration = Duration::from_secs(1);
/// The request's line and headers.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;

/// The longest token that is read from a file.
const TOKEN_BYTES_MAX: usize = 1024;

/// The token that requests need if `admin-token` is empty: that of the token
/// file, made with a new one if it is not there. The error is one line.
pub(crate) fn token(config: &Config) -> Result<String, String> {
    let path = config.path(Param::AdminTokenFile);
    let context = |e: &dyn std::fmt::Display| format!("admin-token-file '{}': {e}", path.display());
    let mut text = String::new();
    match std::fs::File::open(&path) {
        Ok(file) => {
            let read = file.take(TOKEN_BYTES_MAX as u64 + 1).read_to_string(&mut text);
            read.map_err(|e| context(&e))?;
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            text = random_hex();
            let mut options = std::fs::OpenOptions::new();
            let made = options.write(true).create_new(true).mode(0o600).open(&path);
            made.and_then(|mut file| writeln!(file, "{text}")).map_err(|e| context(&e))?;
            tracing::info!(file = %path.display(), "a token for the admin port was generated");
        }
        Err(e) => return Err(context(&e)),
    }
    let token = text.trim();
    if token.is_empty()
        || token.len() > TOKEN_BYTES_MAX
        || !token.bytes().all(|b| b.is_ascii_graphic())
    {
        return Err(context(&"it holds no token (1 to 1024 visible ASCII characters)"));
    }
    Ok(token.to_owned())
}

/// Starts the admin port's thread. It ends with the server.
pub(crate) fn start(server: &Arc<Server>, sockets: Vec<Socket>) -> io::Result<()> {
    let server = Arc::clone(server);
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let served = runtime.and_then(|runtime| runtime.block_on(serve(&server, sockets)));
        if let Err(error) = served {
            tracing::error!(%error, "the admin port failed");
        }
    };
    std::thread::Builder::new().name("admin".into()).spawn(run).map(drop)
}

/// Places for connections.
struct Room {
    places: Arc<Semaphore>,
    /// Connections in the order in which they came, asked or were answered. The work
    /// for a request is done at once, so each of them waits for its peer.
    waiting: Mutex<VecDeque<Arc<Notify>>>,
}

impl Room {
    fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(ADMIN_CONNECTIONS_MAX)), waiting: Mutex::default() }
    }

    /// A place; if there is none, that of the connection that has waited for the
    /// longest, which is told to give it up. `None` if the server ends.
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        let places = || Arc::clone(&self.places);
        if let Ok(place) = places().try_acquire_owned() {
            return Some(place);
        }
        let first = self.waiting.lock().pop_front();
        if let Some(first) = first {
            first.notify_one();
        }
        places().acquire_owned().await.ok()
    }

    /// A connection has come, has asked, or has been answered.
    fn heard_of(&self, connection: &Arc<Notify>) {
        let mut waiting = self.waiting.lock();
        waiting.retain(|other| !Arc::ptr_eq(other, connection));
        waiting.push_back(Arc::clone(connection));
    }

    /// A connection has ended.
    fn forget(&self, connection: &Arc<Notify>) {
        self.waiting.lock().retain(|other| !Arc::ptr_eq(other, connection));
    }
}

async fn serve(server: &Arc<Server>, sockets: Vec<Socket>) -> io::Result<()> {
    let room = Arc::new(Room::new());
    for socket in sockets {
        let listener = TcpListener::from_std(socket.into())?;
        tokio::spawn(accept(Arc::clone(server), listener, Arc::clone(&room)));
    }
    while !server.ending.load(Relaxed) {
        let ended = server.shutdown.notified();
        if !server.ending.load(Relaxed) {
            ended.await;
        }
    }
    Ok(())
}

async fn accept(server: Arc<Server>, listener: TcpListener, room: Arc<Room>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let Some(place) = room.place().await else { return };
                let (server, room) = (Arc::clone(&server), Arc::clone(&room));
                let given_up = Arc::new(Notify::new());
                room.heard_of(&given_up);
                tokio::spawn(async move {
                    let conversation = serve_one(&server, stream, &room, &given_up);
                    tokio::select! {
                        served = tokio::time::timeout(CONNECTION_TIME, conversation) => match served {
                            Ok(Ok(())) => {}
                            Ok(Err(error)) => tracing::debug!(%peer, %error, "admin connection lost"),
                            Err(_) => tracing::debug!(%peer, "admin connection took too long"),
                        },
                        () = given_up.notified() => {
                            tracing::debug!(%peer, "admin connection gave its place to another");
                        }
                    }
                    room.forget(&given_up);
                    server.spares.refill();
                    drop(place);
                });
                // It reads what has come already before another may take its place.
                tokio::task::yield_now().await;
            }
            // With a descriptor less to spare it can be.
            Err(error) if ran_out(&error) && server.spares.lend() => {}
            Err(error) => {
                if let Some(unsaid) = server.accept_told.tell(server.uptime_ms()) {
                    tracing::warn!(%error, unsaid, "cannot accept an admin connection");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// A request and its answer, after shaking hands if the port speaks TLS.
async fn serve_one(
    server: &Arc<Server>,
    socket: TcpStream,
    room: &Arc<Room>,
    connection: &Arc<Notify>,
) -> io::Result<()> {
    let stream = match server.tls.current().filter(|_| server.config.is_on(Param::AdminTls)) {
        Some(config) => {
            let session = ServerConnection::new(config).map_err(io::Error::other)?;
            let mut tls = Box::new(Tls::new(socket, session));
            while !poll_fn(|task| tls.poll_handshake(task)).await? {
                poll_fn(|task| Poll::Ready(tls.step(task))).await?;
            }
            Stream::Tls(tls)
        }
        None => Stream::Plain(socket),
    };
    converse(server, stream, room, connection).await.map_err(io::Error::other)
}

/// One request and its answer.
async fn converse(
    server: &Arc<Server>,
    stream: Stream,
    room: &Arc<Room>,
    connection: &Arc<Notify>,
) -> hyper::Result<()> {
    let service = service_fn(|request| {
        room.heard_of(connection);
        let server = Arc::clone(server);
        Box::pin(async move { Ok::<_, Infallible>(answer(&server, request).await) })
    });
    let mut served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    poll_fn(|cx| served.poll_without_shutdown(cx)).await?;
    room.heard_of(connection);
    linger(served.into_parts().io.into_inner()).await;
    Ok(())
}

/// Waits until the peer closes, and forgets what it still sends: to close before
/// that would reset the connection, and might take the answer with it.
async fn linger(mut stream: Stream) {
    poll_fn(|task| {
        stream.say_end(task);
        Poll::Ready(())
    })
    .await;
    let Some(socket) = stream.socket() else { return };
    let read = async {
        let mut bytes = [0; 4096];
        while socket.readable().await.is_ok() {
            match socket.try_read(&mut bytes) {
                Ok(0) => break,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => break,
                _ => {}
            }
        }
    };
    if SockRef::from(socket).shutdown(Shutdown::Write).is_ok() {
        let _ = tokio::time::timeout(LINGER_TIME, read).await;
    }
}

type Answer = Response<Full<Bytes>>;

fn reply(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

fn plain(status: StatusCode, text: &'static str) -> Answer {
    reply(status, "text/plain; charset=utf-8", text)
}

/// An error, as a JSON object of one field.
fn refuse(status: StatusCode, why: &str) -> Answer {
    let body = serde_json::json!({ "error": why }).to_string();
    reply(status, "application/json", body)
}

fn not_allowed(methods: &'static str) -> Answer {
    let mut answer = refuse(StatusCode::METHOD_NOT_ALLOWED, &format!("allowed: {methods}"));
    answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
    answer
}

async fn answer(server: &Server, request: Request<Incoming>) -> Answer {
    let accept = request.headers().get_all(header::ACCEPT_ENCODING).iter();
    let accepted = Accepted::of(accept.filter_map(|line| line.to_str().ok()));
    encoded(routed(server, request).await, accepted).await
}

/// Answers below this go as they are.
const ENCODED_MIN: usize = 1024;

/// An answer in an encoding that the client takes, if that is worth it.
async fn encoded(answer: Answer, accepted: Accepted) -> Answer {
    let (mut head, body) = answer.into_parts();
    let len = body.size_hint().exact().unwrap_or(0) as usize;
    let Sent::Made(coding) = accepted.choose(None, len >= ENCODED_MIN) else {
        return Response::from_parts(head, body);
    };
    let raw = body.collect().await.map_or_else(|never| match never {}, Collected::to_bytes);
    match Encoder::whole(coding, &raw) {
        Ok(made) if len >= ENCODED_MIN => {
            let name = HeaderValue::from_static(coding.name());
            head.headers.insert(header::CONTENT_ENCODING, name);
            head.headers.insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
            Response::from_parts(head, Full::new(made.into()))
        }
        _ => Response::from_parts(head, Full::new(raw)),
    }
}

async fn routed(server: &Server, request: Request<Incoming>) -> Answer {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let path = request.uri().path().to_owned();
    match (&path[..], reads) {
        ("/healthz", true) => plain(StatusCode::OK, "ok\n"),
        ("/readyz", true) if server.ending.load(Relaxed) => {
            plain(StatusCode::SERVICE_UNAVAILABLE, "ending\n")
        }
        ("/readyz", true) => plain(StatusCode::OK, "ready\n"),
        ("/healthz" | "/readyz", false) => not_allowed("GET, HEAD"),
        _ if !is_authorized(server, &request) => {
            let mut answer = refuse(StatusCode::UNAUTHORIZED, "a bearer token is needed");
            let asks = HeaderValue::from_static("Bearer realm=\"snug\"");
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, asks);
            answer
        }
        ("/metrics", true) => scrape(server, &request),
        ("/metrics", false) => not_allowed("GET, HEAD"),
        ("/content/config", true) => {
            let policy = server.config.text(Param::PackPolicy);
            reply(StatusCode::OK, "application/json", policy + "\n")
        }
        ("/content/config", false) if *request.method() == Method::PUT => {
            put_policy(server, request).await
        }
        ("/content/config", false) => not_allowed("GET, HEAD, PUT"),
        _ => refuse(StatusCode::NOT_FOUND, "there is no such path"),
    }
}

/// Whether the request has the token: compared in a time that tells nothing of
/// where the two differ.
fn is_authorized(server: &Server, request: &Request<Incoming>) -> bool {
    let given = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    let given = given.and_then(|given| {
        let (scheme, token) = given.split_at_checked("Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
    });
    let set = server.config.bytes(Param::AdminToken);
    let wanted = match (set.is_empty(), server.admin_token.get()) {
        (true, file) => file.map(String::as_bytes),
        (false, _) => Some(&set[..]),
    };
    match (given, wanted) {
        (Some(given), Some(wanted)) => given.ct_eq(wanted).into(),
        _ => false,
    }
}

fn scrape(server: &Server, request: &Request<Incoming>) -> Answer {
    let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let open = accept.is_some_and(wants_open_metrics);
    match metrics::text(server, open) {
        Ok(text) if open => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            reply(StatusCode::OK, kind, text)
        }
        Ok(text) => reply(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Whether an `Accept` header prefers OpenMetrics to plain text, by its weights;
/// of two that weigh the same the first.
fn wants_open_metrics(accept: &str) -> bool {
    let weight = |kind: &str| {
        let ranges = accept.split(',').enumerate().filter_map(|(at, range)| {
            let mut parts = range.split(';').map(str::trim);
            let named = parts.next()?;
            let q = parts.find_map(|part| part.strip_prefix("q="));
            let q = q.map_or(Some(1.0), |q| q.parse::<f64>().ok())?;
            (named.eq_ignore_ascii_case(kind) && q > 0.0).then_some((q, at))
        });
        ranges.max_by(|(a, i), (b, j)| a.total_cmp(b).then(j.cmp(i)))
    };
    match (weight("application/openmetrics-text"), weight("text/plain")) {
        (Some((open, i)), Some((plain, j))) => {
            open > plain || (open.total_cmp(&plain).is_eq() && i < j)
        }
        (open, _) => open.is_some(),
    }
}

/// Why a policy is refused that is put with these headers, if it is: it has no tag and no time
/// that a condition could be about, and it is read as it comes.
pub(crate) fn refused_policy(headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
    let conditions = [header::IF_MATCH, header::IF_NONE_MATCH, header::IF_UNMODIFIED_SINCE];
    if conditions.iter().any(|name| headers.contains_key(name)) {
        let why = "the policy has no tag and no date: it is put without conditions";
        return Some((StatusCode::BAD_REQUEST, why));
    }
    let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
    let is_plain = codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    (!is_plain).then_some((StatusCode::UNSUPPORTED_MEDIA_TYPE, "a policy is put as it is"))
}

async fn put_policy(server: &Server, request: Request<Incoming>) -> Answer {
    if let Some((status, why)) = refused_policy(request.headers()) {
        return refuse(status, why);
    }
    let too_long = || {
        let why = format!("the policy is longer than {POLICY_BYTES_MAX} bytes");
        refuse(StatusCode::PAYLOAD_TOO_LARGE, &why)
    };
    let body = request.into_body();
    // What the head says is enough to refuse it.
    if body.size_hint().lower() > POLICY_BYTES_MAX as u64 {
        return too_long();
    }
    let body = match Limited::new(body, POLICY_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return too_long(),
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let Ok(json) = std::str::from_utf8(&body) else {
        return refuse(StatusCode::BAD_REQUEST, "the policy is not UTF-8");
    };
    if json.trim().is_empty() {
        return refuse(StatusCode::BAD_REQUEST, "there is no policy in the request's body");
    }
    match server.set_policy(json, "the admin port") {
        Ok(()) => {
            let policy = server.config.text(Param::PackPolicy);
            reply(StatusCode::OK, "application/json", policy + "\n")
        }
        Err(why) => refuse(StatusCode::BAD_REQUEST, &why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_header_is_weighed() {
        for (accept, open) in [
            ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", true),
            ("text/plain;q=0.9,application/openmetrics-text;q=0.5", false),
            ("application/openmetrics-text", true),
            ("application/openmetrics-text;q=0", false),
            ("text/plain, application/openmetrics-text", false),
            ("*/*", false),
            ("", false),
            ("application/openmetrics-text;q=nonsense,,;", false),
        ] {
            assert_eq!(wants_open_metrics(accept), open, "{accept}");
        }
    }
}
