//! The codec report, with allocations counted. `SNUG_FLIGHTS_CSV` names the
//! flights' CSV; without it they are left out.
#![allow(missing_docs, unreachable_pub, unsafe_code)]

#[path = "../../bench/src/codec/mod.rs"]
mod codec;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

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

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(ptr, layout, size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn main() {
    let options = codec::Options {
        flights_csv: std::env::var_os("SNUG_FLIGHTS_CSV").map(Into::into),
        allocations: Some(|| ALLOCATIONS.load(Ordering::Relaxed)),
        ..codec::Options::default()
    };
    let report = codec::run(&options, |what| eprintln!("{what}"));
    println!("{}", report.text());
    if let Some(folder) = std::env::var_os("SNUG_REPORT_FOLDER") {
        let folder = std::path::PathBuf::from(folder);
        std::fs::write(folder.join("codec.json"), report.json().to_string()).expect("writes");
        std::fs::write(folder.join("codec.csv"), report.csv()).expect("writes");
    }
}
