//! A server that does nothing: it answers every request with `+OK`, whatever
//! it says. What it costs is what the kernel costs (one read and one write for
//! each batch, and waiting for the next), and so the least that any server on
//! the same system calls can cost.
//!
//! ```text
//! cargo run --release -p snug-bench --example null_server 7000 &
//! redis-benchmark -p 7000 -n 1000000 -P 1 -t set -q; ps -o cputime= $!
//! ```

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};

const LISTENER: Token = Token(usize::MAX);

fn main() -> io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(7000);
    let mut listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
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
        let requests = memchr::memchr_iter(b'*', &buffer[..read]).count();
        if client.write_all(&b"+OK\r\n".repeat(requests)).is_err() {
            return false;
        }
        if read < buffer.len() {
            return true;
        }
    }
}
