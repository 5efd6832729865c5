//! One block of one member is damaged: its VID header, one page of its data, or all of it. What is on the other members stays, what was lost is
//! an error, and whoever attaches is told. Then the array is used, and all of it holds still.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use array::{Array, ArrayState, Execution, LostShare, MemberIdentity, attach};
use media::{Leb, Nand as _, NandGeometry, Page, Peb};
use nand::{ChipModel, CutPoint, CutTime, FaultModel, PowerCut, PowerSupply, SimNand};
use testkit::prng::Prng;
use ubi::{Access, AttachOptions, FormatOptions, Layout, Volume, VolumeError};

type Chip = Arc<Mutex<SimNand>>;

const PAGE: usize = 512;
const BLOCKS: u32 = 40;
const PAGES: u32 = 8;
/// LEBs that the workload uses.
const LEBS: u32 = 20;
/// The page of the VID header; data begins behind it.
const VID_PAGE: u32 = 1;
/// More than is corrected.
const BITS: u32 = 64;

/// The content of each LEB; `None` where it is not mapped.
type Contents = BTreeMap<u32, Option<Vec<u8>>>;

fn chips(members: usize) -> Vec<SimNand> {
    let geometry = NandGeometry::new(512, PAGES, BLOCKS).expect("a geometry");
    let chip = |member| {
        SimNand::new(
            &format!("chip{member}"),
            ChipModel::new(geometry),
            FaultModel::none(),
        )
    };
    let chips: Vec<Chip> = (0..members)
        .map(|member| Arc::new(Mutex::new(chip(member))))
        .collect();
    let options = FormatOptions {
        layout: Layout::usual(&geometry).expect("a layout"),
        image_sequence: 1,
        erase_counter: None,
    };
    let identity = MemberIdentity {
        array: 0xDA,
        index: 0,
        members: 0,
        redundancy: array::Redundancy::None,
        label: "damage".to_owned(),
    };
    array::format(chips.clone(), options, &identity, &mut |_, _| {}).expect("formatted");
    taken(&chips)
}

fn taken(chips: &[Chip]) -> Vec<SimNand> {
    chips
        .iter()
        .map(|chip| chip.lock().expect("no panic").clone())
        .collect()
}

fn on_one_supply(chips: &[SimNand], supply: &PowerSupply) -> Vec<Chip> {
    chips
        .iter()
        .map(|chip| Arc::new(Mutex::new(chip.clone().with_supply(supply))))
        .collect()
}

fn open(chips: &[Chip], access: Access) -> Array<Chip> {
    attach(chips.to_vec(), AttachOptions::linux(access), Execution::Inline).expect("attached")
}

fn pages(prng: &mut Prng, most: u64) -> Vec<u8> {
    let count = 1 + usize::try_from(prng.below(most)).expect("few");
    let mut data = prng.bytes(count * PAGE);
    data.chunks_mut(PAGE).for_each(|page| page[0] = 0x11);
    data
}

