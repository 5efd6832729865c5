//! The lab guest: the distribution's own kernel in QEMU, and jobs in it. It runs file systems and modules that the host's
//! kernel lacks. Made by `lab/setup.sh`; manual use: `docs/reference/lab.md`.
//!
//! - [`Lab::installed`] returns the guest of this machine, or the reason why it is missing.
//! - [`Guest`] is a booted one (3 to 5 s under emulation). It runs any number of [`Job`]s, one after another.
//! - [`FlashFile`] is a file of the host that is a NAND chip in the guest; its bytes survive [`Guest::kill`].
//!
//! The guest sees the host's whole file tree at the same paths, read-only below an overlay in memory: programs built on
//! the host, with their libraries, and the host's tools run unchanged. A job returns files in `/host`, its folder.
//!
//! It ends with the process that booted it, however that ends, unless it was booted to stay.
//!
//! It is not a sandbox: a job can read everything that the user can read.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod booted;
mod control;
mod flash;
mod job;
mod keeper;
mod machine;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use thiserror::Error;

pub use booted::{Folders, Guest, Options};
pub use flash::FlashFile;
pub use job::{Ended, Job, Outcome};
pub use keeper::KEEPER;

/// A guest installed on this machine.
#[derive(Clone, Debug)]
pub struct Lab {
    kernel: PathBuf,
    initramfs: PathBuf,
    modules: PathBuf,
    version: String,
    accelerator: String,
    flash_module: bool,
    /// A folder with an agent newer than that of the initramfs.
    agent: Option<PathBuf>,
}

/// Reason why there is no guest here.
#[derive(Debug, Error)]
pub enum Why {
    /// Disabled by the user.
    #[error("TIDEGATE_LAB=no leaves out what needs the lab guest")]
    Declined,
    /// Neither `TIDEGATE_LAB_DIR` nor `HOME` determines its folder.
    #[error("neither TIDEGATE_LAB_DIR nor HOME is set, so there is no place for the lab guest")]
    NoPlace,
    /// `lab/setup.sh` has not run, or failed.
    #[error("there is no lab guest in {}; `lab/setup.sh` makes it or says why it can't", .0.display())]
    NotSetUp(PathBuf),
    /// The kernel module for flash that survives the guest was not built.
    #[error("the lab guest has no module tidegate_flash; `lab/setup.sh` builds it or says why it can't")]
    NoFlashModule,
    /// The stock fsck.ubifs was not built.
    #[error("there is no fsck.ubifs; `lab/setup.sh --fsck` builds it or says why it can't")]
    NoFsck,
    /// A file that it needs has been removed.
    #[error("the lab guest needs {}, which is gone; run `lab/setup.sh` again", .0.display())]
    Gone(PathBuf),
}

/// Errors of a guest, except those that a job itself reports.
#[derive(Debug, Error)]
pub enum LabError {
    /// An error on a file or folder of the host.
    #[error("lab: {}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The host's error.
        source: io::Error,
    },
    /// QEMU can't be started.
    #[error("lab: starting sh and QEMU: {0}")]
    Start(#[source] io::Error),
    /// QEMU ended before the guest answered, or the guest ended during a job.
    #[error("lab: the guest ended {during}; QEMU and the kernel say:\n{said}")]
    Died {
        /// The activity at that time.
        during: String,
        /// The ends of their logs.
        said: String,
    },
    /// The guest did not answer in time.
    #[error("lab: the guest did not answer within {seconds} s of its boot; QEMU and the kernel say:\n{said}")]
    Silent {
        /// The time limit.
        seconds: u64,
        /// The ends of their logs.
        said: String,
    },
    /// The guest was killed, or timed out, earlier.
    #[error("lab: the guest has ended already; boot another one")]
    Over,
    /// There is no resident guest for this folder.
    #[error("lab: no guest runs for {}; `lab/start {}` boots one", .0.display(), .0.display())]
    NoResident(PathBuf),
    /// There already is one.
    #[error("lab: a guest runs for {} already; `lab/stop {}` ends it", .0.display(), .0.display())]
    ResidentAlready(PathBuf),
    /// The connection to the guest failed.
    #[error("lab: talking to the guest: {0}")]
    Control(#[source] io::Error),
}

/// The folder in which `lab/setup.sh` installs the guest.
///
/// # Errors
/// If the user declines it, or nothing determines the folder.
pub fn cache_folder() -> Result<PathBuf, Why> {
    if env::var_os("TIDEGATE_LAB").is_some_and(|value| value == "no") {
        return Err(Why::Declined);
    }
    match (env::var_os("TIDEGATE_LAB_DIR"), env::var_os("HOME")) {
        (Some(folder), _) => Ok(PathBuf::from(folder)),
        (None, Some(home)) => Ok(Path::new(&home).join(".cache/tidegate/lab")),
        (None, None) => Err(Why::NoPlace),
    }
}

/// A folder below `lab/` of the sources that this was built from; only for tests and tools of the sources.
#[must_use]
pub fn source_folder(name: &str) -> PathBuf {
    // Without "..", which the guest's first shell would have to follow through other file systems.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3);
    let root = root.expect("this crate is in crates/base/guest");
    root.join("lab").join(name)
}

/// Replaces a file by an empty one, and follows no link.
fn fresh(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::create_new(path),
    }
}

