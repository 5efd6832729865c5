//! Arrays with parity: any one member fails, at any moment, with or without a simultaneous power cut. Everything
//! acknowledged remains readable, writes continue, and a rebuilt member is equal to the others, even if its rebuild was
//! cut.

use std::sync::{Arc, Mutex};

use crate::model::{LEBS, Model, ROWS, holds, row_bytes, settle, used};
use crate::support::{
    BLOCKS, Chip, PAGE, VID_PAGE, blank_chips, damage, formatted, on_supply, open, read, taken, try_open,
};
use array::{Array, ArrayError, Execution, NewMember, Redundancy, with_new_member};
use media::{Leb, Nand, Peb};
use nand::{CutPoint, CutTime, PowerCut, PowerSupply, SimNand};
use testkit::prng::Prng;
use ubi::{Access, Volume, VolumeError, VolumeId};

/// The way in which a member is lost.
#[derive(Clone, Copy, Debug)]
enum Gone {
    NotGiven,
    Blank,
    Older,
}

/// The chips without one member, or with its replacement.
fn without(chips: &[Chip], member: usize, gone: Gone, older: &[SimNand], supply: &PowerSupply) -> Vec<Chip> {
    let mut left = chips.to_vec();
    let replaced = |chip: SimNand| Arc::new(Mutex::new(chip.with_supply(supply)));
    match gone {
        Gone::NotGiven => {
            left.remove(member);
        }
        Gone::Blank => left[member] = replaced(blank_chips(member + 1).remove(member)),
        Gone::Older => left[member] = replaced(older[member].clone()),
    }
    left
}

fn rebuild(
    chips: &[Chip],
    place: usize,
    new: Chip,
    progress: &mut dyn FnMut(Leb),
) -> Result<Array, ArrayError> {
    let mut others = chips.to_vec();
    others.remove(place);
    let new = NewMember {
        device: Box::new(new),
        place,
        image_sequence: 7,
        progress: &mut |_| {},
    };
    let array = with_new_member(others, new, Execution::Inline)?;
    let rebuilt = array.rebuild(progress)?;
    assert_eq!(rebuilt.incomplete, []);
    Ok(array)
}

