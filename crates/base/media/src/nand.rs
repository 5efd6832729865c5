//! The trait of raw NAND devices, and what a read has to say beside the data.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Clock, NandError, NandGeometry, Page, Peb};

/// One raw NAND device. It does one operation at a time; who shares one puts it into an [`Arc`] and a [`Mutex`], which is a
/// `Nand` too.
///
/// Rules of the medium, which callers keep and simulators enforce:
/// - A block is programmed upwards: each program begins at or after the end of the last one since the erase. What was skipped
///   stays skipped. Nothing is programmed twice between erases.
/// - Offsets and lengths of programs are multiples of the sub-page.
/// - After an erase every byte is 0xFF.
/// - A bad block may be read, as anything; it takes neither programs nor erases.
///
/// An operation that returned is on the medium (for a file: in the host's page cache until [`Nand::sync`]). An operation that
/// failed by [`NandError::PowerCut`] is there in part, in whole, or not at all.
pub trait Nand: Send {
    /// The name that errors use: a file, a device node, a number.
    fn name(&self) -> Arc<str>;

    /// The shape. It never changes.
    fn geometry(&self) -> NandGeometry;

    /// The device's clock; see the crate's documentation.
    fn clock(&self) -> Clock;

    /// Reads `out.len()` bytes from byte `offset` of a block, from any number of pages. `out` is filled also where the report
    /// says that pages were uncorrectable, with what the medium gave.
    fn read(&mut self, peb: Peb, offset: u32, out: &mut [u8]) -> Result<ReadReport, NandError>;

    /// Programs `data` from byte `offset` of a block, page after page. When it fails, the pages before the one that the error
    /// names are programmed.
    fn program(&mut self, peb: Peb, offset: u32, data: &[u8]) -> Result<(), NandError>;

    /// Erases a block to 0xFF.
    fn erase(&mut self, peb: Peb) -> Result<(), NandError>;

    /// Whether a block is marked bad, by the factory or by [`Nand::mark_bad`].
    fn is_bad(&mut self, peb: Peb) -> Result<bool, NandError>;

    /// Marks a block bad, for ever. Marking it again is no error.
    fn mark_bad(&mut self, peb: Peb) -> Result<(), NandError>;

    /// Waits until all that was done survives a crash of the host. Real chips have nothing to do here.
    fn sync(&mut self) -> Result<(), NandError>;

    /// The host between the device and its medium, where there is one: an image in a file has, a chip has not.
    fn host(&self) -> Option<Arc<dyn Host>>;
}

/// What keeps the bytes of a device, and loses any of what was not synced when it crashes: what was written last may be there and what was
/// written before it not.
pub trait Host: fmt::Debug + Send + Sync {
    /// Waits until what was programmed and erased so far survives a crash. Other than [`Nand::sync`] it needs no turn at the device, and
    /// leaves out what the device keeps for itself.
    fn sync(&self) -> Result<(), NandError>;
}

/// What a read found out about the medium. The data is right if and only if `uncorrectable` is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "data of uncorrectable pages is not what was written"]
pub struct ReadReport {
    /// Bits that were wrong and were corrected, over all pages.
    pub corrected_bits: u32,
    /// The most of them in one ECC step, to compare with [`NandGeometry::bitflip_threshold`].
    pub worst_step_bits: u32,
    /// Pages with more wrong bits than can be corrected, ascending.
    pub uncorrectable: Vec<Page>,
}

impl ReadReport {
    /// Whether every byte is as it was programmed.
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

/// A shared device, one operation at a time. A thread that panicked during one leaves the device as it is.
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
