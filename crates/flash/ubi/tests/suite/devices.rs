//! Volumes are created, written, changed, and found again at the next attach.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};

use media::{Leb, Nand, NandGeometry, RamNand};
use ubi::format::VolumeKind;
use ubi::format::volume_table::VolumeName;
use ubi::{
    Access, AttachOptions, FormatOptions, Layout, MemberVolume, NewVolume, SizeInLebs, Ubi, UbiVolume,
    Volume, VolumeError, VolumeId, VolumeTableError, Work, scan,
};

type Chip = Arc<Mutex<RamNand>>;

fn generation(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).expect("generations begin at 1")
}

fn chip() -> Chip {
    let geometry = NandGeometry::new(512, 8, 64)
        .and_then(|geometry| geometry.with_subpage(128))
        .expect("the chip of this test works");
    Arc::new(Mutex::new(RamNand::new("chip", geometry)))
}

fn format(chip: &Chip) -> Ubi {
    let layout = Layout::usual(&chip.geometry()).expect("the chip of this test works");
    let options = FormatOptions {
        layout,
        image_sequence: 77,
        erase_counter: None,
    };
    Ubi::format(Arc::clone(chip), options, &mut |_| {}).expect("the chip of this test works")
}

fn attach(chip: &Chip) -> Ubi {
    let options = AttachOptions::linux(Access::ReadWrite);
    scan(Arc::clone(chip), options)
        .expect("the chip of this test works")
        .attach()
        .expect("the chip of this test works")
}

fn name(text: &str) -> VolumeName {
    VolumeName::new(text.as_bytes()).expect("the chip of this test works")
}

fn dynamic(text: &str, lebs: u32) -> NewVolume {
    NewVolume {
        id: None,
        name: name(text),
        kind: VolumeKind::Dynamic,
        size: SizeInLebs::Exactly(lebs),
        alignment: 1,
        autoresize: false,
        skip_check: false,
    }
}

fn content(volume: &UbiVolume, leb: u32) -> Vec<u8> {
    let mut out = vec![
        0;
        volume
            .geometry()
            .leb_bytes
            .try_into()
            .expect("the chip of this test works")
    ];
    volume
        .read(Leb(leb), 0, &mut out)
        .expect("the chip of this test works");
    out
}

#[test]
fn what_was_written_is_there_after_the_next_attach() {
    let chip = chip();
    let ubi = format(&chip);
    let id = ubi.make_volume(dynamic("data", 10)).unwrap();
    let volume = ubi.open(id).unwrap();
    volume.write(Leb(3), 0, &[1; 512]).unwrap();
    volume.write(Leb(3), 512, &[2; 1024]).unwrap();
    volume.leb_change(Leb(4), &[3; 512]).unwrap();
    volume.leb_change(Leb(4), &[4; 1024]).unwrap();
    volume.map(Leb(5)).unwrap();

    let again = attach(&chip);
    let volume = again.open(again.volume_named("data").unwrap()).unwrap();
    let third = content(&volume, 3);
    assert_eq!(third[..512], [1; 512]);
    assert_eq!(third[512..1536], [2; 1024]);
    assert!(third[1536..].iter().all(|byte| *byte == 0xFF));
    assert_eq!(content(&volume, 4)[..1024], [4; 1024]);
    let mapped: Vec<bool> = (0..10).map(|leb| volume.is_mapped(Leb(leb)).unwrap()).collect();
    assert_eq!(mapped.iter().filter(|mapped| **mapped).count(), 3);
    assert!(content(&volume, 9).iter().all(|byte| *byte == 0xFF));
}

#[test]
fn names_are_exchanged_at_once_and_volumes_resized_and_removed() {
    let chip = chip();
    let ubi = format(&chip);
    let one = ubi.make_volume(dynamic("one", 5)).unwrap();
    let two = ubi.make_volume(dynamic("two", 5)).unwrap();
    ubi.rename_volumes(&[(one, name("two")), (two, name("one"))])
        .unwrap();
    let clash = ubi.rename_volumes(&[(one, name("one"))]);
    assert!(matches!(clash, Err(VolumeTableError::NameTaken { volume, .. }) if volume == two));
    ubi.open(one).unwrap().write(Leb(4), 0, &[9; 512]).unwrap();
    ubi.resize_volume(one, SizeInLebs::Exactly(3)).unwrap();
    ubi.resize_volume(two, SizeInLebs::Exactly(7)).unwrap();

    let again = attach(&chip);
    let sizes: Vec<_> = again
        .volumes()
        .into_iter()
        .map(|volume| {
            (
                volume.record.name.to_string(),
                volume.record.reserved_pebs,
                volume.mapped_lebs,
            )
        })
        .collect();
    assert_eq!(sizes, [("two".to_owned(), 3, 0), ("one".to_owned(), 7, 0)]);
    again.remove_volume(one).unwrap();
    assert_eq!(attach(&chip).volumes().len(), 1);
}

