//! The epoch of an array: members that were left behind or used outside the array are refused by name, and a power cut
//! while an array is opened or closed loses nothing.

use std::sync::{Arc, Mutex};

use crate::support::{BLOCKS, PAGE, VID_PAGE, array_of, on_supply, open, read, taken, try_open};
use array::{Array, ArrayError, ArrayState, LostShare};
use media::{Leb, Nand, Page, Peb};
use nand::{CutPoint, CutTime, PowerCut, PowerSupply, SimNand};
use ubi::{Access, AttachError, AttachOptions, MemberState, Ubi, Volume, VolumeError, VolumeId};

fn whole(members: usize, byte: u8) -> Vec<u8> {
    vec![byte; members * 6 * PAGE]
}

/// An array whose LEB 3 holds `byte`, closed or left open.
fn with_content(chips: &[SimNand], byte: u8, closed: bool) -> Vec<SimNand> {
    let chips = on_supply(chips, &PowerSupply::new());
    let array = open(&chips);
    array
        .volume()
        .leb_change(Leb(3), &whole(chips.len(), byte))
        .expect("room");
    if closed {
        array.close().expect("nothing fails");
    }
    drop(array);
    taken(&chips)
}

fn member_alone(chip: &SimNand, access: Access) -> Result<Ubi, AttachError> {
    let chip = Arc::new(Mutex::new(chip.clone()));
    ubi::scan(chip, AttachOptions::linux(access)).and_then(ubi::Scanned::attach)
}

fn refused(chips: &[SimNand]) -> String {
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let supply = PowerSupply::new();
        let error = try_open(&on_supply(chips, &supply), access).expect_err("refused");
        assert!(
            matches!(error, ArrayError::Stale { .. } | ArrayError::WrittenAlone { .. }),
            "{error}"
        );
        assert_eq!(supply.writes(), 0, "a refused array was written to");
    }
    let error = try_open(&on_supply(chips, &PowerSupply::new()), Access::ReadOnly);
    error.expect_err("refused").to_string()
}

#[test]
fn an_older_copy_of_a_member_is_refused_by_name() {
    for closed in [true, false] {
        for place in 0..3 {
            let first = with_content(&array_of(3), 1, closed);
            let mut later = with_content(&first, 2, closed);
            later[place] = first[place].clone();
            let text = refused(&later);
            assert!(
                text.contains(&format!("chip{place}: member {place} of array data is stale")),
                "closed {closed}, {place}: {text}"
            );
        }
    }
}

#[test]
fn a_copy_of_before_the_first_mark_is_refused_too() {
    let formatted = array_of(2);
    let mut later = with_content(&formatted, 2, true);
    later[1] = formatted[1].clone();
    assert!(refused(&later).contains("stale"));
}

#[test]
fn members_are_refused_by_themselves_until_the_array_is_closed() {
    let open = with_content(&array_of(2), 1, false);
    for chip in &open {
        let error = member_alone(chip, Access::ReadWrite).expect_err("refused");
        assert!(
            matches!(error, AttachError::OpenMember { epoch: 1, .. }),
            "{error}"
        );
        let read_only = member_alone(chip, Access::ReadOnly).expect("it can be read");
        assert_eq!(read_only.summary().member_state, MemberState::Open { epoch: 1 });
    }
    let closed = with_content(&open, 2, true);
    for chip in &closed {
        let device = member_alone(chip, Access::ReadWrite).expect("attached");
        assert_eq!(device.summary().member_state, MemberState::Closed { epoch: 2 });
    }
    let array = try_open(&on_supply(&closed, &PowerSupply::new()), Access::ReadOnly).expect("attached");
    assert_eq!(
        (array.resolution().state, array.resolution().epoch),
        (ArrayState::Closed, 2)
    );
}

#[test]
fn a_member_that_was_attached_by_itself_while_the_array_was_open_is_refused() {
    let mut chips = with_content(&array_of(2), 1, false);
    let alone = Arc::new(Mutex::new(chips[1].clone()));
    let scanned = ubi::scan(Arc::clone(&alone), AttachOptions::linux(Access::ReadWrite)).expect("scanned");
    drop(scanned.attach_alone().expect("attached"));
    chips[1] = taken(&[alone]).remove(0);
    assert!(refused(&chips).contains("chip1: member 1 of array data was written to by itself"));
    assert!(member_alone(&chips[1], Access::ReadWrite).is_err());
}

