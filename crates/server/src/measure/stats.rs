//! What the server counts: for `INFO` and, later, metrics.

use crate::outside::clock::Instant;
use snug_store::sharded::Sharded;

/// What goes on per second, as a mean over the last turn of the clock.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    pub operations: u64,
    pub input: u64,
    pub output: u64,
    last: Option<(Instant, [u64; 3])>,
}

impl Rates {
    /// Brings the rates up to date, once a second or less often.
    pub(crate) fn tick(&mut self, stats: &Stats) {
        let now = Instant::now();
        let totals = [
            stats.get(Stat::total_commands_processed),
            stats.get(Stat::total_net_input_bytes),
            stats.get(Stat::total_net_output_bytes),
        ];
        let Some((then, before)) = self.last else {
            self.last = Some((now, totals));
            return;
        };
        let millis = (now - then).as_millis() as u64;
        if millis < 1000 {
            return;
        }
        let rate = |n: usize| totals[n].saturating_sub(before[n]) * 1000 / millis;
        (self.operations, self.input, self.output) = (rate(0), rate(1), rate(2));
        self.last = Some((now, totals));
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Everything counted, one row of plain counters per thread.
        #[derive(Debug, Default)]
        pub(crate) struct Stats(Sharded<{ [$(stringify!($name)),*].len() }>);

        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        /// A counter, named as `INFO` names it.
        pub(crate) enum Stat { $($(#[$doc])* $name),* }

        impl Stat {
            /// Every counter.
            pub(crate) fn all() -> impl Iterator<Item = Self> {
                [$(Self::$name),*].into_iter()
            }
        }
    };
}

counters! {
    total_connections_received,
    total_commands_processed,
    total_net_input_bytes,
    total_net_output_bytes,
    total_net_repl_input_bytes,
    total_net_repl_output_bytes,
    sync_full,
    sync_partial_ok,
    sync_partial_err,
    rejected_connections,
    expired_time_cap_reached,
    evicted_keys,
    evicted_clients,
    keyspace_hits,
    keyspace_misses,
    total_error_replies,
    unexpected_error_replies,
    acl_access_denied_auth,
    client_query_buffer_limit_disconnections,
    client_output_buffer_limit_disconnections,
    reply_buffer_shrinks,
    reply_buffer_expands,
    total_reads_processed,
    total_writes_processed,
    total_active_clients,
    packed_blocks,
    packed_strings,
    strings_left_raw,
    /// Packed while memory was short, and the bytes that saved.
    strings_packed_ahead,
    bytes_saved_ahead,
    pack_microseconds,
    pack_rejected,
    values_damaged,
    /// Requests for content over HTTP, and how whole bodies were sent, with the bytes of
    /// their strings: as they are, as they lie packed, encoded, or as encoded before.
    content_requests,
    content_raw,
    content_raw_bytes,
    content_lying,
    content_lying_bytes,
    content_encoded,
    content_encoded_bytes,
    content_kept,
    content_kept_bytes,
    dictionaries_trained,
    dictionaries_rejected,
    sweeper_microseconds,
}

impl Stats {
    #[inline]
    pub(crate) fn add(&self, stat: Stat, n: u64) {
        self.0.add(stat as usize, n as i64);
    }

    pub(crate) fn get(&self, stat: Stat) -> u64 {
        self.0.sum(stat as usize).max(0) as u64
    }

    /// Back to zero, as `CONFIG RESETSTAT` does.
    pub(crate) fn reset(&self, stat: Stat) {
        self.0.add(stat as usize, -self.0.sum(stat as usize));
    }

    #[inline]
    pub(crate) fn lookup(&self, hit: bool) {
        self.add(if hit { Stat::keyspace_hits } else { Stat::keyspace_misses }, 1);
    }
}
