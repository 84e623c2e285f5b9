//! Streams in a locked slot: made, appended to and changed, and counted as they grow.

use crate::books::weight::Weight;
use crate::cell::entry::{Cell, Payload};
use crate::hash::Key;
use crate::slot::{Found, SlotGuard, after_write};
use crate::types::stream::{Shape, Stream, StreamError, StreamId};

impl SlotGuard<'_> {
    /// The stream, or `None` if the value is of another type.
    pub fn stream(&self, found: Found) -> Option<&Stream> {
        self.cell(found).get()
    }

    /// The stream, to note something in it that is no effect and takes no memory.
    pub(crate) fn stream_to_note(&mut self, found: Found) -> Option<&mut Stream> {
        self.cell_mut(found).get_mut()
    }

    /// Changes a stream, and counts what it takes afterwards. `None` if the
    /// value is of another type.
    pub(crate) fn with_stream<R>(
        &mut self,
        found: Found,
        change: impl FnOnce(&mut Stream) -> R,
    ) -> Option<R> {
        self.stream(found)?;
        self.change(found, |cell| cell.get_mut().map(change))
    }

    /// Seals the tail of a stream, so that it can be packed: [`Stream::seal_tail`].
    pub fn seal_tail(&mut self, found: Found) -> bool {
        self.with_stream(found, Stream::seal_tail) == Some(true)
    }

    /// Appends an entry to a stream: [`Stream::append`], counted by what it says
    /// it added. The value is a stream.
    #[inline]
    pub(crate) fn append_entry<'f>(
        &mut self,
        found: Found,
        id: StreamId,
        fields: impl ExactSizeIterator<Item = (&'f [u8], &'f [u8])> + Clone,
        shape: &Shape,
    ) -> Result<(), StreamError> {
        // One that could not be brought back from disk is none.
        let stream = self.cell_mut(found).get_mut::<Stream>().ok_or(StreamError::Damaged)?;
        let growth = stream.append(id, fields, shape)?;
        Weight::grow_stream(growth, self.session().store());
        if growth.pending > 0 {
            self.note_unpacked();
        }
        Ok(())
    }

    /// Creates an empty stream under a key that does not exist.
    pub(crate) fn insert_stream(&mut self, key: &Key<'_>) -> Found {
        let mut cell = Cell::new(key.tag(), key.bytes, None, Payload::boxed(Stream::new()));
        cell.set_access(after_write(self.session(), 0));
        self.insert(key, cell)
    }
}
