//! Which key comes next: uniform, Zipf or sequential over a keyspace.

use rand::{Rng, RngExt};
use rand_distr::{Distribution, Zipf};

/// How keys are drawn.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum KeyDistribution {
    /// Every key equally often.
    Uniform,
    /// Key of rank k in proportion to 1 / k^exponent; low numbers are hot.
    Zipf,
    /// 0, 1, 2, ..., each connection through its own share.
    Sequential,
}

/// Draws key numbers below a count.
pub trait KeyPicker {
    /// The next key's number.
    fn next(&mut self, rng: &mut impl Rng) -> u64;
}

/// A keyspace and the way through it.
#[derive(Debug, Clone)]
pub struct Keys {
    count: u64,
    draw: Draw,
}

#[derive(Debug, Clone)]
enum Draw {
    Uniform,
    Zipf(Zipf<f64>),
    Sequential { from: u64, count: u64, next: u64 },
}

impl Keys {
    /// `count` keys (at least one is assumed). `exponent` is Zipf's.
    pub fn new(distribution: KeyDistribution, count: u64, exponent: f64) -> Self {
        let count = count.max(1);
        let draw = match distribution {
            KeyDistribution::Uniform => Draw::Uniform,
            KeyDistribution::Zipf => match Zipf::new(count as f64, exponent) {
                Ok(zipf) => Draw::Zipf(zipf),
                // An exponent that is no Zipf (negative) weighs all alike at best.
                Err(_) => Draw::Uniform,
            },
            KeyDistribution::Sequential => Draw::Sequential { from: 0, count, next: 0 },
        };
        Self { count, draw }
    }

    /// How many keys there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// These keys as the `index`th of `of` connections walks them. Shares of the
    /// sequential walk meet and never overlap.
    pub fn share(&self, index: u64, of: u64) -> Self {
        let mut own = self.clone();
        if let Draw::Sequential { .. } = own.draw {
            let bound =
                |part: u64| (u128::from(self.count) * u128::from(part) / u128::from(of)) as u64;
            let (from, to) = (bound(index), bound(index + 1));
            // More connections than keys: the empty shares walk everything.
            let (from, count) = if to > from { (from, to - from) } else { (0, self.count) };
            own.draw = Draw::Sequential { from, count, next: 0 };
        }
        own
    }
}

impl KeyPicker for Keys {
    fn next(&mut self, rng: &mut impl Rng) -> u64 {
        match &mut self.draw {
            Draw::Uniform if self.count == 1 => 0,
            Draw::Uniform => rng.random_range(0..self.count),
            Draw::Zipf(zipf) => (zipf.sample(rng) as u64).clamp(1, self.count) - 1,
            Draw::Sequential { from, count, next } => {
                let key = *from + *next;
                *next = if *next + 1 == *count { 0 } else { *next + 1 };
                key
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn shares_of_a_sequential_walk_cover_it_once() {
        let keys = Keys::new(KeyDistribution::Sequential, 1003, 0.99);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(0);
        let mut seen = vec![0; 1003];
        for index in 0..7 {
            let mut share = keys.share(index, 7);
            let Draw::Sequential { count, .. } = share.draw else { panic!("sequential") };
            for _ in 0..count {
                seen[share.next(&mut rng) as usize] += 1;
            }
        }
        assert!(seen.iter().all(|&times| times == 1));
    }

    #[test]
    fn zipf_follows_its_law() {
        let exponent = 0.99;
        let mut keys = Keys::new(KeyDistribution::Zipf, 1000, exponent);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let draws = 400_000;
        let mut seen = vec![0_u32; 1000];
        for _ in 0..draws {
            seen[keys.next(&mut rng) as usize] += 1;
        }
        let harmonic: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-exponent)).sum();
        for rank in [1_u32, 2, 3, 10, 30] {
            let expected = f64::from(draws) * f64::from(rank).powf(-exponent) / harmonic;
            let got = f64::from(seen[rank as usize - 1]);
            assert!((got / expected - 1.0).abs() < 0.1, "rank {rank}: {got} for {expected}");
        }
    }

    #[test]
    fn uniform_stays_in_the_keyspace() {
        let mut keys = Keys::new(KeyDistribution::Uniform, 10, 0.99);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut seen = [0_u32; 10];
        for _ in 0..10_000 {
            seen[keys.next(&mut rng) as usize] += 1;
        }
        assert!(seen.iter().all(|&times| (800..1200).contains(&times)));
    }
}
