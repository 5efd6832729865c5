//! One worker's way to its file: a descriptor, or a mapping of its part of the file.
//!
//! Short transfers are continued until the record is done; an interrupted call is repeated.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::Advice;
use rustix::io::Errno;
use rustix::mm::MsyncFlags;

use crate::error::BenchError;
use crate::mapping::Mapping;
use crate::spec::{AccessAdvice, FileSpec, Mode};

/// An open file, ready for one worker.
#[derive(Debug)]
pub struct Target {
    path: PathBuf,
    file: File,
    mode: Mode,
    /// The worker's part of the file, in mapped modes.
    mapping: Option<Part>,
    /// Files that come after the first one, of as many bytes each.
    further: Vec<Target>,
    bytes_in_each: u64,
}

#[derive(Debug)]
struct Part {
    mapping: Mapping,
    /// File offset of the first mapped byte.
    base: u64,
}

impl Target {
    /// Opens `path` for the part of `spec.file_bytes` bytes that begins at `base`.
    pub fn open(path: &Path, spec: &FileSpec, base: u64) -> Result<Self, BenchError> {
        let mode = spec.mode;
        let writes = spec.pattern.writes();
        let mut options = OpenOptions::new();
        // A shared mapping that is written needs a descriptor that may read too.
        options
            .read(spec.pattern.reads() || mode.is_mapped())
            .write(writes)
            .custom_flags(open_flags(mode));
        let file = options
            .open(path)
            .map_err(|error| BenchError::io("open", path, error))?;
        advise(&file, spec.advice).map_err(|errno| BenchError::io("posix_fadvise", path, errno))?;
        let mapping = if mode.is_mapped() {
            let length = in_memory(path, spec.file_bytes)?;
            let mapping = Mapping::shared(&file, base, length, writes);
            let mapping = mapping.map_err(|error| BenchError::io("mmap", path, error))?;
            mapping
                .advise(spec.advice)
                .map_err(|errno| BenchError::io("madvise", path, errno))?;
            Some(Part { mapping, base })
        } else {
            None
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            mode,
            mapping,
            further: Vec::new(),
            bytes_in_each: u64::MAX,
        })
    }

    /// Has offsets behind the end of the file go on in these, one after the other.
    pub fn go_on_in(&mut self, paths: &[PathBuf], spec: &FileSpec) -> Result<(), BenchError> {
        for path in paths {
            self.further.push(Self::open(path, spec, 0)?);
            self.bytes_in_each = spec.bytes_in_a_file();
        }
        Ok(())
    }

    /// The file of an offset behind the end of the first one, and the place in it.
    fn further_at(&self, offset: u64) -> (&Self, u64) {
        let number = usize::try_from(offset / self.bytes_in_each).unwrap_or(usize::MAX);
        let file = number.checked_sub(1).and_then(|place| self.further.get(place));
        (
            file.expect("offsets are below the bytes of all files"),
            offset % self.bytes_in_each,
        )
    }

    /// Reads the whole of `record` from `offset` of the file.
    #[inline]
    pub fn read(&self, offset: u64, record: &mut [u8]) -> Result<(), BenchError> {
        // What nearly every operation is, without a call: one file, a descriptor, all at once.
        if offset < self.bytes_in_each && self.mapping.is_none() {
            let first = rustix::io::pread(&self.file, &mut *record, offset);
            return match first {
                Ok(moved) if moved == record.len() => Ok(()),
                other => self.read_rest(other, offset, record),
            };
        }
        self.read_otherwise(offset, record)
    }

    /// The descriptor of a target that is one file, and not mapped.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (self.mapping.is_none() && self.further.is_empty()).then(|| self.file.as_fd())
    }

    #[inline(never)]
    fn read_otherwise(&self, offset: u64, record: &mut [u8]) -> Result<(), BenchError> {
        if offset >= self.bytes_in_each {
            let (file, offset) = self.further_at(offset);
            return file.read(offset, record);
        }
        let is_done = self
            .mapping
            .as_ref()
            .is_some_and(|part| part.mapping.read(part.position(offset), record));
        self.unless_faulted("mapped read", offset, is_done)
    }

    /// Goes on after the answer to a first call that did not move all.
    #[cold]
    #[inline(never)]
    pub fn read_rest(
        &self,
        first: Result<usize, Errno>,
        offset: u64,
        record: &mut [u8],
    ) -> Result<(), BenchError> {
        let (mut done, mut answer) = (0, first);
        loop {
            let at = offset + nonnegative(done);
            match answer {
                Ok(0) => {
                    return Err(BenchError::ShortRead {
                        path: self.path.clone(),
                        offset_bytes: at,
                        missing_bytes: nonnegative(record.len() - done),
                    });
                }
                Ok(moved) => done += moved,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(BenchError::data("read", &self.path, at, errno)),
            }
            if done == record.len() {
                return Ok(());
            }
            answer = rustix::io::pread(&self.file, &mut record[done..], offset + nonnegative(done));
        }
    }

    /// Writes the whole of `record` at `offset` of the file.
    #[inline]
    pub fn write(&self, offset: u64, record: &[u8]) -> Result<(), BenchError> {
        if offset < self.bytes_in_each && self.mapping.is_none() {
            let first = rustix::io::pwrite(&self.file, record, offset);
            return match first {
                Ok(moved) if moved == record.len() => Ok(()),
                other => self.write_rest(other, offset, record),
            };
        }
        self.write_otherwise(offset, record)
    }

    #[inline(never)]
    fn write_otherwise(&self, offset: u64, record: &[u8]) -> Result<(), BenchError> {
        if offset >= self.bytes_in_each {
            let (file, offset) = self.further_at(offset);
            return file.write(offset, record);
        }
        let is_done = self
            .mapping
            .as_ref()
            .is_some_and(|part| part.mapping.write(part.position(offset), record));
        self.unless_faulted("mapped write", offset, is_done)
    }

    /// Goes on after the answer to a first call that did not move all.
    #[cold]
    #[inline(never)]
    pub fn write_rest(
        &self,
        first: Result<usize, Errno>,
        offset: u64,
        record: &[u8],
    ) -> Result<(), BenchError> {
        let (mut done, mut answer) = (0, first);
        loop {
            let at = offset + nonnegative(done);
            match answer {
                // A file that takes nothing and says no error would loop for ever.
                Ok(0) => return Err(BenchError::data("write", &self.path, at, Errno::IO)),
                Ok(moved) => done += moved,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(BenchError::data("write", &self.path, at, errno)),
            }
            if done == record.len() {
                return Ok(());
            }
            answer = rustix::io::pwrite(&self.file, &record[done..], offset + nonnegative(done));
        }
    }

    /// The kernel's only answer to a failed page is a signal, which has no errno.
    fn unless_faulted(&self, operation: &'static str, offset: u64, is_done: bool) -> Result<(), BenchError> {
        if is_done {
            Ok(())
        } else {
            Err(BenchError::data(operation, &self.path, offset, Errno::IO))
        }
    }

    /// The sync that the mode asks for after each write; false when it asks for none.
    pub fn sync_record(&self, offset: u64, length: usize) -> Result<bool, BenchError> {
        if offset >= self.bytes_in_each {
            let (file, offset) = self.further_at(offset);
            return file.sync_record(offset, length);
        }
        let (operation, answer) = match self.mode {
            Mode::Buffered
            | Mode::Sync
            | Mode::DataSync
            | Mode::Direct
            | Mode::DirectSync
            | Mode::DirectDataSync
            | Mode::Mmap => {
                return Ok(false);
            }
            Mode::Fsync | Mode::DirectFsync => ("fsync", rustix::fs::fsync(&self.file)),
            Mode::Fdatasync | Mode::DirectFdatasync => ("fdatasync", rustix::fs::fdatasync(&self.file)),
            Mode::Fbarrier => ("fbarrier", barrier(&self.file, FBARRIER)),
            Mode::Fdatabarrier => ("fdatabarrier", barrier(&self.file, FDATABARRIER)),
            Mode::MmapAsync | Mode::MmapSync => match &self.mapping {
                Some(part) => {
                    let flags = if self.mode == Mode::MmapSync {
                        MsyncFlags::SYNC
                    } else {
                        MsyncFlags::ASYNC
                    };
                    ("msync", part.mapping.sync(part.position(offset), length, flags))
                }
                None => return Ok(false),
            },
        };
        answer
            .map(|()| true)
            .map_err(|errno| BenchError::data(operation, &self.path, offset, errno))
    }

    /// The mode's sync after so many writes: of the last one where it is each, else of all.
    pub fn sync_after(&self, offset: u64, length: usize, writes: u32) -> Result<(), BenchError> {
        let all = self.mapping.as_ref().filter(|_| writes > 1);
        let Some(part) = all else {
            return self.sync_record(offset, length).map(|_| ());
        };
        let flags = if self.mode == Mode::MmapSync {
            MsyncFlags::SYNC
        } else {
            MsyncFlags::ASYNC
        };
        let answer = part.mapping.sync(0, part.mapping.length(), flags);
        answer.map_err(|errno| BenchError::data("msync", &self.path, offset, errno))
    }

    /// Has the kernel forget the file's pages, as far as they are clean and not mapped.
    pub fn give_up_pages(&self) -> Result<(), BenchError> {
        rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed)
            .map_err(|errno| BenchError::io("posix_fadvise", &self.path, errno))?;
        self.further.iter().try_for_each(Self::give_up_pages)
    }

    /// The sync when all is written: of the worker's mapping, or of the file.
    pub fn final_sync(&self) -> Result<(), BenchError> {
        let (operation, answer) = match &self.mapping {
            Some(part) => ("msync", part.mapping.sync_all()),
            None => ("fsync", rustix::fs::fsync(&self.file)),
        };
        answer.map_err(|errno| BenchError::io(operation, &self.path, errno))?;
        self.further.iter().try_for_each(Self::final_sync)
    }

    /// Makes the pages of a mapping present before the window; nothing for descriptors.
    pub fn prefault(&self, writable: bool) -> Result<(), BenchError> {
        let Some(part) = &self.mapping else {
            return Ok(());
        };
        match part.mapping.populate(writable) {
            // A kernel before 5.14: the faults are then part of the window.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(BenchError::io("madvise", &self.path, errno)),
        }
    }

    /// The open file.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The file, for error messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Closes the file and reports what the file system says to it: one in user space may flush only here.
    pub fn close(self) -> Result<(), BenchError> {
        drop(self.mapping);
        close(self.file, &self.path)?;
        self.further.into_iter().try_for_each(Self::close)
    }
}

