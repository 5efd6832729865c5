//! State of inodes between requests: the I/O mode of their open files, whether the kernel caches a setuid or setgid bit, and
//! whether it caches data that was lost.
//!
//! # One I/O mode per inode
//! The kernel demands that either all open files of an inode are under passthrough, with the same backing file, or
//! none, and fails an open that differs with `EIO`. So the first open decides, and its decision holds until the last
//! release; the kernel is asked for passthrough again for each inode. The kernel leaves the mode before it sends
//! RELEASE, so its count of open files is never above the one here.
//!
//! # Bits sent to the kernel
//! Under HANDLE_KILLPRIV_V2 a write by an ordinary user clears setuid and setgid in the file system, and the kernel
//! keeps its cached attributes until they expire. It can only have cached a bit that a reply carried: those inodes are
//! recorded, so that the write that clears the bit can invalidate the kernel's attributes.
//!
//! # Lost data
//! The kernel keeps the data of a WRITE that failed, as if it were clean, until the reply to an open has it dropped
//! ([`vfs::LostContent`]).
//!
//! Inodes without any of these have no entry. Lock order: a shard's lock is held across the registering ioctl; the only lock
//! taken under it is that of the list of refusals.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use vfs::{Attr, FileKind, Handle, Ino, LostContent};

use crate::backing::{Backing, Registrar};

const SHARDS: usize = 16;
/// A shard that once had many entries shrinks to this capacity.
const ENTRIES_KEPT: usize = 64;

#[derive(Default)]
struct State {
    open: Option<OpenFiles>,
    /// A reply carried a setuid or setgid bit to the kernel.
    told_privileged: bool,
    lost: LostContent,
}

struct OpenFiles {
    count: u64,
    /// `None`: the daemon serves data requests.
    backing: Option<Backing>,
    /// Under passthrough: an open file may be mapped for writing. Such changes bypass both this process and the
    /// kernel's cached attributes.
    may_be_mapped: bool,
    /// Under passthrough: a file was opened for writing, which the kernel does itself.
    may_be_written: bool,
    /// Open for writing, or without passthrough: see [`crate::caching`].
    limits_attributes: bool,
}

/// Effect of the open files of an inode on the lifetime of its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// None.
    Quiet,
    /// A file is open for writing, or without passthrough.
    Open,
    /// The file may change through a mapping, unnoticed by this process and by the kernel's FUSE code.
    Mapped,
}

/// Use of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It is only read.
    Reads,
    /// It is only written.
    Writes,
    /// It is read and written, so that it can be mapped for writing.
    Maps,
}

/// Result of counting an open file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub passthrough: Option<Passthrough>,
    /// Attributes that were sent before carry a longer lifetime than is now allowed.
    pub outdates_attributes: bool,
}

/// Passthrough settings of an open file for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passthrough {
    /// The backing file.
    pub backing_id: i32,
    /// FLUSH is needed at each close, as the host's close may fail.
    pub close_may_fail: bool,
}

/// The state of all inodes that have any.
pub struct InodeStates {
    shards: [Mutex<HashMap<Ino, State>>; SHARDS],
    /// `None` without passthrough: open files then have one mode anyway.
    registrar: Option<Registrar>,
    /// Attributes may be kept until a change is reported, so that open files matter without passthrough too.
    counts_all: bool,
}

impl InodeStates {
    pub fn new(registrar: Option<Registrar>, counts_all: bool) -> Self {
        Self {
            counts_all,
            shards: std::array::from_fn(|_| Mutex::default()),
            registrar,
        }
    }

