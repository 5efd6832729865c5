//! What `tidegate ubifs mount -o rw` serves, and the work that goes on beside it.
//!
//! A thread writes out every few seconds what nobody synced, commits a journal that grew long, and has the devices erase and level
//! wear. It ends before the file system is unmounted.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use ubifs::mkfs::Time;
use ubifs::{LossListener, MountedOptions, MountedWriter, Writer, WriterStatistics};

use super::source::Devices;
use crate::output::print_error;

/// How long what nobody synced may stay in memory.
const INTERVAL: Duration = Duration::from_secs(3);
/// Erases and moves of a device in one go.
const DEVICE_STEPS: u32 = 32;

/// A file system that is written to, with its devices.
pub struct Writable {
    mounted: Arc<MountedWriter>,
    devices: Arc<Devices>,
    /// Dropped, it ends the thread.
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Writable {
    /// Starts the work beside it.
    pub fn start(
        writer: Writer,
        options: MountedOptions,
        devices: Devices,
        listener: LossListener,
    ) -> Result<Self> {
        let mounted = MountedWriter::new(writer, listener, Box::new(now)).with_options(options);
        let mounted = Arc::new(mounted);
        let devices = Arc::new(devices);
        let (stop, stopped) = channel();
        let (of_thread, devices_of_thread) = (Arc::clone(&mounted), Arc::clone(&devices));
        let work = move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let worked = of_thread.work().map_err(anyhow::Error::from);
                let Err(error) = worked.and_then(|()| devices_of_thread.work(DEVICE_STEPS)) else {
                    continue;
                };
                // Those that use it get errors of their own.
                print_error(&format!("work beside the file system failed: {error:#}"));
                if of_thread.statistics().failure.is_some() {
                    print_error("it is read-only from here on; unmount it and see to the device");
                    return;
                }
            }
        };
        let thread = thread::Builder::new()
            .name("ubifs-work".into())
            .spawn(work)
            .context("the thread for background work can't be started")?;
        Ok(Self {
            mounted,
            devices,
            stop,
            thread,
        })
    }

    /// What is served.
    pub const fn mounted(&self) -> &Arc<MountedWriter> {
        &self.mounted
    }

    /// Ends the work, commits, and unmounts.
    pub fn finish(self) -> Result<()> {
        drop(self.stop);
        // A panic in it was printed by the panic hook.
        let _ = self.thread.join();
        let closed = self.mounted.close().map_err(anyhow::Error::from);
        closed
            .and_then(|()| self.devices.finish())
            .with_context(|| {
                let heads = self.mounted.statistics().heads;
                let bytes: u64 = heads.iter().map(|head| head.buffered_bytes).sum();
                format!(
                    "the file system was not closed: what was synced is on the medium, of what was written since up to {bytes} \
                     bytes are lost, and the next mount recovers the rest"
                )
            })
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: since.subsec_nanos(),
    }
}

/// Its counters, as members of the document of `tidegate stats`.
pub fn counters(statistics: &WriterStatistics) -> Map<String, Value> {
    let heads: Map<String, Value> = statistics
        .heads
        .iter()
        .map(|head| {
            let counters = json!({
                "bytes": head.bytes,
                "padding_bytes": head.padding_bytes,
                "buffered_bytes": head.buffered_bytes,
            });
            (head.name.to_owned(), counters)
        })
        .collect();
    Map::from_iter([
        ("commits".to_owned(), statistics.commits.into()),
        ("syncs".to_owned(), statistics.syncs.into()),
        ("collected_lebs".to_owned(), statistics.collected_lebs.into()),
        ("collected_bytes".to_owned(), statistics.collected_bytes.into()),
        ("reclaimed_lebs".to_owned(), statistics.reclaimed_lebs.into()),
        ("heads".to_owned(), heads.into()),
        ("journal_bytes".to_owned(), statistics.journal_bytes.into()),
        (
            "journal_bytes_max".to_owned(),
            statistics.journal_bytes_max.into(),
        ),
        ("index_bytes".to_owned(), statistics.index_bytes.into()),
        ("empty_lebs".to_owned(), statistics.empty_lebs.into()),
        ("reserved_lebs".to_owned(), statistics.reserved_lebs.into()),
        ("free_bytes".to_owned(), statistics.free_bytes.into()),
        ("orphans".to_owned(), statistics.orphans.into()),
        ("unreadable_lebs".to_owned(), statistics.unreadable_lebs.into()),
        ("is_read_only".to_owned(), statistics.failure.is_some().into()),
        ("failure".to_owned(), statistics.failure.as_deref().into()),
    ])
}
