//! Opens the chip of a command: `/dev/mtdN`, an image with a side-car, or a bare image whose geometry is given or guessed.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use array::MemberIdentity;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use media::{Nand, NandGeometry};
use nand::{
    Access, ChipModel, FileError, FileNand, ImageKind, Lateness, MtdNand, PlainImage, RealClock, RealTime,
};
use ubi::{AttachOptions, AttachedBy, FastmapUse, GuessedShape, MemberState, Scanned, Ubi, VolumeId, Work};

use crate::inspect::{FLASH, not_understood};
use crate::output::print_error;
use crate::quantity::{parse_bytes, show_bytes};

/// The chip and its geometry.
#[derive(Args, Debug, Clone)]
pub struct ChipArguments {
    /// The image of a raw NAND chip, with or without OOB, or /dev/mtdN; several, separated by commas, form one array
    pub image: PathBuf,
    /// Open IMAGE.0 to IMAGE.(N-1) as one array
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub devices: Option<u32>,
    /// Size of a page, bytes [default: from the side-car, or guessed from the headers in the image]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Chip", requires = "shape_of_block")]
    pub page: Option<u64>,
    /// Size of an eraseblock without OOB, bytes [default: as for --page]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Chip", requires = "page", group = "shape_of_block")]
    pub block: Option<u64>,
    /// The same in pages
    #[arg(
        long,
        value_name = "N",
        help_heading = "Chip",
        requires = "page",
        group = "shape_of_block"
    )]
    pub pages_per_block: Option<u32>,
    /// Size of a sub-page, the smallest unit of programming, bytes [default: the page, or guessed]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Chip", requires = "page")]
    pub subpage: Option<u64>,
    /// OOB bytes that follow each page in the image [default: none, or guessed]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Chip", requires = "page")]
    pub oob: Option<u64>,
    /// Write to one member of an array without the others; the array may lose data
    #[arg(long, help_heading = "Chip")]
    pub alone: bool,
    /// Simulated chips take the time of their timing model instead of returning at once.
    #[arg(skip)]
    pub in_real_time: bool,
}

/// The device that commands attach.
pub type Chip = Box<dyn Nand>;

/// Bytes of an image that are searched for headers to guess its geometry: a few blocks even of the largest chips.
pub const GUESS_BYTES: u64 = 64 << 20;

impl ChipArguments {
    /// The members of the array if several chips are named, otherwise `None`.
    pub fn members(&self) -> Result<Option<Vec<Self>>> {
        let one = |image: PathBuf| Self {
            image,
            devices: None,
            ..self.clone()
        };
        if let Some(devices) = self.devices {
            return Ok(Some(
                (0..devices)
                    .map(|member| one(member_path(&self.image, member)))
                    .collect(),
            ));
        }
        let text = self
            .image
            .to_str()
            .filter(|text| text.contains(',') && !self.image.exists());
        let Some(text) = text else { return Ok(None) };
        if text.split(',').any(str::is_empty) {
            bail!("{text}: there is an empty name between the commas");
        }
        Ok(Some(text.split(',').map(|image| one(image.into())).collect()))
    }

    /// Opens the chip; a message tells that its image is truncated.
    pub fn open(&self, access: Access) -> Result<Chip> {
        let (chip, missing) = self.open_image(access)?;
        if let Some(missing) = missing {
            print_error(&format!("{}: {}", self.image.display(), truncated(missing)));
        }
        Ok(chip)
    }

    /// Opens the chip, with the number of bytes that a truncated image lacks.
    pub fn open_image(&self, access: Access) -> Result<(Chip, Option<u64>)> {
        if MtdNand::is_mtd(&self.image) {
            return Ok((Box::new(MtdNand::open(&self.image, access)?), None));
        }
        let chip = open_image(&self.image, access, self.said_shape()?, |_| {
            let error = anyhow!(
                "{}: the geometry of the chip is unknown: there is no side-car, and no two blocks with UBI headers to guess it \
                 from; give it by --page and --block, and --oob if the image has OOB data",
                self.image.display()
            );
            not_understood(&self.image, "a UBI image", &FLASH, error)
        })?;
        let missing = chip.missing_bytes();
        Ok((Box::new(chip), missing))
    }

