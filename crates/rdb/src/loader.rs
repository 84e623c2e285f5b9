//! Loads RDB into a store that nobody follows: at start, or the snapshot that a primary
//! sends.
//!
//! Values are made with the store untouched, and some at once are given to it, so others
//! may use the store meanwhile (to answer `-LOADING`, to expire, to pack): no lock is held
//! while the input is waited for.

use crate::reader::{self, Event, ReadOptions, Reader};
use snug_store::types::stream::Shape;
use snug_store::{DATABASES_MAX, Detached, Limits, Store};
use std::io::Read;
use std::sync::Arc;

/// So many values are given to the store at once, or so many bytes of them.
const KEYS_AT_ONCE: usize = 64;
const BYTES_AT_ONCE: usize = 256 * 1024;

/// How a file is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Loading {
    /// How it is read.
    pub read: ReadOptions,
    /// Up to what size collections count as compact.
    pub limits: Limits,
    /// How many databases there may be. Those of the store are the limit in any case.
    pub databases: usize,
    /// The time. Keys that have expired by then are left out, unless it is 0.
    pub now: u64,
}

impl Default for Loading {
    fn default() -> Self {
        Self {
            read: ReadOptions::DEFAULT,
            limits: Limits { shape: Shape::DEFAULT, ..Limits::DEFAULT },
            databases: DATABASES_MAX,
            now: 0,
        }
    }
}

/// What was loaded; also told meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Keys that were given to the store.
    pub keys: u64,
    /// Keys that were left out because they had expired.
    pub expired: u64,
    /// Keys that were left out because their collections had no elements.
    pub empty: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// The auxiliary fields, in their order.
    pub aux: Vec<(Vec<u8>, Vec<u8>)>,
    /// Libraries of functions.
    pub functions: Vec<Vec<u8>>,
    /// Modules whose data was passed over.
    pub modules: Vec<String>,
}

/// Why a file was not loaded. What came before stays in the store.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The file is damaged, or not for Snug.
    #[error(transparent)]
    Damaged(#[from] reader::Error),
    /// A key is there twice.
    #[error("key '{}' of database {db} is there twice", key.escape_ascii())]
    Twice {
        /// In which database.
        db: usize,
        /// Which.
        key: Vec<u8>,
    },
    /// There is no such database.
    #[error("byte {at}: there is no database {db}: they are {databases}")]
    Database {
        /// At which byte.
        at: u64,
        /// Which.
        db: u64,
        /// How many there are.
        databases: usize,
    },
    /// Whoever watches has stopped it.
    #[error("loading was stopped")]
    Stopped,
}

impl Refused {
    /// The same, without the name of a key.
    #[must_use]
    pub fn without_key(mut self) -> Self {
        match &mut self {
            Self::Damaged(error) => error.key = None,
            Self::Twice { key, .. } => *key = b"(hidden)".to_vec(),
            Self::Database { .. } | Self::Stopped => {}
        }
        self
    }
}

/// Auxiliary fields, functions and modules that are remembered, at most.
const REMEMBERED_MAX: usize = 1024;

/// Loads all that a reader has, up to its end. `watch` is told what was loaded so far, a
/// few times for each megabyte, and says whether to go on.
pub fn load<R: Read>(
    input: &mut Reader<R>,
    store: &Arc<Store>,
    loading: &Loading,
    mut watch: impl FnMut(&Loaded) -> bool,
) -> Result<Loaded, Refused> {
    let workshop = store.session();
    let mut making = workshop.making(&loading.limits);
    let mut session = store.session();
    let mut loaded = Loaded::default();
    let (mut some, mut bytes, mut db): (Vec<Detached>, _, _) = (Vec::new(), 0, 0);
    let mut told = 0;
    loop {
        let event = input.next()?;
        let is_key = matches!(event, Event::Key(_));
        if some.len() >= KEYS_AT_ONCE || bytes >= BYTES_AT_ONCE || !is_key {
            loaded.keys += some.len() as u64;
            let batch = session.enter(loading.now);
            for value in some.drain(..) {
                batch
                    .load(db, value)
                    .map_err(|value| Refused::Twice { db, key: value.key().to_vec() })?;
            }
            bytes = 0;
        }
        loaded.bytes = input.offset();
        if loaded.bytes - told >= BYTES_AT_ONCE as u64 {
            told = loaded.bytes;
            if !watch(&loaded) {
                return Err(Refused::Stopped);
            }
        }
        match event {
            Event::Key(head)
                if head.expiry.is_some_and(|at| 0 < loading.now && at <= loading.now) =>
            {
                input.skip(&head)?;
                loaded.expired += 1;
            }
            Event::Key(head) => {
                input.value(&head, &mut making)?;
                match making.finish(
                    &store.key(&head.key),
                    head.expiry,
                    access(head.idle, head.freq),
                ) {
                    Some(value) => {
                        bytes += value.allocated();
                        some.push(value);
                    }
                    None => loaded.empty += 1,
                }
            }
            Event::Database(number) => {
                let databases = loading.databases.min(store.databases());
                let known = usize::try_from(number).ok().filter(|&db| db < databases);
                let at = loaded.bytes;
                db = known.ok_or(Refused::Database { at, db: number, databases })?;
            }
            Event::Aux(name, value) => remember(&mut loaded.aux, (name, value)),
            Event::Function(code) => loaded.functions.push(code),
            Event::ModuleAux(name) => remember(&mut loaded.modules, name),
            Event::Sizes { .. } | Event::Slot { .. } => {}
            Event::End => return Ok(loaded),
        }
    }
}

fn remember<T>(all: &mut Vec<T>, one: T) {
    if all.len() < REMEMBERED_MAX {
        all.push(one);
    }
}

/// How lately or how often a key was used, in the store's measure, if that is told.
pub fn access(idle: Option<u64>, freq: Option<u8>) -> Option<u8> {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    /// What a new key's counter begins with in Redis.
    const NEW: u8 = 5;
    match (idle, freq) {
        (Some(HOUR..), _) => Some(0),
        (Some(MINUTE..), _) => Some(1),
        (None, Some(..=NEW)) => Some(1),
        _ => None,
    }
}
