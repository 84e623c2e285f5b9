//! How strings cool: raw, cold, packed, packed anew with a dictionary, hot, raw.

mod strings;

use snug_codec::family::TrainingJob;
use snug_codec::{Dictionary, Workspace, WorkspaceConfig};
use snug_store::types::stream::ops::{AddEntry, TrimEntries};
use snug_store::types::stream::{Shape, Stream, StreamId, StreamScratch, Trim};
use snug_store::{
    Append, Batch, Cooling, Delete, Event, Expire, Fate, Key, KeyFamily, MEET_ONE_IN, MinSaving,
    Names, NewStr, PieceParams, Session, Store, StoreConfig, Type, Unobserved,
};
use std::sync::Arc;
use strings::{assert_none_are_held, codec, is_packed, set};

const NOW: u64 = 1_700_000_000_000;
const PARAMS: PieceParams =
    PieceParams { min_size: 64, min_saving: MinSaving(30), level: 3, ..PieceParams::DEFAULT };
const DOCUMENTS: usize = 1500;

fn document(n: usize) -> Vec<u8> {
    let name = ["alice", "bob", "carol", "dave"][n % 4];
    let text = format!(
        r#"{{"id":{n},"name":"{name}","mail":"{name}{n}@example.org","active":{},"visits":{}}}"#,
        n.is_multiple_of(3),
        n * 7919 % 1000,
    );
    text.into_bytes()
}

fn name(n: usize) -> Vec<u8> {
    format!("user:{n}:profile").into_bytes()
}

/// Reads a value as a client does.
fn get(batch: &Batch<'_>, name: &[u8]) -> Vec<u8> {
    let key = batch.key(name);
    let mut slot = batch.lock(0, &key);
    let found = slot.find(&key).expect("the key is there");
    let string = slot.string(found).expect("a string");
    let len = string.len();
    let bytes = string.to_bytes().expect("whole").into_owned();
    assert_eq!(bytes.len(), len);
    bytes
}

struct Worker {
    store: Arc<Store>,
    beside: Session,
    cooling: Cooling,
    workspace: Workspace,
    room: Vec<u8>,
    awaits: bool,
}

impl Worker {
    fn new() -> Self {
        let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
        let beside = store.session();
        let (cooling, workspace) = (Cooling::new(0, 1), Workspace::new(WorkspaceConfig::default()));
        Self { store, beside, cooling, workspace, room: Vec::new(), awaits: false }
    }

    /// One pass over all slots, with `params`; jobs met.
    fn pass(&mut self, batch: &Batch<'_>, params: &PieceParams) -> usize {
        let (mut met, mut jobs) = (0, Vec::new());
        let params = PieceParams { awaits_dictionaries: self.awaits, ..*params };
        self.cooling.begin(&self.beside, &params);
        while !self.cooling.is_done() {
            self.cooling.step(batch, &params, false, &mut jobs, &mut Names::default());
            met += jobs.len();
            for mut job in jobs.drain(..) {
                job.prepare(&self.beside, &params, Some(&mut self.workspace));
                job.run_at_once(&mut self.workspace, &mut self.room);
                batch.install(&mut job);
            }
        }
        met
    }

    fn passes(&mut self, passes: usize, batch: &Batch<'_>) {
        for _ in 0..passes {
            self.pass(batch, &PARAMS);
        }
    }

    /// The dictionary that comes of a training.
    fn train(&mut self, job: TrainingJob) -> Dictionary {
        job.run(&mut self.workspace, 4096, 3, 1).expect("worth having").dictionary
    }

    /// Gives a family that has enough samples its dictionary; the id of that.
    fn learn(&mut self, family: &KeyFamily) -> u32 {
        assert!(family.is_training_due(4096), "enough samples");
        let store = Arc::clone(&self.store);
        let job = store.families().training_job(family).expect("due");
        store.families().adopt(family, Some(self.train(job)));
        family.dictionary_id()
    }

    /// How many values refer to a dictionary; `None` if there is no such any more.
    fn references(&self, id: u32) -> Option<u64> {
        let all = self.store.families().dictionaries();
        all.iter().find(|d| d.id == id).map(|d| d.references)
    }
}

