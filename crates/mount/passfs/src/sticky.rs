//! Removing and renaming under rules that require more than write access to the directory.
//!
//! - In a sticky directory only the owner of a file, or of the directory, may remove its name.
//! - Moving a directory into another one requires write access to the moved directory, as its `..` changes.
//!
//! The kernel above applies these rules to the inode that it associates with the name. If the source was changed behind
//! the mount, the name now leads to another inode, which may belong to another user. So the host applies the rules
//! again, atomically with the removal: the call is made as the caller and without the capabilities that override the
//! rule. If the host refuses an operation that the kernel granted, the answer is [`FsError::Stale`]: the kernel looks
//! the name up again and decides anew.
//!
//! The daemon of an ordinary user can't make calls as the caller, so the host would check the rights of the wrong user.
//! It checks the owner of the file itself, right before the call.
//!
//! The caller's supplementary groups and capabilities are those of [`Process`].

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Statx, StatxFlags};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use vfs::{Caller, FsError, FsResult};

use crate::PassFs;
use crate::identity::{Ids, can_be_another, errno, without};
use crate::process::Process;

/// A name that a call removes or replaces.
pub(crate) type Place<'a> = (BorrowedFd<'a>, &'a [u8]);

/// Whether the call moves a file into another directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moves {
    Within,
    Between,
}

impl PassFs {
    /// Makes `call`, which removes or replaces the names at `places`.
    pub(crate) fn taking_away(
        &self,
        caller: &Caller,
        places: &[Place<'_>],
        moves: Moves,
        call: impl Fn() -> Result<(), Errno>,
    ) -> FsResult<()> {
        let mut given_up = CapabilitySet::empty();
        // Under an id map every file shows the same owner, and the rules do not protect the files below.
        if self.config.id_map.is_none() {
            if moves == Moves::Between {
                given_up |= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            }
            if places.iter().any(|(folder, _)| is_sticky(*folder)) {
                given_up |= CapabilitySet::FOWNER;
            }
        }
        if given_up.is_empty() {
            return call().map_err(errno);
        }
        if !can_be_another()? {
            return match places.iter().all(|place| may_take(caller, place)) {
                true => call().map_err(errno),
                false => Err(FsError::Stale),
            };
        }
        let mut ids = Ids {
            uid: caller.uid,
            gid: caller.gid,
            groups: &[],
        };
        match without(given_up, ids, &call)? {
            Err(Errno::PERM | Errno::ACCESS) => {}
            other => return other.map_err(errno),
        }
        let Some(process) = Process::of(caller) else {
            return Err(FsError::Stale);
        };
        ids.groups = &process.groups;
        let why = match without(given_up, ids, &call)? {
            Err(why @ (Errno::PERM | Errno::ACCESS)) => why,
            other => return other.map_err(errno),
        };
        let foreign = places.iter().find_map(|place| foreign_owner(caller, place));
        let power = match (why, foreign) {
            (Errno::PERM, None) => return Err(FsError::NotPermitted),
            (Errno::PERM, Some(_)) => CapabilitySet::FOWNER,
            _ => CapabilitySet::DAC_OVERRIDE,
        };
        if !process.capabilities.contains(power)
            || !places.iter().all(|place| has_power_over(&process, place))
        {
            return Err(FsError::Stale);
        }
        given_up -= process.capabilities;
        // As that owner the host still refuses another user's file that is put there at this moment. A moved directory
        // needs the capability: there, one can be exchanged between the check and the call.
        if let (Errno::PERM, Some((uid, gid)), false) = (why, foreign, process.has_power_over_all()) {
            given_up |= CapabilitySet::FOWNER;
            (ids.uid, ids.gid) = (uid, gid);
        }
        without(given_up, ids, &call)?.map_err(|error| match error {
            Errno::PERM | Errno::ACCESS => FsError::Stale,
            error => errno(error),
        })
    }
}

fn look(folder: BorrowedFd<'_>, name: &[u8], flags: AtFlags) -> Option<Statx> {
    let wanted = StatxFlags::MODE | StatxFlags::UID | StatxFlags::GID;
    rustix::fs::statx(folder, name, flags, wanted).ok()
}

fn is_sticky(folder: BorrowedFd<'_>) -> bool {
    look(folder, b"", AtFlags::EMPTY_PATH).is_none_or(|found| u32::from(found.stx_mode) & libc::S_ISVTX != 0)
}

/// The rule of sticky directories, for a daemon that can't make the call as the caller.
fn may_take(caller: &Caller, place: &Place<'_>) -> bool {
    foreign_owner(caller, place).is_none()
        || Process::of(caller).is_some_and(|process| {
            process.capabilities.contains(CapabilitySet::FOWNER) && has_power_over(&process, place)
        })
}

/// Owner and group of the file with this name, if the rule of sticky directories denies it to the caller.
fn foreign_owner(caller: &Caller, (folder, name): &Place<'_>) -> Option<(u32, u32)> {
    let found = look(*folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let folder = look(*folder, b"", AtFlags::EMPTY_PATH)?;
    let is_kept = u32::from(folder.stx_mode) & libc::S_ISVTX != 0
        && folder.stx_uid != caller.uid
        && found.stx_uid != caller.uid;
    is_kept.then_some((found.stx_uid, found.stx_gid))
}

/// True also if there is no such name.
fn has_power_over(process: &Process, (folder, name): &Place<'_>) -> bool {
    look(*folder, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_none_or(|found| process.has_power_over((found.stx_uid, found.stx_gid)))
}
