//! File access of one worker: a file descriptor, or a mapping of the worker's part of the file.
//!
//! Short transfers are continued until the record is complete; interrupted calls are repeated.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::Advice;
use rustix::io::Errno;
use rustix::mm::MsyncFlags;

use crate::data::in_file;
use crate::engine::SingleFile;
use crate::error::BenchError;
use crate::mapping::Mapping;
use crate::spec::{AccessAdvice, FileSpec, Mode, SyncKind};

/// An open file, ready for one worker.
#[derive(Debug)]
pub struct Target {
    path: PathBuf,
    file: File,
    mode: Mode,
    /// The worker's part of the file, in mapped modes.
    mapping: Option<Part>,
    /// Files that continue the first one; all have the same size.
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
        // A writable shared mapping needs a descriptor that is also open for reading.
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

    /// Continues offsets beyond the end of the file in these files, in order.
    pub fn go_on_in(&mut self, paths: &[PathBuf], spec: &FileSpec) -> Result<(), BenchError> {
        for path in paths {
            self.further.push(Self::open(path, spec, 0)?);
            self.bytes_in_each = spec.bytes_in_a_file();
        }
        Ok(())
    }

    /// Maps an offset beyond the end of the first file to a file and the offset in it.
    fn further_at(&self, offset: u64) -> (&Self, u64) {
        let number = usize::try_from(offset / self.bytes_in_each).unwrap_or(usize::MAX);
        let file = number.checked_sub(1).and_then(|place| self.further.get(place));
        (
            file.expect("offsets are below the bytes of all files"),
            offset % self.bytes_in_each,
        )
    }

