//! What a page's records are written as before they are packed.
//!
//! ```text
//!  0 | record | record | ...
//!  1 | difference: 1 to 10 | ...   | rest | rest | ...
//!  2 | the first: 1 to 10 | rising differences, in bits
//!  3 | the first: 1 to 10 | differences, in bits
//!  ff | length | string | ...
//! ```
//!
//! Where every record begins with an integer (a member, an item, a score, a field), the
//! integers stand apart, each as its difference from the one before: members of a set in
//! rising order, scores as they are ordered, take a byte or two. What follows the integer
//! in each record comes behind all of them, together. Differences are signed, seven bits a
//! byte, lowest first.
//!
//! Where the records are nothing but integers (sets and lists of ids), their differences
//! also come close to each other in bits ([`Close`]): of a million draws from ten million a
//! member takes 5 bits. Where the differences vary no codec makes less of them.
//!
//! Items of a list that are texts may be packed as a block of these, where what is constant
//! in all is kept once and what varies is columns (`snug_codec::columns`).

use super::Order;
use super::element::{self, EXPIRES, Element};
use super::page::{Page, each};
use snug_codec::packed::STRINGS_MARK;
use snug_codec::{rice, varint};
use std::ops::Range;

const PLAIN: u8 = 0;
const INTEGERS: u8 = 1;
const CLOSE_RISING: u8 = 2;
const CLOSE: u8 = 3;
const STRINGS: u8 = STRINGS_MARK;

/// Integers are written close to each other where there are so many.
const CLOSE_MIN: usize = 4;
/// One in so many differences must be another for these to vary.
const VARIED_ONE_IN: usize = 4;

/// Strings are tried as a block of texts where there are so many, of so many bytes.
const STRINGS_MIN: usize = 4;
const STRING_BYTES_MIN: usize = 48;

/// The records of a page.
pub(crate) fn write<O: Order>(page: &Page) -> Vec<u8> {
    let mut records: Vec<&[u8]> = page.records::<O>().collect();
    if O::TAGGED {
        records.sort_by_cached_key(|record| O::key(record));
    }
    let mut out = Vec::with_capacity(1 + page.raw_bytes());
    if O::AFTER_FIRST.is_some() && write_integers(&records, &mut out) {
        return out;
    }
    out.clear();
    out.push(PLAIN);
    records.iter().for_each(|record| out.extend_from_slice(record));
    out
}

/// Whether all of them begin with integers, and were written so.
fn write_integers(records: &[&[u8]], out: &mut Vec<u8>) -> bool {
    out.push(INTEGERS);
    let mut before = 0i64;
    for record in records {
        let Element::Int(value) = element::read(record).0 else { return false };
        if record.first() == Some(&EXPIRES) {
            return false;
        }
        varint::push(out, varint::zigzag(value.wrapping_sub(before)));
        before = value;
    }
    records.iter().for_each(|record| out.extend_from_slice(&record[element::skip(record)..]));
    true
}

/// The integers of a page, close to each other.
#[derive(Debug)]
pub(crate) struct Close {
    pub(crate) bytes: Vec<u8>,
    /// Whether their differences vary, so that no codec will find anything in them.
    pub(crate) is_varied: bool,
}

impl Close {
    /// Those of a page whose records are one integer each, if they are such.
    pub(crate) fn of<O: Order>(page: &Page) -> Option<Self> {
        if O::AFTER_FIRST != Some(0) || page.len() < CLOSE_MIN {
            return None;
        }
        let mut again = Vec::new();
        let integers = page.records::<O>().map(|record| {
            let Element::Int(value) = element::read(record).0 else { return None };
            again.clear();
            element::write_int(&mut again, value);
            (again == record).then_some(value)
        });
        let mut integers = integers.collect::<Option<Vec<i64>>>()?;
        if O::TAGGED {
            integers.sort_unstable();
        }
        let rises = integers.is_sorted();
        let differences = integers.windows(2).map(|two| {
            let difference = two[1].wrapping_sub(two[0]);
            if rises { difference as u64 } else { varint::zigzag(difference) }
        });
        let mut differences: Vec<u64> = differences.collect();
        let mut bytes = vec![if rises { CLOSE_RISING } else { CLOSE }];
        varint::push(&mut bytes, varint::zigzag(integers[0]));
        rice::push(&differences, &mut bytes);
        differences.sort_unstable();
        differences.dedup();
        Some(Self { bytes, is_varied: differences.len() * VARIED_ONE_IN >= integers.len() })
    }
}

