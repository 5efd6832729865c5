//! Spawns the threads of workers, which start together at a barrier.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::{self, Scope};

use crate::error::BenchError;
use crate::start_barrier::StartBarrier;

/// Starts the thread of a worker and sends its result to `finished`. A worker that fails sets `failed` for the others
/// and cancels the barrier, which it may not have reached.
///
/// # Errors
/// If no thread can be started; the barrier is then cancelled.
pub fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    index: u32,
    barrier: &'scope StartBarrier,
    failed: &'scope AtomicBool,
    finished: Sender<Result<T, BenchError>>,
    work: impl FnOnce() -> Result<T, BenchError> + Send + 'scope,
) -> Result<(), BenchError> {
    let spawned = thread::Builder::new()
        .name(format!("bench-{index}"))
        .spawn_scoped(scope, move || {
            let answer = work();
            if answer.is_err() {
                failed.store(true, Ordering::Relaxed);
                barrier.cancel();
            }
            // The receiver outlives the scope, so this cannot fail.
            let _ = finished.send(answer);
        });
    match spawned {
        Ok(_) => Ok(()),
        Err(source) => {
            barrier.cancel();
            Err(BenchError::Thread {
                worker: index,
                source,
            })
        }
    }
}
