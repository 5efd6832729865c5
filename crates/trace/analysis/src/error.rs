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
    /// A query's text is too long to be parsed safely.
    #[error(
        "the query is too long: expected at most {most} {unit}, found {found}; split it, or write long lists of values \
             as IN (...)"
    )]
    QueryTooLong {
        /// The quantity that is bounded.
        unit: &'static str,
        /// Its largest value.
        most: usize,
        /// Its value.
        found: usize,
    },
    /// The parser's limit was reached.
    #[error(
        "the query is nested too deeply: expected at most 50 levels of parentheses and subqueries; name inner queries \
             by WITH"
    )]
    QueryTooDeep,
    /// A result that has to be kept as a whole does not fit the session's memory.
    #[error(
        "{what}: the result has over {rows} rows, which exceeds the memory of {memory_bytes} bytes; expected fewer rows \
             (LIMIT, GROUP BY), more memory (--memory), or --json, which keeps none of them"
    )]
    ResultTooLarge {
        /// Description of the query.
        what: String,
        /// Rows kept so far.
        rows: usize,
        /// Memory of the session.
        memory_bytes: usize,
    },
    /// A query needs more memory than the session has.
    #[error(
        "{what}: needs more than the memory of {memory_bytes} bytes; give it more (--memory), or query less at once: \
             {source}"
    )]
    Memory {
        /// Description of the query.
        what: String,
        /// Memory of the session.
        memory_bytes: usize,
        /// DataFusion's error, which names the operation.
        #[source]
        source: Box<DataFusionError>,
    },
    /// DataFusion panicked.
    #[error("{what}: the query engine panicked: {message}; write the query in another way")]
    Panic {
        /// Description of the query.
        what: String,
        /// The panic's message.
        message: String,
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
    pub(crate) fn query(what: &str) -> impl Fn(DataFusionError) -> Self {
        move |source| Self::Query {
            what: what.to_owned(),
            source: Box::new(source),
        }
    }
}
