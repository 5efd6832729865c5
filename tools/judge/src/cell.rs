//! Cells of the file workload: the compared modes, and the excluded ones with reasons.

use std::fmt;
use std::path::PathBuf;

/// Name of places that are never cold, because their files are always in memory.
pub const TMPFS: &str = "tmpfs";

/// A directory to measure in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name in the results, usually the file system's (`ext4`, `tmpfs`).
    pub name: String,
    /// An existing directory.
    pub directory: PathBuf,
}

/// Access pattern: kind and order of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Overwrites from the beginning to the end.
    SequentialWrite,
    /// Overwrites each record once in random order.
    RandomWrite,
    /// Writes a new file from the beginning to the end.
    Append,
    /// Half of the records read, half overwritten, in random order.
    Mixed,
    /// Reads from the beginning to the end.
    SequentialRead,
    /// Reads each record once in random order.
    RandomRead,
}

impl Pattern {
    const ALL: [Self; 6] = [
        Self::SequentialWrite,
        Self::RandomWrite,
        Self::Append,
        Self::Mixed,
        Self::SequentialRead,
        Self::RandomRead,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::SequentialWrite => "sequential-write",
            Self::RandomWrite => "random-write",
            Self::Append => "append",
            Self::Mixed => "mixed",
            Self::SequentialRead => "sequential-read",
            Self::RandomRead => "random-read",
        }
    }

    /// True when no operation writes.
    pub const fn only_reads(self) -> bool {
        matches!(self, Self::SequentialRead | Self::RandomRead)
    }

    /// True when the order is random.
    pub const fn is_random(self) -> bool {
        matches!(self, Self::RandomWrite | Self::Mixed | Self::RandomRead)
    }

    /// Percentage of reads.
    pub const fn read_percent(self) -> u8 {
        match self {
            Self::SequentialRead | Self::RandomRead => 100,
            Self::Mixed => 50,
            Self::SequentialWrite | Self::RandomWrite | Self::Append => 0,
        }
    }
}

/// I/O mode, named as in `tidegate bench file --mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Buffered,
    Sync,
    DataSync,
    Fsync,
    Fdatasync,
    Direct,
    DirectSync,
    Mmap,
    MmapAsync,
    MmapSync,
}

impl Mode {
    const DESCRIPTOR: [Self; 7] = [
        Self::Buffered,
        Self::Sync,
        Self::DataSync,
        Self::Fsync,
        Self::Fdatasync,
        Self::Direct,
        Self::DirectSync,
    ];
    const MAPPED: [Self; 3] = [Self::Mmap, Self::MmapAsync, Self::MmapSync];

    /// Name of the mode in `tidegate bench file --mode`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Sync => "sync",
            Self::DataSync => "dsync",
            Self::Fsync => "fsync",
            Self::Fdatasync => "fdatasync",
            Self::Direct => "direct",
            Self::DirectSync => "direct-sync",
            Self::Mmap => "mmap",
            Self::MmapAsync => "mmap-async",
            Self::MmapSync => "mmap-sync",
        }
    }

    /// True when the file is mapped.
    pub const fn is_mapped(self) -> bool {
        matches!(self, Self::Mmap | Self::MmapAsync | Self::MmapSync)
    }

    /// True when the page cache is bypassed.
    pub const fn is_direct(self) -> bool {
        matches!(self, Self::Direct | Self::DirectSync)
    }

    /// True when each write waits for the device.
    pub const fn syncs_each(self) -> bool {
        matches!(
            self,
            Self::Sync | Self::DataSync | Self::Fsync | Self::Fdatasync | Self::DirectSync | Self::MmapSync
        )
    }
}

/// Engine that issues the I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// `pread`, `pwrite` and syncs, or a mapping.
    Calls,
    /// io_uring with this queue depth.
    Ring(u32),
}

/// One combination of pattern, mode, engine and threads, independent of the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Access pattern.
    pub pattern: Pattern,
    /// I/O mode.
    pub mode: Mode,
    /// Engine that issues the I/O.
    pub engine: Engine,
    /// Number of threads, each with its own file.
    pub threads: u32,
}

impl fmt::Display for Cell {
    /// Formats the name used in the results: `random-write/fsync/t8`, `random-read/direct/uring32/t1`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = match self.engine {
            Engine::Calls => String::new(),
            Engine::Ring(depth) => format!("/uring{depth}"),
        };
        let (pattern, mode) = (self.pattern.name(), self.mode.name());
        formatter.pad(&format!("{pattern}/{mode}{engine}/t{}", self.threads))
    }
}

const NO_MS_ASYNC: &str = "fio's mmap engine has no msync(MS_ASYNC)";
const SYNCS_AFTER_READS: &str = "fio's fsync=1 syncs after each read of a mix too, ours after writes alone";

