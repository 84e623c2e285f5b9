//! The stream against a plain reference under random operations.
//!
//! The reference keeps what Redis keeps: nodes of so many entries, deleted ones
//! left in place, a node gone once all of its entries are. So it also tells what
//! approximate trimming must remove.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use proptest::prelude::*;
use snug_codec::{Codec, Workspace, WorkspaceConfig};

use super::*;
use crate::MinSaving;
use crate::pack::dictionaries::Dictionaries;
use std::sync::Arc;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;
type Entries = Vec<(StreamId, Pairs)>;

#[derive(Clone, Default)]
struct Reference {
    /// Entries in order; `None` once deleted.
    nodes: Vec<Vec<(StreamId, Option<Pairs>)>>,
    last_id: StreamId,
    max_deleted_id: StreamId,
    entries_added: u64,
}

impl Reference {
    fn entries(&self) -> Entries {
        let all = self.nodes.iter().flatten();
        all.filter_map(|(id, pairs)| Some((*id, pairs.clone()?))).collect()
    }

    fn len(&self) -> u64 {
        self.nodes.iter().map(|node| live(node)).sum()
    }

    fn append(&mut self, id: StreamId, pairs: Pairs, node_entries: usize) {
        if self.nodes.last().is_none_or(|node| node.len() >= node_entries) {
            self.nodes.push(Vec::new());
        }
        self.nodes.last_mut().unwrap().push((id, Some(pairs)));
        self.last_id = id;
        self.entries_added += 1;
    }

    fn remove(&mut self, id: StreamId) -> bool {
        let mut all = self.nodes.iter_mut().flatten();
        let found = all.find(|(at, _)| *at == id).and_then(|(_, pairs)| pairs.take()).is_some();
        self.nodes.retain(|node| live(node) > 0);
        found
    }

    fn delete(&mut self, id: StreamId) -> bool {
        let found = self.remove(id);
        if found {
            self.max_deleted_id = self.max_deleted_id.max(id);
        }
        found
    }

    fn trim(&mut self, trim: Trim, approximate: Option<u64>) -> u64 {
        let before = self.len();
        if let Some(limit) = approximate {
            let mut dropped = 0;
            while let Some(node) = self.nodes.first() {
                let entries = live(node);
                let go = match trim {
                    Trim::MaxLen(length) => self.len() > length && self.len() - entries >= length,
                    Trim::MinId(id) => node.last().unwrap().0 < id,
                    Trim::MaxSize(_) => unreachable!("no size here"),
                };
                if !go || limit > 0 && dropped + entries > limit {
                    break;
                }
                dropped += entries;
                self.nodes.remove(0);
            }
        } else {
            for (id, _) in self.entries() {
                let more = match trim {
                    Trim::MaxLen(length) => self.len() > length,
                    Trim::MinId(min) => id < min,
                    Trim::MaxSize(_) => unreachable!("no size here"),
                };
                if more {
                    self.remove(id);
                }
            }
        }
        before - self.len()
    }
}

fn live(node: &[(StreamId, Option<Pairs>)]) -> u64 {
    node.iter().filter(|(_, pairs)| pairs.is_some()).count() as u64
}

#[derive(Clone, Debug)]
enum Step {
    Append {
        ms: u64,
        seq: u64,
        pairs: Pairs,
    },
    Many {
        count: usize,
        pairs: Pairs,
    },
    /// The index is into all IDs ever added.
    Delete(prop::sample::Index),
    DeleteLast(usize),
    DeleteFirst(usize),
    /// Deletes all entries but one of so many.
    Thin(usize),
    Trim {
        by_id: bool,
        at: prop::sample::Index,
        approximate: Option<u64>,
    },
    TrimSize {
        percent: u64,
        approximate: Option<u64>,
    },
    Range {
        start: prop::sample::Index,
        end: prop::sample::Index,
        reverse: bool,
        count: usize,
    },
    /// Reads each of these, and what lies between.
    Each(Vec<prop::sample::Index>),
    SetId(u64),
    Duplicate,
    Seal,
    Pack {
        budget: usize,
    },
    /// Takes a job away, does the other step, and brings it back.
    PackAway(Box<Step>),
    Train,
    /// Has packing made this of more than a test can add.
    Ratio {
        percent: u64,
    },
    /// Packs otherwise from now on, and what was packed too.
    Reconsider {
        codec: Codec,
        level: i32,
    },
}

