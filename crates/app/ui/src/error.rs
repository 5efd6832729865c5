//! Why the page could not be served.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

/// Why the page could not be served.
#[derive(Debug, Error)]
pub enum UiError {
    /// The address could be reached by others.
    #[error(
        "{address} is not a loopback address: anyone who reaches the page can write to this machine's disks; listen on \
         127.0.0.1 or [::1], and let others in through `ssh -L`"
    )]
    NotLoopback {
        /// What was asked for.
        address: SocketAddr,
    },
    /// The port can't be had.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// No random bytes for the token.
    #[error("/dev/urandom: cannot read a token: {source}")]
    Token {
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The server stopped by itself.
    #[error("the server failed: {source}")]
    Serve {
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The settings can't be read.
    #[error("{}: the settings can't be read: {reason}; move the file away to begin with the usual ones", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}
