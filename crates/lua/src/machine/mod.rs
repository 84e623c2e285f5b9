//! The interpreter and its stack: all that is unsafe about Lua.
//!
//! # Errors
//!
//! Lua raises errors by `longjmp`, which must not leave out a Rust frame that has
//! something to drop. Two rules see to it. While Rust code works on a stack, no
//! allocation fails ([`Inner::lenient`]), and a [`Stack`] has raw access only, which
//! raises nothing else. And what may raise (a call, a chunk to be parsed) is called in
//! protected mode, and its error returned. A native function so returns its error as a
//! value ([`Raise`]); `native::enter` raises it when all that the function had is dropped.
//!
//! # What natives borrow
//!
//! Strings are borrowed from the stack for as long as the stack is not changed: methods
//! that change it take `&mut self`.

#![allow(unsafe_code)]

use mlua_sys as ffi;
use native::hook;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Instant;

mod native;
mod stack;

pub use native::{Answer, Native, Raise};
pub use stack::{Kind, Stack};

/// A library, or the globals, as a table that others may only read.
#[derive(Clone, Copy, Debug)]
pub enum Table<'n> {
    /// All globals.
    Globals,
    /// A library of that name.
    Library(&'n str),
}

/// After how many instructions the watch is asked. Fewer where instructions take long: see
/// [`native::hook`].
pub const TICK: c_int = 1_000;

/// An allocation of so many bytes announces instructions and natives that take long, such
/// as the comparison of two such strings.
const HEAVY: usize = 1 << 16;

/// After how many instructions the watch is asked when there was such an allocation.
const SOON: c_int = 16;

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

/// A protected call has failed; the error is on top of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

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
    /// When the hook was last called.
    asked: Cell<Option<Instant>>,
    /// There was a heavy allocation since a native last returned.
    heavy: Cell<bool>,
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

/// How Lua's values are aligned: its `LUAI_USER_ALIGNMENT_T` is a union of a double, a
/// pointer and a long. More would cost: the allocator's size classes are of 8 bytes.
const ALIGN: usize = 8;

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
    // SAFETY: Lua gives the size of what it had allocated.
    let layout = |size| unsafe { std::alloc::Layout::from_size_align_unchecked(size, ALIGN) };
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
    if new >= HEAVY && new > old && inner.is_watched() {
        inner.heavy.set(true);
        // SAFETY: the main state is alive; this changes fields of it that may be changed
        // at any time.
        unsafe { native::ask_soon(inner.main.get()) };
    }
    moved
}

impl Inner {
    /// A script runs that was not told to end.
    fn is_watched(&self) -> bool {
        !self.ended.get() && self.watch.try_borrow().is_ok_and(|watch| watch.is_some())
    }
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

impl Machine {
    /// An interpreter with its libraries, none of which a script may change.
    pub fn new() -> Self {
        let inner = Box::new(Inner {
            used: Cell::new(0),
            limit: Cell::new(usize::MAX),
            asked: Cell::new(None),
            heavy: Cell::new(false),
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
        self.inner.asked.set(None);
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
