//! A stream's dictionary: what its blocks have in common, for blocks of few
//! entries, which hold little to learn from themselves, and for long texts, which
//! are packed in parts so that one entry is read without the rest.
//!
//! Short blocks are packed with the dictionary of the family of their stream's key
//! (`pack/families`), which learns from the short blocks of all its streams. A long
//! stream gets one of its own, that is trained in three steps of which
//! only the first and last need the stream: samples are copied out
//! ([`dictionary_samples`](Stream::dictionary_samples)), trained and judged on
//! blocks held back ([`DictionarySamples::train`]), and adopted. In columns it
//! serves what is the same from block to block: names, constants, templates, and
//! the words of texts.
//!
//! Cost: samples share the raw blocks and copy packed ones, some hundred kilobytes
//! at most. A dictionary is held once for a stream and its copies, with those of the
//! families (`pack/dictionaries.rs`), and counted there and not with the stream.

use std::any::Any;
use std::io;
use std::sync::Arc;

use snug_codec::family::{TRAINING_BYTES, TRAINING_TIMES};
use snug_codec::{Codec, Dictionary, DictionaryKind, DictionarySource, Workspace, columns};

use super::block::{Block, Data};
use super::form::{Form, PACK_BYTES_MAX, columns_raw_max, form, unpack_rows};
use super::pack::PackParams;
use super::{Stream, StreamError, usable};
use crate::pack::dictionaries::{HeldDictionary, OwnDictionary};
use crate::pack::identity::Seen;
use crate::pack::piece;
use crate::types::forms::Learner;

/// The fewest blocks that a dictionary is trained for.
const DICTIONARY_BLOCKS_MIN: usize = 32;
/// After a dictionary was declined, so many times more blocks must have come.
const DICTIONARY_RETRY: usize = 8;
/// Blocks that are samples ...
const SAMPLE_BLOCKS: usize = 20;
/// ... of which one in so many is held back, to judge the dictionary by.
const HELD_BACK_ONE_IN: usize = 5;
/// Long texts have so many times the bytes in their dictionary: their words are many.
const LONG_TEXTS_TIMES: usize = 4;
/// What of the packed bytes may be paid for reading one entry of long texts
/// several times quicker.
const QUICK_READS_ONE_IN: usize = 16;
/// Training looks at pieces of blocks, so that a dictionary gathers what recurs
/// throughout a block and not only what is at its start.
const SAMPLE_BYTES: usize = 2048;
/// Phrases of long texts are learnt from so many bytes, in pieces from all samples: twice
/// as many make them a percent smaller.
const PHRASES_SAMPLE_BYTES: usize = 512 * 1024;
/// A stream that gets its dictionary will hold so many times what it holds then: phrases
/// that pay for themselves in as much are kept.
const GROWS_TIMES: u64 = 4;

/// What a stream knows of its dictionary.
#[derive(Clone, Debug, Default)]
pub(super) struct Family {
    dictionary: Option<OwnDictionary>,
    /// Those of the families of keys that blocks are packed with, the newest last.
    shared: Vec<Shared>,
    /// The blocks there must be before training is worth a try (again).
    train_at: Option<usize>,
}

/// A dictionary that blocks of many streams are packed with.
#[derive(Clone, Debug)]
struct Shared {
    held: HeldDictionary,
    /// How many of this stream's.
    blocks: usize,
}

impl Family {
    /// The bytes allocated, dictionaries aside: others have them too.
    pub(super) fn heap_bytes(&self) -> usize {
        usable(self.shared.capacity() * size_of::<Shared>())
    }

    /// Holds a dictionary to pack blocks with.
    pub(super) fn hold(&mut self, held: HeldDictionary) {
        self.shared.retain(|shared| shared.held.dictionary().id() != held.dictionary().id());
        self.shared.push(Shared { held, blocks: 0 });
    }

    /// Holds the dictionary of this id as another family does, for blocks that are
    /// about to come.
    pub(super) fn hold_as(&mut self, other: &Self, id: u32) {
        let is_it = |shared: &&Shared| shared.held.dictionary().id() == id;
        if !self.shared.iter().any(|shared| is_it(&shared))
            && let Some(shared) = other.shared.iter().find(is_it)
        {
            self.hold(shared.held.clone());
        }
    }

