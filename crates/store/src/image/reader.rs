//! Reads Snug's format.

use super::check::Check;
use super::pen::{Source, wrong};
use super::{sum, wire};
use crate::cell::entry::Payload;
use crate::hash::Key;
use crate::making::Limits;
use crate::pack::dictionaries::{Dictionaries, HeldDictionary};
use crate::pack::families::Known;
use crate::pack::form::{self, PACK_MAX};
use crate::slot::Detached;
use crate::store::{Session, Store};
use crate::types::forms::Form;
use crate::types::pages::element;
use crate::types::stream::StreamScratch;
use foldhash::HashMap;
use parking_lot::RwLock;
use snug_codec::Dictionary;
use snug_codec::frames::unframe;
use std::io::{self, Read};
use std::sync::Arc;

/// Whether the bytes are this server's own, and no more than damaged: sums tell that. If
/// they are somebody else's, each value is read once as it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Written by this server.
    Own,
    /// From elsewhere.
    Nobody,
}

/// What is wrong with a file, and where.
#[derive(Debug, thiserror::Error)]
#[error("byte {at}: {what}")]
pub struct ImageError {
    /// Where the block begins that it is in.
    pub at: u64,
    /// What.
    #[source]
    pub what: io::Error,
}

/// What comes next in a file.
#[derive(Debug)]
pub enum Part {
    /// An auxiliary field.
    Aux(Vec<u8>, Vec<u8>),
    /// A library of functions.
    Function(Vec<u8>),
    /// A key of a database with its value, made for the store.
    Entry(usize, Detached),
    /// The end.
    End,
}

/// Reads keys with their values, one after the other.
pub struct ImageReader<'s, R> {
    blocks: Blocks<R>,
    entries: Entries<'s>,
    db: usize,
    keys: u64,
    /// Where the last block ended that ends with a whole key, and the keys until there.
    whole: (u64, u64),
    is_over: bool,
    /// Something else follows the end.
    is_followed: bool,
}

impl<R> std::fmt::Debug for ImageReader<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageReader").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// The dictionaries that a file has brought so far.
pub(super) type Brought = RwLock<HashMap<u32, HeldDictionary>>;

/// The block that is being read.
pub(super) struct Blocks<R> {
    from: R,
    /// Where it begins, and where the next does.
    pub(super) began: u64,
    pub(super) offset: u64,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) body: Vec<u8>,
    /// Room for what is taken out of a frame.
    spare: Vec<u8>,
    at: usize,
    registry: Arc<Dictionaries>,
    pub(super) dictionaries: Arc<Brought>,
}

impl<R: Read> Blocks<R> {
    fn exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.from.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                io::Error::new(io::ErrorKind::UnexpectedEof, "the end is missing")
            }
            _ => error,
        })?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Reads the head of a file; whether pages lie in the order of this process's hashes.
    pub(super) fn begin(&mut self) -> io::Result<bool> {
        let mut head = [0; wire::FILE_HEAD];
        self.exact(&mut head)?;
        if &head[..8] != wire::MAGIC {
            return Err(wrong("this is no file of Snug's format"));
        }
        if head[8..12] != wire::VERSION.to_le_bytes() || head[12..] != [0; 4] {
            return Err(wrong("the file is of a version that is not known"));
        }
        self.next()?;
        let seed = self.body.as_slice().try_into().map(u64::from_le_bytes);
        match (self.kind, seed) {
            (wire::block::START, Ok(seed)) => Ok(element::take_seed(seed)),
            _ => Err(wrong("the file does not begin as it should")),
        }
    }

    /// The auxiliary field, name and value, that the block is of.
    pub(super) fn take_aux(&mut self) -> io::Result<(Vec<u8>, Vec<u8>)> {
        if self.flags & wire::GOES_ON != 0 {
            return Err(wrong("an auxiliary field goes on"));
        }
        let name = self.counted()?;
        Ok((name, self.body[self.at..].to_vec()))
    }

    /// The library of functions that begins with the block that was read.
    pub(super) fn take_function(&mut self) -> io::Result<Vec<u8>> {
        let mut code = std::mem::take(&mut self.body);
        while self.flags & wire::GOES_ON != 0 {
            self.next()?;
            if self.kind != wire::block::MORE {
                return Err(wrong("a library of functions does not go on"));
            }
            code.extend_from_slice(&self.body);
        }
        self.at = self.body.len();
        Ok(code)
    }

    /// That the input ends behind the last block.
    pub(super) fn at_end(&mut self) -> io::Result<()> {
        match self.from.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(wrong("there is something behind the end")),
        }
    }

    /// Reads the next block.
    pub(super) fn next(&mut self) -> io::Result<()> {
        self.began = self.offset;
        let mut head = [0; wire::BLOCK_HEAD];
        self.exact(&mut head)?;
        let (facts, told) = head.split_at(8);
        let len = u32::from_le_bytes(facts[4..8].try_into().unwrap_or_default()) as usize;
        if len > wire::BODY_MAX || facts[2..4] != [0, 0] {
            return Err(wrong("a block is damaged"));
        }
        let mut body = std::mem::take(&mut self.body);
        body.resize(len, 0);
        let read = self.exact(&mut body);
        self.body = body;
        read?;
        (self.kind, self.flags, self.at) = (facts[0], facts[1], 0);
        if sum(facts, &self.body) != u64::from_le_bytes(told.try_into().unwrap_or_default()) {
            return Err(wrong("a block is damaged: its sum is another"));
        }
        if self.flags & wire::FRAMED != 0 {
            if !unframe(&self.body, wire::BODY_MAX, &mut self.spare) {
                return Err(wrong("a block is damaged: it is no frame of zstd"));
            }
            std::mem::swap(&mut self.body, &mut self.spare);
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.at == self.body.len()
    }
}

