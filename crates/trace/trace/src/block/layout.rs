//! Regions of a device by type of metadata, if the file system reports them.

use std::collections::{BTreeMap, HashMap};

use results::block_trace::BlockType;

use super::regions::Region;

/// Regions of devices, by first sector.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    devices: HashMap<u32, BTreeMap<u64, (u64, BlockType)>>,
}

impl Layouts {
    /// Adds a region of a device.
    pub(crate) fn learn(&mut self, device: u32, region: Region) {
        let regions = self.devices.entry(device).or_default();
        regions.insert(region.start, (region.end, region.block_type));
    }

    /// The type of a sector's region, if it was reported.
    pub(crate) fn block_type(&self, device: u32, sector: u64) -> Option<BlockType> {
        let (_, (end, block_type)) = self.devices.get(&device)?.range(..=sector).next_back()?;
        (sector < *end).then_some(*block_type)
    }
}
