//! Which kind of values a family of keys is of: an election among the signs of the first
//! that come by.
//!
//! ```text
//!  n:1 {"id..  n:2 {"id..  n:3 <article ..          after 64 votes of lead: objects
//!  m:1 {"id..  m:2 <article ..  m:3 a:6:{ ..        after 1,024 values: none
//! ```
//!
//! Once it is settled it stays. A family of none leaves its values to the families of their
//! signs: if it took what comes first or last, it would learn of many kinds at once, pack
//! none of them well, and keep the families of their signs from learning.

use crate::sync::AtomicU64;
use std::sync::atomic::Ordering;

/// By how many votes a sign leads when it is settled that the family is of that.
const LEAD: u16 = 64;
/// When so many values have come and none leads, it is settled that it is of none.
const VALUES: u16 = 1024;

/// What has come of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voted {
    /// The family takes it.
    Taken,
    /// It does not.
    Left,
    /// It does not, and is not of what it seemed to be of before.
    Outvoted,
}

/// An election by Boyer and Moore's vote: the sign that leads, its lead, and how many
/// values have come.
#[derive(Debug, Default)]
pub(super) struct Vote(AtomicU64);

impl Vote {
    /// The sign that leads, 0 for none; its lead; values that have come.
    fn state(&self) -> (u32, u16, u16) {
        let now = self.0.load(Ordering::Relaxed);
        ((now >> 32) as u32, (now >> 16) as u16, now as u16)
    }

    /// A value of this sign, which is not 0, comes by. Those who vote at the same time may
    /// lose a vote.
    pub(super) fn of(&self, sign: u32) -> Voted {
        let (leads, lead, came) = self.state();
        let is_settled = lead >= LEAD || came >= VALUES;
        if is_settled {
            return if leads == sign { Voted::Taken } else { Voted::Left };
        }
        let (leads, lead, voted) = match () {
            () if leads == sign || came == 0 => (sign, lead + 1, Voted::Taken),
            () if lead > 1 => (leads, lead - 1, Voted::Left),
            () => (sign, 1, Voted::Outvoted),
        };
        let came = came + 1;
        let (leads, voted) = match came {
            VALUES if lead < LEAD => (0, Voted::Outvoted),
            _ => (leads, voted),
        };
        let now = u64::from(leads) << 32 | u64::from(lead) << 16 | u64::from(came);
        self.0.store(now, Ordering::Relaxed);
        voted
    }

    /// Whether the family is of this sign, or nothing has come yet.
    pub(super) fn is_of(&self, sign: u32) -> bool {
        let (leads, _, came) = self.state();
        came == 0 || leads == sign
    }

    /// Holds the election anew.
    pub(super) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_most_are_of_is_settled_for_good() {
        let vote = Vote::default();
        assert!(vote.is_of(5), "nothing is known yet");
        assert_eq!((vote.of(7), vote.of(7)), (Voted::Taken, Voted::Taken));
        assert_eq!((vote.of(5), vote.of(5)), (Voted::Left, Voted::Outvoted));
        // Two of three are of the same.
        let of = |n: u64| if n.is_multiple_of(3) { 7 } else { 5 };
        for n in 0..1000 {
            vote.of(of(n));
        }
        for _ in 0..5000 {
            assert_eq!((vote.of(7), vote.of(5)), (Voted::Left, Voted::Taken));
        }
        assert!(vote.is_of(5) && !vote.is_of(7));
        vote.forget();
        assert_eq!(vote.of(7), Voted::Taken);
    }

    #[test]
    fn a_family_of_many_kinds_is_of_none() {
        let vote = Vote::default();
        let mut taken = 0;
        for n in 0..u32::from(VALUES) {
            taken += u32::from(vote.of(1 + n % 8) == Voted::Taken);
        }
        assert!(taken < 4, "{taken} are taken while they come in turn");
        for sign in 1..9 {
            assert_eq!((vote.of(sign), vote.is_of(sign)), (Voted::Left, false));
        }
    }
}