/// The records of integers that were written so; `None` if they are not as many.
fn read_close(mut bytes: &[u8], rises: bool, count: usize) -> Option<Vec<u8>> {
    let mut integer = varint::unzigzag(varint::take(&mut bytes)?);
    let differences = rice::take(bytes, count.checked_sub(1)?)?;
    let mut records = Vec::with_capacity(6 * count);
    element::write_int(&mut records, integer);
    for difference in differences {
        let difference = if rises { difference as i64 } else { varint::unzigzag(difference) };
        integer = integer.wrapping_add(difference);
        element::write_int(&mut records, integer);
    }
    Some(records)
}

/// Strings of a page, as a block of texts is made of them.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    /// What it unpacks to.
    pub(crate) counted: Vec<u8>,
    /// Where in it each lies.
    places: Vec<Range<usize>>,
}

impl Strings {
    /// The strings of a page whose records are one each, if they are such.
    pub(crate) fn of<O: Order>(page: &Page) -> Option<Self> {
        if O::TAGGED || O::AFTER_FIRST != Some(0) {
            return None;
        }
        if page.len() < STRINGS_MIN || page.raw_bytes() < STRING_BYTES_MIN * page.len() {
            return None;
        }
        let (mut strings, mut again) = (Self::default(), Vec::new());
        strings.counted.push(STRINGS);
        for record in page.records::<O>() {
            let Element::Bytes(string) = element::read(record).0 else { return None };
            again.clear();
            element::write_bytes(&mut again, string);
            if again != record {
                return None;
            }
            varint::push(&mut strings.counted, string.len() as u64);
            let from = strings.counted.len();
            strings.counted.extend_from_slice(string);
            strings.places.push(from..strings.counted.len());
        }
        Some(strings)
    }

    pub(crate) fn all(&self) -> Vec<&[u8]> {
        self.places.iter().map(|place| &self.counted[place.clone()]).collect()
    }
}

fn read_strings(mut bytes: &[u8]) -> Vec<u8> {
    let mut records = Vec::with_capacity(bytes.len() + bytes.len() / 16);
    while !bytes.is_empty() {
        let Some(len) = varint::take_len(&mut bytes) else { break };
        let Some((string, rest)) = bytes.split_at_checked(len) else { break };
        element::write_bytes(&mut records, string);
        bytes = rest;
    }
    records
}

/// The records that were written so, `count` of them, one behind the other. What is
/// damaged gives fewer.
pub(crate) fn read<O: Order>(bytes: &[u8], count: usize) -> Vec<u8> {
    let Some((&kind, mut bytes)) = bytes.split_first() else { return Vec::new() };
    if kind == STRINGS {
        return read_strings(bytes);
    }
    if matches!(kind, CLOSE | CLOSE_RISING) {
        return read_close(bytes, kind == CLOSE_RISING, count).unwrap_or_default();
    }
    if kind != INTEGERS {
        return bytes.to_vec();
    }
    let mut integers = Vec::with_capacity(count);
    let mut before = 0i64;
    for _ in 0..count {
        let Some(coded) = varint::take(&mut bytes) else { break };
        before = before.wrapping_add(varint::unzigzag(coded));
        integers.push(before);
    }
    let mut records = Vec::with_capacity(bytes.len() + 6 * count);
    for integer in integers {
        element::write_int(&mut records, integer);
        for _ in 0..O::AFTER_FIRST.unwrap_or(0) {
            let (rest, others) = bytes.split_at(element::skip(bytes).min(bytes.len()));
            records.extend_from_slice(rest);
            bytes = others;
        }
    }
    records
}

/// The page of what was written of a page of `count` records of `raw_bytes` together;
/// `None` if it does not come to as much.
pub(crate) fn page<O: Order>(bytes: &[u8], count: usize, raw_bytes: usize) -> Option<Page> {
    let records = read::<O>(bytes, count);
    let is_it = records.len() == raw_bytes && each::<O>(&records).count() == count;
    is_it.then(|| Page::of::<O>(each::<O>(&records)))
}
