//! Everything in a dump of raw flash: all partitions, their volumes, and the files in them.
//!
//! The crate `image` finds and reads; this module names, writes and reports. Names come from the dump and are not trusted:
//! [`names`] makes harmless ones of them, and all files are made below a descriptor of a new folder.

pub mod member;
pub mod names;
pub mod report;
mod target;
mod volumes;

use image::{Dump, Part, Survey, unreadable_since};
use serde_json::{Value, json};
use ubifs::MasterKey;

use self::names::Names;
pub use self::target::{Archive, Folder, Target};
use self::volumes::Volumes;
use crate::budget::Budget;
use crate::error::Result;
use crate::losses::{SALVAGE_HINT, Tell};
use crate::progress::Watch;

/// Options of unpacking.
#[derive(Debug)]
pub struct Unpacking<'a> {
    /// The dump.
    pub dump: &'a Dump,
    /// Its parts.
    pub survey: &'a Survey,
    /// Keys of encrypted files.
    pub keys: &'a [MasterKey],
    /// Whether file systems are read by all nodes that a scan finds.
    pub salvages: bool,
    /// Whether deleted files are written, too.
    pub lists_deleted: bool,
    /// Limits.
    pub budget: &'a Budget,
    /// Receives a line for each loss and note.
    pub tell: Tell,
    /// Makes an observer of the files of a file system.
    pub watch: fn() -> Box<dyn Watch>,
}

impl Unpacking<'_> {
    /// Unpacks all parts, or lists them without a target. Returns the report and the number of losses.
    ///
    /// # Errors
    /// If the target can't be written as a whole.
    pub fn run<'d>(&self, mut target: Option<&mut (dyn Target + 'd)>) -> Result<(Value, u64)> {
        let mut names = Names::default();
        let mut parts = Vec::new();
        let (mut losses, mut may_get_more) = (0, false);
        for finding in &self.survey.findings {
            losses += report::tell(self.tell, b"", finding);
        }
        for part in &self.survey.parts {
            let folder = names.unique(&match part {
                Part::Ubi(partition) => partition.image_sequence.to_string(),
                Part::Ubifs(bare) => format!("ubifs-{:#x}", bare.offset),
            });
            let mut volumes = Volumes {
                tell: self.tell,
                watch: self.watch,
                keys: self.keys,
                salvages: self.salvages,
                lists_deleted: self.lists_deleted,
                budget: self.budget,
                folder: &folder,
                names: Names::default(),
                target: target.as_deref_mut(),
                losses: 0,
                may_get_more: false,
            };
            parts.push(match part {
                Part::Ubi(partition) => volumes.partition(partition)?,
                Part::Ubifs(bare) => volumes.bare(bare)?,
            });
            losses += volumes.losses;
            may_get_more |= volumes.may_get_more;
        }
        let late = unreadable_since(self.dump);
        for finding in &late {
            losses += report::tell(self.tell, b"", finding);
        }
        if may_get_more {
            (self.tell)(SALVAGE_HINT);
        }
        let areas: Vec<Value> = self.survey.areas.iter().map(report::area).collect();
        let findings = self.survey.findings.iter().chain(&late);
        let findings: Vec<Value> = findings.map(report::finding).collect();
        let report = json!({
            "dump": &*self.dump.name(),
            "offset": self.dump.base(),
            "bytes": self.dump.bytes(),
            "parts": parts,
            "areas": areas,
            "findings": findings,
            "losses": losses,
            "complete": losses == 0 && !self.budget.is_stopped(),
        });
        Ok((report, losses))
    }
}
