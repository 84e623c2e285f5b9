//! The configuration file, in Redis's format: a parameter a line, comments, and
//! other files that it includes.
//!
//! ```text
//! # a comment
//! maxmemory 4gb
//! requirepass "any bytes: \xff"
//! include conf.d/*.conf
//! ```

use super::idle::{of_later_servers, refusal};
use super::values::save_points;
use super::{Config, Kind, PARAMETERS, Param, Rename, UserLine, find};
use crate::text::glob;
use snug_resp::split_args;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

/// Where lines come from, as errors are to say it.
#[derive(Clone, Copy)]
pub(super) enum Source<'s> {
    File(&'s Path),
    StandardInput,
    /// Here the parameter's name says enough.
    CommandLine,
}

impl Source<'_> {
    /// The place of a line, in front of what is wrong with it.
    fn line(self, number: usize) -> String {
        match self {
            Self::File(file) => format!("{}, line {number}: ", file.display()),
            Self::StandardInput => format!("standard input, line {number}: "),
            Self::CommandLine => String::new(),
        }
    }
}

impl Config {
    /// Sets a parameter to the words that a line has behind its name.
    fn set_named(&self, name: &[u8], words: &[Vec<u8>]) -> Result<(), String> {
        let shown = String::from_utf8_lossy(name);
        let Some(id) = find(name) else {
            let later = of_later_servers(name).ok_or_else(|| unknown(&shown))?;
            self.passed_over.lock().push(later);
            return Ok(());
        };
        // A flag says otherwise, and flags win. `save` adds up, so it is read all the same.
        if id != Param::Save && self.given.contains(&id) {
            return Ok(());
        }
        let value = match words {
            // A switch alone is turned on.
            [] if matches!(id.declaration().kind, Kind::Bool) => b"yes".to_vec(),
            [value] => value.clone(),
            words if id.takes_words() => words.join(&b' '),
            _ => return Err(format!("'{shown}': wrong number of arguments")),
        };
        let context = |e: String| {
            let value = String::from_utf8_lossy(&value);
            format!("'{shown} {}': {e}", if id.is_secret() { "(hidden)" } else { &value })
        };
        match words {
            // The first line takes the place of the default, each other adds to those
            // before it, and one without a value adds nothing. Only an empty value takes
            // them all back.
            words if id == Param::Save && *words != [b""] => {
                let points = save_points(&String::from_utf8_lossy(&value)).map_err(context)?;
                let is_first = !self.save_is_given.swap(true, Relaxed);
                let before = if is_first { String::new() } else { self.text(id) };
                self.set(id, format!("{before} {points}").trim_ascii().as_bytes())
            }
            _ if id == Param::Save => {
                self.save_is_given.store(true, Relaxed);
                self.set(id, &value).map_err(context)
            }
            _ => self.set(id, &value).map_err(context),
        }
    }

    /// Reads a configuration file, and those it includes where it does so.
    pub(super) fn read_file(&mut self, file: &Path, depth: usize) -> Result<(), String> {
        let shown = file.display();
        if depth > INCLUDE_DEPTH_MAX {
            return Err(format!("'{shown}': included too deep"));
        }
        let text =
            std::fs::read(file).map_err(|e| format!("can't open config file '{shown}': {e}"))?;
        self.read_lines(&text, Source::File(file), depth)
    }

    /// Reads the lines of a configuration file.
    pub(super) fn read_lines(
        &mut self,
        text: &[u8],
        source: Source<'_>,
        depth: usize,
    ) -> Result<(), String> {
        for (number, line) in text.split(|&b| b == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let context = |e: String| source.line(number + 1) + &e;
            let words = split_args(line).ok_or_else(|| {
                let name = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
                context(format!("'{}': unbalanced quotes", String::from_utf8_lossy(name)))
            })?;
            let Some((name, values)) = words.split_first() else { continue };
            if name.eq_ignore_ascii_case(b"include") {
                for included in values.iter().flat_map(|pattern| files(pattern)) {
                    self.read_file(&included, depth + 1).map_err(context)?;
                }
            } else if name.eq_ignore_ascii_case(b"rename-command") {
                let [from, to] = values else {
                    return Err(context("'rename-command': wrong number of arguments".into()));
                };
                let (from, to) = (from.clone(), to.clone());
                self.renames.push(Rename { from, to, place: context(String::new()) });
            } else if name.eq_ignore_ascii_case(b"user") {
                let [name, rules @ ..] = values else {
                    return Err(context("'user': wrong number of arguments".into()));
                };
                if self.users.iter().any(|known| known.name == *name) {
                    let name = String::from_utf8_lossy(name);
                    return Err(context(format!(
                        "'user {name}': Duplicate user found. A user can only be defined once in config files"
                    )));
                }
                let (name, rules) = (name.clone(), rules.to_vec());
                self.users.push(UserLine { name, rules, place: context(String::new()) });
            } else {
                self.set_named(name, values).map_err(context)?;
            }
        }
        Ok(())
    }
}

