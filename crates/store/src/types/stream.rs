//! Streams.

/// What a stream takes, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamMemory {
    /// Bytes allocated.
    pub allocated: usize,
    /// Raw.
    pub raw: usize,
    /// Packed from.
    pub packed_from: usize,
    /// Packed.
    pub packed: usize,
}

/// A stream.
#[derive(Clone, Debug, Default)]
pub struct Stream;

impl Stream {
    /// New.
    pub fn new() -> Self {
        Self
    }
    /// What it takes.
    pub fn memory(&self) -> StreamMemory {
        StreamMemory::default()
    }
    /// Sealed blocks to pack.
    pub fn pending_work(&self) -> usize {
        0
    }
    /// Copy.
    pub fn duplicate(&self) -> Self {
        Self
    }
}
