//! Where clients come in: the addresses of `bind` with `port` and with `tls-port`, and
//! the Unix socket, at the start and when `CONFIG SET` changes them.
//!
//! Each worker listens at every address with a socket of its own
//! (`SO_REUSEPORT`), so that the kernel spreads connections over workers; at a Unix
//! socket, for which there is no such thing, and with a socket that the server was started
//! with, all listen with the same one. A change makes all new sockets before any worker gives up an old one: it
//! succeeds for all workers or changes nothing. Connections that were accepted
//! stay; those that waited in the queue of a closed socket are lost, as in Redis.

use super::inherited::Inherited;
use crate::config::{Config, Param};
use parking_lot::Mutex;
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Tells a worker where it is to listen, and of every change.
pub(crate) type Doors = UnboundedReceiver<Change>;

/// A place where clients come in, and what they speak there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Door {
    Tcp(SocketAddr),
    Tls(SocketAddr),
    Unix(Arc<Path>),
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Tls(address) => write!(f, "{address} (TLS)"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// What a worker is to listen to no longer, and to listen with now.
#[derive(Debug)]
pub(crate) struct Change {
    pub closed: Vec<Door>,
    pub opened: Vec<(Door, Socket)>,
}

/// The doors in force, and the way to every worker.
#[derive(Debug, Default)]
pub(crate) struct Listening(Mutex<InForce>);

#[derive(Debug, Default)]
struct InForce {
    doors: Vec<Door>,
    inherited: Inherited,
    /// Every port that was listened to.
    ports: Vec<u16>,
    workers: Vec<UnboundedSender<Change>>,
}

/// An address that the configuration names. One that `bind` has with `-` before it may
/// be unavailable.
#[derive(Clone, Copy, Debug)]
struct Named {
    address: SocketAddr,
    optional: bool,
}

impl Named {
    /// Whether the server does without this address, which it cannot listen at: the
    /// machine does not have it, or has nothing of its kind.
    fn is_dispensable(&self, error: &io::Error) -> bool {
        match Errno::from_io_error(error) {
            Some(Errno::ADDRNOTAVAIL) => self.optional,
            Some(
                Errno::NOPROTOOPT
                | Errno::PROTONOSUPPORT
                | Errno::SOCKTNOSUPPORT
                | Errno::PFNOSUPPORT
                | Errno::AFNOSUPPORT,
            ) => true,
            _ => false,
        }
    }
}

impl Listening {
    /// Where the next worker is told what to listen with.
    pub(crate) fn join(&self) -> Doors {
        let (sender, doors) = unbounded_channel();
        self.0.lock().workers.push(sender);
        doors
    }

    /// What the server was started with is listened with, wherever the configuration
    /// names its address. To be told before the first door is opened.
    pub(crate) fn inherit(&self, sockets: Inherited) {
        self.0.lock().inherited = sockets;
    }

    /// The address of a socket that the server was started with and that is no door of the
    /// configuration's.
    pub(crate) fn beside(&self) -> Option<String> {
        let in_force = self.0.lock();
        in_force.inherited.beside(&in_force.doors)
    }

    /// Has every worker listen at the configuration's addresses; on an error all go on
    /// as they did. The doors that are open then are returned.
    pub(crate) fn apply(&self, config: &Config) -> Result<Vec<Door>, String> {
        let mut in_force = self.0.lock();
        let tcp = named(config, Param::Bind, Param::Port)?;
        let tls = named(config, Param::Bind, Param::TlsPort)?;
        let both = (!tcp.is_empty() && !tls.is_empty()).then(|| config.number(Param::Port));
        if both.is_some_and(|port| port == config.number(Param::TlsPort)) {
            return Err("can't bind: port and tls-port are the same".into());
        }
        let named = tcp.into_iter().map(|n| (Door::Tcp(n.address), n));
        let named: Vec<_> =
            named.chain(tls.into_iter().map(|n| (Door::Tls(n.address), n))).collect();
        // A Unix socket stays as it was at the start.
        let mut doors: Vec<Door> =
            in_force.doors.iter().filter(|door| matches!(door, Door::Unix(_))).cloned().collect();
        doors.extend(named.iter().map(|(door, _)| door.clone()));
        let mut new: Vec<_> =
            named.into_iter().filter(|(door, _)| !in_force.doors.contains(door)).collect();
        let closed: Vec<Door> =
            in_force.doors.iter().filter(|door| !doors.contains(door)).cloned().collect();
        let backlog = config.number(Param::TcpBacklog) as i32;
        // Alone first: a port that another process shares is taken, not shared.
        // Not where sockets of one's own would be in the way, which workers may
        // not have closed yet.
        let mut missing = Vec::new();
        for (door, named) in &new {
            if in_force.inherited.at(door).is_some() {
                continue;
            }
            let taken_before = in_force.ports.contains(&named.address.port());
            match bound(named.address, taken_before) {
                Ok(_) => {}
                Err(error) if named.is_dispensable(&error) => {
                    tracing::warn!(address = %named.address, %error, "an address of bind is not there; passed over");
                    missing.push(door.clone());
                }
                Err(error) => return Err(format!("can't bind to {}: {error}", named.address)),
            }
        }
        new.retain(|(door, _)| !missing.contains(door));
        doors.retain(|door| !missing.contains(door));
        let open = || -> Result<Vec<(Door, Socket)>, String> {
            let socket = |(door, named): &(Door, Named)| {
                let inherited = in_force.inherited.at(door);
                let socket = inherited.unwrap_or_else(|| listen(named.address, backlog, true));
                let socket = socket.map_err(|e| format!("can't bind to {}: {e}", named.address))?;
                Ok((door.clone(), socket))
            };
            new.iter().map(socket).collect()
        };
        let sockets: Vec<_> = in_force.workers.iter().map(|_| open()).collect::<Result<_, _>>()?;
        in_force.tell(&closed, sockets);
        in_force.ports.extend(new.iter().map(|(_, named)| named.address.port()));
        in_force.doors.clone_from(&doors);
        Ok(doors)
    }

    /// Makes the Unix socket of the configuration, if it names one, and has every worker
    /// listen there. A file of that name is removed before, unless it is the socket that
    /// the server was started with.
    pub(crate) fn open_unix(&self, config: &Config) -> Result<Option<Door>, String> {
        if config.is_empty(Param::Unixsocket) {
            return Ok(None);
        }
        let path = config.path(Param::Unixsocket);
        let failed =
            |e: &dyn fmt::Display| format!("can't open Unix socket {}: {e}", path.display());
        let backlog = config.number(Param::TcpBacklog) as i32;
        let permissions = config.number(Param::Unixsocketperm) as u32;
        // By the name that it was given: that is what clients are shown.
        let door = Door::Unix(path.as_path().into());
        let mut in_force = self.0.lock();
        let inherited = in_force.inherited.at(&door);
        let socket = inherited.unwrap_or_else(|| listen_unix(&path, backlog, permissions));
        let socket = socket.map_err(|e| failed(&e))?;
        let each = |_: &UnboundedSender<Change>| Ok(vec![(door.clone(), socket.try_clone()?)]);
        let sockets = in_force.workers.iter().map(each).collect::<io::Result<Vec<_>>>();
        let sockets = sockets.map_err(|e| failed(&e))?;
        in_force.tell(&[], sockets);
        in_force.doors.push(door.clone());
        Ok(Some(door))
    }

    /// Removes the file of the Unix socket, at the end, if the server made it.
    pub(crate) fn remove_unix(&self) {
        let in_force = self.0.lock();
        for door in &in_force.doors {
            if let Door::Unix(path) = door
                && in_force.inherited.at(door).is_none()
            {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

impl InForce {
    /// Tells every worker of a change.
    fn tell(&self, closed: &[Door], sockets: Vec<Vec<(Door, Socket)>>) {
        for (worker, opened) in self.workers.iter().zip(sockets) {
            // A worker that has ended listens to nothing any more.
            let _ = worker.send(Change { closed: closed.to_vec(), opened });
        }
    }
}

/// A socket that listens at `address`; each worker has its own.
pub(crate) fn listen(address: SocketAddr, backlog: i32, shared: bool) -> io::Result<Socket> {
    let socket = bound(address, shared)?;
    socket.listen(backlog)?;
    Ok(socket)
}

fn bound(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// A Unix socket that listens at `path`, for whoever these permissions let; 0 for what
/// the umask leaves.
fn listen_unix(path: &Path, backlog: i32, permissions: u32) -> io::Result<Socket> {
    // Of a server that ended without a farewell. What else is wrong is found by `bind`.
    let _ = std::fs::remove_file(path);
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    if permissions != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(permissions))?;
    }
    socket.listen(backlog)?;
    Ok(socket)
}

/// The addresses that the configuration names, for the admin port.
pub(crate) fn addresses(
    config: &Config,
    bind: Param,
    port: Param,
) -> Result<Vec<SocketAddr>, String> {
    Ok(named(config, bind, port)?.into_iter().map(|named| named.address).collect())
}

fn named(config: &Config, bind: Param, port: Param) -> Result<Vec<Named>, String> {
    let (bind, port) = (config.text(bind), config.number(port) as u16);
    let mut all = Vec::new();
    for name in bind.split_ascii_whitespace().filter(|_| port != 0) {
        let (optional, host) = match name.strip_prefix('-') {
            Some(host) => (true, host),
            None => (false, name),
        };
        let host = match host {
            "*" => "0.0.0.0",
            "::*" => "::",
            host => host,
        };
        match (host, port).to_socket_addrs() {
            Ok(found) => all.extend(found.take(1).map(|address| Named { address, optional })),
            Err(_) if optional => {}
            Err(e) => return Err(format!("can't bind to '{name}': {e}")),
        }
    }
    Ok(all)
}
