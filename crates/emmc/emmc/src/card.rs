//! Parameters of a card, read from TOML files, which name the sources of their numbers.
//!
//! The presets are files of the folder `cards`, compiled in; a user's file has the same keys (`docs/guide/emmc.md`).

use media::Nanos;
use serde::{Deserialize, Serialize};

use crate::cell::CellKind;
use crate::error::CardError;
use crate::geometry::{CardGeometry, Shape};
use crate::nand_array::{NandPower, NandTiming};
use crate::presets::{Presets, from_toml};

/// A card as described in its file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CardFile {
    /// Name.
    pub name: String,
    /// One-line description.
    pub description: String,
    /// Sources of the numbers, and which of them are assumptions.
    pub source: String,
    /// Geometry and timing of the flash.
    pub flash: FlashFile,
    /// The translation layer.
    pub translation: TranslationFile,
    /// Other properties of the controller.
    pub controller: ControllerFile,
    /// Electrical power of the flash; without it no energy is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerFile>,
}

/// Table `power`: of one bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PowerFile {
    /// While it is read, milliwatts.
    pub read_mw: u32,
    /// While it is programmed, milliwatts.
    pub program_mw: u32,
    /// While it is erased, milliwatts.
    pub erase_mw: u32,
    /// While it is idle, microwatts.
    pub standby_uw: u32,
}

impl PowerFile {
    /// As the banks take it.
    #[must_use]
    pub fn of_banks(&self) -> NandPower {
        NandPower {
            read_mw: u64::from(self.read_mw),
            program_mw: u64::from(self.program_mw),
            erase_mw: u64::from(self.erase_mw),
            standby_uw: u64::from(self.standby_uw),
        }
    }
}

/// Table `flash`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FlashFile {
    /// Bits per cell.
    pub cell: CellKind,
    /// Number of banks.
    pub banks: u32,
    /// Page size in bytes.
    pub page_bytes: u32,
    /// Word lines per block.
    pub word_lines: u32,
    /// Capacity visible to the host, bytes.
    pub capacity_bytes: u64,
    /// Over-provisioning, in thousandths of the capacity.
    pub spare_permille: u32,
    /// tR of each bit of a cell, microseconds.
    pub read_us: Vec<u32>,
    /// tPROG of each bit of a cell, microseconds.
    pub program_us: Vec<u32>,
    /// Program of an SLC page, microseconds.
    pub program_slc_us: u32,
    /// tBERS, microseconds.
    pub erase_us: u32,
    /// Transfer of one page over the channel (PC), nanoseconds.
    pub transfer_ns: u32,
    /// Whether acknowledged pages are copied before a program that endangers them.
    pub lsb_backup: bool,
}

/// Kind of translation layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TranslationKind {
    /// Page mapping with the whole map in RAM.
    PageMap,
    /// Page mapping with parts of the map in RAM (DFTL).
    CachedMap,
    /// Block mapping, with log blocks shared by all blocks (FAST).
    Fast,
    /// As FAST, with several sequential log blocks, writes separated by size, dead log blocks first (LAST).
    Last,
}

impl TranslationKind {
    /// All kinds with their names.
    pub const WORDS: [(Self, &'static str); 4] = [
        (Self::PageMap, "page-map"),
        (Self::CachedMap, "cached-map"),
        (Self::Fast, "fast"),
        (Self::Last, "last"),
    ];

    /// Name of the kind.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::PageMap => "page-map",
            Self::CachedMap => "cached-map",
            Self::Fast => "fast",
            Self::Last => "last",
        }
    }
}

/// Table `translation`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TranslationFile {
    /// Kind of translation layer.
    pub kind: TranslationKind,
    /// Size of a mapping unit in bytes.
    pub unit_bytes: u32,
    /// Pages of the map in RAM (cached-map).
    pub cached_map_pages: u32,
    /// Log blocks for random writes (fast, last).
    pub random_log_blocks: u32,
    /// Log blocks for sequential writes (fast: 1).
    pub sequential_log_blocks: u32,
    /// Minimum size in bytes of writes treated as sequential (last).
    pub sequential_from_bytes: u32,
}

