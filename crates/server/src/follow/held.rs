//! Clients whose commands are put off until something is over: they are woken then, and
//! look again.

use crate::follow::clients::Shared;
use parking_lot::Mutex;
use std::sync::Arc;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<Vec<Arc<Shared>>>);

impl Held {
    /// Has a client woken by the next [`release`](Self::release), if there is `still` a
    /// reason to wait; whether there is. The lock lets no end of it pass between the look
    /// and the entry.
    pub(crate) fn hold(&self, client: &Arc<Shared>, still: impl FnOnce() -> bool) -> bool {
        let mut held = self.0.lock();
        let still = still();
        if still {
            held.push(Arc::clone(client));
        }
        still
    }

    /// Wakes all of them. The reason is over.
    pub(crate) fn release(&self) {
        for client in std::mem::take(&mut *self.0.lock()) {
            client.wake();
        }
    }
}
