//! Losses of pages below files that were synced.

use std::collections::BTreeMap;

use ubifs::NewFile;

/// A file of root.
pub const NEW_FILE: NewFile = NewFile {
    mode: 0o100_644,
    user: 0,
    group: 0,
    data: Vec::new(),
};

/// Number of bit flips that makes a page uncorrectable.
pub const BITS: u32 = 64;
/// The page of the VID header; data begins behind it.
pub const VID_PAGE: u32 = 1;

/// Contents of files as they were synced, by name.
pub type Files = BTreeMap<String, Vec<u8>>;
