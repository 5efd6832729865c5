//! The named workloads of a comparison.
//!
//! "Cold" means after dropping every cache of the machine (as root; otherwise the records state what remained
//! cached); "warm" means after reading the file once and opening it again. Files are always created through the measured configuration.

use std::path::Path;
use std::str::FromStr;

use bench::metadata::MetadataSpec;
use bench::{Cache, FileSpec, FinalSync, Mode, Pattern, WriteTarget};

/// Number of synced random writes, and size of the file written.
const RANDOM_OPERATIONS: u64 = 2000;
const RANDOM_FILE_BYTES: u64 = 64 << 20;

/// Workload of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Name on the command line and in records.
    pub name: &'static str,
    /// Help text.
    pub help: &'static str,
    work: Work,
}

/// Kind of work; sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Writes a new file sequentially in records of this size.
    Write(u64),
    /// Reads a file sequentially in records of this size.
    Read(u64, Cache),
    /// Random writes over an existing file, each synced.
    Synced(Mode),
    /// Many files of this size.
    Files(u32),
}

/// All workloads, in the order of help texts.
pub const WORKLOADS: [Workload; 14] = [
    Workload::new(
        "write-512k",
        "Write a new file sequentially in records of 512 KiB, fsync at the end",
        Work::Write(512 << 10),
    ),
    Workload::new(
        "write-4k",
        "Write a new file sequentially in records of 4 KiB, fsync at the end",
        Work::Write(4 << 10),
    ),
    Workload::new(
        "read-512k-cold",
        "Read sequentially in records of 512 KiB from a cold cache",
        Work::Read(512 << 10, Cache::Cold),
    ),
    Workload::new(
        "read-512k-warm",
        "Read sequentially in records of 512 KiB after reading the file once and opening it again",
        Work::Read(512 << 10, Cache::Reopened),
    ),
    Workload::new(
        "read-4k-cold",
        "Read sequentially in records of 4 KiB from a cold cache",
        Work::Read(4 << 10, Cache::Cold),
    ),
    Workload::new(
        "read-4k-warm",
        "Read sequentially in records of 4 KiB after reading the file once and opening it again",
        Work::Read(4 << 10, Cache::Reopened),
    ),
    Workload::new(
        "randwrite-4k-fsync",
        "Write 2,000 random records of 4 KiB over an existing file of 64 MiB, fsync after each",
        Work::Synced(Mode::FSYNC),
    ),
    Workload::new(
        "randwrite-4k-fdatasync",
        "Write like randwrite-4k-fsync, but fdatasync after each",
        Work::Synced(Mode::FDATASYNC),
    ),
    Workload::new(
        "randwrite-4k-sync",
        "Write like randwrite-4k-fsync, but with O_SYNC instead of fsync",
        Work::Synced(Mode::SYNC),
    ),
    Workload::new(
        "randwrite-4k-dsync",
        "Write like randwrite-4k-fsync, but with O_DSYNC instead of fsync",
        Work::Synced(Mode::DATA_SYNC),
    ),
    Workload::new(
        "randwrite-4k-direct-sync",
        "Write like randwrite-4k-fsync, but with O_DIRECT and O_SYNC instead of fsync",
        Work::Synced(Mode::DIRECT_SYNC),
    ),
    Workload::new(
        "randwrite-4k-direct-dsync",
        "Write like randwrite-4k-fsync, but with O_DIRECT and O_DSYNC instead of fsync",
        Work::Synced(Mode::DIRECT_DATA_SYNC),
    ),
    Workload::new(
        "files-10k",
        "Create, list with stat, and remove 10,000 empty files",
        Work::Files(0),
    ),
    Workload::new(
        "files-10k-4k",
        "Create, list with stat, and remove 10,000 files of 4 KiB",
        Work::Files(4096),
    ),
];

/// Amounts of work that are not part of a workload's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// Size of sequential files, in bytes.
    pub file_bytes: u64,
    /// Number of small files.
    pub files: u32,
}

impl Workload {
    const fn new(name: &'static str, help: &'static str, work: Work) -> Self {
        Self { name, help, work }
    }

    /// The workload for `directory`.
    #[must_use]
    pub fn of(self, directory: &Path, amount: Amount) -> Box<dyn bench::Workload> {
        let files = |content_bytes| MetadataSpec {
            directory: directory.to_owned(),
            files: amount.files,
            content_bytes,
            sync_directory: false,
            cache: Cache::AsIs,
            seed: 0,
        };
        match self.work {
            Work::Write(record) => Box::new(file(
                directory,
                amount,
                Pattern::SequentialWrite,
                record,
                Cache::AsIs,
            )),
            Work::Read(record, cache) => {
                Box::new(file(directory, amount, Pattern::SequentialRead, record, cache))
            }
            Work::Synced(mode) => Box::new(FileSpec {
                file_bytes: RANDOM_FILE_BYTES.min(amount.file_bytes),
                records_max: Some(RANDOM_OPERATIONS),
                mode,
                write_target: WriteTarget::ExistingFile,
                final_sync: FinalSync::None,
                ..file(directory, amount, Pattern::RandomWrite, 4 << 10, Cache::AsIs)
            }),
            Work::Files(content_bytes) => Box::new(files(content_bytes)),
        }
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = WORKLOADS.iter().find(|workload| workload.name == text);
        found
            .copied()
            .ok_or_else(|| format!("`{text}` is no workload; see --workload"))
    }
}

fn file(directory: &Path, amount: Amount, pattern: Pattern, record_bytes: u64, cache: Cache) -> FileSpec {
    FileSpec {
        final_sync: FinalSync::Timed,
        cache,
        ..FileSpec::plain(directory.to_owned(), pattern, record_bytes, amount.file_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMOUNT: Amount = Amount {
        file_bytes: 512 << 20,
        files: 10_000,
    };

    #[test]
    fn each_workload_makes_sense_to_the_bench() {
        for workload in WORKLOADS {
            let described = workload.of(Path::new("/"), AMOUNT);
            described
                .check()
                .unwrap_or_else(|error| panic!("{}: {error}", workload.name));
        }
    }

    #[test]
    fn random_writes_are_bounded_and_overwrite() {
        let workload: Workload = "randwrite-4k-fsync".parse().unwrap();
        let workload = workload.of(Path::new("/"), AMOUNT);
        let spec = workload.as_file().expect("it is about a file");
        assert_eq!((spec.file_bytes, spec.records_max), (64 << 20, Some(2000)));
        assert_eq!(
            (spec.mode, spec.write_target),
            (Mode::FSYNC, WriteTarget::ExistingFile)
        );
    }
}
