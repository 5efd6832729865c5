//! `tidegate nand create`: creates an erased chip in a file.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use media::Nanos;
use nand::{ChipModel, FaultModel, FileNand, Pairing, sidecar_path};

use super::info::{describe, show};
use super::progress_bar;
use crate::nand_device::{Device, GeometryArguments};
use crate::quantity::{parse_bytes, parse_nanos};
use crate::ubi_command::member_path;
use crate::{Finding, output};

/// Arguments of `tidegate nand create`.
#[derive(Args, Debug)]
#[command(
    after_help = "The file is a plain dump that other tools read; FILE.nand beside it holds the chip's further state.\n\
                  Examples:\n\
                  \x20 tidegate nand create chip.img --preset tlc --size 64m\n\
                  \x20 tidegate nand create chip.img --page 2k --pages-per-block 64 --subpage 512 --size 128m --bad-blocks 4"
)]
pub struct CreateArguments {
    /// The new file
    pub file: PathBuf,
    /// Create N chips for an array, FILE.0 to FILE.(N-1), each with its own seed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub devices: Option<u32>,
    #[command(flatten)]
    pub geometry: GeometryArguments,
    /// Data bytes of the whole chip, a multiple of the block size [default: the preset's]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Chip", conflicts_with = "blocks")]
    pub size: Option<u64>,
    /// Number of blocks [default: the preset's]
    #[arg(long, value_name = "N", help_heading = "Chip")]
    pub blocks: Option<u32>,
    /// Time to read a page into the chip's register, such as 25us [default: the preset's, else 0]
    #[arg(long, value_name = "TIME", value_parser = parse_nanos, help_heading = "Timing")]
    pub read_time: Option<Nanos>,
    /// Time to program a page [default: the preset's, else 0]
    #[arg(long, value_name = "TIME", value_parser = parse_nanos, help_heading = "Timing")]
    pub program_time: Option<Nanos>,
    /// Time to erase a block [default: the preset's, else 0]
    #[arg(long, value_name = "TIME", value_parser = parse_nanos, help_heading = "Timing")]
    pub erase_time: Option<Nanos>,
    /// Time to transfer a page over the bus [default: the preset's, else 0]
    #[arg(long, value_name = "TIME", value_parser = parse_nanos, help_heading = "Timing")]
    pub transfer_time: Option<Nanos>,
    /// Seed of all faults
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Faults")]
    pub seed: u64,
    /// Let power cuts destroy pages in pairs, as on MLC chips: the page being programmed and the earlier one in the same
    /// cells
    #[arg(long, help_heading = "Faults")]
    pub paired_pages: bool,
    /// Number of factory bad blocks
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Faults")]
    pub bad_blocks: u32,
    /// Rate of failing programs, per million
    #[arg(long, value_name = "PPM", default_value_t = 0, help_heading = "Faults")]
    pub program_failures: u32,
    /// Rate of failing erases, per million
    #[arg(long, value_name = "PPM", default_value_t = 0, help_heading = "Faults")]
    pub erase_failures: u32,
    /// Mean number of erases that a block survives; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Faults")]
    pub endurance: u32,
    /// Mean number of reads of a block per bit-flip in each 512 bytes; 0 for none
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Faults")]
    pub reads_per_bit_flip: u32,
    /// Mean time per bit-flip in each 512 bytes, such as 90d; 0 for none
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_nanos, help_heading = "Faults")]
    pub time_per_bit_flip: Nanos,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
    /// Print the new chip as one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(arguments: &CreateArguments) -> Result<Finding> {
    let Some(devices) = arguments.devices else {
        return create(arguments, &arguments.file, arguments.seed);
    };
    for member in 0..devices {
        let file = member_path(&arguments.file, member);
        create(arguments, &file, arguments.seed.wrapping_add(u64::from(member)))?;
    }
    Ok(Finding::Nothing)
}

fn create(arguments: &CreateArguments, file: &Path, seed: u64) -> Result<Finding> {
    let model = model(arguments)?;
    let faults = FaultModel {
        seed,
        factory_bad_blocks: arguments.bad_blocks,
        program_failures_ppm: arguments.program_failures,
        erase_failures_ppm: arguments.erase_failures,
        endurance: arguments.endurance,
        reads_per_bit_flip: arguments.reads_per_bit_flip,
        time_per_bit_flip: arguments.time_per_bit_flip,
    };
    if arguments.bad_blocks >= model.geometry.blocks() {
        bail!(
            "--bad-blocks {} leaves no block of {} good",
            arguments.bad_blocks,
            model.geometry.blocks()
        );
    }
    if arguments.force {
        remove_old(file)?;
    }
    let bar = progress_bar("creating", model.geometry.total_bytes().0);
    let chip = FileNand::create(file, model, faults, arguments.geometry.kind(), |bytes| {
        bar.set_position(bytes);
    })?;
    bar.finish_and_clear();
    let mut device = Device::File(Box::new(chip));
    let document = describe(&mut device)?;
    output::print_line(&if arguments.json {
        document.to_string()
    } else {
        show(&document)
    })?;
    Ok(Finding::Nothing)
}

fn model(arguments: &CreateArguments) -> Result<ChipModel> {
    let Some(model) = arguments.geometry.model(arguments.blocks.unwrap_or(1))? else {
        bail!("the chip is missing: give --preset, or --page and --pages-per-block with --size or --blocks");
    };
    if arguments.geometry.preset.is_none() && arguments.size.is_none() && arguments.blocks.is_none() {
        bail!("how large? give --size or --blocks");
    }
    let mut model = match (arguments.size, arguments.blocks) {
        (Some(bytes), _) => model.with_size(bytes)?,
        (None, Some(blocks)) => ChipModel {
            geometry: model.geometry.with_blocks(blocks)?,
            ..model
        },
        (None, None) => model,
    };
    let timing = &mut model.timing;
    for (time, asked) in [
        (&mut timing.read_page, arguments.read_time),
        (&mut timing.program_page, arguments.program_time),
        (&mut timing.erase_block, arguments.erase_time),
        (&mut timing.transfer_page, arguments.transfer_time),
    ] {
        *time = asked.unwrap_or(*time);
    }
    model.timing.check()?;
    match arguments.paired_pages {
        true => Ok(model.with_pairing(Pairing::Mlc)?),
        false => Ok(model),
    }
}

/// Removes a chip that is not in use. Refuses anything but a file.
fn remove_old(file: &Path) -> Result<()> {
    let Ok(metadata) = file.metadata() else {
        return Ok(());
    };
    if !metadata.is_file() {
        bail!("{} is no file; it is not replaced", file.display());
    }
    // A chip in use is locked. Any other error does not matter, because the file is removed.
    if let Err(error @ nand::FileError::Locked { .. }) = FileNand::open(file, nand::Access::ReadWrite, None) {
        return Err(error.into());
    }
    std::fs::remove_file(file).with_context(|| format!("{} can't be replaced", file.display()))?;
    let _ = std::fs::remove_file(sidecar_path(file));
    Ok(())
}
