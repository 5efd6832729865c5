//! Mounts a connection and unmounts it: mount(2) with privileges, fusermount3 without.

use std::io;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};

use crate::config::{MountConfig, MountError};
use crate::mount_sync::MountSync;

/// Opens a connection and mounts it; the kernel's INIT then waits on the descriptor.
pub fn mount(mountpoint: &Path, config: &MountConfig, max_read: Option<u32>) -> Result<OwnedFd, MountError> {
    check_mountpoint(mountpoint)?;
    if rustix::process::geteuid().is_root() {
        match mount_directly(mountpoint, config, max_read) {
            // Root in a container without CAP_SYS_ADMIN is an ordinary user to mount(2).
            Err(MountError::Mount { source, .. }) if source.raw_os_error() == Some(libc::EPERM) => {}
            other => return other,
        }
    }
    mount_by_fusermount(mountpoint, config, max_read)
}

/// A mount of this process, by path and device number. By now another mount may lie over it or in its place.
#[derive(Clone, Debug)]
pub struct Place {
    mountpoint: PathBuf,
    /// Number of the mount's device, unique while the connection lives.
    device: u32,
}

impl Place {
    /// The mount visible at `mountpoint`, an absolute path.
    pub fn of(mountpoint: PathBuf) -> Result<Self, MountError> {
        let device = device_number(&mountpoint)?;
        Ok(Self { mountpoint, device })
    }

    pub const fn device(&self) -> u32 {
        self.device
    }

    /// Writes back the kernel's dirty data for the mount and detaches it lazily. Other mounts on the path stay.
    pub fn write_back_and_unmount(&self) {
        if self.is_in_sight() {
            // Write-back errors belong to the files and are reported to their users.
            let _ = write_back(&self.mountpoint);
            self.unmount();
        }
    }

    /// Detaches the mount lazily. Other mounts on the path stay; it is no error if the mount is already gone.
    pub fn unmount(&self) {
        if self.is_in_sight() {
            let _ = unmount(&self.mountpoint, true);
        }
    }

    /// True if the mount is still attached and no longer answers: its connection was aborted without an unmount.
    pub fn is_dead(&self) -> bool {
        let answer = || std::fs::metadata(&self.mountpoint).err()?.raw_os_error();
        self.is_in_sight() && matches!(answer(), Some(libc::ENOTCONN | libc::ECONNABORTED))
    }

    fn is_in_sight(&self) -> bool {
        device_number(&self.mountpoint).is_ok_and(|device| device == self.device)
    }
}

/// The device number of the mount at the path, 12 bits major and 20 bits minor; sends no request to the mount.
fn device_number(mountpoint: &Path) -> Result<u32, MountError> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    rustix::fs::statx(rustix::fs::CWD, mountpoint, flags, StatxFlags::empty())
        .map(|stat| stat.stx_dev_major << 20 | stat.stx_dev_minor)
        .map_err(|errno| MountError::Mountpoint {
            mountpoint: mountpoint.to_owned(),
            source: errno.into(),
        })
}