#[test]
fn values_wait_for_a_dictionary_that_is_being_trained() {
    for is_found in [true, false] {
        let mut worker = Worker::new();
        let mut session = worker.store.session();
        let batch = session.enter(NOW);
        let packed = || (0..2 * DOCUMENTS).filter(|n| is_packed(&batch, &name(*n))).count();
        worker.awaits = true;
        (0..DOCUMENTS).for_each(|n| set(&batch, &name(n), &document(n)));
        worker.passes(2, &batch);
        let family = worker.store.families().of(Type::String, &name(0));
        assert!(family.is_training_due(4096), "enough samples");
        let job = worker.store.families().training_job(&family).expect("due");

        // These do not pack well enough alone, and are not even tried.
        let store = Arc::clone(&worker.store);
        let tried = || store.families().all()[0].stats.judged;
        let before = tried();
        (DOCUMENTS..2 * DOCUMENTS).for_each(|n| set(&batch, &name(n), &document(n)));
        worker.passes(3, &batch);
        assert_eq!((tried(), packed()), (before, 0));

        let dictionary = worker.train(job);
        let dictionary = is_found.then_some(dictionary);
        worker.store.families().adopt(&family, dictionary);
        worker.pass(&batch, &PARAMS);
        assert!(tried() >= before + DOCUMENTS as u64, "all are looked at anew");
        assert_eq!(packed(), if is_found { 2 * DOCUMENTS } else { 0 });
    }
}

#[test]
fn a_family_is_kept_as_long_as_it_has_values() {
    let mut worker = Worker::new();
    let mut session = worker.store.session();
    let store = Arc::clone(&worker.store);
    for n in 0..3 {
        set(&session.enter(NOW), &name(n), &document(n));
        set(&session.enter(NOW), format!("other:{n}").as_bytes(), &document(n));
    }
    worker.passes(4, &session.enter(NOW));
    let shapes = || -> Vec<Vec<u8>> {
        let mut shapes: Vec<_> = store.families().all().into_iter().map(|f| f.shape).collect();
        shapes.sort();
        shapes
    };
    let both = [b"other:#".to_vec(), b"user:#:profile".to_vec()];
    for _ in 0..3 {
        // Nothing is read or packed any more; the walk alone meets them.
        worker.passes(MEET_ONE_IN as usize, &session.enter(NOW));
        store.families().tidy(1);
        assert_eq!(shapes(), both);
    }
    for n in 0..3 {
        let batch = session.enter(NOW);
        let name = name(n);
        let key = batch.key(&name);
        let mut slot = batch.lock(0, &key);
        let found = slot.find(&key).unwrap();
        slot.apply(&key, Some(found), Delete, Event::NONE);
    }
    worker.passes(MEET_ONE_IN as usize, &session.enter(NOW));
    store.families().tidy(1);
    assert_eq!(shapes(), both[..1]);
}

#[test]
fn what_expires_soon_is_left_raw() {
    let mut worker = Worker::new();
    let mut session = worker.store.session();
    let batch = session.enter(NOW);
    let kept = |n: usize| [None, Some(NOW + 4_999), Some(NOW + 5_000)][n % 3];
    (0..DOCUMENTS).for_each(|n| {
        let name = name(n);
        set(&batch, &name, &document(n).repeat(4));
        let key = batch.key(&name);
        let mut slot = batch.lock(0, &key);
        let found = slot.find_untouched(&key).expect("just set");
        slot.apply(&key, Some(found), Expire(kept(n)), Event::NONE);
    });
    worker.cooling.leave_expiring(5_000);
    let other = PieceParams { level: 4, ..PARAMS };
    // Other parameters make no difference to that.
    for (params, met) in [(PARAMS, 0), (PARAMS, 2 * DOCUMENTS / 3), (other, 2 * DOCUMENTS / 3)] {
        assert!(worker.pass(&batch, &params) <= met);
        for n in (0..DOCUMENTS).filter(|n| n % 3 == 1) {
            assert!(!is_packed(&batch, &name(n)));
        }
    }
    assert!(is_packed(&batch, &name(0)) && is_packed(&batch, &name(2)));
    let family = &worker.store.families().all()[0];
    assert_eq!(family.expiring, DOCUMENTS as u64 / 3, "counted once");
    assert_eq!(family.verdict, snug_codec::family::Verdict::Full);

    worker.cooling.leave_expiring(0);
    worker.pass(&batch, &PARAMS);
    assert!(is_packed(&batch, &name(1)), "what memory is short for");
}

