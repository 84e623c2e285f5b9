//! `string`: the functions that may take long, or much: those with patterns, and `rep`.

use super::Functions;
use super::pattern::{Capture, Fault, Matcher};
use crate::machine::{Answer, Kind, Raise, Stack};

const FUNCTIONS: Functions = &[
    ("find", |s| find(s, true)),
    ("match", |s| find(s, false)),
    ("gmatch", gmatch),
    ("gfind", gmatch),
    ("gsub", gsub),
    ("rep", repeat),
];

/// What makes a pattern more than a plain string.
const SPECIAL: &[u8] = b"^$*+?.([%-";

/// Adds the functions to the library on top of the stack.
pub(super) fn add(stack: &mut Stack<'_>) {
    super::add(stack, FUNCTIONS);
}

/// Nobody gets the metatable of all strings.
pub(super) fn protect_metatable(stack: &mut Stack<'_>) {
    stack.push_bytes("");
    if stack.push_metatable(-1) {
        stack.push_table(0, 1);
        stack.raw_get_field(-2, "__index");
        stack.push_protected();
        stack.raw_set_field(-2, "__index");
        stack.push_protected();
        stack.raw_set_field(-2, "__metatable");
        stack.pop(1);
    }
    stack.pop(1);
}

fn raised(stack: &mut Stack<'_>, fault: Fault) -> Raise {
    match fault {
        Fault::Pattern(why) => Raise::text(why),
        Fault::Ended => match stack.check() {
            Err(raise) => raise,
            Ok(()) => Raise::text("pattern too complex"),
        },
    }
}

/// What is to be pushed of a match: captures, or the whole.
fn results(matcher: &Matcher<'_>, whole: Option<(usize, usize)>) -> Result<Vec<Capture>, Fault> {
    let captures = matcher.captures()?;
    Ok(match (captures.is_empty(), whole) {
        (true, Some((from, to))) => vec![Capture::Part(from, to)],
        _ => captures.to_vec(),
    })
}

/// Pushes captures of the string at `of`.
fn push(stack: &mut Stack<'_>, of: isize, captures: &[Capture]) -> Result<usize, Raise> {
    if !stack.room(captures.len() + 4) {
        return Err(Raise::text("stack overflow (too many captures)"));
    }
    for capture in captures {
        match *capture {
            Capture::Part(from, to) => stack.push_part(of, from..to),
            Capture::Position(at) => stack.push_number(at as f64 + 1.0),
            Capture::Open(_) => stack.push_nil(),
        }
    }
    Ok(captures.len())
}

fn find(stack: &mut Stack<'_>, find: bool) -> Answer {
    let pattern_len = {
        stack.check_bytes(1)?;
        stack.check_bytes(2)?.len()
    };
    let len = stack.check_bytes(1)?.len();
    let init = stack.optional_int(3, 1)?;
    let init = if init < 0 { init + len as i64 + 1 } else { init };
    let init = ((init - 1).max(0) as usize).min(len);
    let plain = find && {
        let pattern = stack.check_bytes(2)?;
        let pattern = pattern.split(|&b| b == 0).next().unwrap_or_default();
        stack.boolean(4) || !pattern.iter().any(|b| SPECIAL.contains(b))
    };
    if plain {
        let found = index_of(&stack.check_bytes(1)?[init..], stack.check_bytes(2)?);
        let Some(at) = found else {
            stack.push_nil();
            return Ok(1);
        };
        stack.push_number((init + at + 1) as f64);
        stack.push_number((init + at + pattern_len) as f64);
        return Ok(2);
    }
    let found = {
        let go_on = || stack.may_go_on();
        let mut matcher = Matcher::new(stack.check_bytes(1)?, stack.check_bytes(2)?, &go_on);
        matcher.find(init).and_then(|found| match found {
            Some(range) => {
                let whole = (!find).then_some((range.start, range.end));
                Ok(Some((results(&matcher, whole)?, range)))
            }
            None => Ok(None),
        })
    };
    match found {
        Ok(Some((captures, range))) => {
            let mut pushed = 0;
            if find {
                stack.push_number(range.start as f64 + 1.0);
                stack.push_number(range.end as f64);
                pushed = 2;
            }
            Ok(pushed + push(stack, 1, &captures)?)
        }
        Ok(None) => {
            stack.push_nil();
            Ok(1)
        }
        Err(fault) => Err(raised(stack, fault)),
    }
}

/// Where `needle` is first. Never quadratic.
fn index_of(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(haystack, needle)
}

fn gmatch(stack: &mut Stack<'_>) -> Answer {
    stack.check_bytes(1)?;
    stack.check_bytes(2)?;
    stack.set_top(2);
    stack.push_number(0.0);
    stack.push_closure(gmatch_next, 3);
    Ok(1)
}

/// The next match, from the place in the third upvalue on.
fn gmatch_next(stack: &mut Stack<'_>) -> Answer {
    stack.set_top(0);
    (2..=4).for_each(|n| stack.push_upvalue(n));
    let from = stack.check_int(3)? as usize;
    let found = {
        let go_on = || stack.may_go_on();
        let source = stack.check_bytes(1)?;
        // A pattern's `^` is no anchor here, but matches itself, as in Lua 5.1.
        let mut matcher = Matcher::new(source, stack.check_bytes(2)?, &go_on).unanchored();
        let mut found = Ok(None);
        for at in from..=source.len() {
            match matcher.match_at(at) {
                Ok(None) => {}
                Ok(Some(end)) => {
                    found = results(&matcher, Some((at, end))).map(|c| Some((c, at..end)));
                    break;
                }
                Err(fault) => {
                    found = Err(fault);
                    break;
                }
            }
        }
        found
    };
    match found {
        Ok(Some((captures, range))) => {
            let next = range.end + usize::from(range.is_empty());
            stack.push_number(next as f64);
            stack.set_upvalue(4);
            push(stack, 1, &captures)
        }
        Ok(None) => Ok(0),
        Err(fault) => Err(raised(stack, fault)),
    }
}

