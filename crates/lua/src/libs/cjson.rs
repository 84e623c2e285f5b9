//! `cjson`: JSON, as lua-cjson 2.1 reads and writes it, within its limits and with its
//! errors. What a script configures holds until it ends.

use super::Functions;
use super::number::format_g;
use crate::machine::{Answer, Kind, Raise, Stack};
use std::cell::Cell;

pub(super) const FUNCTIONS: Functions = &[
    ("encode", encode),
    ("decode", decode),
    ("encode_sparse_array", configure_sparse),
    ("encode_max_depth", |s| configure_depth(s, |c| &mut c.encode_depth)),
    ("decode_max_depth", |s| configure_depth(s, |c| &mut c.decode_depth)),
    ("encode_number_precision", configure_precision),
    ("encode_keep_buffer", configure_buffer),
    ("encode_invalid_numbers", configure_invalid_encoding),
    ("decode_invalid_numbers", configure_invalid_decoding),
    ("new", new),
];

/// What numbers that JSON has not are written as.
#[derive(Clone, Copy)]
enum Invalid {
    Refused,
    Written,
    Null,
}

/// How deep values may nest, whatever a script configures: each level is on the stack.
const DEPTH_MAX: i64 = 1_000;

#[derive(Clone, Copy)]
struct Config {
    sparse_convert: bool,
    sparse_ratio: i64,
    sparse_safe: i64,
    encode_depth: i64,
    decode_depth: i64,
    precision: i64,
    keep_buffer: bool,
    invalid_encoding: Invalid,
    invalid_decoding: bool,
}

const DEFAULT: Config = Config {
    sparse_convert: false,
    sparse_ratio: 2,
    sparse_safe: 10,
    encode_depth: 1000,
    decode_depth: 1000,
    precision: 14,
    keep_buffer: true,
    invalid_encoding: Invalid::Refused,
    invalid_decoding: true,
};

thread_local! {
    static CONFIG: Cell<Config> = const { Cell::new(DEFAULT) };
}

/// Forgets what the last script has configured.
pub(crate) fn reset() {
    CONFIG.set(DEFAULT);
}

/// Adds what is no function to the library on top of the stack.
pub(super) fn add_fields(stack: &mut Stack<'_>) {
    stack.push_null();
    stack.raw_set_field(-2, "null");
    stack.push_bytes("cjson");
    stack.raw_set_field(-2, "_NAME");
    stack.push_bytes("2.1.0");
    stack.raw_set_field(-2, "_VERSION");
}

/// Another library of its own. Configuration is one for all.
fn new(stack: &mut Stack<'_>) -> Answer {
    stack.push_table(0, FUNCTIONS.len() + 3);
    super::add(stack, FUNCTIONS);
    add_fields(stack);
    Ok(1)
}

fn change(work: impl FnOnce(&mut Config)) {
    let mut config = CONFIG.get();
    work(&mut config);
    CONFIG.set(config);
}

/// An argument that may be left out, within bounds.
fn option(stack: &Stack<'_>, at: usize, min: i64, max: i64) -> Result<Option<i64>, Raise> {
    if stack.is_nil(at as isize) {
        return Ok(None);
    }
    let value = stack.check_int(at)?;
    if value < min || value > max {
        return Err(Raise::arg(at, format!("expected integer between {min} and {max}")));
    }
    Ok(Some(value))
}

fn arguments(stack: &mut Stack<'_>, most: usize) -> Result<(), Raise> {
    if stack.top() > most {
        return Err(Raise::arg(most + 1, "found too many arguments"));
    }
    stack.set_top(most);
    Ok(())
}

