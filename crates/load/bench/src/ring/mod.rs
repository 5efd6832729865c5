//! The io_uring engine: one ring per worker, with a queue of operations in flight.
//!
//! [`queue`] owns the ring, its slots and their memory, and is the only part with `unsafe`; [`work`] decides which
//! operation comes next. A slot is one operation from its first submission to its last completion: a short transfer
//! is continued in the same slot, and a mode that syncs each write does so in the same slot after the write.
//!
//! Latencies run from submission to the moment when the completion is taken from the ring.

mod queue;
mod work;

pub use queue::Queue;
