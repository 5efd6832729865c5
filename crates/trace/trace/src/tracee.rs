//! What `/proc` tells of a tracee: what its descriptors are, and where its names lead.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libc::pid_t;
use results::call_trace::{Access, OpenFlags};
use rustix::fs::FileType;

/// What a descriptor number of a tracee is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inspected {
    /// A file or directory on some file system.
    File {
        /// Where it is, links resolved.
        path: PathBuf,
        /// It is a directory.
        is_directory: bool,
    },
    /// Anything else.
    Other(&'static str),
}

/// Files that the kernel makes up.
pub const KERNEL_FILE: &str = "file of /dev, /proc or /sys";

/// Looks at a descriptor of a tracee that is stopped. `None` when it is not open.
pub fn inspect(process: pid_t, number: i32) -> Option<Inspected> {
    let link = PathBuf::from(format!("/proc/{process}/fd/{number}"));
    let path = fs::read_link(&link).ok()?;
    let status = rustix::fs::stat(&link).ok()?;
    let kind = FileType::from_raw_mode(status.st_mode);
    Some(match kind {
        FileType::Socket => Inspected::Other("socket"),
        FileType::Fifo => Inspected::Other("pipe"),
        FileType::CharacterDevice => Inspected::Other("character device"),
        FileType::BlockDevice => Inspected::Other("block device"),
        FileType::RegularFile | FileType::Directory => of_path(&path, kind == FileType::Directory),
        _ => Inspected::Other(anonymous(&path)),
    })
}

fn of_path(path: &Path, is_directory: bool) -> Inspected {
    let bytes = path.as_os_str().as_bytes();
    if !bytes.starts_with(b"/") {
        return Inspected::Other(anonymous(path));
    }
    if bytes.starts_with(b"/memfd:") {
        return Inspected::Other("memory file");
    }
    if is_kernel_file(path) {
        return Inspected::Other(KERNEL_FILE);
    }
    let plain = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    Inspected::File {
        path: PathBuf::from(OsStr::from_bytes(plain)),
        is_directory,
    }
}

fn anonymous(path: &Path) -> &'static str {
    const KINDS: [(&str, &str); 6] = [
        ("anon_inode:[eventfd]", "event counter"),
        ("anon_inode:[eventpoll]", "epoll"),
        ("anon_inode:[timerfd]", "timer"),
        ("anon_inode:[signalfd]", "signal descriptor"),
        ("anon_inode:inotify", "inotify"),
        ("anon_inode:[io_uring]", "io_uring"),
    ];
    let text = path.to_string_lossy();
    let found = KINDS.iter().find(|(name, _)| text.starts_with(name));
    found.map_or("descriptor that is no file", |(_, kind)| kind)
}

/// True for a path that no file system on a device answers for.
pub fn is_kernel_file(path: &Path) -> bool {
    let is_below = |directory: &str| path.starts_with(directory);
    (is_below("/dev") && !is_below("/dev/shm")) || is_below("/proc") || is_below("/sys")
}

/// A name as a tracee gave it, absolute and with the links of its directory resolved, so that it is the same as what
/// [`inspect`] says of an open file. The last part is left as it is: it may not exist.
pub fn resolve(process: pid_t, directory: Option<i32>, name: &[u8]) -> PathBuf {
    let name = Path::new(OsStr::from_bytes(name));
    let whole = if name.is_absolute() {
        name.to_owned()
    } else {
        let link = match directory {
            Some(number) => format!("/proc/{process}/fd/{number}"),
            None => format!("/proc/{process}/cwd"),
        };
        fs::read_link(link)
            .unwrap_or_else(|_| PathBuf::from("/"))
            .join(name)
    };
    let (Some(parent), Some(last)) = (whole.parent(), whole.file_name()) else {
        return whole;
    };
    match fs::canonicalize(parent) {
        Ok(parent) => parent.join(last),
        Err(_) => whole,
    }
}

/// How a descriptor that was open before is open, and where its position is.
pub fn state(process: pid_t, number: i32) -> Option<(OpenFlags, u64)> {
    let text = fs::read_to_string(format!("/proc/{process}/fdinfo/{number}")).ok()?;
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
    };
    let position = field("pos:")?.parse().ok()?;
    let flags = i32::from_str_radix(field("flags:")?, 8).ok()?;
    Some((open_flags(flags), position))
}

/// Flags of an `open` as this machine numbers them.
pub fn open_flags(flags: i32) -> OpenFlags {
    let has = |flag: i32| flags & flag == flag;
    OpenFlags {
        access: match flags & libc::O_ACCMODE {
            libc::O_WRONLY => Access::Write,
            libc::O_RDWR => Access::ReadWrite,
            _ => Access::Read,
        },
        create: has(libc::O_CREAT),
        exclusive: has(libc::O_EXCL),
        truncate: has(libc::O_TRUNC),
        append: has(libc::O_APPEND),
        sync: has(libc::O_SYNC),
        data_sync: has(libc::O_DSYNC) && !has(libc::O_SYNC),
        direct: has(libc::O_DIRECT),
        directory: has(libc::O_DIRECTORY),
        path_only: has(libc::O_PATH),
        no_access_time: has(libc::O_NOATIME),
    }
}

/// The process that a thread belongs to.
pub fn group(thread: pid_t) -> Option<pid_t> {
    let text = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let field = text.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    field.trim().parse().ok()
}
