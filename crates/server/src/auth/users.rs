//! The users: who there is, and the rules of each.
//!
//! ```text
//!  Users                                a connection
//!    name -> User <-------- Arc ---------- Account
//!              rules: Arc<Rules>  <-- copy --  rules, and which change of them
//!              unrestricted, open,
//!              number of the last change
//! ```
//!
//! A connection keeps its user, and the rules as it last saw them. To see whether they
//! hold still costs one load; whether its user may do everything, another. Rules are
//! never changed in place: who applies some makes new ones and puts them there.
//!
//! What is checked first and registered then (a subscription) may have been forbidden
//! in between: whoever registers looks again afterwards ([`Account::is_stale`]), and
//! whoever forbids looks afterwards at who is registered. One of them sees the other.

use super::check::{Denied, Wanted};
use super::log::Log;
use super::rules::{Rules, Terms, Told, is_name, merge};
use super::selector::allows_channel;
use super::{Access, Catalog, RuleError};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
};

/// The user that every connection begins with.
pub(crate) const DEFAULT: &[u8] = b"default";

/// One user.
#[derive(Debug)]
pub(crate) struct User {
    pub name: Vec<u8>,
    rules: RwLock<Arc<Rules>>,
    /// Changes of its rules.
    changes: AtomicU64,
    /// It may do everything.
    unrestricted: AtomicBool,
    /// It may log in with any password.
    open: AtomicBool,
}

impl User {
    fn new(name: &[u8], rules: Rules) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            changes: AtomicU64::new(0),
            unrestricted: AtomicBool::new(rules.is_unrestricted()),
            open: AtomicBool::new(rules.enabled && rules.no_password),
            rules: RwLock::new(Arc::new(rules)),
        })
    }

    /// The rules in force.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read())
    }

    /// Whether it may log in with any password: who connects need not.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }

    fn put(&self, rules: Rules) {
        let mut place = self.rules.write();
        self.unrestricted.store(rules.is_unrestricted(), Relaxed);
        self.open.store(rules.enabled && rules.no_password, Relaxed);
        *place = Arc::new(rules);
        self.changes.fetch_add(1, AcqRel);
    }
}

/// A connection's user, with its rules as the connection last saw them.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    user: Arc<User>,
    rules: Arc<Rules>,
    seen: u64,
}

impl Account {
    pub(crate) fn of(user: Arc<User>) -> Self {
        let seen = user.changes.load(Acquire);
        let rules = user.rules();
        Self { user, rules, seen }
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.user.name
    }

    /// Whether it may do everything: then there is nothing to check.
    #[inline]
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.user.unrestricted.load(Relaxed)
    }

    /// Whether its rules have changed since the last check.
    pub(crate) fn is_stale(&self) -> bool {
        self.user.changes.load(Acquire) != self.seen
    }

    /// The rules in force.
    pub(crate) fn rules(&mut self) -> &Rules {
        if self.is_stale() {
            self.seen = self.user.changes.load(Acquire);
            self.rules = self.user.rules();
        }
        &self.rules
    }

    /// Whether a command may be executed.
    pub(crate) fn check(&mut self, wanted: &Wanted<'_>) -> Result<(), Denied> {
        self.rules().check(wanted)
    }

    /// Whether a command may be executed that uses keys which its arguments do not
    /// tell.
    pub(crate) fn allows_with_every_key(&mut self, wanted: &Wanted<'_>, access: Access) -> bool {
        self.is_unrestricted() || self.rules().allows_with_every_key(wanted, access)
    }
}

/// Channels that were taken from a user; its subscriptions to them are to end.
#[derive(Debug)]
pub(crate) struct Revoked {
    pub user: Vec<u8>,
    /// Those that it may still use.
    left: Vec<Vec<u8>>,
}

impl Revoked {
    /// Whether a subscription may stay.
    pub(crate) fn spares(&self, channel: &[u8], is_pattern: bool) -> bool {
        allows_channel(&self.left, channel, is_pattern)
    }

    /// What these rules take away that the old ones gave.
    fn between(user: &[u8], old: &Rules, new: &Rules) -> Option<Self> {
        let left = new.channels()?;
        let all_left = old.channels().is_some_and(|old| old.iter().all(|had| left.contains(had)));
        (!all_left).then(|| Self { user: user.into(), left })
    }
}

/// All users.
#[derive(Debug)]
pub(crate) struct Users {
    catalog: Catalog,
    by_name: RwLock<BTreeMap<Vec<u8>, Arc<User>>>,
    default: Arc<User>,
    /// What was denied.
    pub log: Log,
    /// Held by who changes users, from what they were to what they become.
    changing: Mutex<()>,
    /// `acl-pubsub-default` gives all channels to new users.
    all_channels: AtomicBool,
}

