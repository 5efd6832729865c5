//! The trait implementation: forwards each call to the module that implements it.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::AtFlags;
use vfs::{
    Attr, Bypass, Caller, ChangeListener, CopyRange, DirSink, Entry, FallocateMode, FileSystem, FsResult,
    Handle, Ino, IoctlReply, NewNode, OpenFlags, Opened, Privileges, RenameFlags, SeekFrom, SetAttr, StatFs,
    WriteMode, XattrFlags,
};

use crate::PassFs;
use crate::attributes::stat;
use crate::identity::errno;

impl FileSystem for PassFs {
    fn mounted_as(&self, device: u32) {
        self.own_device.store(device, Ordering::Relaxed);
    }

    fn report_changes(&self, listener: Arc<dyn ChangeListener>) -> Result<Bypass, String> {
        self.watch(listener)
    }

    fn reports_names_of(&self, directory: Ino) -> bool {
        let device = |inode: Arc<crate::inodes::Inode>| inode.key().device;
        let inode = self.inodes.get(directory);
        inode.is_ok_and(|inode| self.devices.are_reported(device(inode)))
    }

    fn lists_by_offset(&self) -> bool {
        self.lists_by_offset.load(Ordering::Relaxed)
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        self.find(parent, name)
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.inodes.forget(ino, count);
    }

    fn getattr(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Attr> {
        let stat = match handle.map(|handle| self.handles.get(handle)) {
            Some(Ok(open)) => stat(open.fd())?,
            Some(Err(_)) | None => self.answered(ino, |inode| stat(inode.fd()?))?,
        };
        Ok(self.attr(&stat))
    }

    fn setattr(&self, ino: Ino, handle: Option<Handle>, change: &SetAttr) -> FsResult<Attr> {
        self.answered(ino, |inode| self.change(inode, handle, change))
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.answered(ino, |inode| {
            let target = rustix::fs::readlinkat(inode.fd()?, "", Vec::new());
            Ok(target.map_err(errno)?.into_bytes())
        })
    }

    fn mknod(&self, caller: &Caller, parent: Ino, name: &[u8], node: NewNode) -> FsResult<Entry> {
        self.make_node(caller, parent, name, node)
    }

    fn mkdir(&self, caller: &Caller, parent: Ino, name: &[u8], node: NewNode) -> FsResult<Entry> {
        self.make_directory(caller, parent, name, node)
    }

    fn symlink(&self, caller: &Caller, parent: Ino, name: &[u8], target: &[u8]) -> FsResult<Entry> {
        self.make_symlink(caller, parent, name, target)
    }

    fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.remove(caller, parent, name, AtFlags::empty())
    }

    fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.remove(caller, parent, name, AtFlags::REMOVEDIR)
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: RenameFlags,
    ) -> FsResult<()> {
        self.move_name(caller, from, to, flags)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        self.add_name(ino, parent, name)
    }

    fn open(&self, ino: Ino, flags: OpenFlags, privileges: Privileges) -> FsResult<Opened> {
        self.answered(ino, |inode| self.open_file(inode, flags, privileges))
    }

    fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        node: NewNode,
        flags: OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        self.make_file(caller, parent, name, node, flags)
    }

    fn tmpfile(
        &self,
        caller: &Caller,
        parent: Ino,
        node: NewNode,
        flags: OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        self.make_unnamed(caller, parent, node, flags)
    }

    fn read(&self, _ino: Ino, handle: Handle, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        self.read_at(handle, offset, out)
    }

    fn write(&self, _ino: Ino, handle: Handle, offset: u64, data: &[u8], mode: WriteMode) -> FsResult<usize> {
        self.write_at(handle, offset, data, mode)
    }

    fn flush(&self, _ino: Ino, handle: Handle) -> FsResult<()> {
        self.flush_file(handle)
    }

    fn fsync(&self, _ino: Ino, handle: Handle, data_only: bool) -> FsResult<()> {
        self.sync_file(handle, data_only)
    }

    fn release(&self, _ino: Ino, handle: Handle) {
        self.release_file(handle);
    }

    fn cache_still_valid(&self, _ino: Ino, handle: Handle) -> bool {
        self.content_is_kept(handle).unwrap_or(false)
    }

    fn backing_file(&self, _ino: Ino, handle: Handle) -> Option<Arc<OwnedFd>> {
        if !self.config.offer_backing {
            return None;
        }
        let open = self.handles.file(handle).ok()?;
        // The kernel writes by a descriptor of its own then. A server of FUSE may keep what is written by descriptor, and no call
        // of this process would make it store that, or tell its error.
        (!open.is_on_fuse).then(|| Arc::clone(&open.file))
    }

    fn keeps_data_by_handle(&self, _ino: Ino, handle: Handle) -> bool {
        self.handles.file(handle).is_ok_and(|open| open.is_on_fuse)
    }

    fn is_synchronous(&self, _ino: Ino, handle: Handle) -> bool {
        self.syncs_by_itself(handle)
    }

    fn path_of(&self, ino: Ino, handle: Option<Handle>) -> Option<PathBuf> {
        let open = handle.and_then(|handle| self.handles.file(handle).ok());
        let path = match open {
            Some(open) => rustix::fs::readlink(crate::proc_path(open.file.as_fd()), Vec::new()),
            None => {
                let inode = self.inodes.get(ino).ok()?;
                rustix::fs::readlink(crate::proc_path(inode.fd().ok()?.as_fd()), Vec::new())
            }
        };
        Some(OsString::from_vec(path.ok()?.into_bytes()).into())
    }

    fn fallocate(
        &self,
        _ino: Ino,
        handle: Handle,
        mode: FallocateMode,
        offset: u64,
        length: u64,
        privileges: Privileges,
    ) -> FsResult<()> {
        self.allocate(handle, mode, offset, length, privileges)
    }

    fn lseek(&self, _ino: Ino, handle: Handle, from: SeekFrom) -> FsResult<u64> {
        self.seek_file(handle, from)
    }

    fn copy_file_range(&self, copy: &CopyRange) -> FsResult<u64> {
        self.copy(copy)
    }

    fn ioctl(
        &self,
        _ino: Ino,
        handle: Handle,
        command: u32,
        input: &[u8],
        output_bytes_max: usize,
    ) -> FsResult<IoctlReply> {
        self.control(handle, command, input, output_bytes_max)
    }

    fn opendir(&self, ino: Ino) -> FsResult<Handle> {
        self.open_directory(ino)
    }

    fn readdir(&self, _ino: Ino, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        self.list(handle, offset, sink, false)
    }

    fn readdir_plus(&self, _ino: Ino, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        self.list(handle, offset, sink, true)
    }

    fn fsyncdir(&self, _ino: Ino, handle: Handle, data_only: bool) -> FsResult<()> {
        self.sync_directory(handle, data_only)
    }

    fn releasedir(&self, _ino: Ino, handle: Handle) {
        drop(self.handles.remove(handle));
    }

    fn statfs(&self, ino: Ino) -> FsResult<StatFs> {
        let found = rustix::fs::fstatvfs(self.inodes.get(ino)?.fd()?).map_err(errno)?;
        let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Ok(StatFs {
            blocks: found.f_blocks,
            blocks_free: found.f_bfree,
            blocks_available: found.f_bavail,
            files: found.f_files,
            files_free: found.f_ffree,
            block_size: narrow(found.f_bsize),
            fragment_size: narrow(found.f_frsize),
            name_max: narrow(found.f_namemax),
        })
    }

    fn sync(&self) -> FsResult<()> {
        rustix::fs::syncfs(&self.source).map_err(errno)
    }

    fn setxattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
        clear_setgid: bool,
    ) -> FsResult<()> {
        self.answered(ino, |inode| {
            self.set_attribute(inode, name, value, flags, clear_setgid)
        })
    }

    fn set_acl(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
        clear_setgid: bool,
    ) -> FsResult<()> {
        self.answered(ino, |inode| {
            self.change_acl(caller, inode, name, value, (flags, clear_setgid))
        })
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.answered(ino, |inode| self.attribute(inode, name))
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.answered(ino, |inode| self.attribute_names(inode))
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.answered(ino, |inode| self.remove_attribute(inode, name))
    }
}
