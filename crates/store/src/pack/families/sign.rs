//! What a value is, as far as its first bytes tell cheaply: values that look alike have
//! one sign, whatever their keys are called.
//!
//! ```text
//!  {"id":1,"name":"x"}        {id,name     the first two fields of an object
//!  <?xml ...?><order id="1">  <order       the first element
//!  a:2:{s:4:"user";...        php:user     serialised by PHP, the first text in it
//!  eyJhbGciOi...              jwt
//!  2026-03-01T12:33:12Z       date         a short one, by its characters
//!  a few words                text         with its script, where that is not Latin
//!  8f 03 d1 5e ...            noise        what hardly repeats a byte
//!  80 04 95 ...               x80          others, by their first byte
//! ```
//!
//! Wrong guesses harm nothing: a sign decides only which values are learnt from
//! together. Cost: a look at some 100 bytes.

use std::fmt::Write;

/// Bytes that are looked at.
const LOOKED_AT: usize = 192;
/// The longest name of a sign.
const NAME_MAX: usize = 40;
/// The longest name of a field in it.
const FIELD_MAX: usize = 16;

/// What values look like that are learnt from together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sign {
    len: u8,
    name: [u8; NAME_MAX],
}

impl Sign {
    fn new() -> Self {
        Self { len: 0, name: [0; NAME_MAX] }
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name[..usize::from(self.len)]
    }

    fn push(&mut self, bytes: &[u8]) {
        let len = usize::from(self.len);
        let some = bytes.len().min(NAME_MAX - len);
        self.name[len..len + some].copy_from_slice(&bytes[..some]);
        self.len += some as u8;
    }

    fn with(mut self, bytes: &[u8]) -> Self {
        self.push(bytes);
        self
    }

