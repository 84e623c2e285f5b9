//! Which keys are looked at. First a *frame*: names, types and sizes of all keys, or of so
//! many that were drawn with equal chances. Then, of the frame, keys whose values are
//! read: cells of keys of one type, shape and order of size each give some, so that a few
//! large keys are not lost among many small ones.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use snug_store::families::shape_of;

use crate::Failure;
use crate::trial::Trial;

/// So many keys are in the frame for each whose value is read.
pub(crate) const FRAME: u64 = 5;
/// Shapes that are told of by name; the others of a type are told of together.
const SHAPES_MAX: usize = 60;
/// Of each cell at least so many are read, if there are.
const OF_CELL: usize = 40;

/// Elements that may be read of one key, however many keys there are.
const OF_KEY: u64 = 100_000;
/// More than these are read only of a key of which they take no more: they are held at once.
const BYTES_OF_KEY: u64 = 256 << 20;

/// A key of the frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) db: u32,
    pub(crate) key: Vec<u8>,
    /// The type, by the server's name of it.
    pub(crate) kind: String,
    /// What the source says it takes: bytes of memory, or of the file.
    pub(crate) bytes: u64,
}

/// Keys that stand for all.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub(crate) seen: Vec<Seen>,
    /// Keys of all databases.
    pub(crate) keys: u64,
    /// Of each database that has any.
    pub(crate) by_db: Vec<(u32, u64)>,
    /// Whether these are all.
    pub(crate) whole: bool,
}

impl Frame {
    /// How many keys each of the frame stands for.
    pub(crate) fn weight(&self) -> f64 {
        match self.seen.len() {
            0 => 0.0,
            _ if self.whole => 1.0,
            seen => self.keys as f64 / seen as f64,
        }
    }
}

/// What was learnt as a value was read and given to the trial.
#[derive(Debug, Clone, Default)]
pub(crate) struct Detail {
    /// Its place in the frame.
    pub(crate) at: usize,
    /// Milliseconds until it expires.
    pub(crate) ttl: Option<u64>,
    /// Seconds since it was used.
    pub(crate) idle: Option<u64>,
    pub(crate) encoding: String,
    /// Elements, or bytes of a string; and how many of them were read.
    pub(crate) length: u64,
    pub(crate) read: u64,
    /// Of what was read, the longest field, member or item, and all of them.
    pub(crate) longest: u64,
    pub(crate) element_bytes: u64,
}

/// How much may be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// Elements in all.
    pub(crate) elements: u64,
    /// Elements of one key, if the user has said it.
    pub(crate) of_key: Option<u64>,
    /// Keys that are no strings, of those that are read.
    pub(crate) collections: u64,
}

impl Budget {
    /// How many elements may be read of a key that has so many, in so many bytes. One key
    /// of many is kept from using up what all may. A few keys share it: how full the pages
    /// of a large collection are is known only from all of it.
    pub(crate) fn of_key(&self, length: u64, bytes: u64) -> u64 {
        let share = self.elements / self.collections.max(1);
        let bytes = u128::from(bytes.max(1));
        let fit = u128::from(length) * u128::from(BYTES_OF_KEY) / bytes;
        let fit = u64::try_from(fit).unwrap_or(u64::MAX);
        self.of_key.unwrap_or(share.min(fit).max(OF_KEY))
    }
}

/// What a source tells of itself.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Facts {
    /// `redis 7.0.15`, `RDB version 10`.
    pub(crate) name: String,
    pub(crate) is_snug: bool,
    pub(crate) is_file: bool,
    /// Bytes, if they are told: in use, and of those what is no data.
    pub(crate) used: Option<u64>,
    pub(crate) startup: Option<u64>,
    pub(crate) dataset: Option<u64>,
    pub(crate) resident: Option<u64>,
    pub(crate) maxmemory: u64,
    pub(crate) policy: String,
    pub(crate) is_cluster: bool,
    pub(crate) is_replica: bool,
    /// Commands that were called, and how often.
    pub(crate) commands: Vec<(String, u64)>,
    /// Keys that expire, of all databases.
    pub(crate) expiring: Option<u64>,
    #[serde(skip)]
    pub(crate) params: HashMap<String, String>,
    /// What the server did not let us ask, and why.
    pub(crate) denied: Vec<String>,
    /// What could not be read, and why.
    pub(crate) notes: Vec<String>,
    /// CPU seconds that the server spent on being asked.
    pub(crate) cost_s: Option<f64>,
    pub(crate) modules: Vec<String>,
    pub(crate) functions: u64,
}

