//! A commit as the bytes of Redis commands.

use bytes::Bytes;
use snug_codec::Segments;
use snug_store::effect::{Argument, Commit, CommitOp};

/// Below this, a chain's bytes are copied as any others are.
const SHARED_FROM: usize = 64 * 1024;

/// A commit, encoded but for the `SELECT` that may have to stand before it: which
/// database is selected there is known when its turn has come.
#[derive(Debug, Default)]
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    /// Large values: each belongs where so many bytes have been written.
    pub(super) shared: Vec<(usize, Segments)>,
    /// The database of its first op, and that of its last.
    pub(super) first_db: usize,
    pub(super) last_db: usize,
}

impl Encoded {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.shared.clear();
    }

    /// Encodes a commit in the place of what was here.
    pub(super) fn set(&mut self, commit: Commit<'_>) {
        self.clear();
        let mut ops = commit.ops();
        let (Some(first), second) = (ops.next(), ops.next()) else { return };
        (self.first_db, self.last_db) = (first.db, first.db);
        let Some(second) = second else { return self.op(first) };
        self.bytes.extend_from_slice(b"*1\r\n$5\r\nMULTI\r\n");
        for op in [first, second].into_iter().chain(ops) {
            if op.db != self.last_db {
                select(op.db, &mut self.bytes);
                self.last_db = op.db;
            }
            self.op(op);
        }
        self.bytes.extend_from_slice(b"*1\r\n$4\r\nEXEC\r\n");
    }

    fn op(&mut self, op: CommitOp<'_>) {
        let args = op.args();
        head(b'*', args.len(), &mut self.bytes);
        for arg in args {
            match arg {
                Argument::Bytes(bytes) => {
                    head(b'$', bytes.len(), &mut self.bytes);
                    self.bytes.extend_from_slice(bytes);
                }
                Argument::Chain(chain) => {
                    head(b'$', chain.len(), &mut self.bytes);
                    if chain.len() < SHARED_FROM {
                        chain.parts().iter().for_each(|part| self.bytes.extend_from_slice(part));
                    } else {
                        self.shared.push((self.bytes.len(), chain.clone()));
                    }
                }
            }
            self.bytes.extend_from_slice(b"\r\n");
        }
    }

    /// Its bytes as pieces, large values by reference.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Part<'_>> {
        let mut from = 0;
        let shared = self.shared.iter().flat_map(move |(at, chain)| {
            let before = &self.bytes[from..*at];
            from = *at;
            std::iter::once(Part::Copied(before)).chain(chain.parts().iter().map(Part::Shared))
        });
        let last = self.shared.last().map_or(0, |(at, _)| *at);
        shared.chain(std::iter::once(Part::Copied(&self.bytes[last..])))
    }
}

/// Some bytes of an encoded commit.
pub(super) enum Part<'e> {
    Copied(&'e [u8]),
    Shared(&'e Bytes),
}

fn head(sign: u8, number: usize, into: &mut Vec<u8>) {
    into.push(sign);
    into.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    into.extend_from_slice(b"\r\n");
}

/// Writes `SELECT db`.
pub(super) fn select(db: usize, into: &mut Vec<u8>) {
    into.extend_from_slice(b"*2\r\n$6\r\nSELECT\r\n");
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(db);
    head(b'$', digits.len(), into);
    into.extend_from_slice(digits.as_bytes());
    into.extend_from_slice(b"\r\n");
}
