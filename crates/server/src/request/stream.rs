//! A stream of commands that is no client's: a journal, an append-only file, the link
//! to a primary. Bytes go in as they come, commands come out one by one.
//!
//! Memory is what of a command has arrived, and what [`push`](CommandStream::push) was
//! given and is not parsed yet; a large argument goes to its segments at once.

use crate::request::args::{Args, Large};
use snug_codec::SegmentsFiller;
use snug_resp::{Limits, Parsed, Parser, ProtocolError, Span};

/// What has arrived of a stream and is not executed yet.
#[derive(Debug, Default)]
pub(crate) struct CommandStream {
    parser: Parser,
    buffer: Vec<u8>,
    /// What of the buffer has been executed.
    used: usize,
    spans: Vec<Span>,
    large: Vec<Large>,
    filling: Option<SegmentsFiller>,
    /// Bytes of the stream that whole commands have taken.
    taken: u64,
    /// Bytes of large arguments of the command that is not complete yet.
    aside: u64,
}

/// No limit but what memory there is: whoever wrote the stream had them executed.
const LIMITS: Limits = Limits {
    bulk_len_max: i32::MAX as usize,
    args_max: i32::MAX as usize,
    inline_len_max: 64 * 1024,
    unauthenticated: false,
};

impl CommandStream {
    /// Takes in what has arrived.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        if let Some(filler) = &mut self.filling {
            let moved = filler.append(bytes);
            bytes = &bytes[moved..];
        }
        if self.used > 0 {
            self.buffer.drain(..self.used);
            self.used = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next command, if it is there as a whole. Good until the next call.
    pub(crate) fn next(&mut self) -> Result<Option<Args<'_>>, ProtocolError> {
        let args = |spans: &[Span]| spans.len();
        loop {
            if let Some(filler) = self.filling.take_if(|filler| filler.remaining() == 0) {
                self.large.push(Large::from(filler.finish()));
            }
            if self.filling.is_some() {
                return Ok(None);
            }
            if self.parser.is_idle() {
                self.large.clear();
                self.aside = 0;
            }
            let rest = &mut self.buffer[self.used..];
            match self.parser.parse(rest, &LIMITS, &mut self.spans)? {
                Parsed::Incomplete => return Ok(None),
                Parsed::Large { head, len } => {
                    let mut filler = SegmentsFiller::new(len);
                    let moved = filler.append(&rest[head..]);
                    // What was moved leaves the buffer: the head is put right before
                    // what follows the body.
                    rest[..head + moved].rotate_right(moved);
                    self.used += moved;
                    self.aside += len as u64;
                    self.filling = Some(filler);
                }
                Parsed::Command { consumed } => {
                    let from = self.used;
                    self.used += consumed;
                    self.taken += consumed as u64 + self.aside;
                    self.aside = 0;
                    if args(&self.spans) == 0 {
                        continue;
                    }
                    let buf = &self.buffer[from..from + consumed];
                    return Ok(Some(Args { buf, spans: &self.spans, large: &self.large }));
                }
            }
        }
    }

    /// Bytes of the stream that whole commands have taken: behind the last of them.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether nothing of a command has arrived that is not complete.
    pub(crate) fn is_between_commands(&self) -> bool {
        self.parser.is_idle() && self.filling.is_none() && self.used == self.buffer.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However the stream is cut, the same commands come out, and their ends are known.
    #[test]
    fn commands_come_out_of_any_pieces() {
        let mut stream = Vec::new();
        let (mut ends, mut expected) = (Vec::new(), Vec::new());
        for n in 0..12usize {
            let args = [b"SET".to_vec(), format!("k{n}").into_bytes(), vec![b'x'; n * n * 3000]];
            stream.extend_from_slice(b"*3\r\n");
            for arg in &args {
                stream.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
                stream.extend_from_slice(arg);
                stream.extend_from_slice(b"\r\n");
            }
            ends.push(stream.len() as u64);
            expected.push(args.to_vec());
        }
        for size in [1, 7, 4096, 100_000, stream.len()] {
            let mut commands = CommandStream::default();
            let (mut got, mut got_ends) = (Vec::new(), Vec::new());
            for piece in stream.chunks(size) {
                commands.push(piece);
                while let Some(args) = commands.next().unwrap() {
                    got.push((0..args.len()).map(|n| args.bytes(n).to_vec()).collect::<Vec<_>>());
                    got_ends.push(commands.taken());
                }
            }
            assert!(got == expected && got_ends == ends, "in pieces of {size}");
            assert!(commands.is_between_commands());
        }
    }
}