    fn shard(&self, ino: Ino) -> MutexGuard<'_, HashMap<Ino, State>> {
        let shards = u64::try_from(SHARDS).expect("a small constant");
        let index = usize::try_from(ino.0 % shards).expect("smaller than the constant");
        self.shards[index].lock().expect("no panic under this lock")
    }

    /// Counts one more open file of `ino`. `backing` supplies its host file; only the first open calls it.
    ///
    /// Returns the backing file if the inode is under passthrough.
    pub fn open(&self, ino: Ino, used: Use, backing: impl FnOnce() -> Option<Arc<OwnedFd>>) -> Counted {
        if self.registrar.is_none() && !self.counts_all {
            return Counted::default();
        }
        let register = |registrar: &Registrar| backing().and_then(|file| registrar.register(file.as_fd()));
        let mut shard = self.shard(ino);
        let open = shard
            .entry(ino)
            .or_default()
            .open
            .get_or_insert_with(|| OpenFiles {
                count: 0,
                backing: self.registrar.as_ref().and_then(register),
                may_be_mapped: false,
                may_be_written: false,
                limits_attributes: false,
            });
        open.count += 1;
        let has_backing = open.backing.is_some();
        let may_be_mapped = used == Use::Maps && has_backing;
        let limits_attributes = self.counts_all && (used != Use::Reads || !has_backing);
        let outdates_attributes = may_be_mapped || limits_attributes && !open.limits_attributes;
        open.may_be_mapped |= may_be_mapped;
        open.may_be_written |= used != Use::Reads && has_backing;
        open.limits_attributes |= limits_attributes;
        Counted {
            passthrough: open.backing.as_ref().map(|backing| Passthrough {
                backing_id: backing.id(),
                close_may_fail: backing.close_may_fail(),
            }),
            outdates_attributes,
        }
    }

    /// Whether the kernel may write to the file itself: it is open for writing under passthrough.
    pub fn may_be_written(&self, ino: Ino) -> bool {
        let shard = self.shard(ino);
        let open = shard.get(&ino).and_then(|state| state.open.as_ref());
        open.is_some_and(|open| open.may_be_written)
    }

    /// Counts one open file of `ino` fewer.
    pub fn release(&self, ino: Ino, handle: Handle) {
        let mut shard = self.shard(ino);
        let Some(state) = shard.get_mut(&ino) else { return };
        state.lost.released(handle);
        if let Some(open) = &mut state.open {
            open.count -= 1;
            if open.count == 0 {
                // Unregister under the lock, so that the next open never finds two registrations.
                state.open = None;
            }
        }
        tidy(&mut shard, ino);
    }

    /// Records that `attr` is sent to the kernel.
    pub fn tell(&self, ino: Ino, attr: &Attr) -> Sharing {
        let privileged = attr.kind() == FileKind::Regular && attr.mode & (libc::S_ISUID | libc::S_ISGID) != 0;
        let mut shard = self.shard(ino);
        if privileged {
            shard.entry(ino).or_default().told_privileged = true;
        }
        let Some(state) = shard.get_mut(&ino) else {
            return Sharing::Quiet;
        };
        let sharing = match &state.open {
            Some(open) if open.may_be_mapped => Sharing::Mapped,
            Some(open) if open.limits_attributes => Sharing::Open,
            Some(_) | None => Sharing::Quiet,
        };
        if state.told_privileged && !privileged {
            state.told_privileged = false;
            tidy(&mut shard, ino);
        }
        sharing
    }

    /// True if the kernel caches a setuid or setgid bit; the record is then removed.
    pub fn take_told_privileged(&self, ino: Ino) -> bool {
        let mut shard = self.shard(ino);
        let Some(state) = shard.get_mut(&ino) else {
            return false;
        };
        let told = std::mem::take(&mut state.told_privileged);
        tidy(&mut shard, ino);
        told
    }

    /// Whether anything is recorded of what the kernel caches of `ino`.
    pub fn is_recorded(&self, ino: Ino) -> bool {
        self.shard(ino)
            .get(&ino)
            .is_some_and(|state| state.told_privileged || state.lost.is_recorded())
    }

    /// Removes what is recorded of what the kernel caches of `ino`, which it has forgotten.
    pub fn forget(&self, ino: Ino) {
        let mut shard = self.shard(ino);
        if let Some(state) = shard.get_mut(&ino) {
            (state.told_privileged, state.lost) = (false, LostContent::None);
            tidy(&mut shard, ino);
        }
    }

    /// Records that a WRITE failed.
    pub fn lose_content(&self, ino: Ino) {
        self.shard(ino).entry(ino).or_default().lost.lose();
    }

    /// True if the kernel may keep data of a WRITE that failed, which the reply to the open of `handle` is to have dropped.
    pub fn must_drop_content(&self, ino: Ino, handle: Handle) -> bool {
        let mut shard = self.shard(ino);
        shard
            .get_mut(&ino)
            .is_some_and(|state| state.lost.must_drop(handle))
    }

    /// Reasons why passthrough is not in use for some files.
    pub fn refusals(&self) -> Vec<String> {
        self.registrar
            .as_ref()
            .map(Registrar::refusals)
            .unwrap_or_default()
    }

    #[cfg(test)]
    fn entries_and_room(&self) -> (usize, usize) {
        let sizes = self.shards.iter().map(|shard| {
            let shard = shard.lock().unwrap();
            (shard.len(), shard.capacity())
        });
        sizes.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}

