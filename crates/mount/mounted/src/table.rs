//! Finds a mount in `/proc/self/mountinfo` (format: proc_pid_mountinfo(5)).
//!
//! Never asks the mounted file system, so that it finds dead and hanging mounts too.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::MountedError;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Id of the mount in this namespace.
    pub id: String,
    /// The mounted directory, relative to the root of its file system.
    pub root: PathBuf,
    /// Device number, `major:minor`.
    pub device: String,
    /// Mount point.
    pub mountpoint: PathBuf,
    /// Type with subtype: `fuse.tidegate`.
    pub kind: String,
    /// The source field of the table.
    pub source: OsString,
    /// Options of the mount, then those of its file system: `rw,nosuid,relatime`, `rw,user_id=0`.
    pub options: Vec<String>,
}

impl Mount {
    /// Returns true if the type is that of a tidegate mount.
    #[must_use]
    pub fn is_tidegate(&self) -> bool {
        self.kind == "fuse.tidegate"
    }

    /// Returns true for any FUSE file system.
    #[must_use]
    pub fn is_fuse(&self) -> bool {
        self.kind == "fuse" || self.kind.starts_with("fuse.")
    }

    /// Refuses a mount that fails a check of its type.
    pub(crate) fn foreign(&self) -> MountedError {
        MountedError::Foreign {
            mountpoint: self.mountpoint.clone(),
            kind: self.kind.clone(),
        }
    }
}

/// The topmost mount at `mountpoint`, which may be relative or contain symbolic links.
///
/// # Errors
/// [`MountedError`] when nothing is mounted there.
pub fn find(mountpoint: &Path) -> Result<Mount, MountedError> {
    let path = resolve_without_entering(mountpoint)?;
    at(&path)?.ok_or(MountedError::NothingMounted(path))
}

/// Like [`find`], for any FUSE file system.
///
/// # Errors
/// [`MountedError`] when nothing is mounted there, or a file system of another kind.
pub fn find_fuse(mountpoint: &Path) -> Result<Mount, MountedError> {
    let mount = find(mountpoint)?;
    if mount.is_fuse() {
        Ok(mount)
    } else {
        Err(mount.foreign())
    }
}

/// Like [`find`], for a mount of the type `fuse.tidegate`.
///
/// # Errors
/// [`MountedError`] when nothing is mounted there, or a file system of another kind.
pub fn find_tidegate(mountpoint: &Path) -> Result<Mount, MountedError> {
    let mount = find(mountpoint)?;
    if mount.is_tidegate() {
        Ok(mount)
    } else {
        Err(mount.foreign())
    }
}

/// The topmost mount at a path from [`resolve_without_entering`]; `None` if nothing is mounted there.
///
/// # Errors
/// [`MountedError::Table`].
pub fn at(path: &Path) -> Result<Option<Mount>, MountedError> {
    Ok(topmost(&raw()?, path))
}

/// All mounts in the order of mounting.
///
/// # Errors
/// [`MountedError::Table`].
pub fn all() -> Result<Vec<Mount>, MountedError> {
    Ok(parsed(&raw()?).collect())
}

/// All mounts of the device with this number (`7:64`), in the order of mounting.
///
/// # Errors
/// [`MountedError::Table`].
pub fn of_device(number: &str) -> Result<Vec<Mount>, MountedError> {
    let mounts = all()?.into_iter();
    Ok(mounts.filter(|mount| mount.device == number).collect())
}

fn raw() -> Result<Vec<u8>, MountedError> {
    std::fs::read("/proc/self/mountinfo").map_err(MountedError::Table)
}

fn parsed(table: &[u8]) -> impl DoubleEndedIterator<Item = Mount> {
    table.split(|byte| *byte == b'\n').filter_map(parse_line)
}

/// Device number and path within the file system of an open file; they are equal for every mount of the file system.
pub fn place_of(descriptor: impl AsFd) -> Option<(String, PathBuf)> {
    let number = descriptor.as_fd().as_raw_fd();
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let path = std::fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
    let mount = all().ok()?.into_iter().find(|mount| mount.id == id)?;
    let below = path.strip_prefix(&mount.mountpoint).ok()?;
    Some((mount.device, mount.root.join(below)))
}

