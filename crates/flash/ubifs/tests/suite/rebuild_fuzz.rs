//! Random rebuilds of a member of an array with parity below a file system, killed and cut at random writes, taken up
//! again, and then a second damage on any member. Every file that was synced is right afterwards, or the loss is told: by
//! a refused attach or mount, an error of the read, or a finding or doubt of the journal.
//!
//! A failure prints its seed. `TIDEGATE_SEEDS=FIRST..END` runs others:
//!
//! `TIDEGATE_FULL=1 CARGO_PROFILE_TEST_OPT_LEVEL=3 cargo test -p ubifs --test suite rebuild_fuzz -- --nocapture`
#![expect(
    clippy::print_stdout,
    reason = "how many kills and damages there were, for who asks with --nocapture"
)]

use std::ops::Range;
use std::sync::Arc;

use crate::support::lost::{BITS, Files, NEW_FILE, VID_PAGE};
use crate::support::medium::Medium;
use crate::support::rig::SMALL;
use array::{Array, ArrayError, Execution, NewMember, Redundancy, with_new_member};
use media::{NandGeometry, Page, Peb};
use nand::{ChipModel, FaultModel, PowerCut, SimNand};
use testkit::prng::Prng;
use ubi::{Access, AttachOptions, Volume, VolumeId};
use ubifs::check::check;
use ubifs::format::ROOT_INODE;
use ubifs::mkfs::Time;
use ubifs::{OpenOptions, Ubifs, Writer};

#[derive(Debug, Default)]
struct Done {
    kills: u32,
    taken_up: u32,
    completed: u32,
    damages: u32,
    told: u32,
    lost: u32,
}

struct Run {
    prng: Prng,
    medium: Medium,
    members: usize,
    /// The member that is rebuilt.
    place: usize,
    files: Files,
    what: String,
}

fn below(prng: &mut Prng, end: usize) -> usize {
    usize::try_from(prng.below(u64::try_from(end).expect("few"))).expect("few")
}

/// Opens the array with the chip at `place` as its new member.
fn rebuilding(medium: &Medium, place: usize) -> Result<Array, ArrayError> {
    let mut others = medium.chips().to_vec();
    let new = NewMember {
        device: Box::new(others.remove(place)),
        place,
        image_sequence: 7,
        progress: &mut |_| {},
    };
    with_new_member(others, new, Execution::Inline)
}

fn attached(medium: &Medium, access: Access) -> Result<Array, ArrayError> {
    array::attach(
        medium.chips().to_vec(),
        AttachOptions::linux(access),
        Execution::Inline,
    )
}

fn mounted(array: &Array) -> Result<Writer, String> {
    let writer = Writer::open(array.volume().clone(), OpenOptions::standard());
    writer.map_err(|error| error.to_string())
}

