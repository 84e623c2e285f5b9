//! Packing sealed blocks, and the stream's dictionary.
//!
//! ```text
//!  packed block:  format, packed form
//!
//!  format 1:      the packed form (snug-codec) of the block's rows as rows.rs
//!                 writes them; it names the dictionary it needs, if any
//! ```
//!
//! Packing is always somebody's explicit work: a [`PackJob`] shares the block's
//! bytes and can run anywhere, without the stream;
//! [`install`](Stream::install) then takes its outcome if the block is still
//! there. [`pack_some`](Stream::pack_some) does both in place. A block that
//! would save too little is marked and never tried again.
//!
//! Blocks are tried oldest first, so those still to be tried are always the
//! newest ones, and finding the next costs nothing.
//!
//! A dictionary belongs to one stream and is trained in three steps of which
//! only the first and last need the stream: samples are copied out
//! ([`dictionary_samples`](Stream::dictionary_samples)), trained and judged on
//! blocks held back ([`DictionarySamples::train`]), and adopted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use snug_codec::{Codec, Dictionary, DictionarySource, Workspace, WorkspaceConfig};

use super::block::{Block, Data, PackedBytes};
use super::id::StreamId;
use super::range::StreamScratch;
use super::sealed::Sealed;
use super::{Stream, StreamError};

/// Rows, packed as they are.
const FORMAT_ROWS: u8 = 1;

/// A block larger than this (one huge entry) stays raw: packing it would take
/// too long in one piece.
const PACK_BYTES_MAX: usize = 128 * 1024;

/// The fewest blocks that a dictionary is trained for.
const DICTIONARY_BLOCKS_MIN: usize = 32;
/// After a dictionary was declined, so many times more blocks must have come.
const DICTIONARY_RETRY: usize = 8;
/// Blocks to train on and blocks to judge by.
const SAMPLE_BLOCKS: usize = 16;
const HELD_BACK_BLOCKS: usize = 4;
/// Training looks at pieces of blocks, so that a dictionary gathers what recurs
/// throughout a block and not only what is at its start.
const SAMPLE_BYTES: usize = 2048;

/// Tells packed bytes apart, across all streams and for the process's life.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// How to pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackParams {
    /// What packing must save, in percent of the raw bytes.
    pub min_saving_percent: u8,
    /// The zstd level.
    pub level: i32,
    /// The most bytes of a dictionary; 0 for none.
    pub dictionary_bytes: usize,
}

impl Default for PackParams {
    fn default() -> Self {
        Self { min_saving_percent: 30, level: 3, dictionary_bytes: 16 * 1024 }
    }
}

/// What a call of [`Stream::pack_some`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackProgress {
    /// Raw bytes that went through the codec.
    pub raw_bytes: usize,
    /// Blocks that are packed now and were not before.
    pub packed_blocks: usize,
    /// Blocks still to be tried.
    pub pending: usize,
}

/// One block to be packed, away from its stream.
#[derive(Debug)]
pub struct PackJob {
    first: StreamId,
    raw: Arc<[u8]>,
    dictionary: Option<Arc<Dictionary>>,
}

/// A block that went through the codec; to be given back to its stream.
#[derive(Debug)]
pub struct PackOutcome {
    first: StreamId,
    raw: Arc<[u8]>,
    /// `None`: not worth it.
    packed: Option<PackedBytes>,
    /// The dictionary that it was packed with.
    dictionary_id: Option<u32>,
}

impl PackJob {
    /// The bytes to be packed.
    pub fn raw_bytes(&self) -> usize {
        self.raw.len()
    }

    /// Packs. `room` is reused memory for the codec's output.
    pub fn run(self, ws: &mut Workspace, params: &PackParams, room: &mut Vec<u8>) -> PackOutcome {
        room.clear();
        room.push(FORMAT_ROWS);
        let worth = self.raw.len() <= PACK_BYTES_MAX
            && ws
                .pack(Codec::Zstd, params.level, self.dictionary.as_deref(), &self.raw, room)
                .is_ok()
            && saves(self.raw.len(), room.len(), params.min_saving_percent);
        let packed = worth.then(|| PackedBytes::new(room));
        let form = packed.as_ref().and_then(|_| room.get(1..));
        let dictionary_id = form.and_then(|form| snug_codec::packed::dictionary_id(form).ok()?);
        PackOutcome { first: self.first, raw: self.raw, packed, dictionary_id }
    }
}

