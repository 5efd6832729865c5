//! Rewrites of whole LEBs by a read-write mount: if a page is uncorrectable once, just then, and correct in the next
//! read, it must keep its content. Linux refuses such a mount.

use std::sync::{Arc, Mutex};

use crate::support::rig::{Chip, Lines, SMALL, attach, lines_of, open};
use crate::support::unsteady::UnsteadyVolume;
use media::Leb;
use nand::{PowerCut, SimNand};
use testkit::prng::Prng;
use ubi::Volume;
use ubifs::check::check;
use ubifs::format::ROOT_INODE;
use ubifs::mkfs::{LebCount, MkfsOptions, Time, VolumeSink, make, tree_of_folder};
use ubifs::{NewFile, OpenOptions, Ubifs, Writer};

const NEW_FILE: NewFile = NewFile {
    mode: 0o100_644,
    user: 0,
    group: 0,
    data: Vec::new(),
};

fn copy(chip: &Chip) -> Chip {
    let now: SimNand = chip.lock().expect("no panic").clone();
    Arc::new(Mutex::new(now))
}

fn read(chip: &Chip) -> Ubifs {
    let volume = attach(chip).expect("it attaches");
    Ubifs::open(volume, OpenOptions::standard()).expect("it is a file system")
}

fn create(writer: &mut Writer, name: &str, content: &[u8]) -> Result<(), ubifs::WriteError> {
    let inode = writer.create(ROOT_INODE, name.as_bytes(), &NEW_FILE, Time::default())?;
    writer.write(inode, 0, content, Time::default())?;
    writer.fsync()
}

/// The beginning of a LEB, up to an offset, and whether anything is written behind it.
struct Beginning {
    what: &'static str,
    leb: u32,
    end: u32,
    is_followed: bool,
}

/// The LEBs that a recovery may cut off behind their valid part.
fn beginnings(ubifs: &Ubifs) -> Vec<Beginning> {
    let master = ubifs.master();
    let leb_bytes = usize::try_from(ubifs.superblock().leb_bytes).expect("small");
    let beginning = |what, leb, end| {
        let mut raw = vec![0; leb_bytes];
        // Torn pages are returned as they are.
        let _ = ubifs.volume().read(Leb(leb), 0, &mut raw);
        let behind = &raw[usize::try_from(end).expect("small")..];
        let is_followed = behind.iter().any(|byte| *byte != 0xFF);
        Beginning {
            what,
            leb,
            end,
            is_followed,
        }
    };
    let mut found = vec![
        beginning("index", master.index_head_leb, master.index_head_offset),
        beginning("LPT", master.lpt_head_leb, master.lpt_head_offset),
    ];
    for bud in &ubifs.replay_report().buds {
        let torn = matches!(bud.end, ubifs::BudEnd::Torn(_));
        found.push(Beginning {
            is_followed: torn,
            ..beginning("bud", bud.leb, bud.offset)
        });
    }
    found
}

/// Makes each page of a beginning read wrong in each of the reads of a read-write mount, and asserts that all files
/// survive. Returns the number of mounts.
fn assert_kept(chip: &Chip, beginning: &Beginning, page: usize, expected: &Lines, what: &str) -> usize {
    let mut mounts = 0;
    for offset in (0..beginning.end).step_by(page) {
        for good_reads in 0.. {
            let what = format!(
                "{what}: LEB {}, offset {offset}, read {good_reads}",
                beginning.leb
            );
            let chip = copy(chip);
            let volume = attach(&chip).expect("it attaches");
            let unsteady = UnsteadyVolume::new(volume, (beginning.leb, offset), good_reads);
            let opened = open(unsteady.clone());
            if !unsteady.was_hit() {
                opened.unwrap_or_else(|error| panic!("{what}: {error}"));
                break;
            }
            // Whether the mount succeeds or not.
            drop(opened);
            assert_eq!(lines_of(&read(&chip)), *expected, "{what}");
            let findings = check(&*attach(&chip).expect("it attaches")).findings;
            assert!(findings.is_empty(), "{what}: {findings:?}");
            mounts += 1;
        }
    }
    mounts
}

