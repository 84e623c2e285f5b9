//! The bytes of a HyperLogLog, as Redis lays them out: a string that a client may `GET`
//! from one server and `SET` on another.
//!
//! ```text
//!  H Y L L  form  0 0 0  cardinality (8 bytes, little-endian)  registers
//!                        its highest bit set: to be counted anew
//!
//!  form 0, dense    16,384 registers of 6 bits, the lowest bits of a byte first
//!  form 1, sparse   runs of registers, one behind the other:
//!    00llllll            ZERO   l + 1 registers (1 to 64) are 0
//!    01llllll llllllll   XZERO  l + 1 registers (1 to 16,384) are 0
//!    1vvvvvll            VAL    l + 1 registers (1 to 4) are v + 1 (1 to 32)
//! ```
//!
//! An element's hash names a register (its low 14 bits) and the count that the register
//! is raised to (how many zeros follow, and one). A sparse sketch is changed run by run;
//! it becomes dense when it would have more bytes than `hll-sparse-max-bytes`, or a
//! register would be above 32. How runs are split and joined is part of the format, for
//! the same elements in the same order give the same bytes as in Redis.
//!
//! A client can store any bytes under this header. Reading them ends at their end, and
//! what does not add up is [`Corrupt`]; nothing here panics.
//!
//! Finding a register in a sparse sketch walks its runs, some microseconds at the default
//! of 3,000 bytes; in a dense one it is O(1). Counting and merging are O(registers).

use super::estimate::Histogram;
use std::borrow::Cow;

/// Registers of a sketch: 2 to the 14th.
pub(super) const REGISTERS: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 14;
/// Bits of the hash in which zeros are counted.
pub(super) const COUNTED_BITS: u32 = 64 - INDEX_BITS;

const HEADER: usize = 16;
/// Where the form, and the cached cardinality, stand in the header.
const FORM: usize = 4;
const CARDINALITY: usize = 8;
/// The byte whose highest bit says that the cached cardinality does not hold.
pub(super) const STALE: usize = HEADER - 1;
pub(super) const STALE_BIT: u8 = 0x80;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
/// Bytes of every dense sketch.
const DENSE_LEN: usize = HEADER + REGISTERS * 6 / 8;

/// The longest ZERO and VAL, and the highest count that a VAL can have.
const ZERO_MAX: usize = 64;
const VAL_RUN_MAX: usize = 4;
const VAL_MAX: u8 = 32;
/// After a change so many runs, from the one before it on, are joined where they can be.
const JOINED_RUNS: usize = 5;

/// The runs of a sparse sketch do not make up its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Corrupt;

/// All registers, a byte each: what several sketches are merged in.
pub(super) type Registers = [u8; REGISTERS];

/// What an element says: this register is at least this high.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) index: usize,
    pub(super) count: u8,
}

impl Mark {
    /// Of an element, in pieces; all but the last have a multiple of 8 bytes.
    pub(super) fn of<'p>(len: usize, pieces: impl Iterator<Item = &'p [u8]>) -> Self {
        let hash = murmur64a(len, pieces);
        // A bit behind the last one that counts, for a hash of nothing but zeros.
        let counted = hash >> INDEX_BITS | 1 << COUNTED_BITS;
        let index = (hash & (REGISTERS as u64 - 1)) as usize;
        Self { index, count: counted.trailing_zeros() as u8 + 1 }
    }
}

/// Austin Appleby's MurmurHash64A with the seed that Redis has for sketches.
fn murmur64a<'p>(len: usize, pieces: impl Iterator<Item = &'p [u8]>) -> u64 {
    const SEED: u64 = 0xadc8_3b19;
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let mut hash = SEED ^ (len as u64).wrapping_mul(M);
    for piece in pieces {
        let (words, tail) = piece.as_chunks::<8>();
        for word in words {
            let mut word = u64::from_le_bytes(*word).wrapping_mul(M);
            word ^= word >> R;
            hash = (hash ^ word.wrapping_mul(M)).wrapping_mul(M);
        }
        if !tail.is_empty() {
            let mut word = [0; 8];
            word[..tail.len()].copy_from_slice(tail);
            hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(M);
        }
    }
    hash ^= hash >> R;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> R
}

/// A run of a sparse sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Zero { len: usize, is_long: bool },
    Val { value: u8, len: usize },
}

