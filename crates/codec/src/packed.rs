//! The packed form: a header that says how to come back, then what the codec
//! made.
//!
//! ```text
//!  byte 0   7 6 | 5        | 4 3   | 2 1 0
//!           ver | checksum | shape | codec
//!
//!  shape 0, plain:             varint raw length
//!  shape 1, small, dictionary: 3 bytes, little-endian: raw length in the lower
//!                              12 bits, dictionary id in the upper 12
//!  shape 2, dictionary:        varint dictionary id, varint raw length
//!  shape 3, streamed:          varint raw length; the body is in the codec's
//!                              stream format (see `stream.rs`)
//!
//!  codec 7, recognised:        zstd of the raw bytes with the runs of base64,
//!                              hexadecimal, digits and UUIDs in them decoded
//!                              (see `runs.rs`); shapes 1 and 2 as above, shape
//!                              3: varint raw length; shape 0 is a block of
//!                              columns (see `columns.rs`) and not a header
//!
//!  codec 0, phrases:           in shapes 1 and 2, codes for the phrases of the
//!                              dictionary (see `phrases.rs`)
//!
//!  [byte 0][shape][4 bytes CRC-32 of the raw bytes, if checksum][body ...]
//!
//!  version 1, of phrases that stand for less than 64 bytes:
//!
//!  byte 0   7 6 | 5 4 3 2 1 0    byte 1
//!           0 1 | raw length     dictionary id  [body ...]
//!
//! version 2, of arrays taken apart (see `planes.rs`):
//!
//!  byte 0   7 6 | 5 4 3 2 1 0
//!           1 0 | kind            varint raw length  [body ...]
//!
//!  kind 63 of it, strings:  varint raw length, varint dictionary id or 0, a block of
//!                           texts (see `columns.rs`); it unpacks to 0xff and the texts,
//!                           each behind its length as a varint
//! kind 62, elements:       varint raw length, varint dictionary id, varint length of what
//!                           is stored, varint by how much that and the skeleton together
//!                           are shorter than the raw bytes, what is stored, the skeleton as
//!                           phrases (see `elements.rs`)
//! ```
//!
//! A value below 64 bytes, packed with phrases of one of the first 255 dictionaries,
//! thus has a header of 2 bytes. A value below 4 KiB with one of the first 4,095 dictionaries thus has a
//! header of 4 bytes, one below 16 KiB without a dictionary of 3. Versions 0 to 2 are
//! these layouts; a later layout takes the next number and these stay
//! readable. The level is not recorded: nothing needs it to unpack.
//!
//! A zstd body is one frame (RFC 8878) without its magic number, content size,
//! dictionary id and checksum, its window at most 128 KiB, so that it can be
//! unpacked as a stream over segments of that size.

use crate::Codec;
use crate::varint;

/// The largest raw length and dictionary id that the 4-byte header holds.
const SMALL_MAX: u64 = (1 << 12) - 1;

const CHECKSUM: u8 = 1 << 5;

/// The version of short values' headers, where it stands, and the largest raw length
/// and dictionary id that these hold.
const SHORT: u8 = 1 << 6;
const SHORT_RAW_MAX: usize = (1 << 6) - 1;
const SHORT_ID_MAX: u32 = u8::MAX as u32;

/// The version of arrays, where it stands; the bits beside it say which kind.
const ARRAY: u8 = 2 << 6;

/// The kind of array that is strings.
pub(crate) const STRINGS: u8 = 63;
/// The kind of array that is elements, written as phrases of a dictionary.
pub(crate) const ELEMENTS: u8 = 62;
/// What an array of strings unpacks to begins with this.
pub const STRINGS_MARK: u8 = 0xff;

/// Stands in the codec's place for zstd after runs were decoded.
const RECOGNISED: u8 = 7;

/// What a packed form says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The codec of the body.
    pub codec: Codec,
    /// The dictionary that the body needs, if it needs one.
    pub dictionary_id: Option<u32>,
    /// The length in bytes once unpacked.
    pub raw_len: usize,
    /// CRC-32 of the raw bytes, if it was asked for when packing.
    pub checksum: Option<u32>,
    /// Whether the body is in the codec's stream format.
    pub streamed: bool,
    /// Whether runs of base64 and the like were decoded before packing.
    pub recognised: bool,
    /// How an array was taken apart; 0 for what is none.
    pub kind: u8,
}

