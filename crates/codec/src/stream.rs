//! Packing and unpacking of large values in slices, over chains of segments.
//!
//! ```text
//!  raw segments   [ piece ][ piece ] ... [ piece ]     each within one segment
//!                     |        |             |
//!                  a slice:  pieces until the slice's time is up, then a pause
//!                     v        v             v
//!  packed         [header, shape 3][block][block] ...  appended to segments
//! ```
//!
//! With zstd nothing is copied: it looks back into the segment before where it
//! lies, both ways, for the window is one segment. A piece never crosses into
//! the next segment, hence neither does a block, hence every block unpacks into
//! the segment it belongs to.
//!
//! How slices keep to their time, and what is asked of whoever drives them, is in
//! `pace.rs`. What is dropped half way leaves nothing behind.
//!
//! In steady state a stream allocates its output's segments only; lz4, snappy,
//! gzip, zlib and brotli keep working memory of their own while they run.

use std::io::{Read, Write};

use crate::packed::Header;
use crate::zstd_static::{MAGIC_BYTES, Parameters};
use crate::{
    Codec, DictionarySource, PackError, SEGMENT_BYTES, Segments, SegmentsFiller, UnpackError,
    Workspace,
};

mod pace;

pub use pace::{AnyPace, AtOnce, PIECE_BYTES_MIN, Pace, Pieces, SomePace, Turns, drive};

/// Packs `raw` in slices of about `slice_ns`. No dictionary: what a dictionary
/// holds, a value this large holds itself.
pub async fn pack(
    ws: &mut Workspace,
    codec: Codec,
    level: i32,
    raw: &Segments,
    pace: &impl Pace,
    slice_ns: u64,
) -> Result<Segments, PackError> {
    let mut pieces = Pieces::new(pace, slice_ns);
    let packed = pack_in_pieces(ws, codec, level, raw, &mut pieces).await?;
    pieces.finished();
    Ok(packed)
}

/// [`pack`] as a part of other work in slices.
pub async fn pack_in_pieces<P: Pace>(
    ws: &mut Workspace,
    codec: Codec,
    level: i32,
    raw: &Segments,
    pieces: &mut Pieces<'_, P>,
) -> Result<Segments, PackError> {
    if matches!(codec, Codec::Phrases | Codec::Planes) {
        return Err(PackError::Dictionary);
    }
    let mut stream = PackStream::new(ws, codec, level, raw)?;
    while stream.step(pieces.bytes)? {
        pieces.stepped().await;
    }
    Ok(std::mem::take(&mut stream.out))
}

/// Unpacks `packed` in slices of about `slice_ns`.
///
/// A packed form made by [`Workspace::pack`] is unpacked too, in one slice.
pub async fn unpack(
    ws: &mut Workspace,
    packed: &Segments,
    dictionaries: &dyn DictionarySource,
    raw_len_max: usize,
    pace: &impl Pace,
    slice_ns: u64,
) -> Result<Segments, UnpackError> {
    let (header, header_len) = read_header(packed)?;
    if !header.streamed {
        let mut out = Vec::new();
        ws.unpack(&packed.to_vec(), dictionaries, &mut out, raw_len_max)?;
        return Ok(Segments::from(&out[..]));
    }
    let mut stream = UnpackStream::new(ws, packed, &header, header_len, raw_len_max)?;
    let mut pieces = Pieces::new(pace, slice_ns);
    while stream.step(pieces.bytes)? {
        pieces.stepped().await;
    }
    pieces.finished();
    Ok(stream.out.finish())
}

fn read_header(packed: &Segments) -> Result<(Header, usize), UnpackError> {
    let mut front = [0; 32];
    let len = packed.len().min(front.len());
    for (to, &byte) in front.iter_mut().zip(packed.range(0, len).flatten()) {
        *to = byte;
    }
    let (header, rest) = Header::read(&front[..len])?;
    Ok((header, len - rest.len()))
}

/// Packing, one piece at a time.
struct PackStream<'a> {
    ws: &'a mut Workspace,
    codec: Codec,
    raw: &'a Segments,
    at: usize,
    piece_bytes_max: usize,
    header_len: usize,
    /// The header and what the codec made, as far as not yet in `out`.
    made: Made,
    out: Segments,
}

