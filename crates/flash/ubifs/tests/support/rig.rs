//! A simulated chip with a UBI volume, a model of its files, and a random script that is applied to both.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use media::{Leb, Nand, NandGeometry};
use nand::{ChipModel, FaultModel, SimNand};
use testkit::prng::Prng;
use ubi::format::VolumeKind;
use ubi::format::volume_table::VolumeName;
use ubi::{
    Access, AttachOptions, FormatOptions, Layout, NewVolume, SizeInLebs, Ubi, UbiVolume, Volume, VolumeError,
    VolumeId, scan,
};
use ubifs::format::{EntryKind, InodeNumber, ROOT_INODE, crc};
use ubifs::mkfs::{Attributes, LebCount, MkfsOptions, Time, Tree, VolumeSink, make};
use ubifs::{NewFile, OpenOptions, Ubifs, WriteError, Writer};

/// A chip that outlives its users.
pub type Chip = Arc<Mutex<SimNand>>;

/// Shape of a chip and of the file system on it.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub page: u32,
    pub pages: u32,
    pub blocks: u32,
    pub lebs: u32,
    pub fanout: u32,
    /// Size of the reserved pool.
    pub reserved_bytes: u64,
}

/// The smallest LEBs that UBIFS supports.
pub const SMALL: Shape = Shape {
    page: 512,
    pages: 32,
    blocks: 72,
    lebs: 56,
    fanout: 8,
    reserved_bytes: 0,
};

impl Shape {
    /// A chip with an empty file system.
    pub fn formatted(self) -> SimNand {
        let geometry = NandGeometry::new(self.page, self.pages, self.blocks).expect("a geometry");
        let chip = SimNand::new("chip", ChipModel::new(geometry), FaultModel::none());
        let chip = Arc::new(Mutex::new(chip));
        let options = FormatOptions {
            layout: Layout::usual(&geometry).expect("a layout"),
            image_sequence: 1,
            erase_counter: None,
        };
        let ubi = Ubi::format(Arc::clone(&chip), options, &mut |_| {}).expect("formatted");
        ubi.make_volume(NewVolume {
            id: None,
            name: VolumeName::new(b"data").expect("a name"),
            kind: VolumeKind::Dynamic,
            size: SizeInLebs::Exactly(self.lebs),
            alignment: 1,
            autoresize: false,
            skip_check: false,
        })
        .expect("room for it");
        let volume = ubi.open(VolumeId(0)).expect("it was just made");
        self.make_file_system(&volume);
        drop((volume, ubi));
        Arc::into_inner(chip)
            .expect("one user")
            .into_inner()
            .expect("no panic")
    }

    /// Makes an empty file system that fills a volume.
    pub fn make_file_system(self, volume: &dyn Volume) {
        let shape = volume.geometry();
        let options = MkfsOptions {
            lebs: LebCount::Exactly(shape.lebs),
            fanout: self.fanout,
            reserved_bytes: self.reserved_bytes,
            ..MkfsOptions::new(shape.min_io_bytes, shape.leb_bytes, shape.lebs)
        };
        let mut sink = VolumeSink::new(volume).expect("it takes writes");
        make(
            &Tree::empty(Attributes::default()),
            &options,
            &mut sink,
            &mut || {},
        )
        .expect("the options are good");
        sink.finish().expect("it takes writes");
    }
}

/// The UBI device of a chip.
pub fn device(chip: &Chip) -> Result<Ubi, ubi::AttachError> {
    device_on(Arc::clone(chip), Access::ReadWrite)
}

/// Like [`device`], for a wrapped chip.
pub fn device_on(chip: impl Nand + 'static, access: Access) -> Result<Ubi, ubi::AttachError> {
    let options = AttachOptions {
        wear_threshold: 1 << 20,
        ..AttachOptions::linux(access)
    };
    scan(chip, options)?.attach()
}

/// The volume of a chip.
pub fn attach(chip: &Chip) -> Result<Arc<UbiVolume>, ubi::AttachError> {
    let volume = device(chip)?.open(VolumeId(0));
    Ok(Arc::new(volume.expect("the volume is there")))
}

