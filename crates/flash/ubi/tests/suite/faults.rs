//! Bit-flips, failing programs and erases, and wear: data moves, blocks are retired, and a device without good blocks
//! reports it.

use std::sync::{Arc, Mutex};

use media::{Leb, Nand, NandGeometry, Page, Peb};
use nand::{ChipModel, CutPoint, Failing, FaultModel, Pairing, SimNand};
use testkit::prng::Prng;
use ubi::format::VolumeKind;
use ubi::format::volume_table::VolumeName;
use ubi::{
    Access, AttachOptions, FormatOptions, Layout, NewVolume, SizeInLebs, Ubi, UbiVolume, Volume, VolumeError,
    VolumeId, Work, scan,
};

type Chip = Arc<Mutex<SimNand>>;

fn chip(faults: FaultModel) -> Chip {
    let geometry = NandGeometry::new(512, 8, 64).and_then(|geometry| geometry.with_subpage(128));
    let model = ChipModel::new(geometry.expect("a geometry"));
    Arc::new(Mutex::new(SimNand::new("chip", model, faults)))
}

fn formatted(chip: &Chip, lebs: u32) -> (Ubi, UbiVolume) {
    let options = FormatOptions {
        layout: Layout::usual(&chip.geometry()).expect("a layout"),
        image_sequence: 1,
        erase_counter: None,
    };
    let ubi = Ubi::format(Arc::clone(chip), options, &mut |_| {}).expect("formatted");
    let new = NewVolume {
        id: None,
        name: VolumeName::new(b"data").expect("a name"),
        kind: VolumeKind::Dynamic,
        size: SizeInLebs::Exactly(lebs),
        alignment: 1,
        autoresize: false,
        skip_check: false,
    };
    let id = ubi.make_volume(new).expect("room for it");
    let volume = ubi.open(id).expect("it is there");
    (ubi, volume)
}

fn first_page(volume: &UbiVolume, leb: u32) -> Result<Vec<u8>, VolumeError> {
    let mut out = vec![0; 512];
    volume.read(Leb(leb), 0, &mut out).map(|()| out)
}

fn peb_of(ubi: &Ubi, leb: usize) -> Peb {
    ubi.mapping(VolumeId(0))[leb].expect("mapped")
}

fn writes(chip: &Chip) -> u64 {
    chip.lock().expect("no panic").supply().writes()
}

#[test]
fn data_on_flipping_bits_moves_once_it_was_read() {
    let chip = chip(FaultModel::none());
    let (ubi, volume) = formatted(&chip, 8);
    volume.write(Leb(2), 0, &[0x42; 1024]).unwrap();
    let from = peb_of(&ubi, 2);
    chip.lock().unwrap().inject_bit_flips(from, Page(2), 3);
    let mut out = [0; 1024];
    volume.read(Leb(2), 0, &mut out).unwrap();
    assert_eq!(ubi.summary().blocks_to_scrub, 1);
    let mut moved = None;
    for _ in 0..100 {
        if let Work::Scrubbed { from, to } = ubi.work().unwrap() {
            moved = Some((from, to));
        }
    }
    assert_eq!(moved.map(|(from, _)| from), Some(from));
    assert_eq!(moved.map(|(_, to)| to), Some(peb_of(&ubi, 2)));
    volume.read(Leb(2), 0, &mut out).unwrap();
    assert_eq!(out, [0x42; 1024]);
}

#[test]
fn data_that_cant_be_read_is_an_error_and_stays_where_it_is() {
    let chip = chip(FaultModel::none());
    let (ubi, volume) = formatted(&chip, 8);
    volume.write(Leb(2), 0, &[0x42; 1024]).unwrap();
    let peb = peb_of(&ubi, 2);
    chip.lock().unwrap().inject_bit_flips(peb, Page(1), 3);
    first_page(&volume, 2).unwrap();
    chip.lock().unwrap().inject_bit_flips(peb, Page(2), 40);
    let error = volume.read(Leb(2), 512, &mut [0; 512]).unwrap_err();
    assert!(matches!(error, VolumeError::Uncorrectable { .. }), "{error}");
    let mut steps = Vec::new();
    for _ in 0..100 {
        steps.push(ubi.work().unwrap());
    }
    assert!(steps.contains(&Work::Unmovable(peb)));
    assert_eq!(steps.last(), Some(&Work::Idle));
    assert_eq!(peb_of(&ubi, 2), peb);
}

