//! What is drawn at random: the one source of it, but for TLS's own. The store draws from
//! a seed of here.
//!
//! Nobody outside can guess what comes: it is the operating system's randomness, stretched
//! by a cipher (ChaCha). In a simulation it comes from the test's seed, so that a run can be
//! repeated ([`simulated`]).

use rand::RngExt as _;

/// Forty random hexadecimal digits.
pub(crate) fn random_hex() -> String {
    random_digits(40)
}

/// So many random hexadecimal digits, which nobody can guess.
pub(crate) fn random_digits(count: usize) -> String {
    let digit = |_| char::from_digit(rng().random_range(0..16), 16).unwrap_or('0');
    (0..count).map(digit).collect()
}

/// What is drawn from.
#[cfg(not(test))]
pub(crate) fn rng() -> rand::rngs::ThreadRng {
    rand::rng()
}

#[cfg(test)]
pub(crate) use simulated::rng;

/// Chance as a simulation has it.
#[cfg(test)]
pub(crate) mod simulated {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng as _, TryRng};
    use std::cell::RefCell;
    use std::convert::Infallible;

    thread_local! {
        /// What this thread draws from, if a simulation runs on it.
        static SEEDED: RefCell<Option<StdRng>> = const { RefCell::new(None) };
    }

    /// Has this thread draw from a seed, until [`end`].
    pub(crate) fn begin(seed: u64) {
        SEEDED.set(Some(StdRng::seed_from_u64(seed)));
    }

    pub(crate) fn end() {
        SEEDED.set(None);
    }

    /// Draws from the simulation's seed, or from the system's randomness without one.
    pub(crate) struct Drawn;

    pub(crate) fn rng() -> Drawn {
        Drawn
    }

    fn draw<R>(with: impl FnOnce(&mut dyn Rng) -> R) -> R {
        SEEDED.with_borrow_mut(|seeded| match seeded {
            Some(seeded) => with(seeded),
            None => with(&mut rand::rng()),
        })
    }

    impl TryRng for Drawn {
        type Error = Infallible;

        fn try_next_u32(&mut self) -> Result<u32, Infallible> {
            Ok(draw(|rng| rng.next_u32()))
        }

        fn try_next_u64(&mut self) -> Result<u64, Infallible> {
            Ok(draw(|rng| rng.next_u64()))
        }

        fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
            draw(|rng| rng.fill_bytes(bytes));
            Ok(())
        }
    }
}