#[test]
fn a_static_volume_is_written_by_an_update_alone_and_knows_its_size() {
    let chip = chip();
    let ubi = format(&chip);
    let new = NewVolume {
        kind: VolumeKind::Static,
        ..dynamic("boot", 4)
    };
    let id = ubi.make_volume(new).unwrap();
    let data: Vec<u8> = (0..9000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let mut update = ubi.update(id, 9000).unwrap();
    data.chunks(700).for_each(|part| update.write(part).unwrap());
    update.finish().unwrap();
    let refused = ubi.open(id).unwrap().write(Leb(0), 0, &[0; 512]);
    assert!(matches!(refused, Err(VolumeError::Unusable { .. })));

    let again = attach(&chip);
    assert_eq!(again.volumes()[0].data_bytes, 9000);
    let volume = again.open(id).unwrap();
    let all: Vec<u8> = (0..3).flat_map(|leb| content(&volume, leb)).collect();
    assert_eq!(all[..9000], data);
}

#[test]
fn an_update_that_does_not_end_leaves_the_volume_marked_until_one_does() {
    let chip = chip();
    let ubi = format(&chip);
    let id = ubi.make_volume(dynamic("data", 4)).unwrap();
    let mut update = ubi.update(id, 2000).unwrap();
    update.write(&[1; 1500]).unwrap();
    drop(update);
    let again = attach(&chip);
    let read = again.open(id).unwrap().read(Leb(0), 0, &mut [0; 16]);
    assert!(matches!(read, Err(VolumeError::Unusable { .. })), "{read:?}");
    let mut update = again.update(id, 512).unwrap();
    update.write(&[7; 512]).unwrap();
    update.finish().unwrap();
    assert_eq!(content(&again.open(id).unwrap(), 0)[..512], [7; 512]);
}

#[test]
fn a_prepared_change_is_the_owners_to_choose_at_the_next_attach() {
    let chip = chip();
    let ubi = format(&chip);
    let id = ubi.make_volume(dynamic("member", 4)).unwrap();
    let volume = ubi.open(id).unwrap();
    volume.map_with_generation(Leb(1), generation(5)).unwrap();
    volume.write(Leb(1), 0, &[5; 512]).unwrap();
    let prepared = volume.prepare_change(Leb(1), &[6; 1024], generation(6)).unwrap();
    assert_eq!(content(&volume, 1)[..512], [5; 512]);
    assert!(matches!(
        volume.write(Leb(1), 512, &[0; 512]),
        Err(VolumeError::ChangePending { .. })
    ));
    assert_eq!(volume.generation(Leb(1)).unwrap(), Some(5));

    let options = AttachOptions::linux(Access::ReadWrite);
    let mut scanned = scan(Arc::new(Mutex::new(chip.lock().unwrap().clone())), options).unwrap();
    let lebs: Vec<_> = scanned.lebs(VolumeId(0)).collect();
    let (leb, candidates) = &lebs[0];
    let generations: Vec<u64> = candidates.iter().map(|candidate| candidate.generation).collect();
    assert_eq!((*leb, generations), (Leb(1), vec![6, 5]));
    assert!(candidates[0].chosen && scanned.is_whole(&candidates[0]).unwrap());
    scanned.choose(id, Leb(1), candidates[1].peb).unwrap();
    let older = scanned.attach().unwrap();
    older.settle().unwrap();
    assert_eq!(content(&older.open(id).unwrap(), 1)[..512], [5; 512]);

    volume.commit_change(prepared);
    assert_eq!(content(&volume, 1)[..1024], [6; 1024]);
    assert_eq!(volume.generation(Leb(1)).unwrap(), Some(6));
}

#[test]
fn wear_levelling_moves_data_that_never_changes() {
    let chip = chip();
    let ubi = format(&chip);
    let id = ubi.make_volume(dynamic("data", 8)).unwrap();
    let volume = ubi.open(id).unwrap();
    volume.write(Leb(7), 0, &[0xAB; 512]).unwrap();
    drop((volume, ubi));
    let options = AttachOptions {
        wear_threshold: 16,
        ..AttachOptions::linux(Access::ReadWrite)
    };
    let ubi = scan(Arc::clone(&chip), options).unwrap().attach().unwrap();
    let volume = ubi.open(id).unwrap();
    let mut levelled = 0;
    for round in 0..4000_u32 {
        volume.leb_change(Leb(round % 3), &[1; 512]).unwrap();
        while let Work::Levelled { .. } | Work::Erased(_) = match ubi.work().unwrap() {
            work @ Work::Levelled { .. } => {
                levelled += 1;
                work
            }
            work => work,
        } {}
    }
    let wear = ubi.summary().wear;
    assert!(levelled > 0);
    assert!(wear.highest - wear.lowest <= 2 * 16 + 2, "{wear:?}");
    assert_eq!(content(&volume, 7)[..512], [0xAB; 512]);
}

#[test]
fn a_read_only_attach_never_writes() {
    let chip = chip();
    let ubi = format(&chip);
    let id = ubi.make_volume(dynamic("data", 4)).unwrap();
    let volume = ubi.open(id).unwrap();
    volume.write(Leb(0), 0, &[1; 512]).unwrap();
    volume.leb_change(Leb(0), &[2; 512]).unwrap();
    let reader = scan(Arc::clone(&chip), AttachOptions::linux(Access::ReadOnly)).unwrap();
    let reader = reader.attach().unwrap();
    let volume = reader.open(id).unwrap();
    assert_eq!(content(&volume, 0)[..512], [2; 512]);
    assert!(matches!(
        volume.write(Leb(1), 0, &[1; 512]),
        Err(VolumeError::ReadOnly { .. })
    ));
    reader.work().expect_err("nothing may be erased");
}

#[test]
fn memory_stays_below_what_was_promised() {
    let geometry = NandGeometry::new(2048, 64, 8192).unwrap();
    let chip: Chip = Arc::new(Mutex::new(RamNand::new("chip", geometry)));
    let ubi = format(&chip);
    let all = NewVolume {
        size: SizeInLebs::AllFree,
        ..dynamic("all", 1)
    };
    ubi.make_volume(all).unwrap();
    let bytes = ubi.summary().memory_bytes;
    assert!(bytes <= 8192 * 8 + 300 * 1024, "{bytes}");
    let attached = attach(&chip).summary().memory_bytes;
    assert!(attached <= 8192 * 8 + 300 * 1024, "{attached}");
}

#[test]
fn a_moved_block_with_a_damaged_page_stays_the_leb() {
    let chip = chip();
    let ubi = format(&chip);
    let id = ubi.make_volume(dynamic("data", 4)).unwrap();
    let volume = ubi.open(id).unwrap();
    volume.leb_change(Leb(2), &[7; 2048]).unwrap();
    ubi.settle().unwrap();
    let peb = ubi.mapping(id)[2].unwrap();
    drop((volume, ubi));
    // The block written last is the only one of its LEB, as after every move; its second page gets damaged.
    let offset = 512 + 512;
    let damaged = Arc::new(Mutex::new(with_damage(&chip, peb, offset)));
    let ubi = attach(&damaged);
    let bytes = content(&ubi.open(id).unwrap(), 2);
    assert_eq!(bytes[..512], [7; 512]);
    assert_ne!(bytes[512], 7);
    assert_eq!(bytes[513..2048], [7; 1535]);
    ubi.settle().unwrap();
    drop(ubi);
    let ubi = attach(&damaged);
    assert_eq!(content(&ubi.open(id).unwrap(), 2)[513..2048], [7; 1535]);
}

/// A copy of the chip with one byte changed.
fn with_damage(chip: &Chip, peb: media::Peb, offset: u32) -> RamNand {
    let mut source = chip.lock().expect("the chip of this test works");
    let geometry = source.geometry();
    let mut copy = RamNand::new("chip", geometry);
    let block_bytes = usize::try_from(geometry.block_bytes()).expect("the chip of this test works");
    for from in geometry.pebs() {
        let mut block = vec![0; block_bytes];
        let _ = source
            .read(from, 0, &mut block)
            .expect("the chip of this test works");
        if from == peb {
            block[usize::try_from(offset).expect("the chip of this test works")] ^= 0x55;
        }
        let programmed = block
            .iter()
            .rposition(|byte| *byte != 0xFF)
            .map_or(0, |last| (last + 1).next_multiple_of(128));
        copy.program(from, 0, &block[..programmed])
            .expect("the chip of this test works");
    }
    copy
}
