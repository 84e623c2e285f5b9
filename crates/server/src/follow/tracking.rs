//! Client-side caching: who is told that a key, which it may have in a cache of its
//! own, has changed.
//!
//! ```text
//!  keys      key -> [client, client]     what clients have read; taken out when told
//!  prefixes  prefix -> [client]          BCAST: told of every key that begins so
//!  trackers  client -> how it tracks, and whom to tell in its place
//! ```
//!
//! A client's keys are remembered before they are read: whatever changes one of them
//! from then on is told, and what changed before is what the client reads. It may be
//! told of a change that it has read already, and never misses one. What tells is what
//! waits in its mailbox behind the replies that are made, so it comes after the reply
//! with what has become invalid; of its own commands it is told after their reply.
//!
//! What is told of keys is told for all databases, as in Redis, whose clients do not
//! say which they mean.
//!
//! | what | costs |
//! | --- | --- |
//! | a change, while nobody tracks | nothing beside the branch that events cost |
//! | a change, while somebody does | a lock, a search among the keys, a comparison with each prefix |
//! | a key read | a lock, and about its length and 60 bytes until it changes; `tracking-table-max-keys` bounds how many, and who had read one that must go is told of it |

use crate::follow::clients::Shared;
use crate::follow::pubsub;
use parking_lot::Mutex;
use snug_resp::{Protocol, Writer};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// The channel on which a client of RESP2 is told in another's place.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// Whom to tell in a client's place.
#[derive(Clone, Debug)]
pub(crate) struct Redirect {
    pub id: u64,
    pub client: Weak<Shared>,
}

/// How a client tracks.
#[derive(Clone, Debug)]
struct Tracker {
    client: Arc<Shared>,
    redirect: Option<Redirect>,
    broadcast: bool,
    /// It is not told of what it changes itself. Of what the store changes meanwhile, as
    /// keys expire or are evicted, it is.
    no_loop: bool,
}

#[derive(Debug, Default)]
struct Table {
    keys: BTreeMap<Vec<u8>, Vec<u64>>,
    /// Clients of all keys, together.
    items: usize,
    /// Where the search for a key that is to go begins.
    hand: Vec<u8>,
    prefixes: BTreeMap<Vec<u8>, Vec<u64>>,
    trackers: HashMap<u64, Tracker>,
}

/// Who tracks what.
///
/// Locked after a slot, never before one.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    clients: AtomicUsize,
    table: Mutex<Table>,
}

thread_local! {
    /// Keys that have changed while this thread executes a command, and who changed each,
    /// for those who track prefixes: told together when it is done.
    static CHANGED: RefCell<Vec<(Vec<u8>, u64)>> = const { RefCell::new(Vec::new()) };
    static ANY_CHANGED: Cell<bool> = const { Cell::new(false) };
    /// It has emptied a database, and that is told.
    static EMPTIED: Cell<bool> = const { Cell::new(false) };
}

/// How many keys wait to be told together, at most.
const TOGETHER_MAX: usize = 1024;

/// Whether the command that this thread executes has changed keys that are to be told.
#[inline]
pub(crate) fn any_changed() -> bool {
    ANY_CHANGED.get()
}

/// What is told of.
#[derive(Clone, Copy, Debug)]
enum Invalid<'k> {
    Keys(&'k [&'k [u8]]),
    Everything,
}

impl Invalid<'_> {
    fn write(self, writer: &mut Writer<'_>) {
        match self {
            Self::Keys(keys) => {
                writer.array(keys.len());
                keys.iter().for_each(|key| writer.bulk(key));
            }
            Self::Everything => writer.null(),
        }
    }
}

