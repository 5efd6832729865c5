//! Makes file systems with a history: files written, overwritten, truncated, renamed, linked, removed; synced, committed,
//! unmounted or cut.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use ubi::Volume;
use ubifs::format::{Compression, InodeNumber, ROOT_INODE};
use ubifs::mkfs::{Attributes, Content, LebCount, MkfsOptions, Time, Tree, TreeFile, VolumeSink, make};
use ubifs::{Compressor, NewFile, OpenOptions, WriteError, Writer};

use super::volume::{LEB_BYTES, MemoryVolume, PAGE_BYTES};

/// End of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Unmounted,
    Synced,
    Cut,
}

/// A file that was removed.
#[derive(Clone, Debug)]
pub struct Removed {
    pub inode: InodeNumber,
    pub name: Vec<u8>,
    pub content: Vec<u8>,
}

/// A generated volume.
pub struct Made {
    pub raw: Vec<u8>,
    pub end: End,
    pub removed: Vec<Removed>,
}

/// Partly compressible content.
fn content(random: &mut Rng, bytes: usize) -> Vec<u8> {
    let is_noise = random.bool();
    (0..bytes)
        .map(|_| if is_noise { random.u8(..) } else { random.u8(..4) })
        .collect()
}

fn attributes(random: &mut Rng) -> Attributes {
    let time = |random: &mut Rng| Time {
        seconds: random.i64(0..2_000_000_000),
        nanoseconds: random.u32(..1_000_000_000),
    };
    let mut xattrs = BTreeMap::new();
    for number in 0..random.usize(..3) {
        let bytes = random.usize(1..60);
        xattrs.insert(format!("user.note-{number}").into_bytes(), content(random, bytes));
    }
    Attributes {
        permissions: random.u32(..0o1000) | 0o400,
        user: random.u32(..2000),
        group: random.u32(..2000),
        accessed: time(random),
        modified: time(random),
        changed: time(random),
        xattrs,
    }
}

fn base(random: &mut Rng) -> Tree {
    let mut tree = Tree::empty(attributes(random));
    let mut folders = vec![Tree::ROOT];
    for number in 0..random.usize(5..60) {
        let bytes = random.usize(..20_000);
        let what = match random.u8(..10) {
            0 => Content::Directory(BTreeMap::new()),
            1 => Content::Symlink(format!("target-{number}").into_bytes()),
            2 => Content::Fifo,
            3 => Content::Bytes(Vec::new()),
            _ => Content::Bytes(content(random, bytes)),
        };
        let is_folder = matches!(what, Content::Directory(_));
        let file = tree.add(TreeFile {
            attributes: attributes(random),
            content: what,
        });
        let folder = folders[random.usize(..folders.len())];
        assert!(tree.link(folder, format!("base-{number}").into_bytes(), file));
        if is_folder {
            folders.push(file);
        } else if random.u8(..8) == 0 {
            let other = folders[random.usize(..folders.len())];
            assert!(tree.link(other, format!("linked-{number}").into_bytes(), file));
        }
    }
    tree
}

/// A name with its inode.
#[derive(Clone)]
struct Known {
    folder: InodeNumber,
    name: Vec<u8>,
    inode: InodeNumber,
}

struct History {
    writer: Writer,
    folders: Vec<Known>,
    files: Vec<Known>,
    removed: Vec<Removed>,
    next: u32,
}

