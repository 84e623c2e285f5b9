//! What a value is, as text: to tell whether two are the same.
// Not every test uses all of it.
#![allow(clippy::unnecessary_wraps, dead_code)]

pub(crate) mod made;

use snug_store::elements::{
    ConsumerOutline, Elements, EntryFields, GroupOutline, Outline, StreamFacts, StreamOutline,
};
use snug_store::types::stream::{StreamId, StreamScratch};
use snug_store::{Detached, Limits, NewStr, Session};
use std::fmt::Write as _;
use std::io;

/// The elements that a value has given; of collections without an order, in one of their
/// text.
#[derive(Default)]
pub(crate) struct Told {
    head: String,
    parts: Vec<u8>,
    lines: Vec<String>,
    is_ordered: bool,
}

pub(crate) fn text(string: &NewStr<'_>) -> String {
    match string {
        NewStr::Bytes(bytes) | NewStr::Text(bytes) | NewStr::Changed(bytes) => {
            bytes.escape_ascii().to_string()
        }
        NewStr::Int(value) => value.to_string(),
        NewStr::Chain(chain) => chain.to_vec().escape_ascii().to_string(),
    }
}

impl Told {
    pub(crate) fn of(value: &Detached, session: &Session) -> String {
        let mut told = Told::default();
        value.save(session, &mut StreamScratch::new(), &mut told).unwrap();
        told.finish()
    }

    pub(crate) fn finish(mut self) -> String {
        if !self.is_ordered {
            self.lines.sort();
        }
        let parts = self.parts.escape_ascii();
        format!("{} {parts} {}", self.head, self.lines.join(", "))
    }

    fn begin(&mut self, what: &str, is_ordered: bool) -> io::Result<()> {
        self.head = what.into();
        self.is_ordered = is_ordered;
        Ok(())
    }

    fn line(&mut self, line: String) -> io::Result<()> {
        self.lines.push(line);
        Ok(())
    }
}

impl Elements for Told {
    fn string(&mut self, _: u64) -> io::Result<()> {
        self.begin("string", true)
    }

    fn part(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.parts.extend_from_slice(bytes);
        Ok(())
    }

    fn integer(&mut self, value: i64) -> io::Result<()> {
        self.begin("string", true)?;
        self.part(value.to_string().as_bytes())
    }

    fn list(&mut self, _: &Outline) -> io::Result<()> {
        self.begin("list", true)
    }

    fn set(&mut self, outline: &Outline) -> io::Result<()> {
        self.begin(if outline.is_compact { "intset" } else { "set" }, false)
    }

    fn hash(&mut self, _: &Outline) -> io::Result<()> {
        self.begin("hash", false)
    }

    fn sorted_set(&mut self, _: &Outline) -> io::Result<()> {
        self.begin("sorted set", true)
    }

    fn stream(&mut self, _: &StreamOutline) -> io::Result<()> {
        self.begin("stream", true)
    }

    fn item(&mut self, item: &NewStr<'_>) -> io::Result<()> {
        self.line(text(item))
    }

    fn field(
        &mut self,
        field: &NewStr<'_>,
        value: &NewStr<'_>,
        expires: Option<u64>,
    ) -> io::Result<()> {
        self.line(format!("{}={} {expires:?}", text(field), text(value)))
    }

    fn member(&mut self, score: f64, member: &NewStr<'_>) -> io::Result<()> {
        self.line(format!("{score:?} {}", text(member)))
    }

    fn entry(&mut self, id: StreamId, fields: &EntryFields<'_>) -> io::Result<()> {
        let mut line = id.to_string();
        for (name, value) in fields {
            let _ = write!(line, " {}={}", name.escape_ascii(), value.escape_ascii());
        }
        self.line(line)
    }

    fn facts(&mut self, facts: &StreamFacts) -> io::Result<()> {
        self.line(format!("{facts:?}"))
    }

    fn group(&mut self, group: &GroupOutline<'_>) -> io::Result<()> {
        self.line(format!("{group:?}"))
    }

    fn pending(&mut self, id: StreamId, delivered: u64, count: u64) -> io::Result<()> {
        self.line(format!("pending {id} {delivered} {count}"))
    }

    fn consumer(&mut self, consumer: &ConsumerOutline<'_>) -> io::Result<()> {
        self.line(format!("{consumer:?}"))
    }

    fn owned(&mut self, id: StreamId) -> io::Result<()> {
        self.line(format!("owned {id}"))
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes a value of the elements that `give` gives.
pub(crate) fn make(
    session: &Session,
    key: &[u8],
    expiry: Option<u64>,
    give: impl FnOnce(&mut dyn Elements) -> io::Result<()>,
) -> Detached {
    let mut making = session.making(&Limits::DEFAULT);
    give(&mut making).unwrap();
    making.end().unwrap();
    making.finish(&session.store().key(key), expiry, None).expect("a value with elements")
}
