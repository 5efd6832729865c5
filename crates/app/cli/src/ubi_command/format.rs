//! `tidegate ubi format`.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use media::Nand;
use nand::Access;
use programs::terminal::WidthArguments;
use ubi::{FormatOptions, Layout, Ubi};

use super::chip::{ChipArguments, bar};
use super::info::{self, InfoArguments};
use crate::quantity::parse_bytes;

/// Arguments of `tidegate ubi format`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    tidegate ubi format nand.img\n  \
    tidegate ubi format flash.img --devices 4 --label media\n  \
    tidegate ubi format flash.img --devices 4 --parity\n  \
    tidegate ubi format nand.img --image rootfs.ubi\n  \
    tidegate ubi format plain.img --page 2k --block 128k --subpage 512")]
pub struct FormatArguments {
    /// The chip
    #[command(flatten)]
    pub chip: ChipArguments,
    /// Write this UBI image, made by `tidegate ubi build` or ubinize [default: none, the device is empty]
    #[arg(long, value_name = "FILE")]
    pub image_file: Option<PathBuf>,
    /// Offset of the VID header in a block, bytes [default: the second sub-page, as in Linux]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub vid_header_offset: Option<u64>,
    /// Image sequence number, the same in all blocks; not 0 [default: random]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub image_seq: Option<u32>,
    /// Set the erase counter of all blocks [default: each block keeps its own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=0x7FFF_FFFF))]
    pub erase_counter: Option<u32>,
    /// Name of the array if several chips are named: 1 to 80 characters without spaces
    #[arg(long, value_name = "NAME", default_value = "array")]
    pub label: String,
    /// Keep parity across 3 or more chips: any one may be lost; costs the capacity of one
    #[arg(long)]
    pub parity: bool,
    /// Format even if there are volumes; they are lost
    #[arg(long)]
    pub force: bool,
    /// Print the new device as one JSON object, as `tidegate ubi info` does
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(arguments: &FormatArguments) -> Result<()> {
    if let Some(chips) = arguments.chip.members()? {
        super::several::format(arguments, &chips)?;
        return show(arguments);
    }
    if arguments.parity {
        bail!("--parity: one chip has no parity; name 3 or more, separated by commas, or give --devices");
    }
    let chip = arguments.chip.open(Access::ReadWrite)?;
    let geometry = chip.geometry();
    let layout = match arguments.vid_header_offset {
        None => Layout::usual(&geometry)?,
        Some(offset) => Layout::with_vid_header_at(
            &geometry,
            u32::try_from(offset).context("the offset is too large")?,
        )?,
    };
    let options = FormatOptions {
        layout,
        image_sequence: arguments.image_seq.unwrap_or_else(random),
        erase_counter: arguments.erase_counter,
    };
    let mut chip = chip;
    if !arguments.force {
        refuse_volumes(&mut chip, &arguments.chip.image)?;
    }
    let progress = bar(u64::from(geometry.blocks()), "formatting");
    match &arguments.image_file {
        None => {
            Ubi::format(chip, options, &mut |_| progress.inc(1))?;
        }
        Some(path) => {
            let block_bytes = usize::try_from(geometry.block_bytes())?;
            let mut file = File::open(path).with_context(|| format!("{} can't be opened", path.display()))?;
            let length = file.metadata()?.len();
            if length == 0 || length % u64::from(geometry.block_bytes()) != 0 {
                bail!(
                    "{}: {length} bytes are no whole blocks of {}; is it a UBI image for this chip?",
                    path.display(),
                    geometry.block_bytes()
                );
            }
            check_image(&mut file, path, &options)?;
            let mut failed = None;
            let mut blocks = std::iter::from_fn(|| {
                let mut block = Vec::with_capacity(block_bytes);
                match (&mut file)
                    .take(u64::from(geometry.block_bytes()))
                    .read_to_end(&mut block)
                {
                    Ok(0) => None,
                    Ok(_) => Some(block),
                    Err(error) => {
                        failed = Some(error);
                        None
                    }
                }
            });
            Ubi::flash(chip, options, &mut blocks, &mut |_| progress.inc(1))?;
            if let Some(error) = failed {
                return Err(error).with_context(|| format!("{} can't be read", path.display()));
            }
        }
    }
    progress.finish_and_clear();
    show(arguments)
}

/// Prints the new device as JSON if `--json` is given.
fn show(arguments: &FormatArguments) -> Result<()> {
    match arguments.json {
        false => Ok(()),
        true => info::run(&InfoArguments {
            chip: arguments.chip.clone(),
            json: true,
            width: WidthArguments::default(),
        }),
    }
}

/// Refuses an image whose header offsets differ from the chip's: nothing could attach the result.
fn check_image(file: &mut File, path: &std::path::Path, options: &FormatOptions) -> Result<()> {
    use std::io::Seek;

    let mut raw = [0; ubi::format::HEADER_BYTES];
    file.read_exact(&mut raw)?;
    file.rewind()?;
    let ubi::format::Decoded::Header(header) = ubi::format::EcHeader::decode(&raw) else {
        bail!(
            "{}: no UBI image: it does not begin with an EC header",
            path.display()
        );
    };
    let expected = (options.layout.vid_header_offset(), options.layout.data_offset());
    let found = (header.vid_header_offset, header.data_offset);
    if found != expected {
        bail!(
            "{}: the image has VID headers at {} and data at {}, this chip wants {} and {}; build it for this chip, or \
             give --vid-header-offset {}",
            path.display(),
            found.0,
            found.1,
            expected.0,
            expected.1,
            found.0
        );
    }
    Ok(())
}

/// Refuses a chip that has volumes.
pub fn refuse_volumes(chip: &mut super::chip::Chip, image: &std::path::Path) -> Result<()> {
    let names = super::several::volume_names(chip);
    if names.is_empty() {
        return Ok(());
    }
    bail!(
        "{}: it has volumes ({}), which would be lost; give --force to format it all the same",
        image.display(),
        names.join(", ")
    )
}

/// A random number that is not 0, because 0 means unknown.
pub fn random() -> u32 {
    let [a, b, c, d, ..] = RandomState::new().hash_one(std::process::id()).to_le_bytes();
    u32::from_le_bytes([a, b, c, d]).max(1)
}
