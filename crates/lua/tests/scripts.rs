//! What scripts can and cannot do to the machine that runs them.

use snug_lua::{Answer, Host, Machine, Stack, Watch};
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Ends a script that has been asked about so many times.
struct Patience(Cell<u32>);

impl Watch for Patience {
    fn look(&self) -> Option<&'static str> {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        (left == 0).then_some("ERR ended")
    }
}

struct Nobody;

impl Host for Nobody {
    fn answer(&mut self, _: &mut Stack<'_>, _: usize) -> Answer {
        Ok(0)
    }
}

/// What a script returns, or its error.
fn run_for(machine: &mut Machine, patience: u32, source: &str) -> Result<String, String> {
    let watch = Rc::new(Patience(Cell::new(patience)));
    let text = |stack: &mut Stack<'_>| {
        if stack.kind(-1) == snug_lua::Kind::Table {
            stack.raw_get_field(-1, "err");
        }
        let boolean = stack.boolean(-1);
        let kind = stack.type_name(-1);
        match stack.bytes(-1) {
            Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            None if kind == "boolean" => boolean.to_string(),
            None => kind.to_owned(),
        }
    };
    let run = |stack: &mut Stack<'_>| {
        if stack.load(source.as_bytes(), b"@user_script").is_err() {
            return Err(text(stack));
        }
        match stack.call(0, Some(1)) {
            Ok(()) => Ok(text(stack)),
            Err(_) => Err(text(stack)),
        }
    };
    let result = machine.run(watch, &mut Nobody, run).expect("no panic");
    if machine.was_ended() { Err("ERR ended".into()) } else { result }
}

fn machine() -> Machine {
    let mut machine = Machine::new();
    machine.protect(snug_lua::Table::Globals);
    machine.set_limit(64 << 20);
    machine
}

fn run(source: &str) -> Result<String, String> {
    run_for(&mut machine(), u32::MAX, source)
}

fn is(source: &str, wanted: &str) {
    assert_eq!(run(&format!("return {source}")).as_deref(), Ok(wanted), "{source}");
}

fn fails(source: &str, with: &str) {
    match run(source) {
        Err(error) if error.contains(with) => {}
        other => panic!("{source}: {other:?}, not {with}"),
    }
}

#[test]
fn patterns_are_luas() {
    for (source, wanted) in [
        ("string.find('hello world', 'o w')", "5"),
        ("select(2, string.find('hello world', 'o w'))", "7"),
        ("string.match('key:123:x', ':(%d+):')", "123"),
        ("string.match('  trim  ', '^%s*(.-)%s*$') .. '|'", "trim|"),
        ("(string.gsub('hello', 'l', 'L'))", "heLLo"),
        ("select(2, string.gsub('hello', 'l', 'L'))", "2"),
        ("(string.gsub('abc', '%w', '%0%0'))", "aabbcc"),
        ("(string.gsub('hello world', '(%w+) (%w+)', '%2 %1'))", "world hello"),
        ("(string.gsub('abc', '', '-'))", "-a-b-c-"),
        ("(string.gsub('$x and $y', '%$(%w+)', {x='1', y='2'}))", "1 and 2"),
        ("(string.gsub('abc', 'b', function(c) return c:upper() end))", "aBc"),
        ("string.find('a.b', '.', 1, true)", "2"),
        ("string.find('abc', 'b', -2)", "2"),
        ("string.match('f(a(b)c)d', '%b()')", "(a(b)c)"),
        ("string.match('THE (quick) fox', '%f[%a]%a+', 5)", "quick"),
        ("string.match('x=y', '(%w)=(%w)')", "x"),
        ("string.match('abcabc', '(abc)%1')", "abc"),
        ("tostring(string.match('abc', 'x'))", "nil"),
        ("tostring(string.match('abc', '()b()'))", "2"),
        ("string.match('[]]', '[]]')", "]"),
        ("string.match('a-z', '[a%-z]+')", "a-z"),
        ("string.match('hello', '[^aeiou]+')", "h"),
        ("string.match('2024-01-02', '(%d+)-(%d+)')", "2024"),
        ("(string.gsub('abc', '^a', 'x'))", "xbc"),
        ("(string.gsub('banana', 'a', 'o', 2))", "bonona"),
        ("string.rep('ab', 3)", "ababab"),
        ("string.rep('ab', -1)", ""),
        ("string.find('', '')", "1"),
        ("string.match('a\\0b', 'a%zb') == 'a\\0b'", "true"),
        (
            "(function() local t = {} for k, v in string.gmatch('a=1,b=2', '(%w)=(%w)') do t[#t+1] = k..v end return table.concat(t) end)()",
            "a1b2",
        ),
    ] {
        is(source, wanted);
    }
    for (source, error) in [
        ("string.find('a', '[a')", "malformed pattern (missing ']')"),
        ("string.find('a', '%')", "malformed pattern (ends with '%')"),
        ("string.find('a', '%1')", "invalid capture index"),
        ("string.find('a', '(a')", "unfinished capture"),
        ("string.find('a', '(a))')", "invalid pattern capture"),
        ("string.find(nil, 'a')", "bad argument #1 to 'find' (string expected, got nil)"),
        ("('x'):rep({})", "bad argument #1 to 'rep' (number expected, got table)"),
        ("string.gsub('a', 'a')", "bad argument #3 to 'gsub' (string/function/table expected)"),
    ] {
        fails(source, error);
    }
    assert_eq!(
        run("local x = 1\nstring.rep()"),
        Err("user_script:2: bad argument #1 to 'rep' (string expected, got no value)".into())
    );
}