fn configure_sparse(stack: &mut Stack<'_>) -> Answer {
    arguments(stack, 3)?;
    let ratio = option(stack, 2, 0, i32::MAX.into())?;
    let safe = option(stack, 3, 0, i32::MAX.into())?;
    let convert = (!stack.is_nil(1)).then(|| stack.boolean(1));
    change(|config| {
        config.sparse_convert = convert.unwrap_or(config.sparse_convert);
        config.sparse_ratio = ratio.unwrap_or(config.sparse_ratio);
        config.sparse_safe = safe.unwrap_or(config.sparse_safe);
    });
    let config = CONFIG.get();
    stack.push_boolean(config.sparse_convert);
    stack.push_number(config.sparse_ratio as f64);
    stack.push_number(config.sparse_safe as f64);
    Ok(3)
}

fn configure_depth(stack: &mut Stack<'_>, of: fn(&mut Config) -> &mut i64) -> Answer {
    arguments(stack, 1)?;
    if let Some(depth) = option(stack, 1, 1, i32::MAX.into())? {
        change(|config| *of(config) = depth);
    }
    stack.push_number(*of(&mut CONFIG.get()) as f64);
    Ok(1)
}

fn configure_precision(stack: &mut Stack<'_>) -> Answer {
    arguments(stack, 1)?;
    if let Some(precision) = option(stack, 1, 1, 14)? {
        change(|config| config.precision = precision);
    }
    stack.push_number(CONFIG.get().precision as f64);
    Ok(1)
}

fn configure_buffer(stack: &mut Stack<'_>) -> Answer {
    arguments(stack, 1)?;
    if !stack.is_nil(1) {
        let keep = stack.boolean(1);
        change(|config| config.keep_buffer = keep);
    }
    stack.push_boolean(CONFIG.get().keep_buffer);
    Ok(1)
}

fn configure_invalid_encoding(stack: &mut Stack<'_>) -> Answer {
    arguments(stack, 1)?;
    let chosen = match (stack.kind(1), stack.bytes(1)) {
        (Kind::Nil, _) => None,
        (Kind::Boolean, _) if stack.boolean(1) => Some(Invalid::Written),
        (Kind::Boolean, _) | (_, Some(b"off")) => Some(Invalid::Refused),
        (_, Some(b"on")) => Some(Invalid::Written),
        (_, Some(b"null")) => Some(Invalid::Null),
        (_, other) => {
            let other = String::from_utf8_lossy(other.unwrap_or_default()).into_owned();
            return Err(Raise::arg(1, format!("invalid option '{other}'")));
        }
    };
    if let Some(chosen) = chosen {
        change(|config| config.invalid_encoding = chosen);
    }
    match CONFIG.get().invalid_encoding {
        Invalid::Refused => stack.push_boolean(false),
        Invalid::Written => stack.push_boolean(true),
        Invalid::Null => stack.push_bytes("null"),
    }
    Ok(1)
}

fn configure_invalid_decoding(stack: &mut Stack<'_>) -> Answer {
    arguments(stack, 1)?;
    if !stack.is_nil(1) {
        let on = stack.boolean(1);
        change(|config| config.invalid_decoding = on);
    }
    stack.push_boolean(CONFIG.get().invalid_decoding);
    Ok(1)
}

fn one_argument(stack: &Stack<'_>) -> Result<(), Raise> {
    if stack.top() == 1 { Ok(()) } else { Err(Raise::arg(1, "expected 1 argument")) }
}

fn encode(stack: &mut Stack<'_>) -> Answer {
    one_argument(stack)?;
    let mut out = Vec::new();
    Encoder { config: CONFIG.get(), out: &mut out }.value(stack, 0)?;
    stack.afford(out.len())?;
    stack.push_bytes(&out);
    Ok(1)
}

struct Encoder<'o> {
    config: Config,
    out: &'o mut Vec<u8>,
}

fn cannot(stack: &Stack<'_>, at: isize, why: &str) -> Raise {
    Raise::text(format!("Cannot serialise {}: {why}", stack.type_name(at)))
}

