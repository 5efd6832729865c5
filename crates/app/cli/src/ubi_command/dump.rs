//! `tidegate ubi dump`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use media::Leb;
use ubi::format::VolumeKind;
use ubi::{Access, Volume, VolumeError, VolumeTableError};

use super::chip::{ChipArguments, bar, find_volume};
use crate::Finding;
use crate::output::{print_error, refuse_input_as_output, to_output};

/// Arguments of `tidegate ubi dump`.
#[derive(Args, Debug)]
#[command(
    after_help = "Unmapped LEBs are written as 0xFF; a static volume yields only its data and is checked first, \
                  unless it has the flag skip-check.\n\
                  Exit codes: 0 done, 1 done with --damaged and something is damaged, 2 not done."
)]
pub struct DumpArguments {
    /// The chip
    #[command(flatten)]
    pub chip: ChipArguments,
    /// Name or number of the volume
    pub volume: String,
    /// Write to this file; - is standard output
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: PathBuf,
    /// Write a volume although some of its LEBs are damaged, or missing in a static volume, and list them; missing ones
    /// read as 0xFF
    #[arg(long)]
    pub damaged: bool,
}

/// Runs the command.
pub fn run(arguments: &DumpArguments) -> Result<Finding> {
    let members = arguments.chip.members()?;
    let images = members.iter().flatten().map(|member| &member.image);
    for image in images.chain([&arguments.chip.image]) {
        refuse_input_as_output(image, &arguments.output)?;
    }
    if let Some(chips) = members {
        return super::several::dump(arguments, &chips).map(|()| Finding::Nothing);
    }
    let ubi = arguments.chip.attach(Access::ReadOnly)?;
    let id = find_volume(&ubi, &arguments.chip.image, &arguments.volume)?;
    let damage = match arguments.damaged {
        true => ubi.damage(id)?,
        false => Vec::new(),
    };
    for damage in &damage {
        print_error(&format!(
            "{}: {id}: {damage}; it is written out as it is",
            arguments.chip.image.display()
        ));
    }
    let volume = match arguments.damaged {
        true => ubi.open_damaged(id)?,
        false => ubi.open(id).map_err(explain)?,
    };
    let geometry = volume.geometry();
    let of_static = ubi
        .volumes()
        .iter()
        .find(|volume| volume.id == id)
        .and_then(|volume| (volume.record.kind == VolumeKind::Static).then_some(volume.data_bytes));
    let all = u64::from(geometry.leb_bytes) * u64::from(geometry.lebs);
    let bytes = of_static.unwrap_or(all);
    let progress = bar(bytes, "reading");
    let image = arguments.chip.image.display();
    let mut unreadable = 0_u32;
    let mut write = |out: &mut dyn Write| -> Result<()> {
        let mut left = bytes;
        let mut data = vec![0; usize::try_from(geometry.leb_bytes)?];
        for leb in (0..geometry.lebs).map(Leb) {
            let now = left.min(u64::from(geometry.leb_bytes));
            if now == 0 {
                break;
            }
            let part = &mut data[..usize::try_from(now)?];
            match volume.read(leb, 0, part) {
                // In a static volume, `damage` has listed this LEB if its CRC is wrong; if not, the data is right although
                // ECC failed. A dynamic volume has no other witness.
                Err(error @ VolumeError::Uncorrectable { .. }) if arguments.damaged => {
                    if of_static.is_none() {
                        unreadable += 1;
                        print_error(&format!(
                            "{image}: {error}; {leb} is written as the chip returned it"
                        ));
                    }
                }
                Err(error @ VolumeError::Uncorrectable { .. }) => bail!("{error}; {HINT}"),
                other => other?,
            }
            out.write_all(part)?;
            left -= now;
            progress.inc(now);
        }
        Ok(out.flush()?)
    };
    let written = to_output(&arguments.output, &mut write);
    progress.finish_and_clear();
    written?;
    match damage.is_empty() && unreadable == 0 {
        true => Ok(Finding::Nothing),
        false => Ok(Finding::Something),
    }
}

const HINT: &str = "give --damaged to write the readable rest";

/// Suggests `--damaged` for a damaged volume.
fn explain(error: VolumeTableError) -> anyhow::Error {
    match error {
        VolumeTableError::Damaged { .. } => {
            anyhow!("{error}; {HINT}")
        }
        other => other.into(),
    }
}
