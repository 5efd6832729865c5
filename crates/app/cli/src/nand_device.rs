//! Opens a raw NAND device by path: a chip in a file, with or without its side-car, or `/dev/mtdN`.
//!
//! Commands on chips open their devices here; those on UBI, which can guess a geometry, in `ubi_command/chip.rs`.

use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;
use media::{Nand, NandGeometry};
use nand::{Access, ChipModel, FileError, FileNand, ImageKind, MtdNand, PlainImage, Preset, RawNand};

use programs::command_line::one_of;

use crate::inspect::{FLASH, not_understood};
use crate::output::print_error;
use crate::quantity::parse_bytes;
use crate::ubi_command::chip::{open_image, truncated};

/// The chip of an image without a side-car.
#[derive(Args, Clone, Debug, Default)]
pub struct GeometryArguments {
    /// The chip by name: slc, mlc, tlc, micron-mlc or nandsim (`tidegate nand presets` lists them)
    #[arg(long, value_name = "NAME", help_heading = "Chip", hide_possible_values = true, value_parser = one_of::<Preset>(Preset::ALL.map(Preset::name)))]
    pub preset: Option<Preset>,
    /// Size of a page without OOB, bytes [default: the preset's]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Chip")]
    pub page: Option<u64>,
    /// Number of pages per block [default: the preset's]
    #[arg(long, value_name = "N", help_heading = "Chip")]
    pub pages_per_block: Option<u32>,
    /// Size of a block without OOB, bytes, in place of --pages-per-block
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, conflicts_with = "pages_per_block", help_heading = "Chip")]
    pub block: Option<u64>,
    /// Size of a sub-page, the unit of programming, bytes [default: the preset's, else the page]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Chip")]
    pub subpage: Option<u64>,
    /// Size of the OOB area of a page, bytes [default: the preset's, else page / 32]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Chip")]
    pub oob: Option<u64>,
    /// Number of bits that ECC corrects per 512 bytes [default: 4]
    #[arg(long, value_name = "BITS", help_heading = "Chip")]
    pub ecc_bits: Option<u32>,
    /// The image contains each page's OOB area after the page
    #[arg(long, help_heading = "Chip")]
    pub with_oob: bool,
}

impl GeometryArguments {
    /// The kind of image: with or without OOB areas.
    pub fn kind(&self) -> ImageKind {
        if self.with_oob {
            ImageKind::DataAndOob
        } else {
            ImageKind::Data
        }
    }

    /// The chip described by the options, or `None` without any. The number of blocks is the preset's, or `blocks`.
    pub fn model(&self, blocks: u32) -> Result<Option<ChipModel>> {
        let base = match (self.preset, self.page, self.pages()?) {
            (Some(preset), ..) => preset.model(),
            (None, Some(page), Some(pages)) => {
                ChipModel::new(NandGeometry::new(narrow("--page", page)?, pages, blocks)?)
            }
            (None, None, None) if self.subpage.is_none() && self.oob.is_none() && !self.with_oob => {
                return Ok(None);
            }
            _ => bail!("a chip needs --preset, or --page with --block or --pages-per-block"),
        };
        self.changed(base).map(Some)
    }

    /// Pages of a block, by either option.
    fn pages(&self) -> Result<Option<u32>> {
        match (self.block, self.page) {
            (Some(block), Some(page)) => pages_of(block, page).map(Some),
            _ => Ok(self.pages_per_block),
        }
    }

    fn changed(&self, base: ChipModel) -> Result<ChipModel> {
        let mut geometry = base.geometry;
        if self.page.is_some() || self.pages_per_block.is_some() || self.block.is_some() {
            let page = match self.page {
                Some(page) => narrow("--page", page)?,
                None => geometry.page_bytes(),
            };
            let pages = match self.block {
                Some(block) => pages_of(block, u64::from(page))?,
                None => self.pages_per_block.unwrap_or(geometry.pages_per_block()),
            };
            let other = NandGeometry::new(page, pages, geometry.blocks())?;
            // A preset's sub-pages and OOB areas are valid only for its page size.
            geometry = if page == geometry.page_bytes() {
                other
                    .with_subpage(geometry.subpage_bytes())?
                    .with_oob(geometry.oob_bytes())?
            } else {
                other
            };
        }
        if let Some(subpage) = self.subpage {
            geometry = geometry.with_subpage(narrow("--subpage", subpage)?)?;
        }
        if let Some(oob) = self.oob {
            geometry = geometry.with_oob(narrow("--oob", oob)?)?;
        }
        let model = ChipModel { geometry, ..base };
        Ok(model.with_ecc_bits(self.ecc_bits.unwrap_or(base.ecc_bits)))
    }

    fn plain(&self) -> Result<Option<PlainImage>> {
        let kind = self.kind();
        let model = self.model(1)?;
        Ok(model.map(|model| PlainImage { model, kind }))
    }
}

fn pages_of(block: u64, page: u64) -> Result<u32> {
    match block.checked_div(page) {
        Some(pages) if block.is_multiple_of(page) => narrow("--block", pages),
        _ => bail!("--block {block} does not consist of pages of {page} bytes"),
    }
}

fn narrow(flag: &str, bytes: u64) -> Result<u32> {
    match u32::try_from(bytes) {
        Ok(bytes) => Ok(bytes),
        Err(_) => bail!("{flag} {bytes} is more than 4 GiB"),
    }
}

/// An open device.
pub enum Device {
    /// A simulated chip in a file.
    File(Box<FileNand>),
    /// A real chip.
    Mtd(Box<MtdNand>),
}

impl Device {
    /// Opens the device at `path`.
    pub fn open(path: &Path, access: Access, geometry: &GeometryArguments) -> Result<Self> {
        if MtdNand::is_mtd(path) {
            let device = MtdNand::open(path, access)?;
            if geometry
                .model(1)?
                .is_some_and(|model| !same_pages(&model.geometry, &device.geometry()))
            {
                bail!(
                    "{} has another geometry than the options; leave them out",
                    path.display()
                );
            }
            return Ok(Self::Mtd(Box::new(device)));
        }
        let unknown = |error: FileError| not_understood(path, "a NAND image", &FLASH, error.into());
        let chip = match access {
            Access::ReadOnly => open_image(path, access, geometry.plain()?, unknown)?,
            // The guess of a page may be too large, which matters to a writer.
            Access::ReadWrite => {
                FileNand::open(path, access, geometry.plain()?).map_err(|error| match error {
                    FileError::UnknownChip { .. } => unknown(error),
                    error => error.into(),
                })?
            }
        };
        if let Some(missing) = chip.missing_bytes() {
            print_error(&format!("{}: {}", path.display(), truncated(missing)));
        }
        Ok(Self::File(Box::new(chip)))
    }

    /// The device as a `RawNand`.
    pub fn raw(&mut self) -> &mut dyn RawNand {
        match self {
            Self::File(chip) => chip.as_mut(),
            Self::Mtd(chip) => chip.as_mut(),
        }
    }

    /// The simulated chip, if it is one.
    pub fn simulated(&self) -> Option<&FileNand> {
        match self {
            Self::File(chip) => Some(chip),
            Self::Mtd(_) => None,
        }
    }
}

fn same_pages(one: &NandGeometry, other: &NandGeometry) -> bool {
    (one.page_bytes(), one.pages_per_block()) == (other.page_bytes(), other.pages_per_block())
}
