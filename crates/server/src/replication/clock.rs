//! What happens with time, ten times a second: pings to replicas, limits on what waits
//! for them, the end of those that are silent, the end of a backlog that nobody comes
//! for, and the steps of `FAILOVER`.

use crate::config::Param;
use crate::engine::server::Server;
use crate::measure::stats::Stat;
use crate::outside::clock::Instant;
use crate::outside::clock::unix_ms;
use crate::peers::replica::{Replica, Stage};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const TICK: Duration = Duration::from_millis(100);

pub(super) async fn run(server: Arc<Server>) {
    let mut session = server.store.session();
    let mut pinged = Instant::now();
    while !server.ending.load(Relaxed) {
        tokio::time::sleep(TICK).await;
        let period = server.config.number(Param::ReplPingReplicaPeriod).max(1) as u64;
        if pinged.elapsed() >= Duration::from_secs(period) {
            pinged = Instant::now();
            server.peers.say(&[b"PING"]);
        }
        let now = unix_ms();
        for replica in server.peers.replicas() {
            judge(&server, &replica, now);
        }
        server.peers.trim(&server.config);
        server.peers.refresh(&server.config);
        if is_forgotten(&server, now) {
            server.peers.end_stream();
            tracing::info!("the replication backlog is given back: no replica came for it");
        }
        server.step_failover(&mut session, now);
    }
}

/// Ends the connection of a replica that is silent, or for which too much waits.
fn judge(server: &Server, replica: &Replica, now: u64) {
    let timeout = server.config.number(Param::ReplTimeout) as u64 * 1000;
    let peer = &replica.client.peer;
    if replica.stage() == Stage::Online && replica.silent_ms(now) > timeout {
        tracing::warn!(%peer, "a replica said nothing for repl-timeout seconds");
        replica.client.kill();
        return;
    }
    let waiting = server.peers.behind(replica);
    let limit = server.config.output_limits().replica;
    // What the backlog holds anyway costs nothing.
    let size = server.config.number(Param::ReplBacklogSize) as u64;
    let mut since = replica.over_soft_since.lock();
    let over = |limit: u64| limit > 0 && waiting > limit.max(size);
    if !over(limit.soft) {
        *since = None;
    }
    let soft_over = over(limit.soft)
        && now - *since.get_or_insert(now) > limit.soft_seconds.saturating_mul(1000);
    if (over(limit.hard) || soft_over) && replica.client.kill() {
        server.stats.add(Stat::client_output_buffer_limit_disconnections, 1);
        tracing::warn!(%peer, waiting, "a replica is closed for overcoming of output buffer limits");
    }
}

/// Whether nobody has come for the backlog in `repl-backlog-ttl` seconds.
fn is_forgotten(server: &Server, now: u64) -> bool {
    let ttl = server.config.number(Param::ReplBacklogTtl) as u64;
    if ttl == 0 || server.peers.is_replica() || !server.peers.replicas().is_empty() {
        return false;
    }
    let since = server.peers.stream().lonely_since;
    since.is_some_and(|since| now.saturating_sub(since) > ttl.saturating_mul(1000))
}
