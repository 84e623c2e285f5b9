//! Reads RDB, from anything that bytes can be read from, a step at a time.
//!
//! What bytes claim is never believed: room is taken for what has come, not for what is
//! announced; every collection is checked as it is read; and an error says at which byte,
//! in which database and at which key the bytes went wrong. Memory is bounded by a few
//! times the longest string, small collection or node that was read.

use crate::lzf;
use crate::numbers::{CRC, FIELD_TIMES, module, op, string};
use crate::packs::Bad;
use snug_store::elements::Elements;
use snug_store::types::string::NewStr;
use std::collections::HashMap;
use std::io::{self, Read};

mod values;

/// The latest version that is read: that of Redis 7.4 and 8.
pub const VERSION_MAX: u32 = 12;
/// The first with a checksum at the end.
const VERSION_CHECKSUM: u32 = 5;

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 64 * 1024;
/// A string is taken in steps of so many bytes: room is not taken before they come.
const STEP_BYTES: usize = 64 * 1024;

/// How RDB is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Whether the checksum at the end is checked, if there is one.
    pub checksum: bool,
}

impl ReadOptions {
    /// All is checked.
    pub const DEFAULT: Self = Self { checksum: true };
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What is wrong with the bytes.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// They could not be read.
    #[error("cannot be read: {0}")]
    Unread(io::Error),
    /// They end too early.
    #[error("the end is missing")]
    CutShort,
    /// They do not begin as RDB does.
    #[error("this is no RDB file")]
    Magic,
    /// They are of a version that is not known.
    #[error("version {0} is not known: it is at most {VERSION_MAX}")]
    Version(u32),
    /// The checksum at the end is not theirs.
    #[error("the checksum is {found:016x} where {told:016x} is written")]
    Checksum {
        /// What the bytes come to.
        found: u64,
        /// What is written.
        told: u64,
    },
    /// There is no such type or opcode.
    #[error("there is no type of value {0}")]
    Type(u8),
    /// A value is a module's.
    #[error("its value is data of the module '{0}', which Snug does not have")]
    Module(String),
    /// Functions are in the form that release candidates of Redis 7.0 had.
    #[error("functions of a release candidate of Redis 7.0 cannot be read")]
    OldFunctions,
    /// They do not belong together.
    #[error("{0}")]
    Malformed(String),
    /// What takes the elements could not go on.
    #[error("{0}")]
    NotTaken(io::Error),
}

/// What is wrong, and where.
#[derive(Debug, thiserror::Error)]
pub struct Error {
    /// At which byte, counted from the first.
    pub at: u64,
    /// In which database.
    pub db: u64,
    /// At which key, if one had begun.
    pub key: Option<Vec<u8>>,
    /// What.
    #[source]
    pub what: Problem,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const NAME_MAX: usize = 128;
        if let Some(key) = &self.key {
            let name = key[..key.len().min(NAME_MAX)].escape_ascii();
            let more = if key.len() > NAME_MAX { "..." } else { "" };
            write!(f, "key '{name}{more}' of database {}, ", self.db)?;
        }
        write!(f, "byte {}: {}", self.at, self.what)
    }
}

impl From<Bad> for Problem {
    fn from(bad: Bad) -> Self {
        Self::Malformed(bad.0.into())
    }
}

/// What takes elements says that they do not belong together, or that it cannot go on.
fn not_taken(error: io::Error) -> Problem {
    match error.kind() {
        io::ErrorKind::InvalidData => Problem::Malformed(error.to_string()),
        _ => Problem::NotTaken(error),
    }
}

/// A key whose value follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its name.
    pub key: Vec<u8>,
    /// When it expires, in Unix milliseconds.
    pub expiry: Option<u64>,
    /// For how many seconds it was not used.
    pub idle: Option<u64>,
    /// How often it was used, as `OBJECT FREQ` tells it.
    pub freq: Option<u8>,
    /// RDB's number of the type of value.
    pub kind: u8,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An auxiliary field.
    Aux(Vec<u8>, Vec<u8>),
    /// The keys that follow are of this database.
    Database(u64),
    /// Of so many keys it has, so many expire: a hint.
    Sizes {
        /// Keys.
        keys: u64,
        /// Those of them that expire.
        expiring: u64,
    },
    /// The same of a slot of a cluster.
    Slot {
        /// The slot.
        slot: u64,
        /// Keys.
        keys: u64,
        /// Those of them that expire.
        expiring: u64,
    },
    /// A library of functions.
    Function(Vec<u8>),
    /// Data of a module that belongs to no key; it was passed over.
    ModuleAux(String),
    /// A key: its value is to be read before anything else.
    Key(Head),
    /// The end. The checksum has been checked.
    End,
}