#[test]
fn a_member_of_a_closed_array_that_was_written_to_by_itself_is_refused() {
    let mut chips = with_content(&array_of(2), 1, true);
    let alone = Arc::new(Mutex::new(chips[0].clone()));
    let scanned = ubi::scan(Arc::clone(&alone), AttachOptions::linux(Access::ReadWrite)).expect("scanned");
    let device = scanned.attach().expect("it was closed");
    let volume = device.open(VolumeId(0)).expect("it is there");
    volume.leb_change(Leb(3), &[9; PAGE]).expect("room");
    device.settle().expect("nothing fails");
    drop((volume, device));
    chips[0] = taken(&[alone]).remove(0);
    assert!(refused(&chips).contains("chip0: member 0 of array data was written to by itself"));
}

#[test]
fn a_closed_array_takes_no_writes_and_says_why() {
    let chips = on_supply(&array_of(2), &PowerSupply::new());
    let array = open(&chips);
    array.close().expect("nothing fails");
    array.close().expect("it is closed");
    let error = array.volume().write(Leb(0), 0, &[1; PAGE]).expect_err("refused");
    assert!(
        matches!(&error, VolumeError::ReadOnly { reason, .. } if reason.contains("closed")),
        "{error}"
    );
}

#[test]
fn attaching_for_reading_writes_nothing() {
    for closed in [true, false] {
        let chips = with_content(&array_of(2), 7, closed);
        let supply = PowerSupply::new();
        let array = try_open(&on_supply(&chips, &supply), Access::ReadOnly).expect("attached");
        assert_eq!(read(&array, 3), whole(2, 7));
        array.close().expect("there is nothing to close");
        assert_eq!(supply.writes(), 0);
    }
}

/// Every program and erase of an opening, some use and a closing is cut in three ways; then the array is attached
/// read-only and read-write, used, and closed.
#[test]
fn a_power_cut_while_an_array_is_opened_or_closed_costs_nothing() {
    let ways = [CutPoint::Before, CutPoint::Partway(300), CutPoint::After];
    for members in [1, 2, 3] {
        let starts = [
            array_of(members),
            with_content(&array_of(members), 7, true),
            with_content(&with_content(&array_of(members), 6, false), 7, false),
        ];
        for (start, chips) in starts.iter().enumerate() {
            let mut cuts = 0;
            loop {
                let mut done = false;
                for way in ways {
                    done = opened_and_closed(chips, start > 0, cuts, way);
                }
                if done {
                    break;
                }
                cuts += 1;
            }
            assert!(cuts > 20, "{members} members, start {start}: {cuts} cuts");
        }
    }
}

/// Returns whether it ended before the cut.
fn opened_and_closed(chips: &[SimNand], filled: bool, cut: u64, way: CutPoint) -> bool {
    let what = format!("{} members, filled {filled}, cut {cut}, {way:?}", chips.len());
    let supply = PowerSupply::new();
    let chips = on_supply(chips, &supply);
    let members = chips.len();
    supply.plan(PowerCut {
        time: CutTime::Write(cut, way),
        torn_is_uncorrectable: true,
    });
    let mut unmapped = false;
    let mut work = || -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let array = try_open(&chips, Access::ReadWrite).map_err(|error| text(&error))?;
        array
            .volume()
            .leb_change(Leb(5), &whole(members, 8))
            .map_err(|error| text(&error))?;
        unmapped = true;
        array.volume().unmap(Leb(5)).map_err(|error| text(&error))?;
        array.close().map_err(|error| text(&error))
    };
    let ended = work();
    assert!(ended.is_ok() || supply.is_off(), "{what}: {ended:?}");
    supply.power_on();
    let check = |array: &Array| {
        assert_eq!(
            array.resolution().lost_shares,
            [],
            "{what}: {:?}",
            array.resolution()
        );
        if filled {
            assert_eq!(read(array, 3), whole(members, 7), "{what}");
        }
        let leb = read(array, 5);
        let empty = leb.iter().all(|byte| *byte == 0xFF);
        assert!(empty || leb == whole(members, 8), "{what}: LEB 5 is torn");
    };
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let array = try_open(&chips, access).unwrap_or_else(|error| panic!("{what}: {error}"));
        check(&array);
        if access == Access::ReadWrite {
            array
                .volume()
                .leb_change(Leb(6), &whole(members, 9))
                .expect("room");
            array.close().unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
    let array = open(&chips);
    assert_eq!(array.resolution().state, ArrayState::Closed, "{what}");
    check(&array);
    ended.is_ok()
}

