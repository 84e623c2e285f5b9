//! One run of bytes in a block, coded by whatever makes it smallest: stored,
//! one byte repeated, rANS for what only has uneven frequencies, zstd for what
//! repeats itself.
//!
//! ```text
//!  meta: [tag][varint coded length]      data: [coded bytes]
//!  (the raw length is known to whoever reads)
//! ```

use std::ops::Range;

use crate::{Dictionary, UnpackError, Workspace};
use crate::{estimate, rans, varint};

use super::{Decoder, Encoder, MALFORMED};

const STORED: u8 = 0;
const FILL: u8 = 1;
const RANS: u8 = 2;
const ZSTD: u8 = 3;
const ZSTD_DICTIONARY: u8 = 4;

/// Below this many bytes a zstd frame cannot earn its own header back.
const ZSTD_BYTES_MIN: usize = 48;
const SHORT_RUN: usize = 2048;

/// A zstd frame takes microseconds to open, whatever it holds: text of a block
/// is only packed when that saves as many bytes.
const TEXT_SAVING_MIN: usize = 24;

/// What a run of bytes has behind it, so that short pieces can be copied by
/// whole words.
const PADDING: usize = 16;

/// What was wanted of a run of bytes.
#[derive(Default)]
pub(super) struct Run {
    /// Where in the run the bytes held begin.
    from: usize,
    bytes: Vec<u8>,
}

impl Run {
    pub(super) fn new(from: usize, mut bytes: Vec<u8>) -> Self {
        bytes.extend_from_slice(&[0; PADDING]);
        Self { from, bytes }
    }

    /// A piece of what was wanted.
    #[inline]
    pub(super) fn get(&self, piece: Range<usize>) -> &[u8] {
        &self.bytes[piece.start - self.from..piece.end - self.from]
    }

    /// Appends a piece of what was wanted.
    #[inline]
    pub(super) fn append(&self, piece: Range<usize>, out: &mut Vec<u8>) {
        let (from, len) = (piece.start - self.from, piece.end - piece.start);
        // A copy of constant length is a move of registers, any other a call.
        match self.bytes.get(from..from + PADDING) {
            Some(word) if len <= PADDING => {
                out.extend_from_slice(word);
                out.truncate(out.len() - (PADDING - len));
            }
            _ => out.extend_from_slice(&self.bytes[from..from + len]),
        }
    }
}

impl Encoder<'_> {
    /// Adds `bytes`; the reader must know their number.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        let Some(&first) = bytes.first() else { return };
        let before = self.data.len();
        let counts = rans::histogram(bytes);
        if counts[usize::from(first)] as usize == bytes.len() {
            self.meta.extend_from_slice(&[FILL, first]);
            return;
        }
        let mut tag = STORED;
        let mut best = bytes.len();
        let order0 = rans::estimate(&counts);
        // Decoding takes its time: it must be worth more than a byte or two.
        if order0 + bytes.len() / 64 < best {
            (tag, best) = (RANS, order0);
        }
        if bytes.len() >= ZSTD_BYTES_MIN && estimate::repeats(bytes) {
            // Short runs gain nothing by a longer search.
            let level = if bytes.len() < SHORT_RUN { self.level.min(1) } else { self.level };
            let packed = self.ws.pack_zstd(level, None, bytes, &mut self.data);
            let len = self.data.len() - before;
            if packed.is_ok() && len < best {
                self.push_tag(ZSTD, len);
                return;
            }
            self.data.truncate(before);
        }
        if tag == RANS {
            rans::encode(bytes, &counts, &mut self.data);
            if self.data.len() - before < bytes.len() {
                self.push_tag(RANS, self.data.len() - before);
                return;
            }
            self.data.truncate(before);
        }
        self.data.extend_from_slice(bytes);
        self.push_tag(STORED, bytes.len());
    }

    fn push_tag(&mut self, tag: u8, len: usize) {
        self.meta.push(tag);
        varint::push(&mut self.meta, len as u64);
    }
}

/// Appends to `out` text that a dictionary may help with: `[tag][varint raw
/// length][varint coded length][coded]`.
pub(super) fn push_text(
    ws: &mut Workspace,
    level: i32,
    dictionary: Option<&Dictionary>,
    text: &[u8],
    out: &mut Vec<u8>,
) {
    let mut coded = Vec::new();
    let mut tag = STORED;
    if text.len() >= 16 {
        let with = dictionary.filter(|d| d.id() != 0);
        if ws.pack_zstd(level, with, text, &mut coded).is_ok()
            && coded.len() + TEXT_SAVING_MIN <= text.len()
        {
            tag = if with.is_some() { ZSTD_DICTIONARY } else { ZSTD };
        }
    }
    let coded = if tag == STORED { text } else { &coded };
    out.push(tag);
    varint::push(out, text.len() as u64);
    varint::push(out, coded.len() as u64);
    out.extend_from_slice(coded);
}

