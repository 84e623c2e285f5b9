//! The two access bits of a cell: how lately a key was used, or how often it is read.

use crate::cell::entry::{ACCESS_MAX, Cell};
use crate::store::Session;

/// What a write sets the access bits to, unless they are more.
pub const WRITTEN: u8 = 2;

/// What a new key's access bits begin with where they count reads.
pub const NEW_READS: u8 = 1;

/// The access bits after a read of a value that has not all of them.
#[inline]
pub(super) fn after_read(session: &Session, cell: &Cell) -> u8 {
    let access = cell.access();
    match session.store().log_factor() {
        // One read does not make a packed value hot.
        None if cell.bits().is_packed() => access + 1,
        None => ACCESS_MAX,
        Some(factor) => {
            let counted = u64::from(access.saturating_sub(NEW_READS));
            access + u8::from(session.below(counted * factor + 1) == 0)
        }
    }
}

/// The access bits after a write.
#[inline]
pub(crate) fn after_write(session: &Session, access: u8) -> u8 {
    match session.store().log_factor() {
        None => access.max(WRITTEN),
        Some(_) => access.max(NEW_READS),
    }
}
