//! The tests of the crate but for those that count memory: each program of tests compiles their support anew.

mod devices;
mod failing_device;
mod fastmaps;
mod faults;
mod host_crashes;
mod linux;
#[path = "../linux_fastmap/mod.rs"]
mod linux_fastmap;
mod linux_with_fastmap;
mod lost_headers;
mod power_cuts;
mod static_volumes;
#[path = "../support/mod.rs"]
mod support;