impl Part {
    /// Position in the mapping of an offset of the file.
    fn position(&self, offset: u64) -> usize {
        let position = usize::try_from(offset - self.base);
        position.expect("the mapping was made, so its length and every position in it fit in memory")
    }
}

/// Closes a file and reports what the file system says to it.
pub(crate) fn close(file: File, path: &Path) -> Result<(), BenchError> {
    let descriptor = file.into_raw_fd();
    // SAFETY: the descriptor was just taken out of its `File`, so it is open and nobody else closes it.
    let answer = unsafe { libc::close(descriptor) };
    if answer == 0 {
        Ok(())
    } else {
        Err(BenchError::io("close", path, io::Error::last_os_error()))
    }
}

fn open_flags(mode: Mode) -> i32 {
    match mode {
        Mode::Buffered
        | Mode::Fsync
        | Mode::Fdatasync
        | Mode::Mmap
        | Mode::MmapAsync
        | Mode::MmapSync
        | Mode::Fbarrier
        | Mode::Fdatabarrier => 0,
        Mode::Sync => libc::O_SYNC,
        Mode::DataSync => libc::O_DSYNC,
        Mode::Direct | Mode::DirectFsync | Mode::DirectFdatasync => libc::O_DIRECT,
        Mode::DirectSync => libc::O_DIRECT | libc::O_SYNC,
        Mode::DirectDataSync => libc::O_DIRECT | libc::O_DSYNC,
    }
}

