//! Reasons why a run of the model can't be made.

use bench::BenchError;
use emmc::CardError;
use formats::ReadError;
use results::ImpossibleLatency;
use thiserror::Error;

/// Error of a run.
#[derive(Debug, Error)]
pub enum RunError {
    /// The card or the model refuses a parameter.
    #[error(transparent)]
    Card(#[from] CardError),
    /// The generator of applications refuses a parameter.
    #[error(transparent)]
    Application(#[from] BenchError),
    /// The application does not exist.
    #[error("there is no application {0:?}")]
    NoApplication(String),
    /// A trace can't be read.
    #[error(transparent)]
    Trace(#[from] ReadError),
    /// A latency is longer than the run.
    #[error(transparent)]
    Latency(#[from] ImpossibleLatency),
    /// A document of another form.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The load has its own size.
    #[error("--size has no effect on postmark, on applications and on a replay: leave it out")]
    FixedSize,
    /// The card is too small for the load.
    #[error(
        "the load needs {needed} bytes of the card, which has {has}; take a smaller --size or another --card"
    )]
    CardTooSmall {
        /// Bytes that the load uses.
        needed: u64,
        /// Bytes of the card.
        has: u64,
    },
    /// Not every task has a request.
    #[error("--size {bytes} is less than one request of each task: take {least} or more")]
    TooFewBytes {
        /// Bytes of the load.
        bytes: u64,
        /// Least bytes.
        least: u64,
    },
    /// A request of parts of sectors.
    #[error("--block {0} is no multiple of a sector, 512 bytes")]
    Block(u64),
    /// Requests that don't fit.
    #[error(
        "writes of {block} bytes in a range of {range} sectors do not fit the card of {card_sectors} sectors; choose another \
         --block or --range"
    )]
    Range {
        /// Bytes of a request.
        block: u64,
        /// Sectors of the range.
        range: u64,
        /// Sectors of the card.
        card_sectors: u64,
    },
    /// The document is no result of a fit.
    #[error("{name} is no result of tidegate emmc fit --json")]
    NoFit {
        /// Name of the document.
        name: String,
        /// Error of the parser.
        source: serde_json::Error,
    },
    /// A parameter is missing, or out of its range.
    #[error(
        "{name}: parameter {parameter:?} is {found}, expected {low} to {high}; write the file with tidegate emmc fit --json"
    )]
    Parameter {
        /// Name of the document.
        name: String,
        /// The parameter.
        parameter: &'static str,
        /// Value in the document.
        found: String,
        /// Smallest value.
        low: f64,
        /// Largest value.
        high: f64,
    },
    /// The exhibit does not exist.
    #[error("there is no {name:?}; known are: {expected}")]
    NoExhibit {
        /// Name as given.
        name: String,
        /// The names, with the one most likely intended.
        expected: String,
    },
    /// A thread of the model ended by a panic.
    #[error("a run of the model panicked")]
    Panicked,
}
