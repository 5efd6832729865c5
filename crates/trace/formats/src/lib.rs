//! Traces in files: block traces in the native columns and in the formats of other tools, and traces of calls
//! ([`calls`]) for replays.
//!
//! A [`TraceSource`] yields a trace item by item, a [`TraceSink`] accepts it; both hold only items in progress, so that
//! a trace may be larger than memory. The values are those of [`results::block_trace`].
//!
//! This crate captures nothing, maps no sector to a file and computes no statistics. It reads no clock and prints
//! nothing.
//!
//! The feature `native` adds the native folder of Parquet files (`docs/formats/block-trace.md`), and with it parquet;
//! nothing else depends on it, so that a reader of text does not pay for columns.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod calls;
mod error;
pub mod export;
pub mod import;
#[cfg(feature = "native")]
pub mod native;
pub mod pieces;
mod stream;

pub use error::{CarryError, ReadError, WriteError};
pub use import::ftrace_line;
pub use import::{BadLines, Format, ReadOptions, Skipped, SkippedLine, SkippedPlace, open, open_reader};
pub use stream::{MemorySource, TraceItem, TraceSink, TraceSource, Written, carry, read_all};