/// One member is lost at a moment chosen by `seed`.
fn a_member_goes(members: usize, seed: u64) {
    let what = format!("{members} members, seed {seed}");
    let mut prng = Prng::named(seed, "parity");
    let prng = &mut prng;
    let supply = PowerSupply::new();
    let chips = on_supply(&formatted(members, Redundancy::Parity), &supply);
    let mut model = Model::default();
    let array = open(&chips);
    used(&array, &mut model, prng, 20);
    drop(array);
    let older = taken(&chips);
    let array = open(&chips);
    let is_cut = !seed.is_multiple_of(3);
    if is_cut {
        supply.plan(PowerCut {
            time: CutTime::Write(supply.writes() + prng.below(120), CutPoint::Partway(150)),
            torn_is_uncorrectable: seed.is_multiple_of(2),
        });
    }
    used(&array, &mut model, prng, 40);
    if seed.is_multiple_of(5) {
        let _ = array.close();
    }
    drop(array);
    supply.power_on();
    let member = usize::try_from(prng.below(u64::try_from(members).expect("few"))).expect("few");
    let gone = [Gone::NotGiven, Gone::Blank, Gone::Older][usize::try_from(prng.below(3)).expect("few")];
    let what = format!("{what}, member {member} {gone:?}");
    let left = without(&chips, member, gone, &older, &supply);
    let looked = supply.writes();
    let array = try_open(&left, Access::ReadOnly).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(array.absent().map(|absent| absent.place), Some(member), "{what}");
    holds(&array, &model, &format!("{what}, for reading"));
    drop(array);
    assert_eq!(
        supply.writes(),
        looked,
        "{what}: attached for reading, and written to"
    );
    let array = try_open(&left, Access::ReadWrite).unwrap_or_else(|error| panic!("{what}: {error}"));
    holds(&array, &model, &what);
    settle(&array, &mut model, prng);
    used(&array, &mut model, prng, 20);
    holds(&array, &model, &format!("{what}, used"));
    if seed.is_multiple_of(2) {
        array.close().expect("nothing fails");
    }
    drop(array);
    // The member that was absent is stale.
    let array = try_open(&chips, Access::ReadOnly).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(array.absent().map(|absent| absent.place), Some(member), "{what}");
    holds(&array, &model, &format!("{what}, with the stale member"));
    drop(array);
    let new = on_supply(&blank_chips(member + 1)[member..], &supply).remove(0);
    if seed % 4 == 1 {
        supply.plan(PowerCut {
            time: CutTime::Write(supply.writes() + prng.below(300), CutPoint::Partway(150)),
            torn_is_uncorrectable: seed.is_multiple_of(2),
        });
        let _ = rebuild(&chips, member, Arc::clone(&new), &mut |_| {});
        supply.power_on();
        let mut mixed = chips.clone();
        mixed[member] = Arc::clone(&new);
        let array = try_open(&mixed, Access::ReadWrite);
        let array = array.unwrap_or_else(|error| panic!("{what}, cut: {error}"));
        holds(&array, &model, &format!("{what}, the rebuild was cut"));
        used(&array, &mut model, prng, 5);
        drop(array);
    }
    let rebuilt = rebuild(&chips, member, Arc::clone(&new), &mut |_| {});
    let mut whole = chips;
    whole[member] = new;
    let array = match rebuilt {
        // The rebuild before had ended, or was ended by the use.
        Err(ArrayError::NoneAbsent { .. }) if seed % 4 == 1 => open(&whole),
        rebuilt => rebuilt.unwrap_or_else(|error| panic!("{what}: {error}")),
    };
    holds(&array, &model, &format!("{what}, rebuilt"));
    used(&array, &mut model, prng, 5);
    array.close().expect("nothing fails");
    drop(array);
    let array = open(&whole);
    assert_eq!(array.absent(), None, "{what}");
    assert_eq!(array.volume().lost_shares(), [], "{what}");
    holds(&array, &model, &format!("{what}, whole again"));
    for leb in 0..LEBS {
        let found = array.volume().mend(Leb(leb)).expect("readable");
        assert_eq!(
            found,
            array::Mended::default(),
            "{what}: LEB {leb} does not fit its parity"
        );
    }
    drop(array);
    for other in 0..members {
        let left = without(&whole, other, Gone::NotGiven, &[], &supply);
        let array = try_open(&left, Access::ReadOnly).unwrap_or_else(|error| panic!("{what}: {error}"));
        holds(&array, &model, &format!("{what}, then without {other}"));
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "`--nocapture` shows how many there were")]
fn any_one_member_may_go_at_any_moment() {
    let moments = if testkit::is_full() { 5000 } else { 60 };
    for seed in 0..moments {
        a_member_goes([3, 4, 5][usize::try_from(seed % 3).expect("few")], seed / 3);
    }
    println!("{moments} moments");
}

fn filled(members: usize) -> Vec<SimNand> {
    let chips = on_supply(&formatted(members, Redundancy::Parity), &PowerSupply::new());
    let array = open(&chips);
    for leb in 0..LEBS {
        let data = vec![u8::try_from(leb).expect("few"); ROWS * row_bytes(members)];
        array.volume().write(Leb(leb), 0, &data).expect("room");
    }
    array.close().expect("nothing fails");
    drop(array);
    taken(&chips)
}

#[test]
fn one_damaged_page_of_each_row_is_read_and_mended() {
    for members in [3, 4] {
        let chips = on_supply(&filled(members), &PowerSupply::new());
        let array = open(&chips);
        for (member, chip) in chips.iter().enumerate() {
            let peb = array.devices()[member].mapping(VolumeId(0))[3].expect("mapped");
            // A different row on each member.
            damage(chip, peb, VID_PAGE + 1 + u32::try_from(member).expect("few"));
        }
        assert_eq!(read(&array, 3), vec![3; ROWS * row_bytes(members)]);
        let mended = array.volume().mend(Leb(3)).expect("it follows from the others");
        assert_eq!(mended.mended.len(), members);
        assert_eq!(mended.lost_pages, 0);
        assert_eq!(read(&array, 3), vec![3; ROWS * row_bytes(members)]);
        let again = array.volume().mend(Leb(3)).expect("readable");
        assert_eq!(again, array::Mended::default());
    }
}

