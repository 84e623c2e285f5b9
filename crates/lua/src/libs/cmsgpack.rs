//! `cmsgpack`: MessagePack, as lua-cmsgpack 0.4 reads and writes it.

use super::Functions;
use crate::machine::{Answer, Kind, Raise, Stack};

pub(super) const FUNCTIONS: Functions = &[
    ("pack", pack),
    ("unpack", |s| unpack(s, 0, 0)),
    ("unpack_one", |s| {
        let offset = s.optional_int(2, 0)?;
        unpack(s, 1, offset)
    }),
    ("unpack_limit", |s| {
        let (limit, offset) = (s.check_int(2)?, s.optional_int(3, 0)?);
        unpack(s, limit, offset)
    }),
];

/// How deep what is read may nest.
const DEPTH_MAX: usize = 1_000;

/// Deeper tables are packed as nil.
const NESTED_MAX: usize = 16;

/// Adds what is no function to the library on top of the stack.
pub(super) fn add_fields(stack: &mut Stack<'_>) {
    for (name, text) in [
        ("_NAME", "cmsgpack"),
        ("_VERSION", "lua-cmsgpack 0.4.0"),
        ("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo"),
        ("_DESCRIPTION", "MessagePack C implementation for Lua"),
    ] {
        stack.push_bytes(text);
        stack.raw_set_field(-2, name);
    }
}

fn pack(stack: &mut Stack<'_>) -> Answer {
    let values = stack.top();
    if values == 0 {
        return Err(Raise::arg(0, "MessagePack pack needs input."));
    }
    let mut out = Vec::new();
    for at in 1..=values {
        stack.push_copy(at as isize);
        encode(stack, &mut out, 0)?;
        stack.pop(1);
    }
    stack.afford(out.len())?;
    stack.push_bytes(&out);
    Ok(1)
}

/// Writes the value on top of the stack.
fn encode(stack: &mut Stack<'_>, out: &mut Vec<u8>, depth: usize) -> Result<(), Raise> {
    match stack.kind(-1) {
        Kind::String => {
            let len = stack.bytes(-1).map_or(0, <[u8]>::len);
            if out.len() + len > 1 << 20 {
                stack.afford(out.len() + len)?;
            }
            let bytes = stack.bytes(-1).unwrap_or_default();
            head(out, bytes.len(), Some((0xa0, 31)), [0xd9, 0xda, 0xdb]);
            out.extend_from_slice(bytes);
        }
        Kind::Boolean => out.push(if stack.boolean(-1) { 0xc3 } else { 0xc2 }),
        Kind::Number => number(out, stack.number(-1).unwrap_or_default()),
        Kind::Table if depth < NESTED_MAX => {
            if !stack.room(8) {
                return Err(Raise::text("stack overflow (in function mp_encode_lua_table)"));
            }
            stack.check()?;
            if out.len() > 1 << 20 {
                stack.afford(out.len())?;
            }
            table(stack, out, depth)?;
        }
        _ => out.push(0xc0),
    }
    Ok(())
}

