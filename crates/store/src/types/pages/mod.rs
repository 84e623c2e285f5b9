//! What collections are made of.
//!
//! ```text
//!  element   one field, value, member, score or item
//!  run       records one behind the other: a small collection, in its entry
//!  page      some records of a large one, with their order, in one allocation
//!  tree      the pages of a large one
//!  keyed     how a record is found by its first element
//! ```
//!
//! A record is what a collection makes of one item: a list's is its item, a hash's its
//! field and value, a set's its member, a sorted set's its score and member.

pub(crate) mod compact;
pub(crate) mod edit;
pub(crate) mod element;
pub(crate) mod keyed;
pub(crate) mod page;
pub mod paged;
pub(crate) mod pieces;
pub(crate) mod room;
pub(crate) mod run;
pub(crate) mod tree;

#[cfg(test)]
mod tests;

use crate::image::{Pen, Source};
use std::io;

/// How the records of a collection are told apart and ordered.
pub(crate) trait Order: Send + std::fmt::Debug + 'static {
    /// What stands between two pages.
    type Bound: Clone + Send + std::fmt::Debug;
    /// Whether records are found by tag, and have no order within a page.
    const TAGGED: bool = false;
    /// The most records and bytes of a page.
    const COUNT_MAX: usize;
    const BYTES_MAX: usize;

    /// Whether a codec is tried on its pages. What is random in every collection only gives
    /// up its offsets.
    const IS_CODED: bool = true;
    /// How many elements follow the first in a record, where records are made of elements
    /// and nothing else (`compact.rs`).
    const AFTER_FIRST: Option<usize> = None;

    /// The bytes of the record at the front.
    fn record_len(bytes: &[u8]) -> usize;

    /// The tag of a record, where there are tags.
    fn tag(_record: &[u8]) -> u8 {
        0
    }

    /// What records with tags are ordered by, from page to page.
    fn key(_record: &[u8]) -> u64 {
        0
    }

    /// A bound between two records that stand in this order, if there can be one. An
    /// empty one stands for what is before any.
    fn bound(left: &[u8], right: &[u8]) -> Option<Self::Bound>;

    /// Whether what has this bound in front of it is at or behind another.
    fn is_at_or_behind(own: &Self::Bound, other: &Self::Bound) -> bool;

    /// Whether tagged records look as if they came in ascending order.
    fn is_ascending(_records: &[&[u8]]) -> bool {
        false
    }

    /// Writes a bound.
    fn put_bound(_: &Self::Bound, _: &mut dyn Pen) -> io::Result<()>;

    /// Reads it.
    fn take_bound(_: &mut dyn Source) -> io::Result<Self::Bound>;

    /// Bytes allocated beside a bound.
    fn bound_allocated(_: &Self::Bound) -> usize {
        0
    }
}
