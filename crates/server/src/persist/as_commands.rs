//! Values as the commands that make them: the base of an append-only file that people can
//! read (`aof-use-rdb-preamble no`).
//!
//! ```text
//!  SELECT 0
//!  RPUSH list a b c ...                 64 elements a command, at most 64 KiB of them
//!  XADD stream 5-1 field value          each entry; then XSETID, and of each group
//!  XGROUP CREATE stream group 5-1       its consumers, and XCLAIM of what is pending
//!  PEXPIREAT list 1700000000000
//! ```
//!
//! A value passes through in pieces. Of a group, what is pending is held until its
//! consumers are told. What commands cannot say is lost, as in Redis: when a consumer was
//! last seen, and what is pending of entries that are deleted.

use crate::text::double;
use foldhash::HashMap;
use snug_store::elements::{
    ConsumerOutline, Elements, EntryFields, GroupOutline, Outline, StreamFacts, StreamOutline,
};
use snug_store::types::stream::{StreamId, StreamScratch};
use snug_store::{Detached, NewStr, Session, Unsaved};
use std::io::{self, Write};

/// A command is given on when it has so many elements, or bytes of them.
const ELEMENTS: usize = 64;
const BYTES: usize = 64 * 1024;
/// Commands are given on when they have so many bytes.
const GIVE_BYTES: usize = 64 * 1024;

/// Writes commands.
pub(crate) struct CommandsWriter<W> {
    out: W,
    buffer: Vec<u8>,
    db: Option<usize>,
}

impl<W: Write> CommandsWriter<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, buffer: Vec::with_capacity(2 * GIVE_BYTES), db: None }
    }

    /// Writes one command.
    pub(crate) fn command(&mut self, words: &[&[u8]]) -> io::Result<()> {
        self.begin(words.len());
        words.iter().for_each(|word| self.word(word));
        self.give(GIVE_BYTES)
    }

    fn begin(&mut self, words: usize) {
        self.buffer.extend_from_slice(format!("*{words}\r\n").as_bytes());
    }

    fn word(&mut self, word: &[u8]) {
        self.buffer.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        self.buffer.extend_from_slice(word);
        self.buffer.extend_from_slice(b"\r\n");
    }

    /// Gives on what was gathered, if it is so much.
    fn give(&mut self, least: usize) -> io::Result<()> {
        if self.buffer.len() >= least {
            self.out.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Writes what makes a key of a database.
    pub(crate) fn entry(
        &mut self,
        db: usize,
        value: &Detached,
        (session, scratch): (&Session, &mut StreamScratch),
    ) -> Result<(), Unsaved> {
        if self.db.replace(db) != Some(db) {
            self.command(&[b"SELECT", db.to_string().as_bytes()])?;
        }
        let key = value.key();
        let mut maker = Maker {
            out: self,
            key: &key,
            command: b"",
            words: Vec::new(),
            elements: 0,
            times: Vec::new(),
            is_string: false,
            entries: 0,
            group: Vec::new(),
            consumer: Vec::new(),
            pending: HashMap::default(),
        };
        value.save(session, scratch, &mut maker)?;
        if let Some(at) = value.expiry() {
            self.command(&[b"PEXPIREAT", &key, at.to_string().as_bytes()])?;
        }
        Ok(())
    }

    /// All has been given on.
    pub(crate) fn end(mut self) -> io::Result<W> {
        self.give(1)?;
        Ok(self.out)
    }
}

/// Takes the elements of one value.
struct Maker<'m, W> {
    out: &'m mut CommandsWriter<W>,
    key: &'m [u8],
    /// What adds elements, and those that wait to be, as words.
    command: &'static [u8],
    words: Vec<u8>,
    elements: usize,
    /// Fields that expire, and when.
    times: Vec<(Vec<u8>, u64)>,
    is_string: bool,
    entries: u64,
    group: Vec<u8>,
    consumer: Vec<u8>,
    pending: HashMap<StreamId, (u64, u64)>,
}

impl<W: Write> Maker<'_, W> {
    fn add(&mut self, word: &NewStr<'_>) {
        let mut digits = itoa::Buffer::new();
        let chain;
        let bytes = match word {
            NewStr::Bytes(bytes) | NewStr::Text(bytes) | NewStr::Changed(bytes) => bytes,
            NewStr::Int(value) => digits.format(*value).as_bytes(),
            NewStr::Chain(segments) => {
                chain = segments.parts().concat();
                &chain[..]
            }
        };
        self.words.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
        self.words.extend_from_slice(bytes);
        self.words.extend_from_slice(b"\r\n");
    }

    /// An element is whole, of so many words.
    fn added(&mut self, words: usize) -> io::Result<()> {
        self.elements += words;
        if self.elements >= ELEMENTS * words || self.words.len() >= BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.elements > 0 {
            self.out.begin(self.elements + 2);
            self.out.word(self.command);
            self.out.word(self.key);
            self.out.buffer.append(&mut self.words);
            self.elements = 0;
        }
        self.out.give(GIVE_BYTES)
    }
}

