//! One run of bytes in a block, coded by whatever makes it smallest: stored,
//! one byte repeated, rANS for what only has uneven frequencies, zstd for what
//! repeats itself. A run with a byte for each row is, where rANS suits it, woven
//! with the others of its shape.
//!
//! ```text
//!  meta: [tag][varint coded length]      data: [coded bytes]
//!        [ZSTD_PARTS][likewise]          data: [varint length of each frame but the
//!                                               last][zstd frames of 8 KiB each]
//!        [PHRASES]                       data: likewise, parts of 1 KiB as phrases
//!        [WOVEN]                         the next lane of the shape's weave
//!  (the raw length is known to whoever reads)
//! ```
//!
//! A zstd frame is decoded whole, whichever row is wanted. Where the block has a
//! dictionary, a run is therefore cut into frames of 8 KiB, which learn from the
//! dictionary what they would have learnt from each other. Of documents in blocks of
//! 64 KB, at level 1 with a dictionary of 64 KiB: real JSON takes 8 percent less than
//! in one frame, random words take 1 percent more (without a dictionary 16 to 27
//! percent more), and one of them at random is read in a quarter of the time. In
//! frames of 4 KiB they took 1 to 2 percent more, and were not read much quicker.
//!
//! Where the dictionary is one of phrases, text is written as these, in parts of 1 KiB.
//! No part needs what stands before it, so an entry is read by unpacking one to three: some
//! microseconds. Parts cost a percent, most of it their lengths.

use std::ops::Range;

use crate::rans::weave;
use crate::zstd_static::ZstdError;
use crate::{Dictionary, UnpackError, Workspace};
use crate::{estimate, rans, varint};

use super::{Decoder, Encoder, MALFORMED};

const STORED: u8 = 0;
const FILL: u8 = 1;
const RANS: u8 = 2;
const ZSTD: u8 = 3;
const ZSTD_DICTIONARY: u8 = 4;
const WOVEN: u8 = 5;
const ZSTD_PARTS: u8 = 6;
const PHRASES: u8 = 7;

/// The bytes of a long run that one zstd frame holds, where there is a dictionary.
pub const PART_BYTES: usize = 8 * 1024;

/// The bytes of a run that are written as phrases by themselves.
pub const PHRASES_PART_BYTES: usize = 1024;

/// Phrases must save so many bytes, and one in so many, over frequencies alone.
const PHRASES_SAVING_MIN: usize = 8;
const PHRASES_SAVING_OF: usize = 16;

/// A run is text to phrases if at most one byte in so many is none of printable ASCII.
const NO_TEXT_ONE_IN: usize = 16;

/// Below this many bytes no table of frequencies can earn itself back.
pub(super) const CODED_BYTES_MIN: usize = 32;

/// Below this many bytes a zstd frame cannot earn its own header back.
const ZSTD_BYTES_MIN: usize = 48;
const SHORT_RUN: usize = 2048;

