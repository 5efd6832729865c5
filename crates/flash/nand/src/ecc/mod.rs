//! Error-correcting codes of dumps with OOB areas: which one a dump has, and the corrected data.
//!
//! - [`Layout`]: the shape of a page as data, with a text form ([`Layout::parse`]); [`FAMILIES`] has those of common
//!   controllers and drivers.
//! - `bch`, `hamming`: the codes, with `field` and `locate` below them.
//! - [`find`]: the layout of a dump, by trial on `samples` of its programmed pages.
//! - [`Corrected`]: the corrected main data, with an account of wrong bits and lost steps. [`PageCorrector`] corrects single
//!   pages, for readers with their own order of pages.
//! - `map`, `decoder`: the places of a layout, and the correction of one page.
//!
//! Specification: `docs/formats/nand-ecc.md`. Reed-Solomon codes, randomized (scrambled) data and pages without OOB are not supported.

mod bch;
mod candidates;
mod corrected;
mod decoder;
mod field;
mod find;
mod hamming;
mod layout;
mod locate;
mod map;
mod page;
mod samples;
mod source;
mod spec;
mod table;

pub use corrected::{Copied, CopyError, Corrected, PageErrors, Summary, copy_without_oob};
pub use decoder::miscorrection_log2;
pub use find::{Choice, EVIDENCE_BITS_MIN, FindError, FindOptions, Found, find};
pub use hamming::HammingOrder;
pub(crate) use hamming::linux_hamming;
pub use layout::{Area, BitOrder, Code, Layout, LayoutError, Mask, Placement, Skip};
pub use page::{PageCorrector, PageState};
pub use source::{FileSource, Source};
pub use spec::{Shape, SpecError};
pub use table::{FAMILIES, Family, SHAPES, shapes};