impl<R: Read> Source for Blocks<R> {
    fn some(&mut self) -> io::Result<&[u8]> {
        while self.is_done() {
            if self.flags & wire::GOES_ON == 0 {
                return Err(wrong("a value is cut short"));
            }
            loop {
                self.next()?;
                match self.kind {
                    wire::block::DICTIONARY => self.take_dictionary()?,
                    wire::block::MORE => break,
                    _ => return Err(wrong("a value does not go on")),
                }
            }
        }
        Ok(&self.body[self.at..])
    }

    fn take(&mut self, count: usize) {
        self.at += count;
    }

    fn dictionary(&self, id: u32) -> io::Result<HeldDictionary> {
        find(&self.dictionaries, id)
    }

    fn has_dictionary(&self, id: u32) -> bool {
        self.dictionaries.read().contains_key(&id)
    }
}

/// A dictionary that was brought.
pub(super) fn find(brought: &Brought, id: u32) -> io::Result<HeldDictionary> {
    brought.read().get(&id).cloned().ok_or_else(|| wrong("a dictionary is missing"))
}

impl<R> Blocks<R> {
    pub(super) fn new(from: R, store: &Store) -> Self {
        Self {
            from,
            began: 0,
            offset: 0,
            kind: 0,
            flags: 0,
            body: Vec::new(),
            spare: Vec::new(),
            at: 0,
            registry: Arc::clone(&store.families().dictionaries),
            dictionaries: Arc::default(),
        }
    }

    /// Takes in what a family knows, if the block is of one.
    pub(super) fn take_family(&self, store: &Store) -> io::Result<()> {
        let known = Known::read(&self.body, |id| find(&self.dictionaries, id))?;
        store.families().remember(known);
        Ok(())
    }

    /// Takes in the dictionary that the block is of.
    pub(super) fn take_dictionary(&mut self) -> io::Result<()> {
        let bad = || wrong("a dictionary is damaged");
        let (id, rest) = self.body.split_first_chunk::<4>().ok_or_else(bad)?;
        let (level, bytes) = rest.split_first_chunk::<4>().ok_or_else(bad)?;
        let (id, level) = (u32::from_le_bytes(*id), i32::from_le_bytes(*level));
        let dictionary = Dictionary::from_bytes(id, bytes, level).map_err(|_| bad())?;
        let held = self.registry.restore(Arc::new(dictionary));
        let held = held.ok_or_else(|| wrong("the store has another dictionary of that id"))?;
        self.dictionaries.write().insert(id, held);
        Ok(())
    }
}

impl<'s, R: Read> ImageReader<'s, R> {
    /// Reads the head of a file. The values are made for the session's store. If this
    /// process has no seed of its own yet, it takes the file's.
    pub fn new(
        from: R,
        session: &'s Session,
        limits: &'s Limits,
        trust: Trust,
    ) -> Result<Self, ImageError> {
        let mut reader = Self {
            blocks: Blocks::new(from, session.store()),
            entries: Entries::new(session, limits, trust),
            db: 0,
            keys: 0,
            whole: (0, 0),
            is_over: false,
            is_followed: false,
        };
        let begun = reader.blocks.begin();
        reader.entries.is_own_seed = reader.located(begun)?;
        Ok(reader)
    }

    /// Something else may follow the end: nothing behind that is read.
    pub fn followed(mut self) -> Self {
        self.is_followed = true;
        self
    }

    fn located<T>(&mut self, result: io::Result<T>) -> Result<T, ImageError> {
        result.map_err(|what| {
            self.is_over = true;
            ImageError { at: self.blocks.began, what }
        })
    }

    /// Bytes that were read so far.
    pub fn offset(&self) -> u64 {
        self.blocks.offset
    }

    /// Where the last block begins that was read: all before it is whole.
    pub fn block(&self) -> u64 {
        self.blocks.began
    }

