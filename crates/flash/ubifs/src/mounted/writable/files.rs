//! Open files: reads, writes, syncs.

use vfs::{FsError, FsResult, Handle, Ino, OpenFlags, Opened, Privileges, WriteMode};

use super::super::read_ahead::ReadAhead;
use super::super::reading::number;
use super::MountedWriter;
use super::flags::{check_changeable, check_removable};
use crate::file_system::FILE_BYTES_MAX;
use crate::format::{EntryKind, INODE_APPEND, INODE_SYNC, InodeNumber};
use crate::write::SpaceUser;

/// An open file.
pub(super) struct OpenFile {
    pub(super) number: InodeNumber,
    flags: OpenFlags,
    read_ahead: ReadAhead,
}

impl MountedWriter {
    pub(super) fn open_file(&self, ino: Ino, flags: OpenFlags, privileges: Privileges) -> FsResult<Opened> {
        let number = number(ino)?;
        let writer = self.writer();
        let inode = self.reading(&writer).inode(ino)?;
        match inode.kind() {
            Some(EntryKind::Directory) => return Err(FsError::IsADirectory),
            Some(EntryKind::Symlink) => return Err(FsError::TooManySymlinks),
            _ => {}
        }
        if flags.writes() && writer.failure().is_some() {
            return Err(FsError::ReadOnly);
        }
        if flags.writes() {
            check_changeable(&inode)?;
            if inode.flags & INODE_APPEND != 0 && !flags.has(libc::O_APPEND) {
                return Err(FsError::NotPermitted);
            }
        }
        if flags.has(libc::O_TRUNC) {
            check_removable(&inode)?;
        }
        writer.hold(number);
        drop(writer);
        if flags.has(libc::O_TRUNC) {
            let cut = self.change(|writer, now| self.resize(writer, ino, 0, privileges, now));
            cut.inspect_err(|_| self.let_go(number, 1))?;
        }
        Ok(Opened {
            handle: self.files.add(OpenFile {
                number,
                flags,
                read_ahead: ReadAhead::default(),
            }),
        })
    }

    pub(super) fn read_file(&self, handle: Handle, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        let file = self.files.get(handle)?;
        let writer = self.writer();
        let reading = self.reading(&writer);
        let inode = reading.inode(Ino(file.number.0.into()))?;
        let version = self.versions.get(file.number);
        let read = file
            .read_ahead
            .read(&self.windows, reading.ubifs, (&inode, version), offset, out);
        read.map_err(|error| reading.fail(&error))
    }

    pub(super) fn write_file(
        &self,
        handle: Handle,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
    ) -> FsResult<usize> {
        let file = self.files.get(handle)?;
        if !file.flags.writes() {
            return Err(FsError::BadHandle);
        }
        if data.is_empty() {
            return Ok(0);
        }
        self.change(|writer, now| {
            let inode = self.reading(writer).inode(Ino(file.number.0.into()))?;
            let appends = mode.flags.has(libc::O_APPEND) && !mode.from_page_cache;
            let offset = if appends { inode.size_bytes } else { offset };
            let room = FILE_BYTES_MAX.saturating_sub(offset);
            if room == 0 {
                return Err(FsError::FileTooBig);
            }
            let fits = usize::try_from(room).unwrap_or(usize::MAX).min(data.len());
            self.drop_privileges(writer, &inode, mode.privileges, now)?;
            if mode.privileges.are_killed() {
                // The capabilities to keep setuid (CAP_FSETID) and to use the reserved pool (CAP_SYS_RESOURCE)
                // differ, but in practice root has both.
                writer.act_for(SpaceUser::Anybody);
            }
            self.versions.note_change(file.number);
            let is_synchronous = mode.flags.has(libc::O_DSYNC) && !mode.from_page_cache;
            let written = match is_synchronous || inode.flags & INODE_SYNC != 0 {
                true => writer.write_synced(file.number, offset, &data[..fits], now),
                false => writer.write(file.number, offset, &data[..fits], now),
            };
            written.map_err(|error| self.fail(&error))
        })
    }

    pub(super) fn sync_buffers(&self) -> FsResult<()> {
        self.writer_mut().fsync().map_err(|error| self.fail_sync(&error))
    }
}