    /// Has this dictionary as its own.
    pub(super) fn give(&mut self, dictionary: OwnDictionary) {
        self.dictionary = Some(dictionary);
    }

    /// Holds the dictionary of this id, for a block that is about to come.
    pub(super) fn hold_once(
        &mut self,
        id: u32,
        held: impl FnOnce() -> io::Result<HeldDictionary>,
    ) -> io::Result<()> {
        if !self.shared.iter().any(|shared| shared.held.dictionary().id() == id) {
            self.hold(held()?);
        }
        Ok(())
    }

    /// A block that is packed with this dictionary has come or gone.
    pub(super) fn count(&mut self, id: u32, delta: isize) {
        if id == 0 {
            return;
        }
        if let Some(shared) = self.shared.iter_mut().find(|s| s.held.dictionary().id() == id) {
            shared.blocks = shared.blocks.saturating_add_signed(delta);
        }
    }

    /// Lets go of dictionaries that no block is packed with any more.
    pub(super) fn let_go(&mut self) {
        if self.shared.iter().any(|shared| shared.blocks == 0) {
            self.shared.retain(|shared| shared.blocks > 0);
            self.shared.shrink_to_fit();
        }
    }

    /// There are no blocks any more.
    pub(super) fn forget_shared(&mut self) {
        self.shared = Vec::new();
    }

    /// How many blocks are packed with a shared dictionary, by its id.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (u32, usize)> {
        self.shared.iter().map(|shared| (shared.held.dictionary().id(), shared.blocks))
    }

    /// The newest that it shares with other streams.
    pub(super) fn shared(&self) -> Option<&Arc<Dictionary>> {
        self.shared.last().map(|shared| shared.held.dictionary())
    }

    /// The dictionary of its own.
    pub(super) fn current(&self) -> Option<&Arc<Dictionary>> {
        self.dictionary.as_ref().map(OwnDictionary::dictionary)
    }

    /// Takes the same dictionary for another level; another one is refused.
    pub(super) fn take_releveled(&mut self, dictionary: Arc<Dictionary>) {
        if let Some(current) = &mut self.dictionary
            && current.dictionary().id() == dictionary.id()
        {
            current.relevel(dictionary);
        }
    }

    /// The dictionary for the level that is asked for, if it is for another.
    pub(super) fn releveled(&self, params: &PackParams) -> Option<Arc<Dictionary>> {
        let level = Codec::Zstd.nearest_level(params.level);
        let is_other = |d: &&Arc<Dictionary>| d.level() != level && params.codec == Codec::Zstd;
        let dictionary = self.current().filter(is_other)?;
        Dictionary::from_bytes(dictionary.id(), dictionary.bytes(), level).ok().map(Arc::new)
    }
}

impl DictionarySource for Family {
    fn dictionary(&self, id: u32) -> Option<Arc<Dictionary>> {
        let shared = self.shared.iter().map(|shared| shared.held.dictionary());
        self.current().into_iter().chain(shared).find_map(|dictionary| dictionary.dictionary(id))
    }
}

/// Some of a stream's blocks, to train a dictionary on. They are taken as they
/// are, packed: unpacking them is the trainer's work.
#[derive(Debug)]
pub struct DictionarySamples {
    /// The stream that they are of.
    stream: Seen,
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
    /// Bytes that training for so long a dictionary takes at most, about: the samples
    /// unpacked, those that are trained on once more, and what it comes to.
    pub fn training_bytes_max(&self, dictionary_bytes: usize) -> usize {
        let raw: usize = self.blocks.iter().map(|block| block.raw_bytes).sum();
        TRAINING_BYTES + 3 * raw + TRAINING_TIMES * dictionary_bytes
    }