/// Bytes on their way in, counted and summed up.
struct Input<R> {
    from: R,
    buffer: Vec<u8>,
    /// Where in the buffer what was not read begins, and up to where it was summed up.
    at: usize,
    summed: usize,
    crc: Option<crc::Digest<'static, u64, crc::Table<16>>>,
    /// Bytes before the buffer.
    before: u64,
}

impl<R: Read> Input<R> {
    fn new(from: R, checksum: bool) -> Self {
        let crc = checksum.then(|| CRC.digest());
        Self { from, buffer: Vec::new(), at: 0, summed: 0, crc, before: 0 }
    }

    fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    /// What was read is summed up.
    fn sum(&mut self) {
        if let Some(crc) = &mut self.crc {
            crc.update(&self.buffer[self.summed..self.at]);
        }
        self.summed = self.at;
    }

    /// Some bytes that were not read yet; none at the end.
    fn fill(&mut self) -> Result<&[u8], Problem> {
        if self.at == self.buffer.len() {
            self.sum();
            self.before += self.buffer.len() as u64;
            (self.at, self.summed) = (0, 0);
            self.buffer.resize(BUFFER_BYTES, 0);
            let read = loop {
                match self.from.read(&mut self.buffer) {
                    Ok(read) => break read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        self.buffer.clear();
                        return Err(Problem::Unread(error));
                    }
                }
            };
            self.buffer.truncate(read);
        }
        Ok(&self.buffer[self.at..])
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let mut bytes = [0; N];
        let mut got = 0;
        while got < N {
            let some = self.fill()?;
            let count = some.len().min(N - got);
            if count == 0 {
                return Err(Problem::CutShort);
            }
            bytes[got..got + count].copy_from_slice(&some[..count]);
            self.at += count;
            got += count;
        }
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8, Problem> {
        Ok(self.bytes::<1>()?[0])
    }

    /// Gives the next `len` bytes to `take`, some at a time.
    fn each(
        &mut self,
        mut len: u64,
        mut take: impl FnMut(&[u8]) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        while len > 0 {
            let some = self.fill()?;
            let count = some.len().min(usize::try_from(len).unwrap_or(usize::MAX)).min(STEP_BYTES);
            if count == 0 {
                return Err(Problem::CutShort);
            }
            take(&some[..count])?;
            self.at += count;
            len -= count as u64;
        }
        Ok(())
    }

    fn vec(&mut self, len: u64) -> Result<Vec<u8>, Problem> {
        let mut bytes =
            Vec::with_capacity(usize::try_from(len).unwrap_or(usize::MAX).min(STEP_BYTES));
        self.each(len, |some| {
            bytes.extend_from_slice(some);
            Ok(())
        })?;
        Ok(bytes)
    }
}

/// A length, or that what follows is no string of some length.
enum Length {
    Of(u64),
    Encoded(u8),
}

/// A string as it was written.
#[derive(Clone, Debug)]
enum Text {
    Bytes(Vec<u8>),
    Int(i64),
}

impl Text {
    fn value(&self) -> NewStr<'_> {
        match self {
            Self::Bytes(bytes) => NewStr::Bytes(bytes),
            Self::Int(value) => NewStr::Int(*value),
        }
    }

    fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Int(value) => value.to_string().into_bytes(),
        }
    }
}

