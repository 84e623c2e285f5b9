//! The interpreter and its stack: all that is unsafe about Lua.
//!
//! # Errors
//!
//! Lua raises errors by `longjmp`, which must not leave out a Rust frame that has
//! something to drop. Two rules see to it. While Rust code works on a stack, no
//! allocation fails ([`Inner::lenient`]), and a [`Stack`] has raw access only, which
//! raises nothing else. And what may raise (a call, a chunk to be parsed) is called in
//! protected mode, and its error returned. A native function so returns its error as a
//! value ([`Raise`]); [`enter`] raises it when all that the function had is dropped.
//!
//! # What natives borrow
//!
//! Strings are borrowed from the stack for as long as the stack is not changed: methods
//! that change it take `&mut self`.

#![allow(unsafe_code)]

use mlua_sys as ffi;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::rc::Rc;

/// After how many instructions the watch is asked.
pub const TICK: c_int = 1_000;

/// The most values that a function may return or be called with, as in Lua.
pub(crate) const VALUES_MAX: usize = 7_999;

/// Who decides whether a script may go on.
pub trait Watch {
    /// Why it may not, if it may not: asked again and again until the script has ended.
    fn look(&self) -> Option<&'static str>;
}

/// Who runs a script, as natives reach it through [`Stack::lend`].
pub trait Host {
    /// Answers a native function that is the host's, the one of that number.
    fn answer(&mut self, stack: &mut Stack<'_>, which: usize) -> Answer;
}

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

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    None,
    Nil,
    Boolean,
    Number,
    String,
    Table,
    Function,
    Other,
}

impl Kind {
    /// As Lua calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "no value",
            Self::Nil => "nil",
            Self::Boolean => "boolean",
            Self::Number => "number",
            Self::String => "string",
            Self::Table => "table",
            Self::Function => "function",
            Self::Other => "userdata",
        }
    }
}

/// A protected call has failed; the error is on top of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// A library, or the globals, as a table that others may only read.
#[derive(Clone, Copy, Debug)]
pub enum Table<'n> {
    /// All globals.
    Globals,
    /// A library of that name.
    Library(&'n str),
}

/// What a native function panicked with: the machine is not to be used again.
pub struct Broken(pub Box<dyn Any + Send>);

impl std::fmt::Debug for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Broken")
    }
}

/// What a machine's allocator, hook and natives share.
struct Inner {
    used: Cell<usize>,
    limit: Cell<usize>,
    /// Rust code is at work: no allocation fails.
    lenient: Cell<bool>,
    /// The script is to end, and will not be let catch it.
    ended: Cell<bool>,
    /// The next allocation fails: see [`throw`].
    failing: Cell<bool>,
    main: Cell<*mut ffi::lua_State>,
    watch: RefCell<Option<Rc<dyn Watch>>>,
    host: Cell<Option<NonNull<dyn Host>>>,
    panic: RefCell<Option<Box<dyn Any + Send>>>,
    /// Tables that scripts may only read: the addresses of what stands for them.
    protected: RefCell<Vec<*const c_void>>,
}

/// One interpreter. It belongs to the thread that made it.
pub struct Machine {
    l: *mut ffi::lua_State,
    inner: Box<Inner>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("used", &self.used()).finish_non_exhaustive()
    }
}

/// Lua's allocator: Rust's, with a limit.
unsafe extern "C" fn allocate(
    ud: *mut c_void,
    ptr: *mut c_void,
    old: usize,
    new: usize,
) -> *mut c_void {
    // SAFETY: `ud` is the machine's `Inner`, which outlives its state.
    let inner = unsafe { &*ud.cast::<Inner>() };
    let old = if ptr.is_null() { 0 } else { old };
    let used = inner.used.get() - old + new;
    let refused = used > inner.limit.get() && !inner.lenient.get();
    if new > old && (refused || inner.failing.take()) {
        return std::ptr::null_mut();
    }
    // SAFETY: Lua gives the size of what it had allocated, and 16 is its alignment.
    let layout = |size| unsafe { std::alloc::Layout::from_size_align_unchecked(size, 16) };
    // SAFETY: sizes are not 0 where something is allocated, and as they were else.
    let moved: *mut c_void = unsafe {
        match (old, new) {
            (0, 0) => std::ptr::null_mut(),
            (_, 0) => {
                std::alloc::dealloc(ptr.cast(), layout(old));
                std::ptr::null_mut()
            }
            (0, _) => std::alloc::alloc(layout(new)).cast(),
            _ => std::alloc::realloc(ptr.cast(), layout(old), new).cast(),
        }
    };
    if new == 0 || !moved.is_null() {
        inner.used.set(used);
    }
    moved
}

