//! Clients that wait until replicas have executed what they wrote: `WAIT`; and the
//! steps of a failover, which waits for the same.
//!
//! A client waits as one for a key does ([`Waiter`]), with no key. What it wrote last is
//! a commit's number; the offset behind it is known as soon as the commit is in the
//! stream, which is at once but for commits before it that are on their way.

use crate::engine::blocked::Waiter;
use crate::engine::server::Server;
use parking_lot::Mutex;
use snug_resp::Writer;
use std::sync::Arc;

/// What a client waits for.
#[derive(Debug)]
struct Wait {
    waiter: Arc<Waiter>,
    replicas: usize,
}

/// The place in the stream behind a commit.
#[derive(Debug)]
pub(crate) struct Behind {
    commit: u64,
    offset: Mutex<Option<u64>>,
}

impl Behind {
    /// Behind the commit of that number; 0 for the beginning of everything.
    pub(crate) fn commit(commit: u64) -> Self {
        Self { commit, offset: Mutex::new((commit == 0).then_some(0)) }
    }

    /// The offset, once the commit is in the stream.
    fn offset(&self, server: &Server) -> Option<u64> {
        let mut offset = self.offset.lock();
        if offset.is_none() {
            let stream = server.peers.stream();
            *offset = (stream.last_commit() >= self.commit).then(|| stream.backlog.end());
        }
        *offset
    }

    /// Replicas that have executed the commit.
    pub(crate) fn acknowledged(&self, server: &Server) -> usize {
        self.offset(server).map_or(0, |offset| server.peers.acknowledged(offset))
    }
}

/// Those who wait.
#[derive(Debug, Default)]
pub(crate) struct Waits(Mutex<Vec<Wait>>);

impl Server {
    /// Has a client wait until so many replicas have executed what it wrote.
    pub(crate) fn wait_for_replicas(&self, waiter: &Arc<Waiter>, replicas: usize) {
        self.waits.0.lock().push(Wait { waiter: Arc::clone(waiter), replicas });
        // Whoever acknowledged meanwhile did not know of it.
        self.acknowledged();
    }

    /// A replica has acknowledged something: serves those who waited for it.
    pub(crate) fn acknowledged(&self) {
        let mut waits = self.waits.0.lock();
        waits.retain(|wait| {
            if wait.waiter.has_ended() {
                return false;
            }
            let reached = wait.waiter.acknowledged(self);
            if reached < wait.replicas {
                return true;
            }
            let mut reply = Vec::new();
            Writer::new(&mut reply, wait.waiter.protocol()).integer(reached as i64);
            wait.waiter.answer(&self.blocked, reply);
            false
        });
    }
}
