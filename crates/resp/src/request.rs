//! Requests, parsed where they lie.
//!
//! ```text
//!  *3\r\n $3\r\n SET\r\n $1\r\n k\r\n $5\r\n hello\r\n          a command, RESP
//!         ^ header      ^ header    ^ header
//!               ^^^         ^             ^^^^^                its spans
//!
//!  SET k "hello"\r\n                                           the same, inline
//! ```
//!
//! [`Parser::parse`] looks at the bytes a connection has received and not yet
//! used, and answers where the arguments of the command at their beginning lie
//! ([`Span`]). Arguments are never copied. A command that is there as a whole
//! costs one pass over its headers: nothing is allocated once the caller's
//! vector of spans has grown, and the parser itself is not touched.
//!
//! A command that is not there yet leaves a [`Partial`] behind, on the heap, so
//! that an idle connection pays eight bytes for its parser. Parsing resumes
//! where it stopped: bytes of finished arguments are not looked at again. What
//! is remembered grows with the arguments that arrived (eight bytes each), never
//! with those that were claimed.
//!
//! A bulk above [`LARGE_BULK`] bytes is not gathered in the buffer:
//! [`Parsed::Large`] hands its body to the caller, and later finds it cut out:
//!
//! ```text
//!  *2\r\n$4\r\nECHO\r\n$100000\r\n xxxxxxxx...xxxx \r\n
//!  |------------- head ----------| body, len bytes |        what arrives
//!  |------------- head ----------|\r\n                      what is parsed then
//! ```
//!
//! What is accepted and what is refused, with which words and at which byte, is
//! Redis's: notably, the two bytes after a body and the one after a header's
//! `\r` are not looked at, a line is judged only when it is complete, and a NUL
//! byte in a line hides the line's end (the connection is refused once the line
//! exceeds its limit).

use crate::inline::split_in_place;
use crate::integer::parse_integer;

/// A bulk of more bytes than this is received outside the read buffer.
pub const LARGE_BULK: usize = 64 * 1024;

/// What a request may claim; beyond it, a [`ProtocolError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest bulk, in bytes: `proto-max-bulk-len`.
    pub bulk_len_max: usize,
    /// The most arguments of one command.
    pub args_max: usize,
    /// The longest line, in bytes: an inline command without its end, or a
    /// header. Redis's is 64 KiB.
    pub inline_len_max: usize,
    /// The client has yet to authenticate: Redis then allows 10 arguments of
    /// 16 KiB.
    pub unauthenticated: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bulk_len_max: 512 * 1024 * 1024,
            args_max: 1024 * 1024,
            inline_len_max: 64 * 1024,
            unauthenticated: false,
        }
    }
}

const UNAUTHENTICATED_ARGS_MAX: i64 = 10;
const UNAUTHENTICATED_BULK_LEN_MAX: i64 = 16 * 1024;

/// Why a connection cannot be understood any further. The text is Redis's, to
/// be sent after `-ERR ` before the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The line after `*` is not a number, or exceeds the limit.
    #[error("Protocol error: invalid multibulk length")]
    InvalidMultibulkLength,
    /// The line after `$` is not a number, negative, or exceeds the limit.
    #[error("Protocol error: invalid bulk length")]
    InvalidBulkLength,
    /// This byte begins what should be a bulk.
    #[error("Protocol error: expected '$', got '{}'", shown(*.0))]
    ExpectedBulk(u8),
    /// The line after `*` does not end within the limit.
    #[error("Protocol error: too big mbulk count string")]
    TooBigMultibulkCount,
    /// The line after `$` does not end within the limit.
    #[error("Protocol error: too big bulk count string")]
    TooBigBulkCount,
    /// An inline command does not end within the limit.
    #[error("Protocol error: too big inline request")]
    TooBigInline,
    /// A quote of an inline command is not closed, or closes within a word.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// More arguments than a client may send before it authenticates.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedMultibulkLength,
    /// A longer bulk than a client may send before it authenticates.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLength,
}

/// A byte as it can stand in an error reply, which is one line. Bytes above
/// 0x7f are shown as Latin-1; [`Writer::protocol_error`](crate::Writer) sends
/// the byte itself.
fn shown(byte: u8) -> char {
    match byte {
        b'\r' | b'\n' => ' ',
        byte => char::from(byte),
    }
}

