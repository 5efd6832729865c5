//! Page-aligned memory for requests, taken from the kernel and touched only as far as requests reach.

use std::io;
use std::ptr::NonNull;

/// What a region keeps of its memory while requests are small.
const KEPT_BYTES: usize = 64 << 10;
/// Small requests in a row after which the rest is given back: a stream that is mixed with a few of them keeps it.
const SMALL_REQUESTS: u32 = 256;

/// Anonymous memory that starts at a page.
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
    /// Requests in a row that stayed within [`KEPT_BYTES`], while the region has more; `None` when it has not.
    small_run: Option<u32>,
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

    /// Notes that a request, which has been answered, used the region up to here. A region that had large ones and has only
    /// small ones for a while gives back what they do not need: a mebibyte for each worker, of the six that a daemon may
    /// take.
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

    /// Gives the memory behind the first `kept` bytes (a multiple of the page size) back to the kernel; it reads as
    /// zeros when it is used again. Failing costs memory, nothing else.
    fn give_back(&mut self, kept: usize) {
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
