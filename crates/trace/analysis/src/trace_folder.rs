//! Stored traces on disk: finds trace folders, reads their headers and checks their tables. The format is implemented in `formats::native`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use formats::native::{HEADER_FILE, NativeReader, OpenTable};
use results::block_trace::TraceHeader;
use serde::Serialize;

use crate::AnalysisError;

/// Extension of a trace while it is written.
const PARTIAL: &str = "partial";

/// A trace stored on disk, with its tables open: an unfinished one is renamed when its recorder ends.
#[derive(Clone, Debug, Serialize)]
pub struct StoredTrace {
    /// Its folder.
    pub path: PathBuf,
    /// The id in each of its rows.
    pub trace_id: String,
    /// Description of the trace.
    pub header: TraceHeader,
    /// Its tables of requests, runs and events.
    #[serde(skip)]
    pub(crate) tables: [OpenTable; 3],
}

impl StoredTrace {
    /// Reads the header of the trace in this folder, and checks its tables: DataFusion checks no row.
    pub fn open(folder: &Path) -> Result<Self, AnalysisError> {
        let reader = NativeReader::open(folder)?;
        reader.check_rows()?;
        let stored = reader.stored_header();
        Ok(Self {
            path: reader.folder().to_owned(),
            trace_id: stored.trace_id.clone(),
            header: stored.header.clone(),
            tables: reader.tables(),
        })
    }

    /// The folder's name without its extension, for headings.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        let name = name.to_string_lossy();
        name.strip_suffix(".trace").unwrap_or(&name).to_owned()
    }
}

/// The traces at these paths, each a trace's folder or a folder of traces, in the order of paths, then names.
pub fn find_traces(paths: &[PathBuf]) -> Result<Vec<StoredTrace>, AnalysisError> {
    let mut found: Vec<StoredTrace> = Vec::new();
    for path in paths {
        for folder in trace_folders(path)? {
            let trace = StoredTrace::open(&folder)?;
            if let Some(first) = found.iter().find(|known| known.trace_id == trace.trace_id) {
                return Err(AnalysisError::SameTrace {
                    first: first.path.clone(),
                    second: trace.path,
                    trace_id: trace.trace_id,
                });
            }
            found.push(trace);
        }
    }
    Ok(found)
}

fn trace_folders(path: &Path) -> Result<Vec<PathBuf>, AnalysisError> {
    let failed = |source| AnalysisError::Read {
        path: path.to_owned(),
        source,
    };
    let is_folder = std::fs::metadata(path).map_err(failed)?.is_dir();
    if formats::native::is_native(path) {
        return Ok(vec![path.to_owned()]);
    }
    let mut folders = Vec::new();
    if is_folder {
        for entry in std::fs::read_dir(path).map_err(failed)? {
            let folder = entry.map_err(failed)?.path();
            let partial = folder.extension().is_some_and(|ending| ending == PARTIAL);
            if partial {
                continue;
            }
            match std::fs::metadata(folder.join(HEADER_FILE)) {
                Ok(header) if header.is_file() => folders.push(folder),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                // A trace, or none: that can't be told.
                Err(source) => return Err(AnalysisError::Read { path: folder, source }),
            }
        }
    }
    if folders.is_empty() {
        return Err(AnalysisError::NoTrace {
            path: path.to_owned(),
        });
    }
    folders.sort();
    Ok(folders)
}
