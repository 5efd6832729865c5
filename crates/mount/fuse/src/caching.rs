//! Time for which the kernel may keep answers: names (also of files that do not exist), attributes and listings.
//!
//! - **Timed**: for the configured times.
//! - **Private**: nothing bypasses the file system below ([`vfs::Bypass::Never`]). The configured times hold for absent
//!   names too, and listings are kept.
//! - **Told**: the file system below reports changes ([`vfs::Bypass::Reported`]), and the kernel is notified
//!   ([`crate::notify`]). Answers about reported inodes and names are kept until then, but at most for [`REPORTED`]; a
//!   listing stays for longer, as the kernel compares the time of the directory. All others are timed, and so are all if
//!   the reports end. The limit is for changes that no host reports: writes through a shared mapping or by AIO before the
//!   file is closed, access times, and space that the host allocates when it writes data out.
//!
//! # Answers that stay timed
//! - Attributes of a file that is open through the mount without passthrough, as reads of its cached data rely on them;
//!   and of a file that is open for writing, for which the file system below may suspend reports: under passthrough each
//!   write through the mount would be one.
//! - Attributes in replies to SETATTR and LINK. The kernel takes them over unconditionally, so they may overwrite a
//!   notification that was sent after they were read. In all other replies the kernel detects that, except for an inode
//!   that it does not know yet: that notification fails, and is repeated until it knows it.
//!
//! # Files that may be mapped
//! Under passthrough a store through a shared mapping changes a file's times, and neither this process nor the kernel's
//! FUSE code notices. The attributes of a file that is open for reading and writing therefore have no lifetime
//! ([`Sharing::Mapped`]), but for [`CREATED_MAX`] in the reply that creates it: the kernel uses them to check permissions
//! in the same call, and a program often queries the file at once. A new file is empty, and a mapping of it can be stored
//! to only after a call has extended it; through this mount that call makes the kernel discard times and size.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use vfs::{Attr, Bypass, ChangeListener, FileSystem, Ino, Reports};

use crate::config::Coherence;
use crate::inode_states::Sharing;
use crate::reply::Trust;
use crate::stats::SessionStats;

/// Lifetime of reported names and attributes.
const REPORTED: Duration = Duration::from_secs(60);

/// Longest lifetime of the attributes of a new file that may be mapped. The kernel rounds it up to its ticks and drops the
/// attributes a tick later: 16 ms at 250 Hz.
const CREATED_MAX: Duration = Duration::from_millis(10);

/// Number of notifications by kind.
pub struct Told {
    names: AtomicU64,
    inodes: AtomicU64,
    all_names: AtomicU64,
}

impl Told {
    pub fn name(&self) {
        self.names.fetch_add(1, Relaxed);
    }

    pub fn inode(&self) {
        self.inodes.fetch_add(1, Relaxed);
    }

    pub fn all_names(&self) {
        self.all_names.fetch_add(1, Relaxed);
    }

    /// Adds the counts to `stats`.
    pub fn add_to(&self, stats: &mut SessionStats) {
        stats.names_invalidated = self.names.load(Relaxed);
        stats.inodes_invalidated = self.inodes.load(Relaxed);
        stats.everything_invalidated = self.all_names.load(Relaxed);
    }
}

/// See the module's description.
pub struct Caching {
    timed: Trust,
    keeps_written_data: bool,
    settled: OnceLock<Settled>,
    is_live: AtomicBool,
    ended: Mutex<Option<String>>,
    pub told: Told,
}

/// Decisions that hold for the whole mount.
struct Settled {
    coherence: Coherence,
    lists_without_handles: bool,
    keeps_listings: bool,
}

/// Properties of the mount that decide about listings.
#[derive(Clone, Copy, Debug)]
pub struct Listings {
    /// The kernel accepts a refused OPENDIR.
    pub handles_are_optional: bool,
    /// Each listing must reach the file system below, which updates access times.
    pub are_counted: bool,
}

impl Caching {
    /// All answers are timed until [`Caching::settle`].
    pub const fn new(timed: Trust, keeps_written_data: bool) -> Self {
        Self {
            timed,
            keeps_written_data,
            settled: OnceLock::new(),
            is_live: AtomicBool::new(false),
            ended: Mutex::new(None),
            told: Told {
                names: AtomicU64::new(0),
                inodes: AtomicU64::new(0),
                all_names: AtomicU64::new(0),
            },
        }
    }

    /// Sets the coherence in use, as returned by [`choose`], before the first request.
    pub fn settle(&self, coherence: Coherence, listings: Listings, file_system: &dyn FileSystem) {
        let keeps_listings = coherence != Coherence::Timeout && !listings.are_counted;
        let settled = Settled {
            coherence,
            lists_without_handles: keeps_listings
                && listings.handles_are_optional
                && file_system.lists_by_offset(),
            keeps_listings,
        };
        let _ = self.settled.set(settled);
        let has_ended = self.ended().is_some();
        self.is_live
            .store(coherence == Coherence::Watch && !has_ended, Relaxed);
    }

    /// OPENDIR is refused with ENOSYS: the kernel opens directories by itself, and keeps their listings.
    pub fn lists_without_handles(&self) -> bool {
        self.settled
            .get()
            .is_some_and(|settled| settled.lists_without_handles)
    }