impl Run {
    /// The run at the front of these bytes. A long one that is cut off counts as if its
    /// second byte were 0, as it is read by Redis.
    fn read(bytes: &[u8]) -> Option<Self> {
        let first = *bytes.first()?;
        Some(match first >> 6 {
            0 => Run::Zero { len: usize::from(first) + 1, is_long: false },
            1 => {
                let second = bytes.get(1).copied().unwrap_or(0);
                let len = usize::from(first & 0x3f) << 8 | usize::from(second);
                Run::Zero { len: len + 1, is_long: true }
            }
            _ => Run::Val { value: (first >> 2 & 0x1f) + 1, len: usize::from(first & 3) + 1 },
        })
    }

    /// Zeros, in the shorter way that can hold them.
    fn zeros(len: usize) -> Self {
        Run::Zero { len, is_long: len > ZERO_MAX }
    }

    fn registers(self) -> usize {
        match self {
            Run::Zero { len, .. } | Run::Val { len, .. } => len,
        }
    }

    /// Bytes that it takes.
    fn bytes(self) -> usize {
        match self {
            Run::Zero { is_long: true, .. } => 2,
            _ => 1,
        }
    }

    fn push(self, out: &mut Vec<u8>) {
        match self {
            Run::Zero { len, is_long: false } => out.push((len - 1) as u8),
            Run::Zero { len, is_long: true } => {
                out.extend([0x40 | ((len - 1) >> 8) as u8, (len - 1) as u8]);
            }
            Run::Val { value, len } => out.push(val(value, len)),
        }
    }
}

fn val(value: u8, len: usize) -> u8 {
    0x80 | (value - 1) << 2 | (len - 1) as u8
}

/// The runs of a sparse sketch, one after the other.
fn runs(mut bytes: &[u8]) -> impl Iterator<Item = Run> {
    std::iter::from_fn(move || {
        let run = Run::read(bytes)?;
        bytes = &bytes[run.bytes().min(bytes.len())..];
        Some(run)
    })
}

/// Register `index` of dense ones, which has at most 6 bits.
fn dense_register(registers: &[u8], index: usize) -> u8 {
    let (byte, shift) = (index * 6 / 8, index * 6 % 8);
    let pair = [registers[byte], registers.get(byte + 1).copied().unwrap_or(0)];
    (u16::from_le_bytes(pair) >> shift) as u8 & 0x3f
}

/// The bytes that register `index` lies in when it has this value, and where they stand.
fn dense_bytes(registers: &[u8], index: usize, value: u8) -> (usize, [u8; 2], usize) {
    let (byte, shift) = (index * 6 / 8, index * 6 % 8);
    let pair = [registers[byte], registers.get(byte + 1).copied().unwrap_or(0)];
    let pair = u16::from_le_bytes(pair) & !(0x3f << shift) | u16::from(value) << shift;
    (byte, pair.to_le_bytes(), if shift > 2 { 2 } else { 1 })
}

/// Why a string is no sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoSketch;

/// A sketch to be read: a string whose header was looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sketch<'b> {
    bytes: &'b [u8],
}

impl<'b> Sketch<'b> {
    /// Looks at a string's header and length.
    pub(super) fn of(bytes: &'b [u8]) -> Result<Self, NoSketch> {
        match (Self::is_sparse_head(bytes), bytes.get(FORM)) {
            (Ok(false), _) if bytes.len() != DENSE_LEN => Err(NoSketch),
            (Ok(_), Some(_)) => Ok(Self { bytes }),
            _ => Err(NoSketch),
        }
    }

    /// Whether a string that begins so is a sparse sketch, or a dense one if its length
    /// fits.
    pub(super) fn is_sparse_head(head: &[u8]) -> Result<bool, NoSketch> {
        match head {
            [b'H', b'Y', b'L', b'L', form, ..] if head.len() >= HEADER && *form <= SPARSE => {
                Ok(*form == SPARSE)
            }
            _ => Err(NoSketch),
        }
    }

    pub(super) fn is_sparse(self) -> bool {
        self.bytes[FORM] == SPARSE
    }

