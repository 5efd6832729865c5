//! I/O modes of a file workload: page cache, direct I/O, mapping, and the kind of sync.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::words::unknown;

/// The I/O mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Buffered.
    Buffered,
    /// `O_SYNC`.
    Sync,
    /// `O_DSYNC`.
    #[serde(rename = "dsync")]
    DataSync,
    /// `O_DIRECT`.
    Direct,
    /// `O_DIRECT` and `O_SYNC`.
    #[serde(rename = "direct-sync")]
    DirectSync,
    /// `O_DIRECT` and `O_DSYNC`.
    #[serde(rename = "direct-dsync")]
    DirectDataSync,
    /// `O_DIRECT`, `fsync` after each write.
    #[serde(rename = "direct-fsync")]
    DirectFsync,
    /// `O_DIRECT`, `fdatasync` after each write.
    #[serde(rename = "direct-fdatasync")]
    DirectFdatasync,
    /// Buffered, `fsync` after each write.
    Fsync,
    /// Buffered, `fdatasync` after each write.
    Fdatasync,
    /// A shared mapping. Its final sync is an `msync` of the whole mapping.
    Mmap,
    /// A shared mapping; `msync` with `MS_ASYNC` after each write.
    #[serde(rename = "mmap-async")]
    MmapAsync,
    /// A shared mapping; `msync` with `MS_SYNC` after each write.
    #[serde(rename = "mmap-sync")]
    MmapSync,
    /// Buffered, the BarrierFS kernel's `fbarrier` after each write; an error on other kernels.
    Fbarrier,
    /// Buffered, the BarrierFS kernel's `fdatabarrier` after each write; an error on other kernels.
    Fdatabarrier,
}

impl Mode {
    /// All modes that need no special kernel, in the order of help texts.
    pub const ALL: [Self; 13] = [
        Self::Buffered,
        Self::Sync,
        Self::DataSync,
        Self::Direct,
        Self::DirectSync,
        Self::DirectDataSync,
        Self::DirectFsync,
        Self::DirectFdatasync,
        Self::Fsync,
        Self::Fdatasync,
        Self::Mmap,
        Self::MmapAsync,
        Self::MmapSync,
    ];

    /// Modes that require a BarrierFS kernel.
    pub const BARRIERS: [Self; 2] = [Self::Fbarrier, Self::Fdatabarrier];

    /// The name that [`FromStr`] parses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Sync => "sync",
            Self::DataSync => "dsync",
            Self::Direct => "direct",
            Self::DirectSync => "direct-sync",
            Self::DirectDataSync => "direct-dsync",
            Self::DirectFsync => "direct-fsync",
            Self::DirectFdatasync => "direct-fdatasync",
            Self::Fsync => "fsync",
            Self::Fdatasync => "fdatasync",
            Self::Mmap => "mmap",
            Self::MmapAsync => "mmap-async",
            Self::MmapSync => "mmap-sync",
            Self::Fbarrier => "fbarrier",
            Self::Fdatabarrier => "fdatabarrier",
        }
    }

    /// True if the file is accessed through a mapping.
    #[must_use]
    pub const fn is_mapped(self) -> bool {
        matches!(self, Self::Mmap | Self::MmapAsync | Self::MmapSync)
    }

    /// True for direct I/O.
    #[must_use]
    pub const fn is_direct(self) -> bool {
        matches!(
            self,
            Self::Direct
                | Self::DirectSync
                | Self::DirectDataSync
                | Self::DirectFsync
                | Self::DirectFdatasync
        )
    }

    pub(crate) const fn syncs_each_write_by_call(self) -> bool {
        !matches!(
            self,
            Self::Buffered
                | Self::Sync
                | Self::DataSync
                | Self::Direct
                | Self::DirectSync
                | Self::DirectDataSync
                | Self::Mmap
        )
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut modes = Self::ALL.into_iter().chain(Self::BARRIERS);
        let found = modes.find(|mode| mode.name() == text);
        found.ok_or_else(|| unknown(text, &Self::ALL.map(Self::name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_has_one_name_on_the_command_line_and_in_records() {
        for mode in Mode::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.name());
        }
        assert!(
            "turbo"
                .parse::<Mode>()
                .unwrap_err()
                .contains("none of buffered, sync, dsync")
        );
    }
}