/// Fills an array, changes, unmaps and writes. Ends where power goes.
fn used(array: &Array<Chip>, prng: &mut Prng, steps: u32, lazily: bool) {
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
fn contents(array: &Array<Chip>) -> Contents {
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

/// The pages that can't be read without any damage.
fn torn_pages(array: &Array<Chip>) -> BTreeSet<(u32, usize)> {
    let volume = array.volume();
    let pages = usize::try_from(volume.geometry().leb_bytes).expect("small") / PAGE;
    let all = (0..LEBS).flat_map(|leb| (0..pages).map(move |page| (leb, page)));
    all.filter(|(leb, page)| {
        let offset = u32::try_from(page * PAGE).expect("small");
        volume.read(Leb(*leb), offset, &mut [0; PAGE]).is_err()
    })
    .collect()
}

/// In place of a page: all pages of a block.
const WHOLE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Damage {
    member: usize,
    peb: Peb,
    /// Or [`WHOLE`].
    page: u32,
}

struct Judge {
    healthy: Vec<SimNand>,
    expected: Contents,
    /// Pages of LEBs that power had torn already.
    torn: BTreeSet<(u32, usize)>,
    in_force: Vec<Vec<Option<Peb>>>,
    /// Nothing was under way, so that all can be told.
    closed: bool,
    what: String,
}

impl Judge {
    fn of(healthy: Vec<SimNand>, what: String) -> Self {
        // Read without a write to it.
        let array = open(&on_one_supply(&healthy, &PowerSupply::new()), Access::ReadOnly);
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
        let Damage { member, peb, page } = damage;
        for page in (0..PAGES).filter(|one| page == *one || page == WHOLE) {
            chips[member].inject_bit_flips(peb, Page(page), BITS);
        }
        let what = format!("{}, {damage:?}", self.what);
        let supply = PowerSupply::new();
        let chips = on_one_supply(&chips, &supply);
        let lost = (0..)
            .zip(&self.in_force[member])
            .find(|(_, of_leb)| **of_leb == Some(peb))
            .map(|(leb, _)| leb)
            .filter(|leb| *leb < LEBS);
        let array = attach(
            chips.clone(),
            AttachOptions::linux(Access::ReadWrite),
            Execution::Inline,
        )
        .unwrap_or_else(|error| panic!("{what}: {error}"));
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
        // Used, and closed, it holds all of it still.
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
        let again = open(&chips, Access::ReadWrite);
        // A damaged page of a block that was free is met by what is written there now.
        let of_before = |share: &&LostShare| share.leb.0 < LEBS;
        let lost: Vec<&LostShare> = again.resolution().lost_shares.iter().filter(of_before).collect();
        assert_eq!(
            lost,
            resolution.lost_shares.iter().collect::<Vec<_>>(),
            "{what}: what is lost changed"
        );
        self.compare(&again, member, damaged, resolution.rolled_back > 0, &what);
        // Replaced as a whole, nothing is lost.
        for share in again.resolution().lost_shares.clone() {
            again.volume().leb_change(share.leb, &[0x33; PAGE]).expect("room");
        }
        assert_eq!(again.volume().lost_shares(), [], "{what}");
        drop(again);
        let healed = open(&chips, Access::ReadWrite);
        let lost: Vec<&LostShare> = healed.resolution().lost_shares.iter().filter(of_before).collect();
        assert_eq!(lost, Vec::<&LostShare>::new(), "{what}");
    }

    /// Whether what is left of a LEB tells damage of its block on a member from a power cut: the array was closed, or there is data behind the header that can all be read,
    /// and data on another member.
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

    /// Whether a member's share of a LEB has a page of its own: without one nothing is lost, and nothing can be told from a cut.
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
        array: &Array<Chip>,
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

/// An array as it was left: closed, with all erases done or waiting, or cut.
fn left(members: usize, seed: u64) -> Vec<SimNand> {
    let supply = PowerSupply::new();
    let chips = on_one_supply(&chips(members), &supply);
    let mut prng = Prng::named(seed, "damage");
    let array = open(&chips, Access::ReadWrite);
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
    let left = taken(&chips);
    left.into_iter()
        .map(|chip| chip.with_supply(&PowerSupply::new()))
        .collect()
}

/// Tries each damage that `pages` has of a block, a page or [`WHOLE`], of each block of each member. Returns how many there were.
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
    // The volume table of a member has copies of its own; `ubi` has tests of it.
    let every = if testkit::is_full() { 1 } else { 3 };
    let damages = each_block_damaged(|judge, member, peb| {
        // Bits that flip in an erased page are met by what is written there later.
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

/// A member is a copy of an earlier time, whatever the array did since: it is refused, and nothing is written.
#[test]
#[expect(clippy::print_stdout, reason = "`--nocapture` shows how many there were")]
fn a_member_of_an_earlier_time_is_refused_whatever_happened_since() {
    let seeds = if testkit::is_full() { 120 } else { 6 };
    let mut stale = 0;
    for members in [2, 3, 4] {
        for seed in 0..seeds {
            let earlier = left(members, seed);
            let supply = PowerSupply::new();
            let chips = on_one_supply(&earlier, &supply);
            let array = open(&chips, Access::ReadWrite);
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
                let mixed = on_one_supply(&mixed, &supply);
                let options = AttachOptions::linux(Access::ReadWrite);
                let error = attach(mixed, options, Execution::Inline).expect_err("refused");
                let names = format!("chip{member}: member {member} of array damage is stale");
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

/// Power went while the first change of a LEB was written on member 3, after the LEB was mapped; then the header of its empty block on member 0
/// went. The change was taken with its torn share, and nobody said so.
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

/// The block that is a LEB on a member now.
fn block_of(array: &Array<Chip>, member: usize, leb: Leb) -> Peb {
    let mapping = array.devices()[member].mapping(ubi::VolumeId(0));
    mapping[usize::try_from(leb.0).expect("few")].expect("mapped")
}

/// The first page of member 0 of a LEB, and how many shares are lost, after the VID header of `peb` of member 1 was damaged.
fn first_page_without(chips: &[Chip], peb: Peb, leb: Leb) -> (Vec<u8>, Vec<LostShare>) {
    chips[1]
        .lock()
        .expect("no panic")
        .inject_bit_flips(peb, Page(VID_PAGE), BITS);
    let array = open(chips, Access::ReadWrite);
    let mut page = vec![0; PAGE];
    let read = array.volume().read(leb, 0, &mut page);
    assert!(read.is_ok(), "{:?}: {read:?}", array.resolution());
    (page, array.resolution().lost_shares.clone())
}

#[test]
fn a_last_change_whose_old_content_a_member_let_go_was_complete() {
    let chips = on_one_supply(&chips(2), &PowerSupply::new());
    let array = open(&chips, Access::ReadWrite);
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
    let chips = on_one_supply(&chips(2), &PowerSupply::new());
    let array = open(&chips, Access::ReadWrite);
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
