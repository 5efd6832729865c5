//! Changes that only the owner of a file may make: mode, owner, group and ACLs.
//!
//! The kernel above compares the caller with the owner that it knows, which may be as old as the timeout of attributes.
//! If the source was changed behind the mount, the file may belong to another user by now; setuid, setgid or an ACL
//! would then stay on that user's file. So the host makes the comparison again, atomically with the change: the call is made
//! as the caller and without the capabilities that override ownership. If the host refuses a change that the kernel
//! granted, the answer is [`FsError::Stale`]: the kernel looks the name up again and decides anew.
//!
//! The daemon of an ordinary user can't make calls as the caller. It compares the owner itself, right before the call.
//!
//! Calls of user 0 are made as the daemon, and so are all calls with an [`IdMap`](crate::IdMap), under which owners,
//! modes and ACLs of the source never change.

use std::os::fd::BorrowedFd;

use rustix::thread::CapabilitySet;
use vfs::{Caller, FsError, FsResult};

use crate::PassFs;
use crate::attributes::stat;
use crate::identity::{Ids, can_be_another, without};
use crate::process::Process;

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Mode or ACL.
    Rights,
    /// Mode with setgid, which depends on the caller's groups.
    RightsOfGroup,
    /// Owner or group.
    Owner,
}

impl Change {
    /// The capability that permits the change of another user's file.
    const fn power(self) -> CapabilitySet {
        match self {
            Self::Rights | Self::RightsOfGroup => CapabilitySet::FOWNER,
            Self::Owner => CapabilitySet::CHOWN,
        }
    }

    /// The capabilities without which the host makes the comparison.
    fn given_up(self) -> CapabilitySet {
        match self {
            Self::Rights => CapabilitySet::FOWNER,
            Self::RightsOfGroup => CapabilitySet::FOWNER | CapabilitySet::FSETID,
            Self::Owner => CapabilitySet::CHOWN,
        }
    }
}

impl PassFs {
    /// Makes `call`, a change of the file behind `fd`; without a caller, as the daemon.
    pub(crate) fn as_owner<T>(
        &self,
        caller: Option<&Caller>,
        fd: BorrowedFd<'_>,
        change: Change,
        call: impl Fn() -> FsResult<T>,
    ) -> FsResult<T> {
        let Some(caller) = caller.filter(|caller| caller.uid != 0 && self.config.id_map.is_none()) else {
            return call();
        };
        if !can_be_another()? {
            let is_daemon_s = caller.uid == rustix::process::geteuid().as_raw();
            return match is_daemon_s || stat(fd)?.stx_uid == caller.uid {
                true => call(),
                false => Err(FsError::Stale),
            };
        }
        let mut given_up = change.given_up();
        let process = match change {
            Change::Rights => None,
            Change::RightsOfGroup | Change::Owner => Process::of(caller),
        };
        let ids = Ids {
            uid: caller.uid,
            gid: caller.gid,
            groups: process.as_ref().map_or(&[], |process| &process.groups),
        };
        match without(given_up, ids, &call)? {
            Err(FsError::NotPermitted) => {}
            other => return other,
        }
        let found = stat(fd)?;
        let owner = (found.stx_uid, found.stx_gid);
        let is_able = |process: &Process| {
            process.capabilities.contains(change.power()) && process.has_power_over(owner)
        };
        let Some(process) = process.or_else(|| Process::of(caller)).filter(is_able) else {
            return Err(match owner.0 == caller.uid {
                true => FsError::NotPermitted,
                false => FsError::Stale,
            });
        };
        if change == Change::Owner || process.has_power_over_all() {
            return call();
        }
        // As that owner the host still refuses a file that gets another owner at this moment.
        given_up = CapabilitySet::FOWNER | (given_up - process.capabilities);
        let ids = Ids {
            uid: owner.0,
            gid: owner.1,
            groups: &process.groups,
        };
        without(given_up, ids, &call)?.map_err(|error| match error {
            FsError::NotPermitted => FsError::Stale,
            error => error,
        })
    }
}
