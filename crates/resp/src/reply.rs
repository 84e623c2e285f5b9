//! Replies, written to the end of a byte vector.
//!
//! A handler says what it answers ([`Writer::map`], [`Writer::double`]); the
//! protocol the client asked for decides how that looks:
//!
//! | | RESP2 | RESP3 |
//! | --- | --- | --- |
//! | null, null array | `$-1`, `*-1` | `_` |
//! | map of n pairs | array of 2n | `%n` |
//! | set, push | array | `~n`, `>n` |
//! | double, big number, verbatim text | bulk | `,` `(` `=` |
//! | boolean | `:1`, `:0` | `#t`, `#f` |
//!
//! Digits go straight into the vector; nothing else is allocated.

use crate::double::append_double;
use crate::request::ProtocolError;
use std::fmt::Display;
use std::io::Write;

/// The version of the protocol a client speaks: RESP2 until it asks for more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// RESP2.
    #[default]
    Resp2,
    /// RESP3, by `HELLO 3`.
    Resp3,
}

/// Writes replies to the end of `out`.
#[derive(Debug)]
pub struct Writer<'a> {
    /// Where replies go.
    pub out: &'a mut Vec<u8>,
    /// How they look.
    pub protocol: Protocol,
}

/// Where a header will be written once its length is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Deferred(usize);

/// More than any header takes: a kind, 20 digits, `\r\n`.
const HEADER_LEN_MAX: usize = 24;

