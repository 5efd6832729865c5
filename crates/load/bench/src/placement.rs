//! Placement of a workload's files: in the run's own directory, or under names that persist across runs.
//!
//! Persistent files follow the original Mobibench. A run uses an existing file under such a name: a file that is long
//! enough stays as it is, a shorter one is extended. A run that fails removes the files that it created, and the data
//! that it added to others.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::prepare::{Filled, fill, grow, kind_name};
use crate::progress::{Phase, Progress};
use crate::spec::FileSpec;

/// The placement of a workload's files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilePlacement {
    /// In the run's own directory inside the given one; removed unless the workload keeps it.
    #[default]
    OwnDirectory,
    /// In the given directory, named by the prefix and the file number, counted from 0. They persist.
    Named {
        /// The name before the number.
        prefix: String,
    },
}

/// Files under persistent names.
#[derive(Debug)]
pub struct NamedFiles {
    paths: Vec<PathBuf>,
    /// Changes to undo if the run fails.
    changes: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Made(PathBuf),
    Extended { path: PathBuf, length_before: u64 },
}

/// Bytes that the workload's files need in addition to the existing data.
pub fn missing_bytes(spec: &FileSpec, prefix: &str) -> u64 {
    paths(spec, prefix)
        .map(|path| fs::metadata(path).map_or(0, |found| found.len()))
        .map(|found| spec.bytes_in_a_file().saturating_sub(found))
        .fold(0, u64::saturating_add)
}

impl NamedFiles {
    /// Creates or reuses the files: with content if the workload reads or overwrites it, at full length if it maps
    /// them.
    pub fn prepare(
        spec: &FileSpec,
        prefix: &str,
        progress: &dyn Progress,
        stop: &AtomicBool,
    ) -> Result<Self, BenchError> {
        let mut files = Self {
            paths: Vec::new(),
            changes: Vec::new(),
        };
        for (number, path) in (0..).zip(paths(spec, prefix)) {
            files.prepare_one(spec, &path, number, progress, stop)?;
            files.paths.push(path);
        }
        Ok(files)
    }

    /// The files, in numerical order.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Keeps the files, after a successful run.
    pub fn keep(mut self) {
        self.changes.clear();
    }

    fn prepare_one(
        &mut self,
        spec: &FileSpec,
        path: &Path,
        number: u32,
        progress: &dyn Progress,
        stop: &AtomicBool,
    ) -> Result<(), BenchError> {
        let (content_bytes, full_bytes) = (spec.prepared_bytes_in_a_file(), spec.bytes_in_a_file());
        if content_bytes == 0 {
            remove(path)?;
        }
        let (file, length_before) = self.open(path)?;
        if length_before < content_bytes {
            let (before, total) = (
                content_bytes * u64::from(number),
                content_bytes * u64::from(spec.files()),
            );
            let filled = Filled {
                spec,
                path,
                file: &file,
                number,
                from: length_before,
                length: content_bytes,
            };
            fill(filled, stop, |done| {
                progress.advance(Phase::Prepare, before + done, total)
            })?;
        }
        if spec.mode.is_mapped() && content_bytes < full_bytes {
            grow(path, &file, full_bytes)?;
        }
        Ok(())
    }

    /// Opens or creates the file, returns it with its length, and records the change to undo.
    fn open(&mut self, path: &Path) -> Result<(File, u64), BenchError> {
        let failed = |error| BenchError::io("open", path, error);
        match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(file) => {
                self.changes.push(Change::Made(path.to_owned()));
                Ok((file, 0))
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let link = fs::symlink_metadata(path).map_err(failed)?;
                let own = rustix::process::geteuid().as_raw();
                if link.is_symlink() && ![0, own].contains(&link.uid()) {
                    return Err(BenchError::NotAFile {
                        path: path.to_owned(),
                        kind: "another user's symbolic link",
                    });
                }
                // The type is checked before the open: opening a pipe would wait for its reader.
                let found = fs::metadata(path).map_err(failed)?;
                if !found.is_file() {
                    return Err(BenchError::NotAFile {
                        path: path.to_owned(),
                        kind: kind_name(found.file_type()),
                    });
                }
                let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
                self.changes.push(Change::Extended {
                    path: path.to_owned(),
                    length_before: found.len(),
                });
                Ok((file, found.len()))
            }
            Err(error) => Err(failed(error)),
        }
    }
}

