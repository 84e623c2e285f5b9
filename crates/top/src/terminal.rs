//! The terminal as long as it is ours: keys come at once and are not echoed, and what is
//! drawn lies on a screen of its own. When this is dropped, by an error or a panic too,
//! all is as it was.
//!
//! Signals stay with the terminal, so Ctrl-C is one like any other. A read of keys waits
//! for a tenth of a second at most.

use std::io::{self, Write as _};

use rustix::stdio::{stdin, stdout};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// A terminal that does not tell its size.
const SIZE: (usize, usize) = (80, 24);
/// Tenths of a second.
const WAIT: u8 = 1;

/// How a line looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Look {
    #[default]
    Plain,
    Bold,
    Dim,
    Bad,
}

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Quit,
    Sort,
    Up,
    Down,
}

#[derive(Debug)]
pub(crate) struct Terminal {
    before: Termios,
}

impl Terminal {
    pub(crate) fn enter() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut modes = before.clone();
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        modes.special_codes[SpecialCodeIndex::VMIN] = 0;
        modes.special_codes[SpecialCodeIndex::VTIME] = WAIT;
        // Who is stopped would leave the screen as it is.
        modes.special_codes[SpecialCodeIndex::VSUSP] = 0;
        tcsetattr(stdin(), OptionalActions::Now, &modes)?;
        let terminal = Self { before };
        write(ENTER)?;
        Ok(terminal)
    }

    /// Columns and rows.
    pub(crate) fn size() -> (usize, usize) {
        match tcgetwinsize(stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (size.ws_col.into(), size.ws_row.into())
            }
            _ => SIZE,
        }
    }

    /// Draws lines that fit.
    pub(crate) fn draw(lines: &[(String, Look)]) -> io::Result<()> {
        let mut text = String::from("\x1b[H");
        for (at, (line, look)) in lines.iter().enumerate() {
            text.push_str(match look {
                Look::Plain => "",
                Look::Bold => "\x1b[1m",
                Look::Dim => "\x1b[2m",
                Look::Bad => "\x1b[1;31m",
            });
            text.push_str(line);
            text.push_str("\x1b[0m\x1b[K");
            text.push_str(if at + 1 < lines.len() { "\r\n" } else { "\x1b[J" });
        }
        write(&text)
    }

    /// A key, if one is pressed in the next tenth of a second.
    pub(crate) fn key() -> io::Result<Option<Key>> {
        let mut bytes = [0; 32];
        match rustix::io::read(stdin(), &mut bytes) {
            Ok(read) => Ok(key_of(&bytes[..read])),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Nobody could be told of a failure.
        let _ = write(LEAVE);
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.before);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn key_of(bytes: &[u8]) -> Option<Key> {
    match bytes {
        [b'q' | b'Q', ..] | [0x1b] => Some(Key::Quit),
        [b's' | b'S', ..] => Some(Key::Sort),
        [b'k', ..] | [0x1b, b'[' | b'O', b'A', ..] => Some(Key::Up),
        [b'j', ..] | [0x1b, b'[' | b'O', b'B', ..] => Some(Key::Down),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_understood() {
        let keys = [&b"q"[..], b"\x1b", b"s", b"\x1b[A", b"\x1bOB", b"x", b""].map(key_of);
        let expected = [Key::Quit, Key::Quit, Key::Sort, Key::Up, Key::Down].map(Some);
        assert_eq!(keys[..5], expected);
        assert_eq!(keys[5..], [None, None]);
    }
}
