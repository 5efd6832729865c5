//! Memory of one entry: an anonymous, page-aligned mapping that costs nothing until it is written.
//!
//! JUSTIFICATION of `unsafe`: the buffer must leave the daemon's resident set when it is idle, which takes `madvise` on
//! its own pages; the allocator keeps freed blocks of this size on its lists (glibc raises its mmap threshold after the
//! first one). Three calls, all in this file.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The data region of one entry. The value owns the memory.
#[derive(Debug)]
pub struct Slot {
    /// Start of a private mapping of `bytes` bytes that lives as long as this value.
    start: NonNull<u8>,
    bytes: usize,
    /// Written to since it was created or last freed.
    touched: bool,
}

// SAFETY: the mapping is private to this value, which is neither `Clone` nor `Copy`; any thread may own it.
unsafe impl Send for Slot {}
// SAFETY: a shared reference only reads memory that changes only through `&mut`.
unsafe impl Sync for Slot {}

impl Slot {
    /// Maps `bytes` bytes (not zero), all zero.
    pub fn new(bytes: usize) -> io::Result<Self> {
        // SAFETY: a fresh private mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            start,
            bytes,
            touched: false,
        })
    }

    /// The memory, for reading.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `start` maps `bytes` initialised (zero-filled) bytes for the life of `self`; writes need
        // `&mut self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// The memory, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.touched = true;
        // SAFETY: as in `bytes`, and `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// True if the host may have allocated pages for it.
    pub const fn is_touched(&self) -> bool {
        self.touched
    }

    /// Returns the pages to the host; the content reads as zeros afterwards.
    pub fn give_back(&mut self) {
        if !self.touched {
            return;
        }
        // SAFETY: the range is this value's private mapping, and `&mut self` excludes other references. If the host
        // refuses, the pages merely stay.
        let _ = unsafe { madvise(self.start.as_ptr().cast(), self.bytes, Advice::LinuxDontNeed) };
        self.touched = false;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this address and length, and no reference outlives `self`. A
        // failure would leave address space mapped, which is harmless.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_keeps_what_is_written_until_it_is_given_back() {
        let mut slot = Slot::new(8192).unwrap();
        slot.bytes_mut()[8191] = 7;
        assert_eq!(slot.bytes()[8191], 7);
        slot.give_back();
        assert!(slot.bytes().iter().all(|byte| *byte == 0));
        slot.bytes_mut()[0] = 1;
        assert_eq!(slot.bytes()[0], 1);
    }
}
