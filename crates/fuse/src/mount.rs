//! Attaching a connection to a mountpoint and taking it off: mount(2) with privileges, fusermount3 without.

use std::io;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};

use crate::config::{MountConfig, MountError};

/// Opens a connection and mounts it; the kernel's INIT is then waiting on the descriptor.
pub fn mount(mountpoint: &Path, config: &MountConfig, max_read: Option<u32>) -> Result<OwnedFd, MountError> {
    check_mountpoint(mountpoint)?;
    if rustix::process::geteuid().is_root() {
        match mount_directly(mountpoint, config, max_read) {
            // Root in a container without CAP_SYS_ADMIN is an ordinary user for mount(2).
            Err(MountError::Mount { source, .. }) if source.raw_os_error() == Some(libc::EPERM) => {}
            other => return other,
        }
    }
    mount_by_fusermount(mountpoint, config, max_read)
}

fn check_mountpoint(mountpoint: &Path) -> Result<(), MountError> {
    match std::fs::metadata(mountpoint) {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => Err(MountError::DeadMount {
            mountpoint: mountpoint.to_owned(),
        }),
        Err(source) => Err(MountError::Mountpoint {
            mountpoint: mountpoint.to_owned(),
            source,
        }),
    }
}

fn mount_directly(
    mountpoint: &Path,
    config: &MountConfig,
    max_read: Option<u32>,
) -> Result<OwnedFd, MountError> {
    let failed = |source: io::Error| MountError::Mount {
        mountpoint: mountpoint.to_owned(),
        source,
    };
    let device = open_device().map_err(|source| MountError::NoDevice { source })?;
    let root_mode = std::fs::metadata(mountpoint)
        .map(|metadata| std::os::unix::fs::MetadataExt::mode(&metadata) & libc::S_IFMT)
        .map_err(|source| MountError::Mountpoint {
            mountpoint: mountpoint.to_owned(),
            source,
        })?;
    let mut data = format!(
        "fd={},rootmode={root_mode:o},user_id={},group_id={}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if config.kernel_checks_permissions() {
        data.push_str(",default_permissions");
    }
    if config.allow_other {
        data.push_str(",allow_other");
    }
    if let Some(bytes) = max_read {
        data.push_str(&format!(",max_read={bytes}"));
    }
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    if config.read_only {
        flags |= MountFlags::RDONLY;
    }
    for option in &config.kernel_options {
        apply(option, &mut flags, &mut data);
    }
    let kind = format!("fuse.{}", config.subtype);
    let c_data =
        std::ffi::CString::new(data).map_err(|_| failed(io::Error::from_raw_os_error(libc::EINVAL)))?;
    rustix::mount::mount(
        config.source.as_str(),
        mountpoint,
        kind.as_str(),
        flags,
        Some(c_data.as_c_str()),
    )
    .map_err(|errno| failed(errno.into()))?;
    Ok(device)
}

/// Turns a word of `mount(8)` into a flag of `mount(2)`, or hands it to the kernel as it is.
fn apply(option: &str, flags: &mut MountFlags, data: &mut String) {
    let known = match option.strip_prefix("no").unwrap_or(option) {
        "suid" => Some((MountFlags::NOSUID, option == "nosuid")),
        "dev" => Some((MountFlags::NODEV, option == "nodev")),
        "exec" => Some((MountFlags::NOEXEC, option == "noexec")),
        "atime" => Some((MountFlags::NOATIME, option == "noatime")),
        "diratime" => Some((MountFlags::NODIRATIME, option == "nodiratime")),
        "relatime" => Some((MountFlags::RELATIME, option == "relatime")),
        "strictatime" => Some((MountFlags::STRICTATIME, option == "strictatime")),
        "sync" => Some((MountFlags::SYNCHRONOUS, option == "sync")),
        "dirsync" => Some((MountFlags::DIRSYNC, option == "dirsync")),
        _ => None,
    };
    match known {
        Some((flag, on)) => flags.set(flag, on),
        None => {
            data.push(',');
            data.push_str(option);
        }
    }
}