    /// Trains a dictionary and keeps it if it is worth its memory: over all the
    /// stream's blocks, going by those held back, it must save more than it
    /// takes itself. Where it lets long texts be read in parts, it may cost a
    /// sixteenth. Tens of milliseconds for each megabyte of samples.
    pub fn train(&self, ws: &mut Workspace, params: &PackParams) -> Option<Dictionary> {
        let blocks = self.samples(ws).ok()?;
        let (held_back, train): (Vec<_>, Vec<_>) = blocks
            .iter()
            .enumerate()
            .partition(|(at, _)| (at + 1).is_multiple_of(HELD_BACK_ONE_IN));
        let pieces: Vec<&[u8]> = train
            .iter()
            .flat_map(|(_, block)| &block.texts)
            .flat_map(|text| text.chunks(SAMPLE_BYTES))
            .collect();
        let has_long_texts = held_back.iter().any(|(_, block)| block.has_long_texts());
        let packed_len = |ws: &mut Workspace, dictionary: Option<&Dictionary>| {
            let lens = held_back.iter().map(|(_, b)| b.packed_len(ws, params.level, dictionary));
            let held: usize = lens.sum::<Option<usize>>()?;
            Some(held / held_back.len().max(1) * self.of)
        };
        let without = packed_len(ws, None)?;
        let mut judge = |dictionary: &Dictionary, price: usize| {
            let with = packed_len(ws, Some(dictionary))? + dictionary.memory_bytes();
            (with < without + price).then_some(with)
        };
        let price = if has_long_texts { without / QUICK_READS_ONE_IN } else { 0 };
        // Long texts are read a part at a time with either kind.
        let phrases = has_long_texts.then(|| self.train_phrases(&pieces, params)).flatten();
        let phrases = phrases.and_then(|phrases| Some((judge(&phrases, price)?, phrases)));
        if let Some((with, phrases)) = phrases
            && with <= without
        {
            return Some(phrases);
        }
        let bytes_max = params.dictionary_bytes * if has_long_texts { LONG_TEXTS_TIMES } else { 1 };
        let zstd = Dictionary::train(&pieces, bytes_max, params.level).ok()?.with_id(1);
        judge(&zstd, price).map(|_| zstd)
    }

    /// A table of phrases for long texts.
    fn train_phrases(&self, pieces: &[&[u8]], params: &PackParams) -> Option<Dictionary> {
        let sampled: usize = pieces.iter().map(|piece| piece.len()).sum();
        let one_in = sampled.div_ceil(PHRASES_SAMPLE_BYTES).max(1);
        let some: Vec<&[u8]> = pieces.iter().step_by(one_in).copied().collect();
        let of_blocks = (self.of * HELD_BACK_ONE_IN) as u64 / (HELD_BACK_ONE_IN as u64 - 1);
        let of_bytes = GROWS_TIMES * of_blocks * sampled as u64 / self.blocks.len().max(1) as u64;
        let (bytes_max, level) = (params.dictionary_bytes, params.level);
        let phrases = Dictionary::train_phrases_for(&some, bytes_max, level, Some(of_bytes));
        Some(phrases.ok()?.with_id(1))
    }

    fn samples(&self, ws: &mut Workspace) -> Result<Vec<Samples>, StreamError> {
        self.blocks.iter().map(|block| block.samples(&self.family, ws)).collect()
    }
}

/// What a dictionary could help with in one block.
struct Samples {
    texts: Vec<Vec<u8>>,
    /// The bytes that are packed as one where there is a dictionary.
    part_bytes: usize,
}

impl Samples {
    fn of_rows(rows: Vec<u8>) -> Self {
        Self { texts: vec![rows], part_bytes: usize::MAX }
    }

    fn has_long_texts(&self) -> bool {
        self.texts.iter().any(|text| text.len() > self.part_bytes)
    }

    fn packed_len(
        &self,
        ws: &mut Workspace,
        level: i32,
        dictionary: Option<&Dictionary>,
    ) -> Option<usize> {
        let part_bytes = match dictionary.map(Dictionary::kind) {
            None => usize::MAX,
            Some(DictionaryKind::Zstd) => self.part_bytes,
            Some(DictionaryKind::Phrases) => self.part_bytes.min(columns::PHRASES_PART_BYTES),
        };
        let mut room = Vec::new();
        for part in self.texts.iter().flat_map(|text| text.chunks(part_bytes)) {
            ws.pack(Codec::Zstd, level, dictionary, part, &mut room).ok()?;
        }
        Some(room.len())
    }
}

