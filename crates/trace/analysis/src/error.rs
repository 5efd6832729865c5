//! What can go wrong with an analysis.

use std::path::PathBuf;

use datafusion::error::DataFusionError;
use formats::native::NativeReadError;
use thiserror::Error;

/// Why there is no result.
#[derive(Debug, Error)]
pub enum AnalysisError {
    /// A path is no trace and holds none.
    #[error("{}: no block trace; expected a folder with header.json, as `tidegate trace record -o NAME.trace` writes it, \
             or a folder of such folders", path.display())]
    NoTrace {
        /// What was given.
        path: PathBuf,
    },
    /// A file of a trace can't be read.
    #[error("{}: can't be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A trace is not what it should be.
    #[error(transparent)]
    Trace(#[from] NativeReadError),
    /// One trace was given twice, or two bear the same id: their rows could not be told apart.
    #[error("{} and {} are the same trace ({trace_id}); give it once", first.display(), second.display())]
    SameTrace {
        /// The one.
        first: PathBuf,
        /// The other.
        second: PathBuf,
        /// Their id.
        trace_id: String,
    },
    /// The threads of the session could not be started.
    #[error("no threads for queries: {source}")]
    Threads {
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A query failed.
    #[error("{what}: {source}")]
    Query {
        /// Which one, in words.
        what: String,
        /// What DataFusion says.
        #[source]
        source: Box<DataFusionError>,
    },
    /// There is no analysis of this name.
    #[error("no analysis is named {name:?}; `tidegate trace query --list` names them")]
    UnknownName {
        /// What was asked for.
        name: String,
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
