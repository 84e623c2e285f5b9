//! Reading the whole of a value, whatever of it is packed: for digests.

use crate::large::PackedChain;
use crate::pack::form::Damaged;
use crate::packing::PackedStr;
use crate::slot::{Found, SlotGuard};
use crate::store::Session;
use crate::types::stream::StreamScratch;
use crate::types::{Reader, Sink, Unreadable};
use bytes::Bytes;

/// What a session unpacks values with.
pub(crate) struct OfSession<'r> {
    pub(crate) session: &'r Session,
    pub(crate) scratch: &'r mut StreamScratch,
}

impl Reader for OfSession<'_> {
    fn unpack(&mut self, form: &[u8], out: &mut Vec<u8>) -> Result<(), Damaged> {
        PackedStr { form, session: self.session }.append_to(out)
    }

    fn segment(&mut self, chain: &PackedChain, index: usize) -> Result<Bytes, Damaged> {
        self.session.segment(chain, index)
    }

    fn scratch(&mut self) -> &mut StreamScratch {
        self.scratch
    }
}

impl SlotGuard<'_> {
    /// Gives the sink all that a value is made of, and lets go of the slot: before
    /// that, if a copy of the value shares its bytes. Counts as no access, and what is
    /// packed stays packed. O(value).
    pub fn digest(
        self,
        found: Found,
        scratch: &mut StreamScratch,
        sink: &mut dyn Sink,
    ) -> Result<(), Unreadable> {
        let session = self.session();
        let mut reader = OfSession { session, scratch };
        if self.is_away(found) {
            // It stays there: all that there is may not fit in memory.
            let copy = self.duplicate(found);
            drop(self);
            let brought = session.store().noted_lost(copy.brought())?;
            let value = brought.as_ref().unwrap_or(&copy).value();
            return (value.form().type_of().row().digest)(value, &mut reader, sink);
        }
        let value = self.cell(found).value();
        let digest = value.form().type_of().row().digest;
        match value.share() {
            Some(shared) => {
                drop(self);
                digest(shared.value(), &mut reader, sink)
            }
            None => digest(value, &mut reader, sink),
        }
    }
}