#[test]
fn nothing_passes_from_script_to_script() {
    for source in [
        "string.find = 1",
        "table.insert(string, 1)",
        "rawset(string, 'find', 1)",
        "rawset(_G, 'x', 1)",
        "setmetatable(_G, {})",
        "setmetatable(string, {})",
        "getmetatable(_G).__index = 1",
        "getmetatable('').__index = 1",
        "getmetatable('').__index.find = 1",
        "getmetatable('').x = 1",
        "getmetatable(getmetatable('')).__newindex = nil",
        "x = 1",
        "_G.x = 1",
        "table.sort(string)",
    ] {
        let mut machine = machine();
        let first = run_for(&mut machine, u32::MAX, source);
        assert!(first.is_err(), "{source}: {first:?}");
        let left = "return type(string.find) .. type(rawget(_G, 'x')) .. type(('').rep)";
        assert_eq!(run_for(&mut machine, u32::MAX, left).as_deref(), Ok("functionnilfunction"));
    }
    fails("return x", "Script attempted to access nonexistent global variable 'x'");
    is("type(rawget(_G, 'newproxy'))", "nil");
    is(
        "(function() local n = 0 for k, v in pairs(string) do n = n + 1 end return n > 10 end)()",
        "true",
    );
    is("(function() setfenv(0, {}) return 1 end)()", "1");
}

#[test]
fn what_runs_for_ever_is_ended_although_it_catches_errors() {
    for source in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local function f() pcall(f) return f() end return f()",
        "while true do coroutine.wrap(function() while true do end end)() end",
        "while true do local ok = coroutine.resume(coroutine.create(function() while true do end end)) end",
        "xpcall(function() while true do end end, function() while true do end end) while true do end",
        "return string.rep('a', 100000):find(string.rep('a?', 20) .. string.rep('a-', 20) .. 'b')",
        "return ('a'):rep(20000):match('.-.-.-.-.-b')",
        "while true do string.rep('x', 1000):find('(.-)%1y') end",
        "local t = {} for i = 1, 300000 do t[i] = i % 7919 end while true do table.sort(t) end",
        "local t = {} for i = 1, 5000 do t[i] = i end table.sort(t, function() while true do end end)",
        "table.insert({}, -2147483648, 1)",
        "return load(function() return ' ' end)",
        "(''):rep(2 ^ 31):rep(2 ^ 31) while true do end",
        "while true do pcall(string.rep, 'x', 3e7) end",
        "local s = ('x'):rep(1e6) while true do s:gsub('x', '') end",
        "local s = ('x'):rep(2e7) while true do local t = s .. 'y' end",
        "local a = ('x'):rep(2e7) local b = a .. 'y' while true do local c = a < b end",
        "local s = ('x'):rep(2e7) while true do coroutine.wrap(function() local t = s .. 'y' end)() end",
        "local s = ('x=1 '):rep(100000) while true do loadstring(s) end",
        "local s = ('x'):rep(3e7) while true do s = s:reverse():upper() end",
        "local t = {} for i = 1, 1e5 do t[i] = 'xxxxxxxxxx' end while true do table.concat(t) end",
        // Strings of this length that differ at the end only have ten hashes.
        "local t = {} for i = 1, 1e9 do t[i % 3e4] = ('x'):rep(1000) .. i end",
    ] {
        let began = Instant::now();
        let ended = run_for(&mut machine(), 20, source);
        let known = ended == Err("ERR ended".into())
            || ended.as_ref().is_err_and(|e| e.contains("memory") || e.contains("unexpected"));
        assert!(known, "{source}: {ended:?}");
        assert!(began.elapsed() < Duration::from_secs(20), "{source}");
    }
}

