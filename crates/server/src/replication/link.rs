//! The link to the primary: this node as a replica.
//!
//! ```text
//!  connect -> PING, AUTH, REPLCONF ... -> PSYNC id offset
//!                                           |-- +CONTINUE -----------------┐
//!                                           `-- +FULLRESYNC -> data set ---+-> commands
//! ```
//!
//! A thread of its own, which waits for the socket as a plain reader does: the data set
//! is taken in as it streams, and commands are executed in the order in which they come,
//! in batches of bounded length. What has been executed is appended to the stream within
//! the same batch, at ends of transactions only: so the offset is exact whenever somebody
//! has the store to itself, and a link that breaks in the middle of a command or of a
//! transaction resumes at its beginning.
//!
//! Every reading waits for a tenth of a second at most. Then the thread looks whether
//! the role has changed, says how far it is (once a second), and whether the primary has
//! been silent for longer than `repl-timeout`.

use crate::config::Param;
use crate::engine::blocked;
use crate::engine::server::Server;
use crate::follow::clients::{Address, Shared};
use crate::measure::stats::Stat;
use crate::outside::clock::Instant;
use crate::outside::clock::unix_ms;
use crate::outside::threads;
use crate::peers::replica::CAPA_IMAGE;
use crate::peers::{Link, Transfer};
use crate::replication::transfer;
use crate::replication::{Execute, Executor};
use crate::request::ahead::Keys;
use crate::request::stream::CommandStream;
use crate::sockets::outgoing::{Outgoing, Socket};
use bytes::BytesMut;
use snug_resp::append_command;
use snug_store::{Expired, Session};
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How long one reading may wait.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long making a connection may take at most.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// How often the primary is told how far this node is.
const ACKNOWLEDGE_EVERY: Duration = Duration::from_secs(1);
/// Between two attempts to make the link.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Bytes read at once.
const READ_BYTES: usize = 64 * 1024;
/// For how long commands are executed before whoever needs the store alone gets it.
const BATCH_TIME_MAX: Duration = Duration::from_millis(1);
/// The longest line of a handshake.
const LINE_MAX: usize = 4096;

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The role has changed, or the server ends: it is not to be made again.
    #[error("it is wanted no more")]
    Unwanted,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the primary closed it")]
    Closed,
    #[error("a client ended it")]
    Killed,
    #[error("executing a command failed in a way that is a mistake in Snug")]
    Panicked,
    #[error("nothing came for repl-timeout seconds")]
    Silent,
    #[error("the primary said: {0}")]
    Refused(String),
    #[error("what came is not understood: {0}")]
    Nonsense(String),
    #[error("the data set could not be taken in: {0}")]
    Load(String),
}

/// Starts the link of an epoch, if there is a primary. That of another ends by itself.
pub(super) fn start(server: &Arc<Server>, epoch: u64, executor: Executor) {
    let Some(primary) = server.peers.primary() else { return };
    let link = LinkThread {
        server: Arc::clone(server),
        epoch,
        session: server.store.session(),
        execute: executor(),
        takes_images: true,
    };
    if let Err(error) = threads::spawn("link", move || link.run()) {
        let host = &primary.host;
        tracing::error!(%error, host, "no thread for the link to the primary");
    }
}

struct LinkThread {
    server: Arc<Server>,
    epoch: u64,
    session: Session,
    execute: Box<dyn Execute>,
    /// A data set may come in Snug's own format: none has failed to be taken in.
    takes_images: bool,
}

/// A connection to the primary.
pub(super) struct Wire<'s> {
    server: &'s Server,
    epoch: u64,
    socket: Outgoing,
    /// The link, as `CLIENT LIST` shows it and `CLIENT KILL` ends it.
    client: Arc<Shared>,
    /// What was read and is not used yet.
    buffer: Vec<u8>,
    used: usize,
    heard: Instant,
}

impl Drop for Wire<'_> {
    fn drop(&mut self) {
        self.server.clients.write().remove(&self.client.id);
    }
}