/// A zstd frame takes longer to decode than all else: it must save so many bytes,
/// and one in so many.
const ZSTD_SAVING_MIN: usize = 24;
const ZSTD_SAVING_OF: usize = 10;

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

    /// A whole run.
    pub(super) fn of(whole: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(whole.len() + PADDING);
        bytes.extend_from_slice(whole);
        Self::new(0, bytes)
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
        self.push_run(bytes, false);
    }

    /// Adds `bytes`, one for each row of the shape that is being added; of which
    /// the reader will ask for the rows that are wanted, and for no others.
    pub(super) fn push_bytes_of_rows(&mut self, bytes: &[u8]) {
        let weave = self.weave.as_ref();
        self.push_run(bytes, weave.is_some_and(|weave| weave.has_room(bytes.len())));
    }

    fn push_run(&mut self, bytes: &[u8], woven: bool) {
        let Some(&first) = bytes.first() else { return };
        if bytes.iter().all(|&byte| byte == first) {
            self.meta.extend_from_slice(&[FILL, first]);
            return;
        }
        if bytes.len() < CODED_BYTES_MIN {
            self.data.extend_from_slice(bytes);
            self.push_tag(STORED, bytes.len());
            return;
        }
        let before = self.data.len();
        let counts = rans::histogram(bytes);
        let (mut tag, mut best) = (STORED, bytes.len());
        let order0 = if woven { weave::estimate(&counts) } else { rans::estimate(&counts) };
        // Decoding takes its time: it must be worth more than a byte or two.
        if order0 + bytes.len() / 64 < best {
            (tag, best) = (if woven { WOVEN } else { RANS }, order0);
        }
        let phrases = if woven { None } else { self.phrases(bytes, &counts) };
        let phrases_max = best.saturating_sub(PHRASES_SAVING_MIN.max(best / PHRASES_SAVING_OF));
        let phrases = phrases.filter(|coded| coded.len() < phrases_max);
        best = phrases.as_ref().map_or(best, Vec::len);
        let zstd_max = best.saturating_sub(ZSTD_SAVING_MIN.max(best / ZSTD_SAVING_OF));
        if bytes.len() >= ZSTD_BYTES_MIN && zstd_max > 0 && estimate::repeats(bytes) {
            let tag = self.push_zstd(bytes);
            let len = self.data.len() - before;
            if let Ok(tag) = tag
                && len < zstd_max
            {
                self.push_tag(tag, len);
                return;
            }
            self.data.truncate(before);
        }
        if let Some(coded) = phrases {
            self.data.extend_from_slice(&coded);
            self.push_tag(PHRASES, coded.len());
            self.needs_dictionary = true;
            return;
        }
        if tag == WOVEN
            && let Some(weave) = &mut self.weave
        {
            weave.lanes.push((bytes.to_vec(), counts));
            self.meta.push(WOVEN);
            return;
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

    /// What phrases make of `bytes`, if the dictionary is one of them and these are text.
    fn phrases(&mut self, bytes: &[u8], counts: &rans::Histogram) -> Option<Vec<u8>> {
        let table = self.dictionary?.phrases()?;
        let text: usize = counts[usize::from(b' ')..0x7f].iter().map(|&n| n as usize).sum();
        if (bytes.len() - text) * NO_TEXT_ONE_IN > bytes.len() {
            return None;
        }
        let (mut lens, mut parts) = (Vec::new(), Vec::new());
        for part in bytes.chunks(PHRASES_PART_BYTES) {
            lens.push(parts.len());
            self.ws.pack_phrases(table, part, &mut parts);
        }
        let mut out = Vec::with_capacity(parts.len() + 2 * lens.len());
        for part in lens.windows(2) {
            varint::push(&mut out, (part[1] - part[0]) as u64);
        }
        out.extend_from_slice(&parts);
        Some(out)
    }

    /// Appends `bytes` to the data as zstd has them; the tag that says how. What
    /// is there is of no use if that failed.
    fn push_zstd(&mut self, bytes: &[u8]) -> Result<u8, ZstdError> {
        // Short runs gain nothing by a longer search.
        if bytes.len() < SHORT_RUN {
            self.ws.pack_zstd(self.level.min(1), None, bytes, &mut self.data)?;
            return Ok(ZSTD);
        }
        let Some(dictionary) = self.dictionary.filter(|d| d.phrases().is_none()) else {
            self.ws.pack_zstd(self.level, None, bytes, &mut self.data)?;
            return Ok(ZSTD);
        };
        let (mut frames, mut last_len) = (Vec::new(), 0);
        for part in bytes.chunks(PART_BYTES) {
            if !frames.is_empty() {
                varint::push(&mut self.data, last_len as u64);
            }
            let before = frames.len();
            self.ws.pack_zstd(self.level, Some(dictionary), part, &mut frames)?;
            last_len = frames.len() - before;
        }
        self.data.extend_from_slice(&frames);
        self.needs_dictionary = true;
        Ok(ZSTD_PARTS)
    }

    fn push_tag(&mut self, tag: u8, len: usize) {
        self.meta.push(tag);
        varint::push(&mut self.meta, len as u64);
    }
}

/// The runs of a shape that are woven, while it is being added.
pub(super) struct Weave {
    /// The shape's rows.
    rows: usize,
    /// Where in the data the weave goes.
    at: usize,
    lanes: Vec<weave::Run>,
}

impl Weave {
    fn has_room(&self, len: usize) -> bool {
        len == self.rows && self.lanes.len() < weave::LANES_MAX
    }
}

impl Encoder<'_> {
    /// Begins a shape of so many rows.
    pub(super) fn begin_weave(&mut self, rows: usize) {
        self.weave = (rows > 0).then(|| Weave { rows, at: self.data.len(), lanes: Vec::new() });
    }

    /// Ends it: its weave goes in front of its columns' data.
    pub(super) fn end_weave(&mut self) {
        let Some(weave) = self.weave.take() else { return };
        let mut woven = Vec::new();
        weave::encode(&weave.lanes, &mut woven);
        self.data.splice(weave.at..weave.at, woven);
    }
}

