//! The byte stream of a connection: a socket as it is, or TLS in one.
//!
//! ```text
//!            plain              TLS
//!  read      socket --> buffer  socket --> worker's ciphertext --> session --> buffer
//!  write     buffer --> socket  buffer --> session: records --> socket
//! ```
//!
//! A Unix socket is a plain one: to read and to write, one stream socket is like
//! another. The plain path costs a test of a pointer for each read and each write.
//!
//! Inside TLS (rustls) a session holds, between two calls, at most one record that is
//! not whole, 16 KiB that were decrypted and not asked for, and 64 KiB of records that
//! the socket did not take ([`Stream::holds_back`]: they leave with the next write, or
//! when [`Stream::poll_held`] is polled). What is read from the socket goes through a
//! buffer that a worker's connections share, so a turn costs one system call and not
//! one for each 4 KiB.
//!
//! An end of the socket without TLS's own is an end like any other: each command tells
//! its own length, so one that was cut short is never executed.

use super::certificate;
use rustls::ServerConnection;
use std::cell::RefCell;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Ciphertext that is read at once.
const CIPHERTEXT_BYTES: usize = 64 * 1024;
/// The least of it, however little is asked for.
const CIPHERTEXT_MIN: usize = 4 * 1024;
/// What rustls keeps of decrypted bytes before it takes no more.
const PLAINTEXT_MAX: usize = 16 * 1024;

thread_local! {
    /// What was just read from a socket. Empty of meaning between two reads.
    static CIPHERTEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A connection's bytes, both ways.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<Tls>),
    /// No socket: a pipe, at whose other end a test is.
    #[cfg(test)]
    Pipe(tokio::io::DuplexStream),
}

impl Stream {
    /// Reads into the buffer what there is; 0 at the end, and into an empty buffer.
    #[inline]
    pub(crate) fn poll_fill(
        &mut self,
        task: &mut Task<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => read(socket, task, buffer),
            Self::Tls(tls) => tls.poll_fill(task, buffer),
            #[cfg(test)]
            Self::Pipe(pipe) => {
                let mut buffer = ReadBuf::new(buffer);
                ready!(Pin::new(pipe).poll_read(task, &mut buffer))?;
                Poll::Ready(Ok(buffer.filled().len()))
            }
        }
    }

    /// Waits until a read may bring something, as far as that can be told.
    pub(crate) fn poll_fillable(&mut self, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(tls) if tls.plaintext > 0 || !tls.unread.is_empty() || tls.ended => {
                Poll::Ready(Ok(()))
            }
            Self::Plain(socket) => socket.poll_read_ready(task),
            Self::Tls(tls) => tls.socket.poll_read_ready(task),
            #[cfg(test)]
            Self::Pipe(_) => Poll::Ready(Ok(())),
        }
    }

    /// Writes what the socket takes of the bytes.
    #[inline]
    pub(crate) fn poll_send(
        &mut self,
        task: &mut Task<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => Pin::new(socket).poll_write(task, bytes),
            Self::Tls(tls) => tls.poll_send(task, |session| session.writer().write(bytes)),
            #[cfg(test)]
            Self::Pipe(pipe) => Pin::new(pipe).poll_write(task, bytes),
        }
    }

    /// Writes what the socket takes of several pieces.
    pub(crate) fn poll_send_vectored(
        &mut self,
        task: &mut Task<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => Pin::new(socket).poll_write_vectored(task, pieces),
            Self::Tls(tls) => {
                tls.poll_send(task, |session| session.writer().write_vectored(pieces))
            }
            #[cfg(test)]
            Self::Pipe(pipe) => Pin::new(pipe).poll_write_vectored(task, pieces),
        }
    }

    /// Whether something that was written has not left yet.
    #[inline]
    pub(crate) fn holds_back(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.session.wants_write())
    }

    /// Sends what is held back.
    pub(crate) fn poll_held(&mut self, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(tls) => tls.poll_held(task),
            Self::Plain(_) => Poll::Ready(Ok(())),
            #[cfg(test)]
            Self::Pipe(_) => Poll::Ready(Ok(())),
        }
    }

    /// Says that nothing more will be sent, as far as the socket takes that.
    pub(crate) fn say_end(&mut self, task: &mut Task<'_>) {
        if let Self::Tls(tls) = self {
            tls.session.send_close_notify();
            let _ = tls.poll_held(task);
        }
    }

    /// The common name in the certificate that the client has shown, if it has.
    pub(crate) fn common_name(&self) -> Option<String> {
        let Self::Tls(tls) = self else { return None };
        certificate::common_name(tls.session.peer_certificates()?.first()?)
    }

    /// Memory that it takes besides itself, about: that of a session and its buffers.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Tls(tls) => size_of::<Tls>() + CIPHERTEXT_MIN + tls.unread.capacity(),
            Self::Plain(_) => 0,
            #[cfg(test)]
            Self::Pipe(_) => 0,
        }
    }

    /// The socket underneath, if there is one, as there is but in tests.
    #[allow(clippy::unnecessary_wraps)]
    pub(crate) fn socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(socket) => Some(socket),
            Self::Tls(tls) => Some(&tls.socket),
            #[cfg(test)]
            Self::Pipe(_) => None,
        }
    }

    /// The socket's descriptor; -1 without one.
    pub(crate) fn fd(&self) -> RawFd {
        self.socket().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Gives the stream away. What stays is a second handle of its socket, to be closed with
    /// the connection.
    pub(crate) fn give_away(&mut self) -> io::Result<Self> {
        let stays = match self {
            Self::Plain(_) | Self::Tls(_) => Self::Plain(self.duplicate()?),
            #[cfg(test)]
            Self::Pipe(_) => Self::Pipe(tokio::io::duplex(1).0),
        };
        Ok(std::mem::replace(self, stays))
    }

    /// A second handle of the socket.
    fn duplicate(&self) -> io::Result<TcpStream> {
        let socket = self.socket().ok_or(io::ErrorKind::Unsupported)?;
        let second = socket.as_fd().try_clone_to_owned()?;
        TcpStream::from_std(std::net::TcpStream::from(second))
    }
}

