//! Extended attributes.
//!
//! The calls take a path, since an `O_PATH` descriptor is refused: `/proc/self/fd/N` leads to the inode itself, even a
//! symbolic link or a special file, and the host then answers as it does for the file. An open file is queried by its
//! descriptor, which is faster: the kernel asks for `security.capability` before writes under passthrough.

use std::os::fd::AsFd;

use rustix::fs::XattrFlags as HostFlags;
use rustix::io::Errno;
use vfs::{Caller, FsError, FsResult, XattrFlags};

use crate::anchor::PathFd;
use crate::attributes::stat;
use crate::identity::errno;
use crate::inodes::Inode;
use crate::owner::Change;
use crate::setattr::change_mode;
use crate::{PassFs, proc_path};

/// Most values (ACLs, labels, capabilities) fit, so that one call is enough.
const SMALL_BYTES: usize = 512;
/// `XATTR_SIZE_MAX` and `XATTR_LIST_MAX`.
const VALUE_BYTES_MAX: usize = 64 * 1024;
/// Both ACLs of a file.
const ACL_PREFIX: &[u8] = b"system.posix_acl_";
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

/// File capabilities.
const CAPABILITY: &[u8] = b"security.capability";

impl PassFs {
    pub(crate) fn set_attribute(
        &self,
        inode: &Inode,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
        clear_setgid: bool,
    ) -> FsResult<()> {
        self.check_writable()?;
        self.check_attribute(name)?;
        // With the daemon's CAP_FSETID the host ignores the daemon's groups in deciding whether the setgid bit stays.
        let flags = HostFlags::from_bits_retain(flags.0.cast_unsigned());
        let fd = inode.fd()?;
        rustix::fs::setxattr(proc_path(fd.as_fd()), name, value, flags).map_err(errno)?;
        // The kernel asks for it with a default ACL too, which changes no mode.
        if clear_setgid && name == ACCESS_ACL {
            let mode = u32::from(stat(&fd)?.stx_mode);
            if mode & libc::S_ISGID != 0 {
                change_mode(inode.kind, fd.as_fd(), mode & !libc::S_ISGID)?;
            }
        }
        Ok(())
    }

    /// Sets or removes an ACL for a caller who may do so as the owner of the file.
    pub(crate) fn change_acl(
        &self,
        caller: &Caller,
        inode: &Inode,
        name: &[u8],
        value: Option<&[u8]>,
        (flags, clear_setgid): (XattrFlags, bool),
    ) -> FsResult<()> {
        let fd = inode.fd()?;
        self.as_owner(Some(caller), fd.as_fd(), Change::Rights, || match value {
            Some(value) => self.set_attribute(inode, name, value, flags, clear_setgid),
            None => self.remove_attribute(inode, name),
        })
    }

    pub(crate) fn attribute(&self, inode: &Inode, name: &[u8]) -> FsResult<Vec<u8>> {
        if self.config.id_map.is_some() && name.starts_with(ACL_PREFIX) {
            return Err(FsError::NoData);
        }
        let fd = inode.fd()?;
        if let PathFd::Shared(open) = &fd {
            return with_room(|out| rustix::fs::fgetxattr(open, name, out));
        }
        let path = proc_path(fd.as_fd());
        with_room(|out| rustix::fs::getxattr(path.as_str(), name, out))
    }

    pub(crate) fn attribute_names(&self, inode: &Inode) -> FsResult<Vec<u8>> {
        let fd = inode.fd()?;
        let path = proc_path(fd.as_fd());
        let names = with_room(|out| rustix::fs::listxattr(path.as_str(), out))?;
        if self.config.id_map.is_none() {
            return Ok(names);
        }
        let shown = names
            .split_inclusive(|byte| *byte == 0)
            .filter(|name| !name.starts_with(ACL_PREFIX));
        Ok(shown.flatten().copied().collect())
    }

    pub(crate) fn remove_attribute(&self, inode: &Inode, name: &[u8]) -> FsResult<()> {
        self.check_writable()?;
        // The kernel removes capabilities before it changes content; a caller needs CAP_SETFCAP for it.
        if name != CAPABILITY {
            self.check_attribute(name)?;
        }
        let fd = inode.fd()?;
        let path = proc_path(fd.as_fd());
        rustix::fs::removexattr(path, name).map_err(errno)
    }

    /// With an [`IdMap`](crate::IdMap) the shown owner is not the file's: ACLs, labels and capabilities give rights in
    /// the source, and stay unchanged there.
    fn check_attribute(&self, name: &[u8]) -> FsResult<()> {
        if self.config.id_map.is_some() && !name.starts_with(b"user.") {
            return Err(FsError::NotSupported);
        }
        Ok(())
    }
}

fn with_room(get: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> FsResult<Vec<u8>> {
    let mut small = [0; SMALL_BYTES];
    match get(&mut small) {
        Ok(length) => return Ok(small[..length].to_vec()),
        Err(Errno::RANGE) => {}
        Err(error) => return Err(errno(error)),
    }
    let mut large = vec![0; VALUE_BYTES_MAX];
    let length = get(&mut large).map_err(errno)?;
    large.truncate(length);
    Ok(large)
}
