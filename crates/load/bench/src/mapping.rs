//! A shared memory mapping of part of a file.
//!
//! Data is copied in and out by address, never lent as a slice: other processes and the kernel may change a shared
//! mapping at any time, which a reference forbids. A page that cannot be accessed, because the medium failed or the
//! file shrank, makes the copy report failure (see [`crate::bus_fault`]) instead of ending the process.

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{self, Advice, MapFlags, MsyncFlags, ProtFlags};

use crate::bus_fault;
use crate::spec::AccessAdvice;

/// A shared mapping; unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    address: NonNull<u8>,
    length: usize,
}

// SAFETY: this value owns the mapping, and its address is valid in every thread of the process.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `length` bytes of `file` from `offset`, which must be a multiple of the page size.
    pub fn shared(file: &File, offset: u64, length: usize, writable: bool) -> io::Result<Self> {
        let protection = if writable {
            ProtFlags::READ | ProtFlags::WRITE
        } else {
            ProtFlags::READ
        };
        // If the handler cannot be installed, a fault ends the process, as it normally does.
        let _ = bus_fault::install();
        Self::new(file, offset, length, protection, MapFlags::SHARED)
    }

    fn new(file: &File, offset: u64, length: usize, prot: ProtFlags, flags: MapFlags) -> io::Result<Self> {
        // SAFETY: a null hint lets the kernel choose a free range, so no memory in use is replaced.
        let address = unsafe { mm::mmap(ptr::null_mut(), length, prot, flags, file, offset)? };
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { address, length })
    }

    /// Copies `record` to `position` of the mapping, which must be writable. Returns false if a page of it faulted.
    ///
    /// # Panics
    /// If the record would leave the mapping.
    pub fn write(&self, position: usize, record: &[u8]) -> bool {
        let place = self.place(position, record.len());
        // SAFETY: the record fits into the mapping at `place`; `record` is other memory.
        let copy = || unsafe { ptr::copy_nonoverlapping(record.as_ptr(), place, record.len()) };
        !bus_fault::watch(place, record.len(), copy)
    }

    /// Copies from `position` of the mapping. Returns false if a page of it faulted.
    ///
    /// # Panics
    /// If the record would leave the mapping.
    pub fn read(&self, position: usize, record: &mut [u8]) -> bool {
        let place = self.place(position, record.len());
        let (start, length) = (record.as_mut_ptr(), record.len());
        // SAFETY: the record's length from `place` lies inside the mapping; `record` is other memory.
        let copy = || unsafe { ptr::copy_nonoverlapping(place.cast_const(), start, length) };
        !bus_fault::watch(place, length, copy)
    }

    /// Writes back the pages that hold `length` bytes from `position`, and waits unless `flags` is `MS_ASYNC`.
    ///
    /// # Panics
    /// If the range would leave the mapping.
    pub fn sync(&self, position: usize, length: usize, flags: MsyncFlags) -> rustix::io::Result<()> {
        self.check(position, length);
        let first = position - position % rustix::param::page_size();
        // SAFETY: the pages lie inside the mapping; syncing changes no memory.
        unsafe {
            let start = self.address.as_ptr().add(first).cast();
            mm::msync(start, position + length - first, flags)
        }
    }

    /// Length of the mapping in bytes.
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Writes back the whole mapping and waits.
    pub fn sync_all(&self) -> rustix::io::Result<()> {
        self.sync(0, self.length, MsyncFlags::SYNC)
    }

    /// Advises the kernel of the access pattern.
    pub fn advise(&self, advice: AccessAdvice) -> rustix::io::Result<()> {
        match advice {
            AccessAdvice::None => Ok(()),
            AccessAdvice::Sequential => self.tell(Advice::Sequential),
            AccessAdvice::Random => self.tell(Advice::Random),
        }
    }

    /// Faults in every page, for writing if `writable` is set.
    pub fn populate(&self, writable: bool) -> rustix::io::Result<()> {
        self.tell(if writable {
            Advice::LinuxPopulateWrite
        } else {
            Advice::LinuxPopulateRead
        })
    }

    fn tell(&self, advice: Advice) -> rustix::io::Result<()> {
        // SAFETY: the range belongs to this mapping, and none of these kinds of advice changes its content.
        unsafe { mm::madvise(self.address.as_ptr().cast(), self.length, advice) }
    }

    fn place(&self, position: usize, length: usize) -> *mut u8 {
        self.check(position, length);
        // SAFETY: the position was checked to lie inside the mapping.
        unsafe { self.address.as_ptr().add(position) }
    }

    fn check(&self, position: usize, length: usize) {
        let end = position.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.length),
            "{length} bytes at {position} of a mapping of {} bytes",
            self.length
        );
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value mapped the range, and no references to it remain.
        let _ = unsafe { mm::munmap(self.address.as_ptr().cast(), self.length) };
    }
}

/// Bytes in the page cache, in whole pages, of the first `length` bytes of `file`.
pub fn resident_bytes(file: &File, length: u64) -> io::Result<u64> {
    let Ok(length) = usize::try_from(length) else {
        return Err(io::ErrorKind::FileTooLarge.into());
    };
    if length == 0 {
        return Ok(0);
    }
    let mapping = Mapping::new(file, 0, length, ProtFlags::READ, MapFlags::PRIVATE)?;
    let page = rustix::param::page_size();
    let mut states = vec![0_u8; length.div_ceil(page)];
    // SAFETY: the range is mapped, and `states` has one byte for each of its pages.
    let answer = unsafe { libc::mincore(mapping.address.as_ptr().cast(), length, states.as_mut_ptr()) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    let pages = states.iter().filter(|state| *state & 1 == 1).count();
    Ok(u64::try_from(pages.saturating_mul(page)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    fn file_of(length: u64) -> File {
        let path = tempfile::NamedTempFile::new().unwrap();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path.path())
            .unwrap();
        file.set_len(length).unwrap();
        file
    }

    #[test]
    fn what_is_written_to_the_mapping_is_in_the_file() {
        let file = file_of(10_000);
        let mapping = Mapping::shared(&file, 0, 10_000, true).unwrap();
        assert!(mapping.write(5_000, b"tide"));
        mapping.sync(5_000, 4, MsyncFlags::SYNC).unwrap();
        mapping.sync_all().unwrap();
        let mut found = [0; 4];
        file.read_exact_at(&mut found, 5_000).unwrap();
        assert_eq!(&found, b"tide");
        assert!(mapping.read(4_999, &mut found));
        assert_eq!(&found, b"\0tid");
    }

    #[test]
    fn a_file_just_written_is_resident() {
        let file = file_of(0);
        file.write_all_at(&[1; 8192], 0).unwrap();
        let page = u64::try_from(rustix::param::page_size()).unwrap();
        assert_eq!(
            resident_bytes(&file, 8192).unwrap(),
            8192_u64.next_multiple_of(page)
        );
        assert_eq!(resident_bytes(&file, 0).unwrap(), 0);
    }
}