/// A packed form's header could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The bytes end inside the header.
    #[error("packed form cut short in its header")]
    Truncated,
    /// The header is of a version this build does not know.
    #[error("packed form of unknown version {0}")]
    Version(u8),
    /// No codec has this number.
    #[error("packed form of unknown codec {0}")]
    Codec(u8),
    /// A field holds a value that no packed form has.
    #[error("packed form with a malformed header")]
    Malformed,
}

impl Header {
    /// Appends the header.
    pub(crate) fn push(&self, out: &mut Vec<u8>) {
        if let Some(id) = self.dictionary_id.filter(|&id| self.is_short(id)) {
            out.extend_from_slice(&[SHORT | self.raw_len as u8, id as u8]);
            return;
        }
        if self.codec == Codec::Planes || self.kind == ELEMENTS {
            out.push(ARRAY | self.kind);
            varint::push(out, self.raw_len as u64);
            if matches!(self.kind, STRINGS | ELEMENTS) {
                varint::push(out, u64::from(self.dictionary_id.unwrap_or(0)));
            }
            return;
        }
        let checksum = if self.checksum.is_some() { CHECKSUM } else { 0 };
        let raw_len = self.raw_len as u64;
        let codec = if self.recognised { RECOGNISED } else { self.codec.number() };
        let shape = |n: u8| checksum | n << 3 | codec;
        match self.dictionary_id.map(u64::from) {
            None if self.recognised => {
                out.push(shape(3));
                varint::push(out, raw_len);
            }
            _ if self.streamed => {
                out.push(shape(3));
                varint::push(out, raw_len);
            }
            None => {
                out.push(shape(0));
                varint::push(out, raw_len);
            }
            Some(id) if id <= SMALL_MAX && raw_len <= SMALL_MAX => {
                out.push(shape(1));
                out.extend_from_slice(&(raw_len | id << 12).to_le_bytes()[..3]);
            }
            Some(id) => {
                out.push(shape(2));
                varint::push(out, id);
                varint::push(out, raw_len);
            }
        }
        if let Some(sum) = self.checksum {
            out.extend_from_slice(&sum.to_le_bytes());
        }
    }

    fn is_short(&self, id: u32) -> bool {
        self.codec == Codec::Phrases
            && self.kind == 0
            && self.raw_len <= SHORT_RAW_MAX
            && (1..=SHORT_ID_MAX).contains(&id)
            && self.checksum.is_none()
    }

    /// Reads the header at the front of `packed`; also what follows it.
    pub fn read(packed: &[u8]) -> Result<(Self, &[u8]), HeaderError> {
        let (&first, mut rest) = packed.split_first().ok_or(HeaderError::Truncated)?;
        if first >> 6 == SHORT >> 6 {
            let (&id, rest) = rest.split_first().ok_or(HeaderError::Truncated)?;
            if id == 0 {
                return Err(HeaderError::Malformed);
            }
            let short = Self {
                codec: Codec::Phrases,
                dictionary_id: Some(u32::from(id)),
                raw_len: usize::from(first & !SHORT),
                checksum: None,
                streamed: false,
                recognised: false,
                kind: 0,
            };
            return Ok((short, rest));
        }
        if first >> 6 == ARRAY >> 6 {
            let kind = first & !ARRAY;
            let raw_len = varint::take_len(&mut rest).ok_or(HeaderError::Truncated)?;
            let id = match kind {
                STRINGS | ELEMENTS => varint::take(&mut rest).ok_or(HeaderError::Truncated)?,
                _ => 0,
            };
            let id = u32::try_from(id).map_err(|_| HeaderError::Malformed)?;
            let codec = if kind == ELEMENTS { Codec::Phrases } else { Codec::Planes };
            if kind == ELEMENTS && id == 0 {
                return Err(HeaderError::Malformed);
            }
            let array = Self {
                codec,
                dictionary_id: (id != 0).then_some(id),
                raw_len,
                checksum: None,
                streamed: false,
                recognised: false,
                kind,
            };
            return Ok((array, rest));
        }
        if first >> 6 != 0 {
            return Err(HeaderError::Version(first >> 6));
        }
        let shape = first >> 3 & 3;
        let recognised = first & 7 == RECOGNISED && shape != 0;
        let codec = if recognised { Some(Codec::Zstd) } else { Codec::from_number(first & 7) };
        let codec = match codec.ok_or(HeaderError::Codec(first & 7))? {
            Codec::None if shape == 1 || shape == 2 => Codec::Phrases,
            codec => codec,
        };
        let (dictionary_id, raw_len) = match shape {
            1 => {
                let (three, after) = rest.split_first_chunk::<3>().ok_or(HeaderError::Truncated)?;
                rest = after;
                let both = u32::from_le_bytes([three[0], three[1], three[2], 0]);
                (Some(both >> 12), (both & SMALL_MAX as u32) as usize)
            }
            2 => {
                let id = varint::take(&mut rest).ok_or(HeaderError::Truncated)?;
                let id = u32::try_from(id).map_err(|_| HeaderError::Malformed)?;
                (Some(id), varint::take_len(&mut rest).ok_or(HeaderError::Truncated)?)
            }
            _ => (None, varint::take_len(&mut rest).ok_or(HeaderError::Truncated)?),
        };
        let takes_dictionary = matches!(codec, Codec::Zstd | Codec::Phrases);
        if dictionary_id == Some(0) || (dictionary_id.is_some() && !takes_dictionary) {
            return Err(HeaderError::Malformed);
        }
        let checksum = match first & CHECKSUM {
            0 => None,
            _ => {
                let (four, after) = rest.split_first_chunk::<4>().ok_or(HeaderError::Truncated)?;
                rest = after;
                Some(u32::from_le_bytes(*four))
            }
        };
        let streamed = shape == 3 && !recognised;
        Ok((Self { codec, dictionary_id, raw_len, checksum, streamed, recognised, kind: 0 }, rest))
    }
}