impl<'a> Writer<'a> {
    /// A writer that appends to `out`.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Self { out, protocol }
    }

    #[inline]
    fn is_resp3(&self) -> bool {
        self.protocol == Protocol::Resp3
    }

    /// `kind`, `n` and the end of the line.
    #[inline]
    fn header(&mut self, kind: u8, n: usize) {
        let digit = |n: usize| b'0' + (n % 10) as u8;
        match n {
            0..10 => self.out.extend_from_slice(&[kind, digit(n), b'\r', b'\n']),
            10..100 => {
                self.out.extend_from_slice(&[kind, digit(n / 10), digit(n), b'\r', b'\n']);
            }
            _ => self.line(kind, itoa::Buffer::new().format(n).as_bytes()),
        }
    }

    #[inline]
    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.reserve(text.len() + 3);
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A status: one line, which `text` must be.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        debug_assert!(!text.contains(['\r', '\n']), "a status is one line");
        self.line(b'+', text.as_bytes());
    }

    /// An error, its code first: `ERR syntax error`. Line ends around it are
    /// dropped, within it they become spaces.
    #[inline]
    pub fn error(&mut self, text: &str) {
        self.error_bytes(text.as_bytes());
    }

    /// An error whose text quotes a client's bytes, as [`Writer::error`].
    #[cold]
    pub fn error_bytes(&mut self, text: &[u8]) {
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let start = text.iter().position(|byte| !is_end(byte)).unwrap_or(text.len());
        let end = text.iter().rposition(|byte| !is_end(byte)).map_or(start, |last| last + 1);
        self.out.push(b'-');
        self.out
            .extend(text[start..end].iter().map(|byte| if is_end(byte) { b' ' } else { *byte }));
        self.out.extend_from_slice(b"\r\n");
    }

    /// The error of a connection that cannot be understood.
    #[cold]
    pub fn protocol_error(&mut self, error: ProtocolError) {
        match error {
            ProtocolError::ExpectedBulk(byte) if !byte.is_ascii() => {
                let mut text = b"ERR Protocol error: expected '$', got '".to_vec();
                text.extend([byte, b'\'']);
                self.error_bytes(&text);
            }
            error => self.error(&format!("ERR {error}")),
        }
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        match value {
            0 => self.out.extend_from_slice(b":0\r\n"),
            1 => self.out.extend_from_slice(b":1\r\n"),
            _ => self.line(b':', itoa::Buffer::new().format(value).as_bytes()),
        }
    }

    /// A bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.out.reserve(bytes.len() + HEADER_LEN_MAX + 2);
        self.bulk_len(bytes.len());
        self.out.extend_from_slice(bytes);
        self.crlf();
    }

    /// The header of a bulk of `len` bytes. The caller appends them to `out`,
    /// or sends them after it, and then calls [`Writer::crlf`].
    #[inline]
    pub fn bulk_len(&mut self, len: usize) {
        self.header(b'$', len);
    }

    /// The end of a line.
    #[inline]
    pub fn crlf(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer as a bulk string.
    #[inline]
    pub fn bulk_integer(&mut self, value: i64) {
        self.bulk(itoa::Buffer::new().format(value).as_bytes());
    }

    /// What `value` displays as, as a bulk string.
    pub fn bulk_display(&mut self, value: impl Display) {
        let start = self.out.len();
        // Writing to a vector does not fail; a Display that does leaves what it wrote.
        let _ = write!(self.out, "{value}");
        let len = self.out.len() - start;
        self.insert_header(start, b'$', len);
        self.crlf();
    }

    /// The absence of a value.
    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(if self.is_resp3() { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// The absence of an array.
    #[inline]
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(if self.is_resp3() { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// The header of an array of `len` values, which follow.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len);
    }

    /// The header of a map of `len` pairs; their keys and values follow.
    #[inline]
    pub fn map(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', len * 2),
            Protocol::Resp3 => self.header(b'%', len),
        }
    }

    /// The header of a set of `len` values, which follow.
    #[inline]
    pub fn set(&mut self, len: usize) {
        self.header(if self.is_resp3() { b'~' } else { b'*' }, len);
    }

    /// The header of an out-of-band message of `len` values, which follow.
    #[inline]
    pub fn push(&mut self, len: usize) {
        self.header(if self.is_resp3() { b'>' } else { b'*' }, len);
    }

    /// The header of `len` pairs that annotate the value after them, if the
    /// protocol knows such: false if not, and then the pairs are not to be
    /// written.
    #[inline]
    #[must_use = "without the header, the pairs must not be written"]
    pub fn attribute(&mut self, len: usize) -> bool {
        if self.is_resp3() {
            self.header(b'|', len);
        }
        self.is_resp3()
    }

    /// A double.
    pub fn double(&mut self, value: f64) {
        let start = self.out.len();
        if self.is_resp3() {
            self.out.push(b',');
            append_double(self.out, value);
        } else {
            append_double(self.out, value);
            let len = self.out.len() - start;
            self.insert_header(start, b'$', len);
        }
        self.crlf();
    }

    /// A boolean.
    #[inline]
    pub fn boolean(&mut self, value: bool) {
        self.out.extend_from_slice(match (self.protocol, value) {
            (Protocol::Resp2, true) => b":1\r\n",
            (Protocol::Resp2, false) => b":0\r\n",
            (Protocol::Resp3, true) => b"#t\r\n",
            (Protocol::Resp3, false) => b"#f\r\n",
        });
    }

    /// Text to be shown as it is; `extension` says what it is (`txt`, `mkd`):
    /// three bytes, cut or filled with spaces.
    pub fn verbatim(&mut self, extension: &str, text: &[u8]) {
        if self.protocol == Protocol::Resp2 {
            return self.bulk(text);
        }
        let mut format = [b' '; 3];
        for (place, byte) in format.iter_mut().zip(extension.bytes()) {
            *place = byte;
        }
        self.header(b'=', text.len() + 4);
        self.out.extend_from_slice(&format);
        self.out.push(b':');
        self.out.extend_from_slice(text);
        self.crlf();
    }

    /// An integer of any size, given as its digits.
    pub fn big_number(&mut self, digits: impl AsRef<[u8]>) {
        let digits = digits.as_ref();
        match self.protocol {
            Protocol::Resp2 => self.bulk(digits),
            Protocol::Resp3 => self.line(b'(', digits),
        }
    }

    /// Begins an aggregate whose length is not known yet: the values follow, and
    /// then one of the `set_..._len` calls. They may nest, inner ones set first.
    #[inline]
    pub fn array_deferred(&mut self) -> Deferred {
        Deferred(self.out.len())
    }

    /// Makes an array of the `len` values written since `at`. Costs one move of
    /// their bytes by the length of a header.
    pub fn set_array_len(&mut self, at: Deferred, len: usize) {
        self.insert_header(at.0, b'*', len);
    }

    /// Makes a map of the `len` pairs written since `at`.
    pub fn set_map_len(&mut self, at: Deferred, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.insert_header(at.0, b'*', len * 2),
            Protocol::Resp3 => self.insert_header(at.0, b'%', len),
        }
    }

    /// Makes a set of the `len` values written since `at`.
    pub fn set_set_len(&mut self, at: Deferred, len: usize) {
        self.insert_header(at.0, if self.is_resp3() { b'~' } else { b'*' }, len);
    }

    /// Writes a header where `start` is, moving what is behind it.
    fn insert_header(&mut self, start: usize, kind: u8, n: usize) {
        let end = self.out.len();
        self.header(kind, n);
        let header_len = self.out.len() - end;
        self.out[start..].rotate_right(header_len);
    }
}

// A method passed by name would be bound to one lifetime of its writer.
#[cfg(test)]
#[allow(clippy::redundant_closure_for_method_calls)]
mod tests {
    use super::{Protocol, Writer};
    use crate::ProtocolError;

    /// What `write` writes, in both protocols.
    fn both(write: impl Fn(&mut Writer<'_>)) -> [String; 2] {
        [Protocol::Resp2, Protocol::Resp3].map(|protocol| {
            let mut out = Vec::new();
            write(&mut Writer::new(&mut out, protocol));
            out.escape_ascii().to_string().replace("\\r\\n", "|")
        })
    }

    fn same(write: impl Fn(&mut Writer<'_>), expected: &str) {
        assert_eq!(both(write), [expected, expected]);
    }

    #[test]
    fn replies_that_are_the_same_in_both() {
        same(|w| w.ok(), "+OK|");
        same(|w| w.simple("PONG"), "+PONG|");
        same(|w| w.integer(0), ":0|");
        same(|w| w.integer(1), ":1|");
        same(|w| w.integer(i64::MIN), ":-9223372036854775808|");
        same(|w| w.bulk(b""), "$0||");
        same(|w| w.bulk(b"a\r\n"), "$3|a||");
        same(|w| w.bulk_len(usize::MAX), "$18446744073709551615|");
        same(|w| w.bulk_integer(-12), "$3|-12|");
        same(|w| w.bulk_display(format_args!("{}-{}", 15, 2)), "$4|15-2|");
        same(|w| w.array(0), "*0|");
        same(|w| w.array(9), "*9|");
        same(|w| w.array(10), "*10|");
        same(|w| w.array(99), "*99|");
        same(|w| w.array(100), "*100|");
        same(|w| w.array(123_456), "*123456|");
    }

    #[test]
    fn replies_that_differ() {
        assert_eq!(both(|w| w.null()), ["$-1|", "_|"]);
        assert_eq!(both(|w| w.null_array()), ["*-1|", "_|"]);
        assert_eq!(both(|w| w.map(3)), ["*6|", "%3|"]);
        assert_eq!(both(|w| w.set(3)), ["*3|", "~3|"]);
        assert_eq!(both(|w| w.push(3)), ["*3|", ">3|"]);
        assert_eq!(both(|w| w.boolean(true)), [":1|", "#t|"]);
        assert_eq!(both(|w| w.boolean(false)), [":0|", "#f|"]);
        assert_eq!(both(|w| w.double(2.75)), ["$4|2.75|", ",2.75|"]);
        assert_eq!(both(|w| w.double(f64::NEG_INFINITY)), ["$4|-inf|", ",-inf|"]);
        assert_eq!(both(|w| w.big_number("123")), ["$3|123|", "(123|"]);
        assert_eq!(both(|w| w.verbatim("txt", b"hi")), ["$2|hi|", "=6|txt:hi|"]);
        assert_eq!(both(|w| w.verbatim("m", b"")), ["$0||", "=4|m  :|"]);
        assert_eq!(both(|w| assert_eq!(w.attribute(2), w.is_resp3())), ["", "|2|"]);
    }

    #[test]
    fn errors_are_one_line() {
        same(|w| w.error("ERR no"), "-ERR no|");
        same(|w| w.error("\r\nERR a\r\nb\n"), "-ERR a  b|");
        same(|w| w.error("\r\n"), "-|");
        same(|w| w.error_bytes(b"ERR \xff"), "-ERR \\xff|");
        same(
            |w| w.protocol_error(ProtocolError::InvalidBulkLength),
            "-ERR Protocol error: invalid bulk length|",
        );
        same(
            |w| w.protocol_error(ProtocolError::ExpectedBulk(b'\r')),
            "-ERR Protocol error: expected \\'$\\', got \\' \\'|",
        );
        same(
            |w| w.protocol_error(ProtocolError::ExpectedBulk(0xfe)),
            "-ERR Protocol error: expected \\'$\\', got \\'\\xfe\\'|",
        );
    }

    #[test]
    fn deferred_lengths_nest() {
        let nested = |w: &mut Writer<'_>| {
            w.ok();
            let outer = w.array_deferred();
            w.integer(7);
            let map = w.array_deferred();
            w.bulk(b"k");
            w.bulk(b"v");
            w.set_map_len(map, 1);
            let set = w.array_deferred();
            w.set_set_len(set, 0);
            w.set_array_len(outer, 123);
        };
        assert_eq!(both(nested), ["+OK|*123|:7|*2|$1|k|$1|v|*0|", "+OK|*123|:7|%1|$1|k|$1|v|~0|"]);
    }
}
