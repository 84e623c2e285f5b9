//! A replica of this node: what it lacks, and then the stream, for as long as it stays.
//!
//! ```text
//!  PSYNC id offset --known, and what follows is there--> +CONTINUE ---------┐
//!        |                                                                  v
//!        `-- else -> waits for a snapshot -> +FULLRESYNC, data set ----> stream, and
//!                                                                  REPLCONF ACK back
//! ```
//!
//! One task a replica. What it is sent lies in the stream for all of them, by reference;
//! how far each is counts as its output, and is limited as a client's
//! (`client-output-buffer-limit replica`). It may be cut off at any time: it comes back.

use crate::engine::server::Server;
use crate::measure::stats::Stat;
use crate::outside::clock::Instant;
use crate::peers::replica::{Replica, Stage};
use crate::peers::{Adopted, Socket};
use crate::request::stream::CommandStream;
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::timeout;

/// Bytes of the stream that a replica is sent at once.
const SEND_BYTES: usize = 256 * 1024;
/// How often a task looks whether its replica is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The most that a replica may have said of something that is not complete.
const WORD_BYTES_MAX: usize = 64 * 1024;

/// A replica's connection, and who it is.
pub(super) struct Peer {
    pub(super) replica: Arc<Replica>,
    socket: Box<dyn Socket>,
    commands: CommandStream,
    /// It is told nothing before the snapshot: `SYNC` of old.
    pub(super) silent: bool,
    /// It is sent the stream when it has said that it took the data set in.
    pub(super) waits_for_word: bool,
    /// What it is about to be sent.
    unsent: VecDeque<Bytes>,
    server: Arc<Server>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.server.clients.write().remove(&self.replica.client.id);
        self.server.peers.remove_replica(&self.server.config, &self.replica);
        let peer = &self.replica.client.peer;
        tracing::info!(%peer, "the connection with a replica ended");
    }
}

/// What a task of a replica is woken by.
enum Woken {
    Sent(usize),
    Heard(usize),
    Else,
}

/// Serves a client that has asked to become a replica.
pub(super) async fn adopt(
    server: Arc<Server>,
    adopted: Box<Adopted>,
    needy: UnboundedSender<Peer>,
) {
    let Adopted { client, socket, introduction, psync, rest } = *adopted;
    let socket = match socket.open() {
        Ok(socket) => socket,
        Err(error) => return tracing::warn!(%error, "a replica's socket is lost"),
    };
    let replica = Arc::new(Replica::new(Arc::clone(&client), introduction));
    let mut peer = Peer {
        replica: Arc::clone(&replica),
        socket,
        commands: CommandStream::default(),
        silent: psync.silent,
        waits_for_word: false,
        unsent: VecDeque::new(),
        server: Arc::clone(&server),
    };
    peer.commands.push(&rest);
    // What it lacks is kept from the moment on at which that is known.
    server.peers.add_replica(&replica);
    let resumed = psync.resume.as_ref().and_then(|(id, offset)| {
        let stream = server.peers.stream();
        let id = stream.backlog.can_resume(id, *offset).then(|| stream.backlog.id.clone())?;
        replica.begin_at(*offset);
        drop(stream);
        Some(id)
    });
    client.figures.replica.store(true, Relaxed);
    server.clients.write().insert(client.id, client);
    let Some(id) = resumed else {
        server.stats.add(Stat::sync_full, 1);
        if psync.resume.is_some() {
            server.stats.add(Stat::sync_partial_err, 1);
        }
        // If nobody takes it, it is dropped.
        if peer.listen(&[]).is_ok() {
            drop(needy.send(peer));
        }
        return;
    };
    server.stats.add(Stat::sync_partial_ok, 1);
    let answer = match replica.introduction.psync2 {
        true => format!("+CONTINUE {id}\r\n"),
        false => "+CONTINUE\r\n".into(),
    };
    peer.unsent.push_back(answer.into());
    replica.set_stage(Stage::Online);
    server.peers.refresh(&server.config);
    peer.serve().await;
}

