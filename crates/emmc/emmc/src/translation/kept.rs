//! What of a translation layer outlives the power: wear, and for page maps where every unit is.
//!
//! It is the content of a file that `live` keeps beside a card's data, and comes back from there unchecked: a layer takes it
//! up only when it could be its own.

use std::collections::BTreeSet;

use crate::error::CardError;

/// A unit without data.
pub const NO_SLOT: u32 = u32::MAX;

/// What a layer keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// How often each super block was erased.
    pub erases: Vec<u32>,
    /// Where the data is; `None` of layers that do not say.
    pub map: Option<KeptMap>,
}

/// Where the data is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptMap {
    /// By unit, its slot or [`NO_SLOT`]; units of the map itself follow those of the host.
    pub slots: Vec<u32>,
    /// By super block, whether it is erased.
    pub erased: Vec<bool>,
    /// Super blocks that are being filled.
    pub open: Vec<KeptOpen>,
}

/// A super block that is being filled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptOpen {
    /// What fills it, as the layer counts.
    pub stream: u32,
    /// Which one.
    pub block: u32,
    /// Slots that are taken.
    pub filled: u32,
    /// By page, the epoch in which it was programmed.
    pub epochs: Vec<u32>,
}

impl Kept {
    /// Every super block with its wear, the least worn one first, for a layer that has so many.
    pub(super) fn by_wear(&self, super_blocks: usize) -> Result<BTreeSet<(u32, u32)>, CardError> {
        expect_count("super blocks", self.erases.len(), super_blocks)?;
        Ok((0..)
            .zip(&self.erases)
            .map(|(block, erases)| (*erases, block))
            .collect())
    }
}

/// Refuses what was kept of another number of things than the card has.
pub(super) fn expect_count(what: &'static str, found: usize, expected: usize) -> Result<(), CardError> {
    match found == expected {
        true => Ok(()),
        false => Err(foreign(
            what,
            u64::try_from(found).unwrap_or(u64::MAX),
            "as many as the card has",
        )),
    }
}

/// A number of what was kept that can't be of this card.
pub(super) const fn foreign(what: &'static str, found: u64, expected: &'static str) -> CardError {
    CardError::Number {
        what,
        found,
        expected,
    }
}
