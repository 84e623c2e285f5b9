//! The manifest of an append-only file: which files it is made of, in Redis 7's form.
//!
//! ```text
//!  file appendonly.aof.2.base.rdb seq 2 type b          the base: at most one
//!  file appendonly.aof.4.incr.aof seq 4 type i          increments, ascending
//!  file appendonly.aof.5.incr.aof seq 5 type i
//!  file appendonly.aof.1.base.rdb seq 1 type h          history: of no use, to be removed
//! ```
//!
//! It is written anew beside the old one, synced and renamed: whoever reads it finds one
//! of the two.

use std::fmt::Write as _;

/// One file of an append-only file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name, in the folder of all of them.
    pub name: String,
    /// Its number among those of its kind.
    pub number: u64,
}

/// What an append-only file is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// What there was at a moment.
    pub base: Option<Part>,
    /// What was changed since, ascending.
    pub increments: Vec<Part>,
    /// What is of no use, to be removed.
    pub history: Vec<Part>,
}

/// Names for new parts of an append-only file. None is given twice: a manifest that could
/// not be put may be on disk all the same, and what it names then counts.
#[derive(Clone, Debug)]
pub struct Names {
    file: String,
    last_base: u64,
    last_increment: u64,
}

impl Names {
    /// Names behind those of a manifest, of an append-only file of that name. History counts
    /// with both kinds: its files are going to be removed.
    pub fn behind(manifest: &Manifest, file: &str) -> Self {
        let history = manifest.history.iter().map(|part| part.number).max().unwrap_or(0);
        let last = |part: Option<&Part>| part.map_or(0, |part| part.number).max(history);
        Self {
            file: file.to_owned(),
            last_base: last(manifest.base.as_ref()),
            last_increment: last(manifest.increments.last()),
        }
    }

    /// The next base, in a format whose files' names end so.
    pub fn base(&mut self, form: &str) -> Part {
        self.last_base += 1;
        let number = self.last_base;
        Part { name: format!("{}.{number}.base.{form}", self.file), number }
    }

    /// The next increment.
    pub fn increment(&mut self) -> Part {
        self.last_increment += 1;
        let number = self.last_increment;
        Part { name: format!("{}.{number}.incr.aof", self.file), number }
    }
}

/// The greatest number that a part may have: there are always more behind it.
const NUMBER_MAX: u64 = i64::MAX as u64;

/// Why a manifest is not one, and in which of its lines.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the manifest: {why}")]
pub struct BadManifest {
    line: usize,
    why: &'static str,
}

impl Manifest {
    /// Reads a manifest's text.
    pub fn parse(text: &str) -> Result<Self, BadManifest> {
        let mut manifest = Self::default();
        for (n, line) in text.lines().enumerate() {
            let bad = |why| BadManifest { line: n + 1, why };
            if line.starts_with('#') {
                continue;
            }
            let words = words(line).ok_or(bad("a quote is not closed, or a name is no text"))?;
            let (mut name, mut number, mut kind) = (None, None, None);
            if words.is_empty() || !words.len().is_multiple_of(2) {
                return Err(bad("it is not made of names and values"));
            }
            for pair in words.chunks(2) {
                match pair[0].to_ascii_lowercase().as_str() {
                    "file" => name = Some(pair[1].clone()),
                    "seq" => number = pair[1].parse().ok().filter(|n| (1..=NUMBER_MAX).contains(n)),
                    "type" => kind = Some(pair[1].clone()),
                    _ => {}
                }
            }
            let name = name.ok_or(bad("it names no file"))?;
            if name.contains(['/', '\0']) || matches!(&name[..], "" | "." | "..") {
                return Err(bad("a file's name is a path"));
            }
            let part = Part { name, number: number.ok_or(bad("it has no number"))? };
            let last = manifest.increments.last().map_or(0, |part| part.number);
            match kind.as_deref() {
                Some("b") if manifest.base.is_some() => return Err(bad("it is a second base")),
                Some("b") => manifest.base = Some(part),
                Some("i") if part.number <= last => return Err(bad("increments do not ascend")),
                Some("i") => manifest.increments.push(part),
                Some("h") => manifest.history.push(part),
                _ => return Err(bad("it is of no known type")),
            }
        }
        if manifest == Self::default() {
            return Err(BadManifest { line: 1, why: "it is empty" });
        }
        Ok(manifest)
    }

    /// Its text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |part: &Part, kind| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "file {} seq {} type {kind}", quoted(&part.name), part.number);
        };
        self.base.iter().for_each(|part| line(part, 'b'));
        self.history.iter().for_each(|part| line(part, 'h'));
        self.increments.iter().for_each(|part| line(part, 'i'));
        text
    }

    /// Puts a base in the place of the one there was, and of all increments but the last
    /// `kept`: they become history.
    pub fn rebase(&mut self, base: Part, kept: usize) {
        self.history.extend(self.base.replace(base));
        let old = self.increments.len().saturating_sub(kept);
        self.history.extend(self.increments.drain(..old));
    }
}

