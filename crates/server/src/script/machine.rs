//! A worker's interpreter, made when its first script comes: with Redis's library, and
//! what it has compiled.
//!
//! What every run needs is kept in the interpreter under a number: a name would have to be
//! hashed each time ([`kept`]).

use super::host::{self, Buffers};
use super::run::on_error;
use crate::engine::aside::{Kind, Running, Touches};
use crate::engine::command::Command;
use crate::engine::errands::Announced;
use crate::engine::server::Server;
use crate::outside::clock::Instant;
use snug_lua::{Failed, Machine, Stack, Table, Watch};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Functions that are kept compiled; of more, all are forgotten.
const COMPILED_MAX: usize = 1_000;

/// Bytes in use after a script from which on the collector runs at once.
const LARGE: usize = 8 << 20;

/// Numbers of what is kept in the interpreter.
pub(super) mod kept {
    /// A table: compiled functions by their scripts' numbers, and libraries by theirs.
    pub(crate) const COMPILED: i32 = 1;
    /// The globals that scripts see.
    pub(crate) const GLOBALS: i32 = 2;
    /// The table behind them.
    pub(crate) const REAL: i32 = 3;
    /// The handler of errors.
    pub(crate) const HANDLER: i32 = 4;
    /// The table of functions of the library that is being loaded.
    pub(crate) const LOADING: i32 = 5;
}

/// An interpreter and what comes with it.
#[derive(Debug)]
pub(crate) struct Interpreter {
    pub machine: Machine,
    generation: u64,
    compiled: usize,
    /// Bytes in use before any script.
    fresh: usize,
    /// What calls of commands need room for, from script to script.
    pub(super) buffers: Option<Box<Buffers>>,
    pub(super) watcher: Rc<Watcher>,
}

thread_local! {
    /// The worker's, unless a script runs in it.
    static OWN: RefCell<Option<Interpreter>> = const { RefCell::new(None) };
}

impl Interpreter {
    fn new(server: &Server) -> Self {
        let mut machine = Machine::new();
        machine.with(|stack| {
            host::add_library(stack);
            stack.push_table(0, 0);
            stack.keep(kept::COMPILED);
            stack.push_globals();
            stack.keep(kept::REAL);
            stack.push_native(on_error);
            stack.keep(kept::HANDLER);
        });
        machine.protect(Table::Library("redis"));
        machine.protect(Table::Globals);
        machine.with(|stack| {
            stack.push_globals();
            stack.keep(kept::GLOBALS);
        });
        let fresh = machine.used();
        let generation = server.scripts.generation.load(Relaxed);
        let watcher = Rc::default();
        Self { machine, generation, compiled: 0, fresh, buffers: None, watcher }
    }

    /// The thread's own, or a new one.
    pub(super) fn take(server: &Server) -> Self {
        let own = OWN.with_borrow_mut(Option::take);
        let generation = server.scripts.generation.load(Relaxed);
        own.filter(|own| own.generation == generation).unwrap_or_else(|| Self::new(server))
    }

    /// To be used again by this thread. What a script has left behind is freed.
    pub(super) fn give_back(mut self) {
        if self.machine.used() > self.fresh + LARGE {
            self.machine.collect();
        }
        if self.compiled > COMPILED_MAX {
            self.compiled = 0;
            self.machine.with(|stack| {
                stack.push_table(0, 0);
                stack.keep(kept::COMPILED);
            });
        }
        OWN.with_borrow_mut(|own| *own = Some(self));
    }

    /// Counts a function that was compiled.
    pub(super) fn compiled(&mut self) {
        self.compiled += 1;
    }
}

/// Pushes the function of a program of that number, compiled if it is not yet; whether
/// it was.
pub(super) fn push_function(
    stack: &mut Stack<'_>,
    number: u64,
    program: &[u8],
    name: &[u8],
) -> Result<bool, Failed> {
    stack.push_kept(kept::COMPILED);
    stack.raw_get_item(-1, number as i32);
    let new = stack.is_nil(-1);
    if new {
        stack.pop(1);
        stack.load(program, name)?;
        stack.push_copy(-1);
        stack.raw_set_item(-3, number as i32);
    }
    stack.remove(-2);
    Ok(new)
}

/// Has the function on top see the globals that all scripts see, whatever others did
/// with `setfenv`.
pub(super) fn fresh_globals(stack: &mut Stack<'_>) {
    stack.push_kept(kept::GLOBALS);
    stack.push_copy(-1);
    stack.set_globals();
    stack.set_environment(-2);
}

/// Has what runs see the globals that all scripts see, and no script's keys.
pub(super) fn library_globals(stack: &mut Stack<'_>) {
    stack.push_kept(kept::GLOBALS);
    stack.set_globals();
    for name in ["KEYS", "ARGV"] {
        stack.push_nil();
        set_global(stack, name);
    }
}

/// Pushes what was registered under that number and name, if it was.
pub(super) fn push_registered(stack: &mut Stack<'_>, number: u64, name: &str) -> bool {
    stack.push_kept(kept::COMPILED);
    stack.raw_get_item(-1, number as i32);
    if !stack.is_nil(-1) {
        stack.raw_get_field(-1, name);
        stack.remove(-2);
    }
    stack.remove(-2);
    !stack.is_nil(-1)
}

/// Sets a global to the value on top.
pub(super) fn set_global(stack: &mut Stack<'_>, name: &str) {
    stack.push_kept(kept::REAL);
    stack.insert(-2);
    stack.raw_set_field(-2, name);
    stack.pop(1);
}

