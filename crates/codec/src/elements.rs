//! Small collections: elements one behind the other, what is alike in all of a family's
//! apart from what is not.
//!
//! ```text
//!  first byte     an element, as the store lays it
//!  0x00 .. 0x7f   the integer 0 to 127                        nothing follows
//!  0x80 .. 0xbf   0 to 63 bytes                               they follow
//!  0xc0           64 to 319 bytes                             length - 64: 1, bytes
//!  0xc1           more bytes                                  length: 4, bytes
//!  0xc2           a double                                    8
//!  0xc4           a time                                      8
//!  0xc8 .. 0xcf   an integer of 1 to 8 bytes                  little-endian, signed
//!  0xd0, 0xd1     a UUID                                      16
//!  0xd2, 0xd3     hexadecimal digits                          their number / 2: 1, bytes
//!  0xe0 .. 0xff   a decimal                                   3 bits: length - 1; 1 to 8
//!
//!  elements   "at" 0xcb 00 65 74 67, "id" 0xd0 5f.., "end" 0xcb 3c 65 74 67
//!  skeleton   "at" 0xcb 67 74,       "id" 0xd0,      "end" 0xd8 0xcb
//!  stored                       00 65,        5f..,                  3c
//! ```
//!
//! Names, lengths and kinds are the skeleton, which phrases shorten to little. What they
//! could not shorten, but would take some bits more for each byte of, is stored: UUIDs,
//! hexadecimal digits, the lower bytes of numbers. A number whose difference from the one
//! before is short (times, scores in their order) is stored as that, behind a byte of the
//! skeleton that says so: 0xd8 to 0xda, for 1 to 3 bytes. The upper bytes of the others
//! stand in the skeleton, the highest first.
//!
//! Whether a family's collections are packed so is decided when its phrases are trained:
//! a table is made of skeletons as well, and what the samples pack to decides.
//!
//! Cost: some nanoseconds an element either way.

/// Says that the number behind it is a difference of one byte; or of more.
const DIFFERENCE: u8 = 0xd8;
const DIFFERENCE_MAX: usize = 3;

/// The lower bytes of a number of so many bytes that are stored; of a double.
const LOWER: [usize; 9] = [0, 0, 1, 2, 2, 3, 3, 3, 3];
const LOWER_OF_DOUBLE: usize = 6;

/// An element, as its first bytes tell.
struct Shape {
    /// How many bytes these are.
    head: usize,
    /// How many follow, and how many of them are stored.
    len: usize,
    lower: usize,
    is_number: bool,
}

impl Shape {
    /// That of the element at the front of `bytes`.
    #[inline]
    fn of(bytes: &[u8]) -> Option<Self> {
        let first = *bytes.first()?;
        let shape = |head, len, lower| Some(Self { head, len, lower, is_number: false });
        let number = |len: usize| Some(Self { head: 1, len, lower: LOWER[len], is_number: true });
        match first {
            0..0x80 => shape(1, 0, 0),
            0x80..0xc0 => shape(1, usize::from(first & 0x3f), 0),
            0xc0 => shape(2, usize::from(*bytes.get(1)?) + 64, 0),
            0xc1 => shape(5, u32::from_le_bytes(bytes.get(1..5)?.try_into().ok()?) as usize, 0),
            0xc2 => shape(1, 8, LOWER_OF_DOUBLE),
            0xc4 => number(8),
            0xc8..=0xcf => number(usize::from(first - 0xc8) + 1),
            0xd0 | 0xd1 => shape(1, 16, 16),
            0xd2 | 0xd3 => shape(2, usize::from(*bytes.get(1)?), usize::from(*bytes.get(1)?)),
            0xe0.. => number(usize::from(first >> 2 & 7) + 1),
            _ => None,
        }
    }
}

/// Appends the skeleton of elements, and what is stored of them; `None` if the bytes are
/// no elements, and then perhaps some of both.
pub(crate) fn apart(mut raw: &[u8], skeleton: &mut Vec<u8>, stored: &mut Vec<u8>) -> Option<()> {
    let mut before = 0;
    while !raw.is_empty() {
        let shape = Shape::of(raw)?;
        let (element, rest) = raw.split_at_checked(shape.head + shape.len)?;
        raw = rest;
        let (head, bytes) = element.split_at(shape.head);
        if shape.lower == 0 {
            skeleton.extend_from_slice(element);
            continue;
        }
        if shape.is_number {
            let number = signed(bytes);
            let difference = number.wrapping_sub(before);
            before = number;
            let short = bytes_of(difference);
            if short <= shape.lower {
                skeleton.push(DIFFERENCE + short as u8 - 1);
                skeleton.extend_from_slice(head);
                stored.extend_from_slice(&difference.to_le_bytes()[..short]);
                continue;
            }
        }
        let (lower, upper) = bytes.split_at(shape.lower);
        skeleton.extend_from_slice(head);
        skeleton.extend(upper.iter().rev());
        stored.extend_from_slice(lower);
    }
    Some(())
}