/// For whoever speaks another protocol than Redis's over it.
impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        task: &mut Task<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(self.get_mut().poll_fill(task, buffer.initialize_unfilled()))?;
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        task: &mut Task<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_send(task, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_held(task)
    }

    fn poll_shutdown(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        if let Self::Tls(tls) = stream {
            tls.session.send_close_notify();
        }
        ready!(stream.poll_held(task))?;
        match stream {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(task),
            Self::Tls(tls) => Pin::new(&mut tls.socket).poll_shutdown(task),
            #[cfg(test)]
            Self::Pipe(pipe) => Pin::new(pipe).poll_shutdown(task),
        }
    }
}

/// A socket and the TLS session in it.
#[derive(Debug)]
pub(crate) struct Tls {
    socket: TcpStream,
    session: ServerConnection,
    /// Bytes that the session has decrypted and nobody has read yet.
    plaintext: usize,
    /// Ciphertext for which the session had no room.
    unread: Vec<u8>,
    /// Something has come.
    begun: bool,
    /// Nothing more will come.
    ended: bool,
}

/// What a client's first record begins with: that it is of a handshake.
const HANDSHAKE: u8 = 22;

impl Tls {
    /// A session whose hands are still to be shaken.
    pub(crate) fn new(socket: TcpStream, session: ServerConnection) -> Self {
        Self { socket, session, plaintext: 0, unread: Vec::new(), begun: false, ended: false }
    }

    /// Waits for what the handshake needs next, which [`Tls::step`] then works on;
    /// whether the handshake is done.
    pub(crate) fn poll_handshake(&mut self, task: &mut Task<'_>) -> Poll<io::Result<bool>> {
        ready!(self.poll_held(task))?;
        if !self.session.is_handshaking() {
            return Poll::Ready(Ok(true));
        }
        ready!(self.socket.poll_read_ready(task))?;
        Poll::Ready(Ok(false))
    }

