//! Invariants of the counters of a run, checked at its end.
//!
//! They tie counters of different layers together, so that a counter that belongs to another run, or is counted twice,
//! is noticed.

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
}

/// Checks all invariants.
///
/// # Errors
/// The first broken one, with its numbers.
pub(crate) fn check(outcome: &Outcome, at_end: &AtEnd) -> Result<(), String> {
    let ensure = |holds: bool, what: &str, numbers: String| match holds {
        true => Ok(()),
        false => Err(format!("{what}: {numbers}")),
    };
    let (layer, nand, driver) = (&outcome.translation, &outcome.nand, &outcome.driver);
    let (before, after) = at_end.pending_units;
    let programmed = nand.programs * u64::from(at_end.page_units);
    ensure(
        programmed + after == layer.written_units() + before,
        "programmed units are not those of host, padding, copies and map",
        format!("{programmed} programmed, {before} and {after} pending, {layer:?}"),
    )?;
    let busy: u64 = outcome.bank_busy_ns.iter().sum();
    ensure(
        busy == nand.busy_ns(),
        "the busy time of the banks is not that of their operations",
        format!("{busy} ns, {nand:?}"),
    )?;
    let longest = outcome.bank_busy_ns.iter().max().copied().unwrap_or_default();
    ensure(
        longest <= outcome.card_ns,
        "a bank is busy for longer than the run",
        format!("{longest} of {} ns", outcome.card_ns),
    )?;
    ensure(
        outcome.elapsed_ns <= outcome.card_ns,
        "the card is done before the run",
        format!("{} and {} ns", outcome.card_ns, outcome.elapsed_ns),
    )?;
    ensure(
        driver.busy_ns <= outcome.elapsed_ns,
        "the driver is busy for longer than the run",
        format!("{} of {} ns", driver.busy_ns, outcome.elapsed_ns),
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
        format!("{driver:?}"),
    )?;
    ensure(
        driver.packed_write_requests <= driver.write_requests
            && driver.packed_write_bytes <= driver.write_bytes,
        "more is packed than written",
        format!("{driver:?}"),
    )?;
    ensure(
        outcome.writes.requests <= driver.write_requests && outcome.writes.bytes <= driver.write_bytes,
        "more writes are completed than were sent",
        format!("{:?}, {driver:?}", outcome.writes),
    )?;
    // Gathered requests that were not sent yet, and sent ones that were not completed yet.
    let in_progress = at_end.depth;
    ensure(
        attempts == 0 || sizes <= driver.write_requests + outcome.reads.requests + in_progress,
        "more requests are gathered than sent",
        format!("{sizes} gathered, {driver:?}"),
    )?;
    ensure(
        driver.write_requests <= outcome.writes.requests + in_progress,
        "more writes are lost than can be in progress",
        format!("{:?}, {driver:?}", outcome.writes),
    )?;
    for (name, kind) in [("reads", &outcome.reads), ("writes", &outcome.writes)] {
        ensure(
            kind.latency.count() == kind.requests,
            "not each request has a latency",
            format!("{name}: {} of {}", kind.latency.count(), kind.requests),
        )?;
    }
    Ok(())
}