impl<'s> Wire<'s> {
    pub(super) fn server(&self) -> &'s Server {
        self.server
    }

    /// The data set begins to come.
    pub(super) fn begins(&self, total: Option<u64>) {
        self.server.peers.with_primary(self.epoch, |primary| {
            primary.transfer = Transfer { total, read: 0, heard: unix_ms() };
        });
    }

    /// So much of it has come.
    pub(super) fn has_read(&self, read: u64) {
        self.server.peers.with_primary(self.epoch, |primary| {
            (primary.transfer.read, primary.transfer.heard) = (read, unix_ms());
        });
    }

    /// Puts back what was read too far.
    pub(super) fn give_back(&mut self, rest: Vec<u8>) {
        self.buffer.splice(..self.used, rest);
        self.used = 0;
    }

    /// Whether the link is still wanted.
    pub(super) fn is_wanted(&self) -> bool {
        self.server.peers.epoch() == self.epoch && !self.server.ending.load(Relaxed)
    }

    fn look(&self) -> Result<(), Broken> {
        if !self.is_wanted() {
            return Err(Broken::Unwanted);
        }
        if self.client.is_killed() {
            return Err(Broken::Killed);
        }
        let timeout = self.server.config.number(Param::ReplTimeout) as u64;
        if self.heard.elapsed() > Duration::from_secs(timeout) {
            return Err(Broken::Silent);
        }
        Ok(())
    }

    /// Reads once; 0 if nothing came in time.
    fn read_some(&mut self, into: &mut [u8]) -> Result<usize, Broken> {
        self.look()?;
        match self.socket.read(into) {
            Ok(0) => Err(Broken::Closed),
            Ok(read) => {
                self.heard = Instant::now();
                self.server.stats.add(Stat::total_net_repl_input_bytes, read as u64);
                Ok(read)
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(0),
                _ => Err(error.into()),
            },
        }
    }

    /// Reads more behind what is not used yet.
    fn fill(&mut self) -> Result<usize, Broken> {
        self.buffer.drain(..self.used);
        self.used = 0;
        let kept = self.buffer.len();
        self.buffer.resize(kept + 16 * 1024, 0);
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = self.read_some(&mut buffer[kept..]);
        buffer.truncate(kept + *read.as_ref().unwrap_or(&0));
        self.buffer = buffer;
        read
    }

    /// The next line that is not empty: a primary that is busy sends empty ones.
    pub(super) fn line(&mut self) -> Result<String, Broken> {
        loop {
            let rest = &self.buffer[self.used..];
            if let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                let line = String::from_utf8_lossy(rest[..end].trim_ascii()).into_owned();
                self.used += end + 1;
                if !line.is_empty() {
                    return Ok(line);
                }
                continue;
            }
            if rest.len() > LINE_MAX {
                return Err(Broken::Nonsense("a line without end".into()));
            }
            self.fill()?;
        }
    }

    pub(super) fn send(&mut self, words: &[&[u8]]) -> Result<(), Broken> {
        let mut bytes = Vec::new();
        append_command(&mut bytes, words);
        self.socket.write_all(&bytes)?;
        Ok(())
    }

    /// Sends a command and takes its reply, a line.
    fn ask(&mut self, words: &[&[u8]]) -> Result<String, Broken> {
        self.send(words)?;
        self.line()
    }

    /// Says that this node is alive, while it is busy with the data set.
    pub(super) fn sign_of_life(&mut self) -> Result<(), Broken> {
        Ok(self.socket.write_all(b"\n")?)
    }

    /// Some bytes of the data set: what was read already, or what comes; 0 if nothing
    /// came in time.
    pub(super) fn take(&mut self, into: &mut [u8]) -> Result<usize, Broken> {
        let rest = &self.buffer[self.used..];
        if rest.is_empty() {
            return self.read_some(into);
        }
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        self.used += len;
        Ok(len)
    }
}

