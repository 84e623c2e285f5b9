//! Replies as values of Lua, and values of Lua as replies.
//!
//! | reply | value | reply again |
//! | --- | --- | --- |
//! | integer | number | integer, the fraction cut |
//! | bulk | string | bulk |
//! | status, error | table with `ok`, `err` | status, error |
//! | array | table of items | array, up to the first nil |
//! | null of RESP2 | false | null |
//! | null of RESP3 | nil | null |
//! | map, set, double, big number, verbatim text of RESP3 | table with `map`, `set`, `double`, `big_number`, `verbatim_string` | the same |

use crate::engine::out::Out;
use snug_lua::{Kind, Stack};
use snug_resp::Protocol;

/// How deep values may nest that are made replies: each level takes stack.
const DEPTH_MAX: usize = 1_000;

/// Pushes the reply that bytes begin with as a value, and returns what is left. The bytes
/// are a handler's: well formed.
pub(super) fn push<'b>(stack: &mut Stack<'_>, bytes: &'b [u8]) -> &'b [u8] {
    stack.room(8);
    let end = memchr(bytes);
    let (kind, line) = (bytes.first().copied().unwrap_or(b'_'), bytes.get(1..end).unwrap_or(&[]));
    let mut rest = bytes.get(end + 2..).unwrap_or_default();
    match kind {
        // A script is not told of attributes.
        b'|' => {
            for _ in 0..2 * integer(line) {
                rest = push(stack, rest);
                stack.pop(1);
            }
            rest = push(stack, rest);
        }
        b':' => stack.push_number(integer(line) as f64),
        b'+' => field(stack, "ok", |stack| stack.push_bytes(line)),
        b'-' => {
            stack.push_table(0, 2);
            stack.push_bytes(line);
            stack.raw_set_field(-2, "err");
            stack.push_boolean(true);
            stack.raw_set_field(-2, "ignore_error_stats_update");
        }
        b'$' | b'*' if line.first() == Some(&b'-') => stack.push_boolean(false),
        b'$' => rest = bulk(rest, line, |text| stack.push_bytes(text)),
        b'*' | b'>' => {
            let items = integer(line);
            stack.push_table(items as usize, 0);
            for n in 1..=items {
                rest = push(stack, rest);
                stack.raw_set_item(-2, n as i32);
            }
        }
        b'%' => {
            stack.push_table(0, 1);
            stack.push_table(0, integer(line) as usize);
            for _ in 0..integer(line) {
                rest = push(stack, rest);
                rest = push(stack, rest);
                stack.raw_set(-3);
            }
            stack.raw_set_field(-2, "map");
        }
        b'~' => {
            stack.push_table(0, 1);
            stack.push_table(0, integer(line) as usize);
            for _ in 0..integer(line) {
                rest = push(stack, rest);
                stack.push_boolean(true);
                stack.raw_set(-3);
            }
            stack.raw_set_field(-2, "set");
        }
        b'#' => stack.push_boolean(line == b"t"),
        b',' => {
            let number = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
            field(stack, "double", |stack| stack.push_number(number.unwrap_or(f64::NAN)));
        }
        b'(' => field(stack, "big_number", |stack| stack.push_bytes(line)),
        b'=' => {
            rest = bulk(rest, line, |text| {
                let (format, text) = text.split_at(text.len().min(4));
                stack.push_table(0, 1);
                stack.push_table(0, 2);
                stack.push_bytes(text);
                stack.raw_set_field(-2, "string");
                stack.push_bytes(&format[..format.len().min(3)]);
                stack.raw_set_field(-2, "format");
                stack.raw_set_field(-2, "verbatim_string");
            });
        }
        _ => stack.push_nil(),
    }
    rest
}

/// Where the line ends.
fn memchr(bytes: &[u8]) -> usize {
    bytes.iter().position(|&byte| byte == b'\r').unwrap_or(bytes.len())
}

fn integer(line: &[u8]) -> i64 {
    snug_resp::parse_integer(line).unwrap_or(0)
}

fn bulk<'b>(rest: &'b [u8], line: &[u8], push: impl FnOnce(&[u8])) -> &'b [u8] {
    let len = integer(line).max(0) as usize;
    push(rest.get(..len).unwrap_or(rest));
    rest.get(len + 2..).unwrap_or_default()
}

fn field(stack: &mut Stack<'_>, name: &str, push: impl FnOnce(&mut Stack<'_>)) {
    stack.push_table(0, 1);
    push(stack);
    stack.raw_set_field(-2, name);
}

/// A reply takes more than a script may allocate: it names one large value many times.
#[derive(Debug)]
pub(super) struct TooLarge;

/// How a reply is written.
#[derive(Clone, Copy)]
struct How {
    /// The protocol that the script has chosen: booleans depend on it.
    script: Protocol,
    /// Bytes that may lie in the buffer then.
    most: usize,
}

/// Writes the value on top of the stack as a reply, and takes it. `script` is the
/// protocol that the script has chosen.
///
/// # Errors
/// The reply would be longer than the memory that a script may have.
pub(super) fn write(
    stack: &mut Stack<'_>,
    script: Protocol,
    out: &mut Out,
) -> Result<(), TooLarge> {
    let most = out.len().saturating_add(stack.memory_limit());
    value(stack, How { script, most }, out, 0)
}

