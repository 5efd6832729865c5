//! One block of one member is damaged: its VID header, one data page, or all of it. The content on the other members
//! stays readable, lost data is an error, and the attach reports it. Then the array is used, and the same still holds.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{BITS, BLOCKS, Chip, PAGE, PAGES, VID_PAGE, array_of, on_supply, open, taken, try_open};
use array::{Array, ArrayState, LostShare};
use media::{Leb, Nand as _, Page, Peb};
use nand::{CutPoint, CutTime, PowerCut, PowerSupply, SimNand};
use testkit::prng::Prng;
use ubi::{Access, Volume, VolumeError};

/// LEBs that the workload uses.
const LEBS: u32 = 20;

/// The content of each LEB; `None` where it is not mapped.
type Contents = BTreeMap<u32, Option<Vec<u8>>>;

fn pages(prng: &mut Prng, most: u64) -> Vec<u8> {
    let count = 1 + usize::try_from(prng.below(most)).expect("few");
    let mut data = prng.bytes(count * PAGE);
    data.chunks_mut(PAGE).for_each(|page| page[0] = 0x11);
    data
}

/// Fills an array, changes, unmaps and writes LEBs. Stops at a power cut.
fn used(array: &Array, prng: &mut Prng, steps: u32, lazily: bool) {
    let volume = array.volume();
    let pages_of_leb = u64::from(volume.geometry().leb_bytes) / 512;
    for _ in 0..steps {
        let leb = Leb(u32::try_from(prng.below(u64::from(LEBS))).expect("few"));
        let done = match prng.below(10) {
            0..5 => volume.leb_change(leb, &pages(prng, pages_of_leb)),
            5..7 => volume.unmap(leb),
            _ if volume.is_mapped(leb).expect("in range") => Ok(()),
            _ => volume.write(leb, 0, &pages(prng, pages_of_leb)),
        };
        if done.is_err() || !lazily && volume.flush().is_err() {
            return;
        }
    }
}

