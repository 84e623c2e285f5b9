//! Clients come in: a worker accepts them wherever it listens, shakes hands with those
//! who come through TLS, and makes connections of them.
//!
//! Whoever has not shaken hands yet is bounded in number and in time. A worker shakes
//! hands with [`HANDSHAKES_MAX`] at once; each has [`HANDSHAKE_TIME`], or, when others
//! wait, [`HANDSHAKE_TIME_MIN`]: those who stall hold up nobody for longer than that.
//! Those who wait do so in the kernel's queue, so a thousand clients that come at once
//! are served one after the other and none is turned away. They count as clients of
//! `maxclients`.
//!
//! A handshake costs a signature, which takes most of a millisecond with an RSA key of
//! 2,048 bits and a twentieth of that with one of an elliptic curve. One signature at a
//! time is made on a worker, and between two of them everybody whose socket is ready has
//! a turn: a storm of handshakes adds one signature to a client's waiting, not all.

use crate::config::Param;
use crate::engine::server::Server;
use crate::follow::clients::{Address, Shared};
use crate::measure::stats::Stat;
use crate::net::connection::{Connection, End};
use crate::outside::clock::Instant;
use crate::outside::clock::unix_ms;
use crate::sockets::descriptors::ran_out;
use crate::sockets::listening::{Door, Doors};
use crate::sockets::stream::{Stream, Tls};
use parking_lot::Mutex;
use rustls::ServerConnection;
use socket2::{SockRef, Socket, TcpKeepalive};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinHandle};

/// Hands that a worker shakes at once.
const HANDSHAKES_MAX: usize = 256;
/// For how long at most.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// For how long at least, when others wait.
const HANDSHAKE_TIME_MIN: Duration = Duration::from_secs(1);

/// What a client is told for whom there is no room.
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";
const TOO_MANY_IN_CLUSTER: &[u8] = b"-ERR max number of clients + cluster connections reached\r\n";

/// What a client from another machine is told in protected mode: Redis's text, to the
/// letter, for some look for it.
const PROTECTED: &[u8] = b"-DENIED Redis is running in protected mode because protected mode is \
    enabled and no password is set for the default user. In this mode connections are only accepted \
    from the loopback interface. If you want to connect from external computers to Redis you may \
    adopt one of the following solutions: 1) Just disable protected mode sending the command \
    'CONFIG SET protected-mode no' from the loopback interface by connecting to Redis from the same \
    host the server is running, however MAKE SURE Redis is not publicly accessible from internet if \
    you do so. Use CONFIG REWRITE to make this change permanent. 2) Alternatively you can just \
    disable the protected mode by editing the Redis configuration file, and setting the protected \
    mode option to 'no', and then restarting the server. 3) If you started the server manually just \
    for testing, restart it with the '--protected-mode no' option. 4) Setup a an authentication \
    password for the default user. NOTE: You only need to do one of the above things in order for \
    the server to start accepting connections from the outside.\r\n";

/// What a listening socket's clients speak: how one is told that it is not welcome, and
/// what becomes of one that is.
#[derive(Debug)]
pub(crate) struct Language {
    pub too_many: fn(&Server) -> &'static [u8],
    pub protected: &'static [u8],
    /// What it calls itself in a TLS handshake, if it does.
    pub alpn: &'static [&'static [u8]],
    pub welcome: fn(&Arc<Server>, Stream, Ends),
}

/// Redis's protocol.
static REDIS: Language = Language { too_many, protected: PROTECTED, alpn: &[], welcome };

/// A socket of this worker's at which another language than Redis's is spoken.
#[derive(Debug)]
pub(crate) struct OtherDoor {
    pub socket: Socket,
    pub tls: bool,
    pub language: &'static Language,
}

/// Accepts connections where another language is spoken, for as long as the server runs.
pub(crate) fn listen_elsewhere(server: &Arc<Server>, doors: Vec<OtherDoor>) {
    let handshakes = Arc::new(Handshakes::default());
    for OtherDoor { socket, tls, language } in doors {
        match TcpListener::from_std(socket.into()) {
            Ok(listener) => {
                let handshakes = tls.then(|| Arc::clone(&handshakes));
                let listener = Listener::Net(listener);
                tokio::spawn(accept(Arc::clone(server), listener, handshakes, language));
            }
            Err(error) => tracing::error!(%error, "cannot listen"),
        }
    }
}

