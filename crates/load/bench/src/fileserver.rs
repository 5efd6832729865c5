//! The file server of filebench (`fileserver`): threads that create, append to, read, delete and stat files.
//!
//! A thread repeats 11 operations: create a file, write it whole, close; open one, append, close; open one, read it
//! whole, close; delete one; stat one. Nothing is synced.
//!
//! Differences from the original: each thread has its own share of the files (see [`crate::file_set`]), and all
//! files are in one directory, not in a tree of directories with 20 entries on average.

use crate::error::BenchError;
use crate::file_calls::FileCalls;
use crate::file_set::FileSet;
use crate::loops::{FileLoop, Share, UsualLoops};

/// A thread with its share of the files.
#[derive(Debug)]
pub struct Fileserver(FileSet);

impl FileLoop for Fileserver {
    const NAME: &'static str = "fileserver";
    const HELP: &'static str = "Each thread repeats 11 operations: create, write the whole file, close; open, append, \
        close; open, read the whole file, close; delete a file; stat a file. New files have the sizes of those at the \
        start. The defaults are those of filebench.";
    const USUAL: UsualLoops = UsualLoops {
        threads: "50",
        files: "10000",
        mean_size: "128k",
        append: "16k",
        runtime: "60s",
    };
    /// One of five does not exist at the start, and is created first.
    const FILES_MIN: u64 = 5;
    const WRITES_WHOLE: bool = true;

    fn prepare(share: &Share<'_>, calls: &mut FileCalls) -> Result<Self, BenchError> {
        FileSet::prepared(share, calls).map(Self)
    }

    fn once(&mut self, calls: &mut FileCalls) -> Result<(), BenchError> {
        let Self(set) = self;
        let file = calls.open(set.draw_absent(), true)?;
        let bytes = set.file_length();
        calls.write_whole(&file, bytes)?;
        set.put(calls.close(file)?, bytes);

        let (path, bytes) = set.draw();
        let file = calls.open(path, false)?;
        let more = set.append_length();
        calls.append(&file, more)?;
        set.put(calls.close(file)?, bytes + more);

        let (path, bytes) = set.draw();
        let file = calls.open(path, false)?;
        calls.read_whole(&file, bytes)?;
        set.put(calls.close(file)?, bytes);

        let (path, _) = set.draw();
        calls.delete(&path)?;
        set.put_absent(path);

        let (path, bytes) = set.draw();
        calls.stat(&path)?;
        set.put(path, bytes);
        Ok(())
    }
}
