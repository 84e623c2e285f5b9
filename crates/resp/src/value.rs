//! Replies, read as a client reads them: for tests and load generators.
//!
//! [`ValueParser`] takes the bytes received and gives whole [`Value`]s. It uses
//! up bytes as soon as an element is complete, remembering the aggregates it is
//! in, so a long reply in many reads is parsed once: O(bytes), and memory in
//! proportion to what arrived, not to what was claimed. Aggregates nest at most
//! [`ValueParser::DEPTH_MAX`] deep.

use crate::integer::parse_integer;

/// One reply. RESP2 and RESP3 stay distinguishable, as tests want to tell them
/// apart.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `+`: a status.
    Simple(Vec<u8>),
    /// `-`: an error, its code first.
    Error(Vec<u8>),
    /// `:`: an integer.
    Integer(i64),
    /// `$`: a bulk string.
    Bulk(Vec<u8>),
    /// `$-1`: RESP2's absence of a value.
    NullBulk,
    /// `*`: an array.
    Array(Vec<Value>),
    /// `*-1`: RESP2's absence of an array.
    NullArray,
    /// `_`: RESP3's absence of anything.
    Null,
    /// `,`: a double.
    Double(f64),
    /// `#`: a boolean.
    Boolean(bool),
    /// `(`: an integer of any size, as its digits.
    BigNumber(Vec<u8>),
    /// `!`: an error as a bulk.
    BulkError(Vec<u8>),
    /// `=`: text with what it is.
    Verbatim {
        /// Three bytes, such as `txt`.
        format: [u8; 3],
        /// The text.
        text: Vec<u8>,
    },
    /// `%`: pairs of key and value, in the order sent.
    Map(Vec<(Value, Value)>),
    /// `~`: a set, in the order sent.
    Set(Vec<Value>),
    /// `>`: an out-of-band message.
    Push(Vec<Value>),
    /// `|`: pairs that annotate a value, and that value.
    Attributed {
        /// The pairs.
        attributes: Vec<(Value, Value)>,
        /// What they annotate.
        value: Box<Value>,
    },
}

/// Why replies cannot be understood any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// No type begins with this byte.
    #[error("a reply cannot begin with byte {0:#04x}")]
    UnknownType(u8),
    /// A line is not what its type asks for, or too long.
    #[error("malformed line after '{}'", char::from(*.0))]
    MalformedLine(u8),
    /// A bulk is longer than [`ValueParser::BULK_LEN_MAX`], or does not end
    /// where it should.
    #[error("malformed bulk")]
    MalformedBulk,
    /// Aggregates nest deeper than [`ValueParser::DEPTH_MAX`].
    #[error("replies nest too deep")]
    TooDeep,
}

/// The replies of one connection.
#[derive(Debug, Default)]
pub struct ValueParser {
    /// The aggregates begun and not complete, outermost first.
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    kind: Aggregate,
    values: Vec<Value>,
    /// Values yet to come; at least one.
    left: usize,
}

#[derive(Debug)]
enum Aggregate {
    Array,
    Set,
    Push,
    Map,
    Attributes,
    /// One value, annotated.
    Annotated(Vec<(Value, Value)>),
}

/// One element of a reply.
enum Element {
    Scalar(Value),
    /// An aggregate of so many values.
    Opens(Aggregate, usize),
}

impl ValueParser {
    /// How deep aggregates may nest.
    pub const DEPTH_MAX: usize = 128;
    /// The longest bulk taken, in bytes.
    pub const BULK_LEN_MAX: usize = 512 * 1024 * 1024;
    /// The longest line taken, in bytes.
    pub const LINE_LEN_MAX: usize = 1024 * 1024;
    /// Room is reserved for no more values than this before they arrive.
    const RESERVE_MAX: usize = 1024;

    /// A parser at the start of a connection.
    pub const fn new() -> Self {
        Self { open: Vec::new() }
    }

