//! Flash translation layers: where a unit is, where the next one goes, and what is copied to make room.
//!
//! They hold maps and counts, no data. All of them write through [`Flash`], which knows the times. A layer works to
//! completion when it is called: collecting garbage takes banks, and later commands find these taken.

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

/// Which data is kept apart from other data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// None.
    #[default]
    Common,
    /// Marked as metadata (data tag).
    Tagged,
    /// Of a context, 1 to 15.
    Context(u8),
}

/// Units that a command writes.
#[derive(Clone, Copy, Debug)]
pub struct UnitWrite {
    /// First unit.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// When the data comes.
    pub data: DataStream,
    /// Sectors of the command before these units.
    pub sectors_before: u64,
    /// Sectors of a unit; data of a unit is there when its last sector has come.
    pub sectors: u64,
    /// What is acknowledged with it.
    pub epoch: Epoch,
    /// What it is kept apart with.
    pub placement: Placement,
}

impl UnitWrite {
    /// When the data of the `n`-th unit is there.
    #[must_use]
    pub fn arrival(&self, n: u32, unit_sectors: u32) -> Nanos {
        let end = (u64::from(n + 1) * u64::from(unit_sectors)).min(self.sectors);
        self.data.arrival(self.sectors_before + end)
    }
}

/// How long a discarded range stays discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forget {
    /// It reads as erased from the answer on, also after a power cut (TRIM).
    Durably,
    /// It may come back (DISCARD).
    Lazily,
}

/// What a translation layer did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranslationCounters {
    /// Units that the host wrote.
    pub host_units: u64,
    /// Slots that were left empty so that a command could end.
    pub padded_units: u64,
    /// Units that were copied to make room.
    pub copied_units: u64,
    /// Units of the map that were written.
    pub map_units: u64,
    /// Super blocks collected (page map), or merges of all kinds (hybrid).
    pub collections: u64,
    /// Merges that only exchanged blocks.
    pub switch_merges: u64,
    /// Merges that completed a log block.
    pub partial_merges: u64,
    /// Merges that copied from everywhere.
    pub full_merges: u64,
    /// Pages of the map that were not in RAM.
    pub map_misses: u64,
}

impl TranslationCounters {
    /// Units in flash for each unit that the host wrote.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        let written = self.host_units + self.padded_units + self.copied_units + self.map_units;
        (self.host_units > 0).then(|| results::nearest_f64(written) / results::nearest_f64(self.host_units))
    }
}

/// When something is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HowSoon {
    /// It waits with others.
    Later,
    /// It is next.
    Next,
}

/// A flash translation layer.
pub trait Translation: Send {
    /// Writes units. Pages that are full are programmed; what remains waits for [`Translation::close`] or for more.
    fn write(&mut self, flash: &mut Flash, write: &UnitWrite);

    /// Learns that the host will soon write a unit; nothing changes by it.
    fn expect(&self, _unit: u32, _how_soon: HowSoon) {}

    /// Fills pages up that wait, and programs them, not before `ready`.
    fn close(&mut self, flash: &mut Flash, ready: Nanos, epoch: Epoch);

    /// Reads units, not before `ready`. Returns the end.
    fn read(&mut self, flash: &mut Flash, first: u32, count: u32, ready: Nanos) -> Nanos;

    /// Forgets units. Returns the end.
    fn forget(&mut self, flash: &mut Flash, first: u32, count: u32, ready: Nanos, how: Forget) -> Nanos;

    /// Whether a unit has data.
    fn is_mapped(&self, unit: u32) -> bool;

    /// What was done.
    fn counters(&self) -> TranslationCounters;

    /// How often each super block was erased.
    fn erase_counts(&self) -> &[u32];

    /// What outlives the power.
    fn keep(&self) -> Kept;

    /// Takes up what an empty layer of the same kind and shape kept; what has no map is wear alone.
    ///
    /// # Errors
    /// When it can't be of this layer, which is as it was then.
    fn take_up(&mut self, geometry: &CardGeometry, kept: &Kept) -> Result<(), CardError>;
}
