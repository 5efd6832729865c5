//! Errors of making and attaching arrays, and the check that all devices of an array have one shape.

use std::sync::Arc;

use media::{GeometryError, Nand, NandGeometry};
use thiserror::Error;
use ubi::{AttachError, VolumeTableError};

use crate::identity::{IdentityError, MAX_MEMBERS, Redundancy};

/// Reason why devices can't be attached as an array, or made into one.
#[derive(Debug, Error)]
pub enum ArrayError {
    /// Too many devices, or none.
    #[error("an array has 1 to {MAX_MEMBERS} devices, not {found}")]
    Count {
        /// Number of given devices.
        found: usize,
    },
    /// The devices' shapes differ.
    #[error(transparent)]
    Differs(#[from] ShapesDiffer),
    /// A device can't be attached as UBI.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A volume could not be created or opened.
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
    /// The volume's name is not an identity.
    #[error("{device}: {source}; is it the right device?")]
    Identity {
        /// The device.
        device: Arc<str>,
        /// The problem with the name.
        source: IdentityError,
    },
    /// The devices belong to two arrays.
    #[error(
        "{device} belongs to array {found:032x} ({label}), but {first} to {expected:032x}; \
         it is foreign here: give the devices of one array"
    )]
    Foreign {
        /// The device that differs.
        device: Arc<str>,
        /// The first device.
        first: Arc<str>,
        /// The device's array.
        found: u128,
        /// Label of that array.
        label: String,
        /// Array of the first device.
        expected: u128,
    },
    /// Members are missing.
    #[error(
        "array {label} has {expected} members, but {found} devices were given; missing: member {missing}"
    )]
    Missing {
        /// Label of the array.
        label: String,
        /// Members of the array.
        expected: u32,
        /// Number of given devices.
        found: usize,
        /// Places of the missing members.
        missing: String,
        /// Redundancy of the array.
        redundancy: Redundancy,
    },
    /// The same member was given twice.
    #[error("{device} and {first} are both member {index} of array {label}; one of them is a copy")]
    Twice {
        /// The later device.
        device: Arc<str>,
        /// The earlier device.
        first: Arc<str>,
        /// Their place.
        index: u32,
        /// Label of the array.
        label: String,
    },
    /// Members were given in the wrong order.
    #[error(
        "{device} is member {found} of array {label}, but was given as member {given}; \
         the right order is: {order}"
    )]
    Swapped {
        /// The device.
        device: Arc<str>,
        /// Its place.
        found: u32,
        /// The position at which it was given.
        given: u32,
        /// Label of the array.
        label: String,
        /// All devices in their order.
        order: String,
    },
    /// The last generation is higher than any array reaches.
    #[error(
        "array {label}: the last generation is {last:#x}, which no array reaches; one of the members was damaged on purpose"
    )]
    Generation {
        /// Label of the array.
        label: String,
        /// The generation.
        last: u64,
    },
    /// A member is stale: it is in an earlier epoch.
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
    /// A dirty mark was written by a later version of this program.
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
    /// Other software wrote to a member.
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
    /// A member to adopt is not refused.
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
    /// A member to adopt does not exist or is absent.
    #[error(
        "array {label}: member {place} can't be adopted: {why}. Nothing was changed; in an array with parity, `tidegate array rebuild` \
         makes an absent member anew"
    )]
    NothingToAdopt {
        /// Label of the array.
        label: String,
        /// The member.
        place: u32,
        /// The cause.
        why: String,
    },
    /// All members are refused, so none is left to decide.
    #[error(
        "array {label}: all of its members were written to by themselves, so nothing tells which blocks belong together; none can be adopted"
    )]
    AllRefused {
        /// Label of the array.
        label: String,
    },
    /// A member can't be rebuilt without parity.
    #[error(
        "array {label} has no parity: what was on a member is on no other, so none can be rebuilt. `tidegate array adopt` takes back a \
         member that is refused; else format the array and restore its content"
    )]
    NoParity {
        /// Label of the array.
        label: String,
    },
    /// With parity, the only refused member must be rebuilt rather than adopted.
    #[error(
        "array {label} has parity, and member {place} alone is refused: `tidegate array rebuild --member {place}` makes it anew{}",
        beside(*lost)
    )]
    RebuildInstead {
        /// Label of the array.
        label: String,
        /// The member.
        place: u32,
        /// Number of shares that other members lost.
        lost: usize,
    },
    /// A member can't be rebuilt from the content of an interrupted update.
    #[error(
        "array {label}: an update did not end, and a member can't be made from what it left; update the array first, which goes without the \
         member"
    )]
    UpdateFirst {
        /// Label of the array.
        label: String,
    },
    /// The device to rebuild on was the member, and may have what other members lost.
    #[error(
        "{device}: member {place} of array {label} is refused, and {lost} parts of LEBs are lost on other members, which this one may still \
         complete: rebuild on another chip, and keep this one. Nothing was changed"
    )]
    StillNeeded {
        /// The device.
        device: Arc<str>,
        /// Label of the array.
        label: String,
        /// The member.
        place: usize,
        /// Number of shares that other members lost.
        lost: usize,
    },
    /// A member other than the one to rebuild is absent.
    #[error("array {label}: member {place} can't be rebuilt, since member {absent} is absent, too: {why}")]
    OtherAbsent {
        /// Label of the array.
        label: String,
        /// Place of the member to rebuild.
        place: usize,
        /// Place of the absent member.
        absent: usize,
        /// The cause.
        why: String,
    },
    /// The member to rebuild is there.
    #[error(
        "array {label}: member {place} is there and is not refused, so there is nothing to rebuild; formatting it would take the array's \
         redundancy. To replace it, give another chip in its place. Nothing was changed"
    )]
    NoneAbsent {
        /// Label of the array.
        label: String,
        /// Place of the member to rebuild.
        place: usize,
    },
    /// A new device has too few blocks.
    #[error(
        "{device}: it has room for {found} LEBs, and a member of this array needs {needed}; give a larger device"
    )]
    TooSmall {
        /// The device.
        device: Arc<str>,
        /// Number of LEBs that fit on the device.
        found: u32,
        /// Number of LEBs of the array.
        needed: u32,
    },
    /// A rebuild failed.
    #[error("array {label}: the rebuild did not end, and can be taken up again: {source}")]
    Rebuild {
        /// Label of the array.
        label: String,
        /// The cause.
        source: ubi::VolumeError,
    },
    /// The last epoch is higher than any array reaches.
    #[error(
        "array {label}: the last epoch is {last:#x}, which no array reaches; one of the members was damaged on purpose"
    )]
    Epoch {
        /// Label of the array.
        label: String,
        /// The epoch.
        last: u64,
    },
    /// The array could not be closed, so its members keep their dirty marks.
    #[error("array {label} could not be closed, and its members stay marked as open: {source}")]
    Close {
        /// Label of the array.
        label: String,
        /// The cause.
        source: ubi::VolumeError,
    },
    /// The array could not be opened for writing.
    #[error("array {label} could not be opened for writing: {source}")]
    Open {
        /// Label of the array.
        label: String,
        /// The cause.
        source: ubi::VolumeError,
    },
    /// A worker thread could not be started.
    #[error("no thread for a member could be started: {source}")]
    Threads {
        /// The host's error.
        source: std::io::Error,
    },
}

