//! Errors of analyses.

use std::path::PathBuf;

use datafusion::error::DataFusionError;
use formats::native::NativeReadError;
use thiserror::Error;

/// Error of an analysis.
#[derive(Debug, Error)]
pub enum AnalysisError {
    /// A path is not a trace and contains none.
    #[error("{}: no block trace; expected a folder with header.json, as `tidegate trace record -o NAME.trace` writes it, \
             or a folder of such folders", path.display())]
    NoTrace {
        /// The given path.
        path: PathBuf,
    },
    /// A file of a trace can't be read.
    #[error("{}: can't be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A trace is invalid.
    #[error(transparent)]
    Trace(#[from] NativeReadError),
    /// One trace was given twice, or two have the same id: their rows could not be distinguished.
    #[error("{} and {} are the same trace ({trace_id}); give it once", first.display(), second.display())]
    SameTrace {
        /// The first.
        first: PathBuf,
        /// The second.
        second: PathBuf,
        /// Their id.
        trace_id: String,
    },
    /// The threads of the session could not be started.
    #[error("no threads for queries: {source}")]
    Threads {
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A query failed.
    #[error("{what}: {source}")]
    Query {
        /// Description of the query.
        what: String,
        /// DataFusion's error.
        #[source]
        source: Box<DataFusionError>,
    },
    /// There is no analysis with this name.
    #[error("no analysis is named {name:?}; `tidegate trace query --list` names them{hint}")]
    UnknownName {
        /// The requested name.
        name: String,
        /// The most likely intended one, or nothing.
        hint: String,
    },
}

impl AnalysisError {
    pub(crate) fn query(what: impl Into<String>) -> impl FnOnce(DataFusionError) -> Self {
        let what = what.into();
        move |source| Self::Query {
            what,
            source: Box::new(source),
        }
    }
}
