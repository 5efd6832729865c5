//! A chip, or several as an array, with an empty file system: simulated in memory, on one power supply, without a
//! clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use array::{Execution, Redundancy};
use media::{Nand, NandGeometry, Peb};
use nand::{ChipModel, PowerSupply};
use ubi::{Access, AttachOptions, Ubi, Volume, VolumeId};
use ubifs::mkfs::Time;
use ubifs::{Clock, MountedWriter, OpenOptions, Writer};

use super::array_of::array_of;
use super::rig::{Chip, Shape, device_on, dump};

/// Lets the devices erase and level wear, a few steps per call.
pub type DeviceWork = Box<dyn Fn() -> Result<(), String>>;

/// Chips that outlive their users.
pub struct Medium {
    chips: Vec<Chip>,
}

impl Medium {
    /// Wraps existing chips.
    pub const fn of(chips: Vec<Chip>) -> Self {
        Self { chips }
    }

    /// The chips, in the order of the members.
    pub fn chips(&self) -> &[Chip] {
        &self.chips
    }

    /// `members` chips of a shape with an empty file system across them.
    pub fn formatted(shape: Shape, members: usize) -> Self {
        Self::formatted_with(Redundancy::None, shape, members)
    }

    /// Like [`Self::formatted`], with or without parity.
    pub fn formatted_with(redundancy: Redundancy, shape: Shape, members: usize) -> Self {
        if members == 1 {
            return Self::of(vec![Arc::new(Mutex::new(shape.formatted()))]);
        }
        let geometry = NandGeometry::new(shape.page, shape.pages, shape.blocks).expect("a geometry");
        let medium = Self::of(array_of(redundancy, members, ChipModel::new(geometry)));
        shape.make_file_system(&*medium.volume().expect("it attaches"));
        medium
    }

    /// A copy of all chips, on a new power supply.
    pub fn copy(&self) -> Self {
        let supply = PowerSupply::default();
        self.copied(|| supply.clone())
    }

    /// A copy of all chips, each with its own power supply.
    pub fn copy_apart(&self) -> Self {
        self.copied(PowerSupply::default)
    }

    /// A copy without one member, of an array with parity.
    pub fn without(&self, member: usize) -> Self {
        let mut left = self.copy();
        left.chips.remove(member);
        left
    }

    fn copied(&self, supply: impl Fn() -> PowerSupply) -> Self {
        let copied = |chip: &Chip| {
            let chip = chip.lock().expect("no panic").clone();
            Arc::new(Mutex::new(chip.with_supply(&supply())))
        };
        Self {
            chips: self.chips.iter().map(copied).collect(),
        }
    }

    /// The power supply of each chip.
    pub fn supplies(&self) -> Vec<PowerSupply> {
        let of_chip = |chip: &Chip| chip.lock().expect("no panic").supply().clone();
        self.chips.iter().map(of_chip).collect()
    }

    /// The common power supply.
    pub fn supply(&self) -> PowerSupply {
        self.chips[0].lock().expect("no panic").supply().clone()
    }

    /// Attaches; returns the volume and the device work.
    pub fn attached(&self) -> Result<(Arc<dyn Volume>, DeviceWork), String> {
        self.attached_through(Arc::clone, Access::ReadWrite)
    }

    /// Like [`Self::attached`], with each chip wrapped.
    pub fn attached_through<N: Nand + 'static>(
        &self,
        wrap: impl Fn(&Chip) -> N,
        access: Access,
    ) -> Result<(Arc<dyn Volume>, DeviceWork), String> {
        if let [only] = self.chips.as_slice() {
            let device = device_on(wrap(only), access).map_err(|error| error.to_string())?;
            let volume = device.open(VolumeId(0)).map_err(|error| error.to_string())?;
            return Ok((
                Arc::new(volume),
                Box::new(move || work(std::slice::from_ref(&device))),
            ));
        }
        let options = AttachOptions::linux(access);
        let chips = self.chips.iter().map(wrap).collect();
        let array = array::attach(chips, options, Execution::Inline);
        let array = array.map_err(|error| error.to_string())?;
        Ok((array.volume().clone(), Box::new(move || work(array.devices()))))
    }

    /// Number of blocks marked bad.
    pub fn bad_blocks(&self) -> usize {
        let bad = |chip: &Chip| {
            let chip = chip.lock().expect("no panic");
            chip.blocks().iter().filter(|block| block.is_bad).count()
        };
        self.chips.iter().map(bad).sum()
    }

    /// Attaches.
    pub fn volume(&self) -> Result<Arc<dyn Volume>, String> {
        self.attached().map(|(volume, _)| volume)
    }

    /// Attaches and mounts read-write.
    pub fn mount(&self) -> Result<MountedWriter, String> {
        self.mount_with_work().map(|(file_system, _)| file_system)
    }

    /// Like [`Self::mount`]; also returns the device work.
    pub fn mount_with_work(&self) -> Result<(MountedWriter, DeviceWork), String> {
        let (volume, work) = self.attached()?;
        let writer = Writer::open(volume, OpenOptions::standard());
        let writer = writer.map_err(|error| error.to_string())?;
        Ok((mounted(writer), work))
    }

    /// Content of the only chip, block after block.
    pub fn raw(&self) -> Vec<u8> {
        raw(&self.chips[0])
    }

    /// Runs our checker, which includes the sums that a mount relies on, and `fsck.ubifs` if given.
    pub fn judge(&self, fsck: Option<&testkit::lab::Fsck>, what: &str) {
        let volume = self.volume().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_sound(&*volume, what);
        if let Some(fsck) = fsck {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("volume");
            dump(&*volume, &path);
            let geometry = volume.geometry();
            let judged = fsck.check(&path, geometry.leb_bytes, geometry.min_io_bytes);
            let judged = judged.expect("it runs");
            assert!(judged.clean, "{what}: {}", judged.text);
        }
    }
}

/// Asserts that our checker finds no fault.
pub fn assert_sound(volume: &dyn Volume, what: &str) {
    let report = ubifs::check::check(volume);
    let told: Vec<String> = report
        .findings
        .iter()
        .map(|finding| format!("{:?} {}", finding.at, finding.fault))
        .collect();
    assert!(told.is_empty(), "{what}: {told:#?}");
}

/// Runs a few steps of device work.
fn work(devices: &[Ubi]) -> Result<(), String> {
    for device in devices {
        for _ in 0..4 {
            device.work().map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// Content of a chip, block after block.
pub fn raw(chip: &Chip) -> Vec<u8> {
    let geometry = chip.geometry();
    let block_bytes = usize::try_from(geometry.block_bytes()).expect("small");
    let mut all = Vec::new();
    for block in 0..geometry.blocks() {
        let mut raw = vec![0; block_bytes];
        let mut chip = Arc::clone(chip);
        // Torn pages are returned as they are.
        let report = chip.read(Peb(block), 0, &mut raw);
        drop(report.expect("it has power"));
        all.append(&mut raw);
    }
    all
}

/// A clock that advances by a second per reading.
pub fn clock() -> Clock {
    let seconds = AtomicI64::new(1_500_000_000);
    Box::new(move || Time {
        seconds: seconds.fetch_add(1, Ordering::Relaxed),
        nanoseconds: 7,
    })
}

/// Mounts a file system; any loss is a failure.
pub fn mounted(writer: Writer) -> MountedWriter {
    let no_loss = Box::new(|finding: &ubifs::Finding| panic!("{finding}"));
    MountedWriter::new(writer, no_loss, clock())
}
