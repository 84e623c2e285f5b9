//! Commands that run aside: in a thread of their own, one at a time, while their clients
//! wait and the workers serve others (`aside.rs`).
//!
//! | what goes there | what it keeps from others meanwhile |
//! | --- | --- |
//! | a command that goes through many items ([`Context::goes_through`]), as the union of large sets | the slots of its keys |
//! | a script that is new, or has run long before (`script/aside.rs`) | those, or all there are |
//!
//! It costs two changes of threads and closing the gates once, 50 to 100 microseconds,
//! which is why short ones run on their clients' workers. A client's command comes here
//! before it has changed anything, runs here from its beginning to its end, and its client's
//! worker, which has it executed again, finds the reply.
//!
//! It was admitted when it came, and may have to wait for its turn. If writes are paused by
//! then, as before the end, or this node has become a replica, its client's worker decides
//! anew. Whoever brings that about (flag `WIDE`, [`Server::before_end`]) waits for the
//! command that runs.

use crate::config::Param;
use crate::engine::aside::{Kind, Running, Touches};
use crate::engine::call;
use crate::engine::client::{Absent, Caller, Client};
use crate::engine::command::{Command, Unanswered, flags};
use crate::engine::context::{Context, Origin};
use crate::engine::large::{Done, Work};
use crate::engine::out::Out;
use crate::engine::server::Server;
use crate::follow::pubsub::{self, OnBehalf};
use crate::follow::tracking;
use crate::outside::clock::Instant;
use crate::outside::clock::unix_ms;
use crate::peers::limits;
use crate::request::args::{Args, OwnedArgs};
use crate::request::error::Error;
use parking_lot::Mutex;
use snug_store::{Batch, Session};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::oneshot;

/// How often it is looked whether a script has ended that takes long on a worker.
const LOOKED_AFTER: Duration = Duration::from_millis(1);

/// After a command the thread rests for a part of the time that it took, so that packing
/// and expiry, which rest meanwhile, have theirs however many long commands come.
const RESTS_ONE_IN: u32 = 4;
const REST_MAX: Duration = Duration::from_millis(50);

/// Why a handler has done nothing yet: its command is to run aside.
pub(crate) const LONG: Error = Error::new("ERR the command goes through many items");

/// A command of fewer words is not long by their number.
const MANY_WORDS: usize = 1024;

/// A command of more keys counts as touching every key: who meets it is found out by each
/// command of others.
const KEYS_MAX: usize = 64;

/// What came of an errand.
#[derive(Debug)]
pub(crate) struct Came {
    pub reply: Result<Out, Error>,
    /// How long it took, waiting for its turn not counted.
    pub took: Duration,
    /// The reply is an error that was counted.
    counted: bool,
    /// What it published to its own client.
    own: Vec<u8>,
}

/// How far an errand is.
#[derive(Debug, Default)]
enum State {
    #[default]
    Waits,
    Came(Came),
    /// It has done nothing, and is to be admitted again.
    Again,
}

/// Where an errand's client finds what came of it.
type Reply = Arc<Mutex<State>>;

/// What is to be done, of which the reply comes; none if nothing was done
/// ([`State::Again`]).
type Run = Box<dyn FnOnce(&mut Errand<'_>) -> Option<Result<Out, Error>> + Send>;

/// A command that runs aside.
#[derive(Debug)]
pub(crate) struct Errand<'e> {
    pub server: &'e Arc<Server>,
    pub caller: Caller,
    pub command: &'static Command,
    pub worker: usize,
    pub args: Args<'e>,
    client: &'e Absent,
    session: Session,
    took: Duration,
}

/// The same on its way.
struct Sent {
    server: Arc<Server>,
    caller: Caller,
    command: &'static Command,
    worker: usize,
    args: OwnedArgs,
    client: Absent,
    run: Run,
    reply: Reply,
    done: oneshot::Sender<()>,
}

/// The way to the thread.
fn errands() -> &'static Mutex<Sender<Sent>> {
    static ERRANDS: OnceLock<Mutex<Sender<Sent>>> = OnceLock::new();
    ERRANDS.get_or_init(|| {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("aside".into()).stack_size(8 << 20);
        if let Err(error) = thread.spawn(move || work(&receiver)) {
            tracing::error!(%error, "the thread of long commands cannot be started");
        }
        Mutex::new(sender)
    })
}

