//! A private file descriptor table for one thread.
//!
//! The threads of a process share one table, so the kernel takes a reference to the file in each call, lest another
//! thread close it meanwhile. For a table with a single user the kernel skips the reference count: some 3 % of a
//! cached read of 4 KiB, which would be the harness's cost and not the file system's.
//!
//! The new table holds only the standard descriptors. It therefore keeps no other file of the process open and
//! touches none of the process's locks: POSIX locks belong to a table, which is why SQLite workloads keep the shared
//! one. A signal handler that writes to a descriptor would find another file under its number, or none: the programs
//! of this project only set flags.
//!
//! JUSTIFICATION for `unsafe`: descriptor numbers change their meaning, which no type can express.

use std::io;

use rustix::io::Errno;

/// The first descriptor after standard input, output and error.
const FIRST: libc::c_uint = 3;

/// Gives the calling thread its own table, with the standard descriptors.
///
/// # Errors
/// On a kernel before 5.9, and if the call is forbidden: the table then stays as it was.
///
/// # Safety
/// From here on the thread must not use or drop a descriptor opened before, and none that it opens may leave it.
pub unsafe fn take_own_table() -> Result<(), Errno> {
    // SAFETY: the call takes no pointers. It creates the new table before it closes anything, so descriptors open in
    // other threads stay open; this thread's are covered by the caller's promise.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_UNSHARE,
        )
    };
    if answer == 0 {
        return Ok(());
    }
    let code = io::Error::last_os_error().raw_os_error();
    Err(Errno::from_raw_os_error(code.unwrap_or(libc::EIO)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::thread;

    #[test]
    fn a_thread_with_a_table_of_its_own_holds_nothing_of_the_process() {
        let (mut reader, writer) = io::pipe().unwrap();
        let number = writer.as_raw_fd();
        let found = thread::spawn(move || {
            // SAFETY: the thread opens one file and drops it.
            unsafe { take_own_table() }.map(|()| {
                let held = fs::exists(format!("/proc/thread-self/fd/{number}")).unwrap();
                let file = File::open("/proc/version").unwrap();
                (held, file.as_raw_fd())
            })
        });
        let Ok((held, first)) = found.join().unwrap() else {
            // A kernel before 5.9: nothing to test.
            return;
        };
        assert!(!held);
        assert_eq!(first, 3, "the table begins behind the standard descriptors");
        // The reader sees the end of file, so the writing side is open nowhere else.
        drop(writer);
        assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0);
    }
}
