//! Turns SIGBUS on a mapped file whose medium failed into an error.
//!
//! Access to a page of a mapping that cannot be read, or has no block, raises a signal that ends the process: without
//! a message, and with the files left behind. [`watch`] runs a copy between memory and a mapping; if the copy hits
//! such a page, the handler maps an empty page in its place, the copy continues, and `watch` reports the fault.
//! Faults anywhere else end the process as before.
//!
//! The handler is installed once, with the first mapping, and is never removed.
//!
//! JUSTIFICATION for `unsafe`: signal handlers and mappings at fixed addresses have no safe form; without them a
//! removed device ends the process.

use std::cell::Cell;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering, compiler_fence};

/// The mapped range that the thread is copying from or to.
#[derive(Clone, Copy)]
struct Watched {
    start: usize,
    end: usize,
    is_hit: bool,
}

thread_local! {
    // Initialized at compile time and without a destructor, so that the handler may access it at any moment.
    static WATCHED: Cell<Watched> = const {
        Cell::new(Watched { start: 0, end: 0, is_hit: false })
    };
}

/// The previous SIGBUS action; allocated once and never freed, because the handler may read it at any time.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// Installs the handler. Returns false if the system refuses: a fault then ends the process.
pub fn install() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        // SAFETY: an all-zero action is the default action without flags, and is valid to pass.
        let mut before: Box<libc::sigaction> = Box::new(unsafe { std::mem::zeroed() });
        // SAFETY: querying the action changes nothing, and `before` is writable.
        if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut *before) } != 0 {
            return false;
        }
        BEFORE.store(Box::into_raw(before), Ordering::Release);
        // SAFETY: as above.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_fault;
        action.sa_sigaction = handler_address(handler);
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler has the signature that SA_SIGINFO requires and calls only async-signal-safe functions.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) == 0 }
    })
}

/// Runs `copy`, which touches `length` bytes of a mapping at `start`. Returns true if a page of them faulted.
#[inline]
pub fn watch(start: *const u8, length: usize, copy: impl FnOnce()) -> bool {
    let start = start.addr();
    let end = start.saturating_add(length);
    WATCHED.with(|watched| {
        watched.set(Watched {
            start,
            end,
            is_hit: false,
        });
        // The handler runs in this thread: its accesses must stay on the correct side of the copy.
        compiler_fence(Ordering::SeqCst);
        copy();
        compiler_fence(Ordering::SeqCst);
        let is_hit = watched.get().is_hit;
        watched.set(Watched {
            start: 0,
            end: 0,
            is_hit: false,
        });
        is_hit
    })
}

extern "C" fn on_bus_fault(
    _signal: libc::c_int,
    information: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: with SA_SIGINFO, the kernel passes a valid description of the fault.
    let address = unsafe { (*information).si_addr() }.addr();
    let page = rustix::param::page_size();
    let first = address - address % page;
    let is_ours = WATCHED.with(|watched| {
        let mut now = watched.get();
        let is_ours = first < now.end && first.saturating_add(page) > now.start;
        if is_ours {
            now.is_hit = true;
            watched.set(now);
        }
        is_ours
    });
    if is_ours && put_empty_page(first, page) {
        return;
    }
    let before = BEFORE.load(Ordering::Acquire);
    // SAFETY: the pointer was stored before the handler was installed and is never freed. The faulting instruction is
    // restarted and meets the previous action.
    unsafe { libc::sigaction(libc::SIGBUS, before, ptr::null_mut()) };
}

/// Replaces one page of the mapping that is being copied with an empty one.
fn put_empty_page(first: usize, page: usize) -> bool {
    let place = ptr::with_exposed_provenance_mut(first);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the page belongs to the mapping that this thread is copying from or to, and only the copy refers to it;
    // unmapping covers the whole range. mmap is a plain system call, allowed in a handler.
    let answer = unsafe { libc::mmap(place, page, protection, flags, -1, 0) };
    answer != libc::MAP_FAILED
}

/// Converts a handler to the integer that the C interface expects.
#[expect(
    clippy::as_conversions,
    reason = "a function has no other way to become the number that sigaction wants"
)]
fn handler_address(handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void)) -> usize {
    handler as usize
}

#[cfg(test)]
mod tests {
    use crate::mapping::Mapping;

    #[test]
    fn a_page_that_the_file_does_not_have_is_an_error_and_not_the_end() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(16_384).unwrap();
        let mapping = Mapping::shared(&file, 0, 16_384, true).unwrap();
        let mut record = [1; 4096];
        assert!(mapping.read(8_192, &mut record));
        file.set_len(4096).unwrap();
        assert!(mapping.read(0, &mut record), "the first page is still there");
        assert!(!mapping.read(8_192, &mut record));
        assert!(!mapping.write(12_288, &record));
        assert!(!mapping.read(4_095, &mut record), "the second page is gone");
    }
}
