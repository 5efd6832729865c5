//! The target of the IOs: a file of the run's own, or a block device.
//!
//! By default IOs use O_DIRECT and O_DSYNC: they bypass the page cache, and writes go through the device's cache to
//! the medium. Each IO is one system call.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::SeekFrom;
use rustix::io::{Errno, retry_on_intr};

use super::Caching;
use crate::data::{AlignedMemory, Content};
use crate::error::BenchError;
use crate::order::Permutation;
use crate::prepare;
use crate::progress::{Phase, Progress};
use crate::spec::{DataPattern, DeviceAccess};

/// The random format starts with writes of this size and ends with sectors.
const FORMAT_BYTES: u64 = 128 << 10;

/// Sizes of the random format: 128 KiB, 64 KiB ... 512 bytes.
const FORMAT_STEPS: u64 = 9;

const SECTOR_BYTES: u64 = 512;

/// The target of the IOs.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    file: File,
    /// Size of the region that IOs stay in.
    pub bytes: u64,
    /// Smallest IO, and alignment of all IOs.
    pub unit_bytes: u64,
}

impl Target {
    /// Opens a device, or creates a file in the run's own directory.
    pub fn open(path: &Path, bytes: u64, device: DeviceAccess, caching: Caching) -> Result<Self, BenchError> {
        let is_file = device == DeviceAccess::Refused;
        let writes = is_file || device == DeviceAccess::Destroy;
        let mut options = OpenOptions::new();
        let exclusive = if device == DeviceAccess::Destroy {
            libc::O_EXCL
        } else {
            0
        };
        options
            .read(true)
            .write(writes)
            .create_new(is_file)
            .custom_flags(caching.flags() | exclusive);
        let file = prepare::open_claimed(path, &options)?;
        if is_file {
            file.set_len(bytes)
                .map_err(|error| BenchError::io("ftruncate", path, error))?;
        } else {
            let end = rustix::fs::seek(&file, SeekFrom::End(0));
            let device_bytes = end.map_err(|errno| BenchError::io("seek", path, errno))?;
            if bytes > device_bytes {
                let path = path.to_owned();
                return Err(BenchError::DeviceTooSmall {
                    path,
                    needed_bytes: bytes,
                    device_bytes,
                });
            }
        }
        let mut target = Self {
            path: path.to_owned(),
            file,
            bytes,
            unit_bytes: SECTOR_BYTES,
        };
        let mut sector = AlignedMemory::new(512, 0);
        match rustix::io::pread(&target.file, sector.as_mut_slice(), 0) {
            Ok(_) => {}
            Err(Errno::INVAL) => target.unit_bytes = 4096,
            Err(errno) => return Err(BenchError::data("read", path, 0, errno)),
        }
        Ok(target)
    }

    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BenchError> {
        let moved = retry_on_intr(|| rustix::io::pread(&self.file, &mut *buffer, offset))
            .map_err(|errno| BenchError::data("read", &self.path, offset, errno))?;
        if moved == buffer.len() {
            return Ok(());
        }
        Err(BenchError::ShortRead {
            path: self.path.clone(),
            offset_bytes: offset,
            missing_bytes: u64::try_from(buffer.len() - moved).unwrap_or(u64::MAX),
        })
    }

    /// A partial write is an error: completing it would take two IOs.
    pub fn write(&self, offset: u64, content: &[u8]) -> Result<(), BenchError> {
        let written = retry_on_intr(|| rustix::io::pwrite(&self.file, content, offset));
        match written {
            Ok(moved) if moved == content.len() => Ok(()),
            Ok(_) => Err(BenchError::data("write", &self.path, offset, Errno::IO)),
            Err(errno) => Err(BenchError::data("write", &self.path, offset, errno)),
        }
    }

    /// Writes the target once from start to end, so that reads find data.
    pub fn fill(&self, seed: u64, progress: &dyn Progress, stop: &AtomicBool) -> Result<(), BenchError> {
        let mut writer = Filling {
            target: self,
            done: 0,
            progress,
            stop,
        };
        for offset in (0..self.bytes).step_by(1 << 20) {
            writer.write(
                &mut content(1 << 20, seed),
                offset,
                (self.bytes - offset).min(1 << 20),
            )?;
        }
        Ok(())
    }

    /// Brings the device into a state that is independent of its previous content: every byte is written once, at
    /// random positions, in sizes that shrink from 128 KiB to sectors.
    pub fn random_format(
        &self,
        seed: u64,
        progress: &dyn Progress,
        stop: &AtomicBool,
    ) -> Result<(), BenchError> {
        let mut writer = Filling {
            target: self,
            done: 0,
            progress,
            stop,
        };
        let units = self.bytes / FORMAT_BYTES;
        let order = Permutation::new(units, seed);
        for step in 0..FORMAT_STEPS {
            let io_bytes = (FORMAT_BYTES >> step).max(self.unit_bytes);
            let (first, end) = (units * step / FORMAT_STEPS, units * (step + 1) / FORMAT_STEPS);
            let pieces = FORMAT_BYTES / io_bytes;
            let places = Permutation::new((end - first) * pieces, seed ^ step);
            let mut content = content(io_bytes, seed);
            for number in 0..(end - first) * pieces {
                let place = places.at(number);
                let unit = order.at(first + place / pieces);
                writer.write(
                    &mut content,
                    unit * FORMAT_BYTES + place % pieces * io_bytes,
                    io_bytes,
                )?;
            }
        }
        Ok(())
    }
}

/// The content of writes of this size.
pub(super) fn content(io_bytes: u64, seed: u64) -> Content {
    let length = usize::try_from(io_bytes).expect("IOs are at most 8 MiB");
    Content::written(length, DataPattern::Random, seed)
}

struct Filling<'run> {
    target: &'run Target,
    done: u64,
    progress: &'run dyn Progress,
    stop: &'run AtomicBool,
}

impl Filling<'_> {
    fn write(&mut self, content: &mut Content, offset: u64, bytes: u64) -> Result<(), BenchError> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let length = usize::try_from(bytes).expect("pieces are at most 1 MiB");
        self.target.write(offset, &content.at(offset, 0)[..length])?;
        let before = self.done >> 20;
        self.done += bytes;
        if self.done >> 20 != before || self.done == self.target.bytes {
            self.progress
                .advance(Phase::Prepare, self.done, self.target.bytes);
        }
        Ok(())
    }
}