#[test]
fn what_is_read_cools_later_unless_memory_is_short() {
    let mut worker = Worker::new();
    let mut session = worker.store.session();
    let batch = session.enter(NOW);
    (0..DOCUMENTS).for_each(|n| set(&batch, &name(n), &document(n).repeat(4)));
    let read = |n: &usize| n.is_multiple_of(2);
    let packed = |which: bool| {
        (0..DOCUMENTS).filter(|n| read(n) == which && is_packed(&batch, &name(*n))).count()
    };
    (0..DOCUMENTS)
        .filter(read)
        .for_each(|n| assert_eq!(get(&batch, &name(n)), document(n).repeat(4)));
    worker.passes(3, &batch);
    // Of those read, one in eight lost a bit to the first of these passes.
    assert_eq!(packed(false), DOCUMENTS / 2);
    assert!(packed(true) < DOCUMENTS / 4, "{}", packed(true));
    worker.passes(200, &batch);
    assert_eq!(packed(true), DOCUMENTS / 2);

    (0..DOCUMENTS).for_each(|n| set(&batch, &name(n), &document(n).repeat(4)));
    (0..DOCUMENTS).for_each(|n| assert_eq!(get(&batch, &name(n)), document(n).repeat(4)));
    worker.store.keep_packed(true);
    worker.passes(3, &batch);
    assert_eq!(packed(true) + packed(false), DOCUMENTS);
}

#[test]
fn values_cool_are_packed_get_a_dictionary_and_are_freed_with_it() {
    let mut worker = Worker::new();
    let mut session = worker.store.session();
    let batch = session.enter(NOW);
    (0..DOCUMENTS).for_each(|n| set(&batch, &name(n), &document(n)));
    set(&batch, b"short", b"not worth it");

    assert_eq!(worker.pass(&batch, &PARAMS), 0);
    assert!(!is_packed(&batch, &name(1)), "warm is not cold");
    assert_eq!(worker.pass(&batch, &PARAMS), DOCUMENTS);
    assert_eq!(worker.pass(&batch, &PARAMS), 0, "what was tried is settled");
    assert!(!is_packed(&batch, b"short"));

    // Enough has been seen to train on; what was judged before is judged anew.
    let store = Arc::clone(&worker.store);
    let families = store.families();
    let family = families.of(Type::String, &name(0));
    assert_eq!(family.shape(), b"user:#:profile");
    assert!(family.is_training_due(4096), "enough samples");
    assert!(!family.is_training_due(4096), "asked for once");
    let job = families.training_job(&family).expect("due");
    families.adopt(&family, Some(worker.train(job)));
    let id = family.dictionary_id();
    assert_eq!(worker.pass(&batch, &PARAMS), DOCUMENTS);
    assert_eq!(worker.pass(&batch, &PARAMS), 0);
    assert_eq!(worker.references(id), Some(DOCUMENTS as u64));
    let memory = worker.store.type_memory(Type::String);
    assert!(memory.packed * 2 < memory.packed_from, "{memory:?}");
    assert_eq!(memory.packed_from + 12, memory.raw);

    // Copies and renamed values refer to it too, and what is removed does not.
    let (from, to) = (batch.key(b"user:7:profile"), batch.key(b"copy"));
    let copy = |from: &Key<'_>, to: &Key<'_>| {
        let _held = batch.hold([(0, *from), (0, *to)]);
        batch.copy((0, from), (0, to));
    };
    copy(&from, &to);
    assert_eq!(worker.references(id), Some(DOCUMENTS as u64 + 1));
    assert!(is_packed(&batch, b"copy"));
    assert_eq!(get(&batch, b"copy"), document(7));
    (0..DOCUMENTS).for_each(|n| assert_eq!(get(&batch, &name(n)), document(n)));

    // Another dictionary: the values are rewritten, the old one is freed.
    let samples: Vec<Vec<u8>> = (0..500).map(document).collect();
    let samples: Vec<&[u8]> = samples.iter().map(|sample| &sample[..]).collect();
    let other = snug_codec::Dictionary::train_with(&samples, 4096, 3, 1).unwrap();
    worker.store.families().adopt(&family, Some(other));
    assert!(worker.references(id).is_some(), "replaced, but needed");
    worker.passes(3, &batch);
    // A copy under another shape of key is of another family, and stays as it is.
    assert_eq!(worker.references(id), Some(1));
    {
        let mut slot = batch.lock(0, &to);
        let found = slot.find(&to).unwrap();
        slot.apply(&to, Some(found), Delete, Event::NONE);
    }
    assert_eq!(worker.references(id), None, "freed with its last value");
    assert_eq!(get(&batch, &name(3)), document(3));

    drop(batch.flush(0));
    assert_none_are_held(&worker.store);
    (0..9).for_each(|_| worker.store.families().tidy(8));
    assert_eq!(worker.store.families().dictionaries().len(), 0);
    assert!(worker.store.families().is_empty());
}

