//! The one allocator of a Snug process, and what it says about itself.
//!
//! [`Allocator`] is mimalloc behind Rust's `GlobalAlloc`, with a running total
//! of what is allocated: `used_memory` is that total, not an estimate. The
//! total is exact because the size class of a request is a pure function of
//! its size ([`usable`]), so the same figure is added at allocation and taken
//! away at release, without asking the heap.
//!
//! Size classes, as built here (`.cargo/config.toml` asks for 8-byte
//! alignment): steps of 8 bytes up to 64, then four per doubling.
//!
//! ```text
//!  8 16 24 32 40 48 56 64 | 80 96 112 128 | 160 192 224 256 | 320 ...
//! ```
//!
//! What is packed has a heap of its own (`alloc_packed`).
//!
//! Cost: two additions to a counter that only this thread writes, under 1 ns.
#![allow(unsafe_code)]

use crate::sharded::Sharded;
use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libmimalloc_sys::{mi_heap_area_t, mi_heap_t};

/// mimalloc, counting. Declare it in the binary:
///
/// ```ignore
/// #[global_allocator]
/// static ALLOCATOR: snug_store::memory::Allocator = snug_store::memory::Allocator;
/// ```
#[derive(Debug)]
pub struct Allocator;

static USED: Sharded<1> = Sharded::new();

/// Bytes allocated in this process through [`Allocator`], in size classes;
/// 0 when another allocator is installed.
pub fn used() -> usize {
    USED.sum(0).max(0) as usize
}

/// The heap of what is packed; null before [`tune`].
static PACKED: AtomicPtr<mi_heap_t> = AtomicPtr::new(null_mut());

/// Has freed memory go back to the operating system soon, rather than after a
/// second of allocating: what a sealed block or a grown table leaves behind
/// would else be resident. And makes the heap of what is packed. To be called once,
/// at the start.
pub fn tune() {
    const PURGE_DELAY: i32 = 15; // mi_option_purge_delay, in milliseconds
    // SAFETY: sets a number.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, 10) }
    let any = Box::new(1u8);
    // SAFETY: looks at an address, whosever it is; and no preconditions.
    unsafe {
        // Another allocator could not free what comes from this one's heaps.
        if libmimalloc_sys::mi_is_in_heap_region(std::ptr::from_ref(&*any).cast()) {
            PACKED.store(libmimalloc_sys::mi_heap_new(), Ordering::Release);
        }
    }
}

/// Allocates for what is packed, in pages that have nothing else: as values are packed
/// their own pages come free, and could not be given back if some of their blocks had
/// been taken again. A million documents, packed: 1.2 bytes resident for each in use,
/// with one heap for all 1.6. Null if there is no memory. Freed as everything else is.
///
/// # Safety
/// The layout is of a size above 0, and an alignment of at most 8.
pub(crate) unsafe fn alloc_packed(layout: Layout) -> *mut u8 {
    let heap = PACKED.load(Ordering::Acquire);
    if heap.is_null() {
        // SAFETY: as here.
        return unsafe { std::alloc::alloc(layout) };
    }
    USED.add(0, counted(layout) as i64);
    // SAFETY: a heap that lasts as long as the process.
    unsafe { libmimalloc_sys::mi_heap_malloc(heap, layout.size()).cast() }
}

/// Reallocates a block of [`alloc_packed`]: it stays in that heap.
///
/// # Safety
/// As of `realloc`.
pub(crate) unsafe fn realloc_packed(block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
    let heap = PACKED.load(Ordering::Acquire);
    if heap.is_null() {
        // SAFETY: as here.
        return unsafe { std::alloc::realloc(block, layout, size) };
    }
    // SAFETY: the caller guarantees that `size` is valid for this alignment.
    let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
    USED.add(0, (counted(new) - counted(layout)) as i64);
    // SAFETY: the block came from mimalloc, and the heap lasts as long as the process.
    unsafe { libmimalloc_sys::mi_heap_realloc(heap, block.cast(), size).cast() }
}

/// A page of what is packed is sparse when more than one in so many of its blocks is free.
/// Of such pages, and of no others, the heap hands out blocks again: what leaves a sparse
/// page finds room in another.
const SPARSE_ONE_IN: usize = 8;

// Parts of mimalloc that its header does not tell of. What it has for this
// (`mi_unsafe_heap_page_is_under_utilized`) answers for no page that was once full.
unsafe extern "C" {
    #[link_name = "_mi_safe_ptr_page"]
    fn mi_safe_ptr_page(block: *const c_void) -> *mut c_void;
    #[link_name = "_mi_heap_area_init"]
    fn mi_heap_area_init(area: *mut mi_heap_area_t, page: *mut c_void);
    fn mi_heap_of(block: *const c_void) -> *mut mi_heap_t;
}

/// Whether a block of [`alloc_packed`] is to move because its page has many holes: if all
/// of them move, the page comes free. Not if a new block would come from the same page: so
/// values end up in the pages that are being filled, and then stay, and what cannot be made
/// better is not moved again and again. Some nanoseconds and a cache miss for a page that
/// is well used, an allocation for others.
///
/// # Safety
/// `block` is in use, and nobody frees it meanwhile.
pub(crate) unsafe fn is_to_move(block: *mut u8) -> bool {
    let heap = PACKED.load(Ordering::Acquire);
    if heap.is_null() {
        return false;
    }
    let (block, mut area) = (block.cast_const().cast(), MaybeUninit::uninit());
    // SAFETY: the page of a block in use stays, and all of the area is written. What is
    // read are counts that other threads may change meanwhile. Any answer will do: the
    // block moves or stays. What is allocated is freed.
    unsafe {
        let page = mi_safe_ptr_page(block);
        if page.is_null() || mi_heap_of(block) != heap {
            return false;
        }
        mi_heap_area_init(area.as_mut_ptr(), page);
        let area = area.assume_init();
        let free = area.committed.saturating_sub(area.used * area.full_block_size);
        if free * SPARSE_ONE_IN <= area.committed {
            return false;
        }
        let next = libmimalloc_sys::mi_heap_malloc(heap, area.full_block_size);
        let moves = !next.is_null() && mi_safe_ptr_page(next) != page;
        libmimalloc_sys::mi_free(next);
        moves
    }
}

