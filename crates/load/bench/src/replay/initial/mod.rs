//! The initial state of a trace: directories and files that the trace uses and does not create.
//!
//! The calls are followed in start order through a model of the names, the file sizes and the file positions. A name
//! that is used before the trace creates it must exist; a file must be as long as the furthest read, or seek from its
//! end, that no earlier write explains. State that only the traced machine knew (the content of a file that the trace
//! never reads, the size of one that it only appends to) is not invented.

mod file_model;
mod model;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use results::call_trace::{Action, Trace};

use self::file_model::insert_grains;
use self::model::Model;
use super::prepare::IMAGE;

/// Files and directories to create before the window. Paths are relative to the run's directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Initial {
    /// Directories, parents first.
    pub directories: BTreeSet<PathBuf>,
    /// Files by path.
    pub files: BTreeMap<PathBuf, InitialFile>,
    /// Bytes that the trace writes beyond the initial size of the files.
    pub grown_bytes: u64,
}

/// A file to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitialFile {
    /// The file's size.
    pub bytes: u64,
    /// Ranges with data, as start and end, ascending and disjoint.
    pub filled: Vec<(u64, u64)>,
}

impl Initial {
    /// Bytes of data in all files.
    pub fn filled_bytes(&self) -> u64 {
        let parts = self.files.values().flat_map(|file| &file.filled);
        parts.map(|(start, end)| end - start).fold(0, u64::saturating_add)
    }

    /// An upper bound of the space needed by preparation and replay.
    pub fn bytes_needed(&self) -> u64 {
        self.filled_bytes().saturating_add(self.grown_bytes)
    }

    /// Fills the image of a block trace in the ranges that the trace writes. A device has all its blocks; an image
    /// with holes would make the file system commit an allocation with every flush, which the traced device never
    /// did.
    pub fn fill_written_blocks(&mut self, trace: &Trace) {
        let Some(image) = self.files.get_mut(Path::new(IMAGE)) else {
            return;
        };
        let mut ranges: BTreeMap<u64, u64> = image.filled.drain(..).collect();
        for call in &trace.calls {
            if let Action::BlockWrite { offset, bytes } = call.action {
                let end = offset.saturating_add(bytes).min(image.bytes);
                if offset < end {
                    insert_grains(&mut ranges, offset, end);
                }
            }
        }
        image.filled = ranges.into_iter().collect();
        self.grown_bytes = 0;
    }

    /// Infers the initial state from the calls of `trace`.
    pub fn of(trace: &Trace) -> Self {
        let mut model = Model::new(trace);
        for call in &trace.calls {
            model.follow(call);
        }
        model.finish(trace.layer)
    }
}
