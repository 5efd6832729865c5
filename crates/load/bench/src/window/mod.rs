//! System counters of a timed window: processors, block device, the process's own I/O, system calls.
//!
//! There are three steps, so that only the workload runs between the second and the third: [`Window::prepare`] before
//! the workers are started (they inherit the counting of calls), [`Window::begin`] when all of them wait at the start
//! barrier, [`Running::finish`] when the last one has finished.
//!
//! This module does not interpret a counter for a workload and never invents one: counters that this system does not
//! provide are missing, and named in [`WindowOutcome::absent`] with the reason.
//!
//! Limits that must be stated with the numbers:
//! - the block device is counted as a whole, including its use by other programs;
//! - data still in the page cache at the end of the window has not reached the device, so write amplification is
//!   meaningful only for windows that end with a sync;
//! - counting system calls makes each of them slower (some 0.1 us), for the whole machine; it is done only on
//!   request.

mod calls;
mod device;
mod process_io;

use std::collections::BTreeMap;
use std::path::Path;

use results::{counter, nearest_f64};
use serde::{Deserialize, Serialize};

use self::calls::CallCounters;
use self::device::{Device, DeviceSnapshot};
use self::process_io::ProcessIo;
use crate::processor::{ProcessorSnapshot, ProcessorUse};

/// Whether system calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountCalls {
    /// No: no call is slowed down.
    No,
    /// In total and by kind, by the kernel's trace points.
    Yes,
}

/// A counter that this system does not provide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Absent {
    /// The unavailable counters.
    pub what: &'static str,
    /// The reason, and the remedy.
    pub reason: String,
}

/// Bytes that the workload itself transferred in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Read through system calls or mappings.
    pub read_bytes: u64,
    /// Written through system calls or mappings.
    pub written_bytes: u64,
}

/// The counters of a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowOutcome {
    /// Processor use of the whole machine; `None` if the window was too short to tell.
    pub processor: Option<ProcessorUse>,
    /// All other counters, ready for a run record; the unit is the last word of the name.
    pub counters: BTreeMap<String, f64>,
    /// Unavailable counters.
    pub absent: Vec<Absent>,
}

/// A window that has not yet begun.
#[derive(Debug)]
pub struct Window {
    device: Option<Device>,
    calls: Option<CallCounters>,
    absent: Vec<Absent>,
}

impl Window {
    /// Determines the available counters for a workload in `directory`.
    ///
    /// Call it from the thread that starts the workers, before it does so: calls are counted in this thread and in
    /// those that it starts from then on.
    #[must_use]
    pub fn prepare(directory: &Path, calls: CountCalls) -> Self {
        let mut absent = Vec::new();
        let device = Device::below(directory)
            .map_err(|reason| {
                let what = "block device";
                absent.push(Absent { what, reason });
            })
            .ok();
        let calls = match calls {
            CountCalls::No => None,
            CountCalls::Yes => CallCounters::open()
                .map_err(|reason| {
                    let what = "system calls";
                    absent.push(Absent { what, reason });
                })
                .ok(),
        };
        Self {
            device,
            calls,
            absent,
        }
    }

    /// Starts counting. Must be the last call before the workers are released.
    #[must_use]
    pub fn begin(mut self) -> Running {
        let device = self.device.as_ref().and_then(Device::snapshot);
        let process_io = ProcessIo::take();
        let processor = ProcessorSnapshot::take();
        if let Some(Err(reason)) = self.calls.as_ref().map(CallCounters::start) {
            self.calls = None;
            let what = "system calls";
            self.absent.push(Absent { what, reason });
        }
        Running {
            window: self,
            device,
            process_io,
            processor,
        }
    }
}

/// A window that has begun.
#[derive(Debug)]
pub struct Running {
    window: Window,
    device: Option<DeviceSnapshot>,
    process_io: Option<ProcessIo>,
    processor: Option<ProcessorSnapshot>,
}

impl Running {
    /// Ends the window. Must be the first call after the last worker has finished; byte counts can be computed later.
    #[must_use]
    pub fn finish(self) -> Finished {
        let calls = self.window.calls.map(CallCounters::stop);
        let processor = ProcessorSnapshot::take()
            .zip(self.processor)
            .and_then(|(after, before)| after.since(&before));
        let process_io = ProcessIo::take()
            .zip(self.process_io)
            .map(|(after, before)| after.since(before));
        let after = self.window.device.as_ref().and_then(Device::snapshot);
        let device = after.zip(self.device).map(|(after, before)| after.since(&before));
        let mut absent = self.window.absent;
        let calls = match calls {
            None => BTreeMap::new(),
            Some(Ok(calls)) => calls,
            Some(Err(reason)) => {
                let what = "system calls";
                absent.push(Absent { what, reason });
                BTreeMap::new()
            }
        };
        if process_io.is_none() {
            let reason =
                "/proc/self/io can't be read; the kernel is built without task I/O accounting".to_owned();
            let what = "process I/O";
            absent.push(Absent { what, reason });
        }
        Finished {
            processor,
            process_io,
            device,
            calls,
            absent,
        }
    }
}

