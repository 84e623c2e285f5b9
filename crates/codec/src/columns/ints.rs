//! A run of integers: constant, run lengths, differences or as they are, and
//! then byte by byte, lowest bytes together, each such plane coded on its own.
//!
//! ```text
//!  meta: [tag] then
//!    CONST:  varint zigzag value
//!    RUNS:   varint runs, the values as a run of integers, the lengths likewise
//!    PLANES: [transform | width << 2 | based << 6] `transform` heads
//!            [varint zigzag base, if based], then `width` runs of bytes
//! ```
//!
//! The transform is none, difference, or difference of differences; the one
//! whose planes have the smallest order-0 entropy is taken. What it leaves is
//! stored above the smallest (based) where that needs fewer planes, else with
//! signs folded in.
//!
//! Integers of rows begin anew with each page of [`PAGE_ROWS`] rows, so that a
//! page is read without those before it. A head holds the first value of each
//! page, the second head the first difference of each, as runs of integers; in
//! the planes something cheap is in their places. Other integers are one page.

use std::ops::Range;

use super::bytes::CODED_BYTES_MIN;
use super::{Decoder, Encoder, MALFORMED};
use crate::rans::weave::{self, PAGE_ROWS};
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

/// What a page's values are above what the transform predicts; where it predicts
/// nothing, what comes next.
fn residuals(page: &[i64], transform: u8, out: &mut Vec<i64>) {
    let differences = |w: &[i64]| w[1].wrapping_sub(w[0]);
    let before = out.len();
    out.resize(before + page.len().min(usize::from(transform)), 0);
    let from = out.len();
    match transform {
        0 => out.extend_from_slice(page),
        1 => out.extend(page.windows(2).map(differences)),
        _ => {
            out.extend(page.windows(3).map(|w| differences(&w[1..]).wrapping_sub(differences(w))));
        }
    }
    let first = out.get(from).copied().unwrap_or(0);
    out[before..from].fill(first);
}

fn bytes_of(value: u64) -> u32 {
    (64 - value.leading_zeros()).div_ceil(8)
}

impl Planes {
    /// The cheapest transform. Differences of differences are only tried where
    /// differences help.
    fn best(values: &[i64], page: usize) -> Self {
        let mut best = Self::of(values, 0, page);
        best.count_cost(page);
        for transform in 1..values.len().min(3) as u8 {
            let mut next = Self::of(values, transform, page);
            // Numbers that grow cost more, whatever their frequencies are.
            if next.bits() > best.bits() {
                break;
            }
            next.count_cost(page);
            if next.cost >= best.cost {
                break;
            }
            best = next;
        }
        best
    }

    fn of(values: &[i64], transform: u8, page: usize) -> Self {
        let mut all = Vec::with_capacity(values.len());
        values.chunks(page).for_each(|page| residuals(page, transform, &mut all));
        let residuals = all;
        let first = residuals.first().copied().unwrap_or(0);
        let (min, max) = residuals
            .iter()
            .fold((first, first), |(min, max), &value| (min.min(value), max.max(value)));
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
    fn count_cost(&mut self, page: usize) {
        let heads = self.values.len().div_ceil(page) * 2;
        self.cost = usize::from(self.transform) * heads + self.base.map_or(0, |_| 3);
        if self.values.len() < CODED_BYTES_MIN {
            self.cost += self.width as usize * self.values.len();
            return;
        }
        for plane in 0..self.width {
            let mut counts = [0u32; 256];
            for value in &self.values {
                counts[(value >> (8 * plane)) as u8 as usize] += 1;
            }
            self.cost += rans::estimate(&counts).min(self.values.len() + 2);
        }
    }
}

/// A page of integers that are always taken all at once, however many they are:
/// never as long as [`PAGE_ROWS`], by which those of rows are told.
const WHOLE: usize = usize::MAX;

/// The value that each page begins with, or the difference that it begins with.
fn heads(values: &[i64], page: usize, order: u8) -> Vec<i64> {
    let head = |page: &[i64]| match order {
        0 => page[0],
        _ => page.get(1).map_or(0, |second| second.wrapping_sub(page[0])),
    };
    values.chunks(page).map(head).collect()
}

impl Encoder<'_> {
    /// Adds `values`; the reader must know their number.
    pub(super) fn push_ints(&mut self, values: &[i64]) {
        self.push_ints_at(values, 0, WHOLE);
    }

    /// Adds values of rows: the reader must know their number, and takes the rows
    /// that are wanted.
    pub(super) fn push_ints_of_rows(&mut self, values: &[i64]) {
        self.push_ints_at(values, 0, PAGE_ROWS);
    }

    fn push_ints_at(&mut self, values: &[i64], depth: u32, page: usize) {
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
            self.push_ints_at(&kept, depth + 1, WHOLE);
            self.push_ints_at(&lengths, depth + 1, WHOLE);
            return;
        }
        self.push_planes(values, depth, page);
    }

    fn push_planes(&mut self, values: &[i64], depth: u32, page: usize) {
        let best = Planes::best(values, page);
        self.meta.push(PLANES);
        let based = u8::from(best.base.is_some());
        self.meta.push(best.transform | (best.width as u8) << 2 | based << 6);
        for order in 0..best.transform {
            let heads = heads(values, page, order);
            self.push_ints_at(&heads, depth + 1, WHOLE);
        }
        if let Some(base) = best.base {
            varint::push(&mut self.meta, zigzag(base));
        }
        let mut plane_bytes = Vec::with_capacity(best.values.len());
        for plane in 0..best.width {
            plane_bytes.clear();
            plane_bytes.extend(best.values.iter().map(|v| (v >> (8 * plane)) as u8));
            if page == PAGE_ROWS && depth == 0 {
                self.push_bytes_of_rows(&plane_bytes);
            } else {
                self.push_bytes(&plane_bytes);
            }
        }
    }
}

