//! Large strings, packed: segment by segment, so that any part of one is
//! reached by unpacking that part alone.
//!
//! ```text
//!  raw      Segments    [ 128 KiB ][ 128 KiB ][ 128 KiB ][ rest ]
//!                            |          |          |         |
//!                         packed      packed      same     packed      each by itself
//!                            v          v          v         v
//!  packed   PackedChain [ form    ][ form    ][ 128 KiB ][ form ]      immutable, shared
//! ```
//!
//! A form is one of the codec's streams. It is packed in slices, and unpacked at once,
//! which takes about a tenth of a millisecond. So whoever sends such a value keeps a
//! reference to it and a place in it, however slowly the client reads. No workspace and no
//! window is kept from one segment to the next. Reading a part of a value costs what its
//! segments cost. The price is that no segment can refer to the one before: on text that
//! loses some percent of what is saved. A segment that does not shrink is shared with the
//! raw chain.
//!
//! Who packs and unpacks whole values, and when, is in `large/work.rs`.

use crate::image::{Pen, Source};
use crate::memory::usable;
use crate::pack::form::Damaged;
use crate::pack::piece::PieceParams;
use crate::store::{Batch, Session};
use crate::timing::UnpackTimes;
use bytes::Bytes;
use snug_codec::estimate::{Estimate, Worth};
use snug_codec::packed::Header;
use snug_codec::policy::Choice;
use snug_codec::stream::{self, AtOnce, Pace};
use snug_codec::{Codec, NoDictionaries, SEGMENT_BYTES, Segments, UnpackError, Workspace};
use std::io;
use std::sync::{Arc, Weak};
use std::time::Instant;

pub(crate) mod work;

/// Segments that are estimated before a value is packed.
const ESTIMATED_SEGMENTS: usize = 4;

/// A segment is kept in its packed form if that is shorter by one part in so many.
const SEGMENT_SAVING: usize = 32;

/// A large string in its packed form. Cheap to clone: all clones are the same.
#[derive(Clone, Debug)]
pub struct PackedChain(Arc<Packed>);

#[derive(Debug)]
struct Packed {
    len: usize,
    form_len: usize,
    allocated: usize,
    parts: Box<[Part]>,
}

/// A reference to a [`PackedChain`] that does not keep it.
#[derive(Clone, Debug)]
pub struct WeakChain(Weak<Packed>);

impl WeakChain {
    /// Whether it is a reference to this very chain.
    pub fn is(&self, chain: &PackedChain) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&chain.0))
    }
}

/// A segment of a packed chain as it lies.
#[derive(Clone, Copy, Debug)]
pub enum Lies<'a> {
    /// It did not shrink: its bytes.
    Raw(&'a Bytes),
    /// Its packed form.
    Packed(&'a [u8]),
}

#[derive(Debug)]
enum Part {
    /// As it is: shared with the chain that was packed.
    Raw(Bytes),
    Packed(Box<[u8]>),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Part::Raw(bytes) => bytes,
            Part::Packed(form) => form,
        }
    }
}

impl PackedChain {
    fn new(len: usize, parts: Vec<Part>) -> Self {
        let parts: Box<[Part]> = parts.into();
        let lens = || parts.iter().map(|part| part.bytes().len());
        // The counts of references stand before what is shared.
        let shared = usable(size_of::<Packed>() + 2 * size_of::<usize>());
        let list = usable(size_of_val(&parts[..]));
        let allocated = shared + list + lens().map(usable).sum::<usize>();
        Self(Arc::new(Packed { len, form_len: lens().sum(), allocated, parts }))
    }

    /// A chain of one segment that did not shrink.
    #[cfg(test)]
    pub(crate) fn raw(bytes: &[u8]) -> Self {
        Self::new(bytes.len(), vec![Part::Raw(Bytes::copy_from_slice(bytes))])
    }

