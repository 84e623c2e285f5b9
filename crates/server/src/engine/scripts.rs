//! The scripts that the server knows, by the SHA-1 of their text; and how each is best
//! run, which is learnt.
//!
//! Plain data: what runs them is in the room `script`. A script that came with `EVAL` is
//! kept for as long as it is among the last [`EVALED_MAX`] of these, one that was loaded
//! until `SCRIPT FLUSH`.

use crate::request::error::Error;
use foldhash::HashMap;
use parking_lot::{Mutex, RwLock};
use snug_resp::split_args;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed,
};

/// Scripts of `EVAL` that are kept.
const EVALED_MAX: usize = 500;

/// For how many times a script is run aside that has run for long once: what it is given
/// decides how long it takes, and one that is long on a worker and has written keeps that
/// worker's clients waiting.
const ASIDE_AGAIN: u32 = 100;

/// What a script says of itself in its first line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScriptFlags {
    /// It says nothing: it is taken as scripts were before there were flags.
    pub compat: bool,
    pub no_writes: bool,
    pub allow_oom: bool,
    pub allow_stale: bool,
    pub no_cluster: bool,
    pub allow_cross_slot: bool,
}

impl ScriptFlags {
    pub(crate) const COMPAT: Self = Self {
        compat: true,
        no_writes: false,
        allow_oom: false,
        allow_stale: false,
        no_cluster: false,
        allow_cross_slot: false,
    };

    /// The flags by name.
    pub(crate) fn set(&mut self, name: &[u8]) -> bool {
        let flag = match name {
            b"no-writes" => &mut self.no_writes,
            b"allow-oom" => &mut self.allow_oom,
            b"allow-stale" => &mut self.allow_stale,
            b"no-cluster" => &mut self.no_cluster,
            b"allow-cross-slot-keys" => &mut self.allow_cross_slot,
            _ => return false,
        };
        *flag = true;
        true
    }
}

impl ScriptFlags {
    /// The names of those that are set.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.no_writes, "no-writes"),
            (self.allow_oom, "allow-oom"),
            (self.allow_stale, "allow-stale"),
            (self.no_cluster, "no-cluster"),
            (self.allow_cross_slot, "allow-cross-slot-keys"),
        ];
        all.into_iter().filter_map(|(set, name)| set.then_some(name))
    }
}

/// What a script holds while it runs: more with every step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Needs {
    /// The slots of the keys that it declares.
    Declared,
    /// It has not run yet: as the next.
    Unknown,
    /// Slots of other keys too, taken when it comes to them. One script at a time.
    Undeclared,
    /// The whole store.
    Everything,
}

impl Needs {
    fn of(number: u8) -> Self {
        [Self::Declared, Self::Unknown, Self::Undeclared, Self::Everything]
            [usize::from(number).min(3)]
    }
}

/// How a script, or a function of a library, was found to run.
#[derive(Debug)]
pub(crate) struct Habits {
    needs: AtomicU8,
    /// How many times more it is run aside, for it has run for long.
    aside: AtomicU32,
}

impl Habits {
    /// Those of a script of that text. Commands that need the whole store may be named
    /// in it, and it is better known before it has written.
    pub(crate) fn of(text: &[u8]) -> Self {
        let words = text.split(|byte| !byte.is_ascii_alphabetic());
        let wide = |word: &[u8]| {
            [&b"flushall"[..], b"flushdb", b"swapdb", b"sort", b"sort_ro"]
                .iter()
                .any(|name| word.eq_ignore_ascii_case(name))
        };
        // `table.sort` is common, and the command is rare: it is in quotes.
        let sorts =
            |quote: &[u8]| text.windows(quote.len()).any(|at| at.eq_ignore_ascii_case(quote));
        let everything = words
            .filter(|word| word.len() >= 4)
            .any(|word| wide(word) && !word.eq_ignore_ascii_case(b"sort"))
            || [&b"'sort"[..], b"\"sort"].into_iter().any(sorts);
        let needs = if everything { Needs::Everything } else { Needs::Unknown };
        Self { needs: AtomicU8::new(needs as u8), aside: AtomicU32::new(0) }
    }

    pub(crate) fn needs(&self) -> Needs {
        Needs::of(self.needs.load(Relaxed))
    }

    /// It needs more than was thought.
    pub(crate) fn learn(&self, needs: Needs) {
        self.needs.fetch_max(needs as u8, Relaxed);
    }

    /// It has run to its end, and needed that.
    pub(crate) fn ran(&self, needed: Needs) {
        let unknown = Needs::Unknown as u8;
        let _ = self.needs.compare_exchange(unknown, needed as u8, Relaxed, Relaxed);
        self.learn(needed);
    }

    /// Whether it is better run aside: it is new, or has run for long.
    pub(crate) fn is_for_aside(&self) -> bool {
        self.needs() == Needs::Unknown || self.aside.load(Relaxed) > 0
    }

    /// It has run for long.
    pub(crate) fn ran_long(&self) {
        self.aside.store(ASIDE_AGAIN, Relaxed);
    }

    /// It was run aside, and was short.
    pub(crate) fn was_short_aside(&self) {
        let _ = self.aside.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
    }
}

