//! How Lua calls functions written in Rust, how their errors are raised, and how a script is
//! ended.
//!
//! An error is a value until nothing of the function's is left to drop; only then is it
//! raised, with the text and position that Lua's own errors have.

#![allow(unsafe_code)]

use super::stack::{Full, Stack};
use super::{Inner, SOON, TICK, inner_of, look};
use mlua_sys as ffi;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// A function written in Rust: takes its arguments from the stack, pushes its results
/// and returns how many there are.
pub type Native = fn(&mut Stack<'_>) -> Answer;

/// What a native function returns.
pub type Answer = Result<usize, Raise>;

/// An error that a native function raises.
#[derive(Debug)]
pub enum Raise {
    /// A text, with the position of the caller before it.
    Text(Vec<u8>),
    /// A bad argument, counted from 1, and why.
    Arg(usize, Vec<u8>),
    /// An argument of the wrong type, and what it should be.
    Type(usize, &'static str),
    /// The value on top of the stack.
    Top,
}

impl Raise {
    /// A text, with the position of the caller before it.
    pub fn text(text: impl Into<Vec<u8>>) -> Self {
        Self::Text(text.into())
    }

    /// A bad argument, counted from 1, and why.
    pub fn arg(at: usize, why: impl Into<Vec<u8>>) -> Self {
        Self::Arg(at, why.into())
    }
}

/// Called more often where more time than this lies between two calls, and less often
/// where a tenth of it does.
const PACE: Duration = Duration::from_millis(4);

/// Called every [`TICK`] instructions, and more often while these take long, as where two
/// strings of megabytes are compared. It asks the watch. Once the script is to end it is
/// called at every instruction: so the script ends although it catches the error.
pub(super) unsafe extern "C-unwind" fn hook(l: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {
    // SAFETY: called by Lua with a machine's state. Nothing here has anything to drop
    // when the error is raised.
    unsafe {
        let inner = inner_of(l);
        if look(inner).is_none() {
            keep_pace(l, inner);
            return;
        }
        for state in [l, inner.main.get()] {
            ffi::lua_sethook(state, Some(hook), ffi::LUA_MASKCOUNT, 1);
        }
        throw(l, inner);
    }
}

/// Has the hook called after a few instructions. Where it will be anyway it is left alone:
/// setting it begins the count anew, and a script that comes here again and again would
/// never be asked.
///
/// # Safety
/// The state is valid.
pub(super) unsafe fn ask_soon(l: *mut ffi::lua_State) {
    // SAFETY: by the caller's contract.
    unsafe {
        if ffi::lua_gethookcount(l) > SOON {
            ffi::lua_sethook(l, Some(hook), ffi::LUA_MASKCOUNT, SOON);
        }
    }
}

/// Has the hook called more or less often, as long as instructions take.
///
/// # Safety
/// The state is valid.
unsafe fn keep_pace(l: *mut ffi::lua_State, inner: &Inner) {
    let now = Instant::now();
    let Some(asked) = inner.asked.replace(Some(now)) else { return };
    let took = now - asked;
    // SAFETY: by the caller's contract.
    unsafe {
        let ticks = ffi::lua_gethookcount(l);
        let wanted = match ticks {
            _ if took > PACE => (ticks / 16).max(1),
            _ if took < PACE / 10 => ticks.saturating_mul(2).min(TICK),
            _ => ticks,
        };
        if wanted != ticks {
            ffi::lua_sethook(l, Some(hook), ffi::LUA_MASKCOUNT, wanted);
        }
    }
}

/// Ends a script. An error that is raised would be given to the handler of `xpcall`
/// first, which could run for ever, and within a hook nothing would stop it. Where
/// memory is short no handler is called: so an allocation fails.
///
/// # Safety
/// The state is valid, and nothing of the caller's is to be dropped.
pub(super) unsafe fn throw(l: *mut ffi::lua_State, inner: &Inner) -> ! {
    // SAFETY: by the caller's contract. Without the collector, which may allocate as
    // well, the allocation that fails is the userdata's.
    unsafe {
        ffi::lua_gc(l, ffi::LUA_GCSTOP, 0);
        inner.lenient.set(false);
        inner.failing.set(true);
        ffi::lua_newuserdata(l, 16);
        ffi::lua_error(l)
    }
}

/// The one C function: calls the native in its first upvalue and raises its error.
pub(super) unsafe extern "C-unwind" fn enter(l: *mut ffi::lua_State) -> c_int {
    // SAFETY: called by Lua with a machine's state; the upvalue was put there by
    // `push_native`. Where an error is raised nothing is left to be dropped.
    unsafe {
        let native = ffi::lua_touserdata(l, ffi::lua_upvalueindex(1));
        let native: Native = std::mem::transmute(native);
        let inner = inner_of(l);
        let was = inner.lenient.replace(true);
        let answer = catch_unwind(AssertUnwindSafe(|| native(&mut Stack::new(l))));
        if inner.heavy.take() && inner.is_watched() {
            // This may be a coroutine, which counts by itself.
            ask_soon(l);
        }
        match answer {
            Ok(Ok(results)) => {
                inner.lenient.set(was);
                if was || inner.used.get() <= inner.limit.get() {
                    return results as c_int;
                }
                ffi::lua_settop(l, 0);
                ffi::lua_pushlstring_(l, c"not enough memory".as_ptr(), 17);
                ffi::lua_error(l);
            }
            Ok(Err(raise)) => push_raise(l, raise),
            Err(payload) if payload.is::<Full>() => {
                ffi::lua_settop(l, 0);
                ffi::lua_pushlstring_(l, c"stack overflow".as_ptr(), 14);
            }
            Err(payload) => {
                *inner.panic.borrow_mut() = Some(payload);
                inner.ended.set(true);
            }
        }
        if inner.ended.get() {
            throw(l, inner);
        }
        inner.lenient.set(was);
        ffi::lua_error(l)
    }
}

/// Pushes an error, with the caller's position where it is to have one. What the native had
/// on the stack, which may be full, is taken away.
///
/// # Safety
/// The state is valid and the allocator lenient.
unsafe fn push_raise(l: *mut ffi::lua_State, raise: Raise) {
    // SAFETY: by the caller's contract. Room for three values is left by those that go, or
    // by Lua, which gives every native room for 20.
    unsafe {
        let stack = &mut Stack::new(l);
        let text = match raise {
            Raise::Top => return,
            Raise::Text(text) => text,
            Raise::Arg(at, why) => bad_argument(stack, at, &why),
            Raise::Type(at, wanted) => {
                let got = stack.type_name(at as isize).to_owned();
                bad_argument(stack, at, format!("{wanted} expected, got {got}").as_bytes())
            }
        };
        ffi::lua_settop(l, 0);
        ffi::luaL_where(l, 1);
        ffi::lua_pushlstring_(l, text.as_ptr().cast(), text.len());
        ffi::lua_concat(l, 2);
    }
}

/// What Lua says of a bad argument.
fn bad_argument(stack: &mut Stack<'_>, mut at: usize, why: &[u8]) -> Vec<u8> {
    let (name, is_method) = stack.own_name();
    if is_method {
        at -= 1;
        if at == 0 {
            return [b"calling '", &name[..], b"' on bad self (", why, b")"].concat();
        }
    }
    let head = format!("bad argument #{at} to '").into_bytes();
    [&head[..], &name, b"' (", why, b")"].concat()
}
