//! Target of a foreign trace: a file that gets its name when it is complete, or a stream.

use std::io::{self, BufWriter, IntoInnerError, Write};
use std::path::{Path, PathBuf};

use outfile::{OutFile, Unfinished, partial_name};

use crate::error::WriteError;

const BUFFER_BYTES: usize = 1 << 18;

/// Target of a writer.
pub enum Target {
    /// A file; it is named `NAME.partial` until it is complete.
    File(PathBuf),
    /// A stream, and its name for messages.
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
    /// Name for messages.
    name: PathBuf,
}

enum Inner {
    File(BufWriter<OutFile>),
    Stream(BufWriter<Box<dyn Write + Send>>),
}

impl Output {
    pub fn create(target: Target) -> Result<Self, WriteError> {
        match target {
            Target::File(path) => {
                let created = OutFile::create(&path, Unfinished::Keep);
                let file = created.map_err(|source| failed("create", &partial_name(&path), source))?;
                Ok(Self {
                    name: file.path().to_owned(),
                    inner: Inner::File(BufWriter::with_capacity(BUFFER_BYTES, file)),
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
            Inner::File(file) => file.write_all(bytes),
            Inner::Stream(stream) => stream.write_all(bytes),
        };
        written.map_err(|source| failed("write", &self.name, source))
    }

    /// Flushes the buffer to the system.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        let flushed = match &mut self.inner {
            Inner::File(file) => file.flush(),
            Inner::Stream(stream) => stream.flush(),
        };
        flushed.map_err(|source| failed("write", &self.name, source))
    }

    /// Writes the rest; a file is synced and gets its name.
    pub fn finish(self) -> Result<(), WriteError> {
        let name = self.name;
        match self.inner {
            Inner::Stream(mut stream) => stream.flush().map_err(|source| failed("write", &name, source)),
            Inner::File(file) => {
                let finished = file.into_inner().map_err(IntoInnerError::into_error);
                let finished = finished.and_then(OutFile::finish).map(drop);
                finished.map_err(|source| failed("finish", &name, source))
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
