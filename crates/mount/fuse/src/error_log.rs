//! Reports errors of requests that the operator of a mount should know about, at a bounded rate.
//!
//! Programs receive each error as the outcome of their call; most (no such file, permission denied) are ordinary. The
//! errors reported here mean that the medium, its space or the daemon is in trouble. A program may miss them: a failed
//! flush, for example, is often reported only by close.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use vfs::{FsError, Handle, Ino};

/// After an error has been reported, equal errors of the same operation are only counted for this long.
const PAUSE: Duration = Duration::from_secs(10);

/// An error that a request was answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    /// Name of the request in lower case.
    pub operation: &'static str,
    /// The inode of the request.
    pub ino: Ino,
    /// The handle, if the request names one.
    pub handle: Option<Handle>,
    /// A name of the file, if the file system knows one.
    pub path: Option<PathBuf>,
    /// The error.
    pub error: FsError,
    /// Equal errors of the same operation that were not reported since the last one that was.
    pub left_out: u64,
}

/// Callback for errors.
pub type ErrorListener = Box<dyn Fn(&RequestError) + Send + Sync>;

struct Recent {
    operation: &'static str,
    error: FsError,
    told: Instant,
    left_out: u64,
}

pub struct ErrorLog {
    listener: ErrorListener,
    /// One entry per pair of operation and error that occurred: a few dozen at most.
    recent: Mutex<Vec<Recent>>,
}

impl ErrorLog {
    pub fn new(listener: ErrorListener) -> Self {
        Self {
            listener,
            recent: Mutex::default(),
        }
    }

    /// Reports an error unless it is ordinary or was reported a moment ago.
    pub fn note(
        &self,
        operation: &'static str,
        error: FsError,
        (ino, handle): (Ino, Option<Handle>),
        path: impl FnOnce() -> Option<PathBuf>,
    ) {
        if !is_trouble(error) {
            return;
        }
        let Some(left_out) = self.count(operation, error, Instant::now()) else {
            return;
        };
        (self.listener)(&RequestError {
            operation,
            ino,
            handle,
            path: path(),
            error,
            left_out,
        });
    }

    /// Returns the number of errors left out before this one, or `None` if this one is left out too.
    fn count(&self, operation: &'static str, error: FsError, now: Instant) -> Option<u64> {
        let mut recent = self.recent.lock().expect("no panic under this lock");
        let known = recent
            .iter_mut()
            .find(|entry| entry.operation == operation && entry.error == error);
        let Some(entry) = known else {
            recent.push(Recent {
                operation,
                error,
                told: now,
                left_out: 0,
            });
            return Some(0);
        };
        if now.duration_since(entry.told) < PAUSE {
            entry.left_out += 1;
            return None;
        }
        entry.told = now;
        Some(std::mem::take(&mut entry.left_out))
    }
}

/// True for errors of the medium, of space and of the machine; false for ordinary answers to a program's request.
const fn is_trouble(error: FsError) -> bool {
    match error {
        FsError::Io
        | FsError::NoSpace
        | FsError::Quota
        | FsError::OutOfMemory
        | FsError::TooManyOpenFiles
        | FsError::TooManyOpenFilesInSystem
        | FsError::Shutdown => true,
        // Linux error numbers for a file system or medium in trouble.
        FsError::Host(errno) => matches!(
            errno,
            libc::EUCLEAN | libc::EBADMSG | libc::EREMOTEIO | libc::ENOMEDIUM | libc::ETIMEDOUT
        ),
        FsError::NotPermitted
        | FsError::NotFound
        | FsError::Interrupted
        | FsError::NoSuchDevice
        | FsError::BadHandle
        | FsError::TryAgain
        | FsError::AccessDenied
        | FsError::Busy
        | FsError::Exists
        | FsError::CrossDevice
        | FsError::NotADirectory
        | FsError::IsADirectory
        | FsError::Invalid
        | FsError::NotATerminal
        | FsError::TextBusy
        | FsError::FileTooBig
        | FsError::ReadOnly
        | FsError::TooManyLinks
        | FsError::OutOfRange
        | FsError::NameTooLong
        | FsError::NoSuchCall
        | FsError::NotEmpty
        | FsError::TooManySymlinks
        | FsError::NoData
        | FsError::Overflow
        | FsError::NotSupported
        | FsError::Stale => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn trouble_is_told_once_in_a_while_and_everyday_answers_never() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let listener = told.clone();
        let log = ErrorLog::new(Box::new(move |error| {
            listener.lock().unwrap().push((error.operation, error.error));
        }));
        for error in [FsError::NotFound, FsError::NoSpace, FsError::NoSpace, FsError::Io] {
            log.note("flush", error, (Ino::ROOT, None), || None);
        }
        log.note("write", FsError::NoSpace, (Ino::ROOT, None), || None);
        let expected = [
            ("flush", FsError::NoSpace),
            ("flush", FsError::Io),
            ("write", FsError::NoSpace),
        ];
        assert_eq!(*told.lock().unwrap(), expected);
        let later = Instant::now() + PAUSE;
        assert_eq!(log.count("flush", FsError::NoSpace, later), Some(1));
        assert_eq!(log.count("flush", FsError::NoSpace, later), None);
    }
}