/// The codecs' own streams, each writing into a buffer.
enum Made {
    /// zstd, deflate and none write through the workspace.
    Workspace(Vec<u8>),
    Deflate(flate2::write::ZlibEncoder<Vec<u8>>),
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Lz4(Box<lz4_flex::frame::FrameEncoder<Vec<u8>>>),
    Snappy(Box<snap::write::FrameEncoder<Vec<u8>>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
}

impl Made {
    fn new(codec: Codec, level: i32, scratch: Vec<u8>) -> Self {
        let level = codec.nearest_level(level);
        let deflate = flate2::Compression::new(level.clamp(0, 9) as u32);
        match codec {
            Codec::None | Codec::Zstd | Codec::Phrases | Codec::Planes => Self::Workspace(scratch),
            Codec::Lz4 => Self::Lz4(Box::new(lz4_flex::frame::FrameEncoder::new(scratch))),
            Codec::Snappy => Self::Snappy(Box::new(snap::write::FrameEncoder::new(scratch))),
            Codec::Gzip => Self::Gzip(flate2::write::GzEncoder::new(scratch, deflate)),
            Codec::Zlib => Self::Deflate(flate2::write::ZlibEncoder::new(scratch, deflate)),
            Codec::Brotli => Self::Brotli(Box::new(brotli::CompressorWriter::new(
                scratch,
                PIECE_BYTES_MIN,
                level as u32,
                20,
            ))),
        }
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Workspace(buffer) => buffer,
            Self::Deflate(w) => w.get_mut(),
            Self::Gzip(w) => w.get_mut(),
            Self::Lz4(w) => w.get_mut(),
            Self::Snappy(w) => w.get_mut(),
            Self::Brotli(w) => w.get_mut(),
        }
    }

    fn write(&mut self, piece: &[u8], last: bool) -> std::io::Result<()> {
        match self {
            Self::Workspace(buffer) => buffer.write_all(piece),
            Self::Deflate(w) => {
                w.write_all(piece).and_then(|()| if last { w.try_finish() } else { Ok(()) })
            }
            Self::Gzip(w) => {
                w.write_all(piece).and_then(|()| if last { w.try_finish() } else { Ok(()) })
            }
            Self::Lz4(w) => {
                w.write_all(piece)?;
                if last { w.try_finish().map_err(std::io::Error::other) } else { Ok(()) }
            }
            Self::Snappy(w) => {
                w.write_all(piece).and_then(|()| if last { w.flush() } else { Ok(()) })
            }
            // Else it would gather 64 KiB, and then pack them at once.
            Self::Brotli(w) => w.write_all(piece).and_then(|()| w.flush()),
        }
    }
}

impl<'a> PackStream<'a> {
    fn new(
        ws: &'a mut Workspace,
        codec: Codec,
        level: i32,
        raw: &'a Segments,
    ) -> Result<Self, PackError> {
        let header = Header {
            codec,
            dictionary_id: None,
            raw_len: raw.len(),
            checksum: None,
            streamed: true,
            recognised: false,
            kind: 0,
        };
        let mut scratch = std::mem::take(&mut ws.scratch);
        scratch.clear();
        header.push(&mut scratch);
        let header_len = scratch.len();
        if codec == Codec::Zstd {
            let budget = ws.compressor.bytes();
            let level = codec.nearest_level(level);
            let parameters = Parameters::fit(level, raw.len().min(SEGMENT_BYTES), 0, budget);
            ws.compressor.begin(&parameters)?;
        }
        let made = Made::new(codec, level, scratch);
        let piece_bytes_max =
            if codec == Codec::Zstd { zstd_piece::BYTES_MAX } else { SEGMENT_BYTES };
        let (at, out) = (0, Segments::default());
        Ok(Self { ws, codec, raw, at, piece_bytes_max, header_len, made, out })
    }

    /// Packs the next piece; whether there is more to do.
    fn step(&mut self, bytes: usize) -> Result<bool, PackError> {
        let room = SEGMENT_BYTES - self.at % SEGMENT_BYTES;
        let end = self.at + bytes.min(room).min(self.piece_bytes_max);
        let piece = self.raw.range(self.at, end).next().unwrap_or(&[]);
        let first = self.at == 0;
        self.at += piece.len();
        let last = self.at >= self.raw.len();
        if self.codec == Codec::Zstd {
            let buffer = self.made.buffer();
            zstd_piece::pack(&mut self.ws.compressor, self.raw, piece, last, buffer)?;
            if first {
                let magic = self.header_len..self.header_len + MAGIC_BYTES;
                buffer.drain(magic);
            }
        } else {
            self.made.write(piece, last).map_err(|_| PackError::Codec(self.codec))?;
        }
        self.flush(last);
        Ok(!last)
    }

