//! Files that go with their extended attributes: a mount after a power cut finds the values by their entries in the index, so these
//! stay on the medium until the next commit is done.

mod support {
    pub mod cut_again;
    #[expect(dead_code, reason = "the script and other judges are for other tests")]
    pub mod rig;
}

use std::sync::{Arc, Mutex};

use nand::PowerCut;
use support::cut_again::{
    Eager, assert_whole, assert_whole_for_linux, copy, create, each_cut, recover, recovered, volume, writes,
};
use support::rig::{Chip, SMALL, lines_of, open};
use testkit::lab::Fsck;
use testkit::prng::Prng;
use ubifs::format::{InodeNumber, ROOT_INODE};
use ubifs::mkfs::Time;
use ubifs::{WriteError, Writer};

fn set_xattrs(writer: &mut Writer, inode: InodeNumber, count: u32) {
    for number in 0..count {
        let value = Prng::new(number.into()).bytes(3000);
        let set = writer.set_xattr(
            inode,
            format!("trusted.{number}").as_bytes(),
            &value,
            Time::default(),
        );
        set.expect("there is room");
    }
}

fn unlink(writer: &mut Writer, name: &[u8]) {
    let removed = writer.unlink(ROOT_INODE, name, Time::default());
    removed.expect("it is there");
}

/// A file system with a file, and nothing else in the LEBs that have it; the journal goes on elsewhere.
fn prepared(writer: &mut Writer) {
    create(writer, "kept", &[1; 9000]);
    let passing = create(writer, "passing", &[]);
    set_xattrs(writer, passing, 6);
    let gone = create(writer, "gone", &[]);
    set_xattrs(writer, gone, 15);
    let behind = create(writer, "behind", &[]);
    set_xattrs(writer, behind, 6);
    unlink(writer, b"passing");
    unlink(writer, b"behind");
    writer.commit().expect("it commits");
}

#[test]
fn values_of_a_removed_file_go_though_power_goes_in_the_recovery() {
    let fsck = Fsck::available().ok();
    let chip: Chip = Arc::new(Mutex::new(SMALL.formatted()));
    let mut writer = open(volume(&chip)).expect("it opens");
    prepared(&mut writer);
    unlink(&mut writer, b"gone");
    writer.fsync().expect("it syncs");
    let expected = lines_of(writer.read());
    drop(writer);
    let count = each_cut(&chip, &recover, &mut |again, cut| {
        let what = format!("cut {cut}");
        assert_whole(again, &what);
        if let Some(fsck) = &fsck {
            assert_whole_for_linux(fsck, again, &what);
        }
        assert_eq!(recovered(again, &what).1, expected, "{what}");
    });
    assert!(count > 4, "only {count} writes");
}

/// Fills it up, so that the next change needs what the removed file had.
fn filled(writer: &mut Writer) {
    let mut prng = Prng::new(1);
    for number in 0.. {
        let made = writer.create(
            ROOT_INODE,
            format!("fill {number}").as_bytes(),
            &support::cut_again::NEW_FILE,
            Time::default(),
        );
        let written = made.and_then(|inode| writer.write(inode, 0, &prng.bytes(7000), Time::default()));
        match written {
            Ok(7000) => {}
            Ok(_) | Err(WriteError::NoSpace { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    writer.commit().expect("it commits");
}

/// What is done while power may go.
fn replace(writer: &mut Writer) -> Result<(), WriteError> {
    writer.unlink(ROOT_INODE, b"gone", Time::default())?;
    for number in 0..6 {
        let name = format!("new {number}");
        let made = writer.create(
            ROOT_INODE,
            name.as_bytes(),
            &support::cut_again::NEW_FILE,
            Time::default(),
        )?;
        writer.write(made, 0, &Prng::new(number).bytes(4000), Time::default())?;
        writer.fsync()?;
    }
    Ok(())
}

#[test]
fn values_of_a_removed_file_go_though_its_space_is_wanted_at_once() {
    let start: Chip = Arc::new(Mutex::new(SMALL.formatted()));
    let begun = |chip: &Chip| {
        let mut writer = open(Eager::of(chip).expect("it attaches")).expect("it opens");
        prepared(&mut writer);
        filled(&mut writer);
        writer
    };
    let uncut = copy(&start);
    let mut writer = begun(&uncut);
    let (first, reclaimed) = (writes(&uncut), writer.statistics().reclaimed_lebs);
    replace(&mut writer).expect("there is room");
    assert!(
        writer.statistics().reclaimed_lebs > reclaimed,
        "the space was not wanted"
    );
    drop(writer);
    assert_whole(&uncut, "without a cut");
    for cut in first..writes(&uncut) {
        let what = format!("cut {}", cut - first);
        let chip = copy(&start);
        let mut writer = begun(&chip);
        let supply = chip.lock().expect("no panic").supply().clone();
        supply.plan(PowerCut::of_write(cut, usize::try_from(cut % 5).expect("few")));
        // The outcome is power's.
        let _ = replace(&mut writer);
        assert!(supply.is_off(), "{what}: power did not go");
        drop(writer);
        supply.power_on();
        assert_whole(&chip, &what);
        recovered(&chip, &what);
    }
}
