//! A stream's dictionary: what its blocks have in common, for blocks of few
//! entries, which hold little to learn from themselves.
//!
//! A dictionary belongs to one stream and is trained in three steps of which
//! only the first and last need the stream: samples are copied out
//! ([`dictionary_samples`](Stream::dictionary_samples)), trained and judged on
//! blocks held back ([`DictionarySamples::train`]), and adopted. In columns it
//! serves what is the same from block to block: names, constants, templates.
//! That matters where blocks are of few entries.
//!
//! Cost: samples share the raw blocks and copy packed ones, some hundred kilobytes
//! at most; a dictionary is held once for a stream and its copies.

use std::sync::Arc;

use snug_codec::{Codec, Dictionary, DictionarySource, Workspace, columns};

use super::block::{Block, Data};
use super::pack::{Form, PACK_BYTES_MAX, PackParams, columns_raw_max, form, unpack_rows};
use super::{Stream, StreamError};

/// The fewest blocks that a dictionary is trained for.
const DICTIONARY_BLOCKS_MIN: usize = 32;
/// After a dictionary was declined, so many times more blocks must have come.
const DICTIONARY_RETRY: usize = 8;
/// Blocks that are samples ...
const SAMPLE_BLOCKS: usize = 20;
/// ... of which one in so many is held back, to judge the dictionary by.
const HELD_BACK_ONE_IN: usize = 5;
/// Training looks at pieces of blocks, so that a dictionary gathers what recurs
/// throughout a block and not only what is at its start.
const SAMPLE_BYTES: usize = 2048;

/// What a stream knows of its dictionary.
#[derive(Clone, Debug, Default)]
pub(super) struct Family {
    dictionary: Option<Arc<Dictionary>>,
    /// The blocks there must be before training is worth a try (again).
    train_at: Option<usize>,
}

impl Family {
    /// The bytes of the dictionary, whether or not a copy of the stream shares
    /// it.
    pub(super) fn heap_bytes(&self) -> usize {
        self.dictionary.as_ref().map_or(0, |dictionary| dictionary.memory_bytes())
    }

    /// The dictionary to pack with.
    pub(super) fn current(&self) -> Option<&Dictionary> {
        self.dictionary.as_deref()
    }

    /// Takes the same dictionary for another level; another one is refused.
    pub(super) fn take_releveled(&mut self, dictionary: Arc<Dictionary>) {
        if let Some(current) = &mut self.dictionary
            && current.bytes() == dictionary.bytes()
        {
            *current = dictionary;
        }
    }

    /// The dictionary for the level that is asked for, if it is for another.
    pub(super) fn releveled(&self, params: &PackParams) -> Option<Arc<Dictionary>> {
        let level = Codec::Zstd.nearest_level(params.level);
        let is_other = |d: &&Arc<Dictionary>| d.level() != level && params.codec == Codec::Zstd;
        let dictionary = self.dictionary.as_ref().filter(is_other)?;
        Dictionary::from_bytes(dictionary.id(), dictionary.bytes(), level).ok().map(Arc::new)
    }
}

impl DictionarySource for Family {
    fn dictionary(&self, id: u32) -> Option<Arc<Dictionary>> {
        self.dictionary.as_ref().and_then(|dictionary| dictionary.dictionary(id))
    }
}

/// Some of a stream's blocks, to train a dictionary on. They are taken as they
/// are, packed: unpacking them is the trainer's work.
#[derive(Debug)]
pub struct DictionarySamples {
    blocks: Vec<SampleBlock>,
    family: Family,
    /// The blocks in the stream.
    of: usize,
}

#[derive(Debug)]
struct SampleBlock {
    data: Data,
    raw_bytes: usize,
    kept: u32,
}

impl DictionarySamples {
    /// Trains a dictionary and keeps it if it is worth its memory: over all the
    /// stream's blocks, going by those held back, it must save more than it
    /// takes itself. Tens of milliseconds for each megabyte of samples.
    pub fn train(&self, ws: &mut Workspace, params: &PackParams) -> Option<Dictionary> {
        let texts = self.texts(ws).ok()?;
        let (held_back, train): (Vec<_>, Vec<_>) =
            texts.iter().enumerate().partition(|(at, _)| (at + 1).is_multiple_of(HELD_BACK_ONE_IN));
        let pieces: Vec<&[u8]> =
            train.iter().flat_map(|(_, block)| block.chunks(SAMPLE_BYTES)).collect();
        let dictionary =
            Dictionary::train(&pieces, params.dictionary_bytes, params.level).ok()?.with_id(1);
        let mut room = Vec::new();
        let (mut with, mut without) = (0, 0);
        for (_, block) in &held_back {
            room.clear();
            ws.pack(Codec::Zstd, params.level, None, block, &mut room).ok()?;
            without += room.len();
            room.clear();
            ws.pack(Codec::Zstd, params.level, Some(&dictionary), block, &mut room).ok()?;
            with += room.len();
        }
        let saved = without.saturating_sub(with) / held_back.len().max(1) * self.of;
        (saved > dictionary.memory_bytes()).then_some(dictionary)
    }

