//! From the sample to all keys.
//!
//! The keys of a cell (one type, shape and order of size) are taken to be like those of
//! them that were read: its sum is its number of keys times their mean. A value of which a
//! part was read grows with its length, but for what does not: the raw end of a stream.
//! Added once: dictionaries and what families know, as the trial had them, and the tables
//! in which keys are found, which are known from the number of keys alone.
//!
//! Intervals are of 95 percent. Two things are in them. The chance of the sample comes from
//! the bootstrap: 500 times the sample is drawn anew from itself, within each cell, and so
//! is the frame where that is itself a sample. Cells of which every key was read have no
//! such spread. What Snug does otherwise in service than in the trial is [`MODEL_OFF`].

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use crate::sample::{Cells, Detail, Frame};
use crate::trial::{SHORT_LIVED_MS, Weight, Weights};

const DRAWS: usize = 500;
/// How far off a prediction is from what Snug uses in service, even where all keys were
/// read: nineteen in twenty of the workloads that `make advise` measures are nearer.
/// Families learn from other samples, and values meet in other pages.
const MODEL_OFF: f64 = 0.08;
/// What was used within so many seconds would not have been packed.
const WARM_S: u64 = 10;

/// A figure and the interval that it is in with 95 percent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Range {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Range {
    fn of(value: f64, draws: &mut [f64]) -> Self {
        draws.sort_by(f64::total_cmp);
        let at = |share: f64| draws.get((share * draws.len() as f64) as usize).copied();
        let (low, high) = (at(0.025).unwrap_or(value), at(0.975).unwrap_or(value));
        Self { value, low: low.min(value), high: high.max(value) }
    }

    /// With what the trial itself may be off by.
    fn with_model(self) -> Self {
        let off = MODEL_OFF * self.value;
        let (below, above) =
            ((self.value - self.low).hypot(off), (self.high - self.value).hypot(off));
        Self { low: (self.value - below).max(0.0), high: self.value + above, ..self }
    }

    pub(crate) fn plus(self, fixed: f64) -> Self {
        Self { value: self.value + fixed, low: self.low + fixed, high: self.high + fixed }
    }
}

/// What keys of one type and shape come to, in bytes.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct OfShape {
    pub(crate) kind: String,
    pub(crate) shape: String,
    pub(crate) keys: f64,
    /// Keys whose values were read.
    pub(crate) read: usize,
    /// What the source says they take.
    pub(crate) source: f64,
    /// Values as clients see them.
    pub(crate) raw: f64,
    /// In Snug, entries with keys and values: as they are written, and when all have cooled.
    pub(crate) hot: f64,
    pub(crate) cooled: Range,
    /// Of the values' bytes, the share that is packed.
    pub(crate) packed_share: f64,
    /// What most of those that are packed are packed with.
    pub(crate) codec: String,
    /// The share of keys that expire, and of those that do so within seconds.
    pub(crate) expiring: f64,
    pub(crate) short_lived: f64,
    /// The share of bytes that was used in the last seconds, where that is known.
    pub(crate) warm: Option<f64>,
    /// Bytes of a value as a client sees it, in the mean.
    pub(crate) mean_raw: f64,
}

/// What all keys come to, in bytes.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Estimate {
    /// All of Snug's data when it has cooled: entries, tables, dictionaries.
    pub(crate) cooled: Range,
    pub(crate) hot: f64,
    /// As `cooled`, but what is in use now is raw.
    pub(crate) now: Option<f64>,
    pub(crate) source: f64,
    pub(crate) tables: f64,
    pub(crate) fixed: f64,
    pub(crate) startup: f64,
    /// The largest first.
    pub(crate) shapes: Vec<OfShape>,
    /// Keys whose cells nothing was read of.
    pub(crate) unread_keys: f64,
}

/// A value that was read, as large as it is as a whole.
#[derive(Debug, Clone, Copy, Default)]
struct Unit {
    cooled: f64,
    hot: f64,
    raw: f64,
    packed_from: f64,
    expires: f64,
    short_lived: f64,
    warm: Option<f64>,
}

