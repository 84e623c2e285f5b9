//! The base library, as far as Lua's own would let a script do harm: change what others
//! share, parse binary chunks, stop the collector, overflow the stack.

use super::Functions;
use crate::machine::{Answer, Failed, Kind, Raise, Stack, VALUES_MAX};

const FUNCTIONS: Functions = &[
    ("collectgarbage", collect_garbage),
    ("load", load),
    ("loadstring", load_string),
    ("pcall", pcall),
    ("xpcall", xpcall),
    ("rawset", raw_set),
    ("setmetatable", set_metatable),
    ("unpack", unpack),
];

/// Somebody writes to a table that is to be read only.
pub(crate) fn readonly(_: &mut Stack<'_>) -> Answer {
    Err(Raise::text("Attempt to modify a readonly table"))
}

/// Somebody reads a global that there is not.
pub(crate) fn missing(stack: &mut Stack<'_>) -> Answer {
    let name = stack.bytes(2).unwrap_or_default();
    let what = b"Script attempted to access nonexistent global variable '";
    Err(Raise::text([&what[..], name, b"'"].concat()))
}

/// Refuses to change the table that is argument `at`, if it is read only.
pub(super) fn changeable(stack: &mut Stack<'_>, at: isize) -> Result<(), Raise> {
    if !stack.is_protected(at) {
        return Ok(());
    }
    // With no position, as Redis raises it from a function.
    stack.push_bytes("Attempt to modify a readonly table");
    Err(Raise::Top)
}

fn raw_set(stack: &mut Stack<'_>) -> Answer {
    stack.check_table(1)?;
    for at in [2, 3] {
        if stack.kind(at as isize) == Kind::None {
            return Err(Raise::arg(at, "value expected"));
        }
    }
    changeable(stack, 1)?;
    stack.set_top(3);
    if stack.kind(2) == Kind::Nil {
        return Err(Raise::text("table index is nil"));
    }
    if stack.kind(2) == Kind::Number && stack.number(2).is_some_and(f64::is_nan) {
        return Err(Raise::text("table index is NaN"));
    }
    stack.raw_set(1);
    Ok(1)
}

fn set_metatable(stack: &mut Stack<'_>) -> Answer {
    stack.check_table(1)?;
    let kind = stack.kind(2);
    if kind != Kind::Nil && kind != Kind::Table {
        return Err(Raise::arg(2, "nil or table expected"));
    }
    changeable(stack, 1)?;
    if stack.push_metatable(1) {
        stack.raw_get_field(-1, "__metatable");
        if !stack.is_nil(-1) {
            return Err(Raise::text("cannot change a protected metatable"));
        }
    }
    stack.set_top(2);
    stack.set_metatable(1);
    Ok(1)
}

/// Adds the functions to the globals on top of the stack.
pub(super) fn add(stack: &mut Stack<'_>) {
    super::add(stack, FUNCTIONS);
    stack.raw_get_field(-1, "next");
    stack.push_closure(pairs, 1);
    stack.raw_set_field(-2, "pairs");
}

/// `pairs`, which looks behind a protected table; what it gives away is never that.
fn pairs(stack: &mut Stack<'_>) -> Answer {
    stack.check_table(1)?;
    stack.set_top(1);
    if stack.is_protected(1) {
        stack.push_behind(1);
        stack.push_closure(next_behind, 1);
    } else {
        stack.push_upvalue(2);
    }
    stack.insert(1);
    stack.push_nil();
    Ok(3)
}

/// The next key of the table that is an upvalue, and its value.
fn next_behind(stack: &mut Stack<'_>) -> Answer {
    stack.set_top(2);
    stack.push_upvalue(2);
    let valid = stack.is_nil(2) || {
        stack.push_copy(2);
        stack.raw_get(3);
        let there = !stack.is_nil(-1);
        stack.pop(1);
        there
    };
    if !valid {
        return Err(Raise::text("invalid key to 'next'"));
    }
    stack.insert(2);
    if stack.next(2) {
        return Ok(2);
    }
    stack.push_nil();
    Ok(1)
}

/// `xpcall`. Lua's own pushes a value where the results may have left no room.
fn xpcall(stack: &mut Stack<'_>) -> Answer {
    if stack.top() < 2 {
        return Err(Raise::arg(2, "value expected"));
    }
    stack.set_top(2);
    stack.insert(1);
    let called = stack.call_with(0, None, 1);
    if stack.is_ended() {
        return Err(stack.end());
    }
    stack.push_boolean(called.is_ok());
    stack.insert(1);
    stack.remove(2);
    Ok(stack.top())
}

