//! A workspace: codec memory reserved up front, so that packing a value with
//! zstd allocates nothing but room in the caller's output.
//!
//! ```text
//!  Workspace ── zstd packing context   (pack_bytes, static)
//!            ├─ zstd unpacking context (about 157 KiB, static)
//!            └─ lz4, snappy, deflate, inflate, phrase states, the tables that
//!               columns are unpacked by: made on first use, kept
//! ```
//!
//! Memory: a packed form that claims more than `raw_len_max`, or more than its
//! codec could make of its length, is refused before anything is reserved for
//! it; unpacking then needs at most the claimed length in the output, and, for
//! brotli alone, its window of at most 16 MiB while it works.

use std::io::Read;

use crate::columns::{self, TextReader};
use crate::packed::{self, Header, HeaderError};
use crate::phrases::{self, PhraseTable};
use crate::zstd_static::{Compressor, Decompressor, Parameters, ZstdError};
use crate::{Codec, Dictionary, DictionarySource, elements, planes, rans, runs, varint};

/// What a workspace reserves, and what it adds to packed forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkspaceConfig {
    /// Bytes of the zstd packing context. A level that wants larger tables is
    /// given smaller ones: it packs a little less well, never fails.
    pub pack_bytes: usize,
    /// Whether packed forms carry a CRC-32 of the raw bytes.
    pub checksum: bool,
}

impl Default for WorkspaceConfig {
    /// Room for level 3 over a full window, no checksum.
    fn default() -> Self {
        Self::for_level(3)
    }
}

impl WorkspaceConfig {
    /// Room for `level` with all the tables it asks for over a full window.
    pub fn for_level(level: i32) -> Self {
        let full = 1 << crate::zstd_static::WINDOW_LOG_MAX;
        let parameters = Parameters::fit(level, full, 0, usize::MAX);
        Self { pack_bytes: parameters.context_bytes(), checksum: false }
    }
}

/// Packing failed. Nothing was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// A dictionary has no id yet, or is used with another codec than zstd.
    #[error("the dictionary cannot be used for this")]
    Dictionary,
    /// The codec failed, which on bytes in memory it has no reason to.
    #[error("{0} cannot pack the value")]
    Codec(Codec),
    /// zstd failed, which on a context of its own estimate it has no reason to.
    #[error(transparent)]
    Zstd(#[from] ZstdError),
}

/// Unpacking failed. Nothing was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// The header cannot be read.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// More raw bytes than the caller allows, or than the body can hold.
    #[error("packed form claims {0} bytes")]
    TooLong(usize),
    /// The dictionary it was packed with is not in the source.
    #[error("dictionary {0} is missing")]
    MissingDictionary(u32),
    /// The body is not what this codec makes, or not as long as it claims.
    #[error("corrupt {0} body")]
    Corrupt(Codec),
    /// The bytes came out, but they are not those packed.
    #[error("checksum differs")]
    Checksum,
}

/// Codec memory for one operation at a time. `Send`, so that it can be lent
/// from a pool.
pub struct Workspace {
    checksum: bool,
    pub(crate) compressor: Compressor,
    pub(crate) decompressor: Decompressor,
    /// A buffer that streams work in.
    pub(crate) scratch: Vec<u8>,
    /// The zstd numbers last used for each size class, and their level.
    fitted: [Option<(i32, Parameters)>; SIZE_CLASSES],
    lz4: Option<lz4_flex::block::CompressTable>,
    snappy: Option<snap::raw::Encoder>,
    deflate: Option<(u32, bool, flate2::Compress)>,
    inflate: Option<flate2::Decompress>,
    phrases: Option<phrases::Scratch>,
    /// The tables that columns are unpacked by.
    pub(crate) table: Option<rans::Table>,
    pub(crate) weave: rans::weave::Room,
}

/// One class per power of two up to the window.
const SIZE_CLASSES: usize = crate::zstd_static::WINDOW_LOG_MAX as usize + 1;

impl std::fmt::Debug for Workspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Workspace({} bytes)", self.memory_bytes())
    }
}

impl Workspace {
    /// Reserves a workspace.
    pub fn new(config: WorkspaceConfig) -> Self {
        Self {
            checksum: config.checksum,
            compressor: Compressor::reserve(config.pack_bytes),
            decompressor: Decompressor::reserve(),
            scratch: Vec::new(),
            fitted: [None; SIZE_CLASSES],
            lz4: None,
            snappy: None,
            deflate: None,
            inflate: None,
            phrases: None,
            table: None,
            weave: rans::weave::Room::default(),
        }
    }

    /// A workspace for those who only unpack: with as little room for packing as
    /// can be.
    pub fn to_unpack() -> Self {
        Self::new(WorkspaceConfig { pack_bytes: 0, checksum: false })
    }

