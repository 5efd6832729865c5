//! `tidegate nand dump`: reads a chip into an image.

use std::io::stdout;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use media::{Nand, Peb};
use nand::{Access, BadBlocks, DumpOptions, Dumped, ImageKind, dump};
use serde_json::json;

use super::{is_dash, progress_bar};
use crate::nand_device::{Device, GeometryArguments};
use crate::quantity::show_bytes;
use crate::{Finding, output};

/// Arguments of `tidegate nand dump`.
#[derive(Args, Debug)]
#[command(
    after_help = "Pages that ECC can't correct are written as they are read; they are counted, and the exit code is 1."
)]
pub struct DumpArguments {
    /// A chip in a file, a plain dump, or /dev/mtdN
    pub device: PathBuf,
    /// Write the image to this file; - is standard output
    pub image: PathBuf,
    /// Bad blocks in the image: pad (0xFF), skip (left out) or dump (as they read)
    #[arg(long, value_name = "pad|skip|dump", default_value = "pad")]
    pub bad: Bad,
    /// Write each page's OOB area after the page
    #[arg(long)]
    pub image_oob: bool,
    /// First block
    #[arg(long, value_name = "BLOCK", default_value_t = 0)]
    pub start: u32,
    /// Number of blocks [default: all to the end]
    #[arg(long, value_name = "N")]
    pub count: Option<u32>,
    #[command(flatten)]
    pub geometry: GeometryArguments,
    /// Print the result as one JSON document; with - it goes to standard error
    #[arg(long)]
    pub json: bool,
}

/// Treatment of bad blocks.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Bad {
    /// 0xFF, so that every block keeps its position.
    Pad,
    /// Left out.
    Skip,
    /// All readable data.
    Dump,
}

/// Runs the command.
pub fn run(arguments: &DumpArguments) -> Result<Finding> {
    let mut device = Device::open(&arguments.device, Access::ReadOnly, &arguments.geometry)?;
    let geometry = device.raw().geometry();
    let options = DumpOptions {
        bad_blocks: match arguments.bad {
            Bad::Pad => BadBlocks::Pad,
            Bad::Skip => BadBlocks::Skip,
            Bad::Dump => BadBlocks::Dump,
        },
        kind: if arguments.image_oob {
            ImageKind::DataAndOob
        } else {
            ImageKind::Data
        },
        first: Peb(arguments.start),
        blocks: arguments
            .count
            .unwrap_or(geometry.blocks().saturating_sub(arguments.start)),
    };
    let bar = progress_bar(
        "dumping",
        u64::from(options.blocks) * u64::from(geometry.block_bytes()),
    );
    let mut progress = |bytes| bar.set_position(bytes);
    let dumped = if is_dash(&arguments.image) {
        dump(device.raw(), &mut stdout().lock(), options, &mut progress)?
    } else {
        let mut dumped = None;
        output::to_file(&arguments.image, &mut |out| {
            dumped = Some(dump(device.raw(), out, options, &mut progress)?);
            Ok(())
        })?;
        dumped.context("nothing was dumped")?
    };
    bar.finish_and_clear();
    report(arguments, &dumped)
}

fn report(arguments: &DumpArguments, dumped: &Dumped) -> Result<Finding> {
    let lost = dumped.uncorrectable.len();
    let text = if arguments.json {
        let bad: Vec<_> = dumped.bad_blocks.iter().map(|peb| peb.0).collect();
        let pages: Vec<_> = dumped
            .uncorrectable
            .iter()
            .map(|(peb, page)| [peb.0, page.0])
            .collect();
        json!({
            "bytes": dumped.bytes,
            "bad_blocks": bad,
            "corrected_bits": dumped.corrected_bits,
            "uncorrectable_pages": pages,
        })
        .to_string()
    } else {
        format!(
            "{}; {} bad blocks; {} bits corrected; {lost} pages uncorrectable",
            show_bytes(dumped.bytes),
            dumped.bad_blocks.len(),
            dumped.corrected_bits,
        )
    };
    if is_dash(&arguments.image) {
        output::print_error(&text);
    } else {
        output::print_line(&text)?;
    }
    if let Some((peb, page)) = dumped.uncorrectable.first() {
        output::print_error(&format!(
            "{lost} pages could not be corrected, the first is {peb}, {page}"
        ));
        return Ok(Finding::Something);
    }
    Ok(Finding::Nothing)
}
