//! The mail server of filebench (`varmail`): threads that delete, create, append to, sync and read small files.
//!
//! A thread repeats 13 operations: delete a file; create one, append, fsync, close; open one, read it whole, append,
//! fsync, close; open one, read it whole, close. All files are in a single directory: the published mean width,
//! 1,000,000, exceeds their number.
//!
//! Difference from the original: each thread has its own share of the files (see [`crate::file_set`]).

use crate::error::BenchError;
use crate::file_calls::{FileCalls, OpenFile};
use crate::file_set::FileSet;
use crate::loops::{FileLoop, Share, UsualLoops};

/// A thread with its share of the files.
#[derive(Debug)]
pub struct Varmail(FileSet);

impl FileLoop for Varmail {
    const NAME: &'static str = "varmail";
    const HELP: &'static str = "Each thread repeats 13 operations: delete a file; create, append, fsync, close; open, read \
        the whole file, append, fsync, close; open, read the whole file, close. The defaults are those of filebench.";
    const USUAL: UsualLoops = UsualLoops {
        threads: "16",
        files: "1000",
        mean_size: "16k",
        append: "16k",
        runtime: "60s",
    };

    fn prepare(share: &Share<'_>, calls: &mut FileCalls) -> Result<Self, BenchError> {
        FileSet::prepared(share, calls).map(Self)
    }

    fn once(&mut self, calls: &mut FileCalls) -> Result<(), BenchError> {
        let Self(set) = self;
        let (path, _) = set.draw();
        calls.delete(&path)?;
        set.put_absent(path);

        let file = calls.open(set.draw_absent(), true)?;
        let bytes = append(calls, set, &file)?;
        set.put(calls.close(file)?, bytes);

        let (path, bytes) = set.draw();
        let file = calls.open(path, false)?;
        calls.read_whole(&file, bytes)?;
        let bytes = bytes + append(calls, set, &file)?;
        set.put(calls.close(file)?, bytes);

        let (path, bytes) = set.draw();
        let file = calls.open(path, false)?;
        calls.read_whole(&file, bytes)?;
        set.put(calls.close(file)?, bytes);
        Ok(())
    }
}

/// Appends and syncs; returns the length.
fn append(calls: &mut FileCalls, set: &mut FileSet, file: &OpenFile) -> Result<u64, BenchError> {
    let bytes = set.append_length();
    calls.append(file, bytes)?;
    calls.sync(file)?;
    Ok(bytes)
}
