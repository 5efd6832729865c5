//! fio as a side, with options that make it measure the same as tidegate.
//!
//! - `psync`, `mmap` or `io_uring`; threads instead of processes, each with its own file of the same size. As in
//!   tidegate, the file either exists (overwrite) or is created empty (`fallocate=none`).
//! - `fadvise_hint=0`: by default fio advises the kernel of its order, which changes read-ahead. `end_fsync=1`: its
//!   window ends with the same sync as tidegate's. `invalidate=0`: the cache is prepared beforehand, as for tidegate.
//! - `random_generator=lfsr`: each block once, in an order without neighbours. The default map takes the next free
//!   block after a collision, and read-ahead benefits from that. The offsets differ from tidegate's, their
//!   distribution does not.
//! - Zeros, not refilled; one latency per operation (`disable_slat`, `disable_lat`), as in tidegate.
//!
//! fio reports whole milliseconds, and for several threads the longest, each from its own start: the late start of a
//! thread is not visible. The C loop reports its time both ways.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::cell::{Cell, Engine, Mode, Pattern, Place};
use crate::error::JudgeError;
use crate::journal::Speed;
use crate::program::{Program, beginning};

const NEXT_STEP: &str = "install the package fio";

/// fio as installed on this machine.
#[derive(Debug)]
pub struct Fio {
    path: PathBuf,
    /// Version as printed by fio (`fio-3.33`).
    pub version: String,
}

#[derive(Deserialize)]
struct Answer {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    error: i64,
    read: Direction,
    write: Direction,
}

#[derive(Deserialize)]
struct Direction {
    total_ios: u64,
    /// Milliseconds; for several threads the longest.
    runtime: u64,
}

impl Fio {
    /// Runs fio for its version.
    ///
    /// # Errors
    /// When it does not run.
    pub fn find(path: &Path) -> Result<Self, JudgeError> {
        let version = Program::new(path, NEXT_STEP).args(["--version"]).answer()?;
        Ok(Self {
            path: path.to_owned(),
            version: version.trim().to_owned(),
        })
    }

    /// Prepares the files for fio: files of full length, or none.
    ///
    /// # Errors
    /// When the files can't be created.
    pub fn prepare(&self, cell: &Cell, place: &Place, file_bytes: u64) -> Result<Files, JudgeError> {
        let folder = tempfile::Builder::new()
            .prefix("judge-fio-")
            .tempdir_in(&place.directory)
            .map_err(|error| JudgeError::io("make a folder in", &place.directory, error))?;
        let paths = (0..cell.threads)
            .map(|number| folder.path().join(format!("data.{number}")))
            .collect();
        let files = Files { folder, paths };
        if cell.pattern != Pattern::Append {
            for path in &files.paths {
                fill(path, file_bytes)?;
            }
        }
        Ok(files)
    }

    /// Runs a cell on prepared files.
    ///
    /// # Errors
    /// When it fails or does a different number of operations.
    pub fn run(
        &self,
        cell: &Cell,
        place: &Place,
        files: &Files,
        file_bytes: u64,
    ) -> Result<Speed, JudgeError> {
        if cell.pattern == Pattern::Append {
            for path in &files.paths {
                remove(path)?;
            }
        }
        // Open files keep their inodes in memory; tidegate too has its files open while the cache is dropped.
        let _held: Vec<File> = files
            .paths
            .iter()
            .filter_map(|path| File::open(path).ok())
            .collect();
        if cell.wants_cold(place) {
            drop_caches()?;
            self.load()?;
        }
        let program = Program::new(&self.path, NEXT_STEP)
            .args(arguments(cell, files.folder.path(), file_bytes))
            .current_dir(files.folder.path());
        let line = program.line();
        let answer = program.answer()?;
        let expected_count = file_bytes / 4096 * u64::from(cell.threads);
        parse(&answer, expected_count).map_err(|expected| JudgeError::Answer {
            command: line,
            expected,
            found: beginning(&answer),
        })
    }

    /// Loads fio itself into the cache; otherwise its code would be read from disk within its window.
    fn load(&self) -> Result<(), JudgeError> {
        let found = std::env::var_os("PATH").and_then(|path| {
            std::env::split_paths(&path)
                .map(|folder| folder.join(&self.path))
                .find(|path| path.is_file())
        });
        if let Some(path) = found {
            let _ = fs::read(path);
        }
        Self::find(&self.path).map(|_| ())
    }
}

/// The files of a cell; removed on drop.
#[derive(Debug)]
pub struct Files {
    folder: tempfile::TempDir,
    paths: Vec<PathBuf>,
}

/// Syncs, then drops the machine's caches (root).
fn drop_caches() -> Result<(), JudgeError> {
    Program::new("sync", "install coreutils").answer()?;
    let path = Path::new("/proc/sys/vm/drop_caches");
    fs::write(path, "3\n").map_err(|error| JudgeError::io("write", path, error))
}

fn remove(path: &Path) -> Result<(), JudgeError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(JudgeError::io("remove", path, error))
        }
        _ => Ok(()),
    }
}

