//! The workloads of `tidegate bench compare`: their names and what they do.
//!
//! "Cold" is after every cache of the machine was dropped (as root; otherwise the records say what was left), "warm"
//! after the file was read once. Files are always made through the configuration that is measured.

use std::path::Path;

use bench::metadata::MetadataSpec;
use bench::{Cache, FileSpec, FinalSync, Mode, Pattern, WriteTarget};
use clap::ValueEnum;

/// Random writes that are each synced: so many, over a file of so many bytes.
const RANDOM_OPERATIONS: u64 = 2000;
const RANDOM_FILE_BYTES: u64 = 64 << 20;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Sequential write of a new file in records of 512 KiB, fsync at the end
    #[value(name = "write-512k")]
    Write512k,
    /// The same in records of 4 KiB
    #[value(name = "write-4k")]
    Write4k,
    /// Sequential read in records of 512 KiB, nothing in memory
    #[value(name = "read-512k-cold")]
    Read512kCold,
    /// The same, the file read once before
    #[value(name = "read-512k-warm")]
    Read512kWarm,
    /// Sequential read in records of 4 KiB, nothing in memory
    #[value(name = "read-4k-cold")]
    Read4kCold,
    /// The same, the file read once before
    #[value(name = "read-4k-warm")]
    Read4kWarm,
    /// 2,000 random writes of 4 KiB over an existing file of 64 MiB, an fsync after each
    #[value(name = "randwrite-4k-fsync")]
    RandomWrite4kFsync,
    /// The same with an fdatasync after each
    #[value(name = "randwrite-4k-fdatasync")]
    RandomWrite4kFdatasync,
    /// The same by a descriptor with O_SYNC
    #[value(name = "randwrite-4k-sync")]
    RandomWrite4kSync,
    /// The same by a descriptor with O_DSYNC
    #[value(name = "randwrite-4k-dsync")]
    RandomWrite4kDataSync,
    /// The same by a descriptor with O_DIRECT and O_SYNC
    #[value(name = "randwrite-4k-direct-sync")]
    RandomWrite4kDirectSync,
    /// The same by a descriptor with O_DIRECT and O_DSYNC
    #[value(name = "randwrite-4k-direct-dsync")]
    RandomWrite4kDirectDataSync,
    /// Create, list with stat, and remove 10,000 empty files
    #[value(name = "files-10k")]
    Files10k,
    /// The same with 4 KiB in each file
    #[value(name = "files-10k-4k")]
    Files10k4k,
}

/// How much a workload does where its name leaves it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// Bytes of sequential files.
    pub file_bytes: u64,
    /// Small files.
    pub files: u32,
}

impl Workload {
    /// The name on the command line and in records.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// What to run in `directory`.
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
            Self::RandomWrite4kFsync => Box::new(synced(Mode::Fsync)),
            Self::RandomWrite4kFdatasync => Box::new(synced(Mode::Fdatasync)),
            Self::RandomWrite4kSync => Box::new(synced(Mode::Sync)),
            Self::RandomWrite4kDataSync => Box::new(synced(Mode::DataSync)),
            Self::RandomWrite4kDirectSync => Box::new(synced(Mode::DirectSync)),
            Self::RandomWrite4kDirectDataSync => Box::new(synced(Mode::DirectDataSync)),
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
            (Mode::Fsync, WriteTarget::ExistingFile)
        );
    }
}
