//! A job for the guest: a shell script with its files, and its outcome.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{LabError, file_error, fresh, source_folder};

/// The script's name in the job's folder; the agent knows it too.
pub(crate) const SCRIPT: &str = ".lab-script";

/// A script, run as root by the guest's `sh` in a folder that is `/host` there, with standard input closed.
#[derive(Clone, Debug)]
pub struct Job {
    script: String,
    files: Vec<(PathBuf, Content)>,
    variables: Vec<(String, String)>,
    pub(crate) timeout: Duration,
    pub(crate) cut: Option<(Vec<u8>, Duration)>,
}

#[derive(Clone, Debug)]
enum Content {
    Bytes(Vec<u8>),
    CopyOf(PathBuf),
}

impl Job {
    /// A job with a limit of 300 s: an emulated guest on a busy machine is slow.
    #[must_use]
    pub fn new(script: impl Into<String>) -> Self {
        Self {
            script: script.into(),
            files: Vec::new(),
            variables: Vec::new(),
            timeout: Duration::from_secs(300),
            cut: None,
        }
    }

    /// A ready-made script of `lab/jobs`, by its file name.
    pub fn ready_made(name: &str) -> Result<Self, LabError> {
        let path = source_folder("jobs").join(name);
        fs::read_to_string(&path)
            .map(Self::new)
            .map_err(file_error(&path))
    }

    /// Puts a file into the job's folder.
    #[must_use]
    pub fn file(mut self, name: impl Into<PathBuf>, bytes: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.into(), Content::Bytes(bytes.into())));
        self
    }

    /// Puts a copy of a file of the host into the job's folder.
    #[must_use]
    pub fn copy_of(mut self, name: impl Into<PathBuf>, path: impl Into<PathBuf>) -> Self {
        self.files.push((name.into(), Content::CopyOf(path.into())));
        self
    }

    /// Sets an environment variable of the script.
    #[must_use]
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Limit of the script's run time; then the guest is killed.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Cuts the power (SIGKILL to QEMU) `delay` after the script has printed `text`.
    #[must_use]
    pub fn cut_after(mut self, text: impl Into<Vec<u8>>, delay: Duration) -> Self {
        self.cut = Some((text.into(), delay));
        self
    }

    /// Writes script and files to `folder`, which need not exist.
    pub(crate) fn lay_out(&self, folder: &Path) -> Result<(), LabError> {
        let write = |name: &Path, content: &Content| -> io::Result<()> {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap_or(folder))?;
            match content {
                Content::Bytes(bytes) => fresh(&path)?.write_all(bytes),
                Content::CopyOf(source) => {
                    let (mut from, mut to) = (File::open(source)?, fresh(&path)?);
                    io::copy(&mut from, &mut to)?;
                    to.set_permissions(from.metadata()?.permissions())
                }
            }
        };
        fs::create_dir_all(folder).map_err(file_error(folder))?;
        for (name, content) in &self.files {
            write(name, content).map_err(file_error(&folder.join(name)))?;
        }
        let script = folder.join(SCRIPT);
        let mut text = String::new();
        for (name, value) in &self.variables {
            text += &format!("export {name}={}\n", quoted(value));
        }
        text += &self.script;
        let written = fresh(&script).and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(file_error(&script))
    }
}

/// Quotes `text` as one word for the guest's shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The script ended with this exit code.
    Code(i32),
    /// The power was cut, as the job requested; the guest is gone.
    Cut,
    /// The job exceeded its time; the guest is gone.
    TimedOut,
    /// The guest ended itself (`lab-cut`, a cut by the flash module, power-off or a kernel panic).
    GuestEnded,
}

/// Outcome of a job.
#[derive(Debug)]
pub struct Outcome {
    /// The end of the job.
    pub ended: Ended,
    /// Standard output and standard error, in order of arrival.
    pub output: Vec<u8>,
    /// The last log lines of QEMU and of the guest's kernel, if the guest has ended.
    pub last_words: String,
    /// From the start of the script to its end.
    pub took: Duration,
    pub(crate) folder: PathBuf,
    pub(crate) remove: bool,
}

impl Outcome {
    /// The output as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    /// Returns itself if the script exited with 0.
    ///
    /// # Panics
    ///
    /// With the job's output, if it did not.
    #[must_use]
    pub fn expect_success(self) -> Self {
        assert_eq!(self.ended, Ended::Code(0), "the job's output:\n{}", self.text());
        self
    }

    /// The job's folder on the host (`/host` in the guest). It is removed with this value, and with its guest.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A file that the job wrote to `/host`.
    pub fn read(&self, name: impl AsRef<Path>) -> Result<Vec<u8>, LabError> {
        let path = self.folder.join(name);
        fs::read(&path).map_err(file_error(&path))
    }

    /// A text file that the job wrote to `/host`.
    pub fn read_text(&self, name: impl AsRef<Path>) -> Result<String, LabError> {
        self.read(name)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The names in the job's folder.
    pub fn names(&self) -> Result<Vec<OsString>, LabError> {
        let entries = fs::read_dir(&self.folder).map_err(file_error(&self.folder))?;
        entries
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<io::Result<_>>()
            .map_err(file_error(&self.folder))
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        if self.remove {
            // Remaining files are removed with the guest's folder.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
