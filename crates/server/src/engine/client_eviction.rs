//! `maxmemory-clients`: when clients together take more than that, those that take most
//! are ended, one after the other, until they do not.
//!
//! Looked at when a client's count has changed, by that client's worker; costs a walk
//! over all clients each time that there are too many bytes, and nothing else. Who said
//! `CLIENT NO-EVICT ON` is spared, and counts; so are links of replication.

use crate::config::{Config, Param};
use crate::engine::server::Server;
use crate::follow::clients::Shared;
use crate::measure::log::Seldom;
use crate::measure::stats::Stat;
use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// With less than this nobody could be talked to.
const LIMIT_MIN: usize = 128 * 1024;

/// The limit in bytes, if there is one. A percentage is one of `maxmemory`, and no limit
/// where that is none.
pub(crate) fn limit(config: &Config) -> Option<usize> {
    let wanted = match config.number(Param::MaxmemoryClients) {
        0 => return None,
        percent @ ..0 => {
            let maxmemory = config.number(Param::MaxMemory) as u128;
            (maxmemory * u128::from(percent.unsigned_abs()) / 100) as usize
        }
        bytes => bytes as usize,
    };
    (wanted > 0).then_some(wanted.max(LIMIT_MIN))
}

impl Server {
    /// Ends the largest clients if all together take too much.
    pub(crate) fn evict_clients(&self) {
        let Some(limit) = limit(&self.config) else { return };
        if self.client_memory.sum() <= limit {
            return;
        }
        let mut largest: Vec<Arc<Shared>> = {
            let clients = self.clients.read();
            let evictable = |client: &&Arc<Shared>| {
                let figures = &client.figures;
                let of_replication = figures.replica.load(Relaxed) || figures.primary.load(Relaxed);
                !of_replication && !figures.no_evict.load(Relaxed) && !client.is_killed()
            };
            clients.values().filter(evictable).map(Arc::clone).collect()
        };
        largest.sort_by_cached_key(|client| Reverse(client.memory()));
        let mut largest = largest.into_iter();
        while self.client_memory.sum() > limit {
            let Some(client) = largest.next() else {
                self.say_over(limit);
                return;
            };
            // Somebody else may have ended it for a reason of their own.
            if client.kill() {
                let bytes = self.client_memory.forget(&client);
                self.stats.add(Stat::evicted_clients, 1);
                tracing::info!(client = client.id, addr = %client.peer, bytes, "Evicting client");
            }
        }
    }

    #[cold]
    fn say_over(&self, limit: usize) {
        static SAID: Seldom = Seldom::new();
        if let Some(unsaid) = SAID.tell(self.uptime_ms()) {
            tracing::warn!(
                limit,
                unsaid,
                "Over client maxmemory after evicting all evictable clients"
            );
        }
    }
}