#[test]
fn two_damaged_pages_of_a_row_are_told_and_cost_nothing_else() {
    let members = 4;
    let chips = on_supply(&filled(members), &PowerSupply::new());
    let array = open(&chips);
    // The parity of row 0 is on member 3.
    for member in [0, 2] {
        let peb = array.devices()[member].mapping(VolumeId(0))[3].expect("mapped");
        damage(&chips[member], peb, VID_PAGE + 1);
    }
    let volume = array.volume();
    for page in 0..ROWS * (members - 1) {
        let mut bytes = [0; PAGE];
        let offset = u32::try_from(page * PAGE).expect("small");
        match volume.read(Leb(3), offset, &mut bytes) {
            Ok(()) => assert_eq!(bytes, [3; PAGE], "page {page}"),
            Err(VolumeError::Uncorrectable { .. }) => assert!([0, 2].contains(&page), "page {page}"),
            Err(error) => panic!("{error}"),
        }
    }
    let mended = volume.mend(Leb(3)).expect("the rest is readable");
    assert_eq!((mended.lost_pages, mended.mended), (2, Vec::new()));
}

#[test]
fn a_damaged_header_is_made_anew_when_the_array_is_opened() {
    let members = 4;
    for member in 0..members {
        let chips = on_supply(&filled(members), &PowerSupply::new());
        let array = open(&chips);
        let peb = array.devices()[member].mapping(VolumeId(0))[3].expect("mapped");
        drop(array);
        damage(&chips[member], peb, VID_PAGE);
        let array = try_open(&chips, Access::ReadOnly).expect("attached");
        assert_eq!(array.resolution().lost_shares.len(), 1);
        assert_eq!(read(&array, 3), vec![3; ROWS * row_bytes(members)]);
        drop(array);
        let array = open(&chips);
        assert_eq!(array.resolution().lost_shares.len(), 1, "nobody says it");
        assert_eq!(array.volume().lost_shares(), []);
        drop(array);
        let array = open(&chips);
        assert_eq!(array.resolution().lost_shares, []);
        assert_eq!(read(&array, 3), vec![3; ROWS * row_bytes(members)]);
    }
}

/// Regression: the share was taken for one that a power cut kept the member from mapping, and nobody said it.
#[test]
fn a_damaged_header_of_the_leb_mapped_last_is_told_once_a_row_is_in_it() {
    let members = 4;
    let row = row_bytes(members);
    for member in 0..members {
        let chips = on_supply(&formatted(members, Redundancy::Parity), &PowerSupply::new());
        let array = open(&chips);
        array.volume().write(Leb(3), 0, &vec![3; row]).expect("room");
        let peb = array.devices()[member].mapping(VolumeId(0))[3].expect("mapped");
        drop(array);
        damage(&chips[member], peb, VID_PAGE);
        let array = try_open(&chips, Access::ReadOnly).expect("attached");
        let lost: Vec<_> = array.resolution().lost_shares.iter().collect();
        assert!(
            matches!(lost[..], [share] if (share.leb, share.member) == (Leb(3), member)),
            "member {member}: {lost:?}"
        );
        drop(array);
        let array = open(&chips);
        assert_eq!(array.resolution().lost_shares.len(), 1, "member {member}");
        assert_eq!(array.volume().lost_shares(), [], "member {member}");
        assert!(read(&array, 3).starts_with(&vec![3; row]), "member {member}");
    }
}

/// A share of a member is hidden by a damaged header, and power is cut at each write while it is written anew: when
/// the array is opened.
#[test]
fn a_power_cut_while_a_lost_share_is_made_anew_costs_nothing() {
    let members = 4;
    let row = row_bytes(members);
    // Each page differs, and none is erased.
    let expected: Vec<u8> = (0..ROWS * row)
        .map(|at| u8::try_from(at / PAGE + at % 199).expect("few"))
        .collect();
    let filled = on_supply(&formatted(members, Redundancy::Parity), &PowerSupply::new());
    let array = open(&filled);
    array.volume().write(Leb(3), 0, &expected).expect("room");
    array.close().expect("nothing fails");
    let filled_pebs: Vec<_> = array
        .devices()
        .iter()
        .map(|device| device.mapping(VolumeId(0))[3])
        .collect();
    drop(array);
    let filled = taken(&filled);
    let mut cuts = 0;
    for member in 0..members {
        for cut in 0.. {
            let what = format!("member {member}, cut {cut}");
            let supply = PowerSupply::new();
            let chips = on_supply(&filled, &supply);
            damage(&chips[member], filled_pebs[member].expect("mapped"), VID_PAGE);
            supply.plan(PowerCut {
                time: CutTime::Write(supply.writes() + cut / 2, CutPoint::Partway(150)),
                torn_is_uncorrectable: cut % 2 == 0,
            });
            let opened = try_open(&chips, Access::ReadWrite);
            let was_cut = supply.is_off();
            assert!(opened.is_ok() || was_cut, "{what}: {opened:?}");
            drop(opened);
            supply.power_on();
            let array = try_open(&chips, Access::ReadOnly).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(read(&array, 3) == expected, "{what}: after the cut");
            drop(array);
            let array = open(&chips);
            assert!(read(&array, 3) == expected, "{what}: opened again");
            let mended = array.volume().mend(Leb(3)).expect("readable");
            assert_eq!(mended, array::Mended::default(), "{what}");
            array.close().expect("nothing fails");
            drop(array);
            for gone in 0..members {
                let mut left = chips.clone();
                left.remove(gone);
                let array = try_open(&left, Access::ReadOnly).expect("attached");
                assert!(read(&array, 3) == expected, "{what}, then without {gone}");
            }
            if !was_cut {
                break;
            }
            cuts += 1;
        }
    }
    assert!(cuts > 40, "{cuts}");
}

