//! Accounts: who there is, who may do what, and what was denied.
//!
//! | file | idea |
//! | --- | --- |
//! | `catalog.rs`, `categories.rs` | commands, as rules name them |
//! | `selector.rs` | commands, with the keys and channels on which they may be used |
//! | `rules.rs` | a user's rules: passwords and selectors; how words become rules, and back |
//! | `check.rs` | what a command wants, and what may be wrong with it |
//! | `users.rs` | all users; a connection's user; the ACL file |
//! | `log.rs` | what was denied |
//!
//! Nothing here knows the server: the engine says what a command wants
//! (`engine/accounts.rs`), and acts on what changes.

mod catalog;
mod categories;
mod check;
mod log;
mod rules;
mod selector;
mod users;

pub(crate) use catalog::{Catalog, Entry};
pub(crate) use categories::Categories;
pub(crate) use check::{Denied, Keys, Wanted};
pub(crate) use log::{Place, Reason};
pub(crate) use rules::RuleError;
pub(crate) use selector::Selector;
pub(crate) use users::{Account, DEFAULT, Loaded, Revoked, User, Users};

/// What is wanted of a key, or allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub read: bool,
    pub write: bool,
}

impl Access {
    pub(crate) const READ: Self = Self { read: true, write: false };
    pub(crate) const BOTH: Self = Self { read: true, write: true };

    /// Whether it is at least the other.
    pub(crate) const fn covers(self, other: Self) -> bool {
        (self.read || !other.read) && (self.write || !other.write)
    }

