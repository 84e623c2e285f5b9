//! Libraries: what their first line says, and what they register when they run.

use super::host;
use super::machine::{self, Interpreter, kept};
use super::run::failure_text;
use crate::engine::libraries::{Function, Library};
use crate::engine::scripts::{Habits, ScriptFlags};
use crate::engine::server::Server;
use crate::outside::clock::Instant;
use crate::persist;
use crate::request::error::Error;
use snug_lua::{Answer, Host, Kind, Raise, Stack, Watch};
use snug_resp::split_args;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// For how long a library may run that is being loaded.
const LOADS_FOR: Duration = Duration::from_millis(500);

/// The name of libraries in Lua's errors.
pub(super) const CHUNK: &[u8] = b"@user_function";

const NAMES: &str =
    "can only contain letters, numbers, or underscores(_) and must be at least one character long";

fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

/// What a library's first line says: its name, and where the program begins.
pub(crate) fn head(code: &[u8]) -> Result<(String, usize), Error> {
    if !code.starts_with(b"#!") {
        return Err(Error::new("ERR Missing library metadata"));
    }
    let end = code.iter().position(|&byte| byte == b'\n');
    let end = end.ok_or(Error::new("ERR Invalid library metadata"))?;
    let words = split_args(&code[2..end]).ok_or(Error::new("ERR Invalid library metadata"))?;
    let mut words = words.iter().map(Vec::as_slice);
    let engine = words.next().unwrap_or_default();
    let mut name = None;
    for word in words {
        if word.len() < 5 || !word[..5].eq_ignore_ascii_case(b"name=") {
            let what = b"ERR Invalid metadata value given: ";
            return Err(Error::from([&what[..], word].concat()));
        }
        if name.replace(&word[5..]).is_some() {
            return Err(Error::new(
                "ERR Invalid metadata value, name argument was given multiple times",
            ));
        }
    }
    let name = name.ok_or(Error::new("ERR Library name was not given"))?;
    if !is_name(name) {
        return Err(Error::from(format!("ERR Library names {NAMES}")));
    }
    if !engine.eq_ignore_ascii_case(b"lua") {
        let what = b"ERR Engine '";
        return Err(Error::from([&what[..], engine, b"' not found"].concat()));
    }
    Ok((String::from_utf8_lossy(name).into_owned(), end))
}

/// Makes a library of its text: runs it, to learn what it registers.
pub(crate) fn make(server: &Server, code: &[u8]) -> Result<Library, Error> {
    let (name, begin) = head(code)?;
    let number = server.scripts.new_number();
    let mut interpreter = Interpreter::take(server);
    let registered = register(&mut interpreter, number, &code[begin..]);
    interpreter.give_back();
    let functions = registered?;
    if functions.is_empty() {
        return Err(Error::new("ERR No functions registered"));
    }
    Ok(Library { number, name, code: code.to_vec(), begin, functions })
}

/// The server's libraries, as they are saved and loaded with its keys.
struct Kept(Weak<Server>);

impl persist::Libraries for Kept {
    fn all(&self) -> Vec<Vec<u8>> {
        let all = self.0.upgrade().map(|server| server.libraries.all());
        all.into_iter().flatten().map(|library| library.code.clone()).collect()
    }

    fn load(&self, code: &[u8]) -> Result<(), String> {
        let server = self.0.upgrade().ok_or("the server ends")?;
        let told = |error: Error| String::from_utf8_lossy(error.text()).into_owned();
        let library = make(&server, code).map_err(told)?;
        server.libraries.load(library, true)
    }

    fn flush(&self) {
        if let Some(server) = self.0.upgrade() {
            server.libraries.flush();
        }
    }
}

/// Has libraries saved and loaded with everything else.
pub(crate) fn keep(server: &Arc<Server>) {
    // It is done once, at the start.
    let _ = server.persist.libraries.set(Box::new(Kept(Arc::downgrade(server))));
}

/// Has a library's text run in an interpreter, and keeps its callbacks there by its
/// number; what it registers.
pub(super) fn register(
    interpreter: &mut Interpreter,
    number: u64,
    program: &[u8],
) -> Result<Vec<Function>, Error> {
    let mut loading = Loading { functions: Vec::new(), text: program.to_vec() };
    let watch = Rc::new(Deadline { began: Cell::new(Instant::now()) });
    let work = |stack: &mut Stack<'_>| {
        stack.push_kept(kept::COMPILED);
        stack.push_table(0, 4);
        stack.push_copy(-1);
        // Where what is registered is put: see `Loading::register`.
        stack.keep(kept::LOADING);
        stack.raw_set_item(-2, number as i32);
        stack.pop(1);
        stack.push_kept(kept::HANDLER);
        if stack.load(program, CHUNK).is_err() {
            let why = stack.bytes(-1).unwrap_or_default();
            return Err(Error::from([&b"ERR Error compiling function: "[..], why].concat()));
        }
        machine::library_globals(stack);
        let handler = stack.top() - 1;
        stack.call_with(0, Some(0), handler).map_err(|_| {
            let text = failure_text(stack);
            Error::from([&b"ERR Error registering functions: "[..], &text].concat())
        })
    };
    let result = match interpreter.machine.run(watch, &mut loading, work) {
        Ok(result) => result,
        Err(broken) => std::panic::resume_unwind(broken.0),
    };
    interpreter.compiled();
    if interpreter.machine.was_ended() {
        return Err(Error::new("ERR Error registering functions: ERR FUNCTION LOAD timeout"));
    }
    result.map(|()| loading.functions)
}