fn gsub(stack: &mut Stack<'_>) -> Answer {
    stack.check_bytes(1)?;
    stack.check_bytes(2)?;
    let kind = stack.kind(3);
    if !matches!(kind, Kind::Number | Kind::String | Kind::Function | Kind::Table) {
        return Err(Raise::arg(3, "string/function/table expected"));
    }
    let len = stack.check_bytes(1)?.len();
    let most = stack.optional_int(4, len as i64 + 1)?;
    stack.set_top(3);
    let is_text = matches!(kind, Kind::Number | Kind::String);
    let asks_for_all = kind == Kind::Function;
    let plain = is_text && !stack.check_bytes(3)?.contains(&b'%');
    let (mut out, mut at, mut count, mut rounds) = (Vec::new(), 0, 0i64, 0u32);
    while count < most {
        rounds += 1;
        if rounds.is_multiple_of(1024) || out.len() > (1 << 20) {
            stack.check()?;
            stack.afford(out.len())?;
        }
        let found = {
            let go_on = || stack.may_go_on();
            let mut matcher = Matcher::new(stack.check_bytes(1)?, stack.check_bytes(2)?, &go_on);
            let found = matcher.match_at(at);
            match found {
                // A capture that is not finished is an error once it is asked for.
                Ok(Some(end)) if plain => Ok(Some((Vec::new(), end, matcher.is_anchored()))),
                Ok(Some(end)) if asks_for_all => results(&matcher, Some((at, end)))
                    .map(|c| Some((c, end, matcher.is_anchored()))),
                Ok(Some(end)) => {
                    let mut captures = matcher.captures_as_they_are().to_vec();
                    if captures.is_empty() {
                        captures.push(Capture::Part(at, end));
                    }
                    Ok(Some((captures, end, matcher.is_anchored())))
                }
                Ok(None) if matcher.is_anchored() => Ok(Some((Vec::new(), usize::MAX, true))),
                Ok(None) => Ok(None),
                Err(fault) => Err(fault),
            }
        };
        let (matched, anchored) = match found {
            Err(fault) => return Err(raised(stack, fault)),
            Ok(Some((_, usize::MAX, _))) => break,
            Ok(Some((captures, end, anchored))) => {
                count += 1;
                replace(stack, &mut out, &captures, at..end)?;
                (Some(end), anchored)
            }
            Ok(None) => (None, false),
        };
        match matched {
            Some(end) if end > at => at = end,
            _ if at < len => {
                out.push(stack.check_bytes(1)?[at]);
                at += 1;
            }
            _ => {
                at = len + 1;
                break;
            }
        }
        if anchored {
            break;
        }
    }
    if at <= len {
        out.extend_from_slice(&stack.check_bytes(1)?[at..]);
    }
    stack.afford(out.len())?;
    stack.push_bytes(&out);
    stack.push_number(count as f64);
    Ok(2)
}

/// Appends what takes the place of a match.
fn replace(
    stack: &mut Stack<'_>,
    out: &mut Vec<u8>,
    captures: &[Capture],
    range: std::ops::Range<usize>,
) -> Result<(), Raise> {
    match stack.kind(3) {
        Kind::Function => {
            stack.push_copy(3);
            let pushed = push(stack, 1, captures)?;
            if stack.call(pushed, Some(1)).is_err() {
                return Err(Raise::Top);
            }
        }
        Kind::Table => {
            if let Capture::Open(_) = captures[0] {
                return Err(Raise::text("unfinished capture"));
            }
            push(stack, 1, &captures[..1])?;
            stack.get(3)?;
        }
        _ => {
            template(stack, out, captures, range)?;
            return Ok(());
        }
    }
    if stack.boolean(-1) {
        match stack.bytes(-1) {
            Some(bytes) => out.extend_from_slice(bytes),
            None => {
                let got = stack.type_name(-1);
                return Err(Raise::text(format!("invalid replacement value (a {got})")));
            }
        }
    } else {
        out.extend_from_slice(&stack.check_bytes(1)?[range]);
    }
    stack.pop(1);
    Ok(())
}

/// Appends the replacement that is a string, with captures where it names them.
fn template(
    stack: &Stack<'_>,
    out: &mut Vec<u8>,
    captures: &[Capture],
    range: std::ops::Range<usize>,
) -> Result<(), Raise> {
    let (source, text) = (stack.check_bytes(1)?, stack.check_bytes(3)?);
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        match bytes.next().unwrap_or(0) {
            b'0' => out.extend_from_slice(&source[range.clone()]),
            digit @ b'1'..=b'9' => match captures.get(usize::from(digit - b'1')) {
                Some(Capture::Part(from, to)) => out.extend_from_slice(&source[*from..*to]),
                Some(Capture::Position(at)) => {
                    out.extend_from_slice(itoa::Buffer::new().format(at + 1).as_bytes());
                }
                Some(Capture::Open(_)) => return Err(Raise::text("unfinished capture")),
                None => return Err(Raise::text("invalid capture index")),
            },
            other => out.push(other),
        }
    }
    Ok(())
}

fn repeat(stack: &mut Stack<'_>) -> Answer {
    let bytes = stack.check_bytes(1)?;
    let times = usize::try_from(stack.check_int(2)?).unwrap_or(0);
    let len = bytes.len().saturating_mul(times);
    if len == 0 {
        stack.push_bytes("");
        return Ok(1);
    }
    stack.afford(len)?;
    let repeated = stack.check_bytes(1)?.repeat(times);
    stack.push_bytes(&repeated);
    Ok(1)
}
