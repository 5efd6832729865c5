//! [`Buffered`]: creates, drains and drops a buffer, and reads its statistics. Its file system calls are in `calls`.

use std::sync::Arc;
use std::thread::JoinHandle;

use vfs::FileSystem;

use crate::config::{BufferConfig, BufferConfigError, Flusher};
use crate::engine::Engine;
use crate::entry::byte_count;
use crate::manager;
use crate::slot::Slot;
use crate::stats::{BufferStats, FlushCause};

/// A file system whose writes are buffered.
///
/// Creating it may start a thread: a process that forks into the background forks first. Dropping it drains the buffer
/// and ends the thread.
#[derive(Debug)]
pub struct Buffered<F: FileSystem> {
    pub(crate) engine: Arc<Engine<F>>,
    /// Joined on drop; `None` without a manager thread.
    manager: Option<JoinHandle<()>>,
}

impl<F: FileSystem> Buffered<F> {
    /// Puts a buffer over `inner`.
    ///
    /// # Errors
    /// If the configuration is invalid, or the host provides no memory or thread.
    pub fn new(inner: F, config: BufferConfig) -> Result<Self, BufferConfigError> {
        let config = config.validated()?;
        let engine = Arc::new(Engine::new(inner, config, slots(&config)?));
        let manager = if config.flusher == Flusher::Off {
            None
        } else {
            let engine = Arc::clone(&engine);
            let thread = std::thread::Builder::new().name("flush-manager".into());
            Some(
                thread
                    .spawn(move || manager::run(&engine))
                    .map_err(|source| BufferConfigError::Thread { source })?,
            )
        };
        Ok(Self { engine, manager })
    }

    /// The file system below, which lacks the buffered data.
    pub fn inner(&self) -> &F {
        &self.engine.inner
    }

    /// Writes out everything buffered at the time of the call and waits for it. Errors are recorded for the files'
    /// handles.
    pub fn drain(&self) {
        self.engine.flush_all(FlushCause::Drain);
    }

    /// Statistics since the buffer was created.
    pub fn stats(&self) -> BufferStats {
        let free = byte_count(self.engine.central.lock().free.len());
        BufferStats {
            entries_total: self.engine.entries_total(),
            entries_in_use: self.engine.entries_total() - free,
            degraded: self.engine.space.is_on(),
            manager_rounds: self.engine.central.manager_rounds(),
            ..self.engine.counters.snapshot()
        }
    }
}

fn slots(config: &BufferConfig) -> Result<Vec<Slot>, BufferConfigError> {
    if config.flusher == Flusher::Off {
        return Ok(Vec::new());
    }
    let memory = |source| BufferConfigError::Memory {
        buffer_bytes: config.buffer_bytes,
        source,
    };
    let entry_bytes =
        usize::try_from(config.entry_bytes).map_err(|_| memory(std::io::ErrorKind::OutOfMemory.into()))?;
    (0..config.buffer_bytes / config.entry_bytes)
        .map(|_| Slot::new(entry_bytes).map_err(memory))
        .collect()
}

impl<F: FileSystem> Drop for Buffered<F> {
    fn drop(&mut self) {
        if let Some(manager) = self.manager.take() {
            self.engine.central.stop_manager();
            // A manager that panicked leaves entries behind, as one that stopped does: they are written next.
            let _ = manager.join();
        }
        self.drain();
    }
}
