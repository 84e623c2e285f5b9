//! A stream of commands that is no client's: a journal, an append-only file, the link
//! to a primary. Bytes go in as they come, commands come out one by one.
//!
//! Who executes many of them has a few parsed at once, and what they will look up brought
//! closer ([`parse_some`](CommandStream::parse_some)).
//!
//! Memory is what of a command has arrived, and what [`push`](CommandStream::push) was
//! given and is not parsed yet; a large argument goes to its segments at once.

use crate::request::ahead::{Ahead, Keys};
use crate::request::args::{Args, Large};
use snug_codec::SegmentsFiller;
use snug_resp::{Limits, Parsed, Parser, ProtocolError};
use snug_store::{Batch, Key};

/// What has arrived of a stream and is not executed yet.
#[derive(Debug, Default)]
pub(crate) struct CommandStream {
    parser: Parser,
    buffer: Vec<u8>,
    /// What of the buffer has been parsed, as whole commands.
    used: usize,
    /// The commands that were parsed last, and where in the buffer and in the stream they
    /// begin. Large arguments are the first one's.
    ahead: Ahead,
    begin: usize,
    begin_taken: u64,
    large: Vec<Large>,
    filling: Option<SegmentsFiller>,
    /// What comes behind them: a large argument, whose place behind its command's head and
    /// whose length are known, or what is no command.
    stop: Option<Result<(usize, usize), ProtocolError>>,
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
        loop {
            if !self.parse(false)? {
                return Ok(None);
            }
            if self.ahead.commands().any(|(_, spans)| !spans.is_empty()) {
                break;
            }
        }
        Ok(self.commands(&Keys::default()).next().map(|(_, args, _)| args))
    }

    /// The next command or line, if it is there as a whole: one without a word in it, too,
    /// which has no arguments. Good until the next call.
    pub(crate) fn next_of_all(&mut self) -> Result<Option<Args<'_>>, ProtocolError> {
        if !self.parse(false)? {
            return Ok(None);
        }
        Ok(self.ahead.commands().next().map(|(len, spans)| {
            let buf = &self.buffer[self.begin..self.begin + len];
            Args { buf, spans, large: &self.large }
        }))
    }

    /// Parses the next few commands that are there as a whole; false if there is none.
    pub(crate) fn parse_some(&mut self) -> Result<bool, ProtocolError> {
        self.parse(true)
    }

    /// Brings closer what they will look up in a database, and leaves their keys in `keys`.
    pub(crate) fn warm<'b>(&'b self, store: &Batch<'_>, db: usize, keys: &mut Keys<'b>) {
        self.ahead.warm(store, db, &self.buffer[self.begin..self.used], keys);
    }

    /// The commands that were parsed last: how many bytes of the stream have been taken
    /// behind each, its arguments, and its key if that was hashed.
    pub(crate) fn commands<'k, 'b: 'k>(
        &'b self,
        keys: &'k Keys<'b>,
    ) -> impl Iterator<Item = (u64, Args<'b>, Option<&'k Key<'b>>)> {
        let (mut at, mut taken) = (self.begin, self.begin_taken);
        let commands = self.ahead.commands().zip(keys).map(move |((len, spans), key)| {
            let buf = &self.buffer[at..at + len];
            at += len;
            taken += len as u64;
            (taken, Args { buf, spans, large: &self.large }, key.as_ref())
        });
        commands.filter(|(_, args, _)| args.len() > 0)
    }

    /// Parses one command, or several; whether there is any.
    fn parse(&mut self, several: bool) -> Result<bool, ProtocolError> {
        if !self.ahead.is_empty() {
            self.ahead.clear();
            self.large.clear();
        }
        if let Some(stop) = self.stop.take() {
            let (head, len) = stop?;
            self.receive(head, len);
        }
        loop {
            if let Some(filler) = self.filling.take_if(|filler| filler.remaining() == 0) {
                self.large.push(Large::from(filler.finish()));
            }
            if self.filling.is_some() {
                return Ok(false);
            }
            (self.begin, self.begin_taken) = (self.used, self.taken + self.aside);
            let stop = loop {
                let rest = &mut self.buffer[self.used..];
                match self.parser.parse(rest, &LIMITS, self.ahead.spans()) {
                    Ok(Parsed::Command { consumed }) => {
                        self.used += consumed;
                        self.taken += consumed as u64 + std::mem::take(&mut self.aside);
                        self.ahead.push(consumed);
                        if !several || self.ahead.is_full() {
                            return Ok(true);
                        }
                    }
                    Ok(Parsed::Incomplete) => return Ok(!self.ahead.is_empty()),
                    Ok(Parsed::Large { head, len }) => break Ok((head, len)),
                    Err(error) => break Err(error),
                }
            };
            if !self.ahead.is_empty() {
                // They are executed where they lie, before anything is moved.
                self.stop = Some(stop);
                return Ok(true);
            }
            let (head, len) = stop?;
            self.receive(head, len);
        }
    }

    /// Begins to take in a large argument behind the head of its command.
    fn receive(&mut self, head: usize, len: usize) {
        let rest = &mut self.buffer[self.used..];
        let mut filler = SegmentsFiller::new(len);
        let moved = filler.append(&rest[head..]);
        // What was moved leaves the buffer: the head is put right before what follows the
        // body.
        rest[..head + moved].rotate_right(moved);
        self.used += moved;
        self.aside += len as u64;
        self.filling = Some(filler);
    }

    /// Bytes of the stream that whole commands have taken: behind the last of them.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes that have arrived and are no whole command, and those announced of a large
    /// argument.
    pub(crate) fn unfinished(&self) -> usize {
        self.buffer.len() - self.used + self.aside as usize
    }

    /// Whether nothing of a command has arrived that is not complete.
    pub(crate) fn is_between_commands(&self) -> bool {
        self.parser.is_idle()
            && self.filling.is_none()
            && self.stop.is_none()
            && self.used == self.buffer.len()
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
        let words = |args: Args<'_>| -> Vec<_> {
            (0..args.len()).map(|n| args.bytes(n).to_vec()).collect()
        };
        for size in [1, 7, 4096, 100_000, stream.len()] {
            let (mut commands, mut few) = (CommandStream::default(), CommandStream::default());
            let (mut got, mut got_ends) = (Vec::new(), Vec::new());
            let (mut got_few, mut few_ends) = (Vec::new(), Vec::new());
            for piece in stream.chunks(size) {
                commands.push(piece);
                while let Some(args) = commands.next().unwrap() {
                    got.push(words(args));
                    got_ends.push(commands.taken());
                }
                few.push(piece);
                while few.parse_some().unwrap() {
                    for (taken, args, _) in few.commands(&Keys::default()) {
                        got_few.push(words(args));
                        few_ends.push(taken);
                    }
                    assert!(few_ends.last().is_none_or(|&taken| taken == few.taken()));
                }
            }
            assert!(got == expected && got_ends == ends, "in pieces of {size}");
            assert!(got_few == expected && few_ends == ends, "a few, in pieces of {size}");
            assert!(commands.is_between_commands() && few.is_between_commands());
        }
    }

    /// What came before nonsense is executed; lines with nothing in them are none.
    #[test]
    fn commands_before_nonsense_come_out() {
        let mut stream = CommandStream::default();
        stream.push(b"\r\n*1\r\n$1\r\na\r\n\r\n*1\r\n$1\r\nb\r\n*1\r\n:1\r\n");
        assert!(stream.parse_some().unwrap());
        let keys = Keys::default();
        let told: Vec<_> =
            stream.commands(&keys).map(|(end, args, _)| (end, args.bytes(0))).collect();
        assert_eq!(told, [(13, &b"a"[..]), (26, &b"b"[..])]);
        assert!(stream.parse_some().is_err());
    }
}
