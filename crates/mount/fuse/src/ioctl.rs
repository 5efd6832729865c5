//! IOCTL: commands that change an inode's attributes, and their permission checks.
//!
//! Since Linux 5.13 the kernel checks the owner, the mount (`ro`) and the privileges of a caller that sets attributes
//! (chattr(1), project ids) before it sends the request, provided that the command has its native number. Two ways
//! bypass these checks:
//! - A 64-bit program uses the number that the command has for 32-bit programs: the kernel does not know such a command
//!   and passes it on. A local file system answers ENOTTY, and so does this module.
//! - An older kernel passes on every number. Then this module makes the checks for the owner and the superuser.

use vfs::{Attr, FsError, FsResult, Handle};

use crate::abi::{IOCTL_COMPAT, IOCTL_DIR, IoctlIn, IoctlOut};
use crate::dispatch::{Dispatcher, put, usize_of};
use crate::request::Request;

/// `FS_IOC32_GETFLAGS`, `FS_IOC32_SETFLAGS`, `FS_IOC32_GETVERSION`, on machines where native programs use other
/// numbers.
const OF_32_BITS: &[u32] = if cfg!(target_pointer_width = "64") {
    &[0x8004_6601, 0x4004_6602, 0x8004_7601]
} else {
    &[]
};
/// `FS_IOC_FSSETXATTR`
const FSSETXATTR: u32 = 0x401c_5820;
/// `STATX_ATTR_IMMUTABLE` and `STATX_ATTR_APPEND`, which have the numbers of `FS_IMMUTABLE_FL` and `FS_APPEND_FL`.
const PRIVILEGED: u64 = 0x30;
/// Protocol version of the first kernel release that is certain to make the checks.
pub const CHECKING_MINOR: u32 = 34;

impl Dispatcher {
    pub(crate) fn ioctl(&self, request: &Request, input: &[u8], out: &mut Vec<u8>) -> FsResult<()> {
        let args: IoctlIn = request.fixed()?;
        let input = input.get(..usize_of(args.in_size)).ok_or(FsError::Invalid)?;
        if OF_32_BITS.contains(&args.cmd) && args.flags & IOCTL_COMPAT == 0 {
            return Err(FsError::NotATerminal);
        }
        let changes = !input.is_empty();
        if changes && self.opens_by_kernel {
            return Err(FsError::ReadOnly);
        }
        if changes && !self.kernel_checks_ioctls && request.header.uid != 0 {
            let handle = (args.flags & IOCTL_DIR == 0).then_some(Handle(args.fh));
            let attr = self.file_system.getattr(request.ino(), handle)?;
            check(request.header.uid, &attr, args.cmd, input)?;
        }
        let output_bytes_max = usize_of(args.out_size);
        let ino = request.ino();
        let call = |handle| {
            self.file_system
                .ioctl(ino, handle, args.cmd, input, output_bytes_max)
        };
        let reply = match args.flags & IOCTL_DIR != 0 {
            true => self.on_directory(ino, Handle(args.fh), call)?,
            false => self.on_file(ino, Handle(args.fh), call)?,
        };
        if changes {
            // Setting flags changes the inode's ctime, which the kernel would otherwise keep showing from its cache.
            (self.forget_attributes)(request.ino());
        }
        put(
            out,
            &IoctlOut {
                result: reply.result,
                ..IoctlOut::default()
            },
        );
        out.extend_from_slice(&reply.data[..reply.data.len().min(output_bytes_max)]);
        Ok(())
    }
}

/// Linux's permission check for an unprivileged caller that sets attributes.
fn check(uid: u32, attr: &Attr, command: u32, input: &[u8]) -> FsResult<()> {
    let word = input.first_chunk::<4>().copied().map_or(0, u32::from_ne_bytes);
    // `FS_XFLAG_IMMUTABLE` and `FS_XFLAG_APPEND` are half the value of the corresponding flags.
    let wanted = if command == FSSETXATTR { word << 1 } else { word };
    let stays = (u64::from(wanted) ^ attr.attributes) & PRIVILEGED == 0;
    match uid == attr.uid && stays {
        true => Ok(()),
        false => Err(FsError::NotPermitted),
    }
}

#[cfg(test)]
mod tests {
    use vfs::Timestamp;

    use super::*;

    fn attr(uid: u32, attributes: u64) -> Attr {
        let time = Timestamp::default();
        Attr {
            shown_ino: 1,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: None,
            mode: libc::S_IFREG | 0o666,
            nlink: 1,
            uid,
            gid: 0,
            rdev: 0,
            block_size: 4096,
            attributes,
            attributes_mask: PRIVILEGED,
            is_reported: false,
        }
    }

    #[test]
    fn owners_set_what_needs_no_privilege_and_others_nothing() {
        const SETFLAGS: u32 = 0x4008_6602;
        const NO_DUMP: u32 = 0x40;
        let asked = |uid, attributes, command, flags: u32| {
            check(uid, &attr(7, attributes), command, &flags.to_ne_bytes())
        };
        let refused = Err(FsError::NotPermitted);
        assert_eq!(asked(7, 0, SETFLAGS, NO_DUMP), Ok(()));
        assert_eq!(asked(8, 0, SETFLAGS, NO_DUMP), refused);
        assert_eq!(asked(7, 0, SETFLAGS, 0x10), refused, "made immutable");
        assert_eq!(asked(7, 0x10, SETFLAGS, 0), refused, "made changeable");
        assert_eq!(asked(7, 0, FSSETXATTR, 0x8), refused, "made immutable");
        assert_eq!(asked(7, 0x20, FSSETXATTR, 0x10), Ok(()), "stays for appending");
    }
}