fn saves(raw: usize, packed: usize, percent: u8) -> bool {
    packed as u64 * 100 <= raw as u64 * 100u64.saturating_sub(u64::from(percent))
}

impl PackOutcome {
    /// Whether the block was worth packing.
    pub fn is_packed(&self) -> bool {
        self.packed.is_some()
    }
}

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
}

impl DictionarySource for Family {
    fn dictionary(&self, id: u32) -> Option<Arc<Dictionary>> {
        self.dictionary.as_ref().and_then(|dictionary| dictionary.dictionary(id))
    }
}

/// Unpacks `bytes`, the packed form of a block of `raw_bytes`, into `unpacked`.
pub(super) fn unpack(
    bytes: &[u8],
    raw_bytes: usize,
    family: &Family,
    ws: &mut Workspace,
    unpacked: &mut Vec<u8>,
) -> Result<(), StreamError> {
    unpacked.clear();
    let Some((&FORMAT_ROWS, packed)) = bytes.split_first() else {
        return Err(StreamError::Damaged);
    };
    match ws.unpack(packed, family, unpacked, raw_bytes) {
        Ok(()) if unpacked.len() == raw_bytes => Ok(()),
        _ => Err(StreamError::Damaged),
    }
}

/// A workspace that only unpacks.
pub(super) fn unpacking_workspace() -> Workspace {
    Workspace::new(WorkspaceConfig { pack_bytes: 0, checksum: false })
}

/// Raw blocks copied out of a stream, to train a dictionary on.
#[derive(Debug)]
pub struct DictionarySamples {
    blocks: Vec<Vec<u8>>,
    /// The blocks in the stream.
    of: usize,
}

impl DictionarySamples {
    /// Trains a dictionary and keeps it if it is worth its memory: over all the
    /// stream's blocks, going by those held back, it must save more than it
    /// takes itself. Tens of milliseconds for each megabyte of samples.
    pub fn train(&self, ws: &mut Workspace, params: &PackParams) -> Option<Dictionary> {
        let (held_back, train): (Vec<_>, Vec<_>) =
            self.blocks.iter().enumerate().partition(|(index, _)| index % 5 == 4);
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
}

impl Sealed {
    /// The oldest block that was not tried yet.
    fn next_pending(&self) -> Option<(&Block, &Arc<[u8]>)> {
        let at = self.index().nth_back(self.pending_blocks())?;
        let block = self.index().get(at)?;
        match &block.data {
            Data::Pending(bytes) => Some((block, bytes)),
            _ => None,
        }
    }
}

impl Stream {
    /// The dictionary that new blocks are packed with.
    pub fn dictionary(&self) -> Option<&Dictionary> {
        self.sealed.as_ref()?.family().dictionary.as_deref()
    }

    /// Sealed blocks that packing was not tried on yet.
    pub fn pending_work(&self) -> usize {
        self.sealed.as_ref().map_or(0, |sealed| sealed.pending_blocks())
    }

    /// The next block to pack: the oldest that was not tried yet.
    pub fn pack_job(&self) -> Option<PackJob> {
        let sealed = self.sealed.as_ref()?;
        let (block, raw) = sealed.next_pending()?;
        let dictionary = sealed.family().dictionary.clone();
        Some(PackJob { first: block.first, raw: Arc::clone(raw), dictionary })
    }

