//! Streams against one-shot zstd on the `codec-stream` value: 512 random letters
//! and digits repeated to 1 MiB and to 10 MiB, level 3.
//!
//! `cargo bench -p snug-codec --bench streams`. The ways take turns, so that a
//! busy machine disturbs each alike; times are this thread's on the processor,
//! allocations counted on the allocator that the product uses.
#![allow(missing_docs, unreachable_pub, unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use snug_codec::stream::{self, Pace};
use snug_codec::{Codec, NoDictionaries, Segments, Workspace, WorkspaceConfig};

const LEVEL: i32 = 3;
const SLICE_NS: u64 = 250_000;
const ROUNDS: usize = 101;
const AT_ONCE: usize = 8;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// mimalloc, counted.
struct Counting;

// SAFETY: every call goes to mimalloc unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: size and alignment are a layout's.
        unsafe { libmimalloc_sys::mi_malloc_aligned(layout.size(), layout.align()).cast() }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, _: Layout) {
        // SAFETY: it came from mimalloc.
        unsafe { libmimalloc_sys::mi_free(ptr.cast()) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A clock, a yield that goes back to whoever polls (or none), slices noted.
struct Paced {
    yields: bool,
    awake: Cell<bool>,
    slices: RefCell<Vec<u64>>,
}

impl Pace for Paced {
    fn now_ns(&self) -> u64 {
        cpu_ns()
    }

    async fn pause(&self) {
        if self.yields {
            self.awake.set(false);
            let turn = |_: &mut Context<'_>| {
                if self.awake.replace(true) { Poll::Ready(()) } else { Poll::Pending }
            };
            std::future::poll_fn(turn).await;
        }
    }

    fn sliced(&self, took_ns: u64) {
        self.slices.borrow_mut().push(took_ns);
    }
}

fn paced(yields: bool) -> Paced {
    Paced { yields, awake: Cell::new(true), slices: RefCell::new(Vec::with_capacity(1 << 18)) }
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

/// One way to do the work, and what each time took.
struct Way<'a> {
    name: &'static str,
    once: Box<dyn FnMut() + 'a>,
    took_ns: Vec<u64>,
    allocations: u64,
    pace: Option<&'a Paced>,
}

impl<'a> Way<'a> {
    fn new(name: &'static str, pace: Option<&'a Paced>, once: impl FnMut() + 'a) -> Self {
        Self {
            name,
            once: Box::new(once),
            took_ns: Vec::with_capacity(ROUNDS),
            allocations: 0,
            pace,
        }
    }

    fn run(&mut self) {
        let (count, start) = (ALLOCATIONS.load(Ordering::Relaxed), cpu_ns());
        (self.once)();
        self.took_ns.push(cpu_ns() - start);
        self.allocations = ALLOCATIONS.load(Ordering::Relaxed) - count;
    }

    fn print(&mut self, direction: &str, mib: usize, values: usize) {
        self.took_ns.sort_unstable();
        let us = |ns: u64| ns as f64 / 1e3;
        let each = |ns: u64| us(ns) / values as f64;
        let mut slices = self.pace.map_or(Vec::new(), |pace| pace.slices.take());
        slices.sort_unstable();
        let at = |share: f64| {
            let last = slices.len().saturating_sub(1);
            slices.get((last as f64 * share).ceil() as usize).map_or(0.0, |&ns| us(ns))
        };
        println!(
            "| {direction} | {mib} | {} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {} |",
            self.name,
            each(self.took_ns[0]),
            each(self.took_ns[self.took_ns.len() / 2]),
            at(0.99),
            at(0.999),
            at(1.0),
            self.allocations / values as u64,
        );
    }
}

fn main() {
    println!(
        "| stream | MiB | way | least us | median us | slice p99 | p99.9 | max | allocations |"
    );
    println!("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for mib in [1, 10] {
        measure(mib);
    }
}

fn letters() -> Vec<u8> {
    let mut x = 88_172_645_463_325_252u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"[(x >> 20) as usize % 62]
    };
    (0..512).map(|_| next()).collect()
}

fn measure(mib: usize) {
    let flat = letters().repeat((mib << 20) / 512);
    let raw = Segments::from(&flat[..]);
    let mut ws = Workspace::new(WorkspaceConfig::default());
    let packed = drive(stream::pack(&mut ws, Codec::Zstd, LEVEL, &raw, &paced(false), SLICE_NS));
    let packed = packed.expect("packs");
    packing(mib, &flat, &raw);
    unpacking(mib, &flat, &packed);
}

