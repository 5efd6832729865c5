//! Power cuts in every program and every erase of a script of file operations, each of which is synced: afterwards
//! the file system is in the state before or after the interrupted operation, and keeps working.
//!
//! A failure prints its cut; `TIDEGATE_REPLAY=SEGMENT:CUT` runs that one. Without `TIDEGATE_FULL` every seventh write
//! is cut, and one in eight of the results is checked by `fsck.ubifs`; with it all are, and power goes a second time
//! during recovery.

use std::sync::{Arc, Mutex};

use crate::support::rig::{Chip, Lines, Model, SMALL, Shape, Weight, attach, dump, lines_of, open};
use nand::{PowerCut, SimNand};
use testkit::lab::Fsck;
use testkit::prng::Prng;
use ubi::Volume;
use ubifs::format::ROOT_INODE;
use ubifs::mkfs::Time;
use ubifs::{NewFile, OpenOptions, Ubifs, WriteError, Writer};

const SEED: u64 = 0xC075;
const SEGMENTS: u64 = 10;
const OPERATIONS: u64 = 14;
const EMPTY_FILE: NewFile = NewFile {
    mode: 0o100_644,
    user: 0,
    group: 0,
    data: Vec::new(),
};

/// Known state at a power cut.
struct Cut {
    /// The synced state.
    model: Model,
    /// Number of the interrupted operation in the segment.
    during: Option<u64>,
    /// The file whose content it was changing, which is not atomic.
    loose: Option<String>,
}

impl Cut {
    fn between(model: &Model) -> Box<Self> {
        Box::new(Self {
            model: model.clone(),
            during: None,
            loose: None,
        })
    }
}

/// Runs the script of a segment up to a number of operations; returns the model after it.
fn run_segment(chip: &Chip, model: &Model, segment: u64, operations: u64) -> Result<Model, Box<Cut>> {
    let volume: Arc<dyn Volume> = attach(chip).map_err(|_| Cut::between(model))?;
    let mut writer = open(volume).map_err(|_| Cut::between(model))?;
    let mut prng = Prng::named(SEED, &format!("segment {segment}"));
    let mut model = model.clone();
    for number in 0..operations {
        let before = model.clone();
        let weight = match number % 4 {
            3 => Weight::Content,
            _ => Weight::Names,
        };
        let outcome = model.step(&mut writer, &mut prng, weight);
        if outcome.and_then(|_| writer.fsync()).is_err() {
            return Err(Box::new(Cut {
                model: before,
                during: Some(number),
                loose: model.written,
            }));
        }
        if number % 5 == 4 {
            writer.commit().map_err(|_| Cut::between(&model))?;
        }
    }
    if segment.is_multiple_of(2) && operations == OPERATIONS {
        writer.unmount().map_err(|_| Cut::between(&model))?;
    }
    Ok(model)
}

fn writes(chip: &Chip) -> u64 {
    chip.lock().expect("no panic").supply().writes()
}

fn plan(chip: &Chip, write: u64, way: usize) {
    let cut = PowerCut::of_write(write, way);
    chip.lock().expect("no panic").supply().plan(cut);
}

/// Whether the files are as expected, except for the content of files during a write.
fn fits(found: &Lines, expected: &Lines, loose: Option<&String>) -> bool {
    let is_file = |lines: &Lines, path: &String| lines.get(path).is_some_and(|line| line.starts_with("file"));
    let paths = found.keys().chain(expected.keys());
    let mut differing = paths.filter(|path| found.get(*path) != expected.get(*path));
    differing.all(|path| loose.is_some() && is_file(found, path) && is_file(expected, path))
}

#[test]
fn a_power_cut_in_any_write_leaves_what_was_synced_and_a_file_system_that_works() {
    let full = testkit::is_full();
    let only = std::env::var("TIDEGATE_REPLAY").ok();
    let fsck = Fsck::available().ok();
    let mut chip = SMALL.formatted();
    let mut model = Model::fresh();
    let (mut swept, mut cuts) = (0, 0);
    for segment in 0..SEGMENTS {
        let shared: Chip = Arc::new(Mutex::new(chip.clone()));
        let before = writes(&shared);
        let after = run_segment(&shared, &model, segment, OPERATIONS);
        let Ok(after) = after else {
            panic!("segment {segment} fails without a cut")
        };
        let count = writes(&shared) - before;
        swept += count;
        for cut in 0..count {
            let wanted = match &only {
                Some(only) => *only == format!("{segment}:{cut}"),
                None => full || (cut + segment).is_multiple_of(7),
            };
            if wanted {
                cut_and_recover(&chip, &model, segment, cut, fsck.as_ref());
                cuts += 1;
            }
        }
        chip = Arc::into_inner(shared)
            .expect("one user")
            .into_inner()
            .expect("no panic");
        model = after;
    }
    assert!(swept > 500, "only {swept} writes");
    assert!(cuts > 0, "nothing was cut");
}

