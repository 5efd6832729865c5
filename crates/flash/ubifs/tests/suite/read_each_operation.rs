//! Power cuts between any two operations of a script, and within some: reading the chip, without changing it, returns
//! everything synced. The writer is ours, so no kernel is needed; `linux.rs` does the same with the kernel's.
//!
//! A failure prints segment and operation. With `TIDEGATE_FULL` every write of an operation is cut, otherwise one in
//! 31.

use std::sync::{Arc, Mutex};

use crate::support::rig::{Chip, Lines, Model, SMALL, Weight, attach, dump, lines_of, open};
use nand::{CutPoint, CutTime, PowerCut, SimNand};
use testkit::prng::Prng;
use ubi::{Access, AttachOptions, Volume, VolumeId, scan};
use ubifs::{ImageVolume, OpenOptions, Ubifs, Writer};

const SEED: u64 = 0x4EAD;
const SEGMENTS: u64 = 3;
const OPERATIONS: u64 = 40;

/// The volume of a chip, opened read-only.
fn volume(chip: &SimNand) -> Arc<dyn Volume> {
    let options = AttachOptions::linux(Access::ReadOnly);
    let ubi = scan(chip.clone(), options).and_then(ubi::Scanned::attach);
    let volume = ubi.expect("it is UBI").open(VolumeId(0));
    Arc::new(volume.expect("the volume is there"))
}

/// Lists the files.
fn read(volume: Arc<dyn Volume>) -> Lines {
    let ubifs = Ubifs::open(volume, OpenOptions::standard()).expect("it is a file system");
    assert!(ubifs.findings().is_empty(), "{:?}", ubifs.findings());
    lines_of(&ubifs)
}

fn start(chip: &SimNand) -> (Chip, Writer) {
    let chip: Chip = Arc::new(Mutex::new(chip.clone()));
    let volume: Arc<dyn Volume> = attach(&chip).expect("it is UBI");
    let writer = open(volume).expect("it is a file system");
    (chip, writer)
}

/// One operation, an fsync, and sometimes a commit; `Err` if power went.
fn operate(writer: &mut Writer, model: &mut Model, prng: &mut Prng, number: u64) -> Result<(), ()> {
    let weight = if number % 4 == 3 {
        Weight::Content
    } else {
        Weight::Names
    };
    model.step(writer, prng, weight).map_err(drop)?;
    writer.fsync().map_err(drop)?;
    match number % 9 {
        8 => writer.commit().map_err(drop),
        _ => Ok(()),
    }
}

#[test]
fn what_was_synced_is_read_whenever_power_goes() {
    let every = if testkit::is_full() { 1 } else { 31 };
    let mut formatted = SMALL.formatted();
    let (mut model, mut cuts) = (Model::fresh(), 0);
    for segment in 0..SEGMENTS {
        let (chip, mut writer) = start(&formatted);
        let mut prng = Prng::named(SEED, &format!("segment {segment}"));
        let mut marks = Vec::new();
        for number in 0..OPERATIONS {
            let supply = chip.lock().expect("no panic").supply().clone();
            marks.push((supply.writes(), model.clone()));
            operate(&mut writer, &mut model, &mut prng, number).expect("no cut");
            let found = read(volume(&chip.lock().expect("no panic")));
            assert_eq!(
                found,
                model.lines(),
                "after segment {segment}, operation {number}"
            );
        }
        let end = chip.lock().expect("no panic").supply().writes();
        marks.push((end, model.clone()));
        for write in (marks[0].0..end).filter(|write| write % every == 0) {
            cut(&formatted, segment, write, &marks);
            cuts += 1;
        }
        drop(writer);
        // The same from an image file.
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("image");
        dump(&*volume(&chip.lock().expect("no panic")), &image);
        let image = ImageVolume::open(&image)
            .expect("it can be read")
            .expect("it is UBIFS");
        assert_eq!(
            read(Arc::new(image)),
            model.lines(),
            "the image of segment {segment}"
        );
        formatted = chip.lock().expect("no panic").clone();
    }
    assert!(cuts > 10, "only {cuts} cuts");
}

/// Cuts one write of a segment, and reads the result.
fn cut(formatted: &SimNand, segment: u64, write: u64, marks: &[(u64, Model)]) {
    let (chip, mut writer) = start(formatted);
    let supply = chip.lock().expect("no panic").supply().clone();
    supply.plan(PowerCut {
        time: CutTime::Write(
            write,
            CutPoint::Partway(u32::try_from(write % 400).expect("small")),
        ),
        torn_is_uncorrectable: write.is_multiple_of(2),
    });
    let mut model = marks[0].1.clone();
    let mut prng = Prng::named(SEED, &format!("segment {segment}"));
    let done =
        (0..OPERATIONS).take_while(|number| operate(&mut writer, &mut model, &mut prng, *number).is_ok());
    let done = done.count();
    supply.power_on();
    let found = read(volume(&chip.lock().expect("no panic")));
    // The interrupted operation has taken effect or not; a write of content possibly in part.
    let (before, after) = (&marks[done].1, &marks[(done + 1).min(marks.len() - 1)].1);
    let place = format!("segment {segment}, write {write}, operation {done}");
    let (before, changed): (Lines, Lines) = (before.lines(), after.lines());
    let differs = |path: &&String| {
        let line = found.get(*path);
        line != before.get(*path) && line != changed.get(*path)
    };
    let torn: Vec<_> = found.keys().chain(before.keys()).filter(differs).collect();
    let is_file = |path: &String| found.get(path).is_some_and(|line| line.starts_with("file"));
    let is_content = |path: &&&String| after.written.is_some() && is_file(path);
    let unexplained: Vec<_> = torn.iter().filter(|path| !is_content(path)).collect();
    assert!(
        unexplained.is_empty(),
        "{place}: {unexplained:?} of {found:#?}\nbefore: {before:#?}\nafter: {changed:#?}"
    );
}
