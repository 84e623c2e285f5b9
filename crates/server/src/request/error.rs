//! What a client is told when a command fails: Redis's exact words.

use crate::request::args::Args;
use std::borrow::Cow;
use std::fmt;

/// An error reply, its code first: `ERR syntax error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error(Cow<'static, [u8]>);

impl Error {
    pub(crate) const WRONG_TYPE: Self =
        Self::new("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(crate) const SYNTAX: Self = Self::new("ERR syntax error");
    pub(crate) const NOT_INTEGER: Self = Self::new("ERR value is not an integer or out of range");
    pub(crate) const NOT_FLOAT: Self = Self::new("ERR value is not a valid float");
    pub(crate) const DAMAGED_BLOCK: Self = Self::new("ERR a packed block of the stream is damaged");
    pub(crate) const NO_SUCH_KEY: Self = Self::new("ERR no such key");
    pub(crate) const TOO_LONG: Self =
        Self::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    pub(crate) const OOM: Self =
        Self::new("OOM command not allowed when used memory > 'maxmemory'.");
    pub(crate) const CROSS_SLOT: Self =
        Self::new("CROSSSLOT Keys in request don't hash to the same slot");
    /// A command about a connection comes from somebody without one.
    pub(crate) const NO_CLIENT: Self =
        Self::new("ERR this command is for clients with a connection");
    pub(crate) const NO_AUTH: Self = Self::new("NOAUTH Authentication required.");

    pub(crate) const fn new(text: &'static str) -> Self {
        Self(Cow::Borrowed(text.as_bytes()))
    }

    pub(crate) fn wrong_arity(full_name: &str) -> Self {
        Self::from(format!("ERR wrong number of arguments for '{full_name}' command"))
    }

    /// For a subcommand that exists, with arguments that do not fit it.
    pub(crate) fn wrong_subcommand(args: Args<'_>, container: &str) -> Self {
        let name = args.get(1).unwrap_or_default();
        let shown = String::from_utf8_lossy(&name[..name.len().min(128)]);
        Self::from(format!(
            "ERR unknown subcommand or wrong number of arguments for '{shown}'. Try {container} HELP."
        ))
    }

    /// The text of the reply, code included. Bytes, for it may quote what the
    /// client sent.
    pub(crate) fn text(&self) -> &[u8] {
        &self.0
    }

    /// The code: its first word.
    pub(crate) fn code(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.0.split(|&b| b == b' ').next().unwrap_or(b"ERR"))
    }
}

impl From<snug_store::Damaged> for Error {
    fn from(damaged: snug_store::Damaged) -> Self {
        Self::from(format!("ERR {damaged}"))
    }
}

impl From<snug_store::Unreadable> for Error {
    fn from(why: snug_store::Unreadable) -> Self {
        match why {
            snug_store::Unreadable::Value(damaged) => damaged.into(),
            snug_store::Unreadable::Stream(error) => error.into(),
            snug_store::Unreadable::Lost(lost) => Self::from(format!("ERR {lost}")),
        }
    }
}

impl From<String> for Error {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text.into_bytes()))
    }
}

impl From<Vec<u8>> for Error {
    fn from(text: Vec<u8>) -> Self {
        Self(Cow::Owned(text))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}
