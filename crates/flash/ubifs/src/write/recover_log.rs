//! Recovery of the log: cuts off a torn end, and frees a log filled up by interrupted commits.

use media::Leb;
use ubi::Volume;

use super::log::{Log, unit};
use super::{WriteError, Writer};
use crate::finding::{Damage, Subject};
use crate::format::{CommitStart, LogReference};
use crate::report::{LogEntry, LogLeb, LogNode, LogVerdict};
use crate::scan::{Stop, scan, to_usize};

impl Writer {
    /// Cuts off torn writes in the log. Linux takes a torn write for the end of the log, and refuses to mount once a
    /// commit was started in the LEB behind it.
    pub(super) fn cut_torn_log(&self) -> Result<(), WriteError> {
        if self.ubifs.report.was_clean {
            return Ok(());
        }
        let log = self.ubifs.report.log.iter();
        for LogLeb { leb, nodes, .. } in log.filter(|leb| leb.verdict == LogVerdict::Taken) {
            let (raw, is_uncorrectable) = self.leb_as_it_is(*leb, 0)?;
            let scanned = scan(&raw, 0);
            if scanned.nodes.len() < nodes.len() {
                let damage = Damage::Contradiction("it reads differently each time");
                return Err(self.unreadable_leb(Subject::Log, *leb, damage));
            }
            let unit = to_usize(self.ubifs.superblock.min_io_bytes);
            let is_torn = scanned.stop != Stop::Erased || !scanned.end.is_multiple_of(unit);
            if is_torn || is_uncorrectable {
                self.clean_leb(*leb, &raw[..scanned.end])?;
            }
        }
        Ok(())
    }

    /// Ensures that a commit finds a log LEB to start in: each interrupted commit took one, and Linux adds references
    /// to new buds there in the meantime.
    ///
    /// Compacts all references to the start of the log, without duplicates. The LEBs are changed atomically, one
    /// after the other, and no reference moves to a later LEB than before, so that each reference is in one of them
    /// at any time.
    pub(super) fn make_room_in_log(&mut self) -> Result<(), WriteError> {
        if !self.log.is_full() {
            return Ok(());
        }
        let (leb_bytes, unit_bytes) = (
            self.ubifs.superblock.leb_bytes,
            self.ubifs.superblock.min_io_bytes,
        );
        let log = self.ubifs.report.log.iter();
        let nodes = log
            .filter(|leb| leb.verdict == LogVerdict::Taken)
            .flat_map(|leb| &leb.nodes);
        let mut lebs: Vec<Vec<u8>> = vec![Vec::new()];
        for node in nodes.filter_map(|node| self.still_needed(node)) {
            match lebs.last_mut() {
                Some(last) if last.len() + node.len() <= to_usize(leb_bytes) => last.extend(node),
                _ => lebs.push(node),
            }
        }
        if lebs.len() >= self.ubifs.report.log_lebs.len() {
            let why = "the log has no room for another commit";
            let start = (self.ubifs.master.log_leb, 0);
            return Err(self.contradiction(Subject::Log, start, why));
        }
        // The rest of the log LEBs are unmapped together with the unused ones.
        self.ubifs.report.log_lebs.truncate(lebs.len());
        for (leb, raw) in self.ubifs.report.log_lebs.iter().zip(lebs) {
            self.volume.leb_change(Leb(*leb), &unit(raw, unit_bytes))?;
        }
        self.log = Log::of(&self.ubifs);
        Ok(())
    }

    /// A log node in its original form, unless an earlier one says the same.
    fn still_needed(&self, node: &LogNode) -> Option<Vec<u8>> {
        match node.what {
            LogEntry::CommitStart { commit } if commit == self.ubifs.master.commit => {
                Some(CommitStart { commit }.encode(node.sequence))
            }
            LogEntry::Reference {
                leb,
                offset,
                head,
                is_repeated: false,
            } => Some(LogReference { leb, offset, head }.encode(node.sequence)),
            _ => None,
        }
    }
}
