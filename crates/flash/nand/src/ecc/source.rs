//! Random access to a dump.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

/// Bytes of a dump, readable from several threads.
pub trait Source: Sync {
    /// Its length.
    fn bytes(&self) -> u64;

    /// Reads all of `out` from byte `at` on.
    ///
    /// # Errors
    /// Those of the host; `UnexpectedEof` beyond the end.
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()>;
}

impl Source for [u8] {
    fn bytes(&self) -> u64 {
        u64::try_from(self.len()).unwrap_or(u64::MAX)
    }

    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(at).unwrap_or(usize::MAX);
        let end = start.saturating_add(out.len());
        let found = self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }
}

impl<S: Source + ?Sized> Source for &S {
    fn bytes(&self) -> u64 {
        (**self).bytes()
    }

    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        (**self).read_at(at, out)
    }
}

/// A file or a block device.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    bytes: u64,
}

impl FileSource {
    /// Takes the length as it is at this moment.
    ///
    /// # Errors
    /// If the file can't be sought, as a pipe.
    pub fn new(mut file: File) -> io::Result<Self> {
        let bytes = file.seek(SeekFrom::End(0))?;
        Ok(Self { file, bytes })
    }
}

impl Source for FileSource {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, at)
    }
}
