//! Writes RDB: a file, or the stream that a replica is sent.
//!
//! ```text
//!  REDIS0010  aux ...  function ...
//!  | database n | sizes |  then of each of its keys
//!      [aux: times of fields] [expires] [idle | freq] type key value
//!  end  checksum: 8
//! ```
//!
//! A value is written as its elements come and nothing of it is gathered, but what RDB
//! itself has in one piece: a small collection, a node of a list or of a stream, a string
//! that is compressed (at most [`COMPRESS_MAX`] bytes). So memory is bounded by these
//! and by the largest entry of a stream, whatever the size of values.
//!
//! The types and encodings are those that redis-server 7.0 loads.

use crate::lzf::Lzf;
use crate::numbers::{CRC, FIELD_TIMES, entry, kind, node, op, string};
use crate::packs::{Listpack, put_intset};
use snug_codec::Segments;
use snug_store::elements::{
    ConsumerOutline, Elements, EntryFields, GroupOutline, Outline, StreamFacts, StreamOutline,
};
use snug_store::types::stream::{StreamId, StreamScratch};
use snug_store::{Detached, NewStr, Session, Unsaved, canonical_int};
use std::io::{self, Write};

/// Strings of more bytes are written as they are: RDB has compressed ones in one piece.
pub const COMPRESS_MAX: usize = 4 << 20;
/// Shorter ones are not tried.
const COMPRESS_MIN: usize = 20;
/// How many bytes fewer it must be.
const COMPRESS_SAVES: usize = 4;

/// Collections of more elements or bytes are written element by element, though Redis may
/// hold them in one piece.
const COMPACT_LEN_MAX: u64 = 4096;
const COMPACT_BYTES_MAX: u64 = 64 * 1024;

/// Entries of a stream to a node, and about how many bytes, as Redis has them by default.
const NODE_ENTRIES: u64 = 100;
const NODE_BYTES: u64 = 4096;

/// Bytes that are gathered before they are given on.
const BUFFER_BYTES: usize = 64 * 1024;

/// What becomes of the times at which fields of hashes expire, which RDB knows since
/// version 12 (Redis 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldTimes {
    /// They stand in auxiliary fields in front of the hash: Snug reads them, Redis of any
    /// version loads the hash without them.
    Aux,
    /// They stand in the hash, and only Redis 7.4 and later load it.
    Typed,
}

/// How RDB is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The version that the header names: 10 for all that Redis 7.0 loads, 11 for 7.2,
    /// 12 for 7.4.
    pub version: u32,
    /// Whether strings are compressed (`rdbcompression`).
    pub compress: bool,
    /// Whether there is a checksum at the end (`rdbchecksum`).
    pub checksum: bool,
    /// Where the times of hashes' fields are.
    pub field_times: FieldTimes,
}

impl Options {
    /// What redis-server 7.0 would write.
    pub const DEFAULT: Self =
        Self { version: 10, compress: true, checksum: true, field_times: FieldTimes::Aux };
}

impl Default for Options {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What is told of a key besides its value and its expiry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// For how many seconds it was not used.
    pub idle: Option<u64>,
    /// How often it was used, as `OBJECT FREQ` tells it.
    pub freq: Option<u8>,
}

/// Bytes on their way out, counted and summed up.
struct Output<W> {
    out: W,
    buffer: Vec<u8>,
    crc: crc::Digest<'static, u64, crc::Table<16>>,
    given: u64,
}

impl<W: Write> Output<W> {
    fn new(out: W) -> Self {
        let buffer = Vec::with_capacity(BUFFER_BYTES);
        Self { out, buffer, crc: CRC.digest(), given: 0 }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush()?;
            if bytes.len() >= BUFFER_BYTES {
                return self.give(bytes);
            }
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let given = self.give(&buffer);
        self.buffer = buffer;
        self.buffer.clear();
        given
    }

