//! The string type: its values as they are held, and on their way in.
//!
//! ```text
//!  NewStr, from a client             Str, in a slot            kept
//!  the decimal form of an i64   ──>  Int                       up to 8 bytes
//!  bytes, up to 64 KiB          ──>  Bytes, Packed             in the entry
//!  longer                       ──>  Chain, PackedLarge        beside it, in segments
//! ```
//!
//! What packs and unpacks is not here (`packing.rs`, `large.rs`), only what a reader
//! has to tell apart. Lengths are known of all without unpacking.

pub(crate) mod in_slot;
pub(crate) mod make;
pub mod ops;
mod row;

pub(crate) use row::{CHANGED, CHANGED_PACKED, INLINE_MAX, INT, Int, SET, SET_PACKED, Strings};

use crate::large::PackedLarge;
use crate::pack::form::Damaged;
use crate::packing::PackedStr;
use crate::store::Session;
use crate::types::forms::Value;
use snug_codec::Segments;

/// A string value as it is held.
#[derive(Clone, Copy, Debug)]
pub enum Str<'a> {
    /// The decimal form of this integer.
    Int(i64),
    /// Contiguous bytes.
    Bytes(&'a [u8]),
    /// A chain of segments.
    Chain(&'a Segments),
    /// Bytes in their packed form.
    Packed(PackedStr<'a>),
    /// A chain of segments, packed.
    PackedLarge(PackedLarge<'a>),
}

impl Str<'_> {
    /// The length in bytes as a client sees it.
    pub fn len(&self) -> usize {
        match self {
            Str::Int(value) => decimal_len(*value),
            Str::Bytes(bytes) => bytes.len(),
            Str::Chain(chain) => chain.len(),
            Str::Packed(packed) => packed.len(),
            Str::PackedLarge(packed) => packed.len(),
        }
    }

    /// Whether the string is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The string in one piece: a reference where it is in one piece.
    pub fn to_bytes(&self) -> Result<std::borrow::Cow<'_, [u8]>, Damaged> {
        Ok(match self {
            Str::Int(value) => value.to_string().into_bytes().into(),
            Str::Bytes(bytes) => (*bytes).into(),
            Str::Chain(chain) => chain.to_vec().into(),
            Str::Packed(packed) => {
                let mut raw = Vec::new();
                packed.append_to(&mut raw)?;
                raw.into()
            }
            Str::PackedLarge(packed) => packed.unpack()?.to_vec().into(),
        })
    }

    /// The value as an integer, if it is the decimal form of one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Str::Int(value) => Some(*value),
            Str::Bytes(bytes) => canonical_int(bytes),
            Str::Packed(packed) if packed.len() <= INT_LEN_MAX => {
                let mut raw = Vec::new();
                packed.append_to(&mut raw).ok()?;
                canonical_int(&raw)
            }
            Str::Packed(_) | Str::Chain(_) | Str::PackedLarge(_) => None,
        }
    }
}

impl<'a> Str<'a> {
    /// The string that a value is, or `None` if it is of another type.
    #[inline]
    pub(crate) fn of(value: Value<'a>, session: &'a Session) -> Option<Self> {
        Some(match value.form() {
            SET | CHANGED => Str::Bytes(value.bytes()),
            INT => Str::Int(Int::read(value.bytes())),
            SET_PACKED | CHANGED_PACKED => Str::Packed(PackedStr { form: value.bytes(), session }),
            _ => match (value.get(), value.get()) {
                (Some(chain), _) => Str::Chain(chain),
                (_, Some(chain)) => Str::PackedLarge(PackedLarge { chain, session }),
                _ => return None,
            },
        })
    }

    /// The same string, and if it is packed its bytes, unpacked into `room`. A
    /// large one stays as it is.
    pub fn unpacked<'b>(self, room: &'b mut Vec<u8>) -> Result<Str<'b>, Damaged>
    where
        'a: 'b,
    {
        match self {
            Str::Packed(packed) => {
                room.clear();
                packed.append_to(room)?;
                Ok(Str::Bytes(room))
            }
            raw => Ok(raw),
        }
    }
}

/// A string value to be stored.
#[derive(Clone, Debug)]
pub enum NewStr<'a> {
    /// Bytes; held as an integer when they are the decimal form of one.
    Bytes(&'a [u8]),
    /// Bytes that stay bytes even where they are the decimal form of an integer.
    Text(&'a [u8]),
    /// The same, as the outcome of changes in place (what Redis calls `raw` even
    /// if short).
    Changed(&'a [u8]),
    /// An integer.
    Int(i64),
    /// A large value, as it was received.
    Chain(Segments),
}

impl NewStr<'_> {
    /// The length in bytes as a client sees it.
    pub fn len(&self) -> usize {
        match self {
            NewStr::Bytes(bytes) | NewStr::Text(bytes) | NewStr::Changed(bytes) => bytes.len(),
            NewStr::Int(value) => decimal_len(*value),
            NewStr::Chain(chain) => chain.len(),
        }
    }

    /// Whether the string is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The longest decimal form of an `i64`.
const INT_LEN_MAX: usize = 20;

pub(crate) fn decimal_len(value: i64) -> usize {
    let digits = value.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 1;
    digits + usize::from(value < 0)
}

/// The integer whose decimal form these bytes are, exactly: no sign but one
/// `-`, no leading zero, no space. The only strings that may be held as numbers.
pub fn canonical_int(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] => return (!negative).then_some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value = 0u64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    if negative { 0i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}
