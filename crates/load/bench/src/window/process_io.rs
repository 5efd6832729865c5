//! The kernel's I/O accounting of this process, from `/proc/self/io`.
//!
//! It covers all threads, including those that display progress, whose I/O is negligible.

use std::fs;

/// I/O of the process, since it started or as a difference between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessIo {
    /// Calls of the read family.
    pub read_calls: u64,
    /// Calls of the write family.
    pub write_calls: u64,
    /// Bytes fetched from storage, including read-ahead.
    pub storage_read_bytes: u64,
    /// Bytes of dirtied pages, and of direct writes.
    pub storage_written_bytes: u64,
}

impl ProcessIo {
    /// `None` if the kernel does not account I/O.
    pub fn take() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/io").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| -> Option<u64> {
            let value = text.lines().find_map(|line| line.strip_prefix(name))?;
            value.trim().parse().ok()
        };
        Some(Self {
            read_calls: field("syscr:")?,
            write_calls: field("syscw:")?,
            storage_read_bytes: field("read_bytes:")?,
            storage_written_bytes: field("write_bytes:")?,
        })
    }

    /// The difference since `earlier`.
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            read_calls: self.read_calls.saturating_sub(earlier.read_calls),
            write_calls: self.write_calls.saturating_sub(earlier.write_calls),
            storage_read_bytes: self.storage_read_bytes.saturating_sub(earlier.storage_read_bytes),
            storage_written_bytes: self
                .storage_written_bytes
                .saturating_sub(earlier.storage_written_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelled_writes_are_not_taken_for_writes() {
        let text = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n";
        let found = ProcessIo::parse(text).unwrap();
        let expected = ProcessIo {
            read_calls: 3,
            write_calls: 4,
            storage_read_bytes: 5,
            storage_written_bytes: 6,
        };
        assert_eq!(found, expected);
        assert_eq!(found.since(found), ProcessIo::default());
        assert_eq!(ProcessIo::parse("syscr: 3\n"), None);
    }
}
