//! Walks all files below a folder, on one device, with FIEMAP of each.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

use super::btrfs::Chunks;
use super::fiemap::{self, Extent, Fiemap, Fork};
use super::ioctl::{Request, call, halves};
use crate::block_type::BlockType;
use crate::files::{FileKind, FileRecord, FileTable};
use crate::finding::{FindingKind, Findings, Place};
use crate::options::{Flush, OpenError};
use crate::resolve::{Claim, Content, Rank};

/// Meaning of FIEMAP's physical addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Placement<'a> {
    /// Offsets on the device.
    Physical,
    /// btrfs: logical addresses, mapped to devices by chunks.
    Chunks(&'a Chunks),
}

/// Reasons for extents without a position, and other events that are counted.
#[derive(Debug, Default)]
struct Counts {
    delayed: u64,
    inline: u64,
    refused: u64,
    other_devices: u64,
}

pub(crate) struct Walk<'a> {
    device: u64,
    placement: Placement<'a>,
    fiemap: Fiemap,
    files: FileTable,
    by_inode: HashMap<u64, u32>,
    visited: HashSet<u32>,
    claims: Vec<Claim>,
    pending: Vec<(PathBuf, u32)>,
    counts: Counts,
    findings: &'a mut Findings,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(
        root: &Path,
        status: &Stat,
        placement: Placement<'a>,
        flush: Flush,
        findings: &'a mut Findings,
    ) -> Result<Self, OpenError> {
        let mut walk = Self {
            device: status.st_dev,
            placement,
            fiemap: Fiemap::new(flush),
            files: FileTable::default(),
            by_inode: HashMap::new(),
            visited: HashSet::new(),
            claims: Vec::new(),
            pending: Vec::new(),
            counts: Counts::default(),
            findings,
        };
        let record = record(status, FileKind::Directory);
        let file = walk.files.push(record).expect("it is the first file");
        walk.files.set_root(file);
        walk.by_inode.insert(status.st_ino, file);
        walk.pending.push((root.to_owned(), file));
        Ok(walk)
    }

    pub(crate) fn run(&mut self) {
        while let Some((path, file)) = self.pending.pop() {
            // A folder that is bind-mounted into itself would be walked for ever.
            if self.visited.insert(file)
                && let Err(error) = self.directory(&path, file)
            {
                self.unreadable(&path, &error);
            }
        }
    }

    pub(crate) fn finish(mut self) -> (FileTable, Vec<Claim>) {
        let Counts {
            delayed,
            inline,
            refused,
            other_devices,
        } = self.counts;
        let mut note = |count: u64, text: &str| {
            if count > 0 {
                self.findings.note(format!("{count} {text}"));
            }
        };
        note(
            delayed,
            "extents wait in memory and have no place yet; flush them first to see where they go",
        );
        note(inline, "extents lie within metadata");
        note(refused, "files do not tell where they lie (no FIEMAP)");
        note(
            other_devices,
            "folders are other file systems, or subvolumes, and were left out",
        );
        self.files.sort();
        (self.files, self.claims)
    }

    fn unreadable(&mut self, path: &Path, error: &io::Error) {
        if error.kind() == io::ErrorKind::NotFound {
            // It was removed during the walk.
            return;
        }
        let place = Place::Path(path.display().to_string());
        self.findings.add(
            FindingKind::Unreadable,
            place,
            "a file that can be opened",
            error.to_string(),
        );
    }

    fn directory(&mut self, path: &Path, file: u32) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // The first folder was named by the user, and may be a link.
        let flags = if self.visited.len() == 1 {
            flags - OFlags::NOFOLLOW
        } else {
            flags
        };
        let folder = rustix::fs::open(path, flags, Mode::empty())?;
        self.extents(&folder, file, BlockType::Directory, path);
        let mut entries = Dir::read_from(&folder)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                let path = path.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
                if let Err(error) = self.entry(&folder, name, &path, file) {
                    self.unreadable(&path, &error);
                }
            }
        }
        Ok(())
    }

    fn entry(&mut self, folder: &OwnedFd, name: &CStr, path: &Path, parent: u32) -> io::Result<()> {
        let status = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if status.st_dev != self.device {
            self.counts.other_devices += 1;
            return Ok(());
        }
        let kind = match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => FileKind::Regular,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Symlink,
            _ => FileKind::Special,
        };
        let known = self.by_inode.get(&status.st_ino).copied();
        let Some(file) = known.or_else(|| self.files.push(record(&status, kind))) else {
            return Ok(());
        };
        let named = self.files.add_name(file, parent, name.to_bytes(), false);
        if named.is_err() {
            let place = Place::Path(path.display().to_string());
            self.findings
                .add(FindingKind::Bound, place, "at most 4 GiB of names", "more");
        }
        if known.is_some() {
            return Ok(());
        }
        self.by_inode.insert(status.st_ino, file);
        match kind {
            FileKind::Directory => self.pending.push((path.to_owned(), file)),
            FileKind::Regular => {
                let opened = open_file(folder, name)?;
                // Another file may have replaced it in between.
                if fstat(&opened)?.st_ino == status.st_ino {
                    self.extents(&opened, file, BlockType::Data, path);
                }
            }
            FileKind::Symlink | FileKind::Special | FileKind::System => {}
        }
        Ok(())
    }

    fn extents(&mut self, opened: &OwnedFd, file: u32, kind: BlockType, path: &Path) {
        if let Some(generation) = generation(opened) {
            self.files.set_generation(file, generation);
        }
        let (claims, counts, placement) = (&mut self.claims, &mut self.counts, self.placement);
        let mut place =
            |extent: Extent, kind: BlockType| place_extent(extent, kind, file, placement, claims, counts);
        let outcome = self
            .fiemap
            .extents(opened, Fork::Data, |extent| place(extent, kind));
        if matches!(placement, Placement::Physical) {
            // Attributes within the inode have no separate position; if the request is refused, they stay unknown.
            let _ = self.fiemap.extents(opened, Fork::Xattr, |extent| {
                if extent.flags & fiemap::INLINE == 0 {
                    place(extent, BlockType::Xattr);
                }
            });
        }
        match outcome {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                if kind != BlockType::Directory {
                    self.counts.refused += 1;
                }
            }
            Err(error) => self.unreadable(path, &error),
        }
    }
}