impl SampleBlock {
    fn new(block: &Block) -> Self {
        let raw_bytes = block.raw_bytes as usize;
        Self { data: block.data().clone(), raw_bytes, kept: block.kept() }
    }

    /// What a dictionary could help with: the rows, or the texts in the columns.
    fn samples(&self, family: &Family, ws: &mut Workspace) -> Result<Samples, StreamError> {
        let bytes = match &self.data {
            Data::Pending(raw) | Data::Raw(raw) => return Ok(Samples::of_rows(raw.to_vec())),
            Data::Packed { bytes, .. } => bytes,
        };
        let mut room = Vec::new();
        samples(bytes.joined(&mut room), self.raw_bytes, self.kept, family, ws)
    }
}

/// What a dictionary could help with in a packed block of so many raw bytes and rows.
fn samples(
    packed: &[u8],
    raw_bytes: usize,
    kept: u32,
    family: &Family,
    ws: &mut Workspace,
) -> Result<Samples, StreamError> {
    match form(packed)? {
        Form::Rows(packed) => {
            let mut rows = Vec::new();
            unpack_rows(packed, raw_bytes, family, ws, &mut rows)?;
            Ok(Samples::of_rows(rows))
        }
        Form::Columns(packed) => {
            let raw_len_max = columns_raw_max(raw_bytes, kept);
            let texts = columns::samples(ws, packed, family, raw_len_max);
            let texts = texts.map_err(|_| StreamError::Damaged)?;
            Ok(Samples { texts, part_bytes: columns::PART_BYTES })
        }
    }
}

/// The texts of a packed block that a dictionary could help with.
pub(super) fn texts(
    packed: &[u8],
    raw_bytes: usize,
    kept: u32,
    family: &Family,
    ws: &mut Workspace,
) -> Result<Vec<Vec<u8>>, StreamError> {
    samples(packed, raw_bytes, kept, family, ws).map(|samples| samples.texts)
}

impl Stream {
    /// The dictionary that new blocks are packed with: its own, or that of the family
    /// of its key if it has blocks that are packed with it.
    pub fn dictionary(&self) -> Option<&Arc<Dictionary>> {
        let family = self.sealed.as_ref()?.family();
        family.current().or_else(|| family.shared())
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
        let (stream, family) = (sealed.identity().seen(), sealed.family().clone());
        Some(DictionarySamples { stream, blocks, family, of })
    }

    /// Packs with what was trained on `samples` from now on, and what was packed
    /// before it once more; `None` says that no dictionary was worth it for the
    /// blocks there were, and the stream will ask again when it is much longer. A
    /// stream that has a dictionary keeps it, and one that the samples are not of
    /// is left as it is: it may be a copy that took the other's place.
    pub fn adopt_dictionary(
        &mut self,
        dictionary: Option<OwnDictionary>,
        samples: &DictionarySamples,
    ) {
        let Some(sealed) = &mut self.sealed else { return };
        if !sealed.identity().is(samples.stream) {
            return;
        }
        let family = sealed.family_mut();
        match dictionary {
            Some(dictionary) if family.dictionary.is_none() => {
                family.dictionary = Some(dictionary);
                sealed.try_again();
            }
            Some(_) => {}
            None => family.train_at = Some(samples.of * DICTIONARY_RETRY),
        }
    }
}

impl Learner for Stream {
    fn wants_dictionary(&self) -> bool {
        Self::wants_dictionary(self)
    }

    fn samples(&self) -> Option<Box<dyn piece::Samples>> {
        Some(Box::new(self.dictionary_samples()?))
    }

    fn adopt(&mut self, dictionary: Option<OwnDictionary>, samples: &dyn piece::Samples) {
        if let Some(samples) = (samples as &dyn Any).downcast_ref() {
            self.adopt_dictionary(dictionary, samples);
        }
    }
}

