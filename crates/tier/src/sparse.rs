//! When room is given back: the rules that all engines go by.
//!
//! What is written lies in units, segments or ranges, and what is referred to in a unit
//! becomes less. Writing the rest of it again costs the disk as many bytes as are left, so
//! it is done for the units with the least left, and only once that is worth it.

/// A unit is sparse when less than this part of it is referred to, in percent, ...
const SPARSE_BELOW: u64 = 75;
/// ... or than that part, where hardly any room is left below the limit.
const SPARSE_BELOW_WHEN_FULL: u64 = 90;
/// Sparse units are due when nobody refers to more than this part of what is written, in
/// percent, ...
const DEAD_ALWAYS: u64 = 50;
/// ... or to this part, if more than that part of the limit is written, ...
const DEAD_WHEN_FULL: u64 = 20;
const FULL_FROM: u64 = 80;
/// ... or to so many units, if fewer than these are left below the limit.
const UNITS_LEFT: u64 = 2;

/// Whether sparse units are due. `live` bytes of `written` are referred to, a unit has
/// `unit` bytes, and `limit` is the most bytes of files, 0 for no limit.
pub(crate) fn is_due(live: u64, written: u64, unit: u64, limit: u64) -> bool {
    let dead = written.saturating_sub(live) * 100;
    let is_near = limit > 0 && written * 100 >= limit * FULL_FROM;
    let is_full = is_full(written, unit, limit);
    dead > written * DEAD_ALWAYS && written > unit
        || is_near && dead > written * DEAD_WHEN_FULL
        || is_full && dead > 100 * UNITS_LEFT * unit
}

/// Whether hardly any room is left below the limit, of what is written in all.
pub(crate) fn is_full(written: u64, unit: u64, limit: u64) -> bool {
    limit > 0 && written + UNITS_LEFT * unit > limit
}

/// Whether a unit is sparse of which `live` bytes of `written` are referred to.
pub(crate) fn is_sparse(live: u64, written: u64, is_full: bool) -> bool {
    live * 100 < written * if is_full { SPARSE_BELOW_WHEN_FULL } else { SPARSE_BELOW }
}
