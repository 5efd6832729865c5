//! Changes of attributes and extended attributes.

use vfs::{Attr, FsError, FsResult, Handle, Ino, Privileges, SetAttr, SetTime, Timestamp, XattrFlags};

use super::super::attributes;
use super::super::reading::number;
use super::MountedWriter;
use super::flags::{check_changeable, check_not_append, check_removable};
use super::names::PERMISSIONS;
use crate::file_system::FILE_BYTES_MAX;
use crate::format::{EntryKind, INODE_DATA_BYTES_MAX, INODE_SYNC, Inode};
use crate::mkfs::Time;
use crate::write::{WriteError, Writer};

/// File capabilities, which are dropped together with setuid.
const CAPABILITY: &[u8] = b"security.capability";

/// Updates ctime.
pub(super) const fn changed(inode: &mut Inode, now: Time) {
    (inode.changed_seconds, inode.changed_nanoseconds) = (now.seconds.cast_unsigned(), now.nanoseconds);
}

impl MountedWriter {
    pub(super) fn set_attributes(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        change: &SetAttr,
    ) -> FsResult<Attr> {
        self.change(|writer, now| {
            if let Some(bytes) = change.size {
                let inode = self.reading(writer).inode(ino)?;
                match handle {
                    // Files opened before they became immutable stay writable.
                    Some(_) => check_not_append(&inode)?,
                    None => check_removable(&inode)?,
                }
                self.resize(writer, ino, bytes, change.privileges, now)?;
            }
            let others = SetAttr {
                size: None,
                privileges: Privileges::Keep,
                ..*change
            };
            if others != SetAttr::default() {
                self.set_others(writer, ino, &others, now)?;
            }
            self.sync_where_flagged(writer, ino, INODE_SYNC)?;
            let reading = self.reading(writer);
            reading.attr(&reading.inode(ino)?)
        })
    }

    fn set_others(&self, writer: &mut Writer, ino: Ino, change: &SetAttr, now: Time) -> FsResult<()> {
        let inode = self.reading(writer).inode(ino)?;
        let sets_only_times_to_now = change.mode.is_none()
            && change.uid.is_none()
            && change.gid.is_none()
            && !matches!(change.atime, Some(SetTime::At(_)))
            && !matches!(change.mtime, Some(SetTime::At(_)));
        match sets_only_times_to_now {
            true => check_changeable(&inode)?,
            false => check_removable(&inode)?,
        }
        let changes_owner = change.uid.is_some() || change.gid.is_some();
        if changes_owner && inode.kind() != Some(EntryKind::Directory) {
            // Linux does this for all users.
            let killed = Privileges::Kill { gid: inode.group };
            self.drop_privileges(writer, &inode, killed, now)?;
        }
        let time = |time| match time {
            SetTime::Now => now,
            SetTime::At(Timestamp { seconds, nanoseconds }) => Time { seconds, nanoseconds },
        };
        let set = writer.set_attributes(number(ino)?, &|inode| {
            inode.user = change.uid.unwrap_or(inode.user);
            inode.group = change.gid.unwrap_or(inode.group);
            if let Some(mode) = change.mode {
                inode.mode = inode.mode & !PERMISSIONS | mode & PERMISSIONS;
            }
            if let Some(accessed) = change.atime.map(time) {
                (inode.accessed_seconds, inode.accessed_nanoseconds) =
                    (accessed.seconds.cast_unsigned(), accessed.nanoseconds);
            }
            if let Some(modified) = change.mtime.map(time) {
                (inode.modified_seconds, inode.modified_nanoseconds) =
                    (modified.seconds.cast_unsigned(), modified.nanoseconds);
            }
            changed(inode, now);
        });
        set.map_err(|error| self.fail(&error))
    }

    /// Truncates or extends a file; the caller has checked the inode flags.
    pub(super) fn resize(
        &self,
        writer: &mut Writer,
        ino: Ino,
        bytes: u64,
        privileges: Privileges,
        now: Time,
    ) -> FsResult<()> {
        let inode = self.reading(writer).inode(ino)?;
        if bytes > FILE_BYTES_MAX {
            return Err(FsError::FileTooBig);
        }
        self.drop_privileges(writer, &inode, privileges, now)?;
        let number = number(ino)?;
        self.versions.note_change(number);
        let cut = writer.truncate(number, bytes, now);
        cut.map_err(|error| self.fail(&error))
    }

    /// Drops setuid, setgid and capabilities after a change of content or owner, as far as `privileges` says.
    pub(super) fn drop_privileges(
        &self,
        writer: &mut Writer,
        inode: &Inode,
        privileges: Privileges,
        now: Time,
    ) -> FsResult<()> {
        if !privileges.are_killed() {
            return Ok(());
        }
        let number = inode.key.inode_number();
        let mode = privileges.left_of(inode.mode, inode.group);
        if mode != inode.mode {
            let set = writer.set_attributes(number, &|inode| {
                inode.mode = mode;
                changed(inode, now);
            });
            set.map_err(|error| self.fail(&error))?;
        }
        let has_capability = inode.xattr_count > 0 && self.has_xattr(writer, inode, CAPABILITY)?;
        if has_capability {
            let removed = writer.remove_xattr(number, CAPABILITY, now);
            removed.map_err(|error| self.fail(&error))?;
        }
        Ok(())
    }

    fn has_xattr(&self, writer: &Writer, inode: &Inode, name: &[u8]) -> FsResult<bool> {
        let found = writer.read().xattr_inode(inode.key.inode_number(), name);
        let found = found.map_err(|error| self.reading(writer).fail(&error))?;
        Ok(found.is_some())
    }

    pub(super) fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> FsResult<()> {
        attributes::check_namespace(name)?;
        if u32::try_from(value.len()).map_or(true, |bytes| bytes > INODE_DATA_BYTES_MAX) {
            return Err(FsError::OutOfRange);
        }
        self.change(|writer, now| {
            let inode = self.reading(writer).inode(ino)?;
            check_removable(&inode)?;
            let exists = self.has_xattr(writer, &inode, name)?;
            if exists && flags.0 & libc::XATTR_CREATE != 0 {
                return Err(FsError::Exists);
            }
            if !exists && flags.0 & libc::XATTR_REPLACE != 0 {
                return Err(FsError::NoData);
            }
            let set = writer.set_xattr(number(ino)?, name, value, now);
            set.map_err(|error| self.fail(&error))?;
            self.sync_where_flagged(writer, ino, INODE_SYNC)
        })
    }

    pub(super) fn remove_xattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        attributes::check_namespace(name)?;
        self.change(|writer, now| {
            check_removable(&self.reading(writer).inode(ino)?)?;
            match writer.remove_xattr(number(ino)?, name, now) {
                Err(WriteError::Read(error)) if attributes::errno(&error) == FsError::NotFound => {
                    return Err(FsError::NoData);
                }
                removed => removed.map_err(|error| self.fail(&error))?,
            }
            self.sync_where_flagged(writer, ino, INODE_SYNC)
        })
    }
}
