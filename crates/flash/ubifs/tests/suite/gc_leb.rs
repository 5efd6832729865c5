//! The LEB reserved for garbage collection: at a mount after a clean unmount, Linux trusts the master node and unmaps
//! it without reading it. It therefore has to be empty at every clean unmount.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::support::rig::{Chip, SMALL, Shape, attach, lines_of, open};
use crate::support::unsteady::UnsteadyVolume;
use media::Leb;
use nand::{PowerCut, SimNand};
use testkit::prng::Prng;
use ubi::Volume;
use ubifs::check::check;
use ubifs::format::{InodeNumber, LogReference, MASTER_DIRTY, PADDING_BYTE, ROOT_INODE};
use ubifs::mkfs::Time;
use ubifs::{NewFile, OpenOptions, Ubifs, WriteError};

const SEED: u64 = 0x6C1E;
const FILE_BYTES: usize = 8192;
const FILE: NewFile = NewFile {
    mode: 0o100_644,
    user: 0,
    group: 0,
    data: Vec::new(),
};

/// A copy of a chip in its current state, as after a cut at this moment.
fn copy(chip: &Chip) -> Chip {
    let now: SimNand = chip.lock().expect("no panic").clone();
    Arc::new(Mutex::new(now))
}

fn read(chip: &Chip) -> Ubifs {
    let volume = attach(chip).expect("it attaches");
    Ubifs::open(volume, OpenOptions::standard()).expect("it is a file system")
}

/// Whether garbage collection has continued into the LEB named by the master node, and left `bytes_left` bytes of it.
fn is_collecting(chip: &Chip, bytes_left: usize) -> bool {
    let ubifs = read(chip);
    let kept = ubifs.master().gc_leb;
    let mut buds = ubifs.replay_report().buds.iter();
    let left = leb(&ubifs, kept)
        .iter()
        .rev()
        .take_while(|byte| **byte == 0xFF)
        .count();
    buds.any(|bud| bud.leb == kept) && left >= bytes_left
}

fn leb(ubifs: &Ubifs, leb: u32) -> Vec<u8> {
    let mut raw = vec![0; usize::try_from(ubifs.superblock().leb_bytes).expect("small")];
    ubifs
        .volume()
        .read(Leb(leb), 0, &mut raw)
        .expect("it can be read");
    raw
}

/// A nearly full file system, cut after a collection and in a wanted state, with the content of its files, all of
/// which was synced.
fn cut_while_collecting(is_wanted: impl Fn(&Chip) -> bool) -> (Chip, BTreeMap<InodeNumber, Vec<u8>>) {
    let chip: Chip = Arc::new(Mutex::new(SMALL.formatted()));
    let mut writer = open(attach(&chip).expect("it attaches")).expect("it opens");
    let mut prng = Prng::named(SEED, "collecting");
    let mut files = BTreeMap::new();
    for number in 0..1000 {
        let (name, content) = (format!("file-{number}"), prng.bytes(FILE_BYTES));
        let made = writer
            .create(ROOT_INODE, name.as_bytes(), &FILE, Time::default())
            .and_then(|inode| Ok((inode, writer.write(inode, 0, &content, Time::default())?)));
        match made {
            Ok((inode, FILE_BYTES)) => files.insert(inode, content),
            Ok(_) | Err(WriteError::NoSpace { .. }) => break,
            Err(error) => panic!("{error}"),
        };
    }
    for (inode, number) in files.keys().copied().zip(0..6).collect::<Vec<_>>() {
        let name = format!("file-{number}");
        let removed = writer.unlink(ROOT_INODE, name.as_bytes(), Time::default());
        removed.expect("it is there");
        files.remove(&inode);
    }
    let all: Vec<InodeNumber> = files.keys().copied().collect();
    for _ in 0..20_000 {
        let before = writer.statistics().collected_lebs;
        let (inode, block) = (*prng.pick(&all), prng.below_usize(FILE_BYTES / 4096));
        let content = prng.bytes(4096);
        let at = u64::try_from(block * 4096).expect("small");
        let written = writer.write(inode, at, &content, Time::default());
        assert_eq!(written.expect("there is room"), 4096);
        let file = files.get_mut(&inode).expect("it is one of them");
        file[block * 4096..(block + 1) * 4096].copy_from_slice(&content);
        if writer.statistics().collected_lebs > before {
            writer.fsync().expect("it syncs");
            let cut = copy(&chip);
            if is_wanted(&cut) {
                return (cut, files);
            }
        }
    }
    panic!("there was no such state");
}

