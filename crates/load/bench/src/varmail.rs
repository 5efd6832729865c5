//! The mail server of filebench (`varmail`): threads that delete, create, append to, sync and read small files.
//!
//! A thread repeats 13 operations: delete a file; create one, append, fsync, close; open one, read it whole, append,
//! fsync, close; open one, read it whole, close. All files are in a single directory: the published mean width,
//! 1,000,000, exceeds their number.
//!
//! Difference from the original: each thread has its own share of the files (see [`crate::file_set`]).

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use serde::Serialize;

use crate::error::BenchError;
use crate::file_calls::{FileCalls, OpenFile};
use crate::file_set::FileSet;
use crate::loops::Loops;
use crate::progress::Progress;
use crate::workload::{Outcome, Workload};

/// The specification of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VarmailSpec {
    /// An existing directory; the run creates its own directory inside.
    pub directory: PathBuf,
    /// Usually 16 threads on 1,000 files of 16 KiB, with appends of up to 16 KiB, for 60 seconds.
    #[serde(flatten)]
    pub loops: Loops,
}

impl Workload for VarmailSpec {
    fn check(&self) -> Result<(), BenchError> {
        self.loops.check()
    }

    fn run(&self, seed: u64, progress: &dyn Progress, stop: &AtomicBool) -> Result<Outcome, BenchError> {
        let outcome = Outcome::new("varmail", self, &self.directory);
        self.loops
            .run(outcome, &self.directory, once, seed, progress, stop)
    }
}

/// The 13 operations.
fn once(calls: &mut FileCalls, set: &mut FileSet) -> Result<(), BenchError> {
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

/// Appends and syncs; returns the length.
fn append(calls: &mut FileCalls, set: &mut FileSet, file: &OpenFile) -> Result<u64, BenchError> {
    let bytes = set.append_length();
    calls.append(file, bytes)?;
    calls.sync(file)?;
    Ok(bytes)
}
