//! Cards that follow their strings: what content over HTTP knows of a string lies in a
//! second string, its card ([`card`]), and whoever writes the first by Redis's protocol
//! knows nothing of the second.
//!
//! ```text
//!  DEL page ──> the store tells of the change ──> `page` is noted        under its slot's lock
//!                                                    |
//!  worker 0's sweeper, each tick:  page is gone ──> DEL of its card      one commit, as any
//! ```
//!
//! A change of a key is noted by name, and nothing else is done under its lock, because the
//! card may be in another slot. A moment later the two are looked at together: a card whose
//! string is gone, is of another type now or has other bytes is removed, and one whose string
//! expires at another time gets that time. Both are ops like any other, so replicas and the
//! append-only file have them too. A replica does nothing by itself.
//!
//! It costs nothing while there is no content port. With one, a change of any key costs a
//! note (about 100 bytes until the next tick, at most [`NOTED_MAX`] keys) and a look-up. What
//! finds no room is not noted, and its card stays. So does that of a string above 64 KiB whose
//! bytes were replaced, for to tell them takes 0.1 ms for each MB.

use crate::engine::server::Server;
use crate::outside::clock::Instant;
use crate::text::card;
use crate::text::tag::Tag;
use parking_lot::Mutex;
use snug_store::{Batch, Delete, Event, Expire, Str, Type};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Keys that are noted at most.
const NOTED_MAX: usize = 65_536;

/// The database that is served over HTTP.
const DB: usize = 0;

/// Keys that have changed and may have a card.
#[derive(Debug, Default)]
pub(crate) struct Cards {
    /// Whether there is a content port.
    on: AtomicBool,
    noted: Mutex<HashSet<Vec<u8>>>,
}

impl Cards {
    pub(crate) fn new(on: bool) -> Self {
        Self { on: AtomicBool::new(on), noted: Mutex::default() }
    }

    pub(crate) fn are_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// A key has changed. Called under its slot's lock.
    pub(crate) fn changed(&self, key: &[u8]) {
        if !self.are_on() || card::is_card(key) {
            return;
        }
        let mut noted = self.noted.lock();
        if noted.len() < NOTED_MAX && !noted.contains(key) {
            noted.insert(key.to_vec());
        }
    }

    fn take(&self) -> HashSet<Vec<u8>> {
        std::mem::take(&mut *self.noted.lock())
    }

    /// These could not be looked at yet.
    fn put_back(&self, keys: impl Iterator<Item = Vec<u8>>) {
        let mut noted = self.noted.lock();
        let room = NOTED_MAX.saturating_sub(noted.len());
        noted.extend(keys.take(room));
    }
}

/// What has become of a string.
enum Now {
    /// It is gone, or of another type.
    Gone,
    /// It expires then, if it does, and has this tag, if that could be told at little cost.
    There { expiry: Option<u64>, tag: Option<Tag> },
}

impl Server {
    /// The MIME type that a card declares for the string at a key.
    pub(crate) fn declared(&self, store: &Batch<'_>, db: usize, key: &[u8]) -> Option<String> {
        if db != DB || !self.cards.are_on() || card::is_card(key) {
            return None;
        }
        let name = card::name(key, self.cluster.enabled)?;
        let name = store.key(&name);
        let mut slot = store.lock(DB, &name);
        // One that is on disk is not waited for.
        let found = slot.find_entry(&name).filter(|&found| !slot.is_away(found))?;
        let (_, declared) = read(&slot.string(found)?)?;
        declared.filter(|mime| mime != "application/octet-stream")
    }

    /// Has the cards of keys that have changed follow them, for at most so long; whether
    /// some are left.
    pub(crate) fn tidy_cards(&self, store: &Batch<'_>, budget: Duration) -> bool {
        if !self.cards.are_on() {
            return false;
        }
        let (began, mut keys) = (Instant::now(), self.cards.take().into_iter());
        if self.peers.is_replica() {
            return false;
        }
        while began.elapsed() < budget {
            let Some(key) = keys.next() else { return false };
            self.tidy_card(store, &key);
        }
        let more = keys.len() > 0;
        self.cards.put_back(keys);
        more
    }

    fn tidy_card(&self, store: &Batch<'_>, key: &[u8]) {
        let Some(name) = card::name(key, self.cluster.enabled) else { return };
        let (key, name) = (store.key(key), store.key(&name));
        if store.lock(DB, &name).find_entry(&name).is_none() {
            return;
        }
        let _held = store.hold([(DB, key), (DB, name)]);
        let mut slot = store.lock(DB, &key);
        let now = match slot.find_entry(&key) {
            Some(found) if slot.type_of(found) == Type::String => {
                let tag = match slot.is_away(found) {
                    true => None,
                    false => slot.string(found).and_then(|string| short_tag(&string)),
                };
                Now::There { expiry: slot.expiry(found), tag }
            }
            _ => Now::Gone,
        };
        drop(slot);
        let mut slot = store.lock(DB, &name);
        let Some(found) = slot.find_entry(&name) else { return };
        if slot.type_of(found) != Type::String {
            return;
        }
        let read = match slot.is_away(found) {
            // It went when its string had long been as it is.
            true => None,
            false => match slot.string(found).and_then(|string| read(&string)) {
                Some(read) => Some(read),
                // Somebody else's string of such a name is left alone.
                None => return,
            },
        };
        match now {
            Now::There { tag: Some(tag), .. } if read.is_some_and(|(of, _)| of != tag) => {
                slot.apply(&name, Some(found), Delete, Event::DEL);
            }
            Now::There { expiry, .. } if slot.expiry(found) != expiry => {
                slot.apply(&name, Some(found), Expire(expiry), Event::EXPIRE);
            }
            Now::There { .. } => {}
            Now::Gone => _ = slot.apply(&name, Some(found), Delete, Event::DEL),
        }
    }
}

/// The tag of a string, if that takes no more than some microseconds.
fn short_tag(string: &Str<'_>) -> Option<Tag> {
    match string {
        Str::Chain(_) | Str::PackedLarge(_) => None,
        short => Some(Tag::of(&short.to_bytes().ok()?)),
    }
}

fn read(string: &Str<'_>) -> Option<(Tag, Option<String>)> {
    card::read(&string.to_bytes().ok()?)
}
