//! Flash translation layers: location of units, allocation of slots, and garbage collection.
//!
//! They hold maps and counters, but no data. All of them use [`Flash`], which models the times. Each call runs to
//! completion: garbage collection occupies banks, which later commands then find busy.

mod flash;
mod hybrid;
mod kept;
mod map_cache;
mod page_map;
mod prefetch;

use media::Nanos;
use serde::{Deserialize, Serialize};

use crate::error::CardError;
use crate::geometry::CardGeometry;

pub use flash::{DataStream, Epoch, Flash, OpenBlock};
pub use hybrid::{Hybrid, HybridRules, Locality};
pub use kept::{Kept, KeptMap, KeptOpen, NO_SLOT};
pub use page_map::{PageMap, PageMapRules};

/// Separation of data by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Not separated.
    #[default]
    Default,
    /// Tagged as metadata (data tag).
    Tagged,
    /// Data of a context, 1 to 15.
    Context(u8),
}

/// The units of a write command.
#[derive(Clone, Copy, Debug)]
pub struct UnitWrite {
    /// First unit.
    pub first: u32,
    /// Number of units.
    pub count: u32,
    /// Arrival of the data.
    pub data: DataStream,
    /// Sectors of the command before these units.
    pub sectors_before: u64,
    /// Total sectors of these units; a unit has arrived with its last sector.
    pub sectors: u64,
    /// Epoch of the data.
    pub epoch: Epoch,
    /// Separation of the data.
    pub placement: Placement,
}

impl UnitWrite {
    /// Arrival time of the `n`-th unit.
    #[must_use]
    pub fn arrival(&self, n: u32, unit_sectors: u32) -> Nanos {
        let end = (u64::from(n + 1) * u64::from(unit_sectors)).min(self.sectors);
        self.data.arrival(self.sectors_before + end)
    }
}

/// Durability of a discard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forget {
    /// The range reads as erased from the response on, even after a power cut (TRIM).
    Durably,
    /// The data may reappear (DISCARD).
    Lazily,
}

/// Counters of a translation layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranslationCounters {
    /// Units written by the host.
    pub host_units: u64,
    /// Slots left empty to complete a command.
    pub padded_units: u64,
    /// Units copied by garbage collection.
    pub copied_units: u64,
    /// Units of the map that were written.
    pub map_units: u64,
    /// Super blocks collected (page map), or merges of all kinds (hybrid).
    pub collections: u64,
    /// Merges that only exchanged blocks.
    pub switch_merges: u64,
    /// Merges that completed a log block.
    pub partial_merges: u64,
    /// Merges that gathered units from several blocks.
    pub full_merges: u64,
    /// Misses of the map cache in RAM.
    pub map_misses: u64,
}

impl TranslationCounters {
    /// The part counted after `before` was taken.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            host_units: self.host_units - before.host_units,
            padded_units: self.padded_units - before.padded_units,
            copied_units: self.copied_units - before.copied_units,
            map_units: self.map_units - before.map_units,
            collections: self.collections - before.collections,
            switch_merges: self.switch_merges - before.switch_merges,
            partial_merges: self.partial_merges - before.partial_merges,
            full_merges: self.full_merges - before.full_merges,
            map_misses: self.map_misses - before.map_misses,
        }
    }

    /// Units written to flash for any reason, including those that still wait for the rest of their page.
    #[must_use]
    pub const fn written_units(&self) -> u64 {
        self.host_units + self.padded_units + self.copied_units + self.map_units
    }

    /// Units written to flash per unit written by the host.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        let written = self.written_units();
        (self.host_units > 0).then(|| results::nearest_f64(written) / results::nearest_f64(self.host_units))
    }
}

/// Urgency of a prefetch hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Others come first.
    Later,
    /// It is the next one.
    Next,
}

/// A flash translation layer.
pub trait Translation: Send {
    /// Writes units. Full pages are programmed; the rest waits for [`Translation::close`] or for more units.
    fn write(&mut self, flash: &mut Flash, write: &UnitWrite);

    /// Prefetch hint: the host will soon write `unit`. No effect on the model.
    fn prefetch(&self, _unit: u32, _urgency: Urgency) {}

    /// Pads the pending pages and programs them, no earlier than `ready`.
    fn close(&mut self, flash: &mut Flash, ready: Nanos, epoch: Epoch);

    /// Reads units, no earlier than `ready`. Returns the end.
    fn read(&mut self, flash: &mut Flash, first: u32, count: u32, ready: Nanos) -> Nanos;

    /// Discards units. Returns the end.
    fn forget(&mut self, flash: &mut Flash, first: u32, count: u32, ready: Nanos, how: Forget) -> Nanos;

    /// A copy of the layer.
    fn copied(&self) -> Box<dyn Translation>;

    /// Whether a unit has data.
    fn is_mapped(&self, unit: u32) -> bool;

    /// Forgets all times, when the card's clock is set to zero.
    fn restart_clock(&mut self);

    /// Units that have a slot in a page which is not programmed yet, because the page is not full.
    fn pending_units(&self) -> u64;

    /// Counters of the layer.
    fn counters(&self) -> TranslationCounters;

    /// Erase counter of each super block.
    fn erase_counts(&self) -> &[u32];

    /// The persistent state.
    fn keep(&self) -> Kept;

    /// Restores the state saved by an empty layer of the same kind and geometry; a state without a map restores only
    /// the wear.
    ///
    /// # Errors
    /// If the state does not suit this layer, which stays unchanged then.
    fn take_up(&mut self, geometry: &CardGeometry, kept: &Kept) -> Result<(), CardError>;
}

impl Clone for Box<dyn Translation> {
    fn clone(&self) -> Self {
        self.copied()
    }
}