/// A moved LEB is written to, and a page of the moved part becomes unreadable before the old block is erased. The new block was taken for an
/// interrupted copy and the old one for the LEB, so later writes read as 0xFF.
#[test]
fn damage_of_a_moved_leb_that_was_written_to_since_is_no_interrupted_copy() {
    let chip = chip(FaultModel::none());
    let (ubi, volume) = formatted(&chip, 8);
    volume.write(Leb(2), 0, &[0x42; 1024]).unwrap();
    ubi.settle().unwrap();
    chip.lock().unwrap().inject_bit_flips(peb_of(&ubi, 2), Page(2), 3);
    volume.read(Leb(2), 0, &mut [0; 1024]).unwrap();
    while !matches!(ubi.work().unwrap(), Work::Scrubbed { .. }) {}
    volume.write(Leb(2), 1024, &[0x43; 512]).unwrap();
    let peb = peb_of(&ubi, 2);
    drop((ubi, volume));
    chip.lock().unwrap().inject_bit_flips(peb, Page(2), 40);
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let scanned = scan(Arc::clone(&chip), AttachOptions::linux(access)).unwrap();
        let ubi = scanned.attach().unwrap();
        assert_eq!(peb_of(&ubi, 2), peb, "{access:?}");
        let volume = ubi.open(VolumeId(0)).unwrap();
        assert_eq!(first_page(&volume, 2).unwrap(), [0x42; 512]);
        let error = volume.read(Leb(2), 512, &mut [0; 512]).unwrap_err();
        assert!(matches!(error, VolumeError::Uncorrectable { .. }), "{error}");
        let mut out = [0; 512];
        volume.read(Leb(2), 1024, &mut out).unwrap();
        assert_eq!(out, [0x43; 512]);
    }
}

#[test]
fn a_write_survives_the_failure_of_each_of_its_programs() {
    for failing in 0..4 {
        for start in [0, 1024] {
            let chip = chip(FaultModel::none());
            let (ubi, volume) = formatted(&chip, 8);
            volume.write(Leb(1), 0, &[1; 1024]).unwrap();
            let leb = if start == 0 { 2 } else { 1 };
            let next = writes(&chip);
            chip.lock().unwrap().fail_write(next + failing);
            volume.write(Leb(leb), start, &[2; 1536]).unwrap();
            ubi.settle().unwrap();
            let again = scan(Arc::clone(&chip), AttachOptions::linux(Access::ReadWrite)).unwrap();
            let again = again.attach().unwrap();
            let volume = again.open(VolumeId(0)).unwrap();
            let mut out = [0; 2560];
            volume.read(Leb(leb), 0, &mut out).unwrap();
            let at = usize::try_from(start).unwrap();
            assert!(
                out[..at].iter().all(|byte| *byte == 1),
                "write {failing} at {start}"
            );
            assert_eq!(out[at..at + 1536], [2; 1536], "write {failing} at {start}");
        }
    }
}

#[test]
fn a_block_whose_erase_fails_retires_and_takes_one_that_was_kept_back() {
    let chip = chip(FaultModel::none());
    let (ubi, volume) = formatted(&chip, 8);
    volume.leb_change(Leb(0), &[1; 512]).unwrap();
    let old = peb_of(&ubi, 0);
    volume.leb_change(Leb(0), &[2; 512]).unwrap();
    let before = ubi.summary();
    let failing = Failing {
        program_at: None,
        erases: true,
    };
    chip.lock().unwrap().set_failing(old, failing).unwrap();
    let mut retired = None;
    for _ in 0..20 {
        if let Work::Retired(peb) = ubi.work().unwrap() {
            retired = Some(peb);
        }
    }
    assert_eq!(retired, Some(old));
    let after = ubi.summary();
    assert_eq!(after.bad_blocks, before.bad_blocks + 1);
    assert_eq!(after.bad_block_reserve + 1, before.bad_block_reserve);
    assert_eq!(after.frozen, None);
}