fn any_pairs() -> impl Strategy<Value = Pairs> {
    let name = prop_oneof![4 => Just(b"f".to_vec()), 1 => prop::collection::vec(any::<u8>(), 0..3)];
    let value = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..9),
        1 => prop::collection::vec(Just(b'x'), 0..3000),
    ];
    prop_oneof![
        3 => prop::collection::vec((Just(b"f".to_vec()), Just(b"value".to_vec())), 1..3),
        2 => prop::collection::vec((name, value), 1..4),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    use any as a;
    prop_oneof![
        6 => (prop_oneof![Just(0u64), 0u64..4, a::<u64>().prop_map(|n| n >> 20)], 0u64..4, any_pairs())
            .prop_map(|(ms, seq, pairs)| Step::Append { ms, seq, pairs }),
        4 => (1usize..40, any_pairs()).prop_map(|(count, pairs)| Step::Many { count, pairs }),
        4 => a::<prop::sample::Index>().prop_map(Step::Delete),
        2 => (1usize..12).prop_map(Step::DeleteLast),
        2 => (1usize..12).prop_map(Step::DeleteFirst),
        2 => (2usize..9).prop_map(Step::Thin),
        2 => (a::<bool>(), a::<prop::sample::Index>(), prop::option::of(0u64..30))
            .prop_map(|(by_id, at, approximate)| Step::Trim { by_id, at, approximate }),
        1 => (0u64..120, prop::option::of(0u64..60))
            .prop_map(|(percent, approximate)| Step::TrimSize { percent, approximate }),
        3 => (a::<prop::sample::Index>(), a::<prop::sample::Index>(), a::<bool>(), 0usize..50)
            .prop_map(|(start, end, reverse, count)| Step::Range { start, end, reverse, count }),
        2 => prop::collection::vec(a::<prop::sample::Index>(), 1..30).prop_map(Step::Each),
        1 => (0u64..3).prop_map(Step::SetId),
        1 => Just(Step::Duplicate),
        1 => Just(Step::Seal),
    ]
}

fn any_step_or_packing() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => any_step(),
        3 => (0usize..4000).prop_map(|budget| Step::Pack { budget }),
        1 => prop_oneof![4 => any_step(), 1 => any_reconsider()]
            .prop_map(|step| Step::PackAway(Box::new(step))),
        1 => Just(Step::Train),
        1 => (1u64..=100).prop_map(|percent| Step::Ratio { percent }),
        1 => any_reconsider(),
    ]
}

fn any_reconsider() -> impl Strategy<Value = Step> {
    let codec = prop_oneof![2 => Just(Codec::Zstd), 1 => Just(Codec::Lz4), 1 => Just(Codec::None)];
    (codec, 1i32..4).prop_map(|(codec, level)| Step::Reconsider { codec, level })
}

fn any_shape() -> impl Strategy<Value = Shape> {
    let bytes = prop_oneof![30u32..300, Just(8192)];
    let shape = (1u32..40, bytes, 1u32..12, any::<bool>());
    shape.prop_map(|(block_entries, block_bytes, node_entries, packs)| Shape {
        block_entries,
        block_bytes,
        node_entries,
        // Nodes that end by their bytes are another test's (trim.rs).
        node_bytes: 0,
        packs,
    })
}

