//! A user's rules: whether it may log in, with which passwords, and what it may do
//! then. Rules are words, applied one after the other to what is there; all of them or
//! none.
//!
//! A password is kept as its SHA-256 in hexadecimal digits. It is not salted, as in
//! Redis: `ACL SAVE` and `ACL GETUSER` show it, and files must be readable by both.

use super::check::{Denied, Wanted};
use super::selector::{Selector, has_spaces};
use super::{Access, Catalog};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use subtle::ConstantTimeEq;

/// What is wrong with a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleError {
    Syntax,
    /// There is no such command or category.
    Unknown,
    /// A pattern is added to all keys.
    AllKeys,
    AllChannels,
    NoSuchPassword,
    BadHash,
    FirstArgOfSubcommand,
}

impl RuleError {
    /// In Redis's words.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Syntax => "Syntax error",
            Self::Unknown => "Unknown command or category name in ACL",
            Self::AllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Self::AllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels"
            }
            Self::NoSuchPassword => {
                "The password you are trying to remove from the user does not exist"
            }
            Self::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            Self::FirstArgOfSubcommand => "Allowing first-arg of a subcommand is not supported",
        }
    }
}

/// What rules need to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'c> {
    pub catalog: &'c Catalog,
    /// `acl-pubsub-default`: new selectors allow all channels.
    pub all_channels: bool,
}

/// How much an error tells of the rule that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// To whom has given it.
    Whole,
    /// To whoever reads the log.
    WithoutPasswords,
}

/// A user's rules, applied.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(super) enabled: bool,
    /// Any password will do.
    pub(super) no_password: bool,
    /// `sanitize-payload` or `skip-sanitize-payload`, if either was said.
    sanitizes: Option<bool>,
    /// SHA-256 sums in hexadecimal digits.
    passwords: Vec<String>,
    root: Selector,
    selectors: Vec<Selector>,
}

impl Rules {
    /// A new user's: it can do nothing, and cannot log in.
    pub(crate) fn new(all_channels: bool) -> Self {
        Self {
            enabled: false,
            no_password: false,
            sanitizes: None,
            passwords: Vec::new(),
            root: Selector::new(all_channels),
            selectors: Vec::new(),
        }
    }

    /// Those of the default user to begin with: everything, without a password.
    pub(crate) fn everything(catalog: &Catalog) -> Self {
        let mut rules = Self::new(true);
        (rules.enabled, rules.no_password) = (true, true);
        for rule in ["+@all", "~*"] {
            let set = rules.root.set(catalog, rule.as_bytes());
            debug_assert!(set.is_ok(), "these rules hold always");
        }
        rules
    }

