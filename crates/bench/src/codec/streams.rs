//! `codec-stream`: a large value packed and unpacked in slices that others may come
//! between, beside zstd in one call.

use super::timing::{cpu_seconds, quantile};
use super::{Line, Options, data};
use serde::{Deserialize, Serialize};
use snug_codec::stream::{self, Pace};
use snug_codec::{Codec, NoDictionaries, Segments, Workspace, WorkspaceConfig};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// One way to pack or unpack the `codec-stream` value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamLine {
    /// Raw bytes.
    pub raw_bytes: usize,
    /// `pack` or `unpack`.
    pub direction: String,
    /// One-shot, the same with a chain gathered before and another filled after,
    /// blocking, preemptible, or eight preemptible at once.
    pub variant: String,
    /// Median CPU microseconds for one value.
    pub median_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Throughput over one-shot's in the same turn, median; 0 where it took no
    /// turns with it.
    #[serde(default)]
    pub times_one_shot: f64,
    /// Slices: their 99th percentile, 99.9th percentile and longest.
    pub slice_p99_us: f64,
    /// 99.9th percentile.
    pub slice_p999_us: f64,
    /// Longest.
    pub slice_max_us: f64,
    /// Allocations for one value, if they are counted.
    pub allocations: Option<u64>,
    /// Segments of output for one value.
    pub segments: usize,
}

impl Line for StreamLine {
    const HEADS: &[&str] = &[
        "value",
        "variant",
        "median us",
        "p99",
        "times one-shot",
        "slice p99 us",
        "p99.9",
        "max",
        "allocations",
        "segments",
    ];

    fn cells(&self) -> Vec<String> {
        let mut cells =
            vec![format!("{} {} MiB", self.direction, self.raw_bytes >> 20), self.variant.clone()];
        cells.extend([self.median_us, self.p99_us].map(|us| format!("{us:.0}")));
        let times = Some(self.times_one_shot).filter(|&times| times > 0.0);
        cells.push(times.map_or("-".into(), |times| format!("{times:.2}")));
        let slices = [self.slice_p99_us, self.slice_p999_us, self.slice_max_us];
        cells.extend(slices.map(|us| format!("{us:.0}")));
        cells.push(self.allocations.map_or("-".into(), |count| count.to_string()));
        cells.push(self.segments.to_string());
        cells
    }
}

/// The runtime of the stream measurement: the wall's clock to pace by, as in a
/// server, this thread's own time to measure slices by, and a yield that goes
/// back to whoever polls, or none.
struct Paced {
    yields: bool,
    began: Instant,
    slice_began: Cell<f64>,
    slices: RefCell<Vec<f64>>,
    awake: Cell<bool>,
}

impl Paced {
    fn new(yields: bool) -> Self {
        let slices = RefCell::new(Vec::with_capacity(1 << 16));
        let (began, slice_began) = (Instant::now(), Cell::new(0.0));
        Self { yields, began, slice_began, slices, awake: Cell::new(true) }
    }

    /// A slice begins now.
    fn begin(&self) {
        self.slice_began.set(cpu_seconds());
    }
}

impl Pace for Paced {
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    async fn pause(&self) {
        if self.yields {
            self.awake.set(false);
            let turn = |_: &mut Context<'_>| {
                if self.awake.replace(true) { Poll::Ready(()) } else { Poll::Pending }
            };
            std::future::poll_fn(turn).await;
        }
        self.begin();
    }

    fn sliced(&self, _took_ns: u64) {
        let began = self.slice_began.replace(cpu_seconds());
        self.slices.borrow_mut().push((self.slice_began.get() - began) * 1e6);
    }
}

fn drive<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(out) = future.as_mut().poll(&mut context) {
            return out;
        }
    }
}

const SLICE_NS: u64 = 250_000;
const STREAM_TURNS: usize = 11;
/// Times a way is measured in each of its turns.
const STREAM_ROUNDS: usize = 11;

/// One way to do the job of `codec-stream`, and what it took so far.
struct Way<'a> {
    variant: &'static str,
    pace: &'a Paced,
    /// Does it once; how many segments or buffers came out.
    once: Box<dyn FnMut() -> usize + 'a>,
    samples: Vec<f64>,
    /// How many slices have been measured.
    slices: usize,
    allocations: Option<u64>,
    segments: usize,
}

