//! The measuring process in the lab guest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use results::RunRecord;
use runner::Watcher;

use super::{Order, RECORDS, drive};
use crate::child::{Children, this_program};
use crate::folder::{Folder, set_place};
use crate::measure::{Blocks, Limits};
use crate::plan::{Device, Environment, GuestPart, Plan, Run, TimeScale, Values, Variant};
use crate::warm;

/// Folder of mounts and traces in the guest, in memory.
const WORK: &str = "/run/tidegate-study";

/// Measures the blocks of a shared folder on the guest's drives, and writes their records there.
///
/// # Errors
/// If this is no lab guest, whose drives may be overwritten, or a record can't be written.
pub fn measure(share: &Path, stop: &AtomicBool) -> Result<()> {
    let kernel = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    if !kernel
        .split_whitespace()
        .any(|word| word.starts_with("lab.modules="))
    {
        bail!("this is no lab guest, and its drives would be overwritten");
    }
    let order = Order::read(share)?;
    let tidegate = this_program()?;
    let folder = Folder::open(Path::new(WORK))?;
    for (index, ordered) in order.blocks.iter().enumerate() {
        let plan = plan(&order, drive(index)?);
        let blocks = [ordered.block.clone()];
        let series = Blocks {
            plan: &plan,
            blocks: &blocks,
            sides: vec![vec![0]],
            folder: &folder,
            children: Children {
                tidegate: &tidegate,
                study: folder.path(),
                stop,
            },
            scale: 1.0,
            stored: Vec::new(),
            replaced: BTreeSet::new(),
            limits: Limits::default(),
            race: None,
            watcher: &Silent,
            rounds: order.round.saturating_add(1),
            began: Instant::now(),
            without_guest: None,
            memory: warm::Held::default(),
        };
        let Some(mut records) = series.block(0, order.round)? else {
            bail!("stopped");
        };
        let mut lines = String::new();
        for record in &mut records {
            set_place(record, |place| place.block = ordered.number);
            lines += &serde_json::to_string(record)?;
            lines.push('\n');
        }
        let mut file = outfile::append(&share.join(RECORDS), outfile::Readers::Umask)?;
        file.write_all(lines.as_bytes())
            .and_then(|()| file.sync_all())
            .context("the records can't be returned")?;
    }
    Ok(())
}

/// A plan for one block on a drive of the guest.
fn plan(order: &Order, drive: PathBuf) -> Plan {
    Plan {
        name: "guest".to_owned(),
        environment: Environment {
            device: Device::Block(drive),
            time_scale: TimeScale::Fixed(1.0),
            // The whole guest has it.
            dirty_limit: None,
            size: None,
            destroy_data: true,
            guest: GuestPart {
                time_scale: 1.0,
                size: None,
                cell_time: order.cell_time(),
            },
        },
        defaults: Values::new(),
        settings: BTreeMap::new(),
        exhibits: Vec::new(),
        run: Run {
            rounds: order.round.saturating_add(1),
            cell_time: order.cell_time(),
            quick: Variant::default(),
            full: Variant::default(),
        },
        binaries: order.binaries.clone(),
    }
}

/// Shows nothing: the host's study does.
struct Silent;

impl Watcher for Silent {
    fn begin(&self, _title: &str) {}
    fn end(&self) {}
    fn say(&self, _text: &str) {}
    fn table(&self, _text: &str) -> std::io::Result<()> {
        Ok(())
    }
    fn record(&self, _record: &RunRecord) -> std::io::Result<runner::Readers> {
        Ok(runner::Readers::Present)
    }
}
