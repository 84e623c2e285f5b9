//! What tells one thing that lies in the store from every other.
//!
//! Whoever packs takes something out of the store, works on it with no lock held,
//! and puts the result in its place *if it is still the same*. Meanwhile clients
//! copy, move and replace values as they like. What stands under the same key with
//! the same contents may be a copy, of which other entries were deleted. So "the
//! same" is never told by contents: it is told by an [`Identity`], of which no two
//! are alike for the process's life.
//!
//! Cost: 8 bytes where it lies, and one addition to a shared counter when it is
//! made, which is once for each sealed block and never on the way of a request.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a thing in the store is known by. Its owner renews it when what it stands
/// for changes.
///
/// A clone is another: whatever derives `Clone` and holds an identity is told from
/// its copies.
#[derive(Debug)]
pub(crate) struct Identity(u64);

/// An identity as somebody saw it, who does not own what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen(u64);

impl Identity {
    /// One that never was before.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Relaxed))
    }

    /// A note of it, to compare with later.
    pub(crate) fn seen(&self) -> Seen {
        Seen(self.0)
    }

    /// Whether this is what was seen.
    pub(crate) fn is(&self, seen: Seen) -> bool {
        self.0 == seen.0
    }
}

impl Default for Identity {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_is_another() {
        let one = Identity::new();
        let seen = one.seen();
        let clone = one.clone();
        assert!(one.is(seen) && !clone.is(seen));
    }
}