/// Modes that are not compared with fio, or not at all, with reasons.
pub const NOT_COMPARED: [(&str, &str); 7] = [
    (
        "mmap-async",
        "fio's mmap engine has no msync(MS_ASYNC): with the C loop alone",
    ),
    (
        "mixed/fsync",
        "fio's fsync=1 syncs after each read of a mix too, ours after writes alone: with the C loop alone",
    ),
    (
        "append/mmap, mmap-async, mmap-sync",
        "not at all: a mapping can't grow a file, so both would overwrite a file of full length",
    ),
    (
        "reads with sync, dsync, fsync, fdatasync, direct-sync, mmap-async, mmap-sync",
        "not at all: nothing is written that could be synced; the same as buffered, direct and mmap",
    ),
    (
        "io_uring with modes that sync each write, and with mappings",
        "not at all: fio waits for all operations in flight before an fsync, and a mapping has no operations",
    ),
    (
        "threads that share a file",
        "not at all: fio's threads would each visit the whole file, ours each visit a part",
    ),
    (
        "append and mixed over io_uring; depth 1 with 8 threads; append and mixed with the other sync modes",
        "left out for time: each of the two is compared with others",
    ),
];

impl Cell {
    /// All cells for these numbers of threads, in the order of the results.
    pub fn all(threads: &[u32]) -> Vec<Self> {
        let mut cells = Vec::new();
        for &threads in threads {
            for pattern in Pattern::ALL {
                for mode in Mode::DESCRIPTOR.into_iter().chain(Mode::MAPPED) {
                    cells.push(Self {
                        pattern,
                        mode,
                        engine: Engine::Calls,
                        threads,
                    });
                }
                for depth in [1, 32] {
                    for mode in [Mode::Buffered, Mode::Direct] {
                        cells.push(Self {
                            pattern,
                            mode,
                            engine: Engine::Ring(depth),
                            threads,
                        });
                    }
                }
            }
        }
        cells.retain(|cell| cell.is_measured());
        cells
    }

    /// True for the small selection of `--quick`.
    pub fn is_quick(&self) -> bool {
        let engine = matches!(self.engine, Engine::Calls | Engine::Ring(32));
        let ring = self.engine == Engine::Calls || (self.mode.is_direct() && self.pattern.is_random());
        let mode = matches!(
            self.mode,
            Mode::Buffered | Mode::Direct | Mode::Fsync | Mode::Mmap
        );
        engine && ring && mode && self.pattern != Pattern::Mixed
    }

    /// Reason why a comparison with fio is impossible; `None` if it is possible.
    pub fn without_fio(&self) -> Option<&'static str> {
        if self.mode == Mode::MmapAsync {
            Some(NO_MS_ASYNC)
        } else if self.pattern == Pattern::Mixed && self.mode.syncs_each() {
            Some(SYNCS_AFTER_READS)
        } else {
            None
        }
    }

    /// True when the page cache is dropped before each run: for cached reads on a file system with a device.
    pub fn wants_cold(&self, place: &Place) -> bool {
        self.pattern.only_reads() && !self.mode.is_direct() && place.name != TMPFS
    }

    fn is_measured(&self) -> bool {
        let (pattern, mode) = (self.pattern, self.mode);
        if pattern.only_reads() && (mode.syncs_each() || mode == Mode::MmapAsync) {
            return false;
        }
        match self.engine {
            Engine::Ring(depth) => {
                let fits = depth > 1 || self.threads == 1;
                fits && (!matches!(pattern, Pattern::Append | Pattern::Mixed))
            }
            Engine::Calls => match pattern {
                Pattern::Append => !mode.is_mapped() && mode != Mode::DataSync && mode != Mode::DirectSync,
                Pattern::Mixed => matches!(mode, Mode::Buffered | Mode::Fsync | Mode::Direct | Mode::Mmap),
                _ => true,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_cell_has_a_name_of_its_own_and_no_read_is_synced() {
        let cells = Cell::all(&[1, 8]);
        let names: BTreeSet<String> = cells.iter().map(Cell::to_string).collect();
        assert_eq!(names.len(), cells.len());
        assert!(names.contains("random-write/fsync/t8"), "{names:?}");
        assert!(names.contains("random-read/direct/uring32/t1"), "{names:?}");
        assert!(!names.iter().any(|name| name.contains("read/fsync")), "{names:?}");
        for mode in Mode::DESCRIPTOR.into_iter().chain(Mode::MAPPED) {
            let name = format!("random-write/{}/t8", mode.name());
            assert!(names.contains(&name), "{name} is missing");
        }
    }

    #[test]
    fn the_quick_choice_has_each_kind() {
        let names: Vec<String> = Cell::all(&[1])
            .into_iter()
            .filter(Cell::is_quick)
            .map(|cell| cell.to_string())
            .collect();
        for part in ["mmap", "fsync", "direct", "uring32", "append", "sequential-read"] {
            assert!(
                names.iter().any(|name| name.contains(part)),
                "{part} is missing in {names:?}"
            );
        }
    }
}
