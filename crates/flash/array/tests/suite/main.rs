//! The tests of the crate but for those that count memory: each program of tests compiles their support anew.

mod adopt;
mod damage;
mod epochs;
mod host_crashes;
mod linux;
mod membership;
#[path = "../model/mod.rs"]
mod model;
mod parity;
mod parity_damage;
mod power_cuts;
mod rebuild;
#[path = "../support/mod.rs"]
mod support;
mod virtual_time;
