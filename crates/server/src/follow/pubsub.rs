//! Publish and subscribe, across workers.
//!
//! One registry for all; subscribing takes it to write, publishing to read. A
//! message is encoded once per protocol and put into each subscriber's mailbox.
//! A subscriber that does not read is cut off at its output-buffer limit, of
//! which what waits in the mailbox is part.
//!
//! What a command publishes to its own caller (`PUBLISH` to a channel one is
//! subscribed to, or the keyspace event of one's own write) goes after that
//! command's reply, or that of the whole transaction, as since Redis 7.2: such
//! messages do not take the way through the mailbox but wait in [`OWN`] until the
//! reply is written.
//!
//! | operation | cost |
//! | --- | --- |
//! | publish | the channel's subscribers, and a match with every pattern |
//! | subscribe | O(1), and everybody else's publishing waits for it |
//! | unsubscribe | a search among the channel's subscribers |

use crate::config::Config;
use crate::follow::clients::Shared;
use crate::measure::stats::{Stat, Stats};
use foldhash::HashMap;
use parking_lot::RwLock;
use snug_resp::{Protocol, Writer};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What is subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Channel,
    Pattern,
    ShardChannel,
}

/// What one client is subscribed to.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    pub channels: HashSet<Vec<u8>>,
    pub patterns: HashSet<Vec<u8>>,
    pub shard_channels: HashSet<Vec<u8>>,
    /// What these take, here and in the registry.
    pub bytes: usize,
}

/// What a subscription takes beside its name, about.
const SUBSCRIPTION_BYTES: usize = 96;

impl Subscriptions {
    /// Channels, patterns and shard channels.
    pub(crate) fn len(&self) -> usize {
        self.channels.len() + self.patterns.len() + self.shard_channels.len()
    }

    /// The subscriptions that count with this one: channels and patterns together,
    /// shard channels by themselves.
    pub(crate) fn counted_with(&self, subject: Subject) -> usize {
        match subject {
            Subject::Channel | Subject::Pattern => self.channels.len() + self.patterns.len(),
            Subject::ShardChannel => self.shard_channels.len(),
        }
    }

    /// What it is subscribed to, in no order.
    pub(crate) fn names(&self, subject: Subject) -> Vec<Vec<u8>> {
        let names = match subject {
            Subject::Channel => &self.channels,
            Subject::Pattern => &self.patterns,
            Subject::ShardChannel => &self.shard_channels,
        };
        names.iter().cloned().collect()
    }

    fn of(&mut self, subject: Subject) -> &mut HashSet<Vec<u8>> {
        match subject {
            Subject::Channel => &mut self.channels,
            Subject::Pattern => &mut self.patterns,
            Subject::ShardChannel => &mut self.shard_channels,
        }
    }

    /// Adds a subscription; false if there was such a one.
    fn add(&mut self, subject: Subject, name: &[u8]) -> bool {
        let new = self.of(subject).insert(name.to_vec());
        if new {
            self.bytes += SUBSCRIPTION_BYTES + name.len();
        }
        new
    }

    /// Takes a subscription away; false if there was none.
    pub(crate) fn remove(&mut self, subject: Subject, name: &[u8]) -> bool {
        let removed = self.of(subject).remove(name);
        if removed {
            self.bytes -= SUBSCRIPTION_BYTES + name.len();
        }
        removed
    }
}

type Subscribers = HashMap<Vec<u8>, Vec<Arc<Shared>>>;

/// Who is subscribed to what.
#[derive(Debug, Default)]
pub(crate) struct PubSub(RwLock<Registry>);

#[derive(Debug, Default)]
struct Registry {
    channels: Subscribers,
    patterns: Subscribers,
    shard_channels: Subscribers,
}

impl Registry {
    fn of(&mut self, subject: Subject) -> &mut Subscribers {
        match subject {
            Subject::Channel => &mut self.channels,
            Subject::Pattern => &mut self.patterns,
            Subject::ShardChannel => &mut self.shard_channels,
        }
    }
}