/// Content of all LEBs of a volume; torn pages are returned as they are.
pub fn all_of(volume: &dyn Volume) -> Vec<u8> {
    let geometry = volume.geometry();
    let mut all = Vec::new();
    for leb in 0..geometry.lebs {
        let mut raw = vec![0; usize::try_from(geometry.leb_bytes).expect("small")];
        match volume.read(Leb(leb), 0, &mut raw) {
            Ok(()) | Err(VolumeError::Uncorrectable { .. }) => all.extend_from_slice(&raw),
            Err(error) => panic!("{error}"),
        }
    }
    all
}

/// Writes the content of a volume to a file, for external checkers.
pub fn dump(volume: &dyn Volume, path: &Path) {
    std::fs::write(path, all_of(volume)).expect("there is room for it");
}

/// Opens a volume read-write.
pub fn open(volume: Arc<dyn Volume>) -> Result<Writer, WriteError> {
    Writer::open(volume, OpenOptions::standard())
}

/// Maps a path to a description of the file.
pub type Lines = BTreeMap<String, String>;

/// Lists a file system.
pub fn lines_of(ubifs: &Ubifs) -> Lines {
    let mut lines = Lines::new();
    let mut pending = vec![(ROOT_INODE, String::new())];
    while let Some((number, path)) = pending.pop() {
        let inode = ubifs
            .inode(number)
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut xattrs = BTreeMap::new();
        for name in ubifs.xattr_names(number).expect("they can be read") {
            let value = ubifs.xattr(number, &name).expect("it can be read");
            xattrs.insert(String::from_utf8_lossy(&name).into_owned(), crc(&value));
        }
        let what = match inode.kind() {
            Some(EntryKind::Directory) => {
                for entry in ubifs.read_directory(number).expect("it can be read") {
                    pending.push((
                        entry.inode,
                        format!("{path}/{}", String::from_utf8_lossy(&entry.name)),
                    ));
                }
                format!("directory {} {}", inode.links, inode.size_bytes)
            }
            Some(EntryKind::File) => {
                let mut content = vec![0; usize::try_from(inode.size_bytes).expect("small")];
                ubifs
                    .read(&inode, 0, &mut content)
                    .unwrap_or_else(|error| panic!("{path}: {error}"));
                format!("file {} {} {:08x}", inode.links, content.len(), crc(&content))
            }
            other => format!("{other:?} {} {:08x}", inode.links, crc(&inode.data)),
        };
        lines.insert(path, format!("{what} {xattrs:?}"));
    }
    lines
}

#[derive(Clone, Debug)]
enum Kind {
    Directory,
    File(Vec<u8>),
    Link(Vec<u8>),
}

#[derive(Clone, Debug)]
struct File {
    kind: Kind,
    xattrs: BTreeMap<String, Vec<u8>>,
}

/// The expected files.
#[derive(Clone, Debug)]
pub struct Model {
    names: BTreeMap<String, u32>,
    files: BTreeMap<u32, File>,
    /// The file whose content the last operation changed.
    pub written: Option<String>,
}

/// Mix of operations in the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Small files, many names.
    Names,
    /// Content, until the medium is full.
    Content,
}

impl Model {
    /// Model of an empty file system.
    pub fn fresh() -> Self {
        Self::at(ROOT_INODE)
    }

    /// Model of an empty directory.
    pub fn at(directory: InodeNumber) -> Self {
        let root = File {
            kind: Kind::Directory,
            xattrs: BTreeMap::new(),
        };
        Self {
            names: BTreeMap::from([(String::new(), directory.0)]),
            files: BTreeMap::from([(directory.0, root)]),
            written: None,
        }
    }

    fn links(&self, inode: u32) -> usize {
        self.names.values().filter(|other| **other == inode).count()
    }

    fn below(&self, path: &str) -> Vec<&String> {
        let prefix = format!("{path}/");
        let all = self.names.keys().filter(|name| name.starts_with(&prefix));
        all.filter(|name| !name[prefix.len()..].contains('/')).collect()
    }

