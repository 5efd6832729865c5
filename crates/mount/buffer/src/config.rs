//! Configuration of a buffer, and its validation.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Smallest entry: one page. Smaller ones would split the kernel's smallest request.
const ENTRY_BYTES_MIN: u64 = 4 << 10;
/// Largest buffer. It is only address space until it is used, but a typo (`8g` for `8m`) should be reported.
const BUFFER_BYTES_MAX: u64 = 4 << 30;
/// Shortest interval: below it the manager does nothing but wake up.
const INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Longest interval: the page cache's own limit for dirty data.
const INTERVAL_MAX: Duration = Duration::from_secs(30);

/// Writer of full and overdue entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flusher {
    /// A flush manager thread.
    #[default]
    Thread,
    /// The writer itself, when its entry is full or overdue (the paper's single-threaded variant). A timer writes out
    /// entries that no writer has handled within twice the time.
    Inline,
    /// None, as nothing is buffered: every write goes through.
    Off,
}

impl FromStr for Flusher {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "thread" => Ok(Self::Thread),
            "inline" => Ok(Self::Inline),
            "off" => Ok(Self::Off),
            other => Err(format!("`{other}` is none of thread, inline, off")),
        }
    }
}

impl fmt::Display for Flusher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Thread => "thread",
            Self::Inline => "inline",
            Self::Off => "off",
        })
    }
}

/// Sizes and timing of a buffer. The default is the paper's best: 8 MiB in entries of 2 MiB, flushed every 10
/// ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferConfig {
    /// Memory of all entries in bytes.
    pub buffer_bytes: u64,
    /// Data region of one entry in bytes: the largest write that the file system below sees.
    pub entry_bytes: u64,
    /// Interval of the checks for overdue entries. An entry is written out after two intervals without an append, and
    /// after eight if it is still growing or continues a full one; the timer of the inline flusher uses four and sixteen.
    pub flush_interval: Duration,
    /// Writer of full and overdue entries.
    pub flusher: Flusher,
}

impl Default for BufferConfig {
    fn default() -> Self {
        Self {
            buffer_bytes: 8 << 20,
            entry_bytes: 2 << 20,
            flush_interval: Duration::from_millis(10),
            flusher: Flusher::Thread,
        }
    }
}

impl BufferConfig {
    /// Checks this configuration and returns it. With [`Flusher::Off`] the sizes are ignored.
    ///
    /// # Errors
    /// If a size or the interval is invalid; the message names it and a valid value.
    pub fn validated(self) -> Result<Self, BufferConfigError> {
        if self.flusher == Flusher::Off {
            return Ok(self);
        }
        let Self {
            buffer_bytes,
            entry_bytes,
            flush_interval,
            ..
        } = self;
        if entry_bytes < ENTRY_BYTES_MIN || !entry_bytes.is_multiple_of(ENTRY_BYTES_MIN) {
            return Err(BufferConfigError::Entry { entry_bytes });
        }
        if buffer_bytes < entry_bytes || !buffer_bytes.is_multiple_of(entry_bytes) {
            return Err(BufferConfigError::NotEntries {
                buffer_bytes,
                entry_bytes,
            });
        }
        if buffer_bytes > BUFFER_BYTES_MAX {
            return Err(BufferConfigError::TooLarge { buffer_bytes });
        }
        if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&flush_interval) {
            return Err(BufferConfigError::Interval { flush_interval });
        }
        Ok(self)
    }
}

/// Error of an invalid configuration, or of a host that can't provide a buffer.
#[derive(Debug, Error)]
pub enum BufferConfigError {
    /// The entry is too small or not a multiple of a page.
    #[error(
        "an entry of {entry_bytes} bytes is not a multiple of {ENTRY_BYTES_MIN} bytes; give at least 4k, such as 2m"
    )]
    Entry {
        /// Requested entry size.
        entry_bytes: u64,
    },
    /// The buffer does not divide into entries.
    #[error(
        "a buffer of {buffer_bytes} bytes is not one or more whole entries of {entry_bytes} bytes; give a multiple of the entry"
    )]
    NotEntries {
        /// Requested buffer size.
        buffer_bytes: u64,
        /// Requested entry size.
        entry_bytes: u64,
    },
    /// The buffer is absurdly large.
    #[error(
        "a buffer of {buffer_bytes} bytes is more than {BUFFER_BYTES_MAX} bytes; did you mean megabytes?"
    )]
    TooLarge {
        /// Requested buffer size.
        buffer_bytes: u64,
    },
    /// The interval is out of range.
    #[error("a flush interval of {flush_interval:?} is outside 1 ms to 30 s")]
    Interval {
        /// Requested interval.
        flush_interval: Duration,
    },
    /// The host provides no address space for an entry.
    #[error("no memory for a buffer of {buffer_bytes} bytes: {source}; give a smaller buffer")]
    Memory {
        /// Requested buffer size.
        buffer_bytes: u64,
        /// The host's error.
        source: std::io::Error,
    },
    /// The flush manager thread could not be started.
    #[error("the flush manager thread can't be started: {source}; go without a buffer")]
    Thread {
        /// The host's error.
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(
        buffer_bytes: u64,
        entry_bytes: u64,
        interval_ms: u64,
    ) -> Result<BufferConfig, BufferConfigError> {
        let flush_interval = Duration::from_millis(interval_ms);
        BufferConfig {
            buffer_bytes,
            entry_bytes,
            flush_interval,
            flusher: Flusher::Thread,
        }
        .validated()
    }

    #[test]
    fn the_default_and_a_single_smallest_entry_are_valid() {
        assert!(BufferConfig::default().validated().is_ok());
        assert!(with(4096, 4096, 1).is_ok());
    }

    #[test]
    fn each_kind_of_nonsense_is_told_apart() {
        assert!(matches!(
            with(8 << 20, 100, 10),
            Err(BufferConfigError::Entry { .. })
        ));
        assert!(matches!(
            with(8 << 20, 0, 10),
            Err(BufferConfigError::Entry { .. })
        ));
        assert!(matches!(
            with(0, 4096, 10),
            Err(BufferConfigError::NotEntries { .. })
        ));
        assert!(matches!(
            with(3 << 20, 2 << 20, 10),
            Err(BufferConfigError::NotEntries { .. })
        ));
        assert!(matches!(
            with(8 << 30, 2 << 20, 10),
            Err(BufferConfigError::TooLarge { .. })
        ));
        assert!(matches!(
            with(8 << 20, 2 << 20, 0),
            Err(BufferConfigError::Interval { .. })
        ));
    }

    #[test]
    fn a_flusher_is_written_as_it_is_read() {
        for flusher in [Flusher::Thread, Flusher::Inline, Flusher::Off] {
            assert_eq!(flusher.to_string().parse(), Ok(flusher));
        }
    }
}
