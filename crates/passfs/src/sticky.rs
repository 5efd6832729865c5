//! Removing and renaming in sticky directories: only the owner of a file, or of the directory, may.
//!
//! The kernel above applies that rule to the inode that it believes the name to lead to. Where the source was changed behind
//! the mount the name leads to another one by now, which may be somebody else's. So the host applies the rule once more, to
//! what it removes and as it removes it: the call is made as the caller and without `CAP_FOWNER`. Where the host refuses
//! what the kernel granted, the answer is [`FsError::Stale`]: the kernel looks the name up again and decides anew.

use std::fs;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Statx, StatxFlags};
use rustix::io::Errno;
use vfs::{Caller, FsError, FsResult};

use crate::PassFs;
use crate::identity::{errno, owning};

/// `CAP_FOWNER`
const FOWNER_BIT: u64 = 1 << 3;

/// A name that a call takes away or replaces.
pub(crate) type Place<'a> = (BorrowedFd<'a>, &'a [u8]);

impl PassFs {
    /// Makes `call`, which takes the names at `places` away or replaces them.
    pub(crate) fn taking_away(
        &self,
        caller: &Caller,
        places: &[Place<'_>],
        call: impl Fn() -> Result<(), Errno>,
    ) -> FsResult<()> {
        // Under a map every file shows the same owner, and one without the rule's protection below it.
        let is_plain = caller.uid == 0 || self.config.id_map.is_some();
        if is_plain || !places.iter().any(|(directory, _)| is_sticky(*directory)) {
            return call().map_err(errno);
        }
        match owning((caller.uid, caller.gid), &call)? {
            Err(Errno::PERM) => {}
            other => return other.map_err(errno),
        }
        let Some(foreign) = places.iter().find_map(|place| foreign_owner(caller, place)) else {
            return Err(FsError::NotPermitted);
        };
        match powers_over_files_of_others(caller.pid) {
            Powers::All => call().map_err(errno),
            Powers::Over(users) if users.iter().any(|range| range.contains(&foreign.0.into())) => {
                // As that owner the host still refuses a file that is put there at this moment.
                owning(foreign, &call)?.map_err(|error| match error {
                    Errno::PERM => FsError::Stale,
                    error => errno(error),
                })
            }
            Powers::Over(_) => Err(FsError::Stale),
        }
    }
}

fn look(directory: BorrowedFd<'_>, name: &[u8], flags: AtFlags) -> Option<Statx> {
    let wanted = StatxFlags::MODE | StatxFlags::UID | StatxFlags::GID;
    rustix::fs::statx(directory, name, flags, wanted).ok()
}

fn is_sticky(directory: BorrowedFd<'_>) -> bool {
    look(directory, b"", AtFlags::EMPTY_PATH)
        .is_none_or(|found| u32::from(found.stx_mode) & libc::S_ISVTX != 0)
}

/// Owner and group of what lies at a place, where the rule keeps it from the caller.
fn foreign_owner(caller: &Caller, (directory, name): &Place<'_>) -> Option<(u32, u32)> {
    let folder = look(*directory, b"", AtFlags::EMPTY_PATH)?;
    let found = look(*directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let is_kept = u32::from(folder.stx_mode) & libc::S_ISVTX != 0
        && folder.stx_uid != caller.uid
        && found.stx_uid != caller.uid;
    is_kept.then_some((found.stx_uid, found.stx_gid))
}

/// Whose files a process with `CAP_FOWNER` may treat as its own.
enum Powers {
    All,
    /// Those of the users that its user namespace maps; none without the capability.
    Over(Vec<Range<u64>>),
}

fn powers_over_files_of_others(pid: u32) -> Powers {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let effective = read("status")
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|value| u64::from_str_radix(value.trim(), 16).ok())
        .unwrap_or(0);
    if effective & FOWNER_BIT == 0 {
        return Powers::Over(Vec::new());
    }
    let users: Vec<_> = read("uid_map").lines().filter_map(mapped).collect();
    match users.as_slice() {
        [all] if *all == (0..u64::from(u32::MAX)) => Powers::All,
        _ => Powers::Over(users),
    }
}

/// The users, as the daemon counts them, of a line of `uid_map`.
fn mapped(line: &str) -> Option<Range<u64>> {
    let mut numbers = line.split_whitespace().map(str::parse::<u64>);
    let (_inside, first, count) = (
        numbers.next()?.ok()?,
        numbers.next()?.ok()?,
        numbers.next()?.ok()?,
    );
    Some(first..first.checked_add(count)?)
}