    /// A chain of these forms, one a segment. They are not looked at: what is
    /// wrong with one is told by whoever reads it.
    pub fn of_forms<'f>(len: usize, forms: impl IntoIterator<Item = &'f [u8]>) -> Self {
        Self::new(len, forms.into_iter().map(|form| Part::Packed(form.into())).collect())
    }

    /// Writes length and segments: of each whether it is packed, and its bytes.
    pub(crate) fn write(&self, pen: &mut dyn Pen) -> io::Result<()> {
        pen.number(self.0.len as u64)?;
        for part in &self.0.parts {
            pen.put(&[u8::from(matches!(part, Part::Packed(_)))])?;
            pen.counted(part.bytes())?;
        }
        Ok(())
    }

    /// Reads what [`write`](Self::write) wrote. What is wrong with a segment is told by
    /// whoever reads it.
    pub(crate) fn read(source: &mut dyn Source) -> io::Result<Self> {
        let len = usize::try_from(source.number()?).map_err(io::Error::other)?;
        let mut parts = Vec::new();
        for _ in 0..len.div_ceil(SEGMENT_BYTES) {
            let is_packed = source.byte()? == 1;
            let bytes = source.counted()?;
            parts.push(match is_packed {
                true => Part::Packed(bytes.into()),
                false => Part::Raw(bytes.into()),
            });
        }
        Ok(Self::new(len, parts))
    }

    /// The length in bytes once unpacked.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether the string is empty, which a large one is not.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Whether both are the very same, and not only equal.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Where it is: no other has the same address while somebody refers to it, weakly or
    /// not.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// A reference by which it can be told again, and that keeps no segment.
    pub fn downgrade(&self) -> WeakChain {
        WeakChain(Arc::downgrade(&self.0))
    }

    /// Segment `index` as it lies, if there is such a one.
    pub fn lies(&self, index: usize) -> Option<Lies<'_>> {
        Some(match self.0.parts.get(index)? {
            Part::Raw(bytes) => Lies::Raw(bytes),
            Part::Packed(form) => Lies::Packed(form),
        })
    }

    /// Bytes of the packed form.
    pub fn packed_len(&self) -> usize {
        self.0.form_len
    }

    /// How many segments it has.
    pub fn segments(&self) -> usize {
        self.0.len.div_ceil(SEGMENT_BYTES)
    }

    /// The length in bytes of segment `index` once unpacked.
    fn segment_len(&self, index: usize) -> usize {
        self.0.len.saturating_sub(index * SEGMENT_BYTES).min(SEGMENT_BYTES)
    }

    /// Segment `index` as it was: by reference if it is not packed. About a
    /// tenth of a millisecond, of which `times` takes note.
    fn segment(
        &self,
        index: usize,
        workspace: &mut Workspace,
        times: &UnpackTimes,
    ) -> Result<Bytes, Damaged> {
        let len = self.segment_len(index);
        let form = match self.0.parts.get(index) {
            Some(Part::Packed(form)) => form,
            Some(Part::Raw(bytes)) if bytes.len() == len => return Ok(bytes.clone()),
            Some(Part::Raw(_)) | None => return Err(wrong_length(len)),
        };
        let (began, mut raw) = (Instant::now(), Vec::with_capacity(len));
        workspace.unpack(form, &NoDictionaries, &mut raw, len)?;
        times.record(began.elapsed());
        if raw.len() != len {
            return Err(wrong_length(raw.len()));
        }
        Ok(raw.into())
    }

    /// All of it. Stops the caller for as long as that takes: about a
    /// millisecond for each MB.
    fn unpack(&self, workspace: &mut Workspace, times: &UnpackTimes) -> Result<Segments, Damaged> {
        AtOnce::run(self.unpack_in_slices(workspace, times, &AtOnce, u64::MAX))
    }

    /// The same in slices of about `slice_ns`; a segment is never divided.
    async fn unpack_in_slices(
        &self,
        workspace: &mut Workspace,
        times: &UnpackTimes,
        pace: &impl Pace,
        slice_ns: u64,
    ) -> Result<Segments, Damaged> {
        let mut raw = Segments::with_room_for(self.0.len);
        let (mut began, mut last) = (pace.now_ns(), 0);
        for index in 0..self.segments() {
            raw.push_segment(self.segment(index, workspace, times)?);
            let took = pace.now_ns().saturating_sub(began);
            // If another one like the last might not fit.
            if 2 * took - last > slice_ns {
                pace.sliced(took);
                pace.pause().await;
                (began, last) = (pace.now_ns(), 0);
            } else {
                last = took;
            }
        }
        pace.sliced(pace.now_ns().saturating_sub(began));
        Ok(raw)
    }

    /// The codec, for reports.
    pub(crate) fn codec_name(&self) -> &'static str {
        let form = self.0.parts.iter().find(|part| matches!(part, Part::Packed(_)));
        form.map_or("none", |form| crate::pack::form::codec_name(form.bytes()))
    }

    /// The bytes allocated for it.
    pub(crate) fn allocated(&self) -> usize {
        self.0.allocated
    }

    /// The bytes that it would allocate as a raw chain.
    pub(crate) fn raw_allocated(&self) -> usize {
        let segments = self.segments();
        let last = self.segment_len(segments.saturating_sub(1));
        usable(segments * size_of::<Bytes>())
            + segments.saturating_sub(1) * usable(SEGMENT_BYTES)
            + usable(last)
    }

    /// Whether what its headers say is what it holds, as far as that can be told
    /// without unpacking. O(segments).
    pub fn check(&self) -> Result<(), Damaged> {
        for (index, part) in self.0.parts.iter().enumerate() {
            let said = match part {
                Part::Raw(bytes) => bytes.len(),
                Part::Packed(form) => Header::read(form).map_err(UnpackError::from)?.0.raw_len,
            };
            if said != self.segment_len(index) {
                return Err(wrong_length(said));
            }
        }
        Ok(())
    }
}

/// A segment is of another length than it should be.
fn wrong_length(len: usize) -> Damaged {
    Damaged::from(UnpackError::TooLong(len))
}

