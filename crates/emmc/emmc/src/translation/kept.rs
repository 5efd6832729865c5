//! The persistent state of a translation layer: wear, and for page maps the location of every unit.
//!
//! `live` stores it in a file beside a card's data and restores it unchecked, so a layer accepts it only after
//! verifying that it is consistent.

use std::collections::BTreeSet;

use crate::error::CardError;

/// A unit without data.
pub const NO_SLOT: u32 = u32::MAX;

/// The persistent state of a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Erase counter of each super block.
    pub erases: Vec<u32>,
    /// Location of the data; `None` for layers that do not save it.
    pub map: Option<KeptMap>,
}

/// Location of the data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptMap {
    /// The slot of each unit, or [`NO_SLOT`]; units of the map itself follow those of the host.
    pub slots: Vec<u32>,
    /// Whether each super block is erased.
    pub erased: Vec<bool>,
    /// Super blocks being filled.
    pub open: Vec<KeptOpen>,
}

/// A super block being filled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptOpen {
    /// Number of the stream that fills it, as the layer counts them.
    pub stream: u32,
    /// Number of the super block.
    pub block: u32,
    /// Used slots.
    pub filled: u32,
    /// Epoch in which each page was programmed.
    pub epochs: Vec<u32>,
}

impl Kept {
    /// All super blocks ordered by erase counter, lowest first, after checking their number.
    pub(super) fn by_wear(&self, super_blocks: usize) -> Result<BTreeSet<(u32, u32)>, CardError> {
        expect_count("super blocks", self.erases.len(), super_blocks)?;
        Ok((0..)
            .zip(&self.erases)
            .map(|(block, erases)| (*erases, block))
            .collect())
    }
}

/// Fails if the number of items in the saved state is not that of the card.
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

/// The error for a saved number that is impossible for this card.
pub(super) const fn foreign(what: &'static str, found: u64, expected: &'static str) -> CardError {
    CardError::Number {
        what,
        found,
        expected,
    }
}