/// Makes a volume from a seed.
pub fn make_volume(seed: u64) -> Made {
    let mut random = Rng::with_seed(seed);
    let lebs = random.u32(60..110);
    let compression = [
        Compression::Lzo,
        Compression::Zlib,
        Compression::Zstd,
        Compression::None,
    ];
    let volume = Arc::new(MemoryVolume::new(lebs));
    let options = MkfsOptions {
        lebs: LebCount::Exactly(lebs),
        fanout: random.u32(4..9),
        compressor: Compressor::Only(compression[random.usize(..4)]),
        ..MkfsOptions::new(PAGE_BYTES, LEB_BYTES, lebs)
    };
    let tree = base(&mut random);
    let mut sink = VolumeSink::new(&*volume).expect("it takes writes");
    make(&tree, &options, &mut sink, &mut || {}).expect("it fits");
    sink.finish().expect("it takes writes");
    let end = [End::Unmounted, End::Synced, End::Cut][random.usize(..3)];
    let shared: Arc<dyn Volume> = Arc::<MemoryVolume>::clone(&volume);
    let writer = Writer::open(shared, OpenOptions::standard()).expect("it opens");
    let root = Known {
        folder: ROOT_INODE,
        name: Vec::new(),
        inode: ROOT_INODE,
    };
    let mut history = History {
        writer,
        folders: vec![root],
        files: Vec::new(),
        removed: Vec::new(),
        next: 0,
    };
    history.learn();
    for _ in 0..random.usize(..300) {
        match history.step(&mut random) {
            Ok(()) | Err(WriteError::NoSpace { .. }) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    match end {
        End::Unmounted => history.writer.close().expect("it unmounts"),
        End::Synced => history.writer.fsync().expect("it syncs"),
        End::Cut => {}
    }
    let raw = volume.raw();
    Made {
        raw,
        end,
        removed: history.removed,
    }
}

impl History {
    /// Learns the files of the base.
    fn learn(&mut self) {
        let mut pending = vec![ROOT_INODE];
        while let Some(folder) = pending.pop() {
            for entry in self.writer.read().read_directory(folder).expect("readable") {
                let known = Known {
                    folder,
                    name: entry.name,
                    inode: entry.inode,
                };
                if entry.kind == Some(ubifs::format::EntryKind::Directory) {
                    pending.push(entry.inode);
                    self.folders.push(known);
                } else if entry.kind == Some(ubifs::format::EntryKind::File) {
                    self.files.push(known);
                }
            }
        }
    }

    fn name(&mut self) -> Vec<u8> {
        self.next += 1;
        format!("new-{}", self.next).into_bytes()
    }

    fn step(&mut self, random: &mut Rng) -> Result<(), WriteError> {
        let now = Time {
            seconds: random.i64(0..2_000_000_000),
            nanoseconds: random.u32(..1_000_000_000),
        };
        let folder = self.folders[random.usize(..self.folders.len())].inode;
        let file = (!self.files.is_empty()).then(|| random.usize(..self.files.len()));
        match (random.u8(..24), file) {
            (0..=5, _) | (_, None) => self.create(folder, random, now),
            (6..=9, Some(at)) => {
                let inode = self.files[at].inode;
                let (offset, bytes) = (random.u64(..30_000), random.usize(1..12_000));
                self.writer
                    .write(inode, offset, &content(random, bytes), now)
                    .map(drop)
            }
            (10..=11, Some(at)) => self
                .writer
                .truncate(self.files[at].inode, random.u64(..25_000), now),
            (12..=13, Some(at)) => self.rename(at, folder, random, now),
            (14, Some(at)) => {
                let (name, inode) = (self.name(), self.files[at].inode);
                self.writer.link(inode, folder, &name, now)?;
                self.files.push(Known { folder, name, inode });
                Ok(())
            }
            (15..=18, Some(at)) => self.remove(at, now),
            (19, Some(at)) => {
                let bytes = random.usize(1..50);
                let value = content(random, bytes);
                self.writer
                    .set_xattr(self.files[at].inode, b"user.more", &value, now)
            }
            (20, Some(at)) => {
                let mode = random.u32(..0o1000);
                let change = move |inode: &mut ubifs::format::Inode| inode.mode = inode.mode & !0o777 | mode;
                self.writer.set_attributes(self.files[at].inode, &change)
            }
            (21, _) => self.remove_folder(random, now),
            (22, _) => self.writer.fsync(),
            _ if random.u8(..3) == 0 => self.writer.commit(),
            _ => self.writer.work(),
        }
    }

    fn create(&mut self, folder: InodeNumber, random: &mut Rng, now: Time) -> Result<(), WriteError> {
        let name = self.name();
        let (mode, data) = match random.u8(..8) {
            0 => (0o040_755, Vec::new()),
            1 => (0o120_777, b"somewhere/else".to_vec()),
            _ => (0o100_000 | random.u32(..0o1000), Vec::new()),
        };
        let new = NewFile {
            mode,
            user: random.u32(..2000),
            group: random.u32(..2000),
            data,
        };
        let inode = self.writer.create(folder, &name, &new, now)?;
        let known = Known { folder, name, inode };
        match mode >> 12 {
            0o04 => self.folders.push(known),
            0o10 => {
                self.files.push(known);
                let bytes = random.usize(..15_000);
                if bytes > 0 {
                    self.writer.write(inode, 0, &content(random, bytes), now)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn rename(
        &mut self,
        at: usize,
        folder: InodeNumber,
        random: &mut Rng,
        now: Time,
    ) -> Result<(), WriteError> {
        let from = self.files[at].clone();
        let target = self.files[random.usize(..self.files.len())].clone();
        let replaces = random.u8(..4) == 0 && target.inode != from.inode;
        let (to_folder, name) = match replaces {
            true => (target.folder, target.name),
            false => (folder, self.name()),
        };
        let (old, new) = ((from.folder, from.name.as_slice()), (to_folder, name.as_slice()));
        self.writer.rename(old, new, now)?;
        self.files
            .retain(|other| (other.folder, &other.name) != (to_folder, &name));
        let moved = |other: &&mut Known| (other.folder, &other.name) == (from.folder, &from.name);
        if let Some(known) = self.files.iter_mut().find(moved) {
            (known.folder, known.name) = (to_folder, name);
        }
        Ok(())
    }

    fn remove(&mut self, at: usize, now: Time) -> Result<(), WriteError> {
        let known = self.files[at].clone();
        let inode = self.writer.read().inode(known.inode)?;
        let mut content = vec![0; usize::try_from(inode.size_bytes).expect("small")];
        self.writer.read().read(&inode, 0, &mut content)?;
        self.writer.unlink(known.folder, &known.name, now)?;
        self.files.swap_remove(at);
        if inode.links == 1 {
            self.removed.push(Removed {
                inode: known.inode,
                name: known.name,
                content,
            });
        }
        Ok(())
    }

    fn remove_folder(&mut self, random: &mut Rng, now: Time) -> Result<(), WriteError> {
        let at = random.usize(..self.folders.len());
        let known = self.folders[at].clone();
        if at == 0 {
            return Ok(());
        }
        match self.writer.remove_directory(known.folder, &known.name, now) {
            Ok(()) => {
                self.folders.swap_remove(at);
                Ok(())
            }
            Err(WriteError::NotEmpty { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
