//! Brings the page cache into the requested state, and reports the state reached.
//!
//! "Cold" is verified: after dropping, the pages of the test files that are still in memory are counted (`mincore`).
//! A file system that keeps its data in memory (tmpfs) is never cold, and a file system in user space has a second
//! cache that an ordinary user cannot empty: the outcome names the method used.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::Advice;
use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::mapping::resident_bytes;
use crate::progress::{Phase, Progress};
use crate::spec::Cache;

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
const CHUNK_BYTES: usize = 1 << 20;

/// The method used to prepare the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheMethod {
    /// Nothing was done.
    None,
    /// `sync`, then all caches of the machine were dropped (root).
    DropCaches,
    /// Each file was synced and its pages dropped (`POSIX_FADV_DONTNEED`). The inode and directory caches, and caches
    /// below a mount in user space, stay.
    Advice,
    /// Each file was read once.
    ReadOnce,
}

/// The state of the cache at the start of the timed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheOutcome {
    /// The requested state.
    pub requested: Cache,
    /// The method used.
    pub method: CacheMethod,
    /// Bytes of the test files found in the page cache; `None` if the file system cannot tell.
    pub cached_bytes: Option<u64>,
    /// Total size of the test files.
    pub total_bytes: u64,
}

impl CacheOutcome {
    /// True if a cold run was requested and more than one byte in 64 is known to be cached: the results are too good.
    #[must_use]
    pub fn is_warmer_than_asked(&self) -> bool {
        let limit = self.total_bytes / 64;
        self.requested == Cache::Cold && self.cached_bytes.is_some_and(|cached| cached > limit)
    }

    /// True if a cold run was requested and at most one byte in 64 is known to be cached.
    #[must_use]
    pub fn is_proven_cold(&self) -> bool {
        self.requested == Cache::Cold
            && self
                .cached_bytes
                .is_some_and(|cached| cached <= self.total_bytes / 64)
    }

    /// One human-readable line.
    #[must_use]
    pub fn describe(&self) -> String {
        let how = match self.method {
            CacheMethod::None => "cache left as it was",
            CacheMethod::DropCaches => "caches of the machine dropped",
            CacheMethod::Advice => "pages of the files given up (not root: lower caches may stay warm)",
            CacheMethod::ReadOnce => "files read once before",
        };
        match self.cached_bytes {
            _ if self.requested == Cache::Reopened => format!("{how}, then opened again"),
            Some(cached) => format!(
                "{how}; {cached} of {} bytes in memory at the start",
                self.total_bytes
            ),
            None => format!("{how}; bytes in memory at the start unknown"),
        }
    }
}

/// Prepares the cache for `files` of `bytes` each (0 for files that are still empty).
pub fn apply(
    cache: Cache,
    files: &[PathBuf],
    bytes: u64,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<CacheOutcome, BenchError> {
    let total_bytes = u64::try_from(files.len())
        .unwrap_or(u64::MAX)
        .saturating_mul(bytes);
    let method = match cache {
        Cache::AsIs => CacheMethod::None,
        Cache::Warm | Cache::Reopened => CacheMethod::ReadOnce,
        Cache::Cold => make_cold(files)?,
    };
    let mut cached_bytes = Some(0_u64);
    let mut read = 0_u64;
    let mut advance = |moved| {
        read += moved;
        progress.advance(Phase::Cache, read.min(total_bytes), total_bytes);
    };
    for path in files {
        // Counted through the file that was read: another open may drop its pages.
        let resident = match File::open(path) {
            Ok(file) => {
                if cache.reads_files() {
                    read_once(&file, path, &mut advance, stop)?;
                }
                resident_bytes(&file, bytes)
            }
            Err(error) if cache.reads_files() => return Err(BenchError::io("open", path, error)),
            Err(error) => Err(error),
        };
        cached_bytes = cached_bytes
            .zip(resident.ok())
            .map(|(sum, more)| sum + more.min(bytes));
    }
    Ok(CacheOutcome {
        requested: cache,
        method,
        // Unknown after the open that follows.
        cached_bytes: cached_bytes.filter(|_| cache != Cache::Reopened),
        total_bytes,
    })
}

/// Drops every page of `files` from the cache, by the strongest method allowed.
#[expect(
    clippy::disallowed_methods,
    reason = "a file of the kernel: it is there, and takes no other's place"
)]
pub(crate) fn make_cold(files: &[PathBuf]) -> Result<CacheMethod, BenchError> {
    // Only clean pages can be dropped: without the sync the run would be warm.
    rustix::fs::sync();
    match fs::write(DROP_CACHES, "3\n") {
        Ok(()) => Ok(CacheMethod::DropCaches),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound
            ) =>
        {
            give_up_pages(files)
        }
        Err(error) if error.raw_os_error() == Some(libc::EROFS) => give_up_pages(files),
        Err(error) => Err(BenchError::io("write", DROP_CACHES.as_ref(), error)),
    }
}

/// Syncs each file and drops its pages from the cache; pages of other files stay.
pub(crate) fn give_up_pages(files: &[PathBuf]) -> Result<CacheMethod, BenchError> {
    for path in files {
        let file = File::open(path).map_err(|error| BenchError::io("open", path, error))?;
        rustix::fs::fsync(&file).map_err(|errno| BenchError::io("fsync", path, errno))?;
        let advised = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
        advised.map_err(|errno| BenchError::io("posix_fadvise", path, errno))?;
    }
    Ok(CacheMethod::Advice)
}

fn read_once(
    mut file: &File,
    path: &Path,
    mut advance: impl FnMut(u64),
    stop: &AtomicBool,
) -> Result<(), BenchError> {
    let mut chunk = vec![0; CHUNK_BYTES];
    while !stop.load(Ordering::Relaxed) {
        let moved = file
            .read(&mut chunk)
            .map_err(|error| BenchError::io("read", path, error))?;
        if moved == 0 {
            break;
        }
        advance(u64::try_from(moved).unwrap_or(0));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::NoProgress;

    #[test]
    fn a_warm_file_is_found_in_memory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), vec![1; 100_000]).unwrap();
        let files = [file.path().to_owned()];
        let outcome = apply(Cache::Warm, &files, 100_000, &NoProgress, &AtomicBool::new(false)).unwrap();
        assert_eq!(outcome.method, CacheMethod::ReadOnce);
        assert_eq!(outcome.cached_bytes, Some(100_000));
        assert!(!outcome.is_warmer_than_asked());
    }

    #[test]
    fn a_cold_run_with_data_in_memory_says_so() {
        let outcome = CacheOutcome {
            requested: Cache::Cold,
            method: CacheMethod::Advice,
            cached_bytes: Some(4096),
            total_bytes: 8192,
        };
        assert!(outcome.is_warmer_than_asked());
        assert!(outcome.describe().contains("not root"), "{}", outcome.describe());
    }
}
