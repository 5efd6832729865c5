//! Directory of the test files. Created if missing (one level, as in the original), and removed again if the run
//! fails before leaving a file in it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// A directory that may have been created for this run.
#[derive(Debug)]
pub struct Folder<'run> {
    path: &'run Path,
    made: bool,
}

impl<'run> Folder<'run> {
    /// Opens the directory; creates it if missing.
    pub fn open(path: &'run Path) -> Result<Self> {
        match fs::create_dir(path) {
            Ok(()) => Ok(Self { path, made: true }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let kind = fs::metadata(path)
                    .with_context(|| format!("{} can't be used", path.display()))?
                    .file_type();
                if kind.is_block_device() {
                    bail!(
                        "{} is a block device; mount a file system and give a folder on it, or use \
                         `tidegate bench file`",
                        path.display()
                    );
                }
                if !kind.is_dir() {
                    bail!("{} is no folder", path.display());
                }
                Ok(Self { path, made: false })
            }
            Err(error) => Err(error).with_context(|| {
                format!(
                    "the folder {} can't be made (-p); its parent must exist",
                    path.display()
                )
            }),
        }
    }

    /// Keeps the directory and its files, after a run that gave numbers.
    pub fn keep(mut self) {
        self.made = false;
    }
}

impl Drop for Folder<'_> {
    fn drop(&mut self) {
        if self.made {
            // This fails on a directory that is not empty, which is intended; the error of the run is reported
            // already.
            let _ = fs::remove_dir(self.path);
        }
    }
}
