//! The trait of raw NAND devices, and the report of a read.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Clock, NandError, NandGeometry, Page, Peb};

/// A raw NAND device. It executes one operation at a time; to share one, wrap it in an [`Arc`] and a [`Mutex`], which
/// implement `Nand` too.
///
/// Rules of the medium, which callers keep and simulators enforce:
/// - A block is programmed upwards: each program begins at or after the end of the last one since the erase. Skipped
///   bytes stay skipped. Nothing is programmed twice between erases.
/// - Offsets and lengths of programs are multiples of the sub-page size.
/// - After an erase every byte is 0xFF.
/// - A bad block may be read, with undefined content; it takes neither programs nor erases.
///
/// The effect of an operation is on the medium when it returns (for a file: in the host's page cache until
/// [`Nand::sync`]). An operation that failed with [`NandError::PowerCut`] has taken effect in part, in whole, or not
/// at all.
pub trait Nand: Send {
    /// The device's name in error messages: a file, a device node, a number.
    fn name(&self) -> Arc<str>;

    /// The geometry. It never changes.
    fn geometry(&self) -> NandGeometry;

    /// The device's clock; see the crate's documentation.
    fn clock(&self) -> Clock;

    /// Reads `out.len()` bytes from byte `offset` of a block, from any number of pages. Uncorrectable pages, which
    /// the report lists, fill `out` with the raw bytes of the medium.
    fn read(&mut self, peb: Peb, offset: u32, out: &mut [u8]) -> Result<ReadReport, NandError>;

    /// Programs `data` from byte `offset` of a block, page after page. After an error, the pages before the one it
    /// names are programmed.
    fn program(&mut self, peb: Peb, offset: u32, data: &[u8]) -> Result<(), NandError>;

    /// Erases a block to 0xFF.
    fn erase(&mut self, peb: Peb) -> Result<(), NandError>;

    /// Whether a block is marked bad, by the factory or by [`Nand::mark_bad`].
    fn is_bad(&mut self, peb: Peb) -> Result<bool, NandError>;

    /// Marks a block bad permanently. Marking it again is no error.
    fn mark_bad(&mut self, peb: Peb) -> Result<(), NandError>;

    /// Waits until all completed operations survive a crash of the host. A no-op for real chips.
    fn sync(&mut self) -> Result<(), NandError>;

    /// The host between the device and its medium: present for an image in a file, absent for a real chip.
    fn host(&self) -> Option<Arc<dyn Host>>;
}

impl fmt::Debug for dyn Nand + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Nand").field(&self.name()).finish()
    }
}

/// The host that stores the content of a device. If it crashes, any subset of the writes since the last sync may be
/// lost, in any order.
pub trait Host: fmt::Debug + Send + Sync {
    /// Waits until all programs and erases so far survive a crash. Unlike [`Nand::sync`] it does not need access to
    /// the device, and does not include the device's own bookkeeping.
    fn sync(&self) -> Result<(), NandError>;
}

/// The ECC result of a read. The data is correct if and only if `uncorrectable` is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "data of uncorrectable pages is not what was written"]
pub struct ReadReport {
    /// Corrected bits, over all pages.
    pub corrected_bits: u32,
    /// Maximum of corrected bits in one ECC step, to compare with [`NandGeometry::bitflip_threshold`].
    pub worst_step_bits: u32,
    /// Pages with uncorrectable errors, ascending.
    pub uncorrectable: Vec<Page>,
}

impl ReadReport {
    /// Whether every byte is as programmed.
    #[must_use]
    pub fn is_correct(&self) -> bool {
        self.uncorrectable.is_empty()
    }

    /// Whether the data should be moved to another block before more bits flip.
    #[must_use]
    pub fn needs_scrub(&self, geometry: &NandGeometry) -> bool {
        !self.is_correct() || self.worst_step_bits >= geometry.bitflip_threshold()
    }

    /// Adds the report of a later part of the same block.
    pub fn merge(&mut self, later: Self) {
        self.corrected_bits += later.corrected_bits;
        self.worst_step_bits = self.worst_step_bits.max(later.worst_step_bits);
        for page in later.uncorrectable {
            if !self.uncorrectable.contains(&page) {
                self.uncorrectable.push(page);
            }
        }
    }
}

macro_rules! forward {
    ($self:ident => $target:expr) => {
        fn name(&$self) -> Arc<str> {
            $target.name()
        }

        fn geometry(&$self) -> NandGeometry {
            $target.geometry()
        }

        fn clock(&$self) -> Clock {
            $target.clock()
        }

        fn read(&mut $self, peb: Peb, offset: u32, out: &mut [u8]) -> Result<ReadReport, NandError> {
            $target.read(peb, offset, out)
        }

        fn program(&mut $self, peb: Peb, offset: u32, data: &[u8]) -> Result<(), NandError> {
            $target.program(peb, offset, data)
        }

        fn erase(&mut $self, peb: Peb) -> Result<(), NandError> {
            $target.erase(peb)
        }

        fn is_bad(&mut $self, peb: Peb) -> Result<bool, NandError> {
            $target.is_bad(peb)
        }

        fn mark_bad(&mut $self, peb: Peb) -> Result<(), NandError> {
            $target.mark_bad(peb)
        }

        fn sync(&mut $self) -> Result<(), NandError> {
            $target.sync()
        }

        fn host(&$self) -> Option<Arc<dyn Host>> {
            $target.host()
        }
    };
}

impl<N: Nand + ?Sized> Nand for Box<N> {
    forward!(self => (**self));
}

impl<N: Nand + ?Sized> Nand for &mut N {
    forward!(self => (**self));
}

/// A shared device, one operation at a time. If a thread panicked during one, the device is used as it is.
impl<N: Nand + ?Sized> Nand for Arc<Mutex<N>> {
    forward!(self => self.lock().unwrap_or_else(PoisonError::into_inner));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_two_parts_add_up_and_name_each_page_once() {
        let mut report = ReadReport {
            corrected_bits: 2,
            worst_step_bits: 2,
            uncorrectable: vec![Page(1)],
        };
        report.merge(ReadReport {
            corrected_bits: 3,
            worst_step_bits: 1,
            uncorrectable: vec![Page(1), Page(2)],
        });
        let expected = ReadReport {
            corrected_bits: 5,
            worst_step_bits: 2,
            uncorrectable: vec![Page(1), Page(2)],
        };
        assert_eq!(report, expected);
    }

    #[test]
    fn scrubbing_begins_at_the_threshold() {
        let geometry = NandGeometry::new(2048, 64, 1).unwrap().with_bitflip_threshold(3);
        let report = |worst_step_bits| ReadReport {
            worst_step_bits,
            ..ReadReport::default()
        };
        assert!(!report(2).needs_scrub(&geometry));
        assert!(report(3).needs_scrub(&geometry));
    }
}
