//! What a page's records are written as before they are packed.
//!
//! ```text
//!  0 | record | record | ...
//!  1 | difference: 1 to 10 | ...   | rest | rest | ...
//! ```
//!
//! Where every record begins with an integer (a member, an item, a score, a field), the
//! integers stand apart, each as its difference from the one before: members of a set in
//! rising order, scores as they are ordered, take a byte or two. What follows the integer
//! in each record comes behind all of them, together. Differences are signed, seven bits a
//! byte, lowest first.

use super::Order;
use super::element::{self, EXPIRES, Element};
use super::page::{Page, each};
use snug_codec::varint;

const PLAIN: u8 = 0;
const INTEGERS: u8 = 1;

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

/// The records that were written so, `count` of them, one behind the other. What is
/// damaged gives fewer.
pub(crate) fn read<O: Order>(bytes: &[u8], count: usize) -> Vec<u8> {
    let Some((&kind, mut bytes)) = bytes.split_first() else { return Vec::new() };
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
