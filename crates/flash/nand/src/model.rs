//! Chip models: geometry, timing, ECC strength; and presets for the chips named in the papers.
//!
//! Sources: seeds/001 table 1 (page size and latencies of SLC, MLC, TLC) and its section 6.1. Neither specifies
//! blocks, OOB areas or the bus; those are typical values of the time, and the bus is ONFI's asynchronous mode 4, 25
//! ns per byte.

use std::str::FromStr;

use media::{GeometryError, NandGeometry, Nanos};
use thiserror::Error;

use crate::Pairing;

/// Durations of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Transfer from the cells of a page to the chip's page register (tR).
    pub read_page: Nanos,
    /// Program from the register to the cells (tPROG), of a page or a part of one.
    pub program_page: Nanos,
    /// Erase of a block (tBERS).
    pub erase_block: Nanos,
    /// Bus transfer of a whole page. Parts are transferred in whole ECC steps of 512 bytes, pro rata.
    pub transfer_page: Nanos,
}

/// Upper limit for the duration of an operation, to keep sums of times within 64 bits.
const LONGEST: Nanos = Nanos(24 * 60 * 60 * 1_000_000_000);

impl Timing {
    /// Checks that no operation takes longer than a day.
    pub fn check(&self) -> Result<(), ModelError> {
        let times = [
            self.read_page,
            self.program_page,
            self.erase_block,
            self.transfer_page,
        ];
        match times.into_iter().find(|time| *time > LONGEST) {
            Some(time) => Err(ModelError::TooSlow { time }),
            None => Ok(()),
        }
    }
}

/// The fixed properties of a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChipModel {
    /// Geometry.
    pub geometry: NandGeometry,
    /// Durations of operations.
    pub timing: Timing,
    /// ECC strength: correctable bits per step of 512 bytes, or per page if pages are smaller.
    pub ecc_bits: u32,
    /// Pages that a power cut destroys together.
    pub pairing: Pairing,
}

/// Bytes per ECC step.
pub(crate) const ECC_STEP_BYTES: u32 = 512;

const USUAL_ECC_BITS: u32 = 4;

impl ChipModel {
    /// A chip with zero latencies that corrects 4 bits per step.
    #[must_use]
    pub fn new(geometry: NandGeometry) -> Self {
        Self {
            geometry,
            timing: Timing::default(),
            ecc_bits: USUAL_ECC_BITS,
            pairing: Pairing::None,
        }
        .with_ecc_bits(USUAL_ECC_BITS)
    }

    /// Sets the timing.
    #[must_use]
    pub const fn with_timing(self, timing: Timing) -> Self {
        Self { timing, ..self }
    }

    /// Sets the pairing of pages.
    pub fn with_pairing(self, pairing: Pairing) -> Result<Self, ModelError> {
        let pages_per_block = self.geometry.pages_per_block();
        match pairing.fits(pages_per_block) {
            true => Ok(Self { pairing, ..self }),
            false => Err(ModelError::Unpaired { pages_per_block }),
        }
    }

    /// Sets the ECC strength; the scrub threshold becomes 3/4 of it, rounded up, as in Linux.
    #[must_use]
    pub fn with_ecc_bits(self, ecc_bits: u32) -> Self {
        let threshold = (u64::from(ecc_bits) * 3).div_ceil(4);
        Self {
            geometry: self
                .geometry
                .with_bitflip_threshold(u32::try_from(threshold).unwrap_or(u32::MAX)),
            ecc_bits,
            ..self
        }
    }

    /// Sets the number of blocks to fit `bytes` of data, rounded down.
    pub fn with_size(self, bytes: u64) -> Result<Self, ModelError> {
        let blocks = bytes / u64::from(self.geometry.block_bytes());
        let blocks = u32::try_from(blocks).map_err(|_| ModelError::TooLarge { bytes })?;
        if blocks == 0 {
            return Err(ModelError::TooSmall {
                bytes,
                block_bytes: self.geometry.block_bytes(),
            });
        }
        Ok(Self {
            geometry: self.geometry.with_blocks(blocks)?,
            ..self
        })
    }

    /// Bytes per ECC step.
    #[must_use]
    pub fn ecc_step_bytes(&self) -> u32 {
        self.geometry.page_bytes().min(ECC_STEP_BYTES)
    }

    /// Bus time to transfer bytes `start..start + len` of one page.
    #[must_use]
    pub fn transfer(&self, start: u32, len: u32) -> Nanos {
        let step = self.ecc_step_bytes();
        let steps = (start + len).div_ceil(step) - start / step;
        let steps_of_page = self.geometry.page_bytes() / step;
        Nanos(self.timing.transfer_page.0 * u64::from(steps) / u64::from(steps_of_page))
    }
}

/// Reason why a model is invalid.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ModelError {
    /// Invalid geometry.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// Less than one block.
    #[error("a chip of {bytes} bytes has not even one block of {block_bytes} bytes")]
    TooSmall {
        /// Requested size in bytes.
        bytes: u64,
        /// Block size in bytes.
        block_bytes: u32,
    },
    /// An operation takes too long.
    #[error("an operation of {time} is longer than a day")]
    TooSlow {
        /// Duration of the operation.
        time: Nanos,
    },
    /// The number of pages per block does not allow pairs.
    #[error(
        "blocks of {pages_per_block} pages have no paired pages: expected an even number from 4 to 65534"
    )]
    Unpaired {
        /// Pages per block.
        pages_per_block: u32,
    },
    /// More than 2^31 blocks.
    #[error("a chip of {bytes} bytes has more blocks than can be numbered")]
    TooLarge {
        /// Requested size in bytes.
        bytes: u64,
    },
}

