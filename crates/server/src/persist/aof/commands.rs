//! The commands of an append-only file, one by one: for who executes them at the start, and
//! for who only looks whether they are whole (`snug check`). What one of the two takes the
//! other takes, too.
//!
//! The parser is that of clients, and does not look at the bytes that end a header or an
//! argument. Here they are looked at, as the whole of every command: servers write it in one
//! way, so anything else is damage. A line that begins with `#` is a note.

use crate::request::args::Args;
use crate::request::stream::CommandStream;
use snug_resp::Argument;
use std::io::{self, Read};

/// Bytes read at once.
const READ_AT_ONCE: usize = 256 * 1024;

/// What stands in a file.
pub(super) enum Entry<'a> {
    Command(Args<'a>),
    /// A line that tells something, the time perhaps; its first word.
    Note(&'a [u8]),
}

/// The next command or note, if it is there as a whole.
pub(super) fn next(stream: &mut CommandStream) -> Result<Option<Entry<'_>>, String> {
    let Some(args) = stream.next_of_all().map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    match args.buf.first() {
        Some(b'#') => Ok(Some(Entry::Note(args.get(0).unwrap_or_default()))),
        Some(b'*') if args.len() == 0 => Err("a command has no name".into()),
        Some(b'*') if is_well_formed(args) => Ok(Some(Entry::Command(args))),
        Some(b'*') => Err("a line or an argument of the command does not end as it should".into()),
        _ => Err("a line is no command".into()),
    }
}

/// Whether every header and every argument ends in `\r\n`.
fn is_well_formed(args: Args<'_>) -> bool {
    fn behind_line(bytes: &[u8]) -> Option<&[u8]> {
        let end = bytes.iter().position(|&byte| byte == b'\r')?;
        bytes[end..].strip_prefix(b"\r\n")
    }
    let last = args.spans.iter().try_fold(behind_line(args.buf), |rest, span| {
        let body = match span.argument(args.buf) {
            Argument::Bytes(bytes) => bytes.len(),
            // Its bytes were put elsewhere.
            Argument::Large(_) => 0,
        };
        let rest = behind_line(rest?)?.get(body..)?;
        Some(rest.strip_prefix(b"\r\n"))
    });
    last.flatten().is_some_and(<[u8]>::is_empty)
}

/// What comes next in a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// A command of this name, in capitals.
    Command(String),
    /// A time, in Unix seconds.
    Time(u64),
    /// The end.
    End,
}

/// Reads the commands of an append-only file, and executes none. Memory is what one command
/// takes.
pub struct AofCommands<R> {
    from: R,
    stream: CommandStream,
    buffer: Vec<u8>,
    before: u64,
}

impl<R> std::fmt::Debug for AofCommands<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AofCommands").field("at", &self.at()).finish_non_exhaustive()
    }
}

impl<R: Read> AofCommands<R> {
    /// Reads from there on; `before` bytes of the file have been read.
    pub fn new(from: R, before: u64) -> Self {
        let buffer = vec![0; READ_AT_ONCE];
        Self { from, stream: CommandStream::default(), buffer, before }
    }

    /// Reads what comes next.
    #[expect(clippy::should_implement_trait, reason = "it fails, and tells its end")]
    pub fn next(&mut self) -> io::Result<Next> {
        let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        loop {
            match next(&mut self.stream).map_err(wrong)? {
                Some(Entry::Command(args)) => {
                    // Enough to tell commands apart.
                    let (name, _) = args.front(0, 64);
                    let name = String::from_utf8_lossy(name).to_ascii_uppercase();
                    return Ok(Next::Command(name));
                }
                Some(Entry::Note(word)) => {
                    let time = std::str::from_utf8(word).ok().and_then(|w| w.strip_prefix("#TS:"));
                    if let Some(time) = time.and_then(|time| time.parse().ok()) {
                        return Ok(Next::Time(time));
                    }
                }
                None => match self.from.read(&mut self.buffer) {
                    Ok(0) if self.stream.is_between_commands() => return Ok(Next::End),
                    Ok(0) => return Err(wrong("the end is missing".into())),
                    Ok(read) => self.stream.push(&self.buffer[..read]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                },
            }
        }
    }
}

impl<R> AofCommands<R> {
    /// The byte of the file at which what comes next begins.
    pub fn at(&self) -> u64 {
        self.before + self.stream.taken()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_one_by_one_and_damage_where_it_is() {
        let text = b"#TS:5\r\n*2\r\n$3\r\nget\r\n$1\r\nk\r\n# a note\r\n*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nSE";
        let mut commands = AofCommands::new(&text[..], 0);
        assert_eq!(commands.next().unwrap(), Next::Time(5));
        assert_eq!(commands.next().unwrap(), Next::Command("GET".into()));
        assert_eq!(commands.next().unwrap(), Next::Command("PING".into()));
        assert_eq!(commands.at(), 51);
        assert!(commands.next().is_err());
        assert_eq!(commands.at(), 51);
        for bad in [
            "*1\r\n$3\r\nab\r\n",
            "*x\r\n",
            "*0\r\n",
            "$3\r\nabc\r\n",
            "*1\r\n$1\r\nabc\r\n",
            "\r\n",
            "GET k\r\n",
        ] {
            assert!(AofCommands::new(bad.as_bytes(), 0).next().is_err(), "{bad}");
        }
    }

    /// Every `\r` and `\n` of a command is another byte once, that which ends a large argument
    /// among them.
    #[test]
    fn what_ends_a_line_or_an_argument_is_looked_at() {
        let large = "x".repeat(snug_resp::LARGE_BULK + 1);
        let text = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{large}\r\n", large.len());
        let all = |bytes: &[u8]| {
            let mut commands = AofCommands::new(bytes, 0);
            commands.next().and_then(|_| commands.next())
        };
        assert_eq!(all(text.as_bytes()).unwrap(), Next::End);
        for at in
            text.bytes().enumerate().filter(|(_, byte)| b"\r\n".contains(byte)).map(|(n, _)| n)
        {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = b'X';
            assert!(all(&bytes).is_err(), "at {at}");
        }
    }
}
