//! Invariants of the counters of a run, checked at its end.
//!
//! They tie counters of different layers together, so that a counter that belongs to another run, or is counted twice,
//! is noticed.

use crate::nand_array::{NandPower, NandTiming, energy_pj};
use crate::outcome::Outcome;
use crate::packing::Stop;

/// State of a run that its [`Outcome`] does not contain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtEnd {
    /// Units in pages that were not programmed yet at the start and at the end of the run.
    pub(crate) pending_units: (u64, u64),
    /// Units per flash page.
    pub(crate) page_units: u32,
    /// Maximum number of data commands in progress at the same time.
    pub(crate) depth: u64,
    /// Durations of the banks' operations.
    pub(crate) timing: NandTiming,
    /// Power of the banks' operations.
    pub(crate) power: NandPower,
    /// Transfer time of a sector over the bus, picoseconds.
    pub(crate) sector_ps: u64,
}

fn ensure(holds: bool, what: &str, numbers: impl FnOnce() -> String) -> Result<(), String> {
    if holds {
        return Ok(());
    }
    Err(format!("{what}: {}", numbers()))
}

/// Times add up: those of operations are their numbers by their durations, and what exists once (channel, SLC buffer,
/// data lines) is not used for longer than the run.
fn check_times(outcome: &Outcome, at_end: &AtEnd) -> Result<(), String> {
    let (nand, timing) = (&outcome.nand, &at_end.timing);
    let numbers = || format!("{nand:?}, {timing:?}, run {} ns", outcome.card_ns);
    ensure(
        nand.erase_ns == nand.erases * timing.erase.0,
        "the time of erases is not theirs",
        numbers,
    )?;
    ensure(
        nand.backup_ns == nand.backups * (timing.read[0] + timing.program_slc).0,
        "the time of copies is not theirs",
        numbers,
    )?;
    let programs = timing.program.iter().chain([&timing.program_slc]);
    let shortest = programs.clone().min().copied().unwrap_or_default() + timing.transfer;
    let longest = programs.max().copied().unwrap_or_default() + timing.transfer;
    ensure(
        nand.programs * shortest.0 <= nand.program_ns && nand.program_ns <= nand.programs * longest.0,
        "the time of programs is not theirs",
        numbers,
    )?;
    let read = timing.read.iter().min().copied().unwrap_or_default() + timing.transfer;
    ensure(
        nand.reads * read.0 <= nand.read_ns,
        "reads are too short",
        numbers,
    )?;
    ensure(
        (nand.programs + nand.reads) * timing.transfer.0 <= outcome.card_ns,
        "the channel is busy for longer than the run",
        numbers,
    )?;
    ensure(
        nand.backup_ns <= outcome.card_ns,
        "the SLC buffer is busy for longer than the run",
        numbers,
    )?;
    let sectors = (outcome.reads.bytes + outcome.writes.bytes) / 512;
    let lines = u128::from(sectors) * u128::from(at_end.sector_ps) / 1000;
    ensure(
        lines <= u128::from(outcome.elapsed_ns),
        "the data lines are busy for longer than the run",
        || format!("{sectors} sectors in {} ns", outcome.elapsed_ns),
    )
}

/// The energy is the power of each operation by its time, and between standby and the highest power for the whole run.
fn check_energy(outcome: &Outcome, at_end: &AtEnd) -> Result<(), String> {
    let (nand, power, timing) = (&outcome.nand, &at_end.power, &at_end.timing);
    let copy = energy_pj(timing.read[0].0, power.read_mw) + energy_pj(timing.program_slc.0, power.program_mw);
    let expected = energy_pj(nand.read_ns, power.read_mw)
        + energy_pj(nand.program_ns, power.program_mw)
        + energy_pj(nand.erase_ns, power.erase_mw)
        + u128::from(nand.backups) * copy;
    let numbers = || format!("{:?} pJ, {nand:?}, {power:?}", outcome.energy_pj);
    ensure(
        nand.energy_pj == expected,
        "the energy is not power by time",
        numbers,
    )?;
    let Some(energy) = outcome.energy_pj else {
        return Ok(());
    };
    let banks = outcome.bank_busy_ns.len();
    let bank_time = u128::from(outcome.card_ns) * u128::try_from(banks).unwrap_or_default();
    let powers = [power.read_mw, power.program_mw, power.erase_mw];
    let most = powers.into_iter().max().unwrap_or_default() * 1000;
    let least = powers.into_iter().min().unwrap_or_default() * 1000;
    let bound = |microwatts: u64| bank_time * u128::from(microwatts) / 1000;
    ensure(
        bound(least.min(power.standby_uw)) <= energy + 1 && energy <= bound(most.max(power.standby_uw)),
        "the energy is beyond the power of the banks",
        numbers,
    )
}

