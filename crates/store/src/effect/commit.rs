//! A commit: the ops that took effect under one set of locks, as Redis commands.
//!
//! ```text
//!  ops    [db, args][db, args] ...                 one a command
//!  args   [end of bytes][chain n][end of bytes]    name, key, arguments in turn
//!  bytes  SET key value PXAT 1700000000000 ...     all of them, one behind the other
//!  chains [Segments]                               large values, by reference
//! ```
//!
//! A session gathers its commit in buffers that it uses again: while they are large
//! enough, nothing is allocated. Large values are shared, never copied.

use super::form::Form;
use snug_codec::Segments;

/// How much a session keeps of a buffer between two commits, in bytes.
const KEPT_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, Debug)]
pub(super) enum Arg {
    /// Bytes from where the one before ended up to here.
    Bytes(usize),
    Chain(usize),
}

#[derive(Clone, Copy, Debug)]
struct Header {
    db: usize,
    /// Behind its last argument.
    args: usize,
}

/// What a session has changed since it holds the locks that it holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder {
    ops: Vec<Header>,
    pub(super) args: Vec<Arg>,
    pub(super) bytes: Vec<u8>,
    pub(super) chains: Vec<Segments>,
}

impl Recorder {
    /// Adds an op on a key of database `db`.
    pub(crate) fn add(&mut self, db: usize, form: impl FnOnce(&mut Form<'_>)) {
        form(&mut Form::new(self));
        self.ops.push(Header { db, args: self.args.len() });
    }

    /// Empties it.
    pub(crate) fn clear(&mut self) {
        self.ops.clear();
        self.args.clear();
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.chains = Vec::new();
    }
}

/// What took effect at one moment. See the module's description of
/// [`effect`](crate::effect).
#[derive(Clone, Copy, Debug)]
pub struct Commit<'a> {
    /// Its place in the order of all commits, from 1 on without a gap.
    pub number: u64,
    /// The time that it counts as, in Unix milliseconds.
    pub now: u64,
    recorder: &'a Recorder,
}

impl<'a> Commit<'a> {
    pub(crate) fn new(number: u64, now: u64, recorder: &'a Recorder) -> Self {
        Self { number, now, recorder }
    }

    /// Its ops, in the order in which they took effect.
    pub fn ops(self) -> impl Iterator<Item = CommitOp<'a>> {
        let mut first = 0;
        let mut from = 0;
        self.recorder.ops.iter().map(move |header| {
            let op = CommitOp { db: header.db, first, last: header.args, from, of: self.recorder };
            for arg in &self.recorder.args[first..header.args] {
                if let Arg::Bytes(end) = arg {
                    from = *end;
                }
            }
            first = header.args;
            op
        })
    }
}

/// One op of a commit, as a command.
#[derive(Clone, Copy, Debug)]
pub struct CommitOp<'a> {
    /// The database that must be selected for it.
    pub db: usize,
    first: usize,
    last: usize,
    from: usize,
    of: &'a Recorder,
}

impl<'a> CommitOp<'a> {
    /// The command's name and arguments.
    pub fn args(self) -> impl ExactSizeIterator<Item = Argument<'a>> {
        let mut from = self.from;
        self.of.args[self.first..self.last].iter().map(move |arg| match *arg {
            Arg::Bytes(end) => {
                let bytes = &self.of.bytes[from..end];
                from = end;
                Argument::Bytes(bytes)
            }
            Arg::Chain(n) => Argument::Chain(&self.of.chains[n]),
        })
    }
}

/// An argument of a command.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    /// Contiguous bytes.
    Bytes(&'a [u8]),
    /// A large value, to be shared.
    Chain(&'a Segments),
}

impl Argument<'_> {
    /// The argument in one piece. O(length).
    pub fn to_vec(self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes.to_vec(),
            Self::Chain(chain) => chain.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::string::NewStr;

    #[test]
    fn ops_come_back_as_they_were_written() {
        let mut recorder = Recorder::default();
        for _ in 0..2 {
            recorder.add(3, |form| {
                form.command("SET").bytes(b"k").bytes(b"").integer(-5);
            });
            recorder.add(0, |form| {
                let chain = Segments::from(&vec![7; 300_000][..]);
                form.command("APPEND").bytes(b"key").value(&NewStr::Chain(chain)).bytes(b"end");
            });
            recorder.add(1, |form| {
                form.command("FLUSHDB");
            });
            let commit = Commit::new(9, 100, &recorder);
            let ops: Vec<(usize, Vec<Vec<u8>>)> =
                commit.ops().map(|op| (op.db, op.args().map(Argument::to_vec).collect())).collect();
            let expected = [
                (3, vec![b"SET".to_vec(), b"k".to_vec(), Vec::new(), b"-5".to_vec()]),
                (0, vec![b"APPEND".to_vec(), b"key".to_vec(), vec![7; 300_000], b"end".to_vec()]),
                (1, vec![b"FLUSHDB".to_vec()]),
            ];
            assert_eq!(ops, expected);
            recorder.clear();
            assert_eq!(Commit::new(1, 1, &recorder).ops().count(), 0);
        }
    }
}
