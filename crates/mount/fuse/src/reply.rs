//! Builds replies: attributes, entries and directory listings in the protocol's layouts.

use std::time::Duration;

use vfs::{Attr, DirEntry, DirSink, Entry, FsError, StatFs, Timestamp};
use zerocopy::IntoBytes;

use crate::abi::{AttrOut, AttrOutBody, Dirent, EntryOut, StatfsOut, Statx, StatxOut, SxTime};

/// Cache times granted to the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Trust {
    pub attr: Duration,
    pub entry: Duration,
}

/// Error number for a reply. Linux reserves numbers from 512 on for internal use, and some file systems leak them; the
/// kernel refuses a reply with such a number, which would end the session. `ENOTCONN` and `ECONNABORTED` tell programs
/// that a mount has no daemon; here they would be errors of the source, so they become `EIO`.
pub const fn error_out(error: FsError) -> i32 {
    match error.errno() {
        libc::ENOTCONN | libc::ECONNABORTED => -libc::EIO,
        errno @ 1..512 => -errno,
        _ => -libc::EIO,
    }
}

fn seconds(time: Timestamp) -> u64 {
    // The protocol carries signed seconds in an unsigned field.
    time.seconds.cast_unsigned()
}

pub fn attr_body(attr: &Attr) -> AttrOutBody {
    AttrOutBody {
        ino: attr.shown_ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: seconds(attr.atime),
        mtime: seconds(attr.mtime),
        ctime: seconds(attr.ctime),
        atimensec: attr.atime.nanoseconds,
        mtimensec: attr.mtime.nanoseconds,
        ctimensec: attr.ctime.nanoseconds,
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: attr.block_size,
        flags: 0,
    }
}

pub fn attr_out(attr: &Attr, trust: Trust) -> AttrOut {
    AttrOut {
        attr_valid: trust.attr.as_secs(),
        attr_valid_nsec: trust.attr.subsec_nanos(),
        dummy: 0,
        attr: attr_body(attr),
    }
}

pub fn entry_out(entry: &Entry, trust: Trust) -> EntryOut {
    EntryOut {
        nodeid: entry.ino.0,
        generation: entry.generation,
        entry_valid: trust.entry.as_secs(),
        attr_valid: trust.attr.as_secs(),
        entry_valid_nsec: trust.entry.subsec_nanos(),
        attr_valid_nsec: trust.attr.subsec_nanos(),
        attr: attr_body(&entry.attr),
    }
}

pub fn statx_out(attr: &Attr, trust: Trust) -> StatxOut {
    let time = |time: Timestamp| SxTime {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
        reserved: 0,
    };
    let mask = libc::STATX_BASIC_STATS
        | if attr.btime.is_some() {
            libc::STATX_BTIME
        } else {
            0
        };
    let (rdev_major, rdev_minor) = split_device(attr.rdev);
    StatxOut {
        attr_valid: trust.attr.as_secs(),
        attr_valid_nsec: trust.attr.subsec_nanos(),
        flags: 0,
        spare: [0; 2],
        stat: Statx {
            mask,
            blksize: attr.block_size,
            attributes: attr.attributes,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode: u16::try_from(attr.mode & 0xffff).expect("16 bits are left"),
            ino: attr.shown_ino,
            size: attr.size,
            blocks: attr.blocks,
            attributes_mask: attr.attributes_mask,
            atime: time(attr.atime),
            btime: time(attr.btime.unwrap_or_default()),
            ctime: time(attr.ctime),
            mtime: time(attr.mtime),
            rdev_major,
            rdev_minor,
            ..Statx::default()
        },
    }
}

/// Major and minor number in the kernel's 32-bit encoding: `mmmM MMmm` by hex digits (12 bits major, 20 minor).
fn split_device(device: u32) -> (u32, u32) {
    (
        (device >> 8) & 0xfff,
        (device & 0xff) | ((device >> 12) & 0xf_ff00),
    )
}

pub fn statfs_out(stat: &StatFs) -> StatfsOut {
    StatfsOut {
        blocks: stat.blocks,
        bfree: stat.blocks_free,
        bavail: stat.blocks_available,
        files: stat.files,
        ffree: stat.files_free,
        bsize: stat.block_size,
        namelen: stat.name_max,
        frsize: stat.fragment_size,
        padding: 0,
        spare: [0; 6],
    }
}

/// A READDIR or READDIRPLUS reply being filled, never past `bytes_max`.
pub struct Listing<'a> {
    out: &'a mut Vec<u8>,
    bytes_max: usize,
    trust: Option<&'a TrustIn<'a>>,
}

/// Decides the cache times of an entry that is about to be sent.
pub type TrustIn<'a> = dyn Fn(&Entry) -> Trust + 'a;

impl<'a> Listing<'a> {
    /// Appends to the empty `out`; `trust` makes it a READDIRPLUS reply.
    pub fn new(out: &'a mut Vec<u8>, bytes_max: usize, trust: Option<&'a TrustIn<'a>>) -> Self {
        Self {
            out,
            bytes_max,
            trust,
        }
    }

    fn record_bytes(&self, name_bytes: usize) -> usize {
        let entry_bytes = if self.trust.is_some() {
            size_of::<EntryOut>()
        } else {
            0
        };
        (entry_bytes + size_of::<Dirent>() + name_bytes).next_multiple_of(8)
    }
}

impl DirSink for Listing<'_> {
    fn fits(&self, name_bytes: usize) -> bool {
        self.out.len() + self.record_bytes(name_bytes) <= self.bytes_max
    }

    fn push(&mut self, name: &DirEntry<'_>, entry: Option<&Entry>) {
        assert!(
            self.fits(name.name.len()),
            "a listing of {} bytes was pushed past its end",
            self.bytes_max
        );
        let end = self.out.len() + self.record_bytes(name.name.len());
        if let Some(trust) = self.trust {
            // A zero node number tells the kernel that this name comes without an inode.
            let out = entry
                .map(|entry| entry_out(entry, trust(entry)))
                .unwrap_or_default();
            self.out.extend_from_slice(out.as_bytes());
        }
        let dirent = Dirent {
            ino: name.shown_ino,
            off: name.next_offset,
            namelen: u32::try_from(name.name.len()).expect("a name is short"),
            kind: name.kind.dirent_type(),
        };
        self.out.extend_from_slice(dirent.as_bytes());
        self.out.extend_from_slice(name.name);
        self.out.resize(end, 0);
    }
}

#[cfg(test)]
mod tests {
    use vfs::FileKind;

    use super::*;

    fn name(bytes: &[u8]) -> DirEntry<'_> {
        DirEntry {
            name: bytes,
            shown_ino: 7,
            kind: FileKind::Regular,
            next_offset: 3,
        }
    }

    #[test]
    fn a_listing_ends_before_its_limit_and_keeps_records_aligned() {
        let mut out = Vec::new();
        let mut listing = Listing::new(&mut out, 100, None);
        let mut pushed = 0;
        while listing.fits(5) {
            listing.push(&name(b"hello"), None);
            pushed += 1;
        }
        assert_eq!(pushed, 3);
        assert_eq!(out.len(), 3 * 32);
        assert_eq!(&out[24..29], b"hello");
    }

    #[test]
    fn device_numbers_split_as_the_kernel_encodes_them() {
        assert_eq!(split_device(0x0000_0801), (8, 1));
        assert_eq!(split_device(0xabc0_12de), (0x012, 0xa_bcde));
    }
}
