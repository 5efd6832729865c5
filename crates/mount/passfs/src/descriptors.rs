//! The process's descriptor limit: raised as far as privileges allow, with a reserve that open files can't use.
//!
//! The caller's programs share this process's descriptors: one that opens as many files as it may could use all of
//! them. The last ones are reserved for calls that must keep working for all callers: lookups, listings, attributes of
//! inodes referenced by handle, duplicates at close. So opening and creating fail first, before a file is created or
//! truncated. Open directories, and inodes that only a descriptor references, use at most half of the reserve: the
//! other half is for descriptors that a call closes before it returns. So a close never fails for lack of one.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::process::{Resource, Rlimit};
use vfs::{FsError, FsResult};

/// Assumed if the host's own limit can't be read.
const NR_OPEN_USUAL: u64 = 1 << 20;
/// Each open checks the remaining descriptors once this few are left before the reserve.
const SLACK: u64 = 16;

#[derive(Debug)]
pub(crate) struct Descriptors {
    /// The resulting limit.
    pub max: u64,
    /// Numbers from here on are not for open files.
    files_max: u64,
    /// Numbers from here on are for descriptors that do not outlive a call.
    held_max: u64,
    /// An open file has received one of the last numbers for files.
    is_tight: AtomicBool,
}

impl Descriptors {
    /// Raises the soft limit to the hard one, and, if permitted (`CAP_SYS_RESOURCE`), both to the host's maximum for
    /// any process (`fs.nr_open`). Fails silently: calls report when the limit is reached.
    pub(crate) fn raise() -> Self {
        let now = rustix::process::getrlimit(Resource::Nofile);
        let nr_open = std::fs::read_to_string("/proc/sys/fs/nr_open").ok();
        let nr_open = nr_open.and_then(|text| text.trim().parse().ok());
        let nr_open = nr_open.unwrap_or(NR_OPEN_USUAL);
        let hard = now.maximum.unwrap_or(nr_open);
        let set = |limit: u64| {
            let limits = Rlimit {
                current: Some(limit),
                maximum: Some(limit),
            };
            rustix::process::setrlimit(Resource::Nofile, limits).is_ok()
        };
        let raised = [nr_open.max(hard), hard].into_iter().find(|limit| set(*limit));
        Self::of(raised.or(now.current).unwrap_or(hard))
    }

    fn of(max: u64) -> Self {
        let kept = (max / 64).clamp(16, 256);
        Self {
            max,
            files_max: max.saturating_sub(kept),
            held_max: max.saturating_sub(kept / 2),
            is_tight: AtomicBool::new(false),
        }
    }

    /// Fails if an open file with this number of descriptors would use the reserve. `list` is `/proc/self/fd`.
    pub(crate) fn admit_file(&self, list: impl AsFd, count: u64) -> FsResult<()> {
        if !self.is_tight.load(Relaxed) {
            return Ok(());
        }
        let used = used(list)?;
        if used + count > self.files_max {
            return Err(FsError::TooManyOpenFiles);
        }
        if used + SLACK < self.files_max {
            self.is_tight.store(false, Relaxed);
        }
        Ok(())
    }

    /// Fails if the descriptor must not outlive this call.
    pub(crate) fn admit_held(&self, descriptor: impl AsFd) -> FsResult<()> {
        match number(descriptor) < self.held_max {
            true => Ok(()),
            false => Err(FsError::TooManyOpenFiles),
        }
    }

    /// Notes the number that an open file has received.
    pub(crate) fn opened(&self, file: impl AsFd) {
        if number(file) + SLACK >= self.files_max {
            self.is_tight.store(true, Relaxed);
        }
    }
}

/// Number of open descriptors; `list` is `/proc/self/fd`, whose size tells it since Linux 6.2. Before, the lowest free
/// number is taken for it, which the host assigns next.
fn used(list: impl AsFd) -> FsResult<u64> {
    let told = rustix::fs::fstat(&list).map_or(0, |stat| stat.st_size.cast_unsigned());
    if told > 0 {
        return Ok(told);
    }
    let probe = rustix::io::fcntl_dupfd_cloexec(list, 0).map_err(|_| FsError::TooManyOpenFiles)?;
    Ok(number(probe))
}

fn number(descriptor: impl AsFd) -> u64 {
    u64::try_from(descriptor.as_fd().as_raw_fd()).expect("an open descriptor is not negative")
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn files_are_refused_before_the_reserve_and_let_in_again_when_some_are_closed() {
        let list = File::open("/proc/self/fd").unwrap();
        // Other tests of this process use descriptors too: a reserve that begins at 0 is full, one far away is not.
        let full = Descriptors {
            files_max: 0,
            ..Descriptors::of(64)
        };
        assert_eq!(full.admit_file(&list, 1), Ok(()), "nothing was opened");
        full.opened(&list);
        assert_eq!(full.admit_file(&list, 1), Err(FsError::TooManyOpenFiles));
        let wide = Descriptors::of(1 << 20);
        wide.is_tight.store(true, Relaxed);
        assert_eq!(wide.admit_file(&list, 2), Ok(()));
        assert!(!wide.is_tight.load(Relaxed));
    }

    #[test]
    fn descriptors_are_counted_whatever_their_numbers() {
        let list = File::open("/proc/self/fd").unwrap();
        let mut held: Vec<_> = (0..500).map(|_| list.try_clone().unwrap()).collect();
        let tells = rustix::fs::fstat(&list).unwrap().st_size > 0;
        // The lowest of these numbers is free then.
        held.remove(0);
        let used = used(&list).unwrap();
        assert!(used >= 500 || !tells, "{used} descriptors");
    }
}
