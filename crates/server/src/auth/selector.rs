//! A selector: commands, and the keys and channels on which they may be used. A user
//! has one, its root, and any number of others; a command may be executed that one of
//! them allows as a whole.
//!
//! | kept | costs |
//! | --- | --- |
//! | a bit for each command and subcommand | some 50 bytes |
//! | first arguments, patterns of keys and channels | their bytes |
//!
//! A check looks at one bit, and holds each key against the patterns in turn.

use super::check::{Denied, Wanted};
use super::{Access, Catalog, Categories, RuleError};
use crate::text::glob;
use snug_resp::split_args;
use std::collections::BTreeMap;

/// A set of commands.
#[derive(Clone, Debug, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn has(&self, command: u16) -> bool {
        self.0.get(usize::from(command / 64)).is_some_and(|word| word & (1 << (command % 64)) != 0)
    }

    fn set(&mut self, command: u16, on: bool) {
        let at = usize::from(command / 64);
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        let bit = 1 << (command % 64);
        if on {
            self.0[at] |= bit;
        } else {
            self.0[at] &= !bit;
        }
    }

    fn fill(&mut self, catalog: &Catalog, on: bool) {
        self.0.clear();
        self.0.resize(catalog.len().div_ceil(64), if on { u64::MAX } else { 0 });
    }
}

/// Which commands a selector allows.
#[derive(Clone, Debug, Default)]
struct Commands {
    allowed: Bits,
    /// `+@all` was its beginning: commands of later versions are allowed too.
    future: bool,
    /// Nothing was taken from `+@all` since.
    all: bool,
    /// First arguments with which a command is allowed that is not by itself.
    first_args: BTreeMap<u16, Vec<Vec<u8>>>,
}

impl Commands {
    fn set_all(&mut self, catalog: &Catalog, on: bool) {
        self.allowed.fill(catalog, on);
        (self.future, self.all) = (on, on);
        self.first_args.clear();
    }

    fn set_one(&mut self, command: u16, on: bool) {
        self.allowed.set(command, on);
        self.all &= on;
    }

    /// Allows a command or takes it away, a container with all that is in it.
    fn set(&mut self, catalog: &Catalog, command: u16, on: bool) {
        self.set_one(command, on);
        self.first_args.remove(&command);
        catalog.subcommands(command).for_each(|subcommand| self.set_one(subcommand, on));
    }

    fn set_category(&mut self, catalog: &Catalog, category: Categories, on: bool) {
        for command in catalog.top() {
            let subcommands = catalog.subcommands(command);
            for command in std::iter::once(command).chain(subcommands) {
                if catalog.entry(command).categories.has(category) {
                    self.set(catalog, command, on);
                }
            }
        }
    }

    /// How many commands of a category are allowed, and how many are not.
    fn count(&self, catalog: &Catalog, category: Categories) -> (usize, usize) {
        let of = (0..catalog.len() as u16).filter(|&c| catalog.entry(c).categories.has(category));
        of.fold((0, 0), |(on, off), command| match self.allowed.has(command) {
            true => (on + 1, off),
            false => (on, off + 1),
        })
    }

    /// Rules that lead to it: `+@all` or `-@all`, then the categories that fit best,
    /// as long as one has more in common than not, then what is left, one by one.
    ///
    /// What was asked for in one way may so be told in another, as Redis 7.0 does it.
    fn describe(&self, catalog: &Catalog) -> Vec<u8> {
        let additive = !self.future;
        let mut told = Self::default();
        told.set_all(catalog, !additive);
        let mut rules = vec![if additive { "-@all".to_owned() } else { "+@all".to_owned() }];
        let mut rest = self.clone();
        let mut left: Vec<_> = Categories::each().collect();
        loop {
            let (mut best, mut fewest, mut most) = (None, usize::MAX, 0);
            for (at, (category, _)) in left.iter().enumerate() {
                let (on, off) = rest.count(catalog, *category);
                let (wrong, right) = if additive { (off, on) } else { (on, off) };
                let better = wrong < fewest || (wrong == fewest && right > most);
                if right > wrong && better {
                    (best, fewest, most) = (Some(at), wrong, right);
                }
            }
            let Some(best) = best else { break };
            let (category, name) = left.remove(best);
            told.set_category(catalog, category, additive);
            rest.set_category(catalog, category, !additive);
            rules.push(format!("{}@{name}", if additive { '+' } else { '-' }));
        }
        let mut rules = rules.join(" ").into_bytes();
        for command in catalog.top() {
            self.tell_difference(catalog, command, &mut told, &mut rules);
            for subcommand in catalog.subcommands(command) {
                self.tell_difference(catalog, subcommand, &mut told, &mut rules);
            }
        }
        let mut all = 0..catalog.len() as u16;
        debug_assert!(
            all.all(|command| told.allowed.has(command) == self.allowed.has(command)),
            "the rules lead to the same commands"
        );
        rules
    }