/// Calls that the kernel of BarrierFS adds; its numbers on x86-64, where others have none.
const FBARRIER: libc::c_long = 548;
const FDATABARRIER: libc::c_long = 549;

/// Orders the writes before it ahead of those after it, on a kernel that knows the call.
fn barrier(file: &File, number: libc::c_long) -> Result<(), Errno> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Errno::NOSYS);
    }
    // SAFETY: the call takes a descriptor, which is open, and no pointer; a kernel that does not know it does nothing.
    let answer = unsafe { libc::syscall(number, file.as_raw_fd()) };
    if answer == 0 {
        return Ok(());
    }
    let code = io::Error::last_os_error().raw_os_error();
    Err(Errno::from_raw_os_error(code.unwrap_or(libc::EIO)))
}

fn advise(file: &File, advice: AccessAdvice) -> Result<(), Errno> {
    let advice = match advice {
        AccessAdvice::None => return Ok(()),
        AccessAdvice::Sequential => Advice::Sequential,
        AccessAdvice::Random => Advice::Random,
    };
    rustix::fs::fadvise(file, 0, None, advice)
}

fn in_memory(path: &Path, bytes: u64) -> Result<usize, BenchError> {
    usize::try_from(bytes).map_err(|_| BenchError::io("mmap", path, io::ErrorKind::FileTooLarge))
}

