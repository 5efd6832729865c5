//! Why devices make no array, and the check that all of an array have one shape.

use std::sync::Arc;

use media::{GeometryError, Nand, NandGeometry};
use thiserror::Error;
use ubi::{AttachError, VolumeTableError};

use crate::identity::{IdentityError, MAX_MEMBERS, Redundancy};

/// Why devices are no array, or can't be made one.
#[derive(Debug, Error)]
pub enum ArrayError {
    /// Too many or none.
    #[error("an array has 1 to {MAX_MEMBERS} devices, not {found}")]
    Count {
        /// Devices that were given.
        found: usize,
    },
    /// The shapes differ.
    #[error(transparent)]
    Differs(#[from] ShapesDiffer),
    /// A device can't be attached as UBI.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A volume could not be made or opened.
    #[error(transparent)]
    Volume(#[from] VolumeTableError),
    /// A device has no volume, or several.
    #[error("{device}: a member of an array has one volume, this has {found}; is it the right device?")]
    Volumes {
        /// The device.
        device: Arc<str>,
        /// Volumes on it.
        found: usize,
    },
    /// The volume's name is no identity.
    #[error("{device}: {source}; is it the right device?")]
    Identity {
        /// The device.
        device: Arc<str>,
        /// What is wrong.
        source: IdentityError,
    },
    /// Members of two arrays.
    #[error(
        "{device} belongs to array {found:032x} ({label}), but {first} to {expected:032x}; \
         it is foreign here: give the devices of one array"
    )]
    Foreign {
        /// The device that differs.
        device: Arc<str>,
        /// The first device.
        first: Arc<str>,
        /// Array of the device.
        found: u128,
        /// Label of that array.
        label: String,
        /// Array of the first device.
        expected: u128,
    },
    /// Not as many as the array has.
    #[error(
        "array {label} has {expected} members, but {found} devices were given; missing: member {missing}"
    )]
    Missing {
        /// Label of the array.
        label: String,
        /// Members of the array.
        expected: u32,
        /// Devices that were given.
        found: usize,
        /// Places of the members that were not given.
        missing: String,
        /// Redundancy of the array.
        redundancy: Redundancy,
    },
    /// One member given twice.
    #[error("{device} and {first} are both member {index} of array {label}; one of them is a copy")]
    Twice {
        /// The later device.
        device: Arc<str>,
        /// The earlier one.
        first: Arc<str>,
        /// Their place.
        index: u32,
        /// Label of the array.
        label: String,
    },
    /// Members in another order.
    #[error(
        "{device} is member {found} of array {label}, but was given as member {given}; \
         the right order is: {order}"
    )]
    Swapped {
        /// The device.
        device: Arc<str>,
        /// Its place.
        found: u32,
        /// Where it was given.
        given: u32,
        /// Label of the array.
        label: String,
        /// All devices in their order.
        order: String,
    },
    /// A generation that no array reaches.
    #[error(
        "array {label}: the last generation is {last:#x}, which no array reaches; one of the members was damaged on purpose"
    )]
    Generation {
        /// Label of the array.
        label: String,
        /// The generation.
        last: u64,
    },
    /// A member of an earlier epoch.
    #[error(
        "{device}: member {index} of array {label} is stale: it was last used in epoch {found} of the array, the others in \
         {expected}; it is an older copy, or the array was used without it. Give the right device; where there is none, \
         `tidegate array adopt` takes back what still fits"
    )]
    Stale {
        /// The device.
        device: Arc<str>,
        /// Its place.
        index: u32,
        /// Label of the array.
        label: String,
        /// Its epoch.
        found: u64,
        /// The epoch of the array.
        expected: u64,
    },
    /// A mark that a later version of this program wrote.
    #[error(
        "{device}: the mark of array {label} has version {version} and role {role}; this program knows version 1 with roles 0 and 1. \
         Use the program that wrote it"
    )]
    UnknownMark {
        /// The device.
        device: Arc<str>,
        /// Label of the array.
        label: String,
        /// Version of the mark.
        version: u8,
        /// Role of the mark.
        role: u8,
    },
    /// A member that something else wrote to.
    #[error(
        "{device}: member {index} of array {label} was written to by itself, not as part of the array: what it holds need \
         not fit the other members. Give the device, or a copy of it, as the array left it; where there is none, \
         `tidegate array adopt` takes back what still fits"
    )]
    WrittenAlone {
        /// The device.
        device: Arc<str>,
        /// Its place.
        index: u32,
        /// Label of the array.
        label: String,
    },
    /// A member that is to be adopted belongs to the array as it is.
    #[error(
        "{device}: member {index} of array {label} is not refused, so there is nothing to adopt; nothing was changed"
    )]
    NotRefused {
        /// The device.
        device: Arc<str>,
        /// Its place.
        index: u32,
        /// Label of the array.
        label: String,
    },
    /// All members are refused: none is left to say what fits.
    #[error(
        "array {label}: all of its members were written to by themselves, so nothing tells which blocks belong together; none can be adopted"
    )]
    AllRefused {
        /// Label of the array.
        label: String,
    },
    /// A member can't be made anew without parity.
    #[error(
        "array {label} has no parity: what was on a member is on no other, so none can be rebuilt. `tidegate array adopt` takes back a \
         member that is refused; else format the array and restore its content"
    )]
    NoParity {
        /// Label of the array.
        label: String,
    },
    /// With parity, the one member that is refused is made anew rather than adopted.
    #[error(
        "array {label} has parity, and member {place} alone is refused: `tidegate array rebuild --member {place}` makes it anew, and nothing is lost"
    )]
    RebuildInstead {
        /// Label of the array.
        label: String,
        /// The member.
        place: u32,
    },
    /// Another member than the one that is to be made anew is absent.
    #[error("array {label}: member {place} can't be rebuilt, since member {absent} is absent, too: {why}")]
    OtherAbsent {
        /// Label of the array.
        label: String,
        /// The member that is to be made anew.
        place: usize,
        /// The one that is absent.
        absent: usize,
        /// Why.
        why: String,
    },
    /// The member that is to be made anew was given among the others.
    #[error(
        "array {label}: member {place} is there and is not refused; give the other members alone to rebuild it"
    )]
    NoneAbsent {
        /// Label of the array.
        label: String,
        /// The member that is to be made anew.
        place: usize,
    },
    /// A new device has too few blocks.
    #[error(
        "{device}: it has room for {found} LEBs, and a member of this array needs {needed}; give a larger device"
    )]
    TooSmall {
        /// The device.
        device: Arc<str>,
        /// LEBs it has room for.
        found: u32,
        /// LEBs of the array.
        needed: u32,
    },
    /// A rebuild failed.
    #[error("array {label}: the rebuild did not end, and can be taken up again: {source}")]
    Rebuild {
        /// Label of the array.
        label: String,
        /// Why.
        source: ubi::VolumeError,
    },
    /// An epoch that no array reaches.
    #[error(
        "array {label}: the last epoch is {last:#x}, which no array reaches; one of the members was damaged on purpose"
    )]
    Epoch {
        /// Label of the array.
        label: String,
        /// The epoch.
        last: u64,
    },
    /// The array could not be closed, so its members stay marked.
    #[error("array {label} could not be closed, and its members stay marked as open: {source}")]
    Close {
        /// Label of the array.
        label: String,
        /// Why.
        source: ubi::VolumeError,
    },
    /// The members could not be marked.
    #[error("array {label} could not be opened for writing: {source}")]
    Open {
        /// Label of the array.
        label: String,
        /// Why.
        source: ubi::VolumeError,
    },
    /// No threads.
    #[error("no thread for a member could be started: {source}")]
    Threads {
        /// The host's error.
        source: std::io::Error,
    },
}