fn cut_and_recover(start: &SimNand, model: &Model, segment: u64, cut: u64, fsck: Option<&Fsck>) {
    let full = testkit::is_full();
    let replay = format!("seed {SEED:#x}, TIDEGATE_REPLAY={segment}:{cut}");
    let way = usize::try_from(cut % 5).expect("few");
    let chip: Chip = Arc::new(Mutex::new(start.clone()));
    plan(&chip, writes(&chip) + cut, way);
    let outcome = run_segment(&chip, model, segment, OPERATIONS);
    let supply = chip.lock().expect("no panic").supply().clone();
    assert!(supply.is_off(), "{replay}: power did not go");
    // A cut in the very last write is not noticed by any call.
    let known = match outcome {
        Err(cut) => cut,
        Ok(after) => Cut::between(&after),
    };
    supply.power_on();
    if full {
        plan(&chip, writes(&chip) + cut % 23, way);
        if let Ok(volume) = attach(&chip) {
            // The result is ignored: power may go.
            let _ = open(volume);
        }
        supply.power_on();
    }
    let volume: Arc<dyn Volume> = attach(&chip).unwrap_or_else(|error| panic!("{replay}: {error}"));
    let reader = Ubifs::open(Arc::clone(&volume), OpenOptions::standard())
        .unwrap_or_else(|error| panic!("{replay}: {error}"));
    assert!(reader.findings().is_empty(), "{replay}: {:?}", reader.findings());
    let read = lines_of(&reader);
    let writer = open(Arc::clone(&volume)).unwrap_or_else(|error| panic!("{replay}: {error}"));
    let found = lines_of(writer.read());
    assert_eq!(read, found, "{replay}: recovery changes what is read");
    let synced = known.model.lines();
    let loose = known.loose.as_ref();
    let mut fitting = fits(&found, &synced, loose);
    if let Some(number) = known.during.filter(|_| !fitting) {
        let uncut: Chip = Arc::new(Mutex::new(start.clone()));
        let after = run_segment(&uncut, model, segment, number + 1);
        fitting = after.is_ok_and(|after| fits(&found, &after.lines(), loose));
    }
    assert!(fitting, "{replay}: {found:#?}\nsynced: {synced:#?}");
    let unmounted = writer.unmount();
    unmounted.unwrap_or_else(|error| panic!("{replay}: {error}"));
    if let Some(fsck) = fsck.filter(|_| full || cut.is_multiple_of(8)) {
        assert_clean(fsck, &*volume, &replay);
    }
    assert_works(volume, &replay);
}

fn assert_clean(fsck: &Fsck, volume: &dyn Volume, what: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("volume");
    dump(volume, &path);
    let geometry = volume.geometry();
    let judged = fsck.check(&path, geometry.leb_bytes, geometry.min_io_bytes);
    let judged = judged.expect("it runs");
    assert!(judged.clean, "{what}: {}", judged.text);
}

fn assert_works(volume: Arc<dyn Volume>, replay: &str) {
    let mut writer = open(volume).unwrap_or_else(|error| panic!("{replay}: {error}"));
    let inode = writer.create(ROOT_INODE, b"after the cut", &EMPTY_FILE, Time::default());
    let inode = inode.unwrap_or_else(|error| panic!("{replay}: {error}"));
    let written = writer.write(inode, 0, &[7; 9000], Time::default());
    written.unwrap_or_else(|error| panic!("{replay}: {error}"));
    let unmounted = writer.unmount();
    unmounted.unwrap_or_else(|error| panic!("{replay}: {error}"));
}

