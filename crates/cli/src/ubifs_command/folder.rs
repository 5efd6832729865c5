//! A file system copied to a folder of the host.
//!
//! Everything is made under a name that was free, and nothing is followed: an image can't lead out of the folder. One thread
//! goes through the tree and makes what has no content; files are filled by others. Hard links come when the files are
//! there, and directories get their modes and times last, for what is made in them changes those.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use ubifs::Ubifs;
use ubifs::format::{EntryKind, InodeNumber};

use super::Losses;
use super::content::{RunReader, runs};
use super::extract::Progress;
use super::walk::{Named, Visited, shown, walk};
use crate::output::with_causes;

/// Files that wait to be filled, at most.
const QUEUE: usize = 256;
/// Threads that fill files, at most.
const FILLERS_MAX: usize = 8;

/// Copies `start` and all below it to `root`, which must not exist or be an empty folder.
pub fn extract(
    ubifs: &Ubifs,
    start: Named,
    root: &Path,
    losses: &mut Losses,
    progress: &mut Progress,
) -> Result<()> {
    let is_free = match fs::read_dir(root) {
        Ok(mut entries) => entries.next().is_none() && fs::remove_dir(root).is_ok(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    if !is_free {
        bail!(
            "{}: it exists and is not an empty folder; say another one",
            root.display()
        );
    }
    let maker = Maker {
        ubifs,
        root,
        is_root: rustix::process::geteuid().is_root(),
        untold: Mutex::default(),
    };
    let mut later = Later::default();
    let fillers = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(FILLERS_MAX);
    let (queue, files) = sync_channel::<Visited>(QUEUE);
    let files = Mutex::new(files);
    thread::scope(|scope| {
        for _ in 0..fillers {
            scope.spawn(|| maker.fill_files(&files));
        }
        // Moved here, so that the fillers end with it.
        let queue = queue;
        walk(ubifs, start, losses, &mut |visited, losses| {
            progress.count(visited);
            maker.make(visited, &queue, &mut later).or_else(|error| {
                if visited.path.is_empty() {
                    return Err(error);
                }
                losses.tell(&visited.path, &with_causes(&error));
                Ok(())
            })
        })
    })?;
    maker.finish(&later);
    maker.tell(losses);
    Ok(())
}

/// What is to be done when all files are there.
#[derive(Default)]
struct Later {
    /// Files with several names, and the first one.
    first_names: HashMap<InodeNumber, PathBuf>,
    /// The other names: the first one, and the path in the image.
    links: Vec<(PathBuf, Vec<u8>)>,
    directories: Vec<Visited>,
}

struct Maker<'a> {
    ubifs: &'a Ubifs,
    root: &'a Path,
    is_root: bool,
    /// Losses of all threads: path and what.
    untold: Mutex<Vec<(Vec<u8>, String)>>,
}

impl Maker<'_> {
    fn target(&self, path: &[u8]) -> PathBuf {
        match path.is_empty() {
            true => self.root.to_owned(),
            false => self.root.join(OsStr::from_bytes(path)),
        }
    }

    fn lose(&self, path: &[u8], what: &dyn std::fmt::Display) {
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        untold.push((path.to_vec(), what.to_string()));
    }

    /// In the order of paths, whatever order threads came by them.
    fn tell(&self, losses: &mut Losses) {
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        untold.sort();
        for (path, what) in untold.drain(..) {
            losses.tell(&path, &what);
        }
    }

    fn make(&self, visited: &Visited, files: &SyncSender<Visited>, later: &mut Later) -> Result<()> {
        let target = self.target(&visited.path);
        let inode = &visited.inode;
        if inode.links > 1 && inode.kind() != Some(EntryKind::Directory) {
            if let Some(first) = later.first_names.get(&visited.number) {
                later.links.push((first.clone(), visited.path.clone()));
                return Ok(());
            }
            later.first_names.insert(visited.number, target.clone());
        }
        match inode.kind() {
            Some(EntryKind::File) => {
                let is_taken = files.send(visited.clone()).is_ok();
                return is_taken
                    .then_some(())
                    .context("the threads that fill files have ended");
            }
            Some(EntryKind::Directory) => fs::create_dir(&target).context("the folder can't be made")?,
            Some(EntryKind::Symlink) => {
                symlink(OsStr::from_bytes(&self.ubifs.read_link(inode)?), &target)
                    .context("the symbolic link can't be made")?;
            }
            Some(EntryKind::Fifo) => make_node(&target, FileType::Fifo, 0)?,
            Some(EntryKind::Socket) => make_node(&target, FileType::Socket, 0)?,
            Some(kind @ (EntryKind::BlockDevice | EntryKind::CharacterDevice)) => {
                let (major, minor) = inode.device().context("the device has no number")?;
                let number = rustix::fs::makedev(major, minor);
                let kind = match kind {
                    EntryKind::BlockDevice => FileType::BlockDevice,
                    _ => FileType::CharacterDevice,
                };
                make_node(&target, kind, number)?;
            }
            None => bail!("mode {:o} is no kind of file", inode.mode),
        }
        self.set_xattrs(visited, &target);
        if inode.kind() == Some(EntryKind::Directory) {
            later.directories.push(visited.clone());
            return Ok(());
        }
        set_attributes(&target, visited, self.is_root)
    }

    fn finish(&self, later: &Later) {
        for (first, path) in &later.links {
            if let Err(error) = fs::hard_link(first, self.target(path)) {
                self.lose(path, &format!("the hard link can't be made: {error}"));
            }
        }
        for visited in later.directories.iter().rev() {
            if let Err(error) = set_attributes(&self.target(&visited.path), visited, self.is_root) {
                self.lose(&visited.path, &with_causes(&error));
            }
        }
    }

    fn fill_files(&self, files: &Mutex<Receiver<Visited>>) {
        loop {
            let next = files.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(visited) = next else { return };
            if let Err(error) = self.fill(&visited) {
                self.lose(&visited.path, &with_causes(&error));
            }
        }
    }

    /// Blocks that the file has are written; the others stay holes.
    fn fill(&self, visited: &Visited) -> Result<()> {
        self.ubifs.check_key(&visited.inode)?;
        let target = self.target(&visited.path);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&target)
            .context("the file can't be made")?;
        let mut lost = Vec::new();
        let runs = runs(self.ubifs, &visited.inode, &mut lost);
        let end = runs.last().map_or(0, |run| run.offset + run.bytes);
        if end < visited.inode.size_bytes {
            file.set_len(visited.inode.size_bytes)
                .context("the file can't have its size")?;
        }
        let mut reader = RunReader::new(self.ubifs, &visited.inode, &runs);
        while let Some((offset, piece)) = reader.next_piece() {
            file.write_all_at(piece, offset)
                .context("the file can't be written")?;
        }
        for finding in lost.iter().chain(&reader.lost) {
            self.lose(&visited.path, finding);
        }
        self.set_xattrs(visited, &target);
        set_attributes(&target, visited, self.is_root)
    }

    fn set_xattrs(&self, visited: &Visited, target: &Path) {
        let mut lost = Vec::new();
        for xattr in self.ubifs.xattrs_lossy(visited.number, &mut lost) {
            let name = OsStr::from_bytes(&xattr.name);
            if let Err(error) = rustix::fs::lsetxattr(target, name, &xattr.value, XattrFlags::empty()) {
                let name = shown(&xattr.name);
                self.lose(
                    &visited.path,
                    &format!("extended attribute {name} can't be set: {error}"),
                );
            }
        }
        for finding in &lost {
            self.lose(&visited.path, finding);
        }
    }
}

fn make_node(target: &Path, kind: FileType, number: u64) -> Result<()> {
    rustix::fs::mknodat(CWD, target, kind, Mode::RUSR | Mode::WUSR, number).context("the node can't be made")
}

fn set_attributes(target: &Path, visited: &Visited, is_root: bool) -> Result<()> {
    let inode = &visited.inode;
    if is_root {
        lchown(target, Some(inode.user), Some(inode.group)).context("the owner can't be set")?;
    }
    if inode.kind() != Some(EntryKind::Symlink) {
        let mode = Mode::from_raw_mode(inode.mode & 0o7777);
        rustix::fs::chmod(target, mode).context("the mode can't be set")?;
    }
    let time = |seconds: u64, nanoseconds: u32| Timespec {
        tv_sec: seconds.cast_signed(),
        tv_nsec: i64::from(nanoseconds.min(999_999_999)),
    };
    let times = Timestamps {
        last_access: time(inode.accessed_seconds, inode.accessed_nanoseconds),
        last_modification: time(inode.modified_seconds, inode.modified_nanoseconds),
    };
    rustix::fs::utimensat(CWD, target, &times, AtFlags::SYMLINK_NOFOLLOW).context("the times can't be set")
}