/// Table `controller`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerFile {
    /// Time between the last bit of a command and the start of its execution, nanoseconds.
    pub command_ns: u32,
    /// Firmware overhead per request of a pack beyond the first, nanoseconds.
    pub packed_entry_ns: u32,
    /// Whether non-contiguous requests of a pack are programmed one after another, as they would be without the pack.
    #[serde(default)]
    pub packed_apart: bool,
    /// RAM for data that waits to be programmed, bytes.
    pub buffer_bytes: u64,
    /// Data read ahead of a sequential reader, bytes; 0: none.
    #[serde(default)]
    pub read_ahead_bytes: u32,
    /// Write cache: whether writes are acknowledged before they are programmed (CACHE_CTRL).
    pub cache: bool,
    /// Whether writes tagged as metadata go to SLC (data tag).
    pub data_tag: bool,
    /// Contexts with separate blocks, 0 to 15 (context ID).
    pub contexts: u32,
}

/// Largest power of a bank in milliwatts.
const POWER_MW_MAX: u32 = 10_000;

/// Longest operation of a bank in microseconds: sums of times over the longest runs stay within 64 bits.
const TIME_US_MAX: u32 = 1_000_000;

impl CardFile {
    /// Parses a description; `name` is for messages.
    ///
    /// # Errors
    /// If the text is not TOML with these keys, or numbers contradict each other.
    pub fn parse(name: &str, text: &str) -> Result<Self, CardError> {
        let card: Self = from_toml(name, text)?;
        card.check()?;
        Ok(card)
    }

    /// Checks a description that another format held.
    ///
    /// # Errors
    /// If numbers contradict each other, or are beyond what sums of times and energies hold.
    pub fn check(&self) -> Result<(), CardError> {
        self.geometry()?;
        self.timing()?;
        if self.controller.contexts > 15 {
            return Err(CardError::Number {
                what: "contexts",
                found: u64::from(self.controller.contexts),
                expected: "0 to 15",
            });
        }
        let others = [
            self.flash.program_slc_us,
            self.flash.erase_us,
            self.flash.transfer_ns.div_ceil(1000),
        ];
        let times = self
            .flash
            .read_us
            .iter()
            .chain(&self.flash.program_us)
            .chain(&others);
        if let Some(longest) = times.max().filter(|longest| **longest > TIME_US_MAX) {
            return Err(CardError::Number {
                what: "read_us, program_us, program_slc_us, erase_us, transfer_ns / 1000",
                found: u64::from(*longest),
                expected: "at most 1,000,000 (one second)",
            });
        }
        if let Some(power) = &self.power {
            let most = power.read_mw.max(power.program_mw).max(power.erase_mw);
            if most > POWER_MW_MAX || power.standby_uw > POWER_MW_MAX * 1000 {
                return Err(CardError::Number {
                    what: "power of a bank",
                    found: u64::from(most.max(power.standby_uw / 1000)),
                    expected: "at most 10,000 mW",
                });
            }
        }
        if self.controller.buffer_bytes < u64::from(self.flash.page_bytes) {
            return Err(CardError::Number {
                what: "buffer_bytes",
                found: self.controller.buffer_bytes,
                expected: "at least a page",
            });
        }
        if u64::from(self.controller.read_ahead_bytes) > self.controller.buffer_bytes {
            return Err(CardError::Number {
                what: "read_ahead_bytes",
                found: u64::from(self.controller.read_ahead_bytes),
                expected: "at most buffer_bytes",
            });
        }
        Ok(())
    }

    /// The preset with this name.
    ///
    /// # Errors
    /// If it does not exist; the message lists the existing names.
    pub fn preset(name: &str) -> Result<Self, CardError> {
        let (name, text) = PRESETS.find(name)?;
        Self::parse(name, text)
    }

