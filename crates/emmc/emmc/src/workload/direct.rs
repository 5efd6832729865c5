//! Tasks that go past every cache: writes or reads of one size, so many at a time.
//!
//! With one at a time and aligned random places this is uFLIP's sweep over granularity (figure 7 of seeds/002): a write
//! is cut into requests, given in one plug, and waited for as a whole.

use media::Nanos;
use results::block_trace::{Operation, RequestFlags};

use super::random::Random;
use super::{Actor, Step, View};
use crate::block::Bio;

/// Where the next one goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// After the last one, from the start again at the end.
    Sequential,
    /// Anywhere, aligned to the size.
    Random,
}

/// What a direct task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectRules {
    /// Read or write.
    pub operation: Operation,
    /// Order.
    pub order: Order,
    /// Sectors of one.
    pub sectors: u64,
    /// Largest piece given at once, sectors.
    pub piece_sectors: u64,
    /// How many.
    pub count: u64,
    /// First sector of its range.
    pub start: u64,
    /// Sectors of its range.
    pub range: u64,
    /// Pieces that may be under way before one more begins.
    pub depth: u32,
    /// Seed.
    pub seed: u64,
}

struct Direct {
    rules: DirectRules,
    random: Random,
    done: u64,
    next: u64,
    /// What is left of the one under way: sector and sectors.
    left: Option<(u64, u64)>,
    waits: bool,
}

/// A direct task.
#[must_use]
pub fn direct(rules: DirectRules) -> Box<dyn Actor> {
    Box::new(Direct {
        random: Random::named(rules.seed, "places"),
        rules,
        done: 0,
        next: 0,
        left: None,
        waits: false,
    })
}

impl Direct {
    fn place(&mut self) -> u64 {
        let places = (self.rules.range / self.rules.sectors).max(1);
        let place = match self.rules.order {
            Order::Sequential => self.next % places,
            Order::Random => self.random.below(places),
        };
        self.next += 1;
        self.rules.start + place * self.rules.sectors
    }
}

impl Actor for Direct {
    fn step(&mut self, _: &View) -> Step {
        if let Some((sector, sectors)) = self.left {
            let piece = sectors.min(self.rules.piece_sectors);
            self.left = (sectors > piece).then_some((sector + piece, sectors - piece));
            self.waits = self.left.is_none();
            return Step::Submit(Bio {
                sector,
                sectors: piece,
                operation: self.rules.operation,
                flags: RequestFlags::SYNC.with(RequestFlags::IDLE),
                context: 0,
            });
        }
        if std::mem::take(&mut self.waits) {
            return Step::WaitBelow(self.rules.depth.saturating_sub(1));
        }
        if self.done == self.rules.count {
            self.done += 1;
            return Step::WaitBelow(0);
        }
        if self.done > self.rules.count {
            return Step::Done;
        }
        self.done += 1;
        self.left = Some((self.place(), self.rules.sectors));
        // Asked again at once; sleeping until now takes no time.
        Step::SleepUntil(Nanos::ZERO)
    }
}
