//! The journal: the commits of all workers in the order of their numbers, as the
//! bytes of Redis commands, for whoever follows them: the append-only file, replicas,
//! the mirror.
//!
//! ```text
//!  worker 0 ──commit 7──> encode ─┐
//!  worker 1 ──commit 6──> encode ─┼─> ring ──6, 7──> log ──> follower: append-only file
//!  worker 2 ──commit 9──> encode ─┘   (9 waits       │ │ └─> follower: backlog of replicas
//!                                      for 8)     shared └─> follower: mirror
//! ```
//!
//! **Order.** A commit takes its number before its locks are released and is handed in
//! right after, so 7 may come before 6. What comes early waits in the ring for those
//! before it, which are on their way: nobody waits for anything else meanwhile.
//!
//! **Form.** What followers read is what a replica could execute: `SELECT` where the
//! database changes, `MULTI` and `EXEC` around a commit of several ops, each op as its
//! command. Large values are the store's own segments, by reference.
//!
//! **To follow.** [`Journal::join`] at a moment: within [`Batch::exclusive`] (it closes
//! the gates itself if need be), so everything before that moment has been told and
//! nothing after it has. The follower knows the number of the last commit before it
//! ([`Follower::joined_at`]), and the first thing it reads is a `SELECT`.
//! [`Follower::read`] gives what is new as whole commits; what it gave last time counts
//! as dealt with then, and its memory is given back. When there is nothing new the
//! follower's `wake` is called once as soon as there is: under locks, so it is to be
//! quick (unpark a thread, notify a task).
//!
//! **A moment in the stream.** [`Journal::mark`], within `exclusive` too, puts a mark
//! into the stream that all followers read, and has a `SELECT` follow it: where a new
//! file begins, or a snapshot was taken.
//!
//! **Memory** is what the slowest follower has not dealt with, shared by all of them.
//! Above [`FULL_BYTES`] the journal is full: commands that write are put off until
//! followers have caught up to half of that ([`Journal::is_full`]; what is under way is
//! finished, so a commit is never lost or cut). A follower that joins without limit
//! (the mirror, for tests) does not count.
//!
//! **Costs.** With no follower the store records nothing, and a change pays a branch.
//! With followers a commit is encoded by the thread that made it, and copied once into
//! the log under a lock that is held for nothing else.

mod encode;
mod log;

pub(crate) use log::{Follower, Journal, Piece};

/// Bytes that followers have not dealt with, above which writers wait.
pub(crate) const FULL_BYTES: usize = 64 * 1024 * 1024;
