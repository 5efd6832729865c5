//! Credentials of the worker thread: file system ids, groups, umask, and the capabilities that override permissions.
//!
//! Linux keeps them per thread, so each worker thread changes its own and no lock is needed. At rest a thread has the
//! daemon's ids and capabilities. [`acting_as`], [`with_privileges`] and [`without`] change them for one closure and
//! restore them afterwards, also if it fails or panics: everything else that the thread does, for this file system or
//! another layer, it does as the daemon. A caller with the daemon's own ids costs no system call.
//!
//! It is neither a permission check (the kernel above made it) nor a sandbox. Real, effective and saved ids stay
//! unchanged, and so do the capabilities except [`CHANGED`] in the effective set. Supplementary groups are dropped on
//! each thread that changes ids: the protocol names one group of the caller, and the daemon's are not the caller's.
//!
//! Invariants:
//! - A thread without `CAP_SETUID`, `CAP_SETGID` and `CAP_SETPCAP` never changes ids: files that it creates belong to
//!   the daemon, as for every FUSE file system of an ordinary user.
//! - `SECBIT_NO_SETUID_FIXUP` is set on a thread before its file system uid changes, so that its capabilities survive.
//! - The umask of a thread only matters in calls that create something, and each of them sets it.

use std::cell::RefCell;
use std::marker::PhantomData;

use rustix::fs::{Gid, Mode};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, UnshareFlags, capabilities,
    capabilities_secure_bits, set_capabilities, set_capabilities_secure_bits, set_thread_groups,
    unshare_unsafe,
};
use vfs::{FsError, FsResult, Privileges};

/// The capabilities that some calls drop.
const CHANGED: [CapabilitySet; 5] = [
    CapabilitySet::FSETID,
    CapabilitySet::FOWNER,
    CapabilitySet::CHOWN,
    CapabilitySet::DAC_OVERRIDE,
    CapabilitySet::DAC_READ_SEARCH,
];

/// Credentials of a creating call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Creator<'a> {
    /// Owner and group of the new file; `None` uses the daemon's own.
    pub ids: Option<(u32, u32)>,
    /// Umask for the host to apply if the parent has no default ACL.
    pub umask: u32,
    /// Supplementary groups of the caller, for the host to check whether setgid stays. `None` keeps it.
    pub checked_groups: Option<&'a [u32]>,
}

struct ThreadIdentity {
    capabilities: CapabilitySets,
    changes_ids: bool,
    own_umask: bool,
    /// The daemon's ids, before any request.
    daemon: (u32, u32),
    uid: u32,
    gid: u32,
    /// Supplementary groups of a caller are set; at rest there are none.
    has_groups: bool,
    umask: u32,
}

thread_local! {
    static THREAD: RefCell<Option<ThreadIdentity>> = const { RefCell::new(None) };
}

/// A change of the calling thread's credentials, undone on drop. It stays on its thread.
struct Changed {
    _not_send: PhantomData<*const ()>,
}

impl Changed {
    /// Makes `change`; if it fails part of the way, it is undone as well.
    fn by(change: impl FnOnce(&mut ThreadIdentity) -> FsResult<()>) -> FsResult<Self> {
        let changed = Self {
            _not_send: PhantomData,
        };
        THREAD.with_borrow_mut(|slot| {
            if slot.is_none() {
                *slot = Some(ThreadIdentity::of_this_thread()?);
            }
            change(slot.as_mut().expect("filled above"))
        })?;
        Ok(changed)
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        THREAD.with_borrow_mut(|slot| slot.iter_mut().for_each(ThreadIdentity::restore));
    }
}

