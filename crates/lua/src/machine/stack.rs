//! The stack of a running script: what natives take their arguments from and put their
//! results on. Raw access only, which raises nothing; what may raise is called in protected
//! mode.

#![allow(unsafe_code)]

use super::native::{Native, Raise, enter, hook};
use super::{Failed, Host, Inner, inner_of, look};
use mlua_sys as ffi;
use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

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

/// Lua's stack, as a native function sees it: its arguments from 1 on.
#[derive(Debug)]
pub struct Stack<'l> {
    pub(super) l: *mut ffi::lua_State,
    /// How many values there were at first: Lua sees to it that [`SPARE`] more fit.
    first: c_int,
    of: PhantomData<&'l ()>,
}

/// Values that fit on the stack of a native beside its arguments, however many these
/// are. Lua's own number is 20.
pub(super) const SPARE: c_int = 16;

/// What a native unwinds with whose stack is full.
pub(super) struct Full;

#[allow(missing_docs)]
impl Stack<'_> {
    /// # Safety
    /// The state is a machine's and stays alive, and the allocator is lenient.
    pub(super) unsafe fn new(l: *mut ffi::lua_State) -> Self {
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
        if (self.top() as c_int) < self.first + SPARE {
            return;
        }
        // SAFETY: as above.
        let room = unsafe { ffi::lua_checkstack(self.l, 2) };
        if room == 0 {
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

    /// Pushes what is kept under that number, which scripts cannot reach.
    pub fn push_kept(&mut self, number: i32) {
        self.one();
        unsafe { ffi::lua_rawgeti_(self.l, ffi::LUA_REGISTRYINDEX, number) }
    }

    /// Takes the value on top and keeps it under that number.
    pub fn keep(&mut self, number: i32) {
        assert!(self.top() > 0);
        unsafe { ffi::lua_rawseti_(self.l, ffi::LUA_REGISTRYINDEX, number) }
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

    /// To be called after each item of what may have millions; `n` counts them.
    ///
    /// # Errors
    /// If the script is to end, or takes too much memory.
    #[inline]
    pub(crate) fn check_at(&mut self, n: usize) -> Result<(), Raise> {
        if n % 1024 != 1023 {
            return Ok(());
        }
        self.afford(0)?;
        self.check()
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

    /// Bytes that the interpreter may take in all: what a script has made elsewhere of its
    /// values may take as many.
    pub fn memory_limit(&self) -> usize {
        self.inner().limit.get()
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
    pub(super) fn own_name(&mut self) -> (Vec<u8>, bool) {
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

/// Gives the value of a key of a table, as an expression of Lua would have it.
unsafe extern "C-unwind" fn get_any(l: *mut ffi::lua_State) -> c_int {
    // SAFETY: called by Lua in protected mode, and nothing here is to be dropped.
    unsafe { ffi::lua_gettable_(l, 1) };
    1
}
