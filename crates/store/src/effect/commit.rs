//! A commit: the ops that took effect under one set of locks, as Redis commands.
//!
//! ```text
//!  ops    [db, end][db, end] ...                   one a command: where its bytes end
//!  bytes  *3 $3 SET $3 key $5 value *2 ...         all of them, one behind the other
//!  shared [place, Segments]                        large values, by reference: where
//!                                                  among the bytes each belongs
//! ```
//!
//! The bytes are those of the protocol, which the append-only file and replicas take: they
//! are written once, as the op is told of. A session gathers its commit in buffers that it
//! uses again: while they are large enough, nothing is allocated. Large values are shared,
//! never copied.

use super::form::Form;
use snug_codec::Segments;

/// How much a session keeps of a buffer between two commits, in bytes.
const KEPT_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, Debug)]
struct Header {
    db: usize,
    /// Where its bytes end.
    end: usize,
}

/// What a session has changed since it holds the locks that it holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder {
    ops: Vec<Header>,
    pub(super) bytes: Vec<u8>,
    pub(super) shared: Vec<(usize, Segments)>,
}

impl Recorder {
    /// Adds an op on a key of database `db`.
    pub(crate) fn add(&mut self, db: usize, form: impl FnOnce(&mut Form<'_>)) {
        let mut command = Form::new(self);
        form(&mut command);
        command.end();
        self.ops.push(Header { db, end: self.bytes.len() });
    }

    /// Empties it.
    pub(crate) fn clear(&mut self) {
        self.ops.clear();
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.shared.clear();
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
    pub fn ops(self) -> impl ExactSizeIterator<Item = CommitOp<'a>> {
        let Recorder { ops, bytes, shared } = self.recorder;
        let (mut from, mut first) = (0, 0);
        ops.iter().map(move |header| {
            // What is shared may stand at the very end of an op's bytes, but for a line end.
            let count = shared[first..].iter().take_while(|(at, _)| *at < header.end).count();
            let own = &shared[first..first + count];
            let op = CommitOp { db: header.db, bytes: &bytes[from..header.end], from, shared: own };
            (from, first) = (header.end, first + count);
            op
        })
    }
}

/// One op of a commit, as a command.
#[derive(Clone, Copy, Debug)]
pub struct CommitOp<'a> {
    /// The database that must be selected for it.
    pub db: usize,
    /// The command as the protocol has it, but for what is shared.
    pub bytes: &'a [u8],
    /// Where among the commit's bytes its own begin.
    from: usize,
    shared: &'a [(usize, Segments)],
}

impl<'a> CommitOp<'a> {
    /// Large values: each belongs where so many of its bytes have come.
    pub fn shared(self) -> impl Iterator<Item = (usize, &'a Segments)> {
        self.shared.iter().map(move |(at, chain)| (at - self.from, chain))
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
                let short = Segments::from(&b"short"[..]);
                form.command("APPEND").bytes(b"key").value(&NewStr::Chain(chain));
                form.value(&NewStr::Chain(short)).display(12.5);
            });
            recorder.add(1, |form| {
                form.command("RPUSH");
                for n in 0..11 {
                    form.bytes(&vec![b'x'; n * 10]);
                }
                form.value(&NewStr::Chain(Segments::from(&vec![7; 100_000][..])));
            });
            let commit = Commit::new(9, 100, &recorder);
            let told = |op: CommitOp<'_>| {
                let shared: Vec<_> = op.shared().map(|(at, chain)| (at, chain.len())).collect();
                (op.db, String::from_utf8_lossy(op.bytes).replace("\r\n", " "), shared)
            };
            let ops: Vec<_> = commit.ops().map(told).collect();
            assert_eq!(ops[0], (3, "*4 $3 SET $1 k $0  $2 -5 ".into(), vec![]));
            let append = "*5 $6 APPEND $3 key $300000  $5 short $4 12.5 ";
            // Before it: `*5`, and three counted strings with their line ends.
            let at = 4 + (4 + 8) + (4 + 5) + 9;
            assert_eq!(ops[1], (0, append.into(), vec![(at, 300_000)]));
            assert!(ops[2].1.starts_with("*13 $5 RPUSH $0  $10 xxxxxxxxxx $20 "), "{}", ops[2].1);
            assert_eq!(ops[2].2, [(ops[2].1.len() + ops[2].1.matches(' ').count() - 2, 100_000)]);
            recorder.clear();
            assert_eq!(Commit::new(1, 1, &recorder).ops().count(), 0);
        }
    }
}
