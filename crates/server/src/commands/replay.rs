//! Commands that took effect elsewhere or before, executed again: commits of another
//! store, an append-only file, what a primary sends.
//!
//! They are told by their own names, whatever `rename-command` calls them here; names
//! that it gave are understood where they are nobody's own. What stands between
//! `MULTI` and `EXEC` is executed at once when `EXEC` has come, under the slots of all
//! keys that it names, or with the store to itself where these are not all: a stream that
//! ends before it leaves nothing of a transaction behind.

use crate::commands;
use crate::config::Param;
use crate::engine::client::Caller;
use crate::engine::command::{Command, Group, Unanswered, flags};
use crate::engine::context::{Context, Origin};
use crate::engine::out::Out;
use crate::engine::server::Server;
use crate::replication::Execute;
use crate::request::args::{Args, OwnedArgs};
use crate::request::error::Error;
use snug_store::{Batch, Expired, Key};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// One stream of commands: the database that is selected, the transaction that is open.
#[derive(Debug, Default)]
pub(crate) struct Replayer {
    caller: Caller,
    queue: Option<Vec<OwnedArgs>>,
    out: Out,
}

/// On what it is executed.
#[derive(Clone, Copy)]
pub(crate) struct Replayed<'c> {
    pub server: &'c Server,
    pub store: &'c Batch<'c>,
    pub worker: usize,
}

impl Replayer {
    /// Whether a transaction has begun and not ended.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.queue.is_some()
    }

    /// Executes a command, whose key may have been hashed before, or keeps it until its
    /// transaction ends. What is wrong with it, if something is.
    pub(crate) fn execute(
        &mut self,
        on: Replayed<'_>,
        args: Args<'_>,
        hashed: Option<&Key<'_>>,
    ) -> Result<(), String> {
        if args.is(0, "multi") {
            self.queue = Some(Vec::new());
            return Ok(());
        }
        if args.is(0, "exec") {
            let queue = self.queue.take().ok_or("EXEC without MULTI")?;
            let keys = self.keys(on, &queue);
            let _alone = keys.is_none().then(|| on.store.exclusive());
            let _held = keys.map(|keys| on.store.hold(keys));
            return queue.iter().try_for_each(|args| self.now(on, args.args(), None));
        }
        match &mut self.queue {
            Some(queue) => queue.push(OwnedArgs::new(args)),
            None => self.now(on, args, hashed)?,
        }
        Ok(())
    }

    /// The keys of the commands of a transaction, each with the database that will be
    /// selected by then; none if they may concern others.
    fn keys<'q>(&self, on: Replayed<'_>, queue: &'q [OwnedArgs]) -> Option<Vec<(usize, Key<'q>)>> {
        let mut db = self.caller.db;
        let mut keys = Vec::new();
        for args in queue.iter().map(OwnedArgs::args) {
            let command = find(args).ok().filter(|command| command.arity_fits(args.len()))?;
            if command.has(flags::WIDE) {
                return None;
            }
            if command.name == "select" && command.container.is_none() {
                let selected = args.int(1).ok().and_then(|db| usize::try_from(db).ok())?;
                db = Some(selected).filter(|db| *db < on.store.store().databases())?;
            }
            let named = command.key_indices(args).ok()?;
            keys.extend(named.into_iter().map(|at| (db, on.store.key(args.bytes(at)))));
        }
        Some(keys)
    }

    fn now(
        &mut self,
        on: Replayed<'_>,
        args: Args<'_>,
        hashed: Option<&Key<'_>>,
    ) -> Result<(), String> {
        // An error may quote arguments: only its code tells nothing of them.
        let hides = on.server.config.is_on(Param::HideUserDataFromLog);
        let told = |error: Error| match hides {
            true => error.code().into_owned(),
            false => String::from_utf8_lossy(error.text()).into_owned(),
        };
        let failed = |why: String| match hides {
            true => format!("a command was answered with {why}"),
            false => format!("'{}' was answered with {why}", shown(args)),
        };
        let command = find(args).map_err(told)?;
        if !command.arity_fits(args.len()) {
            return Err(failed(told(Error::wrong_arity(&command.full_name()))));
        }
        // Libraries of functions are the server's, not those of a store beside its own.
        let is_of_server = command.group == Group::Scripting;
        if is_of_server && !Arc::ptr_eq(on.store.store(), &on.server.store) {
            return Ok(());
        }
        on.store.expired_keys(Expired::Seen);
        self.out.clear();
        let mut cx = Context {
            caller: &mut self.caller,
            client: None,
            store: on.store,
            server: on.server,
            command,
            worker: on.worker,
            origin: Origin::Replay,
            hashed,
            pool: None,
            finished: None,
            brought: false,
        };
        match (command.handler)(&mut cx, args, &mut self.out) {
            Ok(()) => {}
            Err(Unanswered::Error(error)) => return Err(failed(told(error))),
            Err(Unanswered::Wait(_) | Unanswered::Later(_)) => {
                return Err(failed("no reply".into()));
            }
        }
        match self.out.bytes.first() {
            Some(b'-') if hides => Err(failed("an error".into())),
            Some(b'-') => Err(failed(String::from_utf8_lossy(&self.out.bytes).trim().into())),
            _ => Ok(()),
        }
    }
}

impl Execute for Replayer {
    fn execute(
        &mut self,
        server: &Server,
        store: &Batch<'_>,
        args: Args<'_>,
        hashed: Option<&Key<'_>>,
    ) -> Result<(), String> {
        Self::execute(self, Replayed { server, store, worker: 0 }, args, hashed)
    }

    fn is_in_transaction(&self) -> bool {
        self.is_in_transaction()
    }

    fn forget_transaction(&mut self) {
        self.queue = None;
    }

    fn database(&mut self) -> &mut usize {
        &mut self.caller.db
    }
}

/// What executes the commands of a primary.
pub(crate) fn executor() -> Box<dyn Execute> {
    Box::new(Replayer::default())
}

/// A command as an error shows it.
fn shown(args: Args<'_>) -> String {
    let word = |n| String::from_utf8_lossy(args.bytes(n)).chars().take(60).collect();
    (0..args.len().min(8)).map(word).collect::<Vec<String>>().join(" ")
}

/// The command of that own name, or else the one that is called so here.
fn find(args: Args<'_>) -> Result<&'static Command, Error> {
    static OWN: OnceLock<HashMap<&'static str, &'static Command>> = OnceLock::new();
    let is_own = |command: &&&Command| command.called != command.name.as_bytes();
    let own = OWN.get_or_init(|| {
        let renamed = commands::all().iter().filter(|c| c.container.is_none()).filter(is_own);
        renamed.map(|command| (command.name, *command)).collect()
    });
    if own.is_empty() {
        return commands::find(args);
    }
    let name = String::from_utf8_lossy(args.bytes(0)).to_ascii_lowercase();
    match own.get(name.as_str()) {
        Some(command) => commands::called(command, args),
        None => commands::find(args),
    }
}
