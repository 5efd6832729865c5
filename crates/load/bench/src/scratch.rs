//! The private directory of a run, removed when the run is over.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process;

use crate::error::BenchError;

/// A directory that no other run uses. Dropping it removes it with its content, even while an error returns.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    /// Creates a directory inside `parent`.
    pub fn create(parent: &Path) -> Result<Self, BenchError> {
        let process = process::id();
        for number in 0_u32.. {
            let path = parent.join(format!(".tidegate-bench-{process}-{number}"));
            // Only the owner has access to the files of a run.
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path, keep: false }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(BenchError::io("mkdir", &path, error)),
            }
        }
        Err(BenchError::io(
            "mkdir",
            parent,
            std::io::Error::from(ErrorKind::AlreadyExists),
        ))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the directory.
    pub fn keep(mut self) -> PathBuf {
        self.keep = true;
        self.path.clone()
    }

    /// Removes the directory; returns why it could not be removed.
    pub fn remove(mut self) -> Option<String> {
        self.keep = true;
        let removed = fs::remove_dir_all(&self.path);
        let failure = removed.map_err(|error| BenchError::io("removal", &self.path, error));
        failure.err().map(|error| error.to_string())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            // An earlier error is already being reported; it says more than one about the cleanup.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_in_one_directory_do_not_meet() {
        let parent = tempfile::tempdir().unwrap();
        let (one, other) = (
            Scratch::create(parent.path()).unwrap(),
            Scratch::create(parent.path()).unwrap(),
        );
        assert_ne!(one.path(), other.path());
    }

    #[test]
    fn nobody_else_enters_the_folder_of_a_run() {
        use std::os::unix::fs::PermissionsExt;
        let parent = tempfile::tempdir().unwrap();
        let made = Scratch::create(parent.path()).unwrap();
        let mode = fs::metadata(made.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn dropping_removes_the_content_and_keeping_does_not() {
        let parent = tempfile::tempdir().unwrap();
        let dropped = Scratch::create(parent.path()).unwrap();
        fs::write(dropped.path().join("data"), "x").unwrap();
        drop(dropped);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
        let kept = Scratch::create(parent.path()).unwrap().keep();
        assert!(kept.is_dir());
    }
}
