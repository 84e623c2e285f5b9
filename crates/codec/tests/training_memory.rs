//! What training a dictionary takes at most, counted on the process's allocator,
//! hence one test only.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use snug_codec::family::{Family, FamilyConfig, GROWN_TIMES, Trained};
use snug_codec::{Workspace, WorkspaceConfig};

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counted.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(held, Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // As the server's allocator counts: the old block is not held beside the new.
        let held = HELD.fetch_add(size, Relaxed) + size - layout.size();
        HELD.fetch_sub(layout.size(), Relaxed);
        MOST.fetch_max(held, Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn samples(count: usize, len: usize, words: u64) -> Vec<Box<[u8]>> {
    let mut x = 88_172_645_463_325_252u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x >> 11
    };
    let mut sample = || {
        let mut text = String::new();
        while text.len() < len {
            text += &format!("{:x} ", (next() % words).wrapping_mul(0x9e37_79b9) & 0xffff_ffff);
        }
        text.truncate(len);
        text.into_bytes().into()
    };
    (0..count).map(|_| sample()).collect()
}

/// Trains from the samples that a family has; what that took and may have taken.
#[track_caller]
fn train(family: &mut Family, bytes_max: usize) -> Option<Trained> {
    let before = HELD.load(Relaxed);
    MOST.store(before, Relaxed);
    let most = family.training_bytes_max();
    let job = family.training_job().expect("enough samples");
    let mut workspace = Workspace::new(WorkspaceConfig::default());
    let trained = job.run(&mut workspace, bytes_max, 19, 1);
    let took = MOST.load(Relaxed) - before;
    assert!(took <= most, "{took} of {most}: {trained:?}");
    assert!(took > most / 4, "{took} of {most}: that is too careful");
    trained
}

#[test]
fn training_takes_no_more_than_it_says() {
    for (count, len) in [(512, 512), (64, 4096), (512, 64), (64, 64)] {
        for words in [30, 1000, 1 << 40] {
            for bytes_max in [1024, 16 * 1024, 110 * 1024] {
                let mut family = Family::new(FamilyConfig::default(), 1);
                samples(count, len, words).iter().for_each(|sample| family.sample(sample));
                let trained = train(&mut family, bytes_max);
                let grows = (count, len) == (512, 512) && bytes_max == 16 * 1024;
                let Some(trained) = trained.filter(|_| grows) else { continue };
                family.adopt(Arc::new(trained.dictionary));
                assert!(family.grow());
                let more = samples(GROWN_TIMES * count.max(512), len, words);
                more.iter().for_each(|sample| family.sample(sample));
                train(&mut family, bytes_max);
            }
        }
    }
}
