//! A chip in a file on a host that crashes: an erase must not reach the medium before the writes that precede it.

use crate::support::hosted_chip::HostedChip;
use media::{Leb, Nand, NandGeometry};
use nand::{ChipModel, FaultModel, SimNand};
use ubi::format::VolumeKind;
use ubi::format::volume_table::VolumeName;
use ubi::{
    Access, AttachOptions, FormatOptions, Layout, NewVolume, SizeInLebs, Ubi, UbiVolume, Volume, VolumeId,
    Work, scan,
};

const LEBS: u32 = 16;

type Device = (Ubi, UbiVolume);

/// A chip with a volume whose LEBs each hold a page with their number, all synced.
fn formatted() -> HostedChip {
    let geometry = NandGeometry::new(512, 8, 64).expect("a geometry");
    let chip = SimNand::new("chip", ChipModel::new(geometry), FaultModel::none());
    let chip = HostedChip::new(chip);
    let options = FormatOptions {
        layout: Layout::usual(&geometry).expect("a layout"),
        image_sequence: 1,
        erase_counter: None,
    };
    let ubi = Ubi::format(chip.clone(), options, &mut |_| {}).expect("formatted");
    let new = NewVolume {
        id: None,
        name: VolumeName::new(b"data").expect("a name"),
        kind: VolumeKind::Dynamic,
        size: SizeInLebs::Exactly(LEBS),
        alignment: 1,
        autoresize: false,
        skip_check: false,
    };
    let id = ubi.make_volume(new).expect("room for it");
    let volume = ubi.open(id).expect("it is there");
    for leb in 0..LEBS {
        volume.write(Leb(leb), 0, &page_of(leb)).expect("it takes writes");
    }
    ubi.settle().expect("it takes writes");
    chip
}

fn page_of(leb: u32) -> [u8; 512] {
    [u8::try_from(leb + 1).expect("few"); 512]
}

fn attach(chip: &HostedChip) -> Device {
    let options = AttachOptions::linux(Access::ReadWrite);
    let ubi = scan(chip.clone(), options).expect("it can be read").attach();
    let ubi = ubi.expect("it attaches");
    let volume = ubi.open(VolumeId(0)).expect("it is there");
    (ubi, volume)
}

/// The first byte of each LEB.
fn contents(chip: &HostedChip) -> Vec<u8> {
    let (_ubi, volume) = attach(chip);
    let first = |leb| {
        let mut out = [0; 512];
        volume.read(Leb(leb), 0, &mut out).expect("it can be read");
        assert!(out.iter().all(|byte| *byte == out[0]), "LEB {leb}");
        out[0]
    };
    (0..LEBS).map(first).collect()
}

fn work_until_idle(ubi: &Ubi) {
    while ubi.work().expect("the device works") != Work::Idle {}
}

/// The block with the old content was erased while the new content was still in the host's page cache.
#[test]
fn after_a_crash_of_the_host_each_leb_has_its_old_content_or_its_new_one() {
    let chip = formatted();
    let (ubi, volume) = attach(&chip);
    for leb in 0..LEBS {
        volume
            .leb_change(Leb(leb), &[0x77; 512])
            .expect("it takes writes");
        if leb % 3 == 0 {
            work_until_idle(&ubi);
        }
    }
    // No background work: writes erase the blocks they need.
    for round in 0..200_u32 {
        let leb = round % LEBS;
        volume
            .leb_change(Leb(leb), &[0x78; 512])
            .expect("it takes writes");
        for programs in [0, 1, 7, chip.unsynced_programs()] {
            for (leb, found) in (0..).zip(contents(&HostedChip::new(chip.crashed(programs)))) {
                let known = [page_of(leb)[0], 0x77, 0x78];
                assert!(
                    known.contains(&found),
                    "round {round}, {programs} programs: LEB {leb} has {found:#x}"
                );
            }
        }
    }
}

/// The header of the new block was on disk and hid the old block, whose copy was still in the host's page cache.
#[test]
fn what_moved_out_of_a_leb_is_there_before_the_leb_is_mapped_anew() {
    for is_mapped_first in [true, false] {
        let chip = formatted();
        let (_ubi, volume) = attach(&chip);
        for round in 0..4 * LEBS {
            let (from, to) = (round % LEBS, (round + 1) % LEBS);
            // Moves the content of one LEB to the next, and then gives that LEB other content.
            let mut content = [0; 512];
            volume.read(Leb(from), 0, &mut content).expect("it can be read");
            volume.leb_change(Leb(to), &content).expect("it takes writes");
            volume.unmap(Leb(from)).expect("it takes writes");
            if is_mapped_first {
                volume.map(Leb(from)).expect("it takes writes");
            }
            volume.write(Leb(from), 0, &[0x77; 512]).expect("it takes writes");
            let all = chip.unsynced_programs();
            for first in 0..=all {
                let left = chip.crashed_with(&mut |program| program >= first);
                let found = contents(&HostedChip::new(left));
                let what = format!("round {round}, programs from {first} of {all}: {found:?}");
                let places = [from, to].map(|leb| found[usize::try_from(leb).expect("few")]);
                assert!(places.contains(&content[0]), "{what}");
            }
            // The former content of that LEB does not matter.
            volume.sync().expect("the host works");
            volume
                .leb_change(Leb(from), &page_of(from))
                .expect("it takes writes");
            volume.leb_change(Leb(to), &page_of(to)).expect("it takes writes");
            volume.sync().expect("the host works");
        }
    }
}

