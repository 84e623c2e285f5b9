//! Where a connection's requests come from.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use crate::request::Template;

/// The generator of every random choice: the same seed gives the same work on
/// every machine.
pub type Random = Xoshiro256PlusPlus;

/// A random source of its own for the `index`th of something.
pub fn random(seed: u64, index: u64) -> Random {
    // Odd multiplier: distinct indices stay distinct before the seeding hash.
    Random::seed_from_u64(seed ^ index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// One connection's requests, and what they learn from the replies.
pub trait Source: Send {
    /// Appends the next request to `out` and returns which of the step's kinds
    /// it is; `None` when there are no more.
    fn next(&mut self, out: &mut Vec<u8>) -> Option<usize>;

    /// What of the request just made comes behind `out`: bytes that are too many
    /// to be copied for each request.
    fn rest(&self) -> Option<Arc<[u8]>> {
        None
    }

    /// Whether [`Source::reply`] is to be called; it costs a copy.
    fn wants_replies(&self) -> bool {
        false
    }

    /// The whole reply to a request of that kind.
    fn reply(&mut self, _kind: usize, _reply: &[u8]) {}
}

/// Requests of one template, without end.
#[derive(Debug)]
pub struct TemplateSource {
    template: Template,
    rng: Random,
}

impl TemplateSource {
    /// `template` as `connection` of `connections` sends it.
    pub fn new(template: &Template, seed: u64, connection: usize, connections: usize) -> Self {
        Self {
            template: template.for_connection(connection, connections),
            rng: random(seed, connection as u64),
        }
    }
}

impl Source for TemplateSource {
    fn next(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        self.template.write(&mut self.rng, out);
        Some(0)
    }
}
