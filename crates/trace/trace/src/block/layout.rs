//! Which places of a device hold which kind of metadata, where a file system tells it.

use std::collections::{BTreeMap, HashMap};

use results::block_trace::BlockType;

use super::regions::Region;

/// Regions of devices, by first sector.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    devices: HashMap<u32, BTreeMap<u64, (u64, BlockType)>>,
}

impl Layouts {
    /// A region of a device.
    pub(crate) fn learn(&mut self, device: u32, region: Region) {
        let regions = self.devices.entry(device).or_default();
        regions.insert(region.start, (region.end, region.block_type));
    }

    /// What a sector holds, where it was told.
    pub(crate) fn block_type(&self, device: u32, sector: u64) -> Option<BlockType> {
        let (_, (end, block_type)) = self.devices.get(&device)?.range(..=sector).next_back()?;
        (sector < *end).then_some(*block_type)
    }
}
