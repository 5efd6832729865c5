//! Tasks as state machines, and the workloads named in the papers, made of such tasks.
//!
//! A task is asked for its next step whenever it can continue; it never sees the card. Each workload documents its
//! composition, and which of its numbers are published, derived or assumed.

mod buffered;
mod chain;
mod direct;
mod postmark;
mod random;
mod reader;
mod trace;

use media::Nanos;
use results::block_trace::{Operation, RequestFlags};

use crate::block::Bio;

pub use buffered::{JournalRules, RandomFileRules, StreamRules, WRITE_CHUNK_PAGES, random_files, stream};
pub use chain::chain;
pub use direct::{DirectRules, Order, direct};
pub use postmark::{PostmarkRules, postmark};
pub use random::Random;
pub use reader::{ReaderRules, background_reads};
pub use trace::{Pace, TracedBio, replay};

/// The state visible to a task.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Current time.
    pub now: Nanos,
    /// Bios of this task that are not done.
    pub outstanding: u32,
    /// Bytes of this task's completed bios.
    pub done_bytes: u64,
}

/// Next step of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Submits a bio to the block layer.
    Submit(Bio),
    /// Sleeps until this time.
    SleepUntil(Nanos),
    /// Waits until at most this number of its bios are not done.
    WaitBelow(u32),
    /// Ends.
    Done,
}

/// Whether a run waits for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// Foreground: the run waits for it.
    Foreground,
    /// Background: it ends with the run.
    Background,
}

/// A task.
pub trait Actor: Send {
    /// The next step; called when the previous one is done.
    fn step(&mut self, view: &View) -> Step;

    /// Whether the run waits for it.
    fn kind(&self) -> TaskKind {
        TaskKind::Foreground
    }
}

struct InContext {
    actor: Box<dyn Actor>,
    context: u8,
}

/// The task with all its writes in a context (1 to 15), as if its process used a context ID.
#[must_use]
pub fn in_context(actor: Box<dyn Actor>, context: u8) -> Box<dyn Actor> {
    Box::new(InContext { actor, context })
}

impl Actor for InContext {
    fn step(&mut self, view: &View) -> Step {
        match self.actor.step(view) {
            Step::Submit(bio) if bio.operation == Operation::Write && bio.context == 0 => Step::Submit(Bio {
                context: self.context,
                ..bio
            }),
            step => step,
        }
    }

    fn kind(&self) -> TaskKind {
        self.actor.kind()
    }
}

/// A write bio with these flags.
pub(crate) const fn write(sector: u64, sectors: u64, flags: RequestFlags) -> Bio {
    Bio {
        flags,
        ..Bio::plain(Operation::Write, sector, sectors)
    }
}