    fn texts(&self, ws: &mut Workspace) -> Result<Vec<Vec<u8>>, StreamError> {
        self.blocks.iter().map(|block| block.text(&self.family, ws)).collect()
    }
}

impl SampleBlock {
    fn new(block: &Block) -> Self {
        let raw_bytes = block.raw_bytes as usize;
        Self { data: block.data.clone(), raw_bytes, kept: block.kept() }
    }

    /// What a dictionary could help with in the block: the rows, or the text of
    /// the columns.
    fn text(&self, family: &Family, ws: &mut Workspace) -> Result<Vec<u8>, StreamError> {
        let bytes = match &self.data {
            Data::Pending(raw) | Data::Raw(raw) => return Ok(raw.to_vec()),
            Data::Packed { bytes, .. } => bytes,
        };
        let mut room = Vec::new();
        match form(bytes.joined(&mut room))? {
            Form::Rows(packed) => {
                let mut rows = Vec::new();
                unpack_rows(packed, self.raw_bytes, family, ws, &mut rows)?;
                Ok(rows)
            }
            Form::Columns(packed) => {
                columns::text(ws, packed, family, columns_raw_max(self.raw_bytes, self.kept))
                    .map_err(|_| StreamError::Damaged)
            }
        }
    }
}

impl Stream {
    /// The dictionary that new blocks are packed with.
    pub fn dictionary(&self) -> Option<&Dictionary> {
        self.sealed.as_ref()?.family().current()
    }

    /// Whether enough blocks have come since the last try to train a
    /// dictionary.
    pub fn wants_dictionary(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| {
            let family = sealed.family();
            family.dictionary.is_none()
                && sealed.tried_blocks() >= family.train_at.unwrap_or(DICTIONARY_BLOCKS_MIN)
        })
    }

    /// Takes samples of the stream, from blocks spread evenly over it: shares
    /// the raw ones, and copies some hundred kilobytes of packed bytes at most.
    pub fn dictionary_samples(&self) -> Option<DictionarySamples> {
        let sealed = self.sealed.as_ref()?;
        let of = sealed.tried_blocks();
        let wanted = of.min(SAMPLE_BLOCKS);
        if wanted < 2 {
            return None;
        }
        let blocks = (0..wanted)
            .filter_map(|n| {
                let at = sealed.index().nth_back(1 + sealed.pending_blocks() + n * of / wanted)?;
                sealed.index().get(at)
            })
            .filter(|block| block.raw_bytes as usize <= PACK_BYTES_MAX)
            .map(SampleBlock::new)
            .collect();
        Some(DictionarySamples { blocks, family: sealed.family().clone(), of })
    }

    /// Packs with `dictionary` from now on; `None` says that none was worth it,
    /// and the stream will ask again when it is much longer. A stream that has
    /// a dictionary keeps it.
    pub fn adopt_dictionary(&mut self, dictionary: Option<Dictionary>) {
        let Some(sealed) = &mut self.sealed else { return };
        let blocks = sealed.index().len();
        let family = sealed.family_mut();
        match dictionary {
            Some(dictionary) if family.dictionary.is_none() => {
                family.dictionary = Some(Arc::new(dictionary.with_id(1)));
            }
            Some(_) => {}
            None => family.train_at = Some(blocks.saturating_mul(DICTIONARY_RETRY)),
        }
    }
}

#[cfg(test)]
impl DictionarySamples {
    /// Trains and does not judge.
    pub(super) fn train_regardless(
        &self,
        ws: &mut Workspace,
        params: &PackParams,
    ) -> Option<Dictionary> {
        let texts = self.texts(ws).unwrap();
        let pieces: Vec<&[u8]> = texts.iter().flat_map(|block| block.chunks(64)).collect();
        Dictionary::train_with(&pieces, params.dictionary_bytes, params.level, 1).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Shape;
    use super::super::pack::tests::packed;
    use super::*;
    use snug_codec::WorkspaceConfig;

    #[test]
    fn a_dictionary_is_kept_where_it_pays_and_only_there() {
        // Blocks of a few entries: what recurs between blocks is most of it.
        let shape = Shape { block_entries: 8, ..Shape::default() };
        let text = "a long and constant part of the value, the same in each of the entries ";
        let alike = packed(&shape, |ms| format!("{text}{ms:x} {text}").into_bytes());
        let constant = packed(&Shape::default(), |_| text.as_bytes().to_vec());
        let mut ws = Workspace::new(WorkspaceConfig::default());
        let params = PackParams { dictionary_bytes: 1024, ..PackParams::default() };
        assert!(alike.wants_dictionary());
        let samples = alike.dictionary_samples().unwrap();
        let dictionary = samples.train(&mut ws, &params);
        let samples = constant.dictionary_samples();
        assert!(samples.is_none_or(|samples| samples.train(&mut ws, &params).is_none()));
        let mut stream = alike;
        let pays = dictionary.is_some();
        stream.adopt_dictionary(dictionary);
        assert!(!stream.wants_dictionary());
        assert_eq!(pays, stream.sealed.as_ref().unwrap().family().current().is_some());
    }
}
