//! The layers of a bFUSE mount: the host folder, the write buffer over it, and their statistics.

use std::sync::Arc;

use anyhow::{Result, bail};
use buffer::{Buffered, Flusher};
use fuse::{StatsDocument, Switch};
use passfs::{AccessTimeRule, AccessTimes, IdMap, PassConfig, PassFs};

use crate::daemon::Served;
use crate::mount_options::{IdPlan, MountPlan};
use crate::{end_status, source_overlap, stats_document};

/// The layers below the FUSE session.
pub struct Stack {
    buffered: Arc<Buffered<PassFs>>,
}

/// Start writing out a stream after each default buffer entry, not only at fsync.
const WRITE_OUT_BYTES: u64 = 2 << 20;
/// Direct writes slower than this, in bytes per second, cost a stream more than the page cache does. Measured against the
/// page cache with early write-out: 0.86 of its throughput on a card of 37 MB/s, 0.8 on cards of 330 and 735, equal on one of
/// 900, faster on a disk of 2100.
const STREAM_DIRECT_RATE_MIN: u64 = 1_000_000_000;

impl Stack {
    /// Opens the source and creates the buffer; mounts nothing.
    pub fn build(plan: &MountPlan) -> Result<Self> {
        let config = PassConfig {
            id_map: id_map(plan.ids),
            // `ro` is only the kernel's flag, because a remount may clear it.
            read_only: false,
            write_out_bytes: (plan.buffer.flusher != Flusher::Off).then_some(WRITE_OUT_BYTES),
            stream_direct_after_bytes: plan.stream_after_bytes,
            stream_direct_rate_min: STREAM_DIRECT_RATE_MIN,
            offer_backing: plan.session.passthrough != Switch::Off,
            access_times: access_times(&plan.session.kernel_options),
        };
        let source = PassFs::open(&plan.source, config)?;
        if !source.has_own_tree() {
            source_overlap::refuse(&plan.source, &plan.mountpoint)?;
        }
        let buffered = Buffered::new(source, plan.buffer)?;
        Ok(Self {
            buffered: Arc::new(buffered),
        })
    }

    /// The file system for the session, with its statistics and drain.
    pub fn served(self, plan: &MountPlan) -> Served {
        Served {
            file_system: self.buffered.clone(),
            statistics: self.statistics(plan),
            drain: Box::new(move || self.drain()),
        }
    }

    /// The producer of the `tidegate stats` document.
    fn statistics(&self, plan: &MountPlan) -> StatsDocument {
        let buffered = self.buffered.clone();
        let source = plan.source.display().to_string();
        stats_document::producer(source, end_status::descriptor(), move || {
            (buffered.stats(), buffered.inner().counters())
        })
    }

    /// Writes all buffered data to the source. Fails if data was lost without an error to any program.
    fn drain(&self) -> Result<()> {
        self.buffered.drain();
        let stats = self.buffered.stats();
        let untold = stats.errors_pending + stats.errors_unclaimed;
        if untold > 0 {
            bail!(
                "data of {untold} files could not be written to the source, and no program is left that would get the error"
            );
        }
        Ok(())
    }
}

/// The access time rule of the mount options; `strictatime` wins over `noatime`, as in mount(2).
fn access_times(kernel_options: &[String]) -> AccessTimes {
    let has = |word: &str| kernel_options.iter().any(|option| option == word);
    let rule = match (has("strictatime"), has("noatime")) {
        (true, _) => Some(AccessTimeRule::Always),
        (false, true) => Some(AccessTimeRule::Never),
        (false, false) => None,
    };
    AccessTimes {
        rule,
        spare_directories: has("nodiratime"),
    }
}

/// The id map of the folder. Defaults are the daemon's ids, because it creates all files in the source.
fn id_map(ids: IdPlan) -> Option<IdMap> {
    ids.maps().then(|| IdMap {
        uid: ids.uid.unwrap_or_else(|| rustix::process::geteuid().as_raw()),
        gid: ids.gid.unwrap_or_else(|| rustix::process::getegid().as_raw()),
        umask: ids.umask.unwrap_or(0),
    })
}
