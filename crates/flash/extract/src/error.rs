//! Failures of an extraction.

use std::io;
use std::num::TryFromIntError;

use rustix::io::Errno;
use thiserror::Error;
use ubifs::UbifsError;

/// A file, or the whole destination, that can't be written.
#[derive(Debug, Error)]
pub enum ExtractError {
    /// The file system can't be read: its medium is damaged.
    #[error(transparent)]
    Ubifs(#[from] UbifsError),
    /// The host refused a call.
    #[error(transparent)]
    Host(#[from] io::Error),
    /// A number is too large for the host.
    #[error(transparent)]
    Number(#[from] TryFromIntError),
    /// Something that is whole and not written.
    #[error("{0}")]
    Refused(String),
    /// The step that failed.
    #[error("{what}")]
    In {
        /// A message about the step.
        what: String,
        /// The failure.
        #[source]
        source: Box<Self>,
    },
}

impl From<Errno> for ExtractError {
    fn from(error: Errno) -> Self {
        Self::Host(error.into())
    }
}

impl ExtractError {
    fn root(&self) -> &Self {
        match self {
            Self::In { source, .. } => source.root(),
            other => other,
        }
    }

    /// Whether the medium is the reason, so that a salvage may get more.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self.root(), Self::Ubifs(_))
    }

    /// The host's error, if that is the reason.
    #[must_use]
    pub fn host(&self) -> Option<&io::Error> {
        match self.root() {
            Self::Host(error) => Some(error),
            _ => None,
        }
    }
}

pub(crate) type Result<T, E = ExtractError> = std::result::Result<T, E>;

/// Fails with a message.
pub(crate) fn refused<T>(what: impl Into<String>) -> Result<T> {
    Err(ExtractError::Refused(what.into()))
}

/// Names the step that failed.
pub(crate) trait Context<T> {
    fn context(self, what: &str) -> Result<T>;

    fn with_context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<ExtractError>> Context<T> for Result<T, E> {
    fn context(self, what: &str) -> Result<T> {
        self.with_context(|| what.to_owned())
    }

    fn with_context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| ExtractError::In {
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
        self.ok_or_else(|| ExtractError::Refused(what()))
    }
}
