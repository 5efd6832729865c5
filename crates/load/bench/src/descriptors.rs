//! A table of descriptors for one thread alone.
//!
//! Threads of a process share one table, and with it the kernel counts a reference to the file in each call, so that another
//! thread can't close it meanwhile. Where one thread alone has the table the kernel knows that nobody can, and saves the
//! count: some 3 % of a cached read of 4 KiB, that would be the harness's and not the file system's.
//!
//! The table begins with the standard descriptors and nothing else. So nothing that the process has open is held open by
//! it, and no lock of the process is touched: POSIX locks belong to a table. That is why SQLite workloads keep the shared
//! one. A handler of a signal that writes to a descriptor would find another file under its number, or none: the
//! programs of this project only raise flags.
//!
//! JUSTIFICATION for `unsafe`: the numbers of descriptors mean something else afterwards, which no type can express.

use std::io;

use rustix::io::Errno;

/// The first descriptor behind standard input, output and error.
const FIRST: libc::c_uint = 3;

/// Gives the calling thread a table of its own, with the standard descriptors.
///
/// # Errors
/// On a kernel before 5.9, and where the call is forbidden: then the table stays as it was.
///
/// # Safety
/// From here on the thread uses and drops no descriptor that was opened before, and none that it opens leaves it.
pub unsafe fn take_own_table() -> Result<(), Errno> {
    // SAFETY: the call takes no pointers. It makes the new table before it closes anything, so that what other threads
    // have open stays; what this one had is the caller's promise.
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
            // SAFETY: the thread opens one file, which it drops.
            unsafe { take_own_table() }.map(|()| {
                let held = fs::exists(format!("/proc/thread-self/fd/{number}")).unwrap();
                let file = File::open("/proc/version").unwrap();
                (held, file.as_raw_fd())
            })
        });
        let Ok((held, first)) = found.join().unwrap() else {
            // A kernel before 5.9: there is nothing to try.
            return;
        };
        assert!(!held);
        assert_eq!(first, 3, "the table begins behind the standard descriptors");
        // The reader sees the end, so that nobody else has the writing side.
        drop(writer);
        assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0);
    }
}