fn value(stack: &mut Stack<'_>, how: How, out: &mut Out, depth: usize) -> Result<(), TooLarge> {
    if depth > DEPTH_MAX || !stack.room(8) {
        out.w().error("ERR reached lua stack limit");
        stack.pop(1);
        return Ok(());
    }
    if out.len() > how.most {
        return Err(TooLarge);
    }
    match stack.kind(-1) {
        Kind::String => out.w().bulk(stack.bytes(-1).unwrap_or_default()),
        Kind::Number => out.w().integer(truncated(stack.number(-1).unwrap_or_default())),
        Kind::Boolean => match (how.script, stack.boolean(-1)) {
            (Protocol::Resp3, value) => out.w().boolean(value),
            (Protocol::Resp2, true) => out.w().integer(1),
            (Protocol::Resp2, false) => out.w().null(),
        },
        Kind::Table => table(stack, how, out, depth)?,
        _ => out.w().null(),
    }
    stack.pop(1);
    Ok(())
}

/// A number as C makes it an integer on x86: what does not fit is the least of all.
fn truncated(number: f64) -> i64 {
    const END: f64 = 9.223_372_036_854_776e18;
    match (-END..END).contains(&number) {
        true => number as i64,
        false => i64::MIN,
    }
}

/// Text on one line.
fn line(text: &[u8]) -> Vec<u8> {
    let line = |byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte };
    text.iter().map(line).collect()
}

/// Text as a C string: up to the first NUL.
pub(super) fn c_string(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// A field of the table on top, if it is of that kind: it is on top then.
fn has(stack: &mut Stack<'_>, name: &str, kinds: &[Kind]) -> bool {
    stack.raw_get_field(-1, name);
    let has = kinds.contains(&stack.kind(-1));
    if !has {
        stack.pop(1);
    }
    has
}

/// The text of the error that the value on top stands for, if it does, and whether it has
/// been counted.
pub(super) fn error(stack: &mut Stack<'_>) -> Option<(Vec<u8>, bool)> {
    if stack.kind(-1) != Kind::Table || !has(stack, "err", &[Kind::String]) {
        return None;
    }
    let text = line(c_string(stack.bytes(-1).unwrap_or_default()));
    stack.pop(1);
    stack.raw_get_field(-1, "ignore_error_stats_update");
    let counted = stack.boolean(-1);
    stack.pop(1);
    Some((text, counted))
}

fn table(stack: &mut Stack<'_>, how: How, out: &mut Out, depth: usize) -> Result<(), TooLarge> {
    const TEXT: &[Kind] = &[Kind::String];
    // An item tells most tables from those with fields of a name.
    if has(stack, "err", TEXT) {
        let text = line(c_string(stack.bytes(-1).unwrap_or_default()));
        out.w().error_bytes(&text);
    } else if has(stack, "ok", TEXT) {
        let text = line(c_string(stack.bytes(-1).unwrap_or_default()));
        out.bytes.push(b'+');
        out.bytes.extend_from_slice(&text);
        out.w().crlf();
    } else if has(stack, "double", &[Kind::Number]) {
        match (stack.number(-1).unwrap_or_default(), out.protocol) {
            // As `printf` writes it: 0 / 0 has a sign on x86.
            (nan, Protocol::Resp2) if nan.is_nan() && nan.is_sign_negative() => {
                out.w().bulk(b"-nan");
            }
            (nan, Protocol::Resp3) if nan.is_nan() && nan.is_sign_negative() => {
                out.bytes.extend_from_slice(b",-nan\r\n");
            }
            (nan, _) if nan.is_nan() => out.w().double(nan),
            (number, _) => out.score(number),
        }
    } else if has(stack, "big_number", TEXT) {
        let text = line(stack.bytes(-1).unwrap_or_default());
        out.w().big_number(text);
    } else if has(stack, "verbatim_string", &[Kind::Table]) {
        if verbatim(stack, out) {
            stack.pop(1);
            return Ok(());
        }
        stack.pop(1);
        return items(stack, how, out, depth);
    } else if has(stack, "map", &[Kind::Table]) {
        let at = out.w().array_deferred();
        let mut pairs = 0;
        stack.push_nil();
        while stack.next(-2) {
            stack.push_copy(-2);
            value(stack, how, out, depth + 1)?;
            value(stack, how, out, depth + 1)?;
            pairs += 1;
        }
        out.w().set_map_len(at, pairs);
    } else if has(stack, "set", &[Kind::Table]) {
        let at = out.w().array_deferred();
        let mut members = 0;
        stack.push_nil();
        while stack.next(-2) {
            stack.pop(1);
            stack.push_copy(-1);
            value(stack, how, out, depth + 1)?;
            members += 1;
        }
        out.w().set_set_len(at, members);
    } else {
        return items(stack, how, out, depth);
    }
    stack.pop(1);
    Ok(())
}

/// The verbatim text that the table on top describes, if it does.
fn verbatim(stack: &mut Stack<'_>, out: &mut Out) -> bool {
    stack.raw_get_field(-1, "format");
    stack.raw_get_field(-2, "string");
    let written = match (stack.kind(-2), stack.kind(-1)) {
        (Kind::String, Kind::String) => {
            let format = c_string(stack.bytes(-2).unwrap_or_default());
            let format = String::from_utf8_lossy(format).into_owned();
            let format: String = format.chars().chain("   ".chars()).take(3).collect();
            out.w().verbatim(&format, stack.bytes(-1).unwrap_or_default());
            true
        }
        _ => false,
    };
    stack.pop(2);
    written
}

/// The items of the table on top, up to the first that is nil.
fn items(stack: &mut Stack<'_>, how: How, out: &mut Out, depth: usize) -> Result<(), TooLarge> {
    let at = out.w().array_deferred();
    let mut items = 0;
    loop {
        stack.raw_get_item(-1, items as i32 + 1);
        if stack.is_nil(-1) {
            stack.pop(1);
            break;
        }
        value(stack, how, out, depth + 1)?;
        items += 1;
    }
    out.w().set_array_len(at, items);
    Ok(())
}