/// Where one argument's bytes are: 8 bytes, resolved by [`Span::argument`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// From the start of the command; for a large bulk, its ordinal.
    start: u32,
    /// [`Span::LARGE`] for a large bulk.
    len: u32,
}

/// What a [`Span`] stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument<'a> {
    /// The argument itself.
    Bytes(&'a [u8]),
    /// The n-th large bulk of this command, counted from 0: its body was handed
    /// to the caller by the n-th [`Parsed::Large`].
    Large(usize),
}

impl Span {
    const LARGE: u32 = u32::MAX;
    /// A bulk that begins farther from the start of its command than this is
    /// received outside the buffer whatever its length, so that offsets fit.
    const START_MAX: usize = u32::MAX as usize - 1;

    /// The argument of `len` bytes from `start` on; `None` if that is farther
    /// than a span reaches.
    pub fn new(start: usize, len: usize) -> Option<Self> {
        let fits = start <= Self::START_MAX && len < Self::LARGE as usize;
        fits.then(|| Self::inline(start, len))
    }

    /// The large argument with this ordinal among those of its command: for commands
    /// that were not parsed from a socket.
    pub fn of_large(ordinal: usize) -> Option<Self> {
        u32::try_from(ordinal).ok().map(Self::large)
    }

    fn inline(start: usize, len: usize) -> Self {
        debug_assert!(start <= Self::START_MAX && len < Self::LARGE as usize);
        Self { start: start as u32, len: len as u32 }
    }

    fn large(ordinal: u32) -> Self {
        Self { start: ordinal, len: Self::LARGE }
    }

    /// The argument, `buf` being the slice the command was parsed from.
    ///
    /// # Panics
    /// If `buf` is not that slice, and too short.
    #[inline]
    pub fn argument(self, buf: &[u8]) -> Argument<'_> {
        match self.bytes(buf) {
            Some(bytes) => Argument::Bytes(bytes),
            None => Argument::Large(self.start as usize),
        }
    }

    /// The argument's bytes, `buf` being the slice the command was parsed from;
    /// `None` for a large bulk.
    ///
    /// # Panics
    /// If `buf` is not that slice, and too short.
    #[inline]
    pub fn bytes(self, buf: &[u8]) -> Option<&[u8]> {
        (self.len != Self::LARGE).then(|| &buf[self.start as usize..][..self.len as usize])
    }
}

impl std::fmt::Debug for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.len {
            Self::LARGE => write!(f, "Large({})", self.start),
            len => write!(f, "Inline({}, {len})", self.start),
        }
    }
}

/// What [`Parser::parse`] found at the start of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A whole command of `spans.len()` arguments: none for `*0`, `*-1` and a
    /// blank line, which are to be passed over.
    Command {
        /// The bytes of the buffer it used. The next command begins there.
        consumed: usize,
    },
    /// The buffer ends within a command. Keep the buffer from its start, append
    /// what arrives, and parse again.
    Incomplete,
    /// A large bulk begins. Keep `head` bytes of the buffer; the `len` bytes
    /// that follow, of which the buffer may hold some already, are to be
    /// received elsewhere. When all have been, parse the kept head with what
    /// follows the body appended to it (`\r\n` first).
    Large {
        /// The command so far, this bulk's header included.
        head: usize,
        /// The length of the bulk's body.
        len: usize,
    },
}

/// The requests of one connection. 8 bytes while no command is partly there.
#[derive(Debug, Default)]
pub struct Parser {
    partial: Option<Box<Partial>>,
}

/// A command of which a part has arrived.
#[derive(Debug)]
struct Partial {
    progress: Progress,
    spans: Vec<Span>,
}

/// How far a command has been parsed.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    expect: Expect,
    /// Where what is expected begins.
    at: usize,
    /// How much of the expected line is known not to hold its end.
    searched: usize,
    /// Arguments yet to come, the one begun included.
    args_left: usize,
    /// Large bulks so far.
    large: u32,
}

#[derive(Clone, Copy, Debug, Default)]
enum Expect {
    /// The first line: an inline command, or `*` and the number of arguments.
    #[default]
    Command,
    /// `$` and the length of the next argument.
    Header,
    /// The body of an argument, of this length, and two bytes.
    Body(usize),
    /// The two bytes after a large bulk, whose span is already noted.
    LargeEnd,
}

impl Parser {
    /// A parser at the start of a connection.
    pub const fn new() -> Self {
        Self { partial: None }
    }

