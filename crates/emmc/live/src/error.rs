//! What can go wrong with the store and the loop device.

use std::path::PathBuf;

use emmc::CardError;

use crate::KeptError;
use thiserror::Error;

/// Why a card can't be attached, kept or taken away.
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
        /// What was tried.
        doing: &'static str,
        /// What the host said.
        source: std::io::Error,
    },
    /// Another process has the store.
    #[error("{}: another process has this card attached; detach it there first", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// A store is no plain file.
    #[error("{}: a store has to be a plain file (or the word ram)", path.display())]
    NoFile {
        /// What was named.
        path: PathBuf,
    },
    /// The side-car is none.
    #[error("{}: this is no description of a card: {source}; remove it to take the image as it is", path.display())]
    Description {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The side-car is of another version.
    #[error("{}: format version {found}, this build reads version {expected}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Version of the file.
        found: u32,
        /// Version of this build.
        expected: u32,
    },
    /// The image and the card differ in size.
    #[error("{}: the image has {found} bytes, the card {expected}; give --size {found}", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// Size of the image.
        found: u64,
        /// Size of the card.
        expected: u64,
    },
    /// The file of maps and wear can't be read.
    #[error("{}: these are no maps of a card: {source}; remove it to begin with new maps", path.display())]
    Kept {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: KeptError,
    },
    /// The file of maps and wear is of another card.
    #[error(
        "{}: these maps are of another card: {source}; attach that one, or remove the file to begin with new maps",
        path.display()
    )]
    KeptOfAnother {
        /// The file.
        path: PathBuf,
        /// Which number differs.
        source: CardError,
    },
    /// The kernel's events can't be followed.
    #[error(
        "{}: following the kernel's block events failed: {source}; mount tracefs at /sys/kernel/tracing, or leave \
         out --request-flags", folder.display()
    )]
    Flags {
        /// The instance of tracefs.
        folder: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The kernel refused something about a loop device.
    #[error("{device}: {doing} failed: {source}")]
    Loop {
        /// The device.
        device: String,
        /// What was tried.
        doing: &'static str,
        /// What the kernel said.
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
    /// The way to the block device can't be measured.
    #[error(
        "{}: measuring the way through the kernel failed: {source}; --make-up off goes without it",
        device.display()
    )]
    Rehearsal {
        /// The device.
        device: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A setting of the queue was refused.
    #[error("{device}: the kernel does not take {value} for {setting} ({source}); it knows: {known}")]
    Setting {
        /// The device.
        device: String,
        /// File in `/sys/block/NAME/queue`.
        setting: &'static str,
        /// What was written.
        value: String,
        /// What the file reads.
        known: String,
        /// What the kernel said.
        source: std::io::Error,
    },
}