    /// The file of the preset with this name.
    #[must_use]
    pub fn preset_text(name: &str) -> Option<&'static str> {
        PRESETS.find(name).ok().map(|(_, text)| text)
    }

    /// Names of the presets.
    pub fn preset_names() -> impl Iterator<Item = &'static str> {
        PRESETS.names()
    }

    /// The geometry.
    ///
    /// # Errors
    /// If the numbers do not give a valid geometry.
    pub fn geometry(&self) -> Result<CardGeometry, CardError> {
        CardGeometry::new(Shape {
            cell: self.flash.cell,
            banks: self.flash.banks,
            page_bytes: self.flash.page_bytes,
            unit_bytes: self.translation.unit_bytes,
            word_lines: self.flash.word_lines,
            capacity_bytes: self.flash.capacity_bytes,
            spare_permille: self.flash.spare_permille,
        })
    }

    /// The timing.
    ///
    /// # Errors
    /// If the number of times differs from the bits of a cell.
    pub fn timing(&self) -> Result<NandTiming, CardError> {
        let by_bit = |what, times: &[u32]| {
            let bits = usize::from(self.flash.cell.bits());
            if times.len() != bits {
                return Err(CardError::Number {
                    what,
                    found: u64::try_from(times.len()).unwrap_or(u64::MAX),
                    expected: "as many times as a cell has bits",
                });
            }
            let time = |bit: usize| {
                let micros = times.get(bit).or(times.last()).copied().unwrap_or_default();
                Nanos::from_micros(u64::from(micros))
            };
            Ok([time(0), time(1), time(2)])
        };
        Ok(NandTiming {
            read: by_bit("number of read_us", &self.flash.read_us)?,
            program: by_bit("number of program_us", &self.flash.program_us)?,
            program_slc: Nanos::from_micros(u64::from(self.flash.program_slc_us)),
            erase: Nanos::from_micros(u64::from(self.flash.erase_us)),
            transfer: Nanos(u64::from(self.flash.transfer_ns)),
        })
    }
}

const PRESETS: Presets = Presets {
    what: "card",
    texts: &[
        ("gt-i9300", include_str!("../cards/gt-i9300.toml")),
        ("gt-i9300-fit", include_str!("../cards/gt-i9300-fit.toml")),
        ("gt-i9100", include_str!("../cards/gt-i9100.toml")),
        ("mlc-simplessd", include_str!("../cards/mlc-simplessd.toml")),
        ("mlc-mqsim", include_str!("../cards/mlc-mqsim.toml")),
        ("slc-flashsim", include_str!("../cards/slc-flashsim.toml")),
        ("tlc-nvmevirt", include_str!("../cards/tlc-nvmevirt.toml")),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_card_and_names_its_source() {
        for name in CardFile::preset_names() {
            let card = CardFile::preset(name).unwrap();
            assert_eq!(card.name, name);
            assert!(card.source.len() > 20, "{name}: {}", card.source);
        }
    }

    #[test]
    fn an_unknown_card_is_answered_with_the_known_ones() {
        let message = CardFile::preset("gt-i9999").expect_err("unknown").to_string();
        assert!(message.contains("gt-i9300"), "{message}");
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let text = include_str!("../cards/gt-i9300.toml").replace("erase_us", "erase_ms");
        let message = CardFile::parse("mine", &text)
            .expect_err("a wrong key")
            .to_string();
        assert!(message.contains("erase_ms"), "{message}");
    }

    #[test]
    fn a_card_reads_ahead_no_more_than_its_memory_holds() {
        let text = include_str!("../cards/gt-i9300.toml")
            .replace("read_ahead_bytes = 0", "read_ahead_bytes = 8388608");
        let message = CardFile::parse("mine", &text)
            .expect_err("8 MiB ahead with 4 MiB of memory")
            .to_string();
        assert!(message.contains("read_ahead_bytes"), "{message}");
    }

    #[test]
    fn an_operation_of_a_bank_takes_at_most_a_second() {
        let with = |micros: &str| {
            let text = include_str!("../cards/gt-i9300.toml");
            CardFile::parse(
                "mine",
                &text.replace("erase_us = 3500", &format!("erase_us = {micros}")),
            )
        };
        assert!(with("1000000").is_ok());
        let message = with("1000001").expect_err("more than a second").to_string();
        assert!(
            message.contains("erase_us") && message.contains("1000001"),
            "{message}"
        );
    }

    #[test]
    fn a_cell_of_two_bits_needs_two_program_times() {
        let text =
            include_str!("../cards/gt-i9300.toml").replace("program_us = [500, 1300]", "program_us = [500]");
        let message = CardFile::parse("mine", &text).expect_err("one time").to_string();
        assert!(message.contains("program_us"), "{message}");
    }
}