    /// Parses the command at the start of `buf`, the bytes received and not yet
    /// used. `spans` is overwritten with the arguments of a whole command, and
    /// holds nothing of meaning otherwise: connections may share one. The words
    /// of an inline command are unescaped within `buf`; nothing else in it is
    /// changed.
    ///
    /// After an error the stream has no meaning left; the parser is idle again.
    #[inline]
    pub fn parse(
        &mut self,
        buf: &mut [u8],
        limits: &Limits,
        spans: &mut Vec<Span>,
    ) -> Result<Parsed, ProtocolError> {
        spans.clear();
        if self.partial.is_some() {
            return self.resume(buf, limits, spans);
        }
        match ordinary(buf, limits, spans) {
            Ordinary::Whole(consumed) => Ok(Parsed::Command { consumed }),
            Ordinary::Upto(progress) => self.begin(progress, buf, limits, spans),
        }
    }

    /// Goes on with a command that is not an ordinary one, or not whole.
    #[cold]
    fn begin(
        &mut self,
        mut progress: Progress,
        buf: &mut [u8],
        limits: &Limits,
        spans: &mut Vec<Span>,
    ) -> Result<Parsed, ProtocolError> {
        let parsed = progress.advance(buf, limits, spans)?;
        if !matches!(parsed, Parsed::Command { .. }) && !buf.is_empty() {
            // With room for what an ordinary command still lacks.
            let room = spans.len() + progress.args_left.min(8);
            let mut kept = Vec::with_capacity(room);
            kept.extend_from_slice(spans);
            self.partial = Some(Box::new(Partial { progress, spans: kept }));
        }
        Ok(parsed)
    }

    #[cold]
    fn resume(
        &mut self,
        buf: &mut [u8],
        limits: &Limits,
        spans: &mut Vec<Span>,
    ) -> Result<Parsed, ProtocolError> {
        let Some(mut partial) = self.partial.take() else { return Ok(Parsed::Incomplete) };
        let parsed = partial.progress.advance(buf, limits, &mut partial.spans)?;
        if matches!(parsed, Parsed::Command { .. }) {
            spans.extend_from_slice(&partial.spans);
        } else {
            self.partial = Some(partial);
        }
        Ok(parsed)
    }

    /// Whether no command is partly there: the next one begins the buffer.
    pub fn is_idle(&self) -> bool {
        self.partial.is_none()
    }

    /// Forgets a command that is partly there, and frees what it took.
    pub fn reset(&mut self) {
        self.partial = None;
    }

    /// The heap bytes held: none when idle.
    pub fn heap_bytes(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| {
            size_of::<Partial>() + partial.spans.capacity() * size_of::<Span>()
        })
    }
}

/// How far [`ordinary`] came.
enum Ordinary {
    /// A whole command, of so many bytes.
    Whole(usize),
    /// So far; nothing is said about what comes then.
    Upto(Progress),
}

/// Parses a command as nearly all are: whole, each of its header lines a number
/// of one to four digits, no limit in sight. At anything else it stops, for
/// [`Progress::advance`] to go on. State stays in registers.
#[inline]
fn ordinary(buf: &[u8], limits: &Limits, spans: &mut Vec<Span>) -> Ordinary {
    let no_limit_in_sight = !limits.unauthenticated
        && limits.args_max >= SHORT_NUMBER_MAX
        && limits.bulk_len_max >= SHORT_NUMBER_MAX
        && buf.len() <= Span::START_MAX;
    let Some((args, mut at)) = short_number(buf, b'*').filter(|_| no_limit_in_sight) else {
        return Ordinary::Upto(Progress::default());
    };
    for args_left in (1..=args).rev() {
        let header = buf.get(at..).and_then(|line| short_number(line, b'$'));
        match header {
            Some((len, used)) if at + used + len + 2 <= buf.len() => {
                spans.push(Span::inline(at + used, len));
                at += used + len + 2;
            }
            _ => {
                let expect = Expect::Header;
                return Ordinary::Upto(Progress { expect, at, args_left, ..Progress::default() });
            }
        }
    }
    Ordinary::Whole(at)
}