    fn give(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc.update(bytes);
        self.given += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Bytes so far.
    fn len(&self) -> u64 {
        self.given + self.buffer.len() as u64
    }
}

/// Writes keys with their values, one after the other.
pub struct Writer<W> {
    to: Encoder<W>,
    options: Options,
    /// The database that was selected.
    db: Option<usize>,
    /// Whether anything stands before the first database.
    begun: bool,
}

impl<W> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<W: Write> Writer<W> {
    /// A writer to `out`, which is given slices of 64 KiB or more.
    pub fn new(out: W, options: Options) -> Self {
        Self { to: Encoder::new(out, options.compress), options, db: None, begun: false }
    }

    /// Writes what comes first, with these auxiliary fields (`redis-ver`, `ctime` ...).
    pub fn header(&mut self, aux: &[(&str, &str)]) -> io::Result<()> {
        self.begun = true;
        let magic = format!("REDIS{:04}", self.options.version);
        self.to.out.put(magic.as_bytes())?;
        aux.iter().try_for_each(|(name, value)| self.aux(name.as_bytes(), value.as_bytes()))
    }

    /// Writes an auxiliary field.
    pub fn aux(&mut self, name: &[u8], value: &[u8]) -> io::Result<()> {
        self.to.out.put(&[op::AUX])?;
        self.to.put_string(name)?;
        self.to.put_string(value)
    }

    /// Writes a library of functions.
    pub fn function(&mut self, code: &[u8]) -> io::Result<()> {
        self.to.out.put(&[op::FUNCTION])?;
        self.to.put_string(code)
    }

    /// Begins a database, which has about so many keys of which so many expire.
    pub fn database(&mut self, db: usize, keys: u64, expiring: u64) -> io::Result<()> {
        self.select(db)?;
        self.to.out.put(&[op::SIZES])?;
        self.to.put_len(keys)?;
        self.to.put_len(expiring)
    }

    fn select(&mut self, db: usize) -> io::Result<()> {
        debug_assert!(self.begun, "a header comes first");
        self.db = Some(db);
        self.to.out.put(&[op::DATABASE])?;
        self.to.put_len(db as u64)
    }

    /// Writes a key of a database with its value. The session is one of the value's store,
    /// of the thread that calls; no lock is held.
    pub fn entry(
        &mut self,
        db: usize,
        value: &Detached,
        meta: Meta,
        (session, scratch): (&Session, &mut StreamScratch),
    ) -> Result<(), Unsaved> {
        if self.db != Some(db) {
            self.select(db)?;
        }
        let as_aux = self.options.field_times == FieldTimes::Aux && value.parts_expire();
        if as_aux {
            value.save(session, scratch, &mut TimesOut::new(&mut self.to))?;
        }
        if let Some(at) = value.expiry() {
            self.to.out.put(&[op::EXPIRES_MS])?;
            self.to.out.put(&at.to_le_bytes())?;
        }
        if let Some(idle) = meta.idle {
            self.to.out.put(&[op::IDLE])?;
            self.to.put_len(idle)?;
        }
        if let Some(freq) = meta.freq {
            self.to.out.put(&[op::FREQ, freq])?;
        }
        let with_times = !as_aux;
        let version = self.options.version;
        let key = value.key();
        let mut out = ValueOut::new(&mut self.to, Some(&key), version, with_times);
        value.save(session, scratch, &mut out)
    }

    /// Bytes so far, those included that are still gathered.
    pub fn written(&self) -> u64 {
        self.to.out.len()
    }

    /// Gives on what was gathered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.out.flush()
    }

    /// Writes the end, and gives `out` back: all has been given to it.
    pub fn end(mut self) -> io::Result<W> {
        self.to.out.put(&[op::END])?;
        self.to.out.flush()?;
        let checksum = if self.options.checksum { self.to.out.crc.clone().finalize() } else { 0 };
        self.to.out.out.write_all(&checksum.to_le_bytes())?;
        Ok(self.to.out.out)
    }
}

/// The payload of `DUMP`: type, value, version and checksum. Redis of that version or a
/// later one restores it.
pub fn dump(
    value: &Detached,
    options: Options,
    (session, scratch): (&Session, &mut StreamScratch),
) -> Result<Vec<u8>, Unsaved> {
    let mut to = Encoder::new(Vec::new(), options.compress);
    value.save(session, scratch, &mut ValueOut::new(&mut to, None, options.version, true))?;
    to.out.put(&(options.version as u16).to_le_bytes())?;
    to.out.flush()?;
    let checksum = to.out.crc.clone().finalize();
    let mut payload = to.out.out;
    payload.extend_from_slice(&checksum.to_le_bytes());
    Ok(payload)
}

