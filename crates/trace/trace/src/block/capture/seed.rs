//! Names and places of files that exist before the trace: the kernel may have dropped their directory entries.

use std::fs;
use std::os::unix::fs::MetadataExt;

use results::block_trace::{Limitation, TracedDevice};
use results::shown;

use crate::block::attribution::Attribution;
use crate::block::device::{self, number};
use crate::block::record::kernel_device;
use crate::block::regions::regions;

/// Maximum number of names that the scan visits.
const MAX_SEEDS: usize = 200_000;

/// Scans paths on the mounted file systems of a device, for files whose directory entry the kernel has dropped. The
/// limitation if there are too many.
pub(super) fn seed(attribution: &mut Attribution, device: &TracedDevice) -> Option<Limitation> {
    let mut left = MAX_SEEDS;
    for mount in device::mounts_on(device) {
        for region in regions(&mount.mountpoint, mount.device) {
            attribution.layouts.learn(kernel_device(device.device), region);
        }
        let Ok(root) = fs::metadata(&mount.mountpoint) else {
            continue;
        };
        // A mount may show only a part of its file system.
        let top = mount.root.trim_end_matches('/').to_owned();
        let mut folders = vec![(mount.mountpoint.clone(), top)];
        while let Some((folder, path)) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                if left == 0 {
                    return Some(Limitation {
                        what: "names of some files from before the trace".to_owned(),
                        why: format!("{} has more than {MAX_SEEDS} names", device.name),
                    });
                }
                left -= 1;
                let Ok(metadata) = entry.metadata() else {
                    continue;
                };
                if metadata.dev() != root.dev() {
                    continue;
                }
                let file_name = entry.file_name();
                let name = shown::from_bytes(file_name.as_encoded_bytes());
                let path = format!("{path}/{name}");
                attribution
                    .paths
                    .seed(number(metadata.dev()), metadata.ino(), &path);
                if metadata.is_dir() {
                    folders.push((entry.path(), path));
                }
            }
        }
    }
    None
}