impl Unit {
    fn of(weight: &Weight, detail: &Detail) -> Self {
        let share = detail.read.max(1) as f64 / detail.length.max(detail.read).max(1) as f64;
        let whole = |bytes: f64| bytes / share;
        let (cooled, hot, raw) = (weight.cooled as f64, weight.hot as f64, weight.raw as f64);
        let is_short_lived = detail.ttl.is_some_and(|ttl| ttl < SHORT_LIVED_MS);
        // Of a stream, the last block is open and raw, however long the stream is.
        let end = match share < 1.0 && weight.packed_from > 0 {
            true => (raw - weight.packed_from as f64).max(0.0).min(cooled),
            false => 0.0,
        };
        let cooled = if is_short_lived { whole(hot) } else { end + whole(cooled - end) };
        Self {
            cooled,
            hot: whole(hot),
            raw: whole(raw),
            packed_from: if is_short_lived { 0.0 } else { whole(weight.packed_from as f64) },
            expires: f64::from(u8::from(detail.ttl.is_some())),
            short_lived: f64::from(u8::from(is_short_lived)),
            warm: detail.idle.map(|idle| f64::from(u8::from(idle < WARM_S))),
        }
    }
}

/// Bytes of the tables in which so many keys of a database are found: 64 bytes a slot, of
/// which 64 are one while they have few keys; and a cell of 8 bytes for each key, with the
/// room that an allocation has over.
pub(crate) fn tables(keys: u64) -> f64 {
    const SLOTS: f64 = 16_384.0;
    const PAGE: f64 = 64.0;
    const CROWDED: f64 = 256.0;
    const SLOT: f64 = 64.0;
    const CELL: f64 = 8.0;
    const ROOM: f64 = 1.07;
    let keys = keys as f64;
    let pages = SLOTS / PAGE;
    let of_page = keys / pages;
    let slots = match of_page < CROWDED {
        true => keys.min(pages),
        false => SLOTS,
    };
    slots * SLOT + keys * CELL * ROOM
}

/// A mean over the sample of a cell.
fn mean(units: &[Unit], pick: impl Fn(&Unit) -> f64) -> f64 {
    units.iter().map(pick).sum::<f64>() / units.len().max(1) as f64
}

