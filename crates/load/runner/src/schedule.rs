//! The order of runs, and what is synced between them.

use std::fs::File;
use std::path::PathBuf;

/// The order of sides within a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The same in each round, for the steps of a job.
    Fixed,
    /// The starting side rotates by one with each round, for the contenders of a comparison.
    Rotated,
}

/// Number of runs per side, and their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Warm-up rounds, which are not kept.
    pub warmup: u32,
    /// Number of rounds kept; [`Series::goes_on`] may end them earlier.
    pub rounds: u32,
    /// Number of sides, which is the number of runs per round.
    pub sides: usize,
    /// Order of the sides within a round.
    pub order: Order,
}

/// One run of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The side, counted from 0.
    pub side: usize,
    /// The round, counted from 0. Warm-ups are numbered after the last round, so that no round shares their contents.
    pub round: u32,
    /// False for a warm-up.
    pub is_kept: bool,
}

impl Schedule {
    /// A schedule with one side.
    #[must_use]
    pub const fn repeated(warmup: u32, rounds: u32) -> Self {
        Self {
            warmup,
            rounds,
            sides: 1,
            order: Order::Fixed,
        }
    }

    /// A schedule that rotates all sides.
    #[must_use]
    pub const fn interleaved(rounds: u32, sides: usize) -> Self {
        Self {
            warmup: 0,
            rounds,
            sides,
            order: Order::Rotated,
        }
    }

    /// Total number of runs.
    #[must_use]
    pub fn runs(&self) -> usize {
        let rounds = self.warmup.saturating_add(self.rounds);
        usize::try_from(rounds)
            .unwrap_or(usize::MAX)
            .saturating_mul(self.sides)
    }

    /// The sides of a round in order.
    pub fn round(&self, round: u32) -> impl Iterator<Item = usize> + use<> {
        let sides = self.sides;
        let first = match self.order {
            Order::Fixed => 0,
            Order::Rotated => usize::try_from(round).unwrap_or(0) % sides.max(1),
        };
        (0..sides).map(move |position| (first + position) % sides)
    }

    /// The turns of one round; `index` counts warm-ups too.
    pub(crate) fn turns(&self, index: u32) -> impl Iterator<Item = Turn> + use<> {
        let kept = index.checked_sub(self.warmup);
        let round = kept.unwrap_or_else(|| self.rounds.saturating_add(index));
        self.round(kept.unwrap_or(index)).map(move |side| Turn {
            side,
            round,
            is_kept: kept.is_some(),
        })
    }
}

/// Scope of the sync before a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settle {
    /// The file system that contains this path. A path that can't be opened, such as a busy device, is not synced.
    FileSystem(PathBuf),
    /// All file systems of the machine: the sides use several, or several mounts over one.
    Machine,
}

impl Settle {
    /// Syncs and waits for completion.
    pub fn settle(&self) {
        match self {
            Self::Machine => rustix::fs::sync(),
            // Errors of earlier writes are reported to their writers; they don't concern the next run.
            Self::FileSystem(path) if path.is_dir() => {
                let _ = File::open(path).map(rustix::fs::syncfs);
            }
            Self::FileSystem(_) => {}
        }
    }
}