/// Removes the entry of `ino` if it is empty, and frees capacity that is no longer needed.
fn tidy(shard: &mut HashMap<Ino, State>, ino: Ino) {
    let is_empty =
        |state: &State| state.open.is_none() && !state.told_privileged && !state.lost.is_recorded();
    if !shard.get(&ino).is_some_and(is_empty) {
        return;
    }
    shard.remove(&ino);
    if shard.capacity() > ENTRIES_KEPT.max(shard.len() * 8) {
        shard.shrink_to(ENTRIES_KEPT.max(shard.len() * 2));
    }
}

#[cfg(test)]
mod tests {
    use vfs::Timestamp;

    use super::*;

    fn attr(mode: u32) -> Attr {
        let time = Timestamp::default();
        Attr {
            shown_ino: 1,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: None,
            mode,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            block_size: 4096,
            attributes: 0,
            attributes_mask: 0,
            is_reported: false,
        }
    }

    #[test]
    fn only_a_bit_that_was_told_and_not_taken_back_is_taken() {
        let states = InodeStates::new(None, false);
        assert!(!states.take_told_privileged(Ino(5)));
        states.tell(Ino(5), &attr(libc::S_IFREG | 0o4755));
        states.tell(Ino(6), &attr(libc::S_IFREG | 0o4755));
        states.tell(Ino(6), &attr(libc::S_IFREG | 0o755));
        states.tell(Ino(7), &attr(libc::S_IFDIR | 0o2755));
        assert!(states.is_recorded(Ino(5)));
        assert!(states.take_told_privileged(Ino(5)));
        assert!(!states.take_told_privileged(Ino(5)));
        assert!(!states.take_told_privileged(Ino(6)) && !states.take_told_privileged(Ino(7)));
        assert_eq!(states.entries_and_room().0, 0);
    }

    #[test]
    fn lost_content_is_dropped_by_each_open_until_one_of_them_is_released() {
        let states = InodeStates::new(None, false);
        assert!(!states.must_drop_content(Ino(5), Handle(1)));
        states.lose_content(Ino(5));
        assert!(states.must_drop_content(Ino(5), Handle(2)));
        states.release(Ino(5), Handle(2));
        assert!(!states.must_drop_content(Ino(5), Handle(3)));
        states.lose_content(Ino(5));
        assert!(states.is_recorded(Ino(5)));
        states.forget(Ino(5));
        assert_eq!(states.entries_and_room().0, 0);
    }

    /// A registrar whose requests all fail, as `/dev/null` does not know the ioctl.
    fn refusing() -> InodeStates {
        let device = std::fs::File::open("/dev/null").unwrap();
        InodeStates::new(Some(Registrar::new(Arc::new(device.into()))), true)
    }

    fn offer() -> Option<Arc<OwnedFd>> {
        Some(Arc::new(std::fs::File::open("/dev/zero").unwrap().into()))
    }

    #[test]
    fn the_mode_of_the_first_open_file_holds_until_the_last_is_released() {
        let states = refusing();
        let first = states.open(Ino(5), Use::Maps, offer);
        assert!(first.passthrough.is_none() && first.outdates_attributes);
        let not_asked = || panic!("the kernel was asked a second time for an open inode");
        assert_eq!(states.open(Ino(5), Use::Maps, not_asked), Counted::default());
        assert_eq!(
            states.tell(Ino(5), &attr(libc::S_IFREG)),
            Sharing::Open,
            "no mapping bypasses the daemon"
        );
        states.release(Ino(5), Handle(1));
        states.release(Ino(5), Handle(1));
        let mut asked = false;
        states.open(Ino(5), Use::Reads, || {
            asked = true;
            None
        });
        assert_eq!(states.tell(Ino(6), &attr(libc::S_IFREG)), Sharing::Quiet);
        assert!(asked, "a decision outlived the files that it was made for");
        assert_eq!(states.refusals().len(), 1, "one device, one reason");
    }

    #[test]
    fn nothing_is_kept_of_files_that_were_open_once() {
        let states = refusing();
        for number in 0..100_000 {
            states.open(Ino(number), Use::Reads, || None);
        }
        for number in 0..100_000 {
            states.release(Ino(number), Handle(1));
        }
        let (entries, room) = states.entries_and_room();
        assert_eq!(entries, 0);
        assert!(room <= 16 * 2 * ENTRIES_KEPT, "room for {room} entries is kept");
    }
}
