//! What types write themselves with, and read themselves from.

use crate::pack::dictionaries::HeldDictionary;
use crate::types::stream::StreamId;
use snug_codec::varint;
use std::io;

/// Bytes are taken in steps of so many: room is not taken before they have come.
const STEP_BYTES: usize = 64 * 1024;

/// What is wrong with the bytes.
pub(crate) fn wrong(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Takes the bytes of a value.
pub(crate) trait Pen {
    /// More bytes.
    fn put(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// What follows needs this dictionary, which the value holds; 0 is none.
    fn need(&mut self, dictionary: u32) -> io::Result<()>;

    /// A number, in 1 to 10 bytes.
    fn number(&mut self, value: u64) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(10);
        varint::push(&mut bytes, value);
        self.put(&bytes)
    }

    /// Bytes, their number in front of them.
    fn counted(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.number(bytes.len() as u64)?;
        self.put(bytes)
    }

    /// An ID of a stream.
    fn id(&mut self, id: StreamId) -> io::Result<()> {
        self.number(id.ms)?;
        self.number(id.seq)
    }
}

/// Gives the bytes of a value.
pub(crate) trait Source {
    /// Some bytes that were not taken yet, at least one. An error at the end.
    fn some(&mut self) -> io::Result<&[u8]>;

    /// Takes so many of them.
    fn take(&mut self, count: usize);

    /// A dictionary that stands in front of what needs it.
    fn dictionary(&self, id: u32) -> io::Result<HeldDictionary>;

    /// Whether it does.
    fn has_dictionary(&self, id: u32) -> bool {
        self.dictionary(id).is_ok()
    }

    /// Gives the next `len` bytes to `each`, some at a time.
    fn each(&mut self, mut len: u64, each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        while len > 0 {
            let some = self.some()?;
            let count = some.len().min(STEP_BYTES).min(usize::try_from(len).unwrap_or(usize::MAX));
            each(&some[..count]);
            self.take(count);
            len -= count as u64;
        }
        Ok(())
    }

    fn byte(&mut self) -> io::Result<u8> {
        let byte = self.some()?[0];
        self.take(1);
        Ok(byte)
    }

    fn eight(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        for byte in &mut bytes {
            *byte = self.byte()?;
        }
        Ok(u64::from_le_bytes(bytes))
    }

    fn number(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 10];
        for at in 0..bytes.len() {
            bytes[at] = self.byte()?;
            if bytes[at] & 0x80 == 0 {
                return varint::take(&mut &bytes[..=at])
                    .ok_or_else(|| wrong("a number is damaged"));
            }
        }
        Err(wrong("a number is damaged"))
    }

    /// A number that counts what is small.
    fn small(&mut self) -> io::Result<u32> {
        u32::try_from(self.number()?).map_err(|_| wrong("a number is too great"))
    }

    /// Bytes, their number in front of them.
    fn counted(&mut self) -> io::Result<Vec<u8>> {
        let len = self.number()?;
        let mut bytes =
            Vec::with_capacity(usize::try_from(len).unwrap_or(usize::MAX).min(STEP_BYTES));
        self.each(len, &mut |some| bytes.extend_from_slice(some))?;
        Ok(bytes)
    }

    /// An ID of a stream.
    fn id(&mut self) -> io::Result<StreamId> {
        Ok(StreamId::new(self.number()?, self.number()?))
    }
}
