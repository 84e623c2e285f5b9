//! The command line, as `redis-server` takes it: an optional configuration file, then
//! parameters. `-` as the first or the last argument has more of the file read from
//! standard input.
//!
//! The arguments become lines of a configuration file, which are read behind those
//! of the file. An argument that begins with `--` begins a line, unless the one before
//! it is a name that still needs its value: `--port 6380`, `"--port 6380"` as one
//! argument and `--requirepass --secret` all do what they seem to. What stands before
//! the first `--` is a line too: `snug serve FILE port 6380`.

use super::file::{Source, quoted};
use super::{Config, Kind, Param, find};
use snug_resp::split_args;
use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl Config {
    /// Reads flags. The error is one line for a person.
    pub(crate) fn from_flags(flags: &[OsString]) -> Result<Self, String> {
        let mut config = Self::default();
        let arguments: Vec<&[u8]> = flags.iter().map(|flag| flag.as_bytes()).collect();
        let file = flags.first().filter(|first| !first.as_bytes().starts_with(b"-"));
        let (lines, input) = lines(&arguments, usize::from(file.is_some()));
        config.given = named_in(&lines);
        if let Some(file) = file {
            config.read_file(Path::new(file), 0)?;
            // The server changes into `dir`, where a relative name means another file.
            let absolute = std::path::absolute(file);
            config.file = Some(absolute.map_err(|e| {
                format!("can't open config file '{}': {e}", Path::new(file).display())
            })?);
        }
        config.from_input = input;
        if input {
            let mut text = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut text);
            read.map_err(|e| format!("can't read standard input: {e}"))?;
            config.read_lines(&text, Source::StandardInput, 0)?;
        }
        config.given.clear();
        config.read_lines(&lines, Source::CommandLine, 0)?;
        Ok(config)
    }
}

/// The parameters that lines set.
fn named_in(lines: &[u8]) -> Vec<Param> {
    let names = lines.split(|&byte| byte == b'\n').filter_map(split_args);
    names.filter_map(|words| find(words.first()?)).collect()
}

/// The arguments from the one at `from` on as lines of a configuration file, and
/// whether standard input is to be read before them.
fn lines(arguments: &[&[u8]], from: usize) -> (Vec<u8>, bool) {
    let (mut lines, mut input) = (Vec::new(), false);
    // Whether the argument before this one is a name without its value.
    let mut needs_value = false;
    for (at, argument) in arguments.iter().enumerate().skip(from) {
        let next = arguments.get(at + 1);
        if *argument == b"-" && (at == 0 || next.is_none()) {
            input = true;
            continue;
        }
        let name = argument.strip_prefix(b"--").filter(|_| !needs_value);
        let Some(name) = name else {
            lines.extend(quoted(argument));
            lines.push(b' ');
            needs_value = false;
            continue;
        };
        if !lines.is_empty() {
            lines.push(b'\n');
        }
        lines.extend(name);
        lines.push(b' ');
        needs_value = split_args(argument).is_some_and(|words| words.len() == 1);
        if needs_value && next.is_none_or(|next| next.starts_with(b"--")) {
            match find(name) {
                // Alone it is an empty one.
                Some(Param::Save) => {
                    lines.extend(b"\"\"");
                    needs_value = false;
                }
                // A switch alone is turned on.
                Some(id) if matches!(id.declaration().kind, Kind::Bool) => needs_value = false,
                _ => {}
            }
        }
    }
    (lines, input)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_lines() {
        for (arguments, wanted, reads_input) in [
            (&["--port", "6380"][..], "port \"6380\" ", false),
            (&["--port 6380", "--hz", "5"], "port 6380 \nhz \"5\" ", false),
            (&["port", "6380", "--hz", "5"], "\"port\" \"6380\" \nhz \"5\" ", false),
            (&["--requirepass", "--x y", "--hz", "5"], "requirepass \"--x y\" \nhz \"5\" ", false),
            (&["--save", "--hz", "5"], "save \"\"\nhz \"5\" ", false),
            (&["--hz", "5", "--save"], "hz \"5\" \nsave \"\"", false),
            (&["--pack", "--hz", "5"], "pack \nhz \"5\" ", false),
            (&["--bind", "::1", "-::2"], "bind \"::1\" \"-::2\" ", false),
            (&["-", "--hz", "5"], "hz \"5\" ", true),
            (&["--hz", "5", "-"], "hz \"5\" ", true),
            (&["--logfile", "-", "--hz", "5"], "logfile \"-\" \nhz \"5\" ", false),
        ] {
            let bytes: Vec<&[u8]> = arguments.iter().map(|text| text.as_bytes()).collect();
            let (lines, input) = lines(&bytes, 0);
            assert_eq!((&*String::from_utf8_lossy(&lines), input), (wanted, reads_input));
        }
    }
}
