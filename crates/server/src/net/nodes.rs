//! Nodes that replicate, in a network that is slow, cut and reset, where nodes die and
//! others take their place. All of it, and the time, follows from a seed: a run that
//! failed fails again.
//!
//! ```text
//!  conductor ── a millisecond each, one after the other ──> node 7001: worker, replication
//!                                                       ──> node 7002
//!                                                       ──> node 7003
//!                                                       ──> 7000: clients, and the test
//! ```
//!
//! Each node has a thread with a runtime whose time stands still but when the conductor
//! has it go on. Threads of a node take turns with its runtime (`outside/threads.rs`).

use crate::cluster::Cluster;
use crate::commands;
use crate::config::{Config, Param};
use crate::engine::server::Server;
use crate::net::simulated::{welcome, work};
use crate::outside::clock::Instant;
use crate::outside::network::{self, Network};
use crate::outside::{chance, clock, threads};
use crate::replication;
use crate::sockets::simulated::Client;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const NOW: u64 = 1_700_000_000_000;
/// The clients' place in the network.
const OUTSIDE: u16 = 7000;
const NODES: [u16; 3] = [7001, 7002, 7003];
/// Simulated time that no run takes.
const TICKS_MAX: u64 = 600_000;

/// A thread with a time of its own, which goes on by a millisecond when it is told to.
struct Part {
    go_on: Sender<()>,
    is_done: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Part {
    /// Starts one, `ticks` milliseconds after the simulation began.
    fn start<F: Future<Output = ()>>(
        (network, port): (Network, u16),
        (seed, ticks): (u64, u64),
        work: impl FnOnce() -> F + Send + 'static,
    ) -> Self {
        let (go_on, goes_on) = channel();
        let (done, is_done) = channel();
        let thread = std::thread::spawn(move || {
            chance::simulated::begin(seed << 16 ^ u64::from(port) ^ ticks << 32);
            network::join(Some((network, port)));
            threads::simulated::begin();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .expect("a runtime");
            let local = tokio::task::LocalSet::new();
            let began = runtime.block_on(async {
                clock::simulated::begin(NOW + ticks);
                Instant::now()
            });
            let mut work = Box::pin(local.run_until(async { work().await }));
            let mut is_over = false;
            for tick in 1.. {
                if goes_on.recv().is_err() {
                    break;
                }
                runtime.block_on(async {
                    let end = tokio::time::sleep_until(began + Duration::from_millis(tick));
                    tokio::pin!(end);
                    loop {
                        tokio::select! {
                            biased;
                            () = &mut work, if !is_over => is_over = true,
                            () = &mut end => break,
                        }
                    }
                });
                if done.send(()).is_err() {
                    break;
                }
            }
            drop(work);
            drop((local, runtime));
            threads::simulated::end();
        });
        Self { go_on, is_done, thread }
    }

    /// Has a millisecond pass.
    fn tick(self) -> Self {
        if self.go_on.send(()).is_ok() && self.is_done.recv().is_ok() {
            return self;
        }
        match self.thread.join() {
            Ok(()) => panic!("a part has ended"),
            Err(why) => resume_unwind(why),
        }
    }
}

/// Starts a node that has nothing.
fn node(network: &Network, port: u16, seed: u64, ticks: u64) -> Part {
    let mut connections = network.listen(port);
    Part::start((network.clone(), port), (seed, ticks), move || async move {
        let config = Config::default();
        for (param, value) in [
            (Param::Port, &*port.to_string()),
            (Param::ReplBacklogSize, "20000"),
            (Param::ReplDisklessSyncDelay, "0"),
            (Param::ReplPingReplicaPeriod, "1"),
            (Param::ReplTimeout, "5"),
            (Param::EnableDebugCommand, "yes"),
            (Param::Save, ""),
        ] {
            config.set(param, value.as_bytes()).expect("a value it takes");
        }
        let cluster = Cluster::load(&config).expect("none");
        let server = Server::new(config, cluster, 1, commands::catalog());
        work(&server);
        let replication = replication::here(Arc::clone(&server), commands::replay::executor);
        tokio::task::spawn_local(replication);
        while let Some(pipe) = connections.recv().await {
            welcome(&server, pipe);
        }
    })
}

/// What the test has done to nodes.
#[derive(Clone, Default)]
struct Deaths(Arc<parking_lot::Mutex<Vec<u16>>>);

impl Deaths {
    /// Ends a node where it stands; it comes back with nothing.
    fn kill(&self, port: u16) {
        self.0.lock().push(port);
    }
}

/// Runs nodes, and a test beside them that is done when its future is.
fn simulate<F: Future<Output = ()>>(
    seed: u64,
    test: impl FnOnce(Network, Deaths) -> F + Send + 'static,
) {
    let (network, deaths) = (Network::default(), Deaths::default());
    let over = Arc::new(AtomicBool::new(false));
    let start = |port, ticks| node(&network, port, seed, ticks);
    let mut nodes: BTreeMap<u16, Part> = NODES.iter().map(|&port| (port, start(port, 0))).collect();
    let (ended, inside, dying) = (Arc::clone(&over), network.clone(), deaths.clone());
    let mut outside = Part::start((network.clone(), OUTSIDE), (seed, 0), move || async move {
        test(inside, dying).await;
        ended.store(true, Relaxed);
    });
    for ticks in 1..TICKS_MAX {
        nodes = nodes.into_iter().map(|(port, node)| (port, node.tick())).collect();
        outside = outside.tick();
        if over.load(Relaxed) {
            return;
        }
        for port in std::mem::take(&mut *deaths.0.lock()) {
            network.reset_all(port);
            if let Some(Part { go_on, is_done, thread }) = nodes.remove(&port) {
                drop((go_on, is_done));
                thread.join().expect("a node that did not fail");
            }
            nodes.insert(port, start(port, ticks));
        }
    }
    panic!("seed {seed}: the test does not come to its end");
}

/// A client of a node, from outside.
async fn client(network: &Network, port: u16) -> Client {
    Client::new(network.connect(OUTSIDE, port).await.expect("a node listens"))
}

/// Asks a node something over a connection of its own; none if there is no answer in time.
async fn ask(network: &Network, port: u16, command: &str) -> Option<String> {
    let asked = async { client(network, port).await.try_ask(command).await };
    timeout(Duration::from_secs(5), asked).await.ok()?
}

/// A field of a node's `INFO`.
async fn field(network: &Network, port: u16, section: &str, field: &str) -> Option<String> {
    let info = ask(network, port, &format!("INFO {section}")).await?;
    let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.to_owned())
}

