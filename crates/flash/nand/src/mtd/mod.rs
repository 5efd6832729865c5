//! Real chips: `/dev/mtdN`, accessed by ioctls.
//!
//! `read()` of such a device reports success even if the ECC failed, so data is read with `MEMREAD`, which returns
//! the ECC statistics, or, before Linux 6.1, with `pread` between two queries of the driver's counters
//! (`ECCGETSTATS`). The counters do not give the worst ECC step; their sum takes its place, which at worst triggers
//! scrubbing too early.
//!
//! A device opened for writing is used exclusively: it is locked against other processes of this project, and refused
//! while the kernel's UBI is attached to it or it is mounted. Processes that ignore the lock are not stopped.
//!
//! The kernel does not enforce the rules of the medium; this module does for blocks that it has erased itself, and
//! trusts its caller with the others.

mod ioctl;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use media::{ByteCount, Clock, Host, Nand, NandError, NandGeometry, Page, PagePart, Peb, ReadReport, index};
use rustix::io::Errno;
use thiserror::Error;

use crate::{Access, ModelError, RawNand, RealClock, TimeSource};

/// Reason why a device can't be opened.
#[derive(Debug, Error)]
pub enum MtdError {
    /// The host's operation failed.
    #[error("{}: {action} failed: {source}", path.display())]
    Host {
        /// The device.
        path: PathBuf,
        /// The operation that failed.
        action: &'static str,
        /// The host's error.
        source: io::Error,
    },
    /// The device is not raw NAND.
    #[error("{} is no raw NAND device; `cat /proc/mtd` lists what there is", path.display())]
    NoNand {
        /// The device.
        path: PathBuf,
    },
    /// The device has an unsupported geometry.
    #[error("{}: {source}", path.display())]
    Shape {
        /// The device.
        path: PathBuf,
        /// The invalid property.
        source: ModelError,
    },
    /// Another process of this project has the device open.
    #[error("{} is in use by another process, which holds its lock", path.display())]
    Locked {
        /// The device.
        path: PathBuf,
    },
    /// The kernel uses the device.
    #[error("{} is in use by the kernel: {user}; detach or unmount it first", path.display())]
    Busy {
        /// The device.
        path: PathBuf,
        /// User of the device in the kernel.
        user: String,
    },
}

/// A chip behind `/dev/mtdN`.
#[derive(Debug)]
pub struct MtdNand {
    device: File,
    name: Arc<str>,
    geometry: NandGeometry,
    access: Access,
    clock: Clock,
    time: RealClock,
    /// For blocks erased here: the first byte that may be programmed.
    next: Vec<Option<u32>>,
    has_read_request: bool,
    has_write_request: bool,
}

/// Major number of MTD character devices; the minor is twice the device number, plus one for read-only nodes.
const MTD_MAJOR: u32 = 90;
const TYPE_NAND: u8 = 4;
const TYPE_MLC_NAND: u8 = 8;

impl MtdNand {
    /// Whether `path` is an MTD character device.
    #[must_use]
    pub fn is_mtd(path: &Path) -> bool {
        path.metadata().is_ok_and(|metadata| {
            metadata.file_type().is_char_device() && rustix::fs::major(metadata.rdev()) == MTD_MAJOR
        })
    }

    /// Opens a device, exclusively if for writing.
    pub fn open(path: &Path, access: Access) -> Result<Self, MtdError> {
        if !Self::is_mtd(path) {
            return Err(MtdError::NoNand { path: path.into() });
        }
        let host = |action, source| MtdError::Host {
            path: path.into(),
            action,
            source,
        };
        let device = File::options()
            .read(true)
            .write(access == Access::ReadWrite)
            .open(path)
            .map_err(|source| host("opening the device", source))?;
        let minor = device
            .metadata()
            .map(|metadata| rustix::fs::minor(metadata.rdev()))
            .map_err(|source| host("asking for its number", source))?;
        lock(&device, path, access)?;
        if access == Access::ReadWrite
            && let Some(user) = kernel_user(minor / 2)
        {
            return Err(MtdError::Busy {
                path: path.into(),
                user,
            });
        }
        let info = ioctl::info(&device).map_err(|error| host("MEMGETINFO", error.into()))?;
        if ![TYPE_NAND, TYPE_MLC_NAND].contains(&info.kind) {
            return Err(MtdError::NoNand { path: path.into() });
        }
        let geometry = geometry(&info, minor / 2).map_err(|source| MtdError::Shape {
            path: path.into(),
            source,
        })?;
        Ok(Self {
            device,
            name: path.display().to_string().into(),
            geometry,
            access,
            clock: Clock::default(),
            time: RealClock::start(),
            next: vec![None; index(geometry.blocks())],
            has_read_request: true,
            has_write_request: true,
        })
    }

    /// Disables the requests added in Linux 6.1 (`MEMREAD`) and 3.1 (`MEMWRITE`), as on older kernels.
    #[must_use]
    pub fn without_requests(self) -> Self {
        Self {
            has_read_request: false,
            has_write_request: false,
            ..self
        }
    }