impl LinkThread {
    fn run(mut self) {
        // What is on disk comes first: it may be where the stream goes on.
        while self.server.persist.is_loading() {
            if self.server.peers.epoch() != self.epoch || self.server.ending.load(Relaxed) {
                return;
            }
            threads::sleep(LOOK_EVERY / 10);
        }
        loop {
            let once = AssertUnwindSafe(|| self.session());
            let session = catch_unwind(once).unwrap_or_else(|_| {
                // Something was executed in part: only everything anew is right.
                self.server.peers.leave_stream();
                Err(Broken::Panicked)
            });
            let broken = match session {
                Err(Broken::Unwanted) | Ok(()) => return,
                Err(broken) => broken,
            };
            if !self.server.peers.set_link(&self.server.config, self.epoch, Link::Connect) {
                return;
            }
            tracing::warn!(%broken, "the link to the primary is down");
            self.execute.forget_transaction();
            let until = Instant::now() + RETRY_AFTER;
            while Instant::now() < until {
                if self.server.peers.epoch() != self.epoch || self.server.ending.load(Relaxed) {
                    return;
                }
                threads::sleep(LOOK_EVERY / 2);
            }
        }
    }

    /// One connection, from its beginning to its end.
    fn session(&mut self) -> Result<(), Broken> {
        let server = Arc::clone(&self.server);
        let config = &server.config;
        let primary = server.peers.primary().ok_or(Broken::Unwanted)?;
        let epoch = self.epoch;
        let set_link = |link| match server.peers.set_link(config, epoch, link) {
            true => Ok(()),
            false => Err(Broken::Unwanted),
        };
        set_link(Link::Connecting)?;
        let timeout = Duration::from_secs(config.number(Param::ReplTimeout) as u64);
        let socket = connect(&primary.host, primary.port, timeout)?;
        let client = known(&server, &socket)?;
        let socket = Outgoing::new(socket, server.tls.of_link())?;
        let mut wire = Wire {
            server: &server,
            epoch: self.epoch,
            socket,
            client,
            buffer: Vec::new(),
            used: 0,
            heard: Instant::now(),
        };
        set_link(Link::Handshake)?;
        // Beside what is here values keep the dictionaries' ids that they were packed under.
        let beside = config.number(Param::ReplDisklessLoad) == transfer::SWAP;
        let clashes = beside && !server.store.families().dictionaries().is_empty();
        introduce(&mut wire, self.takes_images && !clashes)?;
        let known = {
            let stream = server.peers.stream();
            let is_known = stream.backlog.is_active();
            is_known.then(|| (stream.backlog.id.clone(), stream.backlog.end() + 1))
        };
        let (id, offset) = match &known {
            Some((id, offset)) => (id.clone(), offset.to_string()),
            None => ("?".into(), "-1".into()),
        };
        let mut words: Vec<&[u8]> = vec![b"PSYNC", id.as_bytes(), offset.as_bytes()];
        if primary.promote {
            words.push(b"FAILOVER");
        }
        let reply = wire.ask(&words)?;
        let mut reply = reply.split_ascii_whitespace();
        match reply.next() {
            Some("+CONTINUE") => self.resume(reply.next()),
            Some("+FULLRESYNC") => {
                let nonsense = || Broken::Nonsense("+FULLRESYNC without id and offset".into());
                let id = reply.next().filter(|id| id.len() == 40).ok_or_else(nonsense)?.to_owned();
                let offset = reply.next().and_then(|offset| offset.parse().ok());
                let offset: u64 = offset.ok_or_else(nonsense)?;
                set_link(Link::Transfer)?;
                tracing::info!(id, offset, "full synchronisation with the primary");
                let taken = transfer::take_in(&mut wire, &mut self.session, (&id, offset));
                // If it was one of Snug's own format, the next is not.
                self.takes_images = !matches!(taken, Err(Broken::Load(_)));
                let selected = taken?;
                *self.execute.database() = selected;
            }
            other => {
                let said = other.into_iter().chain(reply).collect::<Vec<_>>().join(" ");
                if primary.promote && said.starts_with('-') {
                    let batch = self.session.enter(unix_ms());
                    server.abort_failover(&batch, &said);
                }
                return Err(Broken::Refused(said));
            }
        }
        if primary.promote {
            tracing::info!("FAILOVER is done");
            server.peers.with_primary(epoch, |primary| primary.promote = false);
            server.end_failover();
        }
        set_link(Link::Connected)?;
        tracing::info!(host = primary.host, port = primary.port, "the link to the primary is up");
        self.follow(&mut wire)
    }