async fn is_up(network: &Network, port: u16) -> bool {
    field(network, port, "replication", "master_link_status").await.as_deref() == Some("up")
}

async fn follow(network: &Network, port: u16, primary: u16) {
    let command = format!("REPLICAOF node {primary}");
    while ask(network, port, &command).await.as_deref() != Some("+OK") {
        sleep(Duration::from_millis(50)).await;
    }
}

/// Nodes of which one is the primary, and those who use them.
struct Group {
    network: Network,
    deaths: Deaths,
    random: RefCell<StdRng>,
    primary: Cell<u16>,
    /// Clients have enough.
    is_over: Cell<bool>,
    /// Of each writer: the numbers that a replica had too when `WAIT` said so.
    safe: RefCell<BTreeMap<usize, BTreeSet<u64>>>,
    /// Transactions that were executed.
    executed: Cell<u64>,
    /// What readers have seen.
    seen: Cell<u64>,
}

impl Group {
    fn random(&self, range: std::ops::Range<u64>) -> u64 {
        self.random.borrow_mut().random_range(range)
    }

    async fn pause(&self, ms: std::ops::Range<u64>) {
        let ms = self.random(ms);
        sleep(Duration::from_millis(ms)).await;
    }

    fn replicas(&self) -> impl Iterator<Item = u16> {
        let primary = self.primary.get();
        NODES.into_iter().filter(move |&port| port != primary)
    }

    fn a_replica(&self) -> u16 {
        let replicas: Vec<u16> = self.replicas().collect();
        *replicas.choose(&mut *self.random.borrow_mut()).expect("there are two")
    }