    /// Up to which byte the file is whole, and how many keys there are until there: what
    /// is behind may be cut, with [`end_of`](super::end_of) in its place.
    pub fn whole(&self) -> (u64, u64) {
        self.whole
    }

    /// What it read from.
    pub fn into_inner(self) -> R {
        self.blocks.from
    }

    /// What comes next. Behind an error, or the end, comes the end.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Part, ImageError> {
        if self.is_over {
            return Ok(Part::End);
        }
        let part = self.part();
        self.located(part)
    }

    fn part(&mut self) -> io::Result<Part> {
        let is_of_keys = matches!(self.blocks.kind, wire::block::KEYS | wire::block::MORE);
        if is_of_keys && !self.blocks.is_done() {
            return self.entry();
        }
        if self.blocks.flags & wire::GOES_ON != 0 {
            return Err(wrong("a value goes on that is whole"));
        }
        loop {
            self.whole = (self.blocks.offset, self.keys);
            self.blocks.next()?;
            let body = &self.blocks.body;
            match self.blocks.kind {
                wire::block::KEYS => {
                    let databases = self.entries.session.store().databases();
                    self.db = database(&mut self.blocks, databases)?;
                    return self.entry();
                }
                wire::block::DICTIONARY => self.blocks.take_dictionary()?,
                wire::block::FAMILY => {
                    self.blocks.take_family(self.entries.session.store())?;
                }
                wire::block::AUX => {
                    let (name, value) = self.blocks.take_aux()?;
                    return Ok(Part::Aux(name, value));
                }
                wire::block::FUNCTION => return Ok(Part::Function(self.blocks.take_function()?)),
                wire::block::END => {
                    if body[..] != self.keys.to_le_bytes() {
                        return Err(wrong("there are not as many keys as were written"));
                    }
                    if !self.is_followed {
                        self.blocks.at_end()?;
                    }
                    self.is_over = true;
                    return Ok(Part::End);
                }
                _ => return Err(wrong("a block is of an unknown kind")),
            }
        }
    }

    fn entry(&mut self) -> io::Result<Part> {
        self.keys += 1;
        Ok(Part::Entry(self.db, self.entries.next(&mut self.blocks)?))
    }
}

/// The database that a block of keys begins with, of so many.
pub(super) fn database(source: &mut dyn Source, databases: usize) -> io::Result<usize> {
    let known = usize::try_from(source.number()?).ok().filter(|&db| db < databases);
    known.ok_or_else(|| wrong("there is no such database"))
}

/// Makes values of what blocks have.
pub(super) struct Entries<'s> {
    session: &'s Session,
    limits: &'s Limits,
    trust: Trust,
    scratch: StreamScratch,
    /// Whether pages lie in the order of this process's hashes.
    pub(super) is_own_seed: bool,
}

impl<'s> Entries<'s> {
    pub(super) fn new(session: &'s Session, limits: &'s Limits, trust: Trust) -> Self {
        Self { session, limits, trust, scratch: StreamScratch::new(), is_own_seed: false }
    }

    /// The next key with its value.
    pub(super) fn next(&mut self, source: &mut dyn Source) -> io::Result<Detached> {
        let bad = || wrong("a key is damaged");
        let form = Form::of_number(source.byte()?).ok_or_else(bad)?;
        let flags = source.byte()?;
        let expiry = (flags & wire::EXPIRES != 0).then(|| source.eight()).transpose()?;
        let access = flags >> wire::ACCESS_SHIFT & crate::ACCESS_MAX;
        let name = source.counted()?;
        let store = self.session.store();
        let key = store.key(&name);
        let made = match form.fetch(source) {
            Some(owned) => Detached::new(&key, expiry, access, Payload::Boxed(owned?)),
            None => {
                let bytes = source.counted()?;
                if bytes.len() > PACK_MAX {
                    return Err(bad());
                }
                let id =
                    if form.bits().is_packed_inline() { form::dictionary_id(&bytes) } else { 0 };
                if id != 0 && !source.has_dictionary(id) {
                    return Err(wrong("a dictionary is missing"));
                }
                let made = Detached::new(&key, expiry, access, Payload::Inline(form, &bytes));
                made.pinned(store)
            }
        };
        if self.trust == Trust::Nobody {
            let mut check = Check::default();
            let whole = made.save(self.session, &mut self.scratch, &mut check);
            whole.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
        if made.value().cools_in_parts() && !self.is_own_seed {
            self.anew(&key, &made)
        } else {
            Ok(made)
        }
    }

    /// The same value with its pages in the order of this process's hashes.
    fn anew(&mut self, key: &Key<'_>, value: &Detached) -> io::Result<Detached> {
        let mut making = self.session.making(self.limits);
        let made = value.save(self.session, &mut self.scratch, &mut making);
        made.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let made = making.finish(key, value.expiry(), Some(value.access()));
        made.ok_or_else(|| wrong("a collection has no elements"))
    }
}
