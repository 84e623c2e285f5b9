//! A trained dictionary: what a family's values have in common, digested once
//! and shared by every thread.
//!
//! ```text
//!  Dictionary ── bytes (4 to 110 KiB, zstd's dictionary format)
//!             ├─ digest for packing   (hash tables over the bytes, one level)
//!             └─ digest for unpacking (entropy tables, about 27 KiB)
//!         or ── bytes (a table of phrases, see `phrases.rs`)
//!             └─ the table
//! ```
//!
//! zstd's digests refer to the bytes and copy nothing. Immutable, hence one `Arc`
//! serves all: what it weighs ([`Dictionary::memory_bytes`]) is paid once per
//! process, not once per thread. It is freed when the last reference goes.

use std::sync::Arc;

use crate::elements;
use crate::phrases::{self, PhraseTable};
use crate::zstd_static::{self, PackDigest, UnpackDigest, ZstdError};

/// The smallest and largest dictionary worth having, in bytes.
pub const DICTIONARY_BYTES: std::ops::RangeInclusive<usize> = 1024..=110 * 1024;

/// What a phrase takes of memory, about.
const PHRASE_BYTES: f32 = 80.0;

/// One in so many samples of elements may be something else.
const OTHERS_ONE_IN: usize = 16;

/// A value this long is what a dictionary's tables are made for.
const RAW_LEN_TYPICAL: usize = 4096;

/// The candidates for the segment length that training tries.
const TRAIN_STEPS: u32 = 4;

/// A dictionary, digested for packing (zstd's at one level) and for unpacking.
pub struct Dictionary {
    id: u32,
    level: i32,
    content: Arc<[u8]>,
    digest: Digest,
}

/// What a dictionary's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DictionaryKind {
    /// Text that zstd finds repetitions in.
    Zstd,
    /// Phrases that values are put together from.
    Phrases,
}

impl DictionaryKind {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Phrases => "phrases",
        }
    }
}

/// A dictionary's bytes as they are worked with.
enum Digest {
    Zstd { pack: PackDigest, unpack: UnpackDigest },
    Phrases(Box<PhraseTable>),
}

/// A dictionary could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DictionaryError {
    /// Fewer samples than training needs, or too alike, or too random.
    #[error("the samples do not train a dictionary ({0})")]
    Untrainable(ZstdError),
    /// Training needs some samples.
    #[error("no samples to train a dictionary from")]
    NoSamples,
    /// The bytes are neither a dictionary in zstd's format nor a table of phrases.
    #[error("not a dictionary")]
    Malformed,
}

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (id, kind, bytes) = (self.id, self.kind().name(), self.content.len());
        write!(f, "Dictionary(id {id}, {kind}, {bytes} bytes, level {})", self.level)
    }
}

impl Dictionary {
    /// Trains a dictionary of at most `bytes_max` bytes (held to
    /// [`DICTIONARY_BYTES`]) for packing at `level`. It has id 0 until
    /// [`Self::with_id`] gives it one.
    ///
    /// Costs some tens of milliseconds per megabyte of samples; not for a hot
    /// path. A hundred times `bytes_max` of samples is enough.
    pub fn train(samples: &[&[u8]], bytes_max: usize, level: i32) -> Result<Self, DictionaryError> {
        Self::train_with(samples, bytes_max, level, TRAIN_STEPS)
    }

    /// [`Self::train`] with the search for the segment length made over `steps`
    /// values: 1 is quickest, 40 is thorough.
    pub fn train_with(
        samples: &[&[u8]],
        bytes_max: usize,
        level: i32,
        steps: u32,
    ) -> Result<Self, DictionaryError> {
        let sizes: Vec<usize> = samples.iter().map(|s| s.len()).collect();
        if sizes.iter().all(|&size| size == 0) {
            return Err(DictionaryError::NoSamples);
        }
        let flat = samples.concat();
        let bytes_max = bytes_max.clamp(*DICTIONARY_BYTES.start(), *DICTIONARY_BYTES.end());
        let trained = zstd_static::train(&flat, &sizes, bytes_max, level, steps.max(1))
            .map_err(DictionaryError::Untrainable)?;
        Self::from_bytes(0, &trained, level)
    }

    /// Trains a table of phrases that weighs about as much as a zstd dictionary
    /// of `bytes_max` bytes does: a phrase for each 4 of them. It has id 0 until
    /// [`Self::with_id`] gives it one. Phrases pack alike at every level; it is
    /// remembered as one for `level`.
    ///
    /// Costs half a second per megabyte of samples; reads at most 4 MiB of them.
    pub fn train_phrases(
        samples: &[&[u8]],
        bytes_max: usize,
        level: i32,
    ) -> Result<Self, DictionaryError> {
        Self::train_phrases_for(samples, bytes_max, level, None)
    }

    /// The same for values of `of_bytes` in all, if that is known: no phrase is kept
    /// that saves less of them than it takes.
    pub fn train_phrases_for(
        samples: &[&[u8]],
        bytes_max: usize,
        level: i32,
        of_bytes: Option<u64>,
    ) -> Result<Self, DictionaryError> {
        let trained = Self::phrases_of(samples, bytes_max, of_bytes);
        Self::from_bytes(0, &trained.ok_or(DictionaryError::NoSamples)?, level)
    }