    /// The file of a target that is one unmapped file.
    pub fn single_file(&self) -> Option<SingleFile<'_>> {
        (self.mapping.is_none() && self.further.is_empty()).then_some(self.first_file())
    }

    fn first_file(&self) -> SingleFile<'_> {
        SingleFile::of(self)
    }

    /// Reads the whole of `record` from `offset` of the file.
    #[inline]
    pub fn read(&self, offset: u64, record: &mut [u8]) -> Result<(), BenchError> {
        if offset < self.bytes_in_each && self.mapping.is_none() {
            return self.first_file().read(offset, record);
        }
        self.read_otherwise(offset, record)
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

    /// Continues after a first call that did not transfer everything.
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
            let at = offset + in_file(done);
            match answer {
                Ok(0) => {
                    return Err(BenchError::ShortRead {
                        path: self.path.clone(),
                        offset_bytes: at,
                        missing_bytes: in_file(record.len() - done),
                    });
                }
                Ok(moved) => done += moved,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(BenchError::data("read", &self.path, at, errno)),
            }
            if done == record.len() {
                return Ok(());
            }
            answer = rustix::io::pread(&self.file, &mut record[done..], offset + in_file(done));
        }
    }

    /// Writes the whole of `record` at `offset` of the file.
    #[inline]
    pub fn write(&self, offset: u64, record: &[u8]) -> Result<(), BenchError> {
        if offset < self.bytes_in_each && self.mapping.is_none() {
            return self.first_file().write(offset, record);
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

    /// Continues after a first call that did not transfer everything.
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
            let at = offset + in_file(done);
            match answer {
                // A write that returns 0 without an error would loop forever.
                Ok(0) => return Err(BenchError::data("write", &self.path, at, Errno::IO)),
                Ok(moved) => done += moved,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(BenchError::data("write", &self.path, at, errno)),
            }
            if done == record.len() {
                return Ok(());
            }
            answer = rustix::io::pwrite(&self.file, &record[done..], offset + in_file(done));
        }
    }

    /// Fails if a page of the mapping faulted: SIGBUS carries no errno, so EIO is reported.
    fn unless_faulted(&self, operation: &'static str, offset: u64, is_done: bool) -> Result<(), BenchError> {
        if is_done {
            Ok(())
        } else {
            Err(BenchError::data(operation, &self.path, offset, Errno::IO))
        }
    }

    /// The mode's sync after a write; returns false if the mode has none.
    pub fn sync_record(&self, offset: u64, length: usize) -> Result<bool, BenchError> {
        if offset >= self.bytes_in_each {
            let (file, offset) = self.further_at(offset);
            return file.sync_record(offset, length);
        }
        #[cfg(test)]
        issued::note("sync", 0, &[]);
        let (operation, answer) = match (self.mode.sync, &self.mapping) {
            (SyncKind::None | SyncKind::Sync | SyncKind::DataSync, _) => return Ok(false),
            (SyncKind::Fsync, _) => ("fsync", rustix::fs::fsync(&self.file)),
            (SyncKind::Fdatasync, _) => ("fdatasync", rustix::fs::fdatasync(&self.file)),
            (SyncKind::Fbarrier, _) => ("fbarrier", barrier(&self.file, FBARRIER)),
            (SyncKind::Fdatabarrier, _) => ("fdatabarrier", barrier(&self.file, FDATABARRIER)),
            (SyncKind::MsyncAsync | SyncKind::Msync, Some(part)) => {
                let position = part.position(offset);
                ("msync", part.mapping.sync(position, length, self.msync_flags()))
            }
            (SyncKind::MsyncAsync | SyncKind::Msync, None) => return Ok(false),
        };
        answer
            .map(|()| true)
            .map_err(|errno| BenchError::data(operation, &self.path, offset, errno))
    }

    /// The mode's sync after every N writes: of the last record if N is 1, otherwise of the whole mapping.
    pub fn sync_after(&self, offset: u64, length: usize, writes: u32) -> Result<(), BenchError> {
        let all = self.mapping.as_ref().filter(|_| writes > 1);
        let Some(part) = all else {
            return self.sync_record(offset, length).map(|_| ());
        };
        let answer = part.mapping.sync(0, part.mapping.length(), self.msync_flags());
        answer.map_err(|errno| BenchError::data("msync", &self.path, offset, errno))
    }

    fn msync_flags(&self) -> MsyncFlags {
        match self.mode.sync {
            SyncKind::Msync => MsyncFlags::SYNC,
            _ => MsyncFlags::ASYNC,
        }
    }

    /// Drops the file's clean, unmapped pages from the page cache.
    pub fn give_up_pages(&self) -> Result<(), BenchError> {
        rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed)
            .map_err(|errno| BenchError::io("posix_fadvise", &self.path, errno))?;
        self.further.iter().try_for_each(Self::give_up_pages)
    }

    /// The final sync, after the last write: of the worker's mapping, or of the file.
    pub fn final_sync(&self) -> Result<(), BenchError> {
        let (operation, answer) = match &self.mapping {
            Some(part) => ("msync", part.mapping.sync_all()),
            None => ("fsync", rustix::fs::fsync(&self.file)),
        };
        answer.map_err(|errno| BenchError::io(operation, &self.path, errno))?;
        self.further.iter().try_for_each(Self::final_sync)
    }

    /// Faults in the pages of a mapping before the window; does nothing for descriptors.
    pub fn prefault(&self, writable: bool) -> Result<(), BenchError> {
        let Some(part) = &self.mapping else {
            return Ok(());
        };
        match part.mapping.populate(writable) {
            // A kernel before 5.14: the page faults fall into the window.
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

    /// Closes the file and reports the error of close(2): a file system in user space may flush only here.
    pub fn close(self) -> Result<(), BenchError> {
        drop(self.mapping);
        close(self.file, &self.path)?;
        self.further.into_iter().try_for_each(Self::close)
    }
}

impl Part {
    /// Position in the mapping of a file offset.
    fn position(&self, offset: u64) -> usize {
        let position = usize::try_from(offset - self.base);
        position.expect("the mapping was made, so its length and every position in it fit in memory")
    }
}

/// Closes a file and reports the error of close(2).
pub(crate) fn close(file: File, path: &Path) -> Result<(), BenchError> {
    let descriptor = file.into_raw_fd();
    // SAFETY: the descriptor was just taken out of its `File`, so it is open and has no other owner.
    let answer = unsafe { libc::close(descriptor) };
    if answer == 0 {
        Ok(())
    } else {
        Err(BenchError::io("close", path, io::Error::last_os_error()))
    }
}

fn open_flags(mode: Mode) -> i32 {
    let direct = if mode.is_direct() { libc::O_DIRECT } else { 0 };
    let sync = match mode.sync {
        SyncKind::Sync => libc::O_SYNC,
        SyncKind::DataSync => libc::O_DSYNC,
        _ => 0,
    };
    direct | sync
}

/// System calls added by the BarrierFS kernel, with their x86-64 numbers; other kernels return ENOSYS.
const FBARRIER: libc::c_long = 548;
const FDATABARRIER: libc::c_long = 549;

/// Orders the writes before the call ahead of those after it; fails on a kernel without the call.
fn barrier(file: &File, number: libc::c_long) -> Result<(), Errno> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Errno::NOSYS);
    }
    // SAFETY: the call takes an open descriptor and no pointer; a kernel without the call does nothing.
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

