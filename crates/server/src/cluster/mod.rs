//! Cluster mode, for a node that knows only itself: which slots it serves. The slots
//! are the store's own, so nothing is kept per key. Whether a command may be executed
//! on its keys is judged in `dispatch/route.rs`.
//!
//! What must outlive the process (the node's name, its epochs, its slots) is
//! in `cluster-config-file`, in Redis's format, written anew at each change.

use crate::config::{Config, Param};
use crate::outside::chance::random_hex;
use parking_lot::{Mutex, MutexGuard};
use snug_store::SLOTS;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

pub(crate) const NOT_SERVED_TEXT: &str = "CLUSTERDOWN Hash slot not served";
pub(crate) const DOWN_TEXT: &str = "CLUSTERDOWN The cluster is down";

/// From a node's port to that of its bus, as in Redis.
pub(crate) const BUS_PORT_OFFSET: i64 = 10_000;

/// The cluster as this node knows it: itself.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub enabled: bool,
    /// A bit for each slot that is served.
    served: [AtomicU64; SLOTS / 64],
    /// Whether all bits are set.
    complete: AtomicBool,
    node: Mutex<Node>,
    file: PathBuf,
}

/// What this node knows of itself beside its slots. Whoever changes slots
/// holds its lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Forty hexadecimal digits.
    pub id: String,
    pub config_epoch: u64,
    pub current_epoch: u64,
}

impl Node {
    fn new() -> Self {
        Self { id: random_hex(), config_epoch: 0, current_epoch: 0 }
    }
}

impl Cluster {
    /// The cluster as the configuration file remembers it, or a new one.
    pub(crate) fn load(config: &Config) -> Result<Self, String> {
        let enabled = config.is_on(Param::ClusterEnabled);
        let name = config.text(Param::ClusterConfigFile);
        let file = std::path::absolute(config.path(Param::ClusterConfigFile))
            .map_err(|e| format!("'{name}': {e}"))?;
        let cluster = Self {
            enabled,
            served: [const { AtomicU64::new(0) }; SLOTS / 64],
            complete: AtomicBool::new(false),
            node: Mutex::new(Node::new()),
            file,
        };
        if !enabled {
            return Ok(cluster);
        }
        let failed = |e: io::Error| format!("cluster config file '{name}': {e}");
        match std::fs::read_to_string(&cluster.file) {
            Ok(text) => {
                let (node, slots) = parse(&text).ok_or_else(|| {
                    format!("unrecoverable error: corrupted cluster config file '{name}'")
                })?;
                *cluster.node() = node;
                slots.into_iter().for_each(|slot| cluster.set(slot, true));
                cluster.count();
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                cluster.save(config, true).map_err(failed)?;
            }
            Err(e) => return Err(failed(e)),
        }
        Ok(cluster)
    }

    /// What this node knows of itself.
    pub(crate) fn node(&self) -> MutexGuard<'_, Node> {
        self.node.lock()
    }

    /// Whether this node serves a slot.
    #[inline]
    pub(crate) fn serves(&self, slot: usize) -> bool {
        self.served[slot / 64].load(Relaxed) >> (slot % 64) & 1 == 1
    }

    fn set(&self, slot: usize, served: bool) {
        let bit = 1 << (slot % 64);
        if served {
            self.served[slot / 64].fetch_or(bit, Relaxed);
        } else {
            self.served[slot / 64].fetch_and(!bit, Relaxed);
        }
    }

    /// Slots served.
    pub(crate) fn slots(&self) -> usize {
        self.served.iter().map(|bits| bits.load(Relaxed).count_ones() as usize).sum()
    }

    fn count(&self) {
        self.complete.store(self.slots() == SLOTS, Relaxed);
    }

    /// Begins or ends serving slots.
    pub(crate) fn assign(&self, slots: impl IntoIterator<Item = usize>, served: bool) {
        let _alone = self.node();
        slots.into_iter().for_each(|slot| self.set(slot, served));
        self.count();
    }

    /// The slots served, as ranges from first to last.
    pub(crate) fn ranges(&self) -> Vec<(usize, usize)> {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for slot in (0..SLOTS).filter(|&slot| self.serves(slot)) {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == slot => *last = slot,
                _ => ranges.push((slot, slot)),
            }
        }
        ranges
    }

    /// Whether this node serves all slots.
    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        self.complete.load(Relaxed)
    }

    /// Whether commands on keys are executed at all.
    pub(crate) fn is_up(&self, config: &Config) -> bool {
        self.complete.load(Relaxed)
            || (self.slots() > 0 && !config.is_on(Param::ClusterRequireFullCoverage))
    }

    /// Whether there may be slots of which [`refusal`](Self::refusal) says
    /// something: false without a cluster, and while all slots are served.
    #[inline]
    pub(crate) fn may_refuse(&self) -> bool {
        self.enabled && !self.complete.load(Relaxed)
    }

    /// The error that a client is told that waits for a key of this slot, if it
    /// waits in vain. Reads are not exempt while the cluster is down: a write
    /// would have to end the waiting.
    pub(crate) fn refusal(&self, config: &Config, slot: usize) -> Option<&'static str> {
        if !self.is_up(config) {
            Some(DOWN_TEXT)
        } else if !self.serves(slot) {
            Some(NOT_SERVED_TEXT)
        } else {
            None
        }
    }

    /// Serves no slot any more; if `hard`, under a new name.
    pub(crate) fn reset(&self, hard: bool) {
        self.assign(0..SLOTS, false);
        if hard {
            *self.node() = Node::new();
        }
    }

    /// The line of `CLUSTER NODES`, without its end.
    pub(crate) fn describe(&self, config: &Config) -> String {
        let node = self.node().clone();
        let (ip, port) = (config.text(Param::ClusterAnnounceIp), config.number(Param::Port));
        let bus = port + BUS_PORT_OFFSET;
        let (id, epoch) = (node.id, node.config_epoch);
        let mut line = format!("{id} {ip}:{port}@{bus} myself,master - 0 0 {epoch} connected");
        for (first, last) in self.ranges() {
            line += &if first == last { format!(" {first}") } else { format!(" {first}-{last}") };
        }
        line
    }

    /// Writes what must outlive the process, in place of what was written
    /// before; `durable` if it is to outlive the machine's end too.
    pub(crate) fn save(&self, config: &Config, durable: bool) -> io::Result<()> {
        let epoch = self.node().current_epoch;
        let line = self.describe(config);
        let mut name = self.file.clone().into_os_string();
        name.push(".new");
        let mut file = std::fs::File::create(&name)?;
        write!(file, "{line}\nvars currentEpoch {epoch} lastVoteEpoch 0\n")?;
        if durable {
            file.sync_all()?;
        }
        std::fs::rename(&name, &self.file)
    }
}

