//! Extracts a file system to a folder of the host.
//!
//! An image can't write outside the folder: every file is created with a free name below a descriptor of a folder created
//! here, and no symbolic link is followed. Until the end the folder is accessible to its owner only, so no other user sees
//! the files before they have their modes. Unless [`Rules::Preserve`] is given, nothing is created that gives rights to
//! others: no devices, no setuid and setgid bits, no owners, no extended attributes but `user.*`.
//!
//! One thread walks the tree and creates everything without content; a pool of threads fills the files. Hard links are
//! created once the files exist. Directories get their attributes last, because creating entries changes their times.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use results::shown;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use ubifs::format::{EntryKind, InodeNumber};
use ubifs::{Finding, Ubifs};

use crate::attributes::Made;
use crate::budget::Budget;
use crate::content::{Run, RunReader, runs};
use crate::error::{Context, Result, refused};
use crate::folder_tree::{FolderNumber, FolderTree, open_folder};
use crate::losses::Losses;
use crate::progress::Progress;
use crate::queue::{Close, Queue, Taker};
use crate::walk::{Named, Next, Visited, walk};

/// Maximum number of queued files. Each holds a descriptor of its folder.
const QUEUE: usize = 256;
/// Maximum number of threads that fill files.
const FILLERS_MAX: usize = 8;

/// The attributes that an extraction keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// Those that give no rights to others.
    Harmless,
    /// All attributes.
    Preserve,
    /// Those that ubi_reader keeps: devices and times, as far as this user may, the others on request.
    UbiReader {
        /// Modes and owners as well.
        permissions: bool,
        /// Extended attributes as well.
        xattrs: bool,
        /// Mask of the modes of new files.
        umask: u32,
    },
}

/// Copies `start` and everything below it to `root`, which must not exist or be an empty folder.
pub fn extract(
    ubifs: &Ubifs,
    start: Named,
    root: &Path,
    rules: Rules,
    budget: &Budget,
    losses: &mut Losses,
    progress: &mut Progress,
) -> Result<()> {
    let name = root.file_name().with_context(|| in_use(root))?;
    let parent = root.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let outside = rustix::fs::openat(
        CWD,
        parent,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .with_context(|| format!("{} can't be opened", parent.display()))?;
    remove_empty(outside.as_fd(), name, root)?;
    extract_in(ubifs, start, (outside, name), rules, budget, losses, progress)
}

fn in_use(root: &Path) -> String {
    format!(
        "{}: it exists and is not an empty folder; say another one",
        root.display()
    )
}

/// Removes an empty folder in the place of a new one.
pub fn remove_empty(outside: BorrowedFd<'_>, name: &OsStr, root: &Path) -> Result<()> {
    match rustix::fs::unlinkat(outside, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => refused(in_use(root)),
        Err(error) => Err(error).with_context(|| format!("{} can't be made", root.display())),
    }
}

/// As [`extract`], to a new file or folder in an open folder: its descriptor and the name there.
pub fn extract_in(
    ubifs: &Ubifs,
    start: Named,
    (outside, name): (OwnedFd, &OsStr),
    rules: Rules,
    budget: &Budget,
    losses: &mut Losses,
    progress: &mut Progress,
) -> Result<()> {
    let maker = Maker {
        ubifs,
        top_name: name,
        rules,
        budget,
        untold: Mutex::default(),
        filled: Mutex::default(),
    };
    let mut state = State {
        open: vec![Arc::new(OpenFolder {
            descriptor: outside,
            number: FolderNumber::OUTSIDE,
        })],
        tree: FolderTree::default(),
        first_names: HashMap::new(),
        links: Vec::new(),
        foreign_owners: 0,
    };
    let fillers = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(FILLERS_MAX);
    let queue = Queue::<Job>::new(QUEUE);
    thread::scope(|scope| {
        for _ in 0..fillers {
            let files = queue.taker();
            let maker = &maker;
            scope.spawn(move || maker.fill_files(&files));
        }
        // The threads end when the queue is closed.
        let _close = Close(&queue);
        walk(ubifs, start, losses, &mut |visited, losses| {
            if budget.is_stopped() {
                return Ok(Next::Stop);
            }
            if !budget.take_file() {
                losses.leave_out(&visited.path, &budget.too_many_files());
                return Ok(Next::Stop);
            }
            progress.visit(visited);
            match maker.make(visited, &queue, &mut state) {
                Ok(Outcome::Written(next)) => {
                    progress.count(visited.inode.kind(), 0);
                    Ok(next)
                }
                Ok(Outcome::Queued) => Ok(Next::Past),
                Ok(Outcome::LeftOut) => {
                    state.first_names.remove(&visited.number);
                    Ok(Next::Past)
                }
                Err(error) if visited.path.is_empty() => Err(error),
                Err(error) => {
                    // Its next name must not become a link to a name that is not there.
                    state.first_names.remove(&visited.number);
                    losses.tell_error(&visited.path, &error);
                    Ok(Next::Past)
                }
            }
        })
    })?;
    maker.finish(&mut state, progress);
    let filled = maker.filled.lock().unwrap_or_else(PoisonError::into_inner);
    progress.files += filled.files;
    progress.bytes = progress.bytes.saturating_add(filled.bytes);
    drop(filled);
    maker.tell(losses);
    if state.foreign_owners > 0 {
        losses.note(&format!(
            "{} of the files belong to others in the image, and to you here; --preserve keeps owners",
            state.foreign_owners
        ));
    }
    Ok(())
}

/// A folder that is still being filled.
struct OpenFolder {
    descriptor: OwnedFd,
    number: FolderNumber,
}

/// A file to be filled.
struct Job {
    visited: Visited,
    parent: Arc<OpenFolder>,
}

/// State of the thread that walks the tree.
struct State {
    /// The open folders on the current path, outermost first.
    open: Vec<Arc<OpenFolder>>,
    tree: FolderTree,
    /// First name of each file. Kept for all files, because the link count of an image can't be trusted.
    first_names: HashMap<InodeNumber, (FolderNumber, Vec<u8>)>,
    /// Further names of files.
    links: Vec<Link>,
    /// Number of files that root does not own in the image, counted if root extracts them without their owners.
    foreign_owners: u64,
}

/// A further name of a file.
struct Link {
    inode: InodeNumber,
    folder: FolderNumber,
    name: Vec<u8>,
    kind: EntryKind,
    /// Size of the file, bytes.
    bytes: u64,
}

/// Result of a visit.
enum Outcome {
    /// The file is there.
    Written(Next),
    /// A thread fills it, or it becomes a link at the end.
    Queued,
    /// It is left out, which is no loss.
    LeftOut,
}

/// Files that the threads have filled.
#[derive(Default)]
struct Filled {
    files: u64,
    bytes: u64,
}

/// A loss: path, description, and whether the medium is the reason.
type Untold = (Vec<u8>, String, bool);

struct Maker<'a> {
    ubifs: &'a Ubifs,
    /// Name of the copy of `start`.
    top_name: &'a OsStr,
    rules: Rules,
    budget: &'a Budget,
    /// Losses found by all threads.
    untold: Mutex<Vec<Untold>>,
    filled: Mutex<Filled>,
}

