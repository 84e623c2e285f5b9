//! The libraries: Lua's own where they are harmless, ours where they are not, and
//! those that Redis's scripts expect besides.

// A native may fail, and so all have one signature; numbers are compared as Lua does.
#![allow(clippy::unnecessary_wraps, clippy::float_cmp)]

pub(crate) mod base;
mod bit;
mod cjson;
mod cmsgpack;
mod math;
pub(crate) mod number;
mod pattern;
mod strings;
mod structs;
mod tables;

use crate::machine::{Machine, Native, Stack, Table};
use mlua_sys as ffi;

/// Functions with their names.
type Functions = &'static [(&'static str, Native)];

/// Forgets what a script has configured in libraries.
pub(crate) fn reset() {
    cjson::reset();
}

/// Opens everything.
pub(crate) fn open(machine: &mut Machine) {
    for library in [
        ffi::luaopen_base,
        ffi::luaopen_table,
        ffi::luaopen_string,
        ffi::luaopen_math,
        ffi::luaopen_os,
    ] {
        machine.open(library);
    }
    machine.with(|stack| {
        stack.push_globals();
        // What reaches files, and userdata whose `__gc` runs at any time.
        for name in ["dofile", "loadfile", "print", "newproxy"] {
            stack.push_nil();
            stack.raw_set_field(-2, name);
        }
        base::add(stack);
        stack.pop(1);
        keep(stack, "os", &["clock"]);
        within(stack, "string", strings::add);
        within(stack, "table", tables::add);
        within(stack, "math", |stack| add(stack, math::FUNCTIONS));
        for (name, functions) in [
            ("bit", bit::FUNCTIONS),
            ("cjson", cjson::FUNCTIONS),
            ("cmsgpack", cmsgpack::FUNCTIONS),
            ("struct", structs::FUNCTIONS),
        ] {
            stack.push_globals();
            stack.push_table(0, functions.len() + 4);
            stack.raw_set_field(-2, name);
            stack.pop(1);
            within(stack, name, |stack| add(stack, functions));
        }
        within(stack, "cjson", cjson::add_fields);
        within(stack, "cmsgpack", cmsgpack::add_fields);
        strings::protect_metatable(stack);
    });
    for name in ["string", "table", "math", "os", "coroutine", "bit", "cjson", "cmsgpack", "struct"]
    {
        machine.protect(Table::Library(name));
    }
}

/// Adds functions to the table on top.
fn add(stack: &mut Stack<'_>, functions: Functions) {
    for (name, native) in functions {
        stack.push_native(*native);
        stack.raw_set_field(-2, name);
    }
}

/// Works with a library on top of the stack.
fn within(stack: &mut Stack<'_>, library: &str, work: impl FnOnce(&mut Stack<'_>)) {
    stack.push_globals();
    stack.raw_get_field(-1, library);
    work(stack);
    stack.pop(2);
}

/// Leaves only some functions of a library.
fn keep(stack: &mut Stack<'_>, library: &str, names: &[&str]) {
    stack.push_globals();
    stack.raw_get_field(-1, library);
    stack.push_table(0, names.len());
    for name in names {
        stack.raw_get_field(-2, name);
        stack.raw_set_field(-2, name);
    }
    stack.raw_set_field(-3, library);
    stack.pop(2);
}