impl Drop for NamedFiles {
    fn drop(&mut self) {
        for change in self.changes.drain(..) {
            // An earlier error is already being reported; it says more than one about the cleanup.
            let _ = change.take_back();
        }
    }
}

impl Change {
    fn take_back(self) -> io::Result<()> {
        match self {
            Self::Made(path) => fs::remove_file(path),
            Self::Extended { path, length_before } => {
                let file = OpenOptions::new().write(true).open(path)?;
                if file.metadata()?.len() > length_before {
                    file.set_len(length_before)?;
                }
                Ok(())
            }
        }
    }
}

fn paths(spec: &FileSpec, prefix: &str) -> impl Iterator<Item = PathBuf> {
    (0..spec.files()).map(move |number| spec.directory.join(format!("{prefix}{number}")))
}

/// Removes a file of an earlier run, so that writes allocate.
fn remove(path: &Path) -> Result<(), BenchError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(BenchError::io("unlink", path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::NoProgress;
    use crate::spec::{DataPattern, Pattern, WriteTarget};

    const PREFIX: &str = "test.dat";

    fn spec(folder: &Path, target: WriteTarget) -> FileSpec {
        let mut spec = FileSpec::plain(folder.to_owned(), Pattern::SequentialWrite, 4096, 8192);
        spec.write_target = target;
        spec.data = DataPattern::Constant(1);
        spec.threads = 2;
        spec
    }

    fn prepare(spec: &FileSpec) -> Result<NamedFiles, BenchError> {
        NamedFiles::prepare(spec, PREFIX, &NoProgress, &AtomicBool::new(false))
    }

    #[test]
    fn files_that_are_kept_have_what_was_there_and_the_filling_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let first = folder.path().join("test.dat0");
        fs::write(&first, [9; 100]).unwrap();
        prepare(&spec(folder.path(), WriteTarget::ExistingFile))
            .unwrap()
            .keep();
        let content = fs::read(&first).unwrap();
        assert_eq!(
            (&content[..100], &content[100..]),
            ([9; 100].as_slice(), [1; 8092].as_slice())
        );
        assert_eq!(fs::read(folder.path().join("test.dat1")).unwrap(), [1; 8192]);
    }

    #[test]
    fn a_failed_run_takes_back_what_it_made_and_added() {
        let folder = tempfile::tempdir().unwrap();
        let first = folder.path().join("test.dat0");
        fs::write(&first, [9; 100]).unwrap();
        drop(prepare(&spec(folder.path(), WriteTarget::ExistingFile)).unwrap());
        assert_eq!(fs::read(&first).unwrap(), [9; 100]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_new_file_takes_the_place_of_an_earlier_one() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("test.dat1"), [9; 100]).unwrap();
        let files = prepare(&spec(folder.path(), WriteTarget::NewFile)).unwrap();
        assert!(
            files
                .paths()
                .iter()
                .all(|path| fs::read(path).unwrap().is_empty())
        );
        files.keep();
    }

    #[test]
    fn a_link_of_another_user_is_refused_and_not_followed() {
        if !testkit::needs(&[testkit::Need::Root]) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (secret, link) = (folder.path().join("secret"), folder.path().join("test.dat0"));
        fs::write(&secret, [9; 100]).unwrap();
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(1234), None).unwrap();
        let error = prepare(&spec(folder.path(), WriteTarget::ExistingFile)).unwrap_err();
        assert!(matches!(&error, BenchError::NotAFile { .. }), "{error}");
        assert_eq!(fs::read(&secret).unwrap(), [9; 100]);
        std::os::unix::fs::lchown(&link, Some(0), None).unwrap();
        prepare(&spec(folder.path(), WriteTarget::ExistingFile))
            .unwrap()
            .keep();
        assert_eq!(fs::read(&secret).unwrap().len(), 8192);
    }

    #[test]
    fn something_else_under_the_name_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let second = folder.path().join("test.dat1");
        fs::create_dir(&second).unwrap();
        let error = prepare(&spec(folder.path(), WriteTarget::ExistingFile)).unwrap_err();
        assert!(
            matches!(&error, BenchError::NotAFile { path, .. } if *path == second),
            "{error}"
        );
        assert!(second.is_dir());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn space_is_needed_for_what_is_missing_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("test.dat0"), [9; 100]).unwrap();
        fs::write(folder.path().join("test.dat1"), [9; 9000]).unwrap();
        let spec = spec(folder.path(), WriteTarget::ExistingFile);
        assert_eq!(missing_bytes(&spec, PREFIX), 8092);
    }
}
