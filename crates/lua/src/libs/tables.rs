//! `table`: the functions that change a table, which may be read only and may be long.

use super::Functions;
use super::base::{changeable, clamp};
use crate::machine::{Answer, Raise, Stack};

const FUNCTIONS: Functions = &[("insert", insert), ("remove", remove)];

/// Tables up to so many items are sorted by Lua's own function: its worst case is
/// quadratic, and nothing could end it.
const SORTED_AT_ONCE: usize = 1_000;

/// Items moved before the watch is asked.
const AT_ONCE: i64 = 4_096;

/// Sorts by a heap, in Lua: what it compares with may be ended at any instruction, and
/// no order, however wrong, makes it run for longer.
const HEAP_SORT: &[u8] = b"
local t, less = ...
local n = #t
less = less or function(a, b) return a < b end
local function sink(i, n)
  local item = t[i]
  while true do
    local child = 2 * i
    if child > n then break end
    if child < n and less(t[child], t[child + 1]) then child = child + 1 end
    if not less(item, t[child]) then break end
    t[i] = t[child]
    i = child
  end
  t[i] = item
end
for i = (n - n % 2) / 2, 1, -1 do sink(i, n) end
for i = n, 2, -1 do
  t[1], t[i] = t[i], t[1]
  sink(1, i - 1)
end";

/// Adds the functions to the library on top of the stack.
pub(super) fn add(stack: &mut Stack<'_>) {
    super::add(stack, FUNCTIONS);
    stack.raw_get_field(-1, "sort");
    let loaded = stack.load(HEAP_SORT, b"=table.sort");
    assert!(loaded.is_ok(), "it is a program");
    stack.push_closure(sort, 2);
    stack.raw_set_field(-2, "sort");
}

fn sort(stack: &mut Stack<'_>) -> Answer {
    stack.check_table(1)?;
    changeable(stack, 1)?;
    let kind = stack.type_name(2);
    if !stack.is_nil(2) && kind != "function" {
        return Err(Raise::Type(2, "function"));
    }
    stack.set_top(2);
    let by = if stack.raw_len(1) <= SORTED_AT_ONCE { 2 } else { 3 };
    stack.push_upvalue(by);
    stack.insert(1);
    match stack.call(2, Some(0)) {
        Ok(()) => Ok(0),
        Err(_) => Err(Raise::Top),
    }
}

fn insert(stack: &mut Stack<'_>) -> Answer {
    stack.check_table(1)?;
    changeable(stack, 1)?;
    let end = stack.raw_len(1) as i64 + 1;
    let at = match stack.top() {
        2 => end,
        3 => clamp(stack.check_int(2)?),
        _ => return Err(Raise::text("wrong number of arguments to 'insert'")),
    };
    let mut n = end.max(at);
    while n > at {
        stack.raw_get_item(1, (n - 1) as i32);
        stack.raw_set_item(1, n as i32);
        n -= 1;
        if n % AT_ONCE == 0 {
            stack.afford(0)?;
            stack.check()?;
        }
    }
    stack.raw_set_item(1, at as i32);
    Ok(0)
}

fn remove(stack: &mut Stack<'_>) -> Answer {
    stack.check_table(1)?;
    changeable(stack, 1)?;
    let end = stack.raw_len(1) as i64;
    let at = clamp(stack.optional_int(2, end)?);
    if at < 1 || at > end {
        return Ok(0);
    }
    stack.raw_get_item(1, at as i32);
    for n in at..end {
        stack.raw_get_item(1, (n + 1) as i32);
        stack.raw_set_item(1, n as i32);
        if n % AT_ONCE == 0 {
            stack.check()?;
        }
    }
    stack.push_nil();
    stack.raw_set_item(1, end as i32);
    Ok(1)
}
