//! The ioctls of `/dev/mtdN`, as in the kernel's `mtd/mtd-abi.h`.
//!
//! JUSTIFICATION for `unsafe`: an ioctl is a number and a pointer, which the compiler can't check. All of them are
//! here, one function each, next to the structure that belongs to the number; callers use slices and values.

use std::ffi::c_void;
use std::fs::File;

use rustix::io::{Errno, Result};
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, Opcode, Setter, Updater, ioctl, opcode};

/// `struct mtd_info_user`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Info {
    pub kind: u8,
    pub flags: u32,
    /// Size of the device, modulo 4 GiB.
    pub size: u32,
    pub erase_bytes: u32,
    pub write_bytes: u32,
    pub oob_bytes: u32,
    padding: u64,
}

/// `struct erase_info_user64`.
#[repr(C)]
struct Erase {
    start: u64,
    length: u64,
}

/// `struct mtd_ecc_stats`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EccStats {
    pub corrected: u32,
    pub failed: u32,
    bad_blocks: u32,
    table_blocks: u32,
}

/// `struct mtd_oob_buf64`.
#[repr(C)]
struct OobBuffer {
    start: u64,
    padding: u32,
    length: u32,
    pointer: u64,
}

/// `struct mtd_write_req`.
#[repr(C)]
struct WriteRequest {
    start: u64,
    length: u64,
    oob_length: u64,
    data: u64,
    oob: u64,
    mode: u8,
    padding: [u8; 7],
}

/// `struct mtd_read_req`.
#[repr(C)]
struct ReadRequest {
    start: u64,
    length: u64,
    oob_length: u64,
    data: u64,
    oob: u64,
    mode: u8,
    padding: [u8; 7],
    ecc: ReadEcc,
}

/// `struct mtd_read_req_ecc_stats`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadEcc {
    pub uncorrectable: u32,
    pub corrected: u32,
    pub worst_step: u32,
}

const GET_INFO: Opcode = opcode::read::<Info>(b'M', 1);
const ECC_GET_STATS: Opcode = opcode::read::<EccStats>(b'M', 18);
const ERASE_64: Opcode = opcode::write::<Erase>(b'M', 20);
const READ_OOB_64: Opcode = opcode::read_write::<OobBuffer>(b'M', 22);
const WRITE: Opcode = opcode::read_write::<WriteRequest>(b'M', 24);
const READ: Opcode = opcode::read_write::<ReadRequest>(b'M', 26);
const GET_BAD_BLOCK: Opcode = opcode::write::<i64>(b'M', 11);
const SET_BAD_BLOCK: Opcode = opcode::write::<i64>(b'M', 12);

/// ECC by the driver, OOB bytes at the caller's offsets; used here without OOB.
const MODE_PLACE_OOB: u8 = 0;

/// `MEMGETINFO`.
pub(super) fn info(device: &File) -> Result<Info> {
    // SAFETY: the number belongs to `struct mtd_info_user`, whose layout `Info` has; every bit pattern of it is
    // valid.
    unsafe { ioctl(device, Getter::<GET_INFO, Info>::new()) }
}

/// `ECCGETSTATS`.
pub(super) fn ecc_stats(device: &File) -> Result<EccStats> {
    // SAFETY: the number belongs to `struct mtd_ecc_stats`, whose layout `EccStats` has; every bit pattern of it is
    // valid.
    unsafe { ioctl(device, Getter::<ECC_GET_STATS, EccStats>::new()) }
}

/// `MEMERASE64`.
pub(super) fn erase(device: &File, start: u64, length: u64) -> Result<()> {
    // SAFETY: the number belongs to `struct erase_info_user64`, whose layout `Erase` has; the kernel only reads it.
    unsafe { ioctl(device, Setter::<ERASE_64, Erase>::new(Erase { start, length })) }
}

/// `MEMGETBADBLOCK`.
pub(super) fn is_bad(device: &File, start: i64) -> Result<bool> {
    // SAFETY: `BadBlock` upholds the requirements of `Ioctl`; see its implementation.
    unsafe { ioctl(device, BadBlock { start }) }
}

