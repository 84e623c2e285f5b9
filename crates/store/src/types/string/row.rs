//! The string's row in the table of types, and its forms.
//!
//! ```text
//!  INT              up to 8 bytes        never packed
//!  SET              up to 64 KiB   <-->  SET_PACKED
//!  CHANGED          up to 64 KiB   <-->  CHANGED_PACKED
//!  Segments         longer         <-->  PackedChain
//! ```
#![allow(unsafe_code)]

use crate::image::{Pen, Source};
use crate::large::{PackedChain, work};
use crate::memory::usable;
use crate::pack::form::PACK_MAX;
use crate::pack::piece::PieceJob;
use crate::types::elements::Elements;
use crate::types::forms::{
    Asked, Back, Boxed, Form, FormRow, Installed, Measure, Met, Packing, Value, Wish,
};
use crate::types::string::decimal_len;
use crate::types::{DataType, Reader, Sink, Unreadable, Unsaved};
use snug_codec::Segments;
use std::io;

/// A string that is the decimal form of an `i64`: its bytes, little-endian, without
/// the sign-extending ones.
pub(crate) const INT: Form = Form::inline(0);
/// A string as it was set.
pub(crate) const SET: Form = Form::inline(1);
/// A string that was changed in place (what Redis calls `raw` even if short).
pub(crate) const CHANGED: Form = Form::inline(2);
pub(crate) const SET_PACKED: Form = Form::inline(3);
pub(crate) const CHANGED_PACKED: Form = Form::inline(4);

/// The longest string kept inside its entry, in bytes; longer ones are chains.
pub(crate) const INLINE_MAX: usize = PACK_MAX;

/// Redis embeds strings of up to so many bytes in their object.
const EMBEDDED_MAX: usize = 44;

/// The string type.
#[derive(Debug)]
pub(crate) struct Strings;

impl DataType for Strings {
    const NAME: &'static str = "string";
    const NUMBER: u32 = 0;
    const HAS_MIME: bool = true;
    const BOXED_PIECES: &'static str = "large_string";
    const FORMS: &'static [FormRow] = &[
        FormRow::plain(INT),
        FormRow::packs(SET, SET_PACKED),
        FormRow::packs(CHANGED, CHANGED_PACKED),
        FormRow::packed(SET_PACKED, SET),
        FormRow::packed(CHANGED_PACKED, CHANGED),
        FormRow::boxed::<Segments>(),
        FormRow::boxed::<PackedChain>(),
    ];

    /// One that was set and not changed since, Redis embeds if it is short.
    fn encoding(value: Value<'_>, raw: usize, _: &mut dyn FnMut() -> u8) -> &'static str {
        match value.form() {
            INT => "int",
            SET | SET_PACKED if raw <= EMBEDDED_MAX => "embstr",
            _ => "raw",
        }
    }

    fn len(value: Value<'_>) -> usize {
        match value.form() {
            INT => decimal_len(Int::read(value.bytes())),
            _ => value.measure().raw,
        }
    }

    /// One piece, whatever its form.
    fn digest(
        value: Value<'_>,
        reader: &mut dyn Reader,
        sink: &mut dyn Sink,
    ) -> Result<(), Unreadable> {
        if let Some(chain) = value.get::<Segments>() {
            chain.parts().iter().for_each(|part| sink.part(part));
        } else if let Some(chain) = value.get::<PackedChain>() {
            for index in 0..chain.segments() {
                sink.part(&reader.segment(chain, index)?);
            }
        } else {
            match value.form() {
                INT => sink.part(Int::read(value.bytes()).to_string().as_bytes()),
                SET_PACKED | CHANGED_PACKED => {
                    let mut raw = Vec::new();
                    reader.unpack(value.bytes(), &mut raw)?;
                    sink.part(&raw);
                }
                _ => sink.part(value.bytes()),
            }
        }
        sink.end();
        Ok(())
    }

    fn save(
        value: Value<'_>,
        reader: &mut dyn Reader,
        out: &mut dyn Elements,
    ) -> Result<(), Unsaved> {
        if let Some(chain) = value.get::<Segments>() {
            out.string(chain.len() as u64)?;
            chain.parts().iter().try_for_each(|part| out.part(part))?;
        } else if let Some(chain) = value.get::<PackedChain>() {
            out.string(chain.len() as u64)?;
            for index in 0..chain.segments() {
                out.part(&reader.segment(chain, index)?)?;
            }
        } else {
            let mut raw = Vec::new();
            let bytes = match value.form() {
                INT => {
                    out.integer(Int::read(value.bytes()))?;
                    return Ok(out.end()?);
                }
                SET_PACKED | CHANGED_PACKED => {
                    reader.unpack(value.bytes(), &mut raw)?;
                    &raw
                }
                _ => value.bytes(),
            };
            out.string(bytes.len() as u64)?;
            out.part(bytes)?;
        }
        Ok(out.end()?)
    }
}

