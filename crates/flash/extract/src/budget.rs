//! Limits of an extraction, and its stop flag.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Result, refused};

/// Remaining bytes and files of an extraction, and whether it was stopped.
#[derive(Debug)]
pub struct Budget {
    bytes: AtomicU64,
    files: AtomicU64,
    files_max: u64,
    stop: Arc<AtomicBool>,
}

impl Budget {
    /// A budget of bytes and files; `stop` is set by signals.
    #[must_use]
    pub fn new(bytes: u64, files: u64, stop: Arc<AtomicBool>) -> Self {
        Self {
            bytes: AtomicU64::new(bytes),
            files: AtomicU64::new(files),
            files_max: files,
            stop,
        }
    }

    /// Whether a signal asks for the end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Reserves the bytes of a file's content; holes cost nothing.
    ///
    /// # Errors
    /// If fewer bytes are left; the caller skips the file.
    pub fn take_bytes(&self, bytes: u64) -> Result<()> {
        let taken = self
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(bytes)
            });
        match taken {
            Ok(_) => Ok(()),
            Err(left) => refused(format!(
                "its {bytes} bytes are left out: --max-size leaves {left}"
            )),
        }
    }

    /// Reserves a file or folder; returns `false` at the limit.
    pub fn take_file(&self) -> bool {
        let taken = self
            .files
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        taken.is_ok()
    }

    /// The message for the first file beyond the limit.
    #[must_use]
    pub fn too_many_files(&self) -> String {
        format!(
            "this and all that follows is left out: --max-files is {}",
            self.files_max
        )
    }
}