/// Files with another content than the synced one. An error of a read is no wrong content.
fn wrong(ubifs: &Ubifs, files: &Files) -> (Vec<String>, u32) {
    let (mut wrong, mut errors) = (Vec::new(), 0);
    for (name, content) in files {
        let mut found = vec![0; content.len()];
        let read = ubifs
            .lookup(ROOT_INODE, name.as_bytes())
            .and_then(|entry| ubifs.inode(entry.inode))
            .and_then(|inode| Ok((ubifs.read(&inode, 0, &mut found)?, inode.size_bytes)));
        match read {
            Ok((bytes, size)) => {
                let is_whole = bytes == content.len() && usize::try_from(size) == Ok(content.len());
                if !is_whole || found != *content {
                    wrong.push(format!("{name} is wrong"));
                }
            }
            Err(error @ ubifs::UbifsError::Damaged { .. }) => {
                drop(error);
                errors += 1;
            }
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    (wrong, errors)
}

fn is_told(ubifs: &Ubifs) -> bool {
    !ubifs.findings().is_empty() || !ubifs.replay_report().doubts.is_empty()
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut prng = Prng::named(seed, "rebuild fuzz");
        let members = 3 + below(&mut prng, 2);
        let place = below(&mut prng, members);
        let medium = Medium::formatted_with(Redundancy::Parity, SMALL, members);
        Self {
            prng,
            medium,
            members,
            place,
            files: Files::new(),
            what: format!("TIDEGATE_SEEDS={seed}..{}", seed + 1),
        }
    }

    /// Replaces a file and syncs it. After an error its content is unknown.
    fn write(&mut self, writer: &mut Writer) -> Result<(), String> {
        let name = format!("file-{}", below(&mut self.prng, 14));
        let bytes = 1 + below(&mut self.prng, 12_000);
        let content = self.prng.bytes(bytes);
        self.files.remove(&name);
        let now = Time::default();
        let mut run = || {
            let inode = match writer.read().lookup(ROOT_INODE, name.as_bytes()) {
                Ok(entry) => entry.inode,
                Err(_) => writer.create(ROOT_INODE, name.as_bytes(), &NEW_FILE, now)?,
            };
            writer.truncate(inode, 0, now)?;
            writer.write(inode, 0, &content, now)?;
            writer.fsync()
        };
        let written: Result<(), ubifs::WriteError> = run();
        written.map_err(|error| error.to_string())?;
        self.files.insert(name, content);
        Ok(())
    }

    /// Content before the member is lost.
    fn fill(&mut self) {
        let array = attached(&self.medium, Access::ReadWrite).expect("it attaches");
        let mut writer = mounted(&array).expect("it mounts");
        for _ in 0..4 + below(&mut self.prng, 20) {
            self.write(&mut writer).expect("no fault");
        }
        if self.prng.below(2) == 0 {
            writer.close().expect("no fault");
            drop(writer);
            array.close().expect("no fault");
        }
    }

    fn lose_member(&self) {
        let geometry = NandGeometry::new(SMALL.page, SMALL.pages, SMALL.blocks).expect("a geometry");
        let blank = SimNand::new("new", ChipModel::new(geometry), FaultModel::none());
        let mut chip = self.medium.chips()[self.place].lock().expect("no panic");
        let supply = chip.supply().clone();
        *chip = blank.with_supply(&supply);
    }

    /// Rebuilds while files are written, until the end, a kill, or a power cut. Whether it ended.
    fn rebuild(&mut self, done: &mut Done) -> bool {
        let supply = self.medium.supply();
        if self.prng.below(3) > 0 {
            let way = below(&mut self.prng, PowerCut::WAYS);
            supply.plan(PowerCut::of_write(supply.writes() + self.prng.below(600), way));
        }
        let kill_after = 1 + below(&mut self.prng, 120);
        let ended = self.rebuild_until(kill_after, done);
        self.medium = self.medium.copy();
        match ended {
            Ok(ended) => ended,
            Err(error) => {
                done.kills += 1;
                assert!(supply.is_off(), "{}: {error}", self.what);
                false
            }
        }
    }

    fn rebuild_until(&mut self, steps: usize, done: &mut Done) -> Result<bool, String> {
        let text = |error: ArrayError| error.to_string();
        let is_whole = attached(&self.medium.copy(), Access::ReadOnly)
            .is_ok_and(|array| array.absent().is_none() && array.rebuilding().is_none());
        let array = match is_whole {
            // Also if power went between the end of the rebuild and its report.
            true => attached(&self.medium, Access::ReadWrite).map_err(text)?,
            false => rebuilding(&self.medium, self.place).map_err(text)?,
        };
        let mut writer = mounted(&array)?;
        for _ in 0..steps {
            if self.prng.below(4) == 0 {
                self.write(&mut writer)?;
            }
            if let array::RebuildStep::Ended(_) | array::RebuildStep::Idle =
                array.rebuild_step().map_err(text)?
            {
                done.completed += 1;
                if self.prng.below(2) == 0 {
                    writer.close().map_err(|error| error.to_string())?;
                    drop(writer);
                    array.close().map_err(text)?;
                }
                return Ok(true);
            }
        }
        done.kills += 1;
        Ok(false)
    }

    /// Makes part of a member unreadable.
    fn damage(&mut self, member: usize) -> String {
        let whole = attached(&self.medium.copy(), Access::ReadOnly).expect("it attaches");
        let device = whole.members().find(|(place, _)| *place == member);
        let blocks: Vec<Peb> = match device {
            Some((_, device)) => device.mapping(VolumeId(0)).into_iter().flatten().collect(),
            None => return String::new(),
        };
        if blocks.is_empty() {
            return String::new();
        }
        let peb = blocks[below(&mut self.prng, blocks.len())];
        let mut chip = self.medium.chips()[member].lock().expect("no panic");
        let pages = match self.prng.below(3) {
            0 => VID_PAGE..VID_PAGE + 1,
            1 => 0..SMALL.pages,
            _ => {
                // Preferably the last written page: the end of a journal head, if the block is of one.
                let is_written = |page: &u32| {
                    let mut bytes = vec![0; 512];
                    let _ = media::Nand::read(&mut *chip, peb, page * SMALL.page, &mut bytes);
                    bytes.iter().any(|byte| *byte != 0xFF)
                };
                let last = (0..SMALL.pages).rev().find(is_written).unwrap_or(VID_PAGE);
                let page = match self.prng.below(3) {
                    0 => u32::try_from(below(&mut self.prng, 32)).expect("few"),
                    _ => last,
                };
                page..page + 1
            }
        };
        for page in pages.clone() {
            chip.inject_bit_flips(peb, Page(page), BITS);
        }
        format!("{peb} pages {pages:?} of member {member}")
    }

    /// Compares without writing, then with a mount for writing.
    fn judge(&self, may_lose: bool, damage: &str, done: &mut Done) {
        let what = format!("{}: {damage}", self.what);
        let copy = self.medium.copy();
        match attached(&copy, Access::ReadOnly) {
            Err(error) => assert!(may_lose, "{what}: {error}"),
            Ok(array) => {
                let volume: Arc<dyn Volume> = array.volume().clone();
                let report = check(&*volume);
                let is_sound = report.findings.is_empty() && report.doubts.is_empty();
                match Ubifs::open(volume, OpenOptions::standard()) {
                    Err(error) => assert!(may_lose && !is_sound, "{what}: {error}"),
                    Ok(ubifs) => {
                        let (wrong, errors) = wrong(&ubifs, &self.files);
                        done.lost += u32::from(errors > 0 || !wrong.is_empty());
                        done.told += u32::from(is_told(&ubifs));
                        let is_right = errors == 0 && wrong.is_empty();
                        assert!(is_right || may_lose, "{what}: {wrong:?}, {errors} errors");
                        assert!(
                            is_right || !is_sound,
                            "{what}: the checker says nothing: {wrong:?}"
                        );
                        assert!(
                            wrong.is_empty() || is_told(&ubifs),
                            "{what}: a reader says nothing: {wrong:?}"
                        );
                    }
                }
            }
        }
        let array = match attached(&self.medium, Access::ReadWrite) {
            Ok(array) => array,
            Err(error) => return assert!(may_lose, "{what}: {error}"),
        };
        match mounted(&array) {
            Err(error) => assert!(may_lose, "{what}: {error}"),
            Ok(writer) => {
                let (wrong, errors) = wrong(writer.read(), &self.files);
                let is_right = errors == 0 && wrong.is_empty();
                assert!(
                    is_right || may_lose,
                    "{what}, for writing: {wrong:?}, {errors} errors"
                );
                let is_told = !writer.read().replay_report().doubts.is_empty();
                assert!(
                    wrong.is_empty() || is_told,
                    "{what}: a mount says nothing: {wrong:?}"
                );
            }
        }
    }

    fn run(mut self, done: &mut Done) {
        self.fill();
        self.lose_member();
        let mut ended = false;
        for attempt in 0..1 + below(&mut self.prng, 4) {
            done.taken_up += u32::from(attempt > 0 && !ended);
            ended |= self.rebuild(done);
            let is_whole = |array: &Array| array.absent().is_none() && array.rebuilding().is_none();
            if ended {
                let array = attached(&self.medium.copy(), Access::ReadOnly).expect("no damage");
                assert!(is_whole(&array), "{}: {:?}", self.what, array.absent());
            }
            // One damage is tolerated once the rebuild has ended; a kill may have left it at any step.
            let array = attached(&self.medium.copy(), Access::ReadOnly);
            let array = array.unwrap_or_else(|error| panic!("{}: {error}", self.what));
            let has_redundancy = is_whole(&array);
            drop(array);
            let untouched = self.medium.copy();
            let member = below(&mut self.prng, self.members);
            let damage = self.damage(member);
            if !damage.is_empty() {
                done.damages += 1;
                self.judge(!has_redundancy, &damage, done);
            }
            self.medium = untouched.copy();
            self.judge(false, "without damage", done);
            // The rebuild goes on from the kill, or from the mount that followed it.
            if self.prng.below(2) == 0 {
                self.medium = untouched;
            }
            self.medium = self.medium.copy();
        }
    }
}

fn seeds() -> Range<u64> {
    let asked = std::env::var("TIDEGATE_SEEDS").ok();
    let asked = asked.as_deref().and_then(|text| text.split_once(".."));
    match asked {
        Some((first, end)) => first.parse().expect("a number")..end.parse().expect("a number"),
        None if testkit::is_full() => 0..2000,
        None => 0..12,
    }
}

#[test]
fn what_was_synced_is_right_or_told_after_killed_rebuilds_and_a_second_damage() {
    let mut done = Done::default();
    let seeds = seeds();
    for seed in seeds.clone() {
        Run::new(seed).run(&mut done);
    }
    println!("seeds {seeds:?}: {done:?}");
    assert!(done.damages > 0 && done.kills > 0, "{done:?}");
}