impl piece::Samples for DictionarySamples {
    fn training_bytes_max(&self, dictionary_bytes: usize) -> usize {
        Self::training_bytes_max(self, dictionary_bytes)
    }

    fn train(&self, ws: &mut Workspace, dictionary_bytes: usize, level: i32) -> Option<Dictionary> {
        Self::train(self, ws, &PackParams { level, dictionary_bytes, ..PackParams::default() })
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
        let blocks = self.samples(ws).unwrap();
        let texts = blocks.iter().flat_map(|block| &block.texts);
        let pieces: Vec<&[u8]> = texts.flat_map(|text| text.chunks(64)).collect();
        Dictionary::train_with(&pieces, params.dictionary_bytes, params.level, 1).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::pack::tests::packed;
    use super::super::{Shape, StreamId, StreamScratch};
    use super::*;
    use crate::pack::dictionaries::Dictionaries;
    use snug_codec::WorkspaceConfig;
    use std::ops::ControlFlow;

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
        let of_constant = constant.dictionary_samples();
        assert!(of_constant.is_none_or(|samples| samples.train(&mut ws, &params).is_none()));
        let mut stream = alike;
        let pays = dictionary.is_some();
        let own = |dictionary| Arc::<Dictionaries>::default().own(dictionary);
        stream.adopt_dictionary(dictionary.map(own), &samples);
        assert!(!stream.wants_dictionary());
        assert_eq!(pays, stream.sealed.as_ref().unwrap().family().current().is_some());
    }

    #[test]
    fn what_was_packed_before_the_dictionary_is_packed_with_it() {
        let words = ["invoice", "customer", "overdue", "never", "paid", "reminder", "unknown"];
        let value = |ms: u64| {
            let mut x = ms;
            let mut word = || {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(ms);
                words[(x >> 33) as usize % words.len()]
            };
            (0..120).map(|_| word()).collect::<Vec<_>>().join(" ").into_bytes()
        };
        let mut stream = packed(&Shape::default(), value);
        let blocks = stream.memory().packed_blocks;
        let (mut ws, params) = (Workspace::new(WorkspaceConfig::default()), PackParams::default());
        let samples = stream.dictionary_samples().unwrap();
        // Of a stream so short it would take more than it saves.
        let of_a_short_stream = DictionarySamples { of: 2, ..samples };
        assert!(of_a_short_stream.train(&mut ws, &params).is_none());
        let of_a_long_stream = DictionarySamples { of: 200 * blocks, ..of_a_short_stream };
        let dictionary = of_a_long_stream.train(&mut ws, &params);
        assert_eq!(dictionary.as_ref().map(Dictionary::kind), Some(DictionaryKind::Phrases));
        let dictionaries = Arc::<Dictionaries>::default();
        let own = |dictionary| dictionaries.own(dictionary);
        stream.adopt_dictionary(dictionary.map(own), &of_a_long_stream);
        assert_eq!(dictionaries.all()[0].references, 1);
        assert_eq!(stream.pending_work(), blocks);
        stream.pack_some(&mut ws, &params, &Shape::default(), usize::MAX);
        let sealed = stream.sealed.as_ref().unwrap();
        let with_it = |block: &Block| {
            let Data::Packed { bytes, .. } = block.data() else { return false };
            match form(bytes.joined(&mut Vec::new())).unwrap() {
                Form::Columns(packed) => columns::dictionary_id(packed).unwrap() == Some(1),
                Form::Rows(_) => false,
            }
        };
        assert!(sealed.index().iter().all(with_it));
        let mut seen = 0;
        let mut scratch = StreamScratch::new();
        let all = (StreamId::MIN, StreamId::MAX);
        stream
            .range(all.0, all.1, false, &mut scratch, |id, mut fields| {
                seen += 1;
                assert_eq!(fields.next().unwrap().1, value(id.ms));
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(seen, 2000);
        // Each copy refers to it, and the last takes it with it.
        let copy = stream.duplicate();
        assert_eq!(dictionaries.all()[0].references, 2);
        drop((copy, stream));
        assert!(dictionaries.all().is_empty());
    }
}