/// The integers of the rows that were wanted, and perhaps of some before them.
pub(super) struct Ints {
    /// The row of the first.
    pub(super) from: usize,
    pub(super) values: Vec<i64>,
}

impl Ints {
    #[inline]
    pub(super) fn at(&self, row: usize) -> i64 {
        self.values[row - self.from]
    }
}

impl Decoder<'_> {
    /// Takes the next run of integers, `count` of them.
    pub(super) fn take_ints(&mut self, count: usize) -> Result<Vec<i64>, UnpackError> {
        Ok(self.take_ints_at(count, &(0..count), WHOLE, 0)?.values)
    }

    /// Takes the next run of integers if it is one value throughout.
    pub(super) fn take_constant(&mut self) -> Result<Option<i64>, UnpackError> {
        if self.peek_byte() != Some(CONST) {
            return Ok(None);
        }
        self.take_byte()?;
        Ok(Some(unzigzag(self.take_varint()?)))
    }

    /// Takes the next integers of rows: those of `wanted`, which lies within.
    pub(super) fn take_ints_of_rows(
        &mut self,
        rows: usize,
        wanted: &Range<usize>,
    ) -> Result<Ints, UnpackError> {
        self.take_ints_at(rows, wanted, PAGE_ROWS, 0)
    }

    fn take_ints_at(
        &mut self,
        count: usize,
        wanted: &Range<usize>,
        page: usize,
        depth: u32,
    ) -> Result<Ints, UnpackError> {
        let from = wanted.start;
        if count == 0 {
            return Ok(Ints { from, values: Vec::new() });
        }
        self.spend(wanted.len().saturating_mul(8))?;
        match self.take_byte()? {
            CONST => Ok(Ints { from, values: vec![unzigzag(self.take_varint()?); wanted.len()] }),
            RUNS if depth < DEPTH_MAX => {
                let values = self.take_runs(count, wanted, depth)?;
                Ok(Ints { from, values })
            }
            PLANES if depth <= DEPTH_MAX + 1 => self.take_planes(count, wanted, page, depth),
            _ => Err(MALFORMED),
        }
    }

    fn take_runs(
        &mut self,
        count: usize,
        wanted: &Range<usize>,
        depth: u32,
    ) -> Result<Vec<i64>, UnpackError> {
        let runs = self.take_len()?;
        if runs > count {
            return Err(MALFORMED);
        }
        let kept = self.take_ints_at(runs, &(0..runs), WHOLE, depth + 1)?.values;
        let lengths = self.take_ints_at(runs, &(0..runs), WHOLE, depth + 1)?.values;
        let mut values = Vec::with_capacity(wanted.len());
        let mut row = 0usize;
        for (&value, &length) in kept.iter().zip(&lengths) {
            let length = usize::try_from(length).map_err(|_| MALFORMED)?;
            row = row.checked_add(length).filter(|&row| row <= count).ok_or(MALFORMED)?;
            let end = wanted.end.min(row).saturating_sub(wanted.start);
            values.resize(end.max(values.len()), value);
        }
        if row == count { Ok(values) } else { Err(MALFORMED) }
    }

    fn take_planes(
        &mut self,
        count: usize,
        wanted: &Range<usize>,
        page: usize,
        depth: u32,
    ) -> Result<Ints, UnpackError> {
        let how = self.take_byte()?;
        let (transform, width, based) = (usize::from(how & 3), u32::from(how >> 2 & 15), how >> 6);
        if transform > 2 || transform > count || width > 8 || based > 1 {
            return Err(MALFORMED);
        }
        let pages = count.div_ceil(page);
        let mut heads = [Vec::new(), Vec::new()];
        for heads in &mut heads[..transform] {
            *heads = self.take_ints_at(pages, &(0..pages), WHOLE, depth + 1)?.values;
        }
        let base = if based == 1 { Some(unzigzag(self.take_varint()?)) } else { None };
        let from = if page == PAGE_ROWS { weave::page_start(wanted) } else { wanted.start };
        let mut values = vec![0i64; wanted.end - from];
        let mut bytes = std::mem::take(&mut self.plane);
        for plane in 0..width {
            bytes.clear();
            let first = self.take_bytes_into(count, from..wanted.end, &mut bytes)?;
            let bytes = bytes.get(from - first..).ok_or(MALFORMED)?;
            if bytes.len() < values.len() {
                return Err(MALFORMED);
            }
            for (value, &byte) in values.iter_mut().zip(bytes) {
                *value |= i64::from(byte) << (8 * plane);
            }
        }
        self.plane = bytes;
        match base {
            Some(base) => values.iter_mut().for_each(|value| *value = base.wrapping_add(*value)),
            None => values.iter_mut().for_each(|value| *value = unzigzag(*value as u64)),
        }
        if transform > 0 {
            let [first, second] = &heads;
            for (number, values) in (from / page..).zip(values.chunks_mut(page)) {
                restore(values, first[number], second.get(number).copied());
            }
        }
        Ok(Ints { from, values })
    }
}

/// Undoes the transform of a page, of which `first` is the first value and
/// `step`, if there is one, the first difference.
fn restore(page: &mut [i64], first: i64, step: Option<i64>) {
    let Some((head, rest)) = page.split_first_mut() else { return };
    *head = first;
    let mut last = first;
    let Some(mut step) = step else {
        for value in rest {
            last = last.wrapping_add(*value);
            *value = last;
        }
        return;
    };
    for (i, value) in rest.iter_mut().enumerate() {
        step = if i == 0 { step } else { step.wrapping_add(*value) };
        last = last.wrapping_add(step);
        *value = last;
    }
}
