//! The network between the nodes of a simulation, which may be slow, cut in two, or reset.

use super::chance;
use super::threads::simulated::wait;
use parking_lot::Mutex;
use rand::RngExt as _;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{
    AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex, split,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// Where every node and every client is, as addresses go.
pub(crate) const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Bytes on their way in one direction, in each of the two pipes of a connection.
const ROOM: usize = 16 * 1024;
/// Few bytes: less than a transaction has.
const SHORT: usize = 150;
/// How long the rest waits at most, in milliseconds.
const SHORT_WAITS_MAX: u64 = 50;
/// A cut network is looked at again in so long.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A network of nodes, which are told apart by their ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Who listens, and gets the connections.
    doors: BTreeMap<u16, UnboundedSender<DuplexStream>>,
    /// Pairs that hear nothing of each other.
    cut: BTreeSet<(u16, u16)>,
    /// Connections of pairs, two directions each, which end when these are dropped: in
    /// their order, or no run could be repeated.
    resets: BTreeMap<(u16, u16), Vec<oneshot::Sender<()>>>,
    /// How long bytes are on their way at most, in milliseconds.
    delay_max: u64,
}

thread_local! {
    /// The network that this thread's node is in, and its port.
    static HERE: RefCell<Option<(Network, u16)>> = const { RefCell::new(None) };
}

/// The network of this thread.
pub(crate) fn here() -> Option<(Network, u16)> {
    HERE.with_borrow(Clone::clone)
}

/// Has this thread be of a node in a network.
pub(crate) fn join(network: Option<(Network, u16)>) {
    HERE.set(network);
}

fn pair(a: u16, b: u16) -> (u16, u16) {
    (a.min(b), a.max(b))
}

impl Network {
    /// Listens on a port, in the place of whoever did: connections to it come here.
    pub(crate) fn listen(&self, port: u16) -> UnboundedReceiver<DuplexStream> {
        let (door, connections) = unbounded_channel();
        self.0.lock().doors.insert(port, door);
        connections
    }

    /// Cuts two nodes from each other, or not. What is on its way stays so.
    pub(crate) fn cut(&self, a: u16, b: u16, is_cut: bool) {
        let cut = &mut self.0.lock().cut;
        match is_cut {
            true => cut.insert(pair(a, b)),
            false => cut.remove(&pair(a, b)),
        };
    }

    /// Ends the connections of two nodes; what is on its way is lost.
    pub(crate) fn reset(&self, a: u16, b: u16) {
        self.0.lock().resets.remove(&pair(a, b));
    }

    /// Ends all connections of a node.
    pub(crate) fn reset_all(&self, port: u16) {
        self.0.lock().resets.retain(|&(a, b), _| a != port && b != port);
    }

    /// Bytes take up to so many milliseconds.
    pub(crate) fn slow_down(&self, delay_max: u64) {
        self.0.lock().delay_max = delay_max;
    }

    fn is_cut(&self, pair: (u16, u16)) -> bool {
        self.0.lock().cut.contains(&pair)
    }

    /// Connects a node with another.
    pub(crate) async fn connect(&self, from: u16, to: u16) -> io::Result<DuplexStream> {
        let pair = pair(from, to);
        while self.is_cut(pair) {
            sleep(LOOK_EVERY).await;
        }
        let ((mine, near), (far, theirs)) = (duplex(ROOM), duplex(ROOM));
        let (reset_there, reset_back) = {
            let state = &mut self.0.lock();
            let door = state.doors.get(&to).ok_or(ErrorKind::ConnectionRefused)?;
            door.send(theirs).map_err(|_| ErrorKind::ConnectionRefused)?;
            let resets = state.resets.entry(pair).or_default();
            resets.retain(|reset| !reset.is_closed());
            let mut one = || {
                let (reset, is_reset) = oneshot::channel();
                resets.push(reset);
                is_reset
            };
            (one(), one())
        };
        let ((near_out, near_in), (far_out, far_in)) = (split(near), split(far));
        tokio::spawn(self.clone().carry(pair, near_out, far_in, reset_there));
        tokio::spawn(self.clone().carry(pair, far_out, near_in, reset_back));
        Ok(mine)
    }

    /// Carries the bytes of one direction, until one end is closed or all are.
    async fn carry(
        self,
        pair: (u16, u16),
        from: ReadHalf<DuplexStream>,
        to: WriteHalf<DuplexStream>,
        reset: oneshot::Receiver<()>,
    ) {
        tokio::select! {
            biased;
            _ = reset => {}
            _ = self.carry_on(pair, from, to) => {}
        }
    }

    async fn carry_on(
        &self,
        pair: (u16, u16),
        mut from: ReadHalf<DuplexStream>,
        mut to: WriteHalf<DuplexStream>,
    ) -> io::Result<()> {
        let mut buffer = vec![0; ROOM];
        loop {
            // Now and then a few bytes arrive long before the rest.
            let is_short = chance::rng().random_range(0..4) == 0;
            let len = chance::rng().random_range(1..=if is_short { SHORT } else { ROOM });
            let read = from.read(&mut buffer[..len]).await?;
            let delay_max = self.0.lock().delay_max;
            if delay_max > 0 {
                sleep(Duration::from_millis(chance::rng().random_range(0..=delay_max))).await;
            }
            while self.is_cut(pair) {
                sleep(LOOK_EVERY).await;
            }
            if read == 0 {
                return to.shutdown().await;
            }
            to.write_all(&buffer[..read]).await?;
            if is_short {
                sleep(Duration::from_millis(chance::rng().random_range(0..SHORT_WAITS_MAX))).await;
            }
        }
    }
}

/// A connection of a thread that waits for it.
#[derive(Debug)]
pub(crate) struct Pipe {
    /// Elsewhere while it is waited for.
    stream: Option<DuplexStream>,
    read_time_max: Duration,
    write_time_max: Duration,
}

impl Pipe {
    /// Connects with a node; `None` where there is no simulated network.
    pub(crate) fn connect(
        port: u16,
        within: Duration,
        (read, write): (Duration, Duration),
    ) -> Option<io::Result<Self>> {
        let (network, from) = here()?;
        let connected = wait(async move { timeout(within, network.connect(from, port)).await });
        let connected = connected.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()));
        Some(connected.map(|stream| Self {
            stream: Some(stream),
            read_time_max: read,
            write_time_max: write,
        }))
    }

    fn lost() -> io::Error {
        ErrorKind::BrokenPipe.into()
    }
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut stream = self.stream.take().ok_or_else(Self::lost)?;
        let (len, most) = (into.len(), self.read_time_max);
        let (stream, bytes, read) = wait(async move {
            let mut bytes = vec![0; len];
            let read = timeout(most, stream.read(&mut bytes)).await;
            (stream, bytes, read)
        });
        self.stream = Some(stream);
        let read = read.map_err(|_| ErrorKind::WouldBlock)??;
        into[..read].copy_from_slice(&bytes[..read]);
        Ok(read)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stream = self.stream.take().ok_or_else(Self::lost)?;
        let (bytes, most) = (bytes.to_vec(), self.write_time_max);
        let (stream, wrote) = wait(async move {
            let wrote = timeout(most, stream.write(&bytes)).await;
            (stream, wrote)
        });
        self.stream = Some(stream);
        wrote.map_err(|_| ErrorKind::WouldBlock)?
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