/// What to say of a name that no parameter has.
fn unknown(name: &str) -> String {
    let bare = name.trim_start_matches('-').to_ascii_lowercase();
    if let Some(why) = refusal(&bare) {
        return format!("'{name}': {why}");
    }
    match meant(&bare) {
        Some(known) => format!(
            "unknown parameter '{name}': is '{known}' meant? (snug serve --help-all lists all)"
        ),
        None => format!("unknown parameter '{name}' (snug serve --help-all lists all)"),
    }
}

/// The parameter that somebody may have meant who wrote this, in lower case.
pub(super) fn meant(name: &str) -> Option<&'static str> {
    let other = match name {
        "p" => Some("port"),
        "h" | "host" => Some("bind"),
        "a" | "password" => Some("requirepass"),
        "d" => Some("daemonize"),
        "primaryauth" => Some("masterauth"),
        "primaryuser" => Some("masteruser"),
        _ => None,
    };
    // A slip of the finger, the beginning of it, or much the same letters.
    let likeness = |known: &str| {
        if strsim::damerau_levenshtein(known, name) == 1 {
            return 1.0;
        }
        match known.strip_prefix(name) {
            Some(_) if name.len() >= 2 => 0.9 - known.len() as f64 / 1000.0,
            _ => strsim::jaro_winkler(known, name) - 0.1,
        }
    };
    let names = PARAMETERS.iter().map(|declaration| declaration.name);
    let like = names.map(|known| (likeness(known), known)).max_by(|a, b| a.0.total_cmp(&b.0));
    other.or(like.filter(|(likeness, _)| *likeness > 0.75).map(|(_, known)| known))
}

/// A word as a line of the file has it, in quotes and readable.
pub(super) fn quoted(word: &[u8]) -> Vec<u8> {
    let mut text = vec![b'"'];
    for &byte in word {
        match byte {
            b'"' | b'\\' => text.extend([b'\\', byte]),
            b' '..=b'~' => text.push(byte),
            _ => text.extend(format!("\\x{byte:02x}").bytes()),
        }
    }
    text.push(b'"');
    text
}

/// How deep configuration files may include each other.
const INCLUDE_DEPTH_MAX: usize = 16;

/// The files that an `include` names: one, there or not, or those that fit a
/// pattern, in the order of their names, which may be none.
fn files(pattern: &[u8]) -> Vec<PathBuf> {
    let is_pattern = |text: &[u8]| text.iter().any(|byte| b"*?[".contains(byte));
    if !is_pattern(pattern) {
        return vec![OsStr::from_bytes(pattern).into()];
    }
    let mut found: Vec<Vec<u8>> = vec![if pattern[0] == b'/' { b"/".into() } else { Vec::new() }];
    for part in pattern.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
        let mut deeper = Vec::new();
        for folder in found {
            let within = |name: &[u8]| [&folder, name, b"/"].concat();
            if !is_pattern(part) {
                deeper.push(within(part));
                continue;
            }
            let here: &[u8] = if folder.is_empty() { b"." } else { &folder };
            let entries = std::fs::read_dir(OsStr::from_bytes(here));
            let names = entries.into_iter().flatten().flatten();
            let names = names.map(|entry| entry.file_name().into_vec());
            // A name that begins with a dot is hidden from a pattern that does not.
            let fits = |name: &Vec<u8>| {
                (!name.starts_with(b".") || part.starts_with(b"."))
                    && glob::matches(part, name, false)
            };
            deeper.extend(names.filter(fits).map(|name| within(&name)));
        }
        found = deeper;
    }
    found.sort();
    let files = found.into_iter().map(|mut path| {
        path.pop();
        PathBuf::from(OsString::from_vec(path))
    });
    files.filter(|path| path.exists()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_mistypes_a_name_is_told_which_was_meant() {
        for (typed, meant) in [
            ("prot", "port"),
            ("-p", "port"),
            ("maxmemmory", "maxmemory"),
            ("tls-cert", "tls-cert-file"),
            ("append-only", "appendonly"),
        ] {
            assert!(unknown(typed).contains(&format!("is '{meant}' meant?")), "{typed}");
        }
        assert!(!unknown("xyzzy").contains("meant"));
    }

    #[test]
    fn a_line_that_asks_for_what_is_not_there_is_told_why() {
        assert!(unknown("loadmodule").contains("modules cannot be loaded"));
    }

    #[test]
    fn what_later_servers_have_is_passed_over() {
        let config = Config::default();
        config.set_named(b"locale-collate", &[b"".to_vec()]).unwrap();
        config.set_named(b"Availability-Zone", &[b"a".to_vec()]).unwrap();
        assert_eq!(*config.passed_over.lock(), ["locale-collate", "availability-zone"]);
    }
}
