//! What must be there before the first call: directories and files that the trace finds and does not make.
//!
//! The calls are followed in the order of their start through a model of the names, the file sizes and the file
//! positions. A name that is used before anything makes it must exist; a file must be as long as the furthest read, or
//! seek from its end, that nothing written before explains. What only the traced machine could know (what was in a file
//! that the trace never reads, the size of one that it only appends to) is not invented.

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

/// Files and directories to be made before the window. Paths are relative to the directory of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Initial {
    /// Each after its parent.
    pub directories: BTreeSet<PathBuf>,
    /// Files.
    pub files: BTreeMap<PathBuf, InitialFile>,
    /// Bytes that the trace writes beyond what the files have.
    pub grown_bytes: u64,
}

/// A file to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitialFile {
    /// Its size.
    pub bytes: u64,
    /// Where it has data, as start and end, ascending and apart.
    pub filled: Vec<(u64, u64)>,
}

impl Initial {
    /// Bytes of data in all files.
    pub fn filled_bytes(&self) -> u64 {
        let parts = self.files.values().flat_map(|file| &file.filled);
        parts.map(|(start, end)| end - start).fold(0, u64::saturating_add)
    }

    /// An upper bound of the space that preparation and replay take.
    pub fn bytes_needed(&self) -> u64 {
        self.filled_bytes().saturating_add(self.grown_bytes)
    }

    /// Gives the image of a block trace data wherever the trace writes. A device has all its blocks; an image with holes
    /// would make the file system commit an allocation with every flush, which the traced device never saw.
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

    /// Follows the calls of `trace`.
    pub fn of(trace: &Trace) -> Self {
        let mut model = Model::new(trace);
        for call in &trace.calls {
            model.follow(call);
        }
        model.finish(trace.layer)
    }
}
