//! A journal as Linux leaves it where power goes while it commits and writes on, or before it has written inodes that grew: power goes
//! again in our recovery.

mod support {
    pub mod cut_again;
    pub mod linux_journal;
    #[expect(dead_code, reason = "the script and other judges are for other tests")]
    pub mod rig;
}

use std::sync::{Arc, Mutex};

use support::cut_again::{
    assert_whole, assert_whole_for_linux, copy, create, each_cut, recover, recovered, volume,
};
use support::linux_journal::{add_bud, start_commits};
use support::rig::{Chip, Lines, SMALL, lines_of, open};
use testkit::lab::Fsck;
use ubifs::format::{Data, Group, InodeNumber, Key};
use ubifs::{OpenOptions, Ubifs};

const DATA_HEAD: u32 = 2;

/// What a mount would recover.
fn read(chip: &Chip) -> Lines {
    let ubifs = Ubifs::open(volume(&copy(chip)), OpenOptions::standard()).expect("it is a file system");
    assert!(ubifs.findings().is_empty(), "{:?}", ubifs.findings());
    lines_of(&ubifs)
}

/// The first block of a file.
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

/// Everything is there, whether or not power goes in the recovery, for us and for Linux.
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

/// Once Linux has started a commit, new LEBs of the journal are named behind its start, also in the last LEB of the log. That LEB was
/// erased for the commit of the recovery, and until it was done nothing else named them.
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

/// Linux writes inodes that grew some time after their data. A recovery that had to commit before it had written all of them left the others
/// with their old sizes.
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
