//! The locks and atomics of the store: those of the machine, and with the feature
//! `shuttle` ones whose every use is a point where another thread may go on, so that
//! `interleavings.rs` explores in what order threads may come.
//!
//! Arcs, and what only counts (`sharded.rs`, `memory.rs`, `pack/identity.rs`), are
//! the machine's in both: nobody waits for them and nothing is decided by them.

#[cfg(not(feature = "shuttle"))]
mod machine {
    pub(crate) use parking_lot::{Mutex, MutexGuard, RawMutex, RawRwLock, RwLock};
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
    };

    /// A point where another thread may go on, between two steps that have no lock or
    /// atomic of their own. Nothing, on the machine.
    #[inline(always)]
    pub(crate) fn point() {}
}

#[cfg(feature = "shuttle")]
mod explored {
    #![allow(unsafe_code)]

    use parking_lot::lock_api::{self, GuardSend, RawRwLock as _, RawRwLockTimed as _};
    use shuttle::sync::atomic::Ordering::SeqCst;
    pub(crate) use shuttle::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
    };
    use std::time::{Duration, Instant};

    pub(crate) type Mutex<T> = lock_api::Mutex<RawMutex, T>;
    pub(crate) type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
    pub(crate) type RwLock<T> = lock_api::RwLock<RawRwLock, T>;

    /// A point where another thread may go on.
    pub(crate) fn point() {
        AtomicBool::new(false).load(SeqCst);
    }

    /// A mutex: whoever finds it taken lets others go on until it is not.
    pub(crate) struct RawMutex(RawRwLock);

    // SAFETY: that of the lock below, of which it uses the exclusive half.
    unsafe impl lock_api::RawMutex for RawMutex {
        #[allow(clippy::declare_interior_mutable_const)]
        const INIT: Self = Self(RawRwLock::INIT);
        type GuardMarker = GuardSend;

        fn lock(&self) {
            self.0.lock_exclusive();
        }

        fn try_lock(&self) -> bool {
            self.0.try_lock_exclusive()
        }

        unsafe fn unlock(&self) {
            // SAFETY: by the caller's contract.
            unsafe { self.0.unlock_exclusive() }
        }
    }

    // SAFETY: as above. No time passes here: another thread goes on once.
    unsafe impl lock_api::RawMutexTimed for RawMutex {
        type Duration = Duration;
        type Instant = Instant;

        fn try_lock_for(&self, patience: Duration) -> bool {
            self.0.try_lock_exclusive_for(patience)
        }

        fn try_lock_until(&self, _: Instant) -> bool {
            self.0.try_lock_exclusive_for(Duration::ZERO)
        }
    }

    /// A lock for readers and writers: how many read, or [`WRITTEN`].
    pub(crate) struct RawRwLock(AtomicUsize);

    const WRITTEN: usize = usize::MAX;

    impl RawRwLock {
        fn take(&self, taken: impl Fn(usize) -> Option<usize>) -> bool {
            self.0.fetch_update(SeqCst, SeqCst, taken).is_ok()
        }
    }

    // SAFETY: one compare-and-exchange takes it, for one writer or for readers.
    unsafe impl lock_api::RawRwLock for RawRwLock {
        #[allow(clippy::declare_interior_mutable_const)]
        const INIT: Self = Self(AtomicUsize::new(0));
        type GuardMarker = GuardSend;

        fn lock_shared(&self) {
            while !self.try_lock_shared() {
                shuttle::thread::yield_now();
            }
        }

        fn try_lock_shared(&self) -> bool {
            self.take(|readers| (readers != WRITTEN).then(|| readers + 1))
        }

        unsafe fn unlock_shared(&self) {
            self.0.fetch_sub(1, SeqCst);
        }

        fn lock_exclusive(&self) {
            while !self.try_lock_exclusive() {
                shuttle::thread::yield_now();
            }
        }

        fn try_lock_exclusive(&self) -> bool {
            self.take(|readers| (readers == 0).then_some(WRITTEN))
        }

        unsafe fn unlock_exclusive(&self) {
            self.0.store(0, SeqCst);
        }
    }

    // SAFETY: as above. No time passes here: another thread goes on once.
    unsafe impl lock_api::RawRwLockTimed for RawRwLock {
        type Duration = Duration;
        type Instant = Instant;

        fn try_lock_shared_for(&self, _: Duration) -> bool {
            self.try_lock_shared() || {
                shuttle::thread::yield_now();
                self.try_lock_shared()
            }
        }

        fn try_lock_shared_until(&self, _: Instant) -> bool {
            self.try_lock_shared_for(Duration::ZERO)
        }

        fn try_lock_exclusive_for(&self, _: Duration) -> bool {
            self.try_lock_exclusive() || {
                shuttle::thread::yield_now();
                self.try_lock_exclusive()
            }
        }

        fn try_lock_exclusive_until(&self, _: Instant) -> bool {
            self.try_lock_exclusive_for(Duration::ZERO)
        }
    }
}

#[cfg(feature = "shuttle")]
pub(crate) use explored::*;
#[cfg(not(feature = "shuttle"))]
pub(crate) use machine::*;