/// Makes a payload of a value's bytes: for tests and fuzzers.
#[doc(hidden)]
pub fn seal(value: &[u8], version: u16) -> Vec<u8> {
    let mut payload = [value, &version.to_le_bytes()].concat();
    let checksum = CRC.checksum(&payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

/// The payload of `FUNCTION DUMP`: libraries, version and checksum.
pub fn dump_functions<'c>(codes: impl Iterator<Item = &'c [u8]>) -> io::Result<Vec<u8>> {
    let options = Options::default();
    let mut to = Encoder::new(Vec::new(), options.compress);
    for code in codes {
        to.out.put(&[op::FUNCTION])?;
        to.put_string(code)?;
    }
    to.out.put(&(options.version as u16).to_le_bytes())?;
    to.out.flush()?;
    let checksum = to.out.crc.clone().finalize();
    let mut payload = to.out.out;
    payload.extend_from_slice(&checksum.to_le_bytes());
    Ok(payload)
}

/// Lengths and strings as RDB has them.
struct Encoder<W> {
    out: Output<W>,
    lzf: Option<Lzf>,
    packed: Vec<u8>,
    /// What is made in one piece.
    listpack: Listpack,
}

impl<W: Write> Encoder<W> {
    fn new(out: W, compress: bool) -> Self {
        Self {
            out: Output::new(out),
            lzf: compress.then(Lzf::new),
            packed: Vec::new(),
            listpack: Listpack::new(),
        }
    }

    fn put_len(&mut self, len: u64) -> io::Result<()> {
        match len {
            0..0x40 => self.out.put(&[len as u8]),
            0x40..0x4000 => self.out.put(&[0x40 | (len >> 8) as u8, len as u8]),
            0x4000..0x1_0000_0000 => {
                self.out.put(&[0x80])?;
                self.out.put(&(len as u32).to_be_bytes())
            }
            _ => {
                self.out.put(&[0x81])?;
                self.out.put(&len.to_be_bytes())
            }
        }
    }

    /// Writes an integer as a string.
    fn put_int(&mut self, value: i64) -> io::Result<()> {
        let bytes = value.to_le_bytes();
        let (encoding, len) = match value {
            -0x80..0x80 => (string::INT_8, 1),
            -0x8000..0x8000 => (string::INT_16, 2),
            -0x8000_0000..0x8000_0000 => (string::INT_32, 4),
            _ => {
                let digits = value.to_string();
                self.put_len(digits.len() as u64)?;
                return self.out.put(digits.as_bytes());
            }
        };
        self.out.put(&[0xc0 | encoding])?;
        self.out.put(&bytes[..len])
    }

    fn put_string(&mut self, bytes: &[u8]) -> io::Result<()> {
        // The longest integer that is shorter as one.
        const INT_LEN_MAX: usize = 11;
        if bytes.len() <= INT_LEN_MAX
            && let Some(value) = canonical_int(bytes)
        {
            return self.put_int(value);
        }
        self.put_bytes(bytes)
    }

    /// Writes a string that is no integer.
    fn put_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        if (COMPRESS_MIN + 1..=COMPRESS_MAX).contains(&bytes.len())
            && let Some(lzf) = &mut self.lzf
        {
            let mut packed = std::mem::take(&mut self.packed);
            let saves = lzf.compress(bytes, &mut packed, bytes.len() - COMPRESS_SAVES);
            let put = if saves { self.put_packed(&packed, bytes.len()) } else { Ok(()) };
            self.packed = packed;
            if saves {
                return put;
            }
        }
        self.put_len(bytes.len() as u64)?;
        self.out.put(bytes)
    }

    fn put_packed(&mut self, packed: &[u8], len: usize) -> io::Result<()> {
        self.out.put(&[0xc0 | string::LZF])?;
        self.put_len(packed.len() as u64)?;
        self.put_len(len as u64)?;
        self.out.put(packed)
    }

    fn put_new(&mut self, string: &NewStr<'_>) -> io::Result<()> {
        match string {
            NewStr::Bytes(bytes) | NewStr::Text(bytes) | NewStr::Changed(bytes) => {
                self.put_string(bytes)
            }
            NewStr::Int(value) => self.put_int(*value),
            NewStr::Chain(chain) => self.put_chain(chain),
        }
    }

    fn put_chain(&mut self, chain: &Segments) -> io::Result<()> {
        if chain.len() <= COMPRESS_MAX {
            return self.put_bytes(&chain.to_vec());
        }
        self.put_len(chain.len() as u64)?;
        chain.parts().iter().try_for_each(|part| self.out.put(part))
    }

    /// Writes the listpack as a string, and empties it.
    fn put_listpack(&mut self) -> io::Result<()> {
        let mut listpack = std::mem::replace(&mut self.listpack, Listpack::new());
        let put = match listpack.finish() {
            Some(bytes) => self.put_bytes(bytes),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "RDB has no room for what a node is to hold",
            )),
        };
        listpack.clear();
        self.listpack = listpack;
        put
    }

    fn put_id(&mut self, id: StreamId) -> io::Result<()> {
        self.put_len(id.ms)?;
        self.put_len(id.seq)
    }

    fn put_raw_id(&mut self, id: StreamId) -> io::Result<()> {
        self.out.put(&id.ms.to_be_bytes())?;
        self.out.put(&id.seq.to_be_bytes())
    }
}