    /// Opens and attaches the chip.
    pub fn attach(&self, access: ubi::Access) -> Result<Ubi> {
        let chip = self.open(match access {
            ubi::Access::ReadOnly => Access::ReadOnly,
            ubi::Access::ReadWrite => Access::ReadWrite,
        })?;
        let chip = match self.in_real_time {
            true => in_real_time(vec![chip]).remove(0),
            false => chip,
        };
        let options = AttachOptions {
            fastmap: FastmapUse::IfValid,
            ..AttachOptions::linux(access)
        };
        let scanned = ubi::scan(chip, options).map_err(|error| self.explain(error))?;
        if let AttachedBy::ScanAfterFastmap { why } = scanned.attached_by() {
            print_error(&format!(
                "{}: its fastmap can't be used, every block was looked at: {why}",
                self.image.display()
            ));
        }
        if access == ubi::Access::ReadWrite {
            self.refuse_member(&scanned)?;
        }
        let state = scanned.member_state();
        if matches!(state, MemberState::Open { .. } | MemberState::WrittenAlone { .. }) {
            print_error(&format!("{}: {state}", self.image.display()));
        }
        let attached = match self.alone {
            true => scanned.attach_alone(),
            false => scanned.attach(),
        };
        attached.map_err(|error| self.explain(error))
    }

    /// Refuses to attach one member of an array for writing: the attach by itself already erases the old copies that the
    /// array may roll back to.
    fn refuse_member(&self, scanned: &Scanned) -> Result<()> {
        let mut names = scanned
            .volumes()
            .iter()
            .flatten()
            .map(|record| String::from_utf8_lossy(record.name.as_bytes()).into_owned());
        let Some(member) = names.find_map(|name| name.parse::<MemberIdentity>().ok()) else {
            return Ok(());
        };
        if self.alone {
            return Ok(());
        }
        bail!(
            "{}: it is member {} of the {} of array {}, which may lose data when one is written to without the others; \
             name all of them in their order, separated by commas, or give --alone",
            self.image.display(),
            member.index,
            member.members,
            member.label
        )
    }

    /// Adds the next step to an attach error.
    fn explain(&self, error: ubi::AttachError) -> anyhow::Error {
        let image = self.image.display();
        let next = match &error {
            ubi::AttachError::Blank { .. } => format!("; run `tidegate ubi format {image}`"),
            ubi::AttachError::NotUbi { .. } | ubi::AttachError::Layout { .. } => {
                "; give the geometry by --page, --block, --subpage and --oob".to_owned()
            }
            ubi::AttachError::Device(_) => String::new(),
            ubi::AttachError::Mixed { .. }
            | ubi::AttachError::NoVolumeTable { .. }
            | ubi::AttachError::VolumeTable { .. } => {
                format!(
                    "; `tidegate unpack {image} -o DIRECTORY` reads it all the same, each image for itself"
                )
            }
            _ => format!("; run `tidegate ubi check {image}` to list the damage"),
        };
        let foreign = matches!(error, ubi::AttachError::NotUbi { .. });
        let explained = anyhow!("{error}{next}");
        match foreign {
            true => not_understood(&self.image, "a UBI image", &FLASH, explained),
            false => explained,
        }
    }

    fn said_shape(&self) -> Result<Option<PlainImage>> {
        let Some(page) = self.page else { return Ok(None) };
        let pages = self
            .pages_per_block
            .map(|pages| page.saturating_mul(u64::from(pages)));
        let Some(block) = self.block.or(pages) else {
            return Ok(None);
        };
        let [page, block, subpage, oob] = [page, block, self.subpage.unwrap_or(page), self.oob.unwrap_or(0)]
            .map(|size| u32::try_from(size).unwrap_or(u32::MAX));
        Ok(Some(plain(geometry(page, block, subpage, oob)?, oob)))
    }
}

/// Opens an image by its side-car, by the shape that is `said`, or by a guess; without any of them, `unknown` makes the
/// error. A truncated image can be read ([`FileNand::missing_bytes`]).
pub fn open_image(
    image: &Path,
    access: Access,
    said: Option<PlainImage>,
    unknown: impl FnOnce(FileError) -> anyhow::Error,
) -> Result<FileNand> {
    let plain = match FileNand::open(image, access, said) {
        Ok(chip) => return Ok(chip),
        Err(error @ FileError::UnknownChip { .. }) => match guessed_image(image)? {
            Some(guessed) => guessed,
            None => return Err(unknown(error)),
        },
        // With a wrong geometry nearly every image looks truncated, so its headers must agree.
        Err(error @ FileError::PartialBlock { .. }) => match (said, guessed_image(image)?) {
            (Some(said), Some(guessed)) if access == Access::ReadOnly && same_blocks(said, guessed) => said,
            _ => return Err(error.into()),
        },
        Err(error) => return Err(error.into()),
    };
    Ok(match access {
        Access::ReadOnly => FileNand::open_truncated(image, plain)?,
        Access::ReadWrite => FileNand::open(image, access, Some(plain))?,
    })
}

