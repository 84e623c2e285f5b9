//! Keyspace notifications: what the store tells of is published where
//! `notify-keyspace-events` asks for it.

use crate::config::Param;
use crate::engine::server::Server;
pub(crate) use snug_store::{Class, Event};

impl Server {
    /// Has the store tell of the events that the configuration asks for.
    pub(crate) fn heed_events(&self) {
        self.store.heed(self.wanted_events());
    }

    fn wanted_events(&self) -> Class {
        Class(self.config.number(Param::NotifyKeyspaceEvents) as u32)
    }

    /// Publishes an event of a class that the configuration asks for.
    #[cold]
    pub(crate) fn publish_event(&self, db: usize, key: &[u8], event: Event) {
        let (wanted, name) = (self.wanted_events(), event.name);
        if wanted.any(Class::KEYSPACE) {
            let mut channel = format!("__keyspace@{db}__:").into_bytes();
            channel.extend_from_slice(key);
            self.pubsub.publish(self, &channel, name.as_bytes());
        }
        if wanted.any(Class::KEYEVENT) {
            let channel = format!("__keyevent@{db}__:{name}");
            self.pubsub.publish(self, channel.as_bytes(), key);
        }
    }
}