    fn timed<R>(&mut self, operation: impl FnOnce(&mut Self) -> R) -> R {
        let start = self.time.now();
        let result = operation(self);
        self.clock.advance(self.time.now().saturating_sub(start));
        result
    }

    fn place(&self, peb: Peb, offset: u32) -> u64 {
        let ByteCount(start) = self.geometry.block_start(peb);
        start + u64::from(offset)
    }

    fn host_error(&self, action: &str, peb: Peb, offset: u32, source: io::Error) -> NandError {
        NandError::Host {
            device: Arc::clone(&self.name),
            action: format!("{action} {peb} at offset {offset}"),
            source,
        }
    }

    fn may_change(&mut self, peb: Peb, action: &'static str) -> Result<(), NandError> {
        let device = Arc::clone(&self.name);
        if self.access == Access::ReadOnly {
            return Err(NandError::ReadOnly { device, peb, action });
        }
        if self.is_bad(peb)? {
            return Err(NandError::BadBlock { device, peb, action });
        }
        Ok(())
    }

    /// Reads a range, and returns the ECC result: corrected bits, the maximum per step, and uncorrectable steps.
    fn read_range(&mut self, peb: Peb, offset: u32, out: &mut [u8]) -> Result<ioctl::ReadEcc, NandError> {
        let start = self.place(peb, offset);
        if self.has_read_request {
            match ioctl::read(&self.device, start, out) {
                Ok(ecc) => return Ok(ecc),
                Err(Errno::NOTTY | Errno::OPNOTSUPP) => self.has_read_request = false,
                Err(error) => return Err(self.host_error("MEMREAD of", peb, offset, error.into())),
            }
        }
        let stats = || {
            ioctl::ecc_stats(&self.device)
                .map_err(|error| self.host_error("ECCGETSTATS before", peb, offset, error.into()))
        };
        let before = stats()?;
        self.device
            .read_exact_at(out, start)
            .map_err(|source| self.host_error("reading", peb, offset, source))?;
        let after = stats()?;
        let corrected = after.corrected.wrapping_sub(before.corrected);
        Ok(ioctl::ReadEcc {
            uncorrectable: after.failed.wrapping_sub(before.failed),
            corrected,
            worst_step: corrected,
        })
    }

    fn read_pages(&mut self, peb: Peb, offset: u32, out: &mut [u8]) -> Result<ReadReport, NandError> {
        let whole = self.read_range(peb, offset, out)?;
        if whole.uncorrectable == 0 {
            return Ok(report(whole, Vec::new()));
        }
        // Reads page by page to find the failing ones; the medium may give another result this time.
        let mut found = ReadReport::default();
        for PagePart { page, start, len, at } in self.geometry.page_parts(offset, out.len()) {
            let bytes = &mut out[at..at + index(len)];
            let ecc = self.read_range(peb, self.geometry.page_start(page) + start, bytes)?;
            let lost = if ecc.uncorrectable > 0 {
                vec![page]
            } else {
                Vec::new()
            };
            found.merge(report(ecc, lost));
        }
        Ok(found)
    }

    fn program_range(&mut self, peb: Peb, offset: u32, data: &[u8]) -> Result<(), NandError> {
        let start = self.place(peb, offset);
        let mut result = Err(Errno::NOTTY);
        if self.has_write_request {
            result = ioctl::write(&self.device, start, data);
        }
        if let Err(Errno::NOTTY | Errno::OPNOTSUPP) = result {
            self.has_write_request = false;
            result = self
                .device
                .write_all_at(data, start)
                .map_err(|error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error));
        }
        match result {
            Ok(()) => Ok(()),
            Err(Errno::IO) => Err(NandError::ProgramFailed {
                device: Arc::clone(&self.name),
                peb,
                page: self.geometry.page_of(offset),
            }),
            Err(error) => Err(self.host_error("programming", peb, offset, error.into())),
        }
    }
}

