//! Rebuilds of a member of an array with parity: cut at every write and resumed, while the array is used, and with
//! damage on other members.

use std::sync::{Arc, Mutex};
use std::thread;

use crate::model::{LEBS, Model, ROWS, holds, row_bytes, settle, used};
use crate::support::{
    BLOCKS, Chip, PAGE, VID_PAGE, blank_chips, damage, formatted, on_supply, open, read, taken, try_open,
};
use array::{Array, ArrayError, Execution, LostShare, NewMember, RebuildStep, Redundancy, with_new_member};
use media::{Leb, Nand, Peb};
use nand::{CutPoint, CutTime, PowerCut, PowerSupply, SimNand};
use testkit::prng::Prng;
use ubi::{Access, AttachError, AttachOptions, Volume, VolumeError, VolumeId};

/// Begins or resumes a rebuild of the member at `place`, without running any step.
fn begin(chips: &[Chip], place: usize) -> Result<Array, ArrayError> {
    let mut others = chips.to_vec();
    let device = others.remove(place);
    let new = NewMember {
        device: Box::new(device),
        place,
        image_sequence: 7,
        progress: &mut |_| {},
    };
    with_new_member(others, new, Execution::Inline)
}

/// Each LEB `n` of the workload is filled with `n`, and the member at `place` is blank.
fn with_a_blank_member(members: usize, place: usize, supply: &PowerSupply) -> Vec<Chip> {
    let chips = on_supply(&formatted(members, Redundancy::Parity), &PowerSupply::new());
    let array = open(&chips);
    for leb in 0..LEBS {
        let data = vec![u8::try_from(leb).expect("few"); ROWS * row_bytes(members)];
        array.volume().write(Leb(leb), 0, &data).expect("room");
    }
    array.close().expect("nothing fails");
    drop(array);
    let mut images = taken(&chips);
    images[place] = blank_chips(place + 1).remove(place);
    on_supply(&images, supply)
}

fn filled_as_before(array: &Array, members: usize, what: &str) {
    for leb in 0..LEBS {
        let expected = vec![u8::try_from(leb).expect("few"); ROWS * row_bytes(members)];
        assert!(read(array, leb) == expected, "{what}: LEB {leb}");
    }
}

/// Checks that all members are present, parity is consistent, and any member may be lost.
fn is_whole(chips: &[Chip], check: impl Fn(&Array, &str), what: &str) {
    let array = open(chips);
    assert_eq!((array.absent(), array.rebuilding()), (None, None), "{what}");
    assert_eq!(array.volume().lost_shares(), [], "{what}");
    check(&array, what);
    for leb in (0..array.volume().geometry().lebs).map(Leb) {
        let found = array.volume().mend(leb).expect("readable");
        assert_eq!(found, array::Mended::default(), "{what}: {leb}");
    }
    array.close().expect("nothing fails");
    drop(array);
    for gone in 0..chips.len() {
        let mut left = chips.to_vec();
        left.remove(gone);
        let array = try_open(&left, Access::ReadOnly).unwrap_or_else(|error| panic!("{what}: {error}"));
        check(&array, &format!("{what}, then without {gone}"));
    }
}