    /// Puts packed bytes in the place of a block's raw ones, if the block is
    /// still there, still has the bytes that were packed, and the dictionary
    /// they were packed with is still the stream's; whether it was so.
    pub fn install(&mut self, outcome: PackOutcome) -> bool {
        let Some(sealed) = &mut self.sealed else { return false };
        if outcome.dictionary_id.is_some_and(|id| sealed.family().dictionary(id).is_none()) {
            return false;
        }
        sealed.change_data(outcome.first, |data| match data {
            Data::Pending(raw) if Arc::ptr_eq(raw, &outcome.raw) => {
                *data = match outcome.packed {
                    Some(bytes) => Data::Packed { bytes, serial: SERIAL.fetch_add(1, Relaxed) },
                    None => Data::Raw(outcome.raw),
                };
                true
            }
            _ => false,
        })
    }

    /// Packs pending blocks, oldest first, for as long as less than
    /// `budget_bytes` raw bytes have gone through the codec in this call; one
    /// block at least. Never trains a dictionary.
    pub fn pack_some(
        &mut self,
        ws: &mut Workspace,
        params: &PackParams,
        budget_bytes: usize,
    ) -> PackProgress {
        let mut progress = PackProgress::default();
        let mut room = Vec::new();
        while let Some(job) = self.pack_job() {
            progress.raw_bytes += job.raw_bytes();
            let outcome = job.run(ws, params, &mut room);
            progress.packed_blocks += usize::from(outcome.is_packed());
            if !self.install(outcome) || progress.raw_bytes >= budget_bytes {
                break;
            }
        }
        progress.pending = self.pending_work();
        progress
    }

    /// Whether enough blocks have come since the last try to train a
    /// dictionary.
    pub fn wants_dictionary(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| {
            let family = sealed.family();
            family.dictionary.is_none()
                && sealed.index().len() >= family.train_at.unwrap_or(DICTIONARY_BLOCKS_MIN)
        })
    }

    /// Copies blocks out of the stream, spread evenly over it, to train a
    /// dictionary on: about a megabyte.
    pub fn dictionary_samples(
        &self,
        scratch: &mut StreamScratch,
    ) -> Result<Option<DictionarySamples>, StreamError> {
        let Some(sealed) = &self.sealed else { return Ok(None) };
        let of = sealed.index().len();
        let wanted = of.min(SAMPLE_BLOCKS + HELD_BACK_BLOCKS);
        if wanted < 2 {
            return Ok(None);
        }
        let mut blocks = Vec::with_capacity(wanted);
        for n in 0..wanted {
            let at = sealed.index().nth_back(1 + n * of / wanted);
            let Some(block) = at.and_then(|at| sealed.index().get(at)) else { break };
            if block.raw_bytes as usize <= PACK_BYTES_MAX {
                blocks.push(sealed.open(block, scratch)?.bytes().to_vec());
            }
        }
        Ok(Some(DictionarySamples { blocks, of }))
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
    pub(super) fn train_regardless(&self, params: &PackParams) -> Option<Dictionary> {
        let pieces: Vec<&[u8]> = self.blocks.iter().flat_map(|block| block.chunks(64)).collect();
        Dictionary::train_with(&pieces, params.dictionary_bytes, params.level, 1).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::stream::Shape;
    use proptest::prelude::*;
    use std::ops::ControlFlow;

    /// A stream of packed blocks of entries with one field.
    fn packed(shape: &Shape, value: impl Fn(u64) -> Vec<u8>) -> Stream {
        let mut stream = Stream::new();
        for ms in 1..=2000 {
            let value = value(ms);
            let fields = [(b"field".as_slice(), value.as_slice())];
            stream.append(StreamId::new(ms, 0), fields.into_iter(), shape).unwrap();
        }
        let mut ws = Workspace::new(WorkspaceConfig::default());
        stream.pack_some(&mut ws, &PackParams::default(), usize::MAX);
        stream
    }

    #[test]
    fn blocks_that_save_too_little_stay_raw_and_are_not_tried_again() {
        let noise = |ms: u64| {
            let mut state = ms.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            };
            (0..40).map(|_| next()).collect()
        };
        let stream = packed(&Shape::default(), noise);
        let memory = stream.memory();
        assert!(memory.blocks > 0);
        assert_eq!((memory.packed_blocks, memory.packed, memory.packed_from), (0, 0, 0));
        assert_eq!(stream.pending_work(), 0);
        assert!(stream.pack_job().is_none());
    }

    #[test]
    fn one_entry_larger_than_a_block_is_held_raw() {
        let mut stream = Stream::new();
        let shape = Shape::default();
        let huge = vec![b'x'; 1 << 20];
        for ms in 1..4 {
            let fields = [(b"field".as_slice(), huge.as_slice())];
            stream.append(StreamId::new(ms, 0), fields.into_iter(), &shape).unwrap();
        }
        let mut ws = Workspace::new(WorkspaceConfig::default());
        let progress = stream.pack_some(&mut ws, &PackParams::default(), usize::MAX);
        assert_eq!((progress.packed_blocks, progress.pending), (0, 0));
        let mut seen = 0;
        let all = (StreamId::MIN, StreamId::MAX);
        let visit = |_, mut fields: crate::types::stream::Fields<'_>| {
            assert_eq!(fields.next().unwrap().1, huge);
            seen += 1;
            ControlFlow::Continue(())
        };
        stream.range(all.0, all.1, false, &mut StreamScratch::new(), visit).unwrap();
        assert_eq!(seen, 3);
    }