    fn tell_difference(
        &self,
        catalog: &Catalog,
        command: u16,
        told: &mut Self,
        rules: &mut Vec<u8>,
    ) {
        let on = self.allowed.has(command);
        let name = catalog.entry(command).full_name.as_bytes();
        if on != told.allowed.has(command) {
            rules.extend([b" ", if on { b"+" } else { b"-" }, name].concat());
            told.set(catalog, command, on);
        }
        let first_args = self.first_args.get(&command).filter(|_| !on);
        for arg in first_args.into_iter().flatten() {
            rules.extend([b" +".as_slice(), name, b"|", arg].concat());
        }
    }
}

/// Keys that may be used, and how.
#[derive(Clone, Debug)]
struct KeyPattern {
    access: Access,
    pattern: Vec<u8>,
}

impl KeyPattern {
    /// `~*` is the rule for all keys, behind which no pattern may stand. A pattern that
    /// says the same is told in another way, or what is told of it would be refused.
    fn describe(&self, is_alone: bool) -> Vec<u8> {
        let sign: &[u8] = match self.access {
            Access { read: true, write: true } if self.pattern == b"*" && !is_alone => b"%RW~",
            Access { read: true, write: true } => b"~",
            Access { read: true, .. } => b"%R~",
            _ => b"%W~",
        };
        [sign, &self.pattern].concat()
    }
}

/// Commands with the keys and channels on which they may be used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    commands: Commands,
    all_keys: bool,
    keys: Vec<KeyPattern>,
    all_channels: bool,
    channels: Vec<Vec<u8>>,
}

impl Selector {
    /// One that allows no command and no key.
    pub(super) fn new(all_channels: bool) -> Self {
        Self { all_channels, ..Self::default() }
    }

    /// One made of rules in brackets.
    pub(super) fn in_brackets(
        catalog: &Catalog,
        rule: &[u8],
        all_channels: bool,
    ) -> Result<Self, RuleError> {
        let mut selector = Self::new(all_channels);
        let inner = &rule[1..rule.len() - 1];
        // Where quotes do not match, Redis takes it for no rules at all.
        for rule in split_args(inner).unwrap_or_default() {
            selector.set(catalog, &rule)?;
        }
        Ok(selector)
    }

    /// Whether it allows everything.
    pub(super) fn is_unrestricted(&self) -> bool {
        self.commands.all && self.all_keys && self.all_channels
    }

    pub(super) fn allows_all_channels(&self) -> bool {
        self.all_channels
    }

    pub(super) fn channels(&self) -> &[Vec<u8>] {
        &self.channels
    }

