//! Replication: the threads that move the stream between this node and others.
//!
//! ```text
//!              thread "link"                          thread "replication"
//!  primary ──> handshake, data set, commands ──┐   ┌──> a task for each replica ──> replica
//!                 (one at a time, blocking)    v   |
//!                                            [ peers ] <── clock, ten times a second
//!                                                  |
//!                                                  └──> thread "snapshot" for data sets
//! ```
//!
//! | file | idea |
//! | --- | --- |
//! | `link.rs` | this node as a replica: from the connection to the stream's commands |
//! | `transfer.rs` | the data set as a primary sends it, by length or up to its mark |
//! | `serving.rs` | a replica of this node: what it lacks, then the stream |
//! | `snapshots.rs` | data sets for replicas that need everything |
//! | `dataset.rs` | such a data set, written |
//! | `parcels.rs` | single values that another server is to have: `MIGRATE` |
//! | `failover.rs` | this primary and a replica change places |
//! | `clock.rs` | what happens with time: pings, limits, silence |
//!
//! A worker's part ends where a client asks to become a replica (`PSYNC`): its socket
//! is handed over, and a slow or dead replica takes no worker's time.

mod clock;
mod dataset;
pub(crate) mod failover;
mod link;
pub(crate) mod parcels;
mod serving;
mod snapshots;
mod transfer;

use crate::engine::server::Server;
use crate::peers::Order;
use crate::request::args::Args;
use snug_store::{Batch, Key};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Executes what a primary sends. The commands' room is above this one, so it is told
/// who does it.
pub(crate) trait Execute: Send {
    /// Executes a command, whose key may have been hashed before, or keeps it until its
    /// transaction ends; what is wrong with it.
    fn execute(
        &mut self,
        server: &Server,
        store: &Batch<'_>,
        args: Args<'_>,
        hashed: Option<&Key<'_>>,
    ) -> Result<(), String>;

    /// Whether a transaction has begun and not ended.
    fn is_in_transaction(&self) -> bool;

    /// Forgets a transaction that has not ended.
    fn forget_transaction(&mut self);

    /// The database that is selected.
    fn database(&mut self) -> &mut usize;
}

/// Makes one.
pub(crate) type Executor = fn() -> Box<dyn Execute>;

/// Starts the thread that serves replicas, and from which links to primaries start.
pub(crate) fn start(server: &Arc<Server>, executor: Executor) -> std::io::Result<()> {
    let taken = take_orders(server);
    let server = Arc::clone(server);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("replication".into());
    thread.spawn(move || runtime.block_on(run(server, taken, executor)))?;
    Ok(())
}

/// The same in the runtime that this is called in, for a simulation.
#[cfg(test)]
pub(crate) async fn here(server: Arc<Server>, executor: Executor) {
    let orders = take_orders(&server);
    run(server, orders, executor).await;
}

/// From now on orders are taken.
fn take_orders(server: &Server) -> UnboundedReceiver<Order> {
    let (orders, taken) = unbounded_channel();
    server.peers.take_orders(orders);
    server.peers.refresh(&server.config);
    taken
}

async fn run(server: Arc<Server>, mut orders: UnboundedReceiver<Order>, executor: Executor) {
    let (needy, arriving) = unbounded_channel();
    tokio::spawn(snapshots::gather(Arc::clone(&server), arriving));
    tokio::spawn(pump(Arc::clone(&server)));
    tokio::spawn(clock::run(Arc::clone(&server)));
    // The epoch whose link was started: an order may be about a role that is no more.
    let mut started = server.peers.epoch();
    link::start(&server, started, executor);
    while !server.ending.load(Relaxed) {
        let ended = server.shutdown.notified();
        if server.ending.load(Relaxed) {
            break;
        }
        tokio::select! {
            biased;
            order = orders.recv() => match order {
                Some(Order::Adopt(adopted)) => {
                    drop(tokio::spawn(serving::adopt(Arc::clone(&server), adopted, needy.clone())));
                }
                Some(Order::Role) => {
                    let epoch = server.peers.epoch();
                    if std::mem::replace(&mut started, epoch) != epoch {
                        link::start(&server, epoch, executor);
                    }
                }
                None => break,
            },
            () = ended => {}
        }
    }
}

/// Takes what the journal has into the stream whenever there is something.
async fn pump(server: Arc<Server>) {
    loop {
        server.peers.written.notified().await;
        drop(server.peers.stream());
        server.peers.trim(&server.config);
    }
}