#[test]
fn two_members_may_not_go() {
    let chips = on_supply(&filled(4), &PowerSupply::new());
    let mut left = chips.clone();
    left.remove(0);
    left.remove(2);
    let error = try_open(&left, Access::ReadOnly).expect_err("refused");
    assert!(matches!(error, ArrayError::Missing { .. }), "{error}");
    let array = open(&chips);
    drop(array);
    let error = rebuild(&chips[1..], 0, Arc::clone(&chips[0]), &mut |_| {}).expect_err("refused");
    assert!(matches!(error, ArrayError::Missing { .. }), "{error}");
}

#[test]
fn an_array_without_parity_is_not_rebuilt() {
    let chips = on_supply(&crate::support::array_of(3), &PowerSupply::new());
    let new = on_supply(&blank_chips(1), &PowerSupply::new()).remove(0);
    let error = rebuild(&chips, 1, new, &mut |_| {}).expect_err("refused");
    assert!(matches!(error, ArrayError::NoParity { .. }), "{error}");
}

#[test]
fn a_new_member_has_the_shape_and_the_room_of_the_others() {
    let chips = on_supply(&filled(3), &PowerSupply::new());
    let chip = |pages, blocks| {
        let geometry = media::NandGeometry::new(512, pages, blocks).expect("a geometry");
        let model = nand::ChipModel::new(geometry);
        Arc::new(Mutex::new(SimNand::new("new", model, nand::FaultModel::none())))
    };
    let small = chip(8, 30);
    let program = |peb| small.lock().expect("no panic").program(peb, 0, &[0x5A; PAGE]);
    program(Peb(29)).expect("erased");
    let error = rebuild(&chips, 1, Arc::clone(&small), &mut |_| {}).expect_err("refused");
    assert!(matches!(error, ArrayError::TooSmall { .. }), "{error}");
    let mut kept = [0; PAGE];
    let read = small.lock().expect("no panic").read(Peb(29), 0, &mut kept);
    assert!(
        read.is_ok() && kept == [0x5A; PAGE],
        "a device that is refused was erased"
    );
    let error = rebuild(&chips, 1, chip(16, 40), &mut |_| {}).expect_err("refused");
    assert!(matches!(error, ArrayError::Differs(_)), "{error}");
    let new = chip(8, 40);
    let mut two = chips.clone();
    two[2] = chip(8, 40);
    let error = rebuild(&two, 1, Arc::clone(&new), &mut |_| {}).expect_err("refused");
    assert!(
        matches!(error, ArrayError::Missing { .. } | ArrayError::Attach(_)),
        "{error}"
    );
    rebuild(&chips, 1, new, &mut |_| {}).expect("it fits");
}

#[test]
fn the_one_member_that_is_refused_is_rebuilt_and_not_adopted() {
    let chips = on_supply(&filled(3), &PowerSupply::new());
    let older = taken(&chips);
    drop(open(&chips));
    let supply = PowerSupply::new();
    let mut mixed = on_supply(&taken(&chips), &supply);
    mixed[1] = on_supply(&older, &supply).remove(1);
    let options = ubi::AttachOptions::linux(Access::ReadWrite);
    // Regression: named twice, it was adopted.
    for adopted in [&[1][..], &[1, 1]] {
        let error = array::adopt(mixed.clone(), adopted, options, Execution::Inline).expect_err("refused");
        assert!(
            matches!(error, ArrayError::RebuildInstead { place: 1, .. }),
            "{error}"
        );
    }
    assert_eq!(supply.writes(), 0, "a refused array was written to");
}

