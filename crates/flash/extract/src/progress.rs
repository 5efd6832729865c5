//! Counts of an extraction, and an observer of its files.

use std::fmt;

use ubifs::format::EntryKind;

use crate::walk::Visited;

/// Sees the files that are visited, as for a spinner.
pub trait Watch {
    /// A file is about to be written.
    fn visit(&mut self, visited: &Visited);

    /// No more files follow.
    fn finish(&mut self) {}
}

/// Counts of the files that were written.
pub struct Progress {
    watch: Box<dyn Watch>,
    /// Number of directories.
    pub directories: u64,
    /// Number of regular files, one for each name.
    pub files: u64,
    /// Number of all others.
    pub others: u64,
    /// Sum of the sizes of regular files, bytes.
    pub bytes: u64,
}

impl Progress {
    /// Starts at nothing.
    #[must_use]
    pub fn new(watch: Box<dyn Watch>) -> Self {
        Self {
            watch,
            directories: 0,
            files: 0,
            others: 0,
            bytes: 0,
        }
    }

    /// Ends the observer's work.
    pub fn finish(&mut self) {
        self.watch.finish();
    }

    pub(crate) fn visit(&mut self, visited: &Visited) {
        self.watch.visit(visited);
    }

    /// Counts a file that was written; `bytes` is its size.
    pub(crate) fn count(&mut self, kind: Option<EntryKind>, bytes: u64) {
        match kind {
            Some(EntryKind::Directory) => self.directories += 1,
            Some(EntryKind::File) => {
                self.files += 1;
                self.bytes = self.bytes.saturating_add(bytes);
            }
            _ => self.others += 1,
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "Progress({} directories, {} files, {} others, {} bytes)",
            self.directories, self.files, self.others, self.bytes
        )
    }
}
