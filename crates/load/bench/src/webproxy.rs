//! The web proxy of filebench (`webproxy`): threads that delete, create and read small files, and write a log.
//!
//! A thread repeats 20 operations: delete a file; create one, append, close; five times open one, read it whole, close;
//! append to the log. Nothing is synced. All files are in one directory, as the published mean width exceeds their number.
//!
//! Differences from the original: each thread has its own share of the files (see [`crate::file_set`]) and its own
//! log. The log is in filebench's description of the workload; its `webproxy.f` has only the other 19 operations.
//!
//! Limit: the logs grow until the end of the run; the check of the free space does not include them.

use crate::error::BenchError;
use crate::file_calls::{FileCalls, OpenFile};
use crate::file_set::FileSet;
use crate::loops::{FileLoop, Share, UsualLoops};

/// A thread with its share of the files and its log, which stays open.
#[derive(Debug)]
pub struct Webproxy {
    set: FileSet,
    log: OpenFile,
}

impl FileLoop for Webproxy {
    const NAME: &'static str = "webproxy";
    const HELP: &'static str = "Each thread repeats 20 operations: delete a file; create, append, close; five times open, \
        read the whole file, close; append to the thread's log, which stays open. The defaults are those of filebench.";
    const USUAL: UsualLoops = UsualLoops {
        threads: "100",
        files: "10000",
        mean_size: "16k",
        append: "16k",
        runtime: "60s",
    };

    fn prepare(share: &Share<'_>, calls: &mut FileCalls) -> Result<Self, BenchError> {
        let set = FileSet::prepared(share, calls)?;
        let path = share.directory.join(format!("log-{:07}", share.thread));
        let log = calls.open(path, true)?;
        Ok(Self { set, log })
    }

    fn once(&mut self, calls: &mut FileCalls) -> Result<(), BenchError> {
        let Self { set, log } = self;
        let (path, _) = set.draw();
        calls.delete(&path)?;
        set.put_absent(path);

        let file = calls.open(set.draw_absent(), true)?;
        let bytes = set.append_length();
        calls.append(&file, bytes)?;
        set.put(calls.close(file)?, bytes);

        for _ in 0..5 {
            let (path, bytes) = set.draw();
            let file = calls.open(path, false)?;
            calls.read_whole(&file, bytes)?;
            set.put(calls.close(file)?, bytes);
        }
        calls.append(log, set.append_length())
    }

    fn finish(self) -> Result<(), BenchError> {
        FileCalls::close_after_loops(self.log)
    }
}
