//! Keyspace notifications: classes of events and the parameter
//! `notify-keyspace-events` that chooses among them.

/// A class of events, or a set of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(pub u32);

impl Class {
    pub(crate) const KEYSPACE: Self = Self(1);
    pub(crate) const KEYEVENT: Self = Self(1 << 1);
    pub(crate) const GENERIC: Self = Self(1 << 2);
    pub(crate) const STRING: Self = Self(1 << 3);
    pub(crate) const LIST: Self = Self(1 << 4);
    pub(crate) const SET: Self = Self(1 << 5);
    pub(crate) const HASH: Self = Self(1 << 6);
    pub(crate) const ZSET: Self = Self(1 << 7);
    pub(crate) const EXPIRED: Self = Self(1 << 8);
    pub(crate) const EVICTED: Self = Self(1 << 9);
    pub(crate) const STREAM: Self = Self(1 << 10);
    pub(crate) const KEY_MISS: Self = Self(1 << 11);
    pub(crate) const MODULE: Self = Self(1 << 13);
    pub(crate) const NEW: Self = Self(1 << 14);

    /// The letters of the parameter, in the order Redis shows them.
    const LETTERS: [(char, Self); 14] = [
        ('g', Self::GENERIC),
        ('$', Self::STRING),
        ('l', Self::LIST),
        ('s', Self::SET),
        ('h', Self::HASH),
        ('z', Self::ZSET),
        ('x', Self::EXPIRED),
        ('e', Self::EVICTED),
        ('t', Self::STREAM),
        ('d', Self::MODULE),
        ('n', Self::NEW),
        ('K', Self::KEYSPACE),
        ('E', Self::KEYEVENT),
        ('m', Self::KEY_MISS),
    ];

    /// What `A` stands for: all that are about keys being changed.
    const ALL: u32 = ((1 << 11) - 4) | (1 << 13);

    pub(crate) fn any(self, of: Self) -> bool {
        self.0 & of.0 != 0
    }

    /// The classes that these letters name; `None` if one is unknown.
    pub(crate) fn parse(letters: &str) -> Option<Self> {
        letters.chars().try_fold(Self(0), |set, letter| {
            if letter == 'A' {
                return Some(Self(set.0 | Self::ALL));
            }
            let class = Self::LETTERS.iter().find(|(l, _)| *l == letter)?.1;
            Some(Self(set.0 | class.0))
        })
    }

    /// The letters of these classes, as `CONFIG GET` shows them: `A` takes the
    /// place of those that it stands for, and of `n`, which it does not.
    pub(crate) fn letters(self) -> String {
        let all = self.0 & Self::ALL == Self::ALL;
        let rest = Self::LETTERS.iter().filter(|(_, class)| {
            self.any(*class) && !(all && class.0 & (Self::ALL | Self::NEW.0) != 0)
        });
        all.then_some('A').into_iter().chain(rest.map(|(letter, _)| *letter)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_round_trip_as_redis_shows_them() {
        for (given, shown) in [
            ("", ""),
            ("KEA", "AKE"),
            ("Kx", "xK"),
            ("g$lshzxetdEm", "AEm"),
            ("mEKn", "nKEm"),
            ("AKEn", "AKE"),
        ] {
            assert_eq!(Class::parse(given).unwrap().letters(), shown);
        }
        assert_eq!(Class::parse("Q"), None);
    }
}
