//! Content codings of HTTP: zstd (RFC 8878), brotli (RFC 7932) and gzip (RFC 1952), as
//! streams that are written piece by piece, and what of a packed form is one already.
//!
//! ```text
//!  packed form   [header][zstd frame without its magic number]
//!  as it lies    [28 b5 2f fd][the same frame]
//!
//!  packed form   [header][gzip member]         as it lies   [the same member]
//!  packed form   [header][brotli stream]       as it lies   [the same stream]
//! ```
//!
//! A form that needs a dictionary, or in which runs were decoded, is none. Frames of zstd
//! may follow each other in one body; streams of brotli may not, and of gzip's members
//! browsers read the first alone.

use crate::packed::Header;
use crate::{Codec, SEGMENT_BYTES};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer};

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// `zstd`.
    Zstd,
    /// `br`.
    Brotli,
    /// `gzip`.
    Gzip,
}

/// What each frame of zstd begins with.
pub const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// The largest window of a body that is decoded, as a power of two: 8 MiB, RFC 9659's
/// most for zstd on the web.
const WINDOW_LOG_MAX: u32 = 23;

impl Coding {
    /// All of them, the cheapest to make first.
    pub const ALL: [Self; 3] = [Self::Zstd, Self::Brotli, Self::Gzip];

    /// The name in `Accept-Encoding` and `Content-Encoding`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// The coding of a name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("x-gzip") {
            return Some(Self::Gzip);
        }
        Self::ALL.into_iter().find(|coding| coding.name().eq_ignore_ascii_case(name))
    }

    /// The coding that a form is in, and its bytes without the form's header; zstd's are
    /// to be sent behind [`ZSTD_MAGIC`]. `None` if the form is no coding.
    pub fn of_form(form: &[u8]) -> Option<(Self, &[u8])> {
        let (header, body) = Header::read(form).ok()?;
        if header.dictionary_id.is_some() || header.recognised {
            return None;
        }
        let coding = match header.codec {
            Codec::Zstd => Self::Zstd,
            Codec::Brotli => Self::Brotli,
            Codec::Gzip => Self::Gzip,
            _ => return None,
        };
        Some((coding, body))
    }

    /// What makes such a body of raw bytes: magic number included, for zstd.
    pub const fn prefix(self) -> &'static [u8] {
        match self {
            Self::Zstd => ZSTD_MAGIC,
            _ => &[],
        }
    }

    /// The level at which bodies are made while a client waits.
    const fn level(self) -> i32 {
        match self {
            Self::Zstd => 3,
            Self::Brotli | Self::Gzip => 4,
        }
    }
}

/// What stands before at most a segment of raw bytes so that they are a frame of zstd: it
/// takes no time to make.
pub fn raw_zstd_head(len: usize) -> [u8; 9] {
    debug_assert!(len <= SEGMENT_BYTES);
    // A window of 128 KiB, no sizes, no checksum; one block, the last, of raw bytes.
    let block = ((len as u32) << 3 | 1).to_le_bytes();
    [0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3, block[0], block[1], block[2]]
}

/// Makes a body of raw bytes that come piece by piece.
pub struct Encoder(Encoding);

enum Encoding {
    Zstd(CCtx<'static>, Vec<u8>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Gzip(Box<flate2::write::GzEncoder<Vec<u8>>>),
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

fn zstd_error(code: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, zstd_safe::get_error_name(code))
}

impl Encoder {
    /// An encoder of a body of about so many raw bytes.
    pub fn new(coding: Coding, len: usize) -> io::Result<Self> {
        let level = coding.level();
        Ok(Self(match coding {
            Coding::Zstd => {
                let mut context = CCtx::create();
                for parameter in [
                    CParameter::CompressionLevel(level),
                    CParameter::WindowLog(len.max(1024).ilog2().clamp(10, 16) + 1),
                    CParameter::ContentSizeFlag(false),
                ] {
                    context.set_parameter(parameter).map_err(zstd_error)?;
                }
                Encoding::Zstd(context, Vec::new())
            }
            Coding::Brotli => Encoding::Brotli(Box::new(brotli::CompressorWriter::new(
                Vec::new(),
                4096,
                level as u32,
                18,
            ))),
            Coding::Gzip => Encoding::Gzip(Box::new(flate2::write::GzEncoder::new(
                Vec::new(),
                flate2::Compression::new(level as u32),
            ))),
        }))
    }

    /// Takes raw bytes, and gives those of the body that are ready: none, perhaps.
    pub fn push(&mut self, raw: &[u8]) -> io::Result<Vec<u8>> {
        match &mut self.0 {
            Encoding::Zstd(context, out) => {
                zstd_step(
                    context,
                    raw,
                    out,
                    zstd_safe::zstd_sys::ZSTD_EndDirective::ZSTD_e_continue,
                )?;
                Ok(std::mem::take(out))
            }
            Encoding::Brotli(writer) => {
                writer.write_all(raw)?;
                Ok(std::mem::take(writer.get_mut()))
            }
            Encoding::Gzip(writer) => {
                writer.write_all(raw)?;
                Ok(std::mem::take(writer.get_mut()))
            }
        }
    }

