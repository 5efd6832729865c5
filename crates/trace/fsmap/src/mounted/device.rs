//! The block device under a mounted file system or behind a device node: size, and start on its disk, from sysfs.

use std::fs::{Metadata, read_link, read_to_string};
use std::os::unix::fs::MetadataExt;

use crate::owner_map::{Device, SECTOR_BYTES};

/// The device of a node in /dev.
pub(crate) fn device_of_node(metadata: &Metadata) -> Option<Device> {
    by_number(metadata.rdev())
}

/// The device with this number.
pub(crate) fn by_number(number: u64) -> Option<Device> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let folder = format!("/sys/dev/block/{major}:{minor}");
    let name = read_link(&folder).ok()?.file_name()?.to_str()?.to_owned();
    let sectors = |file: &str| -> Option<u64> {
        read_to_string(format!("{folder}/{file}"))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    Some(Device {
        number: (major, minor),
        name,
        // Only partitions have this file.
        start: sectors("start").unwrap_or(0).saturating_mul(SECTOR_BYTES),
        length: sectors("size")?.saturating_mul(SECTOR_BYTES),
    })
}