/// Counts what other threads have freed of what this one has packed, without which its
/// pages do not look sparse, and gives back those that came free. O(pages of this thread
/// that are not full).
pub fn settle_packed() {
    let packed = PACKED.load(Ordering::Acquire);
    if !packed.is_null() {
        // SAFETY: a heap that lasts as long as the process.
        unsafe { libmimalloc_sys::mi_heap_collect(packed, false) }
    }
}

/// Gives freed memory back to the operating system where that is possible:
/// all that this thread has freed.
pub fn purge() {
    let packed = PACKED.load(Ordering::Acquire);
    // SAFETY: no preconditions; a heap that lasts as long as the process.
    unsafe {
        libmimalloc_sys::mi_collect(true);
        if !packed.is_null() {
            libmimalloc_sys::mi_heap_collect(packed, true);
        }
    }
}

/// A thread's reason to give memory back: what was in use at most since it last did so. What
/// it has allocated and others have freed stays its own until it allocates again or asks,
/// so a thread that may be idle for long asks now and then.
#[derive(Debug, Default)]
pub struct HighWater(usize);

impl HighWater {
    /// Gives memory back to the operating system when a good part of what was in use has
    /// been freed.
    pub fn give_back(&mut self) {
        let used = used();
        if used + used / 16 + (1 << 20) < self.0 {
            purge();
            self.0 = used;
        }
        self.0 = self.0.max(used);
    }
}

/// Asks the processor to bring the cache line at `at` closer; a hint, and
/// nothing where the processor knows no such thing. Any address will do.
#[inline]
pub(crate) fn prefetch<T>(at: *const T) {
    // SAFETY: a prefetch reads nothing and faults on no address.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(at.cast(), _MM_HINT_T0);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// The largest request that is served from size classes by the formula below;
/// above it the heap rounds to pages and is asked.
const CLASSED_MAX: usize = 64 * 1024;

/// The bytes that an allocation of `size` really takes.
#[inline]
pub fn usable(size: usize) -> usize {
    if size > CLASSED_MAX {
        if cfg!(miri) {
            return size;
        }
        // SAFETY: no preconditions.
        return unsafe { libmimalloc_sys::mi_good_size(size) };
    }
    let words = size.div_ceil(8);
    if words <= 8 {
        return words.max(1) * 8;
    }
    let below = words - 1;
    let step = 1 << (below.ilog2() - 2);
    ((below | (step - 1)) + 1) * 8
}

/// What an allocation of this layout takes. Alignments above 8 may be served
/// from the next class up; they are rare and counted at their rounded size.
#[inline]
fn counted(layout: Layout) -> isize {
    usable(layout.size().next_multiple_of(layout.align())) as isize
}

// SAFETY: every method hands the request to mimalloc, which fulfils the
// contract of `GlobalAlloc`; blocks of `mi_malloc` are 8-byte aligned.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        USED.add(0, counted(layout) as i64);
        // SAFETY: the size is not 0, by the caller's contract.
        unsafe {
            if layout.align() <= 8 {
                libmimalloc_sys::mi_malloc(layout.size()).cast()
            } else {
                libmimalloc_sys::mi_malloc_aligned(layout.size(), layout.align()).cast()
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        USED.add(0, counted(layout) as i64);
        // SAFETY: as in `alloc`.
        unsafe {
            if layout.align() <= 8 {
                libmimalloc_sys::mi_zalloc(layout.size()).cast()
            } else {
                libmimalloc_sys::mi_zalloc_aligned(layout.size(), layout.align()).cast()
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        USED.add(0, -(counted(layout) as i64));
        // SAFETY: `ptr` came from this allocator.
        unsafe { libmimalloc_sys::mi_free(ptr.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that `new_size` is valid for this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        USED.add(0, (counted(new) - counted(layout)) as i64);
        // SAFETY: `ptr` came from this allocator.
        unsafe {
            if layout.align() <= 8 {
                libmimalloc_sys::mi_realloc(ptr.cast(), new_size).cast()
            } else {
                libmimalloc_sys::mi_realloc_aligned(ptr.cast(), new_size, layout.align()).cast()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also fails when mimalloc was built with 16-byte steps, in which every
    /// small entry would cost a third more than this crate reports.
    #[test]
    #[cfg_attr(miri, ignore = "calls into C")]
    fn usable_is_what_the_heap_gives() {
        for size in (1..4096).chain((4096..CLASSED_MAX).step_by(97)).chain([CLASSED_MAX, 131_072]) {
            // SAFETY: allocates and frees one block.
            let real = unsafe {
                let block = libmimalloc_sys::mi_malloc(size);
                let real = libmimalloc_sys::mi_usable_size(block);
                libmimalloc_sys::mi_free(block);
                real
            };
            assert_eq!(usable(size), real, "an allocation of {size} bytes");
        }
    }
}