/// Earlier, the bytes before the journal's part of a LEB, and before the heads of index and LPT, were written back as
/// read.
#[test]
fn a_page_that_reads_wrong_while_a_recovery_cuts_a_leb_off_is_what_it_was() {
    let start: Chip = Arc::new(Mutex::new(SMALL.formatted()));
    let mut writer = open(attach(&start).expect("it attaches")).expect("it opens");
    let mut prng = Prng::new(16);
    for number in 0..12 {
        create(&mut writer, &format!("old-{number}"), &prng.bytes(700)).expect("there is room");
    }
    writer.commit().expect("it commits");
    drop(writer);
    let page = usize::try_from(SMALL.page).expect("small");
    let mut mounts = std::collections::BTreeMap::new();
    for cut in 0.. {
        let chip = copy(&start);
        let mut writer = open(attach(&chip).expect("it attaches")).expect("it opens");
        let supply = chip.lock().expect("no panic").supply().clone();
        supply.plan(PowerCut::of_write(supply.writes() + cut, 1));
        let written = (0..3).try_for_each(|number| create(&mut writer, &format!("new-{number}"), &[7; 300]));
        let ended = written.and_then(|()| writer.commit());
        drop(writer);
        supply.power_on();
        if ended.is_ok() {
            break;
        }
        let ubifs = read(&chip);
        let expected = lines_of(&ubifs);
        for beginning in beginnings(&ubifs) {
            let tried = mounts.entry(beginning.what).or_insert(0);
            let limit = if testkit::is_full() { usize::MAX } else { 40 };
            if beginning.is_followed && *tried < limit {
                let what = format!("cut {cut}, {}", beginning.what);
                *tried += assert_kept(&chip, &beginning, page, &expected, &what);
            }
        }
    }
    assert!(
        mounts.len() == 3 && mounts.values().all(|tried| *tried > 3),
        "{mounts:?}"
    );
}

/// Free-space fixup rewrites every LEB of an image that was flashed with its erased pages.
#[test]
fn a_page_that_reads_wrong_while_free_space_is_fixed_up_is_what_it_was() {
    let chip: Chip = Arc::new(Mutex::new(SMALL.formatted()));
    let volume = attach(&chip).expect("it attaches");
    for leb in 0..volume.geometry().lebs {
        volume.unmap(Leb(leb)).expect("it takes it");
    }
    let folder = tempfile::tempdir().expect("a folder");
    for number in 0..8 {
        let content = Prng::new(number).bytes(3000);
        std::fs::write(folder.path().join(format!("file-{number}")), content).expect("there is room");
    }
    let shape = volume.geometry();
    let options = MkfsOptions {
        lebs: LebCount::Exactly(shape.lebs),
        space_fixup: true,
        ..MkfsOptions::new(shape.min_io_bytes, shape.leb_bytes, shape.lebs)
    };
    let tree = tree_of_folder(folder.path()).expect("it can be read");
    let mut sink = VolumeSink::new(&*volume).expect("it takes writes");
    make(&tree, &options, &mut sink, &mut || {}).expect("the options are good");
    sink.finish().expect("it takes writes");
    let expected = lines_of(&read(&chip));
    assert_eq!(expected.len(), 9);
    let page = usize::try_from(SMALL.page).expect("small");
    let mut mounts = 0;
    for leb in 0..shape.lebs {
        let mut raw = vec![0; usize::try_from(shape.leb_bytes).expect("small")];
        volume.read(Leb(leb), 0, &mut raw).expect("it can be read");
        let Some(last) = raw.iter().rposition(|byte| *byte != 0xFF) else {
            continue;
        };
        let beginning = Beginning {
            what: "LEB",
            leb,
            end: u32::try_from(last + 1).expect("small"),
            is_followed: false,
        };
        // A few pages of each.
        let step = if testkit::is_full() { page } else { 8 * page };
        mounts += assert_kept(&chip, &beginning, step, &expected, "fix-up");
    }
    assert!(mounts > 20, "{mounts}");
}
