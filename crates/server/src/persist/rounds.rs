//! What a worker gives to the system at the end of a round, and the replies that wait for
//! that.
//!
//! ```text
//!  connection 1  executes, its replies wait ─┐
//!  connection 2  executes, its replies wait ─┼─> the round's end: one write for all of
//!  connection 3  executes, its replies wait ─┘   them, then they send their replies
//! ```
//!
//! A round is what a worker does of what it found ready at once: the end of it is a task
//! that the first commit wakes, and that so comes behind the connections that were ready
//! before. It writes what other workers have committed too. There is no thread to be woken
//! for any of it while the disk is well. Where replies wait for the disk (`always`) the
//! thread that syncs is woken by the first commit; when a sync is done it wakes this task,
//! and that all clients of its worker.
//!
//! The thread that serves replicas is woken there as well: once for all that a round has
//! committed, which it then sends with one write.

use super::Persist;
use super::durable::{Durable, Herd};
use crate::follow::clients::Shared;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Poll, Waker};
use tokio::sync::Notify;

#[derive(Default)]
struct Round {
    /// Wakes the task at its end, on a thread that has one.
    end: RefCell<Option<Waker>>,
    is_due: Cell<bool>,
    /// Whose replies wait for it, and for which commit.
    waiting: RefCell<Vec<(u64, Arc<Shared>)>>,
    /// Who is to be woken by it.
    wakes: Cell<Option<Arc<Notify>>>,
}

thread_local! {
    static ROUND: Round = Round::default();
}

impl Round {
    fn be_due(&self) -> bool {
        let end = self.end.borrow();
        let Some(end) = &*end else { return false };
        if !self.is_due.replace(true) {
            end.wake_by_ref();
        }
        true
    }
}

/// Has what is committed written at the end of this thread's round; false if it has none.
pub(super) fn be_due() -> bool {
    ROUND.with(Round::be_due)
}

/// Has a client woken at the end of this thread's round, or later, when a commit has come
/// as far as replies wait for; false if this thread has no rounds.
pub(crate) fn hold(commit: u64, client: &Arc<Shared>) -> bool {
    ROUND.with(|round| {
        let has = round.be_due();
        // One that was woken for something else waits already.
        if has && !client.is_held.swap(true, Relaxed) {
            round.waiting.borrow_mut().push((commit, Arc::clone(client)));
        }
        has
    })
}

fn let_go(client: &Shared) {
    client.is_held.store(false, Relaxed);
    client.wake();
}

/// Wakes somebody at the end of this thread's round, or at once if it has none.
pub(crate) fn wake(whom: &Arc<Notify>) {
    let other = ROUND.with(|round| match round.be_due() {
        true => {
            round.wakes.replace(Some(Arc::clone(whom))).filter(|other| !Arc::ptr_eq(other, whom))
        }
        false => Some(Arc::clone(whom)),
    });
    if let Some(other) = other {
        other.notify_one();
    }
}

/// A thread without rounds again: the task has ended.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        ROUND.with(|round| {
            round.end.take();
            round.is_due.set(false);
            for (_, client) in round.waiting.take() {
                let_go(&client);
            }
            if let Some(whom) = round.wakes.take() {
                whom.notify_one();
            }
        });
    }
}

/// Those who wait for what a round has committed, when it has ended.
#[derive(Default)]
struct Held(VecDeque<(u64, Arc<Shared>)>);

impl Held {
    /// Lets those go whose commits have come as far as replies wait for; for the first of
    /// the others the herd waits.
    fn let_go(&mut self, durable: &Durable, herd: &Arc<Herd>) {
        while let Some((commit, _)) = self.0.front()
            && !durable.hold_herd(*commit, herd)
            && let Some((_, client)) = self.0.pop_front()
        {
            let_go(&client);
        }
        herd.set_size(self.0.len());
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|(_, client)| let_go(&client));
    }
}

/// The task of a worker's thread that is the end of each of its rounds.
pub(crate) async fn end_rounds(persist: Arc<Persist>) {
    let _ends = Ends;
    let mut held = Held::default();
    let mut herd = None;
    poll_fn::<(), _>(|task| {
        let herd = herd.get_or_insert_with(|| Herd::new(task.waker().clone()));
        ROUND.with(|round| {
            round.end.borrow_mut().get_or_insert_with(|| task.waker().clone());
            if round.is_due.replace(false) {
                if let Some(whom) = round.wakes.take() {
                    whom.notify_one();
                }
                persist.push();
                held.0.extend(round.waiting.borrow_mut().drain(..));
            }
        });
        held.let_go(&persist.durable, herd);
        Poll::Pending
    })
    .await;
}