/// Packs a chain with a policy's `choice` in slices of about `slice_ns`, between
/// which it holds nothing but its own. `None` if that does not save what `params`
/// ask for: after a look at a few kilobytes, unless it is `forced`.
pub async fn pack(
    workspace: &mut Workspace,
    raw: &Segments,
    choice: Choice,
    params: &PieceParams,
    forced: bool,
    pace: &impl Pace,
    slice_ns: u64,
) -> Option<PackedChain> {
    if choice.codec == Codec::None || (!forced && !looks_worth_it(raw)) {
        return None;
    }
    let mut parts = Vec::with_capacity(raw.parts().len());
    for (index, segment) in raw.parts().iter().enumerate() {
        let one = raw.segment(index)?;
        let form =
            stream::pack(workspace, choice.codec, choice.level, &one, pace, slice_ns).await.ok()?;
        let worth = form.len() + segment.len() / SEGMENT_SAVING < segment.len()
            || params.min_saving.keeps_all();
        parts.push(match worth {
            true => Part::Packed(form.to_vec().into()),
            // The last one may have been given more room than it uses.
            false if index + 1 == raw.parts().len() => Part::Raw(Bytes::copy_from_slice(segment)),
            false => Part::Raw(segment.clone()),
        });
        pace.pause().await;
    }
    let packed = PackedChain::new(raw.len(), parts);
    params.min_saving.is_met(packed.len(), packed.packed_len()).then_some(packed)
}

/// Whether some of the chain looks as if it could be packed: a few kilobytes of
/// a few segments.
fn looks_worth_it(raw: &Segments) -> bool {
    let parts = raw.parts();
    let step = parts.len().div_ceil(ESTIMATED_SEGMENTS).max(1);
    let mut seen = parts.iter().step_by(step).map(|part| Estimate::of(part).worth());
    seen.any(|worth| worth != Worth::Nothing)
}

/// A packed large string in its slot.
#[derive(Clone, Copy, Debug)]
pub struct PackedLarge<'a> {
    pub(crate) chain: &'a PackedChain,
    pub(crate) session: &'a Session,
}

impl PackedLarge<'_> {
    /// The length in bytes once unpacked.
    pub fn len(&self) -> usize {
        self.chain.len()
    }

    /// Whether the string is empty.
    pub fn is_empty(&self) -> bool {
        self.chain.is_empty()
    }

    /// The chain, to be read after the slot's lock is gone.
    pub fn share(&self) -> PackedChain {
        self.chain.clone()
    }

    /// The same, if what its headers say is what it holds. O(segments).
    pub fn checked(&self) -> Result<PackedChain, Damaged> {
        self.session.store().noted(self.chain.check())?;
        Ok(self.share())
    }

    /// All of it, unpacked at once.
    pub fn unpack(&self) -> Result<Segments, Damaged> {
        self.session.unpack_large(self.chain)
    }
}

impl Session {
    /// Segment `index` of a packed large string. About a tenth of a millisecond;
    /// no lock is needed.
    pub fn segment(&self, chain: &PackedChain, index: usize) -> Result<Bytes, Damaged> {
        let times = &self.store().families().segment_times;
        self.store().noted(chain.segment(index, self.unpacker().workspace(), times))
    }

    /// All of a packed large string, at once.
    pub fn unpack_large(&self, chain: &PackedChain) -> Result<Segments, Damaged> {
        let times = &self.store().families().segment_times;
        self.store().noted(chain.unpack(self.unpacker().workspace(), times))
    }
}

impl Batch<'_> {
    /// Segment `index` of a packed large string. About a tenth of a millisecond;
    /// no slot's lock is needed.
    pub fn segment(&self, chain: &PackedChain, index: usize) -> Result<Bytes, Damaged> {
        self.session().segment(chain, index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use snug_codec::WorkspaceConfig;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 200 }))]

        /// Whatever stands where the forms should, each segment is the right
        /// length or an error.
        #[test]
        #[cfg_attr(miri, ignore = "calls into C")]
        fn damaged_forms_are_errors(
            mut forms in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..4),
            codec in 0u8..8,
            len in 0usize..500_000,
        ) {
            for form in &mut forms {
                if let Some(first) = form.first_mut() {
                    *first = *first & 0x38 | codec;
                }
            }
            let chain = PackedChain::of_forms(len, forms.iter().map(|form| &form[..]));
            let mut workspace = Workspace::new(WorkspaceConfig::default());
            let times = UnpackTimes::default();
            let mut whole = true;
            for index in 0..chain.segments() {
                match chain.segment(index, &mut workspace, &times) {
                    Ok(bytes) => prop_assert_eq!(bytes.len(), chain.segment_len(index)),
                    Err(_) => whole = false,
                }
            }
            prop_assert!(!whole || chain.check().is_ok() || chain.segments() < forms.len());
            match chain.unpack(&mut workspace, &times) {
                Ok(raw) => prop_assert_eq!((raw.len(), whole), (len, true)),
                Err(_) => prop_assert!(!whole),
            }
            let behind = chain.segment(chain.segments(), &mut workspace, &times);
            prop_assert!(behind.is_err() || chain.segments() < forms.len());
        }
    }
}
