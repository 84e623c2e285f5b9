//! Byte arrays that stand for small collections: listpacks, and the ziplists, zipmaps and
//! intsets of older versions. Listpacks are written and read, the others read.
//!
//! ```text
//!  listpack  | bytes: 4 | elements: 2 | element ... | ff |
//!  element   | head and what it says | its own length, to be read from behind: 1 to 5 |
//!  ziplist   | bytes: 4 | offset of the last: 4 | elements: 2 | element ... | ff |
//!  element   | length of the one before: 1 or 5 | head and what it says |
//!  zipmap    | fields: 1 | length, field, length, unused: 1, value ... | ff |
//!  intset    | bytes of each: 4 | how many: 4 | integers in ascending order |
//! ```
//!
//! A reader checks what it reads, and every length against what is there.

use snug_store::canonical_int;
use snug_store::types::string::NewStr;

const LISTPACK_HEAD: usize = 6;
const ZIPLIST_HEAD: usize = 10;
const END: u8 = 0xff;
/// Elements are counted up to here.
const COUNT_UNKNOWN: usize = u16::MAX as usize;
/// The longest decimal form of an `i64`.
const DIGITS_MAX: usize = 20;

/// A listpack that is being written.
#[derive(Debug)]
pub(crate) struct Listpack {
    bytes: Vec<u8>,
    count: usize,
}

impl Listpack {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; LISTPACK_HEAD], count: 0 }
    }

    /// Empties it.
    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(LISTPACK_HEAD);
        self.count = 0;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn put_int(&mut self, value: i64) {
        let from = self.bytes.len();
        let bytes = value.to_le_bytes();
        if (0..128).contains(&value) {
            self.bytes.push(value as u8);
        } else if (-4096..4096).contains(&value) {
            let low = value as u16 & 0x1fff;
            self.bytes.extend([0xc0 | (low >> 8) as u8, low as u8]);
        } else {
            let (head, len) = match value {
                -0x8000..0x8000 => (0xf1, 2),
                -0x80_0000..0x80_0000 => (0xf2, 3),
                -0x8000_0000..0x8000_0000 => (0xf3, 4),
                _ => (0xf4, 8),
            };
            self.bytes.push(head);
            self.bytes.extend_from_slice(&bytes[..len]);
        }
        self.ended(from);
    }

    /// Adds a string; one that is the decimal form of an integer as that.
    pub(crate) fn put(&mut self, string: &[u8]) {
        if string.len() <= DIGITS_MAX
            && let Some(value) = canonical_int(string)
        {
            return self.put_int(value);
        }
        let (from, len) = (self.bytes.len(), string.len());
        match len {
            0..64 => self.bytes.push(0x80 | len as u8),
            64..4096 => self.bytes.extend([0xe0 | (len >> 8) as u8, len as u8]),
            _ => {
                self.bytes.push(0xf0);
                self.bytes.extend_from_slice(&(len as u32).to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(string);
        self.ended(from);
    }

    /// Adds any string.
    pub(crate) fn put_new(&mut self, string: &NewStr<'_>) {
        match string {
            NewStr::Bytes(bytes) | NewStr::Text(bytes) | NewStr::Changed(bytes) => self.put(bytes),
            NewStr::Int(value) => self.put_int(*value),
            NewStr::Chain(chain) => self.put(&chain.to_vec()),
        }
    }

    /// Adds the length of the element that begins at `from`, to be read from behind.
    fn ended(&mut self, from: usize) {
        let len = self.bytes.len() - from;
        let groups = groups(len);
        for group in (0..groups).rev() {
            let more = if group + 1 == groups { 0 } else { 0x80 };
            self.bytes.push((len >> (7 * group)) as u8 & 0x7f | more);
        }
        self.count += 1;
    }

    /// All of it; `None` if it is too long to be a listpack.
    pub(crate) fn finish(&mut self) -> Option<&[u8]> {
        let len = u32::try_from(self.bytes.len() + 1).ok()?;
        self.bytes.push(END);
        self.bytes[..4].copy_from_slice(&len.to_le_bytes());
        let count = self.count.min(COUNT_UNKNOWN) as u16;
        self.bytes[4..LISTPACK_HEAD].copy_from_slice(&count.to_le_bytes());
        Some(&self.bytes)
    }
}

/// The bytes that an element's length takes behind it: groups of seven bits.
fn groups(len: usize) -> usize {
    // The limits are Redis's, which are not those of the bits.
    1 + [128, 16_383, 2_097_151, 268_435_455].iter().filter(|&&limit| len >= limit).count()
}

/// An element as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packed<'p> {
    Bytes(&'p [u8]),
    Int(i64),
}

impl<'p> Packed<'p> {
    pub(crate) fn value(self) -> NewStr<'p> {
        match self {
            Self::Bytes(bytes) => NewStr::Bytes(bytes),
            Self::Int(value) => NewStr::Int(value),
        }
    }

    pub(crate) fn int(self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(value),
            Self::Bytes(bytes) => canonical_int(bytes),
        }
    }

    /// A score.
    pub(crate) fn score(self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(value as f64),
            Self::Bytes(bytes) => score(bytes),
        }
    }

    /// Its bytes; `room` takes the digits of an integer.
    #[cfg(test)]
    pub(crate) fn bytes<'b>(self, room: &'b mut Vec<u8>) -> &'b [u8]
    where
        'p: 'b,
    {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Int(value) => {
                room.clear();
                room.extend_from_slice(value.to_string().as_bytes());
                room
            }
        }
    }
}