fn open_device() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(
        "/dev/fuse",
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Lets the setuid helper mount and receives the connection's descriptor over a socket, as libfuse does.
fn mount_by_fusermount(
    mountpoint: &Path,
    config: &MountConfig,
    max_read: Option<u32>,
) -> Result<OwnedFd, MountError> {
    let failed = |reason: String| MountError::Fusermount {
        mountpoint: mountpoint.to_owned(),
        reason,
    };
    let mut options = format!("fsname={},subtype={}", escape(&config.source), config.subtype);
    if config.kernel_checks_permissions() {
        options.push_str(",default_permissions");
    }
    if config.allow_other {
        options.push_str(",allow_other");
    }
    if config.read_only {
        options.push_str(",ro");
    }
    if let Some(bytes) = max_read {
        options.push_str(&format!(",max_read={bytes}"));
    }
    for option in &config.kernel_options {
        options.push(',');
        options.push_str(option);
    }
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|errno| failed(format!("no socket: {errno}")))?;
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())
        .map_err(|errno| failed(format!("no socket: {errno}")))?;
    let child = Command::new("fusermount3")
        .arg("-o")
        .arg(options)
        .arg("--")
        .arg(mountpoint)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            failed(format!(
                "{error}; install fuse3 (it has the setuid helper fusermount3)"
            ))
        })?;
    drop(theirs);
    let received = receive_descriptor(&ours);
    let output = child
        .wait_with_output()
        .map_err(|error| failed(error.to_string()))?;
    match received {
        Ok(Some(device)) if output.status.success() => Ok(device),
        _ => {
            let printed = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(failed(if printed.is_empty() {
                output.status.to_string()
            } else {
                printed
            }))
        }
    }
}

/// Commas and backslashes would end an option.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace(',', "\\,")
}

fn receive_descriptor(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            return Ok(descriptors.next());
        }
    }
    Ok(None)
}

/// Makes one more descriptor of the connection, with a queue of its own.
pub fn clone_device(device: &OwnedFd) -> io::Result<OwnedFd> {
    let clone = open_device()?;
    let mut original =
        u32::try_from(device.as_raw_fd()).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the ioctl reads one u32, the descriptor number of an open connection.
    let result = unsafe {
        libc::ioctl(
            clone.as_raw_fd(),
            libc::c_ulong::from(crate::abi::DEV_IOC_CLONE),
            &raw mut original,
        )
    };
    if result == 0 {
        Ok(clone)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Takes the mount off; with `lazily` also when files are open in it.
pub fn unmount(mountpoint: &Path, lazily: bool) -> io::Result<()> {
    let flags = if lazily {
        UnmountFlags::DETACH
    } else {
        UnmountFlags::empty()
    };
    match rustix::mount::unmount(mountpoint, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => return Ok(()),
        Err(rustix::io::Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    let mut command = Command::new("fusermount3");
    command.arg("-u").arg("-q");
    if lazily {
        command.arg("-z");
    }
    let output = command.arg("--").arg(mountpoint).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let kind = if printed.contains("busy") {
        io::ErrorKind::ResourceBusy
    } else {
        io::ErrorKind::Other
    };
    Err(io::Error::new(
        kind,
        if printed.is_empty() {
            "fusermount3 refused".to_owned()
        } else {
            printed
        },
    ))
}

/// Pushes out what the kernel's page cache holds for the mount.
pub fn write_back(mountpoint: &Path) -> io::Result<()> {
    let root = rustix::fs::open(
        mountpoint,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    Ok(rustix::fs::syncfs(root.as_fd())?)
}

/// The mountpoint as an absolute path, so that it can be unmounted after a change of directory.
pub fn absolute(mountpoint: &Path) -> Result<PathBuf, MountError> {
    check_mountpoint(mountpoint)?;
    std::fs::canonicalize(mountpoint).map_err(|source| MountError::Mountpoint {
        mountpoint: mountpoint.to_owned(),
        source,
    })
}