impl Encoder<'_> {
    /// Writes the value on top of the stack.
    fn value(&mut self, stack: &mut Stack<'_>, depth: i64) -> Result<(), Raise> {
        match stack.kind(-1) {
            Kind::String => self.string(stack, -1)?,
            Kind::Number => self.number(stack, -1)?,
            Kind::Boolean if stack.boolean(-1) => self.out.extend_from_slice(b"true"),
            Kind::Boolean => self.out.extend_from_slice(b"false"),
            Kind::Nil => self.out.extend_from_slice(b"null"),
            Kind::Table => {
                let depth = depth + 1;
                if depth > self.config.encode_depth.min(DEPTH_MAX) || !stack.room(8) {
                    return Err(Raise::text(format!(
                        "Cannot serialise, excessive depth ({depth})"
                    )));
                }
                stack.check()?;
                match self.items(stack)? {
                    0 => self.object(stack, depth)?,
                    items => self.array(stack, depth, items)?,
                }
                if self.out.len() > 1 << 20 {
                    stack.afford(self.out.len())?;
                }
            }
            _ if stack.is_null(-1) => self.out.extend_from_slice(b"null"),
            _ => return Err(cannot(stack, -1, "type not supported")),
        }
        Ok(())
    }

    /// How many items the table on top has as an array; 0 if it is an object.
    fn items(&self, stack: &mut Stack<'_>) -> Result<i64, Raise> {
        let (mut max, mut items) = (0.0f64, 0);
        stack.push_nil();
        while stack.next(-2) {
            stack.pop(1);
            let key = if stack.kind(-1) == Kind::Number { stack.number(-1) } else { None };
            match key {
                Some(key) if key >= 1.0 && key.fract() == 0.0 => {
                    max = max.max(key);
                    items += 1;
                }
                _ => {
                    stack.pop(1);
                    return Ok(0);
                }
            }
        }
        let Config { sparse_ratio, sparse_safe, sparse_convert, .. } = self.config;
        let sparse =
            sparse_ratio > 0 && max > (items * sparse_ratio) as f64 && max > sparse_safe as f64;
        if sparse {
            return match sparse_convert {
                true => Ok(0),
                false => Err(cannot(stack, -1, "excessively sparse array")),
            };
        }
        Ok(max as i64)
    }

    fn array(&mut self, stack: &mut Stack<'_>, depth: i64, items: i64) -> Result<(), Raise> {
        self.out.push(b'[');
        for n in 1..=items {
            if n > 1 {
                self.out.push(b',');
            }
            stack.raw_get_item(-1, n as i32);
            self.value(stack, depth)?;
            stack.pop(1);
            stack.check_at(n as usize)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, stack: &mut Stack<'_>, depth: i64) -> Result<(), Raise> {
        self.out.push(b'{');
        let mut written = 0;
        stack.push_nil();
        while stack.next(-2) {
            if written > 0 {
                self.out.push(b',');
            }
            written += 1;
            stack.check_at(written)?;
            match stack.kind(-2) {
                Kind::Number => {
                    self.out.push(b'"');
                    self.number(stack, -2)?;
                    self.out.push(b'"');
                }
                Kind::String => self.string(stack, -2)?,
                _ => return Err(cannot(stack, -2, "table key must be a number or string")),
            }
            self.out.push(b':');
            self.value(stack, depth)?;
            stack.pop(1);
        }
        self.out.push(b'}');
        Ok(())
    }

    fn number(&mut self, stack: &Stack<'_>, at: isize) -> Result<(), Raise> {
        let number = stack.number(at).unwrap_or_default();
        if !number.is_finite() {
            match self.config.invalid_encoding {
                Invalid::Refused => return Err(cannot(stack, at, "must not be NaN or Inf")),
                Invalid::Null => {
                    self.out.extend_from_slice(b"null");
                    return Ok(());
                }
                Invalid::Written if number.is_nan() => {
                    self.out.extend_from_slice(b"nan");
                    return Ok(());
                }
                Invalid::Written => {}
            }
        }
        if number.fract() == 0.0 && number.abs() < 1e14 && self.config.precision == 14 {
            if number == 0.0 && number.is_sign_negative() {
                self.out.push(b'-');
            }
            self.out.extend_from_slice(itoa::Buffer::new().format(number as i64).as_bytes());
            return Ok(());
        }
        self.out.extend_from_slice(format_g(number, self.config.precision as usize).as_bytes());
        Ok(())
    }

    fn string(&mut self, stack: &mut Stack<'_>, at: isize) -> Result<(), Raise> {
        let text = stack.bytes(at).unwrap_or_default();
        if self.out.len() + text.len() > 1 << 20 {
            let written =
                self.out.len() + text.iter().map(|byte| escaped_len(*byte)).sum::<usize>();
            stack.afford(written)?;
        }
        let text = stack.bytes(at).unwrap_or_default();
        self.out.push(b'"');
        for &byte in text {
            match byte {
                b'"' | b'\\' | b'/' => self.out.extend_from_slice(&[b'\\', byte]),
                8 => self.out.extend_from_slice(b"\\b"),
                b'\t' => self.out.extend_from_slice(b"\\t"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                12 => self.out.extend_from_slice(b"\\f"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                0..32 | 127 => self.out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                _ => self.out.push(byte),
            }
        }
        self.out.push(b'"');
        Ok(())
    }
}

/// Bytes that a byte of a string takes in JSON.
fn escaped_len(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'/' | 8 | b'\t' | b'\n' | 12 | b'\r' => 2,
        0..32 | 127 => 6,
        _ => 1,
    }
}

fn decode(stack: &mut Stack<'_>) -> Answer {
    one_argument(stack)?;
    let json = stack.check_bytes(1)?.to_vec();
    if json.len() >= 2 && (json[0] == 0 || json[1] == 0) {
        return Err(Raise::text("JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut decoder = Decoder { json: &json, at: 0, depth: 0, config: CONFIG.get() };
    let token = decoder.token();
    decoder.value(stack, token)?;
    match decoder.token() {
        Token { what: What::End, .. } => Ok(1),
        other => Err(unexpected("the end", &other)),
    }
}

#[derive(Debug)]
enum What {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

#[derive(Debug)]
struct Token {
    what: What,
    at: usize,
}

fn unexpected(wanted: &str, token: &Token) -> Raise {
    let found = match token.what {
        What::ObjectBegin => "T_OBJ_BEGIN",
        What::ObjectEnd => "T_OBJ_END",
        What::ArrayBegin => "T_ARR_BEGIN",
        What::ArrayEnd => "T_ARR_END",
        What::String(_) => "T_STRING",
        What::Number(_) => "T_NUMBER",
        What::Boolean(_) => "T_BOOLEAN",
        What::Null => "T_NULL",
        What::Colon => "T_COLON",
        What::Comma => "T_COMMA",
        What::End => "T_END",
        What::Error(why) => why,
    };
    Raise::text(format!("Expected {wanted} but found {found} at character {}", token.at + 1))
}

struct Decoder<'j> {
    json: &'j [u8],
    at: usize,
    depth: i64,
    config: Config,
}

impl Decoder<'_> {
    /// The byte there, 0 at the end.
    fn peek(&self, ahead: usize) -> u8 {
        self.json.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn token(&mut self) -> Token {
        while matches!(self.peek(0), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        let at = self.at;
        let rest = &self.json[at.min(self.json.len())..];
        let (what, len) = match self.peek(0) {
            b'{' => (What::ObjectBegin, 1),
            b'}' => (What::ObjectEnd, 1),
            b'[' => (What::ArrayBegin, 1),
            b']' => (What::ArrayEnd, 1),
            b':' => (What::Colon, 1),
            b',' => (What::Comma, 1),
            0 => (What::End, 0),
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' => return self.number(),
            _ if rest.starts_with(b"true") => (What::Boolean(true), 4),
            _ if rest.starts_with(b"false") => (What::Boolean(false), 5),
            _ if rest.starts_with(b"null") => (What::Null, 4),
            b'+' | b'i' | b'I' | b'n' | b'N' if self.is_invalid_number() => {
                return match self.config.invalid_decoding {
                    true => self.number(),
                    false => Token { what: What::Error("invalid token"), at },
                };
            }
            _ => (What::Error("invalid token"), 0),
        };
        self.at += len;
        Token { what, at }
    }

    /// Whether a number begins here that JSON does not have.
    fn is_invalid_number(&self) -> bool {
        if self.peek(0) == b'+' {
            return true;
        }
        let skip = usize::from(self.peek(0) == b'-');
        let (first, second) = (self.peek(skip), self.peek(skip + 1));
        if first == b'0' {
            return second | 0x20 == b'x' || second.is_ascii_digit();
        }
        let rest = self.json.get(self.at + skip..).unwrap_or_default();
        let begins = |word: &[u8]| rest.get(..3).is_some_and(|r| r.eq_ignore_ascii_case(word));
        first > b'9' && (begins(b"inf") || begins(b"nan"))
    }

    fn number(&mut self) -> Token {
        let at = self.at;
        let invalid = Token { what: What::Error("invalid number"), at };
        if !self.config.invalid_decoding && self.is_invalid_number() {
            return invalid;
        }
        let rest = &self.json[at..];
        match strtod(rest) {
            Some((number, len)) => {
                self.at += len;
                Token { what: What::Number(number), at }
            }
            None => invalid,
        }
    }

    fn string(&mut self) -> Token {
        let mut text = Vec::new();
        self.at += 1;
        let begin = self.at - 1;
        let error = |at, why| Token { what: What::Error(why), at };
        loop {
            match self.peek(0) {
                b'"' => break,
                0 => return error(self.at, "unexpected end of string"),
                b'\\' => {
                    let escaped = match self.peek(1) {
                        byte @ (b'"' | b'\\' | b'/') => byte,
                        b'b' => 8,
                        b't' => b'\t',
                        b'n' => b'\n',
                        b'f' => 12,
                        b'r' => b'\r',
                        b'u' => match self.unicode() {
                            Some(code) => {
                                text.extend_from_slice(code.encode_utf8(&mut [0; 4]).as_bytes());
                                continue;
                            }
                            None => return error(self.at, "invalid unicode escape code"),
                        },
                        _ => return error(self.at, "invalid escape code"),
                    };
                    text.push(escaped);
                    self.at += 2;
                }
                byte => {
                    text.push(byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        Token { what: What::String(text), at: begin }
    }

    /// The character of a `\uXXXX` here, or of two that belong together.
    fn unicode(&mut self) -> Option<char> {
        let unit = |at: usize| {
            let digits = self.json.get(self.at + at + 2..self.at + at + 6)?;
            let digit = |n: u32, d: &u8| Some(n << 4 | (*d as char).to_digit(16)?);
            digits.iter().try_fold(0, digit)
        };
        let high = unit(0)?;
        if high & 0xf800 != 0xd800 {
            self.at += 6;
            return char::from_u32(high);
        }
        if high & 0x400 != 0 || self.peek(6) != b'\\' || self.peek(7) != b'u' {
            return None;
        }
        let low = unit(6)?;
        if low & 0xfc00 != 0xdc00 {
            return None;
        }
        self.at += 12;
        char::from_u32(((high & 0x3ff) << 10 | low & 0x3ff) + 0x1_0000)
    }

    /// Pushes the value that begins with this token.
    fn value(&mut self, stack: &mut Stack<'_>, token: Token) -> Result<(), Raise> {
        match token.what {
            What::String(text) => stack.push_bytes(text),
            What::Number(number) => stack.push_number(number),
            What::Boolean(value) => stack.push_boolean(value),
            What::Null => stack.push_null(),
            What::ObjectBegin => self.object(stack)?,
            What::ArrayBegin => self.array(stack)?,
            _ => return Err(unexpected("value", &token)),
        }
        Ok(())
    }

    fn descend(&mut self, stack: &mut Stack<'_>) -> Result<(), Raise> {
        self.depth += 1;
        stack.afford(0)?;
        stack.check()?;
        if self.depth <= self.config.decode_depth.min(DEPTH_MAX) && stack.room(8) {
            return Ok(());
        }
        Err(Raise::text(format!(
            "Found too many nested data structures ({}) at character {}",
            self.depth, self.at
        )))
    }

    fn object(&mut self, stack: &mut Stack<'_>) -> Result<(), Raise> {
        self.descend(stack)?;
        stack.push_table(0, 0);
        let mut token = self.token();
        let mut read = 0;
        while !matches!(token.what, What::ObjectEnd) {
            read += 1;
            stack.check_at(read)?;
            let What::String(key) = token.what else {
                return Err(unexpected("object key string", &token));
            };
            stack.push_bytes(key);
            let colon = self.token();
            if !matches!(colon.what, What::Colon) {
                return Err(unexpected("colon", &colon));
            }
            let first = self.token();
            self.value(stack, first)?;
            stack.raw_set(-3);
            token = self.token();
            match token.what {
                What::ObjectEnd => break,
                What::Comma => token = self.token(),
                _ => return Err(unexpected("comma or object end", &token)),
            }
            if matches!(token.what, What::ObjectEnd) {
                return Err(unexpected("object key string", &token));
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn array(&mut self, stack: &mut Stack<'_>) -> Result<(), Raise> {
        self.descend(stack)?;
        stack.push_table(0, 0);
        let mut token = self.token();
        if !matches!(token.what, What::ArrayEnd) {
            for n in 1.. {
                self.value(stack, token)?;
                stack.raw_set_item(-2, n);
                stack.check_at(n as usize)?;
                let behind = self.token();
                match behind.what {
                    What::ArrayEnd => break,
                    What::Comma => token = self.token(),
                    _ => return Err(unexpected("comma or array end", &behind)),
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }
}

/// The number that bytes begin with, as C's `strtod` reads it, and its length.
fn strtod(bytes: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(matches!(bytes.first(), Some(b'-' | b'+')));
    let negative = bytes.first() == Some(&b'-');
    let signed = |number: f64| if negative { -number } else { number };
    let rest = &bytes[sign..];
    let begins =
        |word: &[u8]| rest.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
    if begins(b"infinity") {
        return Some((signed(f64::INFINITY), sign + 8));
    }
    if begins(b"inf") {
        return Some((signed(f64::INFINITY), sign + 3));
    }
    if begins(b"nan") {
        return Some((signed(f64::NAN), sign + 3));
    }
    let digits = |from: usize| rest[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    if begins(b"0x") {
        let hex: Vec<u32> = rest[2..].iter().map_while(|b| (*b as char).to_digit(16)).collect();
        if !hex.is_empty() {
            let number = hex.iter().fold(0.0, |n, &d| n * 16.0 + f64::from(d));
            return Some((signed(number), sign + 2 + hex.len()));
        }
    }
    let whole = digits(0);
    let mut len = whole;
    let mut any = whole > 0;
    if rest.get(len) == Some(&b'.') {
        let fraction = digits(len + 1);
        any |= fraction > 0;
        if any {
            len += 1 + fraction;
        }
    }
    if !any {
        return None;
    }
    if matches!(rest.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(rest.get(len + 1), Some(b'-' | b'+')));
        let exponent = digits((len + 1 + sign).min(rest.len()));
        if exponent > 0 {
            len += 1 + sign + exponent;
        }
    }
    let text = std::str::from_utf8(&rest[..len]).ok()?;
    Some((signed(text.parse().ok()?), sign + len))
}
