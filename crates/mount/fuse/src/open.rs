//! OPEN, CREATE, TMPFILE and RELEASE: issues handles and decides the I/O mode of open files.

use vfs::{Handle, Ino, NewNode, OpenFlags, Opened};

use crate::abi::{CreateIn, EntryOut, OPEN_KILL_SUIDGID, OpenIn, OpenOut, fopen, opcode};
use crate::config::DirectIo;
use crate::dispatch::{Dispatcher, privileges_if, put};
use crate::inode_states::Use;
use crate::reply::entry_out;
use crate::request::{Request, take_name};

impl Dispatcher {
    pub(crate) fn open(&self, request: &Request, out: &mut Vec<u8>) -> vfs::FsResult<()> {
        let args: OpenIn = request.fixed()?;
        let flags =
            OpenFlags(args.flags.cast_signed()).without(libc::O_CREAT | libc::O_EXCL | libc::O_NOCTTY);
        let privileges = privileges_if(args.open_flags & OPEN_KILL_SUIDGID != 0, request);
        let ino = request.ino();
        let opened = self.file_system.open(ino, flags, privileges)?;
        let keeps_cache = || self.file_system.cache_still_valid(ino, opened.handle);
        let (reply, outdates_attributes) = self.open_out(ino, opened, flags, keeps_cache);
        if outdates_attributes {
            (self.forget_attributes)(ino);
        }
        put(out, &reply);
        Ok(())
    }

    pub(crate) fn create(&self, request: &Request, input: &[u8], out: &mut Vec<u8>) -> vfs::FsResult<()> {
        let args: CreateIn = request.fixed()?;
        let node = NewNode {
            mode: args.mode,
            umask: args.umask,
            rdev: 0,
        };
        let flags = OpenFlags(args.flags.cast_signed());
        let (caller, parent, mut input) = (request.caller(), request.ino(), input);
        let (entry, opened) = if request.header.opcode == opcode::TMPFILE {
            self.file_system.tmpfile(&caller, parent, node, flags)?
        } else {
            self.file_system
                .create(&caller, parent, take_name(&mut input)?, node, flags)?
        };
        if request.header.opcode != opcode::TMPFILE {
            self.sync_names(parent).inspect_err(|_| {
                self.file_system.release(entry.ino, opened.handle);
                self.file_system.forget(entry.ino, 1);
            })?;
        }
        let (reply, _) = self.open_out(entry.ino, opened, flags, || false);
        let trust = self.trust_in_created(self.entry_lifetime(parent), &entry);
        put::<EntryOut>(out, &entry_out(&entry, trust));
        put(out, &reply);
        Ok(())
    }

    /// Decides the I/O mode of an open file: passthrough, direct, or through the kernel's page cache. Without passthrough
    /// the kernel drops what it cached before this open unless `keeps_cache`. True if attributes sent before carry a longer
    /// lifetime than is now allowed.
    fn open_out(
        &self,
        ino: Ino,
        opened: Opened,
        flags: OpenFlags,
        keeps_cache: impl FnOnce() -> bool,
    ) -> (OpenOut, bool) {
        let Handle(fh) = opened.handle;
        let backing = || self.file_system.backing_file(ino, opened.handle);
        // A file that is only read has nothing to flush at close; a written one only needs a FLUSH if the host's close
        // may fail.
        let mut open_flags = if flags.writes() { 0 } else { fopen::NOFLUSH };
        let counted = self.inodes.open(ino, use_of(flags), backing);
        if let Some(file) = counted.passthrough {
            open_flags |= fopen::PASSTHROUGH;
            if !file.close_may_fail {
                open_flags |= fopen::NOFLUSH;
            }
            let reply = OpenOut {
                fh,
                open_flags,
                backing_id: file.backing_id,
            };
            return (reply, counted.outdates_attributes);
        }
        let direct_io = match self.direct_io {
            // The page cache would place appended data at the kernel's idea of the end of file.
            DirectIo::Off => {
                flags.writes() && (flags.has(libc::O_APPEND) || self.must_not_write_back(ino, opened.handle))
            }
            DirectIo::Writers => flags.writes(),
            DirectIo::On => true,
        };
        if direct_io {
            open_flags |= fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES;
            self.synced_by_kernel.opened_direct(opened.handle);
        }
        let drops = self.inodes.must_drop_content(ino, opened.handle);
        if keeps_cache() && !drops {
            open_flags |= fopen::KEEP_CACHE;
        }
        let reply = OpenOut {
            fh,
            open_flags,
            backing_id: 0,
        };
        (reply, counted.outdates_attributes)
    }

    /// True if the kernel's writeback cache would delay writes that the file system below syncs by itself.
    fn must_not_write_back(&self, ino: Ino, handle: Handle) -> bool {
        self.writeback && self.file_system.is_synchronous(ino, handle)
    }

    pub(crate) fn release(&self, ino: Ino, handle: Handle) {
        // First, as the handle's number may be reused after the release.
        self.synced_by_kernel.released(handle);
        self.file_system.release(ino, handle);
        self.inodes.release(ino, handle);
    }
}

/// A shared writable mapping takes a descriptor that reads and writes.
fn use_of(flags: OpenFlags) -> Use {
    match (flags.reads(), flags.writes()) {
        (true, true) => Use::Maps,
        (false, true) => Use::Writes,
        (_, false) => Use::Reads,
    }
}
