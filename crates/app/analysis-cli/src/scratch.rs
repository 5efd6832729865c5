//! Temporary files of this program (copies of foreign traces, sorts beyond their memory): all in one private folder, which
//! is removed at the end, also if the ceiling of memory or a signal of `programs::clean_on_signals` ends it.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use programs::private_folder::private_folder;

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// The folder, as long as this value lives.
pub struct Scratch(());

impl Scratch {
    /// Makes the folder, and has everything temporary made in it. Called before any thread is started. Without it, if the
    /// system's folder for temporary files is read-only or full, only work that needs one fails. `removes_on_signals`: a signal
    /// ends the process at once.
    pub fn make(removes_on_signals: bool) -> Self {
        if let Ok(folder) = private_folder(&std::env::temp_dir(), "tidegate-trace-") {
            let folder = FOLDER.get_or_init(|| folder.keep());
            // SAFETY: this process has one thread, so that nothing reads the environment meanwhile.
            unsafe { std::env::set_var("TMPDIR", folder) };
            if removes_on_signals {
                // Without a thread for signals the folder stays after one, as it does after SIGKILL.
                let _ = programs::clean_on_signals(remove);
            }
        }
        Self(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove();
    }
}

/// Removes the folder, while other threads may still make files in it.
pub fn remove() {
    let removed = |folder: &PathBuf| fs::remove_dir_all(folder).is_ok() || !folder.exists();
    if let Some(folder) = FOLDER.get() {
        let _ = (0..10).any(|_| removed(folder));
    }
}