/// In a closed array no operation was in progress: the content of a damaged block is always reported as lost, even if
/// it was written last.
#[test]
fn after_a_close_a_damaged_header_is_always_said() {
    for members in [2, 3] {
        let chips = with_content(&array_of(members), 7, true);
        let array = try_open(&on_supply(&chips, &PowerSupply::new()), Access::ReadOnly).expect("attached");
        for member in 0..members {
            let mapping = array.devices()[member].mapping(VolumeId(0));
            let peb = mapping[3].expect("mapped");
            let mut damaged = chips.clone();
            damaged[member].inject_bit_flips(peb, Page(VID_PAGE), 64);
            let array = open(&on_supply(&damaged, &PowerSupply::new()));
            let leb = Leb(3);
            assert_eq!(array.resolution().lost_shares, [LostShare { leb, member }]);
        }
    }
}

/// The dirty marks of one member are damaged, block by block and page by page: the array is attached with its content.
#[test]
fn damage_of_a_mark_costs_nothing() {
    for members in [1, 2, 3] {
        let chips = with_content(&with_content(&array_of(members), 6, true), 7, false);
        for member in 0..members {
            for peb in (0..BLOCKS).map(Peb).filter(|peb| is_mark(&chips[member], *peb)) {
                for page in VID_PAGE..VID_PAGE + 2 {
                    let what = format!("{members} members, member {member}, {peb}, page {page}");
                    let mut damaged = chips.clone();
                    damaged[member].inject_bit_flips(peb, Page(page), 64);
                    let damaged = on_supply(&damaged, &PowerSupply::new());
                    for _ in 0..2 {
                        let array = try_open(&damaged, Access::ReadWrite);
                        let array = array.unwrap_or_else(|error| panic!("{what}: {error}"));
                        assert_eq!(read(&array, 3), whole(members, 7), "{what}");
                        array.close().expect("nothing fails");
                    }
                }
            }
        }
    }
}

fn is_mark(chip: &SimNand, peb: Peb) -> bool {
    let mut raw = [0; PAGE];
    let _ = chip
        .clone()
        .read(peb, VID_PAGE * 512, &mut raw)
        .expect("in range");
    raw[..4] == *b"UBI!" && raw[8..12] == ubi::format::MARK_VOLUME.to_be_bytes()
}

/// More LEBs are unmapped than a mark has pages: the next mark takes over, wherever power is cut.
#[test]
fn unmapped_lebs_stay_unmapped_when_marks_are_full() {
    let chips = array_of(2);
    let mut cut = 0;
    loop {
        let supply = PowerSupply::new();
        let chips = on_supply(&chips, &supply);
        let array = open(&chips);
        supply.plan(PowerCut {
            time: CutTime::Write(supply.writes() + cut, CutPoint::Partway(100)),
            torn_is_uncorrectable: true,
        });
        let work = || -> Result<(), VolumeError> {
            for round in 0..20 {
                let leb = Leb(round % 3);
                array.volume().write(leb, 0, &[1; 3 * PAGE])?;
                array.volume().unmap(leb)?;
                array.devices()[usize::try_from(round % 2).expect("few")]
                    .work()
                    .map_err(|_| VolumeError::Unusable {
                        volume: array.volume().name(),
                        why: "power",
                    })?;
            }
            Ok(())
        };
        let ended = work();
        drop(array);
        assert!(ended.is_ok() || supply.is_off(), "cut {cut}: {ended:?}");
        supply.power_on();
        let array = open(&chips);
        assert_eq!(array.resolution().lost_shares, [], "cut {cut}");
        if ended.is_ok() {
            break;
        }
        cut += 1;
    }
    assert!(cut > 100, "{cut}");
}

/// Power is cut in 40 openings in a row, once all members are marked: each left a mark behind, until no block was free
/// for another.
#[test]
fn openings_that_are_cut_again_and_again_take_no_more_blocks() {
    let full = on_supply(&array_of(2), &PowerSupply::new());
    let array = open(&full);
    let lebs = array.volume().geometry().lebs;
    for leb in (0..lebs).map(Leb) {
        array.volume().leb_change(leb, &whole(2, 5)).expect("room for it");
    }
    array.close().expect("nothing fails");
    drop(array);
    let mut chips = taken(&full);
    for round in 0..40 {
        let supply = PowerSupply::new();
        let on = on_supply(&chips, &supply);
        supply.plan(PowerCut {
            time: CutTime::Write(2 + round % 5, CutPoint::Partway(300)),
            torn_is_uncorrectable: round.is_multiple_of(2),
        });
        // A successfully opened array is dropped, which has the effect of a power cut.
        if let Err(error) = try_open(&on, Access::ReadWrite) {
            assert!(supply.is_off(), "round {round}: {error}");
        }
        chips = taken(&on);
    }
    let array = open(&on_supply(&chips, &PowerSupply::new()));
    assert_eq!(array.resolution().lost_shares, []);
    for leb in 0..lebs {
        assert_eq!(read(&array, leb), whole(2, 5), "LEB {leb}");
    }
    array.close().expect("nothing fails");
}

