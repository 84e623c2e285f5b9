//! The codecs a packed value may be in, and the numbers that stand for them in
//! a packed form. The numbers are written to disk and sent to replicas: they
//! never change their meaning.

use serde::{Deserialize, Serialize};

/// A way to pack bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Codec {
    /// Not packed: the bytes as they are.
    None = 0,
    /// Zstandard, levels -131,072 to 22, the only codec that takes a dictionary.
    Zstd = 1,
    /// LZ4: one level, fast both ways.
    Lz4 = 2,
    /// Snappy: one level, fast both ways.
    Snappy = 3,
    /// A gzip member (RFC 1952), levels 1 to 9: can be handed to an HTTP client
    /// as it is.
    Gzip = 4,
    /// A zlib stream (RFC 1950), levels 1 to 9.
    Zlib = 5,
    /// Brotli (RFC 7932), levels 0 to 5: the 6 above take ten times as long and more,
    /// also for the least piece of a stream.
    Brotli = 6,
    /// Phrases of a family's table. Not one to choose: it is what a dictionary
    /// of that kind packs with, and in a packed form has the number of `None`,
    /// told from it by naming a dictionary.
    #[serde(skip)]
    Phrases = 8,
    /// Planes of an array of numbers (`planes.rs`). Not one to choose: what is packed
    /// with zstd may come out so, where it looks like such an array.
    #[serde(skip)]
    Planes = 9,
}

impl Codec {
    /// Every codec that packs by itself, by number.
    pub const ALL: [Self; 7] =
        [Self::None, Self::Zstd, Self::Lz4, Self::Snappy, Self::Gzip, Self::Zlib, Self::Brotli];

    /// The codec's number in a packed form.
    pub const fn number(self) -> u8 {
        match self {
            Self::Phrases | Self::Planes => Self::None as u8,
            other => other as u8,
        }
    }

    /// The codec of a number in a packed form.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The codec's name in configuration, in JSON and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
            Self::Gzip => "gzip",
            Self::Zlib => "zlib",
            Self::Brotli => "brotli",
            Self::Phrases => "phrases",
            Self::Planes => "planes",
        }
    }

    /// The codec of a name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name().eq_ignore_ascii_case(name))
    }

    /// The level nearest to `level` that the codec has; 0 for one without
    /// levels. (zstd's own 0 means its default, 3.)
    pub fn nearest_level(self, level: i32) -> i32 {
        match self {
            Self::None | Self::Lz4 | Self::Snappy | Self::Phrases | Self::Planes => 0,
            Self::Zstd if level == 0 => 3,
            Self::Zstd => level.clamp(-131_072, 22),
            Self::Gzip | Self::Zlib => level.clamp(1, 9),
            Self::Brotli => level.clamp(0, 5),
        }
    }

    /// The most raw bytes that `body` bytes can stand for, so that a packed
    /// form claiming more is refused before anything is allocated for it.
    ///
    /// zstd: an RLE block is 4 bytes for 128 KiB. deflate: 258 bytes by two
    /// one-bit codes. lz4: a length byte counts 255. snappy: a 3-byte copy
    /// gives 64. brotli has no such bound below its 16 MiB metablock. A phrase of
    /// 255 bytes takes a bit at least.
    pub(crate) fn raw_len_possible(self, body: usize) -> usize {
        let (factor, extra) = match self {
            Self::None => (1, 0),
            Self::Zstd => (1 << 15, 1 << 17),
            Self::Lz4 => (256, 64),
            Self::Snappy => (64, 64),
            Self::Gzip | Self::Zlib => (1032, 1032),
            Self::Brotli => (1 << 22, 1 << 24),
            Self::Phrases => (8 * 255, 0),
            Self::Planes => (0, crate::planes::RAW_MAX),
        };
        body.saturating_mul(factor).saturating_add(extra)
    }
}

impl std::fmt::Display for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_come_back() {
        for codec in Codec::ALL {
            assert_eq!(Codec::from_number(codec.number()), Some(codec));
            assert_eq!(Codec::from_name(codec.name()), Some(codec));
            assert_eq!(serde_json::to_value(codec).unwrap(), codec.name());
        }
        assert_eq!(Codec::from_number(7), None);
    }
}