    /// The same from what samples that are elements have in common, for packing such
    /// (see `elements.rs`). Fails unless nearly all of them are, and something of them is
    /// better stored.
    pub(crate) fn train_elements_for(
        samples: &[&[u8]],
        bytes_max: usize,
        level: i32,
        of_bytes: Option<u64>,
    ) -> Result<Self, DictionaryError> {
        let mut stored = Vec::new();
        let skeletons = samples.iter().filter_map(|raw| {
            let mut skeleton = Vec::with_capacity(raw.len());
            elements::apart(raw, &mut skeleton, &mut stored).map(|()| skeleton)
        });
        let skeletons: Vec<Vec<u8>> = skeletons.collect();
        let others = samples.len() - skeletons.len();
        if stored.is_empty() || others * OTHERS_ONE_IN > samples.len() {
            return Err(DictionaryError::NoSamples);
        }
        let skeletons: Vec<&[u8]> = skeletons.iter().map(|skeleton| &skeleton[..]).collect();
        let trained = Self::phrases_of(&skeletons, bytes_max, of_bytes);
        let mut trained = trained.ok_or(DictionaryError::NoSamples)?;
        trained[..phrases::OF_ELEMENTS.len()].copy_from_slice(phrases::OF_ELEMENTS);
        Self::from_bytes(0, &trained, level)
    }

    /// A table of phrases of these samples.
    fn phrases_of(samples: &[&[u8]], bytes_max: usize, of_bytes: Option<u64>) -> Option<Vec<u8>> {
        let bytes_max = bytes_max.clamp(*DICTIONARY_BYTES.start(), *DICTIONARY_BYTES.end());
        let sampled: usize = samples.iter().map(|sample| sample.len()).sum();
        let times = of_bytes.map_or(f32::MAX, |bytes| bytes as f32 / sampled.max(1) as f32);
        let saved_min = 8.0 * PHRASE_BYTES / times.max(1.0);
        phrases::train(samples, bytes_max / 4 + 256, 4 * bytes_max, saved_min)
    }

    /// Digests `bytes`, a dictionary in zstd's format or a table of phrases, for
    /// packing at `level`.
    pub fn from_bytes(id: u32, bytes: &[u8], level: i32) -> Result<Self, DictionaryError> {
        let content: Arc<[u8]> = bytes.into();
        let level = crate::Codec::Zstd.nearest_level(level);
        if PhraseTable::is_meant_by(bytes) {
            let table = PhraseTable::from_bytes(bytes).ok_or(DictionaryError::Malformed)?;
            return Ok(Self { id, level, content, digest: Digest::Phrases(Box::new(table)) });
        }
        let pack = PackDigest::new(&content, level, RAW_LEN_TYPICAL);
        let unpack = UnpackDigest::new(&content);
        match (pack, unpack) {
            (Some(pack), Some(unpack)) => {
                Ok(Self { id, level, content, digest: Digest::Zstd { pack, unpack } })
            }
            _ => Err(DictionaryError::Malformed),
        }
    }

    /// The same dictionary under another id.
    pub fn with_id(mut self, id: u32) -> Self {
        self.id = id;
        self
    }

    /// The id that packed forms refer to it by; 0 for none yet.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// What its bytes are.
    pub fn kind(&self) -> DictionaryKind {
        match self.digest {
            Digest::Zstd { .. } => DictionaryKind::Zstd,
            Digest::Phrases(_) => DictionaryKind::Phrases,
        }
    }

    /// The level it packs at, or was trained for if it knows none.
    pub fn level(&self) -> i32 {
        self.level
    }

    /// The dictionary as [`Self::from_bytes`] takes it.
    pub fn bytes(&self) -> &[u8] {
        &self.content
    }

    /// Everything it holds: bytes and digests.
    pub fn memory_bytes(&self) -> usize {
        let digest = match &self.digest {
            Digest::Zstd { pack, unpack } => pack.bytes() + unpack.bytes(),
            Digest::Phrases(table) => size_of::<PhraseTable>() + table.memory_bytes(),
        };
        size_of::<Self>() + self.content.len() + digest
    }

    /// For zstd to pack with; `None` for phrases.
    pub(crate) fn pack_digest(&self) -> Option<&PackDigest> {
        match &self.digest {
            Digest::Zstd { pack, .. } => Some(pack),
            Digest::Phrases(_) => None,
        }
    }

    /// For zstd to unpack with; `None` for phrases.
    pub(crate) fn unpack_digest(&self) -> Option<&UnpackDigest> {
        match &self.digest {
            Digest::Zstd { unpack, .. } => Some(unpack),
            Digest::Phrases(_) => None,
        }
    }

    /// Whether it is of phrases that elements have in common.
    pub(crate) fn is_of_elements(&self) -> bool {
        self.content.starts_with(phrases::OF_ELEMENTS)
    }

    /// The phrases, if it is of them.
    pub(crate) fn phrases(&self) -> Option<&PhraseTable> {
        match &self.digest {
            Digest::Zstd { .. } => None,
            Digest::Phrases(table) => Some(table),
        }
    }
}

/// Where unpacking finds dictionaries by id.
pub trait DictionarySource {
    /// The dictionary of `id`, if there is one.
    fn dictionary(&self, id: u32) -> Option<Arc<Dictionary>>;
}

impl<S: DictionarySource> DictionarySource for Option<S> {
    fn dictionary(&self, id: u32) -> Option<Arc<Dictionary>> {
        self.as_ref()?.dictionary(id)
    }
}

/// The source of what was packed without dictionaries.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDictionaries;

impl DictionarySource for NoDictionaries {
    fn dictionary(&self, _id: u32) -> Option<Arc<Dictionary>> {
        None
    }
}

impl DictionarySource for Arc<Dictionary> {
    fn dictionary(&self, id: u32) -> Option<Arc<Dictionary>> {
        (self.id == id).then(|| Arc::clone(self))
    }
}

impl<S: std::hash::BuildHasher> DictionarySource
    for std::collections::HashMap<u32, Arc<Dictionary>, S>
{
    fn dictionary(&self, id: u32) -> Option<Arc<Dictionary>> {
        self.get(&id).cloned()
    }
}
