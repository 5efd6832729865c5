//! Traces of other tools, which the analyses can't read in place: they are copied to the native form, in a folder that is
//! removed afterwards.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use formats::native::{Existing, NativeWriter, TraceId};
use formats::{BadLines, ReadOptions, TraceItem, TraceSink};
use programs::private_folder::private_folder;
use tempfile::TempDir;

/// Native copies of foreign traces, removed on drop.
pub struct Copies {
    /// Parent of the temporary folder.
    parent: PathBuf,
    /// Temporary folder with mode 0700, made with the first copy.
    folder: Option<TempDir>,
    made: usize,
}

impl Copies {
    pub fn new() -> Self {
        Self {
            parent: std::env::temp_dir(),
            folder: None,
            made: 0,
        }
    }

    /// The native trace for a path: itself, or its copy. Folders of traces are returned unchanged.
    pub fn native(&mut self, path: &Path) -> Result<PathBuf> {
        if formats::native::is_native(path) || path.is_dir() {
            return Ok(path.to_owned());
        }
        let options = ReadOptions {
            format: None,
            bad_lines: BadLines::Skip,
        };
        let mut source = formats::open(path, options)?;
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
        let folder = match self.folder.take() {
            Some(folder) => folder,
            None => private_folder(&self.parent, "tidegate-trace-")?,
        };
        let folder = self.folder.insert(folder).path();
        // Each in a separate folder: two files may have the same name.
        self.made += 1;
        let own = folder.join(self.made.to_string());
        fs::create_dir(&own).with_context(|| format!("{} can't be made", own.display()))?;
        let target = own.join(format!("{name}.trace"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn copies_are_in_a_folder_that_no_other_user_could_plant() {
        let parent = tempfile::tempdir().unwrap();
        let victim = parent.path().join("victim");
        fs::create_dir(&victim).unwrap();
        let planted = format!("tidegate-trace-{}", std::process::id());
        symlink(&victim, parent.path().join(planted)).unwrap();
        let trace = parent.path().join("trace.txt");
        fs::write(
            &trace,
            "  8,0    0        1     0.000000000   100  C   R 8 + 8 [0]\n",
        )
        .unwrap();
        let mut copies = Copies {
            parent: parent.path().to_owned(),
            folder: None,
            made: 0,
        };
        let copy = copies.native(&trace).unwrap();
        assert!(copy.is_dir());
        let folder = copies.folder.as_ref().unwrap().path().to_owned();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
        drop(copies);
        assert!(!folder.exists());
    }
}
