//! Renames of files and folders on the traced file systems, as the kernel notifies of them (fanotify, `FAN_RENAME`).
//!
//! A file that is seen under another path was not necessarily renamed: it may have several names, and a folder above it
//! may have moved. So renames come only from here. An event has the time at which it was read, usually at most 20 ms late.
//!
//! Programs may rename faster than a path is looked up: a call reads for a limited time, and the kernel drops renames
//! beyond the limit of its queue, which is counted.
//!
//! No mountpoint stays open: the traced program may unmount it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use results::block_trace::{DeviceNumber, FileIdentity, Limitation, Process, TracedDevice};
use results::shown;

use super::device::{self, Mount, number};
use super::fanotify::{Notifier, open_handle};

/// Interval of checks for file systems that were mounted since.
const RESCAN: Duration = Duration::from_secs(1);
/// Bytes of the buffer for events; the longest has about 1 KiB.
const BUFFER: usize = 64 << 10;
const METADATA_BYTES: usize = 24;
/// Stands for the name of a process that has ended.
pub(crate) const NO_NAME: &str = "?";
/// Time after which a call reads no further events.
const SHARE: Duration = Duration::from_millis(10);
/// `FAN_Q_OVERFLOW`.
const OVERFLOW: u64 = 0x4000;
/// `FAN_EVENT_INFO_TYPE_FID` and `FAN_EVENT_INFO_TYPE_NEW_DFID_NAME`.
const RENAMED_FILE: u8 = 1;
const NEW_NAME: u8 = 12;

/// Types of handles that hold inode and generation, with the bytes of the inode and the place of the generation:
/// `FILEID_INO32_GEN`, XFS with 64 bits, btrfs.
const HANDLES: [(u32, usize, usize); 3] = [(1, 4, 4), (0x81, 8, 8), (0x4D, 8, 16)];

/// A rename.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Renamed {
    pub process: Process,
    pub file: Option<FileIdentity>,
    /// The new path from the file system's root.
    pub path: String,
}

/// The source of renames.
#[derive(Debug)]
pub(crate) struct Renames {
    notifier: Notifier,
    devices: Vec<TracedDevice>,
    /// Mounts by the file system's id, as events give it; none if file systems of several devices have it (copies).
    mounts: HashMap<[u8; 8], Option<Mount>>,
    /// File systems that are watched, or were.
    watched: HashSet<DeviceNumber>,
    /// Number of file systems that were mounted after the start: their first renames may be missing.
    pub late: u64,
    scanned: Instant,
    buffer: Vec<u8>,
    /// Number of times that the kernel dropped renames.
    pub dropped: u64,
    /// The last call of [`Renames::read`] found no further events.
    pub is_drained: bool,
    is_stopped: bool,
}

impl Renames {
    /// Watches the file systems on the devices; without the privilege or the kernel for it, the limitation.
    pub(crate) fn watch(devices: &[TracedDevice]) -> Result<Self, Limitation> {
        let limitation = |error: std::io::Error| Limitation {
            what: "renames of files".to_owned(),
            why: format!("the kernel refuses to notify of them (fanotify): {error}"),
        };
        let mut renames = Self {
            notifier: Notifier::new().map_err(limitation)?,
            devices: devices.to_vec(),
            mounts: HashMap::new(),
            watched: HashSet::new(),
            late: 0,
            scanned: Instant::now(),
            buffer: vec![0; BUFFER],
            dropped: 0,
            is_drained: false,
            is_stopped: false,
        };
        renames.scan().map_err(limitation)?;
        renames.late = 0;
        Ok(renames)
    }

