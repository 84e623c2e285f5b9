//! Room for bytes that most often fit on the stack: an element or a record on its way in.
//!
//! Adding to it is a comparison and a copy; only what outgrows `N` bytes is allocated.

use super::element::Buffer;
use std::ops::Deref;

#[derive(Clone, Debug)]
pub(crate) enum Room<const N: usize> {
    /// The bytes, and how many of them are used.
    Here([u8; N], usize),
    Beyond(Vec<u8>),
}

impl<const N: usize> Room<N> {
    #[inline]
    pub(crate) fn new() -> Self {
        Self::Here([0; N], 0)
    }

    /// Room that holds these bytes.
    #[inline]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut room = Self::new();
        room.put(bytes);
        room
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        match self {
            Self::Here(_, len) => *len = 0,
            Self::Beyond(bytes) => bytes.clear(),
        }
    }

    #[cold]
    fn outgrow(&mut self, more: &[u8]) {
        let mut bytes = Vec::with_capacity((self.len() + more.len()).next_power_of_two());
        bytes.extend_from_slice(self);
        bytes.extend_from_slice(more);
        *self = Self::Beyond(bytes);
    }
}

impl<const N: usize> Buffer for Room<N> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        match self {
            Self::Here(room, len) => {
                let end = *len + bytes.len();
                match room.get_mut(*len..end) {
                    Some(place) => {
                        place.copy_from_slice(bytes);
                        *len = end;
                    }
                    None => self.outgrow(bytes),
                }
            }
            Self::Beyond(room) => room.extend_from_slice(bytes),
        }
    }
}

impl<const N: usize> Deref for Room<N> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Here(bytes, len) => &bytes[..*len],
            Self::Beyond(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_put_wherever_it_lies() {
        let mut room = Room::<8>::new();
        let mut all = Vec::new();
        for n in 0..12 {
            let bytes = vec![n; usize::from(n % 4)];
            room.put(&bytes);
            all.extend_from_slice(&bytes);
            assert_eq!(*room, all[..]);
            assert_eq!(matches!(room, Room::Here(..)), all.len() <= 8);
        }
        room.clear();
        assert!(room.is_empty());
        assert_eq!(*Room::<8>::of(b"eight by"), *b"eight by");
    }
}
