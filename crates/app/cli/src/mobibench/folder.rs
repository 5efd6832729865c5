//! The folder of the test files: made when missing, one level, as the original makes it; taken away again when the run
//! failed before anything stayed in it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// A folder that may have been made for this run.
#[derive(Debug)]
pub struct Folder<'run> {
    path: &'run Path,
    made: bool,
}

impl<'run> Folder<'run> {
    /// Makes the folder, or finds it.
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

    /// The run gave numbers: its files stay, and so does the folder.
    pub fn keep(mut self) {
        self.made = false;
    }
}

impl Drop for Folder<'_> {
    fn drop(&mut self) {
        if self.made {
            // A folder that is not empty stays: an error is on its way already, and says more.
            let _ = fs::remove_dir(self.path);
        }
    }
}