/// The calls of a thread, for tests that compare loops.
#[cfg(test)]
pub mod issued {
    use std::cell::RefCell;
    use std::hash::{DefaultHasher, Hash, Hasher};

    /// Kind, offset, and hash of the written content.
    pub type Issued = (&'static str, u64, u64);

    thread_local! {
        static ISSUED: RefCell<Vec<Issued>> = const { RefCell::new(Vec::new()) };
    }

    pub fn note(kind: &'static str, offset: u64, content: &[u8]) {
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        ISSUED.with_borrow_mut(|issued| issued.push((kind, offset, hasher.finish())));
    }

    pub fn take() -> Vec<Issued> {
        ISSUED.take()
    }
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
        let target = open("/dev/full", Pattern::SequentialWrite, Mode::BUFFERED).unwrap();
        let message = target.write(4096, &[0; 512]).unwrap_err().to_string();
        let expected = "write of /dev/full at byte 4096 failed: No space left on device (os error 28)";
        assert_eq!(message, expected);
    }

    #[test]
    fn a_read_past_the_end_says_how_much_is_missing() {
        let target = open("/dev/null", Pattern::SequentialRead, Mode::BUFFERED).unwrap();
        let message = target.read(1024, &mut [0; 512]).unwrap_err().to_string();
        let expected = "read of /dev/null at byte 1024 met the end of the file: 512 bytes are missing";
        assert_eq!(message, expected);
    }

    #[test]
    fn a_sync_that_the_file_cannot_do_is_an_error_and_not_a_fast_sync() {
        let target = open("/dev/full", Pattern::SequentialWrite, Mode::FSYNC).unwrap();
        let message = target.sync_record(0, 512).unwrap_err().to_string();
        assert!(
            message.starts_with("fsync of /dev/full at byte 0 failed: Invalid argument"),
            "{message}"
        );
    }

    #[test]
    fn a_barrier_that_the_kernel_does_not_know_is_an_error_and_not_a_fast_sync() {
        for (mode, name) in [(Mode::FBARRIER, "fbarrier"), (Mode::FDATABARRIER, "fdatabarrier")] {
            let target = open("/dev/null", Pattern::SequentialWrite, mode).unwrap();
            let message = target.sync_record(0, 512).unwrap_err().to_string();
            let expected = format!("{name} of /dev/null at byte 0 failed: Function not implemented");
            assert!(message.starts_with(&expected), "{message}");
        }
    }

    #[test]
    fn a_mode_opens_with_what_it_is_named_for() {
        for (mode, flags) in [
            (Mode::DATA_SYNC, libc::O_DSYNC),
            (Mode::DIRECT_SYNC, libc::O_DIRECT | libc::O_SYNC),
            (Mode::DIRECT_DATA_SYNC, libc::O_DIRECT | libc::O_DSYNC),
            (Mode::DIRECT_FSYNC, libc::O_DIRECT),
            (Mode::FSYNC, 0),
        ] {
            assert_eq!(open_flags(mode), flags, "{mode}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_mapped_is_named() {
        let message = open("/dev/null", Pattern::RandomRead, Mode::MMAP)
            .unwrap_err()
            .to_string();
        assert!(message.starts_with("mmap of /dev/null failed: "), "{message}");
    }
}