/// A chip with fewer empty LEBs than the index takes, as after many changes of a full file system; and its names.
fn full_chip() -> (SimNand, Vec<String>) {
    let chip: Chip = Arc::new(Mutex::new(Shape { fanout: 3, ..SMALL }.formatted()));
    let mut writer = open(attach(&chip).expect("it attaches")).expect("it opens");
    let mut prng = Prng::named(SEED, "full");
    let mut names: Vec<String> = Vec::new();
    for number in 0..20_000 {
        let name = format!("{} {number}", prng.below(1_000_000));
        match writer.create(ROOT_INODE, name.as_bytes(), &EMPTY_FILE, Time::default()) {
            Ok(_) => names.push(name),
            Err(WriteError::NoSpace { .. }) => {
                for _ in 0..3 {
                    let name = names.swap_remove(prng.below_usize(names.len()));
                    let removed = writer.unlink(ROOT_INODE, name.as_bytes(), Time::default());
                    removed.unwrap_or_else(|error| panic!("{number}: {error}"));
                    let state = writer.statistics();
                    if state.empty_lebs < state.reserved_lebs {
                        writer.fsync().expect("it syncs");
                        drop(writer);
                        let chip = Arc::into_inner(chip).expect("one user");
                        return (chip.into_inner().expect("no panic"), names);
                    }
                }
            }
            Err(error) => panic!("{number}: {error}"),
        }
    }
    panic!(
        "there were always as many empty LEBs as the index takes: {:?}",
        writer.statistics()
    )
}

/// Deletes some names, each followed by a sync; returns how many, and whether power stayed.
fn remove_some(chip: &Chip, names: &[String]) -> (usize, bool) {
    let Some(mut writer) = attach(chip).ok().and_then(|volume| open(volume).ok()) else {
        return (0, false);
    };
    for (done, name) in names.iter().enumerate() {
        let removed = writer.unlink(ROOT_INODE, name.as_bytes(), Time::default());
        if let Err(error @ WriteError::NoSpace { .. }) = removed {
            panic!("removal {done}: {error}; {:?}", writer.statistics());
        }
        if removed.and_then(|()| writer.fsync()).is_err() {
            return (done, false);
        }
    }
    let unmounted = writer.unmount();
    (names.len(), unmounted.is_ok())
}

#[test]
fn a_power_cut_while_a_full_file_system_is_emptied_leaves_what_is_not_removed() {
    let full = testkit::is_full();
    let fsck = Fsck::available().ok();
    let (start, names) = full_chip();
    let gone = &names[..if full { 300 } else { 60 }];
    let uncut: Chip = Arc::new(Mutex::new(start.clone()));
    assert_eq!(remove_some(&uncut, gone), (gone.len(), true), "without a cut");
    let count = writes(&uncut) - writes(&Arc::new(Mutex::new(start.clone())));
    let every = if full { 1 } else { count / 24 };
    for cut in (0..count).filter(|cut| cut.is_multiple_of(every)) {
        let what = format!("cut {cut} of {count}");
        let chip: Chip = Arc::new(Mutex::new(start.clone()));
        plan(&chip, writes(&chip) + cut, usize::try_from(cut % 5).expect("few"));
        let (done, stayed) = remove_some(&chip, gone);
        let supply = chip.lock().expect("no panic").supply().clone();
        assert!(
            supply.is_off() && (!stayed || cut + 1 == count),
            "{what}: power did not go"
        );
        supply.power_on();
        let volume: Arc<dyn Volume> = attach(&chip).unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut writer = open(Arc::clone(&volume)).unwrap_or_else(|error| panic!("{what}: {error}"));
        let there =
            |writer: &Writer, name: &String| writer.read().lookup(ROOT_INODE, name.as_bytes()).is_ok();
        for (number, name) in names.iter().enumerate().filter(|(number, _)| *number != done) {
            assert_eq!(
                there(&writer, name),
                number > done,
                "{what}: {done} were removed, {number}"
            );
        }
        // More can be deleted.
        let left = names.iter().filter(|name| there(&writer, name));
        for name in left.take(if full { usize::MAX } else { 100 }).collect::<Vec<_>>() {
            let removed = writer.unlink(ROOT_INODE, name.as_bytes(), Time::default());
            removed.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        writer.unmount().unwrap_or_else(|error| panic!("{what}: {error}"));
        if let Some(fsck) = fsck.as_ref().filter(|_| cut.is_multiple_of(8)) {
            assert_clean(fsck, &*volume, &what);
        }
        assert_works(volume, &what);
    }
}
