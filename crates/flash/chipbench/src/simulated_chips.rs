//! Test system of the benchmark: simulated chips as one volume, with UBIFS on it, in virtual time.
//!
//! The chips keep their data; everything above them is created anew by each mount, so nothing is cached. Processor time
//! does not count: a call takes the time that the chips are busy with it, in sequence or in parallel.

use std::sync::{Arc, Mutex};

use array::{Array, Execution, MemberIdentity};
use media::{Clock, Nanos};
use nand::{ChipModel, FaultModel, Preset, SimNand};
use rustix::fs::OFlags;
use ubi::{Access, AttachOptions, Volume, Work};
use ubifs::format::Compression;
use ubifs::mkfs::{Attributes, LebCount, MkfsOptions, Time, Tree, VolumeSink, make};
use ubifs::{Compressor, MountedWriter, OpenOptions, Writer};
use vfs::{Caller, FileSystem, FsError, Handle, Ino, NewNode, OpenFlags, Privileges, WriteMode};

use crate::array_throughput::{Chip, format_options};
use crate::error::{Context, Result, ensure};

type SharedChip = Arc<Mutex<SimNand>>;

/// The journal takes 5 % of the medium, as in seeds/001 section 4.2, and at most 32 MiB, as in Linux.
const JOURNAL_SHARE: u64 = 20;
const JOURNAL_BYTES_MAX: u64 = 32 << 20;
/// Minimum journal size in LEBs, so that each head has one and a commit is not due at once.
const JOURNAL_LEBS_MIN: u64 = 6;

/// Maximum number of erases and moves per device and round.
const DEVICE_STEPS: u32 = 32;

/// Kind, number and size of the chips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub preset: Preset,
    pub devices: u32,
    /// Total size of all devices.
    pub bytes: u64,
}

/// Chips with a file system.
pub struct SimulatedChips {
    chips: Vec<SharedChip>,
}

/// A mounted file system.
pub struct Mounted {
    pub file_system: MountedWriter,
    /// Clock of the volume.
    pub clock: Clock,
    /// Time to attach the devices.
    pub attach: Nanos,
    /// Time of the mount itself, after the attach.
    pub open: Nanos,
    array: Array,
    chips: Vec<SharedChip>,
}

/// A file open for reading and writing.
#[derive(Clone, Copy, Debug)]
pub struct OpenFile {
    pub ino: Ino,
    pub handle: Handle,
}

impl SimulatedChips {
    /// Creates chips with an empty file system across all of them.
    pub fn formatted(shape: Shape) -> Result<Self> {
        let Shape {
            preset,
            devices,
            bytes,
        } = shape;
        let model = preset.model().with_size(bytes / u64::from(devices))?;
        let chips = Self {
            chips: (0..devices).map(|member| chip(preset, member, model)).collect(),
        };
        let options = format_options(&chips.chips[0])?;
        let identity = MemberIdentity {
            array: 1,
            index: 0,
            members: devices,
            redundancy: array::Redundancy::None,
            label: "bench".to_owned(),
        };
        array::format(chips.devices(), options, &identity, &mut |_, _| {})?;
        chips
            .make_file_system(bytes)
            .with_context(|| format!("{devices} {} chips with {bytes} bytes together", preset.name()))?;
        Ok(chips)
    }

    fn attach(&self) -> Result<Array> {
        let options = AttachOptions::linux(Access::ReadWrite);
        Ok(array::attach(self.devices(), options, Execution::Inline)?)
    }

    fn devices(&self) -> Vec<Chip> {
        let device = |chip| -> Chip { Box::new(Arc::clone(chip)) };
        self.chips.iter().map(device).collect()
    }

    fn make_file_system(&self, bytes: u64) -> Result<()> {
        let array = self.attach()?;
        let volume = array.volume();
        let shape = volume.geometry();
        let least = JOURNAL_LEBS_MIN * u64::from(shape.leb_bytes);
        let options = MkfsOptions {
            lebs: LebCount::Exactly(shape.lebs),
            journal_bytes: Some((bytes / JOURNAL_SHARE).min(JOURNAL_BYTES_MAX).max(least)),
            compressor: Compressor::Only(Compression::None),
            ..MkfsOptions::new(shape.min_io_bytes.max(8), shape.leb_bytes, shape.lebs)
        };
        let mut sink = VolumeSink::new(&**volume)?;
        let tree = Tree::empty(Attributes::default());
        make(&tree, &options, &mut sink, &mut || {})?;
        sink.finish()?;
        Ok(array.close()?)
    }

