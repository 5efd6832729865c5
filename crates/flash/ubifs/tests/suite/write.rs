//! Written files are readable after a mount, a commit and garbage collection, and the volume is clean for the stock
//! `fsck.ubifs`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::support::rig::{Chip, Lines, Model, SMALL, Shape, Weight, attach, dump, lines_of, open};
use media::Leb;
use testkit::lab::Fsck;
use testkit::prng::Prng;
use ubi::Volume;
use ubifs::format::{ROOT_INODE, SUPERBLOCK_LEB, SuperblockFlags};
use ubifs::mkfs::Time;
use ubifs::{NewFile, OpenOptions, Ubifs, Watermarks, WriteError, Writer};

const SEED: u64 = 0x0BF5;
const EMPTY_FILE: NewFile = NewFile {
    mode: 0o100_644,
    user: 0,
    group: 0,
    data: Vec::new(),
};
const NOW: Time = Time {
    seconds: 1_000_000_000,
    nanoseconds: 0,
};

fn fsck() -> Option<Fsck> {
    Fsck::available()
        .inspect_err(|why| testkit::report_left_out(why))
        .ok()
}

fn assert_same(found: &Lines, expected: &Lines, what: &str) {
    for path in found.keys().chain(expected.keys()) {
        assert_eq!(found.get(path), expected.get(path), "{what}: {path}");
    }
}

/// Checks with our reader, the sums in the master node, and fsck.
fn judge(volume: &Arc<dyn Volume>, expected: &Lines, fsck: Option<&Fsck>, what: &str) {
    let ubifs = Ubifs::open(Arc::clone(volume), OpenOptions::standard()).expect("it is a file system");
    assert!(ubifs.findings().is_empty(), "{what}: {:?}", ubifs.findings());
    assert_same(&lines_of(&ubifs), expected, what);
    let (superblock, master) = (ubifs.superblock(), ubifs.master());
    let sums =
        Watermarks::new(superblock.leb_bytes, superblock.min_io_bytes).sum(&ubifs.space().expect("it reads"));
    assert_eq!(
        (sums.free, sums.dirty),
        (master.free_bytes, master.dirty_bytes),
        "{what}"
    );
    if let Some(fsck) = fsck {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("volume");
        dump(&**volume, &path);
        let judged = fsck
            .check(&path, superblock.leb_bytes, superblock.min_io_bytes)
            .expect("it runs");
        assert!(judged.clean, "{what}: {}", judged.text);
    }
}

fn chip(shape: Shape) -> Chip {
    Arc::new(Mutex::new(shape.formatted()))
}

/// Creates a file with one small block.
fn create(writer: &mut Writer, name: &str) -> Result<(), WriteError> {
    let file = NewFile {
        mode: 0o100_644,
        user: 0,
        group: 0,
        data: Vec::new(),
    };
    let inode = writer.create(ROOT_INODE, name.as_bytes(), &file, NOW)?;
    writer.write(inode, 0, &[1; 10], NOW)?;
    Ok(())
}

#[test]
fn an_empty_file_system_that_was_mounted_is_clean() {
    let chip = chip(SMALL);
    let volume: Arc<dyn Volume> = attach(&chip).expect("it attaches");
    let writer = open(Arc::clone(&volume)).expect("it opens");
    writer.unmount().expect("it unmounts");
    judge(&volume, &Model::fresh().lines(), fsck().as_ref(), "empty");
}

