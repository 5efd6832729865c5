//! `tidegate ubi scrub`: reads everything once and moves data off blocks with bit-flips.

use anyhow::{Result, bail};
use array::{Array, Redundancy};
use clap::Args;
use media::Leb;
use serde_json::json;
use ubi::{Access, Ubi, Volume, VolumeError, Work};

use super::chip::{ChipArguments, bar};
use crate::Finding;
use crate::output::{print_error, print_line};
use crate::quantity::show_bytes;

/// Arguments of `tidegate ubi scrub`.
#[derive(Args, Debug)]
#[command(
    after_help = "Reads and time flip bits, and ECC corrects only a few. Data on blocks with many flipped bits \
                  is moved before they are too many for ECC. Pending erases are done, suspicious blocks tested, \
                  and wear levelled.\n\
                  Exit codes: 0 done, 1 done and something can no longer be read, 2 not done."
)]
pub struct ScrubArguments {
    /// The chip
    #[command(flatten)]
    pub chip: ChipArguments,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Findings and work done, summed over all chips.
#[derive(Debug, Default)]
struct Done {
    read_bytes: u64,
    unreadable_lebs: u64,
    scrubbed: u64,
    levelled: u64,
    erased: u64,
    retired: u64,
    /// Member shares restored from parity.
    mended: u64,
    /// Pages of parity arrays that can't be read or restored from the other members.
    lost_pages: u64,
    /// Rows of parity arrays with a wrong page that can't be identified.
    contradictions: u64,
}

/// Runs the command.
pub fn run(arguments: &ScrubArguments) -> Result<Finding> {
    let mut done = Done::default();
    match arguments.chip.members()? {
        None => scrub(&arguments.chip.attach(Access::ReadWrite)?, &mut done)?,
        Some(chips) => {
            let array = super::several::attach(&chips, Access::ReadWrite)?;
            super::several::closing(&array, || scrub_array(&array, &mut done))?;
        }
    }
    print_line(&match arguments.json {
        true => done.json().to_string(),
        false => done.text(),
    })?;
    match done.unreadable_lebs + done.lost_pages + done.contradictions {
        0 => Ok(Finding::Nothing),
        _ => Ok(Finding::Something),
    }
}

fn scrub_array(array: &Array, done: &mut Done) -> Result<()> {
    mend(array, done)?;
    if array.rebuilding().is_some() && !array.resolution().update_marker {
        // All shares that can be made are there by now.
        let rebuilt = array.rebuild(&mut |_| {})?;
        if !rebuilt.incomplete.is_empty() {
            print_error(&super::several::incomplete(array, &rebuilt));
        }
    }
    array.devices().iter().try_for_each(|device| scrub(device, done))
}

/// Restores from parity the shares that a member can't read. The members settle afterwards, which erases the damaged
/// copies.
fn mend(array: &Array, done: &mut Done) -> Result<()> {
    let volume = array.volume();
    if array.identity().redundancy == Redundancy::None || array.resolution().update_marker {
        return Ok(());
    }
    if let Some(reason) = volume.frozen() {
        bail!("nothing can be mended: {reason}");
    }
    let lebs = volume.geometry().lebs;
    let progress = bar(u64::from(lebs), "mending");
    for leb in (0..lebs).map(Leb) {
        let mended = volume.mend(leb)?;
        done.mended += u64::try_from(mended.mended.len())?;
        done.lost_pages += u64::from(mended.lost_pages);
        done.contradictions += u64::from(mended.contradictions);
        if mended.lost_pages > 0 {
            let pages = mended.lost_pages;
            progress.suspend(|| {
                print_error(&format!(
                    "{leb}: {pages} pages can't be read, too many for the parity"
                ))
            });
        }
        if mended.contradictions > 0 {
            let rows = mended.contradictions;
            progress.suspend(|| {
                print_error(&format!(
                    "{leb}: the parity of {rows} rows does not fit: a page of each is wrong"
                ))
            });
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(())
}

fn scrub(ubi: &Ubi, done: &mut Done) -> Result<()> {
    if let Some(reason) = ubi.frozen() {
        bail!("nothing can be moved: {reason}");
    }
    let volumes = ubi.volumes();
    let lebs = volumes.iter().map(|volume| u64::from(volume.mapped_lebs)).sum();
    let progress = bar(lebs, "reading");
    // Skip the content of an unfinished update; the next update replaces it.
    for volume in volumes.iter().filter(|volume| !volume.record.update_marker) {
        let opened = ubi.open_damaged(volume.id)?;
        let mut data = vec![0; usize::try_from(volume.leb_bytes)?];
        for (leb, _) in (0..)
            .map(Leb)
            .zip(ubi.mapping(volume.id))
            .filter(|(_, peb)| peb.is_some())
        {
            match opened.read(leb, 0, &mut data) {
                Ok(()) => done.read_bytes += u64::from(volume.leb_bytes),
                Err(error @ VolumeError::Uncorrectable { .. }) => {
                    done.unreadable_lebs += 1;
                    progress.suspend(|| print_error(&error.to_string()));
                }
                Err(error) => return Err(error.into()),
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    work(ubi, done)?;
    Ok(ubi.settle()?)
}

fn work(ubi: &Ubi, done: &mut Done) -> Result<()> {
    let progress = bar(u64::from(ubi.summary().blocks), "moving");
    // The bound of `settle`: each step ends an erase, moves a block once, or gives one up.
    for _ in 0..u64::from(ubi.summary().blocks) * 4 {
        match ubi.work()? {
            Work::Idle => break,
            Work::Erased(_) => done.erased += 1,
            Work::Retired(_) => done.retired += 1,
            Work::Scrubbed { .. } => done.scrubbed += 1,
            Work::Levelled { .. } => done.levelled += 1,
            // Counted by the read above.
            Work::Unmovable(_) => {}
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(())
}

impl Done {
    fn json(&self) -> serde_json::Value {
        json!({
            "read_bytes": self.read_bytes,
            "unreadable_lebs": self.unreadable_lebs,
            "scrubbed_blocks": self.scrubbed,
            "levelled_blocks": self.levelled,
            "erased_blocks": self.erased,
            "retired_blocks": self.retired,
            "mended_shares": self.mended,
            "lost_pages": self.lost_pages,
            "rows_that_contradict": self.contradictions,
        })
    }

    fn text(&self) -> String {
        let mended = match self.mended {
            0 => String::new(),
            mended => format!("; {mended} shares rewritten from parity"),
        };
        format!(
            "{} read, {} LEBs can't be; {} blocks moved for flipped bits and {} for wear; {} erased, {} retired{mended}",
            show_bytes(self.read_bytes),
            self.unreadable_lebs,
            self.scrubbed,
            self.levelled,
            self.erased,
            self.retired
        )
    }
}
