//! How a command uses its keys and channels: what `COMMAND INFO` tells as key
//! specifications, and what an account's key patterns are held against.
//!
//! A command declares where its keys are ([`KeyRange`], or a function that finds
//! them), and how it uses them: all alike (`.used(RW_INSERT)`), or one specification
//! for each way (`.specs(..)`). A command that says nothing of it reads its keys if it
//! is `READONLY`, and updates them otherwise.
//!
//! | use | an account needs |
//! | --- | --- |
//! | `access`: what the value holds is told | read |
//! | `update`, `insert`, `delete` | write |
//! | none of these: whether it is there, its type, its length | either |

use crate::auth::Access;
use crate::engine::command::Command;
use crate::request::args::Args;
use crate::request::error::Error;
use smallvec::SmallVec;

/// How a key is used: a set of flags, with Redis's meanings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use(u16);

impl Use {
    const RO: Self = Self(1);
    const RW: Self = Self(1 << 1);
    const OW: Self = Self(1 << 2);
    const RM: Self = Self(1 << 3);
    const ACCESS: Self = Self(1 << 4);
    const UPDATE: Self = Self(1 << 5);
    const INSERT: Self = Self(1 << 6);
    const DELETE: Self = Self(1 << 7);
    const NOT_KEY: Self = Self(1 << 8);
    const VARIABLE: Self = Self(1 << 9);
    const INCOMPLETE: Self = Self(1 << 10);

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The names of the flags, as clients read them.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> + Clone {
        const NAMES: [(Use, &str); 11] = [
            (Use::RO, "RO"),
            (Use::RW, "RW"),
            (Use::OW, "OW"),
            (Use::RM, "RM"),
            (Use::ACCESS, "access"),
            (Use::UPDATE, "update"),
            (Use::INSERT, "insert"),
            (Use::DELETE, "delete"),
            (Use::NOT_KEY, "not_key"),
            (Use::VARIABLE, "variable_flags"),
            (Use::INCOMPLETE, "incomplete"),
        ];
        NAMES.into_iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| name)
    }

    /// Whether what stands there is a key at all, and not a channel that is routed
    /// like one.
    pub(crate) const fn is_of_key(self) -> bool {
        !self.has(Self::NOT_KEY)
    }

    /// Whether what the key holds is wanted, and not only another value put in its place,
    /// or the key removed.
    pub(crate) const fn wants_value(self) -> bool {
        !self.has(Self::OW.and(Self::RM))
    }

    /// What an account needs for it.
    #[allow(dead_code)]
    pub(crate) const fn access(self) -> Access {
        Access {
            read: self.has(Self::ACCESS),
            write: self.has(Self::UPDATE.and(Self::INSERT).and(Self::DELETE)),
        }
    }
}

/// The uses there are.
pub(crate) mod uses {
    use super::Use;

    /// Tells of a key, and not what its value holds.
    pub(crate) const RO: Use = Use::RO;
    pub(crate) const RO_ACCESS: Use = Use::RO.and(Use::ACCESS);
    pub(crate) const RW_ACCESS: Use = Use::RW.and(Use::ACCESS);
    pub(crate) const RW_ACCESS_UPDATE: Use = RW_ACCESS.and(Use::UPDATE);
    pub(crate) const RW_ACCESS_INSERT: Use = RW_ACCESS.and(Use::INSERT);
    pub(crate) const RW_ACCESS_DELETE: Use = RW_ACCESS.and(Use::DELETE);
    /// The same, of keys of which a specification may miss some.
    pub(crate) const RW_ACCESS_DELETE_INCOMPLETE: Use = RW_ACCESS_DELETE.and(Use::INCOMPLETE);
    pub(crate) const RW_UPDATE: Use = Use::RW.and(Use::UPDATE);
    pub(crate) const RW_INSERT: Use = Use::RW.and(Use::INSERT);
    pub(crate) const RW_DELETE: Use = Use::RW.and(Use::DELETE);
    /// Puts another value there, whatever there was.
    pub(crate) const OW_UPDATE: Use = Use::OW.and(Use::UPDATE);
    pub(crate) const OW_INSERT: Use = Use::OW.and(Use::INSERT);
    pub(crate) const RM_DELETE: Use = Use::RM.and(Use::DELETE);
    /// A shard channel.
    pub(crate) const NOT_KEY: Use = Use::NOT_KEY;
    /// Reads and writes at most; the arguments tell ([`Command::used_by`]).
    ///
    /// [`Command::used_by`]: crate::engine::command::Command::used_by
    pub(crate) const VARIABLE: Use = RW_ACCESS_UPDATE.and(Use::VARIABLE);
}

/// Where a command's keys are, as the first three numbers of `COMMAND INFO` tell it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyRange {
    /// Index of the first key; 0 for none.
    pub first: i32,
    /// Index of the last key; negative counts from the end.
    pub last: i32,
    /// From one key to the next.
    pub step: i32,
}

/// Where the search for keys begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Begin {
    Index(i32),
    /// Behind this word, looked for from that index on.
    Keyword(&'static str, i32),
    /// Only the command's own function knows.
    Unknown,
}

/// Which arguments are keys from there on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Find {
    /// `last` counts from the first, or if negative from the end. Of the arguments
    /// left, only one in `limit` is a key; 0 for all.
    Range {
        last: i32,
        step: i32,
        limit: i32,
    },
    /// How many there are is told first, and they follow.
    Counted,
    Unknown,
}

/// Keys that are used alike: a "key specification".
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeySpec {
    pub used: Use,
    pub begin: Begin,
    pub find: Find,
}

