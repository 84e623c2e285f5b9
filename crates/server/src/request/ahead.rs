//! Commands of one connection, or of the stream that a primary sends, that are parsed
//! before the first of them is executed.
//!
//! A lookup in a large database waits for memory three times: for the slot, for
//! its cells, for the entry. Nothing can be done about that for one command. Of
//! a pipeline, the next commands are there already: their keys are looked for
//! together, so that their waits overlap ([`Batch::warm`]), and then they are
//! executed one by one as if nothing had happened.
//!
//! ```text
//!  buffer   *3..SET a..   *2..GET b..   *2..GET c..   ...
//!  ahead    len, spans    len, spans    len, spans         up to 16
//!                |             |             |
//!                v             v             v
//!             key a         key b         key c      -> warm
//! ```
//!
//! That the key is the first argument is only a guess; a wrong one costs a few
//! nanoseconds.

use smallvec::SmallVec;
use snug_resp::{Argument, Span};
use snug_store::{Batch, Key};

/// Commands parsed ahead: enough to hide a memory's latency behind the others'.
const AHEAD_MAX: usize = 16;

/// Arguments for which room is kept, for each command parsed ahead.
const SPANS_KEPT: usize = 1024;

/// What may be known of each command's key.
pub(crate) type Keys<'b> = [Option<Key<'b>>; AHEAD_MAX];

/// Commands that were parsed and not yet executed. Reused from batch to batch.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// The arguments of each command; only the first `lens.len()` are in use.
    spans: [Vec<Span>; AHEAD_MAX],
    /// The bytes of each.
    lens: SmallVec<[usize; AHEAD_MAX]>,
}

impl Ahead {
    /// Forgets all commands, and gives back what the arguments of long ones took.
    pub(crate) fn clear(&mut self) {
        for spans in &mut self.spans[..self.lens.len()] {
            if spans.capacity() > SPANS_KEPT {
                *spans = Vec::new();
            }
        }
        self.lens.clear();
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// Whether there is room for no more commands.
    pub(crate) fn is_full(&self) -> bool {
        self.lens.len() == AHEAD_MAX
    }

    /// Where the arguments of the next command are to be put.
    ///
    /// # Panics
    /// If it is full.
    pub(crate) fn spans(&mut self) -> &mut Vec<Span> {
        &mut self.spans[self.lens.len()]
    }

    /// The next command, whose arguments are put already, is so many bytes long.
    pub(crate) fn push(&mut self, len: usize) {
        self.lens.push(len);
    }

    /// The commands, in order: bytes and arguments.
    pub(crate) fn commands(&self) -> impl Iterator<Item = (usize, &[Span])> {
        self.lens.iter().copied().zip(self.spans.iter().map(Vec::as_slice))
    }

    /// Brings closer what the commands will look up, and leaves what was hashed
    /// for it in `keys`: the first argument of each command, if there are
    /// several. `buffer` begins with the first of them.
    #[inline]
    pub(crate) fn warm<'b>(
        &self,
        store: &Batch<'_>,
        db: usize,
        mut buffer: &'b [u8],
        keys: &mut Keys<'b>,
    ) {
        if self.lens.len() < 2 {
            return;
        }
        for ((len, spans), key) in self.commands().zip(&mut *keys) {
            let (command, rest) = buffer.split_at(len);
            if let Some(Argument::Bytes(bytes)) = spans.get(1).map(|span| span.argument(command)) {
                *key = Some(store.key(bytes));
            }
            buffer = rest;
        }
        store.warm(db, keys.iter().flatten());
    }
}
