//! The LPT: a tree, in an area of its own, that holds the space of each LEB of the main area.
//!
//! - [`LptGeometry`]: how many nodes and how wide their fields; both models.
//! - [`nodes`]: its nodes and tables. They are no nodes of UBIFS: numbers are packed to bits, the CRC has 16 of them.
//! - [`lay_out`]: from the space of all LEBs to what is written where; [`read`]: the way back.
//!
//! All of the tree is written at once, in the big model too, which is allowed and takes some 5 bytes for each LEB of the file system.
//! Spec: `docs/formats/ubifs.md`.

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
