//! Attribution of a trace without BPF: positions of files' blocks, writers, creation and deletion.
//!
//! Block events name no file. So the file system is asked for the positions of its files at the start, and on ext4 its
//! own events keep them up to date: extents that become known (including allocated ones), freed blocks, written ranges,
//! created and deleted inodes. A piece is then attributed by its position; positions that were never reported stay
//! unknown. A new file's name is looked up in its folder when the file is first seen: one that was renamed or removed
//! before has none.
//!
//! Inodes have no generation here. On file systems other than ext4 only the state at the start is known.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fsmap::{BlockType, FileKind, Flush, JournalDetail, Options, OwnerMap};
use results::block_trace::{DeviceNumber, TracedDevice};
use results::shown;
use zerocopy::FromZeros;

use super::Forgotten;
use crate::block::device::{self, Mount};
use crate::block::record::{
    EventRecord, NameRecord, ProcessReference, RunPart, WriterRecord, dirtied, event_kind, kernel_device,
    run_flag, run_kind,
};

/// Events beside those of the block layer, by subsystem; each is used if the kernel has it.
pub(super) const EVENTS: [(&str, &str); 11] = [
    ("writeback", "writeback_dirty_folio"),
    ("writeback", "writeback_dirty_page"),
    ("ext4", "ext4_da_write_end"),
    ("ext4", "ext4_write_end"),
    ("ext4", "ext4_journalled_write_end"),
    ("ext4", "ext4_es_insert_extent"),
    ("ext4", "ext4_free_blocks"),
    ("ext4", "ext4_allocate_inode"),
    ("ext4", "ext4_evict_inode"),
    ("ext4", "ext4_unlink_enter"),
    ("ext4", "ext4_sync_file_enter"),
];

const PAGE_BYTES: u64 = 4096;
/// Maximum length of a name in a record: files with longer paths have none.
const NAME_BYTES: usize = 256;
const REGULAR: u16 = 0x8000;
const DIRECTORY: u16 = 0x4000;
const EXT4_MAGIC: u32 = 0xEF53;
/// First number for entries made here; the kernel's are addresses, and even.
const FIRST_ENTRY: u64 = 1;

/// A mounted file system on a traced disk.
#[derive(Debug)]
struct Mounted {
    disk: u32,
    /// First sector of its partition.
    start: u64,
    block_bytes: u64,
    mountpoint: PathBuf,
    is_ext4: bool,
    /// Entry of its root.
    root: u64,
}

/// Owner of a range of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    end: u64,
    file_system: u32,
    owner: Owner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// A file, from this byte on.
    File {
        inode: u64,
        offset: u64,
    },
    Journal,
}

/// Process and time of an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub time: u64,
    pub process: ProcessReference,
    pub by_kernel: bool,
}

/// A record for user space, as produced by a program.
#[derive(Clone, Debug)]
pub(super) enum Told {
    Writer(WriterRecord),
    Event(EventRecord),
    Name(Box<NameRecord>),
}

/// Maximum number of extents of all disks; of folders, of inodes without a name yet, and of named ones. A full map is
/// dropped as a whole, and counted.
const MAX_EXTENTS: usize = 1 << 20;
const MAX_INODES: usize = 1 << 18;

/// All known files on the traced disks.
#[derive(Debug, Default)]
pub(super) struct Files {
    mounted: HashMap<u32, Mounted>,
    /// By disk and first sector.
    extents: HashMap<u32, BTreeMap<u64, Extent>>,
    /// Number of all extents.
    extent_count: usize,
    /// Folders by file system and inode: their paths below the root.
    folders: HashMap<(u32, u64), String>,
    /// New inodes whose names have not been looked up yet, and their folders.
    nameless: HashMap<(u32, u64), u64>,
    /// Entries of named inodes.
    entries: HashMap<(u32, u64), u64>,
    /// Paths of files, as they were found: by them, the kernel tells whether a file has other names.
    places: HashMap<(u32, u64), PathBuf>,
    next_entry: u64,
    forgotten: Forgotten,
}

impl Files {
    /// Asks the file systems on the devices for the positions of their files.
    pub(super) fn of(devices: &[TracedDevice], forgotten: Forgotten) -> Self {
        let mut files = Self {
            next_entry: FIRST_ENTRY,
            forgotten,
            ..Self::default()
        };
        for device in devices {
            for mount in device::mounts_on(device) {
                files.add(kernel_device(device.device), &mount);
            }
        }
        files
    }

