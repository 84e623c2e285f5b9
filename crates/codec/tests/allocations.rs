//! What packing and unpacking allocate once their workspace is warm: the output
//! and nothing else. Counted on the process's allocator, hence one test only.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use snug_codec::family::{Family, FamilyConfig, Verdict};
use snug_codec::stream::{self, Turns, drive};
use snug_codec::{
    Codec, Dictionary, NoDictionaries, SEGMENT_BYTES, Segments, Workspace, WorkspaceConfig,
};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, counted.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What `work` gives, and how often it allocated.
fn counted<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let out = work();
    (out, ALLOCATIONS.load(Ordering::Relaxed) - before)
}

fn random(len: usize) -> Vec<u8> {
    let mut x = 88_172_645_463_325_252u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 11) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn nothing_but_output_is_allocated_once_warm() {
    let mut ws = Workspace::new(WorkspaceConfig::default());
    let text = b"the quick brown fox jumps over the lazy dog; ".repeat(60_000);
    for raw in [Segments::from(&text[..]), Segments::from(&random(1_000_000)[..])] {
        stream_twice(&mut ws, &raw);
    }
    values(&mut ws, &text[..20_000]);
    phrases(&mut ws, &text[..20_000]);
    judging();
}

/// A list of parts is one allocation more; a growing list has a few.
fn output(chain: &Segments, lists: u64) -> u64 {
    chain.len().div_ceil(SEGMENT_BYTES) as u64 + lists
}

fn stream_twice(ws: &mut Workspace, raw: &Segments) {
    let pace = Turns::default();
    for warm in [false, true] {
        let pack = stream::pack(ws, Codec::Zstd, 3, raw, &pace, 0);
        let (packed, packing) = counted(|| drive(pack, usize::MAX).expect("ends").expect("packs"));
        let unpack = stream::unpack(ws, &packed, &NoDictionaries, raw.len(), &pace, 0);
        let (back, unpacking) =
            counted(|| drive(unpack, usize::MAX).expect("ends").expect("unpacks"));
        assert!(back == *raw);
        if warm {
            assert!(packing <= output(&packed, 2), "{packing} to pack {packed:?}");
            assert_eq!(unpacking, output(&back, 1), "to unpack {back:?}");
        }
    }
}

fn values(ws: &mut Workspace, raw: &[u8]) {
    let (mut packed, mut out) = (Vec::with_capacity(1 << 16), Vec::with_capacity(1 << 16));
    for codec in [Codec::None, Codec::Zstd, Codec::Lz4, Codec::Snappy, Codec::Gzip, Codec::Zlib] {
        for warm in [false, true] {
            packed.clear();
            out.clear();
            let ((), allocations) = counted(|| {
                ws.pack(codec, 3, None, raw, &mut packed).expect("packs");
                ws.unpack(&packed, &NoDictionaries, &mut out, raw.len()).expect("unpacks");
            });
            assert!(out == raw);
            assert!(!warm || allocations == 0, "{codec}: {allocations}");
        }
    }
}

fn phrases(ws: &mut Workspace, raw: &[u8]) {
    let samples: Vec<&[u8]> = raw.chunks(500).collect();
    let table = Dictionary::train_phrases(&samples, 4096, 3).expect("trains").with_id(1);
    let table = std::sync::Arc::new(table);
    let (mut packed, mut out) = (Vec::with_capacity(1 << 16), Vec::with_capacity(1 << 16));
    for warm in [false, true] {
        packed.clear();
        out.clear();
        let ((), allocations) = counted(|| {
            ws.pack(Codec::Zstd, 3, Some(&table), raw, &mut packed).expect("packs");
            ws.unpack(&packed, &table, &mut out, raw.len()).expect("unpacks");
        });
        assert!(out == raw);
        assert!(!warm || allocations == 0, "{allocations}");
    }
}

/// Deciding on what does not pack is remembered: of a million bytes that are
/// judged, the share looked at is far below a fiftieth, and a level-1 pass
/// looks at every byte more than once.
fn judging() {
    let mut family = Family::new(FamilyConfig::default(), 1);
    let value = random(4096);
    let values = 100_000u64;
    let ((), allocations) = counted(|| {
        for _ in 0..values {
            assert_eq!(family.judge(&value), Verdict::Raw);
            family.sample(&value);
        }
    });
    assert_eq!(allocations, 0);
    let stats = family.stats();
    assert_eq!(stats.judged, values);
    assert!(stats.looked_at * 1000 < values, "{} looked at", stats.looked_at);
}
