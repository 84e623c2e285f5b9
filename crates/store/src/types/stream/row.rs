//! The stream's row in the table of types, and its one form.
#![allow(unsafe_code)]

use super::{Group, Stream, StreamId};
use crate::image::{Pen, Source};
use crate::pack::piece::PieceJob;
use crate::types::elements::{ConsumerOutline, Elements, GroupOutline, StreamFacts, StreamOutline};
use crate::types::forms::{
    Asked, Back, Boxed, Form, FormRow, Installed, Learner, Measure, Met, Packing, Value, Wish,
};
use crate::types::{DataType, Reader, Sink, Unreadable, Unsaved};
use smallvec::SmallVec;
use std::io::{self, Write as _};
use std::ops::ControlFlow;

/// The least bytes in the tail of a cold stream that make a block of their own:
/// less would hardly pack, and each block costs its place in the index.
pub(crate) const TAIL_MIN: usize = 4096;

/// Entries to one node of a stream in Redis, and the nodes of the radix tree above
/// each: one that has its ID and one that branches.
const NODE_ENTRIES: usize = 100;
const TREE_NODES: usize = 2;

/// The stream type.
#[derive(Debug)]
pub(crate) struct Streams;

impl DataType for Streams {
    const NAME: &'static str = "stream";
    const NUMBER: u32 = 6;
    const FORMS: &'static [FormRow] = &[FormRow::boxed::<Stream>()];

    fn encoding(_: Value<'_>, _: usize, _: &mut dyn FnMut() -> u8) -> &'static str {
        "stream"
    }

    /// Of each entry its ID, and name and value of each of its fields.
    fn digest(
        value: Value<'_>,
        reader: &mut dyn Reader,
        sink: &mut dyn Sink,
    ) -> Result<(), Unreadable> {
        let Some(stream) = value.get::<Stream>() else { return Ok(()) };
        let mut id_text = Vec::new();
        stream.range(StreamId::MIN, StreamId::MAX, false, reader.scratch(), |id, fields| {
            id_text.clear();
            // Writing to a vector does not fail.
            let _ = write!(id_text, "{}.{}", id.ms, id.seq);
            sink.piece(&id_text);
            for (field, value) in fields {
                sink.piece(field);
                sink.piece(value);
            }
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    fn save(
        value: Value<'_>,
        reader: &mut dyn Reader,
        out: &mut dyn Elements,
    ) -> Result<(), Unsaved> {
        let Some(stream) = value.get::<Stream>() else { return Ok(()) };
        out.stream(&StreamOutline { len: stream.len(), bytes: stream.raw_size() })?;
        let (mut first_id, mut taken) = (None, Ok(()));
        stream.range(StreamId::MIN, StreamId::MAX, false, reader.scratch(), |id, fields| {
            first_id.get_or_insert(id);
            let fields: SmallVec<[(&[u8], &[u8]); 16]> = fields.collect();
            taken = out.entry(id, &fields);
            if taken.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        taken?;
        let groups = stream.groups().map(|groups| groups.iter().as_slice()).unwrap_or_default();
        out.facts(&StreamFacts {
            len: Some(stream.len()),
            last_id: stream.last_id(),
            first_id: first_id.unwrap_or_default(),
            max_deleted_id: stream.max_deleted_id(),
            entries_added: Some(stream.entries_added()),
            groups: groups.len() as u64,
        })?;
        for group in groups {
            save_group(group, out)?;
        }
        Ok(out.end()?)
    }
}

fn save_group(group: &Group, out: &mut dyn Elements) -> io::Result<()> {
    out.group(&GroupOutline {
        name: group.name(),
        last_id: group.last_id(),
        entries_read: group.entries_read(),
        pending: group.pending().len() as u64,
        consumers: group.consumers().len() as u64,
    })?;
    let all = (StreamId::MIN, StreamId::MAX);
    for entry in group.pending_between(all, None, u64::MAX) {
        out.pending(entry.id, entry.delivered, entry.count)?;
    }
    for (id, consumer) in group.consumers() {
        out.consumer(&ConsumerOutline {
            name: consumer.name(),
            seen: consumer.seen(),
            active: consumer.active(),
            pending: consumer.pending(),
        })?;
        for entry in group.pending_between(all, Some(id), u64::MAX) {
            out.owned(entry.id)?;
        }
    }
    Ok(())
}

// SAFETY: box number 2 is of streams alone.
unsafe impl Boxed for Stream {
    const FORM: Form = Form::boxed(2);
    const IS_IN_PARTS: bool = true;

    fn measure(&self) -> Measure {
        let memory = self.memory();
        Measure {
            allocated: memory.allocated,
            raw: memory.raw,
            packed_from: memory.packed_from,
            packed: memory.packed,
            pending: self.pending_work(),
        }
    }

    fn duplicate(&self) -> Self {
        Self::duplicate(self)
    }

    fn packing(&self) -> Packing {
        let memory = self.memory();
        Packing {
            codec: self.codec().name(),
            dictionary: self.dictionary().cloned(),
            allocated_raw: super::usable(size_of::<Self>())
                + memory.allocated.saturating_sub(memory.packed)
                + memory.packed_from,
        }
    }

    /// Seals the tail of one that has cooled, so that it is packed as the other blocks
    /// are, and has the blocks tried again if another policy may decide differently
    /// on them, or their family has another dictionary. A copy of at most one block.
    fn cool(&mut self, met: &Met<'_>) -> Wish {
        let sealed = met.access == 1 && self.tail_bytes() >= TAIL_MIN && self.seal_tail();
        let again = (met.concerns)(self.memory().raw)
            || self.may_share() && (met.new_dictionary)().is_some_and(|id| self.shares_not(id));
        if again {
            self.reconsider();
        }
        if sealed || again && self.pending_work() > 0 { Wish::Pieces } else { Wish::Nothing }
    }

    /// What Redis reckons freeing a stream to take, with its default
    /// `stream-node-max-entries`: the nodes of its tree, and of each group what is
    /// pending in the first.
    fn effort(&self) -> usize {
        let nodes = (self.len() as usize).div_ceil(NODE_ENTRIES) * TREE_NODES;
        let groups = self.groups().filter(|groups| !groups.is_empty());
        let first = groups.and_then(|groups| groups.iter().next());
        let pending = first.map_or(0, |group| group.pending().len());
        nodes + groups.map_or(0, |groups| groups.len() * (1 + pending))
    }

    fn next_job(&mut self, asked: &Asked<'_>) -> Option<Box<dyn PieceJob>> {
        self.next_piece(&asked.params.shape)
    }

    fn install(&mut self, job: &mut dyn PieceJob, back: &Back) -> Installed {
        if self.take_back(job, back.new_dictionary) { Installed::Here } else { Installed::Not }
    }

    fn store(&self, pen: &mut dyn Pen) -> io::Result<()> {
        self.write(pen)
    }

    fn fetch(source: &mut dyn Source) -> io::Result<Self> {
        Self::read(source)
    }

    fn learner(&mut self) -> Option<&mut (dyn Learner + 'static)> {
        Some(self)
    }
}