    /// Waits until all follow the primary.
    async fn joined(&self) {
        for port in self.replicas() {
            while !is_up(&self.network, port).await {
                sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// Waits until all have what the primary has, when nobody writes any more.
    async fn settled(&self) {
        let offset =
            async |port| field(&self.network, port, "replication", "master_repl_offset").await;
        'look: loop {
            sleep(Duration::from_millis(100)).await;
            self.joined().await;
            let end = offset(self.primary.get()).await;
            for port in self.replicas() {
                if end.is_none() || offset(port).await != end {
                    continue 'look;
                }
            }
            return;
        }
    }

    /// Whatever the replicas are doing, one of them becomes the primary: the one that is
    /// furthest. What the old one has beyond that is lost.
    async fn promote(&self) {
        let mut furthest = (0, 0);
        for port in self.replicas() {
            let offset = field(&self.network, port, "replication", "slave_repl_offset").await;
            furthest =
                furthest.max((offset.and_then(|o| o.parse::<u64>().ok()).unwrap_or(0), port));
        }
        let (old, new) = (self.primary.get(), furthest.1);
        while ask(&self.network, new, "REPLICAOF NO ONE").await.as_deref() != Some("+OK") {
            sleep(Duration::from_millis(50)).await;
        }
        self.primary.set(new);
        for port in self.replicas().filter(|&port| port != old) {
            follow(&self.network, port, new).await;
        }
    }

    /// The primary and a replica change places.
    async fn fail_over(&self) {
        let old = self.primary.get();
        if ask(&self.network, old, "FAILOVER TIMEOUT 3000").await.as_deref() != Some("+OK") {
            return;
        }
        loop {
            sleep(Duration::from_millis(20)).await;
            let state = field(&self.network, old, "replication", "master_failover_state").await;
            if state.as_deref() == Some("no-failover") {
                break;
            }
        }
        let role = field(&self.network, old, "replication", "role").await;
        if role.as_deref() == Some("slave") {
            let port = field(&self.network, old, "replication", "master_port").await;
            let new = port.and_then(|port| port.parse().ok()).expect("a port");
            self.primary.set(new);
            for port in self.replicas() {
                follow(&self.network, port, new).await;
            }
        }
    }

    /// Something happens to the nodes, and passes.
    async fn incident(&self) {
        let (network, primary) = (&self.network, self.primary.get());
        let replica = self.a_replica();
        match self.random(0..8) {
            0 => {
                network.cut(primary, replica, true);
                self.pause(100..8000).await;
                network.cut(primary, replica, false);
            }
            1 => {
                for _ in 0..10 {
                    network.reset(primary, self.a_replica());
                    self.pause(20..1500).await;
                }
            }
            2 => {
                network.slow_down(200);
                self.pause(500..3000).await;
                network.slow_down(3);
            }
            3 => {
                self.deaths.kill(replica);
                sleep(Duration::from_millis(5)).await;
                follow(network, replica, primary).await;
            }
            4 => {
                let other = self.replicas().find(|&port| port != replica).expect("there are two");
                follow(network, replica, other).await;
                self.pause(500..2000).await;
                follow(network, replica, primary).await;
            }
            5 => self.fail_over().await,
            6 => {
                // Clients still reach it, for a while.
                NODES.into_iter().filter(|&port| port != primary).for_each(|port| {
                    network.cut(primary, port, true);
                });
                self.pause(10..4000).await;
                self.promote().await;
                self.pause(10..2000).await;
                NODES.into_iter().for_each(|port| network.cut(primary, port, false));
                follow(network, primary, self.primary.get()).await;
            }
            _ => {
                self.deaths.kill(primary);
                sleep(Duration::from_millis(5)).await;
                self.promote().await;
                follow(network, primary, self.primary.get()).await;
            }
        }
        self.joined().await;
    }

    /// A client that writes, in whatever way is left to it.
    async fn write(&self, writer: usize) {
        let mut next = 0;
        while !self.is_over.get() {
            let session = async {
                let mut client = client(&self.network, self.primary.get()).await;
                while !self.is_over.get() {
                    next += 1;
                    let executed = match self.random(0..3) {
                        0 => self.transact(&mut client, writer, next).await?,
                        _ => self.change(&mut client).await?,
                    };
                    if !executed {
                        return None;
                    }
                    self.pause(0..20).await;
                }
                Some(())
            };
            // Who gets no answer asks elsewhere.
            let _ = timeout(Duration::from_secs(4), session).await;
            self.pause(10..200).await;
        }
    }

    /// Counts in two places at once, and notes a number.
    async fn transact(&self, client: &mut Client, writer: usize, number: u64) -> Option<bool> {
        let note = format!("RPUSH notes:{writer} {number}");
        for command in ["MULTI", "INCR one", &note, "INCR two"] {
            client.try_ask(command).await?;
        }
        if client.try_ask("EXEC").await?.starts_with('-') {
            return Some(false);
        }
        self.executed.set(self.executed.get() + 1);
        if self.random(0..3) == 0 {
            let replicas = client.try_ask("WAIT 1 1000").await?;
            if replicas.strip_prefix(':')?.parse::<u64>().ok()? > 0 {
                self.safe.borrow_mut().entry(writer).or_default().insert(number);
            }
        }
        Some(true)
    }

    /// Changes something or other.
    async fn change(&self, client: &mut Client) -> Option<bool> {
        let n = self.random(0..20);
        let command = match self.random(0..10) {
            0 => format!("SET key:{n} {} PX {}", "v".repeat(n as usize * 40), 1 + n * 50),
            1 => format!("APPEND long:{n} {}", "chunk".repeat(n as usize * 20)),
            2 => format!("SADD set {n} {} {}", n * 7, n * 1000),
            3 => "SPOP set 1".into(),
            4 => format!("HINCRBYFLOAT hash f:{n} 0.1"),
            5 => format!("ZADD zset INCR {n} m:{n}"),
            6 => format!("XADD stream MAXLEN ~ 50 * n {n}"),
            7 => format!("LPUSH list:{n} {n} {n}"),
            8 => format!("LMOVE list:{n} list:{} RIGHT LEFT", n / 2),
            _ => format!("DEL key:{n} long:{n}"),
        };
        let reply = client.try_ask(&command).await.unwrap_or_default();
        Some(!reply.starts_with('-'))
    }

    /// A client that reads from a node, and finds nothing halfway.
    async fn read(&self, port: u16) {
        while !self.is_over.get() {
            let session = async {
                let mut client = client(&self.network, port).await;
                while !self.is_over.get() {
                    client.try_send("MGET one two").await?;
                    let both = client.reply().await?;
                    if let [one, two] = &both[..] {
                        assert_eq!(one, two, "a transaction in part, at {port}");
                        self.seen.set(self.seen.get() + 1);
                    }
                    self.pause(1..50).await;
                }
                Some(())
            };
            let _ = timeout(Duration::from_secs(4), session).await;
            self.pause(10..200).await;
        }
    }

    /// The numbers that a writer has noted, as a node has them.
    async fn notes(&self, port: u16, writer: usize) -> Vec<u64> {
        let mut client = client(&self.network, port).await;
        client.send(&format!("LRANGE notes:{writer} 0 -1")).await;
        let notes = client.reply().await.unwrap_or_default();
        notes.iter().map(|note| note.parse().expect("a number")).collect()
    }
}

/// What came of a run, to compare it with another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcome {
    digest: String,
    offset: String,
    executed: u64,
    safe: usize,
    seen: u64,
    /// Full synchronisations, those in part, and those in part that were refused.
    syncs: [u64; 3],
}

/// Clients write and read while the network is slow, cut and reset, nodes die and become
/// primaries: what `WAIT` has called safe is there at the end, nobody ever sees half a
/// transaction, and all nodes come to the same.
fn live_through(seed: u64, incidents: usize) -> Outcome {
    const WRITERS: usize = 3;
    let (told, outcome) = channel();
    simulate(seed, move |network, deaths| async move {
        let group = Rc::new(Group {
            network,
            deaths,
            random: RefCell::new(StdRng::seed_from_u64(seed)),
            primary: Cell::new(NODES[0]),
            is_over: Cell::new(false),
            safe: RefCell::default(),
            executed: Cell::new(0),
            seen: Cell::new(0),
        });
        let network = &group.network;
        network.slow_down(3);
        for port in group.replicas() {
            follow(network, port, group.primary.get()).await;
        }
        group.joined().await;
        let mut clients = Vec::new();
        for writer in 0..WRITERS {
            let group = Rc::clone(&group);
            clients.push(tokio::task::spawn_local(async move { group.write(writer).await }));
        }
        for port in NODES {
            let group = Rc::clone(&group);
            clients.push(tokio::task::spawn_local(async move { group.read(port).await }));
        }
        let mut syncs = [0; 3];
        for _ in 0..incidents {
            group.pause(50..1500).await;
            group.incident().await;
        }
        group.is_over.set(true);
        for client in clients {
            client.await.expect("no client fails");
        }
        // Nothing is left that expires.
        sleep(Duration::from_secs(2)).await;
        group.settled().await;
        let primary = group.primary.get();
        let digest = ask(network, primary, "DEBUG DIGEST").await.expect("a digest");
        for port in NODES {
            assert_eq!(ask(network, port, "DEBUG DIGEST").await.as_ref(), Some(&digest), "{port}");
            for (count, name) in
                syncs.iter_mut().zip(["sync_full", "sync_partial_ok", "sync_partial_err"])
            {
                *count += field(network, port, "stats", name)
                    .await
                    .and_then(|count| count.parse::<u64>().ok())
                    .expect("a count");
            }
        }
        for writer in 0..WRITERS {
            let notes = group.notes(primary, writer).await;
            assert!(notes.is_sorted_by(|a, b| a < b), "something was executed twice: {notes:?}");
            for number in group.safe.borrow().get(&writer).into_iter().flatten() {
                assert!(notes.binary_search(number).is_ok(), "{number} of {writer} is lost");
            }
        }
        let outcome = Outcome {
            digest,
            offset: field(network, primary, "replication", "master_repl_offset")
                .await
                .expect("an offset"),
            executed: group.executed.get(),
            safe: group.safe.borrow().values().map(BTreeSet::len).sum(),
            seen: group.seen.get(),
            syncs,
        };
        told.send(outcome).expect("somebody wants to know");
    });
    outcome.recv().expect("the test came to its end")
}

#[test]
fn a_replica_takes_over_what_there_is_and_what_comes() {
    simulate(1, async |network, _| {
        assert_eq!(ask(&network, 7001, "SET before 1").await.as_deref(), Some("+OK"));
        follow(&network, 7002, 7001).await;
        follow(&network, 7003, 7002).await;
        while !is_up(&network, 7002).await || !is_up(&network, 7003).await {
            sleep(Duration::from_millis(50)).await;
        }
        let mut client = client(&network, 7001).await;
        assert_eq!(client.ask("SET after 2").await, "+OK");
        assert_eq!(client.ask("WAIT 1 0").await, ":1");
        sleep(Duration::from_secs(1)).await;
        for (port, (key, value)) in [(7002, ("before", "1")), (7003, ("after", "2"))] {
            let there = ask(&network, port, &format!("GET {key}")).await;
            assert_eq!(there.as_deref(), Some(value), "{port}");
        }
    });
}

#[test]
fn what_was_called_safe_is_safe_and_all_come_to_the_same() {
    let seeds = std::env::var("SNUG_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let first = std::env::var("SNUG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let mut syncs = [0; 3];
    for seed in first..first + seeds.unwrap_or(4) {
        println!("seed {seed}");
        let outcome = live_through(seed, 12);
        println!("{outcome:?}");
        assert!(outcome.safe > 0 && outcome.seen > 0, "{outcome:?}");
        syncs.iter_mut().zip(outcome.syncs).for_each(|(sum, count)| *sum += count);
    }
    assert!(syncs.iter().all(|&count| count > 0), "{syncs:?}");
}

#[test]
fn a_run_of_nodes_can_be_repeated() {
    assert_eq!(live_through(1, 5), live_through(1, 5));
    assert_ne!(live_through(1, 5), live_through(2, 5));
}