impl Progress {
    /// Parses on from where it stopped, adding to `spans`.
    fn advance(
        &mut self,
        buf: &mut [u8],
        limits: &Limits,
        spans: &mut Vec<Span>,
    ) -> Result<Parsed, ProtocolError> {
        if matches!(self.expect, Expect::Command) {
            match buf.first() {
                Some(b'*') => {}
                Some(_) => return self.inline_command(buf, limits, spans),
                None => return Ok(Parsed::Incomplete),
            }
            if !self.count(buf, limits)? {
                return Ok(Parsed::Incomplete);
            }
        }
        while self.args_left > 0 {
            let len = match self.expect {
                Expect::Command | Expect::Header => match self.header(buf, limits)? {
                    Some(len) => len,
                    None => return Ok(Parsed::Incomplete),
                },
                Expect::Body(len) => len,
                Expect::LargeEnd => 0,
            };
            if len > LARGE_BULK || self.at > Span::START_MAX {
                spans.push(Span::large(self.large));
                self.large += 1;
                self.expect = Expect::LargeEnd;
                return Ok(Parsed::Large { head: self.at, len });
            }
            let end = self.at + len + 2;
            if end > buf.len() {
                if !matches!(self.expect, Expect::LargeEnd) {
                    self.expect = Expect::Body(len);
                }
                return Ok(Parsed::Incomplete);
            }
            if !matches!(self.expect, Expect::LargeEnd) {
                spans.push(Span::inline(self.at, len));
            }
            self.at = end;
            self.args_left -= 1;
            self.expect = Expect::Header;
        }
        Ok(Parsed::Command { consumed: self.at })
    }

    /// Reads the line that begins with `*`: false if it is not complete.
    fn count(&mut self, buf: &[u8], limits: &Limits) -> Result<bool, ProtocolError> {
        let (number, used) = match self.number(buf, limits, ProtocolError::TooBigMultibulkCount)? {
            Line::Unfinished => return Ok(false),
            Line::NoNumber => return Err(ProtocolError::InvalidMultibulkLength),
            Line::Number(number, used) => (number, used),
        };
        if number > 0 {
            if number as u64 > limits.args_max as u64 {
                return Err(ProtocolError::InvalidMultibulkLength);
            }
            if limits.unauthenticated && number > UNAUTHENTICATED_ARGS_MAX {
                return Err(ProtocolError::UnauthenticatedMultibulkLength);
            }
            self.args_left = number as usize;
        }
        self.at = used;
        self.searched = 0;
        self.expect = Expect::Header;
        Ok(true)
    }

    /// Reads the header of the next argument and moves behind it: `None` if it
    /// is not complete.
    fn header(&mut self, buf: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        let line = buf.get(self.at..).unwrap_or_default();
        let (number, used) = match self.number(line, limits, ProtocolError::TooBigBulkCount)? {
            Line::Unfinished => return Ok(None),
            Line::NoNumber | Line::Number(..) if line[0] != b'$' => {
                return Err(ProtocolError::ExpectedBulk(line[0]));
            }
            Line::NoNumber => return Err(ProtocolError::InvalidBulkLength),
            Line::Number(number, used) => (number, used),
        };
        if number < 0 || number as u64 > limits.bulk_len_max as u64 {
            return Err(ProtocolError::InvalidBulkLength);
        }
        if limits.unauthenticated && number > UNAUTHENTICATED_BULK_LEN_MAX {
            return Err(ProtocolError::UnauthenticatedBulkLength);
        }
        self.at += used;
        self.searched = 0;
        Ok(Some(number as usize))
    }

    /// Reads any line that ends in `\r` and one more byte, and the number after
    /// its first byte.
    fn number(
        &mut self,
        line: &[u8],
        limits: &Limits,
        too_big: ProtocolError,
    ) -> Result<Line, ProtocolError> {
        if let Some((number, used)) = line.first().and_then(|&kind| short_number(line, kind)) {
            return Ok(Line::Number(number as i64, used));
        }
        match self.line_end(line, b'\r', limits, too_big)? {
            Some(end) if end + 2 <= line.len() => {
                let text = line.get(1..end).unwrap_or_default();
                Ok(parse_integer(text).map_or(Line::NoNumber, |n| Line::Number(n, end + 2)))
            }
            _ => Ok(Line::Unfinished),
        }
    }

    fn inline_command(
        &mut self,
        buf: &mut [u8],
        limits: &Limits,
        spans: &mut Vec<Span>,
    ) -> Result<Parsed, ProtocolError> {
        let Some(end) = self.line_end(buf, b'\n', limits, ProtocolError::TooBigInline)? else {
            return Ok(Parsed::Incomplete);
        };
        let line = match &mut buf[..end] {
            [line @ .., b'\r'] => line,
            line => line,
        };
        split_in_place(line, |start, len| spans.push(Span::inline(start, len)))
            .map_err(|_| ProtocolError::UnbalancedQuotes)?;
        Ok(Parsed::Command { consumed: end + 1 })
    }

