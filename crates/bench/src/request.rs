//! Requests encoded ahead of time.
//!
//! A template is a whole RESP request whose variable parts have a fixed width,
//! so that sending one is a copy and a few patched digits:
//!
//! ```text
//! *3\r\n$3\r\nSET\r\n$16\r\nkey:000000000000\r\n$64\r\nxxxx...\r\n
//!                           ^ 12 digits patched         ^ payload drawn if it varies
//! ```

use rand::{Rng, RngExt};

use crate::keys::{KeyPicker, Keys};
use crate::payload::{Payload, fill};

/// Digits of a patched number, as redis-benchmark writes them.
pub const DIGITS: usize = 12;

const KEY: &str = "__key__";
const DATA: &str = "__data__";
const RANDOM: &str = "__rand_int__";
const SEQUENCE: &str = "__seq__";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hole {
    /// Twelve digits drawn from the key distribution; equal within a request.
    Key,
    /// Twelve digits drawn uniformly from the keyspace.
    Random,
    /// Twelve digits that count the requests of this connection.
    Sequence,
    /// Payload bytes drawn anew.
    Data(usize),
}

/// A request with holes.
#[derive(Debug, Clone)]
pub struct Template {
    name: String,
    bytes: Vec<u8>,
    holes: Vec<(usize, Hole)>,
    keys: Keys,
    payload: Payload,
    sequence: u64,
}

/// Why a `--command` cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TemplateError {
    /// Nothing was given.
    #[error("the command is empty")]
    Empty,
    /// A quote is left open.
    #[error("unbalanced quotes in the command: {0}")]
    Quotes(String),
}

impl Template {
    /// Reads `xadd __key__ * d __data__`: words separated by spaces, quoted as in
    /// a shell. `__key__` becomes `key:` and twelve digits, `__rand_int__` and
    /// `__seq__` the digits alone, `__data__` `data_bytes` of payload.
    pub fn parse(
        text: &str,
        keys: Keys,
        payload: Payload,
        data_bytes: usize,
        fixed_data: &[u8],
    ) -> Result<Self, TemplateError> {
        let words = shlex::split(text).ok_or_else(|| TemplateError::Quotes(text.into()))?;
        let name = words.first().ok_or(TemplateError::Empty)?.to_uppercase();
        let mut template = Self {
            name,
            bytes: format!("*{}\r\n", words.len()).into_bytes(),
            holes: Vec::new(),
            keys,
            payload,
            sequence: 0,
        };
        for word in &words {
            template.push_word(word, data_bytes, fixed_data);
        }
        Ok(template)
    }

    /// A request without holes as one line of text, which servers take too.
    pub fn inline(text: &str, keys: Keys) -> Self {
        Self {
            name: text.split(' ').next().unwrap_or("").to_uppercase(),
            bytes: format!("{text}\r\n").into_bytes(),
            holes: Vec::new(),
            keys,
            payload: Payload::Fixed,
            sequence: 0,
        }
    }

    /// The command's name, upper case.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The template as one connection uses it: key `connection` of the
    /// sequential distribution begins at that connection's own share.
    pub fn for_connection(&self, connection: usize, connections: usize) -> Self {
        let mut own = self.clone();
        own.keys = self.keys.share(connection as u64, connections as u64);
        own
    }