    fn body(self) -> &'b [u8] {
        &self.bytes[HEADER..]
    }

    /// The cardinality, if it was counted since the last change.
    pub(super) fn cached(self) -> Option<u64> {
        let cardinality = self.bytes[CARDINALITY..HEADER].try_into().map(u64::from_le_bytes);
        cardinality.ok().filter(|_| self.bytes[STALE] & STALE_BIT == 0)
    }

    /// How many registers have which value.
    pub(super) fn histogram(self) -> Result<Histogram, Corrupt> {
        let mut histogram = Histogram::default();
        if !self.is_sparse() {
            let registers = self.body();
            (0..REGISTERS).for_each(|index| histogram.add(dense_register(registers, index), 1));
            return Ok(histogram);
        }
        let mut seen = 0;
        for run in runs(self.body()) {
            seen += run.registers();
            match run {
                Run::Zero { len, .. } => histogram.add(0, len),
                Run::Val { value, len } => histogram.add(value, len),
            }
        }
        if seen == REGISTERS { Ok(histogram) } else { Err(Corrupt) }
    }

    /// Gives each run of registers to `each` that a sparse sketch has as not 0, or each
    /// register of a dense one: the first, how many, their value.
    fn each(self, mut each: impl FnMut(usize, usize, u8)) -> Result<(), Corrupt> {
        if !self.is_sparse() {
            let registers = self.body();
            for index in 0..REGISTERS {
                each(index, 1, dense_register(registers, index));
            }
            return Ok(());
        }
        let mut at = 0;
        for run in runs(self.body()) {
            if at + run.registers() > REGISTERS {
                return Err(Corrupt);
            }
            if let Run::Val { value, len } = run {
                each(at, len, value);
            }
            at += run.registers();
        }
        if at == REGISTERS { Ok(()) } else { Err(Corrupt) }
    }

    /// Raises the registers to what this sketch has.
    pub(super) fn merge_into(self, registers: &mut Registers) -> Result<(), Corrupt> {
        self.each(|at, len, value| {
            registers[at..at + len]
                .iter_mut()
                .for_each(|register| *register = value.max(*register));
        })
    }

    /// The same sketch in dense form.
    fn to_dense(self) -> Result<Vec<u8>, Corrupt> {
        let mut dense = vec![0; DENSE_LEN];
        dense[..HEADER].copy_from_slice(&self.bytes[..HEADER]);
        dense[FORM] = DENSE;
        let registers = &mut dense[HEADER..];
        self.each(|at, len, value| {
            (at..at + len).for_each(|index| set_dense(registers, index, value));
        })?;
        Ok(dense)
    }

    /// Every register.
    pub(super) fn registers(self) -> Result<Box<Registers>, Corrupt> {
        let mut registers = Box::new([0; REGISTERS]);
        self.merge_into(&mut registers)?;
        Ok(registers)
    }

    /// The runs of a sparse sketch as `PFDEBUG DECODE` writes them: `Z:16384 v:3,1`.
    pub(super) fn runs_text(self) -> String {
        let texts = runs(self.body()).map(|run| match run {
            Run::Zero { len, is_long: false } => format!("z:{len}"),
            Run::Zero { len, is_long: true } => format!("Z:{len}"),
            Run::Val { value, len } => format!("v:{value},{len}"),
        });
        texts.collect::<Vec<_>>().join(" ")
    }

    /// What a dense sketch has to have written where, for a register to be raised; `None`
    /// if it is as high. The bytes, and how many of them.
    pub(super) fn dense_raise(self, mark: Mark) -> Option<(usize, [u8; 2], usize)> {
        let registers = self.body();
        if self.is_sparse() || dense_register(registers, mark.index) >= mark.count {
            return None;
        }
        let (at, bytes, len) = dense_bytes(registers, mark.index, mark.count);
        Some((HEADER + at, bytes, len))
    }
}

fn set_dense(registers: &mut [u8], index: usize, value: u8) {
    let (at, bytes, len) = dense_bytes(registers, index, value);
    registers[at..at + len].copy_from_slice(&bytes[..len]);
}

/// A cardinality as the header holds it, and where.
pub(super) fn cache(cardinality: u64) -> (usize, [u8; 8]) {
    (CARDINALITY, cardinality.to_le_bytes())
}

/// A place in a sparse sketch, two runs before the one that was changed last: what comes
/// behind is found from there. Only for registers in ascending order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    at: usize,
    first: usize,
}

/// A sketch on its way to other bytes. Its bytes are copied when the first of them
/// changes.
#[derive(Debug)]
pub(super) struct Draft<'b> {
    bytes: Cow<'b, [u8]>,
    /// A sparse sketch grows to so many bytes.
    sparse_max: usize,
}

impl<'b> Draft<'b> {
    /// Of a sketch that is there.
    pub(super) fn of(sketch: Sketch<'b>, sparse_max: usize) -> Self {
        Self { bytes: Cow::Borrowed(sketch.bytes), sparse_max }
    }

    /// A new sketch: sparse, every register 0.
    pub(super) fn empty(sparse_max: usize) -> Self {
        let mut bytes = b"HYLL".to_vec();
        bytes.resize(HEADER, 0);
        bytes[FORM] = SPARSE;
        Run::zeros(REGISTERS).push(&mut bytes);
        Self { bytes: Cow::Owned(bytes), sparse_max }
    }

