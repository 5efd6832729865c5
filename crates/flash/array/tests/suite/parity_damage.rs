//! Damage in arrays with parity: a page, a VID header or a block, or a block of an older copy; and pairs of these.
//! Content that can be computed from the other members is read and rewritten; if two pages of a row are damaged, both
//! are errors, and nothing else is lost.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{BITS, BLOCKS, PAGE, PAGES, VID_PAGE, formatted, on_supply, open, taken, try_open};
use array::{Array, ArrayError, Redundancy};
use media::{Leb, Page, Peb};
use nand::{CutPoint, CutTime, PowerCut, PowerSupply, SimNand};
use testkit::prng::Prng;
use ubi::{Access, Volume, VolumeError, VolumeId};

/// LEBs that the workload uses.
const LEBS: u32 = 16;

fn used(array: &Array, prng: &mut Prng, steps: u32) {
    let volume = array.volume();
    let row = volume.geometry().min_io_bytes;
    let rows_of_leb = volume.geometry().leb_bytes / row;
    let mut written: BTreeMap<u32, u32> = BTreeMap::new();
    for _ in 0..steps {
        let leb = u32::try_from(prng.below(u64::from(LEBS))).expect("few");
        let rows = 1 + u32::try_from(prng.below(u64::from(rows_of_leb))).expect("few");
        let mut data = prng.bytes(usize::try_from(rows * row).expect("small"));
        data.chunks_mut(PAGE).for_each(|page| page[0] = 0x11);
        let at = written.get(&leb).copied();
        let done = match (prng.below(10), at) {
            (0, _) => {
                written.remove(&leb);
                volume.unmap(Leb(leb))
            }
            (1..6, Some(at)) if at + rows <= rows_of_leb => {
                written.insert(leb, at + rows);
                volume.write(Leb(leb), at * row, &data)
            }
            _ => {
                written.insert(leb, rows);
                volume.leb_change(Leb(leb), &data)
            }
        };
        if done.is_err() {
            return;
        }
    }
}

/// An array as left after a workload, and a copy from before its last use. It was cut, closed, or neither.
fn left(members: usize, seed: u64) -> (Vec<SimNand>, Vec<SimNand>) {
    let supply = PowerSupply::new();
    let chips = on_supply(&formatted(members, Redundancy::Parity), &supply);
    let mut prng = Prng::named(seed, "parity damage");
    let array = open(&chips);
    used(&array, &mut prng, 50);
    array.close().expect("nothing fails");
    drop(array);
    let older = taken(&chips);
    let array = open(&chips);
    match seed % 3 {
        0 => {
            used(&array, &mut prng, 20);
            array.close().expect("nothing fails");
        }
        1 => used(&array, &mut prng, 20),
        _ => {
            supply.plan(PowerCut {
                time: CutTime::Write(supply.writes() + prng.below(100), CutPoint::Partway(200)),
                torn_is_uncorrectable: true,
            });
            used(&array, &mut prng, 40);
        }
    }
    drop(array);
    (taken(&chips), older)
}

/// The pages of an array, `None` if unreadable.
type Pages = BTreeMap<(u32, u32), Option<Vec<u8>>>;

fn pages(array: &Array) -> Pages {
    let volume = array.volume();
    let pages = volume.geometry().leb_bytes / 512;
    let all = (0..LEBS).flat_map(|leb| (0..pages).map(move |page| (leb, page)));
    let read = |(leb, page)| {
        let mut bytes = vec![0; PAGE];
        match volume.read(Leb(leb), page * 512, &mut bytes) {
            Ok(()) => ((leb, page), Some(bytes)),
            Err(VolumeError::Uncorrectable { .. }) => ((leb, page), None),
            Err(error) => panic!("{error}"),
        }
    };
    all.map(read).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// A page of a block.
    Page(u32),
    /// All pages of a block.
    Whole,
}

#[derive(Clone, Copy, Debug)]
struct Spot {
    member: usize,
    peb: Peb,
    damage: Damage,
}

impl Spot {
    fn apply(self, chips: &mut [SimNand]) {
        let pages = match self.damage {
            Damage::Page(page) => page..page + 1,
            Damage::Whole => 0..PAGES,
        };
        for page in pages {
            chips[self.member].inject_bit_flips(self.peb, Page(page), BITS);
        }
    }
}

struct Judge {
    members: usize,
    healthy: Vec<SimNand>,
    expected: Pages,
    /// The blocks of each member's LEBs after recovery.
    in_force: Vec<Vec<Option<Peb>>>,
    what: String,
}

impl Judge {
    /// Judges the array after its recovery, so that pages torn by a power cut are not counted as damage.
    fn of(left: &[SimNand], closed: bool, what: String) -> Self {
        let chips = on_supply(left, &PowerSupply::new());
        let array = open(&chips);
        if closed {
            array.close().expect("nothing fails");
        }
        drop(array);
        let healthy = taken(&chips);
        let array = try_open(&chips, Access::ReadOnly).expect("attached");
        let devices = array.devices().iter();
        Self {
            members: left.len(),
            expected: pages(&array),
            in_force: devices.map(|device| device.mapping(VolumeId(0))).collect(),
            healthy,
            what,
        }
    }

