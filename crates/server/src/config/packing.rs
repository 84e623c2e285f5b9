//! What strings are packed by, as parameters say.

use super::{Config, Param};
use snug_store::{MinSaving, StringParams};

impl Config {
    /// What packing must save.
    pub(crate) fn min_saving(&self) -> MinSaving {
        MinSaving(self.number(Param::PackMinSaving) as i32)
    }

    /// What strings are packed by.
    pub(crate) fn string_params(&self) -> StringParams {
        StringParams {
            min_size: self.number(Param::PackMinSize) as usize,
            min_saving: self.min_saving(),
            level: self.number(Param::PackLevel) as i32,
        }
    }
}