    fn add(&mut self, disk: u32, mount: &Mount) {
        let file_system = kernel_device(mount.device);
        let options = Options {
            offset: None,
            journal: JournalDetail::Areas,
            flush: Flush::No,
        };
        let Ok(map) = OwnerMap::open(&mount.mountpoint, &options) else {
            return;
        };
        let start = map.device().map_or(0, |device| device.start / 512);
        let block_bytes = map
            .volumes()
            .first()
            .map_or(PAGE_BYTES, |volume| volume.block_bytes());
        let root = self.new_entry();
        self.mounted.insert(
            file_system,
            Mounted {
                disk,
                start,
                block_bytes,
                mountpoint: mount.mountpoint.clone(),
                is_ext4: mount.file_system == "ext4",
                root,
            },
        );
        for (_, file) in map.files(0) {
            if file.kind() != FileKind::Directory {
                if let Some(path) = file.paths().next() {
                    let below = Path::new(OsStr::from_bytes(&path.bytes));
                    let place = mount.mountpoint.join(below.strip_prefix("/").unwrap_or(below));
                    bounded_insert(
                        &mut self.places,
                        (file_system, file.inode()),
                        place,
                        &self.forgotten,
                    );
                }
            } else if let Some(path) = file.path() {
                let path = path.trim_end_matches('/').to_owned();
                let key = (file_system, file.inode());
                bounded_insert(&mut self.folders, key, path, &self.forgotten);
            }
        }
        for piece in map.all() {
            let file = piece.file.and_then(|file| map.file(file));
            let owner = match (piece.kind, file, piece.file_offset) {
                (BlockType::Data | BlockType::Directory | BlockType::Symlink, Some(file), Some(offset)) => {
                    let inode = file.inode();
                    Owner::File { inode, offset }
                }
                (BlockType::Journal, ..) => Owner::Journal,
                _ => continue,
            };
            let first = start + piece.start / 512;
            self.put(disk, first, first + piece.length / 512, file_system, owner);
        }
    }

    /// Processes a line of an event; `moment` is called only for events that need it.
    pub(super) fn line(
        &mut self,
        event: &str,
        fields: &str,
        moment: &mut dyn FnMut() -> Moment,
    ) -> Vec<Told> {
        if event.starts_with("writeback_dirty") {
            return self.dirtied(fields, moment).into_iter().collect();
        }
        let number = |name: &str| number_after(fields, name);
        let device = fields
            .strip_prefix("dev ")
            .and_then(|rest| rest.split(' ').next());
        let device: Option<DeviceNumber> = device.and_then(|text| text.parse().ok());
        let (Some(device), Some(inode)) = (device.map(kernel_device), number("ino")) else {
            return Vec::new();
        };
        if !self.mounted.get(&device).is_some_and(|mounted| mounted.is_ext4) {
            return Vec::new();
        }
        match event {
            "ext4_da_write_end" | "ext4_write_end" | "ext4_journalled_write_end" => {
                let told = number("pos").zip(number("copied").filter(|bytes| *bytes > 0));
                let told = told.map(|(position, bytes)| {
                    writer(device, inode, position, bytes, dirtied::BY_CALL, moment())
                });
                told.map(Told::Writer).into_iter().collect()
            }
            "ext4_es_insert_extent" => {
                self.extent(device, inode, fields);
                Vec::new()
            }
            "ext4_free_blocks" => {
                if let Some((block, count)) = number("block").zip(number("count")) {
                    self.freed(device, block, count);
                }
                Vec::new()
            }
            "ext4_allocate_inode" => {
                self.entries.remove(&(device, inode));
                self.places.remove(&(device, inode));
                let folder = number("dir").unwrap_or(0);
                bounded_insert(&mut self.nameless, (device, inode), folder, &self.forgotten);
                vec![Told::Event(happened(
                    event_kind::CREATE,
                    device,
                    inode,
                    0,
                    moment(),
                ))]
            }
            "ext4_evict_inode" if number("nlink") == Some(0) => {
                let told = self.event(event_kind::DELETE, device, inode, moment());
                self.nameless.remove(&(device, inode));
                self.folders.remove(&(device, inode));
                self.entries.remove(&(device, inode));
                self.places.remove(&(device, inode));
                told
            }
            "ext4_unlink_enter" => self.event(event_kind::UNLINK, device, inode, moment()),
            "ext4_sync_file_enter" if number("datasync") == Some(1) => {
                self.event(event_kind::FDATASYNC, device, inode, moment())
            }
            "ext4_sync_file_enter" => self.event(event_kind::FSYNC, device, inode, moment()),
            _ => Vec::new(),
        }
    }