    /// The rows in which a spot makes a page unreadable, as LEB and row.
    fn hidden_rows(&self, spot: Spot) -> BTreeSet<(u32, u32)> {
        let of_block = |peb: &Option<Peb>| *peb == Some(spot.peb);
        let Some(leb) = self.in_force[spot.member].iter().position(of_block) else {
            return BTreeSet::new();
        };
        let leb = u32::try_from(leb).expect("few");
        let rows = match spot.damage {
            Damage::Page(page) if page > VID_PAGE => page - VID_PAGE - 1..page - VID_PAGE,
            _ => 0..PAGES - VID_PAGE - 1,
        };
        rows.map(|row| (leb, row)).collect()
    }

    /// Attaches a damaged array, compares, uses, closes, and compares again.
    fn try_these(&self, spots: &[Spot]) {
        let what = format!("{}, {spots:?}", self.what);
        let mut chips = self.healthy.clone();
        spots.iter().for_each(|spot| spot.apply(&mut chips));
        let mut twice = BTreeSet::new();
        if let [first, second] = spots
            && first.member != second.member
        {
            twice = &self.hidden_rows(*first) & &self.hidden_rows(*second);
        }
        let chips = on_supply(&chips, &PowerSupply::new());
        let mut was_left_out = false;
        for round in 0..3 {
            let access = if round == 0 {
                Access::ReadOnly
            } else {
                Access::ReadWrite
            };
            let array = match try_open(&chips, access) {
                Ok(array) => array,
                // The dirty marks of two members are damaged, and nothing was written since the last close.
                Err(ArrayError::Stale { .. }) if spots.len() == 2 => return,
                Err(error) => panic!("{what}: {error}"),
            };
            let found = pages(&array);
            for ((leb, page), expected) in &self.expected {
                let (found, what) = (&found[&(*leb, *page)], format!("{what}, round {round}"));
                let row = page / u32::try_from(self.members - 1).expect("few");
                // A member with a damaged mark may be left out, and then a second damage is one too many.
                let left_out = array.absent().map(|absent| absent.place);
                let is_second = |spot: &Spot| {
                    Some(spot.member) != left_out && self.hidden_rows(*spot).contains(&(*leb, row))
                };
                let is_lost = twice.contains(&(*leb, row))
                    || expected.is_none()
                    || left_out.is_some() && spots.iter().any(is_second);
                assert!(
                    found == expected || is_lost && found.is_none(),
                    "{what}: LEB {leb}, page {page}: {}",
                    if found.is_none() { "can't be read" } else { "wrong" }
                );
            }
            let header = spots.iter().any(|spot| {
                let is_header = matches!(spot.damage, Damage::Whole | Damage::Page(VID_PAGE));
                is_header && !self.hidden_rows(*spot).is_empty()
            });
            let resolution = array.resolution();
            // Without its mark, and if nothing was written since the last close, a member is considered stale.
            was_left_out |= array.absent().is_some();
            if round == 0 && header && !was_left_out {
                let told = resolution.lost_shares.len() + resolution.unfinished.len();
                assert!(told > 0, "{what}: nobody says that something is lost");
            }
            if round > 0 {
                let row = array.volume().geometry().min_io_bytes;
                let data = vec![0x22; usize::try_from(row).expect("small")];
                array.volume().leb_change(Leb(LEBS + round), &data).expect("room");
                for leb in (0..LEBS).map(Leb) {
                    array
                        .volume()
                        .mend(leb)
                        .unwrap_or_else(|error| panic!("{what}: {error}"));
                }
                array.close().expect("nothing fails");
            }
        }
        if twice.is_empty() && !was_left_out && self.expected.values().all(Option::is_some) {
            // All damage was repaired: any member may be lost.
            for gone in 0..self.members {
                let mut left = chips.clone();
                left.remove(gone);
                let array = try_open(&left, Access::ReadOnly).expect("attached");
                assert!(pages(&array) == self.expected, "{what}, then without {gone}");
            }
        }
    }

    fn is_written(&self, member: usize, peb: Peb, page: u32) -> bool {
        let mut bytes = [0; PAGE];
        let mut chip = self.healthy[member].clone();
        let _ = media::Nand::read(&mut chip, peb, page * 512, &mut bytes).expect("in range");
        bytes.iter().any(|byte| *byte != 0xFF)
    }

    /// Every damage of a block in use.
    fn spots(&self) -> Vec<Spot> {
        let mut spots = Vec::new();
        for member in 0..self.members {
            for peb in (0..BLOCKS).map(Peb) {
                let of = |damage| Spot { member, peb, damage };
                let written = (VID_PAGE..PAGES).filter(|page| self.is_written(member, peb, *page));
                spots.extend(written.map(|page| of(Damage::Page(page))));
                if self.is_written(member, peb, VID_PAGE) {
                    spots.push(of(Damage::Whole));
                }
            }
        }
        spots
    }
}

