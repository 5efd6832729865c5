//! `tidegate nand load`: writes an image to a chip.

use std::fs::File;
use std::io::{Read, stdin};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use media::Peb;
use nand::{Access, ImageKind, LoadOptions, Placement, load};
use serde_json::json;

use super::{is_dash, progress_bar};
use crate::nand_device::{Device, GeometryArguments};
use crate::quantity::show_bytes;
use crate::{Finding, output};

/// Arguments of `tidegate nand load`.
#[derive(Args, Debug)]
#[command(
    after_help = "Blocks are erased before they are programmed; pages of 0xFF at the end of a block stay free."
)]
pub struct LoadArguments {
    /// A chip in a file, or /dev/mtdN
    pub device: PathBuf,
    /// The image, pages in order; - is standard input
    pub image: PathBuf,
    /// Write block N of the image to block N of the chip instead of skipping bad blocks
    #[arg(long)]
    pub in_place: bool,
    /// First block of the chip to write
    #[arg(long, value_name = "BLOCK", default_value_t = 0)]
    pub start: u32,
    /// Erase the blocks after the image too
    #[arg(long)]
    pub erase_rest: bool,
    /// The image contains OOB areas, which are dropped
    #[arg(long)]
    pub image_oob: bool,
    #[command(flatten)]
    pub geometry: GeometryArguments,
    /// Print the result as one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(arguments: &LoadArguments) -> Result<Finding> {
    let (mut image, length): (Box<dyn Read>, u64) = if is_dash(&arguments.image) {
        (Box::new(stdin().lock()), 0)
    } else {
        let context = || format!("{} can't be opened", arguments.image.display());
        let file = File::open(&arguments.image).with_context(context)?;
        let length = file.metadata().with_context(context)?.len();
        (Box::new(file), length)
    };
    let mut device = Device::open(&arguments.device, Access::ReadWrite, &arguments.geometry)?;
    let options = LoadOptions {
        placement: if arguments.in_place {
            Placement::InPlace
        } else {
            Placement::SkipBad
        },
        kind: if arguments.image_oob {
            ImageKind::DataAndOob
        } else {
            ImageKind::Data
        },
        first: Peb(arguments.start),
        erases_rest: arguments.erase_rest,
    };
    let bar = progress_bar("loading", length);
    let loaded = load(device.raw(), &mut image, options, &mut |bytes| {
        bar.set_position(bytes)
    });
    bar.finish_and_clear();
    let loaded = loaded.with_context(|| format!("{}: not loaded", arguments.image.display()))?;
    let bad: Vec<_> = loaded.skipped_bad.iter().map(|peb| peb.0).collect();
    output::print_line(&if arguments.json {
        json!({
            "programmed_blocks": loaded.programmed_blocks,
            "erased_blocks": loaded.erased_blocks,
            "bad_blocks": bad,
            "programmed_bytes": loaded.programmed_bytes,
        })
        .to_string()
    } else {
        format!(
            "{} in {} blocks; {} erased; {} bad blocks passed over",
            show_bytes(loaded.programmed_bytes),
            loaded.programmed_blocks,
            loaded.erased_blocks,
            bad.len()
        )
    })?;
    Ok(Finding::Nothing)
}
