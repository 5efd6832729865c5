//! The map of an opened input: one file system, a disk of several, or a mounted one; and lookups in it.

use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::Path as FsPath;

use crate::block_type::BlockType;
use crate::files::{FileKind, FileRecord, Life, Path};
use crate::options::{OpenError, Options};
use crate::partition::{self, Disk};
use crate::resolve::{Claim, Content, NO_FILE};
use crate::source::Source;
use crate::volume::Volume;
use crate::{ext4, fat, mounted};

/// Bytes of a sector in block traces, whatever the device's sector size is.
pub const SECTOR_BYTES: u64 = 512;

/// Identifies a file by file system and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    volume: usize,
    file: u32,
}

/// The kernel's information about the mapped device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Major and minor number.
    pub number: (u32, u32),
    /// Name in /dev.
    pub name: String,
    /// Offset on its disk, in bytes; 0 for a whole disk.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
}

/// A part of a range with one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte, in the same coordinates as the requested range.
    pub start: u64,
    /// Length in bytes; never 0.
    pub length: u64,
    /// Its type.
    pub kind: BlockType,
    /// Its owner.
    pub file: Option<FileId>,
    /// Its offset in the file, in bytes. For nodes of a tree: the first byte that they lead to.
    pub file_offset: Option<u64>,
    /// State of the file's content there.
    pub content: Content,
    /// Part of it has other owners too: shared or cross-linked blocks. [`OwnerMap::others`] lists them.
    pub contested: bool,
    /// It was read from a structure that failed a check.
    pub doubtful: bool,
    /// Index of the file system in [`OwnerMap::volumes`].
    pub volume: Option<usize>,
}

/// Attributes of a file.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    record: &'a FileRecord,
    volume: &'a Volume,
    id: FileId,
}

impl File<'_> {
    /// Inode number; on FAT, which has none, a number derived from the position of the entry.
    pub fn inode(&self) -> u64 {
        self.record.inode
    }

    /// Distinguishes successive files with the same inode number; 0 if the file system does not store it.
    pub fn generation(&self) -> u32 {
        self.record.generation
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.record.size
    }

    /// Its type.
    pub fn kind(&self) -> FileKind {
        self.record.kind
    }

    /// Whether it is in use.
    pub fn life(&self) -> Life {
        self.record.life
    }

    /// Hard links, according to the inode.
    pub fn links(&self) -> u32 {
        self.record.links
    }

    /// Time of deletion, in seconds since 1970.
    pub fn deleted_at(&self) -> Option<u32> {
        (self.record.deleted_at != 0).then_some(self.record.deleted_at)
    }

    /// Number of names found.
    pub fn name_count(&self) -> u32 {
        self.volume.files.name_count(self.id.file)
    }

    /// All its paths.
    pub fn paths(&self) -> impl Iterator<Item = Path> + '_ {
        self.volume.paths(self.id.file)
    }

    /// The path to report, as text; invalid UTF-8 is replaced. `None` if the file has no name.
    pub fn path(&self) -> Option<String> {
        let path = self.paths().next()?;
        Some(String::from_utf8_lossy(&path.bytes).into_owned())
    }
}

/// Map from bytes to owners.
#[derive(Debug)]
pub struct OwnerMap {
    /// In order of their base, not overlapping.
    volumes: Vec<Volume>,
    device: Option<Device>,
}