fn read(
    stream: &Stream,
    (start, end): (StreamId, StreamId),
    reverse: bool,
    count: usize,
    scratch: &mut StreamScratch,
) -> Entries {
    let mut entries = Entries::new();
    let result = stream.range(start, end, reverse, scratch, |id, fields| {
        let count_told = fields.len();
        let pairs: Pairs = fields.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        assert_eq!(pairs.len(), count_told);
        entries.push((id, pairs));
        if entries.len() == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(result, Ok(()));
    entries
}

fn pairs_iter(pairs: &Pairs) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> + Clone {
    pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
}

/// One stream and its reference.
struct Pair {
    stream: Stream,
    reference: Reference,
    shape: Shape,
    scratch: StreamScratch,
    ids: Vec<StreamId>,
    ws: Workspace,
    params: PackParams,
}

impl Pair {
    fn append(&mut self, id: StreamId, pairs: &Pairs) {
        let books = |stream: &Stream| {
            let memory = stream.memory();
            [memory.raw, memory.allocated, stream.pending_work()].map(|amount| amount as i64)
        };
        let before = books(&self.stream);
        let result = self.stream.append(id, pairs_iter(pairs), &self.shape);
        if id > self.reference.last_id {
            let after = books(&self.stream);
            let [raw, allocated, pending] = std::array::from_fn(|n| after[n] - before[n]);
            assert_eq!(result, Ok(Growth { raw, allocated, pending }));
            self.reference.append(id, pairs.clone(), self.shape.node_entries as usize);
            self.ids.push(id);
        } else {
            assert_eq!(result, Err(StreamError::NotGreater));
        }
    }

    fn delete(&mut self, id: StreamId) {
        let deleted = self.stream.delete(id, &self.shape, &mut self.scratch);
        assert_eq!(deleted, Ok(self.reference.delete(id)));
    }

    fn id(&self, index: prop::sample::Index) -> StreamId {
        if self.ids.is_empty() { StreamId::MIN } else { self.ids[index.index(self.ids.len())] }
    }

    /// The reference knows no sizes; what must hold is that the oldest go, and
    /// what is left.
    fn trim_size(&mut self, percent: u64, approximate: Option<u64>) {
        let size = self.stream.size() * percent / 100;
        let held = |stream: &Stream, shape| stream.held(size, approximate.is_none(), shape).size();
        let before = held(&self.stream, &self.shape);
        if !self.shape.packs {
            assert_eq!(before, self.stream.size());
        }
        let trim = Trim::MaxSize(size);
        let dropped = self.stream.trim(trim, approximate, &self.shape, &mut self.scratch).unwrap();
        let after = held(&self.stream, &self.shape);
        match approximate {
            None => assert!(after <= size, "{after} of {size}"),
            Some(limit) => {
                assert!(after >= size.min(before), "{after} of {size}");
                assert!(limit == 0 || dropped <= limit);
            }
        }
        if before <= size {
            assert_eq!(dropped, 0);
        }
        self.reference.trim(Trim::MaxLen(self.reference.len() - dropped), None);
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Append { ms, seq, pairs } => {
                let last = self.reference.last_id;
                let seq = if ms == 0 { last.seq.saturating_add(seq) } else { seq };
                self.append(StreamId::new(last.ms.saturating_add(ms), seq), &pairs);
            }
            Step::Many { count, pairs } => {
                for _ in 0..count {
                    let Some(id) = self.reference.last_id.next() else { break };
                    self.append(id, &pairs);
                }
            }
            Step::Delete(index) => {
                let id = self.id(index);
                self.delete(id);
                self.delete(StreamId { seq: id.seq ^ 1, ..id });
            }
            Step::DeleteLast(count) => {
                for (id, _) in self.reference.entries().iter().rev().take(count) {
                    self.delete(*id);
                }
            }
            Step::DeleteFirst(count) => {
                for (id, _) in self.reference.entries().iter().take(count) {
                    self.delete(*id);
                }
            }
            Step::Thin(one_in) => {
                for (n, (id, _)) in self.reference.entries().iter().enumerate() {
                    if n % one_in > 0 {
                        self.delete(*id);
                    }
                }
            }
            Step::Trim { by_id, at, approximate } => {
                let trim = if by_id {
                    // Where whole blocks were deleted one by one, a node's last
                    // ID is forgotten: an ID between entries may then trim a
                    // node more than Redis would. One of an entry does not.
                    let entries = self.reference.entries();
                    let of_entry = approximate.is_some() && !entries.is_empty();
                    let id = if of_entry { at.get(&entries).0 } else { self.id(at) };
                    Trim::MinId(id)
                } else {
                    Trim::MaxLen(at.index(self.reference.len() as usize + 2) as u64)
                };
                let dropped = self.stream.trim(trim, approximate, &self.shape, &mut self.scratch);
                assert_eq!(dropped, Ok(self.reference.trim(trim, approximate)), "{trim:?}");
            }
            Step::TrimSize { percent, approximate } => self.trim_size(percent, approximate),
            Step::Range { start, end, reverse, count } => {
                let range = (self.id(start), self.id(end));
                let entries = read(&self.stream, range, reverse, count, &mut self.scratch);
                let mut wanted = self.reference.entries();
                wanted.retain(|(id, _)| range.0 <= *id && *id <= range.1);
                if reverse {
                    wanted.reverse();
                }
                if count > 0 {
                    wanted.truncate(count);
                }
                assert_eq!(entries, wanted);
            }
            Step::Each(indices) => {
                let ids = indices.iter().flat_map(|&index| {
                    let id = self.id(index);
                    [id, StreamId { seq: id.seq ^ 1, ..id }]
                });
                let ids: Vec<_> = ids.collect::<BTreeSet<_>>().into_iter().collect();
                let mut read = Vec::new();
                let visit = |id, fields: Option<Fields<'_>>| {
                    let owned = |fields: Fields<'_>| -> Pairs {
                        fields.map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
                    };
                    read.push((id, fields.map(owned)));
                };
                assert_eq!(self.stream.visit_each(&ids, &mut self.scratch, visit), Ok(()));
                let entries: BTreeMap<_, _> = self.reference.entries().into_iter().collect();
                let wanted: Vec<_> = ids.iter().map(|id| (*id, entries.get(id).cloned())).collect();
                assert_eq!(read, wanted);
            }
            Step::SetId(more) => {
                let id = StreamId { ms: self.reference.last_id.ms.saturating_add(more), seq: 7 };
                if id > self.reference.last_id {
                    self.reference.last_id = id;
                    self.stream.set_id(id, None, None);
                }
            }
            Step::Duplicate => {
                let copy = self.stream.duplicate();
                self.stream = copy;
            }
            Step::Seal => {
                self.stream.seal_tail();
            }
            Step::Pack { budget } => {
                let before = self.stream.pending_work();
                let progress =
                    self.stream.pack_some(&mut self.ws, &self.params, &self.shape, budget);
                assert_eq!(progress.pending, self.stream.pending_work());
                assert_eq!(before > 0, self.stream.pending_work() < before);
            }
            Step::PackAway(step) => {
                let job = self.stream.pack_job(&self.shape);
                self.take(*step);
                if let Some(job) = job {
                    let outcome = job.run(&mut self.ws, &self.params, &mut Vec::new());
                    self.stream.install(outcome);
                }
            }
            Step::Reconsider { codec, level } => {
                (self.params.codec, self.params.level) = (codec, level);
                self.stream.reconsider();
            }
            Step::Ratio { percent } => {
                if let Some(sealed) = &mut self.stream.sealed {
                    sealed.pretend_packed(percent);
                }
            }
            Step::Train => {
                // A dictionary is adopted whether or not it is worth it here.
                if let Some(samples) = self.stream.dictionary_samples() {
                    let dictionary = samples.train_regardless(&mut self.ws, &self.params);
                    let own = |dictionary| Arc::<Dictionaries>::default().own(dictionary);
                    self.stream.adopt_dictionary(dictionary.map(own), &samples);
                }
            }
        }
    }

    fn check(&mut self) {
        let Self { stream, reference, scratch, .. } = self;
        let entries = reference.entries();
        assert_eq!(stream.len(), entries.len() as u64);
        assert_eq!(stream.last_id(), reference.last_id);
        assert_eq!(stream.max_deleted_id(), reference.max_deleted_id);
        assert_eq!(stream.entries_added(), reference.entries_added);
        assert_eq!(stream.first_id(scratch), Ok(entries.first().map(|(id, _)| *id)));
        assert_eq!(stream.last_live_id(scratch), Ok(entries.last().map(|(id, _)| *id)));
        let memory = stream.memory();
        assert_eq!(memory, stream.memory_by_walking());
        assert!(stream.raw_size() <= memory.raw as u64);
        if memory.packed_blocks == 0 {
            assert_eq!(stream.raw_size(), stream.size());
        }
    }

    fn check_all(&mut self) {
        self.check();
        let all = (StreamId::MIN, StreamId::MAX);
        let mut entries = self.reference.entries();
        assert_eq!(read(&self.stream, all, false, 0, &mut self.scratch), entries);
        entries.reverse();
        assert_eq!(read(&self.stream, all, true, 0, &mut self.scratch), entries);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(600), ..ProptestConfig::default() })]

    #[test]
    fn behaves_as_the_reference(
        shape in any_shape(),
        min_saving in prop_oneof![Just(0), Just(30)].prop_map(MinSaving),
        packs_at_once: bool,
        steps in prop::collection::vec(any_step_or_packing(), 1..60),
    ) {
        let mut pair = Pair {
            stream: Stream::new(),
            reference: Reference::default(),
            shape,
            scratch: StreamScratch::new(),
            ids: Vec::new(),
            ws: Workspace::new(WorkspaceConfig::default()),
            params: PackParams { min_saving, level: 1, dictionary_bytes: 1024, ..PackParams::default() },
        };
        for step in steps {
            pair.take(step);
            if packs_at_once {
                pair.take(Step::Pack { budget: usize::MAX });
            }
            pair.check();
        }
        pair.check_all();
    }
}

impl Stream {
    /// [`Stream::memory`] summed anew.
    fn memory_by_walking(&self) -> StreamMemory {
        let sealed =
            self.sealed.as_ref().map_or_else(StreamMemory::default, |s| s.memory_by_walking());
        StreamMemory {
            allocated: sealed.allocated + self.tail.heap_bytes(),
            raw: sealed.raw + self.tail.raw_bytes(),
            ..sealed
        }
    }
}
