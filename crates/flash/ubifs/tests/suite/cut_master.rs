//! Power cuts while the master node is written to its two LEBs, and again while a recovery makes them equal. Linux
//! selects the current master node by position and refuses to mount other combinations.

use std::sync::{Arc, Mutex};

use crate::support::cut_again::{
    NEW_FILE, assert_whole, assert_whole_for_linux, copy, create, each_cut, fsck_of, recover, recovered,
    volume,
};
use crate::support::rig::{Chip, SMALL, attach, open};
use media::Leb;
use testkit::lab::Fsck;
use ubi::{Volume, VolumeError};
use ubifs::format::{MASTER_DIRTY, MASTER_LEB, MASTER_RECOVERED, Master, ROOT_INODE};
use ubifs::mkfs::Time;

/// Written content of both master LEBs.
fn masters(volume: &dyn Volume) -> [Vec<u8>; 2] {
    [MASTER_LEB, MASTER_LEB + 1].map(|leb| {
        let mut raw = vec![0; usize::try_from(volume.geometry().leb_bytes).expect("small")];
        match volume.read(Leb(leb), 0, &mut raw) {
            Ok(()) | Err(VolumeError::Uncorrectable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        let end = raw.iter().rposition(|byte| *byte != 0xFF);
        raw.truncate(end.map_or(0, |end| end + 1).next_multiple_of(512));
        raw
    })
}

/// The last master node of each LEB, with the length of the written part.
fn last_masters(chip: &Chip) -> [Option<(usize, Master)>; 2] {
    masters(&*volume(chip)).map(|raw| {
        let last = raw.chunks(512).next_back()?;
        ubifs::format::check(last).ok()?;
        Some((raw.len(), Master::decode(last).ok()?))
    })
}

/// A file system committed until its master LEBs hold the given number of nodes.
fn used(masters_written: usize) -> Chip {
    let chip: Chip = Arc::new(Mutex::new(SMALL.formatted()));
    let mut writer = open(volume(&chip)).expect("it opens");
    create(&mut writer, "file", &[5; 9000]);
    for number in 0.. {
        writer.commit().expect("it commits");
        if masters(&*volume(&copy(&chip)))[0].len() == masters_written * 512 {
            break;
        }
        assert!(number < 100, "it does not come to that place");
        let touched = writer.set_attributes(ROOT_INODE, &|inode| inode.user = number);
        touched.expect("there is room");
    }
    drop(writer);
    chip
}

/// Mounts, changes, commits and unmounts: four master nodes.
fn use_it(chip: &Chip) {
    let run = || {
        let mut writer = open(attach(chip).ok()?).ok()?;
        let made = writer.create(ROOT_INODE, b"another", &NEW_FILE, Time::default());
        made.ok()?;
        writer.commit().ok()?;
        writer.unmount().ok()
    };
    // The result is ignored: power may go.
    let _: Option<()> = run();
}

#[test]
fn a_cut_in_a_recovery_leaves_master_nodes_that_linux_explains() {
    let full = testkit::is_full();
    let fsck = Fsck::available().ok();
    // The LEBs have room for 30.
    let places: Vec<usize> = match full {
        true => vec![2, 9, 16, 27, 28, 29, 30],
        false => vec![9, 28],
    };
    let (mut seconds, mut shown) = (0, 0);
    for place in places {
        let start = used(place);
        each_cut(&start, &use_it, &mut |chip, first| {
            let what = format!("{place} master nodes, cut {first}");
            let [one, two] = last_masters(chip);
            // Otherwise a recovery does not touch them.
            if one == two && one.is_some() && !full {
                return;
            }
            assert_whole(chip, &what);
            let (_, expected) = recovered(chip, &what);
            seconds += each_cut(chip, &recover, &mut |again, second| {
                let what = format!("{what}, cut {second} of the recovery");
                assert_whole(again, &what);
                let is_shown =
                    last_masters(again) != last_masters(chip) && shown < if full { 1000 } else { 20 };
                if let Some(fsck) = fsck.as_ref().filter(|_| is_shown) {
                    shown += 1;
                    assert_whole_for_linux(fsck, again, &what);
                }
                let (_, found) = recovered(again, &what);
                assert_eq!(found, expected, "{what}");
            });
        });
    }
    assert!(seconds > 200, "only {seconds} second cuts");
    assert!(fsck.is_none() || shown > 10, "only {shown} shown to fsck.ubifs");
}

/// Linux flags the nodes that a recovery writes to both LEBs; the next master node must not have the flag.
#[test]
fn a_master_node_of_a_recovery_is_followed_by_one_of_none() {
    let chip = used(7);
    let volume = volume(&chip);
    let [one, two] = masters(&*volume);
    // The second LEB lacks the last node.
    let changed = volume.leb_change(Leb(MASTER_LEB + 1), &two[..two.len() - 512]);
    changed.expect("it takes it");
    drop(volume);
    let last = Master::decode(&one[one.len() - 512..]).expect("a master node");
    drop(open(crate::support::cut_again::volume(&chip)).expect("it opens"));
    let [one, two] = masters(&*crate::support::cut_again::volume(&chip));
    assert_eq!(one.len(), 2 * 512, "that of the recovery, and that of its commit");
    assert_eq!(one.len(), two.len());
    for raw in [one, two] {
        let first = Master::decode(&raw[..512]).expect("a master node");
        assert_eq!(
            first,
            Master {
                flags: last.flags | MASTER_RECOVERED,
                ..last.clone()
            }
        );
        let second = Master::decode(&raw[512..]).expect("a master node");
        assert_eq!(second.flags & (MASTER_RECOVERED | MASTER_DIRTY), MASTER_DIRTY);
    }
}

/// The flag stays if power goes in Linux before it writes the next master node; and if power goes between the two
/// LEBs, the second one still has its old content.
#[test]
fn what_a_recovery_of_linux_left_is_gone_on_from() {
    let chip = used(7);
    let (_, expected) = recovered(&chip, "whole");
    let start = volume(&chip);
    let [one, two] = masters(&*start);
    let last = Master::decode(&one[one.len() - 512..]).expect("a master node");
    let sequence = ubifs::format::check(&one[one.len() - 512..])
        .expect("a node")
        .sequence;
    let flagged = Master {
        flags: last.flags | MASTER_RECOVERED,
        ..last
    }
    .encode(sequence);
    let behind: [&[u8]; 5] = [&flagged, &two, &two[..two.len() - 512], &two[..512], &[]];
    for (number, second) in behind.into_iter().enumerate() {
        let what = format!("second LEB {number}");
        let chip = copy(&chip);
        let volume = volume(&chip);
        volume.leb_change(Leb(MASTER_LEB), &flagged).expect("it takes it");
        volume
            .leb_change(Leb(MASTER_LEB + 1), second)
            .expect("it takes it");
        drop(volume);
        assert_whole(&chip, &what);
        assert_eq!(recovered(&chip, &what).1, expected, "{what}");
        each_cut(&chip, &recover, &mut |again, cut| {
            let what = format!("{what}, cut {cut}");
            assert_whole(again, &what);
            assert_eq!(recovered(again, &what).1, expected, "{what}");
        });
    }
}

/// Both master LEBs.
type Pair = [Vec<u8>; 2];

#[test]
fn master_nodes_where_no_cut_leaves_them_are_found() {
    let chip = used(7);
    let fsck = Fsck::available().ok();
    let [all, _] = masters(&*volume(&chip));
    let last = all[all.len() - 512..].to_vec();
    let first = |slots: usize| all[..slots * 512].to_vec();
    let flagged = Master {
        flags: Master::decode(&last).expect("a master node").flags | MASTER_RECOVERED,
        ..Master::decode(&last).expect("a master node")
    }
    .encode(ubifs::format::check(&last).expect("a node").sequence);
    // Copies of the last node.
    let of_last = |slots: usize| last.repeat(slots);
    let torn = |mut raw: Vec<u8>| {
        raw.extend([0x31, 0x18, 0x10, 0x06, 7]);
        raw.resize(raw.len().next_multiple_of(512), 0);
        raw
    };
    let explained: [(&str, Pair); 10] = [
        ("both the same", [first(7), first(7)]),
        ("the second behind", [first(7), first(6)]),
        ("the second torn", [first(7), torn(first(6))]),
        ("the first torn", [torn(first(7)), first(7)]),
        ("begun anew", [last.clone(), of_last(30)]),
        ("the first unmapped", [Vec::new(), of_last(30)]),
        ("the second unmapped", [last.clone(), Vec::new()]),
        ("recovered", [flagged.clone(), flagged.clone()]),
        ("half recovered", [flagged.clone(), first(6)]),
        (
            "recovered, the next one torn",
            [torn(flagged.clone()), flagged.clone()],
        ),
    ];
    let unexplained: [(&str, Pair); 9] = [
        ("the second made anew first", [first(7), last.clone()]),
        ("the first made anew without the flag", [last.clone(), first(7)]),
        ("the second two behind", [first(7), first(5)]),
        ("the first behind", [first(6), first(7)]),
        ("the first empty", [Vec::new(), first(7)]),
        ("the second empty", [first(7), Vec::new()]),
        ("the first torn, the second behind", [torn(first(7)), first(6)]),
        ("two torn", [torn(torn(first(7))), first(7)]),
        (
            "half recovered, the next one torn",
            [torn(flagged.clone()), first(7)],
        ),
    ];
    let explained = explained.into_iter().map(|case| (true, case));
    let unexplained = unexplained.into_iter().map(|case| (false, case));
    for (is_explained, (what, pair)) in explained.chain(unexplained) {
        let chip = copy(&chip);
        let volume = volume(&chip);
        for (leb, raw) in (MASTER_LEB..).map(Leb).zip(&pair) {
            volume.leb_change(leb, raw).expect("it takes it");
        }
        let findings = ubifs::check::check(&*volume).findings;
        assert_eq!(findings.is_empty(), is_explained, "{what}: {findings:?}");
        if let Some(fsck) = &fsck {
            let judged = fsck_of(fsck, &chip);
            assert_eq!(judged.clean, is_explained, "{what}: {}", judged.text);
        }
        drop(volume);
        // We mount it in any case, and Linux accepts it afterwards.
        recovered(&chip, what);
    }
}
