//! The form of an op: one Redis command, written argument by argument, in the bytes of the
//! protocol.

use super::commit::Recorder;
use crate::types::string::NewStr;
use snug_codec::Segments;
use std::fmt::Display;
use std::io::Write;

/// Below this, a chain's bytes are copied as any others are.
const SHARED_FROM: usize = 64 * 1024;

/// Writes one command: its name first, then the key and whatever else belongs to it.
#[derive(Debug)]
pub struct Form<'r> {
    to: &'r mut Recorder,
    /// Where the command begins.
    at: usize,
    args: usize,
}

impl<'r> Form<'r> {
    pub(super) fn new(to: &'r mut Recorder) -> Self {
        let at = to.bytes.len();
        // How many arguments there are is known at the end; most often one digit says it.
        to.bytes.extend_from_slice(b"*0\r\n");
        Self { to, at, args: 0 }
    }

    /// All arguments are there.
    pub(super) fn end(self) {
        let digit = self.at + 1;
        if self.args < 10 {
            self.to.bytes[digit] += self.args as u8;
            return;
        }
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(self.args).as_bytes();
        self.to.bytes.splice(digit..=digit, digits.iter().copied());
        for (at, _) in self.to.shared.iter_mut().rev().take_while(|(at, _)| *at > digit) {
            *at += digits.len() - 1;
        }
    }

    /// The command's name, or its container's.
    pub(crate) fn command(&mut self, name: &str) -> &mut Self {
        self.bytes(name.as_bytes())
    }

    /// A word of its syntax.
    pub(crate) fn word(&mut self, word: &str) -> &mut Self {
        self.bytes(word.as_bytes())
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.to.bytes.reserve(bytes.len() + HEAD_MAX);
        self.head(bytes.len());
        self.to.bytes.extend_from_slice(bytes);
        self.ended()
    }

    pub(crate) fn integer(&mut self, value: i64) -> &mut Self {
        self.bytes(itoa::Buffer::new().format(value).as_bytes())
    }

    pub(crate) fn number(&mut self, value: u64) -> &mut Self {
        self.bytes(itoa::Buffer::new().format(value).as_bytes())
    }

    /// Whatever has a text: an ID.
    pub(crate) fn display(&mut self, value: impl Display) -> &mut Self {
        let at = self.to.bytes.len();
        // Writing to memory does not fail.
        let _ = write!(self.to.bytes, "{value}");
        let text = self.to.bytes.split_off(at);
        self.bytes(&text)
    }

    /// A string value; a large one by reference.
    pub(crate) fn value(&mut self, value: &NewStr<'_>) -> &mut Self {
        match value {
            NewStr::Bytes(bytes) | NewStr::Text(bytes) | NewStr::Changed(bytes) => {
                self.bytes(bytes)
            }
            NewStr::Int(value) => self.integer(*value),
            NewStr::Chain(chain) => self.chain(chain),
        }
    }

    fn chain(&mut self, chain: &Segments) -> &mut Self {
        self.head(chain.len());
        if chain.len() < SHARED_FROM {
            chain.parts().iter().for_each(|part| self.to.bytes.extend_from_slice(part));
        } else {
            self.to.shared.push((self.to.bytes.len(), chain.clone()));
        }
        self.ended()
    }

    /// What stands before an argument of so many bytes.
    #[inline]
    fn head(&mut self, len: usize) {
        let digit = |n: usize| b'0' + n as u8;
        let bytes = &mut self.to.bytes;
        match len {
            0..10 => bytes.extend_from_slice(&[b'$', digit(len), b'\r', b'\n']),
            10..100 => {
                bytes.extend_from_slice(&[b'$', digit(len / 10), digit(len % 10), b'\r', b'\n']);
            }
            100..1000 => {
                let (hundreds, rest) = (len / 100, len % 100);
                let (tens, ones) = (digit(rest / 10), digit(rest % 10));
                bytes.extend_from_slice(&[b'$', digit(hundreds), tens, ones, b'\r', b'\n']);
            }
            _ => {
                bytes.push(b'$');
                bytes.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
                bytes.extend_from_slice(b"\r\n");
            }
        }
    }

    #[inline]
    fn ended(&mut self) -> &mut Self {
        self.to.bytes.extend_from_slice(b"\r\n");
        self.args += 1;
        self
    }
}

/// The most that stands before and behind an argument's bytes.
const HEAD_MAX: usize = 26;