    /// Splits a range of a disk by owner; names that must be reported first are added to `names`.
    pub(super) fn parts(
        &mut self,
        disk: u32,
        sector: u64,
        bytes: u32,
        names: &mut Vec<NameRecord>,
    ) -> Vec<RunPart> {
        let end = sector + u64::from(bytes) / 512;
        let found = self.overlapping(disk, sector, end);
        let mut parts = Vec::new();
        for (first, extent) in found {
            let from = first.max(sector);
            let to = extent.end.min(end);
            let mut part = RunPart::new_zeroed();
            part.start = u32::try_from((from - sector) * 512).unwrap_or(u32::MAX);
            part.bytes = u32::try_from((to - from) * 512).unwrap_or(u32::MAX);
            part.file_system = extent.file_system;
            match extent.owner {
                Owner::Journal => part.kind = run_kind::JOURNAL_PLACE,
                Owner::File { inode, offset } => {
                    let key = (extent.file_system, inode);
                    part.kind = run_kind::PAGES;
                    part.inode = inode;
                    part.offset = offset + (from - first) * 512;
                    part.dentry = self.entry(key, names);
                    let is_ext4 = self.mounted.get(&key.0).is_some_and(|mounted| mounted.is_ext4);
                    if self.has_several_names(key) {
                        part.flags |= run_flag::ONE_OF_NAMES;
                    }
                    part.magic = if is_ext4 { EXT4_MAGIC } else { 0 };
                    part.mode = if self.folders.contains_key(&key) {
                        DIRECTORY
                    } else {
                        REGULAR
                    };
                }
            }
            parts.push(part);
        }
        parts
    }

    fn event(&mut self, event: u32, device: u32, inode: u64, moment: Moment) -> Vec<Told> {
        let mut names = Vec::new();
        let entry = self.entry((device, inode), &mut names);
        let mut told: Vec<Told> = names.into_iter().map(|name| Told::Name(Box::new(name))).collect();
        told.push(Told::Event(happened(event, device, inode, entry, moment)));
        told
    }

    /// `bdi MAJOR:MINOR: ino=N index=N`: names the disk, not the file system; unambiguous if the disk has only one.
    fn dirtied(&self, fields: &str, moment: &mut dyn FnMut() -> Moment) -> Option<Told> {
        let (disk, rest) = fields.strip_prefix("bdi ")?.split_once(": ")?;
        let disk = kernel_device(disk.parse().ok()?);
        let mut on_disk = self.mounted.iter().filter(|(_, mounted)| mounted.disk == disk);
        let (file_system, _) = on_disk.next().filter(|_| on_disk.next().is_none())?;
        let value = |name: &str| {
            let word = rest.split(' ').find_map(|word| word.strip_prefix(name));
            word.and_then(|text| text.parse::<u64>().ok())
        };
        let (inode, index) = value("ino=").zip(value("index="))?;
        let record = writer(
            *file_system,
            inode,
            index * PAGE_BYTES,
            PAGE_BYTES,
            dirtied::IN_CALL,
            moment(),
        );
        Some(Told::Writer(record))
    }

    /// `... es [FIRST/COUNT) mapped BLOCK status LETTERS`: records extents that are allocated, written or not.
    fn extent(&mut self, device: u32, inode: u64, fields: &str) -> Option<()> {
        let range = fields.split('[').nth(1)?.split(')').next()?;
        let (first, count) = range.split_once('/')?;
        let (first, count): (u64, u64) = (first.parse().ok()?, count.parse().ok()?);
        let status = fields.split("status ").nth(1)?;
        if !status.starts_with(['W', 'U']) {
            return None;
        }
        let block = number_after(fields, "mapped")?;
        let mounted = self.mounted.get(&device)?;
        let sectors = mounted.block_bytes / 512;
        let (disk, start) = (mounted.disk, mounted.start + block * sectors);
        let offset = first * mounted.block_bytes;
        self.put(
            disk,
            start,
            start + count * sectors,
            device,
            Owner::File { inode, offset },
        );
        Some(())
    }

