//! Direct I/O tasks: writes or reads of one size, at a fixed queue depth.
//!
//! With depth 1 and aligned random offsets this is uFLIP's granularity sweep (figure 7 of seeds/002): a write is
//! split into requests, submitted in one plug, and awaited as a whole.

use media::Nanos;
use results::block_trace::{Operation, RequestFlags};

use super::random::Random;
use super::{Actor, Step, View};
use crate::block::Bio;

/// Order of the offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// After the previous one, wrapping around at the end.
    Sequential,
    /// Random, aligned to the size.
    Random,
}

/// Parameters of a direct task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectRules {
    /// Read or write.
    pub operation: Operation,
    /// Order of the offsets.
    pub order: Order,
    /// Sectors per operation.
    pub sectors: u64,
    /// Maximum size of a bio in sectors.
    pub piece_sectors: u64,
    /// Number of operations.
    pub count: u64,
    /// First sector of its range.
    pub start: u64,
    /// Sectors of its range.
    pub range: u64,
    /// Bios that may be in progress when the next operation begins.
    pub depth: u32,
    /// Seed.
    pub seed: u64,
}

struct Direct {
    rules: DirectRules,
    random: Random,
    done: u64,
    next: u64,
    /// Rest of the operation in progress: sector and sectors.
    left: Option<(u64, u64)>,
    waits: bool,
}

/// Makes a direct task.
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
        // Called again at once; sleeping until now takes no time.
        Step::SleepUntil(Nanos::ZERO)
    }
}
