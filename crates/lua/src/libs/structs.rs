//! `struct`: values packed into strings and back, by a format.

use super::Functions;
use crate::machine::{Answer, Raise, Stack};
use std::iter::Peekable;

pub(super) const FUNCTIONS: Functions = &[("pack", pack), ("unpack", unpack), ("size", size)];

/// The most bytes of an integer.
const INTEGER_MAX: usize = 32;
/// The alignment of `!` without a number.
const ALIGN_MAX: usize = 8;

/// What is read of a format as it goes.
struct Format<I: Iterator<Item = u8>> {
    rest: Peekable<I>,
    big: bool,
    align: usize,
}

impl<'f> Format<std::iter::Copied<std::slice::Iter<'f, u8>>> {
    fn of(format: &'f [u8]) -> Self {
        // As a C string.
        let end = format.iter().position(|&b| b == 0).unwrap_or(format.len());
        Self {
            rest: format[..end].iter().copied().peekable(),
            big: cfg!(target_endian = "big"),
            align: 1,
        }
    }
}

impl<I: Iterator<Item = u8>> Format<I> {
    fn number(&mut self, or: usize) -> Result<usize, Raise> {
        let mut number = None;
        while let Some(digit) = self.rest.next_if(u8::is_ascii_digit) {
            let next = number.unwrap_or(0) * 10 + usize::from(digit - b'0');
            if next > i32::MAX as usize {
                return Err(Raise::text("integral size overflow"));
            }
            number = Some(next);
        }
        Ok(number.unwrap_or(or))
    }

    /// Bytes of an option.
    fn size(&mut self, option: u8) -> Result<usize, Raise> {
        Ok(match option {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'f' => 4,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'c' => self.number(1)?,
            b'i' | b'I' => {
                let size = self.number(4)?;
                if size > INTEGER_MAX {
                    let what =
                        format!("integral size {size} is larger than limit of {INTEGER_MAX}");
                    return Err(Raise::text(what));
                }
                size
            }
            _ => 0,
        })
    }

    /// Bytes that are left out before an option of that size.
    fn padding(&self, at: usize, option: u8, size: usize) -> usize {
        if size == 0 || option == b'c' {
            return 0;
        }
        let size = size.min(self.align);
        size.wrapping_sub(at & (size - 1)) & (size - 1)
    }

    /// An option that is no value.
    fn control(&mut self, option: u8) -> Result<(), Raise> {
        match option {
            b' ' => {}
            b'>' => self.big = true,
            b'<' => self.big = false,
            b'!' => {
                let align = self.number(ALIGN_MAX)?;
                if !align.is_power_of_two() {
                    return Err(Raise::text(format!("alignment {align} is not a power of 2")));
                }
                self.align = align;
            }
            other => {
                let mut why = b"invalid format option '".to_vec();
                why.extend_from_slice(&[other, b'\'']);
                return Err(Raise::Arg(1, why));
            }
        }
        Ok(())
    }
}

