//! Data sets for replicas that need everything.
//!
//! ```text
//!  replicas gather for `repl-diskless-sync-delay` seconds
//!      |
//!      v    one moment, with the store to itself: a snapshot begins, and each of them
//!      |    is where the stream is just then
//!  thread "snapshot": slots -> bytes -> pieces ──channel of a few──> each replica's socket
//!      |
//!      v
//!  each goes on with the stream from that moment on
//! ```
//!
//! Snug nodes get values as they lie in memory, others RDB, or a part of it (`REPLCONF
//! rdb-filter-only`): each kind is a group. All of
//! a group get the same bytes, at the pace of the slowest; one that takes nothing
//! for `repl-timeout` seconds is left behind. No fork, and no file but where a replica
//! must know the length beforehand (`repl-diskless-sync no`, or no `capa eof`). What
//! meanwhile is written waits in the stream, within the limit of a replica's output.

use crate::config::Param;
use crate::engine::server::Server;
use crate::outside::clock::Instant;
use crate::outside::threads;
use crate::peers::Link;
use crate::peers::replica::{Replica, Stage};
use crate::persist::past::Past;
use crate::replication::dataset;
use crate::replication::serving::Peer;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Pieces of a data set that wait to be sent.
const PIECES_AHEAD: usize = 4;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Replicas that wait are told once in so long that they are not forgotten.
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(1);

/// Gathers replicas that need everything, and begins snapshots for them.
pub(super) async fn gather(server: Arc<Server>, mut arriving: UnboundedReceiver<Peer>) {
    let mut waiting: Vec<Peer> = Vec::new();
    let (mut since, mut told) = (Instant::now(), Instant::now());
    let mut running: Option<JoinHandle<()>> = None;
    loop {
        tokio::select! {
            biased;
            arrived = arriving.recv() => match arrived {
                Some(peer) => {
                    if waiting.is_empty() {
                        since = Instant::now();
                    }
                    waiting.push(peer);
                }
                None => return,
            },
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        waiting.retain_mut(Peer::is_there);
        if told.elapsed() >= SIGN_OF_LIFE_EVERY {
            told = Instant::now();
            for peer in waiting.iter_mut().filter(|peer| !peer.silent) {
                let _ = peer.send(b"\n", LOOK_EVERY).await;
            }
        }
        let link = server.peers.primary().map(|primary| primary.link);
        if link.is_some_and(|link| link != Link::Connected) {
            // What is here is about to be replaced: they come back.
            waiting.clear();
        }
        let is_running = running.as_ref().is_some_and(|running| !running.is_finished());
        if waiting.is_empty() || is_running || !is_due(&server, &waiting, since) {
            continue;
        }
        // Those who take the same data set as whoever came first.
        let (wanted, all) = (waiting[0].replica.introduction.wants(), waiting.drain(..));
        let (group, others) = all.partition(|peer| peer.replica.introduction.wants() == wanted);
        waiting = others;
        running = Some(tokio::spawn(synchronise(Arc::clone(&server), group)));
    }
}

fn is_diskless(server: &Server, group: &[Peer]) -> bool {
    server.config.is_on(Param::ReplDisklessSync)
        && group.iter().all(|peer| peer.replica.introduction.eof)
}

fn is_due(server: &Server, waiting: &[Peer], since: Instant) -> bool {
    let delay = server.config.number(Param::ReplDisklessSyncDelay) as u64;
    let enough = server.config.number(Param::ReplDisklessSyncMaxReplicas) as usize;
    !is_diskless(server, waiting)
        || since.elapsed() >= Duration::from_secs(delay)
        || (enough > 0 && waiting.len() >= enough)
}

/// Sends everything to a group of replicas, and then each the stream.
async fn synchronise(server: Arc<Server>, mut group: Vec<Peer>) {
    let diskless = is_diskless(&server, &group);
    let (begun, beginning) = oneshot::channel();
    let (pieces, mut written) = channel(PIECES_AHEAD);
    let replicas: Vec<Arc<Replica>> = group.iter().map(|peer| Arc::clone(&peer.replica)).collect();
    let source = Arc::clone(&server);
    let thread = threads::spawn("snapshot", move || {
        dataset::write(&source, &replicas, diskless, begun, &pieces);
    });
    if let Err(error) = thread {
        return tracing::error!(%error, "no thread for a snapshot: replicas have to come back");
    }
    let Ok(Past { id, offset, .. }) = beginning.await else {
        return tracing::warn!("a snapshot for replicas could not begin");
    };
    tracing::info!(replicas = group.len(), id, offset, diskless, "full synchronisation begins");
    let most = Duration::from_secs(server.config.number(Param::ReplTimeout) as u64);
    let answer = format!("+FULLRESYNC {id} {offset}\r\n");
    let mut kept = Vec::new();
    for mut peer in group.drain(..) {
        peer.replica.set_stage(Stage::Loads);
        if peer.silent || peer.send(answer.as_bytes(), most).await.is_ok() {
            kept.push(peer);
        }
    }
    while let Some(piece) = written.recv().await {
        let Ok(piece) = piece else {
            // Half a data set is none.
            return tracing::warn!("a snapshot for replicas failed: they come back");
        };
        let mut still = Vec::new();
        for mut peer in kept.drain(..) {
            if peer.send(&piece, most).await.is_ok() {
                peer.replica.heard_of();
                still.push(peer);
            }
        }
        kept = still;
        if kept.is_empty() || server.ending.load(Relaxed) {
            return;
        }
    }
    tracing::info!(replicas = kept.len(), "full synchronisation: everything is sent");
    for mut peer in kept {
        if peer.replica.introduction.rdb_only {
            tokio::spawn(peer.part(most));
            continue;
        }
        peer.waits_for_word = diskless;
        if !diskless {
            peer.replica.set_stage(Stage::Online);
        }
        tokio::spawn(peer.serve());
    }
    server.peers.refresh(&server.config);
}
