//! Tests of single commands, in one program: linking each on its own costs as much as running it.

mod applications;
mod array;
mod bench_file;
mod command_line;
mod demo;
mod dependency_edges;
mod emmc;
mod emmc_guest;
mod emmc_schedulers;
mod history;
mod hostile_images;
mod inspect;
mod jobs;
mod loops;
mod nand;
mod outputs;
mod record_comparison;
mod replay;
mod semantics;
mod sqlite;
mod study_gate;
mod study_tune;
#[path = "../support/mod.rs"]
mod support;
mod terminal_width;
mod trace_formats;
mod trace_live;
mod trace_map;
mod ubi;
mod ubi_on_mtd;
mod ubifs;
mod ubifs_bench;
mod ubifs_check;
mod ubifs_mkfs;
