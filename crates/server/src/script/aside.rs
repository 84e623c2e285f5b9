//! Scripts that run aside: in a thread of their own, one at a time, while their clients
//! wait and the workers serve others (`engine/aside.rs`).
//!
//! A script goes there that is new, so that nothing is known of it, and one that has
//! run long before. It costs two changes of threads, 30 to 50 microseconds: what is short
//! is run by the client's own worker from the second time on.

use super::host::{Find, Who};
use super::run::{self, Program, Source};
use crate::engine::aside::{Running, Touches};
use crate::engine::call;
use crate::engine::client::{Absent, Caller};
use crate::engine::command::{Command, Unanswered};
use crate::engine::context::{Context, Origin};
use crate::engine::large::{Done, Work};
use crate::engine::out::Out;
use crate::engine::scripts::{Habits, Needs, ScriptFlags};
use crate::engine::server::Server;
use crate::follow::pubsub::{self, OnBehalf};
use crate::follow::tracking;
use crate::outside::clock::Instant;
use crate::outside::clock::unix_ms;
use crate::request::args::OwnedArgs;
use crate::request::error::Error;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::oneshot;

/// How often it is looked whether a script has ended that takes long on a worker.
const LOOKED_AFTER: Duration = Duration::from_millis(1);

/// What came of a script.
#[derive(Debug)]
pub(crate) struct Came {
    reply: Result<Out, Error>,
    /// The reply is an error that was counted.
    counted: bool,
    /// What it published to its own client.
    own: Vec<u8>,
}

/// Where a script's client finds what came of it.
pub(crate) type Reply = Arc<Mutex<Option<Came>>>;

/// A script that is to run aside.
struct Errand {
    server: Arc<Server>,
    caller: Caller,
    command: &'static Command,
    worker: usize,
    find: Find,
    short: bool,
    name: String,
    flags: ScriptFlags,
    habits: Arc<Habits>,
    read_only: bool,
    source: Source,
    args: OwnedArgs,
    keys: Range<usize>,
    rest: Range<usize>,
    who: Who,
    client: Absent,
    reply: Reply,
    done: oneshot::Sender<()>,
}

/// The way to the thread.
fn errands() -> &'static Mutex<Sender<Errand>> {
    static ERRANDS: OnceLock<Mutex<Sender<Errand>>> = OnceLock::new();
    ERRANDS.get_or_init(|| {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("scripts".into()).stack_size(8 << 20);
        if let Err(error) = thread.spawn(move || work(&receiver)) {
            tracing::error!(%error, "the thread of scripts cannot be started");
        }
        Mutex::new(sender)
    })
}

/// Sends a program aside: its command is to be executed again when its reply is there.
pub(super) fn send(
    cx: &mut Context<'_>,
    program: &Program<'_>,
    find: Find,
    short: bool,
) -> Result<Unanswered, Error> {
    let gone = Error::new("ERR scripts cannot be run now");
    let server = cx.server.me.upgrade().ok_or(gone.clone())?;
    let (done, ended) = oneshot::channel();
    let reply = Reply::default();
    let (caller, command, worker) = (*cx.caller, cx.command, cx.worker);
    let client = cx.client()?;
    let errand = Errand {
        server,
        caller,
        command,
        worker,
        find,
        short,
        name: program.name.into(),
        flags: program.flags,
        habits: Arc::clone(program.habits),
        read_only: program.read_only,
        source: program.source.clone(),
        args: OwnedArgs::new(program.args),
        keys: program.keys.clone(),
        rest: program.rest.clone(),
        who: Who::of(client),
        client: Absent {
            shared: Arc::clone(&client.shared),
            remembers: client.tracking.as_ref().is_some_and(|mode| mode.remembers()),
        },
        reply: Arc::clone(&reply),
        done,
    };
    let sent = errands().lock().send(errand);
    sent.map_err(|_| gone)?;
    cx.client()?.script = Some(Box::new(reply));
    Ok(Unanswered::Later(Work(Box::pin(async move {
        // It is done, or its thread is gone.
        let _ = ended.await;
        Done::Nothing
    }))))
}