fn judges() -> impl Iterator<Item = (Judge, Vec<SimNand>)> {
    let seeds = if testkit::is_full() { 12 } else { 3 };
    let all = [3, 4]
        .into_iter()
        .flat_map(move |members| (0..seeds).map(move |seed| (members, seed)));
    all.map(|(members, seed)| {
        let (now, older) = left(members, seed);
        let what = format!("{members} members, seed {seed}");
        (Judge::of(&now, seed.is_multiple_of(2), what), older)
    })
}

#[test]
#[expect(clippy::print_stdout, reason = "`--nocapture` shows how many there were")]
fn one_damage_costs_nothing_and_is_mended() {
    let every = if testkit::is_full() { 1 } else { 17 };
    let mut tried = 0;
    for (judge, _) in judges() {
        for spot in judge.spots().into_iter().step_by(every) {
            judge.try_these(&[spot]);
            tried += 1;
        }
    }
    println!("{tried} damages");
    assert!(tried > 100, "{tried}");
}

#[test]
#[expect(clippy::print_stdout, reason = "`--nocapture` shows how many there were")]
fn two_damages_cost_the_rows_that_both_are_in_and_nothing_else() {
    let pairs = if testkit::is_full() { 100 } else { 15 };
    let (mut tried, mut in_one_row) = (0, 0);
    for (judge, _) in judges() {
        let spots = judge.spots();
        let mut prng = Prng::named(1, &judge.what);
        let mut any = |from: &[Spot]| {
            from[usize::try_from(prng.below(u64::try_from(from.len()).expect("few"))).expect("few")]
        };
        for pair in 0..pairs {
            let first = any(&spots);
            let of_row = |spot: &Spot| {
                spot.member != first.member
                    && !(&judge.hidden_rows(*spot) & &judge.hidden_rows(first)).is_empty()
            };
            let rows: Vec<Spot> = spots.iter().copied().filter(of_row).collect();
            let second = match rows.is_empty() || pair % 2 == 0 {
                true => any(&spots),
                false => any(&rows),
            };
            if first.member == second.member && first.peb == second.peb {
                continue;
            }
            in_one_row += usize::from(of_row(&second));
            judge.try_these(&[first, second]);
            tried += 1;
        }
    }
    println!("{tried} pairs, {in_one_row} of them in one row");
    assert!(in_one_row > 10, "{in_one_row}");
}

/// A block with its earlier content: its pages are computed from the others, and rewritten.
#[test]
#[expect(clippy::print_stdout, reason = "`--nocapture` shows how many there were")]
fn a_block_of_an_older_copy_costs_nothing_and_is_mended() {
    let every = if testkit::is_full() { 1 } else { 9 };
    let (mut tried, mut errors) = (0, 0);
    for (judge, older) in judges() {
        for member in 0..judge.members {
            for peb in (0..BLOCKS).step_by(every).map(Peb) {
                let what = format!("{}, {peb} of member {member}", judge.what);
                let mut chips = judge.healthy.clone();
                crate::support::copy_block(&older[member], &mut chips[member], peb);
                let chips = on_supply(&chips, &PowerSupply::new());
                for access in [Access::ReadOnly, Access::ReadWrite] {
                    let array = try_open(&chips, access).unwrap_or_else(|error| panic!("{what}: {error}"));
                    let told = array.resolution().lost_shares.clone();
                    for ((leb, page), found) in pages(&array) {
                        let expected = &judge.expected[&(leb, page)];
                        // A LEB that was unmapped since reappears with part of its content, and this is reported.
                        let is_back = told.iter().any(|share| share.leb.0 == leb)
                            && expected
                                .as_ref()
                                .is_some_and(|page| page.iter().all(|byte| *byte == 0xFF));
                        // Two erased pages in an inconsistent row: it is unknown which is wrong.
                        let is_error = found.is_none();
                        assert!(
                            found == *expected || is_error || is_back,
                            "{what}, {access:?}: LEB {leb}, page {page} is wrong"
                        );
                        errors += usize::from(is_error && expected.is_some());
                    }
                    if access == Access::ReadWrite && array.absent().is_none() {
                        for leb in (0..LEBS).map(Leb) {
                            array
                                .volume()
                                .mend(leb)
                                .unwrap_or_else(|error| panic!("{what}: {error}"));
                        }
                        array.close().expect("nothing fails");
                        drop(array);
                        let mut left = chips.clone();
                        left.remove((member + 1) % judge.members);
                        let array = try_open(&left, Access::ReadOnly).expect("attached");
                        for ((leb, page), found) in pages(&array) {
                            let is_back = told.iter().any(|share| share.leb.0 == leb);
                            let is_right = found == judge.expected[&(leb, page)];
                            assert!(
                                is_right || found.is_none() || is_back,
                                "{what}, mended: LEB {leb}, page {page} is wrong"
                            );
                        }
                    }
                }
                tried += 1;
            }
        }
    }
    println!("{tried} blocks, {errors} pages that can't be read");
}
