//! A compressibility estimate: what packing would make of some bytes, without
//! packing them.
//!
//! Two looks at a few kilobytes: how uneven the bytes are (order-0 entropy) and
//! how often four bytes in a row have occurred before (match sampling). Costs a
//! few microseconds whatever the length, since at most [`SAMPLE_BYTES`] are
//! looked at.

use crate::rans;

/// How much of a value is looked at: this many bytes, in up to four windows.
pub const SAMPLE_BYTES: usize = 4096;

const TABLE_BITS: u32 = 11;

/// What to do with a value, judging by its bytes alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// Already compressed, encrypted or random: leave it.
    Nothing,
    /// Some gain: only a fast codec is worth its time.
    Little,
    /// Pack it.
    Much,
}

/// The estimate for some bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Order-0 entropy of the bytes looked at, bits per byte (0 to 8).
    pub entropy: f32,
    /// The share of positions looked at whose four bytes occurred before in
    /// the sample (0 to 1).
    pub repeated: f32,
    /// Bytes looked at.
    pub looked_at: usize,
}

impl Estimate {
    /// Estimates `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let mut counts = [0u32; 256];
        let mut table = [0u16; 1 << TABLE_BITS];
        let (mut positions, mut hits, mut seen) = (0u32, 0u32, 0usize);
        for window in windows(bytes) {
            let part = rans::histogram(window);
            for (count, more) in counts.iter_mut().zip(part) {
                *count += more;
            }
            let (p, h) = sample_matches(window, &mut table);
            positions += p;
            hits += h;
            seen += window.len();
        }
        let total = seen as f32;
        let entropy = counts
            .iter()
            .filter(|&&count| count > 0)
            .map(|&count| count as f32 * (total / count as f32).log2())
            .sum::<f32>()
            / total.max(1.0);
        let repeated = hits as f32 / positions.max(1) as f32;
        Self { entropy, repeated, looked_at: seen }
    }

    /// The share of its size that the bytes would keep, roughly: what does not
    /// repeat, at its entropy, and a little for what does.
    pub fn ratio(&self) -> f32 {
        // Few bytes show less entropy than they come from. What uniformly
        // random ones show, within a fiftieth from 64 bytes on:
        let scarce = 256.0 / self.looked_at.max(1) as f32;
        let possible = 8.0 - (1.0 + (0.5 + 0.4 * scarce.min(1.0)) * scarce).log2();
        let entropy = (self.entropy * 8.0 / possible.max(1.0)).min(8.0);
        ((1.0 - self.repeated) * entropy / 8.0 + self.repeated * 0.12).min(1.0)
    }

    /// The verdict: below a quarter saved only a fast codec, below a twentieth
    /// none.
    pub fn worth(&self) -> Worth {
        match self.ratio() {
            r if r > 0.95 => Worth::Nothing,
            r if r > 0.75 => Worth::Little,
            _ => Worth::Much,
        }
    }
}

/// Up to four windows spread evenly over the bytes.
fn windows(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (count, len) =
        if bytes.len() <= SAMPLE_BYTES { (1, bytes.len()) } else { (4, SAMPLE_BYTES / 4) };
    let stride = if count == 1 { 0 } else { (bytes.len() - len) / (count - 1) };
    (0..count).map(move |i| &bytes[i * stride..][..len])
}

/// How many positions were looked at, and how many had been seen before: the
/// table keeps a check value per hash.
fn sample_matches(window: &[u8], table: &mut [u16; 1 << TABLE_BITS]) -> (u32, u32) {
    let mut hits = 0;
    let mut positions = 0;
    for four in window.windows(4) {
        let word = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
        let hash = word.wrapping_mul(0x9E37_79B1);
        let slot = &mut table[(hash >> (32 - TABLE_BITS)) as usize];
        let check = (hash >> 4) as u16 | 1;
        hits += u32::from(*slot == check);
        *slot = check;
        positions += 1;
    }
    (positions, hits)
}

/// Whether enough repeats for a codec with matches to be tried.
pub(crate) fn repeats(bytes: &[u8]) -> bool {
    let mut table = [0u16; 1 << TABLE_BITS];
    let (mut positions, mut hits) = (0, 0);
    for window in windows(bytes) {
        let (p, h) = sample_matches(window, &mut table);
        positions += p;
        hits += h;
    }
    hits * 16 >= positions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(len: usize) -> Vec<u8> {
        let mut x = 88_172_645_463_325_252u64;
        std::iter::repeat_with(|| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        })
        .take(len)
        .collect()
    }

    #[test]
    fn random_bytes_are_left_and_text_is_packed() {
        for len in [64, 256, 1000, 4096, 100_000] {
            assert_eq!(Estimate::of(&random(len)).worth(), Worth::Nothing, "{len}");
            let text: Vec<u8> = b"the quick brown fox jumps over the lazy dog. ".repeat(3000);
            assert_eq!(Estimate::of(&text[..len.max(128)]).worth(), Worth::Much, "{len}");
        }
        let digits: Vec<u8> = random(4096).iter().map(|b| b'0' + b % 10).collect();
        assert_eq!(Estimate::of(&digits).worth(), Worth::Much);
        assert_eq!(Estimate::of(&[]).worth(), Worth::Much);
    }
}
