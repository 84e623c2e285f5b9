//! `CONFIG REWRITE`: the values in force, written into the configuration file.
//!
//! The file is bytes. What is understood of it is brought up to date, everything else
//! stays as it is, to the byte. The new file is written beside the old one, under a
//! name that nobody else has, brought to disk, and put in the old one's place in one
//! step: whatever happens, the file is the old one or the new one.

use super::file::quoted;
use super::{Config, Param, find};
use crate::outside::chance;
use rand::RngExt as _;
use snug_resp::split_args;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

impl Config {
    /// Whether a parameter need not stand in the configuration file: it has its
    /// default, or what another file says.
    fn goes_without_saying(&self, id: Param) -> bool {
        match id {
            Param::PackPolicy if self.policy_of_file.read().is_some() => self.policy_is_of_file(),
            _ => self.bytes(id) == Self::default().bytes(id),
        }
    }

    /// Writes the values in force into the configuration file: lines that
    /// name a parameter are brought up to date, everything else stays as it
    /// is, and what differs from its default is added at the end. The file is
    /// replaced in one step or not at all.
    /// Users stand in lines of their own, which all are replaced by these.
    pub(crate) fn rewrite(&self, file: &Path, users: &[Vec<u8>]) -> io::Result<()> {
        let _one_at_a_time = self.rewriting.lock();
        let old = match std::fs::read(file) {
            Ok(old) => old,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        replace(file, &self.rewritten(&old, users))
    }

    /// The text of the configuration file, brought up to date.
    fn rewritten(&self, old: &[u8], users: &[Vec<u8>]) -> Vec<u8> {
        let mut written = Vec::new();
        let mut users = Some(users);
        let mut new = Vec::new();
        for line in old.split_inclusive(|&byte| byte == b'\n') {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            if is_user(line) {
                // Where the first of them stood.
                users.take().into_iter().flatten().for_each(|user| add_line(&mut new, user));
                continue;
            }
            match named_by(line) {
                Some(id) if written.contains(&id) => continue,
                // Another file says it, and may say something else by and by.
                Some(Param::PackPolicy) if self.policy_is_of_file() => continue,
                // Redis takes no line that names nobody.
                Some(Param::Replicaof) if self.bytes(Param::Replicaof).is_empty() => continue,
                Some(id) => {
                    written.push(id);
                    new.extend(self.line(id));
                }
                None => new.extend(line),
            }
            new.push(b'\n');
        }
        for id in Param::all().filter(|id| !written.contains(id)) {
            if !self.goes_without_saying(id) {
                new.extend(self.line(id));
                new.push(b'\n');
            }
        }
        users.into_iter().flatten().for_each(|user| add_line(&mut new, user));
        new
    }

    /// A parameter as a line of the configuration file.
    fn line(&self, id: Param) -> Vec<u8> {
        let value = self.bytes(id);
        let plain = value.iter().all(|&b| b.is_ascii_graphic() && !b"\"'\\#".contains(&b));
        let as_it_is = (plain || id.takes_words()) && !value.is_empty();
        let name = id.declaration().name.as_bytes();
        [name, b" ", &if as_it_is { value } else { quoted(&value) }].concat()
    }
}

fn add_line(text: &mut Vec<u8>, line: &[u8]) {
    text.extend(line);
    text.push(b'\n');
}

/// Whether a line of the file is about a user.
fn is_user(line: &[u8]) -> bool {
    let name = line.trim_ascii().split(u8::is_ascii_whitespace).next().unwrap_or_default();
    name.eq_ignore_ascii_case(b"user")
}

/// The parameter that a line of the file sets.
fn named_by(line: &[u8]) -> Option<Param> {
    let line = line.trim_ascii();
    if line.starts_with(b"#") {
        return None;
    }
    find(split_args(line)?.first()?)
}

/// Puts a file with these contents in the place of another, with its permissions.
pub(crate) fn replace(file: &Path, contents: &[u8]) -> io::Result<()> {
    let (beside, open) = create_beside(file)?;
    let replaced = fill(open, file, contents).and_then(|()| std::fs::rename(&beside, file));
    if replaced.is_err() {
        // The error that matters is the one that there is already.
        let _ = std::fs::remove_file(&beside);
        return replaced;
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// A new file in the same folder, which nobody else may read yet.
fn create_beside(file: &Path) -> io::Result<(PathBuf, File)> {
    loop {
        let mut name = file.as_os_str().to_owned();
        name.push(format!(".{:06x}", chance::rng().random_range(0..1 << 24)));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            open => return Ok((name.into(), open?)),
        }
    }
}

fn fill(mut open: File, file: &Path, contents: &[u8]) -> io::Result<()> {
    open.write_all(contents)?;
    // A file that holds a password stays as closed as it was.
    if let Ok(old) = std::fs::metadata(file) {
        open.set_permissions(old.permissions())?;
    }
    open.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_understood_stays_to_the_byte() {
        let config = Config::default();
        config.set(Param::RequirePass, b"p\xff\"").unwrap();
        config.set(Param::Timeout, b"7").unwrap();
        let old = b"# caf\xe9, it's\n\n\tinclude  more.conf\r\nrename-command GET \"\"\nTIMEOUT 5\ntimeout 6\n'hz' 20";
        let new = b"# caf\xe9, it's\n\n\tinclude  more.conf\r\nrename-command GET \"\"\ntimeout 7\nhz 10\nrequirepass \"p\\xff\\\"\"\n";
        assert_eq!(
            config.rewritten(old, &[]).escape_ascii().to_string(),
            new.escape_ascii().to_string()
        );
        assert_eq!(config.rewritten(new, &[]), new);
    }

    #[test]
    fn users_stand_where_the_first_of_them_stood() {
        let config = Config::default();
        let old = b"USER a on\nhz 10\n\tuser b off\n# user c\nuserx\n";
        let users = [b"user a off".to_vec(), b"user d on".to_vec()];
        let new = b"user a off\nuser d on\nhz 10\n# user c\nuserx\n";
        assert_eq!(config.rewritten(old, &users), new);
        assert_eq!(config.rewritten(new, &users), new);
        assert_eq!(config.rewritten(new, &[]), b"hz 10\n# user c\nuserx\n");
        assert_eq!(config.rewritten(b"hz 10\n", &users), b"hz 10\nuser a off\nuser d on\n");
    }
}
