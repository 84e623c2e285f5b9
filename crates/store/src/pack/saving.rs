//! What saves enough to be kept packed: one rule for all that is packed.

use crate::memory::usable;

/// Values below this length are short.
const SHORT: usize = 64;

/// What packing must save, in percent of the raw bytes (`pack-min-saving`). Below 0 a
/// form is kept even where it is that much longer: for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinSaving(pub i32);

impl MinSaving {
    /// Whether so many packed bytes are worth it for so many raw ones.
    pub fn is_met(self, raw: usize, packed: usize) -> bool {
        let most = raw as i64 * (100 - i64::from(self.0));
        packed as i64 * 100 <= most && (packed < raw || self.keeps_all())
    }

    /// The same of a value that lies in an entry, beside so many bytes. Of a short one it
    /// is the bytes allocated that count: a third of the percentage of these must be
    /// saved, and nothing is gained where they stay the same.
    pub fn is_met_in_entry(self, beside: usize, raw: usize, packed: usize) -> bool {
        if raw >= SHORT || self.keeps_all() {
            return self.is_met(raw, packed);
        }
        let (before, after) = (usable(beside + raw) as i64, usable(beside + packed) as i64);
        let saved = (before - after) * 100;
        saved > 0 && 3 * saved >= before * i64::from(self.0)
    }

    /// Whether what is packed is kept however long it is.
    pub(crate) fn keeps_all(self) -> bool {
        self.0 < 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_counted_in_percent_of_the_raw_bytes() {
        assert!(MinSaving(30).is_met(100, 70) && !MinSaving(30).is_met(100, 71));
        assert!(MinSaving(0).is_met(100, 99) && !MinSaving(0).is_met(100, 100));
        assert!(MinSaving(-10).is_met(100, 110) && !MinSaving(-10).is_met(100, 111));
        assert!(MinSaving(30).is_met_in_entry(20, 24, 12), "48 bytes become 32");
        assert!(!MinSaving(30).is_met_in_entry(20, 20, 13), "40 bytes stay 40");
        assert!(!MinSaving(90).is_met_in_entry(20, 24, 20));
        assert!(MinSaving(-1).is_met_in_entry(20, 24, 24));
        assert!(!MinSaving(30).is_met_in_entry(20, 100, 71), "long ones go by their length");
        assert!(!MinSaving(30).is_met(0, 0) && !MinSaving(99).is_met(1, 1));
    }
}