/// A window that has ended; its counters are not yet related to the bytes that the workload transferred.
#[derive(Debug)]
pub struct Finished {
    processor: Option<ProcessorUse>,
    process_io: Option<ProcessIo>,
    device: Option<DeviceSnapshot>,
    calls: BTreeMap<String, f64>,
    absent: Vec<Absent>,
}

impl Finished {
    /// All counters, including those relative to the bytes that the workload transferred.
    #[must_use]
    pub fn outcome(self, moved: Moved) -> WindowOutcome {
        let mut counters = self.calls;
        let mut insert = |name: &str, value: f64| counters.insert(name.to_owned(), value);
        if let Some(io) = self.process_io {
            insert(counter::PROCESS_READ_CALLS, nearest_f64(io.read_calls));
            insert(counter::PROCESS_WRITE_CALLS, nearest_f64(io.write_calls));
            insert(counter::PROCESS_STORAGE_READ, nearest_f64(io.storage_read_bytes));
            insert(
                counter::PROCESS_STORAGE_WRITTEN,
                nearest_f64(io.storage_written_bytes),
            );
        }
        if let Some(device) = &self.device {
            for (name, value) in device.counters() {
                insert(name, nearest_f64(value));
            }
            if moved.written_bytes > 0 {
                let ratio = nearest_f64(device.written_bytes) / nearest_f64(moved.written_bytes);
                insert(counter::WRITE_AMPLIFICATION, ratio);
            }
        }
        // Without a block device the kernel accounts no storage reads, and everything would look like a cache hit.
        if let (Some(io), Some(_)) = (self.process_io, &self.device)
            && moved.read_bytes > 0
        {
            let missed = nearest_f64(io.storage_read_bytes) / nearest_f64(moved.read_bytes);
            insert(counter::PAGE_CACHE_HIT, 100.0 * (1.0 - missed).max(0.0));
        }
        WindowOutcome {
            processor: self.processor,
            counters,
            absent: self.absent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::thread;

    /// A directory on the file system of the build, which usually is a real one.
    fn directory() -> tempfile::TempDir {
        let target = std::env::current_exe().unwrap();
        tempfile::tempdir_in(target.parent().unwrap()).unwrap()
    }

    fn absent(outcome: &WindowOutcome, what: &str) -> Option<String> {
        let found = outcome.absent.iter().find(|absent| absent.what == what)?;
        Some(found.reason.clone())
    }

    #[test]
    fn calls_of_threads_started_after_the_preparation_are_counted_by_kind() {
        let directory = directory();
        let window = Window::prepare(directory.path(), CountCalls::Yes);
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let path = directory.path().join("data");
        let worker = thread::spawn(move || {
            let mut file = File::create(path).unwrap();
            wait.recv().unwrap();
            for _ in 0..5 {
                file.write_all(&[1; 4096]).unwrap();
                file.sync_data().unwrap();
            }
            file.sync_all().unwrap();
        });
        let running = window.begin();
        go.send(()).unwrap();
        worker.join().unwrap();
        let outcome = running.finish().outcome(Moved {
            read_bytes: 0,
            written_bytes: 5 * 4096,
        });
        if let Some(reason) = absent(&outcome, "system calls") {
            testkit::report_left_out(&reason);
            assert!(
                !outcome
                    .counters
                    .keys()
                    .any(|name| name.starts_with("system_calls"))
            );
            return;
        }
        assert_eq!(outcome.counters["system_calls_fdatasync_count"], 5.0);
        assert_eq!(outcome.counters["system_calls_fsync_count"], 1.0);
        // Other tests of this process run in other threads: only this test's calls are counted.
        assert_eq!(outcome.counters["system_calls_write_count"], 5.0);
        assert!(outcome.counters[counter::SYSTEM_CALLS] >= 11.0);
    }

    #[test]
    fn bytes_synced_to_a_block_device_are_seen_there() {
        let directory = directory();
        let running = Window::prepare(directory.path(), CountCalls::No).begin();
        let mut file = File::create(directory.path().join("data")).unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let outcome = running.finish().outcome(Moved {
            read_bytes: 0,
            written_bytes: 1 << 20,
        });
        assert!(!outcome.counters.contains_key(counter::SYSTEM_CALLS));
        if let Some(reason) = absent(&outcome, "block device") {
            testkit::report_left_out(&reason);
            assert!(!outcome.counters.contains_key(counter::WRITE_AMPLIFICATION));
            return;
        }
        assert!(outcome.counters[counter::DEVICE_WRITTEN] >= f64::from(1 << 20));
        assert!(outcome.counters[counter::WRITE_AMPLIFICATION] >= 1.0);
        assert!(outcome.counters[counter::PROCESS_STORAGE_WRITTEN] >= f64::from(1 << 20));
    }

    #[test]
    fn a_file_system_without_a_device_says_so_and_claims_no_cache_hits() {
        let outcome = Window::prepare(Path::new("/proc"), CountCalls::No)
            .begin()
            .finish()
            .outcome(Moved {
                read_bytes: 4096,
                written_bytes: 4096,
            });
        assert!(absent(&outcome, "block device").is_some());
        assert!(!outcome.counters.contains_key(counter::PAGE_CACHE_HIT));
        assert!(!outcome.counters.contains_key(counter::WRITE_AMPLIFICATION));
    }
}