fn same_blocks(said: PlainImage, guessed: PlainImage) -> bool {
    let block = |plain: PlainImage| (plain.kind, plain.model.geometry.block_bytes());
    block(said) == block(guessed)
}

/// The message about an image whose last block lacks bytes.
pub fn truncated(missing: u64) -> String {
    format!("truncated: the last block lacks {missing} bytes, which are read as erased")
}

/// The shape of an image without a side-car, guessed from its UBI headers.
pub fn guessed_image(image: &Path) -> Result<Option<PlainImage>> {
    let shape = File::open(image)
        .and_then(|file| ubi::guess_shape(file, GUESS_BYTES))
        .with_context(|| format!("{} can't be read", image.display()))?;
    let plain = |shape: GuessedShape| {
        let geometry = geometry(
            shape.page_bytes,
            shape.block_bytes,
            shape.subpage_bytes,
            shape.oob_bytes,
        )?;
        Ok(plain(geometry, shape.oob_bytes))
    };
    shape.map(plain).transpose()
}

/// Makes chips take the time of their timing model, on one real clock that all of them share.
pub fn in_real_time(chips: Vec<Chip>) -> Vec<Chip> {
    let moment = chips.iter().map(|chip| chip.clock().now()).max();
    let clock = RealClock::starting_at(moment.unwrap_or_default());
    let lateness = Lateness::default();
    let edge = |chip| -> Chip { Box::new(RealTime::new(chip, clock).sharing(&lateness)) };
    chips.into_iter().map(edge).collect()
}

/// An image of that shape without a side-car; with OOB areas, where a page has any in it.
pub fn plain(geometry: NandGeometry, oob: u32) -> PlainImage {
    PlainImage {
        model: ChipModel::new(geometry),
        kind: match oob {
            0 => ImageKind::Data,
            _ => ImageKind::DataAndOob,
        },
    }
}

/// The image of member N: `IMAGE.N`.
pub fn member_path(image: &Path, member: u32) -> PathBuf {
    let mut path = image.as_os_str().to_owned();
    path.push(format!(".{member}"));
    path.into()
}

/// A geometry with one block; the number of blocks follows from the file size.
pub fn geometry(page: u32, block: u32, subpage: u32, oob: u32) -> Result<NandGeometry> {
    if page == 0 || !block.is_multiple_of(page) {
        bail!(
            "an eraseblock of {} does not consist of pages of {}",
            show_bytes(u64::from(block)),
            show_bytes(u64::from(page))
        );
    }
    let geometry = NandGeometry::new(page, block / page, 1)?.with_subpage(subpage)?;
    match oob {
        0 => Ok(geometry),
        oob => Ok(geometry.with_oob(oob)?),
    }
}

/// Finds a volume by name, then by number.
pub fn find_volume(ubi: &Ubi, image: &Path, text: &str) -> Result<VolumeId> {
    let by_number = || {
        let number = text.parse().ok().map(VolumeId)?;
        ubi.volumes()
            .iter()
            .find(|volume| volume.id == number)
            .map(|volume| volume.id)
    };
    if let Some(found) = ubi.volume_named(text).or_else(by_number) {
        return Ok(found);
    }
    let names: Vec<String> = ubi
        .volumes()
        .iter()
        .map(|volume| format!("{} ({})", volume.record.name, volume.id.0))
        .collect();
    let there = match names.is_empty() {
        true => "it has none".to_owned(),
        false => format!("it has {}", names.join(", ")),
    };
    bail!("{}: there is no volume \"{text}\"; {there}", image.display())
}

/// A progress bar on standard error, shown only on a terminal.
pub fn bar(total: u64, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:<9} [{bar:40}] {percent:>3} %  {elapsed_precise}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style).with_message(what)
}

/// Runs all background work and syncs the image.
pub fn finish(ubi: &Ubi) -> Result<()> {
    let summary = ubi.summary();
    let waiting = u64::from(summary.blocks_to_erase) + u64::from(summary.blocks_to_scrub);
    let progress = bar(waiting, "erasing");
    for _ in 0..waiting {
        if ubi.work()? == Work::Idle {
            break;
        }
        progress.inc(1);
    }
    ubi.settle()?;
    progress.finish_and_clear();
    Ok(())
}