struct Deadline {
    began: Cell<Instant>,
}

impl Watch for Deadline {
    fn look(&self) -> Option<&'static str> {
        (self.began.get().elapsed() > LOADS_FOR).then_some("ERR FUNCTION LOAD timeout")
    }
}

/// A library that is being loaded: all it may do is to register functions.
struct Loading {
    functions: Vec<Function>,
    text: Vec<u8>,
}

impl Host for Loading {
    fn answer(&mut self, stack: &mut Stack<'_>, which: usize) -> Answer {
        host::while_loading(stack, which, |stack| self.register(stack))
    }
}

fn wrong(stack: &mut Stack<'_>, why: &str) -> Raise {
    host::raised(stack, format!("ERR {why}").as_bytes())
}

impl Loading {
    /// `redis.register_function`: name and callback, or a table with these and more.
    fn register(&mut self, stack: &mut Stack<'_>) -> Answer {
        let (name, description, flags) = match stack.top() {
            1 => Self::named(stack)?,
            2 => {
                let Some(name) = stack.bytes(1).map(<[u8]>::to_vec) else {
                    return Err(wrong(
                        stack,
                        "first argument to redis.register_function must be a string",
                    ));
                };
                if stack.kind(2) != Kind::Function {
                    return Err(wrong(
                        stack,
                        "second argument to redis.register_function must be a function",
                    ));
                }
                (name, None, ScriptFlags::default())
            }
            _ => return Err(wrong(stack, "wrong number of arguments to redis.register_function")),
        };
        // The callback is on top.
        if !is_name(&name) {
            return Err(wrong(stack, &format!("Library names {NAMES}")));
        }
        let name = String::from_utf8_lossy(&name).into_owned();
        if self.functions.iter().any(|other| other.name.eq_ignore_ascii_case(&name)) {
            return Err(wrong(stack, "Function already exists in the library"));
        }
        stack.push_kept(kept::LOADING);
        stack.push_copy(-2);
        stack.raw_set_field(-2, &name);
        let habits = Arc::new(Habits::of(&self.text));
        self.functions.push(Function { name, description, flags, habits });
        Ok(0)
    }

    /// Named arguments: name, description and flags; the callback is left on top.
    #[allow(clippy::type_complexity)]
    fn named(stack: &mut Stack<'_>) -> Result<(Vec<u8>, Option<Vec<u8>>, ScriptFlags), Raise> {
        if stack.kind(1) != Kind::Table {
            return Err(wrong(
                stack,
                "calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).",
            ));
        }
        let (mut name, mut description, mut callback) = (None, None, false);
        let mut flags = ScriptFlags::default();
        stack.push_nil(); // The callback's place.
        stack.push_nil();
        while stack.next(1) {
            if stack.kind(-2) != Kind::String {
                return Err(wrong(
                    stack,
                    "named argument key given to redis.register_function is not a string",
                ));
            }
            let key = stack.bytes(-2).unwrap_or_default().to_ascii_lowercase();
            let text = stack.bytes(-1).map(<[u8]>::to_vec);
            match &key[..] {
                b"function_name" => match text {
                    Some(text) => name = Some(text),
                    None => {
                        return Err(wrong(
                            stack,
                            "function_name argument given to redis.register_function must be a string",
                        ));
                    }
                },
                b"description" => match text {
                    Some(text) => description = Some(text),
                    None => {
                        return Err(wrong(
                            stack,
                            "description argument given to redis.register_function must be a string",
                        ));
                    }
                },
                b"callback" => {
                    if stack.kind(-1) != Kind::Function {
                        return Err(wrong(
                            stack,
                            "callback argument given to redis.register_function must be a function",
                        ));
                    }
                    callback = true;
                    stack.push_copy(-1);
                    stack.replace(2);
                }
                b"flags" => {
                    if stack.kind(-1) != Kind::Table {
                        return Err(wrong(
                            stack,
                            "flags argument to redis.register_function must be a table representing function flags",
                        ));
                    }
                    for n in 1.. {
                        stack.raw_get_item(-1, n);
                        let flag = stack.bytes(-1).map(<[u8]>::to_vec);
                        let nil = stack.is_nil(-1);
                        stack.pop(1);
                        if nil {
                            break;
                        }
                        if !flag.is_some_and(|flag| flags.set(&flag)) {
                            return Err(wrong(stack, "unknown flag given"));
                        }
                    }
                }
                _ => return Err(wrong(stack, "unknown argument given to redis.register_function")),
            }
            stack.pop(1);
        }
        let Some(name) = name else {
            return Err(wrong(stack, "redis.register_function must get a function name argument"));
        };
        if !callback {
            return Err(wrong(stack, "redis.register_function must get a callback argument"));
        }
        stack.set_top(2);
        Ok((name, description, flags))
    }
}