/// Regression: the array was used, and nobody said that it has no place for the device.
#[test]
fn a_device_more_than_the_array_has_members_is_refused() {
    let supply = PowerSupply::new();
    let mut chips = on_supply(&filled(3), &supply);
    chips.extend(on_supply(&blank_chips(4)[3..], &supply));
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let error = try_open(&chips, access).expect_err("refused");
        assert!(matches!(error, ArrayError::Attach(_)), "{error}");
    }
    assert_eq!(supply.writes(), 0, "a refused array was written to");
}

/// Regression: it was formatted without a question, and with it the parts that another member lost.
#[test]
fn a_member_without_its_volume_table_is_not_formatted_while_others_lack_what_it_may_have() {
    let supply = PowerSupply::new();
    let chips = on_supply(&filled(3), &supply);
    let array = open(&chips);
    let peb = array.devices()[2].mapping(VolumeId(0))[3].expect("mapped");
    array.close().expect("nothing fails");
    drop(array);
    let is_of_table = |peb: &Peb| {
        let mut header = [0; 12];
        let mut chip = chips[1].lock().expect("no panic");
        let page = VID_PAGE * u32::try_from(PAGE).expect("small");
        let _ = chip.read(*peb, page, &mut header).expect("in range");
        header[8..] == ubi::format::LAYOUT_VOLUME.to_be_bytes()
    };
    let tables: Vec<Peb> = (0..BLOCKS).map(Peb).filter(is_of_table).collect();
    assert!(tables.len() >= 2, "{tables:?}");
    for table in tables {
        damage(&chips[1], table, VID_PAGE + 1);
    }
    let rebuilt = |chips: &[Chip]| rebuild(chips, 1, Arc::clone(&chips[1]), &mut |_| {}).map(drop);
    let lacking = on_supply(&taken(&chips), &supply);
    damage(&lacking[2], peb, VID_PAGE);
    let before = supply.writes();
    let error = rebuilt(&lacking).expect_err("refused");
    assert!(
        matches!(error, ArrayError::StillNeeded { lost: 1, .. }),
        "{error}"
    );
    assert_eq!(supply.writes(), before, "it was written to");
    rebuilt(&chips).expect("the others have all of it");
}

/// Regression: the blank device passed for the absent member, and the member in the place of the new one was formatted.
#[test]
fn a_member_is_not_formatted_because_a_device_too_many_is_given() {
    let members = 4;
    for place in 0..members {
        for among_others in 0..members {
            let supply = PowerSupply::new();
            let chips = on_supply(&filled(members), &supply);
            let mut given = chips.clone();
            given.remove(place);
            let blank = on_supply(&blank_chips(members + 1)[members..], &supply).remove(0);
            given.insert(among_others, blank);
            let new = NewMember {
                device: Box::new(Arc::clone(&chips[place])),
                place,
                image_sequence: 7,
                progress: &mut |_| {},
            };
            let what = format!("member {place}, blank device at {among_others}");
            let opened = with_new_member(given, new, Execution::Inline);
            let error = opened.map(drop).expect_err(&what);
            let is_sound = matches!(error, ArrayError::NoneAbsent { .. });
            assert!(is_sound || place != among_others, "{what}: {error}");
            assert_eq!(supply.writes(), 0, "{what}: {error}");
        }
    }
}