fn file_error(path: &Path) -> impl FnOnce(io::Error) -> LabError {
    move |source| LabError::File {
        path: path.to_owned(),
        source,
    }
}

impl Lab {
    /// The guest that `lab/setup.sh` installed on this machine, with the agent of the sources that this was built from:
    /// for tests.
    ///
    /// # Errors
    /// If there is none.
    pub fn available() -> Result<Self, Why> {
        let agent = Some(source_folder("guest"));
        Ok(Self {
            agent,
            ..Self::installed()?
        })
    }

    /// The guest that `lab/setup.sh` installed on this machine.
    ///
    /// # Errors
    /// If there is none.
    pub fn installed() -> Result<Self, Why> {
        let folder = cache_folder()?;
        let Ok(description) = fs::read_to_string(folder.join("guest.env")) else {
            return Err(Why::NotSetUp(folder));
        };
        let value = |key: &str| {
            description
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
                .unwrap_or_default()
                .to_owned()
        };
        let existing = |key: &str| {
            let path = PathBuf::from(value(key));
            if path.exists() {
                Ok(path)
            } else {
                Err(Why::Gone(path))
            }
        };
        let qemu = Path::new("qemu-system-x86_64");
        if !on_path(qemu) {
            return Err(Why::Gone(qemu.to_owned()));
        }
        let (modules, version) = (existing("modules")?, value("version"));
        let flash_module = modules.join(&version).join("extra/tidegate_flash.ko");
        Ok(Self {
            agent: None,
            kernel: existing("kernel")?,
            initramfs: existing("initramfs")?,
            flash_module: flash_module.exists(),
            modules,
            version,
            accelerator: [
                env::var("TIDEGATE_LAB_ACCELERATOR").ok(),
                Some(value("accelerator")),
            ]
            .into_iter()
            .flatten()
            .find(|name| !name.is_empty())
            .unwrap_or_else(|| "tcg".to_owned()),
        })
    }

    /// Like [`Lab::available`], for a guest with [`FlashFile`]s.
    pub fn with_flash() -> Result<Self, Why> {
        let lab = Self::available()?;
        if lab.flash_module {
            Ok(lab)
        } else {
            Err(Why::NoFlashModule)
        }
    }

    /// Boots a guest.
    pub fn boot(&self, options: &Options) -> Result<Guest, LabError> {
        Guest::boot(self, options)
    }

    /// Boots a guest that outlives this process, for jobs in folders of `share`: [`Guest::resident`].
    pub fn boot_resident(&self, options: &Options, share: &Path) -> Result<(), LabError> {
        Guest::boot_resident(self, options, share)
    }

    /// The kernel's version, as printed by `uname -r`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// QEMU's accelerator: `kvm`, or `tcg` (emulation) with its parameters.
    #[must_use]
    pub fn accelerator(&self) -> &str {
        &self.accelerator
    }
}

fn on_path(program: &Path) -> bool {
    env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}
