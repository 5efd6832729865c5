//! The block layer: requests, plugging, merging, and the schedulers between the tasks and the driver.

mod cfq;
mod deadline;
mod fifo;
mod pool;
mod queue;
mod scheduler;

pub use cfq::{CfqRules, DeviceKind, RampUp};
pub use deadline::{Continues, Deadline, DeadlineRules};
pub use fifo::Unordered;
pub use pool::{Pool, Request, RequestId};
pub use queue::{Bio, QueueRules, RequestQueue, Share, Submitted};
pub use scheduler::{Scheduler, SchedulerKind};
