//! `tidegate ubifs extract` and `cat`.
//!
//! Everything is made under a name that was free, and nothing is followed: an image can't lead out of the folder. Directories
//! get their modes and times last, for what is made in them changes those.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use ubifs::Ubifs;
use ubifs::format::{EntryKind, InodeNumber};

use super::Losses;
use super::source::SourceArguments;
use super::walk::{Visited, resolve, walk};
use crate::Finding;
use crate::output::{Printed, print_bytes};

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes of a block.
const BLOCK: u64 = 4096;

/// Arguments of `tidegate ubifs extract`.
#[derive(Args, Debug)]
#[command(
    after_help = "Owners, devices and extended attributes other than user.* need root; without it owners stay the \
                        user's and the rest is told and left out. What is damaged is told, a line each; the exit code is 1 then."
)]
pub struct ExtractArguments {
    /// The file system
    #[command(flatten)]
    pub source: SourceArguments,
    /// What to copy: a file, or a directory with all below it
    #[arg(default_value = "/")]
    pub path: String,
    /// The folder that it becomes; it must not exist, or be empty
    #[arg(long, short = 'o', value_name = "FOLDER")]
    pub output: PathBuf,
}

/// Arguments of `tidegate ubifs cat`.
#[derive(Args, Debug)]
pub struct CatArguments {
    /// The file system
    #[command(flatten)]
    pub source: SourceArguments,
    /// The file
    pub path: String,
}

/// Runs `cat`. Blocks that are lost are zeros.
pub fn cat(arguments: &CatArguments) -> Result<Finding> {
    let mut losses = Losses::default();
    let ubifs = arguments.source.open(&mut losses)?;
    let named = resolve(&ubifs, &arguments.path)?;
    let mut lost = Vec::new();
    let inode = ubifs.inode_lossy(named.inode, named.kind, &mut lost);
    for finding in lost.drain(..) {
        losses.tell(arguments.path.as_bytes(), &finding);
    }
    let Some(inode) = inode else {
        bail!("{}: without its inode it can't be read", arguments.path)
    };
    if inode.kind() != Some(EntryKind::File) {
        bail!("{}: it is no regular file", arguments.path);
    }
    let (mut piece, mut at) = (vec![0; PIECE_BYTES], 0);
    while at < inode.size_bytes {
        let bytes = ubifs.read_lossy(&inode, at, &mut piece, &mut lost);
        for finding in lost.drain(..) {
            losses.tell(arguments.path.as_bytes(), &finding);
        }
        if bytes == 0 || print_bytes(&piece[..bytes])? == Printed::Closed {
            break;
        }
        at += u64::try_from(bytes)?;
    }
    Ok(losses.result())
}

/// Runs `extract`.
pub fn run(arguments: &ExtractArguments) -> Result<Finding> {
    let mut losses = Losses::default();
    let ubifs = arguments.source.open(&mut losses)?;
    let start = resolve(&ubifs, &arguments.path)?;
    let root = &arguments.output;
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
    let mut extraction = Extraction {
        ubifs: &ubifs,
        root,
        is_root: rustix::process::geteuid().is_root(),
        made: HashMap::new(),
        directories: Vec::new(),
    };
    walk(&ubifs, start, &mut losses, &mut |visited, losses| {
        if let Err(error) = extraction.make(visited, losses) {
            if visited.path.is_empty() {
                return Err(error);
            }
            losses.tell(&visited.path, &crate::output::with_causes(&error));
        }
        Ok(())
    })?;
    for visited in extraction.directories.iter().rev() {
        let target = extraction.target(visited);
        if let Err(error) = set_attributes(&target, visited, extraction.is_root) {
            losses.tell(&visited.path, &error);
        }
    }
    Ok(losses.result())
}

struct Extraction<'a> {
    ubifs: &'a Ubifs,
    root: &'a Path,
    is_root: bool,
    /// Files with several names, and the first one.
    made: HashMap<InodeNumber, PathBuf>,
    directories: Vec<Visited>,
}

impl Extraction<'_> {
    fn target(&self, visited: &Visited) -> PathBuf {
        match visited.path.is_empty() {
            true => self.root.to_owned(),
            false => self.root.join(OsStr::from_bytes(&visited.path)),
        }
    }

    fn make(&mut self, visited: &Visited, losses: &mut Losses) -> Result<()> {
        let target = self.target(visited);
        if let Some(first) = self.made.get(&visited.number) {
            return fs::hard_link(first, &target).context("the hard link can't be made");
        }
        let inode = &visited.inode;
        match inode.kind() {
            Some(EntryKind::Directory) => fs::create_dir(&target).context("the folder can't be made")?,
            Some(EntryKind::File) => self.copy(visited, &target, losses)?,
            Some(EntryKind::Symlink) => {
                symlink(OsStr::from_bytes(&inode.data), &target)
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
        self.set_xattrs(visited, &target, losses);
        if inode.kind() == Some(EntryKind::Directory) {
            self.directories.push(Visited {
                path: visited.path.clone(),
                number: visited.number,
                inode: inode.clone(),
            });
            return Ok(());
        }
        if inode.links > 1 {
            self.made.insert(visited.number, target.clone());
        }
        set_attributes(&target, visited, self.is_root)
    }

    /// Blocks that the file has are written; the others stay holes.
    fn copy(&self, visited: &Visited, target: &Path, losses: &mut Losses) -> Result<()> {
        let file: File = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(target)
            .context("the file can't be made")?;
        file.set_len(visited.inode.size_bytes)
            .context("the file can't have its size")?;
        let mut lost = Vec::new();
        let blocks = self.ubifs.blocks_lossy(visited.number, &mut lost);
        let mut piece = vec![0; PIECE_BYTES];
        let mut rest = blocks.as_slice();
        while let Some(first) = rest.first() {
            // Blocks that follow each other, a piece at most.
            let count = (*first..)
                .zip(rest)
                .take(PIECE_BYTES / 4096)
                .take_while(|(n, block)| n == *block)
                .count();
            let at = u64::from(*first) * BLOCK;
            let bytes = self
                .ubifs
                .read_lossy(&visited.inode, at, &mut piece[..count * 4096], &mut lost);
            file.write_all_at(&piece[..bytes], at)
                .context("the file can't be written")?;
            rest = &rest[count..];
        }
        for finding in &lost {
            losses.tell(&visited.path, finding);
        }
        Ok(())
    }

    fn set_xattrs(&self, visited: &Visited, target: &Path, losses: &mut Losses) {
        let mut lost = Vec::new();
        for xattr in self.ubifs.xattrs_lossy(visited.number, &mut lost) {
            let name = OsStr::from_bytes(&xattr.name);
            if let Err(error) = rustix::fs::lsetxattr(target, name, &xattr.value, XattrFlags::empty()) {
                let what = format!(
                    "extended attribute {} can't be set: {error}",
                    super::walk::shown(&xattr.name)
                );
                losses.tell(&visited.path, &what);
            }
        }
        for finding in &lost {
            losses.tell(&visited.path, finding);
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
