//! A commit as the bytes of Redis commands: those of its ops, and what binds several.

use bytes::Bytes;
use snug_codec::Segments;
use snug_store::effect::{Commit, CommitOp};

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
        let before = self.bytes.len();
        self.shared.extend(op.shared().map(|(at, chain)| (before + at, chain.clone())));
        self.bytes.extend_from_slice(op.bytes);
    }

    /// Its bytes as pieces, large values by reference.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Part<'_>> {
        pieces(&self.bytes, self.shared.iter().map(|(at, chain)| (*at, chain)))
    }
}

/// Some bytes of an encoded commit.
pub(super) enum Part<'e> {
    Copied(&'e [u8]),
    Shared(&'e Bytes),
}

/// Bytes, and what belongs where so many of them have come, as pieces.
pub(super) fn pieces<'e>(
    bytes: &'e [u8],
    mut shared: impl Iterator<Item = (usize, &'e Segments)>,
) -> impl Iterator<Item = Part<'e>> {
    let mut rest = Some(0);
    std::iter::from_fn(move || {
        let from = rest?;
        let next = shared.next();
        let to = next.map_or(bytes.len(), |(at, _)| at);
        rest = next.map(|(at, _)| at);
        let chain = next.into_iter().flat_map(|(_, chain)| chain.parts().iter().map(Part::Shared));
        Some(std::iter::once(Part::Copied(&bytes[from..to])).chain(chain))
    })
    .flatten()
}

/// Writes `SELECT db`.
pub(super) fn select(db: usize, into: &mut Vec<u8>) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(db);
    let len = digits.len();
    into.extend_from_slice(format!("*2\r\n$6\r\nSELECT\r\n${len}\r\n{digits}\r\n").as_bytes());
}