/// Takes what [`push_text`] wrote off the front of `bytes`, still packed.
pub(super) fn skip_text<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], UnpackError> {
    let whole = *bytes;
    let mut rest = whole.get(1..).ok_or(MALFORMED)?;
    varint::take_len(&mut rest).ok_or(MALFORMED)?;
    let coded_len = varint::take_len(&mut rest).ok_or(MALFORMED)?;
    rest = rest.get(coded_len..).ok_or(MALFORMED)?;
    *bytes = rest;
    Ok(&whole[..whole.len() - rest.len()])
}

/// The inverse of [`push_text`].
pub(super) fn take_text(
    ws: &mut Workspace,
    dictionary: Option<&Dictionary>,
    bytes: &mut &[u8],
    raw_len_max: usize,
) -> Result<Vec<u8>, UnpackError> {
    let (&tag, rest) = bytes.split_first().ok_or(MALFORMED)?;
    *bytes = rest;
    let raw_len = varint::take_len(bytes).ok_or(MALFORMED)?;
    let coded_len = varint::take_len(bytes).ok_or(MALFORMED)?;
    if raw_len > raw_len_max {
        return Err(UnpackError::TooLong(raw_len));
    }
    let coded = bytes.get(..coded_len).ok_or(MALFORMED)?;
    *bytes = &bytes[coded_len..];
    let mut out = Vec::new();
    match tag {
        STORED if coded_len == raw_len => out.extend_from_slice(coded),
        ZSTD => unpack_zstd(ws, None, coded, raw_len, &mut out)?,
        ZSTD_DICTIONARY if dictionary.is_some() => {
            unpack_zstd(ws, dictionary, coded, raw_len, &mut out)?;
        }
        _ => return Err(MALFORMED),
    }
    Ok(out)
}

fn unpack_zstd(
    ws: &mut Workspace,
    dictionary: Option<&Dictionary>,
    coded: &[u8],
    raw_len: usize,
    out: &mut Vec<u8>,
) -> Result<(), UnpackError> {
    if raw_len > crate::Codec::Zstd.raw_len_possible(coded.len()) {
        return Err(UnpackError::TooLong(raw_len));
    }
    ws.unpack_zstd(dictionary, coded, raw_len, out)
}

impl Decoder<'_> {
    /// Takes what is `wanted` of the next run of bytes, which is `len` long.
    pub(super) fn take_bytes(
        &mut self,
        len: usize,
        wanted: Range<usize>,
    ) -> Result<Run, UnpackError> {
        if len == 0 {
            return Ok(Run::default());
        }
        let mut bytes = Vec::new();
        let from = self.take_bytes_into(len, wanted, &mut bytes)?;
        Ok(Run::new(from, bytes))
    }

    /// Appends what is `wanted` of the next run of bytes, which is `len` long,
    /// and perhaps some before and after it; where in the run that begins.
    pub(super) fn take_bytes_into(
        &mut self,
        len: usize,
        wanted: Range<usize>,
        out: &mut Vec<u8>,
    ) -> Result<usize, UnpackError> {
        if len == 0 {
            return Ok(0);
        }
        if wanted.start > wanted.end || wanted.end > len {
            return Err(MALFORMED);
        }
        let tag = self.take_byte()?;
        if tag == FILL {
            let byte = self.take_byte()?;
            self.spend(wanted.len())?;
            out.resize(out.len() + wanted.len(), byte);
            return Ok(wanted.start);
        }
        let coded_len = self.take_len()?;
        let coded = self.data.get(..coded_len).ok_or(MALFORMED)?;
        self.data = &self.data[coded_len..];
        if wanted.is_empty() {
            return Ok(wanted.start);
        }
        match tag {
            STORED => {
                self.spend(wanted.len())?;
                let from = wanted.start;
                let bytes = coded.get(wanted).filter(|_| coded_len == len).ok_or(MALFORMED)?;
                out.extend_from_slice(bytes);
                Ok(from)
            }
            RANS => {
                self.spend(wanted.end)?;
                rans::decode(coded, len, wanted, &mut self.table, out).ok_or(MALFORMED)
            }
            ZSTD => {
                self.spend(len)?;
                unpack_zstd(self.ws, None, coded, len, out)?;
                Ok(0)
            }
            _ => Err(MALFORMED),
        }
    }
}