/// Power is cut while a full mark is replaced by another, and again while the array is opened afterwards.
#[test]
fn two_power_cuts_while_a_mark_takes_over_cost_nothing() {
    let every = if testkit::is_full() { 1 } else { 5 };
    let members = 2;
    let mut openings = 0;
    for cut in 0.. {
        let supply = PowerSupply::new();
        let chips = on_supply(&with_content(&array_of(members), 7, true), &supply);
        let array = open(&chips);
        let volume = array.volume();
        let map_and_unmap = |leb| {
            volume.write(Leb(leb), 0, &whole(members, 8))?;
            volume.unmap(Leb(leb))
        };
        // A mark has one page for its epoch and five more.
        for leb in 10..15 {
            map_and_unmap(leb).expect("room");
        }
        supply.plan(PowerCut {
            time: CutTime::Write(supply.writes() + cut, CutPoint::Partway(200)),
            torn_is_uncorrectable: cut.is_multiple_of(2),
        });
        let ended = (15..18).try_for_each(map_and_unmap);
        drop(array);
        assert!(ended.is_ok() || supply.is_off(), "cut {cut}: {ended:?}");
        let left = taken(&chips);
        for second in (0..).step_by(every) {
            let what = format!("cut {cut}, then {second}");
            let supply = PowerSupply::new();
            let chips = on_supply(&left, &supply);
            supply.plan(PowerCut {
                time: CutTime::Write(second, CutPoint::Partway(200)),
                torn_is_uncorrectable: second.is_multiple_of(2),
            });
            let opened = try_open(&chips, Access::ReadWrite).map(drop);
            assert!(opened.is_ok() || supply.is_off(), "{what}: {opened:?}");
            supply.power_on();
            let array = try_open(&chips, Access::ReadWrite).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(array.resolution().lost_shares, [], "{what}");
            assert_eq!(read(&array, 3), whole(members, 7), "{what}");
            for leb in 10..18 {
                let mut found = vec![0; members * 6 * PAGE];
                let is_read = array.volume().read(Leb(leb), 0, &mut found).is_ok();
                let is_empty = found.iter().all(|byte| *byte == 0xFF);
                let is_right = is_read && (is_empty || found == whole(members, 8));
                // The write that was interrupted may be torn.
                assert!(
                    is_right || leb >= 15 && ended.is_err(),
                    "{what}: LEB {leb} is torn"
                );
            }
            array.close().unwrap_or_else(|error| panic!("{what}: {error}"));
            openings += 1;
            if opened.is_ok() {
                break;
            }
        }
        if ended.is_ok() {
            break;
        }
    }
    assert!(openings > 100, "{openings}");
}

/// A mark with a page of a later version after the first page.
#[test]
fn a_mark_of_a_later_version_is_refused_by_name() {
    let mut chips = with_content(&array_of(2), 7, false);
    let marked = (0..BLOCKS).map(Peb).find(|peb| is_mark(&chips[1], *peb));
    let peb = marked.expect("the array is open");
    let mut page = vec![0; PAGE];
    let offset = (VID_PAGE + 1) * 512;
    let _ = chips[1].read(peb, offset, &mut page).expect("in range");
    page[4] = 2;
    let crc = ubi::format::crc32(&page[..60]);
    page[60..64].copy_from_slice(&crc.to_be_bytes());
    chips[1].program(peb, offset + 512, &page).expect("it is erased");
    let supply = PowerSupply::new();
    let error = try_open(&on_supply(&chips, &supply), Access::ReadWrite).expect_err("refused");
    assert!(
        matches!(
            error,
            ArrayError::UnknownMark {
                version: 2,
                role: 0,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("chip1"), "{error}");
    assert_eq!(supply.writes(), 0);
}

/// One member erases the unmapped LEBs, the other does not; then a mark with new records takes over.
#[test]
fn a_mark_takes_over_once_all_members_erased_what_the_full_one_gave_up() {
    let chips = on_supply(&array_of(2), &PowerSupply::new());
    let array = open(&chips);
    for leb in (10..20).map(Leb) {
        array.volume().write(leb, 0, &whole(2, 8)).expect("room");
        array.volume().unmap(leb).expect("nothing fails");
        array.devices()[0].settle().expect("nothing fails");
        // The first block in the erase queue is a former mark, if there is one.
        if leb.0 >= 15 {
            array.devices()[1].work().expect("nothing fails");
        }
    }
    drop(array);
    let array = open(&chips);
    assert_eq!(
        array.resolution().lost_shares,
        [],
        "an unmapped LEB is taken for a damaged one"
    );
}
