//! Rounds of alternation with Linux: in its turn, tidegate recovers an image, overwrites files of the nearly full
//! file system, and unmounts it or is cut. The image is always the single chip that Linux gets; for arrays, each LEB
//! is copied to the members and back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use media::{Leb, Nand, NandGeometry, Peb};
use nand::{ChipModel, FaultModel, PowerCut, SimNand};
use testkit::prng::Prng;
use ubi::{Volume, VolumeId};
use ubifs::format::{EntryKind, InodeNumber, ROOT_INODE};
use ubifs::mkfs::Time;
use ubifs::{NewFile, OpenOptions, Ubifs, WriteError, Writer};

use super::array_of::array_of;
use super::lab_lines::{Lines, assert_same, tree_of};
use super::medium::{Medium, assert_sound, raw};
use super::one_chip::on_chip;
use super::rig::{Chip, SMALL, all_of, device};

/// The end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Unmounted,
    /// The process ends, power stays.
    Killed,
    /// Power goes after this share of the writes, in 1/1000.
    Cut(u64),
}

/// An image passed back and forth.
#[derive(Clone)]
pub struct Image {
    /// Its name in messages.
    pub name: String,
    pub members: u32,
    /// Content of the chip.
    pub raw: Vec<u8>,
    /// The files that the next turn must find.
    pub expected: Lines,
    /// Whether Linux could create another file in it.
    pub has_room: bool,
}

/// Geometry of the chip for Linux, for an image of `members` members.
pub fn geometry(members: u32) -> NandGeometry {
    NandGeometry::new(SMALL.page, SMALL.pages * members, SMALL.blocks).expect("a geometry")
}

/// A chip with the given content; erased pages stay erased.
pub fn chip_with(content: &[u8], geometry: NandGeometry) -> Chip {
    let mut chip = SimNand::new("one", ChipModel::new(geometry), FaultModel::none());
    let page_bytes = usize::try_from(geometry.page_bytes()).expect("small");
    let block_bytes = usize::try_from(geometry.block_bytes()).expect("small");
    for (peb, block) in (0..).zip(content.chunks(block_bytes)) {
        for (offset, bytes) in (0..).step_by(page_bytes).zip(block.chunks(page_bytes)) {
            if bytes.iter().any(|byte| *byte != 0xFF) {
                chip.program(Peb(peb), offset, bytes).expect("it is erased");
            }
        }
    }
    Arc::new(Mutex::new(chip))
}

pub fn volume_of(chip: &Chip) -> Arc<dyn Volume> {
    let device = device(chip).expect("it attaches");
    Arc::new(device.open(VolumeId(0)).expect("the volume is there"))
}

impl Image {
    /// Reads its files with tidegate; asserts that its checker finds no fault, nor does `fsck`.
    pub fn read(&self, fsck: Option<&testkit::lab::Fsck>) -> Lines {
        let chip = chip_with(&self.raw, geometry(self.members));
        let volume = volume_of(&chip);
        let ubifs = Ubifs::open(Arc::clone(&volume), OpenOptions::standard());
        let ubifs = ubifs.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        assert!(
            ubifs.findings().is_empty(),
            "{}: {:?}",
            self.name,
            ubifs.findings()
        );
        assert_sound(&*volume, &self.name);
        if let Some(fsck) = fsck {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("volume");
            super::rig::dump(&*volume, &path);
            let shape = volume.geometry();
            let judged = fsck.check(&path, shape.leb_bytes, shape.min_io_bytes);
            let judged = judged.expect("it runs");
            assert!(judged.clean, "{}: {}", self.name, judged.text);
        }
        tree_of(&ubifs)
    }

    /// Whether it was cut while the journal has a GC bud.
    pub fn is_cut_while_collecting(&self) -> bool {
        let chip = chip_with(&self.raw, geometry(self.members));
        let ubifs = Ubifs::open(volume_of(&chip), OpenOptions::standard()).expect("it is a file system");
        let report = ubifs.replay_report();
        !report.was_clean && report.buds.iter().any(|bud| bud.head == 0 && bud.nodes > 0)
    }

    /// Copies it to one chip, or to the members of an array.
    fn medium(&self) -> Medium {
        let chip = chip_with(&self.raw, geometry(self.members));
        if self.members == 1 {
            return Medium::of(vec![chip]);
        }
        let members = usize::try_from(self.members).expect("few");
        let medium = Medium::of(array_of(
            array::Redundancy::None,
            members,
            ChipModel::new(geometry(1)),
        ));
        let volume = medium.volume().expect("it attaches");
        let shown = volume_of(&chip);
        let shape = volume.geometry();
        assert_eq!(shape.leb_bytes, shown.geometry().leb_bytes, "{}", self.name);
        let unit = usize::try_from(shape.min_io_bytes).expect("small");
        for leb in (0..shape.lebs).map(Leb) {
            if !shown.is_mapped(leb).expect("it can be asked") {
                continue;
            }
            let mut content = vec![0; usize::try_from(shape.leb_bytes).expect("small")];
            shown.read(leb, 0, &mut content).expect("it can be read");
            let used = content.iter().rposition(|byte| *byte != 0xFF);
            let used = used.map_or(0, |last| (last + 1).next_multiple_of(unit));
            volume.write(leb, 0, &content[..used]).expect("there is room");
        }
        medium
    }

