//! Bytes on their way to somebody who makes them whole again at once: a frame of zstd for
//! each piece, at its fastest level.
//!
//! What is packed already gains little, and is found out in little time: what a sample of
//! a piece does not gain is not tried of the whole.

use zstd_safe::{CCtx, DCtx};

/// Bytes in the middle of a piece that are tried first.
const SAMPLE_BYTES: usize = 16 * 1024;
/// A piece is left as it is unless one byte in so many is spared.
const GAIN: usize = 16;
const LEVEL: i32 = 1;

/// Makes frames.
pub struct Framer {
    context: CCtx<'static>,
    frame: Vec<u8>,
}

impl std::fmt::Debug for Framer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Framer").finish_non_exhaustive()
    }
}

impl Default for Framer {
    fn default() -> Self {
        Self { context: CCtx::create(), frame: Vec::new() }
    }
}

impl Framer {
    /// The frame of a piece, if it is worth it. O(bytes).
    pub fn frame(&mut self, piece: &[u8]) -> Option<&[u8]> {
        let begin = piece.len().saturating_sub(SAMPLE_BYTES) / 2;
        let sample = &piece[begin..piece.len().min(begin + SAMPLE_BYTES)];
        if sample.len() < piece.len() {
            self.gains(sample)?;
        }
        self.gains(piece)?;
        Some(&self.frame)
    }

    fn gains(&mut self, bytes: &[u8]) -> Option<()> {
        let most = bytes.len() - bytes.len() / GAIN;
        self.frame.clear();
        // What finds no room is not worth it, and an error.
        self.frame.reserve_exact(most);
        let made = self.context.compress(&mut self.frame, bytes, LEVEL);
        (made.is_ok() && self.frame.len() <= most).then_some(())
    }
}

/// The piece that a frame is of, in the place of what was in `into`; false if it is no
/// whole frame of at most `most` bytes, which nothing is reserved beyond.
pub fn unframe(frame: &[u8], most: usize, into: &mut Vec<u8>) -> bool {
    into.clear();
    let Ok(Some(len)) = zstd_safe::get_frame_content_size(frame) else { return false };
    if len > most as u64 {
        return false;
    }
    into.reserve_exact(len as usize);
    DCtx::create().decompress(into, frame).is_ok_and(|made| made as u64 == len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_back_and_noise_is_left() {
        let mut framer = Framer::default();
        let text = b"what is said again and again ".repeat(3000);
        let mut seed = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        })
        .take(50_000)
        .collect();
        let mut back = Vec::new();
        for piece in [&text[..], &text[..100], &text[..16_000]] {
            let frame = framer.frame(piece).expect("worth it").to_vec();
            assert!(unframe(&frame, piece.len(), &mut back) && back == piece);
            assert!(!unframe(&frame, piece.len() - 1, &mut back));
            assert!(!unframe(&frame[..frame.len() - 1], piece.len(), &mut back));
        }
        for piece in [&noise[..], &noise[..100], b""] {
            assert!(framer.frame(piece).is_none());
        }
        assert!(!unframe(&noise, 1 << 20, &mut back) && !unframe(b"", 1, &mut back));
    }
}
