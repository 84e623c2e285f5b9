//! `table`: the functions that change a table, which may be read only and may be long.

use super::Functions;
use super::base::{changeable, clamp};
use crate::machine::{Answer, Kind, Raise, Stack};

const FUNCTIONS: Functions = &[("insert", insert), ("remove", remove)];

/// Tables up to so many items are sorted by Lua's own function: its worst case is
/// quadratic, and nothing could end it.
const SORTED_AT_ONCE: usize = 1_000;

/// Numbers alone, or strings alone, up to so many are sorted here where no function says how:
/// some 30 ms of numbers.
const PLAIN_MAX: usize = 400_000;

/// Strings are, up to so many bytes.
const PLAIN_BYTES_MAX: usize = 16 << 20;

/// Items moved before the watch is asked.
const AT_ONCE: i64 = 4_096;

/// Sorts by merging, in Lua: what it compares with may be ended at any instruction, and no
/// order, however wrong, makes it run for longer. The table is changed at the end: where an
/// order raises an error it is as it was.
const MERGE_SORT: &[u8] = b"
local t, less = ...
local n = #t
less = less or function(a, b) return a < b end
local from, to = {}, {}
for lo = 1, n, 6 do
  local hi = lo + 5
  if hi > n then hi = n end
  from[lo] = t[lo]
  for i = lo + 1, hi do
    local item, at = t[i], i
    while at > lo and less(item, from[at - 1]) do
      from[at] = from[at - 1]
      at = at - 1
    end
    from[at] = item
  end
end
local width = 6
while width < n do
  for lo = 1, n, 2 * width do
    local left, right, at = lo, lo + width, lo
    local middle, hi = right, lo + 2 * width
    if middle > n + 1 then middle = n + 1 end
    if hi > n + 1 then hi = n + 1 end
    while left < middle and right < hi do
      local x, y = from[left], from[right]
      if less(y, x) then
        to[at] = y
        right = right + 1
      else
        to[at] = x
        left = left + 1
      end
      at = at + 1
    end
    if left == middle then left, middle = right, hi end
    for rest = left, middle - 1 do
      to[at] = from[rest]
      at = at + 1
    end
  end
  from, to = to, from
  width = 2 * width
end
for i = 1, n do t[i] = from[i] end";

/// Adds the functions to the library on top of the stack.
pub(super) fn add(stack: &mut Stack<'_>) {
    super::add(stack, FUNCTIONS);
    stack.raw_get_field(-1, "sort");
    let loaded = stack.load(MERGE_SORT, b"=table.sort");
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
    let len = stack.raw_len(1);
    if stack.is_nil(2) && (SORTED_AT_ONCE..PLAIN_MAX).contains(&len) && sort_plain(stack, len)? {
        return Ok(0);
    }
    let by = if len <= SORTED_AT_ONCE { 2 } else { 3 };
    stack.push_upvalue(by);
    stack.insert(1);
    match stack.call(2, Some(0)) {
        Ok(()) => Ok(0),
        Err(_) => Err(Raise::Top),
    }
}

/// Sorts a table of numbers alone, none of them NaN, or of strings alone; whether it is one.
fn sort_plain(stack: &mut Stack<'_>, len: usize) -> Result<bool, Raise> {
    stack.raw_get_item(1, 1);
    let kind = stack.kind(-1);
    stack.pop(1);
    let items = 1..=len as i32;
    match kind {
        Kind::Number => {
            let mut numbers = Vec::with_capacity(len);
            for n in items.clone() {
                stack.raw_get_item(1, n);
                let number = stack.number(-1).filter(|_| stack.kind(-1) == Kind::Number);
                stack.pop(1);
                match number {
                    Some(number) if !number.is_nan() => numbers.push(number),
                    _ => return Ok(false),
                }
            }
            numbers.sort_by(f64::total_cmp);
            for (n, number) in items.zip(numbers) {
                stack.push_number(number);
                stack.raw_set_item(1, n);
            }
        }
        Kind::String => {
            let (mut strings, mut bytes) = (Vec::with_capacity(len), 0);
            for n in items.clone() {
                stack.raw_get_item(1, n);
                if stack.kind(-1) != Kind::String {
                    stack.pop(1);
                    return Ok(false);
                }
                let string: Box<[u8]> = stack.bytes(-1).unwrap_or_default().into();
                bytes += string.len();
                strings.push(string);
                stack.pop(1);
                // One string of megabytes may be there a thousand times.
                if bytes > PLAIN_BYTES_MAX {
                    return Ok(false);
                }
            }
            stack.afford(bytes)?;
            strings.sort();
            for (n, string) in items.zip(strings) {
                stack.push_bytes(string);
                stack.raw_set_item(1, n);
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
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
