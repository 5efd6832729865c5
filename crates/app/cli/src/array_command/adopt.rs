//! `tidegate array adopt`: takes back a member that its array refuses.

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use ubi::Access;

use crate::Finding;
use crate::output::print_line;
use crate::ubi_command::chip::ChipArguments;
use crate::ubi_command::several;

/// Arguments of `tidegate array adopt`.
#[derive(Args, Debug)]
#[command(
    after_help = "An array refuses a member that is stale (an older copy) or was written to without the others. \
                  An adopted member keeps the LEBs that the others have in the same version. The others are \
                  lost: reads of them fail until they are written again. Pages added to a LEB while the member \
                  was away are missing without an error, so check the files afterwards.\n\
                  Examples:\n\
                  \x20 tidegate array adopt flash.img --devices 4 --member 2                 # shows the loss\n\
                  \x20 tidegate array adopt flash.img --devices 4 --member 2 --accept-loss\n\
                  Exit codes: 0 done, 1 done and LEBs are lost, 2 not done."
)]
pub struct AdoptArguments {
    /// The chips
    #[command(flatten)]
    pub chip: ChipArguments,
    /// Place of a refused member, from 0; repeatable
    #[arg(long = "member", value_name = "PLACE", required = true)]
    pub members: Vec<u32>,
    /// Adopt even if data is lost; without it the command only reports the loss
    #[arg(long)]
    pub accept_loss: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(arguments: &AdoptArguments) -> Result<Finding> {
    let chips = arguments
        .chip
        .members()?
        .context("name all members of the array, separated by commas, or give --devices")?;
    let access = match arguments.accept_loss {
        true => Access::ReadWrite,
        false => Access::ReadOnly,
    };
    let array = several::adopt(&chips, &arguments.members, access)?;
    let lost = array.volume().lost_shares();
    let named = match lost.is_empty() {
        true => "none of their LEBs is lost".to_owned(),
        false => format!(
            "{} of their LEBs are lost ({})",
            lost.len(),
            several::name_shares(&lost, &array, &chips)
        ),
    };
    let label = &array.identity().label;
    if !arguments.accept_loss {
        bail!(
            "array {label}: nothing was changed. If members {} are adopted, {named}, and pages that were added to other LEBs while \
             they were away are missing without an error; give --accept-loss to adopt them",
            places(&arguments.members)
        );
    }
    if let Some(reason) = array.devices().iter().find_map(ubi::Ubi::frozen) {
        bail!("array {label} can't be written to: {reason}");
    }
    array.settle()?;
    array.close()?;
    let shares = lost.iter();
    print_line(&match arguments.json {
        true => json!({
            "adopted": arguments.members,
            "lost_shares": shares
                .map(|share| json!({ "leb": share.leb.0, "member": share.member }))
                .collect::<Vec<_>>(),
        })
        .to_string(),
        false => format!(
            "array {label}: members {} adopted; {named}",
            places(&arguments.members)
        ),
    })?;
    Ok(match lost.is_empty() {
        true => Finding::Nothing,
        false => Finding::Something,
    })
}

fn places(members: &[u32]) -> String {
    let places: Vec<String> = members.iter().map(u32::to_string).collect();
    places.join(", ")
}