fn is_integer(option: u8) -> bool {
    matches!(option, b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I')
}

fn put(out: &mut Vec<u8>, little: &[u8], big: bool) {
    let from = out.len();
    out.extend_from_slice(little);
    if big {
        out[from..].reverse();
    }
}

/// A number as C makes it an integer on x86: what does not fit has the highest bit alone,
/// and what is too large for an unsigned one nothing.
fn as_in_c(number: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    let signed = |number: f64| match (-HALF..HALF).contains(&number) {
        true => number as i64 as u64,
        false => 1 << 63,
    };
    if number >= HALF { signed(number - HALF) ^ 1 << 63 } else { signed(number) }
}

fn pack(stack: &mut Stack<'_>) -> Answer {
    let format = stack.check_bytes(1)?.to_vec();
    // Behind the arguments, as in Redis: what is missing is told to be nil.
    stack.push_nil();
    let mut format = Format::of(&format);
    let (mut out, mut at, mut arg) = (Vec::new(), 0usize, 2);
    while let Some(option) = format.rest.next() {
        let mut size = format.size(option)?;
        let padding = format.padding(at, option, size);
        at += padding;
        out.resize(out.len() + padding, 0);
        match option {
            _ if is_integer(option) => {
                let number = stack.check_number(arg)?;
                arg += 1;
                let value = as_in_c(number);
                let mut bytes = [0; INTEGER_MAX];
                bytes[..8].copy_from_slice(&value.to_le_bytes());
                put(&mut out, &bytes[..size], format.big);
            }
            b'x' => out.push(0),
            b'f' => {
                put(&mut out, &(stack.check_number(arg)? as f32).to_le_bytes(), format.big);
                arg += 1;
            }
            b'd' => {
                put(&mut out, &stack.check_number(arg)?.to_le_bytes(), format.big);
                arg += 1;
            }
            b'c' | b's' => {
                let text = stack.check_bytes(arg)?;
                arg += 1;
                if size == 0 {
                    size = text.len();
                }
                let text = text.get(..size).ok_or_else(|| Raise::arg(arg, "string too short"))?;
                out.extend_from_slice(text);
                if option == b's' {
                    out.push(0);
                    size += 1;
                }
            }
            _ => format.control(option)?,
        }
        at += size;
        if out.len() > (1 << 20) {
            stack.afford(out.len())?;
        }
    }
    stack.afford(out.len())?;
    stack.push_bytes(&out);
    Ok(1)
}

fn integer(bytes: &[u8], big: bool, signed: bool) -> f64 {
    let mut value = 0u64;
    let mut take = |byte: &u8| value = value << 8 | u64::from(*byte);
    match big {
        true => bytes.iter().for_each(&mut take),
        false => bytes.iter().rev().for_each(&mut take),
    }
    if !signed {
        return value as f64;
    }
    let bits = bytes.len() * 8;
    if bits > 0 && bits < 64 && value >> (bits - 1) & 1 == 1 {
        value |= u64::MAX << (bits - 1);
    }
    value as i64 as f64
}

fn too_short() -> Raise {
    Raise::arg(2, "data string too short")
}

fn unpack(stack: &mut Stack<'_>) -> Answer {
    let format = stack.check_bytes(1)?.to_vec();
    let mut format = Format::of(&format);
    let data = stack.check_bytes(2)?.to_vec();
    let first = stack.optional_int(3, 1)?;
    if stack.number(3).is_some_and(|first| !first.is_finite()) {
        return Err(too_short());
    }
    if first == 0 {
        return Err(Raise::arg(3, "offset must be 1 or greater"));
    }
    if first < 0 {
        return Err(too_short());
    }
    let (mut at, mut results) = (first as usize - 1, 0usize);
    while let Some(option) = format.rest.next() {
        let mut size = format.size(option)?;
        at = at.saturating_add(format.padding(at, option, size));
        let within = |size: usize| data.get(at..at.checked_add(size)?);
        let bytes = within(size).ok_or_else(too_short)?;
        if !stack.room(2) {
            return Err(Raise::text("stack overflow (too many results)"));
        }
        match option {
            _ if is_integer(option) => {
                stack.push_number(integer(bytes, format.big, option.is_ascii_lowercase()));
                results += 1;
            }
            b'f' | b'd' => {
                let mut bytes = bytes.to_vec();
                if format.big {
                    bytes.reverse();
                }
                let number = match <[u8; 4]>::try_from(&bytes[..]) {
                    Ok(four) => f64::from(f32::from_le_bytes(four)),
                    Err(_) => {
                        f64::from_le_bytes(<[u8; 8]>::try_from(&bytes[..]).unwrap_or_default())
                    }
                };
                stack.push_number(number);
                results += 1;
            }
            b'c' => {
                if size == 0 {
                    let length = if results == 0 { None } else { stack.number(-1) };
                    let length =
                        length.ok_or_else(|| Raise::text("format 'c0' needs a previous size"))?;
                    if length < 0.0 {
                        return Err(too_short());
                    }
                    size = length as usize;
                    stack.pop(1);
                    results -= 1;
                }
                stack.push_bytes(within(size).ok_or_else(too_short)?);
                results += 1;
            }
            b's' => {
                let rest = &data[at..];
                let end = rest.iter().position(|&b| b == 0);
                let end = end.ok_or_else(|| Raise::text("unfinished string in data"))?;
                stack.push_bytes(&rest[..end]);
                size = end + 1;
                results += 1;
            }
            b'x' => {}
            _ => format.control(option)?,
        }
        at += size;
    }
    stack.push_number(at as f64 + 1.0);
    Ok(results + 1)
}

fn size(stack: &mut Stack<'_>) -> Answer {
    let format = stack.check_bytes(1)?.to_vec();
    let mut format = Format::of(&format);
    let mut at = 0usize;
    while let Some(option) = format.rest.next() {
        let size = format.size(option)?;
        at = at.saturating_add(format.padding(at, option, size));
        match option {
            b's' => return Err(Raise::arg(1, "option 's' has no fixed size")),
            b'c' if size == 0 => return Err(Raise::arg(1, "option 'c0' has no fixed size")),
            _ if !option.is_ascii_alphanumeric() => format.control(option)?,
            _ => {}
        }
        at = at.saturating_add(size);
    }
    stack.push_number(at as f64);
    Ok(1)
}