impl<R: Read> Input<R> {
    fn length(&mut self) -> Result<Length, Problem> {
        let head = self.byte()?;
        Ok(match (head >> 6, head) {
            (0, _) => Length::Of(u64::from(head)),
            (1, _) => Length::Of(u64::from(head & 0x3f) << 8 | u64::from(self.byte()?)),
            (3, _) => Length::Encoded(head & 0x3f),
            (_, 0x80) => Length::Of(u64::from(u32::from_be_bytes(self.bytes()?))),
            (_, 0x81) => Length::Of(u64::from_be_bytes(self.bytes()?)),
            _ => return Err(Problem::Malformed(format!("a length begins with byte {head:#x}"))),
        })
    }

    fn len(&mut self) -> Result<u64, Problem> {
        match self.length()? {
            Length::Of(len) => Ok(len),
            Length::Encoded(_) => {
                Err(Problem::Malformed("a string where a length should be".into()))
            }
        }
    }

    fn u64(&mut self) -> Result<u64, Problem> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    /// A string that begins with this length.
    fn text_of(&mut self, length: Length) -> Result<Text, Problem> {
        Ok(match length {
            Length::Of(len) => Text::Bytes(self.vec(len)?),
            Length::Encoded(string::INT_8) => Text::Int(i64::from(self.byte()? as i8)),
            Length::Encoded(string::INT_16) => {
                Text::Int(i64::from(i16::from_le_bytes(self.bytes()?)))
            }
            Length::Encoded(string::INT_32) => {
                Text::Int(i64::from(i32::from_le_bytes(self.bytes()?)))
            }
            Length::Encoded(string::LZF) => {
                let bad = || Problem::Malformed("a compressed string is damaged".into());
                let (packed_len, len) = (self.len()?, self.len()?);
                let len = usize::try_from(len).map_err(|_| bad())?;
                if len > lzf::raw_max(usize::try_from(packed_len).map_err(|_| bad())?) {
                    return Err(bad());
                }
                let packed = self.vec(packed_len)?;
                Text::Bytes(lzf::expand(&packed, len).ok_or_else(bad)?)
            }
            Length::Encoded(encoding) => {
                return Err(Problem::Malformed(format!("a string has no encoding {encoding}")));
            }
        })
    }

    fn text(&mut self) -> Result<Text, Problem> {
        let length = self.length()?;
        self.text_of(length)
    }

    fn string(&mut self) -> Result<Vec<u8>, Problem> {
        Ok(self.text()?.into_bytes())
    }

    /// Passes over a string.
    fn skip_string(&mut self) -> Result<(), Problem> {
        match self.length()? {
            Length::Of(len) => self.each(len, |_| Ok(())),
            encoded @ Length::Encoded(_) => self.text_of(encoded).map(drop),
        }
    }

    /// Passes over what a module has written.
    fn skip_module(&mut self) -> Result<(), Problem> {
        loop {
            match self.len()? {
                module::END => return Ok(()),
                module::SIGNED | module::UNSIGNED => _ = self.len()?,
                module::FLOAT => _ = self.bytes::<4>()?,
                module::DOUBLE => _ = self.bytes::<8>()?,
                module::STRING => self.skip_string()?,
                code => {
                    return Err(Problem::Malformed(format!("a module's data has code {code}")));
                }
            }
        }
    }
}

/// The name of a module type, which its number spells.
fn module_name(id: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..9).map(|n| char::from(LETTERS[(id >> (58 - 6 * n)) as usize & 63])).collect()
}

/// Reads keys with their values, one after the other.
pub struct Reader<R> {
    input: Input<R>,
    version: u32,
    db: u64,
    /// The key whose value was announced and not read yet.
    key: Option<Vec<u8>>,
    /// The times of fields of the hash that comes next.
    times: HashMap<Vec<u8>, u64>,
    is_over: bool,
}

