//! Reads of other programs in the background: one at a time, at random, at a given interval.

use media::Nanos;
use results::block_trace::{Operation, RequestFlags};

use super::random::Random;
use super::{Actor, Step, TaskKind, View};
use crate::block::Bio;

/// Parameters of the background reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderRules {
    /// Mean interval between two reads.
    pub every: Nanos,
    /// Sectors of a read.
    pub sectors: u64,
    /// First sector of the range.
    pub start: u64,
    /// Sectors of the range.
    pub range: u64,
    /// Seed.
    pub seed: u64,
}

struct Reader {
    rules: ReaderRules,
    random: Random,
    next: Nanos,
    phase: u8,
}

/// A task that reads in the background; the run does not wait for it.
#[must_use]
pub fn background_reads(rules: ReaderRules) -> Box<dyn Actor> {
    Box::new(Reader {
        random: Random::named(rules.seed, "reader"),
        rules,
        next: Nanos::ZERO,
        phase: 0,
    })
}

impl Actor for Reader {
    fn step(&mut self, view: &View) -> Step {
        self.phase = (self.phase + 1) % 3;
        match self.phase {
            1 => {
                // Between half and one and a half of the interval after the last read.
                let every = self.rules.every.0;
                self.next = Nanos(view.now.0 + every / 2 + self.random.below(every.max(1)));
                Step::SleepUntil(self.next)
            }
            2 => {
                let places = (self.rules.range / self.rules.sectors.max(1)).max(1);
                let sector = self.rules.start + self.random.below(places) * self.rules.sectors;
                Step::Submit(Bio {
                    flags: RequestFlags::SYNC,
                    ..Bio::plain(Operation::Read, sector, self.rules.sectors)
                })
            }
            _ => Step::WaitBelow(0),
        }
    }

    fn kind(&self) -> TaskKind {
        TaskKind::Background
    }
}
