//! The tests of the crate but for those that count memory: each program of tests compiles their support anew.

mod check;
mod check_authentication;
mod check_trusted;
mod chip_faults;
mod contract;
mod cut_in_names;
mod cut_log;
mod cut_master;
mod cut_twice;
mod cut_xattrs;
mod encryption;
mod failed_syncs;
mod failed_writes;
mod gc_leb;
mod host_crashes;
mod hostile_master;
mod linux;
mod lost_ends;
mod make;
mod mkfs;
mod mounted_power_cuts;
mod mounted_writer;
mod parallel;
mod power_cuts_linux;
mod read_each_operation;
mod rebuild_fuzz;
mod rounds_linux;
#[path = "../scene/mod.rs"]
mod scene;
#[path = "../support/mod.rs"]
mod support;
mod unsteady_pages;
mod write;
mod write_linux;
mod write_power_cuts;
mod writer_faults;
