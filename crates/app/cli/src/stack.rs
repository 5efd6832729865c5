//! The layers of a bFUSE mount, put together: the host folder, the write buffer over it, and their statistics.

use std::sync::Arc;

use anyhow::{Result, bail};
use buffer::{Buffered, Flusher};
use fuse::{StatsDocument, Switch};
use passfs::{AccessTimeRule, AccessTimes, IdMap, PassConfig, PassFs};

use crate::daemon::Served;
use crate::mount_options::{IdPlan, MountPlan};
use crate::{source_overlap, stats_document};

/// The layers below the FUSE session.
pub struct Stack {
    buffered: Arc<Buffered<PassFs>>,
}

/// The medium starts on a stream after each usual buffer entry instead of at fsync.
const WRITE_OUT_BYTES: u64 = 2 << 20;

impl Stack {
    /// Opens the source and makes the buffer; nothing is mounted yet.
    pub fn build(plan: &MountPlan) -> Result<Self> {
        let config = PassConfig {
            id_map: id_map(plan.ids),
            // `ro` is the kernel's flag alone: a remount may switch it off.
            read_only: false,
            write_out_bytes: (plan.buffer.flusher != Flusher::Off).then_some(WRITE_OUT_BYTES),
            stream_direct_after_bytes: plan.stream_after_bytes,
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

    /// What the session serves.
    pub fn served(self, plan: &MountPlan) -> Served {
        Served {
            file_system: self.buffered.clone(),
            statistics: self.statistics(plan),
            drain: Box::new(move || self.drain()),
        }
    }

    /// Produces the document of `tidegate stats`.
    fn statistics(&self, plan: &MountPlan) -> StatsDocument {
        let buffered = self.buffered.clone();
        let source = plan.source.display().to_string();
        stats_document::producer(source, move || (buffered.stats(), buffered.inner().counters()))
    }

    /// Writes all buffered data to the source. Fails when data was lost and no program was told.
    fn drain(&self) -> Result<()> {
        self.buffered.drain();
        let stats = self.buffered.stats();
        let untold = stats.errors_pending + stats.errors_unclaimed;
        if untold > 0 {
            bail!(
                "data of {untold} files could not be written to the source, and no program was left to be told"
            );
        }
        Ok(())
    }
}

/// What the words of the mount say about access times; of two that contradict each other, mount(2) hears `strictatime`.
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

/// The map for the folder. What is not given is the daemon's own, as everything in the source will be.
fn id_map(ids: IdPlan) -> Option<IdMap> {
    ids.maps().then(|| IdMap {
        uid: ids.uid.unwrap_or_else(|| rustix::process::geteuid().as_raw()),
        gid: ids.gid.unwrap_or_else(|| rustix::process::getegid().as_raw()),
        umask: ids.umask.unwrap_or(0),
    })
}