impl Tracker {
    /// Tells the client, or whom it has told in its place.
    fn tell(&self, what: Invalid<'_>) {
        let Some(redirect) = &self.redirect else {
            if self.client.figures.resp.load(Relaxed) == 3 {
                send(&self.client, |w| {
                    w.push(2);
                    w.bulk(b"invalidate");
                    what.write(w);
                });
            }
            return;
        };
        let is_there =
            |other: &Arc<Shared>| !other.is_killed() && !other.figures.closing.load(Relaxed);
        let Some(other) = redirect.client.upgrade().filter(is_there) else {
            self.client.figures.tracking_broken.store(true, Relaxed);
            if self.client.figures.resp.load(Relaxed) == 3 {
                send(&self.client, |w| {
                    w.push(2);
                    w.bulk(b"tracking-redir-broken");
                    w.integer(redirect.id as i64);
                });
            }
            return;
        };
        let figures = &other.figures;
        let subscribed = [&figures.channels, &figures.patterns, &figures.shard_channels];
        if figures.resp.load(Relaxed) == 3 {
            send(&other, |w| {
                w.push(2);
                w.bulk(b"invalidate");
                what.write(w);
            });
        } else if subscribed.iter().any(|count| count.load(Relaxed) > 0) {
            send(&other, |w| {
                w.push(3);
                w.bulk(b"message");
                w.bulk(CHANNEL);
                what.write(w);
            });
        }
    }

    /// Whether it is not told of what this client has changed.
    fn spares(&self, changer: u64) -> bool {
        self.no_loop && self.client.id == changer
    }
}

/// Sends a client a push: after its reply if it is in a command of its own.
fn send(client: &Shared, write: impl FnOnce(&mut Writer<'_>)) {
    let protocol = match client.figures.resp.load(Relaxed) {
        3 => Protocol::Resp3,
        _ => Protocol::Resp2,
    };
    let mut encoded = Vec::new();
    write(&mut Writer::new(&mut encoded, protocol));
    if !pubsub::tell_own(client.id, &encoded) {
        client.push(&encoded);
    }
}

impl Tracking {
    /// Whether anybody tracks.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.clients.load(Relaxed) > 0
    }

    /// Has a client track, or track otherwise than before. In `BCAST` mode `prefixes`
    /// are added to those that it has.
    pub(crate) fn begin(
        &self,
        client: &Arc<Shared>,
        redirect: Option<Redirect>,
        prefixes: Option<&[Vec<u8>]>,
        no_loop: bool,
    ) {
        let mut table = self.table.lock();
        let tracker = Tracker {
            client: Arc::clone(client),
            redirect,
            broadcast: prefixes.is_some(),
            no_loop,
        };
        table.trackers.insert(client.id, tracker);
        for prefix in prefixes.unwrap_or_default() {
            let clients = table.prefixes.entry(prefix.clone()).or_default();
            if !clients.contains(&client.id) {
                clients.push(client.id);
            }
        }
        self.clients.store(table.trackers.len(), Relaxed);
    }

    /// A client tracks no longer. Of the keys that it has read it is forgotten as they
    /// change.
    pub(crate) fn end(&self, client: u64) {
        let mut table = self.table.lock();
        let Some(tracker) = table.trackers.remove(&client) else { return };
        if tracker.broadcast {
            table.prefixes.retain(|_, clients| {
                clients.retain(|other| *other != client);
                !clients.is_empty()
            });
        }
        if table.trackers.is_empty() {
            *table = Table::default();
        }
        self.clients.store(table.trackers.len(), Relaxed);
    }

    /// A client is about to read keys; so many may be remembered, 0 for any number.
    pub(crate) fn remember<'k>(
        &self,
        client: u64,
        keys: impl Iterator<Item = &'k [u8]>,
        most: usize,
    ) {
        let mut table = self.table.lock();
        for key in keys {
            let clients = match table.keys.get_mut(key) {
                Some(clients) => clients,
                None => table.keys.entry(key.to_vec()).or_default(),
            };
            if !clients.contains(&client) {
                clients.push(client);
                table.items += 1;
            }
        }
        table.limit(most);
    }

    /// Keeps no more than so many keys, 0 for any number.
    pub(crate) fn limit(&self, most: usize) {
        self.table.lock().limit(most);
    }

    /// A key has changed. `changer` is the client that changed it; 0 if the store did so by
    /// itself. Called under its slot's lock.
    pub(crate) fn changed(&self, key: &[u8], changer: u64) {
        let mut table = self.table.lock();
        table.invalidate(key, changer);
        if table.prefixes.is_empty() {
            return;
        }
        if pubsub::caller() == 0 {
            table.broadcast(&[(key.to_vec(), changer)]);
            return;
        }
        ANY_CHANGED.set(true);
        CHANGED.with_borrow_mut(|changed| {
            if !changed.iter().any(|(known, _)| known == key) {
                changed.push((key.to_vec(), changer));
            }
            if changed.len() >= TOGETHER_MAX {
                table.broadcast(changed);
                changed.clear();
            }
        });
    }

    /// The command that this thread executes is done: tells those who track prefixes
    /// what it has changed.
    pub(crate) fn tell_changed(&self) {
        ANY_CHANGED.set(false);
        EMPTIED.set(false);
        self.table.lock().broadcast(&CHANGED.take());
    }

    /// Databases were emptied or swapped: whatever anybody has read may be wrong. A
    /// command that empties several tells it once.
    pub(crate) fn everything_changed(&self) {
        if pubsub::caller() != 0 {
            ANY_CHANGED.set(true);
            if EMPTIED.replace(true) {
                return;
            }
        }
        let mut table = self.table.lock();
        table.keys.clear();
        table.items = 0;
        let mut trackers: Vec<&Tracker> = table.trackers.values().collect();
        trackers.sort_by_key(|tracker| tracker.client.id);
        trackers.iter().for_each(|tracker| tracker.tell(Invalid::Everything));
    }

    /// Keys remembered, clients of all of them, and prefixes.
    pub(crate) fn sizes(&self) -> (usize, usize, usize) {
        let table = self.table.lock();
        (table.keys.len(), table.items, table.prefixes.len())
    }

    /// Clients that track.
    pub(crate) fn clients(&self) -> usize {
        self.clients.load(Relaxed)
    }
}

