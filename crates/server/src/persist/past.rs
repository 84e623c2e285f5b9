//! Where the stream of replication was at the moment of a snapshot: with it, a node that
//! starts again from its file goes on where it was, and needs nothing sent anew. The
//! append-only file tells nothing of it, as with Redis.

use snug_rdb::{Event, ReadOptions, Reader};
use snug_store::image::{ImageReader, MAGIC, Part, Trust};
use snug_store::{Limits, Session};
use std::io::{Cursor, Read};

/// A place in a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Past {
    /// The stream's id.
    pub(crate) id: String,
    pub(crate) offset: u64,
    /// The database that is selected there.
    pub(crate) selected: usize,
}

impl Past {
    /// As files tell it, in Redis's words.
    pub(crate) fn facts(&self) -> [(&'static str, String); 3] {
        [
            ("repl-stream-db", self.selected.to_string()),
            ("repl-id", self.id.clone()),
            ("repl-offset", self.offset.to_string()),
        ]
    }

    /// What a file of either format tells in front of its keys, if it does. What is wrong
    /// with it, whoever loads it will say.
    pub(super) fn find(mut file: impl Read, session: &Session) -> Option<Self> {
        let mut first = Vec::new();
        file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut first).ok()?;
        let is_image = first == MAGIC;
        let file = Cursor::new(first).chain(file);
        let mut told: [Option<String>; 3] = Default::default();
        let mut take = |name: &[u8], value: Vec<u8>| {
            let names = Self::default().facts().map(|(name, _)| name.as_bytes());
            if let Some(at) = names.iter().position(|known| *known == name) {
                told[at] = String::from_utf8(value).ok();
            }
        };
        if is_image {
            let mut reader = ImageReader::new(file, session, &Limits::DEFAULT, Trust::Own).ok()?;
            while let Ok(Part::Aux(name, value)) = reader.next() {
                take(&name, value);
            }
        } else {
            let mut reader = Reader::new(file, ReadOptions::DEFAULT).ok()?;
            while let Ok(Event::Aux(name, value)) = reader.next() {
                take(&name, value);
            }
        }
        let [selected, id, offset] = told;
        let id = id.filter(|id| id.len() == 40)?;
        let databases = session.store().databases();
        let selected = selected.and_then(|db| db.parse().ok()).filter(|&db| db < databases);
        Some(Self { id, offset: offset?.parse().ok()?, selected: selected.unwrap_or(0) })
    }
}
