//! `tidegate array rebuild`: a member is made anew from the others.

use anyhow::{Context, Result, bail};
use array::{Execution, NewMember, with_new_member};
use clap::Args;
use media::Nand;
use nand::Access;
use serde_json::json;
use ubi::Volume;

use crate::Finding;
use crate::output::{print_error, print_line};
use crate::ubi_command::chip::{ChipArguments, bar};
use crate::ubi_command::format;

/// Arguments of `tidegate array rebuild`.
#[derive(Args, Debug)]
#[command(
    after_help = "The chip in the member's place is formatted, and gets what the others and their parity say. The array must have parity, and not be in\n\
    use. A rebuild that was cut is begun again; until it ends, the array goes on without the member.\n\
    Examples:\n  \
    tidegate array rebuild flash.img --devices 4 --member 2\n  \
    tidegate array rebuild a.img,b.img,new.img,d.img --member 2\n\
    Exit codes: 0 done, 1 done but for LEBs that another member can't read either, 2 not done."
)]
pub struct RebuildArguments {
    /// The chips, with the new one in its place
    #[command(flatten)]
    pub chip: ChipArguments,
    /// Place of the member that is made anew, from 0
    #[arg(long, value_name = "PLACE")]
    pub member: usize,
    /// Rebuild onto a chip that has volumes, which are lost
    #[arg(long)]
    pub force: bool,
    /// Print what was done as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(arguments: &RebuildArguments) -> Result<Finding> {
    let mut chips = arguments
        .chip
        .members()?
        .context("name all members of the array, separated by commas, or give --devices")?;
    let place = arguments.member;
    if place >= chips.len() {
        bail!("--member {place}: there are {} chips, from 0", chips.len());
    }
    let new = chips.remove(place);
    let others = chips
        .iter()
        .map(|chip| chip.open(Access::ReadWrite))
        .collect::<Result<Vec<_>>>()?;
    let mut device = new.open(Access::ReadWrite)?;
    if !arguments.force {
        refuse_volumes(&mut device, &new)?;
    }
    let formatting = bar(u64::from(device.geometry().blocks()), "formatting");
    let new = NewMember {
        device,
        place,
        image_sequence: format::random(),
        progress: &mut |_| formatting.inc(1),
    };
    let mut array = with_new_member(others, new, Execution::Threads)?;
    formatting.finish_and_clear();
    let progress = bar(u64::from(array.volume().geometry().lebs), "rebuilding");
    let rebuilt = array.rebuild(&mut |_| progress.inc(1))?;
    progress.finish_and_clear();
    array.settle()?;
    array.close()?;
    let label = &array.identity().label;
    print_line(&match arguments.json {
        true => json!({
            "member": place,
            "lebs": rebuilt.lebs,
            "incomplete_lebs": rebuilt.incomplete.iter().map(|leb| leb.0).collect::<Vec<_>>(),
        })
        .to_string(),
        false => format!(
            "array {label}: member {place} has its share of {} LEBs",
            rebuilt.lebs
        ),
    })?;
    if rebuilt.incomplete.is_empty() {
        return Ok(Finding::Nothing);
    }
    let named: Vec<String> = rebuilt.incomplete.iter().map(ToString::to_string).collect();
    print_error(&format!(
        "array {label}: the share of {} could not be made, since another member can't read all of its own",
        named.join(", ")
    ));
    Ok(Finding::Something)
}

/// Refuses a chip with volumes, unless they are of a rebuild that was cut.
fn refuse_volumes(device: &mut crate::ubi_command::chip::Chip, new: &ChipArguments) -> Result<()> {
    let options = ubi::AttachOptions::linux(ubi::Access::ReadOnly);
    let is_rebuild = ubi::scan(&mut *device, options).is_ok_and(|scanned| {
        let mut names = scanned
            .volumes()
            .iter()
            .flatten()
            .map(|volume| volume.name.to_string());
        names.all(|name| {
            matches!(
                name.parse::<array::MemberIdentity>(),
                Err(array::IdentityError::Unfinished { .. })
            )
        })
    });
    match is_rebuild {
        true => Ok(()),
        false => format::refuse_volumes(device, &new.image),
    }
}