/// How a value is being written.
enum Body {
    Nothing,
    /// A string of which so many bytes are still to come.
    String(u64),
    /// A string that is gathered to be compressed.
    Gathered(Vec<u8>),
    /// Element by element.
    Each,
    /// With times, counted from the first.
    Timed(u64),
    /// In a listpack.
    Packed,
    Intset(Vec<i64>),
    /// A list in nodes, of which so many are still to begin.
    Nodes(u64),
    Stream(Nodes),
    /// A group of a stream: how many entries are still to come, and consumers behind them.
    Group {
        left: u64,
        consumers: u64,
    },
}

/// The nodes of a stream.
struct Nodes {
    /// Entries to a node, and those that are still to come.
    size: u64,
    left: u64,
    /// The ID of the node's first entry, and that entry's fields.
    master: StreamId,
    names: Vec<Box<[u8]>>,
    /// Entries that the node is still to get.
    room: u64,
}

/// Writes one value: its type, its key, and its elements.
struct ValueOut<'w, W> {
    to: &'w mut Encoder<W>,
    key: Option<&'w [u8]>,
    version: u32,
    /// Whether a hash has the times of its fields.
    with_times: bool,
    body: Body,
}

fn misplaced() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a value's parts are not those announced")
}

impl<'w, W: Write> ValueOut<'w, W> {
    fn new(to: &'w mut Encoder<W>, key: Option<&'w [u8]>, version: u32, with_times: bool) -> Self {
        Self { to, key, version, with_times, body: Body::Nothing }
    }

    /// Writes type and key; what follows is the value.
    fn begin(&mut self, kind: u8, body: Body) -> io::Result<()> {
        self.body = body;
        self.to.out.put(&[kind])?;
        match self.key {
            Some(key) => self.to.put_string(key),
            None => Ok(()),
        }
    }

    fn is_compact(outline: &Outline) -> bool {
        outline.is_compact && outline.len <= COMPACT_LEN_MAX && outline.bytes <= COMPACT_BYTES_MAX
    }

    /// Begins a collection, in one piece or element by element.
    fn begin_collection(&mut self, each: u8, packed: u8, outline: &Outline) -> io::Result<()> {
        if Self::is_compact(outline) {
            return self.begin(packed, Body::Packed);
        }
        self.begin(each, Body::Each)?;
        self.to.put_len(outline.len)
    }

