//! A run of integers: constant, run lengths, differences or as they are, and
//! then byte by byte, lowest bytes together, each such plane coded on its own.
//!
//! ```text
//!  meta: [tag] then
//!    CONST:  varint zigzag value
//!    RUNS:   varint runs, the values as a run of integers, the lengths likewise
//!    PLANES: [transform | width << 2 | based << 6] [varint zigzag first values]
//!            [varint zigzag base, if based], then `width` runs of bytes
//! ```
//!
//! The transform is none, difference, or difference of differences; the one
//! whose planes have the smallest order-0 entropy is taken. What it leaves is
//! stored above the smallest (based) where that needs fewer planes, else with
//! signs folded in.

use super::{Decoder, Encoder, MALFORMED};
use crate::varint::{unzigzag, zigzag};
use crate::{UnpackError, rans, varint};

const CONST: u8 = 0;
const RUNS: u8 = 1;
const PLANES: u8 = 2;

/// How deep run lengths may themselves be run lengths.
const DEPTH_MAX: u32 = 2;

/// The planes of one transform, and what they would cost.
struct Planes {
    transform: u8,
    base: Option<i64>,
    width: u32,
    cost: usize,
    values: Vec<u64>,
}

/// `values` less what the transform predicts; the first `transform` of them
/// are kept apart.
fn residuals(values: &[i64], transform: u8) -> Vec<i64> {
    let differences = |w: &[i64]| w[1].wrapping_sub(w[0]);
    match transform {
        0 => values.to_vec(),
        1 => values.windows(2).map(differences).collect(),
        _ => values.windows(3).map(|w| differences(&w[1..]).wrapping_sub(differences(w))).collect(),
    }
}

fn bytes_of(value: u64) -> u32 {
    (64 - value.leading_zeros()).div_ceil(8)
}

impl Planes {
    /// The cheapest transform. Differences of differences are only tried where
    /// differences help.
    fn best(values: &[i64]) -> Self {
        let mut best = Self::of(values, 0);
        best.count_cost();
        for transform in 1..values.len().min(3) as u8 {
            let mut next = Self::of(values, transform);
            // Numbers that grow cost more, whatever their frequencies are.
            if next.bits() > best.bits() {
                break;
            }
            next.count_cost();
            if next.cost >= best.cost {
                break;
            }
            best = next;
        }
        best
    }

    fn of(values: &[i64], transform: u8) -> Self {
        let residuals = residuals(values, transform);
        let min = residuals.iter().copied().min().unwrap_or(0);
        let max = residuals.iter().copied().max().unwrap_or(0);
        let span = (max as u64).wrapping_sub(min as u64);
        let folded = zigzag(min).max(zigzag(max));
        let base = (bytes_of(span) < bytes_of(folded)).then_some(min);
        let values: Vec<u64> = match base {
            Some(base) => residuals.iter().map(|v| (*v as u64).wrapping_sub(base as u64)).collect(),
            None => residuals.iter().map(|&v| zigzag(v)).collect(),
        };
        let width = bytes_of(if base.is_some() { span } else { folded });
        Self { transform, base, width, cost: 0, values }
    }

    /// The bits of all values, leading zeros aside.
    fn bits(&self) -> u32 {
        self.values.iter().map(|value| 64 - value.leading_zeros()).sum()
    }

    /// Counts what the planes cost by their order-0 entropy.
    fn count_cost(&mut self) {
        self.cost = usize::from(self.transform) * 2 + self.base.map_or(0, |_| 3);
        for plane in 0..self.width {
            let mut counts = [0u32; 256];
            for value in &self.values {
                counts[(value >> (8 * plane)) as u8 as usize] += 1;
            }
            self.cost += rans::estimate(&counts).min(self.values.len() + 2);
        }
    }
}

impl Encoder<'_> {
    /// Adds `values`; the reader must know their number.
    pub(super) fn push_ints(&mut self, values: &[i64]) {
        self.push_ints_at(values, 0);
    }

    fn push_ints_at(&mut self, values: &[i64], depth: u32) {
        let Some(&first) = values.first() else { return };
        let runs = 1 + values.windows(2).filter(|w| w[0] != w[1]).count();
        if runs == 1 {
            self.meta.push(CONST);
            varint::push(&mut self.meta, zigzag(first));
            return;
        }
        if runs <= values.len() / 4 && depth < DEPTH_MAX {
            let mut kept = Vec::with_capacity(runs);
            let mut lengths = Vec::with_capacity(runs);
            for run in values.chunk_by(|a, b| a == b) {
                kept.push(run[0]);
                lengths.push(run.len() as i64);
            }
            self.meta.push(RUNS);
            varint::push(&mut self.meta, runs as u64);
            self.push_ints_at(&kept, depth + 1);
            self.push_ints_at(&lengths, depth + 1);
            return;
        }
        let best = Planes::best(values);
        self.meta.push(PLANES);
        let based = u8::from(best.base.is_some());
        self.meta.push(best.transform | (best.width as u8) << 2 | based << 6);
        for &value in &values[..usize::from(best.transform)] {
            varint::push(&mut self.meta, zigzag(value));
        }
        if let Some(base) = best.base {
            varint::push(&mut self.meta, zigzag(base));
        }
        let mut plane_bytes = Vec::with_capacity(best.values.len());
        for plane in 0..best.width {
            plane_bytes.clear();
            plane_bytes.extend(best.values.iter().map(|v| (v >> (8 * plane)) as u8));
            self.push_bytes(&plane_bytes);
        }
    }
}

