//! Metadata regions of a mounted file system, as block types of traces. The crate `fsmap` queries the kernel.

use std::fs;
use std::path::Path;

use fsmap::{SystemOwner, system_regions};
use results::block_trace::{BlockType, DeviceNumber};

/// A region of metadata, in sectors of the whole disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub start: u64,
    pub end: u64,
    pub block_type: BlockType,
}

/// Regions of the file system of `mountpoint`; empty if it does not report them.
pub(crate) fn regions(mountpoint: &Path, device: DeviceNumber) -> Vec<Region> {
    let partition = fs::read_to_string(format!("/sys/dev/block/{device}/start"))
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    let told = system_regions(mountpoint).unwrap_or_default();
    let regions = told.into_iter().filter_map(|region| {
        Some(Region {
            start: partition + region.start / 512,
            end: partition + (region.start + region.length) / 512,
            block_type: block_type(region.owner)?,
        })
    });
    regions.collect()
}

/// `None` for free space, and for regions about which the programs' records are more precise.
fn block_type(owner: SystemOwner) -> Option<BlockType> {
    Some(match (owner.letter?, owner.number) {
        ('X', 1) => BlockType::Superblock,
        ('X', 2) => BlockType::Log,
        ('X', 3) => BlockType::AllocationGroup,
        ('X', 4 | 6) => BlockType::TreeNode,
        ('X', 5) => BlockType::InodeTable,
        ('f', 1 | 2) => BlockType::GroupDescriptors,
        ('f', 3) => BlockType::BlockBitmap,
        ('f', 4) => BlockType::InodeBitmap,
        _ => return None,
    })
}
