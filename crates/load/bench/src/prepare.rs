//! Prepares a file workload: checks space, and creates files with content if the pattern reads or overwrites.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

use crate::data::Content;
use crate::error::BenchError;
use crate::placement::{FilePlacement, missing_bytes};
use crate::progress::{Phase, Progress};
use crate::spec::{DeviceAccess, FileSpec};
use crate::verify::prepared_seed;

/// Descriptors that the process needs in addition to a workload's.
const DESCRIPTORS_OF_OURS: u64 = 64;

/// Size of the writes that prepare files.
const PIECE_BYTES: usize = 1 << 20;

/// Checks that the path is of the type that the workload expects, before anything is created in it.
///
/// # Errors
/// If it is missing, a file, or a block device that was not requested.
pub fn check_path(spec: &FileSpec) -> Result<(), BenchError> {
    let path = &spec.directory;
    if path.as_os_str().is_empty() {
        return Err(BenchError::spec("directory", "the path is empty"));
    }
    check_kind(path, spec.device)
}

/// Checks that a path is of the requested type.
pub fn check_kind(path: &Path, device: DeviceAccess) -> Result<(), BenchError> {
    let kind = fs::metadata(path)
        .map_err(|error| BenchError::io("stat", path, error))?
        .file_type();
    let is_device = kind.is_block_device();
    let path = path.to_owned();
    match device {
        DeviceAccess::Refused if kind.is_dir() => Ok(()),
        DeviceAccess::Refused if is_device => Err(BenchError::BlockDevice { path }),
        DeviceAccess::Refused => Err(BenchError::NotADirectory {
            path,
            kind: kind_name(kind),
        }),
        DeviceAccess::Read | DeviceAccess::Destroy if is_device => Ok(()),
        DeviceAccess::Read | DeviceAccess::Destroy => Err(BenchError::NotADevice {
            path,
            kind: kind_name(kind),
        }),
    }
}

/// The type of a file, for messages.
pub fn kind_name(kind: fs::FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_file() {
        "a file"
    } else if kind.is_block_device() {
        "a block device"
    } else if kind.is_char_device() {
        "a character device"
    } else {
        "a pipe or socket"
    }
}

/// Raises the limit of open files to the need of `field`, up to the user's hard limit.
pub fn allow_descriptors(field: &'static str, needed: u64) -> Result<(), BenchError> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let needed = needed.saturating_add(DESCRIPTORS_OF_OURS);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let is_enough = limit.maximum.is_none_or(|maximum| maximum >= needed);
    if is_enough && setrlimit(Resource::Nofile, raised).is_ok() {
        return Ok(());
    }
    let allowed = limit.maximum.unwrap_or(u64::MAX);
    let problem = format!(
        "{needed} files open at the same time, and this user may open {allowed}; raise it with `ulimit -n`"
    );
    Err(BenchError::spec(field, problem))
}

/// Refuses a workload that would fill the file system or leave the device.
pub fn check_space(spec: &FileSpec) -> Result<(), BenchError> {
    if spec.device == DeviceAccess::Refused {
        let files = u64::from(spec.files());
        let bytes = match &spec.files {
            FilePlacement::OwnDirectory => spec.bytes_in_a_file().saturating_mul(files),
            FilePlacement::Named { prefix } => missing_bytes(spec, prefix),
        };
        return check_bytes(&spec.directory, bytes);
    }
    let path = &spec.directory;
    let file = File::open(path).map_err(|error| BenchError::io("open", path, error))?;
    let end = rustix::fs::seek(&file, SeekFrom::End(0));
    let device_bytes = end.map_err(|errno| BenchError::io("seek", path, errno))?;
    let needed_bytes = spec.bytes_in_a_file();
    if needed_bytes > device_bytes {
        let path = path.clone();
        return Err(BenchError::DeviceTooSmall {
            path,
            needed_bytes,
            device_bytes,
        });
    }
    Ok(())
}

/// Time to wait for a device that another program has claimed. `losetup --find`, and a daemon that reads the
/// partitions of a device after each write, claim devices for a moment.
const CLAIM_PATIENCE: Duration = Duration::from_secs(1);

/// Claims a device that may be overwritten for exclusive use, for as long as the returned file is open.
///
/// # Errors
/// If it is mounted or in use by another program.
pub fn claim_device(spec: &FileSpec) -> Result<Option<File>, BenchError> {
    if spec.device != DeviceAccess::Destroy {
        return Ok(None);
    }
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_EXCL);
    open_claimed(&spec.directory, &options).map(Some)
}

/// Opens a device with options that include `O_EXCL`.
///
/// # Errors
/// If it is mounted or in use by another program.
pub fn open_claimed(path: &Path, options: &OpenOptions) -> Result<File, BenchError> {
    let until = Instant::now() + CLAIM_PATIENCE;
    loop {
        match options.open(path) {
            Ok(file) => return Ok(file),
            Err(error) if error.raw_os_error() != Some(libc::EBUSY) => {
                return Err(BenchError::io("open", path, error));
            }
            Err(_) if Instant::now() < until => thread::sleep(Duration::from_millis(10)),
            Err(_) => {
                return Err(BenchError::DeviceInUse {
                    path: path.to_owned(),
                });
            }
        }
    }
}