    /// Works on what has come for the handshake: this may take a signature's time.
    pub(crate) fn step(&mut self, task: &mut Task<'_>) -> io::Result<()> {
        match self.poll_fill(task, &mut []) {
            Poll::Ready(Err(error)) => Err(error),
            _ if self.ended => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    fn poll_fill(&mut self, task: &mut Task<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut read = self.take_plaintext(buffer, 0)?;
        if !self.unread.is_empty() && read < buffer.len() {
            let unread = std::mem::take(&mut self.unread);
            read = self.decrypt(&unread, buffer, read)?;
        }
        // A record may hold nothing, and what comes may be a part of one.
        while read == 0 && !self.ended && self.plaintext == 0 {
            read = ready!(self.receive(task, buffer))?;
            if buffer.is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(read))
    }

    /// Reads once from the socket, and decrypts that.
    fn receive(&mut self, task: &mut Task<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        CIPHERTEXT.with_borrow_mut(|ciphertext| {
            ciphertext.resize(CIPHERTEXT_BYTES, 0);
            let most = buffer.len().clamp(CIPHERTEXT_MIN, CIPHERTEXT_BYTES);
            let received = ready!(read(&mut self.socket, task, &mut ciphertext[..most]))?;
            match ciphertext[..received].first() {
                None => self.ended = true,
                // Who speaks no TLS would not understand an alert.
                Some(&first) if !self.begun && first != HANDSHAKE => {
                    let why = "the client does not speak TLS";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
                }
                Some(_) => self.begun = true,
            }
            let decrypted = self.decrypt(&ciphertext[..received], buffer, 0);
            // An answer to what came: a part of the handshake, an alert, a new key. What
            // the socket does not take now is held back.
            if self.session.wants_write()
                && let Poll::Ready(Err(error)) = self.poll_held(task)
            {
                return Poll::Ready(decrypted.and(Err(error)));
            }
            Poll::Ready(decrypted)
        })
    }

    /// Decrypts, puts what fits behind the `read` bytes that the buffer has already, and
    /// keeps what finds no room.
    fn decrypt(
        &mut self,
        mut ciphertext: &[u8],
        buffer: &mut [u8],
        mut read: usize,
    ) -> io::Result<usize> {
        while !ciphertext.is_empty() && self.plaintext < PLAINTEXT_MAX {
            if self.session.read_tls(&mut ciphertext)? == 0 {
                break;
            }
            let state = self.session.process_new_packets();
            let state = state.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            self.plaintext = state.plaintext_bytes_to_read();
            self.ended |= state.peer_has_closed();
            read = self.take_plaintext(buffer, read)?;
        }
        if !self.ended {
            self.unread.extend_from_slice(ciphertext);
        }
        Ok(read)
    }

    fn take_plaintext(&mut self, buffer: &mut [u8], mut read: usize) -> io::Result<usize> {
        while self.plaintext > 0 && read < buffer.len() {
            let taken = self.session.reader().read(&mut buffer[read..])?;
            self.plaintext -= taken;
            read += taken;
        }
        Ok(read)
    }

    fn poll_send(
        &mut self,
        task: &mut Task<'_>,
        write: impl FnOnce(&mut ServerConnection) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_held(task))?;
        let taken = write(&mut self.session)?;
        if let Poll::Ready(Err(error)) = self.poll_held(task) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(taken))
    }

    fn poll_held(&mut self, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            let mut socket = Waiting { socket: &mut self.socket, task };
            match self.session.write_tls(&mut socket) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[inline]
fn read(socket: &mut TcpStream, task: &mut Task<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
    let mut buffer = ReadBuf::new(buffer);
    ready!(Pin::new(socket).poll_read(task, &mut buffer))?;
    Poll::Ready(Ok(buffer.filled().len()))
}

/// A socket as rustls writes to it: it would block, and then its task is woken when it
/// would no longer.
struct Waiting<'a, 'task> {
    socket: &'a mut TcpStream,
    task: &'a mut Task<'task>,
}

impl Write for Waiting<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        now(Pin::new(&mut *self.socket).poll_write(self.task, bytes))
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        now(Pin::new(&mut *self.socket).poll_write_vectored(self.task, pieces))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn now<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(done) => done,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}