    /// A node of a stream begins with this entry.
    fn begin_node(to: &mut Encoder<W>, nodes: &mut Nodes, fields: &EntryFields<'_>) {
        nodes.room = nodes.size.min(nodes.left);
        nodes.names = fields.iter().map(|(name, _)| (*name).into()).collect();
        to.listpack.put_int(nodes.room as i64);
        to.listpack.put_int(0);
        to.listpack.put_int(fields.len() as i64);
        fields.iter().for_each(|(name, _)| to.listpack.put(name));
        to.listpack.put_int(0);
    }
}

impl<W: Write> Elements for ValueOut<'_, W> {
    fn string(&mut self, len: u64) -> io::Result<()> {
        let is_tried = (COMPRESS_MIN as u64 + 1..=COMPRESS_MAX as u64).contains(&len);
        if is_tried && self.to.lzf.is_some() || len <= COMPRESS_MIN as u64 {
            return self.begin(kind::STRING, Body::Gathered(Vec::with_capacity(len as usize)));
        }
        self.begin(kind::STRING, Body::String(len))?;
        self.to.put_len(len)
    }

    fn part(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.body {
            Body::Gathered(gathered) => gathered.extend_from_slice(bytes),
            Body::String(left) => {
                *left = left.checked_sub(bytes.len() as u64).ok_or_else(misplaced)?;
                self.to.out.put(bytes)?;
            }
            _ => return Err(misplaced()),
        }
        Ok(())
    }

    fn integer(&mut self, value: i64) -> io::Result<()> {
        self.begin(kind::STRING, Body::Each)?;
        self.to.put_int(value)
    }

    fn list(&mut self, outline: &Outline) -> io::Result<()> {
        if let Some(runs) = outline.runs {
            self.begin(kind::LIST_QUICKLIST_2, Body::Nodes(runs))?;
            return self.to.put_len(runs);
        }
        self.begin(kind::LIST, Body::Each)?;
        self.to.put_len(outline.len)
    }

    fn set(&mut self, outline: &Outline) -> io::Result<()> {
        if Self::is_compact(outline) {
            let ints = Vec::with_capacity(outline.len as usize);
            return self.begin(kind::SET_INTSET, Body::Intset(ints));
        }
        self.begin(kind::SET, Body::Each)?;
        self.to.put_len(outline.len)
    }

    fn hash(&mut self, outline: &Outline) -> io::Result<()> {
        if self.with_times
            && let Some(first) = outline.expires
        {
            self.begin(kind::HASH_TIMES, Body::Timed(first))?;
            self.to.out.put(&first.to_le_bytes())?;
            return self.to.put_len(outline.len);
        }
        self.begin_collection(kind::HASH, kind::HASH_LISTPACK, outline)
    }

    fn sorted_set(&mut self, outline: &Outline) -> io::Result<()> {
        self.begin_collection(kind::ZSET_2, kind::ZSET_LISTPACK, outline)
    }

    fn stream(&mut self, outline: &StreamOutline) -> io::Result<()> {
        let each = outline.bytes.checked_div(outline.len).unwrap_or(0).max(1);
        let size = (NODE_BYTES / each).clamp(1, NODE_ENTRIES);
        let kind = if self.version >= 11 { kind::STREAM_3 } else { kind::STREAM_2 };
        let (left, master) = (outline.len, StreamId::MIN);
        let nodes = Nodes { size, left, master, names: Vec::new(), room: 0 };
        self.begin(kind, Body::Stream(nodes))?;
        self.to.put_len(outline.len.div_ceil(size))
    }

    fn run(&mut self) -> io::Result<()> {
        match &mut self.body {
            Body::Nodes(left) => {
                *left = left.checked_sub(1).ok_or_else(misplaced)?;
                if !self.to.listpack.is_empty() {
                    self.to.put_len(node::PACKED)?;
                    self.to.put_listpack()?;
                }
                Ok(())
            }
            Body::Each => Ok(()),
            _ => Err(misplaced()),
        }
    }

    fn item(&mut self, item: &NewStr<'_>) -> io::Result<()> {
        match &mut self.body {
            Body::Each => self.to.put_new(item),
            Body::Nodes(_) => {
                self.to.listpack.put_new(item);
                Ok(())
            }
            Body::Intset(ints) => {
                let value = match item {
                    NewStr::Int(value) => Some(*value),
                    NewStr::Bytes(bytes) => canonical_int(bytes),
                    _ => None,
                };
                ints.push(value.ok_or_else(misplaced)?);
                Ok(())
            }
            _ => Err(misplaced()),
        }
    }

    fn field(
        &mut self,
        field: &NewStr<'_>,
        value: &NewStr<'_>,
        expires: Option<u64>,
    ) -> io::Result<()> {
        match self.body {
            Body::Packed => {
                self.to.listpack.put_new(field);
                self.to.listpack.put_new(value);
                return Ok(());
            }
            Body::Each => {}
            Body::Timed(first) => {
                let left = expires.map_or(0, |at| at.saturating_sub(first) + 1);
                self.to.put_len(left)?;
            }
            _ => return Err(misplaced()),
        }
        self.to.put_new(field)?;
        self.to.put_new(value)
    }

    fn member(&mut self, score: f64, member: &NewStr<'_>) -> io::Result<()> {
        match self.body {
            Body::Packed => {
                self.to.listpack.put_new(member);
                match exact_int(score) {
                    Some(value) => self.to.listpack.put_int(value),
                    None => self.to.listpack.put(score_text(score).as_bytes()),
                }
                Ok(())
            }
            Body::Each => {
                self.to.put_new(member)?;
                self.to.out.put(&score.to_le_bytes())
            }
            _ => Err(misplaced()),
        }
    }

    fn entry(&mut self, id: StreamId, fields: &EntryFields<'_>) -> io::Result<()> {
        let Body::Stream(nodes) = &mut self.body else { return Err(misplaced()) };
        if nodes.left == 0 {
            return Err(misplaced());
        }
        if nodes.room == 0 {
            nodes.master = id;
            Self::begin_node(self.to, nodes, fields);
        }
        nodes.left -= 1;
        nodes.room -= 1;
        let names = nodes.names.iter().map(|name| &name[..]);
        let is_same = names.eq(fields.iter().map(|(name, _)| *name));
        let pack = &mut self.to.listpack;
        pack.put_int(if is_same { entry::SAME_FIELDS } else { 0 });
        pack.put_int(id.ms.wrapping_sub(nodes.master.ms) as i64);
        pack.put_int(id.seq.wrapping_sub(nodes.master.seq) as i64);
        if is_same {
            fields.iter().for_each(|(_, value)| pack.put(value));
            pack.put_int(fields.len() as i64 + 3);
        } else {
            pack.put_int(fields.len() as i64);
            for (name, value) in fields {
                pack.put(name);
                pack.put(value);
            }
            pack.put_int(2 * fields.len() as i64 + 4);
        }
        if nodes.room == 0 {
            // The node's ID is a string like any other.
            let master = nodes.master;
            self.to.put_len(16)?;
            self.to.put_raw_id(master)?;
            self.to.put_listpack()?;
        }
        Ok(())
    }

    fn facts(&mut self, facts: &StreamFacts) -> io::Result<()> {
        let Body::Stream(Nodes { left: 0, .. }) = self.body else { return Err(misplaced()) };
        self.to.put_len(facts.len.unwrap_or(0))?;
        self.to.put_id(facts.last_id)?;
        self.to.put_id(facts.first_id)?;
        self.to.put_id(facts.max_deleted_id)?;
        self.to.put_len(facts.entries_added.unwrap_or(0))?;
        self.to.put_len(facts.groups)
    }

    fn group(&mut self, group: &GroupOutline<'_>) -> io::Result<()> {
        self.to.put_string(group.name)?;
        self.to.put_id(group.last_id)?;
        self.to.put_len(group.entries_read.unwrap_or(u64::MAX))?;
        self.to.put_len(group.pending)?;
        if group.pending == 0 {
            self.to.put_len(group.consumers)?;
        }
        self.body = Body::Group { left: group.pending, consumers: group.consumers };
        Ok(())
    }

    fn pending(&mut self, id: StreamId, delivered: u64, count: u64) -> io::Result<()> {
        self.to.put_raw_id(id)?;
        self.to.out.put(&delivered.to_le_bytes())?;
        self.to.put_len(count)?;
        // Behind the last comes how many consumers there are.
        let Body::Group { left, consumers } = &mut self.body else { return Err(misplaced()) };
        *left = left.checked_sub(1).ok_or_else(misplaced)?;
        match (*left, *consumers) {
            (0, consumers) => self.to.put_len(consumers),
            _ => Ok(()),
        }
    }

    fn consumer(&mut self, consumer: &ConsumerOutline<'_>) -> io::Result<()> {
        self.to.put_string(consumer.name)?;
        self.to.out.put(&consumer.seen.to_le_bytes())?;
        if self.version >= 11 {
            self.to.out.put(&consumer.active.unwrap_or(u64::MAX).to_le_bytes())?;
        }
        self.to.put_len(consumer.pending)
    }

    fn owned(&mut self, id: StreamId) -> io::Result<()> {
        self.to.put_raw_id(id)
    }

    fn end(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.body, Body::Nothing) {
            Body::Gathered(bytes) => self.to.put_string(&bytes),
            Body::Packed => self.to.put_listpack(),
            Body::Intset(mut ints) => self.to.put_bytes(&put_intset(&mut ints)),
            Body::Nodes(0) => {
                self.to.put_len(node::PACKED)?;
                self.to.put_listpack()
            }
            Body::Each | Body::Timed(_) | Body::String(0) => Ok(()),
            Body::Stream(Nodes { left: 0, .. }) | Body::Group { left: 0, .. } => Ok(()),
            Body::Nothing
            | Body::String(_)
            | Body::Nodes(_)
            | Body::Stream(_)
            | Body::Group { .. } => Err(misplaced()),
        }
    }
}

