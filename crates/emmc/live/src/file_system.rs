//! A file system with one file: the card. A loop device over that file is the block device.
//!
//! The kernel's loop device translates requests: a write stays a write, a flush becomes an fsync, a discard punches a
//! hole, and writing zeros punches a hole too or zeroes a range. A discard cannot be distinguished from zeros to be
//! written with permission to unmap, so after both the range reads as zeros.
//!
//! The power of the card is an extended attribute of the root: writing a [`PowerOrder`] cuts or restores it, reading
//! returns its state ([`PowerReport`] in JSON). The permissions of the mount control the access to it.
//!
//! There are no other files; nothing can be created or renamed.

use std::str::FromStr;
use std::sync::Arc;

use nand::{RealClock, TimeSource};
use results::block_trace::Operation;
use vfs::{
    Attr, Caller, DirEntry, DirSink, Entry, FallocateMode, FileKind, FileSystem, FsError, FsResult, Handle,
    Ino, NewNode, OpenFlags, Opened, Privileges, RenameFlags, SeekFrom, SetAttr, StatFs, Timestamp,
    WriteMode, XattrFlags,
};

use crate::device::LiveDevice;
use crate::undo::CutKind;

/// Name of the file.
pub const CARD_FILE: &str = "card";

/// Name of the attribute.
pub const POWER_ATTRIBUTE: &str = "user.tidegate.power";

const CARD: Ino = Ino(2);

/// Commands for the power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerOrder {
    /// Cut it.
    Cut(CutKind),
    /// Restore it.
    On,
}

impl PowerOrder {
    const WORDS: [(Self, &'static str); 3] = [
        (Self::Cut(CutKind::Clean), "cut"),
        (Self::Cut(CutKind::Torn), "cut-torn"),
        (Self::On, "on"),
    ];

    /// Name of the command.
    #[must_use]
    pub fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(order, _)| *order == self);
        found.map_or("", |(_, word)| word)
    }
}

impl FromStr for PowerOrder {
    type Err = FsError;

    fn from_str(text: &str) -> Result<Self, FsError> {
        let found = Self::WORDS.iter().find(|(_, word)| *word == text);
        found.map(|(order, _)| *order).ok_or(FsError::Invalid)
    }
}

/// The file system; see the module.
pub struct CardFileSystem<T = RealClock> {
    device: Arc<LiveDevice<T>>,
    made: Timestamp,
}

impl<T: TimeSource + Sync + 'static> CardFileSystem<T> {
    /// Serves `device`; `made` is reported for all times.
    #[must_use]
    pub const fn new(device: Arc<LiveDevice<T>>, made: Timestamp) -> Self {
        Self { device, made }
    }

    fn attr(&self, ino: Ino) -> FsResult<Attr> {
        let (mode, size, nlink) = match ino {
            Ino::ROOT => (FileKind::Directory.mode_bits() | 0o700, 0, 2),
            CARD => (
                FileKind::Regular.mode_bits() | 0o600,
                self.device.store().size_bytes(),
                1,
            ),
            _ => return Err(FsError::Stale),
        };
        Ok(Attr {
            shown_ino: ino.0,
            size,
            blocks: size / 512,
            atime: self.made,
            mtime: self.made,
            ctime: self.made,
            btime: None,
            mode,
            nlink,
            uid: 0,
            gid: 0,
            rdev: 0,
            block_size: self.block_size(),
            attributes: 0,
            attributes_mask: 0,
            is_reported: false,
        })
    }

    /// The loop device takes this as the discard granularity.
    fn block_size(&self) -> u32 {
        u32::try_from(self.device.unit_bytes()).unwrap_or(4096)
    }

    fn names(&self) -> [(&'static str, Ino, FileKind); 3] {
        [
            (".", Ino::ROOT, FileKind::Directory),
            ("..", Ino::ROOT, FileKind::Directory),
            (CARD_FILE, CARD, FileKind::Regular),
        ]
    }

    fn list(&self, offset: u64, sink: &mut dyn DirSink, with_entries: bool) -> FsResult<()> {
        for ((name, ino, kind), next_offset) in self.names().into_iter().zip(1_u64..) {
            if next_offset <= offset {
                continue;
            }
            if !sink.fits(name.len()) {
                break;
            }
            let entry = match with_entries && ino == CARD {
                true => Some(self.lookup(Ino::ROOT, name.as_bytes())?),
                false => None,
            };
            let entry_of = DirEntry {
                name: name.as_bytes(),
                shown_ino: ino.0,
                kind,
                next_offset,
            };
            sink.push(&entry_of, entry.as_ref());
        }
        Ok(())
    }
}

