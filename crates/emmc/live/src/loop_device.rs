//! A loop device of our own: a minor that is not used otherwise, over one file, with direct I/O and a given number of
//! driver tags.
//!
//! JUSTIFICATION: no safe crate of ours has the ioctls of `/dev/loop-control`, loop devices and block devices;
//! losetup(8) before version 2.40 can't remove a minor. The unsafe code here is two calls, below.
//!
//! The number of tags is that of the driver, not of the scheduler: `nr_requests` sets it while no scheduler is
//! active, and it persists when one is chosen afterwards. Removing a minor discards its settings.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use crate::LiveError;

const CONTROL: &str = "/dev/loop-control";

const LOOP_CTL_ADD: libc::c_ulong = 0x4C80;
const LOOP_CTL_REMOVE: libc::c_ulong = 0x4C81;
const LOOP_CLR_FD: libc::c_ulong = 0x4C01;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const BLKFLSBUF: libc::c_ulong = 0x1261;

/// `LO_FLAGS_DIRECT_IO`.
const DIRECT_IO: u32 = 16;

/// Major number of loop devices.
pub(crate) const LOOP_MAJOR: u32 = 7;

/// Lower minors belong to the distribution.
const FIRST_MINOR: u32 = 64;
const LAST_MINOR: u32 = 1023;

/// Number of retries if a device is briefly busy, and the pause before each: 2 s in total.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// `struct loop_config` (304 bytes): the file, the block size, `struct loop_info64` and 8 reserved words.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

/// Settings of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Requests in the driver, 4 to 128.
    pub tags: u32,
    /// Maximum request size in KiB.
    pub max_kib: u32,
    /// I/O scheduler of the kernel.
    pub scheduler: String,
}

/// Exclusive access to a device that was just created, until this is dropped. While a device is unbound, programs
/// that look for any free device (`losetup -f`, `mount -o loop`) would find it too, and take it.
#[derive(Debug)]
pub struct Claim(File);

/// A loop device. Dropping it leaves the device as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopDevice {
    minor: u32,
}

impl LoopDevice {
    /// Creates a new loop device.
    ///
    /// # Errors
    /// Without the loop driver, without privileges, or if all minors up to 1023 are taken.
    pub fn add() -> Result<(Self, Claim), LiveError> {
        let failed = |source: io::Error| LiveError::Loop {
            device: CONTROL.to_owned(),
            doing: "making a device",
            source,
        };
        let control = File::open(CONTROL).map_err(failed)?;
        for minor in FIRST_MINOR..=LAST_MINOR {
            match number_ioctl(&control, LOOP_CTL_ADD, minor) {
                Ok(()) => {
                    let device = Self { minor };
                    // A device bound in between belongs to another program.
                    if let Some(claim) = device.claim()? {
                        return Ok((device, claim));
                    }
                }
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(io::Error::from_raw_os_error(libc::ENOSPC)))
    }

    /// The existing device with this minor.
    #[must_use]
    pub const fn of_minor(minor: u32) -> Self {
        Self { minor }
    }

    /// Minor number.
    #[must_use]
    pub const fn minor(&self) -> u32 {
        self.minor
    }

    /// Name, such as `loop64`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("loop{}", self.minor)
    }