    /// What it has reserved for zstd and made for columns, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let tables = self.table.as_ref().map_or(0, rans::Table::bytes) + self.weave.bytes();
        size_of::<Self>() + self.compressor.bytes() + self.decompressor.bytes() + tables
    }

    /// Appends the packed form of `raw` to `out`, which may be longer than
    /// `raw`: whether it is worth keeping is the caller's to judge.
    ///
    /// `level` is brought to the nearest that the codec has; with a dictionary,
    /// for which `codec` must be zstd, the dictionary's own kind and level count,
    /// and one whose tables do not fit this workspace is not used. On an error
    /// `out` is as it was.
    pub fn pack(
        &mut self,
        codec: Codec,
        level: i32,
        dictionary: Option<&Dictionary>,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), PackError> {
        let cannot = dictionary.is_some_and(|d| d.id() == 0 || codec != Codec::Zstd);
        if cannot || matches!(codec, Codec::Phrases | Codec::Planes) {
            return Err(PackError::Dictionary);
        }
        if let Some((dictionary, table)) = dictionary.and_then(|d| Some((d, d.phrases()?))) {
            if dictionary.is_of_elements() && self.pack_elements(dictionary, table, raw, out) {
                return Ok(());
            }
            self.header(Codec::Phrases, Some(dictionary), raw).push(out);
            self.pack_phrases(table, raw, out);
            return Ok(());
        }
        let before = out.len();
        self.header(codec, dictionary, raw).push(out);
        let packed = match codec {
            Codec::Zstd => self.pack_zstd(level, dictionary, raw, out).map_err(PackError::Zstd),
            other => self.pack_other(other, level, raw, out).ok_or(PackError::Codec(other)),
        };
        if packed.is_err() {
            out.truncate(before);
            if dictionary.is_some() {
                // The dictionary's tables do not fit this workspace.
                return self.pack(codec, level, None, raw, out);
            }
        }
        packed
    }

    /// [`Self::pack`] with zstd or phrases; an array of numbers or registers, which neither
    /// sees as what it is, is taken apart where that makes it shorter.
    pub fn pack_by_looks(
        &mut self,
        level: i32,
        dictionary: Option<&Dictionary>,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), PackError> {
        let before = out.len();
        self.pack(Codec::Zstd, level, dictionary, raw, out)?;
        let Some(kind) = planes::kind_of(raw).filter(|_| !self.checksum) else { return Ok(()) };
        let middle = out.len();
        Header { kind, ..self.header(Codec::Planes, None, raw) }.push(out);
        planes::pack(raw, kind, out);
        keep_shorter(out, before, middle);
        Ok(())
    }

    /// Appends the packed form of strings, as one block of texts: it unpacks to
    /// [`STRINGS_MARK`](packed::STRINGS_MARK) and each of them behind its length, which
    /// are `counted`.
    pub fn pack_strings(
        &mut self,
        level: i32,
        dictionary: Option<&Dictionary>,
        strings: &[&[u8]],
        counted: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), PackError> {
        let mut block = Vec::new();
        let too_many = PackError::Codec(Codec::Planes);
        columns::pack_texts(self, level, dictionary, strings, &mut block).map_err(|_| too_many)?;
        let dictionary_id = columns::dictionary_id(&block).ok().flatten();
        let header = self.header(Codec::Planes, None, counted);
        Header { kind: packed::STRINGS, dictionary_id, checksum: None, ..header }.push(out);
        out.extend_from_slice(&block);
        Ok(())
    }

    /// What of strings that were [packed so](Self::pack_strings) a dictionary can help with:
    /// what is the same from block to block. Nothing of any other form.
    pub fn samples_of_strings(
        &mut self,
        form: &[u8],
        dictionaries: &dyn DictionarySource,
    ) -> Vec<Vec<u8>> {
        match Header::read(form) {
            Ok((header, block)) if header.kind == packed::STRINGS => {
                let raw_len = header.raw_len;
                TextReader::gather_samples(self, block, dictionaries, raw_len).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    fn unpack_strings(
        &mut self,
        block: &[u8],
        dictionaries: &dyn DictionarySource,
        raw_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), UnpackError> {
        let reader = TextReader::open(self, block, dictionaries, raw_len)?;
        let (before, mut text) = (out.len(), Vec::new());
        out.push(packed::STRINGS_MARK);
        for row in 0..reader.len() {
            text.clear();
            reader.append(row, &mut text);
            varint::push(out, text.len() as u64);
            out.extend_from_slice(&text);
            if out.len() - before > raw_len {
                break;
            }
        }
        let is_it = out.len() - before == raw_len;
        is_it.then_some(()).ok_or(UnpackError::Corrupt(Codec::Planes))
    }

    fn header(&self, codec: Codec, dictionary: Option<&Dictionary>, raw: &[u8]) -> Header {
        Header {
            codec,
            dictionary_id: dictionary.map(Dictionary::id),
            raw_len: raw.len(),
            checksum: self.checksum.then(|| packed::crc32(raw)),
            streamed: false,
            recognised: false,
            kind: 0,
        }
    }

    /// [`Self::pack`] with zstd, runs of base64, hexadecimal, digits and UUIDs
    /// decoded first where that makes it shorter: for texts, a base64 body
    /// inside JSON above all. Unpacked by the same [`Self::unpack`].
    ///
    /// A value without such runs costs one look more; one with them is packed
    /// both ways. The dictionary is best trained on what
    /// [`decode_runs`](crate::decode_runs) makes of the samples.
    pub fn pack_recognised(
        &mut self,
        level: i32,
        dictionary: Option<&Dictionary>,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), PackError> {
        let mut decoded = std::mem::take(&mut self.scratch);
        decoded.clear();
        let before = out.len();
        self.pack(Codec::Zstd, level, dictionary, raw, out)?;
        let zstd = dictionary.is_none_or(|d| d.phrases().is_none());
        if zstd && runs::decode_runs(raw, &mut decoded) {
            let middle = out.len();
            let header = self.header(Codec::Zstd, dictionary, raw);
            Header { recognised: true, ..header }.push(out);
            let packed = self.pack_zstd(level, dictionary, &decoded, out);
            match packed {
                Ok(()) => keep_shorter(out, before, middle),
                Err(_) => out.truncate(middle),
            }
        }
        self.scratch = decoded;
        Ok(())
    }

    /// Unpacks zstd, and what runs were decoded to back to them.
    fn unpack_recognised(
        &mut self,
        dictionary: Option<&Dictionary>,
        frame: &[u8],
        raw_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), UnpackError> {
        let mut decoded = std::mem::take(&mut self.scratch);
        decoded.clear();
        let len_max = raw_len.saturating_add(runs::OVERHEAD_MAX);
        let len_max = len_max.min(Codec::Zstd.raw_len_possible(frame.len()));
        let digest = dictionary.and_then(Dictionary::unpack_digest);
        let unpacked = self.decompressor.unpack(digest, frame, len_max, &mut decoded).ok();
        let whole = unpacked.and_then(|_| runs::encode(&decoded, raw_len, out));
        self.scratch = decoded;
        whole.ok_or(UnpackError::Corrupt(Codec::Zstd))
    }

    /// Appends the body alone that `raw` packs to as phrases.
    pub(crate) fn pack_phrases(&mut self, table: &PhraseTable, raw: &[u8], out: &mut Vec<u8>) {
        table.pack(self.phrases.get_or_insert_default(), raw, out);
    }

    /// Appends the packed form of elements, and whether it did: not if these are none, or
    /// nothing of them would be stored.
    fn pack_elements(
        &mut self,
        dictionary: &Dictionary,
        table: &PhraseTable,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> bool {
        if self.checksum {
            return false;
        }
        let (mut skeleton, mut stored) = (Vec::with_capacity(raw.len()), Vec::new());
        if elements::apart(raw, &mut skeleton, &mut stored).is_none() || stored.is_empty() {
            return false;
        }
        let header = self.header(Codec::Phrases, Some(dictionary), raw);
        Header { kind: packed::ELEMENTS, ..header }.push(out);
        varint::push(out, stored.len() as u64);
        varint::push(out, (raw.len() - stored.len() - skeleton.len()) as u64);
        out.extend_from_slice(&stored);
        self.pack_phrases(table, &skeleton, out);
        true
    }

    /// Appends the elements of which a body was made.
    fn unpack_elements(
        &mut self,
        table: &PhraseTable,
        mut body: &[u8],
        raw_len: usize,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let (stored_len, shorter) = (varint::take_len(&mut body)?, varint::take_len(&mut body)?);
        let (stored, body) = body.split_at_checked(stored_len)?;
        let skeleton_len = raw_len.checked_sub(stored_len)?.checked_sub(shorter)?;
        let mut skeleton = std::mem::take(&mut self.scratch);
        skeleton.clear();
        let unpacked = table.unpack(body, skeleton_len, &mut skeleton);
        let whole = unpacked.and_then(|()| elements::together(&skeleton, stored, raw_len, out));
        self.scratch = skeleton;
        whole
    }

    /// Appends a bare zstd frame, without a packed form's header: for those
    /// who keep the lengths themselves.
    pub(crate) fn pack_zstd(
        &mut self,
        level: i32,
        dictionary: Option<&Dictionary>,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ZstdError> {
        let parameters = match dictionary {
            Some(d) => self.fit(d.level(), raw.len() + d.bytes().len()),
            None => self.fit(level, raw.len()),
        };
        let digest = dictionary.and_then(Dictionary::pack_digest);
        self.compressor.pack(&parameters, digest, raw, out)
    }

    /// Appends what a bare zstd frame unpacks to: exactly `raw_len` bytes.
    pub(crate) fn unpack_zstd(
        &mut self,
        dictionary: Option<&Dictionary>,
        frame: &[u8],
        raw_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), UnpackError> {
        let before = out.len();
        let digest = dictionary.and_then(Dictionary::unpack_digest);
        match self.decompressor.unpack(digest, frame, raw_len, out) {
            // No bytes are no frame, though zstd takes them for the end of none.
            Ok(len) if len == raw_len && !frame.is_empty() => Ok(()),
            _ => {
                out.truncate(before);
                Err(UnpackError::Corrupt(Codec::Zstd))
            }
        }
    }

    /// zstd's numbers for a level and a length, remembered per size class.
    fn fit(&mut self, level: i32, len: usize) -> Parameters {
        let level = Codec::Zstd.nearest_level(level);
        let class = len.max(1).next_power_of_two().ilog2().clamp(6, SIZE_CLASSES as u32 - 1);
        let slot = &mut self.fitted[class as usize];
        match slot {
            Some((of, parameters)) if *of == level => *parameters,
            _ => {
                let parameters = Parameters::fit(level, 1 << class, 0, self.compressor.bytes());
                *slot = Some((level, parameters));
                parameters
            }
        }
    }

    fn pack_other(
        &mut self,
        codec: Codec,
        level: i32,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let level = codec.nearest_level(level);
        match codec {
            Codec::None | Codec::Zstd | Codec::Phrases | Codec::Planes => {
                out.extend_from_slice(raw);
            }
            Codec::Lz4 => {
                use lz4_flex::block::{
                    CompressTable, compress_into_with_table, get_maximum_output_size,
                };
                let table = self.lz4.get_or_insert_with(CompressTable::small);
                fill(out, get_maximum_output_size(raw.len()), |to| {
                    compress_into_with_table(raw, to, table).ok()
                })?;
            }
            Codec::Snappy => {
                let encoder = self.snappy.get_or_insert_with(snap::raw::Encoder::new);
                fill(out, snap::raw::max_compress_len(raw.len()), |to| {
                    encoder.compress(raw, to).ok()
                })?;
            }
            Codec::Gzip => {
                out.extend_from_slice(&GZIP_HEADER);
                self.deflate(level as u32, false, raw, out)?;
                out.extend_from_slice(&packed::crc32(raw).to_le_bytes());
                out.extend_from_slice(&(raw.len() as u32).to_le_bytes());
            }
            Codec::Zlib => self.deflate(level as u32, true, raw, out)?,
            Codec::Brotli => {
                let window = raw.len().max(1).ilog2() as i32 + 1;
                let parameters = brotli::enc::BrotliEncoderParams {
                    quality: level,
                    // With windows below, its levels from 5 on search chains, which
                    // takes them three to ten times as long.
                    lgwin: window.clamp(18, 22),
                    size_hint: raw.len(),
                    ..Default::default()
                };
                brotli::BrotliCompress(&mut &raw[..], out, &parameters).ok()?;
            }
        }
        Some(())
    }

    fn deflate(&mut self, level: u32, zlib: bool, raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let state = match self.deflate.take() {
            Some((of, head, mut state)) if (of, head) == (level, zlib) => {
                state.reset();
                state
            }
            _ => flate2::Compress::new(flate2::Compression::new(level), zlib),
        };
        let (_, _, state) = self.deflate.insert((level, zlib, state));
        out.reserve(raw.len() + raw.len() / 1000 + 64);
        loop {
            let rest = &raw[state.total_in() as usize..];
            match state.compress_vec(rest, out, flate2::FlushCompress::Finish).ok()? {
                flate2::Status::StreamEnd => return Some(()),
                _ => out.reserve(4096),
            }
        }
    }

    /// Appends what `packed` unpacks to.
    ///
    /// Refuses, before reserving anything, what claims to be longer than
    /// `raw_len_max`. On an error `out` is as it was.
    pub fn unpack(
        &mut self,
        packed: &[u8],
        dictionaries: &dyn DictionarySource,
        out: &mut Vec<u8>,
        raw_len_max: usize,
    ) -> Result<(), UnpackError> {
        let (header, body) = Header::read(packed)?;
        let raw_len = header.raw_len;
        // A run is at most three times as long as what it is decoded to.
        let runs = if header.recognised { 3 } else { 1 };
        if raw_len > raw_len_max || raw_len / runs > header.codec.raw_len_possible(body.len()) {
            return Err(UnpackError::TooLong(raw_len));
        }
        let before = out.len();
        let unpacked = match header.codec {
            Codec::Zstd | Codec::Phrases => {
                let dictionary = match header.dictionary_id {
                    Some(id) => Some(
                        dictionaries.dictionary(id).ok_or(UnpackError::MissingDictionary(id))?,
                    ),
                    None => None,
                };
                let dictionary = dictionary.as_deref();
                if header.codec == Codec::Phrases {
                    let table = dictionary.and_then(Dictionary::phrases);
                    let unpacked = table.and_then(|table| match header.kind {
                        packed::ELEMENTS => self.unpack_elements(table, body, raw_len, out),
                        _ => table.unpack(body, raw_len, out),
                    });
                    unpacked.ok_or(UnpackError::Corrupt(Codec::Phrases))
                } else if header.recognised {
                    self.unpack_recognised(dictionary, body, raw_len, out)
                } else {
                    self.unpack_zstd(dictionary, body, raw_len, out)
                }
            }
            Codec::Planes if header.kind == packed::STRINGS => {
                self.unpack_strings(body, dictionaries, raw_len, out)
            }
            Codec::Planes => {
                let table = self.table.get_or_insert_default();
                planes::unpack(body, header.kind, raw_len, table, out)
                    .ok_or(UnpackError::Corrupt(Codec::Planes))
            }
            other => self
                .unpack_other(other, header.streamed, body, raw_len, out)
                .filter(|()| out.len() - before == raw_len)
                .ok_or(UnpackError::Corrupt(other)),
        };
        let checked = unpacked.and_then(|()| match header.checksum {
            Some(sum) if sum != packed::crc32(&out[before..]) => Err(UnpackError::Checksum),
            _ => Ok(()),
        });
        if checked.is_err() {
            out.truncate(before);
        }
        checked
    }

    fn unpack_other(
        &mut self,
        codec: Codec,
        streamed: bool,
        body: &[u8],
        raw_len: usize,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        match codec {
            Codec::None | Codec::Zstd | Codec::Phrases | Codec::Planes => {
                out.extend_from_slice(body);
            }
            Codec::Lz4 if streamed => {
                read_exactly(lz4_flex::frame::FrameDecoder::new(body), raw_len, out)?;
            }
            Codec::Snappy if streamed => {
                read_exactly(snap::read::FrameDecoder::new(body), raw_len, out)?;
            }
            Codec::Lz4 => {
                fill(out, raw_len, |to| lz4_flex::block::decompress_into(body, to).ok())?;
            }
            Codec::Snappy => {
                if snap::raw::decompress_len(body).ok()? != raw_len {
                    return None;
                }
                fill(out, raw_len, |to| snap::raw::Decoder::new().decompress(body, to).ok())?;
            }
            Codec::Gzip => {
                let (head, rest) = body.split_first_chunk::<10>()?;
                if head[..4] != GZIP_HEADER[..4] {
                    return None;
                }
                let (deflated, trailer) = rest.split_last_chunk::<8>()?;
                let before = out.len();
                self.inflate(false, deflated, raw_len, out)?;
                let mut expected = [0; 8];
                expected[..4].copy_from_slice(&packed::crc32(&out[before..]).to_le_bytes());
                expected[4..].copy_from_slice(&(raw_len as u32).to_le_bytes());
                return (*trailer == expected).then_some(());
            }
            Codec::Zlib => self.inflate(true, body, raw_len, out)?,
            Codec::Brotli => {
                read_exactly(brotli::Decompressor::new(body, 4096), raw_len, out)?;
            }
        }
        Some(())
    }

    fn inflate(
        &mut self,
        zlib: bool,
        body: &[u8],
        raw_len: usize,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let state = self.inflate.get_or_insert_with(|| flate2::Decompress::new(zlib));
        state.reset(zlib);
        // Room for a byte even where none is due: without, the end is not looked for.
        fill(out, raw_len.max(1), |to| {
            let status = state.decompress(body, to, flate2::FlushDecompress::Finish).ok()?;
            let whole = status == flate2::Status::StreamEnd;
            (whole && state.total_in() == body.len() as u64).then_some(state.total_out() as usize)
        })
    }
}

/// A gzip member's header: deflate, no flags, no time, unknown system. Only
/// the first four bytes say how to read on.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// Of two forms of one value at the end of `out`, the second from `middle` on, leaves the
/// shorter one; the first where they are as long.
fn keep_shorter(out: &mut Vec<u8>, first: usize, middle: usize) {
    if out.len() - middle < middle - first {
        out.drain(first..middle);
    } else {
        out.truncate(middle);
    }
}

/// Grows `out` by what `write` makes in `room` zeroed bytes.
fn fill(
    out: &mut Vec<u8>,
    room: usize,
    write: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> Option<()> {
    let before = out.len();
    out.resize(before + room, 0);
    let written = write(&mut out[before..]);
    out.truncate(before + written.unwrap_or(0));
    written.map(drop)
}

/// Appends exactly `len` bytes from `reader`, which must then be at its end.
fn read_exactly(mut reader: impl Read, len: usize, out: &mut Vec<u8>) -> Option<()> {
    let read = reader.by_ref().take(len as u64).read_to_end(out).ok()?;
    let ended = matches!(reader.read(&mut [0]), Ok(0));
    (read == len && ended).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DictionaryKind, NoDictionaries};
    use proptest::prelude::*;
    use std::sync::Arc;

    const MAX: usize = 1 << 24;

    /// Bytes between random and repetitive.
    fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
        (prop::collection::vec(any::<u8>(), 0..300), 0usize..400, any::<u8>()).prop_map(
            |(piece, times, mask)| {
                piece.iter().cycle().take(piece.len() * times).map(|b| b & mask).collect()
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_codec_comes_back(raw in some_bytes(), level in -7i32..25, checksum: bool) {
            let mut ws = Workspace::new(WorkspaceConfig { checksum, ..Default::default() });
            for codec in Codec::ALL {
                let mut packed = b"before".to_vec();
                ws.pack(codec, level, None, &raw, &mut packed).unwrap();
                let packed = &packed[6..];
                prop_assert_eq!(packed::codec(packed), Ok(codec));
                prop_assert_eq!(packed::raw_len(packed), Ok(raw.len()));
                let mut out = b"kept".to_vec();
                ws.unpack(packed, &NoDictionaries, &mut out, MAX).unwrap();
                prop_assert_eq!(&out[..4], b"kept");
                prop_assert!(out[4..] == raw);
                if !raw.is_empty() {
                    prop_assert_eq!(
                        ws.unpack(packed, &NoDictionaries, &mut out, raw.len() - 1),
                        Err(UnpackError::TooLong(raw.len()))
                    );
                }
            }
        }

        #[test]
        fn damage_gives_an_error_or_other_bytes_never_more(
            raw in some_bytes(), number in 0u8..7, cut in any::<prop::sample::Index>(), flip in any::<(prop::sample::Index, u8)>(),
        ) {
            let mut ws = Workspace::new(WorkspaceConfig { checksum: true, ..Default::default() });
            let mut packed = Vec::new();
            ws.pack(Codec::from_number(number).unwrap(), 3, None, &raw, &mut packed).unwrap();
            let mut out = b"kept".to_vec();
            prop_assert!(ws.unpack(&packed[..cut.index(packed.len())], &NoDictionaries, &mut out, MAX).is_err());
            let at = flip.0.index(packed.len());
            packed[at] ^= flip.1;
            match ws.unpack(&packed, &NoDictionaries, &mut out, MAX) {
                Ok(()) => prop_assert!(out[4..] == raw || at == 0),
                Err(_) => prop_assert_eq!(&out, b"kept"),
            }
        }

        #[test]
        fn what_is_cut_to_its_header_is_an_error(number in 0u8..7) {
            let codec = Codec::from_number(number).unwrap();
            let mut ws = Workspace::new(WorkspaceConfig { checksum: true, ..Default::default() });
            let (mut packed, mut out) = (Vec::new(), Vec::new());
            ws.pack(codec, 3, None, b"", &mut packed).unwrap();
            let (_, body) = Header::read(&packed).unwrap();
            let header = packed.len() - body.len();
            let whole = body.is_empty();
            let cut = ws.unpack(&packed[..header], &NoDictionaries, &mut out, MAX);
            prop_assert_eq!(cut.is_ok(), whole);
        }

        #[test]
        fn any_bytes_unpack_or_fail(mut bytes in prop::collection::vec(any::<u8>(), 1..200), number in 0u8..7) {
            bytes[0] = (bytes[0] & 0x38) | number;
            let mut ws = Workspace::new(WorkspaceConfig::default());
            let mut out = Vec::new();
            if ws.unpack(&bytes, &NoDictionaries, &mut out, 1 << 16).is_err() {
                prop_assert!(out.is_empty());
            }
            prop_assert!(out.len() <= 1 << 16);
        }
    }

    /// A Celery message, much shortened.
    fn message(i: u64) -> Vec<u8> {
        use crate::recognise::{Base64, base64_in_place};
        let constant = r#"{"callbacks": null, "errbacks": null, "chain": null, "chord": null}"#;
        let mut body = format!("[[{i}], {{}}, {constant}, {constant}]").into_bytes();
        base64_in_place(&mut body, 0, Base64 { url: false, padded: true });
        let body = String::from_utf8(body).unwrap();
        let random = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        let (a, b) = (random(i + 1), random(random(i + 7)));
        let id = format!("{:08x}-{:04x}-41d7-93aa-{:012x}", a as u32, a >> 48, b >> 16);
        format!(r#"{{"id": "{id}", "root_id": "{id}", "body": "{body}"}}"#).into_bytes()
    }

    #[test]
    fn a_base64_body_inside_json_packs_to_less_than_without_looking() {
        let mut ws = Workspace::new(WorkspaceConfig::default());
        for i in 0..20 {
            let (mut recognised, mut plain) = (Vec::new(), Vec::new());
            ws.pack_recognised(3, None, &message(i), &mut recognised).unwrap();
            ws.pack(Codec::Zstd, 3, None, &message(i), &mut plain).unwrap();
            let (with, without) = (recognised.len(), plain.len());
            assert!(with * 20 < without * 19, "{with} {without}");
        }
    }

    #[test]
    fn recognised_values_with_a_dictionary_come_back_or_fail() {
        let decoded: Vec<Vec<u8>> = (0..400)
            .map(|i| {
                let mut out = Vec::new();
                assert!(crate::decode_runs(&message(i), &mut out));
                out
            })
            .collect();
        let samples: Vec<&[u8]> = decoded.iter().map(Vec::as_slice).collect();
        let dictionary = Arc::new(Dictionary::train(&samples, 2048, 3).unwrap().with_id(1));
        let mut ws = Workspace::new(WorkspaceConfig { checksum: true, ..Default::default() });
        for i in 400..430 {
            let (raw, mut packed, mut out) = (message(i), Vec::new(), Vec::new());
            ws.pack_recognised(3, Some(&dictionary), &raw, &mut packed).unwrap();
            assert!(Header::read(&packed).unwrap().0.recognised);
            assert_eq!(packed::raw_len(&packed), Ok(raw.len()));
            assert_eq!(packed::codec(&packed), Ok(Codec::Zstd));
            assert_eq!(packed::dictionary_id(&packed), Ok(Some(1)));
            ws.unpack(&packed, &dictionary, &mut out, raw.len()).unwrap();
            assert_eq!(out, raw);
            for cut in 0..packed.len() {
                let cut = &packed[..cut];
                assert!(ws.unpack(cut, &dictionary, &mut Vec::new(), raw.len()).is_err());
            }
        }
    }

    proptest! {
        #[test]
        fn recognised_values_come_back(raw in "([ -~]{0,9}|[A-Za-z0-9+/]{30,60}=?\n?|[0-9a-f]{32,70}|[0-9]{32,60}){0,5}", flip: (prop::sample::Index, u8)) {
            let mut ws = Workspace::new(WorkspaceConfig { checksum: true, ..Default::default() });
            let (mut packed, mut out) = (Vec::new(), b"kept".to_vec());
            ws.pack_recognised(1, None, raw.as_bytes(), &mut packed).unwrap();
            ws.unpack(&packed, &NoDictionaries, &mut out, MAX).unwrap();
            prop_assert_eq!(&out[4..], raw.as_bytes());
            let at = flip.0.index(packed.len());
            packed[at] ^= flip.1;
            out.truncate(4);
            match ws.unpack(&packed, &NoDictionaries, &mut out, MAX) {
                Ok(()) => prop_assert!(&out[4..] == raw.as_bytes() || at == 0),
                Err(_) => prop_assert_eq!(&out, b"kept"),
            }
        }
    }

    fn greetings() -> Vec<String> {
        (0..2000)
            .map(|i| format!(r#"{{"user":{i},"greeting":"good morning","ok":{}}}"#, i % 3 == 0))
            .collect()
    }

    #[test]
    fn a_dictionary_saves_and_comes_back() {
        let texts = greetings();
        let samples: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let dictionary = Arc::new(Dictionary::train(&samples, 4096, 3).unwrap().with_id(7));
        let mut ws = Workspace::new(WorkspaceConfig::default());
        for raw in &samples[..100] {
            let (mut with, mut without, mut out) = (Vec::new(), Vec::new(), Vec::new());
            ws.pack(Codec::Zstd, 3, Some(&dictionary), raw, &mut with).unwrap();
            ws.pack(Codec::Zstd, 3, None, raw, &mut without).unwrap();
            assert!(with.len() < without.len() / 2, "{} {}", with.len(), without.len());
            assert_eq!(packed::dictionary_id(&with), Ok(Some(7)));
            ws.unpack(&with, &dictionary, &mut out, MAX).unwrap();
            assert_eq!(out, *raw);
            assert_eq!(
                ws.unpack(&with, &NoDictionaries, &mut out, MAX),
                Err(UnpackError::MissingDictionary(7))
            );
        }
    }

    #[test]
    fn phrases_save_more_than_zstd_can_and_come_back_or_fail() {
        let texts = greetings();
        let samples: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let trained = Dictionary::train_phrases(&samples, 4096, 3).unwrap();
        let again = Dictionary::from_bytes(5, trained.bytes(), 3).unwrap();
        assert_eq!(again.kind(), DictionaryKind::Phrases);
        let phrases = Arc::new(again);
        let zstd = Arc::new(Dictionary::train(&samples, 4096, 3).unwrap().with_id(5));
        let mut ws = Workspace::new(WorkspaceConfig::default());
        for raw in &samples[..100] {
            let (mut packed, mut other, mut out) = (Vec::new(), Vec::new(), Vec::new());
            ws.pack(Codec::Zstd, 3, Some(&phrases), raw, &mut packed).unwrap();
            ws.pack_recognised(3, Some(&phrases), raw, &mut other).unwrap();
            assert_eq!(packed, other);
            other.clear();
            ws.pack(Codec::Zstd, 3, Some(&zstd), raw, &mut other).unwrap();
            assert!(packed.len() < other.len(), "{} {}", packed.len(), other.len());
            assert_eq!(packed::codec(&packed), Ok(Codec::Phrases));
            assert_eq!(packed::dictionary_id(&packed), Ok(Some(5)));
            ws.unpack(&packed, &phrases, &mut out, MAX).unwrap();
            assert_eq!(out, *raw);
            let missing = ws.unpack(&packed, &NoDictionaries, &mut out, MAX);
            assert_eq!(missing, Err(UnpackError::MissingDictionary(5)));
            // Under that id another kind of dictionary.
            let wrong = ws.unpack(&packed, &zstd, &mut out, MAX);
            assert_eq!(wrong, Err(UnpackError::Corrupt(Codec::Phrases)));
            assert!(ws.unpack(&other, &phrases, &mut out, MAX).is_err());
            assert_eq!(out, *raw);
        }
        let nothing = ws.pack(Codec::Phrases, 3, None, b"raw", &mut Vec::new());
        assert_eq!(nothing, Err(PackError::Dictionary));
    }

    #[test]
    fn a_small_workspace_packs_at_every_level_with_and_without_a_dictionary() {
        let texts = greetings();
        let samples: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let raw = samples.concat();
        for level in [-5, 1, 2, 3, 6, 9, 12, 16, 19, 22] {
            let trained = Dictionary::train_with(&samples, 16 * 1024, level, 1).unwrap();
            let dictionary = Arc::new(trained.with_id(1));
            for (pack_bytes, raw) in [(1, &raw[..]), (1 << 19, &raw[..]), (1 << 19, &raw[..4000])] {
                let mut ws = Workspace::new(WorkspaceConfig { pack_bytes, checksum: false });
                let (mut packed, mut out) = (Vec::new(), Vec::new());
                ws.pack(Codec::Zstd, level, None, raw, &mut packed).unwrap();
                ws.unpack(&packed, &NoDictionaries, &mut out, MAX).unwrap();
                assert!(out == raw);
                let mut ws =
                    Workspace::new(WorkspaceConfig { pack_bytes: 4 << 20, checksum: false });
                packed.clear();
                out.clear();
                ws.pack(Codec::Zstd, level, Some(&dictionary), raw, &mut packed).unwrap();
                ws.unpack(&packed, &dictionary, &mut out, MAX).unwrap();
                assert!(out == raw);
            }
        }
    }

    #[test]
    fn bombs_are_refused_before_they_grow() {
        let mut ws = Workspace::new(WorkspaceConfig::default());
        for codec in Codec::ALL {
            let header = Header {
                codec,
                dictionary_id: None,
                raw_len: usize::MAX >> 1,
                checksum: None,
                streamed: false,
                recognised: codec == Codec::Zstd,
                kind: 0,
            };
            let mut bomb = Vec::new();
            header.push(&mut bomb);
            bomb.extend_from_slice(&[0; 40]);
            let mut out = Vec::new();
            assert!(ws.unpack(&bomb, &NoDictionaries, &mut out, usize::MAX).is_err());
            assert_eq!(out.capacity(), 0);
        }
    }
}
