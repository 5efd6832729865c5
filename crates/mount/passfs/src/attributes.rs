//! Converts the host's `statx` to [`vfs::Attr`], and maps ids and the inode numbers of several devices.

use std::os::fd::AsFd;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Statx, StatxFlags, StatxTimestamp};
use vfs::{Attr, FileKind, FsResult, Timestamp};

use crate::IdMap;
use crate::identity::errno;

/// Identifies a host inode while it lives. Packed, as each known inode has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C, packed(4))]
pub(crate) struct HostKey {
    /// The kernel's device number: 12 bits major, 20 bits minor.
    pub device: u32,
    pub inode: u64,
}

impl HostKey {
    /// The device's number is not that of a block device, as for subvolumes of btrfs.
    pub(crate) const fn is_on_anonymous_device(self) -> bool {
        self.device >> 20 == 0
    }

    pub(crate) fn of(stat: &Statx) -> Self {
        let device = stat.stx_dev_major << 20 | stat.stx_dev_minor;
        Self {
            device,
            inode: stat.stx_ino,
        }
    }
}

/// `statx` of the inode behind `fd` (an `O_PATH` descriptor is enough).
pub(crate) fn stat(fd: impl AsFd) -> FsResult<Statx> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, wanted).map_err(errno)
}

/// Like [`stat`], but from the host's memory: the file system is not asked, and attributes of a network file system may
/// be out of date.
pub(crate) fn stat_in_memory(fd: impl AsFd) -> FsResult<Statx> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, wanted).map_err(errno)
}

/// Like [`stat`], but a server is asked, whatever this machine remembers.
pub(crate) fn stat_of_server(fd: impl AsFd) -> FsResult<Statx> {
    let wanted = StatxFlags::BASIC_STATS;
    rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, wanted).map_err(errno)
}

/// [`stat_in_memory`] of the file with this name, without following a symbolic link. Like an `O_PATH` open, it triggers
/// no automount.
pub(crate) fn stat_at_in_memory(directory: impl AsFd, name: &[u8]) -> FsResult<Statx> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(directory, name, flags, wanted).map_err(errno)
}

/// Small numbers for the devices under the source, so that inode numbers of submounts don't collide.
///
/// The source's own device is number 0 and its inode numbers are shown unchanged. Those of other devices differ in the
/// upper 16 bits, which no common file system uses.
#[derive(Debug)]
pub(crate) struct Devices {
    own: u32,
    /// Changes on the own device are reported.
    reported: AtomicBool,
    others: RwLock<Vec<u32>>,
}

impl Devices {
    pub(crate) fn new(own: u32) -> Self {
        Self {
            own,
            reported: AtomicBool::new(false),
            others: RwLock::new(Vec::new()),
        }
    }

    /// Changes on the own device are reported from now on.
    pub(crate) fn report_own(&self) {
        self.reported.store(true, Ordering::Relaxed);
    }

    /// Changes on `device` are reported.
    pub(crate) fn are_reported(&self, device: u32) -> bool {
        device == self.own && self.reported.load(Ordering::Relaxed)
    }

    /// The inode number to show for inode `inode` of `device`.
    pub(crate) fn shown_ino(&self, device: u32, inode: u64) -> u64 {
        if device == self.own {
            return inode;
        }
        let known = self
            .others
            .read()
            .expect("no panic under this lock")
            .iter()
            .position(|other| *other == device);
        let position = known.unwrap_or_else(|| {
            let mut others = self.others.write().expect("no panic under this lock");
            others
                .iter()
                .position(|other| *other == device)
                .unwrap_or_else(|| {
                    others.push(device);
                    others.len() - 1
                })
        });
        let index = u64::try_from(position + 1).expect("usize fits in u64");
        inode ^ (index << 48)
    }
}

/// The attributes to show for `stat`.
pub(crate) fn attr_of(stat: &Statx, devices: &Devices, id_map: Option<&IdMap>) -> Attr {
    let mode = u32::from(stat.stx_mode);
    let (mode, uid, gid) = match id_map {
        Some(map) => (mode & !(map.umask & 0o777), map.uid, map.gid),
        None => (mode, stat.stx_uid, stat.stx_gid),
    };
    let born = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    Attr {
        shown_ino: devices.shown_ino(HostKey::of(stat).device, stat.stx_ino),
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        atime: timestamp(&stat.stx_atime),
        mtime: timestamp(&stat.stx_mtime),
        ctime: timestamp(&stat.stx_ctime),
        btime: born.then(|| timestamp(&stat.stx_btime)),
        mode,
        nlink: stat.stx_nlink,
        uid,
        gid,
        rdev: encode_rdev(stat.stx_rdev_major, stat.stx_rdev_minor),
        block_size: stat.stx_blksize,
        attributes: stat.stx_attributes.bits(),
        attributes_mask: stat.stx_attributes_mask.bits(),
        is_reported: devices.are_reported(HostKey::of(stat).device),
    }
}

/// The file type.
pub(crate) fn kind_of(stat: &Statx) -> FileKind {
    FileKind::of_mode(u32::from(stat.stx_mode))
}

pub(crate) fn timestamp(time: &StatxTimestamp) -> Timestamp {
    Timestamp {
        seconds: time.tv_sec,
        nanoseconds: time.tv_nsec,
    }
}

/// The kernel's 32-bit encoding: bits 0..8 minor, 8..20 major, 20..32 the minor's upper bits.
fn encode_rdev(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

/// Reverses [`encode_rdev`] to the host's `dev_t`.
pub(crate) fn host_rdev(encoded: u32) -> rustix::fs::Dev {
    let major = encoded >> 8 & 0xfff;
    let minor = (encoded & 0xff) | (encoded >> 12 & 0xf_ff00);
    rustix::fs::makedev(major, minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_number_survives_both_encodings() {
        for (major, minor) in [(0, 0), (1, 3), (8, 255), (259, 256), (0xfff, 0xf_ffff)] {
            let device = host_rdev(encode_rdev(major, minor));
            assert_eq!(
                (rustix::fs::major(device), rustix::fs::minor(device)),
                (major, minor)
            );
        }
    }

    #[test]
    fn inode_numbers_of_another_device_are_told_apart() {
        let devices = Devices::new(7);
        assert_eq!(devices.shown_ino(7, 42), 42);
        let (first, second) = (devices.shown_ino(8, 42), devices.shown_ino(9, 42));
        assert!(first != 42 && second != 42 && first != second);
        assert_eq!(devices.shown_ino(8, 42), first);
    }
}
