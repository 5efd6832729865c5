//! Measures the peak heap memory of a part of a test.
//!
//! A test program makes [`CountingAllocator`] its global allocator and calls [`taken_by`]. Each thread counts for
//! itself, so that tests that run in parallel do not disturb each other; allocations of other threads are not counted.
//! [`taken_by_process`] counts those of all threads, for a program with a single test.
//!
//! JUSTIFICATION for `unsafe`: `GlobalAlloc` is an unsafe trait, and every number here comes from standing in for the
//! system's allocator, to which each call is forwarded unchanged.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};

/// The system's allocator, with a count of allocated bytes.
#[derive(Debug)]
pub struct CountingAllocator;

// Neither is on the heap or needs to be dropped, so an allocator may use them.
thread_local! {
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<isize> = const { Cell::new(0) };
}

static LIVE_BYTES_OF_ALL: AtomicIsize = AtomicIsize::new(0);
static PEAK_BYTES_OF_ALL: AtomicIsize = AtomicIsize::new(0);

/// Heap bytes that a part of a program allocated beyond those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Peak.
    pub peak_bytes: u64,
    /// Bytes still allocated at its end, which is its result. 0 if it freed more than it allocated.
    pub kept_bytes: u64,
}

/// Runs `action`; returns its result, and the bytes that this thread allocated meanwhile.
///
/// # Panics
/// If the test program does not count because its global allocator is another one.
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

/// As [`taken_by`], with the bytes of all threads of the program.
///
/// # Panics
/// As [`taken_by`].
pub fn taken_by_process<R>(action: impl FnOnce() -> R) -> (R, Taken) {
    let before = LIVE_BYTES_OF_ALL.load(Ordering::Relaxed);
    PEAK_BYTES_OF_ALL.store(before, Ordering::Relaxed);
    let (result, _) = taken_by(action);
    let beyond = |bytes: &AtomicIsize| u64::try_from(bytes.load(Ordering::Relaxed) - before).unwrap_or(0);
    let taken = Taken {
        peak_bytes: beyond(&PEAK_BYTES_OF_ALL),
        kept_bytes: beyond(&LIVE_BYTES_OF_ALL),
    };
    (result, taken)
}

fn count(bytes: isize) {
    let of_all = LIVE_BYTES_OF_ALL.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK_BYTES_OF_ALL.fetch_max(of_all, Ordering::Relaxed);
    let live = LIVE_BYTES.get() + bytes;
    LIVE_BYTES.set(live);
    PEAK_BYTES.set(PEAK_BYTES.get().max(live));
}

// SAFETY: every call is forwarded unchanged to the system's allocator, and its result is returned unchanged; counting
// allocates nothing and does not unwind.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller upholds the contract of this very call.
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

    /// While memory is moved, both blocks exist: count both.
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size.cast_signed());
        count(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}
