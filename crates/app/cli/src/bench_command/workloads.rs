//! List of workloads, shared by the commands of `tidegate bench` and the steps of jobs.

use std::path::Path;

use anyhow::Result;
use bench::{Fileserver, Varmail, Webproxy, Workload};
use clap::Subcommand;

use super::app::BenchAppArguments;
use super::common::BenchCommonArguments;
use super::file::BenchFileArguments;
use super::loops::BenchLoopsArguments;
use super::metadata::BenchMetadataArguments;
use super::postmark::BenchPostmarkArguments;
use super::sqlite::BenchSqliteArguments;
use super::tio::BenchTioArguments;
use super::uflip::BenchUflipArguments;
use crate::Finding;
use crate::replay::ReplayArguments;

/// Context in which a workload runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAs {
    /// A command: it may print an introduction on standard error.
    Command,
    /// A step of a job: all messages are part of the outcome.
    Step,
}

/// The arguments of one workload.
pub trait WorkloadArguments {
    /// Repetition and reporting.
    fn common(&self) -> &BenchCommonArguments;

    /// The directory or device to measure.
    fn directory(&self) -> Result<&Path>;

    /// The workload described by the arguments.
    fn workload(&self, run_as: RunAs) -> Result<Box<dyn Workload>>;

    /// Validates the arguments before anything is touched.
    fn check(&self) -> Result<()> {
        Ok(self.workload(RunAs::Step)?.check()?)
    }

    /// Handles options that show something instead of running, such as a list; `None` to run the workload.
    fn show(&self) -> Result<Option<Finding>> {
        Ok(None)
    }
}

/// The first two functions of [`WorkloadArguments`] for arguments with `common` and one `directory`.
macro_rules! common_and_directory {
    () => {
        fn common(&self) -> &$crate::bench_command::common::BenchCommonArguments {
            &self.common
        }

        fn directory(&self) -> anyhow::Result<&std::path::Path> {
            Ok(&self.directory)
        }
    };
}

pub(crate) use common_and_directory;

/// A new workload needs a line here and, if it is no [`FileLoop`](bench::FileLoop), a file for its arguments.
macro_rules! workloads {
    ($($(#[$help:meta])* $name:ident($arguments:ty),)+) => {
        /// A workload.
        #[derive(Debug, Subcommand)]
        pub enum WorkloadCommand {
            $($(#[$help])* $name($arguments),)+
        }

        impl WorkloadCommand {
            /// The arguments of the workload.
            pub fn arguments(&self) -> &dyn WorkloadArguments {
                match self {
                    $(Self::$name(arguments) => arguments,)+
                }
            }
        }
    };
}

workloads! {
    /// Read or write files: throughput, operations per second, latency, processor use
    File(BenchFileArguments),
    /// Insert, update and delete rows in SQLite databases, transaction by transaction
    Sqlite(BenchSqliteArguments),
    /// Create, list, stat and remove many small files
    Metadata(BenchMetadataArguments),
    /// Create, read, append to and delete many small files, with exactly the operations of PostMark 1.51
    Postmark(BenchPostmarkArguments),
    /// Write and read files sequentially and at random in four phases, like tiobench
    Tio(BenchTioArguments),
    /// Run the I/O load of a phone application, generated from published data
    App(BenchAppArguments),
    /// Probe the internals of a flash device: pages, alignment, locality, and six more micro-benchmarks
    Uflip(BenchUflipArguments),
    /// Delete, create, append to, sync and read mail files in many threads, like filebench's varmail
    Varmail(BenchLoopsArguments<Varmail>),
    /// Create, write, append to, read, delete and stat files in many threads, like filebench's fileserver
    Fileserver(BenchLoopsArguments<Fileserver>),
    /// Delete, create, append to and read files and append to logs in many threads, like filebench's webproxy
    Webproxy(BenchLoopsArguments<Webproxy>),
    /// Replay a trace of calls, like `tidegate replay`
    Replay(ReplayArguments),
}