impl Maker<'_> {
    /// Notes damage of the medium.
    fn lose(&self, path: &[u8], what: &dyn std::fmt::Display) {
        self.note(path, what.to_string(), true);
    }

    /// Notes something that is whole and left out.
    fn leave_out(&self, path: &[u8], what: String) {
        self.note(path, what, false);
    }

    fn note(&self, path: &[u8], what: String, is_damage: bool) {
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        untold.push((path.to_vec(), what, is_damage));
    }

    /// Prints the losses in the order of paths, independent of the order of threads.
    fn tell(&self, losses: &mut Losses) {
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        untold.sort();
        for (path, what, is_damage) in untold.drain(..) {
            match is_damage {
                true => losses.tell(&path, &what),
                false => losses.leave_out(&path, &what),
            }
        }
    }

    fn name<'b>(&'b self, visited: &'b Visited) -> &'b OsStr {
        match visited.path.is_empty() {
            true => self.top_name,
            false => OsStr::from_bytes(visited.name()),
        }
    }

    fn make(&self, visited: &Visited, files: &Queue<Job>, state: &mut State) -> Result<Outcome> {
        state.open.truncate(visited.depth + 1);
        let parent = state.open.last().context("the walk left the folder")?.clone();
        let (folder, name) = (&parent.descriptor, self.name(visited));
        let inode = &visited.inode;
        let kind = inode
            .kind()
            .with_context(|| format!("mode {:o} is no kind of file", inode.mode))?;
        if kind != EntryKind::Directory {
            let own = (parent.number, visited.name().to_vec());
            if state.first_names.contains_key(&visited.number) {
                state.links.push(Link {
                    inode: visited.number,
                    folder: own.0,
                    name: own.1,
                    kind,
                    bytes: inode.size_bytes,
                });
                return Ok(Outcome::Queued);
            }
            state.first_names.insert(visited.number, own);
        }
        let is_foreign = (inode.user, inode.group) != (0, 0);
        if is_foreign && self.rules == Rules::Harmless && rustix::process::geteuid().is_root() {
            state.foreign_owners += 1;
        }
        match kind {
            EntryKind::Directory => {
                rustix::fs::mkdirat(folder, name, Mode::RWXU).context("the folder can't be made")?;
                let descriptor =
                    open_folder(folder.as_fd(), name).context("the folder that was made can't be opened")?;
                let number = state.tree.add(parent.number, visited);
                state.open.push(Arc::new(OpenFolder { descriptor, number }));
                return Ok(Outcome::Written(Next::Below));
            }
            EntryKind::File => {
                let (visited, parent) = (visited.clone(), Arc::clone(&parent));
                let is_taken = files.put(visited.inode.size_bytes, Job { visited, parent });
                return is_taken
                    .then_some(Outcome::Queued)
                    .context("the threads that fill files have ended");
            }
            EntryKind::Symlink => {
                let target = self.ubifs.read_link(inode)?;
                rustix::fs::symlinkat(OsStr::from_bytes(&target), folder, name)
                    .context("the symbolic link can't be made")?;
            }
            EntryKind::Fifo => make_node(folder.as_fd(), name, FileType::Fifo, 0)?,
            EntryKind::Socket => make_node(folder.as_fd(), name, FileType::Socket, 0)?,
            EntryKind::BlockDevice | EntryKind::CharacterDevice
                if matches!(self.rules, Rules::UbiReader { .. }) && !rustix::process::geteuid().is_root() =>
            {
                return Ok(Outcome::LeftOut);
            }
            EntryKind::BlockDevice | EntryKind::CharacterDevice => {
                self.make_device(visited, folder.as_fd(), name)?
            }
        }
        if let Err(error) = self.set_attributes(visited, &Made::Name(folder.as_fd(), name)) {
            self.leave_out(&visited.path, shown::with_causes(&error));
        }
        Ok(Outcome::Written(Next::Past))
    }

    fn make_device(&self, visited: &Visited, folder: BorrowedFd<'_>, name: &OsStr) -> Result<()> {
        if self.rules == Rules::Harmless {
            return refused("it is a device and is left out; --preserve makes it, as root");
        }
        let (major, minor) = visited.inode.device().context("the device has no number")?;
        let number = rustix::fs::makedev(major, minor);
        let kind = match visited.inode.kind() {
            Some(EntryKind::BlockDevice) => FileType::BlockDevice,
            _ => FileType::CharacterDevice,
        };
        make_node(folder, name, kind, number)
    }

    /// Creates the hard links, then sets the attributes of directories, children before parents.
    fn finish(&self, state: &mut State, progress: &mut Progress) {
        let Some(top) = state.open.get(1).map(Arc::clone) else {
            return;
        };
        let top = top.descriptor.as_fd();
        if self.budget.is_stopped() {
            // Their first names may be of files that were not filled any more.
            state.links.clear();
        }
        for Link {
            inode,
            folder,
            name,
            kind,
            bytes,
        } in &state.links
        {
            let Some((first_folder, first_name)) = state.first_names.get(inode) else {
                continue;
            };
            let linked = state.tree.open(top, *first_folder).and_then(|from| {
                let to = state.tree.open(top, *folder)?;
                let (from_name, to_name) = (OsStr::from_bytes(first_name), OsStr::from_bytes(name));
                rustix::fs::linkat(from, from_name, to, to_name, AtFlags::empty())
            });
            match linked {
                Ok(()) => progress.count(Some(*kind), *bytes),
                Err(error) => {
                    let path = state.tree.path(*folder, name);
                    self.leave_out(&path, format!("the hard link can't be made: {error}"));
                }
            }
        }
        while let Some((number, visited)) = state.tree.last() {
            let opened = state
                .tree
                .open(top, number)
                .context("the folder can't be opened again");
            if let Err(error) =
                opened.and_then(|folder| self.set_attributes(&visited, &Made::Open(folder.as_fd())))
            {
                self.leave_out(&visited.path, shown::with_causes(&error));
            }
            state.tree.remove_last();
        }
    }

    fn fill_files(&self, files: &Taker<'_, Job>) {
        while let Some(job) = files.take() {
            match self.fill(&job) {
                Ok(false) => {}
                Ok(true) => {
                    let mut filled = self.filled.lock().unwrap_or_else(PoisonError::into_inner);
                    filled.files += 1;
                    filled.bytes = filled.bytes.saturating_add(job.visited.inode.size_bytes);
                }
                Err(error) => {
                    self.note(&job.visited.path, shown::with_causes(&error), error.is_damage());
                }
            }
        }
    }

    /// Makes a file. `false` if the extraction is stopped; a file that can't be written as a whole is removed.
    fn fill(&self, Job { visited, parent }: &Job) -> Result<bool> {
        if self.budget.is_stopped() {
            return Ok(false);
        }
        self.ubifs.check_key(&visited.inode)?;
        let mut lost = Vec::new();
        let runs = runs(self.ubifs, &visited.inode, &mut lost);
        self.budget.take_bytes(runs.iter().map(|run| run.bytes).sum())?;
        let file = rustix::fs::openat(
            &parent.descriptor,
            self.name(visited),
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        );
        let file = File::from(file.context("the file can't be made")?);
        let written = self.write(visited, &runs, &file, &mut lost);
        if !matches!(written, Ok(true)) {
            let removed = rustix::fs::unlinkat(&parent.descriptor, self.name(visited), AtFlags::empty());
            return written.and_then(|_| {
                removed.context("half of the file can't be removed")?;
                Ok(false)
            });
        }
        for finding in &lost {
            self.lose(&visited.path, finding);
        }
        if let Err(error) = self.set_attributes(visited, &Made::Open(file.as_fd())) {
            self.leave_out(&visited.path, shown::with_causes(&error));
        }
        Ok(true)
    }

    /// Writes the blocks that the file has; the rest stays a hole. `false` if the extraction is stopped.
    fn write(&self, visited: &Visited, runs: &[Run], file: &File, lost: &mut Vec<Finding>) -> Result<bool> {
        let end = runs.last().map_or(0, |run| run.offset + run.bytes);
        if end < visited.inode.size_bytes {
            file.set_len(visited.inode.size_bytes)
                .context("the file can't have its size")?;
        }
        let mut reader = RunReader::new(self.ubifs, &visited.inode, runs);
        while let Some((offset, piece)) = reader.next_piece() {
            file.write_all_at(piece, offset)
                .context("the file can't be written, and is left out")?;
            if self.budget.is_stopped() {
                return Ok(false);
            }
        }
        lost.append(&mut reader.lost);
        Ok(true)
    }

    /// Sets owner, extended attributes, mode and times, in this order: changing the owner clears capabilities and setuid
    /// bits, and setting `user.*` needs write permission on the file.
    fn set_attributes(&self, visited: &Visited, made: &Made<'_>) -> Result<()> {
        let inode = &visited.inode;
        let mut mode = inode.mode & 0o7777;
        match self.rules {
            Rules::Preserve => made.set_owner(inode).context("the owner can't be set")?,
            Rules::Harmless if mode & 0o6000 != 0 => {
                mode &= 0o1777;
                let what = format!(
                    "mode {:o} becomes {mode:o}; --preserve keeps setuid and setgid, as root",
                    inode.mode & 0o7777
                );
                self.leave_out(&visited.path, what);
            }
            Rules::Harmless => {}
            Rules::UbiReader {
                permissions: true, ..
            } => {
                if rustix::process::geteuid().is_root() {
                    made.set_owner(inode).context("the owner can't be set")?;
                }
            }
            Rules::UbiReader { umask, .. } => {
                mode = match inode.kind() {
                    Some(EntryKind::Directory) => 0o777 & !umask,
                    _ => 0o666 & !umask,
                };
            }
        }
        self.set_xattrs(visited, made);
        made.set_mode(inode, mode).context("the mode can't be set")?;
        made.set_times(inode).context("the times can't be set")
    }

    fn set_xattrs(&self, visited: &Visited, made: &Made<'_>) {
        if matches!(self.rules, Rules::UbiReader { xattrs: false, .. }) {
            return;
        }
        let mut lost = Vec::new();
        for xattr in self.ubifs.xattrs_lossy(visited.number, &mut lost) {
            let name = shown::name(&xattr.name);
            if self.rules == Rules::Harmless && !xattr.name.starts_with(b"user.") {
                let what = format!("extended attribute {name} is left out; --preserve sets it, as root");
                self.leave_out(&visited.path, what);
            } else if let Err(error) = made.set_xattr(&xattr) {
                let what = format!("extended attribute {name} can't be set: {error}");
                self.leave_out(&visited.path, what);
            }
        }
        for finding in &lost {
            self.lose(&visited.path, finding);
        }
    }
}

fn make_node(folder: BorrowedFd<'_>, name: &OsStr, kind: FileType, number: u64) -> Result<()> {
    rustix::fs::mknodat(folder, name, kind, Mode::RUSR | Mode::WUSR, number).context("the node can't be made")
}