#[test]
fn a_rebuild_that_is_cut_is_taken_up_where_it_ended() {
    let (members, place) = (3, 1);
    let every = if testkit::is_full() { 1 } else { 7 };
    let (mut cuts, mut taken_up, mut was_in_the_middle) = (0, 0, 0);
    for cut in (0..).step_by(every) {
        let what = format!("cut {cut}");
        let supply = PowerSupply::new();
        let chips = with_a_blank_member(members, place, &supply);
        supply.plan(PowerCut {
            time: CutTime::Write(supply.writes() + cut, CutPoint::Partway(150)),
            torn_is_uncorrectable: cut % 2 == 0,
        });
        let mut made = 0;
        let ended = begin(&chips, place).and_then(|array| array.rebuild(&mut |_| made += 1));
        assert!(ended.is_ok() || supply.is_off(), "{what}: {ended:?}");
        supply.power_on();
        cuts += 1;
        let array = try_open(&chips, Access::ReadOnly).unwrap_or_else(|error| panic!("{what}: {error}"));
        filled_as_before(&array, members, &what);
        let goes_on = array.rebuilding() == Some(place);
        drop(array);
        if ended.is_err() && array_is_without(&chips, place) {
            let array = begin(&chips, place).unwrap_or_else(|error| panic!("{what}: {error}"));
            let left = array.lebs_to_rebuild().len();
            if goes_on {
                taken_up += 1;
                was_in_the_middle += usize::from(made > 0);
                assert_eq!(left + made, usize::try_from(LEBS).expect("few"), "{what}");
            }
            let rebuilt = array
                .rebuild(&mut |_| {})
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(usize::try_from(rebuilt.lebs), Ok(left), "{what}");
            array.close().expect("nothing fails");
        }
        is_whole(
            &chips,
            |array, what| filled_as_before(array, members, what),
            &what,
        );
        if ended.is_ok() {
            break;
        }
    }
    assert!(
        cuts > 20 && taken_up > 10 && was_in_the_middle > 5,
        "{cuts} {taken_up} {was_in_the_middle}"
    );
}

fn array_is_without(chips: &[Chip], place: usize) -> bool {
    let array = try_open(chips, Access::ReadOnly).expect("attached");
    let absent = array.absent().map(|absent| absent.place);
    absent == Some(place) || array.rebuilding() == Some(place)
}

/// The array is used between the steps of a rebuild; power is cut, the array is opened with the new member and used
/// again, and so on until the rebuild finishes.
fn used_while_it_is_rebuilt(seed: u64) {
    let members = [3, 4, 5][usize::try_from(seed % 3).expect("few")];
    let mut prng = Prng::named(seed, "rebuild");
    let prng = &mut prng;
    let place = usize::try_from(prng.below(u64::try_from(members).expect("few"))).expect("few");
    let what = format!("{members} members, member {place}, seed {seed}");
    let supply = PowerSupply::new();
    let mut chips = on_supply(&formatted(members, Redundancy::Parity), &supply);
    let mut model = Model::default();
    let array = open(&chips);
    used(&array, &mut model, prng, 40);
    drop(array);
    chips[place] = on_supply(&blank_chips(place + 1)[place..], &supply).remove(0);
    let mut rounds = 0;
    let mut opened_without = false;
    loop {
        rounds += 1;
        let what = format!("{what}, round {rounds}");
        // Only early rounds are cut, so that the rebuild finishes.
        let is_cut = rounds < 6 && prng.below(4) > 0;
        let plan = |prng: &mut Prng| {
            supply.plan(PowerCut {
                time: CutTime::Write(supply.writes() + prng.below(250), CutPoint::Partway(150)),
                torn_is_uncorrectable: seed.is_multiple_of(2),
            });
        };
        if is_cut {
            plan(prng);
        }
        let array = match prng.below(3) {
            // An attach resumes the rebuild, too.
            0 if rounds > 1 => try_open(&chips, Access::ReadWrite),
            _ if array_is_without_at(&chips, place, &supply) => begin(&chips, place),
            _ => try_open(&chips, Access::ReadWrite),
        };
        let array = match array {
            Ok(array) => array,
            Err(error) => {
                assert!(supply.is_off(), "{what}: {error}");
                supply.power_on();
                continue;
            }
        };
        if !supply.is_off() {
            // The cut is planned again below.
            supply.power_on();
            holds(&array, &model, &what);
            settle(&array, &mut model, prng);
            if is_cut {
                plan(prng);
            }
        }
        let mut ended = array.absent().is_none() && array.rebuilding().is_none();
        for _ in 0..20 {
            used(&array, &mut model, prng, 2);
            if model.under_way.is_some() {
                break;
            }
            match array.rebuild_step() {
                Ok(RebuildStep::Ended(rebuilt)) => {
                    assert_eq!(rebuilt.incomplete, [], "{what}");
                    ended = true;
                }
                Ok(_) => {}
                Err(error) => {
                    assert!(supply.is_off(), "{what}: {error}");
                    break;
                }
            }
        }
        if !supply.is_off() {
            holds(&array, &model, &format!("{what}, used"));
            if prng.below(2) == 0 {
                let _ = array.close();
            }
        }
        drop(array);
        supply.power_on();
        if ended && model.under_way.is_none() && rounds >= 6 {
            break;
        }
        if rounds == 3 && seed.is_multiple_of(4) && !opened_without {
            // Opened without the new member, whose content is then outdated.
            opened_without = true;
            let mut left = chips.clone();
            left.remove(place);
            let array = try_open(&left, Access::ReadWrite).unwrap_or_else(|error| panic!("{what}: {error}"));
            holds(&array, &model, &format!("{what}, without it"));
            settle(&array, &mut model, prng);
            used(&array, &mut model, prng, 10);
        }
        assert!(rounds < 40, "{what}: it never ends");
    }
    is_whole(&chips, |array, what| holds(array, &model, what), &what);
}

