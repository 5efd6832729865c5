//! Power cuts in each write of an operation, and again in each write of the recovery.

use std::sync::{Arc, Mutex};

use media::Leb;
use nand::{PowerCut, SimNand};
use testkit::lab::{Fsck, FsckReport};
use ubi::{Ubi, UbiVolume, Volume, VolumeError, VolumeGeometry, VolumeId};
use ubifs::check::check;
use ubifs::format::{InodeNumber, ROOT_INODE};
use ubifs::mkfs::Time;
use ubifs::{NewFile, OpenOptions, Ubifs, Writer};

use super::rig::{Chip, Lines, attach, device, dump, lines_of, open};

pub const NEW_FILE: NewFile = NewFile {
    mode: 0o100_644,
    user: 0,
    group: 0,
    data: Vec::new(),
};

pub fn copy(chip: &Chip) -> Chip {
    let now: SimNand = chip.lock().expect("no panic").clone();
    Arc::new(Mutex::new(now))
}

pub fn writes(chip: &Chip) -> u64 {
    chip.lock().expect("no panic").supply().writes()
}

pub fn volume(chip: &Chip) -> Arc<dyn Volume> {
    attach(chip).expect("it attaches")
}

/// A volume whose LEBs are erased as soon as they are unmapped; without that, a power cut brings them back.
pub struct Eager {
    device: Ubi,
    volume: UbiVolume,
}

impl Eager {
    pub fn of(chip: &Chip) -> Result<Arc<Self>, ubi::AttachError> {
        let device = device(chip)?;
        let volume = device.open(VolumeId(0)).expect("the volume is there");
        Ok(Arc::new(Self { device, volume }))
    }
}

impl Volume for Eager {
    fn name(&self) -> Arc<str> {
        self.volume.name()
    }

    fn geometry(&self) -> VolumeGeometry {
        self.volume.geometry()
    }

    fn read(&self, leb: Leb, offset: u32, out: &mut [u8]) -> Result<(), VolumeError> {
        self.volume.read(leb, offset, out)
    }

    fn write(&self, leb: Leb, offset: u32, data: &[u8]) -> Result<(), VolumeError> {
        self.volume.write(leb, offset, data)
    }

    fn leb_change(&self, leb: Leb, data: &[u8]) -> Result<(), VolumeError> {
        self.volume.leb_change(leb, data)
    }

    fn map(&self, leb: Leb) -> Result<(), VolumeError> {
        self.volume.map(leb)
    }

    fn unmap(&self, leb: Leb) -> Result<(), VolumeError> {
        self.volume.unmap(leb)?;
        // A cut during the erase is reported by the next write.
        let _ = self.device.settle();
        Ok(())
    }

    fn is_mapped(&self, leb: Leb) -> Result<bool, VolumeError> {
        self.volume.is_mapped(leb)
    }

    fn flush(&self) -> Result<(), VolumeError> {
        self.volume.flush()
    }

    fn sync(&self) -> Result<(), VolumeError> {
        self.volume.sync()
    }

    fn freeze(&self, reason: &str) {
        self.volume.freeze(reason);
    }

    fn frozen(&self) -> Option<Arc<str>> {
        self.volume.frozen()
    }
}

/// Creates a file with content in the root directory.
pub fn create(writer: &mut Writer, name: &str, content: &[u8]) -> InodeNumber {
    let made = writer.create(ROOT_INODE, name.as_bytes(), &NEW_FILE, Time::default());
    let inode = made.expect("there is room");
    let written = writer.write(inode, 0, content, Time::default());
    assert_eq!(written.expect("there is room"), content.len());
    inode
}

/// Asserts that replay and checker find no fault, before any recovery.
pub fn assert_whole(chip: &Chip, what: &str) {
    let volume = volume(chip);
    let ubifs = Ubifs::open(Arc::clone(&volume), OpenOptions::standard()).expect("it is a file system");
    assert!(ubifs.findings().is_empty(), "{what}: {:?}", ubifs.findings());
    let findings = check(&*volume).findings;
    assert!(findings.is_empty(), "{what}: {findings:?}");
}

/// Runs `fsck.ubifs`, which mounts by the rules of Linux.
pub fn fsck_of(fsck: &Fsck, chip: &Chip) -> FsckReport {
    let volume = volume(chip);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("volume");
    dump(&*volume, &path);
    let geometry = volume.geometry();
    let judged = fsck.check(&path, geometry.leb_bytes, geometry.min_io_bytes);
    judged.expect("it runs")
}

/// Asserts that `fsck.ubifs` finds no fault.
pub fn assert_whole_for_linux(fsck: &Fsck, chip: &Chip, what: &str) {
    let judged = fsck_of(fsck, chip);
    assert!(judged.clean, "{what}: {}", judged.text);
}

/// Mounts read-write, with eager erases. The result is ignored: power may go.
pub fn recover(chip: &Chip) {
    drop(Eager::of(chip).map(|volume| open(volume)));
}

/// Recovers a copy and unmounts it; returns the copy and its content.
pub fn recovered(chip: &Chip, what: &str) -> (Chip, Lines) {
    let chip = copy(chip);
    let writer = open(volume(&chip)).unwrap_or_else(|error| panic!("{what}: {error}"));
    let lines = lines_of(writer.read());
    writer.unmount().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_whole(&chip, &format!("{what}, unmounted"));
    (chip, lines)
}

/// Runs `run` on a copy of the chip once per write, each time with a power cut in that write, and passes the result
/// of each cut to `judge`. Returns the number of cuts.
pub fn each_cut(chip: &Chip, run: &dyn Fn(&Chip), judge: &mut dyn FnMut(&Chip, u64)) -> u64 {
    let uncut = copy(chip);
    let before = writes(&uncut);
    run(&uncut);
    let count = writes(&uncut) - before;
    for cut in 0..count {
        let chip = copy(chip);
        let way = usize::try_from(cut % 5).expect("few");
        let supply = chip.lock().expect("no panic").supply().clone();
        supply.plan(PowerCut::of_write(supply.writes() + cut, way));
        run(&chip);
        assert!(supply.is_off(), "power did not go in write {cut} of {count}");
        supply.power_on();
        judge(&chip, cut);
    }
    count
}
