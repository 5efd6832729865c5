//! A ceiling on the memory of the whole process.
//!
//! The query engine counts its large buffers against `--memory`, but not the values that functions make: one call of
//! `repeat`, or forty times `s || s`, asks for more than any machine has. The allocator counts every byte, and ends the
//! process with an error message where the system would abort it or end others for lack of memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Write, stderr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Memory beside the counted one: traces being opened, plans, batches in progress, the page of a report.
const BESIDE: usize = 512 << 20;

/// The system's allocator, with a count.
pub struct Ceiling {
    used: AtomicUsize,
    most: AtomicUsize,
    ending: AtomicBool,
}

impl Ceiling {
    /// An allocator without a ceiling.
    pub const fn new() -> Self {
        Self {
            used: AtomicUsize::new(0),
            most: AtomicUsize::new(usize::MAX),
            ending: AtomicBool::new(false),
        }
    }

    /// Sets the ceiling for queries with this memory: twice as much, and 512 MiB.
    pub fn set_for(&self, memory_bytes: usize) {
        let most = memory_bytes.saturating_mul(2).saturating_add(BESIDE);
        self.most.store(most, Ordering::Relaxed);
    }

    fn grow(&self, bytes: usize) {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.most.load(Ordering::Relaxed) {
            self.end();
        }
    }

    fn shrink(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Ends the process. Allocations for its message are let through.
    #[cold]
    fn end(&self) {
        if self.ending.swap(true, Ordering::Relaxed) {
            return;
        }
        let most = self.most.load(Ordering::Relaxed) >> 20;
        let _ = writeln!(
            stderr(),
            "tidegate: the query needs more than {most} MiB (twice its --memory, and 512 MiB); expected values that fit: \
             bound the results of functions such as repeat, lpad or ||, or give it more (--memory)"
        );
        crate::scratch::remove();
        std::process::exit(2);
    }
}

// SAFETY: every call is passed on to the system's allocator unchanged; the counts have no part in it.
unsafe impl GlobalAlloc for Ceiling {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.grow(layout.size());
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.grow(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        self.shrink(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if bytes > layout.size() {
            self.grow(bytes - layout.size());
        } else {
            self.shrink(layout.size() - bytes);
        }
        // SAFETY: as above.
        unsafe { System.realloc(place, layout, bytes) }
    }
}