/// `MEMSETBADBLOCK`.
pub(super) fn set_bad(device: &File, start: i64) -> Result<()> {
    // SAFETY: the number belongs to a `loff_t`, an `i64`; the kernel only reads it.
    unsafe { ioctl(device, Setter::<SET_BAD_BLOCK, i64>::new(start)) }
}

/// `MEMREADOOB64`.
pub(super) fn read_oob(device: &File, start: u64, out: &mut [u8]) -> Result<()> {
    let mut request = OobBuffer {
        start,
        padding: 0,
        length: u32::try_from(out.len()).map_err(|_| Errno::INVAL)?,
        pointer: address(out.as_mut_ptr().cast_const()),
    };
    // SAFETY: the number belongs to `struct mtd_oob_buf64`, whose layout `OobBuffer` has; the kernel writes `length`
    // bytes at `pointer`, which is `out`, borrowed for the whole call.
    unsafe { ioctl(device, Updater::<READ_OOB_64, OobBuffer>::new(&mut request)) }
}

/// `MEMREAD` of data. Uncorrectable bits are reported in the result, not as an error.
pub(super) fn read(device: &File, start: u64, out: &mut [u8]) -> Result<ReadEcc> {
    let mut request = ReadRequest {
        start,
        length: u64::try_from(out.len()).map_err(|_| Errno::INVAL)?,
        oob_length: 0,
        data: address(out.as_mut_ptr().cast_const()),
        oob: 0,
        mode: MODE_PLACE_OOB,
        padding: [0; 7],
        ecc: ReadEcc::default(),
    };
    // SAFETY: the number belongs to `struct mtd_read_req`, whose layout `ReadRequest` has; the kernel writes at most
    // `length` bytes at `data`, which is `out`, borrowed for the whole call, and nothing at `oob`, whose length is 0.
    let result = unsafe { ioctl(device, Updater::<READ, ReadRequest>::new(&mut request)) };
    match result {
        // The driver's codes for corrected and for uncorrectable bits: data and statistics are valid.
        Ok(()) | Err(Errno::UCLEAN | Errno::BADMSG) => Ok(request.ecc),
        Err(error) => Err(error),
    }
}

/// `MEMWRITE` of data.
pub(super) fn write(device: &File, start: u64, data: &[u8]) -> Result<()> {
    let mut request = WriteRequest {
        start,
        length: u64::try_from(data.len()).map_err(|_| Errno::INVAL)?,
        oob_length: 0,
        data: address(data.as_ptr()),
        oob: 0,
        mode: MODE_PLACE_OOB,
        padding: [0; 7],
    };
    // SAFETY: the number belongs to `struct mtd_write_req`, whose layout `WriteRequest` has; the kernel reads at most
    // `length` bytes at `data`, which is borrowed for the whole call, and nothing at `oob`, whose length is 0.
    unsafe { ioctl(device, Updater::<WRITE, WriteRequest>::new(&mut request)) }
}

fn address(pointer: *const u8) -> u64 {
    u64::try_from(pointer.expose_provenance()).expect("addresses have at most 64 bits")
}

/// `MEMGETBADBLOCK`, whose result is the return value of the call.
struct BadBlock {
    start: i64,
}

// SAFETY: the number belongs to a `loff_t`, an `i64`, which `as_ptr` points to and the kernel only reads; the output
// is derived only from the call's return value.
unsafe impl Ioctl for BadBlock {
    type Output = bool;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        GET_BAD_BLOCK
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.start).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> Result<Self::Output> {
        Ok(out != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_that_are_part_of_the_kernels_numbers() {
        assert_eq!(size_of::<Info>(), 32);
        assert_eq!(size_of::<Erase>(), 16);
        assert_eq!(size_of::<EccStats>(), 16);
        assert_eq!(size_of::<OobBuffer>(), 24);
        assert_eq!(size_of::<WriteRequest>(), 48);
        assert_eq!(size_of::<ReadRequest>(), 64);
    }

    #[test]
    fn what_is_no_mtd_says_so() {
        let null = File::open("/dev/null").unwrap();
        assert_eq!(info(&null).unwrap_err(), Errno::NOTTY);
        assert_eq!(is_bad(&null, 0).unwrap_err(), Errno::NOTTY);
    }
}