/// A stale member may have the only other copy of what a second member lost.
#[test]
fn a_stale_member_is_not_formatted_while_others_lack_what_it_may_have() {
    let chips = on_supply(&filled(3), &PowerSupply::new());
    let stale = taken(&chips).remove(1);
    let array = open(&chips);
    let peb = array.devices()[2].mapping(VolumeId(0))[3].expect("mapped");
    array.close().expect("nothing fails");
    drop(array);
    damage(&chips[2], peb, VID_PAGE);
    let supply = PowerSupply::new();
    let mut mixed = on_supply(&taken(&chips), &supply);
    mixed[1] = on_supply(std::slice::from_ref(&stale), &supply).remove(0);
    let new = Arc::clone(&mixed[1]);
    let error = rebuild(&mixed, 1, new, &mut |_| {}).expect_err("refused");
    assert!(
        matches!(error, ArrayError::StillNeeded { lost: 1, .. }),
        "{error}"
    );
    let options = ubi::AttachOptions::linux(Access::ReadWrite);
    let error = array::adopt(mixed.clone(), &[1], options, Execution::Inline).expect_err("refused");
    assert!(
        matches!(error, ArrayError::RebuildInstead { lost: 1, .. }),
        "{error}"
    );
    assert!(!error.to_string().contains("nothing is lost"), "{error}");
    assert_eq!(supply.writes(), 0, "a refused array was written to");
    mixed[1] = on_supply(&blank_chips(2), &supply).remove(1);
    let others = [Arc::clone(&mixed[0]), Arc::clone(&mixed[2])];
    let new = NewMember {
        device: Box::new(Arc::clone(&mixed[1])),
        place: 1,
        image_sequence: 7,
        progress: &mut |_| {},
    };
    let array = with_new_member(others.to_vec(), new, Execution::Inline).expect("a blank one");
    let rebuilt = array.rebuild(&mut |_| {}).expect("nothing fails");
    assert_eq!(rebuilt.incomplete, [Leb(3)]);
}

/// Regression: the array was opened for writing without it, and the member was called adopted.
#[test]
fn a_member_that_is_absent_or_does_not_exist_is_not_adopted() {
    let supply = PowerSupply::new();
    let mut blank = on_supply(&filled(3), &supply);
    blank[1] = on_supply(&blank_chips(2), &supply).remove(1);
    let mut left = blank.clone();
    left.remove(1);
    let whole = on_supply(&filled(3), &supply);
    for (chips, place) in [(blank, 1), (left, 1), (whole, 9)] {
        let options = ubi::AttachOptions::linux(Access::ReadWrite);
        let error = array::adopt(chips, &[place], options, Execution::Inline).expect_err("refused");
        assert!(
            matches!(&error, ArrayError::NothingToAdopt { place: of, .. } if *of == place),
            "{error}"
        );
    }
    assert_eq!(supply.writes(), 0, "a refused array was written to");
}

/// Power is cut, the array is opened with all members, and then one of them is lost: the last row of each LEB has
/// consistent parity.
#[test]
fn after_the_recovery_from_a_power_cut_any_member_may_go() {
    let seeds = if testkit::is_full() { 400 } else { 40 };
    for seed in 0..seeds {
        let members = [3, 4, 5][usize::try_from(seed % 3).expect("few")];
        let mut prng = Prng::named(seed, "recovered");
        let supply = PowerSupply::new();
        let chips = on_supply(&formatted(members, Redundancy::Parity), &supply);
        let mut model = Model::default();
        let array = open(&chips);
        supply.plan(PowerCut {
            time: CutTime::Write(supply.writes() + 30 + prng.below(150), CutPoint::Partway(150)),
            torn_is_uncorrectable: false,
        });
        used(&array, &mut model, &mut prng, 60);
        drop(array);
        supply.power_on();
        let array = open(&chips);
        let recovered: Vec<Vec<u8>> = (0..LEBS).map(|leb| read(&array, leb)).collect();
        drop(array);
        for gone in 0..members {
            let left = without(&chips, gone, Gone::NotGiven, &[], &supply);
            let array = try_open(&left, Access::ReadOnly).expect("attached");
            for (leb, recovered) in (0..).zip(&recovered) {
                assert!(
                    read(&array, leb) == *recovered,
                    "seed {seed}, without {gone}: LEB {leb}"
                );
            }
        }
    }
}

/// Two uses of an array, each without a different member, are told apart even if both follow the same state.
#[test]
fn members_of_two_uses_without_a_member_each_make_no_array() {
    let start = filled(3);
    let used_without = |gone: usize, byte: u8| {
        let chips = on_supply(&start, &PowerSupply::new());
        let array = open(&without(&chips, gone, Gone::NotGiven, &[], &PowerSupply::new()));
        let content = vec![byte; row_bytes(3)];
        array.volume().leb_change(Leb(3), &content).expect("room");
        array.close().expect("nothing fails");
        drop(array);
        taken(&chips)
    };
    let (first, second) = (used_without(2, 0x21), used_without(0, 0x22));
    let mixed = [first[0].clone(), first[1].clone(), second[2].clone()];
    match try_open(&on_supply(&mixed, &PowerSupply::new()), Access::ReadWrite) {
        Ok(array) => {
            assert_eq!(array.absent().map(|absent| absent.place), Some(2));
            assert_eq!(read(&array, 3)[..row_bytes(3)], vec![0x21; row_bytes(3)]);
        }
        Err(error) => assert!(matches!(error, ArrayError::Stale { .. }), "{error}"),
    }
}

