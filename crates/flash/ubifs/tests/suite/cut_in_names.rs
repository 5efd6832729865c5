//! Orphans in an operation that has to commit for space first: power goes between that commit and the nodes of the
//! operation. The commit must list exactly the inodes that are orphans by then.

use std::sync::{Arc, Mutex};

use crate::support::cut_again::{NEW_FILE, assert_whole, copy, create, recovered, volume, writes};
use crate::support::rig::{Chip, SMALL, attach, lines_of, open};
use media::Leb;
use nand::PowerCut;
use ubifs::format::{COMMIT_LAST_FLAG, InodeNumber, LOG_LEB, MASTER_NO_ORPHANS, Orphans, ROOT_INODE, check};
use ubifs::mkfs::{Attributes, LebCount, MkfsOptions, Time, Tree, VolumeSink, make};
use ubifs::{OpenOptions, Ubifs, WriteError, Writer};

/// An operation with its preparation.
struct Case {
    name: &'static str,
    prepare: fn(&mut Writer) -> InodeNumber,
    run: fn(&mut Writer, InodeNumber) -> Result<(), WriteError>,
}

const NOW: Time = Time {
    seconds: 1_000_000_000,
    nanoseconds: 0,
};

fn held(writer: &mut Writer) -> InodeNumber {
    let inode = create(writer, "held", &[3; 9000]);
    let value = writer.set_xattr(inode, b"user.name", b"value", NOW);
    value.expect("there is room");
    writer.hold(inode);
    inode
}

const CASES: [Case; 5] = [
    Case {
        name: "it is let go",
        prepare: |writer| {
            let inode = held(writer);
            writer.unlink(ROOT_INODE, b"held", NOW).expect("it is there");
            inode
        },
        run: |writer, inode| {
            assert!(writer.let_go(inode, 1), "it has no name");
            writer.bury(inode)
        },
    },
    Case {
        name: "it gets a name",
        prepare: |writer| {
            let made = writer.create_unnamed(ROOT_INODE, &NEW_FILE, NOW);
            let inode = made.expect("there is room");
            let written = writer.write(inode, 0, &[4; 9000], NOW);
            assert_eq!(written.expect("there is room"), 9000);
            inode
        },
        run: |writer, inode| writer.link(inode, ROOT_INODE, b"named", NOW),
    },
    Case {
        name: "it loses its name",
        prepare: held,
        run: |writer, _| writer.unlink(ROOT_INODE, b"held", NOW),
    },
    Case {
        name: "another file takes its name",
        prepare: |writer| {
            create(writer, "other", &[5; 9000]);
            held(writer)
        },
        run: |writer, _| writer.rename((ROOT_INODE, b"other"), (ROOT_INODE, b"held"), NOW),
    },
    Case {
        name: "it is made without a name",
        prepare: |_| ROOT_INODE,
        run: |writer, _| writer.create_unnamed(ROOT_INODE, &NEW_FILE, NOW).map(drop),
    },
];

/// A file system prepared for the operation, and its writer.
fn prepared(case: &Case, chip: &Chip) -> (Writer, InodeNumber) {
    let mut writer = open(attach(chip).expect("it attaches")).expect("it opens");
    let inode = (case.prepare)(&mut writer);
    writer.commit().expect("it commits");
    (writer, inode)
}

/// Changes an inode repeatedly; returns the number of changes before one triggers a commit.
fn fill(writer: &mut Writer, at_most: u32) -> u32 {
    let commits = writer.statistics().commits;
    for number in 0..at_most {
        let changed = writer.set_attributes(ROOT_INODE, &|inode| inode.user = number);
        changed.expect("there is room");
        if writer.statistics().commits > commits {
            return number;
        }
    }
    at_most
}

/// Asserts that the orphans listed by the last commit have no link.
fn assert_nobody_is_listed_with_a_name(chip: &Chip, what: &str) {
    let volume = volume(chip);
    let ubifs = Ubifs::open(Arc::clone(&volume), OpenOptions::standard()).expect("it is a file system");
    let (superblock, master) = (ubifs.superblock(), ubifs.master());
    if master.flags & MASTER_NO_ORPHANS != 0 {
        return;
    }
    let first = LOG_LEB + superblock.log_lebs + superblock.lpt_lebs;
    for leb in first..first + superblock.orphan_lebs {
        let mut raw = vec![0; usize::try_from(superblock.leb_bytes).expect("small")];
        volume.read(Leb(leb), 0, &mut raw).expect("it can be read");
        let Ok(header) = check(&raw) else { continue };
        let node = &raw[..usize::try_from(header.bytes).expect("small")];
        let orphans = Orphans::decode(node).expect("nothing else is there");
        if orphans.commit & !COMMIT_LAST_FLAG != master.commit {
            continue;
        }
        for number in orphans.inodes {
            let number = InodeNumber(u32::try_from(number).expect("it has 32 bits"));
            let found = ubifs.inode(number);
            assert!(
                found.is_err(),
                "{what}: {number} is listed and has a name: {found:?}"
            );
        }
    }
}

