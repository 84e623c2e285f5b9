//! How long a family whose values are not worth packing goes on trying.

/// After so many values in a row that were not worth packing, most are passed by ...
const MISSES: u32 = 32;

/// ... of which this many at most between two that are tried.
pub(super) const PASSED_BY_MAX: u32 = 4096;

/// How a family whose values are not worth packing is tried ever more seldom.
#[derive(Debug)]
pub(super) struct Patience {
    /// Values in a row that were not worth packing.
    misses: u32,
    /// Values to be passed by before one is tried, and how many the next time.
    pass_by: u32,
    pause: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self { misses: 0, pass_by: 0, pause: 1 }
    }
}

impl Patience {
    /// Whether the next value is passed by.
    pub(super) fn passes_by(&mut self) -> bool {
        let passes = self.pass_by > 0;
        self.pass_by = self.pass_by.saturating_sub(1);
        passes
    }

    /// Takes note of what came of trying one.
    pub(super) fn tried(&mut self, worth: bool) {
        if worth {
            (self.misses, self.pause) = (0, 1);
            return;
        }
        self.misses += 1;
        if self.misses >= MISSES {
            self.pass_by = self.pause;
            self.pause = (self.pause * 2).min(PASSED_BY_MAX);
        }
    }
}
