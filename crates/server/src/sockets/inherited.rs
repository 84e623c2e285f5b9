//! Listening sockets that were there before the server: systemd's socket activation
//! (`sd_listen_fds`). Whoever made them goes on holding them, so clients that come while
//! the server restarts wait, where they would be refused.
//!
//! Such a socket stands in for one of the server's own at the address that it is bound to.
//! What is spoken there is said by the configuration alone: an address that it does not
//! name, with `bind` and `port` or `tls-port` or with `unixsocket`, is an error.

use super::listening::Door;
use listenfd::ListenFd;
use socket2::{SockAddr, Socket};
use std::io;

/// The sockets that the server was started with. All workers listen with the same one.
#[derive(Debug, Default)]
pub(crate) struct Inherited(Vec<(SockAddr, Socket)>);

impl Inherited {
    /// Takes the sockets that `LISTEN_PID` and `LISTEN_FDS` tell of. One that is neither a
    /// TCP nor a Unix socket is an error.
    pub(crate) fn take() -> io::Result<Self> {
        let mut given = ListenFd::from_env();
        let mut taken = Vec::with_capacity(given.len());
        for place in 0..given.len() {
            // Which of the two it is turns out when it is taken as that.
            let unix = given.take_unix_listener(place).ok().flatten().map(Socket::from);
            let socket = match unix {
                Some(socket) => Some(socket),
                None => given.take_tcp_listener(place)?.map(Socket::from),
            };
            if let Some(socket) = socket {
                socket.set_nonblocking(true)?;
                taken.push((socket.local_addr()?, socket));
            }
        }
        Ok(Self(taken))
    }

    /// One more descriptor of the socket at this door, if there is one.
    pub(crate) fn at(&self, door: &Door) -> Option<io::Result<Socket>> {
        let found = self.0.iter().find(|(address, _)| is_at(door, address));
        found.map(|(_, socket)| socket.try_clone())
    }

    /// The address of a socket that is at none of these doors.
    pub(crate) fn beside(&self, doors: &[Door]) -> Option<String> {
        let mut addresses = self.0.iter().map(|(address, _)| address);
        let address = addresses.find(|address| !doors.iter().any(|door| is_at(door, address)))?;
        Some(match (address.as_socket(), address.as_pathname()) {
            (Some(address), _) => address.to_string(),
            (_, Some(path)) => path.display().to_string(),
            _ => "a Unix socket without a file".into(),
        })
    }
}

fn is_at(door: &Door, address: &SockAddr) -> bool {
    match door {
        Door::Tcp(named) | Door::Tls(named) => address.as_socket() == Some(*named),
        Door::Unix(path) => address.as_pathname() == Some(path),
    }
}