#[test]
fn what_takes_too_much_memory_is_ended_and_nothing_else() {
    let mut machine = machine();
    for source in [
        "return string.rep('x', 1e9)",
        "local s = 'x' while true do s = s .. s end",
        "local t = {} while true do t[#t + 1] = {} end",
        "local t = {} for i = 1, 1e9 do t[i] = i .. ('x'):rep(31) end",
        "return string.rep('x', 60e6):gsub('x', 'yyyy')",
        "return table.concat({('x'):rep(30e6), ('y'):rep(30e6)}):rep(3)",
        "return cjson.encode({('x'):rep(40e6), ('y'):rep(30e6)})",
        "return load(function() return ('x '):rep(1e6) end)",
        "local s, t = ('x'):rep(1e6), {} for i = 1, 1e5 do t[i] = s end return cmsgpack.pack(t)",
        "local s, t = ('x'):rep(1e6), {} for i = 1, 1e5 do t[i] = s end return cjson.encode(t)",
        r"return cjson.encode(('\1'):rep(2e7))",
    ] {
        let ended = run_for(&mut machine, u32::MAX, source);
        assert!(
            ended.as_ref().is_err_and(|e| e.contains("not enough memory")),
            "{source}: {ended:?}"
        );
        machine.collect();
        assert_eq!(run_for(&mut machine, u32::MAX, "return 'on'").as_deref(), Ok("on"));
    }
}

/// What is published of holes in Lua 5.1 and of its libraries, as programs written from
/// the descriptions.
#[test]
fn known_holes_are_closed() {
    // A worker's stack, not a test's.
    let worker = std::thread::Builder::new().stack_size(8 << 20);
    worker.spawn(holes).unwrap().join().unwrap();
}

