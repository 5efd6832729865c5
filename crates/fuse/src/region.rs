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
