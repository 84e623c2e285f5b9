//! What the header of a packed form tells, whatever type of value was packed.

use snug_codec::UnpackError;
use snug_codec::packed::{self, Header};

/// The most bytes of a value that is packed inside its entry.
pub(crate) const PACK_MAX: usize = 64 * 1024;

/// A packed value that does not unpack: its bytes are not what was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packed value is damaged: {0}")]
pub struct Damaged(#[from] UnpackError);

/// The length that a packed form has once unpacked; 0 for one that is damaged,
/// as one is that claims more than is ever packed here.
#[inline]
pub(crate) fn raw_len(form: &[u8]) -> usize {
    packed::raw_len(form).ok().filter(|&len| len <= PACK_MAX).unwrap_or(0)
}

/// What a packed form refers to: the dictionary's id, 0 for none.
#[inline]
pub(crate) fn dictionary_id(form: &[u8]) -> u32 {
    packed::dictionary_id(form).ok().flatten().unwrap_or(0)
}

/// The codec of a packed form, for reports.
pub(crate) fn codec_name(form: &[u8]) -> &'static str {
    Header::read(form).map_or("damaged", |(header, _)| header.codec.name())
}
