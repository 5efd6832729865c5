//! An open directory: a snapshot of its entries taken at open.

use vfs::{DirEntry, DirSink, Entry, FileKind, FsError, FsResult};

use crate::file_system::Entry as Name;
use crate::format::{EntryKind, InodeNumber};

/// Number of inodes fetched per request.
const BATCH: usize = 64;
/// Offset of the first entry behind `.` and `..`.
const FIRST: u64 = 2;

/// An open directory.
pub(super) struct OpenDirectory {
    number: InodeNumber,
    names: Vec<Name>,
    is_damaged: bool,
}

impl OpenDirectory {
    pub(super) const fn new(number: InodeNumber, names: Vec<Name>, is_damaged: bool) -> Self {
        Self {
            number,
            names,
            is_damaged,
        }
    }

    /// Lists entries from `offset` on. `entries` resolves a batch of names in order, or returns an empty vector.
    pub(super) fn list(
        &self,
        offset: u64,
        sink: &mut dyn DirSink,
        entries: &mut dyn FnMut(&[Name]) -> Vec<Option<Entry>>,
    ) -> FsResult<()> {
        // The inode of `..` is not known here and not needed: the kernel tracks it.
        for (at, name) in (0..).zip([&b"."[..], b".."]).skip_while(|(at, _)| *at < offset) {
            if !sink.fits(name.len()) {
                return Ok(());
            }
            let entry = DirEntry {
                name,
                shown_ino: self.number.0.into(),
                kind: FileKind::Directory,
                next_offset: at + 1,
            };
            sink.push(&entry, None);
        }
        let start = usize::try_from(offset.saturating_sub(FIRST)).unwrap_or(usize::MAX);
        let rest = self.names.get(start..).unwrap_or_default();
        if rest.is_empty() && self.is_damaged {
            return Err(FsError::Io);
        }
        let mut next_offset = offset.max(FIRST);
        for batch in rest.chunks(BATCH) {
            if !batch.first().is_some_and(|name| sink.fits(name.name.len())) {
                return Ok(());
            }
            let entries = entries(batch);
            for (number, name) in batch.iter().enumerate() {
                if !sink.fits(name.name.len()) {
                    return Ok(());
                }
                next_offset += 1;
                let entry = DirEntry {
                    name: &name.name,
                    shown_ino: name.inode.0.into(),
                    kind: file_kind(name.kind),
                    next_offset,
                };
                sink.push(&entry, entries.get(number).and_then(Option::as_ref));
            }
        }
        Ok(())
    }
}

const fn file_kind(kind: Option<EntryKind>) -> FileKind {
    match kind {
        Some(EntryKind::File) => FileKind::Regular,
        Some(EntryKind::Directory) => FileKind::Directory,
        Some(EntryKind::Symlink) => FileKind::Symlink,
        Some(EntryKind::BlockDevice) => FileKind::BlockDevice,
        Some(EntryKind::CharacterDevice) => FileKind::CharDevice,
        Some(EntryKind::Fifo) => FileKind::Fifo,
        Some(EntryKind::Socket) => FileKind::Socket,
        None => FileKind::Unknown,
    }
}