/// Refuses a path that can't be a mount point: for root the kernel mounts over a file as well, and nobody could use the
/// mount, or the file below.
pub fn check_mountpoint(mountpoint: &Path) -> Result<(), MountError> {
    match std::fs::metadata(mountpoint) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(MountError::Mountpoint {
            mountpoint: mountpoint.to_owned(),
            source: io::ErrorKind::NotADirectory.into(),
        }),
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
    data.push_str(&rules(config, max_read));
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

/// The options about permissions and request sizes, each with a comma before it.
fn rules(config: &MountConfig, max_read: Option<u32>) -> String {
    let mut words = String::new();
    if config.kernel_checks_permissions() {
        words.push_str(",default_permissions");
    }
    if config.allow_other {
        words.push_str(",allow_other");
    }
    if let Some(bytes) = max_read {
        words.push_str(&format!(",max_read={bytes}"));
    }
    words
}

/// Turns an option of `mount(8)` into a flag of `mount(2)`, or passes it to the kernel as it is.
fn apply(option: &str, flags: &mut MountFlags, data: &mut String) {
    match flag_of(option) {
        Some((flag, on)) => flags.set(flag, on),
        None => {
            data.push(',');
            data.push_str(option);
        }
    }
}

/// `MS_NOSYMFOLLOW`, which rustix does not name.
const NOSYMFOLLOW: MountFlags = MountFlags::from_bits_retain(1 << 8);

/// The flag of a `mount(8)` option, and whether the option sets it.
fn flag_of(option: &str) -> Option<(MountFlags, bool)> {
    let known = match option.strip_prefix("no").unwrap_or(option) {
        "suid" => (MountFlags::NOSUID, option == "nosuid"),
        "dev" => (MountFlags::NODEV, option == "nodev"),
        "exec" => (MountFlags::NOEXEC, option == "noexec"),
        "atime" => (MountFlags::NOATIME, option == "noatime"),
        "diratime" => (MountFlags::NODIRATIME, option == "nodiratime"),
        "relatime" => (MountFlags::RELATIME, option == "relatime"),
        "strictatime" => (MountFlags::STRICTATIME, option == "strictatime"),
        "lazytime" => (MountFlags::LAZYTIME, option == "lazytime"),
        "symfollow" => (NOSYMFOLLOW, option == "nosymfollow"),
        "dirsync" => (MountFlags::DIRSYNC, option == "dirsync"),
        "sync" => (MountFlags::SYNCHRONOUS, option == "sync"),
        "async" => (MountFlags::SYNCHRONOUS, false),
        "ro" => (MountFlags::RDONLY, true),
        "rw" => (MountFlags::RDONLY, false),
        _ => return None,
    };
    Some(known)
}

/// The level of syncing that these options ask for; for each flag the last option wins.
pub(crate) fn sync_of(options: &[String]) -> MountSync {
    let is_on = |wanted| {
        let last_first = options.iter().rev().filter_map(|option| flag_of(option));
        let mut words = last_first.filter(|(flag, _)| *flag == wanted);
        words.next().is_some_and(|(_, on)| on)
    };
    if is_on(MountFlags::SYNCHRONOUS) {
        MountSync::All
    } else if is_on(MountFlags::DIRSYNC) {
        MountSync::Names
    } else {
        MountSync::Nothing
    }
}

/// Changes the generic flags of a live mount; the connection and its daemon are not involved.
///
/// `options` is the complete list, options in force first: a flag that no option sets is cleared. A later option wins
/// over an earlier one. Options that are not generic flags (`user_id=0`, `allow_other`) can't be changed and are
/// skipped: the caller decides whether that is an error.
///
/// # Errors
/// [`MountError::Remount`], with EBUSY if a file is open for writing and `ro` is requested, EPERM without privileges.
/// The mount is then unchanged.
pub fn remount(mountpoint: &Path, options: &[String]) -> Result<(), MountError> {
    let flags = remount_flags(options);
    rustix::mount::mount_remount(mountpoint, flags, "").map_err(|errno| MountError::Remount {
        mountpoint: mountpoint.to_owned(),
        source: errno.into(),
    })
}

/// Flags of a remount. The kernel keeps its atime mode if no flag names one, so the default mode is requested
/// explicitly.
fn remount_flags(options: &[String]) -> MountFlags {
    let atime = MountFlags::NOATIME | MountFlags::RELATIME | MountFlags::STRICTATIME;
    let mut flags = MountFlags::empty();
    for (flag, on) in options.iter().filter_map(|option| flag_of(option)) {
        // The three access time modes exclude each other.
        if on && atime.contains(flag) {
            flags.remove(atime);
        }
        flags.set(flag, on);
    }
    if !flags.intersects(atime) {
        let forbidden = options.iter().any(|option| option == "nostrictatime");
        flags |= if forbidden {
            MountFlags::RELATIME
        } else {
            MountFlags::STRICTATIME
        };
    }
    flags
}

fn open_device() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(
        "/dev/fuse",
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Mounts through the setuid helper and receives the connection's descriptor over a socket, as libfuse does.
fn mount_by_fusermount(
    mountpoint: &Path,
    config: &MountConfig,
    max_read: Option<u32>,
) -> Result<OwnedFd, MountError> {
    let failed = |reason: String| MountError::Fusermount {
        mountpoint: mountpoint.to_owned(),
        reason,
    };
    let mut options = format!(
        "fsname={},subtype={}",
        escape(&config.source),
        escape(&config.subtype)
    );
    options.push_str(&rules(config, max_read));
    if config.read_only {
        options.push_str(",ro");
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
            let mut printed = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            if printed.is_empty() {
                printed = output.status.to_string();
            }
            if let Some(hint) = device_hint() {
                printed.push_str(hint);
            }
            Err(failed(printed))
        }
    }
}

/// Advice for a user who may not open the device, which the helper's setuid bit does not change.
fn device_hint() -> Option<&'static str> {
    let refused = open_device().err()?.kind() == io::ErrorKind::PermissionDenied;
    refused
        .then_some("; root lets ordinary users mount with `chmod 666 /dev/fuse`, as udev does where it runs")
}

/// Escapes commas and backslashes, which would end an option.
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

/// Makes another descriptor of the connection, with its own queue.
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

/// Unmounts; `lazily` also if files are open in the mount.
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

/// Writes back the kernel's dirty pages of the mount.
fn write_back(mountpoint: &Path) -> io::Result<()> {
    let root = rustix::fs::open(
        mountpoint,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    Ok(rustix::fs::syncfs(root.as_fd())?)
}

/// The mountpoint as an absolute path, which stays valid after a change of directory.
pub fn absolute(mountpoint: &Path) -> Result<PathBuf, MountError> {
    check_mountpoint(mountpoint)?;
    std::fs::canonicalize(mountpoint).map_err(|source| MountError::Mountpoint {
        mountpoint: mountpoint.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(words: &str) -> MountFlags {
        let options: Vec<String> = words.split(',').map(str::to_owned).collect();
        remount_flags(&options)
    }

    #[test]
    fn a_later_word_wins_over_the_flags_in_force() {
        let plain = MountFlags::NOSUID | MountFlags::RELATIME;
        assert_eq!(flags("rw,nosuid,relatime,user_id=0"), plain);
        assert_eq!(flags("rw,nosuid,relatime,ro"), plain | MountFlags::RDONLY);
        assert_eq!(flags("ro,nosuid,relatime,rw"), plain);
        assert_eq!(flags("rw,nosuid,relatime,suid"), MountFlags::RELATIME);
        assert_eq!(
            flags("nosymfollow,relatime,async"),
            NOSYMFOLLOW | MountFlags::RELATIME
        );
    }

    #[test]
    fn one_mode_of_access_times_is_in_force() {
        assert_eq!(flags("relatime,noatime"), MountFlags::NOATIME);
        assert_eq!(flags("noatime,strictatime"), MountFlags::STRICTATIME);
        assert_eq!(
            flags("rw"),
            MountFlags::STRICTATIME,
            "no word: times are kept always"
        );
        assert_eq!(flags("relatime,norelatime"), MountFlags::STRICTATIME);
        assert_eq!(flags("strictatime,nostrictatime"), MountFlags::RELATIME);
        assert_eq!(
            flags("relatime,nodiratime"),
            MountFlags::RELATIME | MountFlags::NODIRATIME
        );
    }
}
