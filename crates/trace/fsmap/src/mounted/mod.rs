//! Maps a mounted file system through its mountpoint: FIEMAP of every file below it, GETFSMAP for the rest if the
//! kernel supports it, and on ext4 the structures on the device for parts that neither reports (journal, tree nodes).
//!
//! It is a view of a live system: a file that changes during the walk may be seen twice or not at all.

mod btrfs;
mod device;
mod fiemap;
mod fsmap;
mod ioctl;
mod walk;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;

use rustix::fs::{Mode, OFlags, fstat, fstatfs};

pub(crate) use self::device::device_of_node;
pub use self::fsmap::{SystemOwner, SystemRegion, system_regions};
use self::walk::{Placement, Walk};
use crate::block_type::{BlockType, Class};
use crate::ext4;
use crate::files::{FileKind, FileRecord, FileTable};
use crate::finding::Findings;
use crate::options::{JournalDetail, OpenError, Options};
use crate::owner_map::{Device, OwnerMap};
use crate::resolve::{Claim, Content, Rank, resolve};
use crate::source::Source;
use crate::volume::{FileSystemKind, Volume};

/// File system types of statfs, and their names.
const NAMES: [(u64, &str); 9] = [
    (EXT, "ext4"),
    (0x5846_5342, "XFS"),
    (BTRFS, "btrfs"),
    (0xF2F5_2010, "F2FS"),
    (0x4D44, "FAT"),
    (0x3434, "NILFS2"),
    (0x2011_BAB0, "exFAT"),
    (0x0102_1994, "tmpfs"),
    (0x6573_5546, "FUSE"),
];
const EXT: u64 = 0xEF53;
const BTRFS: u64 = 0x9123_683E;

