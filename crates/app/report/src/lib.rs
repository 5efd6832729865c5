//! Renders run records as one self-contained HTML file. A pure function: no clock, no file, no environment.
//!
//! Invariants:
//! - The same input gives the same bytes.
//! - The page needs nothing from outside: no script, no font, no picture, no style sheet; it prints, works offline
//!   and follows the reader's light or dark setting.
//! - All external text is escaped; non-finite numbers are shown as "n/a", never drawn.
//! - A chart never claims more than the table below it, and the table never more than the raw samples.
//!
//! [`svg`] draws bars, [`plot`] lines, dots and heat maps, [`html`] escapes and tabulates, [`ladder`] compares configurations for one workload, [`comparison`]
//! for several, [`record_comparison`] compares two sets of records measured at any time, [`number`] does all
//! formatting of numbers.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod comparison;
pub mod html;
pub mod ladder;
pub mod number;
mod page;
pub mod plot;
pub mod record_comparison;
pub mod rounds;
pub mod svg;
mod text_table;

pub use comparison::{Comparison, ComparisonInput, ComparisonRow};
pub use ladder::{LadderRow, LadderStep};
pub use page::{ReportInput, head, heading, render, tail};
pub use text_table::{Align, Column, Fitted, clipped, elided, fitted, table};