impl Users {
    /// The default user alone, who may do everything.
    pub(crate) fn new(catalog: Catalog) -> Self {
        let default = User::new(DEFAULT, Rules::everything(&catalog));
        Self {
            catalog,
            by_name: RwLock::new(BTreeMap::from([(DEFAULT.to_vec(), Arc::clone(&default))])),
            default,
            log: Log::default(),
            changing: Mutex::default(),
            all_channels: AtomicBool::new(false),
        }
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The user that connections begin with.
    pub(crate) fn default_user(&self) -> &Arc<User> {
        &self.default
    }

    /// Whether new users may use all channels.
    pub(crate) fn allow_all_channels(&self, allow: bool) {
        self.all_channels.store(allow, Relaxed);
    }

    fn terms(&self) -> Terms<'_> {
        Terms { catalog: &self.catalog, all_channels: self.all_channels.load(Relaxed) }
    }

    fn new_rules(&self) -> Rules {
        Rules::new(self.terms().all_channels)
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<Arc<User>> {
        self.by_name.read().get(name).cloned()
    }

    /// All users, in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<User>> {
        self.by_name.read().values().cloned().collect()
    }

    /// Logs in: whoever gives a user's password becomes it, in `become`. That is done
    /// before the user can be deleted.
    pub(crate) fn log_in(
        &self,
        name: &[u8],
        password: &[u8],
        become_it: impl FnOnce(&Arc<User>),
    ) -> bool {
        let by_name = self.by_name.read();
        // A name that nobody has takes as long as a wrong password.
        let user = by_name.get(name);
        let rules = user.map_or_else(|| Arc::new(self.new_rules()), |user| user.rules());
        let accepted = rules.accepts(password);
        if let (true, Some(user)) = (accepted, user) {
            become_it(user);
        }
        accepted
    }

    /// Logs in whom somebody else vouches for, without a password; false if there is no
    /// such user or it is off.
    pub(crate) fn log_in_vouched(&self, name: &[u8], become_it: impl FnOnce(&Arc<User>)) -> bool {
        let by_name = self.by_name.read();
        let user = by_name.get(name).filter(|user| user.rules().enabled);
        user.map(become_it).is_some()
    }

    /// Applies rules to a user, made new if there is none of that name: all of them or
    /// none. What is to be done about subscriptions, if anything.
    pub(crate) fn set(&self, name: &[u8], rules: &[Vec<u8>]) -> Result<Option<Revoked>, Vec<u8>> {
        if !is_name(name) {
            return Err(b"Usernames can't contain spaces or null characters".to_vec());
        }
        let _one_at_a_time = self.changing.lock();
        let user = self.get(name);
        let old = user.as_ref().map(|user| user.rules());
        let mut new = old.as_deref().map_or_else(|| self.new_rules(), Rules::clone);
        new.apply(self.terms(), rules, Told::Whole)?;
        let revoked = old.and_then(|old| Revoked::between(name, &old, &new));
        match user {
            Some(user) => user.put(new),
            None => {
                self.by_name.write().insert(name.into(), User::new(name, new));
            }
        }
        Ok(revoked)
    }

    /// Deletes a user; false if there is none. Its connections are to end; until they
    /// do they may do nothing.
    pub(crate) fn delete(&self, name: &[u8]) -> bool {
        let _one_at_a_time = self.changing.lock();
        let user = self.by_name.write().remove(name);
        if let Some(user) = &user {
            user.put(Rules::new(false));
        }
        user.is_some()
    }

    /// Sets the default user's only password; none if it is empty.
    pub(crate) fn require_password(&self, password: &[u8]) {
        let _one_at_a_time = self.changing.lock();
        let mut rules = Rules::clone(&self.default.rules());
        rules.require_password(self.terms(), password);
        self.default.put(rules);
    }

    /// Whether there is the default user alone, who may do everything with this
    /// password; without one if it is empty.
    pub(crate) fn are_as_at_first(&self, password: &[u8]) -> bool {
        let mut rules = Rules::everything(&self.catalog);
        rules.require_password(self.terms(), password);
        let same = rules.describe(&self.catalog) == self.default.rules().describe(&self.catalog);
        same && self.by_name.read().len() == 1
    }