/// A length: in a byte of its own kind if it is short, else behind one of the tags for
/// 8, 16 and 32 bits, the first of which may be 0 for none.
fn head(out: &mut Vec<u8>, len: usize, short: Option<(u8, usize)>, tags: [u8; 3]) {
    match short {
        Some((tag, most)) if len <= most => out.push(tag | len as u8),
        _ if len <= 0xff && tags[0] != 0 => out.extend_from_slice(&[tags[0], len as u8]),
        _ if len <= 0xffff => {
            out.push(tags[1]);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            out.push(tags[2]);
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
    }
}

fn number(out: &mut Vec<u8>, number: f64) {
    let integer = number as i64;
    if !number.is_finite() || integer as f64 != number || integer == i64::MAX {
        let single = number as f32;
        if f64::from(single) == number {
            out.push(0xca);
            out.extend_from_slice(&single.to_be_bytes());
        } else {
            out.push(0xcb);
            out.extend_from_slice(&number.to_be_bytes());
        }
        return;
    }
    let bytes = integer.to_be_bytes();
    let (tag, len) = match integer {
        -32..=127 => {
            out.push(integer as u8);
            return;
        }
        128..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        0x1_0000_0000.. => (0xcf, 8),
        -128..=-33 => (0xd0, 1),
        -0x8000..=-129 => (0xd1, 2),
        -0x8000_0000..=-0x8001 => (0xd2, 4),
        _ => (0xd3, 8),
    };
    out.push(tag);
    out.extend_from_slice(&bytes[8 - len..]);
}

fn table(stack: &mut Stack<'_>, out: &mut Vec<u8>, depth: usize) -> Result<(), Raise> {
    let (mut entries, mut max, mut is_array) = (0usize, 0.0f64, true);
    stack.push_nil();
    while stack.next(-2) {
        stack.pop(1);
        let key = if stack.kind(-1) == Kind::Number { stack.number(-1) } else { None };
        match key {
            Some(key) if key >= 1.0 && key.fract() == 0.0 && key <= 9e15 => max = max.max(key),
            _ => is_array = false,
        }
        entries += 1;
    }
    if is_array && max == entries as f64 {
        head(out, entries, Some((0x90, 15)), [0, 0xdc, 0xdd]);
        for n in 1..=entries {
            stack.raw_get_item(-1, n as i32);
            encode(stack, out, depth + 1)?;
            stack.pop(1);
            stack.check_at(n)?;
        }
        return Ok(());
    }
    head(out, entries, Some((0x80, 15)), [0, 0xde, 0xdf]);
    stack.push_nil();
    let mut written = 0;
    while stack.next(-2) {
        written += 1;
        stack.check_at(written)?;
        stack.push_copy(-2);
        encode(stack, out, depth + 1)?;
        stack.pop(1);
        encode(stack, out, depth + 1)?;
        stack.pop(1);
    }
    Ok(())
}

/// Why bytes cannot be read.
enum Unreadable {
    Short,
    Bad,
    Raise(Raise),
}

impl From<Raise> for Unreadable {
    fn from(raise: Raise) -> Self {
        Self::Raise(raise)
    }
}

fn unpack(stack: &mut Stack<'_>, limit: i64, offset: i64) -> Answer {
    let bytes = stack.check_bytes(1)?.to_vec();
    if offset < 0 || limit < 0 {
        return Err(Raise::text(format!(
            "Invalid request to unpack with offset of {offset} and limit of {}.",
            bytes.len()
        )));
    }
    if offset as usize > bytes.len() {
        return Err(Raise::text(format!(
            "Start offset {offset} greater than input length {}.",
            bytes.len()
        )));
    }
    let all = limit == 0 && offset == 0;
    let limit = if all { i64::MAX } else { limit };
    let mut input = Input { bytes: &bytes, at: offset as usize, depth: 0 };
    let mut values = 0;
    while input.at < bytes.len() && values < limit {
        if !stack.room(2) {
            return Err(Raise::text(
                "stack overflow (too many return values at once; use unpack_one or unpack_limit \
                 instead.)",
            ));
        }
        match input.value(stack) {
            Ok(()) => {}
            Err(Unreadable::Short) => return Err(Raise::text("Missing bytes in input.")),
            Err(Unreadable::Bad) => return Err(Raise::text("Bad data format in input.")),
            Err(Unreadable::Raise(raise)) => return Err(raise),
        }
        values += 1;
    }
    if !all {
        let next = if input.at == bytes.len() { -1.0 } else { input.at as f64 };
        let under = stack.top() as isize - values as isize + 1;
        stack.push_number(next);
        if values > 0 {
            stack.insert(under);
        }
        values += 1;
    }
    Ok(values as usize)
}

struct Input<'b> {
    bytes: &'b [u8],
    at: usize,
    depth: usize,
}

