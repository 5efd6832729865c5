//! How much memory a piece of a test takes at its peak.
//!
//! A test program makes [`CountingAllocator`] its global allocator and asks [`taken_by`]. Each thread counts for itself, so tests
//! that run side by side do not disturb each other; what another thread allocates is not seen.
//!
//! JUSTIFICATION for `unsafe`: `GlobalAlloc` is an unsafe trait, and every number here comes from standing in for the system's
//! allocator, to which each call is handed on unchanged.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with a count of what it gave.
#[derive(Debug)]
pub struct CountingAllocator;

// Neither is made on the heap nor has anything to drop: an allocator may use them.
thread_local! {
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<isize> = const { Cell::new(0) };
}

/// Bytes that a piece of a program took beyond what there was before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The most at a time.
    pub peak_bytes: u64,
    /// What is left at its end: its result. 0 when it gave more back than it took.
    pub kept_bytes: u64,
}

/// What `action` returns, and what this thread allocated meanwhile.
///
/// # Panics
/// When the test program does not count: its global allocator is another.
pub fn taken_by<R>(action: impl FnOnce() -> R) -> (R, Taken) {
    let before = LIVE_BYTES.get();
    PEAK_BYTES.set(before);
    drop(std::hint::black_box(Box::new([0_u8; 64])));
    assert_eq!(
        PEAK_BYTES.get(),
        before + 64,
        "testkit::heap::CountingAllocator is not the global allocator of this test program"
    );
    PEAK_BYTES.set(before);
    let result = action();
    let beyond = |bytes: isize| u64::try_from(bytes - before).unwrap_or(0);
    let taken = Taken {
        peak_bytes: beyond(PEAK_BYTES.get()),
        kept_bytes: beyond(LIVE_BYTES.get()),
    };
    (result, taken)
}

fn count(bytes: isize) {
    let live = LIVE_BYTES.get() + bytes;
    LIVE_BYTES.set(live);
    PEAK_BYTES.set(PEAK_BYTES.get().max(live));
}

// SAFETY: every call goes to the system's allocator as it came, and its answer back as it is; counting allocates nothing and does
// not unwind.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of this very call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    /// While memory moves, old and new are there: that is what counts.
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size.cast_signed());
        count(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}
