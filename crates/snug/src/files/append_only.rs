//! The commands of an append-only file, one by one: whether each is whole, and where.

use std::io::{self, BufRead, Read};

/// More arguments, or bytes of one, than any command has.
const ARGUMENTS_MAX: u64 = 1 << 20;
const BYTES_MAX: u64 = 512 << 20;
/// Bytes of an argument that are kept: enough to tell commands apart.
const KEPT_BYTES: usize = 64;

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A command of this name, in capitals.
    Command(String),
    /// A time, in Unix seconds.
    Time(u64),
    /// The end.
    End,
}

/// Reads commands, and counts bytes.
pub(crate) struct Commands<R> {
    from: R,
    /// Bytes that were read.
    pub(crate) at: u64,
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl<R: BufRead> Commands<R> {
    pub(crate) fn new(from: R, at: u64) -> Self {
        Self { from, at }
    }

    /// A line without its end; none at the end of the file.
    fn line(&mut self) -> io::Result<Option<String>> {
        const LINE_MAX: u64 = 1024;
        let mut line = Vec::new();
        let read = (&mut self.from).take(LINE_MAX).read_until(b'\n', &mut line)?;
        self.at += read as u64;
        if read == 0 {
            return Ok(None);
        }
        let line = line.strip_suffix(b"\r\n").ok_or_else(|| wrong("a line has no end"))?;
        Ok(Some(String::from_utf8_lossy(line).into_owned()))
    }

    fn number(&mut self, sign: char, most: u64) -> io::Result<u64> {
        let line = self.line()?.ok_or_else(|| wrong("the end is missing"))?;
        let number = line.strip_prefix(sign).and_then(|digits| digits.parse().ok());
        number.filter(|&number| number <= most).ok_or_else(|| {
            wrong(format!("'{}' where a count after '{sign}' should be", line.escape_debug()))
        })
    }

    /// Passes over an argument; how it begins.
    fn argument(&mut self) -> io::Result<Vec<u8>> {
        let mut left = self.number('$', BYTES_MAX)?;
        let mut kept = Vec::new();
        while left > 0 {
            let some = self.from.fill_buf()?;
            if some.is_empty() {
                return Err(wrong("the end is missing"));
            }
            let count = some.len().min(left as usize);
            kept.extend_from_slice(&some[..count.min(KEPT_BYTES - kept.len().min(KEPT_BYTES))]);
            self.from.consume(count);
            self.at += count as u64;
            left -= count as u64;
        }
        match self.line()? {
            Some(line) if line.is_empty() => Ok(kept),
            _ => Err(wrong("an argument is not as long as it says")),
        }
    }

    /// Reads what comes next.
    pub(crate) fn next(&mut self) -> io::Result<Next> {
        let Some(begin) = self.from.fill_buf()?.first().copied() else { return Ok(Next::End) };
        if begin == b'#' {
            let line = self.line()?.unwrap_or_default();
            let time = line.strip_prefix("#TS:").and_then(|time| time.parse().ok());
            return Ok(Next::Time(time.ok_or_else(|| wrong("a note is no time"))?));
        }
        let count = self.number('*', ARGUMENTS_MAX)?;
        if count == 0 {
            return Err(wrong("a command has no name"));
        }
        let name = self.argument()?;
        for _ in 1..count {
            self.argument()?;
        }
        Ok(Next::Command(String::from_utf8_lossy(&name).to_ascii_uppercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_one_by_one_and_damage_where_it_is() {
        let text = b"#TS:5\r\n*2\r\n$3\r\nget\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nSE";
        let mut commands = Commands::new(&text[..], 0);
        assert_eq!(commands.next().unwrap(), Next::Time(5));
        assert_eq!(commands.next().unwrap(), Next::Command("GET".into()));
        assert_eq!(commands.next().unwrap(), Next::Command("PING".into()));
        let whole = commands.at;
        assert!(commands.next().is_err());
        assert_eq!(whole, 41);
        for bad in
            ["*1\r\n$3\r\nab\r\n", "*x\r\n", "*0\r\n", "$3\r\nabc\r\n", "*1\r\n$1\r\nabc\r\n"]
        {
            assert!(Commands::new(bad.as_bytes(), 0).next().is_err(), "{bad}");
        }
    }
}