    /// Path of the device node.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/{}", self.name()))
    }

    /// Device number as in `/proc/self/mountinfo`.
    #[must_use]
    pub fn number(&self) -> String {
        format!("{LOOP_MAJOR}:{}", self.minor)
    }

    /// Prevents other programs from binding it; `None` if one has done so already.
    fn claim(&self) -> Result<Option<Claim>, LiveError> {
        match self.open_node(libc::O_EXCL) {
            Ok(_) if self.backing_file().is_some() => Ok(None),
            Ok(file) => Ok(Some(Claim(file))),
            Err(LiveError::Loop { source, .. }) if source.raw_os_error() == Some(libc::EBUSY) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Binds it to `file` with direct I/O, and configures its queue.
    ///
    /// # Errors
    /// If the kernel refuses any of it. The device may be bound then.
    pub fn configure(
        &self,
        claim: Claim,
        file: &File,
        name: &str,
        limits: &QueueLimits,
    ) -> Result<(), LiveError> {
        let fd = u32::try_from(file.as_raw_fd()).expect("a descriptor is not negative");
        let mut config = LoopConfig {
            fd,
            block_size: 512,
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: DIRECT_IO,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
            reserved: [0; 8],
        };
        for (to, from) in config.file_name.iter_mut().take(63).zip(name.bytes()) {
            *to = from;
        }
        configure_ioctl(&claim.0, &config).map_err(self.failed("binding it to the card"))?;
        drop(claim);
        self.set("scheduler", "none")?;
        self.set("nr_requests", &limits.tags.to_string())?;
        self.set("max_sectors_kb", &limits.max_kib.to_string())?;
        self.set("rotational", "0")?;
        self.set("scheduler", &limits.scheduler)
    }

    /// The file that it is bound to, as reported by the kernel; `None` if it is not bound.
    #[must_use]
    pub fn backing_file(&self) -> Option<PathBuf> {
        let text = fs::read_to_string(format!("/sys/block/{}/loop/backing_file", self.name())).ok()?;
        Some(PathBuf::from(text.trim_end_matches('\n')))
    }

    /// Whether the device exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        Path::new(&format!("/sys/block/{}", self.name())).exists()
    }

    /// Whether no file system or other holder claims it.
    ///
    /// # Errors
    /// If it can't be opened for another reason.
    pub fn is_unclaimed(&self) -> Result<bool, LiveError> {
        // For a block device, O_EXCL requests an exclusive claim.
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_EXCL)
            .open(self.path());
        match opened {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(false),
            Err(error) => Err(self.failed("opening it")(error)),
        }
    }

    /// Writes back and drops its page cache.
    ///
    /// # Errors
    /// If it can't be opened, or the dirty pages can't be written (a card without power).
    pub fn flush_cache(&self) -> Result<(), LiveError> {
        let device = self.open_node(0)?;
        let synced = device.sync_all();
        number_ioctl(&device, BLKFLSBUF, 0).map_err(self.failed("dropping its page cache"))?;
        synced.map_err(self.failed("writing out its page cache"))
    }

    /// Whether it is bound to `file`. For a file on a hidden mount the kernel reports the path within that mount.
    #[must_use]
    pub fn is_bound_to(&self, file: &Path) -> bool {
        let hidden = Path::new("/").join(file.file_name().unwrap_or_default());
        self.backing_file()
            .is_some_and(|bound| bound == file || bound == hidden)
    }

    /// Unbinds it from `file`, and waits until that is done. A device bound to another file was taken by another
    /// program meanwhile, and is left untouched.
    ///
    /// # Errors
    /// If another program has it open.
    pub fn unbind(&self, file: &Path) -> Result<(), LiveError> {
        for _ in 0..TRIES {
            if !self.is_bound_to(file) {
                return Ok(());
            }
            // The kernel unbinds it at the last close, which may be this one.
            let device = self.open_node(0)?;
            match number_ioctl(&device, LOOP_CLR_FD, 0) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Ok(()),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => return Err(self.failed("letting go of the card")(error)),
            }
            drop(device);
            if !self.is_bound_to(file) {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
        Err(LiveError::Busy {
            device: self.path().display().to_string(),
        })
    }

    /// Removes an unbound device. If another program has bound it meanwhile, it stays and belongs to that program.
    ///
    /// # Errors
    /// If another program has it open.
    pub fn remove(&self) -> Result<(), LiveError> {
        let control = File::open(CONTROL).map_err(self.failed("opening /dev/loop-control"))?;
        for _ in 0..TRIES {
            match number_ioctl(&control, LOOP_CTL_REMOVE, self.minor) {
                Ok(()) => return Ok(()),
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    if self.backing_file().is_some() {
                        return Ok(());
                    }
                    thread::sleep(PAUSE);
                }
                Err(error) => return Err(self.failed("removing it")(error)),
            }
        }
        Err(LiveError::Busy {
            device: self.path().display().to_string(),
        })
    }

    /// Opens it with these flags. Creates the node if there is no devtmpfs (containers).
    fn open_node(&self, flags: libc::c_int) -> Result<File, LiveError> {
        let path = self.path();
        if !path.exists() {
            let device = rustix::fs::makedev(LOOP_MAJOR, self.minor);
            let mode = rustix::fs::Mode::from_raw_mode(0o660);
            let made = rustix::fs::mknodat(
                rustix::fs::CWD,
                &path,
                rustix::fs::FileType::BlockDevice,
                mode,
                device,
            );
            match made {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(self.failed("making its node")(errno.into())),
            }
        }
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).custom_flags(flags).open(&path);
        let file = opened.map_err(self.failed("opening it"))?;
        let number = file
            .metadata()
            .map_err(self.failed("asking for its number"))?
            .rdev();
        if number != rustix::fs::makedev(LOOP_MAJOR, self.minor) {
            return Err(self.failed("opening it")(io::Error::from_raw_os_error(
                libc::ENODEV,
            )));
        }
        Ok(file)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a file of the kernel: it is there, and takes no other's place"
    )]
    fn set(&self, setting: &'static str, value: &str) -> Result<(), LiveError> {
        let path = format!("/sys/block/{}/queue/{setting}", self.name());
        fs::write(&path, value).map_err(|source| LiveError::Setting {
            device: self.path().display().to_string(),
            setting,
            value: value.to_owned(),
            known: fs::read_to_string(&path).unwrap_or_default().trim().to_owned(),
            source,
        })
    }

    fn failed(&self, doing: &'static str) -> impl Fn(io::Error) -> LiveError + use<> {
        let device = self.path().display().to_string();
        move |source| LiveError::Loop {
            device: device.clone(),
            doing,
            source,
        }
    }
}

/// An ioctl whose argument is a number.
fn number_ioctl(file: &File, request: libc::c_ulong, argument: u32) -> io::Result<()> {
    // SAFETY: LOOP_CTL_ADD, LOOP_CTL_REMOVE, LOOP_CLR_FD and BLKFLSBUF take a number or nothing; they access no
    // memory.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, libc::c_ulong::from(argument)) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn configure_ioctl(file: &File, config: &LoopConfig) -> io::Result<()> {
    // SAFETY: LOOP_CONFIGURE reads one `struct loop_config`, whose layout `config` has, and writes nothing.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), LOOP_CONFIGURE, std::ptr::from_ref(config)) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_has_the_size_that_the_kernel_reads() {
        assert_eq!(size_of::<LoopConfig>(), 304);
        assert_eq!(std::mem::offset_of!(LoopConfig, flags), 60);
        assert_eq!(std::mem::offset_of!(LoopConfig, file_name), 64);
    }
}