/// The absolute path of a mount point. If it can't be resolved, because its mount may be dead, only the parent is.
///
/// # Errors
/// [`MountedError`] when the parent does not exist.
pub fn resolve_without_entering(mountpoint: &Path) -> Result<PathBuf, MountedError> {
    let path = || mountpoint.to_owned();
    let absolute = std::path::absolute(mountpoint)
        .map_err(|source| MountedError::NoCurrentFolder { path: path(), source })?;
    if let Ok(resolved) = absolute.canonicalize() {
        return Ok(resolved);
    }
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Ok(absolute);
    };
    let parent = parent.canonicalize();
    let parent = parent.map_err(|source| MountedError::NotFound { path: path(), source })?;
    Ok(parent.join(name))
}

fn topmost(table: &[u8], mountpoint: &Path) -> Option<Mount> {
    parsed(table).rfind(|mount| mount.mountpoint == mountpoint)
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = String::from_utf8_lossy(fields.next()?).into_owned();
    let device = String::from_utf8_lossy(fields.nth(1)?).into_owned();
    let root = unescape(fields.next()?);
    let mountpoint = unescape(fields.next()?);
    let mut options = split_at_commas(fields.next()?);
    // A variable number of optional fields ends with a single dash.
    fields.find(|field| field == b"-")?;
    let kind = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?);
    options.extend(split_at_commas(fields.next().unwrap_or_default()));
    Some(Mount {
        id,
        root: root.into(),
        device,
        mountpoint: mountpoint.into(),
        kind,
        source,
        options,
    })
}

fn split_at_commas(field: &[u8]) -> Vec<String> {
    let options = field.split(|byte| *byte == b',');
    options
        .map(|option| String::from_utf8_lossy(option).into_owned())
        .collect()
}

/// Decodes the octal escapes (`\040` is a space).
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| *first == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    const TABLE: &[u8] = b"22 28 0:20 / /proc rw,nosuid shared:12 - proc proc rw\n\
        98 28 0:50 / /mnt/a\\040b rw,relatime shared:1 master:2 - fuse.tidegate /src\\134x rw,user_id=0\n\
        99 28 0:51 / /mnt/two rw - fuse.tidegate one rw\n\
        100 28 0:52 / /mnt/two rw - fuse.sshfs two rw\n";

    /// Encodes a path as in the table.
    fn escape(path: &Path) -> Vec<u8> {
        let escape_byte = |byte: &u8| match byte {
            b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
            other => vec![*other],
        };
        path.as_os_str().as_bytes().iter().flat_map(escape_byte).collect()
    }

    #[test]
    fn a_mount_is_found_with_escapes_undone() {
        let mount = topmost(TABLE, Path::new("/mnt/a b")).unwrap();
        assert!(mount.is_tidegate());
        assert_eq!(mount.device, "0:50");
        assert_eq!(mount.source, "/src\\x");
        assert_eq!(mount.options, ["rw", "relatime", "rw", "user_id=0"]);
    }

    #[test]
    fn the_last_mount_on_a_mountpoint_is_the_one_in_sight() {
        let mount = topmost(TABLE, Path::new("/mnt/two")).unwrap();
        assert_eq!(mount.kind, "fuse.sshfs");
        assert!(mount.is_fuse() && !mount.is_tidegate());
    }

    #[test]
    fn a_folder_that_is_not_mounted_is_not_found() {
        assert_eq!(topmost(TABLE, Path::new("/mnt")), None);
        assert_eq!(topmost(b"", Path::new("/mnt")), None);
    }

    #[test]
    fn unescape_undoes_escape() {
        for path in ["/plain", "/with space", "/back\\slash", "/new\nline", "/\\040"] {
            assert_eq!(unescape(&escape(Path::new(path))), path);
        }
    }
}