impl OwnerMap {
    /// Maps an image or a block device by its own structures, or a mounted file system by its mountpoint.
    pub fn open(path: &FsPath, options: &Options) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Unreadable {
            path: path.to_owned(),
            source,
        };
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if metadata.is_dir() {
            return mounted::map(path, options);
        }
        let source = Source::open(path)?;
        let device = if metadata.file_type().is_block_device() {
            mounted::device_of_node(&metadata)
        } else {
            None
        };
        let base = options.offset.unwrap_or(0);
        let part = source.part(base, u64::MAX);
        if let Some(volume) = volume_of(&part, base, options)? {
            return Ok(Self {
                volumes: vec![volume],
                device,
            });
        }
        if options.offset.is_none()
            && let Some(disk) = partition::read(&source)
        {
            return Ok(Self {
                volumes: volumes_of(&source, disk, options)?,
                device,
            });
        }
        if ext4::probe_backups(&part) {
            return Ok(Self {
                volumes: vec![ext4::map(&part, base, options)?],
                device,
            });
        }
        Err(OpenError::Unsupported {
            path: path.to_owned(),
            reason: match fat::foreign(&part) {
                Some(name) => format!("{name} is not read from an image; mount it and name the mountpoint"),
                None => format!(
                    "no ext2, ext3, ext4 or FAT at byte {base}, and no partition table; mount what it is and name the \
                     mountpoint, or give the first byte of the file system"
                ),
            },
        })
    }

    pub(crate) fn of_mounted(volume: Volume, device: Option<Device>) -> Self {
        Self {
            volumes: vec![volume],
            device,
        }
    }

    /// The file systems, in the order of their positions.
    pub fn volumes(&self) -> &[Volume] {
        &self.volumes
    }

    /// The device, if a device or a mounted file system was opened. Ranges count from its start.
    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// Whether there are no findings.
    pub fn is_sound(&self) -> bool {
        self.volumes.iter().all(|volume| volume.findings.total() == 0)
    }

    /// Owners of the bytes of `range`, in order and without gaps; bytes outside of all file systems are unknown.
    pub fn pieces(&self, range: Range<u64>) -> Pieces<'_> {
        Pieces {
            map: self,
            position: range.start,
            end: range.end,
            at: None,
        }
    }

    /// Like [`OwnerMap::pieces`], for sectors of 512 bytes.
    pub fn sectors(&self, first: u64, count: u64) -> Pieces<'_> {
        let start = first.saturating_mul(SECTOR_BYTES);
        self.pieces(start..start.saturating_add(count.saturating_mul(SECTOR_BYTES)))
    }

    /// Owner of one byte.
    pub fn owner(&self, byte: u64) -> Option<Piece> {
        self.pieces(byte..byte.saturating_add(1)).next()
    }

    /// All pieces.
    pub fn all(&self) -> Pieces<'_> {
        let end = self
            .volumes
            .last()
            .map_or(0, |volume| volume.base.saturating_add(volume.length));
        let start = self.volumes.first().map_or(0, |volume| volume.base);
        self.pieces(start..end)
    }

    /// Further owners of a range, of shared and of cross-linked blocks.
    pub fn others(&self, range: Range<u64>) -> Vec<Piece> {
        let mut others = Vec::new();
        for (number, volume) in self.volumes.iter().enumerate() {
            let end = volume.base.saturating_add(volume.length);
            if range.start < end && range.end > volume.base {
                let start = range.start.max(volume.base) - volume.base;
                let local = start..range.end.min(end) - volume.base;
                others.extend(volume.others(local.clone()).map(|claim| {
                    let start = claim.start.max(local.start);
                    let end = claim.end().min(local.end);
                    piece(number, volume, claim, start, end)
                }));
            }
        }
        others
    }

    /// The file with this id.
    pub fn file(&self, id: FileId) -> Option<File<'_>> {
        let volume = self.volumes.get(id.volume)?;
        let record = volume.files.get(id.file)?;
        Some(File { record, volume, id })
    }

    /// All files of a file system.
    pub fn files(&self, volume: usize) -> impl Iterator<Item = (FileId, File<'_>)> {
        let of = self.volumes.get(volume);
        of.into_iter().flat_map(move |of| {
            (0..).zip(of.files.all()).map(move |(file, record)| {
                let id = FileId { volume, file };
                let view = File {
                    record,
                    volume: of,
                    id,
                };
                (id, view)
            })
        })
    }

    /// A file by its inode number.
    pub fn by_inode(&self, volume: usize, inode: u64) -> Option<(FileId, File<'_>)> {
        let file = self.volumes.get(volume)?.files.by_inode(inode)?;
        let id = FileId { volume, file };
        Some((id, self.file(id)?))
    }

    /// Numbers of the first and the last inode in a piece of an inode table.
    pub fn inodes_in(&self, piece: &Piece) -> Option<(u64, u64)> {
        let volume = self.volumes.get(piece.volume?)?;
        let start = piece.start.checked_sub(volume.base)?;
        volume.inodes_in(&(start..start + piece.length))
    }

    /// For a piece that starts with a copy of a block in the journal: the first byte of the original block, and the
    /// transaction.
    pub fn home_of(&self, piece: &Piece) -> Option<(u64, u32)> {
        let volume = self.volumes.get(piece.volume?)?;
        let byte = piece.start.checked_sub(volume.base)?;
        let at = volume
            .logged
            .partition_point(|copy| copy.byte <= byte)
            .checked_sub(1)?;
        let copy = volume.logged.get(at)?;
        (byte - copy.byte < volume.block_bytes).then(|| {
            (
                volume.base + copy.home.saturating_mul(volume.block_bytes),
                copy.sequence,
            )
        })
    }
}