    /// A number that stands for it, never 0.
    pub(crate) fn number(&self) -> u32 {
        let hash = self
            .name()
            .iter()
            .fold(0x811c_9dc5u32, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        hash.max(1)
    }

    /// The sign of a value.
    pub(crate) fn of(raw: &[u8]) -> Self {
        let front = &raw[..raw.len().min(LOOKED_AT)];
        // First of all: among many, some begin with any byte.
        if is_noise(front) {
            return Self::new().with(b"noise");
        }
        let trimmed = front.trim_ascii_start();
        match trimmed {
            [b'{', ..] => return of_object(trimmed, Self::new().with(b"{")),
            [b'[', rest @ ..] => {
                let sign = Self::new().with(b"[");
                return match rest.trim_ascii_start() {
                    inner @ [b'{', ..] => of_object(inner, sign.with(b"{")),
                    [b'"', ..] => sign.with(b"\""),
                    _ => sign,
                };
            }
            [b'<', ..] => return of_markup(trimmed),
            [b'e', b'y', b'J', ..] => return Self::new().with(b"jwt"),
            [b'a' | b'O' | b's' | b'b' | b'i' | b'd', b':', b'0'..=b'9' | b'-', ..] => {
                let quoted = front.split(|&byte| byte == b'"').nth(1).unwrap_or_default();
                return Self::new().with(b"php:").with(field(quoted));
            }
            _ => {}
        }
        if is_wide(front) {
            return Self::new().with(b"utf-16");
        }
        match is_text(front) {
            true => of_text(front, raw.len()),
            false => {
                let mut sign = Self::new();
                let _ = write!(sign, "x{:02x}", front.first().copied().unwrap_or(0));
                sign
            }
        }
    }
}

impl Write for Sign {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// As much of a field's name as is looked at; nothing where it seems to be data.
fn field(name: &[u8]) -> &[u8] {
    let digits = name.iter().filter(|byte| byte.is_ascii_digit()).count();
    let is_name = digits <= 2 && name.len() <= 64;
    if is_name { &name[..name.len().min(FIELD_MAX)] } else { b"#" }
}

/// The names of the first two fields of a JSON object.
fn of_object(text: &[u8], mut sign: Sign) -> Sign {
    let (mut depth, mut found, mut at) = (0u32, 0, 0);
    let mut expects_name = false;
    while at < text.len() && found < 2 {
        match text[at] {
            b'{' => {
                depth += 1;
                expects_name = depth == 1;
            }
            b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => expects_name = depth == 1,
            b'"' => {
                let rest = &text[at + 1..];
                let mut len = 0;
                while len < rest.len() && rest[len] != b'"' {
                    len += if rest[len] == b'\\' { 2 } else { 1 };
                }
                let len = len.min(rest.len());
                if std::mem::take(&mut expects_name) {
                    if found > 0 {
                        sign.push(b",");
                    }
                    sign.push(field(&rest[..len]));
                    found += 1;
                }
                at += len + 1;
            }
            _ => {}
        }
        at += 1;
    }
    sign
}

/// The first element's name, behind declarations and comments.
fn of_markup(text: &[u8]) -> Sign {
    for part in text.split(|&byte| byte == b'<').skip(1) {
        if part.first().is_some_and(u8::is_ascii_alphabetic) {
            let is_name = |byte: &&u8| byte.is_ascii_alphanumeric() || b"-_:".contains(byte);
            let len = part.iter().take_while(is_name).count();
            let name = part[..len.min(FIELD_MAX)].to_ascii_lowercase();
            return Sign::new().with(b"<").with(&name);
        }
    }
    Sign::new().with(b"<")
}

/// Whether every other byte of many is 0, as in UTF-16 of Latin letters.
fn is_wide(front: &[u8]) -> bool {
    let odd = front.iter().skip(1).step_by(2).filter(|&&byte| byte == 0).count();
    let even = front.iter().step_by(2).filter(|&&byte| byte == 0).count();
    front.len() >= 8 && odd.max(even) * 3 > front.len() && odd.min(even) * 8 < front.len()
}

/// Whether the bytes seem to be random ones: hardly any comes twice.
fn is_noise(front: &[u8]) -> bool {
    let some = &front[..front.len().min(64)];
    let mut seen = [false; 256];
    some.iter().for_each(|&byte| seen[usize::from(byte)] = true);
    let distinct = seen.iter().filter(|&&seen| seen).count();
    some.len() >= 32 && distinct * 4 >= some.len() * 3
}

/// Whether it is text: no control characters, and UTF-8 as far as that goes.
fn is_text(front: &[u8]) -> bool {
    let is_plain = |byte: &u8| *byte >= b' ' && *byte != 0x7f || b"\t\r\n".contains(byte);
    if !front.iter().all(is_plain) {
        return false;
    }
    match std::str::from_utf8(front) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    }
}

fn of_text(front: &[u8], len: usize) -> Sign {
    let count = |is: fn(&u8) -> bool| front.iter().filter(|byte| is(byte)).count();
    let high = count(|byte| *byte >= 0xc3);
    if high * 8 > front.len() {
        // The script, by the byte that its letters mostly begin with.
        let mut sign = Sign::new().with(b"text:");
        let mut counts = [0u8; 64];
        front.iter().filter(|&&byte| byte >= 0xc0).for_each(|&byte| {
            counts[usize::from(byte & 63)] += 1;
        });
        // Neighbouring blocks of one script count as one: Cyrillic's and Greek's two.
        let most = (0..32).max_by_key(|&at| counts[2 * at] + counts[2 * at + 1]).unwrap_or(0);
        let _ = write!(sign, "{:02x}", 0xc0 + 2 * most);
        return sign;
    }
    let (digits, spaces) = (count(u8::is_ascii_digit), count(|byte| *byte == b' '));
    let hex = count(u8::is_ascii_hexdigit);
    let name: &[u8] = if front.starts_with(b"http") {
        b"url"
    } else if spaces == 0 && len <= 64 {
        match (front.contains(&b'@'), front.contains(&b'-'), front.contains(&b':')) {
            (true, ..) => b"email",
            (_, true, false) if hex + 4 >= len && len >= 32 => b"uuid",
            (_, true, _) if digits * 2 > len => b"date",
            _ if digits == len => b"number",
            _ if hex == len && len >= 16 => b"hex",
            _ if digits * 4 > len && len > 20 => b"token",
            _ => b"word",
        }
    } else if front.contains(&b'\n') {
        b"lines"
    } else {
        b"text"
    };
    Sign::new().with(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_look_alike_have_one_sign() {
        let utf16: Vec<u8> = "some words".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let noise: Vec<u8> = (0..200u32).map(|n| (n * 167 + n * n * 31) as u8).collect();
        for (raw, name) in [
            (&br#"{"id":1,"name":"x"}"#[..], "{id,name"),
            (br#" {"id": {"deep": [1, {"a": 2}]}, "name": "x"}"#, "{id,name"),
            (br#"{"a\"b":"x,\"c\":1"}"#, "{a\\\"b"),
            (br#"[{"id":1}]"#, "[{id"),
            (br#"{"83629":1}"#, "{#"),
            (b"[1,2]", "["),
            (b"<?xml version='1.0'?>\n<order id='1'>", "<order"),
            (b"<!DOCTYPE html><HTML>", "<html"),
            (br#"a:1:{s:4:"user";i:1;}"#, "php:user"),
            (b"eyJhbGciOiJIUzI1NiJ9.e30.x", "jwt"),
            (b"2026-03-01T12:33:12.123Z", "date"),
            (b"123e4567-e89b-12d3-a456-426614174000", "uuid"),
            (b"https://www.example.com/a", "url"),
            (b"ada@example.com", "email"),
            (b"12345", "number"),
            (b"enabled", "word"),
            (b"some words and more", "text"),
            ("привет как дела".as_bytes(), "text:d0"),
            (b"\x80\x04\x95\x10", "x80"),
            (&utf16, "utf-16"),
            (&noise, "noise"),
            (b"", "number"),
        ] {
            let sign = Sign::of(raw);
            assert_eq!(String::from_utf8_lossy(sign.name()), name);
            assert_ne!(sign.number(), 0);
        }
    }

    #[test]
    fn any_bytes_have_a_sign() {
        let mut state = 1u64;
        for len in 0..400 {
            let byte = |_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                b"{}[],:\"\\<a0 \xff\x00"[(state >> 60) as usize % 14]
            };
            let raw: Vec<u8> = (0..len).map(byte).collect();
            assert!(Sign::of(&raw).name().len() <= NAME_MAX);
        }
    }
}