/// Has a client's command run aside: it is to be executed again when its reply is there.
pub(crate) fn send(
    cx: &mut Context<'_>,
    args: Args<'_>,
    run: impl FnOnce(&mut Errand<'_>) -> Option<Result<Out, Error>> + Send + 'static,
) -> Result<Unanswered, Error> {
    let gone = Error::new("ERR the thread of long commands has ended");
    let server = cx.server.me.upgrade().ok_or(gone.clone())?;
    let (done, ended) = oneshot::channel();
    let reply = Reply::default();
    let (caller, command, worker) = (*cx.caller, cx.command, cx.worker);
    let client = cx.client()?;
    let absent = Absent {
        shared: Arc::clone(&client.shared),
        remembers: client.tracking.as_ref().is_some_and(|mode| mode.remembers()),
    };
    let sent = Sent {
        server,
        caller,
        command,
        worker,
        args: OwnedArgs::new(args),
        client: absent,
        run: Box::new(run),
        reply: Arc::clone(&reply),
        done,
    };
    errands().lock().send(sent).map_err(|_| gone)?;
    cx.client()?.aside = Some(Box::new(reply));
    Ok(Unanswered::Later(Work(Box::pin(async move {
        // It is done, or its thread is gone.
        let _ = ended.await;
        Done::Nothing
    }))))
}

/// Has a command executed again when what takes long has ended, or in a while.
#[cold]
pub(crate) fn later(server: &Server) -> Work {
    let server = server.me.clone();
    Work(Box::pin(async move {
        if let Some(server) = server.upgrade() {
            server.aside.wait().await;
        }
        Done::Nothing
    }))
}

/// Whether a client's command, which is executed again, has run aside.
pub(crate) fn has_run(client: &mut Client) -> bool {
    let Some(sent) = &client.aside else { return false };
    let again = |reply: &Reply| matches!(*reply.lock(), State::Again);
    if sent.downcast_ref::<Reply>().is_none_or(again) {
        client.aside = None;
    }
    client.aside.is_some()
}

/// What came of the command that this client has sent aside, if it has.
pub(crate) fn came(cx: &mut Context<'_>) -> Option<Came> {
    let sent = cx.client.as_deref_mut()?.aside.take()?;
    let state = std::mem::take(&mut *sent.downcast::<Reply>().ok()?.lock());
    let State::Came(came) = state else {
        let reply = Err(Error::new("ERR the command has ended without a reply"));
        return Some(Came { reply, took: Duration::ZERO, counted: false, own: Vec::new() });
    };
    if came.counted {
        call::already_counted();
    }
    if !came.own.is_empty() {
        pubsub::tell_own(pubsub::caller(), &came.own);
    }
    Some(came)
}

fn work(errands: &Receiver<Sent>) {
    while let Ok(sent) = errands.recv() {
        let Sent { server, caller, command, worker, args, client, run, reply, done } = sent;
        if done.is_closed() {
            // Its client is gone.
            continue;
        }
        let on_behalf = OnBehalf::of(&client.shared);
        let mut errand = Errand {
            server: &server,
            caller,
            command,
            worker,
            args: args.args(),
            client: &client,
            session: server.store.session(),
            took: Duration::ZERO,
        };
        let ran = std::panic::AssertUnwindSafe(|| run(&mut errand));
        let result = std::panic::catch_unwind(ran).unwrap_or_else(|_| {
            Some(Err(Error::new("ERR internal error while the command was running aside")))
        });
        if tracking::any_changed() {
            server.tracking.tell_changed();
        }
        let took = errand.took;
        drop(errand);
        let (counted, own) = (call::take_counted(), pubsub::take_own());
        *reply.lock() = match result {
            Some(reply) => State::Came(Came { reply, took, counted, own }),
            None => State::Again,
        };
        drop(on_behalf);
        let _ = done.send(());
        std::thread::sleep((took / RESTS_ONE_IN).min(REST_MAX));
    }
}

impl Errand<'_> {
    /// One step: others are told what it touches, every batch that was under way ends, and
    /// it has the store. What is done on its behalf is measured. Nothing is done if it is to
    /// be admitted again.
    pub(crate) fn step<R>(
        &mut self,
        running: Running,
        body: impl FnOnce(&mut Context<'_>, &Arc<Running>) -> R,
    ) -> Option<R> {
        let running = Arc::new(running);
        let (server, is_script) = (self.server, running.is_script());
        // A script that takes long on a worker would be waited for with everybody else behind.
        while server.aside.is_active() && !server.ending.load(Relaxed) {
            std::thread::sleep(LOOKED_AFTER);
        }
        let announced = Announced::new(server, Arc::clone(&running));
        let began = Instant::now();
        if is_script {
            // Whoever did not see it has done its work when this returns.
            self.session.wait_for_others();
        }
        let batch = server.enter(&mut self.session, unix_ms());
        if !is_script {
            batch.part(self.caller.db, &running.slots());
        }
        if !is_admitted(server, &batch, self.command) {
            return None;
        }
        let mut cx = Context {
            caller: &mut self.caller,
            client: None,
            store: &batch,
            server,
            command: self.command,
            worker: self.worker,
            origin: if is_script { Origin::Aside(self.client) } else { Origin::Apart(self.client) },
            hashed: None,
            pool: None,
            // Keys that it looked for before it was sent here are not counted again.
            finished: (!is_script).then(|| Box::new(Done::Nothing)),
            brought: false,
        };
        let result = body(&mut cx, &running);
        if crate::engine::blocked::any_ready() {
            server.serve(&batch, self.worker);
        }
        drop(batch);
        drop(announced);
        self.took += began.elapsed();
        Some(result)
    }
}

/// Whether nothing has come in the way of a command since it was admitted: what is looked
/// at here is what admission itself waits for or refuses, so that it does not come back for
/// the same reason.
fn is_admitted(server: &Server, batch: &Batch<'_>, command: &Command) -> bool {
    let pause = &server.pause;
    let is_paused = pause.writes_paused(batch.now())
        && (pause.is_of_all() || command.has(flags::WRITE | flags::MAY_REPLICATE));
    let is_refused = command.has(flags::WRITE) && server.may_write().is_err();
    let limits = server.peers.limits();
    let is_stale = limits & limits::STALE != 0 && !command.has(flags::STALE);
    let loads = limits & limits::LOADING != 0 || server.persist.is_loading();
    !is_paused && !is_refused && !is_stale && (!loads || command.has(flags::LOADING))
}

/// Runs a command by its handler, from its beginning.
fn by_handler(errand: &mut Errand<'_>) -> Option<Result<Out, Error>> {
    let (args, command) = (errand.args, errand.command);
    let mut out = Out::default();
    out.protocol = errand.caller.protocol;
    let mut indices = command.key_indices(args).unwrap_or_default();
    let everything = indices.len() > KEYS_MAX;
    if everything {
        indices.clear();
    }
    let store = &errand.server.store;
    let place = |index| store.place(errand.caller.db, store.key(args.bytes(index)).slot());
    let touches = Touches::new(indices.into_iter().map(place).collect(), everything);
    let running = Running::new(command.name, Kind::Command, Vec::new(), Instant::now(), touches);
    let answer = errand.step(running, |cx, _| (command.handler)(cx, args, &mut out))?;
    Some(match answer {
        Ok(()) => Ok(out),
        Err(Unanswered::Error(error)) => Err(error),
        Err(Unanswered::Wait(_) | Unanswered::Later(_)) => {
            Err(Error::new("ERR this command must wait, and may not here"))
        }
    })
}

/// Others are told of what takes long, until this is dropped.
#[derive(Debug)]
pub(crate) struct Announced {
    server: Arc<Server>,
    pub running: Arc<Running>,
}

impl Announced {
    pub(crate) fn new(server: &Arc<Server>, running: Arc<Running>) -> Self {
        server.aside.begin(&server.store, Arc::clone(&running));
        Self { server: Arc::clone(server), running }
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.server.aside.end(&self.server.store, &self.running);
    }
}

impl Context<'_> {
    /// To be called before a command goes through so many items and has changed anything:
    /// [`LONG`], if they are many (`long-command-items`) and it can run aside. Its handler
    /// passes that on with `?`, and is called again there.
    #[inline]
    pub(crate) fn goes_through(&self, items: usize) -> Result<(), Error> {
        let limit = self.server.config.number(Param::LongCommandItems) as usize;
        match items > limit && limit > 0 && self.may_run_aside() {
            true => Err(LONG),
            false => Ok(()),
        }
    }

    /// Whether the command names so many keys or items that it is long by that alone.
    #[inline]
    pub(crate) fn names_many(&self, args: Args<'_>) -> bool {
        const OTHERS: u32 = flags::BLOCKING | flags::NOSCRIPT | flags::MOVABLE_KEYS;
        args.len() > MANY_WORDS
            && self.command.has(flags::READONLY | flags::WRITE)
            && !self.command.has(OTHERS)
            && self.goes_through(args.len()).is_err()
    }

    fn may_run_aside(&self) -> bool {
        self.origin.may_wait() && self.pool.is_some() && self.client.is_some()
    }

    /// Has the command run aside, as its handler asked for.
    #[cold]
    pub(crate) fn aside(&mut self, args: Args<'_>) -> Unanswered {
        send(self, args, by_handler).unwrap_or_else(Unanswered::Error)
    }
}
