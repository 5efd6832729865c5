//! `tidegate array rebuild`: rebuilds a member from the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use array::{RebuildStep, Rebuilt};
use clap::Args;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Finding;
use crate::output::{print_error, print_line};
use crate::ubi_command::chip::{ChipArguments, bar};
use crate::ubi_command::several;

/// Arguments of `tidegate array rebuild`.
#[derive(Args, Debug)]
#[command(
    after_help = "Formats the chip in the member's place and fills it from the other members and their parity. \
                  The array must have parity and must not be in use; `tidegate ubifs mount -o rw --rebuild \
                  PLACE` rebuilds a member of a mounted one. An interrupted rebuild resumes where it ended, \
                  unless the array was written to without the new chip meanwhile.\n\
                  Examples:\n\
                  \x20 tidegate array rebuild flash.img --devices 4 --member 2\n\
                  \x20 tidegate array rebuild a.img,b.img,new.img,d.img --member 2\n\
                  Exit codes: 0 done, 1 done except for LEBs that another member can't read either, 2 not done."
)]
pub struct RebuildArguments {
    /// The chips, with the new one in its place
    #[command(flatten)]
    pub chip: ChipArguments,
    /// Place of the member to rebuild, from 0
    #[arg(long, value_name = "PLACE")]
    pub member: usize,
    /// Rebuild onto a chip that has volumes, destroying them; never onto a member that the array has and does not refuse
    #[arg(long)]
    pub force: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(arguments: &RebuildArguments) -> Result<Finding> {
    let chips = arguments
        .chip
        .members()?
        .context("name all members of the array, separated by commas, or give --devices")?;
    let place = arguments.member;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second one ends the process at once.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let array = several::with_new_member(&chips, place, arguments.force)?;
    let label = &array.identity().label;
    let progress = bar(u64::try_from(array.lebs_to_rebuild().len())?, "rebuilding");
    let rebuilt = loop {
        if stop.load(Ordering::Relaxed) {
            progress.finish_and_clear();
            let left = array.lebs_to_rebuild().len();
            array.close()?;
            bail!(
                "array {label}: interrupted; member {place} lacks its share of {left} LEBs. The array can be used; run the command again to resume"
            );
        }
        match array.rebuild_step()? {
            RebuildStep::Tried(_) => progress.inc(1),
            RebuildStep::Ended(rebuilt) => break rebuilt,
            RebuildStep::Idle => break Rebuilt::default(),
        }
    };
    progress.finish_and_clear();
    array.settle()?;
    array.close()?;
    print_line(&match arguments.json {
        true => json!({
            "member": place,
            "lebs": rebuilt.lebs,
            "incomplete_lebs": rebuilt.incomplete.iter().map(|leb| leb.0).collect::<Vec<_>>(),
        })
        .to_string(),
        false => {
            let made = rebuilt.lebs;
            match rebuilt.incomplete.len() {
                0 => format!("array {label}: member {place} has its share of all LEBs; {made} were made now"),
                lacking => format!(
                    "array {label}: member {place} has its share of all LEBs but {lacking}; {made} were made now"
                ),
            }
        }
    })?;
    if rebuilt.incomplete.is_empty() {
        return Ok(Finding::Nothing);
    }
    print_error(&several::incomplete(&array, &rebuilt));
    Ok(Finding::Something)
}