    fn freed(&mut self, device: u32, block: u64, count: u64) {
        if let Some(mounted) = self.mounted.get(&device) {
            let sectors = mounted.block_bytes / 512;
            let start = mounted.start + block * sectors;
            self.take_out(mounted.disk, start, start + count * sectors);
        }
    }

    fn put(&mut self, disk: u32, start: u64, end: u64, file_system: u32, owner: Owner) {
        if start >= end {
            return;
        }
        self.take_out(disk, start, end);
        if self.extent_count >= MAX_EXTENTS {
            self.extents.clear();
            self.extent_count = 0;
            self.forgotten.count();
        }
        let extent = Extent {
            end,
            file_system,
            owner,
        };
        self.extents.entry(disk).or_default().insert(start, extent);
        self.extent_count += 1;
    }

    /// Extents that overlap a range, with their first sectors.
    fn overlapping(&self, disk: u32, start: u64, end: u64) -> Vec<(u64, Extent)> {
        let Some(extents) = self.extents.get(&disk) else {
            return Vec::new();
        };
        let before = extents.range(..start).next_back();
        let before = before.filter(|(_, extent)| extent.end > start);
        let found = before.into_iter().chain(extents.range(start..end));
        found.map(|(first, extent)| (*first, *extent)).collect()
    }

    fn take_out(&mut self, disk: u32, start: u64, end: u64) {
        let old = self.overlapping(disk, start, end);
        let extents = self.extents.entry(disk).or_default();
        let before = extents.len();
        for (first, extent) in old {
            extents.remove(&first);
            if first < start {
                extents.insert(first, Extent { end: start, ..extent });
            }
            if extent.end > end {
                let owner = match extent.owner {
                    Owner::File { inode, offset } => Owner::File {
                        inode,
                        offset: offset + (end - first) * 512,
                    },
                    Owner::Journal => Owner::Journal,
                };
                extents.insert(end, Extent { owner, ..extent });
            }
        }
        self.extent_count = self.extent_count - before + extents.len();
    }

    /// The entry that names an inode; 0 if none was made here: paths found at the start are known otherwise.
    fn entry(&mut self, key: (u32, u64), names: &mut Vec<NameRecord>) -> u64 {
        if let Some(entry) = self.entries.get(&key) {
            return *entry;
        }
        let Some(folder) = self.nameless.remove(&key) else {
            return 0;
        };
        let mut parents = Vec::new();
        let folder_key = (key.0, folder);
        if self.nameless.contains_key(&folder_key) {
            // A new folder: its own name first.
            self.entry(folder_key, &mut parents);
        }
        names.append(&mut parents);
        let Some((path, place, is_folder)) = self.look_up(key, folder) else {
            return 0;
        };
        if !is_folder {
            bounded_insert(&mut self.places, key, place, &self.forgotten);
        }
        if path.len() > NAME_BYTES {
            return 0;
        }
        let entry = self.new_entry();
        let root = self.mounted.get(&key.0).map_or(0, |mounted| mounted.root);
        names.push(name(root, root, ""));
        names.push(name(entry, root, path.trim_start_matches('/')));
        bounded_insert(&mut self.entries, key, entry, &self.forgotten);
        if is_folder {
            bounded_insert(&mut self.folders, key, path, &self.forgotten);
        }
        entry
    }

    /// Whether a file has more names than the known one, now.
    fn has_several_names(&self, key: (u32, u64)) -> bool {
        let metadata = self
            .places
            .get(&key)
            .and_then(|place| fs::symlink_metadata(place).ok());
        metadata.is_some_and(|metadata| metadata.ino() == key.1 && !metadata.is_dir() && metadata.nlink() > 1)
    }