impl<'b> Input<'b> {
    fn take(&mut self, len: usize) -> Result<&'b [u8], Unreadable> {
        let end = self.at.checked_add(len).ok_or(Unreadable::Short)?;
        let taken = self.bytes.get(self.at..end).ok_or(Unreadable::Short)?;
        self.at = end;
        Ok(taken)
    }

    /// A big-endian number of so many bytes.
    fn uint(&mut self, len: usize) -> Result<u64, Unreadable> {
        Ok(self.take(len)?.iter().fold(0, |n, &byte| n << 8 | u64::from(byte)))
    }

    fn value(&mut self, stack: &mut Stack<'_>) -> Result<(), Unreadable> {
        let tag = self.take(1)?[0];
        match tag {
            0..=0x7f => stack.push_number(tag.into()),
            0xe0..=0xff => stack.push_number((tag as i8).into()),
            0xcc => stack.push_number(self.uint(1)? as f64),
            0xcd => stack.push_number(self.uint(2)? as f64),
            0xce => stack.push_number(self.uint(4)? as f64),
            // Redis makes a signed number of it first.
            0xcf => stack.push_number(self.uint(8)? as i64 as f64),
            0xd0 => stack.push_number((self.uint(1)? as i8).into()),
            0xd1 => stack.push_number((self.uint(2)? as i16).into()),
            0xd2 => stack.push_number((self.uint(4)? as i32).into()),
            0xd3 => stack.push_number(self.uint(8)? as i64 as f64),
            0xc0 => stack.push_nil(),
            0xc2 | 0xc3 => stack.push_boolean(tag == 0xc3),
            0xca => stack.push_number(f32::from_bits(self.uint(4)? as u32).into()),
            0xcb => stack.push_number(f64::from_bits(self.uint(8)?)),
            0xa0..=0xbf => self.string(stack, u64::from(tag & 0x1f))?,
            0xd9..=0xdb => {
                let len = self.uint(1 << (tag - 0xd9))?;
                self.string(stack, len)?;
            }
            0x90..=0x9f => self.array(stack, u64::from(tag & 0xf))?,
            0xdc | 0xdd => {
                let len = self.uint(2 << (tag - 0xdc))?;
                self.array(stack, len)?;
            }
            0x80..=0x8f => self.map(stack, u64::from(tag & 0xf))?,
            0xde | 0xdf => {
                let len = self.uint(2 << (tag - 0xde))?;
                self.map(stack, len)?;
            }
            _ => return Err(Unreadable::Bad),
        }
        Ok(())
    }

    fn string(&mut self, stack: &mut Stack<'_>, len: u64) -> Result<(), Unreadable> {
        let bytes = self.take(len as usize)?;
        stack.push_bytes(bytes);
        Ok(())
    }

    fn enter(&mut self, stack: &mut Stack<'_>) -> Result<(), Unreadable> {
        self.depth += 1;
        stack.afford(0)?;
        stack.check()?;
        if self.depth > DEPTH_MAX || !stack.room(8) {
            return Err(Raise::text("stack overflow (in function mp_decode_to_lua_type)").into());
        }
        stack.push_table(0, 0);
        Ok(())
    }

    fn array(&mut self, stack: &mut Stack<'_>, len: u64) -> Result<(), Unreadable> {
        self.enter(stack)?;
        for n in 1..=len {
            self.value(stack)?;
            stack.raw_set_item(-2, n as i32);
            stack.check_at(n as usize)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn map(&mut self, stack: &mut Stack<'_>, len: u64) -> Result<(), Unreadable> {
        self.enter(stack)?;
        for n in 0..len {
            stack.check_at(n as usize)?;
            self.value(stack)?;
            let key = stack.kind(-1);
            if key == Kind::Nil {
                return Err(Raise::text("table index is nil").into());
            }
            if key == Kind::Number && stack.number(-1).is_some_and(f64::is_nan) {
                return Err(Raise::text("table index is NaN").into());
            }
            self.value(stack)?;
            stack.raw_set(-3);
        }
        self.depth -= 1;
        Ok(())
    }
}