    /// Applies one rule.
    pub(super) fn set(&mut self, catalog: &Catalog, rule: &[u8]) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        if is("allkeys") || is("~*") {
            self.all_keys = true;
            self.keys.clear();
        } else if is("resetkeys") {
            self.all_keys = false;
            self.keys.clear();
        } else if is("allchannels") || is("&*") {
            self.all_channels = true;
            self.channels.clear();
        } else if is("resetchannels") {
            self.all_channels = false;
            self.channels.clear();
        } else if is("allcommands") || is("+@all") {
            self.commands.set_all(catalog, true);
        } else if is("nocommands") || is("-@all") {
            self.commands.set_all(catalog, false);
        } else {
            match rule {
                // Before it is looked at, as Redis does it.
                [b'~' | b'%', ..] if self.all_keys => return Err(RuleError::AllKeys),
                [b'~', pattern @ ..] => self.add_keys(Access::BOTH, pattern)?,
                [b'%', rest @ ..] => {
                    let (access, pattern) = split_access(rest)?;
                    self.add_keys(access, pattern)?;
                }
                [b'&', pattern @ ..] => self.add_channels(pattern)?,
                [sign @ (b'+' | b'-'), b'@', name @ ..] => {
                    let category = Categories::named(name).ok_or(RuleError::Unknown)?;
                    self.commands.set_category(catalog, category, *sign == b'+');
                }
                [b'+', name @ ..] => self.allow(catalog, name)?,
                [b'-', name @ ..] => {
                    let command = catalog.find(name).ok_or(RuleError::Unknown)?;
                    self.commands.set(catalog, command, false);
                }
                _ => return Err(RuleError::Syntax),
            }
        }
        Ok(())
    }

    fn add_keys(&mut self, access: Access, pattern: &[u8]) -> Result<(), RuleError> {
        if has_spaces(pattern) {
            return Err(RuleError::Syntax);
        }
        match self.keys.iter_mut().find(|known| known.pattern == pattern) {
            Some(known) => known.access = known.access.or(access),
            None => self.keys.push(KeyPattern { access, pattern: pattern.into() }),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::AllChannels);
        }
        if has_spaces(pattern) {
            return Err(RuleError::Syntax);
        }
        if !self.channels.iter().any(|known| known == pattern) {
            self.channels.push(pattern.into());
        }
        Ok(())
    }

    /// Allows a command, a subcommand, or a command with one first argument.
    fn allow(&mut self, catalog: &Catalog, name: &[u8]) -> Result<(), RuleError> {
        let Some(bar) = name.iter().rposition(|&byte| byte == b'|') else {
            let command = catalog.find(name).ok_or(RuleError::Unknown)?;
            self.commands.set(catalog, command, true);
            return Ok(());
        };
        let (of, arg) = (&name[..bar], &name[bar + 1..]);
        let command = catalog.find(of).ok_or(RuleError::Unknown)?;
        if catalog.entry(command).container.is_some() {
            return Err(RuleError::FirstArgOfSubcommand);
        }
        if arg.is_empty() {
            return Err(RuleError::Syntax);
        }
        if catalog.subcommands(command).next().is_some() {
            let subcommand = catalog.find(name).ok_or(RuleError::Unknown)?;
            self.commands.set(catalog, subcommand, true);
        } else {
            let args = self.commands.first_args.entry(command).or_default();
            if !args.iter().any(|known| known.eq_ignore_ascii_case(arg)) {
                args.push(arg.into());
            }
        }
        Ok(())
    }

    /// Rules that lead to its commands.
    pub(crate) fn describe_commands(&self, catalog: &Catalog) -> Vec<u8> {
        self.commands.describe(catalog)
    }

    /// Rules that lead to its keys.
    pub(crate) fn describe_keys(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let is_alone = self.keys.len() == 1;
        let keys = self.keys.iter().map(|key| key.describe(is_alone));
        keys.collect::<Vec<_>>().join(&b' ')
    }

    /// Rules that lead to its channels.
    pub(crate) fn describe_channels(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let sign = |pattern: &Vec<u8>| [b"&", pattern.as_slice()].concat();
        self.channels.iter().map(sign).collect::<Vec<_>>().join(&b' ')
    }

    /// Rules that lead to it, from a new one.
    pub(super) fn describe(&self, catalog: &Catalog) -> Vec<u8> {
        let reset: &[u8] = if self.all_channels { b"" } else { b"resetchannels" };
        let parts = [
            self.describe_keys(),
            reset.to_vec(),
            self.describe_channels(),
            self.describe_commands(catalog),
        ];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join(&b' ')
    }

    /// Whether it allows all that is wanted; if not, the first thing that it does not.
    pub(super) fn check(&self, wanted: &Wanted<'_>) -> Result<(), Denied> {
        if !wanted.is_for_everybody && !self.allows_command(wanted) {
            return Err(Denied::Command);
        }
        if !self.all_keys {
            let forbidden = wanted
                .keys()
                .iter()
                .find(|(at, access)| !self.allows_key(wanted.arg(*at), *access));
            if let Some((at, _)) = forbidden {
                return Err(Denied::Key(*at));
            }
        }
        if !self.all_channels {
            let mut channels = 1..=wanted.channels;
            let allows = |at: &usize| self.allows_channel(wanted.arg(*at), wanted.of_patterns);
            if let Some(at) = channels.find(|at| !allows(at)) {
                return Err(Denied::Channel(at));
            }
        }
        Ok(())
    }

    fn allows_command(&self, wanted: &Wanted<'_>) -> bool {
        if self.commands.all || self.commands.allowed.has(wanted.command) {
            return true;
        }
        let args = self.commands.first_args.get(&wanted.command);
        let given = wanted.args.get(if wanted.is_subcommand { 2 } else { 1 });
        args.is_some_and(|args| {
            given.is_some_and(|given| args.iter().any(|arg| arg.eq_ignore_ascii_case(given)))
        })
    }

    fn allows_key(&self, key: &[u8], wanted: Access) -> bool {
        let fits = |known: &KeyPattern| {
            known.access.covers(wanted) && glob::matches(&known.pattern, key, false)
        };
        self.keys.iter().any(fits)
    }

    /// Whether every key there is may be used so.
    pub(super) fn allows_every_key(&self, wanted: Access) -> bool {
        let fits = |known: &KeyPattern| known.access.covers(wanted) && known.pattern == b"*";
        self.all_keys || self.keys.iter().any(fits)
    }

    fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        allows_channel(&self.channels, channel, is_pattern)
    }
}

/// Whether one of these patterns allows a channel. A pattern is allowed by its like
/// alone: which channels it will match nobody can tell.
pub(super) fn allows_channel(patterns: &[Vec<u8>], channel: &[u8], is_pattern: bool) -> bool {
    patterns.iter().any(|pattern| match is_pattern {
        true => pattern == channel,
        false => glob::matches(pattern, channel, false),
    })
}

/// Splits `R~pattern`, `W~` and `RW~`.
fn split_access(rule: &[u8]) -> Result<(Access, &[u8]), RuleError> {
    let mut access = Access::default();
    for (at, byte) in rule.iter().enumerate() {
        match byte.to_ascii_uppercase() {
            b'R' if !access.read => access.read = true,
            b'W' if !access.write => access.write = true,
            b'~' if access != Access::default() => return Ok((access, &rule[at + 1..])),
            _ => return Err(RuleError::Syntax),
        }
    }
    // As Redis has it: without `~` the pattern is empty.
    if access == Access::default() { Err(RuleError::Syntax) } else { Ok((access, b"")) }
}

/// Whether there is white space or a NUL: rules are told with spaces between them.
pub(super) fn has_spaces(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, 0 | 0x0b))
}
