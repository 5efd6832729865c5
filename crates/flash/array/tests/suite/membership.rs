//! Membership of an array: swapped, missing, duplicate and foreign devices are refused by name, and nothing is written
//! to them. A member that stops writing freezes the array.

use std::sync::{Arc, Mutex};

use array::{Array, ArrayError, Execution, MemberIdentity, attach, attach_rest, format};
use media::{Leb, Nand, NandGeometry, Peb};
use nand::{ChipModel, FaultModel, SimNand};
use ubi::{Access, AttachOptions, FormatOptions, Layout, Volume, VolumeError};

type Chip = Arc<Mutex<SimNand>>;

fn chip(name: &str, blocks: u32) -> Chip {
    let geometry = NandGeometry::new(512, 8, blocks).expect("a geometry");
    Arc::new(Mutex::new(SimNand::new(
        name,
        ChipModel::new(geometry),
        FaultModel::none(),
    )))
}

fn array_of(prefix: &str, id: u128, members: usize) -> Vec<Chip> {
    let chips: Vec<Chip> = (0..members)
        .map(|member| chip(&format!("{prefix}{member}"), 40))
        .collect();
    let options = FormatOptions {
        layout: Layout::usual(&chips[0].geometry()).expect("a layout"),
        image_sequence: 1,
        erase_counter: None,
    };
    let identity = MemberIdentity {
        array: id,
        index: 0,
        members: 0,
        redundancy: array::Redundancy::None,
        label: prefix.to_owned(),
    };
    format(chips.clone(), options, &identity, &mut |_, _| {}).expect("formatted");
    chips
}

fn open(chips: &[Chip]) -> Result<Array, ArrayError> {
    attach(
        chips.to_vec(),
        AttachOptions::linux(Access::ReadWrite),
        Execution::Inline,
    )
}

fn contents(chips: &[Chip]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for chip in chips {
        let mut chip = chip.lock().expect("no panic").clone();
        for peb in chip.geometry().pebs() {
            let mut block = vec![0; 512 * 8];
            let report = chip.read(peb, 0, &mut block).expect("readable");
            assert!(report.is_correct());
            all.push(block);
        }
    }
    all
}

fn refused(chips: &[Chip]) -> String {
    let before = contents(chips);
    let error = open(chips).expect_err("refused").to_string();
    assert_eq!(contents(chips), before, "a refused array was written to");
    error
}

#[test]
fn an_array_says_who_it_is_and_how_large() {
    let array = open(&array_of("boot", 0xB, 3)).expect("attached");
    assert_eq!(
        (array.identity().label.as_str(), array.identity().members),
        ("boot", 3)
    );
    let (whole, member) = (array.volume().geometry(), array.devices()[0].volumes()[0].clone());
    assert_eq!(whole.leb_bytes, 3 * member.leb_bytes);
    assert_eq!((whole.min_io_bytes, whole.max_write_bytes), (512, 1536));
    assert_eq!(whole.lebs, member.record.reserved_pebs);
}

#[test]
fn swapped_members_are_refused_with_the_right_order() {
    let mut chips = array_of("data", 1, 3);
    chips.swap(0, 2);
    let text = refused(&chips);
    assert!(
        text.contains("data2 is member 2") && text.contains("given as member 0"),
        "{text}"
    );
    assert!(text.contains("data0 data1 data2"), "{text}");
}

#[test]
fn a_missing_member_is_named() {
    let mut chips = array_of("data", 1, 4);
    chips.remove(2);
    let text = refused(&chips);
    assert!(
        text.contains("has 4 members, but 3 devices") && text.contains("missing: member 2"),
        "{text}"
    );
}

#[test]
fn the_rest_of_an_array_is_read_with_holes_and_never_written() {
    let chips = array_of("data", 1, 3);
    let array = open(&chips).expect("attached");
    let row: Vec<u8> = [[1; 512], [2; 512], [3; 512]].concat();
    array.volume().write(Leb(4), 0, &row).expect("written");
    array.close().expect("closed");
    drop(array);
    let rest = vec![Arc::clone(&chips[2]), Arc::clone(&chips[0])];
    let before = contents(&chips);
    let array = attach_rest(rest, Execution::Inline).expect("any member is enough");
    assert_eq!(array.absent_places(), [1]);
    let mut out = vec![9; 2 * row.len()];
    let error = array.volume().read(Leb(4), 0, &mut out).expect_err("a hole");
    assert!(matches!(error, VolumeError::Uncorrectable { .. }), "{error}");
    assert_eq!(out[..row.len()], [[1; 512], [0; 512], [3; 512]].concat());
    array
        .volume()
        .read(Leb(4), 1024, &mut out[..512])
        .expect("a page of the last one");
    assert_eq!(out[..512], [3; 512]);
    array
        .volume()
        .read(Leb(5), 0, &mut out)
        .expect("nothing was written there");
    assert!(out.iter().all(|byte| *byte == 0xFF));
    array
        .volume()
        .write(Leb(6), 0, &row)
        .expect_err("it is for reading");
    drop(array);
    assert_eq!(contents(&chips), before, "a rest was written to");
}

