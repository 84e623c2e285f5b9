//! Values sent to another server, which restores them: what `MIGRATE` does while its
//! client waits.
//!
//! ```text
//!  worker                    a thread for what blocks              target
//!    values, 1 MiB at a time ──> payloads of DUMP
//!    AUTH, SELECT, RESTORE ... <──┘ ───────────────────────────────> restores
//!    which were acknowledged <─────────────────────────────────────── replies
//! ```
//!
//! The worker's part is a future that waits for nothing but the socket. Large values are
//! shared with the keyspace, by reference, and dumped elsewhere. What is in memory beside
//! them are payloads of 1 MiB, or one larger value's, and 64 MiB of them at a time, or one
//! that is larger still: whoever finds no room for another waits.

use crate::engine::server::Server;
use crate::outside::clock::unix_ms;
use rustls::ClientConfig;
use snug_rdb::Options;
use snug_store::types::stream::StreamScratch;
use snug_store::{Detached, Unsaved};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

/// Payloads made together, in bytes of what they are made of.
const TOGETHER: usize = 1 << 20;
/// Payloads that are made or sent, of all clients together, in MiB.
const ROOM_MIB: usize = 64;
static ROOM: Semaphore = Semaphore::const_new(ROOM_MIB);
/// The most bytes of a reply's line.
const LINE_MAX: usize = 1024;

/// Where values go, and as whom they are brought.
#[derive(Debug)]
pub(crate) struct Target {
    pub host: String,
    pub port: u16,
    pub db: i64,
    /// How long each step may take.
    pub timeout: Duration,
    pub login: Vec<Vec<u8>>,
    /// `RESTORE`, or `RESTORE-ASKING` in a cluster.
    pub restore: &'static [u8],
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Delivered {
    /// The keys that the target has.
    pub keys: Vec<Vec<u8>>,
    /// What the client is to be told instead of `OK`.
    pub error: Option<Vec<u8>>,
}

/// A value, and whether it takes the place of what the target has.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub value: Detached,
    pub replaces: bool,
}

/// Which step failed.
#[derive(Clone, Copy, Debug)]
enum Failed {
    Connecting,
    Writing,
    Reading,
}

impl Failed {
    fn text(self) -> Vec<u8> {
        let what = match self {
            Self::Connecting => "connecting to the client",
            Self::Writing => "writing to target instance",
            Self::Reading => "reading to target instance",
        };
        format!("IOERR error or timeout {what}").into_bytes()
    }
}

/// Sends values to a server and waits for its replies.
pub(crate) async fn deliver(
    server: Arc<Server>,
    target: Target,
    parcels: Vec<Parcel>,
    options: Options,
) -> Delivered {
    let mut delivered = Delivered::default();
    if let Err(failed) = converse(server, &target, parcels, options, &mut delivered).await {
        delivered.error.get_or_insert(failed.text());
    }
    delivered
}

async fn converse(
    server: Arc<Server>,
    target: &Target,
    parcels: Vec<Parcel>,
    options: Options,
    delivered: &mut Delivered,
) -> Result<(), Failed> {
    let connecting = TcpStream::connect((&target.host[..], target.port));
    // As Redis tells it: a connection that is refused is one that cannot be written to.
    let stream = within(target.timeout, connecting).await.map_err(|error| {
        if error.raw_os_error().is_some() { Failed::Writing } else { Failed::Connecting }
    })?;
    // What is sent is sent at once; if that cannot be had, later.
    let _ = stream.set_nodelay(true);
    let mut stream = match server.tls.of_moving() {
        Some(tls) => within(target.timeout, shake_hands(stream, tls)).await,
        None => Ok(Box::new(stream) as Box<dyn Socket>),
    }
    .map_err(|_| Failed::Writing)?;
    let mut request = Vec::new();
    let mut introduced = 0;
    if !target.login.is_empty() {
        command(&mut request, [b"AUTH".as_slice()], target.login.iter().map(Vec::as_slice));
        introduced += 1;
    }
    command(&mut request, [b"SELECT".as_slice()], [target.db.to_string().as_bytes()]);
    introduced += 1;
    let mut sent: Vec<Vec<u8>> = Vec::new();
    let mut parcels = parcels.into_iter().peekable();
    while parcels.peek().is_some() {
        let (mut some, mut bytes) = (Vec::new(), 0);
        while bytes < TOGETHER
            && let Some(parcel) = parcels.next()
        {
            bytes += parcel.value.allocated();
            some.push(parcel);
        }
        let mib = (bytes >> 20).clamp(1, ROOM_MIB) as u32;
        let room = async { ROOM.acquire_many(mib).await.map_err(io::Error::other) };
        let room = within(target.timeout, room).await.map_err(|_| Failed::Writing)?;
        let (server, restore) = (Arc::clone(&server), target.restore);
        let made = tokio::task::spawn_blocking(move || {
            let mut request = Vec::new();
            let keys = dump(&server, some, restore, options, &mut request);
            keys.map(|keys| (request, keys))
        });
        let made = made.await.map_err(|_| Failed::Writing)?;
        let (more, keys) = match made {
            Ok(made) => made,
            Err(why) => {
                delivered.error = Some(format!("ERR {why}").into_bytes());
                return Ok(());
            }
        };
        request.extend_from_slice(&more);
        sent.extend(keys);
        write(&mut *stream, &request, target.timeout).await.map_err(|_| Failed::Writing)?;
        request = Vec::new();
        drop(room);
    }
    let mut lines = Lines { stream, buffer: Vec::new(), timeout: target.timeout };
    let mut refused = None;
    for _ in 0..introduced {
        let line = lines.next().await.map_err(|_| Failed::Reading)?;
        refused = refused.or(error_in(&line));
    }
    for key in sent {
        let line = lines.next().await.map_err(|_| Failed::Reading)?;
        match refused.clone().or(error_in(&line)) {
            Some(error) => {
                let text = [b"ERR Target instance replied with error: ", &error[..]].concat();
                delivered.error.get_or_insert(text);
            }
            None => delivered.keys.push(key),
        }
    }
    Ok(())
}

