//! Power cuts in every program and erase of a random script on a mounted file system. The script is split into
//! segments, each starting from the chips as left by the one before, so that a cut is near its start and still finds
//! an aged medium.

use array::Redundancy;
use nand::{PowerCut, PowerSupply};
use testkit::prng::Prng;
use vfs::FsResult;

use super::medium::Medium;
use super::rig::{SMALL, Shape};
use super::script::Script;

/// Seed of all random streams.
pub const SEED: u64 = 0x3C07;

/// A sweep over one chip or an array.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    pub members: usize,
    pub redundancy: Redundancy,
    pub segments: u64,
    /// Calls per segment.
    pub steps: u64,
    /// Blocks per chip; fewer blocks cause more garbage collection.
    pub blocks: u32,
}

/// Scope of a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All chips: of a stripe row, the part before the cut write exists.
    All,
    /// One member in turn: it lags behind the others, which complete the row.
    OneMember,
}

impl Which {
    /// Suffix of the cut in a replay command.
    const fn name(self) -> &'static str {
        match self {
            Self::All => "",
            Self::OneMember => ":one",
        }
    }
}

/// A piece of the script.
pub struct Segment {
    pub number: u64,
    pub start: Medium,
    pub script: Script,
    /// Programs and erases, including those of the mount.
    pub writes: u64,
}

impl Sweep {
    /// All segments, each run once without a cut.
    pub fn segments(self) -> Vec<Segment> {
        let shape = Shape {
            blocks: self.blocks,
            lebs: self.blocks - (SMALL.blocks - SMALL.lebs),
            // Deep index trees.
            fanout: if self.members == 4 { 3 } else { SMALL.fanout },
            ..SMALL
        };
        let mut medium = Medium::formatted_with(self.redundancy, shape, self.members);
        let of_data = self.members - usize::from(self.redundancy == Redundancy::Parity);
        let mut script = Script::fresh(280_000 * of_data);
        let file_system = medium.mount().expect("it mounts");
        let mut prng = self.stream("prepare");
        script.prepare(&file_system, &mut prng).expect("there is room");
        script.finish(&file_system, true).expect("it unmounts");
        drop(file_system);
        let mut segments = Vec::new();
        for number in 0..self.segments {
            let start = medium.copy();
            let mut after = Script::after(&script);
            let before = medium.supply().writes();
            if let Err(why) = self.run(number, &medium, &mut after) {
                panic!("{} members, segment {number}: {why} without a cut", self.members);
            }
            segments.push(Segment {
                number,
                start,
                script,
                writes: medium.supply().writes() - before,
            });
            medium = medium.copy();
            script = Script::after(&after);
        }
        segments
    }

    pub fn stream(self, name: &str) -> Prng {
        Prng::named(SEED, &format!("{} members, {name}", self.members))
    }

    /// Mounts, runs a segment, and unmounts or drops the file system.
    fn run(self, number: u64, medium: &Medium, script: &mut Script) -> Result<(), String> {
        let (file_system, work) = medium.mount_with_work()?;
        let mut prng = self.stream(&format!("segment {number}"));
        let mut run = || -> FsResult<()> {
            for _ in 0..self.steps {
                script.step(&file_system, &mut prng, &*work)?;
            }
            script.finish(&file_system, number.is_multiple_of(2))
        };
        run().map_err(|error| error.to_string())
    }

    /// Runs a segment with a power cut in one write; returns the chips, powered on again, and the script so far.
    /// `None` if the member has fewer writes than that.
    pub fn cut(self, segment: &Segment, cut: u64, which: Which) -> Option<(Medium, Script)> {
        let members = u64::try_from(self.members).expect("few");
        let (medium, member, write) = match which {
            Which::All => (segment.start.copy(), 0, cut),
            Which::OneMember => (segment.start.copy_apart(), cut % members, cut / members),
        };
        let supply = medium
            .supplies()
            .swap_remove(usize::try_from(member).expect("few"));
        plan(&supply, write, cut);
        let mut script = Script::after(&segment.script);
        // The result is ignored: power goes, and after the very last write no call notices.
        let _ = self.run(segment.number, &medium, &mut script);
        if !supply.is_off() {
            assert_eq!(which, Which::OneMember, "{}", self.replay(segment, cut, which));
            return None;
        }
        supply.power_on();
        Some((medium.copy(), script))
    }

    /// How to run this cut again.
    pub fn replay(self, segment: &Segment, cut: u64, which: Which) -> String {
        let full = match self.segments > QUICK.segments {
            true => "TIDEGATE_FULL=1 ",
            false => "",
        };
        let (members, number) = (self.members, segment.number);
        format!(
            "seed {SEED:#x}, {full}TIDEGATE_REPLAY={members}:{number}:{cut}{}",
            which.name()
        )
    }
}

/// The sweep without `TIDEGATE_FULL`.
pub const QUICK: Sweep = Sweep {
    redundancy: Redundancy::None,
    members: 1,
    segments: 2,
    steps: 40,
    blocks: SMALL.blocks,
};

/// Plans a cut in the nth write from now.
pub fn plan(supply: &PowerSupply, write: u64, way: u64) {
    let way = usize::try_from(way).expect("few");
    supply.plan(PowerCut::of_write(supply.writes() + write, way));
}

/// Cuts power during recovery, in a write chosen by `number`. Returns `false` if the recovery writes nothing.
pub fn cut_recovery(medium: &Medium, number: u64, way: u64) -> bool {
    let uncut = medium.copy();
    let before = uncut.supply().writes();
    drop(uncut.mount());
    let writes = uncut.supply().writes() - before;
    if writes == 0 {
        return false;
    }
    let supply = medium.supply();
    plan(&supply, number.wrapping_mul(7919) % writes, way);
    // The result is ignored: power goes.
    drop(medium.mount());
    assert!(supply.is_off(), "recovery is the same each time");
    supply.power_on();
    true
}
