//! The stock `fsck.ubifs` on a plain volume file, on the host and without a guest: a check that is independent of this
//! project and of the kernel. Built by `lab/setup.sh --fsck`.

use std::path::{Path, PathBuf};
use std::process::Command;

use guest::{cache_folder, source_folder};

use super::{LabError, Why};

/// An installed `fsck.ubifs`.
#[derive(Clone, Debug)]
pub struct Fsck {
    script: PathBuf,
}

/// Result of a check.
#[derive(Clone, Debug)]
pub struct FsckReport {
    /// Whether it exited with 0: the repair, or both the check of the file and the check with repair of a copy.
    pub clean: bool,
    /// Its output.
    pub text: String,
}

impl Fsck {
    /// The one that `lab/setup.sh --fsck` built on this machine.
    pub fn available() -> Result<Self, Why> {
        if !cache_folder()?.join("fsck/fsck.ubifs").exists() {
            return Err(Why::NoFsck);
        }
        let script = source_folder("fsck").join("volume.sh");
        Ok(Self { script })
    }

    /// Repairs a UBIFS volume in its file with these options, such as `-y` or `-yb`. `None` if it takes more than a minute or
    /// crashes.
    pub fn repair(
        &self,
        volume: &Path,
        (leb_bytes, min_io_bytes): (u32, u32),
        options: &str,
    ) -> Result<Option<FsckReport>, LabError> {
        let output = Command::new("timeout")
            .args(["--kill-after=5", "60"])
            .arg(&self.script)
            .arg(volume)
            .args([
                leb_bytes.to_string(),
                min_io_bytes.to_string(),
                options.to_owned(),
            ])
            .output()
            .map_err(|source| LabError::File {
                path: self.script.clone(),
                source,
            })?;
        // 124 and 137 are those of timeout, more those of signals.
        let code = output.status.code().filter(|code| *code < 124);
        let text = [output.stdout, output.stderr].concat();
        Ok(code.map(|code| FsckReport {
            clean: code == 0,
            text: String::from_utf8_lossy(&text).into_owned(),
        }))
    }

    /// Checks a UBIFS volume, LEB after LEB, unmapped ones 0xFF; the file is not changed.
    pub fn check(&self, volume: &Path, leb_bytes: u32, min_io_bytes: u32) -> Result<FsckReport, LabError> {
        let output = Command::new(&self.script)
            .arg(volume)
            .args([leb_bytes.to_string(), min_io_bytes.to_string()])
            .output()
            .map_err(|source| LabError::File {
                path: self.script.clone(),
                source,
            })?;
        let text = [output.stdout, output.stderr].concat();
        Ok(FsckReport {
            clean: output.status.success(),
            text: String::from_utf8_lossy(&text).into_owned(),
        })
    }
}
