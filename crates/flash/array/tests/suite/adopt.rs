//! Adoption of refused members: content that matches the other members counts, the rest is lost and reported, and power
//! cuts meanwhile lose nothing more.

use crate::support::{Chip, PAGE, array_of, on_supply, open, read, taken, try_open};
use array::{Array, ArrayError, ArrayState, Execution, LostShare};
use media::Leb;
use nand::{CutPoint, CutTime, PowerCut, PowerSupply, SimNand};
use ubi::{Access, AttachOptions, Volume, VolumeError, VolumeId};

fn adopt(chips: &[Chip], members: &[u32], access: Access) -> Result<Array, ArrayError> {
    array::adopt(
        chips.to_vec(),
        members,
        AttachOptions::linux(access),
        Execution::Inline,
    )
}

fn whole(members: usize, byte: u8) -> Vec<u8> {
    vec![byte; members * 6 * PAGE]
}

/// An array with content in LEBs 3, 4 and 5.
fn filled(members: usize) -> Vec<SimNand> {
    let chips = on_supply(&array_of(members), &PowerSupply::new());
    let array = open(&chips);
    for leb in 3..6 {
        array
            .volume()
            .leb_change(Leb(leb), &whole(members, 1))
            .expect("room");
    }
    array.close().expect("nothing fails");
    taken(&chips)
}

/// Changes LEB 3, unmaps 5 and writes 7.
fn used_on(chips: &[SimNand], closed: bool) -> Vec<SimNand> {
    let members = chips.len();
    let chips = on_supply(chips, &PowerSupply::new());
    let array = open(&chips);
    let volume = array.volume();
    volume.leb_change(Leb(3), &whole(members, 2)).expect("room");
    volume.unmap(Leb(5)).expect("nothing fails");
    volume.write(Leb(7), 0, &whole(members, 2)).expect("room");
    volume.flush().expect("nothing fails");
    if closed {
        array.close().expect("nothing fails");
    }
    drop(array);
    taken(&chips)
}

/// Checks that LEBs 3 and 7 lost the share of a member, LEB 4 is whole, and 5 is not mapped.
fn holds_the_rest(array: &Array, members: usize, adopted: usize, what: &str) {
    let volume = array.volume();
    let lost = |leb| LostShare {
        leb: Leb(leb),
        member: adopted,
    };
    assert_eq!(volume.lost_shares(), [lost(3), lost(7)], "{what}");
    assert_eq!(read(array, 4), whole(members, 1), "{what}");
    assert!(!volume.is_mapped(Leb(5)).expect("in range"), "{what}");
    for leb in [3, 7] {
        for page in 0..members * 6 {
            let offset = u32::try_from(page * PAGE).expect("small");
            let mut bytes = [0; PAGE];
            match volume.read(Leb(leb), offset, &mut bytes) {
                Ok(()) => assert_eq!(bytes, [2; PAGE], "{what}: LEB {leb}, page {page}"),
                Err(VolumeError::Uncorrectable { .. }) => {
                    assert_eq!(page % members, adopted, "{what}: LEB {leb}, page {page}");
                }
                Err(error) => panic!("{what}: {error}"),
            }
        }
    }
}

#[test]
fn a_stale_member_is_adopted_with_what_fits_the_others() {
    for members in [2, 3] {
        for closed in [true, false] {
            for place in 0..members {
                let what = format!("{members} members, closed {closed}, member {place}");
                let earlier = filled(members);
                let mut mixed = used_on(&earlier, closed);
                mixed[place] = earlier[place].clone();
                let adopted = [u32::try_from(place).expect("few")];
                let supply = PowerSupply::new();
                let looked = on_supply(&mixed, &supply);
                let array = adopt(&looked, &adopted, Access::ReadOnly).expect("attached");
                holds_the_rest(&array, members, place, &what);
                assert_eq!(supply.writes(), 0, "{what}: attached for reading, and written to");
                let chips = on_supply(&mixed, &PowerSupply::new());
                let array = adopt(&chips, &adopted, Access::ReadWrite).expect("attached");
                holds_the_rest(&array, members, place, &what);
                array.close().expect("nothing fails");
                let array = open(&chips);
                assert_eq!(array.resolution().state, ArrayState::Closed, "{what}");
                holds_the_rest(&array, members, place, &what);
                for leb in [3, 7] {
                    array
                        .volume()
                        .leb_change(Leb(leb), &whole(members, 3))
                        .expect("room");
                    assert_eq!(read(&array, leb), whole(members, 3), "{what}");
                }
            }
        }
    }
}