    /// Watches all file systems: a new mount, even of a device that was watched before, needs it anew. Returns the last
    /// error, if none could be watched.
    fn scan(&mut self) -> std::io::Result<()> {
        self.scanned = Instant::now();
        let mut refused = None;
        for mount in self.devices.iter().flat_map(device::mounts_on) {
            let Some(id) = id_of(&mount.mountpoint) else {
                continue;
            };
            match self.notifier.watch_renames(&mount.mountpoint) {
                Ok(()) => {
                    self.late += u64::from(self.watched.insert(mount.device));
                    let is_its = |known: &Option<Mount>| {
                        let known = known.as_ref();
                        known.is_some_and(|known| known.device == mount.device)
                    };
                    if self.mounts.get(&id).is_none_or(is_its) {
                        self.mounts.insert(id, Some(mount));
                    } else {
                        self.mounts.insert(id, None);
                    }
                }
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if self.watched.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// The renames since the last call, or some of them if there are many.
    pub(crate) fn read(&mut self) -> Vec<Renamed> {
        let now = Instant::now();
        if !self.is_stopped && now.duration_since(self.scanned) > RESCAN {
            let _ = self.scan();
        }
        let mut renamed = Vec::new();
        while now.elapsed() < SHARE {
            let count = self.notifier.read(&mut self.buffer).unwrap_or(0);
            self.is_drained = count == 0;
            if self.is_drained {
                break;
            }
            let events = events(&self.buffer[..count]);
            let dropped = events.iter().filter(|event| event.is_overflow).count();
            renamed.extend(events.iter().filter_map(|event| self.resolve(event)));
            self.dropped += u64::try_from(dropped).unwrap_or(0);
        }
        renamed
    }

    /// Number of these file systems that were not watched for all of the trace: mounted after its start, or not mounted in
    /// this process's namespace. Those without a device number of their own (btrfs) count as one.
    pub(crate) fn unwatched(&self, used: &HashSet<DeviceNumber>) -> u64 {
        let is_watched = |one: &&DeviceNumber| match one.major {
            0 => self.watched.iter().any(|known| known.major == 0),
            _ => self.watched.contains(one),
        };
        let unseen = used.iter().filter(|one| !is_watched(one)).count();
        self.late + u64::try_from(unseen).unwrap_or(u64::MAX)
    }

    /// Watches no longer: what is read from here on was made before.
    pub(crate) fn stop(&mut self) {
        self.notifier.stop();
        self.is_stopped = true;
        self.is_drained = false;
    }

    fn resolve(&self, event: &Event<'_>) -> Option<Renamed> {
        let new = event.new_name.as_ref()?;
        let mount = self.mounts.get(new.file_system)?.as_ref();
        let place = mount.and_then(|mount| fs::File::open(&mount.mountpoint).ok());
        let open = |handle: &[u8]| open_handle(place.as_ref()?.as_fd(), handle).ok();
        let folder = open(new.handle)
            .and_then(|folder| fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd())).ok())
            .and_then(|folder| path_in(mount?, &folder));
        let name = shown::from_bytes(new.name);
        let path = match folder.as_deref() {
            Some("/") => format!("/{name}"),
            Some(folder) => format!("{folder}/{name}"),
            None => format!(".../{name}"),
        };
        let file = event.file.as_ref().and_then(|file| {
            let stat = open(file.handle).and_then(|opened| rustix::fs::fstat(&opened).ok());
            let file_system = stat.map(|stat| number(stat.st_dev));
            identity(file.handle, file_system.or(mount.map(|mount| mount.device))?)
        });
        let comm = fs::read(format!("/proc/{}/comm", event.pid)).unwrap_or_default();
        let comm = comm.strip_suffix(b"\n").unwrap_or(&comm);
        let process = Process {
            pid: event.pid,
            tid: event.pid,
            name: if comm.is_empty() {
                Arc::from(NO_NAME)
            } else {
                shown::from_bytes(comm).into()
            },
            package: None,
        };
        Some(Renamed { process, file, path })
    }
}

/// The file system's id, as `statfs` tells it.
fn id_of(mountpoint: &Path) -> Option<[u8; 8]> {
    // Two words of 32 bits, the first one in the lower half.
    let id = rustix::fs::statvfs(mountpoint).ok()?.f_fsid;
    let word = |value: u64| {
        u32::try_from(value & u64::from(u32::MAX))
            .unwrap_or(0)
            .to_ne_bytes()
    };
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&word(id));
    bytes[4..].copy_from_slice(&word(id >> 32));
    Some(bytes)
}