impl KeySpec {
    /// One key.
    pub(crate) const fn at(used: Use, index: i32) -> Self {
        Self::up_to(used, index, 0)
    }

    /// Keys from this index to `last`, counted from the first, or if negative from the
    /// end.
    pub(crate) const fn up_to(used: Use, index: i32, last: i32) -> Self {
        Self { used, begin: Begin::Index(index), find: Find::Range { last, step: 1, limit: 0 } }
    }

    /// Their number is at this index, and they follow.
    pub(crate) const fn counted(used: Use, index: i32) -> Self {
        Self { used, begin: Begin::Index(index), find: Find::Counted }
    }

    /// One key behind a word, which stands at this index or later.
    pub(crate) const fn behind(used: Use, word: &'static str, from: i32) -> Self {
        let find = Find::Range { last: 0, step: 1, limit: 0 };
        Self { used, begin: Begin::Keyword(word, from), find }
    }

    /// All that follows a word, which is looked for from this index on, backwards if it
    /// is negative.
    pub(crate) const fn all_behind(used: Use, word: &'static str, from: i32) -> Self {
        let find = Find::Range { last: -1, step: 1, limit: 0 };
        Self { used, begin: Begin::Keyword(word, from), find }
    }

    /// The first half of what follows a word, which stands at this index or later.
    pub(crate) const fn half_behind(used: Use, word: &'static str, from: i32) -> Self {
        let find = Find::Range { last: -1, step: 1, limit: 2 };
        Self { used, begin: Begin::Keyword(word, from), find }
    }

    /// Keys that only the command's own function finds.
    pub(crate) const fn unknown(used: Use) -> Self {
        Self { used, begin: Begin::Unknown, find: Find::Unknown }
    }

    /// Whether it is of the key at this index, one of so many arguments.
    fn covers(&self, index: i32, arguments: i32) -> bool {
        match (self.begin, self.find) {
            (Begin::Index(first), Find::Range { last, .. }) => {
                let last = if last < 0 { arguments + last } else { first + last };
                (first..=last).contains(&index)
            }
            (Begin::Index(first), _) => index > first,
            (Begin::Keyword(..) | Begin::Unknown, _) => true,
        }
    }
}

/// A key among the arguments, and how it is used.
pub(crate) type UsedKey = (usize, Use);

/// Tells how these very arguments use the key at an index.
pub(crate) type UsedBy = fn(Args<'_>, usize) -> Use;

impl Command {
    /// The command's key specifications.
    pub(crate) fn key_specs(&self) -> SmallVec<[KeySpec; 2]> {
        let KeyRange { first, last, step } = self.keys;
        if !self.specs.is_empty() {
            return SmallVec::from_slice(self.specs);
        }
        if first == 0 {
            return SmallVec::new();
        }
        let last = if last < 0 { last } else { last - first };
        let find = Find::Range { last, step, limit: 0 };
        SmallVec::from_elem(KeySpec { used: self.usual_use(), begin: Begin::Index(first), find }, 1)
    }

    /// How it uses its keys, if it uses all of them alike.
    fn usual_use(&self) -> Use {
        let reads = self.has(super::command::flags::READONLY);
        self.used.unwrap_or(if reads { uses::RO_ACCESS } else { uses::RW_UPDATE })
    }

    /// How these arguments use the key at this index.
    pub(crate) fn use_of(&self, args: Args<'_>, index: usize) -> Use {
        if let Some(tell) = self.used_by {
            return tell(args, index);
        }
        if self.specs.is_empty() {
            return self.usual_use();
        }
        let covers = |spec: &&KeySpec| spec.covers(index as i32, args.len() as i32);
        // What is found by a word or by the command itself is found last.
        let found = |of_index: bool| {
            let all = self.specs.iter().rev();
            all.filter(|spec| matches!(spec.begin, Begin::Index(_)) == of_index).find(covers)
        };
        found(true).or_else(|| found(false)).map_or(self.usual_use(), |spec| spec.used)
    }

    /// The keys among these arguments, and how each is used. Channels are none.
    pub(crate) fn used_keys(&self, args: Args<'_>) -> Result<SmallVec<[UsedKey; 4]>, Error> {
        let used = |index: usize| (index, self.use_of(args, index));
        let is_key = |(_, used): &UsedKey| used.is_of_key();
        Ok(match self.find_keys {
            Some(find) => find(args)?.into_iter().map(used).filter(is_key).collect(),
            None => self.range(args).map(used).filter(is_key).collect(),
        })
    }

    /// The indices that its range of keys has among these arguments.
    pub(super) fn range(&self, args: Args<'_>) -> impl Iterator<Item = usize> + use<> {
        let KeyRange { first, last, step } = self.keys;
        let len = args.len() as i32;
        let last = if last < 0 { len + last } else { last };
        // One that begins at the command's name is none.
        let last = if first == 0 { -1 } else { last.min(len - 1) };
        (first..=last).step_by(step.max(1) as usize).map(|index| index as usize)
    }
}

/// How a command uses channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChannelUse {
    /// Its first argument is a channel that is published to.
    Publish,
    /// All its arguments are channels that are subscribed to.
    Subscribe,
    /// All its arguments are patterns of channels that are subscribed to.
    SubscribePatterns,
}

impl ChannelUse {
    #[allow(dead_code)]
    /// How many of so many arguments are channels; they begin behind the name.
    pub(crate) fn count(self, arguments: usize) -> usize {
        let behind_name = arguments.saturating_sub(1);
        if self == Self::Publish { behind_name.min(1) } else { behind_name }
    }
}
