//! When the fields of a hash expire, in order.
//!
//! A field is named by its key, as pages are found by it; two fields may have one, and then
//! one time. So each entry counts how many fields it stands for.
//!
//! Cost: O(log n) of fields that expire; about 40 bytes for each.

use crate::image::{Pen, Source};
use crate::memory::usable;
use std::collections::BTreeMap;
use std::io;

/// Unix milliseconds and a field's key, and of how many fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times(BTreeMap<(u64, u64), u32>);

impl Times {
    /// The first time at which a field expires; `u64::MAX` if none does.
    #[inline]
    pub(crate) fn first(&self) -> u64 {
        self.next().map_or(u64::MAX, |(at, _)| at)
    }

    /// The same, and the field's key.
    #[inline]
    pub(crate) fn next(&self) -> Option<(u64, u64)> {
        self.0.first_key_value().map(|(&entry, _)| entry)
    }

    /// How many fields expire at this time or before.
    pub(crate) fn until(&self, now: u64) -> usize {
        self.0.range(..=(now, u64::MAX)).map(|(_, &fields)| fields as usize).sum()
    }

    /// A field of this key that expired at `before` expires at `after`.
    pub(crate) fn change(&mut self, key: u64, before: Option<u64>, after: Option<u64>) {
        if before == after {
            return;
        }
        if let Some(at) = before
            && let Some(fields) = self.0.get_mut(&(at, key))
        {
            *fields -= 1;
            if *fields == 0 {
                self.0.remove(&(at, key));
            }
        }
        if let Some(at) = after {
            *self.0.entry((at, key)).or_default() += 1;
        }
    }

    /// Forgets an entry, whatever it counts.
    pub(crate) fn forget(&mut self, entry: (u64, u64)) {
        self.0.remove(&entry);
    }

    /// Writes how many there are, and of each time, key and number of fields.
    pub(crate) fn store(&self, pen: &mut dyn Pen) -> io::Result<()> {
        pen.number(self.0.len() as u64)?;
        for (&(at, key), &fields) in &self.0 {
            pen.number(at)?;
            pen.put(&key.to_le_bytes())?;
            pen.number(u64::from(fields))?;
        }
        Ok(())
    }

    /// Reads what [`store`](Self::store) wrote.
    pub(crate) fn fetch(source: &mut dyn Source) -> io::Result<Self> {
        let mut times = BTreeMap::new();
        for _ in 0..source.number()? {
            let (at, key) = (source.number()?, source.eight()?);
            times.insert((at, key), source.small()?.max(1));
        }
        Ok(Self(times))
    }

    /// Bytes allocated, about: a tree's nodes are three quarters full.
    pub(crate) fn allocated(&self) -> usize {
        match self.0.len() {
            0 => 0,
            len => usable(len * size_of::<((u64, u64), u32)>() * 4 / 3 + 64),
        }
    }
}