/// The path from the file system's root of a folder below a mount.
fn path_in(mount: &Mount, folder: &Path) -> Option<String> {
    let below = folder.strip_prefix(&mount.mountpoint).ok()?;
    let below = shown::from_bytes(below.as_os_str().as_bytes());
    let root = mount.root.trim_end_matches('/');
    Some(match (root, below.as_ref()) {
        ("", "") => "/".to_owned(),
        (root, "") => root.to_owned(),
        (root, below) => format!("{root}/{below}"),
    })
}

/// Inode and generation in a handle.
fn identity(handle: &[u8], file_system: DeviceNumber) -> Option<FileIdentity> {
    let kind = u32::from_ne_bytes(handle.get(4..8)?.try_into().ok()?) & 0xFF;
    let content = handle.get(8..)?;
    let (_, inode_bytes, generation_at) = HANDLES.iter().find(|(known, _, _)| *known == kind)?;
    let inode = match inode_bytes {
        4 => u64::from(u32::from_ne_bytes(content.get(..4)?.try_into().ok()?)),
        _ => u64::from_ne_bytes(content.get(..8)?.try_into().ok()?),
    };
    let generation = content.get(*generation_at..generation_at + 4)?;
    Some(FileIdentity {
        file_system,
        inode,
        generation: u32::from_ne_bytes(generation.try_into().ok()?),
    })
}

/// A file by its handle, or a name in a folder by the folder's.
#[derive(Debug, PartialEq, Eq)]
struct Named<'a> {
    file_system: &'a [u8; 8],
    /// With its length and type.
    handle: &'a [u8],
    name: &'a [u8],
}

#[derive(Debug, PartialEq, Eq)]
struct Event<'a> {
    pid: u32,
    /// Stands for renames that the kernel dropped.
    is_overflow: bool,
    new_name: Option<Named<'a>>,
    file: Option<Named<'a>>,
}

/// The events in a buffer, up to the first that is cut or malformed.
fn events(mut bytes: &[u8]) -> Vec<Event<'_>> {
    let mut found = Vec::new();
    while let Some((event, rest)) = event(bytes) {
        found.push(event);
        bytes = rest;
    }
    found
}

fn event(bytes: &[u8]) -> Option<(Event<'_>, &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
    let (whole, rest) = bytes.split_at_checked(length)?;
    let pid = i32::from_ne_bytes(whole.get(20..METADATA_BYTES)?.try_into().ok()?);
    let mask = u64::from_ne_bytes(whole.get(8..16)?.try_into().ok()?);
    let metadata = usize::from(u16::from_ne_bytes(whole.get(6..8)?.try_into().ok()?));
    let mut event = Event {
        pid: u32::try_from(pid).unwrap_or(0),
        is_overflow: mask & OVERFLOW != 0,
        new_name: None,
        file: None,
    };
    let mut infos = whole.get(metadata..)?;
    while let Some([kind, _, low, high]) = infos.first_chunk() {
        let length = usize::from(u16::from_ne_bytes([*low, *high]));
        let (info, after) = infos.split_at_checked(length.max(4))?;
        match *kind {
            RENAMED_FILE => event.file = named(info),
            NEW_NAME => event.new_name = named(info),
            _ => {}
        }
        infos = after;
    }
    Some((event, rest))
}

