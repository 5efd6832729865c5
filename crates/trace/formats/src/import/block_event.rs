//! One step in the life of a request, as reported by tracers of the block layer: blktrace, ftrace, MOST.

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

/// Kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Q: a piece enters the block layer.
    Queue,
    /// I: a request enters the scheduler.
    Insert,
    /// D: a request is issued to the driver.
    Issue,
    /// R: a request returns from the driver unfinished.
    Requeue,
    /// C: it is completed, wholly or in part.
    Complete,
}

impl Step {
    /// The step for a letter of blktrace; `None` for letters that are ignored: G (get request), M and F (merge; the
    /// request's size shows it), X (split; so do the sizes of the parts), S (sleep), P, U and UT (plugs), A (remap; Q
    /// follows), B (bounce).
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

/// Ownership information from the source itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub block_type: BlockType,
    pub detail: Option<Arc<str>>,
    pub path: Option<Arc<str>>,
    pub deleted: bool,
}