/// Where keys come from.
pub(crate) trait Source {
    fn facts(&self) -> &Facts;
    /// All keys if they are no more than `most`, else so many drawn of them.
    fn frame(&mut self, most: u64, progress: &mut Progress) -> Result<Frame, Failure>;
    /// Reads values of the frame and gives them to the trial.
    fn read(
        &mut self,
        frame: &Frame,
        chosen: &[usize],
        budget: Budget,
        trial: &mut Trial,
        progress: &mut Progress,
    ) -> Result<Vec<Detail>, Failure>;
}

/// Keys of one type and shape.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) kind: String,
    pub(crate) name: String,
}

/// Keys that are of one shape and of one order of size.
#[derive(Debug)]
pub(crate) struct Cells {
    pub(crate) shapes: Vec<Shape>,
    /// The shape of each cell.
    pub(crate) shape_of: Vec<usize>,
    /// The cell of each key of the frame.
    pub(crate) cell_of: Vec<usize>,
    /// Keys of the frame in each cell.
    pub(crate) count: Vec<usize>,
}

/// Sizes are of one order within a factor of four.
fn order(bytes: u64) -> u32 {
    bytes.max(1).ilog2() / 2
}

impl Cells {
    pub(crate) fn of(frame: &Frame) -> Self {
        let shape = |seen: &Seen| (seen.kind.clone(), shape_of(&seen.key));
        let mut sums: HashMap<(String, Vec<u8>), (u64, u64)> = HashMap::new();
        for seen in &frame.seen {
            let sum = sums.entry(shape(seen)).or_default();
            *sum = (sum.0 + 1, sum.1 + seen.bytes);
        }
        // Those of many keys and those of many bytes.
        let all: (u64, u64) = sums.values().fold((0, 0), |all, sum| (all.0 + sum.0, all.1 + sum.1));
        let share = |sum: &(u64, u64)| {
            (sum.0 as f64 / all.0.max(1) as f64).max(sum.1 as f64 / all.1.max(1) as f64)
        };
        let mut ranked: Vec<_> = sums.iter().collect();
        ranked.sort_by(|a, b| share(b.1).total_cmp(&share(a.1)).then_with(|| a.0.cmp(b.0)));
        let named = ranked.iter().enumerate().filter(|(rank, (_, sum))| {
            *rank < SHAPES_MAX && (share(sum) > 1e-3 || ranked.len() <= SHAPES_MAX)
        });
        let named: HashMap<(String, Vec<u8>), String> = named
            .map(|(_, (shape, _))| ((*shape).clone(), shape.1.escape_ascii().to_string()))
            .collect();
        let mut cells = Self {
            shapes: Vec::new(),
            shape_of: Vec::new(),
            cell_of: Vec::with_capacity(frame.seen.len()),
            count: Vec::new(),
        };
        let mut known_shapes: HashMap<Shape, usize> = HashMap::new();
        let mut known: HashMap<(usize, u32), usize> = HashMap::new();
        for seen in &frame.seen {
            let name = named.get(&shape(seen)).cloned().unwrap_or_else(|| "(other)".into());
            let shape = Shape { kind: seen.kind.clone(), name };
            let shape = *known_shapes.entry(shape.clone()).or_insert_with(|| {
                cells.shapes.push(shape);
                cells.shapes.len() - 1
            });
            let cell = *known.entry((shape, order(seen.bytes))).or_insert_with(|| {
                cells.shape_of.push(shape);
                cells.count.push(0);
                cells.count.len() - 1
            });
            cells.count[cell] += 1;
            cells.cell_of.push(cell);
        }
        cells
    }

