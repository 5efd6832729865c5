//! The few ioctls that make sense through a file system: inode flags, project ids, generation.
//!
//! Any other command is [`FsError::NotATerminal`]: its argument could contain pointers into the caller's memory.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::StatVfsMountFlags;
use vfs::{FsError, FsResult, Handle, IoctlReply};

use crate::PassFs;

/// One command, with the size and direction of its argument. The host reads and writes at most `host_bytes`, whatever
/// size the command's number encodes (`FS_IOC_GETFLAGS` says `long` and means `int`).
struct Command {
    /// Number for the host; 32-bit callers' numbers are mapped to the native ones.
    native: libc::Ioctl,
    writes: bool,
    host_bytes: usize,
}

/// `FS_SYNC_FL`
const SYNC_FLAG: u32 = 0x8;
/// The largest argument, `struct fsxattr`.
const ARGUMENT_BYTES_MAX: usize = 28;

fn command(number: u32) -> Option<Command> {
    let (native, writes, host_bytes) = match number {
        // FS_IOC_GETFLAGS, FS_IOC32_GETFLAGS
        0x8008_6601 | 0x8004_6601 => (libc::FS_IOC_GETFLAGS, false, 4),
        // FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS
        0x4008_6602 | 0x4004_6602 => (libc::FS_IOC_SETFLAGS, true, 4),
        // FS_IOC_GETVERSION, FS_IOC32_GETVERSION
        0x8008_7601 | 0x8004_7601 => (libc::FS_IOC_GETVERSION, false, 4),
        // FS_IOC_FSGETXATTR
        0x801c_581f => (0x801c_581f, false, ARGUMENT_BYTES_MAX),
        // FS_IOC_FSSETXATTR
        0x401c_5820 => (0x401c_5820, true, ARGUMENT_BYTES_MAX),
        _ => return None,
    };
    Some(Command {
        native,
        writes,
        host_bytes,
    })
}

impl PassFs {
    pub(crate) fn control(
        &self,
        handle: Handle,
        number: u32,
        input: &[u8],
        output_bytes_max: usize,
    ) -> FsResult<IoctlReply> {
        let command = command(number).ok_or(FsError::NotATerminal)?;
        let open = self.handles.get(handle)?;
        let mut argument = [0; ARGUMENT_BYTES_MAX];
        if command.writes {
            self.check_writable()?;
            if self.config.id_map.is_some() {
                // The shown owner is not the file's.
                return Err(FsError::NotSupported);
            }
            let given = input.get(..command.host_bytes).ok_or(FsError::Invalid)?;
            argument[..command.host_bytes].copy_from_slice(given);
        }
        let result = host_ioctl(open.fd(), command.native, &mut argument)?;
        let data = if command.writes {
            Vec::new()
        } else {
            argument[..command.host_bytes.min(output_bytes_max)].to_vec()
        };
        Ok(IoctlReply { result, data })
    }

    /// True if the host syncs each write to the file: it has the attribute `S`, or its file system is mounted with
    /// `sync`. Makes two calls that stay in the kernel's memory, except on network file systems.
    pub(crate) fn syncs_by_itself(&self, handle: Handle) -> bool {
        let Ok(open) = self.handles.file(handle) else {
            return false;
        };
        let is_mounted_so = rustix::fs::fstatvfs(&open.file)
            .is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::SYNCHRONOUS));
        let mut flags = [0; ARGUMENT_BYTES_MAX];
        // On a host without such attributes no file has them.
        let is_known = host_ioctl(open.file.as_fd(), libc::FS_IOC_GETFLAGS, &mut flags).is_ok();
        let [a, b, c, d, ..] = flags;
        is_mounted_so || (is_known && u32::from_ne_bytes([a, b, c, d]) & SYNC_FLAG != 0)
    }
}

fn host_ioctl(
    fd: BorrowedFd<'_>,
    command: libc::Ioctl,
    argument: &mut [u8; ARGUMENT_BYTES_MAX],
) -> FsResult<i32> {
    // SAFETY: each command of the table reads and writes at most ARGUMENT_BYTES_MAX bytes at the pointer, and
    // `argument` has that many and outlives the call.
    match unsafe { libc::ioctl(fd.as_raw_fd(), command, argument.as_mut_ptr()) } {
        -1 => Err(FsError::from(std::io::Error::last_os_error())),
        result => Ok(result),
    }
}