/// An integer as it lies in an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Int {
    bytes: [u8; 8],
    len: usize,
}

impl Int {
    #[inline]
    pub(crate) fn new(value: i64) -> Self {
        let significant = 64 - if value < 0 { value.leading_ones() } else { value.leading_zeros() };
        // One more for the sign bit; 0 needs no byte at all.
        let len = if value == 0 { 0 } else { (significant as usize + 1).div_ceil(8).min(8) };
        Self { bytes: value.to_le_bytes(), len }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The integer of these bytes.
    #[inline]
    pub(crate) fn read(bytes: &[u8]) -> i64 {
        let mut room = [0; 8];
        let len = bytes.len().min(8);
        if len == 0 {
            return 0;
        }
        room[..len].copy_from_slice(&bytes[..len]);
        let spare = 64 - 8 * len as u32;
        i64::from_le_bytes(room) << spare >> spare
    }
}

// SAFETY: box number 0 is of chains alone.
unsafe impl Boxed for Segments {
    const FORM: Form = Form::boxed(0);
    const IS_SHARED: bool = true;

    fn measure(&self) -> Measure {
        Measure { allocated: self.allocated(usable), raw: self.len(), ..Measure::default() }
    }

    fn duplicate(&self) -> Self {
        self.clone()
    }

    fn packing(&self) -> Packing {
        let allocated_raw = usable(size_of::<Self>()) + self.allocated(usable);
        Packing { codec: "none", dictionary: None, allocated_raw }
    }

    fn cool(&mut self, met: &Met<'_>) -> Wish {
        let is_old = match met.access {
            0 => met.recheck_raw || (met.concerns)(self.len()),
            1 => true,
            _ => met.at_once,
        };
        let is_cold = is_old && self.len() >= met.min_size && !met.expires_soon;
        if is_cold { Wish::Pack } else { Wish::Nothing }
    }

    fn effort(&self) -> usize {
        1
    }

    fn next_job(&mut self, asked: &Asked<'_>) -> Option<Box<dyn PieceJob>> {
        work::to_pack(self, asked)
    }

    fn install(&mut self, job: &mut dyn PieceJob, back: &Back) -> Installed {
        work::packed(self, job, back)
    }

    fn store(&self, pen: &mut dyn Pen) -> io::Result<()> {
        pen.number(self.len() as u64)?;
        self.parts().iter().try_for_each(|part| pen.put(part))
    }

    fn fetch(source: &mut dyn Source) -> io::Result<Self> {
        let (len, mut chain) = (source.number()?, Self::default());
        source.each(len, &mut |some| chain.append(some))?;
        Ok(chain)
    }
}

// SAFETY: box number 1 is of packed chains alone.
unsafe impl Boxed for PackedChain {
    const FORM: Form = Form::boxed(1);
    const IS_PACKED: bool = true;
    const IS_SHARED: bool = true;

    fn measure(&self) -> Measure {
        let (raw, packed) = (self.len(), self.packed_len());
        Measure { allocated: self.allocated(), raw, packed_from: raw, packed, pending: 0 }
    }

    fn duplicate(&self) -> Self {
        self.clone()
    }

    fn packing(&self) -> Packing {
        let allocated_raw = usable(size_of::<Segments>()) + self.raw_allocated();
        Packing { codec: self.codec_name(), dictionary: None, allocated_raw }
    }

    /// Under another policy it is packed anew, once it has cooled again.
    fn cool(&mut self, met: &Met<'_>) -> Wish {
        let is_hot = met.access == crate::ACCESS_MAX && !met.keep_packed;
        if is_hot || (met.concerns)(self.len()) { Wish::Unpack } else { Wish::Nothing }
    }

    fn effort(&self) -> usize {
        1
    }

    fn next_job(&mut self, asked: &Asked<'_>) -> Option<Box<dyn PieceJob>> {
        work::to_unpack(self, asked)
    }

    fn install(&mut self, job: &mut dyn PieceJob, _: &Back) -> Installed {
        work::unpacked(self, job)
    }

    fn store(&self, pen: &mut dyn Pen) -> io::Result<()> {
        self.write(pen)
    }

    fn fetch(source: &mut dyn Source) -> io::Result<Self> {
        Self::read(source)
    }
}