fn array_is_without_at(chips: &[Chip], place: usize, supply: &PowerSupply) -> bool {
    supply.is_off() || array_is_without(chips, place)
}

#[test]
fn an_array_is_used_and_cut_while_a_member_is_rebuilt() {
    let seeds = if testkit::is_full() { 2000 } else { 40 };
    for seed in 0..seeds {
        used_while_it_is_rebuilt(seed);
    }
}

#[test]
fn an_array_that_is_closed_in_the_middle_of_a_rebuild_goes_on_with_it() {
    let (members, place) = (4, 2);
    let supply = PowerSupply::new();
    let chips = with_a_blank_member(members, place, &supply);
    let array = begin(&chips, place).expect("it fits");
    for _ in 0..5 {
        array.rebuild_step().expect("nothing fails");
    }
    array.close().expect("nothing fails");
    drop(array);
    // The others are closed; Linux and an attach of the new member on its own keep refusing it.
    for (member, chip) in chips.iter().enumerate() {
        let alone = Arc::new(Mutex::new(chip.lock().expect("no panic").clone()));
        let attached =
            ubi::scan(alone, AttachOptions::linux(Access::ReadWrite)).and_then(ubi::Scanned::attach);
        match member == place {
            true => assert!(
                matches!(attached, Err(AttachError::OpenMember { .. })),
                "{attached:?}"
            ),
            false => drop(attached.expect("it was closed")),
        }
    }
    let options = AttachOptions::linux(Access::ReadWrite);
    let error = array::adopt(chips.clone(), &[2], options, Execution::Inline).expect_err("refused");
    assert!(
        matches!(error, ArrayError::NothingToAdopt { place: 2, .. }),
        "{error}"
    );
    let array = open(&chips);
    assert_eq!(array.rebuilding(), Some(place));
    assert_eq!(array.lebs_to_rebuild().len(), 7);
    filled_as_before(&array, members, "taken up");
    array.rebuild(&mut |_| {}).expect("nothing fails");
    array.close().expect("nothing fails");
    drop(array);
    is_whole(
        &chips,
        |array, what| filled_as_before(array, members, what),
        "ended",
    );
}

