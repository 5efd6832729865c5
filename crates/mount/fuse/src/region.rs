//! Page-aligned memory for requests, allocated from the kernel and touched only as far as requests reach.

use std::io;
use std::ptr::NonNull;

/// Memory that a region keeps while requests are small.
const KEPT_BYTES: usize = 64 << 10;
/// Number of consecutive small requests after which the rest is freed: a stream with a few small requests in between
/// keeps it.
const SMALL_REQUESTS: u32 = 256;

/// Anonymous memory that starts on a page boundary.
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
    /// Number of consecutive requests that stayed within [`KEPT_BYTES`] while the region holds more; `None` if it does
    /// not.
    small_run: Option<u32>,
}

// SAFETY: a Region has exclusive ownership of its memory, as a Vec<u8> does.
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
        Ok(Self {
            start,
            bytes,
            small_run: None,
        })
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is `bytes` long, readable, writable, initialised with zeros, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Notes that an answered request used the region up to `reached`. After a series of small requests, a region that
    /// has served large ones frees the memory beyond [`KEPT_BYTES`]: up to 1 MiB per worker of the daemon's budget of 6
    /// MiB.
    pub fn note_reach(&mut self, reached: usize) {
        if reached > KEPT_BYTES {
            self.small_run = Some(0);
        } else if let Some(run) = &mut self.small_run {
            *run += 1;
            if *run == SMALL_REQUESTS {
                self.give_back(KEPT_BYTES);
                self.small_run = None;
            }
        }
    }

    /// Returns the memory behind the first `kept` bytes (a multiple of the page size) to the kernel; it reads as zeros
    /// when it is used again. A failure only costs memory.
    fn give_back(&mut self, kept: usize) {
        let rest = &mut self.as_mut_slice()[kept..];
        // SAFETY: the range is part of the private anonymous mapping that `self` owns and that is borrowed exclusively
        // here; dropped pages read as zeros, which are valid bytes.
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

    #[test]
    fn memory_of_large_requests_is_given_back_after_many_small_ones() {
        let mut region = Region::new(1 << 20).unwrap();
        let end = (1 << 20) - 1;
        let run = |region: &mut Region, small: u32| {
            region.as_mut_slice()[end] = 7;
            region.note_reach(end);
            (0..small).for_each(|_| region.note_reach(4096));
            region.as_mut_slice()[end]
        };
        assert_eq!(run(&mut region, SMALL_REQUESTS - 1), 7, "a stream goes on");
        assert_eq!(run(&mut region, SMALL_REQUESTS), 0);
    }
}