/// The length in bytes that `packed` has once unpacked. Reads the header only.
pub fn raw_len(packed: &[u8]) -> Result<usize, HeaderError> {
    Ok(Header::read(packed)?.0.raw_len)
}

/// The dictionary that `packed` needs, if any. Reads the header only.
pub fn dictionary_id(packed: &[u8]) -> Result<Option<u32>, HeaderError> {
    Ok(Header::read(packed)?.0.dictionary_id)
}

/// The codec of `packed`. Reads the header only.
pub fn codec(packed: &[u8]) -> Result<Codec, HeaderError> {
    Ok(Header::read(packed)?.0.codec)
}

/// The CRC-32 that a checksummed packed form carries.
pub(crate) fn crc32(raw: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(raw);
    crc.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_header_comes_back(number in 0u8..7, id in prop::option::of(1u32..), raw_len in any::<usize>(), shift in 0u32..64, sum in prop::option::of(any::<u32>()), how in 0u8..3) {
            let (streamed, recognised) = (how == 1, how == 2);
            let codec = Codec::from_number(if recognised { 1 } else { number }).unwrap();
            let takes_dictionary = matches!(codec, Codec::Zstd | Codec::None) && !streamed;
            let dictionary_id = id.map(|id| id >> (shift % 32).min(id.ilog2())).filter(|_| takes_dictionary);
            let codec = if codec == Codec::None && dictionary_id.is_some() { Codec::Phrases } else { codec };
            let header = Header { codec, dictionary_id, raw_len: raw_len >> shift, checksum: sum, streamed, recognised, kind: 0 };
            let mut bytes = Vec::new();
            header.push(&mut bytes);
            let whole = bytes.len();
            bytes.extend_from_slice(b"body");
            prop_assert_eq!(Header::read(&bytes), Ok((header, &b"body"[..])));
            for cut in 0..whole {
                prop_assert!(Header::read(&bytes[..cut]).is_err());
            }
        }

        #[test]
        fn any_bytes_are_a_header_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
            if let Ok((header, rest)) = Header::read(&bytes) {
                let mut again = Vec::new();
                header.push(&mut again);
                let (back, _) = Header::read(&again).unwrap();
                prop_assert_eq!(back, header);
                prop_assert!(rest.len() < bytes.len());
            }
        }
    }

    #[test]
    fn a_small_value_with_a_dictionary_has_four_bytes_of_header() {
        for (id, raw_len, recognised) in [(1, 0, false), (4095, 4095, true), (300, 1000, false)] {
            let mut out = Vec::new();
            let header = Header {
                codec: Codec::Zstd,
                dictionary_id: Some(id),
                raw_len,
                checksum: None,
                streamed: false,
                recognised,
                kind: 0,
            };
            header.push(&mut out);
            assert_eq!(out.len(), 4);
        }
    }
}