    /// Attaches and mounts. All devices start at the same time.
    pub fn mount(&self) -> Result<Mounted> {
        let clocks = || self.chips.iter().map(media::Nand::clock);
        let start = clocks().map(|clock| clock.now()).max().unwrap_or_default();
        clocks().for_each(|clock| {
            clock.advance_to(start);
        });
        let array = self.attach()?;
        let clock = array.volume().clock();
        let attached = clock.now();
        let volume: Arc<dyn Volume> = array.volume().clone();
        let writer = Writer::open(volume, OpenOptions::standard())?;
        let open = clock.now() - attached;
        let no_loss = Box::new(|finding: &ubifs::Finding| panic!("simulated chips lose nothing: {finding}"));
        Ok(Mounted {
            file_system: MountedWriter::new(writer, no_loss, Box::new(Time::default)),
            clock,
            attach: attached - start,
            open,
            array,
            chips: self.chips.clone(),
        })
    }
}

fn chip(preset: Preset, member: u32, model: ChipModel) -> SharedChip {
    let name = format!("{}-{member}", preset.name());
    Arc::new(Mutex::new(SimNand::new(&name, model, FaultModel::none())))
}

impl Mounted {
    /// Returns the time that `action` takes.
    pub fn took(&self, action: impl FnOnce(&MountedWriter) -> Result<()>) -> Result<Nanos> {
        let start = self.clock.now();
        action(&self.file_system)?;
        Ok(self.clock.now() - start)
    }

    /// Opens a file of the root, creating it if needed.
    pub fn open_file(&self, name: &str) -> Result<OpenFile> {
        let caller = Caller {
            uid: 0,
            gid: 0,
            pid: 0,
        };
        let node = NewNode {
            mode: 0o100_644,
            umask: 0,
            rdev: 0,
        };
        let flags = OpenFlags(OFlags::RDWR.bits().cast_signed());
        let (files, bytes) = (&self.file_system, name.as_bytes());
        let found = match files.lookup(Ino::ROOT, bytes) {
            Err(FsError::NotFound) => files.create(&caller, Ino::ROOT, bytes, node, flags),
            Err(error) => Err(error),
            Ok(entry) => files
                .open(entry.ino, flags, Privileges::Keep)
                .map(|opened| (entry, opened)),
        };
        let (entry, opened) = found.with_context(|| format!("{name} can't be opened"))?;
        Ok(OpenFile {
            ino: entry.ino,
            handle: opened.handle,
        })
    }

    /// Creates a file of zeros by writes of `chunk_bytes`.
    pub fn fill_file(&self, name: &str, bytes: u64, chunk_bytes: u64) -> Result<()> {
        let file = self.open_file(name)?;
        let data = vec![0; usize::try_from(chunk_bytes.min(bytes))?];
        let mut offset = 0;
        while offset < bytes {
            let here = usize::try_from(chunk_bytes.min(bytes - offset))?;
            file.write(&self.file_system, offset, &data[..here], OFlags::empty())?;
            offset += u64::try_from(here)?;
        }
        self.file_system.release(file.ino, file.handle);
        Ok(())
    }

    /// The periodic background work of a mount.
    pub fn work(&self) -> Result<()> {
        self.file_system.work()?;
        let clocks = || self.chips.iter().map(media::Nand::clock);
        let start = self.clock.now();
        clocks().for_each(|clock| {
            clock.advance_to(start);
        });
        for device in self.array.devices() {
            for _ in 0..DEVICE_STEPS {
                if device.work()? == Work::Idle {
                    break;
                }
            }
        }
        // The devices work in parallel; the next call waits for the last of them.
        for clock in clocks() {
            self.clock.advance_to(clock.now());
        }
        Ok(())
    }

    /// Ends the mount and closes the array, which finishes the pending erases.
    pub fn unmount(self) -> Result<()> {
        self.file_system.close()?;
        Ok(self.array.close()?)
    }
}

impl OpenFile {
    /// Writes all of `data`; `O_SYNC` in `flags` makes it durable.
    pub fn write(self, file_system: &MountedWriter, offset: u64, data: &[u8], flags: OFlags) -> Result<()> {
        let mode = WriteMode {
            flags: OpenFlags((OFlags::RDWR | flags).bits().cast_signed()),
            privileges: Privileges::Keep,
            from_page_cache: false,
        };
        let written = file_system.write(self.ino, self.handle, offset, data, mode)?;
        ensure(written == data.len(), || {
            let all = data.len();
            format!("the medium took {written} of {all} bytes; make it larger (--size)")
        })
    }

    /// Reads all of `out`.
    pub fn read(self, file_system: &MountedWriter, offset: u64, out: &mut [u8]) -> Result<()> {
        let read = file_system.read(self.ino, self.handle, offset, out)?;
        ensure(read == out.len(), || {
            format!("byte {offset}: {read} of {} bytes came", out.len())
        })
    }
}