    /// The primary goes on where this node was.
    fn resume(&mut self, id: Option<&str>) {
        let peers = &self.server.peers;
        let mut stream = peers.stream();
        *self.execute.database() = stream.selected;
        let renamed = id.is_some_and(|id| id != stream.backlog.id);
        if let Some(id) = id {
            stream.backlog.renamed(id);
        }
        stream.backlog.begin();
        drop(stream);
        if renamed {
            peers.disconnect_replicas();
        }
    }

    /// Executes what comes, until something is wrong.
    fn follow(&mut self, wire: &mut Wire<'_>) -> Result<(), Broken> {
        let mut inflow = Inflow::default();
        let mut buffer = vec![0; READ_BYTES];
        // The first one says that the data set has been taken in.
        let mut acknowledged = self.acknowledge(wire)?;
        let mut news = false;
        loop {
            let read = wire.take(&mut buffer)?;
            if read > 0 {
                inflow.raw.extend_from_slice(&buffer[..read]);
                inflow.commands.push(&buffer[..read]);
                let asked = self.execute_all(&mut inflow)?;
                let now = unix_ms();
                if !self.server.peers.with_primary(self.epoch, |primary| primary.heard = now) {
                    return Err(Broken::Unwanted);
                }
                if asked {
                    acknowledged = self.acknowledge(wire)?;
                }
            }
            // Whoever waits for this node need not wait for the second to be over, once
            // nothing more comes.
            let quiet = read == 0 && news;
            news = read > 0;
            if quiet || acknowledged.elapsed() >= ACKNOWLEDGE_EVERY {
                acknowledged = self.acknowledge(wire)?;
            }
        }
    }

    fn acknowledge(&self, wire: &mut Wire<'_>) -> Result<Instant, Broken> {
        let offset = self.server.peers.stream().backlog.end().to_string();
        wire.send(&[b"REPLCONF", b"ACK", offset.as_bytes()])?;
        Ok(Instant::now())
    }

    /// Executes the commands that are there as a whole; whether the primary asks how far
    /// this node is.
    fn execute_all(&mut self, inflow: &mut Inflow) -> Result<bool, Broken> {
        let mut asked = false;
        loop {
            // Nothing is evicted or refused here, so memory would grow.
            self.server.wait_for_tier();
            if !self.execute_some(inflow, &mut asked)? {
                return Ok(asked);
            }
        }
    }

    /// A batch of them; whether there may be more.
    fn execute_some(&mut self, inflow: &mut Inflow, asked: &mut bool) -> Result<bool, Broken> {
        let Self { server, epoch, session, execute, .. } = self;
        let began = Instant::now();
        let batch = session.enter(unix_ms());
        if server.peers.epoch() != *epoch {
            return Err(Broken::Unwanted);
        }
        let mut executed = 0;
        let (mut whole, mut nonsense, mut inline) = (inflow.appended, None, false);
        let more = loop {
            match inflow.commands.parse_some() {
                Ok(true) => {}
                Ok(false) => break false,
                Err(why) => {
                    // What was executed before it counts.
                    nonsense = Some(why);
                    break false;
                }
            }
            let mut keys = Keys::default();
            inflow.commands.warm(&batch, *execute.database(), &mut keys);
            for (taken, args, key) in inflow.commands.commands(&keys) {
                if args.buf.first() != Some(&b'*') {
                    // No primary sends a command as a line: the stream has lost its frame.
                    inline = true;
                    break;
                }
                if args.is(0, "replconf") {
                    *asked |= args.is(1, "getack");
                } else {
                    batch.expired_keys(Expired::Seen);
                    if let Err(why) = execute.execute(server, &batch, args, key) {
                        tracing::error!(why, "a command of the primary failed here");
                    }
                    if blocked::any_ready() {
                        batch.expired_keys(Expired::Hidden);
                        server.serve(&batch, 0);
                    }
                    batch.settle();
                }
                executed += 1;
                if !execute.is_in_transaction() {
                    whole = taken;
                }
            }
            if inline {
                break false;
            }
            if !execute.is_in_transaction() && began.elapsed() > BATCH_TIME_MAX {
                break true;
            }
        };
        server.stats.add(Stat::total_commands_processed, executed);
        let done = inflow.raw.split_to((whole - inflow.appended) as usize).freeze();
        inflow.appended = whole;
        if !done.is_empty() {
            server.peers.pass_on(done, *execute.database());
            server.peers.trim(&server.config);
        }
        if inline {
            server.peers.leave_stream();
            return Err(Broken::Nonsense("a command that is a line".into()));
        }
        if let Some(why) = nonsense {
            return Err(Broken::Nonsense(why.to_string()));
        }
        Ok(more)
    }
}