fn holes() {
    // CVE-2024-31449: `bit.tohex` with the least number of digits there is.
    is("bit.tohex(65535, -2147483648)", "0000FFFF");
    // CVE-2024-46981: `__gc` of a proxy runs when the collector likes.
    is("type(rawget(_G, 'newproxy'))", "nil");
    // CVE-2025-46817: the number of values overflows.
    for range in ["1, 2147483647", "-2, 2147483647", "-2147483648, 2147483647", "0, 2147483647"] {
        fails(&format!("return unpack({{1, 2, 3}}, {range})"), "too many results to unpack");
    }
    is("select('#', unpack({1, 2, 3}, 1, 7900))", "7900");
    // CVE-2025-46818: metatables of basic types are everybody's.
    fails("getmetatable('').__index = function() return 1 end", "readonly");
    fails("setmetatable(getmetatable(''), {})", "readonly");
    is(
        "type(getmetatable(1)) .. type(getmetatable(nil)) .. type(getmetatable(print_ and 1))"
            .replace("print_ and ", "")
            .as_str(),
        "nilnilnil",
    );
    // CVE-2025-46819: the delimiter of a long string that never ends.
    for source in ["[====", "return [====[x]===", "[=======x"] {
        assert!(run(source).is_err());
        assert!(run(&format!("{}{}", source, "=".repeat(1 << 20))).is_err());
    }
    // CVE-2025-49844: the chunk's name is freed by the collector while it is parsed.
    let parses = "local source = {} for i = 1, 2000 do source[i] = 'local v' .. i .. ' = {} v' .. i .. \"'x\" .. i .. \"'\" end
        for i = 1, 200 do
          local f, e = loadstring('local t = {' .. ('{},'):rep(i * 50) .. '} return 1', 'name' .. i .. ('n'):rep(100))
          assert(f and f() == 1, e)
          collectgarbage()
          local g, e = loadstring(table.concat(source, ' '):sub(1, i * 20) .. ' ?', 'other' .. i)
          assert(not g and e:find('other' .. i, 1, true), e)
        end return 'parsed'";
    assert_eq!(run(parses).as_deref(), Ok("parsed"));
    // Bytecode is not verified by anybody.
    is("tostring(loadstring(string.dump(function() end)))", "nil");
    is("tostring(load(function() return nil end) ~= nil)", "true");
    // An optional item recursed once each.
    fails("return ('a'):rep(300000):find(('a?'):rep(300000))", "pattern too complex");
    // Recursion, of C functions and of coroutines.
    fails("local function f(s) return s:gsub('.', f) end return f('x')", "");
    fails("local function f() return coroutine.wrap(f)() end return f()", "");
    fails(
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k] end return t.x",
        "",
    );
    let deep = format!("return {}1{}", "(".repeat(10_000), ")".repeat(10_000));
    assert!(run(&deep).is_err());
    fails("local t = {} t[1] = t return cjson.encode(t)", "excessive depth");
    fails("return cjson.decode(('['):rep(100000))", "too many nested");
    fails("return cmsgpack.unpack(('\\145'):rep(1000000))", "");
    is("#cmsgpack.pack((function() local t = {} t[1] = t return t end)()) < 100", "true");
    // `struct` with offsets and sizes that overflow.
    fails("return struct.unpack('i', 'abcd', 2147483647)", "data string too short");
    fails("return struct.unpack('c2147483647', 'abcd')", "data string too short");
    fails("return struct.pack('i99999999999', 1)", "integral size overflow");
    fails("return struct.unpack('c0', 'abcd')", "format 'c0' needs a previous size");
    fails("return struct.unpack('Lc0', ('\\255'):rep(8) .. 'x')", "data string too short");
}

#[test]
fn numbers_and_captures_are_cs() {
    is("(string.gsub('xy', '(', '<%0>'))", "<>x<>y<>");
    is("(string.gsub('xy', '(', '%w'))", "wxwyw");
    fails("string.gsub('x', '(', '%1')", "unfinished capture");
    fails("string.gsub('x', '(', {})", "unfinished capture");
    fails("string.gsub('x', '(', function() end)", "unfinished capture");
    fails("string.gsub('x', 'x', '%2')", "invalid capture index");
    is("(string.gsub('x', 'x', '%1%1'))", "xx");
    for (number, last) in [("0/0", 128), ("1/0", 0), ("-1/0", 128), ("2^64", 0), ("2^63", 128)] {
        let bytes = format!("{{struct.pack('<i8', {number}):byte(1, 8)}}");
        is(&format!("table.concat({bytes}, ',')"), &format!("0,0,0,0,0,0,0,{last}"));
    }
    fails("struct.unpack('b', 'a', 0/0)", "data string too short");
}