impl<R> std::fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("version", &self.version).finish_non_exhaustive()
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub fn new(from: R, options: ReadOptions) -> Result<Self, Error> {
        let mut reader = Self::headless(from, VERSION_MAX, options.checksum);
        reader.locate(|reader| {
            let [magic @ .., a, b, c, d] = reader.input.bytes::<9>()?;
            let digits = [a, b, c, d];
            if &magic != b"REDIS" || !digits.iter().all(u8::is_ascii_digit) {
                return Err(Problem::Magic);
            }
            let number = |n: u32, digit: &u8| n * 10 + u32::from(digit - b'0');
            reader.version = digits.iter().fold(0, number);
            if !(1..=VERSION_MAX).contains(&reader.version) {
                return Err(Problem::Version(reader.version));
            }
            Ok(())
        })?;
        Ok(reader)
    }

    fn headless(from: R, version: u32, checksum: bool) -> Self {
        let input = Input::new(from, checksum);
        Self { input, version, db: 0, key: None, times: HashMap::new(), is_over: false }
    }

    /// The version that the header names.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Bytes that were read so far.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// What it read from, and what it had read of that which is behind the end.
    pub fn into_parts(self) -> (R, Vec<u8>) {
        let Input { from, mut buffer, at, .. } = self.input;
        buffer.drain(..at);
        (from, buffer)
    }

    /// Says where, if it fails.
    fn locate<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Problem>,
    ) -> Result<T, Error> {
        read(self).map_err(|what| {
            self.is_over = true;
            Error { at: self.offset(), db: self.db, key: self.key.take(), what }
        })
    }

    /// What comes next. Behind an error, or the end, comes the end.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Event, Error> {
        if self.is_over {
            return Ok(Event::End);
        }
        self.locate(|reader| {
            if reader.key.is_some() {
                return Err(Problem::Malformed("the value before was not read".into()));
            }
            reader.event()
        })
    }

    fn event(&mut self) -> Result<Event, Problem> {
        let (mut expiry, mut idle, mut freq) = (None, None, None);
        let input = &mut self.input;
        loop {
            return Ok(match input.byte()? {
                op::EXPIRES_SECONDS => {
                    let at = i64::from(i32::from_le_bytes(input.bytes()?));
                    expiry = Some((at * 1000).max(0) as u64);
                    continue;
                }
                op::EXPIRES_MS => {
                    expiry = Some((input.u64()? as i64).max(0) as u64);
                    continue;
                }
                op::IDLE => {
                    idle = Some(input.len()?);
                    continue;
                }
                op::FREQ => {
                    freq = Some(input.byte()?);
                    continue;
                }
                op::AUX => {
                    let (name, value) = (input.string()?, input.string()?);
                    if name == FIELD_TIMES {
                        add_times(&mut self.times, &value)?;
                        continue;
                    }
                    Event::Aux(name, value)
                }
                op::DATABASE => {
                    self.db = input.len()?;
                    Event::Database(self.db)
                }
                op::SIZES => Event::Sizes { keys: input.len()?, expiring: input.len()? },
                op::SLOT_INFO => {
                    Event::Slot { slot: input.len()?, keys: input.len()?, expiring: input.len()? }
                }
                op::FUNCTION => Event::Function(input.string()?),
                op::FUNCTION_PRE_RELEASE => return Err(Problem::OldFunctions),
                op::MODULE_AUX => {
                    let id = input.len()?;
                    // When it was written: a number.
                    input.len()?;
                    input.len()?;
                    input.skip_module()?;
                    Event::ModuleAux(module_name(id))
                }
                op::END => {
                    self.is_over = true;
                    self.check_end()?;
                    Event::End
                }
                kind => {
                    let key = input.string()?;
                    self.key = Some(key.clone());
                    Event::Key(Head { key, expiry, idle, freq, kind })
                }
            });
        }
    }

    fn check_end(&mut self) -> Result<(), Problem> {
        if self.version < VERSION_CHECKSUM {
            return Ok(());
        }
        self.input.sum();
        let found = self.input.crc.take();
        let found = found.map(crc::Digest::<u64, _>::finalize);
        let told = self.input.u64()?;
        match found {
            // None was written.
            _ if told == 0 => Ok(()),
            Some(found) if found != told => Err(Problem::Checksum { found, told }),
            _ => Ok(()),
        }
    }

    /// Gives `out` the elements of the key's value, which was announced last.
    pub fn value(&mut self, head: &Head, out: &mut dyn Elements) -> Result<(), Error> {
        self.locate(|reader| {
            let times = std::mem::take(&mut reader.times);
            values::read(&mut reader.input, head.kind, times, out)?;
            reader.key = None;
            Ok(())
        })
    }

    /// Passes over the key's value, which was announced last.
    pub fn skip(&mut self, head: &Head) -> Result<(), Error> {
        self.value(head, &mut values::Ignored)
    }
}