/// Checks all invariants.
///
/// # Errors
/// The first broken one, with its numbers.
pub(crate) fn check(outcome: &Outcome, at_end: &AtEnd) -> Result<(), String> {
    let (layer, nand, driver) = (&outcome.translation, &outcome.nand, &outcome.driver);
    let (before, after) = at_end.pending_units;
    let programmed = nand.programs * u64::from(at_end.page_units);
    ensure(
        programmed + after == layer.written_units() + before,
        "programmed units are not those of host, padding, copies and map",
        || format!("{programmed} programmed, {before} and {after} pending, {layer:?}"),
    )?;
    let busy: u64 = outcome.bank_busy_ns.iter().sum();
    ensure(
        busy == nand.busy_ns(),
        "the busy time of the banks is not that of their operations",
        || format!("{busy} ns, {nand:?}"),
    )?;
    let longest = outcome.bank_busy_ns.iter().max().copied().unwrap_or_default();
    ensure(
        longest <= outcome.card_ns,
        "a bank is busy for longer than the run",
        || format!("{longest} of {} ns", outcome.card_ns),
    )?;
    ensure(
        outcome.elapsed_ns <= outcome.card_ns,
        "the card is done before the run",
        || format!("{} and {} ns", outcome.card_ns, outcome.elapsed_ns),
    )?;
    ensure(
        driver.busy_ns <= outcome.elapsed_ns,
        "the driver is busy for longer than the run",
        || format!("{} of {} ns", driver.busy_ns, outcome.elapsed_ns),
    )?;
    let sizes: u64 = (0..)
        .zip(&driver.pack_sizes)
        .map(|(size, count)| size * count)
        .sum();
    let attempts: u64 = driver.pack_sizes.iter().sum();
    let halts = |halts: &[u64; Stop::WORDS.len()]| halts.iter().sum::<u64>();
    ensure(
        attempts == halts(&driver.halts_of_attempts) && driver.packs == halts(&driver.halts_of_packs),
        "attempts to pack do not have one reason each",
        || format!("{driver:?}"),
    )?;
    ensure(
        driver.packed_write_requests <= driver.write_requests
            && driver.packed_write_bytes <= driver.write_bytes,
        "more is packed than written",
        || format!("{driver:?}"),
    )?;
    ensure(
        outcome.writes.requests <= driver.write_requests && outcome.writes.bytes <= driver.write_bytes,
        "more writes are completed than were sent",
        || format!("{:?}, {driver:?}", outcome.writes),
    )?;
    // Gathered requests that were not sent yet, and sent ones that were not completed yet.
    let in_progress = at_end.depth;
    ensure(
        attempts == 0 || sizes <= driver.write_requests + outcome.reads.requests + in_progress,
        "more requests are gathered than sent",
        || format!("{sizes} gathered, {driver:?}"),
    )?;
    ensure(
        driver.write_requests <= outcome.writes.requests + in_progress,
        "more writes are lost than can be in progress",
        || format!("{:?}, {driver:?}", outcome.writes),
    )?;
    check_times(outcome, at_end)?;
    check_energy(outcome, at_end)?;
    for (name, kind) in [("reads", &outcome.reads), ("writes", &outcome.writes)] {
        ensure(
            kind.latency.count() == kind.requests,
            "not each request has a latency",
            || format!("{name}: {} of {}", kind.latency.count(), kind.requests),
        )?;
    }
    Ok(())
}
