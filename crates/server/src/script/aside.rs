//! Scripts that run aside (`engine/errands.rs`).
//!
//! A script goes there that is new, so that nothing is known of it, and one that has
//! run long before. What is short is run by the client's own worker from the second time
//! on.

use super::host::{Find, Who};
use super::run::{self, Program, Source};
use crate::engine::aside::{Kind, Running, Touches};
use crate::engine::command::Unanswered;
use crate::engine::context::Context;
use crate::engine::errands::{self, Errand};
use crate::engine::out::Out;
use crate::engine::scripts::{Habits, Needs, ScriptFlags};
use crate::outside::clock::Instant;
use crate::request::error::Error;
use std::ops::Range;
use std::sync::Arc;

/// A script that is to run aside, without its arguments.
struct Script {
    find: Find,
    short: bool,
    name: String,
    flags: ScriptFlags,
    habits: Arc<Habits>,
    read_only: bool,
    source: Source,
    keys: Range<usize>,
    rest: Range<usize>,
    who: Who,
}

/// Sends a program aside: its command is to be executed again when its reply is there.
pub(super) fn send(
    cx: &mut Context<'_>,
    program: &Program<'_>,
    find: Find,
    short: bool,
) -> Result<Unanswered, Error> {
    let script = Script {
        find,
        short,
        name: program.name.into(),
        flags: program.flags,
        habits: Arc::clone(program.habits),
        read_only: program.read_only,
        source: program.source.clone(),
        keys: program.keys.clone(),
        rest: program.rest.clone(),
        who: Who::of(cx.client()?),
    };
    errands::send(cx, program.args, move |errand| script.run(errand))
}

impl Script {
    fn run(self, errand: &mut Errand<'_>) -> Option<Result<Out, Error>> {
        let (args, store) = (errand.args, &errand.server.store);
        let mut out = Out::default();
        out.protocol = errand.caller.protocol;
        let program = Program {
            name: &self.name,
            flags: self.flags,
            habits: &self.habits,
            read_only: self.read_only,
            source: self.source.clone(),
            args,
            keys: self.keys.clone(),
            rest: self.rest.clone(),
        };
        loop {
            let place = |n| store.place(errand.caller.db, store.key(args.bytes(n)).slot());
            let places = program.keys.clone().map(place).collect();
            let touches = Touches::new(places, self.habits.needs() != Needs::Declared);
            let command = (0..args.len()).map(|n| args.bytes(n).to_vec()).collect();
            let is_function = matches!(program.source, Source::Function(..));
            let kind = if is_function { Kind::Function } else { Kind::Script };
            let running = Running::new(program.name, kind, command, Instant::now(), touches);
            let result = errand.step(running, |cx, running| {
                run::aside(cx, &program, self.find, self.short, (running, &self.who), &mut out)
            })?;
            // Else it needs more than was thought, and has not written.
            if let Some(result) = result {
                return Some(result.map(|()| out));
            }
        }
    }
}
