//! Lookups: what they find of a key whose time has come or whose value is on disk, and
//! what they note.
//!
//! | lookup | counts as an access | may give a value on disk |
//! | --- | --- | --- |
//! | [`find`](SlotGuard::find) | read | |
//! | [`find_replaced`](SlotGuard::find_replaced) | where accesses are counted | yes |
//! | [`find_anywhere`](SlotGuard::find_anywhere) | read | yes |
//! | [`find_untouched`](SlotGuard::find_untouched) | | |
//! | [`find_entry`](SlotGuard::find_entry) | | yes |

use super::access::after_read;
use super::{Found, SlotGuard};
use crate::cell::entry::ACCESS_MAX;
use crate::cell::table::Place;
use crate::hash::Key;
use crate::store::Expired;
use std::sync::atomic::Ordering::Relaxed;

/// The unit of a slot's time of access: about a second, reached by a shift.
const ACCESS_MS: u64 = 1024;

impl SlotGuard<'_> {
    /// Looks a key up as a client's read does: an expired key is removed and
    /// not found, a found one counts as accessed.
    #[inline]
    pub fn find(&mut self, key: &Key<'_>) -> Option<Found> {
        let found = self.find_untouched(key)?;
        self.note_access();
        self.note_read(found);
        Some(found)
    }

    #[inline]
    fn note_read(&mut self, found: Found) {
        let session = self.session;
        let cell = self.cells_mut().get_mut(found.0);
        if cell.access() != ACCESS_MAX {
            cell.set_access(after_read(session, cell));
        }
    }

    /// Looks a key up whose value is about to be replaced: no read of it, but an
    /// access where accesses are counted. It may be on disk.
    #[inline]
    pub fn find_replaced(&mut self, key: &Key<'_>) -> Option<Found> {
        self.note_access();
        let found = self.find_entry(key)?;
        if self.session.store().log_factor().is_some() {
            self.note_read(found);
        }
        Some(found)
    }

    #[inline]
    pub(super) fn note_access(&self) {
        self.slot.accessed.store((self.session.now() / ACCESS_MS) as u32, Relaxed);
    }

    /// For how long no key of this slot has been accessed, in milliseconds: a lower
    /// bound for each of them, to about a second. It lies in what the slot's cache line
    /// has left, where a time for each key would cost bytes for each.
    pub fn idle_ms(&self) -> u64 {
        let now = (self.session.now() / ACCESS_MS) as u32;
        u64::from(now.saturating_sub(self.slot.accessed.load(Relaxed))) * ACCESS_MS
    }

    /// The same, whatever is done with the key but read its value: that may be on disk.
    pub fn find_anywhere(&mut self, key: &Key<'_>) -> Option<Found> {
        let found = self.find_entry(key)?;
        self.note_access();
        self.note_read(found);
        Some(found)
    }

    /// Looks a key up without counting it as accessed.
    #[inline]
    pub fn find_untouched(&mut self, key: &Key<'_>) -> Option<Found> {
        let found = self.find_entry(key)?;
        if self.cell(found).bits().is_away() { self.meet_away(found) } else { Some(found) }
    }

    /// The same of a key whose value nobody is about to read: it may be on disk.
    #[inline]
    pub fn find_entry(&mut self, key: &Key<'_>) -> Option<Found> {
        let place = self.cells().find(key)?;
        let cell = self.cells().get(place);
        if cell.expires() && cell.expiry().is_some_and(|expiry| expiry <= self.session.now()) {
            return self.find_expired(place);
        }
        Some(Found(place))
    }

    /// Whether there is a key whose time has come, which lookups do not find and do not
    /// remove either: writes are paused.
    pub fn hides(&self, key: &Key<'_>) -> bool {
        let now = self.session.now();
        let is_over = |place| self.cells().get(place).expiry().is_some_and(|expiry| expiry <= now);
        self.session.expired() == Expired::Hidden && self.cells().find(key).is_some_and(is_over)
    }

    /// What a lookup finds of a key whose time has come.
    #[cold]
    fn find_expired(&mut self, place: Place) -> Option<Found> {
        match self.session.expired() {
            Expired::Removed => {
                self.expire(place);
                None
            }
            Expired::Hidden => None,
            Expired::Seen => Some(Found(place)),
        }
    }

    /// Where a key is, whether its time has come or not.
    pub(crate) fn place_of(&self, key: &Key<'_>) -> Option<Found> {
        self.cells().find(key).map(Found)
    }
}

#[cfg(test)]
mod tests {
    use crate::{NewStr, SetExpiry, Store, StoreConfig, Unobserved};

    #[test]
    fn a_slot_knows_since_when_none_of_its_keys_was_accessed() {
        const START: u64 = 1_700_000_000_000;
        let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
        let mut session = store.session();
        let idle_at = |session: &mut crate::Session, ms: u64, access: bool| {
            let batch = session.enter(START + ms);
            let key = batch.key(b"k");
            let mut slot = batch.lock(0, &key);
            let found = slot.find_untouched(&key);
            match found {
                None => _ = slot.set_string(&key, None, &NewStr::Bytes(b"v"), SetExpiry::Clear),
                Some(_) if access => _ = slot.find(&key),
                Some(_) => {}
            }
            slot.idle_ms()
        };
        assert_eq!(idle_at(&mut session, 0, false), 0);
        let idle = idle_at(&mut session, 60_000, false);
        assert!((59_000..=61_000).contains(&idle), "{idle}");
        assert_eq!(idle_at(&mut session, 60_000, true), 0);
        let idle = idle_at(&mut session, 3_660_000, false);
        assert!((3_599_000..=3_601_000).contains(&idle), "{idle}");
        // A clock that is put back is no idle time.
        assert_eq!(idle_at(&mut session, 10, false), 0);
    }
}
