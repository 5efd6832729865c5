//! A host whose call fails part of the way.

use std::os::fd::AsFd;

use passfs::PassFs;
use rustix::mm::{MapFlags, ProtFlags};
use vfs::{FileSystem, FsError, Ino, OpenFlags, Privileges};

use crate::source::PLAIN;

const PAGE: usize = 4096;

/// `/proc/self/mem` can be made to fail at a chosen offset: a mapping behind the end of its file has no pages to read.
#[test]
fn a_read_error_part_of_the_way_is_an_error_and_not_the_end_of_the_file() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing, and nothing here dereferences it.
    let map = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            2 * PAGE,
            ProtFlags::READ,
            MapFlags::SHARED,
            file.as_fd(),
            0,
        )
    }
    .unwrap();
    let start = u64::try_from(map.addr()).unwrap();
    let fs = PassFs::open("/proc/self".as_ref(), PLAIN).unwrap();
    let entry = fs.lookup(Ino::ROOT, b"mem").unwrap();
    let opened = fs
        .open(entry.ino, OpenFlags(libc::O_RDONLY), Privileges::Keep)
        .unwrap();
    let mut out = [0; 2 * PAGE];
    let mut read = |bytes| fs.read(entry.ino, opened.handle, start, &mut out[..bytes]);
    assert_eq!(read(PAGE), Ok(PAGE), "the host can read the first page");
    assert_eq!(read(PAGE + 1), Err(FsError::Io));
    assert_eq!(read(2 * PAGE), Err(FsError::Io));
    assert_eq!(fs.counters().read_bytes, 4096, "a failed read counts no bytes");
    // SAFETY: the mapping was made above with this length, and nothing refers to it.
    unsafe { rustix::mm::munmap(map, 2 * PAGE) }.unwrap();
}
