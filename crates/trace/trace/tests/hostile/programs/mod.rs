//! The hostile programs. Each is a process of its own that records in the ledger what it does.

mod asynchronous;
mod buffered;
mod confusing;
mod direct;
mod memory;
mod names;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::ledger::{Log, now};
use crate::{Outcome, failed};

pub const PAGE: u64 = 4096;

/// Folder and means of a program.
pub struct Place {
    /// The program's own folder on the file system.
    pub folder: PathBuf,
    /// The file system's root.
    pub root: PathBuf,
    /// The same file system's folder of bind mounts, if there is one.
    pub bind: Option<PathBuf>,
    pub log: Log,
    ledger: PathBuf,
    scale: u64,
}

/// An open file, and the number of the name that it was opened by.
pub struct Opened {
    pub file: File,
    pub name: u32,
}

impl Opened {
    pub const fn as_named(&self) -> (&File, u32) {
        (&self.file, self.name)
    }
}

static NAMES: AtomicU32 = AtomicU32::new(0);

/// A number for a name, unique among all programs.
pub fn new_name() -> u32 {
    std::process::id() << 10 | NAMES.fetch_add(1, Ordering::Relaxed)
}

impl Place {
    /// A number of actions, larger in full runs.
    pub const fn count(&self, count: u64) -> u64 {
        count * self.scale
    }

    /// The path as the trace tells it.
    pub fn told(&self, path: &Path) -> String {
        let below = path.strip_prefix(&self.root).unwrap_or(path);
        format!("/{}", below.display())
    }

    /// Creates a file in the program's folder.
    pub fn create(&self, name: &str, flags: i32) -> io::Result<Opened> {
        self.create_at(&self.folder.join(name), flags)
    }

    /// Creates a file.
    pub fn create_at(&self, path: &Path, flags: i32) -> io::Result<Opened> {
        let from = now();
        let mut options = OpenOptions::new();
        let options = options
            .create_new(true)
            .read(true)
            .write(true)
            .custom_flags(flags);
        let opened = Opened {
            file: options.open(path)?,
            name: new_name(),
        };
        self.log
            .named(from, opened.name, &opened.file, &self.told(path))?;
        Ok(opened)
    }
}

type Program = fn(&Place) -> io::Result<()>;

/// Every program that uses files.
pub const PROGRAMS: &[(&str, Program)] = &[
    ("buffered", buffered::random),
    ("inherited", buffered::inherited),
    ("spliced", buffered::spliced),
    ("copied", buffered::copied),
    ("reused", buffered::reused),
    ("grouped", buffered::grouped),
    ("bound", buffered::bound),
    ("mapped", memory::mapped),
    ("truncated", confusing::truncated),
    ("stored", confusing::stored),
    ("populated", confusing::populated),
    ("extended", confusing::extended),
    ("failed", confusing::failed),
    ("in_place", confusing::in_place),
    ("executed", confusing::executed),
    ("pressed", memory::pressed),
    ("direct", direct::anonymous),
    ("direct_shared", direct::shared),
    ("nowait", direct::nowait),
    ("aio", asynchronous::aio),
    ("uring", asynchronous::uring),
    ("uring_polled", asynchronous::uring_polled),
    ("uring_buffered", asynchronous::uring_buffered),
    ("linked", names::linked),
    ("renamed", names::renamed),
    ("unlinked", names::unlinked),
    ("gone", names::gone),
];

/// Programs that use a device without a file system.
const RAW_PROGRAMS: &[(&str, Program)] = &[
    ("raw_shared", direct::raw_shared),
    ("raw_nowait", direct::raw_nowait),
];

/// One program: `PROGRAM FOLDER-ON-THE-FILE-SYSTEM LEDGER SCALE [BIND]`.
pub fn run(arguments: &[&str]) -> Outcome<()> {
    let [program, root, ledger, scale, rest @ ..] = arguments else {
        return Err(format!("{arguments:?} is no program"));
    };
    let known = PROGRAMS.iter().chain(RAW_PROGRAMS);
    let (_, function) = known
        .into_iter()
        .find(|(name, _)| name == program)
        .ok_or_else(|| format!("{program} is no program"))?;
    let root = PathBuf::from(root);
    let is_device = !root.is_dir();
    let folder = if is_device {
        root.clone()
    } else {
        crate::machine::part_of(&root).join(program)
    };
    if !is_device {
        std::fs::create_dir(&folder).map_err(|error| failed("folder", error))?;
    }
    let place = Place {
        folder,
        root,
        bind: rest.first().map(PathBuf::from),
        log: Log::open(Path::new(ledger)).map_err(|error| failed("ledger", error))?,
        ledger: PathBuf::from(ledger),
        scale: scale.parse().map_err(|error| failed("scale", error))?,
    };
    function(&place).map_err(|error| failed(program, error))
}

/// The program that [`confusing::executed`] executes.
pub use confusing::executed_second;

/// Waits until the judge can tell what follows from what was before.
pub fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(2));
}

/// A child process that does this; its end is waited for by [`join`].
pub fn fork(child: impl FnOnce() -> io::Result<()>) -> io::Result<libc::pid_t> {
    // SAFETY: programs have one thread when they fork, so the child may go on as its parent.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = i32::from(child().is_err());
            // SAFETY: ends the process without the parent's destructors.
            unsafe { libc::_exit(code) }
        }
        pid => Ok(pid),
    }
}

/// Waits for a child; an error if it failed.
pub fn join(pid: libc::pid_t) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: only the call writes the status.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    if waited == pid && status == 0 {
        Ok(())
    } else {
        Err(io::Error::other(format!("a child ended with {status}")))
    }
}

/// Small seeded numbers: each program draws the same ones in each run.
pub struct Random(pub u64);

impl Random {
    pub const fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
