//! Errors of the store and the loop device.

use std::path::PathBuf;

use emmc::CardError;

use crate::KeptError;
use thiserror::Error;

/// Reason why a card can't be attached, stored or detached.
#[derive(Debug, Error)]
pub enum LiveError {
    /// The card can't be built.
    #[error(transparent)]
    Card(#[from] CardError),
    /// A file of the store can't be used.
    #[error("{}: {doing} failed: {source}", path.display())]
    Store {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The host's error.
        source: std::io::Error,
    },
    /// Another process uses the store.
    #[error("{}: another process has this card attached; detach it there first", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The store is not a plain file.
    #[error("{}: a store has to be a plain file (or the word ram)", path.display())]
    NoFile {
        /// The path given.
        path: PathBuf,
    },
    /// The side-car can't be parsed.
    #[error("{}: this is no description of a card: {source}; remove it to take the image as it is", path.display())]
    Description {
        /// The file.
        path: PathBuf,
        /// The parse error.
        source: serde_json::Error,
    },
    /// The side-car describes a card that can't be built.
    #[error("{}: {source}; mend it, or remove it to take the image as it is", path.display())]
    StoredCard {
        /// The file.
        path: PathBuf,
        /// The number that is wrong.
        source: CardError,
    },
    /// The side-car has an unsupported version.
    #[error("{}: format version {found}, this build reads version {expected}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Version of the file.
        found: u32,
        /// Version of this build.
        expected: u32,
    },
    /// The sizes of the image and the card differ.
    #[error("{}: the image has {found} bytes, the card {expected}; give --size {found}", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// Size of the image.
        found: u64,
        /// Size of the card.
        expected: u64,
    },
    /// The file of maps and wear can't be decoded.
    #[error("{}: these are no maps of a card: {source}; remove it to begin with new maps", path.display())]
    Kept {
        /// The file.
        path: PathBuf,
        /// The decoding error.
        source: KeptError,
    },
    /// The file of maps and wear belongs to another card.
    #[error(
        "{}: these maps are of another card: {source}; attach that one, or remove the file to begin with new maps",
        path.display()
    )]
    KeptOfAnother {
        /// The file.
        path: PathBuf,
        /// The number that differs.
        source: CardError,
    },
    /// The kernel's events can't be traced.
    #[error(
        "{}: following the kernel's block events failed: {source}; mount tracefs at /sys/kernel/tracing, or leave \
         out --request-flags", folder.display()
    )]
    Flags {
        /// The instance of tracefs.
        folder: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// An operation on a loop device failed.
    #[error("{device}: {doing} failed: {source}")]
    Loop {
        /// The device.
        device: String,
        /// The operation that failed.
        doing: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// A loop device is still in use.
    #[error(
        "{device}: still open in some program or mounted elsewhere; find it with `lsof {device}`, end it and try again"
    )]
    Busy {
        /// The device.
        device: String,
    },
    /// The latency of the way to the block device can't be measured.
    #[error(
        "{}: measuring the way through the kernel failed: {source}; --make-up off goes without it",
        device.display()
    )]
    Rehearsal {
        /// The device.
        device: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The kernel can't limit the dirty pages of a device.
    #[error(
        "{}: no such file: this kernel has no limit of dirty pages per device (Linux 6.2 and later have it); leave out \
         --dirty-limit", path.display()
    )]
    NoDirtyLimit {
        /// The missing file.
        path: PathBuf,
    },
    /// The limit of dirty pages is above that of the machine.
    #[error("{}: the kernel does not take {value}; the machine's own limit (vm.dirty_ratio) is {most}", path.display())]
    DirtyLimitTooHigh {
        /// File in `/sys/block/NAME/bdi`.
        path: PathBuf,
        /// The value written.
        value: u64,
        /// Content of the file.
        most: String,
    },
    /// The limit of dirty pages can't be read or written.
    #[error("{}: expected a number, found {found}: {source}", path.display())]
    DirtyLimit {
        /// File in `/sys/block/NAME/bdi`.
        path: PathBuf,
        /// Content of the file.
        found: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// A queue setting was refused.
    #[error("{device}: the kernel does not take {value} for {setting} ({source}); it knows: {known}")]
    Setting {
        /// The device.
        device: String,
        /// File in `/sys/block/NAME/queue`.
        setting: &'static str,
        /// The value written.
        value: String,
        /// Content of the file.
        known: String,
        /// The kernel's error.
        source: std::io::Error,
    },
}
