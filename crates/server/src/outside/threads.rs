//! Threads that wait: for a time, or for room in a channel; and such as work for long and
//! give way.
//!
//! In a simulation such a thread and the runtime it was started from take turns: one of
//! both runs while the other waits, so that a run can be repeated, and the time in which
//! it waits is the simulation's ([`simulated`]).

use crate::outside::clock::Instant;
use std::io;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendError;

/// Starts a thread.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    #[cfg(test)]
    if simulated::is_here() {
        simulated::spawn(work);
        return Ok(());
    }
    std::thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

/// Waits for a while.
pub(crate) fn sleep(duration: Duration) {
    #[cfg(test)]
    if simulated::is_here() {
        return simulated::wait(tokio::time::sleep(duration));
    }
    std::thread::sleep(duration);
}

/// A thread that works for long beside workers. It would have the CPU for a slice of the
/// scheduler, some milliseconds, while a worker waits whose client has just asked; so it
/// gives way much more often.
pub(crate) struct GivesWay {
    since: Instant,
}

impl GivesWay {
    const EVERY: Duration = Duration::from_micros(200);

    pub(crate) fn new() -> Self {
        Self { since: Instant::now() }
    }

    /// Lets others run if it has run for long; to be called every few microseconds.
    #[inline]
    pub(crate) fn now_and_then(&mut self) {
        if self.since.elapsed() > Self::EVERY {
            std::thread::yield_now();
            self.since = Instant::now();
        }
    }
}

/// Waits for room in a channel; the value comes back if nobody receives any more.
pub(crate) fn send<T: Send + 'static>(
    sender: &mpsc::Sender<T>,
    value: T,
) -> Result<(), SendError<T>> {
    #[cfg(test)]
    if simulated::is_here() {
        let sender = sender.clone();
        return simulated::wait(async move { sender.send(value).await });
    }
    sender.blocking_send(value)
}

/// Threads as a simulation has them.
#[cfg(test)]
pub(crate) mod simulated {
    use crate::outside::{chance, clock, network};
    use parking_lot::Mutex;
    use rand::RngExt as _;
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::JoinHandle;
    use tokio::runtime::Handle;

    /// What a thread waits for.
    type Awaited = Pin<Box<dyn Future<Output = ()> + Send>>;

    /// A thread's turns: it says what it waits for, and is told when that is over.
    struct Turns {
        waits: Sender<Awaited>,
        goes_on: Receiver<()>,
    }

    thread_local! {
        /// The threads of this one's simulation, if it is part of one.
        static STARTED: RefCell<Option<Started>> = const { RefCell::new(None) };
        static TURNS: RefCell<Option<Turns>> = const { RefCell::new(None) };
    }

    /// Threads to be waited for.
    type Started = Arc<Mutex<Vec<JoinHandle<()>>>>;

    /// Why a thread unwinds when its simulation is over.
    struct Over;

    /// From now on threads that this one starts take turns with its runtime.
    pub(crate) fn begin() {
        STARTED.set(Some(Arc::default()));
    }

    /// Waits until they have ended, which they do once the runtime is gone: what they held,
    /// connections among it, is gone then too.
    pub(crate) fn end() {
        let started = STARTED.take().expect("a simulation has begun");
        loop {
            let Some(thread) = started.lock().pop() else { return };
            thread.join().expect("a thread that did not fail");
        }
    }

    pub(super) fn is_here() -> bool {
        STARTED.with_borrow(Option::is_some)
    }

    /// Starts a thread that has the time, the chance and the network of this one.
    pub(super) fn spawn(work: impl FnOnce() + Send + 'static) {
        let (waits, awaited) = channel::<Awaited>();
        let (go_on, goes_on) = channel();
        let (runtime, seed) = (Handle::current(), chance::rng().random());
        let (clock, network) = (clock::simulated::here(), network::here());
        let started = STARTED.with_borrow(Clone::clone).expect("a simulation has begun");
        let all = Arc::clone(&started);
        let thread = std::thread::spawn(move || {
            let _runtime = runtime.enter();
            clock::simulated::join(clock);
            chance::simulated::begin(seed);
            network::join(network);
            STARTED.set(Some(all));
            let turns = Turns { waits, goes_on };
            if turns.goes_on.recv().is_ok() {
                TURNS.set(Some(turns));
                let done = catch_unwind(AssertUnwindSafe(work));
                drop(TURNS.take());
                if let Err(why) = done
                    && !why.is::<Over>()
                {
                    resume_unwind(why);
                }
            }
        });
        started.lock().push(thread);
        tokio::spawn(async move {
            while go_on.send(()).is_ok() {
                // It runs meanwhile, and nobody else.
                let Ok(awaited) = awaited.recv() else { return };
                awaited.await;
            }
        });
    }

    /// Waits, as a thread of a simulation, until a future is done.
    pub(crate) fn wait<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
        let (done, result) = channel();
        let awaited = Box::pin(async move { drop(done.send(future.await)) });
        TURNS.with_borrow(|turns| {
            let turns = turns.as_ref().expect("a thread that takes turns");
            if turns.waits.send(awaited).is_err() || turns.goes_on.recv().is_err() {
                resume_unwind(Box::new(Over));
            }
        });
        result.recv().unwrap_or_else(|_| resume_unwind(Box::new(Over)))
    }
}