/// A score that is written in digits.
pub(crate) fn score(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let score: f64 = text.parse().ok()?;
    (!score.is_nan()).then_some(score)
}

/// That some bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bad(pub(crate) &'static str);

/// Reads from the front of some bytes.
#[derive(Clone, Copy, Debug)]
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u32(&mut self) -> Option<usize> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?) as usize)
    }

    fn int(&mut self, len: usize) -> Option<i64> {
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(self.take(len)?);
        let spare = 64 - 8 * len as u32;
        Some(i64::from_le_bytes(bytes) << spare >> spare)
    }
}

/// Elements one behind the other, as one kind of array has them.
#[derive(Clone, Debug)]
pub(crate) struct Elements<'p> {
    bytes: Bytes<'p>,
    next: fn(&mut Bytes<'p>) -> Option<Packed<'p>>,
    what: &'static str,
}

impl<'p> Iterator for Elements<'p> {
    type Item = Result<Packed<'p>, Bad>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.0.is_empty() {
            return None;
        }
        let element = (self.next)(&mut self.bytes);
        if element.is_none() {
            self.bytes.0 = &[];
        }
        Some(element.ok_or(Bad(self.what)))
    }
}

impl<'p> Elements<'p> {
    /// The next element, which must be there.
    pub(crate) fn must(&mut self) -> Result<Packed<'p>, Bad> {
        self.next().unwrap_or(Err(Bad(self.what)))
    }

    /// The next, which must be an integer.
    pub(crate) fn must_int(&mut self) -> Result<i64, Bad> {
        self.must()?.int().ok_or(Bad(self.what))
    }

    /// Checks each element, and that there are as many as the array says.
    fn counted(self, told: usize) -> Result<Self, Bad> {
        let mut count = 0;
        for element in self.clone() {
            element?;
            count += 1;
        }
        if told != COUNT_UNKNOWN && told != count { Err(Bad(self.what)) } else { Ok(self) }
    }
}

/// The elements between the head and the end of an array that tells its own length.
fn between(bytes: &[u8], head: usize) -> Option<&[u8]> {
    let told = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let inner = bytes.get(head..bytes.len().checked_sub(1)?)?;
    (told == bytes.len() && bytes.last() == Some(&END)).then_some(inner)
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// The elements of a listpack, which is checked.
pub(crate) fn listpack(bytes: &[u8]) -> Result<Elements<'_>, Bad> {
    let what = "a listpack is damaged";
    let inner = between(bytes, LISTPACK_HEAD).ok_or(Bad(what))?;
    Elements { bytes: Bytes(inner), next: listpack_next, what }.counted(u16_at(bytes, 4))
}