#[test]
fn what_was_learnt_goes_with_the_last_value_that_a_flush_left() {
    let mut worker = Worker::new();
    let mut session = worker.store.session();
    let batch = session.enter(NOW);
    let store = Arc::clone(&worker.store);
    let families = store.families();
    (0..DOCUMENTS).for_each(|n| set(&batch, &name(n), &document(n)));
    worker.passes(2, &batch);
    let id = worker.learn(&families.of(Type::String, &name(0)));
    worker.pass(&batch, &PARAMS);
    assert_eq!(worker.references(id), Some(DOCUMENTS as u64));

    // One is on its way to its place while all go.
    set(&batch, &name(DOCUMENTS), &document(DOCUMENTS));
    worker.pass(&batch, &PARAMS);
    let mut jobs = Vec::new();
    worker.cooling.begin(&worker.beside, &PARAMS);
    while !worker.cooling.is_done() {
        worker.cooling.step(&batch, &PARAMS, false, &mut jobs, &mut Names::default());
    }
    let mut job = jobs.pop().expect("it has cooled");
    job.prepare(&worker.beside, &PARAMS, Some(&mut worker.workspace));
    let flushed = batch.flush(0);
    families.emptied();
    assert!(families.is_empty(), "no family is left");
    assert_eq!(worker.references(id), Some(DOCUMENTS as u64 + 1), "freed with its values only");
    drop(flushed);
    assert_eq!(worker.references(id), Some(1));
    job.run_at_once(&mut worker.workspace, &mut worker.room);
    batch.install(&mut job);
    drop(job);
    assert_eq!(families.dictionaries().len(), 0);

    // A training that ends when all that it was of is gone brings nothing.
    (0..DOCUMENTS).for_each(|n| set(&batch, &name(n), &document(n)));
    worker.passes(2, &batch);
    let family = families.of(Type::String, &name(0));
    assert!(family.is_training_due(4096));
    let job = families.training_job(&family).expect("due");
    drop(batch.flush(0));
    families.emptied();
    // And what comes meanwhile does not wait for it.
    worker.awaits = true;
    (0..DOCUMENTS).for_each(|n| set(&batch, &name(n), &document(n)));
    worker.passes(2, &batch);
    assert_eq!(families.all()[0].stats.judged, DOCUMENTS as u64);
    families.adopt(&family, Some(worker.train(job)));
    assert_eq!((family.dictionary_id(), families.dictionaries().len()), (0, 0));

    // The next is of what came since.
    let id = worker.learn(&families.of(Type::String, &name(0)));
    worker.pass(&batch, &PARAMS);
    assert_eq!(worker.references(id), Some(DOCUMENTS as u64));
}

