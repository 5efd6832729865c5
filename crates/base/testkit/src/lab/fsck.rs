//! The stock `fsck.ubifs` on a plain volume file, on the host and without a guest: a judge that is neither ours nor the
//! kernel. Made by `lab/setup.sh --fsck`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{LabError, Why, cache_folder, file_error, source_folder};

/// A `fsck.ubifs` that can be run.
#[derive(Clone, Debug)]
pub struct Fsck {
    script: PathBuf,
}

/// What it found.
#[derive(Clone, Debug)]
pub struct FsckReport {
    /// Whether both the check of the file and the check with repair of a copy ended with 0.
    pub clean: bool,
    /// What it printed.
    pub text: String,
}

impl Fsck {
    /// The one that `lab/setup.sh --fsck` made on this machine.
    pub fn available() -> Result<Self, Why> {
        if !cache_folder()?.join("fsck/fsck.ubifs").exists() {
            return Err(Why::NoFsck);
        }
        let script = source_folder("fsck").join("volume.sh");
        Ok(Self { script })
    }

    /// Checks a UBIFS volume, LEB after LEB, unmapped ones 0xFF; the file stays as it is.
    pub fn check(&self, volume: &Path, leb_bytes: u32, min_io_bytes: u32) -> Result<FsckReport, LabError> {
        let output = Command::new(&self.script)
            .arg(volume)
            .args([leb_bytes.to_string(), min_io_bytes.to_string()])
            .output()
            .map_err(file_error(&self.script))?;
        let text = [output.stdout, output.stderr].concat();
        Ok(FsckReport {
            clean: output.status.success(),
            text: String::from_utf8_lossy(&text).into_owned(),
        })
    }
}