/// Has a command executed again when the scripts that take long have ended, or in a
/// while.
pub(crate) fn later(server: &Server) -> Unanswered {
    let server = server.me.clone();
    Unanswered::Later(Work(Box::pin(async move {
        if let Some(server) = server.upgrade() {
            server.aside.wait().await;
        }
        Done::Nothing
    })))
}

/// The reply of the script that this client's command has sent aside, if it has.
pub(super) fn reply(cx: &mut Context<'_>) -> Option<Result<Out, Error>> {
    let sent = cx.client.as_deref_mut()?.script.take()?;
    let reply = sent.downcast::<Reply>().ok()?.lock().take();
    let Some(Came { reply, counted, own }) = reply else {
        return Some(Err(Error::new("ERR the script has ended without a reply")));
    };
    if counted {
        call::already_counted();
    }
    if !own.is_empty() {
        pubsub::tell_own(pubsub::caller(), &own);
    }
    Some(reply)
}

fn work(errands: &Receiver<Errand>) {
    while let Ok(errand) = errands.recv() {
        let (reply, done) = (Arc::clone(&errand.reply), errand.done);
        let errand = Errand { done: oneshot::channel().0, ..errand };
        let on_behalf = OnBehalf::of(&errand.client.shared);
        let ran = std::panic::AssertUnwindSafe(|| run_aside(&errand));
        let result = std::panic::catch_unwind(ran)
            .unwrap_or_else(|_| Err(Error::new("ERR internal error while a script was running")));
        if tracking::any_changed() {
            errand.server.tracking.tell_changed();
        }
        let (counted, own) = (call::take_counted(), pubsub::take_own());
        *reply.lock() = Some(Came { reply: result, counted, own });
        drop(on_behalf);
        let _ = done.send(());
    }
}

fn run_aside(errand: &Errand) -> Result<Out, Error> {
    let Errand { server, habits, .. } = errand;
    let mut out = Out::default();
    out.protocol = errand.caller.protocol;
    let args = errand.args.args();
    let program = Program {
        name: &errand.name,
        flags: errand.flags,
        habits,
        read_only: errand.read_only,
        source: errand.source.clone(),
        args,
        keys: errand.keys.clone(),
        rest: errand.rest.clone(),
    };
    let mut session = server.store.session();
    loop {
        // One that takes long on a worker would be waited for with everybody else behind.
        while server.aside.is_active() && !server.ending.load(Relaxed) {
            std::thread::sleep(LOOKED_AFTER);
        }
        let slots = program.keys.clone().map(|n| server.store.key(args.bytes(n)).slot()).collect();
        let touches = Touches::new(slots, habits.needs() != Needs::Declared);
        let command = (0..args.len()).map(|n| args.bytes(n).to_vec()).collect();
        let running = Arc::new(Running::new(
            program.name,
            matches!(program.source, Source::Function(..)),
            command,
            Instant::now(),
            touches,
        ));
        let announced = Announced::new(server, Arc::clone(&running));
        // Whoever did not see it has done its work when this returns.
        session.wait_for_others();
        let mut caller = errand.caller;
        let batch = server.enter(&mut session, unix_ms());
        let mut cx = Context {
            caller: &mut caller,
            client: None,
            store: &batch,
            server,
            command: errand.command,
            worker: errand.worker,
            origin: Origin::Aside(&errand.client),
            hashed: None,
            pool: None,
            finished: None,
            brought: false,
        };
        let result = run::aside(
            &mut cx,
            &program,
            errand.find,
            errand.short,
            (&running, &errand.who),
            &mut out,
        );
        if crate::engine::blocked::any_ready() {
            server.serve(&batch, errand.worker);
        }
        drop(batch);
        drop(announced);
        // Else it needs more than was thought, and has not written.
        if let Some(result) = result {
            return result.map(|()| out);
        }
    }
}

/// Others are told of a script that takes long, until this is dropped.
#[derive(Debug)]
pub(super) struct Announced {
    server: Arc<Server>,
    pub running: Arc<Running>,
}

impl Announced {
    pub(super) fn new(server: &Arc<Server>, running: Arc<Running>) -> Self {
        server.aside.begin(&server.store, Arc::clone(&running));
        Self { server: Arc::clone(server), running }
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.server.aside.end(&self.server.store, &self.running);
    }
}