/// Writes a command that restores each value that has not expired; the keys of these.
fn dump(
    server: &Arc<Server>,
    parcels: Vec<Parcel>,
    restore: &[u8],
    options: Options,
    request: &mut Vec<u8>,
) -> Result<Vec<Vec<u8>>, String> {
    let session = server.store.session();
    let mut scratch = StreamScratch::default();
    let mut keys = Vec::new();
    for Parcel { value, replaces } in parcels {
        let now = unix_ms();
        let left = match value.expiry() {
            Some(at) if at < now => continue,
            Some(at) => (at - now).max(1),
            None => 0,
        };
        let payload = snug_rdb::dump(&value, options, (&session, &mut scratch));
        let payload = payload.map_err(|why| match why {
            Unsaved::Unreadable(why) => why.to_string(),
            Unsaved::Taken(why) => why.to_string(),
        })?;
        let left = left.to_string();
        let key = value.key();
        let head = [restore, &key, left.as_bytes(), &payload];
        command(request, head, replaces.then_some(b"REPLACE".as_slice()));
        keys.push(key.to_vec());
    }
    Ok(keys)
}

/// Appends a command.
fn command<'a, const N: usize>(
    request: &mut Vec<u8>,
    head: [&'a [u8]; N],
    rest: impl IntoIterator<Item = &'a [u8]>,
) {
    let args: Vec<&[u8]> = head.into_iter().chain(rest).collect();
    request.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        request.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        request.extend_from_slice(arg);
        request.extend_from_slice(b"\r\n");
    }
}

/// The text of an error reply.
fn error_in(line: &[u8]) -> Option<Vec<u8>> {
    line.strip_prefix(b"-").map(<[u8]>::to_vec)
}

async fn within<T>(timeout: Duration, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(timeout, step).await.map_err(|_| ErrorKind::TimedOut)?
}

/// A socket as it is, or TLS in one.
trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

/// TLS in a socket. As on the link to a primary no name is asked for: whoever has a
/// certificate of the authorities is the server that is meant.
async fn shake_hands(stream: TcpStream, tls: Arc<ClientConfig>) -> io::Result<Box<dyn Socket>> {
    let name = stream.peer_addr()?.ip().to_canonical().into();
    let stream = TlsConnector::from(tls).connect(name, stream).await?;
    Ok(Box::new(stream))
}

/// Writes all of it; each part within the time that a step may take.
async fn write(stream: &mut dyn Socket, bytes: &[u8], timeout: Duration) -> io::Result<()> {
    for part in bytes.chunks(64 * 1024) {
        within(timeout, stream.write_all(part)).await?;
    }
    within(timeout, stream.flush()).await
}

/// Replies of a line each.
struct Lines {
    stream: Box<dyn Socket>,
    buffer: Vec<u8>,
    timeout: Duration,
}

impl Lines {
    async fn next(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
                while line.pop_if(|byte| matches!(byte, b'\r' | b'\n')).is_some() {}
                return Ok(line);
            }
            if self.buffer.len() >= LINE_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
            if within(self.timeout, self.stream.read_buf(&mut self.buffer)).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }
}