/// Runs `call` as `creator`, with `CAP_FSETID` if the daemon has it and setgid is not to be checked.
pub(crate) fn acting_as<T>(creator: Creator<'_>, call: impl FnOnce() -> T) -> FsResult<T> {
    let _changed = Changed::by(|thread| {
        thread.set_umask(creator.umask & 0o777)?;
        if let Some((uid, gid)) = creator.ids {
            thread.set_ids(uid, gid)?;
        }
        match creator.checked_groups {
            Some(groups) if thread.changes_ids => {
                thread.set_groups(groups)?;
                thread.set_effective(CapabilitySet::FSETID, false)
            }
            _ => Ok(()),
        }
    })?;
    Ok(call())
}

/// Runs `call`, a change of content, so that it keeps or clears setuid, setgid and file capabilities.
///
/// The host decides: for setgid it checks whether the thread is in the file's group. A group that the daemon's user
/// namespace does not map can't be assumed; the thread then keeps its group.
pub(crate) fn with_privileges<T>(privileges: Privileges, call: impl FnOnce() -> T) -> FsResult<T> {
    let Privileges::Kill { gid } = privileges else {
        return Ok(call());
    };
    let _changed = Changed::by(|thread| {
        thread.set_gid(gid);
        thread.set_effective(CapabilitySet::FSETID, false)
    })?;
    Ok(call())
}

/// Whether this thread can make calls with other ids. The daemon of an ordinary user can't.
pub(crate) fn can_be_another() -> FsResult<bool> {
    let mut can = false;
    let _unchanged = Changed::by(|thread| {
        can = thread.changes_ids;
        Ok(())
    })?;
    Ok(can)
}

/// Ids and groups for a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ids<'a> {
    pub uid: u32,
    pub gid: u32,
    pub groups: &'a [u32],
}

/// Runs `call` as `ids` and without the capabilities `given_up`, so that the host checks the rights of `ids`. All other
/// capabilities stay.
pub(crate) fn without<T>(given_up: CapabilitySet, ids: Ids<'_>, call: impl FnOnce() -> T) -> FsResult<T> {
    let _changed = Changed::by(|thread| {
        thread.set_ids(ids.uid, ids.gid)?;
        // A daemon that can't assume the caller's ids has no more rights than its own user.
        if thread.changes_ids {
            thread.set_groups(ids.groups)?;
            for capability in CHANGED {
                if given_up.contains(capability) {
                    thread.set_effective(capability, false)?;
                }
            }
        }
        Ok(())
    })?;
    Ok(call())
}

impl ThreadIdentity {
    fn of_this_thread() -> FsResult<Self> {
        let capabilities = capabilities(None).map_err(errno)?;
        let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::SETPCAP;
        let changes_ids =
            capabilities.effective.contains(needed) && keep_capabilities_over_setfsuid().is_ok();
        if changes_ids {
            // Refused in a user namespace that denies setgroups; the daemon's groups then count as the caller's.
            let _refused = set_thread_groups(&[]);
        }
        let (uid, gid) = (current_fsuid(), current_fsgid());
        Ok(Self {
            capabilities,
            changes_ids,
            own_umask: false,
            daemon: (uid, gid),
            uid,
            gid,
            has_groups: false,
            umask: u32::MAX,
        })
    }

    /// Restores the daemon's credentials on the thread.
    ///
    /// # Panics
    /// If the host refuses, for lack of memory: no call may be made with foreign credentials.
    fn restore(&mut self) {
        let own_ids = self.set_ids(self.daemon.0, self.daemon.1);
        let own_groups = self.set_groups(&[]);
        let own_capabilities = CHANGED.map(|capability| self.set_effective(capability, true));
        assert!(
            own_ids.is_ok() && own_groups.is_ok() && own_capabilities.iter().all(Result::is_ok),
            "a worker thread is user {} and group {} and can't become {:?} again",
            self.uid,
            self.gid,
            self.daemon
        );
    }