/// A LEB's block is replaced by its content before pages were added: these read as erased, without an error.
#[test]
fn pages_that_an_older_copy_of_a_block_lacks_follow_from_the_others() {
    for member in 0..4 {
        follow_from_the_others(member, true);
    }
}

/// Regression: the parity of the last row was rewritten for the erased page, so that acknowledged data was lost.
#[test]
fn pages_that_an_older_copy_of_a_block_lacks_follow_from_the_others_after_a_power_cut() {
    for member in 0..4 {
        follow_from_the_others(member, false);
    }
}

fn follow_from_the_others(member: usize, closed: bool) {
    let members = 4;
    let row = row_bytes(members);
    let chips = on_supply(&formatted(members, Redundancy::Parity), &PowerSupply::new());
    let array = open(&chips);
    let leb = Leb(3);
    array.volume().write(leb, 0, &vec![0x11; 2 * row]).expect("room");
    array.close().expect("nothing fails");
    drop(array);
    let older = taken(&chips);
    let array = open(&chips);
    let offset = u32::try_from(2 * row).expect("small");
    array
        .volume()
        .write(leb, offset, &vec![0x22; 3 * row])
        .expect("room");
    if closed {
        array.close().expect("nothing fails");
    }
    let peb = array.devices()[member].mapping(VolumeId(0))[3].expect("mapped");
    drop(array);
    let mut images = taken(&chips);
    crate::support::copy_block(&older[member], &mut images[member], peb);
    let expected = [vec![0x11; 2 * row], vec![0x22; 3 * row], vec![0xFF; row]].concat();
    let chips = on_supply(&images, &PowerSupply::new());
    let array = open(&chips);
    assert!(read(&array, 3) == expected, "member {member}");
    let mended = array.volume().mend(leb).expect("it follows from the others");
    // After a power cut, the opening has mended it.
    assert_eq!(
        mended.mended.len(),
        usize::from(closed),
        "member {member}: {mended:?}"
    );
    drop(array);
    let other = without(
        &chips,
        (member + 1) % members,
        Gone::NotGiven,
        &[],
        &PowerSupply::new(),
    );
    let array = try_open(&other, Access::ReadOnly).expect("attached");
    assert!(read(&array, 3) == expected, "member {member} was not mended");
}

/// Regression: the row read as erased, and the next write to it failed and froze the array.
#[test]
fn a_row_of_which_only_an_unreadable_page_is_written_can_be_written_again() {
    for members in [3, 4] {
        let row = vec![0x11; row_bytes(members)];
        let bytes = u32::try_from(row.len()).expect("small");
        for number in 0..u32::try_from(ROWS - 1).expect("few") {
            for page in 0..u64::try_from(members).expect("few") {
                let what = format!("{members} members, row {number}, page {page}");
                let supply = PowerSupply::new();
                let chips = on_supply(&formatted(members, Redundancy::Parity), &supply);
                let array = open(&chips);
                for number in 0..number {
                    array.volume().write(Leb(0), number * bytes, &row).expect("room");
                }
                if number == 0 {
                    array.volume().map(Leb(0)).expect("room");
                }
                supply.plan(PowerCut {
                    time: CutTime::Write(supply.writes() + page, CutPoint::Partway(70)),
                    torn_is_uncorrectable: true,
                });
                let cut = array.volume().write(Leb(0), number * bytes, &row);
                assert!(cut.is_err(), "{what}: power did not go");
                drop(array);
                supply.power_on();
                let array = open(&chips);
                let mut found = vec![0; row.len()];
                let read = array.volume().read(Leb(0), number * bytes, &mut found);
                if read.is_ok() && found.iter().all(|byte| *byte == 0xFF) {
                    let written = array.volume().write(Leb(0), number * bytes, &row);
                    written.unwrap_or_else(|error| panic!("{what}: {error}"));
                }
                array.close().expect("nothing fails");
            }
        }
    }
}