    /// Places in the frame of keys to be read, in an order at random: some of each cell,
    /// the others by the number of keys and by the bytes that the cells have.
    pub(crate) fn choose(&self, frame: &Frame, most: usize, seed: u64) -> Vec<usize> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut bytes = vec![0u64; self.count.len()];
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); self.count.len()];
        for (at, (&cell, seen)) in self.cell_of.iter().zip(&frame.seen).enumerate() {
            bytes[cell] += seen.bytes;
            members[cell].push(at);
        }
        let all_bytes = bytes.iter().sum::<u64>().max(1) as f64;
        let mut chosen = Vec::new();
        for (cell, mut keys) in members.into_iter().enumerate() {
            let by_keys = keys.len() as f64 / frame.seen.len() as f64;
            let share = 0.5 * by_keys + 0.5 * bytes[cell] as f64 / all_bytes;
            let wanted = ((share * most as f64) as usize).max(OF_CELL).min(keys.len());
            for place in 0..wanted {
                let other = rng.random_range(place..keys.len());
                keys.swap(place, other);
            }
            chosen.extend_from_slice(&keys[..wanted]);
        }
        // What is read first when there is too little time for all is as good as any.
        chosen.shuffle(&mut rng);
        chosen
    }
}

/// The bar, on a terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(crate) fn new() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden() };
        }
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:30}] {percent:>3} % {msg}")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar }
    }

    /// A part of the work begins, of so many steps.
    pub(crate) fn begin(&self, label: &'static str, steps: u64) {
        self.bar.set_length(steps.max(1));
        self.bar.set_position(0);
        self.bar.set_prefix(label);
    }

    pub(crate) fn at(&self, step: u64, message: String) {
        self.bar.set_position(step);
        self.bar.set_message(message);
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Frame {
        let mut seen = Vec::new();
        for n in 0..10_000u64 {
            let key = format!("user:{n}:mail").into_bytes();
            seen.push(Seen { db: 0, key, kind: "string".into(), bytes: 80 });
        }
        for n in 0..3u64 {
            let key = format!("big:{n}").into_bytes();
            seen.push(Seen { db: 0, key, kind: "hash".into(), bytes: 10_000_000 });
        }
        Frame { keys: seen.len() as u64, by_db: vec![(0, 10_003)], whole: true, seen }
    }

    #[test]
    fn few_keys_share_the_elements_and_one_of_many_gets_some() {
        let of_key = |of_key, collections| {
            let budget = Budget { elements: 2_000_000, of_key, collections };
            budget.of_key(10_000_000, 1_000_000_000)
        };
        assert_eq!(of_key(None, 0), 2_000_000);
        assert_eq!(of_key(None, 1), 2_000_000);
        assert_eq!(of_key(None, 4), 500_000);
        assert_eq!(of_key(None, 20_000), OF_KEY);
        assert_eq!(of_key(Some(5000), 1), 5000);
        let alone = Budget { elements: 2_000_000, of_key: None, collections: 1 };
        let of_large = alone.of_key(10_000_000, 10_000_000 << 10);
        assert_eq!(of_large, 256 << 10, "as many of 1 KiB as may be held at once");
        assert_eq!(alone.of_key(1000, u64::MAX), OF_KEY);
        assert_eq!(alone.of_key(u64::MAX, 0), 2_000_000);
    }

    #[test]
    fn few_large_keys_are_all_read() {
        let frame = frame();
        let cells = Cells::of(&frame);
        assert_eq!(cells.shapes.len(), 2);
        let chosen = cells.choose(&frame, 1000, 1);
        assert!((500..1010).contains(&chosen.len()), "{}", chosen.len());
        assert_eq!(chosen.iter().filter(|&&at| frame.seen[at].kind == "hash").count(), 3);
        assert_eq!(chosen, cells.choose(&frame, 1000, 1), "the seed decides");
        let mut unique = chosen.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), chosen.len());
    }

    #[test]
    fn thousands_of_shapes_become_one() {
        let word = |n: u64| -> String {
            (0..4).map(|at| char::from(b'a' + (n / 26u64.pow(at) % 26) as u8)).collect()
        };
        let seen: Vec<Seen> = (0..5000)
            .map(|n| Seen { db: 0, key: word(n).into(), kind: "string".into(), bytes: 60 })
            .collect();
        let frame = Frame { keys: 5000, by_db: vec![(0, 5000)], whole: true, seen };
        let cells = Cells::of(&frame);
        assert_eq!(cells.shapes, [Shape { kind: "string".into(), name: "(other)".into() }]);
        assert!(Cells::of(&Frame::default()).choose(&Frame::default(), 10, 1).is_empty());
    }
}
