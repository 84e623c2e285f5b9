//! What a command is: one declaration from which dispatch, `COMMAND`, ACL
//! categories, cluster routing and transactions all take what they need.
//!
//! A group of commands lives in one file under `commands/`, which ends in (or
//! begins with) its `COMMANDS` table:
//!
//! ```ignore
//! pub(crate) const COMMANDS: &[Command] = &[
//!     Command::new("get", 2, get)
//!         .flags(READONLY | FAST)
//!         .key(1)
//!         .about(Group::String, "1.0.0", "O(1)", "Returns the string value of a key."),
//! ];
//! ```

use crate::auth::Categories;
use crate::engine::blocked::Waiter;
use crate::engine::context::Context;
use crate::engine::keys::{ChannelUse, KeyRange, KeySpec, Use, UsedBy, uses};
use crate::engine::large::Work;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use std::sync::Arc;

/// A command's code: the same for a client, `EXEC`, a script, AOF replay and a
/// replication link. It knows no socket.
pub(crate) type Handler = fn(&mut Context<'_>, Args<'_>, &mut Out) -> Answer;

/// What a handler returns: it has written its reply, or there is a reason why not.
/// As small as an error alone.
pub(crate) type Answer = Result<(), Unanswered>;

/// Why a handler has written no reply.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The command failed: this is the reply, and what was written of another is
    /// taken back.
    Error(Error),
    /// It found nothing, and its client waits ([`Context::wait`]).
    Wait(Arc<Waiter>),
    /// It is to be executed again when this work on a large value is done
    /// ([`Context::finish`]).
    Later(Work),
}

const _: () = assert!(size_of::<Answer>() == size_of::<Error>());

/// So that `?` passes on all that is an error.
impl<E: Into<Error>> From<E> for Unanswered {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// Finds the keys of a command whose arguments must be read for it: indices.
pub(crate) type FindKeys = fn(Args<'_>) -> Result<Vec<usize>, Error>;

/// Flags, with Redis's meanings.
pub(crate) mod flags {
    pub(crate) const WRITE: u32 = 1 << 0;
    pub(crate) const READONLY: u32 = 1 << 1;
    pub(crate) const DENYOOM: u32 = 1 << 2;
    pub(crate) const ADMIN: u32 = 1 << 3;
    pub(crate) const PUBSUB: u32 = 1 << 4;
    pub(crate) const NOSCRIPT: u32 = 1 << 5;
    pub(crate) const BLOCKING: u32 = 1 << 6;
    pub(crate) const LOADING: u32 = 1 << 7;
    pub(crate) const STALE: u32 = 1 << 8;
    pub(crate) const SKIP_MONITOR: u32 = 1 << 9;
    pub(crate) const SKIP_SLOWLOG: u32 = 1 << 10;
    pub(crate) const FAST: u32 = 1 << 11;
    pub(crate) const NO_AUTH: u32 = 1 << 12;
    pub(crate) const MAY_REPLICATE: u32 = 1 << 13;
    pub(crate) const ALLOW_BUSY: u32 = 1 << 14;
    pub(crate) const NO_ASYNC_LOADING: u32 = 1 << 15;
    pub(crate) const NO_MULTI: u32 = 1 << 16;
    pub(crate) const MOVABLE_KEYS: u32 = 1 << 17;
    /// It is executed as if `ASKING` had come before it.
    pub(crate) const ASKS: u32 = 1 << 18;
    pub(crate) const NO_MANDATORY_KEYS: u32 = 1 << 19;
    /// Not one of Redis's: within `EXEC` the command needs the whole store, for
    /// its keys are not known beforehand or it concerns a whole database.
    pub(crate) const WIDE: u32 = 1 << 31;
}

/// Redis's groups; each is also an ACL category (by Redis's rules).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Group {
    Generic,
    String,
    Bitmap,
    List,
    Set,
    SortedSet,
    Hash,
    Hyperloglog,
    Geo,
    Stream,
    Pubsub,
    Transactions,
    Connection,
    Server,
    Cluster,
    Scripting,
}

impl Group {
    /// The categories of its commands, beside those of their flags.
    const fn categories(self) -> Categories {
        match self {
            Self::Generic => Categories::KEYSPACE,
            Self::String => Categories::STRING,
            Self::Bitmap => Categories::BITMAP,
            Self::List => Categories::LIST,
            Self::Set => Categories::SET,
            Self::SortedSet => Categories::SORTEDSET,
            Self::Hash => Categories::HASH,
            Self::Hyperloglog => Categories::HYPERLOGLOG,
            Self::Geo => Categories::GEO,
            Self::Stream => Categories::STREAM,
            Self::Transactions => Categories::TRANSACTION,
            Self::Connection => Categories::CONNECTION,
            Self::Scripting => Categories::SCRIPTING,
            Self::Pubsub | Self::Server | Self::Cluster => Categories::NONE,
        }
    }
}

/// A command, or a container of subcommands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    /// Its place among all commands, given when the table is built.
    pub index: u16,
    /// In lower case; a subcommand's has its own name only.
    pub name: &'static str,
    /// The name by which it is called: its own, unless `rename-command` gave it
    /// another, or none.
    pub called: &'static [u8],
    /// Of a subcommand: the container's name.
    pub container: Option<&'static str>,
    /// Arguments with the name; negative for "at least".
    pub arity: i32,
    pub flags: u32,
    pub keys: KeyRange,
    pub find_keys: Option<FindKeys>,
    /// How it uses its keys, if it uses all alike and not as its flags say.
    pub used: Option<Use>,
    /// How it uses them, if in several ways.
    pub specs: &'static [KeySpec],
    /// Tells how its arguments use a key, if they do.
    pub used_by: Option<UsedBy>,
    pub channels: Option<ChannelUse>,
    /// ACL categories that neither group nor flags tell of; instead of its group's.
    pub own_categories: Option<Categories>,
    pub group: Group,
    pub since: &'static str,
    pub complexity: &'static str,
    pub summary: &'static str,
    pub handler: Handler,
    pub subcommands: &'static [Command],
}

