//! Every codec and level by kind of payload and size; and `codec-levels`, zstd's levels
//! on English text.

use super::timing::timed;
use super::{Line, Options, data};
use serde::{Deserialize, Serialize};
use snug_codec::{Codec, Dictionary, NoDictionaries, Workspace, WorkspaceConfig, packed};
use std::sync::Arc;

/// One codec at one level on one kind of payload of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CodecLine {
    /// The kind of payload.
    pub payload: String,
    /// Raw bytes of one value.
    pub raw_bytes: usize,
    /// The codec, `zstd+dictionary` with one of 4 KiB.
    pub codec: String,
    /// The level, 0 for codecs without.
    pub level: i32,
    /// Raw over packed.
    pub ratio: f64,
    /// Raw MB per CPU second, packing.
    pub mb_per_second_in: f64,
    /// Raw MB per CPU second, unpacking.
    pub mb_per_second_out: f64,
    /// CPU microseconds to pack one value.
    pub pack_cpu_us: f64,
}

impl Line for CodecLine {
    const HEADS: &[&str] =
        &["payload", "bytes", "codec", "level", "ratio", "MB/s in", "MB/s out", "pack CPU us"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.payload.clone(),
            self.raw_bytes.to_string(),
            self.codec.clone(),
            self.level.to_string(),
            format!("{:.2}", self.ratio),
            format!("{:.0}", self.mb_per_second_in),
            format!("{:.0}", self.mb_per_second_out),
            format!("{:.1}", self.pack_cpu_us),
        ]
    }
}

/// The payload kinds of the codec table.
pub(super) const PAYLOADS: [&str; 7] =
    ["stream block", "celery", "json", "html", "source text", "base64", "random"];
const SIZES: [usize; 5] = [512, 4096, 16 * 1024, 128 * 1024, 1024 * 1024];
const CODECS: [(Codec, i32); 13] = [
    (Codec::None, 0),
    (Codec::Lz4, 0),
    (Codec::Snappy, 0),
    (Codec::Zstd, -5),
    (Codec::Zstd, 1),
    (Codec::Zstd, 3),
    (Codec::Zstd, 9),
    (Codec::Zstd, 19),
    (Codec::Gzip, 1),
    (Codec::Gzip, 6),
    (Codec::Zlib, 6),
    (Codec::Brotli, 1),
    (Codec::Brotli, 5),
];

pub(super) fn codecs(options: &Options, payload: &'static str, lines: &mut Vec<CodecLine>) {
    let config = WorkspaceConfig::for_level(19);
    let mut ws = Workspace::new(config);
    for raw_bytes in SIZES {
        let raw = data::payload(payload, raw_bytes, options.seed);
        for (codec, level) in CODECS {
            let mut line = codec_line(options, &mut ws, codec, level, None, &raw);
            line.payload = payload.into();
            lines.push(line);
        }
        if raw_bytes <= 16 * 1024 {
            let samples: Vec<Vec<u8>> = (0..200)
                .map(|i| data::payload(payload, raw_bytes.min(2048), options.seed + 1 + i))
                .collect();
            let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
            if let Ok(dictionary) = Dictionary::train(&samples, 4096, 3) {
                let dictionary = Arc::new(dictionary.with_id(1));
                let mut line =
                    codec_line(options, &mut ws, Codec::Zstd, 3, Some(&dictionary), &raw);
                line.payload = payload.into();
                line.codec = "zstd+dictionary".into();
                lines.push(line);
            }
        }
    }
}

fn codec_line(
    options: &Options,
    ws: &mut Workspace,
    codec: Codec,
    level: i32,
    dictionary: Option<&Arc<Dictionary>>,
    raw: &[u8],
) -> CodecLine {
    let mut packed = Vec::new();
    let pack_seconds = timed(options.cell_seconds, || {
        packed.clear();
        let with = dictionary.map(|d| &**d);
        ws.pack(codec, level, with, raw, &mut packed).expect("bytes in memory can be packed");
    });
    let mut out = Vec::new();
    let unpack_seconds = timed(options.cell_seconds, || {
        out.clear();
        let unpacked = match dictionary {
            Some(d) => ws.unpack(&packed, d, &mut out, raw.len()),
            None => ws.unpack(&packed, &NoDictionaries, &mut out, raw.len()),
        };
        unpacked.expect("what was packed can be unpacked");
    });
    assert!(out == raw && packed::raw_len(&packed) == Ok(raw.len()), "{codec} came back");
    let mb = raw.len() as f64 / 1e6;
    CodecLine {
        payload: String::new(),
        raw_bytes: raw.len(),
        codec: codec.to_string(),
        level,
        ratio: raw.len() as f64 / packed.len() as f64,
        mb_per_second_in: mb / pack_seconds,
        mb_per_second_out: mb / unpack_seconds,
        pack_cpu_us: pack_seconds * 1e6,
    }
}

/// `codec-levels`: English text, zstd.
pub(super) fn levels(options: &Options, lines: &mut Vec<CodecLine>) {
    let mut ws = Workspace::new(WorkspaceConfig::for_level(19));
    for raw_bytes in [16 * 1024, 128 * 1024] {
        let raw = data::payload("text", raw_bytes, options.seed);
        for level in [3, 9, 19] {
            let line = codec_line(options, &mut ws, Codec::Zstd, level, None, &raw);
            lines.push(CodecLine { payload: "text".into(), ..line });
        }
    }
}