impl<'a> Way<'a> {
    fn new(variant: &'static str, pace: &'a Paced, once: impl FnMut() -> usize + 'a) -> Self {
        let samples = Vec::with_capacity(STREAM_TURNS * STREAM_ROUNDS);
        let once = Box::new(once);
        Self { variant, pace, once, samples, slices: 0, allocations: None, segments: 0 }
    }

    fn measure(&mut self, options: &Options) {
        let count = || options.allocations.map(|count| count());
        self.pace.begin();
        let (before, start) = (count(), cpu_seconds());
        self.segments = (self.once)();
        self.samples.push((cpu_seconds() - start) * 1e6);
        self.allocations = count().zip(before).map(|(after, before)| after - before);
    }

    /// What was measured, turn by turn beside the first way's samples.
    fn line(mut self, raw_bytes: usize, direction: &str, first: &[f64]) -> StreamLine {
        let turns = |samples: &[f64]| -> Vec<f64> {
            samples.chunks(STREAM_ROUNDS).map(|turn| quantile(&mut turn.to_vec(), 0.5)).collect()
        };
        let mut times: Vec<f64> =
            turns(first).iter().zip(turns(&self.samples)).map(|(first, own)| first / own).collect();
        let mut slices = self.pace.slices.take();
        StreamLine {
            raw_bytes,
            direction: direction.into(),
            variant: self.variant.into(),
            median_us: quantile(&mut self.samples, 0.5),
            p99_us: quantile(&mut self.samples, 0.99),
            times_one_shot: quantile(&mut times, 0.5),
            slice_p99_us: quantile(&mut slices, 0.99),
            slice_p999_us: quantile(&mut slices, 0.999),
            slice_max_us: quantile(&mut slices, 1.0),
            allocations: self.allocations,
            segments: self.segments,
        }
    }
}

/// Measures all ways in turns, so that whatever else slows the machine slows all
/// of them: a few times each, the first of which only warms the caches. The first
/// way is what the others are compared with.
fn take_turns(
    options: &Options,
    raw_bytes: usize,
    direction: &str,
    mut ways: Vec<Way<'_>>,
    lines: &mut Vec<StreamLine>,
) {
    for _ in 0..STREAM_TURNS {
        for way in &mut ways {
            way.pace.begin();
            (way.once)();
            way.pace.slices.borrow_mut().truncate(way.slices);
            (0..STREAM_ROUNDS).for_each(|_| way.measure(options));
            way.slices = way.pace.slices.borrow().len();
        }
    }
    let first = ways.first().map_or(Vec::new(), |way| way.samples.clone());
    lines.extend(ways.into_iter().map(|way| way.line(raw_bytes, direction, &first)));
}

/// `codec-stream`: 512 letters and digits repeated, zstd level 3.
pub(super) fn streams(options: &Options, raw_bytes: usize, lines: &mut Vec<StreamLine>) {
    let letters = data::Random::new(options.seed).letters(512);
    let flat = letters.as_bytes().repeat(raw_bytes / 512);
    let raw = &Segments::from(&flat[..]);
    let mut ws = Workspace::new(WorkspaceConfig::default());
    let mut other = Workspace::new(WorkspaceConfig::default());
    let (blocking, preemptible, none) = (&Paced::new(false), &Paced::new(true), &Paced::new(false));
    let made = stream::pack(&mut ws, Codec::Zstd, 3, raw, none, SLICE_NS);
    let packed = &drive(made).expect("can be packed");
    none.slices.take();

    let mut one_shot = OneShot::new(&flat);
    let mut over_chains = OneShot::new(&flat);
    let ways = vec![
        Way::new("one-shot", none, || one_shot.pack(&flat)),
        Way::new("one-shot, chains", none, || over_chains.pack_chain(raw)),
        Way::new("blocking", blocking, || {
            let made = stream::pack(&mut ws, Codec::Zstd, 3, raw, blocking, SLICE_NS);
            drive(made).expect("can be packed").parts().len()
        }),
        Way::new("preemptible", preemptible, || {
            let made = stream::pack(&mut other, Codec::Zstd, 3, raw, preemptible, SLICE_NS);
            drive(made).expect("can be packed").parts().len()
        }),
    ];
    take_turns(options, raw_bytes, "pack", ways, lines);
    let one = async |ws: &mut Workspace, pace: &Paced| {
        stream::pack(ws, Codec::Zstd, 3, raw, pace, SLICE_NS).await.expect("can be packed")
    };
    lines.push(eight_at_once(options, raw_bytes, "pack", one));

    let mut by_one_shot = OneShot::new(&flat);
    by_one_shot.pack(&flat);
    let chain = &Segments::from(&by_one_shot.out[..]);
    let frame = by_one_shot.out.clone();
    let ways = vec![
        Way::new("one-shot", none, || by_one_shot.unpack(&frame)),
        Way::new("one-shot, chains", none, || over_chains.unpack_chain(chain)),
        Way::new("blocking", blocking, || {
            let made =
                stream::unpack(&mut ws, packed, &NoDictionaries, raw_bytes, blocking, SLICE_NS);
            drive(made).expect("can be unpacked").parts().len()
        }),
        Way::new("preemptible", preemptible, || {
            let made = stream::unpack(
                &mut other,
                packed,
                &NoDictionaries,
                raw_bytes,
                preemptible,
                SLICE_NS,
            );
            drive(made).expect("can be unpacked").parts().len()
        }),
    ];
    take_turns(options, raw_bytes, "unpack", ways, lines);
    let one = async |ws: &mut Workspace, pace: &Paced| {
        let made = stream::unpack(ws, packed, &NoDictionaries, raw_bytes, pace, SLICE_NS);
        made.await.expect("can be unpacked")
    };
    lines.push(eight_at_once(options, raw_bytes, "unpack", one));
}

