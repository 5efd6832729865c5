//! Who asks: tasks as state machines, and the loads that the papers name, made of such tasks.
//!
//! A task is asked for its next step whenever it can go on; it never sees the card. What a load is made of, and which of
//! its numbers are published, derived or assumed, stands with each.

mod buffered;
mod chain;
mod direct;
mod postmark;
mod random;
mod trace;

use media::Nanos;
use results::block_trace::{Operation, RequestFlags};

use crate::block::Bio;

pub use buffered::{JournalRules, RandomFileRules, StreamRules, random_files, stream};
pub use chain::chain;
pub use direct::{DirectRules, Order, direct};
pub use postmark::{PostmarkRules, postmark};
pub use random::Random;
pub use trace::{Pace, TracedBio, replay};

/// What a task sees when it is asked.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Now.
    pub now: Nanos,
    /// Pieces of this task that are not done.
    pub outstanding: u32,
    /// Bytes of this task's pieces that are done.
    pub done_bytes: u64,
}

/// What a task does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Gives a piece to the block layer.
    Submit(Bio),
    /// Does something else until then.
    SleepUntil(Nanos),
    /// Waits until at most so many of its pieces are not done.
    WaitBelow(u32),
    /// Ends.
    Done,
}

/// Whether a run waits for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// It does.
    Fore,
    /// It ends with the others.
    Back,
}

/// A task.
pub trait Actor: Send {
    /// The next step; asked when the one before is done.
    fn step(&mut self, view: &View) -> Step;

    /// Whether the run waits for it.
    fn ground(&self) -> Ground {
        Ground::Fore
    }
}

/// A piece that somebody waits for or not.
pub(crate) const fn write(sector: u64, sectors: u64, flags: RequestFlags) -> Bio {
    Bio {
        flags,
        ..Bio::plain(Operation::Write, sector, sectors)
    }
}