#[test]
fn what_is_read_often_is_unpacked_and_what_changed_meanwhile_is_not_replaced() {
    let mut worker = Worker::new();
    let mut session = worker.store.session();
    let batch = session.enter(NOW);
    let value = b"all the same ".repeat(40);
    for key in [&b"hot"[..], b"cold", b"changed"] {
        set(&batch, key, &value);
    }
    worker.passes(3, &batch);
    assert!([&b"hot"[..], b"cold", b"changed"].iter().all(|key| is_packed(&batch, key)));

    (0..3).for_each(|_| assert_eq!(get(&batch, b"hot"), value));
    assert_eq!(get(&batch, b"cold"), value);
    assert!(is_packed(&batch, b"hot"), "a read alone does not unpack");
    worker.pass(&batch, &PARAMS);
    assert!(!is_packed(&batch, b"hot"));
    assert!(is_packed(&batch, b"cold"));

    // A value that is another by the time its form is ready.
    let key = batch.key(b"changed");
    let mut slot = batch.lock(0, &key);
    let found = slot.find(&key).unwrap();
    assert!(slot.unpack(found).unwrap());
    let job = slot.job(found, &PARAMS, true).unwrap();
    let append = Append(NewStr::Bytes(b"!"));
    assert_eq!(slot.apply(&key, Some(found), append, Event::NONE), value.len() + 1);
    drop(slot);
    let mut job = batch.prepared(job, &PARAMS);
    job.run_at_once(&mut worker.workspace, &mut worker.room);
    assert_eq!(batch.install(&mut job).fate, Fate::Nothing);
    assert_eq!(get(&batch, b"changed"), [&value[..], b"!"].concat());
}

#[test]
fn rules_that_change_are_applied_to_what_was_settled() {
    let mut worker = Worker::new();
    let mut session = worker.store.session();
    let batch = session.enter(NOW);
    let value = b"abcdefghij".repeat(5);
    set(&batch, b"key", &value);
    worker.passes(4, &batch);
    assert!(!is_packed(&batch, b"key"), "too short");
    worker.pass(&batch, &PieceParams { min_size: 10, ..PARAMS });
    assert!(is_packed(&batch, b"key"));
}

/// Entries at a cold stream's end are sealed, a page or more of them, and handed
/// to the sweeper like any block; those of a stream in use are left to grow.
#[test]
fn a_cold_streams_tail_is_sealed() {
    let mut worker = Worker::new();
    let mut session = worker.store.session();
    let batch = session.enter(NOW);
    let shape = Shape::default();
    let append = |name: &[u8], ids: std::ops::Range<u64>| {
        let key = batch.key(name);
        let mut slot = batch.lock(0, &key);
        let mut found = slot.find(&key);
        for id in ids {
            let fields = [(b"field".as_slice(), b"the same value".as_slice())];
            let id = StreamId::new(id, 0);
            let entry = AddEntry { id, fields: fields.iter().copied(), shape: &shape };
            found = Some(slot.apply(&key, found, entry, Event::NONE).unwrap());
        }
    };
    let tail_bytes = |name: &[u8]| {
        let key = batch.key(name);
        let mut slot = batch.lock(0, &key);
        let found = slot.find_untouched(&key).unwrap();
        slot.stream(found).unwrap().tail_bytes()
    };
    append(b"cold", 1..400);
    append(b"small", 1..10);
    append(b"used", 1..300);
    let of_small = tail_bytes(b"small");
    for pass in 0..2 {
        append(b"used", 300 + pass..301 + pass);
        assert_eq!(batch.next_unpacked(0, 1), None, "before pass {pass}");
        worker.pass(&batch, &PARAMS);
    }
    assert_eq!(batch.next_unpacked(0, 1), Some((0, b"cold".to_vec())));
    assert_eq!((tail_bytes(b"cold"), tail_bytes(b"small")), (0, of_small));
    assert!(tail_bytes(b"used") > 4096);
    append(b"cold", 400..401);
    let key = batch.key(b"cold");
    let mut slot = batch.lock(0, &key);
    let found = slot.find(&key).unwrap();
    assert_eq!(slot.stream(found).map(Stream::len), Some(400));
}