    /// The listing that [`lines_of`] should return.
    pub fn lines(&self) -> Lines {
        let line = |path: &String, inode: &u32| {
            let file = &self.files[inode];
            let links = self.links(*inode);
            let what = match &file.kind {
                Kind::Directory => {
                    let below = self.below(path);
                    let is_directory =
                        |path: &&String| matches!(self.files[&self.names[*path]].kind, Kind::Directory);
                    let entry = |name: &&String| (57 + name.len() - path.len() - 1).next_multiple_of(8);
                    let size: usize = below.iter().map(entry).sum();
                    let links = 2 + below.iter().copied().filter(|path| is_directory(path)).count();
                    format!("directory {links} {}", 160 + size)
                }
                Kind::File(content) => format!("file {links} {} {:08x}", content.len(), crc(content)),
                Kind::Link(target) => format!("{:?} {links} {:08x}", Some(EntryKind::Symlink), crc(target)),
            };
            let xattrs: BTreeMap<_, _> = file
                .xattrs
                .iter()
                .map(|(name, value)| (name, crc(value)))
                .collect();
            format!("{what} {xattrs:?}")
        };
        self.names
            .iter()
            .map(|(path, inode)| (path.clone(), line(path, inode)))
            .collect()
    }

    fn pick(&self, prng: &mut Prng, wanted: impl Fn(&File) -> bool) -> Option<(String, u32)> {
        let all: Vec<_> = self
            .names
            .iter()
            .filter(|(_, inode)| wanted(&self.files[inode]))
            .collect();
        if all.is_empty() {
            return None;
        }
        let (path, inode) = prng.pick(&all);
        Some(((*path).clone(), **inode))
    }

    fn new_name(&self, prng: &mut Prng) -> (String, u32, String) {
        let (directory, inode) = self
            .pick(prng, |file| matches!(file.kind, Kind::Directory))
            .expect("the root");
        let name = format!(
            "{}{}",
            prng.pick(&["f", "name-", "a-much-longer-name-"]),
            prng.below(500)
        );
        (directory, inode, name)
    }

    /// Applies one operation to both. `Ok(false)`: there was no file to apply it to.
    pub fn step(&mut self, writer: &mut Writer, prng: &mut Prng, weight: Weight) -> Result<bool, WriteError> {
        self.written = None;
        let now = Time {
            seconds: 1_000_000_000,
            nanoseconds: 5,
        };
        let dice = match weight {
            Weight::Names => prng.below(100),
            Weight::Content => 20 + prng.below(45),
        };
        match dice {
            0..25 => {
                let (directory, parent, name) = self.new_name(prng);
                let path = format!("{directory}/{name}");
                if self.names.contains_key(&path) {
                    return Ok(false);
                }
                let (mode, data, kind) = match prng.below(8) {
                    0 | 1 => (0o040_755, Vec::new(), Kind::Directory),
                    2 => (0o120_777, b"to/where".to_vec(), Kind::Link(b"to/where".to_vec())),
                    _ => (0o100_644, Vec::new(), Kind::File(Vec::new())),
                };
                let file = NewFile {
                    mode,
                    user: 1,
                    group: 2,
                    data,
                };
                let inode = writer.create(InodeNumber(parent), name.as_bytes(), &file, now)?;
                self.names.insert(path, inode.0);
                let xattrs = BTreeMap::new();
                self.files.insert(inode.0, File { kind, xattrs });
            }
            25..50 => {
                let Some((path, inode)) = self.pick(prng, |file| matches!(file.kind, Kind::File(_))) else {
                    return Ok(false);
                };
                let Some(Kind::File(content)) = self.files.get_mut(&inode).map(|file| &mut file.kind) else {
                    return Ok(false);
                };
                let at = prng.below_usize(content.len() + 3000);
                let bytes = 1 + prng.below_usize(9000);
                let data = match prng.chance(50) {
                    true => prng.bytes(bytes),
                    false => vec![0x61; bytes],
                };
                self.written = Some(path);
                let (inode, offset) = (InodeNumber(inode), u64::try_from(at).expect("small"));
                let written = match prng.chance(30) {
                    true => writer.write_synced(inode, offset, &data, now)?,
                    false => writer.write(inode, offset, &data, now)?,
                };
                content.resize(content.len().max(at + written), 0);
                content[at..at + written].copy_from_slice(&data[..written]);
            }
            50..58 => {
                let Some((path, inode)) = self.pick(prng, |file| matches!(file.kind, Kind::File(_))) else {
                    return Ok(false);
                };
                let Some(Kind::File(content)) = self.files.get_mut(&inode).map(|file| &mut file.kind) else {
                    return Ok(false);
                };
                let size = prng.below_usize(content.len() + 2000);
                let _ = path;
                writer.truncate(InodeNumber(inode), u64::try_from(size).expect("small"), now)?;
                content.resize(size, 0);
            }
            58..70 => {
                let Some((path, inode)) = self.pick(prng, |file| !matches!(file.kind, Kind::Directory))
                else {
                    return Ok(false);
                };
                let (parent, name) = self.split(&path);
                writer.unlink(parent, name.as_bytes(), now)?;
                self.drop_name(&path, inode);
            }
            70..74 => {
                let Some((path, inode)) = self.pick(prng, |file| matches!(file.kind, Kind::Directory)) else {
                    return Ok(false);
                };
                if path.is_empty() || !self.below(&path).is_empty() {
                    return Ok(false);
                }
                let (parent, name) = self.split(&path);
                writer.remove_directory(parent, name.as_bytes(), now)?;
                self.drop_name(&path, inode);
            }
            74..80 => {
                let Some((_, inode)) = self.pick(prng, |file| !matches!(file.kind, Kind::Directory)) else {
                    return Ok(false);
                };
                let (directory, parent, name) = self.new_name(prng);
                let path = format!("{directory}/{name}");
                if self.names.contains_key(&path) {
                    return Ok(false);
                }
                writer.link(InodeNumber(inode), InodeNumber(parent), name.as_bytes(), now)?;
                self.names.insert(path, inode);
            }
            80..90 => return self.rename(writer, prng, now),
            _ => {
                let Some((_, inode)) = self.pick(prng, |_| true) else {
                    return Ok(false);
                };
                // Linux allows `trusted.` on links, but not `user.`.
                let name = format!("trusted.{}", prng.below(4));
                let file = self.files.get_mut(&inode).expect("picked");
                if file.xattrs.contains_key(&name) && prng.chance(40) {
                    writer.remove_xattr(InodeNumber(inode), name.as_bytes(), now)?;
                    file.xattrs.remove(&name);
                } else {
                    let length = prng.below_usize(600);
                    let value = prng.bytes(length);
                    writer.set_xattr(InodeNumber(inode), name.as_bytes(), &value, now)?;
                    file.xattrs.insert(name, value);
                }
            }
        }
        Ok(true)
    }

