//! A value that lies in a box, as one record: written as it lies in memory, with the
//! packed form of whatever is packed, by the functions that write Snug's files
//! (`image/`), and read back into a box of its own.
//!
//! ```text
//!  record   what `Boxed::store` writes; no dictionaries, and no key
//!  needs    place of a record ──> how often it is referred to, and the dictionaries that
//!           its pieces are packed with, held as long
//! ```
//!
//! One value may need several dictionaries: its family's of several times, and its own.
//! They stay in memory and are held here, beside the records, and not in entries: only
//! large values have such lists, and there are few of these.

use crate::image::{Pen, Source};
use crate::pack::dictionaries::{Dictionaries, HeldDictionary};
use crate::types::forms::{Form, Owned};
use parking_lot::Mutex;
use snug_tier::{Engine, Place};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// The dictionaries of one record.
pub(super) type Needs = Vec<HeldDictionary>;

/// An engine, and what its records need in memory.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(super) engine: Arc<dyn Engine>,
    needs: Mutex<HashMap<Place, (u64, Needs)>>,
}

impl Disk {
    pub(super) fn new(engine: Arc<dyn Engine>) -> Self {
        Self { engine, needs: Mutex::default() }
    }

    /// A record that was just written needs these; it is referred to once.
    pub(super) fn need(&self, place: Place, needs: Needs) {
        if !needs.is_empty() {
            self.needs.lock().insert(place, (1, needs));
        }
    }

    /// What a record needs, again.
    pub(super) fn needs_of(&self, place: Place) -> Needs {
        self.needs.lock().get(&place).map(|(_, needs)| needs.clone()).unwrap_or_default()
    }

    /// One more refers to a record.
    pub(super) fn retain(&self, home: Form, place: Place, len: u32) {
        if home.is_boxed()
            && let Some((count, _)) = self.needs.lock().get_mut(&place)
        {
            *count += 1;
        }
        self.engine.retain(place, len as usize);
    }

    /// One fewer does. The place may be another record's as soon as the engine knows.
    pub(super) fn release(&self, home: Form, place: Place, len: u32) {
        let mut freed = None;
        if home.is_boxed() {
            let mut needs = self.needs.lock();
            if let Some((count, _)) = needs.get_mut(&place) {
                *count -= 1;
                if *count == 0 {
                    freed = needs.remove(&place);
                }
            }
        }
        drop(freed);
        self.engine.release(place, len as usize);
    }
}

/// Writes a value in a box as a record. An error if no record can be of it.
pub(super) fn write(
    value: &Owned,
    dictionaries: &Arc<Dictionaries>,
) -> io::Result<(Vec<u8>, Needs)> {
    let mut pen = RecordPen { dictionaries, bytes: Vec::new(), needs: Vec::new() };
    match value.value().store(&mut pen) {
        Some(stored) => stored.map(|()| (pen.bytes, pen.needs)),
        None => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Reads what was written of a value of this form.
pub(super) fn read(
    form: Form,
    bytes: &[u8],
    dictionaries: &Arc<Dictionaries>,
) -> io::Result<Owned> {
    let mut source = RecordSource { dictionaries, rest: bytes };
    let fetched = form.fetch(&mut source).ok_or(io::ErrorKind::Unsupported)??;
    match source.rest.is_empty() {
        true => Ok(fetched),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "there is more than the value")),
    }
}

struct RecordPen<'d> {
    dictionaries: &'d Arc<Dictionaries>,
    bytes: Vec<u8>,
    needs: Needs,
}

impl Pen for RecordPen<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn need(&mut self, id: u32) -> io::Result<()> {
        if id == 0 || self.needs.iter().any(|held| held.dictionary().id() == id) {
            return Ok(());
        }
        self.needs.push(hold(self.dictionaries, id)?);
        Ok(())
    }
}

struct RecordSource<'r> {
    dictionaries: &'r Arc<Dictionaries>,
    rest: &'r [u8],
}

impl Source for RecordSource<'_> {
    fn some(&mut self) -> io::Result<&[u8]> {
        match self.rest.is_empty() {
            true => Err(io::ErrorKind::UnexpectedEof.into()),
            false => Ok(self.rest),
        }
    }

    fn take(&mut self, count: usize) {
        self.rest = &self.rest[count..];
    }

    fn dictionary(&self, id: u32) -> io::Result<HeldDictionary> {
        hold(self.dictionaries, id)
    }
}

fn hold(dictionaries: &Arc<Dictionaries>, id: u32) -> io::Result<HeldDictionary> {
    let found = dictionaries.get(id);
    let missing = || io::Error::new(io::ErrorKind::InvalidData, "a dictionary is missing");
    found.map(|found| dictionaries.hold(found)).ok_or_else(missing)
}
