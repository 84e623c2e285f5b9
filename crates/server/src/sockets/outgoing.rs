//! A connection to another server, by a thread that waits for it as a plain reader does:
//! a socket as it is, or TLS in one.
//!
//! A read that waits longer than the socket's timeout is `WouldBlock`, so whoever reads
//! can look round in between; hands are shaken within the first reads, with what is to be
//! sent kept meanwhile. No name is asked for in TLS, and none is compared: as with Redis,
//! whoever has a certificate of the authorities is the server that is meant.

#[cfg(test)]
use crate::outside::network;
use rustls::{ClientConfig, ClientConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// What connects this server with another one.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    /// One of a simulated network.
    #[cfg(test)]
    Pipe(network::Pipe),
}

impl Socket {
    /// Connects to the first of a host's addresses that answers within a time. Reads, and
    /// writes, then wait for so long at most.
    pub(crate) fn connect(
        host: &str,
        port: u16,
        within: Duration,
        (read, write): (Duration, Duration),
    ) -> io::Result<Self> {
        #[cfg(test)]
        if let Some(connected) = network::Pipe::connect(port, within, (read, write)) {
            return connected.map(Self::Pipe);
        }
        let mut failed = io::Error::new(ErrorKind::NotFound, "the host has no address");
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, within) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    socket.set_read_timeout(Some(read))?;
                    socket.set_write_timeout(Some(write))?;
                    return Ok(Self::Tcp(socket));
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// The address of the other side, and this one's.
    #[allow(clippy::unnecessary_wraps)]
    pub(crate) fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        match self {
            Self::Tcp(socket) => Ok((socket.peer_addr()?, socket.local_addr()?)),
            #[cfg(test)]
            Self::Pipe(_) => Ok((network::NOWHERE, network::NOWHERE)),
        }
    }

    /// Its descriptor; -1 without one.
    pub(crate) fn fd(&self) -> RawFd {
        match self {
            Self::Tcp(socket) => socket.as_raw_fd(),
            #[cfg(test)]
            Self::Pipe(_) => -1,
        }
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(into),
            #[cfg(test)]
            Self::Pipe(pipe) => pipe.read(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(bytes),
            #[cfg(test)]
            Self::Pipe(pipe) => pipe.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Outgoing {
    socket: Socket,
    session: Option<Box<ClientConnection>>,
}

impl Outgoing {
    /// A socket that is connected; inside TLS, if there is a configuration of it.
    pub(crate) fn new(socket: Socket, tls: Option<Arc<ClientConfig>>) -> io::Result<Self> {
        let session = match tls {
            Some(config) => {
                let name = socket.addresses()?.0.ip().to_canonical().into();
                let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
                Some(Box::new(session))
            }
            None => None,
        };
        Ok(Self { socket, session })
    }

    /// Reads what there is, or waits for it; 0 at the end.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return self.socket.read(into) };
        loop {
            match session.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // An end without TLS's own is an end like any other.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            while session.wants_write() {
                session.write_tls(&mut self.socket)?;
            }
            if session.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            if let Err(error) = session.process_new_packets() {
                // So that the other side learns why, if it can.
                let _ = session.write_tls(&mut self.socket);
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
        }
    }

    /// Writes all of it; an error if the socket takes nothing for longer than its timeout.
    pub(crate) fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(session) = &mut self.session else { return self.socket.write_all(bytes) };
        while !bytes.is_empty() {
            let taken = session.writer().write(bytes)?;
            if taken == 0 && !session.wants_write() {
                return Err(io::Error::other("too much was sent before hands were shaken"));
            }
            bytes = &bytes[taken..];
            while session.wants_write() {
                session.write_tls(&mut self.socket)?;
            }
        }
        Ok(())
    }
}
