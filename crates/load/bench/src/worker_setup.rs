//! Setup of a worker: opens its files and starts its thread.

use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::thread::Scope;

use crate::access::Target;
use crate::descriptors::take_own_table;
use crate::error::BenchError;
use crate::order::RecordOrder;
use crate::spec::{Cache, FileSpec};
use crate::threads;
use crate::worker::{Answer, Shared, Worker, WorkerOutcome};

/// A worker without a thread.
pub struct WorkerSetup<'run> {
    pub index: u32,
    pub order: RecordOrder,
    /// The files of all workers.
    pub files: &'run [PathBuf],
}

impl<'run> WorkerSetup<'run> {
    /// Opens (and maps) the worker's files.
    pub fn open(&self, spec: &FileSpec) -> Result<Target, BenchError> {
        let number = usize::try_from(spec.file_of(self.index)).expect("file numbers fit in memory");
        let further = usize::try_from(spec.files_of_each - 1).expect("file numbers fit in memory");
        let mut target = Target::open(&self.files[number], spec, spec.base_of(self.index))?;
        target.go_on_in(&self.files[number + 1..=number + further], spec)?;
        Ok(target)
    }

    /// Starts the worker's thread, with its own file descriptor table if the kernel allows one. The thread opens its
    /// files and waits at the barrier.
    pub fn start<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        spec: &'run FileSpec,
        shared: &'scope Shared<'_>,
        finished: Sender<Answer>,
    ) -> Result<(), BenchError>
    where
        'run: 'scope,
    {
        let index = self.index;
        let work = move || {
            // SAFETY: the thread was started for this closure, which received no descriptor. The worker closes every
            // descriptor that it opens in this thread, and its result contains none.
            let shared_table = unsafe { take_own_table() }.err();
            let target = self.open(spec)?;
            if spec.cache == Cache::Warm {
                // Faults in the pages of a mapping.
                target.prefault(spec.pattern.writes())?;
            }
            let outcome = Worker::new(spec, index, target, self.order).run(shared)?;
            Ok(outcome.map(|outcome| WorkerOutcome {
                shared_table,
                ..outcome
            }))
        };
        threads::start(scope, index, &shared.barrier, &shared.failed, finished, work)
    }
}
