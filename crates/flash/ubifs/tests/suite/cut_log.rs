//! Journals as left by Linux when power goes during a commit with concurrent writes, or before it has written the
//! inodes of files that grew; then power goes again during our recovery.

use std::sync::{Arc, Mutex};

use crate::support::cut_again::{
    NEW_FILE, assert_whole, assert_whole_for_linux, copy, create, each_cut, fsck_of, recover, recovered,
    volume, writes,
};
use crate::support::linux_journal::{add_bud, start_commits, tear_log};
use crate::support::rig::{Chip, Lines, SMALL, attach, lines_of, open};
use media::Leb;
use nand::PowerCut;
use testkit::lab::Fsck;
use ubi::VolumeError;
use ubifs::check::{Area, check};
use ubifs::format::{Data, Group, InodeNumber, Key, ROOT_INODE};
use ubifs::mkfs::Time;
use ubifs::{OpenOptions, Ubifs};

const DATA_HEAD: u32 = 2;

/// The files that a mount would recover.
fn read(chip: &Chip) -> Lines {
    let ubifs = Ubifs::open(volume(&copy(chip)), OpenOptions::standard()).expect("it is a file system");
    assert!(ubifs.findings().is_empty(), "{:?}", ubifs.findings());
    lines_of(&ubifs)
}

/// A data node with the first block of a file.
fn block(inode: InodeNumber, content: &[u8], sequence: u64) -> Vec<u8> {
    let data = Data {
        key: Key::data(inode, 0),
        size_bytes: u32::try_from(content.len()).expect("a block"),
        compression: 0,
        compressed_bytes: 0,
        stored: content.to_vec(),
    };
    data.encode(sequence, Group::None)
}

/// Asserts that everything is there, with and without a power cut in the recovery, for us and for Linux.
fn assert_kept(chip: &Chip, what: &str) {
    let fsck = Fsck::available().ok();
    let expected = read(chip);
    assert_whole(chip, what);
    assert_eq!(recovered(chip, what).1, expected, "{what}");
    let count = each_cut(chip, &recover, &mut |again, cut| {
        let what = format!("{what}, cut {cut}");
        assert_whole(again, &what);
        if let Some(fsck) = fsck.as_ref().filter(|_| cut.is_multiple_of(4)) {
            assert_whole_for_linux(fsck, again, &what);
        }
        let (again, found) = recovered(again, &what);
        assert_eq!(found, expected, "{what}");
        assert_eq!(read(&again), expected, "{what}");
    });
    assert!(count > 4, "{what}: only {count} writes");
}

/// After Linux has started a commit, it adds references to new buds behind the commit start, even in the last LEB of
/// the log. Recovery erased that LEB for its own commit, and until that was done no other reference existed.
#[test]
fn a_log_that_is_full_keeps_what_its_last_leb_names() {
    for left in [0, 1] {
        let chip: Chip = Arc::new(Mutex::new(SMALL.formatted()));
        let mut writer = open(volume(&chip)).expect("it opens");
        let inode = create(&mut writer, "file", &[1; 3000]);
        create(&mut writer, "another", &[2; 3000]);
        writer.fsync().expect("it syncs");
        drop(writer);
        let before = read(&chip);
        start_commits(&chip, left);
        add_bud(&chip, DATA_HEAD, [|sequence| block(inode, &[7; 3000], sequence)]);
        assert_ne!(read(&chip), before, "the block is not the file's");
        assert_kept(&chip, &format!("{left} LEBs left"));
    }
}

/// Linux writes the inodes of files that grew later than their data. A recovery that had to commit before it had
/// written all of them left the rest with their old sizes.
#[test]
fn sizes_that_follow_from_data_are_set_though_the_journal_is_full() {
    const FILES: usize = 50;
    let chip: Chip = Arc::new(Mutex::new(SMALL.formatted()));
    let mut writer = open(volume(&chip)).expect("it opens");
    let mut make = |number| create(&mut writer, &format!("file {number}"), &[1; 100]);
    let mut files: Vec<InodeNumber> = (0..FILES / 2).map(&mut make).collect();
    writer.commit().expect("it commits");
    let mut make = |number| create(&mut writer, &format!("file {number}"), &[1; 100]);
    files.extend((FILES / 2..FILES).map(&mut make));
    writer.fsync().expect("it syncs");
    drop(writer);
    start_commits(&chip, 1);
    let grown = files.iter();
    let grown = grown.map(|inode| move |sequence| block(*inode, &[7; 200], sequence));
    add_bud(&chip, DATA_HEAD, grown);
    let expected = read(&chip);
    let grown = expected.values().filter(|line| line.starts_with("file 1 200 "));
    assert_eq!(grown.count(), FILES, "{expected:#?}");
    assert_kept(&chip, "files that grew");
}

