//! A string that is being made of its parts.

use super::{INLINE_MAX, INT, Int, SET, canonical_int};
use crate::cell::entry::Payload;
use crate::types::Draft;
use crate::types::elements::Elements;
use snug_codec::Segments;
use std::io;

/// The parts so far: in one piece while they fit an entry, then a chain.
pub(crate) enum StringDraft {
    Integer(Int, Vec<u8>),
    Short(Vec<u8>),
    Long(Segments, Vec<u8>),
}

impl StringDraft {
    /// One of so many bytes, it is said; room is taken only for what comes.
    pub(crate) fn new(len: u64, mut room: Vec<u8>) -> Self {
        room.clear();
        if len > INLINE_MAX as u64 {
            return Self::Long(Segments::default(), room);
        }
        Self::Short(room)
    }

    pub(crate) fn integer(value: i64, room: Vec<u8>) -> Self {
        Self::Integer(Int::new(value), room)
    }
}

impl Elements for StringDraft {
    fn part(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Short(short) if short.len() + bytes.len() <= INLINE_MAX => {
                short.extend_from_slice(bytes);
            }
            Self::Short(short) => {
                let mut chain = Segments::from(&short[..]);
                chain.append(bytes);
                *self = Self::Long(chain, std::mem::take(short));
            }
            Self::Long(chain, _) => chain.append(bytes),
            Self::Integer(..) => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        if let Self::Short(bytes) = self
            && let Some(value) = canonical_int(bytes)
        {
            *self = Self::Integer(Int::new(value), std::mem::take(bytes));
        }
        Ok(())
    }
}

impl Draft for StringDraft {
    fn take(&mut self) -> Option<Payload<'_>> {
        Some(match self {
            Self::Integer(int, _) => Payload::Inline(INT, int.bytes()),
            Self::Short(bytes) => Payload::Inline(SET, bytes),
            Self::Long(chain, _) if chain.len() > INLINE_MAX => {
                Payload::boxed(std::mem::take(chain))
            }
            Self::Long(chain, room) => {
                *room = chain.to_vec();
                Payload::Inline(SET, room)
            }
        })
    }

    fn into_room(self: Box<Self>) -> Vec<u8> {
        match *self {
            Self::Integer(_, room) | Self::Short(room) | Self::Long(_, room) => room,
        }
    }
}