fn place_extent(
    extent: Extent,
    kind: BlockType,
    file: u32,
    placement: Placement<'_>,
    claims: &mut Vec<Claim>,
    counts: &mut Counts,
) {
    if extent.flags & fiemap::DELAYED != 0 {
        counts.delayed += 1;
        return;
    }
    if extent.flags & fiemap::INLINE != 0 {
        counts.inline += 1;
        return;
    }
    if extent.flags & fiemap::UNKNOWN != 0 || extent.length == 0 {
        counts.refused += 1;
        return;
    }
    let encoded = extent.flags & (fiemap::ENCODED | fiemap::NOT_ALIGNED | fiemap::TAIL) != 0;
    let claim = Claim {
        start: extent.physical,
        length: extent.length,
        file_offset: extent.logical,
        file,
        kind,
        content: match (encoded, extent.flags & fiemap::UNWRITTEN != 0) {
            (true, _) => Content::Encoded,
            (false, true) => Content::Unwritten,
            (false, false) => Content::Written,
        },
        // The length of encoded data on the medium is not reported, so sources with an exact position get a higher
        // rank.
        rank: if encoded { Rank::Doubtful } else { Rank::Trusted },
        shared: encoded || kind == BlockType::Xattr || extent.flags & fiemap::SHARED != 0,
    };
    match placement {
        Placement::Physical => claims.push(claim),
        Placement::Chunks(chunks) => chunks.place(claim, claims),
    }
}

fn open_file(folder: impl AsFd, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // Only the owner may open the file without updating its access time.
    match openat(&folder, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => Ok(openat(&folder, name, flags, Mode::empty())?),
        outcome => Ok(outcome?),
    }
}

fn generation(opened: impl AsFd) -> Option<u32> {
    let mut word = [0];
    call(opened, Request::GetVersion, &mut word).ok()?;
    Some(halves(word[0]).0)
}

fn record(status: &Stat, kind: FileKind) -> FileRecord {
    FileRecord {
        size: u64::try_from(status.st_size).unwrap_or(0),
        links: u32::try_from(status.st_nlink).unwrap_or(u32::MAX),
        ..FileRecord::new(status.st_ino, 0, kind)
    }
}