/// A length in memory as a number of bytes in a file.
fn nonnegative(length: usize) -> u64 {
    u64::try_from(length).expect("lengths in memory fit in 64 bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Pattern;

    fn open(path: &str, pattern: Pattern, mode: Mode) -> Result<Target, BenchError> {
        let spec = FileSpec {
            mode,
            ..FileSpec::plain(PathBuf::new(), pattern, 512, 8192)
        };
        Target::open(Path::new(path), &spec, 0)
    }

    #[test]
    fn a_failed_write_names_file_offset_and_errno() {
        let target = open("/dev/full", Pattern::SequentialWrite, Mode::Buffered).unwrap();
        let message = target.write(4096, &[0; 512]).unwrap_err().to_string();
        let expected = "write of /dev/full at byte 4096 failed: No space left on device (os error 28)";
        assert_eq!(message, expected);
    }

    #[test]
    fn a_read_past_the_end_says_how_much_is_missing() {
        let target = open("/dev/null", Pattern::SequentialRead, Mode::Buffered).unwrap();
        let message = target.read(1024, &mut [0; 512]).unwrap_err().to_string();
        let expected = "read of /dev/null at byte 1024 met the end of the file: 512 bytes are missing";
        assert_eq!(message, expected);
    }

    #[test]
    fn a_sync_that_the_file_cannot_do_is_an_error_and_not_a_fast_sync() {
        let target = open("/dev/full", Pattern::SequentialWrite, Mode::Fsync).unwrap();
        let message = target.sync_record(0, 512).unwrap_err().to_string();
        assert!(
            message.starts_with("fsync of /dev/full at byte 0 failed: Invalid argument"),
            "{message}"
        );
    }

    #[test]
    fn a_barrier_that_the_kernel_does_not_know_is_an_error_and_not_a_fast_sync() {
        for (mode, name) in [(Mode::Fbarrier, "fbarrier"), (Mode::Fdatabarrier, "fdatabarrier")] {
            let target = open("/dev/null", Pattern::SequentialWrite, mode).unwrap();
            let message = target.sync_record(0, 512).unwrap_err().to_string();
            let expected = format!("{name} of /dev/null at byte 0 failed: Function not implemented");
            assert!(message.starts_with(&expected), "{message}");
        }
    }

    #[test]
    fn a_mode_opens_with_what_it_is_named_for() {
        for (mode, flags) in [
            (Mode::DataSync, libc::O_DSYNC),
            (Mode::DirectSync, libc::O_DIRECT | libc::O_SYNC),
            (Mode::DirectDataSync, libc::O_DIRECT | libc::O_DSYNC),
            (Mode::DirectFsync, libc::O_DIRECT),
            (Mode::Fsync, 0),
        ] {
            assert_eq!(open_flags(mode), flags, "{mode}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_mapped_is_named() {
        let message = open("/dev/null", Pattern::RandomRead, Mode::Mmap)
            .unwrap_err()
            .to_string();
        assert!(message.starts_with("mmap of /dev/null failed: "), "{message}");
    }
}
