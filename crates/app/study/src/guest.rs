//! Cells in the lab guest: file systems that this machine's kernel lacks.
//!
//! In each round, every block gets a newly made device of this machine. One guest boots with all of them as drives, past
//! this machine's page cache, and this same program measures the blocks in it, one after the other. Both sides share a
//! folder: [`ORDER`] goes in, [`RECORDS`] comes out.
//!
//! Three processes: the study; its child [`boot`], which owns QEMU and ends with the study; and [`measure`] in the guest.

mod inside;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail};
use guest::{Ended, Folders, Job, Lab, Options};
use results::RunRecord;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use crate::bed::{Bed, text};
use crate::cell::{Block, Cell};
use crate::check;
use crate::child::{Children, STEP_TIME, this_program};
use crate::folder::{place, set_place};
use crate::measure::Blocks;
use crate::plan::{Binaries, Device};

pub use inside::measure;

/// The folder shared with the guest, below the study's folder.
pub const SHARE: &str = "guest";

/// The blocks to measure, in the shared folder.
const ORDER: &str = "order.json";

/// The records, in the shared folder.
const RECORDS: &str = "records.jsonl";

/// Drives of one guest: each is a PCI device.
pub const BLOCKS_MAX: usize = 16;

/// Time for the boot and the end of a guest.
const BOOT_TIME: Duration = Duration::from_secs(240);

/// Prepares the guest's kernel, which finds no modules by itself, and measures.
const SCRIPT: &str = r#"
for module in virtio_blk fuse f2fs nilfs2 vfat nls_cp437 nls_ascii nls_iso8859-1 nls_utf8 ext4 xfs btrfs bfq kyber-iosched
do
    modprobe -q "$module"
done
tries=300
until [ -b "$LAST" ]; do
    [ "$((tries -= 1))" -gt 0 ] || { echo "there is no $LAST"; exit 2; }
    sleep 0.1
done
if [ "$DIRTY" ]; then
    echo "$((DIRTY / 2))" >/proc/sys/vm/dirty_background_bytes
    echo "$DIRTY" >/proc/sys/vm/dirty_bytes
fi
exec "$TIDEGATE" study cells /host
"#;

/// The blocks of one round.
#[derive(Debug, Deserialize, Serialize)]
struct Order {
    /// The study's process.
    owner: i32,
    round: u32,
    blocks: Vec<Ordered>,
    cell_time_ms: u64,
    dirty_limit: Option<u64>,
    binaries: Binaries,
}

#[derive(Debug, Deserialize, Serialize)]
struct Ordered {
    /// Its number in the study.
    number: usize,
    block: Block,
    /// Its device on the host.
    device: PathBuf,
}

impl Order {
    fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(ORDER);
        let raw = fs::read(&path).with_context(|| format!("{} can't be read", path.display()))?;
        serde_json::from_slice(&raw).with_context(|| format!("{} is damaged", path.display()))
    }

    fn cell_time(&self) -> Duration {
        Duration::from_millis(self.cell_time_ms)
    }

    /// Limit of all cells together, with the steps around them.
    fn time(&self) -> Duration {
        let cells: usize = self.blocks.iter().map(|ordered| ordered.block.cells.len()).sum();
        let one = self.cell_time() + STEP_TIME;
        one.saturating_mul(u32::try_from(cells).unwrap_or(u32::MAX))
    }
}

/// Why no guest can be booted here.
#[must_use]
pub fn missing() -> Option<String> {
    Lab::installed().err().map(|why| why.to_string())
}

/// The virtual machine in words.
fn machine(children: &Children<'_>) -> Result<String> {
    let lab = Lab::installed()?;
    let said = children.run(Path::new("qemu-system-x86_64"), &["--version"], STEP_TIME)?;
    let version = said.split_whitespace().nth(3).unwrap_or("of unknown version");
    Ok(format!("QEMU {version}, {}", lab.accelerator()))
}