impl Decoder<'_> {
    /// Takes the next run of integers, `count` of them.
    pub(super) fn take_ints(&mut self, count: usize) -> Result<Vec<i64>, UnpackError> {
        self.take_ints_at(count, count, 0)
    }

    /// Takes the next run of integers, `count` of them; gives the first `upto`.
    pub(super) fn take_ints_upto(
        &mut self,
        count: usize,
        upto: usize,
    ) -> Result<Vec<i64>, UnpackError> {
        self.take_ints_at(count, upto.min(count), 0)
    }

    fn take_ints_at(
        &mut self,
        count: usize,
        upto: usize,
        depth: u32,
    ) -> Result<Vec<i64>, UnpackError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        self.spend(upto.saturating_mul(8))?;
        match self.take_byte()? {
            CONST => Ok(vec![unzigzag(self.take_varint()?); upto]),
            RUNS if depth < DEPTH_MAX => {
                let runs = self.take_len()?;
                if runs > count {
                    return Err(MALFORMED);
                }
                let kept = self.take_ints_at(runs, runs, depth + 1)?;
                let lengths = self.take_ints_at(runs, runs, depth + 1)?;
                let mut values = Vec::with_capacity(upto);
                let mut left = count;
                for (&value, &length) in kept.iter().zip(&lengths) {
                    let length = usize::try_from(length).map_err(|_| MALFORMED)?;
                    left = left.checked_sub(length).ok_or(MALFORMED)?;
                    let end = upto.min(values.len() + length);
                    values.resize(end, value);
                }
                if left == 0 { Ok(values) } else { Err(MALFORMED) }
            }
            PLANES => self.take_planes(count, upto),
            _ => Err(MALFORMED),
        }
    }

    fn take_planes(&mut self, count: usize, upto: usize) -> Result<Vec<i64>, UnpackError> {
        let how = self.take_byte()?;
        let (transform, width, based) = (usize::from(how & 3), u32::from(how >> 2 & 15), how >> 6);
        if transform > 2 || transform > count || width > 8 || based > 1 {
            return Err(MALFORMED);
        }
        let mut values = Vec::with_capacity(upto.max(transform));
        for _ in 0..transform {
            values.push(unzigzag(self.take_varint()?));
        }
        let base = if based == 1 { Some(unzigzag(self.take_varint()?)) } else { None };
        let wanted = upto.saturating_sub(transform);
        let mut bytes = std::mem::take(&mut self.plane);
        for plane in 0..width {
            bytes.clear();
            self.take_bytes_into(count - transform, 0..wanted, &mut bytes)?;
            let bytes = bytes.get(..wanted).ok_or(MALFORMED)?;
            if plane == 0 {
                values.extend(bytes.iter().map(|&byte| i64::from(byte)));
            } else {
                for (value, &byte) in values[transform..].iter_mut().zip(bytes) {
                    *value |= i64::from(byte) << (8 * plane);
                }
            }
        }
        self.plane = bytes;
        values.resize(transform + wanted, 0);
        restore(&mut values, transform, base);
        values.truncate(upto);
        Ok(values)
    }
}

/// Undoes folding or basing, then the transform.
fn restore(values: &mut [i64], transform: usize, base: Option<i64>) {
    let rest = &mut values[transform..];
    match base {
        Some(base) => rest.iter_mut().for_each(|value| *value = base.wrapping_add(*value)),
        None => rest.iter_mut().for_each(|value| *value = unzigzag(*value as u64)),
    }
    let Some((&last, slope)) = values[..transform].split_last() else { return };
    let mut last = last;
    // The first difference; of differences of differences the one before them.
    let mut step = slope.last().map(|&first| last.wrapping_sub(first));
    for value in &mut values[transform..] {
        let difference = step.map_or(*value, |step| step.wrapping_add(*value));
        if step.is_some() {
            step = Some(difference);
        }
        last = last.wrapping_add(difference);
        *value = last;
    }
}