/// The integer that a score is, if it is written as one and comes back the same.
fn exact_int(score: f64) -> Option<i64> {
    let is_zero = score == 0.0 && score.is_sign_negative();
    let is_int = score.fract() == 0.0 && score.abs() < (1u64 << 53) as f64;
    (is_int && !is_zero).then_some(score as i64)
}

/// A score in digits: Redis reads no more than 127 of them.
fn score_text(score: f64) -> String {
    const LEN_MAX: usize = 40;
    let text = score.to_string();
    if text.len() > LEN_MAX { format!("{score:e}") } else { text }
}

/// Writes the times of a hash's fields as auxiliary fields, some at once:
///
/// ```text
///  | Unix ms: 8 | length of the field: 4 | field | ...
/// ```
struct TimesOut<'w, W> {
    to: &'w mut Encoder<W>,
    some: Vec<u8>,
}

/// So many bytes at once, about.
const TIMES_BYTES: usize = 4096;

impl<'w, W: Write> TimesOut<'w, W> {
    fn new(to: &'w mut Encoder<W>) -> Self {
        Self { to, some: Vec::new() }
    }

    fn give(&mut self) -> io::Result<()> {
        if self.some.is_empty() {
            return Ok(());
        }
        self.to.out.put(&[op::AUX])?;
        self.to.put_string(FIELD_TIMES)?;
        self.to.put_bytes(&self.some)?;
        self.some.clear();
        Ok(())
    }
}

impl<W: Write> Elements for TimesOut<'_, W> {
    fn hash(&mut self, _: &Outline) -> io::Result<()> {
        Ok(())
    }

    fn field(
        &mut self,
        field: &NewStr<'_>,
        _: &NewStr<'_>,
        expires: Option<u64>,
    ) -> io::Result<()> {
        let Some(at) = expires else { return Ok(()) };
        self.some.extend_from_slice(&at.to_le_bytes());
        self.some.extend_from_slice(&(field.len() as u32).to_le_bytes());
        match field {
            NewStr::Bytes(bytes) | NewStr::Text(bytes) | NewStr::Changed(bytes) => {
                self.some.extend_from_slice(bytes);
            }
            NewStr::Int(value) => self.some.extend_from_slice(value.to_string().as_bytes()),
            NewStr::Chain(chain) => {
                chain.parts().iter().for_each(|part| self.some.extend_from_slice(part));
            }
        }
        if self.some.len() >= TIMES_BYTES { self.give() } else { Ok(()) }
    }

    fn end(&mut self) -> io::Result<()> {
        self.give()
    }
}
