//! One step in the life of a request, as tracers of the block layer tell it: blktrace, ftrace, MOST.

use std::sync::Arc;

use results::block_trace::{BlockType, DeviceNumber, IoPriority, Operation, Process, RequestFlags};

/// One step.
#[derive(Clone, Debug)]
pub struct BlockEvent {
    pub time_ns: u64,
    pub device: DeviceNumber,
    pub step: Step,
    pub operation: Operation,
    pub flags: RequestFlags,
    pub priority: Option<IoPriority>,
    pub sector: u64,
    pub bytes: u64,
    pub process: Option<Arc<Process>>,
    pub status: Option<i32>,
    pub owner: Option<Owner>,
}

/// Which step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Q: a piece is given to the block layer.
    Queue,
    /// X: a piece that waits is cut at this sector.
    Split(u64),
    /// I: a request goes to the scheduler.
    Insert,
    /// D: a request goes to the driver.
    Issue,
    /// R: a request comes back from the driver undone.
    Requeue,
    /// C: it is done, wholly or in part.
    Complete,
}

impl Step {
    /// The step of one of blktrace's letters; `None` for those that change nothing here: G (a request is got), M and F (a
    /// piece is merged; the request's size shows it), S (sleep), P, U and UT (plugs), A (remap; Q follows), B (bounce).
    pub fn of_letter(letter: &str) -> Option<Self> {
        Some(match letter {
            "Q" => Self::Queue,
            "I" => Self::Insert,
            "D" => Self::Issue,
            "R" => Self::Requeue,
            "C" => Self::Complete,
            _ => return None,
        })
    }
}

/// What the source itself says about the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub block_type: BlockType,
    pub detail: Option<Arc<str>>,
    pub path: Option<Arc<str>>,
    pub deleted: bool,
}