fn listpack_next<'p>(bytes: &mut Bytes<'p>) -> Option<Packed<'p>> {
    let before = bytes.0.len();
    let head = bytes.byte()?;
    let element = match head {
        ..0x80 => Packed::Int(i64::from(head)),
        0x80..0xc0 => Packed::Bytes(bytes.take(usize::from(head & 0x3f))?),
        0xc0..0xe0 => {
            let value = i64::from(head & 0x1f) << 8 | i64::from(bytes.byte()?);
            Packed::Int(if value < 4096 { value } else { value - 8192 })
        }
        0xe0..0xf0 => {
            let len = usize::from(head & 0xf) << 8 | usize::from(bytes.byte()?);
            Packed::Bytes(bytes.take(len)?)
        }
        0xf0 => {
            let len = bytes.u32()?;
            Packed::Bytes(bytes.take(len)?)
        }
        0xf1..=0xf3 => Packed::Int(bytes.int(usize::from(head - 0xf1) + 2)?),
        0xf4 => Packed::Int(bytes.int(8)?),
        _ => return None,
    };
    // Its own length once more: the groups of seven bits, the highest first.
    let len = before - bytes.0.len();
    let told =
        bytes.take(groups(len))?.iter().fold(0, |len, byte| len << 7 | usize::from(byte & 0x7f));
    (told == len).then_some(element)
}

/// The elements of a ziplist, which is checked.
pub(crate) fn ziplist(bytes: &[u8]) -> Result<Elements<'_>, Bad> {
    let what = "a ziplist is damaged";
    let inner = between(bytes, ZIPLIST_HEAD).ok_or(Bad(what))?;
    Elements { bytes: Bytes(inner), next: ziplist_next, what }.counted(u16_at(bytes, 8))
}

fn ziplist_next<'p>(bytes: &mut Bytes<'p>) -> Option<Packed<'p>> {
    match bytes.byte()? {
        0xfe => _ = bytes.take(4)?,
        END => return None,
        _ => {}
    }
    let head = bytes.byte()?;
    Some(match head >> 6 {
        0 => Packed::Bytes(bytes.take(usize::from(head))?),
        1 => {
            let len = usize::from(head & 0x3f) << 8 | usize::from(bytes.byte()?);
            Packed::Bytes(bytes.take(len)?)
        }
        2 => {
            let len = u32::from_be_bytes(bytes.take(4)?.try_into().ok()?) as usize;
            Packed::Bytes(bytes.take(len)?)
        }
        _ => Packed::Int(match head {
            0xc0 => bytes.int(2)?,
            0xd0 => bytes.int(4)?,
            0xe0 => bytes.int(8)?,
            0xf0 => bytes.int(3)?,
            0xfe => bytes.int(1)?,
            0xf1..=0xfd => i64::from(head & 0xf) - 1,
            _ => return None,
        }),
    })
}

/// A field and its value.
type Pair<'p> = (&'p [u8], &'p [u8]);

/// The fields and values of a zipmap in turn, which is checked.
pub(crate) fn zipmap(bytes: &[u8]) -> Result<Vec<Pair<'_>>, Bad> {
    zipmap_fields(bytes).ok_or(Bad("a zipmap is damaged"))
}

fn zipmap_fields(bytes: &[u8]) -> Option<Vec<Pair<'_>>> {
    /// As a count of fields: more than can be counted.
    const MANY: u8 = 0xfe;
    fn len(head: u8, rest: &mut Bytes<'_>) -> Option<usize> {
        if head == 0xfe { rest.u32() } else { Some(usize::from(head)) }
    }
    let (&told, rest) = bytes.split_first()?;
    let mut rest = Bytes(rest);
    let mut fields = Vec::new();
    loop {
        let head = rest.byte()?;
        if head == END {
            break;
        }
        let field_len = len(head, &mut rest)?;
        let field = rest.take(field_len)?;
        let head = rest.byte().filter(|&head| head != END)?;
        let value_len = len(head, &mut rest)?;
        let unused = usize::from(rest.byte()?);
        let value = rest.take(value_len)?;
        rest.take(unused)?;
        fields.push((field, value));
    }
    let is_counted = told >= MANY || usize::from(told) == fields.len();
    (rest.0.is_empty() && is_counted).then_some(fields)
}