    /// Takes from `buf`: how many bytes were used up, which the caller drops,
    /// and the reply they complete. Without one, all that could be used was:
    /// append what arrives to the rest and call again.
    pub fn next(&mut self, buf: &[u8]) -> Result<(usize, Option<Value>), ReplyError> {
        let mut at = 0;
        while let Some((element, used)) = element(&buf[at..])? {
            at += used;
            let complete = match element {
                Element::Scalar(value) => self.close(value),
                Element::Opens(kind, 0) => self.complete(kind, Vec::new())?,
                Element::Opens(kind, left) => {
                    self.open(kind, left)?;
                    None
                }
            };
            if complete.is_some() {
                return Ok((at, complete));
            }
        }
        Ok((at, None))
    }

    fn open(&mut self, kind: Aggregate, left: usize) -> Result<(), ReplyError> {
        if self.open.len() == Self::DEPTH_MAX {
            return Err(ReplyError::TooDeep);
        }
        let values = Vec::with_capacity(left.min(Self::RESERVE_MAX >> self.open.len().min(10)));
        self.open.push(Open { kind, values, left });
        Ok(())
    }

    /// An aggregate has all its values: the reply that completes.
    fn complete(
        &mut self,
        kind: Aggregate,
        values: Vec<Value>,
    ) -> Result<Option<Value>, ReplyError> {
        match whole(kind, values) {
            Ok(value) => Ok(self.close(value)),
            Err(attributes) => {
                self.open(Aggregate::Annotated(attributes), 1)?;
                Ok(None)
            }
        }
    }

    /// Adds a whole value to the aggregate it belongs to, completing it and
    /// those around it: the outermost value, once it is whole.
    fn close(&mut self, mut value: Value) -> Option<Value> {
        loop {
            let Some(innermost) = self.open.last_mut() else { return Some(value) };
            innermost.values.push(value);
            innermost.left -= 1;
            if innermost.left > 0 {
                return None;
            }
            let Open { kind, values, .. } = self.open.pop()?;
            match whole(kind, values) {
                Ok(outer) => value = outer,
                Err(attributes) => {
                    // In the place just freed, so not deeper than allowed.
                    let kind = Aggregate::Annotated(attributes);
                    self.open.push(Open { kind, values: Vec::with_capacity(1), left: 1 });
                    return None;
                }
            }
        }
    }
}

/// The value of an aggregate that has all its values; attributes are none, and
/// are given back.
fn whole(kind: Aggregate, mut values: Vec<Value>) -> Result<Value, Vec<(Value, Value)>> {
    match kind {
        Aggregate::Array => Ok(Value::Array(values)),
        Aggregate::Set => Ok(Value::Set(values)),
        Aggregate::Push => Ok(Value::Push(values)),
        Aggregate::Map => Ok(Value::Map(pairs(values))),
        Aggregate::Attributes => Err(pairs(values)),
        Aggregate::Annotated(attributes) => {
            let value = Box::new(values.pop().unwrap_or(Value::Null));
            Ok(Value::Attributed { attributes, value })
        }
    }
}

fn pairs(values: Vec<Value>) -> Vec<(Value, Value)> {
    let mut values = values.into_iter();
    std::iter::from_fn(|| Some((values.next()?, values.next()?))).collect()
}

