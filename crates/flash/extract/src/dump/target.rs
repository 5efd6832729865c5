//! Destinations of an unpacked dump: a folder, or a tar archive.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use tar::Builder;
use ubifs::Ubifs;

use crate::budget::Budget;
use crate::error::{Context, Result};
use crate::folder::{self, Rules};
use crate::folder_tree::open_folder;
use crate::losses::Losses;
use crate::progress::Progress;
use crate::tar_archive;
use crate::walk::root;

/// Name of the report.
const REPORT: &str = "report.json";

/// A place for what is unpacked. Names are harmless and unique.
pub trait Target {
    /// Writes the tree of a file system to `part/name`.
    fn tree(
        &mut self,
        place: (&str, &str),
        ubifs: &Ubifs,
        budget: &Budget,
        losses: &mut Losses,
        progress: &mut Progress,
    ) -> Result<()>;

    /// Writes `bytes` bytes of content to the file `part/name`. `false` if the run is stopped: there is no such file then.
    fn content(
        &mut self,
        place: (&str, &str),
        bytes: u64,
        content: &mut dyn Read,
        budget: &Budget,
    ) -> Result<bool>;

    /// Whether an error leaves the whole output unusable, as that of an archive.
    fn is_stream(&self) -> bool;
}

/// A new folder, accessible to its owner only until it is finished.
pub struct Folder {
    top: OwnedFd,
    rules: Rules,
    /// The folders of partitions.
    parts: HashMap<String, OwnedFd>,
}

const PATH_FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Folder {
    /// Makes the folder. It must not exist or be empty.
    pub fn create(root: &Path, rules: Rules) -> Result<Self> {
        let name = root
            .file_name()
            .with_context(|| format!("{}: it is no name of a folder", root.display()))?;
        let parent = root.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let outside = rustix::fs::openat(CWD, parent, PATH_FOLDER, Mode::empty())
            .with_context(|| format!("{} can't be opened", parent.display()))?;
        folder::remove_empty(outside.as_fd(), name, root)?;
        let made = rustix::fs::mkdirat(&outside, name, Mode::RWXU);
        made.with_context(|| format!("{} can't be made", root.display()))?;
        let top = open_folder(outside.as_fd(), name);
        Ok(Self {
            top: top.with_context(|| format!("{} can't be opened", root.display()))?,
            rules,
            parts: HashMap::new(),
        })
    }

    /// The folder of a partition, which is made when it is needed.
    fn part(&mut self, part: &str) -> Result<&OwnedFd> {
        if !self.parts.contains_key(part) {
            let mode = Mode::from_raw_mode(0o777);
            rustix::fs::mkdirat(&self.top, part, mode)
                .with_context(|| format!("{part}: it can't be made"))?;
            let opened = open_folder(self.top.as_fd(), OsStr::new(part));
            let opened = opened.with_context(|| format!("{part}: it can't be opened"))?;
            self.parts.insert(part.to_owned(), opened);
        }
        self.parts.get(part).context("the folder was made")
    }

    /// Writes the report, and gives the folder the mode that the umask leaves.
    pub fn finish(self, report: &str) -> Result<()> {
        let mut file = make(&self.top, REPORT)?;
        writeln!(file, "{report}").with_context(|| format!("{REPORT} can't be written"))?;
        let mode = rustix::fs::fstat(&file)?.st_mode & 0o666;
        // Readers of files of this mode may look into folders.
        let search = (mode & 0o444) >> 2;
        rustix::fs::fchmod(&self.top, Mode::from_raw_mode(mode | search | 0o700))?;
        Ok(())
    }
}

fn make(folder: &OwnedFd, name: &str) -> Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(0o666));
    Ok(File::from(made.with_context(|| format!("{name} can't be made"))?))
}

/// Bytes that are copied before the next look at the stop flag.
const COPY_BYTES: u64 = 1 << 20;

impl Target for Folder {
    fn tree(
        &mut self,
        (part, name): (&str, &str),
        ubifs: &Ubifs,
        budget: &Budget,
        losses: &mut Losses,
        progress: &mut Progress,
    ) -> Result<()> {
        let rules = self.rules;
        let outside = self
            .part(part)?
            .try_clone()
            .context("a folder can't be opened again")?;
        let top = (outside, OsStr::new(name));
        folder::extract_in(ubifs, root(), top, rules, budget, losses, progress)
    }

    fn content(
        &mut self,
        (part, name): (&str, &str),
        _bytes: u64,
        content: &mut dyn Read,
        budget: &Budget,
    ) -> Result<bool> {
        let folder = self.part(part)?;
        let mut file = make(folder, name)?;
        let copied = copy(content, &mut file, budget);
        if !matches!(copied, Ok(true)) {
            rustix::fs::unlinkat(folder, name, AtFlags::empty())
                .with_context(|| format!("half of {part}/{name} can't be removed"))?;
        }
        copied.with_context(|| format!("{part}/{name} can't be written, and is left out"))
    }

    fn is_stream(&self) -> bool {
        false
    }
}

/// Copies everything. `false` if the run is stopped before the end.
fn copy(content: &mut dyn Read, file: &mut File, budget: &Budget) -> std::io::Result<bool> {
    while !budget.is_stopped() {
        if std::io::copy(&mut content.take(COPY_BYTES), file)? == 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A tar archive.
pub struct Archive<'a> {
    builder: Builder<&'a mut dyn Write>,
    parts: Vec<String>,
}

impl<'a> Archive<'a> {
    /// Begins an archive.
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self {
            builder: Builder::new(out),
            parts: Vec::new(),
        }
    }

    fn part(&mut self, part: &str) -> Result<()> {
        if self.parts.iter().all(|made| made != part) {
            tar_archive::add_folder(&mut self.builder, format!("./{part}/").as_bytes())?;
            self.parts.push(part.to_owned());
        }
        Ok(())
    }

    /// Adds the report, and ends the archive.
    pub fn finish(mut self, report: &str) -> Result<()> {
        let report = format!("{report}\n");
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(u64::try_from(report.len())?);
        self.builder
            .append_data(&mut header, REPORT, report.as_bytes())
            .context("the archive can't be written")?;
        self.builder.into_inner()?.flush()?;
        Ok(())
    }
}

impl Target for Archive<'_> {
    fn tree(
        &mut self,
        (part, name): (&str, &str),
        ubifs: &Ubifs,
        budget: &Budget,
        losses: &mut Losses,
        progress: &mut Progress,
    ) -> Result<()> {
        self.part(part)?;
        let prefix = format!("./{part}/{name}/");
        tar_archive::add_tree(
            &mut self.builder,
            prefix.as_bytes(),
            (ubifs, root()),
            budget,
            losses,
            progress,
        )
    }

    fn content(
        &mut self,
        (part, name): (&str, &str),
        bytes: u64,
        content: &mut dyn Read,
        budget: &Budget,
    ) -> Result<bool> {
        self.part(part)?;
        let name = format!("./{part}/{name}");
        tar_archive::add_content(&mut self.builder, name.as_bytes(), bytes, content, budget)?;
        Ok(true)
    }

    fn is_stream(&self) -> bool {
        true
    }
}