impl Blocks<'_> {
    /// The records of the blocks of a round that run in the guest; `None` if the study was stopped.
    pub(crate) fn in_guest(&mut self, numbers: &[usize], round: u32) -> Result<Option<Vec<RunRecord>>> {
        if self.without_guest.is_none() {
            self.without_guest = missing();
            if let Some(reason) = &self.without_guest {
                self.watcher
                    .say(&format!("left out: cells of the guest: {reason}"));
            }
        }
        let reason = |number: &usize| match &self.without_guest {
            Some(reason) => Some(reason.clone()),
            None => check::without_maker(self.blocks[*number].values.get("fs").map_or("", String::as_str)),
        };
        let (able, left): (Vec<usize>, Vec<usize>) =
            numbers.iter().partition(|number| reason(number).is_none());
        let mut records = Vec::new();
        for number in &left {
            for cell in self.cells(*number, round) {
                let mut record = self.record(*number, cell, round, Err(Error::msg("left out")));
                set_place(&mut record, |place| {
                    (place.failed, place.left_out) = (None, reason(number))
                });
                records.push(record);
            }
        }
        if able.is_empty() {
            return Ok(Some(records));
        }
        let share = self.folder.path().join(SHARE);
        // The guest's memory and devices need the place.
        self.memory.free();
        // Also the records of a guest that ended early are its own.
        let machine = machine(&self.children);
        let booted = match &machine {
            Ok(_) => self.boot_with(&able, round, &share),
            Err(error) => Err(Error::msg(programs::output::with_causes(error))),
        };
        if self.children.stop.load(Relaxed) {
            return Ok(None);
        }
        let mut found = returned(&share)?;
        // If it fails, the next round or `study clean` removes the folder.
        let _ = fs::remove_dir_all(&share);
        let problem = match &booted {
            Ok(()) => "the guest returned no record of it".to_owned(),
            Err(error) => programs::output::with_causes(error),
        };
        if found.is_empty() {
            self.without_guest = Some(problem.clone());
        }
        for number in able {
            for cell in self.cells(number, round) {
                let (measured, failed) = match found.remove(&(number, cell.clone())) {
                    Some((record, failed)) => (Ok(record), failed),
                    None => (Err(Error::msg(problem.clone())), Some(problem.clone())),
                };
                let mut record = self.record(number, cell, round, measured);
                set_place(&mut record, |place| {
                    place.failed = failed;
                    place.machine = machine.as_ref().ok().cloned();
                });
                records.push(record);
            }
        }
        Ok(Some(records))
    }

    /// Makes the devices of the blocks, and boots a guest with them until it has measured.
    fn boot_with(&self, numbers: &[usize], round: u32, share: &Path) -> Result<()> {
        if share.symlink_metadata().is_ok() {
            fs::remove_dir_all(share).with_context(|| format!("{} can't be removed", share.display()))?;
        }
        let made = DirBuilder::new().mode(0o700).create(share);
        made.with_context(|| format!("{} can't be made", share.display()))?;
        let mut environment = self.plan.environment.clone();
        environment.size = environment.guest.size.or(environment.size);
        let (mut beds, mut blocks) = (Vec::new(), Vec::new());
        for number in numbers {
            let device = if environment.device == Device::Image {
                let image = share.join(format!("disk-{number}.img"));
                let bytes = environment.size.unwrap_or(crate::bed::DEVICE_BYTES);
                let made = fs::File::create_new(&image).and_then(|file| file.set_len(bytes));
                made.with_context(|| format!("{} can't be made", image.display()))?;
                image
            } else {
                let scale = environment.guest.time_scale;
                let bed = Bed::make(self.children, self.folder.path(), &environment, scale)?;
                // The requests of the guest's scheduler reach the card as they are.
                bed.set_scheduler("none")?;
                let device = bed.device().context("the guest needs a device")?.to_owned();
                beds.push(bed);
                device
            };
            let cells = self.cells(*number, round);
            let mut block = self.blocks[*number].clone();
            block.cells.retain(|cell| cells.contains(&cell));
            block.rounds = vec![u32::MAX; block.cells.len()];
            blocks.push(Ordered {
                number: *number,
                block,
                device,
            });
        }
        let order = Order {
            owner: i32::try_from(std::process::id())?,
            round,
            blocks,
            cell_time_ms: u64::try_from(environment.guest.cell_time.as_millis())?,
            dirty_limit: environment.dirty_limit,
            binaries: self.plan.binaries.clone(),
        };
        outfile::write(&share.join(ORDER), &serde_json::to_vec(&order)?)?;
        let words = ["study", "guest", &text(share)?];
        self.children
            .tidegate(&words, BOOT_TIME.saturating_add(order.time()))?;
        Ok(())
    }
}

type Returned = BTreeMap<(usize, Cell), (RunRecord, Option<String>)>;

/// The records that the guest returned, with the reasons of those that failed.
fn returned(share: &Path) -> Result<Returned> {
    let stored = fs::read_to_string(share.join(RECORDS)).unwrap_or_default();
    let mut found = Returned::new();
    // A guest that ended may have cut the last line.
    for line in stored.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let record: RunRecord = serde_json::from_str(line).context("a record of the guest")?;
        let place = place(&record).context("a record of the guest")?;
        found.insert((place.block, place.cell), (record, place.failed));
    }
    Ok(found)
}

/// Boots a guest for the blocks in a shared folder, and returns when it has measured them: the study's child.
///
/// # Errors
/// If there is no guest, or it fails; with its last words.
pub fn boot(share: &Path) -> Result<()> {
    let order = Order::read(share)?;
    // QEMU ends with this process, and this process with the study, also by SIGKILL.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() != order.owner) {
        bail!(
            "{}: process {} of its study is gone; `tidegate study` starts this command",
            share.display(),
            order.owner
        );
    }
    let devices: Vec<PathBuf> = order
        .blocks
        .iter()
        .map(|ordered| ordered.device.clone())
        .collect();
    let last = drive(devices.len().saturating_sub(1))?;
    let options = Options {
        devices,
        folders: Folders::One(share.to_owned()),
        ..Options::default()
    };
    let mut guest = Lab::installed()?.boot(&options)?;
    let job = Job::new(SCRIPT)
        .variable("TIDEGATE", text(&this_program()?)?)
        .variable("LAST", text(&last)?)
        .variable(
            "DIRTY",
            order
                .dirty_limit
                .map_or_else(String::new, |limit| limit.to_string()),
        )
        .timeout(order.time());
    let outcome = guest.run(&job)?;
    let said = outcome.text();
    match outcome.ended {
        Ended::Code(0) => Ok(()),
        Ended::Code(code) => bail!(
            "the measuring process in the guest ended with code {code}: {}",
            said.trim_end()
        ),
        Ended::TimedOut => bail!("the guest did not end within {} s", order.time().as_secs()),
        Ended::Cut | Ended::GuestEnded => {
            bail!("the guest ended by itself: {}", outcome.last_words.trim_end())
        }
    }
}

/// The name of a drive in the guest.
fn drive(index: usize) -> Result<PathBuf> {
    let letter = ('a'..='z').take(BLOCKS_MAX).nth(index);
    let letter = letter.with_context(|| format!("a guest has at most {BLOCKS_MAX} drives"))?;
    Ok(PathBuf::from(format!("/dev/vd{letter}")))
}