    /// A user of the configuration file. The default user begins anew.
    pub(crate) fn configure(&self, name: &[u8], rules: &[Vec<u8>]) -> Result<(), String> {
        if !is_name(name) {
            return Err("Spaces not allowed in ACL usernames".into());
        }
        let mut new = self.new_rules();
        let applied = new.apply(self.terms(), rules, Told::WithoutPasswords);
        applied.map_err(|why| String::from_utf8_lossy(&why).into_owned())?;
        if !new.enabled {
            let user = String::from_utf8_lossy(name);
            tracing::warn!(%user, "the user is disabled: its rules have no 'on'");
        }
        match self.get(name) {
            Some(user) => user.put(new),
            None => {
                self.by_name.write().insert(name.into(), User::new(name, new));
            }
        }
        Ok(())
    }

    /// A line for each user, `user NAME RULES`, in the order of their names: the
    /// format of the ACL file, of the configuration file and of `ACL LIST`.
    pub(crate) fn lines(&self) -> Vec<Vec<u8>> {
        let line = |user: Arc<User>| {
            let rules = user.rules().describe(&self.catalog);
            [b"user ".as_slice(), &user.name, b" ", &rules].concat()
        };
        self.all().into_iter().map(line).collect()
    }

    /// Puts the users of an ACL file in place of those there are: all of them or, with
    /// what is wrong with each line, none. Who was deleted, and who lost channels.
    pub(crate) fn load(&self, file: &str, text: &[u8]) -> Result<Loaded, String> {
        let _one_at_a_time = self.changing.lock();
        let mut users: BTreeMap<Vec<u8>, Rules> = BTreeMap::new();
        let mut errors = String::new();
        for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
            self.load_line(&mut users, &format!("{file}:{}", number + 1), line, &mut errors);
        }
        if !errors.is_empty() {
            errors += "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";
            return Err(errors);
        }
        let everything = || Rules::everything(&self.catalog);
        let default = users.remove(DEFAULT).unwrap_or_else(everything);
        let revoked = Revoked::between(DEFAULT, &self.default.rules(), &default);
        self.default.put(default);
        let mut new: BTreeMap<Vec<u8>, Arc<User>> = users
            .into_iter()
            .map(|(name, rules)| (name.clone(), User::new(&name, rules)))
            .collect();
        new.insert(DEFAULT.to_vec(), Arc::clone(&self.default));
        let mut gone = std::mem::replace(&mut *self.by_name.write(), new);
        gone.remove(DEFAULT);
        gone.values().for_each(|user| user.put(Rules::new(false)));
        Ok(Loaded { gone: gone.into_keys().collect(), revoked })
    }

    fn load_line(
        &self,
        users: &mut BTreeMap<Vec<u8>, Rules>,
        place: &str,
        line: &[u8],
        errors: &mut String,
    ) {
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        let words: Vec<Vec<u8>> = line.split(|&byte| byte == b' ').map(<[u8]>::to_vec).collect();
        // Writing to a string does not fail.
        let [keyword, name, rules @ ..] = words.as_slice() else {
            let _ =
                write!(errors, "{place} should start with user keyword followed by the username. ");
            return;
        };
        if keyword != b"user" {
            let _ =
                write!(errors, "{place} should start with user keyword followed by the username. ");
            return;
        }
        let shown = String::from_utf8_lossy(name);
        if !is_name(name) {
            let _ = write!(errors, "'{place}: username '{shown}' contains invalid characters. ");
            return;
        }
        if users.contains_key(name) {
            let line = place.rsplit(':').next().unwrap_or_default();
            let _ = write!(errors, "WARNING: Duplicate user '{shown}' found on line {line}. ");
            return;
        }
        let mut new = self.new_rules();
        let Ok(rules) = merge(rules) else {
            let _ = write!(errors, "{place}: Unmatched parenthesis in selector definition.");
            return;
        };
        let mut told = false;
        for rule in rules {
            let rule = rule.trim_ascii();
            match new.set(self.terms(), rule) {
                Ok(()) => {}
                // A command's name is no secret; a password might be.
                Err(error @ RuleError::Unknown) => {
                    let rule = String::from_utf8_lossy(rule);
                    let _ = write!(
                        errors,
                        "{place}: Error in applying operation '{rule}': {}. ",
                        error.text()
                    );
                }
                Err(error) if !told => {
                    let _ = write!(errors, "{place}: {}. ", error.text());
                    told = true;
                }
                Err(_) => {}
            }
        }
        users.insert(name.clone(), new);
    }
}

/// What `ACL LOAD` has changed for those who are connected.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Users that are there no more, or are others by the same name: as in Redis 7.0,
    /// all but the default user.
    pub gone: Vec<Vec<u8>>,
    /// What the default user has lost.
    pub revoked: Option<Revoked>,
}