    /// Formats it with tidegate.
    pub fn make(&mut self) {
        let medium = Medium::formatted(SMALL, usize::try_from(self.members).expect("few"));
        self.take_over(&medium);
        self.expected = self.read(None);
    }

    fn take_over(&mut self, medium: &Medium) {
        if self.members == 1 {
            self.raw = medium.raw();
            return;
        }
        let volume = medium.volume().expect("it attaches");
        let model = ChipModel::new(geometry(self.members));
        let chip = Arc::new(Mutex::new(SimNand::new("one", model, FaultModel::none())));
        let shape = volume.geometry();
        drop(on_chip(&chip, shape.lebs, shape.leb_bytes, &all_of(&*volume)));
        self.raw = raw(&chip);
    }

    /// A turn of tidegate: asserts that the files are as expected, and expects the files it leaves in the next turn.
    pub fn our_turn(&mut self, seed: u64, steps: u32, end: End) {
        let medium = self.medium();
        let share = match end {
            End::Cut(share) => share,
            End::Unmounted | End::Killed => {
                let done = turn(&medium, self, seed, steps, end);
                let done = done.unwrap_or_else(|error| panic!("{}: {error}", self.name));
                self.take_over(&medium);
                self.expected = done;
                self.has_room = false;
                return;
            }
        };
        // Run without a cut to count the writes.
        let uncut = medium.copy();
        let before = uncut.supply().writes();
        let done = turn(&uncut, self, seed, steps, End::Unmounted);
        done.unwrap_or_else(|error| panic!("{}, without a cut: {error}", self.name));
        let cut = (uncut.supply().writes() - before) * share / 1000;
        // The guest's chips have no ECC: torn pages read without an error.
        let cut = if cut % 5 == 1 { cut + 1 } else { cut };
        let medium = medium.copy();
        let supply = medium.supply();
        let way = usize::try_from(cut).expect("few");
        supply.plan(PowerCut::of_write(supply.writes() + cut, way));
        let outcome = turn(&medium, self, seed, steps, End::Unmounted);
        assert!(
            outcome.is_err() || !supply.is_off(),
            "{}: power did not go",
            self.name
        );
        supply.power_on();
        self.take_over(&medium.copy());
        self.expected = self.read(None);
        self.has_room = false;
    }
}

/// Mounts, compares, writes, and ends the turn. Returns the resulting files.
fn turn(medium: &Medium, image: &Image, seed: u64, steps: u32, end: End) -> Result<Lines, WriteError> {
    let name = &image.name;
    let volume = medium.volume();
    let volume = volume.map_err(|_| WriteError::Invalid("power went while it was attached"))?;
    let mut writer = Writer::open(volume, OpenOptions::standard())?;
    assert_same(
        &tree_of(writer.read()),
        &image.expected,
        &format!("{name}: recovered by us"),
    );
    if image.has_room {
        let made = writer.create(ROOT_INODE, b"touched", &NEW_FILE, NOW);
        made.map_err(|error| touched(name, error, &writer))?;
        writer.unlink(ROOT_INODE, b"touched", NOW)?;
    }
    let mut files = Files::of(&writer);
    files.churn(&mut writer, &mut Prng::new(seed), steps)?;
    writer.fsync()?;
    files.assert_there(&writer, name);
    let lines = tree_of(writer.read());
    match end {
        End::Killed => drop(writer),
        _ => writer.unmount()?,
    }
    Ok(lines)
}

/// Fails if tidegate has no space for a file although Linux had.
fn touched(name: &str, error: WriteError, writer: &Writer) -> WriteError {
    if let WriteError::NoSpace { .. } = error {
        panic!("{name}: {error}, where Linux has room: {:?}", writer.statistics());
    }
    error
}

/// A name of a file.
type Name = (InodeNumber, Vec<u8>);

/// Regular files: contents and names.
struct Files {
    contents: BTreeMap<InodeNumber, Vec<u8>>,
    names: Vec<(Name, InodeNumber)>,
    made: u32,
}

const NEW_FILE: NewFile = NewFile {
    mode: 0o100_640,
    user: 3,
    group: 4,
    data: Vec::new(),
};

const NOW: Time = Time {
    seconds: 1_700_000_000,
    nanoseconds: 0,
};

