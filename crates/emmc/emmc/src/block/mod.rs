//! The block layer: requests, plugging, merging, and the schedulers between the tasks and the driver.

mod bfq;
mod cfq;
mod deadline;
mod fifo;
mod kyber;
mod pool;
mod queue;
mod scheduler;

pub use cfq::{CfqRules, RampUp};
pub use fifo::Unordered;
pub use pool::{Pool, Request, RequestId};
pub use queue::{Bio, QueueRules, RequestQueue, Submitted};
pub use scheduler::{Scheduler, SchedulerKind};