impl<W: Write> Elements for Maker<'_, W> {
    fn string(&mut self, len: u64) -> io::Result<()> {
        self.out.begin(3);
        self.out.word(b"SET");
        self.out.word(self.key);
        self.out.buffer.extend_from_slice(format!("${len}\r\n").as_bytes());
        self.is_string = true;
        Ok(())
    }

    fn part(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.buffer.extend_from_slice(bytes);
        self.out.give(GIVE_BYTES)
    }

    fn integer(&mut self, value: i64) -> io::Result<()> {
        self.out.command(&[b"SET", self.key, itoa::Buffer::new().format(value).as_bytes()])
    }

    fn list(&mut self, _: &Outline) -> io::Result<()> {
        self.command = b"RPUSH";
        Ok(())
    }

    fn set(&mut self, _: &Outline) -> io::Result<()> {
        self.command = b"SADD";
        Ok(())
    }

    fn hash(&mut self, _: &Outline) -> io::Result<()> {
        self.command = b"HSET";
        Ok(())
    }

    fn sorted_set(&mut self, _: &Outline) -> io::Result<()> {
        self.command = b"ZADD";
        Ok(())
    }

    fn stream(&mut self, _: &StreamOutline) -> io::Result<()> {
        Ok(())
    }

    fn item(&mut self, item: &NewStr<'_>) -> io::Result<()> {
        self.add(item);
        self.added(1)
    }

    fn field(
        &mut self,
        field: &NewStr<'_>,
        value: &NewStr<'_>,
        expires: Option<u64>,
    ) -> io::Result<()> {
        let before = self.words.len();
        self.add(field);
        if let Some(at) = expires {
            self.times.push((self.words[before..].to_vec(), at));
        }
        self.add(value);
        self.added(2)
    }

    fn member(&mut self, score: f64, member: &NewStr<'_>) -> io::Result<()> {
        let mut text = double::Text::default();
        self.add(&NewStr::Text(text.of(score)));
        self.add(member);
        self.added(2)
    }

    fn entry(&mut self, id: StreamId, fields: &EntryFields<'_>) -> io::Result<()> {
        self.entries += 1;
        self.out.begin(3 + 2 * fields.len());
        self.out.word(b"XADD");
        self.out.word(self.key);
        self.out.word(id.to_string().as_bytes());
        for (name, value) in fields {
            self.out.word(name);
            self.out.word(value);
        }
        self.out.give(GIVE_BYTES)
    }

    fn facts(&mut self, facts: &StreamFacts) -> io::Result<()> {
        if self.entries == 0 {
            // The stream is there, and empty.
            self.out.command(&[b"XADD", self.key, b"MAXLEN", b"0", b"0-1", b"x", b"y"])?;
        }
        let (last, deleted) = (facts.last_id.to_string(), facts.max_deleted_id.to_string());
        let added = facts.entries_added.unwrap_or(self.entries).to_string();
        self.out.command(&[
            b"XSETID",
            self.key,
            last.as_bytes(),
            b"ENTRIESADDED",
            added.as_bytes(),
            b"MAXDELETEDID",
            deleted.as_bytes(),
        ])
    }

    fn group(&mut self, group: &GroupOutline<'_>) -> io::Result<()> {
        self.group = group.name.to_vec();
        self.pending.clear();
        let last = group.last_id.to_string();
        let words: [&[u8]; 5] = [b"XGROUP", b"CREATE", self.key, group.name, last.as_bytes()];
        match group.entries_read {
            None => self.out.command(&words),
            Some(read) => {
                let read = read.to_string();
                self.out.command(&[&words[..], &[b"ENTRIESREAD", read.as_bytes()]].concat())
            }
        }
    }

    fn pending(&mut self, id: StreamId, delivered: u64, count: u64) -> io::Result<()> {
        self.pending.insert(id, (delivered, count));
        Ok(())
    }

    fn consumer(&mut self, consumer: &ConsumerOutline<'_>) -> io::Result<()> {
        self.consumer = consumer.name.to_vec();
        let words: [&[u8]; 5] =
            [b"XGROUP", b"CREATECONSUMER", self.key, &self.group, consumer.name];
        self.out.command(&words)
    }

    fn owned(&mut self, id: StreamId) -> io::Result<()> {
        let (delivered, count) = self.pending.get(&id).copied().unwrap_or_default();
        let (id, delivered, count) = (id.to_string(), delivered.to_string(), count.to_string());
        self.out.command(&[
            b"XCLAIM",
            self.key,
            &self.group,
            &self.consumer,
            b"0",
            id.as_bytes(),
            b"TIME",
            delivered.as_bytes(),
            b"RETRYCOUNT",
            count.as_bytes(),
            b"JUSTID",
            b"FORCE",
        ])
    }

    fn end(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_string) {
            self.out.buffer.extend_from_slice(b"\r\n");
        }
        self.flush()?;
        for (field, at) in std::mem::take(&mut self.times) {
            self.out.begin(6);
            self.out.word(b"HPEXPIREAT");
            self.out.word(self.key);
            self.out.word(at.to_string().as_bytes());
            self.out.word(b"FIELDS");
            self.out.word(b"1");
            self.out.buffer.extend_from_slice(&field);
            self.out.give(GIVE_BYTES)?;
        }
        Ok(())
    }
}