fn named(info: &[u8]) -> Option<Named<'_>> {
    let (file_system, after) = info.get(4..)?.split_first_chunk::<8>()?;
    let bytes = usize::try_from(u32::from_ne_bytes(*after.first_chunk()?)).ok()?;
    let (handle, name) = after.split_at_checked(bytes.checked_add(8)?)?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Some(Named {
        file_system,
        handle,
        name: &name[..end],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(kind: u8, handle_kind: u32, content: &[u8], name: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind, 0, 0, 0];
        bytes.extend([7; 8]);
        bytes.extend(u32::try_from(content.len()).unwrap().to_ne_bytes());
        bytes.extend(handle_kind.to_ne_bytes());
        bytes.extend(content);
        bytes.extend(name);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let length = u16::try_from(bytes.len()).unwrap().to_ne_bytes();
        bytes[2..4].copy_from_slice(&length);
        bytes
    }

    fn rename(pid: i32) -> Vec<u8> {
        let infos = [
            info(10, 1, &[1, 0, 0, 0, 2, 0, 0, 0], b"old\0"),
            info(NEW_NAME, 1, &[3, 0, 0, 0, 4, 0, 0, 0], b"new\0"),
            info(RENAMED_FILE, 1, &[5, 0, 0, 0, 6, 0, 0, 0], b""),
        ]
        .concat();
        let mut bytes = u32::try_from(METADATA_BYTES + infos.len())
            .unwrap()
            .to_ne_bytes()
            .to_vec();
        bytes.extend([3, 0]);
        bytes.extend(u16::try_from(METADATA_BYTES).unwrap().to_ne_bytes());
        bytes.extend(libc::FAN_RENAME.to_ne_bytes());
        bytes.extend((-1_i32).to_ne_bytes());
        bytes.extend(pid.to_ne_bytes());
        bytes.extend(infos);
        bytes
    }

    #[test]
    fn an_event_names_the_process_the_new_name_and_the_file() {
        let bytes = [rename(41), rename(42)].concat();
        let events = events(&bytes);
        assert_eq!(events.iter().map(|event| event.pid).collect::<Vec<_>>(), [41, 42]);
        let new = events[1].new_name.as_ref().unwrap();
        assert_eq!((new.name, new.file_system), (b"new".as_slice(), &[7; 8]));
        let device = DeviceNumber { major: 7, minor: 0 };
        let file = identity(events[1].file.as_ref().unwrap().handle, device).unwrap();
        assert_eq!((file.inode, file.generation), (5, 6));
    }

    #[test]
    fn events_that_the_kernel_dropped_are_told_by_one_without_a_file() {
        let mut bytes = rename(41);
        bytes.truncate(METADATA_BYTES);
        bytes[..4].copy_from_slice(&u32::try_from(METADATA_BYTES).unwrap().to_ne_bytes());
        bytes[8..16].copy_from_slice(&OVERFLOW.to_ne_bytes());
        bytes.extend(rename(42));
        let overflows: Vec<bool> = events(&bytes).iter().map(|event| event.is_overflow).collect();
        assert_eq!(overflows, [true, false]);
    }

    #[test]
    fn cut_events_are_left_out_and_nothing_beyond_the_buffer_is_read() {
        let bytes = [rename(41), rename(42)].concat();
        for cut in 0..bytes.len() {
            let whole = events(&bytes[..cut]).len();
            assert_eq!(whole, cut / (bytes.len() / 2), "cut at {cut}");
        }
        // Lengths that lie.
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] = 0xFF;
            let _ = events(&wrong).len();
        }
    }

    #[test]
    fn handles_of_xfs_and_btrfs_hold_inode_and_generation_in_their_own_places() {
        let device = DeviceNumber { major: 7, minor: 0 };
        let handle =
            |kind: u32, content: &[u8]| [&8_u32.to_ne_bytes(), &kind.to_ne_bytes(), content].concat();
        let numbers = |handle: &[u8]| identity(handle, device).map(|file| (file.inode, file.generation));
        let inode = 77_u64.to_ne_bytes();
        let xfs = [&inode[..], &9_u32.to_ne_bytes()].concat();
        assert_eq!(numbers(&handle(0x81, &xfs)), Some((77, 9)));
        let btrfs = [&inode[..], &5_u64.to_ne_bytes(), &9_u32.to_ne_bytes()].concat();
        assert_eq!(numbers(&handle(0x4D, &btrfs)), Some((77, 9)));
        assert_eq!(numbers(&handle(0x4D, &btrfs[..12])), None);
        assert_eq!(numbers(&handle(0x99, &btrfs)), None);
    }
}
