//! Run records in, one self-contained HTML file out. A pure function: no clock, no file, no environment.
//!
//! Invariants:
//! - The same input gives the same bytes.
//! - The page needs nothing from outside: no script, no font, no picture, no style sheet; it prints, works offline
//!   and follows the reader's light or dark setting.
//! - Every text from outside is escaped; every number that is not finite is shown as "n/a", never drawn.
//! - A chart never says more than the table below it, and the table never more than the raw samples.
//!
//! [`svg`] draws, [`html`] escapes and tabulates, [`ladder`] knows the comparison of configurations for one workload,
//! [`comparison`] that for several, [`record_comparison`] two sets of records that were measured at any time,
//! [`number`] is the one place where numbers become text.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod comparison;
pub mod html;
pub mod ladder;
pub mod number;
mod page;
pub mod record_comparison;
pub mod svg;
mod text_table;

pub use comparison::{Comparison, ComparisonInput, ComparisonRow};
pub use ladder::{LadderRow, LadderStep};
pub use page::{ReportInput, head, render};
pub use text_table::{Align, Column, table};