/// Maps the file system that is mounted at `path`, or the part of it below a folder.
pub(crate) fn map(path: &Path, options: &Options) -> Result<OwnerMap, OpenError> {
    let failed = |source: rustix::io::Errno| OpenError::Unreadable {
        path: path.to_owned(),
        source: source.into(),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    let status = fstat(&root).map_err(failed)?;
    let statfs = fstatfs(&root).map_err(failed)?;
    // The sign of the number depends only on its C type.
    let kind = u64::from_ne_bytes(statfs.f_type.to_ne_bytes()) & 0xFFFF_FFFF;
    let name = NAMES
        .iter()
        .find(|(number, _)| *number == kind)
        .map_or("unknown", |(_, name)| name);
    let mut findings = Findings::default();
    let device = if kind == BTRFS {
        btrfs::device(path)
    } else {
        device::by_number(status.st_dev)
    };
    let chunks = if kind == BTRFS {
        Some(btrfs::chunks(&root, &mut findings))
    } else {
        None
    };
    let placement = chunks.as_ref().map_or(Placement::Physical, Placement::Chunks);
    let mut walk = Walk::new(path, &status, placement, options.flush, &mut findings)?;
    walk.run();
    let (mut files, mut claims) = walk.finish();
    if let Some(chunks) = &chunks {
        chunks.claim_areas(device.as_ref(), &mut claims);
    } else {
        claim_fsmap(&root, status.st_dev, &mut files, &mut claims, &mut findings);
    }
    if let Some(device) = device.as_ref().filter(|_| kind == EXT) {
        claim_ext(device, options, &mut files, &mut claims, &mut findings);
    }
    let length = device.as_ref().map(|device| device.length);
    let length = length
        .or_else(|| claims.iter().map(Claim::end).max())
        .unwrap_or(0);
    let show = |claim: &Claim| match files.get(claim.file) {
        Some(record) => format!("{} of inode {}", claim.kind, record.inode),
        None => claim.kind.to_string(),
    };
    let ranges = resolve(claims, &mut findings, show);
    files.connect(&mut Findings::default());
    let block_bytes = u64::from_ne_bytes(statfs.f_bsize.to_ne_bytes());
    let volume = Volume {
        kind: FileSystemKind::Mounted,
        description: format!("{name} mounted, below {}", path.display()),
        base: 0,
        length,
        block_bytes,
        ranges,
        files,
        inode_tables: Vec::new(),
        logged: Vec::new(),
        findings,
    };
    Ok(OwnerMap::of_mounted(volume, device))
}

/// Adds the kernel's information about metadata, free space, and (XFS) blocks that FIEMAP does not report.
fn claim_fsmap(
    root: impl std::os::fd::AsFd,
    device: u64,
    files: &mut FileTable,
    claims: &mut Vec<Claim>,
    findings: &mut Findings,
) {
    let wanted = fsmap::encoded(device);
    let mut records = Vec::new();
    let outcome = fsmap::records(root, |record| {
        if record.device == wanted {
            records.push(record);
        }
        ControlFlow::Continue(())
    });
    if let Err(error) = outcome {
        findings.note(format!(
            "metadata and free space are not told apart: GETFSMAP: {error}"
        ));
    }
    let mut added = Added::default();
    for record in records {
        let claim = Claim {
            shared: record.shared,
            ..Claim::area(record.physical, record.length, BlockType::Unknown, Rank::Layout)
        };
        match record.owner {
            fsmap::Owner::System(owner) => {
                let kind = owner.block_type();
                let rank = match kind {
                    BlockType::Free | BlockType::Unknown => Rank::Gap,
                    _ => claim.rank,
                };
                claims.push(Claim { kind, rank, ..claim });
            }
            fsmap::Owner::Inode(inode, kind) => {
                let known = files.by_inode(inode);
                let record_kind = known.and_then(|file| files.get(file)).map(|record| record.kind);
                if kind == BlockType::Data && record_kind == Some(FileKind::Regular) {
                    // Already reported by FIEMAP.
                    continue;
                }
                let Some(file) = known.or_else(|| added.file(inode, files)) else {
                    continue;
                };
                let kind = match (kind, record_kind) {
                    (BlockType::Data, Some(FileKind::Directory)) => BlockType::Directory,
                    (BlockType::Data, Some(FileKind::Symlink)) => BlockType::Symlink,
                    (kind, _) => kind,
                };
                claims.push(Claim {
                    kind,
                    file,
                    file_offset: record.offset,
                    content: if record.unwritten {
                        Content::Unwritten
                    } else {
                        Content::Written
                    },
                    rank: Rank::Trusted,
                    ..claim
                });
            }
        }
    }
    files.sort();
}

/// Adds journal and tree nodes from the structures on the device.
fn claim_ext(
    device: &Device,
    options: &Options,
    files: &mut FileTable,
    claims: &mut Vec<Claim>,
    findings: &mut Findings,
) {
    let node = Path::new("/dev").join(&device.name);
    let areas = Options {
        journal: JournalDetail::Areas,
        ..*options
    };
    let Some(volume) = Source::open(&node)
        .ok()
        .and_then(|source| ext4::map(&source, 0, &areas).ok())
    else {
        findings.note(format!(
            "journal and tree nodes stay unknown: {} can't be read",
            node.display()
        ));
        return;
    };
    let mut added = Added::default();
    for claim in &volume.ranges.owners {
        let wanted = claim.kind.class() == Class::Journal
            || matches!(
                claim.kind,
                BlockType::ExtentTree
                    | BlockType::IndirectBlock
                    | BlockType::Quota
                    | BlockType::OrphanFile
                    | BlockType::MultiMountProtection
                    | BlockType::Xattr
                    | BlockType::Slack
            );
        if !wanted {
            continue;
        }
        let inode = volume.files.get(claim.file).map(|record| record.inode);
        let file = inode.and_then(|inode| files.by_inode(inode).or_else(|| added.file(inode, files)));
        // The device may be older than the kernel's state in memory; the position of the journal does not change.
        let settled = claim.kind.class() == Class::Journal;
        claims.push(Claim {
            file: file.unwrap_or(crate::resolve::NO_FILE),
            rank: if settled { Rank::Trusted } else { Rank::Stale },
            shared: true,
            ..*claim
        });
    }
    files.sort();
}

/// Inodes that have blocks and no name below the mountpoint; they can be found by number only after the next sort.
#[derive(Debug, Default)]
struct Added(HashMap<u64, u32>);

impl Added {
    fn file(&mut self, inode: u64, files: &mut FileTable) -> Option<u32> {
        if let Some(file) = self.0.get(&inode) {
            return Some(*file);
        }
        let file = files.push(FileRecord::new(inode, 0, FileKind::System))?;
        self.0.insert(inode, file);
        Some(file)
    }
}