/// Writes until the log spans several LEBs. The result is ignored: power may go.
fn write_on(chip: &Chip) {
    let run = || {
        let mut writer = open(attach(chip).ok()?).ok()?;
        for number in 0..9 {
            let name = format!("file {number}");
            let inode = writer.create(ROOT_INODE, name.as_bytes(), &NEW_FILE, Time::default());
            let written = writer.write(inode.ok()?, 0, &[number; 4000], Time::default());
            written.ok()?;
            writer.fsync().ok()?;
        }
        Some(())
    };
    let _: Option<()> = run();
}

/// Whether a page of the last log LEB is torn.
fn is_log_torn(chip: &Chip) -> bool {
    let volume = volume(&copy(chip));
    let ubifs = Ubifs::open(Arc::clone(&volume), OpenOptions::standard()).expect("it is a file system");
    let last = ubifs.replay_report().log_lebs.last();
    let leb = Leb(*last.expect("it has a log"));
    let mut raw = vec![0; usize::try_from(volume.geometry().leb_bytes).expect("small")];
    let read = volume.read(leb, 0, &mut raw);
    let page = usize::try_from(SMALL.page).expect("small");
    let is_torn = |page: &[u8]| page.iter().any(|byte| *byte != 0xFF) && page.ends_with(&[0xFF]);
    matches!(read, Err(VolumeError::Uncorrectable { .. })) || raw.chunks(page).any(is_torn)
}

/// Linux takes a torn write for the end of the log, and refuses to mount if the log continues in another LEB. That
/// happened when power went again while our recovery committed.
#[test]
fn what_is_torn_of_the_log_is_cut_off_before_the_log_goes_on() {
    let fsck = Fsck::available().ok();
    let start: Chip = Arc::new(Mutex::new(SMALL.formatted()));
    let uncut = copy(&start);
    let before = writes(&uncut);
    write_on(&uncut);
    let count = writes(&uncut) - before;
    let (mut torn, mut shown) = (0, 0);
    for cut in 0..count {
        for way in 0..PowerCut::WAYS {
            let chip = copy(&start);
            let supply = chip.lock().expect("no panic").supply().clone();
            supply.plan(PowerCut::of_write(supply.writes() + cut, way));
            write_on(&chip);
            supply.power_on();
            if !is_log_torn(&chip) {
                continue;
            }
            torn += 1;
            let what = format!("cut {cut} in way {way}");
            assert_whole(&chip, &what);
            let expected = read(&chip);
            each_cut(&chip, &recover, &mut |again, second| {
                let what = format!("{what}, cut {second} of the recovery");
                assert_whole(again, &what);
                if let Some(fsck) = fsck.as_ref().filter(|_| testkit::is_full() || torn % 3 == 1) {
                    shown += 1;
                    assert_whole_for_linux(fsck, again, &what);
                }
                assert_eq!(recovered(again, &what).1, expected, "{what}");
            });
        }
    }
    assert!(torn > 5, "only {torn} cuts tore the log");
    assert!(fsck.is_none() || shown > 30, "only {shown} shown to fsck.ubifs");
}

/// The state left by earlier recoveries of ours: the checker reports that Linux refuses it, and a read-write mount
/// repairs it.
#[test]
fn a_log_that_goes_on_behind_a_torn_end_is_found_and_mended() {
    let fsck = Fsck::available().ok();
    let chip: Chip = Arc::new(Mutex::new(SMALL.formatted()));
    let mut writer = open(volume(&chip)).expect("it opens");
    create(&mut writer, "file", &[1; 3000]);
    writer.fsync().expect("it syncs");
    drop(writer);
    let expected = read(&chip);
    tear_log(&chip);
    assert_whole(&chip, "torn");
    let lebs = Ubifs::open(volume(&chip), OpenOptions::standard()).expect("it is a file system");
    start_commits(&chip, lebs.superblock().log_lebs - 2);
    let findings = check(&*volume(&chip)).findings;
    assert!(
        findings.len() == 1 && findings[0].area == Area::Log,
        "{findings:?}"
    );
    if let Some(fsck) = &fsck {
        let judged = fsck_of(fsck, &chip);
        assert!(!judged.clean, "{}", judged.text);
    }
    let (chip, found) = recovered(&chip, "gone on");
    assert_eq!(found, expected);
    if let Some(fsck) = &fsck {
        assert_whole_for_linux(fsck, &chip, "mended");
    }
}