impl Table {
    /// Keeps no more than so many keys. Whoever has read one that goes is told.
    fn limit(&mut self, most: usize) {
        while most > 0 && self.keys.len() > most {
            let from = (Bound::Excluded(&self.hand), Bound::Unbounded);
            let next = self.keys.range::<Vec<u8>, _>(from).next();
            let next = next.or_else(|| self.keys.iter().next()).map(|(key, _)| key.clone());
            let Some(key) = next else { break };
            self.invalidate(&key, 0);
            self.hand = key;
        }
    }

    /// Tells those who have read a key that it has changed, and forgets that they have.
    fn invalidate(&mut self, key: &[u8], changer: u64) {
        let Some(clients) = self.keys.remove(key) else { return };
        self.items -= clients.len();
        for client in clients {
            let tracker = self.trackers.get(&client).filter(|tracker| !tracker.broadcast);
            if let Some(tracker) = tracker.filter(|tracker| !tracker.spares(changer)) {
                tracker.tell(Invalid::Keys(&[key]));
            }
        }
    }

    /// Tells those who track prefixes of keys and who changed each, all keys of a prefix
    /// together.
    fn broadcast(&self, changed: &[(Vec<u8>, u64)]) {
        for (prefix, clients) in &self.prefixes {
            let fits = |(key, _): &&(Vec<u8>, u64)| key.starts_with(prefix);
            let mut changed: Vec<&(Vec<u8>, u64)> = changed.iter().filter(fits).collect();
            changed.sort_unstable();
            for tracker in clients.iter().filter_map(|client| self.trackers.get(client)) {
                let told = changed.iter().filter(|(_, changer)| !tracker.spares(*changer));
                let keys: Vec<&[u8]> = told.map(|(key, _)| key.as_slice()).collect();
                if !keys.is_empty() {
                    tracker.tell(Invalid::Keys(&keys));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::follow::clients::Address;
    use std::net::{Ipv4Addr, SocketAddr};

    fn client(id: u64) -> Arc<Shared> {
        let nowhere = Address::Net(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        let client = Shared::new(id, (nowhere.clone(), nowhere), -1, 0);
        client.figures.resp.store(3, Relaxed);
        Arc::new(client)
    }

    /// What waits in a client's mailbox.
    fn told(client: &Shared) -> String {
        String::from_utf8(client.take_mail().0).unwrap().replace("\r\n", " ")
    }

    const A: &str = ">2 $10 invalidate *1 $1 a ";

    #[test]
    fn who_has_read_a_key_is_told_once() {
        let tracking = Tracking::default();
        let (one, two) = (client(1), client(2));
        tracking.begin(&one, None, None, false);
        tracking.begin(&two, None, None, false);
        tracking.remember(1, [b"a".as_slice(), b"a", b"b"].into_iter(), 0);
        tracking.remember(2, [b"a".as_slice()].into_iter(), 0);
        assert_eq!(tracking.sizes(), (2, 3, 0));
        tracking.changed(b"a", 0);
        tracking.changed(b"a", 0);
        assert_eq!((told(&one).as_str(), told(&two).as_str()), (A, A));
        assert_eq!(tracking.sizes(), (1, 1, 0));
        tracking.end(1);
        tracking.changed(b"b", 0);
        assert_eq!(told(&one), "");
        tracking.end(2);
        assert!(!tracking.is_on() && tracking.sizes() == (0, 0, 0));
    }

    #[test]
    fn no_more_keys_are_remembered_than_may_be() {
        let tracking = Tracking::default();
        let one = client(1);
        tracking.begin(&one, None, None, true);
        for number in 0..100 {
            tracking.remember(1, [format!("k{number}").as_bytes()].into_iter(), 10);
        }
        assert_eq!(tracking.sizes(), (10, 10, 0));
        assert_eq!(told(&one).matches("invalidate").count(), 90);
        tracking.limit(1);
        assert_eq!(told(&one).matches("invalidate").count(), 9);
    }

    #[test]
    fn who_is_not_told_of_its_own_changes_is_told_of_the_stores() {
        let tracking = Tracking::default();
        let (one, two) = (client(1), client(2));
        tracking.begin(&one, None, None, true);
        tracking.begin(&two, None, Some(&[b"a".to_vec()]), true);
        for (changer, to_one, to_two) in [(1, "", A), (2, A, ""), (0, A, A)] {
            tracking.remember(1, [b"a".as_slice()].into_iter(), 0);
            tracking.changed(b"a", changer);
            assert_eq!((told(&one).as_str(), told(&two).as_str()), (to_one, to_two));
        }
    }

    #[test]
    fn prefixes_are_told_of_what_begins_so() {
        let tracking = Tracking::default();
        let (one, two) = (client(1), client(2));
        let prefixes =
            |names: &[&str]| names.iter().map(|n| n.as_bytes().to_vec()).collect::<Vec<_>>();
        tracking.begin(&one, None, Some(&prefixes(&["a", "b"])), false);
        tracking.begin(&two, None, Some(&prefixes(&[""])), false);
        tracking.changed(b"a", 0);
        tracking.changed(b"c", 0);
        assert_eq!(told(&one), A);
        assert_eq!(told(&two).matches("invalidate").count(), 2);
        tracking.end(2);
        assert_eq!(tracking.sizes(), (0, 0, 2));
        tracking.everything_changed();
        assert_eq!(told(&one), ">2 $10 invalidate _ ");
    }

    #[test]
    fn another_is_told_in_a_clients_place_as_long_as_it_is_there() {
        let tracking = Tracking::default();
        let (one, two) = (client(1), client(2));
        let redirect = Redirect { id: 2, client: Arc::downgrade(&two) };
        tracking.begin(&one, Some(redirect), None, false);
        tracking.remember(1, [b"a".as_slice()].into_iter(), 0);
        tracking.changed(b"a", 0);
        assert_eq!((told(&one).as_str(), told(&two).as_str()), ("", A));
        drop(two);
        tracking.remember(1, [b"a".as_slice()].into_iter(), 0);
        tracking.changed(b"a", 0);
        assert_eq!(told(&one), ">2 $21 tracking-redir-broken :2 ");
        assert!(one.figures.tracking_broken.load(Relaxed));
    }
}
