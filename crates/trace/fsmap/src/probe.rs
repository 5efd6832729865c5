//! Identifies file systems and partition tables by their superblocks, without mapping them.
//!
//! It reads boot sectors, superblocks and partition tables, never inodes: a few reads, whatever the size of the image.

use std::path::Path;

use crate::finding::Findings;
use crate::options::OpenError;
use crate::partition;
use crate::source::Source;
use crate::volume::FileSystemKind;
use crate::{ext4, fat};

/// A file system, a partition table, or a partition without a supported file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// Type; [`FileSystemKind::Disk`] for partition tables and for partitions that are not supported.
    pub kind: FileSystemKind,
    /// Full name, as in [`crate::Volume::description`].
    pub description: String,
    /// Offset in the image, bytes.
    pub base: u64,
    /// Length in bytes, limited to the medium.
    pub length: u64,
    /// Problems of its superblock.
    pub problems: Vec<String>,
}

/// Identifies the beginning of an image or a block device: one file system, or a partition table followed by its
/// partitions. Empty if neither is supported.
///
/// # Errors
/// If it can't be read, or is empty.
pub fn probe(path: &Path) -> Result<Vec<Probed>, OpenError> {
    let source = Source::open(path)?;
    if let Some(found) = file_system(&source, 0) {
        return Ok(vec![found]);
    }
    if let Some(disk) = partition::read(&source) {
        let count = disk.partitions.len();
        let table = Probed {
            kind: FileSystemKind::Disk,
            description: format!("{} partition table with {count} partitions", disk.name),
            base: 0,
            length: source.length(),
            problems: problems(&disk.findings),
        };
        let partitions = disk.partitions.iter().map(|partition| {
            let part = source.part(partition.start, partition.length);
            file_system(&part, partition.start).unwrap_or_else(|| Probed {
                kind: FileSystemKind::Disk,
                description: format!("partition {}, no supported file system", partition.number),
                base: partition.start,
                length: part.length(),
                problems: Vec::new(),
            })
        });
        return Ok([table].into_iter().chain(partitions).collect());
    }
    let backup = ext4::probe_backups(&source).then(|| ext4::summary(&source, 0));
    Ok(backup.flatten().into_iter().collect())
}

fn file_system(part: &Source, base: u64) -> Option<Probed> {
    if ext4::probe(part) {
        return ext4::summary(part, base);
    }
    fat::probe(part).then(|| fat::summary(part, base)).flatten()
}

pub(crate) fn problems(findings: &Findings) -> Vec<String> {
    findings.list().iter().map(ToString::to_string).collect()
}