    /// The rest of the body: there are no more raw bytes.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        match self.0 {
            Encoding::Zstd(mut context, mut out) => {
                let end = zstd_safe::zstd_sys::ZSTD_EndDirective::ZSTD_e_end;
                zstd_step(&mut context, &[], &mut out, end)?;
                Ok(out)
            }
            Encoding::Brotli(writer) => Ok(writer.into_inner()),
            Encoding::Gzip(writer) => writer.finish(),
        }
    }

    /// The body of raw bytes that are there as a whole.
    pub fn whole(coding: Coding, raw: &[u8]) -> io::Result<Vec<u8>> {
        let mut encoder = Self::new(coding, raw.len())?;
        let mut body = encoder.push(raw)?;
        body.extend_from_slice(&encoder.finish()?);
        Ok(body)
    }
}

fn zstd_step(
    context: &mut CCtx<'_>,
    raw: &[u8],
    out: &mut Vec<u8>,
    how: zstd_safe::zstd_sys::ZSTD_EndDirective,
) -> io::Result<()> {
    let mut input = InBuffer::around(raw);
    loop {
        out.reserve(raw.len() / 2 + 1024);
        let at = out.len();
        let left = {
            let mut output = OutBuffer::around_pos(out, at);
            context.compress_stream2(&mut output, &mut input, how).map_err(zstd_error)?
        };
        let ends = how == zstd_safe::zstd_sys::ZSTD_EndDirective::ZSTD_e_end;
        if input.pos() == raw.len() && (!ends || left == 0) {
            return Ok(());
        }
    }
}

/// Bytes of a body that have come and are not decoded yet.
#[derive(Debug, Default)]
struct Come {
    pieces: VecDeque<Vec<u8>>,
    at: usize,
    ended: bool,
}

/// What decoders read from: [`io::ErrorKind::WouldBlock`] while there is nothing and more
/// may come.
#[derive(Clone, Debug, Default)]
struct Feed(Arc<Mutex<Come>>);

impl Feed {
    fn with<R>(&self, work: impl FnOnce(&mut Come) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Read for Feed {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.with(|come| {
            let Some(piece) = come.pieces.front() else {
                return if come.ended { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
            };
            let n = out.len().min(piece.len() - come.at);
            out[..n].copy_from_slice(&piece[come.at..come.at + n]);
            come.at += n;
            if come.at == piece.len() {
                come.pieces.pop_front();
                come.at = 0;
            }
            Ok(n)
        })
    }
}

/// Makes raw bytes of a body that comes piece by piece, some at a time: what a body claims
/// to hold costs nothing before it is read.
pub struct Decoder {
    feed: Feed,
    decoding: Decoding,
}

enum Decoding {
    Zstd(Box<Zstd>),
    Brotli(Box<brotli::Decompressor<Feed>>),
    Gzip(Box<flate2::read::MultiGzDecoder<Feed>>),
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

struct Zstd {
    context: DCtx<'static>,
    feed: Feed,
    input: Vec<u8>,
    at: usize,
    /// A frame has been begun and not ended, or none has been begun yet.
    within: bool,
    /// The decoder may hold bytes for which there was no room.
    full: bool,
}

impl Decoder {
    /// A decoder of a body in this coding.
    pub fn new(coding: Coding) -> io::Result<Self> {
        let feed = Feed::default();
        let decoding = match coding {
            Coding::Zstd => {
                let mut context = DCtx::create();
                context
                    .set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))
                    .map_err(zstd_error)?;
                let (feed, input) = (feed.clone(), Vec::new());
                Decoding::Zstd(Box::new(Zstd {
                    context,
                    feed,
                    input,
                    at: 0,
                    within: true,
                    full: false,
                }))
            }
            Coding::Brotli => {
                Decoding::Brotli(Box::new(brotli::Decompressor::new(feed.clone(), 4096)))
            }
            Coding::Gzip => {
                Decoding::Gzip(Box::new(flate2::read::MultiGzDecoder::new(feed.clone())))
            }
        };
        Ok(Self { feed, decoding })
    }

    /// Takes bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.feed.with(|come| come.pieces.push_back(bytes.to_vec()));
        }
    }

    /// The body ends here.
    pub fn end(&mut self) {
        self.feed.with(|come| come.ended = true);
    }

    /// Fills `out` with raw bytes as far as there are: 0 at the end of all, and
    /// [`io::ErrorKind::WouldBlock`] where more of the body is needed. An error if the body
    /// is none of its coding, or was cut short.
    pub fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.decoding {
            Decoding::Zstd(zstd) => zstd.read(out)?,
            Decoding::Brotli(reader) => reader.read(out)?,
            Decoding::Gzip(reader) => reader.read(out)?,
        };
        if read == 0 && !out.is_empty() {
            let (more, ended) = self.feed.with(|come| (!come.pieces.is_empty(), come.ended));
            if more {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "bytes behind the end"));
            }
            if !ended {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        Ok(read)
    }
}

