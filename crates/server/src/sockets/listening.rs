//! Where clients come in: the addresses of `bind` and `port`, at the start and
//! when `CONFIG SET` changes them.
//!
//! Each worker listens at every address with a socket of its own
//! (`SO_REUSEPORT`), so that the kernel spreads connections over workers. A
//! change makes all new sockets before any worker gives up an old one: it
//! succeeds for all workers or changes nothing. Connections that were accepted
//! stay; those that waited in the queue of a closed socket are lost, as in Redis.

use crate::config::{Config, Param};
use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Tells a worker where it is to listen, and of every change.
pub(crate) type Doors = UnboundedReceiver<Change>;

/// What a worker is to listen to no longer, and to listen with now.
#[derive(Debug)]
pub(crate) struct Change {
    pub closed: Vec<SocketAddr>,
    pub opened: Vec<(SocketAddr, Socket)>,
}

/// The addresses in force, and the way to every worker.
#[derive(Debug, Default)]
pub(crate) struct Listening(Mutex<InForce>);

#[derive(Debug, Default)]
struct InForce {
    addresses: Vec<SocketAddr>,
    /// Every port that was listened to.
    ports: Vec<u16>,
    workers: Vec<UnboundedSender<Change>>,
}

impl Listening {
    /// Where the next worker is told what to listen with.
    pub(crate) fn join(&self) -> Doors {
        let (sender, doors) = unbounded_channel();
        self.0.lock().workers.push(sender);
        doors
    }

    /// Has every worker listen at the configuration's addresses, which are
    /// returned; on an error all go on as they did.
    pub(crate) fn apply(&self, config: &Config) -> Result<Vec<SocketAddr>, String> {
        let addresses = addresses(config, Param::Bind, Param::Port)?;
        let backlog = config.number(Param::TcpBacklog) as i32;
        let mut in_force = self.0.lock();
        let without = |all: &[SocketAddr], others: &[SocketAddr]| -> Vec<SocketAddr> {
            all.iter().filter(|address| !others.contains(address)).copied().collect()
        };
        let closed = without(&in_force.addresses, &addresses);
        let new = without(&addresses, &in_force.addresses);
        let listen = |shared| -> Result<Vec<(SocketAddr, Socket)>, String> {
            let socket = |&address: &SocketAddr| {
                let socket = listen(address, backlog, shared);
                let socket = socket.map_err(|e| format!("can't bind to {address}: {e}"))?;
                Ok((address, socket))
            };
            new.iter().map(socket).collect()
        };
        // Alone first: a port that another process shares is taken, not shared.
        // Not where sockets of one's own would be in the way, which workers may
        // not have closed yet.
        let port = addresses.first().map(SocketAddr::port);
        let new_port = port.filter(|port| !in_force.ports.contains(port));
        if new_port.is_some() {
            drop(listen(false)?);
        }
        let sockets: Vec<_> =
            in_force.workers.iter().map(|_| listen(true)).collect::<Result<_, _>>()?;
        for (worker, opened) in in_force.workers.iter().zip(sockets) {
            // A worker that has ended listens to nothing any more.
            let _ = worker.send(Change { closed: closed.clone(), opened });
        }
        in_force.ports.extend(new_port);
        in_force.addresses.clone_from(&addresses);
        Ok(addresses)
    }
}

/// A socket that listens at `address`; each worker has its own.
pub(crate) fn listen(address: SocketAddr, backlog: i32, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    Ok(socket)
}

/// The addresses that the configuration names, for clients or for the admin
/// port. A name with `-` before it may be unavailable.
pub(crate) fn addresses(
    config: &Config,
    bind: Param,
    port: Param,
) -> Result<Vec<SocketAddr>, String> {
    let (bind, port) = (config.text(bind), config.number(port) as u16);
    let mut addresses = Vec::new();
    for name in bind.split_ascii_whitespace().filter(|_| port != 0) {
        let optional = name.starts_with('-');
        let host = match name.trim_start_matches('-') {
            "*" => "0.0.0.0",
            "::*" => "::",
            host => host,
        };
        match (host, port).to_socket_addrs() {
            Ok(found) => addresses.extend(found.take(1)),
            Err(_) if optional => {}
            Err(e) => return Err(format!("can't bind to '{name}': {e}")),
        }
    }
    Ok(addresses)
}
