//! The bytes of a Python object, such as a memory map or an open file, as the source of a dump.

use std::io;

use image::{ByteSource, Threads};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::guard::keep;

/// A callable that gets an offset and a number of bytes, and returns these bytes.
#[derive(Debug)]
pub struct Source(pub Py<PyAny>);

impl ByteSource for Source {
    fn read_exact_at(&self, out: &mut [u8], at: u64) -> io::Result<()> {
        Python::attach(|py| {
            let read = self.0.call1(py, (at, out.len())).map_err(|error| {
                let text = error.to_string();
                // A device that can't read a sector raises OSError; anything else is no damage of the dump.
                if !error.is_instance_of::<PyOSError>(py) {
                    keep(error);
                }
                io::Error::other(text)
            })?;
            let bytes = read
                .bind(py)
                .cast::<PyBytes>()
                .map_err(|error| io::Error::other(error.to_string()))?;
            let bytes = bytes.as_bytes();
            match bytes.len() == out.len() {
                true => out.copy_from_slice(bytes),
                false => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
            Ok(())
        })
    }

    /// The object is called by the thread that asks: it may hold a lock that the object takes, and a file has one position.
    fn threads(&self) -> Threads {
        Threads::Caller
    }
}
