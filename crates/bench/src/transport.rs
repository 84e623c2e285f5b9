//! A byte stream to a server, plain or inside TLS.
//!
//! One type for both sides of the work: control connections use it over a
//! blocking socket, load connections over a non-blocking one of mio's. Inside TLS
//! a read brings at most what has been decrypted; what a socket does not take of
//! a write is kept by rustls (64 KiB at most) and goes out with the next write or
//! flush.

use std::io::{self, Read, Write};

use rustls::ClientConnection;

/// A socket, and the TLS session in it if there is one.
#[derive(Debug)]
pub enum Transport<S> {
    /// Bytes as they are.
    Plain(S),
    /// Bytes inside TLS.
    Tls(Box<ClientConnection>, S),
}

impl<S> Transport<S> {
    /// The socket.
    pub fn socket(&mut self) -> &mut S {
        match self {
            Self::Plain(socket) | Self::Tls(_, socket) => socket,
        }
    }

    /// The same stream over another form of its socket.
    pub fn map<T>(self, change: impl FnOnce(S) -> T) -> Transport<T> {
        match self {
            Self::Plain(socket) => Transport::Plain(change(socket)),
            Self::Tls(session, socket) => Transport::Tls(session, change(socket)),
        }
    }

    /// Whether a read that does not fill its buffer has taken all there was.
    pub fn short_read_empties(&self) -> bool {
        matches!(self, Self::Plain(_))
    }
}

impl<S: Read + Write> Read for Transport<S> {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let (session, socket) = match self {
            Self::Plain(socket) => return socket.read(into),
            Self::Tls(session, socket) => (session, socket),
        };
        loop {
            match session.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            // A blocking peer may wait for what is still to be written.
            if session.wants_write() {
                write_records(session, socket)?;
            }
            if session.read_tls(socket)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            session
                .process_new_packets()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }
}

impl<S: Read + Write> Write for Transport<S> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (session, socket) = match self {
            Self::Plain(socket) => return socket.write(bytes),
            Self::Tls(session, socket) => (session, socket),
        };
        let taken = session.writer().write(bytes)?;
        match write_records(session, socket) {
            // Nothing was taken because nothing could leave.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && taken > 0 => Ok(taken),
            Err(error) => Err(error),
            Ok(()) => Ok(taken),
        }
    }

    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(session, socket) => write_records(session, socket),
        }
    }
}

fn write_records(session: &mut ClientConnection, socket: &mut impl Write) -> io::Result<()> {
    while session.wants_write() {
        if session.write_tls(socket)? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}
