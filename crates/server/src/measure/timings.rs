//! What background work has come to: how long packing and turns of the sweeper took,
//! and what was packed with what. For `/metrics`.
//!
//! Times are kept per worker, which alone writes its own: recording costs a few
//! loads and stores. What was packed is counted under one lock, once for each
//! value that went through a codec; its rows are bounded by the numbers of
//! types, codecs, levels and groups of MIME types.

use crate::measure::latency::{Histogram, Times};
use crate::measure::passes::Passes;
use parking_lot::Mutex;
use snug_codec::Codec;
use snug_store::{Fate, Piece, Type};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A histogram and the sum of its times, written by one thread.
#[derive(Debug, Default)]
pub(crate) struct Timed {
    times: Histogram,
    nanoseconds: AtomicU64,
    longest: AtomicU64,
}

impl Timed {
    /// Records a time. To be called by one thread only.
    pub(crate) fn record(&self, took: Duration) {
        let nanoseconds = took.as_nanos() as u64;
        self.times.record(nanoseconds);
        self.nanoseconds.store(self.nanoseconds.load(Relaxed) + nanoseconds, Relaxed);
        if nanoseconds > self.longest.load(Relaxed) {
            self.longest.store(nanoseconds, Relaxed);
        }
    }
}

/// Times of one worker.
#[derive(Debug, Default)]
pub(crate) struct OfWorker {
    /// Packing one piece, whether or not it was worth it, by its kind: its slices,
    /// without what was between them. Made for the first of a kind.
    pieces: [OnceLock<Box<Timed>>; Piece::COUNT],
    /// One turn of the sweeper: what a client may have had to wait for.
    pub turns: Timed,
    /// How far its walk over strings has come.
    pub passes: Passes,
}

impl OfWorker {
    /// Records what was worked on a piece. To be called by this worker only.
    pub(crate) fn packed(&self, piece: Piece, took: Duration) {
        self.pieces[piece.number()].get_or_init(Box::default).record(took);
    }
}

/// What went through the codecs under one heading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub values: u64,
    pub raw_bytes: u64,
    pub packed_bytes: u64,
}

/// The heading: type, codec, level and group of MIME types.
pub(crate) type Heading = (&'static str, Codec, i32, &'static str);

/// A sum of times over all workers.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    pub times: Times,
    pub seconds: f64,
    pub longest_seconds: f64,
}

/// Everything of this kind.
#[derive(Debug)]
pub(crate) struct Timings {
    workers: Vec<OfWorker>,
    outcomes: Mutex<BTreeMap<Heading, Outcome>>,
}

impl Timings {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            workers: (0..workers).map(|_| OfWorker::default()).collect(),
            outcomes: Mutex::default(),
        }
    }

    /// A worker's own.
    pub(crate) fn of(&self, worker: usize) -> &OfWorker {
        &self.workers[worker]
    }

    /// How long turns of the sweepers took.
    pub(crate) fn turns(&self) -> Sum {
        Self::sum(self.workers.iter().map(|of| &of.turns))
    }

    /// How long packing pieces took, by what they are called.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (&'static str, Sum)> {
        Piece::names().into_iter().map(|(name, numbers)| {
            let all = self.workers.iter().flat_map(|of| numbers.iter().map(|&n| &of.pieces[n]));
            (name, Self::sum(all.filter_map(OnceLock::get).map(|timed| &**timed)))
        })
    }

    fn sum<'t>(all: impl Iterator<Item = &'t Timed>) -> Sum {
        let mut sum = Sum::default();
        for timed in all {
            sum.times.add(&timed.times);
            sum.seconds += timed.nanoseconds.load(Relaxed) as f64 / 1e9;
            let longest = timed.longest.load(Relaxed) as f64 / 1e9;
            sum.longest_seconds = sum.longest_seconds.max(longest);
        }
        sum
    }

    fn packed(
        &self,
        kind: Type,
        codec: Codec,
        level: i32,
        group: &'static str,
        raw_bytes: usize,
        packed_bytes: usize,
    ) {
        let heading = (kind.name(), codec, codec.nearest_level(level), group);
        let mut outcomes = self.outcomes.lock();
        let outcome = outcomes.entry(heading).or_default();
        outcome.values += 1;
        outcome.raw_bytes += raw_bytes as u64;
        outcome.packed_bytes += packed_bytes as u64;
    }

    /// A value was looked at and left raw: it stands under no codec, as large as before.
    fn left_raw(&self, kind: Type, group: &'static str, bytes: usize) {
        self.packed(kind, Codec::None, 0, group, bytes, bytes);
    }

    /// A piece was packed, or found not worth it.
    pub(crate) fn came_of(&self, outcome: &snug_store::Outcome) {
        let snug_store::Outcome { raw_bytes, codec, level, .. } = *outcome;
        let (kind, group) = (outcome.piece.kind, group_of(outcome.mime.as_deref()));
        match outcome.fate {
            Fate::Packed(bytes) => self.packed(kind, codec, level, group, raw_bytes, bytes),
            Fate::NotWorth => self.left_raw(kind, group, raw_bytes),
            Fate::Unpacked | Fate::Awaits | Fate::Nothing => {}
        }
    }

    /// What was packed, by heading.
    pub(crate) fn outcomes(&self) -> BTreeMap<Heading, Outcome> {
        self.outcomes.lock().clone()
    }
}

/// The group of a MIME type: what stands before the slash; `unknown` for none.
fn group_of(mime: Option<&str>) -> &'static str {
    let group = mime.and_then(|mime| mime.split('/').next());
    const GROUPS: [&str; 8] =
        ["application", "audio", "font", "image", "message", "model", "text", "video"];
    GROUPS.into_iter().find(|known| group == Some(known)).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_store::Extent;

    #[test]
    fn workers_are_added_up() {
        let timings = Timings::new(2);
        timings.of(0).turns.record(Duration::from_micros(5));
        timings.of(1).turns.record(Duration::from_micros(7));
        let sum = timings.turns();
        assert_eq!(sum.times.calls(), 2);
        assert!((sum.seconds - 12e-6).abs() < 1e-12 && (sum.longest_seconds - 7e-6).abs() < 1e-12);
        let piece = Piece { kind: Type::Stream, extent: Extent::Part };
        timings.of(1).packed(piece, Duration::from_micros(7));
        let calls: Vec<_> = timings.pieces().map(|(name, sum)| (name, sum.times.calls())).collect();
        assert_eq!(calls[..3], [("string", 0), ("large_string", 0), ("stream", 1)]);
    }

    #[test]
    fn outcomes_stand_under_what_they_were_packed_with() {
        let timings = Timings::new(1);
        for (codec, level) in [(Codec::Zstd, 3), (Codec::Zstd, 0), (Codec::Lz4, 9), (Codec::Lz4, 1)]
        {
            timings.packed(Type::String, codec, level, group_of(Some("application/json")), 10, 4);
        }
        let two = Outcome { values: 2, raw_bytes: 20, packed_bytes: 8 };
        let expected = [
            (("string", Codec::Zstd, 3, "application"), two),
            (("string", Codec::Lz4, 0, "application"), two),
        ];
        assert_eq!(timings.outcomes(), BTreeMap::from(expected));
        timings.left_raw(Type::String, "image", 50);
        let raw = timings.outcomes()[&("string", Codec::None, 0, "image")];
        assert_eq!(raw, Outcome { values: 1, raw_bytes: 50, packed_bytes: 50 });
        assert_eq!((group_of(Some("image/png")), group_of(None)), ("image", "unknown"));
    }
}