impl Command {
    pub(crate) const fn new(name: &'static str, arity: i32, handler: Handler) -> Self {
        Self {
            index: 0,
            name,
            called: name.as_bytes(),
            container: None,
            arity,
            flags: 0,
            keys: KeyRange { first: 0, last: 0, step: 0 },
            find_keys: None,
            used: None,
            specs: &[],
            used_by: None,
            channels: None,
            own_categories: None,
            group: Group::Generic,
            since: "",
            complexity: "",
            summary: "",
            handler,
            subcommands: &[],
        }
    }

    pub(crate) const fn flags(mut self, flags: u32) -> Self {
        self.flags = flags;
        self
    }

    /// One key, at this index.
    pub(crate) const fn key(self, at: i32) -> Self {
        self.keys(at, at, 1)
    }

    /// Keys from `first` to `last` (negative from the end), every `step`.
    pub(crate) const fn keys(mut self, first: i32, last: i32, step: i32) -> Self {
        self.keys = KeyRange { first, last, step };
        self
    }

    /// How it uses its keys, all alike.
    pub(crate) const fn used(mut self, used: Use) -> Self {
        self.used = Some(used);
        self
    }

    /// How it uses its keys, in several ways.
    pub(crate) const fn specs(mut self, specs: &'static [KeySpec]) -> Self {
        self.specs = specs;
        self
    }

    /// Its arguments tell how it uses a key.
    pub(crate) const fn used_by(mut self, tell: UsedBy) -> Self {
        self.used = Some(uses::VARIABLE);
        self.used_by = Some(tell);
        self
    }

    /// How it uses channels.
    pub(crate) const fn channels(mut self, channels: ChannelUse) -> Self {
        self.channels = Some(channels);
        self
    }

    /// The ACL categories that it has beside those of its flags, in place of its
    /// group's.
    pub(crate) const fn acl(mut self, categories: Categories) -> Self {
        self.own_categories = Some(categories);
        self
    }

    /// Keys that only the arguments tell.
    pub(crate) const fn movable(mut self, find_keys: FindKeys) -> Self {
        self.find_keys = Some(find_keys);
        self.flags |= flags::MOVABLE_KEYS;
        self
    }

    pub(crate) const fn about(
        mut self,
        group: Group,
        since: &'static str,
        complexity: &'static str,
        summary: &'static str,
    ) -> Self {
        self.group = group;
        self.since = since;
        self.complexity = complexity;
        self.summary = summary;
        self
    }

    /// A subcommand of the container of that name.
    pub(crate) const fn of(mut self, container: &'static str) -> Self {
        self.container = Some(container);
        self
    }

    pub(crate) const fn subcommands(mut self, subcommands: &'static [Command]) -> Self {
        self.subcommands = subcommands;
        self
    }

    pub(crate) const fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// The name as Redis shows it: `get`, `config|set`.
    pub(crate) fn full_name(&self) -> String {
        match self.container {
            Some(container) => format!("{container}|{}", self.name),
            None => self.name.into(),
        }
    }

    /// Whether `rename-command` has left it a name to be called by.
    pub(crate) const fn is_callable(&self) -> bool {
        !self.called.is_empty()
    }

    pub(crate) fn arity_fits(&self, arguments: usize) -> bool {
        match usize::try_from(self.arity) {
            Ok(exact) => arguments == exact,
            Err(_) => arguments >= self.arity.unsigned_abs() as usize,
        }
    }

    /// The indices of the keys among these arguments.
    pub(crate) fn key_indices(&self, args: Args<'_>) -> Result<Vec<usize>, Error> {
        if let Some(find) = self.find_keys {
            return find(args);
        }
        Ok(self.range(args).collect())
    }

    /// Whether that holds for the indices of all its keys; where they cannot be told it does.
    pub(crate) fn all_keys(&self, args: Args<'_>, holds: impl Fn(usize) -> bool) -> bool {
        match self.find_keys {
            Some(find) => find(args).unwrap_or_default().into_iter().all(holds),
            None => self.range(args).all(holds),
        }
    }

    /// Its ACL categories.
    pub(crate) fn categories(&self) -> Categories {
        let of_group = match self.own_categories {
            Some(own) => own,
            None if !self.subcommands.is_empty() => Categories::NONE,
            None => self.group.categories(),
        };
        let admin = Categories::ADMIN.and(Categories::DANGEROUS);
        let slow = !self.has(flags::FAST);
        of_group
            .and_if(self.has(flags::WRITE), Categories::WRITE)
            .and_if(
                self.has(flags::READONLY) && !of_group.has(Categories::SCRIPTING),
                Categories::READ,
            )
            .and_if(self.has(flags::ADMIN), admin)
            .and_if(self.has(flags::PUBSUB), Categories::PUBSUB)
            .and_if(self.has(flags::BLOCKING), Categories::BLOCKING)
            .and(if slow { Categories::SLOW } else { Categories::FAST })
    }

    /// Whether it answers with pushes, which `CLIENT REPLY` does not stop.
    pub(crate) const fn only_pushes(&self) -> bool {
        self.has(flags::PUBSUB) && self.has(flags::NOSCRIPT)
    }

    /// Whether the command may name keys at all.
    pub(crate) fn names_keys(&self) -> bool {
        self.keys.first != 0 || self.find_keys.is_some()
    }
}