/// Regression: the rebuild ended without a share, and the new member was said to have all of them.
#[test]
fn a_member_is_not_rebuilt_before_an_interrupted_update_is_repeated() {
    let (members, place) = (4, 2);
    let supply = PowerSupply::new();
    let mut chips = with_a_blank_member(members, 0, &supply);
    begin(&chips, 0)
        .expect("it fits")
        .rebuild(&mut |_| {})
        .expect("nothing fails");
    let array = open(&chips);
    array.begin_update().expect("nothing fails");
    drop(array);
    chips[place] = on_supply(&blank_chips(place + 1)[place..], &supply).remove(0);
    let writes = supply.writes();
    let error = begin(&chips, place).expect_err("refused");
    assert!(matches!(error, ArrayError::UpdateFirst { .. }), "{error}");
    assert_eq!(supply.writes(), writes, "a refused array was written to");
    let array = open(&chips);
    array.begin_update().expect("nothing fails");
    for leb in 0..LEBS {
        let data = vec![u8::try_from(leb).expect("few"); ROWS * row_bytes(members)];
        array.volume().leb_change(Leb(leb), &data).expect("room");
    }
    array.end_update().expect("nothing fails");
    drop(array);
    let array = begin(&chips, place).expect("it fits");
    let rebuilt = array.rebuild(&mut |_| {}).expect("nothing fails");
    assert_eq!(rebuilt.incomplete, []);
    array.close().expect("nothing fails");
    drop(array);
    is_whole(
        &chips,
        |array, what| filled_as_before(array, members, what),
        "updated, then rebuilt",
    );
}

#[test]
fn a_new_member_that_the_array_was_used_without_is_rebuilt_from_the_start() {
    let (members, place) = (3, 0);
    let supply = PowerSupply::new();
    let chips = with_a_blank_member(members, place, &supply);
    let array = begin(&chips, place).expect("it fits");
    for _ in 0..5 {
        array.rebuild_step().expect("nothing fails");
    }
    array.close().expect("nothing fails");
    drop(array);
    let array = open(&chips[1..]);
    array
        .volume()
        .leb_change(Leb(1), &vec![0x77; row_bytes(members)])
        .expect("room");
    drop(array);
    let array = open(&chips);
    let absent = array.absent().expect("it is out of date");
    assert!(absent.why.contains("used without it"), "{}", absent.why);
    drop(array);
    let array = begin(&chips, place).expect("it fits");
    assert_eq!(array.lebs_to_rebuild().len(), usize::try_from(LEBS).expect("few"));
    array.rebuild(&mut |_| {}).expect("nothing fails");
    array.close().expect("nothing fails");
    assert_eq!(
        read(&array, 1)[..row_bytes(members)],
        vec![0x77; row_bytes(members)]
    );
}

/// Another member's damaged share was read as erased flash, without an error, and the new member was built from it.
#[test]
fn damage_of_another_member_is_an_error_during_a_rebuild_and_after_it() {
    let (members, place, damaged) = (4, 2, 1);
    let leb = Leb(3);
    let supply = PowerSupply::new();
    let chips = with_a_blank_member(members, place, &supply);
    let mut left = chips.clone();
    left.remove(place);
    let array = try_open(&left, Access::ReadOnly).expect("attached");
    let peb = array.devices()[damaged].mapping(VolumeId(0))[3].expect("mapped");
    drop(array);
    damage(&chips[damaged], peb, VID_PAGE);
    let lost_or_right = |array: &Array, what: &str| {
        let mut lost = 0;
        for page in 0..ROWS * (members - 1) {
            let mut bytes = [0; PAGE];
            match array
                .volume()
                .read(leb, u32::try_from(page * PAGE).expect("small"), &mut bytes)
            {
                Ok(()) => assert_eq!(
                    bytes, [3; PAGE],
                    "{what}: page {page} is wrong, and nobody says so"
                ),
                Err(VolumeError::Uncorrectable { .. }) => lost += 1,
                Err(error) => panic!("{what}: {error}"),
            }
        }
        assert!(
            lost > 0 && lost < ROWS * (members - 1),
            "{what}: {lost} pages are lost"
        );
    };
    let array = begin(&chips, place).expect("it fits");
    assert_eq!(
        array.resolution().lost_shares,
        [LostShare { leb, member: damaged }]
    );
    lost_or_right(&array, "before");
    let rebuilt = array.rebuild(&mut |_| {}).expect("the others are right");
    assert_eq!(rebuilt.incomplete, [leb]);
    lost_or_right(&array, "rebuilt");
    array.close().expect("nothing fails");
    drop(array);
    let array = open(&chips);
    assert_eq!(array.resolution().lost_shares.len(), 2);
    lost_or_right(&array, "opened again");
    for other in (0..LEBS).filter(|other| *other != leb.0) {
        let expected = vec![u8::try_from(other).expect("few"); ROWS * row_bytes(members)];
        assert!(read(&array, other) == expected, "LEB {other}");
    }
    array
        .volume()
        .leb_change(leb, &vec![9; row_bytes(members)])
        .expect("room");
    assert_eq!(array.volume().lost_shares(), []);
}

