//! Blocks are sealed, and made into frames of zstd by threads side by side.
//!
//! ```text
//!  the writer ── give ──┬──> a thread: frame and sum ──┬── take ──> the writer, in the order
//!                       └──> a thread: frame and sum ──┘            in which it gave
//! ```
//!
//! The first block goes to the first thread, the next to the next, and they are taken back
//! in turn: so their order stays, and with [`AHEAD`] blocks for each thread memory is
//! bounded. A thread's buffers come back with its blocks.

use super::{sum, wire};
use snug_codec::frames::Framer;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Blocks that a thread has been given and that were not taken back.
const AHEAD: usize = 2;

/// A block on its way to where it is written.
pub(super) struct Block {
    head: [u8; wire::BLOCK_HEAD],
    body: Vec<u8>,
    /// What is written in the place of the body, if that is shorter.
    frame: Option<Vec<u8>>,
}

impl Block {
    pub(super) fn new(kind: u8, flags: u8, body: Vec<u8>) -> Self {
        let mut head = [0; wire::BLOCK_HEAD];
        (head[0], head[1]) = (kind, flags);
        Self { head, body, frame: None }
    }

    fn written_body(&self) -> &[u8] {
        self.frame.as_ref().unwrap_or(&self.body)
    }

    /// Completes the head: nothing of the block changes from now on.
    pub(super) fn seal(&mut self) {
        if self.frame.is_some() {
            self.head[1] |= wire::FRAMED;
        }
        let len = self.written_body().len() as u32;
        self.head[4..8].copy_from_slice(&len.to_le_bytes());
        let sum = sum(&self.head[..8], self.written_body());
        self.head[8..].copy_from_slice(&sum.to_le_bytes());
    }

    /// What is written.
    pub(super) fn parts(&self) -> [&[u8]; 2] {
        [&self.head, self.written_body()]
    }

    /// An empty buffer for another body.
    pub(super) fn into_buffer(mut self) -> Vec<u8> {
        self.body.clear();
        self.body
    }
}

struct Thread {
    give: SyncSender<Block>,
    take: Receiver<Block>,
}

/// Threads that make frames; they end when this is dropped.
pub(super) struct Framing {
    threads: Vec<Thread>,
    given: usize,
    taken: usize,
}

impl Framing {
    /// Starts so many threads, one at least.
    pub(super) fn start(threads: usize) -> io::Result<Self> {
        let threads = (0..threads.max(1)).map(|_| Thread::start()).collect::<io::Result<_>>()?;
        Ok(Self { threads, given: 0, taken: 0 })
    }

    /// Gives a block to a thread; one that was given before, if there are enough.
    pub(super) fn give(&mut self, block: Block) -> Option<Block> {
        let is_full = self.given - self.taken == self.threads.len() * AHEAD;
        let made = if is_full { self.take() } else { None };
        let thread = &self.threads[self.given % self.threads.len()];
        self.given += 1;
        thread.give.send(block).expect("a thread takes blocks until it is dropped");
        made
    }

    /// Waits for the block that was given first and was not taken; none, if there is none.
    pub(super) fn take(&mut self) -> Option<Block> {
        (self.taken < self.given).then(|| {
            let thread = &self.threads[self.taken % self.threads.len()];
            self.taken += 1;
            thread.take.recv().expect("a thread gives back what it was given")
        })
    }
}

impl Thread {
    fn start() -> io::Result<Self> {
        let (give, given) = sync_channel::<Block>(AHEAD);
        let (made, take) = sync_channel(AHEAD);
        std::thread::Builder::new().name("framer".into()).spawn(move || {
            let mut framer = Framer::default();
            for mut block in given {
                block.frame = framer.frame(&block.body).map(<[u8]>::to_vec);
                block.seal();
                // Nobody takes it where writing has failed.
                let _ = made.send(block);
                // A worker may wait for this CPU.
                std::thread::yield_now();
            }
        })?;
        Ok(Self { give, take })
    }
}
