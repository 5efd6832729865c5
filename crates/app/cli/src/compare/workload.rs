//! Workloads of `tidegate bench compare`.
//!
//! "Cold" means after dropping every cache of the machine (as root; otherwise the records state what remained
//! cached); "warm" means after reading the file once. Files are always created through the measured configuration.

use std::path::Path;

use bench::metadata::MetadataSpec;
use bench::{Cache, FileSpec, FinalSync, Mode, Pattern, WriteTarget};
use clap::ValueEnum;

/// Number of synced random writes, and size of the file written.
const RANDOM_OPERATIONS: u64 = 2000;
const RANDOM_FILE_BYTES: u64 = 64 << 20;

/// Workload of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Write a new file sequentially in records of 512 KiB, fsync at the end
    #[value(name = "write-512k")]
    Write512k,
    /// Write a new file sequentially in records of 4 KiB, fsync at the end
    #[value(name = "write-4k")]
    Write4k,
    /// Read sequentially in records of 512 KiB from a cold cache
    #[value(name = "read-512k-cold")]
    Read512kCold,
    /// Read sequentially in records of 512 KiB after reading the file once
    #[value(name = "read-512k-warm")]
    Read512kWarm,
    /// Read sequentially in records of 4 KiB from a cold cache
    #[value(name = "read-4k-cold")]
    Read4kCold,
    /// Read sequentially in records of 4 KiB after reading the file once
    #[value(name = "read-4k-warm")]
    Read4kWarm,
    /// Write 2,000 random records of 4 KiB over an existing file of 64 MiB, fsync after each
    #[value(name = "randwrite-4k-fsync")]
    RandomWrite4kFsync,
    /// Write like randwrite-4k-fsync, but fdatasync after each
    #[value(name = "randwrite-4k-fdatasync")]
    RandomWrite4kFdatasync,
    /// Write like randwrite-4k-fsync, but with O_SYNC instead of fsync
    #[value(name = "randwrite-4k-sync")]
    RandomWrite4kSync,
    /// Write like randwrite-4k-fsync, but with O_DSYNC instead of fsync
    #[value(name = "randwrite-4k-dsync")]
    RandomWrite4kDataSync,
    /// Write like randwrite-4k-fsync, but with O_DIRECT and O_SYNC instead of fsync
    #[value(name = "randwrite-4k-direct-sync")]
    RandomWrite4kDirectSync,
    /// Write like randwrite-4k-fsync, but with O_DIRECT and O_DSYNC instead of fsync
    #[value(name = "randwrite-4k-direct-dsync")]
    RandomWrite4kDirectDataSync,
    /// Create, list with stat, and remove 10,000 empty files
    #[value(name = "files-10k")]
    Files10k,
    /// Create, list with stat, and remove 10,000 files of 4 KiB
    #[value(name = "files-10k-4k")]
    Files10k4k,
}

/// Amounts of work that are not part of a workload's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// Size of sequential files, in bytes.
    pub file_bytes: u64,
    /// Number of small files.
    pub files: u32,
}

impl Workload {
    /// The name on the command line and in records.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The workload for `directory`.
    pub fn of(self, directory: &Path, amount: Amount) -> Box<dyn bench::Workload> {
        let write = |record| file(directory, amount, Pattern::SequentialWrite, record, Cache::AsIs);
        let read = |record, cache| file(directory, amount, Pattern::SequentialRead, record, cache);
        let synced = |mode| FileSpec {
            file_bytes: RANDOM_FILE_BYTES.min(amount.file_bytes),
            records_max: Some(RANDOM_OPERATIONS),
            mode,
            write_target: WriteTarget::ExistingFile,
            final_sync: FinalSync::None,
            ..file(directory, amount, Pattern::RandomWrite, 4 << 10, Cache::AsIs)
        };
        let files = |content_bytes| MetadataSpec {
            directory: directory.to_owned(),
            files: amount.files,
            content_bytes,
            sync_directory: false,
            cache: Cache::AsIs,
            seed: 0,
        };
        match self {
            Self::Write512k => Box::new(write(512 << 10)),
            Self::Write4k => Box::new(write(4 << 10)),
            Self::Read512kCold => Box::new(read(512 << 10, Cache::Cold)),
            Self::Read512kWarm => Box::new(read(512 << 10, Cache::Warm)),
            Self::Read4kCold => Box::new(read(4 << 10, Cache::Cold)),
            Self::Read4kWarm => Box::new(read(4 << 10, Cache::Warm)),
            Self::RandomWrite4kFsync => Box::new(synced(Mode::FSYNC)),
            Self::RandomWrite4kFdatasync => Box::new(synced(Mode::FDATASYNC)),
            Self::RandomWrite4kSync => Box::new(synced(Mode::SYNC)),
            Self::RandomWrite4kDataSync => Box::new(synced(Mode::DATA_SYNC)),
            Self::RandomWrite4kDirectSync => Box::new(synced(Mode::DIRECT_SYNC)),
            Self::RandomWrite4kDirectDataSync => Box::new(synced(Mode::DIRECT_DATA_SYNC)),
            Self::Files10k => Box::new(files(0)),
            Self::Files10k4k => Box::new(files(4096)),
        }
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
        for workload in Workload::value_variants() {
            let described = workload.of(Path::new("/"), AMOUNT);
            described
                .check()
                .unwrap_or_else(|error| panic!("{workload:?}: {error}"));
        }
    }

    #[test]
    fn random_writes_are_bounded_and_overwrite() {
        let workload = Workload::RandomWrite4kFsync.of(Path::new("/"), AMOUNT);
        let spec = workload.as_file().expect("it is about a file");
        assert_eq!((spec.file_bytes, spec.records_max), (64 << 20, Some(2000)));
        assert_eq!(
            (spec.mode, spec.write_target),
            (Mode::FSYNC, WriteTarget::ExistingFile)
        );
    }
}