/// Why devices make no array.
#[derive(Debug, Error)]
pub enum ProxyError {
    /// No members.
    #[error("an array needs at least one device")]
    NoMembers,
    /// The shapes differ.
    #[error(transparent)]
    Differs(#[from] ShapesDiffer),
    /// The whole is no geometry.
    #[error("{members} devices as one: {source}")]
    Geometry {
        /// Number of members.
        members: usize,
        /// Why.
        source: GeometryError,
    },
    /// No threads.
    #[error("no thread for a member could be started: {source}")]
    Threads {
        /// The host's error.
        source: std::io::Error,
    },
}

/// Two devices that can't be in one array.
#[derive(Debug, Error)]
#[error(
    "{device} has {found}, but {first} has {expected}; members of an array have pages and blocks of one size"
)]
pub struct ShapesDiffer {
    /// The device that differs.
    pub device: Arc<str>,
    /// The one that it was compared with.
    pub first: Arc<str>,
    /// Its shape.
    pub found: String,
    /// The shape of the first.
    pub expected: String,
}

/// Checks that all devices have pages, sub-pages and blocks of one size; they may have different numbers of blocks.
pub(crate) fn check_shapes<'a, N: Nand + 'a>(
    devices: impl IntoIterator<Item = &'a N>,
) -> Result<(), ShapesDiffer> {
    let key = |shape: &NandGeometry| (shape.page_bytes(), shape.subpage_bytes(), shape.pages_per_block());
    let text = |shape: &NandGeometry| {
        let (page, subpage, pages) = key(shape);
        format!("{pages} pages of {page} bytes (sub-pages of {subpage}) a block")
    };
    let mut devices = devices.into_iter();
    let Some(first) = devices.next() else {
        return Ok(());
    };
    let expected = first.geometry();
    match devices.find(|device| key(&device.geometry()) != key(&expected)) {
        None => Ok(()),
        Some(device) => Err(ShapesDiffer {
            device: device.name(),
            first: first.name(),
            found: text(&device.geometry()),
            expected: text(&expected),
        }),
    }
}