pub(crate) fn of(
    frame: &Frame,
    cells: &Cells,
    details: &[Detail],
    weights: &Weights,
    seed: u64,
) -> Estimate {
    let mut units: Vec<Vec<Unit>> = vec![Vec::new(); cells.count.len()];
    let mut codecs: Vec<Vec<(&str, usize)>> = vec![Vec::new(); cells.shapes.len()];
    for (detail, weight) in details.iter().zip(&weights.values) {
        // Gone from the trial: it cannot say anything.
        if weight.cooled == 0 {
            continue;
        }
        let cell = cells.cell_of[detail.at];
        units[cell].push(Unit::of(weight, detail));
        let codecs = &mut codecs[cells.shape_of[cell]];
        if weight.packed > 0 {
            match codecs.iter_mut().find(|(codec, _)| *codec == weight.codec) {
                Some((_, count)) => *count += 1,
                None => codecs.push((&weight.codec, 1)),
            }
        }
    }
    let weight = frame.weight();
    let mut shapes: Vec<OfShape> = cells
        .shapes
        .iter()
        .map(|shape| OfShape {
            kind: shape.kind.clone(),
            shape: shape.name.clone(),
            ..OfShape::default()
        })
        .collect();
    for (&cell, seen) in cells.cell_of.iter().zip(&frame.seen) {
        let shape = &mut shapes[cells.shape_of[cell]];
        shape.keys += weight;
        shape.source += weight * seen.bytes as f64;
    }
    let mut unread_keys = 0.0;
    // Sums of what is packed, of what expires, of what is warm; and over which that is known.
    let mut sums = vec![[0.0f64; 5]; shapes.len()];
    for (cell, units) in units.iter_mut().enumerate() {
        let keys = cells.count[cell] as f64 * weight;
        if units.is_empty() {
            unread_keys += keys;
            continue;
        }
        let at = cells.shape_of[cell];
        let shape = &mut shapes[at];
        shape.read += units.len();
        shape.raw += keys * mean(units, |unit| unit.raw);
        shape.hot += keys * mean(units, |unit| unit.hot);
        shape.cooled.value += keys * mean(units, |unit| unit.cooled);
        let known = mean(units, |unit| f64::from(u8::from(unit.warm.is_some())) * unit.raw);
        let warm = mean(units, |unit| unit.warm.unwrap_or(0.0) * unit.raw);
        for (sum, more) in sums[at].iter_mut().zip([
            mean(units, |unit| unit.packed_from),
            mean(units, |unit| unit.expires),
            mean(units, |unit| unit.short_lived),
            warm,
            known,
        ]) {
            *sum += keys * more;
        }
    }
    for ((shape, sums), codecs) in shapes.iter_mut().zip(sums).zip(&codecs) {
        let of = |sum: f64, whole: f64| if whole > 0.0 { (sum / whole).min(1.0) } else { 0.0 };
        shape.packed_share = of(sums[0], shape.raw);
        shape.expiring = of(sums[1], shape.keys);
        shape.short_lived = of(sums[2], shape.keys);
        shape.warm = (sums[4] > 0.0).then(|| of(sums[3], sums[4]));
        shape.mean_raw = if shape.keys > 0.0 { shape.raw / shape.keys } else { 0.0 };
        let most = codecs.iter().max_by_key(|(_, count)| *count);
        shape.codec = most.map_or_else(String::new, |(codec, _)| (*codec).to_owned());
    }
    let all = intervals(frame, cells, &units, &mut shapes, seed);
    let tables: f64 = frame.by_db.iter().map(|(_, keys)| tables(*keys)).sum();
    let fixed = weights.fixed as f64;
    shapes.sort_by(|a, b| b.cooled.value.total_cmp(&a.cooled.value));
    let hot: f64 = shapes.iter().map(|shape| shape.hot).sum();
    let warm = |shape: &OfShape| {
        Some(shape.cooled.value + shape.warm? * (shape.hot - shape.cooled.value).max(0.0))
    };
    let now: Option<f64> =
        shapes.iter().filter(|shape| shape.read > 0).map(warm).sum::<Option<f64>>();
    let is_empty = frame.keys == 0;
    let besides = if is_empty { 0.0 } else { tables + fixed };
    Estimate {
        cooled: all.plus(besides).with_model(),
        hot: hot + if is_empty { 0.0 } else { tables },
        now: now.map(|now| now + besides),
        source: shapes.iter().map(|shape| shape.source).sum(),
        tables,
        fixed: if is_empty { 0.0 } else { fixed },
        startup: weights.startup as f64,
        shapes,
        unread_keys,
    }
}

/// Gives shapes their intervals; the interval of all entries together.
fn intervals(
    frame: &Frame,
    cells: &Cells,
    units: &[Vec<Unit>],
    shapes: &mut [OfShape],
    seed: u64,
) -> Range {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5eed);
    let mut of_shape = vec![Vec::with_capacity(DRAWS); shapes.len()];
    let mut of_all = Vec::with_capacity(DRAWS);
    let weight = frame.weight();
    for _ in 0..DRAWS {
        let mut sums = vec![0.0; shapes.len()];
        for (cell, units) in units.iter().enumerate().filter(|(_, units)| !units.is_empty()) {
            let count = cells.count[cell];
            let keys = match frame.whole {
                true => count as f64,
                false => weight * resampled(&mut rng, count),
            };
            let mean = match frame.whole && units.len() >= count {
                true => mean(units, |unit| unit.cooled),
                false => {
                    let sum: f64 = (0..units.len())
                        .map(|_| units[rng.random_range(0..units.len())].cooled)
                        .sum();
                    sum / units.len() as f64
                }
            };
            sums[cells.shape_of[cell]] += keys * mean;
        }
        of_all.push(sums.iter().sum());
        of_shape.iter_mut().zip(&sums).for_each(|(draws, sum)| draws.push(*sum));
    }
    for (shape, mut draws) in shapes.iter_mut().zip(of_shape) {
        shape.cooled = Range::of(shape.cooled.value, &mut draws).with_model();
    }
    let value = shapes.iter().map(|shape| shape.cooled.value).sum();
    Range::of(value, &mut of_all)
}