/// # Safety
/// The state is a machine's, which is alive.
unsafe fn inner_of<'l>(l: *mut ffi::lua_State) -> &'l Inner {
    let mut ud = std::ptr::null_mut();
    // SAFETY: the state is valid; its allocator's data is the machine's `Inner`.
    unsafe {
        ffi::lua_getallocf(l, &raw mut ud);
        &*ud.cast::<Inner>()
    }
}

/// Asked every [`TICK`] instructions, and at every instruction once the script is to
/// end: so it ends although it catches the error.
unsafe extern "C-unwind" fn hook(l: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {
    // SAFETY: called by Lua with a machine's state. Nothing here has anything to drop
    // when the error is raised.
    unsafe {
        let inner = inner_of(l);
        if look(inner).is_none() {
            return;
        }
        for state in [l, inner.main.get()] {
            ffi::lua_sethook(state, Some(hook), ffi::LUA_MASKCOUNT, 1);
        }
        throw(l, inner);
    }
}

/// Ends a script. An error that is raised would be given to the handler of `xpcall`
/// first, which could run for ever, and within a hook nothing would stop it. Where
/// memory is short no handler is called: so an allocation fails.
///
/// # Safety
/// The state is valid, and nothing of the caller's is to be dropped.
unsafe fn throw(l: *mut ffi::lua_State, inner: &Inner) -> ! {
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

/// Why the script is to end, if it is.
fn look(inner: &Inner) -> Option<&'static str> {
    if inner.ended.get() {
        return Some("");
    }
    let watch = inner.watch.try_borrow().ok()?;
    let why = watch.as_ref()?.look();
    if why.is_some() {
        inner.ended.set(true);
    }
    why
}

/// The one C function: calls the native in its first upvalue and raises its error.
unsafe extern "C-unwind" fn enter(l: *mut ffi::lua_State) -> c_int {
    // SAFETY: called by Lua with a machine's state; the upvalue was put there by
    // `push_native`. Where an error is raised nothing is left to be dropped.
    unsafe {
        let native = ffi::lua_touserdata(l, ffi::lua_upvalueindex(1));
        let native: Native = std::mem::transmute(native);
        let inner = inner_of(l);
        let was = inner.lenient.replace(true);
        let answer = catch_unwind(AssertUnwindSafe(|| native(&mut Stack::new(l))));
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

/// Gives the value of a key of a table, as an expression of Lua would have it.
unsafe extern "C-unwind" fn get_any(l: *mut ffi::lua_State) -> c_int {
    // SAFETY: called by Lua in protected mode, and nothing here is to be dropped.
    unsafe { ffi::lua_gettable_(l, 1) };
    1
}

/// Pushes an error, with the caller's position where it is to have one.
///
/// # Safety
/// The state is valid and the allocator lenient.
unsafe fn push_raise(l: *mut ffi::lua_State, raise: Raise) {
    // SAFETY: by the caller's contract.
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

impl Machine {
    /// An interpreter with its libraries, none of which a script may change.
    pub fn new() -> Self {
        let inner = Box::new(Inner {
            used: Cell::new(0),
            limit: Cell::new(usize::MAX),
            lenient: Cell::new(true),
            ended: Cell::new(false),
            failing: Cell::new(false),
            main: Cell::new(std::ptr::null_mut()),
            watch: RefCell::default(),
            host: Cell::new(None),
            panic: RefCell::default(),
            protected: RefCell::default(),
        });
        // SAFETY: the allocator is given what it expects, and `inner` outlives the
        // state.
        let l = unsafe { ffi::lua_newstate(allocate, (&raw const *inner).cast_mut().cast()) };
        assert!(!l.is_null(), "no memory for an interpreter");
        inner.main.set(l);
        let mut machine = Self { l, inner };
        crate::libs::open(&mut machine);
        machine
    }

    /// Bytes that it has allocated.
    pub fn used(&self) -> usize {
        self.inner.used.get()
    }

    /// From how many more bytes than now on an allocation ends the script.
    pub fn set_limit(&mut self, more: usize) {
        self.inner.limit.set(self.used().saturating_add(more));
    }

    /// Opens one of Lua's own libraries.
    pub(crate) fn open(
        &mut self,
        library: unsafe extern "C-unwind" fn(*mut ffi::lua_State) -> c_int,
    ) {
        // SAFETY: no allocation fails, and opening a library raises nothing else.
        unsafe {
            ffi::lua_pushcclosure(self.l, library, 0);
            ffi::lua_call(self.l, 0, 0);
        }
    }

    /// Works on the stack, which is as it was afterwards.
    pub fn with<R>(&mut self, work: impl FnOnce(&mut Stack<'_>) -> R) -> R {
        // SAFETY: the state is valid, and nobody else works on it.
        let mut stack = unsafe { Stack::new(self.l) };
        let top = stack.top();
        stack.room(64);
        let result = work(&mut stack);
        stack.set_top(top);
        result
    }

    /// Runs a script: `work` works on the stack, watched and with a host that natives
    /// can reach.
    ///
    /// # Errors
    /// If a native panicked.
    pub fn run<R>(
        &mut self,
        watch: Rc<dyn Watch>,
        host: &mut (dyn Host + '_),
        work: impl FnOnce(&mut Stack<'_>) -> R,
    ) -> Result<R, Broken> {
        /// Takes host, watch and hook away, also when `work` panics.
        struct End<'m>(&'m Inner);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.host.set(None);
                self.0.watch.take();
                // SAFETY: the main state is alive as long as its machine.
                unsafe {
                    ffi::lua_sethook(self.0.main.get(), None, 0, 0);
                    if self.0.ended.get() {
                        self.0.lenient.set(true);
                        ffi::lua_gc(self.0.main.get(), ffi::LUA_GCRESTART, 0);
                    }
                };
            }
        }
        let host: NonNull<dyn Host + '_> = NonNull::from(host);
        // SAFETY: only the lifetime is changed; it is taken away before this returns.
        let host = unsafe {
            std::mem::transmute::<NonNull<dyn Host + '_>, NonNull<dyn Host + 'static>>(host)
        };
        crate::libs::reset();
        self.inner.ended.set(false);
        self.inner.host.set(Some(host));
        *self.inner.watch.borrow_mut() = Some(watch);
        // SAFETY: the state is valid.
        unsafe { ffi::lua_sethook(self.l, Some(hook), ffi::LUA_MASKCOUNT, TICK) };
        let end = End(&self.inner);
        // SAFETY: the state is valid, and nobody else works on it.
        let mut stack = unsafe { Stack::new(self.l) };
        let top = stack.top();
        stack.room(64);
        let result = work(&mut stack);
        stack.set_top(top);
        drop(end);
        match self.inner.panic.take() {
            Some(payload) => Err(Broken(payload)),
            None => Ok(result),
        }
    }

    /// Whether the last script was ended by its watch.
    pub fn was_ended(&self) -> bool {
        self.inner.ended.get()
    }

    /// Has a table, and what is hung on it, read only: it is replaced by an empty one
    /// whose reads go through to it.
    pub fn protect(&mut self, table: Table<'_>) {
        self.with(|stack| {
            match table {
                Table::Globals => stack.push_globals(),
                Table::Library(name) => {
                    stack.push_globals();
                    stack.raw_get_field(-1, name);
                    stack.remove(-2);
                }
            }
            if matches!(table, Table::Globals) {
                stack.push_table(0, 1);
                stack.push_native(crate::libs::base::missing);
                stack.raw_set_field(-2, "__index");
                stack.set_metatable(-2);
            }
            stack.push_protected();
            // SAFETY: there is a table on top.
            unsafe {
                match table {
                    Table::Globals => {
                        stack.push_globals();
                        stack.push_copy(-2);
                        stack.raw_set_field(-2, "_G");
                        stack.pop(1);
                        ffi::lua_replace(stack.l, ffi::LUA_GLOBALSINDEX);
                    }
                    Table::Library(name) => {
                        stack.push_globals();
                        stack.insert(-2);
                        stack.raw_set_field(-2, name);
                    }
                }
            }
        });
    }

    /// Frees what no script holds any more.
    pub fn collect(&mut self) {
        // SAFETY: the state is valid. There is no `__gc` that could raise an error.
        unsafe { ffi::lua_gc(self.l, ffi::LUA_GCCOLLECT, 0) };
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: it is this machine's, and nobody uses it any more. `__gc` does not
        // exist: no userdata has a metatable that a script could reach.
        unsafe { ffi::lua_close(self.l) };
    }
}

/// Lua's stack, as a native function sees it: its arguments from 1 on.
#[derive(Debug)]
pub struct Stack<'l> {
    l: *mut ffi::lua_State,
    /// How many values there were at first: Lua sees to it that [`SPARE`] more fit.
    first: c_int,
    of: PhantomData<&'l ()>,
}

/// Values that fit on the stack of a native beside its arguments, however many these
/// are. Lua's own number is 20.
const SPARE: c_int = 16;

/// What a native unwinds with whose stack is full.
struct Full;

#[allow(missing_docs)]
impl Stack<'_> {
    /// # Safety
    /// The state is a machine's and stays alive, and the allocator is lenient.
    unsafe fn new(l: *mut ffi::lua_State) -> Self {
        // SAFETY: by the caller's contract.
        let first = unsafe { ffi::lua_gettop(l) };
        Self { l, first, of: PhantomData }
    }

    fn inner(&self) -> &Inner {
        // SAFETY: the state is a machine's.
        unsafe { inner_of(self.l) }
    }

    /// How many values there are.
    pub fn top(&self) -> usize {
        // SAFETY: the state is valid, here and below.
        unsafe { ffi::lua_gettop(self.l) as usize }
    }

    pub fn set_top(&mut self, top: usize) {
        self.room(top.saturating_sub(self.top()));
        // SAFETY: there is room.
        unsafe { ffi::lua_settop(self.l, top as c_int) }
    }

    pub fn pop(&mut self, n: usize) {
        assert!(n <= self.top());
        // SAFETY: there are so many.
        unsafe { ffi::lua_settop(self.l, -(n as c_int) - 1) }
    }

    /// Makes room for so many more values; whether there can be so many.
    pub fn room(&mut self, values: usize) -> bool {
        let values = c_int::try_from(values).unwrap_or(c_int::MAX);
        // SAFETY: the state is valid and no allocation fails.
        unsafe { ffi::lua_checkstack(self.l, values) != 0 }
    }

    /// Pushes these items of a table, if the stack takes so many.
    pub(crate) fn push_items(
        &mut self,
        table: isize,
        items: std::ops::RangeInclusive<i32>,
    ) -> bool {
        let many = i64::from(*items.end()) - i64::from(*items.start()) + 1;
        let table = self.at(table);
        if !self.room(usize::try_from(many).unwrap_or_default()) {
            return false;
        }
        // SAFETY: there is room for all of them, and raw access raises nothing.
        items.for_each(|n| unsafe {
            ffi::lua_rawgeti_(self.l, table, n);
        });
        true
    }

    /// Room for a few more values, which there always is but in a runaway recursion, or
    /// beside thousands of arguments.
    fn one(&mut self) {
        // SAFETY: as above.
        let room = unsafe { ffi::lua_checkstack(self.l, 2) };
        if room == 0 && self.top() as c_int >= self.first + SPARE {
            std::panic::resume_unwind(Box::new(Full));
        }
    }

    /// A valid index: 1 to the top, or -1 down.
    fn at(&self, index: isize) -> c_int {
        let top = self.top() as isize;
        assert!(index != 0 && index <= top && -index <= top, "no value {index} of {top}");
        index as c_int
    }

    pub fn kind(&self, index: isize) -> Kind {
        // SAFETY: positive indices beyond the top are none; others are checked.
        let kind = unsafe {
            ffi::lua_type(self.l, if index > 0 { index as c_int } else { self.at(index) })
        };
        match kind {
            ffi::LUA_TNONE => Kind::None,
            ffi::LUA_TNIL => Kind::Nil,
            ffi::LUA_TBOOLEAN => Kind::Boolean,
            ffi::LUA_TNUMBER => Kind::Number,
            ffi::LUA_TSTRING => Kind::String,
            ffi::LUA_TTABLE => Kind::Table,
            ffi::LUA_TFUNCTION => Kind::Function,
            _ => Kind::Other,
        }
    }

    /// The type's name as Lua tells it.
    pub fn type_name(&self, index: isize) -> &'static str {
        // SAFETY: as in `kind`.
        let kind = unsafe { ffi::lua_type(self.l, index as c_int) };
        match kind {
            ffi::LUA_TTHREAD => "thread",
            _ => self.kind(index).name(),
        }
    }

    pub fn is_nil(&self, index: isize) -> bool {
        matches!(self.kind(index), Kind::Nil | Kind::None)
    }

    pub fn boolean(&self, index: isize) -> bool {
        // SAFETY: as in `kind`.
        unsafe { ffi::lua_toboolean(self.l, index as c_int) != 0 }
    }

    /// The value as a number: a number, or a string that is one.
    pub fn number(&self, index: isize) -> Option<f64> {
        match self.kind(index) {
            // SAFETY: there is such a value.
            Kind::Number => Some(unsafe { ffi::lua_tonumber(self.l, index as c_int) }),
            Kind::String => unsafe {
                let is = ffi::lua_isnumber(self.l, index as c_int) != 0;
                is.then(|| ffi::lua_tonumber(self.l, index as c_int))
            },
            _ => None,
        }
    }

    /// The bytes of a string; of a number too, which becomes a string in its place.
    pub fn bytes(&self, index: isize) -> Option<&[u8]> {
        if !matches!(self.kind(index), Kind::String | Kind::Number) {
            return None;
        }
        let mut len = 0;
        // SAFETY: there is such a value, and no allocation fails. The string stays
        // where it is as long as it is on the stack, which is not changed meanwhile.
        unsafe {
            let ptr = ffi::lua_tolstring(self.l, index as c_int, &raw mut len);
            Some(std::slice::from_raw_parts(ptr.cast(), len))
        }
    }

    /// The number of items of a table, or bytes of a string, with no metamethod.
    pub fn raw_len(&self, index: isize) -> usize {
        // SAFETY: there is such a value.
        unsafe { ffi::lua_objlen(self.l, self.at(index)) }
    }

    pub fn push_nil(&mut self) {
        self.one();
        // SAFETY: there is room, here and below.
        unsafe { ffi::lua_pushnil(self.l) }
    }

    pub fn push_boolean(&mut self, value: bool) {
        self.one();
        unsafe { ffi::lua_pushboolean(self.l, value.into()) }
    }

    pub fn push_number(&mut self, value: f64) {
        self.one();
        unsafe { ffi::lua_pushnumber(self.l, value) }
    }

    pub fn push_bytes(&mut self, bytes: impl AsRef<[u8]>) {
        self.one();
        let bytes = bytes.as_ref();
        unsafe { ffi::lua_pushlstring_(self.l, bytes.as_ptr().cast::<c_char>(), bytes.len()) }
    }

    /// Pushes a part of the string at `index`.
    pub fn push_part(&mut self, index: isize, range: Range<usize>) {
        self.one();
        let part = self.bytes(index).map_or(&[][..], |bytes| &bytes[range]);
        let (ptr, len) = (part.as_ptr(), part.len());
        // SAFETY: the string lies still while it is on the stack, which nothing takes
        // from here.
        unsafe { ffi::lua_pushlstring_(self.l, ptr.cast(), len) }
    }

    pub fn push_native(&mut self, native: Native) {
        self.push_closure(native, 0);
    }

    /// Pushes a native function that has the uppermost values as upvalues, from 2 on.
    pub fn push_closure(&mut self, native: Native, upvalues: usize) {
        self.one();
        unsafe {
            ffi::lua_pushlightuserdata(self.l, native as *mut c_void);
            ffi::lua_insert(self.l, -(upvalues as c_int) - 1);
            ffi::lua_pushcclosure(self.l, enter, upvalues as c_int + 1);
        }
    }

    /// Pushes an upvalue of the native that runs, from 2 on.
    pub fn push_upvalue(&mut self, n: usize) {
        self.one();
        unsafe { ffi::lua_pushvalue(self.l, ffi::lua_upvalueindex(n as c_int)) }
    }

    /// Puts the value on top into an upvalue of the native that runs.
    pub fn set_upvalue(&mut self, n: usize) {
        assert!(self.top() > 0);
        unsafe { ffi::lua_replace(self.l, ffi::lua_upvalueindex(n as c_int)) }
    }

    /// `cjson.null`: a null pointer.
    pub(crate) fn push_null(&mut self) {
        self.one();
        unsafe { ffi::lua_pushlightuserdata(self.l, std::ptr::null_mut()) }
    }

    /// Whether the value is `cjson.null`.
    pub(crate) fn is_null(&self, index: isize) -> bool {
        let index = self.at(index);
        // SAFETY: the index is valid.
        unsafe {
            ffi::lua_type(self.l, index) == ffi::LUA_TLIGHTUSERDATA
                && ffi::lua_touserdata(self.l, index).is_null()
        }
    }

    pub fn push_table(&mut self, items: usize, fields: usize) {
        self.one();
        unsafe { ffi::lua_createtable(self.l, items as c_int, fields as c_int) }
    }

    pub fn push_copy(&mut self, index: isize) {
        let index = self.at(index);
        self.one();
        unsafe { ffi::lua_pushvalue(self.l, index) }
    }

    /// The table of globals; protected, it is what stands for it.
    pub fn push_globals(&mut self) {
        self.one();
        unsafe { ffi::lua_pushvalue(self.l, ffi::LUA_GLOBALSINDEX) }
    }

    pub fn push_registry(&mut self) {
        self.one();
        unsafe { ffi::lua_pushvalue(self.l, ffi::LUA_REGISTRYINDEX) }
    }

    /// Takes the table on top as that of globals, for this thread.
    pub fn set_globals(&mut self) {
        assert_eq!(self.kind(-1), Kind::Table);
        unsafe { ffi::lua_replace(self.l, ffi::LUA_GLOBALSINDEX) }
    }

    /// Takes the table on top as the environment of the function at `index`.
    pub fn set_environment(&mut self, index: isize) {
        let index = self.at(index);
        assert_eq!(self.kind(-1), Kind::Table);
        unsafe { ffi::lua_setfenv(self.l, index) };
    }

    pub fn remove(&mut self, index: isize) {
        let index = self.at(index);
        unsafe { ffi::lua_remove(self.l, index) }
    }

    pub fn insert(&mut self, index: isize) {
        let index = self.at(index);
        unsafe { ffi::lua_insert(self.l, index) }
    }

    pub fn replace(&mut self, index: isize) {
        let index = self.at(index);
        unsafe { ffi::lua_replace(self.l, index) }
    }

    fn table_at(&self, index: isize) -> c_int {
        let index = self.at(index);
        // SAFETY: the index is valid.
        assert_eq!(unsafe { ffi::lua_type(self.l, index) }, ffi::LUA_TTABLE);
        index
    }

    /// Replaces the key on top with its value.
    pub fn raw_get(&mut self, table: isize) {
        let table = self.table_at(table);
        unsafe { ffi::lua_rawget_(self.l, table) }
    }

    pub fn raw_get_item(&mut self, table: isize, n: i32) {
        let table = self.table_at(table);
        self.one();
        unsafe { ffi::lua_rawgeti_(self.l, table, n) }
    }

    pub fn raw_get_field(&mut self, table: isize, field: &str) {
        let table = self.table_at(table);
        self.one();
        unsafe {
            ffi::lua_pushlstring_(self.l, field.as_ptr().cast(), field.len());
            ffi::lua_rawget_(self.l, if table < 0 { table - 1 } else { table });
        }
    }

    /// Sets the key below the value on top, and takes both. The key is neither nil nor
    /// not a number.
    pub fn raw_set(&mut self, table: isize) {
        let table = self.table_at(table);
        assert!(self.kind(-2) != Kind::Nil && !self.number(-2).is_some_and(f64::is_nan));
        unsafe { ffi::lua_rawset(self.l, table) }
    }

    pub fn raw_set_item(&mut self, table: isize, n: i32) {
        let table = self.table_at(table);
        unsafe { ffi::lua_rawseti_(self.l, table, n) }
    }

    pub fn raw_set_field(&mut self, table: isize, field: &str) {
        let table = self.table_at(table);
        self.one();
        unsafe {
            ffi::lua_pushlstring_(self.l, field.as_ptr().cast(), field.len());
            ffi::lua_insert(self.l, -2);
            ffi::lua_rawset(self.l, if table < 0 { table - 1 } else { table });
        }
    }

    /// Replaces the key on top with the next of a table and pushes its value; at the
    /// end it takes the key and is false. The key is nil or one that it gave.
    pub fn next(&mut self, table: isize) -> bool {
        let table = self.table_at(table);
        self.one();
        unsafe { ffi::lua_next(self.l, table) != 0 }
    }

    pub fn raw_equal(&self, a: isize, b: isize) -> bool {
        unsafe { ffi::lua_rawequal(self.l, a as c_int, b as c_int) != 0 }
    }

    /// Pushes a value's metatable, if it has one.
    pub fn push_metatable(&mut self, index: isize) -> bool {
        let index = self.at(index);
        self.one();
        unsafe { ffi::lua_getmetatable(self.l, index) != 0 }
    }

    /// Takes the table on top as the metatable of a table, or of all strings.
    pub fn set_metatable(&mut self, index: isize) {
        let index = self.at(index);
        unsafe { ffi::lua_setmetatable(self.l, index) };
    }

    /// Whether a table may only be read.
    pub fn is_protected(&self, index: isize) -> bool {
        // SAFETY: the address is only compared.
        let address = unsafe { ffi::lua_topointer(self.l, index as c_int) };
        self.inner().protected.borrow().contains(&address)
    }

    /// Replaces the table on top with one that stands for it, to be read only; and its
    /// metatable with such a one.
    pub(crate) fn push_protected(&mut self) {
        self.push_table(0, 0);
        // SAFETY: the address is only compared.
        let address = unsafe { ffi::lua_topointer(self.l, -1) };
        self.inner().protected.borrow_mut().push(address);
        self.push_table(0, 3);
        self.push_copy(-3);
        self.raw_set_field(-2, "__index");
        self.push_native(crate::libs::base::readonly);
        self.raw_set_field(-2, "__newindex");
        // What `getmetatable` tells: as protected as the rest.
        self.push_table(0, 0);
        let address = unsafe { ffi::lua_topointer(self.l, -1) };
        self.inner().protected.borrow_mut().push(address);
        self.push_table(0, 2);
        self.push_native(crate::libs::base::readonly);
        self.raw_set_field(-2, "__newindex");
        self.push_boolean(false);
        self.raw_set_field(-2, "__metatable");
        self.set_metatable(-2);
        self.raw_set_field(-2, "__metatable");
        self.set_metatable(-2);
        self.remove(-2);
    }

    /// Pushes what a protected table stands for.
    pub(crate) fn push_behind(&mut self, index: isize) {
        if self.push_metatable(index) {
            self.raw_get_field(-1, "__index");
            self.remove(-2);
        } else {
            self.push_nil();
        }
    }

    /// Calls the function below its arguments; its results take their place.
    ///
    /// # Errors
    /// The error it raised, on top of the stack in the place of all that.
    pub fn call(&mut self, arguments: usize, results: Option<usize>) -> Result<(), Failed> {
        self.protected_call(arguments, results, 0)
    }

    /// As [`call`](Self::call), with the handler of errors at that index.
    pub fn call_with(
        &mut self,
        arguments: usize,
        results: Option<usize>,
        handler: usize,
    ) -> Result<(), Failed> {
        self.protected_call(arguments, results, handler as c_int)
    }

    fn protected_call(
        &mut self,
        arguments: usize,
        results: Option<usize>,
        handler: c_int,
    ) -> Result<(), Failed> {
        assert!(self.top() > arguments);
        let results = results.map_or(ffi::LUA_MULTRET, |n| n as c_int);
        let inner = self.inner();
        let was = inner.lenient.replace(false);
        // SAFETY: the function and its arguments are there; errors end in this call.
        let status = unsafe { ffi::lua_pcall(self.l, arguments as c_int, results, handler) };
        inner.lenient.set(was);
        // What the callee left may have used up all room.
        if status == 0 { Ok(()) } else { Err(Failed) }
    }

    /// Whether a native that caught an error is to raise it again: the script is to end.
    pub fn is_ended(&self) -> bool {
        self.inner().ended.get()
    }

    /// To be called now and then by what may take long.
    ///
    /// # Errors
    /// If the script is to end: nothing but to be returned.
    pub fn check(&mut self) -> Result<(), Raise> {
        if look(self.inner()).is_none() { Ok(()) } else { Err(self.end()) }
    }

    /// Has the script end, whatever it catches: what a native is to return then.
    pub fn end(&mut self) -> Raise {
        self.inner().ended.set(true);
        // SAFETY: the states are valid.
        unsafe {
            for state in [self.l, self.inner().main.get()] {
                ffi::lua_sethook(state, Some(hook), ffi::LUA_MASKCOUNT, 1);
            }
        }
        self.push_nil();
        Raise::Top
    }

    /// Whether the script may go on, as [`check`](Self::check) would find.
    pub(crate) fn may_go_on(&self) -> bool {
        look(self.inner()).is_none()
    }

    /// Replaces the key on top with its value in the table, which metamethods may give.
    ///
    /// # Errors
    /// If a metamethod raised one, which is on top.
    pub(crate) fn get(&mut self, table: isize) -> Result<(), Raise> {
        if !self.push_metatable(table) {
            self.raw_get(table);
            return Ok(());
        }
        self.pop(1);
        self.push_copy(table);
        self.insert(-2);
        // SAFETY: there is room; called in protected mode.
        unsafe { ffi::lua_pushcclosure(self.l, get_any, 0) };
        self.insert(-3);
        self.call(2, Some(1)).map_err(|Failed| Raise::Top)
    }

    /// Frees what nothing refers to any more.
    pub(crate) fn collect(&mut self) {
        // SAFETY: there is no `__gc` that could raise an error.
        unsafe { ffi::lua_gc(self.l, ffi::LUA_GCCOLLECT, 0) };
    }

    /// Bytes that are allocated.
    pub(crate) fn memory_used(&self) -> usize {
        self.inner().used.get()
    }

    /// Bytes that a native may still push, about.
    pub fn memory_left(&self) -> usize {
        self.inner().limit.get().saturating_sub(self.inner().used.get())
    }

    /// An error if so many more bytes are not to be had.
    ///
    /// # Errors
    /// `not enough memory`, as Lua tells it.
    pub fn afford(&mut self, bytes: usize) -> Result<(), Raise> {
        if bytes <= self.memory_left() {
            return Ok(());
        }
        self.push_bytes("not enough memory");
        Err(Raise::Top)
    }

    /// Parses a chunk of text and pushes its function, or why it cannot be.
    ///
    /// # Errors
    /// It is not a program; the text that says why is on top.
    pub fn load(&mut self, source: &[u8], name: &[u8]) -> Result<(), Failed> {
        if source.first() == Some(&ffi::LUA_SIGNATURE[0]) {
            self.push_bytes("attempt to load chunk with wrong mode");
            return Err(Failed);
        }
        // The parser keeps a string of this name, and nothing else might hold it: on
        // the stack it is safe from the collector.
        self.push_bytes(name);
        let inner = self.inner();
        let was = inner.lenient.replace(false);
        // SAFETY: parsing is protected, and the name ends with a zero, as Lua's strings do.
        let status = unsafe {
            let name = ffi::lua_tolstring(self.l, -1, std::ptr::null_mut());
            ffi::luaL_loadbuffer(self.l, source.as_ptr().cast(), source.len(), name)
        };
        inner.lenient.set(was);
        self.remove(-2);
        if status == 0 { Ok(()) } else { Err(Failed) }
    }

    /// Lends the host to `work`; none if it is lent already, or nothing runs.
    pub fn lend<R>(&mut self, work: impl FnOnce(&mut Self, &mut dyn Host) -> R) -> Option<R> {
        /// Gives it back, also when `work` panics.
        struct Back<'m>(&'m Inner, NonNull<dyn Host>);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.host.set(Some(self.1));
            }
        }
        // SAFETY: the state is a machine's, which outlives this call.
        let inner = unsafe { inner_of(self.l) };
        let mut host = inner.host.take()?;
        let _back = Back(inner, host);
        // SAFETY: `run` keeps it alive while it is set, and taking it away makes this
        // the only reference.
        Some(work(self, unsafe { host.as_mut() }))
    }

    /// Where the function that runs at `level` stands: 0 is the native itself. Its
    /// source, its line, and whether it is native.
    pub fn position(&mut self, level: usize) -> Option<(Vec<u8>, i64, bool)> {
        // SAFETY: a `lua_Debug` is plain data that Lua fills.
        unsafe {
            let mut debug: ffi::lua_Debug = std::mem::zeroed();
            if ffi::lua_getstack(self.l, level as c_int, &raw mut debug) == 0 {
                return None;
            }
            ffi::lua_getinfo(self.l, c"Sl".as_ptr(), &raw mut debug);
            let source = std::ffi::CStr::from_ptr(debug.source).to_bytes().to_vec();
            let is_native = std::ffi::CStr::from_ptr(debug.what).to_bytes() == b"C";
            Some((source, i64::from(debug.currentline), is_native))
        }
    }

    /// By what name the native that runs was called, and whether as a method.
    fn own_name(&mut self) -> (Vec<u8>, bool) {
        // SAFETY: as in `position`.
        unsafe {
            let mut debug: ffi::lua_Debug = std::mem::zeroed();
            if ffi::lua_getstack(self.l, 0, &raw mut debug) == 0 {
                return (b"?".to_vec(), false);
            }
            ffi::lua_getinfo(self.l, c"n".as_ptr(), &raw mut debug);
            let method = !debug.namewhat.is_null()
                && std::ffi::CStr::from_ptr(debug.namewhat).to_bytes() == b"method";
            let name = match debug.name.is_null() {
                true => b"?".to_vec(),
                false => std::ffi::CStr::from_ptr(debug.name).to_bytes().to_vec(),
            };
            (name, method)
        }
    }

    /// Argument `at` as a string.
    ///
    /// # Errors
    /// If it is none.
    pub fn check_bytes(&self, at: usize) -> Result<&[u8], Raise> {
        self.bytes(at as isize).ok_or(Raise::Type(at, "string"))
    }

    /// Argument `at` as a number.
    ///
    /// # Errors
    /// If it is none.
    pub fn check_number(&self, at: usize) -> Result<f64, Raise> {
        self.number(at as isize).ok_or(Raise::Type(at, "number"))
    }

    /// Argument `at` as an integer, as Lua 5.1 reads one: what is beyond is cut.
    ///
    /// # Errors
    /// If it is no number.
    pub fn check_int(&self, at: usize) -> Result<i64, Raise> {
        Ok(self.check_number(at)? as i64)
    }

    /// Argument `at` as an integer, if there is one.
    ///
    /// # Errors
    /// If it is there and no number.
    pub fn optional_int(&self, at: usize, or: i64) -> Result<i64, Raise> {
        if self.is_nil(at as isize) { Ok(or) } else { self.check_int(at) }
    }

    /// Whether argument `at` is a table.
    ///
    /// # Errors
    /// If it is none.
    pub fn check_table(&self, at: usize) -> Result<(), Raise> {
        let is = self.kind(at as isize) == Kind::Table;
        if is { Ok(()) } else { Err(Raise::Type(at, "table")) }
    }
}
