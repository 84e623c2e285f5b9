//! Many kinds of values at once, under keys that say nothing, mutated and hostile: every
//! one comes back to the byte, and what is learnt of them is bounded.

#[allow(dead_code)]
mod strings;

use snug_codec::{Workspace, WorkspaceConfig};
use snug_store::{
    Batch, Cooling, MinSaving, Names, PieceParams, Session, Store, StoreConfig, Type, Unobserved,
};
use std::sync::Arc;
use strings::{is_packed, set};

const NOW: u64 = 1_700_000_000_000;
const PARAMS: PieceParams =
    PieceParams { min_saving: MinSaving(30), level: 1, ..PieceParams::DEFAULT };

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn word(&mut self) -> &'static str {
        ["red", "green", "house", "river", "open", "paid", "north", "light"][self.below(8) as usize]
    }

    /// A value of one of eight kinds, some of them changed in a byte, cut or doubled.
    fn value(&mut self) -> Vec<u8> {
        let (n, a, b) = (self.below(100_000), self.word(), self.word());
        let mut value = match self.below(8) {
            0 => format!(r#"{{"id":{n},"state":"{a}","mail":"{b}{n}@example.org"}}"#).into_bytes(),
            1 => format!("<p class=\"{a}\">{b} {n} and {a}, {b} and no more</p>").into_bytes(),
            2 => format!("{a}.{b}{n}@example.org").into_bytes(),
            3 => format!("2026-0{}-1{}T0{}:3{}:00Z", n % 9 + 1, n % 10, n % 10, n % 9).into_bytes(),
            4 => (0..n % 300).map(|_| self.next() as u8).collect(),
            5 => format!("{:016x}{:016x}", self.next(), self.next()).into_bytes(),
            6 => n.to_string().into_bytes(),
            _ => [&b"\x80\x04\x95"[..], a.as_bytes(), &n.to_le_bytes(), b.as_bytes()].concat(),
        };
        match self.below(12) {
            0 if !value.is_empty() => {
                let at = self.below(value.len() as u64) as usize;
                value[at] = self.next() as u8;
            }
            1 => value.truncate(self.below(value.len() as u64 + 1) as usize),
            2 => value = value.repeat(2),
            _ => {}
        }
        value
    }

    fn key(&mut self, n: usize) -> Vec<u8> {
        let (a, b) = (self.word(), self.word());
        match self.below(3) {
            0 => format!("cache:{:016x}{n:016x}", self.next()).into_bytes(),
            1 => format!("{a}/{b}-{}-{n}", self.word()).into_bytes(),
            _ => {
                let letters = (0..4).map(|at| char::from(b'a' + (n / 26usize.pow(at) % 26) as u8));
                format!("{a}:{}.{b}", letters.collect::<String>()).into_bytes()
            }
        }
    }
}

struct Worker {
    store: Arc<Store>,
    beside: Session,
    cooling: Cooling,
    workspace: Workspace,
}

impl Worker {
    fn new() -> Self {
        let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
        let beside = store.session();
        let workspace = Workspace::new(WorkspaceConfig::default());
        Self { store, beside, cooling: Cooling::new(0, 1), workspace }
    }

    /// A pass over all slots, and the trainings that are due after it.
    fn pass(&mut self, batch: &Batch<'_>) {
        let (mut jobs, mut room) = (Vec::new(), Vec::new());
        self.cooling.begin(&self.beside, &PARAMS);
        let mut due = self.store.families().stalled();
        while !self.cooling.is_done() {
            self.cooling.step(batch, &PARAMS, false, &mut jobs, &mut Names::default());
            for mut job in jobs.drain(..) {
                job.prepare(&self.beside, &PARAMS, Some(&mut self.workspace));
                job.run_at_once(&mut self.workspace, &mut room);
                due.extend(batch.install(&mut job).family);
            }
        }
        for family in due {
            if let Some(training) = self.store.training_due(&family, &PARAMS) {
                training.run(&mut self.store.session(), NOW);
            }
        }
    }
}

fn get(batch: &Batch<'_>, name: &[u8]) -> Vec<u8> {
    let key = batch.key(name);
    let mut slot = batch.lock(0, &key);
    let found = slot.find(&key).expect("the key is there");
    slot.string(found).expect("a string").to_bytes().expect("whole").into_owned()
}

#[test]
#[cfg_attr(miri, ignore = "calls into C")]
fn mixed_and_mutated_values_come_back_to_the_byte() {
    let (mut worker, mut random) = (Worker::new(), Random(1));
    let store = Arc::clone(&worker.store);
    let mut session = store.session();
    let mut all = std::collections::BTreeMap::new();
    for _ in 0..3 {
        let batch = session.enter(NOW);
        for _ in 0..20_000 {
            let n = all.len();
            let (key, value) = (random.key(n), random.value());
            set(&batch, &key, &value);
            all.insert(key, value);
        }
        // Some are written anew, as another kind.
        for key in all.keys().step_by(7).cloned().collect::<Vec<_>>() {
            let value = random.value();
            set(&batch, &key, &value);
            all.insert(key, value);
        }
        (0..10).for_each(|_| worker.pass(&batch));
        let packed = all.keys().filter(|key| is_packed(&batch, key)).count();
        // The order of few decides what is learnt first, and that may be nothing.
        let learns = all.len() > 20_000;
        assert!(!learns || 4 * packed > all.len(), "{packed} of {}", all.len());
        for (key, value) in &all {
            assert_eq!(&get(&batch, key), value);
        }
    }
    assert!(!store.families().dictionaries().is_empty(), "something was learnt");
}

#[test]
#[cfg_attr(miri, ignore = "calls into C")]
fn a_new_shape_with_each_key_and_values_that_only_look_alike_cost_little() {
    let (mut worker, mut random) = (Worker::new(), Random(2));
    let store = Arc::clone(&worker.store);
    let mut session = store.session();
    let batch = session.enter(NOW);
    let letters = |mut n: u64| {
        let mut text = String::new();
        while n > 0 {
            text.push(char::from(b'a' + (n % 26) as u8));
            n /= 26;
        }
        text
    };
    let document = |n: u64| format!(r#"{{"id":{n},"state":"open","of":"somebody or other"}}"#);
    for n in 0..20_000u64 {
        // The same beginning, and nothing else in common.
        let noise: Vec<u8> = (0..60).map(|_| random.next() as u8).collect();
        let value = [br#"{"id":1,"state":""#, &noise[..]].concat();
        set(&batch, format!("{}.{}", letters(n + 1), letters(n * 7919)).as_bytes(), &value);
        if n.is_multiple_of(4) {
            set(&batch, format!("doc:{n}").as_bytes(), document(n).as_bytes());
        }
    }
    (0..10).for_each(|_| worker.pass(&batch));
    let families = store.families();
    assert!(families.len() < 200, "{} families", families.len());
    let memory: usize = families.all().iter().map(|family| family.memory_bytes).sum();
    assert!(memory < 1 << 20, "{memory} bytes of samples and families");
    let packed =
        (0..20_000).step_by(4).filter(|n| is_packed(&batch, format!("doc:{n}").as_bytes()));
    assert!(packed.count() > 4500, "the documents among them are packed all the same");
    assert_eq!(families.name_of(Type::String, b"doc:1"), b"doc:#");
}