/// Asserts what Linux assumes about the LEB at a mount that recovers nothing.
fn assert_gc_leb_is_empty(chip: &Chip, what: &str) {
    let ubifs = read(chip);
    let (master, superblock) = (ubifs.master(), ubifs.superblock());
    assert_eq!(master.flags & MASTER_DIRTY, 0, "{what}: it was unmounted");
    let leb = master.gc_leb;
    let main = superblock.lebs - u32::try_from(ubifs.space().expect("an LPT").len()).expect("few");
    let space = ubifs.space().expect("an LPT")[usize::try_from(leb - main).expect("small")];
    assert_eq!(
        (space.free, space.dirty),
        (superblock.leb_bytes, 0),
        "{what}: LEB {leb} is kept for garbage collection, and is in use"
    );
    let mut raw = vec![0; usize::try_from(superblock.leb_bytes).expect("small")];
    ubifs
        .volume()
        .read(Leb(leb), 0, &mut raw)
        .expect("it can be read");
    assert!(
        raw.iter().all(|byte| *byte == 0xFF),
        "{what}: LEB {leb} holds something"
    );
}

fn assert_files(ubifs: &Ubifs, files: &BTreeMap<InodeNumber, Vec<u8>>, what: &str) {
    for (inode, expected) in files {
        let found = ubifs
            .inode(*inode)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut content = vec![0; usize::try_from(found.size_bytes).expect("small")];
        ubifs
            .read(&found, 0, &mut content)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(content == *expected, "{what}: {inode} holds something else");
    }
}

#[test]
fn after_a_recovery_the_leb_for_garbage_collection_is_empty_at_a_clean_end() {
    let (chip, files) = cut_while_collecting(|chip| is_collecting(chip, 0));
    let writer = open(attach(&chip).expect("it attaches")).expect("it opens");
    assert_files(writer.read(), &files, "recovered");
    writer.unmount().expect("it unmounts");
    assert_gc_leb_is_empty(&chip, "recovered and unmounted");
    assert_files(&read(&chip), &files, "unmounted");
}

/// Adds all empty LEBs, except the reserved one, and those collected since the last commit to the journal without
/// content, as Linux does with LEBs to which its heads are about to move.
fn take_all_empty_lebs(chip: &Chip) -> u32 {
    let ubifs = read(chip);
    let superblock = ubifs.superblock().clone();
    let report = ubifs.replay_report();
    let spaces = ubifs.space().expect("an LPT");
    // Recover a copy: LEBs collected since the commit are empty, too.
    let recovered = copy(chip);
    let writer = open(attach(&recovered).expect("it attaches")).expect("it opens");
    assert_eq!(writer.statistics().collected_lebs, 0, "there is an empty LEB");
    drop(writer);
    let found = read(&recovered).space().expect("an LPT");
    let main = superblock.lebs - u32::try_from(spaces.len()).expect("few");
    let is_bud = |leb| leb == ubifs.master().gc_leb || report.buds.iter().any(|bud| bud.leb == leb);
    let empty: Vec<u32> = (main..)
        .zip(spaces.iter().zip(&found))
        .filter(|(leb, (before, after))| {
            !before.index && !is_bud(*leb) && before.free.max(after.free) == superblock.leb_bytes
        })
        .map(|(leb, _)| leb)
        .collect();
    let (volume, log) = (ubifs.volume(), *report.log_lebs.last().expect("it has a log"));
    let raw = leb(&ubifs, log);
    let end = raw.iter().rposition(|byte| *byte != 0xFF).expect("it is written") + 1;
    let unit = usize::try_from(superblock.min_io_bytes).expect("small");
    let mut references = Vec::new();
    for (leb, sequence) in empty.iter().zip(report.sequence_max + 1..) {
        let reference = LogReference {
            leb: *leb,
            offset: 0,
            head: 2,
        };
        references.extend_from_slice(&reference.encode(sequence));
        // A cut must not bring back old content.
        volume.unmap(Leb(*leb)).expect("it takes it");
        volume.map(Leb(*leb)).expect("it takes it");
    }
    references.resize(references.len().next_multiple_of(unit), PADDING_BYTE);
    let at = u32::try_from(end.next_multiple_of(unit)).expect("small");
    let written = volume.write(Leb(log), at, &references);
    written.expect("the log has room");
    u32::try_from(empty.len()).expect("few")
}

#[test]
fn where_no_leb_is_empty_a_recovery_collects_into_what_is_left_of_the_garbage_collectors() {
    let (chip, files) = cut_while_collecting(|chip| is_collecting(chip, 6000));
    assert!(take_all_empty_lebs(&chip) > 2, "there were LEBs for a commit");
    assert_files(&read(&chip), &files, "cut");
    let writer = open(attach(&chip).expect("it attaches")).expect("it opens");
    assert!(
        writer.statistics().collected_lebs > 0,
        "{:?}",
        writer.statistics()
    );
    writer.unmount().expect("it unmounts");
    assert_gc_leb_is_empty(&chip, "recovered and unmounted");
    assert_files(&read(&chip), &files, "unmounted");
    let findings = check(&*attach(&chip).expect("it attaches")).findings;
    assert!(findings.is_empty(), "{findings:?}");
}

/// LEBs of the index except that of its head.
fn index_lebs(ubifs: &Ubifs) -> Vec<u32> {
    let spaces = ubifs.space().expect("an LPT");
    let main = ubifs.superblock().lebs - u32::try_from(spaces.len()).expect("few");
    let head = ubifs.master().index_head_leb;
    let of_index = (main..)
        .zip(spaces)
        .filter(|(leb, space)| space.index && *leb != head);
    of_index.map(|(leb, _)| leb).collect()
}

