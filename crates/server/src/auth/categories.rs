//! ACL categories: sets of commands that rules name by one word, `+@read`.

/// A set of categories, or one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Categories(u32);

macro_rules! categories {
    ($($id:ident $name:literal),*) => {
        /// Their places in the set.
        #[allow(clippy::upper_case_acronyms, dead_code)]
        #[derive(Clone, Copy)]
        enum Place { $($id),* }

        #[allow(dead_code)]
        impl Categories {
            $(pub(crate) const $id: Self = Self(1 << Place::$id as u32);)*

            /// Their names, in Redis's order.
            pub(crate) const NAMES: &[&str] = &[$($name),*];
        }
    };
}

categories! {
    KEYSPACE "keyspace", READ "read", WRITE "write", SET "set", SORTEDSET "sortedset",
    LIST "list", HASH "hash", STRING "string", BITMAP "bitmap", HYPERLOGLOG "hyperloglog",
    GEO "geo", STREAM "stream", PUBSUB "pubsub", ADMIN "admin", FAST "fast", SLOW "slow",
    BLOCKING "blocking", DANGEROUS "dangerous", CONNECTION "connection",
    TRANSACTION "transaction", SCRIPTING "scripting"
}

impl Categories {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These too, if so.
    pub(crate) const fn and_if(self, condition: bool, other: Self) -> Self {
        if condition { self.and(other) } else { self }
    }

    /// Whether it has one of the others.
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// One category by its name, in any case.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        let at = Self::NAMES.iter().position(|n| n.as_bytes().eq_ignore_ascii_case(name))?;
        Some(Self(1 << at))
    }

    /// The names of those in the set.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        let named = Self::NAMES.iter().enumerate();
        named.filter(move |(at, _)| self.0 & (1 << at) != 0).map(|(_, name)| *name)
    }

    /// Each category there is.
    #[allow(dead_code)]
    pub(crate) fn each() -> impl Iterator<Item = (Self, &'static str)> {
        Self::NAMES.iter().enumerate().map(|(at, name)| (Self(1 << at), *name))
    }
}