#[test]
fn a_policy_holds_for_what_comes_and_the_next_pass_applies_it_to_what_was() {
    let policy = |json: &str| serde_json::from_str(json).unwrap();
    let mut worker = Worker::new();
    let mut session = worker.store.session();
    let batch = session.enter(NOW);
    let families = |worker: &Worker| worker.store.families().all();
    let text = |n: usize| document(n).repeat(4);
    let png = [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec(), text(1)].concat();
    for n in 0..100 {
        set(&batch, format!("a:{n}").as_bytes(), &text(n));
        set(&batch, format!("b:{n}").as_bytes(), &text(n));
        set(&batch, format!("png:{n}").as_bytes(), &png);
    }
    worker.store.families().set_policy(policy(r#"{"rules": [{"key": "a:*", "codec": "lz4"}]}"#));
    worker.passes(4, &batch);
    let codecs = |batch: &Batch<'_>| [b"a:1".as_slice(), b"b:1", b"png:1"].map(|k| codec(batch, k));
    assert_eq!(codecs(&batch), ["lz4", "zstd", "zstd"]);

    // Only what is decided differently is packed anew.
    worker.store.families().set_policy(policy(r#"{"rules": [{"key": "b:*", "codec": "none"}]}"#));
    assert_eq!(worker.pass(&batch, &PARAMS), 200);
    assert_eq!(codecs(&batch), ["zstd", "none", "zstd"]);
    assert_eq!(worker.pass(&batch, &PARAMS), 0, "and once");
    assert_eq!(get(&batch, b"b:2"), text(2), "which makes it warm");
    let of_b = families(&worker).into_iter().find(|family| *family.shape == *b"b:#").unwrap();
    assert_eq!((of_b.skipped, of_b.choice.unwrap().codec), (100, snug_codec::Codec::None));

    // What a MIME type decides is not known before the bytes are seen.
    worker.store.families().set_policy(policy(r#"{"skip": ["image/"]}"#));
    assert_eq!(worker.pass(&batch, &PARAMS), 299);
    assert_eq!(codecs(&batch), ["zstd", "zstd", "none"]);

    // Two changes between passes: each value goes by the last.
    worker.store.families().set_policy(policy(r#"{"rules": [{"codec": "none"}]}"#));
    worker.store.families().set_policy(policy(r#"{"rules": [{"codec": "snappy"}]}"#));
    worker.pass(&batch, &PARAMS);
    assert_eq!(codecs(&batch), ["snappy"; 3]);
    (0..100).for_each(|n| assert_eq!(get(&batch, format!("a:{n}").as_bytes()), text(n)));

    drop(batch.flush(0));
    assert_none_are_held(&worker.store);
}

#[test]
fn a_familys_dictionary_follows_the_level_that_the_policy_names() {
    let mut worker = Worker::new();
    let mut session = worker.store.session();
    let batch = session.enter(NOW);
    (0..DOCUMENTS).for_each(|n| set(&batch, &name(n), &document(n)));
    worker.passes(3, &batch);
    let families = worker.store.families();
    let family = families.of(Type::String, &name(0));
    // Of the kind that knows levels, whatever these documents would be given.
    let documents: Vec<Vec<u8>> = (0..DOCUMENTS).map(document).collect();
    let samples: Vec<&[u8]> = documents.iter().map(Vec::as_slice).collect();
    let trained = snug_codec::Dictionary::train_with(&samples, 4096, 3, 1).unwrap();
    families.adopt(&family, Some(trained));
    worker.pass(&batch, &PARAMS);
    assert!(family.relevel_due().is_none());
    let old = family.dictionary_id();

    let policy = serde_json::from_str(r#"{"level": 9}"#).unwrap();
    worker.store.families().set_policy(policy);
    worker.pass(&batch, &PARAMS);
    assert_eq!(family.dictionary_id(), old, "nothing is gained before it is there");
    let families = worker.store.families();
    let (dictionary, level) = family.relevel_due().expect("wanted at another level");
    assert_eq!((dictionary.id(), level), (old, 9));
    assert!(family.relevel_due().is_none(), "asked for once");
    let made = snug_codec::Dictionary::from_bytes(0, dictionary.bytes(), level).unwrap();
    families.relevel(&family, old, Some(made));
    worker.pass(&batch, &PARAMS);
    let all = worker.store.families().dictionaries();
    assert_eq!(all.len(), 1, "the old one is freed");
    assert_eq!((all[0].level, all[0].references), (9, DOCUMENTS as u64));
    (0..DOCUMENTS).for_each(|n| assert_eq!(get(&batch, &name(n)), document(n)));
}

#[test]
fn a_stream_counts_as_packed_while_one_of_its_blocks_is() {
    let worker = Worker::new();
    let mut session = worker.store.session();
    let batch = session.enter(NOW);
    let counts = || {
        let memory = worker.store.type_memory(Type::Stream);
        (memory.raw_values, memory.packed_values)
    };
    let key = batch.key(b"stream");
    let mut slot = batch.lock(0, &key);
    let mut found = None;
    let (shape, value) = (Shape::default(), b"all the same ".repeat(40));
    for n in 1..=1000 {
        let fields = [(&b"field"[..], &value[..])];
        let id = StreamId::new(n, 0);
        let entry = AddEntry { id, fields: fields.into_iter(), shape: &shape };
        found = slot.apply(&key, found, entry, Event::NONE).ok();
    }
    assert!(found.is_some());
    assert_eq!(counts(), (1, 0), "raw until it is packed");
    let mut workspace = snug_codec::Workspace::new(snug_codec::WorkspaceConfig::default());
    drop(slot);
    while let Some(mut job) = batch.job(0, b"stream", &PARAMS) {
        job.run_at_once(&mut workspace, &mut Vec::new());
        assert!(matches!(batch.install(&mut job).fate, Fate::Packed(_)));
    }
    assert_eq!(counts(), (0, 1));
    let to = batch.key(b"copy");
    {
        let _held = batch.hold([(0, key), (0, to)]);
        batch.copy((0, &key), (0, &to));
    }
    assert_eq!(counts(), (0, 2));
    let mut slot = batch.lock(0, &key);
    let found = slot.find(&key).unwrap();
    let scratch = &mut StreamScratch::new();
    let empty = TrimEntries { trim: Trim::MaxLen(0), approximate: None, shape: &shape, scratch };
    slot.apply(&key, Some(found), empty, Event::NONE);
    assert_eq!(counts(), (1, 1), "nothing of it is left to be packed");
    slot.apply(&key, Some(found), Delete, Event::NONE);
    drop(slot);
    assert_eq!(counts(), (0, 1));
    let kept = batch.flush(0);
    assert_eq!(counts(), (0, 1), "until it is freed");
    drop(kept);
    assert_eq!(counts(), (0, 0));
}

/// A sentence: its words are few, and each is used seldom.
fn sentence(n: u64) -> String {
    let mut x = n;
    let mut word = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(n | 1);
        let word = (x >> 33) % 400;
        let letter = |at: u64| char::from(b'a' + ((word * 7919) >> at) as u8 % 26);
        (0..9).map(letter).collect::<String>()
    };
    (0..12).map(|_| word()).collect::<Vec<_>>().join(" ")
}

/// A stream of a few entries that have much in common with those of others.
fn add_small_stream(batch: &Batch<'_>, n: usize) {
    let name = format!("device:{n}:events").into_bytes();
    let key = batch.key(&name);
    let mut slot = batch.lock(0, &key);
    let mut found = None;
    for ms in 1..=40u64 {
        let text = sentence(n as u64 * 1000 + ms);
        let fields = [(b"text".as_slice(), text.as_bytes())];
        let id = StreamId::new(ms, 0);
        let entry = AddEntry { id, fields: fields.into_iter(), shape: &Shape::default() };
        found = slot.apply(&key, found, entry, Event::NONE).ok();
    }
    assert!(slot.seal_tail(found.unwrap()));
}

/// Packs what streams have to be packed, as the sweeper does; blocks that were packed
/// with the family's dictionary, and others.
fn pack_streams(batch: &Batch<'_>) -> (usize, usize) {
    let (mut workspace, mut room) = (Workspace::new(WorkspaceConfig::default()), Vec::new());
    let params = PieceParams { level: 1, ..PieceParams::DEFAULT };
    let (mut with, mut without) = (0, 0);
    while let Some((db, name)) = batch.next_unpacked(0, 1) {
        let Some(mut job) = batch.job(db, &name, &params) else { continue };
        job.run_at_once(&mut workspace, &mut room);
        let outcome = batch.install(&mut job);
        let Some(family) = outcome.family else { panic!("it goes by no family") };
        assert_ne!(outcome.fate, Fate::Nothing);
        let key = batch.key(&name);
        let mut slot = batch.lock(db, &key);
        let found = slot.find_untouched(&key).unwrap();
        match slot.anatomy(found).dictionary_id {
            Some((id, _)) if id == family.dictionary_id() => with += 1,
            _ => without += 1,
        }
    }
    (with, without)
}

#[test]
fn short_streams_share_the_dictionary_of_their_keys_family() {
    const STREAMS: usize = 150;
    let mut worker = Worker::new();
    let store = Arc::clone(&worker.store);
    let mut session = store.session();
    let batch = session.enter(NOW);
    (0..STREAMS).for_each(|n| add_small_stream(&batch, n));
    assert_eq!(pack_streams(&batch), (0, STREAMS));
    let before = store.type_memory(Type::Stream);
    // What each has alone is too little to learn from; together it is enough.
    let families = store.families();
    let family = families.of(Type::Stream, b"device:1:events");
    assert_eq!((family.shape(), families.len()), (&b"device:#:events"[..], 1));
    assert!(family.is_training_due(16 * 1024));
    let job = families.training_job(&family).unwrap();
    let trained = job.run(&mut Workspace::new(WorkspaceConfig::default()), 16 * 1024, 1, 1);
    families.adopt(&family, Some(trained.unwrap().dictionary));
    let id = family.dictionary_id();
    // New ones are packed with it, and a pass has the others packed anew.
    add_small_stream(&batch, STREAMS);
    assert_eq!(pack_streams(&batch), (1, 0));
    worker.pass(&batch, &PARAMS);
    let mut passed = 0;
    while passed < 3 && worker.references(id) != Some(STREAMS as u64 + 1) {
        worker.pass(&batch, &PARAMS);
        pack_streams(&batch);
        passed += 1;
    }
    assert_eq!(worker.references(id), Some(STREAMS as u64 + 1));
    let after = store.type_memory(Type::Stream);
    assert!(after.packed * 10 < before.packed * 8, "{before:?} {after:?}");
    // A copy refers to it as well, and is read with it.
    let (from, to) = (batch.key(b"device:7:events"), batch.key(b"copy"));
    {
        let _held = batch.hold([(0, from), (0, to)]);
        batch.copy((0, &from), (0, &to));
    }
    assert_eq!(worker.references(id), Some(STREAMS as u64 + 2));
    let mut slot = batch.lock(0, &to);
    let found = slot.find(&to).unwrap();
    let mut read = 0;
    let all = (StreamId::MIN, StreamId::MAX);
    let whole = slot.stream(found).unwrap().range(
        all.0,
        all.1,
        false,
        &mut StreamScratch::new(),
        |entry, fields| {
            read += 1;
            assert_eq!(entry.ms, read);
            let values: Vec<&[u8]> = fields.map(|(_, value)| value).collect();
            assert_eq!(values, [sentence(7000 + read).as_bytes()]);
            std::ops::ControlFlow::Continue(())
        },
    );
    assert_eq!((whole, read), (Ok(()), 40));
    drop(slot);
    // With its streams it goes, but for the family's own hold on it.
    drop(batch.flush(0));
    assert_eq!(worker.references(id), Some(0));
}
