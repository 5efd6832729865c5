//! Deferred closes: a file under passthrough that was only read stays open for up to a second after its RELEASE.
//!
//! Compilers, build tools and searches open the same files again and again. Such an open costs the host a lookup by handle,
//! an open, two ioctls that register and unregister the backing file, and a close; one that finds the file still open costs
//! none of them. As the close of SMB clients (`closetimeo`), the deferred one must go unnoticed:
//!
//! - Only files on file systems whose close never fails, and only if they were opened for reading alone: a writer on the
//!   host would keep others from executing or sealing the file.
//! - An open with other flags closes it, so does FORGET, which the kernel sends when it removes a file, and a lack of
//!   descriptors. A file that is removed behind the mount keeps its space for a second longer.
//! - At most [`FILES_MAX`] files: further ones are closed at once, so that a walk over many files costs nothing more.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use vfs::{FsError, FsResult, Handle, Ino, OpenFlags};

use crate::abi::OpenOut;
use crate::dispatch::Dispatcher;
use crate::open::passed_through;

/// A file is closed at the end of the period after the one in which it was released.
const PERIOD: Duration = Duration::from_millis(500);
const FILES_MAX: usize = 4096;

/// An open file that is only read.
pub struct Reader {
    handle: Handle,
    flags: OpenFlags,
    /// The period in which its close was deferred.
    period: u64,
}

impl Reader {
    pub const fn new(handle: Handle, flags: OpenFlags) -> Self {
        Self {
            handle,
            flags,
            period: 0,
        }
    }

    pub const fn handle(&self) -> Handle {
        self.handle
    }

    pub fn was_opened_with(&self, flags: OpenFlags) -> bool {
        self.flags == flags
    }
}

/// The number of files whose close is deferred, and the thread that closes them.
#[derive(Default)]
pub struct Deferrals {
    files: AtomicUsize,
    period: AtomicU64,
    is_over: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Deferrals {
    pub fn is_empty(&self) -> bool {
        self.files.load(Ordering::Relaxed) == 0
    }

    /// Counts one more file; false if there are too many, or if nobody would close it.
    pub fn add(&self, reader: &mut Reader) -> bool {
        let Some(thread) = self.thread.get() else {
            return false;
        };
        if self.files.load(Ordering::Relaxed) >= FILES_MAX || self.is_over.load(Ordering::Acquire) {
            return false;
        }
        reader.period = self.period.load(Ordering::Relaxed);
        if self.files.fetch_add(1, Ordering::AcqRel) == 0 {
            thread.unpark();
        }
        true
    }

    pub fn subtract(&self, files: usize) {
        self.files.fetch_sub(files, Ordering::AcqRel);
    }

    pub fn is_due(&self, reader: &Reader) -> bool {
        reader.period < self.period.load(Ordering::Relaxed)
    }

    /// Ends [`Dispatcher::close_deferred`] and further deferrals.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

impl Dispatcher {
    /// Answers an open with a file that is still open.
    pub(crate) fn reopen(&self, ino: Ino, flags: OpenFlags) -> Option<OpenOut> {
        let (handle, file) = self.inodes.reopen(ino, flags)?;
        self.counters.reopened();
        Some(passed_through(handle, flags, file))
    }

    /// Closes files that were released a while ago, until the session ends; the work of one thread.
    pub(crate) fn close_deferred(&self) {
        let deferrals = &self.inodes.deferrals;
        if deferrals.thread.set(thread::current()).is_err() {
            return;
        }
        while !deferrals.is_over.load(Ordering::Acquire) {
            if deferrals.is_empty() {
                thread::park();
                continue;
            }
            thread::park_timeout(PERIOD);
            self.close(self.inodes.take_all_deferred(false));
            deferrals.period.fetch_add(1, Ordering::Relaxed);
        }
        self.close(self.inodes.take_all_deferred(true));
    }

    /// Opens a file, after closing the deferred ones if there are no descriptors left.
    pub(crate) fn with_descriptors<T>(&self, open: impl Fn() -> FsResult<T>) -> FsResult<T> {
        let opened = open();
        if !matches!(opened, Err(FsError::TooManyOpenFiles)) {
            return opened;
        }
        self.close(self.inodes.take_all_deferred(true));
        open()
    }

    fn close(&self, files: Vec<(Ino, Handle)>) {
        for (ino, handle) in files {
            self.file_system.release(ino, handle);
        }
    }
}
