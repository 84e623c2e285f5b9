//! A server that does nothing: it answers every request with `+OK`, whatever
//! it says. What it costs is what the kernel costs (one read and one write for
//! each batch, and waiting for the next), and so the least that any server on
//! the same system calls can cost.
//!
//! ```text
//! cargo run --release -p snug-bench --example null_server 7000 &
//! redis-benchmark -p 7000 -n 1000000 -P 1 -t set -q; ps -o cputime= $!
//! ```
//!
//! With `tokio` behind the port it does the same on the runtime that Snug's workers run
//! on, with one future for each connection as they have it: what the runtime costs.

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::cell::RefCell;
use std::future::Future;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll as Polled, ready};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

const LISTENER: Token = Token(usize::MAX);

fn main() -> io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(7000);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    if std::env::args().nth(2).is_some_and(|runtime| runtime == "tokio") {
        return serve_on_runtime(address);
    }
    let mut listener = TcpListener::bind(address)?;
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1024);
    let mut clients: Vec<Option<TcpStream>> = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut client, _)) = listener.accept() {
                    client.set_nodelay(true)?;
                    let token = Token(clients.len());
                    poll.registry().register(&mut client, token, Interest::READABLE)?;
                    clients.push(Some(client));
                }
            } else if let Some(client) = clients[event.token().0].as_mut()
                && !answer(client, &mut buffer)
            {
                clients[event.token().0] = None;
            }
        }
    }
}

/// Reads once and answers each request in it; false when the client is gone.
/// What one read does not exhaust is told again, for a short read is the end
/// of what there is.
fn answer(client: &mut TcpStream, buffer: &mut [u8]) -> bool {
    loop {
        let read = match client.read(buffer) {
            Ok(0) => return false,
            Ok(read) => read,
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        };
        if client.write_all(&replies(&buffer[..read])).is_err() {
            return false;
        }
        if read < buffer.len() {
            return true;
        }
    }
}

/// One for each request.
fn replies(requests: &[u8]) -> Vec<u8> {
    b"+OK\r\n".repeat(memchr::memchr_iter(b'*', requests).count())
}

fn serve_on_runtime(address: SocketAddr) -> io::Result<()> {
    // As a worker's: see `run` in the server's `net/worker.rs`.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .event_interval(31)
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await?;
        loop {
            let (client, _) = listener.accept().await?;
            client.set_nodelay(true)?;
            tokio::spawn(Connection(client));
        }
    })
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 64 * 1024]);
}

struct Connection(tokio::net::TcpStream);

impl Future for Connection {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Polled<io::Result<()>> {
        BUFFER.with_borrow_mut(|buffer| {
            loop {
                let mut read = ReadBuf::new(buffer);
                ready!(Pin::new(&mut self.0).poll_read(task, &mut read))?;
                if read.filled().is_empty() {
                    return Polled::Ready(Ok(()));
                }
                // What the socket does not take is lost: its client has not read.
                let replies = replies(read.filled());
                if let Polled::Ready(sent) = Pin::new(&mut self.0).poll_write(task, &replies) {
                    sent?;
                }
            }
        })
    }
}