/// Appends the `raw_len` bytes of the elements that have this skeleton, and of which this
/// was stored; `None` if these are not such, and then perhaps some of them.
pub(crate) fn together(
    mut skeleton: &[u8],
    mut stored: &[u8],
    raw_len: usize,
    out: &mut Vec<u8>,
) -> Option<()> {
    let (begin, mut before) = (out.len(), 0i64);
    while let Some(&first) = skeleton.first() {
        let short = usize::from(first.wrapping_sub(DIFFERENCE)) + 1;
        let is_difference = short <= DIFFERENCE_MAX;
        if is_difference {
            skeleton = &skeleton[1..];
        }
        let Shape { head, len, lower, is_number } = Shape::of(skeleton)?;
        if head + len > raw_len - (out.len() - begin) {
            return None;
        }
        let (shown, hidden) = match is_difference {
            true if is_number => (head, short),
            true => return None,
            false => (head + len - lower, lower),
        };
        let (shown, rest) = skeleton.split_at_checked(shown)?;
        skeleton = rest;
        let (hidden, rest) = stored.split_at_checked(hidden)?;
        stored = rest;
        let (head, upper) = shown.split_at(head);
        out.extend_from_slice(head);
        if is_difference {
            before = before.wrapping_add(signed(hidden));
            out.extend_from_slice(&before.to_le_bytes()[..len]);
        } else if lower == 0 {
            out.extend_from_slice(upper);
        } else {
            out.extend_from_slice(hidden);
            out.extend(upper.iter().rev());
            if is_number {
                before = signed(&out[out.len() - len..]);
            }
        }
    }
    (stored.is_empty() && out.len() - begin == raw_len).then_some(())
}

/// A number of at most 8 bytes, the lowest first.
fn signed(bytes: &[u8]) -> i64 {
    let mut eight = [0; 8];
    eight[..bytes.len()].copy_from_slice(bytes);
    let unused = 64 - 8 * bytes.len() as u32;
    i64::from_le_bytes(eight) << unused >> unused
}

/// The bytes that a signed number takes.
fn bytes_of(number: i64) -> usize {
    let bits = 65 - (number ^ number >> 63).leading_zeros();
    bits.div_ceil(8) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What becomes of elements: the skeleton and what is stored.
    fn parts(raw: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let (mut skeleton, mut stored, mut back) = (Vec::new(), Vec::new(), b"kept".to_vec());
        apart(raw, &mut skeleton, &mut stored)?;
        together(&skeleton, &stored, raw.len(), &mut back).unwrap();
        assert!(back == [b"kept", raw].concat());
        assert!(skeleton.len() + stored.len() <= raw.len());
        Some((skeleton, stored))
    }

    fn number(value: i64) -> Vec<u8> {
        let len = bytes_of(value);
        [&[0xc8 + len as u8 - 1], &value.to_le_bytes()[..len]].concat()
    }

    fn some_element() -> impl Strategy<Value = Vec<u8>> {
        let follow = |heads: Vec<u8>, len: usize| {
            (prop::sample::select(heads), prop::collection::vec(any::<u8>(), len))
                .prop_map(|(head, bytes)| [&[head], &bytes[..]].concat())
        };
        prop_oneof![
            (0u8..0x80).prop_map(|small| vec![small]),
            prop::collection::vec(any::<u8>(), 0..64).prop_map(|text| [
                &[0x80 | text.len() as u8],
                &text[..]
            ]
            .concat()),
            prop::collection::vec(any::<u8>(), 64..200).prop_map(|text| [
                &[0xc0, text.len() as u8 - 64],
                &text[..]
            ]
            .concat()),
            prop::collection::vec(any::<u8>(), 320..400).prop_map(|text| {
                [&[0xc1], &(text.len() as u32).to_le_bytes()[..], &text[..]].concat()
            }),
            follow(vec![0xc2, 0xc4], 8),
            (any::<i64>(), 0u32..64).prop_map(|(value, shift)| number(value >> shift)),
            (0i64..3000).prop_map(|value| number(1_735_689_600_000 + value)),
            follow(vec![0xd0, 0xd1], 16),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(|pairs| [
                &[0xd2, pairs.len() as u8],
                &pairs[..]
            ]
            .concat()),
            (0usize..8)
                .prop_flat_map(move |len| follow(vec![0xe0 | (len as u8) << 2 | 1], len + 1)),
        ]
    }

    proptest! {
        #[test]
        fn elements_come_back(elements in prop::collection::vec(some_element(), 0..30)) {
            prop_assert!(parts(&elements.concat()).is_some());
        }

        #[test]
        fn any_bytes_come_back_or_are_no_elements(raw in prop::collection::vec(any::<u8>(), 0..60)) {
            parts(&raw);
        }

        #[test]
        fn any_parts_are_put_together_or_refused(
            skeleton in prop::collection::vec(prop_oneof![any::<u8>(), 0xc0u8..0xe4], 0..40),
            stored in prop::collection::vec(any::<u8>(), 0..40),
            len in 0usize..400,
        ) {
            let mut out = Vec::new();
            if together(&skeleton, &stored, len, &mut out).is_some() {
                prop_assert_eq!(out.len(), len);
            }
            prop_assert!(out.len() <= len);
        }
    }

    #[test]
    fn what_is_alike_is_in_the_skeleton_and_the_rest_is_stored() {
        let id = [0x5f; 16];
        let begun = number(0x6774_6500).len();
        assert_eq!(begun, 5);
        let raw = [
            b"\x82at\xcb\x00\x65\x74\x67".as_slice(),
            b"\x82id\xd0",
            &id,
            b"\x83end\xcb\x3c\x65\x74\x67\x07",
        ];
        let (skeleton, stored) = parts(&raw.concat()).unwrap();
        assert_eq!(skeleton, b"\x82at\xcb\x67\x74\x82id\xd0\x83end\xd8\xcb\x07");
        assert_eq!(stored, [b"\x00\x65".as_slice(), &id, b"\x3c"].concat());
    }

    #[test]
    fn what_the_store_does_not_write_is_no_element() {
        for first in [0xc3, 0xc5, 0xd8, 0xda, 0xdf] {
            assert!(parts(&[&[first], &[0; 40][..]].concat()).is_none());
        }
        assert!(parts(b"\x85four").is_none());
    }
}