#[test]
fn a_random_script_is_there_after_each_unmount_and_each_loss_of_the_process() {
    let fsck = fsck();
    let rounds = if testkit::is_full() { 60 } else { 12 };
    for shape in [SMALL, Shape { fanout: 3, ..SMALL }] {
        let chip = chip(shape);
        let volume: Arc<dyn Volume> = attach(&chip).expect("it attaches");
        let mut model = Model::fresh();
        let mut done = 0;
        for round in 0..rounds {
            let what = format!("seed {SEED:#x}, fanout {}, round {round}", shape.fanout);
            let mut prng = Prng::named(SEED, &what);
            let mut writer = open(Arc::clone(&volume)).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_same(&lines_of(writer.read()), &model.lines(), &what);
            for step in 0..40 {
                match model.step(&mut writer, &mut prng, Weight::Names) {
                    Ok(true) => done += 1,
                    Ok(false) => {}
                    Err(WriteError::NoSpace { .. }) => break,
                    Err(error) => panic!("{what}, step {step}: {error}"),
                }
                if prng.chance(5) {
                    writer
                        .commit()
                        .unwrap_or_else(|error| panic!("{what}, step {step}: {error}"));
                }
            }
            assert_same(&lines_of(writer.read()), &model.lines(), &what);
            match round % 3 {
                0 => drop(writer.fsync().map(|()| writer)),
                _ => writer.unmount().unwrap_or_else(|error| panic!("{what}: {error}")),
            }
            judge(&volume, &model.lines(), fsck.as_ref(), &what);
        }
        assert!(done > 20 * rounds, "only {done} operations were done");
    }
}

#[test]
fn a_file_system_that_is_filled_and_emptied_stays_whole() {
    let fsck = fsck();
    let chip = chip(SMALL);
    let volume: Arc<dyn Volume> = attach(&chip).expect("it attaches");
    let mut model = Model::fresh();
    let mut prng = Prng::named(SEED, "full");
    let mut writer = open(Arc::clone(&volume)).expect("it opens");
    let mut full = 0;
    for step in 0..1500 {
        let weight = if step % 400 < 250 {
            Weight::Content
        } else {
            Weight::Names
        };
        let before = model.clone();
        match model.step(&mut writer, &mut prng, weight) {
            Ok(_) => {}
            Err(WriteError::NoSpace { .. }) => {
                full += 1;
                // Part of the content may have been written.
                if before.written.is_some() || model.written.is_some() {
                    break;
                }
                model = before;
            }
            Err(error) => panic!("step {step}: {error}"),
        }
    }
    let lines = lines_of(writer.read());
    writer.unmount().expect("it unmounts");
    judge(&volume, &lines, fsck.as_ref(), "full");
    assert!(full > 0 || model.lines().len() > 10, "nothing happened");
}

#[test]
fn an_index_shrinks_with_what_it_leads_to() {
    let volume: Arc<dyn Volume> = attach(&chip(SMALL)).expect("it attaches");
    let mut writer = open(Arc::clone(&volume)).expect("it opens");
    let names: Vec<String> = (0..800).map(|number| format!("file {number}")).collect();
    for name in &names {
        create(&mut writer, name).expect("there is room");
    }
    writer.commit().expect("it commits");
    let full_bytes = writer.statistics().index_bytes;
    // Each round deletes a few names spread over the index.
    for round in 1..20 {
        for name in names.iter().skip(round).step_by(20) {
            writer
                .unlink(ROOT_INODE, name.as_bytes(), NOW)
                .expect("it is there");
        }
        writer.commit().expect("it commits");
    }
    let (keys, bytes) = (3 * 40 + 1, writer.statistics().index_bytes);
    assert!(
        bytes < keys * 40,
        "{bytes} bytes of an index for {keys} keys; {full_bytes} for 20 times as many"
    );
    let lines = lines_of(writer.read());
    writer.unmount().expect("it unmounts");
    judge(&volume, &lines, fsck().as_ref(), "most is gone");
}

#[test]
fn what_fills_a_file_system_can_be_removed_at_any_time() {
    for shape in [SMALL, Shape { fanout: 3, ..SMALL }] {
        let what = format!("fanout {}", shape.fanout);
        let volume: Arc<dyn Volume> = attach(&chip(shape)).expect("it attaches");
        let mut writer = open(Arc::clone(&volume)).expect("it opens");
        let mut prng = Prng::named(0xF011, &what);
        let (mut names, mut number, mut refused) = (Vec::new(), 0, 0);
        let steps = if testkit::is_full() { 60_000 } else { 4500 };
        for step in 0..steps {
            let is_to_grow = prng.below(100) < if step % 3000 < 2000 { 80 } else { 30 };
            if is_to_grow || names.is_empty() {
                number += 1;
                let name = format!("{} {number}", prng.below(1_000_000));
                match create(&mut writer, &name) {
                    Ok(()) => names.push(name),
                    Err(WriteError::NoSpace { .. }) => {
                        refused += 1;
                        // The file may exist without its content.
                        if writer.read().lookup(ROOT_INODE, name.as_bytes()).is_ok() {
                            names.push(name);
                        }
                    }
                    Err(error) => panic!("{what}, step {step}: {error}"),
                }
            } else {
                let name = names.swap_remove(prng.below_usize(names.len()));
                let removed = writer.unlink(ROOT_INODE, name.as_bytes(), NOW);
                removed.unwrap_or_else(|error| {
                    panic!("{what}, step {step}: {error}; {:?}", writer.statistics())
                });
            }
        }
        assert!(refused > 100, "{what}: {refused} files found no room");
        let lines = lines_of(writer.read());
        assert_eq!(lines.len(), names.len() + 1, "{what}");
        writer.unmount().expect("it unmounts");
        judge(&volume, &lines, fsck().as_ref(), &what);
    }
}