impl Peer {
    /// Sends some bytes, whoever waits; an error if that takes longer than the limit.
    pub(super) async fn send(&mut self, bytes: &[u8], most: Duration) -> io::Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            let socket = &mut self.socket;
            let client = &self.replica.client;
            let write = poll_fn(|task| Pin::new(&mut *socket).poll_write(task, &bytes[sent..]));
            let wrote = timeout(most, write).await.map_err(|_| ErrorKind::TimedOut)??;
            if wrote == 0 || client.is_killed() {
                return Err(ErrorKind::ConnectionReset.into());
            }
            sent += wrote;
            self.server.stats.add(Stat::total_net_repl_output_bytes, wrote as u64);
        }
        poll_fn(|task| Pin::new(&mut self.socket).poll_flush(task)).await
    }

    /// Ends a connection that was to get no more than the data set, when the other side has:
    /// what is still on its way would be lost with a socket that has something unread.
    pub(super) async fn part(mut self, most: Duration) {
        let _ = poll_fn(|task| Pin::new(&mut self.socket).poll_shutdown(task)).await;
        let until = Instant::now() + most;
        while self.is_there() && Instant::now() < until {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Sends the stream, and hears what the replica has executed, until one of both ends.
    pub(super) async fn serve(mut self) {
        if let Err(error) = self.serve_on().await {
            let peer = &self.replica.client.peer;
            tracing::debug!(%peer, %error, "a replica is lost");
        }
    }

    async fn serve_on(&mut self) -> io::Result<()> {
        let server = Arc::clone(&self.server);
        let mut buffer = vec![0; 16 * 1024];
        // The head of what is unsent may be no part of the stream: the answer to PSYNC.
        let mut answer: usize = self.unsent.iter().map(Bytes::len).sum();
        self.hear(&[])?;
        while !self.replica.client.is_killed() {
            let grown = server.peers.grown.notified();
            let mut grown = pin!(grown);
            grown.as_mut().enable();
            if self.unsent.is_empty() && self.replica.is_online() {
                let read = server.peers.read(self.replica.sent(), SEND_BYTES);
                let read = read.ok_or_else(|| io::Error::other("the stream is no longer kept"))?;
                self.unsent.extend(read);
            }
            let waiting = server.peers.behind(&self.replica) as usize;
            self.replica.client.figures.output_bytes.store(waiting, Relaxed);
            let mut look = pin!(tokio::time::sleep(LOOK_EVERY));
            let woken = poll_fn(|task| {
                if !self.unsent.is_empty() {
                    let mut slices = [IoSlice::new(&[]); 32];
                    let mut count = 0;
                    for (slice, bytes) in slices.iter_mut().zip(&self.unsent) {
                        *slice = IoSlice::new(bytes);
                        count += 1;
                    }
                    let socket = Pin::new(&mut self.socket);
                    if let Poll::Ready(sent) = socket.poll_write_vectored(task, &slices[..count]) {
                        return Poll::Ready(sent.map(Woken::Sent));
                    }
                } else if let Poll::Ready(Err(error)) = Pin::new(&mut self.socket).poll_flush(task)
                {
                    return Poll::Ready(Err(error));
                }
                let mut read = ReadBuf::new(&mut buffer);
                if let Poll::Ready(done) = Pin::new(&mut self.socket).poll_read(task, &mut read) {
                    return Poll::Ready(done.map(|()| Woken::Heard(read.filled().len())));
                }
                if grown.as_mut().poll(task).is_ready() || look.as_mut().poll(task).is_ready() {
                    return Poll::Ready(Ok(Woken::Else));
                }
                Poll::Pending
            });
            match woken.await? {
                Woken::Sent(0) | Woken::Heard(0) => return Ok(()),
                Woken::Sent(sent) => {
                    server.stats.add(Stat::total_net_repl_output_bytes, sent as u64);
                    self.sent(sent);
                    let of_answer = answer.min(sent);
                    answer -= of_answer;
                    let offset = self.replica.sent() + (sent - of_answer) as u64;
                    self.replica.set_sent(offset);
                }
                Woken::Heard(heard) => self.hear(&buffer[..heard])?,
                Woken::Else => {}
            }
        }
        Ok(())
    }

    fn sent(&mut self, mut sent: usize) {
        while let Some(front) = self.unsent.front_mut() {
            if front.len() > sent {
                return front.advance(sent);
            }
            sent -= front.len();
            self.unsent.pop_front();
        }
    }

    /// Takes in what a replica says: how far it is.
    fn hear(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(offset) = self.listen(bytes)? else { return Ok(()) };
        self.replica.acknowledge(offset);
        if self.waits_for_word {
            self.waits_for_word = false;
            self.replica.set_stage(Stage::Online);
        }
        self.server.peers.refresh(&self.server.config);
        self.server.acknowledged();
        Ok(())
    }

    /// How far it says that it is, if it says so. Whatever else it says would be answered,
    /// and a replica is sent nothing but the stream: as in Redis, that is its end.
    fn listen(&mut self, bytes: &[u8]) -> io::Result<Option<u64>> {
        self.replica.heard_of();
        self.commands.push(bytes);
        let nonsense = |why| io::Error::new(ErrorKind::InvalidData, why);
        let mut acknowledged = None;
        while let Some(args) = self.commands.next().map_err(nonsense)? {
            let is = |word| args.is(0, "replconf") && args.is(1, word) && args.len() % 2 == 1;
            if is("ack") {
                let offset = snug_resp::parse_integer(args.bytes(2));
                acknowledged =
                    acknowledged.max(offset.and_then(|offset| u64::try_from(offset).ok()));
            } else if !is("getack") {
                let peer = &self.replica.client.peer;
                let asked = String::from_utf8_lossy(args.front(0, 30).0).into_owned();
                tracing::warn!(%peer, asked, "a replica asked for a reply, and is disconnected");
                return Err(io::Error::other("it asked for a reply"));
            }
        }
        match self.commands.unfinished() > WORD_BYTES_MAX {
            true => Err(io::Error::other("it says too much at once")),
            false => Ok(acknowledged),
        }
    }

    /// Takes note that a replica that gets a data set is still there; false if it is not.
    pub(super) fn is_there(&mut self) -> bool {
        let mut buffer = [0; 512];
        let mut read = ReadBuf::new(&mut buffer);
        let task = &mut std::task::Context::from_waker(std::task::Waker::noop());
        match Pin::new(&mut self.socket).poll_read(task, &mut read) {
            Poll::Ready(Ok(())) if read.filled().is_empty() => false,
            // How far it is counts when it has the data set.
            Poll::Ready(Ok(())) => {
                self.listen(read.filled()).is_ok() && !self.replica.client.is_killed()
            }
            Poll::Ready(Err(_)) => false,
            Poll::Pending => !self.replica.client.is_killed(),
        }
    }
}
