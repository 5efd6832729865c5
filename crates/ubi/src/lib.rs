//! UBI in user space: logical eraseblocks over raw NAND, on-flash compatible with Linux in both directions.
//!
//! - [`format`]: the structures on the medium, from bytes to values and back. Spec: `docs/formats/ubi.md`.

pub mod format;