    #[test]
    fn a_dictionary_is_kept_where_it_pays_and_only_there() {
        // Blocks of a few entries: what recurs between blocks is most of it.
        let shape = Shape { block_entries: 8, ..Shape::default() };
        let text = "a long and constant part of the value, the same in each of the entries ";
        let alike = packed(&shape, |ms| format!("{text}{ms:x} {text}").into_bytes());
        let constant = packed(&Shape::default(), |_| text.as_bytes().to_vec());
        let mut ws = Workspace::new(WorkspaceConfig::default());
        let params = PackParams { dictionary_bytes: 1024, ..PackParams::default() };
        let mut scratch = StreamScratch::new();
        assert!(alike.wants_dictionary());
        let samples = alike.dictionary_samples(&mut scratch).unwrap().unwrap();
        let dictionary = samples.train(&mut ws, &params);
        let samples = constant.dictionary_samples(&mut scratch).unwrap();
        assert!(samples.is_none_or(|samples| samples.train(&mut ws, &params).is_none()));
        let mut stream = alike;
        let pays = dictionary.is_some();
        stream.adopt_dictionary(dictionary);
        assert!(!stream.wants_dictionary());
        assert_eq!(pays, stream.sealed.as_ref().unwrap().family().dictionary.is_some());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn damage_in_a_packed_block_is_an_error_or_entries_never_a_panic(
            at: prop::sample::Index, byte: u8, cut in prop::option::of(any::<prop::sample::Index>()),
            reverse: bool,
        ) {
            let mut stream = packed(&Shape::default(), |ms| format!("value {ms}").into_bytes());
            let sealed = stream.sealed.as_mut().unwrap();
            let first = sealed.index().front().unwrap().first;
            sealed.change_data(first, |data| {
                let Data::Packed { bytes, .. } = data else { panic!("not packed") };
                let mut damaged = bytes.joined(&mut Vec::new()).to_vec();
                let at = at.index(damaged.len());
                damaged[at] ^= byte;
                if let Some(cut) = cut {
                    damaged.truncate(cut.index(damaged.len() + 1));
                }
                *bytes = PackedBytes::new(&damaged);
                true
            });
            let mut scratch = StreamScratch::new();
            let mut seen = 0u64;
            let (min, max) = (StreamId::MIN, StreamId::MAX);
            let result = stream.range(min, max, reverse, &mut scratch, |_, fields| {
                seen += fields.len() as u64;
                for pair in fields {
                    std::hint::black_box(pair);
                }
                ControlFlow::Continue(())
            });
            if byte == 0 && cut.is_none() {
                prop_assert_eq!((result, seen), (Ok(()), 2000));
            }
            let _ = stream.delete(StreamId::new(3, 0), &Shape::default(), &mut scratch);
            let _ = stream.trim(crate::types::stream::Trim::MinId(StreamId::new(5, 0)), None,
                &Shape::default(), &mut scratch);
            let _ = stream.first_id(&mut scratch);
        }
    }
}