/// Whether a script text is a program.
pub(crate) fn check(server: &Server, program: &[u8], name: &[u8]) -> Result<(), Vec<u8>> {
    let mut interpreter = Interpreter::take(server);
    let checked = interpreter.machine.with(|stack| match stack.load(program, name) {
        Ok(()) => Ok(()),
        Err(Failed) => Err(stack.bytes(-1).unwrap_or_default().to_vec()),
    });
    interpreter.give_back();
    checked
}

/// What a script is, for others to be told if it takes long: kept from run to run, so
/// that what is short pays for no allocation.
#[derive(Debug, Default)]
pub(super) struct About {
    pub name: String,
    pub is_function: bool,
    /// The command that runs it.
    pub command: Option<&'static Command>,
    /// The slots of its keys, and whether it may touch others.
    pub slots: Vec<(usize, usize)>,
    pub everything: bool,
}

/// Watches a script that runs, and says when it is to end.
#[derive(Debug, Default)]
pub(super) struct Watcher {
    /// When it was first asked: a little after the script began.
    began: Cell<Option<Instant>>,
    /// The script is to be given up when it takes longer than [`SHORT`], unless it has
    /// written: it will be run aside.
    is_short: Cell<bool>,
    wrote: Cell<bool>,
    /// It was given up for that.
    gave_up: Cell<bool>,
    about: RefCell<About>,
    /// It runs aside, and others were told of it before it began.
    aside: RefCell<Option<Arc<Running>>>,
    /// It takes long on its worker, and others are told of it.
    announced: RefCell<Option<Announced>>,
    server: RefCell<Weak<Server>>,
}

/// For how long a script may hold its worker up, and those who wait for its keys.
pub(super) const SHORT: Duration = Duration::from_millis(5);

const KILLED: &str = "ERR Error running script: Script killed by user with SCRIPT KILL.";

/// Takes back what others were told of a script, when what it held is free.
#[derive(Debug)]
pub(super) struct Watching(Rc<Watcher>);

impl Drop for Watching {
    fn drop(&mut self) {
        drop(self.0.announced.take());
    }
}

impl Watcher {
    /// A script begins on its worker: one that is to be short, or one that is not run
    /// again.
    pub(super) fn begin(
        self: &Rc<Self>,
        server: &Server,
        is_short: bool,
        about: impl FnOnce(&mut About),
    ) -> Watching {
        self.reset(server, None);
        self.is_short.set(is_short);
        about(&mut self.about.borrow_mut());
        Watching(Rc::clone(self))
    }

    /// A script begins aside.
    pub(super) fn begin_aside(&self, server: &Server, running: &Arc<Running>) {
        self.reset(server, Some(Arc::clone(running)));
        self.is_short.set(false);
    }

    fn reset(&self, server: &Server, aside: Option<Arc<Running>>) {
        self.began.set(None);
        self.wrote.set(false);
        self.gave_up.set(false);
        *self.aside.borrow_mut() = aside;
        if self.server.borrow().strong_count() == 0 {
            *self.server.borrow_mut() = server.me.clone();
        }
    }

    /// What others know of the script, if they are told of it.
    fn running(&self) -> Option<Arc<Running>> {
        let aside = self.aside.borrow().clone();
        aside.or_else(|| self.announced.borrow().as_ref().map(|told| Arc::clone(&told.running)))
    }

    /// It has called a command that writes.
    pub(super) fn has_written(&self) {
        self.wrote.set(true);
        if let Some(running) = self.running() {
            running.has_written();
        }
    }

    /// It takes slots of other keys than its own from now on.
    pub(super) fn touches_everything(&self) {
        self.about.borrow_mut().everything = true;
        if let Some(running) = self.running() {
            running.touches_everything();
        }
    }

    pub(super) fn gave_up(&self) -> bool {
        self.gave_up.get()
    }

    /// Whether it was killed.
    pub(super) fn was_killed(&self) -> bool {
        self.running().is_some_and(|running| running.is_killed())
    }

    /// Whether it took long.
    pub(super) fn was_long(&self) -> bool {
        self.began.get().is_some_and(|began| began.elapsed() > SHORT)
    }

    /// Has others told of the script, which takes long and is not to be run again.
    fn announce(&self, began: Instant) {
        let Some(server) = self.server.borrow().upgrade() else { return };
        let about = self.about.borrow();
        let name = about.command.map(|command| command.full_name().into_bytes());
        let command = name.into_iter().chain([about.name.clone().into_bytes()]).collect();
        let touches = Touches::new(about.slots.clone(), about.everything);
        let kind = if about.is_function { Kind::Function } else { Kind::Script };
        let running = Running::new(&about.name, kind, command, began, touches);
        if self.wrote.get() {
            running.has_written();
        }
        *self.announced.borrow_mut() = Some(Announced::new(&server, Arc::new(running)));
    }
}

impl Watch for Watcher {
    fn look(&self) -> Option<&'static str> {
        let Some(began) = self.began.get() else {
            self.began.set(Some(Instant::now()));
            return None;
        };
        if let Some(running) = self.running() {
            let ending = || {
                let server = self.server.borrow().upgrade();
                server.is_none_or(|server| server.ending.load(Relaxed))
            };
            return (running.is_killed() || ending()).then_some(KILLED);
        }
        if began.elapsed() <= SHORT {
            return None;
        }
        if self.is_short.get() && !self.wrote.get() {
            self.gave_up.set(true);
            return Some(KILLED);
        }
        self.announce(began);
        None
    }
}
