//! Creates the initial state before the window.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, retry_on_intr};

use super::ReplaySpec;
use super::initial::{Initial, InitialFile};
use crate::data::Content;
use crate::error::BenchError;
use crate::progress::{Phase, Progress};
use crate::spec::DataPattern;

/// The file that stands for the device of a block trace.
pub const IMAGE: &str = "image";

const CHUNK_BYTES: usize = 1 << 20;

/// Number of small files between progress reports and checks of the stop flag.
const BATCH: usize = 256;

/// The prepared files.
#[derive(Debug, Default)]
pub struct Prepared {
    pub files: Vec<PathBuf>,
}

/// Creates directories and files below `root` and syncs them. Stops early, without an error, if `stop` is raised.
pub fn prepare(
    initial: &Initial,
    root: &Path,
    spec: &ReplaySpec,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Prepared, BenchError> {
    for directory in &initial.directories {
        let path = root.join(directory);
        fs::create_dir_all(&path).map_err(|error| BenchError::io("mkdir", &path, error))?;
    }
    let mut prepared = Prepared::default();
    let mut filling = Filling {
        content: Content::prepared(CHUNK_BYTES, DataPattern::Random, spec.seed),
        done: 0,
        total: initial.filled_bytes(),
        progress,
        stop,
    };
    for (number, (path, file)) in initial.files.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            return Ok(prepared);
        }
        if number % BATCH == 0 {
            progress.advance(Phase::Prepare, filling.done, filling.total);
        }
        let path = root.join(path);
        filling.make(&path, file)?;
        prepared.files.push(path);
    }
    progress.advance(Phase::Prepare, filling.done, filling.total);
    sync(root)?;
    Ok(prepared)
}

/// One call for all files: a trace may need ten thousand small ones.
fn sync(root: &Path) -> Result<(), BenchError> {
    let opened = File::open(root).map_err(|error| BenchError::io("open", root, error))?;
    rustix::fs::syncfs(&opened).map_err(|errno| BenchError::io("syncfs", root, errno))
}

struct Filling<'run> {
    content: Content,
    done: u64,
    total: u64,
    progress: &'run dyn Progress,
    stop: &'run AtomicBool,
}

impl Filling<'_> {
    fn make(&mut self, path: &Path, file: &InitialFile) -> Result<(), BenchError> {
        let made = OpenOptions::new().write(true).create_new(true).open(path);
        let made = made.map_err(|error| BenchError::io("open", path, error))?;
        if file.bytes > 0 {
            made.set_len(file.bytes)
                .map_err(|error| BenchError::io("ftruncate", path, error))?;
        }
        for (start, end) in &file.filled {
            self.fill(&made, path, *start, *end)?;
        }
        Ok(())
    }

    fn fill(&mut self, file: &File, path: &Path, start: u64, end: u64) -> Result<(), BenchError> {
        let mut offset = start;
        while offset < end && !self.stop.load(Ordering::Relaxed) {
            let part = usize::try_from(end - offset).map_or(CHUNK_BYTES, |rest| rest.min(CHUNK_BYTES));
            let content = &self.content.at(offset, 0)[..part];
            let moved = retry_on_intr(|| rustix::io::pwrite(file, content, offset))
                .and_then(|moved| if moved == 0 { Err(Errno::IO) } else { Ok(moved) })
                .map_err(|errno| BenchError::data("write", path, offset, errno))?;
            let moved = u64::try_from(moved).expect("lengths in memory fit in 64 bits");
            offset += moved;
            self.done += moved;
            if part == CHUNK_BYTES {
                self.progress.advance(Phase::Prepare, self.done, self.total);
            }
        }
        Ok(())
    }
}