    fn rename(&mut self, writer: &mut Writer, prng: &mut Prng, now: Time) -> Result<bool, WriteError> {
        let Some((old, inode)) = self.pick(prng, |_| true) else {
            return Ok(false);
        };
        let (directory, parent, name) = self.new_name(prng);
        let mut new = format!("{directory}/{name}");
        if prng.chance(30) {
            let Some((other, _)) = self.pick(prng, |_| true) else {
                return Ok(false);
            };
            new = other;
        }
        let is_directory = matches!(self.files[&inode].kind, Kind::Directory);
        let inside = new == old || new.starts_with(&format!("{old}/"));
        if old.is_empty() || new.is_empty() || inside || self.names.get(&new) == Some(&inode) {
            return Ok(false);
        }
        let replaced = self.names.get(&new).copied();
        if let Some(replaced) = replaced {
            let other = matches!(self.files[&replaced].kind, Kind::Directory);
            if other != is_directory || !self.below(&new).is_empty() {
                return Ok(false);
            }
        }
        let _ = (parent, name);
        let (from, to) = (self.split(&old), self.split(&new));
        writer.rename((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()), now)?;
        if let Some(replaced) = replaced {
            self.drop_name(&new, replaced);
        }
        let prefix = format!("{old}/");
        let moved: Vec<(String, u32)> = self
            .names
            .iter()
            .filter(|(path, _)| **path == old || path.starts_with(&prefix))
            .map(|(path, inode)| (path.clone(), *inode))
            .collect();
        for (path, inode) in moved {
            self.names.remove(&path);
            self.names.insert(format!("{new}{}", &path[old.len()..]), inode);
        }
        Ok(true)
    }

    fn split(&self, path: &str) -> (InodeNumber, String) {
        let (directory, name) = path.rsplit_once('/').expect("a path");
        (InodeNumber(self.names[directory]), name.to_owned())
    }

    fn drop_name(&mut self, path: &str, inode: u32) {
        self.names.remove(path);
        if self.links(inode) == 0 {
            self.files.remove(&inode);
        }
    }
}
