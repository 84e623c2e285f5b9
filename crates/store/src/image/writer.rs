//! Writes Snug's format.

use super::framing::{Block, Framing};
use super::pen::{Pen, wrong};
use super::wire;
use crate::pack::dictionaries::HeldDictionary;
use crate::pack::form;
use crate::slot::Detached;
use crate::store::Store;
use crate::types::pages::element;
use foldhash::HashMap;
use snug_codec::Dictionary;
use std::io::{self, Write};
use std::sync::Arc;

/// Writes keys with their values, one after the other, with what they are packed with.
pub struct ImageWriter<'s, W> {
    out: W,
    store: &'s Store,
    /// Makes frames of blocks, if that is wanted.
    framing: Option<Framing>,
    /// The block that is being filled, and the database of its keys.
    body: Vec<u8>,
    db: usize,
    /// It goes on with the value before.
    goes_on: bool,
    /// The dictionaries that were written: held until the end, so that no id gets another
    /// meaning meanwhile.
    dictionaries: HashMap<u32, HeldDictionary>,
    keys: u64,
    written: u64,
}

impl<W> std::fmt::Debug for ImageWriter<'_, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageWriter").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl<'s, W: Write> ImageWriter<'s, W> {
    /// Begins to write values of a store to `out`, which is given slices of some 64 to 256
    /// KiB.
    pub fn new(mut out: W, store: &'s Store) -> io::Result<Self> {
        let mut head = [0; wire::FILE_HEAD];
        head[..8].copy_from_slice(wire::MAGIC);
        head[8..12].copy_from_slice(&wire::VERSION.to_le_bytes());
        out.write_all(&head)?;
        let mut writer = Self {
            out,
            store,
            framing: None,
            body: Vec::with_capacity(2 * wire::KEYS_BYTES),
            db: 0,
            goes_on: false,
            dictionaries: HashMap::default(),
            keys: 0,
            written: head.len() as u64,
        };
        writer.block(wire::block::START, 0, element::seed().to_le_bytes().to_vec())?;
        Ok(writer)
    }

    /// From now on blocks are written as frames of zstd where that makes them smaller: what
    /// is packed value by value or page by page is alike from one to the next. So many
    /// threads make them, one at least, until this is dropped.
    pub fn frame(&mut self, threads: usize) -> io::Result<()> {
        self.framing = Some(Framing::start(threads)?);
        Ok(())
    }

    /// Writes a block; an empty buffer in the place of its body.
    fn block(&mut self, kind: u8, flags: u8, body: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut block = Block::new(kind, flags, body);
        let Some(framing) = &mut self.framing else {
            block.seal();
            return self.write(block);
        };
        match framing.give(block) {
            Some(made) => self.write(made),
            None => Ok(Vec::with_capacity(2 * wire::KEYS_BYTES)),
        }
    }

    fn write(&mut self, block: Block) -> io::Result<Vec<u8>> {
        for part in block.parts() {
            self.out.write_all(part)?;
            self.written += part.len() as u64;
        }
        Ok(block.into_buffer())
    }

    /// Writes an auxiliary field. Names and values are up to whoever writes.
    pub fn aux(&mut self, name: &[u8], value: &[u8]) -> io::Result<()> {
        let mut body = Vec::new();
        snug_codec::varint::push(&mut body, name.len() as u64);
        body.extend_from_slice(name);
        body.extend_from_slice(value);
        self.block(wire::block::AUX, 0, body).map(drop)
    }

    /// Writes a library of functions.
    pub fn function(&mut self, code: &[u8]) -> io::Result<()> {
        let mut kind = wire::block::FUNCTION;
        let mut parts = code.chunks(wire::BODY_BYTES).peekable();
        if code.is_empty() {
            return self.block(kind, 0, Vec::new()).map(drop);
        }
        while let Some(part) = parts.next() {
            let flags = if parts.peek().is_some() { wire::GOES_ON } else { 0 };
            self.block(kind, flags, part.to_vec())?;
            kind = wire::block::MORE;
        }
        Ok(())
    }

    /// Writes the families that have dictionaries, and these.
    pub fn families(&mut self) -> io::Result<()> {
        for known in self.store.families().known() {
            self.need(known.dictionary.id())?;
            let mut body = Vec::new();
            known.write(&mut body);
            self.block(wire::block::FAMILY, 0, body)?;
        }
        Ok(())
    }

    /// Writes a key of a database with its value.
    pub fn entry(&mut self, db: usize, value: &Detached) -> io::Result<()> {
        if let Some(brought) = value.brought().map_err(io::Error::other)? {
            return self.entry(db, &brought);
        }
        if self.db != db || self.body.len() >= wire::KEYS_BYTES {
            self.give(0)?;
        }
        self.db = db;
        if self.body.is_empty() {
            self.number(db as u64)?;
        }
        self.keys += 1;
        let (lies, expiry) = (value.value(), value.expiry());
        let flags =
            value.access() << wire::ACCESS_SHIFT | if expiry.is_some() { wire::EXPIRES } else { 0 };
        self.put(&[lies.form().number(), flags])?;
        if let Some(at) = expiry {
            self.put(&at.to_le_bytes())?;
        }
        self.counted(&value.key())?;
        match lies.store(self) {
            Some(stored) => stored,
            None => {
                if lies.form().bits().is_packed_inline() {
                    self.need(form::dictionary_id(lies.bytes()))?;
                }
                self.counted(lies.bytes())
            }
        }
    }

    /// Gives on the block of keys that is being filled.
    fn give(&mut self, flags: u8) -> io::Result<()> {
        if self.body.is_empty() {
            return Ok(());
        }
        let body = std::mem::take(&mut self.body);
        let kind = if self.goes_on { wire::block::MORE } else { wire::block::KEYS };
        self.goes_on = flags & wire::GOES_ON != 0;
        self.body = self.block(kind, flags, body)?;
        Ok(())
    }

    fn write_dictionary(&mut self, dictionary: &Arc<Dictionary>) -> io::Result<()> {
        let mut body = Vec::with_capacity(dictionary.bytes().len() + 8);
        body.extend_from_slice(&dictionary.id().to_le_bytes());
        body.extend_from_slice(&dictionary.level().to_le_bytes());
        body.extend_from_slice(dictionary.bytes());
        self.block(wire::block::DICTIONARY, 0, body).map(drop)
    }

    /// Bytes so far, those left out that are still gathered or made into frames.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Writes the end, and gives `out` back: all has been given to it.
    pub fn end(mut self) -> io::Result<W> {
        self.give(0)?;
        let keys = self.keys;
        self.block(wire::block::END, 0, keys.to_le_bytes().to_vec())?;
        while let Some(made) = self.framing.as_mut().and_then(Framing::take) {
            self.write(made)?;
        }
        Ok(self.out)
    }
}

impl<W: Write> Pen for ImageWriter<'_, W> {
    fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while self.body.len() + bytes.len() > wire::BODY_BYTES {
            let room = wire::BODY_BYTES.saturating_sub(self.body.len());
            let (now, later) = bytes.split_at(room);
            self.body.extend_from_slice(now);
            self.give(wire::GOES_ON)?;
            bytes = later;
        }
        self.body.extend_from_slice(bytes);
        Ok(())
    }

    fn need(&mut self, dictionary: u32) -> io::Result<()> {
        if dictionary == 0 || self.dictionaries.contains_key(&dictionary) {
            return Ok(());
        }
        let dictionaries = &self.store.families().dictionaries;
        let found = dictionaries.get(dictionary).ok_or_else(|| wrong("a dictionary is missing"))?;
        let held = dictionaries.hold(Arc::clone(&found));
        self.dictionaries.insert(dictionary, held);
        // It comes before the block that is being filled.
        self.write_dictionary(&found)
    }
}