/// Accepts connections wherever this worker is told to.
pub(crate) async fn listen(server: Arc<Server>, mut doors: Doors) {
    let mut accepting = HashMap::new();
    let handshakes = Arc::new(Handshakes::default());
    while let Some(change) = doors.recv().await {
        for door in &change.closed {
            if let Some(task) = accepting.remove(door) {
                JoinHandle::abort(&task);
            }
        }
        for (door, socket) in change.opened {
            match Listener::new(&door, socket) {
                Ok(listener) => {
                    let handshakes = matches!(door, Door::Tls(_)).then(|| Arc::clone(&handshakes));
                    let task =
                        tokio::spawn(accept(Arc::clone(&server), listener, handshakes, &REDIS));
                    accepting.insert(door, task);
                }
                Err(error) => tracing::error!(%door, %error, "cannot listen"),
            }
        }
    }
}

/// A socket that listens.
enum Listener {
    Net(TcpListener),
    Unix(UnixListener, Address),
}

impl Listener {
    fn new(door: &Door, socket: Socket) -> io::Result<Self> {
        match door {
            Door::Tcp(_) | Door::Tls(_) => Ok(Self::Net(TcpListener::from_std(socket.into())?)),
            Door::Unix(path) => {
                let address = Address::Unix(Arc::clone(path));
                Ok(Self::Unix(UnixListener::from_std(socket.into())?, address))
            }
        }
    }

    /// The next connection, and both its ends.
    async fn accept(&self) -> io::Result<(TcpStream, Address, Address)> {
        match self {
            Self::Net(listener) => {
                let (socket, peer) = listener.accept().await?;
                let local = socket.local_addr()?;
                Ok((socket, Address::Net(peer), Address::Net(local)))
            }
            Self::Unix(listener, address) => {
                let (socket, _) = listener.accept().await?;
                // To read and to write, a stream socket is a stream socket.
                let socket = OwnedFd::from(socket.into_std()?);
                let socket = TcpStream::from_std(socket.into())?;
                Ok((socket, address.clone(), address.clone()))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Net(listener) => listener.as_fd(),
            Self::Unix(listener, _) => listener.as_fd(),
        }
    }
}

async fn accept(
    server: Arc<Server>,
    listener: Listener,
    handshakes: Option<Arc<Handshakes>>,
    language: &'static Language,
) {
    loop {
        server.spares.refill();
        // Nobody is accepted with whom there is no place to shake hands.
        let place = match &handshakes {
            Some(handshakes) => Some((Arc::clone(handshakes), handshakes.place().await)),
            None => None,
        };
        match listener.accept().await {
            Ok((socket, peer, local)) => {
                let shown = peer.clone();
                if let Err(error) = come_in(&server, socket, (peer, local), place, language) {
                    tracing::debug!(peer = %shown, %error, "connection lost before it began");
                }
            }
            Err(error) => {
                if let Some(unsaid) = server.accept_told.tell(server.uptime_ms()) {
                    tracing::warn!(%error, unsaid, "cannot accept a connection");
                }
                // Before a handshake nothing can be said.
                let why = if place.is_some() { &[] } else { (language.too_many)(&server) };
                if ran_out(&error) && server.spares.turn_away(&listener, why) {
                    server.stats.add(Stat::total_connections_received, 1);
                    server.stats.add(Stat::rejected_connections, 1);
                } else {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

fn too_many(server: &Server) -> &'static [u8] {
    if server.cluster.enabled { TOO_MANY_IN_CLUSTER } else { TOO_MANY }
}

/// Both ends of a connection: the client's, and the server's.
pub(crate) type Ends = (Address, Address);

/// Where a handshake takes place, and its place there.
type Place = (Arc<Handshakes>, OwnedSemaphorePermit);

/// A connection was accepted: it is turned away, shaken hands with, or welcome.
fn come_in(
    server: &Arc<Server>,
    socket: TcpStream,
    ends: Ends,
    place: Option<Place>,
    language: &'static Language,
) -> io::Result<()> {
    server.stats.add(Stat::total_connections_received, 1);
    let most = server.config.number(Param::MaxClients) as usize;
    let is_full = || server.clients.read().len() + server.handshaking.load(Relaxed) >= most;
    if is_full() || !server.spares.refill() {
        server.stats.add(Stat::rejected_connections, 1);
        if place.is_none() {
            socket.try_write((language.too_many)(server))?;
        }
        return Ok(());
    }
    if matches!(ends.0, Address::Net(_))
        && let Err(error) = set_options(server, &socket)
        && let Some(unsaid) = server.option_told.tell(server.uptime_ms())
    {
        tracing::warn!(%error, unsaid, "a client's socket is served without all of its options");
    }
    let Some((handshakes, place)) = place else {
        if is_refused(server, &ends.0) {
            socket.try_write(language.protected)?;
        } else {
            (language.welcome)(server, Stream::Plain(socket), ends);
        }
        return Ok(());
    };
    let (server, shared) = (Arc::clone(server), Arc::clone(&handshakes));
    server.handshaking.fetch_add(1, Relaxed);
    let counted = Counted(Arc::clone(&server));
    let task = tokio::spawn(async move {
        let shaken =
            tokio::time::timeout(HANDSHAKE_TIME, shake(&server, socket, &shared, language)).await;
        drop((place, counted));
        match shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(mut stream) if is_refused(&server, &ends.0) => {
                // As far as the socket takes it at once.
                poll_fn(|task| {
                    let _ = stream.poll_send(task, language.protected);
                    stream.say_end(task);
                    Poll::Ready(())
                })
                .await;
            }
            Ok(stream) => (language.welcome)(&server, stream, ends),
            Err(error) => {
                tracing::debug!(peer = %ends.0, %error, "Error accepting a client connection");
            }
        }
    });
    handshakes.began(task.abort_handle());
    Ok(())
}

/// One of `handshaking`, until it is dropped.
struct Counted(Arc<Server>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.handshaking.fetch_sub(1, Relaxed);
    }
}

/// Handshakes of one worker.
struct Handshakes {
    places: Arc<Semaphore>,
    /// Since when each goes on, the oldest first, and what ends it. Some have ended.
    going: Mutex<VecDeque<(Instant, AbortHandle)>>,
    /// Held by whoever makes a signature.
    signing: tokio::sync::Mutex<()>,
}

impl Default for Handshakes {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(HANDSHAKES_MAX)),
            going: Mutex::default(),
            signing: tokio::sync::Mutex::default(),
        }
    }
}

