//! Power cuts in every program and erase of a random script through a mount: segments, each from the state in which the one before
//! left the chips, so that a cut is near its start and what it finds has a past.

use nand::{PowerCut, PowerSupply};
use testkit::prng::Prng;
use vfs::FsResult;

use super::medium::Medium;
use super::rig::{SMALL, Shape};
use super::script::Script;

/// Of all streams.
pub const SEED: u64 = 0x3C07;

/// A sweep over one chip or an array.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    pub members: usize,
    pub segments: u64,
    /// Calls of a segment.
    pub steps: u64,
}

/// A piece of the script.
pub struct Segment {
    pub number: u64,
    start: Medium,
    script: Script,
    /// Programs and erases of it, the mount's among them.
    pub writes: u64,
}

impl Sweep {
    /// All segments, each run once without a cut.
    pub fn segments(self) -> Vec<Segment> {
        let shape = match self.members {
            // Deep trees of the index.
            4 => Shape { fanout: 3, ..SMALL },
            _ => SMALL,
        };
        let mut medium = Medium::formatted(shape, self.members);
        let mut script = Script::fresh(280_000 * self.members);
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

    fn stream(self, name: &str) -> Prng {
        Prng::named(SEED, &format!("{} members, {name}", self.members))
    }

    /// Mounts, runs a segment, and unmounts or goes away.
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

    /// The chips after a cut in a write of a segment, powered again, and what is known of them.
    pub fn cut(self, segment: &Segment, cut: u64) -> (Medium, Script) {
        let medium = segment.start.copy();
        let supply = medium.supply();
        plan(&supply, cut, cut);
        let mut script = Script::after(&segment.script);
        // The outcome is power's; after the last write of all nobody notices.
        let _ = self.run(segment.number, &medium, &mut script);
        assert!(supply.is_off(), "{}: power did not go", self.replay(segment, cut));
        supply.power_on();
        (medium, script)
    }

    /// How to run one cut alone.
    pub fn replay(self, segment: &Segment, cut: u64) -> String {
        let full = match self.segments > QUICK.segments {
            true => "TIDEGATE_FULL=1 ",
            false => "",
        };
        let (members, number) = (self.members, segment.number);
        format!("seed {SEED:#x}, {full}TIDEGATE_REPLAY={members}:{number}:{cut}")
    }
}

/// What runs without `TIDEGATE_FULL`.
pub const QUICK: Sweep = Sweep {
    members: 1,
    segments: 2,
    steps: 40,
};

/// Plans a cut in the nth write from here on.
pub fn plan(supply: &PowerSupply, write: u64, way: u64) {
    let way = usize::try_from(way).expect("few");
    supply.plan(PowerCut::of_write(supply.writes() + write, way));
}