/// The content of an undamaged array.
fn contents(array: &Array) -> Contents {
    let volume = array.volume();
    let read = |leb| {
        let mut bytes = vec![0; usize::try_from(volume.geometry().leb_bytes).expect("small")];
        match volume.read(Leb(leb), 0, &mut bytes) {
            Ok(()) | Err(VolumeError::Uncorrectable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        volume.is_mapped(Leb(leb)).expect("in range").then_some(bytes)
    };
    (0..LEBS).map(|leb| (leb, read(leb))).collect()
}

/// The pages that are unreadable without any damage.
fn torn_pages(array: &Array) -> BTreeSet<(u32, usize)> {
    let volume = array.volume();
    let pages = usize::try_from(volume.geometry().leb_bytes).expect("small") / PAGE;
    let all = (0..LEBS).flat_map(|leb| (0..pages).map(move |page| (leb, page)));
    all.filter(|(leb, page)| {
        let offset = u32::try_from(page * PAGE).expect("small");
        volume.read(Leb(*leb), offset, &mut [0; PAGE]).is_err()
    })
    .collect()
}

/// In place of a page number: all pages of a block.
const WHOLE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Damage {
    member: usize,
    peb: Peb,
    /// Or [`WHOLE`].
    page: u32,
}

impl Damage {
    fn apply(self, chips: &mut [SimNand]) {
        let Self { member, peb, page } = self;
        for page in (0..PAGES).filter(|one| page == *one || page == WHOLE) {
            chips[member].inject_bit_flips(peb, Page(page), BITS);
        }
    }

    /// Whether the damage makes a page of its block unreadable.
    const fn hides(self, page: u32) -> bool {
        self.page <= VID_PAGE || self.page == WHOLE || self.page == page
    }
}

struct Judge {
    healthy: Vec<SimNand>,
    expected: Contents,
    /// Pages of LEBs that a power cut had already torn.
    torn: BTreeSet<(u32, usize)>,
    in_force: Vec<Vec<Option<Peb>>>,
    /// No operation was in progress, so all damage can be recognized.
    closed: bool,
    what: String,
}

impl Judge {
    fn of(healthy: Vec<SimNand>, what: String) -> Self {
        // Attached read-only, so that nothing is written.
        let array = try_open(&on_supply(&healthy, &PowerSupply::new()), Access::ReadOnly).expect("attached");
        let devices = array.devices().iter();
        Self {
            expected: contents(&array),
            torn: torn_pages(&array),
            in_force: devices.map(|device| device.mapping(ubi::VolumeId(0))).collect(),
            closed: array.resolution().state == ArrayState::Closed,
            healthy,
            what,
        }
    }

    fn try_one(&self, damage: Damage) {
        let mut chips = self.healthy.clone();
        damage.apply(&mut chips);
        let Damage { member, peb, page } = damage;
        let what = format!("{}, {damage:?}", self.what);
        let supply = PowerSupply::new();
        let chips = on_supply(&chips, &supply);
        let lost = (0..)
            .zip(&self.in_force[member])
            .find(|(_, of_leb)| **of_leb == Some(peb))
            .map(|(leb, _)| leb)
            .filter(|leb| *leb < LEBS);
        let array = try_open(&chips, Access::ReadWrite).unwrap_or_else(|error| panic!("{what}: {error}"));
        let resolution = array.resolution().clone();
        let header = page <= VID_PAGE || page == WHOLE;
        let is_lost = |share: &LostShare| Some(share.leb.0) == lost && share.member == member;
        if let Some(leb) = lost.filter(|_| header)
            && self.can_be_told(leb, member)
        {
            let told = resolution.lost_shares.iter().any(is_lost) || resolution.rolled_back > 0;
            assert!(
                told,
                "{what}: nobody says that {leb} lost something: {resolution:?}"
            );
        }
        let damaged = lost.map(|leb| (leb, header, page));
        self.compare(&array, member, damaged, resolution.rolled_back > 0, &what);
        // After use and a close, the array still has all of it.
        for leb in LEBS..LEBS + 2 {
            array.volume().leb_change(Leb(leb), &[0x22; PAGE]).expect("room");
        }
        if let Some(leb) = resolution.lost_shares.first().map(|share| share.leb) {
            let refused = array.volume().write(leb, 0, &[0; PAGE]);
            assert!(
                matches!(refused, Err(VolumeError::Damaged { .. })),
                "{what}: {refused:?}"
            );
        }
        array.settle().expect("nothing fails");
        drop(array);
        let again = open(&chips);
        // A damaged page in a formerly free block may be part of a LEB written since.
        let of_before = |share: &&LostShare| share.leb.0 < LEBS;
        let lost: Vec<&LostShare> = again.resolution().lost_shares.iter().filter(of_before).collect();
        assert_eq!(
            lost,
            resolution.lost_shares.iter().collect::<Vec<_>>(),
            "{what}: what is lost changed"
        );
        self.compare(&again, member, damaged, resolution.rolled_back > 0, &what);
        // Once the LEBs are replaced as a whole, nothing is lost.
        for share in again.resolution().lost_shares.clone() {
            again.volume().leb_change(share.leb, &[0x33; PAGE]).expect("room");
        }
        assert_eq!(again.volume().lost_shares(), [], "{what}");
        drop(again);
        let healed = open(&chips);
        let lost: Vec<&LostShare> = healed.resolution().lost_shares.iter().filter(of_before).collect();
        assert_eq!(lost, Vec::<&LostShare>::new(), "{what}");
    }

    /// Two damages in a closed array: all data that neither hides is right, and the rest is right or an error, also
    /// after further use.
    fn try_pair(&self, pair: [Damage; 2]) {
        let what = format!("{}, {pair:?}", self.what);
        let mut chips = self.healthy.clone();
        pair.iter().for_each(|damage| damage.apply(&mut chips));
        let chips = on_supply(&chips, &PowerSupply::new());
        for round in 0..3 {
            let access = if round == 0 {
                Access::ReadOnly
            } else {
                Access::ReadWrite
            };
            let array = try_open(&chips, access).unwrap_or_else(|error| panic!("{what}: {error}"));
            self.hold_pair(&array, pair, &format!("{what}, round {round}"));
            if round == 0 {
                for damage in pair {
                    let leb = self.leb_of(damage).filter(|_| damage.hides(PAGES));
                    let share = leb.map(|leb| LostShare {
                        leb: Leb(leb),
                        member: damage.member,
                    });
                    let told = &array.resolution().lost_shares;
                    assert!(
                        share.is_none_or(|share| told.contains(&share)),
                        "{what}: nobody says {share:?}"
                    );
                }
            } else {
                array
                    .volume()
                    .leb_change(Leb(LEBS + round), &[0x22; PAGE])
                    .expect("room");
                array.close().expect("nothing fails");
            }
        }
    }

    /// The LEB whose share is in a damaged block.
    fn leb_of(&self, damage: Damage) -> Option<u32> {
        let mut lebs = (0..LEBS).zip(&self.in_force[damage.member]);
        lebs.find(|(_, of_leb)| **of_leb == Some(damage.peb))
            .map(|(leb, _)| leb)
    }

    fn hold_pair(&self, array: &Array, pair: [Damage; 2], what: &str) {
        let members = self.healthy.len();
        for (leb, expected) in &self.expected {
            let mapped = array.volume().is_mapped(Leb(*leb)).expect("in range");
            assert_eq!(mapped, expected.is_some(), "{what}: LEB {leb}");
            let Some(expected) = expected else { continue };
            for (number, page) in expected.chunks(PAGE).enumerate() {
                let mut found = vec![0; PAGE];
                let offset = u32::try_from(number * PAGE).expect("small");
                let row = u32::try_from(number / members).expect("small");
                let hides = |damage: &Damage| {
                    self.leb_of(*damage) == Some(*leb)
                        && number % members == damage.member
                        && damage.hides(VID_PAGE + 1 + row)
                };
                match array.volume().read(Leb(*leb), offset, &mut found) {
                    Ok(()) => assert!(
                        found == page,
                        "{what}: LEB {leb}, page {number} is wrong, and nobody says so"
                    ),
                    Err(VolumeError::Uncorrectable { .. }) => assert!(
                        pair.iter().any(hides),
                        "{what}: LEB {leb}, page {number} can't be read"
                    ),
                    Err(error) => panic!("{what}: {error}"),
                }
            }
        }
    }

    /// Whether the remains of a LEB distinguish damage to a member's block from a power cut: the array was closed, or
    /// the data behind the header is fully readable and another member has data, too.
    fn can_be_told(&self, leb: u32, member: usize) -> bool {
        if self.closed {
            return true;
        }
        let mut others = (0..self.healthy.len()).filter(|other| *other != member);
        let is_torn = |(of, page): &(u32, usize)| *of == leb && page % self.healthy.len() == member;
        !self.torn.iter().any(is_torn)
            && self.has_data(leb, member)
            && others.any(|other| self.has_data(leb, other))
    }

    fn is_written(&self, member: usize, peb: Peb, page: u32) -> bool {
        let mut bytes = [0; PAGE];
        let mut chip = self.healthy[member].clone();
        let _ = chip.read(peb, page * 512, &mut bytes).expect("in range");
        bytes.iter().any(|byte| *byte != 0xFF)
    }

    /// Whether a member's share of a LEB has a written page: without one nothing is lost, and damage can't be
    /// distinguished from a cut.
    fn has_data(&self, leb: u32, member: usize) -> bool {
        let bytes = self.expected[&leb].as_ref().expect("mapped");
        let members = self.healthy.len();
        let of_member = bytes.chunks(PAGE).skip(member).step_by(members);
        of_member
            .into_iter()
            .any(|page| page.iter().any(|byte| *byte != 0xFF))
    }

    fn compare(
        &self,
        array: &Array,
        member: usize,
        damaged: Option<(u32, bool, u32)>,
        rolled_back: bool,
        what: &str,
    ) {
        let volume = array.volume();
        let members = self.healthy.len();
        for (leb, expected) in &self.expected {
            let Some(expected) = expected else { continue };
            let mine = damaged.filter(|(of, _, _)| of == leb);
            if mine.is_some() && rolled_back {
                continue;
            }
            let mapped = volume.is_mapped(Leb(*leb)).expect("in range");
            let header_of_nothing =
                mine.is_some_and(|(_, header, _)| header) && !self.can_be_told(*leb, member);
            assert!(
                mapped || header_of_nothing,
                "{what}: LEB {leb} is not mapped any more"
            );
            if !mapped {
                continue;
            }
            for (number, page) in expected.chunks(PAGE).enumerate() {
                let mut found = vec![0; PAGE];
                let offset = u32::try_from(number * PAGE).expect("small");
                match volume.read(Leb(*leb), offset, &mut found) {
                    Ok(()) => assert!(
                        found == page,
                        "{what}: LEB {leb}, page {number} is wrong, and nobody says so"
                    ),
                    Err(VolumeError::Uncorrectable { .. }) if self.torn.contains(&(*leb, number)) => {}
                    Err(VolumeError::Uncorrectable { .. }) => {
                        let on_block = mine.is_some_and(|(_, header, page)| {
                            let row = u32::try_from(number / members).expect("small");
                            header || page == VID_PAGE + 1 + row
                        });
                        assert!(
                            number % members == member && on_block,
                            "{what}: LEB {leb}, page {number} can't be read"
                        );
                    }
                    Err(error) => panic!("{what}: {error}"),
                }
            }
        }
    }
}

/// An array as left after a workload: closed, with all erases done or pending, or cut.
fn left(members: usize, seed: u64) -> Vec<SimNand> {
    let supply = PowerSupply::new();
    let chips = on_supply(&array_of(members), &supply);
    let mut prng = Prng::named(seed, "damage");
    let array = open(&chips);
    used(&array, &mut prng, 60, false);
    match seed % 3 {
        0 if seed.is_multiple_of(2) => array.close().expect("nothing fails"),
        0 => array.settle().expect("nothing fails"),
        1 => used(&array, &mut prng, 6, true),
        _ => {
            supply.plan(PowerCut {
                time: CutTime::Write(supply.writes() + prng.below(60), CutPoint::Partway(200)),
                torn_is_uncorrectable: true,
            });
            used(&array, &mut prng, 40, true);
        }
    }
    drop(array);
    taken(&chips)
}

/// Tries each damage of each block of each member: `pages` lists its pages to damage, or [`WHOLE`]. Returns the number
/// of damages.
fn each_block_damaged(pages: impl Fn(&Judge, usize, Peb) -> Vec<u32>) -> usize {
    let seeds = if testkit::is_full() { 36 } else { 3 };
    let mut damages = 0;
    for members in [2, 3, 4] {
        for seed in 0..seeds {
            let judge = Judge::of(left(members, seed), format!("{members} members, seed {seed}"));
            for member in 0..members {
                for peb in (0..BLOCKS).map(Peb) {
                    for page in pages(&judge, member, peb) {
                        judge.try_one(Damage { member, peb, page });
                        damages += 1;
                    }
                }
            }
        }
    }
    damages
}

#[test]
#[expect(clippy::print_stdout, reason = "`--nocapture` shows how many there were")]
fn damage_of_one_page_costs_that_page_and_nothing_else() {
    // A member's volume table has its own copies; `ubi` tests them.
    let every = if testkit::is_full() { 1 } else { 3 };
    let damages = each_block_damaged(|judge, member, peb| {
        // Bit-flips in an erased page affect only data that is written there later.
        (VID_PAGE..PAGES)
            .filter(|page| (page + peb.0) % every == 0 && judge.is_written(member, peb, *page))
            .collect()
    });
    println!("{damages} damaged pages");
}

#[test]
#[expect(clippy::print_stdout, reason = "`--nocapture` shows how many there were")]
fn a_block_of_which_nothing_can_be_read_costs_its_share_and_nothing_else() {
    let damages = each_block_damaged(|judge, member, peb| {
        let is_used = judge.is_written(member, peb, VID_PAGE);
        is_used.then_some(WHOLE).into_iter().collect()
    });
    println!("{damages} damaged blocks");
}

#[test]
#[expect(clippy::print_stdout, reason = "`--nocapture` shows how many there were")]
fn two_damages_cost_what_each_hides_and_nothing_else() {
    let (seeds, pairs) = if testkit::is_full() { (24, 40) } else { (2, 12) };
    let mut tried = 0;
    for members in [2, 3, 4] {
        // Closed arrays only: in others, two damages can look like the result of a power cut.
        for seed in (0..seeds).map(|seed| 6 * seed) {
            let judge = Judge::of(left(members, seed), format!("{members} members, seed {seed}"));
            assert!(judge.closed);
            let mut prng = Prng::named(seed, "pairs");
            let of_member = |member: usize| {
                let blocks = judge.in_force[member].iter().flatten();
                blocks.flat_map(move |peb| {
                    let pages = (VID_PAGE..PAGES).chain([WHOLE]);
                    pages.map(move |page| Damage {
                        member,
                        peb: *peb,
                        page,
                    })
                })
            };
            let all: Vec<Damage> = (0..members).flat_map(of_member).collect();
            let mut any =
                || all[usize::try_from(prng.below(u64::try_from(all.len()).expect("few"))).expect("few")];
            for _ in 0..pairs {
                let pair = [any(), any()];
                let [first, second] = pair;
                // With this few blocks, two damaged headers are considered a failure of the whole chip.
                if first.member == second.member && first.hides(PAGES) && second.hides(PAGES) {
                    continue;
                }
                judge.try_pair(pair);
                tried += 1;
            }
        }
    }
    println!("{tried} pairs");
}

/// A block with its earlier content. Without parity, pages added to it since read as erased, undetected; everything
/// else is right or an error.
#[test]
#[expect(clippy::print_stdout, reason = "`--nocapture` shows how many there were")]
fn a_block_of_an_older_copy_shows_no_other_content() {
    let seeds = if testkit::is_full() { 24 } else { 2 };
    let every = if testkit::is_full() { 1 } else { 5 };
    let (mut tried, mut errors, mut erased) = (0, 0, 0);
    for members in [2, 3, 4] {
        for seed in (0..seeds).map(|seed| 6 * seed) {
            let older = left(members, seed);
            let chips = on_supply(&older, &PowerSupply::new());
            let array = open(&chips);
            used(&array, &mut Prng::named(seed, "since"), 20, false);
            array.close().expect("nothing fails");
            drop(array);
            let judge = Judge::of(taken(&chips), format!("{members} members, seed {seed}"));
            for member in 0..members {
                for peb in (0..BLOCKS).step_by(every).map(Peb) {
                    let what = format!("{}, {peb} of member {member}", judge.what);
                    let mut chips = judge.healthy.clone();
                    crate::support::copy_block(&older[member], &mut chips[member], peb);
                    tried += 1;
                    let array = match try_open(&on_supply(&chips, &PowerSupply::new()), Access::ReadWrite) {
                        Ok(array) => array,
                        // The block held the volume table with the epoch.
                        Err(error) => {
                            assert!(error.to_string().contains("stale"), "{what}: {error}");
                            continue;
                        }
                    };
                    let told = &array.resolution().lost_shares;
                    for (leb, expected) in &judge.expected {
                        // A LEB that was unmapped since reappears with part of its content, and this is reported.
                        if expected.is_none() && told.iter().any(|share| share.leb.0 == *leb) {
                            continue;
                        }
                        let expected = expected.clone().unwrap_or_else(|| vec![0xFF; PAGE * members * 6]);
                        for (number, page) in expected.chunks(PAGE).enumerate() {
                            let mut found = vec![0; PAGE];
                            let offset = u32::try_from(number * PAGE).expect("small");
                            let read = array.volume().read(Leb(*leb), offset, &mut found);
                            if read.is_ok() && found == page {
                                continue;
                            }
                            assert_eq!(number % members, member, "{what}: LEB {leb}, page {number}");
                            errors += usize::from(read.is_err());
                            erased += usize::from(read.is_ok());
                            assert!(
                                read.is_err() || found.iter().all(|byte| *byte == 0xFF),
                                "{what}: LEB {leb}, page {number} is wrong"
                            );
                        }
                    }
                }
            }
        }
    }
    println!("{tried} blocks, {errors} errors, {erased} pages read as erased");
}

/// A member is an older copy, whatever the array did since: it is refused, and nothing is written.
#[test]
#[expect(clippy::print_stdout, reason = "`--nocapture` shows how many there were")]
fn a_member_of_an_earlier_time_is_refused_whatever_happened_since() {
    let seeds = if testkit::is_full() { 120 } else { 6 };
    let mut stale = 0;
    for members in [2, 3, 4] {
        for seed in 0..seeds {
            let earlier = left(members, seed);
            let supply = PowerSupply::new();
            let chips = on_supply(&earlier, &supply);
            let array = open(&chips);
            used(
                &array,
                &mut Prng::named(seed, "later"),
                10,
                seed.is_multiple_of(2),
            );
            if seed.is_multiple_of(3) {
                array.close().expect("nothing fails");
            }
            drop(array);
            let later = taken(&chips);
            for member in 0..members {
                let mut mixed = later.clone();
                mixed[member] = earlier[member].clone();
                let supply = PowerSupply::new();
                let mixed = on_supply(&mixed, &supply);
                let error = try_open(&mixed, Access::ReadWrite).expect_err("refused");
                let names = format!("chip{member}: member {member} of array data is stale");
                assert!(
                    error.to_string().contains(&names),
                    "{members} members, seed {seed}, member {member}: {error}"
                );
                assert_eq!(supply.writes(), 0, "a refused array was written to");
                stale += 1;
            }
        }
    }
    println!("{stale} stale members");
}

/// Power was cut while the first change of a LEB was written on member 3, after the LEB was mapped; then the header of
/// its empty block on member 0 was damaged. The change was accepted with its torn share, and this was not reported.
#[test]
fn a_torn_first_change_is_not_taken_where_a_header_of_the_empty_leb_is_damaged() {
    let judge = Judge::of(left(4, 23), "4 members, seed 23".to_owned());
    for peb in (0..BLOCKS).map(Peb) {
        if judge.is_written(0, peb, VID_PAGE) {
            judge.try_one(Damage {
                member: 0,
                peb,
                page: VID_PAGE,
            });
        }
    }
}

/// A member's current block of a LEB.
fn block_of(array: &Array, member: usize, leb: Leb) -> Peb {
    let mapping = array.devices()[member].mapping(ubi::VolumeId(0));
    mapping[usize::try_from(leb.0).expect("few")].expect("mapped")
}

/// Damages the VID header of `peb` on member 1. Returns the first page of a LEB, which is on member 0, and the lost
/// shares.
fn first_page_without(chips: &[Chip], peb: Peb, leb: Leb) -> (Vec<u8>, Vec<LostShare>) {
    chips[1]
        .lock()
        .expect("no panic")
        .inject_bit_flips(peb, Page(VID_PAGE), BITS);
    let array = open(chips);
    let mut page = vec![0; PAGE];
    let read = array.volume().read(leb, 0, &mut page);
    assert!(read.is_ok(), "{:?}: {read:?}", array.resolution());
    (page, array.resolution().lost_shares.clone())
}

#[test]
fn a_last_change_whose_old_content_a_member_let_go_was_complete() {
    let chips = on_supply(&array_of(2), &PowerSupply::new());
    let array = open(&chips);
    let leb = Leb(3);
    array.volume().leb_change(leb, &[0x11; 4 * PAGE]).expect("room");
    array.settle().expect("nothing fails");
    array.volume().leb_change(leb, &[0x22; 4 * PAGE]).expect("room");
    array.devices()[1].settle().expect("nothing fails");
    let peb = block_of(&array, 1, leb);
    drop(array);
    let (page, lost) = first_page_without(&chips, peb, leb);
    assert_eq!(page, [0x22; PAGE], "what was acknowledged last is gone");
    assert_eq!(lost, [LostShare { leb, member: 1 }]);
}

#[test]
fn a_last_map_behind_which_pages_were_written_was_complete() {
    let chips = on_supply(&array_of(2), &PowerSupply::new());
    let array = open(&chips);
    let leb = Leb(3);
    array.volume().leb_change(leb, &[0x11; 4 * PAGE]).expect("room");
    array.settle().expect("nothing fails");
    array.volume().unmap(leb).expect("nothing fails");
    array.volume().write(leb, 0, &[0x22; 4 * PAGE]).expect("room");
    let peb = block_of(&array, 1, leb);
    drop(array);
    let (page, lost) = first_page_without(&chips, peb, leb);
    assert_eq!(page, [0x22; PAGE], "a former life of the LEB came back");
    assert_eq!(lost, [LostShare { leb, member: 1 }]);
}

/// Wear levelling or scrubbing moved a member's block, pages were added, and a page of the copied part is damaged
/// before the old block is erased: the old block, which ends earlier, was chosen.
#[test]
fn damage_of_a_moved_block_does_not_bring_the_block_of_before_back() {
    let chips = on_supply(&array_of(2), &PowerSupply::new());
    let array = open(&chips);
    let (volume, leb) = (array.volume(), Leb(3));
    volume.write(leb, 0, &[0x11; 4 * PAGE]).expect("room");
    array.settle().expect("nothing fails");
    let mut chip = chips[1].lock().expect("no panic");
    chip.inject_bit_flips(block_of(&array, 1, leb), Page(VID_PAGE + 1), 3);
    drop(chip);
    volume.read(leb, 0, &mut [0; 4 * PAGE]).expect("corrected");
    while !matches!(
        array.devices()[1].work().expect("nothing fails"),
        ubi::Work::Scrubbed { .. }
    ) {}
    volume.write(leb, 4 * 512, &[0x22; 4 * PAGE]).expect("room");
    let peb = block_of(&array, 1, leb);
    drop(array);
    crate::support::damage(&chips[1], peb, VID_PAGE + 1);
    let array = open(&chips);
    let mut added = [0; 4 * PAGE];
    array
        .volume()
        .read(leb, 4 * 512, &mut added)
        .expect("only a page before is damaged");
    assert_eq!(added, [0x22; 4 * PAGE]);
}
