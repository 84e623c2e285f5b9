//! Accounts, as the engine uses them: what a command wants of one, what is told and
//! logged when it is denied, and what happens to those who are connected when users
//! change.
//!
//! A user who may do everything costs a command one load and a branch. For anybody else
//! a bit is looked up and each key held against the user's patterns.

use crate::auth::{Access, Account, DEFAULT, Denied, Keys, Loaded, Place, Reason, Revoked, Wanted};
use crate::config::{Param, UserLine};
use crate::engine::client::Client;
use crate::engine::command::{Command, flags};
use crate::engine::context::Context;
use crate::engine::keys::ChannelUse;
use crate::engine::server::Server;
use crate::follow::clients::Shared;
use crate::follow::listing;
use crate::follow::pubsub::Subject;
use crate::measure::stats::Stat;
use crate::outside::clock::unix_ms;
use crate::request::args::Args;
use crate::request::error::Error;
use std::sync::Arc;

/// Hands over what a command with these arguments wants of an account.
pub(crate) fn wanting<T>(
    command: &Command,
    args: Args<'_>,
    use_it: impl FnOnce(&Wanted<'_>) -> T,
) -> T {
    // Arguments that name no keys are an error the handler will tell.
    let find_keys = || -> Keys {
        let keys = command.used_keys(args).unwrap_or_default();
        keys.into_iter().map(|(at, used)| (at, used.access())).collect()
    };
    let mut wanted = Wanted::new(command.index, command.has(flags::NO_AUTH), args, &find_keys);
    wanted.is_subcommand = command.container.is_some();
    if let Some(channels) = command.channels {
        wanted.channels = channels.count(args.len());
        wanted.of_patterns = channels == ChannelUse::SubscribePatterns;
    }
    use_it(&wanted)
}

/// Whether an account may execute a command.
#[inline]
pub(crate) fn check(
    account: &mut Account,
    command: &Command,
    args: Args<'_>,
) -> Result<(), Denied> {
    if account.is_unrestricted() {
        return Ok(());
    }
    check_restricted(account, command, args)
}

#[inline(never)]
fn check_restricted(
    account: &mut Account,
    command: &Command,
    args: Args<'_>,
) -> Result<(), Denied> {
    wanting(command, args, |wanted| account.check(wanted))
}

impl Denied {
    /// What a client is told.
    pub(crate) fn refusal(self, command: &Command) -> Error {
        let what = match self {
            Self::Command => format!("run the '{}' command", command.full_name()),
            Self::Key(_) => "access one of the keys used as arguments".into(),
            Self::Channel(_) => "access one of the channels used as arguments".into(),
        };
        Error::from(format!("NOPERM this user has no permissions to {what}"))
    }

    /// What a client is told of a command that it might queue, and may not execute.
    pub(crate) fn refusal_in_exec(self) -> Error {
        let why = match self {
            Self::Command => "no permission to execute the command or subcommand",
            Self::Key(_) => "no permission to touch the specified keys",
            Self::Channel(_) => "no permission to access one of the channels used as arguments",
        };
        Error::from(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: {why}"
        ))
    }
}

