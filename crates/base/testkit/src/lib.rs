//! Test support, only for `dev-dependencies`.
//!
//! - [`prng`]: seeded randomness, with a separate stream for each purpose.
//! - [`MemFs`]: a file system in memory, the model for comparisons.
//! - [`FaultyFs`]: injects faults, blocks writes and models power cuts, over any file system.
//! - [`Ext4`]: a real file system whose medium can be read in the state that a power cut would leave.
//! - [`contract`]: required behaviour of every [`vfs::FileSystem`].
//! - [`model`]: random operations from several threads on a file system and on the model, compared step by step.
//! - [`hostile`]: valid inputs of decoders, changed at random, and the limits that hold for each.
//! - [`heap`]: peak memory of a part of a test.
//! - [`is_full`]: whether the long variants of tests run.
//! - [`CachedPages`]: the pages of a file in the host's page cache.
//! - [`needs()`]: requirements on the machine, and the record of tests left out.
//! - [`lab`]: the distribution's kernel in QEMU, which checks flash images and runs its file systems.
//!
//! No shipped crate uses it: failures here are panics.

pub mod contract;
mod depth;
mod ext4;
mod faulty_fs;
pub mod heap;
pub mod hostile;
pub mod lab;
mod mem_fs;
pub mod model;
mod needs;
mod page_cache;
pub mod prng;

pub use depth::{is_full, left_to_full};
pub use ext4::{Ext4, OnExt4};
pub use faulty_fs::{Call, Faults, FaultyFs, Times, WriteRecord};
pub use mem_fs::MemFs;
pub use needs::{Need, has_dirty_limit, needs, report_left_out};
pub use page_cache::CachedPages;

/// Script of the shell that runs a program (its arguments) where mounts whose daemon is gone are not seen, in a mount namespace of its
/// own (`unshare -m`): mkfs.btrfs looks at the image of every mounted loop device of the machine, and fails if one can't be reached.
pub const BESIDE_DEAD_MOUNTS: &str = "
    while read -r _ place kind _; do
        case $kind in fuse*) timeout 2 stat \"$place\" >/dev/null 2>&1 || umount -l \"$place\" ;; esac
    done </proc/self/mounts
    exec \"$@\"";