    fn coherence(&self) -> Coherence {
        self.settled
            .get()
            .map_or(Coherence::Timeout, |settled| settled.coherence)
    }

    pub const fn keeps_written_data(&self) -> bool {
        self.keeps_written_data
    }

    /// Changes are reported and passed on to the kernel.
    pub fn is_told(&self) -> bool {
        self.is_live.load(Relaxed)
    }

    /// The reports have ended: answers are timed from now on.
    pub fn end(&self, reason: &str) {
        self.is_live.store(false, Relaxed);
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
    }

    /// Reason why the reports have ended.
    pub fn ended(&self) -> Option<String> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The kernel may keep the listing of `directory`.
    pub fn keeps_listing(&self, file_system: &dyn FileSystem, directory: Ino) -> bool {
        let keeps_any = self.settled.get().is_some_and(|settled| settled.keeps_listings);
        keeps_any && self.reports_names(file_system, directory)
    }

    /// Lifetime of names that are not reported.
    pub const fn timed_entry(&self) -> Duration {
        self.timed.entry
    }

    /// Lifetime of names in `directory`.
    pub fn entry(&self, file_system: &dyn FileSystem, directory: Ino) -> Duration {
        match self.is_told() && file_system.reports_names_of(directory) {
            true => REPORTED,
            false => self.timed.entry,
        }
    }

    /// Lifetime of the knowledge that a name does not exist; `None` if the kernel must not keep it.
    pub fn absent(&self, file_system: &dyn FileSystem, directory: Ino) -> Option<Duration> {
        self.reports_names(file_system, directory)
            .then(|| self.entry(file_system, directory))
    }

    fn reports_names(&self, file_system: &dyn FileSystem, directory: Ino) -> bool {
        match self.coherence() {
            Coherence::Private => true,
            Coherence::Watch => self.is_told() && file_system.reports_names_of(directory),
            Coherence::Auto | Coherence::Timeout => false,
        }
    }

    /// Lifetime of attributes that the kernel discards if a notification has overtaken them.
    pub fn attr(&self, attr: &Attr, sharing: Sharing) -> Duration {
        match sharing {
            Sharing::Mapped => Duration::ZERO,
            Sharing::Open => self.timed.attr,
            Sharing::Quiet if !self.is_told() || !attr.is_reported => self.timed.attr,
            Sharing::Quiet => REPORTED,
        }
    }

    /// Lifetime of the attributes of a file that the request creates and opens.
    pub fn attr_of_created(&self, attr: &Attr, sharing: Sharing) -> Duration {
        match sharing {
            Sharing::Mapped => self.timed.attr.min(CREATED_MAX),
            Sharing::Open | Sharing::Quiet => self.attr(attr, sharing),
        }
    }

    /// Lifetime of attributes that the kernel takes over unconditionally.
    pub const fn attr_of_change(&self, sharing: Sharing) -> Duration {
        match sharing {
            Sharing::Mapped => Duration::ZERO,
            Sharing::Open | Sharing::Quiet => self.timed.attr,
        }
    }
}

/// Starts the reports that `wanted` asks for: returns the coherence in use, or the reason why it is
/// [`Coherence::Timeout`].
pub fn choose(
    wanted: Coherence,
    drops_all_names: bool,
    file_system: &dyn FileSystem,
    listener: Arc<dyn ChangeListener>,
) -> (Coherence, Result<Option<Reports>, String>) {
    if wanted == Coherence::Timeout {
        return (Coherence::Timeout, Ok(None));
    }
    match file_system.report_changes(listener) {
        Ok(Bypass::Never) => (Coherence::Private, Ok(None)),
        // Reports can be lost, and then every name must be invalidated.
        Ok(Bypass::Reported(_)) if !drops_all_names => {
            let reason = "this kernel can't invalidate all names at once (Linux 6.16 and newer can)";
            (Coherence::Timeout, Err(reason.to_owned()))
        }
        Ok(Bypass::Reported(reports)) => (Coherence::Watch, Ok(Some(reports))),
        Err(reason) => (Coherence::Timeout, Err(reason)),
    }
}

#[cfg(test)]
mod tests {
    use testkit::MemFs;
    use vfs::{FileKind, Timestamp};

    use super::*;

    fn timed(attr: Duration, entry: Duration) -> Caching {
        let caching = Caching::new(Trust { attr, entry }, false);
        let listings = Listings {
            handles_are_optional: true,
            are_counted: false,
        };
        caching.settle(Coherence::Timeout, listings, &MemFs::new());
        caching
    }

    #[test]
    fn attributes_of_a_file_that_may_be_mapped_have_a_short_lifetime_in_the_reply_that_creates_it_and_none_later()
     {
        let time = Timestamp::default();
        let attr = Attr {
            shown_ino: 1,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: None,
            mode: libc::S_IFREG,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            block_size: 4096,
            attributes: 0,
            attributes_mask: 0,
            is_reported: true,
        };
        assert_eq!(attr.kind(), FileKind::Regular);
        let second = Duration::from_secs(1);
        let caching = timed(second, second);
        assert_eq!(
            caching.attr_of_created(&attr, Sharing::Mapped),
            Duration::from_millis(10)
        );
        assert_eq!(caching.attr(&attr, Sharing::Mapped), Duration::ZERO);
        assert_eq!(caching.attr_of_change(Sharing::Mapped), Duration::ZERO);
    }
}