#[test]
fn a_member_that_was_written_to_by_itself_is_adopted_with_what_the_array_wrote() {
    for closed in [true, false] {
        let mut chips = used_on(&filled(2), closed);
        let alone = on_supply(&chips[1..], &PowerSupply::new()).remove(0);
        let options = AttachOptions::linux(Access::ReadWrite);
        let scanned = ubi::scan(std::sync::Arc::clone(&alone), options).expect("scanned");
        let device = scanned.attach_alone().expect("attached");
        let volume = device.open(VolumeId(0)).expect("it is there");
        for leb in [3, 7] {
            volume.leb_change(Leb(leb), &[9; PAGE]).expect("room");
        }
        device.settle().expect("nothing fails");
        drop((volume, device));
        chips[1] = taken(&[alone]).remove(0);
        let chips = on_supply(&chips, &PowerSupply::new());
        assert!(matches!(
            try_open(&chips, Access::ReadWrite),
            Err(ArrayError::WrittenAlone { index: 1, .. })
        ));
        let what = format!("closed {closed}");
        let array = adopt(&chips, &[1], Access::ReadWrite).expect("attached");
        holds_the_rest(&array, 2, 1, &what);
        drop(array);
        holds_the_rest(&open(&chips), 2, 1, &what);
    }
}

#[test]
fn only_members_that_are_refused_can_be_adopted() {
    let earlier = filled(3);
    let supply = PowerSupply::new();
    let sound = on_supply(&earlier, &supply);
    let error = adopt(&sound, &[1], Access::ReadWrite).expect_err("refused");
    assert!(
        matches!(error, ArrayError::NotRefused { index: 1, .. }),
        "{error}"
    );
    let mut mixed = used_on(&earlier, true);
    mixed[2] = earlier[2].clone();
    let mixed = on_supply(&mixed, &supply);
    let error = adopt(&mixed, &[1], Access::ReadWrite).expect_err("refused");
    assert!(matches!(error, ArrayError::Stale { index: 2, .. }), "{error}");
    let error = adopt(&mixed, &[1, 2], Access::ReadWrite).expect_err("refused");
    assert!(
        matches!(error, ArrayError::NotRefused { index: 1, .. }),
        "{error}"
    );
    assert_eq!(supply.writes(), 0, "a refused array was written to");
}

/// Every program and erase of an adoption is cut: afterwards the member is either still refused and can be adopted, or
/// it is a member.
#[test]
fn a_power_cut_during_an_adoption_costs_nothing_more() {
    for closed in [true, false] {
        let earlier = filled(3);
        let mut mixed = used_on(&earlier, closed);
        mixed[0] = earlier[0].clone();
        let mut cuts = 0;
        loop {
            let what = format!("closed {closed}, cut {cuts}");
            let supply = PowerSupply::new();
            let chips = on_supply(&mixed, &supply);
            supply.plan(PowerCut {
                time: CutTime::Write(cuts, CutPoint::Partway(300)),
                torn_is_uncorrectable: true,
            });
            let ended = adopt(&chips, &[0], Access::ReadWrite)
                .map_err(|error| error.to_string())
                .and_then(|array| array.close().map_err(|error| error.to_string()));
            assert!(ended.is_ok() || supply.is_off(), "{what}: {ended:?}");
            supply.power_on();
            let array = match try_open(&chips, Access::ReadWrite) {
                Ok(array) => array,
                Err(ArrayError::Stale { index: 0, .. }) => {
                    adopt(&chips, &[0], Access::ReadWrite).unwrap_or_else(|error| panic!("{what}: {error}"))
                }
                Err(error) => panic!("{what}: {error}"),
            };
            holds_the_rest(&array, 3, 0, &what);
            array.close().expect("nothing fails");
            holds_the_rest(&open(&chips), 3, 0, &what);
            if ended.is_ok() {
                break;
            }
            cuts += 1;
        }
        assert!(cuts > 20, "{cuts} cuts");
    }
}

/// After a close, generations restarted below those of unmapped LEBs, so a stale member's block had the generation of a
/// LEB written since, and was adopted as a part of it.
#[test]
fn a_generation_is_not_used_again_after_a_close() {
    let earlier = filled(2);
    let chips = on_supply(&earlier, &PowerSupply::new());
    let array = open(&chips);
    for leb in [4, 5] {
        array.volume().unmap(Leb(leb)).expect("nothing fails");
    }
    array.close().expect("nothing fails");
    drop(array);
    let array = open(&chips);
    for leb in [4, 5] {
        array.volume().leb_change(Leb(leb), &whole(2, 9)).expect("room");
    }
    array.close().expect("nothing fails");
    drop(array);
    let mut mixed = taken(&chips);
    mixed[1] = earlier[1].clone();
    let array = adopt(&on_supply(&mixed, &PowerSupply::new()), &[1], Access::ReadWrite).expect("attached");
    let lost = [4, 5].map(|leb| LostShare {
        leb: Leb(leb),
        member: 1,
    });
    assert_eq!(
        array.volume().lost_shares(),
        lost,
        "what it held before is taken for a part of the LEB"
    );
}