/// Reads the element at the start of `buf` and its length in bytes, if it is
/// complete.
fn element(buf: &[u8]) -> Result<Option<(Element, usize)>, ReplyError> {
    let Some(&kind) = buf.first() else { return Ok(None) };
    if !b"+-:$*_,#(!=%~>|".contains(&kind) {
        return Err(ReplyError::UnknownType(kind));
    }
    let malformed = ReplyError::MalformedLine(kind);
    let Some(end) = memchr::memchr(b'\r', &buf[..buf.len().min(ValueParser::LINE_LEN_MAX)]) else {
        return if buf.len() < ValueParser::LINE_LEN_MAX { Ok(None) } else { Err(malformed) };
    };
    match buf.get(end + 1) {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) => return Err(malformed),
    }
    let text = &buf[1..end];
    let used = end + 2;
    let scalar = |value| Ok(Some((Element::Scalar(value), used)));
    let number = || parse_integer(text).ok_or(malformed);
    match kind {
        b'+' => scalar(Value::Simple(text.to_vec())),
        b'-' => scalar(Value::Error(text.to_vec())),
        b':' => scalar(Value::Integer(number()?)),
        b'_' if text.is_empty() => scalar(Value::Null),
        b'#' if text == b"t" => scalar(Value::Boolean(true)),
        b'#' if text == b"f" => scalar(Value::Boolean(false)),
        b',' => scalar(Value::Double(double(text).ok_or(malformed)?)),
        b'(' if is_big_number(text) => scalar(Value::BigNumber(text.to_vec())),
        b'$' if text == b"-1" => scalar(Value::NullBulk),
        b'*' if text == b"-1" => scalar(Value::NullArray),
        b'$' | b'!' | b'=' => {
            let len = usize::try_from(number()?).map_err(|_| malformed)?;
            bulk(kind, &buf[used..], len)
                .map(|bulk| bulk.map(|value| (Element::Scalar(value), used + len + 2)))
        }
        b'*' | b'~' | b'>' | b'%' | b'|' => {
            let len = usize::try_from(number()?).map_err(|_| malformed)?;
            let (aggregate, values) = match kind {
                b'*' => (Aggregate::Array, Some(len)),
                b'~' => (Aggregate::Set, Some(len)),
                b'>' => (Aggregate::Push, Some(len)),
                b'%' => (Aggregate::Map, len.checked_mul(2)),
                _ => (Aggregate::Attributes, len.checked_mul(2)),
            };
            Ok(Some((Element::Opens(aggregate, values.ok_or(malformed)?), used)))
        }
        _ => Err(malformed),
    }
}

/// Reads the body of a bulk of `len` bytes, if it is complete.
fn bulk(kind: u8, body: &[u8], len: usize) -> Result<Option<Value>, ReplyError> {
    if len > ValueParser::BULK_LEN_MAX {
        return Err(ReplyError::MalformedBulk);
    }
    let Some((bytes, rest)) = body.split_at_checked(len) else { return Ok(None) };
    match rest {
        [b'\r', b'\n', ..] => {}
        [] | [b'\r'] => return Ok(None),
        _ => return Err(ReplyError::MalformedBulk),
    }
    match (kind, bytes) {
        (b'$', bytes) => Ok(Some(Value::Bulk(bytes.to_vec()))),
        (b'!', bytes) => Ok(Some(Value::BulkError(bytes.to_vec()))),
        (_, &[a, b, c, b':', ref text @ ..]) => {
            Ok(Some(Value::Verbatim { format: [a, b, c], text: text.to_vec() }))
        }
        _ => Err(ReplyError::MalformedBulk),
    }
}

