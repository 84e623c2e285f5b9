//! `ACL LOG`: what was denied, the latest first. What is denied again within a minute
//! counts up the entry that is there. `acllog-max-len` entries are kept, and of each
//! name so many bytes ([`NAME_BYTES_MAX`]).

use parking_lot::Mutex;
use std::collections::VecDeque;

/// The most that is kept of a key's, channel's or user's name.
const NAME_BYTES_MAX: usize = 4096;
/// What is denied again sooner counts with the last time, in milliseconds.
const SAME_WITHIN_MS: u64 = 60_000;
/// Among how many of the latest entries a like one is looked for.
const LOOKED_AT: usize = 10;

/// What was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Command,
    Key,
    Channel,
    Auth,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Key => "key",
            Self::Channel => "channel",
            Self::Auth => "auth",
        }
    }
}

/// From where the command came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    TopLevel,
    Multi,
    Script,
}

impl Place {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TopLevel => "toplevel",
            Self::Multi => "multi",
            Self::Script => "lua",
        }
    }
}

/// What was denied to whom.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub id: u64,
    pub count: u64,
    pub reason: Reason,
    pub place: Place,
    /// The command, key or channel.
    pub object: Vec<u8>,
    pub user: Vec<u8>,
    /// When it happened first and last, in Unix milliseconds.
    pub created_ms: u64,
    pub updated_ms: u64,
    /// The client, as `CLIENT LIST` shows it.
    pub client: Vec<u8>,
}

#[derive(Debug, Default)]
struct Kept {
    entries: VecDeque<Entry>,
    next_id: u64,
}

/// All that is kept of what was denied.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Kept>);

impl Log {
    /// Something was denied, now; so many entries are kept.
    pub(crate) fn add(
        &self,
        (reason, place): (Reason, Place),
        (object, user): (&[u8], &[u8]),
        client: Vec<u8>,
        now_ms: u64,
        keep: usize,
    ) {
        let short = |name: &[u8]| name[..name.len().min(NAME_BYTES_MAX)].to_vec();
        let (object, user) = (short(object), short(user));
        let mut kept = self.0.lock();
        let is_same = |entry: &Entry| {
            (entry.reason, entry.place) == (reason, place)
                && entry.updated_ms.abs_diff(now_ms) <= SAME_WITHIN_MS
                && entry.object == object
                && entry.user == user
        };
        let same = kept.entries.iter().take(LOOKED_AT).position(is_same);
        if let Some(mut entry) = same.and_then(|at| kept.entries.remove(at)) {
            entry.count += 1;
            entry.updated_ms = now_ms;
            entry.client = client;
            kept.entries.push_front(entry);
            return;
        }
        let id = kept.next_id;
        kept.next_id += 1;
        let (created_ms, updated_ms) = (now_ms, now_ms);
        let entry =
            Entry { id, count: 1, reason, place, object, user, created_ms, updated_ms, client };
        kept.entries.push_front(entry);
        kept.entries.truncate(keep);
    }

    /// The latest entries, the latest first.
    pub(crate) fn latest(&self, count: usize) -> Vec<Entry> {
        self.0.lock().entries.iter().take(count).cloned().collect()
    }

    pub(crate) fn reset(&self) {
        self.0.lock().entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_denied_again_counts_up() {
        let log = Log::default();
        let add = |object: &str, now| {
            let what = (Reason::Key, Place::TopLevel);
            log.add(what, (object.as_bytes(), b"u"), b"c".to_vec(), now, 3);
        };
        add("a", 1);
        add("b", 2);
        add("a", 3);
        let counts = || {
            let entries = log.latest(10);
            entries.iter().map(|e| (e.object.clone(), e.count)).collect::<Vec<_>>()
        };
        assert_eq!(counts(), [(b"a".to_vec(), 2), (b"b".to_vec(), 1)]);
        add("a", 3 + SAME_WITHIN_MS + 1);
        assert_eq!(log.latest(1)[0].count, 1);
        ["c", "d", "e"].iter().for_each(|name| add(name, 9));
        assert_eq!(counts().len(), 3);
        let long = "k".repeat(NAME_BYTES_MAX + 1);
        add(&long, 9);
        assert_eq!(log.latest(1)[0].object.len(), NAME_BYTES_MAX);
        log.reset();
        assert!(counts().is_empty());
    }
}