/// `pcall`, which gives an error of Redis's, a table, as its text. It does not catch
/// the end of a script.
fn pcall(stack: &mut Stack<'_>) -> Answer {
    let top = stack.top();
    if top == 0 {
        // Redis calls what it keeps the result's place with.
        stack.push_boolean(false);
        stack.push_bytes("attempt to call a boolean value");
        return Ok(2);
    }
    let called = stack.call(top - 1, None);
    if stack.is_ended() {
        return Err(stack.end());
    }
    if called.is_err() {
        if stack.kind(-1) == Kind::Table {
            stack.raw_get_field(-1, "err");
            if stack.bytes(-1).is_some() {
                stack.remove(-2);
            } else {
                stack.pop(1);
            }
        }
        stack.push_boolean(false);
        stack.insert(-2);
        return Ok(2);
    }
    stack.push_boolean(true);
    stack.insert(1);
    Ok(stack.top())
}

fn unpack(stack: &mut Stack<'_>) -> Answer {
    stack.check_table(1)?;
    let from = stack.optional_int(2, 1)?;
    let to = match stack.is_nil(3) {
        true => stack.raw_len(1) as i64,
        false => stack.check_int(3)?,
    };
    // As C integers, which is what Lua reads.
    let (from, to) = (clamp(from), clamp(to));
    if from > to {
        return Ok(0);
    }
    let values = (to - from + 1) as usize;
    if values > VALUES_MAX || !stack.push_items(1, from as i32..=to as i32) {
        return Err(Raise::text("too many results to unpack"));
    }
    Ok(values)
}

/// An integer as the nearest that a C `int` can be.
pub(super) fn clamp(n: i64) -> i64 {
    n.clamp(i32::MIN.into(), i32::MAX.into())
}

/// What became of parsing: the function, or nil and why not.
fn loaded(stack: &mut Stack<'_>, loaded: Result<(), Failed>) -> usize {
    if loaded.is_ok() {
        return 1;
    }
    stack.push_nil();
    stack.insert(-2);
    2
}

fn load_string(stack: &mut Stack<'_>) -> Answer {
    let source = stack.check_bytes(1)?.to_vec();
    let name = match stack.is_nil(2) {
        true => source.clone(),
        false => stack.check_bytes(2)?.to_vec(),
    };
    let parsed = stack.load(&source, &name);
    Ok(loaded(stack, parsed))
}

fn load(stack: &mut Stack<'_>) -> Answer {
    if stack.kind(1) != Kind::Function {
        return Err(Raise::Type(1, "function"));
    }
    let name = match stack.is_nil(2) {
        true => b"=(load)".to_vec(),
        false => stack.check_bytes(2)?.to_vec(),
    };
    let mut source = Vec::new();
    loop {
        stack.set_top(1);
        stack.push_copy(1);
        if stack.call(0, Some(1)).is_err() {
            if stack.is_ended() {
                return Err(Raise::Top);
            }
            return Ok(loaded(stack, Err(Failed)));
        }
        match (stack.is_nil(-1), stack.bytes(-1)) {
            (true, _) | (_, Some([])) => break,
            (_, Some(piece)) => source.extend_from_slice(piece),
            (_, None) => {
                return Err(Raise::text("reader function must return a string"));
            }
        }
        stack.afford(source.len())?;
        stack.check()?;
    }
    let parsed = stack.load(&source, &name);
    Ok(loaded(stack, parsed))
}

/// `collectgarbage`: how the collector works is not a script's to change.
fn collect_garbage(stack: &mut Stack<'_>) -> Answer {
    let what = match stack.is_nil(1) {
        true => "collect".to_owned(),
        false => String::from_utf8_lossy(stack.check_bytes(1)?).into_owned(),
    };
    match &what[..] {
        "collect" => {
            stack.collect();
            stack.push_number(0.0);
        }
        "count" => {
            let used = stack.memory_used();
            stack.push_number(used as f64 / 1024.0);
        }
        "step" => {
            stack.collect();
            stack.push_boolean(true);
        }
        "stop" | "restart" | "setpause" | "setstepmul" => stack.push_number(0.0),
        other => return Err(Raise::arg(1, format!("invalid option '{other}'"))),
    }
    Ok(1)
}
