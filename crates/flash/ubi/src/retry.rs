//! Retries of reads and erases, as in Linux: a glitch on the bus or a page at the limit of the ECC often succeeds on
//! the next attempt.

use media::{Nand, NandError, Peb, ReadReport};

/// Retries after the first failed read or erase (`UBI_IO_RETRIES` in Linux).
const RETRIES: u32 = 3;

/// [`Nand::read`] with retries if the device fails or the data is uncorrectable. Returns the outcome of the last
/// attempt.
pub(crate) fn read(
    nand: &mut dyn Nand,
    peb: Peb,
    offset: u32,
    out: &mut [u8],
) -> Result<ReadReport, NandError> {
    let mut tried = nand.read(peb, offset, out);
    for _ in 0..RETRIES {
        let is_final = match &tried {
            Ok(report) => report.is_correct(),
            Err(error) => error.is_power_cut(),
        };
        if is_final {
            break;
        }
        tried = nand.read(peb, offset, out);
    }
    tried
}

/// [`Nand::erase`] with retries if it fails. Returns the outcome of the last attempt.
pub(crate) fn erase(nand: &mut dyn Nand, peb: Peb) -> Result<(), NandError> {
    let mut tried = nand.erase(peb);
    for _ in 0..RETRIES {
        if tried.as_ref().map_or_else(NandError::is_power_cut, |()| true) {
            break;
        }
        tried = nand.erase(peb);
    }
    tried
}
