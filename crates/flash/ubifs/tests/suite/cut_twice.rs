//! Power goes again before the commit of a recovery, or it went in Linux in the middle of a commit: the next mount
//! starts from the same journal, index and orphans, of which nothing may be missing or be reported as damage.

use std::sync::{Arc, Mutex};

use crate::support::cut_again::{assert_whole, create, each_cut, recover, recovered, volume};
use crate::support::rig::{Chip, SMALL, lines_of, open};
use media::Leb;
use testkit::prng::Prng;
use ubi::Volume;
use ubifs::format::{CommitStart, Data, Group, Key, LOG_LEB, LogReference, ROOT_INODE};
use ubifs::mkfs::Time;
use ubifs::{OpenOptions, Ubifs, Writer};

#[test]
fn files_without_a_name_are_removed_however_often_power_goes_while_they_are() {
    let chip: Chip = Arc::new(Mutex::new(SMALL.formatted()));
    let mut writer = open(volume(&chip)).expect("it opens");
    let mut prng = Prng::new(7);
    create(&mut writer, "kept", &prng.bytes(9000));
    let gone = create(&mut writer, "gone", &prng.bytes(20_000));
    let mut fill = |writer: &mut Writer, inode, numbers: std::ops::Range<u32>| {
        for number in numbers {
            let (name, value) = (format!("trusted.{number}"), prng.bytes(3000));
            let set = writer.set_xattr(inode, name.as_bytes(), &value, Time::default());
            set.expect("there is room");
        }
    };
    fill(&mut writer, gone, 0..5);
    writer.commit().expect("it commits");
    writer.hold(gone);
    let removed = writer.unlink(ROOT_INODE, b"gone", Time::default());
    removed.expect("it is there");
    // Ensure that the LEB with its inode holds no other live node.
    let passing = create(&mut writer, "passing", &[]);
    fill(&mut writer, passing, 0..8);
    let removed = writer.unlink(ROOT_INODE, b"passing", Time::default());
    removed.expect("it is there");
    create(&mut writer, "kept as well", &[3; 3000]);
    writer.commit().expect("it commits");
    drop(writer);
    let (_, expected) = recovered(&chip, "without another cut");
    assert_eq!(expected.len(), 3, "{expected:?}");
    let count = each_cut(&chip, &recover, &mut |chip, cut| {
        let what = format!("cut {cut}");
        assert_whole(chip, &what);
        assert_eq!(recovered(chip, &what).1, expected, "{what}");
    });
    assert!(count > 4, "only {count} writes");
}

/// Linux continues to write to the journal during a commit: the log then references the heads a second time, behind
/// the commit start, and the last write of a head may be torn.
#[test]
fn a_head_that_is_named_again_by_an_unfinished_commit_may_be_torn() {
    let chip: Chip = Arc::new(Mutex::new(SMALL.formatted()));
    let mut writer = open(volume(&chip)).expect("it opens");
    let content = Prng::new(7).bytes(3000);
    let inode = create(&mut writer, "file", &content);
    writer.fsync().expect("it syncs");
    let expected = lines_of(writer.read());
    drop(writer);
    let volume = volume(&chip);
    let ubifs = Ubifs::open(Arc::clone(&volume), OpenOptions::standard()).expect("it is a file system");
    let superblock = ubifs.superblock().clone();
    let report = ubifs.replay_report();
    let unit = usize::try_from(superblock.min_io_bytes).expect("small");
    let mut sequence = report.sequence_max;
    let mut raw = CommitStart {
        commit: ubifs.master().commit + 1,
    }
    .encode(sequence + 1);
    let mut last = None;
    for bud in &report.buds {
        let mut content = vec![0; usize::try_from(superblock.leb_bytes).expect("small")];
        volume
            .read(Leb(bud.leb), 0, &mut content)
            .expect("it can be read");
        let end = content
            .iter()
            .rposition(|byte| *byte != 0xFF)
            .expect("it is written");
        let offset = u32::try_from((end + 1).next_multiple_of(unit)).expect("small");
        let reference = LogReference {
            leb: bud.leb,
            offset,
            head: bud.head,
        };
        sequence += 1;
        raw.extend_from_slice(&reference.encode(sequence + 1));
        if bud.head == 2 {
            last = Some((bud.leb, offset));
        }
    }
    let next = report.log_lebs.last().expect("it has a log") + 1;
    let next = if next == LOG_LEB + superblock.log_lebs {
        LOG_LEB
    } else {
        next
    };
    raw.resize(raw.len().next_multiple_of(unit), ubifs::format::PADDING_BYTE);
    volume.unmap(Leb(next)).expect("it takes it");
    volume.write(Leb(next), 0, &raw).expect("it takes it");
    let block = Data {
        key: Key::data(inode, 0),
        size_bytes: 3000,
        compression: 0,
        compressed_bytes: 0,
        stored: vec![1; 3000],
    };
    let mut torn = block.encode(sequence + 2, Group::None);
    torn.truncate(unit);
    let (leb, offset) = last.expect("there is a head for data");
    volume.write(Leb(leb), offset, &torn).expect("it takes it");
    drop((volume, ubifs));
    assert_whole(&chip, "cut");
    let writer = open(self::volume(&chip)).expect("it opens");
    assert_eq!(lines_of(writer.read()), expected);
    writer.unmount().expect("it unmounts");
    assert_whole(&chip, "unmounted");
}