    /// The sketch as it is now.
    pub(super) fn sketch(&self) -> Sketch<'_> {
        Sketch { bytes: &self.bytes }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes.into_owned()
    }

    /// Marks the cached cardinality as one that does not hold.
    pub(super) fn set_stale(&mut self) {
        self.bytes.to_mut()[STALE] |= STALE_BIT;
    }

    /// Gives it the dense form; whether it had another.
    pub(super) fn make_dense(&mut self) -> Result<bool, Corrupt> {
        if !self.sketch().is_sparse() {
            return Ok(false);
        }
        self.bytes = Cow::Owned(self.sketch().to_dense()?);
        Ok(true)
    }

    /// Raises a register; whether it was lower.
    pub(super) fn raise(&mut self, mark: Mark) -> Result<bool, Corrupt> {
        self.raise_from(mark, &mut Cursor::default())
    }

    /// The same for registers that come in ascending order, with one cursor.
    pub(super) fn raise_from(&mut self, mark: Mark, cursor: &mut Cursor) -> Result<bool, Corrupt> {
        if !self.sketch().is_sparse() {
            return Ok(self.raise_dense(mark));
        }
        if mark.count > VAL_MAX {
            self.make_dense()?;
            return Ok(self.raise_dense(mark));
        }
        let body = self.sketch().body();
        let Found { run, at, first, before, cursor: place } = find(body, mark.index, *cursor)?;
        *cursor = place;
        // A long run whose second byte is missing cannot be changed.
        let end = at + run.bytes();
        if end > body.len() {
            return Err(Corrupt);
        }
        let mut changed = Vec::with_capacity(5);
        let one = Run::Val { value: mark.count, len: 1 };
        match run {
            Run::Val { value, .. } if value >= mark.count => return Ok(false),
            Run::Val { value, len } => {
                let (left, right) = (mark.index - first, first + len - 1 - mark.index);
                if left > 0 {
                    Run::Val { value, len: left }.push(&mut changed);
                }
                one.push(&mut changed);
                if right > 0 {
                    Run::Val { value, len: right }.push(&mut changed);
                }
            }
            Run::Zero { len, .. } => {
                let (left, right) = (mark.index - first, first + len - 1 - mark.index);
                if left > 0 {
                    Run::zeros(left).push(&mut changed);
                }
                one.push(&mut changed);
                if right > 0 {
                    Run::zeros(right).push(&mut changed);
                }
            }
        }
        if changed.len() > end - at
            && self.bytes.len() + changed.len() - (end - at) > self.sparse_max
        {
            self.make_dense()?;
            return Ok(self.raise_dense(mark));
        }
        let bytes = self.bytes.to_mut();
        bytes.splice(HEADER + at..HEADER + end, changed);
        join(bytes, HEADER + before.unwrap_or(0));
        bytes[STALE] |= STALE_BIT;
        Ok(true)
    }

    fn raise_dense(&mut self, mark: Mark) -> bool {
        let raise = self.sketch().dense_raise(mark);
        if let Some((at, bytes, len)) = raise {
            self.bytes.to_mut()[at..at + len].copy_from_slice(&bytes[..len]);
        }
        raise.is_some()
    }
}

/// The run that a register is in.
#[derive(Debug)]
struct Found {
    run: Run,
    /// Where it stands, and the first of its registers.
    at: usize,
    first: usize,
    /// Where the run before it stands.
    before: Option<usize>,
    /// The run before that one, or the nearest there is.
    cursor: Cursor,
}

/// Registers of the run that begins with a byte; 0 for a long one, which the next byte
/// tells.
const LENGTHS: [u8; 256] = {
    let mut lengths = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        lengths[byte] = match byte >> 6 {
            0 => byte as u8 + 1,
            1 => 0,
            _ => (byte as u8 & 3) + 1,
        };
        byte += 1;
    }
    lengths
};

/// Walks from run to run: what adding an element to a sparse sketch takes most of its
/// time for.
fn find(body: &[u8], index: usize, from: Cursor) -> Result<Found, Corrupt> {
    let (mut place, mut before, mut cursor) = (from, from, from);
    while let Some(&byte) = body.get(place.at) {
        let (mut len, mut bytes) = (usize::from(LENGTHS[usize::from(byte)]), 1);
        if len == 0 {
            let second = body.get(place.at + 1).copied().unwrap_or(0);
            len = (usize::from(byte & 0x3f) << 8 | usize::from(second)) + 1;
            bytes = 2;
        }
        let behind = place.first + len;
        if index < behind {
            let Cursor { at, first } = place;
            let run = Run::read(&body[at..]).ok_or(Corrupt)?;
            let before = (before.at < at).then_some(before.at);
            return Ok(Found { run, at, first, before, cursor });
        }
        (cursor, before) = (before, place);
        place = Cursor { at: place.at + bytes, first: behind };
    }
    Err(Corrupt)
}