/// Reads a cluster configuration file: what it says of this node.
fn parse(text: &str) -> Option<(Node, Vec<usize>)> {
    let mut current_epoch = 0;
    let mut mine = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            [] => {}
            ["vars", ref pairs @ ..] => {
                for pair in pairs.chunks_exact(2) {
                    if pair[0] == "currentEpoch" {
                        current_epoch = pair[1].parse().ok()?;
                    }
                }
            }
            [id, _, roles, _, _, _, epoch, _, ref slots @ ..] => {
                let is_id = id.len() == 40 && id.bytes().all(|b| b.is_ascii_hexdigit());
                if !is_id {
                    return None;
                }
                if roles.split(',').any(|role| role == "myself") {
                    mine = Some((id.to_owned(), epoch.parse().ok()?, parse_slots(slots)?));
                }
            }
            _ => return None,
        }
    }
    let (id, config_epoch, slots) = mine?;
    Some((Node { id, config_epoch, current_epoch }, slots))
}

fn parse_slots(words: &[&str]) -> Option<Vec<usize>> {
    let mut slots = Vec::new();
    // What stands in brackets is on its way from or to another node.
    for word in words.iter().filter(|word| !word.starts_with('[')) {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= SLOTS {
            return None;
        }
        slots.extend(first..=last);
    }
    Some(slots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cluster() -> Cluster {
        Cluster {
            enabled: true,
            served: [const { AtomicU64::new(0) }; SLOTS / 64],
            complete: AtomicBool::new(false),
            node: Mutex::new(Node { config_epoch: 3, current_epoch: 7, ..Node::new() }),
            file: PathBuf::new(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_read_back(slots in prop::collection::btree_set(0..SLOTS, 0..300)) {
            let cluster = cluster();
            cluster.assign(slots.iter().copied(), true);
            let text = format!("{}\nvars currentEpoch 7 lastVoteEpoch 0\n", cluster.describe(&Config::default()));
            let (node, read) = parse(&text).unwrap();
            prop_assert_eq!(node, cluster.node().clone());
            prop_assert_eq!(read, slots.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn all_slots_make_it_complete() {
        let cluster = cluster();
        let config = Config::default();
        cluster.assign(0..SLOTS, true);
        assert!(cluster.is_up(&config));
        assert_eq!(cluster.ranges(), [(0, SLOTS - 1)]);
        cluster.assign([5], false);
        assert!(!cluster.is_up(&config) && !cluster.serves(5));
        assert_eq!(cluster.ranges(), [(0, 4), (6, SLOTS - 1)]);
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        for text in [
            "",
            "nonsense",
            &format!("{id} :1@2 master - 0 0 1 connected"),
            &format!("{id} :1@2 myself,master - 0 0 x connected"),
            &format!("{id} :1@2 myself,master - 0 0 1 connected 16384"),
            &format!("{id} :1@2 myself,master - 0 0 1 connected 1-"),
            "x :1@2 myself,master - 0 0 1 connected",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
