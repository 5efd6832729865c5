//! `tidegate nand timing`: measures how precisely simulated operations keep their time on this machine.

use anyhow::{Result, bail};
use clap::Args;
use media::{Nand, NandGeometry, Nanos, Peb};
use nand::{ChipModel, FaultModel, RealClock, RealTime, SimNand, TimeSource, Timing};
use serde_json::json;

use crate::quantity::parse_nanos;
use crate::{Finding, output};

/// Arguments of `tidegate nand timing`.
#[derive(Args, Debug)]
#[command(
    after_help = "One thread programs page after page of a chip in memory, whose operations take TIME each in \
                  virtual time, and sleeps until the real clock has caught up with each. Exit code 1: the mean \
                  error is 5 % or more."
)]
pub struct TimingArguments {
    /// Duration of one operation in virtual time
    #[arg(long, value_name = "TIME", default_value = "200us", value_parser = parse_nanos)]
    pub operation: Nanos,
    /// Number of operations
    #[arg(long, value_name = "N", default_value_t = 5000)]
    pub count: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Largest accepted error over a run, per mille.
const ALLOWED_PER_MILLE: u64 = 50;

const PAGE: u32 = 512;
const PAGES: u32 = 64;

/// Runs the command.
pub fn run(arguments: &TimingArguments) -> Result<Finding> {
    if arguments.count == 0 || arguments.operation == Nanos::ZERO {
        bail!("there is nothing to measure with --count 0 or --operation 0");
    }
    let mut measured = measure(arguments)?;
    let wanted = arguments.operation.times(u64::from(arguments.count)).0;
    let real = measured.real.0;
    let error_per_mille = real.abs_diff(wanted) * 1000 / wanted;
    measured.lateness.sort_unstable();
    let late = |part: usize| {
        let last = measured.lateness.len() - 1;
        Nanos(measured.lateness[(last * part) / 100])
    };
    let text = if arguments.json {
        json!({
            "operation_ns": arguments.operation.0,
            "operations": arguments.count,
            "virtual_ns": wanted,
            "real_ns": real,
            "error_per_mille": error_per_mille,
            "late_ns": { "p50": late(50).0, "p99": late(99).0, "max": late(100).0 },
        })
        .to_string()
    } else {
        format!(
            "{} operations of {}: {} in virtual time, {} in real time, error {}.{} %\n\
             late by {} (median), {} (99 %), {} (most)",
            arguments.count,
            arguments.operation,
            Nanos(wanted),
            Nanos(real),
            error_per_mille / 10,
            error_per_mille % 10,
            late(50),
            late(99),
            late(100),
        )
    };
    output::print_line(&text)?;
    Ok(if error_per_mille < ALLOWED_PER_MILLE {
        Finding::Nothing
    } else {
        Finding::Something
    })
}

struct Measured {
    real: Nanos,
    /// Lateness of each operation, nanoseconds.
    lateness: Vec<u64>,
}

fn measure(arguments: &TimingArguments) -> Result<Measured> {
    let blocks = arguments.count.div_ceil(PAGES);
    let timing = Timing {
        program_page: arguments.operation,
        ..Timing::default()
    };
    timing.check()?;
    let model = ChipModel::new(NandGeometry::new(PAGE, PAGES, blocks)?).with_timing(timing);
    let clock = RealClock::start();
    let mut chip = RealTime::new(SimNand::new("timing", model, FaultModel::none()), clock);
    let data = [0x5A; 512];
    let mut lateness = Vec::new();
    let start = clock.now();
    for number in 0..arguments.count {
        chip.program(Peb(number / PAGES), number % PAGES * PAGE, &data)?;
        lateness.push(chip.late().0);
    }
    Ok(Measured {
        real: clock.now().saturating_sub(start),
        lateness,
    })
}