    /// Finds the byte that ends `line`, if it is there; `too_big` if it is known
    /// to lie beyond the limit. Looks at each byte once, over all calls.
    fn line_end(
        &mut self,
        line: &[u8],
        ending: u8,
        limits: &Limits,
        too_big: ProtocolError,
    ) -> Result<Option<usize>, ProtocolError> {
        let within = &line[..line.len().min(limits.inline_len_max.saturating_add(1))];
        let from = self.searched.min(within.len());
        let found = memchr::memchr2(ending, 0, &within[from..]).map(|found| from + found);
        self.searched = found.unwrap_or(within.len());
        match found {
            Some(end) if within[end] == ending => Ok(Some(end)),
            _ if line.len() > limits.inline_len_max => Err(too_big),
            _ => Ok(None),
        }
    }
}

/// A header line.
enum Line {
    Unfinished,
    NoNumber,
    /// Its number, and its length with both ending bytes.
    Number(i64, usize),
}

/// The largest number that [`short_number`] reads.
const SHORT_NUMBER_MAX: usize = 9999;

/// The number of a complete header line that begins with `kind`, and the line's
/// length, if the number has one to four digits. `None` says nothing.
#[inline(always)]
fn short_number(line: &[u8], kind: u8) -> Option<(usize, usize)> {
    let digit = |byte: u8| usize::from(byte.wrapping_sub(b'0'));
    let &[first, one, two, three] = line.first_chunk()?;
    let number = digit(one);
    if first != kind || number > 9 {
        return None;
    }
    if two == b'\r' {
        return Some((number, 4));
    }
    if number == 0 || digit(two) > 9 {
        return None;
    }
    let number = number * 10 + digit(two);
    // The byte after `\r` has to be there, whatever it is.
    if three == b'\r' {
        return (line.len() >= 5).then_some((number, 5));
    }
    let &[.., four, five] = line.first_chunk::<6>()?;
    if digit(three) > 9 {
        return None;
    }
    let number = number * 10 + digit(three);
    if four == b'\r' {
        return Some((number, 6));
    }
    if digit(four) > 9 || five != b'\r' || line.len() < 7 {
        return None;
    }
    Some((number * 10 + digit(four), 7))
}

/// Appends a command as a client sends it: an array of bulks.
///
/// ```
/// let mut out = Vec::new();
/// snug_resp::append_command(&mut out, &["GET", "k"]);
/// assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
/// ```
pub fn append_command<A: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[A]) {
    let mut writer = crate::Writer { out, protocol: crate::Protocol::Resp2 };
    writer.array(args.len());
    for arg in args {
        writer.bulk(arg.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_takes_eight_bytes_and_an_idle_parser_too() {
        assert_eq!(size_of::<Span>(), 8);
        assert_eq!(size_of::<Parser>(), 8);
    }

    #[test]
    fn short_numbers_agree_with_the_careful_way() {
        for text in [
            "0", "1", "9", "10", "99", "100", "999", "1000", "9999", "10000", "00", "01", "-1", "",
            "1a", "12a", "123a", "1234a", "a",
        ] {
            let line = format!("${text}\r\n");
            for cut in 0..=line.len() {
                let line = &line.as_bytes()[..cut];
                if let Some((number, used)) = short_number(line, b'$') {
                    assert_eq!(parse_integer(text.as_bytes()), Some(number as i64));
                    assert_eq!(used, line.len());
                }
            }
        }
        assert_eq!(short_number(b"$7\r\n", b'$'), Some((7, 4)));
        assert_eq!(short_number(b"$1234\r\n", b'$'), Some((1234, 7)));
    }

    #[test]
    fn an_offset_that_does_not_fit_is_received_elsewhere() {
        // As if 4 GiB of small arguments had come before.
        let mut progress = Progress {
            expect: Expect::Body(3),
            at: Span::START_MAX + 1,
            args_left: 1,
            ..Progress::default()
        };
        let mut spans = Vec::new();
        let parsed = progress.advance(&mut [], &Limits::default(), &mut spans);
        assert_eq!(parsed, Ok(Parsed::Large { head: Span::START_MAX + 1, len: 3 }));
        assert_eq!(spans[0].argument(&[]), Argument::Large(0));
    }
}