    /// The path of an inode in this folder, also from this machine's root, and whether it is a folder.
    fn look_up(&self, (file_system, inode): (u32, u64), folder: u64) -> Option<(String, PathBuf, bool)> {
        let mounted = self.mounted.get(&file_system)?;
        let folder = self.folders.get(&(file_system, folder))?;
        let below = Path::new(folder).strip_prefix("/").unwrap_or(Path::new(folder));
        for entry in fs::read_dir(mounted.mountpoint.join(below)).ok()?.flatten() {
            let metadata = entry.metadata().ok()?;
            if metadata.ino() == inode {
                let own = entry.file_name();
                let own = shown::from_bytes(own.as_encoded_bytes());
                let path = format!("{folder}/{own}");
                return Some((path, entry.path(), metadata.is_dir()));
            }
        }
        None
    }

    fn new_entry(&mut self) -> u64 {
        self.next_entry += 2;
        self.next_entry
    }
}

/// Inserts a value; a full map is dropped before, and counted.
fn bounded_insert<T>(map: &mut HashMap<(u32, u64), T>, key: (u32, u64), value: T, forgotten: &Forgotten) {
    if map.len() >= MAX_INODES && !map.contains_key(&key) {
        map.clear();
        forgotten.count();
    }
    map.insert(key, value);
}

fn number_after(fields: &str, name: &str) -> Option<u64> {
    let mut words = fields.split(' ');
    words.find(|word| *word == name)?;
    words.next()?.parse().ok()
}

fn writer(file_system: u32, inode: u64, position: u64, bytes: u64, by: u8, moment: Moment) -> WriterRecord {
    WriterRecord {
        kind: super::parser::KIND_WRITER,
        file_system,
        time: moment.time,
        inode,
        position,
        bytes,
        by_kernel: u8::from(moment.by_kernel),
        by,
        process: moment.process,
        ..WriterRecord::new_zeroed()
    }
}

fn happened(event: u32, file_system: u32, inode: u64, dentry: u64, moment: Moment) -> EventRecord {
    EventRecord {
        kind: super::parser::KIND_EVENT,
        event,
        time: moment.time,
        inode,
        dentry,
        file_system,
        process: moment.process,
        ..EventRecord::new_zeroed()
    }
}