/// A script.
#[derive(Debug)]
pub(crate) struct Script {
    /// Its number, by which interpreters know what they have compiled.
    pub number: u64,
    /// The SHA-1 of its text, in hexadecimal digits.
    pub sha: String,
    text: Vec<u8>,
    /// Where the program begins, behind a first line that says how to run it.
    begin: usize,
    pub flags: ScriptFlags,
    pub habits: Arc<Habits>,
}

impl Script {
    /// The program, without its first line if that is none.
    pub(crate) fn program(&self) -> &[u8] {
        &self.text[self.begin..]
    }
}

/// What a first line `#!lua flags=..` says, and how long it is; the end of the line is
/// the program's, which keeps its line numbers.
fn shebang(text: &[u8]) -> Result<(ScriptFlags, usize), Error> {
    if !text.starts_with(b"#!") {
        return Ok((ScriptFlags::COMPAT, 0));
    }
    let end = text.iter().position(|&byte| byte == b'\n');
    let end = end.ok_or(Error::new("ERR Invalid script shebang"))?;
    let words = split_args(&text[..end]).unwrap_or_default();
    let mut words = words.iter().map(Vec::as_slice);
    let engine = words.next().ok_or(Error::new("ERR Invalid engine in script shebang"))?;
    let quoted = |what: &str, word: &[u8]| Error::from([what.as_bytes(), word].concat());
    if engine != b"#!lua" {
        return Err(quoted("ERR Unexpected engine in script shebang: ", engine));
    }
    let mut flags = ScriptFlags::default();
    for word in words {
        let Some(names) = word.strip_prefix(b"flags=") else {
            return Err(quoted("ERR Unknown lua shebang option: ", word));
        };
        for name in names.split(|&byte| byte == b',').filter(|_| !names.is_empty()) {
            if !flags.set(name) {
                return Err(quoted("ERR Unexpected flag in script shebang: ", name));
            }
        }
    }
    Ok((flags, end))
}

/// The SHA-1 of bytes in hexadecimal digits.
pub(crate) fn sha1_hex(bytes: &[u8]) -> String {
    sha1_smol::Sha1::from(bytes).digest().to_string()
}

#[derive(Debug, Default)]
struct Known {
    by_sha: HashMap<String, Arc<Script>>,
    /// Those that only `EVAL` has brought, the oldest first.
    evaled: VecDeque<String>,
}

/// All scripts.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    known: RwLock<Known>,
    numbers: AtomicU64,
    /// New with each `SCRIPT FLUSH`: interpreters of an older one are given up.
    pub generation: AtomicU64,
    /// `DEBUG SET-DISABLE-DENY-SCRIPTS`: scripts may call what they may not else.
    pub allow_all: AtomicBool,
    /// Held by the script that takes slots when it comes to them.
    pub undeclared: Mutex<()>,
    /// Bytes of scripts.
    bytes: AtomicUsize,
}

impl Scripts {
    /// The script of that SHA-1, in any case.
    pub(crate) fn of_sha(&self, sha: &[u8]) -> Option<Arc<Script>> {
        let sha = std::str::from_utf8(sha).ok().filter(|sha| sha.len() == 40)?;
        let known = self.known.read();
        match known.by_sha.get(sha) {
            Some(script) => Some(Arc::clone(script)),
            None => known.by_sha.get(&sha.to_ascii_lowercase()).map(Arc::clone),
        }
    }

    /// A script of that text: the one that is known, or a new one, which
    /// [`keep`](Self::keep) makes known.
    pub(crate) fn of_text(&self, text: &[u8]) -> Result<Arc<Script>, Error> {
        let sha = sha1_hex(text);
        if let Some(script) = self.of_sha(sha.as_bytes()) {
            return Ok(script);
        }
        let (flags, begin) = shebang(text)?;
        Ok(Arc::new(Script {
            number: self.new_number(),
            sha,
            text: text.to_vec(),
            begin,
            flags,
            habits: Arc::new(Habits::of(text)),
        }))
    }

    pub(crate) fn new_number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// Makes a script known: until it is flushed if it was `loaded`, else for a while.
    pub(crate) fn keep(&self, script: &Arc<Script>, loaded: bool) {
        let known = &mut *self.known.write();
        let is_new = !known.by_sha.contains_key(&script.sha);
        if is_new {
            self.bytes.fetch_add(script.text.len(), Relaxed);
            known.by_sha.insert(script.sha.clone(), Arc::clone(script));
        }
        if loaded {
            known.evaled.retain(|sha| *sha != script.sha);
        } else if is_new {
            known.evaled.push_back(script.sha.clone());
            if known.evaled.len() > EVALED_MAX
                && let Some(oldest) = known.evaled.pop_front()
                && let Some(script) = known.by_sha.remove(&oldest)
            {
                self.bytes.fetch_sub(script.text.len(), Relaxed);
            }
        }
    }

    /// Forgets all scripts.
    pub(crate) fn flush(&self) {
        *self.known.write() = Known::default();
        self.bytes.store(0, Relaxed);
        self.generation.fetch_add(1, Relaxed);
    }

    /// How many there are, and their bytes.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.known.read().by_sha.len(), self.bytes.load(Relaxed))
    }
}