    fn push_word(&mut self, word: &str, data_bytes: usize, fixed_data: &[u8]) {
        let mut argument = Vec::new();
        let mut holes = Vec::new();
        let mut rest = word;
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix(KEY) {
                argument.extend_from_slice(b"key:");
                holes.push((argument.len(), Hole::Key));
                argument.extend_from_slice(&[b'0'; DIGITS]);
                rest = after;
            } else if let Some(after) = rest.strip_prefix(RANDOM) {
                holes.push((argument.len(), Hole::Random));
                argument.extend_from_slice(&[b'0'; DIGITS]);
                rest = after;
            } else if let Some(after) = rest.strip_prefix(SEQUENCE) {
                holes.push((argument.len(), Hole::Sequence));
                argument.extend_from_slice(&[b'0'; DIGITS]);
                rest = after;
            } else if let Some(after) = rest.strip_prefix(DATA) {
                if self.payload != Payload::Fixed {
                    holes.push((argument.len(), Hole::Data(data_bytes)));
                }
                argument.extend(fixed_data.iter().cycle().take(data_bytes));
                rest = after;
            } else {
                let step = rest.chars().next().map_or(1, char::len_utf8);
                argument.extend_from_slice(&rest.as_bytes()[..step]);
                rest = &rest[step..];
            }
        }
        self.bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        let base = self.bytes.len();
        self.holes.extend(holes.into_iter().map(|(at, hole)| (base + at, hole)));
        self.bytes.extend_from_slice(&argument);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Appends one request.
    pub fn write(&mut self, rng: &mut impl Rng, out: &mut Vec<u8>) {
        let base = out.len();
        out.extend_from_slice(&self.bytes);
        if self.holes.is_empty() {
            return;
        }
        let key = self.keys.next(rng);
        for &(at, hole) in &self.holes {
            let hole_start = base + at;
            match hole {
                Hole::Key => put_digits(&mut out[hole_start..hole_start + DIGITS], key),
                Hole::Random => {
                    let number = rng.random_range(0..self.keys.count());
                    put_digits(&mut out[hole_start..hole_start + DIGITS], number);
                }
                Hole::Sequence => {
                    put_digits(&mut out[hole_start..hole_start + DIGITS], self.sequence);
                }
                Hole::Data(bytes) => {
                    fill(self.payload, rng, &mut out[hole_start..hole_start + bytes]);
                }
            }
        }
        self.sequence += 1;
    }
}

/// Writes `number` right-aligned over zeros, which are left where it has none of
/// its own: most of a request's cost were these divisions.
fn put_digits(zeros: &mut [u8], mut number: u64) {
    for digit in zeros.iter_mut().rev() {
        if number == 0 {
            break;
        }
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Appends a request given as arguments: for requests that no template fits.
pub fn write_request(out: &mut Vec<u8>, arguments: &[&[u8]]) {
    write_header(out, b'*', arguments.len());
    arguments.iter().for_each(|argument| write_argument(out, argument));
}

/// Appends one argument of a request.
pub fn write_argument(out: &mut Vec<u8>, argument: &[u8]) {
    write_header(out, b'$', argument.len());
    out.extend_from_slice(argument);
    out.extend_from_slice(b"\r\n");
}

/// Appends `*N\r\n` or `$N\r\n`.
pub fn write_header(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    write_number(out, number as u64);
    out.extend_from_slice(b"\r\n");
}

/// Appends a number in decimal.
pub fn write_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;

    use super::*;
    use crate::keys::KeyDistribution;

    fn rendered(text: &str, payload: Payload) -> String {
        let keys = Keys::new(KeyDistribution::Sequential, 1000, 0.99);
        let mut template = Template::parse(text, keys, payload, 4, b"xyz").unwrap();
        let mut out = Vec::new();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        template.write(&mut rng, &mut out);
        out.clear();
        template.write(&mut rng, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn holes_are_patched_in_place() {
        assert_eq!(
            rendered("xadd __key__ * 'a b' __data__", Payload::Fixed),
            "*5\r\n$4\r\nxadd\r\n$16\r\nkey:000000000001\r\n$1\r\n*\r\n$3\r\na b\r\n$4\r\nxyzx\r\n"
        );
        assert_eq!(
            rendered("SET {t}__seq__:é 1", Payload::Fixed),
            "*3\r\n$3\r\nSET\r\n$18\r\n{t}000000000001:é\r\n$1\r\n1\r\n"
        );
    }

    #[test]
    fn fresh_data_keeps_its_width() {
        let one = rendered("SET k __data__", Payload::Random);
        assert_eq!(one.len(), "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\nabcd\r\n".len());
    }

    #[test]
    fn bad_commands_are_refused() {
        let keys = Keys::new(KeyDistribution::Uniform, 1, 0.99);
        let parse = |text| Template::parse(text, keys.clone(), Payload::Fixed, 1, b"x").err();
        assert_eq!(parse(""), Some(TemplateError::Empty));
        assert_eq!(parse("set 'a"), Some(TemplateError::Quotes("set 'a".into())));
    }

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 7, 10, 999, u64::MAX] {
            let mut out = Vec::new();
            write_number(&mut out, number);
            assert_eq!(out, number.to_string().into_bytes());
        }
    }
}
