//! Directory of the test files. Created if missing (one level, as in the original), and removed again if the run
//! fails before leaving a file in it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::MobibenchError;

/// A directory that may have been created for this run.
#[derive(Debug)]
pub struct Folder<'run> {
    path: &'run Path,
    made: bool,
}

impl<'run> Folder<'run> {
    /// Opens the directory; creates it if missing.
    pub fn open(path: &'run Path) -> Result<Self, MobibenchError> {
        match fs::create_dir(path) {
            Ok(()) => return Ok(Self { path, made: true }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(source) => {
                return Err(MobibenchError::NoFolder {
                    path: path.to_owned(),
                    source,
                });
            }
        }
        let kind = fs::metadata(path)
            .map_err(MobibenchError::file(path, "can't be used"))?
            .file_type();
        if kind.is_block_device() {
            return Err(MobibenchError::BlockDevice(path.to_owned()));
        }
        if !kind.is_dir() {
            return Err(MobibenchError::NotAFolder(path.to_owned()));
        }
        Ok(Self { path, made: false })
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