    /// Moves whole segments to the output; in the end what remains too.
    fn flush(&mut self, last: bool) {
        if last && let Made::Brotli(writer) = &mut self.made {
            // The end of a brotli stream is only written by giving it up.
            let empty = brotli::CompressorWriter::new(Vec::new(), 64, 0, 10);
            let done = std::mem::replace(&mut **writer, empty).into_inner();
            self.out.append(&done);
            return;
        }
        let buffer = self.made.buffer();
        let whole = if last { buffer.len() } else { buffer.len() / SEGMENT_BYTES * SEGMENT_BYTES };
        if whole > 0 {
            self.out.append(&buffer[..whole]);
            buffer.drain(..whole);
        }
    }
}

impl Drop for PackStream<'_> {
    fn drop(&mut self) {
        if let Made::Workspace(buffer) = &mut self.made {
            self.ws.scratch = std::mem::take(buffer);
        }
    }
}

/// Unpacking, one piece at a time.
struct UnpackStream<'a> {
    codec: Codec,
    from: From<'a>,
    out: SegmentsFiller,
}

enum From<'a> {
    Zstd { ws: &'a mut Workspace, packed: SegmentsReader<'a> },
    None(SegmentsReader<'a>),
    Lz4(Box<lz4_flex::frame::FrameDecoder<SegmentsReader<'a>>>),
    Snappy(Box<snap::read::FrameDecoder<SegmentsReader<'a>>>),
    Gzip(Box<flate2::read::GzDecoder<SegmentsReader<'a>>>),
    Zlib(Box<flate2::read::ZlibDecoder<SegmentsReader<'a>>>),
    Brotli(Box<brotli::Decompressor<SegmentsReader<'a>>>),
}

impl<'a> UnpackStream<'a> {
    fn new(
        ws: &'a mut Workspace,
        packed: &'a Segments,
        header: &Header,
        at: usize,
        raw_len_max: usize,
    ) -> Result<Self, UnpackError> {
        let (codec, raw_len) = (header.codec, header.raw_len);
        if raw_len > raw_len_max || raw_len > codec.raw_len_possible(packed.len() - at) {
            return Err(UnpackError::TooLong(raw_len));
        }
        let packed = SegmentsReader { chain: packed, at };
        let from = match codec {
            Codec::Zstd => {
                ws.decompressor.begin().map_err(|_| UnpackError::Corrupt(codec))?;
                From::Zstd { ws, packed }
            }
            Codec::None => From::None(packed),
            Codec::Phrases | Codec::Planes => return Err(UnpackError::Corrupt(codec)),
            Codec::Lz4 => From::Lz4(Box::new(lz4_flex::frame::FrameDecoder::new(packed))),
            Codec::Snappy => From::Snappy(Box::new(snap::read::FrameDecoder::new(packed))),
            Codec::Gzip => From::Gzip(Box::new(flate2::read::GzDecoder::new(packed))),
            Codec::Zlib => From::Zlib(Box::new(flate2::read::ZlibDecoder::new(packed))),
            Codec::Brotli => {
                From::Brotli(Box::new(brotli::Decompressor::new(packed, PIECE_BYTES_MIN)))
            }
        };
        Ok(Self { codec, from, out: SegmentsFiller::new(raw_len) })
    }

    /// Unpacks the next piece; whether there is more to do.
    fn step(&mut self, bytes: usize) -> Result<bool, UnpackError> {
        let corrupt = UnpackError::Corrupt(self.codec);
        let read = match &mut self.from {
            From::Zstd { ws, packed } => {
                return zstd_piece::unpack(ws, packed, bytes, &mut self.out).ok_or(corrupt);
            }
            From::None(reader) => read_piece(reader, bytes, &mut self.out),
            From::Lz4(reader) => read_piece(reader, bytes, &mut self.out),
            From::Snappy(reader) => read_piece(reader, bytes, &mut self.out),
            From::Gzip(reader) => read_piece(reader, bytes, &mut self.out),
            From::Zlib(reader) => read_piece(reader, bytes, &mut self.out),
            From::Brotli(reader) => read_piece(reader, bytes, &mut self.out),
        };
        read.ok_or(corrupt)
    }
}

/// Reads at most `bytes`; whether there is more to do. `None` when the stream
/// fails, ends early or goes on after its length.
fn read_piece(reader: &mut impl Read, bytes: usize, out: &mut SegmentsFiller) -> Option<bool> {
    if out.remaining() == 0 {
        return matches!(reader.read(&mut [0]), Ok(0)).then_some(false);
    }
    let room = out.spare();
    let len = bytes.min(room.len());
    match reader.read(&mut room[..len]) {
        Ok(0) | Err(_) => None,
        Ok(read) => {
            out.advance(read);
            Some(true)
        }
    }
}

/// Reads a chain from the front.
struct SegmentsReader<'a> {
    chain: &'a Segments,
    at: usize,
}

impl<'a> SegmentsReader<'a> {
    /// The next bytes, at most `len` of them, as far as they lie together.
    fn next(&self, len: usize) -> &'a [u8] {
        self.chain.range(self.at, self.at.saturating_add(len)).next().unwrap_or(&[])
    }
}

impl Read for SegmentsReader<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let piece = self.next(to.len());
        let len = piece.len();
        to[..len].copy_from_slice(piece);
        self.at += len;
        Ok(len)
    }
}

/// The two places where zstd is promised that memory stays where it is.
#[allow(unsafe_code)]
mod zstd_piece {
    use super::*;
    use crate::ZstdError;
    use crate::zstd_static::Compressor;

    /// The largest piece to pack, and so the largest block. In blocks of twice as
    /// much zstd looks for where best to divide them, a third of its time on what
    /// repeats much; and its window, which it counts from a block's end, would hold
    /// nothing of the segment before.
    pub(super) const BYTES_MAX: usize = SEGMENT_BYTES / 2;

    /// Headers and blocks that are taken at once, of which crafted ones may all be
    /// empty: as many as a segment of the smallest pieces has.
    const STEPS_MAX: usize = 2 * SEGMENT_BYTES / PIECE_BYTES_MIN;

    /// Packs a piece of `raw`, which the caller keeps whole until the frame ends.
    pub(super) fn pack(
        compressor: &mut Compressor,
        raw: &Segments,
        piece: &[u8],
        last: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), ZstdError> {
        debug_assert!(
            piece.is_empty()
                || raw.parts().iter().any(|p| p.as_ptr_range().contains(&piece.as_ptr()))
        );
        // SAFETY: the pieces lie in a chain that the stream borrows, so that
        // nobody can change or free it while the stream lives; a context whose
        // stream was dropped is reset before its next use.
        unsafe { compressor.pack_piece(piece, last, out) }
    }

    /// Unpacks blocks of at least so many `bytes`; whether there is more to do.
    pub(super) fn unpack(
        ws: &mut Workspace,
        packed: &mut SegmentsReader<'_>,
        bytes: usize,
        out: &mut SegmentsFiller,
    ) -> Option<bool> {
        let enough = out.filled().saturating_add(bytes);
        for _ in 0..STEPS_MAX {
            let wanted = ws.decompressor.wants();
            if wanted == 0 {
                let ended = out.remaining() == 0 && packed.at == packed.chain.len();
                return ended.then_some(false);
            }
            let mut part = packed.next(wanted);
            if part.len() < wanted {
                // It lies across segments of the packed chain.
                ws.scratch.clear();
                for part in packed.chain.range(packed.at, packed.at.saturating_add(wanted)) {
                    ws.scratch.extend_from_slice(part);
                }
                part = &ws.scratch;
            }
            if part.len() != wanted {
                return None;
            }
            let room = out.spare_uninit();
            // SAFETY: zstd looks back at most one window, which is one segment, and
            // at no more than two runs of memory: the segment being filled and the
            // one before. The filler keeps both where they are: a filled segment is
            // only moved by its handle. Where a crafted frame claims a larger
            // window, zstd still bounds every look back by those two runs.
            let written = unsafe { ws.decompressor.step(part, room) }.ok()?;
            packed.at += wanted;
            // SAFETY: zstd has written them.
            unsafe { out.advance_written(written) };
            if out.filled() >= enough {
                break;
            }
        }
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NoDictionaries, WorkspaceConfig};
    use proptest::prelude::*;
    use std::cell::Cell;

    /// A clock that goes on by `tick` when it is asked, and pauses that are counted.
    #[derive(Default)]
    struct Ticks {
        now: Cell<u64>,
        tick: u64,
        pauses: Cell<u32>,
    }

    impl Pace for Ticks {
        fn now_ns(&self) -> u64 {
            self.now.set(self.now.get() + self.tick);
            self.now.get()
        }

        async fn pause(&self) {
            self.pauses.set(self.pauses.get() + 1);
            Turns::default().pause().await;
        }
    }

    /// The room of a workspace is the same at every level.
    #[test]
    fn no_level_packs_less_than_the_ones_below_it_did() {
        let mut x = 1u64;
        let mut word = || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            format!("word{} ", (x >> 33) % 3000)
        };
        let text: String = (0..15_000).map(|_| word()).collect();
        let chain = Segments::from(text.as_bytes());
        let mut ws = Workspace::new(WorkspaceConfig::default());
        let mut len = |level| {
            AtOnce::run(pack(&mut ws, Codec::Zstd, level, &chain, &AtOnce, 1)).unwrap().len()
        };
        let of_level_9 = len(9);
        assert!(of_level_9 * 2 < text.len());
        assert!((10..=22).all(|level| len(level) <= of_level_9 + of_level_9 / 50));
    }

    /// Blocks of nothing cost as much as others, and end no slice by their bytes.
    #[test]
    fn a_crafted_stream_of_empty_blocks_is_cut_into_slices() {
        let frame = [&[0x18 | Codec::Zstd.number(), 1, 0, 0x38][..], &vec![0; 30_000]].concat();
        let frame = Segments::from(&frame[..]);
        let (mut ws, pace) =
            (Workspace::new(WorkspaceConfig::default()), Ticks { tick: 100, ..Default::default() });
        let work = unpack(&mut ws, &frame, &NoDictionaries, 1, &pace, 100);
        assert!(drive(work, usize::MAX).unwrap().is_err());
        assert!(pace.pauses.get() > 100);
    }

    /// It would gather 64 KiB, and pack them in one slice.
    #[test]
    fn brotli_packs_each_piece_when_it_is_given_it() {
        let mut x = 1u64;
        let mut noise = || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (x >> 56) as u8
        };
        let mut made = Made::new(Codec::Brotli, 5, Vec::new());
        for pieces in 1..10 {
            let piece: Vec<u8> = (0..PIECE_BYTES_MIN).map(|_| noise()).collect();
            made.write(&piece, false).unwrap();
            assert!(made.buffer().len() > pieces * PIECE_BYTES_MIN);
        }
    }

    fn some_value() -> impl Strategy<Value = Vec<u8>> {
        (0usize..500_000, 1usize..3000, any::<u64>(), 0u8..8).prop_map(
            |(len, period, seed, squeeze)| {
                let mut x = seed | 1;
                (0..len)
                    .map(|i| {
                        x ^= x << 13;
                        x ^= x >> 7;
                        x ^= x << 17;
                        if i % 3 == 0 { (x as u8) >> squeeze } else { (i % period) as u8 }
                    })
                    .collect()
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn streams_come_back(raw in some_value(), number in 0u8..7, level in 1i32..23, tick in 0u64..200, abandon in 0usize..6) {
            let codec = Codec::from_number(number).unwrap();
            let mut ws = Workspace::new(WorkspaceConfig::default());
            let chain = Segments::from(&raw[..]);
            let pace = Ticks { tick, ..Default::default() };
            // One abandoned half way leaves a workspace as good as new.
            let _ = drive(pack(&mut ws, codec, level, &chain, &pace, 100), abandon);
            let packed = drive(pack(&mut ws, codec, level, &chain, &pace, 100), usize::MAX).unwrap().unwrap();
            let _ = drive(unpack(&mut ws, &packed, &NoDictionaries, raw.len(), &pace, 100), abandon);
            let back = drive(unpack(&mut ws, &packed, &NoDictionaries, raw.len(), &pace, 100), usize::MAX).unwrap().unwrap();
            prop_assert!(back == chain);
            prop_assert!(tick < 50 || raw.len() < 100_000 || pace.pauses.get() > 0);
            let mut whole = Vec::new();
            ws.unpack(&packed.to_vec(), &NoDictionaries, &mut whole, raw.len()).unwrap();
            prop_assert!(whole == raw);
        }

        #[test]
        fn damaged_streams_fail_or_give_other_bytes(raw in some_value(), number in 0u8..7, at: prop::sample::Index, with: u8, cut: prop::sample::Index) {
            let codec = Codec::from_number(number).unwrap();
            let mut ws = Workspace::new(WorkspaceConfig::default());
            let pace = Ticks::default();
            let packed = drive(pack(&mut ws, codec, 1, &Segments::from(&raw[..]), &pace, 100), usize::MAX).unwrap().unwrap();
            let mut bytes = packed.to_vec();
            let short = Segments::from(&bytes[..cut.index(bytes.len())]);
            prop_assert!(drive(unpack(&mut ws, &short, &NoDictionaries, 1 << 20, &pace, 100), usize::MAX).unwrap().is_err());
            let at = at.index(bytes.len());
            bytes[at] ^= with;
            let damaged = Segments::from(&bytes[..]);
            if let Ok(out) = drive(unpack(&mut ws, &damaged, &NoDictionaries, 1 << 20, &pace, 100), usize::MAX).unwrap() {
                prop_assert!(out.len() <= 1 << 20);
            }
        }
    }
}