    fn set_ids(&mut self, uid: u32, gid: u32) -> FsResult<()> {
        if !self.changes_ids {
            return Ok(());
        }
        self.set_gid(gid);
        if self.uid != uid {
            // SAFETY: setfsuid takes no pointers; it changes the calling thread's credentials only.
            unsafe { libc::setfsuid(uid) };
            self.uid = current_fsuid();
        }
        // The host silently refuses an id that the daemon's user namespace does not map.
        if (self.uid, self.gid) == (uid, gid) {
            Ok(())
        } else {
            Err(FsError::Overflow)
        }
    }

    fn set_gid(&mut self, gid: u32) {
        if self.changes_ids && self.gid != gid {
            // SAFETY: setfsgid takes no pointers; it changes the calling thread's credentials only.
            unsafe { libc::setfsgid(gid) };
            self.gid = current_fsgid();
        }
    }

    fn set_groups(&mut self, groups: &[u32]) -> FsResult<()> {
        if groups.is_empty() && !self.has_groups {
            return Ok(());
        }
        let groups: Vec<_> = groups.iter().copied().map(Gid::from_raw).collect();
        set_thread_groups(&groups).map_err(errno)?;
        self.has_groups = !groups.is_empty();
        Ok(())
    }

    fn set_umask(&mut self, umask: u32) -> FsResult<()> {
        if !self.own_umask {
            // SAFETY: CLONE_FS separates umask, root and working directory only; descriptors stay shared.
            unsafe { unshare_unsafe(UnshareFlags::FS) }.map_err(errno)?;
            self.own_umask = true;
        }
        if self.umask != umask {
            rustix::process::umask(Mode::from_bits_retain(umask));
            self.umask = umask;
        }
        Ok(())
    }

    fn set_effective(&mut self, capability: CapabilitySet, raised: bool) -> FsResult<()> {
        let may_raise = self.capabilities.permitted.contains(capability);
        if self.capabilities.effective.contains(capability) == (raised && may_raise) {
            return Ok(());
        }
        let mut wanted = self.capabilities;
        wanted.effective.set(capability, raised);
        set_capabilities(None, wanted).map_err(errno)?;
        self.capabilities = wanted;
        Ok(())
    }
}

fn keep_capabilities_over_setfsuid() -> Result<(), Errno> {
    let bits = capabilities_secure_bits()?;
    if bits.contains(CapabilitiesSecureBits::NO_SETUID_FIXUP) {
        return Ok(());
    }
    set_capabilities_secure_bits(bits | CapabilitiesSecureBits::NO_SETUID_FIXUP)
}

/// Reads the file system uid: all ones is no valid id, so the call changes nothing. The C library's prototype says
/// `int`, but the value is an unsigned id.
fn current_fsuid() -> u32 {
    // SAFETY: no pointers; an invalid id leaves the credentials as they are.
    unsafe { libc::setfsuid(u32::MAX) }.cast_unsigned()
}

fn current_fsgid() -> u32 {
    // SAFETY: no pointers; an invalid id leaves the credentials as they are.
    unsafe { libc::setfsgid(u32::MAX) }.cast_unsigned()
}

/// Converts a host errno.
pub(crate) fn errno(error: Errno) -> FsError {
    FsError::from_errno(error.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_panic_leaves_the_thread_with_its_own_ids_and_capabilities() {
        let state = || {
            let effective = capabilities(None).unwrap().effective;
            (current_fsuid(), current_fsgid(), effective)
        };
        let own = state();
        let nobody = Creator {
            ids: Some((65534, 65534)),
            umask: 0,
            checked_groups: None,
        };
        let mut inside = Vec::new();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            acting_as(nobody, || {
                inside.push(state());
                panic!("part of the test");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(state(), own);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            with_privileges(Privileges::Kill { gid: 65534 }, || {
                inside.push(state());
                panic!("part of the test");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(state(), own);
        if rustix::process::geteuid().is_root() {
            assert_eq!((inside[0].0, inside[0].1), (65534, 65534));
            assert_eq!((inside[1].0, inside[1].1), (own.0, 65534));
            assert!(!inside[1].2.contains(CapabilitySet::FSETID));
        }
    }
}