/// Creates a file of full length in 1 MiB chunks with a sync at the end, as tidegate prepares its files.
///
/// # Errors
/// When a system call fails.
pub fn fill(path: &Path, bytes: u64) -> Result<(), JudgeError> {
    use std::io::Write;
    let chunk = vec![0xA5; 1 << 20];
    let mut file = File::create(path).map_err(|error| JudgeError::io("create", path, error))?;
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()));
        file.write_all(&chunk[..part])
            .map_err(|error| JudgeError::io("write", path, error))?;
        left -= u64::try_from(part).unwrap_or(left);
    }
    file.sync_all()
        .map_err(|error| JudgeError::io("sync", path, error))
}

fn arguments(cell: &Cell, folder: &Path, file_bytes: u64) -> Vec<String> {
    let pattern = match cell.pattern {
        Pattern::SequentialWrite | Pattern::Append => "write",
        Pattern::RandomWrite => "randwrite",
        Pattern::Mixed => "randrw",
        Pattern::SequentialRead => "read",
        Pattern::RandomRead => "randread",
    };
    let engine = match cell.engine {
        Engine::Calls if cell.mode.is_mapped() => "mmap",
        Engine::Calls => "psync",
        Engine::Ring(_) => "io_uring",
    };
    // fio separates file names by colons.
    let folder = folder.to_string_lossy().replace(':', "\\:");
    let mut arguments = vec![
        "--name=judge".to_owned(),
        format!("--filename_format={folder}/data.$jobnum"),
        format!("--size={file_bytes}"),
        "--bs=4096".to_owned(),
        format!("--rw={pattern}"),
        format!("--ioengine={engine}"),
        format!("--numjobs={}", cell.threads),
    ];
    let fixed = [
        "--thread=1",
        "--group_reporting=1",
        "--fadvise_hint=0",
        "--invalidate=0",
        "--fallocate=none",
        "--random_generator=lfsr",
        "--zero_buffers=1",
        "--scramble_buffers=0",
        "--disable_slat=1",
        "--disable_lat=1",
        "--output-format=json",
    ];
    arguments.extend(fixed.map(str::to_owned));
    if let Engine::Ring(depth) = cell.engine {
        // As in tidegate: reap all completions available, submit all free slots in one call, register file and
        // buffers.
        arguments.push(format!("--iodepth={depth}"));
        arguments.push("--iodepth_batch_complete_min=1".to_owned());
        arguments.push(format!("--iodepth_batch_complete_max={depth}"));
        arguments.push(format!("--iodepth_batch_submit={depth}"));
        arguments.extend(["--fixedbufs=1", "--registerfiles=1"].map(str::to_owned));
    }
    if cell.pattern == Pattern::Mixed {
        arguments.push("--rwmixread=50".to_owned());
    }
    if !cell.pattern.only_reads() {
        arguments.push("--end_fsync=1".to_owned());
    }
    let mode = match cell.mode {
        Mode::Buffered | Mode::Mmap | Mode::MmapAsync => None,
        Mode::Sync => Some("--sync=sync"),
        Mode::DataSync => Some("--sync=dsync"),
        Mode::Fsync | Mode::MmapSync => Some("--fsync=1"),
        Mode::Fdatasync => Some("--fdatasync=1"),
        Mode::Direct | Mode::DirectSync => Some("--direct=1"),
    };
    arguments.extend(mode.map(str::to_owned));
    if cell.mode == Mode::DirectSync {
        arguments.push("--sync=sync".to_owned());
    }
    arguments
}

/// Finds the JSON: some builds of fio print notes before it.
fn parse(text: &str, expected_count: u64) -> Result<Speed, String> {
    let json = text.find('{').map_or("", |start| &text[start..]);
    let answer: Answer = serde_json::from_str(json).map_err(|error| format!("JSON of fio ({error})"))?;
    let [job] = answer.jobs.as_slice() else {
        return Err("one group of jobs".to_owned());
    };
    if job.error != 0 {
        return Err("error 0".to_owned());
    }
    let operations_count = job.read.total_ios + job.write.total_ios;
    if operations_count != expected_count {
        return Err(format!("{expected_count} operations, not {operations_count}"));
    }
    let runtime_ms = job.read.runtime.max(job.write.runtime).max(1);
    Ok(Speed::new(operations_count, runtime_ms.saturating_mul(1_000_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_read_behind_a_note_and_a_short_run_is_refused() {
        let text = r#"fio: note
            {"jobs":[{"error":0,"read":{"total_ios":3,"runtime":2},"write":{"total_ios":5,"runtime":4}}]}"#;
        let speed = parse(text, 8).unwrap();
        assert_eq!((speed.operations_count, speed.elapsed_ns), (8, 4_000_000));
        assert!(parse(text, 9).unwrap_err().contains("9 operations, not 8"));
        assert!(
            parse("fio: no such engine", 8)
                .unwrap_err()
                .contains("JSON of fio")
        );
    }
}