impl<T: TimeSource + Sync + 'static> FileSystem for CardFileSystem<T> {
    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        if parent != Ino::ROOT || name != CARD_FILE.as_bytes() {
            return Err(FsError::NotFound);
        }
        Ok(Entry {
            ino: CARD,
            generation: 0,
            attr: self.attr(CARD)?,
        })
    }

    fn forget(&self, _: Ino, _: u64) {}

    fn getattr(&self, ino: Ino, _: Option<Handle>) -> FsResult<Attr> {
        self.attr(ino)
    }

    fn setattr(&self, ino: Ino, _: Option<Handle>, change: &SetAttr) -> FsResult<Attr> {
        match change.size {
            Some(size) if size != self.attr(ino)?.size => Err(FsError::NotPermitted),
            // Times and modes are not stored.
            _ => self.attr(ino),
        }
    }

    fn readlink(&self, _: Ino) -> FsResult<Vec<u8>> {
        Err(FsError::Invalid)
    }

    fn mknod(&self, _: &Caller, _: Ino, _: &[u8], _: NewNode) -> FsResult<Entry> {
        Err(FsError::NotPermitted)
    }

    fn mkdir(&self, _: &Caller, _: Ino, _: &[u8], _: NewNode) -> FsResult<Entry> {
        Err(FsError::NotPermitted)
    }

    fn symlink(&self, _: &Caller, _: Ino, _: &[u8], _: &[u8]) -> FsResult<Entry> {
        Err(FsError::NotPermitted)
    }

    fn unlink(&self, _: &Caller, _: Ino, _: &[u8]) -> FsResult<()> {
        Err(FsError::NotPermitted)
    }

    fn rmdir(&self, _: &Caller, _: Ino, _: &[u8]) -> FsResult<()> {
        Err(FsError::NotPermitted)
    }

    fn rename(&self, _: &Caller, _: (Ino, &[u8]), _: (Ino, &[u8]), _: RenameFlags) -> FsResult<()> {
        Err(FsError::NotPermitted)
    }

    fn link(&self, _: Ino, _: Ino, _: &[u8]) -> FsResult<Entry> {
        Err(FsError::NotPermitted)
    }

    fn open(&self, ino: Ino, flags: OpenFlags, _: Privileges) -> FsResult<Opened> {
        match ino {
            CARD if flags.has(libc::O_TRUNC) => Err(FsError::NotPermitted),
            CARD => Ok(Opened { handle: Handle(1) }),
            _ => Err(FsError::IsADirectory),
        }
    }

    fn create(&self, _: &Caller, _: Ino, _: &[u8], _: NewNode, _: OpenFlags) -> FsResult<(Entry, Opened)> {
        Err(FsError::NotPermitted)
    }

    fn read(&self, _: Ino, _: Handle, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        let left = self.device.store().size_bytes().saturating_sub(offset);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(out.len());
        if length > 0 {
            self.device.read(offset, &mut out[..length])?;
        }
        Ok(length)
    }

    fn write(&self, _: Ino, _: Handle, offset: u64, data: &[u8], _: WriteMode) -> FsResult<usize> {
        self.device.write(offset, data)?;
        Ok(data.len())
    }

    fn flush(&self, _: Ino, _: Handle) -> FsResult<()> {
        Ok(())
    }

    fn fsync(&self, _: Ino, _: Handle, _: bool) -> FsResult<()> {
        self.device.flush()
    }

    fn release(&self, _: Ino, _: Handle) {}

    fn fallocate(
        &self,
        _: Ino,
        _: Handle,
        mode: FallocateMode,
        offset: u64,
        length: u64,
        _: Privileges,
    ) -> FsResult<()> {
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        match mode.0 {
            PUNCH => self.device.zero(Operation::Discard, offset, length),
            ZERO => self.device.zero(Operation::WriteZeroes, offset, length),
            _ => Err(FsError::NotSupported),
        }
    }

    fn lseek(&self, ino: Ino, _: Handle, from: SeekFrom) -> FsResult<u64> {
        let size = self.attr(ino)?.size;
        match from {
            SeekFrom::Data(offset) | SeekFrom::Hole(offset) if offset >= size => Err(FsError::NoSuchDevice),
            SeekFrom::Data(offset) => Ok(offset),
            SeekFrom::Hole(_) => Ok(size),
        }
    }

    fn opendir(&self, _: Ino) -> FsResult<Handle> {
        Ok(Handle(1))
    }

    fn readdir(&self, _: Ino, _: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        self.list(offset, sink, false)
    }

    fn readdir_plus(&self, _: Ino, _: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        self.list(offset, sink, true)
    }

    fn fsyncdir(&self, _: Ino, _: Handle, _: bool) -> FsResult<()> {
        Ok(())
    }

    fn releasedir(&self, _: Ino, _: Handle) {}

    fn statfs(&self, _: Ino) -> FsResult<StatFs> {
        let block_size = self.block_size();
        Ok(StatFs {
            blocks: self.device.store().size_bytes() / u64::from(block_size),
            blocks_free: 0,
            blocks_available: 0,
            files: 1,
            files_free: 0,
            block_size,
            fragment_size: block_size,
            name_max: 255,
        })
    }

    fn sync(&self) -> FsResult<()> {
        Ok(())
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], _: XattrFlags, _: bool) -> FsResult<()> {
        if ino != Ino::ROOT || name != POWER_ATTRIBUTE.as_bytes() {
            return Err(FsError::NotSupported);
        }
        let order = std::str::from_utf8(value).map_err(|_| FsError::Invalid)?;
        match order.parse()? {
            PowerOrder::Cut(kind) => self.device.cut_power(kind).map(|_| ())?,
            PowerOrder::On => {
                self.device.restore_power();
            }
        }
        Ok(())
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        if ino != Ino::ROOT || name != POWER_ATTRIBUTE.as_bytes() {
            return Err(FsError::NoData);
        }
        serde_json::to_vec(&self.device.power()).map_err(|_| FsError::Io)
    }
}
