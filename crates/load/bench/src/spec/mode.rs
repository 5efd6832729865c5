//! I/O modes of a file workload: the path to the file, and the kind of sync.

use std::fmt;
use std::str::FromStr;

use results::words::unknown;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The path of data between the worker's memory and the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePath {
    /// Calls through the page cache.
    Cached,
    /// Calls past the page cache: `O_DIRECT`.
    Direct,
    /// A shared mapping. Its final sync is an `msync` of the whole mapping.
    Mapped,
}

/// The sync of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// None.
    None,
    /// `O_SYNC`.
    Sync,
    /// `O_DSYNC`.
    DataSync,
    /// `fsync` after each write.
    Fsync,
    /// `fdatasync` after each write.
    Fdatasync,
    /// The BarrierFS kernel's `fbarrier` after each write; an error on other kernels.
    Fbarrier,
    /// The BarrierFS kernel's `fdatabarrier` after each write; an error on other kernels.
    Fdatabarrier,
    /// `msync` with `MS_ASYNC` after each write to a mapping.
    MsyncAsync,
    /// `msync` with `MS_SYNC` after each write to a mapping.
    Msync,
}

/// The I/O mode: one of the combinations below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    name: &'static str,
    /// The path to the file.
    pub path: CachePath,
    /// The sync of writes.
    pub sync: SyncKind,
}

/// Defines each mode as a constant, and the list of all.
macro_rules! modes {
    ($($constant:ident = $name:literal, $path:ident, $sync:ident;)+) => {
        impl Mode {
            $(#[doc = concat!("`", $name, "`.")]
            pub const $constant: Self = Self {
                name: $name,
                path: CachePath::$path,
                sync: SyncKind::$sync,
            };)+

            /// In the order of help texts; those that need a BarrierFS kernel last.
            const WITH_BARRIERS: &[Self] = &[$(Self::$constant,)+];
        }
    };
}

modes! {
    BUFFERED = "buffered", Cached, None;
    SYNC = "sync", Cached, Sync;
    DATA_SYNC = "dsync", Cached, DataSync;
    DIRECT = "direct", Direct, None;
    DIRECT_SYNC = "direct-sync", Direct, Sync;
    DIRECT_DATA_SYNC = "direct-dsync", Direct, DataSync;
    DIRECT_FSYNC = "direct-fsync", Direct, Fsync;
    DIRECT_FDATASYNC = "direct-fdatasync", Direct, Fdatasync;
    FSYNC = "fsync", Cached, Fsync;
    FDATASYNC = "fdatasync", Cached, Fdatasync;
    MMAP = "mmap", Mapped, None;
    MMAP_ASYNC = "mmap-async", Mapped, MsyncAsync;
    MMAP_SYNC = "mmap-sync", Mapped, Msync;
    FBARRIER = "fbarrier", Cached, Fbarrier;
    FDATABARRIER = "fdatabarrier", Cached, Fdatabarrier;
}

impl Mode {
    /// All modes that need no special kernel, in the order of help texts.
    pub const ALL: &[Self] = Self::WITH_BARRIERS.split_at(13).0;

    /// The mode of a path and a sync; `None` if they don't go together.
    #[must_use]
    pub fn of(path: CachePath, sync: SyncKind) -> Option<Self> {
        let mut modes = Self::WITH_BARRIERS.iter();
        modes.find(|mode| (mode.path, mode.sync) == (path, sync)).copied()
    }

    /// The name that [`FromStr`] parses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// True if the file is accessed through a mapping.
    #[must_use]
    pub const fn is_mapped(self) -> bool {
        matches!(self.path, CachePath::Mapped)
    }

    /// True for direct I/O.
    #[must_use]
    pub const fn is_direct(self) -> bool {
        matches!(self.path, CachePath::Direct)
    }

    /// The mode without syncs by calls, for workloads that only read.
    #[must_use]
    pub fn without_calls(self) -> Self {
        if self.syncs_each_write_by_call() {
            Self::of(self.path, SyncKind::None).unwrap_or(self)
        } else {
            self
        }
    }

    pub(crate) const fn syncs_each_write_by_call(self) -> bool {
        !matches!(self.sync, SyncKind::None | SyncKind::Sync | SyncKind::DataSync)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name)
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::WITH_BARRIERS.iter().find(|mode| mode.name == text);
        let names = || Self::ALL.iter().map(|mode| mode.name).collect::<Vec<_>>();
        found.copied().ok_or_else(|| unknown(text, &names()))
    }
}

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_has_one_name_on_the_command_line_and_in_records() {
        for mode in Mode::WITH_BARRIERS {
            assert_eq!(mode.name().parse(), Ok(*mode));
            assert_eq!(Mode::of(mode.path, mode.sync), Some(*mode));
            let value = serde_json::to_value(mode).unwrap();
            assert_eq!(value, mode.name());
            assert_eq!(serde_json::from_value::<Mode>(value).unwrap(), *mode);
        }
        assert!(
            "turbo"
                .parse::<Mode>()
                .unwrap_err()
                .contains("none of buffered, sync, dsync")
        );
        assert_eq!(Mode::ALL.last(), Some(&Mode::MMAP_SYNC));
    }

    #[test]
    fn a_workload_that_reads_keeps_the_path_and_the_flags_of_open() {
        assert_eq!(Mode::DIRECT_FSYNC.without_calls(), Mode::DIRECT);
        assert_eq!(Mode::MMAP_ASYNC.without_calls(), Mode::MMAP);
        assert_eq!(Mode::FBARRIER.without_calls(), Mode::BUFFERED);
        assert_eq!(Mode::SYNC.without_calls(), Mode::SYNC);
    }
}