#[test]
fn a_chip_that_wears_out_keeps_its_data_and_goes_read_only_with_a_reason() {
    for seed in 0..5 {
        let faults = FaultModel {
            program_failures_ppm: 1500,
            erase_failures_ppm: 4000,
            ..FaultModel::seeded(seed)
        };
        let chip = chip(faults);
        let (ubi, volume) = formatted(&chip, 40);
        let mut prng = Prng::named(seed, "wearing out");
        let mut known = vec![None; 40];
        let mut failed = None;
        for round in 0..200_000_u32 {
            let leb = prng.below_usize(40);
            let data = round.to_le_bytes().repeat(128);
            match volume.leb_change(Leb(u32::try_from(leb).unwrap()), &data) {
                Ok(()) => known[leb] = Some(data),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
            if ubi.work().is_err() {
                break;
            }
        }
        let reason = ubi.frozen().unwrap_or_else(|| panic!("seed {seed}: {failed:?}"));
        assert!(reason.contains("went bad"), "seed {seed}: {reason}");
        assert!(ubi.summary().bad_blocks >= 2, "seed {seed}");
        let reader = scan(Arc::clone(&chip), AttachOptions::linux(Access::ReadOnly)).unwrap();
        let reader = reader.attach().unwrap();
        for volume in [volume, reader.open(VolumeId(0)).unwrap()] {
            for (leb, known) in (0..).zip(&known) {
                if let Some(known) = known {
                    assert_eq!(
                        &first_page(&volume, leb).unwrap(),
                        known,
                        "seed {seed}: LEB {leb}"
                    );
                }
            }
        }
    }
}

/// Regression: the device became read-only, and a file system on it could not be mounted for writing after a kill.
#[test]
fn a_page_that_a_power_cut_used_up_and_left_blank_is_written_elsewhere() {
    let chip = chip(FaultModel::none());
    let (ubi, volume) = formatted(&chip, 8);
    volume.write(Leb(2), 0, &[0x42; 512]).unwrap();
    let supply = chip.lock().unwrap().supply().clone();
    supply.cut_at_write(supply.writes(), CutPoint::Partway(3));
    let mut data = [0x43; 512];
    data[..3].fill(0xFF);
    volume.write(Leb(2), 512, &data).expect_err("power goes");
    supply.power_on();
    drop((volume, ubi));
    let attach = || {
        let scanned = scan(Arc::clone(&chip), AttachOptions::linux(Access::ReadWrite)).unwrap();
        scanned.attach().unwrap()
    };
    let ubi = attach();
    let volume = ubi.open(VolumeId(0)).unwrap();
    let mut read = [0; 1024];
    volume.read(Leb(2), 0, &mut read).unwrap();
    assert_eq!(
        read,
        [[0x42; 512], [0xFF; 512]].concat()[..],
        "the page is not blank"
    );
    volume.write(Leb(2), 512, &data).expect("another block takes it");
    // A page with data is protected as before.
    volume
        .write(Leb(2), 0, &[0x44; 512])
        .expect_err("it is written already");
    drop((volume, ubi));
    let ubi = attach();
    ubi.open(VolumeId(0)).unwrap().read(Leb(2), 0, &mut read).unwrap();
    assert_eq!(read, [[0x42; 512], data].concat()[..]);
    assert_eq!(ubi.summary().bad_blocks, 0);
}

/// On chips with paired pages UBI cannot keep all acknowledged data, which is why Linux refuses them; it must at
/// least report the loss.
#[test]
fn on_paired_pages_a_power_cut_may_take_an_acknowledged_page_and_it_is_reported() {
    let geometry = NandGeometry::new(512, 16, 64).and_then(|geometry| geometry.with_subpage(128));
    let model = ChipModel::new(geometry.unwrap())
        .with_pairing(Pairing::Mlc)
        .unwrap();
    let chip = Arc::new(Mutex::new(SimNand::new("mlc", model, FaultModel::none())));
    let (ubi, volume) = formatted(&chip, 8);
    // The headers are in page 0, so the first data page is page 1 of the block, which is paired with page 4.
    volume.write(Leb(2), 0, &[0x42; 3 * 512]).unwrap();
    let supply = chip.lock().unwrap().supply().clone();
    supply.cut_at_write(supply.writes(), CutPoint::Partway(100));
    volume
        .write(Leb(2), 3 * 512, &[0x43; 512])
        .expect_err("power goes");
    supply.power_on();
    drop((volume, ubi));
    let scanned = scan(Arc::clone(&chip), AttachOptions::linux(Access::ReadWrite)).unwrap();
    let ubi = scanned.attach().unwrap();
    let volume = ubi.open(VolumeId(0)).unwrap();
    assert!(matches!(
        first_page(&volume, 2),
        Err(VolumeError::Uncorrectable { .. })
    ));
    let mut others = [0; 1024];
    volume.read(Leb(2), 512, &mut others).unwrap();
    assert_eq!(others, [0x42; 1024]);
}