/// Threads write to all LEBs during the rebuild: writes behind its position also reach the new member.
#[test]
fn threads_write_while_a_member_is_rebuilt() {
    // Without the lock of a LEB, about one round in 40 loses a row.
    let rounds = if testkit::is_full() { 2000 } else { 200 };
    for round in 0..rounds {
        let members = 4;
        let place = usize::try_from(round % 4).expect("few");
        let mut chips = on_supply(&formatted(members, Redundancy::Parity), &PowerSupply::new());
        let array = open(&chips);
        let row = row_bytes(members);
        for leb in 0..LEBS {
            array.volume().write(Leb(leb), 0, &vec![0x10; row]).expect("room");
        }
        array.close().expect("nothing fails");
        drop(array);
        let supply = PowerSupply::new();
        let mut images = taken(&chips);
        images[place] = blank_chips(place + 1).remove(place);
        chips = on_supply(&images, &supply);
        let array = begin(&chips, place).expect("it fits");
        thread::scope(|scope| {
            for part in 0..4 {
                let volume = Arc::clone(array.volume());
                scope.spawn(move || {
                    for number in 1..ROWS {
                        for leb in (0..LEBS).filter(|leb| leb % 4 == part) {
                            let offset = u32::try_from(number * row).expect("small");
                            let byte = 0x10 + u8::try_from(number).expect("few");
                            volume.write(Leb(leb), offset, &vec![byte; row]).expect("room");
                        }
                    }
                    for leb in (0..LEBS).filter(|leb| leb % 4 == part && leb % 3 == 0) {
                        volume.leb_change(Leb(leb), &vec![0x55; 2 * row]).expect("room");
                    }
                });
            }
            let array = &array;
            scope.spawn(move || {
                array
                    .rebuild(&mut |_| thread::yield_now())
                    .expect("nothing fails")
            });
        });
        array.close().expect("nothing fails");
        drop(array);
        let check = |array: &Array, what: &str| {
            for leb in 0..LEBS {
                let mut expected: Vec<u8> = match leb % 3 {
                    0 => vec![0x55; 2 * row],
                    _ => (0..ROWS)
                        .flat_map(|number| vec![0x10 + u8::try_from(number).expect("few"); row])
                        .collect(),
                };
                expected.resize(ROWS * row, 0xFF);
                assert!(read(array, leb) == expected, "{what}: LEB {leb}");
            }
        };
        is_whole(&chips, check, &format!("round {round}"));
    }
}

/// The array grew while the member with the fewest blocks was away: data written beyond that member's end was later
/// inaccessible.
#[test]
fn the_size_of_an_array_does_not_depend_on_the_members_that_are_there() {
    let chips = on_supply(&blank_chips(3), &PowerSupply::new());
    for peb in [3, 9, 17, 21] {
        chips[1]
            .lock()
            .expect("no panic")
            .mark_bad(Peb(peb))
            .expect("marked");
    }
    let identity = array::MemberIdentity {
        array: 9,
        index: 0,
        members: 0,
        redundancy: Redundancy::Parity,
        label: "x".to_owned(),
    };
    array::format(
        chips.clone(),
        crate::support::format_options(),
        &identity,
        &mut |_, _| {},
    )
    .expect("formatted");
    let lebs = open(&chips).volume().geometry().lebs;
    let without = [Arc::clone(&chips[0]), Arc::clone(&chips[2])];
    assert_eq!(open(&without).volume().geometry().lebs, lebs);
    let mut replaced = chips.clone();
    replaced[1] = on_supply(&blank_chips(2)[1..], &PowerSupply::new()).remove(0);
    let array = begin(&replaced, 1).expect("it fits");
    assert_eq!(array.volume().geometry().lebs, lebs);
}