/// The end of the error about the only refused member: whether its rebuild leaves something lost.
fn beside(lost: usize) -> String {
    match lost {
        0 => ", and nothing is lost".to_owned(),
        lost => format!(
            ". {lost} parts of LEBs are lost on other members, which this one may still complete: rebuild on another chip, and keep this one"
        ),
    }
}

/// Reason why devices can't be combined into a [`Proxy`](crate::Proxy).
#[derive(Debug, Error)]
pub enum ProxyError {
    /// No devices were given.
    #[error("an array needs at least one device")]
    NoMembers,
    /// The devices' shapes differ.
    #[error(transparent)]
    Differs(#[from] ShapesDiffer),
    /// The combined geometry is invalid.
    #[error("{members} devices as one: {source}")]
    Geometry {
        /// Number of members.
        members: usize,
        /// The cause.
        source: GeometryError,
    },
    /// A worker thread could not be started.
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
    /// The device that it was compared with.
    pub first: Arc<str>,
    /// Its shape.
    pub found: String,
    /// The shape of the first.
    pub expected: String,
}

/// Checks that all devices have the same page, sub-page and block size; the number of blocks may differ.
pub(crate) fn check_shapes<'a>(
    devices: impl IntoIterator<Item = &'a Box<dyn Nand>>,
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