/// The file system that starts here, if its type is supported.
fn volume_of(part: &Source, base: u64, options: &Options) -> Result<Option<Volume>, OpenError> {
    if ext4::probe(part) {
        return ext4::map(part, base, options).map(Some);
    }
    if fat::probe(part) {
        return fat::map(part, base).map(Some);
    }
    Ok(None)
}

/// All partitions of a disk, and the gaps between them.
fn volumes_of(source: &Source, disk: Disk, options: &Options) -> Result<Vec<Volume>, OpenError> {
    let mut volumes = Vec::new();
    let mut position = 0;
    for partition in &disk.partitions {
        if partition.start > position {
            volumes.push(disk.gap(position, partition.start));
        }
        let end = partition
            .start
            .saturating_add(partition.length)
            .min(source.length());
        let part = source.part(partition.start, partition.length);
        let found = match volume_of(&part, partition.start, options)? {
            None if ext4::probe_backups(&part) => Some(ext4::map(&part, partition.start, options)?),
            found => found,
        };
        volumes.push(match found {
            Some(volume) => Volume {
                description: format!("partition {}, {}", partition.number, volume.description),
                ..volume
            },
            None => disk.unknown(*partition, end),
        });
        position = end;
    }
    if position < source.length() {
        volumes.push(disk.gap(position, source.length()));
    }
    if let Some(first) = volumes.first_mut() {
        first.findings.append(disk.findings);
    }
    Ok(volumes)
}

fn piece(number: usize, volume: &Volume, claim: &Claim, start: u64, end: u64) -> Piece {
    let owned = claim.file != NO_FILE;
    Piece {
        start: volume.base + start,
        length: end - start,
        kind: claim.kind,
        file: owned.then_some(FileId {
            volume: number,
            file: claim.file,
        }),
        file_offset: owned.then(|| claim.file_offset.saturating_add(start - claim.start)),
        content: claim.content,
        contested: volume.others(start..end).next().is_some(),
        doubtful: claim.rank == crate::resolve::Rank::Doubtful,
        volume: Some(number),
    }
}

/// The pieces of a range, in order.
#[derive(Debug)]
pub struct Pieces<'a> {
    map: &'a OwnerMap,
    position: u64,
    end: u64,
    /// Position of the last piece: volume and index of its range.
    at: Option<(usize, usize)>,
}

impl Pieces<'_> {
    fn nobody(&mut self, end: u64) -> Option<Piece> {
        let start = self.position;
        self.position = end;
        Some(Piece {
            start,
            length: end - start,
            kind: BlockType::Unknown,
            file: None,
            file_offset: None,
            content: Content::Written,
            contested: false,
            doubtful: false,
            volume: None,
        })
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.position >= self.end {
            return None;
        }
        let volumes = &self.map.volumes;
        let number =
            volumes.partition_point(|volume| volume.base.saturating_add(volume.length) <= self.position);
        let Some(volume) = volumes.get(number) else {
            return self.nobody(self.end);
        };
        if volume.base > self.position {
            return self.nobody(self.end.min(volume.base));
        }
        let local = self.position - volume.base;
        let index = match self.at {
            Some((last, index)) if last == number => index + 1,
            _ => volume.range_at(local),
        };
        let local_end = (self.end - volume.base).min(volume.length);
        let claim = volume
            .ranges
            .owners
            .get(index)
            .filter(|claim| claim.start < local_end);
        let Some(claim) = claim else {
            return self.nobody(volume.base + local_end);
        };
        if claim.start > local {
            self.at = index.checked_sub(1).map(|before| (number, before));
            return self.nobody(volume.base + claim.start);
        }
        self.at = Some((number, index));
        let end = claim.end().min(local_end);
        self.position = volume.base + end;
        Some(piece(number, volume, claim, local, end))
    }
}