/// The integers of an intset, which is checked.
pub(crate) fn intset(bytes: &[u8]) -> Result<impl ExactSizeIterator<Item = i64> + '_, Bad> {
    let bad = Bad("an intset is damaged");
    let mut rest = Bytes(bytes);
    let size = rest.u32().filter(|size| [2, 4, 8].contains(size)).ok_or(bad)?;
    let count = rest.u32().ok_or(bad)?;
    if Some(rest.0.len()) != count.checked_mul(size) {
        return Err(bad);
    }
    let ints = rest.0.chunks_exact(size).map(move |bytes| Bytes(bytes).int(size).unwrap_or(0));
    if !ints.clone().is_sorted_by(|a, b| a < b) {
        return Err(bad);
    }
    Ok(ints)
}

/// An intset of these integers, which are sorted here.
pub(crate) fn put_intset(ints: &mut [i64]) -> Vec<u8> {
    ints.sort_unstable();
    let widest = ints.first().into_iter().chain(ints.last()).map(|value| match value {
        -0x8000..0x8000 => 2,
        -0x8000_0000..0x8000_0000 => 4,
        _ => 8,
    });
    let size: usize = widest.max().unwrap_or(2);
    let mut bytes = Vec::with_capacity(8 + size * ints.len());
    bytes.extend_from_slice(&(size as u32).to_le_bytes());
    bytes.extend_from_slice(&(ints.len() as u32).to_le_bytes());
    ints.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()[..size]));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers_of_each_width_come_back() {
        let mut ints: Vec<i64> = (0..63).flat_map(|n| [1 << n, (1 << n) - 1, -(1 << n)]).collect();
        ints.extend([i64::MIN, i64::MAX, 0]);
        let mut pack = Listpack::new();
        ints.iter().for_each(|&value| pack.put_int(value));
        let read: Vec<i64> =
            listpack(pack.finish().unwrap()).unwrap().map(|e| e.unwrap().int().unwrap()).collect();
        assert_eq!(read, ints);
        ints.sort_unstable();
        ints.dedup();
        for take in [3, 100, ints.len()] {
            let mut some = ints[ints.len() / 2 - take / 2..][..take].to_vec();
            let bytes = put_intset(&mut some);
            assert_eq!(intset(&bytes).unwrap().collect::<Vec<_>>(), some);
        }
    }

    proptest! {
        #[test]
        fn strings_come_back(strings in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..200),
                prop::collection::vec(any::<u8>(), 4000..5000),
                (16_300usize..16_450).prop_map(|len| vec![b'x'; len]),
                any::<i64>().prop_map(|value| value.to_string().into_bytes()),
            ], 0..12,
        )) {
            let mut pack = Listpack::new();
            strings.iter().for_each(|string| pack.put(string));
            let mut room = Vec::new();
            let read: Vec<Vec<u8>> = listpack(pack.finish().unwrap())
                .unwrap()
                .map(|element| element.unwrap().bytes(&mut room).to_vec())
                .collect();
            prop_assert_eq!(read, strings);
        }

        #[test]
        fn whatever_stands_there_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let with_len = |head: usize| {
                let mut bytes = [vec![0; head], bytes.clone(), vec![END]].concat();
                let len = bytes.len() as u32;
                bytes[..4].copy_from_slice(&len.to_le_bytes());
                bytes[head - 2..head].fill(0xff);
                bytes
            };
            let _ = listpack(&with_len(LISTPACK_HEAD)).map(Iterator::count);
            let _ = ziplist(&with_len(ZIPLIST_HEAD)).map(Iterator::count);
            let _ = (listpack(&bytes).is_ok(), ziplist(&bytes).is_ok());
            let _ = (zipmap(&bytes).is_ok(), intset(&bytes).is_ok());
        }
    }
}