#[test]
fn a_member_of_another_array_is_named() {
    let mut chips = array_of("data", 1, 2);
    chips[1] = Arc::clone(&array_of("media", 2, 2)[1]);
    let text = refused(&chips);
    assert!(
        text.contains("media1 belongs to array") && text.contains("(media)"),
        "{text}"
    );
}

#[test]
fn a_copy_of_a_member_is_named() {
    let mut chips = array_of("data", 1, 2);
    let copy = chips[0].lock().expect("no panic").clone();
    chips[1] = Arc::new(Mutex::new(copy));
    let text = refused(&chips);
    assert!(text.contains("both member 0 of array data"), "{text}");
}

#[test]
fn a_ubi_device_that_is_no_member_and_a_blank_one_are_refused() {
    let mut chips = array_of("data", 1, 2);
    let name = ubi::format::volume_table::VolumeName::new(b"rootfs").expect("a name");
    let scanned = ubi::scan(Arc::clone(&chips[1]), AttachOptions::linux(Access::ReadWrite)).expect("scanned");
    let device = scanned.attach().expect("attached");
    device
        .rename_volumes(&[(ubi::VolumeId(0), name)])
        .expect("renamed");
    drop(device);
    assert!(refused(&chips).contains("\"rootfs\" is no member of an array"));
    chips[1] = chip("blank", 40);
    assert!(refused(&chips).contains("blank: all 40 blocks are blank"));
    chips[1] = chip("odd", 41);
    assert!(refused(&chips).contains("odd"));
    assert!(matches!(open(&[]), Err(ArrayError::Count { found: 0 })));
}

#[test]
fn a_member_that_goes_read_only_freezes_all_and_nothing_more_is_acknowledged() {
    let chips = array_of("data", 1, 3);
    let array = open(&chips).expect("attached");
    let volume = array.volume();
    volume.write(Leb(0), 0, &[7; 3 * 512]).expect("all works");
    let member = volume.members().nth(1).expect("three members");
    member.freeze("a test froze it");
    let error = volume.write(Leb(1), 0, &[8; 512]).expect_err("frozen");
    assert!(matches!(error, VolumeError::ReadOnly { .. }), "{error}");
    let reason = volume.frozen().expect("a reason");
    assert!(
        reason.contains("data1") && reason.contains("a test froze it"),
        "{reason}"
    );
    for member in volume.members() {
        assert!(member.frozen().is_some(), "{} goes on alone", member.name());
    }
    let mut out = [0; 3 * 512];
    volume.read(Leb(0), 0, &mut out).expect("reading goes on");
    assert_eq!(out, [7; 3 * 512]);
    assert!(!volume.is_mapped(Leb(1)).expect("in range"));
}

#[test]
fn a_block_that_wears_out_on_one_member_costs_nothing_of_the_whole() {
    let chips = array_of("data", 1, 2);
    let array = open(&chips).expect("attached");
    for leb in 0..4_u8 {
        let data = vec![leb + 1; 2 * 6 * 512];
        array
            .volume()
            .write(Leb(leb.into()), 0, &data[..2 * 512])
            .expect("written");
        let mut member = chips[1].lock().expect("no panic");
        let next = member.supply().writes();
        member.fail_write(next);
        drop(member);
        array
            .volume()
            .write(Leb(leb.into()), 2 * 512, &data[2 * 512..])
            .expect("moved to another block");
    }
    array.settle().expect("settled");
    drop(array);
    let array = open(&chips).expect("attached again");
    for leb in 0..4_u8 {
        let mut out = vec![0; 2 * 6 * 512];
        array
            .volume()
            .read(Leb(leb.into()), 0, &mut out)
            .expect("readable");
        assert!(out.iter().all(|byte| *byte == leb + 1), "LEB {leb}");
    }
}

#[test]
fn members_with_bad_blocks_of_their_own_give_the_smallest_number_of_lebs() {
    let chips = [chip("good", 40), chip("worn", 40)];
    for peb in [3, 9, 17] {
        chips[1]
            .lock()
            .expect("no panic")
            .mark_bad(Peb(peb))
            .expect("marked");
    }
    let options = FormatOptions {
        layout: Layout::usual(&chips[0].geometry()).expect("a layout"),
        image_sequence: 1,
        erase_counter: None,
    };
    let identity = MemberIdentity {
        array: 9,
        index: 0,
        members: 0,
        redundancy: array::Redundancy::None,
        label: "x".to_owned(),
    };
    format(chips.to_vec(), options, &identity, &mut |_, _| {}).expect("formatted");
    let array = open(&chips).expect("attached");
    let lebs = |member: usize| array.devices()[member].volumes()[0].record.reserved_pebs;
    assert!(lebs(0) >= lebs(1));
    assert_eq!(array.volume().geometry().lebs, lebs(1));
    for leb in (0..lebs(1)).map(Leb) {
        array
            .volume()
            .write(leb, 0, &[1; 1024])
            .expect("every LEB can be written");
    }
}
