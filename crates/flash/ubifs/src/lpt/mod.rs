//! The LPT: a tree, in its own area, with the lprops (free and dirty space) of each LEB of the main area.
//!
//! - [`LptGeometry`]: node counts and field widths, for both models.
//! - [`nodes`]: codecs of nodes and tables. They are no UBIFS nodes: fields are bit-packed, the CRC has 16 bits.
//! - [`lay_out`] encodes the lprops of all LEBs into writes; [`read`] decodes them.
//!
//! Each commit writes the whole tree, also in the big model. The format allows that, and it takes some 5 bytes per
//! LEB of the file system. Spec: `docs/formats/ubifs.md`.

mod bits;
mod geometry;
mod layout;
mod nodes;
mod read;

pub(crate) use geometry::{LptGeometry, LptInput};
#[cfg(test)]
use layout::LptLayout;
pub(crate) use layout::{Region, lay_out};
pub use nodes::LptDefect;
pub(crate) use nodes::{LptPlace, TableSpace};
pub(crate) use read::LptContent;
pub(crate) use read::load;
#[cfg(test)]
use read::read;
pub use read::{LptError, LptProblem};

#[cfg(test)]
mod tests;