impl Zstd {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.at == self.input.len() && !self.full {
                let mut more = vec![0; 4096];
                let n = self.feed.read(&mut more)?;
                if n == 0 {
                    return if self.within {
                        Err(io::ErrorKind::UnexpectedEof.into())
                    } else {
                        Ok(0)
                    };
                }
                more.truncate(n);
                (self.input, self.at) = (more, 0);
            }
            let (mut input, mut output) =
                (InBuffer::around(&self.input[self.at..]), OutBuffer::around(&mut *out));
            let left =
                self.context.decompress_stream(&mut output, &mut input).map_err(zstd_error)?;
            let (taken, made) = (input.pos(), output.pos());
            self.at += taken;
            self.within = left != 0;
            self.full = made == out.len() && self.within;
            if made > 0 {
                return Ok(made);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{self, AtOnce};
    use crate::{Segments, Workspace, WorkspaceConfig};
    use proptest::prelude::*;

    fn decoded(coding: Coding, body: &[u8], piece: usize, room: usize) -> io::Result<Vec<u8>> {
        let mut decoder = Decoder::new(coding)?;
        let (mut raw, mut out, mut pieces) = (Vec::new(), vec![0; room], body.chunks(piece));
        loop {
            match decoder.read(&mut out) {
                Ok(0) => return Ok(raw),
                Ok(n) => raw.extend_from_slice(&out[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match pieces.next() {
                    Some(piece) => decoder.push(piece),
                    None => decoder.end(),
                },
                Err(error) => return Err(error),
            }
        }
    }

    fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..5000),
            (any::<u8>(), 0usize..300_000).prop_map(|(byte, len)| vec![byte; len]),
            "[a-f ]{0,3000}".prop_map(String::into_bytes),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn bodies_are_read_back(raw in some_bytes(), n in 0usize..3, piece in 1usize..5000, room in 1usize..5000) {
            let coding = Coding::ALL[n];
            let mut encoder = Encoder::new(coding, raw.len()).unwrap();
            let mut body = Vec::new();
            for part in raw.chunks(piece) {
                body.extend(encoder.push(part).unwrap());
            }
            body.extend(encoder.finish().unwrap());
            prop_assert!(decoded(coding, &body, piece, room).unwrap() == raw);
            for cut in [body.len() / 2, body.len().saturating_sub(1)] {
                prop_assert!(decoded(coding, &body[..cut], piece, room).is_err());
            }
        }

        #[test]
        fn forms_are_bodies_as_they_lie(raw in some_bytes(), streamed: bool, codec in prop::sample::select(&[Codec::Zstd, Codec::Brotli, Codec::Gzip][..]), level in 1i32..7) {
            let mut ws = Workspace::new(WorkspaceConfig::default());
            let form = if streamed && !raw.is_empty() {
                let raw = Segments::from(&raw[..raw.len().min(SEGMENT_BYTES)]);
                AtOnce::run(stream::pack(&mut ws, codec, level, &raw, &AtOnce, u64::MAX)).unwrap().to_vec()
            } else {
                let mut form = Vec::new();
                ws.pack(codec, level, None, &raw, &mut form).unwrap();
                form
            };
            let raw = if streamed { &raw[..raw.len().min(SEGMENT_BYTES)] } else { &raw[..] };
            let (coding, lies) = Coding::of_form(&form).unwrap();
            let body = [coding.prefix(), lies].concat();
            prop_assert!(decoded(coding, &body, 1000, 1000).unwrap() == raw);
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), n in 0usize..3) {
            let coding = Coding::ALL[n];
            let _ = decoded(coding, &bytes, 50, 1000);
            let _ = decoded(coding, &[coding.prefix(), &bytes].concat(), 50, 1000);
        }
    }

    #[test]
    fn frames_follow_each_other() {
        let (a, b) = (vec![7; 131_072], b"and raw bytes".to_vec());
        let mut body = Encoder::whole(Coding::Zstd, &a).unwrap();
        body.extend_from_slice(&raw_zstd_head(b.len()));
        body.extend_from_slice(&b);
        body.extend_from_slice(&raw_zstd_head(a.len()));
        body.extend_from_slice(&a);
        assert!(decoded(Coding::Zstd, &body, 4096, 4096).unwrap() == [&a[..], &b, &a].concat());
        body.push(0);
        assert!(decoded(Coding::Zstd, &body, 4096, 4096).is_err());
    }
}