thread_local! {
    /// The client whose command this thread executes; 0 for none.
    static CALLER: Cell<u64> = const { Cell::new(0) };
    /// What that command published to its own caller, and whether it did.
    static OWN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static ANY_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Says whose command this thread executes, until it is dropped.
#[derive(Debug)]
pub(crate) struct OnBehalf {
    /// Whose it was before.
    before: u64,
}

impl OnBehalf {
    #[inline]
    pub(crate) fn of(client: &Shared) -> Self {
        Self { before: CALLER.replace(client.id) }
    }

    /// It is nobody's command: what is published goes to mailboxes alone.
    pub(crate) fn nobody() -> Self {
        Self { before: CALLER.replace(0) }
    }
}

impl Drop for OnBehalf {
    #[inline]
    fn drop(&mut self) {
        CALLER.set(self.before);
    }
}

/// The client whose command this thread executes; 0 for none.
#[inline]
pub(crate) fn caller() -> u64 {
    CALLER.get()
}

/// Whether the command published anything to its own caller.
#[inline]
pub(crate) fn has_own() -> bool {
    ANY_OWN.get()
}

/// Has the caller of the command that this thread executes sent this after the reply,
/// if it is this client; whether it is.
pub(crate) fn tell_own(client: u64, encoded: &[u8]) -> bool {
    let is_own = CALLER.get() == client;
    if is_own {
        OWN.with_borrow_mut(|own| own.extend_from_slice(encoded));
        ANY_OWN.set(true);
    }
    is_own
}

/// Takes what the command published to its own caller.
pub(crate) fn take_own() -> Vec<u8> {
    ANY_OWN.set(false);
    OWN.take()
}

/// What publishing needs: how much may wait for a subscriber, and where it is counted
/// who was cut off.
pub(crate) type Means<'s> = (&'s Config, &'s Stats);

impl PubSub {
    /// Subscribes a client; false if it was subscribed.
    pub(crate) fn subscribe(
        &self,
        client: &Arc<Shared>,
        own: &mut Subscriptions,
        subject: Subject,
        name: &[u8],
    ) -> bool {
        if !own.add(subject, name) {
            return false;
        }
        let mut registry = self.0.write();
        registry.of(subject).entry(name.to_vec()).or_default().push(Arc::clone(client));
        true
    }

    /// Unsubscribes a client; false if it was not subscribed.
    pub(crate) fn unsubscribe(
        &self,
        client: &Arc<Shared>,
        own: &mut Subscriptions,
        subject: Subject,
        name: &[u8],
    ) -> bool {
        if !own.remove(subject, name) {
            return false;
        }
        let mut registry = self.0.write();
        let subscribers = registry.of(subject);
        if let Some(list) = subscribers.get_mut(name) {
            if let Some(at) = list.iter().position(|other| Arc::ptr_eq(other, client)) {
                list.remove(at);
            }
            if list.is_empty() {
                subscribers.remove(name);
            }
        }
        true
    }

    /// Unsubscribes a client from everything.
    pub(crate) fn leave(&self, client: &Arc<Shared>, own: &mut Subscriptions) {
        for subject in [Subject::Channel, Subject::Pattern, Subject::ShardChannel] {
            for name in own.names(subject) {
                self.unsubscribe(client, own, subject, &name);
            }
        }
    }

    /// Publishes to a channel and the patterns that match it; receivers.
    pub(crate) fn publish(&self, means: Means<'_>, channel: &[u8], message: &[u8]) -> usize {
        let registry = self.0.read();
        let mut received = 0;
        if let Some(subscribers) = registry.channels.get(channel) {
            received += deliver(means, subscribers, &[b"message", channel, message]);
        }
        for (pattern, subscribers) in &registry.patterns {
            if crate::text::glob::matches(pattern, channel, false) {
                let parts: [&[u8]; 4] = [b"pmessage", pattern, channel, message];
                received += deliver(means, subscribers, &parts);
            }
        }
        received
    }

    /// Publishes to a shard channel; receivers.
    pub(crate) fn publish_shard(&self, means: Means<'_>, channel: &[u8], message: &[u8]) -> usize {
        let registry = self.0.read();
        registry
            .shard_channels
            .get(channel)
            .map_or(0, |subscribers| deliver(means, subscribers, &[b"smessage", channel, message]))
    }

    /// Ends all subscriptions to shard channels of slots that `is_gone`: this
    /// node no longer serves them. Their subscribers are told.
    pub(crate) fn close_shard_channels(&self, is_gone: impl Fn(usize) -> bool) {
        let mut registry = self.0.write();
        registry.shard_channels.retain(|name, subscribers| {
            let gone = is_gone(usize::from(snug_store::cluster_slot(name)));
            if gone {
                subscribers.iter().for_each(|subscriber| subscriber.close_shard_channel(name));
            }
            !gone
        });
    }

    /// Names with subscribers that `matches`, in no order.
    pub(crate) fn names(&self, shard: bool, matches: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let registry = self.0.read();
        let names = if shard { &registry.shard_channels } else { &registry.channels };
        names.keys().filter(|name| matches(name)).cloned().collect()
    }

    /// Subscribers of a channel.
    pub(crate) fn subscribers(&self, shard: bool, name: &[u8]) -> usize {
        let registry = self.0.read();
        let names = if shard { &registry.shard_channels } else { &registry.channels };
        names.get(name).map_or(0, Vec::len)
    }

    /// Clients with a subscription that fits.
    pub(crate) fn subscribed(
        &self,
        fits: impl Fn(Subject, &[u8], &Shared) -> bool,
    ) -> Vec<Arc<Shared>> {
        let registry = self.0.read();
        let all = [
            (Subject::Channel, &registry.channels),
            (Subject::Pattern, &registry.patterns),
            (Subject::ShardChannel, &registry.shard_channels),
        ];
        let mut found: Vec<Arc<Shared>> = Vec::new();
        for (subject, names) in all {
            for (name, clients) in names {
                found.extend(clients.iter().filter(|c| fits(subject, name, c)).map(Arc::clone));
            }
        }
        found.sort_by_key(|client| client.id);
        found.dedup_by_key(|client| client.id);
        found
    }

    /// Patterns with subscribers.
    pub(crate) fn patterns(&self) -> usize {
        self.0.read().patterns.len()
    }
}

/// What a client is told when its subscriptions change: `word`, the name if
/// there is one, and the subscriptions of this kind that it has now.
pub(crate) fn tell(writer: &mut Writer<'_>, word: &str, name: Option<&[u8]>, subscriptions: usize) {
    writer.push(3);
    writer.bulk(word.as_bytes());
    match name {
        Some(name) => writer.bulk(name),
        None => writer.null(),
    }
    writer.integer(subscriptions as i64);
}

fn deliver((config, stats): Means<'_>, subscribers: &[Arc<Shared>], parts: &[&[u8]]) -> usize {
    let encode = |protocol| {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, protocol);
        writer.push(parts.len());
        parts.iter().for_each(|part| writer.bulk(part));
        bytes
    };
    let (mut resp2, mut resp3) = (None, None);
    let hard = config.output_limits().pubsub.hard;
    for subscriber in subscribers {
        let encoded = match subscriber.figures.resp.load(Relaxed) {
            3 => resp3.get_or_insert_with(|| encode(Protocol::Resp3)),
            _ => resp2.get_or_insert_with(|| encode(Protocol::Resp2)),
        };
        if tell_own(subscriber.id, encoded) {
            continue;
        }
        let waiting = subscriber.push(encoded) + subscriber.figures.output_bytes.load(Relaxed);
        if hard > 0 && waiting as u64 > hard && subscriber.kill() {
            stats.add(Stat::client_output_buffer_limit_disconnections, 1);
            tracing::warn!(
                client = subscriber.id,
                waiting,
                "subscriber closed for overcoming of output buffer limits"
            );
        }
    }
    subscribers.len()
}
