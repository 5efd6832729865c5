//! Errors of serving the page.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

/// Reason why the page could not be served.
#[derive(Debug, Error)]
pub enum UiError {
    /// The address is reachable from other machines.
    #[error(
        "{address} is not a loopback address: anyone who reaches the page can write to this machine's disks; listen on \
         127.0.0.1 or [::1], and let others in through `ssh -L`"
    )]
    NotLoopback {
        /// The requested address.
        address: SocketAddr,
    },
    /// The address can't be bound.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// No random bytes for the token.
    #[error("/dev/urandom: cannot read a token: {source}")]
    Token {
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The server failed.
    #[error("the server failed: {source}")]
    Serve {
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The settings can't be read.
    #[error("{}: the settings can't be read: {reason}; move the file away to begin with the usual ones", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// The error.
        reason: String,
    },
}
