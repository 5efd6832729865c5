//! The workloads that `tidegate bench` knows: the one list of them, for commands and for steps of jobs.

use std::path::Path;

use anyhow::Result;
use bench::Workload;
use clap::Subcommand;

use super::app::BenchAppArguments;
use super::file::BenchFileArguments;
use super::metadata::BenchMetadataArguments;
use super::postmark::BenchPostmarkArguments;
use super::repeat::BenchCommonArguments;
use super::sqlite::BenchSqliteArguments;
use super::tio::BenchTioArguments;
use super::uflip::BenchUflipArguments;
use crate::Finding;
use crate::replay::ReplayArguments;

/// Where a workload runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAs {
    /// A command: it may introduce itself on standard error.
    Command,
    /// A step of a job: all that is to be said comes with the outcome.
    Step,
}

/// The arguments of one workload.
pub trait WorkloadArguments {
    /// How it is repeated and reported.
    fn common(&self) -> &BenchCommonArguments;

    /// The directory to measure, or the device.
    fn directory(&self) -> Result<&Path>;

    /// The workload that the arguments describe.
    fn workload(&self, run_as: RunAs) -> Result<Box<dyn Workload>>;

    /// Looks for mistakes before anything is touched.
    fn check(&self) -> Result<()> {
        Ok(self.workload(RunAs::Step)?.check()?)
    }

    /// Does what the arguments ask for in place of a run, such as a list.
    fn show(&self) -> Result<Option<Finding>> {
        Ok(None)
    }
}

/// A new workload has its arguments in a file of its own, and a line here.
macro_rules! workloads {
    ($($(#[$help:meta])* $name:ident($arguments:ty),)+) => {
        /// A workload.
        #[derive(Debug, Subcommand)]
        pub enum WorkloadCommand {
            $($(#[$help])* $name($arguments),)+
        }

        impl WorkloadCommand {
            /// Its arguments.
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
    /// Create, list, look at and remove many small files
    Metadata(BenchMetadataArguments),
    /// Create, read, append to and delete many small files, operation for operation as PostMark 1.51
    Postmark(BenchPostmarkArguments),
    /// Write and read files sequentially and at random in four phases, as tiobench
    Tio(BenchTioArguments),
    /// Run the load of a phone's application, generated from what was published about it
    App(BenchAppArguments),
    /// Find out what a flash device is like inside: pages, alignment, locality, and six more micro-benchmarks
    Uflip(BenchUflipArguments),
    /// Replay a trace of calls, as `tidegate replay`
    Replay(ReplayArguments),
}
