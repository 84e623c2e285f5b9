//! `FAILOVER`: this primary changes places with one of its replicas, and no write is
//! lost on the way.
//!
//! ```text
//!  writes are paused -> a replica has executed everything -> this node follows it, and
//!  asks it with `PSYNC id offset FAILOVER` to be the primary -> it is: writes go on, and
//!  clients learn where (READONLY)
//! ```
//!
//! If the replica does not catch up in time, or refuses, everything is as it was.

use crate::engine::server::Server;
use crate::follow::pause::By;
use crate::peers::replica::Replica;
use crate::peers::{Failover, ROLE_CHANGED};
use snug_store::{Batch, Session};
use std::sync::Arc;

impl Server {
    /// Begins to fail over.
    pub(crate) fn begin_failover(&self, failover: Failover) {
        tracing::info!(?failover, "FAILOVER: writes are paused");
        *self.peers.failover.lock() = failover;
        self.pause.pause(By::Failover, u64::MAX, true);
        self.peers.say(&[b"REPLCONF", b"GETACK", b"*"]);
    }

    /// Ends it, come to something or not: writes go on.
    pub(super) fn end_failover(&self) {
        *self.peers.failover.lock() = Failover::None;
        self.pause.unpause(By::Failover);
    }

    /// Gives it up: if this node has stepped back already, it is the primary again.
    pub(crate) fn abort_failover(&self, batch: &Batch<'_>, why: &str) {
        let failover = self.peers.failover.lock().clone();
        tracing::warn!(why, "FAILOVER is given up");
        if matches!(failover, Failover::Asked { .. }) {
            self.lead(batch);
        }
        self.end_failover();
    }

    /// Looks whether a failover can go on.
    pub(super) fn step_failover(&self, session: &mut Session, now: u64) {
        let failover = self.peers.failover.lock().clone();
        match failover {
            Failover::None => {}
            Failover::Waits { to, until, force } => {
                // A command that was under way when writes were paused may still write.
                let batch = session.enter(now);
                let _alone = batch.exclusive();
                let end = self.peers.stream().backlog.end();
                let is_target = |replica: &&Arc<Replica>| match &to {
                    Some((host, port)) => is_at(replica, host, *port),
                    None => replica.introduction.port != 0,
                };
                let replicas = self.peers.replicas();
                let mut able = replicas.iter().filter(|replica| replica.is_online());
                let ready = able.find(|r| is_target(r) && r.acknowledged() == end);
                let late = until.is_some_and(|until| now > until);
                let target = match (ready, to) {
                    (Some(replica), _) => (replica.address(), replica.introduction.port),
                    (None, Some(to)) if late && force => to,
                    (None, _) if late => {
                        return self.abort_failover(&batch, "no replica has caught up in time");
                    }
                    (None, _) => return,
                };
                let (host, port) = target.clone();
                tracing::info!(host, port, "FAILOVER: the replica is asked to be the primary");
                *self.peers.failover.lock() = Failover::Asked { to: target };
                self.follow(&batch, &host, port, true);
            }
            // The link tells when the replica has agreed.
            Failover::Asked { .. } => {}
        }
    }

    /// Makes this node a replica; with `promote` it asks that primary to be one. Clients that
    /// wait are told, for what they wait for is not written here. No worker executes anything
    /// meanwhile.
    pub(crate) fn follow(&self, batch: &Batch<'_>, host: &str, port: u16, promote: bool) {
        let _alone = batch.exclusive();
        self.peers.follow(batch, &self.config, host, port, promote);
        self.role_changed();
        self.unblock_all(ROLE_CHANGED);
    }

    /// Makes this node a primary.
    pub(crate) fn lead(&self, batch: &Batch<'_>) {
        self.peers.lead(batch, &self.config, &self.journal);
        self.role_changed();
    }

    /// Has the configuration say what the role is, so that `CONFIG REWRITE` keeps it.
    fn role_changed(&self) {
        let primary = self.peers.primary();
        let text = primary.map(|primary| format!("{} {}", primary.host, primary.port));
        // Any text will do.
        let _ =
            self.config.set(crate::config::Param::Replicaof, text.unwrap_or_default().as_bytes());
    }
}

/// Whether a replica is reached there.
pub(crate) fn is_at(replica: &Replica, host: &str, port: u16) -> bool {
    replica.introduction.port == port && replica.address().eq_ignore_ascii_case(host)
}