/// zstd as it comes: one call, its own window, contiguous memory; the contexts
/// and both buffers are kept from one value to the next.
struct OneShot {
    pack: zstd_safe::CCtx<'static>,
    unpack: zstd_safe::DCtx<'static>,
    /// What a chain is gathered into.
    gathered: Vec<u8>,
    out: Vec<u8>,
}

impl OneShot {
    fn new(raw: &[u8]) -> Self {
        Self {
            pack: zstd_safe::CCtx::create(),
            unpack: zstd_safe::DCtx::create(),
            gathered: Vec::with_capacity(raw.len()),
            out: Vec::with_capacity(zstd_safe::compress_bound(raw.len())),
        }
    }

    fn pack(&mut self, raw: &[u8]) -> usize {
        self.out.clear();
        self.pack.compress(&mut self.out, raw, 3).expect("room for the bound");
        1
    }

    fn unpack(&mut self, packed: &[u8]) -> usize {
        self.out.clear();
        self.unpack.decompress(&mut self.out, packed).expect("what was packed");
        1
    }

    /// The same for who holds a chain and wants a chain: gathered first,
    /// scattered after.
    fn pack_chain(&mut self, raw: &Segments) -> usize {
        let gathered = self.gather(raw);
        self.pack(&gathered);
        self.scatter(gathered)
    }

    fn unpack_chain(&mut self, packed: &Segments) -> usize {
        let gathered = self.gather(packed);
        self.unpack(&gathered);
        self.scatter(gathered)
    }

    fn gather(&mut self, chain: &Segments) -> Vec<u8> {
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.clear();
        chain.parts().iter().for_each(|part| gathered.extend_from_slice(part));
        gathered
    }

    fn scatter(&mut self, gathered: Vec<u8>) -> usize {
        self.gathered = gathered;
        Segments::from(&self.out[..]).parts().len()
    }
}

/// Eight streams that take turns on one thread.
fn eight_at_once(
    options: &Options,
    raw_bytes: usize,
    direction: &str,
    one: impl AsyncFn(&mut Workspace, &Paced) -> Segments,
) -> StreamLine {
    let pace = &Paced::new(true);
    let mut spaces: Vec<Workspace> =
        (0..8).map(|_| Workspace::new(WorkspaceConfig::default())).collect();
    let mut way = Way::new("eight preemptible", pace, || {
        let mut running: Vec<Pin<Box<dyn Future<Output = usize> + '_>>> = Vec::new();
        for ws in &mut spaces {
            let one = &one;
            running.push(Box::pin(async move {
                pace.begin();
                one(ws, pace).await.parts().len()
            }));
        }
        let mut context = Context::from_waker(Waker::noop());
        let mut segments = 0;
        while !running.is_empty() {
            running.retain_mut(|one| match one.as_mut().poll(&mut context) {
                Poll::Ready(parts) => {
                    segments += parts;
                    false
                }
                Poll::Pending => true,
            });
        }
        segments
    });
    (way.once)();
    pace.slices.borrow_mut().clear();
    (0..STREAM_TURNS * STREAM_ROUNDS).for_each(|_| way.measure(options));
    way.samples.iter_mut().for_each(|sample| *sample /= 8.0);
    way.allocations = way.allocations.map(|all| all / 8);
    way.segments /= 8;
    way.line(raw_bytes, direction, &[])
}