/// The header of the new block was in the page cache, and a later write that refers to the LEB was on disk: the old
/// content reappeared.
#[test]
fn what_a_leb_held_does_not_come_back_behind_something_that_was_written_later() {
    let chip = formatted();
    let (_ubi, volume) = attach(&chip);
    let leads = Leb(0);
    volume.leb_change(leads, &[0x70; 512]).expect("it takes writes");
    volume.sync().expect("the host works");
    for leb in 1..LEBS {
        volume.unmap(Leb(leb)).expect("it takes writes");
        volume.map(Leb(leb)).expect("it takes writes");
        let place = 512 * (leb % 5 + 1);
        if leb % 5 == 0 {
            volume.leb_change(leads, &[0x70; 512]).expect("it takes writes");
            volume.sync().expect("the host works");
        }
        volume.write(leads, place, &[0x71; 512]).expect("it takes writes");
        let all = chip.unsynced_programs();
        for first in 0..=all {
            let left = HostedChip::new(chip.crashed_with(&mut |program| program >= first));
            let (_ubi, volume) = attach(&left);
            let (mut led, mut found) = ([0; 512], [0; 512]);
            volume.read(leads, place, &mut led).expect("it can be read");
            volume.read(Leb(leb), 0, &mut found).expect("it can be read");
            assert!(
                led[0] == 0xFF || found[0] == 0xFF,
                "LEB {leb}, programs from {first} of {all}: {:#x}",
                found[0]
            );
        }
    }
}

/// One sync after the erases is enough, whichever operation requested it.
#[test]
fn a_leb_that_was_erased_before_a_sync_is_mapped_without_another_one() {
    let chip = formatted();
    let (ubi, volume) = attach(&chip);
    for is_synced in [false, true] {
        for leb in 0..LEBS {
            volume.unmap(Leb(leb)).expect("it takes writes");
        }
        if is_synced {
            work_until_idle(&ubi);
            volume.sync().expect("the host works");
        }
        let before = chip.syncs();
        for leb in 0..LEBS {
            volume.write(Leb(leb), 0, &page_of(leb)).expect("it takes writes");
        }
        let expected = if is_synced { 0 } else { 2 };
        assert_eq!(chip.syncs() - before, expected, "{is_synced}");
    }
}

#[test]
fn blocks_that_were_let_go_before_a_sync_are_erased_without_another_one() {
    let chip = formatted();
    let (ubi, volume) = attach(&chip);
    for leb in 0..LEBS {
        volume
            .leb_change(Leb(leb), &[0x77; 512])
            .expect("it takes writes");
    }
    volume.sync().expect("the host works");
    let before = chip.syncs();
    work_until_idle(&ubi);
    assert_eq!(chip.syncs(), before, "they were synced");
    // One sync covers all queued blocks.
    for leb in 0..LEBS {
        volume
            .leb_change(Leb(leb), &[0x78; 512])
            .expect("it takes writes");
    }
    let before = chip.syncs();
    work_until_idle(&ubi);
    assert_eq!(chip.syncs(), before + 1, "they were not synced");
}

/// The host reports a lost write only once; here the eraser received that report.
#[test]
fn after_a_sync_that_failed_nothing_is_erased_and_no_sync_succeeds() {
    let chip = formatted();
    let (ubi, volume) = attach(&chip);
    volume.leb_change(Leb(1), &[0x77; 512]).expect("it takes writes");
    chip.fail_syncs(1);
    let error = ubi.work().expect_err("the host fails").to_string();
    assert!(error.contains("fdatasync"), "{error}");
    assert!(
        ubi.frozen().is_some_and(|why| why.contains("fdatasync")),
        "{:?}",
        ubi.frozen()
    );
    let error = volume.sync().expect_err("something is lost").to_string();
    assert!(error.contains("fdatasync"), "{error}");
    assert_eq!(contents(&HostedChip::new(chip.crashed(0)))[1], page_of(1)[0]);
}

/// A crash can lose the VID header of a block and keep its data, so that the block passes for free. Regression: after
/// four such blocks in a row, the device was read-only.
#[test]
fn data_without_a_header_in_all_free_blocks_is_erased_when_they_are_needed() {
    let chip = formatted();
    for peb in chip.geometry().pebs() {
        let mut data = [0; 6 * 512];
        let _ = chip.clone().read(peb, 1024, &mut data).expect("in range");
        let mut header = [0; 512];
        let _ = chip.clone().read(peb, 512, &mut header).expect("in range");
        if header.iter().chain(&data).all(|byte| *byte == 0xFF) {
            chip.clone().program(peb, 3 * 512, &[0x5A; 512]).expect("erased");
        }
    }
    let (ubi, volume) = attach(&chip);
    for leb in 0..LEBS {
        volume
            .leb_change(Leb(leb), &page_of(leb))
            .expect("it takes writes");
    }
    assert_eq!(ubi.frozen(), None);
    drop((ubi, volume));
    assert_eq!(
        contents(&chip),
        (0..LEBS).map(|leb| page_of(leb)[0]).collect::<Vec<u8>>()
    );
}
