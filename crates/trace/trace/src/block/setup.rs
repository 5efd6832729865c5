//! Parameters of the programs, and of the tracefs instance that can replace them.

use super::device::Driver;

/// Parameters of the programs.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The kernel's numbers of the disks.
    pub devices: Vec<u32>,
    /// Device numbers of the file systems mounted from them, if they differ.
    pub file_systems: Vec<u32>,
    /// The driver of each of [`Setup::devices`]; empty if commands are not traced.
    pub drivers: Vec<Driver>,
    pub ring_bytes: u32,
    pub count_calls: bool,
}