impl Nand for MtdNand {
    fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn geometry(&self) -> NandGeometry {
        self.geometry
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn read(&mut self, peb: Peb, offset: u32, out: &mut [u8]) -> Result<ReadReport, NandError> {
        self.geometry.check_read(&self.name, peb, offset, out.len())?;
        if out.is_empty() {
            return Ok(ReadReport::default());
        }
        self.timed(|device| device.read_pages(peb, offset, out))
    }

    fn program(&mut self, peb: Peb, offset: u32, data: &[u8]) -> Result<(), NandError> {
        self.geometry.check_program(&self.name, peb, offset, data.len())?;
        self.may_change(peb, "programmed")?;
        if let Some(next) = self.next[index(peb.0)].filter(|next| offset < *next) {
            return Err(NandError::NotErased {
                device: Arc::clone(&self.name),
                peb,
                page: self.geometry.page_of(offset),
                offset,
                next,
            });
        }
        // Page by page, so that an error names the page that failed.
        for part in self.geometry.page_parts(offset, data.len()) {
            let start = self.geometry.page_start(part.page) + part.start;
            let bytes = &data[part.at..part.at + index(part.len)];
            if let Some(next) = &mut self.next[index(peb.0)] {
                *next = start + part.len;
            }
            self.timed(|device| device.program_range(peb, start, bytes))?;
        }
        Ok(())
    }

    fn erase(&mut self, peb: Peb) -> Result<(), NandError> {
        self.geometry.check_peb(&self.name, peb)?;
        self.may_change(peb, "erased")?;
        self.next[index(peb.0)] = None;
        let (start, length) = (self.place(peb, 0), u64::from(self.geometry.block_bytes()));
        match self.timed(|device| ioctl::erase(&device.device, start, length)) {
            Ok(()) => {
                self.next[index(peb.0)] = Some(0);
                Ok(())
            }
            Err(Errno::IO) => Err(NandError::EraseFailed {
                device: Arc::clone(&self.name),
                peb,
            }),
            Err(error) => Err(self.host_error("erasing", peb, 0, error.into())),
        }
    }

    fn is_bad(&mut self, peb: Peb) -> Result<bool, NandError> {
        self.geometry.check_peb(&self.name, peb)?;
        let start = self.place(peb, 0).cast_signed();
        match ioctl::is_bad(&self.device, start) {
            Ok(is_bad) => Ok(is_bad),
            // The device never has bad blocks.
            Err(Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(self.host_error("MEMGETBADBLOCK of", peb, 0, error.into())),
        }
    }

    fn mark_bad(&mut self, peb: Peb) -> Result<(), NandError> {
        self.geometry.check_peb(&self.name, peb)?;
        if self.access == Access::ReadOnly {
            return Err(NandError::ReadOnly {
                device: Arc::clone(&self.name),
                peb,
                action: "marked bad",
            });
        }
        if self.is_bad(peb)? {
            return Ok(());
        }
        let start = self.place(peb, 0).cast_signed();
        self.timed(|device| ioctl::set_bad(&device.device, start))
            .map_err(|error| self.host_error("MEMSETBADBLOCK of", peb, 0, error.into()))
    }

    fn sync(&mut self) -> Result<(), NandError> {
        Ok(())
    }

    fn host(&self) -> Option<Arc<dyn Host>> {
        None
    }
}

impl RawNand for MtdNand {
    fn read_oob(&mut self, peb: Peb, page: Page, out: &mut [u8]) -> Result<(), NandError> {
        self.geometry.check_peb(&self.name, peb)?;
        let len = out.len().min(index(self.geometry.oob_bytes()));
        let offset = self.geometry.page_start(page);
        let start = self.place(peb, offset);
        self.timed(|device| ioctl::read_oob(&device.device, start, &mut out[..len]))
            .map_err(|error| self.host_error("MEMREADOOB64 of", peb, offset, error.into()))
    }
}

fn report(ecc: ioctl::ReadEcc, uncorrectable: Vec<Page>) -> ReadReport {
    ReadReport {
        corrected_bits: ecc.corrected,
        worst_step_bits: ecc.worst_step,
        uncorrectable,
    }
}

fn lock(device: &File, path: &Path, access: Access) -> Result<(), MtdError> {
    crate::lock::lock(device, access).map_err(|error| match error {
        Errno::WOULDBLOCK => MtdError::Locked { path: path.into() },
        error => MtdError::Host {
            path: path.into(),
            action: "locking the device",
            source: error.into(),
        },
    })
}

/// The geometry, from the device and from sysfs.
fn geometry(info: &ioctl::Info, number: u32) -> Result<NandGeometry, ModelError> {
    let size = attribute(number, "size").unwrap_or(u64::from(info.size));
    let pages = info.erase_bytes.checked_div(info.write_bytes).unwrap_or(0);
    let blocks = size.checked_div(u64::from(info.erase_bytes)).unwrap_or(0);
    let blocks = u32::try_from(blocks).map_err(|_| ModelError::TooLarge { bytes: size })?;
    let mut geometry = NandGeometry::new(info.write_bytes, pages, blocks)?.with_oob(info.oob_bytes)?;
    let small = |name| attribute(number, name).and_then(|value| u32::try_from(value).ok());
    if let Some(subpage) = small("subpagesize") {
        geometry = geometry.with_subpage(subpage)?;
    }
    if let Some(threshold) = small("bitflip_threshold") {
        geometry = geometry.with_bitflip_threshold(threshold);
    }
    Ok(geometry)
}

fn attribute(number: u32, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/sys/class/mtd/mtd{number}/{name}")).ok()?;
    text.trim().parse().ok()
}

/// The user of the device in the kernel: an attached UBI, or a mount.
fn kernel_user(number: u32) -> Option<String> {
    let attached = fs::read_dir("/sys/class/ubi").ok().and_then(|entries| {
        entries.flatten().find_map(|entry| {
            let text = fs::read_to_string(entry.path().join("mtd_num")).ok()?;
            (text.trim() == number.to_string())
                .then(|| format!("{} is attached to it", entry.file_name().display()))
        })
    });
    attached.or_else(|| {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let names = [format!("/dev/mtdblock{number}"), format!("mtd{number}")];
        mounts.lines().find_map(|line| {
            let mut words = line.split(' ');
            let (source, folder) = (words.next()?, words.next()?);
            names
                .iter()
                .any(|name| name == source)
                .then(|| format!("it is mounted on {folder}"))
        })
    })
}
