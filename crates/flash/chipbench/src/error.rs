//! Failures of a measurement.

use std::num::TryFromIntError;

use thiserror::Error;

/// A measurement failed: it has no result.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// There is no such chip.
    #[error(transparent)]
    Model(#[from] nand::ModelError),
    /// A chip can't have this geometry.
    #[error(transparent)]
    Geometry(#[from] media::GeometryError),
    /// UBI can't be laid out on the chip.
    #[error(transparent)]
    Layout(#[from] ubi::LayoutError),
    /// The array failed.
    #[error(transparent)]
    Array(#[from] array::ArrayError),
    /// The chips can't be one.
    #[error(transparent)]
    Proxy(#[from] array::ProxyError),
    /// The device can't be attached.
    #[error(transparent)]
    Attach(#[from] ubi::AttachError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] ubi::VolumeTableError),
    /// The volume failed.
    #[error(transparent)]
    Volume(#[from] ubi::VolumeError),
    /// The file system can't be made.
    #[error(transparent)]
    Make(#[from] ubifs::mkfs::MkfsError),
    /// The file system can't be mounted, or failed.
    #[error(transparent)]
    Write(#[from] ubifs::WriteError),
    /// A call failed.
    #[error(transparent)]
    Call(#[from] vfs::FsError),
    /// The calls of an application can't be generated.
    #[error(transparent)]
    Application(#[from] bench::BenchError),
    /// A number of bytes or blocks is too large.
    #[error(transparent)]
    Number(#[from] TryFromIntError),
    /// A promise of the code below was broken, or the medium is too small.
    #[error("{0}")]
    Other(String),
    /// The part of the measurement that failed.
    #[error("{what}")]
    In {
        /// Devices and chips, or a file.
        what: String,
        /// The failure.
        #[source]
        source: Box<Self>,
    },
}

pub(crate) type Result<T, E = MeasureError> = std::result::Result<T, E>;

/// Names the part of a measurement that failed.
pub(crate) trait Context<T> {
    fn context(self, what: &str) -> Result<T>;

    fn with_context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<MeasureError>> Context<T> for Result<T, E> {
    fn context(self, what: &str) -> Result<T> {
        self.with_context(|| what.to_owned())
    }

    fn with_context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| MeasureError::In {
            what: what(),
            source: Box::new(source.into()),
        })
    }
}

impl<T> Context<T> for Option<T> {
    fn context(self, what: &str) -> Result<T> {
        self.with_context(|| what.to_owned())
    }

    fn with_context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.ok_or_else(|| MeasureError::Other(what()))
    }
}

/// Fails with a message unless a condition holds.
pub(crate) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    match holds {
        true => Ok(()),
        false => Err(MeasureError::Other(what())),
    }
}