/// The words of a line, some of which may stand in quotes. In double quotes a backslash
/// gives what follows it another meaning, as in Redis: `\n`, `\x41`, `\"`.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = line.trim().as_bytes();
    while let Some(&first) = rest.first() {
        let quote = Some(first).filter(|first| matches!(first, b'"' | b'\''));
        let mut word = Vec::new();
        rest = if quote.is_some() { &rest[1..] } else { rest };
        loop {
            match (quote, rest) {
                (None, []) => break,
                (None, [byte, ..]) if byte.is_ascii_whitespace() => break,
                (Some(_), []) => return None,
                (Some(quote), [byte, behind @ ..]) if *byte == quote => {
                    rest = behind;
                    // A word ends with its quote.
                    if behind.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
                        return None;
                    }
                    break;
                }
                (Some(b'"'), [b'\\', b'x', high, low, behind @ ..])
                    if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
                {
                    let digit = |byte: &u8| (*byte as char).to_digit(16).unwrap_or(0) as u8;
                    word.push(digit(high) << 4 | digit(low));
                    rest = behind;
                }
                (Some(b'"'), [b'\\', byte, behind @ ..]) => {
                    word.push(match byte {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'b' => 8,
                        b'a' => 7,
                        byte => *byte,
                    });
                    rest = behind;
                }
                (Some(b'\''), [b'\\', b'\'', behind @ ..]) => {
                    word.push(b'\'');
                    rest = behind;
                }
                (_, [byte, behind @ ..]) => {
                    word.push(*byte);
                    rest = behind;
                }
            }
        }
        words.push(String::from_utf8(word).ok()?);
        rest = rest.trim_ascii_start();
    }
    Some(words)
}

/// A name, in quotes if it needs them.
fn quoted(name: &str) -> String {
    let is_plain = |byte: u8| !byte.is_ascii_whitespace() && !byte.is_ascii_control();
    let needs = |byte: u8| !is_plain(byte) || matches!(byte, b'"' | b'\'' | b'\\');
    // What `trim` takes away is more than what separates words.
    if !name.bytes().any(needs) && name.trim() == name {
        return name.to_owned();
    }
    let mut text = String::from("\"");
    for c in name.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            // Only these would end the line, or be cut off at its end.
            c if c.is_ascii_control() => _ = write!(text, "\\x{:02x}", c as u32),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let mut manifest = Manifest::default();
        let mut names = Names::behind(&manifest, "my file.aof");
        manifest.increments.push(names.increment());
        manifest.rebase(names.base("rdb"), 1);
        manifest.increments.push(names.increment());
        manifest.rebase(names.base("aof"), 1);
        let text = "file \"my file.aof.2.base.aof\" seq 2 type b\n\
                    file \"my file.aof.1.base.rdb\" seq 1 type h\n\
                    file \"my file.aof.1.incr.aof\" seq 1 type h\n\
                    file \"my file.aof.2.incr.aof\" seq 2 type i\n";
        assert_eq!(manifest.text(), text);
        assert_eq!(Manifest::parse(text), Ok(manifest));
    }

    /// History is removed: what had the name of one of its files would go with it.
    #[test]
    fn a_new_name_is_not_one_of_history() {
        let text = "file a.1 seq 1 type b\nfile a.2.base.rdb seq 2 type h\n\
                    file a.4.incr.aof seq 4 type h\nfile a.3.incr.aof seq 3 type i\n";
        let mut names = Names::behind(&Manifest::parse(text).unwrap(), "a");
        assert_eq!((names.base("rdb").number, names.increment().number), (5, 5));
        assert_eq!((names.base("rdb").number, names.increment().number), (6, 6));
    }

    #[test]
    fn names_in_quotes_are_read_as_redis_writes_them() {
        let text = "file \"\\xd0\\xb4 \\\"a\\\\.aof\" seq 1 type b\nfile 'b \\' c' seq 1 type i\n";
        let manifest = Manifest::parse(text).unwrap();
        assert_eq!(manifest.base.as_ref().unwrap().name, "д \"a\\.aof");
        assert_eq!(manifest.increments[0].name, "b ' c");
        assert_eq!(Manifest::parse(&manifest.text()), Ok(manifest));
    }

    /// Every byte of a manifest is changed in each of its bits, and it is cut everywhere:
    /// an error that names a line, or a manifest that is written as it was read.
    #[test]
    fn damage_is_an_error_or_another_manifest() {
        let text =
            "file \"a b.2.base.rdb\" seq 2 type b\nfile a.1 seq 1 type h\nfile a.3 seq 3 type i\n";
        let damaged = (0..text.len()).flat_map(|at| {
            let flip = move |bit: u32| {
                let mut bytes = text.as_bytes().to_vec();
                bytes[at] ^= 1 << bit;
                bytes
            };
            (0..8).map(flip).chain([text.as_bytes()[..at].to_vec()])
        });
        for bytes in damaged {
            let Ok(text) = std::str::from_utf8(&bytes) else { continue };
            match Manifest::parse(text) {
                Ok(manifest) => assert_eq!(Manifest::parse(&manifest.text()), Ok(manifest)),
                Err(bad) => assert!(bad.to_string().starts_with("line ")),
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, why) in [
            ("", "empty"),
            ("file a seq 1 type b\nfile b seq 2 type b", "line 2 of the manifest: it is a second"),
            ("file a seq 2 type i\nfile b seq 2 type i", "ascend"),
            ("file ../a seq 1 type b", "path"),
            ("file a seq 0 type b", "number"),
            ("file a seq 9223372036854775808 type b", "number"),
            ("file a seq 1 type x", "type"),
            ("file \"a seq 1 type b", "quote"),
            ("file a seq", "names and values"),
            ("file \"\" seq 1 type b", "path"),
            ("file \"\\xff\" seq 1 type b", "no text"),
            ("file \"a\"b seq 1 type b", "quote"),
        ] {
            let told = Manifest::parse(text).unwrap_err().to_string();
            assert!(told.contains(why), "{told}");
        }
    }
}
