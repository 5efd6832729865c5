//! Threads of workers that start together at a gate.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::{self, Scope};

use crate::error::BenchError;
use crate::gate::Gate;

/// Starts the thread of a worker; what its work gives goes to `finished`. A worker that fails raises `failed` for the others,
/// and cancels the gate, which it may not have reached.
///
/// # Errors
/// When no thread is to be had; the gate is cancelled then.
pub fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    index: u32,
    gate: &'scope Gate,
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
                gate.cancel();
            }
            // The receiver outlives the scope, so this cannot fail.
            let _ = finished.send(answer);
        });
    match spawned {
        Ok(_) => Ok(()),
        Err(source) => {
            gate.cancel();
            Err(BenchError::Thread {
                worker: index,
                source,
            })
        }
    }
}