/// Refuses to fill the file system. A file system that reports no size is not checked.
pub fn check_bytes(directory: &Path, bytes: u64) -> Result<(), BenchError> {
    let space =
        rustix::fs::statvfs(directory).map_err(|errno| BenchError::io("statvfs", directory, errno))?;
    let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
    // A margin of a sixteenth for metadata, journals and reserved blocks.
    let needed_bytes = bytes.saturating_add(bytes / 16).saturating_add(1 << 20);
    if space.f_blocks > 0 && needed_bytes > free_bytes {
        return Err(BenchError::NoSpace {
            directory: directory.to_owned(),
            needed_bytes,
            free_bytes,
        });
    }
    Ok(())
}

/// Refuses files that would not fit: too few bytes or inodes. File systems that allocate inodes on demand report no
/// total, and are not checked for them.
pub fn check_room(directory: &Path, files: u64, file_bytes: u64) -> Result<(), BenchError> {
    check_bytes(directory, files.saturating_mul(file_bytes))?;
    let space =
        rustix::fs::statvfs(directory).map_err(|errno| BenchError::io("statvfs", directory, errno))?;
    let needed = files + 1;
    if space.f_files > 0 && needed > space.f_favail {
        return Err(BenchError::NoInodes {
            directory: directory.to_owned(),
            needed,
            free: space.f_favail,
        });
    }
    Ok(())
}

/// Creates the files: with content if the workload reads or overwrites it, at full length if it maps them.
pub fn make_files(
    spec: &FileSpec,
    directory: &Path,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Vec<PathBuf>, BenchError> {
    let content_bytes = spec.prepared_bytes_in_a_file();
    let mut files = Vec::new();
    for number in 0..spec.files() {
        let path = directory.join(format!("data-{number}"));
        let created = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = created.map_err(|error| BenchError::io("open", &path, error))?;
        if spec.mode.is_mapped() && content_bytes < spec.bytes_in_a_file() {
            grow(&path, &file, spec.bytes_in_a_file())?;
        }
        let before = content_bytes * u64::from(number);
        let total = content_bytes * u64::from(spec.files());
        let filled = Filled {
            spec,
            path: &path,
            file: &file,
            number,
            from: 0,
            length: content_bytes,
        };
        fill(filled, stop, |done| {
            progress.advance(Phase::Prepare, before + done, total)
        })?;
        files.push(path);
    }
    Ok(files)
}

/// Fills a device with the content that verification expects.
pub fn fill_device(spec: &FileSpec, progress: &dyn Progress, stop: &AtomicBool) -> Result<(), BenchError> {
    let path = &spec.directory;
    let file = OpenOptions::new().write(true).open(path);
    let file = file.map_err(|error| BenchError::io("open", path, error))?;
    let length = spec.bytes_in_a_file();
    let filled = Filled {
        spec,
        path,
        file: &file,
        number: 0,
        from: 0,
        length,
    };
    fill(filled, stop, |done| {
        progress.advance(Phase::Prepare, done, length)
    })
}

/// The range to fill: the bytes of a file from `from` to `length`.
pub struct Filled<'run> {
    pub spec: &'run FileSpec,
    pub path: &'run Path,
    pub file: &'run File,
    /// Number of the file.
    pub number: u32,
    pub from: u64,
    pub length: u64,
}

pub fn fill(filled: Filled<'_>, stop: &AtomicBool, progress: impl Fn(u64)) -> Result<(), BenchError> {
    let Filled {
        spec,
        path,
        file,
        number,
        from,
        length,
    } = filled;
    if length == 0 {
        return Ok(());
    }
    let mut content = Content::prepared(PIECE_BYTES, spec.data, prepared_seed(spec, number));
    let mut offset = from;
    while offset < length && !stop.load(Ordering::Relaxed) {
        let piece = content.at(offset, 0);
        let part = usize::try_from(length - offset).map_or(PIECE_BYTES, |rest| rest.min(PIECE_BYTES));
        let moved = retry_on_intr(|| rustix::io::pwrite(file, &piece[..part], offset))
            .and_then(|moved| if moved == 0 { Err(Errno::IO) } else { Ok(moved) })
            .map_err(|errno| BenchError::data("write", path, offset, errno))?;
        offset += u64::try_from(moved).expect("lengths in memory fit in 64 bits");
        progress(offset);
    }
    rustix::fs::fsync(file).map_err(|errno| BenchError::io("fsync", path, errno))
}

/// Extends a file and allocates its blocks, so that a full file system is an error here and not a SIGBUS later.
pub fn grow(path: &Path, file: &File, length: u64) -> Result<(), BenchError> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, length) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file
            .set_len(length)
            .map_err(|error| BenchError::io("ftruncate", path, error)),
        Err(errno) => Err(BenchError::io("fallocate", path, errno)),
    }
}