/// A chip by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Single-level cells, seeds/001 table 1.
    Slc,
    /// Multi-level cells, seeds/001 table 1.
    Mlc,
    /// Triple-level cells, seeds/001 table 1.
    Tlc,
    /// The chip of the hardware platform, seeds/001 section 6.1.
    Micron,
    /// nandsim as in its manual: 128 MiB, 2 KiB pages, 512-byte sub-pages, zero latencies.
    Nandsim,
}

impl Preset {
    /// All presets.
    pub const ALL: [Self; 5] = [Self::Slc, Self::Mlc, Self::Tlc, Self::Micron, Self::Nandsim];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slc => "slc",
            Self::Mlc => "mlc",
            Self::Tlc => "tlc",
            Self::Micron => "micron-mlc",
            Self::Nandsim => "nandsim",
        }
    }

    /// One-line description.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Slc => "SLC of MA-UBIFS table 1",
            Self::Mlc => "MLC of MA-UBIFS table 1",
            Self::Tlc => "TLC of MA-UBIFS table 1",
            Self::Micron => "Micron MLC of MA-UBIFS section 6.1",
            Self::Nandsim => "what nandsim makes for the id 0x20,0xf1: no delays",
        }
    }

    /// The model of the preset.
    ///
    /// # Panics
    /// Never: the presets are valid geometries, which a test checks.
    #[must_use]
    pub fn model(self) -> ChipModel {
        self.try_model().expect("presets are valid geometries")
    }

    fn try_model(self) -> Result<ChipModel, GeometryError> {
        // Page, OOB and sub-page bytes, pages per block, blocks; tR, tPROG and tBERS in us.
        let (page, oob, subpage, pages, blocks, read, program, erase) = match self {
            Self::Slc => (2048, 64, 512, 64, 2048, 25, 200, 1500),
            Self::Mlc => (2048, 64, 2048, 128, 1024, 25, 600, 2000),
            Self::Tlc => (4096, 224, 4096, 128, 512, 75, 1300, 4000),
            Self::Micron => (8192, 448, 8192, 256, 4096, 75, 1300, 3800),
            Self::Nandsim => (2048, 64, 512, 64, 1024, 0, 0, 0),
        };
        let geometry = NandGeometry::new(page, pages, blocks)?
            .with_oob(oob)?
            .with_subpage(subpage)?;
        let bus_ns_per_byte = if self == Self::Nandsim { 0 } else { BUS_NS_PER_BYTE };
        let timing = Timing {
            read_page: Nanos::from_micros(read),
            program_page: Nanos::from_micros(program),
            erase_block: Nanos::from_micros(erase),
            transfer_page: Nanos(bus_ns_per_byte).times(u64::from(page)),
        };
        Ok(ChipModel::new(geometry).with_timing(timing))
    }
}

/// ONFI asynchronous timing mode 4: one byte per 25 ns, 40 MB/s.
const BUS_NS_PER_BYTE: u64 = 25;

impl FromStr for Preset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|preset| preset.name() == text)
            .ok_or_else(|| {
                let names: Vec<_> = Self::ALL.iter().map(|preset| preset.name()).collect();
                format!("there is no chip called `{text}`; known: {}", names.join(", "))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_have_the_numbers_of_the_paper() {
        let row = |preset: Preset| {
            let ChipModel { geometry, timing, .. } = preset.model();
            let times = [timing.read_page, timing.program_page, timing.erase_block];
            (geometry.page_bytes(), times.map(|time| time.0 / 1000))
        };
        assert_eq!(row(Preset::Slc), (2048, [25, 200, 1500]));
        assert_eq!(row(Preset::Mlc), (2048, [25, 600, 2000]));
        assert_eq!(row(Preset::Tlc), (4096, [75, 1300, 4000]));
        assert_eq!(row(Preset::Micron), (8192, [75, 1300, 3800]));
        for preset in Preset::ALL {
            assert_eq!(preset.name().parse(), Ok(preset));
            assert_eq!(preset.model().geometry.bitflip_threshold(), 3);
        }
    }

    #[test]
    fn the_bus_moves_whole_ecc_steps() {
        let model = Preset::Tlc.model();
        let page = model.timing.transfer_page;
        assert_eq!(page, Nanos(102_400));
        assert_eq!(model.transfer(0, 4096), page);
        assert_eq!(model.transfer(0, 64), Nanos(page.0 / 8));
        assert_eq!(model.transfer(500, 24), Nanos(page.0 / 4));
    }

    #[test]
    fn a_size_gives_whole_blocks() {
        let model = Preset::Slc.model();
        assert_eq!(model.with_size(300_000).unwrap().geometry.blocks(), 2);
        model.with_size(1000).expect_err("no block");
        model.with_size(u64::MAX).expect_err("too many");
    }
}