/// A path is reported as one name below the root.
fn name(dentry: u64, parent: u64, text: &str) -> NameRecord {
    let mut record = NameRecord::new_zeroed();
    let length = text.len().min(record.name.len());
    record.kind = super::parser::KIND_NAME;
    record.bytes = u32::try_from(length).unwrap_or(0);
    record.dentry = dentry;
    record.parent = parent;
    record.name[..length].copy_from_slice(&text.as_bytes()[..length]);
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: u32 = 7 << 20;

    fn files() -> Files {
        let mut files = Files {
            next_entry: FIRST_ENTRY,
            ..Files::default()
        };
        let root = files.new_entry();
        files.mounted.insert(
            DISK,
            Mounted {
                disk: DISK,
                start: 0,
                block_bytes: 4096,
                mountpoint: PathBuf::from("/nowhere"),
                is_ext4: true,
                root,
            },
        );
        files
    }

    fn moment() -> Moment {
        Moment {
            time: 5,
            process: ProcessReference::new_zeroed(),
            by_kernel: false,
        }
    }

    fn line(files: &mut Files, event: &str, fields: &str) -> Vec<Told> {
        files.line(event, fields, &mut moment)
    }

    fn owners(files: &mut Files, sector: u64, bytes: u32) -> Vec<(u64, u64, u32, u32)> {
        let parts = files.parts(DISK, sector, bytes, &mut Vec::new());
        parts
            .iter()
            .map(|part| (part.inode, part.offset, part.start, part.bytes))
            .collect()
    }

    #[test]
    fn a_block_is_the_file_of_the_extent_that_was_told_last_until_it_is_freed() {
        let mut files = files();
        line(
            &mut files,
            "ext4_es_insert_extent",
            "dev 7,0 ino 12 es [4/8) mapped 100 status W",
        );
        assert_eq!(owners(&mut files, 808, 8192), [(12, 20480, 0, 8192)]);
        // Delayed allocation: it has no position yet.
        line(
            &mut files,
            "ext4_es_insert_extent",
            "dev 7,0 ino 13 es [0/8) mapped 101 status D",
        );
        line(
            &mut files,
            "ext4_es_insert_extent",
            "dev 7,0 ino 14 es [0/1) mapped 102 status WR",
        );
        assert_eq!(
            owners(&mut files, 800, 16384),
            [
                (12, 16384, 0, 8192),
                (14, 0, 8192, 4096),
                (12, 28672, 12288, 4096)
            ]
        );
        line(
            &mut files,
            "ext4_free_blocks",
            "dev 7,0 ino 12 mode 0100644 block 100 count 8 flags ",
        );
        assert_eq!(owners(&mut files, 800, 16384), []);
    }

    #[test]
    fn writes_and_dirty_pages_name_their_process_with_its_range() {
        let mut files = files();
        let told = line(
            &mut files,
            "ext4_da_write_end",
            "dev 7,0 ino 12 pos 8192 len 200 copied 100",
        );
        assert!(
            matches!(told.as_slice(), [Told::Writer(one)] if (one.position, one.bytes, one.by) == (8192, 100, dirtied::BY_CALL)),
            "{told:?}"
        );
        let failed = "dev 7,0 ino 12 pos 8192 len 200 copied 0";
        assert!(line(&mut files, "ext4_da_write_end", failed).is_empty());
        let told = line(&mut files, "writeback_dirty_folio", "bdi 7:0: ino=12 index=3");
        assert!(
            matches!(told.as_slice(), [Told::Writer(one)] if (one.position, one.bytes, one.by) == (12288, 4096, dirtied::IN_CALL)),
            "{told:?}"
        );
        let other = line(
            &mut files,
            "ext4_da_write_end",
            "dev 8,1 ino 12 pos 0 len 100 copied 100",
        );
        assert!(other.is_empty(), "a file system that is not traced");
    }

    #[test]
    fn a_file_that_got_another_name_bears_one_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = files();
        let mounted = files.mounted.get_mut(&DISK).unwrap();
        mounted.mountpoint = folder.path().to_owned();
        files.folders.insert((DISK, 2), String::new());
        let path = folder.path().join("file");
        fs::write(&path, "x").unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        let flags = |files: &mut Files| files.parts(DISK, 800, 4096, &mut Vec::new())[0].flags;
        line(
            &mut files,
            "ext4_allocate_inode",
            &format!("dev 7,0 ino {inode} dir 2 mode 0100644"),
        );
        line(
            &mut files,
            "ext4_es_insert_extent",
            &format!("dev 7,0 ino {inode} es [0/1) mapped 100 status W"),
        );
        assert_eq!(flags(&mut files), 0);
        fs::hard_link(&path, folder.path().join("other")).unwrap();
        assert_eq!(flags(&mut files), run_flag::ONE_OF_NAMES);
    }

    #[test]
    fn an_inode_whose_last_name_is_gone_is_deleted_and_one_in_memory_is_not() {
        let mut files = files();
        assert!(line(&mut files, "ext4_evict_inode", "dev 7,0 ino 12 nlink 1").is_empty());
        let told = line(&mut files, "ext4_evict_inode", "dev 7,0 ino 12 nlink 0");
        assert!(matches!(told.as_slice(), [Told::Event(one)] if one.event == event_kind::DELETE));
    }

    #[test]
    fn places_and_inodes_without_end_are_forgotten_and_counted() {
        let mut files = files();
        for block in 0..=u64::try_from(MAX_EXTENTS).unwrap() {
            // Every second block, so that none continues another.
            let fields = format!("dev 7,0 ino 12 es [{block}/1) mapped {} status W", block * 2);
            line(&mut files, "ext4_es_insert_extent", &fields);
        }
        assert_eq!((files.extent_count, files.forgotten.get()), (1, 1));
        assert_eq!(files.extents[&DISK].len(), files.extent_count);
        // A piece out of the middle leaves two.
        files.put(DISK, 1 << 40, (1 << 40) + 24, DISK, Owner::Journal);
        files.take_out(DISK, (1 << 40) + 8, (1 << 40) + 16);
        assert_eq!(files.extents[&DISK].len(), files.extent_count);
        for inode in 0..=u64::try_from(MAX_INODES).unwrap() {
            let fields = format!("dev 7,0 ino {inode} dir 2 mode 0100644");
            line(&mut files, "ext4_allocate_inode", &fields);
        }
        assert_eq!((files.nameless.len(), files.forgotten.get()), (1, 2));
    }
}
