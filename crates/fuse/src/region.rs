//! Page-aligned memory for requests, taken from the kernel and touched only as far as requests reach.

use std::io;
use std::ptr::NonNull;

/// Anonymous memory that starts at a page.
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a Region owns its memory alone, as a Vec<u8> does.
unsafe impl Send for Region {}

impl Region {
    /// Maps `bytes` of zeros.
    pub fn new(bytes: usize) -> io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        // SAFETY: a new private mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { start, bytes })
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is `bytes` long, readable, writable, initialised with zeros, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Gives the memory behind the first `kept` bytes (a multiple of the page size) back to the kernel; it reads as
    /// zeros when it is used again. Failing costs memory, nothing else.
    pub fn give_back(&mut self, kept: usize) {
        let rest = &mut self.as_mut_slice()[kept..];
        // SAFETY: the range is a part of the private anonymous mapping that `self` owns and that is borrowed here alone;
        // pages that are dropped read as zeros, which are valid bytes.
        let _ = unsafe {
            rustix::mm::madvise(
                rest.as_mut_ptr().cast(),
                rest.len(),
                rustix::mm::Advice::LinuxDontNeed,
            )
        };
    }

    /// Address of the first byte, for the kernel.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and no borrow outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_reads_as_zeros_and_the_rest_stays() {
        let mut region = Region::new(1 << 20).unwrap();
        region.as_mut_slice().fill(7);
        region.give_back(64 << 10);
        let (kept, rest) = region.as_mut_slice().split_at(64 << 10);
        assert!(kept.iter().all(|byte| *byte == 7));
        assert!(rest.iter().all(|byte| *byte == 0));
    }
}
