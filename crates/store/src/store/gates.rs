//! Gates: a session's sign that it is within the store, and the scope that closes all of
//! them to have the store to itself.

use super::batch::Batch;
use super::hold::{GaveUp, LOOKS_AFTER};
use super::session::{Mode, Session};
use crate::sync::{MutexGuard, RawRwLock};
use parking_lot::lock_api::{RawRwLock as _, RawRwLockTimed as _};
use std::sync::Arc;
use std::time::Duration;

/// What one session holds while it executes a batch.
pub(super) struct Gate(pub(super) RawRwLock);

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gate")
    }
}

impl Gate {
    pub(super) fn new() -> Self {
        Self(RawRwLock::INIT)
    }
}

impl Session {
    /// Waits until every batch of another session that is under way has ended; new ones
    /// may have begun by then.
    pub fn wait_for_others(&mut self) {
        self.wait_for_each(|gate| {
            gate.lock_exclusive();
            true
        });
    }

    /// The same for so long at most for each: a script may run for ever.
    pub fn wait_a_while_for_others(&mut self, patience: Duration) {
        self.wait_for_each(|gate| gate.try_lock_exclusive_for(patience));
    }

    fn wait_for_each(&mut self, lock: impl Fn(&RawRwLock) -> bool) {
        let gates = self.store.gates.lock();
        for gate in gates.iter().filter(|gate| !Arc::ptr_eq(gate, &self.gate)) {
            if lock(&gate.0) {
                // SAFETY: locked just now.
                #[allow(unsafe_code)]
                unsafe {
                    gate.0.unlock_exclusive();
                }
            }
        }
    }

    /// Closes all gates; its own is not held. One that somebody has for long is waited for
    /// with no other closed.
    fn close_gates(&self) -> MutexGuard<'_, Vec<Arc<Gate>>> {
        let give_up = || {
            if self.gives_up() {
                self.gate.0.lock_shared();
                std::panic::resume_unwind(Box::new(GaveUp));
            }
        };
        let gates = loop {
            match self.store.gates.try_lock_for(LOOKS_AFTER) {
                Some(gates) => break gates,
                None => give_up(),
            }
        };
        let mut first = 0;
        'again: loop {
            while !gates[first].0.try_lock_exclusive_for(LOOKS_AFTER) {
                give_up();
            }
            for n in (0..gates.len()).filter(|&n| n != first) {
                if gates[n].0.try_lock_exclusive_for(LOOKS_AFTER) {
                    continue;
                }
                for closed in (0..n).chain((first > n).then_some(first)) {
                    // SAFETY: closed above: all before `n`, and the first.
                    #[allow(unsafe_code)]
                    unsafe {
                        gates[closed].0.unlock_exclusive();
                    }
                }
                first = n;
                continue 'again;
            }
            return gates;
        }
    }
}

impl Batch<'_> {
    /// Whether the whole store is this batch's alone.
    pub fn is_exclusive(&self) -> bool {
        self.session.mode.get() == Mode::Exclusive
    }

    /// Keeps everybody else out of the whole store until the scope is dropped.
    /// Waits for the batches of other sessions to end. Within another such
    /// scope it adds nothing.
    ///
    /// # Panics
    /// Under [`hold`](Self::hold), or with a slot guard in use.
    pub fn exclusive(&self) -> Exclusive<'_> {
        if self.session.mode.get() == Mode::Exclusive {
            return Exclusive { session: None };
        }
        assert_eq!(self.session.mode.get(), Mode::Single, "closing the gates with slots held");
        assert_eq!(self.session.guards.get(), 0, "closing the gates with a guard in use");
        // SAFETY: this batch holds its own gate; it holds it again before the
        // scope that is returned here has ended.
        #[allow(unsafe_code)]
        unsafe {
            self.session.gate.0.unlock_shared();
        }
        let gates = self.session.close_gates();
        self.session.mode.set(Mode::Exclusive);
        Exclusive { session: Some((self.session, gates)) }
    }

    /// Does something that takes a while and needs no key, and lets whole-database
    /// operations of others in meanwhile. Within a scope it only does it.
    ///
    /// # Panics
    /// With a slot guard in use, which would outlive the batch it belongs to.
    pub fn outside<R>(&self, work: impl FnOnce() -> R) -> R {
        /// Enters again, also when `work` panics: the batch will be left.
        struct Enter<'g>(&'g Gate);
        impl Drop for Enter<'_> {
            fn drop(&mut self) {
                self.0.0.lock_shared();
            }
        }
        if self.session.mode.get() != Mode::Single {
            return work();
        }
        assert_eq!(self.session.guards.get(), 0, "leaving the gate with a guard in use");
        // SAFETY: this batch holds its gate, and holds it again on return.
        #[allow(unsafe_code)]
        unsafe {
            self.session.gate.0.unlock_shared();
        }
        let _enter = Enter(&self.session.gate);
        work()
    }
}

/// A scope with the store to itself. See [`Batch::exclusive`].
#[derive(Debug)]
#[must_use]
pub struct Exclusive<'b> {
    pub(super) session: Option<(&'b Session, MutexGuard<'b, Vec<Arc<Gate>>>)>,
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        let Some((session, gates)) = self.session.take() else { return };
        session.commit();
        session.mode.set(Mode::Single);
        for gate in gates.iter() {
            // SAFETY: closed by `exclusive`, in this very scope.
            #[allow(unsafe_code)]
            unsafe {
                gate.0.unlock_exclusive();
            }
        }
        drop(gates);
        session.gate.0.lock_shared();
    }
}
