//! Measures the simulation's speed in requests per second: page-mapped random writes of 4 KiB, including garbage
//! collection.
//!
//! `cargo run --release -p emmc --example speed [REQUESTS] [CARD]`. The card is completely written before; only the
//! random writes are timed. Nothing else of the crate reads a clock.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Instant;

use emmc::block::{QueueRules, SchedulerKind};
use emmc::card::CardFile;
use emmc::host::HostFile;
use emmc::packing::PackRules;
use emmc::simulation::{DiscardMode, DriverMode, Setup, Simulation};
use emmc::workload::{DirectRules, Order, direct};
use results::block_trace::Operation;
use results::nearest_f64;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let requests = arguments.next().map_or(Ok(4_000_000), |text| text.parse::<u64>());
    let card = CardFile::preset(&arguments.next().unwrap_or_else(|| "gt-i9300".to_owned()));
    let (Ok(requests), Ok(card), Ok(host)) = (requests, card, HostFile::preset("sdhci-hs200")) else {
        return ExitCode::from(2);
    };
    let sectors = card.flash.capacity_bytes / 512;
    let setup = Setup {
        card,
        host,
        queue: QueueRules::usual(SchedulerKind::None),
        driver: DriverMode::Packed(PackRules::OFF),
        discard: DiscardMode::Discard,
    };
    let load = direct(DirectRules {
        operation: Operation::Write,
        order: Order::Random,
        sectors: 8,
        piece_sectors: 1024,
        count: requests,
        start: 0,
        range: sectors,
        depth: 32,
        seed: 1,
    });
    let Ok(simulation) = Simulation::new(&setup, vec![load]) else {
        return ExitCode::from(2);
    };
    let simulation = simulation.with_written(0, sectors);
    let started = Instant::now();
    let (outcome, _) = simulation.run(|_| ControlFlow::Continue(()));
    let seconds = started.elapsed().as_secs_f64();
    let text = format!(
        "{} requests in {seconds:.2} s: {:.0} a second; {} collections, write amplification {:.2}, peak memory {}\n",
        outcome.writes.requests,
        nearest_f64(outcome.writes.requests) / seconds,
        outcome.translation.collections,
        outcome.translation.write_amplification().unwrap_or_default(),
        peak_memory(),
    );
    match std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(2),
    }
}

/// Peak memory of the process, from the kernel.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.map_or_else(|| "unknown".to_owned(), |line| line[6..].trim().to_owned())
}