impl Files {
    fn of(writer: &Writer) -> Self {
        let ubifs = writer.read();
        let (mut contents, mut names) = (BTreeMap::new(), Vec::new());
        let (mut pending, mut seen) = (vec![ROOT_INODE], BTreeSet::new());
        while let Some(directory) = pending.pop() {
            for entry in ubifs.read_directory(directory).expect("it can be read") {
                match entry.kind {
                    Some(EntryKind::Directory) => pending.push(entry.inode),
                    Some(EntryKind::File) => {
                        names.push(((directory, entry.name), entry.inode));
                        if seen.insert(entry.inode) {
                            contents.insert(entry.inode, content(ubifs, entry.inode));
                        }
                    }
                    _ => {}
                }
            }
        }
        names.sort();
        Self {
            contents,
            names,
            made: 0,
        }
    }

    fn assert_there(&self, writer: &Writer, what: &str) {
        for (inode, expected) in &self.contents {
            let found = content(writer.read(), *inode);
            assert!(
                found == *expected,
                "{what}: {inode} does not hold what was written"
            );
        }
    }

    fn churn(&mut self, writer: &mut Writer, prng: &mut Prng, steps: u32) -> Result<(), WriteError> {
        for _ in 0..steps {
            match self.step(writer, prng) {
                Err(WriteError::NoSpace { .. }) => {
                    for _ in 0..3 {
                        self.remove(writer, prng)?;
                    }
                }
                other => other?,
            }
        }
        Ok(())
    }

    fn step(&mut self, writer: &mut Writer, prng: &mut Prng) -> Result<(), WriteError> {
        let statistics = writer.statistics();
        let is_full = statistics.free_bytes < 60_000;
        match prng.below(20) {
            0..6 if !is_full => self.make(writer, prng),
            _ if self.names.is_empty() => self.make(writer, prng),
            0..16 => self.overwrite(writer, prng),
            16 => {
                let inode = prng.pick(&self.names).1;
                let content = self.contents.get_mut(&inode).expect("it has a name");
                let bytes = prng.below_usize(content.len() + 3000);
                writer.truncate(inode, u64::try_from(bytes).expect("small"), NOW)?;
                content.resize(bytes, 0);
                Ok(())
            }
            17 => {
                let number = prng.below_usize(self.names.len());
                let ((directory, name), inode) = self.names[number].clone();
                let new = format!("ours-renamed-{}", prng.below(1 << 30)).into_bytes();
                writer.rename((directory, &name), (ROOT_INODE, &new), NOW)?;
                self.names[number] = ((ROOT_INODE, new), inode);
                Ok(())
            }
            18 => {
                let value = prng.bytes(150);
                let name = format!("trusted.{}", prng.below(3));
                writer.set_xattr(prng.pick(&self.names).1, name.as_bytes(), &value, NOW)
            }
            _ => self.remove(writer, prng),
        }
    }

    fn make(&mut self, writer: &mut Writer, prng: &mut Prng) -> Result<(), WriteError> {
        self.made += 1;
        let name = format!("ours-{}-{}", self.made, prng.below(1 << 30)).into_bytes();
        let inode = writer.create(ROOT_INODE, &name, &NEW_FILE, NOW)?;
        self.names.push(((ROOT_INODE, name), inode));
        self.contents.insert(inode, Vec::new());
        let bytes = prng.below_usize(14_000);
        self.write(writer, inode, 0, &prng.bytes(bytes))
    }

    fn overwrite(&mut self, writer: &mut Writer, prng: &mut Prng) -> Result<(), WriteError> {
        let inode = prng.pick(&self.names).1;
        let size = self.contents[&inode].len();
        let at = (prng.below_usize(size / 4096 + 1) * 4096 + *prng.pick(&[0, 0, 0, 700])).min(size);
        let bytes = *prng.pick(&[300, 4096, 4096, 8192]);
        self.write(writer, inode, at, &prng.bytes(bytes))?;
        match prng.below(4) {
            0 => writer.fsync(),
            _ => Ok(()),
        }
    }

    /// Writes as much as fits.
    fn write(
        &mut self,
        writer: &mut Writer,
        inode: InodeNumber,
        at: usize,
        data: &[u8],
    ) -> Result<(), WriteError> {
        let written = writer.write(inode, u64::try_from(at).expect("small"), data, NOW)?;
        let content = self.contents.get_mut(&inode).expect("it has a name");
        content.resize(content.len().max(at + written), 0);
        content[at..at + written].copy_from_slice(&data[..written]);
        Ok(())
    }

    fn remove(&mut self, writer: &mut Writer, prng: &mut Prng) -> Result<(), WriteError> {
        if self.names.is_empty() {
            return Ok(());
        }
        let number = prng.below_usize(self.names.len());
        let ((directory, name), inode) = self.names[number].clone();
        writer.unlink(directory, &name, NOW)?;
        self.names.swap_remove(number);
        if !self.names.iter().any(|(_, other)| *other == inode) {
            self.contents.remove(&inode);
        }
        Ok(())
    }
}

fn content(ubifs: &Ubifs, number: InodeNumber) -> Vec<u8> {
    let inode = ubifs.inode(number).expect("it can be read");
    let mut content = vec![0; usize::try_from(inode.size_bytes).expect("small")];
    ubifs.read(&inode, 0, &mut content).expect("it can be read");
    content
}
