//! Events: what Redis's keyspace notifications call a change, and who hears of it.

/// A class of events, or a set of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(pub u32);

#[allow(missing_docs)] // Redis's own names for them.
impl Class {
    pub const NONE: Self = Self(0);
    pub const KEYSPACE: Self = Self(1);
    pub const KEYEVENT: Self = Self(1 << 1);
    pub const GENERIC: Self = Self(1 << 2);
    pub const STRING: Self = Self(1 << 3);
    pub const LIST: Self = Self(1 << 4);
    pub const SET: Self = Self(1 << 5);
    pub const HASH: Self = Self(1 << 6);
    pub const ZSET: Self = Self(1 << 7);
    pub const EXPIRED: Self = Self(1 << 8);
    pub const EVICTED: Self = Self(1 << 9);
    pub const STREAM: Self = Self(1 << 10);
    pub const KEY_MISS: Self = Self(1 << 11);
    pub const MODULE: Self = Self(1 << 13);
    pub const NEW: Self = Self(1 << 14);
    /// Not one of Redis's, and no event: every change, as watches hear of it
    /// ([`Observer::modified`](crate::Observer::modified)).
    pub const CHANGE: Self = Self(1 << 15);
}

impl Class {
    /// The letters of `notify-keyspace-events`, in the order Redis shows them.
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

    /// Whether the two have a class in common.
    #[inline]
    pub fn any(self, of: Self) -> bool {
        self.0 & of.0 != 0
    }

    /// The classes of both.
    #[inline]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The classes that these letters name; `None` if one is unknown.
    pub fn parse(letters: &str) -> Option<Self> {
        letters.chars().try_fold(Self::NONE, |set, letter| {
            if letter == 'A' {
                return Some(Self(set.0 | Self::ALL));
            }
            let class = Self::LETTERS.iter().find(|(l, _)| *l == letter)?.1;
            Some(set.and(class))
        })
    }

    /// The letters of these classes, as `CONFIG GET` shows them: `A` takes the
    /// place of those that it stands for, and of `n`, which it does not.
    pub fn letters(self) -> String {
        let all = self.0 & Self::ALL == Self::ALL;
        let rest = Self::LETTERS.iter().filter(|(_, class)| {
            self.any(*class) && !(all && class.0 & (Self::ALL | Self::NEW.0) != 0)
        });
        all.then_some('A').into_iter().chain(rest.map(|(letter, _)| *letter)).collect()
    }
}

/// What keyspace notifications call a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its class: whoever has not asked for that does not hear of it.
    pub class: Class,
    /// Its name, as in `__keyevent@0__:name`.
    pub name: &'static str,
}

impl Event {
    /// For a change that is no event.
    pub const NONE: Self = Self::new(Class::NONE, "");
    /// A key was added to a database.
    pub const NEW: Self = Self::new(Class::NEW, "new");
    /// A key was removed.
    pub const DEL: Self = Self::new(Class::GENERIC, "del");
    /// A key was given a time to expire at.
    pub const EXPIRE: Self = Self::new(Class::GENERIC, "expire");
    /// A key's time came and it was removed.
    pub const EXPIRED: Self = Self::new(Class::EXPIRED, "expired");
    /// A key was removed to make room.
    pub const EVICTED: Self = Self::new(Class::EVICTED, "evicted");

    /// Fields of a hash had their time come and were removed.
    pub const FIELDS_EXPIRED: Self = Self::new(Class::HASH, "hexpired");

    /// Whether nobody asked for the change: the store made it by itself, because of time
    /// or memory, even if a command met it.
    pub fn is_stores(self) -> bool {
        [Self::EXPIRED, Self::EVICTED, Self::FIELDS_EXPIRED].contains(&self)
    }

    /// An event of this class and name.
    pub const fn new(class: Class, name: &'static str) -> Self {
        Self { class, name }
    }
}

/// Who is to hear of an op, besides those who follow commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nobody, not even those: it changed nothing.
    Nobody,
    /// It is counted, its event is published and the observer hears of it. Neither
    /// `WATCH` nor waiting clients follow it: a change of a stream's groups.
    Quietly,
    /// Waiting clients, who are to look again; `WATCH` does not follow it.
    Waiting,
    /// `WATCH` and waiting clients.
    Everybody,
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