impl Handshakes {
    /// A place. If there is none, that of the oldest, once it has had its least time.
    async fn place(&self) -> OwnedSemaphorePermit {
        loop {
            let oldest = {
                let mut going = self.going.lock();
                going.retain(|(_, task)| !task.is_finished());
                going.front().map_or_else(Instant::now, |(since, _)| *since)
            };
            let free = Arc::clone(&self.places).acquire_owned();
            // The semaphore is never closed.
            if let Ok(Ok(place)) = tokio::time::timeout_at(oldest + HANDSHAKE_TIME_MIN, free).await
            {
                return place;
            }
            let mut going = self.going.lock();
            if let Some((since, task)) = going.pop_front() {
                if since.elapsed() >= HANDSHAKE_TIME_MIN {
                    task.abort();
                } else {
                    going.push_front((since, task));
                }
            }
        }
    }

    fn began(&self, task: AbortHandle) {
        self.going.lock().push_back((Instant::now(), task));
    }
}

/// Shakes hands. Each step of it that may take a signature's time is taken alone, and
/// before the next one whoever else has something to do does it.
async fn shake(
    server: &Server,
    socket: TcpStream,
    handshakes: &Handshakes,
    language: &Language,
) -> io::Result<Stream> {
    let config = server.tls.speaking(language.alpn).ok_or(io::ErrorKind::NotConnected)?;
    let session = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut tls = Box::new(Tls::new(socket, session));
    while !poll_fn(|task| tls.poll_handshake(task)).await? {
        let _alone = handshakes.signing.lock().await;
        poll_fn(|task| Poll::Ready(tls.step(task))).await?;
        tokio::task::yield_now().await;
    }
    Ok(Stream::Tls(tls))
}

/// Whether protected mode keeps this client out, which is counted.
fn is_refused(server: &Server, peer: &Address) -> bool {
    let refused = server.config.is_on(Param::ProtectedMode)
        && !peer.is_local()
        && server.users.default_user().is_open();
    if refused {
        server.stats.add(Stat::rejected_connections, 1);
    }
    refused
}

/// Makes a client of a connection.
pub(super) fn welcome(server: &Arc<Server>, stream: Stream, ends: Ends) {
    let (id, fd) = (server.client_id(), stream.fd());
    let shared = Arc::new(Shared::new(id, ends, fd, unix_ms()));
    server.clients.write().insert(id, Arc::clone(&shared));
    let connection = Connection::new(Arc::clone(server), stream, shared);
    tokio::spawn(async move {
        match connection.await {
            End::Closed => {}
            End::Io(error) => tracing::debug!(client = id, %error, "connection lost"),
        }
    });
}

/// The most seconds that Linux takes for a pause between probes.
const KEEPALIVE_MAX: i64 = 32_767;

/// Sets a socket's options. A client is served without them too.
fn set_options(server: &Server, socket: &TcpStream) -> io::Result<()> {
    let immediate = socket.set_nodelay(true);
    let keepalive = server.config.number(Param::TcpKeepalive).min(KEEPALIVE_MAX);
    if keepalive > 0 {
        let every = Duration::from_secs(keepalive as u64);
        let probe = Duration::from_secs((keepalive as u64 / 3).max(1));
        let keepalive = TcpKeepalive::new().with_time(every).with_interval(probe).with_retries(3);
        SockRef::from(socket).set_tcp_keepalive(&keepalive)?;
    }
    immediate
}