fn workspaces(count: usize) -> Vec<Workspace> {
    (0..count).map(|_| Workspace::new(WorkspaceConfig::default())).collect()
}

fn packing(mib: usize, flat: &[u8], raw: &Segments) {
    let [blocking, preemptible, many] = [paced(false), paced(true), paced(true)];
    let mut context = zstd_safe::CCtx::create();
    let mut out = Vec::with_capacity(zstd_safe::compress_bound(flat.len()));
    let (mut one, mut two, mut eight) = (workspaces(1), workspaces(1), workspaces(AT_ONCE));
    let pack = |ws: &mut Workspace, pace: &Paced| {
        drive(stream::pack(ws, Codec::Zstd, LEVEL, raw, pace, SLICE_NS)).expect("packs");
    };
    run(
        "pack",
        mib,
        vec![
            Way::new("one-shot", None, || {
                out.clear();
                context.compress(&mut out, flat, LEVEL).expect("room for the bound");
            }),
            Way::new("blocking", Some(&blocking), || pack(&mut one[0], &blocking)),
            Way::new("preemptible", Some(&preemptible), || pack(&mut two[0], &preemptible)),
            Way::new("eight at once", Some(&many), || {
                at_once(&mut eight, |ws| {
                    Box::pin(async {
                        let made = stream::pack(ws, Codec::Zstd, LEVEL, raw, &many, SLICE_NS).await;
                        made.expect("packs");
                    })
                });
            }),
        ],
    );
}

fn unpacking(mib: usize, flat: &[u8], packed: &Segments) {
    let [blocking, preemptible, many] = [paced(false), paced(true), paced(true)];
    let mut frame = Vec::with_capacity(zstd_safe::compress_bound(flat.len()));
    zstd_safe::CCtx::create().compress(&mut frame, flat, LEVEL).expect("room for the bound");
    let mut context = zstd_safe::DCtx::create();
    let mut fresh = zstd_safe::DCtx::create();
    let mut out = Vec::with_capacity(flat.len());
    let (mut one, mut two, mut eight) = (workspaces(1), workspaces(1), workspaces(AT_ONCE));
    let len = flat.len();
    let unpack = |ws: &mut Workspace, pace: &Paced| {
        drive(stream::unpack(ws, packed, &NoDictionaries, len, pace, SLICE_NS)).expect("unpacks");
    };
    run(
        "unpack",
        mib,
        vec![
            Way::new("one-shot", None, || {
                out.clear();
                context.decompress(&mut out, &frame).expect("what was packed");
            }),
            Way::new("one-shot, new output", None, || {
                let mut out = Vec::with_capacity(len);
                fresh.decompress(&mut out, &frame).expect("what was packed");
            }),
            Way::new("blocking", Some(&blocking), || unpack(&mut one[0], &blocking)),
            Way::new("preemptible", Some(&preemptible), || unpack(&mut two[0], &preemptible)),
            Way::new("eight at once", Some(&many), || {
                at_once(&mut eight, |ws| {
                    Box::pin(async {
                        let made =
                            stream::unpack(ws, packed, &NoDictionaries, len, &many, SLICE_NS).await;
                        made.expect("unpacks");
                    })
                });
            }),
        ],
    );
}

/// A stream in progress.
type Running<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Streams that take turns on one thread.
fn at_once<'a>(spaces: &'a mut [Workspace], start: impl Fn(&'a mut Workspace) -> Running<'a>) {
    let mut running: Vec<Running<'a>> = spaces.iter_mut().map(start).collect();
    let mut context = Context::from_waker(Waker::noop());
    while !running.is_empty() {
        running.retain_mut(|one| one.as_mut().poll(&mut context).is_pending());
    }
}

fn run(direction: &str, mib: usize, mut ways: Vec<Way<'_>>) {
    for round in 0..ROUNDS + 3 {
        for way in &mut ways {
            way.run();
            if round < 3 {
                // Workspaces and buffers are made and touched first.
                way.took_ns.clear();
                way.pace.inspect(|pace| pace.slices.borrow_mut().clear());
            }
        }
    }
    for way in &mut ways {
        way.print(direction, mib, if way.name == "eight at once" { AT_ONCE } else { 1 });
    }
}