#[test]
fn a_commit_that_an_operation_begins_with_lists_who_has_no_name_by_then() {
    for case in &CASES {
        let start: Chip = Arc::new(Mutex::new(SMALL.formatted()));
        let (mut writer, _) = prepared(case, &copy(&start));
        let changes = fill(&mut writer, u32::MAX);
        drop(writer);
        // The operation is the first one that does not fit.
        let uncut = copy(&start);
        let (mut writer, inode) = prepared(case, &uncut);
        fill(&mut writer, changes);
        let (begun, commits) = (writes(&uncut), writer.statistics().commits);
        let without = lines_of(writer.read());
        (case.run)(&mut writer, inode).expect("there is room");
        assert_eq!(writer.statistics().commits, commits + 1, "{}", case.name);
        let with = lines_of(writer.read());
        let done = writes(&uncut);
        drop(writer);
        let judge = |chip: &Chip, what: &str| {
            assert_whole(chip, what);
            assert_nobody_is_listed_with_a_name(chip, what);
            let (_, found) = recovered(chip, what);
            assert!(found == without || found == with, "{what}: {found:#?}");
        };
        judge(&uncut, &format!("{}, not synced", case.name));
        for cut in begun..done {
            let what = format!("{}, cut {} of {}", case.name, cut - begun, done - begun);
            let chip = copy(&start);
            let (mut writer, inode) = prepared(case, &chip);
            fill(&mut writer, changes);
            let supply = chip.lock().expect("no panic").supply().clone();
            let way = usize::try_from(cut % 5).expect("few");
            supply.plan(PowerCut::of_write(cut, way));
            // The result is ignored: power goes.
            let _ = (case.run)(&mut writer, inode);
            assert!(supply.is_off(), "{what}: power did not go");
            drop(writer);
            supply.power_on();
            judge(&chip, &what);
        }
    }
}

/// A file system with two LEBs for orphans.
fn with_two_lebs_for_orphans() -> Chip {
    let chip: Chip = Arc::new(Mutex::new(SMALL.formatted()));
    let volume = volume(&chip);
    let shape = volume.geometry();
    for leb in 0..shape.lebs {
        volume.unmap(Leb(leb)).expect("it takes it");
    }
    let options = MkfsOptions {
        lebs: LebCount::Exactly(shape.lebs),
        orphan_lebs: 2,
        ..MkfsOptions::new(shape.min_io_bytes, shape.leb_bytes, shape.lebs)
    };
    let mut sink = VolumeSink::new(&*volume).expect("it takes writes");
    let tree = Tree::empty(Attributes::default());
    make(&tree, &options, &mut sink, &mut || {}).expect("the options are good");
    sink.finish().expect("it takes writes");
    chip
}

/// A commit replaces the orphan list LEB by LEB. With a new orphan at its beginning, another one moved to the next
/// LEB; a power cut between the two writes left it in neither, and it was never deleted.
#[test]
fn files_without_a_name_are_listed_whatever_lebs_of_the_list_are_replaced() {
    let start = with_two_lebs_for_orphans();
    // The list has a header of 32 bytes.
    let first_leb = (volume(&start).geometry().leb_bytes - 32) / 8;
    let begun = |chip: &Chip| {
        let mut writer = open(attach(chip).expect("it attaches")).expect("it opens");
        let early = create(&mut writer, "early", &[1; 100]);
        writer.hold(early);
        for _ in 0..first_leb {
            let made = writer.create_unnamed(ROOT_INODE, &NEW_FILE, NOW);
            made.expect("there is room");
        }
        writer.commit().expect("it commits");
        writer.unlink(ROOT_INODE, b"early", NOW).expect("it is there");
        writer.fsync().expect("it syncs");
        writer
    };
    let uncut = copy(&start);
    let mut writer = begun(&uncut);
    let before = writes(&uncut);
    writer.commit().expect("it commits");
    let count = writes(&uncut) - before;
    drop(writer);
    for cut in 0..count {
        let what = format!("cut {cut} of {count}");
        let chip = copy(&start);
        let mut writer = begun(&chip);
        let supply = chip.lock().expect("no panic").supply().clone();
        supply.plan(PowerCut::of_write(before + cut, 4));
        // The result is ignored: power goes.
        let _ = writer.commit();
        assert!(supply.is_off(), "{what}: power did not go");
        drop(writer);
        supply.power_on();
        let (_, lines) = recovered(&chip, &what);
        assert_eq!(lines.len(), 1, "{what}: {lines:?}");
    }
}