    const fn or(self, other: Self) -> Self {
        Self { read: self.read || other.read, write: self.write || other.write }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands;
    use crate::engine::accounts::wanting;
    use crate::request::args::OwnedArgs;
    use proptest::prelude::*;

    fn words(rules: &str) -> Vec<Vec<u8>> {
        rules.split(' ').map(|rule| rule.as_bytes().to_vec()).collect()
    }

    fn users() -> Users {
        Users::new(commands::catalog())
    }

    /// The line of `ACL LIST` of a user with these rules.
    fn told(rules: &str) -> String {
        let users = users();
        users.set(b"u", &words(rules)).unwrap();
        let lines = users.lines();
        String::from_utf8(lines[1].clone()).unwrap().replace("user u ", "")
    }

    fn check(users: &Users, name: &str, command: &str) -> Result<(), Denied> {
        let args = OwnedArgs::of(&words(command));
        let command = commands::find(args.args()).unwrap();
        let rules = users.get(name.as_bytes()).unwrap().rules();
        wanting(command, args.args(), |wanted| rules.check(wanted))
    }

    #[test]
    fn what_is_told_leads_back() {
        for (rules, wanted) in [
            ("", "off resetchannels -@all"),
            ("on nopass ~* &* +@all", "on nopass ~* &* +@all"),
            ("+@all -config|set", "off resetchannels +@all -config|set"),
            (
                "-@all +client +client|id -client|kill",
                "off resetchannels -@all +client -client|kill",
            ),
            ("+@all -client +client|id", "off resetchannels +@all -client +client|id"),
            ("+select|0 +SELECT|1 +select|0", "off resetchannels -@all +select|0 +select|1"),
            ("~a %R~b %W~c %R~a %RW~d %R~e %W~e", "off ~a %R~b %W~c ~d ~e resetchannels -@all"),
            (
                "&a &b* &a (+get ~k &c) (%R~x +set)",
                "off resetchannels &a &b* -@all (~k resetchannels &c -@all +get) (%R~x resetchannels -@all +set)",
            ),
            ("%RW~* ~x", "off %RW~* ~x resetchannels -@all"),
            ("reset", "off sanitize-payload resetchannels -@all"),
            ("+@all -@dangerous", "off resetchannels +@all -@dangerous"),
        ] {
            assert_eq!(told(rules), wanted, "{rules}");
            assert_eq!(told(&told(rules)), wanted, "{rules}");
        }
    }

    #[test]
    fn errors_leave_a_user_as_it_was() {
        let users = users();
        users.set(b"u", &words("on +get ~k")).unwrap();
        let before = users.lines();
        for (rules, why) in [
            ("+set nosuch", "Error in ACL SETUSER modifier 'nosuch': Syntax error"),
            (
                "+nosuch",
                "Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL",
            ),
            (
                "+@nosuch",
                "Error in ACL SETUSER modifier '+@nosuch': Unknown command or category name in ACL",
            ),
            (
                "-get|x",
                "Error in ACL SETUSER modifier '-get|x': Unknown command or category name in ACL",
            ),
            (
                "+config|get|x",
                "Error in ACL SETUSER modifier '+config|get|x': Allowing first-arg of a subcommand is not supported",
            ),
            ("+debug|", "Error in ACL SETUSER modifier '+debug|': Syntax error"),
            (
                "<p",
                "Error in ACL SETUSER modifier '<p': The password you are trying to remove from the user does not exist",
            ),
            ("(+get ~k", "Unmatched parenthesis in acl selector starting at '(+get'."),
            ("(+get (~k)", "Error in ACL SETUSER modifier '(+get (~k)': Syntax error"),
            ("%~x", "Error in ACL SETUSER modifier '%~x': Syntax error"),
            ("%RR~x", "Error in ACL SETUSER modifier '%RR~x': Syntax error"),
        ] {
            let error = users.set(b"u", &words(rules)).err();
            assert_eq!(error.as_deref(), Some(why.as_bytes()), "{rules}");
        }
        assert!(users.set(b"u", &words("allkeys ~x")).is_err());
        assert!(users.set(b"u", &words("allchannels &x")).is_err());
        assert!(users.set(b"a b", &[]).is_err());
        assert_eq!(users.lines(), before);
    }

    #[test]
    fn a_selector_allows_a_command_as_a_whole() {
        let users = users();
        users.set(b"u", &words("+get ~a (+set ~b) (+publish &c) +select|0")).unwrap();
        assert_eq!(check(&users, "u", "get a"), Ok(()));
        assert_eq!(check(&users, "u", "set b x"), Ok(()));
        assert_eq!(check(&users, "u", "get b"), Err(Denied::Key(1)));
        assert_eq!(check(&users, "u", "set a x"), Err(Denied::Key(1)));
        assert_eq!(check(&users, "u", "publish d x"), Err(Denied::Channel(1)));
        assert_eq!(check(&users, "u", "publish c x"), Ok(()));
        assert_eq!(check(&users, "u", "select 0"), Ok(()));
        assert_eq!(check(&users, "u", "select 1"), Err(Denied::Command));
        assert_eq!(check(&users, "u", "auth x"), Ok(()));
        users.set(b"u", &words("(+mget ~b ~c)")).unwrap();
        assert_eq!(check(&users, "u", "mget b c d"), Err(Denied::Key(3)));
    }

    #[test]
    fn passwords_are_added_and_removed() {
        let users = users();
        let logs_in = |password: &str| users.log_in(b"u", password.as_bytes(), |_| {});
        users.set(b"u", &words(">a >b")).unwrap();
        assert!(!logs_in("a"));
        users.set(b"u", &words("on")).unwrap();
        assert!(logs_in("a") && logs_in("b") && !logs_in("c") && !logs_in(""));
        let hash = users.get(b"u").unwrap().rules().passwords()[0].clone();
        users.set(b"u", &words(&format!("!{hash}"))).unwrap();
        assert!(!logs_in("a") && logs_in("b"));
        users.set(b"u", &words(&format!("<b #{hash}"))).unwrap();
        assert!(logs_in("a") && !logs_in("b"));
        users.set(b"u", &words("nopass")).unwrap();
        assert!(logs_in("anything"));
        users.set(b"u", &words("resetpass")).unwrap();
        assert!(!logs_in("anything") && !users.log_in(b"nobody", b"", |_| {}));
    }

    #[test]
    fn a_file_is_taken_whole_or_not_at_all() {
        let users = users();
        users.set(b"old", &words("on +get")).unwrap();
        let before = users.lines();
        let bad =
            b"user a on +get\n# no\nuser a off\nuser b +nosuch >x <y <z\nuser\n\nuser c (+get\n";
        assert_eq!(
            users.load("f", bad).unwrap_err(),
            "f:2 should start with user keyword followed by the username. \
             WARNING: Duplicate user 'a' found on line 3. \
             f:4: Error in applying operation '+nosuch': Unknown command or category name in ACL. \
             f:4: The password you are trying to remove from the user does not exist. \
             f:5 should start with user keyword followed by the username. \
             f:7: Unmatched parenthesis in selector definition.\
             WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
        );
        assert_eq!(users.lines(), before);
        let loaded =
            users.load("f", b"\r\nuser default on >p ~* +@all\r\n user a  on +get ").unwrap();
        assert_eq!(loaded.gone, [b"old"]);
        assert!(loaded.revoked.is_some_and(|revoked| !revoked.spares(b"c", false)));
        let text: Vec<u8> = users.lines().join(&b'\n');
        let lines = users.lines();
        assert_eq!(lines.len(), 2);
        users.load("f", &text).unwrap();
        assert_eq!(users.lines(), lines);
        assert!(!users.default_user().is_open());
        users.load("f", b"").unwrap();
        assert!(users.default_user().is_open() && users.get(b"a").is_none());
    }

    #[test]
    fn a_connection_sees_that_its_user_changed() {
        let users = users();
        users.set(b"u", &words("on nopass +@all ~* &*")).unwrap();
        let mut account = Account::of(users.get(b"u").unwrap());
        assert!(account.is_unrestricted() && !account.is_stale());
        users.set(b"u", &words("-get")).unwrap();
        assert!(!account.is_unrestricted() && account.is_stale());
        assert!(!account.rules().is_unrestricted() && !account.is_stale());
        assert!(users.delete(b"u") && !users.delete(b"u"));
        let args = OwnedArgs::of(&words("set k v"));
        let command = commands::find(args.args()).unwrap();
        wanting(command, args.args(), |wanted| {
            assert_eq!(account.check(wanted), Err(Denied::Command));
        });
    }

    /// A rule, of words that mean something more often than not.
    fn rule() -> impl Strategy<Value = String> {
        let names = commands::all().iter().map(|command| command.full_name()).collect::<Vec<_>>();
        let name = prop::sample::select(names);
        let category = prop::sample::select(Categories::NAMES);
        prop_oneof![
            name.clone().prop_map(|name| format!("+{name}")),
            name.clone().prop_map(|name| format!("-{name}")),
            (name, "[a-z]{1,2}").prop_map(|(name, arg)| format!("+{name}|{arg}")),
            category.clone().prop_map(|name| format!("+@{name}")),
            category.prop_map(|name| format!("-@{name}")),
            prop::sample::select(
                &[
                    "+@all",
                    "-@all",
                    "allkeys",
                    "resetkeys",
                    "allchannels",
                    "resetchannels",
                    "on",
                    "off",
                    "nopass",
                    "resetpass",
                    "reset",
                    "clearselectors",
                    "sanitize-payload",
                    "skip-sanitize-payload"
                ][..]
            )
            .prop_map(str::to_owned),
            "(~|%R~|%W~|%RW~|&|>|<)[ab*]{0,2}",
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        /// Whatever rules a user was given: those that are told lead to the same.
        #[test]
        fn any_rules_are_told_so_that_they_lead_back(
            rules in prop::collection::vec(rule(), 0..25),
            inner in prop::collection::vec(rule(), 0..5),
        ) {
            let users = users();
            for rule in &rules {
                let _ = users.set(b"u", &[rule.as_bytes().to_vec()]);
            }
            let _ = users.set(b"u", &[format!("({})", inner.join(" ")).into_bytes()]);
            let lines = users.lines();
            users.load("f", &lines.join(&b'\n')).unwrap();
            prop_assert_eq!(users.lines(), lines);
        }
    }
}
