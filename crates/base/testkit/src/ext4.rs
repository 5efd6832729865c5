//! [`Ext4`]: a small ext4 on a loop device, whose medium can be read in the state that a power cut would leave.
//!
//! That state is a copy of the image, mounted: ext4 has replayed its journal, and data that was only in the page cache
//! is gone. A copy can't show whether the device was told to flush, so that is counted separately ([`Ext4::flushes`]).
//! Neither the journal nor the page cache is written out by time while a test runs.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use vfs::FileSystem;

use crate::contract::PowerCut;

/// A mounted ext4; unmounted and removed on drop.
#[derive(Debug)]
pub struct Ext4 {
    /// Folder of the image and the mountpoints.
    files: PathBuf,
    /// The mountpoint.
    folder: PathBuf,
}

impl Ext4 {
    /// An empty ext4 of `mib` MiB.
    ///
    /// # Errors
    /// The missing requirement: root, a loop device or mkfs.ext4.
    pub fn new(mib: u64) -> Result<Self, String> {
        Self::mounted_with(mib, "async")
    }

    /// Like [`Ext4::new`], with further options of mount(8).
    ///
    /// # Errors
    /// As [`Ext4::new`].
    pub fn mounted_with(mib: u64, options: &str) -> Result<Self, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            return Err("an ext4 on a loop device needs root".to_owned());
        }
        let name = format!(
            "tidegate-ext4-{}-{}",
            std::process::id(),
            MADE.fetch_add(1, Ordering::Relaxed)
        );
        let files = std::env::temp_dir().join(name);
        let ext4 = Self {
            folder: files.join("ext4"),
            files,
        };
        let made = (|| {
            fs::create_dir(&ext4.files)?;
            fs::create_dir(&ext4.folder)?;
            fs::create_dir(ext4.files.join("cut"))?;
            fs::File::create(ext4.image())?.set_len(mib << 20)
        })();
        made.map_err(|error| format!("{}: {error}", ext4.files.display()))?;
        let mut mkfs = Command::new("mkfs.ext4");
        mkfs.args(["-q", "-F", "-b", "4096", "-J", "size=4"])
            .args(["-E", "lazy_itable_init=0,lazy_journal_init=0"]);
        run(mkfs.arg(ext4.image()))?;
        mount(
            &ext4.image(),
            ext4.folder(),
            &format!("loop,commit=300,{options}"),
        )?;
        Ok(ext4)
    }

    /// The root of the mount.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The content that the file at `path` below the root would have if power failed now; `None` if it would not exist.
    ///
    /// # Panics
    /// If the state after a power cut can't be mounted.
    #[must_use]
    pub fn after_power_cut(&self, path: &Path) -> Option<Vec<u8>> {
        static LOOKS: AtomicU32 = AtomicU32::new(0);
        let copy = self
            .files
            .join(format!("copy-{}", LOOKS.fetch_add(1, Ordering::Relaxed)));
        let cut = self.files.join("cut");
        let mut command = Command::new("cp");
        let copied = run(command.arg("--sparse=always").args([&self.image(), &copy]));
        let mounted = copied.and_then(|()| mount(&copy, &cut, "loop"));
        mounted.unwrap_or_else(|reason| panic!("the medium after a power cut: {reason}"));
        let found = fs::read(cut.join(path));
        // Detached lazily, and with a new copy each time: a child process that another thread of the test starts shares
        // this process's open files until it executes its program.
        let removed = run(Command::new("umount").arg("-l").arg(&cut))
            .and_then(|()| fs::remove_file(&copy).map_err(|error| format!("{}: {error}", copy.display())));
        removed.unwrap_or_else(|reason| panic!("a look at the medium: {reason}"));
        match found {
            Ok(content) => Some(content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => panic!("{} after a power cut: {error}", path.display()),
        }
    }

    /// Number of flush requests to its device.
    ///
    /// # Panics
    /// If the kernel does not report it.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        let table = fs::read_to_string("/proc/self/mounts").expect("/proc is mounted");
        let mounted = format!(" {} ", self.folder().display());
        let line = table.lines().find(|line| line.contains(&mounted));
        let device = line
            .and_then(|line| line.split(' ').next())
            .expect("it is mounted");
        let name = Path::new(device).file_name().expect("a device has a name");
        let path = Path::new("/sys/class/block").join(name).join("stat");
        let statistics = fs::read_to_string(path).expect("/sys is mounted");
        // Field 16 in the kernel's documentation of block/stat.
        let flushes = statistics.split_whitespace().nth(15);
        flushes
            .and_then(|count| count.parse().ok())
            .expect("Linux 5.5 counts flushes")
    }

    fn image(&self) -> PathBuf {
        self.files.join("image")
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        // Best effort: a failure here would hide the test's own message.
        for mountpoint in [&self.files.join("cut"), &self.folder] {
            let _ = Command::new("umount").arg("-lq").arg(mountpoint).output();
        }
        let _ = fs::remove_dir_all(&self.files);
    }
}

/// A file system under test over its own folder on an [`Ext4`].
#[derive(Debug)]
pub struct OnExt4<'a, F> {
    ext4: &'a Ext4,
    folder: PathBuf,
    file_system: F,
}

impl<'a, F> OnExt4<'a, F> {
    /// Makes the folder, syncs it, and calls `open` to make the file system on it.
    ///
    /// # Panics
    /// If the folder can't be made.
    pub fn new(ext4: &'a Ext4, open: impl FnOnce(&Path) -> F) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let folder = PathBuf::from(MADE.fetch_add(1, Ordering::Relaxed).to_string());
        let path = ext4.folder().join(&folder);
        let made = fs::create_dir(&path).and_then(|()| fs::File::open(ext4.folder())?.sync_all());
        made.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self {
            ext4,
            folder,
            file_system: open(&path),
        }
    }
}

impl<F: FileSystem> PowerCut for OnExt4<'_, F> {
    type Fs = F;

    fn file_system(&self) -> &F {
        &self.file_system
    }

    fn after_power_cut(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.ext4
            .after_power_cut(&self.folder.join(OsStr::from_bytes(name)))
    }
}

fn mount(image: &Path, at: &Path, options: &str) -> Result<(), String> {
    run(Command::new("mount")
        .args(["-t", "ext4", "-o", options])
        .args([image, at]))
}

fn run(command: &mut Command) -> Result<(), String> {
    let shown = format!("{:?}", command.get_program());
    let output = command.output().map_err(|error| format!("{shown}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{shown}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}