/// How many of a kind a frame drawn anew would have: Poisson's distribution, by the normal
/// one where it is as good.
fn resampled(rng: &mut Xoshiro256PlusPlus, count: usize) -> f64 {
    let mean = count as f64;
    if count < 30 {
        let (limit, mut product, mut draws) = ((-mean).exp(), 1.0, 0u32);
        loop {
            product *= rng.random::<f64>();
            if product <= limit {
                return f64::from(draws);
            }
            draws += 1;
        }
    }
    // Twelve uniform draws are near enough to a normal one.
    let normal: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
    (mean + normal * mean.sqrt()).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Seen;

    fn frame(keys: usize, whole: bool) -> Frame {
        let seen: Vec<Seen> = (0..1000)
            .map(|n| Seen {
                db: 0,
                key: format!("user:{n}").into_bytes(),
                kind: "string".into(),
                bytes: 100,
            })
            .collect();
        Frame { seen, keys: keys as u64, by_db: vec![(0, keys as u64)], whole }
    }

    fn weight(bytes: u64) -> Weight {
        Weight { hot: 2 * bytes, cooled: bytes, raw: 2 * bytes, ..Weight::default() }
    }

    #[test]
    fn what_was_read_stands_for_all() {
        let frame = frame(1_000_000, false);
        let cells = Cells::of(&frame);
        let detail = |at| Detail { at, length: 10, read: 10, ..Detail::default() };
        let details: Vec<Detail> = (0..200).map(detail).collect();
        let values = (0..200).map(|n| weight(40 + 20 * (n % 2))).collect();
        let weights = Weights { values, fixed: 5000, startup: 1 };
        let estimate = of(&frame, &cells, &details, &weights, 1);
        let entries = 50.0 * 1e6;
        let expected = entries + tables(1_000_000) + 5000.0;
        assert!((estimate.cooled.value - expected).abs() < 1.0, "{estimate:?}");
        assert!(estimate.cooled.low < expected && expected < estimate.cooled.high);
        assert!(estimate.cooled.high < expected * 1.2, "{estimate:?}");
        assert_eq!(estimate.shapes[0].keys.round() as u64, 1_000_000);
    }

    #[test]
    fn of_what_was_all_read_only_the_model_is_in_doubt() {
        let frame = frame(1000, true);
        let cells = Cells::of(&frame);
        let detail = |at| Detail { at, length: 10, read: 10, ..Detail::default() };
        let details: Vec<Detail> = (0..1000).map(detail).collect();
        let values = (0..1000).map(|n| weight(40 + n)).collect();
        let weights = Weights { values, fixed: 0, startup: 0 };
        let range = of(&frame, &cells, &details, &weights, 1).shapes[0].cooled;
        let off = MODEL_OFF * range.value;
        assert!((range.high - range.value - off).abs() < 1e-3, "{range:?}");
        assert!((range.value - range.low - off).abs() < 1e-3, "{range:?}");
    }

    #[test]
    fn a_part_of_a_value_grows_with_its_length() {
        let weight = Weight {
            hot: 2000,
            cooled: 500,
            raw: 2000,
            packed_from: 1900,
            packed: 300,
            codec: "zstd".into(),
        };
        let detail = Detail { length: 1000, read: 100, ..Detail::default() };
        let unit = Unit::of(&weight, &detail);
        // The raw end of 100 bytes stays; the other 400 are a tenth.
        assert_eq!((unit.cooled, unit.hot), (4100.0, 20_000.0));
        let soon = Detail { ttl: Some(5), ..detail };
        let unit = Unit::of(&weight, &soon);
        assert_eq!(
            (unit.cooled, unit.packed_from),
            (20_000.0, 0.0),
            "what goes soon is not packed"
        );
    }

    #[test]
    fn an_empty_server_takes_nothing() {
        let frame = Frame { whole: true, ..Frame::default() };
        let cells = Cells::of(&frame);
        let estimate = of(&frame, &cells, &[], &Weights { fixed: 7, ..Weights::default() }, 1);
        assert_eq!((estimate.cooled, estimate.hot), (Range::default(), 0.0));
    }
}