/// Whether a recovery without an empty LEB puts index nodes into gaps.
fn recovers_into_gaps(chip: &Chip) -> bool {
    let chip = copy(chip);
    take_all_empty_lebs(&chip);
    let before = read(&copy(&chip));
    if open(attach(&chip).expect("it attaches")).is_err() {
        // The file system is actually full.
        return false;
    }
    let after = read(&chip);
    let lebs = index_lebs(&before).into_iter();
    let mut kept = lebs.filter(|number| index_lebs(&after).contains(number));
    kept.any(|number| leb(&before, number) != leb(&after, number))
}

/// A file system with an index of several LEBs, cut in a state in which recovery has no other space for index nodes.
fn cut_without_room_for_the_index() -> Chip {
    let chip: Chip = Arc::new(Mutex::new(Shape { fanout: 3, ..SMALL }.formatted()));
    let mut writer = open(attach(&chip).expect("it attaches")).expect("it opens");
    let mut prng = Prng::named(SEED, "index");
    for number in 0..300 {
        let name = format!("file-{number}");
        let made = writer.create(ROOT_INODE, name.as_bytes(), &FILE, Time::default());
        let written = writer.write(made.expect("there is room"), 0, &[7; 40], Time::default());
        written.expect("there is room");
    }
    for round in 0..500 {
        for _ in 0..4 {
            let name = format!("file-{}", prng.below(300));
            let found = writer.read().lookup(ROOT_INODE, name.as_bytes());
            let inode = found.expect("it is there").inode;
            let written = writer.write(inode, 0, &prng.bytes(40), Time::default());
            written.expect("there is room");
        }
        writer.fsync().expect("it syncs");
        if recovers_into_gaps(&copy(&chip)) {
            take_all_empty_lebs(&chip);
            return chip;
        }
        if round % 3 == 2 {
            writer.commit().expect("it commits");
        }
    }
    panic!("there was no such state");
}

#[test]
fn power_cuts_leave_the_index_whole_where_new_nodes_go_between_old_ones() {
    let start = cut_without_room_for_the_index();
    let expected = lines_of(&read(&copy(&start)));
    assert_eq!(expected.len(), 301);
    let uncut = copy(&start);
    let writes = |chip: &Chip| chip.lock().expect("no panic").supply().writes();
    let before = writes(&uncut);
    drop(open(attach(&uncut).expect("it attaches")).expect("it opens"));
    let count = writes(&uncut) - before;
    assert!(count > 5, "only {count} writes");
    for cut in 0..count {
        let what = format!("cut {cut} of {count}");
        let chip = copy(&start);
        let supply = chip.lock().expect("no panic").supply().clone();
        let way = usize::try_from(cut).expect("few");
        supply.plan(PowerCut::of_write(supply.writes() + cut, way));
        // The result is ignored: power goes.
        drop(attach(&chip).map(|volume| open(volume)));
        supply.power_on();
        assert_eq!(lines_of(&read(&chip)), expected, "{what}");
        let findings = check(&*attach(&chip).expect("it attaches")).findings;
        assert!(findings.is_empty(), "{what}: {findings:?}");
        let writer = open(attach(&chip).expect("it attaches"));
        let writer = writer.unwrap_or_else(|error| panic!("{what}: {error}"));
        writer.unmount().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_gc_leb_is_empty(&chip, &what);
        assert_eq!(lines_of(&read(&chip)), expected, "{what}, unmounted");
        let findings = check(&*attach(&chip).expect("it attaches")).findings;
        assert!(findings.is_empty(), "{what}, unmounted: {findings:?}");
    }
}

/// Earlier, live nodes were copied as read, without a CRC check.
#[test]
fn a_page_that_reads_wrong_while_new_nodes_go_between_old_ones_is_what_it_was() {
    let start = cut_without_room_for_the_index();
    let before = read(&copy(&start));
    let expected = lines_of(&before);
    let (mut mounts, page) = (0, usize::try_from(SMALL.page).expect("small"));
    for number in index_lebs(&before) {
        let end = leb(&before, number).iter().rposition(|byte| *byte != 0xFF);
        for offset in (0..u32::try_from(end.expect("it is written")).expect("small")).step_by(page) {
            for good_reads in 0.. {
                let what = format!("LEB {number}, offset {offset}, read {good_reads}");
                let chip = copy(&start);
                let volume = attach(&chip).expect("it attaches");
                let unsteady = UnsteadyVolume::new(volume, (number, offset), good_reads);
                // Whether the mount succeeds or not.
                drop(open(unsteady.clone()));
                if !unsteady.was_hit() {
                    break;
                }
                assert_eq!(lines_of(&read(&chip)), expected, "{what}");
                let findings = check(&*attach(&chip).expect("it attaches")).findings;
                assert!(findings.is_empty(), "{what}: {findings:?}");
                mounts += 1;
            }
        }
    }
    assert!(mounts > 20, "{mounts}");
}
