//! The threads that serve requests, and their reports to the session: that they ended, and why.
//!
//! A panic in a request ends its thread, not the process: the session notices, starts another thread for the same
//! transport, and ends.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::MountError;
use crate::dispatch::Dispatcher;

/// Number of running workers, and the reason why the session ends.
#[derive(Default)]
pub struct Life {
    pub workers: usize,
    /// Workers whose thread panicked and was not replaced.
    pub panicked: Vec<Arc<Worker>>,
    pub stop_asked: bool,
    pub failure: Option<Failure>,
}

/// A transport of requests.
pub trait Serve: Send {
    /// Serves requests until the connection ends or the dispatcher is closed. After a panic in a request it may be
    /// called again, from another thread: it then first answers that request with `EIO`.
    fn serve(&mut self, dispatcher: &Dispatcher) -> io::Result<()>;
}

/// A transport, and the thread that locks and serves it.
pub struct Worker {
    name: String,
    transport: Mutex<Box<dyn Serve>>,
}

/// Reason for the end of a session that was neither unmounted nor stopped.
pub enum Failure {
    /// The transport broke.
    Io(io::Error),
    /// A request panicked in the worker of this name.
    Panic(String),
}

impl Failure {
    pub fn into_error(self) -> MountError {
        match self {
            Self::Io(source) => MountError::Protocol {
                doing: "serving requests",
                source,
            },
            Self::Panic(worker) => MountError::Panicked { worker },
        }
    }
}

#[derive(Default)]
pub struct Shared {
    life: Mutex<Life>,
    pub changed: Condvar,
}

impl Shared {
    /// Locks the state. Panics happen in requests, never under this lock.
    pub fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().expect("no panic under this lock")
    }

    /// Waits for a change, until `deadline` at the latest.
    pub fn wait_until<'a>(&self, life: MutexGuard<'a, Life>, deadline: Instant) -> MutexGuard<'a, Life> {
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout(life, left);
        waited.expect("no panic under this lock").0
    }
}

/// Removes a worker from the count when its thread ends, also by a panic.
struct WorkerGuard {
    shared: Arc<Shared>,
    worker: Arc<Worker>,
}

impl Drop for WorkerGuard {
    fn drop(&mut self) {
        let mut life = self.shared.life();
        life.workers -= 1;
        if thread::panicking() {
            life.panicked.push(self.worker.clone());
            life.failure
                .get_or_insert_with(|| Failure::Panic(self.worker.name.clone()));
        }
        self.shared.changed.notify_all();
    }
}

impl Worker {
    pub fn new(name: String, transport: Box<dyn Serve>) -> Self {
        let transport = Mutex::new(transport);
        Self { name, transport }
    }

    /// Serves in a new thread.
    pub fn start(
        self: Arc<Self>,
        dispatcher: Arc<Dispatcher>,
        shared: Arc<Shared>,
    ) -> io::Result<JoinHandle<()>> {
        let builder = thread::Builder::new()
            .name(self.name.clone())
            .stack_size(256 << 10);
        shared.life().workers += 1;
        let guard = WorkerGuard { shared, worker: self };
        builder.spawn(move || {
            // After a panic in a request the transport remembers that request (see `Serve::serve`).
            let transport = guard.worker.transport.lock();
            let mut transport = transport.unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = transport.serve(&dispatcher) {
                guard.shared.life().failure.get_or_insert(Failure::Io(error));
            }
        })
    }
}