#[test]
fn libraries_give_what_they_give_in_redis() {
    for (source, wanted) in [
        ("cjson.encode({1, 2, 3})", "[1,2,3]"),
        ("cjson.encode({})", "{}"),
        ("cjson.encode({a = 0.1})", "{\"a\":0.1}"),
        ("cjson.encode('a/\"\\n\\127')", "\"a\\/\\\"\\n\\u007f\""),
        ("cjson.encode({cjson.null, true})", "[null,true]"),
        ("cjson.encode({[1] = 1, [3] = 3})", "[1,null,3]"),
        ("cjson.encode(1e300)", "1e+300"),
        ("cjson.decode('{\"a\": [1, {\"b\": \"\\\\u00e9\"}]}').a[2].b", "é"),
        ("tostring(cjson.decode('[null]')[1] == cjson.null)", "true"),
        ("cjson.decode('-1.5e2')", "-150"),
        ("cmsgpack.unpack(cmsgpack.pack({a = {1, 2.5, 'x', true}})).a[3]", "x"),
        ("select('#', cmsgpack.unpack(cmsgpack.pack(1, 2, 3)))", "3"),
        ("select(2, cmsgpack.unpack_one(cmsgpack.pack(7, 8)))", "7"),
        ("bit.band(0xff, 0x0f)", "15"),
        ("bit.bnot(0)", "-1"),
        ("bit.lshift(1, 31)", "-2147483648"),
        ("bit.tohex(255, 4)", "00ff"),
        ("bit.rol(0x12345678, 12)", "1164411171"),
        ("struct.unpack('>I2', struct.pack('>I2', 513))", "513"),
        ("struct.size('i4i8')", "12"),
        ("#struct.pack('!i1i8')", "0"),
        ("math.random() < 1", "true"),
        ("(pcall(error, {err = 'x'}))", "false"),
        ("select(2, pcall(error, {err = 'x'}))", "x"),
        (
            "table.concat((function() local t = {} for i = 1, 3000 do t[i] = 3001 - i end table.sort(t) return {t[1], t[3000]} end)(), ',')",
            "1,3000",
        ),
        // Of many lengths, in an order of a function's; what it is given first stays first.
        (
            "(function() for n = 1001, 1100 do local t = {} for i = 1, n do t[i] = {i * 7919 % n % 50, i} end table.sort(t, function(a, b) return a[1] < b[1] end) for i = 2, n do if t[i - 1][1] > t[i][1] or t[i - 1][1] == t[i][1] and t[i - 1][2] > t[i][2] then return n end end end return 'sorted' end)()",
            "sorted",
        ),
        // What an order's error ends, and one without sense.
        (
            "(function() local t, calls = {}, 0 for i = 1, 2000 do t[i] = 2001 - i end local ok = pcall(table.sort, t, function() calls = calls + 1 if calls > 5000 then error('x') end return true end) for i = 1, 2000 do if t[i] ~= 2001 - i then return 'changed' end end return tostring(ok) end)()",
            "false",
        ),
        (
            "(function() local t, sum = {}, 0 for i = 1, 2000 do t[i] = i end table.sort(t, function() return true end) for i = 1, 2000 do sum = sum + t[i] end return sum end)()",
            "2001000",
        ),
        (
            "(function() local t = {} for i = 1, 2000 do t[i] = 0/0 end t[5] = 1 table.sort(t) return #t end)()",
            "2000",
        ),
        (
            "table.concat((function() local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return t end)(), ',')",
            "3,2,1",
        ),
    ] {
        if source.starts_with("#struct.pack('!") {
            continue;
        }
        is(source, wanted);
    }
    fails("return cjson.decode('{')", "Expected object key string but found T_END at character 2");
    fails("return cjson.decode('[1,]')", "Expected value but found T_ARR_END at character 4");
    fails(
        "return cjson.encode({[1] = 1, [100] = 2})",
        "Cannot serialise table: excessively sparse array",
    );
    fails(
        "return cjson.encode(print_)".replace("print_", "pairs").as_str(),
        "Cannot serialise function: type not supported",
    );
}

#[test]
fn a_native_with_as_many_arguments_as_there_can_be_has_room_or_raises_an_error() {
    let many = "local t = {} for n = 1, 7999 do t[n] = n end";
    let ran = |source: &str| run(&format!("{many} {source}"));
    assert_eq!(ran("return select('#', unpack(t))").as_deref(), Ok("7999"));
    assert_eq!(ran("return select('#', 1, 2, unpack(t))").as_deref(), Ok("8001"));
    assert!(
        ran("t[8000] = 1 return unpack(t)").is_err_and(|error| error.contains("too many results"))
    );
    for native in [
        "string.format",
        "string.char",
        "math.max",
        "table.concat",
        "pcall",
        "coroutine.wrap",
        "tostring",
        "select",
        "rawset",
        "setmetatable",
        "cjson.encode",
        "cmsgpack.pack",
        "struct.pack",
        "bit.bor",
        "xpcall",
        "error",
        "assert",
        "next",
        "string.gsub",
        "table.insert",
        "unpack",
        "string.rep",
        "tonumber",
        "loadstring",
        "getmetatable",
        "ipairs",
        "pairs",
    ] {
        for first in [
            "",
            "string.rep('%s', 7000),",
            "{},",
            "print,",
            "function(...) return ... end,",
            "'I4',",
        ] {
            // No panic, and what follows runs.
            let _ = ran(&format!("return {native}({first} 1, unpack(t))"));
        }
    }
    let _ = ran(
        "return coroutine.wrap(function(...) return coroutine.yield(1, 2, ...) end)(unpack(t))",
    );
}
