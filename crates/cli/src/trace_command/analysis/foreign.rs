//! Traces that the analyses can't read as they lie: of other tools, or with tables that a killed recorder did not end. They
//! are copied into the native form, in a folder that goes afterwards.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use formats::native::{Existing, NativeReader, NativeWriter, TraceId};
use formats::{BadLines, ReadOptions, TraceItem, TraceSink};

/// Native copies of foreign traces; its drop removes them.
pub struct Copies {
    folder: PathBuf,
    made: usize,
}

impl Copies {
    pub fn new() -> Self {
        Self {
            folder: std::env::temp_dir().join(format!("tidegate-trace-{}", std::process::id())),
            made: 0,
        }
    }

    /// The native trace behind a path: itself, or its copy. Folders of traces are left as they are.
    pub fn native(&mut self, path: &Path) -> Result<PathBuf> {
        let is_native = formats::native::is_native(path);
        if is_native && NativeReader::open(path)?.unfinished_bytes() == 0 {
            return Ok(path.to_owned());
        }
        if !is_native && path.is_dir() {
            return Ok(path.to_owned());
        }
        let options = ReadOptions {
            format: None,
            bad_lines: BadLines::Skip,
        };
        let mut source = formats::open(path, options)?;
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
        // Each in a folder of its own: two files may have the same name.
        self.made += 1;
        let target = self
            .folder
            .join(self.made.to_string())
            .join(format!("{name}.trace"));
        fs::create_dir_all(target.parent().unwrap_or(&self.folder))
            .with_context(|| format!("{} can't be made", self.folder.display()))?;
        let id = TraceId::from_text(&format!("{name}-{}", self.made));
        let writer = NativeWriter::create(&target, id, source.header(), Existing::Refuse)?;
        let mut sink: Box<dyn TraceSink> = Box::new(writer);
        while let Some(item) = source.next_item()? {
            match item {
                TraceItem::Request(request) => sink.request(&request)?,
                TraceItem::Event(event) => sink.event(&event)?,
            }
        }
        sink.finish(&source.header().clone())?;
        Ok(target)
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        if self.made > 0 {
            // A temporary folder that can't be removed is the system's to clean.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