/// What has come of the stream.
#[derive(Default)]
struct Inflow {
    commands: CommandStream,
    /// Its bytes that are not part of this node's own stream yet.
    raw: BytesMut,
    /// Bytes that are.
    appended: u64,
}

/// Has the link be known as a client.
fn known(server: &Server, socket: &Socket) -> Result<Arc<Shared>, Broken> {
    let (id, fd) = (server.client_id(), socket.fd());
    let (peer, local) = socket.addresses()?;
    let ends = (Address::Net(peer), Address::Net(local));
    let client = Shared::new(id, ends, fd, unix_ms());
    client.figures.primary.store(true, Relaxed);
    let client = Arc::new(client);
    server.clients.write().insert(id, Arc::clone(&client));
    Ok(client)
}

/// Connects to the primary.
fn connect(host: &str, port: u16, timeout: Duration) -> Result<Socket, Broken> {
    Ok(Socket::connect(host, port, timeout.min(CONNECT_TIME_MAX), (LOOK_EVERY, timeout))?)
}

/// Tells the primary who this node is.
fn introduce(wire: &mut Wire<'_>, takes_images: bool) -> Result<(), Broken> {
    let config = &wire.server.config;
    let reply = wire.ask(&[b"PING"])?;
    let is_answer = ["+", "-NOAUTH", "-NOPERM", "-ERR operation not permitted"];
    if !is_answer.iter().any(|begin| reply.starts_with(begin)) {
        return Err(Broken::Refused(reply));
    }
    let (user, password) = (config.bytes(Param::Masteruser), config.bytes(Param::Masterauth));
    if !password.is_empty() {
        let reply = match user.is_empty() {
            true => wire.ask(&[b"AUTH", &password])?,
            false => wire.ask(&[b"AUTH", &user, &password])?,
        };
        refused(reply)?;
    }
    // Who speaks TLS with its primary is to be spoken to so, too.
    let inside_tls = config.is_on(Param::TlsReplication) && config.number(Param::TlsPort) != 0;
    let announced = match config.number(Param::ReplicaAnnouncePort) {
        0 if inside_tls => config.number(Param::TlsPort),
        0 => config.number(Param::Port),
        port => port,
    };
    // What a primary does not know of these it can do without.
    wire.ask(&[b"REPLCONF", b"listening-port", announced.to_string().as_bytes()])?;
    let address = config.bytes(Param::ReplicaAnnounceIp);
    if !address.is_empty() {
        wire.ask(&[b"REPLCONF", b"ip-address", &address])?;
    }
    let mut able: Vec<&[u8]> = vec![b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"];
    if takes_images {
        able.extend([&b"capa"[..], CAPA_IMAGE.as_bytes()]);
    }
    wire.ask(&able)?;
    Ok(())
}

fn refused(reply: String) -> Result<(), Broken> {
    if reply.starts_with('-') { Err(Broken::Refused(reply)) } else { Ok(()) }
}