/// The maximum of sixteen members: used, one lost, rebuilt.
#[test]
fn sixteen_members_lose_one_and_get_it_back() {
    let members = 16;
    let place = 15;
    let supply = PowerSupply::new();
    let chips = with_a_blank_member(members, place, &supply);
    let array = begin(&chips, place).expect("it fits");
    filled_as_before(&array, members, "degraded");
    let rebuilt = array.rebuild(&mut |_| {}).expect("nothing fails");
    assert_eq!(rebuilt.lebs, LEBS);
    array.close().expect("nothing fails");
    drop(array);
    is_whole(
        &chips,
        |array, what| filled_as_before(array, members, what),
        "16 members",
    );
    assert!(chips[0].geometry().blocks() == BLOCKS);
}

/// Every LEB of every member is used: the array is opened, cut and reopened, rebuilt and written to, and always has a
/// block for each mark.
#[test]
fn a_full_array_has_blocks_for_its_marks() {
    let (members, place) = (3, 1);
    let chips = on_supply(&formatted(members, Redundancy::Parity), &PowerSupply::new());
    let array = open(&chips);
    let lebs = array.volume().geometry().lebs;
    let content = |leb: u32| vec![u8::try_from(leb % 251).expect("a byte"); ROWS * row_bytes(members)];
    for leb in 0..lebs {
        array
            .volume()
            .leb_change(Leb(leb), &content(leb))
            .expect("room for it");
    }
    drop(array);
    let mut images: Vec<SimNand> = taken(&chips);
    for round in 0..30 {
        let supply = PowerSupply::new();
        let on = on_supply(&images, &supply);
        supply.plan(PowerCut {
            time: CutTime::Write(round * 3, CutPoint::Partway(300)),
            torn_is_uncorrectable: round.is_multiple_of(2),
        });
        let work = || -> Result<(), ArrayError> {
            let array = try_open(&on, Access::ReadWrite)?;
            for leb in (0..lebs).step_by(3) {
                let changed = array.volume().leb_change(Leb(leb), &content(leb));
                changed.map_err(|source| ArrayError::Close {
                    label: String::new(),
                    source,
                })?;
                let changed = array
                    .volume()
                    .unmap(Leb(leb))
                    .and_then(|()| array.volume().write(Leb(leb), 0, &content(leb)));
                changed.map_err(|source| ArrayError::Close {
                    label: String::new(),
                    source,
                })?;
            }
            Ok(())
        };
        let worked = work();
        assert!(worked.is_ok() || supply.is_off(), "round {round}: {worked:?}");
        images = taken(&on);
        // LEBs that the cut left unfinished are rewritten.
        let on = on_supply(&images, &PowerSupply::new());
        let array = open(&on);
        for leb in (0..lebs).step_by(3) {
            array
                .volume()
                .leb_change(Leb(leb), &content(leb))
                .expect("room for it");
        }
        drop(array);
        images = taken(&on);
    }
    images[place] = blank_chips(place + 1).remove(place);
    let chips = on_supply(&images, &PowerSupply::new());
    let array = begin(&chips, place).expect("it fits");
    array.rebuild(&mut |_| {}).expect("nothing fails");
    for leb in 0..lebs {
        assert!(read(&array, leb) == content(leb), "LEB {leb}");
        array
            .volume()
            .leb_change(Leb(leb), &content(leb))
            .expect("room for it");
    }
    array.close().expect("nothing fails");
}
