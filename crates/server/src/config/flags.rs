//! The command line.

use super::{Config, Param, find};
use std::io::Read as _;

impl Config {
    /// Reads flags as `redis-server` takes them: an optional configuration
    /// file, then `--name value ...` pairs; a `-` before or behind all of them
    /// has more of the file read from standard input. The error is one line for
    /// a person.
    pub(crate) fn from_flags(flags: &[String]) -> Result<Self, String> {
        let mut config = Self::default();
        let (mut flags, mut input) = (flags, false);
        if let [rest @ .., last] = flags
            && last == "-"
        {
            (flags, input) = (rest, true);
        }
        if let [first, rest @ ..] = flags
            && first == "-"
        {
            (flags, input) = (rest, true);
        }
        if let Some((file, rest)) =
            flags.split_first().filter(|(first, _)| !first.starts_with("--"))
        {
            config.read_file(file, 0)?;
            // The server changes into `dir`, where a relative name means another file.
            let absolute = std::path::absolute(file);
            config.file =
                Some(absolute.map_err(|e| format!("can't open config file '{file}': {e}"))?);
            flags = rest;
        }
        if input {
            let mut text = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut text);
            read.map_err(|e| format!("can't read standard input: {e}"))?;
            config.read_lines(&text, "standard input", 0)?;
        }
        let mut at = 0;
        while at < flags.len() {
            let Some(name) = flags[at].strip_prefix("--") else {
                return Err(format!("'{}' is not a parameter: they begin with --", flags[at]));
            };
            let values = flags[at + 1..].iter().take_while(|word| !word.starts_with("--"));
            let values: Vec<&str> = values.map(String::as_str).collect();
            // `--save` alone is an empty one.
            let missing = values.is_empty() && find(name.as_bytes()) != Some(Param::Save);
            config.set_named(name, &values.join(" "), missing)?;
            at += 1 + values.len();
        }
        Ok(config)
    }
}