fn double(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn is_big_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::{ReplyError, Value, ValueParser};
    use crate::{Protocol, Writer};
    use proptest::prelude::*;

    /// Parses `reply` as one value, all of it.
    fn one(reply: &[u8]) -> Result<Option<Value>, ReplyError> {
        let (used, value) = ValueParser::new().next(reply)?;
        assert!(value.is_none() || used == reply.len());
        Ok(value)
    }

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    #[test]
    fn every_type() {
        let cases: &[(&[u8], Value)] = &[
            (b"+OK\r\n", Value::Simple(b"OK".to_vec())),
            (b"-ERR no\r\n", Value::Error(b"ERR no".to_vec())),
            (b":-7\r\n", Value::Integer(-7)),
            (b"$3\r\na\r\n\r\n", bulk("a\r\n")),
            (b"$0\r\n\r\n", bulk("")),
            (b"$-1\r\n", Value::NullBulk),
            (b"*-1\r\n", Value::NullArray),
            (b"*0\r\n", Value::Array(vec![])),
            (
                b"*2\r\n:1\r\n*1\r\n_\r\n",
                Value::Array(vec![Value::Integer(1), Value::Array(vec![Value::Null])]),
            ),
            (b",-inf\r\n", Value::Double(f64::NEG_INFINITY)),
            (b",1e+21\r\n", Value::Double(1e21)),
            (b"#t\r\n", Value::Boolean(true)),
            (b"#f\r\n", Value::Boolean(false)),
            (b"(-123\r\n", Value::BigNumber(b"-123".to_vec())),
            (b"!3\r\nERR\r\n", Value::BulkError(b"ERR".to_vec())),
            (b"=6\r\ntxt:hi\r\n", Value::Verbatim { format: *b"txt", text: b"hi".to_vec() }),
            (b"%1\r\n$1\r\nk\r\n#t\r\n", Value::Map(vec![(bulk("k"), Value::Boolean(true))])),
            (b"~1\r\n:1\r\n", Value::Set(vec![Value::Integer(1)])),
            (b">1\r\n:1\r\n", Value::Push(vec![Value::Integer(1)])),
            (
                b"|1\r\n:1\r\n:2\r\n:3\r\n",
                Value::Attributed {
                    attributes: vec![(Value::Integer(1), Value::Integer(2))],
                    value: Box::new(Value::Integer(3)),
                },
            ),
            (
                b"*1\r\n|0\r\n:3\r\n",
                Value::Array(vec![Value::Attributed {
                    attributes: vec![],
                    value: Box::new(Value::Integer(3)),
                }]),
            ),
        ];
        for (reply, value) in cases {
            assert_eq!(one(reply).as_ref(), Ok(&Some(value.clone())), "{}", reply.escape_ascii());
            for cut in 0..reply.len() {
                assert_eq!(one(&reply[..cut]), Ok(None), "{} cut at {cut}", reply.escape_ascii());
            }
        }
    }

    #[test]
    fn malformed_replies_are_refused() {
        for reply in [
            &b"PONG\r\n"[..],
            b":\r\n",
            b":1a\r\n",
            b":1\rx",
            b"_x\r\n",
            b"#x\r\n",
            b",x\r\n",
            b"(1x\r\n",
            b"(-\r\n",
            b"$-2\r\n",
            b"$?\r\n",
            b"$1\r\nab\r\n",
            b"$1\r\na\rx",
            b"$99999999999\r\n",
            b"*-2\r\n",
            b"%-1\r\n",
            b"=2\r\nab\r\n",
        ] {
            assert!(one(reply).is_err(), "{}", reply.escape_ascii());
        }
        assert_eq!(one(&b"*1\r\n".repeat(128)), Ok(None));
        assert_eq!(one(&b"*1\r\n".repeat(129)), Err(ReplyError::TooDeep));
        assert_eq!(one(&b"|1\r\n:1\r\n:1\r\n".repeat(129)), Err(ReplyError::TooDeep));
        assert!(one(&vec![b'+'; ValueParser::LINE_LEN_MAX]).is_err());
    }

    #[test]
    fn a_claimed_length_costs_nothing() {
        let mut parser = ValueParser::new();
        let claim = b"*4000000000\r\n".repeat(100);
        assert_eq!(parser.next(&claim), Ok((claim.len(), None)));
        let reserved: usize = parser.open.iter().map(|open| open.values.capacity()).sum();
        assert!(reserved <= 2 * ValueParser::RESERVE_MAX + 100);
    }

    /// A double that equals itself, and every kind of value, nested.
    fn any_value() -> impl Strategy<Value = Value> {
        let text = || prop::collection::vec(any::<u8>(), 0..12);
        let line = || "[ -~]{0,12}".prop_map(String::into_bytes);
        let scalar = prop_oneof![
            line().prop_map(Value::Simple),
            line().prop_map(Value::Error),
            any::<i64>().prop_map(Value::Integer),
            text().prop_map(Value::Bulk),
            Just(Value::Null),
            prop::num::f64::NORMAL.prop_map(Value::Double),
            any::<bool>().prop_map(Value::Boolean),
            "-?[0-9]{1,30}".prop_map(|digits| Value::BigNumber(digits.into_bytes())),
            text().prop_map(|text| Value::Verbatim { format: *b"txt", text }),
        ];
        scalar.prop_recursive(4, 40, 5, |inner| {
            let values = || prop::collection::vec(inner.clone(), 0..5);
            let pairs = || prop::collection::vec((inner.clone(), inner.clone()), 0..4);
            prop_oneof![
                values().prop_map(Value::Array),
                values().prop_map(Value::Set),
                values().prop_map(Value::Push),
                pairs().prop_map(Value::Map),
                (pairs(), inner.clone()).prop_map(|(attributes, value)| Value::Attributed {
                    attributes,
                    value: Box::new(value)
                }),
            ]
        })
    }

    fn write(w: &mut Writer<'_>, value: &Value) {
        let write_all =
            |w: &mut Writer<'_>, values: &[Value]| values.iter().for_each(|v| write(w, v));
        let write_pairs = |w: &mut Writer<'_>, pairs: &[(Value, Value)]| {
            for (key, value) in pairs {
                write(w, key);
                write(w, value);
            }
        };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        match value {
            Value::Simple(line) => w.simple(&text(line)),
            Value::Error(line) => w.error_bytes(line),
            Value::Integer(n) => w.integer(*n),
            Value::Bulk(bytes) => w.bulk(bytes),
            Value::Null | Value::NullBulk | Value::NullArray => w.null(),
            Value::Double(value) => w.double(*value),
            Value::Boolean(value) => w.boolean(*value),
            Value::BigNumber(digits) => w.big_number(text(digits)),
            Value::BulkError(_) => unreachable!("Redis sends none"),
            Value::Verbatim { format, text: body } => w.verbatim(&text(format), body),
            Value::Array(values) => {
                let at = w.array_deferred();
                write_all(w, values);
                w.set_array_len(at, values.len());
            }
            Value::Set(values) => {
                w.set(values.len());
                write_all(w, values);
            }
            Value::Push(values) => {
                w.push(values.len());
                write_all(w, values);
            }
            Value::Map(pairs) => {
                w.map(pairs.len());
                write_pairs(w, pairs);
            }
            Value::Attributed { attributes, value } => {
                assert!(w.attribute(attributes.len()));
                write_pairs(w, attributes);
                write(w, value);
            }
        }
    }

    proptest! {
        /// What is written in RESP3 is read back equal, whatever the reads.
        #[test]
        fn written_replies_are_read_back(
            values in prop::collection::vec(any_value(), 1..4),
            reads in prop::collection::vec(1_usize..30, 1..8),
        ) {
            let mut bytes = Vec::new();
            let mut writer = Writer::new(&mut bytes, Protocol::Resp3);
            for value in &values {
                write(&mut writer, value);
            }
            let mut parser = ValueParser::new();
            let (mut got, mut buf, mut rest) = (Vec::new(), Vec::new(), &bytes[..]);
            for read in reads.iter().cycle() {
                let (arrived, later) = rest.split_at((*read).min(rest.len()));
                buf.extend_from_slice(arrived);
                rest = later;
                loop {
                    let (used, value) = parser.next(&buf).unwrap();
                    buf.drain(..used);
                    let Some(value) = value else { break };
                    got.push(value);
                }
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(buf.len(), 0);
            prop_assert_eq!(got, values);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(prop_oneof![
            any::<u8>(), prop::sample::select(&b"+-:$*_,#(!=%~>|\r\n0123"[..])
        ], 0..80)) {
            let mut parser = ValueParser::new();
            let mut at = 0;
            while let Ok((used, Some(_))) = parser.next(&bytes[at..]) {
                prop_assert!(used > 0);
                at += used;
            }
        }
    }
}