    /// Whether every command may be executed on every key and channel.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.selectors().any(Selector::is_unrestricted)
    }

    /// The root, then the others.
    pub(crate) fn selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// The words that say whether and how it may log in.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.enabled { "on" } else { "off" }];
        if self.no_password {
            flags.push("nopass");
        }
        match self.sanitizes {
            Some(true) => flags.push("sanitize-payload"),
            Some(false) => flags.push("skip-sanitize-payload"),
            None => {}
        }
        flags
    }

    pub(crate) fn passwords(&self) -> &[String] {
        &self.passwords
    }

    /// Applies rules in their order, those of a selector that are spread over several
    /// words put together. With an error, and the rule that has it, `self` is to be
    /// thrown away.
    pub(crate) fn apply(
        &mut self,
        terms: Terms<'_>,
        rules: &[Vec<u8>],
        told: Told,
    ) -> Result<(), Vec<u8>> {
        let merged = merge(rules).map_err(|start| {
            [b"Unmatched parenthesis in acl selector starting at '", start, b"'."].concat()
        })?;
        for rule in merged {
            self.set(terms, &rule).map_err(|error| {
                let rule = rule.split(|&byte| byte == 0).next().unwrap_or_default();
                let of_password = matches!(rule.first(), Some(b'<' | b'>' | b'#' | b'!'));
                let hidden = told == Told::WithoutPasswords && of_password;
                let rule = if hidden { b"(hidden)" } else { rule };
                let why = error.text().as_bytes();
                [b"Error in ACL SETUSER modifier '", rule, b"': ", why].concat()
            })?;
        }
        Ok(())
    }

    /// Applies one rule.
    pub(super) fn set(&mut self, terms: Terms<'_>, rule: &[u8]) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            [] => {}
            _ if is("on") => self.enabled = true,
            _ if is("off") => self.enabled = false,
            _ if is("skip-sanitize-payload") => self.sanitizes = Some(false),
            _ if is("sanitize-payload") => self.sanitizes = Some(true),
            _ if is("nopass") => {
                self.no_password = true;
                self.passwords.clear();
            }
            _ if is("resetpass") => {
                self.no_password = false;
                self.passwords.clear();
            }
            [b'>', password @ ..] => self.add_password(hashed(password)),
            [b'#', hash @ ..] => self.add_password(checked_hash(hash)?),
            [b'<', password @ ..] => self.remove_password(&hashed(password))?,
            [b'!', hash @ ..] => self.remove_password(&checked_hash(hash)?)?,
            [b'(', .., b')'] => {
                self.selectors.push(Selector::in_brackets(
                    terms.catalog,
                    rule,
                    terms.all_channels,
                )?);
            }
            _ if is("clearselectors") => self.selectors.clear(),
            _ if is("reset") => {
                *self = Self::new(terms.all_channels);
                self.sanitizes = Some(true);
            }
            _ => self.root.set(terms.catalog, rule)?,
        }
        Ok(())
    }

    /// Sets the only password; none if it is empty.
    pub(super) fn require_password(&mut self, terms: Terms<'_>, password: &[u8]) {
        let rule = if password.is_empty() { b"nopass".to_vec() } else { [b">", password].concat() };
        for rule in [b"resetpass".as_slice(), &rule] {
            let set = self.set(terms, rule);
            debug_assert!(set.is_ok(), "these rules hold always");
        }
    }

    fn add_password(&mut self, hash: String) {
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
        self.no_password = false;
    }

    fn remove_password(&mut self, hash: &String) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|known| known == hash);
        self.passwords.remove(at.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }

    /// Whether a user with these rules may log in with this password. How long it
    /// takes does not tell how much of it is right.
    pub(crate) fn accepts(&self, password: &[u8]) -> bool {
        let hash = hashed(password);
        let same = |known: &String| bool::from(known.as_bytes().ct_eq(hash.as_bytes()));
        let known = self.passwords.iter().filter(|known| same(known)).count() > 0;
        self.enabled && (self.no_password || known)
    }

    /// Whether a command may be executed; if not, why, as one of the selectors has it.
    pub(crate) fn check(&self, wanted: &Wanted<'_>) -> Result<(), Denied> {
        let mut reason = Denied::Command;
        for selector in self.selectors() {
            match selector.check(wanted) {
                Ok(()) => return Ok(()),
                Err(denied) => reason = reason.max(denied),
            }
        }
        Err(reason)
    }

    /// Whether a command may be executed by a selector that allows all keys to be used
    /// so: for commands that use keys which their arguments do not tell.
    pub(crate) fn allows_with_every_key(&self, wanted: &Wanted<'_>, access: Access) -> bool {
        let allows = |selector: &Selector| {
            selector.allows_every_key(access) && selector.check(wanted).is_ok()
        };
        self.selectors().any(allows)
    }

    /// The patterns of channels that all selectors have; `None` if one allows all
    /// channels.
    pub(super) fn channels(&self) -> Option<Vec<Vec<u8>>> {
        if self.selectors().any(Selector::allows_all_channels) {
            return None;
        }
        Some(self.selectors().flat_map(Selector::channels).cloned().collect())
    }

    /// Rules that lead to these, from those of a new user.
    pub(crate) fn describe(&self, catalog: &Catalog) -> Vec<u8> {
        let mut text = self.flags().join(" ").into_bytes();
        for password in &self.passwords {
            text.extend([b" #", password.as_bytes()].concat());
        }
        text.push(b' ');
        text.extend(self.root.describe(catalog));
        for selector in &self.selectors {
            text.extend([b" (".as_slice(), &selector.describe(catalog), b")"].concat());
        }
        text
    }
}

/// Puts together what is in brackets over several words; the word with the bracket
/// that is never closed otherwise.
pub(super) fn merge(rules: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, &[u8]> {
    let mut merged: Vec<Vec<u8>> = Vec::with_capacity(rules.len());
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    for rule in rules {
        if rule.starts_with(b"(") && !rule.ends_with(b")") {
            open = Some((rule, rule.clone()));
        } else if let Some((_, inner)) = &mut open {
            inner.push(b' ');
            inner.extend_from_slice(rule);
            if rule.ends_with(b")") {
                merged.extend(open.take().map(|(_, whole)| whole));
            }
        } else {
            merged.push(rule.clone());
        }
    }
    match open {
        Some((start, _)) => Err(start),
        None => Ok(merged),
    }
}

/// A password's SHA-256 in hexadecimal digits.
fn hashed(password: &[u8]) -> String {
    let mut digits = String::with_capacity(64);
    for byte in Sha256::digest(password) {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

fn checked_hash(hash: &[u8]) -> Result<String, RuleError> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let text = std::str::from_utf8(hash).ok().filter(|_| hash.len() == 64);
    text.filter(|_| hash.iter().all(is_digit)).map(str::to_owned).ok_or(RuleError::BadHash)
}

/// Whether a user may have this name.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !has_spaces(name)
}