/// Earlier, orphans and whiteouts could use the space reserved for deletions, until no deletion was possible.
#[test]
fn what_has_no_name_takes_no_room_that_removals_need() {
    let volume: Arc<dyn Volume> = attach(&chip(SMALL)).expect("it attaches");
    let mut writer = open(Arc::clone(&volume)).expect("it opens");
    let is_full = |made: Result<(), WriteError>| match made {
        Ok(()) => false,
        Err(WriteError::NoSpace { .. }) => true,
        Err(error) => panic!("{error}"),
    };
    let mut files = 0;
    while !is_full(create(&mut writer, &format!("file {files}"))) {
        files += 1;
    }
    let mut unnamed = Vec::new();
    loop {
        let made = writer.create_unnamed(ROOT_INODE, &EMPTY_FILE, NOW);
        if is_full(made.map(|inode| unnamed.push(inode))) {
            break;
        }
    }
    let mut moved = 0;
    loop {
        let (from, to) = (format!("file {moved}"), format!("moved {moved}"));
        let (from, to) = ((ROOT_INODE, from.as_bytes()), (ROOT_INODE, to.as_bytes()));
        if is_full(writer.rename_with_whiteout(from, to, (0, 0), NOW)) {
            break;
        }
        moved += 1;
        assert!(moved < files, "whiteouts need no room");
    }
    for number in moved..files {
        let removed = writer.unlink(ROOT_INODE, format!("file {number}").as_bytes(), NOW);
        removed.unwrap_or_else(|error| {
            let (held, moved) = (unnamed.len(), moved);
            panic!("file {number} of {files}, {held} without a name, {moved} whiteouts: {error}")
        });
    }
    let lines = lines_of(writer.read());
    writer.unmount().expect("it unmounts");
    judge(&volume, &lines, fsck().as_ref(), "emptied");
}

#[test]
fn entries_have_cookies_where_the_superblock_says_so() {
    for flags in [0, SuperblockFlags::DOUBLE_HASH.0] {
        let chip: Chip = Arc::new(Mutex::new(SMALL.formatted()));
        let volume: Arc<dyn Volume> = attach(&chip).expect("it attaches");
        let mut superblock = Ubifs::open(Arc::clone(&volume), OpenOptions::standard())
            .expect("it is a file system")
            .superblock()
            .clone();
        superblock.flags |= flags;
        let changed = volume.leb_change(Leb(SUPERBLOCK_LEB), &superblock.encode(1));
        changed.expect("it takes it");
        let mut writer = open(volume).expect("it opens");
        let mut cookies = BTreeSet::new();
        for name in [b"one", b"two", b"six"] {
            let made = writer.create(ROOT_INODE, name, &EMPTY_FILE, Time::default());
            made.expect("there is room");
            let moved = [name.as_slice(), b" moved"].concat();
            let renamed = writer.rename((ROOT_INODE, name), (ROOT_INODE, &moved), Time::default());
            renamed.expect("it is there");
            cookies.insert(
                writer
                    .read()
                    .lookup(ROOT_INODE, &moved)
                    .expect("it is there")
                    .cookie,
            );
        }
        match flags {
            0 => assert_eq!(cookies, BTreeSet::from([0])),
            _ => assert!(cookies.len() == 3 && !cookies.contains(&0), "{cookies:?}"),
        }
        writer.unmount().expect("it unmounts");
    }
}