/// Appends to `out` text that a dictionary may help with: `[tag][varint raw
/// length][varint coded length][coded]`. It is packed if that saves at least
/// `saving_min` bytes; whether it needs the dictionary then.
pub(super) fn push_text(
    ws: &mut Workspace,
    level: i32,
    dictionary: Option<&Dictionary>,
    text: &[u8],
    saving_min: usize,
    out: &mut Vec<u8>,
) -> bool {
    let mut coded = Vec::new();
    let mut tag = STORED;
    if text.len() > saving_min {
        let with = dictionary.filter(|d| d.id() != 0);
        let by_zstd = with.filter(|d| d.phrases().is_none());
        if ws.pack_zstd(level, by_zstd, text, &mut coded).is_ok()
            && coded.len() + saving_min <= text.len()
        {
            tag = if by_zstd.is_some() { ZSTD_DICTIONARY } else { ZSTD };
        }
        if let Some(table) = with.and_then(Dictionary::phrases) {
            let mut phrases = Vec::new();
            ws.pack_phrases(table, text, &mut phrases);
            let least = if tag == STORED { text.len() } else { coded.len() };
            if phrases.len() + PHRASES_SAVING_MIN <= least {
                (tag, coded) = (PHRASES, phrases);
            }
        }
    }
    let coded = if tag == STORED { text } else { &coded };
    out.push(tag);
    varint::push(out, text.len() as u64);
    varint::push(out, coded.len() as u64);
    out.extend_from_slice(coded);
    matches!(tag, ZSTD_DICTIONARY | PHRASES)
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
        PHRASES => unpack_phrases(dictionary, coded, raw_len, &mut out)?,
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

fn unpack_phrases(
    dictionary: Option<&Dictionary>,
    coded: &[u8],
    raw_len: usize,
    out: &mut Vec<u8>,
) -> Result<(), UnpackError> {
    if raw_len > crate::Codec::Phrases.raw_len_possible(coded.len()) {
        return Err(UnpackError::TooLong(raw_len));
    }
    let table = dictionary.and_then(Dictionary::phrases).ok_or(MALFORMED)?;
    table.unpack(coded, raw_len, out).ok_or(MALFORMED)
}

impl Decoder<'_> {
    /// Begins a shape of so many rows, of which some are wanted: decodes its
    /// weave.
    pub(super) fn begin_weave(
        &mut self,
        rows: usize,
        wanted: &Range<usize>,
    ) -> Result<(), UnpackError> {
        self.lane = 0;
        self.woven = match rows {
            0 => weave::Woven::default(),
            _ => weave::take(&mut self.data, rows, wanted, &mut self.ws.weave).ok_or(MALFORMED)?,
        };
        Ok(())
    }

    /// Takes what is `wanted` of the next run of bytes, which is `len` long.
    pub(super) fn take_bytes(
        &mut self,
        len: usize,
        wanted: Range<usize>,
    ) -> Result<Run, UnpackError> {
        if len == 0 {
            return Ok(Run::default());
        }
        let mut bytes = Vec::with_capacity(wanted.len() + PADDING);
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
        if tag == WOVEN {
            self.spend(wanted.len())?;
            self.woven.append(self.lane, len, &wanted, out).ok_or(MALFORMED)?;
            self.lane += 1;
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
                let table = self.ws.table.get_or_insert_default();
                rans::decode(coded, len, wanted, table, out).ok_or(MALFORMED)
            }
            ZSTD => {
                self.spend(len)?;
                let before = out.len();
                unpack_zstd(self.ws, None, coded, len, out)?;
                self.keep_sample(&out[before..]);
                Ok(0)
            }
            ZSTD_PARTS => self.take_parts(PART_BYTES, coded, len, wanted, out),
            PHRASES => self.take_parts(PHRASES_PART_BYTES, coded, len, wanted, out),
            _ => Err(MALFORMED),
        }
    }

    /// Appends the parts that what is `wanted` lies in; where in the run they
    /// begin.
    fn take_parts(
        &mut self,
        part_bytes: usize,
        mut coded: &[u8],
        len: usize,
        wanted: Range<usize>,
        out: &mut Vec<u8>,
    ) -> Result<usize, UnpackError> {
        let dictionary = self.dictionary.clone().ok_or(MALFORMED)?;
        let (first, end) = (wanted.start / part_bytes, wanted.end.div_ceil(part_bytes));
        let (mut skipped, mut lens) = (0usize, Vec::new());
        for part in 0..len.div_ceil(part_bytes) - 1 {
            let frame_len = varint::take_len(&mut coded).ok_or(MALFORMED)?;
            if part < first {
                skipped = skipped.checked_add(frame_len).ok_or(MALFORMED)?;
            } else if part < end {
                lens.push(frame_len);
            }
        }
        let mut frames = coded.get(skipped..).ok_or(MALFORMED)?;
        let before = out.len();
        let unpacked_len = len.min(end * part_bytes) - first * part_bytes;
        self.spend(unpacked_len)?;
        out.reserve(unpacked_len + PADDING);
        for part in first..end {
            let frame_len = lens.get(part - first).copied().unwrap_or(frames.len());
            let (frame, rest) = frames.split_at_checked(frame_len).ok_or(MALFORMED)?;
            frames = rest;
            let part_len = part_bytes.min(len - part * part_bytes);
            match part_bytes {
                PHRASES_PART_BYTES => unpack_phrases(Some(&dictionary), frame, part_len, out)?,
                _ => unpack_zstd(self.ws, Some(&dictionary), frame, part_len, out)?,
            }
        }
        self.keep_sample(&out[before..]);
        Ok(first * part_bytes)
    }

    /// Keeps what a dictionary can help with, if samples are wanted.
    fn keep_sample(&mut self, run: &[u8]) {
        if let Some(samples) = &mut self.samples
            && run.len() >= SHORT_RUN
        {
            samples.push(run.to_vec());
        }
    }
}
