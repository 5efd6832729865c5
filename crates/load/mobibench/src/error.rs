//! Reasons for a run without numbers.

use std::io;
use std::path::PathBuf;

use bench::BenchError;
use formats::calls::TraceError;
use results::ImpossibleLatency;
use runner::IdentityError;
use thiserror::Error;

use crate::plan::PlanError;

/// Error of a run.
#[derive(Debug, Error)]
pub enum MobibenchError {
    /// The command line is rejected.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The measurement failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The script can't be read.
    #[error(transparent)]
    Script(#[from] TraceError),
    /// The folder can't be measured.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A latency is longer than its window.
    #[error(transparent)]
    Latency(#[from] ImpossibleLatency),
    /// Results can't be shown.
    #[error(transparent)]
    Output(#[from] io::Error),
    /// A call on the named file failed.
    #[error("{} {failure}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The failed step.
        failure: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The folder of the test files can't be made.
    #[error("the folder {} can't be made (-p); its parent must exist", path.display())]
    NoFolder {
        /// The folder.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The folder is a device.
    #[error(
        "{} is a block device; mount a file system and give a folder on it, or use `tidegate bench file`",
        .0.display()
    )]
    BlockDevice(PathBuf),
    /// The folder is a file of another kind.
    #[error("{} is no folder", .0.display())]
    NotAFolder(PathBuf),
    /// The folder of a replay does not exist.
    #[error("{} is no folder; a replay (-g) works in one that exists (-p)", .0.display())]
    NoReplayFolder(PathBuf),
}

impl MobibenchError {
    /// Adapter for `map_err` about a file.
    pub(crate) fn file(path: impl Into<PathBuf>, failure: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            path,
            failure,
            source,
        }
    }
}