/// Joins VALs of one value that follow each other, in the few runs from `at` on.
fn join(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOINED_RUNS {
        let Some(run) = bytes.get(at..).and_then(Run::read) else { return };
        if let Run::Val { value, len } = run
            && let Some(Run::Val { value: next, len: more }) = Run::read(&bytes[at + 1..])
            && value == next
            && len + more <= VAL_RUN_MAX
        {
            bytes[at] = val(value, len + more);
            bytes.remove(at + 1);
            // It may take in the next one too.
            continue;
        }
        at += run.bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mark(element: &[u8]) -> Mark {
        Mark::of(element.len(), std::iter::once(element))
    }

    fn is_same(draft: &Draft<'_>, model: &Registers) -> bool {
        draft.sketch().registers().is_ok_and(|registers| *registers == *model)
    }

    fn any_mark() -> impl Strategy<Value = Mark> {
        let index = prop_oneof![0..40usize, 0..REGISTERS, REGISTERS - 70..REGISTERS];
        let count = prop_oneof![20 => 1..4u8, 5 => 1..33u8, 1 => 33..52u8];
        (index, count).prop_map(|(index, count)| Mark { index, count })
    }

    #[test]
    fn elements_hash_the_same_in_pieces() {
        let element: Vec<u8> = (0..100).collect();
        let pieces = [&element[..64], &element[64..72], &element[72..]];
        assert_eq!(mark(&element), Mark::of(100, pieces.into_iter()));
        assert_eq!(murmur64a(0, std::iter::empty()), murmur64a(0, std::iter::once(&b""[..])));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn registers_are_raised_as_in_plain_ones(
            marks in prop::collection::vec(any_mark(), 0..400), sparse_max in 16usize..2000,
        ) {
            let (mut draft, mut model) = (Draft::empty(sparse_max), [0; REGISTERS]);
            for mark in marks {
                let raised = draft.raise(mark);
                prop_assert_eq!(raised, Ok(model[mark.index] < mark.count));
                model[mark.index] = mark.count.max(model[mark.index]);
                prop_assert!(is_same(&draft, &model));
                prop_assert!(draft.bytes().len() <= sparse_max.max(18) || !draft.sketch().is_sparse());
            }
            let sparse = Draft { bytes: draft.bytes.clone(), sparse_max };
            draft.make_dense().unwrap();
            prop_assert!(is_same(&draft, &model));
            let of = |draft: &Draft<'_>| draft.sketch().histogram().unwrap();
            prop_assert_eq!(of(&draft), of(&sparse));
        }

        #[test]
        fn a_cursor_changes_nothing(
            first in prop::collection::vec(any_mark(), 0..200), mut marks in prop::collection::vec(any_mark(), 0..400),
        ) {
            marks.sort_by_key(|mark| mark.index);
            marks.dedup_by_key(|mark| mark.index);
            let mut drafts = [Draft::empty(3000), Draft::empty(3000)];
            first.iter().for_each(|mark| drafts.iter_mut().for_each(|draft| { draft.raise(*mark).unwrap(); }));
            let mut cursor = Cursor::default();
            for mark in marks {
                drafts[0].raise(mark).unwrap();
                drafts[1].raise_from(mark, &mut cursor).unwrap();
                prop_assert!(drafts[0].bytes() == drafts[1].bytes());
            }
        }

        #[test]
        fn any_bytes_are_read_to_their_end(
            body in prop::collection::vec(prop_oneof![any::<u8>(), 0x80u8.., Just(0x7f)], 0..300), dense: bool,
            marks in prop::collection::vec(any_mark(), 0..20), sparse_max in 0usize..400,
        ) {
            let mut bytes = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\0".to_vec();
            bytes[FORM] = u8::from(!dense);
            bytes.extend(body);
            if dense {
                bytes.resize(DENSE_LEN, 0xff);
            }
            let sketch = Sketch::of(&bytes).unwrap();
            let _ = sketch.histogram().map(|histogram| histogram.estimate());
            let _ = (sketch.registers(), sketch.runs_text(), sketch.cached());
            let mut draft = Draft::of(sketch, sparse_max);
            for mark in marks {
                let _ = draft.raise(mark);
            }
            let _ = draft.make_dense();
        }

        #[test]
        fn any_header_is_looked_at(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Sketch::of(&bytes);
            let _ = Sketch::of(&[b"HYLL", &bytes[..]].concat());
        }
    }
}
