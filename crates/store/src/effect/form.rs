//! The form of an op: one Redis command, written argument by argument.

use super::commit::{Arg, Recorder};
use crate::types::string::NewStr;
use std::fmt::Display;
use std::io::Write;

/// Writes one command: its name first, then the key and whatever else belongs to it.
#[derive(Debug)]
pub struct Form<'r>(&'r mut Recorder);

impl<'r> Form<'r> {
    pub(super) fn new(recorder: &'r mut Recorder) -> Self {
        Self(recorder)
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
        self.0.bytes.extend_from_slice(bytes);
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
        // Writing to memory does not fail.
        let _ = write!(self.0.bytes, "{value}");
        self.ended()
    }

    /// A string value; a large one by reference.
    pub(crate) fn value(&mut self, value: &NewStr<'_>) -> &mut Self {
        match value {
            NewStr::Bytes(bytes) | NewStr::Text(bytes) | NewStr::Changed(bytes) => {
                self.bytes(bytes)
            }
            NewStr::Int(value) => self.integer(*value),
            NewStr::Chain(chain) => {
                self.0.args.push(Arg::Chain(self.0.chains.len()));
                self.0.chains.push(chain.clone());
                self
            }
        }
    }

    fn ended(&mut self) -> &mut Self {
        self.0.args.push(Arg::Bytes(self.0.bytes.len()));
        self
    }
}
