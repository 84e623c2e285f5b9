//! The values in force.

use super::idle::reason;
use super::table::Declaration;
use super::{Kind, OutputLimits, PARAMETERS, Param};
use parking_lot::{Mutex, RwLock};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

/// One `rename-command`: a command's name and the one that it is to have, or nothing
/// if it is to have none.
#[derive(Debug)]
pub(crate) struct Rename {
    pub from: Vec<u8>,
    pub to: Vec<u8>,
    /// Where it stands, in front of what is wrong with it.
    pub place: String,
}

/// One `user` of the configuration file: the name and rules behind the word, and where
/// the line stands.
#[derive(Debug)]
pub(crate) struct UserLine {
    pub name: Vec<u8>,
    pub rules: Vec<Vec<u8>>,
    pub place: String,
}

/// The live configuration.
pub(crate) struct Config {
    /// What `CONFIG GET` shows: bytes, for a password or a path may be any.
    texts: RwLock<Vec<Vec<u8>>>,
    numbers: [AtomicI64; PARAMETERS.len()],
    /// `client-output-buffer-limit`, parsed: every message published needs it.
    output_limits: RwLock<OutputLimits>,
    /// The configuration file, if one was given.
    pub file: Option<PathBuf>,
    /// A line of `save` has been read, which takes the place of the default.
    pub(super) save_is_given: AtomicBool,
    /// Whether a part of it came from standard input.
    pub from_input: bool,
    /// What was given as a flag: what a file says of it does not count, be it wrong.
    pub(super) given: Vec<Param>,
    /// What `rename-command` says, in the order in which it was read.
    pub renames: Vec<Rename>,
    /// Users, in the order in which they were read.
    pub users: Vec<UserLine>,
    /// Held while the configuration file is written anew.
    pub(super) rewriting: Mutex<()>,
    /// The policy as `pack-policy-file` has it, in the form of `pack-policy`.
    pub(super) policy_of_file: RwLock<Option<Vec<u8>>>,
    /// Parameters of later servers that were given, and that nothing is known of.
    pub(super) passed_over: Mutex<Vec<&'static str>>,
    /// Parameters without effect that were told of.
    told: Mutex<Vec<&'static str>>,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").finish_non_exhaustive()
    }
}

impl Default for Config {
    fn default() -> Self {
        let checked = Param::all().map(|id| {
            let default = id.declaration().default;
            id.check(default.as_bytes())
                .unwrap_or_else(|e| panic!("default of {}: {e}", id.declaration().name))
        });
        let (texts, numbers): (Vec<_>, Vec<_>) = checked.unzip();
        Self {
            texts: RwLock::new(texts),
            numbers: std::array::from_fn(|i| AtomicI64::new(numbers[i])),
            output_limits: RwLock::default(),
            file: None,
            save_is_given: AtomicBool::new(false),
            from_input: false,
            given: Vec::new(),
            renames: Vec::new(),
            users: Vec::new(),
            rewriting: Mutex::default(),
            policy_of_file: RwLock::default(),
            passed_over: Mutex::default(),
            told: Mutex::default(),
        }
    }
}

impl Config {
    /// The number of a parameter: of a `Bool` 0 or 1, of an `Enum` its index.
    #[inline]
    pub(crate) fn number(&self, id: Param) -> i64 {
        self.numbers[id as usize].load(Relaxed)
    }

    /// Whether a `Bool` is on.
    #[inline]
    pub(crate) fn is_on(&self, id: Param) -> bool {
        self.number(id) != 0
    }

    /// A parameter's value, as `CONFIG GET` shows it.
    pub(crate) fn bytes(&self, id: Param) -> Vec<u8> {
        self.texts.read()[id as usize].clone()
    }

    /// Whether a parameter's value is the empty text.
    pub(crate) fn is_empty(&self, id: Param) -> bool {
        self.texts.read()[id as usize].is_empty()
    }

    /// The value of a parameter whose type lets only text be one, or one that is
    /// only to be shown: what is not UTF-8 is replaced.
    pub(crate) fn text(&self, id: Param) -> String {
        String::from_utf8_lossy(&self.texts.read()[id as usize]).into_owned()
    }

    /// The value of a parameter that names a file or a folder.
    pub(crate) fn path(&self, id: Param) -> PathBuf {
        OsString::from_vec(self.bytes(id)).into()
    }

    /// Makes `dir` the process's directory, and has it told in full from then on,
    /// as Redis does.
    pub(crate) fn enter_dir(&self) -> io::Result<()> {
        std::env::set_current_dir(self.path(Param::Dir))?;
        if let Ok(dir) = std::env::current_dir() {
            self.texts.write()[Param::Dir as usize] = dir.into_os_string().into_vec();
        }
        Ok(())
    }

    /// Sets a parameter to a value, checked.
    pub(crate) fn set(&self, id: Param, value: &[u8]) -> Result<(), String> {
        let (text, number) = match id.declaration().kind {
            // Classes that are not named keep their limits.
            Kind::OutputLimits => {
                let limits = self.output_limits().parse(&String::from_utf8_lossy(value))?;
                *self.output_limits.write() = limits;
                (limits.to_string().into(), 0)
            }
            _ => id.check(value)?,
        };
        // Under one lock, so that text and number say the same.
        let mut texts = self.texts.write();
        texts[id as usize] = text;
        self.numbers[id as usize].store(number, Relaxed);
        Ok(())
    }

    /// Parameters that have no effect and were given another value than their default,
    /// each once, with the reason.
    pub(crate) fn given_in_vain(&self) -> Vec<(&'static str, &'static str)> {
        let mut told = self.told.lock();
        let names = Param::all().filter(|id| {
            let Declaration { name, default, help, .. } = id.declaration();
            let is_default = || {
                let default = id.check(default.as_bytes());
                default.is_ok_and(|(default, _)| default == self.bytes(*id))
            };
            help.is_none() && !told.contains(name) && !is_default()
        });
        let names: Vec<&'static str> = names.map(|id| id.declaration().name).collect();
        told.extend(&names);
        let passed_over = std::mem::take(&mut *self.passed_over.lock());
        let later = passed_over.into_iter().map(|name| (name, "Redis 7.0 does not have it"));
        names.into_iter().map(|name| (name, reason(name))).chain(later).collect()
    }

    /// The output-buffer limits.
    pub(crate) fn output_limits(&self) -> OutputLimits {
        *self.output_limits.read()
    }
}