/// Writes down that something was denied to a client while it is in a command, whose
/// figures are up to date.
pub(crate) fn log_denied(
    server: &Server,
    (client, user): (&Shared, &[u8]),
    (place, within): (Place, &Command),
    (command, args): (&Command, Args<'_>),
    denied: Denied,
) {
    let object = |at: usize| args.get(at).unwrap_or_default().to_vec();
    let (reason, object) = match denied {
        Denied::Command => (Reason::Command, command.full_name().into_bytes()),
        Denied::Key(at) => (Reason::Key, object(at)),
        Denied::Channel(at) => (Reason::Channel, object(at)),
    };
    log(server, client, (reason, place), (&object, user), within);
}

/// Writes down that a password was wrong.
pub(crate) fn log_wrong_password(cx: &Context<'_>, args: Args<'_>, user: &[u8]) {
    cx.server.stats.add(Stat::acl_access_denied_auth, 1);
    let Some(client) = cx.client.as_deref() else { return };
    client.publish_figures(cx.caller);
    let place = if client.multi.is_some() { Place::Multi } else { Place::TopLevel };
    log(cx.server, &client.shared, (Reason::Auth, place), (args.bytes(0), user), cx.command);
}

fn log(
    server: &Server,
    client: &Shared,
    what: (Reason, Place),
    names: (&[u8], &[u8]),
    within: &Command,
) {
    let now = unix_ms();
    let line = listing::describe(client, &within.full_name(), 0, now);
    let line = line.strip_suffix(b"\n").unwrap_or(&line).to_vec();
    let keep = server.config.number(Param::AcllogMaxLen) as usize;
    server.users.log.add(what, names, line, now, keep);
}

fn become_user(client: &mut Client, user: &Arc<crate::auth::User>) {
    client.account = Account::of(Arc::clone(user));
    client.authenticated = true;
    client.shared.names.lock().user.clone_from(&user.name);
}

impl Server {
    /// Whether a client has to log in before it may do anything else.
    #[inline]
    pub(crate) fn must_log_in(&self, client: &Client) -> bool {
        !client.authenticated && !self.users.default_user().is_open()
    }

    /// The account that a connection begins with, and whether it has logged in by that.
    pub(crate) fn first_account(&self) -> (Account, bool) {
        let user = self.users.default_user();
        (Account::of(Arc::clone(user)), user.is_open())
    }

    /// Logs a client in; false if user and password do not fit.
    pub(crate) fn log_in(&self, client: &mut Client, user: &[u8], password: &[u8]) -> bool {
        self.users.log_in(user, password, |user| become_user(client, user))
    }

    /// Logs a client in as the user whom its certificate names, if there is such a one;
    /// false if there is not, and then it stays who it was.
    pub(crate) fn log_in_by_certificate(&self, client: &mut Client, user: &str) -> bool {
        self.users.log_in_vouched(user.as_bytes(), |user| become_user(client, user))
    }

    /// Has new users get what `acl-pubsub-default` says.
    pub(crate) fn heed_pubsub_default(&self) {
        self.users.allow_all_channels(self.config.number(Param::AclPubsubDefault) == 0);
    }

    /// The users as the server begins with them: the default user's password, then
    /// those of the configuration file or those of the ACL file.
    pub(crate) fn configure_users(&self) -> Result<(), String> {
        let config = &self.config;
        self.heed_pubsub_default();
        self.users.require_password(&config.bytes(Param::RequirePass));
        let has_file = !config.is_empty(Param::Aclfile);
        if has_file && !config.users.is_empty() {
            return Err("users are either in the ACL file (aclfile) or in the configuration file, not in both".into());
        }
        for UserLine { name, rules, place } in &config.users {
            self.users
                .configure(name, rules)
                .map_err(|why| format!("{place}'user {}': {why}", String::from_utf8_lossy(name)))?;
        }
        if has_file {
            self.load_users()?;
        }
        Ok(())
    }

    /// Reads the ACL file.
    pub(crate) fn load_users(&self) -> Result<Loaded, String> {
        let file = self.config.path(Param::Aclfile);
        let shown = file.display().to_string();
        let text = std::fs::read(&file).map_err(|error| {
            let why = error.to_string();
            let why = why.split(" (os error").next().unwrap_or_default();
            format!("Error loading ACLs, opening file '{shown}': {why}")
        })?;
        self.users.load(&shown, &text)
    }

    /// What the configuration file is to say of users: nothing if they are in the ACL
    /// file, or if there is the default user alone and `requirepass` says all of it.
    pub(crate) fn user_lines_to_keep(&self) -> Vec<Vec<u8>> {
        if !self.config.is_empty(Param::Aclfile) {
            return Vec::new();
        }
        let password = self.config.bytes(Param::RequirePass);
        if self.users.are_as_at_first(&password) { Vec::new() } else { self.users.lines() }
    }

    /// Has everybody else act on what `ACL LOAD` has changed.
    pub(crate) fn heed_loaded(&self, loaded: &Loaded, me: &mut Client) {
        loaded.gone.iter().for_each(|user| self.end_clients_of(user, me));
        if let Some(revoked) = &loaded.revoked {
            self.end_subscribers(revoked, me);
        }
    }

    /// Ends the connections of a user that is there no more. The caller's own still
    /// gets its reply.
    pub(crate) fn end_clients_of(&self, user: &[u8], me: &mut Client) {
        let clients = self.clients.read();
        let theirs = clients.values().filter(|client| client.names.lock().user == user);
        let theirs: Vec<_> = theirs.map(Arc::clone).collect();
        drop(clients);
        theirs.iter().for_each(|client| self.end_client(client, me));
    }

    fn end_client(&self, client: &Arc<Shared>, me: &mut Client) {
        if client.id == me.id() {
            let (account, _) = self.first_account();
            (me.account, me.authenticated, me.close) = (account, false, true);
            me.shared.names.lock().user = DEFAULT.to_vec();
        } else {
            client.kill();
        }
    }

    /// Ends the connections of those who are subscribed to what their user may no
    /// longer use.
    pub(crate) fn end_subscribers(&self, revoked: &Revoked, me: &mut Client) {
        let is_theirs = |client: &Shared| client.names.lock().user == revoked.user;
        let subscribed = self.pubsub.subscribed(|subject, name, client| {
            !revoked.spares(name, subject == Subject::Pattern) && is_theirs(client)
        });
        subscribed.iter().for_each(|client| self.end_client(client, me));
    }
}

impl Context<'_> {
    /// Whether the caller may read every key, for commands that read keys which their
    /// arguments do not tell. Who has no account is not judged.
    pub(crate) fn may_read_every_key(&mut self, args: Args<'_>) -> bool {
        let command = self.command;
        let Some(client) = self.client.as_deref_mut() else { return true };
        client.account.is_unrestricted()
            || wanting(command, args, |wanted| {
                client.account.allows_with_every_key(wanted, Access::READ)
            })
    }
}