/// Reads some times of fields, as `writer.rs` writes them.
fn add_times(times: &mut HashMap<Vec<u8>, u64>, mut some: &[u8]) -> Result<(), Problem> {
    while !some.is_empty() {
        let one = || {
            let (at, rest) = some.split_first_chunk::<8>()?;
            let (len, rest) = rest.split_first_chunk::<4>()?;
            let (field, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            Some((u64::from_le_bytes(*at), field, rest))
        };
        let bad = || Problem::Malformed("the times of a hash's fields are damaged".into());
        let (at, field, rest) = one().ok_or_else(bad)?;
        times.insert(field.to_vec(), at);
        some = rest;
    }
    Ok(())
}

/// That a dump is none: its version is too high, or its checksum wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("DUMP payload version or checksum are wrong")]
pub struct NoDump;

/// Why a dump was not restored.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    /// It is none.
    #[error(transparent)]
    NoDump(#[from] NoDump),
    /// What is in it is damaged.
    #[error(transparent)]
    Damaged(#[from] Error),
}

/// Bytes behind the value of a dump: version and checksum.
const FOOTER: usize = 10;

/// Gives `out` the elements of the value in a dump, which comes in parts.
pub fn restore<'p>(
    parts: impl Iterator<Item = &'p [u8]> + Clone,
    out: &mut dyn Elements,
) -> Result<(), Wrong> {
    let len: usize = parts.clone().map(<[u8]>::len).sum();
    let body = len.checked_sub(FOOTER).filter(|&body| body > 0).ok_or(NoDump)?;
    let mut footer = [0; FOOTER];
    let (mut crc, mut at) = (CRC.digest(), 0);
    for part in parts.clone() {
        // The version is summed up, too.
        let summed = part.len().min((len - 8).saturating_sub(at));
        crc.update(&part[..summed]);
        for (n, byte) in part.iter().enumerate().skip(body.saturating_sub(at)) {
            footer[at + n - body] = *byte;
        }
        at += part.len();
    }
    let [low, high, checksum @ ..] = footer;
    let version = u32::from(u16::from_le_bytes([low, high]));
    if version > VERSION_MAX || u64::from_le_bytes(checksum) != crc.finalize() {
        return Err(NoDump.into());
    }
    let bytes = Parts { others: parts, part: &[], left: body };
    let mut reader = Reader::headless(bytes, version, false);
    reader.locate(|reader| {
        let kind = reader.input.byte()?;
        values::read(&mut reader.input, kind, HashMap::new(), out)
    })?;
    Ok(())
}

/// The libraries in a payload of `FUNCTION DUMP`.
pub fn restore_functions(payload: &[u8]) -> Result<Vec<Vec<u8>>, Wrong> {
    let body = payload.len().checked_sub(FOOTER).ok_or(NoDump)?;
    let (summed, checksum) = payload.split_at(payload.len() - 8);
    let version = u32::from(u16::from_le_bytes([payload[body], payload[body + 1]]));
    let mut crc = CRC.digest();
    crc.update(summed);
    if version > VERSION_MAX || checksum != crc.finalize().to_le_bytes() {
        return Err(NoDump.into());
    }
    let mut codes = Vec::new();
    let mut reader = Reader::headless(&payload[..body], version, false);
    while reader.offset() < body as u64 {
        codes.push(reader.locate(|reader| match reader.input.byte()? {
            op::FUNCTION => reader.input.string(),
            _ => Err(Problem::OldFunctions),
        })?);
    }
    Ok(codes)
}

/// The first so many bytes of some parts, to be read.
struct Parts<'p, I> {
    others: I,
    part: &'p [u8],
    left: usize,
}

impl<'p, I: Iterator<Item = &'p [u8]>> Read for Parts<'p, I> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            let Some(part) = self.others.next() else { return Ok(0) };
            self.part = part;
        }
        let count = self.part.len().min(out.len()).min(self.left);
        out[..count].copy_from_slice(&self.part[..count]);
        self.part = &self.part[count..];
        self.left -= count;
        Ok(count)
    }
}
