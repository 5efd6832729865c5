//! Where a foreign trace goes: a file that gets its name when it is whole, or a stream.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::WriteError;

const BUFFER_BYTES: usize = 1 << 18;

/// Where to write.
pub enum Target {
    /// A file; it is `NAME.partial` until it is whole.
    File(PathBuf),
    /// A stream, and how messages call it.
    Stream(Box<dyn Write + Send>, PathBuf),
}

impl std::fmt::Debug for Target {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) | Self::Stream(_, path) => formatter.debug_tuple("Target").field(path).finish(),
        }
    }
}

/// An open target.
pub struct Output {
    inner: Inner,
    /// How messages call it.
    name: PathBuf,
}

enum Inner {
    File { file: BufWriter<File>, path: PathBuf },
    Stream(BufWriter<Box<dyn Write + Send>>),
}

impl Output {
    pub fn create(target: Target) -> Result<Self, WriteError> {
        match target {
            Target::File(path) => {
                let partial = results::partial_name(&path);
                let file = File::create(&partial).map_err(|source| failed("create", &partial, source))?;
                let file = BufWriter::with_capacity(BUFFER_BYTES, file);
                Ok(Self {
                    inner: Inner::File { file, path },
                    name: partial,
                })
            }
            Target::Stream(stream, name) => Ok(Self {
                inner: Inner::Stream(BufWriter::with_capacity(BUFFER_BYTES, stream)),
                name,
            }),
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let written = match &mut self.inner {
            Inner::File { file, .. } => file.write_all(bytes),
            Inner::Stream(stream) => stream.write_all(bytes),
        };
        written.map_err(|source| failed("write", &self.name, source))
    }

    /// Hands what is gathered to the system.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        let flushed = match &mut self.inner {
            Inner::File { file, .. } => file.flush(),
            Inner::Stream(stream) => stream.flush(),
        };
        flushed.map_err(|source| failed("write", &self.name, source))
    }

    /// Writes the rest; a file is synced and gets its name.
    pub fn finish(self) -> Result<(), WriteError> {
        let name = self.name;
        match self.inner {
            Inner::Stream(mut stream) => stream.flush().map_err(|source| failed("write", &name, source)),
            Inner::File { file, path } => {
                let file = file
                    .into_inner()
                    .map_err(|error| failed("write", &name, error.into_error()))?;
                file.sync_all().map_err(|source| failed("sync", &name, source))?;
                fs::rename(&name, &path).map_err(|source| failed("rename", &name, source))
            }
        }
    }
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> WriteError {
    WriteError::Io {
        operation,
        path: path.to_owned(),
        source,
    }
}
